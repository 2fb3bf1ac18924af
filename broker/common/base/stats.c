/* SPDX-License-Identifier: Apache-2.0
 *
 * stats: per-thread blocks of cells. A cell has one writer, which loads and stores it relaxed (no
 * locked instruction); readers sum over the blocks and may be a few counts behind. Only the last
 * block is shared, for the threads beyond the first 63, and counts with atomic adds.
 */
#include "base/stats.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"

#define SHARED_SHARD (SL_STATS_SHARDS - 1u)
/* Two cache lines: the prefetcher of common processors fetches lines in pairs. */
#define BLOCK_ALIGN 128u
#define NS_PER_S    1e9

/* Upper bounds in nanoseconds: 1, 2.5 and 5 of each decade from 100 us to 100 s. */
static const int64_t bucket_ns[] = {100000,      250000,      500000,      1000000,     2500000,
                                    5000000,     10000000,    25000000,    50000000,    100000000,
                                    250000000,   500000000,   1000000000,  2500000000,  5000000000,
                                    10000000000, 25000000000, 50000000000, 100000000000};
static const char *const bucket_text[] = {
    "0.0001", "0.00025", "0.0005", "0.001", "0.0025", "0.005", "0.01", "0.025", "0.05", "0.1",
    "0.25",   "0.5",     "1",      "2.5",   "5",      "10",    "25",   "50",    "100"};

#define BUCKETS    (sizeof(bucket_ns) / sizeof(bucket_ns[0]))
#define SUM_CELL   (BUCKETS + 1) /* behind the bucket of what is above all bounds */
#define HIST_CELLS (BUCKETS + 2)

_Static_assert(sizeof(bucket_text) / sizeof(bucket_text[0]) == BUCKETS, "a text per bound");

typedef _Atomic int64_t cell;

typedef struct source {
    int64_t (*fn)(void *arg);
    void *arg;
} source;

struct sl_stats {
    const sl_stat_row *rows; /* borrowed, static */
    size_t count;
    size_t *first;     /* owned; index of each row's first cell in a block */
    size_t *next_same; /* owned; next row with the same name, or count */
    bool *is_later;    /* owned; an earlier row has the same name */
    source *sources;   /* owned */
    cell *set;         /* owned; values of sl_stats_set, one a row */
    void *memory;      /* owned; blocks lie aligned in it */
    cell *blocks;      /* SL_STATS_SHARDS blocks of block_cells */
    size_t block_cells;
    _Atomic unsigned shards_taken;
};

// Rows of one name make one group on the page, wherever they stand in the table.
static void link_names(const sl_stat_row *rows, size_t count, size_t *next_same, bool *is_later)
{
    for (size_t i = 0; i < count; i++) {
        next_same[i] = count;
        for (size_t k = i + 1; k < count; k++) {
            if (strcmp(rows[i].name, rows[k].name) == 0) {
                SL_ASSERT(rows[i].kind == rows[k].kind);
                next_same[i] = k;
                is_later[k] = true;
                break;
            }
        }
    }
}

sl_stats *sl_stats_new(const sl_stat_row *rows, size_t count)
{
    sl_stats *st = sl_calloc(1, sizeof(*st));
    st->rows = rows;
    st->count = count;
    st->first = sl_calloc(count, sizeof(*st->first));
    st->next_same = sl_calloc(count, sizeof(*st->next_same));
    st->is_later = sl_calloc(count, sizeof(*st->is_later));
    st->sources = sl_calloc(count, sizeof(*st->sources));
    st->set = sl_calloc(count, sizeof(*st->set));
    size_t cells = 0;
    for (size_t i = 0; i < count; i++) {
        st->first[i] = cells;
        cells += rows[i].kind == SL_STAT_HISTOGRAM ? HIST_CELLS : 1;
    }
    const size_t line_cells = BLOCK_ALIGN / sizeof(cell);
    st->block_cells = (cells + line_cells - 1) / line_cells * line_cells;
    size_t bytes = SL_STATS_SHARDS * st->block_cells * sizeof(cell) + BLOCK_ALIGN;
    st->memory = sl_calloc(1, bytes);
    uintptr_t start = ((uintptr_t)st->memory + BLOCK_ALIGN - 1) & ~(uintptr_t)(BLOCK_ALIGN - 1);
    st->blocks = (cell *)start;
    link_names(rows, count, st->next_same, st->is_later);
    return st;
}

