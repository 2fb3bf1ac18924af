/* SPDX-License-Identifier: Apache-2.0
 *
 * batch_test: the format of packed batches: what goes in comes out, damage is seen.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "log/batch.h"
#include "sl_test.h"

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* A record that its number and the seed determine. */
typedef struct sample {
    uint8_t bytes[600];
    sl_batch_source source;
    sl_log_header headers[2];
    sl_slice value[2];
    sl_batch_parts parts;
} sample;

static void make_sample(sample *sm, uint32_t seed)
{
    memset(sm, 0, sizeof *sm);
    for (size_t i = 0; i < sizeof sm->bytes; i++)
        sm->bytes[i] = (uint8_t)next_random(&seed);
    bool derived = next_random(&seed) % 3 == 0;
    sm->source = (sl_batch_source){next_random(&seed), (uint16_t)next_random(&seed),
                                   (uint64_t)next_random(&seed) << 30};
    sm->headers[0] =
        (sl_log_header){SL_LOG_H_PUBLISHER, sl_slice_of(sm->bytes, next_random(&seed) % 100)};
    sm->headers[1] = (sl_log_header){SL_LOG_H_EXPIRY, sl_slice_of(sm->bytes + 7, 4)};
    sm->value[0] = sl_slice_of(sm->bytes + 100, next_random(&seed) % 300);
    sm->value[1] = sl_slice_of(sm->bytes + 400, next_random(&seed) % 200);
    sm->parts = (sl_batch_parts){
        .flags = (uint8_t)((next_random(&seed) % 2 == 0 ? SL_LOG_VOLATILE : SL_LOG_DURABLE) |
                           (derived ? SL_BATCH_DERIVED : 0)),
        .attr = (uint8_t)next_random(&seed),
        .time_ms = 1700000000000 + (int64_t)next_random(&seed) - (1 << 23),
        .key = sl_slice_of(sm->bytes + 50, next_random(&seed) % 200),
        .headers = sm->headers,
        .header_count = next_random(&seed) % 3,
        .value = sm->value,
        .value_count = 2,
        .source = &sm->source};
}

static void check_sample(const sample *sm, const sl_batch_record *rec)
{
    const sl_batch_parts *parts = &sm->parts;
    assert_int_equal(rec->flags, parts->flags);
    assert_int_equal(rec->attr, parts->attr);
    assert_int_equal(rec->time_ms, parts->time_ms);
    assert_true(sl_slice_equal(rec->key, parts->key));
    assert_int_equal(rec->value.len, sm->value[0].len + sm->value[1].len);
    assert_true(sl_slice_equal(sl_slice_of(rec->value.ptr, sm->value[0].len), sm->value[0]));
    assert_true(sl_slice_equal(sl_slice_of(rec->value.ptr + sm->value[0].len, sm->value[1].len),
                               sm->value[1]));
    if ((parts->flags & SL_BATCH_DERIVED) != 0) {
        assert_int_equal(rec->source.topic_id, sm->source.topic_id);
        assert_int_equal(rec->source.partition, sm->source.partition);
        assert_int_equal(rec->source.offset, sm->source.offset);
    }
    size_t pos = 0;
    sl_log_header hd;
    for (uint32_t i = 0; i < parts->header_count; i++) {
        assert_true(sl_log_header_next(rec->headers, &pos, &hd));
        assert_int_equal(hd.id, sm->headers[i].id);
        assert_true(sl_slice_equal(hd.value, sm->headers[i].value));
    }
    assert_false(sl_log_header_next(rec->headers, &pos, &hd));
}

static void fill_samples(sl_batch_fill *fill, uint32_t count, uint32_t seed)
{
    for (uint32_t i = 0; i < count; i++) {
        sample sm;
        make_sample(&sm, seed + i);
        size_t before = fill->buf == NULL ? SL_BATCH_HEADER_BYTES : fill->buf->len;
        sl_batch_append(fill, &sm.parts, 256, NULL);
        assert_true(fill->buf->len - before <= sl_batch_record_bound(&sm.parts));
    }
}

static void test_batch_gives_back_what_was_appended(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 50; round++) {
        sl_batch_fill fill = {0};
        uint32_t count = 1 + round * 3;
        fill_samples(&fill, count, round * 1000);
        sl_batch_finish(&fill, 77);
        sl_slice bytes = sl_slice_of(fill.buf->data, fill.buf->len);
        sl_batch_info info;
        SL_TEST_OK(sl_batch_open(bytes, true, &info));
        assert_int_equal(info.base, 77);
        assert_int_equal(info.count, count);
        assert_int_equal(info.size, fill.buf->len);
        uint64_t pos = 0;
        sl_batch_record rec;
        for (uint32_t i = 0; i < count; i++) {
            sample sm;
            make_sample(&sm, round * 1000 + i);
            assert_true(sl_batch_next(bytes, &info, &pos, &rec));
            assert_int_equal(rec.offset, 77 + i);
            check_sample(&sm, &rec);
        }
        assert_false(sl_batch_next(bytes, &info, &pos, &rec));
        sl_rbuf_unref(&fill.buf);
    }
}

