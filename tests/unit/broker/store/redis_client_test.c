/* SPDX-License-Identifier: Apache-2.0
 *
 * The Redis client on one server and with Sentinels: greeting, order, lost connections, answers
 * that are not final. redis_cluster_test.c has the rest.
 */
#include "redis_fake.h"

#include <stdio.h>
#include <string.h>

static void test_client_greets_before_anything_else(void **state)
{
    (void)state;
    fake fk;
    fake_init(&fk);
    sl_redis_options options = fake_options(&fk);
    options.username = "user";
    options.password = "pass word";
    options.database = 3;
    fk.rd = sl_redis_new(&options);
    fake_op op;
    fake_submit(&fk, &op, "a", "a", false);
    fake_conn *fc = fake_at(&fk, 1);
    assert_string_equal(fc->host, "one");
    assert_string_equal(fc->greeting, "AUTH user pass word\nSELECT 3\nCLIENT SETNAME test\n"
                                      "CLIENT INFO\nSCRIPT LOAD return 1\n");
    assert_true(fk.is_up);
    fake_answer(&fk, fc, "GET a", "$1\r\nx\r\n");
    assert_string_equal(op.reply, "x");
    assert_int_equal(sl_redis_open_ops(fk.rd), 0);
    fake_close(&fk);
}

static void test_client_pipelines_and_keeps_the_order(void **state)
{
    (void)state;
    fake fk;
    fake_init(&fk);
    sl_redis_options options = fake_options(&fk);
    fake_open(&fk, &options);
    fake_op ops[3];
    fake_submit(&fk, &ops[0], "a", "k", false);
    fake_submit(&fk, &ops[1], "b", "k", false);
    fake_submit(&fk, &ops[2], "c", "other", false);
    fake_conn *fc = fake_at(&fk, 1);
    assert_int_equal(fc->waiting_count, 3);
    fake_queue_answer(fc, "GET a", ":1\r\n");
    fake_queue_answer(fc, "GET b", "-ERR no\r\n");
    fake_answer(&fk, fc, "GET c", "$-1\r\n");
    assert_string_equal(ops[0].reply, "1");
    assert_string_equal(ops[1].reply, "ERR no"); // an error of the operation is its answer
    assert_int_equal(ops[2].done, 1);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(ops[i].position, i + 1);
    fake_close(&fk);
}

static void test_client_puts_replies_together_from_single_bytes(void **state)
{
    (void)state;
    fake fk;
    fake_init(&fk);
    sl_redis_options options = fake_options(&fk);
    fake_open(&fk, &options);
    fake_op ops[2];
    fake_submit(&fk, &ops[0], "a", "k", false);
    fake_submit(&fk, &ops[1], "b", "k", false);
    fake_conn *fc = fake_at(&fk, 1);
    fake_answer(&fk, fc, "GET a", "");
    fake_answer(&fk, fc, "GET b", "");
    const char bytes[] = "$5\r\nhello\r\n:42\r\n";
    for (size_t i = 0; i < sizeof(bytes) - 1; i++) {
        assert_int_equal(ops[0].done, i >= 11);
        assert_int_equal(ops[1].done, 0);
        fake_send(fc, bytes + i, 1);
        fake_run(&fk);
    }
    assert_string_equal(ops[0].reply, "hello");
    assert_string_equal(ops[1].reply, "42");
    fake_close(&fk);
}

static void test_client_loads_lost_scripts_and_repeats_in_order(void **state)
{
    (void)state;
    fake fk;
    fake_init(&fk);
    sl_redis_options options = fake_options(&fk);
    fake_open(&fk, &options);
    fake_op ops[3];
    fake_submit(&fk, &ops[0], "a", "k", false);
    fake_submit(&fk, &ops[1], "b", "k", false);
    fake_conn *fc = fake_at(&fk, 1);
    fc->greeting[0] = '\0';
    fake_answer(&fk, fc, "GET a", "-NOSCRIPT No matching script.\r\n");
    /* b may fail as well: nothing of the lane leaves before that is known. */
    fake_submit(&fk, &ops[2], "c", "k", false);
    assert_int_equal(fc->waiting_count, 2); // b, and behind it SCRIPT LOAD
    fake_answer(&fk, fc, "GET b", "-NOSCRIPT No matching script.\r\n");
    assert_string_equal(fc->greeting, "SCRIPT LOAD return 1\n"); // once for both
    fake_queue_answer(fc, "GET a", ":1\r\n");
    fake_queue_answer(fc, "GET b", ":2\r\n");
    fake_answer(&fk, fc, "GET c", ":3\r\n");
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(ops[i].done, 1);
        assert_int_equal(ops[i].position, i + 1);
        assert_false(ops[i].op.is_repeated);
    }
    fake_close(&fk);
}

