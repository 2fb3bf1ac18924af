/* SPDX-License-Identifier: Apache-2.0
 *
 * predicate: a recursive-descent parser into a tree of nodes, and its evaluation. Depth and number
 * of nodes are bounded, so hostile text costs little.
 *
 *   or   := and ('or' and)*
 *   and  := not ('and' not)*
 *   not  := 'not' not | '(' or ')' | word [ '(' args ')' | '[' args ']' ]
 *   args := [name '='] value (',' ...)*     value := text | variable | '{' value, ... '}'
 */
#include "http/predicate.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"

#define MAX_DEPTH 32
#define MAX_ARGS  32
#define MAX_VARS  8

typedef enum node_kind {
    NODE_AND,
    NODE_OR,
    NODE_NOT,
    NODE_TRUE,
    NODE_FALSE,
    NODE_PATH,
    NODE_PREFIX,
    NODE_SUFFIX,
    NODE_TEMPLATE,
    NODE_METHOD,
    NODE_EQUALS,
    NODE_Q_CONTAIN,
    NODE_Q_WHITELIST,
    NODE_Q_BLACKLIST,
    NODE_Q_SIZE
} node_kind;

typedef enum value_kind {
    VALUE_TEXT,
    VALUE_USER,
    VALUE_METHOD,
    VALUE_PATH,
    VALUE_ADDRESS,
    VALUE_QUERY,  /* %{q,text} */
    VALUE_HEADER, /* %{i,text} */
    VALUE_VAR     /* ${text} */
} value_kind;

typedef struct value {
    value_kind kind;
    char *text; /* owned */
} value;

typedef struct node {
    node_kind kind;
    struct node *left;  /* owned */
    struct node *right; /* owned */
    value *args;        /* owned */
    size_t arg_count;
} node;

struct sl_predicate {
    node *root; /* owned */
};

static const struct {
    const char *word;
    node_kind kind;
    unsigned min_args;
    unsigned max_args;
    const char *name; /* that may stand before the argument */
} words[] = {
    {"true", NODE_TRUE, 0, 0, NULL},
    {"false", NODE_FALSE, 0, 0, NULL},
    {"path", NODE_PATH, 1, MAX_ARGS, "path"},
    {"path-prefix", NODE_PREFIX, 1, MAX_ARGS, "path"},
    {"path-suffix", NODE_SUFFIX, 1, MAX_ARGS, "path"},
    {"path-template", NODE_TEMPLATE, 1, 1, "value"},
    {"method", NODE_METHOD, 1, MAX_ARGS, "value"},
    {"equals", NODE_EQUALS, 2, MAX_ARGS, "value"},
    {"qparams-contain", NODE_Q_CONTAIN, 1, MAX_ARGS, "value"},
    {"qparams-whitelist", NODE_Q_WHITELIST, 1, MAX_ARGS, "value"},
    {"qparams-blacklist", NODE_Q_BLACKLIST, 1, MAX_ARGS, "value"},
    {"qparams-size", NODE_Q_SIZE, 1, 1, "value"},
};

/* ---- parsing ---- */

typedef struct parser {
    const char *text; /* NUL ended copy */
    const char *at;
    unsigned depth;
    unsigned nodes;
    char *why; /* owned; set once something is wrong */
} parser;

static void complain(parser *ps, const char *what)
{
    char text[256];
    if (ps->why != NULL)
        return; // the first mistake is the one to report
    (void)snprintf(text, sizeof(text), "%s at column %zu", what, (size_t)(ps->at - ps->text) + 1);
    ps->why = sl_strdup(text);
}

static void complain_about(parser *ps, const char *what, const char *which)
{
    char text[160];
    (void)snprintf(text, sizeof(text), "%s '%.80s'", what, which);
    complain(ps, text);
}

static void node_free(node *nd)
{
    if (nd == NULL)
        return;
    node_free(nd->left); // depth is bounded by the parser
    node_free(nd->right);
    for (size_t i = 0; i < nd->arg_count; i++)
        sl_free(nd->args[i].text);
    sl_free(nd->args);
    sl_free(nd);
}

