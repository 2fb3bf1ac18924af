/* SPDX-License-Identifier: Apache-2.0
 *
 * writer_int: what writer.c (life, threads, figures), writer_lane.c (buffer and batches) and
 * writer_bury.c (ages and dead letters) share. Nobody else includes it.
 */
#ifndef SL_GATEWAY_WRITER_INT_H
#define SL_GATEWAY_WRITER_INT_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "base/logger.h"
#include "loop/pool.h"
#include "writer.h"

#define SL_WRITER_MAGIC     0x53577274u
#define SL_WRITER_DELAY_CAP 30000 /* ms between two tries */

/* One message of one lane. All fields are guarded by the lane's lock, but that the thread that set
 * `writing` or `burying` reads doc without it. */
typedef struct sl_writer_entry {
    sl_node node;     /* in the lane's queue or parked list until settled */
    sl_message *msg;  /* owned reference */
    sl_taken *token;  /* owned until settled */
    sl_document *doc; /* owned; made once, so that a retry has the same ObjectId */
    char *reason;     /* owned; why the last try failed, or NULL */
    sl_mono_ms arrived;
    sl_mono_ms not_before; /* of its next try, after a failure of its own */
    size_t bytes;
    uint32_t attempts;
    int code;     /* of the last failure */
    bool parked;  /* in the parked list */
    bool writing; /* in a batch that is in the sink */
    bool burying; /* on its way to the dead letter */
    bool doomed;  /* the store will not take it: dead letter only */
    bool settled; /* acknowledged and out of the lists; whoever still works on it frees it */
} sl_writer_entry;

typedef struct sl_writer_lane {
    struct sl_writer *w;
    sl_writer_target target;
    sl_sink_target sink_target;
    size_t index;
    sl_thread *thread; /* owned */
    bool shard_taken;  /* lane's thread only, as the next */
    unsigned shard;
    sl_log_limit id_warning, doom_warning, drop_warning, state_warning;

    pthread_mutex_t lock; /* guards all below; never held over a call of sink or dead letter */
    pthread_cond_t wake;
    bool poked;    /* something changed since the last turn began */
    bool closed;   /* takes no more messages */
    bool finished; /* the thread has left */
    sl_list queue; /* arrival order */
    sl_list parked;
    size_t parked_count;
    size_t parked_qos0;
    size_t doomed;
    uint32_t failures;             /* in a row, of the store as a whole */
    uint32_t batch_limit;          /* halved when a batch fails: a slow store needs smaller ones */
    sl_mono_ms not_before;         /* of the next batch */
    sl_mono_ms bury_not_before;    /* of the next dead letter, after one that failed */
    _Atomic sl_sink_outcome state; /* STORED, AWAY or CONFIG, as of the last batch or probe */
    sl_mono_ms away_since; /* start of the first failure since the last successful batch; 0: none */
    sl_mono_ms progress;   /* when the store last took a batch */
    char reason[SL_SINK_REASON_BYTES];
    _Atomic size_t queued; /* written under the lock, read by the figures */
    _Atomic int64_t bytes;
    _Atomic size_t held; /* queued and parked */
} sl_writer_lane;

typedef struct sl_writer_figure {
    struct sl_writer *w;
    sl_writer_stat stat;
} sl_writer_figure;

struct sl_writer {
    uint32_t magic;
    sl_writer_conf cf;
    sl_clock *ck; /* borrowed, as the next two */
    sl_sink *sink;
    sl_dead_letter *dl;
    sl_oid_source oids;
    sl_writer_lane *lanes; /* owned; cf.target_count */
    sl_stats *stats;       /* borrowed, may be NULL */
    unsigned stats_first;
    sl_writer_figure figures[SL_WRITER_STAT_COUNT];
    _Atomic int64_t counts[SL_WRITER_STAT_COUNT]; /* of the counters among them */
    sl_thread *keeper;                            /* owned */

    pthread_mutex_t keeper_lock; /* guards the next two; no other lock is taken under it */
    pthread_cond_t keeper_wake;
    bool keeper_poked;
    bool keeper_stop;
    _Atomic sl_mono_ms stop_at; /* INT64_MAX until sl_writer_stop */
};

static inline void sl_writer_count(sl_writer *w, sl_writer_stat stat, int64_t by)
{
    atomic_fetch_add_explicit(&w->counts[stat], by, memory_order_relaxed);
}

/** The store has been away for as long as any message may wait: messages are not held for it any
 * more, it is only asked whether it is back. @locks lane */
bool sl_writer_is_down(const sl_writer_lane *ln, sl_mono_ms now);
/** Takes the entry out of its list and acknowledges it; frees it unless somebody works on it.
 * @locks lane */
void sl_writer_settle(sl_writer_lane *ln, sl_writer_entry *en);
/** Counts, logs and settles a message that found no room. @locks lane */
void sl_writer_drop(sl_writer_lane *ln, sl_writer_entry *en);
void sl_writer_entry_free(sl_writer_entry **en);
/** Lets parked entries in while there is room. @locks lane */
void sl_writer_admit(sl_writer_lane *ln);
/** The document of a message of the lane; warns of a missing identifier. @thread lane, keeper */
sl_document *sl_writer_make_document(sl_writer_lane *ln, sl_message *msg);
/** Wakes the lane's thread. @locks lane */
void sl_writer_poke(sl_writer_lane *ln);
void sl_writer_poke_keeper(sl_writer *w);

typedef enum sl_writer_whom {
    SL_BURY_DOOMED, /* what the store refused */
    SL_BURY_DUE,    /* and what is older than max_unacked_ms */
    SL_BURY_REST    /* everything, at stop */
} sl_writer_whom;

/** Writes one group of entries to the dead letter and settles them. True when there may be more of
 * them at once. @thread lane, keeper, stop */
bool sl_writer_bury(sl_writer_lane *ln, sl_writer_whom whom);

#endif
