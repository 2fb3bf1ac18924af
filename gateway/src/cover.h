/* SPDX-License-Identifier: Apache-2.0
 *
 * cover: the smallest set of filters that covers a list of filters (a broker may send one copy per
 * matching subscription, so what is covered is not subscribed). Each filter of the cover has the
 * highest QoS of all that it covers. Pure.
 */
#ifndef SL_GATEWAY_COVER_H
#define SL_GATEWAY_COVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"

typedef struct sl_cover_item {
    sl_slice filter; /* borrowed */
    uint8_t qos;     /* in: wanted; out, of a filter in the cover: the highest it covers */
    bool wildcard;   /* out */
    bool in_cover;   /* out */
} sl_cover_item;

/** Marks the items that make the cover. Equal filters may be given once only. @thread any */
void sl_cover_compute(sl_cover_item *items, size_t count);

#endif