static void test_batch_hints_say_what_is_in_it(void **state)
{
    (void)state;
    const sl_batch_source source = {1, 2, 3};
    sl_batch_fill fill = {0};
    sl_batch_parts parts = {.flags = SL_LOG_VOLATILE};
    sl_batch_append(&fill, &parts, 64, NULL);
    assert_int_equal(fill.hints, SL_BATCH_VOLATILE);
    parts.flags = SL_LOG_DURABLE;
    sl_batch_append(&fill, &parts, 64, NULL);
    assert_int_equal(fill.hints, SL_BATCH_VOLATILE | SL_BATCH_DURABLE);
    parts.flags = SL_LOG_VOLATILE | SL_BATCH_DERIVED | SL_BATCH_REFERENCE;
    parts.source = &source;
    sl_batch_append(&fill, &parts, 64, NULL);
    assert_int_equal(fill.hints, SL_BATCH_VOLATILE | SL_BATCH_DURABLE | SL_BATCH_REFS);
    sl_rbuf_unref(&fill.buf);
}

static void test_batch_of_rows_carries_offsets(void **state)
{
    (void)state;
    sl_batch_fill fill = {0};
    const uint64_t offsets[3] = {900, 5, UINT64_MAX - 1};
    for (unsigned i = 0; i < 3; i++) {
        sample sm;
        make_sample(&sm, i);
        sl_batch_append(&fill, &sm.parts, 64, &offsets[i]);
    }
    sl_batch_finish(&fill, 0);
    sl_slice bytes = sl_slice_of(fill.buf->data, fill.buf->len);
    sl_batch_info info;
    SL_TEST_OK(sl_batch_open(bytes, true, &info));
    uint64_t pos = 0;
    sl_batch_record rec;
    for (unsigned i = 0; i < 3; i++) {
        sample sm;
        make_sample(&sm, i);
        assert_true(sl_batch_next(bytes, &info, &pos, &rec));
        assert_true(rec.offset == offsets[i]);
        check_sample(&sm, &rec);
    }
    sl_rbuf_unref(&fill.buf);
}

static void test_batch_row_header_makes_a_batch_of_one_record(void **state)
{
    (void)state;
    sl_batch_fill fill = {0};
    fill_samples(&fill, 4, 9);
    sl_batch_finish(&fill, 10);
    sl_slice bytes = sl_slice_of(fill.buf->data, fill.buf->len);
    sl_batch_info info;
    SL_TEST_OK(sl_batch_open(bytes, true, &info));
    uint64_t pos = 0, before = 0;
    sl_batch_record rec;
    for (unsigned i = 0; i < 3; i++) {
        before = pos;
        assert_true(sl_batch_next(bytes, &info, &pos, &rec));
    }
    sl_slice span = sl_batch_span(bytes, before, pos);
    uint8_t row[2048];
    sl_batch_row_header(row, span, rec.offset, info.base_time, SL_BATCH_DURABLE);
    memcpy(row + SL_BATCH_HEADER_BYTES, span.ptr, span.len);
    sl_slice row_bytes = sl_slice_of(row, SL_BATCH_HEADER_BYTES + span.len);
    SL_TEST_OK(sl_batch_open(row_bytes, true, &info));
    assert_int_equal(info.count, 1);
    pos = 0;
    assert_true(sl_batch_next(row_bytes, &info, &pos, &rec));
    assert_int_equal(rec.offset, 12);
    sample sm;
    make_sample(&sm, 9 + 2);
    check_sample(&sm, &rec);
    sl_rbuf_unref(&fill.buf);
}

static void test_batch_damage_of_any_byte_is_seen(void **state)
{
    (void)state;
    sl_batch_fill fill = {0};
    fill_samples(&fill, 3, 4);
    sl_batch_finish(&fill, 1);
    sl_batch_info info;
    for (uint32_t i = 0; i < fill.buf->len; i++) {
        if (i == 3)
            continue; // unused
        fill.buf->data[i] ^= 0x20;
        SL_TEST_ERR(sl_batch_open(sl_slice_of(fill.buf->data, fill.buf->len), true, &info),
                    SL_ECORRUPT);
        fill.buf->data[i] ^= 0x20;
    }
    for (uint32_t len = 0; len < fill.buf->len; len++)
        SL_TEST_ERR(sl_batch_open(sl_slice_of(fill.buf->data, len), true, &info), SL_ECORRUPT);
    SL_TEST_OK(sl_batch_open(sl_slice_of(fill.buf->data, fill.buf->len), true, &info));
    sl_rbuf_unref(&fill.buf);
}

/* Without the checksum: any bytes may come, none may be read past the end (the sanitizer looks). */
static void test_batch_steps_never_leave_the_bytes(void **state)
{
    (void)state;
    uint32_t seed = 3;
    for (unsigned round = 0; round < 3000; round++) {
        size_t len = SL_BATCH_HEADER_BYTES + next_random(&seed) % 64;
        uint8_t *bytes = sl_alloc(len);
        for (size_t i = 0; i < len; i++)
            bytes[i] = (uint8_t)next_random(&seed);
        const sl_batch_info info = {.count = 20, .hints = (uint8_t)next_random(&seed)};
        uint64_t pos = 0;
        sl_batch_record rec;
        unsigned steps = 0;
        while (sl_batch_next(sl_slice_of(bytes, len), &info, &pos, &rec)) {
            assert_true(rec.value.ptr + rec.value.len <= bytes + len);
            steps++;
        }
        assert_true(steps <= 20);
        sl_free(bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batch_gives_back_what_was_appended),
        cmocka_unit_test(test_batch_hints_say_what_is_in_it),
        cmocka_unit_test(test_batch_of_rows_carries_offsets),
        cmocka_unit_test(test_batch_row_header_makes_a_batch_of_one_record),
        cmocka_unit_test(test_batch_damage_of_any_byte_is_seen),
        cmocka_unit_test(test_batch_steps_never_leave_the_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
