/* SPDX-License-Identifier: Apache-2.0
 *
 * utf8: one pass over the text of a packet: well-formed UTF-8 by the rules of [MQTT-1.5.4-1] and
 * [MQTT-1.5.4-2], and whether a wildcard character is in it. Eight ASCII bytes a step. Internal to
 * the codec; texts of other origin are checked by sl_utf8_is_valid (base/json.h), which allows NUL.
 */
#ifndef SL_MQTT_UTF8_H
#define SL_MQTT_UTF8_H

#include <stdbool.h>

#include "base/slice.h"

/**
 * False for ill-formed UTF-8, overlong forms, surrogates, code points over U+10FFFF, and U+0000.
 * U+FEFF, control characters and non-characters are allowed and kept as they are.
 * wildcard (may be NULL): set to true when '+' or '#' was seen, else to false; defined only when
 * the answer is true. @thread any
 */
bool sl_mqtt_utf8_check(sl_slice text, bool *wildcard);

#endif
