/* SPDX-License-Identifier: Apache-2.0
 *
 * db_result: requests of the db port on their way: rows are collected by an adapter thread into the
 * request and read on the asker's loop, which then frees it all.
 */
#include "base/alloc.h"
#include "store/db_int.h"

#include <stdio.h>

#define CHUNK_BYTES 4096

typedef struct db_chunk {
    struct db_chunk *next;
    size_t used, size;
    uint8_t bytes[];
} db_chunk;

static void free_arena(db_arena *arena)
{
    while (arena->first != NULL) {
        db_chunk *next = arena->first->next;
        sl_free(arena->first);
        arena->first = next;
    }
    arena->total = 0;
}

// NULL: the maximum is reached.
static uint8_t *arena_copy(db_arena *arena, sl_slice from)
{
    if (from.len > arena->max - arena->total)
        return NULL;
    db_chunk *chunk = arena->first;
    if (chunk == NULL || chunk->size - chunk->used < from.len) {
        size_t size = from.len > CHUNK_BYTES ? from.len : CHUNK_BYTES;
        chunk = sl_alloc(sizeof(*chunk) + size);
        chunk->size = size;
        chunk->used = 0;
        chunk->next = arena->first;
        arena->first = chunk;
    }
    uint8_t *to = chunk->bytes + chunk->used;
    if (from.len > 0)
        memcpy(to, from.ptr, from.len);
    chunk->used += from.len;
    arena->total += from.len;
    return to;
}

static void free_rows(db_request *rq)
{
    for (size_t i = 0; rq->rows != NULL && i < rq->count; i++)
        sl_free(rq->rows[i].cells);
    sl_free(rq->rows);
    rq->rows = NULL;
    free_arena(&rq->arena);
}

void db_request_reset(sl_db *db, db_request *rq)
{
    free_rows(rq);
    rq->arena.max = db->options.max_result_bytes;
    rq->rows = sl_calloc(rq->count, sizeof(*rq->rows));
    rq->err = SL_OK;
    rq->failed_at = 0;
    rq->why[0] = 0;
}

void db_request_fail(db_request *rq, size_t at, sl_err err, const char *why)
{
    rq->err = err;
    rq->failed_at = at;
    snprintf(rq->why, sizeof(rq->why), "%s", why == NULL ? "" : why);
    rq->why[strcspn(rq->why, "\r\n")] = 0; // the first line says it, the rest is decoration
}

void db_rows_begin(db_request *rq, size_t at, size_t columns)
{
    rq->rows[at].count = 0;
    rq->rows[at].res = (sl_db_result){.column_count = columns};
}

sl_err db_rows_add(db_request *rq, size_t at, const sl_db_value *value)
{
    db_rows *rows = &rq->rows[at];
    if (rows->count == rows->cap) {
        size_t cap = rows->cap == 0 ? 16 : rows->cap * 2;
        size_t more = (cap - rows->cap) * sizeof(*rows->cells);
        if (more > rq->arena.max - rq->arena.total)
            return SL_ETOOBIG;
        rq->arena.total += more; // cells count like bytes: a million empty rows are not free
        rows->cells = sl_realloc(rows->cells, cap * sizeof(*rows->cells));
        rows->cap = cap;
    }
    sl_db_value copy = *value;
    if (value->type == SL_DB_TEXT || value->type == SL_DB_BYTES) {
        copy.bytes.ptr = arena_copy(&rq->arena, value->bytes);
        if (copy.bytes.ptr == NULL)
            return SL_ETOOBIG;
    }
    rows->cells[rows->count++] = copy;
    return SL_OK;
}

void db_request_free(db_request *rq)
{
    free_rows(rq);
    sl_free(rq->results);
    sl_free(rq);
}

static void come_home(sl_mail *mail)
{
    db_request *rq = (db_request *)mail;
    sl_db_done done = {.err = rq->err, .failed_at = rq->failed_at, .why = rq->why};
    if (rq->err == SL_OK) {
        rq->results = sl_calloc(rq->count, sizeof(*rq->results));
        for (size_t i = 0; i < rq->count; i++) {
            db_rows *rows = &rq->rows[i];
            rq->results[i] = rows->res;
            rq->results[i].cells = rows->cells;
            if (rows->res.column_count > 0)
                rq->results[i].row_count = rows->count / rows->res.column_count;
        }
        done.results = rq->results;
        done.result_count = rq->count;
    }
    rq->done(rq->arg, &done);
    db_request_free(rq);
}

void db_request_complete(sl_db *db, db_request *rq)
{
    db_count(db, rq->err == SL_OK ? SL_DB_STAT_DONE : SL_DB_STAT_FAILED, 1);
    rq->mail.fn = come_home;
    // Nobody waits, or the loop was stopped and takes no completion any more.
    if (rq->done == NULL || !sl_loop_post(rq->lp, &rq->mail))
        db_request_free(rq);
}

/* ---- reading */

const sl_db_value *sl_db_cell(const sl_db_result *res, size_t row, size_t column)
{
    SL_ASSERT(row < res->row_count && column < res->column_count);
    return &res->cells[row * res->column_count + column];
}

bool sl_db_is_null(const sl_db_result *res, size_t row, size_t column)
{
    return sl_db_cell(res, row, column)->type == SL_DB_NULL;
}

int64_t sl_db_get_int(const sl_db_result *res, size_t row, size_t column)
{
    const sl_db_value *cell = sl_db_cell(res, row, column);
    return cell->type == SL_DB_INT || cell->type == SL_DB_BOOL ? cell->num : 0;
}

bool sl_db_get_bool(const sl_db_result *res, size_t row, size_t column)
{
    return sl_db_get_int(res, row, column) != 0;
}

double sl_db_get_double(const sl_db_result *res, size_t row, size_t column)
{
    const sl_db_value *cell = sl_db_cell(res, row, column);
    return cell->type == SL_DB_DOUBLE ? cell->real : (double)sl_db_get_int(res, row, column);
}

sl_slice sl_db_get_slice(const sl_db_result *res, size_t row, size_t column)
{
    const sl_db_value *cell = sl_db_cell(res, row, column);
    bool has = cell->type == SL_DB_TEXT || cell->type == SL_DB_BYTES;
    return has ? cell->bytes : sl_slice_of(NULL, 0);
}
