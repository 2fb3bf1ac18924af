/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox_harness: see inbox_harness.h.
 */
#include "inbox_harness.h"

#include <time.h>

#include "base/alloc.h"

#define WAIT_S 20

static void on_wake(void *arg)
{
    inbox_harness *hs = arg;
    pthread_mutex_lock(&hs->lock);
    hs->woken = true;
    pthread_cond_signal(&hs->cond);
    pthread_mutex_unlock(&hs->lock);
}

static void on_room(void *arg)
{
    ((inbox_harness *)arg)->rooms++;
}

static void copy_entries(sl_inbox_done *done)
{
    size_t count = done->entry_count;
    sl_inbox_entry *copy = sl_calloc(count + 1, sizeof(*copy));
    for (size_t i = 0; i < count; i++) {
        copy[i] = done->entries[i];
        if (copy[i].packet.len > 0)
            copy[i].packet.ptr = (uint8_t *)sl_strndup(copy[i].packet.ptr, copy[i].packet.len);
    }
    done->entries = copy;
    done->body = NULL;
}

static void on_done(void *arg, const sl_inbox_done *done)
{
    inbox_harness *hs = arg;
    if (hs->count == hs->cap) {
        hs->cap = hs->cap == 0 ? 64 : hs->cap * 2;
        hs->results = sl_realloc(hs->results, hs->cap * sizeof(*hs->results));
    }
    sl_inbox_done *copy = sl_alloc(sizeof(*copy));
    *copy = *done;
    hs->results[hs->count++] = copy;
    size_t bytes = done->assigned_count * sizeof(*done->assigned);
    sl_inbox_assigned *assigned = sl_calloc(1, bytes + 1);
    if (bytes > 0)
        memcpy(assigned, done->assigned, bytes);
    copy->assigned = assigned;
    copy_entries(copy);
}

static void forget_results(inbox_harness *hs)
{
    for (size_t i = 0; i < hs->count; i++) {
        sl_inbox_done *done = hs->results[i];
        for (size_t k = 0; k < done->entry_count; k++)
            if (done->entries[k].packet.len > 0)
                sl_free((void *)(uintptr_t)done->entries[k].packet.ptr);
        sl_free((void *)(uintptr_t)done->entries);
        sl_free((void *)(uintptr_t)done->assigned);
        sl_free(done);
    }
    sl_free(hs->results);
    hs->results = NULL;
    hs->count = hs->cap = 0;
}

static void open_inbox(inbox_harness *hs)
{
    hs->factory->open_store(hs->store);
    const inbox_factory *fy = hs->factory;
    sl_inbox_options options = {.log = fy->log_of != NULL ? fy->log_of(hs->store) : NULL,
                                .redis = fy->redis_of != NULL ? fy->redis_of(hs->store) : NULL,
                                .clock = &hs->clock,
                                .default_ttl_ms = HARNESS_TTL,
                                .max_cached = hs->max_cached,
                                .wake = on_wake,
                                .done = on_done,
                                .room = on_room,
                                .arg = hs};
    SL_TEST_OK(sl_inbox_open(hs->factory->ops, &options, &hs->ib));
}

static void close_inbox(inbox_harness *hs)
{
    sl_inbox_close(&hs->ib);
    assert_null(hs->ib);
    hs->factory->close_store(hs->store);
}

void harness_open(inbox_harness *hs, const inbox_factory *factory, size_t max_cached)
{
    *hs = (inbox_harness){.factory = factory, .max_cached = max_cached, .next_token = 1};
    pthread_mutex_init(&hs->lock, NULL);
    pthread_cond_init(&hs->cond, NULL);
    sl_clock_init_fake(&hs->clock, 1000, HARNESS_NOW);
    hs->store = factory->new_store(&hs->clock);
    open_inbox(hs);
}

void harness_reopen(inbox_harness *hs)
{
    close_inbox(hs);
    open_inbox(hs);
}

void harness_close(inbox_harness *hs)
{
    close_inbox(hs);
    hs->factory->free_store(hs->store);
    forget_results(hs);
    pthread_mutex_destroy(&hs->lock);
    pthread_cond_destroy(&hs->cond);
}

