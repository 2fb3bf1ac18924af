/* SPDX-License-Identifier: Apache-2.0
 *
 * http/auth: logins, tokens, cookie, guard and rights, through a server on a loop turned by hand
 * and a pool of one thread.
 */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "http/auth.h"
#include "http_test_util.h"
#include "sl_test.h"

typedef struct fixture {
    test_server ts;
    test_client tc;
    sl_pool *pool;
    sl_auth *au;
    sl_buf hash; /* of bob's password, NUL ended */
    char answer[8192];
} fixture;

static void whoami(void *arg, const sl_http_req *req, sl_http_resp *resp)
{
    (void)arg;
    sl_http_resp_msgf(resp, 200, "user=%s expires=%lld",
                      sl_http_req_user(req) == NULL ? "-" : sl_http_req_user(req),
                      (long long)sl_auth_expires(req));
}

static const char *const admin_roles[] = {"admin"};
static const char *const user_roles[] = {"reader", "writer"};
static const char *const anonymous[] = {SL_AUTH_UNAUTHENTICATED};

static const sl_auth_permission permissions[] = {
    {user_roles, 1, "path-prefix('/data') and method(GET)", SL_AUTH_LOWEST},
    {user_roles, 2, "path('/token') or path('/token/cookie') or path('/roles')", 1},
    {admin_roles, 1, "path-prefix('/')", 0},
    {anonymous, 1, "path('/public')", 0},
};
#define PERMISSIONS (sizeof(permissions) / sizeof(permissions[0]))

static void load(fixture *fx, const char *ann_password)
{
    const sl_auth_user users[] = {
        {"admin", "secret", admin_roles, 1},
        {"ann", ann_password, user_roles, 2},
        {"bob", (const char *)sl_buf_peek(&fx->hash).ptr, user_roles, 1},
        {"off", NULL, admin_roles, 1},
    };
    char *why = NULL;
    sl_err err = sl_auth_load(fx->au, users, 4, permissions, PERMISSIONS, &why);
    if (err != SL_OK)
        fail_msg("%s", why);
}

static int setup(void **state)
{
    fixture *fx = sl_calloc(1, sizeof(*fx));
    SL_TEST_OK(sl_pool_new(1, 4, &fx->pool));
    sl_buf_init(&fx->hash, 1000);
    SL_TEST_OK(sl_auth_hash_password(sl_slice_str("b:o:b"), 1000, &fx->hash));
    SL_TEST_OK(sl_buf_append_u8(&fx->hash, '\0'));
    fx->au = sl_auth_new(&(sl_auth_options){.pool = fx->pool,
                                            .clock = &fx->ts.clock,
                                            .basic = true,
                                            .tokens = true,
                                            .acl = true,
                                            .guard = true,
                                            .max_tokens = 5});
    test_server_make(&fx->ts, (sl_http_options){.gate = sl_auth_gate, .gate_arg = fx->au});
    const sl_http_route routes[] = {
        {.methods = SL_HTTP_M(GET) | SL_HTTP_M(POST), .pattern = "/data", .fn = whoami},
        {.methods = SL_HTTP_M(GET), .pattern = "/public", .fn = whoami},
        {.methods = SL_HTTP_M(GET), .pattern = "/open", .open = true, .fn = whoami},
    };
    sl_http_server_route(fx->ts.sv, routes, 3);
    sl_auth_add_routes(fx->au, fx->ts.sv);
    load(fx, "pw");
    test_server_go(&fx->ts);
    test_client_open(&fx->tc, &fx->ts);
    *state = fx;
    return 0;
}

static int teardown(void **state)
{
    fixture *fx = *state;
    test_client_close(&fx->tc);
    sl_pool_free(&fx->pool); // its threads post to the loop
    test_server_stop(&fx->ts);
    sl_auth_free(&fx->au);
    sl_buf_fini(&fx->hash);
    sl_free(fx);
    return 0;
}

/* A request with one more header line ("" for none); a new connection if the old one has ended. */
static int ask(fixture *fx, const char *method, const char *target, const char *header)
{
    char text[2048];
    (void)snprintf(text, sizeof(text), "%s %s HTTP/1.1\r\nHost: x\r\n%s%s\r\n", method, target,
                   header, header[0] == '\0' ? "" : "\r\n");
    int status = test_client_request(&fx->tc, &fx->ts, text);
    (void)snprintf(fx->answer, sizeof(fx->answer), "%s", test_client_text(&fx->tc));
    return status;
}

