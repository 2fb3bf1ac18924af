/* SPDX-License-Identifier: Apache-2.0
 *
 * What the Redis inbox does beyond the port's contract, against a server of its own: what stands in
 * the keys, offsets behind operations, the bound of its queue, boxes that somebody else damaged.
 */
#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "inbox_redis_store.h"

#include "base/alloc.h"
#include "store/inbox_redis.h"

static redisContext *side; /* the test's own connection */

static long long ask_number(const char *format, const char *key)
{
    char text[256];
    snprintf(text, sizeof(text), format, key);
    redisReply *reply = redisCommand(side, text);
    assert_non_null(reply);
    if (reply->type == REDIS_REPLY_ERROR)
        fail_msg("%s: %s", text, reply->str);
    long long value =
        reply->type == REDIS_REPLY_STRING ? strtoll(reply->str, NULL, 10) : reply->integer;
    freeReplyObject(reply);
    return value;
}

/* The prefix of the latest store. */
static const char *key_of(const inbox_harness *hs, const char *rest, char out[128])
{
    const sl_inbox_redis_options *ro = hs->factory->redis_of(hs->store);
    snprintf(out, 128, "%s%s", ro->prefix, rest);
    return out;
}

static void add(inbox_harness *hs, uint64_t offset)
{
    sl_inbox_row row = harness_row(offset, 1, "x");
    SL_TEST_OK(harness_add(hs, "dev", 1, &row, 1, 0)->err);
}

static void test_keys_hold_what_the_documents_say(void **state)
{
    (void)state;
    inbox_harness hs;
    char key[128];
    harness_open(&hs, &inbox_redis_factory, 10);
    sl_inbox_row rows[2] = {harness_row(7, 1, "one"), harness_row(8, 2, "two")};
    rows[1].expires_at_ms = HARNESS_NOW + 90000;
    harness_add(&hs, "dev", 5, rows, 2, 0);
    assert_int_equal(ask_number("ZCARD %s", key_of(&hs, "{dev}_messages", key)), 2);
    assert_int_equal(ask_number("GET %s", key_of(&hs, "{dev}_last_packet_id", key)), 2);
    assert_int_equal(ask_number("HGET %s generation", key_of(&hs, "{dev}_inbox", key)), 5);
    assert_int_equal(ask_number("HGET %s row", key), 2);
    assert_int_equal(ask_number("HGET %s s:0:0", key), 8); /* offset:row */
    assert_int_equal(ask_number("TTL %s", key), -1);
    long long ttl = ask_number("PTTL %s", key_of(&hs, "{dev}_messages_1", key));
    assert_true(ttl > HARNESS_TTL - 60000 && ttl <= HARNESS_TTL);
    ttl = ask_number("PTTL %s", key_of(&hs, "{dev}_messages_2", key));
    assert_true(ttl > 30000 && ttl <= 90000);
    /* A marker is in the place of the message, for the default time. */
    SL_TEST_OK(harness_mark(&hs, "dev", 5, 2));
    assert_int_equal(ask_number("STRLEN %s", key), 20);
    assert_true(ask_number("PTTL %s", key) > 90000);
    SL_TEST_OK(harness_clear(&hs, "dev", 0));
    assert_int_equal(ask_number("EXISTS %s", key), 0);
    assert_int_equal(ask_number("EXISTS %s", key_of(&hs, "{dev}_inbox", key)), 0);
    assert_int_equal(ask_number("EXISTS %s", key_of(&hs, "{dev}_last_packet_id", key)), 0);
    harness_close(&hs);
}

