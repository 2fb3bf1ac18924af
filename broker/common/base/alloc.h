/* SPDX-License-Identifier: Apache-2.0
 *
 * alloc: heap functions that abort when memory is exhausted, so callers need no error path.
 * Every size that a peer chooses must have met a named limit before it gets here (rule R20).
 * Memory is freed by sl_free; plain malloc'd memory of libraries is freed by their own calls.
 */
#ifndef SL_BASE_ALLOC_H
#define SL_BASE_ALLOC_H

#include <stddef.h>

/** @thread any */
void *sl_alloc(size_t size) __attribute__((malloc, alloc_size(1), returns_nonnull));
/** Zeroed. @thread any */
void *sl_calloc(size_t count, size_t size)
    __attribute__((malloc, alloc_size(1, 2), returns_nonnull));
/** @thread any */
void *sl_realloc(void *ptr, size_t size) __attribute__((alloc_size(2), returns_nonnull));
/** Copy of a C string. @thread any */
char *sl_strdup(const char *text) __attribute__((malloc, returns_nonnull));
/** Copy of len bytes with a NUL behind them. @thread any */
char *sl_strndup(const void *ptr, size_t len) __attribute__((malloc, returns_nonnull));
/** Accepts NULL. @thread any */
void sl_free(void *ptr);

#endif
