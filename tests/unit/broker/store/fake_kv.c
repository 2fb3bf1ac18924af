/* SPDX-License-Identifier: Apache-2.0
 *
 * fake_kv: see fake_kv.h. One store, one producer, one thread.
 */
#include "fake_kv.h"

#include "base/alloc.h"
#include "base/assert.h"

enum { MAX_ROWS = 20000, MAX_WRITES = 256 };

typedef struct row {
    sl_slice key, value; /* owned */
} row;

typedef struct write {
    uint64_t token;
    size_t count;
    struct {
        int kind;
        sl_slice key, value, end; /* owned */
    } * ops;
    uint64_t commit; /* offset of a group, instead of rows */
} write;

static struct {
    row rows[MAX_ROWS]; /* sorted */
    size_t row_count;
    write writes[MAX_WRITES];
    size_t write_count;
    sl_log_done dones[MAX_WRITES];
    size_t done_count;
    sl_err refusal, sync_refusal;
    unsigned refusals, sync_refusals, scans;
    bool only_puts;
    bool refused_for_room;
    uint64_t committed;
    sl_log_producer_options options;
} fake;

static sl_slice copy_of(sl_slice left, sl_slice right)
{
    uint8_t *bytes = sl_alloc(left.len + right.len + 1);
    if (left.len > 0)
        memcpy(bytes, left.ptr, left.len);
    if (right.len > 0)
        memcpy(bytes + left.len, right.ptr, right.len);
    return sl_slice_of(bytes, left.len + right.len);
}

static void drop(sl_slice bytes)
{
    sl_free((void *)(uintptr_t)bytes.ptr);
}

