/* SPDX-License-Identifier: Apache-2.0
 *
 * json: a scanner over JSON text that keeps one bit per open bracket instead of recursing. It
 * checks the grammar and finds where values begin and end; it builds no tree and changes nothing,
 * so numbers and strings reach the caller exactly as they were written. Any thread.
 */
#include "base/json.h"

#include <string.h>

#include "base/assert.h"

typedef struct scanner {
    const uint8_t *at;
    const uint8_t *end;
} scanner;

/* Brackets that are open: one bit each, 1 = object. */
typedef struct nest {
    uint64_t bits[(SL_JSON_MAX_DEPTH + 63) / 64];
    unsigned depth;
} nest;

static void skip_space(scanner *sc)
{
    while (sc->at < sc->end &&
           (*sc->at == ' ' || *sc->at == '\t' || *sc->at == '\n' || *sc->at == '\r'))
        sc->at++;
}

static bool is_digit(const scanner *sc)
{
    return sc->at < sc->end && *sc->at >= '0' && *sc->at <= '9';
}

static bool skip_digits(scanner *sc)
{
    if (!is_digit(sc))
        return false;
    while (is_digit(sc))
        sc->at++;
    return true;
}

static bool skip_char(scanner *sc, char want)
{
    if (sc->at == sc->end || *sc->at != (uint8_t)want)
        return false;
    sc->at++;
    return true;
}

static bool skip_number(scanner *sc)
{
    skip_char(sc, '-');
    if (!skip_char(sc, '0') && !skip_digits(sc))
        return false;
    if (skip_char(sc, '.') && !skip_digits(sc))
        return false;
    if (skip_char(sc, 'e') || skip_char(sc, 'E')) {
        if (!skip_char(sc, '+'))
            skip_char(sc, '-');
        return skip_digits(sc);
    }
    return true;
}

static bool skip_word(scanner *sc, const char *word)
{
    size_t len = strlen(word);
    if ((size_t)(sc->end - sc->at) < len || memcmp(sc->at, word, len) != 0)
        return false;
    sc->at += len;
    return true;
}

static int hex_value(uint8_t digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    if (digit >= 'a' && digit <= 'f')
        return digit - 'a' + 10;
    return digit >= 'A' && digit <= 'F' ? digit - 'A' + 10 : -1;
}

static bool read_hex4(scanner *sc, uint32_t *unit)
{
    if (sc->end - sc->at < 4)
        return false;
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) {
        int digit = hex_value(sc->at[i]);
        if (digit < 0)
            return false;
        value = value << 4 | (uint32_t)digit;
    }
    sc->at += 4;
    *unit = value;
    return true;
}

// The escapes of one letter and what they stand for, pair by pair.
static const char short_escapes[] = "\"\"\\\\//b\bf\fn\nr\rt\t";

static bool find_short_escape(uint8_t letter, char *meaning)
{
    for (size_t i = 0; i + 1 < sizeof(short_escapes); i += 2) {
        if ((uint8_t)short_escapes[i] == letter) {
            *meaning = short_escapes[i + 1];
            return true;
        }
    }
    return false;
}

static bool skip_escape(scanner *sc)
{
    uint32_t unit;
    char meaning;
    if (skip_char(sc, 'u'))
        return read_hex4(sc, &unit);
    if (sc->at == sc->end || !find_short_escape(*sc->at, &meaning))
        return false;
    sc->at++;
    return true;
}

static bool skip_string(scanner *sc)
{
    if (!skip_char(sc, '"'))
        return false;
    const uint8_t *start = sc->at;
    while (sc->at < sc->end) {
        uint8_t byte = *sc->at;
        if (byte == '"') {
            bool valid = sl_utf8_is_valid(sl_slice_of(start, (size_t)(sc->at - start)));
            sc->at++;
            return valid;
        }
        if (byte < 0x20)
            return false;
        sc->at++;
        if (byte == '\\' && !skip_escape(sc))
            return false;
    }
    return false;
}

static bool skip_scalar(scanner *sc)
{
    if (sc->at == sc->end)
        return false;
    switch (*sc->at) {
    case '"':
        return skip_string(sc);
    case 't':
        return skip_word(sc, "true");
    case 'f':
        return skip_word(sc, "false");
    case 'n':
        return skip_word(sc, "null");
    default:
        return skip_number(sc);
    }
}

static bool nest_push(nest *ns, bool object)
{
    if (ns->depth == SL_JSON_MAX_DEPTH)
        return false;
    uint64_t bit = 1ull << (ns->depth % 64);
    if (object)
        ns->bits[ns->depth / 64] |= bit;
    else
        ns->bits[ns->depth / 64] &= ~bit;
    ns->depth++;
    return true;
}

