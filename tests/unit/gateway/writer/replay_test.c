/* SPDX-License-Identifier: Apache-2.0
 *
 * Replay of dead-letter files: everything usable reaches the sink once, damage is counted by line,
 * a newer document is never replaced by an older one.
 */
#include "sl_test.h"

#include <stdio.h>

#include "base/alloc.h"
#include "dead_letter.h"
#include "fake_sink.h"
#include "peer.h"

typedef struct fixture {
    char *dir, *path;
    fake_sink *fake;
    sl_sink *sink;
    sl_dead_letter *dl;
    sl_oid_source oids;
} fixture;

static int setup(void **state)
{
    fixture *fx = sl_calloc(1, sizeof *fx);
    fx->dir = peer_folder_new();
    fx->path = peer_path(fx->dir, "dead.log");
    fx->fake = fake_sink_new();
    sl_oid_source_init(&fx->oids);
    char *why;
    sl_sink_conf cf = {.data_dir = (const char *)fx->fake};
    SL_TEST_OK(sl_sink_open_with(&fake_sink_ops, &cf, &fx->sink, &why));
    fx->dl = sl_dead_letter_new(fx->path, 1 << 20);
    *state = fx;
    return 0;
}

static int teardown(void **state)
{
    fixture *fx = *state;
    sl_dead_letter_free(&fx->dl);
    sl_sink_close(&fx->sink);
    fake_sink_free(&fx->fake);
    peer_folder_remove(&fx->dir);
    sl_free(fx->path);
    sl_free(fx);
    return 0;
}

static void bury_at(fixture *fx, const char *payload, sl_id_strategy strategy, int64_t at_ns)
{
    sl_message *msg = peer_message_new(&(peer_message){
        .topic = "t", .payload = payload, .len = strlen(payload), .qos = 1, .at_ns = at_ns});
    bool missing;
    sl_document *doc = sl_document_new(msg, strategy, "messageId", &fx->oids, &missing);
    sl_dead_letter_entry entry = {
        doc, {.at_ns = PEER_AT_NS, .reason = "test", .database = "d", .collection = "c"}};
    SL_TEST_OK(sl_dead_letter_append(fx->dl, &entry, 1));
    sl_document_free(&doc);
    sl_message_unref(&msg);
}

static void bury(fixture *fx, const char *payload)
{
    bury_at(fx, payload, SL_ID_AUTO, PEER_AT_NS);
}

static void add_line(fixture *fx, const char *line)
{
    FILE *out = fopen(fx->path, "a");
    assert_non_null(out);
    fputs(line, out);
    assert_int_equal(fclose(out), 0);
}

static void test_replay_stores_every_line_once(void **state)
{
    fixture *fx = *state;
    for (int i = 0; i < 450; i++) {
        char payload[32];
        snprintf(payload, sizeof payload, "p%d", i);
        bury(fx, payload);
    }
    sl_replay_report rp;
    SL_TEST_OK(sl_dead_letter_replay(fx->path, fx->sink, NULL, 0, &rp));
    assert_int_equal(rp.lines, 450);
    assert_int_equal(rp.stored, 450);
    SL_TEST_OK(sl_dead_letter_replay(fx->path, fx->sink, NULL, 0, &rp));
    assert_int_equal(rp.stored, 0);
    assert_int_equal(rp.duplicates, 450);
    assert_int_equal(fx->fake->doc_count, 450);
    assert_string_equal(fx->fake->docs[0].collection, "c");
}

static void test_replay_reads_the_older_generation_first(void **state)
{
    fixture *fx = *state;
    bury_at(fx, "{\"messageId\":1,\"v\":\"old\"}", SL_ID_PAYLOAD_FIELD, PEER_AT_NS);
    char *older = peer_path(fx->dir, "dead.log.1");
    assert_int_equal(rename(fx->path, older), 0);
    sl_replay_report rp;
    SL_TEST_OK(sl_dead_letter_replay(fx->path, fx->sink, NULL, 0, &rp));
    assert_int_equal(rp.stored, 1);
    bury_at(fx, "{\"messageId\":1,\"v\":\"new\"}", SL_ID_PAYLOAD_FIELD, PEER_AT_NS + 1000000);
    SL_TEST_OK(sl_dead_letter_replay(fx->path, fx->sink, NULL, 0, &rp));
    assert_int_equal(rp.lines, 2);
    assert_int_equal(fx->fake->doc_count, 1);
    assert_non_null(fake_sink_find(fx->fake, "{\"messageId\":1,\"v\":\"new\"}"));
    sl_free(older);
}

