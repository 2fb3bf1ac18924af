/* SPDX-License-Identifier: Apache-2.0
 *
 * document_json: a document as MongoDB Extended JSON v2 (relaxed) and back. Whole numbers beyond
 * 2^53 are written in their typed form, so that a reader with floating point keeps every digit.
 */
#include "document.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cjson/cJSON.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "json_member.h"

#define SAFE_INT        (1ll << 53)
#define JSON_GROWTH     6    /* "\u0000" of one byte */
#define JSON_FIXED      2048 /* names, dates, numbers */
#define MAX_USER_PROPS  65536
#define ISO_MS_CHARS    23 /* 2026-11-30T20:26:50.123 */
#define NUMBER_BYTES    64
#define MS_PER_S        1000
#define NS_PER_MS       1000000
#define EARLIEST_SECOND 0
#define LATEST_SECOND   4102444800ll /* 2100: beyond it a line is not one of ours */

size_t sl_document_json_bound(const sl_document *doc)
{
    size_t raw = doc->topic.len + doc->payload.len + doc->id.text.len +
                 doc->props.content_type.len + doc->props.response_topic.len +
                 doc->props.correlation_data.len;
    for (uint32_t i = 0; i < doc->props.user_count; i++)
        raw += doc->props.user[i].name.len + doc->props.user[i].value.len + 8;
    return raw * JSON_GROWTH + JSON_FIXED;
}

static sl_err write_binary(sl_buf *out, const char *name, sl_slice bytes)
{
    sl_err err = sl_json_member_name(out, name);
    JSON_TRY(sl_buf_append_str(out, "{\"$binary\":{\"base64\":\""));
    JSON_TRY(sl_base64_write(out, bytes));
    JSON_TRY(sl_buf_append_str(out, "\",\"subType\":\"00\"}}"));
    return err;
}

static sl_err write_date(sl_buf *out, const char *name, int64_t wall_ms)
{
    char iso[SL_CLOCK_ISO_BYTES];
    sl_clock_format_iso(wall_ms * NS_PER_MS, iso);
    sl_err err = sl_json_member_name(out, name);
    JSON_TRY(sl_buf_printf(out, "{\"$date\":\"%.*sZ\"}", ISO_MS_CHARS, iso));
    return err;
}

static sl_err write_id(sl_buf *out, const sl_doc_id *id)
{
    const char *text = (const char *)id->text.ptr; // NUL ended by its maker
    bool safe = id->num <= SAFE_INT && id->num >= -SAFE_INT;
    bool real = strpbrk(text, ".E") != NULL; // reads back as floating point
    sl_err err = sl_json_member_name(out, "_id");
    switch (id->kind) {
    case SL_DOC_ID_OID:
        JSON_TRY(sl_buf_printf(out, "{\"$oid\":\"%s\"}", text));
        break;
    case SL_DOC_ID_STRING:
        JSON_TRY(sl_json_write_string(out, id->text));
        break;
    case SL_DOC_ID_INT64:
        JSON_TRY(sl_buf_printf(out, safe ? "%s" : "{\"$numberLong\":\"%s\"}", text));
        break;
    case SL_DOC_ID_DOUBLE:
        JSON_TRY(sl_buf_printf(out, real ? "%s" : "{\"$numberDouble\":\"%s\"}", text));
        break;
    case SL_DOC_ID_DECIMAL:
        JSON_TRY(sl_buf_printf(out, "{\"$numberDecimal\":\"%s\"}", text));
        break;
    case SL_DOC_ID_BOOL:
        JSON_TRY(sl_buf_append_str(out, text));
        break;
    }
    return err;
}

