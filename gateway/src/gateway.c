/* SPDX-License-Identifier: Apache-2.0
 *
 * gateway: building, starting and stopping. Parts that the configuration leaves off stay NULL.
 */
#include "gateway.h"

#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "acl.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/logger.h"
#include "conf_int.h"
#include "dead_letter.h"
#include "figures.h"
#include "http/auth.h"
#include "http/server.h"
#include "loop/pool.h"
#include "mqtt_session.h"
#include "rest.h"
#include "router.h"
#include "sink.h"
#include "sse.h"
#include "status.h"
#include "why.h"
#include "writer.h"

#define POOL_THREADS     4
#define POOL_QUEUE       1000
#define HTTP_THREADS     4
#define HTTP_DRAIN_MS    3000
#define HTTP_WRITE_MS    30000 /* a reader that takes nothing for so long is cut */
#define USER_TIMEOUT_MIN 10000
#define DISCONNECT_MS    3000 /* for the acknowledgements that are due and DISCONNECT */
#define MAX_RECEIVE      65535

struct sl_gateway {
    sl_gateway_conf *cf; /* owned */
    sl_active act;
    sl_clock clock;
    sl_loop *router_loop;
    sl_loop *http_loop;
    sl_pool *pool;
    sl_auth *auth;
    sl_acl *acl;
    sl_sink *sink;
    sl_dead_letter *dead;
    sl_writer *writer;
    sl_writer_target *targets; /* owned */
    sl_writer_conf writer_conf;
    sl_tls_ctx *tls; /* to the broker; NULL: without TLS */
    sl_session *sn;
    sl_router *rt;
    sl_sse *sse;
    sl_rest *rest;
    sl_figures *figures;
    sl_http_server *sv;
    sem_t http_done, session_done;
    bool loops_run;
    bool http_runs;
    bool writer_runs;
};

#define STR(path)  sl_gateway_conf_str(cf, path)
#define NUM(path)  sl_gateway_conf_int(cf, path)
#define FLAG(path) sl_gateway_conf_bool(cf, path)

/* ---- rights ---- */

static int32_t clamp_priority(int64_t priority)
{
    if (priority >= SL_AUTH_LOWEST)
        return SL_AUTH_LOWEST;
    return priority <= INT32_MIN ? INT32_MIN : (int32_t)priority;
}

static sl_err load_auth(sl_auth *auth, const sl_gateway_conf *cf, char **why)
{
    size_t user_count, permission_count;
    const sl_conf_user *cu = sl_gateway_conf_users(cf, &user_count);
    const sl_conf_permission *cp = sl_gateway_conf_permissions(cf, &permission_count);
    if (!FLAG("fileRealmAuthenticator/enabled"))
        user_count = 0;
    if (!FLAG("fileAclAuthorizer/enabled"))
        permission_count = 0; // nobody allows, so nothing is allowed
    sl_auth_user *users = sl_calloc(user_count + 1, sizeof *users);
    sl_auth_permission *permissions = sl_calloc(permission_count + 1, sizeof *permissions);
    for (size_t i = 0; i < user_count; i++) {
        users[i] = (sl_auth_user){cu[i].userid, cu[i].password, cu[i].roles, cu[i].role_count};
        if (cu[i].password == NULL)
            sl_warn(SL_C_AUTH, "AUTH-USER-DISABLED", SL_S("user", cu[i].userid),
                    SL_S("why", "no password is set"));
    }
    for (size_t i = 0; i < permission_count; i++)
        permissions[i] = (sl_auth_permission){cp[i].roles, cp[i].role_count, cp[i].predicate,
                                              clamp_priority(cp[i].priority)};
    sl_err err = sl_auth_load(auth, users, user_count, permissions, permission_count, why);
    sl_free(users);
    sl_free(permissions);
    if (err != SL_OK) {
        char *reason = *why;
        err = sl_why(why, err, "fileRealmAuthenticator or fileAclAuthorizer: %s", reason);
        sl_free(reason);
    }
    return err;
}

