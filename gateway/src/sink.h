/* SPDX-License-Identifier: Apache-2.0
 *
 * sink: PORT "sink": where documents are stored. One sink per process; every writer thread calls it
 * with batches for its own target (database, collection). Adapters: sink_sqlite.c (embedded,
 * default), sink_mongo.c. Retries, dead letters and acknowledgements are the writer's business: a
 * sink only says, for every document of a batch, what became of it. The contract suite is
 * tests/contract/sink.
 */
#ifndef SL_GATEWAY_SINK_H
#define SL_GATEWAY_SINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "document.h"

/* What became of one document. */
typedef enum sl_sink_outcome {
    SL_SINK_STORED,    /* durably stored, or replaced the document of the same id and topic */
    SL_SINK_DUPLICATE, /* stored already under the same id and topic: as good as stored */
    SL_SINK_CONFLICT,  /* the id belongs to a document of another topic: never overwritten */
    SL_SINK_PERMANENT, /* the store will never take this document (too large, a validator, ...) */
    SL_SINK_TRANSIENT, /* this document failed, the store works: try again a few times */
    SL_SINK_AWAY,  /* the store is not there, or takes no writes now (down, frozen, disk full) */
    SL_SINK_CONFIG /* the operator must act: wrong password, no right, read-only file, damage */
} sl_sink_outcome;

#define SL_SINK_REASON_BYTES 160

typedef struct sl_sink_result {
    sl_sink_outcome outcome;
    int code;                          /* the store's own error number, 0: none */
    char reason[SL_SINK_REASON_BYTES]; /* short text for log and dead letter; "" when stored */
} sl_sink_result;

typedef struct sl_sink_conf {
    const char *connection_string; /* MongoDB; NULL: the embedded store */
    const char *data_dir;          /* where the embedded store's file lives */
    sl_dur_ms budget_ms; /* how long a document may stay unstored; the adapter derives its time-outs
                            from it unless the connection string sets them. 0: adapter's default */
} sl_sink_conf;

/* Where a batch goes. Names are UTF-8, checked by sl_sink_target_check. */
typedef struct sl_sink_target {
    const char *database;
    const char *collection;
} sl_sink_target;

typedef struct sl_sink_ops {
    const char *name; /* "mongodb", "sqlite" */
    /* Checks the configuration and makes ready; the embedded store opens its file, MongoDB is not
     * contacted (it may be away at start). SL_EINVAL, SL_EIO, SL_ECORRUPT, SL_ENOSPC, SL_EDENIED
     * with an owned message (sl_free) in *why that names the file or the setting. */
    sl_err (*open)(void **self, const sl_sink_conf *cf, char **why);
    /* Stores count documents, unordered; res[i] tells of docs[i]. Blocks, for a time that the
     * adapter bounds. STORED means durable (fsync, or majority and journal). Two documents with
     * equal id and topic are never in one batch (the writer keeps the last). @thread any */
    void (*write)(void *self, const sl_sink_target *target, const sl_document *const *docs,
                  size_t count, sl_sink_result *res);
    /* Asks the store whether it answers: STORED, AWAY or CONFIG, with a reason. Blocks, bounded.
     * @thread any */
    void (*probe)(void *self, sl_sink_result *res);
    /* No call is running any more. */
    void (*close)(void *self);
} sl_sink_ops;

extern const sl_sink_ops sl_sink_sqlite_ops;
#ifdef SL_WITH_MONGO
extern const sl_sink_ops sl_sink_mongo_ops;
#endif

typedef struct sl_sink sl_sink;

/**
 * Opens the sink that the configuration names: a connection string chooses MongoDB, none the
 * embedded store.
 * Errors  as ops->open; SL_EUNSUPPORTED a connection string in a build without MongoDB. *why: owned
 *         message.
 * @thread init
 */
SL_MUST_USE sl_err sl_sink_open(const sl_sink_conf *cf, sl_sink **out, char **why);
/** The same with a given adapter (tests). self is what the adapter's open gets. @thread init */
SL_MUST_USE sl_err sl_sink_open_with(const sl_sink_ops *ops, const sl_sink_conf *cf, sl_sink **out,
                                     char **why);
void sl_sink_close(sl_sink **sink);
const char *sl_sink_name(const sl_sink *sink);

/** Names that every adapter can store: not empty, UTF-8 without NUL, what MongoDB allows for a
 * database (no / \ . " $ * < > : | ? or blank, at most 63 bytes) and a collection (no $, not
 * system.*, at most 120 bytes). *why: static sentence. @thread any */
SL_MUST_USE sl_err sl_sink_target_check(const sl_sink_target *target, const char **why);

/** See ops->write. @thread any but a loop */
void sl_sink_write(sl_sink *sink, const sl_sink_target *target, const sl_document *const *docs,
                   size_t count, sl_sink_result *res);
/** See ops->probe. @thread any but a loop */
void sl_sink_probe(sl_sink *sink, sl_sink_result *res);

/** "stored", "id-conflict", ...: the reason used where an adapter gave none. @thread any */
const char *sl_sink_outcome_word(sl_sink_outcome outcome);
/** Fills one result, format printf. @thread any */
void sl_sink_result_set(sl_sink_result *res, sl_sink_outcome outcome, int code, const char *fmt,
                        ...) __attribute__((format(printf, 4, 5)));

#endif
