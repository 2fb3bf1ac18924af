/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox_contract: what every adapter of the inbox port must do. Nothing here knows which it is.
 */
#include <stdio.h>

#include "base/alloc.h"
#include "inbox_harness.h"

static const inbox_factory *the_factory; /* cmocka passes a state, but only one per test */

static const sl_inbox_done *add_one(inbox_harness *hs, const char *client, uint64_t offset,
                                    uint8_t qos)
{
    sl_inbox_row row = harness_row(offset, qos, "packet");
    return harness_add(hs, client, 1, &row, 1, 0);
}

static void test_add_then_read_gives_rows_in_order(void **state)
{
    (void)state;
    inbox_harness hs;
    harness_open(&hs, the_factory, 100);
    sl_inbox_row rows[3] = {harness_row(10, 1, "one"), harness_row(11, 2, "two"),
                            harness_row(12, 1, "")};
    rows[1].flags = SL_INBOX_RETAIN;
    rows[1].time_ms = 77;
    rows[1].expires_at_ms = HARNESS_NOW + 5000;
    rows[2].packet[0] = sl_slice_str("th");
    rows[2].packet[2] = sl_slice_str("re");
    rows[2].packet[3] = sl_slice_str("e");
    const sl_inbox_done *done = harness_add(&hs, "dev", 1, rows, 3, 0);
    SL_TEST_OK(done->err);
    assert_int_equal(done->assigned_count, 3);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(done->assigned[i].packet_id, i + 1);
    assert_true(done->assigned[0].row < done->assigned[1].row);
    assert_int_equal(done->dropped, 0);
    assert_int_equal(done->evicted, 0);
    const sl_inbox_done *read = harness_read(&hs, "dev", 1, 0, 100, 1000);
    SL_TEST_OK(read->err);
    assert_int_equal(read->entry_count, 3);
    assert_int_equal(read->count, 3);
    assert_false(read->more);
    SL_TEST_SLICE(read->entries[0].packet, "one");
    SL_TEST_SLICE(read->entries[1].packet, "two");
    SL_TEST_SLICE(read->entries[2].packet, "three");
    const sl_inbox_entry *two = &read->entries[1];
    assert_int_equal(two->row, done->assigned[1].row);
    assert_int_equal(two->packet_id, 2);
    assert_int_equal(two->kind, SL_INBOX_PUBLISH);
    assert_int_equal(two->qos, 2);
    assert_int_equal(two->flags, SL_INBOX_RETAIN);
    assert_int_equal(two->time_ms, 77);
    assert_int_equal(two->expires_at_ms, HARNESS_NOW + 5000);
    assert_int_equal(read->entries[0].expires_at_ms, HARNESS_NOW + HARNESS_TTL);
    assert_int_equal(harness_read(&hs, "other", 1, 0, 100, 1000)->entry_count, 0);
    harness_close(&hs);
}

static void test_add_drops_replays_by_partition_and_origin(void **state)
{
    (void)state;
    inbox_harness hs;
    harness_open(&hs, the_factory, 100);
    sl_inbox_row rows[4] = {harness_row(10, 1, "a"), harness_row(10, 1, "b"),
                            harness_row(9, 1, "c"), harness_row(11, 1, "d")};
    const sl_inbox_done *done = harness_add(&hs, "dev", 1, rows, 4, 0);
    assert_int_equal(done->dropped, 2);
    assert_int_equal(done->assigned[0].packet_id, 1);
    assert_int_equal(done->assigned[1].packet_id, 0);
    assert_int_equal(done->assigned[1].row, 0);
    assert_int_equal(done->assigned[2].packet_id, 0);
    assert_int_equal(done->assigned[3].packet_id, 2);
    harness_reopen(&hs);
    /* Nothing of it is new after a restart, but another partition and another origin are. */
    sl_inbox_row more[4] = {harness_row(11, 1, "d"), harness_row(11, 1, "e"),
                            harness_row(11, 1, "f"), harness_row(11, 1, "g")};
    more[1].source_partition = 3;
    more[2].origin = UINT64_MAX;
    more[3].flags = SL_INBOX_NO_SOURCE;
    done = harness_add(&hs, "dev", 1, more, 4, 0);
    assert_int_equal(done->dropped, 1);
    assert_int_equal(done->assigned[0].packet_id, 0);
    assert_int_equal(done->assigned[3].packet_id, 5);
    done = harness_add(&hs, "dev", 1, more, 3, 0);
    assert_int_equal(done->dropped, 3);
    const sl_inbox_done *read = harness_read(&hs, "dev", 1, 0, 100, 1000);
    assert_int_equal(read->entry_count, 5);
    SL_TEST_SLICE(read->entries[4].packet, "g");
    assert_int_equal(read->entries[4].flags, 0);
    harness_close(&hs);
}