static sl_auth *make_auth(const sl_gateway_conf *cf, sl_pool *pool, sl_clock *clock)
{
    return sl_auth_new(&(sl_auth_options){.pool = pool,
                                          .clock = clock,
                                          .basic = FLAG("basicAuthMechanism/enabled"),
                                          .tokens = true,
                                          .acl = true,
                                          .guard = FLAG("bruteForceAttackGuard/enabled")});
}

static void load_acl(sl_acl *acl, const sl_gateway_conf *cf)
{
    size_t count;
    const sl_conf_grant *grants = sl_gateway_conf_grants(cf, &count);
    sl_acl_load(acl, FLAG("mqtt-topic-authorizer/enabled"), grants, count);
}

/* ---- the writer's side ---- */

static sl_err fill_writer_conf(const sl_gateway_conf *cf, sl_writer_target **targets,
                               sl_writer_conf *out, char **why)
{
    size_t count;
    const sl_conf_sink *sinks = sl_gateway_conf_sinks(cf, &count);
    *targets = sl_calloc(count + 1, sizeof **targets);
    for (size_t i = 0; i < count; i++) {
        sl_sink_target target = {sinks[i].database, sinks[i].collection};
        const char *reason = NULL;
        if (sl_sink_target_check(&target, &reason) != SL_OK)
            return sl_why(why, SL_EINVAL, "mqtt-mongo-writer/mongo-sink[%zu]: %s", i + 1, reason);
        (*targets)[i] = (sl_writer_target){sinks[i].topic, sinks[i].database, sinks[i].collection,
                                           sinks[i].qos};
    }
    *out = (sl_writer_conf){
        .targets = *targets,
        .target_count = count,
        .capacity = (uint32_t)NUM("mqtt-mongo-writer/buffer/capacity"),
        .max_bytes = SL_WRITER_DEFAULT_MAX_BYTES,
        .max_wait_ms = NUM("mqtt-mongo-writer/buffer/max-wait-ms"),
        .batch_size = (uint32_t)NUM("mqtt-mongo-writer/drain/batch-size"),
        .max_retries = (uint32_t)NUM("mqtt-mongo-writer/drain/max-retries"),
        .retry_delay_ms = NUM("mqtt-mongo-writer/drain/retry-delay-ms"),
        .max_unacked_ms = NUM("mqtt-mongo-writer/drain/max-unacked-ms"),
        .shutdown_timeout_ms = NUM("mqtt-mongo-writer/drain/shutdown-timeout-ms"),
        .id_field = STR("mqtt-mongo-writer/id-field"),
        .redelivers = !FLAG("mqtt-client/clean-session"),
    };
    sl_err err = sl_writer_strategy_parse(STR("mqtt-mongo-writer/buffer/strategy"), &out->strategy);
    if (err == SL_OK)
        err = sl_id_strategy_parse(STR("mqtt-mongo-writer/id-strategy"), &out->id_strategy);
    return err == SL_OK ? sl_writer_conf_check(out, why) : err;
}

static sl_err open_sink(const sl_gateway_conf *cf, const char *data_dir, sl_sink **out, char **why)
{
    sl_sink_conf sc = {.connection_string = STR("mclient/connection-string"),
                       .data_dir = data_dir,
                       .budget_ms = NUM("mqtt-mongo-writer/drain/max-unacked-ms")};
    return sl_sink_open(&sc, out, why);
}

static sl_dead_letter *open_dead_letter(const sl_gateway_conf *cf)
{
    return sl_dead_letter_new(STR("mqtt-mongo-writer/dead-letter-file"),
                              NUM("mqtt-mongo-writer/dead-letter-max-bytes"));
}

