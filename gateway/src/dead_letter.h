/* SPDX-License-Identifier: Apache-2.0
 *
 * dead_letter: the file of documents that could not be stored: one line of extended JSON each, with
 * a "_deadLetter" object that says why and where to. A line is on the disk (fsync) before append
 * returns, so the message may be acknowledged then. Bounded: a file that would pass its maximum is
 * renamed to FILE.1 first, one such generation is kept. Also the replay of such files into a sink.
 * Several writer threads share one.
 */
#ifndef SL_GATEWAY_DEAD_LETTER_H
#define SL_GATEWAY_DEAD_LETTER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "document.h"
#include "sink.h"

typedef struct sl_dead_letter sl_dead_letter;

typedef struct sl_dead_letter_entry {
    const sl_document *doc; /* borrowed */
    sl_doc_fate fate;
} sl_dead_letter_entry;

/**
 * Resolves path to an absolute one, logs it, and tries to open the file (mode 0600, a cut last line
 * of an earlier crash is closed by an LF). A file that cannot be opened is not an error here: every
 * append tries again, so that the trouble can be mended without a restart.
 * @thread init
 */
sl_dead_letter *sl_dead_letter_new(const char *path, int64_t max_bytes);
void sl_dead_letter_free(sl_dead_letter **dl);

/**
 * Appends all entries and syncs once: when it returns SL_OK all are on the disk. When it fails what
 * was written is taken back (the start of a line that could not be is closed before the next one);
 * only lines that went to FILE.1 by a rename in the middle may stay, and a replay finds them twice.
 * Errors  SL_ENOSPC, SL_EDENIED, SL_EIO, SL_ENOTFOUND (no such folder); logged here, rate-limited.
 * @thread any but a loop
 */
SL_MUST_USE sl_err sl_dead_letter_append(sl_dead_letter *dl, const sl_dead_letter_entry *entries,
                                         size_t count);

typedef struct sl_dead_letter_stats {
    uint64_t written;      /* documents */
    uint64_t write_errors; /* appends that failed */
    uint64_t bytes;        /* size of the current file */
    uint64_t rotations;    /* renames to FILE.1 */
    bool failing;          /* the last append, or the first opening, failed */
} sl_dead_letter_stats;
/** @thread any */
void sl_dead_letter_read_stats(const sl_dead_letter *dl, sl_dead_letter_stats *out);
/** The absolute path. @thread any */
const char *sl_dead_letter_path(const sl_dead_letter *dl);

/* Where a line without a target of its own (the plain document lines of other writers) goes. */
typedef struct sl_replay_route {
    const char *filter; /* first one that matches the topic counts */
    sl_sink_target target;
} sl_replay_route;

typedef struct sl_replay_report {
    uint64_t lines;      /* that hold something */
    uint64_t stored;     /* now in the sink */
    uint64_t duplicates; /* were there already */
    uint64_t refused;    /* conflict or permanent error; each is logged */
    uint64_t
        damaged; /* not a document (a cut line, foreign text); each is logged with its number */
    uint64_t unrouted; /* no target */
    uint64_t failed;   /* the sink was away or misconfigured: run it again */
} sl_replay_report;

/**
 * Submits the documents of FILE.1 and FILE to the sink. Reads only; running it twice, or while the
 * gateway appends, stores nothing twice, because each line carries its identifier, and never puts
 * an older document over a newer one. Errors  SL_ENOTFOUND neither file exists; SL_EIO; SL_ECONN
 * the sink failed (report->failed).
 * @thread init (the command --replay-dead-letter)
 */
SL_MUST_USE sl_err sl_dead_letter_replay(const char *path, sl_sink *sink,
                                         const sl_replay_route *routes, size_t route_count,
                                         sl_replay_report *report);

#endif
