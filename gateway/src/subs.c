/* SPDX-License-Identifier: Apache-2.0
 *
 * subs: a table of entries, one per filter, and `reconcile`, which sends what is missing and drops
 * what is too much.
 */
#include "subs.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/map.h"
#include "mqtt/topic.h"

#define BATCH 64 /* filters of one packet */

/* Retain Handling of MQTT 5 [MQTT-3.3.1-9..11] */
enum { RETAINED_ALWAYS = 0, RETAINED_IF_NEW = 1, RETAINED_NEVER = 2 };

typedef enum sub_state {
    MISSING, /* not at the broker */
    ASKED,   /* SUBSCRIBE under way */
    HELD,    /* granted */
    REFUSED, /* SUBACK said no */
    OLD,     /* an earlier connection or process had it: the broker may hold it */
    LEAVING  /* UNSUBSCRIBE under way */
} sub_state;

typedef struct entry {
    char *text; /* owned */
    sl_slice filter;
    sub_state state;
    bool wanted;
    uint8_t qos;     /* wanted */
    uint8_t has_qos; /* asked for in the last SUBSCRIBE */
    uint8_t retained;
    uint16_t packet_id; /* of the request under way */
    uint32_t index;     /* place in it */
} entry;

struct sl_subs {
    sl_subs_ops ops;
    void *arg;
    sl_map *entries; /* text -> entry; bounded by the router's filters and the state file */
    bool connected;
    bool was_connected; /* in this process */
};

sl_subs *sl_subs_new(const sl_subs_ops *ops, void *arg)
{
    sl_subs *sb = sl_calloc(1, sizeof *sb);
    sb->ops = *ops;
    sb->arg = arg;
    sb->entries = sl_map_new(0);
    return sb;
}

static void entry_free(entry *en)
{
    sl_free(en->text);
    sl_free(en);
}

void sl_subs_free(sl_subs **sb)
{
    sl_subs *own = *sb;
    *sb = NULL;
    if (own == NULL)
        return;
    size_t pos = 0;
    void *value;
    while (sl_map_each(own->entries, &pos, NULL, &value))
        entry_free(value);
    sl_map_free(&own->entries);
    sl_free(own);
}

static entry *add_entry(sl_subs *sb, sl_slice filter, sub_state state)
{
    entry *en = sl_calloc(1, sizeof *en);
    en->text = sl_strndup(filter.ptr, filter.len);
    en->filter = sl_slice_of(en->text, filter.len);
    en->state = state;
    sl_err err = sl_map_put(sb->entries, en->filter, en, NULL);
    SL_ASSERT(err == SL_OK);
    return en;
}

static void remove_entry(sl_subs *sb, entry *en)
{
    sl_map_remove(sb->entries, en->filter);
    entry_free(en);
}

void sl_subs_remember(sl_subs *sb, sl_slice filter)
{
    if (sl_map_get(sb->entries, filter) == NULL)
        add_entry(sb, filter, OLD);
}

bool sl_subs_is_held(const sl_subs *sb, sl_slice filter)
{
    const entry *same = sl_map_get(sb->entries, filter);
    if (same != NULL && same->state == HELD)
        return true;
    size_t pos = 0;
    void *value;
    while (sl_map_each(sb->entries, &pos, NULL, &value)) {
        const entry *en = value;
        if (en->state == HELD && sl_mqtt_filter_covers(en->filter, filter))
            return true;
    }
    return false;
}

/* A new filter inside one that the broker has already sent the retained messages of. */
static bool only_narrows(const sl_subs *sb, sl_slice filter)
{
    return sb->connected && sl_subs_is_held(sb, filter);
}

/* ---- requests ---- */

static void note_asked(entry *const *batch, uint32_t count, sub_state state, uint16_t packet_id)
{
    for (uint32_t i = 0; i < count; i++) {
        batch[i]->state = state;
        batch[i]->packet_id = packet_id;
        batch[i]->index = i;
        if (state == ASKED)
            batch[i]->has_qos = batch[i]->qos;
    }
}

static void refuse(sl_subs *sb, entry *en, uint8_t reason)
{
    en->state = REFUSED;
    if (sb->ops.on_refused != NULL)
        sb->ops.on_refused(sb->arg, en->filter, reason);
}

