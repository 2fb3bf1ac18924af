/* SPDX-License-Identifier: Apache-2.0
 *
 * stream: a byte stream over a connection, made of stacked filters (TCP at the bottom; PROXY, TLS,
 * WebSocket above it later). A filter sees bytes from below, hands bytes up; and the other way.
 * Everything about a stream happens on its loop.
 */
#ifndef SL_NET_STREAM_H
#define SL_NET_STREAM_H

#include <sys/uio.h>

#include "base/err.h"
#include "base/rbuf.h"
#include "loop/loop.h"

typedef struct sl_stream sl_stream;

/* Any of them may be NULL. */
typedef struct sl_stream_events {
    /* Bytes arrived: data[off .. off+len) of rb. rb is shared with other reads of the loop: who
     * keeps a slice takes a reference. Called on the loop. */
    void (*on_data)(void *arg, sl_rbuf *rb, uint32_t off, uint32_t len);
    /* The peer ended (SL_OK) or the stream failed; no more data comes. Call sl_stream_close. */
    void (*on_end)(void *arg, sl_err err);
    /* After sl_stream_write answered SL_EAGAIN or took less: room again. */
    void (*on_writable)(void *arg);
    /* Last call: the stream is freed after it. Only after sl_stream_close. */
    void (*on_closed)(void *arg);
} sl_stream_events;

/** Wraps a connected socket (taken, whatever the result). @thread loop */
SL_MUST_USE sl_err sl_stream_tcp_new(sl_loop *lp, int fd, sl_stream **out);
/** Sets who listens; reading starts with sl_stream_read_start. events lives on until on_closed
 * (static, in general); NULL: nobody. @thread loop */
void sl_stream_set_events(sl_stream *sm, const sl_stream_events *events, void *arg);
void sl_stream_read_start(sl_stream *sm);
/** Back-pressure: no on_data until started again. @thread loop */
void sl_stream_read_stop(sl_stream *sm);
/**
 * Writes at once as much as the socket takes; *written says how much (the rest is the caller's to
 * keep and offer again after on_writable, which comes once after a short write).
 * Errors SL_ECLOSED, SL_EIO: on_end follows. @thread loop
 */
SL_MUST_USE sl_err sl_stream_write(sl_stream *sm, const struct iovec *iov, int iovcnt,
                                   size_t *written);
/** Half close after what was written (TCP FIN), reading goes on. @thread loop */
void sl_stream_shutdown(sl_stream *sm);
/** No more events but on_closed, which comes in a later turn. @thread loop */
void sl_stream_close(sl_stream *sm);
/** "127.0.0.1:41234" of the peer (behind a PROXY header: the real one), NUL ended, borrowed. */
const char *sl_stream_peer(const sl_stream *sm);
/** The peer's IP alone. */
const char *sl_stream_peer_ip(const sl_stream *sm);
sl_loop *sl_stream_loop(const sl_stream *sm);
/** TCP_USER_TIMEOUT: a peer that acknowledges nothing for so long is cut. @thread loop */
void sl_stream_set_user_timeout(sl_stream *sm, sl_dur_ms ms);

#endif