static sl_err write_mqtt5(const sl_document *doc, sl_buf *out)
{
    const sl_message_props *props = &doc->props;
    sl_err err = sl_json_member_name(out, "mqtt5");
    JSON_TRY(sl_buf_append_u8(out, '{'));
    if (props->has & SL_PROP_USER)
        JSON_TRY(sl_json_member_user_props(out, props));
    if (props->has & SL_PROP_CONTENT_TYPE)
        JSON_TRY(sl_json_member_text(out, "contentType", props->content_type));
    if (props->has & SL_PROP_CORRELATION_DATA)
        JSON_TRY(write_binary(out, "correlationData", props->correlation_data));
    if (props->has & SL_PROP_RESPONSE_TOPIC)
        JSON_TRY(sl_json_member_text(out, "responseTopic", props->response_topic));
    if (props->has & SL_PROP_PAYLOAD_FORMAT)
        JSON_TRY(sl_json_member_number(out, "payloadFormatIndicator", props->payload_format));
    if (props->has & SL_PROP_MESSAGE_EXPIRY) {
        JSON_TRY(sl_json_member_number(out, "messageExpiryInterval", props->message_expiry_s));
        JSON_TRY(write_date(out, "expiresAt", sl_document_expires_ms(doc)));
    }
    JSON_TRY(sl_buf_append_u8(out, '}'));
    return err;
}

static sl_err write_fate(const sl_doc_fate *fate, sl_buf *out)
{
    char iso[SL_CLOCK_ISO_BYTES];
    sl_clock_format_iso(fate->at_ns, iso);
    sl_err err = sl_json_member_name(out, "_deadLetter");
    JSON_TRY(sl_buf_append_u8(out, '{'));
    JSON_TRY(sl_json_member_text(out, "at", sl_slice_str(iso)));
    JSON_TRY(sl_json_member_text(out, "reason", sl_slice_str(fate->reason)));
    JSON_TRY(sl_json_member_number(out, "code", fate->code));
    JSON_TRY(sl_json_member_number(out, "attempts", fate->attempts));
    JSON_TRY(sl_json_member_text(out, "database", sl_slice_str(fate->database)));
    JSON_TRY(sl_json_member_text(out, "collection", sl_slice_str(fate->collection)));
    JSON_TRY(sl_buf_append_u8(out, '}'));
    return err;
}

sl_err sl_document_write_json(const sl_document *doc, const sl_doc_fate *fate, sl_buf *out)
{
    sl_err err = sl_buf_append_u8(out, '{');
    JSON_TRY(write_id(out, &doc->id));
    JSON_TRY(sl_json_member_text(out, "topic", doc->topic));
    if (doc->is_text)
        JSON_TRY(sl_json_member_text(out, "payload", doc->payload));
    else
        JSON_TRY(write_binary(out, "payload", doc->payload));
    JSON_TRY(write_date(out, "receivedAt", sl_document_received_ms(doc)));
    JSON_TRY(sl_json_member_number(out, "receivedAtNanos", sl_document_received_nanos(doc)));
    JSON_TRY(sl_json_member_number(out, "qos", doc->qos));
    JSON_TRY(sl_json_member_name(out, "retain"));
    JSON_TRY(sl_buf_append_str(out, doc->retain ? "true" : "false"));
    if (doc->props.has != 0)
        JSON_TRY(write_mqtt5(doc, out));
    if (fate != NULL)
        JSON_TRY(write_fate(fate, out));
    JSON_TRY(sl_buf_append_u8(out, '}'));
    return err;
}

/* ---- back ---- */

/* Bytes of the texts while the buffer that holds them may still move. */
typedef struct span {
    size_t at;
    size_t len;
} span;

typedef struct reader {
    sl_slice line;
    sl_buf bytes; /* of all texts */
    span topic, payload, content_type, response_topic, correlation_data;
    span *user; /* owned; name and value by turns */
    uint32_t user_count;
    sl_document *doc;
} reader;

static sl_err read_string(reader *rd, sl_json_value value, span *out)
{
    if (value.kind != SL_JSON_STRING)
        return SL_EMALFORMED;
    out->at = sl_buf_peek(&rd->bytes).len;
    sl_err err = sl_json_decode_string(value, &rd->bytes);
    out->len = sl_buf_peek(&rd->bytes).len - out->at;
    return err;
}

static sl_err read_binary(reader *rd, sl_json_value value, span *out)
{
    sl_json_value base64;
    if (value.kind != SL_JSON_OBJECT ||
        sl_json_find(value.raw, "$binary.base64", &base64) != SL_OK ||
        base64.kind != SL_JSON_STRING)
        return SL_EMALFORMED;
    out->at = sl_buf_peek(&rd->bytes).len;
    // base64 has no character that JSON would escape but '/', which we never escape
    sl_err err = sl_base64_decode(&rd->bytes, sl_slice_of(base64.raw.ptr + 1, base64.raw.len - 2));
    out->len = sl_buf_peek(&rd->bytes).len - out->at;
    return err;
}

