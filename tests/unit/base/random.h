/* SPDX-License-Identifier: Apache-2.0
 *
 * random: a small generator (xorshift64*) with a fixed seed per test, so that a failure repeats.
 */
#ifndef SL_TEST_RANDOM_H
#define SL_TEST_RANDOM_H

#include <stdint.h>

typedef struct rng {
    uint64_t state;
} rng;

static inline uint64_t rng_next(rng *rg)
{
    rg->state ^= rg->state >> 12;
    rg->state ^= rg->state << 25;
    rg->state ^= rg->state >> 27;
    return rg->state * 0x2545F4914F6CDD1Dull;
}

/* 0 .. bound - 1 */
static inline unsigned rng_below(rng *rg, unsigned bound)
{
    return (unsigned)((rng_next(rg) >> 33) % bound);
}

#endif
