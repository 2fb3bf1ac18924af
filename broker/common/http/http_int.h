/* SPDX-License-Identifier: Apache-2.0
 *
 * http_int: what the files of the front share (request.c, response.c, server.c, conn.c, stream.c,
 * backend.c). Not for users of the folder.
 */
#ifndef SL_HTTP_HTTP_INT_H
#define SL_HTTP_HTTP_INT_H

#include <pthread.h>
#include <stdatomic.h>

#include <http_parser.h>
#include <uv.h>

#include "base/buf.h"
#include "base/list.h"
#include "base/map.h"
#include "http/server.h"
#include "net/listener.h"

#define SL_HTTP_REQ_MAGIC  0x48524551u
#define SL_HTTP_MAX_PARAMS 64 /* query parameters */
#define SL_HTTP_MAX_NAMES  8  /* {names} of a pattern */
#define SL_HTTP_IP_BYTES   48

typedef struct http_conn http_conn;
typedef struct http_shard http_shard;

/* Offsets into the request's text, so that it may grow while it is read. */
typedef struct http_pair {
    uint32_t name;
    uint32_t value;
} http_pair;

struct sl_http_req {
    uint32_t magic;
    _Atomic uint32_t refs;
    uint64_t id; /* of the exchange, unique in the server */
    sl_http_method method;
    bool http_1_0;
    bool keep_alive;
    bool is_tls;
    bool last_was_value; /* parse state of headers */
    bool has_body;       /* a body was announced */
    sl_loop *lp;         /* borrowed */
    http_conn *cn;       /* borrowed; NULL once the connection has gone. Loop only */
    sl_buf text;         /* every string, NUL ended */
    uint32_t target;     /* offset 0: as sent */
    uint32_t path;
    http_pair *headers; /* owned */
    uint32_t header_count;
    uint32_t header_max;
    http_pair *params; /* owned */
    uint32_t param_count;
    const sl_http_route *route;         /* borrowed from the server; NULL: none */
    http_pair names[SL_HTTP_MAX_NAMES]; /* name: offset in the route's pattern */
    uint32_t name_count;
    uint32_t rest; /* offset of what the star stands for; 0: "" */
    sl_buf body;
    char *user;   /* owned */
    char **roles; /* owned */
    size_t role_count;
    void *ctx; /* owned through drop */
    void (*drop)(void *ctx);
    sl_mono_ms expires;  /* of the login; 0 never */
    sl_mono_ms began;    /* first byte */
    sl_http_resp *extra; /* owned; headers for whichever response follows; NULL: none */
    sl_http_resp *resp;  /* owned; made when first needed */
    char peer_ip[SL_HTTP_IP_BYTES];
};

struct sl_http_resp {
    int status;
    sl_buf headers; /* name NUL value NUL ... */
    sl_buf body;
};

/* The states of a connection.
 *
 *   HEAD --head read--> GATE --passed--> BODY --read--> SERVE --answered--> HEAD
 *     |                  |                 |              |  \--open--> STREAM --ended--> HEAD
 *     \--------bad-------+--refused/bad----+--------------+--last answer--> DRAIN
 *   DRAIN --all sent--> LINGER --peer closed, or time--> CLOSED    (CLOSED from every state)
 */
#define HTTP_STATE_MAP(X)                                                                          \
    X(HEAD, "head")     /* between requests, or reading request line and headers */                \
    X(GATE, "gate")     /* the gate decides */                                                     \
    X(BODY, "body")     /* reading the body */                                                     \
    X(SERVE, "serve")   /* libmicrohttpd or a stream handler works on the answer */                \
    X(STREAM, "stream") /* an open stream */                                                       \
    X(DRAIN, "drain")   /* the last answer leaves */                                               \
    X(LINGER, "linger") /* we have sent FIN and let the peer read */                               \
    X(CLOSED, "closed") /* the socket is closed, on_closed follows */

typedef enum http_state {
#define HTTP_STATE_ENUM(name, word) CONN_##name,
    HTTP_STATE_MAP(HTTP_STATE_ENUM)
#undef HTTP_STATE_ENUM
        CONN_STATES
} http_state;

/* One piece on its way to a client. */
typedef struct http_seg {
    struct http_seg *next;
    sl_rbuf *body; /* a reference, or NULL */
    uint32_t off;
    uint32_t len;
    uint32_t sent;     /* bytes of head, body and tail together that have left */
    uint16_t head_len; /* bytes of head[] */
    uint8_t tail_len;  /* 2: CRLF behind the body (chunk) */
    uint8_t head[];
} http_seg;

