/* SPDX-License-Identifier: Apache-2.0
 *
 * sub_trie: readers beside writers. Subscriptions that stay are found exactly once by every match,
 * whatever is added, split, pruned and rehashed around them; what comes and goes is found at most
 * once. Run under TSan it also proves the memory order (rcu.h).
 */
#include <stdio.h>

#include "sl_test.h"

#include "loop/pool.h"
#include "route/sub_trie.h"

enum { READERS = 2, WRITERS = 2, STAYING = 200, ROUNDS = 60, MIN_READS = 200 };

typedef struct world {
    sl_rcu *rcu;
    sl_sub_trie *trie;
    _Atomic bool stop;
    _Atomic unsigned bad;
    _Atomic unsigned reads;
    _Atomic uint32_t writers;
} world;

static const char *const topics[] = {"s/room/1/temp", "s/room/2/temp", "s", "s/room"};

/* Staying clients are the even numbers below 2 * STAYING, on filters that match all topics. */
static bool is_staying(uint32_t client)
{
    return client % 2 == 0 && client < 2 * STAYING;
}

static void check_match(world *wo, const sl_sub_matches *mt)
{
    unsigned staying = 0;
    for (size_t i = 0; i < mt->count; i++) {
        if (i > 0 && mt->items[i].client == mt->items[i - 1].client &&
            mt->items[i].stamp == mt->items[i - 1].stamp)
            atomic_fetch_add(&wo->bad, 1);
        staying += is_staying(mt->items[i].client);
    }
    if (staying != STAYING)
        atomic_fetch_add(&wo->bad, 1);
}

static void read_all(void *arg)
{
    world *wo = arg;
    sl_rcu_reader *rd = sl_rcu_register(wo->rcu);
    sl_sub_matches mt = {0};
    for (unsigned i = 0; !atomic_load(&wo->stop); i++) {
        const char *topic = topics[i % (sizeof(topics) / sizeof(topics[0]))];
        sl_rcu_read_lock(rd);
        sl_sub_trie_match(wo->trie, sl_slice_str(topic), &mt);
        sl_rcu_read_unlock(rd);
        sl_sub_matches_merge(&mt);
        check_match(wo, &mt);
        atomic_fetch_add(&wo->reads, 1);
    }
    sl_sub_matches_fini(&mt);
    sl_rcu_unregister(&rd);
}

/* Churn of one writer: odd clients on the same filters, and filters of its own beside them. */
static void churn(world *wo, uint32_t writer, uint32_t round, bool add)
{
    for (uint32_t i = 0; i < 150; i++) {
        char filter[64];
        uint32_t client = 1 + 2 * (i * WRITERS + writer);
        switch (i % 5) {
        case 0:
            snprintf(filter, sizeof(filter), "s/#");
            break;
        case 1:
            snprintf(filter, sizeof(filter), "s/room/%u/temp", round % 3);
            break;
        case 2:
            snprintf(filter, sizeof(filter), "s/+/%u/#", i);
            break;
        case 3:
            snprintf(filter, sizeof(filter), "+/room/w%u-%u/a-level-longer-than-a-node-holds-%u",
                     writer, i, round);
            break;
        default:
            snprintf(filter, sizeof(filter), "s/room/+/temp");
            break;
        }
        sl_sub sub = {.client = client, .stamp = i + 1, .qos = 1};
        if (add ? sl_sub_trie_put(wo->trie, sl_slice_str(filter), &sub, NULL, NULL) != SL_OK
                : !sl_sub_trie_remove(wo->trie, sl_slice_str(filter), client, NULL))
            atomic_fetch_add(&wo->bad, 1);
    }
}

static void write_all(void *arg)
{
    world *wo = arg;
    uint32_t writer = atomic_fetch_add(&wo->writers, 1);
    for (uint32_t round = 0; round < ROUNDS || atomic_load(&wo->reads) < MIN_READS; round++) {
        churn(wo, writer, round, true);
        churn(wo, writer, round, false);
    }
}

static void test_readers_find_what_stays_while_writers_churn(void **state)
{
    (void)state;
    world wo = {.rcu = sl_rcu_new()};
    wo.trie = sl_sub_trie_new(wo.rcu, 10000);
    for (uint32_t i = 0; i < STAYING; i++) {
        sl_sub sub = {.client = 2 * i, .qos = 1};
        SL_TEST_OK(sl_sub_trie_put(wo.trie, sl_slice_str(i % 2 ? "s/#" : "#"), &sub, NULL, NULL));
    }
    size_t nodes = sl_sub_trie_count(wo.trie).nodes;
    sl_thread *readers[READERS], *writers[WRITERS];
    for (unsigned i = 0; i < READERS; i++)
        SL_TEST_OK(sl_thread_start("reader", read_all, &wo, &readers[i]));
    for (unsigned i = 0; i < WRITERS; i++)
        SL_TEST_OK(sl_thread_start("writer", write_all, &wo, &writers[i]));
    for (unsigned i = 0; i < WRITERS; i++)
        sl_thread_join(&writers[i]);
    atomic_store(&wo.stop, true);
    for (unsigned i = 0; i < READERS; i++)
        sl_thread_join(&readers[i]);
    assert_int_equal(atomic_load(&wo.bad), 0);
    assert_int_equal(sl_sub_trie_count(wo.trie).subscriptions, STAYING);
    assert_int_equal(sl_sub_trie_count(wo.trie).nodes, nodes);
    sl_sub_trie_free(&wo.trie);
    sl_rcu_free(&wo.rcu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_readers_find_what_stays_while_writers_churn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
