/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_log: keeps what a test's code writes to the log, to look for warnings in it.
 */
#ifndef SL_TEST_CONF_LOG_H
#define SL_TEST_CONF_LOG_H

#include <stdio.h>
#include <string.h>

#include "base/logger.h"

static char conf_log[65536];

static inline void conf_log_line(void *arg, const char *line)
{
    (void)arg;
    size_t len = strlen(conf_log);
    snprintf(conf_log + len, sizeof conf_log - len, "%s\n", line);
}

static inline void conf_log_begin(void)
{
    conf_log[0] = '\0';
    sl_logger_set_sink(conf_log_line, NULL);
}

#endif