static sl_err build_writer(sl_gateway *gw, const char *data_dir, char **why)
{
    const sl_gateway_conf *cf = gw->cf;
    if (!gw->act.writer)
        return SL_OK;
    sl_err err = fill_writer_conf(cf, &gw->targets, &gw->writer_conf, why);
    if (err == SL_OK)
        err = open_sink(cf, data_dir, &gw->sink, why);
    if (err != SL_OK)
        return err;
    gw->dead = open_dead_letter(cf);
    gw->writer = sl_writer_new(&gw->writer_conf, &gw->clock, gw->sink, gw->dead);
    err = sl_writer_register(gw->writer, gw->rt);
    if (err != SL_OK)
        return sl_why(why, err, "mqtt-mongo-writer: %s", sl_err_text(err));
    return SL_OK;
}

/* ---- MQTT side ---- */

static uint16_t receive_maximum(const sl_gateway_conf *cf)
{
    int64_t value = NUM("mqtt-client/receive-maximum");
    if (value == 0)
        value = NUM("mqtt-mongo-writer/buffer/capacity") +
                2 * NUM("mqtt-mongo-writer/drain/batch-size");
    return (uint16_t)(value < MAX_RECEIVE ? value : MAX_RECEIVE);
}

static char *join(const char *left, const char *right)
{
    size_t size = strlen(left) + strlen(right) + 1;
    char *text = sl_alloc(size);
    snprintf(text, size, "%s%s", left, right);
    return text;
}

static sl_err build_session(sl_gateway *gw, const char *data_dir, char **why)
{
    const sl_gateway_conf *cf = gw->cf;
    sl_conf_broker broker;
    sl_err err = sl_conf_broker_of(cf, &broker);
    SL_ASSERT(err == SL_OK); // checked when it was loaded
    if (broker.is_tls && (err = sl_conf_broker_tls(cf, &gw->tls, why)) != SL_OK) {
        sl_free(broker.host);
        return err; // the files were good when the configuration was loaded
    }
    char *client_id = STR("mqtt-client/client-id") != NULL ? sl_strdup(STR("mqtt-client/client-id"))
                                                           : join("restheart-", STR("core/name"));
    char *state_file = STR("mqtt-router/state-file") != NULL
                           ? sl_strdup(STR("mqtt-router/state-file"))
                           : join(data_dir, "/gateway-filters.state");
    err = sl_session_new(
        &(sl_session_options){
            .loop = gw->router_loop,
            .pool = gw->pool,
            .host = broker.host,
            .tls = gw->tls,
            .port = broker.port,
            .mqtt5 = strcmp(STR("mqtt-client/protocol-version"), "5") == 0,
            .client_id = client_id,
            .username = STR("mqtt-client/username"),
            .password = STR("mqtt-client/password"),
            .clean_session = FLAG("mqtt-client/clean-session"),
            .keep_alive_s = (uint16_t)NUM("mqtt-client/keep-alive-seconds"),
            .connect_timeout_ms = NUM("mqtt-client/connect-timeout-seconds") * 1000,
            .session_expiry_s = (uint32_t)NUM("mqtt-client/session-expiry-seconds"),
            .receive_maximum = receive_maximum(cf),
            .max_packet_bytes = (uint32_t)NUM("mqtt-client/max-packet-bytes"),
            .reconnect = FLAG("mqtt-client/reconnect/enabled"),
            .reconnect_initial_ms = NUM("mqtt-client/reconnect/initial-delay-ms"),
            .reconnect_max_ms = NUM("mqtt-client/reconnect/max-delay-ms"),
            .state_file = FLAG("mqtt-client/clean-session") ? NULL : state_file,
        },
        &gw->sn, why);
    sl_free(broker.host);
    sl_free(client_id);
    sl_free(state_file);
    return err;
}

