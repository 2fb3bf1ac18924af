/* SPDX-License-Identifier: Apache-2.0
 *
 * auth: the gate: who is it (401, 429), may they (403). Secrets are never logged.
 */
#include "http/auth.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include <openssl/crypto.h>
#include <openssl/rand.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/json.h"
#include "base/logger.h"
#include "http/auth_int.h"
#include "http/http_int.h"

#define CACHE_MAX 1024
#define CACHE_MS  60000

sl_auth *sl_auth_new(const sl_auth_options *options)
{
    sl_auth *au = sl_calloc(1, sizeof(*au));
    au->magic = AUTH_MAGIC;
    au->opt = *options;
    au->opt.realm = sl_strdup(options->realm == NULL ? "RESTHeart Realm" : options->realm);
    if (au->opt.token_ttl_ms == 0)
        au->opt.token_ttl_ms = 15 * 60 * 1000;
    int ok = RAND_bytes(au->key, sizeof(au->key));
    SL_ASSERT(ok == 1);
    (void)pthread_mutex_init(&au->lock, NULL);
    auth_tokens_init(&au->tokens, options->max_tokens == 0 ? 10000 : options->max_tokens);
    auth_guard_init(&au->guard, options->guard_attempts == 0 ? 5 : options->guard_attempts,
                    options->guard_window_ms == 0 ? 10000 : options->guard_window_ms);
    au->cache = sl_map_new(CACHE_MAX);
    char *why = NULL;
    sl_err err = auth_table_new(NULL, 0, NULL, 0, &au->table, &why);
    SL_ASSERT(err == SL_OK); // an empty table has nothing that could be wrong
    return au;
}

static void clear_cache(sl_auth *au)
{
    sl_slice key;
    void *entry = NULL;
    for (size_t pos = 0; sl_map_each(au->cache, &pos, &key, &entry);) {
        (void)sl_map_remove(au->cache, key);
        sl_free(entry);
    }
}

void sl_auth_free(sl_auth **aup)
{
    sl_auth *au = *aup;
    if (au == NULL)
        return;
    *aup = NULL;
    SL_CHECK(au, AUTH_MAGIC);
    au->magic = 0;
    clear_cache(au);
    sl_map_free(&au->cache);
    auth_tokens_fini(&au->tokens);
    auth_guard_fini(&au->guard);
    auth_table_unref(&au->table);
    (void)pthread_mutex_destroy(&au->lock);
    sl_free((void *)(uintptr_t)au->opt.realm);
    sl_free(au);
}

sl_err sl_auth_load(sl_auth *au, const sl_auth_user *users, size_t user_count,
                    const sl_auth_permission *permissions, size_t permission_count, char **why)
{
    SL_CHECK(au, AUTH_MAGIC);
    auth_table *fresh = NULL;
    sl_err err = auth_table_new(users, user_count, permissions, permission_count, &fresh, why);
    if (err != SL_OK)
        return err;
    pthread_mutex_lock(&au->lock);
    auth_table *old = au->table;
    au->table = fresh; // tokens and cached passwords of changed users fail by their version
    pthread_mutex_unlock(&au->lock);
    auth_table_unref(&old);
    return SL_OK;
}

static auth_table *table_of(sl_auth *au)
{
    pthread_mutex_lock(&au->lock);
    auth_table *tb = auth_table_ref(au->table);
    pthread_mutex_unlock(&au->lock);
    return tb;
}

uint64_t sl_auth_version(sl_auth *au, const char *userid)
{
    SL_CHECK(au, AUTH_MAGIC);
    auth_table *tb = table_of(au);
    uint64_t version = tb->acl_version;
    if (userid == NULL) {
        version |= 1;
    } else {
        const auth_user *us = auth_table_find(tb, sl_slice_str(userid));
        version = us == NULL ? 0 : (version * 31 + us->version) | 1;
    }
    auth_table_unref(&tb);
    return version;
}

sl_mono_ms sl_auth_expires(const sl_http_req *req)
{
    return req->expires;
}

void sl_auth_counts_get(sl_auth *au, sl_auth_counts *out)
{
    pthread_mutex_lock(&au->lock);
    *out = au->counts;
    out->tokens = sl_map_count(au->tokens.by_digest);
    out->tokens_ended = au->tokens.ended_early;
    pthread_mutex_unlock(&au->lock);
}

/* ---- answers ---- */

static bool wants_challenge(const sl_http_req *req)
{
    return sl_http_req_header(req, "No-Auth-Challenge") == NULL &&
           sl_http_query_get(req, "noauthchallenge", NULL) == NULL;
}

