/* SPDX-License-Identifier: Apache-2.0
 *
 * store_reader_sqlite: reads the view as any other process would.
 */
#include "store_reader.h"

#include <sqlite3.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "peer.h"

stored_list stored_read_sqlite(const char *where, const sl_sink_target *target)
{
    stored_list list = {0};
    char *path = peer_path(where, "gateway-store.db");
    sqlite3 *db;
    sqlite3_stmt *st;
    int rc = sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL);
    SL_ASSERT(rc == SQLITE_OK);
    rc = sqlite3_prepare_v2(db,
                            "SELECT doc, id, topic, received_at_ms FROM documents"
                            " WHERE database=?1 AND collection=?2",
                            -1, &st, NULL);
    SL_ASSERT(rc == SQLITE_OK);
    sqlite3_bind_text(st, 1, target->database, -1, SQLITE_STATIC);
    sqlite3_bind_text(st, 2, target->collection, -1, SQLITE_STATIC);
    while (sqlite3_step(st) == SQLITE_ROW) {
        stored_add(&list, (const char *)sqlite3_column_text(st, 0));
        // the columns say what the document says
        const sl_document *doc = list.docs[list.count - 1];
        SL_ASSERT(sl_slice_equal(doc->id.text, sl_slice_of(sqlite3_column_text(st, 1),
                                                           (size_t)sqlite3_column_bytes(st, 1))));
        SL_ASSERT(
            sl_slice_equal(doc->topic, sl_slice_str((const char *)sqlite3_column_text(st, 2))));
        SL_ASSERT(sl_document_received_ms(doc) == sqlite3_column_int64(st, 3));
    }
    rc = sqlite3_finalize(st);
    SL_ASSERT(rc == SQLITE_OK);
    sqlite3_close(db);
    sl_free(path);
    return list;
}
