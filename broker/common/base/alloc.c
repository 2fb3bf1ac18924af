/* SPDX-License-Identifier: Apache-2.0
 *
 * alloc: malloc and friends that abort instead of returning NULL. Any thread.
 */
#include "base/alloc.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

static _Noreturn void out_of_memory(size_t size)
{
    fprintf(stderr, "OUT-OF-MEMORY bytes=%zu\n", size);
    abort();
}

void *sl_alloc(size_t size)
{
    // A size of 0 still gives a pointer of its own, so that NULL never means "empty".
    void *ptr = malloc(size != 0 ? size : 1);
    if (ptr == NULL)
        out_of_memory(size);
    return ptr;
}

void *sl_calloc(size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        out_of_memory(SIZE_MAX);
    void *ptr = calloc(1, bytes != 0 ? bytes : 1);
    if (ptr == NULL)
        out_of_memory(bytes);
    return ptr;
}

void *sl_realloc(void *ptr, size_t size)
{
    void *moved = realloc(ptr, size != 0 ? size : 1);
    if (moved == NULL)
        out_of_memory(size);
    return moved;
}

char *sl_strdup(const char *text)
{
    return sl_strndup(text, strlen(text));
}

char *sl_strndup(const void *ptr, size_t len)
{
    SL_ASSERT(len < SIZE_MAX);
    char *copy = sl_alloc(len + 1);
    if (len != 0)
        memcpy(copy, ptr, len);
    copy[len] = '\0';
    return copy;
}

void sl_free(void *ptr)
{
    free(ptr);
}
