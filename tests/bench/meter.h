/* SPDX-License-Identifier: Apache-2.0
 *
 * meter: what a load run measures: time, latency quantiles, CPU and memory of other processes.
 * Used by mqload only; single thread.
 */
#ifndef MQLOAD_METER_H
#define MQLOAD_METER_H

#include <stdint.h>

#define METER_PROCESSES 16

/* Microseconds in 64 steps per power of two: at most 1.6 % off, and no value is too large. */
typedef struct histogram {
    uint64_t count;
    uint32_t cells[64][64];
} histogram;

/* The processes whose CPU time and memory are added up. */
typedef struct processes {
    int pids[METER_PROCESSES];
    int count;
} processes;

uint64_t meter_now_ns(void);

void histogram_add(histogram *hist, uint64_t us);
/** The value below which the share q (0..1) of all values lies, in microseconds; 0 if empty. */
double histogram_quantile(const histogram *hist, double q);

/** Adds the pids of a comma list; -1 if it is no such list or too long. */
int processes_parse(processes *procs, const char *list);
/** User and system time together, in seconds. */
double processes_cpu(const processes *procs);
/** Resident memory, in KiB. */
long processes_rss_kb(const processes *procs);

#endif
