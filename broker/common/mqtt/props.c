/* SPDX-License-Identifier: Apache-2.0
 *
 * props: see props.h. One reader of a single property serves parsing and iteration; one table says
 * where its value goes, so a new property is a new row and nothing else.
 */
#include "mqtt/props.h"

#include <stddef.h>

#include "base/assert.h"
#include "mqtt/codec_int.h"
#include "mqtt/encode.h"
#include "mqtt/utf8.h"

#define MAX_TEXT_BYTES 65535u
#define ID_LIMIT       0x2B /* identifiers are below this */

static const sl_mqtt_prop_row rows[ID_LIMIT] = {
#define PROP_ROW(num, key, text, kind, member, packets, check, many)                               \
    [num] = {.id = (num),                                                                          \
             .type = SL_PT_##kind,                                                                 \
             .rule = SL_PR_##check,                                                                \
             .field = offsetof(sl_mqtt_props, member),                                             \
             .bit = SL_PROP_##key,                                                                 \
             .where = (packets),                                                                   \
             .repeat = (many),                                                                     \
             .name = (text)},
    SL_MQTT_PROP_MAP(PROP_ROW)
#undef PROP_ROW
};

/* The identifiers in ascending order, for writing. */
static const uint8_t order[] = {
#define PROP_ID(num, key, text, kind, member, packets, check, many) (num),
    SL_MQTT_PROP_MAP(PROP_ID)
#undef PROP_ID
};

const sl_mqtt_prop_row *sl_mqtt_prop_find(uint32_t id)
{
    return id < ID_LIMIT && rows[id].id != 0 ? &rows[id] : NULL;
}

bool sl_mqtt_read_text(sl_mqtt_reader *rd, sl_slice *out, bool *wildcard)
{
    if (!sl_mqtt_read_binary(rd, out))
        return false;
    if (!sl_mqtt_utf8_check(*out, wildcard))
        return sl_mqtt_malformed(rd,
                                 "text is not UTF-8 or holds U+0000 [MQTT-1.5.4-1] [MQTT-1.5.4-2]");
    return true;
}

/* Reads one property without the rules of its value. */
static bool read_one(sl_mqtt_reader *rd, sl_mqtt_prop_view *out, bool *wildcard)
{
    const uint8_t *from = rd->at;
    uint32_t id;
    if (!sl_mqtt_read_varint(rd, &id))
        return false;
    const sl_mqtt_prop_row *row = sl_mqtt_prop_find(id);
    if (row == NULL)
        return sl_mqtt_malformed(rd, "property identifier is unknown (2.2.2.2)");
    *out = (sl_mqtt_prop_view){.row = row};
    uint8_t byte = 0;
    uint16_t word = 0;
    bool fine = false;
    switch ((sl_mqtt_prop_type)row->type) {
    case SL_PT_BYTE:
        fine = sl_mqtt_read_u8(rd, &byte);
        out->number = byte;
        break;
    case SL_PT_U16:
        fine = sl_mqtt_read_u16(rd, &word);
        out->number = word;
        break;
    case SL_PT_U32:
        fine = sl_mqtt_read_u32(rd, &out->number);
        break;
    case SL_PT_VARINT:
        fine = sl_mqtt_read_varint(rd, &out->number);
        break;
    case SL_PT_STRING:
        fine = sl_mqtt_read_text(rd, &out->text, wildcard);
        break;
    case SL_PT_BINARY:
        fine = sl_mqtt_read_binary(rd, &out->text);
        break;
    case SL_PT_PAIR:
        fine = sl_mqtt_read_text(rd, &out->text, NULL) && sl_mqtt_read_text(rd, &out->value, NULL);
        break;
    }
    out->wire = sl_slice_of(from, (size_t)(rd->at - from));
    return fine;
}

