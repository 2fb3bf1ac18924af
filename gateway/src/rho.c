/* SPDX-License-Identifier: Apache-2.0
 *
 * rho: parsing and applying "/path->value;" items.
 */
#include "rho.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/logger.h"
#include "why.h"

#define MAX_STEP_BYTES 256

typedef struct step {
    char name[MAX_STEP_BYTES];
    bool selects;
    size_t index;             /* from 1; 0: by key and value */
    char key[MAX_STEP_BYTES]; /* [key='value'] */
    char value[MAX_STEP_BYTES];
} step;

/* ---- masking ---- */

bool sl_rho_is_secret(const char *key)
{
    return key != NULL && (strcasestr(key, "password") != NULL || strcasestr(key, "pwd") != NULL ||
                           strcasestr(key, "secret") != NULL || strcasestr(key, "key") != NULL);
}

sl_err sl_rho_write_url(sl_buf *out, const char *text)
{
    const char *authority = strstr(text, "://");
    const char *at = authority != NULL ? strrchr(authority, '@') : NULL;
    const char *colon = at != NULL ? strchr(authority + 3, ':') : NULL;
    if (colon == NULL || colon > at)
        return sl_buf_append_str(out, text);
    sl_err err = sl_buf_append(out, text, (size_t)(colon + 1 - text));
    if (err == SL_OK)
        err = sl_buf_append_str(out, "***");
    if (err == SL_OK)
        err = sl_buf_append_str(out, at);
    return err;
}

static bool is_plain_json(const char *text)
{
    if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)
        return true;
    char *end;
    errno = 0;
    (void)strtod(text, &end);
    return end != text && *end == '\0' && errno == 0 &&
           strspn(text, "+-.0123456789eE") == strlen(text);
}

static sl_err write_scalar(sl_buf *out, const sl_yaml *node)
{
    if (!node->quoted && is_plain_json(node->text))
        return sl_buf_append_str(out, node->text);
    sl_buf shown;
    sl_buf_init(&shown, strlen(node->text) + 16);
    sl_err err = sl_rho_write_url(&shown, node->text);
    if (err == SL_OK)
        err = sl_json_write_string(out, sl_buf_peek(&shown));
    sl_buf_fini(&shown);
    return err;
}

sl_err sl_rho_write_masked(sl_buf *out, const char *key, const sl_yaml *node)
{
    if (node == NULL || node->kind == SL_YAML_NULL)
        return sl_buf_append_str(out, "null");
    if (sl_rho_is_secret(key))
        return sl_buf_append_str(out, "\"***\"");
    if (node->kind == SL_YAML_SCALAR)
        return write_scalar(out, node);
    bool map = node->kind == SL_YAML_MAP;
    sl_err err = sl_buf_append_u8(out, map ? '{' : '[');
    for (size_t i = 0; err == SL_OK && i < node->count; i++) {
        if (i > 0)
            err = sl_buf_append_str(out, ", ");
        if (err == SL_OK && map)
            err = sl_json_write_string(out, sl_slice_str(node->kid[i]->key));
        if (err == SL_OK && map)
            err = sl_buf_append_str(out, ": ");
        if (err == SL_OK)
            err = sl_rho_write_masked(out, map ? node->kid[i]->key : key, node->kid[i]);
    }
    if (err == SL_OK)
        err = sl_buf_append_u8(out, map ? '}' : ']');
    return err;
}

/* ---- paths ---- */

static bool copy_part(char *to, const char *from, size_t len)
{
    if (len == 0 || len >= MAX_STEP_BYTES)
        return false;
    memcpy(to, from, len);
    to[len] = '\0';
    return true;
}

/* "[2]" or "[userid='admin']"; *at is behind the '['. */
static bool parse_selector(const char **at, step *out)
{
    const char *p = *at;
    out->selects = true;
    if (*p >= '0' && *p <= '9') {
        char *end;
        out->index = strtoul(p, &end, 10);
        *at = end + 1;
        return out->index >= 1 && out->index < 1000000 && *end == ']';
    }
    const char *equals = strchr(p, '=');
    if (equals == NULL || !copy_part(out->key, p, (size_t)(equals - p)))
        return false;
    char quote = equals[1];
    if (quote != '\'' && quote != '"')
        return false;
    const char *close = strchr(equals + 2, quote);
    if (close == NULL || close[1] != ']' ||
        !copy_part(out->value, equals + 2, (size_t)(close - equals - 2)))
        return false;
    *at = close + 2;
    return true;
}

