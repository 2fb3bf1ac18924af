/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox_cache: loading and forgetting boxes. See inbox_cache.h.
 */
#include "store/inbox_cache.h"

#include "base/alloc.h"
#include "base/assert.h"

void inbox_cache_init(inbox_cache *ca, sl_embedded_kv *kv, size_t max)
{
    *ca = (inbox_cache){.kv = kv, .boxes = sl_map_new(0), .max = max};
    sl_list_init(&ca->lru);
}

static inbox_box *box_new(sl_slice client)
{
    inbox_box *bx = sl_calloc(1, sizeof(*bx));
    bx->client = sl_slice_of(sl_strndup(client.ptr, client.len), client.len);
    sl_list_init(&bx->open);
    sl_list_init(&bx->waiting);
    return bx;
}

static void box_free(inbox_box *bx)
{
    SL_ASSERT(bx->pins == 0);
    inbox_rows_fini(&bx->rows);
    sl_free(bx->sources);
    sl_free((void *)(uintptr_t)bx->client.ptr);
    sl_free(bx);
}

static void forget(inbox_cache *ca, inbox_box *bx)
{
    sl_map_remove(ca->boxes, bx->client);
    sl_list_remove(&bx->lru_node);
    box_free(bx);
}

void inbox_cache_fini(inbox_cache *ca)
{
    if (ca->boxes == NULL)
        return;
    for (sl_node *nd; (nd = sl_list_first(&ca->lru)) != NULL;)
        forget(ca, SL_CONTAINER(nd, inbox_box, lru_node));
    sl_map_free(&ca->boxes);
}

/* ---- sources --------------------------------------------------------------------------------- */

