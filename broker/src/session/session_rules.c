/* SPDX-License-Identifier: Apache-2.0
 *
 * session_rules: what CONNECT, DISCONNECT and CLEAR mean for a session and its will, and the looks
 * for sessions that have expired or lost their connection unnoticed. State changes in memory at
 * once, in the order of the request topic; rows follow in the same order.
 */
#include "base/alloc.h"
#include "base/logger.h"
#include "dispatch/device.h"
#include "session/manager_int.h"
#include "session/records.h"
#include "stats/broker_stats.h"

#define WILL_RETRY_MS 1000 /* while the log has no room */

static void store_session(sl_manager *mg, sl_client *cl, const char *peer, connecting *cg)
{
    const sl_session *ss = &cl->session;
    sl_buf value;
    sl_buf_init(&value, SL_MANAGER_RECORD_MAX);
    sl_err err = sl_record_put_session(&value, ss, mg->core->service_id, peer);
    SL_ASSERT(err == SL_OK);
    sl_manager_append(mg, APPEND, mg->core->t_session, sl_client_id(cl), sl_buf_peek(&value),
                      ss->persistent || ss->will != NULL ? SL_LOG_DURABLE : SL_LOG_VOLATILE, cg);
    sl_buf_fini(&value);
}

/* ---- CONNECT
 * ----------------------------------------------------------------------------------------- */

static void remove_session(sl_manager *mg, sl_client *cl, bool durable);

/* What was promised to nobody: the session is as if its connection had just ended. */
static void connect_failed(connecting *cg)
{
    sl_manager *mg = cg->mg;
    sl_session *ss = &cg->cl->session;
    cg->answer.success = false;
    cg->answer.rc = cg->err == SL_ENOSPC ? SL_RC_QUOTA_EXCEEDED : SL_RC_SERVER_UNAVAILABLE;
    sl_manager_count(mg, SL_BS_SESSIONS_UNAVAILABLE, 1);
    if (!ss->exists || ss->session_id != cg->answer.session_id)
        return; // a later request has the session
    sl_wills_discard(&mg->wills, cg->cl);
    ss->connected = false;
    ss->disconnected_at = sl_clock_wall(mg->core->clock);
    ss->idle_since = sl_clock_mono(mg->core->clock);
    if (!ss->persistent)
        remove_session(mg, cg->cl, true);
}

void sl_session_store_finished(connecting *cg, sl_err err)
{
    if (err != SL_OK && cg->err == SL_OK)
        cg->err = err;
    if (--cg->missing > 0)
        return;
    if (cg->err != SL_OK)
        connect_failed(cg);
    sl_manager_send_answer(cg->mg, cg);
    sl_free(cg->answer.open_qos2);
    sl_client_unref(&cg->cl);
    sl_free(cg);
}

static void inbox_cleared(void *arg)
{
    sl_session_store_finished(arg, SL_OK);
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
    sl_manager_append(mg, APPEND, mg->core->t_subs, sl_client_id(cl), sl_slice_of(NULL, 0),
                      SL_LOG_DURABLE, cg);
    sl_manager_append(mg, QOS2_CLEAR, NULL, sl_client_id(cl), sl_slice_of(NULL, 0), SL_LOG_DURABLE,
                      cg);
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
    sl_manager_count(mg, SL_BS_SESSIONS_LIMITED, 1);
    sl_session_store_finished(cg, SL_OK);
}

/* Above all that were given out before, also by earlier runs. */
static uint64_t new_generation(sl_manager *mg)
{
    uint64_t us = (uint64_t)sl_clock_wall_ns(mg->core->clock) / 1000;
    mg->generation = us > mg->generation ? us : mg->generation + 1;
    return mg->generation;
}