static const char *basic(const char *user, const char *password)
{
    static char header[1024];
    char plain[512];
    sl_buf out;
    (void)snprintf(plain, sizeof(plain), "%s:%s", user, password);
    sl_buf_init(&out, 1000);
    SL_TEST_OK(sl_base64_write(&out, sl_slice_str(plain)));
    (void)snprintf(header, sizeof(header), "Authorization: Basic %.*s", (int)sl_buf_peek(&out).len,
                   (const char *)sl_buf_peek(&out).ptr);
    sl_buf_fini(&out);
    return header;
}

static int get_as(fixture *fx, const char *target, const char *user, const char *password)
{
    return ask(fx, "GET", target, basic(user, password));
}

static void has(fixture *fx, const char *text)
{
    if (strstr(fx->answer, text) == NULL)
        fail_msg("no \"%s\" in:\n%s", text, fx->answer);
}

static void has_not(fixture *fx, const char *text)
{
    if (strstr(fx->answer, text) != NULL)
        fail_msg("\"%s\" in:\n%s", text, fx->answer);
}

/* Value of a header of the last answer. */
static const char *header_of(fixture *fx, const char *name)
{
    static char value[256];
    char key[64];
    (void)snprintf(key, sizeof(key), "\r\n%s: ", name);
    const char *at = strstr(fx->answer, key);
    if (at == NULL)
        fail_msg("no %s in:\n%s", name, fx->answer);
    at += strlen(key);
    (void)snprintf(value, sizeof(value), "%.*s", (int)strcspn(at, "\r"), at);
    return value;
}

static void bearer(char out[256], const char *token)
{
    (void)snprintf(out, 256, "Authorization: Bearer %.200s", token);
}

static void test_auth_asks_for_a_login(void **state)
{
    fixture *fx = *state;
    assert_int_equal(ask(fx, "GET", "/data", ""), 401);
    has(fx, "WWW-Authenticate: Basic realm=\"RESTHeart Realm\"\r\n");
    has(fx, "{\"msg\":");
    assert_int_equal(ask(fx, "GET", "/data", "No-Auth-Challenge: 1"), 401);
    has_not(fx, "WWW-Authenticate");
    assert_int_equal(ask(fx, "GET", "/data?noauthchallenge", ""), 401);
    has_not(fx, "WWW-Authenticate");
    assert_int_equal(ask(fx, "GET", "/nowhere", ""), 401); // says nothing about what exists
    assert_int_equal(ask(fx, "GET", "/open", ""), 200);
    has(fx, "user=-");
    assert_int_equal(ask(fx, "GET", "/public", ""), 200);
    has(fx, "user=-");
}

static void test_auth_takes_plain_passwords(void **state)
{
    fixture *fx = *state;
    assert_int_equal(get_as(fx, "/data", "ann", "pw"), 200);
    has(fx, "user=ann expires=0");
    assert_int_equal(get_as(fx, "/data", "ann", "pw2"), 401);
    assert_int_equal(get_as(fx, "/data", "ann", "p"), 401);
    assert_int_equal(get_as(fx, "/data", "nobody", "pw"), 401);
    assert_int_equal(get_as(fx, "/data", "off", ""), 401); // null password: disabled
}

static void test_auth_takes_hashed_passwords_from_the_pool_and_then_its_memory(void **state)
{
    fixture *fx = *state;
    sl_auth_counts counts;
    assert_int_equal(get_as(fx, "/data", "bob", "b:o:b"), 200);
    has(fx, "user=bob");
    assert_int_equal(get_as(fx, "/data", "bob", "b:o:b"), 200);
    assert_int_equal(get_as(fx, "/data", "bob", "b:o:c"), 401);
    // the stored form is no password
    assert_int_equal(get_as(fx, "/data", "bob", (const char *)sl_buf_peek(&fx->hash).ptr), 401);
    test_server_pass(&fx->ts, 10000);
    test_client_close(&fx->tc);
    test_client_open(&fx->tc, &fx->ts);
    assert_int_equal(get_as(fx, "/data", "bob", "b:o:b"), 200);
    sl_auth_counts_get(fx->au, &counts);
    assert_int_equal(counts.logins, 3);
    assert_int_equal(counts.bad_logins, 2);
}

