/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox_embedded_add: rows into a box. First a plan (which rows are new, which old ones must go,
 * what the box knows afterwards), then one batch; memory follows when the log has taken it.
 * Owner's thread.
 */
#include "base/alloc.h"
#include "base/assert.h"
#include "store/inbox_embedded_int.h"

typedef struct plan {
    const inbox_box *bx;
    bool renews;            /* the rows begin a new generation: the box is emptied first */
    const inbox_rows *rows; /* of the box, or none */
    const sl_inbox_row *in;
    size_t count;
    size_t dropped; /* replays */
    size_t stored;
    uint64_t evict_to; /* live rows up to here go; 0 none */
    size_t evicted_old;
    size_t evicted_new; /* rows of this add for which there is no room */
    uint64_t last_row;
    inbox_source *sources; /* owned: those that change; row: of the box afterwards */
    size_t source_count;
    inbox_source *forgotten; /* owned: remembered ones that must go */
    size_t forgotten_count;
} plan;

static const inbox_rows no_rows;

static void plan_fini(plan *pl)
{
    sl_free(pl->sources);
    sl_free(pl->forgotten);
}

static inbox_source *changed_source(const plan *pl, const sl_inbox_row *row)
{
    for (size_t i = 0; i < pl->source_count; i++)
        if (pl->sources[i].origin == row->origin &&
            pl->sources[i].partition == row->source_partition)
            return &pl->sources[i];
    return NULL;
}

/* Is the row newer than what was taken from its source? Remembers it then. */
static bool take_source(plan *pl, const sl_inbox_row *row)
{
    if ((row->flags & SL_INBOX_NO_SOURCE) != 0)
        return true;
    inbox_source *changed = changed_source(pl, row);
    const inbox_source *last = changed;
    if (last == NULL && !pl->renews)
        last = inbox_box_source(pl->bx, row->origin, row->source_partition);
    if (last != NULL && row->source_offset <= last->offset)
        return false;
    if (changed == NULL) {
        if (pl->sources == NULL)
            pl->sources = sl_calloc(pl->count, sizeof(*pl->sources));
        changed = &pl->sources[pl->source_count++];
        *changed = (inbox_source){.origin = row->origin, .partition = row->source_partition};
    }
    changed->offset = row->source_offset;
    return true;
}

/* Marks with a row number which rows of the input are stored: 1, to be replaced; 0 dropped. */
static void plan_new_rows(plan *pl, size_t limit, sl_inbox_assigned *assigned)
{
    size_t kept = 0;
    for (size_t i = 0; i < pl->count; i++) {
        bool keep = take_source(pl, &pl->in[i]);
        assigned[i].row = keep;
        kept += keep;
    }
    pl->dropped = pl->count - kept;
    for (size_t i = 0; kept > limit; i++) {
        if (assigned[i].row == 0)
            continue;
        assigned[i].row = 0;
        pl->evicted_new++;
        kept--;
    }
    pl->stored = kept;
}

static void plan_evictions(plan *pl, size_t limit)
{
    size_t over = pl->rows->count + pl->stored > limit ? pl->rows->count + pl->stored - limit : 0;
    uint64_t first = inbox_rows_first(pl->rows);
    /* Skipped packet ids widen the window by one round of ids at most. */
    uint64_t reach = pl->last_row + pl->stored + SL_INBOX_MAX_ROWS;
    while (first != 0 && (over > 0 || reach - first >= INBOX_ROWS_MAX_SPAN)) {
        pl->evict_to = first;
        pl->evicted_old++;
        over -= over > 0;
        first = inbox_rows_next(pl->rows, first);
    }
}

static void plan_numbers(plan *pl, sl_inbox_assigned *assigned)
{
    for (size_t i = 0; i < pl->count; i++) {
        if (assigned[i].row == 0)
            continue;
        pl->last_row = inbox_rows_choose(pl->rows, pl->last_row, pl->evict_to);
        assigned[i] = (sl_inbox_assigned){pl->last_row, inbox_packet_id(pl->last_row)};
    }
    for (size_t i = 0; i < pl->source_count; i++)
        pl->sources[i].row = pl->last_row;
}

