/* SPDX-License-Identifier: Apache-2.0
 *
 * auth_password: stored passwords: plain text, or PBKDF2 with HMAC-SHA256 as
 * pbkdf2$sha256$iterations$salt$hash with salt and hash in base64.
 */
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "base/assert.h"
#include "base/json.h"
#include "http/auth_int.h"

#define PREFIX         "pbkdf2$"
#define PREFIX_SHA256  "pbkdf2$sha256$"
#define MIN_ITERATIONS 1000u
#define MAX_ITERATIONS 10000000u
#define SALT_BYTES     16
#define MIN_SALT       8
#define MIN_HASH       16
#define MAX_PART       64 /* bytes of salt and of hash */

typedef struct stored_hash {
    uint32_t iterations;
    sl_buf salt;
    sl_buf hash;
} stored_hash;

static void stored_fini(stored_hash *sh)
{
    sl_buf_fini(&sh->salt);
    sl_buf_fini(&sh->hash);
}

/* Always leaves something that stored_fini can clean. */
static sl_err stored_parse(const char *text, stored_hash *out)
{
    out->iterations = 0;
    sl_buf_init(&out->salt, MAX_PART);
    sl_buf_init(&out->hash, MAX_PART);
    if (strncmp(text, PREFIX_SHA256, strlen(PREFIX_SHA256)) != 0)
        return SL_EINVAL;
    const char *number = text + strlen(PREFIX_SHA256);
    size_t digits = strspn(number, "0123456789");
    if (digits == 0 || digits > 8 || number[digits] != '$')
        return SL_EINVAL;
    out->iterations = (uint32_t)strtoul(number, NULL, 10);
    const char *salt = number + digits + 1;
    const char *hash = strchr(salt, '$');
    if (hash == NULL || out->iterations < MIN_ITERATIONS || out->iterations > MAX_ITERATIONS)
        return SL_EINVAL;
    if (sl_base64_decode(&out->salt, sl_slice_of(salt, (size_t)(hash - salt))) != SL_OK ||
        sl_base64_decode(&out->hash, sl_slice_str(hash + 1)) != SL_OK)
        return SL_EINVAL;
    return sl_buf_peek(&out->salt).len >= MIN_SALT && sl_buf_peek(&out->hash).len >= MIN_HASH
               ? SL_OK
               : SL_EINVAL;
}

static void derive(sl_slice password, sl_slice salt, uint32_t iterations, uint8_t *out, size_t len)
{
    int ok =
        PKCS5_PBKDF2_HMAC(password.len == 0 ? "" : (const char *)password.ptr, (int)password.len,
                          salt.ptr, (int)salt.len, (int)iterations, EVP_sha256(), (int)len, out);
    SL_ASSERT(ok == 1);
}

sl_err sl_auth_password_check(const char *stored)
{
    if (strncmp(stored, PREFIX, strlen(PREFIX)) != 0)
        return SL_OK;
    stored_hash sh;
    sl_err err = stored_parse(stored, &sh);
    stored_fini(&sh);
    return err;
}

/* Hashes of equal length are compared, so neither length nor prefix shows in the time. */
static bool plain_matches(sl_slice password, const char *stored)
{
    static const uint8_t key[AUTH_DIGEST] = {0};
    uint8_t left[AUTH_DIGEST];
    uint8_t right[AUTH_DIGEST];
    auth_digest(key, password, sl_slice_of(NULL, 0), left);
    auth_digest(key, sl_slice_str(stored), sl_slice_of(NULL, 0), right);
    return CRYPTO_memcmp(left, right, sizeof(left)) == 0;
}

bool sl_auth_password_matches(sl_slice password, const char *stored)
{
    if (password.len > AUTH_MAX_SECRET)
        return false;
    if (strncmp(stored, PREFIX, strlen(PREFIX)) != 0)
        return plain_matches(password, stored);
    stored_hash sh;
    bool equal = false;
    if (stored_parse(stored, &sh) == SL_OK) {
        uint8_t got[MAX_PART];
        sl_slice want = sl_buf_peek(&sh.hash);
        derive(password, sl_buf_peek(&sh.salt), sh.iterations, got, want.len);
        equal = CRYPTO_memcmp(got, want.ptr, want.len) == 0;
        OPENSSL_cleanse(got, sizeof(got));
    }
    stored_fini(&sh);
    return equal;
}

sl_err sl_auth_hash_password(sl_slice password, uint32_t iterations, sl_buf *out)
{
    uint8_t salt[SALT_BYTES];
    uint8_t hash[AUTH_DIGEST];
    if (iterations < MIN_ITERATIONS || iterations > MAX_ITERATIONS ||
        password.len > AUTH_MAX_SECRET)
        return SL_EINVAL;
    if (RAND_bytes(salt, sizeof(salt)) != 1)
        return SL_EIO;
    derive(password, sl_slice_of(salt, sizeof(salt)), iterations, hash, sizeof(hash));
    sl_err err = sl_buf_printf(out, PREFIX_SHA256 "%u$", iterations);
    if (err == SL_OK)
        err = sl_base64_write(out, sl_slice_of(salt, sizeof(salt)));
    if (err == SL_OK)
        err = sl_buf_append_u8(out, '$');
    if (err == SL_OK)
        err = sl_base64_write(out, sl_slice_of(hash, sizeof(hash)));
    return err;
}

void auth_digest(const uint8_t key[AUTH_DIGEST], sl_slice first, sl_slice second,
                 uint8_t out[AUTH_DIGEST])
{
    uint8_t text[8 + 2 * AUTH_MAX_SECRET];
    size_t first_len = first.len <= AUTH_MAX_SECRET ? first.len : AUTH_MAX_SECRET;
    size_t second_len = second.len <= AUTH_MAX_SECRET ? second.len : AUTH_MAX_SECRET;
    uint64_t border = first_len;
    memcpy(text, &border, sizeof(border));
    if (first_len > 0)
        memcpy(text + 8, first.ptr, first_len);
    if (second_len > 0)
        memcpy(text + 8 + first_len, second.ptr, second_len);
    unsigned len = 0;
    const unsigned char *mac =
        HMAC(EVP_sha256(), key, AUTH_DIGEST, text, 8 + first_len + second_len, out, &len);
    SL_ASSERT(mac != NULL && len == AUTH_DIGEST);
    OPENSSL_cleanse(text, sizeof(text));
}
