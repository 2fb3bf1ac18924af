/* SPDX-License-Identifier: Apache-2.0
 *
 * loader: the state of a starting node: sessions and subscriptions, read from the compacted topics
 * with a fresh group from the beginning until a marker record of our own comes by; then what this
 * node had left "connected" is repaired. Runs once, on the main thread, before anything serves.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/logger.h"
#include "route/sub_trie.h"
#include "session/manager.h"
#include "session/records.h"
#include "session/will.h"
#include "stats/broker_stats.h"

#define MARKER_BYTES 64
#define POLL_BATCHES 16
#define LOAD_WAIT_MS 1000
#define RECORD_MAX   (64u << 20)
#define SHARED_SHARD (SL_STATS_SHARDS - 1)

typedef struct loader {
    sl_core *core;
    sl_log_producer *producer;
    uint8_t marker[MARKER_BYTES];
    size_t marker_len;
    bool seen;
    uint64_t rows, damaged;
    sl_wall_ms now;
    sl_client *cl; /* whose subscriptions are being added */
    sl_err err;
    size_t pending;
} loader;

typedef void row_f(loader *ld, const sl_log_record *rec);

static void on_done(void *arg, const sl_log_done *dones, size_t count)
{
    loader *ld = arg;
    for (size_t i = 0; i < count; i++) {
        ld->pending--;
        if (dones[i].err != SL_OK)
            ld->err = dones[i].err;
    }
}

/* Appends and waits for room when there is none; durable. */
static void put_record(loader *ld, sl_log_topic *topic, const sl_log_record_in *rec)
{
    for (;;) {
        sl_err err = sl_log_append(ld->producer, topic, SL_LOG_BY_KEY, rec, 0);
        if (err == SL_OK) {
            ld->pending++;
            return;
        }
        if (err != SL_EAGAIN) {
            ld->err = err;
            return;
        }
        ld->err = sl_log_sync(ld->core->log);
        (void)sl_log_producer_drain(ld->producer);
        if (ld->err != SL_OK)
            return;
    }
}

static void put_row(loader *ld, sl_log_topic *topic, sl_slice key, sl_slice value)
{
    sl_log_record_in rec = {
        .key = key, .value = {value}, .flags = SL_LOG_DURABLE, .time_ms = ld->now};
    put_record(ld, topic, &rec);
}

static void flush_rows(loader *ld)
{
    while (ld->pending > 0 && ld->err == SL_OK) {
        ld->err = sl_log_sync(ld->core->log);
        (void)sl_log_producer_drain(ld->producer);
    }
}

static bool is_marker_key(sl_slice key)
{
    return key.len > 0 && key.ptr[0] == 0; // no client id has a NUL
}

/* Client ids with NUL cannot come from a client: a key like that is a marker of some start. */
static void read_topic(loader *ld, sl_log_topic *topic, row_f *row)
{
    sl_log_consumer *co = NULL;
    sl_log_consumer_options opts = {.reset = SL_LOG_EARLIEST};
    ld->seen = false;
    uint8_t mark = 1;
    // First the place in the log, then the marker: rows come in the order of their keys, and only
    // what is written behind that place comes after all of them.
    ld->err = ld->err == SL_OK ? sl_log_consumer_open(ld->core->log, &opts, &co) : ld->err;
    if (ld->err == SL_OK)
        ld->err = sl_log_consumer_assign(co, topic, 0, SL_LOG_COMMITTED);
    if (ld->err == SL_OK) {
        put_row(ld, topic, sl_slice_of(ld->marker, ld->marker_len), sl_slice_of(&mark, 1));
        flush_rows(ld);
    }
    while (ld->err == SL_OK && !ld->seen) {
        sl_log_batch batches[POLL_BATCHES];
        size_t n = 0;
        ld->err = sl_log_consumer_poll(co, batches, POLL_BATCHES, LOAD_WAIT_MS, &n);
        for (size_t i = 0; ld->err == SL_OK && i < n; i++) {
            size_t pos = 0;
            sl_log_record rec;
            while (sl_log_batch_next(&batches[i], &pos, &rec)) {
                if (sl_slice_equal(rec.key, sl_slice_of(ld->marker, ld->marker_len)))
                    ld->seen = true;
                else if (!is_marker_key(rec.key))
                    row(ld, &rec);
            }
        }
        for (size_t i = 0; i < n; i++)
            sl_log_batch_release(&batches[i]);
    }
    if (co != NULL)
        sl_log_consumer_close(&co);
    put_row(ld, topic, sl_slice_of(ld->marker, ld->marker_len), sl_slice_of(NULL, 0));
    flush_rows(ld);
}

