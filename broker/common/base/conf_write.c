/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_write: what a configuration table looks like on paper: the effective values
 * (--print-config), the commented file of etc/, and the Markdown reference. Rows of one section may
 * stand anywhere in the table; a section is written once, where its first row is.
 */
#include "base/conf.h"

#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "base/conf_int.h"
#include "base/json.h"

#define LINE_COLUMNS 100u
#define INDENT       2

/* One document being written. */
typedef struct page {
    const sl_conf_row *rows;
    size_t count;
    const sl_conf *cf;            /* values to print; NULL: a template of defaults */
    const char *const *overrides; /* of a template; key, value, ... NULL */
    sl_buf *out;
    sl_err err; /* the first one; nothing is written after it */
} page;

static void put(page *pg, const char *text)
{
    if (pg->err == SL_OK)
        pg->err = sl_buf_append_str(pg->out, text);
}

static void put_bytes(page *pg, const char *text, size_t len)
{
    if (pg->err == SL_OK)
        pg->err = sl_buf_append(pg->out, text, len);
}

static void put_indent(page *pg, unsigned depth)
{
    for (unsigned i = 0; i < depth * INDENT; i++)
        put(pg, " ");
}

static const char *type_word(sl_conf_type type)
{
    switch (type) {
    case SL_CONF_BOOL:
        return "true or false";
    case SL_CONF_INT:
        return "number";
    case SL_CONF_STRING:
        return "text";
    case SL_CONF_ENUM:
        return "word";
    }
    return "";
}

// Text as a double-quoted YAML scalar; numbers, booleans and words stay plain. A word that other
// YAML readers take for a boolean is quoted too.
static void put_scalar(page *pg, const sl_conf_row *row, const char *text)
{
    static const char *const booleans[] = {"on", "off", "yes", "no", "true", "false", "null"};
    bool quote = row->type == SL_CONF_STRING || text[0] == '\0';
    if (row->type == SL_CONF_ENUM)
        for (size_t i = 0; i < sizeof(booleans) / sizeof(booleans[0]); i++)
            quote = quote || strcmp(text, booleans[i]) == 0;
    if (!quote) {
        put(pg, text);
        return;
    }
    put(pg, "\"");
    for (sl_slice rest = sl_slice_str(text); rest.len != 0 && pg->err == SL_OK;) {
        uint32_t code = 0;
        size_t len = sl_utf8_next(rest, &code);
        SL_ASSERT(len != 0); // values are UTF-8, checked when they were set
        if (code == '"' || code == '\\')
            put(pg, "\\");
        if (code < 0x20 || (code >= 0x7F && code <= 0x9F) || code == 0x2028 || code == 0x2029 ||
            code == 0xFEFF || (code & 0xFFFE) == 0xFFFE)
            pg->err = sl_buf_printf(pg->out, code < 0x100 ? "\\x%02x" : "\\u%04x", code);
        else
            put_bytes(pg, (const char *)rest.ptr, len);
        rest = sl_slice_of(rest.ptr + len, rest.len - len);
    }
    put(pg, "\"");
}

static void put_comment(page *pg, unsigned depth, const char *text)
{
    size_t used = LINE_COLUMNS; // forces a first line
    while (*text != '\0') {
        size_t word = strcspn(text, " \n");
        if (used + 1 + word > LINE_COLUMNS) {
            if (used != LINE_COLUMNS)
                put(pg, "\n");
            put_indent(pg, depth);
            put(pg, "#");
            used = depth * INDENT + 1;
        }
        put(pg, " ");
        put_bytes(pg, text, word);
        used += 1 + word;
        text += word;
        text += strspn(text, " \n");
    }
    put(pg, "\n");
}

static void put_range(page *pg, const sl_conf_row *row)
{
    if (pg->err != SL_OK)
        return;
    if (row->type == SL_CONF_ENUM)
        put(pg, row->words);
    else if (row->type == SL_CONF_INT)
        pg->err = sl_buf_printf(pg->out, "%" PRId64 " .. %" PRId64, row->min, row->max);
}

// "# number, 1 .. 65535 ms; default 1883; environment LISTENER_TCP_BIND_PORT"
static void put_facts(page *pg, unsigned depth, const sl_conf_row *row)
{
    put_indent(pg, depth);
    put(pg, "# ");
    put(pg, type_word(row->type));
    if (row->type == SL_CONF_INT || row->type == SL_CONF_ENUM) {
        put(pg, row->type == SL_CONF_ENUM ? ": " : ", ");
        put_range(pg, row);
    }
    if (row->unit != NULL) {
        put(pg, " ");
        put(pg, row->unit);
    }
    put(pg, "; default ");
    put_scalar(pg, row, row->def);
    if (row->env != NULL) {
        put(pg, "; environment ");
        put(pg, row->env);
    }
    put(pg, "\n");
}

