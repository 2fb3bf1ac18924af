/* SPDX-License-Identifier: Apache-2.0
 *
 * uri: one decoder for everything that comes in a request target.
 */
#include "http/uri.h"

#include <string.h>
#include <strings.h>

static int hex_value(uint8_t ch)
{
    if (ch >= '0' && ch <= '9')
        return ch - '0';
    ch |= 0x20;
    return ch >= 'a' && ch <= 'f' ? ch - 'a' + 10 : -1;
}

sl_err sl_uri_decode(sl_slice text, bool plus_is_space, sl_buf *out, const char **why)
{
    for (size_t i = 0; i < text.len; i++) {
        uint8_t ch = text.ptr[i];
        if (ch == '%') {
            int high = i + 2 < text.len ? hex_value(text.ptr[i + 1]) : -1;
            int low = high >= 0 ? hex_value(text.ptr[i + 2]) : -1;
            if (high < 0 || low < 0) {
                *why = "bad percent-encoding";
                return SL_EINVAL;
            }
            ch = (uint8_t)(high * 16 + low);
            i += 2;
        } else if (ch == '+' && plus_is_space) {
            ch = ' ';
        }
        if (ch == '\0') {
            *why = "NUL in the request target";
            return SL_EINVAL;
        }
        sl_err err = sl_buf_append_u8(out, ch);
        if (err != SL_OK) {
            *why = "request target too long";
            return err;
        }
    }
    return SL_OK;
}

static bool is_unreserved(uint8_t ch)
{
    return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') ||
           ch == '-' || ch == '.' || ch == '_' || ch == '~';
}

sl_err sl_uri_encode(sl_slice text, sl_buf *out)
{
    static const char digits[] = "0123456789ABCDEF";
    for (size_t i = 0; i < text.len; i++) {
        uint8_t ch = text.ptr[i];
        char escaped[3] = {'%', digits[ch >> 4], digits[ch & 15]};
        sl_err err = is_unreserved(ch) ? sl_buf_append_u8(out, ch)
                                       : sl_buf_append(out, escaped, sizeof(escaped));
        if (err != SL_OK)
            return err;
    }
    return SL_OK;
}

/* Bytes before the first stop, or all. */
static size_t until(sl_slice text, uint8_t stop)
{
    const uint8_t *at = text.len == 0 ? NULL : memchr(text.ptr, stop, text.len);
    return at == NULL ? text.len : (size_t)(at - text.ptr);
}

static sl_slice skip(sl_slice text, size_t bytes)
{
    return sl_slice_of(text.ptr + bytes, text.len - bytes);
}

sl_err sl_uri_split(sl_slice target, sl_slice *path, sl_slice *query, const char **why)
{
    static const char *const schemes[] = {"http://", "https://"};
    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++) {
        size_t len = strlen(schemes[i]);
        if (target.len < len || strncasecmp((const char *)target.ptr, schemes[i], len) != 0)
            continue;
        target = skip(target, len); // absolute form: the authority is not ours to judge
        size_t end = until(target, '/');
        size_t mark = until(target, '?');
        target = skip(target, end < mark ? end : mark);
        if (target.len == 0 || target.ptr[0] == '?') {
            *path = sl_slice_str("/");
            *query = target.len == 0 ? target : skip(target, 1);
            return SL_OK;
        }
        break;
    }
    if (target.len == 0 || (target.ptr[0] != '/' && !sl_slice_equal(target, sl_slice_str("*")))) {
        *why = "request target must begin with /";
        return SL_EINVAL;
    }
    target.len = until(target, '#');
    size_t mark = until(target, '?');
    *path = sl_slice_of(target.ptr, mark);
    *query = mark < target.len ? skip(target, mark + 1) : sl_slice_of(NULL, 0);
    return SL_OK;
}

static bool has_encoded_slash(sl_slice path)
{
    for (size_t i = 0; i + 2 < path.len; i++)
        if (path.ptr[i] == '%' && hex_value(path.ptr[i + 1]) == '/' / 16 &&
            hex_value(path.ptr[i + 2]) == '/' % 16)
            return true;
    return false;
}

static bool has_dot_segment(sl_slice path)
{
    while (path.len > 0) {
        path = skip(path, 1); // the '/'
        size_t len = until(path, '/');
        if ((len == 1 && path.ptr[0] == '.') ||
            (len == 2 && path.ptr[0] == '.' && path.ptr[1] == '.'))
            return true;
        path = skip(path, len);
    }
    return false;
}

sl_err sl_uri_decode_path(sl_slice path, sl_buf *out, const char **why)
{
    if (sl_slice_equal(path, sl_slice_str("*")))
        path = sl_slice_str("/"); // OPTIONS * asks about the server
    if (path.len == 0 || path.ptr[0] != '/') {
        *why = "request target must begin with /";
        return SL_EINVAL;
    }
    if (has_encoded_slash(path)) {
        *why = "encoded slash in the path";
        return SL_EINVAL;
    }
    size_t before = sl_buf_peek(out).len;
    sl_err err = sl_uri_decode(path, false, out, why);
    if (err != SL_OK)
        return err;
    if (has_dot_segment(skip(sl_buf_peek(out), before))) {
        *why = "dot segment in the path";
        return SL_EINVAL;
    }
    return SL_OK;
}
