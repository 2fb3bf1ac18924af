/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox_embedded beside a store that refuses, fails, reorders and loses: the cases that a healthy
 * log does not give (tests/contract/inbox has the others).
 */
#include <stdio.h>

#include "sl_test.h"

#include "base/alloc.h"
#include "fake_kv.h"
#include "store/inbox_cache.h"

enum { MAX_DONE = 64 };

typedef struct fixture {
    sl_clock clock;
    sl_inbox *ib;
    sl_inbox_done dones[MAX_DONE]; /* pointers inside are not kept but for these: */
    sl_inbox_assigned first[MAX_DONE];
    sl_inbox_kind first_kind[MAX_DONE];
    uint16_t first_id[MAX_DONE];
    size_t count;
    unsigned rooms;
    unsigned wakes;
} fixture;

static void on_done(void *arg, const sl_inbox_done *done)
{
    fixture *fx = arg;
    assert_true(fx->count < MAX_DONE);
    if (done->assigned_count > 0)
        fx->first[fx->count] = done->assigned[0];
    if (done->entry_count > 0) {
        fx->first_kind[fx->count] = done->entries[0].kind;
        fx->first_id[fx->count] = done->entries[0].packet_id;
    }
    fx->dones[fx->count++] = *done;
}

static void on_room(void *arg)
{
    ((fixture *)arg)->rooms++;
}

static void on_wake(void *arg)
{
    ((fixture *)arg)->wakes++;
}

static void open_again(fixture *fx, size_t max_cached)
{
    static char log; /* never looked into: the fake has one store */
    sl_inbox_options options = {.log = (sl_log *)(void *)&log,
                                .clock = &fx->clock,
                                .default_ttl_ms = 60000,
                                .max_cached = max_cached,
                                .wake = on_wake,
                                .done = on_done,
                                .room = on_room,
                                .arg = fx};
    SL_TEST_OK(sl_inbox_open(&sl_inbox_embedded_ops, &options, &fx->ib));
}

static void open_fixture(fixture *fx, size_t max_cached)
{
    *fx = (fixture){0};
    sl_clock_init_fake(&fx->clock, 1, 1000000);
    fake_kv_reset();
    open_again(fx, max_cached);
}

static void close_fixture(fixture *fx)
{
    sl_inbox_close(&fx->ib);
    fake_kv_reset();
}

static void settle(fixture *fx)
{
    fake_kv_complete_all();
    sl_inbox_drain(fx->ib);
}

static sl_err add(fixture *fx, const char *client, uint64_t offset, uint8_t qos, uint64_t token)
{
    sl_inbox_row row = {.source_offset = offset, .qos = qos, .packet = {sl_slice_str("p")}};
    return sl_inbox_add(fx->ib, sl_slice_str(client), 1, &row, 1, 0, token);
}

static sl_err read_all(fixture *fx, const char *client, uint64_t token)
{
    return sl_inbox_read(fx->ib, sl_slice_str(client), 1, 0, 100, 10000, token);
}

static const sl_inbox_done *last(const fixture *fx)
{
    assert_true(fx->count > 0);
    return &fx->dones[fx->count - 1];
}

static sl_slice row_key(uint8_t *room, uint64_t row)
{
    return sl_slice_of(room, inbox_key(room, sl_slice_str("dev"), INBOX_KEY_ROW, row, 0));
}

static void test_a_full_queue_changes_nothing(void **state)
{
    (void)state;
    fixture fx;
    open_fixture(&fx, 10);
    fake_kv_refuse(SL_EAGAIN, 1, false);
    SL_TEST_ERR(add(&fx, "dev", 5, 1, 1), SL_EAGAIN);
    assert_int_equal(fake_kv_pending(), 0);
    sl_inbox_drain(fx.ib);
    assert_int_equal(fx.rooms, 1);
    assert_int_equal(fx.count, 0);
    SL_TEST_OK(add(&fx, "dev", 5, 1, 2));
    settle(&fx);
    assert_int_equal(fx.first[0].packet_id, 1);
    assert_int_equal(last(&fx)->dropped, 0);
    fake_kv_refuse(SL_EAGAIN, 1, false);
    SL_TEST_ERR(sl_inbox_remove(fx.ib, sl_slice_str("dev"), 1, (uint16_t[]){1}, 1, 3), SL_EAGAIN);
    SL_TEST_OK(sl_inbox_remove(fx.ib, sl_slice_str("dev"), 1, (uint16_t[]){1}, 1, 4));
    settle(&fx);
    SL_TEST_OK(last(&fx)->err);
    close_fixture(&fx);
}

