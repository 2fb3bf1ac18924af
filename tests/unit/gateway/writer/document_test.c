/* SPDX-License-Identifier: Apache-2.0
 *
 * Documents: what is made of a message, and that its extended JSON reads back as the same document.
 */
#include "sl_test.h"

#include "base/alloc.h"
#include "base/json.h"
#include "document.h"
#include "peer.h"

static sl_oid_source oids;

static int setup(void **state)
{
    (void)state;
    sl_oid_source_init(&oids);
    return 0;
}

static sl_document *make(sl_message *msg, sl_id_strategy strategy, bool *missing)
{
    sl_document *doc = sl_document_new(msg, strategy, "messageId", &oids, missing);
    sl_message_unref(&msg);
    return doc;
}

static char *to_json(const sl_document *doc, const sl_doc_fate *fate)
{
    sl_buf out;
    sl_buf_init(&out, sl_document_json_bound(doc));
    SL_TEST_OK(sl_document_write_json(doc, fate, &out));
    SL_TEST_OK(sl_buf_append_u8(&out, '\0'));
    size_t len;
    return (char *)sl_buf_take(&out, &len);
}

static void test_document_json_is_the_documented_shape(void **state)
{
    (void)state;
    bool missing;
    sl_document *doc =
        make(peer_text("a/b", "{\"messageId\":\"m1\",\"v\":1}"), SL_ID_PAYLOAD_FIELD, &missing);
    assert_false(missing);
    assert_int_equal(doc->mode, SL_DOC_REPLACE);
    char *json = to_json(doc, NULL);
    assert_string_equal(json, "{\"_id\":\"m1\",\"topic\":\"a/b\","
                              "\"payload\":\"{\\\"messageId\\\":\\\"m1\\\",\\\"v\\\":1}\","
                              "\"receivedAt\":{\"$date\":\"2026-11-29T20:26:50.123Z\"},"
                              "\"receivedAtNanos\":456789,\"qos\":1,\"retain\":false}");
    sl_free(json);
    sl_document_free(&doc);
}

static void test_document_json_carries_mqtt5_and_fate(void **state)
{
    (void)state;
    bool missing;
    sl_document *doc = make(peer_message_new(&(peer_message){.topic = "t",
                                                             .payload = "\x00\xff\xfe",
                                                             .len = 3,
                                                             .qos = 2,
                                                             .retain = true,
                                                             .content_type = "x/y",
                                                             .response_topic = "re",
                                                             .correlation = "abc",
                                                             .format_set = true,
                                                             .payload_format = 1,
                                                             .expiry_s = 99,
                                                             .user = {{"k", "1"}, {"k", "2"}}}),
                            SL_ID_AUTO, &missing);
    assert_false(missing);
    assert_int_equal(doc->mode, SL_DOC_INSERT);
    sl_doc_fate fate = {.at_ns = PEER_AT_NS,
                        .reason = "id-conflict",
                        .code = 11000,
                        .attempts = 2,
                        .database = "iot",
                        .collection = "c"};
    char *json = to_json(doc, &fate);
    char *behind = strstr(json, "\"topic\"");
    assert_non_null(behind);
    assert_string_equal(
        behind,
        "\"topic\":\"t\",\"payload\":{\"$binary\":{\"base64\":\"AP/+\",\"subType\":\"00\"}},"
        "\"receivedAt\":{\"$date\":\"2026-11-29T20:26:50.123Z\"},\"receivedAtNanos\":456789,"
        "\"qos\":2,\"retain\":true,\"mqtt5\":{\"userProperties\":[{\"name\":\"k\",\"value\":\"1\"},"
        "{\"name\":\"k\",\"value\":\"2\"}],\"contentType\":\"x/y\","
        "\"correlationData\":{\"$binary\":{\"base64\":\"YWJj\",\"subType\":\"00\"}},"
        "\"responseTopic\":\"re\",\"payloadFormatIndicator\":1,\"messageExpiryInterval\":99,"
        "\"expiresAt\":{\"$date\":\"2026-11-29T20:28:29.123Z\"}},"
        "\"_deadLetter\":{\"at\":\"2026-11-29T20:26:50.123456789Z\",\"reason\":\"id-conflict\","
        "\"code\":11000,\"attempts\":2,\"database\":\"iot\",\"collection\":\"c\"}}");
    sl_free(json);
    sl_document_free(&doc);
}