/* A connection to libmicrohttpd on behalf of one client connection. */
typedef struct http_backend {
    http_conn *cn; /* borrowed; NULL: nobody waits, it is being closed */
    sl_stream *sm; /* owned */
    http_parser parser;
    bool busy;   /* a request is out */
    bool begun;  /* bytes of the answer have been forwarded */
    bool done;   /* the answer's end was seen */
    bool paused; /* not reading, because the client takes too little */
} http_backend;

/* A client's connection. Its stream handle (sl_http_stream) is the same object. Loop only. */
struct http_conn {
    uint32_t magic;
    http_state state;
    sl_node in_shard;
    sl_node in_dirty;
    http_shard *shard; /* borrowed */
    sl_stream *sm;     /* owned */
    http_parser parser;
    sl_http_req *req; /* owned reference; NULL between requests and in a stream */
    sl_rbuf *in;      /* a reference: bytes received and not parsed yet */
    uint32_t in_off;
    uint32_t in_len;
    http_seg *out_first; /* owned */
    http_seg *out_last;
    size_t out_bytes;
    http_backend *be;          /* owned until detached; NULL: none */
    sl_mono_ms deadline;       /* of the state; 0: none */
    sl_mono_ms write_deadline; /* while the peer takes nothing; 0: none */
    int reject;                /* status for a request that cannot be read; 0: fine */
    const char *reject_why;    /* static */
    bool reading;
    bool pumping;
    bool blocked;    /* the socket is full */
    bool peer_ended; /* the peer sent FIN */
    bool keep_alive; /* after this answer */
    bool http_1_0;   /* the request of the stream */
    bool is_head;
    bool complete; /* parser: message complete */
    /* the stream */
    bool replied;                        /* handler has replied or opened */
    bool held;                           /* events are due an on_closed */
    bool ending;                         /* no more writes; ends when all is sent */
    bool limit_hit;                      /* on_writable is owed */
    sl_err why;                          /* for on_closed when the connection goes down */
    const sl_http_stream_events *events; /* borrowed */
    void *arg;
    size_t max_queued;
};

/* What belongs to one loop. */
struct http_shard {
    sl_http_server *sv; /* borrowed */
    sl_loop *lp;        /* borrowed */
    sl_list conns;
    sl_list dirty;       /* connections with something to send at the end of the turn */
    uv_prepare_t *flush; /* owned; runs before the loop sleeps */
    sl_timer sweep;
    sl_mono_ms drain_deadline; /* 0: not draining */
    int64_t date_s;
    char date[48]; /* "Date: ...\r\n" of second date_s */
};

/* Counters; several loops add, so relaxed atomics. */
#define HTTP_COUNT_MAP(X)                                                                          \
    X(connections)                                                                                 \
    X(streams)                                                                                     \
    X(accepted)                                                                                    \
    X(refused) X(requests) X(bad_requests) X(busy) X(timeouts) X(stream_limit) X(running)

typedef struct http_counters {
#define HTTP_COUNT_FIELD(name) _Atomic int64_t name;
    HTTP_COUNT_MAP(HTTP_COUNT_FIELD)
#undef HTTP_COUNT_FIELD
} http_counters;

#define HTTP_COUNT(sv, name, delta)                                                                \
    (void)atomic_fetch_add_explicit(&(sv)->counters.name, (delta), memory_order_relaxed)

struct sl_http_server {
    uint32_t magic;
    bool started;
    sl_http_options opt; /* strings and loops are owned copies, limits are filled in */
    sl_listener *ls;     /* owned; NULL once draining */
    sl_listener *ls_ref; /* for releases, which may come after ls was closed */
    uint16_t port;
    http_shard *shards;    /* owned, one per loop */
    sl_http_route *routes; /* owned */
    size_t route_count;
    void *daemon; /* owned; libmicrohttpd's */
    http_counters counters;
    _Atomic uint64_t next_id;
    _Atomic uint32_t live; /* connections, shards that still have to drain, and the owner */
    void (*done)(void *arg);
    void *done_arg;
    pthread_mutex_t lock; /* guards by_id */
    sl_imap *by_id;       /* exchange id -> request (a reference) on its way to libmicrohttpd */
};

#define HTTP_SERVER_MAGIC 0x48535256u
#define HTTP_CONN_MAGIC   0x48434f4eu
/* Above this a client that does not read gets no further request served, and libmicrohttpd's answer
 * is not read on. */
