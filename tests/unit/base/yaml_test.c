/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of base/yaml: kinds, line numbers, refusals, and random trees written and read back.
 */
#include "sl_test.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/yaml.h"
#include "random.h"

static sl_yaml *parse(const char *text)
{
    sl_yaml *tree = NULL;
    char *why = NULL;
    sl_err err = sl_yaml_parse("t.yml", sl_slice_str(text), &tree, &why);
    if (err != SL_OK)
        fail_msg("%s", why);
    return tree;
}

static void refuse(const char *text, const char *want)
{
    sl_yaml *tree = NULL;
    char *why = NULL;
    sl_err err = sl_yaml_parse("t.yml", sl_slice_str(text), &tree, &why);
    SL_TEST_ERR(err, SL_EINVAL);
    assert_null(tree);
    assert_non_null(why);
    if (strncmp(why, want, strlen(want)) != 0)
        fail_msg("\"%s\" does not begin with \"%s\"", why, want);
    sl_free(why);
}

static void test_yaml_keeps_kinds_text_and_lines(void **state)
{
    (void)state;
    sl_yaml *tree = parse("# head\n"
                          "name: value\n"
                          "section:\n"
                          "  number: 0042\n"
                          "  quoted: \"4\\x41\"\n"
                          "  none:\n"
                          "  tilde: ~\n"
                          "  empty: ''\n"
                          "list: [a, 'null', {b: c}]\n"
                          "block: |\n"
                          "  one\n"
                          "  two\n");
    assert_int_equal(tree->kind, SL_YAML_MAP);
    assert_int_equal(tree->count, 4);
    sl_yaml *name = sl_yaml_get(tree, "name");
    assert_int_equal(name->kind, SL_YAML_SCALAR);
    assert_string_equal(name->text, "value");
    assert_string_equal(name->key, "name");
    assert_false(name->quoted);
    assert_int_equal(name->line, 2);
    sl_yaml *section = sl_yaml_get(tree, "section");
    assert_int_equal(section->kind, SL_YAML_MAP);
    assert_int_equal(section->line, 3);
    assert_string_equal(sl_yaml_get(section, "number")->text, "0042");
    assert_string_equal(sl_yaml_get(section, "quoted")->text, "4A");
    assert_true(sl_yaml_get(section, "quoted")->quoted);
    assert_int_equal(sl_yaml_get(section, "none")->kind, SL_YAML_NULL);
    assert_int_equal(sl_yaml_get(section, "tilde")->kind, SL_YAML_NULL);
    assert_null(sl_yaml_get(section, "tilde")->text);
    assert_int_equal(sl_yaml_get(section, "empty")->kind, SL_YAML_SCALAR);
    sl_yaml *list = sl_yaml_get(tree, "list");
    assert_int_equal(list->kind, SL_YAML_LIST);
    assert_int_equal(list->count, 3);
    assert_null(list->kid[0]->key);
    assert_int_equal(list->kid[1]->kind, SL_YAML_SCALAR);
    assert_string_equal(sl_yaml_get(list->kid[2], "b")->text, "c");
    assert_string_equal(sl_yaml_get(tree, "block")->text, "one\ntwo\n");
    assert_int_equal(sl_yaml_get(tree, "block")->line, 10);
    assert_null(sl_yaml_get(tree, "missing"));
    assert_null(sl_yaml_get(list, "b"));
    assert_null(sl_yaml_get(NULL, "b"));
    sl_yaml_free(&tree);
    assert_null(tree);
    sl_yaml_free(&tree);
}

static void test_yaml_empty_text_is_an_empty_map(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "\n", "# only a comment\n", "---\n", "--- ~\n...\n"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        sl_yaml *tree = parse(texts[i]);
        assert_int_equal(tree->kind, SL_YAML_MAP);
        assert_int_equal(tree->count, 0);
        sl_yaml_free(&tree);
    }
    sl_yaml *tree = NULL;
    char *why = NULL;
    SL_TEST_OK(sl_yaml_parse("t.yml", sl_slice_of(NULL, 0), &tree, &why));
    sl_yaml_free(&tree);
}

static void test_yaml_refuses_what_it_does_not_support(void **state)
{
    (void)state;
    refuse("a: 1\nb: 2\na: 3\n", "t.yml:3: key \"a\" appears twice");
    refuse("a: {x: 1, x: 2}\n", "t.yml:1: key \"x\" appears twice");
    refuse("a: &mark 1\n", "t.yml:1: anchors");
    refuse("a:\n  b: &m {c: 1}\n", "t.yml:2: anchors");
    refuse("a: *mark\n", "t.yml:1: aliases");
    refuse("a: !!binary aGk=\n", "t.yml:1: tags");
    refuse("a: !own [1]\n", "t.yml:1: tags");
    refuse("a: 1\n---\nb: 2\n", "t.yml:2: a second document");
    refuse("? [x, y]\n: 1\n", "t.yml:1: a key must be a plain word");
    refuse("? {x: y}\n: 1\n", "t.yml:1: a key must be a plain word");
    refuse("'': 1\n", "t.yml:1: an empty key");
    refuse("a: \"x\\0y\"\n", "t.yml:1: a value holds a NUL byte");
}

