/* SPDX-License-Identifier: Apache-2.0
 *
 * gateway_conf: loading. The file becomes a tree, overrides change the tree, then every row of the
 * table takes its value from it, the lists are read, and rules that join several keys are checked.
 */
#include "gateway_conf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/logger.h"
#include "base/yaml.h"
#include "conf_int.h"
#include "filter.h"
#include "rho.h"
#include "why.h"

#define MAX_PATH_BYTES   256
#define MAX_SUGGEST_DIST 4

/* ---- finding ---- */

static const sl_gateway_row *row_of(const char *path)
{
    for (size_t i = 0; i < sl_gateway_row_count; i++) {
        if (strcmp(sl_gateway_rows[i].path, path) == 0)
            return &sl_gateway_rows[i];
    }
    return NULL;
}

const sl_yaml *sl_conf_node(const sl_yaml *root, const char *path)
{
    char name[MAX_PATH_BYTES];
    const sl_yaml *node = root;
    while (node != NULL && *path != '\0') {
        size_t len = strcspn(path, "/");
        SL_ASSERT(len < sizeof name);
        memcpy(name, path, len);
        name[len] = '\0';
        node = node->kind == SL_YAML_MAP ? sl_yaml_get(node, name) : NULL;
        path += len + (path[len] == '/');
    }
    return node;
}

static size_t index_of(const char *path, sl_gateway_type type)
{
    const sl_gateway_row *row = row_of(path);
    SL_ASSERT(row != NULL && (row->type == type || type == SL_GT_STRING));
    return (size_t)(row - sl_gateway_rows);
}

bool sl_gateway_conf_bool(const sl_gateway_conf *cf, const char *path)
{
    return cf->values[index_of(path, SL_GT_BOOL)].num != 0;
}

int64_t sl_gateway_conf_int(const sl_gateway_conf *cf, const char *path)
{
    return cf->values[index_of(path, SL_GT_INT)].num;
}

const char *sl_gateway_conf_str(const sl_gateway_conf *cf, const char *path)
{
    return cf->values[index_of(path, SL_GT_STRING)].text;
}

bool sl_gateway_conf_has(const sl_gateway_conf *cf, const char *path)
{
    return sl_conf_node(cf->tree, path) != NULL;
}

/* ---- unknown keys ---- */

static size_t least(size_t left, size_t right)
{
    return left < right ? left : right;
}

/* Edit distance of two names. */
static size_t distance(const char *left, const char *right)
{
    size_t row[MAX_PATH_BYTES];
    size_t left_len = strlen(left), right_len = strlen(right);
    if (left_len >= MAX_PATH_BYTES || right_len >= MAX_PATH_BYTES)
        return MAX_PATH_BYTES;
    for (size_t j = 0; j <= right_len; j++)
        row[j] = j;
    for (size_t i = 1; i <= left_len; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= right_len; j++) {
            size_t above = row[j];
            size_t changed = diagonal + (left[i - 1] != right[j - 1]);
            row[j] = least(changed, least(above, row[j - 1]) + 1);
            diagonal = above;
        }
    }
    return row[right_len];
}

