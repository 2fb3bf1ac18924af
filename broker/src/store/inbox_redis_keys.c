/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox_redis_keys: see inbox_redis_keys.h.
 */
#include "store/inbox_redis_keys.h"

#include "base/alloc.h"

static size_t append(uint8_t *at, const char *text)
{
    size_t len = strlen(text);
    memcpy(at, text, len);
    return len;
}

static size_t append_tag(uint8_t *at, const char *prefix, sl_slice client)
{
    size_t len = append(at, prefix);
    at[len++] = '{';
    for (size_t i = 0; i < client.len; i++) {
        uint8_t byte = client.ptr[i];
        if (byte == '%' || byte == '}')
            len += append(at + len, byte == '%' ? "%25" : "%7D");
        else
            at[len++] = byte;
    }
    at[len++] = '}';
    return len;
}

void inbox_redis_keys_init(inbox_redis_keys *ks, const char *prefix, sl_slice client)
{
    static const char *const suffixes[] = {"_messages", "_inbox", "_last_packet_id"};
    sl_slice *keys[] = {&ks->messages, &ks->inbox, &ks->last_packet_id};
    size_t most = strlen(prefix) + client.len * 3 + 32;
    ks->bytes = sl_alloc(3 * most);
    size_t tag = append_tag(ks->bytes, prefix, client);
    uint8_t *at = ks->bytes;
    for (size_t i = 0; i < 3; i++) {
        if (i > 0)
            memcpy(at, ks->bytes, tag);
        size_t len = tag + append(at + tag, suffixes[i]);
        *keys[i] = sl_slice_of(at, len);
        at += len;
    }
}

void inbox_redis_keys_fini(inbox_redis_keys *ks)
{
    sl_free(ks->bytes);
    *ks = (inbox_redis_keys){0};
}
