/* SPDX-License-Identifier: Apache-2.0
 *
 * map: hash maps with a maximum: byte-string keys (copied) and 64-bit integer keys, both to one
 * pointer. Open addressing, one thread at a time (the owner says which).
 */
#ifndef SL_BASE_MAP_H
#define SL_BASE_MAP_H

#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"

typedef struct sl_map sl_map;   /* sl_slice -> void * */
typedef struct sl_imap sl_imap; /* uint64_t -> void * */

/** max_entries 0: no maximum of its own (the caller bounds it elsewhere and says where). */
sl_map *sl_map_new(size_t max_entries);
/** Values are not freed. Accepts NULL inside, sets NULL. */
void sl_map_free(sl_map **map);
size_t sl_map_count(const sl_map *map);
/** NULL when absent. */
void *sl_map_get(const sl_map *map, sl_slice key);
/** Adds or replaces; *old (may be NULL) gets the previous value or NULL. SL_ELIMIT when full. */
SL_MUST_USE sl_err sl_map_put(sl_map *map, sl_slice key, void *value, void **old);
/** The removed value, or NULL. */
void *sl_map_remove(sl_map *map, sl_slice key);
/** Iterates in no order: start with *pos = 0; false at the end. Removing the entry just returned
 * is allowed, adding is not. key may be NULL. */
bool sl_map_each(const sl_map *map, size_t *pos, sl_slice *key, void **value);

sl_imap *sl_imap_new(size_t max_entries);
void sl_imap_free(sl_imap **map);
size_t sl_imap_count(const sl_imap *map);
void *sl_imap_get(const sl_imap *map, uint64_t key);
SL_MUST_USE sl_err sl_imap_put(sl_imap *map, uint64_t key, void *value, void **old);
void *sl_imap_remove(sl_imap *map, uint64_t key);
bool sl_imap_each(const sl_imap *map, size_t *pos, uint64_t *key, void **value);

#endif
