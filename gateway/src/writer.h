/* SPDX-License-Identifier: Apache-2.0
 *
 * writer: the durable listener that stores messages: bounded buffer, batches, retries, dead letter.
 * A message is reported taken (and only then acknowledged to the broker) when it is stored or in
 * the dead-letter file, or was dropped with a count by the buffer's strategy.
 *
 *   router --on_message--> lane (one per target, own thread) --batch--> sink --> taken
 *             (its loop)     |  full: parked, waits for room                (permanent error,
 *                            |                                               age, stop) --> dead
 * letter
 *                            `-- keeper (one thread): ages, waiting time, dead letters again
 *
 * One lane per configured sink, so that a bad collection does not hold the others. The keeper makes
 * the age bound hold even while a lane's thread hangs in the store.
 *
 * State of an entry of a lane (flags, under the lane's lock):
 *   parked --room--> queued --picked--> writing --stored--> settled
 *     |                ^  |                |  `--permanent--> doomed --written--> settled
 *     `-- max-wait --> drop, settled       `--away, transient--> queued
 *   queued and writing entries past max-unacked-ms are burying: settled when the line is on disk.
 */
#ifndef SL_GATEWAY_WRITER_H
#define SL_GATEWAY_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/stats.h"
#include "dead_letter.h"
#include "router.h"
#include "sink.h"

/* What happens to a message that finds the buffer full. */
typedef enum sl_writer_strategy {
    SL_WRITER_BLOCKING_QUEUE, /* it waits for room, at most max_wait_ms */
    SL_WRITER_RING_BUFFER,    /* the oldest is dropped, counted and acknowledged */
    SL_WRITER_DROP_INCOMING   /* it is dropped, counted and acknowledged */
} sl_writer_strategy;

/** "blocking-queue", "ring-buffer", "drop-incoming"; SL_EINVAL. @thread init */
SL_MUST_USE sl_err sl_writer_strategy_parse(const char *word, sl_writer_strategy *out);
/** "auto", "payload-field"; SL_EINVAL. @thread init */
SL_MUST_USE sl_err sl_id_strategy_parse(const char *word, sl_id_strategy *out);

typedef struct sl_writer_target {
    const char *topic; /* filter */
    const char *database;
    const char *collection;
    uint8_t qos; /* to subscribe with; 1 unless configured */
} sl_writer_target;

/* All texts are borrowed for the life of the writer. */
typedef struct sl_writer_conf {
    const sl_writer_target *targets;
    size_t target_count;
    sl_writer_strategy strategy;
    uint32_t capacity;        /* buffered messages per target, 1..1000000 */
    int64_t max_bytes;        /* buffered bytes per target; a larger message fits an empty buffer */
    sl_dur_ms max_wait_ms;    /* 0: wait without bound */
    uint32_t batch_size;      /* 1..100000 */
    uint32_t max_retries;     /* of a document the store refused for now */
    sl_dur_ms retry_delay_ms; /* doubles, at most 30 s */
    sl_dur_ms max_unacked_ms; /* how long a message waits for a store that stores nothing before it
                                 goes to the dead letter; 0: max_retries failed tries decide */
    sl_dur_ms shutdown_timeout_ms;
    sl_id_strategy id_strategy;
    const char *id_field;
    bool redelivers; /* clean-session false: what is held at stop comes again */
    bool manual;     /* no threads: a test turns it by hand */
} sl_writer_conf;

#define SL_WRITER_DEFAULT_MAX_BYTES (256ll << 20)

/** Ranges and texts of a configuration; *why is an owned message (sl_free) that names the setting.
 * @thread init */
SL_MUST_USE sl_err sl_writer_conf_check(const sl_writer_conf *cf, char **why);

typedef struct sl_writer sl_writer;

/** cf was checked. sink and dl are borrowed. @thread init */
sl_writer *sl_writer_new(const sl_writer_conf *cf, sl_clock *ck, sl_sink *sink, sl_dead_letter *dl);
/** Registers a durable listener per target. @thread init or the router's loop */
SL_MUST_USE sl_err sl_writer_register(sl_writer *w, sl_router *rt);
/** Starts the threads (before the session connects). @thread init */
SL_MUST_USE sl_err sl_writer_start(sl_writer *w);
/**
 * Drains: writes on for at most shutdown_timeout_ms, then what is left goes to the dead letter and
 * is acknowledged. Held back unacknowledged are only what the dead letter did not take, and QoS 1
 * and 2 messages that a configuration error holds when `redelivers`. Messages that arrive later are
 * not taken. The router's loop must still run, so that acknowledgements leave. Joins the threads.
 * @thread not a loop
 */
void sl_writer_stop(sl_writer *w);
/** After stop; tokens still held stay with the router, which frees them. @thread init */
void sl_writer_free(sl_writer **w);

