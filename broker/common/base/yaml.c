/* SPDX-License-Identifier: Apache-2.0
 *
 * yaml: builds the small tree from libyaml's events, keeping an explicit stack of open lists and
 * maps. What a configuration file does not need is refused instead of half understood: anchors,
 * aliases, tags, several documents, keys that are not plain words, and duplicate keys.
 */
#include "base/yaml.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <yaml.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/buf.h"
#include "base/map.h"

typedef struct frame {
    sl_yaml *node; /* borrowed: it hangs in the tree */
    sl_map *seen;  /* owned; keys of a map so far -> their node */
    char *key;     /* owned; key that waits for its value */
    int key_line;
} frame;

typedef struct builder {
    const char *name; /* of the text, for messages */
    yaml_parser_t parser;
    frame stack[SL_YAML_MAX_DEPTH];
    size_t depth;
    size_t nodes;
    sl_yaml *root; /* owned until taken */
    char **why;
} builder;

__attribute__((format(printf, 1, 2))) static char *format_text(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char *text = NULL;
    int len = vasprintf(&text, fmt, args);
    va_end(args);
    SL_ASSERT(len >= 0);
    // Messages are freed by sl_free, so the library's memory is not handed out.
    char *copy = sl_strdup(text);
    free(text);
    return copy;
}

static sl_err refuse(builder *bd, size_t line, const char *what)
{
    *bd->why = format_text("%s:%zu: %s", bd->name, line, what);
    return SL_EINVAL;
}

static sl_err refuse_key(builder *bd, size_t line, const char *key, const char *what)
{
    *bd->why = format_text("%s:%zu: key \"%s\" %s", bd->name, line, key, what);
    return SL_EINVAL;
}

sl_yaml *sl_yaml_new(sl_yaml_kind kind, const char *text)
{
    sl_yaml *node = sl_calloc(1, sizeof(*node));
    node->kind = kind;
    if (text != NULL)
        node->text = sl_strdup(text);
    return node;
}

void sl_yaml_free(sl_yaml **tree)
{
    sl_yaml *mine = *tree;
    *tree = NULL;
    if (mine == NULL)
        return;
    for (size_t i = 0; i < mine->count; i++)
        sl_yaml_free(&mine->kid[i]);
    sl_free(mine->kid);
    sl_free(mine->key);
    sl_free(mine->text);
    sl_free(mine);
}

sl_yaml *sl_yaml_get(const sl_yaml *map, const char *key)
{
    if (map == NULL || map->kind != SL_YAML_MAP)
        return NULL;
    for (size_t i = 0; i < map->count; i++)
        if (strcmp(map->kid[i]->key, key) == 0)
            return map->kid[i];
    return NULL;
}

void sl_yaml_add(sl_yaml *list, sl_yaml **child)
{
    // Room doubles at powers of two, so the count is all the bookkeeping there is.
    if ((list->count & (list->count - 1)) == 0) {
        size_t room = list->count == 0 ? 1 : list->count * 2;
        list->kid = sl_realloc(list->kid, room * sizeof(sl_yaml *));
    }
    list->kid[list->count++] = *child;
    *child = NULL;
}

void sl_yaml_set(sl_yaml *map, const char *key, sl_yaml **child)
{
    SL_ASSERT(map->kind == SL_YAML_MAP);
    sl_free((*child)->key);
    (*child)->key = sl_strdup(key);
    for (size_t i = 0; i < map->count; i++) {
        if (strcmp(map->kid[i]->key, key) == 0) {
            sl_yaml_free(&map->kid[i]);
            map->kid[i] = *child;
            *child = NULL;
            return;
        }
    }
    sl_yaml_add(map, child);
}

static bool is_null_word(const char *text)
{
    return text[0] == '\0' || strcmp(text, "~") == 0 || strcmp(text, "null") == 0 ||
           strcmp(text, "Null") == 0 || strcmp(text, "NULL") == 0;
}

static size_t event_line(const yaml_event_t *event)
{
    return event->start_mark.line + 1;
}

