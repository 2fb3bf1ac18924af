/* SPDX-License-Identifier: Apache-2.0
 *
 * json: helpers around JSON text: bounded check of a payload, exact scalar extraction by field
 * (numbers stay text, so 64-bit integers and decimals keep every digit), and safe writing.
 * The scanner never recurses deeper than SL_JSON_MAX_DEPTH and never changes the text.
 */
#ifndef SL_BASE_JSON_H
#define SL_BASE_JSON_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/slice.h"

#define SL_JSON_MAX_DEPTH 100

typedef enum sl_json_kind {
    SL_JSON_NULL,
    SL_JSON_BOOL,
    SL_JSON_NUMBER,
    SL_JSON_STRING,
    SL_JSON_ARRAY,
    SL_JSON_OBJECT
} sl_json_kind;

typedef struct sl_json_value {
    sl_json_kind kind;
    sl_slice raw; /* the text of the value, quotes and brackets included; borrowed */
} sl_json_value;

/** True when text is one valid JSON value (RFC 8259, UTF-8 checked, NaN and the like refused). */
bool sl_json_is_valid(sl_slice text);
/** Looks up a dotted path ("a.b.c") in the top object; with duplicate keys the last one counts.
 * Errors SL_EMALFORMED not JSON, SL_ENOTFOUND no such field. @thread any */
SL_MUST_USE sl_err sl_json_find(sl_slice text, const char *path, sl_json_value *out);
/** Appends the decoded text of a string value (escapes resolved to UTF-8, lone surrogates are
 * SL_EMALFORMED). @thread any */
SL_MUST_USE sl_err sl_json_decode_string(sl_json_value value, sl_buf *out);
/** Appends text as a JSON string with quotes; control bytes, <, >, & and U+2028/9 escaped.
 * Errors SL_EMALFORMED text is not UTF-8 (nothing is appended). @thread any */
SL_MUST_USE sl_err sl_json_write_string(sl_buf *out, sl_slice text);
/** True when bytes are well-formed UTF-8 (no surrogates, no overlong forms). @thread any */
bool sl_utf8_is_valid(sl_slice bytes);
/** Bytes of the well-formed character at the front and its number; 0 when there is none.
 * @thread any */
size_t sl_utf8_next(sl_slice bytes, uint32_t *code);
/** Appends standard base64 with padding. @thread any */
SL_MUST_USE sl_err sl_base64_write(sl_buf *out, sl_slice bytes);
/** Appends the decoded bytes; SL_EMALFORMED. @thread any */
SL_MUST_USE sl_err sl_base64_decode(sl_buf *out, sl_slice text);

#endif
