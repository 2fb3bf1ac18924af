/* SPDX-License-Identifier: Apache-2.0
 *
 * client: life cycle of a client session: states, timers, dialling, CONNECT, keep-alive, closing.
 * The rest is in client_in.c, client_ack.c and client_out.c.
 */
#include "mqtt/client.h"

#include <errno.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/logger.h"
#include "mqtt/client_int.h"
#include "mqtt/encode.h"
#include "mqtt/props.h"
#include "mqtt/topic.h"
#include "net/dial.h"

#define BIT(name) (1u << SL_CLIENT_##name)

/* Which states may follow which. */
static const uint16_t next_states[SL_CLIENT_STATE_COUNT] = {
    [SL_CLIENT_IDLE] = BIT(DIALING) | BIT(CLOSED),
    [SL_CLIENT_DIALING] = BIT(HANDSHAKE) | BIT(WAITING) | BIT(CLOSED),
    [SL_CLIENT_HANDSHAKE] = BIT(UP) | BIT(LOST) | BIT(CLOSING),
    [SL_CLIENT_UP] = BIT(LOST) | BIT(DRAINING),
    [SL_CLIENT_LOST] = BIT(WAITING) | BIT(CLOSING),
    [SL_CLIENT_WAITING] = BIT(DIALING) | BIT(CLOSED),
    [SL_CLIENT_DRAINING] = BIT(CLOSING),
    [SL_CLIENT_CLOSING] = BIT(CLOSED),
    [SL_CLIENT_CLOSED] = 0,
};

const char *sl_mqtt_client_state_name(sl_mqtt_client_state state)
{
    static const char *const names[SL_CLIENT_STATE_COUNT] = {
#define STATE_NAME(name, word) word,
        SL_MQTT_CLIENT_STATE_MAP(STATE_NAME)
#undef STATE_NAME
    };
    return state < SL_CLIENT_STATE_COUNT ? names[state] : "?";
}

void sl_client_set_state(sl_mqtt_client *client, sl_mqtt_client_state state)
{
    SL_ASSERT((next_states[client->state] & (1u << state)) != 0);
    sl_trace(SL_C_MQTT, "MQTT-CLIENT-STATE", SL_S("from", sl_mqtt_client_state_name(client->state)),
             SL_S("to", sl_mqtt_client_state_name(state)), SL_B("client", client->opt.client_id));
    client->state = state;
}

/* ---- reconnecting ---- */

/* splitmix64: spreads retries, is not for secrets. */
static uint64_t next_random(sl_mqtt_client *client)
{
    uint64_t word = client->random += 0x9E3779B97F4A7C15ull;
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9ull;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EBull;
    return word ^ (word >> 31);
}

/* Twice as long each time, between half and all of it. Somebody with our id gets all the time: else
 * two clients throw each other out for ever. */
static sl_dur_ms next_delay(sl_mqtt_client *client)
{
    sl_dur_ms delay = client->opt.reconnect_max;
    if (client->down.reason != SL_RC_SESSION_TAKEN_OVER && client->failures < 32) {
        sl_dur_ms grown = client->opt.reconnect_initial << client->failures;
        delay = grown < delay ? grown : delay;
    }
    client->failures++;
    sl_dur_ms half = delay / 2;
    return delay - half + (sl_dur_ms)(next_random(client) % (uint64_t)(half + 1));
}

/* The attempt is over and its stream is gone. */
static void wait_for_retry(sl_mqtt_client *client)
{
    sl_client_set_state(client, SL_CLIENT_WAITING);
    client->stats.downs++;
    if (client->down.was_up) {
        bool stable = sl_loop_now(client->lp) - client->up_since >= client->opt.stable_after;
        if (stable)
            client->failures = 0;
        else
            client->stats.short_lived++;
    }
    client->down.retry_in = next_delay(client);
    sl_timer_start(&client->timer, client->down.retry_in, 0);
    sl_mqtt_client_down down = client->down;
    if (client->ev.on_down != NULL)
        client->ev.on_down(client->arg, &down);
}

static void end_connection(sl_mqtt_client *client)
{
    sl_timer_stop(&client->timer);
    sl_client_void_deliveries(client);
    sl_client_drop_input(client);
    sl_client_reset_output(client);
    sl_stream_close(client->sm);
}