static const char *template_value(const page *pg, const sl_conf_row *row)
{
    for (const char *const *at = pg->overrides; at != NULL && *at != NULL; at += 2)
        if (strcmp(at[0], row->key) == 0)
            return at[1];
    return row->def;
}

static void put_row(page *pg, unsigned depth, size_t id, const char *name)
{
    const sl_conf_row *row = &pg->rows[id];
    if (pg->cf == NULL) {
        put_comment(pg, depth, row->help);
        put_facts(pg, depth, row);
    }
    put_indent(pg, depth);
    put(pg, name);
    put(pg, ": ");
    if (pg->cf == NULL) {
        put_scalar(pg, row, template_value(pg, row));
    } else {
        const conf_value *value = &pg->cf->values[id];
        bool masked = row->secret && value->text[0] != '\0';
        if (masked)
            put(pg, "\"***\"");
        else
            put_scalar(pg, row, value->text);
        if (value->origin != NULL) {
            put(pg, " # ");
            put(pg, value->origin);
        }
    }
    put(pg, "\n");
}

// True when an earlier row already began this row's section at that length of the key.
static bool is_written(const page *pg, size_t id, size_t len)
{
    for (size_t i = 0; i < id; i++)
        if (strncmp(pg->rows[i].key, pg->rows[id].key, len) == 0 && pg->rows[i].key[len] == '.')
            return true;
    return false;
}

// Writes what lies under the first prefix_len bytes of rows[first].key. The depth is that of the
// keys in our own tables.
static void put_section(page *pg, size_t first, size_t prefix_len, unsigned depth)
{
    const char *prefix = pg->rows[first].key;
    for (size_t i = first; i < pg->count && pg->err == SL_OK; i++) {
        const char *key = pg->rows[i].key;
        if (strncmp(key, prefix, prefix_len) != 0)
            continue;
        const char *name = key + prefix_len;
        size_t len = strcspn(name, ".");
        if (name[len] == '\0') {
            put_row(pg, depth, i, name);
        } else if (!is_written(pg, i, prefix_len + len)) {
            put_indent(pg, depth);
            put_bytes(pg, name, len);
            put(pg, ":\n");
            put_section(pg, i, prefix_len + len + 1, depth + 1);
        }
    }
}

sl_err sl_conf_print(const sl_conf *cf, sl_buf *out)
{
    page pg = {.rows = cf->rows, .count = cf->count, .cf = cf, .out = out};
    if (cf->count != 0)
        put_section(&pg, 0, 0, 0);
    return pg.err;
}

sl_err sl_conf_write_template(const sl_conf_row *rows, size_t count, const char *title,
                              const char *const *overrides, sl_buf *out)
{
    page pg = {.rows = rows, .count = count, .overrides = overrides, .out = out};
    put_comment(&pg, 0, title);
    if (count != 0)
        put_section(&pg, 0, 0, 0);
    return pg.err;
}

static void put_markdown(page *pg, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '|')
            put(pg, "\\|");
        else
            put_bytes(pg, *text == '\n' ? " " : text, 1);
    }
}

// A cell in code marks; an empty one stays empty.
static void put_code_cell(page *pg, const char *text)
{
    if (text != NULL && text[0] != '\0') {
        put(pg, " `");
        put_markdown(pg, text);
        put(pg, "`");
    }
    put(pg, " |");
}

sl_err sl_conf_write_reference(const sl_conf_row *rows, size_t count, sl_buf *out)
{
    page pg = {.rows = rows, .count = count, .out = out};
    put(&pg, "| key | environment | type | default | allowed | meaning |\n"
             "| --- | --- | --- | --- | --- | --- |\n");
    for (size_t i = 0; i < count; i++) {
        const sl_conf_row *row = &rows[i];
        put(&pg, "|");
        put_code_cell(&pg, row->key);
        put_code_cell(&pg, row->env);
        put(&pg, " ");
        put(&pg, type_word(row->type));
        put(&pg, " |");
        put_code_cell(&pg, row->def);
        put(&pg, " ");
        if (row->type == SL_CONF_ENUM)
            put_markdown(&pg, row->words);
        else
            put_range(&pg, row);
        if (row->unit != NULL) {
            put(&pg, " ");
            put(&pg, row->unit);
        }
        put(&pg, " | ");
        put_markdown(&pg, row->help);
        put(&pg, " |\n");
    }
    return pg.err;
}
