/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox_redis_lua: the scripts that the Redis inbox runs inside Redis, one per operation, so that
 * each is atomic. Private to inbox_redis*.c; docs/redis.md explains the keys.
 *
 * KEYS: 1 {client}_messages, 2 {client}_inbox, 3 {client}_last_packet_id. Body keys are KEYS[1], _
 * and the packet id: they have the same hash tag. Numbers of 64 bits (generation, source offset)
 * come as 20 decimal digits and are compared as text, because Lua's numbers are exact to 2^53 only.
 */
#ifndef SL_STORE_INBOX_REDIS_LUA_H
#define SL_STORE_INBOX_REDIS_LUA_H

#include "store/redis_client.h"

typedef enum inbox_lua {
    /* generation, limit, maximum of sources, then for each row: source field (empty: none), source
     * offset, TTL in ms, body. Gives dropped rows (-1: all, of an older generation), evicted ones,
     * and the row numbers with commas (0: not stored). */
    INBOX_LUA_ADD,
    /* generation, after row, maximum of rows, of bytes, time in ms. Gives -1 (older generation) or:
     * count, expired, repaired, 1 if there are more, an array of row number and body. */
    INBOX_LUA_READ,
    /* generation, packet ids. Gives how many were in the box. */
    INBOX_LUA_REMOVE,
    /* generation, packet id, body, TTL in ms. Gives 1, or 0 when there is none. */
    INBOX_LUA_MARK,
    /* generation (all zeros: for good). Gives 1, or 0 when it is an older one. */
    INBOX_LUA_CLEAR,
    INBOX_LUA_COUNT
} inbox_lua;

/** The scripts, with their names filled in; static. @thread init */
const sl_redis_script *inbox_redis_scripts(void);

#endif
