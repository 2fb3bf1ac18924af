/* SPDX-License-Identifier: Apache-2.0
 *
 * temp_log: an embedded log in a temporary folder with one topic of four partitions.
 */
#ifndef SL_TEST_TEMP_LOG_H
#define SL_TEST_TEMP_LOG_H

#include "sl_test.h"

#include <ftw.h>
#include <stdio.h>

#include "log/log.h"

typedef struct temp_log {
    char dir[64];
    sl_clock clock;
    sl_log *log;
    sl_log_topic *topic;
} temp_log;

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

static void temp_log_open(temp_log *tl)
{
    snprintf(tl->dir, sizeof(tl->dir), "/tmp/sluice-test-XXXXXX");
    assert_non_null(mkdtemp(tl->dir));
    sl_clock_init(&tl->clock);
    sl_log_options options = {.dir = tl->dir,
                              .node = "n",
                              .queue_max_bytes = 8 << 20,
                              .derived_max_bytes = 8 << 20,
                              .ring_bytes = 8 << 20,
                              .clock = &tl->clock};
    char *why = NULL;
    SL_TEST_OK(sl_log_open(&sl_log_embedded_ops, &options, &tl->log, &why));
    sl_log_topic_spec spec = {
        .name = "t", .partitions = 4, .durable = true, .retention_ms = -1, .retention_bytes = -1};
    SL_TEST_OK(sl_log_topic_open(tl->log, &spec, &tl->topic));
}

static void temp_log_close(temp_log *tl)
{
    sl_log_close(&tl->log);
    nftw(tl->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

#endif