static void expect_round_trip(sl_message *msg, sl_id_strategy strategy)
{
    bool missing;
    sl_document *doc = make(msg, strategy, &missing);
    sl_doc_fate fate = {.reason = "\"quoted\"", .database = "db", .collection = "c"};
    char *json = to_json(doc, &fate);
    sl_document *back = NULL;
    char *database = NULL, *collection = NULL;
    const char *why = "";
    sl_err err = sl_document_parse_json(sl_slice_str(json), &back, &database, &collection, &why);
    if (err != SL_OK)
        fail_msg("%s: %s", why, json);
    assert_string_equal(database, "db");
    assert_string_equal(collection, "c");
    assert_true(sl_slice_equal(back->id.key, doc->id.key));
    assert_int_equal(back->id.kind, doc->id.kind);
    assert_int_equal(back->received_at_ns, doc->received_at_ns);
    assert_true(sl_slice_equal(back->payload, doc->payload));
    assert_true(sl_slice_equal(back->topic, doc->topic));
    char *again = to_json(back, &fate);
    assert_string_equal(again, json);
    sl_free(again);
    sl_free(json);
    sl_free(database);
    sl_free(collection);
    sl_document_free(&back);
    sl_document_free(&doc);
}

static void test_document_json_reads_back_the_same(void **state)
{
    (void)state;
    static const char *const payloads[] = {
        "",
        "plain",
        "{\"messageId\":\"\\u00e9\\n\\u0000x\",\"$set\":{\"a.b\":1},\"a\":1,\"a\":2}",
        "{\"messageId\":9007199254740993}",
        "{\"messageId\":-9223372036854775808}",
        "{\"messageId\":1e20}",
        "{\"messageId\":0.1}",
        "{\"messageId\":1e400}",
        "{\"messageId\":123456789012345678901234567890}",
        "{\"messageId\":true}",
        "{\"messageId\":{\"$oid\":\"0123456789abcdef01234567\"}}",
        "{\"messageId\":null}",
        "\"\\u2028 <script>\"",
    };
    for (size_t i = 0; i < sizeof payloads / sizeof payloads[0]; i++) {
        expect_round_trip(peer_text("a/\"b\"/\xc3\xa9", payloads[i]), SL_ID_PAYLOAD_FIELD);
        expect_round_trip(peer_text("$x", payloads[i]), SL_ID_AUTO);
    }
    expect_round_trip(
        peer_message_new(&(peer_message){.topic = "t",
                                         .payload = "\x00\xff\xfe\x7f",
                                         .len = 4,
                                         .at_ns = 1000000001,
                                         .content_type = "",
                                         .response_topic = "r/\xe2\x82\xac",
                                         .correlation = "\xff\x01",
                                         .format_set = true,
                                         .expiry_s = 4294967295u,
                                         .user = {{"", ""}, {"a", "\"\\"}, {"a", "b"}}}),
        SL_ID_AUTO);
    expect_round_trip(peer_message_new(&(peer_message){.topic = "t", .payload = "a\0b", .len = 3}),
                      SL_ID_AUTO);
}

static void test_document_keeps_payload_bytes_apart_from_keys(void **state)
{
    (void)state;
    bool missing;
    const char *odd =
        "{\"messageId\":1,\"_id\":7,\"\":0,\"$set\":{\"x\":1},\"a.b\":2,\"a\":1,\"a\":2}";
    sl_document *doc = make(peer_text("t", odd), SL_ID_PAYLOAD_FIELD, &missing);
    SL_TEST_SLICE(doc->id.text, "1");
    assert_true(sl_slice_equal(doc->payload, sl_slice_str(odd)));
    sl_document_free(&doc);
}

static void test_document_without_usable_id_is_a_plain_insert(void **state)
{
    (void)state;
    static const char *const payloads[] = {"",
                                           "text",
                                           "{}",
                                           "{\"messageId\":null}",
                                           "{\"messageId\":\"\"}",
                                           "{\"messageId\":{\"$gt\":\"\"}}",
                                           "{\"messageId\":[1]}",
                                           "{\"messageId\":NaN}",
                                           "[{\"messageId\":1}]",
                                           "{\"messageId\":1"};
    for (size_t i = 0; i < sizeof payloads / sizeof payloads[0]; i++) {
        bool missing = false;
        sl_document *doc = make(peer_text("t", payloads[i]), SL_ID_PAYLOAD_FIELD, &missing);
        assert_true(missing);
        assert_int_equal(doc->id.kind, SL_DOC_ID_OID);
        assert_int_equal(doc->mode, SL_DOC_INSERT);
        sl_document_free(&doc);
    }
}

static void test_document_survives_deep_nesting(void **state)
{
    (void)state;
    size_t depth = 100000;
    char *deep = sl_alloc(depth + 1);
    memset(deep, '[', depth);
    deep[depth] = '\0';
    bool missing;
    sl_document *doc = make(peer_text("t", deep), SL_ID_PAYLOAD_FIELD, &missing);
    assert_true(missing);
    char *json = to_json(doc, NULL);
    sl_document *back = NULL;
    char *database, *collection;
    const char *why;
    SL_TEST_OK(sl_document_parse_json(sl_slice_str(json), &back, &database, &collection, &why));
    assert_null(database);
    assert_int_equal(back->payload.len, depth);
    sl_document_free(&back);
    sl_document_free(&doc);
    sl_free(json);
    sl_free(deep);
}

