/* SPDX-License-Identifier: Apache-2.0
 *
 * logger: builds a line on the stack and hands it to the kernel with one write, so lines of several
 * threads never mix and no lock is taken. Values come from peers: what a terminal or a log parser
 * could misread is escaped. The settings are process-wide by their nature (rule R12's exception).
 */
#include "base/logger.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"

/* A line fits PIPE_BUF, up to which a write to a pipe is atomic. */
#define LINE_BYTES  4096u
#define VALUE_BYTES 256u
#define CUT_MARK    " cut=true"

typedef struct line {
    char text[LINE_BYTES];
    size_t len;
    size_t max; /* contents end here, the mark and the LF still fit behind */
    bool cut;
} line;

static const char *const component_words[] = {
#define COMPONENT_WORD(name, word) word,
    SL_COMPONENT_MAP(COMPONENT_WORD)
#undef COMPONENT_WORD
};

static const char *const level_words[] = {"error", "warn", "info", "trace"};

_Static_assert(SL_C_COUNT <= 32, "the trace mask has 32 bits");

static _Atomic uint32_t trace_mask;
static _Atomic int max_level = SL_LEVEL_INFO;
static void (*line_sink)(void *arg, const char *line);
static void *line_sink_arg;

static void put(line *ln, const char *text, size_t len)
{
    if (ln->cut || len > ln->max - ln->len) {
        ln->cut = true;
        return;
    }
    memcpy(ln->text + ln->len, text, len);
    ln->len += len;
}

static void put_str(line *ln, const char *text)
{
    put(ln, text, strlen(text));
}

// What is neither printable nor harmless: controls of both ranges, and the marks that turn the
// direction of text or break lines where no LF is.
static bool is_risky(uint32_t code)
{
    return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x061C ||
           (code >= 0x200B && code <= 0x200F) || (code >= 0x2028 && code <= 0x202E) ||
           (code >= 0x2060 && code <= 0x206F) || code == 0xFEFF || (code & 0xFFFE) == 0xFFFE;
}

static bool needs_quotes(sl_slice value)
{
    for (size_t i = 0; i < value.len; i++) {
        uint8_t byte = value.ptr[i];
        if (byte <= 0x20 || byte >= 0x7F || byte == '"' || byte == '\\' || byte == '=')
            return true;
    }
    return value.len == 0;
}

static void put_escaped(line *ln, const uint8_t *ptr, size_t len)
{
    static const char hex[] = "0123456789abcdef";
    for (size_t i = 0; i < len; i++)
        put(ln, (char[]){'\\', 'x', hex[ptr[i] >> 4], hex[ptr[i] & 15]}, 4);
}

static void put_value(line *ln, sl_slice value)
{
    if (value.len <= VALUE_BYTES && !needs_quotes(value)) {
        put(ln, (const char *)value.ptr, value.len);
        return;
    }
    put_str(ln, "\"");
    size_t i = 0;
    while (i < value.len) {
        uint32_t code = 0;
        sl_slice rest = sl_slice_of(value.ptr + i, value.len - i);
        size_t len = sl_utf8_next(rest, &code);
        size_t step = len == 0 ? 1 : len;
        if (i + step > VALUE_BYTES) {
            put_str(ln, "...");
            break;
        }
        if (len == 0 || is_risky(code)) {
            put_escaped(ln, rest.ptr, step);
        } else {
            if (code == '"' || code == '\\')
                put_str(ln, "\\");
            put(ln, (const char *)rest.ptr, len);
        }
        i += step;
    }
    put_str(ln, "\"");
}

static void put_number(line *ln, const sl_kv *kv)
{
    char digits[24];
    int len = kv->kind == SL_KV_INT
                  ? snprintf(digits, sizeof(digits), "%" PRId64, kv->num)
                  : snprintf(digits, sizeof(digits), "%" PRIu64, (uint64_t)kv->num);
    put(ln, digits, (size_t)len);
}

static void put_kv(line *ln, const sl_kv *kv)
{
    put_str(ln, " ");
    put_str(ln, kv->key);
    put_str(ln, "=");
    switch (kv->kind) {
    case SL_KV_STR:
        put_value(ln, kv->str == NULL ? sl_slice_of(NULL, 0) : sl_slice_str(kv->str));
        break;
    case SL_KV_SLICE:
        put_value(ln, kv->slice);
        break;
    case SL_KV_INT:
    case SL_KV_UINT:
        put_number(ln, kv);
        break;
    }
}

static void put_time(line *ln)
{
    sl_clock ck;
    char iso[SL_CLOCK_ISO_BYTES];
    sl_clock_init(&ck);
    sl_clock_format_iso(sl_clock_wall_ns(&ck), iso);
    put(ln, iso, strlen("2026-11-30T20:26:50.123"));
    put_str(ln, "Z ");
}

