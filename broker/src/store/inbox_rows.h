/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox_rows: which row numbers of a box are live, as a window of bits, and the packet ids that
 * belong to row numbers. Pure memory, private to inbox_embedded.c; the owner's thread.
 *
 * The packet id of row r is ((r - 1) mod 65535) + 1: it follows the row, so it is not stored, an
 * acknowledgement finds its row by arithmetic, and a row whose id is still in the box is skipped.
 */
#ifndef SL_STORE_INBOX_ROWS_H
#define SL_STORE_INBOX_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Rows from the first live one to the last: a row that is never acknowledged among millions that
 * are must not let the window grow without end (128 kB); the owner evicts it. */
#define INBOX_ROWS_MAX_SPAN ((uint64_t)1 << 20)

typedef struct inbox_rows {
    uint64_t *words; /* owned */
    uint64_t base;   /* row of the first bit; a multiple of 64 */
    size_t len;      /* words in use */
    size_t cap;
    size_t count; /* live rows */
} inbox_rows;

void inbox_rows_fini(inbox_rows *rs);
/** All rows from first to last. */
void inbox_rows_fill(inbox_rows *rs, uint64_t first, uint64_t last);
/** row is behind every row ever added, and within the maximal span. */
void inbox_rows_add(inbox_rows *rs, uint64_t row);
bool inbox_rows_has(const inbox_rows *rs, uint64_t row);
/** False when it was not live. */
bool inbox_rows_remove(inbox_rows *rs, uint64_t row);
void inbox_rows_clear(inbox_rows *rs);
/** The first live row behind `row`; 0 when there is none. */
uint64_t inbox_rows_next(const inbox_rows *rs, uint64_t row);
static inline uint64_t inbox_rows_first(const inbox_rows *rs)
{
    return inbox_rows_next(rs, 0);
}

uint16_t inbox_packet_id(uint64_t row);
/** The number for the next row behind last, whose packet id no live row but those up to `evicted`
 * has. There is always one while fewer than 65535 rows are live. */
uint64_t inbox_rows_choose(const inbox_rows *rs, uint64_t last, uint64_t evicted);
/** The live row with this packet id, none above last; 0 when there is none. */
uint64_t inbox_rows_find(const inbox_rows *rs, uint64_t last, uint16_t packet_id);

#endif
