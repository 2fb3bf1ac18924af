/* SPDX-License-Identifier: Apache-2.0
 *
 * tls_ctx: contexts from files, good and bad. Nothing is connected here.
 */
#include <string.h>

#include "base/alloc.h"
#include "net/tls.h"
#include "sl_test.h"
#include "tls_test_certs.h"

static void refused(const sl_tls_settings *settings, const char *file, const char *reason)
{
    sl_tls_ctx *ctx = NULL;
    char *why = NULL;
    sl_err err = sl_tls_ctx_new(settings, &ctx, &why);
    assert_true(err != SL_OK);
    assert_null(ctx);
    if (strstr(why, file) == NULL || strstr(why, reason) == NULL)
        fail_msg("'%s' lacks '%s' or '%s'", why, file, reason);
    sl_free(why);
}

static void test_tls_ca_file_that_trusts_nobody_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *file, *reason;
    } rows[] = {{"missing.crt", "No such file"},
                {"empty.crt", "holds no certificate"},
                {"garbage.crt", "holds no certificate"},
                {"server.key", "holds no certificate"},
                {"damaged.crt", "damaged"},
                {"", "is no file"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const sl_tls_settings st = {.role = SL_TLS_CLIENT, .ca_file = test_cert_path(rows[i].file)};
        refused(&st, rows[i].file, rows[i].reason);
    }
}

static void test_tls_certificate_and_key_must_be_a_pair(void **state)
{
    (void)state;
    sl_tls_settings st = {.role = SL_TLS_SERVER};
    refused(&st, "", "needs a certificate");
    st.cert_file = test_cert_path("server.crt");
    refused(&st, "server.crt", "holds no PEM key");
    st.key_file = test_cert_path("client.key");
    refused(&st, "client.key", "is not the key of");
    st.key_file = test_cert_path("garbage.crt");
    refused(&st, "garbage.crt", "holds no PEM key");
    st.cert_file = test_cert_path("damaged.crt");
    refused(&st, "damaged.crt", "certificate file");
    st.cert_file = NULL;
    refused(&st, "garbage.crt", "without a certificate");
    st = (sl_tls_settings){.role = SL_TLS_SERVER,
                           .cert_file = test_cert_path("server.crt"),
                           .key_file = test_cert_path("server.key"),
                           .client_cert = SL_TLS_CLIENT_CERT_WANTED};
    refused(&st, "", "no CA file");
}

static void test_tls_key_with_a_password(void **state)
{
    (void)state;
    sl_tls_settings st = {.role = SL_TLS_SERVER,
                          .cert_file = test_cert_path("locked.crt"),
                          .key_file = test_cert_path("locked.key")};
    refused(&st, "locked.key", "without a password");
    st.key_password = "wrong";
    refused(&st, "locked.key", "with this password");
    st.key_password = "open sesame";
    sl_tls_ctx *ctx = NULL;
    char *why = NULL;
    SL_TEST_OK(sl_tls_ctx_new(&st, &ctx, &why));
    assert_null(why);
    sl_tls_ctx_unref(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tls_ca_file_that_trusts_nobody_is_refused),
        cmocka_unit_test(test_tls_certificate_and_key_must_be_a_pair),
        cmocka_unit_test(test_tls_key_with_a_password),
    };
    return cmocka_run_group_tests(tests, test_certs_make, test_certs_remove);
}
