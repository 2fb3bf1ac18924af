/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_lists: the structured parts of the configuration: subscriptions, sinks, users, permissions,
 * topic grants. Texts stay in the trees; the arrays point into them.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/logger.h"
#include "conf_int.h"
#include "filter.h"
#include "why.h"

#define PATH_BYTES 256

/* One list being read: where it is, for messages. */
typedef struct place {
    const char *file;
    const char *path;
    char **why;
} place;

static sl_err bad(const place *pl, const sl_yaml *node, size_t index, const char *key,
                  const char *want)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s[%zu]%s%s", pl->path, index + 1, key != NULL ? "/" : "",
             key != NULL ? key : "");
    return sl_conf_bad(pl->file, node, path, pl->why, want);
}

/* A required text of an item. */
static sl_err item_text(const place *pl, const sl_yaml *item, size_t index, const char *key,
                        const char **out)
{
    if (item->kind != SL_YAML_MAP)
        return bad(pl, item, index, NULL, "must be a map");
    const sl_yaml *node = sl_yaml_get(item, key);
    if (node == NULL || node->kind == SL_YAML_NULL)
        return bad(pl, item, index, key, "is missing");
    if (node->kind != SL_YAML_SCALAR || node->text[strspn(node->text, " \t")] == '\0')
        return bad(pl, node, index, key, "must be a text that is not blank");
    *out = node->text;
    return SL_OK;
}

static sl_err item_filter(const place *pl, const sl_yaml *item, size_t index, const char **out)
{
    sl_err err = item_text(pl, item, index, "topic", out);
    if (err != SL_OK)
        return err;
    const char *reason = "";
    if (sl_filter_check(sl_slice_str(*out), &reason) == SL_OK)
        return SL_OK;
    return bad(pl, sl_yaml_get(item, "topic"), index, "topic", reason);
}

static sl_err item_qos(const place *pl, const sl_yaml *item, size_t index, uint8_t def,
                       uint8_t *out)
{
    const sl_yaml *node = sl_yaml_get(item, "qos");
    int64_t value = def;
    if (node != NULL && node->kind != SL_YAML_NULL &&
        (node->kind != SL_YAML_SCALAR || !sl_conf_parse_int(node->text, &value) || value < 0 ||
         value > 2))
        return bad(pl, node, index, "qos", "must be 0, 1 or 2");
    *out = (uint8_t)value;
    return SL_OK;
}

static sl_err read_subscriptions(sl_gateway_conf *cf, const char *file, char **why)
{
    place pl = {file, "mqtt-router/subscriptions", why};
    const sl_yaml *list = sl_conf_list_node(cf, pl.path);
    cf->subscriptions = sl_calloc(list->count + 1, sizeof *cf->subscriptions);
    sl_err err = SL_OK;
    for (size_t i = 0; err == SL_OK && i < list->count; i++) {
        sl_conf_subscription *sub = &cf->subscriptions[i];
        err = item_filter(&pl, list->kid[i], i, &sub->topic);
        if (err == SL_OK)
            err = item_qos(&pl, list->kid[i], i, 0, &sub->qos);
        cf->subscription_count = i + 1;
    }
    return err;
}

static sl_err read_sinks(sl_gateway_conf *cf, const char *file, char **why)
{
    place pl = {file, "mqtt-mongo-writer/mongo-sink", why};
    const sl_yaml *list = sl_conf_list_node(cf, pl.path);
    cf->sinks = sl_calloc(list->count + 1, sizeof *cf->sinks);
    sl_err err = SL_OK;
    for (size_t i = 0; err == SL_OK && i < list->count; i++) {
        sl_conf_sink *sink = &cf->sinks[i];
        err = item_filter(&pl, list->kid[i], i, &sink->topic);
        if (err == SL_OK)
            err = item_text(&pl, list->kid[i], i, "database", &sink->database);
        if (err == SL_OK)
            err = item_text(&pl, list->kid[i], i, "collection", &sink->collection);
        if (err == SL_OK)
            err = item_qos(&pl, list->kid[i], i, 1, &sink->qos);
        cf->sink_count = i + 1;
    }
    return err;
}

