/* SPDX-License-Identifier: Apache-2.0
 *
 * log_embedded_ring: the last batches of a partition in memory, so that tailing readers never go
 * to the store. The writer pushes and evicts (one budget over all partitions, oldest first);
 * readers take references. All calls under the partition's lock.
 */
#include "base/alloc.h"
#include "base/assert.h"
#include "log/elog_fn.h"

const elog_entry *elog_ring_at(const elog_ring *ring, uint32_t index)
{
    return &ring->slots[(ring->first + index) & (ring->cap - 1)];
}

void elog_ring_push(elog_ring *ring, const elog_entry *entry)
{
    if (ring->count == ring->cap) {
        uint32_t cap = ring->cap == 0 ? 4 : ring->cap * 2;
        elog_entry *slots = sl_alloc(cap * sizeof *slots);
        for (uint32_t i = 0; i < ring->count; i++)
            slots[i] = *elog_ring_at(ring, i);
        sl_free(ring->slots);
        ring->slots = slots;
        ring->cap = cap;
        ring->first = 0;
    }
    ring->slots[(ring->first + ring->count) & (ring->cap - 1)] = *entry;
    ring->count++;
}

uint32_t elog_ring_find(const elog_ring *ring, uint64_t offset)
{
    uint32_t low = 0, high = ring->count;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (elog_ring_at(ring, mid)->end > offset)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

elog_entry elog_ring_pop(elog_ring *ring)
{
    SL_ASSERT(ring->count > 0);
    elog_entry entry = *elog_ring_at(ring, 0);
    ring->first = (ring->first + 1) & (ring->cap - 1);
    ring->count--;
    if (ring->count == 0 && ring->cap > 64) {
        // A burst is over: thousands of quiet topics must not keep its slots.
        sl_free(ring->slots);
        *ring = (elog_ring){0};
    }
    return entry;
}

void elog_ring_clear(elog_ring *ring)
{
    while (ring->count > 0) {
        elog_entry entry = elog_ring_pop(ring);
        sl_rbuf_unref(&entry.buf);
    }
    sl_free(ring->slots);
    *ring = (elog_ring){0};
}
