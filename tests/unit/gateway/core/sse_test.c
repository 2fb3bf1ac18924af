/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of gateway/src/sse with a real HTTP front: one loop turned by hand is the front's and the
 * router's, a client on a plain socket reads, the clock is a fake.
 */
#include "sse.h"

#include <stdio.h>
#include <sys/socket.h>

#include "conf_log.h"
#include "http_test_util.h"
#include "sl_test.h"

typedef struct world {
    test_server ts;
    sl_router *rt;
    sl_acl *acl;
    sl_sse *sse;
    uint64_t prime;
} world;

static void on_ack(void *arg, sl_delivery delivery)
{
    (void)arg;
    (void)delivery;
}

static const char *const any_role[] = {"reader"};

/* Logs everybody in. */
static sl_http_verdict on_gate(void *arg, sl_http_req *req, sl_http_resp *resp)
{
    (void)arg;
    (void)resp;
    sl_http_req_set_user(req, "u", any_role, 1);
    return SL_HTTP_PASS;
}

static void grant(world *wd, const char *filter)
{
    const char *const filters[] = {filter};
    sl_acl_load(wd->acl, true, &(sl_conf_grant){"reader", filters, 1}, 1);
}

static world *begin(sl_sse_options opt)
{
    conf_log_begin();
    world *wd = sl_calloc(1, sizeof *wd);
    test_server_make(&wd->ts, (sl_http_options){.gate = on_gate});
    wd->rt = sl_router_new(&(sl_router_options){
        .loop = wd->ts.lp, .cache = true, .cache_size = 100, .on_ack = on_ack, .arg = wd});
    wd->acl = sl_acl_new();
    grant(wd, "s/#");
    opt.front = opt.router = wd->ts.lp;
    opt.rt = wd->rt;
    opt.acl = wd->acl;
    opt.default_topic = "s/#";
    if (opt.queue_capacity == 0)
        opt.queue_capacity = 4;
    wd->sse = sl_sse_new(&opt);
    const sl_http_route route = {.methods = SL_HTTP_M(GET),
                                 .pattern = "/mqtt-sse",
                                 .on_loop = sl_sse_on_request,
                                 .arg = wd->sse};
    sl_http_server_route(wd->ts.sv, &route, 1);
    test_server_go(&wd->ts);
    SL_TEST_OK(sl_router_prime(wd->rt, sl_slice_str("#"), 0, &wd->prime));
    return wd;
}

static void on_drained(void *arg)
{
    *(bool *)arg = true;
}

static void end(world *wd)
{
    bool drained = false;
    sl_http_server_drain(wd->ts.sv, 1000, on_drained, &drained);
    for (int i = 0; i < 100 && !drained; i++)
        test_server_pass(&wd->ts, 100);
    assert_true(drained);
    test_server_settle(&wd->ts);
    sl_http_server_free(&wd->ts.sv);
    sl_sse_close(wd->sse);
    sl_loop_free(&wd->ts.lp);
    sl_sse_free(&wd->sse);
    sl_router_free(&wd->rt);
    sl_acl_free(&wd->acl);
    sl_free(wd);
    sl_logger_set_sink(NULL, NULL);
}

static void deliver_bytes(world *wd, const char *topic, const void *payload, size_t len)
{
    size_t topic_len = strlen(topic);
    sl_rbuf *rb = sl_rbuf_new(topic_len + len + 1);
    memcpy(rb->data, topic, topic_len);
    memcpy(rb->data + topic_len, payload, len);
    sl_mqtt_publish pb = {.topic = sl_slice_of(rb->data, topic_len),
                          .payload = sl_slice_of(rb->data + topic_len, len)};
    sl_message *msg = sl_message_new(&pb, rb, 1000000);
    sl_rbuf_unref(&rb);
    sl_router_deliver(wd->rt, &msg, (sl_delivery){0});
}

static void deliver(world *wd, const char *topic, const char *payload)
{
    deliver_bytes(wd, topic, payload, strlen(payload));
    test_server_settle(&wd->ts);
}

