/* SPDX-License-Identifier: Apache-2.0
 *
 * broker_stats: the broker's counters, one row each; the rows make /metrics and docs/metrics.md.
 */
#ifndef SL_STATS_BROKER_STATS_H
#define SL_STATS_BROKER_STATS_H

#include "base/stats.h"
#include "log/log.h"
#include "store/db.h"
#include "store/inbox.h"

/* id, kind, name, labels, help */
#define SL_BROKER_STAT_MAP(X)                                                                      \
    X(CONNECTIONS, GAUGE, "sluice_connections", NULL, "Open network connections.")                 \
    X(SESSIONS, GAUGE, "sluice_sessions", NULL, "Sessions known, connected or stored.")            \
    X(CONNECTED, GAUGE, "sluice_sessions_connected", NULL, "Sessions with a live connection.")     \
    X(SUBSCRIPTIONS, GAUGE, "sluice_subscriptions", NULL, "Subscriptions in the trie.")            \
    X(TRIE_NODES, GAUGE, "sluice_subscription_trie_nodes", NULL,                                   \
      "Nodes of the subscription trie.")                                                           \
    X(ACCEPTED, COUNTER, "sluice_connections_accepted_total", NULL, "Connections accepted.")       \
    X(TURNED_AWAY, COUNTER, "sluice_connections_turned_away_total", NULL,                          \
      "Connections closed at once because file descriptors were running out.")                     \
    X(CONNECTS, COUNTER, "sluice_connects_total", NULL, "CONNECTs that were accepted.")            \
    X(REFUSED, COUNTER, "sluice_connects_refused_total", NULL, "CONNECTs that were refused.")      \
    X(TAKEOVERS, COUNTER, "sluice_session_takeovers_total", NULL,                                  \
      "Connections closed because the same client id connected again.")                            \
    X(KEEP_ALIVE, COUNTER, "sluice_keep_alive_timeouts_total", NULL,                               \
      "Connections closed because nothing came within 1.5 keep-alive intervals.")                  \
    X(MALFORMED, COUNTER, "sluice_malformed_packets_total", NULL,                                  \
      "Connections closed because of a malformed packet or a protocol error.")                     \
    X(STUCK, COUNTER, "sluice_write_timeouts_total", NULL,                                         \
      "Connections closed because the peer did not read for too long.")                            \
    X(IN_QOS0, COUNTER, "sluice_publish_received_total", "qos=\"0\"", "PUBLISH packets received.") \
    X(IN_QOS1, COUNTER, "sluice_publish_received_total", "qos=\"1\"", "PUBLISH packets received.") \
    X(IN_QOS2, COUNTER, "sluice_publish_received_total", "qos=\"2\"", "PUBLISH packets received.") \
    X(OUT_QOS0, COUNTER, "sluice_publish_sent_total", "qos=\"0\"", "PUBLISH packets sent.")        \
    X(OUT_QOS1, COUNTER, "sluice_publish_sent_total", "qos=\"1\"", "PUBLISH packets sent.")        \
    X(OUT_QOS2, COUNTER, "sluice_publish_sent_total", "qos=\"2\"", "PUBLISH packets sent.")        \
    X(IN_BYTES, COUNTER, "sluice_bytes_received_total", NULL, "Bytes received from clients.")      \
    X(OUT_BYTES, COUNTER, "sluice_bytes_sent_total", NULL, "Bytes sent to clients.")               \
    X(WRITES, COUNTER, "sluice_socket_writes_total", NULL, "Write system calls on sockets.")       \
    X(DROP_NO_SUBSCRIBER, COUNTER, "sluice_messages_dropped_total", "reason=\"no-subscriber\"",    \
      "Messages, or copies of them, that were dropped.")                                           \
    X(DROP_SLOW, COUNTER, "sluice_messages_dropped_total", "reason=\"slow-subscriber\"",           \
      "Messages, or copies of them, that were dropped.")                                           \
    X(DROP_OFFLINE, COUNTER, "sluice_messages_dropped_total", "reason=\"offline\"",                \
      "Messages, or copies of them, that were dropped.")                                           \
    X(DROP_IN_FLIGHT, COUNTER, "sluice_messages_dropped_total", "reason=\"in-flight-full\"",       \
      "Messages, or copies of them, that were dropped.")                                           \
    X(DROP_TOO_LARGE, COUNTER, "sluice_messages_dropped_total", "reason=\"packet-too-large\"",     \
      "Messages, or copies of them, that were dropped.")                                           \
    X(DROP_EXPIRED, COUNTER, "sluice_messages_dropped_total", "reason=\"expired\"",                \
      "Messages, or copies of them, that were dropped.")                                           \
    X(DROP_INVALID_TOPIC, COUNTER, "sluice_messages_dropped_total", "reason=\"topic-invalid\"",    \
      "Messages, or copies of them, that were dropped.")                                           \
    X(DROP_NOT_STORED, COUNTER, "sluice_messages_dropped_total", "reason=\"not-stored\"",          \
      "Messages, or copies of them, that were dropped.")                                           \
    X(DROP_DAMAGED, COUNTER, "sluice_messages_dropped_total", "reason=\"damaged\"",                \
      "Messages, or copies of them, that were dropped.")                                           \
    X(DROP_DELAYED, COUNTER, "sluice_messages_dropped_total", "reason=\"delayed-too-long\"",       \
      "Messages, or copies of them, that were dropped.")                                           \
    X(HELD_BACK, COUNTER, "sluice_publishers_held_back_total", NULL,                               \
      "Times a socket was not read because the log's append queue was full.")                      \
    X(MATCHES, COUNTER, "sluice_dispatch_matches_total", NULL,                                     \
      "Subscriptions matched by dispatched messages.")                                             \
    X(DISPATCHED, COUNTER, "sluice_dispatch_messages_total", NULL,                                 \
      "Messages read from the log and dispatched.")                                                \
    X(DERIVED, COUNTER, "sluice_dispatch_derived_total", NULL,                                     \
      "Copies sent to the inboxes of persistent clients.")                                         \
    X(DISPATCH_RETRIES, COUNTER, "sluice_dispatch_retries_total", NULL,                            \
      "Times a partition's dispatch began again at its watermark after an error.")                 \
    X(DISPATCH_WAITS, COUNTER, "sluice_dispatch_waits_total", NULL,                                \
      "Times dispatch waited because an I/O loop had too many deliveries to write.")               \
    X(INBOX_REDELIVERED, COUNTER, "sluice_inbox_redelivered_total", NULL,                          \
      "Messages sent again with DUP after a reconnect.")                                           \
    X(DAMAGED_RECORDS, COUNTER, "sluice_damaged_records_total", NULL,                              \
      "Records of the log that could not be decoded and were skipped.")                            \
    X(WAITING_QOS, GAUGE, "sluice_delayed_messages", NULL,                                         \
      "Messages that wait for a free in-flight slot of their subscriber.")                         \
    X(INBOX_PAUSES, COUNTER, "sluice_inbox_pauses_total", NULL,                                    \
      "Times delivery from an inbox waited because its client read too slowly.")                   \
    X(SESSIONS_LIMITED, COUNTER, "sluice_sessions_refused_total", "reason=\"limit\"",              \
      "CONNECTs that got no session.")                                                             \
    X(SESSIONS_UNAVAILABLE, COUNTER, "sluice_sessions_refused_total", "reason=\"unavailable\"",    \
      "CONNECTs that got no session.")                                                             \
    X(SESSIONS_EXPIRED, COUNTER, "sluice_sessions_expired_total", NULL,                            \
      "Sessions that ended because their expiry interval passed.")                                 \
    X(SESSIONS_REPAIRED, COUNTER, "sluice_sessions_repaired_total", NULL,                          \
      "Sessions found connected without a connection, and marked disconnected.")                   \
    X(STALE_REQUESTS, COUNTER, "sluice_session_requests_stale_total", NULL,                        \
      "Session events ignored because those who sent them do not wait any more.")                  \
    X(WILLS, GAUGE, "sluice_wills", NULL, "Will messages kept.")                                   \
    X(WILLS_DELAYED, GAUGE, "sluice_wills_delayed", NULL,                                          \
      "Will messages of lost connections whose delay has not passed.")                             \
    X(WILLS_PUBLISHED, COUNTER, "sluice_wills_published_total", NULL, "Will messages published.")

enum {
#define SL_BROKER_STAT_ENUM(id, kind, name, labels, help) SL_BS_##id,
    SL_BROKER_STAT_MAP(SL_BROKER_STAT_ENUM)
#undef SL_BROKER_STAT_ENUM
        SL_BS_LOG,                                /* first of the log port's rows */
    SL_BS_INBOX = SL_BS_LOG + SL_LOG_STAT_COUNT,  /* first of the inbox port's rows */
    SL_BS_DB = SL_BS_INBOX + SL_INBOX_STAT_COUNT, /* first of the metadata port's rows */
    SL_BS_COUNT = SL_BS_DB + SL_DB_STAT_COUNT
};

extern const sl_stat_row SL_BROKER_STAT_ROWS[SL_BS_COUNT];

#endif
