/* SPDX-License-Identifier: Apache-2.0
 *
 * clock_shift: a library to be preloaded into a process under test. Its wall clock is ahead by the
 * seconds (int64, host byte order) in the file CLOCK_SHIFT_FILE, which the test changes while the
 * process runs; the monotonic clock is left alone, as when an administrator sets the time.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *shift;

__attribute__((constructor)) static void open_shift(void)
{
    const char *path = getenv("CLOCK_SHIFT_FILE");
    int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        abort();
    void *at = mmap(NULL, sizeof(*shift), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (at == MAP_FAILED)
        abort();
    shift = at;
}

int clock_gettime(clockid_t id, struct timespec *ts)
{
    int status = (int)syscall(SYS_clock_gettime, id, ts);
    if (status == 0 && shift != NULL && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
        ts->tv_sec += *shift;
    return status;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
    struct timespec ts;
    (void)zone;
    int status = clock_gettime(CLOCK_REALTIME, &ts);
    tv->tv_sec = ts.tv_sec;
    tv->tv_usec = ts.tv_nsec / 1000;
    return status;
}

time_t time(time_t *out)
{
    struct timespec ts;
    if (clock_gettime(CLOCK_REALTIME, &ts) != 0)
        return (time_t)-1;
    if (out != NULL)
        *out = ts.tv_sec;
    return ts.tv_sec;
}
