/* SPDX-License-Identifier: Apache-2.0
 *
 * broker_conf: the table behind broker_conf.h.
 */
#include "broker_conf.h"

#include "store/db_conf.h"
#include "store/inbox_redis_conf.h"

#define BOOL(key, env, def, help)                                                                  \
    {                                                                                              \
        key, env, SL_CONF_BOOL, def, 0, 0, NULL, NULL, false, help                                 \
    }
#define INT(key, env, def, min, max, unit, help)                                                   \
    {                                                                                              \
        key, env, SL_CONF_INT, def, min, max, NULL, unit, false, help                              \
    }
#define STRING(key, env, def, help)                                                                \
    {                                                                                              \
        key, env, SL_CONF_STRING, def, 0, 0, NULL, NULL, false, help                               \
    }
#define ENUM(key, env, def, words, help)                                                           \
    {                                                                                              \
        key, env, SL_CONF_ENUM, def, 0, 0, words, NULL, false, help                                \
    }

const sl_conf_row SL_BROKER_CONF_ROWS[] = {
    STRING("service.id", "TB_SERVICE_ID", "",
           "Name of this node: stable across restarts and unique in a cluster. Empty: the host "
           "name."),
    STRING("storage.dir", "SLUICE_DATA_DIR", "./data",
           "Folder of everything the broker stores. One process at a time."),
    ENUM("storage.durability", "SLUICE_DURABILITY", "fsync", "fsync|os",
         "fsync: what was acknowledged survives a power cut. os: it survives the process, as with "
         "Kafka's acks=1."),
    ENUM("storage.inbox", "SLUICE_INBOX", "embedded", "embedded|redis",
         "Where messages wait for persistent clients: beside the log, or in Redis (redis.*)."),
    SL_DB_CONF_CHOICE,
    INT("storage.gather-ms", "SLUICE_GATHER_MS", "2", 0, 100, "ms",
        "How long a group commit collects records under load."),
    INT("storage.queue-max-bytes", "SLUICE_LOG_QUEUE_MAX_BYTES", "67108864", 1048576, 4294967296,
        "bytes", "Records of one I/O loop that may wait to be written; then its publishers wait."),
    INT("storage.ring-bytes", "SLUICE_LOG_RING_BYTES", "67108864", 1048576, 17179869184, "bytes",
        "Newest records kept in memory for those who read along."),
    INT("storage.low-space-bytes", "SLUICE_LOW_SPACE_BYTES", "268435456", 0, 1099511627776, "bytes",
        "While less is free on the disk, nothing new is accepted; reading goes on."),

    BOOL("listener.tcp.enabled", "LISTENER_TCP_ENABLED", "true", "MQTT over TCP."),
    STRING("listener.tcp.bind_address", "LISTENER_TCP_BIND_ADDRESS", "0.0.0.0",
           "Address to listen on."),
    INT("listener.tcp.bind_port", "LISTENER_TCP_BIND_PORT", "1883", 0, 65535, NULL,
        "Port to listen on; 0 lets the system choose."),
    INT("listener.tcp.netty.max_payload_size", "TCP_NETTY_MAX_PAYLOAD_SIZE", "65536", 128,
        268435455, "bytes",
        "Largest MQTT packet accepted, without its fixed header; announced as Maximum Packet "
        "Size."),
    INT("listener.tcp.netty.worker_group_thread_count", "TCP_NETTY_WORKER_GROUP_THREADS", "0", 0,
        64, NULL, "I/O loops; 0 = one per processor core."),
    INT("listener.write_buffer_high_water_mark", "NETTY_WRITE_BUFFER_HIGH_WATER_MARK", "1280", 64,
        1048576, "KB",
        "Unsent bytes at which a connection takes no more messages that are not persistent; they "
        "are dropped and counted."),
    BOOL("security.anonymous", "SLUICE_ANONYMOUS", "false",
         "Let clients in without credentials on every address. Listeners on loopback addresses "
         "always do."),

    STRING("server.address", "HTTP_BIND_ADDRESS", "0.0.0.0", "Address of health and metrics."),
    INT("server.port", "HTTP_BIND_PORT", "8083", 0, 65535, NULL,
        "Port of health and metrics; 0 lets the system choose."),

    INT("mqtt.max-in-flight-msgs", "MQTT_MAX_IN_FLIGHT_MSGS", "1000", 1, 32767, "messages",
        "QoS 1 and 2 messages a client may have unacknowledged; announced as Receive Maximum."),
    INT("mqtt.keep-alive.max-keep-alive", "MQTT_KEEP_ALIVE_MAX_KEEP_ALIVE_SEC", "600", 0, 65535,
        "s", "Longest keep-alive of MQTT 5 clients; 0 = no maximum."),
    INT("mqtt.topic.max-segments-count", "MQTT_TOPIC_MAX_SEGMENTS_COUNT", "0", 0, 65535, NULL,
        "Separators a topic or filter may have; 0 = no limit."),
    BOOL("mqtt.subscription.allow-root-multi-level-wildcard",
         "MQTT_SUBSCRIPTION_ROOT_MULTI_LVL_WILDCARD", "true", "Allow the filter # alone."),
    INT("mqtt.subscription.max-per-client", "SLUICE_MAX_SUBSCRIPTIONS_PER_CLIENT", "10000", 1,
        1000000, NULL, "Subscriptions one client may have."),
    INT("mqtt.subscription.max-total", "SLUICE_MAX_SUBSCRIPTIONS", "16777216", 1, 268435456, NULL,
        "Subscriptions of all clients together."),
    INT("mqtt.clients.max-total", "SLUICE_MAX_CLIENTS", "4194304", 1, 16777216, NULL,
        "Client ids known at one time, connected or with a stored session."),
    INT("mqtt.version-3-1.max-client-id-length", "MQTT_3_1_MAX_CLIENT_ID_LENGTH", "1024", 1, 65535,
        "bytes", "Longest client id of MQTT 3.1."),
    INT("mqtt.flow-control.mqtt3x-receive-max", "MQTT_FLOW_CONTROL_MQTT_3X_RECEIVE_MAX", "65535", 1,
        65535, "messages", "Receive Maximum assumed of MQTT 3 clients."),
    INT("mqtt.flow-control.delayed-queue-max-size", "MQTT_FLOW_CONTROL_DELAYED_QUEUE_MAX_SIZE",
        "1000", 0, 1000000, "messages",
        "Messages that may wait for a free in-flight slot, per client that is not persistent; then "
        "they are dropped and counted."),
    BOOL("mqtt.flow-control.enabled", "MQTT_FLOW_CONTROL_ENABLED", "true",
         "Keep to the Receive Maximum of clients; false sends as many messages as packet ids "
         "allow."),
    INT("mqtt.flow-control.ttl", "MQTT_FLOW_CONTROL_TTL", "600", 1, 604800, "s",
        "How long a message may wait for a free in-flight slot; then it is dropped and counted."),
    INT("mqtt.sessions-limit", "MQTT_SESSIONS_LIMIT", "0", 0, 16777216, NULL,
        "Sessions, connected and stored, beyond which new ones are refused (0x97, or return code "
        "3); 0 = no limit."),
    INT("mqtt.connect-timeout", "SLUICE_CONNECT_TIMEOUT_MS", "10000", 100, 600000, "ms",
        "How long a new connection may take to its CONNECT, and the broker to its CONNACK."),
    INT("mqtt.write-timeout", "SLUICE_WRITE_TIMEOUT_MS", "60000", 100, 3600000, "ms",
        "A client that takes no byte for so long is disconnected."),
    INT("mqtt.client-session-expiry.max-expiry-interval",
        "MQTT_CLIENT_SESSION_EXPIRY_MAX_EXPIRY_INTERVAL", "604800", 0, 4294967295, "s",
        "Longest Session Expiry Interval of MQTT 5 clients."),
    INT("mqtt.client-session-expiry.ttl", "MQTT_CLIENT_SESSION_EXPIRY_TTL", "604800", 0, 4294967295,
        "s", "Expiry of sessions without an interval (MQTT 3, clean session 0); 0 = never."),
    INT("mqtt.client-session-expiry.check-period", "SLUICE_SESSION_EXPIRY_CHECK_PERIOD", "10", 1,
        86400, "s", "How often expired sessions are looked for."),
    BOOL("mqtt.client-session-expiry.v5-clean-start-0-keeps", "SLUICE_V5_CLEAN_START_0_KEEPS",
         "false",
         "Keep MQTT 5 sessions with Clean Start 0 and no Session Expiry Interval (or 0) for "
         "mqtt.client-session-expiry.ttl, as TBMQ does; false: they end with their connection, as "
         "the standard says."),
    INT("mqtt.persistent-session.device.persisted-messages.limit",
        "MQTT_PERSISTENT_SESSION_DEVICE_PERSISTED_MESSAGES_LIMIT", "10000", 1, 65535, "messages",
        "Messages stored per client; the oldest make room and are counted."),
    INT("mqtt.persistent-session.device.persisted-messages.ttl",
        "MQTT_PERSISTENT_SESSION_DEVICE_PERSISTED_MESSAGES_TTL", "604800", 1, 4294967295, "s",
        "How long a message without an expiry of its own is stored."),

    INT("queue.msg-all.consumers-count", "TB_MSG_ALL_CONSUMERS_COUNT", "1", 1, 16, NULL,
        "Threads that dispatch messages to subscribers."),
    INT("queue.device-persisted-msg.consumers-count", "TB_DEVICE_PERSISTED_MSG_CONSUMERS_COUNT",
        "1", 1, 12, NULL, "Threads that store messages for persistent clients and deliver them."),
    INT("queue.msg-all.loop-backlog-bytes", "SLUICE_LOOP_BACKLOG_BYTES", "33554432", 65536,
        4294967296, "bytes", "Deliveries under way to one I/O loop before dispatch waits for it."),
    INT("queue.msg-all.retention-ms", "SLUICE_MSG_ALL_RETENTION_MS", "604800000", -1, 1000000000000,
        "ms", "How long dispatched messages stay in tbmq.msg.all; -1 = no limit."),
    INT("queue.msg-all.retention-bytes", "SLUICE_MSG_ALL_RETENTION_BYTES", "2147483648", -1,
        1099511627776, "bytes",
        "Dispatched messages kept per partition of tbmq.msg.all; -1 = no limit."),

    SL_INBOX_REDIS_CONF_ROWS,

    SL_DB_CONF_ROWS,

    ENUM("logging.level", "SLUICE_LOG_LEVEL", "info", "error|warn|info",
         "Least important level that is written to standard error."),
    STRING("logging.trace", "SLUICE_TRACE", "",
           "Components whose trace lines are written: a comma list, all, -name takes one out."),
    BOOL("trace.messages", "SLUICE_TRACE_MESSAGES", "false",
         "Record the steps of messages; GET /trace shows the last ones (on loopback only)."),
    INT("trace.steps", "SLUICE_TRACE_STEPS", "65536", 1024, 16777216, NULL,
        "Steps kept; rounded up to a power of two."),
};

