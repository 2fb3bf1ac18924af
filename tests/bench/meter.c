/* SPDX-License-Identifier: Apache-2.0
 *
 * meter: see meter.h.
 */
#include "meter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

uint64_t meter_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Row 0 holds 0..63 one by one; row r > 0 holds [32 << r, 64 << r) in its upper 32 cells. */
void histogram_add(histogram *hist, uint64_t us)
{
    int row = us < 64 ? 0 : 63 - __builtin_clzll(us) - 5;
    hist->cells[row][(us >> row) & 63]++;
    hist->count++;
}

double histogram_quantile(const histogram *hist, double q)
{
    uint64_t wanted = (uint64_t)(q * (double)hist->count);
    uint64_t seen = 0;
    for (int row = 0; row < 59; row++) {
        for (int cell = 0; cell < 64; cell++) {
            seen += hist->cells[row][cell];
            if (seen > wanted)
                return (double)((uint64_t)cell << row);
        }
    }
    return 0;
}

int processes_parse(processes *procs, const char *list)
{
    while (*list) {
        char *end;
        long pid = strtol(list, &end, 10);
        if (end == list || pid <= 0 || (*end && *end != ',') || procs->count == METER_PROCESSES)
            return -1;
        procs->pids[procs->count++] = (int)pid;
        list = *end ? end + 1 : end;
    }
    return 0;
}

/* The whole of a small /proc file as text; an ended process reads as an empty one. */
static void read_proc(int pid, const char *name, char *text, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    FILE *file = fopen(path, "r");
    size_t got = file ? fread(text, 1, size - 1, file) : 0;
    text[got] = 0;
    if (file)
        fclose(file);
}

double processes_cpu(const processes *procs)
{
    unsigned long ticks = 0;
    for (int i = 0; i < procs->count; i++) {
        char text[1024];
        unsigned long user, system;
        read_proc(procs->pids[i], "stat", text, sizeof text);
        // The command name may hold blanks; utime and stime are the 12th and 13th fields after it.
        const char *rest = strrchr(text, ')');
        if (rest && sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                           &system) == 2)
            ticks += user + system;
    }
    return (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

long processes_rss_kb(const processes *procs)
{
    long pages = 0;
    for (int i = 0; i < procs->count; i++) {
        char text[256];
        long resident;
        read_proc(procs->pids[i], "statm", text, sizeof text);
        if (sscanf(text, "%*d %ld", &resident) == 1)
            pages += resident;
    }
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}
