/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox: the front of the port: checks, limits, statistics and trace, the same for every adapter.
 * Knows nothing of how boxes are stored. Runs on the owner's thread.
 */
#include "store/inbox.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/logger.h"

#define INBOX_MAGIC 0x696e6278u

struct sl_inbox {
    uint32_t magic;
    const sl_inbox_ops *ops;
    void *self; /* the adapter's */
    sl_inbox_options options;
};

static void stat_add(sl_inbox *ib, unsigned row, size_t delta)
{
    if (ib->options.stats != NULL && delta > 0)
        sl_stats_add(ib->options.stats, ib->options.stats_shard, ib->options.stats_base + row,
                     (int64_t)delta);
}

static void count_done(sl_inbox *ib, const sl_inbox_done *done)
{
    if (done->err != SL_OK && done->err != SL_ENOTFOUND) {
        stat_add(ib, SL_INBOX_STAT_FAILED, 1);
        return;
    }
    switch (done->op) {
    case SL_INBOX_OP_ADD:
        for (size_t i = 0; i < done->assigned_count; i++)
            stat_add(ib, SL_INBOX_STAT_ADDED, done->assigned[i].row != 0);
        stat_add(ib, SL_INBOX_STAT_REPLAYS, done->dropped);
        stat_add(ib, SL_INBOX_STAT_EVICTED, done->evicted);
        break;
    case SL_INBOX_OP_READ:
        stat_add(ib, SL_INBOX_STAT_EXPIRED, done->expired);
        stat_add(ib, SL_INBOX_STAT_REPAIRED, done->repaired);
        break;
    case SL_INBOX_OP_REMOVE:
        stat_add(ib, SL_INBOX_STAT_REMOVED, done->removed);
        break;
    case SL_INBOX_OP_ADD_DURABLE:
    case SL_INBOX_OP_MARK_PUBREL:
    case SL_INBOX_OP_CLEAR:
    case SL_INBOX_OP_COUNT:
        break;
    }
}

static void on_done(void *arg, const sl_inbox_done *done)
{
    sl_inbox *ib = arg;
    count_done(ib, done);
    sl_trace(SL_C_INBOX, "INBOX-DONE", SL_I("op", done->op), SL_U("token", done->token),
             SL_E(done->err));
    ib->options.done(ib->options.arg, done);
}

static void on_wake(void *arg)
{
    sl_inbox *ib = arg;
    ib->options.wake(ib->options.arg);
}

static void on_room(void *arg)
{
    sl_inbox *ib = arg;
    if (ib->options.room != NULL)
        ib->options.room(ib->options.arg);
}

static sl_err on_commit(void *arg, sl_log_topic *topic, uint16_t partition, uint64_t offset)
{
    sl_inbox *ib = arg;
    return ib->options.commit(ib->options.arg, topic, partition, offset);
}

sl_err sl_inbox_open(const sl_inbox_ops *ops, const sl_inbox_options *options, sl_inbox **out)
{
    if (options->done == NULL || options->clock == NULL || options->default_ttl_ms <= 0 ||
        options->max_cached == 0)
        return SL_EINVAL;
    sl_inbox *ib = sl_calloc(1, sizeof(*ib));
    ib->magic = INBOX_MAGIC;
    ib->ops = ops;
    ib->options = *options;
    sl_inbox_options inner = *options;
    inner.wake = options->wake != NULL ? on_wake : NULL;
    inner.done = on_done;
    inner.room = on_room;
    inner.commit = options->commit != NULL ? on_commit : NULL;
    inner.arg = ib;
    sl_err err = ops->open(&inner, &ib->self);
    if (err != SL_OK) {
        sl_free(ib);
        return err;
    }
    *out = ib;
    return SL_OK;
}

void sl_inbox_close(sl_inbox **ib_ptr)
{
    sl_inbox *ib = *ib_ptr;
    if (ib == NULL)
        return;
    SL_CHECK(ib, INBOX_MAGIC);
    ib->ops->close(ib->self);
    ib->magic = 0;
    sl_free(ib);
    *ib_ptr = NULL;
}