static bool is_forgotten(const plan *pl, const inbox_source *so)
{
    for (size_t i = 0; i < pl->forgotten_count; i++)
        if (pl->forgotten[i].origin == so->origin && pl->forgotten[i].partition == so->partition)
            return true;
    return false;
}

/* At the bound on sources, those go that were quiet for longest. */
static void plan_forgetting(plan *pl)
{
    const inbox_box *bx = pl->bx;
    size_t after = pl->renews ? 0 : bx->source_count;
    for (size_t i = 0; i < pl->source_count; i++)
        after += pl->renews ||
                 inbox_box_source(bx, pl->sources[i].origin, pl->sources[i].partition) == NULL;
    if (pl->renews || after <= INBOX_MAX_SOURCES)
        return;
    size_t over = after - INBOX_MAX_SOURCES;
    pl->forgotten = sl_calloc(over, sizeof(*pl->forgotten));
    while (pl->forgotten_count < over) {
        const inbox_source *oldest = NULL;
        for (size_t i = 0; i < bx->source_count; i++) {
            const inbox_source *so = &bx->sources[i];
            const sl_inbox_row as_row = {.origin = so->origin, .source_partition = so->partition};
            if ((oldest == NULL || so->row < oldest->row) && changed_source(pl, &as_row) == NULL &&
                !is_forgotten(pl, so))
                oldest = so;
        }
        if (oldest == NULL)
            return; /* a single add with more sources than the bound: they are all fresh */
        pl->forgotten[pl->forgotten_count++] = *oldest;
    }
}

/* The packet in one piece: the batch has room for one. Joined pieces go to the adapter's buffer,
 * which has been grown for all of them, so that the slices stay. */
static sl_slice one_piece(inbox_embedded *ad, const sl_inbox_row *row)
{
    size_t pieces = 0, only = 0, len = 0;
    for (size_t i = 0; i < SL_INBOX_PACKET_PIECES; i++) {
        if (row->packet[i].len == 0)
            continue;
        pieces++;
        only = i;
        len += row->packet[i].len;
    }
    if (pieces == 1)
        return row->packet[only];
    uint8_t *joined = ad->joined + ad->joined_len;
    for (size_t i = 0, at = 0; i < SL_INBOX_PACKET_PIECES; at += row->packet[i++].len)
        if (row->packet[i].len > 0)
            memcpy(joined + at, row->packet[i].ptr, row->packet[i].len);
    ad->joined_len += len;
    return sl_slice_of(joined, len);
}

static void reserve_joined(inbox_embedded *ad, const plan *pl, const sl_inbox_assigned *assigned)
{
    size_t need = 0;
    for (size_t i = 0; i < pl->count; i++)
        for (size_t k = 0; k < SL_INBOX_PACKET_PIECES && assigned[i].row != 0; k++)
            need += pl->in[i].packet[k].len;
    ad->joined_len = 0;
    if (need <= ad->joined_cap)
        return;
    ad->joined = sl_realloc(ad->joined, need);
    ad->joined_cap = need;
}

static void build(inbox_embedded *ad, const plan *pl, uint64_t generation,
                  const sl_inbox_assigned *assigned)
{
    sl_slice client = pl->bx->client;
    inbox_batch_begin(ad, client,
                      2 + pl->evicted_old + pl->stored + pl->source_count + pl->forgotten_count);
    if (pl->renews && pl->bx->generation != 0)
        inbox_batch_empty(ad, pl->bx, false);
    uint64_t row = inbox_rows_first(pl->rows);
    for (; row != 0 && row <= pl->evict_to; row = inbox_rows_next(pl->rows, row))
        inbox_batch_drop_row(ad, client, row);
    inbox_meta meta = {.generation = generation, .last_row = pl->last_row, .first_row = row};
    meta.count = (uint32_t)(pl->rows->count - pl->evicted_old + pl->stored);
    reserve_joined(ad, pl, assigned);
    for (size_t i = 0; i < pl->count; i++) {
        if (assigned[i].row == 0)
            continue;
        const sl_inbox_row *in = &pl->in[i];
        sl_inbox_entry entry = {.kind = SL_INBOX_PUBLISH,
                                .qos = in->qos,
                                .flags = in->flags & SL_INBOX_RETAIN,
                                .time_ms = in->time_ms,
                                .expires_at_ms = in->expires_at_ms};
        if (entry.expires_at_ms == 0)
            entry.expires_at_ms = sl_clock_wall(ad->options.clock) + ad->options.default_ttl_ms;
        inbox_batch_put_row(ad, client, assigned[i].row, &entry, one_piece(ad, in));
        if (meta.first_row == 0)
            meta.first_row = assigned[i].row;
    }
    for (size_t i = 0; i < pl->source_count; i++)
        inbox_batch_put_source(ad, client, &pl->sources[i]);
    for (size_t i = 0; i < pl->forgotten_count; i++)
        inbox_batch_drop_source(ad, client, &pl->forgotten[i]);
    inbox_batch_put_meta(ad, client, &meta);
}

