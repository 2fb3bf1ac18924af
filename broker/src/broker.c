/* SPDX-License-Identifier: Apache-2.0
 *
 * broker: see broker.h. Start order: log and topics, registry and trie, state, then the loops from
 * the inside out (dispatch needs the I/O loops' names, so they are made first and start idle),
 * listeners last. Stop order: the other way round, each part finishing what it was given.
 */
#include "broker.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "admin/admin.h"
#include "base/alloc.h"
#include "base/logger.h"
#include "broker_conf.h"
#include "core.h"
#include "dispatch/device.h"
#include "dispatch/dispatcher.h"
#include "net/listener.h"
#include "route/rcu.h"
#include "route/sub_trie.h"
#include "session/client_actor.h"
#include "session/io.h"
#include "session/manager.h"
#include "session/stamps.h"
#include "stats/broker_stats.h"
#include "stats/msg_trace.h"
#include "store/db_conf.h"
#include "store/inbox_redis_conf.h"
#include "store/node.h"

#define MAX_IO_LOOPS  64
#define MIN_SPARE_FDS 16
#define MAX_SPARE_FDS 256

struct sl_broker {
    sl_core core;
    sl_clock clock;
    char service_id[256];
    sl_listener *tcp;
    sl_admin *admin;
    sl_node_identity *node;
};

