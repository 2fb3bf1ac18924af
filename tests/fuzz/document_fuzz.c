/* SPDX-License-Identifier: Apache-2.0
 *
 * Documents (gateway/src/document.h). The bytes are a payload first: whatever it is, the document
 * made of it reads back the same from its extended JSON. Then they are a dead-letter line: one that
 * is understood is written and understood again, with the same identity.
 */
#include "document.h"
#include "fuzz.h"

static sl_buf to_json(const sl_document *doc)
{
    sl_buf out;
    sl_buf_init(&out, sl_document_json_bound(doc));
    sl_err err = sl_document_write_json(doc, NULL, &out);
    SL_ASSERT(err == SL_OK);
    return out;
}

/* What a document becomes, read back, is that document. */
static void check_round_trip(const sl_document *doc)
{
    sl_buf json = to_json(doc);
    sl_document *back = NULL;
    char *database = NULL, *collection = NULL;
    const char *why = NULL;
    sl_err err = sl_document_parse_json(sl_buf_peek(&json), &back, &database, &collection, &why);
    SL_ASSERT(err == SL_OK && database == NULL && collection == NULL);
    SL_ASSERT(back->id.kind == doc->id.kind && sl_slice_equal(back->id.key, doc->id.key));
    SL_ASSERT(back->is_text == doc->is_text && sl_slice_equal(back->payload, doc->payload));
    sl_buf again = to_json(back);
    SL_ASSERT(sl_slice_equal(sl_buf_peek(&again), sl_buf_peek(&json)));
    sl_buf_fini(&again);
    sl_buf_fini(&json);
    sl_document_free(&back);
}

static void try_payload(const uint8_t *data, size_t size)
{
    sl_oid_source oids;
    sl_oid_source_init(&oids);
    sl_rbuf *rb = sl_rbuf_new(size + 1);
    memcpy(rb->data, "t", 1);
    if (size > 0)
        memcpy(rb->data + 1, data, size);
    sl_mqtt_publish pub = {.topic = sl_slice_of(rb->data, 1),
                           .payload = sl_slice_of(rb->data + 1, size)};
    sl_message *msg = sl_message_new(&pub, rb, 1000000000000000001ll);
    bool missing;
    sl_document *doc = sl_document_new(msg, SL_ID_PAYLOAD_FIELD, "id", &oids, &missing);
    SL_ASSERT(missing == (doc->mode == SL_DOC_INSERT));
    check_round_trip(doc);
    sl_document_free(&doc);
    sl_message_unref(&msg);
    sl_rbuf_unref(&rb);
}

static void try_line(const uint8_t *data, size_t size)
{
    sl_slice line = sl_slice_of(data, size);
    line.ptr = fuzz_copy(line);
    sl_document *doc = NULL;
    char *database = NULL, *collection = NULL;
    const char *why = NULL;
    if (sl_document_parse_json(line, &doc, &database, &collection, &why) == SL_OK)
        check_round_trip(doc);
    else
        SL_ASSERT(doc == NULL && why != NULL);
    sl_free(database);
    sl_free(collection);
    sl_document_free(&doc);
    sl_free((void *)(uintptr_t)line.ptr);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_payload(data, size);
    try_line(data, size);
    return 0;
}
