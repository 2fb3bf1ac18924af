/* SPDX-License-Identifier: Apache-2.0
 *
 * http/stream: answers made on the front's loop: small ones at once, long polls later, and event
 * streams that stay open. A stream costs no thread and no library state: it is the connection
 * itself. All calls and callbacks on the stream's loop.
 *
 *   handler called --> reply                         (a whole response, now)
 *                  \-> hold --> reply                (a whole response, later)
 *                  \-> open --> write ... --> end    (chunks; until close for HTTP/1.0)
 */
#ifndef SL_HTTP_STREAM_H
#define SL_HTTP_STREAM_H

#include "base/err.h"
#include "base/rbuf.h"
#include "http/request.h"
#include "http/response.h"
#include "loop/loop.h"

typedef struct sl_http_stream sl_http_stream;

typedef struct sl_http_stream_events {
    /* After sl_http_stream_write said SL_ELIMIT: the queue is at most half full again. May be
     * NULL. */
    void (*on_writable)(void *arg);
    /* Exactly once for a stream that was held or opened, the handle is dead after it: the answer
     * went out (SL_OK), the peer has gone (SL_ECLOSED), it took nothing for the write deadline
     * (SL_ETIMEDOUT), or the server drains (SL_OK, after the end chunk). Never inside a call of
     * yours to this stream. */
    void (*on_closed)(void *arg, sl_err why);
} sl_http_stream_events;

/** The request; stays valid until the stream was opened or has replied (take what you need). */
const sl_http_req *sl_http_stream_req(const sl_http_stream *st);
/** The response to fill in before reply or open. */
sl_http_resp *sl_http_stream_resp(sl_http_stream *st);
sl_loop *sl_http_stream_loop(const sl_http_stream *st);

/** Answers later: the connection waits, events tell when the peer leaves before. A second hold
 * replaces events and arg. @thread loop */
void sl_http_stream_hold(sl_http_stream *st, const sl_http_stream_events *events, void *arg);
/** Sends the response, whole. Without hold no callback follows and the handle is dead.
 * @thread loop */
void sl_http_stream_reply(sl_http_stream *st);
/**
 * Sends status and headers and keeps the stream open. max_queued_bytes bounds what waits here when
 * the peer reads slowly. A HEAD request is ended at once (on_closed follows, writes say
 * SL_ECLOSED). @thread loop
 */
void sl_http_stream_open(sl_http_stream *st, const sl_http_stream_events *events, void *arg,
                         size_t max_queued_bytes);
/**
 * Queues one piece: head (copied, at most 4 KB) and then data[off .. off+len) of body (a reference
 * is taken; NULL: head alone). Everything of a turn leaves in one system call at its end. Errors
 * SL_ELIMIT the queue is full, nothing of it was queued and on_writable follows; SL_ECLOSED the
 * stream is ending. @thread loop
 */
SL_MUST_USE sl_err sl_http_stream_write(sl_http_stream *st, sl_slice head, sl_rbuf *body,
                                        uint32_t off, uint32_t len);
/** Bytes that wait in the queue. @thread loop */
size_t sl_http_stream_queued(const sl_http_stream *st);
/** Ends an open stream cleanly after what is queued; on_closed follows. @thread loop */
void sl_http_stream_end(sl_http_stream *st);
/** Cuts the connection; on_closed(SL_ECLOSED) follows. @thread loop */
void sl_http_stream_abort(sl_http_stream *st);

#endif
