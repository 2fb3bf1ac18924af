/* SPDX-License-Identifier: Apache-2.0
 *
 * The front with threads of its own: two loops, libmicrohttpd, a pool for passwords, clients that
 * ask, stream and vanish at the same time, users that are reloaded meanwhile, and a drain in the
 * middle of it. Made for ThreadSanitizer (label threads); checks only what must hold at any speed.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "http/auth.h"
#include "loop/pool.h"
#include "sl_test.h"

#define CLIENTS  4
#define REQUESTS 150

static const char *const roles[] = {"r"};

typedef struct world {
    sl_clock clock;
    sl_loop *loops[2];
    sl_pool *pool;
    sl_auth *au;
    sl_http_server *sv; /* of the main thread */
    uint16_t port;
    sl_buf hash;
    _Atomic int answered;
    _Atomic int streams;
    _Atomic int streams_closed;
    _Atomic bool drained;
} world;

static void on_fn(void *arg, const sl_http_req *req, sl_http_resp *resp)
{
    (void)arg;
    sl_http_resp_msgf(resp, 200, "%s", sl_http_req_user(req));
}

static void on_loop(void *arg, sl_http_stream *st)
{
    (void)arg;
    sl_http_resp_msg(sl_http_stream_resp(st), 200, "loop");
    sl_http_stream_reply(st);
}

static void on_stream_closed(void *arg, sl_err why)
{
    (void)why;
    atomic_fetch_add(&((world *)arg)->streams_closed, 1);
}

static const sl_http_stream_events events = {.on_closed = on_stream_closed};

static void on_stream(void *arg, sl_http_stream *st)
{
    world *wd = arg;
    atomic_fetch_add(&wd->streams, 1);
    sl_http_stream_open(st, &events, wd, 1000);
    SL_TEST_OK(sl_http_stream_write(st, sl_slice_str("data:1\n\n"), NULL, 0, 0));
}

static void load(world *wd)
{
    char *why = NULL;
    const sl_auth_user users[] = {{"ann", "pw", roles, 1},
                                  {"bob", (const char *)sl_buf_peek(&wd->hash).ptr, roles, 1}};
    const sl_auth_permission all = {roles, 1, "path-prefix('/')", 0};
    SL_TEST_OK(sl_auth_load(wd->au, users, 2, &all, 1, &why));
}

static int dial(const world *wd)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_port = htons(wd->port),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {.tv_sec = 20};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0) {
        if (fd >= 0)
            close(fd);
        return -1; // the server drains
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    return fd;
}

/* One request on a connection; -1 when that has ended. */
static int ask(int fd, const char *path, const char *login)
{
    char text[512];
    int n = snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\n\r\n",
                     path, login);
    if (send(fd, text, (size_t)n, MSG_NOSIGNAL) != n)
        return -1;
    size_t len = 0;
    while (len + 1 < sizeof(text)) {
        ssize_t got = recv(fd, text + len, sizeof(text) - 1 - len, 0);
        if (got <= 0)
            return -1;
        len += (size_t)got;
        text[len] = '\0';
        if (strchr(text, '}') != NULL || strstr(text, "data:1\n\n") != NULL)
            break;
    }
    return (int)strtol(text + strlen("HTTP/1.1 "), NULL, 10);
}

static void client(void *arg)
{
    static const char *const paths[] = {"/fn", "/loop", "/fn", "/stream"};
    static const char *const logins[] = {"Basic YW5uOnB3", "Basic Ym9iOmJvYg=="};
    world *wd = arg;
    int fd = -1;
    for (int i = 0; i < REQUESTS; i++) {
        const char *path = paths[i % 4];
        fd = fd >= 0 ? fd : dial(wd);
        if (fd < 0)
            return;
        int status = ask(fd, path, logins[i % 2]);
        if (status < 0 || strcmp(path, "/stream") == 0 || i % 13 == 0) {
            close(fd); // streams are left like this, too
            fd = -1;
        }
        if (status == 200)
            atomic_fetch_add(&wd->answered, 1);
        else if (status >= 0 && status != 503)
            fail_msg("status %d for %s", status, path);
    }
    if (fd >= 0)
        close(fd);
}