static sl_err prime_cache(sl_gateway *gw, char **why)
{
    size_t count;
    const sl_conf_subscription *subs = sl_gateway_conf_subscriptions(gw->cf, &count);
    for (size_t i = 0; i < count; i++) {
        uint64_t id;
        sl_err err = sl_router_prime(gw->rt, sl_slice_str(subs[i].topic), subs[i].qos, &id);
        if (err != SL_OK)
            return sl_why(why, err, "mqtt-router/subscriptions[%zu]: %s", i + 1, sl_err_text(err));
    }
    return SL_OK;
}

static sl_err build_router(sl_gateway *gw, const char *data_dir, char **why)
{
    const sl_gateway_conf *cf = gw->cf;
    if (!gw->act.router)
        return SL_OK;
    sl_err err = build_session(gw, data_dir, why);
    if (err != SL_OK)
        return err;
    gw->rt = sl_router_new(&(sl_router_options){
        .loop = gw->router_loop,
        .live_max_per_second = NUM("mqtt-router/max-inflight-messages-per-second"),
        .cache = FLAG("mqtt-router/last-message-cache"),
        .cache_size = (uint32_t)NUM("mqtt-router/last-message-cache-size"),
        .on_ack = sl_session_on_ack,
        .on_filters = sl_session_on_filters,
        .arg = gw->sn,
    });
    sl_session_set_router(gw->sn, gw->rt);
    return prime_cache(gw, why);
}

/* ---- HTTP side ---- */

static sl_err prepare_stream(void *arg, sl_stream *sm)
{
    const sl_gateway *gw = arg;
    sl_dur_ms ms = 2 * sl_gateway_conf_int(gw->cf, "mqtt-sse/keep-alive-ms");
    // a peer whose cable was pulled is noticed within two heartbeats
    sl_stream_set_user_timeout(sm, ms > USER_TIMEOUT_MIN ? ms : USER_TIMEOUT_MIN);
    return SL_OK;
}

static void build_sse(sl_gateway *gw)
{
    const sl_gateway_conf *cf = gw->cf;
    if (!gw->act.sse)
        return;
    gw->sse = sl_sse_new(&(sl_sse_options){
        .front = gw->http_loop,
        .router = gw->router_loop,
        .rt = gw->rt,
        .acl = gw->acl,
        .auth = gw->auth,
        .default_topic = STR("mqtt-sse/default-topic"),
        .default_qos = (uint8_t)NUM("mqtt-sse/default-qos"),
        .queue_capacity = (uint32_t)NUM("mqtt-sse/per-connection-queue-capacity"),
        .drop_oldest = strcmp(STR("mqtt-sse/overflow"), "drop-oldest") == 0,
        .envelope = FLAG("mqtt-sse/payload-envelope"),
        .replay = FLAG("mqtt-sse/last-message-cache") && FLAG("mqtt-router/last-message-cache"),
        .max_per_topic = (uint32_t)NUM("mqtt-sse/max-connections-per-topic"),
        .max_total = (uint32_t)NUM("mqtt-sse/max-connections"),
        .keep_alive_ms = NUM("mqtt-sse/keep-alive-ms"),
        .max_stream_ms = NUM("mqtt-sse/max-stream-seconds") * 1000,
        .gap_events = FLAG("mqtt-sse/gap-events"),
    });
}

