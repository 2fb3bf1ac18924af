/* SPDX-License-Identifier: Apache-2.0
 *
 * auth: RESTHeart-style login and path rights, as a gate of the HTTP front: users from a table,
 * Basic and Bearer and cookie login, opaque tokens kept in memory, a guard against guessing, and
 * an ACL of predicates. Deny is the default: without a permission that matches nobody passes.
 * One object serves all loops of a server; a lock of its own guards tables (short, never across a
 * wait); password hashes are computed on the pool.
 */
#ifndef SL_HTTP_AUTH_H
#define SL_HTTP_AUTH_H

#include "base/clock.h"
#include "http/server.h"
#include "loop/pool.h"

typedef struct sl_auth sl_auth;

typedef struct sl_auth_user {
    const char *userid;
    const char
        *password; /* plain, or pbkdf2$sha256$iterations$salt$hash (base64); NULL: disabled */
    const char *const *roles;
    size_t role_count;
} sl_auth_user;

/* The role of whoever is not logged in. */
#define SL_AUTH_UNAUTHENTICATED "$unauthenticated"
#define SL_AUTH_LOWEST          INT32_MAX /* priority of a permission that names none */

typedef struct sl_auth_permission {
    const char *const *roles;
    size_t role_count;
    const char *predicate; /* http/predicate.h */
    int32_t priority;      /* lower first */
} sl_auth_permission;

typedef struct sl_auth_options {
    sl_pool *pool;             /* borrowed; for password hashes */
    sl_clock *clock;           /* borrowed */
    bool basic;                /* Basic with user and password */
    bool tokens;               /* Bearer, Basic with the token as password, the cookie, /token */
    bool acl;                  /* path ACL; false: whoever is logged in passes */
    const char *realm;         /* NULL = "RESTHeart Realm" */
    sl_dur_ms token_ttl_ms;    /* 0 = 15 min */
    uint32_t max_tokens;       /* 0 = 10000; beyond it the oldest ends */
    bool guard;                /* refuse logins from an address after too many bad ones */
    uint32_t guard_attempts;   /* 0 = 5 bad logins ... */
    sl_dur_ms guard_window_ms; /* 0 = ... in 10 s */
    bool secure_cookie;        /* the cookie travels over TLS only */
} sl_auth_options;

typedef struct sl_auth_counts {
    uint64_t logins;       /* passwords that were right (cached ones included) */
    uint64_t bad_logins;   /* wrong or unknown credentials */
    uint64_t guarded;      /* answered 429 */
    uint64_t denied;       /* answered 403 */
    uint64_t tokens;       /* alive now */
    uint64_t tokens_ended; /* ended early because max_tokens was reached */
} sl_auth_counts;

/** Nobody may do anything until sl_auth_load. @thread init */
sl_auth *sl_auth_new(const sl_auth_options *options);
/** After the server is gone and the pool is empty. */
void sl_auth_free(sl_auth **au);
/**
 * Replaces users and permissions (copied), at start and on reload. A user that was removed,
 * disabled, or got another password or role loses the tokens.
 * Errors SL_EINVAL with *why (owned): which entry and what is wrong; nothing was changed.
 * @thread any
 */
SL_MUST_USE sl_err sl_auth_load(sl_auth *au, const sl_auth_user *users, size_t user_count,
                                const sl_auth_permission *permissions, size_t permission_count,
                                char **why);
/** The gate; arg is the sl_auth. @thread loop */
sl_http_verdict sl_auth_gate(void *arg, sl_http_req *req, sl_http_resp *resp);
/** Adds /token, /token/cookie, /logout and /roles. @thread init */
void sl_auth_add_routes(sl_auth *au, sl_http_server *sv);

/** When the token that the request came with ends (monotonic), 0 = it came with a password or
 * anonymously. For streams, which must not outlive it. @thread any that holds the request */
sl_mono_ms sl_auth_expires(const sl_http_req *req);
/** Changes whenever the rights of the user may have changed (password, roles, any permission);
 * 0 when there is no such user (NULL: nobody logged in). Streams remember it and end when it
 * differs. @thread any */
uint64_t sl_auth_version(sl_auth *au, const char *userid);
void sl_auth_counts_get(sl_auth *au, sl_auth_counts *out);

/** Appends "pbkdf2$sha256$..." with a fresh salt. @thread any, slow */
SL_MUST_USE sl_err sl_auth_hash_password(sl_slice password, uint32_t iterations, sl_buf *out);
/** True when password is the one that stored (plain or pbkdf2 form) stands for; takes the same time
 * for right and wrong ones. @thread any, slow for pbkdf2 */
bool sl_auth_password_matches(sl_slice password, const char *stored);
/** SL_EINVAL for a text that begins like the pbkdf2 form and is not one. @thread any */
SL_MUST_USE sl_err sl_auth_password_check(const char *stored);

#endif