static void test_generations_older_is_dropped_newer_empties(void **state)
{
    (void)state;
    inbox_harness hs;
    harness_open(&hs, the_factory, 100);
    sl_inbox_row row = harness_row(10, 1, "old");
    harness_add(&hs, "dev", 5, &row, 1, 0);
    row = harness_row(11, 1, "older");
    const sl_inbox_done *done = harness_add(&hs, "dev", 4, &row, 1, 0);
    SL_TEST_OK(done->err);
    assert_int_equal(done->dropped, 1);
    SL_TEST_ERR(harness_read(&hs, "dev", 4, 0, 10, 1000)->err, SL_ENOTFOUND);
    SL_TEST_ERR(harness_remove(&hs, "dev", 4, 1), SL_ENOTFOUND);
    SL_TEST_ERR(harness_mark(&hs, "dev", 4, 1), SL_ENOTFOUND);
    SL_TEST_ERR(harness_clear(&hs, "dev", 4), SL_ENOTFOUND);
    assert_int_equal(harness_count(&hs, "dev"), 1);
    /* The same source is new in a new generation. */
    row = harness_row(10, 1, "new");
    done = harness_add(&hs, "dev", 6, &row, 1, 0);
    assert_int_equal(done->dropped, 0);
    harness_reopen(&hs);
    const sl_inbox_done *read = harness_read(&hs, "dev", 6, 0, 10, 1000);
    assert_int_equal(read->entry_count, 1);
    SL_TEST_SLICE(read->entries[0].packet, "new");
    SL_TEST_OK(harness_read(&hs, "dev", 7, 0, 10, 1000)->err);
    assert_int_equal(harness_count(&hs, "dev"), 0);
    SL_TEST_ERR(harness_read(&hs, "dev", 6, 0, 10, 1000)->err, SL_ENOTFOUND);
    harness_close(&hs);
}

static void test_add_at_the_limit_evicts_the_oldest(void **state)
{
    (void)state;
    inbox_harness hs;
    harness_open(&hs, the_factory, 100);
    sl_inbox_row rows[5];
    for (uint64_t i = 0; i < 5; i++)
        rows[i] = harness_row(i + 1, 1, "x");
    assert_int_equal(harness_add(&hs, "dev", 1, rows, 3, 4)->evicted, 0);
    const sl_inbox_done *done = harness_add(&hs, "dev", 1, rows + 3, 2, 4);
    assert_int_equal(done->evicted, 1);
    const sl_inbox_done *read = harness_read(&hs, "dev", 1, 0, 10, 1000);
    assert_int_equal(read->entry_count, 4);
    assert_int_equal(read->entries[0].packet_id, 2);
    SL_TEST_ERR(harness_remove(&hs, "dev", 1, 1), SL_ENOTFOUND);
    /* More at once than the box holds: the first of them are not stored at all. */
    for (uint64_t i = 0; i < 5; i++)
        rows[i] = harness_row(i + 10, 1, "y");
    done = harness_add(&hs, "dev", 1, rows, 5, 2);
    assert_int_equal(done->evicted, 4 + 3);
    assert_int_equal(done->dropped, 0);
    assert_int_equal(done->assigned[2].packet_id, 0);
    assert_int_not_equal(done->assigned[3].packet_id, 0);
    assert_int_equal(harness_count(&hs, "dev"), 2);
    /* They were taken all the same: no replay. */
    assert_int_equal(harness_add(&hs, "dev", 1, rows, 5, 2)->dropped, 5);
    harness_reopen(&hs);
    assert_int_equal(harness_count(&hs, "dev"), 2);
    assert_int_equal(harness_read(&hs, "dev", 1, 0, 10, 1000)->entry_count, 2);
    harness_close(&hs);
}

static void test_add_of_qos2_completes_again_when_durable(void **state)
{
    (void)state;
    inbox_harness hs;
    harness_open(&hs, the_factory, 100);
    sl_inbox_row rows[2] = {harness_row(1, 1, "a"), harness_row(2, 2, "b")};
    const sl_inbox_done *done = harness_add(&hs, "dev", 1, rows, 2, 0);
    assert_int_equal(done->durable_follows, !the_factory->is_durable_at_once);
    uint64_t token = done->token;
    if (done->durable_follows) {
        SL_TEST_OK(harness_wait(&hs, SL_INBOX_OP_ADD_DURABLE, token)->err);
        assert_true(harness_position(&hs, SL_INBOX_OP_ADD, token) <
                    harness_position(&hs, SL_INBOX_OP_ADD_DURABLE, token));
    }
    /* Neither QoS 1 nor a replayed QoS 2 row has anything to wait for. */
    sl_inbox_row more[2] = {harness_row(3, 1, "c"), harness_row(2, 2, "b")};
    assert_false(harness_add(&hs, "dev", 1, more, 2, 0)->durable_follows);
    assert_false(harness_add(&hs, "dev", 1, rows, 2, 0)->durable_follows);
    harness_close(&hs);
}