void sl_stats_free(sl_stats **st)
{
    sl_stats *mine = *st;
    *st = NULL;
    if (mine == NULL)
        return;
    sl_free(mine->first);
    sl_free(mine->next_same);
    sl_free(mine->is_later);
    sl_free(mine->sources);
    sl_free(mine->set);
    sl_free(mine->memory);
    sl_free(mine);
}

unsigned sl_stats_shard(sl_stats *st)
{
    // The count stops at the last shard, so it cannot wrap however many threads come and go.
    unsigned taken = atomic_load(&st->shards_taken);
    while (taken < SHARED_SHARD)
        if (atomic_compare_exchange_weak(&st->shards_taken, &taken, taken + 1))
            return taken;
    return SHARED_SHARD;
}

static cell *cell_of(const sl_stats *st, unsigned shard, unsigned id, size_t index)
{
    return st->blocks + shard * st->block_cells + st->first[id] + index;
}

static void add_to(cell *at, unsigned shard, int64_t delta)
{
    if (shard == SHARED_SHARD) {
        atomic_fetch_add_explicit(at, delta, memory_order_relaxed);
        return;
    }
    int64_t value = atomic_load_explicit(at, memory_order_relaxed);
    atomic_store_explicit(at, value + delta, memory_order_relaxed);
}

void sl_stats_add(sl_stats *st, unsigned shard, unsigned id, int64_t delta)
{
    SL_DASSERT(id < st->count && shard < SL_STATS_SHARDS);
    SL_DASSERT(st->rows[id].kind == SL_STAT_GAUGE ||
               (st->rows[id].kind == SL_STAT_COUNTER && delta >= 0));
    add_to(cell_of(st, shard, id, 0), shard, delta);
}

void sl_stats_set(sl_stats *st, unsigned id, int64_t value)
{
    SL_ASSERT(id < st->count && st->rows[id].kind == SL_STAT_GAUGE);
    atomic_store_explicit(&st->set[id], value, memory_order_relaxed);
}

void sl_stats_set_source(sl_stats *st, unsigned id, int64_t (*fn)(void *arg), void *arg)
{
    SL_ASSERT(id < st->count && st->rows[id].kind != SL_STAT_HISTOGRAM);
    st->sources[id] = (source){fn, arg};
}

void sl_stats_observe(sl_stats *st, unsigned shard, unsigned id, double seconds)
{
    SL_DASSERT(id < st->count && st->rows[id].kind == SL_STAT_HISTOGRAM);
    // A clock that stepped back gives negative spans, and NaN fails every comparison: both are 0.
    double ns_exact = seconds > 0 ? seconds * NS_PER_S : 0;
    int64_t ns = ns_exact < 9e18 ? (int64_t)(ns_exact + 0.5) : INT64_MAX / 2;
    size_t bucket = 0;
    while (bucket < BUCKETS && ns > bucket_ns[bucket])
        bucket++;
    add_to(cell_of(st, shard, id, bucket), shard, 1);
    add_to(cell_of(st, shard, id, SUM_CELL), shard, ns);
}

static int64_t sum_cells(const sl_stats *st, unsigned id, size_t index)
{
    // Unsigned addition: a total that wraps must not be undefined.
    uint64_t sum = 0;
    for (unsigned shard = 0; shard < SL_STATS_SHARDS; shard++)
        sum += (uint64_t)atomic_load_explicit(cell_of(st, shard, id, index), memory_order_relaxed);
    return (int64_t)sum;
}

static int64_t sum_observations(const sl_stats *st, unsigned id)
{
    int64_t total = 0;
    for (size_t bucket = 0; bucket <= BUCKETS; bucket++)
        total += sum_cells(st, id, bucket);
    return total;
}

int64_t sl_stats_get(const sl_stats *st, unsigned id)
{
    SL_ASSERT(id < st->count);
    if (st->rows[id].kind == SL_STAT_HISTOGRAM)
        return sum_observations(st, id);
    if (st->sources[id].fn != NULL)
        return st->sources[id].fn(st->sources[id].arg);
    return sum_cells(st, id, 0) + atomic_load_explicit(&st->set[id], memory_order_relaxed);
}

