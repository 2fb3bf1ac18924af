/* SPDX-License-Identifier: Apache-2.0
 *
 * sessload: load of sessions instead of messages: many stored sessions, many full inboxes, many
 * CONNECTs. Uses mqload's peers, so no code of the product. Prints one JSON line.
 */
#include <arpa/inet.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "meter.h"
#include "peer.h"

#define SECOND_NS   1000000000.0
#define AT_ONCE     256 /* sessions being opened */
#define ADDRESS     0x7F000001u
#define PER_ADDRESS 20000 /* below the number of outgoing ports of one address */
#define GIVE_UP_S   120.0
#define WINDOW      200

static const char usage_text[] =
    "usage: sessload store|drain|connect [options]\n"
    "  store    --clients N persistent sessions with a subscription each are made and left\n"
    "  drain    --clients N of them, --messages M stored for each, then all come back at once\n"
    "  connect  --rate N clean CONNECTs per second for --secs S; how long CONNACK takes\n"
    "  --port N --pid A,B              the broker (1883) and processes whose CPU and memory "
    "count\n";

typedef struct run {
    const char *mode;
    int port, clients, messages, rate;
    double secs;
    processes procs;
    peer_io io;
    counts total;
    peer *peers;
    peer publisher;
    histogram latency;
} run;

static double since(uint64_t start_ns)
{
    return (double)(meter_now_ns() - start_ns) / SECOND_NS;
}

static void turn(run *rn, int wait_ms)
{
    struct epoll_event events[256];
    int n = epoll_wait(rn->io.epoll, events, 256, wait_ms);
    for (int i = 0; i < n; i++) {
        peer *pr = events[i].data.ptr;
        if (!pr->dead && events[i].events & EPOLLOUT)
            peer_flush(pr, &rn->io);
        if (!pr->dead && events[i].events & ~(uint32_t)EPOLLOUT)
            peer_read(pr, &rn->io);
    }
}

static void ignore(void *arg, uint64_t sent_ns)
{
    (void)arg;
    (void)sent_ns;
}

static void give_up(const char *what)
{
    fprintf(stderr, "sessload: %s\n", what);
    exit(1);
}

static void open_peer(run *rn, peer *pr, int index, bool publisher, bool clean)
{
    pr->index = index;
    pr->publisher = publisher;
    pr->dead = pr->up = pr->subscribed = false;
    if (!peer_open(pr, &rn->io, ADDRESS, rn->port,
                   ADDRESS + 256u * (1 + (uint32_t)index / PER_ADDRESS), clean)) {
        perror("sessload: connect");
        exit(1);
    }
}

/* Opens all sessions, subscribes, and closes them again as soon as they are stored. */
static void make_sessions(run *rn)
{
    uint64_t start = meter_now_ns();
    int opened = 0, closed = 0;
    rn->io.subscribe = true;
    while (closed < rn->clients) {
        while (opened < rn->clients && opened - closed < AT_ONCE) {
            peer *pr = &rn->peers[opened];
            snprintf(pr->client_id, sizeof pr->client_id, "sess%d", opened);
            snprintf(pr->topic, sizeof pr->topic, "sess/%d/data", opened);
            open_peer(rn, pr, opened++, false, false);
        }
        turn(rn, 10);
        for (int i = closed; i < opened; i++) {
            if (!rn->peers[i].subscribed || rn->peers[i].dead)
                continue;
            peer_close(&rn->peers[i], &rn->io);
        }
        while (closed < opened && rn->peers[closed].dead)
            closed++;
        if (since(start) > GIVE_UP_S * 5)
            give_up("sessions are not made in time");
    }
}

static void store(run *rn)
{
    uint64_t start = meter_now_ns();
    double cpu = processes_cpu(&rn->procs);
    long before = processes_rss_kb(&rn->procs);
    make_sessions(rn);
    double secs = since(start);
    sleep(2); // the last DISCONNECTs
    long rss = processes_rss_kb(&rn->procs);
    printf(
        "{\"mode\": \"store\", \"sessions\": %d, \"secs\": %.2f, \"per_s\": %.0f, \"cpu_s\": %.2f, "
        "\"rss_kb\": %ld, \"rss_per_session_b\": %.0f}\n",
        rn->clients, secs, rn->clients / secs, processes_cpu(&rn->procs) - cpu, rss,
        (double)(rss - before) * 1024 / rn->clients);
}

static void publish_all(run *rn)
{
    peer *pub = &rn->publisher;
    snprintf(pub->client_id, sizeof pub->client_id, "sesspub");
    open_peer(rn, pub, rn->clients, true, true);
    uint64_t start = meter_now_ns(), want = (uint64_t)rn->clients * (uint64_t)rn->messages,
             sent = 0;
    while (rn->total.acked < want) {
        while (pub->up && sent < want && pub->in_flight < WINDOW) {
            snprintf(pub->topic, sizeof pub->topic, "sess/%d/data",
                     (int)(sent % (uint64_t)rn->clients));
            peer_publish(pub, &rn->io, meter_now_ns());
            sent++;
        }
        peer_flush(pub, &rn->io);
        turn(rn, 10);
        if (pub->dead || since(start) > GIVE_UP_S)
            give_up("messages are not acknowledged");
    }
}

