/* SPDX-License-Identifier: Apache-2.0
 *
 * document: one message in the shape in which every sink stores it, its identifier, and its two
 * text forms: MongoDB Extended JSON v2 (relaxed), as the SQLite sink keeps it and the dead-letter
 * file writes it, and back. Not BSON: sink_mongo.c makes that from the same fields. Made and used
 * on writer threads; a document has one owner at a time.
 */
#ifndef SL_GATEWAY_DOCUMENT_H
#define SL_GATEWAY_DOCUMENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/slice.h"
#include "message.h"

/* The types an identifier may have. Numbers are one family, as for MongoDB: 1, 1.0 and 1e0 are the
 * same identifier, "1" and true are others. Each number has exactly one form here: whole ones in
 * the range of int64 are INT64, others of at most 15 significant digits DOUBLE, the rest DECIMAL.
 */
typedef enum sl_doc_id_kind {
    SL_DOC_ID_OID,    /* 12 bytes; made here, or {"$oid":"..."} of the payload */
    SL_DOC_ID_STRING, /* UTF-8, may hold NUL, 1..SL_DOC_ID_MAX_BYTES */
    SL_DOC_ID_INT64,
    SL_DOC_ID_DOUBLE,
    SL_DOC_ID_DECIMAL, /* at most 34 digits, in the range of Decimal128 */
    SL_DOC_ID_BOOL
} sl_doc_id_kind;

#define SL_DOC_OID_BYTES    12
#define SL_DOC_ID_MAX_BYTES 8192 /* a longer identifier is unusable */

typedef struct sl_doc_id {
    sl_doc_id_kind kind;
    uint8_t oid[SL_DOC_OID_BYTES];
    int64_t num;   /* INT64; BOOL: 0 or 1 */
    double real;   /* DOUBLE */
    sl_slice text; /* for people: the string, canonical number, true/false, 24 hex digits */
    sl_slice key;  /* type letter + text: equal keys = equal identifiers. text lies inside it */
    uint8_t *_mem; /* owned: key */
} sl_doc_id;

/**
 * Makes an identifier of the JSON text of a value. Unusable (object other than {"$oid"}, array,
 * null, "", over-long, a number beyond Decimal128) is SL_EINVAL and *out is untouched.
 * Ownership  *out is freed by sl_doc_id_fini.
 * @thread    any
 */
SL_MUST_USE sl_err sl_doc_id_from_json(sl_slice value, sl_doc_id *out);
/** Of a decimal number text, and of bytes of the other kinds (a sink reads identifiers back). */
SL_MUST_USE sl_err sl_doc_id_from_number(sl_slice text, sl_doc_id *out);
SL_MUST_USE sl_err sl_doc_id_from_string(sl_slice text, sl_doc_id *out);
void sl_doc_id_from_bool(bool value, sl_doc_id *out);
void sl_doc_id_from_oid(const uint8_t oid[SL_DOC_OID_BYTES], sl_doc_id *out);
void sl_doc_id_fini(sl_doc_id *id);

/* ObjectIds of this process: seconds, five random bytes, a counter. */
typedef struct sl_oid_source {
    uint8_t _random[5];
    _Atomic uint32_t _next;
} sl_oid_source;

/** @thread init */
void sl_oid_source_init(sl_oid_source *src);
/** @thread any */
void sl_oid_source_next(sl_oid_source *src, int64_t wall_ns, uint8_t out[SL_DOC_OID_BYTES]);

/* What happens when the identifier is stored already under the same topic. */
typedef enum sl_doc_mode {
    SL_DOC_INSERT,          /* nothing: it is a duplicate */
    SL_DOC_REPLACE,         /* the stored document is replaced */
    SL_DOC_REPLACE_IF_NEWER /* ... unless it was received later than this one (replay) */
} sl_doc_mode;

typedef struct sl_document {
    sl_doc_id id;
    sl_doc_mode mode;
    bool is_text; /* payload is UTF-8 and stored as a string; else as binary */
    bool retain;
    uint8_t qos;
    int64_t received_at_ns;
    sl_slice topic;
    sl_slice payload;
    sl_message_props props;   /* has == 0: no mqtt5 object */
    sl_message *_msg;         /* owned reference the slices point into, or NULL */
    uint8_t *_mem;            /* owned: what they point into otherwise */
    sl_mqtt_user_prop *_user; /* owned with _mem: props.user */
} sl_document;

/* Why and where a document was given up: the "_deadLetter" object of its line. */
typedef struct sl_doc_fate {
    int64_t at_ns;      /* wall time */
    const char *reason; /* "id-conflict", "expired", ... */
    int code;           /* the store's own error number, 0: none */
    uint32_t attempts;
    const char *database;
    const char *collection;
} sl_doc_fate;

typedef enum sl_id_strategy { SL_ID_AUTO, SL_ID_PAYLOAD_FIELD } sl_id_strategy;

/**
 * The document of a message. With SL_ID_PAYLOAD_FIELD the identifier is the value of field (a
 * dotted path) in a JSON payload and the mode REPLACE; without a usable one *id_missing is set and
 * the document is a plain insert under a new ObjectId, as with SL_ID_AUTO.
 * Ownership  takes a reference of msg; free with sl_document_free.
 * @thread    any
 */
sl_document *sl_document_new(sl_message *msg, sl_id_strategy strategy, const char *field,
                             sl_oid_source *src, bool *id_missing);
void sl_document_free(sl_document **doc);

/** Appends bytes that are equal for two documents exactly when identifier and topic are. @thread
 * any
 */
SL_MUST_USE sl_err sl_document_write_identity(const sl_document *doc, sl_buf *out);
/** Milliseconds since 1970, and the nanoseconds below them (0..999999). @thread any */
int64_t sl_document_received_ms(const sl_document *doc);
int32_t sl_document_received_nanos(const sl_document *doc);
/** expiresAt in milliseconds; only with SL_PROP_MESSAGE_EXPIRY in props.has. @thread any */
int64_t sl_document_expires_ms(const sl_document *doc);
/** Bytes that its extended JSON takes at most, fate included. @thread any */
size_t sl_document_json_bound(const sl_document *doc);

/** Appends the document as one line of extended JSON without LF; fate NULL: no "_deadLetter".
 * Errors SL_ETOOBIG the buffer's maximum. @thread any */
SL_MUST_USE sl_err sl_document_write_json(const sl_document *doc, const sl_doc_fate *fate,
                                          sl_buf *out);

/**
 * Reads back a line that sl_document_write_json made. *database and *collection are the target's
 * names (sl_free), NULL when the line does not tell. The mode is INSERT for an ObjectId, else
 * REPLACE_IF_NEWER.
 * Errors SL_EMALFORMED with a static sentence in *why.
 * @thread any
 */
SL_MUST_USE sl_err sl_document_parse_json(sl_slice line, sl_document **out, char **database,
                                          char **collection, const char **why);

#endif
