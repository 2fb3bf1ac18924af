/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of gateway/src/gateway_conf: defaults, overrides, errors that name the key, warnings.
 */
#include "gateway_conf.h"

#include <unistd.h>

#include "base/alloc.h"
#include "conf_int.h"
#include "conf_log.h"
#include "sl_test.h"

static char path[64];

static sl_err load(const char *yaml, const char *rho, sl_gateway_conf **cf, char **why)
{
    snprintf(path, sizeof path, "/tmp/sl-gwconf-%d.yml", (int)getpid());
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(yaml, file);
    fclose(file);
    conf_log_begin();
    sl_err err =
        sl_gateway_conf_load(&(sl_gateway_conf_sources){.file = path, .rho = rho}, cf, why);
    unlink(path);
    return err;
}

static sl_gateway_conf *fine(const char *yaml, const char *rho)
{
    sl_gateway_conf *cf = NULL;
    char *why = NULL;
    sl_err err = load(yaml, rho, &cf, &why);
    if (err != SL_OK)
        fail_msg("%s", why);
    return cf;
}

/* Refused with a message that holds the file's name and every one of the words. */
static void refused(const char *yaml, const char *first, const char *second)
{
    sl_gateway_conf *cf = NULL;
    char *why = NULL;
    sl_err err = load(yaml, NULL, &cf, &why);
    if (err == SL_OK)
        fail_msg("accepted: %s", yaml);
    if (strstr(why, path) == NULL || strstr(why, first) == NULL || strstr(why, second) == NULL)
        fail_msg("\"%s\" does not name the file, %s and %s", why, first, second);
    sl_free(why);
    assert_null(cf);
}

static void test_gateway_conf_defaults(void **state)
{
    (void)state;
    sl_gateway_conf *cf = fine("", NULL);
    assert_true(sl_gateway_conf_bool(cf, "http-listener/enabled"));
    assert_false(sl_gateway_conf_bool(cf, "mqtt-client/enabled"));
    assert_true(sl_gateway_conf_bool(cf, "mqtt-topic-authorizer/enabled"));
    assert_int_equal(sl_gateway_conf_int(cf, "mqtt-client/session-expiry-seconds"), 4294967295ll);
    assert_int_equal(sl_gateway_conf_int(cf, "mqtt-mongo-writer/buffer/max-wait-ms"), 30000);
    assert_int_equal(sl_gateway_conf_int(cf, "mqtt-mongo-writer/drain/max-unacked-ms"), 15000);
    assert_string_equal(sl_gateway_conf_str(cf, "mqtt-sse/overflow"), "drop-oldest");
    assert_null(sl_gateway_conf_str(cf, "mclient/connection-string"));
    size_t count;
    const sl_conf_user *users = sl_gateway_conf_users(cf, &count);
    assert_int_equal(count, 1);
    assert_string_equal(users[0].userid, "admin");
    assert_null(users[0].password);
    assert_string_equal(users[0].roles[0], "admin");
    sl_gateway_conf_grants(cf, &count);
    assert_int_equal(count, 0);
    assert_false(sl_gateway_conf_has(cf, "mqtt-sse"));
    sl_gateway_conf_free(&cf);
}

static void test_gateway_conf_values_in_all_spellings(void **state)
{
    (void)state;
    sl_gateway_conf *cf =
        fine("http-listener: {port: \"9_090\"}\n"
             "mqtt-sse: {enabled: \"true\", keep-alive-ms: 60_000}\n"
             "mqtt-client: {client-id: ~, keep-alive-seconds: null}\n"
             "mqtt-router: {subscriptions: [{topic: a/#}, {topic: b, qos: '2'}]}\n"
             "mqtt-topic-authorizer: {acl: {viewer: [a, 'b/#'], one: c, no: ~}}\n",
             NULL);
    assert_int_equal(sl_gateway_conf_int(cf, "http-listener/port"), 9090);
    assert_true(sl_gateway_conf_bool(cf, "mqtt-sse/enabled"));
    assert_int_equal(sl_gateway_conf_int(cf, "mqtt-sse/keep-alive-ms"), 60000);
    assert_null(sl_gateway_conf_str(cf, "mqtt-client/client-id"));
    assert_int_equal(sl_gateway_conf_int(cf, "mqtt-client/keep-alive-seconds"), 60);
    size_t count;
    const sl_conf_subscription *subs = sl_gateway_conf_subscriptions(cf, &count);
    assert_int_equal(count, 2);
    assert_int_equal(subs[0].qos, 0);
    assert_int_equal(subs[1].qos, 2);
    const sl_conf_grant *grants = sl_gateway_conf_grants(cf, &count);
    assert_int_equal(count, 3);
    assert_int_equal(grants[0].filter_count, 2);
    assert_string_equal(grants[1].filters[0], "c");
    assert_int_equal(grants[2].filter_count, 0);
    sl_gateway_conf_free(&cf);
}