static void test_remove_takes_one_row_once(void **state)
{
    (void)state;
    inbox_harness hs;
    harness_open(&hs, the_factory, 100);
    for (uint64_t i = 1; i <= 5; i++)
        add_one(&hs, "dev", i, 1);
    SL_TEST_OK(harness_remove(&hs, "dev", 1, 3));
    SL_TEST_ERR(harness_remove(&hs, "dev", 1, 3), SL_ENOTFOUND);
    SL_TEST_ERR(harness_remove(&hs, "dev", 1, 6), SL_ENOTFOUND);
    SL_TEST_ERR(harness_remove(&hs, "dev", 1, 65535), SL_ENOTFOUND);
    SL_TEST_ERR(harness_remove(&hs, "nobody", 1, 1), SL_ENOTFOUND);
    SL_TEST_OK(harness_remove(&hs, "dev", 1, 1));
    harness_reopen(&hs);
    const sl_inbox_done *read = harness_read(&hs, "dev", 1, 0, 10, 1000);
    assert_int_equal(read->entry_count, 3);
    assert_int_equal(read->entries[0].packet_id, 2);
    assert_int_equal(read->entries[1].packet_id, 4);
    assert_int_equal(read->entries[2].packet_id, 5);
    SL_TEST_OK(harness_remove(&hs, "dev", 1, 2));
    SL_TEST_OK(harness_remove(&hs, "dev", 1, 4));
    SL_TEST_OK(harness_remove(&hs, "dev", 1, 5));
    assert_int_equal(harness_count(&hs, "dev"), 0);
    harness_reopen(&hs);
    /* Ids go on where they were. */
    assert_int_equal(add_one(&hs, "dev", 6, 1)->assigned[0].packet_id, 6);
    harness_close(&hs);
}

static void test_mark_pubrel_keeps_place_and_outlives_the_message(void **state)
{
    (void)state;
    inbox_harness hs;
    harness_open(&hs, the_factory, 100);
    sl_inbox_row rows[3] = {harness_row(1, 1, "a"), harness_row(2, 2, "b"), harness_row(3, 1, "c")};
    rows[1].expires_at_ms = HARNESS_NOW + 1000;
    harness_add(&hs, "dev", 1, rows, 3, 0);
    SL_TEST_OK(harness_mark(&hs, "dev", 1, 2));
    SL_TEST_OK(harness_mark(&hs, "dev", 1, 2));
    SL_TEST_ERR(harness_mark(&hs, "dev", 1, 9), SL_ENOTFOUND);
    harness_reopen(&hs);
    sl_clock_advance(&hs.clock, 2000);
    const sl_inbox_done *read = harness_read(&hs, "dev", 1, 0, 10, 1000);
    assert_int_equal(read->entry_count, 3);
    assert_int_equal(read->entries[1].packet_id, 2);
    assert_int_equal(read->entries[1].kind, SL_INBOX_PUBREL);
    assert_int_equal(read->entries[1].qos, 2);
    assert_int_equal(read->entries[1].packet.len, 0);
    SL_TEST_SLICE(read->entries[2].packet, "c");
    SL_TEST_OK(harness_remove(&hs, "dev", 1, 2));
    assert_int_equal(harness_count(&hs, "dev"), 2);
    SL_TEST_ERR(harness_mark(&hs, "dev", 1, 2), SL_ENOTFOUND);
    harness_close(&hs);
}

static void test_remove_takes_many_ids_at_once(void **state)
{
    (void)state;
    inbox_harness hs;
    harness_open(&hs, the_factory, 100);
    for (uint64_t i = 1; i <= 6; i++)
        add_one(&hs, "dev", i, 1);
    const uint16_t ids[] = {5, 1, 1, 40000, 2}; /* not in order, twice, and one that is not there */
    const sl_inbox_done *done = harness_remove_many(&hs, "dev", 1, ids, 5);
    SL_TEST_OK(done->err);
    assert_int_equal(done->removed, 3);
    SL_TEST_ERR(harness_remove_many(&hs, "dev", 1, ids, 5)->err, SL_ENOTFOUND);
    harness_reopen(&hs);
    const sl_inbox_done *read = harness_read(&hs, "dev", 1, 0, 10, 1000);
    assert_int_equal(read->entry_count, 3);
    assert_int_equal(read->entries[0].packet_id, 3);
    assert_int_equal(read->entries[1].packet_id, 4);
    assert_int_equal(read->entries[2].packet_id, 6);
    const uint16_t rest[] = {3, 4, 6};
    SL_TEST_OK(harness_remove_many(&hs, "dev", 1, rest, 3)->err);
    assert_int_equal(harness_count(&hs, "dev"), 0);
    harness_close(&hs);
}

