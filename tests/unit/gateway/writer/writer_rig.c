/* SPDX-License-Identifier: Apache-2.0
 *
 * writer_rig: see writer_rig.h.
 */
#include "writer_rig.h"

#include "sl_test.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/assert.h"

#define STEP_MS 100

int rig_setup(void **state)
{
    rig *rg = sl_calloc(1, sizeof *rg);
    sl_clock_init_fake(&rg->ck, 1000000, PEER_AT_NS / 1000000);
    rg->dir = peer_folder_new();
    rg->dead_path = peer_path(rg->dir, "dead.log");
    rg->fake = fake_sink_new();
    rg->targets[0] = (sl_writer_target){"#", "db", "first", 1};
    rg->targets[1] = (sl_writer_target){"#", "db", "second", 1};
    rg->cf = (sl_writer_conf){
        .targets = rg->targets,
        .target_count = 1,
        .strategy = SL_WRITER_BLOCKING_QUEUE,
        .capacity = 10000,
        .max_bytes = SL_WRITER_DEFAULT_MAX_BYTES,
        .max_wait_ms = 30000,
        .batch_size = 200,
        .max_retries = 3,
        .retry_delay_ms = 1000,
        .max_unacked_ms = 15000,
        .shutdown_timeout_ms = 5000,
        .id_strategy = SL_ID_PAYLOAD_FIELD,
        .id_field = "messageId",
        .redelivers = true,
        .manual = true,
    };
    *state = rg;
    return 0;
}

void rig_start(rig *rg)
{
    char *why = NULL;
    SL_TEST_OK(sl_writer_conf_check(&rg->cf, &why));
    sl_sink_conf cf = {.data_dir = (const char *)rg->fake};
    SL_TEST_OK(sl_sink_open_with(&fake_sink_ops, &cf, &rg->sink, &why));
    rg->dl = sl_dead_letter_new(rg->dead_path, 1 << 26);
    rg->w = sl_writer_new(&rg->cf, &rg->ck, rg->sink, rg->dl);
    SL_TEST_OK(sl_writer_register(rg->w, NULL));
    SL_TEST_OK(sl_writer_start(rg->w));
}

int rig_teardown(void **state)
{
    rig *rg = *state;
    sl_writer_free(&rg->w);
    sl_dead_letter_free(&rg->dl);
    sl_sink_close(&rg->sink);
    fake_sink_free(&rg->fake);
    peer_folder_remove(&rg->dir);
    sl_free(rg->dead_path);
    sl_free(rg);
    return 0;
}

size_t rig_send_to(rig *rg, size_t target, const peer_message *pm)
{
    SL_ASSERT(rg->sent < RIG_MAX_TOKENS);
    peer_message own = *pm;
    if (own.at_ns == 0)
        own.at_ns = sl_clock_wall_ns(&rg->ck);
    sl_message *msg = peer_message_new(&own);
    sl_writer_on_message(rg->w, target, msg, &rg->tokens[rg->sent]);
    sl_message_unref(&msg);
    return rg->sent++;
}

size_t rig_send(rig *rg, const char *topic, const char *payload)
{
    return rig_send_to(
        rg, 0,
        &(peer_message){.topic = topic, .payload = payload, .len = strlen(payload), .qos = 1});
}

bool rig_is_taken(const rig *rg, size_t number)
{
    return rg->tokens[number].done == 1;
}

size_t rig_taken(const rig *rg)
{
    size_t count = 0;
    for (size_t i = 0; i < rg->sent; i++)
        count += rg->tokens[i].done == 1;
    return count;
}

static sl_mono_ms turn_lane(rig *rg, size_t target)
{
    sl_mono_ms due;
    while (sl_writer_turn_lane(rg->w, target, &due))
        ;
    return due;
}

sl_mono_ms rig_turn(rig *rg)
{
    return turn_lane(rg, 0);
}

sl_mono_ms rig_keep(rig *rg)
{
    sl_mono_ms due;
    sl_writer_turn_keeper(rg->w, &due);
    return due;
}

void rig_pass(rig *rg, sl_dur_ms span)
{
    for (; span > 0; span -= STEP_MS) {
        sl_clock_advance(&rg->ck, STEP_MS);
        for (size_t i = 0; i < rg->cf.target_count; i++)
            turn_lane(rg, i);
        rig_keep(rg);
    }
}

int64_t rig_stat(const rig *rg, sl_writer_stat stat)
{
    return sl_writer_stat_get(rg->w, stat);
}

size_t rig_dead_lines(const rig *rg, const char *part)
{
    size_t count = 0;
    char *text = peer_read_file(rg->dead_path, NULL);
    for (char *at = text, *end; (end = strchr(at, '\n')) != NULL; at = end + 1) {
        *end = '\0';
        count += strstr(at, part) != NULL;
    }
    sl_free(text);
    return count;
}