static void test_yaml_names_the_line_of_broken_text(void **state)
{
    (void)state;
    refuse("a: 1\nb: [1, 2\nc: 3\n", "t.yml:3: ");
    refuse("a: 1\n  b: 2\n", "t.yml:2: ");
    refuse("a: \"open\n", "t.yml:2: ");
    refuse("a: 1\n\tb: 2\n", "t.yml:2: ");
    refuse("a: \xC3(\n", "t.yml: "); // not UTF-8: the reader knows the byte only
}

static void test_yaml_depth_ends_where_it_says(void **state)
{
    (void)state;
    for (size_t depth = SL_YAML_MAX_DEPTH - 1; depth <= SL_YAML_MAX_DEPTH + 1; depth++) {
        char text[2 * SL_YAML_MAX_DEPTH + 4];
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        text[2 * depth] = '\0';
        if (depth > SL_YAML_MAX_DEPTH) {
            refuse(text, "t.yml:1: nested too deeply");
        } else {
            sl_yaml *tree = parse(text);
            sl_yaml_free(&tree);
        }
    }
}

static void test_yaml_bounds_bytes_and_nodes(void **state)
{
    (void)state;
    sl_buf buf;
    sl_buf_init(&buf, SL_YAML_MAX_BYTES + 1);
    for (unsigned i = 0; i <= SL_YAML_MAX_NODES; i++)
        SL_TEST_OK(sl_buf_append_str(&buf, "- 1\n"));
    sl_yaml *tree = NULL;
    char *why = NULL;
    SL_TEST_ERR(sl_yaml_parse("t.yml", sl_buf_peek(&buf), &tree, &why), SL_EINVAL);
    assert_string_equal(why, "t.yml:100000: too many values");
    sl_free(why);
    sl_buf_clear(&buf);
    uint8_t *room;
    SL_TEST_OK(sl_buf_reserve(&buf, SL_YAML_MAX_BYTES + 1, &room));
    memset(room, '#', SL_YAML_MAX_BYTES + 1);
    sl_buf_commit(&buf, SL_YAML_MAX_BYTES + 1);
    SL_TEST_ERR(sl_yaml_parse("t.yml", sl_buf_peek(&buf), &tree, &why), SL_ETOOBIG);
    assert_string_equal(why, "t.yml: larger than 4194304 bytes");
    sl_free(why);
    sl_buf_fini(&buf);
}

static void test_yaml_reads_a_file_and_names_it(void **state)
{
    (void)state;
    char path[] = "/tmp/sl-yaml-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "a: 1\n", 5), 5);
    sl_yaml *tree = NULL;
    char *why = NULL;
    SL_TEST_OK(sl_yaml_parse_file(path, &tree, &why));
    assert_string_equal(sl_yaml_get(tree, "a")->text, "1");
    sl_yaml_free(&tree);
    assert_int_equal(write(fd, "a: 2\n", 5), 5);
    SL_TEST_ERR(sl_yaml_parse_file(path, &tree, &why), SL_EINVAL);
    assert_non_null(strstr(why, path));
    assert_non_null(strstr(why, ":2: "));
    sl_free(why);
    close(fd);
    unlink(path);
    SL_TEST_ERR(sl_yaml_parse_file(path, &tree, &why), SL_ENOTFOUND);
    assert_non_null(strstr(why, path));
    assert_non_null(strstr(why, "No such file"));
    sl_free(why);
    SL_TEST_ERR(sl_yaml_parse_file("/tmp", &tree, &why), SL_EIO);
    assert_non_null(strstr(why, "/tmp: "));
    sl_free(why);
}

static void test_yaml_trees_are_changed_by_hand(void **state)
{
    (void)state;
    sl_yaml *tree = sl_yaml_new(SL_YAML_MAP, NULL);
    sl_yaml *child = sl_yaml_new(SL_YAML_SCALAR, "1");
    sl_yaml_set(tree, "a", &child);
    assert_null(child);
    child = sl_yaml_new(SL_YAML_LIST, NULL);
    for (int i = 0; i < 9; i++) {
        sl_yaml *entry = sl_yaml_new(SL_YAML_SCALAR, "x");
        sl_yaml_add(child, &entry);
        assert_null(entry);
    }
    sl_yaml_set(tree, "b", &child);
    child = sl_yaml_new(SL_YAML_SCALAR, "2");
    sl_yaml_set(tree, "a", &child);
    assert_int_equal(tree->count, 2);
    assert_string_equal(sl_yaml_get(tree, "a")->text, "2");
    assert_int_equal(sl_yaml_get(tree, "a")->line, 0);
    assert_int_equal(sl_yaml_get(tree, "b")->count, 9);
    sl_yaml_free(&tree);
}

