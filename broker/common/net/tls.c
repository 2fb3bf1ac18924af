/* SPDX-License-Identifier: Apache-2.0
 *
 * tls: the filter. OpenSSL reads and writes through a memory BIO of ours: reading takes from the
 * bytes that just came from below (no copy of our own), writing goes straight below and keeps only
 * what that did not take. Work that could call the user is done on data, on room, or from a timer
 * of zero delay, never inside a call of the user.
 */
#include "net/tls.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/x509v3.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/buf.h"
#include "base/list.h"
#include "net/filter.h"
#include "net/tls_int.h"

#define RECORD_BYTES 16384u /* the most that one record carries */
#define READ_ROOM    4096u  /* below this a new read buffer is begun */
#define NAME_BYTES   256

typedef enum tls_state { TLS_NEW, TLS_HANDSHAKE, TLS_UP, TLS_ENDED, TLS_FAILED } tls_state;

typedef struct tls {
    sl_filter base;
    tls_state state;
    bool reading;       /* the user wants bytes */
    bool below_reading; /* the layer below was told to read */
    bool want_writable; /* the user was told "less" */
    bool is_shut;       /* close_notify was sent: nothing more is written */
    bool shut_waits;    /* the layer below is shut down once `pending` is empty */
    bool end_waits;     /* the layer below ended; told when what is kept was read */
    bool is_first;      /* no byte of the peer was seen yet */
    bool is_broken;     /* OpenSSL failed inside a call of the user: told by the timer */
    sl_err below_err;   /* of a write: the layer below tells on_end */
    sl_tls_ctx *ctx;    /* one reference */
    SSL *ssl;           /* owned */
    sl_rbuf *in;        /* one reference while in_len > 0: bytes not given to OpenSSL yet */
    uint32_t in_off, in_len;
    sl_buf pending; /* what the layer below did not take */
    sl_timer timer;
    char *server_name;           /* owned; client */
    const sl_tls_events *events; /* borrowed */
    void *arg;
} tls;

static tls *tls_of(sl_filter *ft)
{
    return SL_CONTAINER(ft, tls, base);
}

#define COUNT(tl, what) atomic_fetch_add_explicit(&(tl)->ctx->what, 1, memory_order_relaxed)

/* ---- the BIO --------------------------------------------------------------------------------- */

static int bio_read(BIO *bio, char *out, int len)
{
    tls *tl = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (tl->in_len == 0) {
        BIO_set_retry_read(bio);
        return -1;
    }
    uint32_t take = (uint32_t)len < tl->in_len ? (uint32_t)len : tl->in_len;
    memcpy(out, tl->in->data + tl->in_off, take);
    tl->in_off += take;
    tl->in_len -= take;
    return (int)take;
}

static int bio_write(BIO *bio, const char *bytes, int len)
{
    tls *tl = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    size_t took = 0;
    if (tl->below_err == SL_OK && sl_buf_peek(&tl->pending).len == 0) {
        struct iovec iov = {(void *)(uintptr_t)bytes, (size_t)len};
        sl_err err = sl_filter_write(&tl->base, &iov, 1, &took);
        if (err != SL_OK && err != SL_EAGAIN)
            tl->below_err = err;
    }
    if (tl->below_err == SL_OK &&
        sl_buf_append(&tl->pending, bytes + took, (size_t)len - took) != SL_OK) {
        COUNT(tl, overflows);
        tl->below_err = SL_ELIMIT;
        tl->is_broken = true;
        sl_timer_start(&tl->timer, 0, 0);
    }
    return tl->below_err == SL_OK ? len : -1;
}

static long bio_ctrl(BIO *bio, int cmd, long num, void *ptr)
{
    (void)bio;
    (void)num;
    (void)ptr;
    return cmd == BIO_CTRL_FLUSH; // nothing is held back here
}

static BIO_METHOD *bio_method; /* made once, lives as long as the process */
static pthread_once_t bio_method_once = PTHREAD_ONCE_INIT;

static void make_bio_method(void)
{
    bio_method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "sluice stream");
    SL_ASSERT(bio_method != NULL);
    BIO_meth_set_read(bio_method, bio_read);
    BIO_meth_set_write(bio_method, bio_write);
    BIO_meth_set_ctrl(bio_method, bio_ctrl);
}

/* SSL_MODE_RELEASE_BUFFERS alone leaves the 16 KB of the last write in some paths. Never with a
 * record that was read in part: older OpenSSL would free it under the reader (CVE-2024-4741). */
