#include "core/text/names.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "npudiff/core/tensor.h"

struct nd_names_slot {
    const char *name; /* NULL: free */
    uint64_t hash;
    size_t value;
};

static uint64_t hash_of(const char *name)
{
    return nd_digest_bytes(name, strlen(name)).low;
}

/* The slot that holds name, or the free one where it belongs. There is always a free one. */
static struct nd_names_slot *probe(struct nd_names_slot *slots, size_t capacity, const char *name,
                                   uint64_t hash)
{
    size_t at = (size_t)hash & (capacity - 1);
    while (slots[at].name != NULL && (slots[at].hash != hash || strcmp(slots[at].name, name) != 0))
        at = (at + 1) & (capacity - 1);
    return &slots[at];
}

size_t nd_names_find(const struct nd_names *names, const char *name)
{
    if (names->n == 0)
        return SIZE_MAX;
    const struct nd_names_slot *slot = probe(names->slots, names->capacity, name, hash_of(name));
    return slot->name != NULL ? slot->value : SIZE_MAX;
}

static bool grow(struct nd_names *names)
{
    size_t capacity = 64;
    if (names->capacity > 0 && !nd_size_mul(names->capacity, 2, &capacity))
        return false;
    struct nd_names_slot *slots = nd_calloc(capacity, sizeof *slots);
    if (slots == NULL)
        return false;
    for (size_t i = 0; i < names->capacity; i++) {
        const struct nd_names_slot *old = &names->slots[i];
        if (old->name != NULL)
            *probe(slots, capacity, old->name, old->hash) = *old;
    }
    free(names->slots);
    names->slots = slots;
    names->capacity = capacity;
    return true;
}

bool nd_names_add(struct nd_names *names, const char *name, size_t value)
{
    /* At most half full, so that probing stays short. */
    if (names->n >= names->capacity / 2 && !grow(names))
        return false;
    uint64_t hash = hash_of(name);
    struct nd_names_slot *slot = probe(names->slots, names->capacity, name, hash);
    assert(slot->name == NULL);
    *slot = (struct nd_names_slot){.name = name, .hash = hash, .value = value};
    names->n++;
    return true;
}

void nd_names_deinit(struct nd_names *names)
{
    free(names->slots);
    *names = (struct nd_names){0};
}
