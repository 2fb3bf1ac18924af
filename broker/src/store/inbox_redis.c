/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox_redis: life of the Redis inbox, and the way of its tasks; see inbox_redis_int.h. A task is
 * tried until Redis answered it, however long Redis is away: what bounds that is the number of open
 * tasks, and what stops it is closing.
 */
#include "store/inbox_redis_int.h"

#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "store/inbox_redis_lua.h"

#define DIAL_THREADS 2
#define DIAL_QUEUE   64
#define LOG_BURST    10 /* lines about refusals in a period */
#define LOG_PERIOD   10000

/* ---- tasks ----------------------------------------------------------------------------------- */

redis_task *redis_task_new(inbox_redis *ad, sl_inbox_op kind, uint64_t token, size_t assigned)
{
    redis_task *tk = sl_calloc(1, sizeof(*tk) + assigned * sizeof(tk->assigned[0]));
    tk->ad = ad;
    tk->kind = kind;
    tk->token = token;
    tk->assigned_count = assigned;
    return tk;
}

static void free_task(redis_task *tk)
{
    sl_rbuf_unref(&tk->body);
    sl_free(tk->entries);
    sl_free(tk->client);
    sl_free(tk);
}

sl_err redis_refuse(inbox_redis *ad)
{
    ad->is_refusing = true;
    return SL_EAGAIN;
}

sl_err redis_may_take(inbox_redis *ad)
{
    if (ad->is_closing)
        return SL_ECLOSED;
    bool is_full =
        ad->open_count >= REDIS_INBOX_MAX_OPEN || ad->open_bytes >= REDIS_INBOX_MAX_BYTES;
    return is_full ? redis_refuse(ad) : SL_OK;
}

static void on_submitted(sl_mail *mail)
{
    redis_task *tk = SL_CONTAINER(mail, redis_task, mail);
    sl_redis_submit(tk->ad->rd, &tk->op);
}

void redis_task_submit(inbox_redis *ad, redis_task *tk)
{
    tk->seq = ad->next_seq++;
    tk->bytes = tk->op.len;
    ad->open_count++;
    ad->open_bytes += tk->bytes;
    sl_list_push_back(&ad->open, &tk->node);
    tk->mail.fn = on_submitted;
    bool is_posted = sl_loop_post(ad->lp, &tk->mail);
    SL_ASSERT(is_posted); // the loop stops only after is_closing
}

/* ---- the Redis thread ------------------------------------------------------------------------ */

static void wake(inbox_redis *ad)
{
    if (ad->options.wake != NULL && !atomic_exchange(&ad->woken, true))
        ad->options.wake(ad->options.arg);
}

static void check_idle(inbox_redis *ad)
{
    bool is_idle = sl_redis_open_ops(ad->rd) == 0 || !sl_redis_is_trying(ad->rd);
    if (!ad->wants_idle || !is_idle)
        return;
    pthread_mutex_lock(&ad->lock);
    ad->is_idle = true;
    pthread_cond_signal(&ad->idle);
    pthread_mutex_unlock(&ad->lock);
}

void redis_task_answered(sl_redis_op *op, const sl_redis_reply *reply)
{
    redis_task *tk = SL_CONTAINER(op, redis_task, op);
    inbox_redis *ad = tk->ad;
    redis_task_result(tk, reply);
    tk->next = atomic_load_explicit(&ad->finished, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&ad->finished, &tk->next, tk,
                                                  memory_order_release, memory_order_relaxed))
        ;
    wake(ad);
}

static void on_turn_end(void *arg)
{
    inbox_redis *ad = arg;
    if (ad->rd == NULL)
        return;
    sl_redis_flush(ad->rd);
    check_idle(ad);
}

static void on_state(void *arg, bool is_up)
{
    inbox_redis *ad = arg;
    atomic_store(&ad->is_up, is_up);
    wake(ad); // the drain counts it
}

static void on_patience_ended(void *arg)
{
    inbox_redis *ad = arg;
    pthread_mutex_lock(&ad->lock);
    ad->is_idle = true;
    pthread_cond_signal(&ad->idle);
    pthread_mutex_unlock(&ad->lock);
}

