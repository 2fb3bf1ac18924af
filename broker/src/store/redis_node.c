/* SPDX-License-Identifier: Apache-2.0
 *
 * redis_node: one server of the Redis client: dials, greets (password, database, role, the kill of
 * an older connection, scripts), tells when it is ready, dials again when it was lost.
 *
 * The kill matters: a server that hung may still hold commands of a connection that we gave up, and
 * would do them after what we send on the new one.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "store/redis_int.h"

typedef enum greet_step {
    GREET_AUTH,
    GREET_SELECT,
    GREET_NAME,
    GREET_ROLE,
    GREET_INFO,
    GREET_KILL,
    GREET_SCRIPT,
    GREET_RELOAD /* of a script, when the server has lost it */
} greet_step;

typedef struct greeting {
    sl_redis_call call;
    sl_redis_node *nd;
    greet_step step;
    char *bytes; /* owned */
} greeting;

static void log_lost(sl_redis_node *nd, const char *event, const char *why, sl_slice detail)
{
    uint32_t held = 0;
    if (sl_log_limit_pass_at(&nd->limit, sl_loop_now(nd->rd->opt.lp), REDIS_LOG_BURST,
                             REDIS_LOG_PERIOD, &held))
        sl_warn(SL_C_INBOX, event, SL_S("host", nd->host), SL_U("port", nd->port),
                SL_S("reason", why), SL_B("detail", detail), SL_U("suppressed", held));
}

/* ---- greeting -------------------------------------------------------------------------------- */

static bool is_fatal(greet_step step, const sl_redis_reply *reply)
{
    if (step == GREET_ROLE) {
        const sl_redis_reply *role = sl_redis_item(reply, 0);
        return role == NULL || !sl_slice_equal(role->text, sl_slice_str("master"));
    }
    return reply->kind == SL_REDIS_ERROR &&
           (step == GREET_AUTH || step == GREET_SELECT || step == GREET_SCRIPT);
}

/* "id=7 addr=127.0.0.1:40000 ...": the value behind a name that begins a word. */
static void take_field(sl_slice text, const char *name, char *out, size_t max)
{
    size_t len = strlen(name);
    out[0] = '\0';
    for (size_t at = 0; at + len <= text.len; at++) {
        if ((at > 0 && text.ptr[at - 1] != ' ') || memcmp(text.ptr + at, name, len) != 0)
            continue;
        size_t to = 0;
        for (at += len; at < text.len && text.ptr[at] > ' ' && to + 1 < max; at++)
            out[to++] = (char)text.ptr[at];
        out[to] = '\0';
        return;
    }
}

static const char *step_text(greet_step step)
{
    static const char *const texts[] = {
        "user and password",  "database", "name",  "role is not master",
        "client information", "kill",     "script"};
    return texts[step];
}

static void become_ready(sl_redis_node *nd)
{
    nd->state = REDIS_NODE_READY;
    nd->failures = 0;
    nd->old_id[0] = '\0';
    sl_info(SL_C_INBOX, "REDIS-CONNECTED", SL_S("host", nd->host), SL_U("port", nd->port));
    redis_check_state(nd->rd);
    redis_kick(nd->rd);
}

static void greet_answered(sl_redis_call *call, sl_redis_reply **reply)
{
    greeting *gr = SL_CONTAINER(call, greeting, call);
    sl_redis_node *nd = gr->nd;
    greet_step step = gr->step;
    sl_redis_bytes_free(&gr->bytes);
    sl_free(gr);
    if (*reply == NULL)
        return; // the connection ended, which is told elsewhere
    if (step == GREET_RELOAD) {
        nd->loading--;
        return;
    }
    if (nd->state != REDIS_NODE_CONNECTING)
        return;
    if (is_fatal(step, *reply)) {
        log_lost(nd, "REDIS-REFUSED", step_text(step),
                 step == GREET_ROLE ? (sl_slice){0} : (*reply)->text);
        redis_node_restart(nd);
        return;
    }
    if (step == GREET_INFO && (*reply)->kind == SL_REDIS_STRING) {
        take_field((*reply)->text, "id=", nd->id, sizeof(nd->id));
        take_field((*reply)->text, "addr=", nd->address, sizeof(nd->address));
    }
    SL_ASSERT(nd->owed > 0);
    if (--nd->owed == 0)
        become_ready(nd);
}

static void greet(sl_redis_node *nd, greet_step step, const sl_slice *argv, size_t argc)
{
    greeting *gr = sl_calloc(1, sizeof(*gr));
    gr->nd = nd;
    gr->step = step;
    gr->bytes = sl_redis_format(argv, argc, &gr->call.len);
    gr->call.bytes = gr->bytes;
    gr->call.done = greet_answered;
    if (step == GREET_RELOAD)
        nd->loading++;
    else
        nd->owed++;
    sl_redis_conn_send(nd->cn, &gr->call);
}

#define GREET(nd, step, ...)                                                                       \
    greet((nd), (step), (const sl_slice[]){__VA_ARGS__},                                           \
          sizeof((const sl_slice[]){__VA_ARGS__}) / sizeof(sl_slice))
#define WORD(text) sl_slice_str(text)

static void load_scripts(sl_redis_node *nd, greet_step step)
{
    for (size_t i = 0; i < nd->rd->opt.script_count; i++)
        GREET(nd, step, WORD("SCRIPT"), WORD("LOAD"), WORD(nd->rd->opt.scripts[i].text));
}

