/* SPDX-License-Identifier: Apache-2.0
 *
 * auth_table: users and permissions as one frozen table that is replaced as a whole.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "http/auth_int.h"

static char **copy_list(const char *const *list, size_t count)
{
    char **copy = sl_calloc(count + 1, sizeof(char *));
    for (size_t i = 0; i < count; i++)
        copy[i] = sl_strdup(list[i]);
    return copy;
}

static void free_list(char **list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        sl_free(list[i]);
    sl_free(list);
}

static uint64_t mix(uint64_t seed, const char *text)
{
    // the seed goes in as text, so that order and borders count
    char head[24];
    (void)snprintf(head, sizeof(head), "%016llx|", (unsigned long long)seed);
    sl_buf buf;
    sl_buf_init(&buf, 1u << 20);
    sl_err err = sl_buf_append_str(&buf, head);
    if (err == SL_OK && text != NULL)
        err = sl_buf_append_str(&buf, text);
    SL_ASSERT(err == SL_OK);
    uint64_t hash = sl_slice_hash(sl_buf_peek(&buf));
    sl_buf_fini(&buf);
    return hash;
}

static char *say(const char *what, size_t index, const char *name, const char *detail)
{
    char text[512];
    (void)snprintf(text, sizeof(text), "%s %zu%s%.64s%s: %.320s", what, index + 1,
                   name == NULL ? "" : " (", name == NULL ? "" : name, name == NULL ? "" : ")",
                   detail);
    return sl_strdup(text);
}

static sl_err add_user(auth_table *tb, size_t index, const sl_auth_user *from, char **why)
{
    const char *wrong = NULL;
    if (from->userid == NULL || from->userid[0] == '\0')
        wrong = "userid is missing";
    else if (strchr(from->userid, ':') != NULL)
        wrong = "a userid cannot hold ':' (Basic ends it there)";
    else if (strlen(from->userid) > AUTH_MAX_SECRET)
        wrong = "userid is too long";
    else if (from->password != NULL && strlen(from->password) > AUTH_MAX_SECRET)
        wrong = "password is too long";
    else if (from->password != NULL && sl_auth_password_check(from->password) != SL_OK)
        wrong = "password is not pbkdf2$sha256$iterations$salt$hash (iterations from 1000 on, "
                "salt and hash in base64)";
    else if (sl_map_get(tb->by_id, sl_slice_str(from->userid)) != NULL)
        wrong = "userid is used twice";
    if (wrong != NULL) {
        *why = say("user", index, from->userid, wrong);
        return SL_EINVAL;
    }
    auth_user *us = &tb->users[tb->user_count++];
    us->userid = sl_strdup(from->userid);
    us->password = from->password == NULL ? NULL : sl_strdup(from->password);
    us->roles = copy_list(from->roles, from->role_count);
    us->role_count = from->role_count;
    us->hashed = from->password != NULL && strncmp(from->password, "pbkdf2$", 7) == 0;
    if (us->hashed)
        tb->decoy = us->password;
    us->version = mix(mix(1, us->userid), us->password);
    for (size_t i = 0; i < us->role_count; i++)
        us->version = mix(us->version, us->roles[i]);
    us->version |= 1;
    return sl_map_put(tb->by_id, sl_slice_str(us->userid), us, NULL);
}

static sl_err add_permission(auth_table *tb, size_t index, const sl_auth_permission *from,
                             char **why)
{
    if (from->role_count == 0 || from->predicate == NULL) {
        *why = say("permission", index, NULL,
                   from->predicate == NULL ? "predicate is missing" : "role is missing");
        return SL_EINVAL;
    }
    auth_permission *pm = &tb->perms[tb->perm_count];
    char *wrong = NULL;
    sl_err err = sl_predicate_parse(sl_slice_str(from->predicate), &pm->predicate, &wrong);
    if (err != SL_OK) {
        *why = say("permission", index, from->roles[0], wrong);
        sl_free(wrong);
        return err;
    }
    pm->roles = copy_list(from->roles, from->role_count);
    pm->role_count = from->role_count;
    pm->priority = from->priority;
    pm->order = tb->perm_count++;
    char priority[16];
    (void)snprintf(priority, sizeof(priority), "%d", (int)from->priority);
    tb->acl_version = mix(mix(tb->acl_version, from->predicate), priority);
    for (size_t i = 0; i < pm->role_count; i++)
        tb->acl_version = mix(tb->acl_version, pm->roles[i]);
    return SL_OK;
}

static int by_priority(const void *left, const void *right)
{
    const auth_permission *lp = left;
    const auth_permission *rp = right;
    if (lp->priority != rp->priority)
        return lp->priority < rp->priority ? -1 : 1;
    return lp->order < rp->order ? -1 : 1;
}

sl_err auth_table_new(const sl_auth_user *users, size_t user_count,
                      const sl_auth_permission *permissions, size_t permission_count,
                      auth_table **out, char **why)
{
    auth_table *tb = sl_calloc(1, sizeof(*tb));
    atomic_init(&tb->refs, 1);
    tb->users = sl_calloc(user_count + 1, sizeof(auth_user));
    tb->perms = sl_calloc(permission_count + 1, sizeof(auth_permission));
    tb->by_id = sl_map_new(0); // as many as the configuration has
    sl_err err = SL_OK;
    for (size_t i = 0; i < user_count && err == SL_OK; i++)
        err = add_user(tb, i, &users[i], why);
    for (size_t i = 0; i < permission_count && err == SL_OK; i++)
        err = add_permission(tb, i, &permissions[i], why);
    if (err != SL_OK) {
        auth_table_unref(&tb);
        return err;
    }
    qsort(tb->perms, tb->perm_count, sizeof(auth_permission), by_priority);
    *out = tb;
    return SL_OK;
}

auth_table *auth_table_ref(auth_table *tb)
{
    atomic_fetch_add_explicit(&tb->refs, 1, memory_order_relaxed);
    return tb;
}

void auth_table_unref(auth_table **tbp)
{
    auth_table *tb = *tbp;
    if (tb == NULL)
        return;
    *tbp = NULL;
    if (atomic_fetch_sub_explicit(&tb->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (size_t i = 0; i < tb->user_count; i++) {
        sl_free(tb->users[i].userid);
        sl_free(tb->users[i].password);
        free_list(tb->users[i].roles, tb->users[i].role_count);
    }
    for (size_t i = 0; i < tb->perm_count; i++) {
        free_list(tb->perms[i].roles, tb->perms[i].role_count);
        sl_predicate_free(&tb->perms[i].predicate);
    }
    sl_map_free(&tb->by_id);
    sl_free(tb->users);
    sl_free(tb->perms);
    sl_free(tb);
}

const auth_user *auth_table_find(const auth_table *tb, sl_slice userid)
{
    const auth_user *us = sl_map_get(tb->by_id, userid);
    return us == NULL || us->password == NULL ? NULL : us;
}

static bool concerns(const auth_permission *pm, const sl_http_req *req)
{
    bool anonymous = sl_http_req_user(req) == NULL;
    for (size_t i = 0; i < pm->role_count; i++) {
        if (anonymous ? strcmp(pm->roles[i], SL_AUTH_UNAUTHENTICATED) == 0
                      : sl_http_req_has_role(req, pm->roles[i]))
            return true;
    }
    return false;
}

bool auth_table_allows(const auth_table *tb, const sl_http_req *req)
{
    for (size_t i = 0; i < tb->perm_count; i++)
        if (concerns(&tb->perms[i], req) && sl_predicate_match(tb->perms[i].predicate, req))
            return true;
    return false;
}