size_t sl_inbox_drain(sl_inbox *ib)
{
    SL_CHECK(ib, INBOX_MAGIC);
    return ib->ops->drain(ib->self);
}

/* Counts what the store refused for now. */
static sl_err counted(sl_inbox *ib, sl_err err)
{
    stat_add(ib, SL_INBOX_STAT_REFUSED, err == SL_EAGAIN);
    return err;
}

static bool is_client(sl_slice client)
{
    return client.len > 0 && client.len <= SL_INBOX_MAX_CLIENT_BYTES;
}

static bool is_row(const sl_inbox_row *row)
{
    size_t bytes = 0;
    for (size_t i = 0; i < SL_INBOX_PACKET_PIECES; i++)
        bytes += row->packet[i].len;
    return (row->qos == 1 || row->qos == 2) && bytes > 0 && bytes <= SL_LOG_MAX_RECORD_BYTES &&
           row->expires_at_ms >= 0;
}

sl_err sl_inbox_add(sl_inbox *ib, sl_slice client, uint64_t generation, const sl_inbox_row *rows,
                    size_t count, size_t limit, uint64_t token)
{
    SL_CHECK(ib, INBOX_MAGIC);
    if (!is_client(client) || generation == 0 || count == 0)
        return SL_EINVAL;
    for (size_t i = 0; i < count; i++)
        if (!is_row(&rows[i]))
            return SL_EINVAL;
    if (limit == 0 || limit > SL_INBOX_MAX_ROWS)
        limit = SL_INBOX_MAX_ROWS;
    return counted(ib, ib->ops->add(ib->self, client, generation, rows, count, limit, token));
}

sl_err sl_inbox_read(sl_inbox *ib, sl_slice client, uint64_t generation, uint64_t after_row,
                     size_t max_rows, size_t max_bytes, uint64_t token)
{
    SL_CHECK(ib, INBOX_MAGIC);
    if (!is_client(client) || generation == 0 || max_rows == 0 || max_rows > SL_INBOX_MAX_ROWS)
        return SL_EINVAL;
    return counted(
        ib, ib->ops->read(ib->self, client, generation, after_row, max_rows, max_bytes, token));
}

sl_err sl_inbox_remove(sl_inbox *ib, sl_slice client, uint64_t generation,
                       const uint16_t *packet_ids, size_t count, uint64_t token)
{
    SL_CHECK(ib, INBOX_MAGIC);
    if (!is_client(client) || generation == 0 || count == 0 || count > SL_INBOX_MAX_ROWS)
        return SL_EINVAL;
    for (size_t i = 0; i < count; i++)
        if (packet_ids[i] == 0)
            return SL_EINVAL;
    return counted(ib, ib->ops->remove(ib->self, client, generation, packet_ids, count, token));
}

sl_err sl_inbox_mark_pubrel(sl_inbox *ib, sl_slice client, uint64_t generation, uint16_t packet_id,
                            uint64_t token)
{
    SL_CHECK(ib, INBOX_MAGIC);
    if (!is_client(client) || generation == 0 || packet_id == 0)
        return SL_EINVAL;
    return counted(ib, ib->ops->mark_pubrel(ib->self, client, generation, packet_id, token));
}

sl_err sl_inbox_clear(sl_inbox *ib, sl_slice client, uint64_t new_generation, uint64_t token)
{
    SL_CHECK(ib, INBOX_MAGIC);
    if (!is_client(client))
        return SL_EINVAL;
    return counted(ib, ib->ops->clear(ib->self, client, new_generation, token));
}

sl_err sl_inbox_count(sl_inbox *ib, sl_slice client, uint64_t token)
{
    SL_CHECK(ib, INBOX_MAGIC);
    if (!is_client(client))
        return SL_EINVAL;
    return counted(ib, ib->ops->count(ib->self, client, token));
}

sl_err sl_inbox_commit_behind(sl_inbox *ib, const char *group, sl_log_topic *topic,
                              uint16_t partition, uint64_t offset)
{
    SL_CHECK(ib, INBOX_MAGIC);
    return ib->ops->commit_behind(ib->self, group, topic, partition, offset);
}