/* True: more may be sent. A packet over the server's limit is tried again one by one. */
static bool ask(sl_subs *sb, entry *const *batch, uint32_t count)
{
    sl_mqtt_sub_option options[BATCH] = {0};
    for (uint32_t i = 0; i < count; i++) {
        options[i] = (sl_mqtt_sub_option){.filter = batch[i]->filter,
                                          .qos = batch[i]->qos,
                                          .retain_handling = batch[i]->retained};
    }
    uint16_t packet_id;
    sl_err err = sb->ops.subscribe(sb->arg, options, count, &packet_id);
    if (err == SL_OK) {
        note_asked(batch, count, ASKED, packet_id);
        return true;
    }
    if (err == SL_EAGAIN || err == SL_ELIMIT)
        return false; // the next answer, or connection, brings us back here
    if (count == 1) {
        refuse(sb, batch[0], 0x97);
        return true;
    }
    bool more = true;
    for (uint32_t i = 0; more && i < count; i++)
        more = ask(sb, batch + i, 1);
    return more;
}

static bool drop(sl_subs *sb, entry *const *batch, uint32_t count)
{
    sl_slice filters[BATCH] = {0};
    for (uint32_t i = 0; i < count; i++)
        filters[i] = batch[i]->filter;
    uint16_t packet_id;
    sl_err err = sb->ops.unsubscribe(sb->arg, filters, count, &packet_id);
    if (err == SL_OK)
        note_asked(batch, count, LEAVING, packet_id);
    bool more = err == SL_OK;
    // a packet too large is tried one by one; a single one stays until the next connection
    for (uint32_t i = 0; err == SL_ETOOBIG && count > 1 && i < count; i++)
        more = drop(sb, batch + i, 1);
    return more;
}

static bool needs_asking(const entry *en)
{
    if (!en->wanted)
        return false;
    return en->state == MISSING || en->state == OLD || (en->state == HELD && en->qos > en->has_qos);
}

static void ask_all(sl_subs *sb)
{
    entry *batch[BATCH];
    uint32_t count = 0;
    size_t pos = 0;
    void *value;
    bool more = true;
    while (more && sl_map_each(sb->entries, &pos, NULL, &value)) {
        entry *en = value;
        if (!needs_asking(en))
            continue;
        if (en->state == HELD)
            en->retained = RETAINED_NEVER; // only the QoS changes
        batch[count++] = en;
        if (count == BATCH) {
            more = ask(sb, batch, count);
            count = 0;
        }
    }
    if (more && count > 0)
        ask(sb, batch, count);
}

/* Dropping a filter must leave no gap: what it brought may be what another one, not yet granted, is
 * to bring. One that was refused holds back only those that bring its messages meanwhile. */
static bool can_go(const sl_subs *sb, const entry *leaving)
{
    size_t pos = 0;
    void *value;
    while (sl_map_each(sb->entries, &pos, NULL, &value)) {
        const entry *en = value;
        if (!en->wanted || en->state == HELD)
            continue;
        if (en->state != REFUSED || sl_mqtt_filter_covers(leaving->filter, en->filter) ||
            sl_mqtt_filter_covers(en->filter, leaving->filter))
            return false;
    }
    return true;
}

static void drop_all(sl_subs *sb)
{
    entry *batch[BATCH];
    uint32_t count = 0;
    size_t pos = 0;
    void *value;
    bool more = true;
    while (more && sl_map_each(sb->entries, &pos, NULL, &value)) {
        entry *en = value;
        if (en->wanted || (en->state != HELD && en->state != OLD) || !can_go(sb, en))
            continue;
        batch[count++] = en;
        if (count == BATCH) {
            more = drop(sb, batch, count);
            count = 0;
        }
    }
    if (more && count > 0)
        drop(sb, batch, count);
}

static void reconcile(sl_subs *sb)
{
    if (!sb->connected)
        return;
    ask_all(sb);
    drop_all(sb);
}

