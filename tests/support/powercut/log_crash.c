/* SPDX-License-Identifier: Apache-2.0
 *
 * log_crash: runs the crash test: log_crash <kill|cut|cut-half> <rounds> <powercut library>
 * Each round: a fresh folder, a child under load, its death after a random time, a second child
 * that verifies. Exit 0 only if every round was without a fault.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "log_crash.h"
#include "log_fixture.h"

typedef struct plan {
    const char *self;
    const char *how;
    const char *library;
    char dir[64];
    char acks[64];
    char trigger[64];
    bool early; /* dies while it starts */
    bool retention;
    unsigned ms;
} plan;

static crash_acks *map_acks(const char *path, bool create)
{
    int fd = open(path, O_RDWR | (create ? O_CREAT | O_TRUNC : 0), 0600);
    if (fd < 0 || (create && ftruncate(fd, sizeof(crash_acks)) != 0))
        return NULL;
    void *mem = mmap(NULL, sizeof(crash_acks), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return mem == MAP_FAILED ? NULL : mem;
}

static void set_number(const char *name, unsigned number)
{
    char text[24];
    snprintf(text, sizeof text, "%u", number);
    setenv(name, text, 1);
}

static pid_t start_child(const plan *pl, const char *role)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    if (strcmp(role, "load") == 0 && strcmp(pl->how, "kill") != 0) {
        setenv("LD_PRELOAD", pl->library, 1);
        // Sanitizer builds want to be first; the library gets along with them.
        setenv("ASAN_OPTIONS", "verify_asan_link_order=0:detect_leaks=0", 1);
        setenv("SLUICE_POWERCUT_DIR", pl->dir, 1);
        set_number("SLUICE_POWERCUT_MS", pl->ms);
        if (!pl->early)
            setenv("SLUICE_POWERCUT_AFTER", pl->trigger, 1);
        set_number("SLUICE_POWERCUT_KEEP", strcmp(pl->how, "cut-half") == 0 ? 50 : 0);
        set_number("SLUICE_POWERCUT_SEED", pl->ms * 7919 + (unsigned)getpid());
    }
    execl(pl->self, pl->self, role, pl->dir, pl->acks, pl->retention ? "retention" : "plain", NULL);
    _exit(127);
}

static int wait_child(pid_t pid)
{
    int status = 0;
    waitpid(pid, &status, 0);
    return status;
}

/* The load runs and was acknowledged something; false when the child ended before. */
static bool wait_ready(const crash_acks *acks, pid_t pid)
{
    while (atomic_load(&acks->ready) == 0) {
        int status;
        if (waitpid(pid, &status, WNOHANG) == pid)
            return false;
        usleep(1000);
    }
    return true;
}

static void make_file(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    if (fd >= 0)
        close(fd);
}

static bool run_round(plan *pl, unsigned round)
{
    // Every fifth dies while it opens and creates, the others under load.
    pl->early = round % 5 == 4;
    pl->ms = (pl->early ? 5 : 50) + (unsigned)(random() % 450);
    pl->retention = round % 2 == 1;
    crash_acks *acks = map_acks(pl->acks, true);
    if (acks == NULL)
        return false;
    log_fx_remove_dir(pl->dir);
    unlink(pl->trigger);
    pid_t pid = start_child(pl, "load");
    if (!pl->early && !wait_ready(acks, pid)) {
        fprintf(stderr, "round %u: the load ended before it began\n", round);
        return false;
    }
    make_file(pl->trigger);
    if (strcmp(pl->how, "kill") == 0) {
        usleep(pl->ms * 1000);
        kill(pid, SIGKILL);
    }
    int status = wait_child(pid);
    bool ok = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (!ok)
        fprintf(stderr, "round %u: the load ended by itself (%d)\n", round, status);
    uint64_t issued = atomic_load(&acks->issued);
    munmap(acks, sizeof *acks);
    status = wait_child(start_child(pl, "verify"));
    ok = ok && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    printf("round %u %s %s after %u ms%s, %llu records: %s\n", round, pl->how,
           pl->retention ? "with retention" : "plain", pl->ms, pl->early ? " of start" : "",
           (unsigned long long)issued, ok ? "ok" : "FAILED");
    fflush(stdout);
    return ok;
}

static int run_rounds(const char *self, const char *how, unsigned rounds, const char *library)
{
    plan pl = {.self = self, .how = how, .library = library};
    char base[] = "/tmp/sl-log-crash-XXXXXX";
    if (mkdtemp(base) == NULL)
        return 2;
    snprintf(pl.dir, sizeof pl.dir, "%s/store", base);
    snprintf(pl.acks, sizeof pl.acks, "%s/acks", base);
    snprintf(pl.trigger, sizeof pl.trigger, "%s/now", base);
    srandom((unsigned)getpid());
    unsigned good = 0;
    for (unsigned i = 0; i < rounds; i++)
        good += run_round(&pl, i);
    printf("%u of %u\n", good, rounds);
    if (good == rounds)
        log_fx_remove_dir(base);
    else
        printf("the last round is left in %s\n", base);
    return good == rounds ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc == 4)
        return run_rounds(argv[0], argv[1], (unsigned)strtoul(argv[2], NULL, 10), argv[3]);
    if (argc != 5) {
        fprintf(stderr, "usage: %s kill|cut|cut-half ROUNDS POWERCUT-LIBRARY\n", argv[0]);
        return 2;
    }
    crash_acks *acks = map_acks(argv[3], false);
    bool retention = strcmp(argv[4], "retention") == 0;
    if (acks == NULL)
        return 2;
    if (strcmp(argv[1], "load") == 0)
        crash_load(argv[2], acks, retention);
    return crash_verify(argv[2], acks, retention) == 0 ? 0 : 1;
}
