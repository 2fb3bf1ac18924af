/* SPDX-License-Identifier: Apache-2.0
 *
 * topic: rules of topic names and filters (4.7, 4.8): validity, matching, containment, $share.
 * Pure and allocation-free; texts are slices. UTF-8 is checked at decode; the validators here check
 * it again because names also come from HTTP, REST and configuration.
 */
#ifndef SL_MQTT_TOPIC_H
#define SL_MQTT_TOPIC_H

#include <stdbool.h>

#include "base/err.h"
#include "base/slice.h"

/**
 * A topic name one may publish to: 1..65535 bytes of UTF-8, no NUL, no wildcard.
 * max_levels 0: no maximum. *why (may be NULL): static sentence.
 * Errors SL_EINVAL ill-formed, SL_ELIMIT more levels than max_levels. @thread any
 */
SL_MUST_USE sl_err sl_mqtt_topic_check(sl_slice topic, unsigned max_levels, const char **why);

/**
 * A topic filter: '+' and '#' stand alone in a level, '#' only in the last one. "$share/..." is an
 * ordinary filter here; use sl_mqtt_share_parse where share names have a meaning.
 * Errors as above. @thread any
 */
SL_MUST_USE sl_err sl_mqtt_filter_check(sl_slice filter, unsigned max_levels, const char **why);

/** True when the filter holds '+' or '#' (of a valid filter: has a wildcard level). @thread any */
bool sl_mqtt_filter_has_wildcard(sl_slice filter);

/**
 * Does a valid filter match a valid topic name? "a/#" matches "a"; '#' and '+' at the front do not
 * match a name that begins with '$' [MQTT-4.7.2-1]; empty levels count. @thread any
 */
bool sl_mqtt_filter_matches(sl_slice filter, sl_slice topic);

/**
 * Containment: does wide match every topic name that narrow matches? Exact by level: "a/#" covers
 * "a" and "a/+/#"; '+' does not cover '#'; '#' and "+/..." do not cover "$...". Both valid, without
 * $share. A filter that only the union of several others contains is not covered by any one.
 * @thread any
 */
bool sl_mqtt_filter_covers(sl_slice wide, sl_slice narrow);

typedef struct sl_mqtt_share {
    bool is_shared; /* false: name is empty and filter is the whole text */
    sl_slice name;
    sl_slice filter;
} sl_mqtt_share;

/**
 * Takes "$share/<name>/<filter>" apart and checks all of it ([MQTT-4.8.2-1], [MQTT-4.8.2-2]); a
 * text that does not begin with "$share/" is checked as a plain filter ("$share" alone is one).
 * Errors SL_EINVAL, SL_ELIMIT as above (levels are counted behind the share name). @thread any
 */
SL_MUST_USE sl_err sl_mqtt_share_parse(sl_slice text, unsigned max_levels, sl_mqtt_share *out,
                                       const char **why);

/** Steps through levels: *pos starts at 0; false behind the last. "a//b" gives "a", "", "b"; an
 * empty text is one empty level. @thread any */
bool sl_mqtt_level_next(sl_slice topic, size_t *pos, sl_slice *level);
/** Number of levels (at least 1). @thread any */
unsigned sl_mqtt_level_count(sl_slice topic);

#endif
