/* SPDX-License-Identifier: Apache-2.0
 *
 * The inbox contract on the Redis adapter, against the server or cluster that with_redis.sh started
 * and named in the broker's own environment variables.
 */
#include "inbox_redis_store.h"

int main(void)
{
    return inbox_contract_run(&inbox_redis_factory);
}
