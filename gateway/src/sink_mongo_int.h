/* SPDX-License-Identifier: Apache-2.0
 *
 * sink_mongo_int: what sink_mongo.c (pool, batches, results) and sink_mongo_bson.c (documents and
 * identifiers as BSON, error numbers) share. The driver's types go no further.
 */
#ifndef SL_GATEWAY_SINK_MONGO_INT_H
#define SL_GATEWAY_SINK_MONGO_INT_H

#include <mongoc/mongoc.h>

#include "sink.h"

#define SL_MONGO_MAX_DOC_BYTES (16 << 20) /* of BSON; the server refuses more */

/** Appends the identifier under key. @thread any */
void sl_mongo_append_id(bson_t *to, const char *key, const sl_doc_id *id);
/** The identifier an iterator stands on; SL_EINVAL another type than we store. */
SL_MUST_USE sl_err sl_mongo_read_id(const bson_iter_t *it, sl_doc_id *out);
/** The whole document. False when it does not fit a BSON document of the server. *to is initialized
 * in any case. */
bool sl_mongo_build_document(const sl_document *doc, bson_t *to);
/** What the upsert of a document looks for: {_id, topic} and, for REPLACE_IF_NEWER, a received time
 * not later than its own. *to is initialized. */
void sl_mongo_build_filter(const sl_document *doc, bson_t *to);

/** What an error number of the server means for one document, and for a whole command. */
sl_sink_outcome sl_mongo_judge_document(int code);
sl_sink_outcome sl_mongo_judge_command(const bson_error_t *error);

#endif