/* Entries that neither we want nor the broker has. */
static void sweep(sl_subs *sb)
{
    size_t pos = 0;
    void *value;
    while (sl_map_each(sb->entries, &pos, NULL, &value)) {
        entry *en = value;
        if (!en->wanted && (en->state == MISSING || en->state == REFUSED))
            remove_entry(sb, en);
    }
}

/* ---- events ---- */

void sl_subs_want(sl_subs *sb, const sl_cover_item *items, size_t count)
{
    size_t pos = 0;
    void *value;
    while (sl_map_each(sb->entries, &pos, NULL, &value))
        ((entry *)value)->wanted = false;
    for (size_t i = 0; i < count; i++) {
        if (!items[i].in_cover)
            continue;
        entry *en = sl_map_get(sb->entries, items[i].filter);
        if (en == NULL) {
            bool narrows = only_narrows(sb, items[i].filter);
            en = add_entry(sb, items[i].filter, MISSING);
            en->retained = narrows ? RETAINED_NEVER : RETAINED_ALWAYS;
        }
        en->wanted = true;
        en->qos = items[i].qos;
    }
    sweep(sb);
    reconcile(sb);
}

void sl_subs_on_connected(sl_subs *sb, bool session_present)
{
    bool first = !sb->was_connected;
    sb->connected = true;
    sb->was_connected = true;
    size_t pos = 0;
    void *value;
    while (sl_map_each(sb->entries, &pos, NULL, &value)) {
        entry *en = value;
        en->retained = session_present ? RETAINED_IF_NEW : RETAINED_ALWAYS;
        if (!session_present)
            en->state = MISSING;
        else if (en->state == LEAVING || (first && en->state == HELD))
            en->state = OLD;
        else if (en->state == ASKED || en->state == REFUSED)
            en->state = MISSING;
    }
    sweep(sb);
    reconcile(sb);
}

void sl_subs_on_down(sl_subs *sb)
{
    sb->connected = false;
    size_t pos = 0;
    void *value;
    while (sl_map_each(sb->entries, &pos, NULL, &value)) {
        entry *en = value;
        if (en->state == ASKED || en->state == LEAVING)
            en->state = OLD; // the request may have been carried out
    }
}

static void on_granted(sl_subs *sb, entry *en, sl_slice reasons)
{
    uint8_t reason = en->index < reasons.len ? reasons.ptr[en->index] : 0x80;
    if (reason <= 2)
        en->state = HELD;
    else
        refuse(sb, en, reason);
}

void sl_subs_on_suback(sl_subs *sb, uint16_t packet_id, bool unsubscribe, sl_slice reasons)
{
    sub_state asked = unsubscribe ? LEAVING : ASKED;
    size_t pos = 0;
    void *value;
    while (sl_map_each(sb->entries, &pos, NULL, &value)) {
        entry *en = value;
        if (en->state != asked || en->packet_id != packet_id)
            continue;
        if (unsubscribe)
            en->state = MISSING; // whatever the reason: it will not be asked for again
        else
            on_granted(sb, en, reasons);
    }
    sweep(sb);
    reconcile(sb);
}

void sl_subs_retry(sl_subs *sb)
{
    size_t pos = 0;
    void *value;
    while (sl_map_each(sb->entries, &pos, NULL, &value)) {
        entry *en = value;
        if (en->state == REFUSED)
            en->state = MISSING;
    }
    reconcile(sb);
}

void sl_subs_count(const sl_subs *sb, sl_subs_counts *out)
{
    *out = (sl_subs_counts){0};
    size_t pos = 0;
    void *value;
    while (sl_map_each(sb->entries, &pos, NULL, &value)) {
        const entry *en = value;
        out->wanted += en->wanted;
        out->held += en->wanted && en->state == HELD;
        out->refused += en->wanted && en->state == REFUSED;
        out->known += en->state != MISSING && en->state != REFUSED;
    }
}

bool sl_subs_each_known(const sl_subs *sb, size_t *pos, sl_slice *filter)
{
    void *value;
    while (sl_map_each(sb->entries, pos, NULL, &value)) {
        const entry *en = value;
        // what is wanted counts too: the file is written before the SUBSCRIBE may be carried out
        if (!en->wanted && (en->state == MISSING || en->state == REFUSED))
            continue;
        *filter = en->filter;
        return true;
    }
    return false;
}
