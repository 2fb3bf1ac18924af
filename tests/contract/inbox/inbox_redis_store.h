/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox_redis_store: the factory of the Redis adapter: a prefix of its own for each store, on the
 * Redis that the environment names (REDIS_CONNECTION_TYPE and so on, as for the broker).
 */
#ifndef SL_TEST_INBOX_REDIS_STORE_H
#define SL_TEST_INBOX_REDIS_STORE_H

#include "inbox_harness.h"

extern const inbox_factory inbox_redis_factory;

#endif
