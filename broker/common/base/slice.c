/* SPDX-License-Identifier: Apache-2.0
 *
 * slice: order, hash and edit distance of byte runs. Any thread.
 */
#include "base/slice.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/alloc.h"

int sl_slice_compare(sl_slice left, sl_slice right)
{
    size_t common = left.len < right.len ? left.len : right.len;
    int order = common == 0 ? 0 : memcmp(left.ptr, right.ptr, common);
    if (order != 0)
        return order;
    return left.len < right.len ? -1 : left.len > right.len;
}

uint64_t sl_slice_hash(sl_slice key)
{
    return XXH3_64bits(key.ptr, key.len);
}

size_t sl_slice_distance(sl_slice left, sl_slice right)
{
    // One row of the edit matrix at a time; a swap of neighbours counts as two edits.
    size_t *row = sl_alloc((right.len + 1) * sizeof(*row));
    for (size_t col = 0; col <= right.len; col++)
        row[col] = col;
    for (size_t line = 1; line <= left.len; line++) {
        size_t diagonal = row[0];
        row[0] = line;
        for (size_t col = 1; col <= right.len; col++) {
            size_t change = diagonal + (left.ptr[line - 1] != right.ptr[col - 1]);
            diagonal = row[col];
            size_t insert = row[col - 1] + 1;
            size_t best = row[col] + 1;
            best = insert < best ? insert : best;
            row[col] = change < best ? change : best;
        }
    }
    size_t distance = row[right.len];
    sl_free(row);
    return distance;
}
