/* SPDX-License-Identifier: Apache-2.0
 *
 * mqload: an MQTT 3.1.1 load generator for figures side by side with other brokers. One thread, no
 * code of the product. Prints one JSON line; --help lists the modes and options. The figure to
 * compare is messages received per second of the broker's CPU time: rates depend on how the cores
 * are shared with the load itself.
 */
#include <arpa/inet.h>
#include <errno.h>
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

#define SECOND_NS        1000000000.0
#define OPENING_AT_ONCE  64 /* CONNECTs without an answer */
#define OPEN_TIMEOUT_S   60.0
#define STALL_S          2.0   /* nothing received for so long: what is missing is lost */
#define CLIENTS_PER_ADDR 20000 /* conn: below the number of outgoing ports of one address */
#define OUT_HIGH_BYTES   65536 /* QoS 0: a publisher with more than this waits */
#define OUT_SEND_BYTES   16384 /* send when this much has piled up */

typedef enum mode { FANIN, FANOUT, P2P, CONN } mode;
static const char *const mode_names[] = {"fanin", "fanout", "p2p", "conn"};

typedef struct options {
    mode mode;
    uint32_t host;
    int port, pubs, subs, qos, size;
    double secs, warm, rate;
    uint32_t window;
    int64_t e2e;
    bool persistent;
    const char *prefix;
    processes procs;
} options;

typedef struct load {
    options opt;
    peer_io io;
    counts total;
    histogram latency;
    bool measuring;
    peer *peers; /* subscribers first, then publishers */
    int count;
    unsigned salt; /* makes topics and client ids of each run its own */
} load;

/* Figures at one moment; the difference of two is a measurement. */
typedef struct snapshot {
    uint64_t ns;
    counts total;
    double cpu;
} snapshot;

static const char usage_text[] =
    "usage: mqload fanin|fanout|p2p|conn [options]\n"
    "  fanin   --pubs N publishers, each on a topic of its own, --subs N subscribers of them all\n"
    "  fanout  --pubs N publishers on one topic, --subs N subscribers of it\n"
    "  p2p     --pubs N pairs, each with a topic of its own\n"
    "  conn    --subs N idle connections\n"
    "  --host ADDRESS --port N         the broker (127.0.0.1, 1883)\n"
    "  --qos 0|1|2 --size BYTES        of messages and subscriptions (0, 128)\n"
    "  --secs S --warm S               measured time and the time before it (5, 1)\n"
    "  --window N                      unacknowledged messages per publisher (100)\n"
    "  --e2e N                         messages on their way in all; 0: no bound (0)\n"
    "  --rate N                        messages published per second in all; 0: as many as go (0)\n"
    "  --persistent                    subscribers with clean session off\n"
    "  --prefix TEXT                   of topics and client ids (load)\n"
    "  --pid A,B                       processes whose CPU time and memory are counted\n";

static void bad_usage(const char *what, const char *value)
{
    fprintf(stderr, "mqload: bad %s: %s\n%s", what, value, usage_text);
    exit(2);
}

static double number(const char *name, const char *text, double low, double high)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= low && value <= high))
        bad_usage(name, text);
    return value;
}

static mode parse_mode(const char *text)
{
    for (int i = 0; i < 4; i++) {
        if (!strcmp(text, mode_names[i]))
            return (mode)i;
    }
    bad_usage("mode", text);
    return FANIN;
}

static void set_option(options *opt, const char *name, const char *value)
{
    struct in_addr address;
    if (!strcmp(name, "host")) {
        if (inet_pton(AF_INET, value, &address) != 1)
            bad_usage("host (an IPv4 address)", value);
        opt->host = ntohl(address.s_addr);
    } else if (!strcmp(name, "port"))
        opt->port = (int)number(name, value, 1, 65535);
    else if (!strcmp(name, "pubs"))
        opt->pubs = (int)number(name, value, 1, 1e6);
    else if (!strcmp(name, "subs"))
        opt->subs = (int)number(name, value, 1, 1e6);
    else if (!strcmp(name, "qos"))
        opt->qos = (int)number(name, value, 0, 2);
    else if (!strcmp(name, "size"))
        opt->size = (int)number(name, value, PEER_STAMP_BYTES, 1 << 20);
    else if (!strcmp(name, "secs"))
        opt->secs = number(name, value, 0.1, 3600);
    else if (!strcmp(name, "warm"))
        opt->warm = number(name, value, 0, 3600);
    else if (!strcmp(name, "window"))
        opt->window = (uint32_t)number(name, value, 1, 65535);
    else if (!strcmp(name, "e2e"))
        opt->e2e = (int64_t)number(name, value, 0, 1e9);
    else if (!strcmp(name, "rate"))
        opt->rate = number(name, value, 0, 1e9);
    else if (!strcmp(name, "prefix")) {
        if (strlen(value) > 20)
            bad_usage("prefix (20 bytes at most)", value);
        opt->prefix = value;
    } else if (processes_parse(&opt->procs, value))
        bad_usage("pid list", value);
}

