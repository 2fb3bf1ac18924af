/* SPDX-License-Identifier: Apache-2.0
 *
 * list: an intrusive doubly linked list. A node is in one list at a time. Owner's thread only.
 */
#ifndef SL_BASE_LIST_H
#define SL_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

typedef struct sl_node {
    struct sl_node *_next;
    struct sl_node *_prev;
} sl_node;

typedef struct sl_list {
    sl_node _head;
} sl_list;

#define SL_CONTAINER(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

static inline void sl_list_init(sl_list *list)
{
    list->_head._next = list->_head._prev = &list->_head;
}
static inline void sl_node_init(sl_node *node)
{
    node->_next = node->_prev = NULL;
}
static inline bool sl_list_is_empty(const sl_list *list)
{
    return list->_head._next == &list->_head;
}
static inline bool sl_node_is_linked(const sl_node *node)
{
    return node->_next != NULL;
}
static inline void sl_list_push_back(sl_list *list, sl_node *node)
{
    node->_prev = list->_head._prev;
    node->_next = &list->_head;
    list->_head._prev->_next = node;
    list->_head._prev = node;
}
static inline void sl_list_push_front(sl_list *list, sl_node *node)
{
    node->_next = list->_head._next;
    node->_prev = &list->_head;
    list->_head._next->_prev = node;
    list->_head._next = node;
}
static inline void sl_list_remove(sl_node *node)
{
    if (node->_next != NULL) {
        node->_prev->_next = node->_next;
        node->_next->_prev = node->_prev;
        node->_next = node->_prev = NULL;
    }
}
/** The first node, or NULL. */
static inline sl_node *sl_list_first(const sl_list *list)
{
    return sl_list_is_empty(list) ? NULL : list->_head._next;
}
/** The node behind, or NULL at the end. */
static inline sl_node *sl_list_next(const sl_list *list, const sl_node *node)
{
    return node->_next == &list->_head ? NULL : node->_next;
}
static inline sl_node *sl_list_pop_front(sl_list *list)
{
    sl_node *node = sl_list_first(list);
    if (node != NULL)
        sl_list_remove(node);
    return node;
}

#endif