static char *message(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static char *message(const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return sl_strdup(text);
}

/* ---- topics
 * ------------------------------------------------------------------------------------------- */

typedef struct topic_row {
    sl_log_topic_spec spec;
    sl_log_topic **handle;
} topic_row;

static sl_err open_topics(sl_core *core, char **why)
{
    char response[300];
    snprintf(response, sizeof(response), "tbmq.client.session.event.response.%s", core->service_id);
    const int64_t week = 604800000, gigabyte = 1048576000;
    const topic_row rows[] = {
        {{.name = "tbmq.msg.all",
          .partitions = 16,
          .durable = true,
          .retention_ms = sl_conf_int(core->conf, "queue.msg-all.retention-ms"),
          .retention_bytes = sl_conf_int(core->conf, "queue.msg-all.retention-bytes"),
          .pinned_group = SL_DISPATCH_GROUP},
         &core->t_all},
        {{.name = "tbmq.msg.persisted",
          .partitions = 12,
          .durable = true,
          .retention_ms = 600000, // references: what was stored in inboxes pins nothing for long
          .retention_bytes = gigabyte,
          .pinned_group = SL_DEVICE_GROUP},
         &core->t_persisted},
        {{.name = "tbmq.client.session",
          .partitions = 1,
          .compacted = true,
          .durable = true,
          .retention_ms = -1,
          .retention_bytes = -1},
         &core->t_session},
        {{.name = "tbmq.client.subscriptions",
          .partitions = 1,
          .compacted = true,
          .durable = true,
          .retention_ms = -1,
          .retention_bytes = -1},
         &core->t_subs},
        {{.name = "tbmq.client.session.event.request",
          .partitions = 24,
          .retention_ms = week,
          .retention_bytes = gigabyte,
          .pinned_group = SL_SESSION_GROUP},
         &core->t_request},
        {{.name = response, .partitions = 1, .retention_ms = week, .retention_bytes = gigabyte},
         &core->t_response},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        sl_err err = sl_log_topic_open(core->log, &rows[i].spec, rows[i].handle);
        if (err != SL_OK) {
            *why = message("topic %s cannot be opened: %s", rows[i].spec.name, sl_err_text(err));
            return err;
        }
    }
    return SL_OK;
}

static sl_err open_log(sl_core *core, char **why)
{
    const sl_conf *cf = core->conf;
    uint64_t low_space = (uint64_t)sl_conf_int(cf, "storage.low-space-bytes");
    sl_log_options lo = {
        .dir = sl_conf_str(cf, "storage.dir"),
        .node = core->service_id,
        .fsync = strcmp(sl_conf_str(cf, "storage.durability"), "fsync") == 0,
        .gather_ms = sl_conf_int(cf, "storage.gather-ms"),
        .queue_max_bytes = (size_t)sl_conf_int(cf, "storage.queue-max-bytes"),
        .derived_max_bytes = (size_t)sl_conf_int(cf, "storage.queue-max-bytes"),
        // no mark is the lowest one: the log takes 0 as its own default
        .low_space_bytes = low_space == 0 ? 1 : low_space,
        .ring_bytes = (size_t)sl_conf_int(cf, "storage.ring-bytes"),
        .clock = core->clock,
        .stats = core->stats,
        .stats_base = SL_BS_LOG,
    };
    return sl_log_open(&sl_log_embedded_ops, &lo, &core->log, why);
}

/* ---- values asked for when the metrics page is made
 * ------------------------------------------------------ */

/* The page may be asked for while the trie is not there yet, or no more: ready says whether it is,
 * and the admin port ends before the trie does. */
static sl_sub_trie_counts trie_counts(void *arg)
{
    sl_core *core = arg;
    return atomic_load(&core->ready) ? sl_sub_trie_count(core->trie) : (sl_sub_trie_counts){0};
}

static int64_t trie_subscriptions(void *arg)
{
    return (int64_t)trie_counts(arg).subscriptions;
}

static int64_t trie_nodes(void *arg)
{
    return (int64_t)trie_counts(arg).nodes;
}

/* ---- parts
 * ------------------------------------------------------------------------------------------------
 */

static void name_service(sl_broker *br)
{
    const char *id = sl_conf_str(br->core.conf, "service.id");
    if (id[0] != 0)
        snprintf(br->service_id, sizeof(br->service_id), "%s", id);
    else if (gethostname(br->service_id, sizeof(br->service_id) - 1) != 0 || br->service_id[0] == 0)
        snprintf(br->service_id, sizeof(br->service_id), "sluice");
    br->core.service_id = br->service_id;
}

static sl_err make_state(sl_broker *br, char **why)
{
    sl_core *core = &br->core;
    const sl_conf *cf = core->conf;
    core->rcu = sl_rcu_new();
    core->trie = sl_sub_trie_new(core->rcu, (size_t)sl_conf_int(cf, "mqtt.subscription.max-total"));
    core->registry = sl_registry_new(core->rcu, (uint32_t)sl_conf_int(cf, "mqtt.clients.max-total"),
                                     sl_client_actor_handle);
    core->stamps = sl_stamps_new(core->t_all);
    uint32_t steps = 1024;
    while (steps < (uint32_t)sl_conf_int(cf, "trace.steps"))
        steps *= 2;
    core->trace = sl_msg_trace_new(core->clock, steps, sl_conf_bool(cf, "trace.messages"));
    sl_err err = sl_manager_load(core);
    if (err == SL_ENOSPC)
        *why = message("the disk of %s is full, or less than %lld bytes of it are free "
                       "(SLUICE_LOW_SPACE_BYTES): free some, or lower the mark",
                       sl_conf_str(cf, "storage.dir"),
                       (long long)sl_conf_int(cf, "storage.low-space-bytes"));
    else if (err != SL_OK)
        *why = message("sessions and subscriptions cannot be read from %s: %s",
                       sl_conf_str(cf, "storage.dir"), sl_err_text(err));
    return err;
}

/* Where the inboxes are; only here is it known which adapter that is. */
static sl_err choose_inbox(sl_core *core, char **why)
{
    core->inbox_ops = &sl_inbox_embedded_ops;
    if (strcmp(sl_conf_str(core->conf, "storage.inbox"), "redis") != 0)
        return SL_OK;
    return sl_inbox_redis_load(core->conf, &core->inbox_redis, &core->inbox_ops, why);
}

/* Behind the log, which makes the data folder and keeps other processes out of it. */
static sl_err open_db(sl_broker *br, char **why)
{
    sl_core *core = &br->core;
    sl_db_options options;
    const sl_db_ops *ops = sl_db_conf_load(core->conf, &options);
    options.stats = core->stats;
    options.stats_base = SL_BS_DB;
    sl_err err = sl_db_open(ops, &options, &core->db, why);
    if (err == SL_OK)
        err = sl_node_identity_new(core->db, sl_admin_loop(br->admin), core->clock,
                                   sl_conf_str(core->conf, "storage.dir"), core->service_id,
                                   &br->node, why);
    return err;
}

static unsigned cores(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : (n > MAX_IO_LOOPS ? MAX_IO_LOOPS : (unsigned)n);
}

static sl_err make_loops(sl_core *core)
{
    const sl_conf *cf = core->conf;
    unsigned io = (unsigned)sl_conf_int(cf, "listener.tcp.netty.worker_group_thread_count");
    unsigned io_count = io == 0 ? cores() : io;
    core->device_count = (unsigned)sl_conf_int(cf, "queue.device-persisted-msg.consumers-count");
    unsigned dispatchers = (unsigned)sl_conf_int(cf, "queue.msg-all.consumers-count");
    core->ios = sl_calloc(io_count, sizeof(sl_io *));
    core->devices = sl_calloc(core->device_count, sizeof(sl_device_loop *));
    core->dispatchers = sl_calloc(dispatchers, sizeof(sl_dispatcher *));
    sl_err err = SL_OK;
    for (; err == SL_OK && core->io_count < io_count; core->io_count++) {
        err = sl_io_new(core, core->io_count, &core->ios[core->io_count]);
        if (err != SL_OK)
            break;
    }
    for (unsigned i = 0; err == SL_OK && i < core->device_count; i++)
        err = sl_device_loop_new(core, i, &core->devices[i]);
    for (; err == SL_OK && core->dispatcher_count < dispatchers; core->dispatcher_count++) {
        err = sl_dispatcher_new(core, core->dispatcher_count,
                                &core->dispatchers[core->dispatcher_count]);
        if (err != SL_OK)
            break;
    }
    if (err == SL_OK)
        err = sl_manager_new(core, &core->manager);
    for (unsigned i = 0; err == SL_OK && i < core->device_count; i++)
        err = sl_device_loop_start(core->devices[i]);
    for (unsigned i = 0; err == SL_OK && i < core->dispatcher_count; i++)
        err = sl_dispatcher_start(core->dispatchers[i]);
    if (err == SL_OK)
        err = sl_manager_start(core->manager);
    return err;
}

static bool is_loopback(const char *address)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, address, &v4) == 1)
        return (ntohl(v4.s_addr) >> 24) == 127;
    if (inet_pton(AF_INET6, address, &v6) == 1)
        return IN6_IS_ADDR_LOOPBACK(&v6);
    return strcmp(address, "localhost") == 0;
}

