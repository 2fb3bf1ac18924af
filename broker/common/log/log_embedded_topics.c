/* SPDX-License-Identifier: Apache-2.0
 *
 * log_embedded_topics: topics of the embedded log: their rows in the store, their partitions in
 * memory, recovery of offsets at start, creation and deletion. Runs on init and pool threads.
 *
 * Rows in the family "default":
 *   topic/<name>           the topic (put_topic_row)
 *   next-topic             id of the next topic, u32
 *   start/<id><partition>  first offset that can be read, u64
 *   next/<id><partition>   compacted: next sequence, u64 (log_embedded_rows.c)
 *   refs/<id>              the topic may hold references (log_embedded_retention.c)
 *   gone/<id>              a deletion that is not finished
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/logger.h"
#include "log/bytes.h"
#include "log/elog_fn.h"

#define TOPIC_PREFIX    "topic/"
#define GONE_PREFIX     "gone/"
#define NEXT_TOPIC_KEY  "next-topic"
#define ROW_FIXED_BYTES 26
#define ROW_VERSION     1

enum { ROW_COMPACTED = 1, ROW_DURABLE = 2, ROW_MANY = 4, ROW_HOT = 8 };

/* ---- rows ---- */

static uint8_t row_flags(const elog_topic *tp)
{
    return (uint8_t)((tp->compacted ? ROW_COMPACTED : 0) |
                     (atomic_load(&tp->durable) ? ROW_DURABLE : 0) | (tp->many ? ROW_MANY : 0) |
                     (tp->hot ? ROW_HOT : 0));
}

static void put_topic_row(rocksdb_writebatch_t *wb, elog *el, const elog_topic *tp)
{
    char key[sizeof TOPIC_PREFIX + 1024];
    int key_len = snprintf(key, sizeof key, TOPIC_PREFIX "%s", tp->base.name);
    size_t pinned_len = tp->pinned_group == NULL ? 0 : strlen(tp->pinned_group);
    uint8_t *row = sl_alloc(ROW_FIXED_BYTES + pinned_len);
    row[0] = ROW_VERSION;
    row[1] = row_flags(tp);
    sl_put_u32(row + 2, tp->id);
    sl_put_u16(row + 6, tp->base.partitions);
    sl_put_u64(row + 8, (uint64_t)atomic_load(&tp->retention_ms));
    sl_put_u64(row + 16, (uint64_t)atomic_load(&tp->retention_bytes));
    sl_put_u16(row + 24, (uint16_t)pinned_len);
    if (pinned_len > 0)
        memcpy(row + ROW_FIXED_BYTES, tp->pinned_group, pinned_len);
    rocksdb_writebatch_put_cf(wb, el->cf[ELOG_CF_DEFAULT], key, (size_t)key_len, (const char *)row,
                              ROW_FIXED_BYTES + pinned_len);
    sl_free(row);
}

/* Writes and frees the batch. It is durable with the next sync; what needs more uses a barrier. */
static sl_err commit_rows(elog *el, rocksdb_writebatch_t *wb)
{
    sl_err err = elog_store_write(el, wb);
    rocksdb_writebatch_destroy(wb);
    return err;
}

/* ---- topics in memory ---- */

static void part_init(elog_topic *tp, uint16_t index)
{
    elog_part *part = &tp->parts[index];
    part->topic = tp;
    part->partition = index;
    part->pid = ++tp->el->next_pid;
    pthread_mutex_init(&part->lock, NULL);
    sl_list_init(&part->subs);
}

static elog_topic *topic_new(elog *el, const char *name, size_t name_len, uint32_t id,
                             uint16_t partitions)
{
    elog_topic *tp = sl_calloc(1, sizeof *tp);
    tp->base.magic = SL_LOG_TOPIC_MAGIC;
    tp->base.log = el->log;
    tp->base.name = sl_strndup(name, name_len);
    tp->base.partitions = partitions;
    tp->el = el;
    tp->id = id;
    tp->parts = sl_calloc(partitions, sizeof *tp->parts);
    for (uint16_t i = 0; i < partitions; i++)
        part_init(tp, i);
    return tp;
}

