/* SPDX-License-Identifier: Apache-2.0
 *
 * redis_topology: who serves what: the master by the Sentinels, slots by CLUSTER SLOTS. Asked over
 * a connection of its own, candidate after candidate, whenever something shows that what we know is
 * out of date.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "store/redis_int.h"

#define PAUSE_MS   200  /* between two questions that were answered */
#define UNOWNED_MS 1000 /* asked again while slots are served by nobody */

static void begin(sl_redis *rd);

/* ---- nodes and slots ------------------------------------------------------------------------- */

sl_redis_node *redis_node_at(sl_redis *rd, const char *host, uint16_t port)
{
    for (sl_node *at = sl_list_first(&rd->nodes); at != NULL; at = sl_list_next(&rd->nodes, at)) {
        sl_redis_node *nd = SL_CONTAINER(at, sl_redis_node, in_list);
        if (nd->port == port && strcmp(nd->host, host) == 0)
            return nd;
    }
    return redis_node_new(rd, host, port);
}

void redis_own(sl_redis *rd, uint16_t slot, sl_redis_node *nd)
{
    if (rd->opt.mode != SL_REDIS_CLUSTER)
        return;
    rd->owned_slots += rd->owners[slot] == NULL;
    rd->owners[slot] = nd;
    nd->is_wanted = true;
}

static bool parse_port(sl_slice text, uint16_t *port)
{
    uint32_t value = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9' || value > 65535)
            return false;
        value = value * 10 + (uint32_t)(text.ptr[i] - '0');
    }
    *port = (uint16_t)value;
    return text.len > 0 && value > 0 && value <= 65535;
}

static bool copy_host(sl_slice text, char *out, size_t max)
{
    if (text.len == 0 || text.len >= max || memchr(text.ptr, '\0', text.len) != NULL)
        return false;
    memcpy(out, text.ptr, text.len);
    out[text.len] = '\0';
    return true;
}

sl_redis_node *redis_node_told(sl_redis *rd, const sl_redis_node *from, sl_slice text)
{
    // "MOVED 3999 127.0.0.1:6381"; the host may be empty, and an IPv6 one has colons of its own.
    size_t start = text.len, colon = text.len;
    while (start > 0 && text.ptr[start - 1] != ' ')
        start--;
    while (colon > start && text.ptr[colon - 1] != ':')
        colon--;
    uint16_t port;
    if (colon == start || !parse_port(sl_slice_of(text.ptr + colon, text.len - colon), &port))
        return NULL;
    char host[256];
    if (!copy_host(sl_slice_of(text.ptr + start, colon - 1 - start), host, sizeof(host)))
        snprintf(host, sizeof(host), "%s", from->host);
    return redis_node_at(rd, host, port);
}

void redis_check_state(sl_redis *rd)
{
    bool is_up = rd->opt.mode != SL_REDIS_CLUSTER || rd->owned_slots == SL_REDIS_SLOTS;
    for (sl_node *at = sl_list_first(&rd->nodes); at != NULL; at = sl_list_next(&rd->nodes, at)) {
        const sl_redis_node *nd = SL_CONTAINER(at, sl_redis_node, in_list);
        is_up = is_up && (!nd->is_wanted || nd->state == REDIS_NODE_READY);
    }
    if (is_up == rd->is_up || rd->is_closing)
        return;
    rd->is_up = is_up;
    if (rd->opt.on_state != NULL)
        rd->opt.on_state(rd->opt.arg, is_up);
}

/* ---- answers --------------------------------------------------------------------------------- */

static bool take_master(sl_redis *rd, const sl_redis_reply *reply)
{
    const sl_redis_reply *name = sl_redis_item(reply, 0), *number = sl_redis_item(reply, 1);
    char host[256];
    uint16_t port;
    if (name == NULL || number == NULL || !copy_host(name->text, host, sizeof(host)) ||
        !parse_port(number->text, &port))
        return false;
    redis_node_move(rd->single, host, port);
    redis_node_connect(rd->single);
    return true;
}

