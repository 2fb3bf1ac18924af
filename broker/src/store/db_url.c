/* SPDX-License-Identifier: Apache-2.0
 *
 * db_url: see db_url.h.
 */
#include "store/db_url.h"

#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/buf.h"

#define URL_MAX 8192

/* libpq's options that may be in a URL; others would make it refuse the whole URL. */
static const char *const KNOWN[] = {
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "passfile",
    "require_auth",
    "options",
    "sslmode",
    "sslcert",
    "sslkey",
    "sslpassword",
    "sslrootcert",
    "sslcrl",
    "sslcrldir",
    "sslsni",
    "sslcompression",
    "ssl_min_protocol_version",
    "ssl_max_protocol_version",
    "requirepeer",
    "krbsrvname",
    "gssencmode",
    "gsslib",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_count",
    "channel_binding",
    "client_encoding",
    "application_name",
    "target_session_attrs",
};

/* Options of the JDBC driver that mean the same here under another name. */
static const struct translation {
    const char *name, *value; /* value NULL: any */
    const char *to;           /* with the value behind it when value is NULL */
} TRANSLATIONS[] = {
    {"ssl", "true", "sslmode=verify-full"},
    {"ssl", "false", "sslmode=disable"},
    {"currentSchema", NULL, "options=-csearch_path%3D"},
    {"ApplicationName", NULL, "application_name="},
    {"targetServerType", "primary", "target_session_attrs=read-write"},
    {"targetServerType", "master", "target_session_attrs=read-write"},
    {"targetServerType", "any", "target_session_attrs=any"},
};

static bool is_word(sl_slice text, const char *word)
{
    return sl_slice_equal(text, sl_slice_str(word));
}

static bool is_known(sl_slice name)
{
    for (size_t i = 0; i < sizeof(KNOWN) / sizeof(KNOWN[0]); i++) {
        if (is_word(name, KNOWN[i]))
            return true;
    }
    return false;
}

static const struct translation *translation_of(sl_slice name, sl_slice value)
{
    for (size_t i = 0; i < sizeof(TRANSLATIONS) / sizeof(TRANSLATIONS[0]); i++) {
        const struct translation *tr = &TRANSLATIONS[i];
        if (is_word(name, tr->name) && (tr->value == NULL || is_word(value, tr->value)))
            return tr;
    }
    return NULL;
}

static sl_err add_option(sl_slice pair, sl_buf *out, sl_buf *dropped, char *separator)
{
    const uint8_t *equals = memchr(pair.ptr, '=', pair.len);
    sl_slice name = sl_slice_of(pair.ptr, equals == NULL ? pair.len : (size_t)(equals - pair.ptr));
    sl_slice value =
        equals == NULL ? sl_slice_of(NULL, 0) : sl_slice_of(equals + 1, pair.len - name.len - 1);
    const struct translation *tr = translation_of(name, value);
    sl_err err = SL_OK;
    if (tr == NULL && !is_known(name)) {
        if (sl_buf_peek(dropped).len > 0)
            err = sl_buf_append_str(dropped, ",");
        return err == SL_OK ? sl_buf_append_slice(dropped, name) : err;
    }
    err = sl_buf_append_u8(out, (uint8_t)*separator);
    *separator = '&';
    if (err == SL_OK && tr == NULL)
        return sl_buf_append_slice(out, pair);
    if (err == SL_OK)
        err = sl_buf_append_str(out, tr->to);
    if (err == SL_OK && tr->value == NULL)
        err = sl_buf_append_slice(out, value);
    return err;
}

static sl_err add_options(const char *query, sl_buf *out, sl_buf *dropped)
{
    char separator = '?';
    sl_err err = SL_OK;
    while (err == SL_OK && *query != 0) {
        size_t len = strcspn(query, "&");
        if (len > 0)
            err = add_option(sl_slice_of(query, len), out, dropped, &separator);
        query += len + (query[len] == '&');
    }
    return err;
}

static char *take_text(sl_buf *buf)
{
    sl_slice text = sl_buf_peek(buf);
    char *copy = sl_strndup(text.ptr, text.len);
    sl_buf_fini(buf);
    return copy;
}

sl_err sl_db_url_translate(const char *url, char **out, char **dropped, const char **why)
{
    const char *at = strncasecmp(url, "jdbc:", 5) == 0 ? url + 5 : url;
    if (strncmp(at, "postgresql://", 13) != 0 && strncmp(at, "postgres://", 11) != 0) {
        *why = "the URL must begin with postgresql:// or jdbc:postgresql://";
        return SL_EINVAL;
    }
    if (strlen(at) > URL_MAX / 2) {
        *why = "the URL is too long";
        return SL_EINVAL;
    }
    sl_buf text, names;
    sl_buf_init(&text, URL_MAX * 4);
    sl_buf_init(&names, URL_MAX);
    size_t base = strcspn(at, "?");
    sl_err err = sl_buf_append(&text, at, base);
    if (err == SL_OK && at[base] == '?')
        err = add_options(at + base + 1, &text, &names);
    if (err != SL_OK) {
        sl_buf_fini(&text);
        sl_buf_fini(&names);
        *why = "the URL is too long";
        return SL_EINVAL;
    }
    *out = take_text(&text);
    *dropped = take_text(&names);
    return SL_OK;
}
