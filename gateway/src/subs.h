/* SPDX-License-Identifier: Apache-2.0
 *
 * subs: the subscriptions of one broker session: what is wanted, what the broker holds, and the
 * SUBSCRIBE and UNSUBSCRIBE packets that bring one to the other. A narrow filter is subscribed and
 * granted before the wide one that covered it is dropped: a duplicate is better than a gap. No I/O
 * of its own: it asks through two functions. The session's loop only.
 */
#ifndef SL_GATEWAY_SUBS_H
#define SL_GATEWAY_SUBS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "cover.h"
#include "mqtt/packet.h"

typedef struct sl_subs sl_subs;

typedef struct sl_subs_ops {
    /* As sl_mqtt_client_subscribe and _unsubscribe. */
    sl_err (*subscribe)(void *arg, const sl_mqtt_sub_option *options, uint32_t count,
                        uint16_t *packet_id);
    sl_err (*unsubscribe)(void *arg, const sl_slice *filters, uint32_t count, uint16_t *packet_id);
    /* A filter was refused with this reason; may be NULL. */
    void (*on_refused)(void *arg, sl_slice filter, uint8_t reason);
} sl_subs_ops;

sl_subs *sl_subs_new(const sl_subs_ops *ops, void *arg);
void sl_subs_free(sl_subs **sb);

/** A filter that an earlier process had subscribed in this session. Before the first connection. */
void sl_subs_remember(sl_subs *sb, sl_slice filter);
/** The whole cover that is wanted from now on (items with in_cover); sends what that needs. */
void sl_subs_want(sl_subs *sb, const sl_cover_item *items, size_t count);
/** CONNACK. The first one of the process subscribes all; a later one only when the session is new.
 */
void sl_subs_on_connected(sl_subs *sb, bool session_present);
/** The connection ended: requests under way have no answer. */
void sl_subs_on_down(sl_subs *sb);
void sl_subs_on_suback(sl_subs *sb, uint16_t packet_id, bool unsubscribe, sl_slice reasons);
/** Asks again for what was refused. */
void sl_subs_retry(sl_subs *sb);

typedef struct sl_subs_counts {
    uint32_t wanted;  /* filters of the cover */
    uint32_t held;    /* wanted and granted */
    uint32_t refused; /* wanted and refused */
    uint32_t known;   /* all that the broker may hold for us */
} sl_subs_counts;
void sl_subs_count(const sl_subs *sb, sl_subs_counts *out);
/** True when a granted filter covers this one. */
bool sl_subs_is_held(const sl_subs *sb, sl_slice filter);
/** Filters that the broker holds or may hold for us, for the state file: *pos from 0. */
bool sl_subs_each_known(const sl_subs *sb, size_t *pos, sl_slice *filter);

#endif
