/* SPDX-License-Identifier: Apache-2.0
 *
 * filter: the one check of topic filters that come from configuration, HTTP or plugins: a valid
 * MQTT filter that is not a shared subscription ("$share/..." has no meaning for a listener).
 */
#ifndef SL_GATEWAY_FILTER_H
#define SL_GATEWAY_FILTER_H

#include "base/err.h"
#include "base/slice.h"

/** Errors SL_EINVAL with *why (may be NULL) a static sentence. @thread any */
SL_MUST_USE sl_err sl_filter_check(sl_slice filter, const char **why);

#endif
