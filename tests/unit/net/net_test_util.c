/* SPDX-License-Identifier: Apache-2.0
 *
 * net_test_util: see the header.
 */
#include "net_test_util.h"

#include <time.h>
#include <unistd.h>

#include "sl_test.h"

static void on_data(void *arg, sl_rbuf *rb, uint32_t off, uint32_t len)
{
    peer_log *pl = arg;
    SL_TEST_OK(sl_buf_append(&pl->got, rb->data + off, len));
    if (pl->keep) {
        sl_rbuf_unref(&pl->kept);
        pl->kept = sl_rbuf_ref(rb);
    }
}

static void on_end(void *arg, sl_err err)
{
    peer_log *pl = arg;
    pl->ends++;
    pl->end_err = err;
}

static void on_writable(void *arg)
{
    ((peer_log *)arg)->writables++;
}

static void on_closed(void *arg)
{
    peer_log *pl = arg;
    pl->closes++;
    pl->sm = NULL;
}

const sl_stream_events peer_log_events = {
    .on_data = on_data,
    .on_end = on_end,
    .on_writable = on_writable,
    .on_closed = on_closed,
};

void peer_log_init(peer_log *pl)
{
    *pl = (peer_log){0};
    sl_buf_init(&pl->got, 64u << 20);
}

void peer_log_fini(peer_log *pl)
{
    sl_buf_fini(&pl->got);
    sl_rbuf_unref(&pl->kept);
}

/* A turn; waits a moment when nothing was ready, so that the kernel gets time. The bound is only
 * for a test that would hang. */
static void turn(sl_loop *lp, int *idle_rounds)
{
    if (sl_loop_turn(lp)) {
        *idle_rounds = 0;
        return;
    }
    (void)poll(NULL, 0, 1);
    assert_true(++*idle_rounds < 5000);
}

void turn_until(sl_loop *lp, const int *value, int at_least)
{
    for (int idle = 0; *value < at_least;)
        turn(lp, &idle);
}

void turn_until_bytes(sl_loop *lp, const peer_log *pl, size_t len)
{
    for (int idle = 0; sl_buf_peek(&pl->got).len < len;)
        turn(lp, &idle);
}

void turn_idle(sl_loop *lp)
{
    for (int quiet = 0; quiet < 3;)
        quiet = sl_loop_turn(lp) ? 0 : quiet + 1;
}