static bool check_value(sl_mqtt_reader *rd, const sl_mqtt_prop_view *pv, bool wildcard)
{
    switch ((sl_mqtt_prop_rule)pv->row->rule) {
    case SL_PR_ANY:
        return true;
    case SL_PR_BOOL:
        if (pv->number > 1)
            return sl_mqtt_violation(rd,
                                     "property is neither 0 nor 1 (2.2.2.2, 3.1.2.11, 3.2.2.3)");
        return true;
    case SL_PR_NONZERO:
        if (pv->number == 0)
            return sl_mqtt_violation(
                rd, "property is 0 (3.1.2.11.3, 3.1.2.11.4, 3.3.2.3.8, 3.8.2.1.2)");
        return true;
    case SL_PR_ALIAS:
        if (pv->number == 0)
            return sl_mqtt_reader_fail(rd, SL_EPROTOCOL, SL_RC_TOPIC_ALIAS_INVALID,
                                       "topic alias is 0 [MQTT-3.3.2-8]");
        return true;
    case SL_PR_TOPIC:
        if (wildcard)
            return sl_mqtt_violation(rd, "response topic holds a wildcard [MQTT-3.3.2-14]");
        if (pv->text.len == 0)
            return sl_mqtt_violation(rd, "response topic is empty [MQTT-4.7.3-1]");
        return true;
    }
    return true;
}

static void store_value(sl_mqtt_props *out, const sl_mqtt_prop_view *pv)
{
    uint8_t *field = (uint8_t *)out + pv->row->field;
    switch ((sl_mqtt_prop_type)pv->row->type) {
    case SL_PT_BYTE:
        *field = (uint8_t)pv->number;
        break;
    case SL_PT_U16: {
        uint16_t word = (uint16_t)pv->number;
        memcpy(field, &word, sizeof(word));
        break;
    }
    case SL_PT_U32:
        memcpy(field, &pv->number, sizeof(pv->number));
        break;
    case SL_PT_VARINT:
        // Of several subscription identifiers the first is kept, the rest is read from raw.
        if ((out->has & pv->row->bit) == 0)
            memcpy(field, &pv->number, sizeof(pv->number));
        break;
    case SL_PT_STRING:
    case SL_PT_BINARY:
        memcpy(field, &pv->text, sizeof(pv->text));
        break;
    case SL_PT_PAIR:
        break;
    }
}

static bool parse_all(sl_mqtt_reader *rd, uint32_t where, sl_mqtt_props *out)
{
    while (rd->at != rd->end) {
        sl_mqtt_prop_view pv;
        bool wildcard = false;
        if (!read_one(rd, &pv, &wildcard))
            return false;
        if ((pv.row->where & where) == 0)
            return sl_mqtt_malformed(rd, "property does not belong in this packet (2.2.2.2)");
        if ((out->has & pv.row->bit) != 0 && (pv.row->repeat & where) == 0)
            return sl_mqtt_violation(rd, "property stands there twice (2.2.2.2)");
        if (!check_value(rd, &pv, wildcard))
            return false;
        store_value(out, &pv);
        out->has |= pv.row->bit;
    }
    if ((out->has & SL_PROP_AUTH_DATA) != 0 && (out->has & SL_PROP_AUTH_METHOD) == 0)
        return sl_mqtt_violation(rd, "authentication data without a method (3.1.2.11.10)");
    return true;
}

sl_err sl_mqtt_props_parse(sl_slice raw, uint32_t where, sl_mqtt_props *out, sl_mqtt_rc *rc,
                           const char **why)
{
    *out = (sl_mqtt_props){.raw = raw};
    sl_mqtt_reader rd = {.at = raw.ptr, .end = raw.len > 0 ? raw.ptr + raw.len : raw.ptr};
    if (parse_all(&rd, where, out))
        return SL_OK;
    *rc = rd.rc;
    *why = rd.why;
    return rd.err;
}

