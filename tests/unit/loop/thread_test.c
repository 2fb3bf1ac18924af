/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of loop/thread: name, signals, and joining.
 */
#include "sl_test.h"

#include <pthread.h>
#include <signal.h>

#include "loop/thread.h"

typedef struct seen {
    char name[16];
    sigset_t blocked;
} seen;

static void look_around(void *arg)
{
    seen *sn = arg;
    pthread_getname_np(pthread_self(), sn->name, sizeof(sn->name));
    pthread_sigmask(SIG_BLOCK, NULL, &sn->blocked);
}

static void test_thread_has_its_name_and_takes_no_signals(void **state)
{
    (void)state;
    seen sn;
    sl_thread *th = NULL;
    sigset_t before, after;
    pthread_sigmask(SIG_BLOCK, NULL, &before);
    SL_TEST_OK(sl_thread_start("a-name-longer-than-15", look_around, &sn, &th));
    sl_thread_join(&th);
    assert_null(th);
    sl_thread_join(&th);
    assert_string_equal(sn.name, "a-name-longer-t");
    static const int outside[] = {SIGTERM, SIGINT, SIGHUP, SIGPIPE, SIGUSR1, SIGCHLD, SIGALRM};
    for (size_t i = 0; i < sizeof(outside) / sizeof(outside[0]); i++)
        assert_int_equal(sigismember(&sn.blocked, outside[i]), 1);
    assert_int_equal(sigismember(&sn.blocked, SIGSEGV), 0);
    assert_int_equal(sigismember(&sn.blocked, SIGABRT), 0);
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    for (int sig = 1; sig < 32; sig++) // the starter's own mask is as before
        assert_int_equal(sigismember(&after, sig), sigismember(&before, sig));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_thread_has_its_name_and_takes_no_signals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
