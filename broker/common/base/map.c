/* SPDX-License-Identifier: Apache-2.0
 *
 * map: two hash maps by open addressing with linear probing. A removed entry leaves a tombstone, so
 * nothing moves outside of put: that is what makes "remove while iterating" legal. Tables are
 * rebuilt when entries and tombstones fill three quarters; the new size follows the entries, so a
 * map that had a peak shrinks again. Hashes are seeded per map: keys come from peers.
 */
#include "base/map.h"

#include <sys/random.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/alloc.h"
#include "base/assert.h"

#define MIN_SLOTS 8u

typedef struct entry {
    uint64_t hash;
    uint8_t *key; /* owned; NULL: never used, &tombstone: removed */
    size_t len;
    void *value; /* borrowed from the caller */
} entry;

struct sl_map {
    size_t max;
    size_t count;
    size_t filled; /* entries and tombstones */
    size_t slots;  /* a power of two, or 0 */
    uint64_t seed;
    entry *table; /* owned */
};

typedef enum slot_state { SLOT_FREE, SLOT_USED, SLOT_REMOVED } slot_state;

typedef struct ientry {
    uint64_t key;
    void *value;
} ientry;

struct sl_imap {
    size_t max;
    size_t count;
    size_t filled;
    size_t slots;
    uint64_t seed;
    ientry *table;  /* owned */
    uint8_t *state; /* owned; slot_state of each slot */
};

static uint8_t tombstone;

static uint64_t new_seed(const void *map)
{
    uint64_t seed;
    // Without entropy (early boot) the address still differs from process to process.
    if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != (ssize_t)sizeof(seed))
        seed = (uint64_t)(uintptr_t)map;
    return seed;
}

static size_t slots_for(size_t entries)
{
    size_t slots = MIN_SLOTS;
    while (slots / 2 < entries)
        slots *= 2;
    return slots;
}

static bool is_crowded(size_t filled, size_t slots)
{
    return (filled + 1) * 4 > slots * 3;
}

sl_map *sl_map_new(size_t max_entries)
{
    sl_map *map = sl_calloc(1, sizeof(*map));
    map->max = max_entries;
    map->seed = new_seed(map);
    return map;
}

void sl_map_free(sl_map **map)
{
    sl_map *mine = *map;
    *map = NULL;
    if (mine == NULL)
        return;
    for (size_t i = 0; i < mine->slots; i++)
        if (mine->table[i].key != &tombstone)
            sl_free(mine->table[i].key);
    sl_free(mine->table);
    sl_free(mine);
}

size_t sl_map_count(const sl_map *map)
{
    return map->count;
}

static entry *find_entry(const sl_map *map, sl_slice key, uint64_t hash)
{
    if (map->slots == 0)
        return NULL;
    for (size_t i = hash & (map->slots - 1);; i = (i + 1) & (map->slots - 1)) {
        entry *at = &map->table[i];
        if (at->key == NULL)
            return NULL;
        if (at->hash == hash && at->key != &tombstone &&
            sl_slice_equal(sl_slice_of(at->key, at->len), key))
            return at;
    }
}

void *sl_map_get(const sl_map *map, sl_slice key)
{
    const entry *at = find_entry(map, key, XXH3_64bits_withSeed(key.ptr, key.len, map->seed));
    return at == NULL ? NULL : at->value;
}

static void rebuild(sl_map *map)
{
    size_t slots = slots_for(map->count + 1);
    entry *table = sl_calloc(slots, sizeof(*table));
    for (size_t from = 0; from < map->slots; from++) {
        const entry *old = &map->table[from];
        if (old->key == NULL || old->key == &tombstone)
            continue;
        size_t to = old->hash & (slots - 1);
        while (table[to].key != NULL)
            to = (to + 1) & (slots - 1);
        table[to] = *old;
    }
    sl_free(map->table);
    map->table = table;
    map->slots = slots;
    map->filled = map->count;
}

sl_err sl_map_put(sl_map *map, sl_slice key, void *value, void **old)
{
    uint64_t hash = XXH3_64bits_withSeed(key.ptr, key.len, map->seed);
    entry *at = find_entry(map, key, hash);
    if (at != NULL) {
        if (old != NULL)
            *old = at->value;
        at->value = value;
        return SL_OK;
    }
    if (map->max != 0 && map->count >= map->max)
        return SL_ELIMIT;
    if (is_crowded(map->filled, map->slots))
        rebuild(map);
    size_t i = hash & (map->slots - 1);
    while (map->table[i].key != NULL && map->table[i].key != &tombstone)
        i = (i + 1) & (map->slots - 1);
    if (map->table[i].key == NULL)
        map->filled++;
    map->table[i] = (entry){hash, (uint8_t *)sl_strndup(key.ptr, key.len), key.len, value};
    map->count++;
    if (old != NULL)
        *old = NULL;
    return SL_OK;
}