static void test_a_failed_add_is_taken_when_it_comes_again(void **state)
{
    (void)state;
    fixture fx;
    open_fixture(&fx, 10);
    SL_TEST_OK(add(&fx, "dev", 1, 1, 1));
    settle(&fx);
    SL_TEST_OK(add(&fx, "dev", 2, 2, 2));
    SL_TEST_ERR(add(&fx, "dev", 3, 1, 3), SL_EAGAIN); /* no gap can come of it */
    SL_TEST_OK(sl_inbox_remove(fx.ib, sl_slice_str("dev"), 1, (uint16_t[]){1}, 1, 4));
    SL_TEST_OK(read_all(&fx, "dev", 5));
    /* add, its sync, remove */
    assert_int_equal(fake_kv_pending(), 3);
    fake_kv_complete(0, SL_EIO);
    sl_inbox_drain(fx.ib);
    assert_int_equal(fx.count, 2);
    SL_TEST_ERR(last(&fx)->err, SL_EIO);
    assert_int_equal(last(&fx)->assigned_count, 0);
    assert_int_equal(fx.rooms, 1);
    /* Until the rest is in, the box is not known. */
    SL_TEST_ERR(add(&fx, "dev", 2, 2, 6), SL_EAGAIN);
    fake_kv_complete(1, SL_OK);
    fake_kv_complete(0, SL_EIO); /* the sync: nobody waits for it any more */
    sl_inbox_drain(fx.ib);
    assert_int_equal(fx.count, 4);
    assert_int_equal(fx.dones[2].token, 4);
    assert_int_equal(fx.dones[3].token, 5);
    SL_TEST_ERR(fx.dones[3].err, SL_EIO);
    /* The remove's counters speak of a row that never came: the next read repairs that. */
    SL_TEST_OK(read_all(&fx, "dev", 7));
    settle(&fx);
    assert_int_equal(last(&fx)->entry_count, 0);
    assert_int_equal(last(&fx)->repaired, 1);
    SL_TEST_OK(add(&fx, "dev", 2, 2, 8));
    settle(&fx);
    assert_int_equal(fx.dones[fx.count - 2].dropped, 0);
    assert_int_equal(last(&fx)->op, SL_INBOX_OP_ADD_DURABLE);
    SL_TEST_OK(sl_inbox_count(fx.ib, sl_slice_str("dev"), 9));
    settle(&fx);
    assert_int_equal(last(&fx)->count, 1);
    close_fixture(&fx);
}

static void test_a_sync_is_tried_until_the_queue_takes_it(void **state)
{
    (void)state;
    fixture fx;
    open_fixture(&fx, 10);
    fake_kv_refuse_sync(SL_EAGAIN, 2);
    SL_TEST_OK(add(&fx, "dev", 1, 2, 1));
    assert_int_equal(fake_kv_pending(), 1);
    fake_kv_complete_all();
    sl_inbox_drain(fx.ib);
    assert_int_equal(fx.count, 1);
    assert_true(fx.dones[0].durable_follows);
    assert_int_equal(fake_kv_pending(), 0);
    sl_inbox_drain(fx.ib);
    assert_int_equal(fake_kv_pending(), 1);
    settle(&fx);
    assert_int_equal(fx.count, 2);
    assert_int_equal(last(&fx)->op, SL_INBOX_OP_ADD_DURABLE);
    /* A refusal that does not pass is the sync's result. */
    fake_kv_refuse_sync(SL_EIO, 2);
    SL_TEST_OK(add(&fx, "dev", 2, 2, 2));
    settle(&fx);
    SL_TEST_ERR(last(&fx)->err, SL_EIO);
    assert_int_equal(last(&fx)->op, SL_INBOX_OP_ADD_DURABLE);
    close_fixture(&fx);
}