static void parse_options(options *opt, int argc, char **argv)
{
    static const struct option longs[] = {
        {"host", 1, 0, 0}, {"port", 1, 0, 0},         {"pubs", 1, 0, 0},   {"subs", 1, 0, 0},
        {"qos", 1, 0, 0},  {"size", 1, 0, 0},         {"secs", 1, 0, 0},   {"warm", 1, 0, 0},
        {"rate", 1, 0, 0}, {"window", 1, 0, 0},       {"e2e", 1, 0, 0},    {"prefix", 1, 0, 0},
        {"pid", 1, 0, 0},  {"persistent", 0, 0, 'p'}, {"help", 0, 0, 'h'}, {0}};
    int index, got;
    while ((got = getopt_long(argc, argv, "", longs, &index)) != -1) {
        if (got == 'h') {
            fputs(usage_text, stdout);
            exit(0);
        }
        if (got == '?')
            bad_usage("option", argv[optind - 1]);
        if (got == 'p')
            opt->persistent = true;
        else
            set_option(opt, longs[index].name, optarg);
    }
    if (optind != argc - 1)
        bad_usage("arguments", "one mode is needed");
    opt->mode = parse_mode(argv[optind]);
    if (opt->mode == P2P)
        opt->subs = opt->pubs;
    if (opt->mode == CONN)
        opt->pubs = 0;
}

static void on_received(void *arg, uint64_t sent_ns)
{
    load *ld = arg;
    uint64_t now = meter_now_ns();
    if (ld->measuring && now > sent_ns)
        histogram_add(&ld->latency, (now - sent_ns) / 1000);
}