static node *node_new(parser *ps, node_kind kind, node *left, node *right)
{
    if (++ps->nodes > SL_PREDICATE_MAX_NODES)
        complain(ps, "predicate is too large");
    node *nd = sl_calloc(1, sizeof(*nd));
    nd->kind = kind;
    nd->left = left;
    nd->right = right;
    return nd;
}

static void skip_space(parser *ps)
{
    while (isspace((unsigned char)*ps->at))
        ps->at++;
}

static bool is_word_char(char ch)
{
    return isalnum((unsigned char)ch) || strchr("-_./*:@%$", ch) != NULL ? ch != '\0' : false;
}

/* Takes the punctuation if it is next. */
static bool take_char(parser *ps, char ch)
{
    skip_space(ps);
    if (*ps->at != ch)
        return false;
    ps->at++;
    return true;
}

/* Takes the keyword if it is next, as a whole word. */
static bool take_word(parser *ps, const char *word)
{
    skip_space(ps);
    size_t len = strlen(word);
    if (strncmp(ps->at, word, len) != 0 || is_word_char(ps->at[len]))
        return false;
    ps->at += len;
    return true;
}

/* A bare word; a variable may hold one pair of braces: %{q,a} ${id}. Owned; NULL: none. */
static char *take_bare(parser *ps)
{
    skip_space(ps);
    const char *start = ps->at;
    while (is_word_char(*ps->at)) {
        bool opens = (*ps->at == '%' || *ps->at == '$') && ps->at[1] == '{';
        ps->at++;
        if (opens) {
            ps->at += strcspn(ps->at, "}");
            if (*ps->at == '}')
                ps->at++;
        }
    }
    return ps->at == start ? NULL : sl_strndup(start, (size_t)(ps->at - start));
}

/* Text in quotes, a backslash takes the next character as it is. Owned. */
static char *take_quoted(parser *ps)
{
    char quote = *ps->at++;
    char *out = sl_alloc(strlen(ps->at) + 1);
    size_t len = 0;
    while (*ps->at != quote && *ps->at != '\0') {
        if (*ps->at == '\\' && ps->at[1] != '\0')
            ps->at++;
        out[len++] = *ps->at++;
    }
    out[len] = '\0';
    if (*ps->at == '\0')
        complain(ps, "quote is not closed");
    else
        ps->at++;
    return out;
}

static bool strip(const char *text, const char *before, sl_slice *inner)
{
    size_t len = strlen(text);
    size_t before_len = strlen(before);
    if (len < before_len + 2 || strncmp(text, before, before_len) != 0 || text[len - 1] != '}')
        return false;
    *inner = sl_slice_of(text + before_len, len - before_len - 1);
    return true;
}

/* Recognizes variables; takes text. */
static value value_of(parser *ps, char *text)
{
    static const struct {
        const char *word;
        value_kind kind;
    } plain[] = {
        {"@user.userid", VALUE_USER}, {"@user._id", VALUE_USER},
        {"%u", VALUE_USER},           {"%{REMOTE_USER}", VALUE_USER},
        {"%m", VALUE_METHOD},         {"%{METHOD}", VALUE_METHOD},
        {"%R", VALUE_PATH},           {"%{RELATIVE_PATH}", VALUE_PATH},
        {"%a", VALUE_ADDRESS},        {"%{REMOTE_IP}", VALUE_ADDRESS},
    };
    static const struct {
        const char *before;
        value_kind kind;
    } named[] = {{"%{q,", VALUE_QUERY}, {"%{i,", VALUE_HEADER}, {"${", VALUE_VAR}};
    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
        if (strcmp(text, plain[i].word) == 0)
            return (value){plain[i].kind, text};
    for (size_t i = 0; i < sizeof(named) / sizeof(named[0]); i++) {
        sl_slice inner;
        if (!strip(text, named[i].before, &inner))
            continue;
        char *name = sl_strndup(inner.ptr, inner.len);
        sl_free(text);
        return (value){named[i].kind, name};
    }
    if (text[0] == '%' || text[0] == '@' || text[0] == '$')
        complain_about(ps, "unknown variable", text);
    return (value){VALUE_TEXT, text};
}

