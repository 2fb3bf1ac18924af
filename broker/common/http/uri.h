/* SPDX-License-Identifier: Apache-2.0
 *
 * uri: percent-decoding, and the splitting and checking of request targets. Pure functions.
 */
#ifndef SL_HTTP_URI_H
#define SL_HTTP_URI_H

#include "base/buf.h"
#include "base/err.h"
#include "base/slice.h"

/** Appends text with %XX resolved; '+' becomes a space only when plus_is_space (HTML forms).
 * Errors SL_EINVAL with *why (static): a bad escape or a NUL. @thread any */
SL_MUST_USE sl_err sl_uri_decode(sl_slice text, bool plus_is_space, sl_buf *out, const char **why);
/** Appends text so that it may stand as one path segment or query value. @thread any */
SL_MUST_USE sl_err sl_uri_encode(sl_slice text, sl_buf *out);
/** Splits a request target (origin, absolute or asterisk form) into path and query, both still
 * encoded, without '?' and fragment. *why is static. @thread any */
SL_MUST_USE sl_err sl_uri_split(sl_slice target, sl_slice *path, sl_slice *query, const char **why);
/** Appends the decoded path. Refused (SL_EINVAL): what does not begin with '/', an encoded slash,
 * and "." or ".." segments, because a second reader could understand them differently.
 * @thread any */
SL_MUST_USE sl_err sl_uri_decode_path(sl_slice path, sl_buf *out, const char **why);

#endif
