/* SPDX-License-Identifier: Apache-2.0
 *
 * assert: the end of a process that found a fault of its own. Any thread.
 */
#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

void sl_assert_failed(const char *expr, const char *file, int line)
{
    // stdio and not the logger: the logger itself may be what failed.
    fprintf(stderr, "ASSERTION-FAILED file=%s line=%d expr=\"%s\"\n", file, line, expr);
    abort();
}
