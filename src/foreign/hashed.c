#include "foreign/hashed.h"

#include <stdlib.h>

#include "base/memory.h"

enum { MIN_SLOTS = 64 };

static void put(struct nd_hashed *hashed, size_t i)
{
    size_t at = (size_t)hashed->hashes[i] & (hashed->n_slots - 1);
    while (hashed->slots[at] != 0)
        at = (at + 1) & (hashed->n_slots - 1);
    hashed->slots[at] = i + 1;
}

static bool grow_slots(struct nd_hashed *hashed)
{
    size_t n_slots = hashed->n_slots > 0 ? hashed->n_slots * 4 : MIN_SLOTS;
    size_t *slots = nd_calloc(n_slots, sizeof *slots);
    if (slots == NULL)
        return false;
    free(hashed->slots);
    hashed->slots = slots;
    hashed->n_slots = n_slots;
    for (size_t i = 0; i < hashed->n; i++)
        put(hashed, i);
    return true;
}

bool nd_hashed_add(struct nd_hashed *hashed, uint64_t hash)
{
    if (!nd_grow((void **)&hashed->hashes, &hashed->capacity, hashed->n + 1, sizeof *hashed->hashes) ||
        (2 * (hashed->n + 1) >= hashed->n_slots && !grow_slots(hashed)))
        return false;
    hashed->hashes[hashed->n] = hash;
    put(hashed, hashed->n++);
    return true;
}

size_t nd_hashed_next(const struct nd_hashed *hashed, uint64_t hash, size_t *at)
{
    size_t mask = hashed->n_slots - 1; /* *at counts the steps from the slot of the hash */
    while (hashed->n_slots > 0 && *at < hashed->n_slots) {
        size_t slot = hashed->slots[((size_t)hash + (*at)++) & mask];
        if (slot == 0)
            break;
        if (hashed->hashes[slot - 1] == hash)
            return slot - 1;
    }
    return SIZE_MAX;
}

void nd_hashed_deinit(struct nd_hashed *hashed)
{
    free(hashed->hashes);
    free(hashed->slots);
    *hashed = (struct nd_hashed){0};
}