void sl_client_lose(sl_mqtt_client *client, sl_err err, uint8_t reason, const char *why)
{
    if (client->state != SL_CLIENT_HANDSHAKE && client->state != SL_CLIENT_UP)
        return;
    client->down = (sl_mqtt_client_down){
        .err = err, .reason = reason, .why = why, .was_up = client->state == SL_CLIENT_UP};
    sl_client_set_state(client, SL_CLIENT_LOST);
    end_connection(client);
}

void sl_client_fail(sl_mqtt_client *client, sl_err err, sl_mqtt_rc rc, const char *why)
{
    if (client->state == SL_CLIENT_UP && sl_client_is_v5(client)) {
        bool fits = sl_mqtt_rc_is_allowed((uint8_t)rc, SL_MQTT_DISCONNECT, false);
        sl_mqtt_packet pkt = {.type = SL_MQTT_DISCONNECT,
                              .disconnect = {.reason = fits ? (uint8_t)rc : SL_RC_PROTOCOL_ERROR}};
        sl_client_send(client, &pkt);
        sl_client_flush(client);
    }
    sl_client_lose(client, err, 0, why);
}

/* ---- the connection ---- */

static void on_data(void *arg, sl_rbuf *rb, uint32_t off, uint32_t len)
{
    sl_mqtt_client *client = arg;
    SL_CHECK(client, SL_CLIENT_MAGIC);
    client->last_received = sl_loop_now(client->lp);
    sl_client_feed(client, rb, off, len);
}

static void finish_draining(sl_mqtt_client *client)
{
    sl_client_set_state(client, SL_CLIENT_CLOSING);
    end_connection(client);
}

static void on_end(void *arg, sl_err err)
{
    sl_mqtt_client *client = arg;
    SL_CHECK(client, SL_CLIENT_MAGIC);
    if (client->state == SL_CLIENT_DRAINING)
        finish_draining(client);
    else
        sl_client_lose(client, err == SL_OK ? SL_ECLOSED : err, 0,
                       client->tls_why != NULL ? client->tls_why
                                               : "the connection was closed or cut");
}

/* All of our bytes are with the kernel: say so, and wait for the peer's end, because closing a
 * socket with unread input could destroy them. */
static void continue_draining(sl_mqtt_client *client)
{
    if (sl_buf_peek(&client->out).len == 0)
        sl_stream_shutdown(client->sm);
}

static void on_writable(void *arg)
{
    sl_mqtt_client *client = arg;
    SL_CHECK(client, SL_CLIENT_MAGIC);
    client->blocked = false;
    sl_client_arm_work(client);
}

static void finish(void *arg)
{
    sl_mqtt_client *client = arg;
    SL_CHECK(client, SL_CLIENT_MAGIC);
    void (*closed)(void *) = client->closed;
    void *closed_arg = client->closed_arg;
    sl_client_abandon_outgoing(client);
    sl_client_run_completions(client);
    sl_timer_fini(&client->timer);
    sl_timer_fini(&client->work);
    sl_imap_free(&client->outgoing_map);
    sl_buf_fini(&client->out);
    sl_free(client->ring);
    sl_free(client->will_raw);
    sl_tls_ctx_unref(&client->opt.tls);
    sl_free(client->tls_why);
    sl_free((void *)(uintptr_t)client->opt.host);
    sl_free((void *)(uintptr_t)client->opt.tls_server_name);
    sl_free((void *)(uintptr_t)client->opt.client_id.ptr);
    sl_free((void *)(uintptr_t)client->opt.username.ptr);
    sl_free((void *)(uintptr_t)client->opt.password.ptr);
    sl_free((void *)(uintptr_t)client->will.topic.ptr);
    sl_free((void *)(uintptr_t)client->will.payload.ptr);
    client->magic = 0;
    sl_free(client);
    if (closed != NULL)
        closed(closed_arg);
}

static void on_closed(void *arg)
{
    sl_mqtt_client *client = arg;
    SL_CHECK(client, SL_CLIENT_MAGIC);
    client->sm = NULL;
    if (client->state == SL_CLIENT_LOST) {
        wait_for_retry(client);
        return;
    }
    sl_client_set_state(client, SL_CLIENT_CLOSED);
    finish(client);
}

static const sl_stream_events stream_events = {
    .on_data = on_data, .on_end = on_end, .on_writable = on_writable, .on_closed = on_closed};

