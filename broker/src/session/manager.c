/* SPDX-License-Identifier: Apache-2.0
 *
 * manager: see manager.h. State of a session changes in memory at once, in the order of the request
 * topic; rows go to the log in the same order through one producer, so the log never shows another
 * order. An answer leaves when everything it promises is stored.
 */
#include "session/manager.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/logger.h"
#include "dispatch/device.h"
#include "session/client_actor.h"
#include "session/records.h"
#include "session/will.h"
#include "stats/broker_stats.h"

#define REQUEST_MAX_AGE_MS 100000 /* older requests have nobody who waits */
#define WILL_RETRY_MS      1000   /* while the log has no room */
#define RECORD_MAX_BYTES   (64u << 20)
#define POLL_BATCHES       16

/* A record that waits for room in the append queue. */
typedef struct waiting {
    struct waiting *next;
    enum { APPEND, QOS2_CLEAR, WILL } what;
    sl_log_topic *topic;
    uint32_t flags;
    uint64_t token;
    size_t key_len, value_len;
    size_t publisher_len; /* of a will */
    uint8_t bytes[];      /* key, value, publisher */
} waiting;

/* A CONNECT that is being answered; freed when nothing is missing any more. */
typedef struct connecting {
    sl_manager *mg;
    sl_client *cl; /* referenced */
    unsigned loop;
    uint32_t missing; /* stores under way */
    sl_err err;       /* the first failure */
    sl_session_answer answer;
} connecting;

struct sl_manager {
    sl_core *core;
    sl_loop *lp;
    unsigned shard;
    sl_log_producer *producer;
    sl_log_consumer *requests;
    sl_log_consumer *responses;
    waiting *wait_first, *wait_last;
    uint64_t generation; /* given out last */
    uint32_t sessions;   /* that exist */
    sl_wills wills;
    sl_timer will_timer;
    sl_timer scan;
    sl_mail poll_mail, drain_mail;
    _Atomic bool poll_posted;
    bool started;
};

static void count(sl_manager *mg, unsigned stat, int64_t delta)
{
    sl_stats_add(mg->core->stats, mg->shard, stat, delta);
}

/* ---- what I/O loops append
 * ------------------------------------------------------------------------ */

static uint64_t op_token(sl_session_op *op)
{
    return SL_TOKEN(SL_TOKEN_OP, (uintptr_t)op);
}

static void put_u64(uint8_t *at, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        at[i] = (uint8_t)(value >> (56 - 8 * i));
}

static uint64_t get_u64(const uint8_t *at)
{
    uint64_t value = 0;
    for (int i = 0; i < 8; i++)
        value = value << 8 | at[i];
    return value;
}

sl_err sl_manager_request(sl_io *io, const sl_session_request *rq, sl_session_op *op)
{
    sl_core *core = io->core;
    sl_buf value;
    sl_buf_init(&value, RECORD_MAX_BYTES);
    sl_err err = sl_record_put_request(&value, rq, core->service_id);
    if (err == SL_OK) {
        sl_wall_ms now = sl_clock_wall(core->clock);
        uint8_t id[16], time[8];
        put_u64(id, (uint64_t)core->run_id << 32 | rq->loop);
        put_u64(id + 8, rq->session_id);
        put_u64(time, (uint64_t)now);
        const sl_log_header headers[] = {
            {SL_LOG_H_REQUEST_ID, sl_slice_of(id, sizeof(id))},
            {SL_LOG_H_REQUEST_TIME, sl_slice_of(time, sizeof(time))},
            {SL_LOG_H_RESPONSE_TOPIC, sl_slice_str(sl_log_topic_name(core->t_response))},
            {SL_LOG_H_NODE, sl_slice_str(core->service_id)}};
        sl_log_record_in rec = {.key = rq->client_id,
                                .value = {sl_buf_peek(&value)},
                                .headers = headers,
                                .header_count = 4,
                                .flags = SL_LOG_VOLATILE | (op == NULL ? SL_LOG_NO_ACK : 0),
                                .time_ms = now};
        err = sl_log_append(io->producer, core->t_request, SL_LOG_BY_KEY, &rec, op_token(op));
    }
    sl_buf_fini(&value);
    return err;
}