/* The next step of the path; *at moves behind it. False: the path is not well formed. */
static bool parse_step(const char **at, step *out)
{
    memset(out, 0, sizeof *out);
    if (**at != '/')
        return false;
    const char *p = *at + 1;
    size_t len = strcspn(p, "/[");
    if (!copy_part(out->name, p, len))
        return false;
    p += len;
    if (*p == '[') {
        p++;
        if (!parse_selector(&p, out))
            return false;
    }
    *at = p;
    return *p == '\0' || *p == '/';
}

static void replace_kid(sl_yaml *list, size_t index, sl_yaml **value)
{
    sl_yaml_free(&list->kid[index]);
    list->kid[index] = *value;
    *value = NULL;
}

static bool is_selected(const sl_yaml *item, const step *st)
{
    const sl_yaml *value = item->kind == SL_YAML_MAP ? sl_yaml_get(item, st->key) : NULL;
    return value != NULL && value->kind == SL_YAML_SCALAR && strcmp(value->text, st->value) == 0;
}

/* Index of the selected item; list->count when there is none. */
static size_t select_item(const sl_yaml *list, const step *st)
{
    if (st->index > 0)
        return st->index - 1 < list->count ? st->index - 1 : list->count;
    for (size_t i = 0; i < list->count; i++) {
        if (is_selected(list->kid[i], st))
            return i;
    }
    return list->count;
}

static bool apply_steps(sl_yaml *map, const char *path, sl_yaml **value, const char **why);

static bool apply_selected(sl_yaml *map, const step *st, const char *rest, sl_yaml **value,
                           const char **why)
{
    sl_yaml *list = sl_yaml_get(map, st->name);
    if (list == NULL || list->kind != SL_YAML_LIST) {
        *why = "there is no list to select from";
        return false;
    }
    size_t at = select_item(list, st);
    bool appends = at == list->count && st->index == list->count + 1 && *rest == '\0';
    if (at == list->count && !appends) {
        *why = "no item of the list is selected";
        return false;
    }
    if (appends)
        sl_yaml_add(list, value);
    else if (*rest == '\0')
        replace_kid(list, at, value);
    else if (list->kid[at]->kind == SL_YAML_MAP)
        return apply_steps(list->kid[at], rest, value, why);
    else {
        *why = "the selected item is not a map";
        return false;
    }
    return true;
}

static bool apply_steps(sl_yaml *map, const char *path, sl_yaml **value, const char **why)
{
    for (;;) {
        step st;
        if (!parse_step(&path, &st)) {
            *why = "the path is not of the form /name/name[1]/name[key='value']";
            return false;
        }
        if (st.selects)
            return apply_selected(map, &st, path, value, why);
        if (*path == '\0') {
            sl_yaml_set(map, st.name, value);
            return true;
        }
        sl_yaml *next = sl_yaml_get(map, st.name);
        if (next == NULL || next->kind == SL_YAML_SCALAR || next->kind == SL_YAML_NULL) {
            sl_yaml *made = sl_yaml_new(SL_YAML_MAP, NULL);
            next = made;
            sl_yaml_set(map, st.name, &made);
        }
        if (next->kind != SL_YAML_MAP) {
            *why = "a list needs a selector: name[1] or name[key='value']";
            return false;
        }
        map = next;
    }
}

