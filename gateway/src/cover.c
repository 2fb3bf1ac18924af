/* SPDX-License-Identifier: Apache-2.0
 *
 * cover: by comparing each filter with those that have wildcards, since only these cover others.
 */
#include "cover.h"

#include "base/alloc.h"
#include "mqtt/topic.h"

static bool is_covered_by(const sl_cover_item *narrow, const sl_cover_item *wide)
{
    if (narrow == wide || !sl_mqtt_filter_covers(wide->filter, narrow->filter))
        return false;
    // of two that cover each other one stays: the first in byte order
    return !sl_mqtt_filter_covers(narrow->filter, wide->filter) ||
           sl_slice_compare(wide->filter, narrow->filter) < 0;
}

void sl_cover_compute(sl_cover_item *items, size_t count)
{
    sl_cover_item **wild = sl_calloc(count + 1, sizeof *wild);
    size_t wild_count = 0;
    for (size_t i = 0; i < count; i++) {
        items[i].wildcard = sl_mqtt_filter_has_wildcard(items[i].filter);
        items[i].in_cover = true;
        if (items[i].wildcard)
            wild[wild_count++] = &items[i];
    }
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; items[i].in_cover && k < wild_count; k++)
            items[i].in_cover = !is_covered_by(&items[i], wild[k]);
    }
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; !items[i].in_cover && k < wild_count; k++) {
            if (wild[k]->in_cover && wild[k]->qos < items[i].qos &&
                sl_mqtt_filter_covers(wild[k]->filter, items[i].filter))
                wild[k]->qos = items[i].qos;
        }
    }
    sl_free(wild);
}
