/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox_redis_store: see inbox_redis_store.h. The server is the test's own and ends with it, so
 * that nothing is removed.
 */
#include "inbox_redis_store.h"

#include <stdio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "store/inbox_redis.h"
#include "store/inbox_redis_conf.h"

static const sl_conf_row rows[] = {SL_INBOX_REDIS_CONF_ROWS};

typedef struct store {
    sl_conf *cf;
    sl_inbox_redis_options *options;
} store;

static void *new_store(sl_clock *ck)
{
    (void)ck;
    static unsigned number;
    store *st = sl_calloc(1, sizeof(*st));
    char prefix[64], *why = NULL;
    snprintf(prefix, sizeof(prefix), "t%ld-%u:", (long)getpid(), number++);
    st->cf = sl_conf_new(rows, sizeof(rows) / sizeof(rows[0]));
    const sl_inbox_ops *ops = NULL;
    SL_TEST_OK(sl_conf_load_env(st->cf, &why));
    SL_TEST_OK(sl_conf_set(st->cf, "cache.cache-prefix", prefix, &why));
    sl_err err = sl_inbox_redis_load(st->cf, &st->options, &ops, &why);
    if (err != SL_OK)
        fail_msg("%s", why);
    assert_ptr_equal(ops, &sl_inbox_redis_ops);
    return st;
}

static void stay(void *arg)
{
    (void)arg;
}

static const sl_inbox_redis_options *redis_of(void *arg)
{
    return ((store *)arg)->options;
}

static void free_store(void *arg)
{
    store *st = arg;
    sl_inbox_redis_options_free(&st->options);
    sl_conf_free(&st->cf);
    sl_free(st);
}

const inbox_factory inbox_redis_factory = {.ops = &sl_inbox_redis_ops,
                                           .new_store = new_store,
                                           .open_store = stay,
                                           .redis_of = redis_of,
                                           .close_store = stay,
                                           .free_store = free_store,
                                           .is_durable_at_once = true};