static void poll_once(load *ld, int timeout_ms)
{
    struct epoll_event events[256];
    int n = epoll_wait(ld->io.epoll, events, 256, timeout_ms);
    for (int i = 0; i < n; i++) {
        peer *pr = events[i].data.ptr;
        if (!pr->dead && (events[i].events & EPOLLOUT))
            peer_flush(pr, &ld->io);
        if (!pr->dead && (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
            peer_read(pr, &ld->io);
    }
}

static void name_peer(load *ld, peer *pr, int number_of_kind)
{
    const char *prefix = ld->opt.prefix;
    unsigned salt = ld->salt;
    snprintf(pr->client_id, sizeof pr->client_id, "%s-%u-%c%d", prefix, salt,
             pr->publisher ? 'p' : 's', number_of_kind);
    if (ld->opt.mode == P2P)
        snprintf(pr->topic, sizeof pr->topic, "%s/%u/pair/%d", prefix, salt, number_of_kind);
    else if (ld->opt.mode == FANOUT)
        snprintf(pr->topic, sizeof pr->topic, "%s/%u/out", prefix, salt);
    else if (pr->publisher)
        snprintf(pr->topic, sizeof pr->topic, "%s/%u/in/%d/data", prefix, salt, number_of_kind);
    else
        snprintf(pr->topic, sizeof pr->topic, "%s/%u/in/+/data", prefix, salt);
}

static bool all_open(const load *ld)
{
    const counts *total = &ld->total;
    if (total->up + total->refused < (uint64_t)ld->count)
        return false;
    return ld->opt.mode == CONN || total->subscribed >= (uint64_t)ld->opt.subs;
}

/* Opens all connections, at most OPENING_AT_ONCE at a time; false if some did not come up. */
static bool open_peers(load *ld)
{
    const options *opt = &ld->opt;
    double deadline = (double)meter_now_ns() + OPEN_TIMEOUT_S * SECOND_NS;
    for (int i = 0; i < ld->count; i++) {
        peer *pr = &ld->peers[i];
        pr->index = i;
        pr->publisher = i >= opt->subs;
        name_peer(ld, pr, pr->publisher ? i - opt->subs : i);
        uint32_t source =
            opt->mode == CONN ? 0x7f000001u + 256u * (1u + (uint32_t)(i / CLIENTS_PER_ADDR)) : 0;
        bool clean = pr->publisher || !opt->persistent;
        if (!peer_open(pr, &ld->io, opt->host, opt->port, source, clean)) {
            perror("mqload: connect");
            return false;
        }
        while ((uint64_t)i + 1 - ld->total.up - ld->total.refused > OPENING_AT_ONCE &&
               (double)meter_now_ns() < deadline)
            poll_once(ld, 100);
    }
    while (!all_open(ld) && (double)meter_now_ns() < deadline)
        poll_once(ld, 100);
    if (ld->total.up == (uint64_t)ld->count && all_open(ld))
        return true;
    fprintf(stderr,
            "mqload: %" PRIu64 " of %d connected, %" PRIu64 " refused, %" PRIu64 " subscribed\n",
            ld->total.up, ld->count, ld->total.refused, ld->total.subscribed);
    return false;
}

static snapshot take_snapshot(const load *ld)
{
    return (snapshot){meter_now_ns(), ld->total, processes_cpu(&ld->opt.procs)};
}

/* How many copies of one message are due. */
static uint64_t copies(const options *opt)
{
    return opt->mode == P2P ? 1 : (uint64_t)opt->subs;
}

/* What the publishing loop knows besides the counters. */
typedef struct pace {
    uint64_t start_ns, progress_ns, last_received;
    uint64_t lost; /* given up after a stall, no longer counted as on its way */
    uint64_t stalls;
    int next; /* publisher whose turn it is */
} pace;

static bool may_publish(const load *ld, const peer *pr, const pace *pc, uint64_t now)
{
    const options *opt = &ld->opt;
    const counts *total = &ld->total;
    if (pr->dead || (opt->qos ? pr->in_flight >= opt->window : pr->out.len >= OUT_HIGH_BYTES))
        return false;
    if (opt->e2e) {
        int64_t away = (int64_t)(total->sent * copies(opt) - total->received - pc->lost);
        if (away >= opt->e2e)
            return false;
    }
    return opt->rate == 0 ||
           (double)total->sent < opt->rate * (double)(now - pc->start_ns) / SECOND_NS;
}

static void note_progress(load *ld, pace *pc, uint64_t now)
{
    if (ld->total.received != pc->last_received) {
        pc->last_received = ld->total.received;
        pc->progress_ns = now;
    } else if (ld->opt.e2e && (double)(now - pc->progress_ns) > STALL_S * SECOND_NS) {
        pc->stalls++;
        pc->lost = ld->total.sent * copies(&ld->opt) - ld->total.received;
        pc->progress_ns = now;
    }
}

/* One round over the publishers, in bursts; false if none may publish. */
static bool publish_some(load *ld, pace *pc, uint64_t now)
{
    peer *pubs = ld->peers + ld->opt.subs;
    int burst = ld->opt.rate > 0 ? 1 : 8;
    int waiting = 0;
    for (int budget = 2000; budget > 0 && waiting < ld->opt.pubs;) {
        peer *pr = &pubs[pc->next];
        pc->next = (pc->next + 1) % ld->opt.pubs;
        int done = 0;
        while (done < burst && may_publish(ld, pr, pc, now)) {
            peer_publish(pr, &ld->io, now);
            done++;
        }
        waiting = done ? 0 : waiting + 1;
        budget -= done;
        if (done && pr->out.len > OUT_SEND_BYTES)
            peer_flush(pr, &ld->io);
    }
    for (int i = 0; i < ld->opt.pubs; i++) {
        if (!pubs[i].dead && pubs[i].out.len && !pubs[i].want_write)
            peer_flush(&pubs[i], &ld->io);
    }
    return waiting < ld->opt.pubs;
}

/* Waits until everything due has come, or nothing has come for STALL_S. */
static void drain(load *ld)
{
    uint64_t last = ld->total.received, since = meter_now_ns();
    while (ld->total.received < ld->total.sent * copies(&ld->opt) &&
           (double)(meter_now_ns() - since) < STALL_S * SECOND_NS) {
        poll_once(ld, 50);
        if (ld->total.received != last) {
            last = ld->total.received;
            since = meter_now_ns();
        }
    }
}

static void print_result(const load *ld, const snapshot *a, const snapshot *b, uint64_t stalls)
{
    const options *opt = &ld->opt;
    double secs = (double)(b->ns - a->ns) / SECOND_NS, cpu = b->cpu - a->cpu;
    double received = (double)(b->total.received - a->total.received);
    int64_t missing = (int64_t)(ld->total.sent * copies(opt) - ld->total.received);
    printf("{\"mode\":\"%s\",\"qos\":%d,\"pubs\":%d,\"subs\":%d,\"size\":%d,\"persistent\":%s,",
           mode_names[opt->mode], opt->qos, opt->pubs, opt->subs, opt->size,
           opt->persistent ? "true" : "false");
    printf("\"sent_per_s\":%.0f,\"acked_per_s\":%.0f,\"recv_per_s\":%.0f,",
           (double)(b->total.sent - a->total.sent) / secs,
           (double)(b->total.acked - a->total.acked) / secs, received / secs);
    printf("\"lat_p50_us\":%.0f,\"lat_p99_us\":%.0f,\"lat_p999_us\":%.0f,",
           histogram_quantile(&ld->latency, 0.5), histogram_quantile(&ld->latency, 0.99),
           histogram_quantile(&ld->latency, 0.999));
    printf("\"missing\":%" PRId64 ",\"duplicates\":%" PRIu64 ",\"stalls\":%" PRIu64 ",", missing,
           ld->total.duplicates, stalls);
    printf("\"cpu_s\":%.2f,\"cpu_cores\":%.2f,\"recv_per_cpu_s\":%.0f,\"rss_kb\":%ld}\n", cpu,
           cpu / secs, cpu > 0 ? received / cpu : 0.0, processes_rss_kb(&opt->procs));
}

static bool run_load(load *ld)
{
    uint64_t start = meter_now_ns();
    uint64_t from = start + (uint64_t)(ld->opt.warm * SECOND_NS);
    uint64_t to = from + (uint64_t)(ld->opt.secs * SECOND_NS);
    pace pc = {.start_ns = start, .progress_ns = start};
    snapshot a = {0};
    for (uint64_t now = start; now < to; now = meter_now_ns()) {
        if (!ld->measuring && now >= from) {
            ld->measuring = true;
            a = take_snapshot(ld);
        }
        note_progress(ld, &pc, now);
        bool busy = publish_some(ld, &pc, now);
        poll_once(ld, busy ? 0 : 1);
    }
    snapshot b = take_snapshot(ld);
    ld->measuring = false;
    drain(ld);
    print_result(ld, &a, &b, pc.stalls);
    return ld->total.received == ld->total.sent * copies(&ld->opt);
}

static bool run_idle(load *ld, const snapshot *before, long rss_before)
{
    snapshot open = take_snapshot(ld);
    double secs = (double)(open.ns - before->ns) / SECOND_NS;
    while ((double)(meter_now_ns() - open.ns) < ld->opt.secs * SECOND_NS)
        poll_once(ld, 100);
    long rss = processes_rss_kb(&ld->opt.procs);
    double up = (double)ld->total.up;
    printf("{\"mode\":\"conn\",\"conns\":%.0f,\"connect_secs\":%.2f,\"connects_per_s\":%.0f,", up,
           secs, up / secs);
    printf("\"connect_cpu_s\":%.2f,\"rss_kb\":%ld,\"rss_per_conn_b\":%.0f,\"idle_cpu_s\":%.2f}\n",
           open.cpu - before->cpu, rss, (double)(rss - rss_before) * 1024 / up,
           processes_cpu(&ld->opt.procs) - open.cpu);
    return ld->total.up == (uint64_t)ld->count;
}

static void raise_file_limit(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static void prepare(load *ld)
{
    size_t size = (size_t)ld->opt.size;
    ld->count = ld->opt.pubs + ld->opt.subs;
    ld->peers = calloc((size_t)ld->count, sizeof *ld->peers);
    uint8_t *payload = malloc(size);
    if (!ld->peers || !payload) {
        perror("mqload: memory");
        exit(2);
    }
    for (size_t i = 0; i < size; i++)
        payload[i] = (uint8_t)('a' + i % 26);
    ld->salt = (unsigned)(meter_now_ns() / 1000000 % 1000000);
    ld->io = (peer_io){.epoll = epoll_create1(EPOLL_CLOEXEC),
                       .total = &ld->total,
                       .received = on_received,
                       .arg = ld,
                       .qos = ld->opt.qos,
                       .subscribe = ld->opt.mode != CONN,
                       .payload = payload,
                       .payload_size = size};
}

int main(int argc, char **argv)
{
    static load ld = {.opt = {.host = INADDR_LOOPBACK,
                              .port = 1883,
                              .pubs = 1,
                              .subs = 1,
                              .size = 128,
                              .secs = 5,
                              .warm = 1,
                              .window = 100,
                              .prefix = "load"}};
    parse_options(&ld.opt, argc, argv);
    raise_file_limit();
    prepare(&ld);
    snapshot before = take_snapshot(&ld);
    long rss_before = processes_rss_kb(&ld.opt.procs);
    bool good = open_peers(&ld);
    if (good)
        good = ld.opt.mode == CONN ? run_idle(&ld, &before, rss_before) : run_load(&ld);
    for (int i = 0; i < ld.count; i++) {
        free(ld.peers[i].in.mem);
        free(ld.peers[i].out.mem);
    }
    free(ld.peers);
    free(ld.io.payload);
    return good ? 0 : 1;
}
