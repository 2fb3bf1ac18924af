/* SPDX-License-Identifier: Apache-2.0
 *
 * delivery: see delivery.h.
 */
#include "dispatch/delivery.h"

#include <string.h>

#include "base/alloc.h"
#include "mqtt/props.h"
#include "session/io.h"

sl_delivery_mail *sl_delivery_mail_new(sl_io *io)
{
    sl_delivery_mail *dm = sl_calloc(1, sizeof(*dm));
    dm->io = io;
    dm->mail.fn = sl_io_on_deliveries;
    return dm;
}

/* Room for one more entry of size bytes in a growing array. */
static void *grow(void *array, uint32_t count, uint32_t *cap, uint32_t more, size_t size)
{
    if (count + more <= *cap)
        return array;
    uint32_t want = *cap == 0 ? 16 : *cap * 2;
    while (want < count + more)
        want *= 2;
    *cap = want;
    return sl_realloc(array, want * size);
}

uint32_t sl_delivery_add_msg(sl_delivery_mail *dm, const sl_out_msg *msg)
{
    dm->msgs = grow(dm->msgs, dm->msg_count, &dm->msg_cap, 1, sizeof(*dm->msgs));
    dm->msgs[dm->msg_count] = *msg;
    // Messages of one log batch share a body: one reference for the run of them.
    if (dm->body_count == 0 || dm->bodies[dm->body_count - 1] != msg->body) {
        dm->bodies = grow(dm->bodies, dm->body_count, &dm->body_cap, 1, sizeof(*dm->bodies));
        dm->bodies[dm->body_count++] = sl_rbuf_ref(msg->body);
    }
    return dm->msg_count++;
}

void sl_delivery_add(sl_delivery_mail *dm, const sl_delivery *item, const uint32_t *ids,
                     uint32_t id_count)
{
    dm->items = grow(dm->items, dm->item_count, &dm->item_cap, 1, sizeof(*dm->items));
    sl_delivery *it = &dm->items[dm->item_count++];
    *it = *item;
    it->ids_at = dm->id_count;
    it->ids = (uint16_t)id_count;
    if (id_count > 0) {
        dm->sub_ids = grow(dm->sub_ids, dm->id_count, &dm->id_cap, id_count, sizeof(*dm->sub_ids));
        memcpy(dm->sub_ids + dm->id_count, ids, id_count * sizeof(*ids));
        dm->id_count += id_count;
    }
    dm->bytes += (uint32_t)sizeof(*item);
    if ((item->flags & (SL_DELIVER_PUBREL | SL_DELIVER_ASK)) == 0) {
        const sl_out_msg *msg = &dm->msgs[item->msg];
        dm->bytes += msg->topic_bytes + msg->payload_bytes + msg->props_bytes;
    }
}

void sl_delivery_post(sl_delivery_mail **mail)
{
    sl_delivery_mail *dm = *mail;
    if (dm == NULL)
        return;
    *mail = NULL;
    if (dm->item_count == 0) {
        sl_delivery_mail_free(&dm);
        return;
    }
    atomic_fetch_add_explicit(&dm->io->backlog_bytes, dm->bytes, memory_order_relaxed);
    sl_loop_post(dm->io->lp, &dm->mail);
}

void sl_delivery_mail_free(sl_delivery_mail **mail)
{
    sl_delivery_mail *dm = *mail;
    if (dm == NULL)
        return;
    *mail = NULL;
    for (uint32_t i = 0; i < dm->body_count; i++)
        sl_rbuf_unref(&dm->bodies[i]);
    sl_free(dm->msgs);
    sl_free(dm->items);
    sl_free(dm->sub_ids);
    sl_free(dm->bodies);
    sl_free(dm);
}

/* The message expiry interval among these properties; false when there is none. */
static bool find_expiry(sl_slice props, uint32_t *seconds)
{
    size_t pos = 0;
    sl_mqtt_prop_view view;
    while (sl_mqtt_prop_next(props, &pos, &view)) {
        if (view.row->bit == SL_PROP_MESSAGE_EXPIRY) {
            *seconds = view.number;
            return true;
        }
    }
    return false;
}

sl_err sl_out_msg_init(sl_out_msg *msg, sl_slice value, sl_rbuf *body, sl_wall_ms received)
{
    sl_mqtt_publish_layout lay;
    sl_err err = sl_mqtt_publish_lay_out(value, &lay);
    if (err != SL_OK)
        return err;
    *msg = (sl_out_msg){
        .body = body,
        .topic = value.ptr + lay.topic_off,
        .topic_bytes = lay.topic_len + 2,
        .props = value.ptr + lay.props_off,
        .props_bytes = lay.props_len,
        .payload = value.ptr + lay.payload_off,
        .payload_bytes = lay.payload_len,
        .retain = (lay.first & 1) != 0,
    };
    uint32_t seconds = 0;
    if (lay.props_len > 0 && find_expiry(sl_slice_of(msg->props, msg->props_bytes), &seconds)) {
        msg->has_expiry = true;
        msg->expires_at = received + (sl_wall_ms)seconds * 1000;
    }
    return SL_OK;
}
