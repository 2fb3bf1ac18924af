/* SPDX-License-Identifier: Apache-2.0
 *
 * clock: the machine's clocks, or a fake one that stands still until a test advances it.
 */
#include "base/clock.h"

#include <stdio.h>
#include <time.h>

#include "base/assert.h"

#define NS_PER_MS 1000000
#define NS_PER_S  1000000000LL
#define S_PER_DAY 86400

static int64_t read_ns(clockid_t id)
{
    struct timespec ts;
    int rc = clock_gettime(id, &ts);
    SL_ASSERT(rc == 0);
    return (int64_t)ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

void sl_clock_init(sl_clock *ck)
{
    ck->_fake = false;
    atomic_init(&ck->_mono_ms, 0);
    atomic_init(&ck->_wall_ms, 0);
}

void sl_clock_init_fake(sl_clock *ck, sl_mono_ms mono, sl_wall_ms wall)
{
    ck->_fake = true;
    atomic_init(&ck->_mono_ms, mono);
    atomic_init(&ck->_wall_ms, wall);
}

bool sl_clock_is_fake(const sl_clock *ck)
{
    return ck->_fake;
}

void sl_clock_advance(sl_clock *ck, sl_dur_ms span)
{
    SL_ASSERT(ck->_fake && span >= 0);
    atomic_fetch_add(&ck->_mono_ms, span);
    atomic_fetch_add(&ck->_wall_ms, span);
}

sl_mono_ms sl_clock_mono(const sl_clock *ck)
{
    return ck->_fake ? atomic_load(&ck->_mono_ms) : read_ns(CLOCK_MONOTONIC) / NS_PER_MS;
}

sl_wall_ms sl_clock_wall(const sl_clock *ck)
{
    return ck->_fake ? atomic_load(&ck->_wall_ms) : read_ns(CLOCK_REALTIME) / NS_PER_MS;
}

uint64_t sl_clock_mono_ns(const sl_clock *ck)
{
    return ck->_fake ? (uint64_t)atomic_load(&ck->_mono_ms) * NS_PER_MS
                     : (uint64_t)read_ns(CLOCK_MONOTONIC);
}

int64_t sl_clock_wall_ns(const sl_clock *ck)
{
    return ck->_fake ? atomic_load(&ck->_wall_ms) * NS_PER_MS : read_ns(CLOCK_REALTIME);
}

// Days since 1970-01-01 to a date of the Gregorian calendar. Years begin in March here, so that the
// leap day is the last of its year, and 400 years ("era") always have the same number of days.
static void civil_from_days(int64_t days, int64_t *year, unsigned *month, unsigned *day)
{
    const int64_t era_days = 146097;
    int64_t shifted = days + 719468; // 1970-01-01 counted from 0000-03-01
    int64_t era = (shifted >= 0 ? shifted : shifted - (era_days - 1)) / era_days;
    int64_t in_era = shifted - era * era_days;
    int64_t year_in_era = (in_era - in_era / 1460 + in_era / 36524 - in_era / 146096) / 365;
    int64_t in_year = in_era - (365 * year_in_era + year_in_era / 4 - year_in_era / 100);
    int64_t from_march = (5 * in_year + 2) / 153;
    *day = (unsigned)(in_year - (153 * from_march + 2) / 5 + 1);
    *month = (unsigned)(from_march < 10 ? from_march + 3 : from_march - 9);
    *year = year_in_era + era * 400 + (*month <= 2);
}

void sl_clock_format_iso(int64_t wall_ns, char out[SL_CLOCK_ISO_BYTES])
{
    int64_t seconds = wall_ns / NS_PER_S;
    int64_t ns = wall_ns % NS_PER_S;
    if (ns < 0) {
        ns += NS_PER_S;
        seconds--;
    }
    int64_t days = seconds / S_PER_DAY;
    int64_t in_day = seconds % S_PER_DAY;
    if (in_day < 0) {
        in_day += S_PER_DAY;
        days--;
    }
    int64_t year;
    unsigned month, day;
    civil_from_days(days, &year, &month, &day);
    unsigned clock_s = (unsigned)in_day;
    int len = snprintf(out, SL_CLOCK_ISO_BYTES, "%04d-%02u-%02uT%02u:%02u:%02u.%09uZ", (int)year,
                       month, day, clock_s / 3600, clock_s / 60 % 60, clock_s % 60, (unsigned)ns);
    SL_ASSERT(len > 0 && len < SL_CLOCK_ISO_BYTES); // int64 nanoseconds end in the year 2262
}
