/* SPDX-License-Identifier: Apache-2.0
 *
 * msg_trace: what happened to a message, step by step: a bounded ring of (message id, step, time).
 * Off by default; then a step costs one load. The message id is its place in tbmq.msg.all. Before a
 * message has one, RECEIVED carries its partition, connection slot and acknowledgement sequence;
 * STORED has slot, sequence and offset, so that a reader can join them (QoS 0 is not told when it
 * is stored).
 */
#ifndef SL_STATS_MSG_TRACE_H
#define SL_STATS_MSG_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/clock.h"

/* step, what `who` is */
#define SL_STEP_MAP(X)                                                                             \
    X(RECEIVED, "connection slot; id = acknowledgement sequence")                                  \
    X(STORED, "acknowledgement sequence; partition = connection slot")                             \
    X(ACKED, "connection slot; id = acknowledgement sequence")                                     \
    X(MATCHED, "number of receiving clients")                                                      \
    X(DERIVED, "index of the client whose inbox gets it")                                          \
    X(INBOXED, "index of the client")                                                              \
    X(SENT, "connection slot")

typedef enum sl_msg_step {
#define SL_STEP_ENUM(name, text) SL_STEP_##name,
    SL_STEP_MAP(SL_STEP_ENUM)
#undef SL_STEP_ENUM
} sl_msg_step;

typedef struct sl_msg_trace {
    _Atomic bool on;
    struct sl_msg_trace_ring *_ring; /* owned */
} sl_msg_trace;

/** capacity: steps kept (a power of two). @thread init */
sl_msg_trace *sl_msg_trace_new(sl_clock *ck, uint32_t capacity, bool on);
void sl_msg_trace_free(sl_msg_trace **tr);
void sl_msg_trace_record(sl_msg_trace *tr, sl_msg_step step, uint32_t partition, uint64_t id,
                         uint32_t who);
/** @thread any */
static inline bool sl_msg_trace_is_on(const sl_msg_trace *tr)
{
    return __builtin_expect(atomic_load_explicit(&tr->on, memory_order_relaxed), 0);
}
/** Records one step while the trace is on. @thread any */
static inline void sl_msg_trace_step(sl_msg_trace *tr, sl_msg_step step, uint32_t partition,
                                     uint64_t id, uint32_t who)
{
    if (sl_msg_trace_is_on(tr))
        sl_msg_trace_record(tr, step, partition, id, who);
}
/** Appends the steps, oldest first, as JSON lines. Steps being written meanwhile may be missing.
 * @thread any */
SL_MUST_USE sl_err sl_msg_trace_write(const sl_msg_trace *tr, sl_buf *out);

#endif