void *sl_map_remove(sl_map *map, sl_slice key)
{
    entry *at = find_entry(map, key, XXH3_64bits_withSeed(key.ptr, key.len, map->seed));
    if (at == NULL)
        return NULL;
    void *value = at->value;
    sl_free(at->key);
    size_t next = ((size_t)(at - map->table) + 1) & (map->slots - 1);
    // A chain that ends behind this slot needs no tombstone in it.
    if (map->table[next].key == NULL) {
        *at = (entry){.key = NULL};
        map->filled--;
    } else {
        *at = (entry){.key = &tombstone};
    }
    map->count--;
    return value;
}

bool sl_map_each(const sl_map *map, size_t *pos, sl_slice *key, void **value)
{
    while (*pos < map->slots) {
        const entry *at = &map->table[(*pos)++];
        if (at->key == NULL || at->key == &tombstone)
            continue;
        if (key != NULL)
            *key = sl_slice_of(at->key, at->len);
        if (value != NULL)
            *value = at->value;
        return true;
    }
    return false;
}

sl_imap *sl_imap_new(size_t max_entries)
{
    sl_imap *map = sl_calloc(1, sizeof(*map));
    map->max = max_entries;
    map->seed = new_seed(map);
    return map;
}

void sl_imap_free(sl_imap **map)
{
    sl_imap *mine = *map;
    *map = NULL;
    if (mine == NULL)
        return;
    sl_free(mine->table);
    sl_free(mine->state);
    sl_free(mine);
}

size_t sl_imap_count(const sl_imap *map)
{
    return map->count;
}

static size_t first_slot(const sl_imap *map, uint64_t key, size_t slots)
{
    return (size_t)XXH3_64bits_withSeed(&key, sizeof(key), map->seed) & (slots - 1);
}

// The slot of key, or map->slots when it is absent.
static size_t find_slot(const sl_imap *map, uint64_t key)
{
    if (map->slots == 0)
        return 0;
    for (size_t i = first_slot(map, key, map->slots);; i = (i + 1) & (map->slots - 1)) {
        if (map->state[i] == SLOT_FREE)
            return map->slots;
        if (map->state[i] == SLOT_USED && map->table[i].key == key)
            return i;
    }
}

void *sl_imap_get(const sl_imap *map, uint64_t key)
{
    size_t i = find_slot(map, key);
    return i == map->slots ? NULL : map->table[i].value;
}

static void irebuild(sl_imap *map)
{
    size_t slots = slots_for(map->count + 1);
    ientry *table = sl_calloc(slots, sizeof(*table));
    uint8_t *state = sl_calloc(slots, sizeof(*state));
    for (size_t from = 0; from < map->slots; from++) {
        if (map->state[from] != SLOT_USED)
            continue;
        size_t to = first_slot(map, map->table[from].key, slots);
        while (state[to] != SLOT_FREE)
            to = (to + 1) & (slots - 1);
        table[to] = map->table[from];
        state[to] = SLOT_USED;
    }
    sl_free(map->table);
    sl_free(map->state);
    map->table = table;
    map->state = state;
    map->slots = slots;
    map->filled = map->count;
}

sl_err sl_imap_put(sl_imap *map, uint64_t key, void *value, void **old)
{
    size_t i = find_slot(map, key);
    if (i != map->slots) {
        if (old != NULL)
            *old = map->table[i].value;
        map->table[i].value = value;
        return SL_OK;
    }
    if (map->max != 0 && map->count >= map->max)
        return SL_ELIMIT;
    if (is_crowded(map->filled, map->slots))
        irebuild(map);
    i = first_slot(map, key, map->slots);
    while (map->state[i] == SLOT_USED)
        i = (i + 1) & (map->slots - 1);
    if (map->state[i] == SLOT_FREE)
        map->filled++;
    map->table[i] = (ientry){key, value};
    map->state[i] = SLOT_USED;
    map->count++;
    if (old != NULL)
        *old = NULL;
    return SL_OK;
}

void *sl_imap_remove(sl_imap *map, uint64_t key)
{
    size_t i = find_slot(map, key);
    if (i == map->slots)
        return NULL;
    if (map->state[(i + 1) & (map->slots - 1)] == SLOT_FREE) {
        map->state[i] = SLOT_FREE;
        map->filled--;
    } else {
        map->state[i] = SLOT_REMOVED;
    }
    map->count--;
    return map->table[i].value;
}

bool sl_imap_each(const sl_imap *map, size_t *pos, uint64_t *key, void **value)
{
    while (*pos < map->slots) {
        size_t i = (*pos)++;
        if (map->state[i] != SLOT_USED)
            continue;
        if (key != NULL)
            *key = map->table[i].key;
        if (value != NULL)
            *value = map->table[i].value;
        return true;
    }
    return false;
}
