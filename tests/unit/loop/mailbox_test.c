/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of loop/mailbox through a loop with a thread: no letter is lost, doubled, out of its
 * sender's order or slept over, and a stop shuts the door at one place in that order.
 */
#include "sl_test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/alloc.h"
#include "loop/loop.h"

#define SENDERS 4
#define LETTERS 20000

typedef struct fixture {
    sl_clock ck;
    sl_loop *lp;
    unsigned next[SENDERS]; /* loop's; number of the letter that must come next */
    _Atomic unsigned received;
} fixture;

typedef struct letter {
    sl_mail mail;
    fixture *fx;
    unsigned sender;
    unsigned number;
} letter;

static void on_letter(sl_mail *mail)
{
    letter *le = (letter *)mail;
    fixture *fx = le->fx;
    assert_true(sl_loop_is_current(fx->lp));
    assert_int_equal(le->number, fx->next[le->sender]);
    fx->next[le->sender]++;
    sl_free(le);
    atomic_fetch_add(&fx->received, 1);
}

static bool post(fixture *fx, unsigned sender, unsigned number)
{
    letter *le = sl_calloc(1, sizeof(*le));
    le->mail.fn = on_letter;
    le->fx = fx;
    le->sender = sender;
    le->number = number;
    bool taken = sl_loop_post(fx->lp, &le->mail);
    if (!taken)
        sl_free(le);
    return taken;
}

typedef struct sender {
    fixture *fx;
    unsigned index;
    unsigned taken;
} sender;

static void *send_all(void *arg)
{
    sender *sd = arg;
    while (sd->taken < LETTERS && post(sd->fx, sd->index, sd->taken))
        sd->taken++;
    return NULL;
}

// Waits until the loop has slept, most probably, before each letter: every one must wake it.
static void *send_one_by_one(void *arg)
{
    sender *sd = arg;
    for (unsigned i = 0; i < 2000; i++) {
        if (!post(sd->fx, sd->index, i))
            break;
        sd->taken++;
        while (atomic_load(&sd->fx->received) <= i)
            sched_yield();
    }
    return NULL;
}

static void start(fixture *fx)
{
    sl_clock_init(&fx->ck);
    SL_TEST_OK(sl_loop_new("mailbox", &fx->ck, &fx->lp));
    SL_TEST_OK(sl_loop_start(fx->lp));
}

static void test_mailbox_keeps_every_senders_order(void **state)
{
    (void)state;
    fixture fx = {.received = 0};
    sender senders[SENDERS];
    pthread_t threads[SENDERS];
    start(&fx);
    for (unsigned i = 0; i < SENDERS; i++) {
        senders[i] = (sender){.fx = &fx, .index = i};
        assert_int_equal(pthread_create(&threads[i], NULL, send_all, &senders[i]), 0);
    }
    for (unsigned i = 0; i < SENDERS; i++)
        pthread_join(threads[i], NULL);
    sl_loop_stop(fx.lp);
    assert_false(post(&fx, 0, LETTERS)); // the door is shut at once
    sl_loop_join(fx.lp);
    for (unsigned i = 0; i < SENDERS; i++)
        assert_int_equal(fx.next[i], LETTERS);
    sl_loop_free(&fx.lp);
}

static void test_mailbox_wakes_a_sleeping_loop_for_each_letter(void **state)
{
    (void)state;
    fixture fx = {.received = 0};
    sender sd = {.fx = &fx};
    pthread_t thread;
    start(&fx);
    assert_int_equal(pthread_create(&thread, NULL, send_one_by_one, &sd), 0);
    pthread_join(thread, NULL);
    sl_loop_stop(fx.lp);
    sl_loop_join(fx.lp);
    assert_int_equal(fx.next[0], 2000);
    sl_loop_free(&fx.lp);
}

static void test_mailbox_stop_in_a_storm_loses_nothing_it_took(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        fixture fx = {.received = 0};
        sender senders[SENDERS];
        pthread_t threads[SENDERS];
        start(&fx);
        for (unsigned i = 0; i < SENDERS; i++) {
            senders[i] = (sender){.fx = &fx, .index = i};
            assert_int_equal(pthread_create(&threads[i], NULL, send_all, &senders[i]), 0);
        }
        while (atomic_load(&fx.received) < (unsigned)round * 100)
            sched_yield();
        sl_loop_stop(fx.lp);
        sl_loop_stop(fx.lp); // twice is once
        for (unsigned i = 0; i < SENDERS; i++)
            pthread_join(threads[i], NULL);
        sl_loop_join(fx.lp);
        for (unsigned i = 0; i < SENDERS; i++)
            assert_int_equal(fx.next[i], senders[i].taken);
        sl_loop_free(&fx.lp);
    }
}

typedef struct echo {
    sl_mail mail;
    sl_loop *to;
    sl_loop *back;
    int left;
    _Atomic int *ended;
} echo;

static void on_echo(sl_mail *mail)
{
    echo *ec = (echo *)mail;
    if (ec->left-- == 0) {
        atomic_store(ec->ended, 1);
        return;
    }
    sl_loop *to = ec->to;
    ec->to = ec->back;
    ec->back = to;
    assert_true(sl_loop_post(to, mail));
}

static void test_mailbox_carries_one_letter_to_and_fro(void **state)
{
    (void)state;
    sl_clock ck;
    sl_clock_init(&ck);
    sl_loop *left, *right;
    SL_TEST_OK(sl_loop_new("left", &ck, &left));
    SL_TEST_OK(sl_loop_new("right", &ck, &right));
    SL_TEST_OK(sl_loop_start(left));
    SL_TEST_OK(sl_loop_start(right));
    _Atomic int ended = 0;
    echo ec = {.mail.fn = on_echo, .to = right, .back = left, .left = 3000, .ended = &ended};
    assert_true(sl_loop_post(left, &ec.mail));
    while (atomic_load(&ended) == 0)
        sched_yield();
    sl_loop_stop(left);
    sl_loop_stop(right);
    sl_loop_join(left);
    sl_loop_join(right);
    assert_int_equal(ec.left, -1);
    sl_loop_free(&left);
    sl_loop_free(&right);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mailbox_keeps_every_senders_order),
        cmocka_unit_test(test_mailbox_wakes_a_sleeping_loop_for_each_letter),
        cmocka_unit_test(test_mailbox_stop_in_a_storm_loses_nothing_it_took),
        cmocka_unit_test(test_mailbox_carries_one_letter_to_and_fro),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
