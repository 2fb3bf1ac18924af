/* SPDX-License-Identifier: Apache-2.0
 *
 * redis_slot: which of a cluster's slots a key belongs to. Pure.
 */
#ifndef SL_STORE_REDIS_SLOT_H
#define SL_STORE_REDIS_SLOT_H

#include "base/slice.h"

#define SL_REDIS_SLOTS 16384u

/** CRC16 (XMODEM) of the text between the first { and the next }, of the whole key when there is
 * none or it is empty. @thread any */
uint16_t sl_redis_slot(sl_slice key);

#endif
