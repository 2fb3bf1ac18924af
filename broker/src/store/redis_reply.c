/* SPDX-License-Identifier: Apache-2.0
 *
 * redis_reply: see redis_reply.h. The reader builds our replies itself, by its object functions:
 * nothing is converted.
 */
#include "store/redis_reply.h"

#include <hiredis/hiredis.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"

struct sl_redis_reader {
    redisReader *hi; /* owned */
    size_t waiting;  /* bytes fed since the last whole reply */
};

/* ---- replies --------------------------------------------------------------------------------- */

void sl_redis_reply_free(sl_redis_reply **pointer)
{
    sl_redis_reply *reply = *pointer;
    if (reply == NULL)
        return;
    *pointer = NULL;
    for (size_t i = 0; i < reply->count; i++)
        sl_redis_reply_free(&reply->items[i]);
    sl_free(reply->items);
    sl_free((void *)(uintptr_t)reply->text.ptr);
    sl_free(reply);
}

const sl_redis_reply *sl_redis_item(const sl_redis_reply *reply, size_t at)
{
    return reply != NULL && at < reply->count ? reply->items[at] : NULL;
}

bool sl_redis_is_error(const sl_redis_reply *reply, const char *word)
{
    size_t len = strlen(word);
    return reply->kind == SL_REDIS_ERROR && reply->text.len >= len &&
           memcmp(reply->text.ptr, word, len) == 0 &&
           (reply->text.len == len || reply->text.ptr[len] == ' ');
}

/* ---- what the reader calls --------------------------------------------------------------------
 */

static sl_redis_reply *new_reply(const redisReadTask *task, sl_redis_kind kind)
{
    sl_redis_reply *reply = sl_calloc(1, sizeof(*reply));
    reply->kind = kind;
    if (task->parent != NULL) {
        sl_redis_reply *parent = task->parent->obj;
        SL_ASSERT((size_t)task->idx < parent->count);
        parent->items[task->idx] = reply;
    }
    return reply;
}

static void *create_string(const redisReadTask *task, char *text, size_t len)
{
    sl_redis_kind kind = task->type == REDIS_REPLY_ERROR    ? SL_REDIS_ERROR
                         : task->type == REDIS_REPLY_STATUS ? SL_REDIS_STATUS
                                                            : SL_REDIS_STRING;
    sl_redis_reply *reply = new_reply(task, kind);
    reply->text = sl_slice_of(sl_strndup(text, len), len);
    return reply;
}

static void *create_array(const redisReadTask *task, int elements)
{
    if (elements < 0 || (unsigned)elements > SL_REDIS_MAX_ITEMS)
        return NULL;
    sl_redis_reply *reply = new_reply(task, SL_REDIS_ARRAY);
    reply->count = (size_t)elements;
    reply->items = sl_calloc(reply->count + 1, sizeof(sl_redis_reply *));
    return reply;
}

static void *create_integer(const redisReadTask *task, long long value)
{
    sl_redis_reply *reply = new_reply(task, SL_REDIS_INTEGER);
    reply->integer = value;
    return reply;
}

static void *create_nil(const redisReadTask *task)
{
    return new_reply(task, SL_REDIS_NIL);
}

static void free_object(void *object)
{
    sl_redis_reply *reply = object;
    sl_redis_reply_free(&reply);
}

static redisReplyObjectFunctions functions = {.createString = create_string,
                                              .createArray = create_array,
                                              .createInteger = create_integer,
                                              .createNil = create_nil,
                                              .freeObject = free_object};

/* ---- reader ---------------------------------------------------------------------------------- */

sl_redis_reader *sl_redis_reader_new(void)
{
    sl_redis_reader *rd = sl_calloc(1, sizeof(*rd));
    rd->hi = redisReaderCreateWithFunctions(&functions);
    SL_ASSERT(rd->hi != NULL);
    return rd;
}

void sl_redis_reader_free(sl_redis_reader **pointer)
{
    sl_redis_reader *rd = *pointer;
    if (rd == NULL)
        return;
    *pointer = NULL;
    redisReaderFree(rd->hi);
    sl_free(rd);
}

sl_err sl_redis_reader_feed(sl_redis_reader *rd, const void *bytes, size_t len)
{
    if (len > SL_REDIS_MAX_REPLY_BYTES - rd->waiting)
        return SL_ETOOBIG;
    rd->waiting += len;
    int rc = redisReaderFeed(rd->hi, bytes, len);
    return rc == REDIS_OK ? SL_OK : SL_ECORRUPT;
}

sl_err sl_redis_reader_next(sl_redis_reader *rd, sl_redis_reply **out)
{
    void *object = NULL;
    if (redisReaderGetReply(rd->hi, &object) != REDIS_OK)
        return SL_ECORRUPT;
    *out = object;
    if (object != NULL)
        rd->waiting = rd->hi->len - rd->hi->pos;
    return SL_OK;
}

/* ---- commands -------------------------------------------------------------------------------- */

char *sl_redis_format(const sl_slice *argv, size_t argc, size_t *len)
{
    const char **texts = sl_alloc(argc * (sizeof(*texts) + sizeof(size_t)));
    size_t *lens = (size_t *)(texts + argc);
    for (size_t i = 0; i < argc; i++) {
        texts[i] = argv[i].len > 0 ? (const char *)argv[i].ptr : "";
        lens[i] = argv[i].len;
    }
    char *bytes = NULL;
    int n = redisFormatCommandArgv(&bytes, (int)argc, texts, lens);
    SL_ASSERT(n > 0); // it fails for want of memory only
    sl_free(texts);
    *len = (size_t)n;
    return bytes;
}

void sl_redis_bytes_free(char **bytes)
{
    if (*bytes != NULL)
        redisFreeCommand(*bytes);
    *bytes = NULL;
}
