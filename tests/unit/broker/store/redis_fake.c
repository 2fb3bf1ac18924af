/* SPDX-License-Identifier: Apache-2.0
 *
 * redis_fake: see redis_fake.h.
 */
#include "redis_fake.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"

unsigned fake_completions;

static sl_redis_address one_seed = {.host = (char *)(uintptr_t) "one", .port = 1};
static sl_redis_script one_script = {.text = "return 1"};

static int dial(void *arg, const char *host, uint16_t port, sl_dur_ms timeout)
{
    fake *fk = arg;
    (void)timeout;
    fk->dials++;
    if (fk->refuses || port == fk->refuses_port)
        return -ECONNREFUSED;
    assert_true(fk->conn_count < FAKE_CONNS);
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
    fake_conn *fc = &fk->conns[fk->conn_count++];
    *fc = (fake_conn){.fd = pair[0], .port = port, .reader = sl_redis_reader_new()};
    fc->greeting = sl_strdup("");
    snprintf(fc->host, sizeof(fc->host), "%s", host);
    return pair[1];
}

static void on_state(void *arg, bool is_up)
{
    fake *fk = arg;
    fk->is_up = is_up;
    fk->state_changes++;
}

void fake_init(fake *fk)
{
    *fk = (fake){.auth_reply = "+OK\r\n", .role = "master", .client_id = 100};
    fake_completions = 0;
    sl_clock_init_fake(&fk->clock, 1000, 1700000000000);
    SL_TEST_OK(sl_loop_new_manual("test", &fk->clock, &fk->lp));
    (void)sl_loop_turn(fk->lp);
    sl_redis_script_name(&one_script);
}

sl_redis_options fake_options(fake *fk)
{
    return (sl_redis_options){.lp = fk->lp,
                              .dial = dial,
                              .dial_arg = fk,
                              .seeds = &one_seed,
                              .seed_count = 1,
                              .master = "",
                              .username = "",
                              .password = "",
                              .sentinel_password = "",
                              .name = "test",
                              .connect_timeout = 500,
                              .reply_timeout = 1000,
                              .scripts = &one_script,
                              .script_count = 1,
                              .on_state = on_state,
                              .arg = fk};
}

void fake_open(fake *fk, const sl_redis_options *options)
{
    fk->rd = sl_redis_new(options);
    fake_run(fk);
}

void fake_close(fake *fk)
{
    sl_redis_close(&fk->rd);
    while (sl_loop_turn(fk->lp))
        ;
    for (size_t i = 0; i < fk->conn_count; i++) {
        fake_conn *fc = &fk->conns[i];
        if (fc->fd >= 0)
            close(fc->fd);
        sl_redis_reader_free(&fc->reader);
        sl_free(fc->greeting);
        for (size_t k = 0; k < fc->waiting_count; k++)
            sl_free(fc->waiting[k]);
    }
    sl_loop_free(&fk->lp);
}

void fake_send(fake_conn *fc, const char *bytes, size_t len)
{
    assert_int_equal(send(fc->fd, bytes, len, MSG_NOSIGNAL), (ssize_t)len);
}

static char *join(const sl_redis_reply *command)
{
    size_t bytes = 1;
    for (size_t i = 0; i < command->count; i++)
        bytes += command->items[i]->text.len + 1;
    char *text = sl_calloc(1, bytes);
    for (size_t i = 0, at = 0; i < command->count; i++)
        at += (size_t)snprintf(text + at, bytes - at, "%s%s", i > 0 ? " " : "",
                               (const char *)command->items[i]->text.ptr);
    return text;
}

static bool begins(const char *text, const char *word)
{
    return strncmp(text, word, strlen(word)) == 0;
}

/* The reply to what belongs to a greeting; false: not a part of one. */
static bool greeting_reply(fake *fk, const char *command, char *reply, size_t max)
{
    snprintf(reply, max, "+OK\r\n");
    if (begins(command, "AUTH"))
        snprintf(reply, max, "%s", fk->auth_reply);
    else if (begins(command, "ROLE"))
        snprintf(reply, max, "*1\r\n$%zu\r\n%s\r\n", strlen(fk->role), fk->role);
    else if (begins(command, "SCRIPT LOAD"))
        snprintf(reply, max, "$40\r\n%s\r\n", one_script.sha);
    else if (begins(command, "CLIENT INFO")) {
        char text[128];
        unsigned id = ++fk->client_id;
        snprintf(text, sizeof(text), "id=%u addr=1.2.3.4:%u laddr=5.6.7.8:9 name=test\n", id,
                 id + 1000);
        snprintf(reply, max, "$%zu\r\n%s\r\n", strlen(text), text);
    } else if (begins(command, "CLIENT KILL"))
        snprintf(reply, max, ":1\r\n");
    else
        return begins(command, "SELECT") || begins(command, "CLIENT SETNAME");
    return true;
}

