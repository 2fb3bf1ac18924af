/* SPDX-License-Identifier: Apache-2.0
 *
 * doc_id: identifiers of documents. Every number gets one canonical decimal text, so that equality
 * is a comparison of bytes and no digit of a long number is lost on the way.
 */
#include "document.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/json.h"

#define DECIMAL_DIGITS  34 /* of Decimal128 */
#define DECIMAL_MIN_EXP (-6176)
#define DECIMAL_MAX_EXP 6111
#define DOUBLE_DIGITS   15  /* every decimal of that length is a double of its own, */
#define DOUBLE_MAX_EXP  300 /* well inside the normal range */
#define EXPONENT_LIMIT  1000000
#define NUMBER_TEXT     128

/* neg * digits * 10^exp, without leading and trailing zeros; count 0 is zero. */
typedef struct decimal {
    bool neg;
    int count;
    int64_t exp;
    char digits[DECIMAL_DIGITS + 1];
} decimal;

/* Digits and one point, from *at on. */
static sl_err scan_mantissa(sl_slice text, size_t *at, decimal *out)
{
    int64_t zeros = 0, fraction = 0;
    bool point = false, any = false;
    for (; *at < text.len; (*at)++) {
        char ch = (char)text.ptr[*at];
        if (ch == '.' && !point) {
            point = true;
            continue;
        }
        if (ch < '0' || ch > '9')
            break;
        any = true;
        fraction += point;
        if (ch == '0') {
            zeros += out->count > 0; // only counts if a digit follows
            continue;
        }
        if (out->count + zeros + 1 > DECIMAL_DIGITS)
            return SL_EINVAL;
        for (; zeros > 0; zeros--)
            out->digits[out->count++] = '0';
        out->digits[out->count++] = ch;
    }
    out->digits[out->count] = '\0';
    out->exp = zeros - fraction;
    return any ? SL_OK : SL_EINVAL;
}

static sl_err scan_exponent(sl_slice text, size_t *at, int64_t *exp)
{
    if (*at == text.len || (text.ptr[*at] != 'e' && text.ptr[*at] != 'E'))
        return SL_OK;
    (*at)++;
    bool neg = false, any = false;
    if (*at < text.len && (text.ptr[*at] == '-' || text.ptr[*at] == '+'))
        neg = text.ptr[(*at)++] == '-';
    int64_t value = 0;
    for (; *at < text.len && text.ptr[*at] >= '0' && text.ptr[*at] <= '9'; (*at)++) {
        any = true;
        if (value < EXPONENT_LIMIT)
            value = value * 10 + (text.ptr[*at] - '0');
    }
    *exp += neg ? -value : value;
    return any ? SL_OK : SL_EINVAL;
}

static sl_err scan_number(sl_slice text, decimal *out)
{
    *out = (decimal){.neg = text.len > 0 && text.ptr[0] == '-'};
    size_t at = out->neg ? 1 : 0;
    sl_err err = scan_mantissa(text, &at, out);
    if (err == SL_OK)
        err = scan_exponent(text, &at, &out->exp);
    if (err == SL_OK && at != text.len)
        err = SL_EINVAL;
    if (err == SL_OK && out->count == 0) { // -0 and 0e9 are 0
        out->neg = false;
        out->exp = 0;
    }
    return err;
}

/* True when it is a whole number in the range of int64. */
static bool to_int64(const decimal *dec, int64_t *out)
{
    if (dec->exp < 0 || dec->count + dec->exp > 19)
        return false;
    uint64_t value = 0;
    for (int i = 0; i < dec->count; i++)
        value = value * 10 + (uint64_t)(dec->digits[i] - '0');
    for (int64_t i = 0; i < dec->exp; i++)
        value *= 10; // below 10^19, fits
    if (value > (uint64_t)INT64_MAX + (dec->neg ? 1u : 0u))
        return false;
    *out = dec->neg ? (int64_t)(0 - value) : (int64_t)value;
    return true;
}