sl_err sl_manager_store_subs(sl_io *io, sl_client *cl, sl_session_op *op)
{
    sl_core *core = io->core;
    sl_buf value;
    sl_buf_init(&value, RECORD_MAX_BYTES);
    sl_err err = SL_OK;
    if (cl->sub_count > 0) // an empty value removes the key
        err = sl_record_put_subs(&value, cl, core->stamps);
    if (err == SL_OK) {
        sl_log_record_in rec = {.key = sl_client_id(cl),
                                .value = {sl_buf_peek(&value)},
                                .flags = cl->persistent ? SL_LOG_DURABLE : SL_LOG_VOLATILE,
                                .time_ms = sl_clock_wall(core->clock)};
        err = sl_log_append(io->producer, core->t_subs, SL_LOG_BY_KEY, &rec, op_token(op));
    }
    sl_buf_fini(&value);
    return err;
}

/* ---- the manager's own appends: never lost, in order
 * ------------------------------------------------ */

static sl_err try_append(sl_manager *mg, const waiting *wt)
{
    if (wt->what == QOS2_CLEAR)
        return sl_log_qos2_clear(mg->producer, sl_slice_of(wt->bytes, wt->key_len), wt->token);
    const uint8_t *publisher = wt->bytes + wt->key_len + wt->value_len;
    const sl_log_header headers[] = {
        {SL_LOG_H_PUBLISHER, sl_slice_of(publisher, wt->publisher_len)},
        {SL_LOG_H_NODE, sl_slice_str(mg->core->service_id)}};
    sl_log_record_in rec = {.key = sl_slice_of(wt->bytes, wt->key_len),
                            .value = {sl_slice_of(wt->bytes + wt->key_len, wt->value_len)},
                            .flags = wt->flags,
                            .time_ms = sl_clock_wall(mg->core->clock)};
    if (wt->what == WILL) {
        rec.headers = headers;
        rec.header_count = 2;
        rec.attr = sl_stored_qos(rec.value[0]);
    }
    return sl_log_append(mg->producer, wt->topic, SL_LOG_BY_KEY, &rec, wt->token);
}

static void store_finished(connecting *cg, sl_err err);

static void flush_waiting(sl_manager *mg)
{
    while (mg->wait_first != NULL) {
        waiting *wt = mg->wait_first;
        sl_err err = try_append(mg, wt);
        if (err == SL_EAGAIN)
            return;
        mg->wait_first = wt->next;
        if (mg->wait_first == NULL)
            mg->wait_last = NULL;
        if (err != SL_OK && wt->what == WILL)
            count(mg, SL_BS_DROP_NOT_STORED, 1);
        if (err != SL_OK && (wt->flags & SL_LOG_NO_ACK) == 0)
            store_finished((connecting *)(uintptr_t)wt->token, err);
        else if (err != SL_OK)
            sl_error(SL_C_SESSION, "SESSION-NOT-STORED",
                     SL_B("client", sl_slice_of(wt->bytes, wt->key_len)), SL_E(err));
        sl_free(wt);
    }
}

static void append_waiting(sl_manager *mg, waiting *wt)
{
    if (mg->wait_last != NULL)
        mg->wait_last->next = wt;
    else
        mg->wait_first = wt;
    mg->wait_last = wt;
    flush_waiting(mg);
}

/* cg NULL: nobody waits for it. */
static void append(sl_manager *mg, int what, sl_log_topic *topic, sl_slice key, sl_slice value,
                   uint32_t flags, connecting *cg)
{
    waiting *wt = sl_calloc(1, sizeof(*wt) + key.len + value.len);
    wt->what = what;
    wt->topic = topic;
    wt->flags = flags | (cg == NULL ? SL_LOG_NO_ACK : 0);
    wt->token = (uintptr_t)cg;
    wt->key_len = key.len;
    wt->value_len = value.len;
    memcpy(wt->bytes, key.ptr, key.len);
    if (value.len > 0)
        memcpy(wt->bytes + key.len, value.ptr, value.len);
    if (cg != NULL)
        cg->missing++;
    append_waiting(mg, wt);
}

/* A will is published as its client would have: behind all that the client sent before. */
static void publish_will(void *arg, sl_client *cl, const sl_will *wl)
{
    sl_manager *mg = arg;
    sl_slice topic = sl_will_topic(wl), id = sl_client_id(cl);
    waiting *wt = sl_calloc(1, sizeof(*wt) + topic.len + wl->len + id.len);
    wt->what = WILL;
    wt->topic = mg->core->t_all;
    wt->flags = SL_LOG_NO_ACK | (sl_will_qos(wl) > 0 ? SL_LOG_DURABLE : SL_LOG_VOLATILE);
    wt->key_len = topic.len;
    wt->value_len = wl->len;
    wt->publisher_len = id.len;
    memcpy(wt->bytes, topic.ptr, topic.len);
    memcpy(wt->bytes + topic.len, wl->packet, wl->len);
    memcpy(wt->bytes + topic.len + wl->len, id.ptr, id.len);
    append_waiting(mg, wt);
}

