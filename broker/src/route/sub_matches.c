/* SPDX-License-Identifier: Apache-2.0
 *
 * sub_matches: what became of a match: filtering, and bringing the overlapping subscriptions of one
 * client together. Works on the caller's vector only; any thread.
 */
#include <string.h>

#include "base/alloc.h"
#include "route/sub_trie.h"

#define INSERTION_MAX 24u /* fewer items are sorted in place */

void sl_sub_matches_fini(sl_sub_matches *out)
{
    sl_free(out->items);
    *out = (sl_sub_matches){0};
}

void sl_sub_matches_keep(sl_sub_matches *out, bool (*keep)(void *arg, const sl_sub *sub), void *arg)
{
    size_t kept = 0;
    for (size_t i = 0; i < out->count; i++)
        if (keep(arg, &out->items[i]))
            out->items[kept++] = out->items[i];
    out->count = kept;
}

static void insertion_sort(sl_sub *items, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        sl_sub moving = items[i];
        size_t at = i;
        for (; at > 0 && items[at - 1].client > moving.client; at--)
            items[at] = items[at - 1];
        items[at] = moving;
    }
}

static size_t run_end(const sl_sub *items, size_t from, size_t count)
{
    size_t at = from + 1;
    while (at < count && items[at - 1].client <= items[at].client)
        at++;
    return at;
}

/* Merges neighbouring rising runs of src into dst; how many runs there were. Stable. */
static size_t merge_pass(const sl_sub *src, sl_sub *dst, size_t count)
{
    size_t runs = 0;
    for (size_t begin = 0; begin < count;) {
        size_t mid = run_end(src, begin, count);
        size_t end = mid < count ? run_end(src, mid, count) : mid;
        runs += mid < end ? 2 : 1;
        size_t left = begin, right = mid;
        for (size_t at = begin; at < end; at++) {
            bool take_left = right == end || (left < mid && src[left].client <= src[right].client);
            dst[at] = take_left ? src[left++] : src[right++];
        }
        begin = end;
    }
    return runs;
}

void sl_sub_matches_merge(sl_sub_matches *out)
{
    if (out->lists < 2 || out->count < 2)
        return;
    if (out->count <= INSERTION_MAX) {
        insertion_sort(out->items, out->count);
        return;
    }
    if (out->cap < out->count * 2) {
        out->items = sl_realloc(out->items, out->count * 2 * sizeof(*out->items));
        out->cap = out->count * 2;
    }
    sl_sub *src = out->items, *dst = out->items + out->count;
    while (merge_pass(src, dst, out->count) > 2) {
        sl_sub *swap = src;
        src = dst;
        dst = swap;
    }
    if (dst != out->items)
        memcpy(out->items, dst, out->count * sizeof(*out->items));
}

bool sl_sub_matches_next(const sl_sub_matches *matches, size_t *pos, sl_sub_delivery *out)
{
    if (*pos >= matches->count)
        return false;
    const sl_sub *best = &matches->items[*pos];
    *out = (sl_sub_delivery){.client = best->client, .subs = best};
    do {
        const sl_sub *sub = &matches->items[*pos];
        if (sub->qos > best->qos)
            best = sub;
        out->count++;
        (*pos)++;
    } while (*pos < matches->count && matches->items[*pos].client == out->client);
    out->qos = best->qos;
    out->flags = best->flags;
    return true;
}

size_t sl_sub_delivery_ids(const sl_sub_delivery *dv, uint32_t *ids, size_t max)
{
    size_t count = 0;
    for (size_t i = 0; i < dv->count && count < max; i++) {
        uint32_t id = dv->subs[i].sub_id;
        bool is_new = id != 0;
        for (size_t k = 0; k < count && is_new; k++)
            is_new = ids[k] != id;
        if (is_new)
            ids[count++] = id;
    }
    return count;
}
