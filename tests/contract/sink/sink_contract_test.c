/* SPDX-License-Identifier: Apache-2.0
 *
 * The contract of the sink port, the same for every adapter:
 *   sink_contract_test sqlite | mongodb      (mongodb: SLUICE_TEST_MONGO_URI)
 */
#include "sl_test.h"

#include <stdio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "loop/pool.h"
#include "peer.h"
#include "store_reader.h"

static bool on_mongo;
static char *where; /* data folder or connection string */
static int serial;  /* a collection of its own for every test */

typedef struct fixture {
    sl_sink *sink;
    sl_oid_source oids;
    char collection[32];
    sl_sink_target target;
} fixture;

static sl_sink *open_sink(void)
{
    sl_sink *sink = NULL;
    char *why = NULL;
    sl_sink_conf cf = {.budget_ms = 30000};
    if (on_mongo)
        cf.connection_string = where;
    else
        cf.data_dir = where;
    if (sl_sink_open(&cf, &sink, &why) != SL_OK)
        fail_msg("%s", why);
    return sink;
}

static int setup(void **state)
{
    fixture *fx = sl_calloc(1, sizeof *fx);
    fx->sink = open_sink();
    sl_oid_source_init(&fx->oids);
    snprintf(fx->collection, sizeof fx->collection, "c%d", ++serial);
    fx->target = (sl_sink_target){"contract", fx->collection};
    *state = fx;
    return 0;
}

static int teardown(void **state)
{
    fixture *fx = *state;
    sl_sink_close(&fx->sink);
    sl_free(fx);
    return 0;
}

static stored_list read_back(const sl_sink_target *target)
{
#ifdef SL_WITH_MONGO
    if (on_mongo)
        return stored_read_mongo(where, target);
#endif
    return stored_read_sqlite(where, target);
}

static sl_document *from_message(fixture *fx, sl_message *msg, sl_id_strategy strategy)
{
    bool missing;
    sl_document *doc = sl_document_new(msg, strategy, "messageId", &fx->oids, &missing);
    sl_message_unref(&msg);
    return doc;
}

/* payload-field document; ms: received that much after a fixed day. */
static sl_document *make(fixture *fx, const char *topic, const char *payload, int64_t ms)
{
    return from_message(fx,
                        peer_message_new(&(peer_message){.topic = topic,
                                                         .payload = payload,
                                                         .len = strlen(payload),
                                                         .qos = 1,
                                                         .at_ns = PEER_AT_NS + ms * 1000000}),
                        SL_ID_PAYLOAD_FIELD);
}

static sl_sink_outcome write_one(fixture *fx, const sl_document *doc)
{
    sl_sink_result res = {0};
    sl_sink_write(fx->sink, &fx->target, &doc, 1, &res);
    return res.outcome;
}

/* Writes a document of the payload and forgets it. */
static sl_sink_outcome put(fixture *fx, const char *topic, const char *payload)
{
    sl_document *doc = make(fx, topic, payload, 0);
    sl_sink_outcome outcome = write_one(fx, doc);
    sl_document_free(&doc);
    return outcome;
}

static char *to_json(const sl_document *doc)
{
    sl_buf out;
    sl_buf_init(&out, sl_document_json_bound(doc));
    SL_TEST_OK(sl_document_write_json(doc, NULL, &out));
    SL_TEST_OK(sl_buf_append_u8(&out, '\0'));
    size_t len;
    return (char *)sl_buf_take(&out, &len);
}

static void expect_payloads(fixture *fx, size_t count, const char *one)
{
    stored_list list = read_back(&fx->target);
    assert_int_equal(list.count, count);
    size_t hits = 0;
    for (size_t i = 0; i < list.count; i++)
        hits += sl_slice_equal(list.docs[i]->payload, sl_slice_str(one));
    assert_int_equal(hits, 1);
    stored_free(&list);
}

