/* SPDX-License-Identifier: Apache-2.0
 *
 * fake_sink: a sink in memory with the port's real rules, that fails on command: by rules (from
 * which call to which, for which payloads) or by hanging until it is let go.
 */
#ifndef SL_TEST_FAKE_SINK_H
#define SL_TEST_FAKE_SINK_H

#include <pthread.h>

#include "sink.h"

#define FAKE_MAX_DOCS  20000
#define FAKE_MAX_RULES 8

typedef struct fake_rule {
    int from, to;             /* calls, from 1; to 0: for ever */
    const char *collection;   /* only there; NULL: everywhere */
    const char *payload_part; /* only documents whose payload holds it; NULL: all */
    sl_sink_outcome outcome;
    bool stores; /* stores the document although it reports a failure (lost answer) */
} fake_rule;

typedef struct fake_doc {
    char *collection, *key, *topic, *payload; /* owned; key is printable */
    int64_t received_ms;
    int writes; /* 1 inserted, more: replaced */
} fake_doc;

typedef struct fake_sink {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    fake_rule rules[FAKE_MAX_RULES];
    fake_doc docs[FAKE_MAX_DOCS];
    size_t doc_count;
    int calls;
    int probes;
    bool probe_lies;     /* says that all is well */
    size_t last_batch;   /* documents of the last call */
    bool hang;           /* calls stop inside until it is false */
    const char *hang_in; /* only those of this collection */
    int hanging;         /* calls that do */
} fake_sink;

/** The fake is the adapter's self: give it to sl_sink_open_with as data_dir. */
extern const sl_sink_ops fake_sink_ops;
fake_sink *fake_sink_new(void);
void fake_sink_free(fake_sink **fs);
void fake_sink_rule(fake_sink *fs, fake_rule rule);
void fake_sink_clear_rules(fake_sink *fs);
/** The stored document with this payload, or NULL. */
const fake_doc *fake_sink_find(fake_sink *fs, const char *payload);
/** Waits until a call hangs. */
void fake_sink_await_hang(fake_sink *fs);
void fake_sink_let_go(fake_sink *fs);

#endif