static const char *last_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static bool apply_item(sl_yaml *root, const char *source, const char *path, sl_yaml **value)
{
    sl_buf shown;
    sl_buf_init(&shown, SL_YAML_MAX_BYTES);
    // what does not fit is only not shown in full
    sl_err err = sl_rho_write_masked(&shown, last_name(path), *value);
    if (err == SL_OK)
        err = sl_buf_append_u8(&shown, '\0');
    const char *why = "";
    bool applied = apply_steps(root, path, value, &why);
    if (applied)
        sl_info(SL_C_CONF, "CONF-OVERRIDE", SL_S("path", path),
                SL_S("value", err == SL_OK ? (const char *)sl_buf_peek(&shown).ptr : "..."),
                SL_S("source", source));
    else
        sl_warn(SL_C_CONF, "CONF-OVERRIDE-SKIPPED", SL_S("path", path), SL_S("why", why),
                SL_S("source", source));
    sl_buf_fini(&shown);
    return applied;
}

/* ---- items of the textual form ---- */

/* Only JSON is a value: YAML, which reads it, would take any bare word for a text. */
static bool looks_like_json(const char *text)
{
    if (*text == '{' || *text == '[' || *text == '"' || *text == '\'')
        return true;
    return strcmp(text, "null") == 0 || is_plain_json(text);
}

static char *trimmed(const char *from, size_t len)
{
    static const char blanks[] = " \t\r\n";
    while (len > 0 && strchr(blanks, *from) != NULL) {
        from++;
        len--;
    }
    while (len > 0 && strchr(blanks, from[len - 1]) != NULL)
        len--;
    return sl_strndup(from, len);
}

static bool apply_text_item(sl_yaml *root, const char *source, const char *item)
{
    const char *arrow = strstr(item, "->");
    char *path = arrow != NULL ? trimmed(item, (size_t)(arrow - item)) : NULL;
    char *text = arrow != NULL ? trimmed(arrow + 2, strlen(arrow + 2)) : NULL;
    const char *why = NULL;
    char *parse_why = NULL;
    sl_yaml *value = NULL;
    bool applied = false;
    if (!sl_utf8_is_valid(sl_slice_str(item)))
        why = "an override is UTF-8 text";
    else if (arrow == NULL || *path != '/')
        why = "an override is /path->value";
    else if (!looks_like_json(text))
        why = "the value is not JSON (texts need quotes)";
    else if (strcmp(text, "null") == 0)
        value = sl_yaml_new(SL_YAML_NULL, NULL); // as a document of its own it would be a map
    else if (sl_yaml_parse(source, sl_slice_str(text), &value, &parse_why) != SL_OK)
        why = parse_why;
    if (value != NULL)
        applied = apply_item(root, source, path, &value);
    if (why != NULL)
        // the value may be a secret, so only the path is shown
        sl_warn(SL_C_CONF, "CONF-OVERRIDE-SKIPPED", SL_S("path", path != NULL ? path : "?"),
                SL_S("why", why), SL_S("source", source));
    sl_yaml_free(&value);
    sl_free(parse_why);
    sl_free(path);
    sl_free(text);
    return applied;
}

/* Length of the item that begins at from: up to ';' outside quotes. */
static size_t item_length(const char *from, size_t len)
{
    char quote = '\0';
    for (size_t i = 0; i < len; i++) {
        if (quote != '\0' && from[i] == '\\')
            i++;
        else if (quote != '\0')
            quote = from[i] == quote ? '\0' : quote;
        else if (from[i] == '"' || from[i] == '\'')
            quote = from[i];
        else if (from[i] == ';')
            return i;
    }
    return len;
}

/* Blanks out comment lines in place. */
static void drop_comment_lines(char *text)
{
    bool line_start = true;
    bool comment = false;
    for (char *p = text; *p != '\0'; p++) {
        if (*p == '\n') {
            line_start = true;
            comment = false;
        } else if (line_start && *p != ' ' && *p != '\t') {
            line_start = false;
            comment = *p == '#';
        }
        if (comment)
            *p = ' ';
    }
}

unsigned sl_rho_apply(sl_yaml *root, const char *source, sl_slice text, bool comments)
{
    char *all = sl_strndup(text.ptr, text.len);
    if (comments)
        drop_comment_lines(all);
    unsigned applied = 0;
    const char *at = all;
    size_t left = strlen(all);
    while (left > 0) {
        size_t len = item_length(at, left);
        char *item = trimmed(at, len);
        if (*item != '\0')
            applied += apply_text_item(root, source, item);
        sl_free(item);
        size_t step_bytes = len < left ? len + 1 : len;
        at += step_bytes;
        left -= step_bytes;
    }
    sl_free(all);
    return applied;
}

