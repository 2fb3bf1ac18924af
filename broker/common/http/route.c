/* SPDX-License-Identifier: Apache-2.0
 *
 * route: finds the route of a request: patterns of segments, {names}, and a star at the end. Pure
 * functions over the table that the server froze at start.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "http/http_int.h"

#define MAX_RANKED_SEGMENTS 31

enum segment_kind { KIND_STAR = 1, KIND_NAME = 2, KIND_LITERAL = 3 };

typedef struct match {
    uint64_t rank; /* two bits a segment, the first one highest: literal > name > star */
    uint32_t name_count;
    struct {
        uint32_t in_pattern; /* offset behind the brace */
        sl_slice value;
    } names[SL_HTTP_MAX_NAMES];
    sl_slice rest;
} match;

static void rank_segment(match *mt, unsigned index, enum segment_kind kind)
{
    if (index < MAX_RANKED_SEGMENTS)
        mt->rank |= (uint64_t)kind << (2 * (MAX_RANKED_SEGMENTS - index));
}

/* Both begin at a '/'. */
static bool match_path(const char *pattern, const char *path, match *mt)
{
    const char *pat = pattern;
    for (unsigned index = 0;; index++) {
        if (strcmp(pat, "/*") == 0) {
            rank_segment(mt, index, KIND_STAR);
            mt->rest = sl_slice_str(*path == '/' ? path + 1 : path);
            return true;
        }
        if (*pat == '\0' || *path == '\0')
            return *pat == *path;
        size_t pat_len = strcspn(++pat, "/");
        size_t seg_len = strcspn(++path, "/");
        if (pat_len > 2 && pat[0] == '{' && pat[pat_len - 1] == '}') {
            if (seg_len == 0)
                return false;
            SL_ASSERT(mt->name_count < SL_HTTP_MAX_NAMES);
            mt->names[mt->name_count].in_pattern = (uint32_t)(pat + 1 - pattern);
            mt->names[mt->name_count++].value = sl_slice_of(path, seg_len);
            rank_segment(mt, index, KIND_NAME);
        } else {
            if (pat_len != seg_len || memcmp(pat, path, seg_len) != 0)
                return false;
            rank_segment(mt, index, KIND_LITERAL);
        }
        pat += pat_len;
        path += seg_len;
    }
}

static unsigned methods_of(const sl_http_route *route)
{
    bool has_get = (route->methods & SL_HTTP_M(GET)) != 0;
    return has_get ? route->methods | SL_HTTP_M(HEAD) : route->methods;
}

/* Keeps what the names stand for in the request. */
static void keep(sl_http_req *req, const match *mt)
{
    sl_err err = SL_OK;
    req->name_count = mt->name_count;
    for (uint32_t i = 0; i < mt->name_count && err == SL_OK; i++) {
        req->names[i].name = mt->names[i].in_pattern;
        err = http_req_intern(req, mt->names[i].value, &req->names[i].value);
    }
    if (mt->rest.len > 0 && err == SL_OK)
        err = http_req_intern(req, mt->rest, &req->rest);
    SL_ASSERT(err == SL_OK); // the buffer has room for the target three times
}

const sl_http_route *http_route_find(const sl_http_route *routes, size_t count, sl_http_req *req,
                                     unsigned *allow)
{
    const sl_http_route *best = NULL;
    match best_match = {0};
    *allow = 0;
    // a copy, because keeping the names may move the request's text
    char *path = sl_strdup(sl_http_req_path(req));
    for (size_t i = 0; i < count; i++) {
        match mt = {0};
        if (!match_path(routes[i].pattern, path, &mt))
            continue;
        *allow |= methods_of(&routes[i]);
        if ((methods_of(&routes[i]) & (1u << req->method)) == 0)
            continue;
        if (best == NULL || mt.rank > best_match.rank) {
            best = &routes[i];
            best_match = mt;
        }
    }
    if (best != NULL)
        keep(req, &best_match);
    sl_free(path);
    return best;
}
