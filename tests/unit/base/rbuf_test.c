/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of base/rbuf: counting, and dropping from several threads at once.
 */
#include "sl_test.h"

#include <pthread.h>
#include <string.h>

#include "base/rbuf.h"

static void test_rbuf_counts_references(void **state)
{
    (void)state;
    sl_rbuf *rb = sl_rbuf_new(10);
    assert_int_equal(rb->cap, 10);
    assert_int_equal(rb->len, 0);
    assert_true(sl_rbuf_is_sole(rb));
    sl_rbuf *other = sl_rbuf_ref(rb);
    assert_ptr_equal(other, rb);
    assert_false(sl_rbuf_is_sole(rb));
    sl_rbuf_ref_many(rb, 5);
    sl_rbuf_unref_many(rb, 5);
    sl_rbuf_unref_many(rb, 0);
    sl_rbuf_unref(&other);
    assert_null(other);
    assert_true(sl_rbuf_is_sole(rb));
    sl_rbuf_unref(&rb);
    sl_rbuf_unref(&rb); // NULL inside
}

static void test_rbuf_last_many_frees(void **state)
{
    (void)state;
    sl_rbuf *rb = sl_rbuf_new(0);
    sl_rbuf_ref_many(rb, 2);
    sl_rbuf_unref_many(rb, 3); // the leak checker sees when this does not free
}

static void *drop_many(void *arg)
{
    sl_rbuf *rb = arg;
    unsigned sum = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        sl_rbuf *mine = sl_rbuf_ref(rb);
        sum += mine->data[i % mine->len];
        sl_rbuf_unref(&mine);
    }
    sl_rbuf_unref(&rb);
    return (void *)(uintptr_t)sum;
}

static void test_rbuf_is_dropped_by_many_threads(void **state)
{
    (void)state;
    sl_rbuf *rb = sl_rbuf_new(100);
    memset(rb->data, 1, 100);
    rb->len = 100;
    pthread_t threads[4];
    sl_rbuf_ref_many(rb, 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, drop_many, rb), 0);
    sl_rbuf_unref(&rb); // whoever is last frees it, perhaps not us
    for (int i = 0; i < 4; i++) {
        void *sum;
        pthread_join(threads[i], &sum);
        assert_int_equal((uintptr_t)sum, 1000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rbuf_counts_references),
        cmocka_unit_test(test_rbuf_last_many_frees),
        cmocka_unit_test(test_rbuf_is_dropped_by_many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
