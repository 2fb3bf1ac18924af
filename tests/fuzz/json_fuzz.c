/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON and text helpers of base/json.h: the first line is a path, the rest a document. Values found
 * lie inside the document; strings and base64 survive being written and read again.
 */
#include "base/buf.h"
#include "base/json.h"
#include "fuzz.h"

#define MAX_OUT (1u << 20)

static void check_string(sl_json_value value)
{
    sl_buf text, written, again;
    sl_buf_init(&text, MAX_OUT);
    sl_buf_init(&written, MAX_OUT);
    sl_buf_init(&again, MAX_OUT);
    if (sl_json_decode_string(value, &text) == SL_OK) {
        SL_ASSERT(sl_utf8_is_valid(sl_buf_peek(&text)));
        SL_ASSERT(sl_json_write_string(&written, sl_buf_peek(&text)) == SL_OK);
        SL_ASSERT(sl_json_is_valid(sl_buf_peek(&written)));
        sl_json_value back = {.kind = SL_JSON_STRING, .raw = sl_buf_peek(&written)};
        SL_ASSERT(sl_json_decode_string(back, &again) == SL_OK);
        SL_ASSERT(sl_slice_equal(sl_buf_peek(&text), sl_buf_peek(&again)));
    }
    sl_buf_fini(&text);
    sl_buf_fini(&written);
    sl_buf_fini(&again);
}

static void check_base64(sl_slice bytes)
{
    sl_buf text, back;
    sl_buf_init(&text, MAX_OUT);
    sl_buf_init(&back, MAX_OUT);
    SL_ASSERT(sl_base64_write(&text, bytes) == SL_OK);
    SL_ASSERT(sl_base64_decode(&back, sl_buf_peek(&text)) == SL_OK);
    SL_ASSERT(sl_slice_equal(bytes, sl_buf_peek(&back)));
    sl_buf_clear(&back);
    (void)!sl_base64_decode(&back, bytes); // any answer, no fault
    sl_buf_fini(&text);
    sl_buf_fini(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *line = size > 0 ? memchr(data, '\n', size) : NULL;
    if (line == NULL)
        return 0;
    char *path = sl_strndup(data, (size_t)(line - data));
    sl_slice text = sl_slice_of(line + 1, size - (size_t)(line + 1 - data));
    uint8_t *copy = fuzz_copy(text);
    text.ptr = copy;
    bool valid = sl_json_is_valid(text);
    (void)sl_utf8_is_valid(text);
    sl_json_value value;
    sl_err err = sl_json_find(text, path, &value);
    if (err == SL_OK) {
        SL_ASSERT(value.raw.ptr >= copy && value.raw.ptr + value.raw.len <= copy + text.len);
        if (valid)
            SL_ASSERT(sl_json_is_valid(value.raw));
        if (value.kind == SL_JSON_STRING)
            check_string(value);
    } else {
        SL_ASSERT(err == SL_EMALFORMED || err == SL_ENOTFOUND);
    }
    check_base64(text);
    sl_free(copy);
    sl_free(path);
    return 0;
}
