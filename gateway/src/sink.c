/* SPDX-License-Identifier: Apache-2.0
 *
 * sink: front functions of the port: choice of the adapter, checks of names, results.
 */
#include "sink.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/json.h"
#include "base/logger.h"

#define SINK_MAGIC           0x53536e6bu
#define DATABASE_NAME_MAX    63
#define COLLECTION_NAME_MAX  120
#define DATABASE_NAME_REFUSE "/\\. \"$*<>:|?"

struct sl_sink {
    uint32_t magic;
    const sl_sink_ops *ops;
    void *self; /* the adapter's */
};

sl_err sl_sink_open_with(const sl_sink_ops *ops, const sl_sink_conf *cf, sl_sink **out, char **why)
{
    sl_sink *sink = sl_calloc(1, sizeof *sink);
    sink->magic = SINK_MAGIC;
    sink->ops = ops;
    sl_err err = ops->open(&sink->self, cf, why);
    if (err != SL_OK) {
        sl_free(sink);
        return err;
    }
    sl_info(SL_C_SINK, "SINK-OPEN", SL_S("adapter", ops->name));
    *out = sink;
    return SL_OK;
}

sl_err sl_sink_open(const sl_sink_conf *cf, sl_sink **out, char **why)
{
    if (cf->connection_string == NULL)
        return sl_sink_open_with(&sl_sink_sqlite_ops, cf, out, why);
#ifdef SL_WITH_MONGO
    return sl_sink_open_with(&sl_sink_mongo_ops, cf, out, why);
#else
    *why = sl_strdup("mclient/connection-string: this build has no MongoDB sink (SL_WITH_MONGO)");
    return SL_EUNSUPPORTED;
#endif
}

void sl_sink_close(sl_sink **sink)
{
    sl_sink *own = *sink;
    *sink = NULL;
    if (own == NULL)
        return;
    SL_CHECK(own, SINK_MAGIC);
    own->ops->close(own->self);
    own->magic = 0;
    sl_free(own);
}

const char *sl_sink_name(const sl_sink *sink)
{
    SL_CHECK(sink, SINK_MAGIC);
    return sink->ops->name;
}

static bool is_name(const char *text, size_t max)
{
    size_t len = text == NULL ? 0 : strlen(text);
    return len > 0 && len <= max && sl_utf8_is_valid(sl_slice_str(text));
}

sl_err sl_sink_target_check(const sl_sink_target *target, const char **why)
{
    if (!is_name(target->database, DATABASE_NAME_MAX) ||
        strpbrk(target->database, DATABASE_NAME_REFUSE) != NULL) {
        *why = "database must have 1 to 63 bytes, none of them / \\ . \" $ * < > : | ? or blank";
        return SL_EINVAL;
    }
    if (!is_name(target->collection, COLLECTION_NAME_MAX) ||
        strchr(target->collection, '$') != NULL || target->collection[0] == '.' ||
        strncmp(target->collection, "system.", 7) == 0) {
        *why = "collection must have 1 to 120 bytes, no $, and not begin with \".\" or \"system.\"";
        return SL_EINVAL;
    }
    return SL_OK;
}

void sl_sink_write(sl_sink *sink, const sl_sink_target *target, const sl_document *const *docs,
                   size_t count, sl_sink_result *res)
{
    SL_CHECK(sink, SINK_MAGIC);
    if (count == 0)
        return;
    sink->ops->write(sink->self, target, docs, count, res);
    for (size_t i = 0; i < count; i++) {
        if (res[i].reason[0] == '\0' && res[i].outcome != SL_SINK_STORED)
            snprintf(res[i].reason, sizeof res[i].reason, "%s",
                     sl_sink_outcome_word(res[i].outcome));
    }
}

void sl_sink_probe(sl_sink *sink, sl_sink_result *res)
{
    SL_CHECK(sink, SINK_MAGIC);
    sink->ops->probe(sink->self, res);
}

const char *sl_sink_outcome_word(sl_sink_outcome outcome)
{
    switch (outcome) {
    case SL_SINK_STORED:
        return "stored";
    case SL_SINK_DUPLICATE:
        return "duplicate";
    case SL_SINK_CONFLICT:
        return "id-conflict";
    case SL_SINK_PERMANENT:
        return "refused";
    case SL_SINK_TRANSIENT:
        return "failed for now";
    case SL_SINK_AWAY:
        return "store away";
    case SL_SINK_CONFIG:
        return "store misconfigured";
    }
    return "unknown";
}

void sl_sink_result_set(sl_sink_result *res, sl_sink_outcome outcome, int code, const char *fmt,
                        ...)
{
    res->outcome = outcome;
    res->code = code;
    va_list args;
    va_start(args, fmt);
    vsnprintf(res->reason, sizeof res->reason, fmt, args);
    va_end(args);
}
