/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of gateway/src/router, on a loop turned by hand and a clock that stands still.
 */
#include "router.h"

#include "base/alloc.h"
#include "sl_test.h"

typedef struct fixture {
    sl_clock clock;
    sl_loop *loop;
    sl_router *rt;
    uint64_t acked[64]; /* handles, in order */
    size_t acks;
    unsigned changes;
    sl_taken *tokens[64];
    size_t token_count;
    unsigned live; /* calls of on_live */
    uint64_t last_seq;
    uint64_t remove_in_call; /* id to unsubscribe inside on_live */
} fixture;

static void on_ack(void *arg, sl_delivery delivery)
{
    fixture *fx = arg;
    assert_true(fx->acks < 64);
    fx->acked[fx->acks++] = delivery.handle;
}

static void on_filters(void *arg)
{
    ((fixture *)arg)->changes++;
}

static void on_live(void *arg, sl_message *msg)
{
    fixture *fx = arg;
    fx->live++;
    fx->last_seq = msg->seq;
    if (fx->remove_in_call != 0)
        sl_router_unsubscribe(fx->rt, fx->remove_in_call);
}

static void on_durable(void *arg, sl_message *msg, sl_taken *token)
{
    fixture *fx = arg;
    (void)msg;
    fx->tokens[fx->token_count++] = token;
}

static fixture *begin(int64_t rate, uint32_t cache_size)
{
    fixture *fx = sl_calloc(1, sizeof *fx);
    sl_clock_init_fake(&fx->clock, 1000, 1000);
    SL_TEST_OK(sl_loop_new_manual("t", &fx->clock, &fx->loop));
    fx->rt = sl_router_new(&(sl_router_options){.loop = fx->loop,
                                                .live_max_per_second = rate,
                                                .cache = cache_size > 0,
                                                .cache_size = cache_size,
                                                .on_ack = on_ack,
                                                .on_filters = on_filters,
                                                .arg = fx});
    sl_loop_turn(fx->loop);
    return fx;
}

static void end(fixture *fx)
{
    sl_loop_free(&fx->loop);
    sl_router_free(&fx->rt);
    sl_free(fx);
}

static void turn(fixture *fx)
{
    while (sl_loop_turn(fx->loop))
        continue;
}

static void deliver(fixture *fx, const char *topic, const char *payload, uint64_t handle)
{
    size_t len = strlen(payload);
    sl_rbuf *rb = sl_rbuf_new(len + 1);
    memcpy(rb->data, payload, len);
    sl_mqtt_publish pb = {
        .topic = sl_slice_str(topic), .payload = sl_slice_of(rb->data, len), .qos = 1};
    sl_message *msg = sl_message_new(&pb, rb, 1);
    sl_rbuf_unref(&rb);
    sl_router_deliver(fx->rt, &msg, (sl_delivery){.generation = 1, .handle = handle});
    assert_null(msg);
}

static uint64_t live_on(fixture *fx, const char *filter, uint8_t qos)
{
    uint64_t id;
    SL_TEST_OK(sl_router_subscribe(fx->rt, sl_slice_str(filter), qos, on_live, fx, &id));
    return id;
}

static uint64_t durable_on(fixture *fx, const char *filter)
{
    uint64_t id;
    SL_TEST_OK(sl_router_subscribe_durable(fx->rt, sl_slice_str(filter), 1, on_durable, fx, &id));
    return id;
}

static sl_router_stats stats(fixture *fx)
{
    sl_router_stats st;
    sl_router_read_stats(fx->rt, &st);
    return st;
}

static void test_router_acknowledges_at_once_without_durable_listener(void **state)
{
    (void)state;
    fixture *fx = begin(0, 10);
    live_on(fx, "a/#", 0);
    deliver(fx, "a/b", "1", 7);
    assert_int_equal(fx->live, 1);
    assert_int_equal(fx->acks, 1);
    assert_int_equal(fx->acked[0], 7);
    deliver(fx, "other", "1", 8); // nobody: acknowledged and counted
    assert_int_equal(fx->acks, 2);
    assert_int_equal(stats(fx).unmatched, 1);
    assert_int_equal(stats(fx).cached, 1);
    end(fx);
}

