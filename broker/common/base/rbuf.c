/* SPDX-License-Identifier: Apache-2.0
 *
 * rbuf: making and dropping reference-counted blocks. Any thread.
 */
#include "base/rbuf.h"

#include "base/alloc.h"
#include "base/assert.h"

sl_rbuf *sl_rbuf_new(size_t cap_bytes)
{
    SL_ASSERT(cap_bytes <= UINT32_MAX);
    sl_rbuf *rb = sl_alloc(sizeof(*rb) + cap_bytes);
    atomic_init(&rb->_refs, 1);
    rb->cap = (uint32_t)cap_bytes;
    rb->len = 0;
    return rb;
}

void sl_rbuf_unref(sl_rbuf **rb)
{
    sl_rbuf *mine = *rb;
    *rb = NULL;
    if (mine != NULL)
        sl_rbuf_unref_many(mine, 1);
}

void sl_rbuf_unref_many(sl_rbuf *rb, uint32_t n)
{
    if (n == 0)
        return;
    // Release: our reads end before the free. Acquire: the one who frees sees the others' end.
    uint32_t before = atomic_fetch_sub_explicit(&rb->_refs, n, memory_order_acq_rel);
    SL_ASSERT(before >= n);
    if (before == n)
        sl_free(rb);
}
