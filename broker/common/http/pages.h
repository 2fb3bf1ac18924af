/* SPDX-License-Identifier: Apache-2.0
 *
 * pages: handlers that every process needs: /ping and the Prometheus page.
 */
#ifndef SL_HTTP_PAGES_H
#define SL_HTTP_PAGES_H

#include "http/server.h"

/** Answers {"message","client_ip","host","version"}; arg: NUL-ended message, e.g. "Greetings from
 * Sluice!". Route it as on_loop, open. @thread loop */
void sl_http_page_ping(void *arg, sl_http_stream *st);

typedef struct sl_http_metrics {
    sl_stats *const *tables; /* all of them make the page, in order */
    size_t table_count;
} sl_http_metrics;

/** Prometheus text 0.0.4 of all tables; arg: an sl_http_metrics that lives on. @thread http */
void sl_http_page_metrics(void *arg, const sl_http_req *req, sl_http_resp *resp);

#endif