static void pop(fake_conn *fc)
{
    sl_free(fc->waiting[0]);
    memmove(fc->waiting, fc->waiting + 1, --fc->waiting_count * sizeof(fc->waiting[0]));
}

/* What belongs to a greeting is answered when its turn has come. */
static bool greet(fake *fk, fake_conn *fc)
{
    char reply[256];
    if (fc->fd < 0 || fc->waiting_count == 0 ||
        !greeting_reply(fk, fc->waiting[0], reply, sizeof(reply)))
        return false;
    size_t have = strlen(fc->greeting), more = strlen(fc->waiting[0]);
    fc->greeting = sl_realloc(fc->greeting, have + more + 2);
    memcpy(fc->greeting + have, fc->waiting[0], more);
    memcpy(fc->greeting + have + more, "\n", 2);
    pop(fc);
    if (!fc->is_ended)
        fake_send(fc, reply, strlen(reply));
    return true;
}

static void take_commands(fake_conn *fc)
{
    sl_redis_reply *command = NULL;
    for (;;) {
        SL_TEST_OK(sl_redis_reader_next(fc->reader, &command));
        if (command == NULL)
            return;
        assert_true(fc->waiting_count < FAKE_ANSWERS);
        fc->waiting[fc->waiting_count++] = join(command);
        sl_redis_reply_free(&command);
    }
}

static bool serve(fake_conn *fc)
{
    char bytes[4096];
    if (fc->fd < 0 || fc->is_ended)
        return false;
    ssize_t n = recv(fc->fd, bytes, sizeof(bytes), 0);
    if (n < 0)
        return false;
    if (n == 0) {
        fc->is_ended = true;
        return true;
    }
    SL_TEST_OK(sl_redis_reader_feed(fc->reader, bytes, (size_t)n));
    take_commands(fc);
    return true;
}

void fake_run(fake *fk)
{
    for (bool busy = true; busy;) {
        busy = sl_loop_turn(fk->lp);
        for (size_t i = 0; i < fk->conn_count; i++)
            busy = serve(&fk->conns[i]) || greet(fk, &fk->conns[i]) || busy;
    }
}

void fake_advance(fake *fk, sl_dur_ms span)
{
    sl_clock_advance(&fk->clock, span);
    fake_run(fk);
}

fake_conn *fake_at(fake *fk, uint16_t port)
{
    for (size_t i = fk->conn_count; i-- > 0;) {
        fake_conn *fc = &fk->conns[i];
        if (fc->port == port && fc->fd >= 0 && !fc->is_ended)
            return fc;
    }
    fail_msg("no connection to port %u", port);
    return NULL;
}

static void on_done(sl_redis_op *op, const sl_redis_reply *reply)
{
    fake_op *fo = SL_CONTAINER(op, fake_op, op);
    fo->done++;
    fo->position = ++fake_completions;
    fo->is_closed = reply == NULL;
    if (reply != NULL && reply->kind == SL_REDIS_INTEGER)
        snprintf(fo->reply, sizeof(fo->reply), "%lld", (long long)reply->integer);
    else if (reply != NULL && reply->text.ptr != NULL)
        snprintf(fo->reply, sizeof(fo->reply), "%s", (const char *)reply->text.ptr);
}

void fake_submit(fake *fk, fake_op *fo, const char *name, const char *key, bool is_barrier)
{
    memset(fo, 0, sizeof(*fo));
    snprintf(fo->name, sizeof(fo->name), "%s", name);
    const sl_slice argv[] = {sl_slice_str("GET"), sl_slice_str(name)};
    sl_redis_op_init(&fo->op, sl_slice_str(key), argv, 2, on_done);
    fo->op.is_barrier = is_barrier;
    sl_redis_submit(fk->rd, &fo->op);
    sl_redis_flush(fk->rd);
    fake_run(fk);
}

void fake_queue_answer(fake_conn *fc, const char *command, const char *reply)
{
    assert_true(fc->waiting_count > 0);
    assert_string_equal(fc->waiting[0], command);
    pop(fc);
    fake_send(fc, reply, strlen(reply));
}

void fake_answer(fake *fk, fake_conn *fc, const char *command, const char *reply)
{
    fake_queue_answer(fc, command, reply);
    fake_run(fk);
}

void fake_hang_up(fake *fk, fake_conn *fc)
{
    close(fc->fd);
    fc->fd = -1;
    fake_run(fk);
}