static void add_value(parser *ps, node *nd)
{
    skip_space(ps);
    bool quoted = *ps->at == '\'' || *ps->at == '"';
    char *text = quoted ? take_quoted(ps) : take_bare(ps);
    if (text == NULL) {
        complain(ps, "an argument is missing");
        return;
    }
    if (nd->arg_count >= MAX_ARGS) {
        sl_free(text);
        complain(ps, "too many arguments");
        return;
    }
    value val = value_of(ps, text);
    nd->args = sl_realloc(nd->args, (nd->arg_count + 1) * sizeof(value));
    nd->args[nd->arg_count++] = val;
}

static void parse_values(parser *ps, node *nd)
{
    if (take_char(ps, '{')) {
        do {
            add_value(ps, nd);
        } while (ps->why == NULL && take_char(ps, ','));
        if (ps->why == NULL && !take_char(ps, '}'))
            complain(ps, "'}' is missing");
        return;
    }
    add_value(ps, nd);
}

/* name '=' in front of an argument. */
static void skip_name(parser *ps, const char *name)
{
    const char *before = ps->at;
    if (name == NULL || !take_word(ps, name) || !take_char(ps, '='))
        ps->at = before;
}

static void parse_args(parser *ps, node *nd, const char *name)
{
    char close = '\0';
    if (take_char(ps, '('))
        close = ')';
    else if (take_char(ps, '['))
        close = ']';
    else
        return;
    if (take_char(ps, close))
        return;
    do {
        skip_name(ps, name);
        parse_values(ps, nd);
    } while (ps->why == NULL && take_char(ps, ','));
    if (ps->why == NULL && !take_char(ps, close))
        complain(ps, close == ')' ? "')' is missing" : "']' is missing");
}

static void check_args(parser *ps, const node *nd)
{
    for (size_t i = 0; i < nd->arg_count; i++) {
        const value *arg = &nd->args[i];
        sl_http_method method;
        if (nd->kind != NODE_EQUALS && arg->kind != VALUE_TEXT)
            complain(ps, "variables may stand in equals(...) only");
        else if (nd->kind == NODE_METHOD && sl_http_method_parse(arg->text, &method) != SL_OK)
            complain_about(ps, "unknown method", arg->text);
        else if ((nd->kind == NODE_PATH || nd->kind == NODE_PREFIX || nd->kind == NODE_TEMPLATE) &&
                 arg->text[0] != '/')
            complain_about(ps, "a path must begin with '/':", arg->text);
        else if (nd->kind == NODE_Q_SIZE && (arg->text[0] == '\0' || strlen(arg->text) > 3 ||
                                             arg->text[strspn(arg->text, "0123456789")] != '\0'))
            complain_about(ps, "not a number of parameters:", arg->text);
    }
}

static node *parse_word(parser *ps)
{
    skip_space(ps);
    const char *start = ps->at;
    char *word = take_bare(ps);
    if (word == NULL) {
        complain(ps, *ps->at == '\0' ? "a condition is missing" : "unexpected character");
        return NULL;
    }
    node *nd = NULL;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(word, words[i].word) != 0)
            continue;
        nd = node_new(ps, words[i].kind, NULL, NULL);
        parse_args(ps, nd, words[i].name);
        if (nd->arg_count < words[i].min_args || nd->arg_count > words[i].max_args)
            complain_about(ps, "wrong number of arguments of", word);
        check_args(ps, nd);
    }
    if (nd == NULL) {
        ps->at = start;
        complain_about(ps, "unknown predicate", word);
    }
    sl_free(word);
    return nd;
}

static node *parse_or(parser *ps);

static node *parse_not(parser *ps)
{
    node *nd = NULL;
    if (++ps->depth > MAX_DEPTH) {
        complain(ps, "nested too deeply");
    } else if (take_word(ps, "not")) {
        nd = node_new(ps, NODE_NOT, parse_not(ps), NULL);
    } else if (take_char(ps, '(')) {
        nd = parse_or(ps);
        if (ps->why == NULL && !take_char(ps, ')'))
            complain(ps, "')' is missing");
    } else {
        nd = parse_word(ps);
    }
    ps->depth--;
    return nd;
}