// Hangs a finished or just opened node where the document is; takes *node.
static sl_err attach(builder *bd, sl_yaml **node)
{
    sl_yaml *added = *node;
    if (bd->depth == 0) {
        bd->root = added;
        *node = NULL;
        return SL_OK;
    }
    frame *top = &bd->stack[bd->depth - 1];
    if (top->node->kind == SL_YAML_LIST) {
        sl_yaml_add(top->node, node);
        return SL_OK;
    }
    if (top->key == NULL)
        return refuse(bd, (size_t)added->line, "a key must be a plain word");
    added->key = top->key;
    added->line = top->key_line; // where a reader looks for the setting
    top->key = NULL;
    sl_yaml_add(top->node, node);
    return SL_OK;
}

static sl_err on_key(builder *bd, frame *top, const char *key, size_t line)
{
    if (key[0] == '\0')
        return refuse(bd, line, "an empty key");
    if (top->seen == NULL)
        top->seen = sl_map_new(SL_YAML_MAX_NODES);
    void *old = NULL;
    sl_err err = sl_map_put(top->seen, sl_slice_str(key), top->node, &old);
    SL_ASSERT(err == SL_OK); // nodes are counted before
    if (old != NULL)
        return refuse_key(bd, line, key, "appears twice");
    top->key = sl_strdup(key);
    top->key_line = (int)line;
    return SL_OK;
}

static sl_err on_scalar(builder *bd, const yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value;
    size_t line = event_line(event);
    if (strlen(text) != event->data.scalar.length)
        return refuse(bd, line, "a value holds a NUL byte");
    frame *top = bd->depth == 0 ? NULL : &bd->stack[bd->depth - 1];
    if (top != NULL && top->node->kind == SL_YAML_MAP && top->key == NULL)
        return on_key(bd, top, text, line);
    bool plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    bool empty = plain && is_null_word(text);
    sl_yaml *node = sl_yaml_new(empty ? SL_YAML_NULL : SL_YAML_SCALAR, empty ? NULL : text);
    node->quoted = event->data.scalar.style == YAML_SINGLE_QUOTED_SCALAR_STYLE ||
                   event->data.scalar.style == YAML_DOUBLE_QUOTED_SCALAR_STYLE;
    node->line = (int)line;
    sl_err err = attach(bd, &node);
    sl_yaml_free(&node);
    return err;
}

static sl_err on_open(builder *bd, sl_yaml_kind kind, const yaml_event_t *event)
{
    size_t line = event_line(event);
    if (bd->depth == SL_YAML_MAX_DEPTH)
        return refuse(bd, line, "nested too deeply");
    sl_yaml *node = sl_yaml_new(kind, NULL);
    sl_yaml *kept = node;
    node->line = (int)line;
    sl_err err = attach(bd, &node);
    sl_yaml_free(&node);
    if (err == SL_OK)
        bd->stack[bd->depth++] = (frame){.node = kept};
    return err;
}

static void close_frame(builder *bd)
{
    frame *top = &bd->stack[--bd->depth];
    sl_map_free(&top->seen);
    sl_free(top->key);
}

static sl_err check_node(builder *bd, const yaml_event_t *event, const yaml_char_t *anchor,
                         const yaml_char_t *tag)
{
    if (anchor != NULL)
        return refuse(bd, event_line(event), "anchors (&name) are not supported");
    if (tag != NULL)
        return refuse(bd, event_line(event), "tags (!name) are not supported");
    if (++bd->nodes > SL_YAML_MAX_NODES)
        return refuse(bd, event_line(event), "too many values");
    return SL_OK;
}

static sl_err on_event(builder *bd, const yaml_event_t *event)
{
    sl_err err = SL_OK;
    switch (event->type) {
    case YAML_ALIAS_EVENT:
        return refuse(bd, event_line(event), "aliases (*name) are not supported");
    case YAML_SCALAR_EVENT:
        err = check_node(bd, event, event->data.scalar.anchor, event->data.scalar.tag);
        return err == SL_OK ? on_scalar(bd, event) : err;
    case YAML_SEQUENCE_START_EVENT:
        err = check_node(bd, event, event->data.sequence_start.anchor,
                         event->data.sequence_start.tag);
        return err == SL_OK ? on_open(bd, SL_YAML_LIST, event) : err;
    case YAML_MAPPING_START_EVENT:
        err =
            check_node(bd, event, event->data.mapping_start.anchor, event->data.mapping_start.tag);
        return err == SL_OK ? on_open(bd, SL_YAML_MAP, event) : err;
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        close_frame(bd);
        return SL_OK;
    case YAML_DOCUMENT_START_EVENT:
        if (bd->root != NULL)
            return refuse(bd, event_line(event), "a second document");
        return SL_OK;
    default:
        return SL_OK;
    }
}

