/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_int: what conf.c (loading, values) and conf_write.c (printing, reference pages) share.
 * Private to these two files.
 */
#ifndef SL_BASE_CONF_INT_H
#define SL_BASE_CONF_INT_H

#include "base/conf.h"
#include "base/map.h"

typedef struct conf_value {
    char *text;    /* owned; effective value */
    int64_t num;   /* SL_CONF_INT, and 0 or 1 for SL_CONF_BOOL */
    char *origin;  /* owned; "broker.yml:12", "TB_SERVICE_ID"; NULL: the default */
    unsigned pass; /* load that set it last, to find a key that one file sets twice */
} conf_value;

struct sl_conf {
    const sl_conf_row *rows; /* borrowed, static */
    size_t count;
    sl_map *index;      /* owned; key -> conf_value */
    conf_value *values; /* owned; one a row */
    unsigned pass;
};

#endif
