/* SPDX-License-Identifier: Apache-2.0
 *
 * sub_list: copy-on-write of flat arrays, chunks and directories. See sub_list.h.
 */
#include "route/sub_list.h"

#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"

_Static_assert(sizeof(sl_sub) == 16, "a subscription is 16 bytes");
_Static_assert(sizeof(sub_chunk_ref) == sizeof(sl_sub), "a directory entry takes an item's room");

/* What malloc takes for a list of n items (16-byte steps, 8 bytes of its own). */
static size_t heap_bytes(uint32_t count)
{
    return (sizeof(sub_list) + count * sizeof(sl_sub) + 8 + 15) & ~(size_t)15;
}

static sub_list *list_new(uint32_t count, bool is_dir)
{
    sub_list *list = sl_alloc(sizeof(*list) + count * sizeof(sl_sub));
    list->count = count;
    list->is_dir = is_dir;
    return list;
}

static sub_list *load(sub_list_slot *slot)
{
    return atomic_load_explicit(slot, memory_order_seq_cst);
}

static void free_list(void *ctx, void *list)
{
    (void)ctx;
    sl_free(list);
}

/* Publishes `next` and gives the old version to the readers that still hold it. */
static void replace(sl_rcu *rcu, sub_list_slot *slot, sub_list *next, size_t *bytes)
{
    sub_list *old = load(slot);
    if (next != NULL)
        *bytes += heap_bytes(next->count);
    atomic_store_explicit(slot, next, memory_order_seq_cst);
    if (old != NULL) {
        *bytes -= heap_bytes(old->count);
        sl_rcu_defer(rcu, free_list, NULL, old);
    }
}

