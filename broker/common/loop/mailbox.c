/* SPDX-License-Identifier: Apache-2.0
 *
 * mailbox: a lock-free stack of letters. A post is one compare-and-swap; the reader empties it with
 * one exchange and turns the batch over, so letters run in the order of their posts. Waking costs a
 * system call, so a poster wakes only a reader that said it may sleep.
 */
#include "loop/loop_int.h"

void mailbox_init(mailbox *box)
{
    atomic_init(&box->head, NULL);
    atomic_init(&box->asleep, 0);
    atomic_init(&box->stop_asked, 0);
    atomic_init(&box->stop._next, NULL);
    box->stop.fn = NULL;
}

// The poster writes head, then reads asleep; the reader writes asleep, then reads head. All four
// are sequentially consistent, so at least one of the two sees the other: no letter is slept over.
static bool take_wake(mailbox *box)
{
    return atomic_load(&box->asleep) != 0 && atomic_exchange(&box->asleep, 0) != 0;
}

bool mailbox_post(mailbox *box, sl_mail *mail, bool *wake)
{
    sl_mail *head = atomic_load_explicit(&box->head, memory_order_relaxed);
    do {
        if (head == &box->stop)
            return false;
        atomic_store_explicit(&mail->_next, head, memory_order_relaxed);
    } while (!atomic_compare_exchange_weak(&box->head, &head, mail));
    *wake = take_wake(box);
    return true;
}

void mailbox_stop(mailbox *box, bool *wake)
{
    *wake = false;
    if (atomic_exchange(&box->stop_asked, 1) != 0)
        return;
    sl_mail *head = atomic_load_explicit(&box->head, memory_order_relaxed);
    do {
        atomic_store_explicit(&box->stop._next, head, memory_order_relaxed);
    } while (!atomic_compare_exchange_weak(&box->head, &head, &box->stop));
    *wake = take_wake(box);
}

static sl_mail *take_all(mailbox *box)
{
    sl_mail *head = atomic_load(&box->head);
    while (head != &box->stop && head != NULL) {
        if (atomic_compare_exchange_weak(&box->head, &head, NULL))
            return head;
    }
    // The stop letter stays, so the box stays shut; nobody changes what lies under it, and the loop
    // never looks again.
    return head;
}

size_t mailbox_run(mailbox *box, bool *stopped)
{
    sl_mail *newest = take_all(box);
    sl_mail *oldest = NULL;
    while (newest != NULL) {
        sl_mail *next = atomic_load_explicit(&newest->_next, memory_order_relaxed);
        if (newest == &box->stop) {
            *stopped = true;
        } else {
            atomic_store_explicit(&newest->_next, oldest, memory_order_relaxed);
            oldest = newest;
        }
        newest = next;
    }
    size_t count = 0;
    while (oldest != NULL) {
        // The letter may be gone once it ran.
        sl_mail *next = atomic_load_explicit(&oldest->_next, memory_order_relaxed);
        oldest->fn(oldest);
        oldest = next;
        count++;
    }
    return count;
}

bool mailbox_may_sleep(mailbox *box)
{
    atomic_store(&box->asleep, 1);
    return atomic_load(&box->head) == NULL;
}

bool mailbox_woke(mailbox *box)
{
    return atomic_exchange(&box->asleep, 0) == 0;
}
