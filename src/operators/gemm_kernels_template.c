/* Compiled once per instruction set: ND_KERNELS_ISA names it, ND_VECTOR_BYTES is the size of its registers. */
#include "operators/gemm_kernels.h"

enum { LANES = ND_VECTOR_BYTES / sizeof(double), ROWS = 4, VECTORS = 3 };

typedef double vector __attribute__((vector_size(ND_VECTOR_BYTES)));
/* Elements of matrices are aligned as doubles only. */
typedef double loose __attribute__((vector_size(ND_VECTOR_BYTES), aligned(8), may_alias));

/* n_rows x n_vectors registers of c; both are constants where this is called. */
static inline __attribute__((always_inline)) void add_tile(const struct nd_gemm *g, size_t i, size_t j,
                                                           size_t n_rows, size_t n_vectors)
{
    vector sums[ROWS][VECTORS];
    const double *a = g->a + i * g->a_row, *b = g->b + j;
    double *c = g->c + i * g->c_row + j;
    for (size_t r = 0; r < n_rows; r++)
        for (size_t v = 0; v < n_vectors; v++)
            sums[r][v] = *(const loose *)(c + r * g->c_row + v * LANES);
    for (size_t k = 0; k < g->n_k; k++, b += g->b_row) {
        vector right[VECTORS];
        for (size_t v = 0; v < n_vectors; v++)
            right[v] = *(const loose *)(b + v * LANES);
        for (size_t r = 0; r < n_rows; r++) {
            vector left = a[r * g->a_row + k] - (vector){0};
            for (size_t v = 0; v < n_vectors; v++)
                sums[r][v] += left * right[v];
        }
    }
    for (size_t r = 0; r < n_rows; r++)
        for (size_t v = 0; v < n_vectors; v++)
            *(loose *)(c + r * g->c_row + v * LANES) = sums[r][v];
}

/* Columns behind the last whole register. */
static void add_rest(const struct nd_gemm *g, size_t i, size_t j, size_t n_rows)
{
    for (; j < g->m; j++) {
        double sums[ROWS] = {0};
        const double *a = g->a + i * g->a_row, *b = g->b + j;
        for (size_t r = 0; r < n_rows; r++)
            sums[r] = g->c[(i + r) * g->c_row + j];
        for (size_t k = 0; k < g->n_k; k++, b += g->b_row)
            for (size_t r = 0; r < n_rows; r++)
                sums[r] += a[r * g->a_row + k] * *b;
        for (size_t r = 0; r < n_rows; r++)
            g->c[(i + r) * g->c_row + j] = sums[r];
    }
}

static void add_products(const struct nd_gemm *g)
{
    for (size_t i = 0; i < g->n; i += ROWS) {
        size_t j = 0;
        if (g->n - i >= ROWS) {
            for (; j + VECTORS * LANES <= g->m; j += VECTORS * LANES)
                add_tile(g, i, j, ROWS, VECTORS);
            for (; j + LANES <= g->m; j += LANES)
                add_tile(g, i, j, ROWS, 1);
            add_rest(g, i, j, ROWS);
            continue;
        }
        for (size_t r = i; r < g->n; r++) {
            for (j = 0; j + VECTORS * LANES <= g->m; j += VECTORS * LANES)
                add_tile(g, r, j, 1, VECTORS);
            for (; j + LANES <= g->m; j += LANES)
                add_tile(g, r, j, 1, 1);
            add_rest(g, r, j, 1);
        }
    }
}

#define NAME_OF(isa) NAME_OF_(isa)
#define NAME_OF_(isa) nd_gemm_kernels_##isa
#define TEXT_OF(isa) TEXT_OF_(isa)
#define TEXT_OF_(isa) #isa
extern const struct nd_gemm_kernels NAME_OF(ND_KERNELS_ISA);
const struct nd_gemm_kernels NAME_OF(ND_KERNELS_ISA) = {TEXT_OF(ND_KERNELS_ISA), add_products};