static void test_entries_without_a_body_are_repaired(void **state)
{
    (void)state;
    inbox_harness hs;
    char key[128];
    harness_open(&hs, &inbox_redis_factory, 10);
    for (uint64_t i = 1; i <= 5; i++)
        add(&hs, i);
    ask_number("DEL %s", key_of(&hs, "{dev}_messages_2", key));
    ask_number("APPEND %s ?", key_of(&hs, "{dev}_messages_3", key)); /* longer is still sound */
    ask_number("SETRANGE %s 0 Z", key_of(&hs, "{dev}_messages_4", key));
    const sl_inbox_done *read = harness_read(&hs, "dev", 1, 0, 10, 1000);
    assert_int_equal(read->entry_count, 3);
    assert_int_equal(read->repaired, 2);
    assert_int_equal(read->expired, 0);
    assert_int_equal(read->count, 3);
    SL_TEST_SLICE(read->entries[1].packet, "x?");
    assert_int_equal(ask_number("EXISTS %s", key), 0);
    /* An id whose body has gone can still be acknowledged and marked. */
    ask_number("DEL %s", key_of(&hs, "{dev}_messages_1", key));
    ask_number("DEL %s", key_of(&hs, "{dev}_messages_5", key));
    SL_TEST_OK(harness_mark(&hs, "dev", 1, 1));
    SL_TEST_OK(harness_remove(&hs, "dev", 1, 5));
    read = harness_read(&hs, "dev", 1, 0, 10, 1000);
    assert_int_equal(read->entry_count, 2);
    assert_int_equal(read->entries[0].kind, SL_INBOX_PUBREL);
    harness_close(&hs);
}

static void test_a_key_of_another_kind_is_an_error_and_clear_heals_it(void **state)
{
    (void)state;
    inbox_harness hs;
    char key[128];
    harness_open(&hs, &inbox_redis_factory, 10);
    ask_number("SADD %s x", key_of(&hs, "{dev}_messages", key));
    sl_inbox_row row = harness_row(1, 1, "x");
    SL_TEST_ERR(harness_add(&hs, "dev", 1, &row, 1, 0)->err, SL_ECORRUPT);
    SL_TEST_ERR(harness_read(&hs, "dev", 1, 0, 10, 100)->err, SL_ECORRUPT);
    SL_TEST_OK(harness_clear(&hs, "dev", 1));
    SL_TEST_OK(harness_add(&hs, "dev", 1, &row, 1, 0)->err);
    assert_int_equal(harness_count(&hs, "dev"), 1);
    ask_number("DEL %s", key_of(&hs, "{dev}_inbox", key));
    ask_number("SADD %s x", key);
    SL_TEST_ERR(harness_add(&hs, "dev", 1, &row, 1, 0)->err, SL_ECORRUPT);
    SL_TEST_OK(harness_clear(&hs, "dev", 2));
    SL_TEST_OK(harness_add(&hs, "dev", 2, &row, 1, 0)->err);
    assert_int_equal(harness_count(&hs, "dev"), 1);
    harness_close(&hs);
}

static void test_quiet_sources_are_forgotten_at_the_bound(void **state)
{
    (void)state;
    enum { SOURCES = 4096, STEP = 512 };
    inbox_harness hs;
    char key[128];
    harness_open(&hs, &inbox_redis_factory, 10);
    sl_inbox_row rows[STEP];
    for (unsigned from = 0; from < SOURCES; from += STEP) {
        for (unsigned i = 0; i < STEP; i++) {
            rows[i] = harness_row(9, 1, "x");
            rows[i].origin = 1000 + from + i;
        }
        SL_TEST_OK(harness_add(&hs, "dev", 1, rows, STEP, 10)->err);
    }
    assert_int_equal(ask_number("HLEN %s", key_of(&hs, "{dev}_inbox", key)), SOURCES + 2);
    rows[0] = harness_row(9, 1, "x");
    rows[0].origin = 7;
    SL_TEST_OK(harness_add(&hs, "dev", 1, rows, 1, 10)->err);
    assert_int_equal(ask_number("HLEN %s", key), SOURCES + 2 - SOURCES / 8);
    assert_int_equal(ask_number("HEXISTS %s s:1000:0", key), 0);
    assert_int_equal(ask_number("HEXISTS %s s:5095:0", key), 1);
    rows[0].origin = 5095;
    assert_int_equal(harness_add(&hs, "dev", 1, rows, 1, 10)->dropped, 1);
    harness_close(&hs);
}

/* ---- an inbox with a commit function --------------------------------------------------------- */

