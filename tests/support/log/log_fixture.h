/* SPDX-License-Identifier: Apache-2.0
 *
 * log_fixture: an open log with one producer for the tests of the log port: waiting for
 * completions, reading records as copies, restarting. Knows no adapter.
 */
#ifndef SL_LOG_FIXTURE_H
#define SL_LOG_FIXTURE_H

#include <pthread.h>

#include "log/log.h"

#define LOG_FX_TEXT 96

typedef struct log_fx {
    const struct sl_log_ops *ops;
    sl_clock clock; /* fake, so that record ages are ours */
    char dir[128];
    sl_log_options options;
    sl_log *log;
    sl_log_producer *pr;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool woken;         /* lock */
    sl_log_done *dones; /* owned, in the order they came */
    size_t done_count;
    size_t done_cap;
    unsigned rooms;
} log_fx;

/* A copy of a record as a consumer got it. */
typedef struct log_fx_record {
    uint16_t partition;
    uint64_t offset;
    uint32_t flags;
    uint8_t attr;
    sl_wall_ms time_ms;
    char key[LOG_FX_TEXT];   /* cut, NUL ended */
    char value[LOG_FX_TEXT]; /* cut, NUL ended */
    size_t value_len;
    char header[LOG_FX_TEXT]; /* PUBLISHER, "" when absent */
    char node[LOG_FX_TEXT];   /* NODE, "" when absent */
    bool is_derived;
    uint16_t source_partition;
    uint64_t source_offset;
    unsigned stages;
} log_fx_record;

/** A fresh folder and an open log in it. tweak (may be NULL) changes the options first. */
void log_fx_init(log_fx *fx, const struct sl_log_ops *ops, void (*tweak)(sl_log_options *options));
/** Closes, removes the folder. */
void log_fx_fini(log_fx *fx);
void log_fx_open(log_fx *fx);
void log_fx_close(log_fx *fx);

#define LOG_FX_PLAIN 0u
enum { LOG_FX_VOLATILE = 1, LOG_FX_COMPACTED = 2, LOG_FX_MANY = 4 };
sl_log_topic *log_fx_topic(log_fx *fx, const char *name, uint16_t partitions, unsigned kind);

/** Appends; fails the test on an error. */
void log_fx_append(log_fx *fx, sl_log_topic *topic, int partition, const char *key,
                   const char *value, uint32_t flags, uint64_t token);
/** Drains until there are count completions in all; fails the test after 20 s. */
void log_fx_wait(log_fx *fx, size_t count);
/** The completion with this token; fails the test when there is none. */
const sl_log_done *log_fx_done(log_fx *fx, uint64_t token);

sl_log_consumer *log_fx_consumer(log_fx *fx, const char *group, sl_log_start reset, bool both);
/** Reads count records that count in their stage (SL_LOG_STAGE_*: all their hand-outs); fails the
 * test when they do not come within 20 s. Commits nothing. */
void log_fx_read(sl_log_consumer *co, log_fx_record *out, size_t count);
/** Nothing (more) comes for this consumer within a moment, after the log was synced. */
void log_fx_expect_silence(log_fx *fx, sl_log_consumer *co);

/** Removes a folder and what is in it. */
void log_fx_remove_dir(const char *dir);

#endif