/* Who may come in without credentials is said in the log; a listener that would let nobody in is a
 * mistake and is refused. */
static sl_err check_anonymous(const sl_core *core, char **why)
{
    const char *address = sl_conf_str(core->conf, "listener.tcp.bind_address");
    bool everywhere = sl_conf_bool(core->conf, "security.anonymous");
    if (is_loopback(address)) {
        sl_info(SL_C_BROKER, "ANONYMOUS-ACCESS", SL_S("listener", "tcp"), SL_S("address", address),
                SL_S("because", "bound to loopback"));
        return SL_OK;
    }
    if (everywhere) {
        sl_warn(SL_C_BROKER, "ANONYMOUS-ACCESS", SL_S("listener", "tcp"), SL_S("address", address),
                SL_S("because", "SLUICE_ANONYMOUS=true"));
        return SL_OK;
    }
    *why = message("the tcp listener on %s would refuse every client: there are no credentials "
                   "yet. Bind it to loopback (LISTENER_TCP_BIND_ADDRESS=127.0.0.1), or let "
                   "everybody in (SLUICE_ANONYMOUS=true)",
                   address);
    return SL_EDENIED;
}

static void on_knock(void *arg, sl_listener_event event)
{
    sl_io *io = sl_io_current(arg);
    if (event == SL_LISTENER_REFUSED_FDS && io != NULL)
        sl_io_count(io, SL_BS_TURNED_AWAY, 1);
}