static void test_client_holds_results_until_those_before_are_done(void **state)
{
    (void)state;
    fake fk;
    fake_init(&fk);
    sl_redis_options options = fake_options(&fk);
    fake_open(&fk, &options);
    fake_op ops[2];
    fake_submit(&fk, &ops[0], "a", "k", false);
    fake_submit(&fk, &ops[1], "b", "k", false);
    fake_conn *fc = fake_at(&fk, 1);
    fake_queue_answer(fc, "GET a", "-TRYAGAIN slot moves\r\n");
    fake_answer(&fk, fc, "GET b", ":2\r\n");
    assert_int_equal(ops[1].done, 0);
    assert_int_equal(fc->waiting_count, 0); // not at once
    fake_advance(&fk, 200);
    fake_answer(&fk, fc, "GET a", ":1\r\n");
    assert_int_equal(ops[0].position, 1);
    assert_int_equal(ops[1].position, 2);
    fake_close(&fk);
}

static void test_client_asks_a_server_that_is_not_ready_again(void **state)
{
    (void)state;
    const char *const replies[] = {"-LOADING data\r\n", "-BUSY script\r\n", "-MASTERDOWN link\r\n",
                                   "-CLUSTERDOWN slots\r\n", "-TRYAGAIN keys\r\n"};
    fake fk;
    fake_init(&fk);
    sl_redis_options options = fake_options(&fk);
    fake_open(&fk, &options);
    for (size_t i = 0; i < sizeof(replies) / sizeof(replies[0]); i++) {
        fake_op op;
        fake_submit(&fk, &op, "a", "k", false);
        fake_conn *fc = fake_at(&fk, 1);
        fake_answer(&fk, fc, "GET a", replies[i]);
        assert_int_equal(fc->waiting_count, 0);
        fake_advance(&fk, 200);
        fake_answer(&fk, fc, "GET a", ":1\r\n");
        assert_string_equal(op.reply, "1");
        assert_false(op.op.is_repeated);
    }
    fake_close(&fk);
}

static void test_a_barrier_is_alone_in_its_lane(void **state)
{
    (void)state;
    fake fk;
    fake_init(&fk);
    sl_redis_options options = fake_options(&fk);
    fake_open(&fk, &options);
    fake_op ops[4];
    fake_submit(&fk, &ops[0], "a", "k", false);
    fake_submit(&fk, &ops[1], "wall", "k", true);
    fake_submit(&fk, &ops[2], "b", "k", false);
    fake_submit(&fk, &ops[3], "c", "other", false);
    fake_conn *fc = fake_at(&fk, 1);
    assert_int_equal(fc->waiting_count, 2); // a, and c of another lane
    fake_answer(&fk, fc, "GET a", ":1\r\n");
    fake_answer(&fk, fc, "GET c", ":1\r\n");
    assert_int_equal(fc->waiting_count, 1);
    fake_answer(&fk, fc, "GET wall", ":1\r\n");
    fake_answer(&fk, fc, "GET b", ":1\r\n");
    assert_int_equal(ops[2].done, 1);
    fake_close(&fk);
}

static void test_client_repeats_what_a_lost_connection_left_open(void **state)
{
    (void)state;
    fake fk;
    fake_init(&fk);
    sl_redis_options options = fake_options(&fk);
    fake_open(&fk, &options);
    fake_op ops[4];
    for (unsigned i = 0; i < 3; i++)
        fake_submit(&fk, &ops[i], (const char *[]){"a", "b", "c"}[i], "k", false);
    fake_conn *fc = fake_at(&fk, 1);
    fake_answer(&fk, fc, "GET a", ":1\r\n");
    fake_queue_answer(fc, "GET b", ":"); // cut in the middle of its reply
    fake_hang_up(&fk, fc);
    assert_false(fk.is_up);
    fake_submit(&fk, &ops[3], "d", "k", false);
    fake_advance(&fk, 5000);
    fc = fake_at(&fk, 1);
    assert_true(fk.is_up);
    /* The server may still have commands of the old connection: that ends first. */
    assert_string_equal(fc->greeting, "CLIENT SETNAME test\n"
                                      "CLIENT KILL ID 101 ADDR 1.2.3.4:1101 SKIPME yes\n"
                                      "CLIENT INFO\nSCRIPT LOAD return 1\n");
    fake_queue_answer(fc, "GET b", ":2\r\n");
    fake_queue_answer(fc, "GET c", ":3\r\n");
    fake_answer(&fk, fc, "GET d", ":4\r\n");
    const bool is_repeated[] = {false, true, true, false};
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(ops[i].done, 1);
        assert_int_equal(ops[i].position, i + 1);
        assert_int_equal(ops[i].op.is_repeated, is_repeated[i]);
    }
    fake_close(&fk);
}

