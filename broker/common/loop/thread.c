/* SPDX-License-Identifier: Apache-2.0
 *
 * thread: the only caller of pthread_create in our code.
 */
#include "loop/thread.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"

#define NAME_BYTES 16 /* of the kernel, NUL included */

struct sl_thread {
    pthread_t handle;
    void (*fn)(void *arg);
    void *arg;
    char name[NAME_BYTES];
};

static void *run_thread(void *arg)
{
    sl_thread *th = arg;
    pthread_setname_np(pthread_self(), th->name);
    th->fn(th->arg);
    return NULL;
}

// Everything but what the thread itself causes by a fault: blocking those would only hide where.
static void block_signals(sigset_t *before)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
    sigset_t set;
    sigfillset(&set);
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        sigdelset(&set, faults[i]);
    pthread_sigmask(SIG_BLOCK, &set, before);
}

sl_err sl_thread_start(const char *name, void (*fn)(void *arg), void *arg, sl_thread **out)
{
    sl_thread *th = sl_calloc(1, sizeof(*th));
    th->fn = fn;
    th->arg = arg;
    snprintf(th->name, sizeof(th->name), "%s", name);
    // A new thread inherits the mask, so there is no moment in which it could take a signal.
    sigset_t before;
    block_signals(&before);
    int rc = pthread_create(&th->handle, NULL, run_thread, th);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0) {
        sl_free(th);
        return sl_err_from_errno(rc);
    }
    *out = th;
    return SL_OK;
}

void sl_thread_join(sl_thread **th)
{
    sl_thread *mine = *th;
    *th = NULL;
    if (mine == NULL)
        return;
    int rc = pthread_join(mine->handle, NULL);
    SL_ASSERT(rc == 0);
    sl_free(mine);
}