static void store_session(sl_manager *mg, sl_client *cl, const char *peer, connecting *cg)
{
    const sl_session *ss = &cl->session;
    sl_buf value;
    sl_buf_init(&value, RECORD_MAX_BYTES);
    sl_err err = sl_record_put_session(&value, ss, mg->core->service_id, peer);
    SL_ASSERT(err == SL_OK);
    append(mg, APPEND, mg->core->t_session, sl_client_id(cl), sl_buf_peek(&value),
           ss->persistent || ss->will != NULL ? SL_LOG_DURABLE : SL_LOG_VOLATILE, cg);
    sl_buf_fini(&value);
}

/* ---- CONNECT
 * ----------------------------------------------------------------------------------------- */

static void send_answer(sl_manager *mg, connecting *cg)
{
    sl_buf value;
    sl_buf_init(&value, RECORD_MAX_BYTES);
    sl_err err = sl_record_put_answer(&value, &cg->answer);
    SL_ASSERT(err == SL_OK);
    uint8_t id[16];
    put_u64(id, cg->loop);
    put_u64(id + 8, cg->answer.session_id);
    const sl_log_header headers[] = {{SL_LOG_H_REQUEST_ID, sl_slice_of(id, sizeof(id))}};
    sl_log_record_in rec = {.key = sl_client_id(cg->cl),
                            .value = {sl_buf_peek(&value)},
                            .headers = headers,
                            .header_count = 1,
                            .flags = SL_LOG_VOLATILE | SL_LOG_NO_ACK,
                            .time_ms = sl_clock_wall(mg->core->clock)};
    err = sl_log_append(mg->producer, mg->core->t_response, 0, &rec, 0);
    sl_buf_fini(&value);
    // Without an answer the connection's own time-out refuses it (0x88); its DISCONNECT event,
    // which comes then, ends the session here.
    if (err != SL_OK)
        sl_warn(SL_C_SESSION, "ANSWER-NOT-SENT", SL_B("client", sl_client_id(cg->cl)), SL_E(err));
}

static void remove_session(sl_manager *mg, sl_client *cl, bool durable);

/* What was promised to nobody: the session is as if its connection had just ended. */
static void connect_failed(connecting *cg)
{
    sl_manager *mg = cg->mg;
    sl_session *ss = &cg->cl->session;
    cg->answer.success = false;
    cg->answer.rc = cg->err == SL_ENOSPC ? SL_RC_QUOTA_EXCEEDED : SL_RC_SERVER_UNAVAILABLE;
    count(mg, SL_BS_SESSIONS_UNAVAILABLE, 1);
    if (!ss->exists || ss->session_id != cg->answer.session_id)
        return; // a later request has the session
    sl_wills_discard(&mg->wills, cg->cl);
    ss->connected = false;
    ss->disconnected_at = sl_clock_wall(mg->core->clock);
    ss->idle_since = sl_clock_mono(mg->core->clock);
    if (!ss->persistent)
        remove_session(mg, cg->cl, true);
}

static void store_finished(connecting *cg, sl_err err)
{
    if (err != SL_OK && cg->err == SL_OK)
        cg->err = err;
    if (--cg->missing > 0)
        return;
    if (cg->err != SL_OK)
        connect_failed(cg);
    send_answer(cg->mg, cg);
    sl_free(cg->answer.open_qos2);
    sl_client_unref(&cg->cl);
    sl_free(cg);
}

static void inbox_cleared(void *arg)
{
    store_finished(arg, SL_OK);
}

static void add_open_id(void *arg, uint16_t packet_id)
{
    sl_session_answer *answer = arg;
    answer->open_qos2 =
        sl_realloc(answer->open_qos2, (answer->open_qos2_count + 1) * sizeof(*answer->open_qos2));
    uint32_t at = answer->open_qos2_count++;
    for (; at > 0 && answer->open_qos2[at - 1] > packet_id; at--)
        answer->open_qos2[at] = answer->open_qos2[at - 1];
    answer->open_qos2[at] = packet_id;
}

