/* SPDX-License-Identifier: Apache-2.0
 *
 * sink_mongo: the MongoDB sink. Every writer thread takes a client of one pool for each batch. A
 * batch is one unordered bulk: inserts (a resend of a document that was stored already is told by
 * error 11000) and upserting replaces whose filter is {_id, topic}, so that a document of another
 * topic is never overwritten. What 11000 means is settled by looking at the stored topic.
 */
#include "sink_mongo_int.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/buf.h"
#include "base/logger.h"
#include "base/map.h"

#define MONGO_SINK_MAGIC 0x536d6e67u
#define APP_NAME         "sluice-gateway"
#define DUPLICATE_KEY    11000
#define TOO_LARGE        10334
#define BUDGET_SHARE     4 /* socket time-out as a part of the budget: two tries fit */
#define SOCKET_MIN_MS    500
#define SOCKET_MAX_MS    10000
#define SOCKET_DEFAULT   5000
#define HEARTBEAT_MS     1000 /* a server that is back is noticed within this */
#define LOG_PERIOD_MS    10000

typedef struct mongo_sink {
    uint32_t magic;
    mongoc_client_pool_t *pool;   /* owned */
    mongoc_write_concern_t *safe; /* owned */
} mongo_sink;

/* One call of write. */
typedef struct bulk_job {
    mongo_sink *sk;
    const sl_document *const *docs;
    sl_sink_result *res;
    size_t *at;  /* owned; position in the bulk -> index of the document */
    size_t sent; /* documents in the bulk */
    mongoc_collection_t *coll;
} bulk_job;

/* ---- results ---- */

static void fail_rest(bulk_job *job, const bool *told, sl_sink_outcome outcome, int code,
                      const char *reason)
{
    for (size_t i = 0; i < job->sent; i++)
        if (!told[i])
            sl_sink_result_set(&job->res[job->at[i]], outcome, code, "%s", reason);
}

static int read_int(const bson_iter_t *array_item, const char *key)
{
    bson_iter_t it;
    return bson_iter_recurse(array_item, &it) && bson_iter_find(&it, key)
               ? (int)bson_iter_as_int64(&it)
               : -1;
}

static const char *read_text(const bson_iter_t *array_item, const char *key)
{
    bson_iter_t it;
    return bson_iter_recurse(array_item, &it) && bson_iter_find(&it, key) &&
                   BSON_ITER_HOLDS_UTF8(&it)
               ? bson_iter_utf8(&it, NULL)
               : "";
}

/* Notes every "writeErrors" item; how many there were. */
static size_t take_write_errors(bulk_job *job, const bson_t *reply, bool *told)
{
    bson_iter_t it, item;
    size_t count = 0;
    if (!bson_iter_init_find(&it, reply, "writeErrors") || !bson_iter_recurse(&it, &item))
        return 0;
    while (bson_iter_next(&item)) {
        int index = read_int(&item, "index"), code = read_int(&item, "code");
        if (index < 0 || (size_t)index >= job->sent || told[index])
            continue;
        told[index] = true;
        count++;
        // a duplicate is judged later, by the stored topic
        sl_sink_result_set(&job->res[job->at[index]],
                           code == DUPLICATE_KEY ? SL_SINK_DUPLICATE
                                                 : sl_mongo_judge_document(code),
                           code, "%s", read_text(&item, "errmsg"));
    }
    return count;
}

/* A write concern that was not met: written somewhere, not yet safe. */
static bool take_concern_error(bulk_job *job, const bson_t *reply, const bool *told)
{
    bson_iter_t it, item;
    if (!bson_iter_init_find(&it, reply, "writeConcernErrors") || !bson_iter_recurse(&it, &item) ||
        !bson_iter_next(&item))
        return false;
    bson_error_t error = {.domain = MONGOC_ERROR_WRITE_CONCERN,
                          .code = (uint32_t)read_int(&item, "code")};
    sl_sink_outcome outcome = sl_mongo_judge_command(&error);
    if (outcome == SL_SINK_PERMANENT)
        outcome = SL_SINK_AWAY;
    fail_rest(job, told, outcome, (int)error.code, read_text(&item, "errmsg"));
    // duplicates are of no help either: the first copy may be the unsafe one
    for (size_t i = 0; i < job->sent; i++)
        if (job->res[job->at[i]].outcome == SL_SINK_DUPLICATE)
            job->res[job->at[i]].outcome = outcome;
    return true;
}

static size_t count_of(const bson_t *reply, const char *key)
{
    bson_iter_t it;
    return bson_iter_init_find(&it, reply, key) ? (size_t)bson_iter_as_int64(&it) : 0;
}

