/* SPDX-License-Identifier: Apache-2.0
 *
 * topic: see topic.h.
 */
#include "mqtt/topic.h"

#include "mqtt/utf8.h"

#define MAX_TOPIC_BYTES 65535u

static sl_err refuse(sl_err err, const char *text, const char **why)
{
    if (why != NULL)
        *why = text;
    return err;
}

bool sl_mqtt_level_next(sl_slice topic, size_t *pos, sl_slice *level)
{
    // One past the end stands for "behind the last level": "a/" has an empty second level at len.
    if (*pos > topic.len)
        return false;
    size_t left = topic.len - *pos;
    const uint8_t *from = left > 0 ? topic.ptr + *pos : NULL;
    const uint8_t *slash = left > 0 ? memchr(from, '/', left) : NULL;
    size_t size = slash != NULL ? (size_t)(slash - from) : left;
    *level = sl_slice_of(from, size);
    *pos += size + 1;
    return true;
}

unsigned sl_mqtt_level_count(sl_slice topic)
{
    unsigned count = 1;
    for (size_t i = 0; i < topic.len; i++)
        count += topic.ptr[i] == '/';
    return count;
}

static sl_err check_text(sl_slice text, unsigned max_levels, bool *wildcard, const char **why)
{
    if (text.len == 0)
        return refuse(SL_EINVAL, "topic is empty [MQTT-4.7.3-1]", why);
    if (text.len > MAX_TOPIC_BYTES)
        return refuse(SL_EINVAL, "topic is longer than 65535 bytes [MQTT-4.7.3-3]", why);
    if (!sl_mqtt_utf8_check(text, wildcard))
        return refuse(SL_EINVAL, "topic is not UTF-8 or holds U+0000 [MQTT-1.5.4-1] [MQTT-4.7.3-2]",
                      why);
    if (max_levels != 0 && sl_mqtt_level_count(text) > max_levels)
        return refuse(SL_ELIMIT, "topic has more levels than allowed", why);
    return SL_OK;
}

sl_err sl_mqtt_topic_check(sl_slice topic, unsigned max_levels, const char **why)
{
    bool wildcard = false;
    sl_err err = check_text(topic, max_levels, &wildcard, why);
    if (err == SL_OK && wildcard)
        return refuse(SL_EINVAL, "topic name holds a wildcard character [MQTT-4.7.1-1]", why);
    return err;
}

sl_err sl_mqtt_filter_check(sl_slice filter, unsigned max_levels, const char **why)
{
    bool wildcard = false;
    sl_err err = check_text(filter, max_levels, &wildcard, why);
    if (err != SL_OK || !wildcard)
        return err;
    for (size_t i = 0; i < filter.len; i++) {
        uint8_t ch = filter.ptr[i];
        if (ch != '+' && ch != '#')
            continue;
        if (i > 0 && filter.ptr[i - 1] != '/')
            return refuse(SL_EINVAL, "wildcard does not begin its level [MQTT-4.7.1-1]", why);
        if (ch == '#' && i + 1 != filter.len)
            return refuse(SL_EINVAL, "'#' is not the last character [MQTT-4.7.1-1]", why);
        if (ch == '+' && i + 1 != filter.len && filter.ptr[i + 1] != '/')
            return refuse(SL_EINVAL, "'+' does not fill its level [MQTT-4.7.1-2]", why);
    }
    return SL_OK;
}

bool sl_mqtt_filter_has_wildcard(sl_slice filter)
{
    return filter.len > 0 && (memchr(filter.ptr, '+', filter.len) != NULL ||
                              memchr(filter.ptr, '#', filter.len) != NULL);
}

static bool is_level(sl_slice level, char ch)
{
    return level.len == 1 && level.ptr[0] == (uint8_t)ch;
}

static bool begins_with(sl_slice text, char ch)
{
    return text.len > 0 && text.ptr[0] == (uint8_t)ch;
}

bool sl_mqtt_filter_matches(sl_slice filter, sl_slice topic)
{
    if (begins_with(topic, '$') && (begins_with(filter, '+') || begins_with(filter, '#')))
        return false;
    size_t fpos = 0, tpos = 0;
    sl_slice want, have;
    while (sl_mqtt_level_next(filter, &fpos, &want)) {
        if (is_level(want, '#'))
            return true; // also right behind the last level: "a/#" matches "a"
        if (!sl_mqtt_level_next(topic, &tpos, &have))
            return false;
        if (!is_level(want, '+') && !sl_slice_equal(want, have))
            return false;
    }
    return !sl_mqtt_level_next(topic, &tpos, &have);
}

bool sl_mqtt_filter_covers(sl_slice wide, sl_slice narrow)
{
    if (begins_with(narrow, '$') && (begins_with(wide, '+') || begins_with(wide, '#')))
        return false;
    // '#' stands for any number of levels, none included, so nothing but '#' covers it. Only in "#"
    // and "/#" it stands for at least one, because no name is empty: there "+/#" is the same.
    bool not_empty = narrow.len == 1 || (narrow.len == 2 && narrow.ptr[0] == '/');
    size_t wpos = 0, npos = 0;
    sl_slice want, have;
    while (sl_mqtt_level_next(wide, &wpos, &want)) {
        if (is_level(want, '#'))
            return true;
        // A level that narrow does not have, and wide demands.
        if (!sl_mqtt_level_next(narrow, &npos, &have))
            return false;
        if (is_level(have, '#'))
            return not_empty && is_level(want, '+') && sl_mqtt_level_next(wide, &wpos, &want) &&
                   is_level(want, '#');
        if (!is_level(want, '+') && !sl_slice_equal(want, have))
            return false;
    }
    return !sl_mqtt_level_next(narrow, &npos, &have);
}

sl_err sl_mqtt_share_parse(sl_slice text, unsigned max_levels, sl_mqtt_share *out, const char **why)
{
    static const char prefix[] = "$share/";
    const size_t prefix_len = sizeof(prefix) - 1;
    if (text.len < prefix_len || memcmp(text.ptr, prefix, prefix_len) != 0) {
        sl_err err = sl_mqtt_filter_check(text, max_levels, why);
        if (err == SL_OK)
            *out = (sl_mqtt_share){.is_shared = false, .filter = text};
        return err;
    }
    if (text.len > MAX_TOPIC_BYTES)
        return refuse(SL_EINVAL, "topic is longer than 65535 bytes [MQTT-4.7.3-3]", why);
    size_t pos = prefix_len;
    sl_slice name;
    bool wildcard = false;
    if (!sl_mqtt_level_next(text, &pos, &name) || name.len == 0)
        return refuse(SL_EINVAL, "share name is empty [MQTT-4.8.2-1]", why);
    if (!sl_mqtt_utf8_check(name, &wildcard))
        return refuse(SL_EINVAL, "share name is not UTF-8 [MQTT-1.5.4-1]", why);
    if (wildcard)
        return refuse(SL_EINVAL, "share name holds a wildcard character [MQTT-4.8.2-2]", why);
    if (pos >= text.len)
        return refuse(SL_EINVAL, "no topic filter behind the share name [MQTT-4.8.2-2]", why);
    sl_slice filter = sl_slice_of(text.ptr + pos, text.len - pos);
    sl_err err = sl_mqtt_filter_check(filter, max_levels, why);
    if (err == SL_OK)
        *out = (sl_mqtt_share){.is_shared = true, .name = name, .filter = filter};
    return err;
}