static void test_auth_checks_rights_of_roles(void **state)
{
    fixture *fx = *state;
    assert_int_equal(ask(fx, "POST", "/data", basic("ann", "pw")), 403);
    has(fx, "{\"msg\":");
    assert_int_equal(get_as(fx, "/data", "ann", "pw"), 200);
    assert_int_equal(get_as(fx, "/public", "ann", "pw"), 403); // that is the anonymous role's
    assert_int_equal(get_as(fx, "/public", "admin", "secret"), 200);
    assert_int_equal(get_as(fx, "/nowhere", "admin", "secret"), 404);
    assert_int_equal(get_as(fx, "/nowhere", "ann", "pw"), 403);
    sl_auth_counts counts;
    sl_auth_counts_get(fx->au, &counts);
    assert_int_equal(counts.denied, 3);
}

static void test_auth_refuses_broken_credentials(void **state)
{
    fixture *fx = *state;
    static const char *const bad[] = {"Authorization: Basic !!!", "Authorization: Basic YWJj",
                                      "Authorization: Basic ", "Authorization: Digest x",
                                      "Authorization: Bearer nothing"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(ask(fx, "GET", "/public", bad[i]), 401); // even where nobody need log in
}

static void test_auth_tells_its_token_and_takes_it(void **state)
{
    fixture *fx = *state;
    char token[256];
    char line[256];
    assert_int_equal(get_as(fx, "/data", "ann", "pw"), 200);
    has(fx, "Auth-Token-Location: /token\r\n");
    has(fx, "Auth-Token-Valid-Until: 2026-11-30T21:01:50");
    (void)snprintf(token, sizeof(token), "%s", header_of(fx, "Auth-Token"));
    bearer(line, token);
    assert_int_equal(ask(fx, "GET", "/data", line), 200);
    has(fx, "user=ann expires=1900000");
    assert_string_equal(header_of(fx, "Auth-Token"), token);
    assert_int_equal(get_as(fx, "/data", "ann", token), 200); // Basic with the token as password
    has(fx, "user=ann");
    assert_int_equal(get_as(fx, "/data", "bob", token), 401); // but of nobody else
    assert_int_equal(get_as(fx, "/data", "ann", "pw"), 200);
    assert_string_equal(header_of(fx, "Auth-Token"), token); // told again, not a new one each time
    test_server_pass(&fx->ts, 899000);
    test_client_close(&fx->tc);
    test_client_open(&fx->tc, &fx->ts);
    assert_int_equal(ask(fx, "GET", "/data", line), 200);
    test_server_pass(&fx->ts, 1000);
    assert_int_equal(ask(fx, "GET", "/data", line), 401);
}

static void json_field(fixture *fx, const char *name, char out[256])
{
    const char *body = strstr(fx->answer, "\r\n\r\n") + 4;
    sl_json_value value;
    SL_TEST_OK(sl_json_find(sl_slice_str(body), name, &value));
    (void)snprintf(out, 256, "%.*s", (int)value.raw.len, (const char *)value.raw.ptr);
}

static void test_token_route_makes_shows_and_ends_tokens(void **state)
{
    fixture *fx = *state;
    char value[256];
    char token[256];
    char line[256];
    assert_int_equal(ask(fx, "POST", "/token", basic("ann", "pw")), 200);
    has(fx, "Cache-Control: no-store");
    json_field(fx, "access_token", token);
    json_field(fx, "token_type", value);
    assert_string_equal(value, "\"Bearer\"");
    json_field(fx, "expires_in", value);
    assert_string_equal(value, "900");
    json_field(fx, "username", value);
    assert_string_equal(value, "\"ann\"");
    json_field(fx, "roles", value);
    assert_string_equal(value, "[\"reader\",\"writer\"]");
    token[strlen(token) - 1] = '\0';
    bearer(line, token + 1);
    test_server_pass(&fx->ts, 10000);
    assert_int_equal(ask(fx, "GET", "/token", line), 200);
    json_field(fx, "expires_in", value);
    assert_string_equal(value, "890");
    assert_int_equal(ask(fx, "GET", "/roles", line), 200);
    has(fx, "{\"authenticated\":true,\"roles\":[\"reader\",\"writer\"]}");
    assert_int_equal(ask(fx, "DELETE", "/token", line), 204);
    assert_int_equal(ask(fx, "GET", "/data", line), 401);
    assert_int_equal(ask(fx, "POST", "/token", ""), 401);
}

static void test_cookie_logs_a_browser_in_and_out(void **state)
{
    fixture *fx = *state;
    char line[512];
    char cookie[256];
    assert_int_equal(ask(fx, "POST", "/token/cookie", basic("ann", "pw")), 200);
    (void)snprintf(cookie, sizeof(cookie), "%s", header_of(fx, "Set-Cookie"));
    assert_memory_equal(cookie, "rh_auth=Bearer_", 15);
    assert_non_null(strstr(cookie, "; Path=/; HttpOnly; SameSite=Strict; Max-Age=900"));
    assert_null(strstr(strstr(fx->answer, "\r\n\r\n"), "access_token"));
    cookie[strcspn(cookie, ";")] = '\0';
    (void)snprintf(line, sizeof(line), "Cookie: a=b; %s", cookie);
    assert_int_equal(ask(fx, "GET", "/data", line), 200);
    has(fx, "user=ann");
    assert_int_equal(ask(fx, "POST", "/logout", line), 204);
    assert_memory_equal(header_of(fx, "Set-Cookie"), "rh_auth=; ", 10);
    assert_int_equal(ask(fx, "GET", "/data", line), 401);
    assert_int_equal(ask(fx, "POST", "/logout", line), 204); // a stale cookie can be dropped too
}

static void test_tokens_are_bounded_and_the_oldest_ends(void **state)
{
    fixture *fx = *state;
    char first[256] = "";
    char line[256];
    for (int i = 0; i < 6; i++) {
        assert_int_equal(ask(fx, "POST", "/token", basic("ann", "pw")), 200);
        if (i == 0)
            json_field(fx, "access_token", first);
    }
    sl_auth_counts counts;
    sl_auth_counts_get(fx->au, &counts);
    assert_int_equal(counts.tokens, 5);
    assert_true(counts.tokens_ended >= 1);
    first[strlen(first) - 1] = '\0';
    bearer(line, first + 1);
    assert_int_equal(ask(fx, "GET", "/data", line), 401);
}

static void test_guard_stops_guessing_from_an_address(void **state)
{
    fixture *fx = *state;
    for (int i = 0; i < 5; i++)
        assert_int_equal(get_as(fx, "/data", "ann", "wrong"), 401);
    assert_int_equal(get_as(fx, "/data", "ann", "pw"), 429);
    assert_string_equal(header_of(fx, "Retry-After"), "10");
    assert_int_equal(ask(fx, "GET", "/public", ""), 200); // who brings no password is no guesser
    test_server_pass(&fx->ts, 10000);
    assert_int_equal(get_as(fx, "/data", "ann", "pw"), 200);
    for (int i = 0; i < 20; i++) // stale tokens are no guesses
        assert_int_equal(ask(fx, "GET", "/data", "Authorization: Bearer stale"), 401);
    assert_int_equal(get_as(fx, "/data", "ann", "pw"), 200);
    sl_auth_counts counts;
    sl_auth_counts_get(fx->au, &counts);
    assert_int_equal(counts.guarded, 1);
}

static void test_reload_ends_tokens_of_changed_users_only(void **state)
{
    fixture *fx = *state;
    char ann[256];
    char admin[256];
    assert_int_equal(get_as(fx, "/data", "ann", "pw"), 200);
    bearer(ann, header_of(fx, "Auth-Token"));
    assert_int_equal(get_as(fx, "/data", "admin", "secret"), 200);
    bearer(admin, header_of(fx, "Auth-Token"));
    assert_int_equal(get_as(fx, "/data", "bob", "b:o:b"), 200);
    uint64_t ann_before = sl_auth_version(fx->au, "ann");
    uint64_t bob_before = sl_auth_version(fx->au, "bob");
    load(fx, "new");
    assert_int_equal(ask(fx, "GET", "/data", ann), 401);
    assert_int_equal(ask(fx, "GET", "/data", admin), 200);
    assert_int_equal(get_as(fx, "/data", "ann", "pw"), 401);
    assert_int_equal(get_as(fx, "/data", "ann", "new"), 200);
    assert_int_equal(get_as(fx, "/data", "bob", "b:o:b"), 200);
    assert_true(sl_auth_version(fx->au, "ann") != ann_before);
    assert_true(sl_auth_version(fx->au, "bob") == bob_before);
    assert_true(sl_auth_version(fx->au, "nobody") == 0);
    assert_true(sl_auth_version(fx->au, "off") == 0);
    assert_true(sl_auth_version(fx->au, NULL) != 0);
}

static void test_load_names_what_is_wrong_and_changes_nothing(void **state)
{
    fixture *fx = *state;
    static const struct {
        sl_auth_user users[2];
        sl_auth_permission permission;
        const char *part;
    } cases[] = {
        {{{"", "x", NULL, 0}, {"b", "x", NULL, 0}}, {admin_roles, 1, "true", 0}, "user 1"},
        {{{"a", "x", NULL, 0}, {"a", "x", NULL, 0}}, {admin_roles, 1, "true", 0}, "used twice"},
        {{{"a", "x", NULL, 0}, {"b:c", "x", NULL, 0}}, {admin_roles, 1, "true", 0}, "user 2 (b:c)"},
        {{{"a", "pbkdf2$md5$1$x$y", NULL, 0}, {"b", "x", NULL, 0}},
         {admin_roles, 1, "true", 0},
         "pbkdf2$sha256$"},
        {{{"a", "pbkdf2$sha256$10$c2FsdHNhbHQ=$c2FsdHNhbHRzYWx0c2FsdA==", NULL, 0},
          {"b", "x", NULL, 0}},
         {admin_roles, 1, "true", 0},
         "iterations from 1000"},
        {{{"a", "x", NULL, 0}, {"b", "x", NULL, 0}},
         {admin_roles, 1, "path-prefx('/')", 0},
         "permission 1 (admin): unknown predicate 'path-prefx' at column 1"},
        {{{"a", "x", NULL, 0}, {"b", "x", NULL, 0}},
         {admin_roles, 0, "true", 0},
         "role is missing"},
        {{{"a", "x", NULL, 0}, {"b", "x", NULL, 0}},
         {admin_roles, 1, NULL, 0},
         "predicate is missing"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *why = NULL;
        SL_TEST_ERR(sl_auth_load(fx->au, cases[i].users, 2, &cases[i].permission, 1, &why),
                    SL_EINVAL);
        if (strstr(why, cases[i].part) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", why, cases[i].part);
        sl_free(why);
    }
    assert_int_equal(get_as(fx, "/data", "ann", "pw"), 200);
}

static void test_password_forms(void **state)
{
    (void)state;
    SL_TEST_ERR(sl_auth_password_check("pbkdf2$sha256$2000$c2FsdA==$c2FsdHNhbHRzYWx0c2FsdA=="),
                SL_EINVAL); // 4 bytes of salt are too few
    // made by another implementation: hashlib.pbkdf2_hmac("sha256", b"Password", b"saltsalt", 2000)
    static const char made[] = "pbkdf2$sha256$2000$c2FsdHNhbHQ=$"
                               "78k2t/Q5VDLb2R4JVK4AEIFVAn9lVBGnEHxxkLLlHPM=";
    SL_TEST_OK(sl_auth_password_check(made));
    assert_true(sl_auth_password_matches(sl_slice_str("Password"), made));
    assert_false(sl_auth_password_matches(sl_slice_str("password"), made));
    assert_false(sl_auth_password_matches(sl_slice_str(""), made));
    SL_TEST_OK(sl_auth_password_check("plain$text"));
    assert_true(sl_auth_password_matches(sl_slice_str("plain$text"), "plain$text"));
    sl_buf out;
    sl_buf_init(&out, 1000);
    SL_TEST_ERR(sl_auth_hash_password(sl_slice_str("x"), 999, &out), SL_EINVAL);
    sl_buf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
        T(test_auth_asks_for_a_login),
        T(test_auth_takes_plain_passwords),
        T(test_auth_takes_hashed_passwords_from_the_pool_and_then_its_memory),
        T(test_auth_checks_rights_of_roles),
        T(test_auth_refuses_broken_credentials),
        T(test_auth_tells_its_token_and_takes_it),
        T(test_token_route_makes_shows_and_ends_tokens),
        T(test_cookie_logs_a_browser_in_and_out),
        T(test_tokens_are_bounded_and_the_oldest_ends),
        T(test_guard_stops_guessing_from_an_address),
        T(test_reload_ends_tokens_of_changed_users_only),
        T(test_load_names_what_is_wrong_and_changes_nothing),
#undef T
        cmocka_unit_test(test_password_forms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
