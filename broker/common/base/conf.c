/* SPDX-License-Identifier: Apache-2.0
 *
 * conf: checks values against their rows, and takes them from YAML, the environment or the caller.
 * A file's tree is walked with the dotted path of each node; a path is a key of the table, the
 * beginning of one (a section), or unknown.
 */
#include "base/conf.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/conf_int.h"
#include "base/json.h"
#include "base/yaml.h"

#define MESSAGE_BYTES 4096u
#define PATH_BYTES    1024u

/* Where a value comes from, for messages: "broker.yml:12" or "environment variable X". */
typedef struct origin {
    const char *where;
    const char *file; /* NULL unless a file */
    int line;
} origin;

__attribute__((format(printf, 2, 3))) static sl_err explain(char **why, const char *fmt, ...)
{
    char text[MESSAGE_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    *why = sl_strdup(text);
    return SL_EINVAL;
}

static void format_origin(const origin *from, char out[PATH_BYTES])
{
    if (from->file != NULL)
        snprintf(out, PATH_BYTES, "%s:%d", from->file, from->line);
    else
        snprintf(out, PATH_BYTES, "%s", from->where);
}

static bool parse_bool(const char *text, int64_t *num)
{
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcasecmp(text, words[i]) == 0) {
            *num = (int64_t)(i & 1);
            return true;
        }
    }
    return false;
}

static bool parse_int(const char *text, int64_t *num)
{
    const char *digits = text + (*text == '-' || *text == '+');
    if (*digits == '\0' || digits[strspn(digits, "0123456789")] != '\0')
        return false;
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    *num = value;
    return errno == 0 && *end == '\0';
}

static bool is_word_of(const char *words, const char *text)
{
    size_t len = strlen(text);
    for (const char *at = words;;) {
        size_t word = strcspn(at, "|");
        if (word == len && memcmp(at, text, len) == 0)
            return true;
        if (at[word] == '\0')
            return false;
        at += word + 1;
    }
}

// Nothing when the value fits its row, else what was expected.
static bool check_value(const sl_conf_row *row, const char *text, int64_t *num, sl_buf *expected)
{
    bool fits = false;
    sl_err err = SL_OK;
    *num = 0;
    switch (row->type) {
    case SL_CONF_BOOL:
        fits = parse_bool(text, num);
        if (!fits)
            err = sl_buf_append_str(expected, "true or false");
        break;
    case SL_CONF_INT:
        fits = parse_int(text, num) && *num >= row->min && *num <= row->max;
        if (!fits)
            err = sl_buf_printf(expected, "a whole number from %" PRId64 " to %" PRId64 "%s%s",
                                row->min, row->max, row->unit == NULL ? "" : " ",
                                row->unit == NULL ? "" : row->unit);
        break;
    case SL_CONF_STRING:
        fits = sl_utf8_is_valid(sl_slice_str(text));
        if (!fits)
            err = sl_buf_append_str(expected, "UTF-8 text");
        break;
    case SL_CONF_ENUM:
        fits = is_word_of(row->words, text);
        if (!fits)
            err = sl_buf_printf(expected, "one of %s", row->words);
        break;
    }
    SL_ASSERT(err == SL_OK);
    return fits;
}

static sl_err set_value(sl_conf *cf, size_t id, const char *text, const origin *from, char **why)
{
    const sl_conf_row *row = &cf->rows[id];
    conf_value *value = &cf->values[id];
    sl_buf expected;
    sl_buf_init(&expected, MESSAGE_BYTES);
    int64_t num;
    char where[PATH_BYTES];
    format_origin(from, where);
    sl_err err = SL_OK;
    if (check_value(row, text, &num, &expected)) {
        sl_free(value->text);
        sl_free(value->origin);
        value->text = sl_strdup(text);
        value->num = num;
        value->origin = sl_strdup(where);
    } else {
        sl_slice want = sl_buf_peek(&expected);
        err = explain(why, "%s: value \"%.200s\" of \"%s\" is not allowed: expected %.*s", where,
                      row->secret ? "***" : text, row->key, (int)want.len, (const char *)want.ptr);
    }
    sl_buf_fini(&expected);
    return err;
}

// True when path is a section above this key: "listener.tcp" of "listener.tcp.bind_port".
static bool is_section_of(const char *path, size_t len, const char *key)
{
    return strncmp(key, path, len) == 0 && key[len] == '.';
}