static void begin(sl_manager *mg, sl_client *cl, sl_session_request *rq, bool persistent,
                  uint64_t generation)
{
    cl->session = (sl_session){.exists = true,
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
}

void sl_session_on_connect(sl_manager *mg, sl_client *cl, sl_session_request *rq)
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
        sl_manager_count(mg, SL_BS_SESSIONS, 1);
    }
    uint64_t generation = present ? ss->generation : new_generation(mg);
    cg->answer = (sl_session_answer){.success = true,
                                     .session_present = present,
                                     .persistent = persistent,
                                     .dup_old = present && ss->was_connected_at_start,
                                     .session_id = rq->session_id,
                                     .generation = generation};
    begin(mg, cl, rq, persistent, generation);
    if (had_state && !present)
        clear_state(mg, cl, generation, cg);
    // What is to outlive a crash is stored before the CONNACK.
    store_session(mg, cl, rq->peer, ss->persistent || ss->will != NULL ? cg : NULL);
    if (present) {
        sl_err err = sl_log_qos2_load(mg->core->log, sl_client_id(cl), add_open_id, &cg->answer);
        if (err != SL_OK && cg->err == SL_OK)
            cg->err = err;
    }
    sl_session_store_finished(cg, SL_OK);
}

/* ---- DISCONNECT and CLEAR
 * ------------------------------------------------------------------------------ */

/* durable: its row was. */
static void remove_session(sl_manager *mg, sl_client *cl, bool durable)
{
    bool had_state = cl->session.persistent;
    sl_wills_session_ended(&mg->wills, cl);
    cl->session = (sl_session){0};
    sl_manager_append(mg, APPEND, mg->core->t_session, sl_client_id(cl), sl_slice_of(NULL, 0),
                      had_state || durable ? SL_LOG_DURABLE : SL_LOG_VOLATILE, NULL);
    if (had_state)
        clear_state(mg, cl, 0, NULL);
    else
        sl_manager_append(mg, APPEND, mg->core->t_subs, sl_client_id(cl), sl_slice_of(NULL, 0),
                          SL_LOG_VOLATILE, NULL);
    mg->sessions--;
    sl_manager_count(mg, SL_BS_SESSIONS, -1);
    sl_client *session_ref = cl;
    sl_client_unref(&session_ref);
}

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
        sl_session_tick_wills(mg);
}

void sl_session_on_disconnect(sl_manager *mg, sl_client *cl, const sl_session_request *rq)
{
    sl_session *ss = &cl->session;
    if (!ss->exists || !ss->connected || ss->session_id != rq->session_id)
        return; // a newer connection has the session
    ss->expiry_s = rq->expiry_s;
    ss->has_expiry = rq->has_expiry;
    connection_ended(mg, cl, rq->persistent, rq->reason);
}

/* The client's actor says that there is no connection and none under way. */
void sl_session_on_clear(sl_manager *mg, sl_client *cl, const sl_session_request *rq)
{
    sl_session *ss = &cl->session;
    if (is_expired(mg, ss)) {
        sl_manager_count(mg, SL_BS_SESSIONS_EXPIRED, 1);
        remove_session(mg, cl, true);
    } else if (ss->exists && ss->connected && ss->session_id == rq->session_id) {
        sl_warn(SL_C_SESSION, "SESSION-REPAIRED", SL_B("client", sl_client_id(cl)));
        sl_manager_count(mg, SL_BS_SESSIONS_REPAIRED, 1);
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

void sl_session_tick_wills(sl_manager *mg)
{
    sl_mono_ms now = sl_clock_mono(mg->core->clock);
    sl_mono_ms next = now + WILL_RETRY_MS;
    if (mg->wait_first == NULL)
        next = sl_wills_tick(&mg->wills, now, will_published);
    if (next != 0)
        sl_timer_start(&mg->will_timer, next - now, 0);
}

void sl_session_on_will_timer(void *arg)
{
    sl_session_tick_wills(arg);
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

void sl_session_on_scan(void *arg)
{
    sl_manager *mg = arg;
    sl_registry_each(mg->core->registry, look_at, mg);
}

/* What the loader found. */
void sl_session_take_over(void *arg, sl_client *cl)
{
    sl_manager *mg = arg;
    if (!cl->session.exists)
        return;
    mg->sessions++;
    if (cl->session.generation > mg->generation)
        mg->generation = cl->session.generation; // the wall clock may have been set back
    sl_wills_resume(&mg->wills, cl, sl_clock_mono(mg->core->clock), sl_clock_wall(mg->core->clock));
}