static void test_sink_stores_every_kind_of_message_unchanged(void **state)
{
    fixture *fx = *state;
    char *large = sl_alloc(60001);
    memset(large, 'L', 60000);
    large[60000] = '\0';
    const peer_message rows[] = {
        {.topic = "a", .payload = "text", .len = 4, .qos = 1},
        {.topic = "a", .payload = "", .len = 0, .qos = 0, .retain = true},
        {.topic = "a", .payload = "n\0l", .len = 3, .qos = 2},
        {.topic = "a", .payload = "\x00\xff\xfe", .len = 3},
        {.topic = "a", .payload = "\xe9", .len = 1},
        {.topic = "\xc3\xa9/\xe2\x82\xac $x", .payload = large, .len = 60000},
        {.topic = "$odd/a.b",
         .payload = "{\"a.b\":1,\"$set\":{\"x\":1},\"\":0,\"_id\":9}",
         .len = 38},
        {.topic = "five",
         .payload = "x",
         .len = 1,
         .content_type = "text/plain",
         .response_topic = "re/ply",
         .correlation = "\xff\x01",
         .format_set = true,
         .payload_format = 1,
         .expiry_s = 4294967295u,
         .user = {{"k", "1"}, {"k", "2"}, {"", "\xc3\xa9"}}},
        {.topic = "few", .payload = "x", .len = 1, .content_type = ""},
    };
    enum { COUNT = sizeof rows / sizeof rows[0] };
    sl_document *docs[COUNT];
    for (size_t i = 0; i < COUNT; i++)
        docs[i] = from_message(fx, peer_message_new(&rows[i]), SL_ID_AUTO);
    sl_sink_result res[COUNT];
    memset(res, 0, sizeof res);
    sl_sink_write(fx->sink, &fx->target, (const sl_document *const *)docs, COUNT, res);
    stored_list list = read_back(&fx->target);
    assert_int_equal(list.count, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(res[i].outcome, SL_SINK_STORED);
        const sl_document *back = stored_find(&list, &docs[i]->id);
        assert_non_null(back);
        char *want = to_json(docs[i]), *got = to_json(back);
        assert_string_equal(got, want);
        sl_free(want);
        sl_free(got);
        sl_document_free(&docs[i]);
    }
    stored_free(&list);
    sl_free(large);
}

static void test_sink_knows_a_resent_insert_again(void **state)
{
    fixture *fx = *state;
    sl_document *doc = from_message(fx, peer_text("a", "x"), SL_ID_AUTO);
    assert_int_equal(write_one(fx, doc), SL_SINK_STORED);
    assert_int_equal(write_one(fx, doc), SL_SINK_DUPLICATE);
    sl_document_free(&doc);
    expect_payloads(fx, 1, "x");
}

static void test_sink_replaces_the_document_of_the_same_id_and_topic(void **state)
{
    fixture *fx = *state;
    assert_int_equal(put(fx, "a", "{\"messageId\":\"m\",\"v\":1}"), SL_SINK_STORED);
    assert_int_equal(put(fx, "a", "{\"messageId\":\"m\",\"v\":2}"), SL_SINK_STORED);
    expect_payloads(fx, 1, "{\"messageId\":\"m\",\"v\":2}");
}

static void test_sink_never_overwrites_the_document_of_another_topic(void **state)
{
    fixture *fx = *state;
    assert_int_equal(put(fx, "a", "{\"messageId\":\"m\",\"v\":1}"), SL_SINK_STORED);
    sl_document *other = make(fx, "b", "{\"messageId\":\"m\",\"v\":2}", 0);
    for (int mode = SL_DOC_INSERT; mode <= SL_DOC_REPLACE_IF_NEWER; mode++) {
        other->mode = (sl_doc_mode)mode;
        sl_sink_result res = {0};
        const sl_document *docs[1] = {other};
        sl_sink_write(fx->sink, &fx->target, docs, 1, &res);
        assert_int_equal(res.outcome, SL_SINK_CONFLICT);
        assert_string_equal(res.reason, "id-conflict");
    }
    sl_document_free(&other);
    expect_payloads(fx, 1, "{\"messageId\":\"m\",\"v\":1}");
}

