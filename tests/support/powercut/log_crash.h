/* SPDX-License-Identifier: Apache-2.0
 *
 * log_crash: the crash test of the embedded log: a load in a child process that dies at a random
 * instant, and a verification of everything that it had been promised. What was acknowledged is
 * noted in memory shared with the parent, which survives the child.
 */
#ifndef SL_LOG_CRASH_H
#define SL_LOG_CRASH_H

#include <stdatomic.h>
#include <stdint.h>

#include "log/log.h"

#define CRASH_PARTITIONS 16
#define CRASH_RECORDS    400000
#define CRASH_KEYS       50
#define CRASH_IDS        60000
#define CRASH_ROW_WRITES 200000

/* One word per event, written by the child once it was told. */
typedef struct crash_acks {
    _Atomic uint32_t ready;                 /* the load runs */
    _Atomic uint64_t issued;                /* records of topic "all" */
    _Atomic uint64_t offset[CRASH_RECORDS]; /* offset + 1 once acknowledged (durable ones) */
    _Atomic uint64_t rows_issued;           /* writes of topic "rows" */
    _Atomic uint8_t row_acked[CRASH_ROW_WRITES];
    _Atomic uint32_t ids_issued; /* QoS 2 ids 1.. */
    _Atomic uint8_t id_acked[CRASH_IDS + 1];
    _Atomic uint8_t release_issued[CRASH_IDS + 1];
    _Atomic uint8_t release_acked[CRASH_IDS + 1];
} crash_acks;

/* A record of "all" says which one it is. */
typedef struct crash_payload {
    uint64_t index;
    uint64_t check;
    char filler[104];
} crash_payload;

static inline uint64_t crash_check(uint64_t index)
{
    return (index ^ 0x5bd1e995cafef00dull) * 0x9e3779b97f4a7c15ull;
}
/* Every fourth record is volatile. */
static inline bool crash_is_durable(uint64_t index)
{
    return index % 4 != 3;
}
/* Every ninth write of a row removes its key. */
static inline bool crash_is_removal(uint64_t write)
{
    return write % 9 == 8;
}

typedef struct crash_log {
    sl_clock clock;
    sl_log *log;
    sl_log_topic *all;  /* 16 partitions, durable */
    sl_log_topic *app;  /* derived from all */
    sl_log_topic *rows; /* compacted */
    sl_log_topic *q2;   /* QoS 2 publishes */
} crash_log;

/** Opens the log and its topics; exits on an error. */
void crash_log_open(crash_log *cl, const char *dir, bool retention);

/** The load; runs until the process dies. */
void crash_load(const char *dir, crash_acks *acks, bool retention);
/** Compares the store with the acknowledgements. Gives the number of faults, each printed. */
unsigned crash_verify(const char *dir, const crash_acks *acks, bool retention);

#endif
