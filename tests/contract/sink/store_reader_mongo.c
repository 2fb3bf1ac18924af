/* SPDX-License-Identifier: Apache-2.0
 *
 * store_reader_mongo: reads a collection with the driver, and checks the BSON types that extended
 * JSON would not tell apart.
 */
#include "store_reader.h"

#include <mongoc/mongoc.h>

#include "base/assert.h"

static void check_types(const bson_t *doc)
{
    static const struct {
        const char *field;
        bson_type_t type;
    } rows[] = {{"topic", BSON_TYPE_UTF8},
                {"receivedAt", BSON_TYPE_DATE_TIME},
                {"receivedAtNanos", BSON_TYPE_INT32},
                {"qos", BSON_TYPE_INT32},
                {"retain", BSON_TYPE_BOOL},
                {"mqtt5.messageExpiryInterval", BSON_TYPE_INT64},
                {"mqtt5.expiresAt", BSON_TYPE_DATE_TIME},
                {"mqtt5.correlationData", BSON_TYPE_BINARY},
                {"mqtt5.userProperties", BSON_TYPE_ARRAY}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bson_iter_t it, found;
        bool has =
            bson_iter_init(&it, doc) && bson_iter_find_descendant(&it, rows[i].field, &found);
        SL_ASSERT(has || strchr(rows[i].field, '.') != NULL);
        SL_ASSERT(!has || bson_iter_type(&found) == rows[i].type);
    }
}

stored_list stored_read_mongo(const char *where, const sl_sink_target *target)
{
    stored_list list = {0};
    mongoc_client_t *client = mongoc_client_new(where);
    SL_ASSERT(client != NULL);
    mongoc_collection_t *coll =
        mongoc_client_get_collection(client, target->database, target->collection);
    bson_t all = BSON_INITIALIZER;
    mongoc_cursor_t *cursor = mongoc_collection_find_with_opts(coll, &all, NULL, NULL);
    const bson_t *doc;
    while (mongoc_cursor_next(cursor, &doc)) {
        check_types(doc);
        char *json = bson_as_relaxed_extended_json(doc, NULL);
        stored_add(&list, json);
        bson_free(json);
    }
    bson_error_t error;
    SL_ASSERT(!mongoc_cursor_error(cursor, &error));
    mongoc_cursor_destroy(cursor);
    mongoc_collection_destroy(coll);
    mongoc_client_destroy(client);
    return list;
}