static void send_connect(sl_mqtt_client *client)
{
    const sl_mqtt_client_options *opt = &client->opt;
    sl_mqtt_packet pkt = {.type = SL_MQTT_CONNECT};
    pkt.connect = (sl_mqtt_connect){.version = opt->version,
                                    .clean_start = opt->clean_start,
                                    .keep_alive_s = opt->keep_alive_s,
                                    .client_id = opt->client_id,
                                    .has_username = opt->has_username,
                                    .username = opt->username,
                                    .has_password = opt->has_password,
                                    .password = opt->password,
                                    .has_will = opt->will != NULL,
                                    .will = client->will};
    if (sl_client_is_v5(client)) {
        sl_mqtt_props *props = &pkt.connect.props;
        props->has = SL_PROP_RECEIVE_MAXIMUM | SL_PROP_SESSION_EXPIRY;
        props->receive_maximum = opt->announced_maximum;
        props->session_expiry = opt->session_expiry_s;
        if (opt->max_packet_bytes < SL_MQTT_MAX_REMAINING + 5) {
            props->has |= SL_PROP_MAXIMUM_PACKET_SIZE;
            props->maximum_packet_size = opt->max_packet_bytes;
        }
    }
    sl_client_send(client, &pkt);
}

static void on_tls_failure(void *arg, const char *why)
{
    sl_mqtt_client *client = arg;
    SL_CHECK(client, SL_CLIENT_MAGIC);
    sl_free(client->tls_why);
    client->tls_why = sl_strdup(why);
}

static const sl_tls_events tls_events = {.on_failure = on_tls_failure};

/* Connects over fd (taken). */
static void begin_handshake(sl_mqtt_client *client, int fd)
{
    sl_err err = sl_stream_tcp_new(client->lp, fd, &client->sm);
    if (err != SL_OK) {
        client->down = (sl_mqtt_client_down){.err = err, .why = "the socket could not be used"};
        wait_for_retry(client);
        return;
    }
    sl_client_set_state(client, SL_CLIENT_HANDSHAKE);
    sl_free(client->tls_why);
    client->tls_why = NULL;
    sl_stream_set_events(client->sm, &stream_events, client);
    if (client->opt.tls != NULL) {
        // the name was accepted by sl_mqtt_client_new; CONNECT waits for the TLS handshake
        err = sl_tls_push(client->sm, client->opt.tls, client->opt.tls_server_name, &tls_events,
                          client);
        SL_ASSERT(err == SL_OK);
    }
    client->last_sent = client->last_received = sl_loop_now(client->lp);
    client->ping_at = 0;
    sl_timer_start(&client->timer, client->opt.connect_timeout, 0);
    send_connect(client);
    sl_stream_read_start(client->sm);
}

/* ---- dialling ---- */

static void free_job(dial_job *job)
{
    sl_free(job->host);
    sl_free(job);
}

static void run_dial(void *arg)
{
    dial_job *job = arg;
    job->fd = job->dial(job->dial_arg, job->host, job->port, job->timeout);
}

static void on_dialled(void *arg)
{
    dial_job *job = arg;
    sl_mqtt_client *client = job->client;
    int fd = job->fd;
    free_job(job);
    if (client == NULL) { // closed meanwhile
        if (fd >= 0)
            close(fd);
        return;
    }
    SL_CHECK(client, SL_CLIENT_MAGIC);
    client->job = NULL;
    if (fd >= 0) {
        begin_handshake(client, fd);
        return;
    }
    bool late = fd == -ETIMEDOUT;
    client->down = (sl_mqtt_client_down){.err = late ? SL_ETIMEDOUT : SL_ECONN,
                                         .why = late ? "connecting took too long"
                                                     : "the server could not be reached"};
    wait_for_retry(client);
}

static void dial_inline(void *arg)
{
    run_dial(arg);
    on_dialled(arg);
}

static void begin_dialing(sl_mqtt_client *client)
{
    sl_client_set_state(client, SL_CLIENT_DIALING);
    dial_job *job = sl_calloc(1, sizeof(*job));
    job->client = client;
    job->host = sl_strdup(client->opt.host);
    job->port = client->opt.port;
    job->timeout = client->opt.connect_timeout;
    job->dial = client->opt.dial;
    job->dial_arg = client->opt.dial_arg;
    client->job = job;
    if (client->opt.pool == NULL) {
        sl_loop_call(client->lp, dial_inline, job);
        return;
    }
    if (sl_pool_run(client->opt.pool, client->lp, run_dial, on_dialled, job) == SL_OK)
        return;
    client->job = NULL;
    free_job(job);
    client->down = (sl_mqtt_client_down){.err = SL_ELIMIT, .why = "the pool's queue is full"};
    wait_for_retry(client);
}

