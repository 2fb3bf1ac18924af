/* SPDX-License-Identifier: Apache-2.0
 *
 * request: storage of one request. Strings lie in one buffer and are named by offset while the head
 * is read; after that the buffer does not move any more.
 */
#include "http/request.h"

#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "http/http_int.h"
#include "http/uri.h"

static const char *const method_names[SL_HTTP_METHODS] = {
    [SL_HTTP_GET] = "GET",         [SL_HTTP_HEAD] = "HEAD",   [SL_HTTP_POST] = "POST",
    [SL_HTTP_PUT] = "PUT",         [SL_HTTP_PATCH] = "PATCH", [SL_HTTP_DELETE] = "DELETE",
    [SL_HTTP_OPTIONS] = "OPTIONS",
};

const char *sl_http_method_name(sl_http_method method)
{
    return method < SL_HTTP_METHODS ? method_names[method] : "?";
}

sl_err sl_http_method_parse(const char *word, sl_http_method *out)
{
    for (int i = 0; i < SL_HTTP_METHODS; i++) {
        if (strcmp(word, method_names[i]) == 0) {
            *out = (sl_http_method)i;
            return SL_OK;
        }
    }
    return SL_EINVAL;
}

sl_http_req *http_req_new(size_t max_text_bytes, uint32_t max_headers, size_t max_body_bytes)
{
    sl_http_req *req = sl_calloc(1, sizeof(*req));
    req->magic = SL_HTTP_REQ_MAGIC;
    atomic_init(&req->refs, 1);
    // path and query are kept decoded beside the text as sent: three times is always enough
    sl_buf_init(&req->text, 3 * max_text_bytes + 4096);
    sl_buf_init(&req->body, max_body_bytes);
    req->header_max = max_headers;
    return req;
}

sl_http_req *sl_http_req_ref(sl_http_req *req)
{
    atomic_fetch_add_explicit(&req->refs, 1, memory_order_relaxed);
    return req;
}

static void clear_user(sl_http_req *req)
{
    sl_free(req->user);
    for (size_t i = 0; i < req->role_count; i++)
        sl_free(req->roles[i]);
    sl_free(req->roles);
    req->user = NULL;
    req->roles = NULL;
    req->role_count = 0;
}

void sl_http_req_unref(sl_http_req **reqp)
{
    sl_http_req *req = *reqp;
    if (req == NULL)
        return;
    *reqp = NULL;
    SL_CHECK(req, SL_HTTP_REQ_MAGIC);
    if (atomic_fetch_sub_explicit(&req->refs, 1, memory_order_acq_rel) != 1)
        return;
    req->magic = 0;
    if (req->drop != NULL)
        req->drop(req->ctx);
    clear_user(req);
    sl_buf_fini(&req->text);
    sl_buf_fini(&req->body);
    sl_free(req->headers);
    sl_free(req->params);
    sl_http_resp_free(&req->extra);
    sl_http_resp_free(&req->resp);
    sl_free(req);
}

static const char *text_at(const sl_http_req *req, uint32_t off)
{
    return (const char *)sl_buf_peek(&req->text).ptr + off;
}

static uint32_t text_end(const sl_http_req *req)
{
    return (uint32_t)sl_buf_peek(&req->text).len;
}

sl_err http_req_intern(sl_http_req *req, sl_slice text, uint32_t *off)
{
    uint32_t at = text_end(req);
    sl_err err = sl_buf_append_slice(&req->text, text);
    if (err == SL_OK)
        err = sl_buf_append_u8(&req->text, '\0');
    if (err == SL_OK)
        *off = at;
    return err;
}

sl_err http_req_add_target(sl_http_req *req, const char *at, size_t len)
{
    return sl_buf_append(&req->text, at, len);
}

sl_err http_req_add_name(sl_http_req *req, const char *at, size_t len)
{
    if (req->header_count == 0 || req->last_was_value) {
        if (req->header_count >= req->header_max)
            return SL_ETOOBIG;
        sl_err err = sl_buf_append_u8(&req->text, '\0'); // ends the target or the value before
        if (err != SL_OK)
            return err;
        if ((req->header_count & (req->header_count - 1)) == 0) { // 0, 1, 2, 4, 8 ...
            size_t cap = req->header_count == 0 ? 1 : 2 * (size_t)req->header_count;
            req->headers = sl_realloc(req->headers, cap * sizeof(http_pair));
        }
        req->headers[req->header_count++] = (http_pair){text_end(req), 0};
        req->last_was_value = false;
    }
    return sl_buf_append(&req->text, at, len);
}