static void test_read_removes_expired_rows_whatever_their_number(void **state)
{
    (void)state;
    enum { OLD = 1000 };
    inbox_harness hs;
    harness_open(&hs, the_factory, 100);
    sl_inbox_row *rows = sl_calloc(OLD + 1, sizeof(*rows));
    for (size_t i = 0; i < OLD; i++) {
        rows[i] = harness_row(i + 1, 1, "old");
        rows[i].expires_at_ms = HARNESS_NOW + 10000;
    }
    rows[OLD] = harness_row(OLD + 1, 1, "stays");
    harness_add(&hs, "dev", 1, rows, OLD + 1, 0);
    sl_clock_advance(&hs.clock, 4000);
    assert_int_equal(harness_read(&hs, "dev", 1, 0, 5, 1000)->entry_count, 5);
    sl_clock_advance(&hs.clock, 6000);
    const sl_inbox_done *read = harness_read(&hs, "dev", 1, 0, 5, 1000);
    assert_int_equal(read->entry_count, 1);
    SL_TEST_SLICE(read->entries[0].packet, "stays");
    assert_int_equal(read->expired, OLD);
    assert_int_equal(read->count, 1);
    harness_reopen(&hs);
    assert_int_equal(harness_count(&hs, "dev"), 1);
    sl_clock_advance(&hs.clock, HARNESS_TTL);
    read = harness_read(&hs, "dev", 1, 0, 5, 1000);
    assert_int_equal(read->entry_count, 0);
    assert_int_equal(read->expired, 1);
    assert_int_equal(harness_count(&hs, "dev"), 0);
    sl_free(rows);
    harness_close(&hs);
}

static void test_read_goes_on_behind_a_row(void **state)
{
    (void)state;
    inbox_harness hs;
    harness_open(&hs, the_factory, 100);
    for (uint64_t i = 1; i <= 7; i++)
        add_one(&hs, "dev", i, 1);
    const sl_inbox_done *read = harness_read(&hs, "dev", 1, 0, 3, 1000);
    assert_int_equal(read->entry_count, 3);
    assert_true(read->more);
    uint64_t last = read->entries[2].row;
    SL_TEST_OK(harness_remove(&hs, "dev", 1, 4));
    read = harness_read(&hs, "dev", 1, last, 3, 1000);
    assert_int_equal(read->entry_count, 3);
    assert_int_equal(read->entries[0].packet_id, 5);
    assert_false(read->more);
    assert_int_equal(harness_read(&hs, "dev", 1, read->entries[2].row, 3, 1000)->entry_count, 0);
    /* Bytes bound it too, but one row always comes ("packet" has six). */
    read = harness_read(&hs, "dev", 1, 0, 10, 13);
    assert_int_equal(read->entry_count, 2);
    assert_true(read->more);
    read = harness_read(&hs, "dev", 1, 0, 10, 1);
    assert_int_equal(read->entry_count, 1);
    assert_true(read->more);
    harness_close(&hs);
}

static void test_clear_empties_for_a_generation_or_for_good(void **state)
{
    (void)state;
    inbox_harness hs;
    harness_open(&hs, the_factory, 100);
    add_one(&hs, "dev", 10, 1);
    add_one(&hs, "dev", 11, 2);
    SL_TEST_OK(harness_clear(&hs, "dev", 2));
    assert_int_equal(harness_count(&hs, "dev"), 0);
    assert_int_equal(add_one(&hs, "dev", 12, 1)->dropped, 1); /* of generation 1 */
    sl_inbox_row row = harness_row(10, 1, "new");
    assert_int_equal(harness_add(&hs, "dev", 2, &row, 1, 0)->dropped, 0);
    SL_TEST_ERR(harness_remove(&hs, "dev", 1, 1), SL_ENOTFOUND);
    harness_reopen(&hs);
    assert_int_equal(harness_read(&hs, "dev", 2, 0, 10, 1000)->entry_count, 1);
    SL_TEST_OK(harness_clear(&hs, "dev", 0));
    SL_TEST_OK(harness_clear(&hs, "dev", 0));
    SL_TEST_OK(harness_clear(&hs, "never", 0));
    harness_reopen(&hs);
    assert_int_equal(harness_count(&hs, "dev"), 0);
    assert_int_equal(add_one(&hs, "dev", 10, 1)->dropped, 0); /* nothing is remembered */
    harness_close(&hs);
}