static void test_router_acknowledges_after_the_last_durable_listener(void **state)
{
    (void)state;
    fixture *fx = begin(0, 10);
    durable_on(fx, "a/#");
    durable_on(fx, "a/b");
    deliver(fx, "a/b", "1", 7);
    assert_int_equal(fx->token_count, 2);
    assert_int_equal(stats(fx).pending, 1);
    sl_taken_done(&fx->tokens[1]);
    turn(fx);
    assert_int_equal(fx->acks, 0);
    sl_taken_done(&fx->tokens[0]);
    assert_int_equal(fx->acks, 0); // never within the call
    turn(fx);
    assert_int_equal(fx->acks, 1);
    assert_int_equal(stats(fx).pending, 0);
    end(fx);
}

static void test_router_rate_limit_touches_live_listeners_only(void **state)
{
    (void)state;
    fixture *fx = begin(10, 100);
    live_on(fx, "#", 0);
    durable_on(fx, "#");
    char topic[8] = "t00";
    for (int i = 0; i < 25; i++) {
        topic[1] = (char)('0' + i / 10);
        topic[2] = (char)('0' + i % 10);
        deliver(fx, topic, "x", (uint64_t)i);
    }
    assert_int_equal(fx->live, 10);
    assert_int_equal(fx->token_count, 25);
    assert_int_equal(stats(fx).dropped, 15);
    assert_int_equal(stats(fx).cached, 25); // the cache is updated all the same
    sl_clock_advance(&fx->clock, 300);
    for (int i = 0; i < 5; i++)
        deliver(fx, "t", "x", 99);
    assert_int_equal(fx->live, 13);
    sl_clock_advance(&fx->clock, 3600000); // an hour's rest holds one second's worth
    for (int i = 0; i < 15; i++)
        deliver(fx, "t", "x", 99);
    assert_int_equal(fx->live, 23);
    for (size_t i = 0; i < fx->token_count; i++)
        sl_taken_done(&fx->tokens[i]);
    turn(fx);
    end(fx);
}

static void test_router_hash_does_not_match_dollar_topics(void **state)
{
    (void)state;
    fixture *fx = begin(0, 10);
    live_on(fx, "#", 0);
    live_on(fx, "+/x", 0);
    deliver(fx, "$SYS/x", "1", 1);
    assert_int_equal(fx->live, 0);
    live_on(fx, "$SYS/#", 0);
    deliver(fx, "$SYS/x", "1", 2);
    assert_int_equal(fx->live, 1);
    end(fx);
}

static void test_router_cache_is_bounded_and_drops_the_least_used(void **state)
{
    (void)state;
    fixture *fx = begin(0, 3);
    live_on(fx, "#", 0);
    deliver(fx, "a", "1", 1);
    deliver(fx, "b", "2", 2);
    deliver(fx, "c", "3", 3);
    sl_message *msg = sl_router_last(fx->rt, sl_slice_str("a"));
    assert_non_null(msg);
    sl_message_unref(&msg);
    deliver(fx, "d", "4", 4);
    assert_null(sl_router_last(fx->rt, sl_slice_str("b")));
    assert_int_equal(stats(fx).cache_evictions, 1);
    deliver(fx, "a", "new", 5);
    msg = sl_router_last(fx->rt, sl_slice_str("a"));
    SL_TEST_SLICE(msg->payload, "new");
    sl_message_unref(&msg);
    end(fx);
}

static void test_router_cache_is_bounded_in_bytes(void **state)
{
    (void)state;
    fixture *fx = begin(0, 1000);
    live_on(fx, "#", 0);
    size_t len = 30u << 20;
    sl_rbuf *rb = sl_rbuf_new(len);
    memset(rb->data, 'x', len);
    static const char topics[] = "abcdefghijkl";
    for (int i = 0; i < 12; i++) { // 360 MB of payload, of one buffer: only the sum counts
        sl_mqtt_publish pb = {.topic = sl_slice_of(topics + i, 1),
                              .payload = sl_slice_of(rb->data, len)};
        sl_message *msg = sl_message_new(&pb, rb, 1);
        sl_router_deliver(fx->rt, &msg, (sl_delivery){0});
    }
    assert_int_equal(stats(fx).cached, 8); // of 256 MB
    assert_int_equal(stats(fx).cache_evictions, 4);
    sl_rbuf_unref(&rb);
    end(fx);
}