static sl_err build_http(sl_gateway *gw, char **why)
{
    const sl_gateway_conf *cf = gw->cf;
    if (!gw->act.http)
        return SL_OK;
    const char *host = STR("http-listener/host");
    sl_http_options ho = {
        .name = "gateway",
        .address = strcmp(host, "localhost") == 0 ? "127.0.0.1" : host,
        .port = (uint16_t)NUM("http-listener/port"),
        .loops = &gw->http_loop,
        .loop_count = 1,
        .threads = HTTP_THREADS,
        .gate = sl_auth_gate,
        .gate_arg = gw->auth,
        .cors = true,
        .prepare = prepare_stream,
        .prepare_arg = gw,
        .write_ms = HTTP_WRITE_MS,
    };
    sl_err err = sl_http_server_new(&ho, &gw->sv, why);
    if (err != SL_OK)
        return err;
    build_sse(gw);
    gw->rest = sl_rest_new(&(sl_rest_options){
        .router_loop = gw->router_loop,
        .rt = gw->rt,
        .sn = gw->sn,
        .acl = gw->acl,
        .sse = gw->sse,
        .writer = gw->writer,
        .sink = gw->sink,
        .name = STR("core/name"),
        .latest = gw->act.rest,
        .stats = gw->act.stats,
    });
    sl_rest_add_routes(gw->rest, gw->sv);
    sl_auth_add_routes(gw->auth, gw->sv);
    const sl_http_route stream = {.methods = SL_HTTP_M(GET),
                                  .pattern = "/mqtt-sse",
                                  .on_loop = sl_sse_on_request,
                                  .arg = gw->sse};
    if (gw->sse != NULL)
        sl_http_server_route(gw->sv, &stream, 1);
    gw->figures =
        sl_figures_new(&(sl_figures_parts){gw->rt, gw->sn, gw->sse, gw->acl, gw->writer, gw->sv},
                       gw->act.router && FLAG("mqtt-metrics-collector/enabled"));
    sl_rest_set_figures(gw->rest, gw->figures);
    return SL_OK;
}

/* ---- start ---- */

static sl_err make_folder(const char *path, char **why)
{
    if (mkdir(path, S_IRWXU | S_IRGRP | S_IXGRP) == 0 || errno == EEXIST)
        return SL_OK;
    sl_err err = sl_err_from_errno(errno);
    return sl_why(why, err, "the data folder %s cannot be made: %s (SLUICE_DATA_DIR)", path,
                  sl_err_text(err));
}

static sl_err build_base(sl_gateway *gw, const char *data_dir, char **why)
{
    const sl_gateway_conf *cf = gw->cf;
    sl_err err = make_folder(data_dir, why);
    if (err != SL_OK)
        return err;
    err = sl_loop_new("gw-router", &gw->clock, &gw->router_loop);
    if (err == SL_OK)
        err = sl_loop_new("gw-http", &gw->clock, &gw->http_loop);
    if (err == SL_OK)
        err = sl_pool_new(POOL_THREADS, POOL_QUEUE, &gw->pool);
    if (err != SL_OK)
        return sl_why(why, err, "threads cannot be started: %s", sl_err_text(err));
    gw->auth = make_auth(cf, gw->pool, &gw->clock);
    gw->acl = sl_acl_new();
    load_acl(gw->acl, cf);
    return load_auth(gw->auth, cf, why);
}

static void start_session(void *arg)
{
    sl_session_start(arg);
}

static sl_err run_all(sl_gateway *gw, char **why)
{
    sl_err err = sl_loop_start(gw->router_loop);
    if (err == SL_OK)
        err = sl_loop_start(gw->http_loop);
    gw->loops_run = err == SL_OK;
    if (err == SL_OK && gw->sv != NULL) {
        err = sl_http_server_start(gw->sv);
        gw->http_runs = err == SL_OK;
    }
    if (err == SL_OK && gw->writer != NULL) {
        err = sl_writer_start(gw->writer);
        gw->writer_runs = err == SL_OK;
    }
    if (err != SL_OK)
        return sl_why(why, err, "the gateway cannot be started: %s", sl_err_text(err));
    return SL_OK;
}

static void log_ready(const sl_gateway *gw)
{
    char http[96] = "off";
    if (gw->sv != NULL)
        snprintf(http, sizeof http, "%s:%u", sl_gateway_conf_str(gw->cf, "http-listener/host"),
                 sl_http_server_port(gw->sv));
    sl_info(SL_C_GATEWAY, "GATEWAY-READY", SL_S("http", http),
            SL_S("broker", sl_gateway_conf_str(gw->cf, "mqtt-client/broker-url")),
            SL_S("sink", gw->sink != NULL ? sl_sink_name(gw->sink) : "off"),
            SL_S("version", SL_VERSION));
}

