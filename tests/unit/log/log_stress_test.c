/* SPDX-License-Identifier: Apache-2.0
 *
 * log_stress_test: producers, consumers, a deriver, group changes, retention and topic life at the
 * same time; every record has to arrive once and in order. Made for ThreadSanitizer (label
 * threads), of use without it.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "log/elog_fn.h"
#include "log_fixture.h"
#include "sl_test.h"

#define PRODUCERS  3
#define PARTITIONS 12
#define PER_PART   1000 /* records of one producer in one partition */

typedef struct stress {
    log_fx fx;
    sl_log_topic *topic;
    sl_log_topic *derived;
    sl_log_topic *rows;
    atomic_uint consumed; /* by the group */
    atomic_uint derived_seen;
    atomic_bool stop;
    atomic_uint faults;
    pthread_mutex_t lock;               /* guards last: a partition changes hands between members */
    int last[PARTITIONS][PRODUCERS][2]; /* by stage of the record */
} stress;

static void count_done(void *arg, const sl_log_done *dones, size_t count)
{
    size_t *open = arg;
    for (size_t i = 0; i < count; i++)
        if (dones[i].err != SL_OK)
            abort();
    *open -= count;
}

typedef struct record_value {
    uint32_t producer;
    uint32_t number;
    char filler[64];
} record_value;

typedef struct producer_arg {
    stress *st;
    uint32_t id;
} producer_arg;

/* Keys that come and go in a compacted topic, now and then. */
static void write_row(stress *st, sl_log_producer *pr, uint32_t number, size_t *open)
{
    uint32_t key = number % 37;
    const sl_log_record_in in = {.key = sl_slice_of(&key, sizeof key),
                                 .value = {sl_slice_of(&number, number % 5 == 0 ? 0 : 4)}};
    if (number % 8 == 0 && sl_log_append(pr, st->rows, 0, &in, 1) == SL_OK)
        (*open)++;
}

static void *produce(void *arg)
{
    producer_arg *pa = arg;
    size_t open = 0;
    sl_log_producer *pr = NULL;
    const sl_log_producer_options po = {.done = count_done, .arg = &open};
    if (sl_log_producer_open(pa->st->fx.log, &po, &pr) != SL_OK)
        abort();
    for (uint32_t i = 0; i < PER_PART * PARTITIONS;) {
        record_value value = {.producer = pa->id, .number = i / PARTITIONS};
        const sl_log_record_in in = {.value = {sl_slice_of(&value, sizeof value)},
                                     .flags = value.number % 3 == 0 ? SL_LOG_VOLATILE : 0};
        sl_err err = sl_log_append(pr, pa->st->topic, (int)(i % PARTITIONS), &in, i);
        if (err == SL_OK) {
            open++;
            i++;
            write_row(pa->st, pr, i, &open);
        } else if (err != SL_EAGAIN) {
            abort();
        }
        if (err == SL_EAGAIN || open > 500)
            sl_log_producer_drain(pr);
        if (err == SL_EAGAIN || open > 2000)
            usleep(100);
    }
    sl_log_producer_close(&pr);
    if (open != 0)
        atomic_fetch_add(&pa->st->faults, 1);
    return NULL;
}

static void check_record(stress *st, const sl_log_batch *batch, const sl_log_record *rec)
{
    record_value value;
    memcpy(&value, rec->value.ptr, sizeof value);
    unsigned kind = (rec->flags & SL_LOG_VOLATILE) != 0;
    pthread_mutex_lock(&st->lock);
    int *last = &st->last[batch->partition][value.producer][kind];
    // A partition's records of one durability come in order; a new owner may see some again.
    if ((int)value.number > *last) {
        atomic_fetch_add(&st->consumed, 1);
        // Every third is volatile: the next of a kind is three on, or one or two.
        if (*last >= 0 && (int)value.number - *last > (kind == 1 ? 3 : 2))
            atomic_fetch_add(&st->faults, 1);
        *last = (int)value.number;
    }
    pthread_mutex_unlock(&st->lock);
}

