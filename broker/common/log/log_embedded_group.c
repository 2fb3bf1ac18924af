/* SPDX-License-Identifier: Apache-2.0
 *
 * log_embedded_group: committed offsets. Memory has them all; a change is marked and rides in one
 * of the next group commits, unsynced. Rows in the family "offsets": topic u32, partition u16,
 * group -> offset u64.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/logger.h"
#include "log/bytes.h"
#include "log/elog_fn.h"

#define KEY_HEAD 6
#define KEY_MAX  (KEY_HEAD + 1024)

static size_t offset_key(uint8_t out[KEY_MAX], const char *group, const elog_part *part)
{
    size_t len = strlen(group);
    SL_ASSERT(len <= KEY_MAX - KEY_HEAD);
    sl_put_u32(out, part->topic->id);
    sl_put_u16(out + 4, part->partition);
    memcpy(out + KEY_HEAD, group, len);
    return KEY_HEAD + len;
}

static elog_goff *find_goff(elog *el, const char *group, const elog_part *part)
{
    uint8_t key[KEY_MAX];
    return sl_map_get(el->offsets, sl_slice_of(key, offset_key(key, group, part)));
}

static elog_goff *make_goff(elog *el, const char *group, elog_part *part)
{
    elog_goff *goff = find_goff(el, group, part);
    if (goff != NULL)
        return goff;
    goff = sl_calloc(1, sizeof *goff);
    goff->part = part;
    goff->group = sl_strdup(group);
    uint8_t key[KEY_MAX];
    sl_slice bytes = sl_slice_of(key, offset_key(key, group, part));
    SL_ASSERT(sl_map_put(el->offsets, bytes, goff, NULL) == SL_OK);
    return goff;
}

/* An entry that says nothing and that nobody points to is forgotten. */
static void drop_if_unused(elog *el, elog_goff *goff)
{
    if (goff->present || goff->dirty || goff->users > 0)
        return;
    uint8_t key[KEY_MAX];
    sl_map_remove(el->offsets, sl_slice_of(key, offset_key(key, goff->group, goff->part)));
    sl_free(goff->group);
    sl_free(goff);
}

static void mark_dirty(elog *el, elog_goff *goff)
{
    if (goff->dirty)
        return;
    goff->dirty = true;
    goff->next_dirty = el->dirty;
    el->dirty = goff;
}

/* ---- use ---- */

elog_goff *elog_goff_use(elog *el, const char *group, elog_part *part)
{
    pthread_mutex_lock(&el->groups_lock);
    elog_goff *goff = make_goff(el, group, part);
    goff->users++;
    pthread_mutex_unlock(&el->groups_lock);
    return goff;
}

void elog_goff_unuse(elog *el, elog_goff **goff)
{
    pthread_mutex_lock(&el->groups_lock);
    (*goff)->users--;
    drop_if_unused(el, *goff);
    pthread_mutex_unlock(&el->groups_lock);
    *goff = NULL;
}

bool elog_goff_get(elog *el, const char *group, const elog_part *part, uint64_t *offset)
{
    pthread_mutex_lock(&el->groups_lock);
    const elog_goff *goff = find_goff(el, group, part);
    bool present = goff != NULL && goff->present;
    if (present)
        *offset = goff->offset;
    pthread_mutex_unlock(&el->groups_lock);
    return present;
}

void elog_goff_set(elog *el, elog_goff *goff, uint64_t offset)
{
    pthread_mutex_lock(&el->groups_lock);
    goff->offset = offset;
    goff->present = true;
    mark_dirty(el, goff);
    pthread_mutex_unlock(&el->groups_lock);
}

void elog_goff_set_memory(elog *el, elog_goff *goff, uint64_t offset)
{
    pthread_mutex_lock(&el->groups_lock);
    if (!goff->present || offset > goff->offset)
        goff->offset = offset;
    goff->present = true;
    pthread_mutex_unlock(&el->groups_lock);
}

void elog_offsets_drop_topic(elog *el, elog_topic *tp)
{
    pthread_mutex_lock(&el->groups_lock);
    size_t pos = 0;
    void *value;
    while (sl_map_each(el->offsets, &pos, NULL, &value)) {
        elog_goff *goff = value;
        if (goff->part->topic != tp)
            continue;
        goff->present = false;
        drop_if_unused(el, goff);
    }
    pthread_mutex_unlock(&el->groups_lock);
}

/* ---- the writer's side ---- */

void elog_goff_write(elog *el, const elog_goff *goff, uint64_t offset, rocksdb_writebatch_t *wb)
{
    if (atomic_load(&goff->part->topic->base.deleted))
        return;
    uint8_t key[KEY_MAX], row[8];
    size_t len = offset_key(key, goff->group, goff->part);
    sl_put_u64(row, offset);
    rocksdb_writebatch_put_cf(wb, el->cf[ELOG_CF_OFFSETS], (const char *)key, len,
                              (const char *)row, sizeof row);
}

static void delete_row(elog *el, const elog_goff *goff, rocksdb_writebatch_t *wb)
{
    uint8_t key[KEY_MAX];
    size_t len = offset_key(key, goff->group, goff->part);
    rocksdb_writebatch_delete_cf(wb, el->cf[ELOG_CF_OFFSETS], (const char *)key, len);
}

void elog_offsets_write(elog *el, rocksdb_writebatch_t *wb)
{
    pthread_mutex_lock(&el->groups_lock);
    elog_goff *list = el->dirty;
    el->dirty = NULL;
    while (list != NULL) {
        elog_goff *goff = list;
        list = goff->next_dirty;
        goff->dirty = false;
        if (goff->present)
            elog_goff_write(el, goff, goff->offset, wb);
        else
            delete_row(el, goff, wb);
        // Held until the outcome is known.
        goff->users++;
        if (el->offsets_taken_count == el->offsets_taken_cap) {
            el->offsets_taken_cap = el->offsets_taken_cap == 0 ? 64 : el->offsets_taken_cap * 2;
            el->offsets_taken =
                sl_realloc(el->offsets_taken, el->offsets_taken_cap * sizeof *el->offsets_taken);
        }
        el->offsets_taken[el->offsets_taken_count++] = goff;
    }
    pthread_mutex_unlock(&el->groups_lock);
}