static void damaged(loader *ld, const sl_log_record *rec, const char *what, sl_err err)
{
    ld->damaged++;
    sl_stats_add(ld->core->stats, SHARED_SHARD, SL_BS_DAMAGED_RECORDS, 1);
    sl_warn(SL_C_SESSION, "RECORD-DAMAGED", SL_S("topic", what), SL_B("client", rec->key),
            SL_E(err));
}

/* ---- sessions
 * ---------------------------------------------------------------------------------------- */

static void drop_session(loader *ld, sl_slice key)
{
    sl_client *cl = sl_registry_find(ld->core->registry, key);
    if (cl == NULL)
        return;
    if (cl->session.exists) {
        sl_will_free(&cl->session.will);
        cl->session = (sl_session){0};
        sl_client *own = cl;
        sl_client_unref(&own);
    }
    sl_client_unref(&cl);
}

static void session_row(loader *ld, const sl_log_record *rec)
{
    sl_session ss;
    if (rec->value.len == 0) {
        drop_session(ld, rec->key);
        return;
    }
    sl_err err = sl_record_get_session(rec->value, &ss);
    if (err != SL_OK) {
        damaged(ld, rec, "tbmq.client.session", err);
        return;
    }
    sl_client *cl = NULL;
    if (sl_registry_get(ld->core->registry, rec->key, &cl) != SL_OK) {
        ld->err = SL_ELIMIT;
        sl_will_free(&ss.will);
        return;
    }
    sl_will_free(&cl->session.will);
    bool had = cl->session.exists;
    cl->session = ss;
    ld->rows++;
    if (had) // the session has its reference already
        sl_client_unref(&cl);
}

/* The will of a connection that a crash cut: as if it had been lost now. */
static void repair_will(loader *ld, sl_client *cl)
{
    sl_session *ss = &cl->session;
    sl_will *wl = ss->will;
    if (wl == NULL || !ss->connected)
        return; // one that waits is taken over by the manager
    sl_dur_ms wait = sl_will_wait(wl, ss->persistent, ss->has_expiry, ss->expiry_s);
    if (wait > 0) {
        wl->due_at = ld->now + wait;
        return;
    }
    const sl_log_header headers[] = {
        {SL_LOG_H_PUBLISHER, sl_client_id(cl)},
        {SL_LOG_H_NODE, sl_slice_str(ld->core->service_id)},
    };
    sl_log_record_in rec = {.key = sl_will_topic(wl),
                            .value = {sl_slice_of(wl->packet, wl->len)},
                            .headers = headers,
                            .header_count = 2,
                            .flags = SL_LOG_DURABLE,
                            .time_ms = ld->now,
                            .attr = sl_will_qos(wl)};
    put_record(ld, ld->core->t_all, &rec);
    sl_stats_add(ld->core->stats, SHARED_SHARD, SL_BS_WILLS_PUBLISHED, 1);
    sl_will_free(&ss->will);
}

/* What a crash left "connected" is not; sessions that end with their connection are gone. */
static void repair(void *arg, sl_client *cl)
{
    loader *ld = arg;
    sl_session *ss = &cl->session;
    if (!ss->exists)
        return;
    repair_will(ld, cl);
    if (!ss->persistent) {
        put_row(ld, ld->core->t_session, sl_client_id(cl), sl_slice_of(NULL, 0));
        drop_session(ld, sl_client_id(cl));
        return;
    }
    cl->persistent = true;
    cl->generation = ss->generation;
    sl_client_set_route(cl, (sl_route){.persistent = true});
    sl_stats_add(ld->core->stats, SHARED_SHARD, SL_BS_SESSIONS, 1);
    sl_dur_ms idle = ld->now > ss->disconnected_at ? ld->now - ss->disconnected_at : 0;
    ss->idle_since = sl_clock_mono(ld->core->clock) - (ss->connected ? 0 : idle);
    if (!ss->connected)
        return;
    ss->connected = false;
    ss->was_connected_at_start = true;
    ss->disconnected_at = ld->now;
    sl_buf value;
    sl_buf_init(&value, RECORD_MAX);
    sl_err err = sl_record_put_session(&value, ss, ld->core->service_id, "");
    SL_ASSERT(err == SL_OK);
    put_row(ld, ld->core->t_session, sl_client_id(cl), sl_buf_peek(&value));
    sl_buf_fini(&value);
}

