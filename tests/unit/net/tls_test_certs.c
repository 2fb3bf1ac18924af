/* SPDX-License-Identifier: Apache-2.0
 *
 * tls_test_certs: see the header. P-256 keys, because they are quick to make.
 */
#include "tls_test_certs.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "sl_test.h"

typedef struct test_cert {
    const char *name;   /* DIR/name.crt and DIR/name.key are written; the common name too */
    const char *issuer; /* name of the CA that signs; NULL: itself, a CA */
    const char *san;    /* "DNS:a.test,IP:127.0.0.1"; NULL: none */
    bool is_expired;
    const char *password; /* of the key file; NULL: none */
} test_cert;

static char dir[64];

const char *test_cert_path(const char *file)
{
    static char paths[8][128];
    static unsigned at;
    char *path = paths[at++ % 8];
    snprintf(path, sizeof(paths[0]), "%s/%s", dir, file);
    return path;
}

static void write_file(const char *name, const char *text)
{
    FILE *file = fopen(test_cert_path(name), "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static FILE *open_named(const char *name, const char *ending, const char *mode)
{
    char path[512];
    assert_true(snprintf(path, sizeof(path), "%s/%s.%s", dir, name, ending) < (int)sizeof(path));
    FILE *file = fopen(path, mode);
    assert_non_null(file);
    return file;
}

static void add_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX ctx;
    X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
    X509_EXTENSION *ext = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    assert_non_null(ext);
    assert_int_equal(X509_add_ext(cert, ext, -1), 1);
    X509_EXTENSION_free(ext);
}

static void write_files(const test_cert *tc, X509 *cert, EVP_PKEY *key)
{
    FILE *file = open_named(tc->name, "crt", "w");
    assert_int_equal(PEM_write_X509(file, cert), 1);
    assert_int_equal(fclose(file), 0);
    file = open_named(tc->name, "key", "w");
    const EVP_CIPHER *cipher = tc->password != NULL ? EVP_aes_128_cbc() : NULL;
    assert_int_equal(
        PEM_write_PrivateKey(file, key, cipher, NULL, 0, NULL, (void *)(uintptr_t)tc->password), 1);
    assert_int_equal(fclose(file), 0);
}

static void make_cert(const test_cert *tc)
{
    static long serial;
    EVP_PKEY *key = EVP_EC_gen("P-256"), *signer = key;
    X509 *cert = X509_new(), *issuer = cert;
    if (tc->issuer != NULL) {
        FILE *file = open_named(tc->issuer, "crt", "r");
        issuer = PEM_read_X509(file, NULL, NULL, NULL);
        fclose(file);
        file = open_named(tc->issuer, "key", "r");
        signer = PEM_read_PrivateKey(file, NULL, NULL, NULL);
        fclose(file);
    }
    assert_true(key != NULL && signer != NULL && cert != NULL && issuer != NULL);
    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(cert), -2 * 86400);
    X509_gmtime_adj(X509_getm_notAfter(cert), tc->is_expired ? -86400 : 86400);
    X509_set_pubkey(cert, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC,
                               (const unsigned char *)tc->name, -1, -1, 0);
    X509_set_issuer_name(cert, X509_get_subject_name(issuer));
    if (tc->issuer == NULL)
        add_extension(cert, issuer, NID_basic_constraints, "critical,CA:TRUE");
    if (tc->san != NULL)
        add_extension(cert, issuer, NID_subject_alt_name, tc->san);
    assert_true(X509_sign(cert, signer, EVP_sha256()) > 0);
    write_files(tc, cert, key);
    if (tc->issuer != NULL) {
        X509_free(issuer);
        EVP_PKEY_free(signer);
    }
    X509_free(cert);
    EVP_PKEY_free(key);
}

int test_certs_make(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/sluice-tls-XXXXXX");
    assert_non_null(mkdtemp(dir));
    const test_cert certs[] = {
        {.name = "ca"},
        {.name = "other-ca"},
        {.name = "server", .issuer = "ca", .san = "DNS:broker.test,IP:127.0.0.1"},
        {.name = "server2", .issuer = "other-ca", .san = "DNS:broker.test"},
        {.name = "expired", .issuer = "ca", .san = "DNS:broker.test", .is_expired = true},
        {.name = "client", .issuer = "ca"},
        {.name = "locked", .issuer = "ca", .password = "open sesame"},
    };
    for (size_t i = 0; i < sizeof(certs) / sizeof(certs[0]); i++)
        make_cert(&certs[i]);
    write_file("empty.crt", "");
    write_file("garbage.crt", "not a certificate\n");
    write_file("damaged.crt", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    return 0;
}

int test_certs_remove(void **state)
{
    (void)state;
    static const char *const files[] = {"ca",      "other-ca", "server", "server2",
                                        "expired", "client",   "locked"};
    char name[64];
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        snprintf(name, sizeof(name), "%s.crt", files[i]);
        unlink(test_cert_path(name));
        snprintf(name, sizeof(name), "%s.key", files[i]);
        unlink(test_cert_path(name));
    }
    unlink(test_cert_path("empty.crt"));
    unlink(test_cert_path("garbage.crt"));
    unlink(test_cert_path("damaged.crt"));
    return rmdir(dir);
}