static void test_replay_never_replaces_a_newer_document(void **state)
{
    fixture *fx = *state;
    bury_at(fx, "{\"messageId\":1,\"v\":\"new\"}", SL_ID_PAYLOAD_FIELD, PEER_AT_NS + 1000000);
    bury_at(fx, "{\"messageId\":1,\"v\":\"old\"}", SL_ID_PAYLOAD_FIELD, PEER_AT_NS);
    sl_replay_report rp;
    SL_TEST_OK(sl_dead_letter_replay(fx->path, fx->sink, NULL, 0, &rp));
    assert_int_equal(rp.stored, 1);
    assert_int_equal(rp.duplicates, 1);
    assert_non_null(fake_sink_find(fx->fake, "{\"messageId\":1,\"v\":\"new\"}"));
}

static void test_replay_counts_damage_and_goes_on(void **state)
{
    fixture *fx = *state;
    bury(fx, "first");
    add_line(fx, "not json\n\n{\"_id\":1}\n");
    bury(fx, "last");
    add_line(fx, "{\"_id\":\"cut");
    sl_replay_report rp;
    SL_TEST_OK(sl_dead_letter_replay(fx->path, fx->sink, NULL, 0, &rp));
    assert_int_equal(rp.lines, 5);
    assert_int_equal(rp.damaged, 3);
    assert_int_equal(rp.stored, 2);
}

static void test_replay_routes_lines_without_target_by_topic(void **state)
{
    fixture *fx = *state;
    add_line(fx,
             "{\"_id\":1,\"topic\":\"sensors/a\",\"payload\":\"x\",\"receivedAt\":{\"$date\":1},"
             "\"receivedAtNanos\":0,\"qos\":1,\"retain\":false}\n"
             "{\"_id\":2,\"topic\":\"other\",\"payload\":\"x\",\"receivedAt\":{\"$date\":1},"
             "\"receivedAtNanos\":0,\"qos\":1,\"retain\":false}\n");
    sl_replay_route route = {"sensors/#", {"iot", "routed"}};
    sl_replay_report rp;
    SL_TEST_OK(sl_dead_letter_replay(fx->path, fx->sink, &route, 1, &rp));
    assert_int_equal(rp.stored, 1);
    assert_int_equal(rp.unrouted, 1);
    assert_string_equal(fx->fake->docs[0].collection, "routed");
}

static void test_replay_reports_refusals_and_stops_when_the_sink_is_away(void **state)
{
    fixture *fx = *state;
    for (int i = 0; i < 450; i++)
        bury(fx, i == 7 ? "poison" : "good");
    fake_sink_rule(fx->fake,
                   (fake_rule){.from = 1, .payload_part = "poison", .outcome = SL_SINK_PERMANENT});
    fake_sink_rule(fx->fake, (fake_rule){.from = 2, .to = 2, .outcome = SL_SINK_AWAY});
    sl_replay_report rp;
    SL_TEST_ERR(sl_dead_letter_replay(fx->path, fx->sink, NULL, 0, &rp), SL_ECONN);
    assert_int_equal(rp.stored, 199);
    assert_int_equal(rp.refused, 1);
    assert_int_equal(rp.failed, 201); // the batch and the line that came with it
    SL_TEST_OK(sl_dead_letter_replay(fx->path, fx->sink, NULL, 0, &rp));
    assert_int_equal(rp.stored + rp.duplicates, 449);
    assert_int_equal(fx->fake->doc_count, 449);
}

static void test_replay_of_no_file_says_so(void **state)
{
    fixture *fx = *state;
    char *none = peer_path(fx->dir, "none");
    sl_replay_report rp;
    SL_TEST_ERR(sl_dead_letter_replay(none, fx->sink, NULL, 0, &rp), SL_ENOTFOUND);
    sl_free(none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_replay_stores_every_line_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_replay_reads_the_older_generation_first, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_replay_never_replaces_a_newer_document, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_replay_counts_damage_and_goes_on, setup, teardown),
        cmocka_unit_test_setup_teardown(test_replay_routes_lines_without_target_by_topic, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            test_replay_reports_refusals_and_stops_when_the_sink_is_away, setup, teardown),
        cmocka_unit_test_setup_teardown(test_replay_of_no_file_says_so, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