sl_err http_req_add_value(sl_http_req *req, const char *at, size_t len)
{
    if (!req->last_was_value) {
        sl_err err = sl_buf_append_u8(&req->text, '\0');
        if (err != SL_OK)
            return err;
        req->headers[req->header_count - 1].value = text_end(req);
        req->last_was_value = true;
    }
    return sl_buf_append(&req->text, at, len);
}

/* One "name=value" of the query. */
static sl_err add_param(sl_http_req *req, sl_slice part, const char **why)
{
    if (req->param_count >= SL_HTTP_MAX_PARAMS) {
        *why = "too many query parameters";
        return SL_EINVAL;
    }
    const uint8_t *equal = memchr(part.ptr, '=', part.len);
    size_t name_len = equal == NULL ? part.len : (size_t)(equal - part.ptr);
    sl_slice value =
        equal == NULL ? sl_slice_of(NULL, 0) : sl_slice_of(equal + 1, part.len - name_len - 1);
    http_pair pair = {.name = text_end(req)};
    sl_err err = sl_uri_decode(sl_slice_of(part.ptr, name_len), false, &req->text, why);
    if (err == SL_OK)
        err = sl_buf_append_u8(&req->text, '\0');
    pair.value = text_end(req);
    if (err == SL_OK)
        err = sl_uri_decode(value, false, &req->text, why);
    if (err == SL_OK)
        err = sl_buf_append_u8(&req->text, '\0');
    if (err != SL_OK)
        return err;
    if (req->params == NULL)
        req->params = sl_calloc(SL_HTTP_MAX_PARAMS, sizeof(http_pair));
    req->params[req->param_count++] = pair;
    return SL_OK;
}

static sl_err add_query(sl_http_req *req, sl_slice query, const char **why)
{
    while (query.len > 0) {
        const uint8_t *amp = memchr(query.ptr, '&', query.len);
        size_t len = amp == NULL ? query.len : (size_t)(amp - query.ptr);
        sl_err err = len == 0 ? SL_OK : add_param(req, sl_slice_of(query.ptr, len), why);
        if (err != SL_OK)
            return err;
        size_t used = amp == NULL ? len : len + 1;
        query = sl_slice_of(query.ptr + used, query.len - used);
    }
    return SL_OK;
}

sl_err http_req_finish_head(sl_http_req *req, const char **why)
{
    *why = "request head too large";
    sl_err err = sl_buf_append_u8(&req->text, '\0');
    if (err != SL_OK)
        return err;
    // the decoded text grows the same buffer, so the target is read from a copy
    size_t target_len = strlen(text_at(req, 0));
    char *target = sl_strndup(text_at(req, 0), target_len);
    sl_slice path;
    sl_slice query;
    err = sl_uri_split(sl_slice_of(target, target_len), &path, &query, why);
    req->path = text_end(req);
    if (err == SL_OK)
        err = sl_uri_decode_path(path, &req->text, why);
    if (err == SL_OK)
        err = sl_buf_append_u8(&req->text, '\0');
    if (err == SL_OK)
        err = add_query(req, query, why);
    sl_free(target);
    return err;
}

sl_http_resp *http_req_resp(sl_http_req *req)
{
    if (req->resp == NULL)
        req->resp = sl_http_resp_new();
    return req->resp;
}

sl_http_method sl_http_req_method(const sl_http_req *req)
{
    SL_CHECK(req, SL_HTTP_REQ_MAGIC);
    return req->method;
}

const char *sl_http_req_path(const sl_http_req *req)
{
    return text_at(req, req->path);
}

const char *sl_http_req_target(const sl_http_req *req)
{
    return text_at(req, req->target);
}

const char *sl_http_req_param(const sl_http_req *req, const char *name)
{
    size_t len = strlen(name);
    for (uint32_t i = 0; i < req->name_count; i++) {
        const char *in_pattern = req->route->pattern + req->names[i].name;
        if (strncmp(in_pattern, name, len) == 0 && in_pattern[len] == '}')
            return text_at(req, req->names[i].value);
    }
    return NULL;
}

const char *sl_http_req_rest(const sl_http_req *req)
{
    return req->rest == 0 ? "" : text_at(req, req->rest);
}

const char *sl_http_req_header(const sl_http_req *req, const char *name)
{
    for (uint32_t i = 0; i < req->header_count; i++)
        if (strcasecmp(text_at(req, req->headers[i].name), name) == 0)
            return req->headers[i].value == 0 ? "" : text_at(req, req->headers[i].value);
    return NULL;
}

const char *sl_http_query_get(const sl_http_req *req, const char *name, unsigned *count)
{
    const char *first = NULL;
    unsigned n = 0;
    for (uint32_t i = 0; i < req->param_count; i++) {
        if (strcmp(text_at(req, req->params[i].name), name) != 0)
            continue;
        if (n++ == 0)
            first = text_at(req, req->params[i].value);
    }
    if (count != NULL)
        *count = n;
    return first;
}

