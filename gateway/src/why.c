/* SPDX-License-Identifier: Apache-2.0
 *
 * why: formatting an error message.
 */
#include "why.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/alloc.h"

sl_err sl_why(char **why, sl_err err, const char *fmt, ...)
{
    char text[2048]; // longer ones are cut: they quote input
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    *why = sl_strdup(text);
    return err;
}