static void consume_turn(stress *st, sl_log_consumer *co, sl_log_producer *pr, size_t *open)
{
    sl_log_batch batches[4];
    size_t count = 0;
    if (sl_log_consumer_poll(co, batches, 4, 20, &count) != SL_OK)
        abort();
    for (size_t i = 0; i < count; i++) {
        sl_log_record rec;
        size_t pos = 0;
        while (sl_log_batch_next(&batches[i], &pos, &rec)) {
            if (!sl_log_in_stage(&rec, batches[i].stages))
                continue;
            check_record(st, &batches[i], &rec);
            const sl_log_record_in in = {.key = sl_slice_str("c")};
            sl_err err;
            while ((err = sl_log_append_derived(pr, st->derived, 0, st->topic, batches[i].partition,
                                                &rec, &in, 1)) == SL_EAGAIN)
                sl_log_producer_drain(pr);
            if (err != SL_OK)
                abort();
            (*open)++;
        }
        if ((batches[i].stages & SL_LOG_STAGE_DURABLE) != 0) {
            sl_err err =
                sl_log_consumer_commit(co, batches[i].topic, batches[i].partition, batches[i].next);
            if (err != SL_OK)
                abort();
        }
        sl_log_batch_release(&batches[i]);
    }
    sl_log_producer_drain(pr);
}

/* A member that leaves and comes back until all is consumed. */
static void *come_and_go(void *arg)
{
    stress *st = arg;
    while (!atomic_load(&st->stop)) {
        size_t open = 0;
        sl_log_producer *pr = NULL;
        const sl_log_producer_options po = {.done = count_done, .arg = &open};
        const sl_log_consumer_options options = {.group = "g", .both_stages = true};
        sl_log_consumer *co = NULL;
        if (sl_log_producer_open(st->fx.log, &po, &pr) != SL_OK ||
            sl_log_consumer_open(st->fx.log, &options, &co) != SL_OK ||
            sl_log_consumer_subscribe(co, st->topic, NULL, NULL) != SL_OK)
            abort();
        for (unsigned turn = 0; turn < 60 && !atomic_load(&st->stop); turn++)
            consume_turn(st, co, pr, &open);
        sl_log_consumer_close(&co);
        sl_log_producer_close(&pr);
    }
    return NULL;
}

static void *read_derived(void *arg)
{
    stress *st = arg;
    sl_log_consumer *co = NULL;
    const sl_log_consumer_options options = {.group = "d"};
    if (sl_log_consumer_open(st->fx.log, &options, &co) != SL_OK ||
        sl_log_consumer_assign(co, st->derived, 0, SL_LOG_COMMITTED) != SL_OK)
        abort();
    while (!atomic_load(&st->stop)) {
        sl_log_batch batches[4];
        size_t count = 0;
        if (sl_log_consumer_poll(co, batches, 4, 20, &count) != SL_OK)
            abort();
        for (size_t i = 0; i < count; i++) {
            sl_log_record rec;
            size_t pos = 0;
            while (sl_log_batch_next(&batches[i], &pos, &rec)) {
                if (rec.value.len != sizeof(record_value))
                    atomic_fetch_add(&st->faults, 1);
                atomic_fetch_add(&st->derived_seen, 1);
            }
            if (sl_log_consumer_commit(co, st->derived, 0, batches[i].next) != SL_OK)
                abort();
            sl_log_batch_release(&batches[i]);
        }
    }
    sl_log_consumer_close(&co);
    return NULL;
}

/* Falls off the ring all the time, so that snapshots and removals meet the writer. */
static void *read_rows(void *arg)
{
    stress *st = arg;
    sl_log_consumer *co = NULL;
    const sl_log_consumer_options options = {.max_batch_bytes = 4096};
    if (sl_log_consumer_open(st->fx.log, &options, &co) != SL_OK ||
        sl_log_consumer_assign(co, st->rows, 0, 0) != SL_OK)
        abort();
    while (!atomic_load(&st->stop)) {
        sl_log_batch batch;
        size_t count = 0;
        if (sl_log_consumer_poll(co, &batch, 1, 20, &count) != SL_OK)
            abort();
        if (count == 1)
            sl_log_batch_release(&batch);
        usleep(2000);
    }
    sl_log_consumer_close(&co);
    return NULL;
}

