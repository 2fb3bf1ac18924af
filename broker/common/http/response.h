/* SPDX-License-Identifier: Apache-2.0
 *
 * response: what a handler or a gate fills in: status, headers, body. The front adds Date,
 * Content-Length, Connection and CORS by itself.
 */
#ifndef SL_HTTP_RESPONSE_H
#define SL_HTTP_RESPONSE_H

#include "base/buf.h"
#include "base/err.h"

typedef struct sl_http_resp sl_http_resp;

#define SL_HTTP_MAX_BODY_BYTES (256u << 20) /* of a response */

/* @thread whoever was given the response. New: status 200, no headers, no body. */
void sl_http_resp_set_status(sl_http_resp *resp, int status);
int sl_http_resp_status(const sl_http_resp *resp);
/** Copies; control bytes in value become '?', so no header can be forged. */
void sl_http_resp_add_header(sl_http_resp *resp, const char *name, const char *value);
/** The body to append to (at most SL_HTTP_MAX_BODY_BYTES). */
sl_buf *sl_http_resp_body(sl_http_resp *resp);
/** Status, content type, and the body replaced by a copy of text. */
void sl_http_resp_set(sl_http_resp *resp, int status, const char *content_type, sl_slice text);
/** Body {"msg":"..."} with content type application/json. */
void sl_http_resp_msg(sl_http_resp *resp, int status, const char *msg);
/** Same with printf; the message is cut at 512 bytes. */
void sl_http_resp_msgf(sl_http_resp *resp, int status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/** "Not Found"; static. */
const char *sl_http_status_text(int status);

/** For tests of handlers and gates without a server. @thread any */
sl_http_resp *sl_http_resp_new(void);
void sl_http_resp_free(sl_http_resp **resp);
/** First header of that name (any case), or NULL. */
const char *sl_http_resp_header(const sl_http_resp *resp, const char *name);

#endif
