/* SPDX-License-Identifier: Apache-2.0
 *
 * http/server: life cycle of the front: listener, one shard per loop, the flush at the end of a
 * turn, deadlines, draining.
 */
#include "http/server.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/logger.h"
#include "http/http_int.h"

/* On the loop, waited for. */
static void run_on(sl_loop *lp, void (*fn)(void *arg), void *arg)
{
    bool ran = sl_loop_call_wait(lp, fn, arg);
    SL_ASSERT(ran); // a loop outlives the server on it
}

/* ---- shards ---- */

http_shard *http_shard_of(sl_http_server *sv, sl_loop *lp)
{
    for (unsigned i = 0; i < sv->opt.loop_count; i++)
        if (sv->shards[i].lp == lp)
            return &sv->shards[i];
    SL_ASSERT(!"a connection on a loop that is none of the server's");
    return NULL;
}

const char *http_shard_date(http_shard *sh)
{
    int64_t now_s = sl_clock_wall(sl_loop_clock(sh->lp)) / 1000;
    if (now_s != sh->date_s || sh->date[0] == '\0') {
        static const char days[7][4] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
        static const char months[12][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                           "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
        struct tm tm;
        time_t time = (time_t)now_s;
        (void)gmtime_r(&time, &tm);
        (void)snprintf(sh->date, sizeof(sh->date), "Date: %s, %02u %s %04u %02u:%02u:%02u GMT\r\n",
                       days[tm.tm_wday % 7], (unsigned)tm.tm_mday % 100, months[tm.tm_mon % 12],
                       (unsigned)(tm.tm_year + 1900) % 10000, (unsigned)tm.tm_hour % 100,
                       (unsigned)tm.tm_min % 100, (unsigned)tm.tm_sec % 100);
        sh->date_s = now_s;
    }
    return sh->date;
}

/* Sends what the turn has queued: one system call per connection. */
static void on_flush(uv_prepare_t *handle)
{
    http_shard *sh = handle->data;
    uv_prepare_stop(handle);
    // what becomes dirty from here on is for the next round, so that one busy pair of connections
    // cannot hold the loop
    sl_list batch;
    sl_list_init(&batch);
    for (sl_node *node; (node = sl_list_pop_front(&sh->dirty)) != NULL;)
        sl_list_push_back(&batch, node);
    for (sl_node *node; (node = sl_list_pop_front(&batch)) != NULL;)
        http_conn_flush(SL_CONTAINER(node, http_conn, in_dirty));
}

void http_shard_mark(http_shard *sh, http_conn *cn)
{
    if (sl_node_is_linked(&cn->in_dirty))
        return;
    if (sl_list_is_empty(&sh->dirty)) {
        int rc = uv_prepare_start(sh->flush, on_flush);
        SL_ASSERT(rc == 0);
    }
    sl_list_push_back(&sh->dirty, &cn->in_dirty);
}

static void on_sweep(void *arg)
{
    http_shard *sh = arg;
    sl_mono_ms now = sl_loop_now(sh->lp);
    bool cut = sh->drain_deadline != 0 && now >= sh->drain_deadline;
    for (sl_node *node = sl_list_first(&sh->conns), *next; node != NULL; node = next) {
        next = sl_list_next(&sh->conns, node); // connections are freed in later turns only
        http_conn *cn = SL_CONTAINER(node, http_conn, in_shard);
        if (cut)
            http_conn_close(cn);
        else
            http_conn_check_deadlines(cn, now);
    }
}

static void shard_init(void *arg)
{
    http_shard *sh = arg;
    sh->flush = sl_calloc(1, sizeof(*sh->flush));
    int rc = uv_prepare_init(sl_loop_uv(sh->lp), sh->flush);
    SL_ASSERT(rc == 0);
    sh->flush->data = sh;
    sl_timer_init(&sh->sweep, sh->lp, on_sweep, sh);
}

static void on_flush_closed(uv_handle_t *handle)
{
    sl_free(handle);
}

static void shard_fini(void *arg)
{
    http_shard *sh = arg;
    SL_ASSERT(sl_list_is_empty(&sh->conns));
    sl_timer_fini(&sh->sweep);
    uv_close((uv_handle_t *)sh->flush, on_flush_closed);
    sh->flush = NULL;
}

/* ---- life cycle ---- */

static void fill_defaults(sl_http_options *opt)
{
#define DEFAULT(field, value) opt->field = opt->field != 0 ? opt->field : (value)
    DEFAULT(threads, 2);
    DEFAULT(max_connections, 10000);
    DEFAULT(max_running, 256);
    DEFAULT(max_head_bytes, 16u << 10);
    DEFAULT(max_headers, 100);
    DEFAULT(max_body_bytes, 1u << 20);
    DEFAULT(head_ms, 10000);
    DEFAULT(body_ms, 30000);
    DEFAULT(idle_ms, 60000);
    DEFAULT(write_ms, 30000);
#undef DEFAULT
}

static void on_listener_event(void *arg, sl_listener_event event)
{
    sl_http_server *sv = arg;
    if (event == SL_LISTENER_ACCEPTED)
        HTTP_COUNT(sv, accepted, 1);
    else
        HTTP_COUNT(sv, refused, 1);
}

sl_err sl_http_server_new(const sl_http_options *options, sl_http_server **out, char **why)
{
    sl_http_server *sv = sl_calloc(1, sizeof(*sv));
    sv->magic = HTTP_SERVER_MAGIC;
    sv->opt = *options;
    fill_defaults(&sv->opt);
    sl_listener_options lo = {
        .name = options->name,
        .address = options->address,
        .port = options->port,
        .loops = options->loops,
        .loop_count = options->loop_count,
        .max_connections = sv->opt.max_connections,
        .on_accept = http_conn_accept,
        .on_event = on_listener_event,
        .arg = sv,
    };
    sl_err err = sl_listener_open(&lo, &sv->ls, why);
    if (err != SL_OK) {
        sl_free(sv);
        return err;
    }
    sv->ls_ref = sv->ls;
    sv->port = sl_listener_port(sv->ls);
    sv->opt.name = sl_strdup(options->name);
    sv->opt.address = sl_strdup(options->address);
    sv->opt.allow_headers =
        options->allow_headers == NULL ? NULL : sl_strdup(options->allow_headers);
    sv->opt.loops = NULL; // the shards know them
    sv->shards = sl_calloc(options->loop_count, sizeof(http_shard));
    for (unsigned i = 0; i < options->loop_count; i++) {
        sv->shards[i].sv = sv;
        sv->shards[i].lp = options->loops[i];
        sl_list_init(&sv->shards[i].conns);
        sl_list_init(&sv->shards[i].dirty);
    }
    (void)pthread_mutex_init(&sv->lock, NULL);
    sv->by_id = sl_imap_new(2 * (size_t)sv->opt.max_running);
    atomic_init(&sv->next_id, 1);
    atomic_init(&sv->live, 1);
    *out = sv;
    return SL_OK;
}

void sl_http_server_route(sl_http_server *sv, const sl_http_route *routes, size_t count)
{
    SL_CHECK(sv, HTTP_SERVER_MAGIC);
    SL_ASSERT(!sv->started);
    for (size_t i = 0; i < count; i++) {
        SL_ASSERT(routes[i].pattern[0] == '/' && routes[i].methods != 0);
        SL_ASSERT((routes[i].fn == NULL) != (routes[i].on_loop == NULL));
    }
    sv->routes = sl_realloc(sv->routes, (sv->route_count + count) * sizeof(sl_http_route));
    memcpy(sv->routes + sv->route_count, routes, count * sizeof(sl_http_route));
    sv->route_count += count;
}

sl_err sl_http_server_start(sl_http_server *sv)
{
    SL_CHECK(sv, HTTP_SERVER_MAGIC);
    sl_err err = http_backend_start(sv);
    if (err != SL_OK)
        return err;
    sv->started = true;
    for (unsigned i = 0; i < sv->opt.loop_count; i++)
        run_on(sv->shards[i].lp, shard_init, &sv->shards[i]);
    sl_listener_start(sv->ls);
    sl_info(SL_C_HTTP, "HTTP-LISTENING", SL_S("listener", sv->opt.name),
            SL_S("address", sv->opt.address), SL_U("port", sv->port));
    return SL_OK;
}

uint16_t sl_http_server_port(const sl_http_server *sv)
{
    return sv->port;
}

void sl_http_server_counts(const sl_http_server *sv, sl_http_counts *out)
{
#define READ(name) (uint64_t) atomic_load_explicit(&sv->counters.name, memory_order_relaxed)
    *out = (sl_http_counts){
        .connections = READ(connections),
        .streams = READ(streams),
        .accepted = READ(accepted),
        .refused = READ(refused),
        .requests = READ(requests),
        .bad_requests = READ(bad_requests),
        .busy = READ(busy),
        .timeouts = READ(timeouts),
        .stream_limit = READ(stream_limit),
    };
#undef READ
}

void http_server_unlive(sl_http_server *sv)
{
    if (atomic_fetch_sub_explicit(&sv->live, 1, memory_order_acq_rel) != 1)
        return;
    bool posted = sl_loop_call(sv->shards[0].lp, sv->done, sv->done_arg);
    SL_ASSERT(posted);
}

typedef struct drain_order {
    http_shard *sh;
    sl_dur_ms max_ms;
} drain_order;

static void drain_shard(void *arg)
{
    drain_order *order = arg;
    http_shard *sh = order->sh;
    sh->drain_deadline = sl_loop_now(sh->lp) + order->max_ms;
    for (sl_node *node = sl_list_first(&sh->conns), *next; node != NULL; node = next) {
        next = sl_list_next(&sh->conns, node);
        http_conn_drain(SL_CONTAINER(node, http_conn, in_shard));
    }
    if (!sl_list_is_empty(&sh->conns))
        sl_timer_start(&sh->sweep, 100, 100); // a finer sweep, for the deadline of the drain
    http_server_unlive(sh->sv);
    sl_free(order);
}

void sl_http_server_drain(sl_http_server *sv, sl_dur_ms max_ms, void (*done)(void *arg), void *arg)
{
    SL_CHECK(sv, HTTP_SERVER_MAGIC);
    SL_ASSERT(sv->started && sv->ls != NULL);
    sv->done = done;
    sv->done_arg = arg;
    sl_listener_close(&sv->ls);
    atomic_fetch_add_explicit(&sv->live, sv->opt.loop_count, memory_order_relaxed);
    for (unsigned i = 0; i < sv->opt.loop_count; i++) {
        drain_order *order = sl_alloc(sizeof(*order));
        *order = (drain_order){&sv->shards[i], max_ms};
        bool posted = sl_loop_call(sv->shards[i].lp, drain_shard, order);
        SL_ASSERT(posted);
    }
    http_server_unlive(sv);
}

void sl_http_server_free(sl_http_server **svp)
{
    sl_http_server *sv = *svp;
    if (sv == NULL)
        return;
    *svp = NULL;
    SL_CHECK(sv, HTTP_SERVER_MAGIC);
    sl_listener_close(&sv->ls);
    if (sv->started)
        for (unsigned i = 0; i < sv->opt.loop_count; i++)
            run_on(sv->shards[i].lp, shard_fini, &sv->shards[i]);
    http_backend_stop(sv);
    SL_ASSERT(sl_imap_count(sv->by_id) == 0);
    sl_imap_free(&sv->by_id);
    (void)pthread_mutex_destroy(&sv->lock);
    sl_free(sv->routes);
    sl_free(sv->shards);
    sl_free((void *)(uintptr_t)sv->opt.name);
    sl_free((void *)(uintptr_t)sv->opt.address);
    sl_free((void *)(uintptr_t)sv->opt.allow_headers);
    sv->magic = 0;
    sl_free(sv);
}
