/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox_embedded_store: see inbox_embedded_store.h.
 */
#include "inbox_embedded_store.h"

#include <ftw.h>
#include <stdio.h>
#include <unistd.h>

#include "base/alloc.h"

typedef struct store {
    char dir[64];
    sl_clock *ck;
    sl_log *log;
} store;

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

void inbox_embedded_remove_dir(const char *dir)
{
    assert_int_equal(nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

sl_log *inbox_embedded_open_log(const char *dir, sl_clock *ck)
{
    sl_log_options options = {.dir = dir,
                              .node = "node-1",
                              .fsync = true,
                              .gather_ms = 2,
                              .queue_max_bytes = 64 << 20,
                              .derived_max_bytes = 64 << 20,
                              .low_space_bytes = 0,
                              .ring_bytes = 1 << 20,
                              .clock = ck};
    sl_log *log = NULL;
    char *why = NULL;
    sl_err err = sl_log_open(&sl_log_embedded_ops, &options, &log, &why);
    if (err != SL_OK)
        fail_msg("%s: %s", dir, why);
    return log;
}

static void *new_store(sl_clock *ck)
{
    store *st = sl_calloc(1, sizeof(*st));
    snprintf(st->dir, sizeof(st->dir), "/tmp/sl-inbox-XXXXXX");
    assert_non_null(mkdtemp(st->dir));
    st->ck = ck;
    return st;
}

static void open_store(void *arg)
{
    store *st = arg;
    st->log = inbox_embedded_open_log(st->dir, st->ck);
}

static sl_log *log_of(void *arg)
{
    return ((store *)arg)->log;
}

static void close_store(void *arg)
{
    sl_log_close(&((store *)arg)->log);
}

static void free_store(void *arg)
{
    store *st = arg;
    inbox_embedded_remove_dir(st->dir);
    sl_free(st);
}

const inbox_factory inbox_embedded_factory = {.ops = &sl_inbox_embedded_ops,
                                              .new_store = new_store,
                                              .open_store = open_store,
                                              .log_of = log_of,
                                              .close_store = close_store,
                                              .free_store = free_store};