/* X(NAME, "metric", KIND, "help"): rows of the gateway's statistics table, in this order. */
#define SL_WRITER_STAT_MAP(X)                                                                      \
    X(BUFFER_SIZE, "mqtt_buffer_size", GAUGE,                                                      \
      "Messages in the writer's buffers, parked ones included.")                                   \
    X(BUFFER_CAPACITY, "mqtt_buffer_capacity", GAUGE, "Places in the writer's buffers.")           \
    X(BUFFER_BYTES, "mqtt_buffer_bytes", GAUGE, "Bytes of the messages in the writer's buffers.")  \
    X(BUFFER_ACCEPTED, "mqtt_buffer_accepted", COUNTER, "Messages that got a place in a buffer.")  \
    X(BUFFER_DROPPED, "mqtt_buffer_dropped", COUNTER,                                              \
      "Messages dropped and acknowledged because a buffer was full.")                              \
    X(BUFFER_WAIT_TIMEOUTS, "mqtt_buffer_wait_timeouts", COUNTER,                                  \
      "Messages dropped because they waited longer than buffer.max-wait-ms.")                      \
    X(BUFFER_DUPLICATES, "mqtt_buffer_duplicates", COUNTER,                                        \
      "Documents that were stored already under the same identifier and topic.")                   \
    X(WRITER_WRITTEN, "mqtt_writer_written", COUNTER, "Documents stored, duplicates left out.")    \
    X(WRITER_RETRIES, "mqtt_writer_retries", COUNTER, "Documents given to the sink once more.")    \
    X(WRITER_ID_MISSING, "mqtt_writer_id_missing", COUNTER,                                        \
      "Messages without a usable identifier field, inserted under a new identifier.")              \
    X(WRITER_CONFLICTS, "mqtt_writer_id_conflicts", COUNTER,                                       \
      "Messages refused because their identifier belongs to another topic.")                       \
    X(WRITER_HELD, "mqtt_writer_held", GAUGE,                                                      \
      "1 while a configuration error of the store or an unwritable dead letter holds messages.")   \
    X(WRITER_BATCH_SECONDS, "mqtt_writer_batch_seconds", HISTOGRAM,                                \
      "Time of one batch in the sink.")                                                            \
    X(DEAD_LETTER_WRITTEN, "mqtt_dead_letter_written", COUNTER,                                    \
      "Documents written to the dead-letter file.")                                                \
    X(DEAD_LETTER_WRITE_ERRORS, "mqtt_dead_letter_write_errors", COUNTER,                          \
      "Writes to the dead-letter file that failed.")                                               \
    X(DEAD_LETTER_BYTES, "mqtt_dead_letter_bytes", GAUGE, "Size of the dead-letter file.")

typedef enum sl_writer_stat {
#define SL_WRITER_STAT_ENUM(name, metric, kind, help) SL_WRITER_STAT_##name,
    SL_WRITER_STAT_MAP(SL_WRITER_STAT_ENUM)
#undef SL_WRITER_STAT_ENUM
        SL_WRITER_STAT_COUNT
} sl_writer_stat;

/** Connects the rows first .. first + SL_WRITER_STAT_COUNT - 1 of st. Before start. @thread init */
void sl_writer_bind_stats(sl_writer *w, sl_stats *st, unsigned first);
/** One figure (not of the histogram, which is 0). @thread any */
int64_t sl_writer_stat_get(const sl_writer *w, sl_writer_stat stat);

typedef struct sl_writer_health {
    bool ok;     /* false: 503 */
    bool away;   /* the store does not answer; messages are buffered */
    bool config; /* the store refuses us: someone must act; messages are held */
    bool dead_letter_failing;
    char reason[SL_SINK_REASON_BYTES]; /* of the first lane in trouble, "" when ok */
} sl_writer_health;
/** ok is false with config or dead_letter_failing or away. @thread any */
void sl_writer_read_health(sl_writer *w, sl_writer_health *out);

/** Appends the objects "buffer" and "writer" of GET /mqtt/stats: `"buffer":{...},"writer":{...}`.
 * @thread any */
SL_MUST_USE sl_err sl_writer_write_json(sl_writer *w, sl_buf *out);

/* ---- for the threads, and for tests that turn a manual writer by hand ---- */

/** One message of a target, as the router hands it over. @thread the router's loop */
void sl_writer_on_message(sl_writer *w, size_t target, sl_message *msg, sl_taken *token);
/** One step of a lane: at most one batch. True when it wants another turn at once; else *due is the
 * monotonic time of its next turn (INT64_MAX: when a message comes). @thread the lane's */
bool sl_writer_turn_lane(sl_writer *w, size_t target, sl_mono_ms *due);
/** One step of the keeper; *due as above. @thread the keeper's */
void sl_writer_turn_keeper(sl_writer *w, sl_mono_ms *due);

#endif
