/* SPDX-License-Identifier: Apache-2.0
 *
 * elog_fn: the functions of the embedded log's files that other files of it (and its tests) call.
 */
#ifndef SL_LOG_ELOG_FN_H
#define SL_LOG_ELOG_FN_H

#include "log/elog.h"
#include "log/embedded_kv.h"

/* ---- log_embedded_store.c: RocksDB, its options and column families ---- */

/** Takes the folder's lock and opens the store. As sl_log_open. @thread init */
SL_MUST_USE sl_err elog_store_open(elog *el, char **why);
/** flush: write the memtables out, so that the next start replays nothing. @thread init */
void elog_store_close(elog *el, bool flush);
/** The column family of this name, made when missing. @locks topics_lock @thread init, pool */
SL_MUST_USE sl_err elog_store_cf(elog *el, const char *name, rocksdb_column_family_handle_t **out);
/** Drops a column family for good. @locks topics_lock */
void elog_store_cf_drop(elog *el, rocksdb_column_family_handle_t *cf);
/** Drops the partitions' families that no topic asked for: the creation of their topic was cut
 * short. After all topics were loaded. @thread init */
void elog_store_drop_unused(elog *el);
/** Frees a RocksDB message after logging it under this event; gives what kind it is. */
sl_err elog_store_error(char *message, const char *event);
/** What kind of error a RocksDB message is. @thread any */
sl_err elog_store_error_kind(const char *message);
/** Writes a batch, without a sync. Every write of the log goes through here: it keeps writes and
 * syncs apart while there is little room, and notes failures.
 * Errors SL_ENOSPC heals; SL_EIO, SL_ECORRUPT do not (elog_fail). @thread any */
SL_MUST_USE sl_err elog_store_write(elog *el, rocksdb_writebatch_t *wb);
/** Makes durable what was written. Errors as elog_store_write; SL_ENOSPC also while a write
 * failed and none succeeded since. @thread syncer */
SL_MUST_USE sl_err elog_store_sync(elog *el);
/** Key of a batch in the store. @thread any */
void elog_key(uint8_t out[ELOG_KEY_BYTES], const elog_part *part, uint64_t offset);

/* ---- log_embedded_topics.c ---- */

SL_MUST_USE sl_err elog_topics_load(elog *el, char **why);
void elog_topics_free(elog *el);
SL_MUST_USE sl_err elog_topic_open(sl_log *log, const sl_log_topic_spec *spec, sl_log_topic **out);
SL_MUST_USE sl_err elog_topic_delete(sl_log *log, const char *name);
SL_MUST_USE sl_err elog_topic_describe(sl_log_topic *topic, uint16_t partition,
                                       sl_log_partition_info *out);
void elog_topic_each(sl_log *log, void (*fn)(void *arg, const sl_log_topic_spec *spec), void *arg);
/** NULL when it never existed; deleted ones are found. @thread any */
elog_topic *elog_topic_by_id(elog *el, uint32_t id);
/** Puts the row that says: this topic may hold references. @thread writer */
void elog_topic_note_refs(elog_topic *tp, rocksdb_writebatch_t *wb);

/* ---- log_embedded_ring.c: the ring of a partition; all with the part lock ---- */

void elog_ring_push(elog_ring *ring, const elog_entry *entry);
/** Index behind first of the first entry that ends above offset; count when there is none. */
uint32_t elog_ring_find(const elog_ring *ring, uint64_t offset);
const elog_entry *elog_ring_at(const elog_ring *ring, uint32_t index);
/** Takes out the oldest; the caller has its reference. */
elog_entry elog_ring_pop(elog_ring *ring);
void elog_ring_clear(elog_ring *ring);

/* ---- log_embedded_producer.c ---- */

SL_MUST_USE sl_err elog_producer_open(sl_log *log, const sl_log_producer_options *options,
                                      sl_log_producer **out);
void elog_producer_close(sl_log_producer *pr);
SL_MUST_USE sl_err elog_append(sl_log_producer *pr, sl_log_topic *topic, uint16_t partition,
                               const sl_log_record_in *record, const sl_log_qos2 *open,
                               uint64_t token);
SL_MUST_USE sl_err elog_append_derived(sl_log_producer *pr, sl_log_topic *target,
                                       uint16_t partition, const sl_log_topic *source_topic,
                                       uint16_t source_partition, const sl_log_record *source,
                                       const sl_log_record_in *record, uint64_t token);
size_t elog_producer_drain(sl_log_producer *pr);
/** Queues rows (ops of log_embedded_ops.c) of one class; need: bytes that fill() puts.
 * Errors SL_EAGAIN, SL_ENOSPC (unless always), SL_EIO. @thread the producer's */
SL_MUST_USE sl_err elog_queue_ops(elog_producer *pr, elog_class cls, size_t need, bool always,
                                  bool durable, bool with_ack, uint64_t token,
                                  void (*fill)(void *arg, uint8_t *at), void *arg);
/** The writer takes what is queued: everything, or about a commit's share of the main class.
 * Puts the segments at *tail. True when something stayed. @locks takes the producer's */
