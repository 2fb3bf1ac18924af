/* SPDX-License-Identifier: Apache-2.0
 *
 * log_crash_verify: opens the store that a crash left and compares it with what was acknowledged.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "log/embedded_kv.h"
#include "log/log_ops.h"
#include "log_crash.h"

typedef struct verifier {
    crash_log cl;
    const crash_acks *acks;
    unsigned faults;
    unsigned checked;
    uint64_t trimmed; /* offsets that retention took */
} verifier;

#define FAULT(vf, ...)                                                                             \
    do {                                                                                           \
        if ((vf)->faults++ < 5) {                                                                  \
            fprintf(stderr, "FAULT " __VA_ARGS__);                                                 \
            fputc('\n', stderr);                                                                   \
        }                                                                                          \
    } while (0)

typedef void record_f(verifier *vf, void *arg, uint16_t partition, const sl_log_record *rec);

/* Calls fn for every record of a partition from an offset to its end; gives their number. */
static uint64_t each_record(verifier *vf, sl_log_topic *topic, uint16_t partition, uint64_t from,
                            record_f *fn, void *arg)
{
    sl_log_consumer *co = NULL;
    const sl_log_consumer_options options = {.max_batch_bytes = 1 << 20};
    if (sl_log_consumer_open(vf->cl.log, &options, &co) != SL_OK ||
        sl_log_consumer_assign(co, topic, partition, from) != SL_OK)
        FAULT(vf, "cannot read %s", sl_log_topic_name(topic));
    uint64_t seen = 0;
    for (;;) {
        sl_log_batch batches[16];
        size_t count = 0;
        if (sl_log_consumer_poll(co, batches, 16, 0, &count) != SL_OK || count == 0)
            break;
        for (size_t i = 0; i < count; i++) {
            sl_log_record rec;
            size_t pos = 0;
            for (; sl_log_batch_next(&batches[i], &pos, &rec); seen++)
                fn(vf, arg, partition, &rec);
            sl_log_batch_release(&batches[i]);
        }
    }
    sl_log_consumer_close(&co);
    return seen;
}

/* ---- topic "all": acknowledged records, offsets and derived rows ---- */

typedef struct all_state {
    uint64_t *found; /* index -> offset + 1 */
    uint64_t next[CRASH_PARTITIONS];
} all_state;

static void on_record(verifier *vf, void *arg, uint16_t partition, const sl_log_record *rec)
{
    all_state *as = arg;
    crash_payload payload;
    if (rec->value.len != sizeof payload) {
        FAULT(vf, "all/%u@%llu has %zu bytes", partition, (unsigned long long)rec->offset,
              rec->value.len);
        return;
    }
    memcpy(&payload, rec->value.ptr, sizeof payload);
    if (payload.index >= CRASH_RECORDS || payload.check != crash_check(payload.index))
        FAULT(vf, "all/%u@%llu is damaged", partition, (unsigned long long)rec->offset);
    else
        as->found[payload.index] = rec->offset + 1;
    if (rec->offset < as->next[partition])
        FAULT(vf, "all/%u@%llu is out of order", partition, (unsigned long long)rec->offset);
    as->next[partition] = rec->offset + 1;
}

static void verify_acked(verifier *vf, const all_state *as, const uint64_t *starts)
{
    uint64_t issued = atomic_load(&vf->acks->issued);
    for (uint64_t i = 0; i < issued; i++) {
        uint64_t offset = atomic_load(&vf->acks->offset[i]);
        if (offset == 0 || !crash_is_durable(i))
            continue;
        vf->checked++;
        if (offset - 1 >= starts[i % CRASH_PARTITIONS] && as->found[i] != offset)
            FAULT(vf, "record %llu was acknowledged at offset %llu, found %lld",
                  (unsigned long long)i, (unsigned long long)offset - 1,
                  (long long)as->found[i] - 1);
    }
}

typedef struct derived_state {
    uint8_t *rows[CRASH_PARTITIONS]; /* bit 1: kv row, bit 2: derived record */
    uint64_t len[CRASH_PARTITIONS];
} derived_state;

static void mark_derived(derived_state *ds, uint64_t partition, uint64_t offset, uint8_t bit)
{
    if (partition < CRASH_PARTITIONS && offset < ds->len[partition])
        ds->rows[partition][offset] |= bit;
}

