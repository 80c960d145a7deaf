#include "record/sessions/tried.h"

#include <stdlib.h>
#include <string.h>

#include "core/files/suffix.h"

void nd_fallen_deinit(struct nd_fallen *fallen)
{
    for (size_t i = 0; i < fallen->n; i++)
        free(fallen->names[i]);
    free(fallen->names);
    *fallen = (struct nd_fallen){0};
}

bool nd_fallen_has(const struct nd_fallen *fallen, const char *node)
{
    for (size_t i = 0; node != NULL && i < fallen->n; i++)
        if (strcmp(fallen->names[i], node) == 0)
            return true;
    return false;
}

static bool has_same_stem(const char *a, const char *b)
{
    size_t n = nd_token_stem_bytes(a);
    return n == nd_token_stem_bytes(b) && memcmp(a, b, n) == 0;
}

static size_t count_stem(const struct nd_fallen *fallen, size_t n, const char *name)
{
    size_t n_same = 0;
    for (size_t i = 0; i < n; i++)
        n_same += has_same_stem(fallen->names[i], name);
    return n_same;
}

/* From the end on: what is before a node is as it was when the node is looked at. */
void nd_fallen_subtract(struct nd_fallen *fallen, const struct nd_fallen *own)
{
    for (size_t i = fallen->n; i-- > 0;) {
        const char *name = fallen->names[i];
        if (count_stem(fallen, i, name) >= count_stem(own, own->n, name))
            continue;
        free(fallen->names[i]);
        memmove(&fallen->names[i], &fallen->names[i + 1], (fallen->n - 1 - i) * sizeof fallen->names[i]);
        fallen->n--;
    }
}

void nd_tried_deinit(struct nd_tried *trial)
{
    nd_fallen_deinit(&trial->fallen);
    *trial = (struct nd_tried){0};
}
