/* SPDX-License-Identifier: Apache-2.0
 *
 * rho: configuration overrides in RESTHeart's syntax, "/path/to/key->JSON; ...", applied to a
 * YAML tree; and the masking of secrets wherever configuration is shown. A bad item is a warning in
 * the log and is skipped: the others still apply.
 *   path    absolute; a step may select in a list: users[1], users[userid='admin']
 *   value   JSON (single quotes allowed too); objects and arrays replace the whole node
 * Missing parents are created. ';' ends an item unless it is inside quotes.
 */
#ifndef SL_GATEWAY_RHO_H
#define SL_GATEWAY_RHO_H

#include "base/buf.h"
#include "base/slice.h"
#include "base/yaml.h"

/** Applies all items of text to the map root. comments: lines beginning with '#' are skipped (an
 * overrides file). source names it in the log. Returns how many were applied. @thread init */
unsigned sl_rho_apply(sl_yaml *root, const char *source, sl_slice text, bool comments);

/**
 * Applies an overrides file; the extension says what it is: .conf (this syntax, with comments),
 * .yml .yaml .json .jsonc (a map of path to value; keys without a leading '/' are skipped with a
 * warning).
 * Errors  SL_EINVAL, SL_EIO: *why is an owned message that names the file.
 * @thread init
 */
SL_MUST_USE sl_err sl_rho_apply_file(sl_yaml *root, const char *path, char **why);

/** True when a value under this key must not be shown: it holds password, pwd, secret or key. */
bool sl_rho_is_secret(const char *key);
/** Appends a node as one line of JSON, secrets masked; key is its name or NULL. @thread any */
SL_MUST_USE sl_err sl_rho_write_masked(sl_buf *out, const char *key, const sl_yaml *node);
/** Appends text with the password of a "scheme://user:password@host" hidden. @thread any */
SL_MUST_USE sl_err sl_rho_write_url(sl_buf *out, const char *text);

#endif
