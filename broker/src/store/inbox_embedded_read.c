/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox_embedded_read: rows out of a box. One scan of the store, held against the live rows in
 * memory: what is live but not stored (or damaged, or expired) is taken out of the box on the way.
 * Owner's thread.
 */
#include "base/alloc.h"
#include "base/assert.h"
#include "base/logger.h"
#include "store/inbox_embedded_int.h"

typedef struct reading {
    inbox_embedded *ad;
    inbox_task *tk;
    sl_wall_ms now;
    uint64_t seen; /* every row up to here is dealt with */
    uint64_t end;  /* rows from here on are not for this read */
    size_t count;  /* entries */
    bool is_full;
    uint64_t *gone; /* owned, rising: rows to take out */
    size_t gone_count;
    size_t gone_cap;
    size_t expired;
} reading;

static void add_gone(reading *rd, uint64_t row)
{
    if (rd->gone_count == rd->gone_cap) {
        rd->gone_cap = rd->gone_cap == 0 ? 16 : rd->gone_cap * 2;
        rd->gone = sl_realloc(rd->gone, rd->gone_cap * sizeof(*rd->gone));
    }
    rd->gone[rd->gone_count++] = row;
}

/* Live rows before `row` that the scan has not met are not in the store. */
static void add_missing(reading *rd, uint64_t row)
{
    const inbox_rows *rows = &rd->tk->bx->rows;
    uint64_t at = inbox_rows_next(rows, rd->seen);
    for (; at != 0 && at < row; at = inbox_rows_next(rows, at))
        add_gone(rd, at);
    rd->seen = row - 1;
}

static bool is_full(const reading *rd, const sl_inbox_entry *entry)
{
    size_t bytes = sl_buf_peek(&rd->ad->body).len;
    return rd->count == rd->tk->max_rows ||
           (rd->count > 0 && bytes + entry->packet.len > rd->tk->max_bytes);
}

static void add_entry(reading *rd, const sl_inbox_entry *entry)
{
    inbox_embedded *ad = rd->ad;
    if (rd->count == ad->entry_cap) {
        ad->entry_cap = ad->entry_cap == 0 ? 64 : ad->entry_cap * 2;
        ad->entries = sl_realloc(ad->entries, ad->entry_cap * sizeof(*ad->entries));
    }
    ad->entries[rd->count++] = *entry;
    sl_err err = sl_buf_append_slice(&ad->body, entry->packet);
    SL_ASSERT(err == SL_OK); /* its maximum is the bytes of a read and one more row */
}

static bool on_row(void *arg, sl_slice key, sl_slice value)
{
    reading *rd = arg;
    const inbox_box *bx = rd->tk->bx;
    uint64_t row = 0;
    uint16_t partition;
    if (inbox_key_parse(key, bx->client.len, &row, &partition) != INBOX_KEY_ROW ||
        !inbox_rows_has(&bx->rows, row))
        return true; /* its removal is on the way */
    add_missing(rd, row);
    sl_inbox_entry entry = {.row = row, .packet_id = inbox_packet_id(row)};
    sl_err err = inbox_row_decode(value, &entry);
    if (err != SL_OK) {
        uint32_t suppressed;
        if (sl_log_limit_pass(&rd->ad->limit, INBOX_LOG_BURST, INBOX_LOG_PERIOD_MS, &suppressed))
            sl_warn(SL_C_INBOX, "INBOX-ROW-DAMAGED", SL_B("client", bx->client), SL_U("row", row),
                    SL_E(err), SL_U("suppressed", suppressed));
        add_gone(rd, row);
    } else if (entry.expires_at_ms <= rd->now) {
        add_gone(rd, row);
        rd->expired++;
    } else if (is_full(rd, &entry)) {
        rd->is_full = true;
        return false;
    } else {
        add_entry(rd, &entry);
    }
    rd->seen = row;
    return true;
}

static sl_err scan(reading *rd)
{
    sl_slice client = rd->tk->bx->client;
    uint8_t *from = sl_alloc(2 * (client.len + 16));
    uint8_t *to = from + client.len + 16;
    size_t from_len = inbox_key(from, client, INBOX_KEY_ROW, rd->seen + 1, 0);
    size_t to_len = inbox_key(to, client, INBOX_KEY_ROW, rd->end, 0);
    sl_err err = sl_embedded_kv_scan(rd->ad->cache.kv, sl_slice_of(from, from_len),
                                     sl_slice_of(to, to_len), on_row, rd);
    sl_free(from);
    if (err == SL_OK && !rd->is_full)
        add_missing(rd, rd->end);
    return err;
}

