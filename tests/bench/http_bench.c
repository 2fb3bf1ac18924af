/* SPDX-License-Identifier: Apache-2.0
 *
 * http_bench [STREAMS [SECONDS]]: what an event stream of the HTTP front costs. A child process
 * opens STREAMS (1000) connections and reads; this process serves them on one loop and prints the
 * memory of an idle stream, and deliveries per second and per CPU-second for rounds in which every
 * stream gets one event of 150 bytes.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "http/server.h"

#define EVENT_BYTES 150

typedef struct bench {
    sl_loop *lp;
    sl_http_stream **streams;
    unsigned wanted;
    _Atomic unsigned opened;
    _Atomic bool stop;
    _Atomic uint64_t delivered;
    _Atomic uint64_t refused;
    sl_rbuf *event;
    sl_timer round;
} bench;

static void on_closed(void *arg, sl_err why)
{
    (void)arg;
    (void)why;
}

static const sl_http_stream_events stream_events = {.on_closed = on_closed};

static void on_stream(void *arg, sl_http_stream *st)
{
    bench *be = arg;
    sl_http_resp_add_header(sl_http_stream_resp(st), "Content-Type", "text/event-stream");
    sl_http_stream_open(st, &stream_events, be, 64u << 10);
    unsigned index = atomic_load(&be->opened);
    be->streams[index] = st;
    atomic_store(&be->opened, index + 1);
}

/* One event to every stream, on the loop. */
static void on_round(void *arg)
{
    bench *be = arg;
    uint64_t refused = 0;
    if (atomic_load(&be->stop))
        return;
    for (unsigned i = 0; i < be->wanted; i++) {
        char head[64];
        int n = snprintf(head, sizeof(head), "id:sensors/room1-%u\nevent:mqtt-message\ndata:", i);
        refused += sl_http_stream_write(be->streams[i], sl_slice_of(head, (size_t)n), be->event, 0,
                                        be->event->len) != SL_OK;
    }
    atomic_fetch_add(&be->delivered, be->wanted - refused);
    atomic_fetch_add(&be->refused, refused);
    sl_timer_start(&be->round, refused > be->wanted / 2 ? 1 : 0, 0);
}

static int dial(uint16_t port)
{
    static const char request[] = "GET /sse HTTP/1.1\r\nHost: x\r\n\r\n";
    struct sockaddr_in addr = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0 ||
        write(fd, request, sizeof(request) - 1) != sizeof(request) - 1) {
        perror("http_bench client");
        _exit(1);
    }
    return fd;
}

/* The readers: a process of their own, so that their memory and CPU time are not counted. */
static void run_clients(uint16_t port, unsigned count)
{
    int ep = epoll_create1(0);
    for (unsigned i = 0; i < count; i++) {
        int fd = dial(port);
        struct epoll_event ev = {.events = EPOLLIN, .data.fd = fd};
        (void)epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);
    }
    static char sink[1 << 16];
    for (;;) {
        struct epoll_event ready[256];
        int n = epoll_wait(ep, ready, 256, -1);
        for (int i = 0; i < n; i++)
            if (read(ready[i].data.fd, sink, sizeof(sink)) <= 0)
                (void)epoll_ctl(ep, EPOLL_CTL_DEL, ready[i].data.fd, NULL);
    }
}

static double seconds_of(clockid_t id)
{
    struct timespec ts;
    (void)clock_gettime(id, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static long rss_bytes(void)
{
    long pages = 0;
    long resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file != NULL) {
        if (fscanf(file, "%ld %ld", &pages, &resident) != 2)
            resident = 0;
        (void)fclose(file);
    }
    return resident * sysconf(_SC_PAGESIZE);
}

static void start_rounds(void *arg)
{
    bench *be = arg;
    sl_timer_init(&be->round, be->lp, on_round, be);
    on_round(be);
}

static void measure(bench *be, double seconds)
{
    double wall = seconds_of(CLOCK_MONOTONIC);
    double cpu = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    sl_loop_call(be->lp, start_rounds, be);
    (void)poll(NULL, 0, (int)(seconds * 1000));
    wall = seconds_of(CLOCK_MONOTONIC) - wall;
    cpu = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    double sent = (double)atomic_load(&be->delivered);
    printf("deliveries %.0f in %.2f s: %.0f/s, %.0f per CPU-second, %llu refused by full queues\n",
           sent, wall, sent / wall, sent / cpu, (unsigned long long)atomic_load(&be->refused));
}

int main(int argc, char **argv)
{
    bench be = {.wanted = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 1000};
    double seconds = argc > 2 ? strtod(argv[2], NULL) : 5;
    struct rlimit files;
    (void)getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);
    be.streams = sl_calloc(be.wanted + 1, sizeof(*be.streams));
    be.event = sl_rbuf_new(EVENT_BYTES);
    be.event->len = EVENT_BYTES;
    memset(be.event->data, 'x', EVENT_BYTES);
    memcpy(be.event->data + EVENT_BYTES - 2, "\n\n", 2);
    sl_clock clock;
    sl_clock_init(&clock);
    sl_http_route route = {
        .methods = SL_HTTP_M(GET), .pattern = "/sse", .on_loop = on_stream, .arg = &be};
    sl_http_server *sv = NULL;
    char *why = NULL;
    if (sl_loop_new("http", &clock, &be.lp) != SL_OK || sl_loop_start(be.lp) != SL_OK)
        return 1;
    sl_http_options options = {.name = "bench",
                               .address = "127.0.0.1",
                               .loops = &be.lp,
                               .loop_count = 1,
                               .max_connections = be.wanted + 16};
    if (sl_http_server_new(&options, &sv, &why) != SL_OK) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    sl_http_server_route(sv, &route, 1);
    if (sl_http_server_start(sv) != SL_OK)
        return 1;
    (void)poll(NULL, 0, 100);
    long before = rss_bytes();
    size_t heap_before = mallinfo2().uordblks;
    pid_t child = fork();
    if (child == 0)
        run_clients(sl_http_server_port(sv), be.wanted);
    while (atomic_load(&be.opened) < be.wanted)
        (void)poll(NULL, 0, 10);
    (void)poll(NULL, 0, 500);
    printf(
        "streams %u: %ld bytes of process memory, %zu bytes of heap in this thread's arena each\n",
        be.wanted, (rss_bytes() - before) / (long)be.wanted,
        (mallinfo2().uordblks - heap_before) / be.wanted);
    measure(&be, seconds);
    (void)kill(child, SIGKILL);
    (void)waitpid(child, NULL, 0);
    return 0; // the process ends here; nothing of it is worth taking down in order
}