/* A text or a list of texts. *out is an owned array of borrowed texts. */
static sl_err read_words(const place *pl, const sl_yaml *node, size_t index, const char *key,
                         const char *const **out, size_t *count)
{
    size_t most = node->kind == SL_YAML_LIST ? node->count : 1;
    const char **words = sl_calloc(most + 1, sizeof *words);
    sl_err err = SL_OK;
    for (size_t i = 0; err == SL_OK && i < most; i++) {
        const sl_yaml *word = node->kind == SL_YAML_LIST ? node->kid[i] : node;
        if (word->kind != SL_YAML_SCALAR || *word->text == '\0')
            err = bad(pl, word, index, key, "must be a text or a list of texts");
        else
            words[i] = word->text;
    }
    if (err != SL_OK) {
        sl_free(words);
        return err;
    }
    *out = (const char *const *)words;
    *count = most;
    return SL_OK;
}

/* The list that counts: of the conf-file when there is one, else of the main file. */
static sl_err list_or_file(sl_gateway_conf *cf, const char *block, const char *name,
                           sl_yaml **from_file, const sl_yaml **list, place *pl)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/conf-file", block);
    const char *file = sl_gateway_conf_str(cf, path);
    if (file == NULL) {
        *list = sl_conf_list_node(cf, pl->path);
        return SL_OK;
    }
    sl_err err = sl_yaml_parse_file(file, from_file, pl->why);
    if (err != SL_OK)
        return err;
    pl->file = file;
    pl->path = name;
    const sl_yaml *node =
        (*from_file)->kind == SL_YAML_MAP ? sl_yaml_get(*from_file, name) : *from_file;
    if (node == NULL || node->kind != SL_YAML_LIST)
        return sl_why(pl->why, SL_EINVAL, "%s: there must be a list \"%s\"", file, name);
    *list = node;
    return SL_OK;
}

static sl_err read_user(const place *pl, const sl_yaml *item, size_t index, sl_conf_user *user)
{
    sl_err err = item_text(pl, item, index, "userid", &user->userid);
    if (err != SL_OK)
        return err;
    const sl_yaml *password = sl_yaml_get(item, "password");
    if (password != NULL && password->kind == SL_YAML_SCALAR)
        user->password = password->text;
    else if (password != NULL && password->kind != SL_YAML_NULL)
        return bad(pl, password, index, "password", "must be a text or null");
    const sl_yaml *roles = sl_yaml_get(item, "roles");
    if (roles == NULL || roles->kind == SL_YAML_NULL)
        return SL_OK;
    return read_words(pl, roles, index, "roles", &user->roles, &user->role_count);
}

static sl_err read_users(sl_gateway_conf *cf, const char *file, char **why)
{
    place pl = {file, "fileRealmAuthenticator/users", why};
    const sl_yaml *list = NULL;
    sl_err err = list_or_file(cf, "fileRealmAuthenticator", "users", &cf->users_file, &list, &pl);
    if (err != SL_OK)
        return err;
    cf->users = sl_calloc(list->count + 1, sizeof *cf->users);
    for (size_t i = 0; err == SL_OK && i < list->count; i++) {
        cf->user_count = i + 1;
        err = read_user(&pl, list->kid[i], i, &cf->users[i]);
        for (size_t k = 0; err == SL_OK && k < i; k++) {
            if (strcmp(cf->users[k].userid, cf->users[i].userid) == 0)
                err = bad(&pl, list->kid[i], i, "userid", "is given twice");
        }
    }
    return err;
}

static sl_err read_permission(const place *pl, const sl_yaml *item, size_t index,
                              sl_conf_permission *out)
{
    sl_err err = item_text(pl, item, index, "predicate", &out->predicate);
    if (err != SL_OK)
        return err;
    const sl_yaml *role = sl_yaml_get(item, "role");
    const sl_yaml *roles = sl_yaml_get(item, "roles");
    if ((role == NULL) == (roles == NULL))
        return bad(pl, item, index, NULL, "must have exactly one of role and roles");
    out->priority = INT64_MAX;
    const sl_yaml *priority = sl_yaml_get(item, "priority");
    if (priority != NULL && priority->kind != SL_YAML_NULL &&
        (priority->kind != SL_YAML_SCALAR || !sl_conf_parse_int(priority->text, &out->priority)))
        return bad(pl, priority, index, "priority", "must be a whole number");
    return read_words(pl, role != NULL ? role : roles, index, role != NULL ? "role" : "roles",
                      &out->roles, &out->role_count);
}

