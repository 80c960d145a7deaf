/* Products of bytes by signed bytes, four terms at a time: a part of gemm_kernels_template.c. */

enum {
    QUAD_ROWS = ND_VECTOR_BYTES == 64 ? ND_QUAD_ROWS : 4, /* that registers hold at a time */
    QUAD_VECTORS = ND_VECTOR_BYTES == 64 ? 3 : 2,
};
_Static_assert(ND_QUAD_ROWS % QUAD_ROWS == 0, "rows are taken so many at a time");
_Static_assert(ND_QUAD_COLUMNS % (QUAD_VECTORS * WORDS) == 0, "no tile goes beyond the last column");

typedef int16_t halves __attribute__((vector_size(ND_VECTOR_BYTES)));
typedef uint16_t plain_halves __attribute__((vector_size(ND_VECTOR_BYTES)));

/* sum + the four products in each word. Without VNNI in 16 bits: adding pairs of products of bytes in 16 bits
 * would saturate. */
static inline __attribute__((always_inline)) words add_quads_to(words sum, words a, words b)
{
#if defined __AVX512VNNI__
    return (words)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)b, (__m512i)a);
#else
    sum = add_pairs_to(sum, (words)((halves)((plain_halves)a << 8) >> 8), (words)((plain_halves)b & 255));
    return add_pairs_to(sum, (words)((halves)a >> 8), (words)((plain_halves)b >> 8));
#endif
}

/* QUAD_ROWS x n_vectors registers; n_vectors is a constant where this is called. */
static inline __attribute__((always_inline)) void add_quad_tile(const struct nd_quad_gemm *g, size_t i,
                                                                size_t j, size_t n_vectors)
{
    words sums[QUAD_ROWS][QUAD_VECTORS];
    const int8_t *a = g->a + 4 * i;
    const uint8_t *b = g->b + 4 * j;
    for (size_t r = 0; r < QUAD_ROWS; r++)
        for (size_t v = 0; v < n_vectors; v++) {
            sums[r][v] = every(g->start[i + r]);
            if (g->totals != NULL)
                sums[r][v] += g->step[i + r] * *(const loose_words *)(g->totals + j + v * WORDS);
        }
    for (size_t k = 0; k < g->n_quads; k++, a += 4 * ND_QUAD_ROWS) {
        words right[QUAD_VECTORS];
        const uint8_t *from = b + 4 * g->offsets[k];
        for (size_t v = 0; v < n_vectors; v++)
            right[v] = *(const loose_words *)(from + 4 * v * WORDS);
        for (size_t r = 0; r < QUAD_ROWS; r++) {
            int32_t quad;
            memcpy(&quad, a + 4 * r, sizeof quad);
            for (size_t v = 0; v < n_vectors; v++)
                sums[r][v] = add_quads_to(sums[r][v], every(quad), right[v]);
        }
    }
    for (size_t r = 0; r < QUAD_ROWS; r++) {
        int32_t row[QUAD_VECTORS * WORDS];
        double *c = g->c + (i + r) * ND_QUAD_COLUMNS + j;
        memcpy(row, sums[r], n_vectors * sizeof(words));
        for (size_t k = 0; k < n_vectors * WORDS; k++)
            c[k] = (double)row[k];
    }
}

static void multiply_quads(const struct nd_quad_gemm *g)
{
    for (size_t j = 0; j < g->m; j += QUAD_VECTORS * WORDS)
        for (size_t i = 0; i < ND_QUAD_ROWS; i += QUAD_ROWS) {
            if (g->m - j > 2 * WORDS)
                add_quad_tile(g, i, j, QUAD_VECTORS);
            else if (g->m - j > WORDS)
                add_quad_tile(g, i, j, 2);
            else
                add_quad_tile(g, i, j, 1);
        }
}

static void make_quads(const uint8_t *const rows[4], size_t n, uint8_t *out)
{
    enum { BLOCK = 64 };
    uint32_t made[BLOCK];
    for (size_t first = 0; first < n; first += BLOCK) {
        size_t m = n - first < BLOCK ? n - first : BLOCK;
        const uint8_t *a = rows[0] + first, *b = rows[1] + first, *c = rows[2] + first, *d = rows[3] + first;
        for (size_t i = 0; i < m; i++)
            made[i] = a[i] | (uint32_t)b[i] << 8 | (uint32_t)c[i] << 16 | (uint32_t)d[i] << 24;
        memcpy(out + 4 * first, made, m * sizeof *made); /* the first of a quad has the lowest address */
    }
}

static void total_quads(const uint8_t *quads, size_t n, int32_t *totals)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t quad;
        memcpy(&quad, quads + 4 * i, sizeof quad);
        totals[i] += (int32_t)((quad & 255) + (quad >> 8 & 255) + (quad >> 16 & 255) + (quad >> 24));
    }
}