static void check_table(const sl_conf_row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const sl_conf_row *row = &rows[i];
        SL_ASSERT(row->key != NULL && row->def != NULL && row->help != NULL);
        SL_ASSERT((row->type == SL_CONF_ENUM) == (row->words != NULL));
        SL_ASSERT(row->type != SL_CONF_INT || row->min <= row->max);
        for (size_t k = 0; k < count; k++)
            SL_ASSERT(k == i || (strcmp(row->key, rows[k].key) != 0 &&
                                 !is_section_of(row->key, strlen(row->key), rows[k].key)));
    }
}

sl_conf *sl_conf_new(const sl_conf_row *rows, size_t count)
{
    check_table(rows, count);
    sl_conf *cf = sl_calloc(1, sizeof(*cf));
    cf->rows = rows;
    cf->count = count;
    cf->index = sl_map_new(count);
    cf->values = sl_calloc(count, sizeof(*cf->values));
    sl_buf expected;
    sl_buf_init(&expected, MESSAGE_BYTES);
    for (size_t i = 0; i < count; i++) {
        bool fits = check_value(&rows[i], rows[i].def, &cf->values[i].num, &expected);
        SL_ASSERT(fits);
        cf->values[i].text = sl_strdup(rows[i].def);
        sl_err err = sl_map_put(cf->index, sl_slice_str(rows[i].key), &cf->values[i], NULL);
        SL_ASSERT(err == SL_OK);
    }
    sl_buf_fini(&expected);
    return cf;
}

void sl_conf_free(sl_conf **cf)
{
    sl_conf *mine = *cf;
    *cf = NULL;
    if (mine == NULL)
        return;
    for (size_t i = 0; i < mine->count; i++) {
        sl_free(mine->values[i].text);
        sl_free(mine->values[i].origin);
    }
    sl_free(mine->values);
    sl_map_free(&mine->index);
    sl_free(mine);
}

static bool has_section(const sl_conf *cf, const char *path)
{
    size_t len = strlen(path);
    for (size_t i = 0; i < cf->count; i++)
        if (is_section_of(path, len, cf->rows[i].key))
            return true;
    return false;
}

// The beginning of key with as many dotted parts as path has.
static sl_slice same_depth(const char *key, const char *path)
{
    size_t dots = 0;
    for (const char *at = path; *at != '\0'; at++)
        dots += *at == '.';
    const char *at = key;
    while (*at != '\0' && (*at != '.' || dots-- != 0))
        at++;
    return sl_slice_of(key, (size_t)(at - key));
}

static sl_err unknown_key(const sl_conf *cf, const char *path, const origin *from, char **why)
{
    sl_slice best = sl_slice_of(NULL, 0);
    // A hint that shares less than two thirds of its letters would not help.
    size_t best_distance = strlen(path) / 3 + 1;
    for (size_t i = 0; i < cf->count; i++) {
        sl_slice known = same_depth(cf->rows[i].key, path);
        size_t distance = sl_slice_distance(known, sl_slice_str(path));
        if (distance < best_distance) {
            best = known;
            best_distance = distance;
        }
    }
    char where[PATH_BYTES];
    format_origin(from, where);
    if (best.len == 0)
        return explain(why, "%s: unknown key \"%.200s\"", where, path);
    return explain(why, "%s: unknown key \"%.200s\", did you mean \"%.*s\"?", where, path,
                   (int)best.len, (const char *)best.ptr);
}

static sl_err load_leaf(sl_conf *cf, conf_value *value, const sl_yaml *node, const origin *from,
                        char **why)
{
    size_t id = (size_t)(value - cf->values);
    const char *key = cf->rows[id].key;
    if (node->kind == SL_YAML_LIST || node->kind == SL_YAML_MAP)
        return explain(why, "%s:%d: \"%s\" takes one value, not a %s", from->file, from->line, key,
                       node->kind == SL_YAML_LIST ? "list" : "section");
    if (value->pass == cf->pass)
        return explain(why, "%s:%d: \"%s\" is set twice", from->file, from->line, key);
    value->pass = cf->pass;
    return set_value(cf, id, node->text == NULL ? "" : node->text, from, why);
}