static void test_odd_client_ids_are_never_mixed(void **state)
{
    (void)state;
    uint8_t *longest = sl_alloc(SL_INBOX_MAX_CLIENT_BYTES + 1);
    memset(longest, 'x', SL_INBOX_MAX_CLIENT_BYTES + 1);
    const sl_slice ids[] = {
        sl_slice_str("a"),           sl_slice_str("a/b"),
        sl_slice_str("../../x"),     sl_slice_str("a b"),
        sl_slice_str("\xc3\xa9"),    sl_slice_str("\xf0\x9f\x98\x80"),
        sl_slice_str("{}"),          sl_slice_str("a}b"),
        sl_slice_str("%00"),         sl_slice_str("."),
        sl_slice_str(".."),          sl_slice_str("\n"),
        sl_slice_str("*"),           sl_slice_str("a_messages"),
        sl_slice_of("a\0", 2),       sl_slice_of("a\3\0\0\0\0\0\0\0\1", 10),
        sl_slice_of("\0\1a", 3),     sl_slice_of("\xff\xff\xff", 3),
        sl_slice_of(longest, 300),   sl_slice_of(longest, 65534),
        sl_slice_of(longest, 65535),
    };
    enum { COUNT = sizeof(ids) / sizeof(ids[0]) };
    inbox_harness hs;
    harness_open(&hs, the_factory, 4);
    for (size_t i = 0; i < COUNT; i++) {
        char packet[16];
        snprintf(packet, sizeof(packet), "for-%02zu", i);
        sl_inbox_row rows[2] = {harness_row(1, 1, packet), harness_row(2, 2, packet)};
        SL_TEST_OK(harness_add_slice(&hs, ids[i], 1, rows, 2, 0)->err);
    }
    for (size_t i = 0; i < COUNT; i++) {
        char packet[16];
        snprintf(packet, sizeof(packet), "for-%02zu", i);
        const sl_inbox_done *read = harness_read_slice(&hs, ids[i], 1, 0, 10, 1000);
        assert_int_equal(read->entry_count, 2);
        assert_memory_equal(read->entries[0].packet.ptr, packet, 6);
        assert_memory_equal(read->entries[1].packet.ptr, packet, 6);
        uint64_t token = hs.next_token++;
        SL_TEST_OK(sl_inbox_clear(hs.ib, ids[i], 0, token));
        harness_wait(&hs, SL_INBOX_OP_CLEAR, token);
        assert_int_equal(harness_read_slice(&hs, ids[i], 1, 0, 10, 1000)->entry_count, 0);
    }
    SL_TEST_ERR(sl_inbox_count(hs.ib, (sl_slice){0}, 1), SL_EINVAL);
    SL_TEST_ERR(sl_inbox_count(hs.ib, sl_slice_of(longest, 65536), 1), SL_EINVAL);
    sl_free(longest);
    harness_close(&hs);
}

static void test_bad_arguments_are_refused(void **state)
{
    (void)state;
    inbox_harness hs;
    harness_open(&hs, the_factory, 100);
    sl_slice dev = sl_slice_str("dev");
    sl_inbox_row row = harness_row(1, 1, "x");
    SL_TEST_ERR(sl_inbox_add(hs.ib, dev, 0, &row, 1, 0, 1), SL_EINVAL);
    SL_TEST_ERR(sl_inbox_add(hs.ib, dev, 1, &row, 0, 0, 1), SL_EINVAL);
    row.qos = 0;
    SL_TEST_ERR(sl_inbox_add(hs.ib, dev, 1, &row, 1, 0, 1), SL_EINVAL);
    row = harness_row(1, 1, "");
    SL_TEST_ERR(sl_inbox_add(hs.ib, dev, 1, &row, 1, 0, 1), SL_EINVAL);
    SL_TEST_ERR(sl_inbox_read(hs.ib, dev, 1, 0, 0, 100, 1), SL_EINVAL);
    SL_TEST_ERR(sl_inbox_read(hs.ib, dev, 0, 0, 1, 100, 1), SL_EINVAL);
    SL_TEST_ERR(sl_inbox_remove(hs.ib, dev, 1, (uint16_t[]){0}, 1, 1), SL_EINVAL);
    SL_TEST_ERR(sl_inbox_mark_pubrel(hs.ib, dev, 1, 0, 1), SL_EINVAL);
    assert_int_equal(hs.count, 0);
    harness_close(&hs);
}

