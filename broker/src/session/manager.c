/* SPDX-License-Identifier: Apache-2.0
 *
 * manager: see manager.h. State of a session changes in memory at once, in the order of the request
 * topic; rows go to the log in the same order through one producer, so the log never shows another
 * order. An answer leaves when everything it promises is stored.
 */
#include "session/manager_int.h"

#include <string.h>

#include "base/alloc.h"
#include "base/logger.h"
#include "session/records.h"
#include "stats/broker_stats.h"

#define REQUEST_MAX_AGE_MS 100000 /* older requests have nobody who waits */
#define POLL_BATCHES       16

void sl_manager_count(sl_manager *mg, unsigned stat, int64_t delta)
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
    sl_buf_init(&value, SL_MANAGER_RECORD_MAX);
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
    sl_buf_init(&value, SL_MANAGER_RECORD_MAX);
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
            sl_manager_count(mg, SL_BS_DROP_NOT_STORED, 1);
        if (err != SL_OK && (wt->flags & SL_LOG_NO_ACK) == 0)
            sl_session_store_finished((connecting *)(uintptr_t)wt->token, err);
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
void sl_manager_append(sl_manager *mg, int what, sl_log_topic *topic, sl_slice key, sl_slice value,
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
void sl_manager_publish_will(void *arg, sl_client *cl, const sl_will *wl)
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

/* ---- answers and requests
 * ------------------------------------------------------------------------------------------ */

void sl_manager_send_answer(sl_manager *mg, connecting *cg)
{
    sl_buf value;
    sl_buf_init(&value, SL_MANAGER_RECORD_MAX);
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

static void handle_request(sl_manager *mg, const sl_log_record *rec)
{
    char peer[64];
    sl_session_request rq;
    sl_slice id = {0}, time = {0}, node = {0};
    if (sl_record_get_request(rec->value, &rq, peer, sizeof(peer)) != SL_OK ||
        !sl_log_header_find(rec->headers, SL_LOG_H_REQUEST_ID, &id) || id.len != 16 ||
        !sl_log_header_find(rec->headers, SL_LOG_H_REQUEST_TIME, &time) || time.len != 8) {
        sl_manager_count(mg, SL_BS_DAMAGED_RECORDS, 1);
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
        sl_manager_count(mg, SL_BS_STALE_REQUESTS, 1);
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
        sl_session_on_connect(mg, cl, &rq);
        break;
    case SL_SESSION_DISCONNECT:
        sl_session_on_disconnect(mg, cl, &rq);
        break;
    case SL_SESSION_CLEAR:
        sl_session_on_clear(mg, cl, &rq);
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
        sl_manager_count(mg, SL_BS_DAMAGED_RECORDS, 1);
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
            sl_session_store_finished((connecting *)(uintptr_t)dones[i].token, dones[i].err);
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
    mg->wills.publish = sl_manager_publish_will;
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

/* The consumers are woken from here on, not before: a poll needs all of this. */
static void start_on_loop(void *arg)
{
    start_call *sc = arg;
    sl_manager *mg = sc->mg;
    mg->shard = sl_stats_shard(mg->core->stats);
    mg->wills.shard = mg->shard;
    sl_dur_ms period =
        sl_conf_int(mg->core->conf, "mqtt.client-session-expiry.check-period") * 1000;
    sl_timer_init(&mg->scan, mg->lp, sl_session_on_scan, mg);
    sl_timer_start(&mg->scan, 1, period); // what ended while we were not there ends at once
    sl_timer_init(&mg->will_timer, mg->lp, sl_session_on_will_timer, mg);
    sl_registry_each(mg->core->registry, sl_session_take_over, mg);
    sl_session_tick_wills(mg);
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