bool sl_mqtt_read_props(sl_mqtt_reader *rd, uint32_t where, sl_mqtt_props *out)
{
    uint32_t len;
    if (!sl_mqtt_read_varint(rd, &len))
        return false;
    if (len > sl_mqtt_reader_left(rd))
        return sl_mqtt_malformed(rd, "property length goes beyond the packet (2.2.2.1)");
    *out = (sl_mqtt_props){.raw = sl_slice_of(rd->at, len)};
    sl_mqtt_reader inner = {.at = rd->at, .end = rd->at + len};
    rd->at += len;
    if (len == 0 || parse_all(&inner, where, out))
        return true;
    return sl_mqtt_reader_fail(rd, inner.err, inner.rc, inner.why);
}

bool sl_mqtt_prop_next(sl_slice raw, size_t *pos, sl_mqtt_prop_view *out)
{
    if (*pos >= raw.len)
        return false;
    sl_mqtt_reader rd = {.at = raw.ptr + *pos, .end = raw.ptr + raw.len};
    bool wildcard;
    if (!read_one(&rd, out, &wildcard))
        return false;
    *pos = (size_t)(rd.at - raw.ptr);
    return true;
}

bool sl_mqtt_user_next(sl_slice raw, size_t *pos, sl_mqtt_user_prop *out)
{
    sl_mqtt_prop_view pv;
    while (sl_mqtt_prop_next(raw, pos, &pv)) {
        if (pv.row->bit == SL_PROP_USER) {
            *out = (sl_mqtt_user_prop){.name = pv.text, .value = pv.value};
            return true;
        }
    }
    return false;
}

bool sl_mqtt_sub_id_next(sl_slice raw, size_t *pos, uint32_t *out)
{
    sl_mqtt_prop_view pv;
    while (sl_mqtt_prop_next(raw, pos, &pv)) {
        if (pv.row->bit == SL_PROP_SUBSCRIPTION_ID) {
            *out = pv.number;
            return true;
        }
    }
    return false;
}

/* ---- writing ---- */

static uint32_t number_of(const sl_mqtt_props *props, const sl_mqtt_prop_row *row)
{
    const uint8_t *field = (const uint8_t *)props + row->field;
    uint32_t value = *field;
    if (row->type == SL_PT_U16) {
        uint16_t word;
        memcpy(&word, field, sizeof(word));
        value = word;
    } else if (row->type != SL_PT_BYTE) {
        memcpy(&value, field, sizeof(value));
    }
    return value;
}

static sl_slice text_of(const sl_mqtt_props *props, const sl_mqtt_prop_row *row)
{
    sl_slice text;
    memcpy(&text, (const uint8_t *)props + row->field, sizeof(text));
    return text;
}

static sl_err size_of_users(const sl_mqtt_props *props, uint64_t *total)
{
    if ((props->has & SL_PROP_USER) != 0 && props->user_count == 0)
        return SL_EINVAL;
    for (uint32_t i = 0; i < props->user_count; i++) {
        const sl_mqtt_user_prop *up = &props->user[i];
        if (up->name.len > MAX_TEXT_BYTES || up->value.len > MAX_TEXT_BYTES)
            return SL_EINVAL;
        *total += 5 + up->name.len + up->value.len;
    }
    return SL_OK;
}

static sl_err size_of_sub_ids(const sl_mqtt_props *props, uint32_t where, uint64_t *total)
{
    if (props->sub_id_count > 0 && where != SL_PROPS_OF(SL_MQTT_PUBLISH))
        return SL_EINVAL;
    for (uint32_t i = 0; i < props->sub_id_count; i++) {
        if (props->sub_ids[i] == 0 || props->sub_ids[i] > SL_MQTT_MAX_REMAINING)
            return SL_EINVAL;
        *total += 1 + sl_mqtt_varint_size(props->sub_ids[i]);
    }
    return SL_OK;
}

