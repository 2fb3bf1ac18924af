/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of gateway/src/rho: paths, selectors, bad items, files, masking.
 */
#include "rho.h"

#include <unistd.h>

#include "base/alloc.h"
#include "conf_log.h"
#include "sl_test.h"

static sl_yaml *tree_of(const char *text)
{
    sl_yaml *tree = NULL;
    char *why = NULL;
    SL_TEST_OK(sl_yaml_parse("test", sl_slice_str(text), &tree, &why));
    return tree;
}

/* The tree as one line of JSON. */
static void assert_tree(const sl_yaml *tree, const char *want)
{
    sl_buf out;
    sl_buf_init(&out, 1 << 16);
    SL_TEST_OK(sl_rho_write_masked(&out, NULL, tree));
    SL_TEST_OK(sl_buf_append_u8(&out, '\0'));
    assert_string_equal((const char *)sl_buf_peek(&out).ptr, want);
    sl_buf_fini(&out);
}

static void check(const char *before, const char *rho, unsigned applied, const char *after)
{
    conf_log_begin();
    sl_yaml *tree = tree_of(before);
    assert_int_equal(sl_rho_apply(tree, "RHO", sl_slice_str(rho), false), applied);
    assert_tree(tree, after);
    sl_yaml_free(&tree);
}

static void test_rho_sets_values_and_makes_parents(void **state)
{
    (void)state;
    check("", "/a/b/c->1; /a/b/d->\"x;y\";/a/e -> true", 3,
          "{\"a\": {\"b\": {\"c\": 1, \"d\": \"x;y\"}, \"e\": true}}");
    check("a: {b: 1}", "/a->{'c': [1, 2]};", 1, "{\"a\": {\"c\": [1, 2]}}");
    check("a: {b: 1}", "/a/b->null", 1, "{\"a\": {\"b\": null}}");
    check("a: text", "/a/b->1", 1, "{\"a\": {\"b\": 1}}");
    check("a: 1", "/b->'it''s; fine'\n;\n", 1, "{\"a\": 1, \"b\": \"it's; fine\"}");
    check("", "/m/x->{\"a\":1,\"b\":\"c\"}", 1, "{\"m\": {\"x\": {\"a\": 1, \"b\": \"c\"}}}");
}

static void test_rho_selects_in_lists(void **state)
{
    (void)state;
    static const char users[] = "u: [{id: a, n: 1}, {id: b, n: 2}]";
    check(users, "/u[id='b']/n->5", 1,
          "{\"u\": [{\"id\": \"a\", \"n\": 1}, {\"id\": \"b\", \"n\": 5}]}");
    check(users, "/u[1]/n->5", 1,
          "{\"u\": [{\"id\": \"a\", \"n\": 5}, {\"id\": \"b\", \"n\": 2}]}");
    check(users, "/u[2]->7", 1, "{\"u\": [{\"id\": \"a\", \"n\": 1}, 7]}");
    check("u: [1]", "/u[2]->2", 1, "{\"u\": [1, 2]}"); // one behind the end appends
}

static void test_rho_bad_items_are_skipped_and_named(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "no arrow",   "relative->1",     "/a->bare word",    "/a->{unclosed",
        "/u[3]/x->1", "/u[id='z']/n->1", "/missing[1]/x->1", "//x->1",
        "/->1",       "/u[0]->1",        "/u[id=z]/n->1",    "/u/x->1",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[128];
        snprintf(text, sizeof text, "%s; /ok->1", bad[i]);
        check("u: [{id: a}]", text, 1, "{\"u\": [{\"id\": \"a\"}], \"ok\": 1}");
        assert_non_null(strstr(conf_log, "CONF-OVERRIDE-SKIPPED"));
    }
}

static void test_rho_secrets_are_not_logged(void **state)
{
    (void)state;
    check("",
          "/m/password->\"topsecret\"; /users->[{'userid':'a','password':'topsecret'}];"
          "/m/url->\"mongodb://u:topsecret@h:1/x\"; /m/password->topsecret",
          3,
          "{\"m\": {\"password\": \"***\", \"url\": \"mongodb://u:***@h:1/x\"}, \"users\": "
          "[{\"userid\": \"a\", \"password\": \"***\"}]}");
    assert_non_null(strstr(conf_log, "mongodb://u:***@h:1/x"));
    assert_null(strstr(conf_log, "topsecret"));
}

static void apply_file(const char *extension, const char *text, const char *want)
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/sl-rho-%d%s", (int)getpid(), extension);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    conf_log_begin();
    sl_yaml *tree = tree_of("a: 1");
    char *why = NULL;
    sl_err err = sl_rho_apply_file(tree, path, &why);
    unlink(path);
    if (want != NULL) {
        SL_TEST_OK(err);
        assert_tree(tree, want);
    } else {
        assert_int_not_equal(err, SL_OK);
        assert_non_null(strstr(why, path));
    }
    sl_free(why);
    sl_yaml_free(&tree);
}

static void test_rho_files_of_all_kinds(void **state)
{
    (void)state;
    apply_file(".conf", "# comment; /x->1\n/b->2;\n  # more\n/c->'d'",
               "{\"a\": 1, \"b\": 2, \"c\": \"d\"}");
    apply_file(".yml", "/b/c: 2\nplain: 3\n", "{\"a\": 1, \"b\": {\"c\": 2}}");
    apply_file(".json", "{\"/b\": [1, {\"x\": null}]}", "{\"a\": 1, \"b\": [1, {\"x\": null}]}");
    apply_file(".jsonc", "{ // note\n\"/b\": \"http://x\" /* more\n */ }",
               "{\"a\": 1, \"b\": \"http://x\"}");
    apply_file(".txt", "", NULL);
    apply_file(".yml", "- a\n", NULL);
    apply_file(".json", "{", NULL);
    sl_yaml *tree = tree_of("");
    char *why = NULL;
    SL_TEST_ERR(sl_rho_apply_file(tree, "/nonexistent.yml", &why), SL_ENOTFOUND);
    assert_non_null(strstr(why, "/nonexistent.yml"));
    sl_free(why);
    sl_yaml_free(&tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rho_sets_values_and_makes_parents),
        cmocka_unit_test(test_rho_selects_in_lists),
        cmocka_unit_test(test_rho_bad_items_are_skipped_and_named),
        cmocka_unit_test(test_rho_secrets_are_not_logged),
        cmocka_unit_test(test_rho_files_of_all_kinds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