/* What a persistent session left is removed; what it was remains unknown to the new one. */
static void clear_state(sl_manager *mg, sl_client *cl, uint64_t generation, connecting *cg)
{
    append(mg, APPEND, mg->core->t_subs, sl_client_id(cl), sl_slice_of(NULL, 0), SL_LOG_DURABLE,
           cg);
    append(mg, QOS2_CLEAR, NULL, sl_client_id(cl), sl_slice_of(NULL, 0), SL_LOG_DURABLE, cg);
    if (cg != NULL)
        cg->missing++;
    sl_device_clear(mg->core, cl, generation, cg != NULL ? mg->lp : NULL,
                    cg != NULL ? inbox_cleared : NULL, cg);
}

static bool is_expired(const sl_manager *mg, const sl_session *ss)
{
    // Measured by the clock that does not jump; the row's wall time only bridges a restart.
    sl_dur_ms idle = sl_clock_mono(mg->core->clock) - ss->idle_since;
    sl_dur_ms default_ms = sl_conf_int(mg->core->conf, "mqtt.client-session-expiry.ttl") * 1000;
    if (!ss->exists || ss->connected || !ss->persistent)
        return false;
    if (ss->has_expiry)
        return ss->expiry_s != UINT32_MAX && idle >= (sl_dur_ms)ss->expiry_s * 1000;
    return default_ms != 0 && idle >= default_ms;
}

/* What is left of the last connection when a new one asks: its session is taken up, or it ends. */
static bool take_up(sl_manager *mg, sl_client *cl, const sl_session_request *rq)
{
    sl_session *ss = &cl->session;
    // A connection whose end was never told has lost its session if that was to end with it.
    bool ended = ss->connected && ss->has_expiry && ss->expiry_s == 0;
    bool present =
        ss->exists && ss->persistent && !rq->clean_start && !ended && !is_expired(mg, ss);
    bool in_time =
        ss->will != NULL && (ss->will->state == SL_WILL_DELAYED || ss->will->delay_s > 0);
    if (present && in_time)
        sl_wills_discard(&mg->wills, cl); // [MQTT-3.1.3-9]
    else
        sl_wills_session_ended(&mg->wills, cl);
    return present;
}

/* The answer to a CONNECT for which there is no session. */
static void refuse_connect(sl_manager *mg, sl_client *cl, const sl_session_request *rq)
{
    connecting *cg = sl_calloc(1, sizeof(*cg));
    cg->mg = mg;
    cg->cl = cl;
    sl_client_ref(cl);
    cg->loop = rq->loop;
    cg->missing = 1;
    cg->answer = (sl_session_answer){.rc = SL_RC_QUOTA_EXCEEDED, .session_id = rq->session_id};
    count(mg, SL_BS_SESSIONS_LIMITED, 1);
    store_finished(cg, SL_OK);
}

static void on_connect(sl_manager *mg, sl_client *cl, sl_session_request *rq)
{
    sl_session *ss = &cl->session;
    uint32_t max = mg->core->limits.sessions_max;
    if (!ss->exists && max > 0 && mg->sessions >= max) {
        refuse_connect(mg, cl, rq);
        return;
    }
    bool had_state = ss->exists && ss->persistent;
    bool present = take_up(mg, cl, rq);
    // A session that goes on is served from its inbox even when it is to end with this connection
    // (MQTT 5 without an expiry interval): what is stored for it is owed.
    bool persistent = rq->persistent || present;
    connecting *cg = sl_calloc(1, sizeof(*cg));
    cg->mg = mg;
    cg->cl = cl;
    sl_client_ref(cl);
    cg->loop = rq->loop;
    cg->missing = 1; // this function
    if (!ss->exists) {
        sl_client_ref(cl); // the session's own
        mg->sessions++;
        count(mg, SL_BS_SESSIONS, 1);
    }
    uint64_t generation = ss->generation;
    if (!present) {
        uint64_t us = (uint64_t)sl_clock_wall_ns(mg->core->clock) / 1000;
        mg->generation = us > mg->generation ? us : mg->generation + 1;
        generation = mg->generation;
    }
    cg->answer = (sl_session_answer){.success = true,
                                     .session_present = present,
                                     .persistent = persistent,
                                     .dup_old = present && ss->was_connected_at_start,
                                     .session_id = rq->session_id,
                                     .generation = generation};
    *ss = (sl_session){.exists = true,
                       .connected = true,
                       .persistent = persistent,
                       .has_expiry = rq->has_expiry,
                       .clean_start = rq->clean_start,
                       .mqtt_version = rq->mqtt_version,
                       .keep_alive_s = rq->keep_alive_s,
                       .expiry_s = rq->expiry_s,
                       .session_id = rq->session_id,
                       .generation = generation,
                       .connected_at = sl_clock_wall(mg->core->clock)};
    sl_wills_hold(&mg->wills, cl, &rq->will);
    if (had_state && !present)
        clear_state(mg, cl, generation, cg);
    // What is to outlive a crash is stored before the CONNACK.
    store_session(mg, cl, rq->peer, ss->persistent || ss->will != NULL ? cg : NULL);
    if (present) {
        sl_err err = sl_log_qos2_load(mg->core->log, sl_client_id(cl), add_open_id, &cg->answer);
        if (err != SL_OK && cg->err == SL_OK)
            cg->err = err;
    }
    store_finished(cg, SL_OK);
}