static sl_err size_of_row(const sl_mqtt_props *props, const sl_mqtt_prop_row *row, uint64_t *total)
{
    switch ((sl_mqtt_prop_type)row->type) {
    case SL_PT_BYTE:
        *total += 2;
        return SL_OK;
    case SL_PT_U16:
        *total += 3;
        return SL_OK;
    case SL_PT_U32:
        *total += 5;
        return SL_OK;
    case SL_PT_VARINT:
        if (props->sub_id_count > 0)
            return SL_OK; // the list takes the place of the single one
        if (number_of(props, row) > SL_MQTT_MAX_REMAINING)
            return SL_EINVAL;
        *total += 1 + sl_mqtt_varint_size(number_of(props, row));
        return SL_OK;
    case SL_PT_STRING:
    case SL_PT_BINARY:
        if (text_of(props, row).len > MAX_TEXT_BYTES)
            return SL_EINVAL;
        *total += 3 + text_of(props, row).len;
        return SL_OK;
    case SL_PT_PAIR:
        return SL_OK; // counted by size_of_users
    }
    return SL_EINVAL;
}

sl_err sl_mqtt_props_size(const sl_mqtt_props *props, uint32_t where, uint32_t *size)
{
    uint64_t total = 0;
    if (props->use_raw) {
        total = props->raw.len;
    } else {
        if (size_of_users(props, &total) != SL_OK || size_of_sub_ids(props, where, &total) != SL_OK)
            return SL_EINVAL;
        for (size_t i = 0; props->has != 0 && i < sizeof(order); i++) {
            const sl_mqtt_prop_row *row = &rows[order[i]];
            if ((props->has & row->bit) == 0)
                continue;
            if ((row->where & where) == 0 || size_of_row(props, row, &total) != SL_OK)
                return SL_EINVAL;
        }
    }
    if (total > SL_MQTT_MAX_REMAINING)
        return SL_EINVAL;
    *size = (uint32_t)total;
    return SL_OK;
}

static uint8_t *put_text(uint8_t *at, sl_slice text)
{
    *at++ = (uint8_t)(text.len >> 8);
    *at++ = (uint8_t)text.len;
    if (text.len > 0)
        memcpy(at, text.ptr, text.len);
    return at + text.len;
}

static uint8_t *put_row(const sl_mqtt_props *props, const sl_mqtt_prop_row *row, uint8_t *at)
{
    if (row->type == SL_PT_PAIR || (row->type == SL_PT_VARINT && props->sub_id_count > 0))
        return at;
    *at++ = row->id;
    if (row->type == SL_PT_STRING || row->type == SL_PT_BINARY)
        return put_text(at, text_of(props, row));
    uint32_t value = number_of(props, row);
    if (row->type == SL_PT_VARINT)
        return at + sl_mqtt_varint_write(at, value);
    unsigned bits = row->type == SL_PT_BYTE ? 8 : row->type == SL_PT_U16 ? 16 : 32;
    while (bits > 0) {
        bits -= 8;
        *at++ = (uint8_t)(value >> bits);
    }
    return at;
}

uint8_t *sl_mqtt_props_write(const sl_mqtt_props *props, uint8_t *at)
{
    if (props->use_raw) {
        if (props->raw.len > 0)
            memcpy(at, props->raw.ptr, props->raw.len);
        return at + props->raw.len;
    }
    for (size_t i = 0; props->has != 0 && i < sizeof(order); i++) {
        if ((props->has & rows[order[i]].bit) != 0)
            at = put_row(props, &rows[order[i]], at);
    }
    for (uint32_t i = 0; i < props->sub_id_count; i++) {
        *at++ = 0x0B;
        at += sl_mqtt_varint_write(at, props->sub_ids[i]);
    }
    for (uint32_t i = 0; i < props->user_count; i++) {
        *at++ = 0x26;
        at = put_text(at, props->user[i].name);
        at = put_text(at, props->user[i].value);
    }
    return at;
}