static void part_fini(elog_part *part)
{
    elog_ring_clear(&part->ring);
    for (uint32_t i = 0; i < part->tomb_count; i++)
        sl_free(part->tombs[(part->tomb_first + i) & (part->tomb_cap - 1)]);
    sl_free(part->tombs);
    sl_free(part->marks);
    sl_free(part->refs);
    pthread_mutex_destroy(&part->lock);
}

static void topic_free(elog_topic *tp)
{
    for (uint16_t i = 0; i < tp->base.partitions; i++)
        part_fini(&tp->parts[i]);
    sl_free(tp->parts);
    sl_free(tp->pinned_group);
    sl_free(tp->base.name);
    sl_free(tp);
}

void elog_topics_free(elog *el)
{
    size_t pos = 0;
    void *value;
    while (el->topics_by_id != NULL && sl_imap_each(el->topics_by_id, &pos, NULL, &value))
        topic_free(value);
    sl_imap_free(&el->topics_by_id);
    sl_map_free(&el->topics);
}

static void topic_register(elog *el, elog_topic *tp)
{
    SL_ASSERT(sl_map_put(el->topics, sl_slice_str(tp->base.name), tp, NULL) == SL_OK);
    SL_ASSERT(sl_imap_put(el->topics_by_id, tp->id, tp, NULL) == SL_OK);
    el->hot_count += tp->hot ? tp->base.partitions : 0;
}

elog_topic *elog_topic_by_id(elog *el, uint32_t id)
{
    pthread_mutex_lock(&el->topics_lock);
    elog_topic *tp = sl_imap_get(el->topics_by_id, id);
    pthread_mutex_unlock(&el->topics_lock);
    return tp;
}

static sl_err topic_families(elog *el, elog_topic *tp)
{
    for (uint16_t i = 0; i < tp->base.partitions; i++) {
        elog_part *part = &tp->parts[i];
        part->hot = tp->hot;
        part->cf = el->cf[tp->compacted ? ELOG_CF_ROWS : tp->many ? ELOG_CF_APP : ELOG_CF_SMALL];
        if (!tp->hot)
            continue;
        char name[1100];
        snprintf(name, sizeof name, "log/%u-%s/%u", tp->id, tp->base.name, i);
        sl_err err = elog_store_cf(el, name, &part->cf);
        if (err != SL_OK)
            return err;
    }
    return SL_OK;
}

/* ---- recovery ---- */

/* Key of the row that says: this topic may hold references. */
static size_t refs_key(uint8_t out[16], const elog_topic *tp)
{
    memcpy(out, "refs/", 5);
    sl_put_u32(out + 5, tp->id);
    return 9;
}

void elog_topic_note_refs(elog_topic *tp, rocksdb_writebatch_t *wb)
{
    uint8_t key[16];
    size_t len = refs_key(key, tp);
    rocksdb_writebatch_put_cf(wb, tp->el->cf[ELOG_CF_DEFAULT], (const char *)key, len, "", 0);
}

static bool had_refs(elog *el, const elog_topic *tp)
{
    uint8_t key[16];
    size_t len = refs_key(key, tp), value_len = 0;
    char *message = NULL;
    char *value = rocksdb_get_cf(el->db, el->ro_point, el->cf[ELOG_CF_DEFAULT], (const char *)key,
                                 len, &value_len, &message);
    // A row that cannot be read is taken for there: the scan costs time only.
    bool found = value != NULL || message != NULL;
    if (message != NULL)
        (void)elog_store_error(message, "LOG-REFS-UNREAD");
    rocksdb_free(value);
    return found;
}

