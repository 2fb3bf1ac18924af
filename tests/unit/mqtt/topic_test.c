/* SPDX-License-Identifier: Apache-2.0
 *
 * Topic names and filters: validity, matching and containment, compared with naive models over all
 * small topics; share names (cases C12, C38, C89, C103).
 */
#include <stdio.h>

#include "sl_test.h"

#include "mqtt/topic.h"

static sl_err check_topic(const char *text)
{
    return sl_mqtt_topic_check(sl_slice_str(text), 0, NULL);
}

static sl_err check_filter(const char *text)
{
    return sl_mqtt_filter_check(sl_slice_str(text), 0, NULL);
}

static bool matches(const char *filter, const char *topic)
{
    return sl_mqtt_filter_matches(sl_slice_str(filter), sl_slice_str(topic));
}

static bool covers(const char *wide, const char *narrow)
{
    return sl_mqtt_filter_covers(sl_slice_str(wide), sl_slice_str(narrow));
}

static void test_topic_check_accepts_names_and_refuses_wildcards(void **state)
{
    (void)state;
    const char *good[] = {"a", "/", "//", "a/b", "$SYS/x", "a/ b", "é", "\xEF\xBB\xBF/a", "\x01"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        SL_TEST_OK(check_topic(good[i]));
    const char *bad[] = {"",    "+",           "#",        "a/+",         "a#",
                         "a+b", "abcdefghij#", "\xC0\x80", "\xED\xA0\x80"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        SL_TEST_ERR(check_topic(bad[i]), SL_EINVAL);
    SL_TEST_ERR(sl_mqtt_topic_check(sl_slice_of("a\0b", 3), 0, NULL), SL_EINVAL);
}

static void test_topic_check_limits_length_and_levels(void **state)
{
    (void)state;
    static char text[65537];
    memset(text, 'x', sizeof(text));
    const char *why = NULL;
    SL_TEST_OK(sl_mqtt_topic_check(sl_slice_of(text, 65535), 0, &why));
    SL_TEST_ERR(sl_mqtt_topic_check(sl_slice_of(text, 65536), 0, &why), SL_EINVAL);
    assert_non_null(strstr(why, "65535"));
    memcpy(text, "$share/g/", 9);
    sl_mqtt_share share;
    SL_TEST_OK(sl_mqtt_share_parse(sl_slice_of(text, 65535), 0, &share, &why));
    SL_TEST_ERR(sl_mqtt_share_parse(sl_slice_of(text, 65536), 0, &share, &why), SL_EINVAL);
    SL_TEST_OK(sl_mqtt_topic_check(sl_slice_str("a/b/c"), 3, &why));
    SL_TEST_ERR(sl_mqtt_topic_check(sl_slice_str("a/b/c/"), 3, &why), SL_ELIMIT);
    SL_TEST_ERR(sl_mqtt_filter_check(sl_slice_str("+/+/+/#"), 3, &why), SL_ELIMIT);
}

static void test_filter_check_wants_wildcards_alone_in_their_level(void **state)
{
    (void)state;
    const char *good[] = {"#", "+", "a/#", "+/+/#", "a/+/b", "/#", "/+", "+/", "a", "$SYS/#", "//"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        SL_TEST_OK(check_filter(good[i]));
    const char *bad[] = {"",   "a#", "#/", "#/a",  "a/#/b", "+a",           "a+",
                         "++", "##", "+#", "a/b+", "a/#b",  "abcdefghi/x+y"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        SL_TEST_ERR(check_filter(bad[i]), SL_EINVAL);
    assert_true(sl_mqtt_filter_has_wildcard(sl_slice_str("a/+")));
    assert_true(sl_mqtt_filter_has_wildcard(sl_slice_str("#")));
    assert_false(sl_mqtt_filter_has_wildcard(sl_slice_str("a/b")));
    assert_false(sl_mqtt_filter_has_wildcard(sl_slice_of(NULL, 0)));
}

static void test_filter_matches_the_examples_of_the_standard(void **state)
{
    (void)state;
    assert_true(matches("sport/tennis/player1/#", "sport/tennis/player1"));
    assert_true(matches("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon"));
    assert_true(matches("sport/#", "sport"));
    assert_true(matches("sport/tennis/+", "sport/tennis/player1"));
    assert_false(matches("sport/tennis/+", "sport/tennis/player1/ranking"));
    assert_false(matches("sport/+", "sport"));
    assert_true(matches("sport/+", "sport/"));
    assert_true(matches("+/+", "/finance"));
    assert_true(matches("/+", "/finance"));
    assert_false(matches("+", "/finance"));
    assert_false(matches("#", "$SYS/x"));
    assert_false(matches("+/monitor/Clients", "$SYS/monitor/Clients"));
    assert_true(matches("$SYS/#", "$SYS/x"));
    assert_true(matches("$SYS/monitor/+", "$SYS/monitor/Clients"));
    assert_true(matches("a/+", "a/$b"));
    assert_true(matches("#", "a/$b"));
    assert_false(matches("a", "A"));
    assert_false(matches("a/b", "a/b/"));
}

/* ---- all small topics and filters ---- */

/* Texts of one to `max` levels over the given words, into out; returns how many. */
static size_t all_texts(const char *const *words, size_t word_count, unsigned max, char out[][40],
                        size_t room)
{
    size_t count = 0;
    for (unsigned levels = 1; levels <= max; levels++) {
        size_t combos = 1;
        for (unsigned i = 0; i < levels; i++)
            combos *= word_count;
        for (size_t n = 0; n < combos; n++) {
            size_t rest = n, len = 0;
            assert_true(count < room);
            for (unsigned i = 0; i < levels; i++) {
                int put = snprintf(out[count] + len, 40 - len, "%s%s", i > 0 ? "/" : "",
                                   words[rest % word_count]);
                len += (size_t)put;
                rest /= word_count;
            }
            count++;
        }
    }
    return count;
}

/* Matching written once more, by recursion on the text. */
static bool naive_match(const char *filter, const char *topic)
{
    if (strcmp(filter, "#") == 0)
        return true;
    const char *fs = strchr(filter, '/');
    const char *ts = strchr(topic, '/');
    size_t flen = fs != NULL ? (size_t)(fs - filter) : strlen(filter);
    size_t tlen = ts != NULL ? (size_t)(ts - topic) : strlen(topic);
    bool same = flen == tlen && memcmp(filter, topic, flen) == 0;
    if (!same && !(flen == 1 && filter[0] == '+'))
        return false;
    if (fs == NULL)
        return ts == NULL;
    if (ts == NULL)
        return strcmp(fs, "/#") == 0;
    return naive_match(fs + 1, ts + 1);
}

static bool naive_match_top(const char *filter, const char *topic)
{
    if (topic[0] == '$' && (filter[0] == '+' || filter[0] == '#'))
        return false;
    return naive_match(filter, topic);
}

#define ROOM 4000
static char topics[ROOM][40];
static char filters[ROOM][40];
static size_t topic_count, filter_count;

static void make_texts(unsigned topic_levels, unsigned filter_levels)
{
    // "z" is in no filter: it stands for all words that a filter does not name.
    static const char *const topic_words[] = {"a", "b", "", "$s", "z"};
    static const char *const filter_words[] = {"a", "b", "", "$s", "+", "#"};
    topic_count = all_texts(topic_words, 5, topic_levels, topics, ROOM);
    size_t all = all_texts(filter_words, 6, filter_levels, filters, ROOM);
    filter_count = 0;
    for (size_t i = 0; i < all; i++) {
        if (check_filter(filters[i]) != SL_OK)
            continue;
        if (filter_count != i)
            memcpy(filters[filter_count], filters[i], sizeof(filters[i]));
        filter_count++;
    }
}

static void test_filter_matches_like_the_naive_model_on_all_small_topics(void **state)
{
    (void)state;
    make_texts(4, 3);
    for (size_t f = 0; f < filter_count; f++) {
        for (size_t t = 0; t < topic_count; t++) {
            if (topics[t][0] == 0)
                continue;
            if (matches(filters[f], topics[t]) != naive_match_top(filters[f], topics[t]))
                fail_msg("filter '%s' topic '%s'", filters[f], topics[t]);
        }
    }
}

/* Wide covers narrow iff every topic that narrow matches is matched by wide. Topics have one level
 * more than filters, so '#' is told from any number of '+'. */
static void test_filter_covers_exactly_the_subsets_of_all_small_topics(void **state)
{
    (void)state;
    make_texts(4, 3);
    unsigned covered = 0;
    for (size_t w = 0; w < filter_count; w++) {
        for (size_t n = 0; n < filter_count; n++) {
            bool subset = true, any = false;
            for (size_t t = 0; t < topic_count && subset; t++) {
                if (topics[t][0] == 0 || !naive_match_top(filters[n], topics[t]))
                    continue;
                any = true;
                subset = naive_match_top(filters[w], topics[t]);
            }
            assert_true(any || !subset || filters[n][0] == 0);
            if (covers(filters[w], filters[n]) != subset)
                fail_msg("wide '%s' narrow '%s': want %d", filters[w], filters[n], subset);
            covered += subset;
        }
    }
    assert_true(covered > filter_count);
}

static void test_filter_covers_by_the_rules_that_are_easily_missed(void **state)
{
    (void)state;
    assert_true(covers("a/#", "a"));
    assert_true(covers("a/#", "a/+/#"));
    assert_false(covers("a/+/#", "a/#"));
    assert_false(covers("+", "#"));
    assert_true(covers("+/#", "#"));
    assert_true(covers("#", "+/#"));
    assert_false(covers("#", "$SYS/#"));
    assert_false(covers("+/x", "$SYS/x"));
    assert_true(covers("$SYS/#", "$SYS/a/+"));
    assert_true(covers("sensors/+", "sensors/room1"));
    assert_false(covers("sensors/+", "sensors/#"));
    assert_false(covers("sensors/+", "sensors"));
    assert_false(covers("a", "a/"));
    assert_true(covers("a/+", "a/"));
    assert_false(covers("a/b", "a/+"));
    assert_true(covers("a/b", "a/b"));
}

static void test_share_parse_takes_name_and_filter_apart(void **state)
{
    (void)state;
    sl_mqtt_share share;
    SL_TEST_OK(sl_mqtt_share_parse(sl_slice_str("$share/g/a/+/#"), 0, &share, NULL));
    assert_true(share.is_shared);
    SL_TEST_SLICE(share.name, "g");
    SL_TEST_SLICE(share.filter, "a/+/#");
    SL_TEST_OK(sl_mqtt_share_parse(sl_slice_str("$share/g//"), 0, &share, NULL));
    SL_TEST_SLICE(share.filter, "/");
    SL_TEST_OK(sl_mqtt_share_parse(sl_slice_str("a/b"), 0, &share, NULL));
    assert_false(share.is_shared);
    assert_int_equal(share.name.len, 0);
    SL_TEST_SLICE(share.filter, "a/b");
    SL_TEST_OK(sl_mqtt_share_parse(sl_slice_str("$share"), 0, &share, NULL));
    assert_false(share.is_shared);
    SL_TEST_OK(sl_mqtt_share_parse(sl_slice_str("$shared/g/t"), 0, &share, NULL));
    assert_false(share.is_shared);
}

/* C38 */
static void test_share_parse_refuses_bad_names_and_filters(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *why;
    } rows[] = {
        {"$share/", "name is empty"},        {"$share//t", "name is empty"},
        {"$share/g", "no topic filter"},     {"$share/g/", "no topic filter"},
        {"$share/g+/t", "wildcard"},         {"$share/+/t", "wildcard"},
        {"$share/#/t", "wildcard"},          {"$share/g/a#", "[MQTT-4.7.1-1]"},
        {"$share/g/a/+b", "[MQTT-4.7.1-2]"}, {"$share/\xC0\x80/t", "UTF-8"},
        {"$share/g/\xFF", "UTF-8"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        sl_mqtt_share share;
        const char *why = "";
        SL_TEST_ERR(sl_mqtt_share_parse(sl_slice_str(rows[i].text), 0, &share, &why), SL_EINVAL);
        if (strstr(why, rows[i].why) == NULL)
            fail_msg("'%s' said '%s'", rows[i].text, why);
    }
    sl_mqtt_share share;
    SL_TEST_OK(sl_mqtt_share_parse(sl_slice_str("$share/g/a/b"), 2, &share, NULL));
    SL_TEST_ERR(sl_mqtt_share_parse(sl_slice_str("$share/g/a/b/c"), 2, &share, NULL), SL_ELIMIT);
}

static void test_levels_are_walked_with_the_empty_ones(void **state)
{
    (void)state;
    sl_slice level;
    size_t pos = 0;
    sl_slice topic = sl_slice_str("/a//b/");
    static const char *const want[] = {"", "a", "", "b", ""};
    for (size_t i = 0; i < 5; i++) {
        assert_true(sl_mqtt_level_next(topic, &pos, &level));
        assert_true(sl_slice_equal(level, sl_slice_str(want[i])));
    }
    assert_false(sl_mqtt_level_next(topic, &pos, &level));
    assert_int_equal(sl_mqtt_level_count(topic), 5);
    pos = 0;
    assert_true(sl_mqtt_level_next(sl_slice_of(NULL, 0), &pos, &level));
    assert_int_equal(level.len, 0);
    assert_false(sl_mqtt_level_next(sl_slice_of(NULL, 0), &pos, &level));
    assert_int_equal(sl_mqtt_level_count(sl_slice_of(NULL, 0)), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_topic_check_accepts_names_and_refuses_wildcards),
        cmocka_unit_test(test_topic_check_limits_length_and_levels),
        cmocka_unit_test(test_filter_check_wants_wildcards_alone_in_their_level),
        cmocka_unit_test(test_filter_matches_the_examples_of_the_standard),
        cmocka_unit_test(test_filter_matches_like_the_naive_model_on_all_small_topics),
        cmocka_unit_test(test_filter_covers_exactly_the_subsets_of_all_small_topics),
        cmocka_unit_test(test_filter_covers_by_the_rules_that_are_easily_missed),
        cmocka_unit_test(test_share_parse_takes_name_and_filter_apart),
        cmocka_unit_test(test_share_parse_refuses_bad_names_and_filters),
        cmocka_unit_test(test_levels_are_walked_with_the_empty_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
