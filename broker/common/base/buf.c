/* SPDX-License-Identifier: Apache-2.0
 *
 * buf: a byte buffer that grows by doubling up to its maximum. Consuming at the front only moves an
 * offset; the gap is closed when room is needed, so a parser that eats packet by packet stays
 * linear.
 */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/assert.h"

#define FIRST_BYTES 64u

void sl_buf_init(sl_buf *buf, size_t max_bytes)
{
    // One byte of headroom is kept for the NUL of vsnprintf.
    SL_ASSERT(max_bytes < SIZE_MAX / 2);
    *buf = (sl_buf){._max = max_bytes};
}

void sl_buf_fini(sl_buf *buf)
{
    sl_free(buf->_ptr);
    buf->_ptr = NULL;
    buf->_off = buf->_len = buf->_cap = 0;
}

void sl_buf_clear(sl_buf *buf)
{
    buf->_off = buf->_len = 0;
}

// Makes room for len bytes behind the last one, plus one that is never part of the contents.
static sl_err make_room(sl_buf *buf, size_t len)
{
    if (len > buf->_max - buf->_len)
        return SL_ETOOBIG;
    size_t need = buf->_len + len + 1;
    if (buf->_off + need <= buf->_cap)
        return SL_OK;
    // Closing the gap pays off only when it frees at least as much as it moves.
    if (need <= buf->_cap && buf->_off >= buf->_len) {
        memmove(buf->_ptr, buf->_ptr + buf->_off, buf->_len);
        buf->_off = 0;
        return SL_OK;
    }
    size_t cap = buf->_cap < FIRST_BYTES ? FIRST_BYTES : buf->_cap * 2;
    if (cap > buf->_max + 1)
        cap = buf->_max + 1;
    if (cap < need)
        cap = need;
    uint8_t *ptr = sl_alloc(cap);
    if (buf->_len != 0)
        memcpy(ptr, buf->_ptr + buf->_off, buf->_len);
    sl_free(buf->_ptr);
    buf->_ptr = ptr;
    buf->_cap = cap;
    buf->_off = 0;
    return SL_OK;
}

sl_err sl_buf_append(sl_buf *buf, const void *ptr, size_t len)
{
    sl_err err = make_room(buf, len);
    if (err != SL_OK || len == 0)
        return err;
    memcpy(buf->_ptr + buf->_off + buf->_len, ptr, len);
    buf->_len += len;
    return SL_OK;
}

sl_err sl_buf_append_slice(sl_buf *buf, sl_slice bytes)
{
    return sl_buf_append(buf, bytes.ptr, bytes.len);
}

sl_err sl_buf_append_str(sl_buf *buf, const char *text)
{
    return sl_buf_append(buf, text, strlen(text));
}

sl_err sl_buf_append_u8(sl_buf *buf, uint8_t value)
{
    return sl_buf_append(buf, &value, 1);
}

sl_err sl_buf_append_u16(sl_buf *buf, uint16_t value)
{
    uint8_t bytes[2] = {(uint8_t)(value >> 8), (uint8_t)value};
    return sl_buf_append(buf, bytes, sizeof(bytes));
}

sl_err sl_buf_append_u32(sl_buf *buf, uint32_t value)
{
    uint8_t bytes[4] = {(uint8_t)(value >> 24), (uint8_t)(value >> 16), (uint8_t)(value >> 8),
                        (uint8_t)value};
    return sl_buf_append(buf, bytes, sizeof(bytes));
}

sl_err sl_buf_append_u64(sl_buf *buf, uint64_t value)
{
    uint8_t bytes[8];
    for (unsigned i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(value >> (56 - 8 * i));
    return sl_buf_append(buf, bytes, sizeof(bytes));
}

sl_err sl_buf_printf(sl_buf *buf, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    va_list again;
    va_copy(again, args);
    size_t used = buf->_off + buf->_len;
    size_t room = buf->_cap - used;
    char *at = buf->_ptr == NULL ? NULL : (char *)buf->_ptr + used;
    int len = vsnprintf(at, room, fmt, args);
    va_end(args);
    SL_ASSERT(len >= 0);
    sl_err err = SL_OK;
    if ((size_t)len >= room) { // capacity never exceeds the maximum and its NUL
        err = make_room(buf, (size_t)len);
        if (err == SL_OK)
            vsnprintf((char *)buf->_ptr + buf->_off + buf->_len, (size_t)len + 1, fmt, again);
    }
    va_end(again);
    if (err == SL_OK)
        buf->_len += (size_t)len;
    return err;
}

sl_err sl_buf_reserve(sl_buf *buf, size_t len, uint8_t **out)
{
    sl_err err = make_room(buf, len);
    if (err == SL_OK)
        *out = buf->_ptr + buf->_off + buf->_len;
    return err;
}

void sl_buf_commit(sl_buf *buf, size_t len)
{
    SL_ASSERT(buf->_off + buf->_len + len <= buf->_cap && len <= buf->_max - buf->_len);
    buf->_len += len;
}

void sl_buf_truncate(sl_buf *buf, size_t len)
{
    SL_ASSERT(len <= buf->_len);
    buf->_len = len;
}

void sl_buf_consume(sl_buf *buf, size_t len)
{
    SL_ASSERT(len <= buf->_len);
    buf->_len -= len;
    buf->_off = buf->_len == 0 ? 0 : buf->_off + len;
}

sl_slice sl_buf_peek(const sl_buf *buf)
{
    return sl_slice_of(buf->_ptr == NULL ? NULL : buf->_ptr + buf->_off, buf->_len);
}

uint8_t *sl_buf_take(sl_buf *buf, size_t *len)
{
    if (buf->_ptr == NULL)
        buf->_ptr = sl_alloc(1);
    else if (buf->_off != 0)
        memmove(buf->_ptr, buf->_ptr + buf->_off, buf->_len);
    uint8_t *ptr = buf->_ptr;
    *len = buf->_len;
    buf->_ptr = NULL;
    buf->_off = buf->_len = buf->_cap = 0;
    return ptr;
}
