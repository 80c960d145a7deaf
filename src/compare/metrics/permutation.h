/* Tensors whose axes were exchanged. docs/reference/metrics.md#structure. */
#pragma once

#include "npudiff/core/tensor.h"

/* Permutations of the dimensions longer than 1 are numbered from 0 in lexicographic order, 0 being the
 * identity. The number of the first one under which `test` holds the elements of `ref` (test's dimension i runs
 * over ref's dimension p[i]), 0 when there is none or more than 6 dimensions are longer than 1. Both hold a
 * tensor of `shape`, not empty. */
uint64_t nd_permutation_find(const struct nd_shape *shape, size_t elem_bytes, const unsigned char *ref,
                             const unsigned char *test);

/* The permutation of that number, for all dimensions; the identity when there is none of that number. */
void nd_permutation_describe(const struct nd_shape *shape, uint64_t number, int *permutation);