/* The first live row that stays; gone is rising. */
static uint64_t first_after_repair(const reading *rd)
{
    const inbox_rows *rows = &rd->tk->bx->rows;
    uint64_t row = inbox_rows_first(rows);
    for (size_t i = 0; row != 0 && i < rd->gone_count && rd->gone[i] <= row;)
        if (rd->gone[i++] == row)
            row = inbox_rows_next(rows, row);
    return row;
}

/* Takes the rows out of the store and then out of memory. When the log does not take it they stay,
 * and the next read finds them again. */
static bool repair(reading *rd)
{
    inbox_box *bx = rd->tk->bx;
    if (rd->gone_count == 0)
        return true;
    if (rd->ad->is_closing)
        return false;
    inbox_meta meta = inbox_box_meta(bx);
    meta.count -= (uint32_t)rd->gone_count;
    meta.first_row = first_after_repair(rd);
    inbox_batch_begin(rd->ad, bx->client, rd->gone_count + 1);
    for (size_t i = 0; i < rd->gone_count; i++)
        inbox_batch_drop_row(rd->ad, bx->client, rd->gone[i]);
    inbox_batch_put_meta(rd->ad, bx->client, &meta);
    inbox_task *tk = inbox_task_new(bx, SL_INBOX_OP_REMOVE, 0, 0);
    tk->silent = true;
    if (inbox_task_write(rd->ad, tk, INBOX_WRITE_DELETES_WILL_DO) != SL_OK)
        return false;
    for (size_t i = 0; i < rd->gone_count; i++)
        inbox_rows_remove(&bx->rows, rd->gone[i]);
    return true;
}

/* The bodies of all entries in one counted buffer. */
static sl_rbuf *take_body(inbox_embedded *ad, size_t count)
{
    sl_slice bytes = sl_buf_peek(&ad->body);
    if (bytes.len == 0)
        return NULL;
    sl_rbuf *body = sl_rbuf_new(bytes.len);
    memcpy(body->data, bytes.ptr, bytes.len);
    body->len = (uint32_t)bytes.len;
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        ad->entries[i].packet.ptr = body->data + at;
        at += ad->entries[i].packet.len;
    }
    return body;
}

void inbox_read_run(inbox_embedded *ad, inbox_task *tk)
{
    inbox_box *bx = tk->bx;
    reading rd = {.ad = ad, .tk = tk, .now = sl_clock_wall(ad->options.clock)};
    rd.end = bx->add_row != 0 ? bx->add_row : bx->last_row + 1;
    sl_buf_clear(&ad->body);
    sl_inbox_done done = {.op = tk->op, .token = tk->token};
    /* From the first live row and not from after_row: what was removed in front of it has left
     * tombstones in the store, over which a scan is slow. */
    uint64_t first = tk->is_void ? 0 : inbox_rows_next(&bx->rows, tk->after_row);
    rd.seen = first != 0 ? first - 1 : tk->after_row;
    if (first != 0 && first < rd.end)
        done.err = scan(&rd);
    if (done.err == SL_OK) {
        bool repaired = repair(&rd);
        uint64_t next = inbox_rows_next(&bx->rows, rd.seen);
        done.body = take_body(ad, rd.count);
        done.entries = ad->entries;
        done.entry_count = rd.count;
        done.expired = repaired ? rd.expired : 0;
        done.repaired = repaired ? rd.gone_count - rd.expired : 0;
        done.more = rd.is_full && next != 0 && next < rd.end;
        done.count = bx->rows.count;
    }
    inbox_emit(ad, &done);
    sl_rbuf_unref(&done.body);
    sl_free(rd.gone);
}

sl_err inbox_embedded_read(void *self, sl_slice client, uint64_t generation, uint64_t after_row,
                           size_t max_rows, size_t max_bytes, uint64_t token)
{
    inbox_embedded *ad = self;
    inbox_box *bx;
    sl_err err = inbox_get_box(ad, client, &bx);
    if (err != SL_OK)
        return err;
    if (generation > bx->generation && bx->generation != 0) {
        inbox_task *renewal = inbox_task_new(bx, SL_INBOX_OP_CLEAR, 0, 0);
        renewal->silent = true;
        err = inbox_task_write_empty(ad, renewal, generation);
        if (err != SL_OK)
            return err;
    }
    inbox_task *tk = inbox_task_new(bx, SL_INBOX_OP_READ, token, 0);
    tk->after_row = after_row;
    tk->max_rows = max_rows;
    tk->max_bytes = max_bytes < INBOX_READ_MAX_BYTES ? max_bytes : INBOX_READ_MAX_BYTES;
    tk->is_void = generation != bx->generation;
    if (generation < bx->generation)
        tk->err = SL_ENOTFOUND;
    inbox_task_queue(ad, tk);
    return SL_OK;
}