/* ---- DISCONNECT and CLEAR
 * ------------------------------------------------------------------------------ */

/* durable: its row was. */
static void remove_session(sl_manager *mg, sl_client *cl, bool durable)
{
    bool had_state = cl->session.persistent;
    sl_wills_session_ended(&mg->wills, cl);
    cl->session = (sl_session){0};
    append(mg, APPEND, mg->core->t_session, sl_client_id(cl), sl_slice_of(NULL, 0),
           had_state || durable ? SL_LOG_DURABLE : SL_LOG_VOLATILE, NULL);
    if (had_state)
        clear_state(mg, cl, 0, NULL);
    else
        append(mg, APPEND, mg->core->t_subs, sl_client_id(cl), sl_slice_of(NULL, 0),
               SL_LOG_VOLATILE, NULL);
    mg->sessions--;
    count(mg, SL_BS_SESSIONS, -1);
    sl_client *session_ref = cl;
    sl_client_unref(&session_ref);
}

static void tick_wills(sl_manager *mg);

/* The connection of the session is over. reason: an MQTT 5 code; SUCCESS is a client's own
 * DISCONNECT. */
static void connection_ended(sl_manager *mg, sl_client *cl, bool persistent, uint8_t reason)
{
    sl_session *ss = &cl->session;
    sl_wall_ms wall = sl_clock_wall(mg->core->clock);
    sl_mono_ms now = sl_clock_mono(mg->core->clock);
    bool had_will = ss->will != NULL;
    if (reason == SL_RC_SUCCESS)
        sl_wills_discard(&mg->wills, cl); // [MQTT-3.14.4-3]
    else if (had_will)
        sl_wills_lost(&mg->wills, cl,
                      sl_will_wait(ss->will, persistent, ss->has_expiry, ss->expiry_s), now, wall);
    if (!persistent) {
        remove_session(mg, cl, had_will);
        return;
    }
    ss->connected = false;
    ss->disconnected_at = wall;
    ss->idle_since = now;
    store_session(mg, cl, "", NULL);
    if (ss->will != NULL)
        tick_wills(mg);
}

static void on_disconnect(sl_manager *mg, sl_client *cl, const sl_session_request *rq)
{
    sl_session *ss = &cl->session;
    if (!ss->exists || !ss->connected || ss->session_id != rq->session_id)
        return; // a newer connection has the session
    ss->expiry_s = rq->expiry_s;
    ss->has_expiry = rq->has_expiry;
    connection_ended(mg, cl, rq->persistent, rq->reason);
}

/* The client's actor says that there is no connection and none under way. */
static void on_clear(sl_manager *mg, sl_client *cl, const sl_session_request *rq)
{
    sl_session *ss = &cl->session;
    if (is_expired(mg, ss)) {
        count(mg, SL_BS_SESSIONS_EXPIRED, 1);
        remove_session(mg, cl, true);
    } else if (ss->exists && ss->connected && ss->session_id == rq->session_id) {
        sl_warn(SL_C_SESSION, "SESSION-REPAIRED", SL_B("client", sl_client_id(cl)));
        count(mg, SL_BS_SESSIONS_REPAIRED, 1);
        connection_ended(mg, cl, ss->persistent && (!ss->has_expiry || ss->expiry_s > 0),
                         SL_RC_UNSPECIFIED_ERROR);
    }
}

/* ---- wills
 * ------------------------------------------------------------------------------------------------
 */

/* The row does not hold it any more. */
static void will_published(void *arg, sl_client *cl)
{
    store_session(arg, cl, "", NULL);
}

static void tick_wills(sl_manager *mg)
{
    sl_mono_ms now = sl_clock_mono(mg->core->clock);
    sl_mono_ms next = now + WILL_RETRY_MS;
    if (mg->wait_first == NULL)
        next = sl_wills_tick(&mg->wills, now, will_published);
    if (next != 0)
        sl_timer_start(&mg->will_timer, next - now, 0);
}

static void on_will_timer(void *arg)
{
    tick_wills(arg);
}

