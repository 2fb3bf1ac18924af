/* SPDX-License-Identifier: Apache-2.0
 *
 * batch: encoding and decoding of packed record batches (batch.h). A position is the index of the
 * next record in the upper 24 bits and its byte in the lower 40, so that a caller's one number is
 * enough to go on.
 */
#include "log/batch.h"

#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "log/bytes.h"

#define BATCH_MAGIC   'S'
#define BATCH_VERSION 1
#define CHECKED_FROM  8 /* the checksum covers everything from here, and the hints */
#define SOURCE_BYTES  14
#define POS_BITS      40
#define POS_MASK      ((1ull << POS_BITS) - 1)

static size_t put_varint(uint8_t *out, uint64_t value)
{
    size_t len = 0;
    while (value >= 0x80) {
        out[len++] = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    out[len++] = (uint8_t)value;
    return len;
}

static bool get_varint(const uint8_t **ptr, const uint8_t *end, uint64_t *out)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && *ptr < end; shift += 7) {
        uint8_t byte = *(*ptr)++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) {
            *out = value;
            return true;
        }
    }
    return false;
}

static size_t headers_bytes(const sl_batch_parts *parts)
{
    size_t sum = parts->raw_headers.len;
    for (uint32_t i = 0; i < parts->header_count; i++)
        sum += 3 + parts->headers[i].value.len;
    return sum;
}

static size_t value_bytes(const sl_batch_parts *parts)
{
    size_t sum = 0;
    for (uint32_t i = 0; i < parts->value_count; i++)
        sum += parts->value[i].len;
    return sum;
}

size_t sl_batch_record_bound(const sl_batch_parts *parts)
{
    return 8 + 2 + 10 + 3 * 5 + SOURCE_BYTES + parts->key.len + headers_bytes(parts) +
           value_bytes(parts);
}

static void ensure_room(sl_batch_fill *fill, size_t need, size_t first_cap)
{
    if (fill->buf == NULL) {
        need += SL_BATCH_HEADER_BYTES;
        fill->buf = sl_rbuf_new(need > first_cap ? need : first_cap);
        fill->buf->len = SL_BATCH_HEADER_BYTES;
        return;
    }
    if (fill->buf->cap - fill->buf->len >= need)
        return;
    // Doubling keeps the copies of a chunk that outgrew its first guess amortised.
    size_t cap = (size_t)fill->buf->cap * 2;
    if (cap < fill->buf->len + need)
        cap = fill->buf->len + need;
    sl_rbuf *bigger = sl_rbuf_new(cap);
    memcpy(bigger->data, fill->buf->data, fill->buf->len);
    bigger->len = fill->buf->len;
    sl_rbuf_unref(&fill->buf);
    fill->buf = bigger;
}

static uint8_t *put_slice(uint8_t *at, sl_slice bytes)
{
    if (bytes.len > 0)
        memcpy(at, bytes.ptr, bytes.len);
    return at + bytes.len;
}

static uint8_t *put_headers(uint8_t *at, const sl_batch_parts *parts)
{
    for (uint32_t i = 0; i < parts->header_count; i++) {
        const sl_log_header *hd = &parts->headers[i];
        at[0] = (uint8_t)hd->id;
        sl_put_u16(at + 1, (uint16_t)hd->value.len);
        at = put_slice(at + 3, hd->value);
    }
    return put_slice(at, parts->raw_headers);
}

static void note_hints(sl_batch_fill *fill, uint8_t flags)
{
    fill->hints |= (flags & SL_LOG_VOLATILE) != 0 ? SL_BATCH_VOLATILE : SL_BATCH_DURABLE;
    if ((flags & SL_BATCH_REFERENCE) != 0)
        fill->hints |= SL_BATCH_REFS;
}

void sl_batch_append(sl_batch_fill *fill, const sl_batch_parts *parts, size_t first_cap,
                     const uint64_t *with_offset)
{
    size_t headers_len = headers_bytes(parts);
    size_t value_len = value_bytes(parts);
    ensure_room(fill, 8 + 2 + 10 + 3 * 5 + SOURCE_BYTES + parts->key.len + headers_len + value_len,
                first_cap);
    if (fill->count == 0)
        fill->base_time = parts->time_ms;
    uint8_t *at = fill->buf->data + fill->buf->len;
    if (with_offset != NULL) {
        sl_put_u64(at, *with_offset);
        at += 8;
        fill->hints |= SL_BATCH_ROWS;
    }
    *at++ = parts->flags;
    *at++ = parts->attr;
    int64_t delta = (int64_t)((uint64_t)parts->time_ms - (uint64_t)fill->base_time);
    at += put_varint(at, ((uint64_t)delta << 1) ^ (uint64_t)(delta >> 63));
    at += put_varint(at, parts->key.len);
    at += put_varint(at, headers_len);
    at += put_varint(at, value_len);
    if ((parts->flags & SL_BATCH_DERIVED) != 0) {
        sl_put_u32(at, parts->source->topic_id);
        sl_put_u16(at + 4, parts->source->partition);
        sl_put_u64(at + 6, parts->source->offset);
        at += SOURCE_BYTES;
    }
    at = put_slice(at, parts->key);
    at = put_headers(at, parts);
    for (uint32_t i = 0; i < parts->value_count; i++)
        at = put_slice(at, parts->value[i]);
    fill->buf->len = (uint32_t)(at - fill->buf->data);
    fill->count++;
    note_hints(fill, parts->flags);
}

