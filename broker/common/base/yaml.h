/* SPDX-License-Identifier: Apache-2.0
 *
 * yaml: a small document tree read by libyaml, with line numbers, bounded in depth and size. For
 * conf and for the gateway's RESTHeart-style file. @thread init (a tree belongs to its maker)
 */
#ifndef SL_BASE_YAML_H
#define SL_BASE_YAML_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/slice.h"

typedef enum sl_yaml_kind { SL_YAML_NULL, SL_YAML_SCALAR, SL_YAML_LIST, SL_YAML_MAP } sl_yaml_kind;

typedef struct sl_yaml {
    sl_yaml_kind kind;
    bool quoted;          /* a scalar written in quotes */
    int line;             /* from 1; 0 when made by sl_yaml_set */
    char *key;            /* owned; name under the parent map, else NULL */
    char *text;           /* owned; scalar text */
    size_t count;         /* children */
    struct sl_yaml **kid; /* owned */
} sl_yaml;

#define SL_YAML_MAX_DEPTH 32
#define SL_YAML_MAX_BYTES (4u << 20)
#define SL_YAML_MAX_NODES 100000

/** Parses one document (anchors and aliases refused). An empty text is an empty map. *why: owned
 * message with name and line. */
SL_MUST_USE sl_err sl_yaml_parse(const char *name, sl_slice text, sl_yaml **out, char **why);
SL_MUST_USE sl_err sl_yaml_parse_file(const char *path, sl_yaml **out, char **why);
void sl_yaml_free(sl_yaml **tree);
/** Child of a map by name, or NULL. */
sl_yaml *sl_yaml_get(const sl_yaml *map, const char *key);
/** Replaces or adds a child (the map takes *child and NULLs it). */
void sl_yaml_set(sl_yaml *map, const char *key, sl_yaml **child);
/** Appends to a list (takes *child). */
void sl_yaml_add(sl_yaml *list, sl_yaml **child);
/** A scalar node with this text, or a node of another kind without children (text NULL). */
sl_yaml *sl_yaml_new(sl_yaml_kind kind, const char *text);

#endif
