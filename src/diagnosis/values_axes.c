/* The values of every sample in the order of permuted axes: the bytes of another layout. Unlike values_moved.c
 * this asks for no equal bits, so that it works over the device's own rounding. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "diagnosis/diagnosis_parts.h"
#include "diagnosis/values_internal.h"

/* More axes than these make too many orders. */
enum { MAX_AXES = 5 };

/* Chosen: an order that fails in a quarter of the first elements in which it says something is not tried on
 * all. */
enum { FIRST_DECISIVE = 256 };

struct axes {
    const int *order; /* the axes that are longer than 1, as they lie in memory */
    int n;
};

/* Where in its sample the reference holds what the test has in element j. */
static size_t place_of(const struct nd_values_look *look, const struct axes *axes, size_t j)
{
    const struct nd_shape *shape = &look->v->shape;
    size_t place[ND_MAX_RANK] = {0}, from = 0;
    for (int k = axes->n - 1; k >= 0; k--) {
        size_t dim = (size_t)shape->dims[axes->order[k]];
        place[axes->order[k]] = j % dim;
        j /= dim;
    }
    for (int k = 0; k < shape->rank; k++)
        from = from * (size_t)shape->dims[k] + place[k];
    return from;
}

static double predict_axes(const struct nd_values_look *look, const void *fault, size_t s, size_t j)
{
    return look->v->ref[s * look->v->n + place_of(look, fault, j)];
}

/* A look at a few elements, spread over the tensor: an order that is not the device's is wrong in most of them.
 */
static bool is_worth_trying(const struct nd_values_look *look, const struct axes *axes)
{
    const struct nd_values *v = look->v;
    size_t n_decisive = 0, n_right = 0, stride = look->n_total / 4096 > 0 ? look->n_total / 4096 : 1;
    for (size_t i = 0; i < look->n_total && n_decisive < FIRST_DECISIVE; i += stride) {
        double predicted = predict_axes(look, axes, i / v->n, i % v->n);
        if (!nd_values_is_known(look, i) || !(fabs(predicted - v->ref[i]) > look->far))
            continue;
        n_decisive++;
        n_right += fabs(v->test[i] - predicted) < fabs(v->test[i] - v->ref[i]);
    }
    return n_right * 4 >= n_decisive * 3;
}

void nd_values_try_axes(const struct nd_values_look *look)
{
    int order[ND_MAX_RANK];
    struct axes axes = {order, nd_doctor_long_axes(&look->v->shape, order)};
    struct nd_finding f = {0};
    char first[64] = "";
    size_t n_orders = 0;
    while (axes.n <= MAX_AXES && nd_doctor_next_permutation(order, axes.n)) {
        double explained, chance;
        if (!is_worth_trying(look, &axes) || !nd_values_holds(look, predict_axes, &axes, &explained, &chance))
            continue;
        if (n_orders++ > 0)
            continue;
        f = nd_values_finding(look, ND_FAULT_AXIS_PERMUTATION, 0, explained, chance);
        for (int k = 0, at = 0; k < axes.n; k++)
            at += snprintf(first + at, sizeof first - (size_t)at, k == 0 ? "%d" : ", %d", order[k]);
    }
    if (n_orders == 1)
        nd_values_add(look, &f, "bytes of the axes in the order %s are read as unpermuted", first);
    else if (n_orders > 1)
        nd_values_add(
            look, &f,
            "axes are permuted; %zu orders explain the values equally, one is %s: which it is cannot be "
            "told",
            n_orders, first);
}
