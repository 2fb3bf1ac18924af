/* SPDX-License-Identifier: Apache-2.0
 *
 * response: a status, a list of headers and a body; and how they look on the wire.
 */
#include "http/response.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/json.h"
#include "http/http_int.h"

#define MAX_HEADERS_BYTES (64u << 10)

sl_http_resp *sl_http_resp_new(void)
{
    sl_http_resp *resp = sl_calloc(1, sizeof(*resp));
    resp->status = 200;
    sl_buf_init(&resp->headers, MAX_HEADERS_BYTES);
    sl_buf_init(&resp->body, SL_HTTP_MAX_BODY_BYTES);
    return resp;
}

void sl_http_resp_free(sl_http_resp **respp)
{
    sl_http_resp *resp = *respp;
    if (resp == NULL)
        return;
    *respp = NULL;
    sl_buf_fini(&resp->headers);
    sl_buf_fini(&resp->body);
    sl_free(resp);
}

void sl_http_resp_set_status(sl_http_resp *resp, int status)
{
    SL_ASSERT(status >= 200 && status <= 599);
    resp->status = status;
}

int sl_http_resp_status(const sl_http_resp *resp)
{
    return resp->status;
}

void sl_http_resp_add_header(sl_http_resp *resp, const char *name, const char *value)
{
    size_t value_len = strlen(value);
    uint8_t *room = NULL;
    sl_err err = sl_buf_append(&resp->headers, name, strlen(name) + 1);
    SL_ASSERT(err == SL_OK); // names and number of headers are ours
    err = sl_buf_reserve(&resp->headers, value_len + 1, &room);
    SL_ASSERT(err == SL_OK);
    for (size_t i = 0; i < value_len; i++) {
        uint8_t ch = (uint8_t)value[i];
        room[i] = ch < 0x20 || ch == 0x7f ? '?' : ch;
    }
    room[value_len] = '\0';
    sl_buf_commit(&resp->headers, value_len + 1);
}

bool http_resp_each(const sl_http_resp *resp, size_t *pos, const char **name, const char **value)
{
    sl_slice all = sl_buf_peek(&resp->headers);
    if (*pos >= all.len)
        return false;
    *name = (const char *)all.ptr + *pos;
    *pos += strlen(*name) + 1;
    *value = (const char *)all.ptr + *pos;
    *pos += strlen(*value) + 1;
    return true;
}

const char *sl_http_resp_header(const sl_http_resp *resp, const char *name)
{
    const char *each = NULL;
    const char *value = NULL;
    for (size_t pos = 0; http_resp_each(resp, &pos, &each, &value);)
        if (strcasecmp(each, name) == 0)
            return value;
    return NULL;
}

sl_buf *sl_http_resp_body(sl_http_resp *resp)
{
    return &resp->body;
}

/* Takes all headers of that name out. */
static void drop_header(sl_http_resp *resp, const char *name)
{
    if (sl_http_resp_header(resp, name) == NULL)
        return;
    sl_buf old = resp->headers;
    sl_buf_init(&resp->headers, MAX_HEADERS_BYTES);
    sl_slice all = sl_buf_peek(&old);
    for (size_t pos = 0; pos < all.len;) {
        const char *each = (const char *)all.ptr + pos;
        const char *value = each + strlen(each) + 1;
        if (strcasecmp(each, name) != 0)
            sl_http_resp_add_header(resp, each, value);
        pos += strlen(each) + 1 + strlen(value) + 1;
    }
    sl_buf_fini(&old);
}

void sl_http_resp_set(sl_http_resp *resp, int status, const char *content_type, sl_slice text)
{
    sl_http_resp_set_status(resp, status);
    drop_header(resp, "Content-Type");
    sl_http_resp_add_header(resp, "Content-Type", content_type);
    sl_buf_clear(&resp->body);
    sl_err err = sl_buf_append_slice(&resp->body, text);
    SL_ASSERT(err == SL_OK); // callers hand in what fits; larger bodies are built in the buffer
}

void sl_http_resp_msg(sl_http_resp *resp, int status, const char *msg)
{
    sl_http_resp_set(resp, status, "application/json", sl_slice_str("{\"msg\":"));
    sl_slice text = sl_slice_str(msg);
    if (!sl_utf8_is_valid(text))
        text = sl_slice_str("(message is not UTF-8)");
    sl_err err = sl_json_write_string(&resp->body, text);
    if (err == SL_OK)
        err = sl_buf_append_str(&resp->body, "}");
    SL_ASSERT(err == SL_OK);
}

void sl_http_resp_msgf(sl_http_resp *resp, int status, const char *fmt, ...)
{
    char text[513];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    // a cut in the middle of a character would leave text that is not UTF-8
    if (n >= (int)sizeof(text))
        for (size_t len = strlen(text); len > 0 && !sl_utf8_is_valid(sl_slice_str(text)); len--)
            text[len - 1] = '\0';
    sl_http_resp_msg(resp, status, text);
}

const char *sl_http_status_text(int status)
{
    static const struct {
        int status;
        const char *text;
    } table[] = {
        {100, "Continue"},
        {200, "OK"},
        {201, "Created"},
        {202, "Accepted"},
        {204, "No Content"},
        {206, "Partial Content"},
        {301, "Moved Permanently"},
        {302, "Found"},
        {303, "See Other"},
        {304, "Not Modified"},
        {307, "Temporary Redirect"},
        {308, "Permanent Redirect"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {406, "Not Acceptable"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {411, "Length Required"},
        {412, "Precondition Failed"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {422, "Unprocessable Content"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (table[i].status == status)
            return table[i].text;
    return "Status";
}

static void write_headers(const sl_http_resp *resp, sl_buf *out)
{
    const char *name = NULL;
    const char *value = NULL;
    for (size_t pos = 0; http_resp_each(resp, &pos, &name, &value);) {
        sl_err err = sl_buf_printf(out, "%s: %s\r\n", name, value);
        SL_ASSERT(err == SL_OK); // out is larger than two header buffers
    }
}

void http_resp_write_head(const sl_http_resp *resp, const sl_http_resp *extra, const char *date,
                          const char *framing, sl_buf *out)
{
    sl_err err = sl_buf_printf(out, "HTTP/1.1 %d %s\r\n%s", resp->status,
                               sl_http_status_text(resp->status), date);
    SL_ASSERT(err == SL_OK);
    write_headers(resp, out);
    if (extra != NULL)
        write_headers(extra, out);
    err = sl_buf_printf(out, "%s\r\n", framing);
    SL_ASSERT(err == SL_OK);
}
