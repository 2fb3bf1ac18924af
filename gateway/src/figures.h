/* SPDX-License-Identifier: Apache-2.0
 *
 * figures: the gateway's counters and gauges as rows of a statistics table; each value is asked
 * from the part that keeps it when a page is made. The rows also make docs/metrics-gateway.md.
 */
#ifndef SL_GATEWAY_FIGURES_H
#define SL_GATEWAY_FIGURES_H

#include "acl.h"
#include "base/stats.h"
#include "http/server.h"
#include "mqtt_session.h"
#include "router.h"
#include "sse.h"
#include "writer.h"

/* What the figures are asked from; a part that is off is NULL. */
typedef struct sl_figures_parts {
    sl_router *rt;
    sl_session *sn;
    sl_sse *sse;
    sl_acl *acl;
    sl_writer *writer;
    sl_http_server *sv;
} sl_figures_parts;

typedef struct sl_figures sl_figures;

/** mqtt false: HTTP rows only. @thread init */
sl_figures *sl_figures_new(const sl_figures_parts *parts, bool mqtt);
void sl_figures_free(sl_figures **fg);
/** For the metrics page. */
sl_stats *const *sl_figures_tables(const sl_figures *fg, size_t *count);
/** Appends the page of one family by its name. SL_ENOTFOUND. @thread any */
SL_MUST_USE sl_err sl_figures_write_family(const sl_figures *fg, const char *name, sl_buf *out);
/** Appends ["/name", ...]. @thread any */
SL_MUST_USE sl_err sl_figures_write_names(const sl_figures *fg, sl_buf *out);
/** docs/metrics-gateway.md. @thread init */
SL_MUST_USE sl_err sl_figures_write_reference(sl_buf *out);

#endif
