/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz: what a fuzz entry defines, and a check that stays on in every build.
 */
#ifndef SL_FUZZ_H
#define SL_FUZZ_H

#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/slice.h"

/** Called with any bytes; returns 0. Must neither crash nor leak. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A block of exactly this size, so that reading past it is seen. Free with sl_free. */
static inline uint8_t *fuzz_copy(sl_slice bytes)
{
    uint8_t *out = sl_alloc(bytes.len > 0 ? bytes.len : 1);
    if (bytes.len > 0)
        memcpy(out, bytes.ptr, bytes.len);
    return out;
}

#endif
