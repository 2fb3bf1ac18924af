/* SPDX-License-Identifier: Apache-2.0
 *
 * writer: life of the writer: configuration, listeners, threads, drain at stop, figures.
 */
#include "writer.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/json.h"
#include "mqtt/topic.h"
#include "writer_int.h"

#define MAX_CAPACITY 1000000
#define MAX_BATCH    100000
#define MAX_SPAN_MS  86400000ll
#define MAX_RETRIES  1000
#define MS_PER_S     1000
#define NS_PER_MS    1000000

/* ---- configuration ---- */

sl_err sl_writer_strategy_parse(const char *word, sl_writer_strategy *out)
{
    static const char *const words[] = {[SL_WRITER_BLOCKING_QUEUE] = "blocking-queue",
                                        [SL_WRITER_RING_BUFFER] = "ring-buffer",
                                        [SL_WRITER_DROP_INCOMING] = "drop-incoming"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(word, words[i]) != 0)
            continue;
        *out = (sl_writer_strategy)i;
        return SL_OK;
    }
    return SL_EINVAL;
}

sl_err sl_id_strategy_parse(const char *word, sl_id_strategy *out)
{
    if (strcmp(word, "auto") == 0)
        *out = SL_ID_AUTO;
    else if (strcmp(word, "payload-field") == 0)
        *out = SL_ID_PAYLOAD_FIELD;
    else
        return SL_EINVAL;
    return SL_OK;
}

