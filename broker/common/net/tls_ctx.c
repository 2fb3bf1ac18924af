/* SPDX-License-Identifier: Apache-2.0
 *
 * tls_ctx: contexts of TLS made from settings. Everything is read and checked here, once: a file
 * that is missing, empty, damaged or does not fit the others is an error, never a context that
 * trusts more than it was told to.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include "base/alloc.h"
#include "net/tls_int.h"

static sl_err refuse(char **why, sl_err err, const char *text, ...)
    __attribute__((format(printf, 3, 4)));
static sl_err refuse(char **why, sl_err err, const char *text, ...)
{
    char line[512];
    va_list args;
    va_start(args, text);
    vsnprintf(line, sizeof(line), text, args);
    va_end(args);
    *why = sl_strdup(line);
    ERR_clear_error();
    return err;
}

static bool is_given(const char *text)
{
    return text != NULL && text[0] != '\0';
}

/* What OpenSSL says was first: the cause. Its texts are static and hold nothing of a key. */
static const char *ssl_reason(void)
{
    unsigned long code = ERR_peek_error();
    const char *text = code == 0 ? NULL : ERR_reason_error_string(code);
    return text != NULL ? text : "not understood";
}

/* Bounded, and with errors that name the cause, which OpenSSL's own reading of files lacks. */
static sl_err open_file(const char *what, const char *path, BIO **out, char **why)
{
    FILE *file = fopen(path, "re");
    struct stat st;
    if (file == NULL || fstat(fileno(file), &st) != 0) {
        int errnum = errno;
        if (file != NULL)
            fclose(file);
        char text[128];
        return refuse(why, sl_err_from_errno(errnum), "%s '%s' cannot be opened: %s", what, path,
                      strerror_r(errnum, text, sizeof(text)));
    }
    if (!S_ISREG(st.st_mode) || st.st_size > (off_t)SL_TLS_MAX_FILE) {
        fclose(file);
        return refuse(why, SL_EINVAL, "%s '%s' is no file, or longer than %u bytes", what, path,
                      SL_TLS_MAX_FILE);
    }
    *out = BIO_new_fp(file, BIO_CLOSE);
    return SL_OK;
}

/* True when reading stopped at the end of the file and not at something damaged. */
static bool is_end_of_pem(void)
{
    unsigned long code = ERR_peek_last_error();
    bool is_end = ERR_GET_LIB(code) == ERR_LIB_PEM && ERR_GET_REASON(code) == PEM_R_NO_START_LINE;
    if (is_end)
        ERR_clear_error();
    return is_end;
}

static sl_err load_ca(sl_tls_ctx *ctx, const char *path, char **why)
{
    static const char what[] = "CA file";
    BIO *bio = NULL;
    sl_err err = open_file(what, path, &bio, why);
    if (err != SL_OK)
        return err;
    unsigned count = 0;
    for (X509 *cert; (cert = PEM_read_bio_X509_AUX(bio, NULL, NULL, NULL)) != NULL; count++) {
        bool is_taken = X509_STORE_add_cert(SSL_CTX_get_cert_store(ctx->ssl), cert) == 1 &&
                        (ctx->role == SL_TLS_CLIENT || SSL_CTX_add_client_CA(ctx->ssl, cert) == 1);
        X509_free(cert);
        if (!is_taken) {
            BIO_free(bio);
            return refuse(why, SL_EINVAL, "%s '%s': certificate %u: %s", what, path, count + 1,
                          ssl_reason());
        }
    }
    bool is_whole = is_end_of_pem();
    BIO_free(bio);
    if (!is_whole)
        return refuse(why, SL_EINVAL, "%s '%s': certificate %u is damaged: %s", what, path,
                      count + 1, ssl_reason());
    if (count == 0)
        return refuse(why, SL_EINVAL, "%s '%s' holds no certificate (PEM is wanted)", what, path);
    return SL_OK;
}