static void on_open(void *arg)
{
    sl_redis_node *nd = arg;
    const sl_redis_options *opt = &nd->rd->opt;
    if (opt->password[0] != '\0' && opt->username[0] != '\0')
        GREET(nd, GREET_AUTH, WORD("AUTH"), WORD(opt->username), WORD(opt->password));
    else if (opt->password[0] != '\0')
        GREET(nd, GREET_AUTH, WORD("AUTH"), WORD(opt->password));
    if (opt->database != 0) {
        char number[16];
        snprintf(number, sizeof(number), "%u", opt->database);
        GREET(nd, GREET_SELECT, WORD("SELECT"), WORD(number));
    }
    if (opt->mode == SL_REDIS_SENTINEL)
        GREET(nd, GREET_ROLE, WORD("ROLE"));
    GREET(nd, GREET_NAME, WORD("CLIENT"), WORD("SETNAME"), WORD(opt->name));
    if (nd->old_id[0] != '\0')
        GREET(nd, GREET_KILL, WORD("CLIENT"), WORD("KILL"), WORD("ID"), WORD(nd->old_id),
              WORD("ADDR"), WORD(nd->old_address), WORD("SKIPME"), WORD("yes"));
    GREET(nd, GREET_INFO, WORD("CLIENT"), WORD("INFO"));
    load_scripts(nd, GREET_SCRIPT);
}

void redis_node_load_scripts(sl_redis_node *nd)
{
    if (nd->state == REDIS_NODE_READY && nd->loading == 0) {
        sl_info(SL_C_INBOX, "REDIS-SCRIPTS-RELOADED", SL_S("host", nd->host),
                SL_U("port", nd->port));
        load_scripts(nd, GREET_RELOAD);
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

/* What was sent there may still be done there. */
static void remember_old(sl_redis_node *nd)
{
    if (nd->id[0] == '\0' || nd->state == REDIS_NODE_CONNECTING)
        return;
    memcpy(nd->old_id, nd->id, sizeof(nd->old_id));
    memcpy(nd->old_address, nd->address, sizeof(nd->old_address));
    nd->id[0] = '\0';
}

static void hang_up(sl_redis_node *nd)
{
    remember_old(nd);
    nd->state = REDIS_NODE_DOWN;
    sl_redis_conn_close(&nd->cn); // its operations go back to their lanes
    nd->owed = nd->loading = 0;
    redis_check_state(nd->rd);
}

static void try_later(sl_redis_node *nd)
{
    sl_timer_start(&nd->timer, redis_backoff(nd->rd, nd->failures), 0);
    nd->failures++;
    redis_find(nd->rd);
}

static void on_down(void *arg, sl_err err, const char *why)
{
    sl_redis_node *nd = arg;
    bool was_ready = nd->state == REDIS_NODE_READY;
    (void)err;
    log_lost(nd, was_ready ? "REDIS-LOST" : "REDIS-NOT-REACHED", why, (sl_slice){0});
    hang_up(nd);
    try_later(nd);
}

static void on_timer(void *arg)
{
    sl_redis_node *nd = arg;
    if (nd->state == REDIS_NODE_STALE) {
        hang_up(nd);
        try_later(nd);
        return;
    }
    if (nd->rd->opt.mode == SL_REDIS_SENTINEL)
        redis_find(nd->rd); // the Sentinels say where
    else
        redis_node_connect(nd);
}

void redis_node_connect(sl_redis_node *nd)
{
    sl_redis *rd = nd->rd;
    if (nd->state != REDIS_NODE_DOWN || rd->is_closing)
        return;
    sl_timer_stop(&nd->timer);
    nd->state = REDIS_NODE_CONNECTING;
    nd->id[0] = '\0';
    const sl_redis_conn_options options = {.lp = rd->opt.lp,
                                           .pool = rd->opt.pool,
                                           .dial = rd->opt.dial,
                                           .dial_arg = rd->opt.dial_arg,
                                           .host = nd->host,
                                           .tls = rd->opt.tls,
                                           .port = nd->port,
                                           .connect_timeout = rd->opt.connect_timeout,
                                           .reply_timeout = rd->opt.reply_timeout,
                                           .on_open = on_open,
                                           .on_down = on_down,
                                           .arg = nd};
    nd->cn = sl_redis_conn_new(&options);
}

void redis_node_restart(sl_redis_node *nd)
{
    if (nd->state != REDIS_NODE_READY && nd->state != REDIS_NODE_CONNECTING)
        return;
    remember_old(nd);
    nd->state = REDIS_NODE_STALE;
    sl_timer_start(&nd->timer, 0, 0);
}

void redis_node_move(sl_redis_node *nd, const char *host, uint16_t port)
{
    if (strcmp(nd->host, host) == 0 && nd->port == port)
        return;
    sl_timer_stop(&nd->timer);
    hang_up(nd);
    nd->old_id[0] = '\0'; // of another server
    sl_free(nd->host);
    nd->host = sl_strdup(host);
    nd->port = port;
}

sl_redis_node *redis_node_new(sl_redis *rd, const char *host, uint16_t port)
{
    sl_redis_node *nd = sl_calloc(1, sizeof(*nd));
    nd->rd = rd;
    nd->host = sl_strdup(host);
    nd->port = port;
    sl_timer_init(&nd->timer, rd->opt.lp, on_timer, nd);
    sl_list_push_back(&rd->nodes, &nd->in_list);
    return nd;
}

void redis_node_free(sl_redis_node **pointer)
{
    sl_redis_node *nd = *pointer;
    *pointer = NULL;
    sl_list_remove(&nd->in_list);
    nd->state = REDIS_NODE_DOWN;
    sl_redis_conn_close(&nd->cn);
    sl_timer_fini(&nd->timer);
    sl_free(nd->host);
    sl_free(nd);
}
