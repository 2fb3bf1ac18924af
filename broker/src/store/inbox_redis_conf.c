/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox_redis_conf: see inbox_redis_conf.h.
 */
#include "store/inbox_redis_conf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "store/inbox_redis.h"

#define MAX_ADDRESSES 256

static sl_err refuse(char **why, const char *text, ...) __attribute__((format(printf, 2, 3)));
static sl_err refuse(char **why, const char *text, ...)
{
    char line[512];
    va_list args;
    va_start(args, text);
    vsnprintf(line, sizeof(line), text, args);
    va_end(args);
    *why = sl_strdup(line);
    return SL_EINVAL;
}

static void add_address(sl_inbox_redis_options *ro, const char *host, size_t len, uint16_t port)
{
    ro->seeds = sl_realloc(ro->seeds, (ro->seed_count + 1) * sizeof(*ro->seeds));
    ro->seeds[ro->seed_count++] = (sl_redis_address){.host = sl_strndup(host, len), .port = port};
}

/* "host:port,[::1]:port": false when one of them is not understood. */
static bool parse_addresses(sl_inbox_redis_options *ro, const char *list)
{
    while (*list != '\0') {
        list += strspn(list, ", ");
        size_t len = strcspn(list, ", ");
        if (len == 0)
            break;
        const char *colon = memrchr(list, ':', len);
        char *end = NULL;
        unsigned long port = colon != NULL ? strtoul(colon + 1, &end, 10) : 0;
        if (colon == NULL || colon == list || end != list + len || port == 0 || port > 65535 ||
            ro->seed_count == MAX_ADDRESSES)
            return false;
        size_t host_len = (size_t)(colon - list);
        bool is_bracketed = list[0] == '[' && host_len > 2 && list[host_len - 1] == ']';
        add_address(ro, list + is_bracketed, host_len - (is_bracketed ? 2 : 0), (uint16_t)port);
        list += len;
    }
    return ro->seed_count > 0;
}

static sl_err load_addresses(const sl_conf *cf, sl_inbox_redis_options *ro, char **why)
{
    const char *type = sl_conf_str(cf, "redis.connection.type");
    if (strcmp(type, "standalone") == 0) {
        const char *host = sl_conf_str(cf, "redis.standalone.host");
        ro->mode = SL_REDIS_STANDALONE;
        add_address(ro, host, strlen(host), (uint16_t)sl_conf_int(cf, "redis.standalone.port"));
        return host[0] != '\0' ? SL_OK : refuse(why, "redis.standalone.host is empty");
    }
    bool is_cluster = strcmp(type, "cluster") == 0;
    const char *list =
        sl_conf_str(cf, is_cluster ? "redis.cluster.nodes" : "redis.sentinel.sentinels");
    ro->mode = is_cluster ? SL_REDIS_CLUSTER : SL_REDIS_SENTINEL;
    if (!parse_addresses(ro, list))
        return refuse(why,
                      is_cluster ? "redis.cluster.nodes (REDIS_NODES) wants host:port,host:port, "
                                   "not '%s'"
                                 : "redis.sentinel.sentinels (REDIS_SENTINELS) wants "
                                   "host:port,host:port, not '%s'",
                      list);
    if (is_cluster && ro->database != 0)
        return refuse(why, "redis.db (REDIS_DB) must be 0: a cluster has no other database");
    if (!is_cluster && ro->master[0] == '\0')
        return refuse(why, "redis.sentinel.master (REDIS_MASTER) is empty");
    return SL_OK;
}

static sl_err load_tls(const sl_conf *cf, sl_inbox_redis_options *ro, char **why)
{
    const sl_tls_settings settings = {.role = SL_TLS_CLIENT,
                                      .ca_file = sl_conf_str(cf, "redis.ssl.cert-file"),
                                      .cert_file = sl_conf_str(cf, "redis.ssl.user-cert-file"),
                                      .key_file = sl_conf_str(cf, "redis.ssl.user-key-file")};
    bool is_on = sl_conf_bool(cf, "redis.ssl.enabled");
    if (!is_on && settings.ca_file[0] == '\0' && settings.cert_file[0] == '\0')
        return SL_OK;
    if (!is_on) // who names certificates does not expect plain text
        return refuse(why, "redis.ssl.cert-file or redis.ssl.user-cert-file is given, but "
                           "redis.ssl.enabled (REDIS_SSL_ENABLED) is false");
    char *reason = NULL;
    sl_err err = sl_tls_ctx_new(&settings, &ro->tls, &reason);
    if (err != SL_OK)
        (void)refuse(why, "redis.ssl (REDIS_SSL_ENABLED): %s", reason);
    sl_free(reason);
    return err;
}

sl_err sl_inbox_redis_load(const sl_conf *cf, sl_inbox_redis_options **out,
                           const sl_inbox_ops **ops, char **why)
{
    sl_inbox_redis_options *ro = sl_calloc(1, sizeof(*ro));
    *ro =
        (sl_inbox_redis_options){.master = sl_conf_str(cf, "redis.sentinel.master"),
                                 .username = sl_conf_str(cf, "redis.username"),
                                 .password = sl_conf_str(cf, "redis.password"),
                                 .sentinel_password = sl_conf_str(cf, "redis.sentinel.password"),
                                 .prefix = sl_conf_str(cf, "cache.cache-prefix"),
                                 .name = "sluice-inbox",
                                 .database = (unsigned)sl_conf_int(cf, "redis.db"),
                                 .connect_timeout = sl_conf_int(cf, "redis.connect-timeout"),
                                 .reply_timeout = sl_conf_int(cf, "redis.command-timeout") * 1000};
    sl_err err = load_addresses(cf, ro, why);
    if (err == SL_OK)
        err = load_tls(cf, ro, why);
    if (err == SL_OK && strpbrk(ro->prefix, "{}") != NULL)
        err =
            refuse(why,
                   "cache.cache-prefix (CACHE_PREFIX) must not have braces, but is '%s': they mark "
                   "the part of a key that chooses the cluster's slot",
                   ro->prefix);
    if (err == SL_OK && ro->username[0] != '\0' && ro->password[0] == '\0')
        err = refuse(why, "redis.username (REDIS_USERNAME) is '%s', but there is no redis.password",
                     ro->username);
    if (err != SL_OK) {
        sl_inbox_redis_options_free(&ro);
        return err;
    }
    *out = ro;
    *ops = &sl_inbox_redis_ops;
    return SL_OK;
}

void sl_inbox_redis_options_free(sl_inbox_redis_options **pointer)
{
    sl_inbox_redis_options *ro = *pointer;
    if (ro == NULL)
        return;
    *pointer = NULL;
    for (size_t i = 0; i < ro->seed_count; i++)
        sl_free(ro->seeds[i].host);
    sl_free(ro->seeds);
    sl_tls_ctx_unref(&ro->tls);
    sl_free(ro);
}