static void test_a_second_add_waits_for_the_first(void **state)
{
    (void)state;
    inbox_harness hs;
    harness_open(&hs, the_factory, 100);
    sl_slice dev = sl_slice_str("dev");
    sl_inbox_row first = harness_row(1, 1, "first"), second = harness_row(2, 1, "second");
    SL_TEST_OK(sl_inbox_add(hs.ib, dev, 1, &first, 1, 0, 501));
    assert_int_equal(hs.count, 0); /* never before the call returns */
    unsigned refused = 0;
    sl_err err;
    while ((err = sl_inbox_add(hs.ib, dev, 1, &second, 1, 0, 502)) == SL_EAGAIN) {
        refused++;
        harness_turn(&hs);
    }
    SL_TEST_OK(err);
    assert_true(refused > 0);
    assert_true(hs.rooms > 0);
    /* What is asked behind it completes behind it, and a read does not see rows that are announced
     * later. Other clients do not wait. */
    SL_TEST_OK(sl_inbox_read(hs.ib, dev, 1, 0, 10, 1000, 503));
    SL_TEST_OK(sl_inbox_count(hs.ib, dev, 504));
    SL_TEST_OK(sl_inbox_add(hs.ib, sl_slice_str("else"), 1, &first, 1, 0, 505));
    const sl_inbox_done *read = harness_wait(&hs, SL_INBOX_OP_READ, 503);
    assert_int_equal(read->entry_count, 2);
    harness_wait(&hs, SL_INBOX_OP_COUNT, 504);
    harness_wait(&hs, SL_INBOX_OP_ADD, 505);
    size_t at[4] = {harness_position(&hs, SL_INBOX_OP_ADD, 501),
                    harness_position(&hs, SL_INBOX_OP_ADD, 502),
                    harness_position(&hs, SL_INBOX_OP_READ, 503),
                    harness_position(&hs, SL_INBOX_OP_COUNT, 504)};
    for (size_t i = 1; i < 4; i++)
        assert_true(at[i - 1] < at[i]);
    harness_close(&hs);
}

static void test_a_read_never_shares_rows_with_a_later_completion(void **state)
{
    (void)state;
    inbox_harness hs;
    harness_open(&hs, the_factory, 100);
    sl_slice dev = sl_slice_str("dev");
    add_one(&hs, "dev", 1, 1);
    sl_inbox_row row = harness_row(2, 1, "x");
    SL_TEST_OK(sl_inbox_read(hs.ib, dev, 1, 0, 10, 1000, 601));
    SL_TEST_OK(sl_inbox_add(hs.ib, dev, 1, &row, 1, 0, 602));
    const sl_inbox_done *add = harness_wait(&hs, SL_INBOX_OP_ADD, 602);
    uint64_t added = add->assigned[0].row;
    const sl_inbox_done *read = harness_wait(&hs, SL_INBOX_OP_READ, 601);
    bool is_in_read = read->entry_count > 0 && read->entries[read->entry_count - 1].row == added;
    bool read_came_first =
        harness_position(&hs, SL_INBOX_OP_READ, 601) < harness_position(&hs, SL_INBOX_OP_ADD, 602);
    assert_true(!is_in_read || !read_came_first);
    harness_close(&hs);
}

static void test_packet_ids_wrap_and_skip_what_is_in_the_box(void **state)
{
    (void)state;
    enum { STEP = 5000 };
    inbox_harness hs;
    harness_open(&hs, the_factory, 100);
    sl_inbox_row *rows = sl_calloc(STEP, sizeof(*rows));
    sl_slice dev = sl_slice_str("dev");
    uint16_t expected = 1;
    bool wrapped = false;
    for (unsigned round = 0; round < 14; round++) {
        for (unsigned i = 0; i < STEP; i++)
            rows[i] = harness_row(round * STEP + i + 1, 1, "x");
        const sl_inbox_done *done = harness_add(&hs, "dev", 1, rows, STEP, 0);
        assert_int_equal(done->evicted, 0);
        const sl_inbox_assigned *assigned = done->assigned;
        for (unsigned i = 0; i < STEP; i++) {
            /* 1 and 3 stay in the box for ever. */
            if (wrapped && (expected == 1 || expected == 3))
                expected++;
            assert_int_equal(assigned[i].packet_id, expected);
            wrapped = wrapped || expected == 65535;
            expected = expected == 65535 ? 1 : expected + 1;
        }
        uint64_t token = 0;
        for (unsigned i = 0; i < STEP; i++) {
            if (assigned[i].row == 1 || assigned[i].row == 3)
                continue;
            token = hs.next_token++;
            sl_err err;
            while ((err = sl_inbox_remove(hs.ib, dev, 1, &assigned[i].packet_id, 1, token)) ==
                   SL_EAGAIN)
                harness_turn(&hs);
            SL_TEST_OK(err);
        }
        harness_wait(&hs, SL_INBOX_OP_REMOVE, token);
    }
    assert_true(wrapped);
    assert_int_equal(harness_count(&hs, "dev"), 2);
    const sl_inbox_done *read = harness_read(&hs, "dev", 1, 0, 10, 1000);
    assert_int_equal(read->entries[0].packet_id, 1);
    assert_int_equal(read->entries[1].packet_id, 3);
    sl_free(rows);
    harness_close(&hs);
}

