/* SPDX-License-Identifier: Apache-2.0
 *
 * rho_fuzz: override texts on a small tree. Any text leaves a tree that can be written, and what is
 * written is YAML again.
 */
#include "base/logger.h"
#include "fuzz.h"
#include "rho.h"

static void drop_line(void *arg, const char *line)
{
    (void)arg;
    (void)line;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 4096)
        return 0;
    sl_logger_set_sink(drop_line, NULL);
    sl_yaml *tree = NULL, *again = NULL;
    char *why = NULL;
    sl_err err = sl_yaml_parse("fuzz", sl_slice_str("u: [{id: a, n: 1}, {id: b}]\nm: {k: v}\n"),
                               &tree, &why);
    SL_ASSERT(err == SL_OK);
    uint8_t *copy = fuzz_copy(sl_slice_of(data, size));
    (void)sl_rho_apply(tree, "fuzz", sl_slice_of(copy, size), size % 2 == 0);
    sl_buf out;
    sl_buf_init(&out, SL_YAML_MAX_BYTES);
    if (sl_rho_write_masked(&out, NULL, tree) == SL_OK) {
        err = sl_yaml_parse("again", sl_buf_peek(&out), &again, &why);
        // a text of one value may be too deep, or hold a character that YAML refuses in any form
        SL_ASSERT(err == SL_OK ? again != NULL : why != NULL);
    }
    sl_free(why);
    sl_buf_fini(&out);
    sl_yaml_free(&again);
    sl_yaml_free(&tree);
    sl_free(copy);
    return 0;
}
