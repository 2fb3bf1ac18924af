/* SPDX-License-Identifier: Apache-2.0
 *
 * mqtt_session: one client of mqtt/client.h at a time. It reconnects by itself; only after a
 * takeover is it given up, and a new one made after a long pause, because two gateways with one id
 * that both come back at once would throw each other out for ever.
 */
#include "mqtt_session.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/logger.h"
#include "mqtt/reason.h"
#include "state_file.h"
#include "subs.h"
#include "why.h"

#define SESSION_MAGIC     0x5e551011u
#define REFRESH_MS        250
#define RETRY_REFUSED_MS  30000
#define STABLE_MS         10000 /* a connection that held so long was no takeover */
#define SHORT_LIVED_LIMIT 3     /* connections in a row that the broker ended young (3.1.1) */

struct sl_session {
    uint32_t magic;
    sl_session_options opt;
    char *texts[5];         /* owned copies of the options' strings */
    char *identity;         /* owned; names the session in the state file */
    sl_router *rt;          /* borrowed */
    sl_mqtt_client *client; /* NULL: none (before start, during a takeover pause, after stop) */
    uint32_t epoch;         /* number of the client object: tokens of older ones are void */
    sl_subs *subs;
    bool connected;
    bool session_present;
    bool ever_connected;
    bool stopping;
    unsigned short_lived; /* in a row */
    sl_mono_ms up_since;
    sl_dur_ms takeover_ms; /* next pause */
    sl_timer again;        /* after a takeover */
    sl_timer retry;        /* of refused filters */
    sl_timer refresh;
    void (*stopped)(void *arg);
    void *stopped_arg;
    // the state file: at most one save runs, what changed meanwhile is saved after it
    sl_buf saving; /* text being saved; belongs to the pool while save_running */
    bool save_running;
    bool save_again;
    sl_err save_result;
    sl_log_limit save_limit;
    // figures, for any thread
    _Atomic bool f_connected, f_session_present, f_all_granted;
    _Atomic uint32_t f_wanted, f_held, f_refused, f_listened, f_unacked;
    _Atomic int64_t f_oldest_ms;
    _Atomic uint64_t f_reconnects, f_takeovers, f_acks, f_redelivered, f_retained, f_lost;
    uint64_t acks_before; /* of earlier clients */
};

#define PUT(field, value) atomic_store_explicit(&(field), (value), memory_order_relaxed)
#define GET(field)        atomic_load_explicit(&(field), memory_order_relaxed)
#define BUMP(field)       PUT(field, GET(field) + 1)

/* ---- state file ---- */

static void save_state(sl_session *sn);

static void save_work(void *arg)
{
    sl_session *sn = arg;
    sn->save_result = sl_state_file_save(sn->opt.state_file, sl_buf_peek(&sn->saving));
}

static void save_done(void *arg)
{
    sl_session *sn = arg;
    sn->save_running = false;
    uint32_t held;
    if (sn->save_result != SL_OK && sl_log_limit_pass(&sn->save_limit, 1, 60000, &held))
        sl_warn(SL_C_GATEWAY, "SESSION-STATE-NOT-SAVED", SL_S("file", sn->opt.state_file),
                SL_E(sn->save_result),
                SL_S("effect", "filters removed from the configuration may stay subscribed"));
    if (sn->save_again)
        save_state(sn);
}

static void save_state(sl_session *sn)
{
    if (sn->opt.state_file == NULL || sn->opt.pool == NULL || sn->stopping)
        return; // once stopping, the pool may be gone
    sn->save_again = sn->save_running;
    if (sn->save_running)
        return;
    sl_buf_clear(&sn->saving);
    sl_err err = sl_state_file_begin(&sn->saving, sl_slice_str(sn->identity));
    size_t pos = 0;
    sl_slice filter;
    while (err == SL_OK && sl_subs_each_known(sn->subs, &pos, &filter))
        err = sl_state_file_add(&sn->saving, filter);
    // a list that is cut by the maximum still helps with what is in it
    sn->save_running = true;
    if (sl_pool_run(sn->opt.pool, sn->opt.loop, save_work, save_done, sn) != SL_OK)
        sn->save_running = false; // the pool is full: the next change tries again
}

static void remember(void *arg, sl_slice filter)
{
    sl_subs_remember(arg, filter);
}

