/* SPDX-License-Identifier: Apache-2.0
 *
 * out: the queue of pieces on their way to a client. A piece is a few bytes of its own (a chunk's
 * size, an event's first lines) and a reference to bytes that others may send too; many pieces
 * leave in one system call.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "http/http_int.h"

#define MAX_IOV 96

void http_out_queue(http_conn *cn, sl_slice head, sl_rbuf **rbp, uint32_t off, uint32_t len,
                    bool chunk)
{
    char frame[16];
    size_t frame_len = 0;
    if (chunk)
        frame_len = (size_t)snprintf(frame, sizeof(frame), "%zx\r\n", head.len + len);
    http_seg *seg = sl_alloc(sizeof(*seg) + frame_len + head.len);
    SL_ASSERT(frame_len + head.len <= UINT16_MAX);
    *seg = (http_seg){.body = rbp == NULL ? NULL : *rbp,
                      .off = off,
                      .len = len,
                      .head_len = (uint16_t)(frame_len + head.len),
                      .tail_len = chunk ? 2 : 0};
    if (rbp != NULL)
        *rbp = NULL;
    memcpy(seg->head, frame, frame_len);
    if (head.len > 0)
        memcpy(seg->head + frame_len, head.ptr, head.len);
    if (cn->out_last == NULL)
        cn->out_first = seg;
    else
        cn->out_last->next = seg;
    cn->out_last = seg;
    cn->out_bytes += (size_t)seg->head_len + len + seg->tail_len;
    http_shard_mark(cn->shard, cn);
}

static size_t seg_bytes(const http_seg *seg)
{
    return (size_t)seg->head_len + seg->len + seg->tail_len;
}

static void seg_free(http_seg *seg)
{
    sl_rbuf_unref(&seg->body);
    sl_free(seg);
}

/* Appends what of one part has not been sent; *skip counts down over the parts. */
static int add_part(struct iovec *iov, int n, const void *ptr, size_t len, size_t *skip)
{
    if (*skip >= len) {
        *skip -= len;
        return n;
    }
    iov[n] = (struct iovec){(void *)((uintptr_t)ptr + *skip), len - *skip};
    *skip = 0;
    return n + 1;
}

static int fill_iov(const http_conn *cn, struct iovec *iov)
{
    int n = 0;
    for (const http_seg *seg = cn->out_first; seg != NULL && n + 3 <= MAX_IOV; seg = seg->next) {
        size_t skip = seg->sent;
        n = add_part(iov, n, seg->head, seg->head_len, &skip);
        if (seg->len > 0)
            n = add_part(iov, n, seg->body->data + seg->off, seg->len, &skip);
        n = add_part(iov, n, "\r\n", seg->tail_len, &skip);
    }
    return n;
}

static void out_consume(http_conn *cn, size_t bytes)
{
    cn->out_bytes -= bytes;
    while (bytes > 0) {
        http_seg *seg = cn->out_first;
        size_t left = seg_bytes(seg) - seg->sent;
        if (bytes < left) {
            seg->sent += (uint32_t)bytes;
            return;
        }
        bytes -= left;
        cn->out_first = seg->next;
        if (cn->out_first == NULL)
            cn->out_last = NULL;
        seg_free(seg);
    }
}

void http_out_write(http_conn *cn)
{
    sl_mono_ms now = sl_loop_now(cn->shard->lp);
    while (cn->out_first != NULL) {
        struct iovec iov[MAX_IOV];
        size_t written = 0;
        int n = fill_iov(cn, iov);
        size_t wanted = 0;
        for (int i = 0; i < n; i++)
            wanted += iov[i].iov_len;
        sl_err err = sl_stream_write(cn->sm, iov, n, &written);
        out_consume(cn, written);
        if (written > 0 || cn->write_deadline == 0)
            cn->write_deadline = now + cn->shard->sv->opt.write_ms;
        if (err != SL_OK || written < wanted) {
            cn->blocked = true; // on_writable, or on_end after a failure
            return;
        }
    }
    cn->write_deadline = 0;
}

void http_out_clear(http_conn *cn)
{
    while (cn->out_first != NULL) {
        http_seg *seg = cn->out_first;
        cn->out_first = seg->next;
        seg_free(seg);
    }
    cn->out_last = NULL;
    cn->out_bytes = 0;
}
