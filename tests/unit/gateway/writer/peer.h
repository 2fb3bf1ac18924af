/* SPDX-License-Identifier: Apache-2.0
 *
 * peer: what the tests of the writer's half need from around it: messages made by hand, tokens that
 * are counted, folders. It stands for router.c, whose functions it defines for the linker.
 */
#ifndef SL_TEST_STORE_PEER_H
#define SL_TEST_STORE_PEER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "message.h"
#include "router.h"

struct sl_taken {
    _Atomic int done; /* how often it was given back: 0 or 1 */
};

typedef struct peer_user_prop {
    const char *name;
    const char *value;
} peer_user_prop;

typedef struct peer_message {
    const char *topic;
    const void *payload;
    size_t len;
    uint8_t qos;
    bool retain;
    int64_t at_ns; /* 0: a fixed day */
    /* MQTT 5, all optional */
    const char *content_type;
    const char *response_topic;
    const char *correlation; /* text stands for bytes */
    int payload_format;      /* -1: none (0 in an initializer means 0 with format_set) */
    bool format_set;
    uint32_t expiry_s; /* 0: none */
    peer_user_prop user[8];
} peer_message;

#define PEER_AT_NS 1795984010123456789ll /* 2026-11-30T... */

/** A message; the caller owns the reference. */
sl_message *peer_message_new(const peer_message *pm);
/** Text payload, QoS 1. */
sl_message *peer_text(const char *topic, const char *payload);

/** A new folder under TMPDIR; removed with all in it by peer_folder_remove. */
char *peer_folder_new(void);
void peer_folder_remove(char **path);
/** dir/name, to be freed with sl_free. */
char *peer_path(const char *dir, const char *name);
/** Whole file as text with a NUL, "" when it is not there; sl_free. */
char *peer_read_file(const char *path, size_t *len);
void peer_write_file(const char *path, const void *bytes, size_t len);
/** LF-ended lines in the file. */
size_t peer_count_lines(const char *path);

/** Tokens given back so far, all tests of the program together. */
extern _Atomic long peer_taken_count;
/** Waits until it is at least count. */
void peer_await_taken(long count);

#endif