static void take_failure(bulk_job *job, const bson_t *reply, const bson_error_t *error)
{
    bool *told = sl_calloc(job->sent, sizeof *told);
    size_t errors = take_write_errors(job, reply, told);
    if (!take_concern_error(job, reply, told)) {
        size_t done = count_of(reply, "nInserted") + count_of(reply, "nUpserted") +
                      count_of(reply, "nMatched");
        if (errors == 0 || done + errors < job->sent) {
            // the command failed as a whole, or in the middle: what is not told is not known
            sl_sink_outcome outcome = sl_mongo_judge_command(error);
            if (outcome == SL_SINK_PERMANENT && errors > 0)
                outcome = SL_SINK_AWAY; // that was one of the write errors
            fail_rest(job, told, outcome, (int)error->code, error->message);
        } else {
            fail_rest(job, told, SL_SINK_STORED, 0, "");
        }
    }
    sl_free(told);
}

/* ---- duplicates ---- */

static void append_duplicate_ids(const bulk_job *job, bson_t *list)
{
    uint32_t count = 0;
    for (size_t i = 0; i < job->sent; i++) {
        if (job->res[job->at[i]].outcome != SL_SINK_DUPLICATE)
            continue;
        char key[16];
        snprintf(key, sizeof key, "%u", count++);
        sl_mongo_append_id(list, key, &job->docs[job->at[i]]->id);
    }
}

/* Stored topics by identifier; values are owned texts of sl_strndup with their length in front. */
typedef struct stored_topic {
    size_t len;
    char text[];
} stored_topic;

static void note_topic(sl_map *topics, const bson_t *found)
{
    bson_iter_t id_it, topic_it;
    sl_doc_id id;
    if (!bson_iter_init_find(&id_it, found, "_id") || sl_mongo_read_id(&id_it, &id) != SL_OK)
        return;
    uint32_t len = 0;
    const char *text =
        bson_iter_init_find(&topic_it, found, "topic") && BSON_ITER_HOLDS_UTF8(&topic_it)
            ? bson_iter_utf8(&topic_it, &len)
            : "";
    stored_topic *topic = sl_alloc(sizeof *topic + len + 1);
    topic->len = len;
    memcpy(topic->text, text, len);
    void *old = NULL;
    if (sl_map_put(topics, id.key, topic, &old) != SL_OK)
        sl_free(topic);
    sl_free(old);
    sl_doc_id_fini(&id);
}

static bool find_topics(bulk_job *job, sl_map *topics, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, inner, list, opts = BSON_INITIALIZER, fields;
    BSON_APPEND_DOCUMENT_BEGIN(&filter, "_id", &inner);
    BSON_APPEND_ARRAY_BEGIN(&inner, "$in", &list);
    append_duplicate_ids(job, &list);
    bson_append_array_end(&inner, &list);
    bson_append_document_end(&filter, &inner);
    BSON_APPEND_DOCUMENT_BEGIN(&opts, "projection", &fields);
    BSON_APPEND_INT32(&fields, "topic", 1);
    bson_append_document_end(&opts, &fields);
    mongoc_cursor_t *cursor = mongoc_collection_find_with_opts(job->coll, &filter, &opts, NULL);
    const bson_t *found;
    while (mongoc_cursor_next(cursor, &found))
        note_topic(topics, found);
    bool failed = mongoc_cursor_error(cursor, error);
    mongoc_cursor_destroy(cursor);
    bson_destroy(&opts);
    bson_destroy(&filter);
    return !failed;
}

static void judge_duplicate(const sl_document *doc, const stored_topic *topic, sl_sink_result *res)
{
    if (topic == NULL) // another unique index, or deleted a moment ago: a few tries will tell
        res->outcome = SL_SINK_TRANSIENT;
    else if (sl_slice_equal(doc->topic, sl_slice_of(topic->text, topic->len)))
        sl_sink_result_set(res, SL_SINK_DUPLICATE, DUPLICATE_KEY, "%s", "");
    else
        sl_sink_result_set(res, SL_SINK_CONFLICT, DUPLICATE_KEY, "%s", "");
}

static void judge_duplicates(bulk_job *job)
{
    size_t count = 0;
    for (size_t i = 0; i < job->sent; i++)
        count += job->res[job->at[i]].outcome == SL_SINK_DUPLICATE;
    if (count == 0)
        return;
    sl_map *topics = sl_map_new(count);
    bson_error_t error;
    bool found = find_topics(job, topics, &error);
    for (size_t i = 0; i < job->sent; i++) {
        sl_sink_result *res = &job->res[job->at[i]];
        const sl_document *doc = job->docs[job->at[i]];
        if (res->outcome != SL_SINK_DUPLICATE)
            continue;
        if (found)
            judge_duplicate(doc, sl_map_get(topics, doc->id.key), res);
        else
            sl_sink_result_set(res, sl_mongo_judge_command(&error), (int)error.code, "%s",
                               error.message);
    }
    size_t pos = 0;
    void *value;
    while (sl_map_each(topics, &pos, NULL, &value))
        sl_free(value);
    sl_map_free(&topics);
}