static void release_buffers(tls *tl)
{
    if (tl->state >= TLS_UP && SSL_has_pending(tl->ssl) == 0 && SSL_pending(tl->ssl) == 0)
        (void)SSL_free_buffers(tl->ssl);
}

/* ---- output ---------------------------------------------------------------------------------- */

/* True when nothing is pending. */
static bool flush(tls *tl)
{
    for (sl_slice rest; (rest = sl_buf_peek(&tl->pending)).len > 0;) {
        if (tl->below_err != SL_OK)
            return false;
        struct iovec iov = {(void *)(uintptr_t)rest.ptr, rest.len};
        size_t took = 0;
        sl_err err = sl_filter_write(&tl->base, &iov, 1, &took);
        if (err != SL_OK && err != SL_EAGAIN)
            tl->below_err = err;
        sl_buf_consume(&tl->pending, took);
        if (took < rest.len)
            return false;
    }
    sl_buf_fini(&tl->pending); // an idle stream keeps no memory for it
    if (tl->shut_waits) {
        tl->shut_waits = false;
        sl_filter_shutdown(&tl->base);
    }
    return true;
}

static void tell_writable(tls *tl)
{
    if (!tl->want_writable || tl->state < TLS_UP || tl->state == TLS_FAILED || !flush(tl))
        return;
    tl->want_writable = false;
    sl_filter_writable(&tl->base);
}

/* The layer below reads when we have nothing and somebody wants something. */
static void steer_below(tls *tl)
{
    bool want = tl->in_len == 0 && !tl->end_waits &&
                (tl->state == TLS_HANDSHAKE || (tl->state == TLS_UP && tl->reading));
    if (want == tl->below_reading)
        return;
    tl->below_reading = want;
    if (want)
        sl_filter_read_start(&tl->base);
    else
        sl_filter_read_stop(&tl->base);
}

/* ---- ends ------------------------------------------------------------------------------------ */

static void drop_input(tls *tl)
{
    sl_rbuf_unref(&tl->in);
    tl->in_len = 0;
}

static void fail(tls *tl, sl_err err, const char *why)
{
    if (tl->state >= TLS_ENDED)
        return;
    tl->state = TLS_FAILED;
    COUNT(tl, failures);
    drop_input(tl);
    steer_below(tl);
    (void)flush(tl); // the alert that tells the peer
    if (tl->events != NULL && tl->events->on_failure != NULL)
        tl->events->on_failure(tl->arg, why);
    if (sl_filter_is_open(&tl->base))
        sl_filter_end(&tl->base, err);
}

static void fail_certificate(tls *tl, long result)
{
    char why[512];
    bool is_name =
        result == X509_V_ERR_HOSTNAME_MISMATCH || result == X509_V_ERR_IP_ADDRESS_MISMATCH;
    if (is_name)
        snprintf(why, sizeof(why), "the certificate of the server is not for '%s'",
                 tl->server_name);
    else
        snprintf(why, sizeof(why), "the certificate of the peer is not accepted: %s",
                 X509_verify_cert_error_string(result));
    fail(tl, SL_EDENIED, why);
}

static bool is_about_certificates(int alert)
{
    return (alert >= SSL_AD_BAD_CERTIFICATE && alert <= SSL_AD_UNKNOWN_CA) ||
           alert == SSL_AD_ACCESS_DENIED || alert == SSL_AD_CERTIFICATE_REQUIRED;
}

/* OpenSSL gave up: from its error queue to a text for the log. */
static void fail_by_ssl(tls *tl)
{
    unsigned long code = ERR_peek_error();
    int reason = ERR_GET_REASON(code);
    long result = SSL_get_verify_result(tl->ssl);
    char why[512];
    if (code != 0 && ERR_GET_LIB(code) == ERR_LIB_SSL && reason >= SSL_AD_REASON_OFFSET) {
        int alert = reason - SSL_AD_REASON_OFFSET;
        const char *text = ERR_reason_error_string(code);
        snprintf(why, sizeof(why), "the peer refused: %s", text != NULL ? text : "unknown alert");
        fail(tl, is_about_certificates(alert) ? SL_EDENIED : SL_EPROTOCOL, why);
    } else if (result != X509_V_OK) {
        fail_certificate(tl, result);
    } else {
        const char *text = code == 0 ? NULL : ERR_reason_error_string(code);
        bool is_missing =
            ERR_GET_LIB(code) == ERR_LIB_SSL && reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE;
        snprintf(why, sizeof(why), "TLS: %s", text != NULL ? text : "protocol error");
        fail(tl, is_missing ? SL_EDENIED : SL_EPROTOCOL, why);
    }
    ERR_clear_error();
}