static void test_sink_gives_each_document_of_a_batch_its_own_result(void **state)
{
    fixture *fx = *state;
    assert_int_equal(put(fx, "a", "{\"messageId\":1}"), SL_SINK_STORED);
    sl_document *resent = from_message(fx, peer_text("z", "resent"), SL_ID_AUTO);
    assert_int_equal(write_one(fx, resent), SL_SINK_STORED);
    sl_document *docs[] = {make(fx, "a", "{\"messageId\":2}", 0),
                           make(fx, "b", "{\"messageId\":1}", 0), // conflict
                           make(fx, "a", "{\"messageId\":1,\"v\":2}", 0),
                           from_message(fx, peer_text("z", "fresh"), SL_ID_AUTO),
                           resent,
                           make(fx, "c", "{\"messageId\":3}", 0),
                           make(fx, "d", "{\"messageId\":3}", 0)};
    sl_sink_result res[7];
    memset(res, 0, sizeof res);
    sl_sink_write(fx->sink, &fx->target, (const sl_document *const *)docs, 7, res);
    assert_int_equal(res[0].outcome, SL_SINK_STORED);
    assert_int_equal(res[1].outcome, SL_SINK_CONFLICT);
    assert_int_equal(res[2].outcome, SL_SINK_STORED);
    assert_int_equal(res[3].outcome, SL_SINK_STORED);
    assert_int_equal(res[4].outcome, SL_SINK_DUPLICATE);
    // one of the two wins, whichever
    assert_int_equal((res[5].outcome == SL_SINK_STORED) + (res[6].outcome == SL_SINK_STORED), 1);
    assert_int_equal((res[5].outcome == SL_SINK_CONFLICT) + (res[6].outcome == SL_SINK_CONFLICT),
                     1);
    for (int i = 0; i < 7; i++)
        sl_document_free(&docs[i]);
    expect_payloads(fx, 5, "{\"messageId\":1,\"v\":2}");
}

static void test_sink_batch_written_again_changes_nothing(void **state)
{
    fixture *fx = *state;
    sl_document *docs[300];
    sl_sink_result res[300];
    char text[64];
    for (int i = 0; i < 300; i++) {
        snprintf(text, sizeof text, "{\"messageId\":%d}", i);
        docs[i] =
            i % 2 ? make(fx, "a", text, 0) : from_message(fx, peer_text("a", text), SL_ID_AUTO);
    }
    for (int round = 0; round < 2; round++) {
        memset(res, 0, sizeof res);
        sl_sink_write(fx->sink, &fx->target, (const sl_document *const *)docs, 300, res);
        for (int i = 0; i < 300; i++)
            assert_int_equal(res[i].outcome,
                             round == 1 && i % 2 == 0 ? SL_SINK_DUPLICATE : SL_SINK_STORED);
        stored_list list = read_back(&fx->target);
        assert_int_equal(list.count, 300);
        stored_free(&list);
    }
    for (int i = 0; i < 300; i++)
        sl_document_free(&docs[i]);
}

/* C93: which identifiers are one document and which are several. */
static void test_sink_tells_identifiers_apart_by_type_and_value(void **state)
{
    fixture *fx = *state;
    static const char *const same[][3] = {
        {"1", "1.0", "10e-1"},
        {"0", "-0", "-0.0"},
        {"0.1", "1e-1", "0.10"},
        {"9007199254740993", "9007199254740993.0", "9007199254740993"},
        {"123456789012345678901234567890", "123456789012345678901234567890.0",
         "1.23456789012345678901234567890e29"},
        {"\"1\"", "\"\\u0031\"", "\"1\""},
        {"true", "true", "true"},
        {"\"true\"", "\"true\"", "\"true\""},
        {"{\"$oid\":\"0123456789abcdef01234567\"}", "{\"$oid\":\"0123456789ABCDEF01234567\"}",
         "{\"$oid\" : \"0123456789abcdef01234567\"}"},
        {"\"0123456789abcdef01234567\"", "\"0123456789abcdef01234567\"",
         "\"0123456789abcdef01234567\""},
        {"\"$gt\"", "\"$gt\"", "\"$gt\""},
        {"\"a\\u0000b\"", "\"a\\u0000b\"", "\"a\\u0000b\""},
        {"\"a\"", "\"a\"", "\"a\""},
        {"9007199254740992", "9007199254740992", "9007199254740992"},
        {"false", "false", "false"},
        {"1e400", "1e400", "10e399"},
        // last: the MongoDB-wire server of the tests compares Decimal128 by its nearest double
        {"123456789012345678901234567891", "123456789012345678901234567891",
         "123456789012345678901234567891"},
    };
    enum { ALL = sizeof same / sizeof same[0] };
    int count = on_mongo ? ALL - 1 : ALL;
    char text[256];
    for (int i = 0; i < count; i++)
        for (int j = 0; j < 3; j++) {
            snprintf(text, sizeof text, "{\"messageId\":%s}", same[i][j]);
            sl_sink_outcome outcome = put(fx, "a", text);
            if (outcome != SL_SINK_STORED)
                fail_msg("%s: %s", text, sl_sink_outcome_word(outcome));
            stored_list list = read_back(&fx->target);
            if (list.count != (size_t)i + 1)
                fail_msg("%s: %zu documents, not %d", text, list.count, i + 1);
            stored_free(&list);
        }
}

