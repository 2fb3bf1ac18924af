/* SPDX-License-Identifier: Apache-2.0
 *
 * redis_slot: see redis_slot.h.
 */
#include "store/redis_slot.h"

static uint16_t crc16(sl_slice text)
{
    uint16_t crc = 0;
    for (size_t i = 0; i < text.len; i++) {
        crc ^= (uint16_t)(text.ptr[i] << 8);
        for (unsigned bit = 0; bit < 8; bit++)
            crc = (uint16_t)((crc & 0x8000) != 0 ? (crc << 1) ^ 0x1021 : crc << 1);
    }
    return crc;
}

uint16_t sl_redis_slot(sl_slice key)
{
    const uint8_t *open = key.len > 0 ? memchr(key.ptr, '{', key.len) : NULL;
    if (open != NULL) {
        size_t left = key.len - (size_t)(open + 1 - key.ptr);
        const uint8_t *close = left > 0 ? memchr(open + 1, '}', left) : NULL;
        if (close != NULL && close > open + 1)
            key = sl_slice_of(open + 1, (size_t)(close - open - 1));
    }
    return crc16(key) % SL_REDIS_SLOTS;
}