static void test_a_sync_never_completes_before_its_add(void **state)
{
    (void)state;
    fixture fx;
    open_fixture(&fx, 10);
    SL_TEST_OK(add(&fx, "dev", 1, 2, 1));
    fake_kv_complete(1, SL_OK);
    sl_inbox_drain(fx.ib);
    assert_int_equal(fx.count, 0);
    settle(&fx);
    assert_int_equal(fx.count, 2);
    assert_int_equal(fx.dones[0].op, SL_INBOX_OP_ADD);
    assert_int_equal(fx.dones[1].op, SL_INBOX_OP_ADD_DURABLE);
    close_fixture(&fx);
}

static void test_without_space_acknowledged_rows_still_go(void **state)
{
    (void)state;
    fixture fx;
    open_fixture(&fx, 10);
    SL_TEST_OK(add(&fx, "dev", 1, 1, 1));
    settle(&fx);
    SL_TEST_OK(add(&fx, "dev", 2, 1, 2));
    settle(&fx);
    size_t rows = fake_kv_rows();
    fake_kv_refuse(SL_ENOSPC, 1000, true);
    SL_TEST_ERR(add(&fx, "dev", 3, 1, 3), SL_ENOSPC);
    SL_TEST_OK(sl_inbox_remove(fx.ib, sl_slice_str("dev"), 1, (uint16_t[]){1}, 1, 4));
    settle(&fx);
    assert_int_equal(fake_kv_rows(), rows - 1);
    /* After a restart the counters are too high; a read puts that right, without space too. */
    sl_inbox_close(&fx.ib);
    open_again(&fx, 10);
    SL_TEST_OK(read_all(&fx, "dev", 5));
    settle(&fx);
    assert_int_equal(last(&fx)->entry_count, 1);
    assert_int_equal(last(&fx)->repaired, 1);
    SL_TEST_OK(sl_inbox_clear(fx.ib, sl_slice_str("dev"), 2, 6));
    settle(&fx);
    assert_int_equal(fake_kv_rows(), 0);
    SL_TEST_ERR(sl_inbox_mark_pubrel(fx.ib, sl_slice_str("dev"), 1, 2, 7), SL_OK);
    settle(&fx);
    SL_TEST_ERR(last(&fx)->err, SL_ENOTFOUND);
    close_fixture(&fx);
}

static void test_lost_and_damaged_rows_are_repaired(void **state)
{
    (void)state;
    fixture fx;
    open_fixture(&fx, 10);
    for (uint64_t i = 1; i <= 4; i++) {
        SL_TEST_OK(add(&fx, "dev", i, 1, i));
        settle(&fx);
    }
    uint8_t key[64];
    fake_kv_tamper(row_key(key, 1), (sl_slice){0});
    fake_kv_tamper(row_key(key, 3), sl_slice_str("nonsense"));
    fake_kv_tamper(row_key(key, 4), (sl_slice){0});
    SL_TEST_OK(read_all(&fx, "dev", 10));
    settle(&fx);
    assert_int_equal(last(&fx)->entry_count, 1);
    assert_int_equal(fx.first_id[fx.count - 1], 2);
    assert_int_equal(last(&fx)->repaired, 3);
    assert_int_equal(last(&fx)->count, 1);
    sl_inbox_close(&fx.ib);
    open_again(&fx, 10);
    SL_TEST_OK(read_all(&fx, "dev", 11));
    settle(&fx);
    assert_int_equal(last(&fx)->entry_count, 1);
    assert_int_equal(last(&fx)->repaired, 0);
    close_fixture(&fx);
}

static void test_a_damaged_box_is_refused_until_it_is_cleared(void **state)
{
    (void)state;
    fixture fx;
    open_fixture(&fx, 10);
    SL_TEST_OK(add(&fx, "dev", 1, 1, 1));
    settle(&fx);
    uint8_t key[64];
    size_t len = inbox_key(key, sl_slice_str("dev"), INBOX_KEY_META, 0, 0);
    fake_kv_tamper(sl_slice_of(key, len), sl_slice_str("nonsense"));
    sl_inbox_close(&fx.ib);
    open_again(&fx, 10);
    SL_TEST_ERR(read_all(&fx, "dev", 2), SL_ECORRUPT);
    SL_TEST_ERR(add(&fx, "dev", 2, 1, 3), SL_ECORRUPT);
    SL_TEST_OK(sl_inbox_clear(fx.ib, sl_slice_str("dev"), 1, 4));
    settle(&fx);
    SL_TEST_OK(last(&fx)->err);
    assert_int_equal(fake_kv_rows(), 1); /* the new counters */
    SL_TEST_OK(add(&fx, "dev", 2, 1, 5));
    settle(&fx);
    assert_int_equal(fx.first[fx.count - 1].packet_id, 1);
    close_fixture(&fx);
}

