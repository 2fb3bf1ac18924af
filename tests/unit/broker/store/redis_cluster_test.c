/* SPDX-License-Identifier: Apache-2.0
 *
 * The Redis client on a cluster: slots, MOVED, ASK, nodes that come and go. "foo" is in slot 12182,
 * "bar" in 5061.
 */
#include "redis_fake.h"

#include <stdio.h>
#include <string.h>

static sl_redis_address seeds[] = {{.host = (char *)(uintptr_t) "na", .port = 1},
                                   {.host = (char *)(uintptr_t) "nb", .port = 2}};

static const char halves[] = "*2\r\n"
                             "*3\r\n:0\r\n:8191\r\n*3\r\n$2\r\nna\r\n:1\r\n$1\r\nx\r\n"
                             "*3\r\n:8192\r\n:16383\r\n*3\r\n$2\r\nnb\r\n:2\r\n$1\r\ny\r\n";
static const char all_at_2[] = "*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$2\r\nnb\r\n:2\r\n$1\r\ny\r\n";

static void open_cluster(fake *fk)
{
    fake_init(fk);
    sl_redis_options options = fake_options(fk);
    options.mode = SL_REDIS_CLUSTER;
    options.seeds = seeds;
    options.seed_count = 2;
    options.password = "pw";
    fake_open(fk, &options);
    fake_conn *fc = fake_at(fk, 1);
    assert_string_equal(fc->greeting, "AUTH pw\n");
    assert_false(fk->is_up);
    fake_answer(fk, fc, "CLUSTER SLOTS", halves);
    assert_true(fc->is_ended);
    assert_true(fk->is_up);
}

static void test_operations_go_to_the_owner_of_their_slot(void **state)
{
    (void)state;
    fake fk;
    open_cluster(&fk);
    fake_op foo, bar;
    fake_submit(&fk, &foo, "foo", "foo", false);
    fake_submit(&fk, &bar, "bar", "bar", false);
    fake_answer(&fk, fake_at(&fk, 2), "GET foo", ":1\r\n");
    fake_answer(&fk, fake_at(&fk, 1), "GET bar", ":2\r\n");
    assert_string_equal(foo.reply, "1");
    assert_string_equal(bar.reply, "2");
    fake_close(&fk);
}

static void test_moved_goes_there_and_keeps_the_order(void **state)
{
    (void)state;
    fake fk;
    open_cluster(&fk);
    fake_op ops[3];
    fake_submit(&fk, &ops[0], "a", "foo", false);
    fake_submit(&fk, &ops[1], "b", "foo", false);
    fake_answer(&fk, fake_at(&fk, 2), "GET a", "-MOVED 12182 nc:3\r\n");
    fake_submit(&fk, &ops[2], "c", "foo", false);
    fake_conn *third = fake_at(&fk, 3);
    assert_int_equal(third->waiting_count, 0); // b is still on its way at the old one
    fake_answer(&fk, fake_at(&fk, 2), "GET b", "-MOVED 12182 nc:3\r\n");
    assert_int_equal(third->waiting_count, 3);
    fake_queue_answer(third, "GET a", ":1\r\n");
    fake_queue_answer(third, "GET b", ":2\r\n");
    fake_answer(&fk, third, "GET c", ":3\r\n");
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(ops[i].position, i + 1);
    assert_false(ops[0].op.is_repeated);
    fake_close(&fk);
}

static void test_moved_asks_for_the_whole_map_again(void **state)
{
    (void)state;
    fake fk;
    open_cluster(&fk);
    fake_op op, other;
    fake_submit(&fk, &op, "bar", "bar", false);
    fake_answer(&fk, fake_at(&fk, 1), "GET bar", "-MOVED 5061 nb:2\r\n");
    fake_answer(&fk, fake_at(&fk, 2), "GET bar", ":1\r\n");
    size_t before = fk.conn_count;
    fake_advance(&fk, 1000);
    assert_int_equal(fk.conn_count, before + 1);
    fake_answer(&fk, &fk.conns[before], "CLUSTER SLOTS", all_at_2);
    /* The first node serves nothing any more. */
    for (size_t i = 0; i < fk.conn_count; i++)
        assert_true(fk.conns[i].port != 1 || fk.conns[i].is_ended);
    fake_submit(&fk, &other, "x", "a", false);
    fake_answer(&fk, fake_at(&fk, 2), "GET x", ":1\r\n");
    assert_true(fk.is_up);
    fake_close(&fk);
}

static void test_a_moved_without_host_is_the_same_host(void **state)
{
    (void)state;
    fake fk;
    open_cluster(&fk);
    fake_op ops[3];
    fake_submit(&fk, &ops[0], "a", "foo", false);
    fake_answer(&fk, fake_at(&fk, 2), "GET a", "-MOVED 12182 :5\r\n");
    assert_string_equal(fake_at(&fk, 5)->host, "nb");
    fake_answer(&fk, fake_at(&fk, 5), "GET a", "-MOVED 12182 ::1:6\r\n");
    assert_string_equal(fake_at(&fk, 6)->host, "::1");
    fake_answer(&fk, fake_at(&fk, 6), "GET a", "-MOVED 12182 nb:70000\r\n");
    assert_string_equal(ops[0].reply, "MOVED 12182 nb:70000"); // not understood: the answer
    fake_close(&fk);
}

