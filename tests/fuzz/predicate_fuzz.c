/* SPDX-License-Identifier: Apache-2.0
 *
 * Predicates and request targets (http/predicate.h, http/request.h): the first line is a method
 * and a target, the rest a predicate. What is understood can be evaluated; what is not says why.
 */
#include "fuzz.h"
#include "http/predicate.h"

/* A request of the first line, or NULL when the front would answer 400. */
static sl_http_req *make_request(const char *line)
{
    char word[8];
    sl_http_method method;
    size_t len = strcspn(line, " ");
    if (len >= sizeof(word) || line[len] == '\0')
        return NULL;
    memcpy(word, line, len);
    word[len] = '\0';
    if (sl_http_method_parse(word, &method) != SL_OK)
        return NULL;
    sl_http_req *req = NULL;
    const char *why = NULL;
    if (sl_http_req_make(method, line + len + 1, &req, &why) != SL_OK) {
        SL_ASSERT(req == NULL && why != NULL);
        return NULL;
    }
    SL_ASSERT(sl_http_req_path(req)[0] == '/');
    SL_ASSERT(strstr(sl_http_req_path(req), "/../") == NULL);
    const char *name = NULL;
    const char *value = NULL;
    for (size_t i = 0; sl_http_query_each(req, i, &name, &value); i++) {
        unsigned count = 0;
        SL_ASSERT(sl_http_query_get(req, name, &count) != NULL && count > 0);
    }
    return req;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const roles[] = {"reader"};
    const uint8_t *line = size > 0 ? memchr(data, '\n', size) : NULL;
    if (line == NULL)
        return 0;
    char *text = sl_strndup(data, (size_t)(line - data));
    sl_http_req *req = make_request(text);
    sl_slice rest = sl_slice_of(line + 1, size - (size_t)(line + 1 - data));
    rest.ptr = fuzz_copy(rest);
    sl_predicate *pr = NULL;
    char *why = NULL;
    if (sl_predicate_parse(rest, &pr, &why) != SL_OK) {
        SL_ASSERT(pr == NULL && why != NULL);
        sl_free(why);
    } else if (req != NULL) {
        bool anonymous = sl_predicate_match(pr, req);
        SL_ASSERT(sl_predicate_match(pr, req) == anonymous);
        sl_http_req_set_user(req, "ann", roles, 1);
        (void)sl_predicate_match(pr, req);
    }
    sl_predicate_free(&pr);
    sl_http_req_unref(&req);
    sl_free((void *)(uintptr_t)rest.ptr);
    sl_free(text);
    return 0;
}