static void open_stream(world *wd, test_client *tc, const char *target)
{
    char text[256];
    test_client_open(tc, &wd->ts);
    snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", target);
    test_client_send(tc, text);
    test_client_expect(tc, &wd->ts, "retry:3000\n");
    test_server_settle(&wd->ts);
}

static int status_of(world *wd, const char *target, const char *headers)
{
    char text[512];
    test_client tc;
    test_client_open(&tc, &wd->ts);
    snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: x\r\n%s\r\n", target, headers);
    int status = test_client_request(&tc, &wd->ts, text);
    test_client_close(&tc);
    test_server_settle(&wd->ts);
    return status;
}

static sl_sse_figures figures(world *wd)
{
    sl_sse_figures sf;
    sl_sse_read(wd->sse, &sf);
    return sf;
}

static void test_sse_live_messages_arrive_numbered(void **state)
{
    (void)state;
    world *wd = begin((sl_sse_options){0});
    test_client tc;
    open_stream(wd, &tc, "/mqtt-sse?topic=s/+");
    assert_int_equal(figures(wd).open, 1);
    deliver(wd, "s/a", "one");
    deliver(wd, "s/b/c", "not for it");
    deliver(wd, "s/b", "two");
    test_client_expect(&tc, &wd->ts, "id:s/a-1-1\nevent:mqtt-message\ndata:one\n\n");
    test_client_expect(&tc, &wd->ts, "id:s/b-1-2\nevent:mqtt-message\ndata:two\n\n");
    assert_int_equal(test_client_count(&tc, "not for it"), 0);
    assert_non_null(strstr(test_client_text(&tc), "X-Accel-Buffering: no"));
    test_client_close(&tc);
    test_server_settle(&wd->ts);
    assert_int_equal(figures(wd).open, 0);
    sl_router_stats st;
    sl_router_read_stats(wd->rt, &st);
    assert_int_equal(st.listeners, 0); // the last reader takes the filter with it
    end(wd);
}

static void test_sse_cached_values_come_first_and_once(void **state)
{
    (void)state;
    world *wd = begin((sl_sse_options){.replay = true, .envelope = true, .queue_capacity = 2});
    const char *const topics[] = {"s/c", "s/a", "x/no", "s/b", "s/d"};
    for (size_t i = 0; i < 5; i++)
        deliver(wd, topics[i], topics[i]);
    test_client tc;
    open_stream(wd, &tc, "/mqtt-sse"); // default topic s/#
    deliver(wd, "s/a", "live");
    test_client_expect(&tc, &wd->ts, "live");
    const char *text = test_client_text(&tc);
    const char *at = text;
    static const char *const order[] = {"\"payload\":\"s/c\"", "\"payload\":\"s/a\"",
                                        "\"payload\":\"s/b\"", "\"payload\":\"s/d\"",
                                        "\"payload\":\"live\""};
    for (size_t i = 0; i < 5; i++) { // more than the queue holds: replay is not counted
        at = strstr(at, order[i]);
        assert_non_null(at);
    }
    assert_int_equal(test_client_count(&tc, "\"replay\":true"), 4);
    assert_int_equal(test_client_count(&tc, "\"replay\":false"), 1);
    assert_int_equal(figures(wd).dropped, 0);
    test_client_close(&tc);
    end(wd);
}

static void test_sse_refusals(void **state)
{
    (void)state;
    world *wd = begin((sl_sse_options){.max_total = 2, .max_per_topic = 1});
    assert_int_equal(status_of(wd, "/mqtt-sse?topic=other", ""), 403);
    assert_int_equal(status_of(wd, "/mqtt-sse?topic=%23", ""), 403);
    assert_int_equal(status_of(wd, "/mqtt-sse?topic=", ""), 400);
    assert_int_equal(status_of(wd, "/mqtt-sse?topic=s/a&topic=s/b", ""), 400);
    assert_int_equal(status_of(wd, "/mqtt-sse?topic=s/a&qos=3", ""), 400);
    assert_int_equal(status_of(wd, "/mqtt-sse?topic=s/a&qos=1&qos=1", ""), 400);
    assert_int_equal(status_of(wd, "/mqtt-sse?topic=s/a", "Accept: text/html\r\n"), 406);
    test_client first, second;
    open_stream(wd, &first, "/mqtt-sse?topic=s/a");
    assert_int_equal(status_of(wd, "/mqtt-sse?topic=s/a", ""), 503);
    open_stream(wd, &second, "/mqtt-sse?topic=s/b&qos=2");
    assert_int_equal(status_of(wd, "/mqtt-sse?topic=s/c", ""), 503);
    assert_int_equal(figures(wd).rejected, 2);
    test_client_close(&first);
    test_server_settle(&wd->ts);
    sl_sse_stop(wd->sse);
    assert_int_equal(status_of(wd, "/mqtt-sse?topic=s/c", ""), 503);
    test_client_close(&second);
    end(wd);
}

