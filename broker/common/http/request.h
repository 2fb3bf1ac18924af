/* SPDX-License-Identifier: Apache-2.0
 *
 * request: one HTTP request as gate and handlers see it. Everything in it is decoded and checked
 * once by the front (http/server.h), so that whoever authorizes and whoever serves read the same
 * values. Read-only for handlers; counted, because a handler of libmicrohttpd's threads may outlive
 * the connection. All strings are NUL ended and hold no other NUL.
 */
#ifndef SL_HTTP_REQUEST_H
#define SL_HTTP_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"

typedef enum sl_http_method {
    SL_HTTP_GET,
    SL_HTTP_HEAD,
    SL_HTTP_POST,
    SL_HTTP_PUT,
    SL_HTTP_PATCH,
    SL_HTTP_DELETE,
    SL_HTTP_OPTIONS,
    SL_HTTP_METHODS
} sl_http_method;

typedef struct sl_http_req sl_http_req;

/** "GET". @thread any */
const char *sl_http_method_name(sl_http_method method);
/** SL_EINVAL for a word that is none of ours. @thread any */
SL_MUST_USE sl_err sl_http_method_parse(const char *word, sl_http_method *out);

/* Readers: borrowed from the request. @thread whoever holds the request */
sl_http_method sl_http_req_method(const sl_http_req *req);
/** Percent-decoded path, begins with '/'; an encoded '/', a NUL, and "." or ".." segments were
 * refused by the front. */
const char *sl_http_req_path(const sl_http_req *req);
/** Path and query as sent. */
const char *sl_http_req_target(const sl_http_req *req);
/** Value of {name} in the pattern of the route, or NULL. */
const char *sl_http_req_param(const sl_http_req *req, const char *name);
/** What follows the prefix of a route that ends in a star, without leading '/' ("" for the prefix
 * itself). */
const char *sl_http_req_rest(const sl_http_req *req);
/** First value of a header (name in any case), or NULL. */
const char *sl_http_req_header(const sl_http_req *req, const char *name);
/** First value of a query parameter, or NULL; *count (may be NULL) says how often it was given, so
 * that repeats can be refused. '+' stays '+' (cases C105). */
const char *sl_http_query_get(const sl_http_req *req, const char *name, unsigned *count);
/** The index-th parameter in order, false behind the last; name and value are borrowed. */
bool sl_http_query_each(const sl_http_req *req, size_t index, const char **name,
                        const char **value);
/** Value of a cookie as sent; *value is borrowed. False when absent. */
bool sl_http_req_cookie(const sl_http_req *req, const char *name, sl_slice *value);
/** The whole body (empty before it was read: the gate never sees it). */
sl_slice sl_http_req_body(const sl_http_req *req);
/** The peer's address alone: "127.0.0.1". */
const char *sl_http_req_peer_ip(const sl_http_req *req);
/** True when the peer speaks TLS to us. */
bool sl_http_req_is_tls(const sl_http_req *req);
/** Pattern of the route that matched, or NULL while none did. */
const char *sl_http_req_pattern(const sl_http_req *req);
/** The route's secure flag (true while no route matched). */
bool sl_http_req_is_secure(const sl_http_req *req);

/* Who asks, as the gate found out. */
const char *sl_http_req_user(const sl_http_req *req); /* NULL: nobody logged in */
size_t sl_http_req_role_count(const sl_http_req *req);
const char *sl_http_req_role(const sl_http_req *req, size_t index);
bool sl_http_req_has_role(const sl_http_req *req, const char *role);
/** What a gate of yours attached, or NULL. */
void *sl_http_req_ctx(const sl_http_req *req);

/* For gates only, before they let the request pass. @thread loop */
/** Copies. */
void sl_http_req_set_user(sl_http_req *req, const char *name, const char *const *roles,
                          size_t role_count);
/** drop(ctx) runs with the request's end, on any thread; may be NULL. */
void sl_http_req_set_ctx(sl_http_req *req, void *ctx, void (*drop)(void *ctx));
/** A header that goes out with whichever response follows. Copies. */
void sl_http_req_add_header(sl_http_req *req, const char *name, const char *value);

/** For tests of handlers, gates and predicates without a server: target is path and query, peer
 * 127.0.0.1. SL_EINVAL as the front would answer 400; *why is static. @thread any */
SL_MUST_USE sl_err sl_http_req_make(sl_http_method method, const char *target, sl_http_req **out,
                                    const char **why);
/** Copies; replaces the body. @thread any */
void sl_http_req_set_body(sl_http_req *req, sl_slice body);
/** A request header of a made request. @thread any */
void sl_http_req_set_header(sl_http_req *req, const char *name, const char *value);

/** @thread any */
sl_http_req *sl_http_req_ref(sl_http_req *req);
/** Sets *req to NULL; accepts NULL inside. @thread any */
void sl_http_req_unref(sl_http_req **req);

#endif
