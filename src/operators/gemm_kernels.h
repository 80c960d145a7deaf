/* Sums of products of matrices of doubles, compiled once per instruction set. In every element the products are
 * added in order of k, each product and each sum rounded by itself: so all sets give the same bits. */
#ifndef ND_OPERATORS_GEMM_KERNELS_H
#define ND_OPERATORS_GEMM_KERNELS_H

#include <stddef.h>

/* c[i][j] += sum over k of a[i][k] b[k][j]. The matrices are rows that lie so many elements apart. */
struct nd_gemm {
    size_t n, n_k, m; /* rows of a and c, terms, columns of b and c */
    const double *a, *b;
    double *c;
    size_t a_row, b_row, c_row;
};

struct nd_gemm_kernels {
    const char *name; /* "scalar", "avx2", "avx512", "neon" */
    void (*add)(const struct nd_gemm *gemm);
};

/* The best that this processor runs; static. */
const struct nd_gemm_kernels *nd_gemm_kernels(void);
/* All that it runs, the most general first. */
size_t nd_gemm_kernels_available(const struct nd_gemm_kernels *const **out);

#endif
