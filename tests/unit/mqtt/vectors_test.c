/* SPDX-License-Identifier: Apache-2.0
 *
 * Every packet in the JSON files of tests/vectors: decoded, compared with what the file says,
 * written again, cut at every byte. Bytes lie in blocks of their exact size, so that
 * AddressSanitizer sees an overread.
 */
#include <dirent.h>
#include <stdio.h>

#include <cjson/cJSON.h>

#include "sl_test.h"

#include "base/alloc.h"
#include "mqtt/decode.h"
#include "mqtt/encode.h"
#include "mqtt/frame.h"
#include "mqtt/props.h"
#include "packet_json.h"

#define FOLDER     "tests/vectors"
#define MAX_FILES  64
#define MAX_PACKET (SL_MQTT_MAX_REMAINING + 5)

typedef struct vector {
    const char *file;
    const char *name;
    uint8_t *bytes; /* owned, exactly len */
    size_t len;
    sl_mqtt_version version;
    sl_mqtt_side side;
    const cJSON *packet; /* or NULL */
    const cJSON *error;  /* or NULL */
    bool recode;
} vector;

static unsigned nibble(char ch)
{
    if (ch >= '0' && ch <= '9')
        return (unsigned)(ch - '0');
    assert_true(ch >= 'a' && ch <= 'f');
    return (unsigned)(ch - 'a' + 10);
}

static uint8_t *copy_exact(const uint8_t *from, size_t len)
{
    uint8_t *out = sl_alloc(len == 0 ? 1 : len);
    if (len == 0)
        return out;
    memcpy(out, from, len);
    return out;
}

static const char *text_member(const cJSON *item, const char *name)
{
    const cJSON *member = cJSON_GetObjectItemCaseSensitive(item, name);
    assert_true(cJSON_IsString(member));
    return member->valuestring;
}

static void read_vector(const char *file, const cJSON *item, vector *vc)
{
    *vc = (vector){.file = file, .name = text_member(item, "name")};
    const char *hex = text_member(item, "hex");
    vc->len = strlen(hex) / 2;
    vc->bytes = sl_alloc(vc->len == 0 ? 1 : vc->len);
    for (size_t i = 0; i < vc->len; i++)
        vc->bytes[i] = (uint8_t)(nibble(hex[2 * i]) << 4 | nibble(hex[2 * i + 1]));
    const cJSON *version = cJSON_GetObjectItemCaseSensitive(item, "version");
    assert_true(cJSON_IsNumber(version));
    vc->version = (sl_mqtt_version)version->valueint;
    const char *side = text_member(item, "side");
    assert_true(strcmp(side, "server") == 0 || strcmp(side, "client") == 0);
    vc->side = strcmp(side, "server") == 0 ? SL_MQTT_SERVER_READS : SL_MQTT_CLIENT_READS;
    vc->packet = cJSON_GetObjectItemCaseSensitive(item, "packet");
    vc->error = cJSON_GetObjectItemCaseSensitive(item, "error");
    vc->recode = !cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(item, "recode"));
    if ((vc->packet == NULL) == (vc->error == NULL))
        fail_msg("%s: %s: neither or both of packet and error", file, vc->name);
}

/* ---- one vector ---- */

static void check_error(const vector *vc, sl_err err, sl_mqtt_rc rc, const char *why)
{
    const char *want = text_member(vc->error, "err");
    int want_rc = cJSON_GetObjectItemCaseSensitive(vc->error, "rc")->valueint;
    const char *want_why = text_member(vc->error, "why");
    if (strcmp(sl_err_name(err), want) != 0)
        fail_msg("%s: %s: got %s, want %s", vc->file, vc->name, sl_err_name(err), want);
    if ((int)rc != want_rc)
        fail_msg("%s: %s: got reason 0x%02X, want 0x%02X", vc->file, vc->name, rc, want_rc);
    if (strstr(why, want_why) == NULL)
        fail_msg("%s: %s: said '%s', not '%s'", vc->file, vc->name, why, want_why);
}

