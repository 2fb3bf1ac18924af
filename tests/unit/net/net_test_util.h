/* SPDX-License-Identifier: Apache-2.0
 *
 * net_test_util: a loop turned by hand, and a user of a stream that remembers what it was told.
 */
#ifndef SL_NET_TEST_UTIL_H
#define SL_NET_TEST_UTIL_H

#include <poll.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "loop/loop.h"
#include "net/stream.h"

typedef struct peer_log {
    sl_stream *sm;
    sl_buf got;
    int ends;
    int writables;
    int closes;
    sl_err end_err;
    bool keep; /* keep a reference to the last read buffer */
    sl_rbuf *kept;
} peer_log;

void peer_log_init(peer_log *pl);
void peer_log_fini(peer_log *pl);
extern const sl_stream_events peer_log_events;

/** Turns the loop until *value reaches at_least; fails the test after 5 s. */
void turn_until(sl_loop *lp, const int *value, int at_least);
/** Same, until len bytes have come. */
void turn_until_bytes(sl_loop *lp, const peer_log *pl, size_t len);
/** Turns until nothing happens any more. */
void turn_idle(sl_loop *lp);

#endif
