/* SPDX-License-Identifier: Apache-2.0
 *
 * conf: configuration from one table: it parses YAML (libyaml), applies environment variables,
 * prints (--print-config), and generates etc/ and docs/ reference pages. Precedence: default <
 * file < environment. An unknown key, bad value or out-of-range number in a file is refused, with
 * file, line and key in the message. An unknown environment variable is never an error.
 * The RESTHeart-style gateway file is read by gateway/src/gateway_conf, on yaml.h's tree.
 * @thread init for loading; a loaded sl_conf is read-only and any thread may read it.
 */
#ifndef SL_BASE_CONF_H
#define SL_BASE_CONF_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

typedef enum sl_conf_type {
    SL_CONF_BOOL,
    SL_CONF_INT,    /* int64, with range */
    SL_CONF_STRING, /* UTF-8, no NUL */
    SL_CONF_ENUM    /* one of words, "a|b|c" in `words` */
} sl_conf_type;

typedef struct sl_conf_row {
    const char *key; /* dotted YAML path: "listener.tcp.bind_port" */
    const char *env; /* environment variable, or NULL */
    sl_conf_type type;
    const char *def;   /* default as text */
    int64_t min, max;  /* SL_CONF_INT: inclusive range */
    const char *words; /* SL_CONF_ENUM */
    const char *unit;  /* "ms", "bytes", ... or NULL */
    bool secret;       /* printed as *** */
    const char *help;  /* one or two sentences */
} sl_conf_row;

typedef struct sl_conf sl_conf;

/** Defaults only. rows is static and lives on. @thread init */
sl_conf *sl_conf_new(const sl_conf_row *rows, size_t count);
void sl_conf_free(sl_conf **cf);
/** Reads a YAML file. On error *why is a message owned by the caller (sl_free) that names file,
 * line and key. @thread init */
SL_MUST_USE sl_err sl_conf_load_file(sl_conf *cf, const char *path, char **why);
SL_MUST_USE sl_err sl_conf_load_text(sl_conf *cf, const char *name, sl_slice yaml, char **why);
/** Applies the environment variables of the table (set but empty counts as unset). */
SL_MUST_USE sl_err sl_conf_load_env(sl_conf *cf, char **why);
/** Sets one key as text, e.g. from the command line or a test. */
SL_MUST_USE sl_err sl_conf_set(sl_conf *cf, const char *key, const char *value, char **why);

/* Values by key; asking for a key that is not in the table is an assertion. @thread any */
bool sl_conf_bool(const sl_conf *cf, const char *key);
int64_t sl_conf_int(const sl_conf *cf, const char *key);
const char *sl_conf_str(const sl_conf *cf, const char *key);

/** The effective configuration as YAML, secrets masked. */
SL_MUST_USE sl_err sl_conf_print(const sl_conf *cf, sl_buf *out);
/** A commented YAML file with the defaults; what etc/NAME.yml is compared with. overrides: pairs
 * key, value, ... NULL that the shipped file sets differently from the default, or NULL. */
SL_MUST_USE sl_err sl_conf_write_template(const sl_conf_row *rows, size_t count, const char *title,
                                          const char *const *overrides, sl_buf *out);
/** The Markdown reference table. */
SL_MUST_USE sl_err sl_conf_write_reference(const sl_conf_row *rows, size_t count, sl_buf *out);

#endif