static void test_sink_takes_a_long_string_identifier(void **state)
{
    fixture *fx = *state;
    char *text = sl_alloc(SL_DOC_ID_MAX_BYTES + 64);
    int at = snprintf(text, 64, "{\"messageId\":\"");
    memset(text + at, 'k', SL_DOC_ID_MAX_BYTES);
    snprintf(text + at + SL_DOC_ID_MAX_BYTES, 8, "\"}");
    assert_int_equal(put(fx, "a", text), SL_SINK_STORED);
    assert_int_equal(put(fx, "a", text), SL_SINK_STORED);
    assert_int_equal(put(fx, "b", text), SL_SINK_CONFLICT);
    expect_payloads(fx, 1, text);
    sl_free(text);
}

static void test_sink_keeps_the_newer_on_replay(void **state)
{
    fixture *fx = *state;
    sl_document *docs[] = {make(fx, "a", "{\"messageId\":1,\"v\":\"mid\"}", 5),
                           make(fx, "a", "{\"messageId\":1,\"v\":\"old\"}", 0),
                           make(fx, "a", "{\"messageId\":1,\"v\":\"new\"}", 9)};
    for (int i = 0; i < 3; i++)
        docs[i]->mode = SL_DOC_REPLACE_IF_NEWER;
    assert_int_equal(write_one(fx, docs[0]), SL_SINK_STORED);
    assert_int_equal(write_one(fx, docs[1]), SL_SINK_DUPLICATE);
    expect_payloads(fx, 1, "{\"messageId\":1,\"v\":\"mid\"}");
    assert_int_equal(write_one(fx, docs[2]), SL_SINK_STORED);
    expect_payloads(fx, 1, "{\"messageId\":1,\"v\":\"new\"}");
    for (int i = 0; i < 3; i++)
        sl_document_free(&docs[i]);
}

static void test_sink_targets_are_separate(void **state)
{
    fixture *fx = *state;
    assert_int_equal(put(fx, "a", "{\"messageId\":1}"), SL_SINK_STORED);
    sl_sink_target mine = fx->target;
    fx->target.database = "contract2";
    assert_int_equal(put(fx, "b", "{\"messageId\":1}"), SL_SINK_STORED);
    fx->target = (sl_sink_target){"contract", "quite-other.name"};
    assert_int_equal(put(fx, "c", "{\"messageId\":1}"), SL_SINK_STORED);
    fx->target = mine;
    expect_payloads(fx, 1, "{\"messageId\":1}");
}

/* C95: 17 MB */
static void test_sink_oversize_document_does_not_hurt_the_batch(void **state)
{
    fixture *fx = *state;
    size_t len = 17 << 20;
    char *huge = sl_alloc(len);
    memset(huge, 'h', len);
    sl_document *docs[] = {
        from_message(fx, peer_text("a", "before"), SL_ID_AUTO),
        from_message(fx,
                     peer_message_new(&(peer_message){.topic = "a", .payload = huge, .len = len}),
                     SL_ID_AUTO),
        from_message(fx, peer_text("a", "behind"), SL_ID_AUTO)};
    sl_sink_result res[3];
    memset(res, 0, sizeof res);
    sl_sink_write(fx->sink, &fx->target, (const sl_document *const *)docs, 3, res);
    assert_int_equal(res[0].outcome, SL_SINK_STORED);
    assert_int_equal(res[1].outcome, on_mongo ? SL_SINK_PERMANENT : SL_SINK_STORED);
    assert_int_equal(res[2].outcome, SL_SINK_STORED);
    for (int i = 0; i < 3; i++)
        sl_document_free(&docs[i]);
    expect_payloads(fx, on_mongo ? 2 : 3, "behind");
    sl_free(huge);
}