/* ---- timers ---- */

/* Asks for a sign of life when either side was silent for the keep-alive time. While it is we who
 * do not read, no answer can be seen: pings go on, so that the server keeps us [MQTT-3.1.2-22], and
 * nobody is blamed. */
static void keep_alive(sl_mqtt_client *client)
{
    if (client->keep_alive == 0)
        return;
    sl_mono_ms now = sl_loop_now(client->lp);
    sl_mono_ms heard = client->last_received;
    if (client->ping_at != 0 && !client->paused) {
        sl_mono_ms since = client->ping_at > heard ? client->ping_at : heard;
        if (now - since >= client->keep_alive) {
            sl_client_lose(client, SL_ETIMEDOUT, 0, "no PINGRESP within the keep-alive time");
            return;
        }
    }
    sl_mono_ms quiet = client->last_sent;
    if (client->ping_at == 0 && heard < quiet)
        quiet = heard;
    if (now - quiet >= client->keep_alive) {
        sl_mqtt_packet pkt = {.type = SL_MQTT_PINGREQ};
        client->ping_at = now;
        quiet = now;
        sl_client_send(client, &pkt);
        sl_client_flush(client);
        if (client->state != SL_CLIENT_UP)
            return;
    }
    sl_timer_start(&client->timer, quiet + client->keep_alive - now, 0);
}

static void on_timer(void *arg)
{
    sl_mqtt_client *client = arg;
    SL_CHECK(client, SL_CLIENT_MAGIC);
    switch (client->state) {
    case SL_CLIENT_HANDSHAKE:
        sl_client_lose(client, SL_ETIMEDOUT, 0, "no CONNACK in time");
        return;
    case SL_CLIENT_UP:
        keep_alive(client);
        return;
    case SL_CLIENT_WAITING:
        begin_dialing(client);
        return;
    case SL_CLIENT_DRAINING:
        finish_draining(client);
        return;
    case SL_CLIENT_IDLE:
    case SL_CLIENT_DIALING:
    case SL_CLIENT_LOST:
    case SL_CLIENT_CLOSING:
    case SL_CLIENT_CLOSED:
    case SL_CLIENT_STATE_COUNT:
        return;
    }
}

static void on_work(void *arg)
{
    sl_mqtt_client *client = arg;
    SL_CHECK(client, SL_CLIENT_MAGIC);
    client->work_armed = false;
    sl_client_flush(client);
    if (client->state == SL_CLIENT_DRAINING)
        continue_draining(client);
    sl_client_pump(client);
    sl_client_flush(client);
    sl_client_run_completions(client);
    sl_client_resume(client);
    sl_client_tell_writable(client);
}

void sl_client_arm_work(sl_mqtt_client *client)
{
    if (client->work_armed || client->state == SL_CLIENT_CLOSED)
        return;
    client->work_armed = true;
    sl_timer_start(&client->work, 0, 0);
}

void sl_client_on_up(sl_mqtt_client *client)
{
    sl_client_set_state(client, SL_CLIENT_UP);
    client->stats.connects++;
    client->generation++;
    client->live_generation = client->generation;
    client->up_since = sl_loop_now(client->lp);
    sl_timer_stop(&client->timer);
    if (client->keep_alive > 0)
        sl_timer_start(&client->timer, client->keep_alive, 0);
}

/* ---- making and ending ---- */

static sl_slice dup_slice(sl_slice text)
{
    return sl_slice_of(sl_strndup(text.ptr == NULL ? (const uint8_t *)"" : text.ptr, text.len),
                       text.len);
}

static sl_err refuse(const char **why, const char *text)
{
    *why = text;
    return SL_EINVAL;
}

