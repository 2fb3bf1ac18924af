/* SPDX-License-Identifier: Apache-2.0
 *
 * writer_bury: the way of messages into the dead letter: what the store refused, what became too
 * old, what is left at stop; and the waiting time of parked messages. The keeper's turn is here, so
 * that both bounds hold even while a lane's own thread is stuck in the store.
 */
#include "writer_int.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/assert.h"

#define GROUP_COUNT   500        /* entries of one append */
#define GROUP_BYTES   (16 << 20) /* and their bytes */
#define BURY_RETRY_MS 1000
#define DOWN_TICK_MS  200 /* a message for a store that is down waits no longer than this */
#define REASON_BYTES  (SL_SINK_REASON_BYTES + 32)

/* Entries on their way to the file; all have `burying` set. */
typedef struct group {
    size_t count;
    size_t bytes;
    sl_writer_entry *entry[GROUP_COUNT];
} group;

/* When the message is too old. A store that works through a backlog is slow, not away: what waits
 * for its first try is counted from the last batch that was stored. */
static sl_mono_ms expires_at(const sl_writer_lane *ln, const sl_writer_entry *en)
{
    sl_mono_ms since = en->arrived;
    if (en->not_before == 0 && ln->progress > since)
        since = ln->progress;
    return since + ln->w->cf.max_unacked_ms;
}

static bool is_old(const sl_writer_lane *ln, const sl_writer_entry *en, sl_mono_ms now)
{
    if (ln->w->cf.max_unacked_ms == 0 || ln->state == SL_SINK_CONFIG)
        return false;
    return now >= expires_at(ln, en) || sl_writer_is_down(ln, now);
}

/* At stop, what only a configuration error holds is better left to the broker, which sends it
 * again, than moved to a file that somebody must replay. */
static bool is_left_to_broker(const sl_writer_lane *ln, const sl_writer_entry *en)
{
    return ln->w->cf.redelivers && ln->state == SL_SINK_CONFIG && en->msg->qos > 0 && !en->doomed;
}

static bool is_wanted(const sl_writer_lane *ln, const sl_writer_entry *en, sl_writer_whom whom,
                      sl_mono_ms now)
{
    if (en->burying || (en->writing && en->doc == NULL)) // its document is just being made
        return false;
    switch (whom) {
    case SL_BURY_DOOMED:
        return en->doomed;
    case SL_BURY_DUE:
        return en->doomed || is_old(ln, en, now);
    case SL_BURY_REST:
        return !is_left_to_broker(ln, en);
    }
    return false;
}

static bool is_full(const group *gr)
{
    return gr->count == GROUP_COUNT || gr->bytes >= GROUP_BYTES;
}

static void gather(sl_writer_lane *ln, sl_list *list, sl_writer_whom whom, sl_mono_ms now,
                   group *gr)
{
    for (sl_node *node = sl_list_first(list); node != NULL && !is_full(gr);
         node = sl_list_next(list, node)) {
        sl_writer_entry *en = SL_CONTAINER(node, sl_writer_entry, node);
        if (!is_wanted(ln, en, whom, now))
            continue;
        en->burying = true;
        gr->bytes += en->bytes;
        gr->entry[gr->count++] = en;
    }
}

static char *make_reason(const sl_writer_entry *en, sl_writer_whom whom)
{
    const char *last = en->reason != NULL ? en->reason : "not written yet";
    if (en->doomed)
        return sl_strdup(last);
    char text[REASON_BYTES];
    snprintf(text, sizeof text, "%s: %s", whom == SL_BURY_REST ? "stopped" : "expired", last);
    return sl_strdup(text);
}

static sl_err append_group(sl_writer_lane *ln, const group *gr, sl_writer_whom whom)
{
    sl_dead_letter_entry *lines = sl_calloc(gr->count, sizeof *lines);
    char **reasons = sl_calloc(gr->count, sizeof *reasons);
    pthread_mutex_lock(&ln->lock); // a lane that still writes an entry may note a failure in it
    for (size_t i = 0; i < gr->count; i++) {
        const sl_writer_entry *en = gr->entry[i];
        reasons[i] = make_reason(en, whom);
        lines[i] = (sl_dead_letter_entry){
            .doc = en->doc,
            .fate = {.at_ns = sl_clock_wall_ns(ln->w->ck),
                     .reason = reasons[i],
                     .code = en->code,
                     .attempts = en->attempts,
                     .database = ln->target.database,
                     .collection = ln->target.collection},
        };
    }
    pthread_mutex_unlock(&ln->lock);
    sl_err err = sl_dead_letter_append(ln->w->dl, lines, gr->count);
    for (size_t i = 0; i < gr->count; i++)
        sl_free(reasons[i]);
    sl_free(reasons);
    sl_free(lines);
    return err;
}