static sl_err read_permissions(sl_gateway_conf *cf, const char *file, char **why)
{
    place pl = {file, "fileAclAuthorizer/permissions", why};
    const sl_yaml *list = NULL;
    sl_err err = list_or_file(cf, "fileAclAuthorizer", "permissions", &cf->acl_file, &list, &pl);
    if (err != SL_OK)
        return err;
    cf->permissions = sl_calloc(list->count + 1, sizeof *cf->permissions);
    for (size_t i = 0; err == SL_OK && i < list->count; i++) {
        cf->permission_count = i + 1;
        err = read_permission(&pl, list->kid[i], i, &cf->permissions[i]);
    }
    return err;
}

static sl_err read_grants(sl_gateway_conf *cf, const char *file, char **why)
{
    place pl = {file, "mqtt-topic-authorizer/acl", why};
    const sl_yaml *map = sl_conf_list_node(cf, pl.path);
    cf->grants = sl_calloc(map->count + 1, sizeof *cf->grants);
    sl_err err = SL_OK;
    for (size_t i = 0; err == SL_OK && i < map->count; i++) {
        sl_conf_grant *grant = &cf->grants[i];
        const sl_yaml *node = map->kid[i];
        grant->role = node->key;
        cf->grant_count = i + 1;
        if (node->kind == SL_YAML_NULL)
            continue; // a role without filters: nothing is granted
        err = read_words(&pl, node, i, node->key, &grant->filters, &grant->filter_count);
        for (size_t k = 0; err == SL_OK && k < grant->filter_count; k++) {
            const char *reason = "";
            if (sl_filter_check(sl_slice_str(grant->filters[k]), &reason) != SL_OK)
                err = sl_why(why, SL_EINVAL, "%s:%d: %s/%s: \"%s\" is not a topic filter: %s", file,
                             node->line, pl.path, node->key, grant->filters[k], reason);
        }
    }
    return err;
}

sl_err sl_conf_read_lists(sl_gateway_conf *cf, const char *file, char **why)
{
    sl_err err = read_subscriptions(cf, file, why);
    if (err == SL_OK)
        err = read_sinks(cf, file, why);
    if (err == SL_OK)
        err = read_users(cf, file, why);
    if (err == SL_OK)
        err = read_permissions(cf, file, why);
    if (err == SL_OK)
        err = read_grants(cf, file, why);
    return err;
}

void sl_conf_free_lists(sl_gateway_conf *cf)
{
    for (size_t i = 0; i < cf->user_count; i++)
        sl_free((void *)cf->users[i].roles);
    for (size_t i = 0; i < cf->permission_count; i++)
        sl_free((void *)cf->permissions[i].roles);
    for (size_t i = 0; i < cf->grant_count; i++)
        sl_free((void *)cf->grants[i].filters);
    sl_free(cf->users);
    sl_free(cf->permissions);
    sl_free(cf->grants);
    sl_free(cf->sinks);
    sl_free(cf->subscriptions);
    sl_yaml_free(&cf->users_file);
    sl_yaml_free(&cf->acl_file);
}

const sl_conf_subscription *sl_gateway_conf_subscriptions(const sl_gateway_conf *cf, size_t *count)
{
    *count = cf->subscription_count;
    return cf->subscriptions;
}

const sl_conf_sink *sl_gateway_conf_sinks(const sl_gateway_conf *cf, size_t *count)
{
    *count = cf->sink_count;
    return cf->sinks;
}

const sl_conf_user *sl_gateway_conf_users(const sl_gateway_conf *cf, size_t *count)
{
    *count = cf->user_count;
    return cf->users;
}

const sl_conf_permission *sl_gateway_conf_permissions(const sl_gateway_conf *cf, size_t *count)
{
    *count = cf->permission_count;
    return cf->permissions;
}

const sl_conf_grant *sl_gateway_conf_grants(const sl_gateway_conf *cf, size_t *count)
{
    *count = cf->grant_count;
    return cf->grants;
}