sl_err sl_gateway_start(sl_gateway_conf **cf, const char *data_dir, sl_gateway **out, char **why)
{
    sl_gateway *gw = sl_calloc(1, sizeof *gw);
    gw->cf = *cf;
    *cf = NULL;
    sl_clock_init(&gw->clock);
    sem_init(&gw->http_done, 0, 0);
    sem_init(&gw->session_done, 0, 0);
    sl_active_of(gw->cf, &gw->act);
    sl_err err = build_base(gw, data_dir, why);
    if (err == SL_OK)
        err = build_router(gw, data_dir, why);
    if (err == SL_OK)
        err = build_writer(gw, data_dir, why);
    if (err == SL_OK)
        err = build_http(gw, why);
    if (err == SL_OK)
        err = run_all(gw, why);
    if (err != SL_OK) {
        sl_gateway_stop(&gw);
        return err;
    }
    sl_status_log(gw->cf);
    // the connector is last: owed messages come at once and must find every consumer
    if (gw->act.connector)
        sl_loop_call_wait(gw->router_loop, start_session, gw->sn);
    if (gw->rest != NULL)
        sl_rest_set_ready(gw->rest, true);
    log_ready(gw);
    *out = gw;
    return SL_OK;
}

sl_err sl_gateway_reload(sl_gateway *gw, const sl_gateway_conf *cf, char **why)
{
    sl_err err = load_auth(gw->auth, cf, why);
    if (err == SL_OK)
        load_acl(gw->acl, cf);
    return err;
}

/* ---- stop ---- */

static void on_posted(void *arg)
{
    sem_post(arg);
}