static void handle_request(sl_manager *mg, const sl_log_record *rec)
{
    char peer[64];
    sl_session_request rq;
    sl_slice id = {0}, time = {0}, node = {0};
    if (sl_record_get_request(rec->value, &rq, peer, sizeof(peer)) != SL_OK ||
        !sl_log_header_find(rec->headers, SL_LOG_H_REQUEST_ID, &id) || id.len != 16 ||
        !sl_log_header_find(rec->headers, SL_LOG_H_REQUEST_TIME, &time) || time.len != 8) {
        count(mg, SL_BS_DAMAGED_RECORDS, 1);
        sl_warn(SL_C_SESSION, "SESSION-EVENT-DAMAGED", SL_B("client", rec->key),
                SL_U("offset", rec->offset));
        return;
    }
    rq.client_id = rec->key;
    rq.loop = (unsigned)(get_u64(id.ptr) & UINT32_MAX);
    uint32_t run_id = (uint32_t)(get_u64(id.ptr) >> 32);
    sl_wall_ms sent = (sl_wall_ms)get_u64(time.ptr);
    bool own = sl_log_header_find(rec->headers, SL_LOG_H_NODE, &node) &&
               sl_slice_equal(node, sl_slice_str(mg->core->service_id));
    if ((own && run_id != mg->core->run_id) ||
        sl_clock_wall(mg->core->clock) - sent > REQUEST_MAX_AGE_MS) {
        // Of connections that are gone; the repair at start has done what they ask.
        count(mg, SL_BS_STALE_REQUESTS, 1);
        sl_will_free(&rq.will);
        return;
    }
    sl_client *cl = NULL;
    if (sl_registry_get(mg->core->registry, rec->key, &cl) != SL_OK) {
        sl_will_free(&rq.will);
        return;
    }
    switch (rq.kind) {
    case SL_SESSION_CONNECT:
        on_connect(mg, cl, &rq);
        break;
    case SL_SESSION_DISCONNECT:
        on_disconnect(mg, cl, &rq);
        break;
    case SL_SESSION_CLEAR:
        on_clear(mg, cl, &rq);
        break;
    }
    sl_will_free(&rq.will); // of a CONNECT that was refused
    sl_client_unref(&cl);
}

/* ---- answers to the loops
 * ------------------------------------------------------------------------------ */

typedef struct answer_mail {
    sl_mail mail;
    sl_io *io;
    sl_client *cl; /* referenced */
    sl_session_answer answer;
} answer_mail;

static void deliver_answer(sl_mail *mail)
{
    answer_mail *am = SL_CONTAINER(mail, answer_mail, mail);
    sl_client_actor_answer(am->io, am->cl, &am->answer);
    sl_client_unref(&am->cl);
    sl_free(am);
}

static void handle_response(sl_manager *mg, const sl_log_record *rec)
{
    sl_slice id = {0};
    sl_session_answer answer;
    if (!sl_log_header_find(rec->headers, SL_LOG_H_REQUEST_ID, &id) || id.len != 16 ||
        sl_record_get_answer(rec->value, &answer) != SL_OK) {
        count(mg, SL_BS_DAMAGED_RECORDS, 1);
        return;
    }
    uint64_t loop = get_u64(id.ptr);
    sl_client *cl = sl_registry_find(mg->core->registry, rec->key);
    if (cl == NULL || loop >= mg->core->io_count) {
        sl_free(answer.open_qos2);
        sl_client_unref(&cl);
        return;
    }
    answer_mail *am = sl_calloc(1, sizeof(*am));
    am->mail.fn = deliver_answer;
    am->io = mg->core->ios[loop];
    am->cl = cl;
    am->answer = answer;
    sl_loop_post(am->io->lp, &am->mail);
}

/* ---- consuming
 * ----------------------------------------------------------------------------------------- */

static size_t consume(sl_manager *mg, sl_log_consumer *co, bool commit,
                      void (*handle)(sl_manager *mg, const sl_log_record *rec))
{
    sl_log_batch batches[POLL_BATCHES];
    size_t n = 0;
    if (sl_log_consumer_poll(co, batches, POLL_BATCHES, 0, &n) != SL_OK)
        return 0;
    for (size_t i = 0; i < n; i++) {
        size_t pos = 0;
        sl_log_record rec;
        while (sl_log_batch_next(&batches[i], &pos, &rec)) {
            if (sl_log_in_stage(&rec, batches[i].stages))
                handle(mg, &rec);
        }
        sl_err err = SL_OK;
        if (commit && (batches[i].stages & SL_LOG_STAGE_DURABLE) != 0)
            err =
                sl_log_consumer_commit(co, batches[i].topic, batches[i].partition, batches[i].next);
        if (err != SL_OK)
            sl_warn(SL_C_SESSION, "OFFSET-NOT-COMMITTED", SL_U("partition", batches[i].partition),
                    SL_E(err));
        sl_log_batch_release(&batches[i]);
    }
    return n;
}

