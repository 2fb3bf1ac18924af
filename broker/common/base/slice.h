/* SPDX-License-Identifier: Apache-2.0
 *
 * slice: a borrowed run of bytes. Never owns, may hold NUL, is not terminated.
 */
#ifndef SL_BASE_SLICE_H
#define SL_BASE_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct sl_slice {
    const uint8_t *ptr; /* borrowed; may be NULL when len is 0 */
    size_t len;         /* bytes */
} sl_slice;

/** @thread any */
static inline sl_slice sl_slice_of(const void *ptr, size_t len)
{
    return (sl_slice){(const uint8_t *)ptr, len};
}

/** Slice of a C string, without its NUL. @thread any */
static inline sl_slice sl_slice_str(const char *text)
{
    return (sl_slice){(const uint8_t *)text, strlen(text)};
}

/** @thread any */
static inline bool sl_slice_equal(sl_slice left, sl_slice right)
{
    return left.len == right.len && (left.len == 0 || memcmp(left.ptr, right.ptr, left.len) == 0);
}

/** memcmp order, shorter first on a tie. @thread any */
int sl_slice_compare(sl_slice left, sl_slice right);

/** 64-bit hash (XXH3), not for untrusted-collision-critical storage formats. @thread any */
uint64_t sl_slice_hash(sl_slice key);

/** Edits (insert, delete, change a byte) between two words: for "did you mean" hints. Time is the
 * product of the lengths, so only for names. @thread any */
size_t sl_slice_distance(sl_slice left, sl_slice right);

#endif
