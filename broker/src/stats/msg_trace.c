/* SPDX-License-Identifier: Apache-2.0
 *
 * msg_trace: see msg_trace.h. Writers take a place with one atomic add; a sequence number in the
 * entry tells readers whether it is whole.
 */
#include "stats/msg_trace.h"

#include "base/alloc.h"
#include "base/assert.h"

typedef struct entry {
    _Atomic uint64_t seq; /* 0: being written; else position + 1 */
    _Atomic uint64_t id;
    _Atomic uint64_t time_ns;
    _Atomic uint64_t what; /* step << 56 | partition << 32 | who */
} entry;

typedef struct sl_msg_trace_ring {
    sl_clock *clock;
    uint32_t cap;
    _Atomic uint64_t next;
    entry entries[];
} ring;

static const char *const STEP_NAMES[] = {
#define SL_STEP_NAME(name, text) #name,
    SL_STEP_MAP(SL_STEP_NAME)
#undef SL_STEP_NAME
};

sl_msg_trace *sl_msg_trace_new(sl_clock *ck, uint32_t capacity, bool on)
{
    SL_ASSERT(capacity > 0 && (capacity & (capacity - 1)) == 0);
    sl_msg_trace *tr = sl_calloc(1, sizeof(*tr));
    atomic_init(&tr->on, on);
    tr->_ring = sl_calloc(1, sizeof(ring) + (on ? capacity : 1) * sizeof(entry));
    tr->_ring->clock = ck;
    tr->_ring->cap = on ? capacity : 1;
    return tr;
}

void sl_msg_trace_free(sl_msg_trace **trace)
{
    if (*trace == NULL)
        return;
    sl_free((*trace)->_ring);
    sl_free(*trace);
    *trace = NULL;
}

void sl_msg_trace_record(sl_msg_trace *tr, sl_msg_step step, uint32_t partition, uint64_t id,
                         uint32_t who)
{
    ring *rg = tr->_ring;
    uint64_t at = atomic_fetch_add_explicit(&rg->next, 1, memory_order_relaxed);
    entry *en = &rg->entries[at & (rg->cap - 1)];
    atomic_store(&en->seq, 0);
    atomic_store(&en->id, id);
    atomic_store(&en->time_ns, sl_clock_mono_ns(rg->clock));
    atomic_store(&en->what, (uint64_t)step << 56 | (uint64_t)(partition & 0xFFFFFF) << 32 | who);
    atomic_store(&en->seq, at + 1);
}

sl_err sl_msg_trace_write(const sl_msg_trace *tr, sl_buf *out)
{
    const ring *rg = tr->_ring;
    uint64_t end = atomic_load(&rg->next);
    uint64_t at = end > rg->cap ? end - rg->cap : 0;
    for (; at < end; at++) {
        const entry *en = &rg->entries[at & (rg->cap - 1)];
        uint64_t seq = atomic_load(&en->seq), id = atomic_load(&en->id);
        uint64_t time_ns = atomic_load(&en->time_ns), what = atomic_load(&en->what);
        if (seq != at + 1 || atomic_load(&en->seq) != seq)
            continue;
        sl_err err = sl_buf_printf(
            out, "{\"step\":\"%s\",\"partition\":%u,\"id\":%llu,\"who\":%u,\"ns\":%llu}\n",
            STEP_NAMES[what >> 56], (unsigned)(what >> 32 & 0xFFFFFF), (unsigned long long)id,
            (unsigned)what, (unsigned long long)time_ns);
        if (err != SL_OK)
            return err;
    }
    return SL_OK;
}
