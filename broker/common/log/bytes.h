/* SPDX-License-Identifier: Apache-2.0
 *
 * bytes: big-endian numbers in byte strings. Keys of the store sort by number because of it.
 */
#ifndef SL_LOG_BYTES_H
#define SL_LOG_BYTES_H

#include <stdint.h>
#include <string.h>

static inline void sl_put_u16(uint8_t *out, uint16_t value)
{
    value = __builtin_bswap16(value);
    memcpy(out, &value, sizeof value);
}
static inline void sl_put_u32(uint8_t *out, uint32_t value)
{
    value = __builtin_bswap32(value);
    memcpy(out, &value, sizeof value);
}
static inline void sl_put_u64(uint8_t *out, uint64_t value)
{
    value = __builtin_bswap64(value);
    memcpy(out, &value, sizeof value);
}
static inline uint16_t sl_get_u16(const uint8_t *in)
{
    uint16_t value;
    memcpy(&value, in, sizeof value);
    return __builtin_bswap16(value);
}
static inline uint32_t sl_get_u32(const uint8_t *in)
{
    uint32_t value;
    memcpy(&value, in, sizeof value);
    return __builtin_bswap32(value);
}
static inline uint64_t sl_get_u64(const uint8_t *in)
{
    uint64_t value;
    memcpy(&value, in, sizeof value);
    return __builtin_bswap64(value);
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the swaps are for little endian hosts");

#endif