/* The one text of a number: plain where that is readable, else d.dddE+x. */
static void write_canonical(const decimal *dec, char out[NUMBER_TEXT])
{
    const char *sign = dec->neg ? "-" : "";
    int64_t point = dec->count + dec->exp; // digits before the point
    if (dec->exp >= 0 && point <= DECIMAL_DIGITS) {
        snprintf(out, NUMBER_TEXT, "%s%s%.*s", sign, dec->digits, (int)dec->exp,
                 "0000000000000000000000000000000000");
    } else if (point > 0 && dec->exp < 0) {
        snprintf(out, NUMBER_TEXT, "%s%.*s.%s", sign, (int)point, dec->digits, dec->digits + point);
    } else if (point <= 0 && point > -6) {
        snprintf(out, NUMBER_TEXT, "%s0.%.*s%s", sign, (int)-point, "00000", dec->digits);
    } else {
        snprintf(out, NUMBER_TEXT, "%s%c%s%sE%+lld", sign, dec->digits[0],
                 dec->count > 1 ? "." : "", dec->digits + 1, (long long)(point - 1));
    }
}

static double to_double(const decimal *dec)
{
    char text[NUMBER_TEXT]; // without a point, so that the locale does not matter
    snprintf(text, sizeof text, "%s%se%lld", dec->neg ? "-" : "", dec->digits, (long long)dec->exp);
    return strtod(text, NULL);
}

static void set_key(sl_doc_id *id, char type, sl_slice text)
{
    id->_mem = sl_alloc(text.len + 2);
    id->_mem[0] = (uint8_t)type;
    if (text.len > 0)
        memcpy(id->_mem + 1, text.ptr, text.len);
    id->_mem[text.len + 1] = '\0';
    id->key = sl_slice_of(id->_mem, text.len + 1);
    id->text = sl_slice_of(id->_mem + 1, text.len);
}

sl_err sl_doc_id_from_number(sl_slice text, sl_doc_id *out)
{
    decimal dec;
    sl_err err = scan_number(text, &dec);
    if (err != SL_OK)
        return err;
    int64_t point = dec.count + dec.exp;
    sl_doc_id id = {.kind = SL_DOC_ID_INT64};
    if (to_int64(&dec, &id.num)) {
        id.kind = SL_DOC_ID_INT64;
    } else if (dec.count <= DOUBLE_DIGITS && point < DOUBLE_MAX_EXP && point > -DOUBLE_MAX_EXP) {
        id.kind = SL_DOC_ID_DOUBLE;
        id.real = to_double(&dec);
    } else if (dec.exp >= DECIMAL_MIN_EXP && point <= DECIMAL_MAX_EXP + DECIMAL_DIGITS) {
        id.kind = SL_DOC_ID_DECIMAL;
    } else {
        return SL_EINVAL;
    }
    char canonical[NUMBER_TEXT];
    if (id.kind == SL_DOC_ID_INT64)
        snprintf(canonical, sizeof canonical, "%lld", (long long)id.num);
    else
        write_canonical(&dec, canonical);
    set_key(&id, 'n', sl_slice_str(canonical));
    *out = id;
    return SL_OK;
}

sl_err sl_doc_id_from_string(sl_slice text, sl_doc_id *out)
{
    if (text.len == 0 || text.len > SL_DOC_ID_MAX_BYTES || !sl_utf8_is_valid(text))
        return SL_EINVAL;
    *out = (sl_doc_id){.kind = SL_DOC_ID_STRING};
    set_key(out, 's', text);
    return SL_OK;
}

void sl_doc_id_from_bool(bool value, sl_doc_id *out)
{
    *out = (sl_doc_id){.kind = SL_DOC_ID_BOOL, .num = value};
    set_key(out, 'b', sl_slice_str(value ? "true" : "false"));
}