static uint64_t read_number(elog *el, const char *prefix, const elog_part *part)
{
    uint8_t key[32];
    size_t len = strlen(prefix);
    memcpy(key, prefix, len);
    elog_key(key + len, part, 0);
    char *message = NULL;
    size_t value_len = 0;
    char *value = rocksdb_get_cf(el->db, el->ro_point, el->cf[ELOG_CF_DEFAULT], (const char *)key,
                                 len + 6, &value_len, &message);
    uint64_t number = value != NULL && value_len == 8 ? sl_get_u64((const uint8_t *)value) : 0;
    rocksdb_free(value);
    if (message != NULL)
        (void)elog_store_error(message, "LOG-NUMBER-UNREAD");
    return number;
}

/* The offset behind the last stored batch; 0 when nothing is stored. */
static sl_err stored_end(const elog_part *part, rocksdb_iterator_t *it, uint64_t *out)
{
    uint8_t key[ELOG_KEY_BYTES];
    elog_key(key, part, UINT64_MAX);
    *out = 0;
    rocksdb_iter_seek_for_prev(it, (const char *)key, sizeof key);
    if (!rocksdb_iter_valid(it)) {
        char *message = NULL;
        rocksdb_iter_get_error(it, &message);
        return message == NULL ? SL_OK : elog_store_error(message, "LOG-END-UNREAD");
    }
    size_t len = 0;
    const char *found = rocksdb_iter_key(it, &len);
    if (len != ELOG_KEY_BYTES || memcmp(found, key, 6) != 0)
        return SL_OK;
    uint64_t base = sl_get_u64((const uint8_t *)found + 6);
    const char *value = rocksdb_iter_value(it, &len);
    sl_batch_info info;
    // A damaged last batch: what it held is lost, but its offsets must not be given again. No
    // batch holds more records than it has bytes.
    if (sl_batch_open(sl_slice_of(value, len), false, &info) == SL_OK)
        *out = base + info.count;
    else
        *out = base + len + 1;
    return SL_OK;
}

static sl_err topic_recover(elog *el, elog_topic *tp)
{
    tp->has_refs = had_refs(el, tp);
    for (uint16_t i = 0; i < tp->base.partitions; i++) {
        elog_part *part = &tp->parts[i];
        uint64_t start = read_number(el, "start/", part);
        uint64_t next = 0;
        if (tp->compacted) {
            next = read_number(el, "next/", part);
            part->tombs_lost = true; // empty rows of the run before are swept once
        } else {
            rocksdb_iterator_t *it = rocksdb_create_iterator_cf(el->db, el->ro_point, part->cf);
            sl_err err = stored_end(part, it, &next);
            rocksdb_iter_destroy(it);
            if (err != SL_OK)
                return err;
        }
        // After retention took everything, the start is the only memory of the offsets.
        if (next < start)
            next = start;
        part->next = part->written = part->durable = part->synced = part->need_sync = next;
        atomic_store(&part->start, start);
        atomic_store(&part->floor, start);
        part->refs_unknown = tp->has_refs && next > start;
        part->known_from = next;
        elog_marks_load(el, part);
    }
    return SL_OK;
}

static sl_err load_row(elog *el, sl_slice name, sl_slice row)
{
    if (row.len < ROW_FIXED_BYTES || row.ptr[0] != ROW_VERSION ||
        row.len != ROW_FIXED_BYTES + (size_t)sl_get_u16(row.ptr + 24) || name.len == 0 ||
        sl_get_u16(row.ptr + 6) < 1)
        return SL_ECORRUPT;
    uint8_t flags = row.ptr[1];
    elog_topic *tp = topic_new(el, (const char *)name.ptr, name.len, sl_get_u32(row.ptr + 2),
                               sl_get_u16(row.ptr + 6));
    tp->compacted = (flags & ROW_COMPACTED) != 0;
    tp->many = (flags & ROW_MANY) != 0;
    tp->hot = (flags & ROW_HOT) != 0;
    atomic_store(&tp->durable, (flags & ROW_DURABLE) != 0);
    atomic_store(&tp->retention_ms, (int64_t)sl_get_u64(row.ptr + 8));
    atomic_store(&tp->retention_bytes, (int64_t)sl_get_u64(row.ptr + 16));
    if (row.len > ROW_FIXED_BYTES)
        tp->pinned_group = sl_strndup(row.ptr + ROW_FIXED_BYTES, row.len - ROW_FIXED_BYTES);
    topic_register(el, tp);
    sl_err err = topic_families(el, tp);
    return err != SL_OK ? err : topic_recover(el, tp);
}

