/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of gateway/src/subs against a broker made of two functions that note what was asked.
 */
#include "subs.h"

#include <stdio.h>

#include "base/alloc.h"
#include "sl_test.h"

/* What was sent, in order: "+filter:qos:retainHandling " and "-filter "; and the open requests. */
typedef struct peer {
    sl_subs *sb;
    char sent[1024];
    uint16_t next_id;
    uint16_t last_subscribe, last_unsubscribe;
    uint32_t last_count;
    bool away; /* answers SL_EAGAIN */
    unsigned refused;
} peer;

static void note(peer *pr, const char *sign, sl_slice filter, const char *tail)
{
    size_t len = strlen(pr->sent);
    snprintf(pr->sent + len, sizeof pr->sent - len, "%s%.*s%s ", sign, (int)filter.len,
             (const char *)filter.ptr, tail);
}

static sl_err on_subscribe(void *arg, const sl_mqtt_sub_option *options, uint32_t count,
                           uint16_t *packet_id)
{
    peer *pr = arg;
    if (pr->away)
        return SL_EAGAIN;
    for (uint32_t i = 0; i < count; i++) {
        char tail[16];
        snprintf(tail, sizeof tail, ":%u:%u", options[i].qos, options[i].retain_handling);
        note(pr, "+", options[i].filter, tail);
    }
    *packet_id = pr->last_subscribe = ++pr->next_id;
    pr->last_count = count;
    return SL_OK;
}

static sl_err on_unsubscribe(void *arg, const sl_slice *filters, uint32_t count,
                             uint16_t *packet_id)
{
    peer *pr = arg;
    for (uint32_t i = 0; i < count; i++)
        note(pr, "-", filters[i], "");
    *packet_id = pr->last_unsubscribe = ++pr->next_id;
    return SL_OK;
}

static void on_refused(void *arg, sl_slice filter, uint8_t reason)
{
    (void)filter;
    (void)reason;
    ((peer *)arg)->refused++;
}

static peer *begin(void)
{
    static const sl_subs_ops ops = {on_subscribe, on_unsubscribe, on_refused};
    peer *pr = sl_calloc(1, sizeof *pr);
    pr->sb = sl_subs_new(&ops, pr);
    return pr;
}

static void end(peer *pr)
{
    sl_subs_free(&pr->sb);
    sl_free(pr);
}

/* "a:1 b:0": the wanted cover. */
static void want(peer *pr, const char *list)
{
    char text[256];
    snprintf(text, sizeof text, "%s", list);
    sl_cover_item items[16];
    size_t count = 0;
    for (char *at = text; *at != '\0';) {
        size_t len = strcspn(at, ":");
        items[count++] = (sl_cover_item){
            .filter = sl_slice_of(at, len), .qos = (uint8_t)(at[len + 1] - '0'), .in_cover = true};
        at += len + 2;
        at += strspn(at, " ");
    }
    sl_subs_want(pr->sb, items, count);
}

static void assert_sent(peer *pr, const char *expected)
{
    assert_string_equal(pr->sent, expected);
    pr->sent[0] = '\0';
}

static void grant(peer *pr)
{
    uint8_t reasons[64] = {0};
    sl_subs_on_suback(pr->sb, pr->last_subscribe, false, sl_slice_of(reasons, pr->last_count));
}

static void unsubscribed(peer *pr)
{
    sl_subs_on_suback(pr->sb, pr->last_unsubscribe, true, (sl_slice){0});
}

static sl_subs_counts counts(peer *pr)
{
    sl_subs_counts out;
    sl_subs_count(pr->sb, &out);
    return out;
}

static void test_subs_first_connection_subscribes_all(void **state)
{
    (void)state;
    peer *pr = begin();
    want(pr, "a:1");
    assert_sent(pr, ""); // not connected
    sl_subs_on_connected(pr->sb, false);
    assert_sent(pr, "+a:1:0 ");
    assert_int_equal(counts(pr).held, 0);
    grant(pr);
    assert_int_equal(counts(pr).held, 1);
    assert_sent(pr, "");
    end(pr);
}