typedef struct owner {
    sl_inbox *ib;
    sl_clock clock;
    size_t done;
    sl_err err;
    uint64_t committed[8];
    size_t done_at[8]; /* completions when it was committed */
    size_t commits;
    unsigned rooms;
} owner;

static void on_done(void *arg, const sl_inbox_done *done)
{
    owner *ow = arg;
    ow->done++;
    ow->err = done->err;
}

static void on_room(void *arg)
{
    ((owner *)arg)->rooms++;
}

static sl_err on_commit(void *arg, sl_log_topic *topic, uint16_t partition, uint64_t offset)
{
    owner *ow = arg;
    assert_null(topic);
    assert_int_equal(partition, 3);
    assert_true(ow->commits < 8);
    ow->done_at[ow->commits] = ow->done;
    ow->committed[ow->commits++] = offset;
    return SL_OK;
}

static void open_owner(owner *ow, void **store, bool commits)
{
    *ow = (owner){0};
    sl_clock_init(&ow->clock);
    *store = inbox_redis_factory.new_store(&ow->clock);
    sl_inbox_options options = {.redis = inbox_redis_factory.redis_of(*store),
                                .clock = &ow->clock,
                                .default_ttl_ms = 60000,
                                .max_cached = 10,
                                .done = on_done,
                                .room = on_room,
                                .commit = commits ? on_commit : NULL,
                                .arg = ow};
    SL_TEST_OK(sl_inbox_open(&sl_inbox_redis_ops, &options, &ow->ib));
}

static void wait_done(owner *ow, size_t count)
{
    while (ow->done < count)
        (void)sl_inbox_drain(ow->ib);
}

static void test_offsets_are_committed_behind_operations(void **state)
{
    (void)state;
    owner ow;
    void *store;
    open_owner(&ow, &store, true);
    SL_TEST_OK(sl_inbox_commit_behind(ow.ib, "g", NULL, 3, 10)); /* nothing is open */
    assert_int_equal(ow.commits, 1);
    sl_inbox_row row = harness_row(1, 1, "x");
    SL_TEST_OK(sl_inbox_add(ow.ib, sl_slice_str("a"), 1, &row, 1, 0, 1));
    SL_TEST_OK(sl_inbox_add(ow.ib, sl_slice_str("b"), 1, &row, 1, 0, 2));
    SL_TEST_OK(sl_inbox_commit_behind(ow.ib, "g", NULL, 3, 20));
    SL_TEST_OK(sl_inbox_count(ow.ib, sl_slice_str("c"), 3));
    SL_TEST_OK(sl_inbox_commit_behind(ow.ib, "g", NULL, 3, 30));
    assert_int_equal(ow.commits, 1);
    wait_done(&ow, 3);
    assert_int_equal(ow.commits, 3);
    assert_int_equal(ow.committed[1], 20);
    assert_true(ow.done_at[1] >= 2);
    assert_int_equal(ow.committed[2], 30);
    assert_int_equal(ow.done_at[2], 3);
    sl_inbox_close(&ow.ib);
    inbox_redis_factory.free_store(store);
}

static void test_without_a_commit_function_there_are_no_offsets(void **state)
{
    (void)state;
    owner ow;
    void *store;
    open_owner(&ow, &store, false);
    SL_TEST_ERR(sl_inbox_commit_behind(ow.ib, "g", NULL, 3, 10), SL_EUNSUPPORTED);
    sl_inbox_close(&ow.ib);
    inbox_redis_factory.free_store(store);
}

static pid_t server_pid(void)
{
    redisReply *reply = redisCommand(side, "INFO server");
    const char *at = strstr(reply->str, "process_id:");
    assert_non_null(at);
    pid_t pid = (pid_t)strtol(at + 11, NULL, 10);
    freeReplyObject(reply);
    return pid;
}

/* While the server stands still the queue fills up to its bound; closing gives up what is left, and
 * no offset behind that is committed. */
