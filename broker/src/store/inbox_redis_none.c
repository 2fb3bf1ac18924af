/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox_redis_none: in the place of the Redis inbox in a build without it (SL_WITH_REDIS=OFF).
 */
#include "base/alloc.h"
#include "store/inbox_redis_conf.h"

sl_err sl_inbox_redis_load(const sl_conf *cf, struct sl_inbox_redis_options **out,
                           const struct sl_inbox_ops **ops, char **why)
{
    (void)cf;
    *out = NULL;
    *ops = NULL;
    *why = sl_strdup("storage.inbox is redis, but this program was built without Redis "
                     "(SL_WITH_REDIS=OFF)");
    return SL_EUNSUPPORTED;
}

void sl_inbox_redis_options_free(struct sl_inbox_redis_options **options)
{
    *options = NULL;
}
