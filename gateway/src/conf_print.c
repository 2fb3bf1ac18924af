/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_print: the three texts made from the table of keys: the effective configuration, the
 * commented template (etc/gateway.yml), the reference page (docs/configuration-gateway.md).
 */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "conf_int.h"
#include "rho.h"

#define WRAP_COLS 100

#define TRY(expr)                                                                                  \
    do {                                                                                           \
        if (err == SL_OK)                                                                          \
            err = (expr);                                                                          \
    } while (0)

/* Opens the blocks of path that the path before it did not have open. */
static sl_err open_blocks(sl_buf *out, const char *before, const char *path, int *depth,
                          bool spaced)
{
    sl_err err = SL_OK;
    *depth = 0;
    const char *level = path;
    bool same = true;
    for (const char *slash; (slash = strchr(level, '/')) != NULL; level = slash + 1) {
        size_t sofar = (size_t)(slash - path) + 1;
        same = same && strncmp(before, path, sofar) == 0;
        if (!same) {
            if (*depth == 0 && spaced && *before != '\0')
                TRY(sl_buf_append_u8(out, '\n'));
            TRY(sl_buf_printf(out, "%*s%.*s:\n", *depth * 2, "", (int)(slash - level), level));
        }
        ++*depth;
    }
    return err;
}