static void on_drained(void *arg)
{
    atomic_store(&((world *)arg)->drained, true);
}

static void start(world *wd)
{
    sl_clock_init(&wd->clock);
    for (int i = 0; i < 2; i++) {
        SL_TEST_OK(sl_loop_new("http", &wd->clock, &wd->loops[i]));
        SL_TEST_OK(sl_loop_start(wd->loops[i]));
    }
    SL_TEST_OK(sl_pool_new(2, 100, &wd->pool));
    sl_buf_init(&wd->hash, 1000);
    SL_TEST_OK(sl_auth_hash_password(sl_slice_str("bob"), 1000, &wd->hash));
    SL_TEST_OK(sl_buf_append_u8(&wd->hash, '\0'));
    wd->au = sl_auth_new(&(sl_auth_options){
        .pool = wd->pool, .clock = &wd->clock, .basic = true, .tokens = true, .acl = true});
    load(wd);
    char *why = NULL;
    SL_TEST_OK(sl_http_server_new(&(sl_http_options){.name = "test",
                                                     .address = "127.0.0.1",
                                                     .loops = wd->loops,
                                                     .loop_count = 2,
                                                     .gate = sl_auth_gate,
                                                     .gate_arg = wd->au,
                                                     .cors = true},
                                  &wd->sv, &why));
    const sl_http_route routes[] = {
        {.methods = SL_HTTP_M(GET), .pattern = "/fn", .fn = on_fn},
        {.methods = SL_HTTP_M(GET), .pattern = "/loop", .on_loop = on_loop},
        {.methods = SL_HTTP_M(GET), .pattern = "/stream", .on_loop = on_stream, .arg = wd},
    };
    sl_http_server_route(wd->sv, routes, 3);
    SL_TEST_OK(sl_http_server_start(wd->sv));
    wd->port = sl_http_server_port(wd->sv);
}

static void stop(world *wd)
{
    sl_http_server_drain(wd->sv, 5000, on_drained, wd);
    for (int i = 0; !atomic_load(&wd->drained); i++) {
        (void)poll(NULL, 0, 1);
        assert_true(i < 20000);
    }
    sl_http_counts counts;
    sl_http_server_counts(wd->sv, &counts);
    assert_int_equal(counts.connections, 0);
    assert_int_equal(counts.streams, 0);
    sl_http_server_free(&wd->sv);
    sl_pool_free(&wd->pool);
    for (int i = 0; i < 2; i++) {
        sl_loop_stop(wd->loops[i]);
        sl_loop_join(wd->loops[i]);
        sl_loop_free(&wd->loops[i]);
    }
    sl_auth_free(&wd->au);
    sl_buf_fini(&wd->hash);
    assert_int_equal(atomic_load(&wd->streams), atomic_load(&wd->streams_closed));
}

/* Turns users over while the clients ask; ends after so many answers. */
static void run(int drain_after)
{
    static world wd;
    sl_thread *clients[CLIENTS];
    memset(&wd, 0, sizeof(wd));
    start(&wd);
    for (int i = 0; i < CLIENTS; i++)
        SL_TEST_OK(sl_thread_start("client", client, &wd, &clients[i]));
    for (int i = 0; atomic_load(&wd.answered) < drain_after; i++) {
        load(&wd);
        (void)sl_auth_version(wd.au, "ann");
        (void)poll(NULL, 0, 1);
        assert_true(i < 60000);
    }
    if (drain_after < CLIENTS * REQUESTS) {
        stop(&wd);
        for (int i = 0; i < CLIENTS; i++)
            sl_thread_join(&clients[i]);
        return;
    }
    for (int i = 0; i < CLIENTS; i++)
        sl_thread_join(&clients[i]);
    stop(&wd);
}

static void test_front_answers_every_request_of_many_clients(void **state)
{
    (void)state;
    run(CLIENTS * REQUESTS);
}

static void test_front_drains_while_clients_ask(void **state)
{
    (void)state;
    run(CLIENTS * REQUESTS / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_front_answers_every_request_of_many_clients),
        cmocka_unit_test(test_front_drains_while_clients_ask),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
