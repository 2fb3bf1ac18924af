/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox_redis_ops: the operations of the Redis inbox as commands (owner's thread), and what the
 * replies mean (Redis thread). One script call each; the scripts are in inbox_redis_lua.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "store/inbox_codec.h"
#include "store/inbox_redis_int.h"
#include "store/inbox_redis_keys.h"
#include "store/inbox_redis_lua.h"
#include "store/inbox_rows.h"

#define NUMBER_TEXT    24
#define FIELD_TEXT     40
#define ARGS_OF_ROW    4
#define READ_MAX_BYTES ((size_t)64 << 20) /* of one read, and one row more */

/* ---- commands -------------------------------------------------------------------------------- */

typedef struct number {
    char text[NUMBER_TEXT];
} number;

/* 20 digits, so that the order of texts is the order of numbers. */
static sl_slice digits(number *out, uint64_t value)
{
    int n = snprintf(out->text, sizeof(out->text), "%020llu", (unsigned long long)value);
    return sl_slice_of(out->text, (size_t)n);
}

static sl_slice plain(number *out, uint64_t value)
{
    int n = snprintf(out->text, sizeof(out->text), "%llu", (unsigned long long)value);
    return sl_slice_of(out->text, (size_t)n);
}

/* A script call whose arguments behind the keys are args. */
static void call_script(inbox_redis *ad, redis_task *tk, inbox_lua which, sl_slice client,
                        const sl_slice *args, size_t count)
{
    inbox_redis_keys ks;
    inbox_redis_keys_init(&ks, ad->redis.prefix, client);
    sl_slice *argv = sl_alloc((6 + count) * sizeof(*argv));
    argv[0] = sl_slice_str("EVALSHA");
    argv[1] = sl_slice_str(inbox_redis_scripts()[which].sha);
    argv[2] = sl_slice_str("3");
    argv[3] = ks.messages;
    argv[4] = ks.inbox;
    argv[5] = ks.last_packet_id;
    memcpy(argv + 6, args, count * sizeof(*args));
    sl_redis_op_init(&tk->op, ks.messages, argv, 6 + count, redis_task_answered);
    // Done late, behind an add of the new generation, it would remove what was just stored.
    tk->op.is_barrier = which == INBOX_LUA_CLEAR;
    sl_free(argv);
    inbox_redis_keys_fini(&ks);
    redis_task_submit(ad, tk);
}

static sl_dur_ms time_left(const inbox_redis *ad, sl_wall_ms expires_at)
{
    sl_dur_ms left = expires_at - sl_clock_wall(ad->options.clock);
    return left > 0 ? left : 1;
}

/* Texts and bodies of the rows of an add. */
typedef struct row_text {
    char field[FIELD_TEXT];
    number offset, ttl;
} row_text;

static size_t body_bytes(const sl_inbox_row *row)
{
    size_t bytes = INBOX_ROW_HEAD;
    for (size_t i = 0; i < SL_INBOX_PACKET_PIECES; i++)
        bytes += row->packet[i].len;
    return bytes;
}

static sl_slice put_body(uint8_t *at, const sl_inbox_row *row, sl_wall_ms expires_at)
{
    const sl_inbox_entry entry = {.kind = SL_INBOX_PUBLISH,
                                  .qos = row->qos,
                                  .flags = row->flags & SL_INBOX_RETAIN,
                                  .time_ms = row->time_ms,
                                  .expires_at_ms = expires_at};
    inbox_row_encode(&entry, at);
    size_t len = INBOX_ROW_HEAD;
    for (size_t i = 0; i < SL_INBOX_PACKET_PIECES; len += row->packet[i++].len)
        if (row->packet[i].len > 0)
            memcpy(at + len, row->packet[i].ptr, row->packet[i].len);
    return sl_slice_of(at, len);
}

static void put_row(const inbox_redis *ad, const sl_inbox_row *row, row_text *text, uint8_t *body,
                    sl_slice args[ARGS_OF_ROW])
{
    sl_wall_ms expires_at = row->expires_at_ms;
    if (expires_at == 0)
        expires_at = sl_clock_wall(ad->options.clock) + ad->options.default_ttl_ms;
    bool has_source = (row->flags & SL_INBOX_NO_SOURCE) == 0;
    int n = snprintf(text->field, sizeof(text->field), "s:%llu:%u", (unsigned long long)row->origin,
                     row->source_partition);
    args[0] = sl_slice_of(text->field, has_source ? (size_t)n : 0);
    args[1] = digits(&text->offset, row->source_offset);
    args[2] = plain(&text->ttl, (uint64_t)time_left(ad, expires_at));
    args[3] = put_body(body, row, expires_at);
}

sl_err inbox_redis_add(void *self, sl_slice client, uint64_t generation, const sl_inbox_row *rows,
                       size_t count, size_t limit, uint64_t token)
{
    inbox_redis *ad = self;
    sl_err err = redis_may_take(ad);
    if (err != SL_OK)
        return err;
    if (sl_map_get(ad->adding, client) != NULL)
        return redis_refuse(ad);
    redis_task *tk = redis_task_new(ad, SL_INBOX_OP_ADD, token, count);
    tk->client = (uint8_t *)sl_strndup(client.ptr, client.len);
    tk->client_len = client.len;
    err = sl_map_put(ad->adding, client, tk, NULL);
    SL_ASSERT(err == SL_OK); // as many as tasks at most
    number gen, most, sources;
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += body_bytes(&rows[i]);
    sl_slice *args = sl_alloc((3 + count * ARGS_OF_ROW) * sizeof(*args));
    row_text *texts = sl_alloc(count * sizeof(*texts));
    uint8_t *bodies = sl_alloc(bytes), *at = bodies;
    args[0] = digits(&gen, generation);
    args[1] = plain(&most, limit);
    args[2] = plain(&sources, REDIS_INBOX_SOURCES);
    for (size_t i = 0; i < count; at += body_bytes(&rows[i++]))
        put_row(ad, &rows[i], &texts[i], at, args + 3 + i * ARGS_OF_ROW);
    call_script(ad, tk, INBOX_LUA_ADD, client, args, 3 + count * ARGS_OF_ROW);
    sl_free(bodies);
    sl_free(texts);
    sl_free(args);
    return SL_OK;
}

sl_err inbox_redis_read(void *self, sl_slice client, uint64_t generation, uint64_t after_row,
                        size_t max_rows, size_t max_bytes, uint64_t token)
{
    inbox_redis *ad = self;
    sl_err err = redis_may_take(ad);
    if (err != SL_OK)
        return err;
    number texts[5];
    if (max_bytes > READ_MAX_BYTES)
        max_bytes = READ_MAX_BYTES;
    const sl_slice args[] = {digits(&texts[0], generation), plain(&texts[1], after_row),
                             plain(&texts[2], max_rows), plain(&texts[3], max_bytes),
                             plain(&texts[4], (uint64_t)sl_clock_wall(ad->options.clock))};
    call_script(ad, redis_task_new(ad, SL_INBOX_OP_READ, token, 0), INBOX_LUA_READ, client, args,
                5);
    return SL_OK;
}

sl_err inbox_redis_remove(void *self, sl_slice client, uint64_t generation,
                          const uint16_t *packet_ids, size_t count, uint64_t token)
{
    inbox_redis *ad = self;
    sl_err err = redis_may_take(ad);
    if (err != SL_OK)
        return err;
    number *texts = sl_alloc((count + 1) * sizeof(*texts));
    sl_slice *args = sl_alloc((count + 1) * sizeof(*args));
    args[0] = digits(&texts[0], generation);
    for (size_t i = 0; i < count; i++)
        args[i + 1] = plain(&texts[i + 1], packet_ids[i]);
    call_script(ad, redis_task_new(ad, SL_INBOX_OP_REMOVE, token, 0), INBOX_LUA_REMOVE, client,
                args, count + 1);
    sl_free(args);
    sl_free(texts);
    return SL_OK;
}

/* The marker does not inherit the message's expiry: that must not apply to what was sent
 * [MQTT-4.3.3-7]. It stays for the default time. */
sl_err inbox_redis_mark_pubrel(void *self, sl_slice client, uint64_t generation, uint16_t packet_id,
                               uint64_t token)
{
    inbox_redis *ad = self;
    sl_err err = redis_may_take(ad);
    if (err != SL_OK)
        return err;
    sl_wall_ms now = sl_clock_wall(ad->options.clock);
    const sl_inbox_entry marker = {.kind = SL_INBOX_PUBREL,
                                   .qos = 2,
                                   .time_ms = now,
                                   .expires_at_ms = now + ad->options.default_ttl_ms};
    uint8_t body[INBOX_ROW_HEAD];
    inbox_row_encode(&marker, body);
    number texts[3];
    const sl_slice args[] = {digits(&texts[0], generation), plain(&texts[1], packet_id),
                             sl_slice_of(body, sizeof(body)),
                             plain(&texts[2], (uint64_t)ad->options.default_ttl_ms)};
    call_script(ad, redis_task_new(ad, SL_INBOX_OP_MARK_PUBREL, token, 0), INBOX_LUA_MARK, client,
                args, 4);
    return SL_OK;
}

sl_err inbox_redis_clear(void *self, sl_slice client, uint64_t new_generation, uint64_t token)
{
    inbox_redis *ad = self;
    sl_err err = redis_may_take(ad);
    if (err != SL_OK)
        return err;
    number text;
    const sl_slice args[] = {digits(&text, new_generation)};
    call_script(ad, redis_task_new(ad, SL_INBOX_OP_CLEAR, token, 0), INBOX_LUA_CLEAR, client, args,
                1);
    return SL_OK;
}

sl_err inbox_redis_count(void *self, sl_slice client, uint64_t token)
{
    inbox_redis *ad = self;
    sl_err err = redis_may_take(ad);
    if (err != SL_OK)
        return err;
    redis_task *tk = redis_task_new(ad, SL_INBOX_OP_COUNT, token, 0);
    inbox_redis_keys ks;
    inbox_redis_keys_init(&ks, ad->redis.prefix, client);
    const sl_slice argv[] = {sl_slice_str("ZCARD"), ks.messages};
    sl_redis_op_init(&tk->op, ks.messages, argv, 2, redis_task_answered);
    inbox_redis_keys_fini(&ks);
    redis_task_submit(ad, tk);
    return SL_OK;
}

/* ---- replies --------------------------------------------------------------------------------- */

static bool get_integer(const sl_redis_reply *reply, size_t at, int64_t *out)
{
    const sl_redis_reply *item = sl_redis_item(reply, at);
    if (item == NULL || item->kind != SL_REDIS_INTEGER)
        return false;
    *out = item->integer;
    return true;
}

/* "12,13,0,15": what became of each row. */
static bool take_rows(redis_task *tk, sl_slice text)
{
    const char *at = (const char *)text.ptr, *end = at + text.len;
    for (size_t i = 0; i < tk->assigned_count; i++) {
        char *after = NULL;
        if (at >= end)
            return false;
        uint64_t row = strtoull(at, &after, 10);
        if (after == at || (after < end && *after != ','))
            return false;
        at = after + 1;
        if (row != 0)
            tk->assigned[i] = (sl_inbox_assigned){row, inbox_packet_id(row)};
    }
    return true;
}

static sl_err take_add(redis_task *tk, const sl_redis_reply *reply)
{
    int64_t dropped, evicted;
    const sl_redis_reply *rows = sl_redis_item(reply, 2);
    if (!get_integer(reply, 0, &dropped) || !get_integer(reply, 1, &evicted) || rows == NULL ||
        rows->kind != SL_REDIS_STRING)
        return SL_ECORRUPT;
    tk->dropped = dropped < 0 ? tk->assigned_count : (size_t)dropped;
    tk->evicted = (size_t)evicted;
    return dropped < 0 || take_rows(tk, rows->text) ? SL_OK : SL_ECORRUPT;
}

static sl_err take_entries(redis_task *tk, const sl_redis_reply *list)
{
    size_t bytes = 0, at = 0;
    tk->entry_count = list->count / 2;
    tk->entries = sl_calloc(tk->entry_count + 1, sizeof(*tk->entries));
    for (size_t i = 0; i < tk->entry_count; i++) {
        const sl_redis_reply *row = list->items[2 * i], *body = list->items[2 * i + 1];
        sl_inbox_entry *en = &tk->entries[i];
        if (row->kind != SL_REDIS_STRING || body->kind != SL_REDIS_STRING)
            return SL_ECORRUPT;
        en->row = strtoull((const char *)row->text.ptr, NULL, 10);
        en->packet_id = inbox_packet_id(en->row);
        sl_err err = en->row == 0 ? SL_ECORRUPT : inbox_row_decode(body->text, en);
        if (err != SL_OK)
            return err;
        bytes += en->packet.len;
    }
    if (bytes == 0)
        return SL_OK;
    tk->body = sl_rbuf_new(bytes);
    for (size_t i = 0; i < tk->entry_count; i++) {
        sl_inbox_entry *en = &tk->entries[i];
        if (en->packet.len > 0)
            memcpy(tk->body->data + at, en->packet.ptr, en->packet.len);
        en->packet.ptr = tk->body->data + at;
        at += en->packet.len;
    }
    tk->body->len = (uint32_t)bytes;
    return SL_OK;
}

static sl_err take_read(redis_task *tk, const sl_redis_reply *reply)
{
    int64_t numbers[4];
    if (reply->kind == SL_REDIS_INTEGER && reply->integer < 0)
        return SL_ENOTFOUND;
    const sl_redis_reply *list = sl_redis_item(reply, 4);
    for (size_t i = 0; i < 4; i++)
        if (!get_integer(reply, i, &numbers[i]))
            return SL_ECORRUPT;
    if (list == NULL || list->kind != SL_REDIS_ARRAY)
        return SL_ECORRUPT;
    tk->count = (size_t)numbers[0];
    tk->expired = (size_t)numbers[1];
    tk->repaired = (size_t)numbers[2];
    tk->more = numbers[3] != 0;
    return take_entries(tk, list);
}

/* How many entries it was done to. */
static sl_err take_number(redis_task *tk, const sl_redis_reply *reply)
{
    if (reply->kind != SL_REDIS_INTEGER)
        return SL_ECORRUPT;
    if (tk->kind == SL_INBOX_OP_REMOVE)
        tk->removed = (size_t)reply->integer;
    // None left: taken off by the first of two attempts, whose answer was lost.
    bool is_done = reply->integer > 0 || (tk->kind == SL_INBOX_OP_REMOVE && tk->is_repeated);
    return is_done ? SL_OK : SL_ENOTFOUND;
}

static sl_err error_of(const redis_task *tk, const sl_redis_reply *reply)
{
    uint32_t held = 0;
    if (sl_log_limit_pass(&tk->ad->refusals, 10, 10000, &held))
        sl_error(SL_C_INBOX, "REDIS-OPERATION-REFUSED", SL_I("op", tk->kind),
                 SL_B("reason", reply->text), SL_U("suppressed", held));
    if (sl_redis_is_error(reply, "OOM") || sl_redis_is_error(reply, "MISCONF"))
        return SL_ENOSPC;
    return sl_redis_is_error(reply, "WRONGTYPE") ? SL_ECORRUPT : SL_EIO;
}

static sl_err meaning(redis_task *tk, const sl_redis_reply *reply)
{
    if (reply == NULL)
        return SL_ECLOSED;
    if (reply->kind == SL_REDIS_ERROR)
        return error_of(tk, reply);
    switch (tk->kind) {
    case SL_INBOX_OP_ADD:
        return take_add(tk, reply);
    case SL_INBOX_OP_READ:
        return take_read(tk, reply);
    case SL_INBOX_OP_COUNT:
        tk->count = reply->kind == SL_REDIS_INTEGER ? (size_t)reply->integer : 0;
        return reply->kind == SL_REDIS_INTEGER ? SL_OK : SL_ECORRUPT;
    default:
        return take_number(tk, reply);
    }
}

void redis_task_result(redis_task *tk, const sl_redis_reply *reply)
{
    tk->is_repeated = tk->op.is_repeated;
    tk->err = meaning(tk, reply);
    if (tk->err == SL_OK)
        return;
    sl_free(tk->entries);
    tk->entries = NULL;
    tk->entry_count = 0;
}