static sl_err load_rows(elog *el, const char *prefix, sl_err (*fn)(elog *, sl_slice, sl_slice))
{
    rocksdb_iterator_t *it =
        rocksdb_create_iterator_cf(el->db, el->ro_scan, el->cf[ELOG_CF_DEFAULT]);
    size_t prefix_len = strlen(prefix);
    sl_err err = SL_OK;
    rocksdb_iter_seek(it, prefix, prefix_len);
    for (; err == SL_OK && rocksdb_iter_valid(it); rocksdb_iter_next(it)) {
        size_t key_len = 0, len = 0;
        const char *key = rocksdb_iter_key(it, &key_len);
        const char *value = rocksdb_iter_value(it, &len);
        if (key_len < prefix_len || memcmp(key, prefix, prefix_len) != 0)
            break;
        err = fn(el, sl_slice_of(key + prefix_len, key_len - prefix_len), sl_slice_of(value, len));
    }
    char *message = NULL;
    rocksdb_iter_get_error(it, &message);
    rocksdb_iter_destroy(it);
    return message == NULL ? err : elog_store_error(message, "LOG-TOPICS-UNREAD");
}

/* ---- deletion ---- */

static void delete_range(rocksdb_writebatch_t *wb, rocksdb_column_family_handle_t *cf, uint32_t id)
{
    uint8_t from[4], to[4];
    sl_put_u32(from, id);
    sl_put_u32(to, id + 1);
    rocksdb_writebatch_delete_range_cf(wb, cf, (const char *)from, sizeof from, (const char *)to,
                                       sizeof to);
}

/* Everything a topic left behind; also at start, when a deletion was cut short. row: flags u8,
 * partitions u16, name. */
static sl_err finish_deletion(elog *el, sl_slice id_bytes, sl_slice row)
{
    if (id_bytes.len != 4 || row.len < 3)
        return SL_ECORRUPT;
    uint32_t id = sl_get_u32(id_bytes.ptr);
    uint8_t flags = row.ptr[0];
    uint16_t partitions = sl_get_u16(row.ptr + 1);
    rocksdb_writebatch_t *wb = rocksdb_writebatch_create();
    delete_range(wb, el->cf[ELOG_CF_OFFSETS], id);
    if ((flags & ROW_HOT) == 0)
        delete_range(wb,
                     el->cf[(flags & ROW_COMPACTED) != 0 ? ELOG_CF_ROWS
                            : (flags & ROW_MANY) != 0    ? ELOG_CF_APP
                                                         : ELOG_CF_SMALL],
                     id);
    for (uint16_t i = 0; (flags & ROW_HOT) != 0 && i < partitions; i++) {
        char name[1100];
        snprintf(name, sizeof name, "log/%u-%.*s/%u", id, (int)(row.len - 3),
                 (const char *)row.ptr + 3, i);
        rocksdb_column_family_handle_t *cf = NULL;
        if (elog_store_cf(el, name, &cf) == SL_OK)
            elog_store_cf_drop(el, cf);
    }
    uint8_t key[16];
    for (uint16_t i = 0; i < partitions; i++) {
        memcpy(key, "start/", 6);
        sl_put_u32(key + 6, id);
        sl_put_u16(key + 10, i);
        rocksdb_writebatch_delete_cf(wb, el->cf[ELOG_CF_DEFAULT], (const char *)key, 12);
        memcpy(key, "next/", 5);
        sl_put_u32(key + 5, id);
        sl_put_u16(key + 9, i);
        rocksdb_writebatch_delete_cf(wb, el->cf[ELOG_CF_DEFAULT], (const char *)key, 11);
    }
    memcpy(key, "refs/", 5);
    sl_put_u32(key + 5, id);
    rocksdb_writebatch_delete_cf(wb, el->cf[ELOG_CF_DEFAULT], (const char *)key, 9);
    memcpy(key, GONE_PREFIX, sizeof GONE_PREFIX - 1);
    sl_put_u32(key + sizeof GONE_PREFIX - 1, id);
    rocksdb_writebatch_delete_cf(wb, el->cf[ELOG_CF_DEFAULT], (const char *)key,
                                 sizeof GONE_PREFIX - 1 + 4);
    return commit_rows(el, wb);
}