/* Fills a reader that does not read: until its queue of four has lost something. */
static unsigned flood(world *wd, unsigned count)
{
    static char payload[60000];
    memset(payload, 'x', sizeof payload);
    for (unsigned i = 0; i < count; i++) {
        snprintf(payload, 16, "<%u>", i);
        payload[strlen(payload)] = ' ';
        deliver_bytes(wd, "s/a", payload, sizeof payload);
        while (sl_loop_turn(wd->ts.lp))
            continue;
    }
    return count - 1;
}

static void slow_reader(bool drop_oldest)
{
    world *wd = begin((sl_sse_options){.drop_oldest = drop_oldest, .gap_events = true});
    test_client tc;
    open_stream(wd, &tc, "/mqtt-sse?topic=s/a");
    char newest[16];
    snprintf(newest, sizeof newest, "<%u>", flood(wd, 400)); // 24 MB: more than any socket buffer
    uint64_t dropped = figures(wd).dropped;
    assert_true(dropped > 100);
    // now it reads all that is left, and then one more
    char gap[64];
    snprintf(gap, sizeof gap, "event:mqtt-gap\ndata:{\"dropped\":%llu}\n\n",
             (unsigned long long)dropped);
    test_client_expect(&tc, &wd->ts, gap);
    if (drop_oldest)
        test_client_expect(&tc, &wd->ts, newest);
    test_server_settle(&wd->ts);
    deliver(wd, "s/a", "after");
    test_client_expect(&tc, &wd->ts, "after");
    assert_int_equal(test_client_count(&tc, newest), drop_oldest ? 1 : 0);
    assert_int_equal(figures(wd).dropped, dropped);
    assert_int_equal(figures(wd).sent, 401 - dropped);
    test_client_close(&tc);
    end(wd);
}

static void test_sse_slow_reader_loses_the_oldest(void **state)
{
    (void)state;
    slow_reader(true);
}

static void test_sse_slow_reader_loses_the_newest_if_told(void **state)
{
    (void)state;
    slow_reader(false);
}

static void test_sse_large_event_arrives_whole(void **state)
{
    (void)state;
    world *wd = begin((sl_sse_options){0});
    test_client tc;
    open_stream(wd, &tc, "/mqtt-sse?topic=s/a");
    size_t len = 3 << 20; // more than the stream takes at once
    char *payload = sl_alloc(len + 1);
    memset(payload, 'y', len);
    payload[len] = '\0';
    payload[len - 1] = 'Z';
    deliver_bytes(wd, "s/a", payload, len);
    test_client_expect(&tc, &wd->ts, "Z\n\n");
    deliver(wd, "s/a", "next");
    test_client_expect(&tc, &wd->ts, "id:s/a-1-2\nevent:mqtt-message\ndata:next\n\n");
    sl_free(payload);
    test_client_close(&tc);
    end(wd);
}

static void test_sse_long_topic_has_its_id_in_parts(void **state)
{
    (void)state;
    world *wd = begin((sl_sse_options){0});
    test_client tc;
    open_stream(wd, &tc, "/mqtt-sse?topic=s/%23");
    size_t len = 60000;
    char *topic = sl_alloc(len + 1);
    memset(topic, 't', len);
    topic[0] = 's';
    topic[1] = '/';
    topic[len - 1] = 'Q';
    topic[len] = '\0';
    deliver(wd, topic, "x");
    test_client_expect(&tc, &wd->ts, "event:mqtt-message\ndata:x\n\n");
    assert_int_equal(test_client_count(&tc, "id:s/ttt"), 1);
    assert_int_equal(test_client_count(&tc, "tQ-1-1\n"), 1);
    sl_free(topic);
    test_client_close(&tc);
    end(wd);
}