static void check_packet(const vector *vc, const sl_mqtt_packet *pkt)
{
    assert_int_equal(pkt->wire_size, vc->len);
    sl_mqtt_version version = pkt->type == SL_MQTT_CONNECT ? pkt->connect.version : vc->version;
    cJSON *got = packet_json(pkt, version);
    if (!cJSON_Compare(got, vc->packet, true)) {
        char *have = cJSON_PrintUnformatted(got);
        char *want = cJSON_PrintUnformatted(vc->packet);
        fail_msg("%s: %s:\n got  %s\n want %s", vc->file, vc->name, have, want);
    }
    cJSON_Delete(got);
}

/* Properties are copied as they came, the rest is built from the fields. */
static void keep_raw_props(sl_mqtt_packet *pkt)
{
    switch (pkt->type) {
    case SL_MQTT_CONNECT:
        pkt->connect.props.use_raw = pkt->connect.will.props.use_raw = true;
        break;
    case SL_MQTT_CONNACK:
        pkt->connack.props.use_raw = true;
        break;
    case SL_MQTT_PUBLISH:
        pkt->publish.props.use_raw = true;
        break;
    case SL_MQTT_PUBACK:
    case SL_MQTT_PUBREC:
    case SL_MQTT_PUBREL:
    case SL_MQTT_PUBCOMP:
        pkt->ack.props.use_raw = true;
        break;
    case SL_MQTT_SUBSCRIBE:
    case SL_MQTT_UNSUBSCRIBE:
        pkt->subscribe.props.use_raw = true;
        break;
    case SL_MQTT_SUBACK:
    case SL_MQTT_UNSUBACK:
        pkt->suback.props.use_raw = true;
        break;
    case SL_MQTT_DISCONNECT:
    case SL_MQTT_AUTH:
        pkt->disconnect.props.use_raw = true;
        break;
    case SL_MQTT_PINGREQ:
    case SL_MQTT_PINGRESP:
        break;
    }
}

static void check_recode(const vector *vc, sl_mqtt_packet *pkt)
{
    keep_raw_props(pkt);
    sl_buf out;
    sl_buf_init(&out, MAX_PACKET);
    sl_err err = sl_mqtt_encode(pkt, vc->version, &out);
    if (err != SL_OK)
        fail_msg("%s: %s: cannot be written again: %s", vc->file, vc->name, sl_err_name(err));
    sl_slice got = sl_buf_peek(&out);
    if (vc->recode && (got.len != vc->len || memcmp(got.ptr, vc->bytes, vc->len) != 0))
        fail_msg("%s: %s: written again it is another packet", vc->file, vc->name);
    sl_mqtt_rc rc;
    const char *why;
    sl_mqtt_packet again;
    // Padded forms come back in the shortest one; the fields are the same all the same.
    SL_TEST_OK(sl_mqtt_decode(got, vc->version, vc->side, &again, &rc, &why));
    vector other = *vc;
    other.len = got.len;
    check_packet(&other, &again);
    sl_buf_fini(&out);
}

static void run_vector(const vector *vc)
{
    sl_mqtt_packet pkt;
    sl_mqtt_rc rc = SL_RC_SUCCESS;
    const char *why = NULL;
    // What is not written by decode must not be read: fill it with what would be noticed.
    memset(&pkt, 0xA5, sizeof(pkt));
    sl_err err =
        sl_mqtt_decode(sl_slice_of(vc->bytes, vc->len), vc->version, vc->side, &pkt, &rc, &why);
    if (vc->error != NULL) {
        check_error(vc, err, rc, why == NULL ? "" : why);
        return;
    }
    if (err != SL_OK)
        fail_msg("%s: %s: refused: %s", vc->file, vc->name, why);
    check_packet(vc, &pkt);
    check_recode(vc, &pkt);
}

/* ---- files ---- */

typedef void vector_f(const vector *vc);

static unsigned each_in_file(const char *file, vector_f *fn)
{
    char path[512];
    snprintf(path, sizeof(path), FOLDER "/%s", file);
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    sl_buf text;
    sl_buf_init(&text, 16u << 20);
    uint8_t *room;
    size_t n;
    do {
        SL_TEST_OK(sl_buf_reserve(&text, 65536, &room));
        n = fread(room, 1, 65536, in);
        sl_buf_commit(&text, n);
    } while (n > 0);
    fclose(in);
    cJSON *root =
        cJSON_ParseWithLength((const char *)sl_buf_peek(&text).ptr, sl_buf_peek(&text).len);
    sl_buf_fini(&text);
    if (root == NULL)
        fail_msg("%s is not JSON", path);
    unsigned count = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(root, "vectors"))
    {
        vector vc;
        read_vector(file, item, &vc);
        fn(&vc);
        sl_free(vc.bytes);
        count++;
    }
    cJSON_Delete(root);
    if (count == 0)
        fail_msg("%s has no vectors", path);
    return count;
}