void elog_offsets_written(elog *el, bool ok)
{
    if (el->offsets_taken_count == 0)
        return;
    pthread_mutex_lock(&el->groups_lock);
    for (uint32_t i = 0; i < el->offsets_taken_count; i++) {
        elog_goff *goff = el->offsets_taken[i];
        goff->users--;
        if (!ok)
            mark_dirty(el, goff);
        else
            drop_if_unused(el, goff);
    }
    el->offsets_taken_count = 0;
    pthread_mutex_unlock(&el->groups_lock);
}

/* ---- load and free ---- */

static void load_row(elog *el, sl_slice key, sl_slice row)
{
    if (key.len <= KEY_HEAD || key.len > KEY_MAX || row.len != 8) {
        sl_warn(SL_C_LOG, "LOG-OFFSET-ROW", SL_U("bytes", key.len));
        return;
    }
    elog_topic *tp = elog_topic_by_id(el, sl_get_u32(key.ptr));
    uint16_t partition = sl_get_u16(key.ptr + 4);
    if (tp == NULL || partition >= tp->base.partitions)
        return; // of a topic that was deleted
    char *group = sl_strndup(key.ptr + KEY_HEAD, key.len - KEY_HEAD);
    elog_goff *goff = make_goff(el, group, &tp->parts[partition]);
    goff->offset = sl_get_u64(row.ptr);
    goff->present = true;
    sl_free(group);
}

sl_err elog_offsets_load(elog *el)
{
    el->offsets = sl_map_new(0); // bounded by groups x partitions
    rocksdb_iterator_t *it =
        rocksdb_create_iterator_cf(el->db, el->ro_scan, el->cf[ELOG_CF_OFFSETS]);
    for (rocksdb_iter_seek_to_first(it); rocksdb_iter_valid(it); rocksdb_iter_next(it)) {
        size_t key_len = 0, len = 0;
        const char *key = rocksdb_iter_key(it, &key_len);
        const char *value = rocksdb_iter_value(it, &len);
        load_row(el, sl_slice_of(key, key_len), sl_slice_of(value, len));
    }
    char *message = NULL;
    rocksdb_iter_get_error(it, &message);
    rocksdb_iter_destroy(it);
    return message == NULL ? SL_OK : elog_store_error(message, "LOG-OFFSETS-UNREAD");
}

void elog_offsets_free(elog *el)
{
    size_t pos = 0;
    void *value;
    while (el->offsets != NULL && sl_map_each(el->offsets, &pos, NULL, &value)) {
        elog_goff *goff = value;
        sl_free(goff->group);
        sl_free(goff);
    }
    sl_map_free(&el->offsets);
    sl_free(el->offsets_taken);
    el->offsets_taken = NULL;
}

/* ---- operations ---- */

sl_err elog_group_get(sl_log *log, const char *group, sl_log_topic *topic, uint16_t partition,
                      uint64_t *offset)
{
    const elog_part *part = &((elog_topic *)topic)->parts[partition];
    return elog_goff_get(elog_of(log), group, part, offset) ? SL_OK : SL_ENOTFOUND;
}

sl_err elog_group_set(sl_log *log, const char *group, sl_log_topic *topic, uint16_t partition,
                      uint64_t offset)
{
    elog *el = elog_of(log);
    elog_goff *goff = elog_goff_use(el, group, &((elog_topic *)topic)->parts[partition]);
    elog_goff_set(el, goff, offset);
    elog_goff_unuse(el, &goff);
    return elog_barrier(el, true);
}

sl_err elog_group_delete(sl_log *log, const char *group)
{
    elog *el = elog_of(log);
    bool found = false;
    pthread_mutex_lock(&el->groups_lock);
    size_t pos = 0;
    void *value;
    while (sl_map_each(el->offsets, &pos, NULL, &value)) {
        elog_goff *goff = value;
        if (!goff->present || strcmp(goff->group, group) != 0)
            continue;
        goff->present = false;
        mark_dirty(el, goff);
        found = true;
    }
    pthread_mutex_unlock(&el->groups_lock);
    return found ? elog_barrier(el, true) : SL_ENOTFOUND;
}

typedef struct goff_copy {
    char *group;
    const char *topic;
    uint16_t partition;
    uint64_t offset;
} goff_copy;

void elog_group_each(sl_log *log,
                     void (*fn)(void *arg, const char *group, const char *topic, uint16_t partition,
                                uint64_t offset),
                     void *arg)
{
    elog *el = elog_of(log);
    pthread_mutex_lock(&el->groups_lock);
    goff_copy *copies = sl_calloc(sl_map_count(el->offsets) + 1, sizeof *copies);
    size_t count = 0, pos = 0;
    void *value;
    while (sl_map_each(el->offsets, &pos, NULL, &value)) {
        const elog_goff *goff = value;
        if (!goff->present)
            continue;
        // Topic names live until the log is closed.
        copies[count++] = (goff_copy){sl_strdup(goff->group), goff->part->topic->base.name,
                                      goff->part->partition, goff->offset};
    }
    pthread_mutex_unlock(&el->groups_lock);
    for (size_t i = 0; i < count; i++) {
        fn(arg, copies[i].group, copies[i].topic, copies[i].partition, copies[i].offset);
        sl_free(copies[i].group);
    }
    sl_free(copies);
}