static void load_state(sl_session *sn)
{
    if (sn->opt.state_file == NULL || sn->opt.clean_session)
        return;
    sl_err err =
        sl_state_file_load(sn->opt.state_file, sl_slice_str(sn->identity), remember, sn->subs);
    if (err != SL_OK && err != SL_ENOTFOUND)
        sl_warn(SL_C_GATEWAY, "SESSION-STATE-NOT-READ", SL_S("file", sn->opt.state_file), SL_E(err),
                SL_S("effect", "filters removed from the configuration may stay subscribed"));
}

/* ---- figures ---- */

static uint32_t count_listened(sl_session *sn)
{
    uint32_t count = 0;
    size_t pos = 0;
    sl_router_filter rf;
    while (sl_router_each_filter(sn->rt, &pos, &rf))
        count += sn->connected && sl_subs_is_held(sn->subs, rf.filter);
    return count;
}

void sl_session_refresh(sl_session *sn)
{
    sl_subs_counts counts;
    sl_subs_count(sn->subs, &counts);
    sl_mqtt_client_stats stats = {0};
    if (sn->client != NULL)
        sl_mqtt_client_stats_of(sn->client, &stats);
    PUT(sn->f_connected, sn->connected);
    PUT(sn->f_session_present, sn->connected && sn->session_present);
    PUT(sn->f_wanted, counts.wanted);
    PUT(sn->f_held, sn->connected ? counts.held : 0);
    PUT(sn->f_refused, counts.refused);
    PUT(sn->f_all_granted, sn->connected && counts.held == counts.wanted);
    PUT(sn->f_unacked, stats.unacked);
    PUT(sn->f_oldest_ms, stats.oldest_unacked);
    PUT(sn->f_acks, sn->acks_before + stats.acked);
}

/* After a change of subscriptions: the dearer figure too. */
static void refresh_all(sl_session *sn)
{
    PUT(sn->f_listened, count_listened(sn));
    sl_session_refresh(sn);
}

static void on_refresh(void *arg)
{
    sl_session_refresh(arg);
}

void sl_session_read(const sl_session *sn, sl_session_figures *out)
{
    *out = (sl_session_figures){
        .connected = GET(sn->f_connected),
        .session_present = GET(sn->f_session_present),
        .all_granted = GET(sn->f_all_granted),
        .wanted = GET(sn->f_wanted),
        .held = GET(sn->f_held),
        .refused = GET(sn->f_refused),
        .listened = GET(sn->f_listened),
        .unacked = GET(sn->f_unacked),
        .limit = sn->opt.receive_maximum,
        .oldest_ms = GET(sn->f_oldest_ms),
        .reconnects = GET(sn->f_reconnects),
        .takeovers = GET(sn->f_takeovers),
        .acks_sent = GET(sn->f_acks),
        .redelivered = GET(sn->f_redelivered),
        .retained = GET(sn->f_retained),
        .sessions_lost = GET(sn->f_lost),
    };
}

/* ---- subscriptions ---- */

static sl_err ask_subscribe(void *arg, const sl_mqtt_sub_option *options, uint32_t count,
                            uint16_t *packet_id)
{
    sl_session *sn = arg;
    if (sn->client == NULL)
        return SL_EAGAIN;
    return sl_mqtt_client_subscribe(sn->client, options, count, 0, packet_id);
}

static sl_err ask_unsubscribe(void *arg, const sl_slice *filters, uint32_t count,
                              uint16_t *packet_id)
{
    sl_session *sn = arg;
    if (sn->client == NULL)
        return SL_EAGAIN;
    for (uint32_t i = 0; i < count; i++)
        sl_info(SL_C_GATEWAY, "MQTT-UNSUBSCRIBE", SL_B("filter", filters[i]));
    return sl_mqtt_client_unsubscribe(sn->client, filters, count, packet_id);
}

static void on_refused(void *arg, sl_slice filter, uint8_t reason)
{
    sl_session *sn = arg;
    sl_error(SL_C_GATEWAY, "MQTT-SUBSCRIBE-REFUSED", SL_B("filter", filter), SL_U("reason", reason),
             SL_S("text", sl_mqtt_rc_text(reason)), SL_I("retry_ms", RETRY_REFUSED_MS));
    if (!sn->stopping)
        sl_timer_start(&sn->retry, RETRY_REFUSED_MS, 0);
}

static void on_retry(void *arg)
{
    sl_session *sn = arg;
    sl_subs_retry(sn->subs);
    refresh_all(sn);
}

