/* SPDX-License-Identifier: Apache-2.0
 *
 * document: making a document of a message. The payload is never parsed into the document: only the
 * identifier is read out of it, so keys with '$' or '.', duplicate keys and long numbers stay as
 * they were sent.
 */
#include "document.h"

#include "base/alloc.h"
#include "base/json.h"

#define NS_PER_MS 1000000

/* The identifier in the payload, if there is a usable one. */
static bool take_payload_id(const sl_message *msg, const char *field, sl_doc_id *out)
{
    sl_json_value value;
    if (!msg->is_text || sl_json_find(msg->payload, field, &value) != SL_OK)
        return false;
    return sl_doc_id_from_json(value.raw, out) == SL_OK;
}

sl_document *sl_document_new(sl_message *msg, sl_id_strategy strategy, const char *field,
                             sl_oid_source *src, bool *id_missing)
{
    sl_document *doc = sl_calloc(1, sizeof *doc);
    doc->_msg = sl_message_ref(msg);
    doc->is_text = msg->is_text;
    doc->retain = msg->retain;
    doc->qos = msg->qos;
    doc->received_at_ns = msg->received_at_ns;
    doc->topic = msg->topic;
    doc->payload = msg->payload;
    doc->props = msg->props;
    doc->mode = SL_DOC_INSERT;
    *id_missing = false;
    if (strategy == SL_ID_PAYLOAD_FIELD) {
        if (take_payload_id(msg, field, &doc->id)) {
            doc->mode = SL_DOC_REPLACE;
            return doc;
        }
        *id_missing = true;
    }
    uint8_t oid[SL_DOC_OID_BYTES];
    sl_oid_source_next(src, msg->received_at_ns, oid);
    sl_doc_id_from_oid(oid, &doc->id);
    return doc;
}

void sl_document_free(sl_document **doc)
{
    sl_document *own = *doc;
    *doc = NULL;
    if (own == NULL)
        return;
    sl_doc_id_fini(&own->id);
    sl_message_unref(&own->_msg);
    sl_free(own->_user);
    sl_free(own->_mem);
    sl_free(own);
}

sl_err sl_document_write_identity(const sl_document *doc, sl_buf *out)
{
    sl_err err = sl_buf_append_slice(out, doc->topic);
    if (err == SL_OK)
        err = sl_buf_append_u8(out, '\0'); // no topic holds a NUL
    return err == SL_OK ? sl_buf_append_slice(out, doc->id.key) : err;
}

int64_t sl_document_received_ms(const sl_document *doc)
{
    return doc->received_at_ns / NS_PER_MS;
}

int32_t sl_document_received_nanos(const sl_document *doc)
{
    return (int32_t)(doc->received_at_ns % NS_PER_MS);
}

int64_t sl_document_expires_ms(const sl_document *doc)
{
    return sl_document_received_ms(doc) + (int64_t)doc->props.message_expiry_s * 1000;
}
