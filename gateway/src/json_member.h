/* SPDX-License-Identifier: Apache-2.0
 *
 * json_member: members of a JSON object, appended one after the other; what the message object of
 * HTTP and SSE (message.c) and the stored document (document_json.c) write in the same way.
 */
#ifndef SL_GATEWAY_JSON_MEMBER_H
#define SL_GATEWAY_JSON_MEMBER_H

#include "base/buf.h"
#include "message.h"

/* Steps that stop at the first error, so that each can be written as one line. */
#define JSON_TRY(expr)                                                                             \
    do {                                                                                           \
        if (err == SL_OK)                                                                          \
            err = (expr);                                                                          \
    } while (0)

/** The name and a colon; a comma before them unless the object has just been opened. @thread any */
SL_MUST_USE sl_err sl_json_member_name(sl_buf *out, const char *name);
/** @thread any */
SL_MUST_USE sl_err sl_json_member_text(sl_buf *out, const char *name, sl_slice text);
/** @thread any */
SL_MUST_USE sl_err sl_json_member_number(sl_buf *out, const char *name, int64_t value);
/** "userProperties": a list of {name, value} in their order. @thread any */
SL_MUST_USE sl_err sl_json_member_user_props(sl_buf *out, const sl_message_props *props);

#endif