void sl_session_on_filters(void *arg)
{
    sl_session *sn = arg;
    SL_CHECK(sn, SESSION_MAGIC);
    size_t count = 0, pos = 0;
    sl_router_filter rf;
    while (sl_router_each_filter(sn->rt, &pos, &rf))
        count++;
    sl_cover_item *items = sl_calloc(count + 1, sizeof *items);
    pos = 0;
    for (size_t i = 0; sl_router_each_filter(sn->rt, &pos, &rf); i++)
        items[i] = (sl_cover_item){.filter = rf.filter, .qos = rf.qos};
    sl_cover_compute(items, count);
    sl_subs_want(sn->subs, items, count);
    sl_free(items);
    save_state(sn);
    refresh_all(sn);
}

/* ---- deliveries ---- */

void sl_session_on_ack(void *arg, sl_delivery delivery)
{
    sl_session *sn = arg;
    uint32_t epoch = (uint32_t)(delivery.generation >> 32);
    uint32_t generation = (uint32_t)delivery.generation;
    // of another client object, or of QoS 0: nothing is owed on this connection
    if (sn->client == NULL || epoch != sn->epoch || generation == 0)
        return;
    sl_mqtt_token token = {.seq = delivery.handle, .generation = generation};
    sl_mqtt_client_ack(sn->client, token, SL_RC_SUCCESS);
}

static void on_publish(void *arg, const sl_mqtt_publish *pb, sl_mqtt_token token, sl_rbuf *rb,
                       bool redelivery)
{
    sl_session *sn = arg;
    if (redelivery)
        BUMP(sn->f_redelivered);
    if (pb->retain)
        BUMP(sn->f_retained);
    int64_t now = sl_clock_wall_ns(sl_loop_clock(sn->opt.loop));
    sl_message *msg = sl_message_new(pb, rb, now);
    sl_delivery delivery = {.generation = (uint64_t)sn->epoch << 32 | token.generation,
                            .handle = token.seq};
    sl_router_deliver(sn->rt, &msg, delivery);
}

/* ---- connection ---- */

static void on_connack(void *arg, const sl_mqtt_client_connected *cd)
{
    sl_session *sn = arg;
    bool expected = sn->ever_connected && !sn->opt.clean_session;
    if (sn->ever_connected)
        BUMP(sn->f_reconnects);
    sn->connected = true;
    sn->ever_connected = true;
    sn->session_present = cd->session_present;
    sn->up_since = sl_loop_now(sn->opt.loop);
    sl_info(SL_C_GATEWAY, "MQTT-CONNECTED", SL_S("broker", sn->opt.host),
            SL_U("port", sn->opt.port), SL_B("client", sl_mqtt_client_id(sn->client)),
            SL_S("session_present", cd->session_present ? "true" : "false"));
    if (expected && !cd->session_present) {
        BUMP(sn->f_lost);
        sl_warn(SL_C_GATEWAY, "MQTT-SESSION-LOST",
                SL_S("effect",
                     "the broker has forgotten the session: messages it owed us are gone, "
                     "all filters are subscribed again"));
    }
    sl_subs_on_connected(sn->subs, cd->session_present);
    save_state(sn);
    refresh_all(sn);
}

static void on_suback(void *arg, uint16_t packet_id, bool unsubscribe, sl_slice reasons)
{
    sl_session *sn = arg;
    sl_subs_on_suback(sn->subs, packet_id, unsubscribe, reasons);
    save_state(sn);
    refresh_all(sn);
    if (!unsubscribe && GET(sn->f_all_granted))
        sl_info(SL_C_GATEWAY, "MQTT-SUBSCRIBED", SL_U("filters", GET(sn->f_held)));
}

static void on_nothing(void *arg)
{
    (void)arg;
}

static void drop_client(sl_session *sn)
{
    sl_mqtt_client_stats stats;
    sl_mqtt_client_stats_of(sn->client, &stats);
    sn->acks_before += stats.acked;
    sl_mqtt_client_close(&sn->client, SL_RC_SUCCESS, on_nothing, NULL);
}