/* A whole number that stands as such or as {"$numberLong":".."}. */
static sl_err read_int(sl_json_value value, int64_t min, int64_t max, int64_t *out)
{
    sl_json_value inner = value;
    if (value.kind == SL_JSON_OBJECT &&
        (sl_json_find(value.raw, "$numberLong", &inner) != SL_OK || inner.kind != SL_JSON_STRING))
        return SL_EMALFORMED;
    sl_slice text = inner.raw;
    if (inner.kind == SL_JSON_STRING)
        text = sl_slice_of(inner.raw.ptr + 1, inner.raw.len - 2);
    else if (inner.kind != SL_JSON_NUMBER)
        return SL_EMALFORMED;
    sl_doc_id number;
    if (sl_doc_id_from_number(text, &number) != SL_OK)
        return SL_EMALFORMED;
    bool good = number.kind == SL_DOC_ID_INT64 && number.num >= min && number.num <= max;
    if (good)
        *out = number.num;
    sl_doc_id_fini(&number);
    return good ? SL_OK : SL_EMALFORMED;
}

/* {"$date": "2026-11-30T20:26:50.123Z" | ms | {"$numberLong": "ms"}} */
static sl_err read_date(sl_json_value value, int64_t *wall_ms)
{
    sl_json_value date;
    if (value.kind != SL_JSON_OBJECT || sl_json_find(value.raw, "$date", &date) != SL_OK)
        return SL_EMALFORMED;
    if (date.kind != SL_JSON_STRING)
        return read_int(date, EARLIEST_SECOND, LATEST_SECOND * MS_PER_S, wall_ms);
    char text[NUMBER_BYTES];
    if (date.raw.len - 2 >= sizeof text)
        return SL_EMALFORMED;
    snprintf(text, sizeof text, "%.*s", (int)(date.raw.len - 2), (const char *)date.raw.ptr + 1);
    struct tm tm = {0};
    int ms = 0, used = 0;
    int got = sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ%n", &tm.tm_year, &tm.tm_mon, &tm.tm_mday,
                     &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &ms, &used);
    if (got == 6) // no fraction
        got = sscanf(text, "%*4d-%*2d-%*2dT%*2d:%*2d:%*2dZ%n", &used) == 0 ? 7 : 0;
    if (got != 7 || (size_t)used != strlen(text))
        return SL_EMALFORMED;
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    time_t seconds = timegm(&tm);
    if (seconds < EARLIEST_SECOND || seconds > LATEST_SECOND || ms < 0)
        return SL_EMALFORMED;
    *wall_ms = (int64_t)seconds * MS_PER_S + ms;
    return SL_OK;
}

static sl_err read_id(sl_json_value value, sl_doc_id *out)
{
    static const char *const typed[] = {"$numberLong", "$numberDouble", "$numberDecimal"};
    sl_json_value inner;
    for (size_t i = 0; value.kind == SL_JSON_OBJECT && i < 3; i++) {
        if (sl_json_find(value.raw, typed[i], &inner) != SL_OK || inner.kind != SL_JSON_STRING)
            continue;
        return sl_doc_id_from_number(sl_slice_of(inner.raw.ptr + 1, inner.raw.len - 2), out);
    }
    return sl_doc_id_from_json(value.raw, out);
}

static sl_err read_user_pair(reader *rd, const cJSON *pair, span *out)
{
    const char *texts[2] = {cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(pair, "name")),
                            cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(pair, "value"))};
    sl_err err = SL_OK;
    for (int i = 0; i < 2; i++) {
        if (texts[i] == NULL)
            return SL_EMALFORMED;
        out[i] = (span){sl_buf_peek(&rd->bytes).len, strlen(texts[i])};
        JSON_TRY(sl_buf_append_str(&rd->bytes, texts[i]));
    }
    return err;
}

