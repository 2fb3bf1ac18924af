/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox_redis_keys: the keys of a client's box in Redis. Pure. Private to inbox_redis*.c.
 *
 *   PREFIX{client}_messages, PREFIX{client}_inbox, PREFIX{client}_last_packet_id
 *
 * The braces are a cluster's hash tag: all keys of a client are in one slot. A client id may have
 * any bytes: in it % is written %25 and } is written %7D, so that the tag ends where the id does
 * (an id that begins with } would make an empty tag, which is none). Different ids give different
 * keys: the escape can be undone, and the last } of a key ends the id.
 */
#ifndef SL_STORE_INBOX_REDIS_KEYS_H
#define SL_STORE_INBOX_REDIS_KEYS_H

#include "base/slice.h"

typedef struct inbox_redis_keys {
    sl_slice messages, inbox, last_packet_id;
    uint8_t *bytes; /* owned */
} inbox_redis_keys;

/** prefix: without braces. */
void inbox_redis_keys_init(inbox_redis_keys *ks, const char *prefix, sl_slice client);
void inbox_redis_keys_fini(inbox_redis_keys *ks);

#endif
