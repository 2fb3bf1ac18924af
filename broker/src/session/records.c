/* SPDX-License-Identifier: Apache-2.0
 *
 * records: see records.h.
 */
#include "session/records.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "control.pb-c.h"
#include "mqtt/topic.h"
#include "route/sub_trie.h"
#include "session/will.h"

#define FORMAT_VERSION 1

/* Packs into the buffer. */
static sl_err put_message(sl_buf *out, const ProtobufCMessage *message)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    uint8_t *at = NULL;
    sl_err err = sl_buf_reserve(out, size, &at);
    if (err != SL_OK)
        return err;
    protobuf_c_message_pack(message, at);
    sl_buf_commit(out, size);
    return SL_OK;
}

/* ---- sessions -----------------------------------------------------------------------------------
 */

static void fill_session(Sluice__ClientSession *ms, const sl_session *ss, const char *service_id,
                         const char *peer)
{
    ms->version = FORMAT_VERSION;
    ms->service_id = (char *)(uintptr_t)service_id;
    ms->session_id = ss->session_id;
    ms->generation = ss->generation;
    ms->connected = ss->connected;
    ms->persistent = ss->persistent;
    ms->client_type = SLUICE__CLIENT_TYPE__DEVICE;
    ms->mqtt_version = ss->mqtt_version;
    ms->keep_alive_s = ss->keep_alive_s;
    ms->session_expiry_s = ss->expiry_s;
    ms->has_session_expiry = ss->has_expiry;
    ms->connected_at_ms = ss->connected_at;
    ms->disconnected_at_ms = ss->disconnected_at;
    ms->clean_start = ss->clean_start;
    ms->address.data = (uint8_t *)(uintptr_t)peer;
    ms->address.len = strlen(peer);
    if (ss->will != NULL) {
        ms->will.data = ss->will->packet;
        ms->will.len = ss->will->len;
        ms->will_delay_s = ss->will->delay_s;
        ms->will_due_ms = ss->will->due_at;
    }
}

sl_err sl_record_put_session(sl_buf *out, const sl_session *ss, const char *service_id,
                             const char *peer)
{
    Sluice__ClientSession ms = SLUICE__CLIENT_SESSION__INIT;
    fill_session(&ms, ss, service_id, peer);
    return put_message(out, &ms.base);
}

/* NULL: there is none. */
static sl_err take_will(const Sluice__ClientSession *ms, sl_will **out)
{
    *out = NULL;
    if (ms->will.len == 0)
        return SL_OK;
    *out = sl_will_restore(sl_slice_of(ms->will.data, ms->will.len), ms->will_delay_s,
                           ms->will_due_ms);
    return *out != NULL ? SL_OK : SL_ECORRUPT;
}

static sl_err take_session(sl_session *ss, const Sluice__ClientSession *ms)
{
    *ss = (sl_session){
        .exists = true,
        .connected = ms->connected,
        .persistent = ms->persistent,
        .has_expiry = ms->has_session_expiry,
        .clean_start = ms->clean_start,
        .mqtt_version = (uint8_t)ms->mqtt_version,
        .keep_alive_s = (uint16_t)ms->keep_alive_s,
        .expiry_s = ms->session_expiry_s,
        .session_id = ms->session_id,
        .generation = ms->generation,
        .connected_at = ms->connected_at_ms,
        .disconnected_at = ms->disconnected_at_ms,
    };
    return take_will(ms, &ss->will);
}

sl_err sl_record_get_session(sl_slice value, sl_session *ss)
{
    Sluice__ClientSession *ms = sluice__client_session__unpack(NULL, value.len, value.ptr);
    if (ms == NULL)
        return SL_ECORRUPT;
    sl_err err =
        ms->version == FORMAT_VERSION ? SL_OK : (ms->version == 0 ? SL_ECORRUPT : SL_EUNSUPPORTED);
    if (err == SL_OK)
        err = take_session(ss, ms);
    sluice__client_session__free_unpacked(ms, NULL);
    return err;
}

/* ---- subscriptions ------------------------------------------------------------------------------
 */

/* Index + 1 of a stamp in the record's own list; it is added when new. Neighbours mostly share. */
static uint32_t local_stamp(uint32_t *list, uint32_t *count, uint32_t stamp)
{
    if (stamp == 0)
        return 0;
    for (uint32_t i = *count; i > 0; i--) {
        if (list[i - 1] == stamp)
            return i;
    }
    list[*count] = stamp;
    return ++*count;
}