static void test_sources_are_bounded_and_the_oldest_is_forgotten(void **state)
{
    (void)state;
    fixture fx;
    open_fixture(&fx, 10);
    sl_inbox_row row = {.source_offset = 9, .qos = 1, .packet = {sl_slice_str("p")}};
    for (uint64_t origin = 0; origin <= INBOX_MAX_SOURCES; origin++) {
        row.origin = origin;
        SL_TEST_OK(sl_inbox_add(fx.ib, sl_slice_str("dev"), 1, &row, 1, 1, origin));
        settle(&fx);
        assert_int_equal(last(&fx)->dropped, 0);
        fx.count = 0;
    }
    /* counters, one row (the limit), and the sources */
    assert_int_equal(fake_kv_rows(), 2 + INBOX_MAX_SOURCES);
    row.origin = 1;
    SL_TEST_OK(sl_inbox_add(fx.ib, sl_slice_str("dev"), 1, &row, 1, 1, 1));
    settle(&fx);
    assert_int_equal(last(&fx)->dropped, 1);
    row.origin = 0; /* the one that was quiet for longest */
    SL_TEST_OK(sl_inbox_add(fx.ib, sl_slice_str("dev"), 1, &row, 1, 1, 1));
    settle(&fx);
    assert_int_equal(last(&fx)->dropped, 0);
    close_fixture(&fx);
}

static void test_idle_boxes_are_forgotten_and_busy_ones_kept(void **state)
{
    (void)state;
    fixture fx;
    open_fixture(&fx, 2);
    SL_TEST_OK(add(&fx, "busy", 1, 1, 1));
    for (uint64_t i = 0; i < 20; i++) {
        char name[8];
        snprintf(name, sizeof(name), "c%u", (unsigned)i);
        SL_TEST_OK(sl_inbox_count(fx.ib, sl_slice_str(name), 100 + i));
        sl_inbox_drain(fx.ib);
    }
    unsigned scans = fake_kv_scans();
    SL_TEST_OK(sl_inbox_count(fx.ib, sl_slice_str("busy"), 2));
    assert_int_equal(fake_kv_scans(), scans); /* still in memory */
    SL_TEST_OK(sl_inbox_count(fx.ib, sl_slice_str("c0"), 3));
    assert_int_equal(fake_kv_scans(), scans + 1); /* loaded again */
    settle(&fx);
    close_fixture(&fx);
}

static void test_one_load_of_a_full_box_is_one_short_scan(void **state)
{
    (void)state;
    fixture fx;
    open_fixture(&fx, 10);
    sl_inbox_row rows[100];
    for (uint64_t i = 0; i < 100; i++)
        rows[i] = (sl_inbox_row){.source_offset = i + 1, .qos = 1, .packet = {sl_slice_str("p")}};
    SL_TEST_OK(sl_inbox_add(fx.ib, sl_slice_str("dev"), 1, rows, 100, 0, 1));
    settle(&fx);
    sl_inbox_close(&fx.ib);
    open_again(&fx, 10);
    unsigned scans = fake_kv_scans();
    SL_TEST_OK(add(&fx, "dev", 101, 1, 2));
    assert_int_equal(fake_kv_scans(), scans + 1);
    settle(&fx);
    /* With a hole the rows are looked through once. */
    SL_TEST_OK(sl_inbox_remove(fx.ib, sl_slice_str("dev"), 1, (uint16_t[]){50}, 1, 3));
    settle(&fx);
    sl_inbox_close(&fx.ib);
    open_again(&fx, 10);
    scans = fake_kv_scans();
    SL_TEST_OK(sl_inbox_remove(fx.ib, sl_slice_str("dev"), 1, (uint16_t[]){50}, 1, 4));
    assert_int_equal(fake_kv_scans(), scans + 2);
    settle(&fx);
    SL_TEST_ERR(last(&fx)->err, SL_ENOTFOUND);
    close_fixture(&fx);
}

