/* SPDX-License-Identifier: Apache-2.0
 *
 * core: what the parts of one broker share: services, topics, loops and limits. Built and torn down
 * by broker.c; everything in it is set before the loops start and read-only afterwards, unless its
 * own type says otherwise. No globals: whoever needs something is handed this.
 */
#ifndef SL_CORE_H
#define SL_CORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/conf.h"
#include "base/stats.h"
#include "log/log.h"

struct sl_rcu;
struct sl_sub_trie;
struct sl_registry;
struct sl_stamps;
struct sl_io;
struct sl_device_loop;
struct sl_dispatcher;
struct sl_manager;
struct sl_msg_trace;
struct sl_listener;
struct sl_inbox_ops;
struct sl_db;
struct sl_inbox_redis_options;

typedef struct sl_limits {
    uint32_t max_packet_bytes;    /* inbound, fixed header counted */
    uint32_t max_in_flight;       /* inbound QoS 1 and 2 without acknowledgement */
    uint32_t max_keep_alive_s;    /* MQTT 5 */
    uint32_t max_expiry_s;        /* cap of MQTT 5 session expiry */
    uint32_t receive_max_v3;      /* assumed of MQTT 3 clients */
    uint32_t sessions_max;        /* connected and stored; 0 = no limit */
    bool flow_control;            /* keep to the client's Receive Maximum */
    bool v5_clean_start_0_keeps;  /* a version 5 session without expiry outlives its connection */
    uint32_t delayed_max;         /* messages that wait for an in-flight slot, per client */
    sl_dur_ms delayed_ttl;        /* how long they may wait */
    uint32_t max_topic_levels;    /* separators in a topic or filter; 0 = no limit */
    uint32_t max_subscriptions;   /* per client */
    uint32_t out_high_bytes;      /* unsent bytes at which a connection takes no more */
    uint32_t v31_client_id_bytes; /* MQTT 3.1 */
    uint32_t inbox_limit;         /* messages per client */
    sl_dur_ms inbox_ttl;
    sl_dur_ms connect_timeout;   /* from accept to the whole CONNECT, and to the CONNACK */
    sl_dur_ms write_timeout;     /* a peer that takes nothing for so long is cut */
    uint32_t loop_backlog_bytes; /* deliveries under way to one I/O loop before dispatch waits */
    bool allow_root_wildcard;    /* a filter that is just # */
} sl_limits;

typedef struct sl_core {
    sl_clock *clock;
    sl_stats *stats;
    const sl_conf *conf;
    const char *service_id;
    uint32_t run_id; /* of this process: what an earlier run asked for is known by it */
    sl_limits limits;
    sl_log *log;
    sl_log_topic *t_all;       /* tbmq.msg.all */
    sl_log_topic *t_persisted; /* tbmq.msg.persisted */
    sl_log_topic *t_session;   /* tbmq.client.session */
    sl_log_topic *t_subs;      /* tbmq.client.subscriptions */
    sl_log_topic *t_request;   /* tbmq.client.session.event.request */
    sl_log_topic *t_response;  /* tbmq.client.session.event.response.<service id> */
    const struct sl_inbox_ops *inbox_ops;
    struct sl_db *db;                           /* metadata */
    struct sl_inbox_redis_options *inbox_redis; /* owned by broker.c; NULL with another adapter */
    struct sl_rcu *rcu;
    struct sl_sub_trie *trie;
    struct sl_registry *registry;
    struct sl_stamps *stamps;
    struct sl_io **ios;
    unsigned io_count;
    struct sl_device_loop *
        *devices; /* persist loops; a client's is chosen by its inbox partition */
    unsigned device_count;
    struct sl_dispatcher **dispatchers;
    unsigned dispatcher_count;
    struct sl_manager *manager;
    struct sl_msg_trace *trace;
    struct sl_listener *tcp; /* counts its connections; released by each of them */
    _Atomic bool draining;   /* no new connections */
    _Atomic bool ready;
} sl_core;

#endif