/* MQTT strings hold no NUL, so C strings lose nothing here. */
static sl_err read_user_props(reader *rd, sl_json_value value)
{
    cJSON *list = cJSON_ParseWithLength((const char *)value.raw.ptr, value.raw.len);
    int count = list != NULL && cJSON_IsArray(list) ? cJSON_GetArraySize(list) : -1;
    sl_err err = count < 0 || count > MAX_USER_PROPS ? SL_EMALFORMED : SL_OK;
    if (err == SL_OK) {
        rd->user = sl_calloc((size_t)count + 1, 2 * sizeof *rd->user);
        const cJSON *pair;
        cJSON_ArrayForEach(pair, list)
        {
            JSON_TRY(read_user_pair(rd, pair, &rd->user[2 * (size_t)rd->user_count++]));
        }
    }
    cJSON_Delete(list);
    return err;
}

/* Finds a member; with a bit also notes it as present. A missing one leaves *found false. */
static sl_err find(sl_slice object, const char *name, sl_json_value *out, bool *found)
{
    sl_err err = sl_json_find(object, name, out);
    *found = err == SL_OK;
    return err == SL_ENOTFOUND ? SL_OK : err;
}

static sl_err read_mqtt5(reader *rd, sl_slice object)
{
    sl_message_props *props = &rd->doc->props;
    sl_json_value value;
    int64_t number = 0;
    bool found;
    sl_err err = find(object, "userProperties", &value, &found);
    if (err == SL_OK && found) {
        props->has |= SL_PROP_USER;
        err = read_user_props(rd, value);
    }
    JSON_TRY(find(object, "contentType", &value, &found));
    if (err == SL_OK && found) {
        props->has |= SL_PROP_CONTENT_TYPE;
        err = read_string(rd, value, &rd->content_type);
    }
    JSON_TRY(find(object, "responseTopic", &value, &found));
    if (err == SL_OK && found) {
        props->has |= SL_PROP_RESPONSE_TOPIC;
        err = read_string(rd, value, &rd->response_topic);
    }
    JSON_TRY(find(object, "correlationData", &value, &found));
    if (err == SL_OK && found) {
        props->has |= SL_PROP_CORRELATION_DATA;
        err = read_binary(rd, value, &rd->correlation_data);
    }
    JSON_TRY(find(object, "payloadFormatIndicator", &value, &found));
    if (err == SL_OK && found) {
        props->has |= SL_PROP_PAYLOAD_FORMAT;
        err = read_int(value, 0, 1, &number);
        props->payload_format = (uint8_t)number;
    }
    JSON_TRY(find(object, "messageExpiryInterval", &value, &found));
    if (err == SL_OK && found) {
        props->has |= SL_PROP_MESSAGE_EXPIRY;
        err = read_int(value, 0, UINT32_MAX, &number);
        props->message_expiry_s = (uint32_t)number;
    }
    return err;
}

static sl_err read_payload(reader *rd)
{
    sl_json_value value;
    sl_err err = sl_json_find(rd->line, "payload", &value);
    if (err != SL_OK)
        return err;
    rd->doc->is_text = value.kind == SL_JSON_STRING;
    return rd->doc->is_text ? read_string(rd, value, &rd->payload)
                            : read_binary(rd, value, &rd->payload);
}

/* The members every document has; *why names the first that is wrong. */
static sl_err read_members(reader *rd, const char **why)
{
    sl_document *doc = rd->doc;
    sl_json_value value;
    int64_t ms = 0, nanos = 0, qos = 0;
    *why = "no usable _id";
    sl_err err = sl_json_find(rd->line, "_id", &value);
    JSON_TRY(read_id(value, &doc->id));
    if (err == SL_OK)
        *why = "no topic text";
    JSON_TRY(sl_json_find(rd->line, "topic", &value));
    JSON_TRY(read_string(rd, value, &rd->topic));
    if (err == SL_OK)
        *why = "no payload, text or binary";
    JSON_TRY(read_payload(rd));
    if (err == SL_OK)
        *why = "no receivedAt date";
    JSON_TRY(sl_json_find(rd->line, "receivedAt", &value));
    JSON_TRY(read_date(value, &ms));
    if (err == SL_OK)
        *why = "receivedAtNanos, qos or retain missing or out of range";
    JSON_TRY(sl_json_find(rd->line, "receivedAtNanos", &value));
    JSON_TRY(read_int(value, 0, NS_PER_MS - 1, &nanos));
    JSON_TRY(sl_json_find(rd->line, "qos", &value));
    JSON_TRY(read_int(value, 0, 2, &qos));
    JSON_TRY(sl_json_find(rd->line, "retain", &value));
    if (err == SL_OK && value.kind != SL_JSON_BOOL)
        err = SL_EMALFORMED;
    if (err != SL_OK)
        return SL_EMALFORMED;
    doc->received_at_ns = ms * NS_PER_MS + nanos;
    doc->qos = (uint8_t)qos;
    doc->retain = value.raw.ptr[0] == 't';
    *why = "mqtt5 is not what we write";
    bool found;
    err = find(rd->line, "mqtt5", &value, &found);
    if (err == SL_OK && found)
        err = read_mqtt5(rd, value.raw);
    return err == SL_OK ? SL_OK : SL_EMALFORMED;
}

