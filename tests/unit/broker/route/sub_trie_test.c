/* SPDX-License-Identifier: Apache-2.0
 *
 * sub_trie: rules of matching, replacement, limits and pruning; then random filters and topics
 * against a naive model that asks mqtt/topic.h filter by filter.
 */
#include "route/sub_trie.h"

#include <stdio.h>

#include "sl_test.h"

#include "base/alloc.h"
#include "mqtt/topic.h"

typedef struct fixture {
    sl_rcu *rcu;
    sl_rcu_reader *rd;
    sl_sub_trie *trie;
    sl_sub_matches mt;
} fixture;

static void open_fixture(fixture *fx, size_t max)
{
    *fx = (fixture){.rcu = sl_rcu_new()};
    fx->rd = sl_rcu_register(fx->rcu);
    fx->trie = sl_sub_trie_new(fx->rcu, max);
}

static void close_fixture(fixture *fx)
{
    sl_sub_matches_fini(&fx->mt);
    sl_sub_trie_free(&fx->trie);
    assert_null(fx->trie);
    sl_rcu_unregister(&fx->rd);
    sl_rcu_free(&fx->rcu);
}

static sl_slice text(const char *str)
{
    return sl_slice_str(str);
}

static void put(fixture *fx, const char *filter, uint32_t client)
{
    sl_sub sub = {.client = client, .qos = 1};
    SL_TEST_OK(sl_sub_trie_put(fx->trie, text(filter), &sub, NULL, NULL));
}

static size_t match(fixture *fx, sl_slice topic)
{
    sl_rcu_read_lock(fx->rd);
    sl_sub_trie_match(fx->trie, topic, &fx->mt);
    sl_rcu_read_unlock(fx->rd);
    return fx->mt.count;
}

