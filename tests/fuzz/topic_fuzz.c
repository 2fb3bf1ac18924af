/* SPDX-License-Identifier: Apache-2.0
 *
 * Three texts, divided by LF: a wide filter, a narrow filter, a topic. What is valid obeys the
 * laws: covering carries over to matching, everything covers itself, a name matches itself.
 */
#include "fuzz.h"
#include "mqtt/topic.h"

static sl_slice next_text(sl_slice *rest)
{
    const uint8_t *end = rest->len > 0 ? memchr(rest->ptr, '\n', rest->len) : NULL;
    size_t len = end != NULL ? (size_t)(end - rest->ptr) : rest->len;
    sl_slice text = sl_slice_of(rest->ptr, len);
    size_t skip = len + (end != NULL);
    *rest = sl_slice_of(rest->ptr + skip, rest->len - skip);
    return text;
}

static void check_share(sl_slice text)
{
    sl_mqtt_share share;
    const char *why = NULL;
    sl_err err = sl_mqtt_share_parse(text, 0, &share, &why);
    if (err != SL_OK) {
        SL_ASSERT(why != NULL);
        return;
    }
    SL_ASSERT(sl_mqtt_filter_check(share.filter, 0, NULL) == SL_OK);
    SL_ASSERT(share.is_shared == (share.name.len > 0));
}

static void check_levels(sl_slice text)
{
    size_t pos = 0, total = 0;
    unsigned count = 0;
    sl_slice level;
    for (; sl_mqtt_level_next(text, &pos, &level); count++)
        total += level.len + (count > 0);
    SL_ASSERT(total == text.len && count == sl_mqtt_level_count(text));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sl_slice rest = sl_slice_of(data, size);
    sl_slice part[3];
    for (unsigned i = 0; i < 3; i++) {
        sl_slice text = next_text(&rest);
        part[i] = sl_slice_of(fuzz_copy(text), text.len);
        check_share(part[i]);
        check_levels(part[i]);
    }
    bool wide = sl_mqtt_filter_check(part[0], 0, NULL) == SL_OK;
    bool narrow = sl_mqtt_filter_check(part[1], 0, NULL) == SL_OK;
    bool name = sl_mqtt_topic_check(part[2], 0, NULL) == SL_OK;
    if (wide)
        SL_ASSERT(sl_mqtt_filter_covers(part[0], part[0]));
    if (name)
        SL_ASSERT(sl_mqtt_filter_matches(part[2], part[2]));
    if (wide && name) // a name is a filter that matches itself alone
        SL_ASSERT(sl_mqtt_filter_covers(part[0], part[2]) ==
                  sl_mqtt_filter_matches(part[0], part[2]));
    if (wide && narrow && name && sl_mqtt_filter_covers(part[0], part[1]) &&
        sl_mqtt_filter_matches(part[1], part[2]))
        SL_ASSERT(sl_mqtt_filter_matches(part[0], part[2]));
    for (unsigned i = 0; i < 3; i++)
        sl_free((void *)(uintptr_t)part[i].ptr);
    return 0;
}
