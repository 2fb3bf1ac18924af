/* SPDX-License-Identifier: Apache-2.0
 *
 * gateway_conf: the gateway's configuration in RESTHeart's form: one YAML file whose top-level keys
 * are plugin names, overrides from a file and from the variable RHO, one table of keys that parses,
 * checks, prints and documents them. An unknown key is a warning that names the nearest known one;
 * a bad value is an error that names file, line and key.
 * Paths are written "mqtt-client/reconnect/enabled". A loaded sl_gateway_conf is read-only: any
 * thread may read it.
 */
#ifndef SL_GATEWAY_CONF_H
#define SL_GATEWAY_CONF_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

typedef enum sl_gateway_type {
    SL_GT_BOOL,
    SL_GT_INT,
    SL_GT_STRING,
    SL_GT_ENUM,    /* one of words, "a|b" */
    SL_GT_LIST,    /* of maps; words names the keys of an item, a '*' marks required ones */
    SL_GT_MAP,     /* free keys */
    SL_GT_RESERVED /* a key of RESTHeart's that is not built: only the values in words ("a|b", null
                      counts as "null") are accepted, anything else is a startup error; words "*":
                      accepted and ignored */
} sl_gateway_type;

typedef struct sl_gateway_row {
    const char *path;
    sl_gateway_type type;
    const char *def; /* as text; NULL: null */
    int64_t min, max;
    const char *words;
    const char *unit;
    bool secret;
    const char *help;
} sl_gateway_row;

extern const sl_gateway_row sl_gateway_rows[];
extern const size_t sl_gateway_row_count;

typedef struct sl_conf_subscription {
    const char *topic;
    uint8_t qos;
} sl_conf_subscription;

typedef struct sl_conf_sink {
    const char *topic;
    const char *database;
    const char *collection;
    uint8_t qos;
} sl_conf_sink;

typedef struct sl_conf_user {
    const char *userid;
    const char *password; /* NULL: the user is disabled */
    const char *const *roles;
    size_t role_count;
} sl_conf_user;

typedef struct sl_conf_permission {
    const char *const *roles;
    size_t role_count;
    const char *predicate;
    int64_t priority; /* INT64_MAX: none given, comes last */
} sl_conf_permission;

typedef struct sl_conf_grant {
    const char *role;
    const char *const *filters;
    size_t filter_count;
} sl_conf_grant;

typedef struct sl_gateway_conf sl_gateway_conf;

typedef struct sl_gateway_conf_sources {
    const char *file;     /* NULL: defaults only */
    const char *rho_file; /* NULL: none */
    const char *rho;      /* text of RHO, NULL: none */
} sl_gateway_conf_sources;

/**
 * Reads, overrides, checks. Warnings go to the log.
 * Errors  SL_EINVAL, SL_EIO ...; *why is an owned message (sl_free) that names what is wrong.
 * @thread init, and again at SIGHUP
 */
SL_MUST_USE sl_err sl_gateway_conf_load(const sl_gateway_conf_sources *sources,
                                        sl_gateway_conf **out, char **why);
void sl_gateway_conf_free(sl_gateway_conf **cf);

/* Values by path; a path that is not in the table is an assertion. */
bool sl_gateway_conf_bool(const sl_gateway_conf *cf, const char *path);
int64_t sl_gateway_conf_int(const sl_gateway_conf *cf, const char *path);
/** NULL for null. */
const char *sl_gateway_conf_str(const sl_gateway_conf *cf, const char *path);
/** True when the path (a key, or a whole block) is written in the file or an override. */
bool sl_gateway_conf_has(const sl_gateway_conf *cf, const char *path);

/* The lists; borrowed from cf. */
const sl_conf_subscription *sl_gateway_conf_subscriptions(const sl_gateway_conf *cf, size_t *count);
const sl_conf_sink *sl_gateway_conf_sinks(const sl_gateway_conf *cf, size_t *count);
const sl_conf_user *sl_gateway_conf_users(const sl_gateway_conf *cf, size_t *count);
const sl_conf_permission *sl_gateway_conf_permissions(const sl_gateway_conf *cf, size_t *count);
const sl_conf_grant *sl_gateway_conf_grants(const sl_gateway_conf *cf, size_t *count);

/** The effective configuration as YAML, secrets masked. */
SL_MUST_USE sl_err sl_gateway_conf_print(const sl_gateway_conf *cf, sl_buf *out);
/** etc/gateway.yml: every key with its help and default. */
SL_MUST_USE sl_err sl_gateway_conf_write_template(sl_buf *out);
/** docs/configuration-gateway.md. */
SL_MUST_USE sl_err sl_gateway_conf_write_reference(sl_buf *out);

#endif