static node *parse_and(parser *ps)
{
    node *left = parse_not(ps);
    while (ps->why == NULL && take_word(ps, "and"))
        left = node_new(ps, NODE_AND, left, parse_not(ps));
    return left;
}

static node *parse_or(parser *ps)
{
    node *left = parse_and(ps);
    while (ps->why == NULL && take_word(ps, "or"))
        left = node_new(ps, NODE_OR, left, parse_and(ps));
    return left;
}

sl_err sl_predicate_parse(sl_slice text, sl_predicate **out, char **why)
{
    if (text.len > SL_PREDICATE_MAX_BYTES ||
        (text.len > 0 && memchr(text.ptr, '\0', text.len) != NULL)) {
        *why = sl_strdup(text.len > SL_PREDICATE_MAX_BYTES ? "predicate is too long"
                                                           : "NUL in a predicate");
        return SL_EINVAL;
    }
    char *copy = sl_strndup(text.len == 0 ? (const void *)"" : text.ptr, text.len);
    parser ps = {.text = copy, .at = copy};
    node *root = parse_or(&ps);
    skip_space(&ps);
    if (ps.why == NULL && *ps.at != '\0')
        complain(&ps, "unexpected text");
    sl_free(copy);
    if (ps.why != NULL) {
        node_free(root);
        *why = ps.why;
        return SL_EINVAL;
    }
    sl_predicate *pr = sl_calloc(1, sizeof(*pr));
    pr->root = root;
    *out = pr;
    return SL_OK;
}

void sl_predicate_free(sl_predicate **prp)
{
    sl_predicate *pr = *prp;
    if (pr == NULL)
        return;
    *prp = NULL;
    node_free(pr->root);
    sl_free(pr);
}

/* ---- evaluation ---- */

/* Variables of the path-templates that matched so far. */
typedef struct scope {
    const sl_http_req *req;
    size_t count;
    struct {
        sl_slice name;
        sl_slice value;
    } var[MAX_VARS];
} scope;

static bool match_prefix(const char *path, const char *prefix)
{
    size_t len = strlen(prefix);
    while (len > 0 && prefix[len - 1] == '/')
        len--; // "/a/" and "/a" mean the same, "/" means everything
    return strncmp(path, prefix, len) == 0 && (path[len] == '\0' || path[len] == '/');
}

static bool match_suffix(const char *path, const char *suffix)
{
    size_t path_len = strlen(path);
    size_t len = strlen(suffix);
    return path_len >= len && strcmp(path + path_len - len, suffix) == 0;
}

static bool match_template(scope *sc, const char *path, const char *template)
{
    size_t before = sc->count;
    while (*template == '/' && *path == '/') {
        size_t want = strcspn(++template, "/");
        size_t have = strcspn(++path, "/");
        if (want == 1 && template[0] == '*' && template[1] == '\0')
            return true;
        if (want > 2 && template[0] == '{' && template[want - 1] == '}') {
            if (have == 0 || sc->count == MAX_VARS)
                break;
            sc->var[sc->count].name = sl_slice_of(template + 1, want - 2);
            sc->var[sc->count++].value = sl_slice_of(path, have);
        } else if (want != have || memcmp(template, path, want) != 0) {
            break;
        }
        template += want;
        path += have;
        if (*template == '\0' && *path == '\0')
            return true;
    }
    sc->count = before;
    return false;
}

