/* SPDX-License-Identifier: Apache-2.0
 *
 * json_member: see json_member.h.
 */
#include "json_member.h"

#include "base/json.h"

sl_err sl_json_member_name(sl_buf *out, const char *name)
{
    sl_slice sofar = sl_buf_peek(out);
    bool first = sofar.len > 0 && sofar.ptr[sofar.len - 1] == '{';
    return sl_buf_printf(out, "%s\"%s\":", first ? "" : ",", name);
}

sl_err sl_json_member_text(sl_buf *out, const char *name, sl_slice text)
{
    sl_err err = sl_json_member_name(out, name);
    JSON_TRY(sl_json_write_string(out, text));
    return err;
}

sl_err sl_json_member_number(sl_buf *out, const char *name, int64_t value)
{
    sl_err err = sl_json_member_name(out, name);
    JSON_TRY(sl_buf_printf(out, "%lld", (long long)value));
    return err;
}

sl_err sl_json_member_user_props(sl_buf *out, const sl_message_props *props)
{
    sl_err err = sl_json_member_name(out, "userProperties");
    JSON_TRY(sl_buf_append_u8(out, '['));
    for (uint32_t i = 0; i < props->user_count; i++) {
        JSON_TRY(sl_buf_append_str(out, i == 0 ? "{" : ",{"));
        JSON_TRY(sl_json_member_text(out, "name", props->user[i].name));
        JSON_TRY(sl_json_member_text(out, "value", props->user[i].value));
        JSON_TRY(sl_buf_append_u8(out, '}'));
    }
    JSON_TRY(sl_buf_append_u8(out, ']'));
    return err;
}
