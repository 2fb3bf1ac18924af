/* SPDX-License-Identifier: Apache-2.0
 *
 * random_packet: valid packets of every type and version with random fields, from a seed.
 */
#ifndef SL_TEST_RANDOM_PACKET_H
#define SL_TEST_RANDOM_PACKET_H

#include "mqtt/decode.h"

typedef struct random_source {
    uint64_t word;      /* state of the generator; not 0 */
    uint8_t pool[8192]; /* what the slices of the current packet point into */
    size_t used;
    sl_mqtt_user_prop user[2][4];
    unsigned user_sets;
    uint32_t sub_ids[4];
    sl_mqtt_sub_option options[5];
} random_source;

uint32_t random_below(random_source *rs, uint32_t limit);
/** A packet that a peer of `side` may be sent. Borrowed from rs until the next call. */
void random_packet(random_source *rs, sl_mqtt_type type, sl_mqtt_version version, sl_mqtt_side side,
                   sl_mqtt_packet *out);
/** May this side be sent this type in this version at all? */
bool random_type_is_possible(sl_mqtt_type type, sl_mqtt_version version, sl_mqtt_side side);

#endif
