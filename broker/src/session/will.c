/* SPDX-License-Identifier: Apache-2.0
 *
 * will: see will.h.
 */
#include "session/will.h"

#include <string.h>

#include "base/alloc.h"
#include "mqtt/encode.h"
#include "mqtt/props.h"
#include "mqtt/topic.h"
#include "session/client.h"
#include "stats/broker_stats.h"

#define HEAD_BYTES 8

/* ---- the message ------------------------------------------------------------------------------
 */

sl_mqtt_rc sl_will_check(const sl_mqtt_connect *connect, const sl_limits *limits)
{
    const sl_mqtt_will *will = &connect->will;
    if (will->retain && connect->version >= SL_MQTT_V5)
        return SL_RC_RETAIN_NOT_SUPPORTED; // Retain Available is 0 [MQTT-3.2.2-13]
    // Empty topics and wildcards are malformed already; `$` topics are the server's.
    bool deep = limits->max_topic_levels > 0 &&
                sl_mqtt_level_count(will->topic) - 1 > limits->max_topic_levels;
    return will->topic.ptr[0] == '$' || deep ? SL_RC_TOPIC_NAME_INVALID : SL_RC_SUCCESS;
}

/* Copies the properties without the delay, which is of the session, not of the message. */
static uint32_t copy_props(uint8_t *out, const sl_mqtt_props *props)
{
    size_t pos = 0;
    uint32_t size = 0;
    sl_mqtt_prop_view view;
    while (sl_mqtt_prop_next(props->raw, &pos, &view)) {
        if (view.row->bit == SL_PROP_WILL_DELAY)
            continue;
        if (out != NULL)
            memcpy(out + size, view.wire.ptr, view.wire.len);
        size += (uint32_t)view.wire.len;
    }
    return size;
}

static sl_will *new_will(uint32_t len, uint32_t delay_s)
{
    sl_will *wl = sl_calloc(1, sizeof(*wl) + len);
    sl_node_init(&wl->node);
    wl->len = len;
    wl->delay_s = delay_s;
    return wl;
}

sl_will *sl_will_new(const sl_mqtt_will *from)
{
    uint32_t props = copy_props(NULL, &from->props);
    uint32_t id = from->qos > 0 ? 2 : 0;
    uint32_t remaining = (uint32_t)(2 + from->topic.len + id + sl_mqtt_varint_size(props) + props +
                                    from->payload.len);
    uint8_t head[HEAD_BYTES];
    uint8_t first = (uint8_t)(SL_MQTT_PUBLISH << 4 | from->qos << 1 | (from->retain ? 1 : 0));
    uint32_t head_len = sl_mqtt_publish_head(head, first, remaining);
    bool has_delay = (from->props.has & SL_PROP_WILL_DELAY) != 0;
    sl_will *wl = new_will(head_len + remaining, has_delay ? from->props.will_delay : 0);
    uint8_t *at = wl->packet;
    memcpy(at, head, head_len);
    at += head_len;
    *at++ = (uint8_t)(from->topic.len >> 8);
    *at++ = (uint8_t)from->topic.len;
    memcpy(at, from->topic.ptr, from->topic.len);
    at += from->topic.len;
    if (id > 0) {
        *at++ = 0;
        *at++ = 1; // subscribers get ids of their own
    }
    at += sl_mqtt_varint_write(at, props);
    at += copy_props(at, &from->props);
    if (from->payload.len > 0)
        memcpy(at, from->payload.ptr, from->payload.len);
    return wl;
}

sl_will *sl_will_restore(sl_slice packet, uint32_t delay_s, sl_wall_ms due_at)
{
    sl_mqtt_publish_layout lay;
    if (packet.len == 0 || packet.len > UINT32_MAX || packet.ptr[0] >> 4 != SL_MQTT_PUBLISH ||
        sl_mqtt_publish_lay_out(packet, &lay) != SL_OK || lay.topic_len == 0)
        return NULL;
    sl_will *wl = new_will((uint32_t)packet.len, delay_s);
    memcpy(wl->packet, packet.ptr, packet.len);
    wl->due_at = due_at;
    return wl;
}

void sl_will_free(sl_will **pointer)
{
    if (*pointer != NULL)
        sl_list_remove(&(*pointer)->node);
    sl_free(*pointer);
    *pointer = NULL;
}

sl_slice sl_will_topic(const sl_will *wl)
{
    sl_mqtt_publish_layout lay;
    sl_err err = sl_mqtt_publish_lay_out(sl_slice_of(wl->packet, wl->len), &lay);
    SL_ASSERT(err == SL_OK); // built or checked here
    return sl_slice_of(wl->packet + lay.topic_off + 2, lay.topic_len);
}

