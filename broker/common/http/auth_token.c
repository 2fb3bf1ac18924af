/* SPDX-License-Identifier: Apache-2.0
 *
 * auth_token: opaque random tokens in memory. They are looked up by a keyed hash, so the time of a
 * look-up tells nothing about the text.
 */
#include <string.h>

#include <openssl/rand.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "http/auth_int.h"

#define RANDOM_BYTES 32

void auth_tokens_init(auth_tokens *tk, uint32_t max)
{
    *tk = (auth_tokens){.max = max};
    tk->by_digest = sl_map_new(max);
    tk->by_user = sl_map_new(max);
    sl_list_init(&tk->age);
}

void auth_tokens_fini(auth_tokens *tk)
{
    for (sl_node *node; (node = sl_list_first(&tk->age)) != NULL;)
        auth_tokens_end(tk, SL_CONTAINER(node, auth_token, in_age));
    sl_map_free(&tk->by_digest);
    sl_map_free(&tk->by_user);
}

/* 32 random bytes in the alphabet that fits headers and cookies. */
static void make_text(char out[AUTH_TOKEN_BYTES])
{
    static const char alphabet[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    uint8_t bytes[RANDOM_BYTES];
    int ok = RAND_bytes(bytes, sizeof(bytes));
    SL_ASSERT(ok == 1); // without random numbers no login can be trusted
    uint32_t bits = 0;
    unsigned have = 0;
    size_t len = 0;
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bits = (bits << 8) | bytes[i];
        have += 8;
        while (have >= 6) {
            have -= 6;
            out[len++] = alphabet[(bits >> have) & 63];
        }
    }
    out[len++] = alphabet[(bits << (6 - have)) & 63];
    out[len] = '\0';
    SL_ASSERT(len + 1 == AUTH_TOKEN_BYTES);
}

auth_token *auth_tokens_issue(auth_tokens *tk, const uint8_t key[AUTH_DIGEST],
                              const auth_user *user, sl_mono_ms now, sl_wall_ms wall, sl_dur_ms ttl)
{
    auth_tokens_expire(tk, now);
    if (sl_map_count(tk->by_digest) >= tk->max) {
        auth_tokens_end(tk, SL_CONTAINER(sl_list_first(&tk->age), auth_token, in_age));
        tk->ended_early++;
    }
    auth_token *to = sl_calloc(1, sizeof(*to));
    to->userid = sl_strdup(user->userid);
    to->version = user->version;
    to->expires = now + ttl;
    to->expires_wall = wall + ttl;
    make_text(to->text);
    auth_digest(key, sl_slice_str(to->text), sl_slice_of(NULL, 0), to->digest);
    sl_list_push_back(&tk->age, &to->in_age);
    sl_err err = sl_map_put(tk->by_digest, sl_slice_of(to->digest, AUTH_DIGEST), to, NULL);
    if (err == SL_OK)
        err = sl_map_put(tk->by_user, sl_slice_str(to->userid), to, NULL);
    SL_ASSERT(err == SL_OK); // room was made above
    return to;
}

void auth_tokens_end(auth_tokens *tk, auth_token *to)
{
    sl_list_remove(&to->in_age);
    (void)sl_map_remove(tk->by_digest, sl_slice_of(to->digest, AUTH_DIGEST));
    if (sl_map_get(tk->by_user, sl_slice_str(to->userid)) == to)
        (void)sl_map_remove(tk->by_user, sl_slice_str(to->userid));
    sl_free(to->userid);
    sl_free(to);
}

void auth_tokens_end_user(auth_tokens *tk, const char *userid)
{
    for (sl_node *node = sl_list_first(&tk->age), *next; node != NULL; node = next) {
        next = sl_list_next(&tk->age, node);
        auth_token *to = SL_CONTAINER(node, auth_token, in_age);
        if (strcmp(to->userid, userid) == 0)
            auth_tokens_end(tk, to);
    }
}

void auth_tokens_expire(auth_tokens *tk, sl_mono_ms now)
{
    for (sl_node *node; (node = sl_list_first(&tk->age)) != NULL;) {
        auth_token *to = SL_CONTAINER(node, auth_token, in_age);
        if (to->expires > now)
            return;
        auth_tokens_end(tk, to);
    }
}

auth_token *auth_tokens_find(auth_tokens *tk, const uint8_t key[AUTH_DIGEST], sl_slice text,
                             sl_mono_ms now)
{
    if (text.len != AUTH_TOKEN_BYTES - 1)
        return NULL;
    auth_tokens_expire(tk, now);
    uint8_t digest[AUTH_DIGEST];
    auth_digest(key, text, sl_slice_of(NULL, 0), digest);
    return sl_map_get(tk->by_digest, sl_slice_of(digest, AUTH_DIGEST));
}

auth_token *auth_tokens_of(auth_tokens *tk, const char *userid, sl_mono_ms now)
{
    auth_tokens_expire(tk, now);
    return sl_map_get(tk->by_user, sl_slice_str(userid));
}