static sl_http_verdict unauthorized(sl_auth *au, const sl_http_req *req, sl_http_resp *resp)
{
    sl_http_resp_msg(resp, 401, "login is needed");
    if (au->opt.basic && wants_challenge(req)) {
        char value[128];
        (void)snprintf(value, sizeof(value), "Basic realm=\"%.80s\"", au->opt.realm);
        sl_http_resp_add_header(resp, "WWW-Authenticate", value);
    }
    return SL_HTTP_REFUSE;
}

static sl_http_verdict bad_login(sl_auth *au, const sl_http_req *req, sl_http_resp *resp,
                                 bool guessed)
{
    pthread_mutex_lock(&au->lock);
    au->counts.bad_logins++;
    if (au->opt.guard && guessed)
        auth_guard_failed(&au->guard, sl_http_req_peer_ip(req), sl_clock_mono(au->opt.clock));
    pthread_mutex_unlock(&au->lock);
    sl_trace(SL_C_AUTH, "HTTP-BAD-LOGIN", SL_S("peer", sl_http_req_peer_ip(req)));
    return unauthorized(au, req, resp);
}

/* Tells the client its token, as RESTHeart does with every answer to somebody logged in. */
static void add_token_headers(sl_http_req *req, const auth_token *to)
{
    char iso[SL_CLOCK_ISO_BYTES];
    sl_clock_format_iso(to->expires_wall * 1000000, iso);
    sl_http_req_add_header(req, "Auth-Token", to->text);
    sl_http_req_add_header(req, "Auth-Token-Valid-Until", iso);
    sl_http_req_add_header(req, "Auth-Token-Location", "/token");
}

/* Known by user; a token in use is told again, another is made when half its time is over. */
static void welcome(sl_auth *au, sl_http_req *req, const auth_user *us, const auth_token *used)
{
    sl_http_req_set_user(req, us->userid, (const char *const *)us->roles, us->role_count);
    pthread_mutex_lock(&au->lock);
    if (used == NULL)
        au->counts.logins++;
    if (au->opt.tokens) {
        sl_mono_ms now = sl_clock_mono(au->opt.clock);
        const auth_token *to = used != NULL ? used : auth_tokens_of(&au->tokens, us->userid, now);
        if (to == NULL || to->version != us->version ||
            (used == NULL && to->expires - now < au->opt.token_ttl_ms / 2))
            to = auth_tokens_issue(&au->tokens, au->key, us, now, sl_clock_wall(au->opt.clock),
                                   au->opt.token_ttl_ms);
        add_token_headers(req, to);
    }
    pthread_mutex_unlock(&au->lock);
}

/* Logged in or not: does the ACL let the request pass? */
static sl_http_verdict authorize(sl_auth *au, const auth_table *tb, sl_http_req *req,
                                 sl_http_resp *resp)
{
    bool anonymous = sl_http_req_user(req) == NULL;
    bool allowed = au->opt.acl ? auth_table_allows(tb, req) : !anonymous;
    if (allowed || (!anonymous && sl_http_req_method(req) == SL_HTTP_OPTIONS))
        return SL_HTTP_PASS;
    if (anonymous)
        return unauthorized(au, req, resp);
    pthread_mutex_lock(&au->lock);
    au->counts.denied++;
    pthread_mutex_unlock(&au->lock);
    sl_http_resp_msg(resp, 403, "this is not allowed for you");
    return SL_HTTP_REFUSE;
}

/* ---- tokens ---- */

sl_slice auth_token_of(const sl_http_req *req)
{
    static const char bearer[] = "Bearer ";
    static const char in_cookie[] = "Bearer_";
    const char *header = sl_http_req_header(req, "Authorization");
    sl_slice cookie;
    if (header != NULL)
        return strncasecmp(header, bearer, sizeof(bearer) - 1) == 0
                   ? sl_slice_str(header + sizeof(bearer) - 1)
                   : sl_slice_of(NULL, 0);
    if (sl_http_req_cookie(req, AUTH_COOKIE, &cookie) && cookie.len > sizeof(in_cookie) - 1 &&
        memcmp(cookie.ptr, in_cookie, sizeof(in_cookie) - 1) == 0)
        return sl_slice_of(cookie.ptr + sizeof(in_cookie) - 1,
                           cookie.len - (sizeof(in_cookie) - 1));
    return sl_slice_of(NULL, 0);
}

/* True when text is a live token (of userid when that is given) and its user may still log in; the
 * request is that user's then. */
