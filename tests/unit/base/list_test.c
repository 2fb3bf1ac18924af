/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of base/list: against an array that does the same.
 */
#include "sl_test.h"

#include <string.h>

#include "base/list.h"
#include "random.h"

#define ITEMS 32u

typedef struct item {
    unsigned number;
    sl_node node;
} item;

static void assert_same(const sl_list *list, const unsigned *model, size_t count)
{
    size_t i = 0;
    for (sl_node *node = sl_list_first(list); node != NULL; node = sl_list_next(list, node)) {
        assert_true(i < count);
        assert_int_equal(SL_CONTAINER(node, item, node)->number, model[i++]);
    }
    assert_int_equal(i, count);
    assert_int_equal(sl_list_is_empty(list), count == 0);
}

static void test_list_follows_a_model(void **state)
{
    (void)state;
    rng rg = {11};
    item items[ITEMS];
    unsigned model[ITEMS];
    size_t count = 0;
    sl_list list;
    sl_list_init(&list);
    for (unsigned i = 0; i < ITEMS; i++) {
        items[i].number = i;
        sl_node_init(&items[i].node);
    }
    for (int step = 0; step < 5000; step++) {
        item *it = &items[rng_below(&rg, ITEMS)];
        if (sl_node_is_linked(&it->node)) {
            size_t at = 0;
            while (model[at] != it->number)
                at++;
            memmove(model + at, model + at + 1, (--count - at) * sizeof(model[0]));
            sl_list_remove(&it->node);
        } else if (rng_below(&rg, 2) == 0) {
            model[count++] = it->number;
            sl_list_push_back(&list, &it->node);
        } else {
            memmove(model + 1, model, count++ * sizeof(model[0]));
            model[0] = it->number;
            sl_list_push_front(&list, &it->node);
        }
        assert_same(&list, model, count);
    }
    for (size_t i = 0; i < count; i++)
        assert_int_equal(SL_CONTAINER(sl_list_pop_front(&list), item, node)->number, model[i]);
    assert_null(sl_list_pop_front(&list));
}

static void test_list_remove_of_an_unlinked_node_does_nothing(void **state)
{
    (void)state;
    sl_node node;
    sl_node_init(&node);
    sl_list_remove(&node);
    assert_false(sl_node_is_linked(&node));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list_follows_a_model),
        cmocka_unit_test(test_list_remove_of_an_unlinked_node_does_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
