/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_table: every key of the gateway's configuration, once. Names and defaults are RESTHeart's
 * and its MQTT module's; keys of our own say so in docs/gateway.md.
 */
#include "gateway_conf.h"

#define BOOL_ROW(path, def, help)                                                                  \
    {                                                                                              \
        path, SL_GT_BOOL, def, 0, 0, NULL, NULL, false, help                                       \
    }
#define INT_ROW(path, def, min, max, unit, help)                                                   \
    {                                                                                              \
        path, SL_GT_INT, def, min, max, NULL, unit, false, help                                    \
    }
#define STR_ROW(path, def, help)                                                                   \
    {                                                                                              \
        path, SL_GT_STRING, def, 0, 0, NULL, NULL, false, help                                     \
    }
#define SECRET_ROW(path, def, help)                                                                \
    {                                                                                              \
        path, SL_GT_STRING, def, 0, 0, NULL, NULL, true, help                                      \
    }
#define ENUM_ROW(path, def, words, help)                                                           \
    {                                                                                              \
        path, SL_GT_ENUM, def, 0, 0, words, NULL, false, help                                      \
    }
#define LIST_ROW(path, def, keys, help)                                                            \
    {                                                                                              \
        path, SL_GT_LIST, def, 0, 0, keys, NULL, false, help                                       \
    }
#define MAP_ROW(path, help)                                                                        \
    {                                                                                              \
        path, SL_GT_MAP, "{}", 0, 0, NULL, NULL, false, help                                       \
    }
#define RESERVED_ROW(path, accepted, help)                                                         \
    {                                                                                              \
        path, SL_GT_RESERVED, NULL, 0, 0, accepted, NULL, false, help                              \
    }

#define HOUR_MS 3600000
#define DAY_MS  86400000
#define BIG     1000000000

