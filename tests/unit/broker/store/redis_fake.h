/* SPDX-License-Identifier: Apache-2.0
 *
 * redis_fake: Redis servers made of socket pairs, answered by the test: what the client sends while
 * it greets is answered at once, everything else waits for the test's word. Loop and clock are the
 * test's.
 */
#ifndef SL_TEST_REDIS_FAKE_H
#define SL_TEST_REDIS_FAKE_H

#include "sl_test.h"

#include "store/redis_client.h"

#define FAKE_CONNS   32
#define FAKE_ANSWERS 64

/* One connection that the client made. */
typedef struct fake_conn {
    int fd; /* -1: ended by the test */
    char host[64];
    uint16_t port;
    sl_redis_reader *reader;
    char *greeting;              /* owned: commands of the greeting, each with a line end */
    char *waiting[FAKE_ANSWERS]; /* owned: commands that wait for the test's answer, oldest first */
    size_t waiting_count;
    bool is_ended; /* by the client */
} fake_conn;

typedef struct fake {
    sl_clock clock;
    sl_loop *lp;
    sl_redis *rd;
    fake_conn conns[FAKE_CONNS];
    size_t conn_count;
    unsigned dials;
    bool refuses;           /* connections */
    uint16_t refuses_port;  /* connections to it */
    const char *auth_reply; /* "+OK\r\n" */
    const char *role;       /* "master" */
    unsigned client_id;     /* given out last */
    bool is_up;
    unsigned state_changes;
} fake;

/* An operation under test. */
typedef struct fake_op {
    sl_redis_op op;
    char name[16];
    unsigned done;
    bool is_closed;  /* ended without a reply */
    char reply[256]; /* text or number */
    unsigned position;
} fake_op;

extern unsigned fake_completions; /* over all operations */

void fake_init(fake *fk);
/** Common options: one server "one:1", no password, one script. */
sl_redis_options fake_options(fake *fk);
void fake_open(fake *fk, const sl_redis_options *options);
void fake_close(fake *fk);
/** Turns the loop and answers greetings until nothing happens any more. */
void fake_run(fake *fk);
/** Lets time pass. */
void fake_advance(fake *fk, sl_dur_ms span);
/** The latest connection to this port that still lives; fails the test when there is none. */
fake_conn *fake_at(fake *fk, uint16_t port);
/** Submits "GET name" with a key and flushes. */
void fake_submit(fake *fk, fake_op *fo, const char *name, const char *key, bool is_barrier);
/** The oldest command that waits must be this text; answers it and runs. */
void fake_answer(fake *fk, fake_conn *fc, const char *command, const char *reply);
/** The same without running: replies are read in one go. */
void fake_queue_answer(fake_conn *fc, const char *command, const char *reply);
/** Raw bytes to the client. */
void fake_send(fake_conn *fc, const char *bytes, size_t len);
/** The test's side ends the connection. */
void fake_hang_up(fake *fk, fake_conn *fc);

#endif