static bool login_by_token(sl_auth *au, const auth_table *tb, sl_http_req *req, sl_slice text,
                           const sl_slice *userid)
{
    if (!au->opt.tokens)
        return false;
    pthread_mutex_lock(&au->lock);
    const auth_token *found =
        auth_tokens_find(&au->tokens, au->key, text, sl_clock_mono(au->opt.clock));
    const auth_user *us = found == NULL ? NULL : auth_table_find(tb, sl_slice_str(found->userid));
    bool good = us != NULL && us->version == found->version &&
                (userid == NULL || sl_slice_equal(*userid, sl_slice_str(found->userid)));
    auth_token copy = {0};
    if (good) {
        copy.version = found->version;
        copy.expires = found->expires;
        copy.expires_wall = found->expires_wall;
        memcpy(copy.text, found->text, sizeof(copy.text));
    }
    pthread_mutex_unlock(&au->lock);
    if (good) {
        req->expires = copy.expires;
        welcome(au, req, us, &copy);
    }
    return good;
}

/* ---- passwords ---- */

/* A password on its way through the pool. */
typedef struct password_job {
    sl_auth *au;
    auth_table *table;   /* a reference */
    const auth_user *us; /* of table; NULL: unknown, the time is spent for show */
    sl_http_req *req;
    sl_http_resp *resp;
    bool matches;
    size_t password_len;
    uint8_t digest[AUTH_DIGEST];
    uint8_t password[AUTH_MAX_SECRET];
} password_job;

static void cache_put(sl_auth *au, const uint8_t digest[AUTH_DIGEST], const auth_user *us)
{
    auth_cached *entry = sl_calloc(1, sizeof(*entry));
    entry->version = us->version;
    entry->expires = sl_clock_mono(au->opt.clock) + CACHE_MS;
    void *old = NULL;
    pthread_mutex_lock(&au->lock);
    if (sl_map_count(au->cache) >= CACHE_MAX)
        clear_cache(au); // simpler than an order of use, and each costs one hash to make again
    sl_err err = sl_map_put(au->cache, sl_slice_of(digest, AUTH_DIGEST), entry, &old);
    pthread_mutex_unlock(&au->lock);
    SL_ASSERT(err == SL_OK);
    sl_free(old);
}

static bool cache_has(sl_auth *au, const uint8_t digest[AUTH_DIGEST], const auth_user *us)
{
    pthread_mutex_lock(&au->lock);
    auth_cached *entry = sl_map_get(au->cache, sl_slice_of(digest, AUTH_DIGEST));
    bool good = entry != NULL && entry->version == us->version &&
                entry->expires > sl_clock_mono(au->opt.clock);
    if (entry != NULL && !good) {
        (void)sl_map_remove(au->cache, sl_slice_of(digest, AUTH_DIGEST));
        sl_free(entry);
    }
    pthread_mutex_unlock(&au->lock);
    return good;
}

/* @thread pool */
static void check_password(void *arg)
{
    password_job *job = arg;
    const char *stored = job->us != NULL ? job->us->password : job->table->decoy;
    bool equal = sl_auth_password_matches(sl_slice_of(job->password, job->password_len), stored);
    job->matches = equal && job->us != NULL;
}

static void job_free(password_job *job)
{
    auth_table_unref(&job->table);
    OPENSSL_cleanse(job, sizeof(*job));
    sl_free(job);
}

/* @thread loop */
static void on_password_checked(void *arg)
{
    password_job *job = arg;
    sl_auth *au = job->au;
    sl_http_req *req = job->req;
    sl_http_verdict verdict;
    if (job->matches) {
        cache_put(au, job->digest, job->us);
        welcome(au, req, job->us, NULL);
        verdict = authorize(au, job->table, req, job->resp);
    } else {
        verdict = bad_login(au, req, job->resp, true);
    }
    job_free(job);
    sl_http_gate_done(req, verdict);
}

static sl_http_verdict ask_pool(sl_auth *au, auth_table *tb, const auth_user *us, sl_slice password,
                                const uint8_t digest[AUTH_DIGEST], sl_http_req *req,
                                sl_http_resp *resp)
{
    password_job *job = sl_calloc(1, sizeof(*job));
    *job =
        (password_job){.au = au, .table = auth_table_ref(tb), .us = us, .req = req, .resp = resp};
    job->password_len = password.len;
    memcpy(job->password, password.ptr, password.len);
    memcpy(job->digest, digest, AUTH_DIGEST);
    if (sl_pool_run(au->opt.pool, sl_http_req_loop(req), check_password, on_password_checked,
                    job) == SL_OK)
        return SL_HTTP_LATER;
    job_free(job);
    sl_http_resp_msg(resp, 503, "too many logins at once");
    sl_http_resp_add_header(resp, "Retry-After", "1");
    return SL_HTTP_REFUSE;
}

