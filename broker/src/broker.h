/* SPDX-License-Identifier: Apache-2.0
 *
 * broker: the composition root: builds the parts in order, starts and stops them. Listeners open
 * only after the state has been replayed.
 */
#ifndef SL_BROKER_H
#define SL_BROKER_H

#include "base/conf.h"
#include "base/err.h"

typedef struct sl_broker sl_broker;

/** Opens storage, restores state, starts threads, listens. Blocks. cf: borrowed, lives on. *why:
 * owned message that names what failed. @thread init */
SL_MUST_USE sl_err sl_broker_start(const sl_conf *cf, sl_broker **out, char **why);
/** Graceful: stops accepting, ends connections (0x8B), finishes what is owed, flushes, frees.
 * @thread init */
void sl_broker_stop(sl_broker **br);

#endif