/* ---- writing ---- */

static bool add_document(mongoc_bulk_operation_t *bulk, const sl_document *doc, sl_sink_result *res)
{
    bson_t body, filter, opts = BSON_INITIALIZER;
    bson_error_t error = {0};
    bool fits = sl_mongo_build_document(doc, &body);
    bool added = false;
    if (!fits) {
        sl_sink_result_set(res, SL_SINK_PERMANENT, TOO_LARGE, "larger than MongoDB's 16 MiB");
    } else if (doc->mode == SL_DOC_INSERT) {
        added = mongoc_bulk_operation_insert_with_opts(bulk, &body, NULL, &error);
    } else {
        sl_mongo_build_filter(doc, &filter);
        BSON_APPEND_BOOL(&opts, "upsert", true);
        added = mongoc_bulk_operation_replace_one_with_opts(bulk, &filter, &body, &opts, &error);
        bson_destroy(&filter);
    }
    if (fits && !added)
        sl_sink_result_set(res, SL_SINK_PERMANENT, (int)error.code, "%s", error.message);
    bson_destroy(&opts);
    bson_destroy(&body);
    return added;
}

static mongoc_bulk_operation_t *new_bulk(bulk_job *job)
{
    bson_t opts = BSON_INITIALIZER;
    BSON_APPEND_BOOL(&opts, "ordered", false);
    mongoc_write_concern_append(job->sk->safe, &opts);
    mongoc_bulk_operation_t *bulk =
        mongoc_collection_create_bulk_operation_with_opts(job->coll, &opts);
    bson_destroy(&opts);
    return bulk;
}

static void run_bulk(bulk_job *job, size_t count)
{
    mongoc_bulk_operation_t *bulk = new_bulk(job);
    for (size_t i = 0; i < count; i++)
        if (add_document(bulk, job->docs[i], &job->res[i]))
            job->at[job->sent++] = i;
    if (job->sent > 0) {
        bson_t reply;
        bson_error_t error = {0};
        if (mongoc_bulk_operation_execute(bulk, &reply, &error) != 0) {
            for (size_t i = 0; i < job->sent; i++)
                sl_sink_result_set(&job->res[job->at[i]], SL_SINK_STORED, 0, "%s", "");
        } else {
            take_failure(job, &reply, &error);
            judge_duplicates(job);
        }
        bson_destroy(&reply);
    }
    mongoc_bulk_operation_destroy(bulk);
}

static void mongo_write(void *self, const sl_sink_target *target, const sl_document *const *docs,
                        size_t count, sl_sink_result *res)
{
    mongo_sink *sk = self;
    SL_CHECK(sk, MONGO_SINK_MAGIC);
    mongoc_client_t *client = mongoc_client_pool_pop(sk->pool);
    bulk_job job = {.sk = sk, .docs = docs, .res = res};
    job.at = sl_calloc(count, sizeof *job.at);
    job.coll = mongoc_client_get_collection(client, target->database, target->collection);
    run_bulk(&job, count);
    mongoc_collection_destroy(job.coll);
    sl_free(job.at);
    mongoc_client_pool_push(sk->pool, client);
}

static void mongo_probe(void *self, sl_sink_result *res)
{
    mongo_sink *sk = self;
    SL_CHECK(sk, MONGO_SINK_MAGIC);
    mongoc_client_t *client = mongoc_client_pool_pop(sk->pool);
    bson_t ping = BSON_INITIALIZER;
    bson_error_t error = {0};
    BSON_APPEND_INT32(&ping, "ping", 1);
    if (mongoc_client_command_simple(client, "admin", &ping, NULL, NULL, &error))
        sl_sink_result_set(res, SL_SINK_STORED, 0, "%s", "");
    else
        sl_sink_result_set(res, sl_mongo_judge_command(&error), (int)error.code, "%s",
                           error.message);
    bson_destroy(&ping);
    mongoc_client_pool_push(sk->pool, client);
}

/* ---- opening ---- */

/* The driver's own log lines: its warnings, limited; debug and info say nothing to an operator. */
static void on_driver_log(mongoc_log_level_t level, const char *domain, const char *text, void *arg)
{
    static sl_log_limit limit;
    uint32_t suppressed;
    (void)arg;
    if (level > MONGOC_LOG_LEVEL_WARNING ||
        !sl_log_limit_pass(&limit, 1, LOG_PERIOD_MS, &suppressed))
        return;
    sl_warn(SL_C_SINK, "MONGODB-DRIVER", SL_S("domain", domain), SL_S("text", text),
            SL_U("suppressed", suppressed));
}

