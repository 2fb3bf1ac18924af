/* SPDX-License-Identifier: Apache-2.0
 *
 * What only the MongoDB sink promises, against the server of SLUICE_TEST_MONGO_URI: error numbers
 * become the right outcome, a frozen server is away within the budget and used again when it is
 * back.
 */
#include "sl_test.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include <mongoc/mongoc.h>

#include "base/alloc.h"
#include "peer.h"
#include "sink_mongo_int.h"
#include "store_reader.h"

static const char *uri;
static char collection[32];
static sl_sink_target target = {"faults", collection};

typedef struct fixture {
    sl_sink *sink;
    sl_oid_source oids;
} fixture;

static sl_sink *open_with(const char *options, sl_dur_ms budget)
{
    char text[512], *why = NULL;
    snprintf(text, sizeof text, "%s/%s", uri, options);
    sl_sink *sink;
    sl_sink_conf cf = {.connection_string = text, .budget_ms = budget};
    if (sl_sink_open(&cf, &sink, &why) != SL_OK)
        fail_msg("%s", why);
    return sink;
}

static int setup(void **state)
{
    static int serial;
    fixture *fx = sl_calloc(1, sizeof *fx);
    snprintf(collection, sizeof collection, "f%d-%d", (int)getpid(), ++serial);
    sl_oid_source_init(&fx->oids);
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

static sl_sink_result put(fixture *fx, const char *payload)
{
    sl_message *msg = peer_text("t", payload);
    bool missing;
    sl_document *doc = sl_document_new(msg, SL_ID_AUTO, NULL, &fx->oids, &missing);
    sl_sink_result res = {0};
    const sl_document *docs[1] = {doc};
    sl_sink_write(fx->sink, &target, docs, 1, &res);
    sl_document_free(&doc);
    sl_message_unref(&msg);
    return res;
}

static void run_command(const char *json)
{
    bson_error_t error;
    bson_t *command = bson_new_from_json((const uint8_t *)json, -1, &error);
    assert_non_null(command);
    mongoc_client_t *client = mongoc_client_new(uri);
    if (!mongoc_client_command_simple(client, "faults", command, NULL, NULL, &error))
        fail_msg("%s: %s", json, error.message);
    mongoc_client_destroy(client);
    bson_destroy(command);
}

static void test_sink_mongo_unmet_write_concern_is_not_stored(void **state)
{
    fixture *fx = *state;
    fx->sink = open_with("?w=3", 7000);
    sl_sink_result res = put(fx, "x");
    assert_int_equal(res.outcome, SL_SINK_CONFIG);
    assert_int_equal(res.code, 100);
    assert_string_not_equal(res.reason, "");
}

/* A unique index of the operator's own: the document is not there under our identifier. */
static void test_sink_mongo_foreign_unique_index_is_no_duplicate(void **state)
{
    fixture *fx = *state;
    fx->sink = open_with("", 7000);
    char command[256];
    snprintf(command, sizeof command,
             "{\"createIndexes\":\"%s\",\"indexes\":[{\"key\":{\"payload\":1},\"name\":\"p\","
             "\"unique\":true}]}",
             collection);
    assert_int_equal(put(fx, "first").outcome, SL_SINK_STORED);
    run_command(command);
    sl_sink_result res = put(fx, "first");
    assert_int_equal(res.outcome, SL_SINK_TRANSIENT);
    assert_int_equal(res.code, 11000);
    assert_int_equal(put(fx, "second").outcome, SL_SINK_STORED);
}

static void test_sink_mongo_validator_refuses_one_document_for_good(void **state)
{
    fixture *fx = *state;
    fx->sink = open_with("", 7000);
    char command[256];
    snprintf(command, sizeof command,
             "{\"create\":\"%s\",\"validator\":{\"payload\":{\"$ne\":\"poison\"}}}", collection);
    run_command(command);
    assert_int_equal(put(fx, "good").outcome, SL_SINK_STORED);
    sl_sink_result res = put(fx, "poison");
    assert_int_equal(res.outcome, SL_SINK_PERMANENT);
    assert_int_equal(res.code, 121);
    assert_int_equal(put(fx, "good too").outcome, SL_SINK_STORED);
}

static pid_t server_pid(void)
{
    const char *dir = getenv("SLUICE_TEST_MONGO_DIR");
    if (dir == NULL)
        return 0;
    char *path = peer_path(dir, "server.pid"), *text = peer_read_file(path, NULL);
    pid_t pid = (pid_t)strtol(text, NULL, 10);
    sl_free(text);
    sl_free(path);
    return pid;
}

static void test_sink_mongo_frozen_server_is_away_and_used_again(void **state)
{
    fixture *fx = *state;
    pid_t pid = server_pid();
    if (pid == 0)
        skip(); // not our server
    fx->sink = open_with("", 7000);
    assert_int_equal(put(fx, "before").outcome, SL_SINK_STORED);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    sl_sink_result frozen = put(fx, "during"), again = put(fx, "during");
    assert_int_equal(kill(pid, SIGCONT), 0);
    assert_int_equal(frozen.outcome, SL_SINK_AWAY);
    assert_int_equal(again.outcome, SL_SINK_AWAY);
    // the driver looks again within its heartbeat
    sl_sink_outcome outcome = SL_SINK_AWAY;
    for (int i = 0; i < 10 && outcome == SL_SINK_AWAY; i++)
        outcome = put(fx, "after").outcome;
    assert_int_equal(outcome, SL_SINK_STORED);
}

static void test_sink_mongo_error_numbers_mean_what_they_should(void **state)
{
    fixture *fx = *state;
    fx->sink = open_with("", 7000);
    static const struct {
        uint32_t domain, code;
        sl_sink_outcome outcome;
    } rows[] = {
        {MONGOC_ERROR_SERVER, 13, SL_SINK_CONFIG},
        {MONGOC_ERROR_SERVER, 18, SL_SINK_CONFIG},
        {MONGOC_ERROR_CLIENT, MONGOC_ERROR_CLIENT_AUTHENTICATE, SL_SINK_CONFIG},
        {MONGOC_ERROR_SERVER, 10107, SL_SINK_AWAY},
        {MONGOC_ERROR_SERVER, 189, SL_SINK_AWAY},
        {MONGOC_ERROR_SERVER, 14031, SL_SINK_AWAY},
        {MONGOC_ERROR_WRITE_CONCERN, 64, SL_SINK_AWAY},
        {MONGOC_ERROR_SERVER_SELECTION, 13053, SL_SINK_AWAY},
        {MONGOC_ERROR_STREAM, 4, SL_SINK_AWAY},
        {MONGOC_ERROR_SERVER, 987654, SL_SINK_AWAY},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bson_error_t error = {.domain = rows[i].domain, .code = rows[i].code};
        assert_int_equal(sl_mongo_judge_command(&error), rows[i].outcome);
    }
    assert_int_equal(sl_mongo_judge_document(121), SL_SINK_PERMANENT);
    assert_int_equal(sl_mongo_judge_document(112), SL_SINK_TRANSIENT);
    assert_int_equal(sl_mongo_judge_document(987654), SL_SINK_TRANSIENT);
}

#define MONGO_TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    uri = getenv("SLUICE_TEST_MONGO_URI");
    if (uri == NULL) {
        fprintf(stderr, "skipped: SLUICE_TEST_MONGO_URI names no server\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        MONGO_TEST(test_sink_mongo_unmet_write_concern_is_not_stored),
        MONGO_TEST(test_sink_mongo_foreign_unique_index_is_no_duplicate),
        MONGO_TEST(test_sink_mongo_validator_refuses_one_document_for_good),
        MONGO_TEST(test_sink_mongo_frozen_server_is_away_and_used_again),
        MONGO_TEST(test_sink_mongo_error_numbers_mean_what_they_should),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