/* Another client has our id, or so it seems: stay away for long, longer each time. */
static void back_off(sl_session *sn, const char *how)
{
    BUMP(sn->f_takeovers);
    sl_error(SL_C_GATEWAY, "MQTT-TAKEN-OVER", SL_S("client", sn->opt.client_id), SL_S("sign", how),
             SL_I("pause_ms", sn->takeover_ms),
             SL_S("do", "give each gateway its own core/name or mqtt-client/client-id"));
    drop_client(sn);
    sl_timer_start(&sn->again, sn->takeover_ms, 0);
    sn->takeover_ms *= 2;
    if (sn->takeover_ms > SL_SESSION_TAKEOVER_MAX_MS)
        sn->takeover_ms = SL_SESSION_TAKEOVER_MAX_MS;
}

/* 3.1.1 has no reason code, and not every broker sends the one of 5.0 (Mosquitto 2.0.11 does not):
 * several young connections in a row, each ended by the broker without a word. */
static bool looks_taken_over(sl_session *sn, const sl_mqtt_client_down *down)
{
    if (!down->was_up) {
        sn->short_lived = 0; // a broker that was away has ended them, not a stranger
        return false;
    }
    sl_dur_ms lived = sl_loop_now(sn->opt.loop) - sn->up_since;
    if (lived >= STABLE_MS) {
        sn->short_lived = 0;
        sn->takeover_ms = SL_SESSION_TAKEOVER_MIN_MS;
        return false;
    }
    if (down->err != SL_ECLOSED || down->reason != 0)
        return false;
    return ++sn->short_lived >= SHORT_LIVED_LIMIT;
}

static void on_down(void *arg, const sl_mqtt_client_down *down)
{
    sl_session *sn = arg;
    sn->connected = false;
    sl_subs_on_down(sn->subs);
    bool guess = looks_taken_over(sn, down);
    bool told = down->reason == SL_RC_SESSION_TAKEN_OVER && sn->opt.mqtt5;
    if (!sn->stopping)
        sl_warn(SL_C_GATEWAY, "MQTT-DOWN", SL_S("broker", sn->opt.host), SL_U("port", sn->opt.port),
                SL_E(down->err), SL_S("why", down->why), SL_U("reason", down->reason),
                SL_I("retry_ms", down->retry_in));
    if (sn->stopping || sn->client == NULL) {
        // nothing follows
    } else if (told || guess) {
        sn->short_lived = 0;
        back_off(sn, told ? "reason 0x8E" : "short connections in a row, ended by the broker");
    } else if (!sn->opt.reconnect) {
        sl_error(SL_C_GATEWAY, "MQTT-STAYS-DOWN",
                 SL_S("why", "mqtt-client/reconnect/enabled is false"));
        drop_client(sn);
    }
    refresh_all(sn);
}

static sl_err make_client(sl_session *sn, const char **why)
{
    const sl_session_options *opt = &sn->opt;
    sl_mqtt_client_options co = {
        .host = opt->host,
        .port = opt->port,
        .version = opt->mqtt5 ? SL_MQTT_V5 : SL_MQTT_V311,
        .client_id = sl_slice_str(opt->client_id),
        .clean_start = opt->clean_session,
        .keep_alive_s = opt->keep_alive_s,
        .session_expiry_s = opt->mqtt5 && !opt->clean_session ? opt->session_expiry_s : 0,
        // a broker that goes over its window is not thrown out: it would only come back and do the
        // same again; 3.1.1 has no other window than the one at which reading stops
        .receive_maximum = opt->mqtt5 ? UINT16_MAX : opt->receive_maximum,
        .announced_maximum = opt->receive_maximum,
        .max_packet_bytes = opt->max_packet_bytes,
        .has_username = opt->username != NULL,
        .has_password = opt->password != NULL,
        .username = opt->username != NULL ? sl_slice_str(opt->username) : (sl_slice){0},
        .password = opt->password != NULL ? sl_slice_str(opt->password) : (sl_slice){0},
        .connect_timeout = opt->connect_timeout_ms,
        .reconnect_initial = opt->reconnect_initial_ms,
        .reconnect_max = opt->reconnect_max_ms,
        .stable_after = STABLE_MS,
        .pool = opt->pool,
        .dial = opt->dial,
        .dial_arg = opt->dial_arg,
        .tls = opt->tls,
    };
    static const sl_mqtt_client_events events = {
        .on_connack = on_connack,
        .on_publish = on_publish,
        .on_suback = on_suback,
        .on_down = on_down,
    };
    sl_err err = sl_mqtt_client_new(opt->loop, &co, &events, sn, &sn->client, why);
    if (err == SL_OK)
        sn->epoch++;
    return err;
}

