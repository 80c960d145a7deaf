/* Arrays whose items own something, and the order of texts. */
#pragma once

#include <stdint.h>

#include "core/memory.h"

/* free() of an array of n, and before it of its items: those are pointers, own one in a member (`.name`) or in
 * two, or are given back by a function that takes their address. items may be NULL. */
#define ND_FREE_ITEMS(items, n) ND_EACH_(items, n, free((items)[i_]))
#define ND_FREE_EACH(items, n, member) ND_EACH_(items, n, free((items)[i_] member))
#define ND_FREE_BOTH(items, n, a, b) ND_EACH_(items, n, ND_FREE_ALL((items)[i_] a, (items)[i_] b))
#define ND_DEINIT_EACH(deinit, items, n) ND_EACH_(items, n, deinit(&(items)[i_]))
#define ND_EACH_(items, n, give_back)                                                                          \
    do {                                                                                                       \
        for (size_t i_ = 0; (items) != NULL && i_ < (n); i_++)                                                 \
            give_back;                                                                                         \
        free(items);                                                                                           \
    } while (0)

/* For qsort and bsearch of texts, and of structs whose first member is one. */
static inline int nd_compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The first of n such items whose text is that one; NULL: none is, or text is NULL. */
static inline void *nd_find_text(const void *items, size_t n, size_t item_bytes, const char *text)
{
    for (const char *item = items; text != NULL && n > 0; item += item_bytes, n--)
        if (strcmp(*(const char *const *)(const void *)item, text) == 0)
            return (void *)(uintptr_t)item;
    return NULL;
}
