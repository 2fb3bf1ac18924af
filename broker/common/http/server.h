/* SPDX-License-Identifier: Apache-2.0
 *
 * http/server: the one HTTP front of a process. It owns the clients' connections on our loops,
 * frames every request and response, asks the gate, and then serves a request in one of two ways:
 * stream handlers run on the loop (http/stream.h), all others on the threads of libmicrohttpd,
 * which sits behind a socket pair and never sees a client's socket.
 */
#ifndef SL_HTTP_SERVER_H
#define SL_HTTP_SERVER_H

#include "base/stats.h"
#include "http/request.h"
#include "http/response.h"
#include "http/stream.h"
#include "loop/loop.h"
#include "net/stream.h"

typedef struct sl_http_server sl_http_server;

/** Serves a request on a thread of libmicrohttpd; may block a little (SQL, password hashes).
 * @thread http (several at once) */
typedef void sl_http_fn(void *arg, const sl_http_req *req, sl_http_resp *resp);
/** Serves a request on its loop; must reply, hold or open before it returns. @thread loop */
typedef void sl_http_stream_fn(void *arg, sl_http_stream *st);

typedef struct sl_http_route {
    unsigned methods; /* SL_HTTP_M(GET) | SL_HTTP_M(POST); GET brings HEAD along */
    /* "/ping", "/api/user/{id}", or a prefix on segment borders: "/ui/" and a star at the end.
     * Where several match, literal segments win over {names}, these over stars. */
    const char *pattern;
    bool open;                  /* needs no login: the gate passes anonymous requests */
    sl_http_fn *fn;             /* on libmicrohttpd's threads, or */
    sl_http_stream_fn *on_loop; /* on the loop: exactly one of the two */
    void *arg;
    uint32_t max_body_bytes; /* 0 = the server's */
} sl_http_route;

#define SL_HTTP_M(name) (1u << SL_HTTP_##name)

typedef enum sl_http_verdict {
    SL_HTTP_PASS,
    SL_HTTP_REFUSE, /* resp was filled in */
    SL_HTTP_LATER   /* sl_http_gate_done follows */
} sl_http_verdict;

/** Decides before a request is served and before its body is read: who is it, may they. Runs for
 * unknown paths too. sl_http_req_is_secure tells whether the route needs a login. @thread loop */
typedef sl_http_verdict sl_http_gate_f(void *arg, sl_http_req *req, sl_http_resp *resp);
/** Ends an SL_HTTP_LATER: exactly once, on the request's loop (sl_http_req_loop), also when the
 * client has gone meanwhile. req and resp are valid until then. */
void sl_http_gate_done(sl_http_req *req, sl_http_verdict verdict);
sl_loop *sl_http_req_loop(const sl_http_req *req);

typedef struct sl_http_options {
    const char *name;      /* for the log: "admin" */
    const char *address;   /* as sl_listener_options */
    uint16_t port;         /* 0: the system chooses */
    sl_loop *const *loops; /* connections go round over these; borrowed */
    unsigned loop_count;
    unsigned threads;     /* of libmicrohttpd; 0 = 2 */
    sl_http_gate_f *gate; /* NULL: everything passes */
    void *gate_arg;
    bool cors;                 /* echo Origin; answer OPTIONS without the gate */
    const char *allow_headers; /* added to the CORS list, or NULL: "X-Authorization" */
    /* Puts filters (TLS) on a new connection; an error closes it. May be NULL. */
    sl_err (*prepare)(void *arg, sl_stream *sm);
    void *prepare_arg;
    bool tls; /* what sl_http_req_is_tls says */
    /* Limits; 0 = default */
    uint32_t max_connections; /* 10000 */
    uint32_t max_running;     /* requests at libmicrohttpd at once: 256; then 503 */
    uint32_t max_head_bytes;  /* 16 KB: request line and headers */
    uint32_t max_headers;     /* 100 */
    uint32_t max_body_bytes;  /* 1 MB */
    sl_dur_ms head_ms;        /* 10 s from first byte to the end of the headers */
    sl_dur_ms body_ms;        /* 30 s for a body */
    sl_dur_ms idle_ms;        /* 60 s between requests */
    sl_dur_ms write_ms;       /* 30 s without a byte taken by the peer */
} sl_http_options;

/* A snapshot for the owner's counters. */
typedef struct sl_http_counts {
    uint64_t connections;  /* open now */
    uint64_t streams;      /* open or held now */
    uint64_t accepted;     /* connections ever */
    uint64_t refused;      /* connections closed at once: limits, descriptors */
    uint64_t requests;     /* requests ever */
    uint64_t bad_requests; /* answered 4xx by the front itself because they could not be read */
    uint64_t busy;         /* answered 503 because max_running was reached */
    uint64_t timeouts;     /* connections ended by head, body, or write deadline */
    uint64_t stream_limit; /* stream writes refused because the queue was full */
} sl_http_counts;

/** Binds the port; *why (owned) names address and port. Loops may be running. @thread init */
SL_MUST_USE sl_err sl_http_server_new(const sl_http_options *options, sl_http_server **out,
                                      char **why);
/** Adds routes (copied; pattern and arg live on). Before start. @thread init */
void sl_http_server_route(sl_http_server *sv, const sl_http_route *routes, size_t count);
/** Opens for clients. Errors SL_EIO: libmicrohttpd did not start. @thread init */
SL_MUST_USE sl_err sl_http_server_start(sl_http_server *sv);
uint16_t sl_http_server_port(const sl_http_server *sv);
void sl_http_server_counts(const sl_http_server *sv, sl_http_counts *out);
/**
 * Graceful stop: no new connections; streams get their end chunk; running requests finish; idle
 * connections close; what is left after max_ms is cut. done runs once, on loops[0].
 * @thread as sl_listener_close
 */
void sl_http_server_drain(sl_http_server *sv, sl_dur_ms max_ms, void (*done)(void *arg), void *arg);
/** After done of a drain, or when never started; not from done itself. Sets *sv to NULL.
 * @thread as sl_listener_close */
void sl_http_server_free(sl_http_server **sv);

#endif
