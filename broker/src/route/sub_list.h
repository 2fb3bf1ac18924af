/* SPDX-License-Identifier: Apache-2.0
 *
 * sub_list: the subscribers of one filter, sorted by client, read under RCU. Private to the trie.
 *
 * Up to SUB_LIST_CHUNK subscriptions are one flat array; more are a directory of such arrays, so
 * that one SUBSCRIBE among a hundred thousand copies a chunk and not a megabyte. A chunk covers a
 * fixed range of clients: it is replaced in its directory entry; a split or an emptied chunk makes
 * a new directory. So a reader that walks any version meets each subscription that was there all
 * the time exactly once.
 */
#ifndef SL_ROUTE_SUB_LIST_H
#define SL_ROUTE_SUB_LIST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "route/sub_trie.h"

#define SUB_LIST_CHUNK 64u

struct sub_list;
typedef struct sub_chunk_ref {
    struct sub_list *_Atomic chunk; /* owned, flat, never empty */
    uint32_t first;                 /* lowest client of its range (of the first entry: any) */
} sub_chunk_ref;

typedef struct sub_list {
    uint32_t count; /* subscriptions, or entries of a directory */
    bool is_dir;    /* a root only */
    sl_sub items[]; /* a directory has sub_chunk_ref here instead: sub_list_refs */
} sub_list;

/* The published root; NULL when there is no subscriber. */
typedef struct sub_list *_Atomic sub_list_slot;

static inline sub_chunk_ref *sub_list_refs(const sub_list *dir)
{
    return (sub_chunk_ref *)(void *)dir->items;
}

/** @locks trie */
bool sub_list_find(sub_list_slot *slot, uint32_t client, sl_sub *out);
/** Adds or replaces (the stamp stays); true when it existed. *bytes changes by what the list's
 * memory changes. Old versions are deferred to rcu. @locks trie */
bool sub_list_put(sl_rcu *rcu, sub_list_slot *slot, const sl_sub *sub, sl_sub *old, size_t *bytes);
/** False when it was not there. @locks trie */
bool sub_list_remove(sl_rcu *rcu, sub_list_slot *slot, uint32_t client, sl_sub *old, size_t *bytes);
/** Frees a list that no reader can see. @thread init */
void sub_list_free(sub_list_slot *slot);
/** Appends all subscriptions as one run. @thread any, inside a read section */
void sub_list_collect(sub_list_slot *slot, sl_sub_matches *out);

#endif