static void test_document_parse_names_what_is_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *line, *part;
    } rows[] = {
        {"", "not JSON"},
        {"{\"_id\":\"x\",\"topic\":\"t\",\"pay", "not JSON"},
        {"{}", "_id"},
        {"{\"_id\":[1]}", "_id"},
        {"{\"_id\":1}", "topic"},
        {"{\"_id\":1,\"topic\":1}", "topic"},
        {"{\"_id\":1,\"topic\":\"t\"}", "payload"},
        {"{\"_id\":1,\"topic\":\"t\",\"payload\":{\"$binary\":{\"base64\":\"*\"}}}", "payload"},
        {"{\"_id\":1,\"topic\":\"t\",\"payload\":\"\"}", "receivedAt"},
        {"{\"_id\":1,\"topic\":\"t\",\"payload\":\"\",\"receivedAt\":{\"$date\":\"yesterday\"}}",
         "receivedAt"},
        {"{\"_id\":1,\"topic\":\"t\",\"payload\":\"\",\"receivedAt\":{\"$date\":1},"
         "\"receivedAtNanos\":0,\"qos\":3,\"retain\":false}",
         "qos"},
        {"{\"_id\":1,\"topic\":\"t\",\"payload\":\"\",\"receivedAt\":{\"$date\":1},"
         "\"receivedAtNanos\":0,\"qos\":0,\"retain\":false,\"mqtt5\":{\"userProperties\":[1]}}",
         "mqtt5"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sl_document *back = NULL;
        char *database = NULL, *collection = NULL;
        const char *why = "";
        SL_TEST_ERR(
            sl_document_parse_json(sl_slice_str(rows[i].line), &back, &database, &collection, &why),
            SL_EMALFORMED);
        if (strstr(why, rows[i].part) == NULL)
            fail_msg("\"%s\" does not name %s", why, rows[i].part);
    }
}

static void test_document_parse_takes_every_form_of_date(void **state)
{
    (void)state;
    static const char *const dates[] = {"\"2026-11-29T20:26:50.000Z\"", "\"2026-11-29T20:26:50Z\"",
                                        "1795984010000", "{\"$numberLong\":\"1795984010000\"}"};
    for (size_t i = 0; i < sizeof dates / sizeof dates[0]; i++) {
        sl_buf line;
        sl_buf_init(&line, 4096);
        SL_TEST_OK(sl_buf_printf(&line,
                                 "{\"_id\":1,\"topic\":\"t\",\"payload\":\"\",\"receivedAt\":"
                                 "{\"$date\":%s},\"receivedAtNanos\":7,\"qos\":0,\"retain\":true}",
                                 dates[i]));
        sl_document *back = NULL;
        char *database, *collection;
        const char *why;
        SL_TEST_OK(sl_document_parse_json(sl_buf_peek(&line), &back, &database, &collection, &why));
        assert_int_equal(back->received_at_ns, 1795984010000000007ll);
        assert_true(back->retain);
        sl_document_free(&back);
        sl_buf_fini(&line);
    }
}

static void test_document_identity_is_id_and_topic(void **state)
{
    (void)state;
    static const struct {
        const char *topic, *payload;
    } rows[] = {{"a", "{\"messageId\":1}"},
                {"a", "{\"messageId\":1.0}"},
                {"b", "{\"messageId\":1}"},
                {"a", "{\"messageId\":\"1\"}"}};
    sl_buf identity[4];
    for (int i = 0; i < 4; i++) {
        bool missing;
        sl_document *doc =
            make(peer_text(rows[i].topic, rows[i].payload), SL_ID_PAYLOAD_FIELD, &missing);
        sl_buf_init(&identity[i], 1000);
        SL_TEST_OK(sl_document_write_identity(doc, &identity[i]));
        sl_document_free(&doc);
    }
    assert_true(sl_slice_equal(sl_buf_peek(&identity[0]), sl_buf_peek(&identity[1])));
    assert_false(sl_slice_equal(sl_buf_peek(&identity[0]), sl_buf_peek(&identity[2])));
    assert_false(sl_slice_equal(sl_buf_peek(&identity[0]), sl_buf_peek(&identity[3])));
    for (int i = 0; i < 4; i++)
        sl_buf_fini(&identity[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_document_json_is_the_documented_shape),
        cmocka_unit_test(test_document_json_carries_mqtt5_and_fate),
        cmocka_unit_test(test_document_json_reads_back_the_same),
        cmocka_unit_test(test_document_keeps_payload_bytes_apart_from_keys),
        cmocka_unit_test(test_document_without_usable_id_is_a_plain_insert),
        cmocka_unit_test(test_document_survives_deep_nesting),
        cmocka_unit_test(test_document_parse_names_what_is_wrong),
        cmocka_unit_test(test_document_parse_takes_every_form_of_date),
        cmocka_unit_test(test_document_identity_is_id_and_topic),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
