/* SPDX-License-Identifier: Apache-2.0
 *
 * predicate: conditions over a request in the words of Undertow's predicate language, as path ACLs
 * write them:
 *
 *   path-prefix('/mqtt') and method(GET)
 *   path-template('/users/{id}') and equals(@user.userid, ${id})
 *   path('/ping') or (not qparams-contain(debug) and method(value={GET, HEAD}))
 *
 * Words: path, path-prefix (whole segments), path-suffix, path-template, method, equals,
 * qparams-contain, qparams-whitelist, qparams-blacklist, qparams-size, true, false; and, or, not,
 * parentheses. Arguments are bare words or quoted with ' or ", lists in braces, [..] works like
 * (..), and "name=" may stand before an argument. Variables: @user.userid and %u (the user), %m
 * (method), %R (path), %a (address), %{q,name} (query), %{i,name} (header), ${name} (from a
 * path-template before it).
 * A parsed predicate is read-only: any thread.
 */
#ifndef SL_HTTP_PREDICATE_H
#define SL_HTTP_PREDICATE_H

#include "base/err.h"
#include "http/request.h"

typedef struct sl_predicate sl_predicate;

#define SL_PREDICATE_MAX_BYTES 4096
#define SL_PREDICATE_MAX_NODES 256

/** Errors SL_EINVAL with *why (owned): what is wrong and at which column. @thread any */
SL_MUST_USE sl_err sl_predicate_parse(sl_slice text, sl_predicate **out, char **why);
void sl_predicate_free(sl_predicate **pr);
/** @thread any that holds the request */
bool sl_predicate_match(const sl_predicate *pr, const sl_http_req *req);

#endif
