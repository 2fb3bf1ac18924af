/* SPDX-License-Identifier: Apache-2.0
 *
 * store_reader: reads back what a sink stored, by the store's own means (the SQLite view, the
 * MongoDB driver), as extended JSON parsed into documents. For the contract suite.
 */
#ifndef SL_TEST_STORE_READER_H
#define SL_TEST_STORE_READER_H

#include "sink.h"

typedef struct stored_list {
    size_t count;
    sl_document **docs; /* owned; order of the store */
} stored_list;

/** All documents of a target. where: data folder, or connection string. */
stored_list stored_read_sqlite(const char *where, const sl_sink_target *target);
stored_list stored_read_mongo(const char *where, const sl_sink_target *target);
void stored_free(stored_list *list);
/** One line of extended JSON more. */
void stored_add(stored_list *list, const char *json);
/** The document with this identifier text and kind; NULL. */
const sl_document *stored_find(const stored_list *list, const sl_doc_id *id);

#endif
