/* SPDX-License-Identifier: Apache-2.0
 *
 * replay: reads dead-letter files and submits their documents to the sink in batches. The files are
 * only read: whoever runs the command removes them when the report pleases him.
 */
#include "dead_letter.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/logger.h"
#include "base/map.h"
#include "mqtt/topic.h"

#define BATCH_DOCS  200
#define BATCH_BYTES (16u << 20)

/* Documents for one target, no two of the same identity. */
typedef struct batch {
    sl_sink *sink;
    sl_replay_report *report;
    char *database, *collection; /* owned; of the documents below */
    sl_document *docs[BATCH_DOCS];
    uint64_t line[BATCH_DOCS];
    size_t count;
    size_t bytes;
    sl_map *seen; /* identity -> anything */
    const char *file;
} batch;

static sl_map *new_seen(void)
{
    return sl_map_new(BATCH_DOCS);
}

static void count_result(batch *bt, size_t i, const sl_sink_result *res)
{
    switch (res->outcome) {
    case SL_SINK_STORED:
        bt->report->stored++;
        return;
    case SL_SINK_DUPLICATE:
        bt->report->duplicates++;
        return;
    case SL_SINK_CONFLICT:
    case SL_SINK_PERMANENT:
        bt->report->refused++;
        break;
    case SL_SINK_TRANSIENT:
    case SL_SINK_AWAY:
    case SL_SINK_CONFIG:
        if (bt->report->failed++ > 0)
            return; // one line says it for all that follow
        break;
    }
    sl_warn(SL_C_WRITER, "REPLAY-NOT-STORED", SL_S("file", bt->file), SL_U("line", bt->line[i]),
            SL_S("database", bt->database), SL_S("collection", bt->collection),
            SL_S("reason", res->reason), SL_I("code", res->code));
}

static void flush(batch *bt)
{
    if (bt->count == 0)
        return;
    sl_sink_result *res = sl_calloc(bt->count, sizeof *res);
    const sl_document *docs[BATCH_DOCS];
    for (size_t i = 0; i < bt->count; i++) {
        docs[i] = bt->docs[i];
        res[i].outcome = SL_SINK_AWAY;
    }
    sl_sink_target target = {bt->database, bt->collection};
    if (bt->report->failed == 0) // else this is the rest of a run that failed
        sl_sink_write(bt->sink, &target, docs, bt->count, res);
    for (size_t i = 0; i < bt->count; i++) {
        count_result(bt, i, &res[i]);
        sl_document_free(&bt->docs[i]);
    }
    sl_free(res);
    bt->count = 0;
    bt->bytes = 0;
    sl_map_free(&bt->seen);
    bt->seen = new_seen();
}

/* Takes doc, database and collection. */
static void add(batch *bt, sl_document *doc, char *database, char *collection, uint64_t line)
{
    sl_buf identity;
    sl_buf_init(&identity, doc->topic.len + doc->id.key.len + 1);
    sl_err err = sl_document_write_identity(doc, &identity);
    bool same_target = bt->database != NULL && strcmp(bt->database, database) == 0 &&
                       strcmp(bt->collection, collection) == 0;
    if (!same_target || bt->count == BATCH_DOCS || bt->bytes >= BATCH_BYTES ||
        sl_map_get(bt->seen, sl_buf_peek(&identity)) != NULL)
        flush(bt);
    sl_free(bt->database);
    sl_free(bt->collection);
    bt->database = database;
    bt->collection = collection;
    bt->line[bt->count] = line;
    bt->docs[bt->count++] = doc;
    bt->bytes += doc->payload.len;
    if (err == SL_OK)
        err = sl_map_put(bt->seen, sl_buf_peek(&identity), bt, NULL);
    if (err != SL_OK)
        flush(bt); // cannot be noticed as seen: it goes alone
    sl_buf_fini(&identity);
}

static void route(const sl_document *doc, const sl_replay_route *routes, size_t count,
                  char **database, char **collection)
{
    for (size_t i = 0; i < count; i++) {
        if (!sl_mqtt_filter_matches(sl_slice_str(routes[i].filter), doc->topic))
            continue;
        sl_free(*database);
        sl_free(*collection);
        *database = sl_strdup(routes[i].target.database);
        *collection = sl_strdup(routes[i].target.collection);
        return;
    }
}

static void take_line(batch *bt, sl_slice line, uint64_t number, const sl_replay_route *routes,
                      size_t route_count)
{
    bt->report->lines++;
    sl_document *doc = NULL;
    char *database = NULL, *collection = NULL;
    const char *why = NULL;
    if (sl_document_parse_json(line, &doc, &database, &collection, &why) != SL_OK) {
        bt->report->damaged++;
        sl_warn(SL_C_WRITER, "REPLAY-LINE-DAMAGED", SL_S("file", bt->file), SL_U("line", number),
                SL_S("reason", why));
        return;
    }
    if (database == NULL || collection == NULL)
        route(doc, routes, route_count, &database, &collection);
    const char *bad = "no target in the line, no sink for its topic";
    sl_sink_target target = {database, collection};
    if (database != NULL && collection != NULL && sl_sink_target_check(&target, &bad) == SL_OK) {
        add(bt, doc, database, collection, number);
        return;
    }
    bt->report->unrouted++;
    sl_warn(SL_C_WRITER, "REPLAY-NO-TARGET", SL_S("file", bt->file), SL_U("line", number),
            SL_S("reason", bad));
    sl_free(database);
    sl_free(collection);
    sl_document_free(&doc);
}

static sl_err replay_file(batch *bt, const char *path, const sl_replay_route *routes,
                          size_t route_count)
{
    FILE *in = fopen(path, "re");
    if (in == NULL)
        return sl_err_from_errno(errno);
    bt->file = path;
    char *text = NULL;
    size_t cap = 0;
    uint64_t number = 0;
    ssize_t len;
    // a sink that fails once would fail for every batch: stop there
    while (bt->report->failed == 0 && (len = getline(&text, &cap, in)) >= 0) {
        number++;
        while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == '\r'))
            len--;
        if (len > 0)
            take_line(bt, sl_slice_of(text, (size_t)len), number, routes, route_count);
    }
    flush(bt);
    sl_err err = ferror(in) ? SL_EIO : SL_OK;
    free(text); // getline's own allocation
    fclose(in);
    return err;
}

sl_err sl_dead_letter_replay(const char *path, sl_sink *sink, const sl_replay_route *routes,
                             size_t route_count, sl_replay_report *report)
{
    *report = (sl_replay_report){0};
    batch *bt = sl_calloc(1, sizeof *bt);
    bt->sink = sink;
    bt->report = report;
    bt->seen = new_seen();
    size_t len = strlen(path) + sizeof ".1";
    char *older = sl_alloc(len);
    snprintf(older, len, "%s.1", path);

    sl_err old_err = replay_file(bt, older, routes, route_count);
    sl_err err = old_err;
    if (old_err == SL_OK || old_err == SL_ENOTFOUND)
        err = replay_file(bt, path, routes, route_count);
    if (err == SL_ENOTFOUND && old_err == SL_OK)
        err = SL_OK; // only the older generation is left
    if (err == SL_OK && report->failed > 0)
        err = SL_ECONN;

    sl_map_free(&bt->seen);
    sl_free(bt->database);
    sl_free(bt->collection);
    sl_free(bt);
    sl_free(older);
    return err;
}