typedef struct worker {
    fixture *fx;
    sl_sink_target target;
    int number;
    int bad;
} worker;

static void work(void *arg)
{
    worker *wk = arg;
    for (int round = 0; round < 20; round++) {
        sl_document *docs[10];
        sl_sink_result res[10];
        memset(res, 0, sizeof res);
        for (int i = 0; i < 10; i++) {
            char text[64];
            snprintf(text, sizeof text, "{\"messageId\":\"%d-%d-%d\"}", wk->number, round, i);
            docs[i] = make(wk->fx, "a", text, 0);
        }
        sl_sink_write(wk->fx->sink, &wk->target, (const sl_document *const *)docs, 10, res);
        for (int i = 0; i < 10; i++) {
            wk->bad += res[i].outcome != SL_SINK_STORED;
            sl_document_free(&docs[i]);
        }
    }
}

static void test_sink_serves_many_threads_at_once(void **state)
{
    fixture *fx = *state;
    worker workers[6];
    sl_thread *threads[6];
    for (int i = 0; i < 6; i++) {
        workers[i] = (worker){.fx = fx, .target = fx->target, .number = i};
        if (i % 2)
            workers[i].target.database = "contract3";
        SL_TEST_OK(sl_thread_start("worker", work, &workers[i], &threads[i]));
    }
    for (int i = 0; i < 6; i++) {
        sl_thread_join(&threads[i]);
        assert_int_equal(workers[i].bad, 0);
    }
    stored_list list = read_back(&fx->target);
    assert_int_equal(list.count, 600);
    stored_free(&list);
}

static void test_sink_keeps_documents_over_reopening(void **state)
{
    fixture *fx = *state;
    assert_int_equal(put(fx, "a", "{\"messageId\":1,\"v\":1}"), SL_SINK_STORED);
    sl_sink_close(&fx->sink);
    fx->sink = open_sink();
    assert_int_equal(put(fx, "b", "{\"messageId\":1,\"v\":2}"), SL_SINK_CONFLICT);
    assert_int_equal(put(fx, "a", "{\"messageId\":1,\"v\":3}"), SL_SINK_STORED);
    expect_payloads(fx, 1, "{\"messageId\":1,\"v\":3}");
}

static void test_sink_probe_says_that_the_store_answers(void **state)
{
    fixture *fx = *state;
    sl_sink_result res = {0};
    sl_sink_probe(fx->sink, &res);
    assert_int_equal(res.outcome, SL_SINK_STORED);
}

#define CONTRACT(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(int argc, char **argv)
{
    on_mongo = argc > 1 && strcmp(argv[1], "mongodb") == 0;
    const char *uri = getenv("SLUICE_TEST_MONGO_URI");
    if (on_mongo && uri == NULL) {
        fprintf(stderr, "skipped: SLUICE_TEST_MONGO_URI names no server\n");
        return 77;
    }
    serial = on_mongo ? (int)getpid() * 100 : 0; // a server may be used again
    where = on_mongo ? sl_strdup(uri) : peer_folder_new();
    const struct CMUnitTest tests[] = {
        CONTRACT(test_sink_stores_every_kind_of_message_unchanged),
        CONTRACT(test_sink_knows_a_resent_insert_again),
        CONTRACT(test_sink_replaces_the_document_of_the_same_id_and_topic),
        CONTRACT(test_sink_never_overwrites_the_document_of_another_topic),
        CONTRACT(test_sink_gives_each_document_of_a_batch_its_own_result),
        CONTRACT(test_sink_batch_written_again_changes_nothing),
        CONTRACT(test_sink_tells_identifiers_apart_by_type_and_value),
        CONTRACT(test_sink_takes_a_long_string_identifier),
        CONTRACT(test_sink_keeps_the_newer_on_replay),
        CONTRACT(test_sink_targets_are_separate),
        CONTRACT(test_sink_oversize_document_does_not_hurt_the_batch),
        CONTRACT(test_sink_serves_many_threads_at_once),
        CONTRACT(test_sink_keeps_documents_over_reopening),
        CONTRACT(test_sink_probe_says_that_the_store_answers),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (on_mongo)
        sl_free(where);
    else
        peer_folder_remove(&where);
    return failed;
}
