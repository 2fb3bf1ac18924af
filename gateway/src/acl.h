/* SPDX-License-Identifier: Apache-2.0
 *
 * acl: which role may read which topics. A requested filter is allowed when one granted filter of
 * one of the user's roles contains it (mqtt/topic.h); without a matching grant it is denied, and
 * nothing is granted by default. Also the one place that reads `topic` of a request, so that what
 * is checked is what is served. Path rights are http/auth.h's business.
 */
#ifndef SL_GATEWAY_ACL_H
#define SL_GATEWAY_ACL_H

#include <stdbool.h>
#include <stdint.h>

#include "gateway_conf.h"
#include "http/request.h"
#include "http/response.h"

typedef struct sl_acl sl_acl;

/** Nothing is granted until sl_acl_load. @thread init */
sl_acl *sl_acl_new(void);
void sl_acl_free(sl_acl **acl);
/** Replaces all grants (copied), also while requests are checked. enabled false: whoever may
 * request the path may read every topic. @thread any */
void sl_acl_load(sl_acl *acl, bool enabled, const sl_conf_grant *grants, size_t count);
/** @thread any */
bool sl_acl_allows(sl_acl *acl, const char *const *roles, size_t role_count, sl_slice filter);
/** The same for the roles of a request. Does not count. @thread any that holds the request */
bool sl_acl_allows_req(sl_acl *acl, const sl_http_req *req, sl_slice filter);
/** Goes up with every load: streams look again at their right when it changed. @thread any */
uint64_t sl_acl_version(const sl_acl *acl);
/** Requests denied by sl_acl_take_topic. @thread any */
uint64_t sl_acl_denied(const sl_acl *acl);

/**
 * The filter that a request asks for: the parameter `topic`, or def when there is none (NULL: it is
 * required). Checked for form and for the right to read it.
 * Errors  SL_EINVAL (400: missing, empty, given twice, not a filter, $share) and SL_EDENIED (403):
 *         resp is filled in; with_error adds "error" with the same text to the body.
 * *filter is borrowed from the request or is def.
 * @thread any that holds the request
 */
SL_MUST_USE sl_err sl_acl_take_topic(sl_acl *acl, const sl_http_req *req, const char *def,
                                     bool with_error, sl_http_resp *resp, const char **filter);

/** Body {"msg":text,"error":text} or {"msg":text}. */
void sl_acl_error(sl_http_resp *resp, int status, bool with_error, const char *text);

#endif
