/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox_rows: the window of bits. See inbox_rows.h.
 */
#include "store/inbox_rows.h"

#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"

#define IDS 65535u

void inbox_rows_fini(inbox_rows *rs)
{
    sl_free(rs->words);
    *rs = (inbox_rows){0};
}

void inbox_rows_clear(inbox_rows *rs)
{
    rs->len = 0;
    rs->count = 0;
}

/* Drops words without a live row at the front, when they are half of the window. */
static void compact(inbox_rows *rs)
{
    size_t empty = 0;
    while (empty < rs->len && rs->words[empty] == 0)
        empty++;
    if (empty < rs->len / 2 || empty == 0)
        return;
    rs->len -= empty;
    memmove(rs->words, rs->words + empty, rs->len * sizeof(*rs->words));
    rs->base += empty * 64;
}

static void reach(inbox_rows *rs, uint64_t row)
{
    if (rs->count == 0) {
        rs->base = row & ~UINT64_C(63);
        rs->len = 0;
    }
    SL_ASSERT(row >= rs->base);
    if ((row - rs->base) / 64 >= rs->cap)
        compact(rs);
    size_t need = (size_t)((row - rs->base) / 64) + 1;
    SL_ASSERT(need <= INBOX_ROWS_MAX_SPAN / 64 * 4);
    if (need > rs->cap) {
        size_t cap = rs->cap * 2 > need ? rs->cap * 2 : need;
        rs->words = sl_realloc(rs->words, cap * sizeof(*rs->words));
        rs->cap = cap;
    }
    if (need > rs->len) {
        memset(rs->words + rs->len, 0, (need - rs->len) * sizeof(*rs->words));
        rs->len = need;
    }
}

void inbox_rows_add(inbox_rows *rs, uint64_t row)
{
    reach(rs, row);
    SL_DASSERT(!inbox_rows_has(rs, row));
    rs->words[(row - rs->base) / 64] |= UINT64_C(1) << (row % 64);
    rs->count++;
}

void inbox_rows_fill(inbox_rows *rs, uint64_t first, uint64_t last)
{
    inbox_rows_clear(rs);
    for (uint64_t row = first; row <= last; row++)
        inbox_rows_add(rs, row);
}

bool inbox_rows_has(const inbox_rows *rs, uint64_t row)
{
    if (row < rs->base || (row - rs->base) / 64 >= rs->len)
        return false;
    return (rs->words[(row - rs->base) / 64] >> (row % 64) & 1) != 0;
}

bool inbox_rows_remove(inbox_rows *rs, uint64_t row)
{
    if (!inbox_rows_has(rs, row))
        return false;
    rs->words[(row - rs->base) / 64] &= ~(UINT64_C(1) << (row % 64));
    rs->count--;
    return true;
}

uint64_t inbox_rows_next(const inbox_rows *rs, uint64_t row)
{
    if (rs->count == 0)
        return 0;
    uint64_t from = row + 1 > rs->base ? row + 1 - rs->base : 0;
    for (size_t at = (size_t)(from / 64); at < rs->len; at++) {
        uint64_t word = rs->words[at];
        if (at == from / 64)
            word &= ~UINT64_C(0) << (from % 64);
        if (word != 0)
            return rs->base + at * 64 + (unsigned)__builtin_ctzll(word);
    }
    return 0;
}

uint16_t inbox_packet_id(uint64_t row)
{
    return (uint16_t)((row - 1) % IDS + 1);
}

/* Does a live row behind `evicted` have the packet id of this new row? */
static bool id_is_taken(const inbox_rows *rs, uint64_t row, uint64_t first, uint64_t evicted)
{
    for (uint64_t at = row; at > IDS && at - IDS >= first;) {
        at -= IDS;
        if (at > evicted && inbox_rows_has(rs, at))
            return true;
    }
    return false;
}

uint64_t inbox_rows_choose(const inbox_rows *rs, uint64_t last, uint64_t evicted)
{
    uint64_t row = last + 1;
    if (rs->count == 0)
        return row;
    uint64_t first = inbox_rows_first(rs);
    while (id_is_taken(rs, row, first, evicted))
        row++;
    return row;
}

uint64_t inbox_rows_find(const inbox_rows *rs, uint64_t last, uint16_t packet_id)
{
    if (rs->count == 0 || packet_id == 0 || last == 0)
        return 0;
    uint64_t first = inbox_rows_first(rs);
    uint64_t behind = (uint64_t)((inbox_packet_id(last) + IDS - packet_id) % IDS);
    if (behind >= last)
        return 0;
    for (uint64_t row = last - behind; row >= first; row -= IDS) {
        if (inbox_rows_has(rs, row))
            return row;
        if (row <= IDS)
            break;
    }
    return 0;
}
