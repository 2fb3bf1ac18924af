/* SPDX-License-Identifier: Apache-2.0
 *
 * auth_routes: /token, /token/cookie, /logout and /roles, answered on the loop.
 */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/json.h"
#include "http/auth_int.h"

static void append(sl_buf *out, const char *text)
{
    sl_err err = sl_buf_append_str(out, text);
    SL_ASSERT(err == SL_OK); // user names and roles come from our own configuration
}

static void append_string(sl_buf *out, const char *text)
{
    sl_slice value = sl_slice_str(text);
    sl_err err = sl_json_write_string(out, sl_utf8_is_valid(value) ? value : sl_slice_str("?"));
    SL_ASSERT(err == SL_OK);
}

static void append_roles(sl_buf *out, const sl_http_req *req)
{
    append(out, "\"roles\":[");
    for (size_t i = 0; i < sl_http_req_role_count(req); i++) {
        append(out, i == 0 ? "" : ",");
        append_string(out, sl_http_req_role(req, i));
    }
    append(out, "]");
}

/* The user's token, a new one when fresh is asked for or none is alive. Copied out of the table. */
static bool token_for(sl_auth *au, const sl_http_req *req, bool fresh, auth_token *out)
{
    const char *userid = sl_http_req_user(req);
    sl_mono_ms now = sl_clock_mono(au->opt.clock);
    bool found = false;
    pthread_mutex_lock(&au->lock);
    const auth_user *us = userid == NULL ? NULL : auth_table_find(au->table, sl_slice_str(userid));
    if (us != NULL) {
        const auth_token *to = fresh ? NULL : auth_tokens_of(&au->tokens, userid, now);
        if (to == NULL || to->version != us->version)
            to = auth_tokens_issue(&au->tokens, au->key, us, now, sl_clock_wall(au->opt.clock),
                                   au->opt.token_ttl_ms);
        out->expires = to->expires;
        memcpy(out->text, to->text, sizeof(out->text));
        found = true;
    }
    pthread_mutex_unlock(&au->lock);
    return found;
}

static int64_t seconds_left(const sl_auth *au, const auth_token *to)
{
    return (to->expires - sl_clock_mono(au->opt.clock) + 999) / 1000;
}

static void write_token(const sl_auth *au, const sl_http_req *req, const auth_token *to,
                        bool with_text, sl_http_resp *resp)
{
    sl_http_resp_set(resp, 200, "application/json", sl_slice_str("{"));
    sl_http_resp_add_header(resp, "Cache-Control", "no-store");
    sl_buf *body = sl_http_resp_body(resp);
    if (with_text) {
        append(body, "\"access_token\":");
        append_string(body, to->text);
        append(body, ",\"token_type\":\"Bearer\",");
    }
    sl_err err =
        sl_buf_printf(body, "\"expires_in\":%lld,\"username\":", (long long)seconds_left(au, to));
    SL_ASSERT(err == SL_OK);
    append_string(body, sl_http_req_user(req));
    append(body, ",");
    append_roles(body, req);
    append(body, "}");
}

static void set_cookie(const sl_auth *au, sl_http_resp *resp, const char *value, int64_t max_age_s)
{
    char text[256];
    (void)snprintf(text, sizeof(text),
                   AUTH_COOKIE "=%s; Path=/; HttpOnly; SameSite=Strict; Max-Age=%lld%s", value,
                   (long long)max_age_s, au->opt.secure_cookie ? "; Secure" : "");
    sl_http_resp_add_header(resp, "Set-Cookie", text);
}

static void on_token(void *arg, sl_http_stream *st)
{
    sl_auth *au = arg;
    const sl_http_req *req = sl_http_stream_req(st);
    sl_http_resp *resp = sl_http_stream_resp(st);
    auth_token to = {0};
    if (sl_http_req_method(req) == SL_HTTP_DELETE) {
        pthread_mutex_lock(&au->lock);
        if (sl_http_req_user(req) != NULL)
            auth_tokens_end_user(&au->tokens, sl_http_req_user(req));
        pthread_mutex_unlock(&au->lock);
        sl_http_resp_set_status(resp, 204);
    } else if (token_for(au, req, sl_http_req_method(req) == SL_HTTP_POST, &to)) {
        write_token(au, req, &to, true, resp);
    } else {
        sl_http_resp_msg(resp, 401, "a token is for somebody who is logged in");
    }
    sl_http_stream_reply(st);
}

static void on_token_cookie(void *arg, sl_http_stream *st)
{
    sl_auth *au = arg;
    const sl_http_req *req = sl_http_stream_req(st);
    sl_http_resp *resp = sl_http_stream_resp(st);
    auth_token to = {0};
    if (token_for(au, req, true, &to)) {
        char value[AUTH_TOKEN_BYTES + 8];
        (void)snprintf(value, sizeof(value), "Bearer_%s", to.text);
        write_token(au, req, &to, false, resp); // scripts of the page shall not see it
        set_cookie(au, resp, value, seconds_left(au, &to));
    } else {
        sl_http_resp_msg(resp, 401, "a cookie is for somebody who is logged in");
    }
    sl_http_stream_reply(st);
}

/* Open, so that a browser with a stale cookie gets rid of it. */
static void on_logout(void *arg, sl_http_stream *st)
{
    sl_auth *au = arg;
    sl_http_resp *resp = sl_http_stream_resp(st);
    sl_slice text = auth_token_of(sl_http_stream_req(st));
    pthread_mutex_lock(&au->lock);
    auth_token *to = auth_tokens_find(&au->tokens, au->key, text, sl_clock_mono(au->opt.clock));
    if (to != NULL)
        auth_tokens_end(&au->tokens, to);
    pthread_mutex_unlock(&au->lock);
    set_cookie(au, resp, "", 0);
    sl_http_resp_set_status(resp, 204);
    sl_http_stream_reply(st);
}

static void on_roles(void *arg, sl_http_stream *st)
{
    (void)arg;
    const sl_http_req *req = sl_http_stream_req(st);
    sl_http_resp *resp = sl_http_stream_resp(st);
    bool known = sl_http_req_user(req) != NULL;
    sl_http_resp_set(
        resp, 200, "application/json",
        sl_slice_str(known ? "{\"authenticated\":true," : "{\"authenticated\":false,"));
    append_roles(sl_http_resp_body(resp), req);
    append(sl_http_resp_body(resp), "}");
    sl_http_stream_reply(st);
}

void sl_auth_add_routes(sl_auth *au, sl_http_server *sv)
{
    SL_CHECK(au, AUTH_MAGIC);
    const sl_http_route roles = {
        .methods = SL_HTTP_M(GET), .pattern = "/roles", .on_loop = on_roles, .arg = au};
    sl_http_server_route(sv, &roles, 1);
    if (!au->opt.tokens)
        return;
    const sl_http_route routes[] = {
        {.methods = SL_HTTP_M(GET) | SL_HTTP_M(POST) | SL_HTTP_M(DELETE),
         .pattern = "/token",
         .on_loop = on_token,
         .arg = au},
        {.methods = SL_HTTP_M(POST),
         .pattern = "/token/cookie",
         .on_loop = on_token_cookie,
         .arg = au},
        {.methods = SL_HTTP_M(POST),
         .pattern = "/logout",
         .open = true,
         .on_loop = on_logout,
         .arg = au},
    };
    sl_http_server_route(sv, routes, sizeof(routes) / sizeof(routes[0]));
}