static void test_client_gives_up_a_server_that_does_not_answer(void **state)
{
    (void)state;
    fake fk;
    fake_init(&fk);
    sl_redis_options options = fake_options(&fk);
    fake_open(&fk, &options);
    fake_advance(&fk, 100000); // nothing is owed: no reason to leave
    assert_int_equal(fk.dials, 1);
    fake_op op;
    fake_submit(&fk, &op, "a", "k", false);
    for (unsigned i = 0; i < 3; i++)
        fake_advance(&fk, 300);
    assert_int_equal(fk.dials, 1);
    for (unsigned i = 0; i < 20 && fk.dials == 1; i++)
        fake_advance(&fk, 100);
    assert_int_equal(fk.dials, 2);
    fake_answer(&fk, fake_at(&fk, 1), "GET a", ":1\r\n");
    assert_true(op.op.is_repeated);
    fake_close(&fk);
}

static void test_client_leaves_a_server_that_talks_nonsense(void **state)
{
    (void)state;
    const char *const nonsense[] = {"HTTP/1.1 400\r\n", ":1\r\n:2\r\n", "*1048577\r\n"};
    for (size_t i = 0; i < sizeof(nonsense) / sizeof(nonsense[0]); i++) {
        fake fk;
        fake_init(&fk);
        sl_redis_options options = fake_options(&fk);
        fake_open(&fk, &options);
        fake_op op;
        fake_submit(&fk, &op, "a", "k", false);
        fake_answer(&fk, fake_at(&fk, 1), "GET a", nonsense[i]);
        assert_false(fk.is_up);
        fake_advance(&fk, 5000);
        assert_true(fk.is_up);
        fake_close(&fk);
    }
}

static void test_client_waits_longer_after_each_failure_up_to_a_limit(void **state)
{
    (void)state;
    fake fk;
    fake_init(&fk);
    fk.refuses = true;
    sl_redis_options options = fake_options(&fk);
    fake_open(&fk, &options);
    assert_int_equal(fk.dials, 1);
    sl_dur_ms waited[12] = {0};
    for (unsigned i = 0; i < 12; i++) {
        for (unsigned dials = fk.dials; fk.dials == dials; waited[i] += 5)
            fake_advance(&fk, 5);
        assert_true(waited[i] >= 25 && waited[i] <= 2010);
    }
    assert_true(waited[0] <= 60);
    for (unsigned i = 6; i < 12; i++)
        assert_true(waited[i] >= 1000);
    fk.refuses = false;
    fake_advance(&fk, 2100);
    assert_true(fk.is_up);
    assert_int_equal(fk.state_changes, 1);
    fake_close(&fk);
}

static void test_a_refused_password_sends_nothing_else(void **state)
{
    (void)state;
    fake fk;
    fake_init(&fk);
    fk.auth_reply = "-WRONGPASS invalid username-password pair\r\n";
    sl_redis_options options = fake_options(&fk);
    options.password = "x";
    fk.rd = sl_redis_new(&options);
    fake_op op;
    fake_submit(&fk, &op, "a", "k", false);
    for (unsigned i = 0; i < 20; i++)
        fake_advance(&fk, 500);
    assert_true(fk.dials > 3 && fk.dials < 40);
    assert_int_equal(op.done, 0);
    assert_false(fk.is_up);
    for (size_t i = 0; i < fk.conn_count; i++)
        assert_int_equal(fk.conns[i].waiting_count, 0);
    fk.auth_reply = "+OK\r\n";
    fake_advance(&fk, 5000);
    fake_answer(&fk, fake_at(&fk, 1), "GET a", ":1\r\n");
    assert_int_equal(op.done, 1);
    fake_close(&fk);
}

