/* SPDX-License-Identifier: Apache-2.0
 *
 * event: framing of server-sent events.
 */
#include "event.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/json.h"

#define MAX_EVENT_BYTES (1u << 30)
#define NS_PER_MS       1000000

#define TRY(expr)                                                                                  \
    do {                                                                                           \
        if (err == SL_OK)                                                                          \
            err = (expr);                                                                          \
    } while (0)

/* Bytes up to the next line end. */
static size_t line_length(sl_slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] == '\r' || text.ptr[i] == '\n')
            return i;
    }
    return text.len;
}

sl_err sl_event_write_data(sl_buf *out, sl_slice text)
{
    for (;;) {
        size_t len = line_length(text);
        // a reader takes one blank behind the colon away, so one of ours is put before it
        bool blank = len > 0 && text.ptr[0] == ' ';
        sl_err err = sl_buf_append_str(out, blank ? "data: " : "data:");
        TRY(sl_buf_append(out, text.ptr, len));
        TRY(sl_buf_append_u8(out, '\n'));
        if (err != SL_OK || len == text.len)
            return err;
        size_t end = len + 1;
        if (text.ptr[len] == '\r' && end < text.len && text.ptr[end] == '\n')
            end++;
        text = sl_slice_of(text.ptr + end, text.len - end);
    }
}

sl_err sl_event_write_topic(sl_buf *out, sl_slice topic)
{
    sl_err err = SL_OK;
    size_t from = 0;
    for (size_t i = 0; i < topic.len; i++) {
        uint8_t byte = topic.ptr[i];
        if (byte != '\r' && byte != '\n' && byte != '\0')
            continue;
        TRY(sl_buf_append(out, topic.ptr + from, i - from));
        TRY(sl_buf_printf(out, "%%%02X", byte));
        from = i + 1;
    }
    TRY(sl_buf_append(out, topic.ptr + from, topic.len - from));
    return err;
}

static sl_err write_payload(sl_buf *out, const sl_message *msg, bool envelope, bool replayed)
{
    if (!envelope && msg->is_text)
        return sl_event_write_data(out, msg->payload);
    sl_err err = sl_buf_append_str(out, "data:");
    if (envelope)
        TRY(sl_message_write_json(msg, replayed ? SL_MESSAGE_REPLAYED : SL_MESSAGE_LIVE, out));
    else
        TRY(sl_base64_write(out, msg->payload));
    TRY(sl_buf_append_u8(out, '\n'));
    return err;
}

static sl_err make(const sl_message *msg, bool envelope, bool replayed, sl_rbuf **made)
{
    sl_buf text;
    sl_buf_init(&text, MAX_EVENT_BYTES);
    sl_err err = sl_buf_append_u32(&text, 0);
    TRY(sl_buf_append_str(&text, "id:"));
    TRY(sl_event_write_topic(&text, msg->topic));
    TRY(sl_buf_printf(&text, "-%lld-", (long long)(msg->received_at_ns / NS_PER_MS)));
    uint32_t id_len = (uint32_t)sl_buf_peek(&text).len - SL_EVENT_HEAD_BYTES;
    TRY(sl_buf_append_str(&text, "event:mqtt-message\n"));
    TRY(write_payload(&text, msg, envelope, replayed));
    TRY(sl_buf_append_u8(&text, '\n'));
    if (err == SL_OK) {
        sl_slice all = sl_buf_peek(&text);
        *made = sl_rbuf_new(all.len);
        memcpy((*made)->data, all.ptr, all.len);
        memcpy((*made)->data, &id_len, sizeof id_len);
        (*made)->len = (uint32_t)all.len;
    }
    sl_buf_fini(&text);
    return err;
}

sl_err sl_event_of(sl_message *msg, bool envelope, bool replayed, sl_event *out)
{
    _Atomic(sl_rbuf *) *place = &msg->_event[envelope && replayed];
    sl_rbuf *rb = atomic_load_explicit(place, memory_order_acquire);
    if (rb == NULL) {
        sl_rbuf *made = NULL;
        sl_err err = make(msg, envelope, replayed, &made);
        if (err != SL_OK)
            return err;
        // two threads may have made it: the first one's stays
        if (atomic_compare_exchange_strong_explicit(place, &rb, made, memory_order_acq_rel,
                                                    memory_order_acquire))
            rb = made;
        else
            sl_rbuf_unref(&made);
    }
    uint32_t id_len;
    memcpy(&id_len, rb->data, sizeof id_len);
    *out = (sl_event){.rb = sl_rbuf_ref(rb),
                      .id_off = SL_EVENT_HEAD_BYTES,
                      .id_len = id_len,
                      .body_off = SL_EVENT_HEAD_BYTES + id_len,
                      .body_len = rb->len - SL_EVENT_HEAD_BYTES - id_len};
    return SL_OK;
}