/* A random tree, written in block style with quoted scalars. */
static sl_yaml *random_tree(rng *rg, unsigned depth)
{
    static const char *const texts[] = {"", "a", "null", "# x", "a: b", "- c", "\xC3\xA9", "1e3"};
    unsigned kind = depth == 0 ? 0 : rng_below(rg, 3);
    if (kind == 0)
        return sl_yaml_new(SL_YAML_SCALAR, texts[rng_below(rg, 8)]);
    sl_yaml *node = sl_yaml_new(kind == 1 ? SL_YAML_LIST : SL_YAML_MAP, NULL);
    unsigned count = 1 + rng_below(rg, 5);
    for (unsigned i = 0; i < count; i++) {
        sl_yaml *kid = random_tree(rg, depth - 1);
        char key[16];
        snprintf(key, sizeof(key), "k%u", i);
        if (kind == 1)
            sl_yaml_add(node, &kid);
        else
            sl_yaml_set(node, key, &kid);
    }
    return node;
}

static void write_tree(const sl_yaml *node, unsigned indent, sl_buf *out)
{
    if (node->kind == SL_YAML_SCALAR) {
        SL_TEST_OK(sl_buf_printf(out, "%*s\"%s\"\n", (int)indent, "", node->text));
        return;
    }
    for (size_t i = 0; i < node->count; i++) {
        if (node->kind == SL_YAML_LIST)
            SL_TEST_OK(sl_buf_printf(out, "%*s-\n", (int)indent, ""));
        else
            SL_TEST_OK(sl_buf_printf(out, "%*s%s:\n", (int)indent, "", node->kid[i]->key));
        write_tree(node->kid[i], indent + 1, out);
    }
}

static void assert_same_tree(const sl_yaml *left, const sl_yaml *right)
{
    assert_int_equal(left->kind, right->kind);
    assert_int_equal(left->count, right->count);
    if (left->kind == SL_YAML_SCALAR)
        assert_string_equal(left->text, right->text);
    for (size_t i = 0; i < left->count; i++) {
        if (left->kind == SL_YAML_MAP)
            assert_string_equal(left->kid[i]->key, right->kid[i]->key);
        assert_same_tree(left->kid[i], right->kid[i]);
    }
}

static void test_yaml_random_trees_come_back(void **state)
{
    (void)state;
    rng rg = {31};
    for (int round = 0; round < 500; round++) {
        sl_yaml *tree = random_tree(&rg, 1 + rng_below(&rg, 5));
        sl_buf buf;
        sl_buf_init(&buf, 1 << 20);
        write_tree(tree, 0, &buf);
        sl_yaml *back = NULL;
        char *why = NULL;
        if (sl_yaml_parse("t.yml", sl_buf_peek(&buf), &back, &why) != SL_OK)
            fail_msg("%s", why);
        assert_same_tree(tree, back);
        sl_yaml_free(&tree);
        sl_yaml_free(&back);
        sl_buf_fini(&buf);
    }
}

static void test_yaml_damaged_text_is_refused_with_a_message_or_read(void **state)
{
    (void)state;
    rng rg = {17};
    static const char base[] = "a: {b: [1, 2], c: \"x\\n\"}\nd:\n  - e: 'f'\n  - |\n    g\nh: ~\n";
    static const char pieces[] = "{}[],:\"'-|>&*!? #\n\t\\\x80%@`a0";
    unsigned refused = 0, taken = 0;
    for (int round = 0; round < 20000; round++) {
        char text[sizeof(base)];
        memcpy(text, base, sizeof(base));
        for (unsigned i = 1 + rng_below(&rg, 4); i != 0; i--)
            text[rng_below(&rg, sizeof(base) - 1)] = pieces[rng_below(&rg, sizeof(pieces) - 1)];
        sl_yaml *tree = NULL;
        char *why = NULL;
        if (sl_yaml_parse("t.yml", sl_slice_str(text), &tree, &why) == SL_OK) {
            assert_non_null(tree);
            assert_null(why);
            taken++;
        } else {
            assert_null(tree);
            assert_int_equal(strncmp(why, "t.yml:", 6), 0);
            sl_free(why);
            refused++;
        }
        sl_yaml_free(&tree);
    }
    assert_true(refused > 1000 && taken > 1000); // both ways were walked
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_yaml_keeps_kinds_text_and_lines),
        cmocka_unit_test(test_yaml_empty_text_is_an_empty_map),
        cmocka_unit_test(test_yaml_refuses_what_it_does_not_support),
        cmocka_unit_test(test_yaml_names_the_line_of_broken_text),
        cmocka_unit_test(test_yaml_depth_ends_where_it_says),
        cmocka_unit_test(test_yaml_bounds_bytes_and_nodes),
        cmocka_unit_test(test_yaml_reads_a_file_and_names_it),
        cmocka_unit_test(test_yaml_trees_are_changed_by_hand),
        cmocka_unit_test(test_yaml_random_trees_come_back),
        cmocka_unit_test(test_yaml_damaged_text_is_refused_with_a_message_or_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