static void test_match_follows_the_rules(void **state)
{
    (void)state;
    static const struct {
        const char *filter, *topic;
        bool matches;
    } rows[] = {
        {"a", "a", true},
        {"a", "A", false},
        {"a", "a/", false},
        {"a/b", "a", false},
        {"a", "a/b", false},
        {"a/#", "a", true},
        {"a/#", "a/b/c", true},
        {"a/#", "ab", false},
        {"#", "a/b", true},
        {"#", "/", true},
        {"#", "$SYS/x", false},
        {"#", "$", false},
        {"+/x", "$SYS/x", false},
        {"+/+/#", "$SYS/x", false},
        {"+/#", "a", true},
        {"$SYS/#", "$SYS", true},
        {"$SYS/#", "$SYS/x", true},
        {"$SYS/+", "$SYS/x", true},
        {"a/+", "a/$x", true},
        {"a/#", "a/$x/y", true},
        {"+", "a", true},
        {"+", "/", false},
        {"+/+", "/", true},
        {"/+", "/", true},
        {"/+", "/a", true},
        {"/#", "/", true},
        {"/#", "a", false},
        {"a/+/c", "a/b/c", true},
        {"a/+/c", "a//c", true},
        {"a/+/c", "a/b/d", false},
        {"a/+/#", "a/b", true},
        {"a/+/#", "a", false},
        {"a//b", "a//b", true},
        {"a//b", "a/b", false},
        {"//", "//", true},
        {"\xc3\xa9/+", "\xc3\xa9/\xf0\x9f\x98\x80", true},
        {"\xc3\xa9", "e\xcc\x81", false},
        {"+", "+", true}, /* not a valid topic name; it must do no harm */
        {"a/b", "a/+", false},
        {"a/b", "a/#", false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        fixture fx;
        open_fixture(&fx, 10);
        put(&fx, rows[i].filter, 7);
        size_t count = match(&fx, text(rows[i].topic));
        if (count != (rows[i].matches ? 1u : 0u))
            fail_msg("%s against %s: %zu", rows[i].filter, rows[i].topic, count);
        close_fixture(&fx);
    }
}

static void test_match_of_an_empty_topic_is_empty(void **state)
{
    (void)state;
    fixture fx;
    open_fixture(&fx, 10);
    put(&fx, "#", 1);
    put(&fx, "+", 2);
    assert_int_equal(match(&fx, (sl_slice){0}), 0);
    close_fixture(&fx);
}

static void test_match_finds_every_branch_once(void **state)
{
    (void)state;
    static const char *const filters[] = {"a/b/c", "a/b/+", "a/+/c", "a/+/+",  "+/b/c",
                                          "+/b/+", "+/+/c", "+/+/+", "#",      "a/#",
                                          "+/#",   "a/b/#", "+/+/#", "a/b/c/#"};
    fixture fx;
    open_fixture(&fx, 100);
    for (uint32_t i = 0; i < 14; i++)
        put(&fx, filters[i], i);
    put(&fx, "a/b", 50);
    put(&fx, "a/b/c/d", 51);
    put(&fx, "+/x/c", 52);
    assert_int_equal(match(&fx, text("a/b/c")), 14);
    assert_int_equal(fx.mt.lists, 14);
    uint32_t seen = 0;
    for (size_t i = 0; i < fx.mt.count; i++)
        seen |= 1u << fx.mt.items[i].client;
    assert_int_equal(seen, (1u << 14) - 1);
    close_fixture(&fx);
}

static void test_put_replaces_options_and_keeps_the_stamp(void **state)
{
    (void)state;
    fixture fx;
    open_fixture(&fx, 1);
    sl_sub first = {.client = 4, .sub_id = 1, .stamp = 100, .qos = 0, .flags = SL_SUB_NO_LOCAL};
    sl_sub second = {.client = 4, .sub_id = 2, .stamp = 200, .qos = 2};
    sl_sub old = {0};
    bool existed = true;
    SL_TEST_OK(sl_sub_trie_put(fx.trie, text("a/b"), &first, &existed, &old));
    assert_false(existed);
    SL_TEST_OK(sl_sub_trie_put(fx.trie, text("a/b"), &second, &existed, &old));
    assert_true(existed);
    assert_true(old.client == 4 && old.sub_id == 1 && old.stamp == 100);
    assert_true(old.qos == 0 && old.flags == SL_SUB_NO_LOCAL);
    sl_sub now;
    assert_true(sl_sub_trie_get(fx.trie, text("a/b"), 4, &now));
    assert_int_equal(now.sub_id, 2);
    assert_int_equal(now.qos, 2);
    assert_int_equal(now.flags, 0);
    assert_int_equal(now.stamp, 100);
    assert_int_equal(sl_sub_trie_count(fx.trie).subscriptions, 1);
    /* Removed and put again, it is a new subscription. */
    assert_true(sl_sub_trie_remove(fx.trie, text("a/b"), 4, &old));
    assert_int_equal(old.stamp, 100);
    SL_TEST_OK(sl_sub_trie_put(fx.trie, text("a/b"), &second, &existed, NULL));
    assert_false(existed);
    assert_true(sl_sub_trie_get(fx.trie, text("a/b"), 4, &now));
    assert_int_equal(now.stamp, 200);
    close_fixture(&fx);
}

static void test_put_refuses_bad_filters_and_stops_at_the_limit(void **state)
{
    (void)state;
    fixture fx;
    open_fixture(&fx, 2);
    sl_sub sub = {.client = 1};
    static const char *const bad[] = {"", "a/#/b", "a#", "a/b+", "+a", "##", "a/++/b"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        SL_TEST_ERR(sl_sub_trie_put(fx.trie, text(bad[i]), &sub, NULL, NULL), SL_EINVAL);
        assert_false(sl_sub_trie_remove(fx.trie, text(bad[i]), 1, NULL));
        assert_false(sl_sub_trie_get(fx.trie, text(bad[i]), 1, NULL));
    }
    uint8_t *deep = sl_alloc(SL_SUB_TRIE_MAX_FILTER_BYTES + 1);
    memset(deep, '/', SL_SUB_TRIE_MAX_FILTER_BYTES + 1);
    sl_slice too_long = {deep, SL_SUB_TRIE_MAX_FILTER_BYTES + 1};
    SL_TEST_ERR(sl_sub_trie_put(fx.trie, too_long, &sub, NULL, NULL), SL_EINVAL);
    put(&fx, "a", 1);
    put(&fx, "b", 1);
    SL_TEST_ERR(sl_sub_trie_put(fx.trie, text("c/d"), &sub, NULL, NULL), SL_ELIMIT);
    put(&fx, "b", 1); /* replacing needs no room */
    assert_int_equal(sl_sub_trie_count(fx.trie).nodes, 2);
    /* One filter of 65 536 levels fits, a second does not. */
    assert_true(sl_sub_trie_remove(fx.trie, text("a"), 1, NULL));
    assert_true(sl_sub_trie_remove(fx.trie, text("b"), 1, NULL));
    sl_slice longest = {deep, SL_SUB_TRIE_MAX_FILTER_BYTES};
    SL_TEST_OK(sl_sub_trie_put(fx.trie, longest, &sub, NULL, NULL));
    assert_int_equal(sl_sub_trie_count(fx.trie).nodes, 65536);
    assert_int_equal(match(&fx, longest), 1);
    deep[0] = 'x';
    SL_TEST_ERR(sl_sub_trie_put(fx.trie, longest, &sub, NULL, NULL), SL_ELIMIT);
    assert_int_equal(sl_sub_trie_count(fx.trie).nodes, 65536);
    deep[0] = '/';
    assert_true(sl_sub_trie_remove(fx.trie, longest, 1, NULL));
    assert_int_equal(sl_sub_trie_count(fx.trie).nodes, 0);
    sl_free(deep);
    close_fixture(&fx);
}

static void test_match_of_a_deep_topic_with_plus_everywhere_returns(void **state)
{
    (void)state;
    fixture fx;
    open_fixture(&fx, 200);
    char filter[512] = "";
    for (size_t i = 0; i < 100; i++) {
        filter[i * 2] = '+';
        filter[i * 2 + 1] = '\0';
        put(&fx, filter, 1);
        filter[i * 2 + 1] = '/';
        filter[i * 2 + 2] = '\0';
    }
    uint8_t *deep = sl_alloc(65535);
    memset(deep, '/', 65535);
    assert_int_equal(match(&fx, sl_slice_of(deep, 65535)), 0);
    assert_int_equal(match(&fx, sl_slice_of(deep, 99)), 1);
    sl_free(deep);
    close_fixture(&fx);
}

static void test_long_levels_are_compared_whole(void **state)
{
    (void)state;
    fixture fx;
    open_fixture(&fx, 300);
    char filter[128];
    for (unsigned len = 1; len <= 100; len++) {
        memset(filter, 'x', len);
        filter[len] = '\0';
        put(&fx, filter, len);
        filter[len - 1] = 'y';
        put(&fx, filter, 1000 + len);
    }
    for (unsigned len = 1; len <= 100; len++) {
        memset(filter, 'x', len);
        assert_int_equal(match(&fx, sl_slice_of(filter, len)), 1);
        assert_int_equal(fx.mt.items[0].client, len);
        filter[len] = '\0';
        assert_true(sl_sub_trie_remove(fx.trie, sl_slice_of(filter, len), len, NULL));
    }
    assert_int_equal(sl_sub_trie_count(fx.trie).nodes, 100);
    close_fixture(&fx);
}

static uint64_t next_random(uint64_t *rnd)
{
    *rnd ^= *rnd << 13;
    *rnd ^= *rnd >> 7;
    *rnd ^= *rnd << 17;
    return *rnd;
}

/* Many subscribers of one filter: put in order, then at random, removed at random; the directory
 * of chunks must hold exactly what a plain array says. */
static void many_subscribers(bool in_order)
{
    enum { CLIENTS = 5000 };
    fixture fx;
    open_fixture(&fx, CLIENTS);
    bool *there = sl_calloc(CLIENTS, sizeof(*there));
    uint64_t rnd = 99;
    size_t count = 0;
    for (uint32_t i = 0; in_order && i < CLIENTS; i++, count++) {
        put(&fx, "all", i);
        there[i] = true;
    }
    for (unsigned step = 0; step < 60000; step++) {
        uint32_t client = (uint32_t)(next_random(&rnd) % CLIENTS);
        /* Waves: mostly adding, then mostly removing, down to nothing. */
        bool add = next_random(&rnd) % 100 < (step / 15000 % 2 == 0 ? 80u : 5u);
        if (add) {
            put(&fx, "all", client);
            count += !there[client];
            there[client] = true;
        } else {
            assert_int_equal(sl_sub_trie_remove(fx.trie, text("all"), client, NULL), there[client]);
            count -= there[client];
            there[client] = false;
        }
        if (step % 3000 != 0)
            continue;
        assert_int_equal(match(&fx, text("all")), count);
        assert_int_equal(fx.mt.lists, count > 0);
        size_t at = 0;
        for (uint32_t i = 0; i < CLIENTS; i++)
            if (there[i])
                assert_int_equal(fx.mt.items[at++].client, i);
    }
    for (uint32_t i = 0; i < CLIENTS; i++)
        assert_int_equal(sl_sub_trie_remove(fx.trie, text("all"), i, NULL), there[i]);
    assert_int_equal(sl_sub_trie_count(fx.trie).nodes, 0);
    sl_free(there);
    close_fixture(&fx);
}

static void test_many_subscribers_of_one_filter(void **state)
{
    (void)state;
    many_subscribers(true);
    many_subscribers(false);
}

static void test_memory_of_many_subscribers_stays_small(void **state)
{
    (void)state;
    fixture fx;
    open_fixture(&fx, 100000);
    size_t before = sl_sub_trie_count(fx.trie).bytes;
    for (uint32_t i = 0; i < 100000; i++)
        put(&fx, "all/of/them", i);
    size_t each = (sl_sub_trie_count(fx.trie).bytes - before) / 100000;
    assert_in_range(each, 16, 20);
    for (uint32_t i = 0; i < 100000; i++)
        assert_true(sl_sub_trie_remove(fx.trie, text("all/of/them"), i, NULL));
    /* Only the three free nodes are kept. */
    assert_int_equal(sl_sub_trie_count(fx.trie).bytes, before + 3 * 32);
    close_fixture(&fx);
}

/* ---- against the model --------------------------------------------------------------------- */

typedef struct model_sub {
    char filter[64];
    uint32_t client;
    bool there;
} model_sub;

static const char *const words[] = {"a",  "b", "c", "", "$a", "$", "\xc3\xa9", "\xf0\x9f\x98\x80",
                                    "aa", "A", " "};

static void random_path(uint64_t *rnd, bool is_filter, char out[64])
{
    size_t len = 0;
    unsigned levels = 1 + (unsigned)(next_random(rnd) % 5);
    for (unsigned i = 0; i < levels; i++) {
        uint64_t dice = next_random(rnd) % 10;
        const char *word = words[next_random(rnd) % (sizeof(words) / sizeof(words[0]))];
        if (is_filter && dice < 3)
            word = "+";
        if (is_filter && dice == 3 && i + 1 == levels)
            word = "#";
        len += (size_t)snprintf(out + len, 64 - len, "%s%s", i > 0 ? "/" : "", word);
    }
    if (len == 0)
        snprintf(out, 64, "/");
}

static void check_topic(fixture *fx, const model_sub *subs, size_t count, const char *topic)
{
    size_t want = 0;
    uint64_t want_sum = 0, got_sum = 0;
    for (size_t i = 0; i < count; i++)
        if (subs[i].there && sl_mqtt_filter_matches(text(subs[i].filter), text(topic))) {
            want++;
            want_sum += (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
        }
    size_t got = match(fx, text(topic));
    for (size_t i = 0; i < got; i++)
        got_sum += fx->mt.items[i].stamp * UINT64_C(0x9e3779b97f4a7c15);
    if (got != want || got_sum != want_sum)
        fail_msg("topic '%s': %zu matches, the model has %zu", topic, got, want);
}

static size_t find_sub(const model_sub *subs, size_t count, const char *filter, uint32_t client)
{
    for (size_t i = 0; i < count; i++)
        if (subs[i].client == client && strcmp(subs[i].filter, filter) == 0)
            return i;
    return count;
}

static void run_model(uint64_t seed)
{
    enum { MAX = 2000 };
    fixture fx;
    open_fixture(&fx, MAX);
    model_sub *subs = sl_calloc(MAX, sizeof(*subs));
    size_t count = 0, live = 0;
    uint64_t rnd = seed;
    char path[64];
    for (unsigned step = 0; step < 3000; step++) {
        bool adding = step < 2000 ? next_random(&rnd) % 4 != 0 : next_random(&rnd) % 4 == 0;
        if (adding && count < MAX) {
            random_path(&rnd, true, path);
            uint32_t client = (uint32_t)(next_random(&rnd) % 20);
            size_t at = find_sub(subs, count, path, client);
            if (at == count)
                count++;
            /* The stamp is the model's index, so that it is right in both cases of "existed". */
            sl_sub sub = {.client = client, .stamp = (uint32_t)at + 1, .qos = 1};
            bool existed;
            SL_TEST_OK(sl_sub_trie_put(fx.trie, text(path), &sub, &existed, NULL));
            assert_int_equal(existed, subs[at].there);
            live += !existed;
            snprintf(subs[at].filter, sizeof(subs[at].filter), "%s", path);
            subs[at].client = client;
            subs[at].there = true;
        } else if (count > 0) {
            size_t at = next_random(&rnd) % count;
            bool removed =
                sl_sub_trie_remove(fx.trie, text(subs[at].filter), subs[at].client, NULL);
            assert_int_equal(removed, subs[at].there);
            live -= removed;
            subs[at].there = false;
        }
        random_path(&rnd, false, path);
        check_topic(&fx, subs, count, path);
        assert_int_equal(sl_sub_trie_count(fx.trie).subscriptions, live);
    }
    for (size_t i = 0; i < count; i++)
        assert_int_equal(sl_sub_trie_remove(fx.trie, text(subs[i].filter), subs[i].client, NULL),
                         subs[i].there);
    assert_int_equal(sl_sub_trie_count(fx.trie).nodes, 0);
    assert_int_equal(sl_sub_trie_count(fx.trie).subscriptions, 0);
    sl_free(subs);
    close_fixture(&fx);
}

static void test_trie_agrees_with_the_model_on_random_input(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++)
        run_model(seed * UINT64_C(0x2545f4914f6cdd1d));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_match_follows_the_rules),
        cmocka_unit_test(test_match_of_an_empty_topic_is_empty),
        cmocka_unit_test(test_match_finds_every_branch_once),
        cmocka_unit_test(test_put_replaces_options_and_keeps_the_stamp),
        cmocka_unit_test(test_put_refuses_bad_filters_and_stops_at_the_limit),
        cmocka_unit_test(test_match_of_a_deep_topic_with_plus_everywhere_returns),
        cmocka_unit_test(test_long_levels_are_compared_whole),
        cmocka_unit_test(test_many_subscribers_of_one_filter),
        cmocka_unit_test(test_memory_of_many_subscribers_stays_small),
        cmocka_unit_test(test_trie_agrees_with_the_model_on_random_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