static char *message(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static char *message(const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return sl_strdup(text);
}

static sl_err check_range(const char *key, int64_t value, int64_t min, int64_t max, char **why)
{
    if (value >= min && value <= max)
        return SL_OK;
    *why = message("mqtt-mongo-writer/%s: %lld is not in %lld..%lld", key, (long long)value,
                   (long long)min, (long long)max);
    return SL_EINVAL;
}

static sl_err check_target(const sl_writer_target *target, size_t at, char **why)
{
    const char *reason = "missing";
    sl_slice filter = sl_slice_str(target->topic != NULL ? target->topic : "");
    sl_mqtt_share share = {0};
    if (sl_mqtt_share_parse(filter, 0, &share, &reason) != SL_OK || share.is_shared) {
        if (share.is_shared)
            reason = "shared subscriptions are not for sinks";
        *why = message("mqtt-mongo-writer/mongo-sink[%zu]/topic: %s", at + 1, reason);
        return SL_EINVAL;
    }
    sl_sink_target names = {target->database, target->collection};
    if (sl_sink_target_check(&names, &reason) != SL_OK) {
        *why = message("mqtt-mongo-writer/mongo-sink[%zu]: %s", at + 1, reason);
        return SL_EINVAL;
    }
    if (target->qos > 2) {
        *why = message("mqtt-mongo-writer/mongo-sink[%zu]/qos: must be 0, 1 or 2", at + 1);
        return SL_EINVAL;
    }
    return SL_OK;
}

static bool is_blank(const char *text)
{
    return text == NULL || text[strspn(text, " \t")] == '\0';
}

sl_err sl_writer_conf_check(const sl_writer_conf *cf, char **why)
{
    const struct {
        const char *key;
        int64_t value, min, max;
    } rows[] = {
        {"buffer/capacity", cf->capacity, 1, MAX_CAPACITY},
        {"buffer/max-bytes", cf->max_bytes, 1, INT64_MAX},
        {"buffer/max-wait-ms", cf->max_wait_ms, 0, MAX_SPAN_MS},
        {"drain/batch-size", cf->batch_size, 1, MAX_BATCH},
        {"drain/max-retries", cf->max_retries, 0, MAX_RETRIES},
        {"drain/retry-delay-ms", cf->retry_delay_ms, 1, MAX_SPAN_MS},
        {"drain/max-unacked-ms", cf->max_unacked_ms, 0, MAX_SPAN_MS},
        {"drain/shutdown-timeout-ms", cf->shutdown_timeout_ms, 0, MAX_SPAN_MS},
    };
    sl_err err = SL_OK;
    for (size_t i = 0; err == SL_OK && i < sizeof rows / sizeof rows[0]; i++)
        err = check_range(rows[i].key, rows[i].value, rows[i].min, rows[i].max, why);
    if (err == SL_OK && cf->id_strategy == SL_ID_PAYLOAD_FIELD && is_blank(cf->id_field)) {
        *why = message("mqtt-mongo-writer/id-field: must not be blank with payload-field");
        err = SL_EINVAL;
    }
    for (size_t i = 0; err == SL_OK && i < cf->target_count; i++)
        err = check_target(&cf->targets[i], i, why);
    return err;
}

/* ---- life ---- */

static void init_wake(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

static void init_lane(sl_writer *w, size_t index)
{
    sl_writer_lane *ln = &w->lanes[index];
    ln->w = w;
    ln->index = index;
    ln->target = w->cf.targets[index];
    ln->sink_target = (sl_sink_target){ln->target.database, ln->target.collection};
    ln->state = SL_SINK_STORED;
    ln->batch_limit = w->cf.batch_size;
    sl_list_init(&ln->queue);
    sl_list_init(&ln->parked);
    pthread_mutex_init(&ln->lock, NULL);
    init_wake(&ln->wake);
}

sl_writer *sl_writer_new(const sl_writer_conf *cf, sl_clock *ck, sl_sink *sink, sl_dead_letter *dl)
{
    sl_writer *w = sl_calloc(1, sizeof *w);
    w->magic = SL_WRITER_MAGIC;
    w->cf = *cf;
    w->ck = ck;
    w->sink = sink;
    w->dl = dl;
    w->stop_at = INT64_MAX;
    sl_oid_source_init(&w->oids);
    pthread_mutex_init(&w->keeper_lock, NULL);
    init_wake(&w->keeper_wake);
    w->lanes = sl_calloc(cf->target_count + 1, sizeof *w->lanes);
    for (size_t i = 0; i < cf->target_count; i++)
        init_lane(w, i);
    return w;
}

static void on_durable(void *arg, sl_message *msg, sl_taken *token)
{
    sl_writer_lane *ln = arg;
    sl_writer_on_message(ln->w, ln->index, msg, token);
}

sl_err sl_writer_register(sl_writer *w, sl_router *rt)
{
    SL_CHECK(w, SL_WRITER_MAGIC);
    sl_err err = SL_OK;
    for (size_t i = 0; err == SL_OK && i < w->cf.target_count; i++) {
        const sl_writer_target *target = &w->cf.targets[i];
        uint64_t id; // the listener lives as long as the router
        err = sl_router_subscribe_durable(rt, sl_slice_str(target->topic), target->qos, on_durable,
                                          &w->lanes[i], &id);
        if (err == SL_OK && target->qos == 0)
            sl_warn(SL_C_WRITER, "SINK-QOS-0", SL_S("sink", target->topic),
                    SL_S("meaning", "messages may be lost on the way, nothing is guaranteed"));
    }
    return err;
}

void sl_writer_poke(sl_writer_lane *ln)
{
    ln->poked = true;
    pthread_cond_signal(&ln->wake);
}

void sl_writer_poke_keeper(sl_writer *w)
{
    pthread_mutex_lock(&w->keeper_lock);
    w->keeper_poked = true;
    pthread_cond_signal(&w->keeper_wake);
    pthread_mutex_unlock(&w->keeper_lock);
}

/* Waits on cond until the writer's clock shows due, at most. */
static void wait_until(const sl_writer *w, pthread_cond_t *cond, pthread_mutex_t *lock,
                       sl_mono_ms due)
{
    if (due == INT64_MAX) {
        pthread_cond_wait(cond, lock);
        return;
    }
    sl_dur_ms span = due - sl_clock_mono(w->ck);
    if (span <= 0)
        return;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t nanos = until.tv_nsec + span % MS_PER_S * NS_PER_MS;
    until.tv_sec += span / MS_PER_S + nanos / (MS_PER_S * NS_PER_MS);
    until.tv_nsec = nanos % (MS_PER_S * NS_PER_MS);
    pthread_cond_timedwait(cond, lock, &until);
}

/* At stop the lane's thread leaves when nothing is left that it could write, or time is up. */
static bool may_leave(const sl_writer_lane *ln)
{
    if (!ln->closed)
        return false;
    return ln->queued == ln->doomed || sl_clock_mono(ln->w->ck) >= ln->w->stop_at;
}

static void run_lane(void *arg)
{
    sl_writer_lane *ln = arg;
    bool leave = false;
    while (!leave) {
        sl_mono_ms due;
        bool more = sl_writer_turn_lane(ln->w, ln->index, &due);
        pthread_mutex_lock(&ln->lock);
        leave = may_leave(ln);
        if (!leave && !more && !ln->poked) {
            sl_mono_ms stop_at = ln->w->stop_at;
            wait_until(ln->w, &ln->wake, &ln->lock, due < stop_at ? due : stop_at);
        }
        ln->finished = leave;
        if (leave)
            pthread_cond_broadcast(&ln->wake);
        pthread_mutex_unlock(&ln->lock);
    }
}

static void run_keeper(void *arg)
{
    sl_writer *w = arg;
    bool stop = false;
    while (!stop) {
        sl_mono_ms due;
        sl_writer_turn_keeper(w, &due);
        pthread_mutex_lock(&w->keeper_lock);
        if (!w->keeper_stop && !w->keeper_poked)
            wait_until(w, &w->keeper_wake, &w->keeper_lock, due);
        w->keeper_poked = false;
        stop = w->keeper_stop;
        pthread_mutex_unlock(&w->keeper_lock);
    }
}

sl_err sl_writer_start(sl_writer *w)
{
    SL_CHECK(w, SL_WRITER_MAGIC);
    if (w->cf.manual)
        return SL_OK;
    sl_err err = sl_thread_start("writer-keeper", run_keeper, w, &w->keeper);
    for (size_t i = 0; err == SL_OK && i < w->cf.target_count; i++)
        err = sl_thread_start("writer-lane", run_lane, &w->lanes[i], &w->lanes[i].thread);
    return err;
}

/* ---- stop ---- */

static void close_lanes(sl_writer *w)
{
    w->stop_at = sl_clock_mono(w->ck) + w->cf.shutdown_timeout_ms;
    for (size_t i = 0; i < w->cf.target_count; i++) {
        sl_writer_lane *ln = &w->lanes[i];
        pthread_mutex_lock(&ln->lock);
        ln->closed = true;
        sl_writer_poke(ln);
        pthread_mutex_unlock(&ln->lock);
    }
}

/* Waits until the lane's thread has left or time is up: a thread stuck in the store is not waited
 * for here, its messages go to the dead letter from this one. */
static void await_lane(sl_writer_lane *ln)
{
    sl_writer *w = ln->w;
    if (w->cf.manual) {
        sl_mono_ms due;
        while (sl_clock_mono(w->ck) < w->stop_at && sl_writer_turn_lane(w, ln->index, &due))
            ;
        return;
    }
    pthread_mutex_lock(&ln->lock);
    while (ln->thread != NULL && !ln->finished && sl_clock_mono(w->ck) < w->stop_at)
        wait_until(w, &ln->wake, &ln->lock, w->stop_at);
    pthread_mutex_unlock(&ln->lock);
}

static void bury_rest(sl_writer *w)
{
    for (size_t i = 0; i < w->cf.target_count; i++)
        while (sl_writer_bury(&w->lanes[i], SL_BURY_REST))
            ;
}

void sl_writer_stop(sl_writer *w)
{
    SL_CHECK(w, SL_WRITER_MAGIC);
    close_lanes(w);
    for (size_t i = 0; i < w->cf.target_count; i++)
        await_lane(&w->lanes[i]);
    pthread_mutex_lock(&w->keeper_lock);
    w->keeper_stop = true;
    pthread_cond_signal(&w->keeper_wake);
    pthread_mutex_unlock(&w->keeper_lock);
    sl_thread_join(&w->keeper);
    bury_rest(w);
    for (size_t i = 0; i < w->cf.target_count; i++)
        sl_thread_join(&w->lanes[i].thread);
    bury_rest(w); // what was between two steps of a lane the first time
    size_t held = 0;
    for (size_t i = 0; i < w->cf.target_count; i++)
        held += w->lanes[i].held;
    if (held > 0)
        sl_warn(SL_C_WRITER, "WRITER-STOPPED-HOLDING", SL_U("messages", held),
                SL_S("action", "unacknowledged; the broker sends QoS 1 and 2 again"));
    else
        sl_info(SL_C_WRITER, "WRITER-STOPPED");
}

static void free_list(sl_writer_lane *ln, sl_list *list)
{
    sl_node *node;
    while ((node = sl_list_pop_front(list)) != NULL) {
        sl_writer_entry *en = SL_CONTAINER(node, sl_writer_entry, node);
        ln->held--;
        sl_writer_entry_free(&en);
    }
}

void sl_writer_free(sl_writer **w)
{
    sl_writer *own = *w;
    *w = NULL;
    if (own == NULL)
        return;
    SL_CHECK(own, SL_WRITER_MAGIC);
    for (size_t i = 0; i < own->cf.target_count; i++) {
        sl_writer_lane *ln = &own->lanes[i];
        SL_ASSERT(ln->thread == NULL);
        free_list(ln, &ln->queue);
        free_list(ln, &ln->parked);
        pthread_mutex_destroy(&ln->lock);
        pthread_cond_destroy(&ln->wake);
    }
    pthread_mutex_destroy(&own->keeper_lock);
    pthread_cond_destroy(&own->keeper_wake);
    sl_free(own->lanes);
    own->magic = 0;
    sl_free(own);
}

/* ---- figures ---- */

int64_t sl_writer_stat_get(const sl_writer *w, sl_writer_stat stat)
{
    SL_CHECK(w, SL_WRITER_MAGIC);
    sl_dead_letter_stats dead;
    sl_dead_letter_read_stats(w->dl, &dead);
    int64_t size = 0, bytes = 0, config = 0;
    for (size_t i = 0; i < w->cf.target_count; i++) {
        size += (int64_t)w->lanes[i].held;
        bytes += w->lanes[i].bytes;
        config += w->lanes[i].state == SL_SINK_CONFIG;
    }
    switch (stat) {
    case SL_WRITER_STAT_BUFFER_SIZE:
        return size;
    case SL_WRITER_STAT_BUFFER_CAPACITY:
        return (int64_t)w->cf.capacity * (int64_t)w->cf.target_count;
    case SL_WRITER_STAT_BUFFER_BYTES:
        return bytes;
    case SL_WRITER_STAT_WRITER_HELD:
        return config > 0 || dead.failing;
    case SL_WRITER_STAT_DEAD_LETTER_WRITTEN:
        return (int64_t)dead.written;
    case SL_WRITER_STAT_DEAD_LETTER_WRITE_ERRORS:
        return (int64_t)dead.write_errors;
    case SL_WRITER_STAT_DEAD_LETTER_BYTES:
        return (int64_t)dead.bytes;
    default:
        return w->counts[stat];
    }
}

static int64_t read_figure(void *arg)
{
    const sl_writer_figure *figure = arg;
    return sl_writer_stat_get(figure->w, figure->stat);
}

void sl_writer_bind_stats(sl_writer *w, sl_stats *st, unsigned first)
{
    SL_CHECK(w, SL_WRITER_MAGIC);
    w->stats = st;
    w->stats_first = first;
    for (unsigned i = 0; i < SL_WRITER_STAT_COUNT; i++) {
        if (i == SL_WRITER_STAT_WRITER_BATCH_SECONDS)
            continue;
        w->figures[i] = (sl_writer_figure){w, (sl_writer_stat)i};
        sl_stats_set_source(st, first + i, read_figure, &w->figures[i]);
    }
}

void sl_writer_read_health(sl_writer *w, sl_writer_health *out)
{
    SL_CHECK(w, SL_WRITER_MAGIC);
    *out = (sl_writer_health){0};
    sl_dead_letter_stats dead;
    sl_dead_letter_read_stats(w->dl, &dead);
    out->dead_letter_failing = dead.failing;
    for (size_t i = 0; i < w->cf.target_count; i++) {
        sl_writer_lane *ln = &w->lanes[i];
        pthread_mutex_lock(&ln->lock);
        out->away |= ln->state == SL_SINK_AWAY;
        out->config |= ln->state == SL_SINK_CONFIG;
        if (ln->state != SL_SINK_STORED && out->reason[0] == '\0')
            snprintf(out->reason, sizeof out->reason, "%s", ln->reason);
        pthread_mutex_unlock(&ln->lock);
    }
    if (out->dead_letter_failing && out->reason[0] == '\0')
        snprintf(out->reason, sizeof out->reason, "dead-letter file cannot be written");
    out->ok = !out->away && !out->config && !out->dead_letter_failing;
}

/* The steps below stop at the first error, so each can be written as one line. */
#define TRY(expr)                                                                                  \
    do {                                                                                           \
        if (err == SL_OK)                                                                          \
            err = (expr);                                                                          \
    } while (0)

static sl_err write_member(sl_writer *w, sl_buf *out, const char *name, sl_writer_stat stat)
{
    return sl_buf_printf(out, "\"%s\":%lld,", name, (long long)sl_writer_stat_get(w, stat));
}

static sl_err write_lane_json(sl_writer_lane *ln, sl_buf *out)
{
    static const char *const states[] = {
        [SL_SINK_STORED] = "ok", [SL_SINK_AWAY] = "away", [SL_SINK_CONFIG] = "misconfigured"};
    pthread_mutex_lock(&ln->lock);
    sl_sink_outcome state = ln->state;
    size_t queued = ln->queued, parked = ln->parked_count;
    pthread_mutex_unlock(&ln->lock);
    sl_err err = sl_buf_append_str(out, ln->index == 0 ? "{\"topic\":" : ",{\"topic\":");
    TRY(sl_json_write_string(out, sl_slice_str(ln->target.topic)));
    TRY(sl_buf_append_str(out, ",\"database\":"));
    TRY(sl_json_write_string(out, sl_slice_str(ln->target.database)));
    TRY(sl_buf_append_str(out, ",\"collection\":"));
    TRY(sl_json_write_string(out, sl_slice_str(ln->target.collection)));
    TRY(sl_buf_printf(out, ",\"state\":\"%s\",\"buffered\":%zu,\"waiting\":%zu}", states[state],
                      queued, parked));
    return err;
}

sl_err sl_writer_write_json(sl_writer *w, sl_buf *out)
{
    SL_CHECK(w, SL_WRITER_MAGIC);
    sl_err err = sl_buf_append_str(out, "\"buffer\":{");
    TRY(write_member(w, out, "size", SL_WRITER_STAT_BUFFER_SIZE));
    TRY(write_member(w, out, "bytes", SL_WRITER_STAT_BUFFER_BYTES));
    TRY(write_member(w, out, "accepted", SL_WRITER_STAT_BUFFER_ACCEPTED));
    TRY(write_member(w, out, "dropped", SL_WRITER_STAT_BUFFER_DROPPED));
    TRY(write_member(w, out, "waitTimeouts", SL_WRITER_STAT_BUFFER_WAIT_TIMEOUTS));
    TRY(write_member(w, out, "duplicates", SL_WRITER_STAT_BUFFER_DUPLICATES));
    TRY(sl_buf_printf(out, "\"capacity\":%lld},\"writer\":{",
                      (long long)sl_writer_stat_get(w, SL_WRITER_STAT_BUFFER_CAPACITY)));
    TRY(write_member(w, out, "written", SL_WRITER_STAT_WRITER_WRITTEN));
    TRY(write_member(w, out, "retries", SL_WRITER_STAT_WRITER_RETRIES));
    TRY(write_member(w, out, "idMissing", SL_WRITER_STAT_WRITER_ID_MISSING));
    TRY(write_member(w, out, "idConflicts", SL_WRITER_STAT_WRITER_CONFLICTS));
    TRY(write_member(w, out, "deadLetters", SL_WRITER_STAT_DEAD_LETTER_WRITTEN));
    TRY(write_member(w, out, "deadLetterErrors", SL_WRITER_STAT_DEAD_LETTER_WRITE_ERRORS));
    TRY(sl_buf_append_str(out, "\"sinks\":["));
    for (size_t i = 0; i < w->cf.target_count; i++)
        TRY(write_lane_json(&w->lanes[i], out));
    TRY(sl_buf_append_str(out, "]}"));
    return err;
}