/* Index of the first item whose client is not below `client`. */
static uint32_t lower_bound(const sub_list *flat, uint32_t client)
{
    uint32_t low = 0, high = flat->count;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (flat->items[mid].client < client)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Index of the chunk whose range holds `client`. */
static uint32_t ref_of(const sub_list *dir, uint32_t client)
{
    const sub_chunk_ref *refs = sub_list_refs(dir);
    uint32_t low = 0, high = dir->count; /* the answer is in [low, high) */
    while (high - low > 1) {
        uint32_t mid = low + (high - low) / 2;
        if (refs[mid].first <= client)
            low = mid;
        else
            high = mid;
    }
    return low;
}

/* The flat array that holds or would hold `client`; NULL for an empty list. */
static sub_list_slot *flat_slot(sub_list_slot *slot, uint32_t client)
{
    sub_list *root = load(slot);
    if (root == NULL || !root->is_dir)
        return slot;
    return &sub_list_refs(root)[ref_of(root, client)].chunk;
}

bool sub_list_find(sub_list_slot *slot, uint32_t client, sl_sub *out)
{
    const sub_list *flat = load(flat_slot(slot, client));
    if (flat == NULL)
        return false;
    uint32_t at = lower_bound(flat, client);
    if (at == flat->count || flat->items[at].client != client)
        return false;
    if (out != NULL)
        *out = flat->items[at];
    return true;
}

static void set_ref(sub_list *dir, uint32_t at, sub_list *chunk, uint32_t first)
{
    sub_chunk_ref *ref = &sub_list_refs(dir)[at];
    atomic_init(&ref->chunk, chunk);
    ref->first = first;
}

static void copy_refs(sub_list *to, uint32_t at, const sub_list *from, uint32_t begin, uint32_t end)
{
    for (uint32_t i = begin; i < end; i++) {
        sub_chunk_ref *ref = &sub_list_refs(from)[i];
        set_ref(to, at++, load(&ref->chunk), ref->first);
    }
}

/* A full flat array and one more item, at index `at`, as two chunks. Clients mostly come in rising
 * order: behind the last item begins a new chunk, so that chunks are full and not half full. */
static void split(const sub_list *full, uint32_t at, const sl_sub *sub, sub_list **left,
                  sub_list **right)
{
    sl_sub all[SUB_LIST_CHUNK + 1];
    memcpy(all, full->items, at * sizeof(all[0]));
    all[at] = *sub;
    memcpy(all + at + 1, full->items + at, (full->count - at) * sizeof(all[0]));
    uint32_t total = full->count + 1;
    uint32_t cut = at == full->count ? full->count : total / 2;
    *left = list_new(cut, false);
    memcpy((*left)->items, all, cut * sizeof(all[0]));
    *right = list_new(total - cut, false);
    memcpy((*right)->items, all + cut, (total - cut) * sizeof(all[0]));
}

/* Adds to a full chunk: the root becomes a directory, or a directory with one entry more. */
static void put_by_split(sl_rcu *rcu, sub_list_slot *slot, uint32_t at, const sl_sub *sub,
                         size_t *bytes)
{
    sub_list *root = load(slot);
    uint32_t pos = root->is_dir ? ref_of(root, sub->client) : 0;
    sub_list *full = root->is_dir ? load(&sub_list_refs(root)[pos].chunk) : root;
    sub_list *left, *right;
    split(full, at, sub, &left, &right);
    *bytes += heap_bytes(left->count) + heap_bytes(right->count);
    uint32_t chunks = root->is_dir ? root->count : 1;
    sub_list *dir = list_new(chunks + 1, true);
    if (root->is_dir) {
        copy_refs(dir, 0, root, 0, pos);
        copy_refs(dir, pos + 2, root, pos + 1, root->count);
    }
    /* The separators around a split range must not move, or a client between them is lost. */
    set_ref(dir, pos, left, root->is_dir ? sub_list_refs(root)[pos].first : 0);
    set_ref(dir, pos + 1, right, right->items[0].client);
    replace(rcu, slot, dir, bytes); /* defers root, which is `full` when it was flat */
    if (full != root) {
        *bytes -= heap_bytes(full->count);
        sl_rcu_defer(rcu, free_list, NULL, full);
    }
}

bool sub_list_put(sl_rcu *rcu, sub_list_slot *slot, const sl_sub *sub, sl_sub *old, size_t *bytes)
{
    sub_list_slot *flat_at = flat_slot(slot, sub->client);
    const sub_list *flat = load(flat_at);
    uint32_t count = flat == NULL ? 0 : flat->count;
    uint32_t at = flat == NULL ? 0 : lower_bound(flat, sub->client);
    bool existed = at < count && flat->items[at].client == sub->client;
    if (!existed && count == SUB_LIST_CHUNK) {
        put_by_split(rcu, slot, at, sub, bytes);
        return false;
    }
    sub_list *next = list_new(existed ? count : count + 1, false);
    if (at > 0)
        memcpy(next->items, flat->items, at * sizeof(sl_sub));
    next->items[at] = *sub;
    uint32_t from = existed ? at + 1 : at;
    if (from < count)
        memcpy(next->items + at + 1, flat->items + from, (count - from) * sizeof(sl_sub));
    if (existed) {
        next->items[at].stamp = flat->items[at].stamp;
        if (old != NULL)
            *old = flat->items[at];
    }
    replace(rcu, flat_at, next, bytes);
    return existed;
}

/* The chunk at pos is to hold one item less and is empty then, or fits into its left neighbour. */
static void shrink_dir(sl_rcu *rcu, sub_list_slot *slot, uint32_t pos, sub_list *rest,
                       size_t *bytes)
{
    sub_list *root = load(slot);
    sub_list *gone = load(&sub_list_refs(root)[pos].chunk);
    sub_list *left = NULL, *joined = NULL;
    if (rest != NULL) {
        SL_ASSERT(pos > 0);
        left = load(&sub_list_refs(root)[pos - 1].chunk);
        joined = list_new(left->count + rest->count, false);
        memcpy(joined->items, left->items, left->count * sizeof(sl_sub));
        memcpy(joined->items + left->count, rest->items, rest->count * sizeof(sl_sub));
        *bytes += heap_bytes(joined->count);
        *bytes -= heap_bytes(left->count);
        sl_free(rest);
    }
    sub_list *dir = NULL;
    if (root->count > 1) {
        dir = list_new(root->count - 1, true);
        copy_refs(dir, 0, root, 0, pos);
        copy_refs(dir, pos, root, pos + 1, root->count);
        if (joined != NULL)
            set_ref(dir, pos - 1, joined, sub_list_refs(root)[pos - 1].first);
    }
    replace(rcu, slot, dir, bytes);
    *bytes -= heap_bytes(gone->count);
    sl_rcu_defer(rcu, free_list, NULL, gone);
    if (left != NULL)
        sl_rcu_defer(rcu, free_list, NULL, left);
}

/* A copy of flat without the item at index `at`; NULL when that was the only one. */
static sub_list *without(const sub_list *flat, uint32_t at)
{
    if (flat->count == 1)
        return NULL;
    sub_list *next = list_new(flat->count - 1, false);
    memcpy(next->items, flat->items, at * sizeof(sl_sub));
    memcpy(next->items + at, flat->items + at + 1, (flat->count - at - 1) * sizeof(sl_sub));
    return next;
}

bool sub_list_remove(sl_rcu *rcu, sub_list_slot *slot, uint32_t client, sl_sub *old, size_t *bytes)
{
    sub_list_slot *flat_at = flat_slot(slot, client);
    const sub_list *flat = load(flat_at);
    if (flat == NULL)
        return false;
    uint32_t at = lower_bound(flat, client);
    if (at == flat->count || flat->items[at].client != client)
        return false;
    if (old != NULL)
        *old = flat->items[at];
    sub_list *rest = without(flat, at);
    if (flat_at == slot) {
        replace(rcu, slot, rest, bytes);
        return true;
    }
    const sub_list *root = load(slot);
    uint32_t pos = ref_of(root, client);
    bool joins =
        rest != NULL && pos > 0 &&
        rest->count + load(&sub_list_refs(root)[pos - 1].chunk)->count <= SUB_LIST_CHUNK / 2;
    if (rest == NULL || joins)
        shrink_dir(rcu, slot, pos, rest, bytes);
    else
        replace(rcu, flat_at, rest, bytes);
    return true;
}

void sub_list_free(sub_list_slot *slot)
{
    sub_list *root = load(slot);
    if (root != NULL && root->is_dir)
        for (uint32_t i = 0; i < root->count; i++)
            sl_free(load(&sub_list_refs(root)[i].chunk));
    sl_free(root);
    atomic_store_explicit(slot, NULL, memory_order_relaxed);
}

static void append(sl_sub_matches *out, const sub_list *flat)
{
    if (flat->count > out->cap - out->count) {
        size_t cap = out->cap < 32 ? 64 : out->cap * 2;
        if (cap < out->count + flat->count)
            cap = out->count + flat->count;
        out->items = sl_realloc(out->items, cap * sizeof(*out->items));
        out->cap = cap;
    }
    memcpy(out->items + out->count, flat->items, flat->count * sizeof(*out->items));
    out->count += flat->count;
}

void sub_list_collect(sub_list_slot *slot, sl_sub_matches *out)
{
    const sub_list *root = load(slot);
    if (root == NULL)
        return;
    out->lists++;
    if (!root->is_dir) {
        append(out, root);
        return;
    }
    for (uint32_t i = 0; i < root->count; i++)
        append(out, load(&sub_list_refs(root)[i].chunk));
}