uint8_t sl_will_qos(const sl_will *wl)
{
    return wl->packet[0] >> 1 & 3;
}

sl_dur_ms sl_will_wait(const sl_will *wl, bool persistent, bool has_expiry, uint32_t expiry_s)
{
    sl_dur_ms delay = (sl_dur_ms)wl->delay_s * 1000;
    if (!persistent)
        return 0; // the session ends with its connection [MQTT-3.1.2-8]
    if (!has_expiry || expiry_s == UINT32_MAX)
        return delay;
    sl_dur_ms expiry = (sl_dur_ms)expiry_s * 1000;
    return delay < expiry ? delay : expiry;
}

/* ---- the state machine ------------------------------------------------------------------------
 */

static void count(sl_wills *ws, unsigned stat, int64_t delta)
{
    sl_stats_add(ws->stats, ws->shard, stat, delta);
}

static int64_t is_kept(unsigned state)
{
    return state == SL_WILL_HELD || state == SL_WILL_DELAYED ? 1 : 0;
}

/* The only place where a will changes; OVER frees it. */
static void set_state(sl_wills *ws, sl_client *cl, sl_will_state state)
{
    sl_will *wl = cl->session.will;
    count(ws, SL_BS_WILLS, is_kept(state) - is_kept(wl->state));
    count(ws, SL_BS_WILLS_DELAYED,
          (state == SL_WILL_DELAYED ? 1 : 0) - (wl->state == SL_WILL_DELAYED ? 1 : 0));
    sl_list_remove(&wl->node);
    wl->client = cl;
    wl->state = (uint8_t)state;
    if (state == SL_WILL_DELAYED)
        sl_list_push_back(&ws->delayed, &wl->node);
    else
        wl->due_at = 0;
    if (state == SL_WILL_OVER)
        sl_will_free(&cl->session.will);
}

static void publish(sl_wills *ws, sl_client *cl)
{
    ws->publish(ws->arg, cl, cl->session.will);
    count(ws, SL_BS_WILLS_PUBLISHED, 1);
    set_state(ws, cl, SL_WILL_OVER);
}

void sl_wills_init(sl_wills *ws)
{
    sl_list_init(&ws->delayed);
}

void sl_wills_fini(sl_wills *ws)
{
    while (sl_list_pop_front(&ws->delayed) != NULL)
        continue;
}

void sl_wills_hold(sl_wills *ws, sl_client *cl, sl_will **wl)
{
    SL_ASSERT(cl->session.will == NULL);
    cl->session.will = *wl;
    *wl = NULL;
    if (cl->session.will != NULL)
        set_state(ws, cl, SL_WILL_HELD);
}

void sl_wills_resume(sl_wills *ws, sl_client *cl, sl_mono_ms now, sl_wall_ms wall)
{
    sl_will *wl = cl->session.will;
    if (wl == NULL || wl->state != SL_WILL_NEW)
        return;
    sl_dur_ms left = wl->due_at > wall ? wl->due_at - wall : 0;
    // A wall clock that was set back must not make it wait for longer than was asked for.
    sl_dur_ms most = (sl_dur_ms)wl->delay_s * 1000;
    wl->due = now + (left < most ? left : most);
    set_state(ws, cl, SL_WILL_DELAYED);
}

void sl_wills_lost(sl_wills *ws, sl_client *cl, sl_dur_ms wait, sl_mono_ms now, sl_wall_ms wall)
{
    sl_will *wl = cl->session.will;
    if (wl == NULL || wl->state != SL_WILL_HELD)
        return;
    if (wait == 0) {
        publish(ws, cl);
        return;
    }
    wl->due = now + wait;
    wl->due_at = wall + wait;
    set_state(ws, cl, SL_WILL_DELAYED);
}

void sl_wills_session_ended(sl_wills *ws, sl_client *cl)
{
    if (cl->session.will != NULL)
        publish(ws, cl);
}

void sl_wills_discard(sl_wills *ws, sl_client *cl)
{
    if (cl->session.will != NULL)
        set_state(ws, cl, SL_WILL_OVER);
}

sl_mono_ms sl_wills_tick(sl_wills *ws, sl_mono_ms now, void (*after)(void *arg, sl_client *cl))
{
    sl_mono_ms next_due = 0;
    sl_node *node = sl_list_first(&ws->delayed), *next;
    for (; node != NULL; node = next) {
        next = sl_list_next(&ws->delayed, node);
        sl_will *wl = SL_CONTAINER(node, sl_will, node);
        if (wl->due > now) {
            if (next_due == 0 || wl->due < next_due)
                next_due = wl->due;
            continue;
        }
        sl_client *cl = wl->client;
        publish(ws, cl);
        after(ws->arg, cl);
    }
    return next_due;
}
