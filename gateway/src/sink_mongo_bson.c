/* SPDX-License-Identifier: Apache-2.0
 *
 * sink_mongo_bson: documents and identifiers as BSON and the meaning of MongoDB's error numbers.
 * Everything is appended with its length: payloads may hold NUL.
 */
#include "sink_mongo_int.h"

#include <stdio.h>

#include "base/assert.h"

#define NUMBER_TEXT 64

static void append_text(bson_t *to, const char *key, sl_slice text)
{
    // a NULL value would become null
    bson_append_utf8(to, key, -1, text.len > 0 ? (const char *)text.ptr : "", (int)text.len);
}

static void append_binary(bson_t *to, const char *key, sl_slice bytes)
{
    static const uint8_t none[1];
    bson_append_binary(to, key, -1, BSON_SUBTYPE_BINARY, bytes.len > 0 ? bytes.ptr : none,
                       (uint32_t)bytes.len);
}

void sl_mongo_append_id(bson_t *to, const char *key, const sl_doc_id *id)
{
    bson_oid_t oid;
    bson_decimal128_t decimal;
    switch (id->kind) {
    case SL_DOC_ID_OID:
        bson_oid_init_from_data(&oid, id->oid);
        BSON_APPEND_OID(to, key, &oid);
        return;
    case SL_DOC_ID_STRING:
        append_text(to, key, id->text);
        return;
    case SL_DOC_ID_INT64:
        BSON_APPEND_INT64(to, key, id->num);
        return;
    case SL_DOC_ID_DOUBLE:
        BSON_APPEND_DOUBLE(to, key, id->real);
        return;
    case SL_DOC_ID_DECIMAL:
        // the text is NUL ended and within the range, its maker checked that
        if (!bson_decimal128_from_string((const char *)id->text.ptr, &decimal))
            SL_ASSERT(!"a decimal identifier out of range");
        BSON_APPEND_DECIMAL128(to, key, &decimal);
        return;
    case SL_DOC_ID_BOOL:
        BSON_APPEND_BOOL(to, key, id->num != 0);
        return;
    }
}

static sl_err read_double(double value, sl_doc_id *out)
{
    // the shortest text that gives the same double is how its identifier was written
    char text[NUMBER_TEXT];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    return sl_doc_id_from_number(sl_slice_str(text), out);
}

sl_err sl_mongo_read_id(const bson_iter_t *it, sl_doc_id *out)
{
    char text[BSON_DECIMAL128_STRING];
    bson_decimal128_t decimal;
    uint32_t len;
    const char *str;
    switch (bson_iter_type(it)) {
    case BSON_TYPE_OID:
        sl_doc_id_from_oid(bson_iter_oid(it)->bytes, out);
        return SL_OK;
    case BSON_TYPE_UTF8:
        str = bson_iter_utf8(it, &len);
        return sl_doc_id_from_string(sl_slice_of(str, len), out);
    case BSON_TYPE_BOOL:
        sl_doc_id_from_bool(bson_iter_bool(it), out);
        return SL_OK;
    case BSON_TYPE_INT32:
    case BSON_TYPE_INT64:
        snprintf(text, sizeof text, "%lld", (long long)bson_iter_as_int64(it));
        return sl_doc_id_from_number(sl_slice_str(text), out);
    case BSON_TYPE_DOUBLE:
        return read_double(bson_iter_double(it), out);
    case BSON_TYPE_DECIMAL128:
        bson_iter_decimal128(it, &decimal);
        bson_decimal128_to_string(&decimal, text);
        return sl_doc_id_from_number(sl_slice_str(text), out);
    default:
        return SL_EINVAL;
    }
}

static void append_user_props(bson_t *to, const sl_message_props *props)
{
    bson_t list, pair;
    BSON_APPEND_ARRAY_BEGIN(to, "userProperties", &list);
    for (uint32_t i = 0; i < props->user_count; i++) {
        char at[16];
        snprintf(at, sizeof at, "%u", i);
        BSON_APPEND_DOCUMENT_BEGIN(&list, at, &pair);
        append_text(&pair, "name", props->user[i].name);
        append_text(&pair, "value", props->user[i].value);
        bson_append_document_end(&list, &pair);
    }
    bson_append_array_end(to, &list);
}

static void append_mqtt5(bson_t *to, const sl_document *doc)
{
    const sl_message_props *props = &doc->props;
    bson_t own;
    BSON_APPEND_DOCUMENT_BEGIN(to, "mqtt5", &own);
    if (props->has & SL_PROP_USER)
        append_user_props(&own, props);
    if (props->has & SL_PROP_CONTENT_TYPE)
        append_text(&own, "contentType", props->content_type);
    if (props->has & SL_PROP_CORRELATION_DATA)
        append_binary(&own, "correlationData", props->correlation_data);
    if (props->has & SL_PROP_RESPONSE_TOPIC)
        append_text(&own, "responseTopic", props->response_topic);
    if (props->has & SL_PROP_PAYLOAD_FORMAT)
        BSON_APPEND_INT32(&own, "payloadFormatIndicator", props->payload_format);
    if (props->has & SL_PROP_MESSAGE_EXPIRY) {
        BSON_APPEND_INT64(&own, "messageExpiryInterval", props->message_expiry_s);
        BSON_APPEND_DATE_TIME(&own, "expiresAt", sl_document_expires_ms(doc));
    }
    bson_append_document_end(to, &own);
}