/* A target's name as C string; NULL when the line does not tell. */
static char *read_name(sl_slice line, const char *path)
{
    sl_json_value value;
    if (sl_json_find(line, path, &value) != SL_OK || value.kind != SL_JSON_STRING)
        return NULL;
    sl_buf text;
    sl_buf_init(&text, value.raw.len);
    char *name = NULL;
    if (sl_json_decode_string(value, &text) == SL_OK) {
        sl_slice got = sl_buf_peek(&text);
        if (got.len > 0 && memchr(got.ptr, '\0', got.len) == NULL)
            name = sl_strndup(got.ptr, got.len);
    }
    sl_buf_fini(&text);
    return name;
}

/* The buffer moves no more: spans become slices. */
static void settle(reader *rd)
{
    sl_document *doc = rd->doc;
    size_t len;
    doc->_mem = sl_buf_take(&rd->bytes, &len);
    const uint8_t *base = doc->_mem;
    doc->topic = sl_slice_of(base + rd->topic.at, rd->topic.len);
    doc->payload = sl_slice_of(base + rd->payload.at, rd->payload.len);
    sl_message_props *props = &doc->props;
    if (props->has & SL_PROP_CONTENT_TYPE)
        props->content_type = sl_slice_of(base + rd->content_type.at, rd->content_type.len);
    if (props->has & SL_PROP_RESPONSE_TOPIC)
        props->response_topic = sl_slice_of(base + rd->response_topic.at, rd->response_topic.len);
    if (props->has & SL_PROP_CORRELATION_DATA)
        props->correlation_data =
            sl_slice_of(base + rd->correlation_data.at, rd->correlation_data.len);
    if (rd->user_count == 0)
        return;
    doc->_user = sl_calloc(rd->user_count, sizeof *doc->_user);
    for (uint32_t i = 0; i < rd->user_count; i++) {
        span name = rd->user[2 * (size_t)i], value = rd->user[2 * (size_t)i + 1];
        doc->_user[i].name = sl_slice_of(base + name.at, name.len);
        doc->_user[i].value = sl_slice_of(base + value.at, value.len);
    }
    props->user = doc->_user;
    props->user_count = rd->user_count;
}

sl_err sl_document_parse_json(sl_slice line, sl_document **out, char **database, char **collection,
                              const char **why)
{
    if (!sl_json_is_valid(line)) {
        *why = "not JSON";
        return SL_EMALFORMED;
    }
    reader rd = {.line = line, .doc = sl_calloc(1, sizeof *rd.doc)};
    sl_buf_init(&rd.bytes, line.len + 1); // texts never grow when decoded
    sl_err err = read_members(&rd, why);
    if (err == SL_OK) {
        settle(&rd);
        rd.doc->mode = rd.doc->id.kind == SL_DOC_ID_OID ? SL_DOC_INSERT : SL_DOC_REPLACE_IF_NEWER;
        *database = read_name(line, "_deadLetter.database");
        *collection = read_name(line, "_deadLetter.collection");
        *out = rd.doc;
        rd.doc = NULL;
    }
    sl_document_free(&rd.doc);
    sl_buf_fini(&rd.bytes);
    sl_free(rd.user);
    return err;
}