/* The log has the batch: the box is now what the plan says. */
static void apply(inbox_box *bx, const plan *pl, uint64_t generation,
                  const sl_inbox_assigned *assigned)
{
    if (pl->renews) {
        inbox_rows_clear(&bx->rows);
        bx->source_count = 0;
    }
    bx->generation = generation;
    for (uint64_t row; (row = inbox_rows_first(&bx->rows)) != 0 && row <= pl->evict_to;)
        inbox_rows_remove(&bx->rows, row);
    bx->add_open = true;
    bx->add_row = 0;
    for (size_t i = 0; i < pl->count; i++) {
        if (assigned[i].row == 0)
            continue;
        if (bx->add_row == 0)
            bx->add_row = assigned[i].row;
        inbox_rows_add(&bx->rows, assigned[i].row);
    }
    bx->last_row = pl->last_row;
    for (size_t i = 0; i < pl->forgotten_count; i++)
        inbox_box_drop_source(bx, pl->forgotten[i].origin, pl->forgotten[i].partition);
    for (size_t i = 0; i < pl->source_count; i++)
        inbox_box_set_source(bx, &pl->sources[i]);
}

static bool holds_qos2(const plan *pl, const sl_inbox_assigned *assigned)
{
    for (size_t i = 0; i < pl->count; i++)
        if (assigned[i].row != 0 && pl->in[i].qos == 2)
            return true;
    return false;
}

static sl_err store(inbox_embedded *ad, inbox_box *bx, const plan *pl, uint64_t generation,
                    inbox_task *tk)
{
    build(ad, pl, generation, tk->assigned);
    bool has_sync = holds_qos2(pl, tk->assigned);
    sl_err err = inbox_task_write(ad, tk, 0);
    if (err != SL_OK)
        return err;
    apply(bx, pl, generation, tk->assigned);
    if (has_sync) {
        inbox_task *sync = inbox_task_new(bx, SL_INBOX_OP_ADD_DURABLE, tk->token, 0);
        sync->peer = tk;
        tk->peer = sync;
        inbox_sync_start(ad, sync);
    }
    return SL_OK;
}

sl_err inbox_embedded_add(void *self, sl_slice client, uint64_t generation,
                          const sl_inbox_row *rows, size_t count, size_t limit, uint64_t token)
{
    inbox_embedded *ad = self;
    inbox_box *bx;
    sl_err err = inbox_get_box(ad, client, &bx);
    if (err != SL_OK)
        return err;
    if (bx->add_open)
        return inbox_refuse(ad, SL_EAGAIN);
    inbox_task *tk = inbox_task_new(bx, SL_INBOX_OP_ADD, token, count);
    if (generation < bx->generation) {
        tk->dropped = count;
        inbox_task_queue(ad, tk);
        return SL_OK;
    }
    plan pl = {.bx = bx, .renews = generation > bx->generation, .in = rows, .count = count};
    pl.rows = pl.renews ? &no_rows : &bx->rows;
    pl.last_row = bx->last_row;
    plan_new_rows(&pl, limit, tk->assigned);
    plan_evictions(&pl, limit);
    plan_numbers(&pl, tk->assigned);
    plan_forgetting(&pl);
    tk->dropped = pl.dropped;
    tk->evicted = pl.evicted_old + pl.evicted_new;
    if (pl.stored > 0)
        err = store(ad, bx, &pl, generation, tk);
    else
        inbox_task_queue(ad, tk);
    plan_fini(&pl);
    return err;
}