bool elog_producer_take(elog_producer *pr, bool everything, elog_segment ***tail);
/** Moves segments on and wakes their owners. @thread writer, syncer */
void elog_segments_done(elog *el, elog_segment *list, bool durable);

/* ---- log_embedded_ops.c: rows that ride in a commit ---- */

enum {
    ELOG_OP_PUT = 1,
    ELOG_OP_DELETE,
    ELOG_OP_DELETE_RANGE,
    ELOG_OP_LEDGER_OPEN,
    ELOG_OP_LEDGER_RELEASE,
    ELOG_OP_GOFF
};

size_t elog_op_row_bytes(size_t key_len, size_t value_len);
uint8_t *elog_op_put_row(uint8_t *at, uint8_t kind, rocksdb_column_family_handle_t *cf,
                         sl_slice key, const sl_slice *value, size_t value_count);
size_t elog_op_ledger_bytes(sl_slice client);
uint8_t *elog_op_put_ledger(uint8_t *at, uint8_t kind, sl_slice client, uint16_t packet_id);
#define ELOG_OP_GOFF_BYTES 17
uint8_t *elog_op_put_goff(uint8_t *at, elog_goff *goff, uint64_t offset);
/** Puts a segment's rows into the batch. @thread writer */
void elog_ops_write(elog *el, const elog_segment *seg, rocksdb_writebatch_t *wb);
/** Takes back what failed rows had changed in memory (the ledger). @thread writer */
void elog_ops_undo(elog *el, const elog_segment *seg);

/* ---- log_embedded_ledger.c ---- */

SL_MUST_USE sl_err elog_ledger_load(elog *el);
void elog_ledger_free(elog *el);
void elog_ledger_set(elog *el, sl_slice client, uint16_t packet_id, bool open);
SL_MUST_USE sl_err elog_qos2_release(sl_log_producer *pr, sl_slice client, uint16_t packet_id,
                                     uint64_t token);
SL_MUST_USE sl_err elog_qos2_clear(sl_log_producer *pr, sl_slice client, uint64_t token);
SL_MUST_USE sl_err elog_qos2_load(sl_log *log, sl_slice client,
                                  void (*fn)(void *arg, uint16_t packet_id), void *arg);

/* ---- log_embedded_writer.c ---- */

SL_MUST_USE sl_err elog_writer_start(elog *el);
void elog_writer_stop(elog *el);
/** There is work; hurry: do not gather. @thread any */
void elog_writer_wake(elog *el, bool hurry);
/** Everything queued before is written, and durable if asked. @thread any but a loop */
SL_MUST_USE sl_err elog_barrier(elog *el, bool durable);
/** A fault that only a restart heals. @thread writer, syncer */
void elog_fail(elog *el, sl_err err, const char *event, const char *message);

/* ---- log_embedded_sync.c ---- */

/** Takes a written commit. @thread writer */
void elog_sync_push(elog *el, elog_commit **cm);
/** Waits while more than max_bytes wait for a sync. @thread writer */
void elog_sync_backlog(elog *el, size_t max_bytes);
/** Waits for a barrier. @thread any but writer, syncer */
SL_MUST_USE sl_err elog_sync_wait(elog *el, uint64_t barrier, bool durable);
void elog_sync_main(void *arg);

/* ---- log_embedded_reader.c ---- */

SL_MUST_USE sl_err elog_consumer_open(sl_log *log, const sl_log_consumer_options *options,
                                      sl_log_consumer **out);
void elog_consumer_close(sl_log_consumer *co);
SL_MUST_USE sl_err elog_consumer_assign(sl_log_consumer *co, sl_log_topic *topic,
                                        uint16_t partition, uint64_t offset);
SL_MUST_USE sl_err elog_consumer_unassign(sl_log_consumer *co, sl_log_topic *topic,
                                          uint16_t partition);
SL_MUST_USE sl_err elog_consumer_poll(sl_log_consumer *co, sl_log_batch *batches, size_t max,
                                      sl_dur_ms wait_ms, size_t *count);
void elog_consumer_interrupt(sl_log_consumer *co);
void elog_consumer_pause(sl_log_consumer *co, sl_log_topic *topic, uint16_t partition, bool pause);
SL_MUST_USE sl_err elog_consumer_commit(sl_log_consumer *co, sl_log_topic *topic,
                                        uint16_t partition, uint64_t offset);
/** New records for this sub. @locks the part's held, takes the consumer's */
void elog_sub_notify(elog_sub *sub);
/** The assignment of this consumer changed. @thread any */
void elog_consumer_nudge(elog_consumer *co);

/* ---- log_embedded_fetch.c: what a poll reads ---- */

typedef struct elog_fetch {
    sl_log_batch *batches;
    size_t max;
    size_t count;
    size_t bytes_left;
} elog_fetch;

/** Adds what is there for this sub. *more: there was more than fits. @thread the consumer's */
SL_MUST_USE sl_err elog_fetch_sub(elog_sub *sub, elog_fetch *fe, bool *more);
/** The batch of the store that holds offset, or the first one behind it below end. A copy.
 * Errors SL_ENOTFOUND; damaged batches are counted, logged and passed over. @thread any */