static sl_err load_cert(sl_tls_ctx *ctx, const char *path, char **why)
{
    static const char what[] = "certificate file";
    BIO *bio = NULL;
    sl_err err = open_file(what, path, &bio, why);
    if (err != SL_OK)
        return err;
    X509 *cert = PEM_read_bio_X509_AUX(bio, NULL, NULL, NULL);
    bool is_taken = cert != NULL && SSL_CTX_use_certificate(ctx->ssl, cert) == 1;
    bool is_missing = cert == NULL && is_end_of_pem();
    X509_free(cert);
    for (X509 *link; is_taken && (link = PEM_read_bio_X509(bio, NULL, NULL, NULL)) != NULL;) {
        is_taken = SSL_CTX_add0_chain_cert(ctx->ssl, link) == 1;
        if (!is_taken)
            X509_free(link);
    }
    is_taken = is_taken && is_end_of_pem();
    BIO_free(bio);
    if (is_missing)
        return refuse(why, SL_EINVAL, "%s '%s' holds no certificate (PEM is wanted)", what, path);
    return is_taken ? SL_OK : refuse(why, SL_EINVAL, "%s '%s': %s", what, path, ssl_reason());
}

/* Without a password: an empty one, so that nobody is asked on a terminal. */
static int give_password(char *buf, int size, int rwflag, void *arg)
{
    (void)rwflag;
    const sl_tls_ctx *ctx = arg;
    size_t len = ctx->password == NULL ? 0 : strlen(ctx->password);
    if (len > (size_t)size)
        return -1;
    memcpy(buf, ctx->password == NULL ? "" : ctx->password, len);
    return (int)len;
}

static sl_err load_key(sl_tls_ctx *ctx, const sl_tls_settings *st, char **why)
{
    static const char what[] = "key file";
    const char *path = is_given(st->key_file) ? st->key_file : st->cert_file;
    BIO *bio = NULL;
    sl_err err = open_file(what, path, &bio, why);
    if (err != SL_OK)
        return err;
    ctx->password = is_given(st->key_password) ? sl_strdup(st->key_password) : NULL;
    EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, give_password, ctx);
    BIO_free(bio);
    if (ctx->password != NULL)
        OPENSSL_cleanse(ctx->password, strlen(ctx->password));
    sl_free(ctx->password);
    ctx->password = NULL;
    if (key == NULL)
        return refuse(why, SL_EINVAL, "%s '%s' holds no PEM key that can be read %s", what, path,
                      is_given(st->key_password) ? "with this password" : "without a password");
    bool fits = X509_check_private_key(SSL_CTX_get0_certificate(ctx->ssl), key) == 1;
    bool is_taken = fits && SSL_CTX_use_PrivateKey(ctx->ssl, key) == 1;
    EVP_PKEY_free(key);
    if (!fits)
        return refuse(why, SL_EINVAL, "%s '%s' is not the key of certificate file '%s'", what, path,
                      st->cert_file);
    return is_taken ? SL_OK : refuse(why, SL_EINVAL, "%s '%s': %s", what, path, ssl_reason());
}

/* ---- ALPN ------------------------------------------------------------------------------------ */

