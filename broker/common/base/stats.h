/* SPDX-License-Identifier: Apache-2.0
 *
 * stats: counters, gauges and histograms as rows of a table; the row makes the Prometheus page and
 * docs/metrics.md. Adding to a counter is a plain add in the adding thread's own cache line (no
 * contended atomic): each thread that counts takes a shard once.
 */
#ifndef SL_BASE_STATS_H
#define SL_BASE_STATS_H

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

typedef enum sl_stat_kind { SL_STAT_COUNTER, SL_STAT_GAUGE, SL_STAT_HISTOGRAM } sl_stat_kind;

typedef struct sl_stat_row {
    const char *name;   /* Prometheus name without labels, unit in the name: sluice_..._total */
    const char *labels; /* constant labels, e.g. "qos=\"0\"", or NULL */
    sl_stat_kind kind;
    const char *help; /* one sentence; the same for all rows of a name */
} sl_stat_row;

#define SL_STATS_SHARDS 64
typedef struct sl_stats sl_stats;

/** rows is static and lives on; ids are indexes into it. @thread init */
sl_stats *sl_stats_new(const sl_stat_row *rows, size_t count);
void sl_stats_free(sl_stats **st);
/** A shard for the calling thread; the last shard is shared (atomic) when all are taken.
 * @thread any, once per thread */
unsigned sl_stats_shard(sl_stats *st);
/** Counter or gauge (delta may be negative for a gauge). @thread owner of the shard */
void sl_stats_add(sl_stats *st, unsigned shard, unsigned id, int64_t delta);
/** Gauge set to a value from any thread (last writer wins; do not mix with add). @thread any */
void sl_stats_set(sl_stats *st, unsigned id, int64_t value);
/** A value that is asked for when the page is made. fn: any thread, must not block.
 * @thread init */
void sl_stats_set_source(sl_stats *st, unsigned id, int64_t (*fn)(void *arg), void *arg);
/** Histogram observation in seconds, exponential buckets 100 us .. 100 s. @thread shard owner */
void sl_stats_observe(sl_stats *st, unsigned shard, unsigned id, double seconds);
/** Sum over the shards. @thread any */
int64_t sl_stats_get(const sl_stats *st, unsigned id);
/** Appends all rows as Prometheus text 0.0.4 (HELP and TYPE once per name). @thread any */
SL_MUST_USE sl_err sl_stats_write_prometheus(const sl_stats *st, sl_buf *out);
/** Appends the rows as a Markdown table (the docs lint compares it). @thread any */
SL_MUST_USE sl_err sl_stats_write_reference(const sl_stat_row *rows, size_t count, sl_buf *out);

#endif