static void test_close_completes_what_is_open(void **state)
{
    (void)state;
    inbox_harness hs;
    harness_open(&hs, the_factory, 100);
    sl_slice dev = sl_slice_str("dev");
    sl_inbox_row row = harness_row(1, 2, "x");
    SL_TEST_OK(sl_inbox_add(hs.ib, dev, 1, &row, 1, 0, 701));
    SL_TEST_OK(sl_inbox_read(hs.ib, dev, 1, 0, 10, 1000, 702));
    SL_TEST_OK(sl_inbox_mark_pubrel(hs.ib, dev, 1, 1, 703));
    SL_TEST_OK(sl_inbox_count(hs.ib, dev, 704));
    harness_reopen(&hs);
    assert_int_not_equal(harness_position(&hs, SL_INBOX_OP_ADD, 701), SIZE_MAX);
    bool is_durable_later = harness_position(&hs, SL_INBOX_OP_ADD_DURABLE, 701) != SIZE_MAX;
    assert_int_equal(is_durable_later, !the_factory->is_durable_at_once);
    assert_int_not_equal(harness_position(&hs, SL_INBOX_OP_READ, 702), SIZE_MAX);
    assert_int_not_equal(harness_position(&hs, SL_INBOX_OP_MARK_PUBREL, 703), SIZE_MAX);
    assert_int_not_equal(harness_position(&hs, SL_INBOX_OP_COUNT, 704), SIZE_MAX);
    assert_int_equal(hs.count, is_durable_later ? 5 : 4);
    const sl_inbox_done *read = harness_read(&hs, "dev", 1, 0, 10, 1000);
    assert_int_equal(read->entry_count, 1);
    assert_int_equal(read->entries[0].kind, SL_INBOX_PUBREL);
    harness_close(&hs);
}

/* ---- random operations against a plain array ------------------------------------------------- */

enum { MODEL_CLIENTS = 5, MODEL_ROWS = 64, MODEL_LIMIT = 12 };

typedef struct model_row {
    uint16_t packet_id;
    uint64_t number;
    bool is_pubrel;
    uint32_t body;
} model_row;

typedef struct model_box {
    char name[8];
    model_row rows[MODEL_ROWS];
    size_t count;
    uint64_t generation;
    uint64_t last_source;
    uint64_t last_row;
} model_box;

static uint64_t next_random(uint64_t *rnd)
{
    *rnd ^= *rnd << 13;
    *rnd ^= *rnd >> 7;
    *rnd ^= *rnd << 17;
    return *rnd;
}

static void drop_row(model_box *mb, size_t at)
{
    memmove(&mb->rows[at], &mb->rows[at + 1], (--mb->count - at) * sizeof(mb->rows[0]));
}

static void model_add(inbox_harness *hs, model_box *mb, uint64_t *rnd)
{
    size_t count = 1 + next_random(rnd) % 8;
    sl_inbox_row rows[8];
    char bodies[8][16];
    for (size_t i = 0; i < count; i++) {
        /* Sources mostly go on, sometimes back: replays. */
        uint64_t offset = mb->last_source + 4 * i + next_random(rnd) % 8;
        offset = offset > 3 ? offset - 3 : 1;
        snprintf(bodies[i], sizeof(bodies[i]), "%u", (unsigned)offset);
        rows[i] = harness_row(offset, 1 + (uint8_t)(next_random(rnd) % 2), bodies[i]);
    }
    const sl_inbox_done *done = harness_add(hs, mb->name, mb->generation, rows, count, MODEL_LIMIT);
    SL_TEST_OK(done->err);
    for (size_t i = 0; i < count; i++) {
        bool is_new = rows[i].source_offset > mb->last_source;
        assert_int_equal(done->assigned[i].row != 0, is_new);
        if (!is_new)
            continue;
        mb->last_source = rows[i].source_offset;
        assert_true(done->assigned[i].row > mb->last_row);
        mb->last_row = done->assigned[i].row;
        for (size_t k = 0; k < mb->count; k++)
            assert_int_not_equal(mb->rows[k].packet_id, done->assigned[i].packet_id);
        mb->rows[mb->count++] = (model_row){.packet_id = done->assigned[i].packet_id,
                                            .number = done->assigned[i].row,
                                            .body = (uint32_t)rows[i].source_offset};
    }
    size_t evicted = 0;
    for (; mb->count > MODEL_LIMIT; evicted++)
        drop_row(mb, 0);
    assert_int_equal(done->evicted, evicted);
}