static void set_default(mongoc_uri_t *uri, const char *option, int32_t value)
{
    if (!mongoc_uri_has_option(uri, option) && !mongoc_uri_set_option_as_int32(uri, option, value))
        sl_warn(SL_C_SINK, "MONGODB-OPTION", SL_S("option", option), SL_I("value", value));
}

/* The driver's own time-outs (five minutes on a socket) are longer than any message may wait. */
static int32_t set_timeouts(mongoc_uri_t *uri, sl_dur_ms budget)
{
    sl_dur_ms socket = budget > 0 ? budget / BUDGET_SHARE : SOCKET_DEFAULT;
    if (socket < SOCKET_MIN_MS)
        socket = SOCKET_MIN_MS;
    if (socket > SOCKET_MAX_MS)
        socket = SOCKET_MAX_MS;
    set_default(uri, MONGOC_URI_SOCKETTIMEOUTMS, (int32_t)socket);
    set_default(uri, MONGOC_URI_CONNECTTIMEOUTMS, (int32_t)socket / 2);
    set_default(uri, MONGOC_URI_SERVERSELECTIONTIMEOUTMS, (int32_t)socket / 2);
    set_default(uri, MONGOC_URI_HEARTBEATFREQUENCYMS, HEARTBEAT_MS);
    return mongoc_uri_get_option_as_int32(uri, MONGOC_URI_SOCKETTIMEOUTMS, (int32_t)socket);
}

/* Majority and journal unless the connection string says otherwise; acknowledged in any case. */
static sl_err make_concern(const mongoc_uri_t *uri, int32_t socket_ms, mongoc_write_concern_t **out,
                           char **why)
{
    const mongoc_write_concern_t *asked = mongoc_uri_get_write_concern(uri);
    if (mongoc_write_concern_get_w(asked) == MONGOC_WRITE_CONCERN_W_UNACKNOWLEDGED) {
        *why = sl_strdup("mclient/connection-string: w=0 is refused, it would acknowledge messages "
                         "that nobody stored");
        return SL_EINVAL;
    }
    mongoc_write_concern_t *safe = mongoc_write_concern_copy(asked);
    if (mongoc_write_concern_get_w(asked) == MONGOC_WRITE_CONCERN_W_DEFAULT)
        mongoc_write_concern_set_w(safe, MONGOC_WRITE_CONCERN_W_MAJORITY);
    if (!mongoc_write_concern_journal_is_set(asked))
        mongoc_write_concern_set_journal(safe, true);
    if (mongoc_write_concern_get_wtimeout_int64(asked) <= 0) // below the socket's, to be told
        mongoc_write_concern_set_wtimeout_int64(safe, socket_ms * 3 / 4);
    *out = safe;
    return SL_OK;
}

static void mongo_close(void *self)
{
    mongo_sink *sk = self;
    SL_CHECK(sk, MONGO_SINK_MAGIC);
    if (sk->pool != NULL)
        mongoc_client_pool_destroy(sk->pool);
    if (sk->safe != NULL)
        mongoc_write_concern_destroy(sk->safe);
    sk->magic = 0;
    sl_free(sk);
}

static char *explain(const char *text)
{
    static const char prefix[] = "mclient/connection-string: ";
    size_t len = sizeof prefix + strlen(text);
    char *why = sl_alloc(len);
    snprintf(why, len, "%s%s", prefix, text);
    return why;
}

static sl_err mongo_open(void **self, const sl_sink_conf *cf, char **why)
{
    mongoc_init(); // once per process; the library counts
    mongoc_log_set_handler(on_driver_log, NULL);
    bson_error_t error;
    mongoc_uri_t *uri = mongoc_uri_new_with_error(cf->connection_string, &error);
    if (uri == NULL) {
        *why = explain(error.message);
        return SL_EINVAL;
    }
    mongo_sink *sk = sl_calloc(1, sizeof *sk);
    sk->magic = MONGO_SINK_MAGIC;
    sl_err err = make_concern(uri, set_timeouts(uri, cf->budget_ms), &sk->safe, why);
    if (err == SL_OK && (sk->pool = mongoc_client_pool_new_with_error(uri, &error)) == NULL) {
        *why = explain(error.message);
        err = SL_EINVAL;
    }
    mongoc_uri_destroy(uri);
    if (err != SL_OK) {
        mongo_close(sk);
        return err;
    }
    mongoc_client_pool_set_error_api(sk->pool, MONGOC_ERROR_API_VERSION_2);
    mongoc_client_pool_set_appname(sk->pool, APP_NAME);
    *self = sk;
    return SL_OK;
}

const sl_sink_ops sl_sink_mongo_ops = {
    .name = "mongodb",
    .open = mongo_open,
    .write = mongo_write,
    .probe = mongo_probe,
    .close = mongo_close,
};