static size_t bound(sl_slice key)
{
    size_t low = 0, high = fake.row_count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (sl_slice_compare(fake.rows[mid].key, key) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static void erase(size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        drop(fake.rows[i].key);
        drop(fake.rows[i].value);
    }
    memmove(&fake.rows[from], &fake.rows[to], (fake.row_count - to) * sizeof(row));
    fake.row_count -= to - from;
}

static void put(sl_slice key, sl_slice value)
{
    size_t at = bound(key);
    if (at < fake.row_count && sl_slice_equal(fake.rows[at].key, key))
        erase(at, at + 1);
    SL_ASSERT(fake.row_count < MAX_ROWS);
    memmove(&fake.rows[at + 1], &fake.rows[at], (fake.row_count - at) * sizeof(row));
    fake.rows[at] = (row){copy_of(key, (sl_slice){0}), copy_of(value, (sl_slice){0})};
    fake.row_count++;
}

static void apply(const write *wr)
{
    for (size_t i = 0; i < wr->count; i++) {
        sl_slice key = wr->ops[i].key;
        size_t at = bound(key);
        if (wr->ops[i].kind == SL_KV_PUT)
            put(key, wr->ops[i].value);
        else if (wr->ops[i].kind == SL_KV_DELETE_RANGE)
            erase(at, bound(wr->ops[i].end));
        else if (at < fake.row_count && sl_slice_equal(fake.rows[at].key, key))
            erase(at, at + 1);
    }
    if (wr->commit != 0)
        fake.committed = wr->commit;
}

static void free_write(write *wr)
{
    for (size_t i = 0; i < wr->count; i++) {
        drop(wr->ops[i].key);
        drop(wr->ops[i].value);
        drop(wr->ops[i].end);
    }
    sl_free(wr->ops);
}

void fake_kv_reset(void)
{
    erase(0, fake.row_count);
    while (fake.write_count > 0)
        free_write(&fake.writes[--fake.write_count]);
    memset(&fake, 0, sizeof(fake));
}

void fake_kv_refuse(sl_err err, unsigned times, bool with_put)
{
    fake.refusal = err;
    fake.refusals = times;
    fake.only_puts = with_put;
}

void fake_kv_refuse_sync(sl_err err, unsigned times)
{
    fake.sync_refusal = err;
    fake.sync_refusals = times;
}

size_t fake_kv_pending(void)
{
    return fake.write_count;
}

void fake_kv_complete(size_t index, sl_err err)
{
    SL_ASSERT(index < fake.write_count);
    write wr = fake.writes[index];
    memmove(&fake.writes[index], &fake.writes[index + 1],
            (--fake.write_count - index) * sizeof(write));
    if (err == SL_OK)
        apply(&wr);
    if (wr.commit == 0)
        fake.dones[fake.done_count++] = (sl_log_done){.token = wr.token, .err = err};
    free_write(&wr);
}

void fake_kv_complete_all(void)
{
    while (fake.write_count > 0)
        fake_kv_complete(0, SL_OK);
}

size_t fake_kv_rows(void)
{
    return fake.row_count;
}

unsigned fake_kv_scans(void)
{
    return fake.scans;
}

void fake_kv_tamper(sl_slice key, sl_slice value)
{
    size_t at = bound(key);
    SL_ASSERT(at < fake.row_count && sl_slice_equal(fake.rows[at].key, key));
    if (value.len > 0)
        put(key, value);
    else
        erase(at, at + 1);
}

uint64_t fake_kv_committed(void)
{
    return fake.committed;
}

/* ---- in place of sl_log ------------------------------------------------------------------------
 */

sl_err sl_embedded_kv_open(sl_log *log, const char *name, sl_embedded_kv **out)
{
    (void)log;
    (void)name;
    *out = (sl_embedded_kv *)(void *)&fake;
    return SL_OK;
}

static bool is_refused(const sl_embedded_kv_op *ops, size_t count)
{
    bool has_put = false;
    for (size_t i = 0; i < count; i++)
        has_put = has_put || ops[i].kind == SL_KV_PUT;
    if (fake.refusals == 0 || (fake.only_puts && !has_put))
        return false;
    fake.refusals--;
    return true;
}

sl_err sl_embedded_kv_write(sl_log_producer *pr, sl_embedded_kv *kv, const sl_embedded_kv_op *ops,
                            size_t count, bool durable, uint64_t token)
{
    (void)pr;
    (void)kv;
    (void)durable;
    sl_err err = SL_OK;
    if (count == 0 && fake.sync_refusals > 0) {
        fake.sync_refusals--;
        err = fake.sync_refusal;
    } else if (count > 0 && is_refused(ops, count)) {
        err = fake.refusal;
    }
    fake.refused_for_room = fake.refused_for_room || err == SL_EAGAIN;
    if (err != SL_OK)
        return err;
    SL_ASSERT(fake.write_count < MAX_WRITES);
    write *wr = &fake.writes[fake.write_count++];
    *wr = (write){.token = token, .count = count};
    wr->ops = sl_calloc(count + 1, sizeof(wr->ops[0]));
    for (size_t i = 0; i < count; i++) {
        wr->ops[i].kind = (int)ops[i].kind;
        wr->ops[i].key = copy_of(ops[i].key, (sl_slice){0});
        wr->ops[i].value = copy_of(ops[i].value[0], ops[i].value[1]);
        wr->ops[i].end = copy_of(ops[i].end, (sl_slice){0});
    }
    return SL_OK;
}

sl_err sl_embedded_kv_commit_behind(sl_log_producer *pr, const char *group, sl_log_topic *topic,
                                    uint16_t partition, uint64_t offset)
{
    (void)pr;
    (void)group;
    (void)topic;
    (void)partition;
    SL_ASSERT(fake.write_count < MAX_WRITES && offset != 0);
    fake.writes[fake.write_count++] = (write){.commit = offset, .ops = sl_calloc(1, 1)};
    return SL_OK;
}

sl_err sl_embedded_kv_scan(sl_embedded_kv *kv, sl_slice from, sl_slice to,
                           bool (*fn)(void *arg, sl_slice key, sl_slice value), void *arg)
{
    (void)kv;
    fake.scans++;
    for (size_t i = bound(from); i < fake.row_count; i++)
        if (sl_slice_compare(fake.rows[i].key, to) >= 0 ||
            !fn(arg, fake.rows[i].key, fake.rows[i].value))
            break;
    return SL_OK;
}

sl_err sl_log_producer_open(sl_log *log, const sl_log_producer_options *options,
                            sl_log_producer **out)
{
    (void)log;
    fake.options = *options;
    *out = (sl_log_producer *)(void *)&fake;
    return SL_OK;
}

size_t sl_log_producer_drain(sl_log_producer *pr)
{
    (void)pr;
    size_t count = fake.done_count;
    sl_log_done dones[MAX_WRITES];
    memcpy(dones, fake.dones, count * sizeof(dones[0]));
    fake.done_count = 0;
    if (count > 0)
        fake.options.done(fake.options.arg, dones, count);
    if (fake.refused_for_room && fake.options.room != NULL)
        fake.options.room(fake.options.arg);
    fake.refused_for_room = false;
    return count;
}

void sl_log_producer_close(sl_log_producer **pr)
{
    fake_kv_complete_all();
    sl_log_producer_drain(*pr);
    *pr = NULL;
}
