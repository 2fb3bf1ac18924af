/* SPDX-License-Identifier: Apache-2.0
 *
 * why: the owned error message that goes with an sl_err, for people who start the program.
 */
#ifndef SL_GATEWAY_WHY_H
#define SL_GATEWAY_WHY_H

#include "base/err.h"

/** Sets *why to a new message (sl_free) and gives err back, so that it can be returned at once.
 * @thread any */
SL_MUST_USE sl_err sl_why(char **why, sl_err err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