static void on_again(void *arg)
{
    sl_session *sn = arg;
    const char *why = NULL;
    sl_err err = make_client(sn, &why);
    SL_ASSERT(err == SL_OK); // the same options were accepted before
    sl_mqtt_client_start(sn->client);
}

/* ---- life ---- */

static const char *own(sl_session *sn, unsigned at, const char *text)
{
    sn->texts[at] = text != NULL ? sl_strdup(text) : NULL;
    return sn->texts[at];
}

static void copy_options(sl_session *sn, const sl_session_options *options)
{
    sn->opt = *options;
    sn->opt.host = own(sn, 0, options->host);
    sn->opt.client_id = own(sn, 1, options->client_id);
    sn->opt.username = own(sn, 2, options->username);
    sn->opt.password = own(sn, 3, options->password);
    sn->opt.state_file = own(sn, 4, options->state_file);
    size_t len = strlen(options->host) + strlen(options->client_id) + 32;
    sn->identity = sl_alloc(len);
    snprintf(sn->identity, len, "%s@%s:%u", options->client_id, options->host, options->port);
}

sl_err sl_session_new(const sl_session_options *options, sl_session **out, char **why)
{
    sl_session *sn = sl_calloc(1, sizeof *sn);
    sn->magic = SESSION_MAGIC;
    copy_options(sn, options);
    sn->takeover_ms = SL_SESSION_TAKEOVER_MIN_MS;
    sl_buf_init(&sn->saving, SL_STATE_FILE_MAX_BYTES);
    static const sl_subs_ops ops = {ask_subscribe, ask_unsubscribe, on_refused};
    sn->subs = sl_subs_new(&ops, sn);
    sl_timer_init(&sn->again, options->loop, on_again, sn);
    sl_timer_init(&sn->retry, options->loop, on_retry, sn);
    sl_timer_init(&sn->refresh, options->loop, on_refresh, sn);
    const char *reason = NULL;
    sl_err err = make_client(sn, &reason);
    if (err != SL_OK) {
        err = sl_why(why, err, "mqtt-client: %s", reason);
        sl_session_free(&sn);
        return err;
    }
    load_state(sn);
    *out = sn;
    return SL_OK;
}

void sl_session_set_router(sl_session *sn, sl_router *rt)
{
    sn->rt = rt;
}

static void fini_timers(sl_session *sn)
{
    sl_timer_fini(&sn->again);
    sl_timer_fini(&sn->retry);
    sl_timer_fini(&sn->refresh);
}

void sl_session_free(sl_session **sn)
{
    sl_session *own_sn = *sn;
    *sn = NULL;
    if (own_sn == NULL)
        return;
    SL_CHECK(own_sn, SESSION_MAGIC);
    if (own_sn->client != NULL)
        sl_mqtt_client_close(&own_sn->client, SL_RC_SUCCESS, on_nothing, NULL);
    if (!own_sn->stopping)
        fini_timers(own_sn);
    sl_subs_free(&own_sn->subs);
    sl_buf_fini(&own_sn->saving);
    for (size_t i = 0; i < sizeof own_sn->texts / sizeof own_sn->texts[0]; i++)
        sl_free(own_sn->texts[i]);
    sl_free(own_sn->identity);
    own_sn->magic = 0;
    sl_free(own_sn);
}

void sl_session_start(sl_session *sn)
{
    SL_CHECK(sn, SESSION_MAGIC);
    SL_ON_LOOP(sn->opt.loop);
    sl_session_on_filters(sn); // everything wanted is known before the first SUBSCRIBE
    sl_timer_start(&sn->refresh, REFRESH_MS, REFRESH_MS);
    sl_mqtt_client_start(sn->client);
}

static void on_client_closed(void *arg)
{
    sl_session *sn = arg;
    sn->stopped(sn->stopped_arg);
}

void sl_session_stop(sl_session *sn, void (*done)(void *arg), void *arg)
{
    SL_CHECK(sn, SESSION_MAGIC);
    sn->stopping = true;
    sn->stopped = done;
    sn->stopped_arg = arg;
    fini_timers(sn);
    sn->connected = false;
    if (sn->client != NULL)
        sl_mqtt_client_close(&sn->client, SL_RC_SUCCESS, on_client_closed, sn);
    else
        sl_loop_call(sn->opt.loop, on_client_closed, sn);
}
