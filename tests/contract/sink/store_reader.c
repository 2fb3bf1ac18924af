/* SPDX-License-Identifier: Apache-2.0
 *
 * store_reader: see store_reader.h.
 */
#include "store_reader.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"

void stored_add(stored_list *list, const char *json)
{
    sl_document *doc = NULL;
    char *database = NULL, *collection = NULL;
    const char *why = "";
    if (sl_document_parse_json(sl_slice_str(json), &doc, &database, &collection, &why) != SL_OK) {
        fprintf(stderr, "the store holds what is not a document (%s): %s\n", why, json);
        abort();
    }
    sl_free(database);
    sl_free(collection);
    list->docs = sl_realloc(list->docs, (list->count + 1) * sizeof *list->docs);
    list->docs[list->count++] = doc;
}

void stored_free(stored_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        sl_document_free(&list->docs[i]);
    sl_free(list->docs);
    *list = (stored_list){0};
}

const sl_document *stored_find(const stored_list *list, const sl_doc_id *id)
{
    for (size_t i = 0; i < list->count; i++)
        if (sl_slice_equal(list->docs[i]->id.key, id->key))
            return list->docs[i];
    return NULL;
}