static sl_err check_options(const sl_mqtt_client_options *opt, const sl_mqtt_client_events *ev,
                            const char **why)
{
    if (opt->host == NULL && opt->dial == NULL)
        return refuse(why, "host is missing");
    if (ev->on_publish == NULL)
        return refuse(why, "on_publish is missing");
    if (opt->version != 0 && opt->version != SL_MQTT_V311 && opt->version != SL_MQTT_V5)
        return refuse(why, "version is neither 3.1.1 nor 5.0");
    if (opt->version == SL_MQTT_V311 && opt->client_id.len == 0 && !opt->clean_start)
        return refuse(why, "client_id is empty, which 3.1.1 allows with a clean session only");
    if (opt->client_id.len > 65535 || opt->username.len > 65535 || opt->password.len > 65535)
        return refuse(why, "client_id, username or password is longer than 65535 bytes");
    if (opt->version == SL_MQTT_V311 && opt->has_password && !opt->has_username)
        return refuse(why, "password without username, which 3.1.1 does not allow");
    const char *name = opt->tls_server_name != NULL ? opt->tls_server_name : opt->host;
    if (opt->tls != NULL && !sl_tls_is_server_name(name))
        return refuse(why, "tls_server_name (or host) cannot be the name of a certificate");
    if (opt->reconnect_max != 0 && opt->reconnect_max < opt->reconnect_initial)
        return refuse(why, "reconnect_max is less than reconnect_initial");
    return SL_OK;
}

static void fill_defaults(sl_mqtt_client_options *opt)
{
    if (opt->version == 0)
        opt->version = SL_MQTT_V5;
    if (opt->port == 0)
        opt->port = 1883;
    if (opt->receive_maximum == 0)
        opt->receive_maximum = 1000;
    if (opt->announced_maximum == 0 || opt->announced_maximum > opt->receive_maximum)
        opt->announced_maximum = opt->receive_maximum;
    if (opt->max_packet_bytes == 0)
        opt->max_packet_bytes = SL_MQTT_MAX_REMAINING + 5;
    if (opt->max_queued_bytes == 0)
        opt->max_queued_bytes = 4u << 20;
    if (opt->max_inflight == 0)
        opt->max_inflight = 100;
    if (opt->connect_timeout == 0)
        opt->connect_timeout = 10000;
    if (opt->reconnect_initial == 0)
        opt->reconnect_initial = 1000;
    if (opt->reconnect_max == 0)
        opt->reconnect_max =
            opt->reconnect_initial > 60000 ? opt->reconnect_initial : (sl_dur_ms)60000;
    if (opt->stable_after == 0)
        opt->stable_after = 10000;
    if (opt->dial == NULL)
        opt->dial = sl_net_dial_tcp;
}

/* The will's properties are kept encoded: one block of ours instead of many texts. */
static sl_err copy_will(sl_mqtt_client *client, const sl_mqtt_will *will, const char **why)
{
    uint32_t size = 0;
    if (will->qos > 2 || will->payload.len > 65535)
        return refuse(why, "will has a bad QoS or payload size");
    if (sl_mqtt_topic_check(will->topic, 0, why) != SL_OK)
        return SL_EINVAL;
    if (sl_client_is_v5(client)) {
        if (sl_mqtt_props_size(&will->props, SL_PROPS_OF_WILL, &size) != SL_OK)
            return refuse(why, "will has a property that does not belong there");
        client->will_raw = sl_alloc(size + 1);
        (void)sl_mqtt_props_write(&will->props, client->will_raw);
    }
    client->will = (sl_mqtt_will){.topic = dup_slice(will->topic),
                                  .payload = dup_slice(will->payload),
                                  .qos = will->qos,
                                  .retain = will->retain};
    client->will.props.raw = sl_slice_of(client->will_raw, size);
    client->will.props.use_raw = sl_client_is_v5(client);
    return SL_OK;
}

sl_err sl_mqtt_client_new(sl_loop *lp, const sl_mqtt_client_options *options,
                          const sl_mqtt_client_events *events, void *arg, sl_mqtt_client **out,
                          const char **why)
{
    sl_err err = check_options(options, events, why);
    if (err != SL_OK)
        return err;
    sl_mqtt_client *client = sl_calloc(1, sizeof(*client));
    client->magic = SL_CLIENT_MAGIC;
    client->lp = lp;
    client->opt = *options;
    client->ev = *events;
    client->arg = arg;
    fill_defaults(&client->opt);
    if (options->will != NULL && (err = copy_will(client, options->will, why)) != SL_OK) {
        sl_free(client);
        return err;
    }
    client->opt.host = sl_strdup(options->host == NULL ? "" : options->host);
    client->opt.tls_server_name = NULL;
    if (options->tls != NULL) {
        (void)sl_tls_ctx_ref(options->tls);
        client->opt.tls_server_name =
            sl_strdup(options->tls_server_name != NULL ? options->tls_server_name : options->host);
    }
    client->opt.client_id = dup_slice(options->client_id);
    client->opt.username = dup_slice(options->username);
    client->opt.password = dup_slice(options->password);
    client->random = options->seed != 0 ? options->seed : sl_clock_mono_ns(sl_loop_clock(lp));
    client->ring = sl_calloc(client->opt.receive_maximum, sizeof(*client->ring));
    client->outgoing_map = sl_imap_new(client->opt.max_inflight);
    sl_list_init(&client->outgoing_list);
    sl_list_init(&client->done_list);
    sl_buf_init(&client->out, (size_t)client->opt.max_queued_bytes + SL_CLIENT_CONTROL_BYTES);
    sl_timer_init(&client->timer, lp, on_timer, client);
    sl_timer_init(&client->work, lp, on_work, client);
    *out = client;
    return SL_OK;
}