sl_err sl_record_put_subs(sl_buf *out, const sl_client *cl, sl_stamps *stamps)
{
    uint32_t n = cl->sub_count, stamp_count = 0;
    uint16_t width = sl_stamps_width(stamps);
    Sluice__ClientSubscriptions ms = SLUICE__CLIENT_SUBSCRIPTIONS__INIT;
    Sluice__Subscription *subs = sl_calloc(n + 1, sizeof(*subs));
    Sluice__Subscription **sub_list = sl_calloc(n + 1, sizeof(*sub_list));
    uint32_t *used = sl_calloc(n + 1, sizeof(*used));
    for (uint32_t i = 0; i < n; i++) {
        const sl_client_sub *cs = &cl->subs[i];
        sluice__subscription__init(&subs[i]);
        subs[i].filter.data = cs->filter;
        subs[i].filter.len = cs->filter_len;
        subs[i].qos = cs->qos;
        subs[i].no_local = (cs->flags & SL_SUB_NO_LOCAL) != 0;
        subs[i].retain_as_published = (cs->flags & SL_SUB_RETAIN_AS_PUBLISHED) != 0;
        subs[i].retain_handling =
            (uint32_t)(cs->flags & SL_SUB_RETAIN_HANDLING_MASK) >> SL_SUB_RETAIN_HANDLING_SHIFT;
        subs[i].subscription_id = cs->sub_id;
        subs[i].stamp = local_stamp(used, &stamp_count, cs->stamp);
        sub_list[i] = &subs[i];
    }
    Sluice__Stamp *vectors = sl_calloc(stamp_count + 1, sizeof(*vectors));
    Sluice__Stamp **vector_list = sl_calloc(stamp_count + 1, sizeof(*vector_list));
    uint64_t *offsets = sl_calloc((size_t)(stamp_count + 1) * width, sizeof(*offsets));
    for (uint32_t i = 0; i < stamp_count; i++) {
        sluice__stamp__init(&vectors[i]);
        sl_stamps_get(stamps, used[i], offsets + (size_t)i * width);
        vectors[i].n_offsets = width;
        vectors[i].offsets = offsets + (size_t)i * width;
        vector_list[i] = &vectors[i];
    }
    ms.version = FORMAT_VERSION;
    ms.generation = cl->generation;
    ms.n_subscriptions = n;
    ms.subscriptions = sub_list;
    ms.n_stamps = stamp_count;
    ms.stamps = vector_list;
    sl_err err = put_message(out, &ms.base);
    sl_free(offsets);
    sl_free(vector_list);
    sl_free(vectors);
    sl_free(used);
    sl_free(sub_list);
    sl_free(subs);
    return err;
}

static void take_sub(const Sluice__ClientSubscriptions *ms, const Sluice__Subscription *sub,
                     sl_stamps *stamps,
                     void (*fn)(void *arg, sl_slice filter, const sl_client_sub *sub), void *arg)
{
    sl_slice filter = sl_slice_of(sub->filter.data, sub->filter.len);
    const char *why = NULL;
    if (sub->qos > 2 || sub->retain_handling > 2 || sl_mqtt_filter_check(filter, 0, &why) != SL_OK)
        return; // one damaged entry does not cost the others
    sl_client_sub cs = {.sub_id = sub->subscription_id,
                        .qos = (uint8_t)sub->qos,
                        .flags =
                            (uint8_t)((sub->no_local ? SL_SUB_NO_LOCAL : 0) |
                                      (sub->retain_as_published ? SL_SUB_RETAIN_AS_PUBLISHED : 0) |
                                      sub->retain_handling << SL_SUB_RETAIN_HANDLING_SHIFT)};
    if (sub->stamp > 0 && sub->stamp <= ms->n_stamps) {
        const Sluice__Stamp *vec = ms->stamps[sub->stamp - 1];
        cs.stamp = sl_stamps_add(stamps, vec->offsets, vec->n_offsets);
    }
    fn(arg, filter, &cs);
}

sl_err sl_record_get_subs(sl_slice value, sl_stamps *stamps,
                          void (*fn)(void *arg, sl_slice filter, const sl_client_sub *sub),
                          void *arg)
{
    Sluice__ClientSubscriptions *ms =
        sluice__client_subscriptions__unpack(NULL, value.len, value.ptr);
    if (ms == NULL)
        return SL_ECORRUPT;
    sl_err err =
        ms->version == FORMAT_VERSION ? SL_OK : (ms->version == 0 ? SL_ECORRUPT : SL_EUNSUPPORTED);
    for (size_t i = 0; err == SL_OK && i < ms->n_subscriptions; i++)
        take_sub(ms, ms->subscriptions[i], stamps, fn, arg);
    sluice__client_subscriptions__free_unpacked(ms, NULL);
    return err;
}

