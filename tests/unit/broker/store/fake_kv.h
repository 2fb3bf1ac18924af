/* SPDX-License-Identifier: Apache-2.0
 *
 * fake_kv: the log functions that the embedded inbox uses, on an array in memory and turned by
 * hand: the test says which writes are refused, when they complete, and how. Linked in place of
 * sl_log's.
 */
#ifndef SL_TEST_FAKE_KV_H
#define SL_TEST_FAKE_KV_H

#include "log/embedded_kv.h"

void fake_kv_reset(void);
/** The next `times` writes with rows answer err at once; only those with a put when with_put. */
void fake_kv_refuse(sl_err err, unsigned times, bool with_put);
/** The same for syncs (writes without rows). */
void fake_kv_refuse_sync(sl_err err, unsigned times);
/** Writes that wait, oldest first. */
size_t fake_kv_pending(void);
/** The write at this index completes: applied on SL_OK. Delivered with the next drain. */
void fake_kv_complete(size_t index, sl_err err);
/** All complete with SL_OK. */
void fake_kv_complete_all(void);
size_t fake_kv_rows(void);
/** Number of scans so far. */
unsigned fake_kv_scans(void);
/** Behind the inbox's back: the value of the row with this key changes (empty: the row goes). */
void fake_kv_tamper(sl_slice key, sl_slice value);
/** A group's offset committed behind all writes before it; 0 none. */
uint64_t fake_kv_committed(void);

#endif
