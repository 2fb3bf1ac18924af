/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox_codec: see inbox_codec.h.
 */
#include "store/inbox_codec.h"

#include <string.h>

#include "base/assert.h"

#define VERSION 1u

static uint8_t *put(uint8_t *at, uint64_t value, unsigned bytes)
{
    for (unsigned i = bytes; i-- > 0; value >>= 8)
        at[i] = (uint8_t)value;
    return at + bytes;
}

static uint64_t get(const uint8_t **at, unsigned bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++)
        value = value << 8 | *(*at)++;
    return value;
}

size_t inbox_key(uint8_t *out, sl_slice client, inbox_key_kind kind, uint64_t number,
                 uint16_t partition)
{
    SL_ASSERT(client.len > 0 && client.len <= SL_INBOX_MAX_CLIENT_BYTES);
    uint8_t *at = put(out, client.len, 2);
    memcpy(at, client.ptr, client.len);
    at = put(at + client.len, kind, 1);
    if (kind == INBOX_KEY_SOURCE || kind == INBOX_KEY_ROW)
        at = put(at, number, 8);
    if (kind == INBOX_KEY_SOURCE)
        at = put(at, partition, 2);
    return (size_t)(at - out);
}

inbox_key_kind inbox_key_parse(sl_slice key, size_t client_len, uint64_t *number,
                               uint16_t *partition)
{
    const uint8_t *at = key.ptr + 2 + client_len;
    size_t left = key.len - 2 - client_len;
    SL_ASSERT(key.len > 2 + client_len);
    inbox_key_kind kind = (inbox_key_kind)get(&at, 1);
    if (kind == INBOX_KEY_ROW && left == 9) {
        *number = get(&at, 8);
    } else if (kind == INBOX_KEY_SOURCE && left == 11) {
        *number = get(&at, 8);
        *partition = (uint16_t)get(&at, 2);
    } else if (kind != INBOX_KEY_META || left != 1) {
        return INBOX_KEY_END;
    }
    return kind;
}

void inbox_meta_encode(const inbox_meta *meta, uint8_t out[INBOX_META_BYTES])
{
    uint8_t *at = put(out, VERSION, 1);
    at = put(at, meta->generation, 8);
    at = put(at, meta->last_row, 8);
    at = put(at, meta->first_row, 8);
    put(at, meta->count, 4);
}

sl_err inbox_meta_decode(sl_slice value, inbox_meta *out)
{
    if (value.len != INBOX_META_BYTES || value.ptr[0] != VERSION)
        return SL_ECORRUPT;
    const uint8_t *at = value.ptr + 1;
    out->generation = get(&at, 8);
    out->last_row = get(&at, 8);
    out->first_row = get(&at, 8);
    out->count = (uint32_t)get(&at, 4);
    bool is_sound = out->generation > 0 && out->count <= SL_INBOX_MAX_ROWS &&
                    (out->count == 0 ? out->first_row == 0
                                     : out->first_row > 0 && out->first_row <= out->last_row &&
                                           out->count <= out->last_row - out->first_row + 1);
    return is_sound ? SL_OK : SL_ECORRUPT;
}

void inbox_source_encode(const inbox_source *so, uint8_t out[INBOX_SOURCE_BYTES])
{
    uint8_t *at = put(out, VERSION, 1);
    at = put(at, so->offset, 8);
    put(at, so->row, 8);
}

sl_err inbox_source_decode(sl_slice value, inbox_source *out)
{
    if (value.len != INBOX_SOURCE_BYTES || value.ptr[0] != VERSION)
        return SL_ECORRUPT;
    const uint8_t *at = value.ptr + 1;
    out->offset = get(&at, 8);
    out->row = get(&at, 8);
    return SL_OK;
}

void inbox_row_encode(const sl_inbox_entry *entry, uint8_t out[INBOX_ROW_HEAD])
{
    uint8_t *at = put(out, VERSION, 1);
    at = put(at, entry->kind, 1);
    at = put(at, entry->qos, 1);
    at = put(at, entry->flags, 1);
    at = put(at, (uint64_t)entry->expires_at_ms, 8);
    put(at, (uint64_t)entry->time_ms, 8);
}

sl_err inbox_row_decode(sl_slice value, sl_inbox_entry *out)
{
    if (value.len < INBOX_ROW_HEAD || value.ptr[0] != VERSION)
        return SL_ECORRUPT;
    const uint8_t *at = value.ptr + 1;
    uint64_t kind = get(&at, 1);
    out->qos = (uint8_t)get(&at, 1);
    out->flags = (uint8_t)get(&at, 1);
    out->expires_at_ms = (sl_wall_ms)get(&at, 8);
    out->time_ms = (sl_wall_ms)get(&at, 8);
    out->packet = sl_slice_of(at, value.len - INBOX_ROW_HEAD);
    bool is_sound = kind == SL_INBOX_PUBLISH ? out->packet.len > 0 && out->qos > 0 && out->qos <= 2
                                             : kind == SL_INBOX_PUBREL && out->packet.len == 0;
    if (!is_sound)
        return SL_ECORRUPT;
    out->kind = (sl_inbox_kind)kind;
    return SL_OK;
}
