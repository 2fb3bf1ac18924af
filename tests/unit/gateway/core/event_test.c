/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of gateway/src/event: what a standard reader of event streams gets out of what is written.
 */
#include "event.h"

#include "base/alloc.h"
#include "filters.h"
#include "sl_test.h"

/* The reader of the HTML standard: fields of one event; data lines joined by LF. */
typedef struct parsed {
    unsigned events; /* dispatched */
    char id[256];
    char event[64];
    uint8_t data[4096];
    size_t data_len;
    bool has_data;
} parsed;

static void take_line(parsed *ps, const uint8_t *line, size_t len)
{
    if (len == 0) {
        ps->events += ps->has_data;
        return;
    }
    const uint8_t *colon = memchr(line, ':', len);
    if (colon == line)
        return; // comment
    size_t name = colon != NULL ? (size_t)(colon - line) : len;
    const uint8_t *value = colon != NULL ? colon + 1 : line + len;
    size_t value_len = colon != NULL ? len - name - 1 : 0;
    if (value_len > 0 && *value == ' ') {
        value++;
        value_len--;
    }
    if (name == 4 && memcmp(line, "data", 4) == 0) {
        if (ps->has_data)
            ps->data[ps->data_len++] = '\n';
        memcpy(ps->data + ps->data_len, value, value_len);
        ps->data_len += value_len;
        ps->has_data = true;
    } else if (name == 2 && memcmp(line, "id", 2) == 0) {
        snprintf(ps->id, sizeof ps->id, "%.*s", (int)value_len, (const char *)value);
    } else if (name == 5 && memcmp(line, "event", 5) == 0) {
        snprintf(ps->event, sizeof ps->event, "%.*s", (int)value_len, (const char *)value);
    }
}

static void parse(const uint8_t *text, size_t len, parsed *ps)
{
    memset(ps, 0, sizeof *ps);
    size_t from = 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] != '\r' && text[i] != '\n')
            continue;
        take_line(ps, text + from, i - from);
        if (text[i] == '\r' && i + 1 < len && text[i + 1] == '\n')
            i++;
        from = i + 1;
    }
    assert_int_equal(from, len); // an event ends with its line
}

static sl_message *make(const char *topic, const void *payload, size_t len)
{
    sl_rbuf *rb = sl_rbuf_new(len + 1);
    memcpy(rb->data, payload, len);
    sl_mqtt_publish pb = {
        .topic = sl_slice_str(topic), .payload = sl_slice_of(rb->data, len), .qos = 1};
    sl_message *msg = sl_message_new(&pb, rb, 1234567890123ll * 1000000);
    sl_rbuf_unref(&rb);
    return msg;
}

/* As the connection writes it: id, its number, the rest. */
static void render(sl_message *msg, bool envelope, bool replayed, sl_buf *out)
{
    sl_event ev;
    SL_TEST_OK(sl_event_of(msg, envelope, replayed, &ev));
    SL_TEST_OK(sl_buf_append(out, ev.rb->data + ev.id_off, ev.id_len));
    SL_TEST_OK(sl_buf_append_str(out, "1\n"));
    SL_TEST_OK(sl_buf_append(out, ev.rb->data + ev.body_off, ev.body_len));
    sl_rbuf_unref(&ev.rb);
}

static void assert_reads(const char *topic, const void *payload, size_t len, const void *want,
                         size_t want_len)
{
    sl_message *msg = make(topic, payload, len);
    sl_buf out;
    sl_buf_init(&out, 1 << 20);
    render(msg, false, false, &out);
    parsed ps;
    parse(sl_buf_peek(&out).ptr, sl_buf_peek(&out).len, &ps);
    assert_int_equal(ps.events, 1);
    assert_string_equal(ps.event, "mqtt-message");
    assert_int_equal(ps.data_len, want_len);
    assert_memory_equal(ps.data, want, want_len);
    sl_buf_fini(&out);
    sl_message_unref(&msg);
}

#define READS(payload, want)                                                                       \
    assert_reads("a/b", payload, sizeof(payload) - 1, want, sizeof(want) - 1)

