/* SPDX-License-Identifier: Apache-2.0
 *
 * filters: random filters and all topics of a small alphabet, for tests against brute force.
 */
#ifndef SL_TEST_FILTERS_H
#define SL_TEST_FILTERS_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/slice.h"
#include "mqtt/topic.h"

#define FILTER_BYTES 64
#define MAX_TOPICS   2000

typedef struct topic_set {
    char topic[MAX_TOPICS][FILTER_BYTES];
    size_t count;
} topic_set;

static inline uint32_t random_below(uint64_t *seed, uint32_t limit)
{
    *seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(*seed >> 33) % limit;
}

/* A valid filter of one to four levels over a, b, "", $x, +, # */
static inline void random_filter(uint64_t *seed, char out[FILTER_BYTES])
{
    static const char *const words[] = {"a", "b", "", "$x", "+", "+"};
    uint32_t levels = 1 + random_below(seed, 4);
    size_t len = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < levels; i++) {
        bool last = i + 1 == levels;
        const char *word = last && random_below(seed, 3) == 0 ? "#" : words[random_below(seed, 6)];
        len += (size_t)snprintf(out + len, FILTER_BYTES - len, "%s%s", i > 0 ? "/" : "", word);
    }
    if (len == 0)
        snprintf(out, FILTER_BYTES, "+");
}

/* Every topic name of up to five levels: one more than a filter has. */
static inline void all_topics(topic_set *set)
{
    static const char *const words[] = {"a", "b", "", "$x"};
    set->count = 0;
    for (uint32_t levels = 1; levels <= 5; levels++) {
        uint32_t combinations = 1u << (2 * levels);
        for (uint32_t code = 0; code < combinations; code++) {
            char *topic = set->topic[set->count];
            size_t len = 0;
            topic[0] = '\0';
            for (uint32_t i = 0; i < levels; i++)
                len += (size_t)snprintf(topic + len, FILTER_BYTES - len, "%s%s", i > 0 ? "/" : "",
                                        words[code >> (2 * i) & 3]);
            if (len > 0)
                set->count++;
        }
    }
}

#endif