/* Index of the first source not below (origin, partition). */
static size_t source_bound(const inbox_box *bx, uint64_t origin, uint16_t partition)
{
    size_t low = 0, high = bx->source_count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        const inbox_source *so = &bx->sources[mid];
        if (so->origin < origin || (so->origin == origin && so->partition < partition))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

inbox_source *inbox_box_source(const inbox_box *bx, uint64_t origin, uint16_t partition)
{
    size_t at = source_bound(bx, origin, partition);
    if (at == bx->source_count || bx->sources[at].origin != origin ||
        bx->sources[at].partition != partition)
        return NULL;
    return &bx->sources[at];
}

void inbox_box_set_source(inbox_box *bx, const inbox_source *so)
{
    size_t at = source_bound(bx, so->origin, so->partition);
    bool known = at < bx->source_count && bx->sources[at].origin == so->origin &&
                 bx->sources[at].partition == so->partition;
    if (!known) {
        if (bx->source_count == bx->source_cap) {
            bx->source_cap = bx->source_cap == 0 ? 4 : bx->source_cap * 2;
            bx->sources = sl_realloc(bx->sources, bx->source_cap * sizeof(*bx->sources));
        }
        memmove(bx->sources + at + 1, bx->sources + at,
                (bx->source_count - at) * sizeof(*bx->sources));
        bx->source_count++;
    }
    bx->sources[at] = *so;
}

void inbox_box_drop_source(inbox_box *bx, uint64_t origin, uint16_t partition)
{
    inbox_source *so = inbox_box_source(bx, origin, partition);
    if (so == NULL)
        return;
    size_t at = (size_t)(so - bx->sources);
    bx->source_count--;
    memmove(so, so + 1, (bx->source_count - at) * sizeof(*so));
}

inbox_meta inbox_box_meta(const inbox_box *bx)
{
    return (inbox_meta){.generation = bx->generation,
                        .last_row = bx->last_row,
                        .first_row = inbox_rows_first(&bx->rows),
                        .count = (uint32_t)bx->rows.count};
}

/* ---- loading --------------------------------------------------------------------------------- */

typedef struct loading {
    inbox_box *bx;
    inbox_meta meta;
    sl_err err;
} loading;

static bool load_head(void *arg, sl_slice key, sl_slice value)
{
    loading *ld = arg;
    uint64_t number = 0;
    uint16_t partition = 0;
    inbox_key_kind kind = inbox_key_parse(key, ld->bx->client.len, &number, &partition);
    if (kind == INBOX_KEY_META) {
        ld->err = inbox_meta_decode(value, &ld->meta);
    } else if (kind == INBOX_KEY_SOURCE) {
        inbox_source so = {.origin = number, .partition = partition};
        ld->err = inbox_source_decode(value, &so);
        if (ld->err == SL_OK)
            inbox_box_set_source(ld->bx, &so);
    } else {
        ld->err = SL_ECORRUPT;
    }
    return ld->err == SL_OK;
}

static bool load_row(void *arg, sl_slice key, sl_slice value)
{
    loading *ld = arg;
    uint64_t row = 0;
    uint16_t partition;
    (void)value;
    if (inbox_key_parse(key, ld->bx->client.len, &row, &partition) != INBOX_KEY_ROW) {
        ld->err = SL_ECORRUPT;
        return false;
    }
    inbox_rows_add(&ld->bx->rows, row);
    return true;
}

static sl_err scan(inbox_cache *ca, loading *ld, const inbox_meta *rows,
                   bool (*fn)(void *arg, sl_slice key, sl_slice value))
{
    sl_slice client = ld->bx->client;
    uint8_t *from = sl_alloc(2 * (client.len + 16));
    uint8_t *to = from + client.len + 16;
    inbox_key_kind kind = rows != NULL ? INBOX_KEY_ROW : INBOX_KEY_META;
    size_t from_len = inbox_key(from, client, kind, rows != NULL ? rows->first_row : 0, 0);
    size_t to_len = inbox_key(to, client, INBOX_KEY_ROW, rows != NULL ? rows->last_row + 1 : 0, 0);
    sl_err err =
        sl_embedded_kv_scan(ca->kv, sl_slice_of(from, from_len), sl_slice_of(to, to_len), fn, ld);
    sl_free(from);
    return err != SL_OK ? err : ld->err;
}

static sl_err load(inbox_cache *ca, inbox_box *bx)
{
    loading ld = {.bx = bx};
    sl_err err = scan(ca, &ld, NULL, load_head);
    if (err != SL_OK)
        return err;
    bx->generation = ld.meta.generation;
    bx->last_row = ld.meta.last_row;
    if (ld.meta.count == 0)
        return SL_OK;
    if (ld.meta.last_row - ld.meta.first_row >= INBOX_ROWS_MAX_SPAN)
        return SL_ECORRUPT;
    /* Without a hole the counters say it all; mostly so with a box that only filled up. */
    if (ld.meta.count == ld.meta.last_row - ld.meta.first_row + 1) {
        inbox_rows_fill(&bx->rows, ld.meta.first_row, ld.meta.last_row);
        return SL_OK;
    }
    return scan(ca, &ld, &ld.meta, load_row);
}

/* Forgets boxes beyond the maximum, the least recently used first. Pinned ones stay: the log's
 * queue bounds how many they are. */
static void shrink(inbox_cache *ca)
{
    size_t looks = 8;
    while (sl_map_count(ca->boxes) > ca->max && looks-- > 0) {
        inbox_box *bx = SL_CONTAINER(ca->lru._head._prev, inbox_box, lru_node);
        if (bx->pins == 0) {
            forget(ca, bx);
        } else {
            sl_list_remove(&bx->lru_node);
            sl_list_push_front(&ca->lru, &bx->lru_node);
        }
    }
}

static void keep(inbox_cache *ca, inbox_box *bx)
{
    shrink(ca);
    sl_err err = sl_map_put(ca->boxes, bx->client, bx, NULL);
    SL_ASSERT(err == SL_OK); /* the map has no maximum of its own: shrink() bounds it */
    sl_list_push_front(&ca->lru, &bx->lru_node);
}

sl_err inbox_cache_get(inbox_cache *ca, sl_slice client, inbox_box **out)
{
    inbox_box *bx = sl_map_get(ca->boxes, client);
    if (bx != NULL && bx->failed != SL_OK) {
        if (bx->pins > 0)
            return SL_EAGAIN;
        forget(ca, bx);
        bx = NULL;
    }
    if (bx != NULL) {
        sl_list_remove(&bx->lru_node);
        sl_list_push_front(&ca->lru, &bx->lru_node);
        *out = bx;
        return SL_OK;
    }
    bx = box_new(client);
    sl_err err = load(ca, bx);
    if (err != SL_OK) {
        box_free(bx);
        return err;
    }
    keep(ca, bx);
    *out = bx;
    return SL_OK;
}

inbox_box *inbox_cache_get_empty(inbox_cache *ca, sl_slice client)
{
    SL_ASSERT(sl_map_get(ca->boxes, client) == NULL);
    inbox_box *bx = box_new(client);
    bx->is_damaged = true;
    keep(ca, bx);
    return bx;
}
