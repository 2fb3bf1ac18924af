/* SPDX-License-Identifier: Apache-2.0
 *
 * trie_bench [subscriptions]: memory per subscription and time per match of the subscription trie,
 * on random filters of four levels: region/building/device/metric, 10 % with `+`, 2 % with `#`.
 * Prints figures and judges none; times are wall time of one thread.
 */
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "route/sub_trie.h"

static uint64_t rnd = 88172645463325252u;

static uint32_t dice(uint32_t sides)
{
    rnd ^= rnd << 13;
    rnd ^= rnd >> 7;
    rnd ^= rnd << 17;
    return (uint32_t)((rnd >> 32) * sides >> 32);
}

static int write_topic(char *out, size_t room, uint32_t device)
{
    uint32_t mixed = device * 2654435761u;
    return snprintf(out, room, "region-%u/building-%u/device-%u/metric-%u", mixed % 16,
                    (mixed >> 8) % 1000, device, mixed >> 29);
}

static int write_filter(char *out, size_t room, uint32_t device)
{
    uint32_t mixed = device * 2654435761u;
    uint32_t kind = dice(100);
    if (kind < 5)
        return snprintf(out, room, "region-%u/building-%u/device-%u/+", mixed % 16,
                        (mixed >> 8) % 1000, device);
    if (kind < 10)
        return snprintf(out, room, "+/building-%u/device-%u/metric-%u", (mixed >> 8) % 1000, device,
                        mixed >> 29);
    if (kind < 12)
        return snprintf(out, room, "region-%u/building-%u/device-%u/#", mixed % 16,
                        (mixed >> 8) % 1000, device);
    return write_topic(out, room, device);
}

static double seconds_since(const sl_clock *ck, uint64_t begin)
{
    return (double)(sl_clock_mono_ns(ck) - begin) / 1e9;
}

typedef struct bench {
    sl_clock ck;
    sl_rcu *rcu;
    sl_rcu_reader *rd;
    sl_sub_trie *trie;
    uint32_t subscriptions;
} bench;

static void fill(bench *be)
{
    char filter[128];
    size_t heap = mallinfo2().uordblks + mallinfo2().hblkhd;
    uint64_t begin = sl_clock_mono_ns(&be->ck);
    for (uint32_t i = 0; i < be->subscriptions; i++) {
        int len = write_filter(filter, sizeof(filter), i);
        sl_sub sub = {.client = i, .qos = 1};
        if (sl_sub_trie_put(be->trie, sl_slice_of(filter, (size_t)len), &sub, NULL, NULL) != SL_OK)
            abort();
    }
    double took = seconds_since(&be->ck, begin);
    sl_rcu_barrier(be->rcu);
    sl_sub_trie_counts counts = sl_sub_trie_count(be->trie);
    heap = mallinfo2().uordblks + mallinfo2().hblkhd - heap;
    printf("subscriptions=%zu nodes=%zu put_ns=%.0f bytes_per_subscription=%.1f "
           "heap_bytes_per_subscription=%.1f\n",
           counts.subscriptions, counts.nodes, took * 1e9 / be->subscriptions,
           (double)counts.bytes / be->subscriptions, (double)heap / be->subscriptions);
}

static void measure(bench *be, const char *name, uint32_t devices, uint32_t offset)
{
    enum { TOPICS = 1 << 18, ROUNDS = 4 };
    char(*topics)[64] = sl_calloc(TOPICS, sizeof(*topics));
    for (uint32_t i = 0; i < TOPICS; i++)
        write_topic(topics[i], sizeof(topics[i]), offset + dice(devices));
    sl_sub_matches mt = {0};
    uint64_t found = 0;
    uint64_t begin = sl_clock_mono_ns(&be->ck);
    for (unsigned round = 0; round < ROUNDS; round++)
        for (uint32_t i = 0; i < TOPICS; i++) {
            sl_rcu_read_lock(be->rd);
            sl_sub_trie_match(be->trie, sl_slice_str(topics[i]), &mt);
            sl_rcu_read_unlock(be->rd);
            found += mt.count;
        }
    double took = seconds_since(&be->ck, begin);
    printf("match=%s ns=%.0f found_per_match=%.2f\n", name, took * 1e9 / TOPICS / ROUNDS,
           (double)found / TOPICS / ROUNDS);
    sl_sub_matches_fini(&mt);
    sl_free(topics);
}

static void measure_fan_out(bench *be, uint32_t subscribers)
{
    sl_slice topic = sl_slice_str("all/of/them");
    uint64_t begin = sl_clock_mono_ns(&be->ck);
    for (uint32_t i = 0; i < subscribers; i++) {
        sl_sub sub = {.client = dice(UINT32_MAX), .qos = 1};
        if (sl_sub_trie_put(be->trie, topic, &sub, NULL, NULL) != SL_OK)
            abort();
    }
    double put = seconds_since(&be->ck, begin);
    sl_sub_matches mt = {0};
    begin = sl_clock_mono_ns(&be->ck);
    for (unsigned i = 0; i < 200; i++) {
        sl_rcu_read_lock(be->rd);
        sl_sub_trie_match(be->trie, topic, &mt);
        sl_rcu_read_unlock(be->rd);
        sl_sub_matches_merge(&mt);
    }
    double match = seconds_since(&be->ck, begin);
    printf("fan_out=%zu put_ns=%.0f match_ns_per_subscriber=%.2f\n", mt.count,
           put * 1e9 / subscribers, match * 1e9 / 200 / (double)mt.count);
    sl_sub_matches_fini(&mt);
}

int main(int argc, char **argv)
{
    bench be = {.subscriptions = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 1000000};
    if (be.subscriptions == 0) {
        fprintf(stderr, "usage: trie_bench [subscriptions > 0]\n");
        return 2;
    }
    sl_clock_init(&be.ck);
    be.rcu = sl_rcu_new();
    be.rd = sl_rcu_register(be.rcu);
    be.trie = sl_sub_trie_new(be.rcu, (size_t)be.subscriptions + 200000);
    fill(&be);
    measure(&be, "any-of-all", be.subscriptions, 0);
    measure(&be, "thousand-hot", be.subscriptions < 1000 ? be.subscriptions : 1000, 0);
    measure(&be, "none", be.subscriptions, be.subscriptions);
    measure_fan_out(&be, 100000);
    sl_sub_trie_free(&be.trie);
    sl_rcu_unregister(&be.rd);
    sl_rcu_free(&be.rcu);
    return 0;
}