void harness_turn(inbox_harness *hs)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WAIT_S;
    int rc = 0;
    pthread_mutex_lock(&hs->lock);
    while (!hs->woken && rc == 0)
        rc = pthread_cond_timedwait(&hs->cond, &hs->lock, &until);
    hs->woken = false;
    pthread_mutex_unlock(&hs->lock);
    assert_int_equal(rc, 0);
    sl_inbox_drain(hs->ib);
}

size_t harness_position(const inbox_harness *hs, sl_inbox_op op, uint64_t token)
{
    for (size_t i = hs->count; i-- > 0;)
        if (hs->results[i]->op == op && hs->results[i]->token == token)
            return i;
    return SIZE_MAX;
}

const sl_inbox_done *harness_wait(inbox_harness *hs, sl_inbox_op op, uint64_t token)
{
    size_t at;
    while ((at = harness_position(hs, op, token)) == SIZE_MAX)
        harness_turn(hs);
    return hs->results[at];
}

sl_inbox_row harness_row(uint64_t offset, uint8_t qos, const char *packet)
{
    return (sl_inbox_row){.source_offset = offset,
                          .qos = qos,
                          .time_ms = HARNESS_NOW,
                          .packet = {sl_slice_str(packet)}};
}

const sl_inbox_done *harness_add_slice(inbox_harness *hs, sl_slice client, uint64_t generation,
                                       const sl_inbox_row *rows, size_t count, size_t limit)
{
    uint64_t token = hs->next_token++;
    sl_err err;
    while ((err = sl_inbox_add(hs->ib, client, generation, rows, count, limit, token)) == SL_EAGAIN)
        harness_turn(hs);
    SL_TEST_OK(err);
    return harness_wait(hs, SL_INBOX_OP_ADD, token);
}

const sl_inbox_done *harness_add(inbox_harness *hs, const char *client, uint64_t generation,
                                 const sl_inbox_row *rows, size_t count, size_t limit)
{
    return harness_add_slice(hs, sl_slice_str(client), generation, rows, count, limit);
}

const sl_inbox_done *harness_read_slice(inbox_harness *hs, sl_slice client, uint64_t generation,
                                        uint64_t after_row, size_t max_rows, size_t max_bytes)
{
    uint64_t token = hs->next_token++;
    SL_TEST_OK(sl_inbox_read(hs->ib, client, generation, after_row, max_rows, max_bytes, token));
    return harness_wait(hs, SL_INBOX_OP_READ, token);
}

const sl_inbox_done *harness_read(inbox_harness *hs, const char *client, uint64_t generation,
                                  uint64_t after_row, size_t max_rows, size_t max_bytes)
{
    return harness_read_slice(hs, sl_slice_str(client), generation, after_row, max_rows, max_bytes);
}

const sl_inbox_done *harness_remove_many(inbox_harness *hs, const char *client, uint64_t generation,
                                         const uint16_t *ids, size_t count)
{
    uint64_t token = hs->next_token++;
    SL_TEST_OK(sl_inbox_remove(hs->ib, sl_slice_str(client), generation, ids, count, token));
    return harness_wait(hs, SL_INBOX_OP_REMOVE, token);
}

sl_err harness_remove(inbox_harness *hs, const char *client, uint64_t generation,
                      uint16_t packet_id)
{
    return harness_remove_many(hs, client, generation, &packet_id, 1)->err;
}

sl_err harness_mark(inbox_harness *hs, const char *client, uint64_t generation, uint16_t packet_id)
{
    uint64_t token = hs->next_token++;
    SL_TEST_OK(sl_inbox_mark_pubrel(hs->ib, sl_slice_str(client), generation, packet_id, token));
    return harness_wait(hs, SL_INBOX_OP_MARK_PUBREL, token)->err;
}

sl_err harness_clear(inbox_harness *hs, const char *client, uint64_t generation)
{
    uint64_t token = hs->next_token++;
    SL_TEST_OK(sl_inbox_clear(hs->ib, sl_slice_str(client), generation, token));
    return harness_wait(hs, SL_INBOX_OP_CLEAR, token)->err;
}

size_t harness_count(inbox_harness *hs, const char *client)
{
    uint64_t token = hs->next_token++;
    SL_TEST_OK(sl_inbox_count(hs->ib, sl_slice_str(client), token));
    return harness_wait(hs, SL_INBOX_OP_COUNT, token)->count;
}
