/* SPDX-License-Identifier: Apache-2.0
 *
 * packet_json: a decoded packet as JSON, in the words of tests/vectors/README.md; so that two
 * packets are compared field by field and a difference can be read.
 */
#ifndef SL_TEST_PACKET_JSON_H
#define SL_TEST_PACKET_JSON_H

#include "mqtt/packet.h"

struct cJSON;

/** Every field of the packet. Free with cJSON_Delete. */
struct cJSON *packet_json(const sl_mqtt_packet *pkt, sl_mqtt_version version);
/** "CONNECT". */
const char *packet_type_name(sl_mqtt_type type);

#endif