const size_t SL_BROKER_CONF_COUNT = sizeof(SL_BROKER_CONF_ROWS) / sizeof(SL_BROKER_CONF_ROWS[0]);

const char *const SL_BROKER_CONF_SHIPPED[] = {"listener.tcp.bind_address", "127.0.0.1",
                                              "server.address", "127.0.0.1", NULL};

#define FIXED_HEADER_MAX 5

void sl_broker_conf_limits(const sl_conf *cf, sl_limits *out)
{
    *out = (sl_limits){
        .max_packet_bytes =
            (uint32_t)sl_conf_int(cf, "listener.tcp.netty.max_payload_size") + FIXED_HEADER_MAX,
        .max_in_flight = (uint32_t)sl_conf_int(cf, "mqtt.max-in-flight-msgs"),
        .max_keep_alive_s = (uint32_t)sl_conf_int(cf, "mqtt.keep-alive.max-keep-alive"),
        .max_expiry_s = (uint32_t)sl_conf_int(cf, "mqtt.client-session-expiry.max-expiry-interval"),
        .receive_max_v3 = (uint32_t)sl_conf_int(cf, "mqtt.flow-control.mqtt3x-receive-max"),
        .sessions_max = (uint32_t)sl_conf_int(cf, "mqtt.sessions-limit"),
        .flow_control = sl_conf_bool(cf, "mqtt.flow-control.enabled"),
        .delayed_ttl = sl_conf_int(cf, "mqtt.flow-control.ttl") * 1000,
        .v5_clean_start_0_keeps =
            sl_conf_bool(cf, "mqtt.client-session-expiry.v5-clean-start-0-keeps"),
        .delayed_max = (uint32_t)sl_conf_int(cf, "mqtt.flow-control.delayed-queue-max-size"),
        .max_topic_levels = (uint32_t)sl_conf_int(cf, "mqtt.topic.max-segments-count"),
        .max_subscriptions = (uint32_t)sl_conf_int(cf, "mqtt.subscription.max-per-client"),
        .out_high_bytes = (uint32_t)sl_conf_int(cf, "listener.write_buffer_high_water_mark") * 1024,
        .v31_client_id_bytes = (uint32_t)sl_conf_int(cf, "mqtt.version-3-1.max-client-id-length"),
        .inbox_limit =
            (uint32_t)sl_conf_int(cf, "mqtt.persistent-session.device.persisted-messages.limit"),
        .inbox_ttl =
            sl_conf_int(cf, "mqtt.persistent-session.device.persisted-messages.ttl") * 1000,
        .connect_timeout = sl_conf_int(cf, "mqtt.connect-timeout"),
        .write_timeout = sl_conf_int(cf, "mqtt.write-timeout"),
        .loop_backlog_bytes = (uint32_t)sl_conf_int(cf, "queue.msg-all.loop-backlog-bytes"),
        .allow_root_wildcard =
            sl_conf_bool(cf, "mqtt.subscription.allow-root-multi-level-wildcard"),
    };
}