bool sl_http_query_each(const sl_http_req *req, size_t index, const char **name, const char **value)
{
    if (index >= req->param_count)
        return false;
    *name = text_at(req, req->params[index].name);
    *value = text_at(req, req->params[index].value);
    return true;
}

bool sl_http_req_cookie(const sl_http_req *req, const char *name, sl_slice *value)
{
    size_t name_len = strlen(name);
    for (uint32_t i = 0; i < req->header_count; i++) {
        if (strcasecmp(text_at(req, req->headers[i].name), "cookie") != 0)
            continue;
        const char *at = text_at(req, req->headers[i].value);
        while (*at != '\0') {
            at += strspn(at, " ;");
            size_t len = strcspn(at, ";");
            if (len > name_len && at[name_len] == '=' && strncmp(at, name, name_len) == 0) {
                *value = sl_slice_of(at + name_len + 1, len - name_len - 1);
                return true;
            }
            at += len;
        }
    }
    return false;
}

sl_slice sl_http_req_body(const sl_http_req *req)
{
    return sl_buf_peek(&req->body);
}

const char *sl_http_req_peer_ip(const sl_http_req *req)
{
    return req->peer_ip;
}

bool sl_http_req_is_tls(const sl_http_req *req)
{
    return req->is_tls;
}

const char *sl_http_req_pattern(const sl_http_req *req)
{
    return req->route == NULL ? NULL : req->route->pattern;
}

bool sl_http_req_is_secure(const sl_http_req *req)
{
    return req->route == NULL || !req->route->open;
}

const char *sl_http_req_user(const sl_http_req *req)
{
    return req->user;
}

size_t sl_http_req_role_count(const sl_http_req *req)
{
    return req->role_count;
}

const char *sl_http_req_role(const sl_http_req *req, size_t index)
{
    SL_ASSERT(index < req->role_count);
    return req->roles[index];
}

bool sl_http_req_has_role(const sl_http_req *req, const char *role)
{
    for (size_t i = 0; i < req->role_count; i++)
        if (strcmp(req->roles[i], role) == 0)
            return true;
    return false;
}

void *sl_http_req_ctx(const sl_http_req *req)
{
    return req->ctx;
}

sl_loop *sl_http_req_loop(const sl_http_req *req)
{
    return req->lp;
}

void sl_http_req_set_user(sl_http_req *req, const char *name, const char *const *roles,
                          size_t role_count)
{
    clear_user(req);
    req->user = sl_strdup(name);
    req->roles = sl_calloc(role_count + 1, sizeof(char *));
    for (size_t i = 0; i < role_count; i++)
        req->roles[i] = sl_strdup(roles[i]);
    req->role_count = role_count;
}

void sl_http_req_set_ctx(sl_http_req *req, void *ctx, void (*drop)(void *ctx))
{
    if (req->drop != NULL)
        req->drop(req->ctx);
    req->ctx = ctx;
    req->drop = drop;
}

void sl_http_req_add_header(sl_http_req *req, const char *name, const char *value)
{
    if (req->extra == NULL)
        req->extra = sl_http_resp_new();
    sl_http_resp_add_header(req->extra, name, value);
}

sl_err sl_http_req_make(sl_http_method method, const char *target, sl_http_req **out,
                        const char **why)
{
    sl_http_req *req = http_req_new(64u << 10, 100, 16u << 20);
    req->method = method;
    memcpy(req->peer_ip, "127.0.0.1", sizeof("127.0.0.1"));
    sl_err err = http_req_add_target(req, target, strlen(target));
    *why = "request target too long";
    if (err == SL_OK)
        err = http_req_finish_head(req, why);
    if (err == SL_OK)
        *out = req;
    else
        sl_http_req_unref(&req);
    return err;
}

void sl_http_req_set_body(sl_http_req *req, sl_slice body)
{
    sl_buf_clear(&req->body);
    sl_err err = sl_buf_append_slice(&req->body, body);
    SL_ASSERT(err == SL_OK);
}

void sl_http_req_set_header(sl_http_req *req, const char *name, const char *value)
{
    SL_ASSERT(req->header_count < req->header_max);
    http_pair pair = {0};
    sl_err err = http_req_intern(req, sl_slice_str(name), &pair.name);
    if (err == SL_OK)
        err = http_req_intern(req, sl_slice_str(value), &pair.value);
    SL_ASSERT(err == SL_OK);
    req->headers = sl_realloc(req->headers, ((size_t)req->header_count + 1) * sizeof(http_pair));
    req->headers[req->header_count++] = pair;
}