static bool on_kv(void *arg, sl_slice key, sl_slice value)
{
    uint64_t numbers[2];
    (void)value;
    memcpy(numbers, key.ptr, sizeof numbers);
    mark_derived(arg, numbers[0], numbers[1], 1);
    return true;
}

static void on_app(verifier *vf, void *arg, uint16_t partition, const sl_log_record *rec)
{
    crash_payload payload = {0};
    (void)partition;
    if (rec->value.len == sizeof payload)
        memcpy(&payload, rec->value.ptr, sizeof payload);
    if (!rec->is_derived || rec->value.len != sizeof payload ||
        payload.check != crash_check(payload.index) ||
        payload.index % CRASH_PARTITIONS != rec->source_partition)
        FAULT(vf, "app@%llu is not whole", (unsigned long long)rec->offset);
    mark_derived(arg, rec->source_partition, rec->source_offset, 2);
}

/* A committed offset says: everything below has its derived rows. */
static void verify_derived(verifier *vf, bool retention)
{
    derived_state ds = {.len = {0}};
    uint64_t committed[CRASH_PARTITIONS] = {0}, app_from = 0;
    for (uint16_t i = 0; i < CRASH_PARTITIONS; i++) {
        (void)!sl_log_group_get(vf->cl.log, "dispatch", vf->cl.all, i, &committed[i]);
        ds.len[i] = committed[i];
        ds.rows[i] = sl_calloc(1, committed[i] + 1);
    }
    sl_embedded_kv *kv = NULL;
    if (sl_embedded_kv_open(vf->cl.log, "inbox", &kv) != SL_OK ||
        sl_embedded_kv_scan(kv, sl_slice_str(""), sl_slice_str(""), on_kv, &ds) != SL_OK)
        FAULT(vf, "kv rows cannot be read");
    sl_log_partition_info info;
    if (sl_log_topic_describe(vf->cl.app, 0, &info) != SL_OK)
        FAULT(vf, "describe");
    app_from = info.start;
    // With retention, references below the reader's offset may have lost their source.
    if (retention)
        (void)!sl_log_group_get(vf->cl.log, "app-reader", vf->cl.app, 0, &app_from);
    uint64_t seen = each_record(vf, vf->cl.app, 0, app_from, on_app, &ds);
    if (app_from < info.written && seen != info.written - app_from)
        FAULT(vf, "app: %llu of %llu records can be read", (unsigned long long)seen,
              (unsigned long long)(info.written - app_from));
    if (app_from > info.written)
        FAULT(vf, "app: committed %llu of %llu", (unsigned long long)app_from,
              (unsigned long long)info.written);
    uint8_t want = retention ? 1 : 3;
    for (uint16_t i = 0; i < CRASH_PARTITIONS; i++) {
        for (uint64_t k = 0; k < ds.len[i]; k++, vf->checked++)
            if ((ds.rows[i][k] & want) != want)
                FAULT(vf, "committed %llu of all/%u, but offset %llu has rows %u",
                      (unsigned long long)committed[i], i, (unsigned long long)k, ds.rows[i][k]);
        sl_free(ds.rows[i]);
    }
}

static void verify_all(verifier *vf, bool retention)
{
    all_state as = {.found = sl_calloc(CRASH_RECORDS, sizeof(uint64_t))};
    uint64_t starts[CRASH_PARTITIONS];
    for (uint16_t i = 0; i < CRASH_PARTITIONS; i++) {
        sl_log_partition_info info;
        uint64_t committed = 0;
        if (sl_log_topic_describe(vf->cl.all, i, &info) != SL_OK)
            FAULT(vf, "describe");
        starts[i] = info.start;
        vf->trimmed += info.start;
        (void)!sl_log_group_get(vf->cl.log, "dispatch", vf->cl.all, i, &committed);
        if (info.start > committed)
            FAULT(vf, "all/%u begins at %llu, the pinned group is at %llu", i,
                  (unsigned long long)info.start, (unsigned long long)committed);
        if (committed > info.written)
            FAULT(vf, "all/%u: committed %llu of %llu", i, (unsigned long long)committed,
                  (unsigned long long)info.written);
        each_record(vf, vf->cl.all, i, 0, on_record, &as);
    }
    verify_acked(vf, &as, starts);
    verify_derived(vf, retention);
    sl_free(as.found);
}

