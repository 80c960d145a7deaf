#include "record/sessions/pass_split.h"

#include <stdlib.h>
#include <string.h>

static void mark_kinds(const struct nd_model *model, const size_t *kinds, const struct nd_fallen *fallen,
                       bool with_made, bool *is_near)
{
    memset(is_near, 0, nd_model_n_edges(model) * sizeof *is_near);
    for (size_t u = 0; fallen->n > 0 && u < nd_model_n_units(model); u++) {
        const struct nd_model_unit *unit = nd_model_unit(model, u);
        if (!nd_fallen_has(fallen, nd_model_edge(model, unit->edge)->node))
            continue;
        if (with_made)
            is_near[kinds[unit->edge]] = true;
        for (size_t i = 0; i < unit->n_inputs; i++)
            is_near[kinds[unit->inputs[i]]] = true;
    }
}

void nd_near_kinds(const struct nd_model *model, const size_t *kinds, const struct nd_fallen *fallen,
                   bool *is_near)
{
    mark_kinds(model, kinds, fallen, true, is_near);
}

void nd_read_kinds(const struct nd_model *model, const size_t *kinds, const struct nd_fallen *fallen,
                   bool *is_read)
{
    mark_kinds(model, kinds, fallen, false, is_read);
}

static bool is_suspect(const struct nd_candidate *x, const bool *is_near, const size_t *n_rejected)
{
    return is_near != NULL ? is_near[x->kind] : n_rejected[x->kind] > 0;
}

/* Moves the suspects to the end; how many are in front. */
static size_t part_suspects(struct nd_candidate *x, size_t n, const bool *is_near, const size_t *n_rejected)
{
    size_t front = 0;
    for (size_t i = 0; i < n; i++) {
        struct nd_candidate c = x[i];
        if (is_suspect(&c, is_near, n_rejected))
            continue;
        x[i] = x[front];
        x[front++] = c;
    }
    return front;
}

static int by_kind(const void *a, const void *b)
{
    const struct nd_candidate *x = a, *y = b;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    return x->at < y->at ? -1 : 1;
}

/* Between two kinds, as near to the middle as there is such a place; 0: there is one kind. */
static size_t part_kinds(struct nd_candidate *x, size_t n)
{
    size_t best = 0;
    qsort(x, n, sizeof *x, by_kind);
    for (size_t i = 1; i < n; i++) {
        size_t far = 2 * i > n ? 2 * i - n : n - 2 * i, best_far = 2 * best > n ? 2 * best - n : n - 2 * best;
        if (x[i].kind != x[i - 1].kind && (best == 0 || far < best_far))
            best = i;
    }
    return best;
}

size_t nd_part_suspects(struct nd_candidate *x, size_t n, const bool *is_near)
{
    return part_suspects(x, n, is_near, NULL);
}

size_t nd_split(struct nd_candidate *x, size_t n, const bool *is_near, const size_t *n_accepted,
                const size_t *n_rejected)
{
    size_t k = nd_part_suspects(x, n, is_near);
    if (k == 0 || k == n)
        k = part_suspects(x, n, NULL, n_rejected);
    if (k == 0 || k == n)
        k = part_kinds(x, n);
    if (k == 0) /* of one kind: one or two of them say much of the others */
        k = n_accepted[x[0].kind] + n_rejected[x[0].kind] < 2 ? 1 : n / 2;
    return k;
}
