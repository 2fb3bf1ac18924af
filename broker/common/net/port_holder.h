/* SPDX-License-Identifier: Apache-2.0
 *
 * port_holder: which process listens on a TCP port, for error messages only. Best effort: other
 * users' processes show no descriptors.
 */
#ifndef SL_NET_PORT_HOLDER_H
#define SL_NET_PORT_HOLDER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/** Writes "process 1234 (mosquitto)" of the first listener found on port. SL_ENOTFOUND when nobody
 * or nobody visible has it. Reads /proc, so it blocks. @thread init or pool */
SL_MUST_USE sl_err sl_port_holder_find(uint16_t port, char *out, size_t out_bytes);

#endif