static bool nest_in_object(const nest *ns)
{
    unsigned top = ns->depth - 1;
    return (ns->bits[top / 64] >> (top % 64) & 1) != 0;
}

static bool skip_member_name(scanner *sc)
{
    skip_space(sc);
    if (!skip_string(sc))
        return false;
    skip_space(sc);
    return skip_char(sc, ':');
}

// A scalar, or a bracket that opens (entered, so that a value must follow, unless it closes at
// once). *opened says that the next thing is again a value.
static bool begin_value(scanner *sc, nest *ns, bool *opened)
{
    *opened = false;
    skip_space(sc);
    bool object = sc->at < sc->end && *sc->at == '{';
    if (!object && !(sc->at < sc->end && *sc->at == '['))
        return skip_scalar(sc);
    sc->at++;
    skip_space(sc);
    if (skip_char(sc, object ? '}' : ']'))
        return ns->depth < SL_JSON_MAX_DEPTH;
    *opened = true;
    return nest_push(ns, object) && (!object || skip_member_name(sc));
}

// From a value's first byte (or space before it) to behind its last byte.
static bool skip_value(scanner *sc)
{
    nest ns = {.depth = 0};
    for (;;) {
        bool opened;
        if (!begin_value(sc, &ns, &opened))
            return false;
        if (opened)
            continue;
        // A value is complete: close what closes here, or go on behind a comma.
        while (ns.depth != 0) {
            skip_space(sc);
            bool object = nest_in_object(&ns);
            if (skip_char(sc, ',')) {
                if (object && !skip_member_name(sc))
                    return false;
                break;
            }
            if (!skip_char(sc, object ? '}' : ']'))
                return false;
            ns.depth--;
        }
        if (ns.depth == 0)
            return true;
    }
}

bool sl_json_is_valid(sl_slice text)
{
    if (text.len == 0)
        return false;
    scanner sc = {text.ptr, text.ptr + text.len};
    if (!skip_value(&sc))
        return false;
    skip_space(&sc);
    return sc.at == sc.end;
}

static sl_json_kind kind_of(uint8_t first)
{
    switch (first) {
    case '{':
        return SL_JSON_OBJECT;
    case '[':
        return SL_JSON_ARRAY;
    case '"':
        return SL_JSON_STRING;
    case 't':
    case 'f':
        return SL_JSON_BOOL;
    case 'n':
        return SL_JSON_NULL;
    default:
        return SL_JSON_NUMBER;
    }
}

static sl_slice value_at(scanner *sc)
{
    skip_space(sc);
    const uint8_t *start = sc->at;
    bool valid = skip_value(sc);
    SL_ASSERT(valid); // the text was checked as a whole before
    return sl_slice_of(start, (size_t)(sc->at - start));
}

static bool name_equals(sl_slice raw, sl_slice name)
{
    sl_slice inner = sl_slice_of(raw.ptr + 1, raw.len - 2);
    if (inner.len == 0 || memchr(inner.ptr, '\\', inner.len) == NULL)
        return sl_slice_equal(inner, name);
    sl_buf plain;
    sl_buf_init(&plain, name.len); // a longer name differs anyway
    bool equal = sl_json_decode_string((sl_json_value){SL_JSON_STRING, raw}, &plain) == SL_OK &&
                 sl_slice_equal(sl_buf_peek(&plain), name);
    sl_buf_fini(&plain);
    return equal;
}

// The last member of this (valid) object with that name.
static bool find_member(sl_slice object, sl_slice name, sl_slice *out)
{
    scanner sc = {object.ptr + 1, object.ptr + object.len};
    bool found = false;
    skip_space(&sc);
    if (skip_char(&sc, '}'))
        return false;
    for (;;) {
        sl_slice key = value_at(&sc);
        skip_space(&sc);
        sc.at++; // the colon
        sl_slice value = value_at(&sc);
        if (name_equals(key, name)) {
            *out = value;
            found = true;
        }
        skip_space(&sc);
        if (*sc.at++ == '}')
            return found;
    }
}

sl_err sl_json_find(sl_slice text, const char *path, sl_json_value *out)
{
    if (!sl_json_is_valid(text))
        return SL_EMALFORMED;
    scanner sc = {text.ptr, text.ptr + text.len};
    sl_slice value = value_at(&sc);
    for (const char *part = path;;) {
        size_t len = strcspn(part, ".");
        if (value.ptr[0] != '{' || !find_member(value, sl_slice_of(part, len), &value))
            return SL_ENOTFOUND;
        if (part[len] == '\0')
            break;
        part += len + 1;
    }
    *out = (sl_json_value){kind_of(value.ptr[0]), value};
    return SL_OK;
}

