/* SPDX-License-Identifier: Apache-2.0
 *
 * embedded_kv_test: rows beside the embedded log: atomic batches, order, scans, offsets behind.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "log/embedded_kv.h"
#include "log_fixture.h"
#include "sl_test.h"

static int setup(void **state)
{
    log_fx *fx = sl_calloc(1, sizeof *fx);
    log_fx_init(fx, &sl_log_embedded_ops, NULL);
    *state = fx;
    return 0;
}

static int teardown(void **state)
{
    log_fx *fx = *state;
    log_fx_fini(fx);
    sl_free(fx);
    return 0;
}

static sl_embedded_kv *open_kv(log_fx *fx, const char *name)
{
    sl_embedded_kv *kv = NULL;
    SL_TEST_OK(sl_embedded_kv_open(fx->log, name, &kv));
    return kv;
}

static sl_embedded_kv_op put(const char *key, const char *first, const char *second)
{
    return (sl_embedded_kv_op){.kind = SL_KV_PUT,
                               .key = sl_slice_str(key),
                               .value = {sl_slice_str(first), sl_slice_str(second)}};
}

static void write_ops(log_fx *fx, sl_embedded_kv *kv, const sl_embedded_kv_op *ops, size_t count,
                      bool durable)
{
    SL_TEST_OK(sl_embedded_kv_write(fx->pr, kv, ops, count, durable, fx->done_count));
}

typedef struct listing {
    char text[256];
    size_t len;
    unsigned stop_after;
    unsigned rows;
} listing;

static bool list_row(void *arg, sl_slice key, sl_slice value)
{
    listing *ls = arg;
    ls->len += (size_t)snprintf(ls->text + ls->len, sizeof ls->text - ls->len, "%.*s=%.*s ",
                                (int)key.len, (const char *)key.ptr, (int)value.len,
                                value.len > 0 ? (const char *)value.ptr : "");
    return ++ls->rows != ls->stop_after;
}

static void assert_rows(sl_embedded_kv *kv, const char *from, const char *to, const char *want)
{
    listing ls = {.stop_after = 0};
    SL_TEST_OK(sl_embedded_kv_scan(kv, sl_slice_str(from), sl_slice_str(to), list_row, &ls));
    assert_string_equal(ls.text, want);
}

static void test_kv_rows_are_put_deleted_and_scanned_in_order(void **state)
{
    log_fx *fx = *state;
    sl_embedded_kv *kv = open_kv(fx, "inbox");
    const sl_embedded_kv_op puts[4] = {put("b", "x", "y"), put("a", "", ""), put("c", "1", ""),
                                       put("d", "", "2")};
    write_ops(fx, kv, puts, 4, false);
    log_fx_wait(fx, 1);
    assert_rows(kv, "", "", "a= b=xy c=1 d=2 ");
    assert_rows(kv, "b", "d", "b=xy c=1 ");
    listing ls = {.stop_after = 2};
    SL_TEST_OK(sl_embedded_kv_scan(kv, sl_slice_str(""), sl_slice_str(""), list_row, &ls));
    assert_string_equal(ls.text, "a= b=xy ");
    // In one batch, in order: the delete hits the old row, the put behind it stays.
    const sl_embedded_kv_op mixed[3] = {
        {.kind = SL_KV_DELETE, .key = sl_slice_str("b")},
        put("b", "new", ""),
        {.kind = SL_KV_DELETE_RANGE, .key = sl_slice_str("c"), .end = sl_slice_str("d")}};
    write_ops(fx, kv, mixed, 3, true);
    log_fx_wait(fx, 2);
    assert_rows(kv, "", "", "a= b=new d=2 ");
}

static void test_kv_rows_survive_and_families_are_apart(void **state)
{
    log_fx *fx = *state;
    sl_embedded_kv *one = open_kv(fx, "one"), *two = open_kv(fx, "two");
    const sl_embedded_kv_op first = put("k", "1", ""), second = put("k", "2", "");
    write_ops(fx, one, &first, 1, true);
    write_ops(fx, two, &second, 1, false);
    log_fx_wait(fx, 2);
    log_fx_close(fx);
    log_fx_open(fx);
    assert_rows(open_kv(fx, "one"), "", "", "k=1 ");
    assert_rows(open_kv(fx, "two"), "", "", "k=2 ");
}

static void test_kv_empty_durable_write_waits_for_all_before(void **state)
{
    log_fx *fx = *state;
    sl_embedded_kv *kv = open_kv(fx, "inbox");
    const sl_embedded_kv_op op = put("k", "v", "");
    SL_TEST_OK(sl_embedded_kv_write(fx->pr, kv, &op, 1, false, 1));
    SL_TEST_OK(sl_embedded_kv_write(fx->pr, kv, NULL, 0, true, 2));
    log_fx_wait(fx, 2);
    assert_int_equal(fx->dones[0].token, 1);
    assert_int_equal(fx->dones[1].token, 2);
    SL_TEST_OK(fx->dones[1].err);
}

static void test_kv_commit_behind_is_stored_with_the_rows(void **state)
{
    log_fx *fx = *state;
    sl_embedded_kv *kv = open_kv(fx, "inbox");
    sl_log_topic *topic = log_fx_topic(fx, "t", 2, LOG_FX_PLAIN);
    const sl_embedded_kv_op op = put("k", "v", "");
    SL_TEST_OK(sl_embedded_kv_write(fx->pr, kv, &op, 1, false, 1));
    SL_TEST_OK(sl_embedded_kv_commit_behind(fx->pr, "g", topic, 1, 17));
    SL_TEST_OK(sl_embedded_kv_commit_behind(fx->pr, "g", topic, 1, 18));
    SL_TEST_ERR(sl_embedded_kv_commit_behind(fx->pr, "g", topic, 2, 18), SL_EINVAL);
    uint64_t offset = 0;
    SL_TEST_OK(sl_log_group_get(fx->log, "g", topic, 1, &offset));
    assert_int_equal(offset, 18);
    log_fx_close(fx);
    log_fx_open(fx);
    topic = log_fx_topic(fx, "t", 2, LOG_FX_PLAIN);
    SL_TEST_OK(sl_log_group_get(fx->log, "g", topic, 1, &offset));
    assert_int_equal(offset, 18);
    assert_rows(open_kv(fx, "inbox"), "", "", "k=v ");
}

static void tweak_small(sl_log_options *options)
{
    options->derived_max_bytes = 32 << 10;
}

static void test_kv_full_derived_queue_says_again_then_room(void **state)
{
    (void)state;
    log_fx fx;
    log_fx_init(&fx, &sl_log_embedded_ops, tweak_small);
    sl_embedded_kv *kv = open_kv(&fx, "inbox");
    static uint8_t bytes[1000];
    const sl_embedded_kv_op op = {
        .kind = SL_KV_PUT, .key = sl_slice_str("k"), .value = {sl_slice_of(bytes, sizeof bytes)}};
    uint64_t taken = 0;
    sl_err err;
    while ((err = sl_embedded_kv_write(fx.pr, kv, &op, 1, true, taken)) == SL_OK)
        taken++;
    SL_TEST_ERR(err, SL_EAGAIN);
    // Neither class takes from the other's bound.
    sl_log_topic *topic = log_fx_topic(&fx, "t", 1, LOG_FX_PLAIN);
    log_fx_append(&fx, topic, 0, "k", "v", 0, 9999);
    log_fx_wait(&fx, taken + 1);
    SL_TEST_OK(sl_log_sync(fx.log));
    sl_log_producer_drain(fx.pr);
    assert_int_equal(fx.rooms, 1);
    log_fx_fini(&fx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_kv_rows_are_put_deleted_and_scanned_in_order, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_kv_rows_survive_and_families_are_apart, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_kv_empty_durable_write_waits_for_all_before, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_kv_commit_behind_is_stored_with_the_rows, setup,
                                        teardown),
        cmocka_unit_test(test_kv_full_derived_queue_says_again_then_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