static void test_offsets_are_committed_behind_the_rows(void **state)
{
    (void)state;
    fixture fx;
    open_fixture(&fx, 10);
    SL_TEST_OK(add(&fx, "dev", 1, 1, 1));
    SL_TEST_OK(sl_inbox_commit_behind(fx.ib, "group", NULL, 0, 33));
    assert_int_equal(fake_kv_pending(), 2);
    fake_kv_complete(0, SL_OK);
    assert_int_equal(fake_kv_committed(), 0);
    fake_kv_complete(0, SL_OK);
    assert_int_equal(fake_kv_committed(), 33);
    sl_inbox_drain(fx.ib);
    close_fixture(&fx);
}

static void test_one_wake_is_open_between_two_drains(void **state)
{
    (void)state;
    fixture fx;
    open_fixture(&fx, 10);
    SL_TEST_OK(sl_inbox_count(fx.ib, sl_slice_str("a"), 1));
    SL_TEST_OK(sl_inbox_count(fx.ib, sl_slice_str("b"), 2));
    assert_int_equal(fx.wakes, 1);
    assert_int_equal(fx.count, 0);
    assert_int_equal(sl_inbox_drain(fx.ib), 2);
    SL_TEST_OK(sl_inbox_count(fx.ib, sl_slice_str("a"), 3));
    assert_int_equal(fx.wakes, 2);
    sl_inbox_drain(fx.ib);
    close_fixture(&fx);
}

static void test_a_read_leaves_out_what_was_acknowledged_meanwhile(void **state)
{
    (void)state;
    fixture fx;
    open_fixture(&fx, 10);
    for (uint64_t i = 1; i <= 3; i++) {
        SL_TEST_OK(add(&fx, "dev", i, 1, i));
        settle(&fx);
    }
    SL_TEST_OK(read_all(&fx, "dev", 10));
    SL_TEST_OK(sl_inbox_remove(fx.ib, sl_slice_str("dev"), 1, (uint16_t[]){2}, 1, 11));
    sl_inbox_drain(fx.ib); /* the store has all three still */
    assert_int_equal(last(&fx)->token, 10);
    assert_int_equal(last(&fx)->entry_count, 2);
    assert_int_equal(fx.first_id[fx.count - 1], 1);
    settle(&fx);
    close_fixture(&fx);
}

static void test_room_is_called_when_the_open_add_completes(void **state)
{
    (void)state;
    fixture fx;
    open_fixture(&fx, 10);
    SL_TEST_OK(add(&fx, "dev", 1, 1, 1));
    SL_TEST_ERR(add(&fx, "dev", 2, 1, 2), SL_EAGAIN);
    sl_inbox_drain(fx.ib);
    sl_inbox_drain(fx.ib);
    assert_int_equal(fx.rooms, 0); /* no turning in circles meanwhile */
    assert_int_equal(fx.wakes, 0);
    settle(&fx);
    assert_int_equal(fx.rooms, 1);
    SL_TEST_OK(add(&fx, "dev", 2, 1, 2));
    settle(&fx);
    assert_int_equal(fx.rooms, 1);
    close_fixture(&fx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_full_queue_changes_nothing),
        cmocka_unit_test(test_a_failed_add_is_taken_when_it_comes_again),
        cmocka_unit_test(test_a_sync_is_tried_until_the_queue_takes_it),
        cmocka_unit_test(test_a_sync_never_completes_before_its_add),
        cmocka_unit_test(test_without_space_acknowledged_rows_still_go),
        cmocka_unit_test(test_lost_and_damaged_rows_are_repaired),
        cmocka_unit_test(test_a_damaged_box_is_refused_until_it_is_cleared),
        cmocka_unit_test(test_sources_are_bounded_and_the_oldest_is_forgotten),
        cmocka_unit_test(test_idle_boxes_are_forgotten_and_busy_ones_kept),
        cmocka_unit_test(test_one_load_of_a_full_box_is_one_short_scan),
        cmocka_unit_test(test_offsets_are_committed_behind_the_rows),
        cmocka_unit_test(test_a_read_leaves_out_what_was_acknowledged_meanwhile),
        cmocka_unit_test(test_room_is_called_when_the_open_add_completes),
        cmocka_unit_test(test_one_wake_is_open_between_two_drains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
