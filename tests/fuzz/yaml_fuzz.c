/* SPDX-License-Identifier: Apache-2.0
 *
 * The YAML reader of configuration files: a tree within its limits, or a message that names the
 * file.
 */
#include "base/yaml.h"
#include "fuzz.h"

static size_t check_node(const sl_yaml *node, unsigned depth)
{
    SL_ASSERT(depth <= SL_YAML_MAX_DEPTH);
    size_t total = 1;
    for (size_t i = 0; i < node->count; i++) {
        SL_ASSERT(node->kind == SL_YAML_MAP || node->kind == SL_YAML_LIST);
        SL_ASSERT((node->kind == SL_YAML_MAP) == (node->kid[i]->key != NULL));
        total += check_node(node->kid[i], depth + 1);
    }
    SL_ASSERT(node->kind != SL_YAML_SCALAR || node->text != NULL);
    return total;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sl_slice text = sl_slice_of(data, size);
    uint8_t *copy = fuzz_copy(text);
    text.ptr = copy;
    sl_yaml *tree = NULL;
    char *why = NULL;
    sl_err err = sl_yaml_parse("fuzz.yml", text, &tree, &why);
    if (err == SL_OK)
        SL_ASSERT(check_node(tree, 0) <= SL_YAML_MAX_NODES + 1);
    else
        SL_ASSERT(why != NULL && strstr(why, "fuzz.yml") != NULL);
    sl_yaml_free(&tree);
    sl_free(why);
    sl_free(copy);
    return 0;
}