static void test_event_payload_cannot_forge_events(void **state)
{
    (void)state;
    READS("plain", "plain");
    READS("", "");
    READS("\n", "\n");
    READS("a\nb", "a\nb");
    READS("a\rb", "a\nb");
    READS("a\r\nb", "a\nb");
    READS("a\r\n\r\nb", "a\n\nb");
    READS("x\n\nevent: mqtt-gap\ndata: {}", "x\n\nevent: mqtt-gap\ndata: {}");
    READS("x\r\rid: 9\r\r", "x\n\nid: 9\n\n");
    READS(" leading blank", " leading blank");
    READS("  two\n three", "  two\n three");
    READS(": no comment", ": no comment");
    READS("u\xE2\x80\xA8v", "u\xE2\x80\xA8v"); // U+2028 ends no line here
    READS("nul\0in", "nul\0in");
}

static void test_event_bytes_are_base64(void **state)
{
    (void)state;
    READS("\xFF\xFE\n", "//4K");
}

static void test_event_id_holds_topic_time_and_number(void **state)
{
    (void)state;
    sl_message *msg = make("a/\xC3\xA9 b", "x", 1);
    sl_buf out;
    sl_buf_init(&out, 4096);
    render(msg, false, false, &out);
    parsed ps;
    parse(sl_buf_peek(&out).ptr, sl_buf_peek(&out).len, &ps);
    assert_string_equal(ps.id, "a/\xC3\xA9 b-1234567890123-1");
    sl_buf_fini(&out);
    sl_message_unref(&msg);
}

static void test_event_topic_with_line_ends_is_encoded_in_the_id(void **state)
{
    (void)state;
    sl_message *msg = make("a\r\nid: x\ndata: y", "p", 1);
    sl_buf out;
    sl_buf_init(&out, 4096);
    render(msg, false, false, &out);
    parsed ps;
    parse(sl_buf_peek(&out).ptr, sl_buf_peek(&out).len, &ps);
    assert_string_equal(ps.id, "a%0D%0Aid: x%0Adata: y-1234567890123-1");
    assert_int_equal(ps.data_len, 1);
    sl_buf_fini(&out);
    sl_message_unref(&msg);
}

static void test_event_envelope_says_whether_it_was_replayed(void **state)
{
    (void)state;
    sl_message *msg = make("a", "x\ny", 3);
    const char *const ends[] = {"\"replay\":false}", "\"replay\":true}"};
    for (int i = 0; i < 2; i++) {
        sl_buf out;
        sl_buf_init(&out, 4096);
        render(msg, true, i == 1, &out);
        parsed ps;
        parse(sl_buf_peek(&out).ptr, sl_buf_peek(&out).len, &ps);
        size_t len = strlen(ends[i]);
        assert_memory_equal(ps.data + ps.data_len - len, ends[i], len);
        assert_non_null(memmem(ps.data, ps.data_len, "x\\ny", 4));
        sl_buf_fini(&out);
    }
    sl_message_unref(&msg);
}

static void test_event_is_made_once_and_shared(void **state)
{
    (void)state;
    sl_message *msg = make("a", "x", 1);
    sl_event first, second;
    SL_TEST_OK(sl_event_of(msg, false, false, &first));
    SL_TEST_OK(sl_event_of(msg, false, true, &second));
    assert_ptr_equal(first.rb, second.rb); // a bare payload does not tell a replay
    sl_rbuf_unref(&first.rb);
    sl_rbuf_unref(&second.rb);
    sl_message_unref(&msg);
}

/* Random texts of the bytes that matter: the reader gets them with line ends made LF. */
static void test_event_random_texts_come_through(void **state)
{
    (void)state;
    static const char bytes[] = "\r\n :adt";
    uint64_t seed = 3;
    for (int round = 0; round < 5000; round++) {
        char payload[24], want[24];
        size_t len = random_below(&seed, sizeof payload), want_len = 0;
        for (size_t i = 0; i < len; i++)
            payload[i] = bytes[random_below(&seed, sizeof bytes - 1)];
        for (size_t i = 0; i < len; i++) {
            if (payload[i] == '\n' && i > 0 && payload[i - 1] == '\r')
                continue;
            want[want_len++] = payload[i] == '\r' ? '\n' : payload[i];
        }
        assert_reads("t", payload, len, want, want_len);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_event_payload_cannot_forge_events),
        cmocka_unit_test(test_event_bytes_are_base64),
        cmocka_unit_test(test_event_id_holds_topic_time_and_number),
        cmocka_unit_test(test_event_topic_with_line_ends_is_encoded_in_the_id),
        cmocka_unit_test(test_event_envelope_says_whether_it_was_replayed),
        cmocka_unit_test(test_event_is_made_once_and_shared),
        cmocka_unit_test(test_event_random_texts_come_through),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