static void test_the_queue_has_a_bound_and_closing_gives_up(void **state)
{
    (void)state;
    owner ow;
    void *store;
    open_owner(&ow, &store, true);
    SL_TEST_OK(sl_inbox_count(ow.ib, sl_slice_str("c"), 1));
    wait_done(&ow, 1);
    pid_t pid = server_pid();
    assert_int_equal(kill(pid, SIGSTOP), 0);
    size_t taken = 0;
    sl_err err;
    while ((err = sl_inbox_count(ow.ib, sl_slice_str("c"), 2)) == SL_OK)
        taken++;
    SL_TEST_ERR(err, SL_EAGAIN);
    assert_int_equal(taken, 65536);
    assert_int_equal(kill(pid, SIGCONT), 0);
    wait_done(&ow, 2);
    while (ow.rooms == 0)
        (void)sl_inbox_drain(ow.ib);
    wait_done(&ow, 1 + taken);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    SL_TEST_OK(sl_inbox_count(ow.ib, sl_slice_str("c"), 3));
    SL_TEST_OK(sl_inbox_commit_behind(ow.ib, "g", NULL, 3, 40));
    sl_inbox_close(&ow.ib); /* after the patience of a few seconds */
    assert_int_equal(kill(pid, SIGCONT), 0);
    assert_int_equal(ow.done, 2 + taken);
    SL_TEST_ERR(ow.err, SL_ECLOSED);
    assert_int_equal(ow.commits, 0);
    inbox_redis_factory.free_store(store);
}

/* Commands of many bytes: their sum is bounded too, but one larger operation is taken. */
static void test_bytes_of_the_queue_are_bounded(void **state)
{
    (void)state;
    enum { BIG = 40 << 20 };
    owner ow;
    void *store;
    open_owner(&ow, &store, true);
    uint8_t *packet = sl_calloc(1, BIG);
    sl_inbox_row row = harness_row(1, 1, "x");
    row.packet[0] = sl_slice_of(packet, BIG);
    pid_t pid = server_pid();
    assert_int_equal(kill(pid, SIGSTOP), 0);
    SL_TEST_OK(sl_inbox_add(ow.ib, sl_slice_str("a"), 1, &row, 1, 0, 1));
    SL_TEST_ERR(sl_inbox_add(ow.ib, sl_slice_str("a"), 1, &row, 1, 0, 2), SL_EAGAIN);
    SL_TEST_OK(sl_inbox_add(ow.ib, sl_slice_str("b"), 1, &row, 1, 0, 2));
    SL_TEST_ERR(sl_inbox_count(ow.ib, sl_slice_str("c"), 3), SL_EAGAIN);
    assert_int_equal(kill(pid, SIGCONT), 0);
    wait_done(&ow, 2);
    SL_TEST_OK(ow.err);
    assert_true(ow.rooms > 0);
    SL_TEST_OK(sl_inbox_read(ow.ib, sl_slice_str("a"), 1, 0, 10, 1000, 4));
    wait_done(&ow, 3);
    SL_TEST_OK(ow.err);
    sl_free(packet);
    sl_inbox_close(&ow.ib);
    inbox_redis_factory.free_store(store);
}

int main(void)
{
    side = redisConnect("127.0.0.1", (int)strtol(getenv("REDIS_PORT"), NULL, 10));
    redisReply *reply = redisCommand(side, "AUTH %s", getenv("REDIS_PASSWORD"));
    if (side->err != 0 || reply == NULL || reply->type == REDIS_REPLY_ERROR)
        return 1;
    freeReplyObject(reply);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys_hold_what_the_documents_say),
        cmocka_unit_test(test_entries_without_a_body_are_repaired),
        cmocka_unit_test(test_a_key_of_another_kind_is_an_error_and_clear_heals_it),
        cmocka_unit_test(test_quiet_sources_are_forgotten_at_the_bound),
        cmocka_unit_test(test_offsets_are_committed_behind_operations),
        cmocka_unit_test(test_without_a_commit_function_there_are_no_offsets),
        cmocka_unit_test(test_the_queue_has_a_bound_and_closing_gives_up),
        cmocka_unit_test(test_bytes_of_the_queue_are_bounded),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    redisFree(side);
    return failed;
}
