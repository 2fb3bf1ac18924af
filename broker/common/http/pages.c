/* SPDX-License-Identifier: Apache-2.0
 *
 * pages: /ping and the Prometheus page.
 */
#include "http/pages.h"

#include <string.h>

#include "base/assert.h"
#include "base/json.h"

static void add_member(sl_buf *out, const char *before, const char *value)
{
    sl_slice text = sl_slice_str(value);
    if (!sl_utf8_is_valid(text))
        text = sl_slice_str("");
    sl_err err = sl_buf_append_str(out, before);
    if (err == SL_OK)
        err = sl_json_write_string(out, text);
    SL_ASSERT(err == SL_OK); // a head's worth of text at most
}

void sl_http_page_ping(void *arg, sl_http_stream *st)
{
    const sl_http_req *req = sl_http_stream_req(st);
    sl_http_resp *resp = sl_http_stream_resp(st);
    const char *host = sl_http_req_header(req, "host");
    sl_http_resp_set(resp, 200, "application/json", sl_slice_str(""));
    sl_buf *body = sl_http_resp_body(resp);
    add_member(body, "{\"message\":", arg);
    add_member(body, ",\"client_ip\":", sl_http_req_peer_ip(req));
    add_member(body, ",\"host\":", host == NULL ? "" : host);
    add_member(body, ",\"version\":", SL_VERSION);
    sl_err err = sl_buf_append_str(body, "}");
    SL_ASSERT(err == SL_OK);
    sl_http_stream_reply(st);
}

void sl_http_page_metrics(void *arg, const sl_http_req *req, sl_http_resp *resp)
{
    (void)req;
    const sl_http_metrics *metrics = arg;
    sl_http_resp_set(resp, 200, "text/plain; version=0.0.4; charset=utf-8", sl_slice_str(""));
    for (size_t i = 0; i < metrics->table_count; i++) {
        sl_err err = sl_stats_write_prometheus(metrics->tables[i], sl_http_resp_body(resp));
        if (err != SL_OK) {
            sl_http_resp_msgf(resp, 500, "metrics page: %s", sl_err_text(err));
            return;
        }
    }
}
