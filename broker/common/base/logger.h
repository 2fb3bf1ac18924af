/* SPDX-License-Identifier: Apache-2.0
 *
 * logger: one line per event on stderr (or a sink given by tests):
 *   2026-11-30T20:26:50.123Z info BROKER-READY component=broker tcp=127.0.0.1:1883
 * Not the durable log (log/log.h). Values with spaces, quotes, '=' or control bytes are quoted and
 * escaped (C-style \xNN, so CR LF and ESC never reach a terminal) and cut at 256 bytes.
 * Levels: error (someone must act), warn (look), info (life cycle), trace (per component, off).
 */
#ifndef SL_BASE_LOGGER_H
#define SL_BASE_LOGGER_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"

typedef enum sl_level { SL_LEVEL_ERROR, SL_LEVEL_WARN, SL_LEVEL_INFO, SL_LEVEL_TRACE } sl_level;

/* Trace components: name in SLUICE_TRACE / logging.trace (comma list, "all", "-name" takes out). */
/* clang-format off */
#define SL_COMPONENT_MAP(X) \
    X(BASE, "base") \
    X(LOOP, "loop") \
    X(NET, "net") \
    X(HTTP, "http") \
    X(MQTT, "mqtt") \
    X(LOG, "log") \
    X(INBOX, "inbox") \
    X(DB, "db") \
    X(BROKER, "broker") \
    X(ACTOR, "actor") \
    X(SESSION, "session") \
    X(ROUTE, "route") \
    X(DISPATCH, "dispatch") \
    X(GATEWAY, "gateway") \
    X(ROUTER, "router") \
    X(SSE, "sse") \
    X(WRITER, "writer") \
    X(SINK, "sink") \
    X(AUTH, "auth") \
    X(CONF, "conf") \
    X(TEST, "test")
/* clang-format on */

typedef enum sl_component {
#define SL_COMPONENT_ENUM(name, word) SL_C_##name,
    SL_COMPONENT_MAP(SL_COMPONENT_ENUM)
#undef SL_COMPONENT_ENUM
        SL_C_COUNT
} sl_component;

/* One key=value pair; made by the macros below, values are borrowed for the call. */
typedef struct sl_kv {
    const char *key;
    enum { SL_KV_STR, SL_KV_SLICE, SL_KV_INT, SL_KV_UINT } kind;
    const char *str;
    sl_slice slice;
    int64_t num;
} sl_kv;

#define SL_S(k, v) ((sl_kv){.key = (k), .kind = SL_KV_STR, .str = (v)})
#define SL_B(k, v) ((sl_kv){.key = (k), .kind = SL_KV_SLICE, .slice = (v)})
#define SL_I(k, v) ((sl_kv){.key = (k), .kind = SL_KV_INT, .num = (int64_t)(v)})
#define SL_U(k, v) ((sl_kv){.key = (k), .kind = SL_KV_UINT, .num = (int64_t)(uint64_t)(v)})
#define SL_E(v)    ((sl_kv){.key = "error", .kind = SL_KV_STR, .str = sl_err_name(v)})

/* sl_info(SL_C_BROKER, "BROKER-READY", SL_S("tcp", addr), SL_I("port", 1883)); */
#define SL_LOG_AT(level, component, event, ...)                                                    \
    sl_logger_write((level), (component), (event),                                                 \
                    (const sl_kv[]){__VA_ARGS__ __VA_OPT__(, )(sl_kv){.key = NULL}})
#define sl_error(component, event, ...)                                                            \
    SL_LOG_AT(SL_LEVEL_ERROR, component, event __VA_OPT__(, ) __VA_ARGS__)
#define sl_warn(component, event, ...)                                                             \
    SL_LOG_AT(SL_LEVEL_WARN, component, event __VA_OPT__(, ) __VA_ARGS__)
#define sl_info(component, event, ...)                                                             \
    SL_LOG_AT(SL_LEVEL_INFO, component, event __VA_OPT__(, ) __VA_ARGS__)
#define sl_trace(component, event, ...)                                                            \
    (sl_logger_traces(component)                                                                   \
         ? SL_LOG_AT(SL_LEVEL_TRACE, component, event __VA_OPT__(, ) __VA_ARGS__)                  \
         : (void)0)

/* A per-place limiter for floods: at most `burst` lines a `period_ms`; then one summary line with
 * suppressed=N when the next period begins. Zero-initialised storage is ready. Any thread. */
typedef struct sl_log_limit {
    _Atomic int64_t _window_ms;
    _Atomic uint32_t _count;
    _Atomic uint32_t _suppressed;
} sl_log_limit;

/** True when the line may be written; *suppressed gets how many were held back before (0 mostly).
 */
bool sl_log_limit_pass(sl_log_limit *limit, uint32_t burst, int64_t period_ms,
                       uint32_t *suppressed);
/** The same at a time given by the caller (a fake clock). @thread any */
bool sl_log_limit_pass_at(sl_log_limit *limit, int64_t now_ms, uint32_t burst, int64_t period_ms,
                          uint32_t *suppressed);

/** Writes one line, whole, with one write(2). kvs ends with a NULL key. A line ends at 4 KB: pairs
 * that do not fit are left out and the line says cut=true. @thread any */
void sl_logger_write(sl_level level, sl_component component, const char *event, const sl_kv *kvs);
/** @thread any */
bool sl_logger_traces(sl_component component);
/** "session,log,-net" or "all"; SL_EINVAL: *why points at the unknown word inside
 * list, and nothing changed. @thread init */
SL_MUST_USE sl_err sl_logger_set_trace(const char *list, const char **why);
/** Lines above this level are dropped (trace is by component). @thread init */
void sl_logger_set_level(sl_level level);
/** NULL: stderr again. The line has no LF. @thread init */
void sl_logger_set_sink(void (*sink)(void *arg, const char *line), void *arg);

#endif