/* One row: first slot, last slot, master (host, port, ...), replicas. */
static bool take_row(sl_redis *rd, const sl_redis_reply *row)
{
    const sl_redis_reply *from = sl_redis_item(row, 0), *to = sl_redis_item(row, 1);
    const sl_redis_reply *name = sl_redis_item(sl_redis_item(row, 2), 0);
    const sl_redis_reply *number = sl_redis_item(sl_redis_item(row, 2), 1);
    if (from == NULL || to == NULL || name == NULL || number == NULL || from->integer < 0 ||
        to->integer >= SL_REDIS_SLOTS || number->integer <= 0 || number->integer > 65535)
        return false;
    char host[256];
    bool is_named = copy_host(name->text, host, sizeof(host)) && strcmp(host, "?") != 0;
    sl_redis_node *nd =
        redis_node_at(rd, is_named ? host : rd->finder.host, (uint16_t)number->integer);
    for (int64_t slot = from->integer; slot <= to->integer; slot++)
        redis_own(rd, (uint16_t)slot, nd);
    nd->is_wanted = true;
    return true;
}

/* Those that serve nothing and owe nothing any more. */
static void drop_unwanted(sl_redis *rd)
{
    for (sl_node *at = sl_list_first(&rd->nodes), *next; at != NULL; at = next) {
        next = sl_list_next(&rd->nodes, at);
        sl_redis_node *nd = SL_CONTAINER(at, sl_redis_node, in_list);
        if (nd->is_wanted || (nd->cn != NULL && !sl_redis_conn_is_idle(nd->cn)))
            continue;
        redis_forget_node(rd, nd);
        redis_node_free(&nd);
    }
}