void sl_doc_id_from_oid(const uint8_t oid[SL_DOC_OID_BYTES], sl_doc_id *out)
{
    *out = (sl_doc_id){.kind = SL_DOC_ID_OID};
    memcpy(out->oid, oid, SL_DOC_OID_BYTES);
    char hex[2 * SL_DOC_OID_BYTES + 1];
    for (size_t i = 0; i < SL_DOC_OID_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", oid[i]);
    set_key(out, 'o', sl_slice_of(hex, sizeof hex - 1));
}

static int hex_digit(uint8_t ch)
{
    if (ch >= '0' && ch <= '9')
        return ch - '0';
    if (ch >= 'a' && ch <= 'f')
        return ch - 'a' + 10;
    return ch >= 'A' && ch <= 'F' ? ch - 'A' + 10 : -1;
}

static bool is_blank(uint8_t ch)
{
    return ch == ' ' || ch == '\t' || ch == '\n' || ch == '\r';
}

/* text without blanks is exactly want. */
static bool is_spelled(sl_slice text, const char *want)
{
    for (size_t i = 0; i < text.len; i++) {
        if (is_blank(text.ptr[i]))
            continue;
        if (*want == '\0' || (uint8_t)*want != text.ptr[i])
            return false;
        want++;
    }
    return *want == '\0';
}

/* {"$oid":"<24 hex>"} and nothing else in the object: any other operator-like object is refused. */
static sl_err from_oid_object(sl_slice object, sl_doc_id *out)
{
    sl_json_value hex;
    sl_err err = sl_json_find(object, "$oid", &hex);
    if (err != SL_OK || hex.kind != SL_JSON_STRING || hex.raw.len != 2 * SL_DOC_OID_BYTES + 2)
        return SL_EINVAL;
    size_t before = (size_t)(hex.raw.ptr - object.ptr);
    size_t behind = before + hex.raw.len;
    if (!is_spelled(sl_slice_of(object.ptr, before), "{\"$oid\":") ||
        !is_spelled(sl_slice_of(object.ptr + behind, object.len - behind), "}"))
        return SL_EINVAL;
    uint8_t oid[SL_DOC_OID_BYTES];
    for (size_t i = 0; i < SL_DOC_OID_BYTES; i++) {
        int high = hex_digit(hex.raw.ptr[1 + 2 * i]);
        int low = hex_digit(hex.raw.ptr[2 + 2 * i]);
        if (high < 0 || low < 0)
            return SL_EINVAL;
        oid[i] = (uint8_t)(high << 4 | low);
    }
    sl_doc_id_from_oid(oid, out);
    return SL_OK;
}

static sl_err from_json_string(sl_json_value value, sl_doc_id *out)
{
    sl_buf text;
    sl_buf_init(&text, SL_DOC_ID_MAX_BYTES);
    sl_err err = sl_json_decode_string(value, &text);
    err = err == SL_OK ? sl_doc_id_from_string(sl_buf_peek(&text), out) : SL_EINVAL;
    sl_buf_fini(&text);
    return err;
}

sl_err sl_doc_id_from_json(sl_slice value, sl_doc_id *out)
{
    if (value.len == 0)
        return SL_EINVAL;
    switch (value.ptr[0]) {
    case '"':
        return from_json_string((sl_json_value){.kind = SL_JSON_STRING, .raw = value}, out);
    case '{':
        return from_oid_object(value, out);
    case 't':
    case 'f':
        sl_doc_id_from_bool(value.ptr[0] == 't', out);
        return SL_OK;
    case '[':
    case 'n':
        return SL_EINVAL;
    default:
        return sl_doc_id_from_number(value, out);
    }
}

void sl_doc_id_fini(sl_doc_id *id)
{
    sl_free(id->_mem);
    *id = (sl_doc_id){.kind = SL_DOC_ID_OID};
}

void sl_oid_source_init(sl_oid_source *src)
{
    uint32_t first = 0;
    ssize_t got = getrandom(src->_random, sizeof src->_random, 0);
    ssize_t more = getrandom(&first, sizeof first, 0);
    SL_ASSERT(got == (ssize_t)sizeof src->_random && more == (ssize_t)sizeof first);
    atomic_init(&src->_next, first);
}

void sl_oid_source_next(sl_oid_source *src, int64_t wall_ns, uint8_t out[SL_DOC_OID_BYTES])
{
    uint32_t seconds = (uint32_t)(wall_ns / 1000000000);
    uint32_t count = atomic_fetch_add_explicit(&src->_next, 1, memory_order_relaxed);
    for (int i = 0; i < 4; i++)
        out[i] = (uint8_t)(seconds >> (24 - 8 * i));
    memcpy(out + 4, src->_random, sizeof src->_random);
    for (int i = 0; i < 3; i++)
        out[9 + i] = (uint8_t)(count >> (16 - 8 * i));
}