static bool wait_for(sem_t *done, sl_dur_ms max_ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += max_ms / 1000;
    until.tv_nsec += (max_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    int rc;
    do
        rc = sem_clockwait(done, CLOCK_MONOTONIC, &until);
    while (rc != 0 && errno == EINTR);
    return rc == 0;
}

static void nothing(void *arg)
{
    (void)arg;
}

/* Letters that were posted before have run when it returns. */
static void settle(sl_loop *loop)
{
    sl_loop_call_wait(loop, nothing, NULL);
}

/* New requests are refused, streams get their end, running requests finish. */
static void stop_http(sl_gateway *gw)
{
    if (gw->rest != NULL)
        sl_rest_set_ready(gw->rest, false);
    if (gw->sse != NULL)
        sl_sse_stop(gw->sse);
    sl_http_server_drain(gw->sv, HTTP_DRAIN_MS, on_posted, &gw->http_done);
    while (!wait_for(&gw->http_done, HTTP_DRAIN_MS))
        sl_warn(SL_C_GATEWAY, "GATEWAY-DRAIN-SLOW", SL_S("part", "http"));
}

static void close_sse(void *arg)
{
    sl_sse_close(arg);
}

static void stop_session(void *arg)
{
    sl_gateway *gw = arg;
    sl_session_stop(gw->sn, on_posted, &gw->session_done);
}

/* Everything that needs running loops, in the order in which messages flow. */
static void stop_running(sl_gateway *gw)
{
    if (gw->sv != NULL && gw->http_runs)
        stop_http(gw);
    if (gw->writer_runs)
        sl_writer_stop(gw->writer);
    settle(gw->router_loop); // the last tokens are home, their acknowledgements written
    if (gw->sn != NULL) {
        sl_loop_call_wait(gw->router_loop, stop_session, gw);
        if (!wait_for(&gw->session_done, DISCONNECT_MS))
            sl_warn(SL_C_GATEWAY, "GATEWAY-DRAIN-SLOW", SL_S("part", "broker"));
    }
    if (gw->sse != NULL)
        sl_loop_call_wait(gw->http_loop, close_sse, gw->sse);
    // groups say good-bye from loop to loop and back
    settle(gw->router_loop);
    settle(gw->http_loop);
}

/* A start that failed: the loops never ran, so this thread is theirs. */
static void stop_unborn(sl_gateway *gw)
{
    if (gw->sse != NULL)
        sl_sse_close(gw->sse);
    if (gw->sn != NULL)
        sl_session_stop(gw->sn, on_posted, &gw->session_done);
}

static void end_loop(sl_loop **loop)
{
    if (*loop == NULL)
        return;
    sl_loop_stop(*loop);
    sl_loop_join(*loop);
    sl_loop_free(loop);
}

static void free_parts(sl_gateway *gw)
{
    sl_sse_free(&gw->sse);
    sl_writer_free(&gw->writer);
    sl_router_free(&gw->rt);
    sl_session_free(&gw->sn);
    sl_tls_ctx_unref(&gw->tls);
    sl_rest_free(&gw->rest);
    sl_figures_free(&gw->figures);
    sl_sink_close(&gw->sink);
    sl_dead_letter_free(&gw->dead);
    sl_auth_free(&gw->auth);
    sl_acl_free(&gw->acl);
    sl_free(gw->targets);
    sl_gateway_conf_free(&gw->cf);
    sem_destroy(&gw->http_done);
    sem_destroy(&gw->session_done);
    sl_free(gw);
}

void sl_gateway_stop(sl_gateway **gw)
{
    sl_gateway *own = *gw;
    *gw = NULL;
    if (own == NULL)
        return;
    if (own->loops_run)
        stop_running(own);
    else
        stop_unborn(own);
    sl_http_server_free(&own->sv);
    sl_pool_free(&own->pool); // a save of the state file may be under way: its letter goes home
    end_loop(&own->router_loop);
    end_loop(&own->http_loop);
    free_parts(own);
}

/* ---- commands ---- */

sl_err sl_gateway_check(const sl_gateway_conf *cf, char **why)
{
    sl_clock clock;
    sl_clock_init(&clock);
    sl_writer_target *targets = NULL;
    sl_writer_conf wc;
    sl_err err = SL_OK;
    if (FLAG("mqtt-mongo-writer/enabled"))
        err = fill_writer_conf(cf, &targets, &wc, why);
    sl_free(targets);
    if (err != SL_OK)
        return err;
    sl_auth *auth = make_auth(cf, NULL, &clock);
    err = load_auth(auth, cf, why);
    sl_auth_free(&auth);
    return err;
}

sl_err sl_gateway_replay(const sl_gateway_conf *cf, const char *data_dir, char **why)
{
    size_t count;
    const sl_conf_sink *sinks = sl_gateway_conf_sinks(cf, &count);
    sl_replay_route *routes = sl_calloc(count + 1, sizeof *routes);
    for (size_t i = 0; i < count; i++)
        routes[i] = (sl_replay_route){sinks[i].topic, {sinks[i].database, sinks[i].collection}};
    sl_sink *sink = NULL;
    sl_err err = make_folder(data_dir, why);
    if (err == SL_OK)
        err = open_sink(cf, data_dir, &sink, why);
    sl_replay_report rp = {0};
    if (err == SL_OK) {
        const char *path = STR("mqtt-mongo-writer/dead-letter-file");
        err = sl_dead_letter_replay(path, sink, routes, count, &rp);
        if (err != SL_OK)
            err = sl_why(why, err, "%s: %s", path, sl_err_text(err));
        printf("lines=%llu stored=%llu duplicates=%llu refused=%llu damaged=%llu unrouted=%llu "
               "failed=%llu\n",
               (unsigned long long)rp.lines, (unsigned long long)rp.stored,
               (unsigned long long)rp.duplicates, (unsigned long long)rp.refused,
               (unsigned long long)rp.damaged, (unsigned long long)rp.unrouted,
               (unsigned long long)rp.failed);
    }
    sl_sink_close(&sink);
    sl_free(routes);
    return err;
}