/* The first of ours that the client has; without one the handshake ends (RFC 7301). */
static int choose_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                       const unsigned char *in, unsigned in_len, void *arg)
{
    (void)ssl;
    const sl_tls_ctx *ctx = arg;
    unsigned char *chosen = NULL;
    int rc = SSL_select_next_proto(&chosen, out_len, ctx->alpn, ctx->alpn_bytes, in, in_len);
    *out = chosen;
    return rc == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

static sl_err set_alpn(sl_tls_ctx *ctx, const sl_tls_settings *st, char **why)
{
    for (size_t i = 0; i < st->alpn_count; i++) {
        size_t len = strlen(st->alpn[i]);
        if (len == 0 || len > 255 || ctx->alpn_bytes + len > 65000)
            return refuse(why, SL_EINVAL, "ALPN name %zu is empty or too long", i + 1);
        ctx->alpn = sl_realloc(ctx->alpn, ctx->alpn_bytes + len + 1);
        ctx->alpn[ctx->alpn_bytes] = (uint8_t)len;
        memcpy(ctx->alpn + ctx->alpn_bytes + 1, st->alpn[i], len);
        ctx->alpn_bytes += (unsigned)len + 1;
    }
    if (ctx->alpn_bytes == 0)
        return SL_OK;
    if (ctx->role == SL_TLS_SERVER)
        SSL_CTX_set_alpn_select_cb(ctx->ssl, choose_alpn, ctx);
    else if (SSL_CTX_set_alpn_protos(ctx->ssl, ctx->alpn, ctx->alpn_bytes) != 0)
        return refuse(why, SL_EINVAL, "ALPN: %s", ssl_reason());
    return SL_OK;
}

/* ---- the context ----------------------------------------------------------------------------- */

static sl_err set_trust(sl_tls_ctx *ctx, const sl_tls_settings *st, char **why)
{
    bool is_client = ctx->role == SL_TLS_CLIENT;
    int mode = SSL_VERIFY_NONE;
    if (is_client || st->client_cert != SL_TLS_CLIENT_CERT_NONE)
        mode = SSL_VERIFY_PEER;
    if (!is_client && st->client_cert == SL_TLS_CLIENT_CERT_REQUIRED)
        mode |= SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
    SSL_CTX_set_verify(ctx->ssl, mode, NULL);
    if (is_given(st->ca_file))
        return load_ca(ctx, st->ca_file, why);
    if (is_client && SSL_CTX_set_default_verify_paths(ctx->ssl) != 1)
        return refuse(why, SL_EINVAL, "the system's CA certificates: %s", ssl_reason());
    if (!is_client && mode != SSL_VERIFY_NONE)
        return refuse(why, SL_EINVAL, "client certificates are asked for, but no CA file is given");
    return SL_OK;
}

static sl_err set_up(sl_tls_ctx *ctx, const sl_tls_settings *st, char **why)
{
    static const unsigned char id[] = "sluice";
    int least = st->tls13_only ? TLS1_3_VERSION : TLS1_2_VERSION;
    if (SSL_CTX_set_min_proto_version(ctx->ssl, least) != 1 ||
        SSL_CTX_set_session_id_context(ctx->ssl, id, sizeof(id) - 1) != 1)
        return refuse(why, SL_EINVAL, "TLS: %s", ssl_reason());
    SSL_CTX_set_options(ctx->ssl, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                      SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_mode(ctx->ssl, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                   SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_session_cache_mode(ctx->ssl, SSL_SESS_CACHE_OFF); // tickets need no memory here
    sl_err err = set_trust(ctx, st, why);
    if (err == SL_OK && is_given(st->cert_file)) {
        err = load_cert(ctx, st->cert_file, why);
        if (err == SL_OK)
            err = load_key(ctx, st, why);
    } else if (err == SL_OK && is_given(st->key_file)) {
        err = refuse(why, SL_EINVAL, "key file '%s' is given without a certificate", st->key_file);
    } else if (err == SL_OK && ctx->role == SL_TLS_SERVER) {
        err = refuse(why, SL_EINVAL, "a TLS server needs a certificate file");
    }
    return err == SL_OK ? set_alpn(ctx, st, why) : err;
}

sl_err sl_tls_ctx_new(const sl_tls_settings *settings, sl_tls_ctx **out, char **why)
{
    ERR_clear_error();
    sl_tls_ctx *ctx = sl_calloc(1, sizeof(*ctx));
    atomic_init(&ctx->refs, 1);
    ctx->role = settings->role;
    ctx->ssl =
        SSL_CTX_new(settings->role == SL_TLS_CLIENT ? TLS_client_method() : TLS_server_method());
    sl_err err = ctx->ssl == NULL ? refuse(why, SL_EINVAL, "OpenSSL: %s", ssl_reason())
                                  : set_up(ctx, settings, why);
    if (err != SL_OK)
        sl_tls_ctx_unref(&ctx);
    *out = ctx;
    return err;
}

sl_tls_ctx *sl_tls_ctx_ref(sl_tls_ctx *ctx)
{
    atomic_fetch_add_explicit(&ctx->refs, 1, memory_order_relaxed);
    return ctx;
}

void sl_tls_ctx_unref(sl_tls_ctx **pointer)
{
    sl_tls_ctx *ctx = *pointer;
    *pointer = NULL;
    if (ctx == NULL || atomic_fetch_sub_explicit(&ctx->refs, 1, memory_order_acq_rel) != 1)
        return;
    SSL_CTX_free(ctx->ssl);
    sl_free(ctx->alpn);
    sl_free(ctx);
}

void sl_tls_ctx_stats(const sl_tls_ctx *ctx, sl_tls_stats *out)
{
    *out =
        (sl_tls_stats){.handshakes = atomic_load_explicit(&ctx->handshakes, memory_order_relaxed),
                       .failures = atomic_load_explicit(&ctx->failures, memory_order_relaxed),
                       .cuts = atomic_load_explicit(&ctx->cuts, memory_order_relaxed),
                       .overflows = atomic_load_explicit(&ctx->overflows, memory_order_relaxed)};
}