static sl_err append_code(sl_buf *out, uint32_t code)
{
    uint8_t bytes[4];
    size_t len;
    if (code < 0x80) {
        bytes[0] = (uint8_t)code;
        len = 1;
    } else if (code < 0x800) {
        bytes[0] = (uint8_t)(0xC0 | code >> 6);
        len = 2;
    } else if (code < 0x10000) {
        bytes[0] = (uint8_t)(0xE0 | code >> 12);
        len = 3;
    } else {
        bytes[0] = (uint8_t)(0xF0 | code >> 18);
        len = 4;
    }
    for (size_t i = 1; i < len; i++)
        bytes[i] = (uint8_t)(0x80 | (code >> (6 * (len - 1 - i)) & 0x3F));
    return sl_buf_append(out, bytes, len);
}

static sl_err decode_unicode(scanner *sc, sl_buf *out)
{
    uint32_t unit, low;
    if (!read_hex4(sc, &unit) || (unit >= 0xDC00 && unit <= 0xDFFF))
        return SL_EMALFORMED;
    if (unit < 0xD800 || unit > 0xDBFF)
        return append_code(out, unit);
    if (!skip_word(sc, "\\u") || !read_hex4(sc, &low) || low < 0xDC00 || low > 0xDFFF)
        return SL_EMALFORMED;
    return append_code(out, 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00));
}

static sl_err decode_escape(scanner *sc, sl_buf *out)
{
    char meaning;
    if (skip_char(sc, 'u'))
        return decode_unicode(sc, out);
    if (sc->at == sc->end || !find_short_escape(*sc->at, &meaning))
        return SL_EMALFORMED;
    sc->at++;
    return sl_buf_append_u8(out, (uint8_t)meaning);
}

sl_err sl_json_decode_string(sl_json_value value, sl_buf *out)
{
    if (value.kind != SL_JSON_STRING || value.raw.len < 2)
        return SL_EINVAL;
    size_t before = sl_buf_peek(out).len;
    scanner sc = {value.raw.ptr + 1, value.raw.ptr + value.raw.len - 1};
    sl_err err = SL_OK;
    while (err == SL_OK && sc.at < sc.end) {
        size_t left = (size_t)(sc.end - sc.at);
        const uint8_t *escape = memchr(sc.at, '\\', left);
        size_t plain = escape == NULL ? left : (size_t)(escape - sc.at);
        err = sl_buf_append(out, sc.at, plain);
        sc.at += plain;
        if (err == SL_OK && skip_char(&sc, '\\'))
            err = decode_escape(&sc, out);
    }
    if (err != SL_OK)
        sl_buf_truncate(out, before);
    return err;
}

// Bytes that are written as they are: everything but JSON's own two, control bytes, and what a page
// or script around the text could take for markup. U+2028/9 begin with 0xE2.
static bool is_plain(uint8_t byte)
{
    return byte >= 0x20 && byte != '"' && byte != '\\' && byte != '<' && byte != '>' &&
           byte != '&' && byte != 0x7F && byte != 0xE2;
}

static sl_err write_special(sl_buf *out, sl_slice rest, size_t *used)
{
    uint8_t byte = rest.ptr[0];
    *used = 1;
    if (byte == 0xE2) {
        *used = 3;
        if (rest.ptr[1] == 0x80 && (rest.ptr[2] == 0xA8 || rest.ptr[2] == 0xA9))
            return sl_buf_append_str(out, rest.ptr[2] == 0xA8 ? "\\u2028" : "\\u2029");
        return sl_buf_append(out, rest.ptr, 3);
    }
    for (size_t i = 0; i + 1 < sizeof(short_escapes); i += 2)
        if ((uint8_t)short_escapes[i + 1] == byte)
            return sl_buf_append(out, (char[]){'\\', short_escapes[i]}, 2);
    return sl_buf_printf(out, "\\u%04x", (unsigned)byte);
}

sl_err sl_json_write_string(sl_buf *out, sl_slice text)
{
    if (!sl_utf8_is_valid(text))
        return SL_EMALFORMED;
    size_t before = sl_buf_peek(out).len;
    sl_err err = sl_buf_append_u8(out, '"');
    size_t i = 0;
    while (err == SL_OK && i < text.len) {
        size_t run = i;
        while (run < text.len && is_plain(text.ptr[run]))
            run++;
        err = sl_buf_append(out, text.ptr + i, run - i);
        i = run;
        if (err == SL_OK && i < text.len) {
            size_t used;
            err = write_special(out, sl_slice_of(text.ptr + i, text.len - i), &used);
            i += used;
        }
    }
    if (err == SL_OK)
        err = sl_buf_append_u8(out, '"');
    if (err != SL_OK)
        sl_buf_truncate(out, before);
    return err;
}
