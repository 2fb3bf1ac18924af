/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox_harness: an inbox on some adapter, driven by the test's own thread: it waits for wakes,
 * drains, and keeps copies of all completions until they are asked for.
 */
#ifndef SL_TEST_INBOX_HARNESS_H
#define SL_TEST_INBOX_HARNESS_H

#include <pthread.h>

#include "sl_test.h"

#include "store/inbox.h"

/* What an adapter needs to be tested: a store that can be opened again. */
typedef struct inbox_factory {
    const sl_inbox_ops *ops;
    void *(*new_store)(sl_clock *ck); /* empty */
    void (*open_store)(void *store);  /* before the inbox */
    sl_log *(*log_of)(void *store);   /* embedded: of the open store */
    void (*close_store)(void *store); /* after the inbox; what is stored stays */
    void (*free_store)(void *store);  /* removes it */
    const struct sl_inbox_redis_options *(*redis_of)(void *store); /* Redis; else NULL */
    bool is_durable_at_once; /* an add that is complete needs no second completion */
} inbox_factory;

typedef struct inbox_harness {
    const inbox_factory *factory;
    void *store;
    sl_clock clock;
    sl_inbox *ib;
    size_t max_cached;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool woken;
    sl_inbox_done **results; /* owned copies, in order of completion */
    size_t count;
    size_t cap;
    unsigned rooms;
    uint64_t next_token;
} inbox_harness;

#define HARNESS_NOW INT64_C(1700000000000)
#define HARNESS_TTL INT64_C(600000)

void harness_open(inbox_harness *hs, const inbox_factory *factory, size_t max_cached);
void harness_reopen(inbox_harness *hs);
void harness_close(inbox_harness *hs);

/** Waits for a wake (fails the test after 20 s) and drains. */
void harness_turn(inbox_harness *hs);
/** The completion of this token and kind; waits for it. Valid until the harness is closed. */
const sl_inbox_done *harness_wait(inbox_harness *hs, sl_inbox_op op, uint64_t token);
/** Position among all completions so far, or SIZE_MAX. */
size_t harness_position(const inbox_harness *hs, sl_inbox_op op, uint64_t token);

/** A row of source (0, offset) for own subscriptions. */
sl_inbox_row harness_row(uint64_t offset, uint8_t qos, const char *packet);

/* Start an operation (retrying SL_EAGAIN) and wait for it. */
const sl_inbox_done *harness_add(inbox_harness *hs, const char *client, uint64_t generation,
                                 const sl_inbox_row *rows, size_t count, size_t limit);
const sl_inbox_done *harness_add_slice(inbox_harness *hs, sl_slice client, uint64_t generation,
                                       const sl_inbox_row *rows, size_t count, size_t limit);
const sl_inbox_done *harness_read(inbox_harness *hs, const char *client, uint64_t generation,
                                  uint64_t after_row, size_t max_rows, size_t max_bytes);
const sl_inbox_done *harness_read_slice(inbox_harness *hs, sl_slice client, uint64_t generation,
                                        uint64_t after_row, size_t max_rows, size_t max_bytes);
const sl_inbox_done *harness_remove_many(inbox_harness *hs, const char *client, uint64_t generation,
                                         const uint16_t *ids, size_t count);
sl_err harness_remove(inbox_harness *hs, const char *client, uint64_t generation,
                      uint16_t packet_id);
sl_err harness_mark(inbox_harness *hs, const char *client, uint64_t generation, uint16_t packet_id);
sl_err harness_clear(inbox_harness *hs, const char *client, uint64_t generation);
size_t harness_count(inbox_harness *hs, const char *client);

/** Runs the whole contract on an adapter; the exit code. */
int inbox_contract_run(const inbox_factory *factory);

#endif