static void model_check(inbox_harness *hs, const model_box *mb)
{
    const sl_inbox_done *read = harness_read(hs, mb->name, mb->generation, 0, 1000, 100000);
    SL_TEST_OK(read->err);
    assert_int_equal(read->entry_count, mb->count);
    assert_int_equal(read->count, mb->count);
    for (size_t i = 0; i < mb->count; i++) {
        char body[16];
        snprintf(body, sizeof(body), "%u", (unsigned)mb->rows[i].body);
        const sl_inbox_entry *entry = &read->entries[i];
        assert_int_equal(entry->row, mb->rows[i].number);
        assert_int_equal(entry->packet_id, mb->rows[i].packet_id);
        assert_int_equal(entry->kind, mb->rows[i].is_pubrel ? SL_INBOX_PUBREL : SL_INBOX_PUBLISH);
        if (mb->rows[i].is_pubrel)
            continue;
        assert_int_equal(entry->packet.len, strlen(body));
        assert_memory_equal(entry->packet.ptr, body, strlen(body));
    }
}

static void model_step(inbox_harness *hs, model_box *mb, uint64_t *rnd)
{
    uint64_t dice = next_random(rnd) % 100;
    size_t at = mb->count > 0 ? next_random(rnd) % mb->count : 0;
    if (dice < 40) {
        model_add(hs, mb, rnd);
    } else if (dice < 75 && mb->count > 0) {
        at = dice < 60 ? 0 : at;
        SL_TEST_OK(harness_remove(hs, mb->name, mb->generation, mb->rows[at].packet_id));
        drop_row(mb, at);
    } else if (dice < 85 && mb->count > 0) {
        SL_TEST_OK(harness_mark(hs, mb->name, mb->generation, mb->rows[at].packet_id));
        mb->rows[at].is_pubrel = true;
    } else if (dice < 87) {
        SL_TEST_OK(harness_clear(hs, mb->name, ++mb->generation));
        mb->count = 0;
        mb->last_source = 0;
    } else {
        model_check(hs, mb);
    }
}

static void test_random_operations_agree_with_a_model(void **state)
{
    (void)state;
    inbox_harness hs;
    harness_open(&hs, the_factory, 2); /* boxes come and go */
    model_box boxes[MODEL_CLIENTS];
    memset(boxes, 0, sizeof(boxes));
    for (size_t i = 0; i < MODEL_CLIENTS; i++) {
        snprintf(boxes[i].name, sizeof(boxes[i].name), "dev%zu", i);
        boxes[i].generation = 1;
    }
    uint64_t rnd = UINT64_C(0x9e3779b97f4a7c15);
    for (unsigned step = 0; step < 1500; step++) {
        model_step(&hs, &boxes[next_random(&rnd) % MODEL_CLIENTS], &rnd);
        if (step % 250 == 249)
            harness_reopen(&hs);
    }
    for (size_t i = 0; i < MODEL_CLIENTS; i++)
        model_check(&hs, &boxes[i]);
    harness_close(&hs);
}

int inbox_contract_run(const inbox_factory *factory)
{
    the_factory = factory;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_add_then_read_gives_rows_in_order),
        cmocka_unit_test(test_add_drops_replays_by_partition_and_origin),
        cmocka_unit_test(test_generations_older_is_dropped_newer_empties),
        cmocka_unit_test(test_add_at_the_limit_evicts_the_oldest),
        cmocka_unit_test(test_add_of_qos2_completes_again_when_durable),
        cmocka_unit_test(test_remove_takes_one_row_once),
        cmocka_unit_test(test_remove_takes_many_ids_at_once),
        cmocka_unit_test(test_mark_pubrel_keeps_place_and_outlives_the_message),
        cmocka_unit_test(test_read_removes_expired_rows_whatever_their_number),
        cmocka_unit_test(test_read_goes_on_behind_a_row),
        cmocka_unit_test(test_clear_empties_for_a_generation_or_for_good),
        cmocka_unit_test(test_odd_client_ids_are_never_mixed),
        cmocka_unit_test(test_bad_arguments_are_refused),
        cmocka_unit_test(test_a_second_add_waits_for_the_first),
        cmocka_unit_test(test_a_read_never_shares_rows_with_a_later_completion),
        cmocka_unit_test(test_packet_ids_wrap_and_skip_what_is_in_the_box),
        cmocka_unit_test(test_close_completes_what_is_open),
        cmocka_unit_test(test_random_operations_agree_with_a_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