static void start_client(void *arg)
{
    inbox_redis *ad = arg;
    const sl_inbox_redis_options *ro = &ad->redis;
    sl_timer_init(&ad->patience, ad->lp, on_patience_ended, ad);
    const sl_redis_options options = {.lp = ad->lp,
                                      .pool = ad->pool,
                                      .mode = ro->mode,
                                      .seeds = ro->seeds,
                                      .seed_count = ro->seed_count,
                                      .tls = ro->tls,
                                      .master = ro->master,
                                      .username = ro->username,
                                      .password = ro->password,
                                      .sentinel_password = ro->sentinel_password,
                                      .name = ro->name,
                                      .database = ro->database,
                                      .connect_timeout = ro->connect_timeout,
                                      .reply_timeout = ro->reply_timeout,
                                      .scripts = inbox_redis_scripts(),
                                      .script_count = INBOX_LUA_COUNT,
                                      .on_state = on_state,
                                      .arg = ad};
    ad->rd = sl_redis_new(&options);
}

static void begin_close(void *arg)
{
    inbox_redis *ad = arg;
    ad->wants_idle = true;
    sl_timer_start(&ad->patience, REDIS_INBOX_CLOSE_MS, 0);
    check_idle(ad);
}

static void end_close(void *arg)
{
    inbox_redis *ad = arg;
    sl_timer_fini(&ad->patience);
    sl_redis_close(&ad->rd);
}

/* ---- completions, on the owner's thread ------------------------------------------------------ */

static void commit_ready(inbox_redis *ad)
{
    sl_node *first = sl_list_first(&ad->open);
    uint64_t done_to = first != NULL ? SL_CONTAINER(first, redis_task, node)->seq : ad->next_seq;
    if (ad->given_up < done_to)
        done_to = ad->given_up;
    for (sl_node *nd; (nd = sl_list_first(&ad->commits)) != NULL;) {
        redis_commit *co = SL_CONTAINER(nd, redis_commit, node);
        if (co->seq > done_to)
            return;
        sl_err err = ad->options.commit(ad->options.arg, co->topic, co->partition, co->offset);
        uint32_t held = 0;
        if (err != SL_OK && sl_log_limit_pass(&ad->limit, LOG_BURST, LOG_PERIOD, &held))
            sl_warn(SL_C_INBOX, "OFFSET-NOT-COMMITTED", SL_U("partition", co->partition), SL_E(err),
                    SL_U("suppressed", held)); // a later one commits further
        sl_list_remove(nd);
        sl_free(co);
        ad->commit_count--;
    }
}

static void complete(inbox_redis *ad, redis_task *tk)
{
    sl_list_remove(&tk->node);
    ad->open_count--;
    ad->open_bytes -= tk->bytes;
    if (tk->err == SL_ECLOSED && tk->seq < ad->given_up)
        ad->given_up = tk->seq;
    if (tk->client != NULL)
        (void)sl_map_remove(ad->adding, sl_slice_of(tk->client, tk->client_len));
    sl_inbox_done done = {.op = tk->kind,
                          .token = tk->token,
                          .err = tk->err,
                          .dropped = tk->dropped,
                          .evicted = tk->evicted,
                          .is_repeated = tk->is_repeated,
                          .entries = tk->entries,
                          .entry_count = tk->entry_count,
                          .expired = tk->expired,
                          .repaired = tk->repaired,
                          .body = tk->body,
                          .more = tk->more,
                          .removed = tk->removed,
                          .count = tk->count};
    if (tk->kind == SL_INBOX_OP_ADD && tk->err == SL_OK) {
        done.assigned = tk->assigned;
        done.assigned_count = tk->assigned_count;
    }
    ad->options.done(ad->options.arg, &done);
    free_task(tk);
}

/* The stack has the latest on top. */
static redis_task *take_finished(inbox_redis *ad)
{
    redis_task *tk = atomic_exchange_explicit(&ad->finished, NULL, memory_order_acquire);
    redis_task *oldest = NULL;
    while (tk != NULL) {
        redis_task *next = tk->next;
        tk->next = oldest;
        oldest = tk;
        tk = next;
    }
    return oldest;
}

static void count_state(inbox_redis *ad, bool is_down)
{
    if (is_down == ad->is_told_down)
        return;
    ad->is_told_down = is_down;
    if (ad->options.stats != NULL)
        sl_stats_add(ad->options.stats, ad->options.stats_shard,
                     ad->options.stats_base + SL_INBOX_STAT_UNREACHABLE, is_down ? 1 : -1);
}