#define HTTP_OUT_HIGH_BYTES (256u << 10)
#define HTTP_OUT_LOW_BYTES  (64u << 10)
#define HTTP_LINGER_MS      2000

/* route.c */

/** The best route for method and path, or NULL; *allow gets the methods that some route of that
 * path knows (0: no such path). Sets names and rest of the request. */
const sl_http_route *http_route_find(const sl_http_route *routes, size_t count, sl_http_req *req,
                                     unsigned *allow);

/* server.c */
http_shard *http_shard_of(sl_http_server *sv, sl_loop *lp);
/** "Date: ...\r\n" of now. */
const char *http_shard_date(http_shard *sh);
/** A connection has something to send at the end of the turn. */
void http_shard_mark(http_shard *sh, http_conn *cn);
/** One of `live` has gone. */
void http_server_unlive(sl_http_server *sv);

/* conn.c */
void http_conn_accept(void *arg, sl_stream *sm);
void http_conn_flush(http_conn *cn);
void http_conn_check_deadlines(http_conn *cn, sl_mono_ms now);
void http_conn_drain(http_conn *cn);
void http_conn_set_state(http_conn *cn, http_state state);
/** Closes the socket; the connection is freed in a later turn. */
void http_conn_close(http_conn *cn);
/** Queues a whole response. */
void http_conn_queue_reply(http_conn *cn, sl_http_resp *resp);
/** Same, and ends the request. */
void http_conn_reply(http_conn *cn, sl_http_resp *resp);
void http_conn_reply_msg(http_conn *cn, int status, const char *msg);
/** The answer is queued whole: next request, or the last bytes. */
void http_conn_finish(http_conn *cn, int status);
/** One trace line of the request. */
void http_conn_log(const http_conn *cn, int status);
/** Goes on with bytes that wait. */
void http_conn_pump(http_conn *cn);
/** Status line, headers, framing (more header lines or "") and body. */
void http_conn_queue_head(http_conn *cn, sl_http_resp *resp, const char *framing, sl_slice body);

/* out.c */

/** Takes *rb (a reference). chunk: framed as one. */
void http_out_queue(http_conn *cn, sl_slice head, sl_rbuf **rb, uint32_t off, uint32_t len,
                    bool chunk);
/** Writes until all is sent or the socket is full (cn->blocked). */
void http_out_write(http_conn *cn);
/** Drops what is left. */
void http_out_clear(http_conn *cn);

/* stream.c */
void http_stream_start(http_conn *cn);
/** The server drains. */
void http_stream_drain(http_conn *cn);
/** Everything queued was sent, or half of it. */
void http_stream_sent(http_conn *cn);
/** The connection is gone: tells the user. */
void http_stream_gone(http_conn *cn);

/* backend.c */
SL_MUST_USE sl_err http_backend_start(sl_http_server *sv);
void http_backend_stop(sl_http_server *sv);
/** Hands the connection's request to libmicrohttpd. */
void http_backend_submit(http_conn *cn);
/** The client takes bytes again. */
void http_backend_resume(http_conn *cn);
/** Nobody waits any more. */
void http_backend_drop(http_conn *cn);

/* request.c */
sl_http_req *http_req_new(size_t max_text_bytes, uint32_t max_headers, size_t max_body_bytes);
/** Parts of the target and of header lines as the parser finds them. SL_ETOOBIG past a limit. */
SL_MUST_USE sl_err http_req_add_target(sl_http_req *req, const char *at, size_t len);
SL_MUST_USE sl_err http_req_add_name(sl_http_req *req, const char *at, size_t len);
SL_MUST_USE sl_err http_req_add_value(sl_http_req *req, const char *at, size_t len);
/** Head complete: decodes path and query. */
SL_MUST_USE sl_err http_req_finish_head(sl_http_req *req, const char **why);
/** The response of the request, made when first asked for. */
sl_http_resp *http_req_resp(sl_http_req *req);
/** Appends one more string and returns its offset. */
SL_MUST_USE sl_err http_req_intern(sl_http_req *req, sl_slice text, uint32_t *off);

/* response.c */
/** Iterates over the headers: start with *pos = 0. */
bool http_resp_each(const sl_http_resp *resp, size_t *pos, const char **name, const char **value);
/** Appends status line and headers; date is "Date: ...\r\n". framing is one more header line or
 * "". */
void http_resp_write_head(const sl_http_resp *resp, const sl_http_resp *extra, const char *date,
                          const char *framing, sl_buf *out);

#endif