static void put_header(uint8_t *at, uint8_t hints, uint64_t base, sl_wall_ms base_time,
                       uint32_t count, uint32_t size)
{
    at[0] = BATCH_MAGIC;
    at[1] = BATCH_VERSION;
    at[2] = hints;
    at[3] = 0;
    sl_put_u64(at + 8, base);
    sl_put_u64(at + 16, (uint64_t)base_time);
    sl_put_u32(at + 24, count);
    sl_put_u32(at + 28, size);
}

/* Header and body are hashed one after the other, so that a row needs no copy of its record. */
static uint32_t checksum(const uint8_t *header, sl_slice body)
{
    uint64_t seed = XXH3_64bits_withSeed(header + CHECKED_FROM,
                                         SL_BATCH_HEADER_BYTES - CHECKED_FROM, header[2]);
    return (uint32_t)XXH3_64bits_withSeed(body.ptr, body.len, seed);
}

void sl_batch_finish(sl_batch_fill *fill, uint64_t base)
{
    SL_ASSERT(fill->buf != NULL);
    uint8_t *data = fill->buf->data;
    put_header(data, fill->hints, base, fill->base_time, fill->count, fill->buf->len);
    sl_put_u32(data + 4, checksum(data, sl_slice_of(data + SL_BATCH_HEADER_BYTES,
                                                    fill->buf->len - SL_BATCH_HEADER_BYTES)));
}

void sl_batch_row_header(uint8_t out[SL_BATCH_HEADER_BYTES], sl_slice record, uint64_t offset,
                         sl_wall_ms base_time, uint8_t hints)
{
    put_header(out, hints, offset, base_time, 1, (uint32_t)(SL_BATCH_HEADER_BYTES + record.len));
    sl_put_u32(out + 4, checksum(out, record));
}

sl_err sl_batch_open(sl_slice bytes, bool full, sl_batch_info *out)
{
    if (bytes.len < SL_BATCH_HEADER_BYTES || bytes.ptr[0] != BATCH_MAGIC ||
        bytes.ptr[1] != BATCH_VERSION)
        return SL_ECORRUPT;
    sl_batch_info info = {.base = sl_get_u64(bytes.ptr + 8),
                          .base_time = (sl_wall_ms)sl_get_u64(bytes.ptr + 16),
                          .count = sl_get_u32(bytes.ptr + 24),
                          .size = sl_get_u32(bytes.ptr + 28),
                          .hints = bytes.ptr[2]};
    if (full) {
        if (info.size != bytes.len || info.count == 0)
            return SL_ECORRUPT;
        sl_slice body =
            sl_slice_of(bytes.ptr + SL_BATCH_HEADER_BYTES, bytes.len - SL_BATCH_HEADER_BYTES);
        if (checksum(bytes.ptr, body) != sl_get_u32(bytes.ptr + 4))
            return SL_ECORRUPT;
    }
    *out = info;
    return SL_OK;
}

static bool parse_record(const uint8_t **at, const uint8_t *end, const sl_batch_info *info,
                         sl_batch_record *out)
{
    const uint8_t *ptr = *at;
    if ((info->hints & SL_BATCH_ROWS) != 0) {
        if (end - ptr < 8)
            return false;
        out->offset = sl_get_u64(ptr);
        ptr += 8;
    }
    if (end - ptr < 2)
        return false;
    out->flags = ptr[0];
    out->attr = ptr[1];
    ptr += 2;
    uint64_t delta, key_len, headers_len, value_len;
    if (!get_varint(&ptr, end, &delta) || !get_varint(&ptr, end, &key_len) ||
        !get_varint(&ptr, end, &headers_len) || !get_varint(&ptr, end, &value_len))
        return false;
    out->time_ms = (sl_wall_ms)((uint64_t)info->base_time + ((delta >> 1) ^ (0 - (delta & 1))));
    if ((out->flags & SL_BATCH_DERIVED) != 0) {
        if (end - ptr < SOURCE_BYTES)
            return false;
        out->source = (sl_batch_source){sl_get_u32(ptr), sl_get_u16(ptr + 4), sl_get_u64(ptr + 6)};
        ptr += SOURCE_BYTES;
    }
    uint64_t left = (uint64_t)(end - ptr);
    if (key_len > left || headers_len > left - key_len || value_len > left - key_len - headers_len)
        return false;
    out->key = sl_slice_of(ptr, key_len);
    out->headers = sl_slice_of(ptr + key_len, headers_len);
    out->value = sl_slice_of(ptr + key_len + headers_len, value_len);
    *at = ptr + key_len + headers_len + value_len;
    return true;
}

bool sl_batch_next(sl_slice bytes, const sl_batch_info *info, uint64_t *pos, sl_batch_record *out)
{
    uint64_t index = *pos >> POS_BITS;
    uint64_t byte = *pos & POS_MASK;
    if (byte == 0)
        byte = SL_BATCH_HEADER_BYTES;
    if (index >= info->count || byte > bytes.len)
        return false;
    const uint8_t *at = bytes.ptr + byte;
    out->offset = info->base + index;
    if (!parse_record(&at, bytes.ptr + bytes.len, info, out))
        return false;
    *pos = (index + 1) << POS_BITS | (uint64_t)(at - bytes.ptr);
    return true;
}

sl_slice sl_batch_span(sl_slice bytes, uint64_t from, uint64_t pos)
{
    uint64_t start = from & POS_MASK;
    if (start == 0)
        start = SL_BATCH_HEADER_BYTES;
    return sl_slice_of(bytes.ptr + start, (pos & POS_MASK) - start);
}