static void write_stderr(const char *text, size_t len)
{
    // Only a signal or a full pipe splits a line; a reader that is gone costs the line, not us.
    while (len != 0) {
        ssize_t done = write(STDERR_FILENO, text, len);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return;
        text += done;
        len -= (size_t)done;
    }
}

void sl_logger_write(sl_level level, sl_component component, const char *event, const sl_kv *kvs)
{
    if (level != SL_LEVEL_TRACE &&
        (int)level > atomic_load_explicit(&max_level, memory_order_relaxed))
        return;
    int saved_errno = errno;
    line ln;
    ln.len = 0;
    ln.cut = false;
    ln.max = LINE_BYTES - sizeof(CUT_MARK) - 1;
    put_time(&ln);
    put_str(&ln, level_words[level]);
    put_str(&ln, " ");
    put_str(&ln, event);
    put_str(&ln, " component=");
    put_str(&ln, component_words[component]);
    for (const sl_kv *kv = kvs; kv->key != NULL && !ln.cut; kv++) {
        // A pair that does not fit is left out whole: half an escape or quote would mislead.
        size_t before = ln.len;
        put_kv(&ln, kv);
        if (ln.cut)
            ln.len = before;
    }
    if (ln.cut) {
        memcpy(ln.text + ln.len, CUT_MARK, sizeof(CUT_MARK) - 1);
        ln.len += sizeof(CUT_MARK) - 1;
    }
    if (line_sink != NULL) {
        ln.text[ln.len] = '\0';
        line_sink(line_sink_arg, ln.text);
    } else {
        ln.text[ln.len++] = '\n';
        write_stderr(ln.text, ln.len);
    }
    errno = saved_errno;
}

bool sl_logger_traces(sl_component component)
{
    return (atomic_load_explicit(&trace_mask, memory_order_relaxed) >> component & 1) != 0;
}

static bool find_component(sl_slice word, uint32_t *mask)
{
    if (sl_slice_equal(word, sl_slice_str("all"))) {
        *mask = UINT32_MAX;
        return true;
    }
    for (unsigned i = 0; i < SL_C_COUNT; i++) {
        if (sl_slice_equal(word, sl_slice_str(component_words[i]))) {
            *mask = 1u << i;
            return true;
        }
    }
    return false;
}

sl_err sl_logger_set_trace(const char *list, const char **why)
{
    uint32_t mask = 0;
    for (const char *at = list; *at != '\0';) {
        at += strspn(at, ", ");
        size_t len = strcspn(at, ", ");
        if (len == 0)
            break;
        bool takes_out = *at == '-';
        uint32_t bits;
        if (!find_component(sl_slice_of(at + takes_out, len - takes_out), &bits)) {
            *why = at;
            return SL_EINVAL;
        }
        mask = takes_out ? mask & ~bits : mask | bits;
        at += len;
    }
    atomic_store_explicit(&trace_mask, mask, memory_order_relaxed);
    return SL_OK;
}

void sl_logger_set_level(sl_level level)
{
    atomic_store_explicit(&max_level, (int)level, memory_order_relaxed);
}

void sl_logger_set_sink(void (*sink)(void *arg, const char *line), void *arg)
{
    line_sink = sink;
    line_sink_arg = arg;
}

bool sl_log_limit_pass_at(sl_log_limit *limit, int64_t now_ms, uint32_t burst, int64_t period_ms,
                          uint32_t *suppressed)
{
    *suppressed = 0;
    // 0 marks storage that was never used, so the clock's own 0 is moved out of the way.
    int64_t now = now_ms == 0 ? 1 : now_ms;
    int64_t window = atomic_load_explicit(&limit->_window_ms, memory_order_relaxed);
    if (window == 0 || now - window >= period_ms) {
        // One thread opens the new window; the losers count as its next lines.
        if (atomic_compare_exchange_strong(&limit->_window_ms, &window, now)) {
            atomic_store(&limit->_count, 0);
            *suppressed = atomic_exchange(&limit->_suppressed, 0);
        }
    }
    if (atomic_load_explicit(&limit->_count, memory_order_relaxed) < burst &&
        atomic_fetch_add(&limit->_count, 1) < burst)
        return true;
    // What this call was told about goes back: its line is not written.
    atomic_fetch_add(&limit->_suppressed, 1 + *suppressed);
    *suppressed = 0;
    return false;
}

bool sl_log_limit_pass(sl_log_limit *limit, uint32_t burst, int64_t period_ms, uint32_t *suppressed)
{
    sl_clock ck;
    sl_clock_init(&ck);
    return sl_log_limit_pass_at(limit, sl_clock_mono(&ck), burst, period_ms, suppressed);
}