/* Descriptors that clients leave to the store and to the admin port. */
static uint32_t spare_fds(void)
{
    long limit = sysconf(_SC_OPEN_MAX);
    return limit < 8 * MIN_SPARE_FDS ? MIN_SPARE_FDS
                                     : (limit > 8 * MAX_SPARE_FDS ? MAX_SPARE_FDS : limit / 8);
}

static sl_err open_listener(sl_broker *br, char **why)
{
    sl_core *core = &br->core;
    if (!sl_conf_bool(core->conf, "listener.tcp.enabled"))
        return SL_OK;
    sl_loop *loops[MAX_IO_LOOPS];
    for (unsigned i = 0; i < core->io_count; i++)
        loops[i] = core->ios[i]->lp;
    sl_listener_options lo = {.name = "tcp",
                              .address = sl_conf_str(core->conf, "listener.tcp.bind_address"),
                              .port = (uint16_t)sl_conf_int(core->conf, "listener.tcp.bind_port"),
                              .loops = loops,
                              .loop_count = core->io_count,
                              .spare_fds = spare_fds(),
                              .on_accept = sl_io_on_accept,
                              .on_event = on_knock,
                              .arg = core};
    sl_err err = sl_listener_open(&lo, &br->tcp, why);
    core->tcp = br->tcp;
    return err;
}

sl_err sl_broker_start(const sl_conf *cf, sl_broker **out, char **why)
{
    sl_broker *br = sl_calloc(1, sizeof(*br));
    sl_core *core = &br->core;
    sl_clock_init(&br->clock);
    core->clock = &br->clock;
    core->conf = cf;
    core->run_id = (uint32_t)((uint64_t)sl_clock_wall_ns(&br->clock) >> 10) ^ (uint32_t)getpid();
    core->stats = sl_stats_new(SL_BROKER_STAT_ROWS, SL_BS_COUNT);
    sl_stats_set_source(core->stats, SL_BS_SUBSCRIPTIONS, trie_subscriptions, core);
    sl_stats_set_source(core->stats, SL_BS_TRIE_NODES, trie_nodes, core);
    sl_broker_conf_limits(cf, &core->limits);
    name_service(br);
    sl_err err = check_anonymous(core, why);
    if (err == SL_OK)
        err = choose_inbox(core, why);
    // The admin port answers while the state is being restored: alive, not ready.
    if (err == SL_OK)
        err = sl_admin_new(core, &br->admin, why);
    if (err == SL_OK)
        err = open_log(core, why);
    if (err == SL_OK)
        err = open_db(br, why);
    if (err == SL_OK)
        err = open_topics(core, why);
    if (err == SL_OK)
        err = make_state(br, why);
    if (err == SL_OK) {
        err = make_loops(core);
        if (err != SL_OK)
            *why = message("threads and consumers cannot be started: %s", sl_err_text(err));
    }
    if (err == SL_OK)
        err = open_listener(br, why);
    if (err != SL_OK) {
        sl_broker_stop(&br);
        return err;
    }
    if (br->tcp != NULL)
        sl_listener_start(br->tcp);
    atomic_store(&core->ready, true);
    sl_info(SL_C_BROKER, "BROKER-READY", SL_S("service_id", core->service_id),
            SL_S("address", sl_conf_str(cf, "listener.tcp.bind_address")),
            SL_U("tcp", br->tcp != NULL ? sl_listener_port(br->tcp) : 0),
            SL_U("http", sl_admin_port(br->admin)), SL_U("pid", getpid()));
    *out = br;
    return SL_OK;
}

/* ---- stop
 * ---------------------------------------------------------------------------------------------------
 */

