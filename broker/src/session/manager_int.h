/* SPDX-License-Identifier: Apache-2.0
 *
 * manager_int: between the files of the session thread: manager.c (requests, answers, appends,
 * life) and session_rules.c (what a session event means). Everything belongs to the session loop.
 */
#ifndef SL_SESSION_MANAGER_INT_H
#define SL_SESSION_MANAGER_INT_H

#include "log/log.h"
#include "loop/loop.h"
#include "session/client_actor.h"
#include "session/manager.h"
#include "session/will.h"

#define SL_MANAGER_RECORD_MAX (64u << 20)

/* A record that waits for room in the append queue. */
typedef struct waiting {
    struct waiting *next;
    enum { APPEND, QOS2_CLEAR, WILL } what;
    sl_log_topic *topic;
    uint32_t flags;
    uint64_t token;
    size_t key_len, value_len;
    size_t publisher_len; /* of a will */
    uint8_t bytes[];      /* key, value, publisher */
} waiting;

/* A CONNECT that is being answered; freed when nothing is missing any more. */
typedef struct connecting {
    sl_manager *mg;
    sl_client *cl; /* referenced */
    unsigned loop;
    uint32_t missing; /* stores under way */
    sl_err err;       /* the first failure */
    sl_session_answer answer;
} connecting;

struct sl_manager {
    sl_core *core;
    sl_loop *lp;
    unsigned shard;
    sl_log_producer *producer;
    sl_log_consumer *requests;
    sl_log_consumer *responses;
    waiting *wait_first, *wait_last;
    uint64_t generation; /* given out last */
    uint32_t sessions;   /* that exist */
    sl_wills wills;
    sl_timer will_timer;
    sl_timer scan;
    sl_mail poll_mail, drain_mail;
    _Atomic bool poll_posted;
    bool started;
};

/* manager.c */
void sl_manager_count(sl_manager *mg, unsigned stat, int64_t delta);
/** Never lost, in order: waits while the log has no room. cg NULL: nobody waits for it. */
void sl_manager_append(sl_manager *mg, int what, sl_log_topic *topic, sl_slice key, sl_slice value,
                       uint32_t flags, connecting *cg);
/** arg: the manager. */
void sl_manager_publish_will(void *arg, sl_client *cl, const sl_will *wl);
void sl_manager_send_answer(sl_manager *mg, connecting *cg);

/* session_rules.c */
/** A store that cg waited for has ended; answers with the last one. */
void sl_session_store_finished(connecting *cg, sl_err err);
/** Takes rq->will. */
void sl_session_on_connect(sl_manager *mg, sl_client *cl, sl_session_request *rq);
void sl_session_on_disconnect(sl_manager *mg, sl_client *cl, const sl_session_request *rq);
void sl_session_on_clear(sl_manager *mg, sl_client *cl, const sl_session_request *rq);
/** A client whose session the loader found. arg: the manager. */
void sl_session_take_over(void *arg, sl_client *cl);
void sl_session_tick_wills(sl_manager *mg);
/** Timers; arg: the manager. */
void sl_session_on_will_timer(void *arg);
void sl_session_on_scan(void *arg);

#endif