/* The topic's row makes place for a note that its data has to go. */
static sl_err put_gone_row(elog *el, const elog_topic *tp, uint8_t *row, size_t row_len)
{
    rocksdb_writebatch_t *wb = rocksdb_writebatch_create();
    char key[sizeof TOPIC_PREFIX + 1024];
    int key_len = snprintf(key, sizeof key, TOPIC_PREFIX "%s", tp->base.name);
    rocksdb_writebatch_delete_cf(wb, el->cf[ELOG_CF_DEFAULT], key, (size_t)key_len);
    memcpy(key, GONE_PREFIX, sizeof GONE_PREFIX - 1);
    sl_put_u32((uint8_t *)key + sizeof GONE_PREFIX - 1, tp->id);
    row[0] = row_flags(tp);
    sl_put_u16(row + 1, tp->base.partitions);
    memcpy(row + 3, tp->base.name, row_len - 3);
    rocksdb_writebatch_put_cf(wb, el->cf[ELOG_CF_DEFAULT], key, sizeof GONE_PREFIX - 1 + 4,
                              (const char *)row, row_len);
    return commit_rows(el, wb);
}

static void part_forget(elog_part *part)
{
    pthread_mutex_lock(&part->lock);
    // The writer's eviction list still counts the entries, so the ring itself stays.
    part->bytes = 0;
    part->mark_count = 0;
    part->ref_count = 0;
    part->refs_unknown = false;
    pthread_mutex_unlock(&part->lock);
}

sl_err elog_topic_delete(sl_log *log, const char *name)
{
    elog *el = elog_of(log);
    pthread_mutex_lock(&el->topics_lock);
    elog_topic *tp = sl_map_remove(el->topics, sl_slice_str(name));
    if (tp == NULL) {
        pthread_mutex_unlock(&el->topics_lock);
        return SL_ENOTFOUND;
    }
    atomic_store_explicit(&tp->base.deleted, true, memory_order_release);
    el->hot_count -= tp->hot ? tp->base.partitions : 0;
    size_t row_len = 3 + strlen(name);
    uint8_t *row = sl_alloc(row_len);
    sl_err err = put_gone_row(el, tp, row, row_len);
    pthread_mutex_unlock(&el->topics_lock);
    elog_offsets_drop_topic(el, tp);
    for (uint16_t i = 0; i < tp->base.partitions; i++)
        part_forget(&tp->parts[i]);
    // What was queued for the topic before is past the writer after this.
    if (err == SL_OK)
        err = elog_barrier(el, true);
    if (err == SL_OK) {
        uint8_t id[4];
        sl_put_u32(id, tp->id);
        pthread_mutex_lock(&el->topics_lock);
        err = finish_deletion(el, sl_slice_of(id, sizeof id), sl_slice_of(row, row_len));
        pthread_mutex_unlock(&el->topics_lock);
    }
    sl_free(row);
    return err;
}

/* ---- load and open ---- */

