/* SPDX-License-Identifier: Apache-2.0
 *
 * filter: validity of a listener's topic filter.
 */
#include "filter.h"

#include "mqtt/topic.h"

sl_err sl_filter_check(sl_slice filter, const char **why)
{
    static const char share[] = "$share/";
    const char *ignored;
    if (why == NULL)
        why = &ignored;
    if (filter.len >= sizeof share - 1 && memcmp(filter.ptr, share, sizeof share - 1) == 0) {
        *why = "shared subscriptions ($share/...) are not possible here";
        return SL_EINVAL;
    }
    return sl_mqtt_filter_check(filter, 0, why) == SL_OK ? SL_OK : SL_EINVAL;
}