static sl_http_verdict login_by_password(sl_auth *au, auth_table *tb, sl_http_req *req,
                                         sl_http_resp *resp, sl_slice userid, sl_slice password)
{
    if (!au->opt.basic || password.len > AUTH_MAX_SECRET || userid.len > AUTH_MAX_SECRET)
        return bad_login(au, req, resp, true);
    const auth_user *us = auth_table_find(tb, userid);
    bool slow = us != NULL ? us->hashed : tb->decoy != NULL;
    if (slow) {
        uint8_t digest[AUTH_DIGEST];
        auth_digest(au->key, userid, password, digest);
        if (us == NULL || !cache_has(au, digest, us))
            return ask_pool(au, tb, us, password, digest, req, resp);
    } else if (us == NULL || !sl_auth_password_matches(password, us->password)) {
        return bad_login(au, req, resp, true);
    }
    welcome(au, req, us, NULL);
    return authorize(au, tb, req, resp);
}

static sl_http_verdict login_basic(sl_auth *au, auth_table *tb, sl_http_req *req,
                                   sl_http_resp *resp, sl_slice encoded)
{
    sl_buf plain;
    sl_buf_init(&plain, 2 * AUTH_MAX_SECRET + 1);
    sl_http_verdict verdict;
    const uint8_t *colon = NULL;
    sl_slice text = {0};
    if (sl_base64_decode(&plain, encoded) == SL_OK) {
        text = sl_buf_peek(&plain);
        colon = text.len == 0 ? NULL : memchr(text.ptr, ':', text.len);
    }
    if (colon == NULL) {
        verdict = bad_login(au, req, resp, true);
    } else {
        sl_slice userid = sl_slice_of(text.ptr, (size_t)(colon - text.ptr));
        sl_slice password = sl_slice_of(colon + 1, text.len - userid.len - 1);
        if (login_by_token(au, tb, req, password, &userid))
            verdict = authorize(au, tb, req, resp);
        else
            verdict = login_by_password(au, tb, req, resp, userid, password);
    }
    if (text.len > 0)
        OPENSSL_cleanse((void *)(uintptr_t)text.ptr, text.len);
    sl_buf_fini(&plain);
    return verdict;
}

/* ---- the gate ---- */

/* True when the address has to wait; resp is filled in. */
static bool guarded(sl_auth *au, const sl_http_req *req, sl_http_resp *resp)
{
    if (!au->opt.guard)
        return false;
    sl_dur_ms retry_ms = 0;
    pthread_mutex_lock(&au->lock);
    bool blocks = auth_guard_blocks(&au->guard, sl_http_req_peer_ip(req),
                                    sl_clock_mono(au->opt.clock), &retry_ms);
    if (blocks)
        au->counts.guarded++;
    pthread_mutex_unlock(&au->lock);
    if (!blocks)
        return false;
    char seconds[24];
    (void)snprintf(seconds, sizeof(seconds), "%lld", (long long)((retry_ms + 999) / 1000));
    sl_http_resp_msg(resp, 429, "too many bad logins from this address");
    sl_http_resp_add_header(resp, "Retry-After", seconds);
    return true;
}

static sl_http_verdict authenticate(sl_auth *au, auth_table *tb, sl_http_req *req,
                                    sl_http_resp *resp)
{
    static const char basic[] = "Basic ";
    const char *header = sl_http_req_header(req, "Authorization");
    sl_slice token = auth_token_of(req);
    if (header == NULL && token.len == 0)
        return authorize(au, tb, req, resp); // anonymous
    if (guarded(au, req, resp))
        return SL_HTTP_REFUSE;
    if (token.len > 0) {
        // a stale token is no guess: browsers come back with theirs again and again
        return login_by_token(au, tb, req, token, NULL) ? authorize(au, tb, req, resp)
                                                        : bad_login(au, req, resp, false);
    }
    if (strncasecmp(header, basic, sizeof(basic) - 1) == 0)
        return login_basic(au, tb, req, resp, sl_slice_str(header + sizeof(basic) - 1));
    return bad_login(au, req, resp, false); // a scheme that we do not speak
}

sl_http_verdict sl_auth_gate(void *arg, sl_http_req *req, sl_http_resp *resp)
{
    sl_auth *au = arg;
    SL_CHECK(au, AUTH_MAGIC);
    if (!sl_http_req_is_secure(req))
        return SL_HTTP_PASS;
    auth_table *tb = table_of(au);
    sl_http_verdict verdict = authenticate(au, tb, req, resp);
    auth_table_unref(&tb);
    return verdict;
}
