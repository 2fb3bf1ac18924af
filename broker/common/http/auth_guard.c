/* SPDX-License-Identifier: Apache-2.0
 *
 * auth_guard: counts bad logins per address in a window. IPv6 addresses count per /64, because one
 * guesser has that many. The table is bounded: at its end the oldest window is forgotten.
 */
#include <arpa/inet.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "http/auth_int.h"

#define MAX_ADDRESSES 10000
#define KEY_BYTES     16

typedef struct guard_entry {
    sl_node in_age;
    sl_mono_ms begin;
    uint32_t failed;
    size_t key_len;
    uint8_t key[KEY_BYTES];
} guard_entry;

void auth_guard_init(auth_guard *gd, uint32_t attempts, sl_dur_ms window_ms)
{
    *gd = (auth_guard){.attempts = attempts, .window_ms = window_ms};
    gd->by_address = sl_map_new(MAX_ADDRESSES);
    sl_list_init(&gd->age);
}

static void forget(auth_guard *gd, guard_entry *en)
{
    sl_list_remove(&en->in_age);
    (void)sl_map_remove(gd->by_address, sl_slice_of(en->key, en->key_len));
    sl_free(en);
}

void auth_guard_fini(auth_guard *gd)
{
    for (sl_node *node; (node = sl_list_first(&gd->age)) != NULL;)
        forget(gd, SL_CONTAINER(node, guard_entry, in_age));
    sl_map_free(&gd->by_address);
}

static size_t key_of(const char *ip, uint8_t key[KEY_BYTES])
{
    uint8_t v6[16];
    if (inet_pton(AF_INET6, ip, v6) == 1) {
        memcpy(key, v6, 8);
        return 8;
    }
    size_t len = strnlen(ip, KEY_BYTES);
    memcpy(key, ip, len);
    return len;
}

/* The entry of the address while its window lasts, or NULL. */
static guard_entry *current(auth_guard *gd, const char *ip, sl_mono_ms now)
{
    for (sl_node *node; (node = sl_list_first(&gd->age)) != NULL;) {
        guard_entry *en = SL_CONTAINER(node, guard_entry, in_age);
        if (now - en->begin < gd->window_ms)
            break;
        forget(gd, en);
    }
    uint8_t key[KEY_BYTES];
    size_t len = key_of(ip, key);
    return sl_map_get(gd->by_address, sl_slice_of(key, len));
}

bool auth_guard_blocks(auth_guard *gd, const char *ip, sl_mono_ms now, sl_dur_ms *retry_ms)
{
    const guard_entry *en = current(gd, ip, now);
    if (en == NULL || en->failed < gd->attempts)
        return false;
    *retry_ms = en->begin + gd->window_ms - now;
    return true;
}

void auth_guard_failed(auth_guard *gd, const char *ip, sl_mono_ms now)
{
    guard_entry *en = current(gd, ip, now);
    if (en == NULL) {
        if (sl_map_count(gd->by_address) >= MAX_ADDRESSES)
            forget(gd, SL_CONTAINER(sl_list_first(&gd->age), guard_entry, in_age));
        en = sl_calloc(1, sizeof(*en));
        en->begin = now;
        en->key_len = key_of(ip, en->key);
        sl_list_push_back(&gd->age, &en->in_age);
        sl_err err = sl_map_put(gd->by_address, sl_slice_of(en->key, en->key_len), en, NULL);
        SL_ASSERT(err == SL_OK);
    }
    en->failed++;
}