static void test_gateway_conf_override_beats_the_file(void **state)
{
    (void)state;
    sl_gateway_conf *cf = fine("http-listener: {port: 1}\n",
                               "/http-listener/port->2;"
                               "/fileRealmAuthenticator/users->[{'userid':'x','password':'y'}]");
    assert_int_equal(sl_gateway_conf_int(cf, "http-listener/port"), 2);
    size_t count;
    assert_string_equal(sl_gateway_conf_users(cf, &count)[0].password, "y");
    sl_gateway_conf_free(&cf);
}

static void test_gateway_conf_broker_url_says_port_and_tls(void **state)
{
    (void)state;
    static const struct {
        const char *url;
        bool tls;
        const char *host;
        uint16_t port;
        bool is_tls;
    } rows[] = {
        {"tcp://h", false, "h", 1883, false},    {"tcp://h", true, "h", 8883, true},
        {"tcp://h:1884", true, "h", 1884, true}, {"ssl://h", false, "h", 8883, true},
        {"mqtts://h:9/", false, "h", 9, true},   {"ssl://[::1]:88", false, "::1", 88, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sl_conf_broker broker;
        SL_TEST_OK(sl_conf_parse_broker_url(rows[i].url, rows[i].tls, &broker));
        assert_string_equal(broker.host, rows[i].host);
        assert_int_equal(broker.port, rows[i].port);
        assert_int_equal(broker.is_tls, rows[i].is_tls);
        sl_free(broker.host);
    }
    sl_conf_broker broker;
    SL_TEST_ERR(sl_conf_parse_broker_url("tls://h", false, &broker), SL_EINVAL);
}

static void test_gateway_conf_bad_values_are_refused_by_name(void **state)
{
    (void)state;
    refused("http-listener:\n  port: 70000\n", ":2:", "http-listener/port");
    refused("http-listener: {port: 8o80}\n", "http-listener/port", "8o80");
    refused("http-listener: {enabled: yes please}\n", "http-listener/enabled", "true or false");
    refused("mqtt-client: {protocol-version: 4}\n", "mqtt-client/protocol-version", "3|5");
    refused("mqtt-client: {keep-alive-seconds: [1]}\n", "keep-alive-seconds", "whole number");
    refused("mqtt-mongo-writer: {id-strategy: hash}\n", "id-strategy", "payload-field");
    refused("mqtt-mongo-writer: {buffer: {strategy: lifo}}\n", "buffer/strategy", "ring-buffer");
    refused("mqtt-mongo-writer: {id-strategy: payload-field, id-field: ' '}\n", "id-field",
            "blank");
    refused("mqtt-sse: {default-qos: 3}\n", "default-qos", "0 to 2");
    refused("mqtt-sse: {default-topic: 'a#'}\n", "default-topic", "a#");
    refused("mqtt-sse: {pipeline: [{topic: a}]}\n", "pipeline", "not available");
    refused("mqtt-client: {broker-url: 'wss://h'}\n", "broker-url", "not available");
    refused("mqtt-client: {broker-url: 'tcp://h:99999'}\n", "broker-url", "tcp://h:99999");
    refused("mqtt-client: {broker-url: 'localhost'}\n", "broker-url", "localhost");
    refused("mqtt-client: {broker-url: 'tcp://u:pw@h:1883'}\n", "broker-url", "tcp://u:***@h:1883");
    refused("mqtt-client: {tls: true, enabled: true, tls-trust-store: /no/such.pem}\n",
            "/no/such.pem", "No such file");
    refused("mqtt-client: {enabled: true, broker-url: 'ssl://h', tls-key-store: /no/own.pem}\n",
            "/no/own.pem", "No such file");
    refused("mqtt-client: {tls-trust-store: /a.pem}\n", "tls-trust-store", "without TLS");
    refused("mqtt-client: {tls-trust-store-password: x}\n", "password", "no password");
    refused("mqtt-client: {password: x}\n", "mqtt-client/password", "username");
    refused("https-listener: {enabled: true}\n", "https-listener/enabled", "not available");
    refused("mqtt-rest: {secure: false}\n", "mqtt-rest/secure", "not available");
    refused("mqtt-router: {subscriptions: [{qos: 1}]}\n", "subscriptions[1]/topic", "missing");
    refused("mqtt-router: {subscriptions: [{topic: $share/g/a}]}\n", "subscriptions[1]/topic",
            "share");
    refused("mqtt-router: {subscriptions: {topic: a}}\n", "mqtt-router/subscriptions", "list");
    refused("mqtt-topic-authorizer: {acl: {r: ['a/#/b']}}\n", "acl/r", "a/#/b");
    refused("mqtt-topic-authorizer: {acl: [r]}\n", "mqtt-topic-authorizer/acl", "map");
    refused("fileRealmAuthenticator: {users: [{userid: a}, {userid: a}]}\n", "users[2]", "twice");
    refused("fileAclAuthorizer: {permissions: [{predicate: 'true'}]}\n", "permissions[1]",
            "exactly one");
    refused("a: [1\n", ":", "");
    refused("- a\n", "map", "");
}

static void test_gateway_conf_sinks_need_all_three_names(void **state)
{
    (void)state;
    refused("mqtt-mongo-writer: {mongo-sink: [{topic: a, database: d}]}\n",
            "mongo-sink[1]/collection", "missing");
    refused("mqtt-mongo-writer: {mongo-sink: [{topic: a, collection: c}]}\n",
            "mongo-sink[1]/database", "missing");
    refused("mqtt-mongo-writer: {mongo-sink: [{database: d, collection: c}]}\n",
            "mongo-sink[1]/topic", "missing");
    refused("mqtt-mongo-writer: {mongo-sink: [{topic: a, database: '', collection: c}]}\n",
            "mongo-sink[1]/database", "blank");
    refused("mqtt-mongo-writer: {mongo-sink: [{topic: a, database: d, collection: c, qos: 3}]}\n",
            "mongo-sink[1]/qos", "0, 1 or 2");
    sl_gateway_conf *cf =
        fine("mqtt-mongo-writer: {mongo-sink: [{topic: a, database: d, collection: c}]}\n", NULL);
    size_t count;
    assert_int_equal(sl_gateway_conf_sinks(cf, &count)[0].qos, 1);
    sl_gateway_conf_free(&cf);
}

/* A warning that names the unknown key and, when there is one, what was probably meant. */
static void warned(const char *yaml, const char *key, const char *nearest)
{
    sl_gateway_conf *cf = fine(yaml, NULL);
    sl_gateway_conf_free(&cf);
    char want[128];
    snprintf(want, sizeof want, "key=%s ", key);
    if (strstr(conf_log, "CONF-UNKNOWN-KEY") == NULL || strstr(conf_log, want) == NULL ||
        strstr(conf_log, nearest) == NULL)
        fail_msg("no warning of %s with %s in: %s", key, nearest, conf_log);
}

static void test_gateway_conf_unknown_keys_are_warnings(void **state)
{
    (void)state;
    warned("mqtt-sse: {enabld: true}\n", "mqtt-sse/enabld", "nearest=mqtt-sse/enabled");
    warned("mqtt-see: {enabled: true}\n", "mqtt-see", "nearest=mqtt-sse");
    warned("plugins-args: {mqtt-sse: {}}\n", "plugins-args", "nearest=none");
    warned("mqtt-mongo-writer: {max-wait-ms: 1}\n", "mqtt-mongo-writer/max-wait-ms",
           "nearest=mqtt-mongo-writer/buffer/max-wait-ms");
    warned("mqtt-router: {subscriptions: [{topic: a, gos: 1}]}\n",
           "mqtt-router/subscriptions[1]/gos", "known=");
    sl_gateway_conf *cf = fine("mqtt-sse: {enabled: true}\nmqtt-rest:\n", NULL);
    sl_gateway_conf_free(&cf);
    assert_null(strstr(conf_log, "CONF-UNKNOWN-KEY"));
}

static void test_gateway_conf_prints_without_secrets(void **state)
{
    (void)state;
    sl_gateway_conf *cf =
        fine("mqtt-client: {username: u, password: topsecret}\n"
             "mclient: {connection-string: 'mongodb://u:topsecret@h/x'}\n"
             "fileRealmAuthenticator: {users: [{userid: a, password: topsecret}]}\n",
             NULL);
    sl_buf out;
    sl_buf_init(&out, 1 << 20);
    SL_TEST_OK(sl_gateway_conf_print(cf, &out));
    SL_TEST_OK(sl_buf_append_u8(&out, '\0'));
    const char *text = (const char *)sl_buf_peek(&out).ptr;
    assert_null(strstr(text, "topsecret"));
    assert_non_null(strstr(text, "mongodb://u:***@h/x"));
    sl_gateway_conf_free(&cf);
    // what is printed is a configuration again, but for the masks
    cf = fine(text, NULL);
    assert_null(strstr(conf_log, "CONF-UNKNOWN-KEY"));
    sl_gateway_conf_free(&cf);
    sl_buf_fini(&out);
}

static void test_gateway_conf_template_holds_the_defaults(void **state)
{
    (void)state;
    sl_buf template, first, second;
    sl_buf_init(&template, 1 << 20);
    sl_buf_init(&first, 1 << 20);
    sl_buf_init(&second, 1 << 20);
    SL_TEST_OK(sl_gateway_conf_write_template(&template));
    SL_TEST_OK(sl_buf_append_u8(&template, '\0'));
    sl_gateway_conf *cf = fine((const char *)sl_buf_peek(&template).ptr, NULL);
    assert_null(strstr(conf_log, "CONF-UNKNOWN-KEY"));
    SL_TEST_OK(sl_gateway_conf_print(cf, &first));
    sl_gateway_conf_free(&cf);
    cf = fine("", NULL);
    SL_TEST_OK(sl_gateway_conf_print(cf, &second));
    sl_gateway_conf_free(&cf);
    assert_true(sl_slice_equal(sl_buf_peek(&first), sl_buf_peek(&second)));
    sl_buf_fini(&template);
    sl_buf_fini(&first);
    sl_buf_fini(&second);
}

static void test_gateway_conf_users_from_a_file(void **state)
{
    (void)state;
    char users[64], yaml[256];
    snprintf(users, sizeof users, "/tmp/sl-users-%d.yml", (int)getpid());
    FILE *file = fopen(users, "w");
    assert_non_null(file);
    fputs("users:\n  - {userid: u, password: p, roles: [a, b]}\n", file);
    fclose(file);
    snprintf(yaml, sizeof yaml, "fileRealmAuthenticator: {conf-file: %s}\n", users);
    sl_gateway_conf *cf = fine(yaml, NULL);
    size_t count;
    const sl_conf_user *list = sl_gateway_conf_users(cf, &count);
    assert_int_equal(count, 1);
    assert_string_equal(list[0].userid, "u");
    assert_int_equal(list[0].role_count, 2);
    sl_gateway_conf_free(&cf);
    unlink(users);
    char *why = NULL;
    assert_int_not_equal(load(yaml, NULL, &cf, &why), SL_OK); // gone
    assert_non_null(strstr(why, users));
    sl_free(why);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gateway_conf_defaults),
        cmocka_unit_test(test_gateway_conf_values_in_all_spellings),
        cmocka_unit_test(test_gateway_conf_override_beats_the_file),
        cmocka_unit_test(test_gateway_conf_broker_url_says_port_and_tls),
        cmocka_unit_test(test_gateway_conf_bad_values_are_refused_by_name),
        cmocka_unit_test(test_gateway_conf_sinks_need_all_three_names),
        cmocka_unit_test(test_gateway_conf_unknown_keys_are_warnings),
        cmocka_unit_test(test_gateway_conf_prints_without_secrets),
        cmocka_unit_test(test_gateway_conf_template_holds_the_defaults),
        cmocka_unit_test(test_gateway_conf_users_from_a_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
