/* SPDX-License-Identifier: Apache-2.0
 *
 * dispatcher: from tbmq.msg.all to subscribers. A dispatch loop reads its partitions twice: QoS 0
 * at the written end, QoS 1 and 2 at the durable end. Copies for live connections go to their I/O
 * loops in one letter per loop and round; copies for persistent clients go to tbmq.msg.persisted as
 * derived records. The committed offset of a partition is a contiguous watermark: everything below
 * it is where it has to be. Nothing is skipped: what cannot be stored is tried until it can.
 */
#ifndef SL_DISPATCH_DISPATCHER_H
#define SL_DISPATCH_DISPATCHER_H

#include "core.h"

typedef struct sl_dispatcher sl_dispatcher;

#define SL_DISPATCH_GROUP "msg-all-consumer-group"

/** @thread init */
SL_MUST_USE sl_err sl_dispatcher_new(sl_core *core, unsigned index, sl_dispatcher **out);
SL_MUST_USE sl_err sl_dispatcher_start(sl_dispatcher *dp);
/** Dispatches what is durable by now, waits for the copies under way, commits, joins. @thread init
 */
void sl_dispatcher_stop(sl_dispatcher *dp);
void sl_dispatcher_free(sl_dispatcher **dp);

#endif
