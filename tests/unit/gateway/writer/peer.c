/* SPDX-License-Identifier: Apache-2.0
 *
 * peer: see peer.h.
 */
#include "peer.h"

#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/buf.h"
#include "base/json.h"

_Atomic long peer_taken_count;
static pthread_mutex_t taken_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t taken_cond = PTHREAD_COND_INITIALIZER;

void sl_taken_done(sl_taken **token)
{
    sl_taken *own = *token;
    *token = NULL;
    SL_ASSERT(atomic_fetch_add(&own->done, 1) == 0);
    pthread_mutex_lock(&taken_lock);
    peer_taken_count++;
    pthread_cond_broadcast(&taken_cond);
    pthread_mutex_unlock(&taken_lock);
}

void peer_await_taken(long count)
{
    pthread_mutex_lock(&taken_lock);
    while (peer_taken_count < count)
        pthread_cond_wait(&taken_cond, &taken_lock);
    pthread_mutex_unlock(&taken_lock);
}

sl_err sl_router_subscribe_durable(sl_router *rt, sl_slice filter, uint8_t qos, sl_durable_f *fn,
                                   void *arg, uint64_t *id)
{
    (void)rt;
    (void)filter;
    (void)qos;
    (void)fn;
    (void)arg;
    *id = 1;
    return SL_OK;
}

static void must(sl_err err)
{
    SL_ASSERT(err == SL_OK);
}

static sl_slice put(sl_rbuf *rb, const void *bytes, size_t len)
{
    uint8_t *to = rb->data + rb->len;
    if (len > 0)
        memcpy(to, bytes, len);
    rb->len += (uint32_t)len;
    return sl_slice_of(to, len);
}

/* A property with a length: identifier, length, bytes. What it says is at the end of raw then. */
static void put_field(sl_buf *raw, uint8_t id, const char *text)
{
    if (text == NULL)
        return;
    must(sl_buf_append_u8(raw, id));
    must(sl_buf_append_u16(raw, (uint16_t)strlen(text)));
    must(sl_buf_append_str(raw, text));
}

/* The slice of a text within the wire form. */
static sl_slice within(sl_slice wire, const char *text)
{
    if (text[0] == '\0')
        return sl_slice_of(wire.ptr, 0);
    const uint8_t *at = memmem(wire.ptr, wire.len, text, strlen(text));
    return sl_slice_of(at, strlen(text));
}

/* All properties in wire form, as a decoder leaves them in raw. */
static void put_props(const peer_message *pm, sl_buf *raw)
{
    if (pm->format_set) {
        must(sl_buf_append_u8(raw, 0x01));
        must(sl_buf_append_u8(raw, (uint8_t)pm->payload_format));
    }
    if (pm->expiry_s > 0) {
        must(sl_buf_append_u8(raw, 0x02));
        must(sl_buf_append_u32(raw, pm->expiry_s));
    }
    put_field(raw, 0x03, pm->content_type);
    put_field(raw, 0x08, pm->response_topic);
    put_field(raw, 0x09, pm->correlation);
    for (int i = 0; i < 8 && pm->user[i].name != NULL; i++) {
        put_field(raw, 0x26, pm->user[i].name);
        must(sl_buf_append_u16(raw, (uint16_t)strlen(pm->user[i].value)));
        must(sl_buf_append_str(raw, pm->user[i].value));
    }
}

static void set_props(const peer_message *pm, sl_mqtt_props *props)
{
    if (pm->user[0].name != NULL)
        props->has |= SL_PROP_USER;
    if (pm->content_type != NULL) {
        props->has |= SL_PROP_CONTENT_TYPE;
        props->content_type = within(props->raw, pm->content_type);
    }
    if (pm->response_topic != NULL) {
        props->has |= SL_PROP_RESPONSE_TOPIC;
        props->response_topic = within(props->raw, pm->response_topic);
    }
    if (pm->correlation != NULL) {
        props->has |= SL_PROP_CORRELATION_DATA;
        props->correlation_data = within(props->raw, pm->correlation);
    }
    if (pm->format_set) {
        props->has |= SL_PROP_PAYLOAD_FORMAT;
        props->payload_format = (uint8_t)pm->payload_format;
    }
    if (pm->expiry_s > 0) {
        props->has |= SL_PROP_MESSAGE_EXPIRY;
        props->message_expiry = pm->expiry_s;
    }
}

sl_message *peer_message_new(const peer_message *pm)
{
    sl_buf raw;
    sl_buf_init(&raw, 65536);
    put_props(pm, &raw);
    sl_slice wire = sl_buf_peek(&raw);
    sl_rbuf *rb = sl_rbuf_new(pm->len + wire.len + 4096);
    sl_mqtt_publish pub = {.qos = pm->qos, .retain = pm->retain};
    pub.topic = put(rb, pm->topic, strlen(pm->topic));
    pub.payload = put(rb, pm->payload, pm->len);
    pub.props.raw = put(rb, wire.ptr, wire.len);
    set_props(pm, &pub.props);
    sl_message *msg = sl_message_new(&pub, rb, pm->at_ns != 0 ? pm->at_ns : PEER_AT_NS);
    sl_rbuf_unref(&rb);
    sl_buf_fini(&raw);
    return msg;
}

sl_message *peer_text(const char *topic, const char *payload)
{
    return peer_message_new(
        &(peer_message){.topic = topic, .payload = payload, .len = strlen(payload), .qos = 1});
}

char *peer_folder_new(void)
{
    const char *base = getenv("TMPDIR");
    char path[512];
    snprintf(path, sizeof path, "%s/sluice-test-XXXXXX", base != NULL ? base : "/tmp");
    SL_ASSERT(mkdtemp(path) != NULL);
    return sl_strdup(path);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void peer_folder_remove(char **path)
{
    nftw(*path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    sl_free(*path);
    *path = NULL;
}

char *peer_path(const char *dir, const char *name)
{
    size_t len = strlen(dir) + strlen(name) + 2;
    char *path = sl_alloc(len);
    snprintf(path, len, "%s/%s", dir, name);
    return path;
}

char *peer_read_file(const char *path, size_t *len)
{
    size_t have = 0, cap = 1 << 16;
    char *text = sl_alloc(cap);
    FILE *in = fopen(path, "r");
    while (in != NULL) {
        size_t got = fread(text + have, 1, cap - have - 1, in);
        if (got == 0)
            break;
        have += got;
        if (cap - have < 2) {
            cap *= 2;
            text = sl_realloc(text, cap);
        }
    }
    if (in != NULL)
        fclose(in);
    text[have] = '\0';
    if (len != NULL)
        *len = have;
    return text;
}

void peer_write_file(const char *path, const void *bytes, size_t len)
{
    FILE *out = fopen(path, "w");
    SL_ASSERT(out != NULL);
    SL_ASSERT(fwrite(bytes, 1, len, out) == len);
    SL_ASSERT(fclose(out) == 0);
}

size_t peer_count_lines(const char *path)
{
    size_t len, lines = 0;
    char *text = peer_read_file(path, &len);
    for (size_t i = 0; i < len; i++)
        lines += text[i] == '\n';
    sl_free(text);
    return lines;
}
