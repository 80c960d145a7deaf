/* Finding items of a growing list by a hash, in a time that does not grow with the list: the file of a stranger
 * may hold very many tensors. The list itself is the caller's. */
#ifndef ND_FOREIGN_HASHED_H
#define ND_FOREIGN_HASHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zeroed is empty. */
struct nd_hashed {
    size_t n;
    size_t capacity;
    uint64_t *hashes; /* [n], of the items in their order */
    size_t n_slots;   /* 0 or a power of two, more than 2 n */
    size_t *slots;    /* the index of an item + 1, or 0 */
};

/* Adds the next item. False: out of memory, and nothing was added. */
bool nd_hashed_add(struct nd_hashed *hashed, uint64_t hash);

/* The items of that hash: *at is 0 before the first call. SIZE_MAX: there are no more. */
size_t nd_hashed_next(const struct nd_hashed *hashed, uint64_t hash, size_t *at);

void nd_hashed_deinit(struct nd_hashed *hashed);

#endif