static int is_json(const struct dirent *entry)
{
    size_t len = strlen(entry->d_name);
    return len > 5 && strcmp(entry->d_name + len - 5, ".json") == 0;
}

static unsigned each_vector(vector_f *fn)
{
    struct dirent **entries;
    int files = scandir(FOLDER, &entries, is_json, alphasort);
    if (files < 8)
        fail_msg("only %d files in " FOLDER " (run from the top of the source tree)", files);
    unsigned total = 0;
    for (int i = 0; i < files; i++) {
        total += each_in_file(entries[i]->d_name, fn);
        free(entries[i]);
    }
    free(entries);
    return total;
}

static void test_vectors_decode_as_written(void **state)
{
    (void)state;
    unsigned total = each_vector(run_vector);
    print_message("%u vectors\n", total);
    assert_true(total > 3000);
}

/* Every beginning of a valid packet is an unfinished one to the framer. */
static void check_prefix_frames(const vector *vc)
{
    for (size_t len = 0; vc->packet != NULL && len < vc->len && len < 400; len++) {
        uint8_t *cut = copy_exact(vc->bytes, len);
        sl_mqtt_frame frame;
        sl_mqtt_rc rc;
        const char *why;
        SL_TEST_ERR(sl_mqtt_frame_read(sl_slice_of(cut, len), MAX_PACKET, &frame, &rc, &why),
                    SL_EINCOMPLETE);
        sl_free(cut);
    }
}

static void test_vectors_cut_anywhere_are_incomplete_frames(void **state)
{
    (void)state;
    each_vector(check_prefix_frames);
}

/* Packets that may end sooner and still be whole: an open list, an open payload, optional fields.
 */
static bool may_be_cut(const sl_mqtt_packet *pkt)
{
    switch (pkt->type) {
    case SL_MQTT_CONNECT:
        return pkt->connect.version == SL_MQTT_V31;
    case SL_MQTT_CONNACK:
        return false;
    default:
        return true;
    }
}

/* The body cut at every byte and the remaining length made to fit. */
static void check_cut_bodies(const vector *vc)
{
    sl_mqtt_frame frame;
    sl_mqtt_rc rc;
    const char *why;
    if (vc->packet == NULL ||
        sl_mqtt_frame_read(sl_slice_of(vc->bytes, vc->len), MAX_PACKET, &frame, &rc, &why) != SL_OK)
        return;
    for (uint32_t body = 0; body < frame.remaining && body < 400; body++) {
        uint8_t head[8];
        uint32_t size = sl_mqtt_publish_head(head, frame.first, body);
        uint8_t *cut = sl_alloc(size + body);
        memcpy(cut, head, size);
        if (body > 0)
            memcpy(cut + size, vc->bytes + frame.header_size, body);
        sl_mqtt_packet pkt;
        sl_err err =
            sl_mqtt_decode(sl_slice_of(cut, size + body), vc->version, vc->side, &pkt, &rc, &why);
        if (err == SL_OK && !may_be_cut(&pkt))
            fail_msg("%s: %s: cut to %u bytes it is still accepted", vc->file, vc->name, body);
        if (err == SL_OK) // all of it can be walked
            cJSON_Delete(
                packet_json(&pkt, pkt.type == SL_MQTT_CONNECT ? pkt.connect.version : vc->version));
        sl_free(cut);
    }
}

static void test_vectors_with_cut_bodies_are_refused_without_overread(void **state)
{
    (void)state;
    each_vector(check_cut_bodies);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors_decode_as_written),
        cmocka_unit_test(test_vectors_cut_anywhere_are_incomplete_frames),
        cmocka_unit_test(test_vectors_with_cut_bodies_are_refused_without_overread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
