/* SPDX-License-Identifier: Apache-2.0
 *
 * db: the front of the metadata port: checks and copies what is asked, counts, keeps the health
 * word. The adapters' threads take requests from the queue (db_queue.c).
 */
#include "store/db.h"

#include "base/alloc.h"
#include "base/json.h"
#include "base/logger.h"
#include "store/db_int.h"

#define DB_MAGIC 0x64627074u

#define DEFAULT_GROUP        256
#define DEFAULT_READERS      2
#define DEFAULT_CONNECTIONS  16
#define DEFAULT_QUEUED       10000
#define DEFAULT_QUEUED_BYTES (64u << 20)
#define DEFAULT_RESULT_BYTES (64u << 20)
#define DEFAULT_WAIT_MS      30000
#define DEFAULT_CONNECT_MS   5000
#define DEFAULT_LIFETIME_MS  600000

#define DEFAULT(field, value)                                                                      \
    if (op->field == 0)                                                                            \
    op->field = (value)

static void fill_defaults(sl_db_options *op)
{
    DEFAULT(group, DEFAULT_GROUP);
    DEFAULT(readers, DEFAULT_READERS);
    DEFAULT(connections, DEFAULT_CONNECTIONS);
    DEFAULT(max_queued, DEFAULT_QUEUED);
    DEFAULT(max_queued_bytes, DEFAULT_QUEUED_BYTES);
    DEFAULT(max_result_bytes, DEFAULT_RESULT_BYTES);
    DEFAULT(wait_ms, DEFAULT_WAIT_MS);
    DEFAULT(statement_ms, DEFAULT_WAIT_MS);
    DEFAULT(connect_ms, DEFAULT_CONNECT_MS);
    DEFAULT(start_wait_ms, DEFAULT_CONNECT_MS);
    DEFAULT(max_lifetime_ms, DEFAULT_LIFETIME_MS);
}

/* ---- counters and health */

void db_count(sl_db *db, unsigned stat, int64_t n)
{
    atomic_fetch_add_explicit(&db->stats[stat], n, memory_order_relaxed);
}

int64_t sl_db_stat(const sl_db *db, unsigned stat)
{
    SL_CHECK(db, DB_MAGIC);
    if (stat == SL_DB_STAT_HEALTHY)
        return atomic_load(&db->why_sick) == NULL;
    if (stat == SL_DB_STAT_QUEUED) {
        db_queue *q = (db_queue *)&db->queue; // only its lock is changed
        pthread_mutex_lock(&q->lock);
        int64_t waiting = (int64_t)q->waiting;
        pthread_mutex_unlock(&q->lock);
        return waiting;
    }
    return atomic_load_explicit(&db->stats[stat], memory_order_relaxed);
}