static void test_subs_process_start_subscribes_in_a_kept_session_too(void **state)
{
    (void)state;
    peer *pr = begin();
    want(pr, "a:1");
    sl_subs_on_connected(pr->sb, true);
    assert_sent(pr, "+a:1:1 "); // retained only if the subscription is new
    end(pr);
}

static void test_subs_reconnect_with_session_sends_nothing(void **state)
{
    (void)state;
    peer *pr = begin();
    want(pr, "a:1");
    sl_subs_on_connected(pr->sb, false);
    grant(pr);
    assert_sent(pr, "+a:1:0 ");
    sl_subs_on_down(pr->sb);
    sl_subs_on_connected(pr->sb, true);
    assert_sent(pr, "");
    assert_int_equal(counts(pr).held, 1);
    end(pr);
}

static void test_subs_lost_session_subscribes_all_again(void **state)
{
    (void)state;
    peer *pr = begin();
    want(pr, "a:1");
    sl_subs_on_connected(pr->sb, false);
    grant(pr);
    sl_subs_on_down(pr->sb);
    pr->sent[0] = '\0';
    sl_subs_on_connected(pr->sb, false);
    assert_int_equal(counts(pr).held, 0);
    assert_sent(pr, "+a:1:0 ");
    end(pr);
}

static void test_subs_unanswered_request_is_asked_again(void **state)
{
    (void)state;
    peer *pr = begin();
    want(pr, "a:1");
    sl_subs_on_connected(pr->sb, false);
    sl_subs_on_down(pr->sb); // no SUBACK came
    pr->sent[0] = '\0';
    sl_subs_on_connected(pr->sb, true);
    assert_sent(pr, "+a:1:1 ");
    end(pr);
}

static void test_subs_narrow_is_granted_before_wide_is_dropped(void **state)
{
    (void)state;
    peer *pr = begin();
    want(pr, "s/#:1");
    sl_subs_on_connected(pr->sb, false);
    grant(pr);
    pr->sent[0] = '\0';
    want(pr, "s/t:1");
    assert_sent(pr, "+s/t:1:2 "); // its retained message has been sent already
    grant(pr);
    assert_sent(pr, "-s/# ");
    unsubscribed(pr);
    assert_int_equal(counts(pr).known, 1);
    end(pr);
}

static void test_subs_wide_is_granted_before_narrow_is_dropped(void **state)
{
    (void)state;
    peer *pr = begin();
    want(pr, "s/t:1");
    sl_subs_on_connected(pr->sb, false);
    grant(pr);
    pr->sent[0] = '\0';
    want(pr, "s/#:1");
    assert_sent(pr, "+s/#:1:0 ");
    grant(pr);
    assert_sent(pr, "-s/t ");
    end(pr);
}

static void test_subs_refused_filter_keeps_what_brings_its_messages(void **state)
{
    (void)state;
    peer *pr = begin();
    want(pr, "s/#:1 x:1");
    sl_subs_on_connected(pr->sb, false);
    grant(pr);
    want(pr, "s/t:1");
    const uint8_t reason = 0x87;
    pr->sent[0] = '\0';
    sl_subs_on_suback(pr->sb, pr->last_subscribe, false, sl_slice_of(&reason, 1));
    assert_sent(pr, "-x "); // s/# stays: without it s/t would have nothing
    end(pr);
}

static void test_subs_filter_wanted_again_while_leaving(void **state)
{
    (void)state;
    peer *pr = begin();
    want(pr, "a:1");
    sl_subs_on_connected(pr->sb, false);
    grant(pr);
    want(pr, "");
    want(pr, "a:1");
    pr->sent[0] = '\0';
    assert_int_equal(counts(pr).held, 0);
    unsubscribed(pr);
    assert_sent(pr, "+a:1:0 ");
    grant(pr);
    assert_int_equal(counts(pr).held, 1);
    end(pr);
}