/* ---- override files ---- */

static bool has_extension(const char *path, const char *extension)
{
    size_t len = strlen(path), ext = strlen(extension);
    return len > ext && strcasecmp(path + len - ext, extension) == 0;
}

/* JSON with comments: blanks them out, outside of texts. */
static void drop_json_comments(char *text)
{
    bool in_text = false;
    for (char *p = text; *p != '\0'; p++) {
        if (in_text && *p == '\\' && p[1] != '\0') {
            p++;
        } else if (*p == '"') {
            in_text = !in_text;
        } else if (!in_text && p[0] == '/' && p[1] == '/') {
            while (*p != '\0' && *p != '\n')
                *p++ = ' ';
            if (*p == '\0')
                break;
        } else if (!in_text && p[0] == '/' && p[1] == '*') {
            char *end = strstr(p + 2, "*/");
            char *stop = end != NULL ? end + 2 : p + strlen(p);
            for (; p < stop; p++)
                *p = *p == '\n' ? '\n' : ' ';
            p--;
        }
    }
}

static sl_err read_file(const char *path, char **text, char **why)
{
    sl_buf bytes;
    sl_buf_init(&bytes, SL_YAML_MAX_BYTES);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    sl_err err = fd < 0 ? sl_err_from_errno(errno) : SL_OK;
    while (err == SL_OK) {
        uint8_t *room;
        err = sl_buf_reserve(&bytes, 4096, &room);
        if (err != SL_OK)
            break;
        ssize_t got = read(fd, room, 4096);
        if (got < 0)
            err = sl_err_from_errno(errno);
        if (got <= 0)
            break;
        sl_buf_commit(&bytes, (size_t)got);
    }
    if (fd >= 0)
        close(fd);
    if (err == SL_OK)
        *text = sl_strndup(sl_buf_peek(&bytes).ptr, sl_buf_peek(&bytes).len);
    else
        err = sl_why(why, err, "%s: cannot be read: %s", path, sl_err_text(err));
    sl_buf_fini(&bytes);
    return err;
}

static sl_err apply_map(sl_yaml *root, const char *path, const char *text, char **why)
{
    sl_yaml *map = NULL;
    sl_err err = sl_yaml_parse(path, sl_slice_str(text), &map, why);
    if (err == SL_OK && map->kind != SL_YAML_MAP)
        err = sl_why(why, SL_EINVAL, "%s: an overrides file is a map of /path to value", path);
    for (size_t i = 0; err == SL_OK && i < map->count; i++) {
        sl_yaml *value = map->kid[i];
        if (value->key[0] != '/') {
            sl_warn(SL_C_CONF, "CONF-OVERRIDE-SKIPPED", SL_S("path", value->key),
                    SL_S("why", "keys of an overrides file begin with /"), SL_S("source", path));
            continue;
        }
        char *key = sl_strdup(value->key);
        sl_yaml *empty = sl_yaml_new(SL_YAML_NULL, NULL);
        map->kid[i] = empty; // the value leaves its old parent
        apply_item(root, path, key, &value);
        sl_yaml_free(&value);
        sl_free(key);
    }
    sl_yaml_free(&map);
    return err;
}

sl_err sl_rho_apply_file(sl_yaml *root, const char *path, char **why)
{
    bool conf = has_extension(path, ".conf");
    bool jsonc = has_extension(path, ".jsonc");
    if (!conf && !jsonc && !has_extension(path, ".json") && !has_extension(path, ".yml") &&
        !has_extension(path, ".yaml")) {
        return sl_why(why, SL_EINVAL,
                      "%s: an overrides file ends in .yml, .yaml, .json, .jsonc or .conf", path);
    }
    char *text = NULL;
    sl_err err = read_file(path, &text, why);
    if (err != SL_OK)
        return err;
    if (conf) {
        sl_rho_apply(root, path, sl_slice_str(text), true);
    } else {
        if (jsonc)
            drop_json_comments(text);
        err = apply_map(root, path, text, why);
    }
    sl_free(text);
    return err;
}
