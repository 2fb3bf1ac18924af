/* SPDX-License-Identifier: Apache-2.0
 *
 * mqtt_session: the gateway's one connection to the broker, as policy on top of mqtt/client.h:
 * which filters are subscribed (the smallest set that covers what the router's listeners want, at
 * the highest QoS), when they are subscribed again, what is unsubscribed, when a stranger with our
 * client id is suspected. It turns PUBLISHes into messages for the router, and the router's
 * acknowledgements into PUBACK and PUBREC.
 *
 *   filter of the cover:  WANTED --SUBSCRIBE--> ASKED --granted--> HELD
 *                           ^                     `----refused----> REFUSED --retry--> ASKED
 *   no longer wanted:     HELD --all wanted ones held--> UNSUBSCRIBE --> LEAVING --UNSUBACK--> gone
 *
 * Everything on the router's loop unless a tag says otherwise.
 */
#ifndef SL_GATEWAY_MQTT_SESSION_H
#define SL_GATEWAY_MQTT_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "loop/loop.h"
#include "loop/pool.h"
#include "mqtt/client.h"
#include "router.h"

typedef struct sl_session sl_session;

typedef struct sl_session_options {
    sl_loop *loop;    /* the router's; borrowed */
    sl_pool *pool;    /* dialling, state file; borrowed. NULL in tests with dial */
    const char *host; /* its certificate must name it */
    sl_tls_ctx *tls;  /* borrowed until free; NULL: without TLS */
    uint16_t port;
    bool mqtt5;
    const char *client_id;
    const char *username; /* NULL: none */
    const char *password; /* NULL: none */
    bool clean_session;
    uint16_t keep_alive_s;
    sl_dur_ms connect_timeout_ms;
    uint32_t session_expiry_s;
    uint16_t receive_maximum; /* not 0 */
    uint32_t max_packet_bytes;
    bool reconnect;
    sl_dur_ms reconnect_initial_ms;
    sl_dur_ms reconnect_max_ms;
    const char *state_file; /* NULL: none */
    sl_mqtt_dial_f *dial;   /* NULL: TCP; tests */
    void *dial_arg;
} sl_session_options;

/** Options are copied. Errors SL_EINVAL with *why (owned). @thread init */
SL_MUST_USE sl_err sl_session_new(const sl_session_options *options, sl_session **out, char **why);
/** The router that it feeds; before start. @thread init */
void sl_session_set_router(sl_session *sn, sl_router *rt);
/** After stop, or never started; the loop does not run. @thread init */
void sl_session_free(sl_session **sn);

/** Connects, now that every consumer is registered. @thread loop */
void sl_session_start(sl_session *sn);
/** DISCONNECT after the acknowledgements that are due; done(arg) once. @thread loop */
void sl_session_stop(sl_session *sn, void (*done)(void *arg), void *arg);

/* The router's callbacks; arg is the sl_session. @thread loop */
void sl_session_on_ack(void *arg, sl_delivery delivery);
void sl_session_on_filters(void *arg);

typedef struct sl_session_figures {
    bool connected;
    bool session_present;
    bool all_granted;       /* connected and every wanted filter is held */
    uint32_t wanted;        /* filters of the cover */
    uint32_t held;          /* of them granted by SUBACK */
    uint32_t refused;       /* of them refused by SUBACK */
    uint32_t listened;      /* registered filters whose cover is held */
    uint32_t unacked;       /* deliveries not yet acknowledged */
    uint32_t limit;         /* most of them */
    int64_t oldest_ms;      /* age of the oldest of them */
    uint64_t reconnects;    /* successful connections after the first one */
    uint64_t takeovers;     /* ended because another client uses our id, or so it seems */
    uint64_t acks_sent;     /* PUBACKs and PUBRECs */
    uint64_t redelivered;   /* messages with DUP */
    uint64_t retained;      /* messages with RETAIN */
    uint64_t sessions_lost; /* connections without the session that should have been there */
} sl_session_figures;
/** As of the last refresh (every 250 ms and at each event). @thread any */
void sl_session_read(const sl_session *sn, sl_session_figures *out);
/** Brings the figures up to date. @thread loop */
void sl_session_refresh(sl_session *sn);

/** Longest that a client is kept away after it seemed that another one uses its id. */
#define SL_SESSION_TAKEOVER_MIN_MS 10000
#define SL_SESSION_TAKEOVER_MAX_MS 300000

#endif