sl_err elog_topics_load(elog *el, char **why)
{
    el->topics = sl_map_new(0); // bounded by what the owner creates
    el->topics_by_id = sl_imap_new(0);
    el->next_topic_id = 1;
    sl_err err = load_rows(el, GONE_PREFIX, finish_deletion);
    if (err == SL_OK)
        err = load_rows(el, TOPIC_PREFIX, load_row);
    size_t pos = 0;
    uint64_t id;
    while (err == SL_OK && sl_imap_each(el->topics_by_id, &pos, &id, NULL))
        if (id >= el->next_topic_id)
            el->next_topic_id = (uint32_t)id + 1;
    char *message = NULL;
    size_t len = 0;
    char *value = rocksdb_get_cf(el->db, el->ro_point, el->cf[ELOG_CF_DEFAULT], NEXT_TOPIC_KEY,
                                 sizeof NEXT_TOPIC_KEY - 1, &len, &message);
    if (message != NULL)
        err = elog_store_error(message, "LOG-TOPICS-UNREAD");
    // Ids of deleted topics must not come back: their rows may still wait for compaction.
    if (value != NULL && len == 4 && sl_get_u32((const uint8_t *)value) > el->next_topic_id)
        el->next_topic_id = sl_get_u32((const uint8_t *)value);
    rocksdb_free(value);
    if (err == SL_OK)
        elog_store_drop_unused(el);
    if (err != SL_OK) {
        char *text = NULL;
        if (asprintf(&text, "the log in %s is damaged: the list of topics cannot be read (%s)",
                     el->dir, sl_err_text(err)) >= 0) {
            *why = sl_strdup(text);
            free(text);
        }
    }
    return err;
}

static bool same_text(const char *left, const char *right)
{
    return left == right || (left != NULL && right != NULL && strcmp(left, right) == 0);
}

static sl_err topic_update(elog *el, elog_topic *tp, const sl_log_topic_spec *spec)
{
    if (tp->compacted != spec->compacted || tp->many != spec->many) {
        sl_error(SL_C_LOG, "LOG-TOPIC-KIND", SL_S("topic", tp->base.name),
                 SL_S("reason", "a topic cannot change between compacted, many and plain"));
        return SL_EUNSUPPORTED;
    }
    if (atomic_load(&tp->durable) == spec->durable &&
        atomic_load(&tp->retention_ms) == spec->retention_ms &&
        atomic_load(&tp->retention_bytes) == spec->retention_bytes &&
        same_text(tp->pinned_group, spec->pinned_group))
        return SL_OK;
    atomic_store(&tp->durable, spec->durable);
    atomic_store(&tp->retention_ms, spec->retention_ms);
    atomic_store(&tp->retention_bytes, spec->retention_bytes);
    sl_free(tp->pinned_group);
    tp->pinned_group = spec->pinned_group == NULL ? NULL : sl_strdup(spec->pinned_group);
    rocksdb_writebatch_t *wb = rocksdb_writebatch_create();
    put_topic_row(wb, el, tp);
    return commit_rows(el, wb);
}

static sl_err topic_create(elog *el, const sl_log_topic_spec *spec, elog_topic **out)
{
    elog_topic *tp =
        topic_new(el, spec->name, strlen(spec->name), el->next_topic_id, spec->partitions);
    tp->compacted = spec->compacted;
    tp->many = spec->many;
    tp->hot = !spec->many && !spec->compacted && spec->durable &&
              spec->partitions >= ELOG_HOT_PARTITIONS &&
              el->hot_count + spec->partitions <= ELOG_HOT_MAX;
    atomic_store(&tp->durable, spec->durable);
    atomic_store(&tp->retention_ms, spec->retention_ms);
    atomic_store(&tp->retention_bytes, spec->retention_bytes);
    tp->pinned_group = spec->pinned_group == NULL ? NULL : sl_strdup(spec->pinned_group);
    sl_err err = topic_families(el, tp);
    if (err == SL_OK) {
        rocksdb_writebatch_t *wb = rocksdb_writebatch_create();
        uint8_t next[4];
        sl_put_u32(next, tp->id + 1);
        rocksdb_writebatch_put_cf(wb, el->cf[ELOG_CF_DEFAULT], NEXT_TOPIC_KEY,
                                  sizeof NEXT_TOPIC_KEY - 1, (const char *)next, sizeof next);
        put_topic_row(wb, el, tp);
        err = commit_rows(el, wb);
    }
    if (err != SL_OK) {
        topic_free(tp);
        return err;
    }
    el->next_topic_id++;
    topic_register(el, tp);
    *out = tp;
    return SL_OK;
}

