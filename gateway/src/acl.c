/* SPDX-License-Identifier: Apache-2.0
 *
 * acl: grants by role, replaced as a whole; checking requests.
 */
#include "acl.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "filter.h"
#include "mqtt/topic.h"

#define SHOWN_TOPIC_BYTES 256 /* of a refused filter in an error body */

typedef struct grant {
    char *role;     /* owned */
    char **filters; /* owned */
    size_t count;
} grant;

struct sl_acl {
    _Atomic bool enabled;
    pthread_mutex_t lock; /* guards grants and count; nothing else is locked while it is held */
    grant *grants;        /* owned */
    size_t count;
    _Atomic uint64_t version;
    _Atomic uint64_t denied;
};

sl_acl *sl_acl_new(void)
{
    sl_acl *acl = sl_calloc(1, sizeof *acl);
    atomic_init(&acl->enabled, true);
    pthread_mutex_init(&acl->lock, NULL);
    atomic_init(&acl->version, 1);
    return acl;
}

static void free_grants(grant *grants, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < grants[i].count; k++)
            sl_free(grants[i].filters[k]);
        sl_free(grants[i].filters);
        sl_free(grants[i].role);
    }
    sl_free(grants);
}

void sl_acl_free(sl_acl **acl)
{
    sl_acl *own = *acl;
    *acl = NULL;
    if (own == NULL)
        return;
    free_grants(own->grants, own->count);
    pthread_mutex_destroy(&own->lock);
    sl_free(own);
}

void sl_acl_load(sl_acl *acl, bool enabled, const sl_conf_grant *grants, size_t count)
{
    grant *made = sl_calloc(count + 1, sizeof *made);
    for (size_t i = 0; i < count; i++) {
        made[i].role = sl_strdup(grants[i].role);
        made[i].count = grants[i].filter_count;
        made[i].filters = sl_calloc(grants[i].filter_count + 1, sizeof *made[i].filters);
        for (size_t k = 0; k < grants[i].filter_count; k++)
            made[i].filters[k] = sl_strdup(grants[i].filters[k]);
    }
    pthread_mutex_lock(&acl->lock);
    grant *old = acl->grants;
    size_t old_count = acl->count;
    acl->grants = made;
    acl->count = count;
    atomic_store_explicit(&acl->enabled, enabled, memory_order_release);
    pthread_mutex_unlock(&acl->lock);
    atomic_fetch_add_explicit(&acl->version, 1, memory_order_release);
    free_grants(old, old_count);
}

static bool grant_covers(const grant *gr, sl_slice filter)
{
    for (size_t i = 0; i < gr->count; i++) {
        if (sl_mqtt_filter_covers(sl_slice_str(gr->filters[i]), filter))
            return true;
    }
    return false;
}

/* One role; the lock is held. */
static bool role_allows(const sl_acl *acl, const char *role, sl_slice filter)
{
    for (size_t i = 0; i < acl->count; i++) {
        if (strcmp(acl->grants[i].role, role) == 0 && grant_covers(&acl->grants[i], filter))
            return true;
    }
    return false;
}

bool sl_acl_allows(sl_acl *acl, const char *const *roles, size_t role_count, sl_slice filter)
{
    if (!atomic_load_explicit(&acl->enabled, memory_order_acquire))
        return true;
    bool allowed = false;
    pthread_mutex_lock(&acl->lock);
    for (size_t i = 0; !allowed && i < role_count; i++)
        allowed = role_allows(acl, roles[i], filter);
    pthread_mutex_unlock(&acl->lock);
    return allowed;
}

bool sl_acl_allows_req(sl_acl *acl, const sl_http_req *req, sl_slice filter)
{
    if (!atomic_load_explicit(&acl->enabled, memory_order_acquire))
        return true;
    bool allowed = false;
    size_t count = sl_http_req_role_count(req);
    pthread_mutex_lock(&acl->lock);
    for (size_t i = 0; !allowed && i < count; i++)
        allowed = role_allows(acl, sl_http_req_role(req, i), filter);
    pthread_mutex_unlock(&acl->lock);
    return allowed;
}

uint64_t sl_acl_version(const sl_acl *acl)
{
    return atomic_load_explicit(&acl->version, memory_order_acquire);
}

uint64_t sl_acl_denied(const sl_acl *acl)
{
    return atomic_load_explicit(&acl->denied, memory_order_relaxed);
}

void sl_acl_error(sl_http_resp *resp, int status, bool with_error, const char *text)
{
    sl_buf body;
    sl_buf_init(&body, 8192);
    sl_err err = sl_buf_append_str(&body, "{\"msg\":");
    if (err == SL_OK)
        err = sl_json_write_string(&body, sl_slice_str(text));
    if (err == SL_OK && with_error)
        err = sl_buf_append_str(&body, ",\"error\":");
    if (err == SL_OK && with_error)
        err = sl_json_write_string(&body, sl_slice_str(text));
    if (err == SL_OK)
        err = sl_buf_append_u8(&body, '}');
    if (err == SL_OK)
        sl_http_resp_set(resp, status, "application/json", sl_buf_peek(&body));
    else
        sl_http_resp_set_status(resp, status);
    sl_buf_fini(&body);
}

/* What of a filter is shown in an answer: cut at a character border. */
static int shown_bytes(const char *filter)
{
    size_t len = strlen(filter);
    if (len <= SHOWN_TOPIC_BYTES)
        return (int)len;
    len = SHOWN_TOPIC_BYTES;
    while (len > 0 && ((unsigned char)filter[len] & 0xC0) == 0x80)
        len--;
    return (int)len;
}

sl_err sl_acl_take_topic(sl_acl *acl, const sl_http_req *req, const char *def, bool with_error,
                         sl_http_resp *resp, const char **filter)
{
    char text[SHOWN_TOPIC_BYTES + 160];
    unsigned given = 0;
    const char *asked = sl_http_query_get(req, "topic", &given);
    if (given > 1) {
        sl_acl_error(resp, 400, with_error, "The parameter topic is given more than once");
        return SL_EINVAL;
    }
    if (asked == NULL)
        asked = def;
    if (asked == NULL) {
        sl_acl_error(resp, 400, with_error, "The parameter topic is missing");
        return SL_EINVAL;
    }
    const char *why = "";
    if (sl_filter_check(sl_slice_str(asked), &why) != SL_OK) {
        snprintf(text, sizeof text, "Invalid topic filter: %s", why);
        sl_acl_error(resp, 400, with_error, text);
        return SL_EINVAL;
    }
    if (!sl_acl_allows_req(acl, req, sl_slice_str(asked))) {
        atomic_fetch_add_explicit(&acl->denied, 1, memory_order_relaxed);
        snprintf(text, sizeof text, "Not authorized for topic: %.*s", shown_bytes(asked), asked);
        sl_acl_error(resp, 403, with_error, text);
        return SL_EDENIED;
    }
    *filter = asked;
    return SL_OK;
}