bool sl_mongo_build_document(const sl_document *doc, bson_t *to)
{
    bson_init(to);
    if (doc->payload.len > SL_MONGO_MAX_DOC_BYTES)
        return false;
    sl_mongo_append_id(to, "_id", &doc->id);
    append_text(to, "topic", doc->topic);
    if (doc->is_text)
        append_text(to, "payload", doc->payload);
    else
        append_binary(to, "payload", doc->payload);
    BSON_APPEND_DATE_TIME(to, "receivedAt", sl_document_received_ms(doc));
    BSON_APPEND_INT32(to, "receivedAtNanos", sl_document_received_nanos(doc));
    BSON_APPEND_INT32(to, "qos", doc->qos);
    BSON_APPEND_BOOL(to, "retain", doc->retain);
    if (doc->props.has != 0)
        append_mqtt5(to, doc);
    return to->len <= SL_MONGO_MAX_DOC_BYTES;
}

void sl_mongo_build_filter(const sl_document *doc, bson_t *to)
{
    bson_init(to);
    sl_mongo_append_id(to, "_id", &doc->id);
    append_text(to, "topic", doc->topic);
    if (doc->mode != SL_DOC_REPLACE_IF_NEWER)
        return;
    bson_t bound;
    BSON_APPEND_DOCUMENT_BEGIN(to, "receivedAt", &bound);
    BSON_APPEND_DATE_TIME(&bound, "$lte", sl_document_received_ms(doc));
    bson_append_document_end(to, &bound);
}

/* Error numbers of the server with a meaning of their own here. */
static const struct {
    int code;
    sl_sink_outcome outcome;
} MEANINGS[] = {
    // somebody must act
    {13, SL_SINK_CONFIG},   // Unauthorized
    {18, SL_SINK_CONFIG},   // AuthenticationFailed
    {20, SL_SINK_CONFIG},   // IllegalOperation, e.g. no such write on this deployment
    {31, SL_SINK_CONFIG},   // RoleNotFound
    {73, SL_SINK_CONFIG},   // InvalidNamespace
    {79, SL_SINK_CONFIG},   // UnknownReplWriteConcern
    {100, SL_SINK_CONFIG},  // UnsatisfiableWriteConcern
    {166, SL_SINK_CONFIG},  // CommandNotSupportedOnView
    {8000, SL_SINK_CONFIG}, // AtlasError: login
    // the server will never take this document
    {2, SL_SINK_PERMANENT},     // BadValue
    {9, SL_SINK_PERMANENT},     // FailedToParse
    {14, SL_SINK_PERMANENT},    // TypeMismatch
    {22, SL_SINK_PERMANENT},    // InvalidBSON
    {52, SL_SINK_PERMANENT},    // DollarPrefixedFieldName
    {53, SL_SINK_PERMANENT},    // InvalidIdField
    {66, SL_SINK_PERMANENT},    // ImmutableField
    {72, SL_SINK_PERMANENT},    // InvalidOptions, e.g. an upsert into a time-series collection
    {121, SL_SINK_PERMANENT},   // DocumentValidationFailure
    {10334, SL_SINK_PERMANENT}, // BSONObjectTooLarge
    {17280, SL_SINK_PERMANENT}, // KeyTooLong
    {17419, SL_SINK_PERMANENT}, // the updated document is too large
    {17420, SL_SINK_PERMANENT},
    // it takes no writes now
    {6, SL_SINK_AWAY},     // HostUnreachable
    {7, SL_SINK_AWAY},     // HostNotFound
    {64, SL_SINK_AWAY},    // WriteConcernFailed (its time ran out)
    {89, SL_SINK_AWAY},    // NetworkTimeout
    {91, SL_SINK_AWAY},    // ShutdownInProgress
    {189, SL_SINK_AWAY},   // PrimarySteppedDown
    {9001, SL_SINK_AWAY},  // SocketException
    {10058, SL_SINK_AWAY}, // not primary (old)
    {10107, SL_SINK_AWAY}, // NotWritablePrimary
    {11600, SL_SINK_AWAY}, // InterruptedAtShutdown
    {11602, SL_SINK_AWAY}, // InterruptedDueToReplStateChange
    {13435, SL_SINK_AWAY}, // NotPrimaryNoSecondaryOk
    {13436, SL_SINK_AWAY}, // NotPrimaryOrSecondary
    {14031, SL_SINK_AWAY}, // OutOfDiskSpace
};

static sl_sink_outcome judge(int code, sl_sink_outcome otherwise)
{
    for (size_t i = 0; i < sizeof MEANINGS / sizeof MEANINGS[0]; i++)
        if (MEANINGS[i].code == code)
            return MEANINGS[i].outcome;
    return otherwise;
}

sl_sink_outcome sl_mongo_judge_document(int code)
{
    return judge(code, SL_SINK_TRANSIENT);
}

sl_sink_outcome sl_mongo_judge_command(const bson_error_t *error)
{
    if (error->domain == MONGOC_ERROR_CLIENT)
        return error->code == MONGOC_ERROR_CLIENT_AUTHENTICATE ? SL_SINK_CONFIG : SL_SINK_AWAY;
    if (error->domain == MONGOC_ERROR_SERVER || error->domain == MONGOC_ERROR_COMMAND ||
        error->domain == MONGOC_ERROR_QUERY || error->domain == MONGOC_ERROR_WRITE_CONCERN)
        return judge((int)error->code, SL_SINK_AWAY);
    return SL_SINK_AWAY; // selection, stream, ...
}