typedef struct waiter {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned left;
} waiter;

static void one_closed(void *arg)
{
    waiter *wt = arg;
    pthread_mutex_lock(&wt->lock);
    wt->left--;
    pthread_cond_signal(&wt->changed);
    pthread_mutex_unlock(&wt->lock);
}

typedef struct close_call {
    sl_io *io;
    waiter *wt;
} close_call;

static void close_all(void *arg)
{
    close_call *cc = arg;
    sl_io_close_all(cc->io, one_closed, cc->wt);
}

static void end_connections(sl_core *core)
{
    waiter wt = {.left = core->io_count};
    close_call calls[MAX_IO_LOOPS];
    pthread_mutex_init(&wt.lock, NULL);
    pthread_cond_init(&wt.changed, NULL);
    for (unsigned i = 0; i < core->io_count; i++) {
        calls[i] = (close_call){.io = core->ios[i], .wt = &wt};
        sl_loop_call(core->ios[i]->lp, close_all, &calls[i]);
    }
    pthread_mutex_lock(&wt.lock);
    while (wt.left > 0)
        pthread_cond_wait(&wt.changed, &wt.lock);
    pthread_mutex_unlock(&wt.lock);
    pthread_cond_destroy(&wt.changed);
    pthread_mutex_destroy(&wt.lock);
}

static void stop_loops(sl_core *core)
{
    if (core->manager != NULL)
        sl_manager_stop(core->manager);
    for (unsigned i = 0; i < core->dispatcher_count; i++)
        sl_dispatcher_stop(core->dispatchers[i]);
    for (unsigned i = 0; i < core->device_count; i++) {
        if (core->devices[i] != NULL)
            sl_device_loop_stop(core->devices[i]);
    }
}

static void free_parts(sl_core *core)
{
    // Letters between loops may hold messages and clients: all loops end before any is freed.
    for (unsigned i = 0; i < core->io_count; i++)
        sl_io_stop(core->ios[i]);
    sl_manager_free(&core->manager);
    for (unsigned i = 0; core->dispatchers != NULL && i < core->dispatcher_count; i++)
        sl_dispatcher_free(&core->dispatchers[i]);
    for (unsigned i = 0; core->devices != NULL && i < core->device_count; i++)
        sl_device_loop_free(&core->devices[i]);
    for (unsigned i = 0; i < core->io_count; i++)
        sl_io_free(&core->ios[i]);
    sl_free(core->ios);
    sl_free(core->devices);
    sl_free(core->dispatchers);
    sl_registry_free(&core->registry);
    sl_sub_trie_free(&core->trie);
    sl_stamps_free(&core->stamps);
    sl_rcu_free(&core->rcu);
}

void sl_broker_stop(sl_broker **pointer)
{
    sl_broker *br = *pointer;
    if (br == NULL)
        return;
    *pointer = NULL;
    sl_core *core = &br->core;
    bool was_ready = atomic_exchange(&core->ready, false);
    atomic_store(&core->draining, true);
    if (was_ready)
        sl_info(SL_C_BROKER, "BROKER-STOPPING",
                SL_U("connections", sl_stats_get(core->stats, SL_BS_CONNECTIONS)));
    if (br->tcp != NULL)
        sl_listener_close(&br->tcp);
    if (core->io_count > 0)
        end_connections(core);
    stop_loops(core);
    if (br->admin != NULL)
        sl_admin_stop(br->admin); // it shows what is freed next
    sl_db_close(&core->db);       // while the loops that asked it still run
    sl_admin_free(&br->admin);
    sl_node_identity_free(&br->node);
    free_parts(core);
    if (core->log != NULL)
        sl_log_close(&core->log);
    sl_msg_trace_free(&core->trace);
    sl_inbox_redis_options_free(&core->inbox_redis);
    sl_stats_free(&core->stats);
    if (was_ready)
        sl_info(SL_C_BROKER, "BROKER-STOPPED");
    sl_free(br);
}
