/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests as bytes (http/server.h): the first byte says where the input is cut in two segments,
 * the rest goes to a front on a loop turned by hand. Whatever comes back is HTTP, the connection
 * ends with the input, and nothing of it is left.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/logger.h"
#include "fuzz.h"
#include "http/server.h"

#define MAX_INPUT 20000

static struct {
    sl_clock clock;
    sl_loop *lp;
    sl_http_server *sv;
} front;

static void no_log(void *arg, const char *line)
{
    (void)arg;
    (void)line;
}

static void on_echo(void *arg, sl_http_stream *st)
{
    (void)arg;
    const sl_http_req *req = sl_http_stream_req(st);
    SL_ASSERT(sl_http_req_path(req)[0] == '/');
    SL_ASSERT(sl_http_req_body(req).len <= 1000);
    sl_http_resp_set(sl_http_stream_resp(st), 200, "text/plain", sl_http_req_body(req));
    const char *cookie = sl_http_query_get(req, "h", NULL);
    if (cookie != NULL)
        sl_http_resp_add_header(sl_http_stream_resp(st), "X-Echo", cookie);
    sl_http_stream_reply(st);
}

static void start_front(void)
{
    static const sl_http_route routes[] = {
        {.methods = SL_HTTP_M(GET) | SL_HTTP_M(POST), .pattern = "/e", .on_loop = on_echo},
        {.methods = SL_HTTP_M(PUT), .pattern = "/e/{a}/*", .on_loop = on_echo},
    };
    sl_logger_set_sink(no_log, NULL);
    sl_clock_init_fake(&front.clock, 1, 1);
    sl_err err = sl_loop_new_manual("fuzz", &front.clock, &front.lp);
    SL_ASSERT(err == SL_OK);
    (void)sl_loop_turn(front.lp);
    char *why = NULL;
    sl_http_options options = {.name = "fuzz",
                               .address = "127.0.0.1",
                               .loops = &front.lp,
                               .loop_count = 1,
                               .threads = 1,
                               .cors = true,
                               .max_body_bytes = 1000};
    err = sl_http_server_new(&options, &front.sv, &why);
    SL_ASSERT(err == SL_OK);
    sl_http_server_route(front.sv, routes, 2);
    err = sl_http_server_start(front.sv);
    SL_ASSERT(err == SL_OK);
}

static int dial(void)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_port = htons(sl_http_server_port(front.sv)),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    int rc = connect(fd, (struct sockaddr *)&addr, sizeof(addr));
    SL_ASSERT(rc == 0);
    struct linger hard = {1, 0}; // no TIME_WAIT for each of a million connections
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    return fd;
}

static void settle(void)
{
    for (int quiet = 0; quiet < 2;)
        quiet = sl_loop_turn(front.lp) ? 0 : quiet + 1;
}

static void feed(int fd, const uint8_t *data, size_t size)
{
    (void)!send(fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    settle();
}

/* The first bytes of what came back. */
static void check_answer(int fd)
{
    char got[65536];
    ssize_t n = recv(fd, got, sizeof(got), MSG_DONTWAIT);
    if (n > 0)
        SL_ASSERT(n >= 12 && memcmp(got, "HTTP/1.1 ", 9) == 0 && got[9] >= '1' && got[9] <= '5');
}

static void wait_gone(void)
{
    sl_http_counts counts;
    sl_http_server_counts(front.sv, &counts);
    for (int i = 0; counts.connections != 0; i++) {
        SL_ASSERT(i < 10000);
        if (!sl_loop_turn(front.lp))
            (void)poll(NULL, 0, i < 100 ? 0 : 1);
        if (i == 200)
            sl_clock_advance(&front.clock, 100000); // a request that is not whole: by its deadline
        sl_http_server_counts(front.sv, &counts);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (front.sv == NULL)
        start_front();
    if (size < 2 || size > MAX_INPUT)
        return 0;
    size_t cut = 1 + data[0] % (size - 1);
    int fd = dial();
    feed(fd, data + 1, cut - 1);
    feed(fd, data + cut, size - cut);
    (void)shutdown(fd, SHUT_WR);
    settle();
    check_answer(fd);
    close(fd);
    wait_gone();
    return 0;
}