static void on_poll(sl_mail *mail)
{
    sl_manager *mg = SL_CONTAINER(mail, sl_manager, poll_mail);
    atomic_store(&mg->poll_posted, false);
    if (mg->wait_first != NULL)
        return; // held back by the log; room polls again
    size_t n = consume(mg, mg->requests, true, handle_request);
    n += consume(mg, mg->responses, false, handle_response);
    if (n > 0 && !atomic_exchange(&mg->poll_posted, true))
        sl_loop_post(mg->lp, &mg->poll_mail); // look again, after other letters
}

static void wake_poll(void *arg)
{
    sl_manager *mg = arg;
    if (!atomic_exchange(&mg->poll_posted, true))
        sl_loop_post(mg->lp, &mg->poll_mail);
}

static void on_done(void *arg, const sl_log_done *dones, size_t n)
{
    (void)arg;
    for (size_t i = 0; i < n; i++) {
        // qos2_clear knows no NO_ACK: nobody waits for token 0
        if (dones[i].token != 0)
            store_finished((connecting *)(uintptr_t)dones[i].token, dones[i].err);
    }
}

static void on_room(void *arg)
{
    sl_manager *mg = arg;
    flush_waiting(mg);
    wake_poll(mg);
}

static void wake_drain(void *arg)
{
    sl_manager *mg = arg;
    sl_loop_post(mg->lp, &mg->drain_mail);
}

static void on_drain(sl_mail *mail)
{
    sl_manager *mg = SL_CONTAINER(mail, sl_manager, drain_mail);
    if (mg->producer != NULL)
        (void)sl_log_producer_drain(mg->producer);
}

/* ---- expiry
 * --------------------------------------------------------------------------------------------- */

typedef struct clear_mail {
    sl_mail mail;
    sl_io *io;
    sl_client *cl; /* referenced */
    uint64_t session_id;
} clear_mail;

static void deliver_clear(sl_mail *mail)
{
    clear_mail *cm = SL_CONTAINER(mail, clear_mail, mail);
    sl_client_actor_clear(cm->io, cm->cl, cm->session_id);
    sl_client_unref(&cm->cl);
    sl_free(cm);
}

static void look_at(void *arg, sl_client *cl)
{
    sl_manager *mg = arg;
    sl_session *ss = &cl->session;
    // Found connected without a connection twice in a row: the actor knows whether one is coming.
    bool lost = ss->exists && ss->connected && !sl_client_route(cl).connected;
    bool was_lost = ss->looked_lost;
    ss->looked_lost = lost;
    if (!is_expired(mg, ss) && !(lost && was_lost))
        return;
    clear_mail *cm = sl_calloc(1, sizeof(*cm));
    cm->mail.fn = deliver_clear;
    cm->io = mg->core->ios[cl->index % mg->core->io_count];
    cm->cl = cl;
    cm->session_id = lost ? ss->session_id : 0;
    sl_client_ref(cl);
    sl_loop_post(cm->io->lp, &cm->mail);
}

static void on_scan(void *arg)
{
    sl_manager *mg = arg;
    sl_registry_each(mg->core->registry, look_at, mg);
}

/* ---- life
 * ------------------------------------------------------------------------------------------------
 */

sl_err sl_manager_new(sl_core *core, sl_manager **out)
{
    sl_manager *mg = sl_calloc(1, sizeof(*mg));
    mg->core = core;
    mg->poll_mail.fn = on_poll;
    mg->drain_mail.fn = on_drain;
    sl_wills_init(&mg->wills);
    mg->wills.publish = publish_will;
    mg->wills.arg = mg;
    mg->wills.stats = core->stats;
    sl_err err = sl_loop_new("sessions", core->clock, &mg->lp);
    sl_log_producer_options po = {.wake = wake_drain, .done = on_done, .room = on_room, .arg = mg};
    if (err == SL_OK)
        err = sl_log_producer_open(core->log, &po, &mg->producer);
    sl_log_consumer_options rq = {.group = SL_SESSION_GROUP,
                                  .reset = SL_LOG_EARLIEST,
                                  .both_stages = true,
                                  .wake = wake_poll,
                                  .wake_arg = mg};
    if (err == SL_OK)
        err = sl_log_consumer_open(core->log, &rq, &mg->requests);
    sl_log_consumer_options rs = {
        .reset = SL_LOG_LATEST, .both_stages = true, .wake = wake_poll, .wake_arg = mg};
    if (err == SL_OK)
        err = sl_log_consumer_open(core->log, &rs, &mg->responses);
    if (err != SL_OK) {
        sl_manager_free(&mg);
        return err;
    }
    *out = mg;
    return SL_OK;
}

