#include "record/sessions/tried.h"

#include <stdlib.h>
#include <string.h>

#include "core/files/suffix.h"

void nd_fell_back_deinit(struct nd_fell_back *fell_back)
{
    for (size_t i = 0; i < fell_back->n; i++)
        free(fell_back->names[i]);
    free(fell_back->names);
    *fell_back = (struct nd_fell_back){0};
}

bool nd_fell_back_has(const struct nd_fell_back *fell_back, const char *node)
{
    for (size_t i = 0; node != NULL && i < fell_back->n; i++)
        if (strcmp(fell_back->names[i], node) == 0)
            return true;
    return false;
}

static bool has_same_stem(const char *a, const char *b)
{
    size_t n = nd_token_stem_bytes(a);
    return n == nd_token_stem_bytes(b) && memcmp(a, b, n) == 0;
}

static size_t count_stem(const struct nd_fell_back *fell_back, size_t n, const char *name)
{
    size_t n_same = 0;
    for (size_t i = 0; i < n; i++)
        n_same += has_same_stem(fell_back->names[i], name);
    return n_same;
}

/* From the end on: what is before a node is as it was when the node is looked at. */
void nd_fell_back_subtract(struct nd_fell_back *fell_back, const struct nd_fell_back *own)
{
    for (size_t i = fell_back->n; i-- > 0;) {
        const char *name = fell_back->names[i];
        if (count_stem(fell_back, i, name) >= count_stem(own, own->n, name))
            continue;
        free(fell_back->names[i]);
        memmove(&fell_back->names[i], &fell_back->names[i + 1],
                (fell_back->n - 1 - i) * sizeof fell_back->names[i]);
        fell_back->n--;
    }
}

void nd_tried_deinit(struct nd_tried *trial)
{
    nd_fell_back_deinit(&trial->fell_back);
    *trial = (struct nd_tried){0};
}
