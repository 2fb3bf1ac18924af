/* SPDX-License-Identifier: Apache-2.0
 *
 * writer_rig: a writer on the fake sink with a fake clock, turned by hand.
 */
#ifndef SL_TEST_WRITER_RIG_H
#define SL_TEST_WRITER_RIG_H

#include "fake_sink.h"
#include "peer.h"
#include "writer.h"

#define RIG_MAX_TOKENS 20000

typedef struct rig {
    sl_clock ck;
    char *dir, *dead_path;
    fake_sink *fake;
    sl_sink *sink;
    sl_dead_letter *dl;
    sl_writer *w;
    sl_writer_conf cf;
    sl_writer_target targets[2];
    sl_taken tokens[RIG_MAX_TOKENS];
    size_t sent;
} rig;

/** cmocka set-up: *state is a rig without a writer; a test changes rg->cf and calls rig_start. */
int rig_setup(void **state);
int rig_teardown(void **state);
/** dead_path may be changed before. */
void rig_start(rig *rg);
/** Number of the message, for rig_is_taken. */
size_t rig_send(rig *rg, const char *topic, const char *payload);
size_t rig_send_to(rig *rg, size_t target, const peer_message *pm);
bool rig_is_taken(const rig *rg, size_t number);
size_t rig_taken(const rig *rg);
/** Turns lane 0 until it has nothing to do at once. Its next due time. */
sl_mono_ms rig_turn(rig *rg);
sl_mono_ms rig_keep(rig *rg);
/** Advances the clock by steps of 100 ms and turns everything in each. */
void rig_pass(rig *rg, sl_dur_ms span);
int64_t rig_stat(const rig *rg, sl_writer_stat stat);
/** Lines of the dead-letter file that hold part. */
size_t rig_dead_lines(const rig *rg, const char *part);

#define RIG_TEST(fn) cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)

#endif