/* clang-format off */
const sl_gateway_row sl_gateway_rows[] = {
    STR_ROW("core/name", "default",
        "Name of this instance. The default MQTT client id is made of it, so two gateways at one broker need different names."),

    ENUM_ROW("logging/log-level", "INFO", "ERROR|WARN|INFO",
        "Least important lines that are written to the log."),

    BOOL_ROW("http-listener/enabled", "true", "Serve HTTP."),
    STR_ROW("http-listener/host", "localhost", "Address to listen on; 0.0.0.0 = all of IPv4."),
    INT_ROW("http-listener/port", "8080", 0, 65535, NULL, "Port to listen on; 0 = the system chooses."),

    BOOL_ROW("basicAuthMechanism/enabled", "true", "Log in with HTTP Basic authentication."),
    ENUM_ROW("basicAuthMechanism/authenticator", "fileRealmAuthenticator", "fileRealmAuthenticator",
        "Who checks user and password."),

    BOOL_ROW("bruteForceAttackGuard/enabled", "false",
        "Answer 429 to an address that sent five wrong logins within ten seconds."),

    BOOL_ROW("fileRealmAuthenticator/enabled", "true", "Users come from this block or its conf-file."),
    STR_ROW("fileRealmAuthenticator/conf-file", NULL,
        "YAML file with a list `users` that is used instead of the one here. Read again at SIGHUP."),
    LIST_ROW("fileRealmAuthenticator/users", "[{userid: admin, password: null, roles: [admin]}]", "userid*|password|roles",
        "Users. A password is plain text or a salted hash made by `sluice-gateway --hash-password`; null = the user cannot log in."),

    BOOL_ROW("fileAclAuthorizer/enabled", "true",
        "Path permissions come from this block or its conf-file. Off = nothing but public paths is allowed."),
    STR_ROW("fileAclAuthorizer/conf-file", NULL,
        "YAML file with a list `permissions` that is used instead of the one here. Read again at SIGHUP."),
    LIST_ROW("fileAclAuthorizer/permissions", "[{role: admin, predicate: \"path-prefix('/')\", priority: 0}]",
        "role|roles|predicate*|priority",
        "Who may request what. Exactly one of role and roles; lower priority first, no priority = last; role $unauthenticated = without login."),

    STR_ROW("mclient/connection-string", NULL,
        "MongoDB connection string of the writer's store; null = the embedded store, gateway-store.db in the data folder."),

    BOOL_ROW("mqtt-client/enabled", "false", "Switch of the whole MQTT module."),
    STR_ROW("mqtt-client/broker-url", "tcp://localhost:1883", "tcp://host:port of the broker, or ssl:// (mqtts://) with TLS; port 1883, with TLS 8883, when left out."),
    ENUM_ROW("mqtt-client/protocol-version", "3", "3|5", "3 = MQTT 3.1.1, 5 = MQTT 5."),
    STR_ROW("mqtt-client/client-id", NULL,
        "null = restheart- and core/name. Must be unique at the broker and the same after a restart: the broker keeps what is owed under it."),
    STR_ROW("mqtt-client/username", NULL, "User name for the broker."),
    SECRET_ROW("mqtt-client/password", NULL, "Password for the broker; needs a username with protocol version 3."),
    BOOL_ROW("mqtt-client/tls", "false",
        "TLS with tcp:// too. The broker's certificate is always verified, for the host of broker-url."),
    STR_ROW("mqtt-client/tls-trust-store", NULL, "PEM file of the CA certificates that are trusted; null = the system's."),
    STR_ROW("mqtt-client/tls-key-store", NULL,
        "PEM file of our own certificate, its chain and its key, for a broker that asks for one."),
    SECRET_ROW("mqtt-client/tls-key-store-password", NULL, "Password of that key."),
    BOOL_ROW("mqtt-client/clean-session", "false",
        "true = the broker forgets subscriptions and owed messages at every disconnect; then a crash loses messages."),
    INT_ROW("mqtt-client/keep-alive-seconds", "60", 0, 65535, "s", "Longest silence on the connection; 0 = no limit."),
    INT_ROW("mqtt-client/connect-timeout-seconds", "10", 1, 3600, "s", "Until the broker must have accepted a connection."),
    INT_ROW("mqtt-client/session-expiry-seconds", "4294967295", 0, 4294967295, "s",
        "MQTT 5: how long the broker keeps the session of an absent gateway; 4294967295 = for ever."),
    INT_ROW("mqtt-client/receive-maximum", "0", 0, 65535, NULL,
        "MQTT 5: unacknowledged messages the broker may have under way; 0 = buffer.capacity + 2 * batch-size, at most 65535."),
    INT_ROW("mqtt-client/max-packet-bytes", "67108864", 1024, 268435460, "bytes",
        "Largest packet that is accepted from the broker; announced with MQTT 5, with version 3 a larger one ends the connection."),
    BOOL_ROW("mqtt-client/reconnect/enabled", "true", "Connect again when the connection is lost."),
    INT_ROW("mqtt-client/reconnect/initial-delay-ms", "1000", 1, HOUR_MS, "ms", "First pause; it doubles, with jitter."),
    INT_ROW("mqtt-client/reconnect/max-delay-ms", "30000", 1, HOUR_MS, "ms", "Longest pause."),

    BOOL_ROW("mqtt-router/enabled", "false", "Route messages to the consumers; needed by all of them."),
    INT_ROW("mqtt-router/max-inflight-messages-per-second", "5000", -1, BIG, "1/s",
        "Messages a second that live consumers (SSE) get; the rest is dropped for them and counted. Writer and latest value get all. 0 or -1 = no limit."),
    BOOL_ROW("mqtt-router/last-message-cache", "true", "Keep the latest message of each topic for GET /mqtt and new event streams."),
    INT_ROW("mqtt-router/last-message-cache-size", "1000", 1, 10000000, "topics", "Topics in it; the least recently used one is dropped."),
    LIST_ROW("mqtt-router/subscriptions", "[]", "topic*|qos",
        "Filters to subscribe to without a consumer, so that the cache has their values. qos defaults to 0."),
    STR_ROW("mqtt-router/state-file", NULL,
        "Where the filters subscribed in the broker's session are noted, so that those no longer wanted are unsubscribed after a restart; null = gateway-filters.state in the data folder."),

    BOOL_ROW("mqtt-connector/enabled", "true", "Connect to the broker once all consumers are registered."),

    BOOL_ROW("mqtt-sse/enabled", "false", "Event streams at /mqtt-sse."),
    STR_ROW("mqtt-sse/default-topic", "sensors/#", "Filter of a request without one; it must be granted like any other."),
    INT_ROW("mqtt-sse/default-qos", "1", 0, 2, NULL, "QoS of a request without one."),
    INT_ROW("mqtt-sse/per-connection-queue-capacity", "256", 1, 1000000, "messages", "Messages that wait for a slow reader."),
    ENUM_ROW("mqtt-sse/overflow", "drop-oldest", "drop-oldest|drop-newest", "Which message a full queue loses; it is counted."),
    BOOL_ROW("mqtt-sse/payload-envelope", "false", "Send a JSON object with topic, payload and more as event data, not the bare payload."),
    BOOL_ROW("mqtt-sse/last-message-cache", "true", "Send the latest messages of the matching topics when a stream begins."),
    INT_ROW("mqtt-sse/max-connections-per-topic", "0", 0, 10000000, NULL, "Streams with the same filter; 0 = no limit."),
    INT_ROW("mqtt-sse/max-connections", "1000", 0, 10000000, NULL, "Streams in all; 0 = no limit."),
    INT_ROW("mqtt-sse/keep-alive-ms", "20000", 0, DAY_MS, "ms", "A comment is sent after so long a silence; 0 = none."),
    INT_ROW("mqtt-sse/max-stream-seconds", "0", 0, BIG, "s", "A stream is ended after so long (the browser comes again); 0 = never."),
    BOOL_ROW("mqtt-sse/gap-events", "false", "Send an event mqtt-gap with the number of dropped messages before the next message."),
    RESERVED_ROW("mqtt-sse/pipeline", "[]|null", "pipeline stages are not available in this version"),

    BOOL_ROW("mqtt-rest/enabled", "false", "Latest values at /mqtt."),
    BOOL_ROW("mqtt-stats/enabled", "false", "Figures at /mqtt/stats."),
    BOOL_ROW("mqtt-metrics-collector/enabled", "true", "MQTT figures on the /metrics page."),
    BOOL_ROW("mqtt-status/enabled", "true", "Log at start what is active, what is not, and what looks wrong."),

    BOOL_ROW("mqtt-topic-authorizer/enabled", "true", "Check the requested filter against the acl of the user's roles."),
    MAP_ROW("mqtt-topic-authorizer/acl",
        "Role to list of filters. A request is allowed when one filter of one role contains the requested one; no entry = denied."),

    BOOL_ROW("mqtt-mongo-writer/enabled", "false", "Store every message of the sinks, acknowledging only what is stored."),
    ENUM_ROW("mqtt-mongo-writer/buffer/strategy", "blocking-queue", "blocking-queue|ring-buffer|drop-incoming",
        "When the buffer is full: the message waits | the oldest is dropped | it is dropped. Drops are counted and acknowledged."),
    INT_ROW("mqtt-mongo-writer/buffer/capacity", "10000", 1, 1000000, "messages", "Buffered messages per sink."),
    INT_ROW("mqtt-mongo-writer/buffer/max-wait-ms", "30000", 0, DAY_MS, "ms",
        "How long a message waits for room (blocking-queue) before it is dropped; 0 = without bound, then a long outage of the store also stops live streams."),
    INT_ROW("mqtt-mongo-writer/drain/batch-size", "200", 1, 100000, "messages", "Most messages of one write."),
    INT_ROW("mqtt-mongo-writer/drain/flush-interval-ms", "500", 1, HOUR_MS, "ms",
        "Upper bound of the wait before a write. An idle writer writes at once, so it is never waited out; kept for compatibility."),
    INT_ROW("mqtt-mongo-writer/drain/max-retries", "3", 0, 1000, NULL, "Retries of a document that the store refused for now."),
    INT_ROW("mqtt-mongo-writer/drain/retry-delay-ms", "1000", 1, HOUR_MS, "ms", "First pause between retries; it doubles up to 30 s."),
    INT_ROW("mqtt-mongo-writer/drain/shutdown-timeout-ms", "5000", 0, HOUR_MS, "ms",
        "Time to store what is buffered when the process is told to stop; the rest goes to the dead-letter file."),
    INT_ROW("mqtt-mongo-writer/drain/max-unacked-ms", "15000", 0, DAY_MS, "ms",
        "A message that could not be stored for so long goes to the dead-letter file and is acknowledged; 0 = only max-retries decide."),
    ENUM_ROW("mqtt-mongo-writer/id-strategy", "auto", "auto|payload-field",
        "auto: each delivery is a new document. payload-field: the identifier is read from the payload, a redelivery updates the document."),
    STR_ROW("mqtt-mongo-writer/id-field", "messageId", "Dotted path of the identifier in a JSON payload (payload-field)."),
    STR_ROW("mqtt-mongo-writer/dead-letter-file", "./mqtt-dead-letter.log", "What could not be stored, a JSON line each; relative to the working directory."),
    INT_ROW("mqtt-mongo-writer/dead-letter-max-bytes", "104857600", 4096, INT64_MAX, "bytes", "Then it is renamed to FILE.1; one such file is kept."),
    LIST_ROW("mqtt-mongo-writer/mongo-sink", "[]", "topic*|database*|collection*|qos", "What is stored where. qos defaults to 1."),

    RESERVED_ROW("https-listener/enabled", "false", "TLS is not available in this version; put a TLS proxy in front of http-listener"),
    RESERVED_ROW("https-listener/host", "*", ""),
    RESERVED_ROW("https-listener/port", "*", ""),
    RESERVED_ROW("https-listener/keystore-path", "*", ""),
    RESERVED_ROW("https-listener/keystore-password", "*", ""),
    RESERVED_ROW("mqtt-client/tls-trust-store-password", "null", "a PEM file of certificates has no password"),
    RESERVED_ROW("mqtt-client/will/topic", "null", "a will is not available in this version"),
    RESERVED_ROW("mqtt-client/will/payload", "*", ""),
    RESERVED_ROW("mqtt-client/will/qos", "*", ""),
    RESERVED_ROW("mqtt-client/will/retain", "*", ""),
    RESERVED_ROW("mqtt-client/will/delay-seconds", "*", ""),
    RESERVED_ROW("mqtt-client/will/message-expiry-seconds", "*", ""),
    RESERVED_ROW("mqtt-sse/secure", "true", "an endpoint without login is not available"),
    RESERVED_ROW("mqtt-rest/secure", "true", "an endpoint without login is not available"),
    RESERVED_ROW("mqtt-stats/secure", "true", "an endpoint without login is not available"),
    RESERVED_ROW("mqtt-sse/uri", "/mqtt-sse|null", "the path of an endpoint cannot be changed in this version"),
    RESERVED_ROW("mqtt-rest/uri", "/mqtt|null", "the path of an endpoint cannot be changed in this version"),
    RESERVED_ROW("mqtt-stats/uri", "/mqtt/stats|null", "the path of an endpoint cannot be changed in this version"),
};
/* clang-format on */

const size_t sl_gateway_row_count = sizeof sl_gateway_rows / sizeof sl_gateway_rows[0];