/* ---- rows and ids ---- */

static void on_row(verifier *vf, void *arg, uint16_t partition, const sl_log_record *rec)
{
    uint64_t *values = arg; /* write + 1 */
    uint64_t key = 0, write = 0;
    (void)partition;
    if (rec->key.len != 8 || (rec->value.len != 8 && rec->value.len != 0)) {
        FAULT(vf, "a row is damaged");
        return;
    }
    memcpy(&key, rec->key.ptr, 8);
    if (rec->value.len == 8)
        memcpy(&write, rec->value.ptr, 8);
    if (key < CRASH_KEYS)
        values[key] = rec->value.len == 0 ? 0 : write + 1;
}

/* A key holds its last acknowledged write or one that came behind it. */
static void verify_rows(verifier *vf)
{
    uint64_t values[CRASH_KEYS] = {0};
    uint64_t issued = atomic_load(&vf->acks->rows_issued);
    each_record(vf, vf->cl.rows, 0, 0, on_row, values);
    for (uint64_t key = 0; key < CRASH_KEYS; key++) {
        bool legal = true, absent_legal = true;
        for (uint64_t write = key; write < issued; write += CRASH_KEYS) {
            if (atomic_load(&vf->acks->row_acked[write])) {
                legal = false; // everything before this one is replaced
                absent_legal = false;
            }
            legal = legal || (values[key] == write + 1 && !crash_is_removal(write));
            absent_legal = absent_legal || crash_is_removal(write);
            vf->checked++;
        }
        if (values[key] == 0 ? !absent_legal : !legal)
            FAULT(vf, "row %llu holds write %lld, which was replaced", (unsigned long long)key,
                  (long long)values[key] - 1);
    }
}

static void on_q2(verifier *vf, void *arg, uint16_t partition, const sl_log_record *rec)
{
    uint8_t *state = arg;
    uint32_t id = 0;
    (void)partition;
    memcpy(&id, rec->value.ptr, rec->value.len == 4 ? 4 : 0);
    if (id == 0 || id > CRASH_IDS)
        FAULT(vf, "a QoS 2 record is damaged");
    else
        state[id] |= 1;
}

static void on_open_id(void *arg, uint16_t packet_id)
{
    ((uint8_t *)arg)[packet_id] |= 2;
}

static void verify_ids(verifier *vf)
{
    uint8_t *state = sl_calloc(65536, 1); /* bit 1: record stored, bit 2: id open */
    uint32_t issued = atomic_load(&vf->acks->ids_issued);
    each_record(vf, vf->cl.q2, 0, 0, on_q2, state);
    if (sl_log_qos2_load(vf->cl.log, sl_slice_str("client"), on_open_id, state) != SL_OK)
        FAULT(vf, "ledger");
    for (uint32_t id = 1; id <= issued; id++, vf->checked++) {
        bool stored = (state[id] & 1) != 0, open = (state[id] & 2) != 0;
        if (atomic_load(&vf->acks->id_acked[id]) && !stored)
            FAULT(vf, "QoS 2 record %u was acknowledged and is lost", id);
        if (open && !stored)
            FAULT(vf, "QoS 2 id %u is open without its record", id);
        if (stored && !open && !atomic_load(&vf->acks->release_issued[id]))
            FAULT(vf, "QoS 2 record %u is stored, its id is not open", id);
        if (open && atomic_load(&vf->acks->release_acked[id]))
            FAULT(vf, "QoS 2 id %u is open after its acknowledged release", id);
    }
    sl_free(state);
}

unsigned crash_verify(const char *dir, const crash_acks *acks, bool retention)
{
    verifier vf = {.acks = acks};
    crash_log_open(&vf.cl, dir, retention);
    verify_all(&vf, retention);
    verify_rows(&vf);
    verify_ids(&vf);
    sl_log_close(&vf.cl.log);
    fprintf(stderr, "checked %u, trimmed %llu, faults %u\n", vf.checked,
            (unsigned long long)vf.trimmed, vf.faults);
    // A run that checked nothing proves nothing.
    if (atomic_load(&acks->ready) && vf.checked == 0)
        vf.faults++;
    return vf.faults;
}