#define SOURCE(name, kind, metric, help)                                                           \
    static int64_t stat_##name(void *arg)                                                          \
    {                                                                                              \
        return sl_db_stat(arg, SL_DB_STAT_##name);                                                 \
    }
SL_DB_STAT_MAP(SOURCE)
#undef SOURCE

static void show_stats(sl_db *db)
{
    if (db->options.stats == NULL)
        return;
    static int64_t (*const SOURCES[])(void *arg) = {
#define SOURCE(name, kind, metric, help) stat_##name,
        SL_DB_STAT_MAP(SOURCE)
#undef SOURCE
    };
    for (unsigned i = 0; i < SL_DB_STAT_COUNT; i++)
        sl_stats_set_source(db->options.stats, db->options.stats_base + i, SOURCES[i], db);
}

static int64_t nothing(void *arg)
{
    (void)arg;
    return 0;
}

// The page may be asked for when the port is gone.
static void hide_stats(sl_db *db)
{
    for (unsigned i = 0; db->options.stats != NULL && i < SL_DB_STAT_COUNT; i++)
        sl_stats_set_source(db->options.stats, db->options.stats_base + i, nothing, NULL);
}

bool db_set_health(sl_db *db, const char *why, const char *detail)
{
    const char *before = atomic_exchange(&db->why_sick, why);
    if (before == why)
        return false;
    if (why == NULL)
        sl_info(SL_C_DB, "DB-AVAILABLE", SL_S("adapter", db->ops->name));
    else
        sl_error(SL_C_DB, "DB-UNAVAILABLE", SL_S("adapter", db->ops->name), SL_S("why", why),
                 SL_S("detail", detail == NULL ? "" : detail));
    return true;
}

bool sl_db_is_healthy(const sl_db *db, const char **why)
{
    SL_CHECK(db, DB_MAGIC);
    const char *sick = atomic_load(&db->why_sick);
    if (sick != NULL)
        *why = sick;
    return sick == NULL;
}

const char *sl_db_name(const sl_db *db)
{
    SL_CHECK(db, DB_MAGIC);
    return db->ops->name;
}

sl_mono_ms db_now(sl_db *db)
{
    return sl_clock_mono(&db->clock);
}

/* ---- life */

sl_err sl_db_open(const struct sl_db_ops *ops, const sl_db_options *options, sl_db **out,
                  char **why)
{
    sl_db *db = sl_calloc(1, sizeof(*db));
    db->magic = DB_MAGIC;
    db->ops = ops;
    db->options = *options;
    fill_defaults(&db->options);
    sl_clock_init(&db->clock);
    db_queue_init(&db->queue, db->options.max_queued, db->options.max_queued_bytes);
    atomic_init(&db->why_sick, NULL);
    sl_err err = ops->open(db, &db->adapter, why);
    if (err != SL_OK) {
        db_queue_fini(&db->queue);
        sl_free(db);
        return err;
    }
    show_stats(db);
    *out = db;
    return SL_OK;
}

void sl_db_close(sl_db **pointer)
{
    sl_db *db = *pointer;
    if (db == NULL)
        return;
    SL_CHECK(db, DB_MAGIC);
    *pointer = NULL;
    db_queue_close(db);
    db->ops->close(db->adapter);
    hide_stats(db);
    db_queue_fini(&db->queue);
    db->magic = 0;
    sl_free(db);
}

/* ---- asking */

static sl_err check_value(const sl_db_value *value)
{
    if (value->type > SL_DB_BYTES)
        return SL_EINVAL;
    if (value->type != SL_DB_TEXT)
        return SL_OK;
    bool nul = value->bytes.len > 0 && memchr(value->bytes.ptr, 0, value->bytes.len) != NULL;
    return nul || !sl_utf8_is_valid(value->bytes) ? SL_EINVAL : SL_OK;
}

// Checks all statements; the sizes of what has to be copied.
static sl_err measure(const sl_db_stmt *stmts, size_t count, size_t *params, size_t *bytes)
{
    *params = *bytes = 0;
    if (count == 0 || count > SL_DB_MAX_STATEMENTS)
        return SL_EINVAL;
    for (size_t i = 0; i < count; i++) {
        if (stmts[i].sql == NULL || stmts[i].param_count > SL_DB_MAX_PARAMS)
            return SL_EINVAL;
        *params += stmts[i].param_count;
        *bytes += strlen(stmts[i].sql) + 1;
        for (size_t p = 0; p < stmts[i].param_count; p++) {
            if (check_value(&stmts[i].params[p]) != SL_OK)
                return SL_EINVAL;
            *bytes += stmts[i].params[p].bytes.len;
        }
    }
    return SL_OK;
}

static uint8_t *copy_bytes(uint8_t **at, const void *from, size_t len)
{
    uint8_t *to = *at;
    if (len > 0)
        memcpy(to, from, len);
    *at += len;
    return to;
}

static void copy_statements(db_request *rq, const sl_db_stmt *from, sl_db_value *params,
                            uint8_t *bytes)
{
    for (size_t i = 0; i < rq->count; i++) {
        sl_db_stmt *to = &rq->stmts[i];
        to->sql = (const char *)copy_bytes(&bytes, from[i].sql, strlen(from[i].sql) + 1);
        to->params = params;
        to->param_count = from[i].param_count;
        for (size_t p = 0; p < from[i].param_count; p++, params++) {
            *params = from[i].params[p];
            params->bytes.ptr = copy_bytes(&bytes, params->bytes.ptr, params->bytes.len);
        }
    }
}

sl_err sl_db_exec(sl_db *db, sl_loop *lp, const sl_db_stmt *stmts, size_t count, unsigned flags,
                  sl_db_done_f *done, void *arg)
{
    SL_CHECK(db, DB_MAGIC);
    size_t params, bytes;
    sl_err err = measure(stmts, count, &params, &bytes);
    if (err != SL_OK)
        return err;
    size_t fixed = sizeof(db_request) + count * sizeof(sl_db_stmt) + params * sizeof(sl_db_value);
    if (fixed + bytes > db->options.max_queued_bytes) { // before the memory is taken (R20)
        db_count(db, SL_DB_STAT_REFUSED, 1);
        return SL_ELIMIT;
    }
    db_request *rq = sl_alloc(fixed + bytes);
    *rq = (db_request){.lp = lp,
                       .flags = flags,
                       .deadline = db_now(db) + db->options.wait_ms,
                       .bytes = fixed + bytes,
                       .done = done,
                       .arg = arg,
                       .count = count};
    rq->stmts = (sl_db_stmt *)(rq + 1);
    sl_db_value *values = (sl_db_value *)(rq->stmts + count);
    copy_statements(rq, stmts, values, (uint8_t *)(values + params));
    err = db_queue_put(&db->queue, rq);
    if (err != SL_OK)
        db_request_free(rq);
    if (err == SL_ELIMIT)
        db_count(db, SL_DB_STAT_REFUSED, 1);
    return err;
}