static const char *kind_word(sl_stat_kind kind)
{
    return kind == SL_STAT_COUNTER ? "counter" : kind == SL_STAT_GAUGE ? "gauge" : "histogram";
}

static sl_err write_help(sl_buf *out, const sl_stat_row *row)
{
    sl_err err = sl_buf_printf(out, "# HELP %s ", row->name);
    for (const char *at = row->help; err == SL_OK && *at != '\0'; at++) {
        if (*at == '\\' || *at == '\n')
            err = sl_buf_append_str(out, *at == '\\' ? "\\\\" : "\\n");
        else
            err = sl_buf_append(out, at, 1);
    }
    if (err != SL_OK)
        return err;
    return sl_buf_printf(out, "\n# TYPE %s %s\n", row->name, kind_word(row->kind));
}

static sl_err write_histogram(const sl_stats *st, unsigned id, sl_buf *out)
{
    const sl_stat_row *row = &st->rows[id];
    const char *labels = row->labels == NULL ? "" : row->labels;
    const char *comma = row->labels == NULL ? "" : ",";
    int64_t total = 0;
    sl_err err = SL_OK;
    for (size_t bucket = 0; err == SL_OK && bucket <= BUCKETS; bucket++) {
        total += sum_cells(st, id, bucket);
        err = sl_buf_printf(out, "%s_bucket{%s%sle=\"%s\"} %" PRId64 "\n", row->name, labels, comma,
                            bucket < BUCKETS ? bucket_text[bucket] : "+Inf", total);
    }
    const char *open = row->labels == NULL ? "" : "{";
    const char *close = row->labels == NULL ? "" : "}";
    int64_t sum_ns = sum_cells(st, id, SUM_CELL);
    if (err == SL_OK)
        err = sl_buf_printf(out, "%s_sum%s%s%s %" PRId64 ".%09" PRId64 "\n", row->name, open,
                            labels, close, sum_ns / 1000000000, sum_ns % 1000000000);
    if (err == SL_OK)
        err = sl_buf_printf(out, "%s_count%s%s%s %" PRId64 "\n", row->name, open, labels, close,
                            total);
    return err;
}

static sl_err write_row(const sl_stats *st, unsigned id, sl_buf *out)
{
    const sl_stat_row *row = &st->rows[id];
    if (row->kind == SL_STAT_HISTOGRAM)
        return write_histogram(st, id, out);
    if (row->labels == NULL)
        return sl_buf_printf(out, "%s %" PRId64 "\n", row->name, sl_stats_get(st, id));
    return sl_buf_printf(out, "%s{%s} %" PRId64 "\n", row->name, row->labels, sl_stats_get(st, id));
}

sl_err sl_stats_write_prometheus(const sl_stats *st, sl_buf *out)
{
    sl_err err = SL_OK;
    for (size_t i = 0; err == SL_OK && i < st->count; i++) {
        if (st->is_later[i])
            continue;
        err = write_help(out, &st->rows[i]);
        for (size_t k = i; err == SL_OK && k < st->count; k = st->next_same[k])
            err = write_row(st, (unsigned)k, out);
    }
    return err;
}

static sl_err write_cell_text(sl_buf *out, const char *text)
{
    sl_err err = SL_OK;
    for (const char *at = text; err == SL_OK && *at != '\0'; at++) {
        if (*at == '|')
            err = sl_buf_append_str(out, "\\|");
        else
            err = sl_buf_append(out, *at == '\n' ? " " : at, 1);
    }
    return err;
}

sl_err sl_stats_write_reference(const sl_stat_row *rows, size_t count, sl_buf *out)
{
    sl_err err = sl_buf_append_str(out, "| name | labels | kind | meaning |\n"
                                        "| --- | --- | --- | --- |\n");
    for (size_t i = 0; err == SL_OK && i < count; i++) {
        const sl_stat_row *row = &rows[i];
        err = sl_buf_printf(out, "| `%s` | ", row->name);
        if (err == SL_OK && row->labels != NULL)
            err = sl_buf_printf(out, "`%s`", row->labels);
        if (err == SL_OK)
            err = sl_buf_printf(out, " | %s | ", kind_word(row->kind));
        if (err == SL_OK)
            err = write_cell_text(out, row->help);
        if (err == SL_OK)
            err = sl_buf_append_str(out, " |\n");
    }
    return err;
}
