/* SPDX-License-Identifier: Apache-2.0
 *
 * buf: a growing byte buffer that names its maximum at init. Not shared between threads.
 */
#ifndef SL_BASE_BUF_H
#define SL_BASE_BUF_H

#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"

typedef struct sl_buf {
    uint8_t *_ptr; /* owned */
    size_t _off;   /* bytes consumed at the front, reclaimed when room is needed */
    size_t _len;
    size_t _cap;
    size_t _max;
} sl_buf;

/** An empty buffer that never grows past max_bytes. No memory is taken yet. @thread any */
void sl_buf_init(sl_buf *buf, size_t max_bytes);
/** Frees the memory; the buffer is empty again and usable. @thread any */
void sl_buf_fini(sl_buf *buf);
/** Length 0, memory kept. @thread any */
void sl_buf_clear(sl_buf *buf);
/** Errors SL_ETOOBIG: nothing was appended. @thread any */
SL_MUST_USE sl_err sl_buf_append(sl_buf *buf, const void *ptr, size_t len);
SL_MUST_USE sl_err sl_buf_append_slice(sl_buf *buf, sl_slice bytes);
SL_MUST_USE sl_err sl_buf_append_str(sl_buf *buf, const char *text);
SL_MUST_USE sl_err sl_buf_append_u8(sl_buf *buf, uint8_t value);
/** Big endian. @thread any */
SL_MUST_USE sl_err sl_buf_append_u16(sl_buf *buf, uint16_t value);
SL_MUST_USE sl_err sl_buf_append_u32(sl_buf *buf, uint32_t value);
SL_MUST_USE sl_err sl_buf_append_u64(sl_buf *buf, uint64_t value);
SL_MUST_USE sl_err sl_buf_printf(sl_buf *buf, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/** Room for len more bytes at *out; sl_buf_commit says how many were written. @thread any */
SL_MUST_USE sl_err sl_buf_reserve(sl_buf *buf, size_t len, uint8_t **out);
void sl_buf_commit(sl_buf *buf, size_t len);
/** Drops what is behind the first len bytes (len <= length). @thread any */
void sl_buf_truncate(sl_buf *buf, size_t len);
/** Drops len bytes at the front (len <= length). @thread any */
void sl_buf_consume(sl_buf *buf, size_t len);
/** Borrowed until the next change. @thread any */
sl_slice sl_buf_peek(const sl_buf *buf);
/** Moves the bytes out to the caller (free with sl_free); the buffer is empty. @thread any */
uint8_t *sl_buf_take(sl_buf *buf, size_t *len);

#endif