// path holds the dotted name of the section; its depth is bounded by the YAML reader.
static sl_err load_section(sl_conf *cf, const sl_yaml *map, const char *file, char path[PATH_BYTES],
                           size_t len, char **why)
{
    for (size_t i = 0; i < map->count; i++) {
        const sl_yaml *kid = map->kid[i];
        const origin from = {.file = file, .line = kid->line};
        int added = snprintf(path + len, PATH_BYTES - len, "%s%s", len == 0 ? "" : ".", kid->key);
        if (added < 0 || (size_t)added >= PATH_BYTES - len)
            return explain(why, "%s:%d: the key is too long", file, kid->line);
        conf_value *value = sl_map_get(cf->index, sl_slice_str(path));
        sl_err err;
        if (value != NULL)
            err = load_leaf(cf, value, kid, &from, why);
        else if (!has_section(cf, path))
            err = unknown_key(cf, path, &from, why);
        else if (kid->kind == SL_YAML_MAP)
            err = load_section(cf, kid, file, path, len + (size_t)added, why);
        else if (kid->kind == SL_YAML_NULL)
            err = SL_OK; // a section with everything in it commented out
        else
            err = explain(why, "%s:%d: \"%s\" is a section, not a value", file, kid->line, path);
        if (err != SL_OK)
            return err;
        path[len] = '\0';
    }
    return SL_OK;
}

static sl_err load_tree(sl_conf *cf, const char *name, sl_yaml **tree, char **why)
{
    sl_err err;
    char path[PATH_BYTES] = "";
    cf->pass++;
    if ((*tree)->kind == SL_YAML_MAP)
        err = load_section(cf, *tree, name, path, 0, why);
    else
        err = explain(why, "%s:%d: expected \"key: value\" lines", name, (*tree)->line);
    sl_yaml_free(tree);
    return err;
}

sl_err sl_conf_load_file(sl_conf *cf, const char *path, char **why)
{
    sl_yaml *tree = NULL;
    sl_err err = sl_yaml_parse_file(path, &tree, why);
    return err == SL_OK ? load_tree(cf, path, &tree, why) : err;
}

sl_err sl_conf_load_text(sl_conf *cf, const char *name, sl_slice yaml, char **why)
{
    sl_yaml *tree = NULL;
    sl_err err = sl_yaml_parse(name, yaml, &tree, why);
    return err == SL_OK ? load_tree(cf, name, &tree, why) : err;
}

sl_err sl_conf_load_env(sl_conf *cf, char **why)
{
    for (size_t i = 0; i < cf->count; i++) {
        if (cf->rows[i].env == NULL)
            continue;
        const char *text = getenv(cf->rows[i].env);
        if (text == NULL || text[0] == '\0')
            continue;
        char where[PATH_BYTES];
        snprintf(where, sizeof(where), "environment variable %s", cf->rows[i].env);
        sl_err err = set_value(cf, i, text, &(origin){.where = where}, why);
        if (err != SL_OK)
            return err;
    }
    return SL_OK;
}

sl_err sl_conf_set(sl_conf *cf, const char *key, const char *value, char **why)
{
    const origin from = {.where = "setting"};
    conf_value *found = sl_map_get(cf->index, sl_slice_str(key));
    if (found == NULL)
        return unknown_key(cf, key, &from, why);
    return set_value(cf, (size_t)(found - cf->values), value, &from, why);
}

static const conf_value *value_of(const sl_conf *cf, const char *key, sl_conf_type type,
                                  sl_conf_type other)
{
    const conf_value *value = sl_map_get(cf->index, sl_slice_str(key));
    SL_ASSERT(value != NULL);
    sl_conf_type is = cf->rows[value - cf->values].type;
    SL_ASSERT(is == type || is == other);
    return value;
}

bool sl_conf_bool(const sl_conf *cf, const char *key)
{
    return value_of(cf, key, SL_CONF_BOOL, SL_CONF_BOOL)->num != 0;
}

int64_t sl_conf_int(const sl_conf *cf, const char *key)
{
    return value_of(cf, key, SL_CONF_INT, SL_CONF_INT)->num;
}

const char *sl_conf_str(const sl_conf *cf, const char *key)
{
    return value_of(cf, key, SL_CONF_STRING, SL_CONF_ENUM)->text;
}
