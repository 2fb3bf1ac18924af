/* SPDX-License-Identifier: Apache-2.0
 *
 * rbuf: an immutable-after-fill, reference-counted block of bytes. Read buffers, log batches and
 * message bodies are rbufs; whoever keeps a slice of one keeps a reference.
 */
#ifndef SL_BASE_RBUF_H
#define SL_BASE_RBUF_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sl_rbuf {
    _Atomic uint32_t _refs;
    uint32_t cap;   /* bytes of data[] */
    uint32_t len;   /* bytes filled; written by the filler only */
    uint8_t data[]; /* frozen once anyone else holds a reference */
} sl_rbuf;

/** One reference, owned by the caller; cap_bytes of room, length 0. @thread any */
sl_rbuf *sl_rbuf_new(size_t cap_bytes);
/** @thread any */
static inline sl_rbuf *sl_rbuf_ref(sl_rbuf *rb)
{
    atomic_fetch_add_explicit(&rb->_refs, 1, memory_order_relaxed);
    return rb;
}
/** n more references in one step: a fan-out takes them all at once. @thread any */
static inline void sl_rbuf_ref_many(sl_rbuf *rb, uint32_t n)
{
    atomic_fetch_add_explicit(&rb->_refs, n, memory_order_relaxed);
}
/** Gives one reference back and sets *rb to NULL; accepts NULL inside. @thread any */
void sl_rbuf_unref(sl_rbuf **rb);
/** Gives n references back. @thread any */
void sl_rbuf_unref_many(sl_rbuf *rb, uint32_t n);
/** True when the caller holds the only reference. @thread any */
static inline int sl_rbuf_is_sole(const sl_rbuf *rb)
{
    return atomic_load_explicit(&rb->_refs, memory_order_acquire) == 1;
}

#endif