SL_MUST_USE sl_err elog_store_read(elog *el, const elog_part *part, uint64_t offset, uint64_t end,
                                   sl_rbuf **out, sl_batch_info *info);

/* ---- log_embedded_batch.c: records of a batch in a reader's hands ---- */

typedef struct elog_resolver elog_resolver;
/** What resolves the references of this batch of part; NULL when it has none. @thread any */
elog_resolver *elog_resolver_new(elog *el, elog_part *part, const sl_rbuf *buf);
void elog_resolver_free(elog_resolver **rs);
/** Fills key, value, headers, time and body of a reference from its source; out->key and
 * out->headers are the reference's own before. What they point to lives as long as rs.
 * False: the source is gone. @thread the resolver's */
bool elog_resolve(elog_resolver *rs, const sl_batch_record *ref, sl_log_record *out);
void elog_batch_release(sl_log_batch *batch);
bool elog_batch_next(const sl_log_batch *batch, size_t *pos, sl_log_record *out);

/* ---- log_embedded_rows.c: compacted topics ---- */

/** Puts the rows of a chunk of a compacted partition. @thread writer */
void elog_rows_write(elog *el, elog_chunk *ch, rocksdb_writebatch_t *wb);
/** Removes empty rows that every reader has passed. @thread writer */
void elog_rows_collect(elog *el, elog_part *part, rocksdb_writebatch_t *wb);
/** Rows for a sub in snapshot. @thread the consumer's */
SL_MUST_USE sl_err elog_rows_fetch(elog_sub *sub, elog_fetch *fe, bool *more);
/** Begins a snapshot of what changed since the sub's cursor. @thread the consumer's */
void elog_rows_restart(elog_sub *sub);
/** The keeper's search for empty rows that are not remembered. @thread keeper */
void elog_rows_sweep(elog *el, elog_part *part);

/* ---- log_embedded_group.c ---- */

SL_MUST_USE sl_err elog_offsets_load(elog *el);
void elog_offsets_free(elog *el);
/** The entry of a group at a partition, made when missing; one more user. @thread any */
elog_goff *elog_goff_use(elog *el, const char *group, elog_part *part);
void elog_goff_unuse(elog *el, elog_goff **goff);
/** True and the offset when the group committed there. @thread any */
bool elog_goff_get(elog *el, const char *group, const elog_part *part, uint64_t *offset);
void elog_goff_set(elog *el, elog_goff *goff, uint64_t offset);
/** Memory only: the row is queued already. @thread any */
void elog_goff_set_memory(elog *el, elog_goff *goff, uint64_t offset);
/** Forgets all offsets of a topic. @thread any */
void elog_offsets_drop_topic(elog *el, elog_topic *tp);
/** Puts the offsets that changed into the batch. @thread writer */
void elog_offsets_write(elog *el, rocksdb_writebatch_t *wb);
/** What became of the batch they went into. @thread writer */
void elog_offsets_written(elog *el, bool ok);
void elog_goff_write(elog *el, const elog_goff *goff, uint64_t offset, rocksdb_writebatch_t *wb);
SL_MUST_USE sl_err elog_group_get(sl_log *log, const char *group, sl_log_topic *topic,
                                  uint16_t partition, uint64_t *offset);
SL_MUST_USE sl_err elog_group_set(sl_log *log, const char *group, sl_log_topic *topic,
                                  uint16_t partition, uint64_t offset);
SL_MUST_USE sl_err elog_group_delete(sl_log *log, const char *group);
void elog_group_each(sl_log *log,
                     void (*fn)(void *arg, const char *group, const char *topic, uint16_t partition,
                                uint64_t offset),
                     void *arg);

/* ---- log_embedded_assign.c: members of groups in this process ---- */

SL_MUST_USE sl_err elog_subscribe(sl_log_consumer *co, sl_log_topic *topic,
                                  sl_log_assign_f *on_assign, void *arg);
/** Acts on changes of the assignment; calls on_assign. @thread the consumer's */
void elog_assign_act(elog_consumer *co);
/** Leaves all groups. @thread the consumer's */
void elog_assign_leave(elog_consumer *co);

/* ---- log_embedded_retention.c, log_embedded_copyout.c, log_embedded_keeper.c ---- */

SL_MUST_USE sl_err elog_keeper_start(elog *el);
void elog_keeper_stop(elog *el);
/** One look at the free space. @thread keeper, tests */
void elog_space_check(elog *el);
/** One pass over all topics. @thread keeper, tests */
void elog_retention_run(elog *el);
/** Notes what a written chunk stores and refers to. @locks part lock @thread writer */
void elog_marks_add(elog_part *part, uint64_t end, uint64_t bytes);
void elog_refs_add(elog_part *part, const elog_chunk *ch);
/** Replaces references of part, at or above live, to what retention is about to take by copies;
 * stops when the budget is used up. @thread keeper */
void elog_copy_out(elog *el, elog_part *part, uint64_t live, size_t *budget);
/** Estimates what is stored of a partition that was just opened. @thread init */
void elog_marks_load(elog *el, elog_part *part);

/* ---- log_embedded_kv.c ---- */

void elog_kv_free(elog *el);

#endif