static const char *leaf(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* The known path that was probably meant, cut to the levels of the unknown one; or NULL. */
static const char *nearest_known(const char *path, char out[MAX_PATH_BYTES])
{
    size_t best = MAX_SUGGEST_DIST + 1;
    const char *found = NULL;
    for (size_t i = 0; i < sl_gateway_row_count; i++) {
        const char *known = sl_gateway_rows[i].path;
        size_t whole = distance(path, known);
        // the right name in the wrong block is as good a guess as a misspelt one
        size_t by_leaf = distance(leaf(path), leaf(known));
        by_leaf = by_leaf <= 1 && strlen(leaf(path)) > 3 ? by_leaf + 3 : MAX_PATH_BYTES;
        size_t far = least(whole, by_leaf);
        const char *slash = strchr(known, '/');
        if (strchr(path, '/') == NULL && slash != NULL) {
            char block[MAX_PATH_BYTES];
            snprintf(block, sizeof block, "%.*s", (int)(slash - known), known);
            far = distance(path, block);
        }
        if (far < best) {
            best = far;
            found = known;
        }
    }
    if (found == NULL)
        return NULL;
    int len = strchr(path, '/') == NULL ? (int)strcspn(found, "/") : (int)strlen(found);
    snprintf(out, MAX_PATH_BYTES, "%.*s", len, found);
    return out;
}

static void warn_unknown(const char *file, int line, const char *path)
{
    char near[MAX_PATH_BYTES];
    const char *meant = nearest_known(path, near);
    sl_warn(SL_C_CONF, "CONF-UNKNOWN-KEY", SL_S("key", path), SL_S("file", file),
            SL_I("line", line), SL_S("nearest", meant != NULL ? meant : "none"));
}

static bool is_block(const char *path)
{
    size_t len = strlen(path);
    for (size_t i = 0; i < sl_gateway_row_count; i++) {
        if (strncmp(sl_gateway_rows[i].path, path, len) == 0 && sl_gateway_rows[i].path[len] == '/')
            return true;
    }
    return false;
}

static bool has_word(const char *words, const char *word, size_t len)
{
    for (const char *p = words; p != NULL && *p != '\0'; p += strspn(p, "|*")) {
        size_t word_len = strcspn(p, "|*");
        if (word_len == len && memcmp(p, word, len) == 0)
            return true;
        p += word_len;
    }
    return false;
}

static void review_items(const char *file, const char *path, const sl_gateway_row *row,
                         const sl_yaml *list)
{
    char full[2 * MAX_PATH_BYTES];
    for (size_t i = 0; list->kind == SL_YAML_LIST && i < list->count; i++) {
        const sl_yaml *item = list->kid[i];
        for (size_t k = 0; item->kind == SL_YAML_MAP && k < item->count; k++) {
            const char *key = item->kid[k]->key;
            if (has_word(row->words, key, strlen(key)))
                continue;
            snprintf(full, sizeof full, "%s[%zu]/%s", path, i + 1, key);
            sl_warn(SL_C_CONF, "CONF-UNKNOWN-KEY", SL_S("key", full), SL_S("file", file),
                    SL_I("line", item->kid[k]->line), SL_S("known", row->words));
        }
    }
}

/* Walks the file's tree beside the table and names what the table does not know. */
static void review_keys(const char *file, const char *prefix, const sl_yaml *map)
{
    char path[MAX_PATH_BYTES];
    for (size_t i = 0; i < map->count; i++) {
        const sl_yaml *node = map->kid[i];
        int len =
            snprintf(path, sizeof path, "%s%s%s", prefix, *prefix != '\0' ? "/" : "", node->key);
        if (len < 0 || (size_t)len >= sizeof path) {
            sl_warn(SL_C_CONF, "CONF-UNKNOWN-KEY", SL_S("key", path), SL_S("file", file),
                    SL_I("line", node->line));
            continue;
        }
        const sl_gateway_row *row = row_of(path);
        if (row != NULL && row->type == SL_GT_LIST)
            review_items(file, path, row, node);
        else if (row == NULL && is_block(path) && node->kind == SL_YAML_MAP)
            review_keys(file, path, node);
        else if (row == NULL && !(is_block(path) && node->kind == SL_YAML_NULL))
            warn_unknown(file, node->line, path);
    }
}

/* ---- single values ---- */

typedef struct reader {
    sl_gateway_conf *cf;
    const char *file; /* for messages */
    char **why;
} reader;

sl_err sl_conf_bad(const char *file, const sl_yaml *node, const char *path, char **why,
                   const char *want)
{
    bool scalar = node->kind == SL_YAML_SCALAR;
    return sl_why(why, SL_EINVAL, "%s:%d: %s: %s%s%s%s", file, node->line, path, want,
                  scalar && !sl_rho_is_secret(path) ? ", not \"" : "",
                  scalar && !sl_rho_is_secret(path) ? node->text : "",
                  scalar && !sl_rho_is_secret(path) ? "\"" : "");
}

bool sl_conf_parse_int(const char *text, int64_t *out)
{
    char digits[40];
    size_t len = 0;
    for (const char *p = text; *p != '\0'; p++) {
        if (*p == '_' && p != text)
            continue;
        if (len + 1 >= sizeof digits || !((*p >= '0' && *p <= '9') || (*p == '-' && p == text)))
            return false;
        digits[len++] = *p;
    }
    digits[len] = '\0';
    char *end;
    errno = 0;
    long long value = strtoll(digits, &end, 10);
    if (len == 0 || *end != '\0' || errno != 0)
        return false;
    *out = value;
    return true;
}

static sl_err read_int(reader *rd, const sl_gateway_row *row, const sl_yaml *node,
                       sl_conf_value *out)
{
    char want[128];
    snprintf(want, sizeof want, "must be a whole number from %lld to %lld", (long long)row->min,
             (long long)row->max);
    if (node->kind != SL_YAML_SCALAR || !sl_conf_parse_int(node->text, &out->num) ||
        out->num < row->min || out->num > row->max)
        return sl_conf_bad(rd->file, node, row->path, rd->why, want);
    return SL_OK;
}

static sl_err read_bool(reader *rd, const sl_gateway_row *row, const sl_yaml *node,
                        sl_conf_value *out)
{
    if (node->kind == SL_YAML_SCALAR && strcmp(node->text, "true") == 0)
        out->num = 1;
    else if (node->kind == SL_YAML_SCALAR && strcmp(node->text, "false") == 0)
        out->num = 0;
    else
        return sl_conf_bad(rd->file, node, row->path, rd->why, "must be true or false");
    return SL_OK;
}

static sl_err read_text(reader *rd, const sl_gateway_row *row, const sl_yaml *node,
                        sl_conf_value *out)
{
    char want[192];
    if (node->kind != SL_YAML_SCALAR)
        return sl_conf_bad(rd->file, node, row->path, rd->why, "must be a single value");
    if (row->type == SL_GT_ENUM && !has_word(row->words, node->text, strlen(node->text))) {
        snprintf(want, sizeof want, "must be one of %s", row->words);
        return sl_conf_bad(rd->file, node, row->path, rd->why, want);
    }
    sl_free(out->text);
    out->text = sl_strdup(node->text);
    return SL_OK;
}

static sl_err check_reserved(reader *rd, const sl_gateway_row *row, const sl_yaml *node)
{
    const char *text = node->kind == SL_YAML_NULL ? "null" : node->text;
    bool empty = (node->kind == SL_YAML_LIST || node->kind == SL_YAML_MAP) && node->count == 0;
    if (strcmp(row->words, "*") == 0 || (empty && strstr(row->words, "[]") != NULL) ||
        (text != NULL && has_word(row->words, text, strlen(text))))
        return SL_OK;
    return sl_conf_bad(rd->file, node, row->path, rd->why, row->help);
}

static sl_err read_row(reader *rd, const sl_gateway_row *row, const sl_yaml *node,
                       sl_conf_value *out)
{
    if (row->type == SL_GT_RESERVED)
        return check_reserved(rd, row, node);
    if (node->kind == SL_YAML_NULL)
        return SL_OK; // unset: the default stays
    switch (row->type) {
    case SL_GT_BOOL:
        return read_bool(rd, row, node, out);
    case SL_GT_INT:
        return read_int(rd, row, node, out);
    case SL_GT_STRING:
    case SL_GT_ENUM:
        return read_text(rd, row, node, out);
    case SL_GT_LIST:
        return node->kind == SL_YAML_LIST
                   ? SL_OK
                   : sl_conf_bad(rd->file, node, row->path, rd->why, "must be a list");
    case SL_GT_MAP:
        return node->kind == SL_YAML_MAP
                   ? SL_OK
                   : sl_conf_bad(rd->file, node, row->path, rd->why, "must be a map");
    case SL_GT_RESERVED:
        break;
    }
    return SL_OK;
}

static void set_default(const sl_gateway_row *row, sl_conf_value *out)
{
    if (row->type == SL_GT_BOOL) {
        out->num = strcmp(row->def, "true") == 0;
    } else if (row->type == SL_GT_INT) {
        bool valid = sl_conf_parse_int(row->def, &out->num);
        SL_ASSERT(valid);
    } else if ((row->type == SL_GT_STRING || row->type == SL_GT_ENUM) && row->def != NULL) {
        out->text = sl_strdup(row->def);
    }
}

/* The tree node of a row; for lists and maps that are not written, its parsed default. */
const sl_yaml *sl_conf_list_node(const sl_gateway_conf *cf, const char *path)
{
    const sl_yaml *node = sl_conf_node(cf->tree, path);
    if (node != NULL && node->kind != SL_YAML_NULL)
        return node;
    size_t at = index_of(path, SL_GT_STRING);
    return cf->values[at].list;
}

static sl_err read_rows(reader *rd)
{
    sl_err err = SL_OK;
    for (size_t i = 0; err == SL_OK && i < sl_gateway_row_count; i++) {
        const sl_gateway_row *row = &sl_gateway_rows[i];
        sl_conf_value *value = &rd->cf->values[i];
        set_default(row, value);
        if (row->type == SL_GT_LIST || row->type == SL_GT_MAP) {
            char *why = NULL;
            err = sl_yaml_parse("default", sl_slice_str(row->def), &value->list, &why);
            SL_ASSERT(err == SL_OK);
        }
        const sl_yaml *node = sl_conf_node(rd->cf->tree, row->path);
        if (node != NULL)
            err = read_row(rd, row, node, value);
    }
    return err;
}

/* ---- rules that join keys ---- */

static sl_err check_filter(const char *file, const char *path, const char *text, char **why)
{
    const char *reason = "";
    if (sl_filter_check(sl_slice_str(text), &reason) != SL_OK)
        return sl_why(why, SL_EINVAL, "%s: %s: \"%s\" is not a topic filter: %s", file, path, text,
                      reason);
    return SL_OK;
}

static sl_err check_writer(const sl_gateway_conf *cf, const char *file, char **why)
{
    const char *field = sl_gateway_conf_str(cf, "mqtt-mongo-writer/id-field");
    const char *strategy = sl_gateway_conf_str(cf, "mqtt-mongo-writer/id-strategy");
    if (strcmp(strategy, "payload-field") == 0 && field[strspn(field, " \t")] == '\0')
        return sl_why(why, SL_EINVAL,
                      "%s: mqtt-mongo-writer/id-field: must not be blank with id-strategy "
                      "payload-field",
                      file);
    return SL_OK;
}

static sl_err check_joined(const sl_gateway_conf *cf, const char *file, char **why)
{
    sl_err err = sl_conf_check_broker(cf, file, why);
    if (err == SL_OK)
        err = check_filter(file, "mqtt-sse/default-topic",
                           sl_gateway_conf_str(cf, "mqtt-sse/default-topic"), why);
    if (err == SL_OK)
        err = check_writer(cf, file, why);
    if (err == SL_OK && sl_gateway_conf_str(cf, "mqtt-client/password") != NULL &&
        sl_gateway_conf_str(cf, "mqtt-client/username") == NULL &&
        strcmp(sl_gateway_conf_str(cf, "mqtt-client/protocol-version"), "3") == 0)
        err =
            sl_why(why, SL_EINVAL,
                   "%s: mqtt-client/password: MQTT 3.1.1 has no password without a username", file);
    if (err == SL_OK && sl_gateway_conf_int(cf, "mqtt-client/reconnect/initial-delay-ms") >
                            sl_gateway_conf_int(cf, "mqtt-client/reconnect/max-delay-ms"))
        err = sl_why(why, SL_EINVAL,
                     "%s: mqtt-client/reconnect/initial-delay-ms is above max-delay-ms", file);
    return err;
}

/* ---- load ---- */

static sl_err load_tree(const sl_gateway_conf_sources *src, sl_yaml **tree, char **why)
{
    sl_err err = SL_OK;
    if (src->file != NULL)
        err = sl_yaml_parse_file(src->file, tree, why);
    else
        *tree = sl_yaml_new(SL_YAML_MAP, NULL);
    if (err == SL_OK && (*tree)->kind != SL_YAML_MAP)
        return sl_why(why, SL_EINVAL, "%s: the file must be a map of plugin names", src->file);
    if (err == SL_OK && src->rho_file != NULL)
        err = sl_rho_apply_file(*tree, src->rho_file, why);
    if (err == SL_OK && src->rho != NULL)
        sl_rho_apply(*tree, "RHO", sl_slice_str(src->rho), false);
    return err;
}

sl_err sl_gateway_conf_load(const sl_gateway_conf_sources *src, sl_gateway_conf **out, char **why)
{
    sl_gateway_conf *cf = sl_calloc(1, sizeof *cf);
    const char *file = src->file != NULL ? src->file : "built-in defaults";
    reader rd = {.cf = cf, .file = file, .why = why};
    cf->file = src->file != NULL ? sl_strdup(src->file) : NULL;
    cf->values = sl_calloc(sl_gateway_row_count, sizeof *cf->values);
    sl_err err = load_tree(src, &cf->tree, why);
    if (err != SL_OK)
        goto out;
    review_keys(file, "", cf->tree);
    err = read_rows(&rd);
    if (err == SL_OK)
        err = sl_conf_read_lists(cf, file, why);
    if (err == SL_OK)
        err = check_joined(cf, file, why);
    if (err == SL_OK) {
        *out = cf;
        cf = NULL;
    }
out:
    sl_gateway_conf_free(&cf);
    return err;
}

void sl_gateway_conf_free(sl_gateway_conf **cf)
{
    sl_gateway_conf *own = *cf;
    *cf = NULL;
    if (own == NULL)
        return;
    sl_conf_free_lists(own);
    for (size_t i = 0; i < sl_gateway_row_count; i++) {
        sl_free(own->values[i].text);
        sl_yaml_free(&own->values[i].list);
    }
    sl_free(own->values);
    sl_yaml_free(&own->tree);
    sl_free(own->file);
    sl_free(own);
}
