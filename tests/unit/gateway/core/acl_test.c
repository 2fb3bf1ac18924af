/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of gateway/src/acl: the table of case C103, brute force over topics, replacing grants.
 */
#include "acl.h"

#include "filters.h"
#include "sl_test.h"

static const char *const user_roles[] = {"viewer"};

static bool allows(const char *granted, const char *asked)
{
    sl_acl *acl = sl_acl_new();
    const char *const filters[] = {granted};
    sl_acl_load(acl, true, &(sl_conf_grant){"viewer", filters, 1}, 1);
    bool allowed = sl_acl_allows(acl, user_roles, 1, sl_slice_str(asked));
    sl_acl_free(&acl);
    return allowed;
}

static void test_acl_table_of_containment(void **state)
{
    (void)state;
    static const struct {
        const char *granted, *asked;
        bool allowed;
    } rows[] = {
        {"s/+", "s/#", false},    {"s/+", "s/room1", true},   {"s/+", "s/room1/t", false},
        {"s/#", "s", true},       {"s/#", "s/+/x", true},     {"+/b", "+/+", false},
        {"+/+", "+/b", true},     {"#", "$SYS/#", false},     {"#", "a/#", true},
        {"+/x", "$SYS/x", false}, {"$SYS/#", "$SYS/x", true}, {"a/+/#", "a/b", true},
        {"a/+/#", "a", false},    {"a/+/#", "a/+", true},     {"a", "a/", false},
        {"a/+", "a/", true},      {"a/", "a", false},         {"a/b", "a/b", true},
        {"a/b", "A/b", false},    {"+", "a", true},           {"+", "#", false},
        {"a/#", "a/b/#", true},   {"a/b/#", "a/#", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (allows(rows[i].granted, rows[i].asked) != rows[i].allowed)
            fail_msg("grant %s, asked %s: must be %s", rows[i].granted, rows[i].asked,
                     rows[i].allowed ? "allowed" : "denied");
    }
}

static void test_acl_nothing_is_granted_by_default(void **state)
{
    (void)state;
    sl_acl *acl = sl_acl_new();
    assert_false(sl_acl_allows(acl, user_roles, 1, sl_slice_str("a")));
    sl_acl_load(acl, true, &(sl_conf_grant){"viewer", NULL, 0}, 1);
    assert_false(sl_acl_allows(acl, user_roles, 1, sl_slice_str("a")));
    const char *const filters[] = {"#"};
    sl_acl_load(acl, true, &(sl_conf_grant){"admin", filters, 1}, 1);
    assert_false(sl_acl_allows(acl, user_roles, 1, sl_slice_str("a")));
    assert_false(sl_acl_allows(acl, NULL, 0, sl_slice_str("a")));
    sl_acl_load(acl, false, NULL, 0); // switched off: everything
    assert_true(sl_acl_allows(acl, NULL, 0, sl_slice_str("a")));
    sl_acl_free(&acl);
}

static void test_acl_union_of_two_grants_is_not_enough(void **state)
{
    (void)state;
    sl_acl *acl = sl_acl_new();
    const char *const filters[] = {"a", "a/+/#"}; // together they are a/#
    sl_acl_load(acl, true, &(sl_conf_grant){"viewer", filters, 2}, 1);
    assert_false(sl_acl_allows(acl, user_roles, 1, sl_slice_str("a/#")));
    assert_true(sl_acl_allows(acl, user_roles, 1, sl_slice_str("a/x/y")));
    sl_acl_free(&acl);
}

static void test_acl_load_replaces_and_counts_versions(void **state)
{
    (void)state;
    sl_acl *acl = sl_acl_new();
    const char *const first[] = {"a"};
    const char *const second[] = {"b"};
    uint64_t version = sl_acl_version(acl);
    sl_acl_load(acl, true, &(sl_conf_grant){"viewer", first, 1}, 1);
    assert_int_not_equal(sl_acl_version(acl), version);
    sl_acl_load(acl, true, &(sl_conf_grant){"viewer", second, 1}, 1);
    assert_false(sl_acl_allows(acl, user_roles, 1, sl_slice_str("a")));
    assert_true(sl_acl_allows(acl, user_roles, 1, sl_slice_str("b")));
    sl_acl_free(&acl);
}

/* What is allowed must be contained: every topic the asked filter matches, the grant matches. And
 * what is denied must reach further, by some topic of the set. */
static void test_acl_containment_equals_brute_force(void **state)
{
    (void)state;
    static topic_set set;
    all_topics(&set);
    uint64_t seed = 7;
    for (int round = 0; round < 3000; round++) {
        char granted[FILTER_BYTES], asked[FILTER_BYTES];
        random_filter(&seed, granted);
        random_filter(&seed, asked);
        bool contained = true;
        for (size_t i = 0; contained && i < set.count; i++) {
            sl_slice topic = sl_slice_str(set.topic[i]);
            contained = !sl_mqtt_filter_matches(sl_slice_str(asked), topic) ||
                        sl_mqtt_filter_matches(sl_slice_str(granted), topic);
        }
        bool allowed = allows(granted, asked);
        if (allowed && !contained)
            fail_msg("grant %s, asked %s: allowed, and reaches further", granted, asked);
        // "+/#" matches the names that "#" does; by level it does not contain it, and is denied
        if (contained && !allowed && strstr(granted, "+/#") == NULL)
            fail_msg("grant %s, asked %s: denied, and is contained", granted, asked);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_acl_table_of_containment),
        cmocka_unit_test(test_acl_nothing_is_granted_by_default),
        cmocka_unit_test(test_acl_union_of_two_grants_is_not_enough),
        cmocka_unit_test(test_acl_load_replaces_and_counts_versions),
        cmocka_unit_test(test_acl_containment_equals_brute_force),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
