/* SPDX-License-Identifier: Apache-2.0
 *
 * status: the traps that people fall into, looked for once at start.
 */
#include "status.h"

#include <stdio.h>
#include <string.h>

#include "base/logger.h"

#define ON(path) sl_gateway_conf_bool(cf, path)

void sl_active_of(const sl_gateway_conf *cf, sl_active *out)
{
    size_t sinks;
    sl_gateway_conf_sinks(cf, &sinks);
    *out = (sl_active){.http = ON("http-listener/enabled"), .client = ON("mqtt-client/enabled")};
    out->router = out->client && ON("mqtt-router/enabled");
    out->connector = out->router && ON("mqtt-connector/enabled");
    out->sse = out->router && out->http && ON("mqtt-sse/enabled");
    out->rest = out->router && out->http && ON("mqtt-rest/enabled");
    out->stats = out->router && out->http && ON("mqtt-stats/enabled");
    out->writer = out->router && ON("mqtt-mongo-writer/enabled") && sinks > 0;
}

static void warn(const char *key, const char *text)
{
    sl_warn(SL_C_GATEWAY, "MQTT-STATUS", SL_S("key", key), SL_S("warning", text));
}

/* A block is there, but not the switch that turns it on. */
static void warn_forgotten(const sl_gateway_conf *cf)
{
    static const char *const off_by_default[] = {"mqtt-client", "mqtt-router", "mqtt-sse",
                                                 "mqtt-rest",   "mqtt-stats",  "mqtt-mongo-writer"};
    char path[64];
    for (size_t i = 0; i < sizeof off_by_default / sizeof off_by_default[0]; i++) {
        snprintf(path, sizeof path, "%s/enabled", off_by_default[i]);
        if (sl_gateway_conf_has(cf, off_by_default[i]) && !sl_gateway_conf_has(cf, path))
            warn(path, "the block has no `enabled: true`, so it stays off");
    }
}

static void warn_version(const sl_gateway_conf *cf, const sl_active *act)
{
    static const char *const only5[] = {"mqtt-client/session-expiry-seconds",
                                        "mqtt-client/receive-maximum"};
    if (strcmp(sl_gateway_conf_str(cf, "mqtt-client/protocol-version"), "3") != 0)
        return;
    for (size_t i = 0; i < sizeof only5 / sizeof only5[0]; i++) {
        if (sl_gateway_conf_has(cf, only5[i]))
            warn(only5[i], "only works with protocol-version 5; this is 3");
    }
    if (act->writer)
        warn("mqtt-client/protocol-version",
             "with 3 the stored documents have no MQTT 5 properties");
}

static void warn_client(const sl_gateway_conf *cf)
{
    if (sl_gateway_conf_str(cf, "mqtt-client/client-id") == NULL &&
        strcmp(sl_gateway_conf_str(cf, "core/name"), "default") == 0)
        warn("core/name", "the stock name makes the client id restheart-default; a second gateway "
                          "with it at this broker would throw this one out again and again");
    if (ON("mqtt-client/clean-session"))
        warn("mqtt-client/clean-session",
             "true: what the broker owes is lost with each disconnect and crash");
}

static void warn_sinks(const sl_gateway_conf *cf, const sl_active *act)
{
    size_t count;
    const sl_conf_sink *sinks = sl_gateway_conf_sinks(cf, &count);
    if (ON("mqtt-mongo-writer/enabled") && count == 0)
        warn("mqtt-mongo-writer/mongo-sink", "the writer has no sink, so nothing is stored");
    for (size_t i = 0; act->writer && i < count; i++) {
        if (sinks[i].qos == 0)
            sl_warn(SL_C_GATEWAY, "MQTT-STATUS", SL_S("key", "mqtt-mongo-writer/mongo-sink"),
                    SL_S("topic", sinks[i].topic),
                    SL_S("warning", "qos 0 carries no guarantee: what is lost on the way or in a "
                                    "crash is lost"));
    }
    if (act->writer)
        sl_info(SL_C_GATEWAY, "MQTT-STATUS",
                SL_S("note", "a message published at QoS 0 carries no guarantee, whatever the sink "
                             "asks for"));
}

static bool acl_is_empty(const sl_gateway_conf *cf)
{
    size_t count;
    const sl_conf_grant *grants = sl_gateway_conf_grants(cf, &count);
    for (size_t i = 0; i < count; i++) {
        if (grants[i].filter_count > 0)
            return false;
    }
    return true;
}

static void warn_consumers(const sl_gateway_conf *cf, const sl_active *act)
{
    size_t primers;
    sl_gateway_conf_subscriptions(cf, &primers);
    if (act->client && !act->router)
        warn("mqtt-router/enabled", "mqtt-client is on and the router is off: nothing is routed");
    if (act->router && !act->connector)
        warn("mqtt-connector/enabled", "off: the gateway never connects to the broker");
    if (act->rest && !ON("mqtt-router/last-message-cache"))
        warn("mqtt-router/last-message-cache", "off: GET /mqtt answers 404 for ever");
    else if (act->rest && primers == 0 && !act->writer)
        warn("mqtt-router/subscriptions", "nothing primes the cache: GET /mqtt only knows topics "
                                          "that an open stream listens to");
    bool endpoint = act->sse || act->rest;
    if (endpoint && ON("mqtt-topic-authorizer/enabled") && acl_is_empty(cf))
        warn("mqtt-topic-authorizer/acl", "empty: every topic is denied to everybody");
    if (endpoint && !ON("mqtt-topic-authorizer/enabled"))
        warn("mqtt-topic-authorizer/enabled",
             "off: whoever may request the path may read every topic");
    if (ON("mqtt-mongo-writer/enabled") && !act->router)
        warn("mqtt-mongo-writer/enabled", "the writer needs mqtt-client and mqtt-router");
}

static void add_word(char *list, size_t size, const char *name)
{
    size_t len = strlen(list);
    snprintf(list + len, size - len, "%s%s", len > 0 ? "," : "", name);
}

void sl_status_log(const sl_gateway_conf *cf)
{
    if (!ON("mqtt-status/enabled"))
        return;
    sl_active act;
    sl_active_of(cf, &act);
    const struct {
        const char *name;
        bool active;
    } plugins[] = {
        {"mqtt-client", act.client},
        {"mqtt-router", act.router},
        {"mqtt-connector", act.connector},
        {"mqtt-sse", act.sse},
        {"mqtt-rest", act.rest},
        {"mqtt-stats", act.stats},
        {"mqtt-topic-authorizer", ON("mqtt-topic-authorizer/enabled")},
        {"mqtt-mongo-writer", act.writer},
        {"mqtt-metrics-collector", ON("mqtt-metrics-collector/enabled")},
    };
    char active[256] = "", inactive[256] = "";
    for (size_t i = 0; i < sizeof plugins / sizeof plugins[0]; i++)
        add_word(plugins[i].active ? active : inactive, sizeof active, plugins[i].name);
    sl_info(SL_C_GATEWAY, "MQTT-STATUS", SL_S("active", active), SL_S("inactive", inactive));
    warn_forgotten(cf);
    if (act.client) {
        warn_client(cf);
        warn_version(cf, &act);
        warn_sinks(cf, &act);
    }
    warn_consumers(cf, &act);
}