static const char *leaf(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static sl_err write_value(sl_buf *out, const sl_gateway_conf *cf, const sl_gateway_row *row)
{
    const sl_conf_value *value = &cf->values[row - sl_gateway_rows];
    switch (row->type) {
    case SL_GT_BOOL:
        return sl_buf_append_str(out, value->num != 0 ? "true" : "false");
    case SL_GT_INT:
        return sl_buf_printf(out, "%lld", (long long)value->num);
    case SL_GT_LIST:
    case SL_GT_MAP:
        return sl_rho_write_masked(out, leaf(row->path), sl_conf_list_node(cf, row->path));
    default:
        break;
    }
    if (value->text == NULL)
        return sl_buf_append_str(out, "null");
    if (row->secret)
        return sl_buf_append_str(out, "\"***\"");
    sl_buf shown;
    sl_buf_init(&shown, strlen(value->text) + 16);
    sl_err err = sl_rho_write_url(&shown, value->text);
    TRY(sl_json_write_string(out, sl_buf_peek(&shown)));
    sl_buf_fini(&shown);
    return err;
}

sl_err sl_gateway_conf_print(const sl_gateway_conf *cf, sl_buf *out)
{
    sl_err err = SL_OK;
    const char *before = "";
    for (size_t i = 0; i < sl_gateway_row_count; i++) {
        const sl_gateway_row *row = &sl_gateway_rows[i];
        if (row->type == SL_GT_RESERVED)
            continue;
        int depth;
        TRY(open_blocks(out, before, row->path, &depth, false));
        TRY(sl_buf_printf(out, "%*s%s: ", depth * 2, "", leaf(row->path)));
        TRY(write_value(out, cf, row));
        TRY(sl_buf_append_u8(out, '\n'));
        before = row->path;
    }
    return err;
}

/* A comment of as many lines as the text needs. */
static sl_err write_comment(sl_buf *out, int indent, const char *text)
{
    sl_err err = SL_OK;
    size_t room = WRAP_COLS - (size_t)indent - 2;
    while (*text != '\0') {
        size_t len = strlen(text);
        if (len > room) {
            len = room;
            while (len > 0 && text[len] != ' ')
                len--;
        }
        TRY(sl_buf_printf(out, "%*s# %.*s\n", indent, "", (int)len, text));
        text += len;
        text += strspn(text, " ");
    }
    return err;
}

static sl_err write_default(sl_buf *out, const sl_gateway_row *row)
{
    if (row->def == NULL)
        return sl_buf_append_str(out, "null");
    if (row->type == SL_GT_STRING)
        return sl_json_write_string(out, sl_slice_str(row->def));
    return sl_buf_append_str(out, row->def);
}

/* "0 to 65535 s", "one of a, b"; nothing for the rest. */
static sl_err write_range(sl_buf *out, const sl_gateway_row *row, const char *before)
{
    sl_err err = SL_OK;
    if (row->type == SL_GT_INT) {
        TRY(sl_buf_printf(out, "%s%lld to %lld%s%s", before, (long long)row->min,
                          (long long)row->max, row->unit != NULL ? " " : "",
                          row->unit != NULL ? row->unit : ""));
    } else if (row->type == SL_GT_ENUM || row->type == SL_GT_LIST) {
        TRY(sl_buf_printf(out, "%s%s", before, row->type == SL_GT_ENUM ? "" : "items of "));
        for (const char *p = row->words; *p != '\0'; p++) {
            if (*p == '|')
                TRY(sl_buf_append_str(out, ", "));
            else if (*p == '*')
                TRY(sl_buf_append_str(out, " (required)"));
            else
                TRY(sl_buf_append_u8(out, (uint8_t)*p));
        }
    }
    return err;
}

sl_err sl_gateway_conf_write_template(sl_buf *out)
{
    sl_err err = sl_buf_append_str(
        out, "# SPDX-License-Identifier: Apache-2.0\n#\n"
             "# Every key of sluice-gateway with its default. Made by\n"
             "#   sluice-gateway --print-reference template\n"
             "# A block without `enabled: true` leaves a plugin off that is off by default.\n\n");
    const char *before = "";
    for (size_t i = 0; i < sl_gateway_row_count; i++) {
        const sl_gateway_row *row = &sl_gateway_rows[i];
        if (row->type == SL_GT_RESERVED)
            continue;
        int depth;
        TRY(open_blocks(out, before, row->path, &depth, true));
        TRY(write_comment(out, depth * 2, row->help));
        sl_buf range;
        sl_buf_init(&range, 1024);
        TRY(write_range(&range, row, ""));
        TRY(sl_buf_append_u8(&range, '\0'));
        TRY(write_comment(out, depth * 2, (const char *)sl_buf_peek(&range).ptr));
        sl_buf_fini(&range);
        TRY(sl_buf_printf(out, "%*s%s: ", depth * 2, "", leaf(row->path)));
        TRY(write_default(out, row));
        TRY(sl_buf_append_u8(out, '\n'));
        before = row->path;
    }
    return err;
}

static sl_err write_cell(sl_buf *out, const char *text)
{
    sl_err err = SL_OK;
    for (; *text != '\0'; text++) {
        if (*text == '|')
            TRY(sl_buf_append_u8(out, '\\'));
        TRY(sl_buf_append_u8(out, (uint8_t)*text));
    }
    return err;
}

static sl_err write_reference_row(sl_buf *out, const sl_gateway_row *row)
{
    static const char *const types[] = {"true/false", "number", "text", "word", "list", "map", ""};
    sl_err err = sl_buf_printf(out, "| `%s` | %s | ", row->path, types[row->type]);
    TRY(sl_buf_append_u8(out, '`'));
    TRY(write_default(out, row));
    TRY(sl_buf_append_str(out, "` | "));
    TRY(write_cell(out, row->help));
    TRY(write_range(out, row, " Range: "));
    TRY(sl_buf_append_str(out, " |\n"));
    return err;
}

sl_err sl_gateway_conf_write_reference(sl_buf *out)
{
    sl_err err =
        sl_buf_append_str(out, "# Configuration of sluice-gateway\n\n"
                               "Made by `sluice-gateway --print-reference config`; do not edit. "
                               "How the parts play together is in [gateway.md](gateway.md).\n\n"
                               "| key | type | default | meaning |\n| --- | --- | --- | --- |\n");
    for (size_t i = 0; i < sl_gateway_row_count; i++) {
        if (sl_gateway_rows[i].type != SL_GT_RESERVED)
            TRY(write_reference_row(out, &sl_gateway_rows[i]));
    }
    TRY(sl_buf_append_str(out,
                          "\n## Keys that are known but not available\n\n"
                          "Another value than the accepted one stops the start with a message.\n\n"
                          "| key | accepted | message |\n| --- | --- | --- |\n"));
    for (size_t i = 0; i < sl_gateway_row_count; i++) {
        const sl_gateway_row *row = &sl_gateway_rows[i];
        if (row->type != SL_GT_RESERVED)
            continue;
        bool any = strcmp(row->words, "*") == 0;
        TRY(sl_buf_printf(out, "| `%s` | ", row->path));
        TRY(write_cell(out, any ? "anything, ignored" : row->words));
        TRY(sl_buf_printf(out, " | %s |\n", row->help));
    }
    return err;
}
