/* SPDX-License-Identifier: Apache-2.0
 *
 * redis_reply: Redis's protocol (RESP 2) in our own types: commands out, replies in. hiredis's
 * formatter and reader do the work, and stay inside redis_reply.c. No I/O; one thread.
 */
#ifndef SL_STORE_REDIS_REPLY_H
#define SL_STORE_REDIS_REPLY_H

#include "base/err.h"
#include "base/slice.h"

#define SL_REDIS_MAX_REPLY_BYTES ((size_t)512 << 20) /* what Redis itself allows of a string */
#define SL_REDIS_MAX_ITEMS       (1u << 20)          /* of one array */

typedef enum sl_redis_kind {
    SL_REDIS_NIL,
    SL_REDIS_STATUS,
    SL_REDIS_ERROR,
    SL_REDIS_INTEGER,
    SL_REDIS_STRING,
    SL_REDIS_ARRAY
} sl_redis_kind;

typedef struct sl_redis_reply {
    sl_redis_kind kind;
    int64_t integer;
    sl_slice text;                 /* status, error, string; owned, with a NUL behind it */
    struct sl_redis_reply **items; /* owned; of an array */
    size_t count;
} sl_redis_reply;

/** Sets *reply to NULL; accepts NULL inside. */
void sl_redis_reply_free(sl_redis_reply **reply);
/** The item, or NULL when the reply is no array that has it. */
const sl_redis_reply *sl_redis_item(const sl_redis_reply *reply, size_t at);
/** An error reply that begins with this word ("NOSCRIPT"). */
bool sl_redis_is_error(const sl_redis_reply *reply, const char *word);

typedef struct sl_redis_reader sl_redis_reader;
sl_redis_reader *sl_redis_reader_new(void);
void sl_redis_reader_free(sl_redis_reader **rd);
/** Errors SL_ETOOBIG more than SL_REDIS_MAX_REPLY_BYTES wait for the end of a reply. */
SL_MUST_USE sl_err sl_redis_reader_feed(sl_redis_reader *rd, const void *bytes, size_t len);
/** The next whole reply, the caller's; *out NULL when there is none yet.
 * Errors SL_ECORRUPT what came is not RESP: the connection is of no use any more. */
SL_MUST_USE sl_err sl_redis_reader_next(sl_redis_reader *rd, sl_redis_reply **out);

/** A command as bytes, owned by the caller (sl_redis_bytes_free). argv[0] is its name. */
char *sl_redis_format(const sl_slice *argv, size_t argc, size_t *len);
void sl_redis_bytes_free(char **bytes);

#endif