static size_t drain(void *self)
{
    inbox_redis *ad = self;
    atomic_store(&ad->woken, false);
    if (!ad->is_closing)
        count_state(ad, !atomic_load(&ad->is_up));
    size_t completed = 0;
    for (redis_task *tk = take_finished(ad), *next; tk != NULL; tk = next, completed++) {
        next = tk->next;
        complete(ad, tk);
    }
    commit_ready(ad);
    if (completed > 0 && ad->is_refusing) {
        ad->is_refusing = false;
        if (ad->options.room != NULL)
            ad->options.room(ad->options.arg);
    }
    return completed;
}

static sl_err redis_commit_behind(void *self, const char *group, sl_log_topic *topic,
                                  uint16_t partition, uint64_t offset)
{
    inbox_redis *ad = self;
    (void)group; // the consumer that commits has it
    if (ad->is_closing)
        return SL_ECLOSED;
    if (ad->options.commit == NULL)
        return SL_EUNSUPPORTED;
    if (ad->commit_count == REDIS_INBOX_MAX_COMMIT)
        return redis_refuse(ad);
    redis_commit *co = sl_alloc(sizeof(*co));
    *co = (redis_commit){
        .seq = ad->next_seq, .topic = topic, .partition = partition, .offset = offset};
    sl_list_push_back(&ad->commits, &co->node);
    ad->commit_count++;
    commit_ready(ad);
    return SL_OK;
}

/* ---- life ------------------------------------------------------------------------------------ */

static void free_adapter(inbox_redis *ad)
{
    sl_pool_free(&ad->pool);
    if (ad->lp != NULL)
        sl_loop_free(&ad->lp);
    sl_map_free(&ad->adding);
    pthread_cond_destroy(&ad->idle);
    pthread_mutex_destroy(&ad->lock);
    sl_free(ad);
}

static sl_err redis_open(const sl_inbox_options *options, void **self)
{
    const sl_inbox_redis_options *ro = options->redis;
    if (ro == NULL || ro->seed_count == 0 || strpbrk(ro->prefix, "{}") != NULL)
        return SL_EINVAL;
    inbox_redis *ad = sl_calloc(1, sizeof(*ad));
    ad->options = *options;
    ad->redis = *ro;
    ad->given_up = UINT64_MAX;
    sl_list_init(&ad->open);
    sl_list_init(&ad->commits);
    ad->adding = sl_map_new(REDIS_INBOX_MAX_OPEN);
    pthread_mutex_init(&ad->lock, NULL);
    pthread_cond_init(&ad->idle, NULL);
    sl_clock_init(&ad->clock);
    sl_err err = sl_pool_new(DIAL_THREADS, DIAL_QUEUE, &ad->pool);
    if (err == SL_OK)
        err = sl_loop_new("redis", &ad->clock, &ad->lp);
    if (err == SL_OK) {
        sl_loop_on_turn_end(ad->lp, on_turn_end, ad);
        err = sl_loop_start(ad->lp);
    }
    if (err != SL_OK) {
        free_adapter(ad);
        return err;
    }
    count_state(ad, true);
    sl_loop_call_wait(ad->lp, start_client, ad);
    *self = ad;
    return SL_OK;
}

static void redis_close(void *self)
{
    inbox_redis *ad = self;
    ad->is_closing = true;
    sl_loop_call_wait(ad->lp, begin_close, ad);
    pthread_mutex_lock(&ad->lock);
    while (!ad->is_idle)
        pthread_cond_wait(&ad->idle, &ad->lock);
    pthread_mutex_unlock(&ad->lock);
    sl_loop_call_wait(ad->lp, end_close, ad);
    sl_pool_free(&ad->pool); // before the loop: a dial that ends now is still told to it
    sl_loop_stop(ad->lp);
    sl_loop_join(ad->lp);
    for (redis_task *tk = take_finished(ad), *next; tk != NULL; tk = next) {
        next = tk->next;
        complete(ad, tk);
    }
    SL_ASSERT(ad->open_count == 0);
    commit_ready(ad);
    for (sl_node *nd; (nd = sl_list_pop_front(&ad->commits)) != NULL;)
        sl_free(SL_CONTAINER(nd, redis_commit, node));
    count_state(ad, false);
    free_adapter(ad);
}

const sl_inbox_ops sl_inbox_redis_ops = {
    .name = "redis",
    .open = redis_open,
    .close = redis_close,
    .drain = drain,
    .add = inbox_redis_add,
    .read = inbox_redis_read,
    .remove = inbox_redis_remove,
    .mark_pubrel = inbox_redis_mark_pubrel,
    .clear = inbox_redis_clear,
    .count = inbox_redis_count,
    .commit_behind = redis_commit_behind,
};
