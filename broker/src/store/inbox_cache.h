/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox_cache: the boxes that the embedded inbox has in memory: counters, live rows, last sources.
 * A box is loaded with its first operation and forgotten when it is the least recently used one and
 * nothing of it is under way; so an idle client costs no memory. Private to inbox_embedded.c; the
 * owner's thread.
 */
#ifndef SL_STORE_INBOX_CACHE_H
#define SL_STORE_INBOX_CACHE_H

#include "base/list.h"
#include "base/map.h"
#include "log/embedded_kv.h"
#include "store/inbox_codec.h"
#include "store/inbox_rows.h"

/* Remembered sources of a box: 16 partitions for each share group that a client ever was in. At the
 * bound the one that was quiet for longest is forgotten (a replay of it would be taken twice). */
#define INBOX_MAX_SOURCES 4096u

typedef struct inbox_box {
    sl_node lru_node;
    sl_slice client;     /* owned bytes */
    uint64_t generation; /* 0: nothing is stored */
    uint64_t last_row;
    inbox_rows rows;
    inbox_source *sources; /* owned, sorted by origin and partition */
    size_t source_count;
    size_t source_cap;

    sl_list open;      /* operations that the log has, in order */
    sl_list waiting;   /* operations that want those before them finished */
    uint64_t next_seq; /* numbers both */
    size_t pins;       /* operations that point here */
    uint64_t add_row;  /* first row of the open add: not written yet */
    bool add_open;
    bool is_damaged; /* what is stored cannot be read */
    sl_err failed;   /* a write failed: what is here is not what is stored; reload when unpinned */
} inbox_box;

typedef struct inbox_cache {
    sl_embedded_kv *kv; /* borrowed */
    sl_map *boxes;      /* owned, and the boxes */
    sl_list lru;        /* the most recent one first */
    size_t max;
} inbox_cache;

void inbox_cache_init(inbox_cache *ca, sl_embedded_kv *kv, size_t max);
void inbox_cache_fini(inbox_cache *ca);
/** The box of a client, loaded when it is not there. SL_EAGAIN it failed and operations of it are
 * still under way; SL_EIO, SL_ECORRUPT. Blocks for a read of the store. */
SL_MUST_USE sl_err inbox_cache_get(inbox_cache *ca, sl_slice client, inbox_box **out);

/** An empty box in place of one that cannot be read, for a caller that clears it anyway. */
inbox_box *inbox_cache_get_empty(inbox_cache *ca, sl_slice client);

/** The remembered source, or NULL; valid until the next change. */
inbox_source *inbox_box_source(const inbox_box *bx, uint64_t origin, uint16_t partition);
/** Adds or replaces. */
void inbox_box_set_source(inbox_box *bx, const inbox_source *so);
void inbox_box_drop_source(inbox_box *bx, uint64_t origin, uint16_t partition);
inbox_meta inbox_box_meta(const inbox_box *bx);

#endif