static bool take_slots(sl_redis *rd, const sl_redis_reply *reply)
{
    if (reply->kind != SL_REDIS_ARRAY || reply->count == 0)
        return false;
    for (sl_node *at = sl_list_first(&rd->nodes); at != NULL; at = sl_list_next(&rd->nodes, at))
        SL_CONTAINER(at, sl_redis_node, in_list)->is_wanted = false;
    memset(rd->owners, 0, sizeof(rd->owners));
    rd->owned_slots = 0;
    bool is_ok = true;
    for (size_t i = 0; i < reply->count; i++)
        is_ok = take_row(rd, reply->items[i]) && is_ok;
    drop_unwanted(rd);
    for (sl_node *at = sl_list_first(&rd->nodes); at != NULL; at = sl_list_next(&rd->nodes, at))
        redis_node_connect(SL_CONTAINER(at, sl_redis_node, in_list));
    return is_ok;
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void wait_then_ask(sl_redis *rd, sl_dur_ms delay)
{
    rd->finder.is_waiting = true;
    sl_timer_start(&rd->finder.timer, delay, 0);
}

static void on_timer(void *arg)
{
    sl_redis *rd = arg;
    rd->finder.is_waiting = false;
    if (rd->finder.is_wanted && rd->finder.cn == NULL)
        begin(rd);
}

static void failed(sl_redis *rd, const char *why, sl_slice detail)
{
    redis_finder *fi = &rd->finder;
    uint32_t held = 0;
    if (sl_log_limit_pass_at(&fi->limit, sl_loop_now(rd->opt.lp), REDIS_LOG_BURST, REDIS_LOG_PERIOD,
                             &held))
        sl_warn(SL_C_INBOX, "REDIS-TOPOLOGY-UNKNOWN", SL_S("asked", fi->host),
                SL_U("port", fi->port), SL_S("reason", why), SL_B("detail", detail),
                SL_U("suppressed", held));
    sl_redis_conn_close(&fi->cn);
    fi->is_wanted = true;
    wait_then_ask(rd, redis_backoff(rd, (unsigned)(fi->failures / rd->opt.seed_count)));
    fi->failures++;
}

static void auth_answered(sl_redis_call *call, sl_redis_reply **reply)
{
    (void)call; // a refusal shows in the answer to the question behind it
    (void)reply;
}

static void query_answered(sl_redis_call *call, sl_redis_reply **reply)
{
    redis_finder *fi = SL_CONTAINER(call, redis_finder, query);
    sl_redis *rd = SL_CONTAINER(fi, sl_redis, finder);
    if (*reply == NULL)
        return;
    bool is_cluster = rd->opt.mode == SL_REDIS_CLUSTER;
    bool is_taken = is_cluster ? take_slots(rd, *reply) : take_master(rd, *reply);
    if (!is_taken) {
        failed(rd, is_cluster ? "no slots in the answer" : "the Sentinel does not know the master",
               (*reply)->text);
        return;
    }
    sl_redis_conn_close(&fi->cn);
    fi->failures = 0;
    bool is_whole = !is_cluster || rd->owned_slots == SL_REDIS_SLOTS;
    fi->is_wanted = fi->is_wanted || !is_whole;
    wait_then_ask(rd, is_whole ? PAUSE_MS : UNOWNED_MS);
    redis_check_state(rd);
    redis_kick(rd);
}

static void send_question(sl_redis *rd, sl_redis_call *call, char **bytes, const sl_slice *argv,
                          size_t argc, void (*done)(sl_redis_call *call, sl_redis_reply **reply))
{
    sl_redis_bytes_free(bytes);
    *bytes = sl_redis_format(argv, argc, &call->len);
    call->bytes = *bytes;
    call->done = done;
    sl_redis_conn_send(rd->finder.cn, call);
}

static void on_open(void *arg)
{
    sl_redis *rd = arg;
    redis_finder *fi = &rd->finder;
    bool is_cluster = rd->opt.mode == SL_REDIS_CLUSTER;
    const char *password = is_cluster ? rd->opt.password : rd->opt.sentinel_password;
    bool has_user = is_cluster && rd->opt.username[0] != '\0';
    sl_slice auth[3] = {sl_slice_str("AUTH")};
    size_t count = 1;
    if (has_user)
        auth[count++] = sl_slice_str(rd->opt.username);
    auth[count++] = sl_slice_str(password);
    if (password[0] != '\0')
        send_question(rd, &fi->auth, &fi->auth_bytes, auth, count, auth_answered);
    const sl_slice slots[] = {sl_slice_str("CLUSTER"), sl_slice_str("SLOTS")};
    const sl_slice master[] = {sl_slice_str("SENTINEL"), sl_slice_str("get-master-addr-by-name"),
                               sl_slice_str(is_cluster ? "" : rd->opt.master)};
    send_question(rd, &fi->query, &fi->query_bytes, is_cluster ? slots : master, is_cluster ? 2 : 3,
                  query_answered);
}

static void on_down(void *arg, sl_err err, const char *why)
{
    (void)err;
    failed(arg, why, (sl_slice){0});
}

/* The configured addresses, and the nodes of a cluster that we know. */
static void choose(sl_redis *rd)
{
    redis_finder *fi = &rd->finder;
    size_t at = fi->next++;
    const char *host = rd->opt.seeds[0].host;
    uint16_t port = rd->opt.seeds[0].port;
    if (at < rd->opt.seed_count) {
        host = rd->opt.seeds[at].host;
        port = rd->opt.seeds[at].port;
    } else {
        sl_node *nd = rd->opt.mode == SL_REDIS_CLUSTER ? sl_list_first(&rd->nodes) : NULL;
        for (at -= rd->opt.seed_count; nd != NULL && at > 0; at--)
            nd = sl_list_next(&rd->nodes, nd);
        if (nd == NULL)
            fi->next = 1;
        else
            host = SL_CONTAINER(nd, sl_redis_node, in_list)->host;
        if (nd != NULL)
            port = SL_CONTAINER(nd, sl_redis_node, in_list)->port;
    }
    sl_free(fi->host);
    fi->host = sl_strdup(host);
    fi->port = port;
}

static void begin(sl_redis *rd)
{
    redis_finder *fi = &rd->finder;
    fi->is_wanted = false;
    choose(rd);
    const sl_redis_conn_options options = {.lp = rd->opt.lp,
                                           .pool = rd->opt.pool,
                                           .dial = rd->opt.dial,
                                           .dial_arg = rd->opt.dial_arg,
                                           .host = fi->host,
                                           .tls = rd->opt.tls,
                                           .port = fi->port,
                                           .connect_timeout = rd->opt.connect_timeout,
                                           .reply_timeout = rd->opt.connect_timeout,
                                           .on_open = on_open,
                                           .on_down = on_down,
                                           .arg = rd};
    fi->cn = sl_redis_conn_new(&options);
}

void redis_find(sl_redis *rd)
{
    if (rd->opt.mode == SL_REDIS_STANDALONE || rd->is_closing)
        return;
    rd->finder.is_wanted = true;
    if (rd->finder.cn == NULL && !rd->finder.is_waiting)
        begin(rd);
}

void redis_finder_init(sl_redis *rd)
{
    sl_timer_init(&rd->finder.timer, rd->opt.lp, on_timer, rd);
}

void redis_finder_fini(sl_redis *rd)
{
    redis_finder *fi = &rd->finder;
    sl_redis_conn_close(&fi->cn);
    sl_timer_fini(&fi->timer);
    sl_redis_bytes_free(&fi->auth_bytes);
    sl_redis_bytes_free(&fi->query_bytes);
    sl_free(fi->host);
    fi->host = NULL;
}
