/* SPDX-License-Identifier: Apache-2.0
 *
 * utf8: see utf8.h. The ASCII path handles a machine word at once; any byte that needs a look
 * (NUL, '+', '#', non-ASCII) sends that one character through the slow path.
 */
#include "mqtt/utf8.h"

#define ONES  0x0101010101010101ull
#define HIGHS 0x8080808080808080ull

/* Non-zero iff one of the eight bytes is zero. */
static inline uint64_t zero_bytes(uint64_t word)
{
    return (word - ONES) & ~word & HIGHS;
}

static inline bool is_tail(uint8_t byte)
{
    return (byte & 0xC0u) == 0x80u;
}

/* Bytes of the well-formed character at p (2..4), or 0. The ranges of the second byte are what
 * excludes overlong forms, surrogates and numbers over U+10FFFF. */
static size_t multibyte_length(const uint8_t *p, size_t len)
{
    uint8_t lead = p[0];
    if (lead >= 0xC2u && lead <= 0xDFu)
        return len >= 2 && is_tail(p[1]) ? 2 : 0;
    if (lead >= 0xE0u && lead <= 0xEFu) {
        if (len < 3 || !is_tail(p[1]) || !is_tail(p[2]))
            return 0;
        if ((lead == 0xE0u && p[1] < 0xA0u) || (lead == 0xEDu && p[1] > 0x9Fu))
            return 0;
        return 3;
    }
    if (lead >= 0xF0u && lead <= 0xF4u) {
        if (len < 4 || !is_tail(p[1]) || !is_tail(p[2]) || !is_tail(p[3]))
            return 0;
        if ((lead == 0xF0u && p[1] < 0x90u) || (lead == 0xF4u && p[1] > 0x8Fu))
            return 0;
        return 4;
    }
    return 0;
}

bool sl_mqtt_utf8_check(sl_slice text, bool *wildcard)
{
    const uint8_t *p = text.ptr;
    size_t left = text.len;
    bool seen = false;
    while (left > 0) {
        while (left >= 8) {
            uint64_t word;
            memcpy(&word, p, 8);
            uint64_t look = (word & HIGHS) | zero_bytes(word) | zero_bytes(word ^ (ONES * '+')) |
                            zero_bytes(word ^ (ONES * '#'));
            if (look != 0)
                break;
            p += 8;
            left -= 8;
        }
        // Up to eight characters by hand, then the fast path gets its chance again.
        for (size_t n = left < 8 ? left : 8; n > 0 && left > 0; n--) {
            size_t size = 1;
            if (*p >= 0x80u) {
                size = multibyte_length(p, left);
                if (size == 0)
                    return false;
            } else if (*p == 0) {
                return false;
            } else if (*p == '+' || *p == '#') {
                seen = true;
            }
            p += size;
            left -= size;
        }
    }
    if (wildcard != NULL)
        *wildcard = seen;
    return true;
}