static sl_err parser_error(builder *bd)
{
    const yaml_parser_t *parser = &bd->parser;
    const char *problem = parser->problem != NULL ? parser->problem : "not readable as YAML";
    size_t line = parser->problem_mark.line + 1;
    if (parser->error == YAML_READER_ERROR)
        *bd->why = format_text("%s: %s at byte %zu", bd->name, problem, parser->problem_offset);
    else if (parser->context != NULL)
        *bd->why = format_text("%s:%zu: %s (%s)", bd->name, line, problem, parser->context);
    else
        *bd->why = format_text("%s:%zu: %s", bd->name, line, problem);
    return SL_EINVAL;
}

static sl_err build(builder *bd)
{
    for (;;) {
        yaml_event_t event;
        if (!yaml_parser_parse(&bd->parser, &event))
            return parser_error(bd);
        bool last = event.type == YAML_STREAM_END_EVENT;
        sl_err err = on_event(bd, &event);
        yaml_event_delete(&event);
        if (err != SL_OK || last)
            return err;
    }
}

sl_err sl_yaml_parse(const char *name, sl_slice text, sl_yaml **out, char **why)
{
    builder bd = {.name = name, .why = why};
    if (text.len > SL_YAML_MAX_BYTES) {
        *why = format_text("%s: larger than %u bytes", name, SL_YAML_MAX_BYTES);
        return SL_ETOOBIG;
    }
    int ready = yaml_parser_initialize(&bd.parser);
    SL_ASSERT(ready == 1); // fails for want of memory only
    yaml_parser_set_encoding(&bd.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&bd.parser, text.len == 0 ? (const uint8_t *)"" : text.ptr,
                                 text.len);
    sl_err err = build(&bd);
    yaml_parser_delete(&bd.parser);
    while (bd.depth != 0)
        close_frame(&bd);
    if (err == SL_OK) {
        // No document, or a document of comments only.
        if (bd.root == NULL || bd.root->kind == SL_YAML_NULL) {
            sl_yaml_free(&bd.root);
            bd.root = sl_yaml_new(SL_YAML_MAP, NULL);
            bd.root->line = 1;
        }
        *out = bd.root;
        bd.root = NULL;
    }
    sl_yaml_free(&bd.root);
    return err;
}

static sl_err file_error(const char *path, char **why)
{
    int errnum = errno;
    char text[128];
    *why = format_text("%s: %s", path, strerror_r(errnum, text, sizeof(text)));
    return sl_err_from_errno(errnum);
}

static sl_err read_all(int fd, const char *path, sl_buf *buf, char **why)
{
    for (;;) {
        uint8_t *room;
        const size_t step = 65536;
        if (sl_buf_reserve(buf, step, &room) != SL_OK) {
            *why = format_text("%s: larger than %u bytes", path, SL_YAML_MAX_BYTES);
            return SL_ETOOBIG;
        }
        ssize_t len = read(fd, room, step);
        if (len < 0 && errno == EINTR)
            continue;
        if (len < 0)
            return file_error(path, why);
        if (len == 0)
            return SL_OK;
        sl_buf_commit(buf, (size_t)len);
    }
}

sl_err sl_yaml_parse_file(const char *path, sl_yaml **out, char **why)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return file_error(path, why);
    sl_buf buf;
    sl_buf_init(&buf, SL_YAML_MAX_BYTES + 65536);
    sl_err err = read_all(fd, path, &buf, why);
    close(fd);
    if (err == SL_OK)
        err = sl_yaml_parse(path, sl_buf_peek(&buf), out, why);
    sl_buf_fini(&buf);
    return err;
}