static void ignore_assignment(void *arg, sl_log_topic *topic, uint16_t partition, bool assigned)
{
    (void)arg;
    sl_trace(SL_C_SESSION, "SESSION-PARTITION", SL_S("topic", sl_log_topic_name(topic)),
             SL_U("partition", partition), SL_U("assigned", assigned));
}

typedef struct start_call {
    sl_manager *mg;
    sl_err err;
} start_call;

/* What the loader found. */
static void take_over_session(void *arg, sl_client *cl)
{
    sl_manager *mg = arg;
    if (!cl->session.exists)
        return;
    mg->sessions++;
    if (cl->session.generation > mg->generation)
        mg->generation = cl->session.generation; // the wall clock may have been set back
    sl_wills_resume(&mg->wills, cl, sl_clock_mono(mg->core->clock), sl_clock_wall(mg->core->clock));
}

/* The consumers are woken from here on, not before: a poll needs all of this. */
static void start_on_loop(void *arg)
{
    start_call *sc = arg;
    sl_manager *mg = sc->mg;
    mg->shard = sl_stats_shard(mg->core->stats);
    mg->wills.shard = mg->shard;
    sl_dur_ms period =
        sl_conf_int(mg->core->conf, "mqtt.client-session-expiry.check-period") * 1000;
    sl_timer_init(&mg->scan, mg->lp, on_scan, mg);
    sl_timer_start(&mg->scan, 1, period); // what ended while we were not there ends at once
    sl_timer_init(&mg->will_timer, mg->lp, on_will_timer, mg);
    sl_registry_each(mg->core->registry, take_over_session, mg);
    tick_wills(mg);
    mg->started = true;
    sc->err = sl_log_consumer_assign(mg->responses, mg->core->t_response, 0, SL_LOG_COMMITTED);
    if (sc->err == SL_OK)
        sc->err =
            sl_log_consumer_subscribe(mg->requests, mg->core->t_request, ignore_assignment, mg);
    wake_poll(mg);
}

sl_err sl_manager_start(sl_manager *mg)
{
    start_call sc = {.mg = mg, .err = sl_loop_start(mg->lp)};
    if (sc.err == SL_OK)
        sl_loop_call_wait(mg->lp, start_on_loop, &sc);
    return sc.err;
}

static void stop_on_loop(void *arg)
{
    sl_manager *mg = arg;
    // The loops have ended their connections: what they requested is in the log by now.
    for (int quiet = 0; quiet < 2;) {
        size_t n = consume(mg, mg->requests, true, handle_request);
        n += consume(mg, mg->responses, false, handle_response);
        quiet = n == 0 ? quiet + 1 : 0;
        if (n == 0 && quiet < 2 && sl_log_sync(mg->core->log) != SL_OK)
            break; // the next start repairs
    }
    while (mg->wait_first != NULL && sl_log_sync(mg->core->log) == SL_OK) {
        (void)sl_log_producer_drain(mg->producer);
        flush_waiting(mg);
    }
    sl_timer_fini(&mg->scan);
    sl_timer_fini(&mg->will_timer);
}

void sl_manager_stop(sl_manager *mg)
{
    if (!mg->started)
        return;
    sl_loop_call_wait(mg->lp, stop_on_loop, mg);
    sl_loop_stop(mg->lp);
    sl_loop_join(mg->lp);
}

void sl_manager_free(sl_manager **pointer)
{
    sl_manager *mg = *pointer;
    if (mg == NULL)
        return;
    *pointer = NULL;
    sl_wills_fini(&mg->wills);
    if (mg->producer != NULL)
        sl_log_producer_close(&mg->producer);
    if (mg->requests != NULL)
        sl_log_consumer_close(&mg->requests);
    if (mg->responses != NULL)
        sl_log_consumer_close(&mg->responses);
    if (mg->lp != NULL)
        sl_loop_free(&mg->lp);
    while (mg->wait_first != NULL) {
        waiting *wt = mg->wait_first;
        mg->wait_first = wt->next;
        sl_free(wt);
    }
    sl_free(mg);
}
