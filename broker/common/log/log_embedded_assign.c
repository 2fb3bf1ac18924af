/* SPDX-License-Identifier: Apache-2.0
 *
 * log_embedded_assign: consumer groups of one process: the partitions of a topic are spread over
 * the group's members. A partition changes hands in two steps: its owner gives it up inside its
 * own poll, only then the next one takes it, so no record is handled by two at once.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "log/elog_fn.h"

/* With group_lock. */
static elog_group *find_group(elog *el, const char *name, const elog_topic *tp)
{
    sl_node *nd = sl_list_first(&el->groups);
    for (; nd != NULL; nd = sl_list_next(&el->groups, nd)) {
        elog_group *gr = SL_CONTAINER(nd, elog_group, node);
        if (gr->topic == tp && strcmp(gr->name, name) == 0)
            return gr;
    }
    return NULL;
}

static elog_group *make_group(elog *el, const char *name, elog_topic *tp)
{
    elog_group *gr = find_group(el, name, tp);
    if (gr != NULL)
        return gr;
    gr = sl_calloc(1, sizeof *gr);
    gr->topic = tp;
    gr->name = sl_strdup(name);
    gr->owner = sl_calloc(tp->base.partitions, sizeof(elog_member *));
    gr->target = sl_calloc(tp->base.partitions, sizeof(elog_member *));
    sl_list_init(&gr->members);
    sl_list_push_back(&el->groups, &gr->node);
    return gr;
}

static void group_free(elog_group *gr)
{
    sl_list_remove(&gr->node);
    sl_free(gr->owner);
    sl_free(gr->target);
    sl_free(gr->name);
    sl_free(gr);
}

/* With group_lock: everyone acts on the new targets in its next poll. */
static void spread(elog_group *gr)
{
    sl_node *nd = sl_list_first(&gr->members);
    for (uint16_t i = 0; i < gr->topic->base.partitions; i++) {
        gr->target[i] = nd == NULL ? NULL : SL_CONTAINER(nd, elog_member, node);
        if (nd != NULL && (nd = sl_list_next(&gr->members, nd)) == NULL)
            nd = sl_list_first(&gr->members);
    }
    nd = sl_list_first(&gr->members);
    for (; nd != NULL; nd = sl_list_next(&gr->members, nd))
        elog_consumer_nudge(SL_CONTAINER(nd, elog_member, node)->co);
}

sl_err elog_subscribe(sl_log_consumer *base, sl_log_topic *topic, sl_log_assign_f *on_assign,
                      void *arg)
{
    elog_consumer *co = (elog_consumer *)base;
    elog *el = co->el;
    elog_member *mb = sl_calloc(1, sizeof *mb);
    mb->co = co;
    mb->on_assign = on_assign;
    mb->arg = arg;
    pthread_mutex_lock(&el->group_lock);
    mb->group = make_group(el, base->options.group, (elog_topic *)topic);
    sl_list_push_back(&mb->group->members, &mb->node);
    sl_list_push_back(&co->members, &mb->mine);
    spread(mb->group);
    pthread_mutex_unlock(&el->group_lock);
    return SL_OK;
}

/* The next partition that this member has to give up (assigned false) or may take (true). */
static bool next_change(elog *el, elog_member *mb, uint16_t *partition, bool *assigned)
{
    elog_group *gr = mb->group;
    bool found = false;
    pthread_mutex_lock(&el->group_lock);
    for (uint16_t i = 0; i < gr->topic->base.partitions && !found; i++) {
        if (gr->owner[i] == mb && gr->target[i] != mb) {
            *partition = i;
            *assigned = false;
            found = true;
        }
    }
    for (uint16_t i = 0; i < gr->topic->base.partitions && !found; i++) {
        if (gr->target[i] == mb && gr->owner[i] == NULL) {
            gr->owner[i] = mb;
            *partition = i;
            *assigned = true;
            found = true;
        }
    }
    pthread_mutex_unlock(&el->group_lock);
    return found;
}

static void give_up(elog *el, elog_member *mb, uint16_t partition)
{
    pthread_mutex_lock(&el->group_lock);
    mb->group->owner[partition] = NULL;
    if (mb->group->target[partition] != NULL)
        elog_consumer_nudge(mb->group->target[partition]->co);
    pthread_mutex_unlock(&el->group_lock);
}

static void act(elog_consumer *co, elog_member *mb)
{
    uint16_t partition = 0;
    bool assigned = false;
    while (next_change(co->el, mb, &partition, &assigned)) {
        sl_log_topic *topic = &mb->group->topic->base;
        if (assigned) {
            if (elog_consumer_assign(&co->base, topic, partition, SL_LOG_COMMITTED) == SL_OK &&
                mb->on_assign != NULL)
                mb->on_assign(mb->arg, topic, partition, true);
            continue;
        }
        if (mb->on_assign != NULL)
            mb->on_assign(mb->arg, topic, partition, false);
        sl_err err = elog_consumer_unassign(&co->base, topic, partition);
        SL_ASSERT(err == SL_OK || err == SL_ENOTFOUND); // the callback may have done it
        give_up(co->el, mb, partition);
    }
}

void elog_assign_act(elog_consumer *co)
{
    sl_node *nd = sl_list_first(&co->members);
    for (; nd != NULL; nd = sl_list_next(&co->members, nd))
        act(co, SL_CONTAINER(nd, elog_member, mine));
}

void elog_assign_leave(elog_consumer *co)
{
    elog *el = co->el;
    sl_node *nd;
    while ((nd = sl_list_pop_front(&co->members)) != NULL) {
        elog_member *mb = SL_CONTAINER(nd, elog_member, mine);
        elog_group *gr = mb->group;
        pthread_mutex_lock(&el->group_lock);
        sl_list_remove(&mb->node);
        for (uint16_t i = 0; i < gr->topic->base.partitions; i++)
            if (gr->owner[i] == mb)
                gr->owner[i] = NULL;
        if (sl_list_is_empty(&gr->members))
            group_free(gr);
        else
            spread(gr);
        pthread_mutex_unlock(&el->group_lock);
        sl_free(mb);
    }
}