static void drain(run *rn)
{
    make_sessions(rn);
    uint64_t start = meter_now_ns();
    double cpu = processes_cpu(&rn->procs);
    publish_all(rn);
    double store_secs = since(start), store_cpu = processes_cpu(&rn->procs) - cpu;
    uint64_t want = (uint64_t)rn->clients * (uint64_t)rn->messages;
    sleep(1);
    start = meter_now_ns();
    cpu = processes_cpu(&rn->procs);
    rn->io.subscribe = false;
    rn->total.received = 0;
    for (int i = 0; i < rn->clients; i++) {
        open_peer(rn, &rn->peers[i], i, false, false);
        turn(rn, 0);
    }
    while (rn->total.received < want) {
        turn(rn, 50);
        if (since(start) > GIVE_UP_S)
            give_up("stored messages are missing");
    }
    double secs = since(start);
    printf("{\"mode\": \"drain\", \"inboxes\": %d, \"messages\": %" PRIu64
           ", \"store_per_s\": %.0f, \"store_cpu_s\": %.2f, \"drain_secs\": %.2f, "
           "\"drain_per_s\": %.0f, \"drain_cpu_s\": %.2f, \"duplicates\": %" PRIu64 "}\n",
           rn->clients, want, (double)want / store_secs, store_cpu, secs, (double)want / secs,
           processes_cpu(&rn->procs) - cpu, rn->total.duplicates);
}

static void connects(run *rn)
{
    int count = (int)(rn->rate * rn->secs), opened = 0, up = 0;
    uint64_t *began = calloc((size_t)count, sizeof *began);
    uint64_t start = meter_now_ns();
    double cpu = processes_cpu(&rn->procs);
    int first = 0;
    while (up < count) {
        while (opened < count && opened < rn->rate * since(start)) {
            peer *pr = &rn->peers[opened];
            snprintf(pr->client_id, sizeof pr->client_id, "conn%d", opened);
            began[opened] = meter_now_ns();
            open_peer(rn, pr, opened++, false, true);
        }
        turn(rn, 1);
        for (int i = first; i < opened; i++) {
            peer *pr = &rn->peers[i];
            if (!pr->up || pr->dead)
                continue;
            histogram_add(&rn->latency, (meter_now_ns() - began[i]) / 1000);
            peer_close(pr, &rn->io);
            up++;
        }
        while (first < opened && rn->peers[first].dead)
            first++;
        if (since(start) > GIVE_UP_S)
            give_up("CONNACKs are missing");
    }
    printf(
        "{\"mode\": \"connect\", \"connects\": %d, \"per_s\": %.0f, \"p50_ms\": %.2f, \"p99_ms\": "
        "%.2f, \"cpu_s\": %.2f}\n",
        count, count / since(start), histogram_quantile(&rn->latency, 0.5) / 1000,
        histogram_quantile(&rn->latency, 0.99) / 1000, processes_cpu(&rn->procs) - cpu);
    free(began);
}

static void parse(run *rn, int argc, char **argv)
{
    static const struct option options[] = {
        {"clients", required_argument, NULL, 'c'}, {"messages", required_argument, NULL, 'm'},
        {"rate", required_argument, NULL, 'r'},    {"secs", required_argument, NULL, 's'},
        {"port", required_argument, NULL, 'p'},    {"pid", required_argument, NULL, 'i'},
        {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0}};
    for (int opt; (opt = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        bool good = true;
        switch (opt) {
        case 'c':
            good = (rn->clients = (int)strtol(optarg, NULL, 10)) > 0;
            break;
        case 'm':
            good = (rn->messages = (int)strtol(optarg, NULL, 10)) > 0;
            break;
        case 'r':
            good = (rn->rate = (int)strtol(optarg, NULL, 10)) > 0;
            break;
        case 's':
            good = (rn->secs = strtod(optarg, NULL)) > 0;
            break;
        case 'p':
            good = (rn->port = (int)strtol(optarg, NULL, 10)) > 0;
            break;
        case 'i':
            good = processes_parse(&rn->procs, optarg) == 0;
            break;
        default:
            fputs(usage_text, stderr);
            exit(2);
        }
        if (!good) {
            fprintf(stderr, "sessload: '%s' is no value for this option\n%s", optarg, usage_text);
            exit(2);
        }
    }
    if (optind != argc - 1) {
        fputs(usage_text, stderr);
        exit(2);
    }
    rn->mode = argv[optind];
}

int main(int argc, char **argv)
{
    static run rn = {.port = 1883, .clients = 1000, .messages = 500, .rate = 2000, .secs = 5};
    parse(&rn, argc, argv);
    signal(SIGPIPE, SIG_IGN);
    struct rlimit rl;
    if (getrlimit(RLIMIT_NOFILE, &rl) == 0) {
        rl.rlim_cur = rl.rlim_max;
        setrlimit(RLIMIT_NOFILE, &rl);
    }
    int peers = strcmp(rn.mode, "connect") == 0 ? (int)(rn.rate * rn.secs) + 1 : rn.clients;
    rn.peers = calloc((size_t)peers, sizeof *rn.peers);
    uint8_t payload[128] = {0};
    rn.io = (peer_io){.epoll = epoll_create1(EPOLL_CLOEXEC),
                      .total = &rn.total,
                      .received = ignore,
                      .qos = 1,
                      .payload = payload,
                      .payload_size = sizeof payload};
    if (strcmp(rn.mode, "store") == 0)
        store(&rn);
    else if (strcmp(rn.mode, "drain") == 0)
        drain(&rn);
    else if (strcmp(rn.mode, "connect") == 0)
        connects(&rn);
    else
        fputs(usage_text, stderr);
    return 0;
}
