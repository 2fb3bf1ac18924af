/* SPDX-License-Identifier: Apache-2.0
 *
 * batch: the format of a packed record batch, the unit that the embedded log writes and reads: the
 * value of one row of the store and, the same bytes, one buffer of the in-memory ring.
 *
 *   header (32 bytes, big endian)
 *     magic u8 'S' | version u8 1 | hints u8 | 0 u8 | checksum u32 (XXH3)
 *     base offset u64 | base time i64 | count u32 | size u32 (bytes, header included)
 *   record, count times
 *     [offset u64, only in a batch of rows] flags u8 | attr u8 | varints: time - base time
 * (zigzag), key length, headers length, value length | [source 14 bytes, only if derived] key |
 * headers (id u8, length u16, bytes; each) | value (absent in a reference)
 *
 * Pure: no I/O, no threads of its own. Called by the embedded adapter and its tests.
 */
#ifndef SL_LOG_BATCH_H
#define SL_LOG_BATCH_H

#include "log/log.h"

#define SL_BATCH_HEADER_BYTES 32

/* Hints: what a batch holds, so that a reader may skip it whole. */
enum {
    SL_BATCH_VOLATILE = 1, /* at least one volatile record */
    SL_BATCH_DURABLE = 2,  /* at least one durable record */
    SL_BATCH_REFS = 4,     /* at least one reference */
    SL_BATCH_ROWS = 8      /* each record carries its offset (compacted snapshots) */
};

/* Record flags beside SL_LOG_VOLATILE and SL_LOG_DURABLE; exactly one of those two is set. */
enum {
    SL_BATCH_DERIVED = 0x10,  /* carries a source position */
    SL_BATCH_REFERENCE = 0x20 /* and takes its value, time and more headers from there */
};

typedef struct sl_batch_source {
    uint32_t topic_id;
    uint16_t partition;
    uint64_t offset;
} sl_batch_source;

/* One record as it stands in a batch, references not resolved. Slices into the batch. */
typedef struct sl_batch_record {
    uint64_t offset;
    sl_wall_ms time_ms;
    uint8_t flags;
    uint8_t attr;
    sl_slice key;
    sl_slice headers;
    sl_slice value;
    sl_batch_source source; /* if SL_BATCH_DERIVED */
} sl_batch_record;

typedef struct sl_batch_info {
    uint64_t base;
    sl_wall_ms base_time;
    uint32_t count;
    uint32_t size;
    uint8_t hints;
} sl_batch_info;

/* A batch being filled. */
typedef struct sl_batch_fill {
    sl_rbuf *buf; /* owned until taken; NULL before the first record */
    sl_wall_ms base_time;
    uint32_t count;
    uint8_t hints;
} sl_batch_fill;

/* What a record is made of when it is appended: pieces are concatenated. */
typedef struct sl_batch_parts {
    uint8_t flags;
    uint8_t attr;
    sl_wall_ms time_ms;
    sl_slice key;
    const sl_log_header *headers; /* encoded first */
    uint32_t header_count;
    sl_slice raw_headers; /* already encoded, put behind them */
    const sl_slice *value;
    uint32_t value_count;
    const sl_batch_source *source; /* if SL_BATCH_DERIVED */
} sl_batch_parts;

/** Most bytes that sl_batch_append can need for the record. @thread any */
size_t sl_batch_record_bound(const sl_batch_parts *parts);
/** Appends a record. The buffer is made or grown (to need or first_cap bytes at least).
 * with_offset: the batch is one of rows and this is the record's offset. @thread fill's owner */
void sl_batch_append(sl_batch_fill *fill, const sl_batch_parts *parts, size_t first_cap,
                     const uint64_t *with_offset);
/** Writes the header: base offset, counts, checksum. The batch is complete. */
void sl_batch_finish(sl_batch_fill *fill, uint64_t base);
/** A complete one-record batch (a row of a compacted topic) around an encoded record; writes the
 * header into out. @thread any */
void sl_batch_row_header(uint8_t out[SL_BATCH_HEADER_BYTES], sl_slice record, uint64_t offset,
                         sl_wall_ms base_time, uint8_t hints);

/** Reads the header. full: checksum and size are verified too.
 * Errors SL_ECORRUPT: not a batch, or damaged. @thread any */
SL_MUST_USE sl_err sl_batch_open(sl_slice bytes, bool full, sl_batch_info *out);
/** Steps through the records; *pos starts at 0 and means nothing to the caller. False at the end,
 * and at a record that leaves the batch (cannot happen once `full` was verified). @thread any */
bool sl_batch_next(sl_slice bytes, const sl_batch_info *info, uint64_t *pos, sl_batch_record *out);
/** The encoded bytes of the record that ended at *pos (the step before began at *from).
 * @thread any */
sl_slice sl_batch_span(sl_slice bytes, uint64_t from, uint64_t pos);

#endif