static void test_subs_refusal_is_seen_and_retried(void **state)
{
    (void)state;
    peer *pr = begin();
    want(pr, "a:1 b:1");
    sl_subs_on_connected(pr->sb, false);
    assert_int_equal(pr->last_count, 2);
    const uint8_t reasons[] = {0x87, 0x01};
    sl_subs_on_suback(pr->sb, pr->last_subscribe, false, sl_slice_of(reasons, 2));
    assert_int_equal(pr->refused, 1);
    assert_int_equal(counts(pr).refused, 1);
    assert_int_equal(counts(pr).held, 1);
    pr->sent[0] = '\0';
    sl_subs_retry(pr->sb);
    assert_int_equal(pr->last_count, 1);
    grant(pr);
    assert_int_equal(counts(pr).held, 2);
    assert_int_equal(counts(pr).refused, 0);
    end(pr);
}

static void test_subs_higher_qos_is_asked_for_lower_is_not(void **state)
{
    (void)state;
    peer *pr = begin();
    want(pr, "a:1");
    sl_subs_on_connected(pr->sb, false);
    grant(pr);
    pr->sent[0] = '\0';
    want(pr, "a:2");
    assert_sent(pr, "+a:2:2 ");
    grant(pr);
    want(pr, "a:0");
    assert_sent(pr, "");
    end(pr);
}

static void test_subs_filters_of_an_earlier_process_are_unsubscribed(void **state)
{
    (void)state;
    peer *pr = begin();
    sl_subs_remember(pr->sb, sl_slice_str("x/#"));
    sl_subs_remember(pr->sb, sl_slice_str("y/#"));
    want(pr, "y/#:1 z/#:1");
    sl_subs_on_connected(pr->sb, true);
    assert_int_equal(pr->last_count, 2); // y/# and z/#
    assert_null(strstr(pr->sent, "-x/# "));
    grant(pr);
    assert_non_null(strstr(pr->sent, "-x/# "));
    unsubscribed(pr);
    assert_int_equal(counts(pr).known, 2);
    end(pr);
}

static void test_subs_remembered_filters_mean_nothing_in_a_new_session(void **state)
{
    (void)state;
    peer *pr = begin();
    sl_subs_remember(pr->sb, sl_slice_str("x/#"));
    want(pr, "y/#:1");
    sl_subs_on_connected(pr->sb, false);
    assert_sent(pr, "+y/#:1:0 ");
    assert_int_equal(counts(pr).known, 1);
    end(pr);
}

static void test_subs_busy_client_is_asked_at_the_next_answer(void **state)
{
    (void)state;
    peer *pr = begin();
    want(pr, "a:1");
    sl_subs_on_connected(pr->sb, false);
    pr->away = true;
    want(pr, "a:1 b:1");
    pr->away = false;
    pr->sent[0] = '\0';
    pr->last_count = 1;
    grant(pr);
    assert_sent(pr, "+b:1:0 ");
    end(pr);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_subs_first_connection_subscribes_all),
        cmocka_unit_test(test_subs_process_start_subscribes_in_a_kept_session_too),
        cmocka_unit_test(test_subs_reconnect_with_session_sends_nothing),
        cmocka_unit_test(test_subs_lost_session_subscribes_all_again),
        cmocka_unit_test(test_subs_unanswered_request_is_asked_again),
        cmocka_unit_test(test_subs_narrow_is_granted_before_wide_is_dropped),
        cmocka_unit_test(test_subs_wide_is_granted_before_narrow_is_dropped),
        cmocka_unit_test(test_subs_refused_filter_keeps_what_brings_its_messages),
        cmocka_unit_test(test_subs_filter_wanted_again_while_leaving),
        cmocka_unit_test(test_subs_refusal_is_seen_and_retried),
        cmocka_unit_test(test_subs_higher_qos_is_asked_for_lower_is_not),
        cmocka_unit_test(test_subs_filters_of_an_earlier_process_are_unsubscribed),
        cmocka_unit_test(test_subs_remembered_filters_mean_nothing_in_a_new_session),
        cmocka_unit_test(test_subs_busy_client_is_asked_at_the_next_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
