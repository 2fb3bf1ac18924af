/* SPDX-License-Identifier: Apache-2.0
 *
 * clock: time as an object, so that tests turn it by hand. Timers and time-outs use monotonic time;
 * wall time is only for what people and other systems see (record times, message expiry).
 */
#ifndef SL_BASE_CLOCK_H
#define SL_BASE_CLOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int64_t sl_mono_ms; /* milliseconds of a clock that never jumps; 0 is arbitrary */
typedef int64_t sl_wall_ms; /* milliseconds since 1970-01-01 UTC */
typedef int64_t sl_dur_ms;  /* a span */

typedef struct sl_clock {
    bool _fake;
    _Atomic int64_t _mono_ms; /* of a fake clock */
    _Atomic int64_t _wall_ms; /* of a fake clock */
} sl_clock;

/** The machine's clocks. @thread init */
void sl_clock_init(sl_clock *ck);
/** Stands still until advanced. @thread init */
void sl_clock_init_fake(sl_clock *ck, sl_mono_ms mono, sl_wall_ms wall);
/** @thread any */
bool sl_clock_is_fake(const sl_clock *ck);
/** Both times of a fake clock go on by span. @thread any */
void sl_clock_advance(sl_clock *ck, sl_dur_ms span);
/** @thread any */
sl_mono_ms sl_clock_mono(const sl_clock *ck);
sl_wall_ms sl_clock_wall(const sl_clock *ck);
/** Nanoseconds, for measuring only (the fake clock gives its milliseconds * 1e6). @thread any */
uint64_t sl_clock_mono_ns(const sl_clock *ck);
/** Wall time in nanoseconds since 1970. @thread any */
int64_t sl_clock_wall_ns(const sl_clock *ck);

#define SL_CLOCK_ISO_BYTES 32
/** "2026-11-30T20:26:50.123456789Z" of wall nanoseconds, NUL ended. @thread any */
void sl_clock_format_iso(int64_t wall_ns, char out[SL_CLOCK_ISO_BYTES]);

#endif
