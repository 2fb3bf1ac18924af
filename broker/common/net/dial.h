/* SPDX-License-Identifier: Apache-2.0
 *
 * dial: resolves a name and connects by TCP, address after address, within one deadline. For pool
 * threads: getaddrinfo blocks and cannot be told to stop.
 */
#ifndef SL_NET_DIAL_H
#define SL_NET_DIAL_H

#include <stdint.h>

#include "base/clock.h"

/** A connected, non-blocking socket with TCP_NODELAY, or a negative errno value. arg is not used:
 * the signature is that of the dialers which tests put in its place. @thread pool */
int sl_net_dial_tcp(void *arg, const char *host, uint16_t port, sl_dur_ms timeout);

#endif
