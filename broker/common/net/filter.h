/* SPDX-License-Identifier: Apache-2.0
 *
 * filter: what the layers of a stream are made of. The socket (tcp.c) is the bottom one; PROXY,
 * TLS and WebSocket are put on top with sl_stream_push before reading starts, and users of the
 * stream never notice. Bytes go up through on_data, down through write. Not for users of streams:
 * they need stream.h only. Everything runs on the stream's loop.
 *
 *      user (sl_stream_events)
 *        ^ sl_filter_deliver / _end / _writable      | sl_stream_write
 *      top filter                                    v
 *        ^                                           | sl_filter_write(below)
 *      socket filter (tcp.c)                         v
 */
#ifndef SL_NET_FILTER_H
#define SL_NET_FILTER_H

#include <stdint.h>
#include <sys/uio.h>

#include "net/stream.h"

typedef struct sl_filter sl_filter;

/* Each member may be NULL where it says so; then the call passes straight through. */
typedef struct sl_filter_ops {
    const char *name; /* for traces: "tls" */

    /* From below. Up goes what sl_filter_deliver, _end and _writable are called with. */
    void (*on_data)(sl_filter *ft, sl_rbuf *rb, uint32_t off, uint32_t len); /* NULL: pass */
    void (*on_end)(sl_filter *ft, sl_err err);                               /* NULL: pass */
    void (*on_writable)(sl_filter *ft);                                      /* NULL: pass */

    /* From above; same contracts as the sl_stream functions. A filter that keeps bytes (TLS
     * records) takes all of the iov or a prefix, and calls sl_filter_writable when a caller that
     * was told "less" may go on. */
    sl_err (*write)(sl_filter *ft, const struct iovec *iov, int iovcnt,
                    size_t *written);  /* NULL: pass */
    void (*read_start)(sl_filter *ft); /* NULL: pass */
    void (*read_stop)(sl_filter *ft);  /* NULL: pass */
    void (*shutdown)(sl_filter *ft);   /* NULL: pass */

    /* Says goodbye (TLS close_notify) by sl_filter_write below, without waiting; the stream itself
     * closes the socket afterwards. May be NULL. */
    void (*close)(sl_filter *ft);
    /* Frees the filter: the last call. May be NULL. */
    void (*fini)(sl_filter *ft);
} sl_filter_ops;

struct sl_filter {
    const sl_filter_ops *ops;
    sl_stream *_sm;    /* borrowed; set by sl_stream_push */
    sl_filter *_above; /* borrowed; NULL: the stream's user */
    sl_filter *_below; /* owned through the stream; NULL: this is the socket */
};

/** Puts a filter on top (taken: freed by its fini). Before sl_stream_read_start. @thread loop */
void sl_stream_push(sl_stream *sm, sl_filter *ft);

/** To the layer above ft. After any of these the stream may be closed by its user: look at
 * sl_filter_is_open before touching more. @thread loop */
void sl_filter_deliver(sl_filter *ft, sl_rbuf *rb, uint32_t off, uint32_t len);
void sl_filter_end(sl_filter *ft, sl_err err);
void sl_filter_writable(sl_filter *ft);
/** To the layer below ft. @thread loop */
SL_MUST_USE sl_err sl_filter_write(sl_filter *ft, const struct iovec *iov, int iovcnt,
                                   size_t *written);
void sl_filter_read_start(sl_filter *ft);
void sl_filter_read_stop(sl_filter *ft);
void sl_filter_shutdown(sl_filter *ft);
bool sl_filter_is_open(const sl_filter *ft);
sl_loop *sl_filter_loop(const sl_filter *ft);
/** The real peer, as a PROXY header tells it (ip is address text, IPv6 without brackets).
 * @thread loop */
void sl_filter_set_peer(sl_filter *ft, const char *ip, uint16_t port);

/** The thread's shared read buffer with at least min_room bytes free behind its len (min_room at
 * most SL_NET_RBUF_BYTES): a filter that decodes writes there, adds to len, and delivers. While
 * bytes of it are being delivered it is never rewound. Borrowed until the next call.
 * @thread any thread that has a stream */
sl_rbuf *sl_net_rbuf(uint32_t min_room);
#define SL_NET_RBUF_BYTES (64u * 1024u)

#endif