static void *keep_house(void *arg)
{
    stress *st = arg;
    for (unsigned i = 0; !atomic_load(&st->stop); i++) {
        char name[16];
        sl_log_topic *topic = NULL;
        snprintf(name, sizeof name, "temp-%u", i);
        const sl_log_topic_spec spec = {
            .name = name, .partitions = 1, .many = true, .retention_ms = -1, .retention_bytes = -1};
        elog_retention_run(elog_of(st->fx.log));
        if (sl_log_topic_open(st->fx.log, &spec, &topic) != SL_OK ||
            sl_log_group_set(st->fx.log, "x", topic, 0, 1) != SL_OK ||
            sl_log_topic_delete(st->fx.log, name) != SL_OK)
            abort();
        usleep(1000);
    }
    return NULL;
}

static void tweak(sl_log_options *options)
{
    options->ring_bytes = 256 << 10; // readers fall behind now and then
    options->queue_max_bytes = 256 << 10;
    options->derived_max_bytes = 256 << 10;
}

static void open_topics(stress *st)
{
    const sl_log_topic_spec spec = {.name = "t",
                                    .partitions = PARTITIONS,
                                    .durable = true,
                                    .retention_ms = -1,
                                    .retention_bytes = 64 << 10,
                                    .pinned_group = "g"};
    const sl_log_topic_spec derived = {.name = "d",
                                       .partitions = 1,
                                       .many = true,
                                       .retention_ms = -1,
                                       .retention_bytes = 64 << 10,
                                       .pinned_group = "d"};
    SL_TEST_OK(sl_log_topic_open(st->fx.log, &spec, &st->topic));
    SL_TEST_OK(sl_log_topic_open(st->fx.log, &derived, &st->derived));
    st->rows = log_fx_topic(&st->fx, "rows", 1, LOG_FX_COMPACTED);
}

static void test_log_all_at_once_gives_each_record_in_order(void **state)
{
    (void)state;
    stress *st = sl_calloc(1, sizeof *st);
    log_fx_init(&st->fx, &sl_log_embedded_ops, tweak);
    pthread_mutex_init(&st->lock, NULL);
    for (unsigned i = 0; i < PARTITIONS; i++)
        for (unsigned k = 0; k < PRODUCERS; k++)
            st->last[i][k][0] = st->last[i][k][1] = -1;
    open_topics(st);
    pthread_t producers[PRODUCERS], members[2], reader, rows, house;
    producer_arg args[PRODUCERS];
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&members[i], NULL, come_and_go, st), 0);
    assert_int_equal(pthread_create(&reader, NULL, read_derived, st), 0);
    assert_int_equal(pthread_create(&rows, NULL, read_rows, st), 0);
    assert_int_equal(pthread_create(&house, NULL, keep_house, st), 0);
    for (unsigned i = 0; i < PRODUCERS; i++) {
        args[i] = (producer_arg){st, i};
        assert_int_equal(pthread_create(&producers[i], NULL, produce, &args[i]), 0);
    }
    for (unsigned i = 0; i < PRODUCERS; i++)
        pthread_join(producers[i], NULL);
    const unsigned want = PRODUCERS * PARTITIONS * PER_PART;
    // The limit only ends a broken run.
    for (unsigned i = 0;
         i < 60000 && (atomic_load(&st->consumed) < want || atomic_load(&st->derived_seen) < want);
         i++)
        usleep(1000);
    atomic_store(&st->stop, true);
    for (unsigned i = 0; i < 2; i++)
        pthread_join(members[i], NULL);
    pthread_join(reader, NULL);
    pthread_join(rows, NULL);
    pthread_join(house, NULL);
    assert_int_equal(atomic_load(&st->consumed), want);
    assert_true(atomic_load(&st->derived_seen) >= want);
    assert_int_equal(atomic_load(&st->faults), 0);
    assert_int_equal(atomic_load(&elog_of(st->fx.log)->lost_sources), 0);
    log_fx_fini(&st->fx);
    pthread_mutex_destroy(&st->lock);
    sl_free(st);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log_all_at_once_gives_each_record_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
