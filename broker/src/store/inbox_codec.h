/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox_codec: keys and values of the embedded inbox. Private to it; pure.
 *
 *   key     client length u16, client, kind u8, then
 *   meta    -                                 generation u64, last row u64, first row u64, count
 * u32 source  origin u64, partition u16         offset u64, row u64 row     row u64 kind u8, qos
 * u8, flags u8, expires at i64, time i64, PUBLISH packet (not in a PUBREL marker)
 *
 * Every value begins with a version byte; numbers are big endian. The length in front keeps the
 * rows of one client together and apart from every other's, whatever bytes an id has.
 */
#ifndef SL_STORE_INBOX_CODEC_H
#define SL_STORE_INBOX_CODEC_H

#include "store/inbox.h"

#define INBOX_KEY_MAX      (2 + SL_INBOX_MAX_CLIENT_BYTES + 1 + 10)
#define INBOX_META_BYTES   29
#define INBOX_SOURCE_BYTES 17
#define INBOX_ROW_HEAD     20

typedef enum inbox_key_kind {
    INBOX_KEY_META = 1,
    INBOX_KEY_SOURCE = 2,
    INBOX_KEY_ROW = 3,
    INBOX_KEY_END = 4 /* behind everything of the client */
} inbox_key_kind;

typedef struct inbox_meta {
    uint64_t generation; /* 0: the box is not there */
    uint64_t last_row;   /* given out last; 0 none */
    uint64_t first_row;  /* first live one; 0 when the box is empty */
    uint32_t count;
} inbox_meta;

typedef struct inbox_source {
    uint64_t origin;
    uint16_t partition;
    uint64_t offset; /* last one taken */
    uint64_t row;    /* the last row when it was: tells which source is the oldest */
} inbox_source;

/** Bytes of a key; out has room for 2 + client.len + 11. number and partition: as the kind needs
 * them (row; origin and partition). */
size_t inbox_key(uint8_t *out, sl_slice client, inbox_key_kind kind, uint64_t number,
                 uint16_t partition);
/** The kind of one of our keys of a client whose id is client_len bytes long, and its numbers. */
inbox_key_kind inbox_key_parse(sl_slice key, size_t client_len, uint64_t *number,
                               uint16_t *partition);

void inbox_meta_encode(const inbox_meta *meta, uint8_t out[INBOX_META_BYTES]);
/** Errors SL_ECORRUPT. */
SL_MUST_USE sl_err inbox_meta_decode(sl_slice value, inbox_meta *out);
void inbox_source_encode(const inbox_source *so, uint8_t out[INBOX_SOURCE_BYTES]);
SL_MUST_USE sl_err inbox_source_decode(sl_slice value, inbox_source *out);

void inbox_row_encode(const sl_inbox_entry *entry, uint8_t out[INBOX_ROW_HEAD]);
/** packet is a slice of value; row and packet id are the caller's. Errors SL_ECORRUPT. */
SL_MUST_USE sl_err inbox_row_decode(sl_slice value, sl_inbox_entry *out);

#endif