/* ---- subscriptions
 * ------------------------------------------------------------------------------------ */

static void drop_subs(loader *ld, sl_client *cl)
{
    while (cl->sub_count > 0) {
        sl_client_sub *cs = &cl->subs[--cl->sub_count];
        (void)sl_sub_trie_remove(ld->core->trie, sl_slice_of(cs->filter, cs->filter_len), cl->index,
                                 NULL);
        sl_stamps_unref(ld->core->stamps, cs->stamp);
        sl_free(cs->filter);
    }
}

static void add_sub(void *arg, sl_slice filter, const sl_client_sub *cs)
{
    loader *ld = arg;
    sl_sub sub = {.client = ld->cl->index,
                  .sub_id = cs->sub_id,
                  .stamp = cs->stamp,
                  .qos = cs->qos,
                  .flags = cs->flags};
    bool existed = false;
    sl_err err = sl_sub_trie_put(ld->core->trie, filter, &sub, &existed, NULL);
    if (err != SL_OK || existed) {
        sl_stamps_unref(ld->core->stamps, cs->stamp);
        if (err != SL_OK)
            sl_error(SL_C_SESSION, "SUBSCRIPTION-NOT-RESTORED",
                     SL_B("client", sl_client_id(ld->cl)), SL_B("filter", filter), SL_E(err));
        return;
    }
    sl_client_add_sub(ld->cl, filter, cs);
}

static void subs_row(loader *ld, const sl_log_record *rec)
{
    sl_client *cl = sl_registry_find(ld->core->registry, rec->key);
    if (cl == NULL || !cl->session.exists) {
        if (rec->value.len > 0) // its session is gone
            put_row(ld, ld->core->t_subs, rec->key, sl_slice_of(NULL, 0));
        sl_client_unref(&cl);
        return;
    }
    drop_subs(ld, cl);
    ld->cl = cl;
    ld->rows++;
    if (rec->value.len > 0) {
        sl_err err = sl_record_get_subs(rec->value, ld->core->stamps, add_sub, ld);
        if (err != SL_OK)
            damaged(ld, rec, "tbmq.client.subscriptions", err);
    }
    sl_client_unref(&cl);
}

sl_err sl_manager_load(sl_core *core)
{
    loader ld = {.core = core, .now = sl_clock_wall(core->clock)};
    sl_log_producer_options po = {.done = on_done, .arg = &ld};
    ld.marker_len = (size_t)snprintf((char *)ld.marker + 1, MARKER_BYTES - 1, "marker-%llx",
                                     (unsigned long long)sl_clock_wall_ns(core->clock)) +
                    1;
    sl_err err = sl_log_producer_open(core->log, &po, &ld.producer);
    if (err != SL_OK)
        return err;
    uint64_t began = sl_clock_mono_ns(core->clock);
    read_topic(&ld, core->t_session, session_row);
    if (ld.err == SL_OK)
        sl_registry_each(core->registry, repair, &ld);
    uint64_t sessions = ld.rows;
    ld.rows = 0;
    if (ld.err == SL_OK)
        read_topic(&ld, core->t_subs, subs_row);
    flush_rows(&ld);
    sl_log_producer_close(&ld.producer);
    sl_info(SL_C_SESSION, "STATE-RESTORED", SL_U("session_rows", sessions),
            SL_U("subscription_rows", ld.rows), SL_U("damaged", ld.damaged),
            SL_U("clients", sl_registry_count(core->registry)),
            SL_U("ms", (sl_clock_mono_ns(core->clock) - began) / 1000000), SL_E(ld.err));
    return ld.err;
}