static void test_close_ends_open_operations_without_a_reply(void **state)
{
    (void)state;
    fake fk;
    fake_init(&fk);
    sl_redis_options options = fake_options(&fk);
    fake_open(&fk, &options);
    fake_op ops[3];
    fake_submit(&fk, &ops[0], "a", "k", false);
    fake_submit(&fk, &ops[1], "wall", "k", true);
    fake_submit(&fk, &ops[2], "b", "other", false);
    fake_close(&fk);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(ops[i].done, 1);
        assert_true(ops[i].is_closed);
    }
    assert_true(ops[0].position < ops[1].position);
}

/* ---- Sentinels ------------------------------------------------------------------------------- */

static sl_redis_address sentinels[] = {{.host = (char *)(uintptr_t) "sa", .port = 11},
                                       {.host = (char *)(uintptr_t) "sb", .port = 12}};
static const char ask_master[] = "SENTINEL get-master-addr-by-name main";

static sl_redis_options sentinel_options(fake *fk)
{
    sl_redis_options options = fake_options(fk);
    options.mode = SL_REDIS_SENTINEL;
    options.seeds = sentinels;
    options.seed_count = 2;
    options.master = "main";
    options.password = "pw";
    options.sentinel_password = "spw";
    return options;
}

static void test_sentinels_are_asked_in_turn_for_the_master(void **state)
{
    (void)state;
    fake fk;
    fake_init(&fk);
    sl_redis_options options = sentinel_options(&fk);
    fake_open(&fk, &options);
    fake_conn *fc = fake_at(&fk, 11);
    assert_string_equal(fc->greeting, "AUTH spw\n");
    fake_answer(&fk, fc, ask_master, "*-1\r\n"); // knows no such master
    assert_true(fc->is_ended);
    fake_advance(&fk, 5000);
    fake_answer(&fk, fake_at(&fk, 12), ask_master, "*2\r\n$2\r\nm1\r\n$2\r\n21\r\n");
    fc = fake_at(&fk, 21);
    assert_string_equal(fc->host, "m1");
    assert_true(strncmp(fc->greeting, "AUTH pw\nROLE\n", 13) == 0);
    assert_true(fk.is_up);
    fake_close(&fk);
}

static void test_a_master_that_became_a_replica_is_left(void **state)
{
    (void)state;
    fake fk;
    fake_init(&fk);
    sl_redis_options options = sentinel_options(&fk);
    fake_open(&fk, &options);
    fake_answer(&fk, fake_at(&fk, 11), ask_master, "*2\r\n$2\r\nm1\r\n$2\r\n21\r\n");
    fake_op op;
    fake_submit(&fk, &op, "a", "k", false);
    fake_answer(&fk, fake_at(&fk, 21), "GET a", "-READONLY You can't write\r\n");
    fake_advance(&fk, 1000);
    /* The first one still says the old address; that one says by itself that it is no master. */
    fk.role = "slave";
    fake_answer(&fk, fake_at(&fk, 12), ask_master, "*2\r\n$2\r\nm1\r\n$2\r\n21\r\n");
    assert_false(fk.is_up);
    fk.role = "master";
    fake_advance(&fk, 1000);
    fake_answer(&fk, fake_at(&fk, 11), ask_master, "*2\r\n$2\r\nm2\r\n$2\r\n22\r\n");
    fake_answer(&fk, fake_at(&fk, 22), "GET a", ":1\r\n");
    assert_string_equal(op.reply, "1");
    assert_true(fk.is_up);
    fake_close(&fk);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_client_greets_before_anything_else),
        cmocka_unit_test(test_client_pipelines_and_keeps_the_order),
        cmocka_unit_test(test_client_puts_replies_together_from_single_bytes),
        cmocka_unit_test(test_client_loads_lost_scripts_and_repeats_in_order),
        cmocka_unit_test(test_client_holds_results_until_those_before_are_done),
        cmocka_unit_test(test_client_asks_a_server_that_is_not_ready_again),
        cmocka_unit_test(test_a_barrier_is_alone_in_its_lane),
        cmocka_unit_test(test_client_repeats_what_a_lost_connection_left_open),
        cmocka_unit_test(test_client_gives_up_a_server_that_does_not_answer),
        cmocka_unit_test(test_client_leaves_a_server_that_talks_nonsense),
        cmocka_unit_test(test_client_waits_longer_after_each_failure_up_to_a_limit),
        cmocka_unit_test(test_a_refused_password_sends_nothing_else),
        cmocka_unit_test(test_close_ends_open_operations_without_a_reply),
        cmocka_unit_test(test_sentinels_are_asked_in_turn_for_the_master),
        cmocka_unit_test(test_a_master_that_became_a_replica_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