sl_err elog_topic_open(sl_log *log, const sl_log_topic_spec *spec, sl_log_topic **out)
{
    elog *el = elog_of(log);
    pthread_mutex_lock(&el->topics_lock);
    elog_topic *tp = sl_map_get(el->topics, sl_slice_str(spec->name));
    sl_err err = tp != NULL ? topic_update(el, tp, spec) : topic_create(el, spec, &tp);
    pthread_mutex_unlock(&el->topics_lock);
    if (err == SL_OK)
        *out = &tp->base;
    return err;
}

/* Size of the rows of a compacted partition, as RocksDB estimates it. */
static uint64_t rows_bytes(elog *el, const elog_part *part)
{
    uint8_t from[ELOG_KEY_BYTES], to[6];
    elog_key(from, part, 0);
    sl_put_u32(to, part->topic->id);
    sl_put_u16(to + 4, (uint16_t)(part->partition + 1));
    const char *const froms[1] = {(const char *)from}, *const tos[1] = {(const char *)to};
    const size_t from_lens[1] = {6}, to_lens[1] = {6};
    uint64_t size = 0;
    char *message = NULL;
    rocksdb_approximate_sizes_cf(el->db, part->cf, 1, froms, from_lens, tos, to_lens, &size,
                                 &message);
    if (message != NULL)
        (void)elog_store_error(message, "LOG-SIZES-UNREAD");
    return size;
}

sl_err elog_topic_describe(sl_log_topic *topic, uint16_t partition, sl_log_partition_info *out)
{
    elog_part *part = &((elog_topic *)topic)->parts[partition];
    pthread_mutex_lock(&part->lock);
    *out = (sl_log_partition_info){.start = atomic_load(&part->start),
                                   .written = part->written,
                                   .durable = part->durable,
                                   .bytes = part->bytes};
    pthread_mutex_unlock(&part->lock);
    if (part->topic->compacted)
        out->bytes = rows_bytes(part->topic->el, part);
    return SL_OK;
}

/* ---- enumeration ---- */

typedef struct topic_copy {
    sl_log_topic_spec spec; /* texts owned */
} topic_copy;

void elog_topic_each(sl_log *log, void (*fn)(void *arg, const sl_log_topic_spec *spec), void *arg)
{
    elog *el = elog_of(log);
    pthread_mutex_lock(&el->topics_lock);
    size_t count = 0, pos = 0;
    topic_copy *copies = sl_calloc(sl_map_count(el->topics) + 1, sizeof *copies);
    void *value;
    while (sl_map_each(el->topics, &pos, NULL, &value)) {
        const elog_topic *tp = value;
        copies[count++].spec = (sl_log_topic_spec){
            .name = sl_strdup(tp->base.name),
            .partitions = tp->base.partitions,
            .compacted = tp->compacted,
            .durable = atomic_load(&tp->durable),
            .many = tp->many,
            .retention_ms = atomic_load(&tp->retention_ms),
            .retention_bytes = atomic_load(&tp->retention_bytes),
            .pinned_group = tp->pinned_group == NULL ? NULL : sl_strdup(tp->pinned_group)};
    }
    pthread_mutex_unlock(&el->topics_lock);
    for (size_t i = 0; i < count; i++) {
        fn(arg, &copies[i].spec);
        sl_free((char *)copies[i].spec.name);
        sl_free((char *)copies[i].spec.pinned_group);
    }
    sl_free(copies);
}
