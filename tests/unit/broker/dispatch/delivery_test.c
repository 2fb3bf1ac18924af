/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of delivery letters: layout of stored messages, expiry, shared bodies, identifiers, bytes.
 */
#include "sl_test.h"

#include <string.h>

#include "dispatch/delivery.h"
#include "session/io.h"

static sl_rbuf *body_of(const void *ptr, size_t len)
{
    sl_rbuf *rb = sl_rbuf_new(len);
    memcpy(rb->data, ptr, len);
    rb->len = (uint32_t)len;
    return rb;
}

/* QoS 1, topic "a/b", packet id 7, expiry 10 s and a user property, payload "xyz". */
static const uint8_t STORED[] = {0x33, 24, 0,    3, 'a', '/', 'b', 0, 7,   12,  0x02, 0,  0,
                                 0,    10, 0x26, 0, 1,   'k', 0,   1, 'v', 'x', 'y',  'z'};

static void test_out_msg_finds_its_parts(void **state)
{
    (void)state;
    sl_rbuf *rb = body_of(STORED, sizeof(STORED));
    rb->data[1] = sizeof(STORED) - 2;
    sl_out_msg msg;
    SL_TEST_OK(sl_out_msg_init(&msg, sl_slice_of(rb->data, rb->len), rb, 5000));
    SL_TEST_SLICE(sl_slice_of(msg.topic, msg.topic_bytes), "\0\3a/b");
    SL_TEST_SLICE(sl_slice_of(msg.payload, msg.payload_bytes), "xyz");
    assert_int_equal(msg.props_bytes, 12);
    assert_true(msg.retain && msg.has_expiry);
    assert_int_equal(msg.expires_at, 15000);
    assert_int_equal(sl_stored_qos(sl_slice_of(rb->data, rb->len)), 1);
    for (uint32_t len = 0; len < 9; len++) { // cut: refused, not read past
        sl_rbuf *cut = body_of(STORED, len);
        SL_TEST_ERR(sl_out_msg_init(&msg, sl_slice_of(cut->data, len), cut, 0), SL_EMALFORMED);
        sl_rbuf_unref(&cut);
    }
    sl_rbuf_unref(&rb);
}

static void test_letter_without_messages_is_possible(void **state)
{
    (void)state;
    sl_io io = {0};
    sl_delivery_mail *dm = sl_delivery_mail_new(&io);
    for (int i = 0; i < 2; i++) {
        sl_delivery item = {
            .slot = 1, .flags = SL_DELIVER_INBOX | (i == 0 ? SL_DELIVER_PUBREL : SL_DELIVER_ASK)};
        sl_delivery_add(dm, &item, NULL, 0);
    }
    assert_int_equal(dm->item_count, 2);
    assert_int_equal(dm->bytes, 2 * sizeof(sl_delivery));
    sl_delivery_mail_free(&dm);
}

static void test_letter_holds_each_body_once(void **state)
{
    (void)state;
    sl_io io = {0};
    sl_rbuf *first = body_of("1", 1), *second = body_of("2", 1);
    sl_delivery_mail *dm = sl_delivery_mail_new(&io);
    sl_out_msg msg = {.body = first, .topic_bytes = 5, .payload_bytes = 100};
    assert_int_equal(sl_delivery_add_msg(dm, &msg), 0);
    assert_int_equal(sl_delivery_add_msg(dm, &msg), 1);
    msg.body = second;
    assert_int_equal(sl_delivery_add_msg(dm, &msg), 2);
    assert_int_equal(dm->body_count, 2);
    assert_false(sl_rbuf_is_sole(first));
    const uint32_t ids[] = {4, 5};
    sl_delivery item = {.slot = 1, .msg = 2};
    for (int i = 0; i < 100; i++)
        sl_delivery_add(dm, &item, ids, i % 2 == 0 ? 2 : 0);
    assert_int_equal(dm->item_count, 100);
    assert_int_equal(dm->items[98].ids, 2);
    assert_int_equal(dm->sub_ids[dm->items[98].ids_at + 1], 5);
    assert_int_equal(dm->items[99].ids, 0);
    assert_int_equal(dm->bytes, 100 * (sizeof(sl_delivery) + 105));
    sl_delivery_mail_free(&dm);
    assert_null(dm);
    assert_true(sl_rbuf_is_sole(first) && sl_rbuf_is_sole(second));
    sl_rbuf_unref(&first);
    sl_rbuf_unref(&second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_out_msg_finds_its_parts),
        cmocka_unit_test(test_letter_without_messages_is_possible),
        cmocka_unit_test(test_letter_holds_each_body_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
