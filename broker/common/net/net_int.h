/* SPDX-License-Identifier: Apache-2.0
 *
 * net_int: what stream.c, tcp.c and listener.c share; not for users of the folder.
 */
#ifndef SL_NET_NET_INT_H
#define SL_NET_NET_INT_H

#include <sys/socket.h>

#include "net/filter.h"

/* stream.c: the chain and its user */

/** A stream over the bottom filter; peer text still unset. The storage of the bottom filter is
 * freed by its fini. */
sl_stream *sl_stream_new(sl_loop *lp, sl_filter *bottom);
/** The bottom's close has finished: frees the filters, tells the user, frees the stream. */
void sl_stream_closed(sl_stream *sm);
bool sl_stream_is_open(const sl_stream *sm);
void sl_stream_set_peer(sl_stream *sm, const char *ip, uint16_t port);

/** Marks the thread's read buffer as being delivered from: it is not rewound until the matching
 * leave. */
void sl_net_rbuf_enter(void);
void sl_net_rbuf_leave(void);

/* tcp.c */

/** sl_stream_tcp_new for a caller that knows the peer already (addr NULL: ask the kernel). */
SL_MUST_USE sl_err sl_stream_tcp_accept(sl_loop *lp, int fd, const struct sockaddr *addr,
                                        sl_stream **out);
/** Starts the close; sl_stream_closed follows in a later turn. */
void sl_tcp_close(sl_filter *ft);
void sl_tcp_set_user_timeout(sl_filter *ft, sl_dur_ms ms);

#endif