/* ---- session events
 * ------------------------------------------------------------------------------ */

sl_err sl_record_put_request(sl_buf *out, const sl_session_request *rq, const char *service_id)
{
    sl_session ss = {.persistent = rq->persistent,
                     .clean_start = rq->clean_start,
                     .has_expiry = rq->has_expiry,
                     .expiry_s = rq->expiry_s,
                     .keep_alive_s = rq->keep_alive_s,
                     .mqtt_version = rq->mqtt_version,
                     .session_id = rq->session_id,
                     .will = rq->will};
    Sluice__ClientSession session = SLUICE__CLIENT_SESSION__INIT;
    fill_session(&session, &ss, service_id, rq->peer != NULL ? rq->peer : "");
    Sluice__SessionEvent ev = SLUICE__SESSION_EVENT__INIT;
    ev.kind = (Sluice__SessionEvent__Kind)rq->kind;
    ev.session = &session;
    ev.reason = rq->reason;
    return put_message(out, &ev.base);
}

sl_err sl_record_get_request(sl_slice value, sl_session_request *rq, char *peer, size_t size)
{
    Sluice__SessionEvent *ev = sluice__session_event__unpack(NULL, value.len, value.ptr);
    if (ev == NULL || ev->session == NULL ||
        ev->kind > SLUICE__SESSION_EVENT__KIND__CLEAR_SESSION_REQUEST) {
        if (ev != NULL)
            sluice__session_event__free_unpacked(ev, NULL);
        return SL_ECORRUPT;
    }
    const Sluice__ClientSession *ms = ev->session;
    snprintf(peer, size, "%.*s", (int)ms->address.len, (const char *)ms->address.data);
    *rq = (sl_session_request){.kind = (sl_session_kind)ev->kind,
                               .session_id = ms->session_id,
                               .persistent = ms->persistent,
                               .clean_start = ms->clean_start,
                               .has_expiry = ms->has_session_expiry,
                               .expiry_s = ms->session_expiry_s,
                               .keep_alive_s = (uint16_t)ms->keep_alive_s,
                               .mqtt_version = (uint8_t)ms->mqtt_version,
                               .reason = (uint8_t)ev->reason,
                               .peer = peer};
    sl_err err = take_will(ms, &rq->will);
    sluice__session_event__free_unpacked(ev, NULL);
    return err;
}

sl_err sl_record_put_answer(sl_buf *out, const sl_session_answer *answer)
{
    Sluice__SessionEventResponse ms = SLUICE__SESSION_EVENT_RESPONSE__INIT;
    uint32_t *ids = sl_calloc(answer->open_qos2_count + 1, sizeof(*ids));
    for (uint32_t i = 0; i < answer->open_qos2_count; i++)
        ids[i] = answer->open_qos2[i];
    ms.success = answer->success;
    ms.session_present = answer->session_present;
    ms.persistent = answer->persistent;
    ms.dup_old = answer->dup_old;
    ms.reason = answer->rc;
    ms.generation = answer->generation;
    ms.session_id = answer->session_id;
    ms.n_open_qos2 = answer->open_qos2_count;
    ms.open_qos2 = ids;
    sl_err err = put_message(out, &ms.base);
    sl_free(ids);
    return err;
}

sl_err sl_record_get_answer(sl_slice value, sl_session_answer *answer)
{
    Sluice__SessionEventResponse *ms =
        sluice__session_event_response__unpack(NULL, value.len, value.ptr);
    if (ms == NULL)
        return SL_ECORRUPT;
    *answer = (sl_session_answer){.success = ms->success,
                                  .session_present = ms->session_present,
                                  .persistent = ms->persistent,
                                  .dup_old = ms->dup_old,
                                  .rc = (sl_mqtt_rc)ms->reason,
                                  .session_id = ms->session_id,
                                  .generation = ms->generation};
    if (ms->n_open_qos2 > 0) {
        answer->open_qos2 = sl_alloc(ms->n_open_qos2 * sizeof(*answer->open_qos2));
        for (size_t i = 0; i < ms->n_open_qos2; i++)
            answer->open_qos2[i] = (uint16_t)ms->open_qos2[i];
        answer->open_qos2_count = (uint32_t)ms->n_open_qos2;
    }
    sluice__session_event_response__free_unpacked(ms, NULL);
    return SL_OK;
}