static sl_slice value_now(const scope *sc, const value *val)
{
    const char *text = NULL;
    switch (val->kind) {
    case VALUE_TEXT:
        text = val->text;
        break;
    case VALUE_USER:
        text = sl_http_req_user(sc->req);
        break;
    case VALUE_METHOD:
        text = sl_http_method_name(sl_http_req_method(sc->req));
        break;
    case VALUE_PATH:
        text = sl_http_req_path(sc->req);
        break;
    case VALUE_ADDRESS:
        text = sl_http_req_peer_ip(sc->req);
        break;
    case VALUE_QUERY:
        text = sl_http_query_get(sc->req, val->text, NULL);
        break;
    case VALUE_HEADER:
        text = sl_http_req_header(sc->req, val->text);
        break;
    case VALUE_VAR:
        for (size_t i = 0; i < sc->count; i++)
            if (sl_slice_equal(sc->var[i].name, sl_slice_str(val->text)))
                return sc->var[i].value;
        break;
    }
    return text == NULL ? sl_slice_of(NULL, 0) : sl_slice_str(text);
}

/* All equal; what is not there equals nothing, not even what is not there either. */
static bool match_equals(const scope *sc, const node *nd)
{
    sl_slice first = value_now(sc, &nd->args[0]);
    if (first.ptr == NULL)
        return false;
    for (size_t i = 1; i < nd->arg_count; i++) {
        sl_slice other = value_now(sc, &nd->args[i]);
        if (other.ptr == NULL || !sl_slice_equal(first, other))
            return false;
    }
    return true;
}

static bool lists(const node *nd, const char *name)
{
    for (size_t i = 0; i < nd->arg_count; i++)
        if (strcmp(nd->args[i].text, name) == 0)
            return true;
    return false;
}

static bool match_params(const sl_http_req *req, const node *nd)
{
    const char *name = NULL;
    const char *ignored = NULL;
    size_t count = 0;
    bool all_listed = true;
    bool any_listed = false;
    for (; sl_http_query_each(req, count, &name, &ignored); count++) {
        bool listed = lists(nd, name);
        all_listed = all_listed && listed;
        any_listed = any_listed || listed;
    }
    switch (nd->kind) {
    case NODE_Q_WHITELIST:
        return all_listed;
    case NODE_Q_BLACKLIST:
        return !any_listed;
    case NODE_Q_SIZE:
        return count == strtoul(nd->args[0].text, NULL, 10);
    default: // contain: every listed one is there
        for (size_t i = 0; i < nd->arg_count; i++)
            if (sl_http_query_get(req, nd->args[i].text, NULL) == NULL)
                return false;
        return true;
    }
}

/* A leaf with a list of texts: true when one of them fits. */
static bool match_any(scope *sc, const node *nd)
{
    const char *path = sl_http_req_path(sc->req);
    const char *method = sl_http_method_name(sl_http_req_method(sc->req));
    for (size_t i = 0; i < nd->arg_count; i++) {
        const char *text = nd->args[i].text;
        bool fits = false;
        if (nd->kind == NODE_PATH)
            fits = strcmp(path, text) == 0;
        else if (nd->kind == NODE_PREFIX)
            fits = match_prefix(path, text);
        else if (nd->kind == NODE_SUFFIX)
            fits = match_suffix(path, text);
        else if (nd->kind == NODE_METHOD)
            fits = strcmp(method, text) == 0;
        else
            fits = match_template(sc, path, text);
        if (fits)
            return true;
    }
    return false;
}

static bool evaluate(scope *sc, const node *nd)
{
    size_t before = sc->count;
    switch (nd->kind) {
    case NODE_AND:
        return evaluate(sc, nd->left) && evaluate(sc, nd->right);
    case NODE_OR:
        if (evaluate(sc, nd->left))
            return true;
        sc->count = before; // variables of the side that failed mean nothing
        return evaluate(sc, nd->right);
    case NODE_NOT: {
        bool inner = evaluate(sc, nd->left);
        sc->count = before;
        return !inner;
    }
    case NODE_TRUE:
        return true;
    case NODE_FALSE:
        return false;
    case NODE_EQUALS:
        return match_equals(sc, nd);
    case NODE_Q_CONTAIN:
    case NODE_Q_WHITELIST:
    case NODE_Q_BLACKLIST:
    case NODE_Q_SIZE:
        return match_params(sc->req, nd);
    default:
        return match_any(sc, nd);
    }
}

bool sl_predicate_match(const sl_predicate *pr, const sl_http_req *req)
{
    scope sc = {.req = req};
    return evaluate(&sc, pr->root);
}
