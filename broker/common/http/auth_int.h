/* SPDX-License-Identifier: Apache-2.0
 *
 * auth_int: what auth.c, auth_table.c, auth_token.c, auth_guard.c and auth_routes.c share.
 * Everything here is guarded by the lock of sl_auth unless it says otherwise.
 */
#ifndef SL_HTTP_AUTH_INT_H
#define SL_HTTP_AUTH_INT_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "base/map.h"
#include "http/auth.h"
#include "http/predicate.h"

#define AUTH_MAGIC       0x41555448u
#define AUTH_COOKIE      "rh_auth"
#define AUTH_DIGEST      32   /* bytes of a keyed hash */
#define AUTH_TOKEN_BYTES 44   /* text of a token with its NUL */
#define AUTH_MAX_SECRET  1024 /* bytes of a user id or a password that are looked at */

/* ---- users and permissions: a frozen, counted table (auth_table.c) ---- */

typedef struct auth_user {
    char *userid;   /* owned */
    char *password; /* owned; NULL: disabled */
    char **roles;   /* owned */
    size_t role_count;
    uint64_t version; /* of password and roles; never 0 */
    bool hashed;      /* password is in pbkdf2 form */
} auth_user;

typedef struct auth_permission {
    char **roles; /* owned */
    size_t role_count;
    sl_predicate *predicate; /* owned */
    int32_t priority;
    size_t order; /* in the configuration, for a stable sort */
} auth_permission;

typedef struct auth_table {
    _Atomic uint32_t refs;
    auth_user *users; /* owned */
    size_t user_count;
    sl_map *by_id;          /* userid -> auth_user */
    auth_permission *perms; /* owned; by priority */
    size_t perm_count;
    uint64_t acl_version;
    const char
        *decoy; /* borrowed: some stored hash, to spend the same time on unknown users; or NULL */
} auth_table;

SL_MUST_USE sl_err auth_table_new(const sl_auth_user *users, size_t user_count,
                                  const sl_auth_permission *permissions, size_t permission_count,
                                  auth_table **out, char **why);
/* Both: @thread any, no lock */
auth_table *auth_table_ref(auth_table *tb);
void auth_table_unref(auth_table **tb);
/** An enabled user, or NULL. No lock (frozen). */
const auth_user *auth_table_find(const auth_table *tb, sl_slice userid);
/** May one of the request's roles (NULL user: $unauthenticated) do this? No lock (frozen). */
bool auth_table_allows(const auth_table *tb, const sl_http_req *req);

/* ---- tokens (auth_token.c) ---- */

typedef struct auth_token {
    sl_node in_age; /* oldest first, which is also the order of expiry */
    char *userid;   /* owned */
    uint64_t version;
    sl_mono_ms expires;
    sl_wall_ms expires_wall;
    char text[AUTH_TOKEN_BYTES];
    uint8_t digest[AUTH_DIGEST];
} auth_token;

typedef struct auth_tokens {
    sl_map *by_digest; /* -> auth_token, owned */
    sl_map *by_user;   /* userid -> the newest token of the user */
    sl_list age;
    uint32_t max;
    uint64_t ended_early;
} auth_tokens;

void auth_tokens_init(auth_tokens *tk, uint32_t max);
void auth_tokens_fini(auth_tokens *tk);
/** Makes a token; at the maximum the oldest one ends. */
auth_token *auth_tokens_issue(auth_tokens *tk, const uint8_t key[AUTH_DIGEST],
                              const auth_user *user, sl_mono_ms now, sl_wall_ms wall,
                              sl_dur_ms ttl);
/** A live token by its text, or NULL. */
auth_token *auth_tokens_find(auth_tokens *tk, const uint8_t key[AUTH_DIGEST], sl_slice text,
                             sl_mono_ms now);
/** The newest live token of a user, or NULL. */
auth_token *auth_tokens_of(auth_tokens *tk, const char *userid, sl_mono_ms now);
void auth_tokens_end(auth_tokens *tk, auth_token *token);
void auth_tokens_end_user(auth_tokens *tk, const char *userid);
void auth_tokens_expire(auth_tokens *tk, sl_mono_ms now);

/* ---- guard against guessing (auth_guard.c) ---- */

typedef struct auth_guard {
    sl_map *by_address; /* -> guard_entry, owned */
    sl_list age;        /* by begin of the window, oldest first */
    uint32_t attempts;
    sl_dur_ms window_ms;
} auth_guard;

void auth_guard_init(auth_guard *gd, uint32_t attempts, sl_dur_ms window_ms);
void auth_guard_fini(auth_guard *gd);
/** True while the address has used up its attempts; *retry_ms tells for how long. */
bool auth_guard_blocks(auth_guard *gd, const char *ip, sl_mono_ms now, sl_dur_ms *retry_ms);
void auth_guard_failed(auth_guard *gd, const char *ip, sl_mono_ms now);

/* ---- passwords that were right a moment ago (auth.c) ---- */

typedef struct auth_cached {
    uint64_t version; /* of the user then */
    sl_mono_ms expires;
} auth_cached;

struct sl_auth {
    uint32_t magic;
    sl_auth_options opt;      /* realm is an owned copy, defaults are filled in */
    uint8_t key[AUTH_DIGEST]; /* random, of this process; read-only */
    pthread_mutex_t lock;     /* guards all below */
    auth_table *table;        /* owned reference */
    auth_tokens tokens;
    auth_guard guard;
    sl_map *cache; /* digest of user and password -> auth_cached, owned */
    sl_auth_counts counts;
};

/** HMAC-SHA256 under key of two texts, the border between them unambiguous. @thread any */
void auth_digest(const uint8_t key[AUTH_DIGEST], sl_slice first, sl_slice second,
                 uint8_t out[AUTH_DIGEST]);
/** The token that came with the request (Bearer, cookie), empty when none. */
sl_slice auth_token_of(const sl_http_req *req);

#endif