void sl_mqtt_client_start(sl_mqtt_client *client)
{
    SL_CHECK(client, SL_CLIENT_MAGIC);
    SL_ON_LOOP(client->lp);
    begin_dialing(client);
}

static void begin_draining(sl_mqtt_client *client, uint8_t reason)
{
    if (reason == 0 || sl_client_is_v5(client)) {
        sl_mqtt_packet pkt = {.type = SL_MQTT_DISCONNECT, .disconnect = {.reason = reason}};
        sl_client_send(client, &pkt);
    }
    if (client->state != SL_CLIENT_UP) { // no room even for that
        sl_client_set_state(client, SL_CLIENT_CLOSING);
        return;
    }
    sl_client_set_state(client, SL_CLIENT_DRAINING);
    sl_client_void_deliveries(client);
    sl_timer_start(&client->timer, SL_CLIENT_LINGER_MS, 0);
    if (client->paused) { // the peer's end is wanted, its bytes are not
        sl_client_drop_input(client);
        sl_stream_read_start(client->sm);
    }
    sl_client_arm_work(client);
}

void sl_mqtt_client_close(sl_mqtt_client **client_ref, uint8_t reason, void (*closed)(void *arg),
                          void *arg)
{
    sl_mqtt_client *client = *client_ref;
    SL_CHECK(client, SL_CLIENT_MAGIC);
    SL_ON_LOOP(client->lp);
    SL_ASSERT(client->closed == NULL && client->closed_arg == NULL);
    SL_ASSERT(sl_mqtt_rc_is_allowed(reason, SL_MQTT_DISCONNECT, false));
    *client_ref = NULL;
    client->closed = closed;
    client->closed_arg = arg;
    client->ev = (sl_mqtt_client_events){.on_publish = client->ev.on_publish};
    switch (client->state) {
    case SL_CLIENT_UP:
        begin_draining(client, reason);
        return;
    case SL_CLIENT_HANDSHAKE:
        finish_draining(client);
        return;
    case SL_CLIENT_LOST:
        sl_client_set_state(client, SL_CLIENT_CLOSING);
        return;
    case SL_CLIENT_DIALING:
        client->job->client = NULL;
        client->job = NULL;
        break;
    case SL_CLIENT_IDLE:
    case SL_CLIENT_WAITING:
        break;
    case SL_CLIENT_DRAINING:
    case SL_CLIENT_CLOSING:
    case SL_CLIENT_CLOSED:
    case SL_CLIENT_STATE_COUNT:
        SL_ASSERT(false); // closed twice
    }
    sl_timer_stop(&client->timer);
    sl_timer_stop(&client->work);
    sl_client_set_state(client, SL_CLIENT_CLOSED);
    sl_loop_call(client->lp, finish, client);
}

sl_mqtt_client_state sl_mqtt_client_state_of(const sl_mqtt_client *client)
{
    return client->state;
}

sl_slice sl_mqtt_client_id(const sl_mqtt_client *client)
{
    return client->opt.client_id;
}

void sl_mqtt_client_stats_of(const sl_mqtt_client *client, sl_mqtt_client_stats *out)
{
    *out = client->stats;
    out->unacked = sl_client_unacked(client);
    out->unreleased = client->unreleased;
    out->inflight = client->outgoing_count;
    out->receive_maximum = client->opt.receive_maximum;
    if (out->unacked > 0)
        out->oldest_unacked = sl_loop_now(client->lp) -
                              client->ring[client->head_seq % client->opt.receive_maximum].at;
}
