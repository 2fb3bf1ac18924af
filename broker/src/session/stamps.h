/* SPDX-License-Identifier: Apache-2.0
 *
 * stamps: the log ends at a first SUBSCRIBE, one vector over the partitions of tbmq.msg.all, kept
 * once and referred to by a number: records below it are not for that subscription. Subscriptions
 * made while the log did not move share a vector. A stamp may be too low, never too high.
 */
#ifndef SL_SESSION_STAMPS_H
#define SL_SESSION_STAMPS_H

#include <stdbool.h>
#include <stdint.h>

#include "log/log.h"

typedef struct sl_stamps sl_stamps;

#define SL_STAMPS_MAX (1u << 24)

/** topic: tbmq.msg.all. @thread init */
sl_stamps *sl_stamps_new(sl_log_topic *topic);
void sl_stamps_free(sl_stamps **st);
/** The stamp of now; 0 (everything counts) when the table is full. Holds a reference for the
 * caller.
 * @thread any @locks stamps */
uint32_t sl_stamps_now(sl_stamps *st);
/** The stamp of a vector that was stored. @thread any @locks stamps */
uint32_t sl_stamps_add(sl_stamps *st, const uint64_t *offsets, size_t count);
/** A subscription with this stamp is gone (0 allowed). @thread any @locks stamps */
void sl_stamps_unref(sl_stamps *st, uint32_t stamp);
/** The vector, partitions long, into out. @thread any @locks stamps */
void sl_stamps_get(sl_stamps *st, uint32_t stamp, uint64_t *out);
uint16_t sl_stamps_width(const sl_stamps *st);
/** True when a record of the partition is older than the stamp. No lock. @thread any, in an RCU
 * read section in which the stamp was found */
bool sl_stamps_is_older(const sl_stamps *st, uint32_t stamp, uint16_t partition, uint64_t offset);

#endif
