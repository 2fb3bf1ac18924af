/* SPDX-License-Identifier: Apache-2.0
 *
 * tls_int: what tls_ctx.c (contexts from files) and tls.c (the filter) share.
 */
#ifndef SL_NET_TLS_INT_H
#define SL_NET_TLS_INT_H

#include <stdatomic.h>

#include <openssl/ssl.h>

#include "net/tls.h"

struct sl_tls_ctx {
    _Atomic uint32_t refs;
    sl_tls_role role;
    SSL_CTX *ssl;        /* owned */
    char *password;      /* owned, wiped; only while files are read */
    uint8_t *alpn;       /* owned; as on the wire: length, name, ... */
    unsigned alpn_bytes; /* of it */
    _Atomic uint64_t handshakes, failures, cuts, overflows;
};

#endif
