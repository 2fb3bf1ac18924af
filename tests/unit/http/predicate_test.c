/* SPDX-License-Identifier: Apache-2.0
 *
 * http/predicate and http/uri: what is understood, what is refused and how it is said.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "http/predicate.h"
#include "http/uri.h"
#include "sl_test.h"

static bool matches(const char *text, const char *request, const char *user)
{
    static const char *const roles[] = {"r"};
    char word[16];
    const char *why = NULL;
    char *problem = NULL;
    sl_http_req *req = NULL;
    sl_http_method method;
    sl_predicate *pr = NULL;
    size_t len = strcspn(request, " ");
    memcpy(word, request, len);
    word[len] = '\0';
    SL_TEST_OK(sl_http_method_parse(word, &method));
    SL_TEST_OK(sl_http_req_make(method, request + len + 1, &req, &why));
    sl_http_req_set_header(req, "X-Tenant", "acme");
    if (user != NULL)
        sl_http_req_set_user(req, user, roles, 1);
    sl_err err = sl_predicate_parse(sl_slice_str(text), &pr, &problem);
    if (err != SL_OK)
        fail_msg("%s: %s", text, problem);
    bool result = sl_predicate_match(pr, req);
    sl_predicate_free(&pr);
    sl_http_req_unref(&req);
    return result;
}

#define YES(text, request) assert_true(matches(text, request, "ann"))
#define NO(text, request)  assert_false(matches(text, request, "ann"))

static void test_predicate_paths_match_whole_segments(void **state)
{
    (void)state;
    YES("path-prefix('/mqtt')", "GET /mqtt");
    YES("path-prefix('/mqtt')", "GET /mqtt/stats");
    NO("path-prefix('/mqtt')", "GET /mqtt-sse");
    YES("path-prefix('/mqtt/')", "GET /mqtt");
    YES("path-prefix('/')", "GET /anything");
    YES("path-prefix[/a]", "GET /a/b");
    YES("path-prefix(path='/a')", "GET /a/b");
    YES("path-prefix(path={'/x', \"/a\"})", "GET /a/b");
    YES("path('/ping')", "GET /ping");
    NO("path('/ping')", "GET /ping/");
    NO("path('/ping')", "GET /Ping");
    YES("path-suffix('.css')", "GET /ui/a.css");
    NO("path-suffix('.css')", "GET /css");
    YES("path-prefix('/a b')", "GET /a%20b");
}

static void test_predicate_templates_bind_names(void **state)
{
    (void)state;
    YES("path-template('/users/{id}')", "GET /users/bob");
    NO("path-template('/users/{id}')", "GET /users/bob/x");
    NO("path-template('/users/{id}')", "GET /users/");
    YES("path-template('/users/*')", "GET /users/bob/x");
    YES("path-template('/users/{id}') and equals(@user.userid, ${id})", "GET /users/ann");
    NO("path-template('/users/{id}') and equals(@user.userid, ${id})", "GET /users/bob");
    // a name of a branch that failed is unknown, and what is unknown equals nothing
    NO("not path-template('/users/{id}') or equals(${id}, ${id})", "GET /users/ann");
    NO("equals(${id}, ${id})", "GET /users/ann");
}

static void test_predicate_methods_values_and_parameters(void **state)
{
    (void)state;
    YES("method(GET)", "GET /");
    NO("method(GET)", "POST /");
    YES("method(value={GET, POST})", "POST /");
    YES("equals(%m, 'GET')", "GET /");
    YES("equals(%R, '/x')", "GET /x");
    YES("equals(%{q,a}, 'b c')", "GET /x?a=b%20c");
    YES("equals(%{i,X-Tenant}, acme)", "GET /");
    YES("equals(%a, 127.0.0.1)", "GET /");
    YES("equals({%u, 'ann'})", "GET /");
    assert_false(matches("equals(@user.userid, @user.userid)", "GET /", NULL));
    YES("qparams-contain(a, b)", "GET /?b=1&a=2&c=3");
    NO("qparams-contain(a, b)", "GET /?b=1");
    YES("qparams-whitelist(a, b)", "GET /?b=1");
    NO("qparams-whitelist(a, b)", "GET /?b=1&c=1");
    YES("qparams-blacklist(a)", "GET /?b=1");
    NO("qparams-blacklist(a)", "GET /?b=1&a");
    YES("qparams-size(2)", "GET /?b=1&a");
    NO("qparams-size(1)", "GET /?b=1&a");
}

static void test_predicate_and_binds_closer_than_or(void **state)
{
    (void)state;
    YES("true or false and false", "GET /");
    NO("(true or false) and false", "GET /");
    YES("not false and not (false or false)", "GET /");
    YES("not not true", "GET /");
    YES("  path-prefix( '/a' )and method( GET )", "GET /a");
    YES("path('/it\\'s')", "GET /it's");
}

static void refused(const char *text, const char *part)
{
    sl_predicate *pr = NULL;
    char *why = NULL;
    SL_TEST_ERR(sl_predicate_parse(sl_slice_str(text), &pr, &why), SL_EINVAL);
    assert_null(pr);
    if (strstr(why, part) == NULL)
        fail_msg("\"%s\" says \"%s\", not \"%s\"", text, why, part);
    sl_free(why);
}

static void test_predicate_says_what_is_wrong_and_where(void **state)
{
    (void)state;
    refused("", "a condition is missing at column 1");
    refused("path-prefxi('/x')", "unknown predicate 'path-prefxi' at column 1");
    refused("path-prefix('/x'", "')' is missing at column 17");
    refused("path-prefix('/x", "quote is not closed");
    refused("path-prefix", "wrong number of arguments of 'path-prefix'");
    refused("path-prefix(x)", "must begin with '/'");
    refused("method(FETCH)", "unknown method 'FETCH'");
    refused("true and", "a condition is missing at column 9");
    refused("true true", "unexpected text at column 6");
    refused("true)", "unexpected text");
    refused("equals(@user.name, x)", "unknown variable '@user.name'");
    refused("path(%R)", "variables may stand in equals");
    refused("equals(a)", "wrong number of arguments");
    refused("qparams-size(many)", "not a number");
    refused("method({GET, POST)", "'}' is missing");
    refused("((((((((((((((((((((((((((((((((((((((((true", "nested too deeply");
}

static void test_predicate_is_bounded(void **state)
{
    (void)state;
    static char text[SL_PREDICATE_MAX_BYTES + 2];
    sl_predicate *pr = NULL;
    char *why = NULL;
    memset(text, ' ', sizeof(text) - 1);
    SL_TEST_ERR(sl_predicate_parse(sl_slice_str(text), &pr, &why), SL_EINVAL);
    sl_free(why);
    for (size_t i = 0; i + 8 < sizeof(text) - 200; i += 8)
        memcpy(text + i, "true or ", 8);
    memcpy(text + 3800, "true", 5);
    refused(text, "too large");
    SL_TEST_ERR(sl_predicate_parse(sl_slice_of("a\0b", 3), &pr, &why), SL_EINVAL);
    sl_free(why);
}

static void decodes(const char *in, bool plus, const char *want)
{
    sl_buf out;
    const char *why = NULL;
    sl_buf_init(&out, 100);
    SL_TEST_OK(sl_uri_decode(sl_slice_str(in), plus, &out, &why));
    assert_true(sl_slice_equal(sl_buf_peek(&out), sl_slice_str(want)));
    sl_buf_fini(&out);
}

static void test_uri_plus_stays_plus_unless_asked(void **state)
{
    (void)state;
    decodes("a/+/b", false, "a/+/b");
    decodes("a%2F%2b%2Fb", false, "a/+/b");
    decodes("a+b%2B", true, "a b+");
    decodes("%23%20\xc3\xa4%C3%A4", false, "# \xc3\xa4\xc3\xa4");
    decodes("", false, "");
}

static void test_uri_refuses_bad_escapes_and_nul(void **state)
{
    (void)state;
    static const char *const bad[] = {"%", "%1", "%g1", "%1g", "a%", "%00", "%%"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        sl_buf out;
        const char *why = NULL;
        sl_buf_init(&out, 100);
        SL_TEST_ERR(sl_uri_decode(sl_slice_str(bad[i]), false, &out, &why), SL_EINVAL);
        assert_non_null(why);
        sl_buf_fini(&out);
    }
}

static void test_uri_encode_is_undone_by_decode(void **state)
{
    (void)state;
    sl_buf text;
    sl_buf back;
    const char *why = NULL;
    uint8_t all[255];
    for (int i = 0; i < 255; i++)
        all[i] = (uint8_t)(i + 1);
    sl_buf_init(&text, 1000);
    sl_buf_init(&back, 1000);
    SL_TEST_OK(sl_uri_encode(sl_slice_of(all, sizeof(all)), &text));
    SL_TEST_OK(sl_uri_decode(sl_buf_peek(&text), true, &back, &why));
    assert_true(sl_slice_equal(sl_buf_peek(&back), sl_slice_of(all, sizeof(all))));
    sl_buf_fini(&text);
    sl_buf_fini(&back);
}

static void target_is(const char *target, const char *path, const char *first_value)
{
    sl_http_req *req = NULL;
    const char *why = NULL;
    const char *name = NULL;
    const char *value = NULL;
    SL_TEST_OK(sl_http_req_make(SL_HTTP_GET, target, &req, &why));
    assert_string_equal(sl_http_req_path(req), path);
    assert_string_equal(sl_http_req_target(req), target);
    assert_int_equal(sl_http_query_each(req, 0, &name, &value), first_value != NULL);
    if (first_value != NULL)
        assert_string_equal(value, first_value);
    sl_http_req_unref(&req);
}

static void test_request_targets_in_all_their_forms(void **state)
{
    (void)state;
    target_is("/a?x=1&y=2#frag", "/a", "1");
    target_is("http://host:1/a/b?x=%2B", "/a/b", "+");
    target_is("https://host", "/", NULL);
    target_is("HTTP://host?x=1", "/", "1");
    target_is("*", "/", NULL);
    target_is("/?&&x", "/", "");
    target_is("/?topic=a/+/b", "/", "a/+/b");
    target_is("/?topic=a%2F%23", "/", "a/#");
    target_is("/...", "/...", NULL);
}

static void test_request_refuses_ambiguous_paths(void **state)
{
    (void)state;
    static const char *const bad[] = {"",      "a",       "/a%2Fb", "/a%2fb", "/..",
                                      "/a/..", "/a/./b",  "/%2e/b", "/%",     "/a%00",
                                      "?x",    "/?x=%00", "/?x=%"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        sl_http_req *req = NULL;
        const char *why = NULL;
        SL_TEST_ERR(sl_http_req_make(SL_HTTP_GET, bad[i], &req, &why), SL_EINVAL);
        assert_non_null(why);
        assert_null(req);
    }
}

static void test_request_counts_repeated_parameters(void **state)
{
    (void)state;
    sl_http_req *req = NULL;
    const char *why = NULL;
    unsigned count = 9;
    SL_TEST_OK(sl_http_req_make(SL_HTTP_GET, "/?t=1&u=&t=2&%74=3", &req, &why));
    assert_string_equal(sl_http_query_get(req, "t", &count), "1");
    assert_int_equal(count, 3); // %74 is t
    assert_string_equal(sl_http_query_get(req, "u", &count), "");
    assert_int_equal(count, 1);
    assert_null(sl_http_query_get(req, "v", &count));
    assert_int_equal(count, 0);
    sl_http_req_unref(&req);
}

static void test_request_bounds_parameters(void **state)
{
    (void)state;
    static char target[1000] = "/?";
    sl_http_req *req = NULL;
    const char *why = NULL;
    for (size_t i = 0; i < 65; i++)
        memcpy(target + 2 + 4 * i, "a=1&", 5);
    SL_TEST_ERR(sl_http_req_make(SL_HTTP_GET, target, &req, &why), SL_EINVAL);
    assert_string_equal(why, "too many query parameters");
}

static void test_request_cookies(void **state)
{
    (void)state;
    sl_http_req *req = NULL;
    const char *why = NULL;
    sl_slice value;
    SL_TEST_OK(sl_http_req_make(SL_HTTP_GET, "/", &req, &why));
    sl_http_req_set_header(req, "cookie", "xrh_auth=no; a=1;rh_auth=Bearer_x; b");
    sl_http_req_set_header(req, "Cookie", "second=2");
    assert_true(sl_http_req_cookie(req, "rh_auth", &value));
    SL_TEST_SLICE(value, "Bearer_x");
    assert_true(sl_http_req_cookie(req, "second", &value));
    SL_TEST_SLICE(value, "2");
    assert_false(sl_http_req_cookie(req, "b", &value));
    assert_false(sl_http_req_cookie(req, "auth", &value));
    sl_http_req_unref(&req);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_predicate_paths_match_whole_segments),
        cmocka_unit_test(test_predicate_templates_bind_names),
        cmocka_unit_test(test_predicate_methods_values_and_parameters),
        cmocka_unit_test(test_predicate_and_binds_closer_than_or),
        cmocka_unit_test(test_predicate_says_what_is_wrong_and_where),
        cmocka_unit_test(test_predicate_is_bounded),
        cmocka_unit_test(test_uri_plus_stays_plus_unless_asked),
        cmocka_unit_test(test_uri_refuses_bad_escapes_and_nul),
        cmocka_unit_test(test_uri_encode_is_undone_by_decode),
        cmocka_unit_test(test_request_targets_in_all_their_forms),
        cmocka_unit_test(test_request_refuses_ambiguous_paths),
        cmocka_unit_test(test_request_counts_repeated_parameters),
        cmocka_unit_test(test_request_bounds_parameters),
        cmocka_unit_test(test_request_cookies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