static void finish_group(sl_writer_lane *ln, const group *gr, sl_err err)
{
    for (size_t i = 0; i < gr->count; i++) {
        sl_writer_entry *en = gr->entry[i];
        en->burying = false;
        if (en->settled) { // it was stored while its line was written: one copy too many is
                           // harmless
            if (!en->writing)
                sl_writer_entry_free(&en);
        } else if (err == SL_OK) {
            sl_writer_settle(ln, en);
        }
    }
    ln->bury_not_before = err == SL_OK ? 0 : sl_clock_mono(ln->w->ck) + BURY_RETRY_MS;
    sl_writer_admit(ln);
    if (gr->count > 0)
        sl_writer_poke(ln);
}

/* Spares the walk over the queue where it would find nothing, as after every good batch. */
static bool may_bury(const sl_writer_lane *ln, sl_writer_whom whom, sl_mono_ms now)
{
    if (whom == SL_BURY_REST)
        return ln->held > 0; // the last chance: no pause after a failure
    if (ln->bury_not_before > now)
        return false;
    return whom == SL_BURY_DUE ? ln->held > 0 : ln->doomed > 0;
}

bool sl_writer_bury(sl_writer_lane *ln, sl_writer_whom whom)
{
    sl_mono_ms now = sl_clock_mono(ln->w->ck);
    pthread_mutex_lock(&ln->lock);
    if (!may_bury(ln, whom, now)) {
        pthread_mutex_unlock(&ln->lock);
        return false;
    }
    group *gr = sl_calloc(1, sizeof *gr);
    gather(ln, &ln->queue, whom, now, gr);
    gather(ln, &ln->parked, whom, now, gr);
    bool more = is_full(gr);
    pthread_mutex_unlock(&ln->lock);
    sl_err err = SL_OK;
    if (gr->count > 0) {
        // no lock: a burying entry without document belongs to this thread
        for (size_t i = 0; i < gr->count; i++)
            if (gr->entry[i]->doc == NULL)
                gr->entry[i]->doc = sl_writer_make_document(ln, gr->entry[i]->msg);
        err = append_group(ln, gr, whom);
        pthread_mutex_lock(&ln->lock);
        finish_group(ln, gr, err);
        pthread_mutex_unlock(&ln->lock);
        if (err != SL_OK)
            sl_writer_poke_keeper(ln->w); // it tries again
    }
    sl_free(gr);
    return more && err == SL_OK;
}

/* ---- keeper ---- */

static void drop_waited(sl_writer_lane *ln, sl_mono_ms now)
{
    sl_dur_ms max = ln->w->cf.max_wait_ms;
    if (max == 0)
        return;
    for (sl_node *node = sl_list_first(&ln->parked), *next; node != NULL; node = next) {
        next = sl_list_next(&ln->parked, node);
        sl_writer_entry *en = SL_CONTAINER(node, sl_writer_entry, node);
        if (now - en->arrived < max)
            return;
        if (en->burying)
            continue;
        sl_writer_count(ln->w, SL_WRITER_STAT_BUFFER_WAIT_TIMEOUTS, 1);
        sl_writer_drop(ln, en);
    }
}

static void soonest(sl_mono_ms *due, sl_mono_ms time)
{
    if (time < *due)
        *due = time;
}

/* When the lane next needs the keeper. Lists are in arrival order, so the first counts. */
static sl_mono_ms next_due(const sl_writer_lane *ln, sl_mono_ms now)
{
    const sl_writer_conf *cf = &ln->w->cf;
    sl_mono_ms due = ln->doomed > 0 ? ln->bury_not_before : INT64_MAX;
    const sl_node *oldest[] = {sl_list_first(&ln->queue), sl_list_first(&ln->parked)};
    for (int i = 0; i < 2; i++) {
        if (oldest[i] == NULL)
            continue;
        const sl_writer_entry *en = SL_CONTAINER(oldest[i], const sl_writer_entry, node);
        if (cf->max_unacked_ms > 0)
            soonest(&due, expires_at(ln, en));
        if (en->parked && cf->max_wait_ms > 0)
            soonest(&due, en->arrived + cf->max_wait_ms);
    }
    // the lane may be stuck in asking a store that is down, while messages come
    if (sl_writer_is_down(ln, now))
        soonest(&due, now + DOWN_TICK_MS);
    // what is due by now and could not be done is tried again a little later
    return due > now ? due : now + BURY_RETRY_MS;
}

void sl_writer_turn_keeper(sl_writer *w, sl_mono_ms *due)
{
    SL_CHECK(w, SL_WRITER_MAGIC);
    *due = INT64_MAX;
    for (size_t i = 0; i < w->cf.target_count; i++) {
        sl_writer_lane *ln = &w->lanes[i];
        while (sl_writer_bury(ln, SL_BURY_DUE))
            ;
        pthread_mutex_lock(&ln->lock);
        sl_mono_ms now = sl_clock_mono(w->ck);
        drop_waited(ln, now);
        soonest(due, next_due(ln, now));
        pthread_mutex_unlock(&ln->lock);
    }
    // a message that comes while the keeper sleeps is due no sooner than this
    sl_mono_ms now = sl_clock_mono(w->ck);
    if (w->cf.max_unacked_ms > 0)
        soonest(due, now + w->cf.max_unacked_ms);
    if (w->cf.max_wait_ms > 0)
        soonest(due, now + w->cf.max_wait_ms);
}