static void test_sse_keep_alive_comes_only_in_silence(void **state)
{
    (void)state;
    world *wd = begin((sl_sse_options){.keep_alive_ms = 5000});
    test_client tc;
    open_stream(wd, &tc, "/mqtt-sse?topic=s/a");
    test_server_pass(&wd->ts, 4000);
    deliver(wd, "s/a", "1");
    test_server_pass(&wd->ts, 4000);
    test_client_expect(&tc, &wd->ts, "data:1");
    assert_int_equal(test_client_count(&tc, ": keep-alive\n\n"), 0);
    test_server_pass(&wd->ts, 2000);
    test_client_expect(&tc, &wd->ts, ": keep-alive\n\n");
    test_client_close(&tc);
    end(wd);
}

static void test_sse_stream_ends_after_its_time(void **state)
{
    (void)state;
    world *wd = begin((sl_sse_options){.max_stream_ms = 10000});
    test_client tc;
    open_stream(wd, &tc, "/mqtt-sse?topic=s/a");
    test_server_pass(&wd->ts, 9000);
    assert_int_equal(figures(wd).open, 1);
    test_server_pass(&wd->ts, 2000);
    test_client_expect(&tc, &wd->ts, "\r\n0\r\n\r\n"); // ended, not cut
    assert_int_equal(figures(wd).ended, 1);
    test_client_close(&tc);
    end(wd);
}

static void test_sse_lost_grant_ends_the_stream(void **state)
{
    (void)state;
    world *wd = begin((sl_sse_options){0});
    test_client first, second;
    open_stream(wd, &first, "/mqtt-sse?topic=s/a");
    open_stream(wd, &second, "/mqtt-sse?topic=s/b");
    grant(wd, "s/b");
    test_server_pass(&wd->ts, 2000);
    test_client_expect(&first, &wd->ts, "\r\n0\r\n\r\n");
    assert_int_equal(figures(wd).ended, 1);
    deliver(wd, "s/b", "still");
    test_client_expect(&second, &wd->ts, "still");
    test_client_close(&first);
    test_client_close(&second);
    end(wd);
}

static void test_sse_binary_payload_warns_once(void **state)
{
    (void)state;
    world *wd = begin((sl_sse_options){0});
    test_client tc;
    open_stream(wd, &tc, "/mqtt-sse?topic=s/a");
    deliver_bytes(wd, "s/a", "\xFF\xFE", 2);
    deliver_bytes(wd, "s/a", "\xFF\xFD", 2);
    test_client_expect(&tc, &wd->ts, "data://4=\n");
    test_client_expect(&tc, &wd->ts, "data://0=\n");
    const char *line = strstr(conf_log, "SSE-BINARY-PAYLOAD");
    assert_non_null(line);
    assert_null(strstr(line + 1, "SSE-BINARY-PAYLOAD"));
    test_client_close(&tc);
    end(wd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sse_live_messages_arrive_numbered),
        cmocka_unit_test(test_sse_cached_values_come_first_and_once),
        cmocka_unit_test(test_sse_refusals),
        cmocka_unit_test(test_sse_slow_reader_loses_the_oldest),
        cmocka_unit_test(test_sse_slow_reader_loses_the_newest_if_told),
        cmocka_unit_test(test_sse_large_event_arrives_whole),
        cmocka_unit_test(test_sse_long_topic_has_its_id_in_parts),
        cmocka_unit_test(test_sse_keep_alive_comes_only_in_silence),
        cmocka_unit_test(test_sse_stream_ends_after_its_time),
        cmocka_unit_test(test_sse_lost_grant_ends_the_stream),
        cmocka_unit_test(test_sse_binary_payload_warns_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
