/* SPDX-License-Identifier: Apache-2.0
 *
 * tls: TLS 1.2 and 1.3 as a filter of a stream, client or server, by OpenSSL. A context holds what
 * many streams share (certificates, what is trusted) and never changes: to reload, make a new one
 * and use it for new streams; old streams keep theirs. A client always verifies the chain and the
 * name of its server; there is no switch to turn that off.
 *
 *      NEW --read_start--> HANDSHAKE --done--> UP --close_notify, end--> ENDED
 *                              `------ fault, end without close_notify --> FAILED
 *
 * Before UP, sl_stream_write answers SL_EAGAIN and on_writable follows. How long a handshake may
 * take is the owner's to limit: close the stream. Bounds: at most one record (16 KB) that the
 * socket did not take, and one read (64 KB) that the user did not want yet, are kept; a peer that
 * makes us answer more than SL_TLS_MAX_PENDING without reading is cut and counted.
 *
 * sl_stream_close says goodbye but does not wait: bytes of the last record may be lost with a slow
 * peer. Who must be sure calls sl_stream_shutdown and waits for the peer's end.
 */
#ifndef SL_NET_TLS_H
#define SL_NET_TLS_H

#include <stdint.h>

#include "net/stream.h"

typedef struct sl_tls_ctx sl_tls_ctx;

#define SL_TLS_MAX_PENDING (128u * 1024u)       /* bytes for a peer that does not read */
#define SL_TLS_MAX_FILE    (8u * 1024u * 1024u) /* of a PEM file */

typedef enum sl_tls_role { SL_TLS_CLIENT, SL_TLS_SERVER } sl_tls_role;

typedef enum sl_tls_client_cert { /* of a server: what it asks of its clients */
                                  SL_TLS_CLIENT_CERT_NONE,
                                  SL_TLS_CLIENT_CERT_WANTED,  /* verified when there is one */
                                  SL_TLS_CLIENT_CERT_REQUIRED /* no connection without */
} sl_tls_client_cert;

/* Files are PEM. NULL or "": not given. All borrowed for the call. */
typedef struct sl_tls_settings {
    sl_tls_role role;
    const char *ca_file;      /* who is trusted; client without: the system's store */
    const char *cert_file;    /* own certificate and its chain; a server needs one */
    const char *key_file;     /* its key; not given: it is in cert_file */
    const char *key_password; /* of an encrypted key */
    bool tls13_only;          /* else TLS 1.2 is the least */
    sl_tls_client_cert client_cert;
    const char *const *alpn; /* protocol names, best first */
    size_t alpn_count;
} sl_tls_settings;

/** A context with one reference. Errors SL_EINVAL, SL_EIO ...: *why is an owned message that names
 * the file and the reason, never anything of the key. Reads files: blocks. @thread init, pool */
SL_MUST_USE sl_err sl_tls_ctx_new(const sl_tls_settings *settings, sl_tls_ctx **out, char **why);
/** @thread any */
sl_tls_ctx *sl_tls_ctx_ref(sl_tls_ctx *ctx);
/** Sets *ctx to NULL; accepts NULL inside. @thread any */
void sl_tls_ctx_unref(sl_tls_ctx **ctx);

typedef struct sl_tls_stats {
    uint64_t handshakes; /* completed */
    uint64_t failures;   /* of handshakes, and of streams by a fault of the peer */
    uint64_t cuts;       /* streams that ended without close_notify */
    uint64_t overflows;  /* SL_TLS_MAX_PENDING reached */
} sl_tls_stats;
/** @thread any */
void sl_tls_ctx_stats(const sl_tls_ctx *ctx, sl_tls_stats *out);

/* Borrowed for the call. */
typedef struct sl_tls_peer {
    const char *common_name; /* of the verified certificate; "" none */
    const char *alpn;        /* "" none was agreed on */
    const char *version;     /* "TLSv1.3" */
} sl_tls_peer;

/* Called on the loop, never after sl_stream_close. Any may be NULL. */
typedef struct sl_tls_events {
    void (*on_up)(void *arg, const sl_tls_peer *peer);
    /* Just before on_end with an error: why, for the log. Borrowed for the call. */
    void (*on_failure)(void *arg, const char *why);
} sl_tls_events;

/** A host name or IP address that a certificate can be for. @thread any */
bool sl_tls_is_server_name(const char *name);

/**
 * Puts TLS on top of a stream, before sl_stream_read_start, which begins the handshake. Takes a
 * reference of ctx. server_name: client only, the name or IP address that the certificate must be
 * for (a name is also sent as SNI). events lives on until on_closed; NULL: nobody.
 * Errors SL_EINVAL sl_tls_is_server_name says no (then nothing is pushed). Ends of the stream:
 * SL_OK after the peer's close_notify; SL_EDENIED a certificate is not accepted, by us or by the
 * peer; SL_EPROTOCOL what came is no TLS or has none in common with us; SL_ECLOSED cut. @thread
 * loop
 */
SL_MUST_USE sl_err sl_tls_push(sl_stream *sm, sl_tls_ctx *ctx, const char *server_name,
                               const sl_tls_events *events, void *arg);

#endif
