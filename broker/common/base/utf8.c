/* SPDX-License-Identifier: Apache-2.0
 *
 * utf8: strict UTF-8 (RFC 3629) and base64 (RFC 4648), declared in json.h. Any thread.
 */
#include <stdint.h>
#include <string.h>

#include "base/json.h"

#define ASCII_MASK 0x8080808080808080ull

// Bytes of the well-formed sequence at ptr (2 to 4), or 0. The second byte's range is what excludes
// overlong forms, surrogates and everything above U+10FFFF.
static size_t sequence_len(const uint8_t *ptr, size_t left)
{
    uint8_t lead = ptr[0];
    uint8_t low = 0x80, high = 0xBF;
    size_t len;
    if (lead >= 0xC2 && lead <= 0xDF) {
        len = 2;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
        len = 3;
        low = lead == 0xE0 ? 0xA0 : 0x80;
        high = lead == 0xED ? 0x9F : 0xBF;
    } else if (lead >= 0xF0 && lead <= 0xF4) {
        len = 4;
        low = lead == 0xF0 ? 0x90 : 0x80;
        high = lead == 0xF4 ? 0x8F : 0xBF;
    } else {
        return 0;
    }
    if (left < len || ptr[1] < low || ptr[1] > high)
        return 0;
    for (size_t i = 2; i < len; i++)
        if ((ptr[i] & 0xC0) != 0x80)
            return 0;
    return len;
}

bool sl_utf8_is_valid(sl_slice bytes)
{
    size_t i = 0;
    while (i < bytes.len) {
        if (bytes.ptr[i] < 0x80) {
            uint64_t word;
            // Text is mostly ASCII: eight bytes at a time while it lasts.
            while (bytes.len - i >= sizeof(word)) {
                memcpy(&word, bytes.ptr + i, sizeof(word));
                if ((word & ASCII_MASK) != 0)
                    break;
                i += sizeof(word);
            }
            while (i < bytes.len && bytes.ptr[i] < 0x80)
                i++;
            continue;
        }
        size_t len = sequence_len(bytes.ptr + i, bytes.len - i);
        if (len == 0)
            return false;
        i += len;
    }
    return true;
}

size_t sl_utf8_next(sl_slice bytes, uint32_t *code)
{
    if (bytes.len == 0)
        return 0;
    uint8_t lead = bytes.ptr[0];
    if (lead < 0x80) {
        *code = lead;
        return 1;
    }
    size_t len = sequence_len(bytes.ptr, bytes.len);
    if (len == 0)
        return 0;
    uint32_t value = lead & (0xFFu >> (len + 1));
    for (size_t i = 1; i < len; i++)
        value = value << 6 | (bytes.ptr[i] & 0x3F);
    *code = value;
    return len;
}

static const char base64_digits[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

sl_err sl_base64_write(sl_buf *out, sl_slice bytes)
{
    if (bytes.len > SIZE_MAX / 4 * 3 - 3)
        return SL_ETOOBIG;
    size_t len = (bytes.len + 2) / 3 * 4;
    uint8_t *to;
    sl_err err = sl_buf_reserve(out, len, &to);
    if (err != SL_OK)
        return err;
    size_t i = 0;
    for (; i + 3 <= bytes.len; i += 3) {
        uint32_t group =
            (uint32_t)bytes.ptr[i] << 16 | (uint32_t)bytes.ptr[i + 1] << 8 | bytes.ptr[i + 2];
        for (unsigned shift = 24; shift != 0; shift -= 6)
            *to++ = (uint8_t)base64_digits[group >> (shift - 6) & 63];
    }
    size_t rest = bytes.len - i;
    if (rest != 0) {
        uint32_t group = (uint32_t)bytes.ptr[i] << 16;
        if (rest == 2)
            group |= (uint32_t)bytes.ptr[i + 1] << 8;
        *to++ = (uint8_t)base64_digits[group >> 18];
        *to++ = (uint8_t)base64_digits[group >> 12 & 63];
        *to++ = rest == 2 ? (uint8_t)base64_digits[group >> 6 & 63] : '=';
        *to++ = '=';
    }
    sl_buf_commit(out, len);
    return SL_OK;
}

static int digit_value(uint8_t digit)
{
    if (digit >= 'A' && digit <= 'Z')
        return digit - 'A';
    if (digit >= 'a' && digit <= 'z')
        return digit - 'a' + 26;
    if (digit >= '0' && digit <= '9')
        return digit - '0' + 52;
    return digit == '+' ? 62 : digit == '/' ? 63 : -1;
}

sl_err sl_base64_decode(sl_buf *out, sl_slice text)
{
    if (text.len % 4 != 0)
        return SL_EMALFORMED;
    if (text.len == 0)
        return SL_OK;
    size_t pad = text.ptr[text.len - 1] != '=' ? 0 : text.ptr[text.len - 2] == '=' ? 2 : 1;
    size_t digits = text.len - pad;
    size_t len = text.len / 4 * 3 - pad;
    uint8_t *to;
    sl_err err = sl_buf_reserve(out, len, &to);
    if (err != SL_OK)
        return err;
    uint32_t bits = 0;
    unsigned held = 0;
    for (size_t i = 0; i < digits; i++) {
        int value = digit_value(text.ptr[i]);
        if (value < 0)
            return SL_EMALFORMED;
        bits = bits << 6 | (uint32_t)value;
        held += 6;
        if (held >= 8) {
            held -= 8;
            *to++ = (uint8_t)(bits >> held);
        }
    }
    // Bits behind the last byte must be zero, or two texts would mean the same bytes.
    if ((bits & ((1u << held) - 1)) != 0)
        return SL_EMALFORMED;
    sl_buf_commit(out, len);
    return SL_OK;
}
