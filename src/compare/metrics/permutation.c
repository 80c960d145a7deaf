/* Whether a sample is the other one with its axes exchanged. docs/reference/metrics.md#structure. */
#include "compare/metrics/permutation.h"

#include <string.h>

enum { MAX_LONG = 6 };

struct long_dims {
    size_t n;
    int dims[ND_MAX_RANK];
};

static struct long_dims find_long(const struct nd_shape *shape)
{
    struct long_dims found = {0};
    for (int i = 0; i < shape->rank; i++)
        if (shape->dims[i] > 1)
            found.dims[found.n++] = i;
    return found;
}

static uint64_t factorial(size_t n)
{
    return n < 2 ? 1 : n * factorial(n - 1);
}

/* The order of that number: order[i] is which of the n things comes at place i. */
static void decode(size_t n, uint64_t number, size_t *order)
{
    bool is_used[ND_MAX_RANK] = {false};
    for (size_t i = 0; i < n; i++) {
        uint64_t block = factorial(n - 1 - i), skip = number / block;
        number %= block;
        for (size_t k = 0; k < n; k++) {
            if (is_used[k] || skip-- > 0)
                continue;
            order[i] = k;
            is_used[k] = true;
            break;
        }
    }
}

/* Walks the test in C order; the reference's place moves by the strides of the exchanged dimensions. */
static bool is_permuted(const struct nd_shape *shape, const struct long_dims *dims, const size_t *order,
                        size_t elem_bytes, const unsigned char *ref, const unsigned char *test)
{
    size_t extents[ND_MAX_RANK], strides[ND_MAX_RANK], at[ND_MAX_RANK] = {0}, n = 1;
    for (size_t i = dims->n; i-- > 0;) {
        strides[i] = n;
        extents[i] = (size_t)shape->dims[dims->dims[i]];
        n *= extents[i];
    }
    size_t offset = 0;
    for (size_t k = 0; k < n; k++) {
        if (memcmp(ref + offset * elem_bytes, test + k * elem_bytes, elem_bytes) != 0)
            return false;
        for (size_t i = dims->n; i-- > 0;) {
            offset += strides[order[i]];
            if (++at[i] < extents[order[i]])
                break;
            offset -= at[i] * strides[order[i]];
            at[i] = 0;
        }
    }
    return true;
}

uint64_t nd_permutation_find(const struct nd_shape *shape, size_t elem_bytes, const unsigned char *ref,
                             const unsigned char *test)
{
    struct long_dims dims = find_long(shape);
    if (dims.n > MAX_LONG)
        return 0;
    for (uint64_t number = 1; number < factorial(dims.n); number++) {
        size_t order[ND_MAX_RANK];
        decode(dims.n, number, order);
        if (is_permuted(shape, &dims, order, elem_bytes, ref, test))
            return number;
    }
    return 0;
}

void nd_permutation_describe(const struct nd_shape *shape, uint64_t number, int *permutation)
{
    struct long_dims dims = find_long(shape);
    size_t order[ND_MAX_RANK];
    for (int i = 0; i < shape->rank; i++)
        permutation[i] = i;
    if (number >= factorial(dims.n))
        return; /* no permutation of this shape: a part may hold any number */
    decode(dims.n, number, order);
    for (size_t i = 0; i < dims.n; i++)
        permutation[dims.dims[i]] = dims.dims[order[i]];
}