static void test_ask_is_for_one_operation(void **state)
{
    (void)state;
    fake fk;
    open_cluster(&fk);
    fake_op ops[2];
    fake_submit(&fk, &ops[0], "a", "foo", false);
    fake_answer(&fk, fake_at(&fk, 2), "GET a", "-ASK 12182 na:1\r\n");
    fake_conn *first = fake_at(&fk, 1);
    fake_submit(&fk, &ops[1], "b", "foo", false);
    assert_int_equal(fake_at(&fk, 2)->waiting_count, 0); // one place at a time
    fake_queue_answer(first, "ASKING", "+OK\r\n");
    fake_answer(&fk, first, "GET a", ":1\r\n");
    fake_answer(&fk, fake_at(&fk, 2), "GET b", ":2\r\n"); // the owner stays the owner
    assert_string_equal(ops[0].reply, "1");
    assert_string_equal(ops[1].reply, "2");
    fake_close(&fk);
}

static void test_a_lost_node_is_asked_about_and_its_operations_wait(void **state)
{
    (void)state;
    fake fk;
    open_cluster(&fk);
    fake_op lost, other;
    fake_submit(&fk, &lost, "a", "foo", false);
    fk.refuses_port = 2;
    fake_hang_up(&fk, fake_at(&fk, 2));
    assert_false(fk.is_up);
    fake_submit(&fk, &other, "b", "bar", false);
    for (size_t i = 0; i < fk.conn_count && other.done == 0; i++)
        if (fk.conns[i].port == 1 && fk.conns[i].waiting_count > 0 &&
            strcmp(fk.conns[i].waiting[0], "GET b") == 0)
            fake_answer(&fk, &fk.conns[i], "GET b", ":2\r\n");
    assert_int_equal(other.done, 1);
    /* A replica has taken over: the map says so. */
    for (unsigned i = 0; i < 4; i++)
        fake_advance(&fk, 200);
    bool asked = false;
    for (size_t i = 0; i < fk.conn_count && !asked; i++) {
        fake_conn *fc = &fk.conns[i];
        asked = !fc->is_ended && fc->fd >= 0 && fc->waiting_count == 1 &&
                strcmp(fc->waiting[0], "CLUSTER SLOTS") == 0;
        if (asked)
            fake_answer(&fk, fc, "CLUSTER SLOTS",
                        "*2\r\n*3\r\n:0\r\n:8191\r\n*2\r\n$2\r\nna\r\n:1\r\n"
                        "*3\r\n:8192\r\n:16383\r\n*2\r\n$0\r\n\r\n:4\r\n");
    }
    assert_true(asked);
    fake_answer(&fk, fake_at(&fk, 4), "GET a", ":1\r\n");
    assert_string_equal(lost.reply, "1");
    assert_true(lost.op.is_repeated);
    fake_close(&fk);
}

static void test_slots_that_nobody_serves_are_asked_for_again(void **state)
{
    (void)state;
    fake fk;
    fake_init(&fk);
    sl_redis_options options = fake_options(&fk);
    options.mode = SL_REDIS_CLUSTER;
    options.seeds = seeds;
    options.seed_count = 2;
    fake_open(&fk, &options);
    fake_answer(&fk, fake_at(&fk, 1), "CLUSTER SLOTS",
                "*1\r\n*3\r\n:0\r\n:8191\r\n*2\r\n$2\r\nna\r\n:1\r\n");
    assert_false(fk.is_up);
    fake_op op;
    fake_submit(&fk, &op, "a", "foo", false);
    fake_advance(&fk, 1100);
    fake_answer(&fk, fake_at(&fk, 2), "CLUSTER SLOTS", halves);
    fake_answer(&fk, fake_at(&fk, 2), "GET a", ":1\r\n");
    assert_int_equal(op.done, 1);
    assert_true(fk.is_up);
    fake_close(&fk);
}

static void test_nonsense_instead_of_slots_is_not_taken(void **state)
{
    (void)state;
    const char *const replies[] = {"*0\r\n",
                                   "+OK\r\n",
                                   "-NOAUTH\r\n",
                                   "*1\r\n:5\r\n",
                                   "*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$1\r\na\r\n:1\r\n",
                                   "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$1\r\na\r\n:0\r\n"};
    for (size_t i = 0; i < sizeof(replies) / sizeof(replies[0]); i++) {
        fake fk;
        fake_init(&fk);
        sl_redis_options options = fake_options(&fk);
        options.mode = SL_REDIS_CLUSTER;
        options.seeds = seeds;
        options.seed_count = 2;
        fake_open(&fk, &options);
        fake_answer(&fk, fake_at(&fk, 1), "CLUSTER SLOTS", replies[i]);
        assert_false(fk.is_up);
        fake_advance(&fk, 5000);
        fake_answer(&fk, fake_at(&fk, 2), "CLUSTER SLOTS", halves); // the next one is asked
        assert_true(fk.is_up);
        fake_close(&fk);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operations_go_to_the_owner_of_their_slot),
        cmocka_unit_test(test_moved_goes_there_and_keeps_the_order),
        cmocka_unit_test(test_moved_asks_for_the_whole_map_again),
        cmocka_unit_test(test_a_moved_without_host_is_the_same_host),
        cmocka_unit_test(test_ask_is_for_one_operation),
        cmocka_unit_test(test_a_lost_node_is_asked_about_and_its_operations_wait),
        cmocka_unit_test(test_slots_that_nobody_serves_are_asked_for_again),
        cmocka_unit_test(test_nonsense_instead_of_slots_is_not_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