static void test_router_cache_lookup_is_in_order_of_receipt(void **state)
{
    (void)state;
    fixture *fx = begin(0, 10);
    live_on(fx, "#", 0);
    const char *const topics[] = {"s/c", "s/a", "other", "s/b", "s/a"};
    for (size_t i = 0; i < 5; i++)
        deliver(fx, topics[i], "x", i);
    sl_message **msgs;
    size_t count;
    uint64_t seq;
    sl_router_match_cache(fx->rt, sl_slice_str("s/+"), &msgs, &count, &seq);
    assert_int_equal(count, 3);
    assert_int_equal(seq, 5);
    SL_TEST_SLICE(msgs[0]->topic, "s/c");
    SL_TEST_SLICE(msgs[1]->topic, "s/b");
    SL_TEST_SLICE(msgs[2]->topic, "s/a");
    for (size_t i = 0; i < count; i++)
        sl_message_unref(&msgs[i]);
    sl_free(msgs);
    end(fx);
}

static void test_router_listener_may_leave_while_messages_are_handed_out(void **state)
{
    (void)state;
    fixture *fx = begin(0, 10);
    live_on(fx, "a/#", 0);
    fx->remove_in_call = live_on(fx, "a/+", 1);
    deliver(fx, "a/b", "1", 1);
    assert_int_equal(fx->live, 1); // the second one was gone before its turn
    fx->remove_in_call = 0;
    deliver(fx, "a/b", "1", 2);
    assert_int_equal(fx->live, 2);
    assert_int_equal(stats(fx).listeners, 1);
    assert_int_equal(stats(fx).filters, 1);
    end(fx);
}

static void test_router_tells_changes_of_filters_once_per_turn(void **state)
{
    (void)state;
    fixture *fx = begin(0, 10);
    live_on(fx, "a", 0);
    live_on(fx, "b", 0);
    uint64_t id = live_on(fx, "a", 2);
    turn(fx);
    assert_int_equal(fx->changes, 1);
    live_on(fx, "b", 0); // neither filter nor QoS is new
    turn(fx);
    assert_int_equal(fx->changes, 1);
    size_t pos = 0, seen = 0;
    sl_router_filter rf;
    while (sl_router_each_filter(fx->rt, &pos, &rf)) {
        seen++;
        assert_int_equal(rf.qos, rf.filter.ptr[0] == 'a' ? 2 : 0);
    }
    assert_int_equal(seen, 2);
    sl_router_unsubscribe(fx->rt, id);
    turn(fx);
    assert_int_equal(fx->changes, 2);
    end(fx);
}

static void test_router_refuses_filters_that_are_none(void **state)
{
    (void)state;
    fixture *fx = begin(0, 10);
    uint64_t id;
    const char *const bad[] = {"", "a#", "#/a", "a/+b", "$share/g/a"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        SL_TEST_ERR(sl_router_subscribe(fx->rt, sl_slice_str(bad[i]), 0, on_live, fx, &id),
                    SL_EINVAL);
    SL_TEST_ERR(sl_router_prime(fx->rt, sl_slice_str("a"), 3, &id), SL_EINVAL);
    assert_int_equal(stats(fx).filters, 0);
    end(fx);
}

static void test_router_gives_back_tokens_of_nobody_at_free(void **state)
{
    (void)state;
    fixture *fx = begin(0, 10);
    durable_on(fx, "#");
    deliver(fx, "a", "1", 1); // its token never comes home; the leak checker watches
    end(fx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_router_acknowledges_at_once_without_durable_listener),
        cmocka_unit_test(test_router_acknowledges_after_the_last_durable_listener),
        cmocka_unit_test(test_router_rate_limit_touches_live_listeners_only),
        cmocka_unit_test(test_router_hash_does_not_match_dollar_topics),
        cmocka_unit_test(test_router_cache_is_bounded_and_drops_the_least_used),
        cmocka_unit_test(test_router_cache_is_bounded_in_bytes),
        cmocka_unit_test(test_router_cache_lookup_is_in_order_of_receipt),
        cmocka_unit_test(test_router_listener_may_leave_while_messages_are_handed_out),
        cmocka_unit_test(test_router_tells_changes_of_filters_once_per_turn),
        cmocka_unit_test(test_router_refuses_filters_that_are_none),
        cmocka_unit_test(test_router_gives_back_tokens_of_nobody_at_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