/* The layer below has no more. */
static void finish_below(tls *tl, sl_err err)
{
    if (tl->state < TLS_UP) {
        fail(
            tl, err == SL_OK ? SL_ECLOSED : err,
            "the connection ended during the TLS handshake: does the peer speak TLS on this port?");
    } else if (err == SL_OK && tl->is_shut) {
        tl->state = TLS_ENDED; // we had said goodbye, so nothing can be missing that we wait for
        sl_filter_end(&tl->base, SL_OK);
    } else if (err == SL_OK) {
        COUNT(tl, cuts);
        fail(tl, SL_ECLOSED, "the connection was cut: it ended without a TLS goodbye");
    } else {
        tl->state = TLS_ENDED;
        sl_filter_end(&tl->base, err);
    }
}

/* ---- input ----------------------------------------------------------------------------------- */

static void tell_up(tls *tl)
{
    char name[NAME_BYTES] = "", alpn[NAME_BYTES] = "";
    X509 *cert = SSL_get1_peer_certificate(tl->ssl);
    if (cert != NULL) {
        X509_NAME *subject = X509_get_subject_name(cert);
        int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
        unsigned char *text = NULL;
        int len = at < 0 ? -1
                         : ASN1_STRING_to_UTF8(
                               &text, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
        // a name that is cut, or has a NUL inside, could be taken for another one
        if (len > 0 && len < NAME_BYTES && memchr(text, '\0', (size_t)len) == NULL)
            memcpy(name, text, (size_t)len);
        OPENSSL_free(text);
        X509_free(cert);
    }
    const unsigned char *proto = NULL;
    unsigned proto_len = 0;
    SSL_get0_alpn_selected(tl->ssl, &proto, &proto_len);
    if (proto_len > 0 && proto_len < NAME_BYTES)
        memcpy(alpn, proto, proto_len);
    const sl_tls_peer peer = {
        .common_name = name, .alpn = alpn, .version = SSL_get_version(tl->ssl)};
    if (tl->events != NULL && tl->events->on_up != NULL)
        tl->events->on_up(tl->arg, &peer);
}

/* True once it is done. */
static bool handshake(tls *tl)
{
    ERR_clear_error();
    int rc = SSL_do_handshake(tl->ssl);
    if (rc == 1) {
        tl->state = TLS_UP;
        COUNT(tl, handshakes);
        tell_up(tl);
        if (sl_filter_is_open(&tl->base))
            tell_writable(tl);
        return sl_filter_is_open(&tl->base);
    }
    // a write that failed below is told from there
    if (SSL_get_error(tl->ssl, rc) != SSL_ERROR_WANT_READ && tl->below_err == SL_OK)
        fail_by_ssl(tl);
    return false;
}

/* Decrypts once and hands up. False: no more for now. */
static bool read_once(tls *tl)
{
    sl_rbuf *rb = sl_net_rbuf(READ_ROOM);
    uint32_t off = rb->len;
    ERR_clear_error();
    int n = SSL_read(tl->ssl, rb->data + off, (int)(rb->cap - off));
    if (n > 0) {
        rb->len += (uint32_t)n;
        sl_filter_deliver(&tl->base, rb, off, (uint32_t)n);
        return true;
    }
    int reason = SSL_get_error(tl->ssl, n);
    if (reason == SSL_ERROR_ZERO_RETURN) {
        tl->state = TLS_ENDED;
        drop_input(tl);
        sl_filter_end(&tl->base, SL_OK);
    } else if (reason != SSL_ERROR_WANT_READ && tl->below_err == SL_OK) {
        fail_by_ssl(tl);
    }
    return false;
}

static bool has_input(const tls *tl)
{
    return tl->in_len > 0 || SSL_has_pending(tl->ssl) == 1;
}

/* Goes as far as the bytes at hand and the user allow. */
static void pump(tls *tl)
{
    if (tl->state == TLS_HANDSHAKE)
        (void)handshake(tl);
    while (sl_filter_is_open(&tl->base) && tl->state == TLS_UP && tl->reading && read_once(tl))
        ;
    if (!sl_filter_is_open(&tl->base))
        return;
    if (tl->in_len == 0)
        drop_input(tl);
    release_buffers(tl);
    if (tl->end_waits && tl->state < TLS_ENDED && (tl->reading || !has_input(tl))) {
        tl->end_waits = false;
        finish_below(tl, SL_OK);
    }
    if (sl_filter_is_open(&tl->base))
        steer_below(tl);
}

/* The first byte tells TLS from everything else, and what else it is. */
static bool looks_like_tls(tls *tl, uint8_t byte)
{
    if (byte == SSL3_RT_HANDSHAKE || byte == SSL3_RT_ALERT)
        return true;
    char why[160];
    const char *hint = "";
    if (tl->ctx->role == SL_TLS_CLIENT)
        hint = ": does the server speak TLS on this port?";
    else if (byte == 0x10)
        hint = ": this looks like MQTT without TLS, which has another port";
    else if (byte >= 'A' && byte <= 'Z')
        hint = ": this looks like HTTP without TLS";
    snprintf(why, sizeof(why), "the first byte of the peer is 0x%02x, which is not TLS%s", byte,
             hint);
    fail(tl, SL_EPROTOCOL, why);
    return false;
}

static void tls_on_data(sl_filter *ft, sl_rbuf *rb, uint32_t off, uint32_t len)
{
    tls *tl = tls_of(ft);
    if (tl->state >= TLS_ENDED)
        return;
    SL_ASSERT(tl->in_len == 0 && tl->state != TLS_NEW); // else the layer below is not reading
    if (tl->is_first && !looks_like_tls(tl, rb->data[off]))
        return;
    tl->is_first = false;
    tl->in = sl_rbuf_ref(rb);
    tl->in_off = off;
    tl->in_len = len;
    pump(tl);
}

static void tls_on_end(sl_filter *ft, sl_err err)
{
    tls *tl = tls_of(ft);
    if (tl->state >= TLS_ENDED)
        return;
    if (err == SL_OK && tl->state == TLS_UP && !tl->reading && has_input(tl)) {
        tl->end_waits = true;
        return;
    }
    drop_input(tl);
    finish_below(tl, err);
}

static void tls_on_writable(sl_filter *ft)
{
    tls *tl = tls_of(ft);
    if (flush(tl))
        tell_writable(tl);
}

static void on_timer(void *arg)
{
    tls *tl = arg;
    if (!sl_filter_is_open(&tl->base))
        return;
    if (tl->is_broken)
        fail(tl, tl->below_err == SL_ELIMIT ? SL_ELIMIT : SL_EIO,
             tl->below_err == SL_ELIMIT ? "the peer does not read the TLS answers that it asks for"
                                        : "OpenSSL failed to write");
    else
        pump(tl);
}

/* ---- from above ------------------------------------------------------------------------------ */

static void tls_read_start(sl_filter *ft)
{
    tls *tl = tls_of(ft);
    tl->reading = true;
    if (tl->state == TLS_NEW)
        tl->state = TLS_HANDSHAKE;
    else if (tl->state != TLS_UP || !has_input(tl)) {
        steer_below(tl);
        return;
    }
    sl_timer_start(&tl->timer, 0, 0);
}

static void tls_read_stop(sl_filter *ft)
{
    tls *tl = tls_of(ft);
    tl->reading = false;
    steer_below(tl);
}

/* The next bytes to encrypt: a long piece as it is, short ones together in scratch. */
typedef struct cursor {
    const struct iovec *iov;
    int count;
    size_t off; /* into the first */
} cursor;

static sl_slice next_part(cursor *cu, uint8_t *scratch)
{
    size_t len = 0;
    while (cu->count > 0 && len < RECORD_BYTES) {
        const uint8_t *from = (const uint8_t *)cu->iov->iov_base + cu->off;
        size_t left = cu->iov->iov_len - cu->off;
        size_t take = left < RECORD_BYTES - len ? left : RECORD_BYTES - len;
        bool is_whole_record = len == 0 && take == RECORD_BYTES;
        if (!is_whole_record && take > 0)
            memcpy(scratch + len, from, take);
        len += take;
        cu->off += take;
        if (take == left) {
            cu->iov++;
            cu->count--;
            cu->off = 0;
        }
        if (is_whole_record)
            return sl_slice_of(from, len);
    }
    return sl_slice_of(scratch, len);
}

static sl_err tls_write(sl_filter *ft, const struct iovec *iov, int iovcnt, size_t *written)
{
    tls *tl = tls_of(ft);
    *written = 0;
    if (tl->is_shut || tl->state == TLS_FAILED)
        return SL_ECLOSED;
    bool is_ready = tl->state >= TLS_UP && flush(tl);
    if (tl->below_err != SL_OK)
        return tl->below_err;
    tl->want_writable = !is_ready;
    if (!is_ready)
        return SL_EAGAIN;
    uint8_t scratch[RECORD_BYTES];
    cursor cu = {.iov = iov, .count = iovcnt};
    for (sl_slice part; (part = next_part(&cu, scratch)).len > 0;) {
        ERR_clear_error();
        size_t n = 0;
        if (SSL_write_ex(tl->ssl, part.ptr, part.len, &n) != 1) {
            if (tl->below_err != SL_OK)
                return tl->below_err;
            tl->is_broken = true;
            sl_timer_start(&tl->timer, 0, 0);
            return SL_EIO;
        }
        SL_ASSERT(n == part.len); // one record, and the BIO takes all
        *written += n;
        if (sl_buf_peek(&tl->pending).len > 0) {
            tl->want_writable = true;
            break;
        }
    }
    release_buffers(tl);
    return SL_OK;
}

/* close_notify, behind what was written. */
static void say_goodbye(tls *tl)
{
    if (tl->is_shut || tl->state < TLS_UP || tl->state == TLS_FAILED || tl->below_err != SL_OK)
        return;
    tl->is_shut = true;
    ERR_clear_error();
    (void)SSL_shutdown(tl->ssl); // what can fail is the write below, which tells itself
}

static void tls_shutdown(sl_filter *ft)
{
    tls *tl = tls_of(ft);
    say_goodbye(tl);
    tl->is_shut = true;
    tl->shut_waits = true;
    (void)flush(tl);
}

static void tls_close(sl_filter *ft)
{
    tls *tl = tls_of(ft);
    say_goodbye(tl);
    (void)flush(tl);
    sl_timer_stop(&tl->timer);
}

static void tls_fini(sl_filter *ft)
{
    tls *tl = tls_of(ft);
    sl_timer_fini(&tl->timer);
    SSL_free(tl->ssl);
    sl_tls_ctx_unref(&tl->ctx);
    sl_rbuf_unref(&tl->in);
    sl_buf_fini(&tl->pending);
    sl_free(tl->server_name);
    sl_free(tl);
}

static const sl_filter_ops tls_ops = {
    .name = "tls",
    .on_data = tls_on_data,
    .on_end = tls_on_end,
    .on_writable = tls_on_writable,
    .write = tls_write,
    .read_start = tls_read_start,
    .read_stop = tls_read_stop,
    .shutdown = tls_shutdown,
    .close = tls_close,
    .fini = tls_fini,
};

/* ---- making ---------------------------------------------------------------------------------- */

bool sl_tls_is_server_name(const char *name)
{
    if (name == NULL || name[0] == '\0' || strlen(name) > TLSEXT_MAXLEN_host_name)
        return false;
    for (const char *at = name; *at != '\0'; at++)
        if (*at <= ' ' || *at > '~')
            return false;
    return true;
}

/* Whose certificate it must be. */
static bool set_server_name(SSL *ssl, const char *name)
{
    struct in6_addr addr;
    if (!sl_tls_is_server_name(name))
        return false;
    if (inet_pton(AF_INET, name, &addr) == 1 || inet_pton(AF_INET6, name, &addr) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name) == 1;
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set_tlsext_host_name(ssl, name) == 1 && SSL_set1_host(ssl, name) == 1;
}

sl_err sl_tls_push(sl_stream *sm, sl_tls_ctx *ctx, const char *server_name,
                   const sl_tls_events *events, void *arg)
{
    ERR_clear_error();
    bool is_client = ctx->role == SL_TLS_CLIENT;
    SSL *ssl = SSL_new(ctx->ssl);
    SL_ASSERT(ssl != NULL); // fails only without memory
    if (is_client && !set_server_name(ssl, server_name)) {
        SSL_free(ssl);
        ERR_clear_error();
        return SL_EINVAL;
    }
    tls *tl = sl_calloc(1, sizeof(*tl));
    tl->base.ops = &tls_ops;
    tl->is_first = true;
    tl->ctx = sl_tls_ctx_ref(ctx);
    tl->ssl = ssl;
    tl->server_name = is_client ? sl_strdup(server_name) : NULL;
    tl->events = events;
    tl->arg = arg;
    sl_buf_init(&tl->pending, SL_TLS_MAX_PENDING);
    pthread_once(&bio_method_once, make_bio_method);
    BIO *bio = BIO_new(bio_method);
    SL_ASSERT(bio != NULL);
    BIO_set_data(bio, tl);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio); // takes it
    if (is_client)
        SSL_set_connect_state(ssl);
    else
        SSL_set_accept_state(ssl);
    sl_timer_init(&tl->timer, sl_stream_loop(sm), on_timer, tl);
    sl_stream_push(sm, &tl->base);
    return SL_OK;
}
