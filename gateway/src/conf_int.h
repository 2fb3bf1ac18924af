/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_int: what the files of gateway_conf share: gateway_conf.c (loading), conf_lists.c (lists),
 * conf_broker.c (the broker's address and TLS),
 * conf_print.c (printing). Not for others, except what tells where the broker is.
 */
#ifndef SL_GATEWAY_CONF_INT_H
#define SL_GATEWAY_CONF_INT_H

#include "base/yaml.h"
#include "gateway_conf.h"
#include "net/tls.h"

typedef struct sl_conf_value {
    int64_t num;   /* BOOL, INT */
    char *text;    /* owned; STRING, ENUM; NULL = null */
    sl_yaml *list; /* owned; LIST, MAP: the parsed default */
} sl_conf_value;

struct sl_gateway_conf {
    char *file;            /* owned, or NULL */
    sl_yaml *tree;         /* owned; file and overrides */
    sl_conf_value *values; /* one per row */
    sl_yaml *users_file;   /* owned; conf-file of the users, or NULL */
    sl_yaml *acl_file;     /* owned; conf-file of the permissions, or NULL */
    sl_conf_subscription *subscriptions;
    size_t subscription_count;
    sl_conf_sink *sinks;
    size_t sink_count;
    sl_conf_user *users;
    size_t user_count;
    sl_conf_permission *permissions;
    size_t permission_count;
    sl_conf_grant *grants;
    size_t grant_count;
};

/** Node at "a/b/c", or NULL. */
const sl_yaml *sl_conf_node(const sl_yaml *root, const char *path);
/** The list or map of a row as it is in force. */
const sl_yaml *sl_conf_list_node(const sl_gateway_conf *cf, const char *path);
/** Whole number; '_' between digits allowed. */
bool sl_conf_parse_int(const char *text, int64_t *out);
/** SL_EINVAL with "file:line: path: want, not ..." in *why. */
SL_MUST_USE sl_err sl_conf_bad(const char *file, const sl_yaml *node, const char *path, char **why,
                               const char *want);
/** Reads all lists of the configuration. */
SL_MUST_USE sl_err sl_conf_read_lists(sl_gateway_conf *cf, const char *file, char **why);
void sl_conf_free_lists(sl_gateway_conf *cf);

typedef struct sl_conf_broker {
    char *host; /* owned by the caller */
    uint16_t port;
    bool is_tls;
} sl_conf_broker;

/** "tcp://host:port", "ssl://host:port", "mqtts://host:port"; tls: TLS with tcp:// too. The port is
 * 1883, with TLS 8883, when the URL has none. SL_EINVAL. @thread any */
SL_MUST_USE sl_err sl_conf_parse_broker_url(const char *url, bool tls, sl_conf_broker *out);
/** The same of the configuration, where it was checked at load. */
SL_MUST_USE sl_err sl_conf_broker_of(const sl_gateway_conf *cf, sl_conf_broker *out);
/** What TLS to the broker needs, from the files that the configuration names. Blocks. *why: owned.
 */
SL_MUST_USE sl_err sl_conf_broker_tls(const sl_gateway_conf *cf, sl_tls_ctx **out, char **why);
/** URL and files. SL_EINVAL ... with *why. */
SL_MUST_USE sl_err sl_conf_check_broker(const sl_gateway_conf *cf, const char *file, char **why);

#endif
