/* Compiled once per instruction set: ND_KERNELS_ISA names it, ND_VECTOR_BYTES is the size of its registers. */
#include "arithmetic/operators/kernels/gemm_kernels.h"

#include <string.h>

#if defined __SSE2__
#include <immintrin.h>
#endif

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

/* All rows of some columns: what they read of b stays in the first cache. */
static inline __attribute__((always_inline)) void add_columns(const struct nd_gemm *g, size_t j,
                                                              size_t n_vectors)
{
    size_t i = 0;
    for (; i + ROWS <= g->n; i += ROWS)
        add_tile(g, i, j, ROWS, n_vectors);
    for (; i < g->n; i++)
        add_tile(g, i, j, 1, n_vectors);
}

static void add_products(const struct nd_gemm *g)
{
    size_t j = 0;
    for (; j + VECTORS * LANES <= g->m; j += VECTORS * LANES)
        add_columns(g, j, VECTORS);
    for (; j + LANES <= g->m; j += LANES)
        add_columns(g, j, 1);
    size_t i = 0;
    for (; i + ROWS <= g->n; i += ROWS)
        add_rest(g, i, j, ROWS);
    for (; i < g->n; i++)
        add_rest(g, i, j, 1);
}

#include "arithmetic/operators/kernels/byte_kernels_template.h"

/* ---- whole numbers of 16 bits ---- */

enum { WORDS = ND_VECTOR_BYTES / sizeof(int32_t), SHORT_ROWS = 8, SHORT_VECTORS = 3 };

typedef int32_t words __attribute__((vector_size(ND_VECTOR_BYTES)));
typedef int32_t loose_words __attribute__((vector_size(ND_VECTOR_BYTES), aligned(2), may_alias));

/* sum + a0 b0 + a1 b1 of each pair. */
static inline __attribute__((always_inline)) words add_pairs_to(words sum, words a, words b)
{
#if defined __AVX512VNNI__
    return (words)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
#elif defined __AVX512BW__
    return sum + (words)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined __AVX2__
    return sum + (words)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined __SSE2__
    return sum + (words)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
    return sum + ((a << 16) >> 16) * ((b << 16) >> 16) + (a >> 16) * (b >> 16);
#endif
}

static inline __attribute__((always_inline)) words every(int32_t pair)
{
    return pair - (words){0};
}

/* n_rows x n_vectors registers; both are constants where this is called. */
static inline __attribute__((always_inline)) void add_short_tile(const struct nd_short_gemm *g, size_t i,
                                                                 size_t j, size_t n_rows, size_t n_vectors)
{
    words sums[SHORT_ROWS][SHORT_VECTORS];
    const int16_t *a = g->a + i * g->a_row, *b = g->b + 2 * j;
    for (size_t r = 0; r < n_rows; r++)
        for (size_t v = 0; v < n_vectors; v++)
            sums[r][v] = (words){0};
    for (size_t k = 0; k < g->n_pairs; k++, b += 2 * g->b_row) {
        words right[SHORT_VECTORS];
        for (size_t v = 0; v < n_vectors; v++)
            right[v] = *(const loose_words *)(b + 2 * v * WORDS);
        for (size_t r = 0; r < n_rows; r++) {
            int32_t pair;
            memcpy(&pair, a + r * g->a_row + 2 * k, sizeof pair);
            for (size_t v = 0; v < n_vectors; v++)
                sums[r][v] = add_pairs_to(sums[r][v], every(pair), right[v]);
        }
    }
    size_t n = n_vectors * WORDS < g->m - j ? n_vectors * WORDS : g->m - j;
    for (size_t r = 0; r < n_rows; r++) {
        int32_t row[SHORT_VECTORS * WORDS];
        double *c = g->c + (i + r) * g->c_row + j;
        memcpy(row, sums[r], n_vectors * sizeof(words));
        for (size_t k = 0; k < n; k++)
            c[k] += (double)row[k];
    }
}

static void add_short(const struct nd_short_gemm *g)
{
    size_t j = 0;
    for (; g->m - j > 2 * WORDS; j = j + SHORT_VECTORS * WORDS < g->m ? j + SHORT_VECTORS * WORDS : g->m) {
        size_t i = 0;
        for (; i + 4 <= g->n; i += 4)
            add_short_tile(g, i, j, 4, SHORT_VECTORS);
        for (; i < g->n; i++)
            add_short_tile(g, i, j, 1, SHORT_VECTORS);
    }
    for (; j < g->m; j += WORDS) {
        size_t i = 0;
        for (; i + SHORT_ROWS <= g->n; i += SHORT_ROWS)
            add_short_tile(g, i, j, SHORT_ROWS, 1);
        for (; i < g->n; i++)
            add_short_tile(g, i, j, 1, 1);
    }
}

#include "arithmetic/operators/kernels/quad_kernels_template.h"

static int32_t dot_short(const int16_t *a, const int16_t *b, size_t n)
{
    int32_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (int32_t)a[i] * b[i];
    return sum;
}

static void shorten(const double *x, double offset, size_t n, int16_t *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (int16_t)(int32_t)(x[i] - offset);
}

static void pair_up(const int16_t *x, const int16_t *y, size_t n, int16_t *pairs)
{
    enum { BLOCK = 64 };
    uint32_t made[BLOCK];
    for (size_t first = 0; first < n; first += BLOCK) {
        size_t m = n - first < BLOCK ? n - first : BLOCK;
        for (size_t i = 0; i < m; i++)
            made[i] = (uint16_t)x[first + i];
        for (size_t i = 0; i < m && y != NULL; i++)
            made[i] |= (uint32_t)(uint16_t)y[first + i] << 16;
        memcpy(pairs + 2 * first, made, m * sizeof *made); /* the first of a pair has the lower address */
    }
}

/* ---- one element after the other ---- */

/* The nearest whole number of |x| < 2^51, ties to even, without a call. */
static inline double nearest(double x)
{
    const double shift = 0x1.8p52;
    return (x + shift) - shift;
}

static inline int64_t bits_of(double x)
{
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline double size_of(double x)
{
    int64_t bits = bits_of(x) & INT64_MAX;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Sizes are compared as their bits are: of NaN they are the largest. */
static bool take_zero(const double *qvalues, size_t n, double zero, double *out, double *largest)
{
    int64_t most = 0, n_broken = 0;
    for (size_t i = 0; i < n; i++) {
        double x = qvalues[i] - zero, size = size_of(x);
        out[i] = x;
        most = bits_of(size) > most ? bits_of(size) : most;
        n_broken += !(nearest(x) == x) & !(size >= 0x1p51);
    }
    memcpy(largest, &most, sizeof *largest);
    return n_broken == 0;
}

static bool take_scaled(const struct nd_scaled_qvalues *from, size_t n, double *out, double *largest)
{
    const double *qvalues = from->qvalues, zero = from->zero, factor = from->factor;
    int64_t most = 0, n_broken = 0;
    for (size_t i = 0; i < n; i++) {
        double x = qvalues[i] - zero, size = size_of(x);
        out[i] = x * factor;
        most = bits_of(size) > most ? bits_of(size) : most;
        n_broken += !(nearest(x) == x) & !(size >= 0x1p51);
    }
    memcpy(largest, &most, sizeof *largest);
    return n_broken == 0;
}

static void scale(double *x, size_t n, double factor)
{
    for (size_t i = 0; i < n; i++)
        x[i] *= factor;
}

static void follow_line(const double *x, size_t n, double factor, double bias, double *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = x[i] * factor + bias;
}

static void add_pairs(const struct nd_pairs *pairs, double sign, double factor, double *out)
{
    for (size_t i = 0; i < pairs->n; i++)
        out[i] = (pairs->x[i] + sign * pairs->y[i]) * factor;
}

static void multiply_doubles(const struct nd_pairs *pairs, double factor, double *out)
{
    for (size_t i = 0; i < pairs->n; i++)
        out[i] = pairs->x[i] * pairs->y[i] * factor;
}

static void divide_pairs(const struct nd_pairs *pairs, double scale, double *out)
{
    for (size_t i = 0; i < pairs->n; i++) {
        double quotient = pairs->x[i] / (pairs->y[i] * scale);
        out[i] = pairs->y[i] != 0 ? quotient : (double)__builtin_nan("");
    }
}

static void bound(double *x, size_t n, double low, double high)
{
    for (size_t i = 0; i < n; i++) {
        double bounded = x[i] < low ? low : x[i];
        x[i] = bounded > high ? high : bounded;
    }
}

/* Near values are followed from sums, rounded and narrowed at once. */
static bool round_sums(const struct nd_sums_rounding *rounding, const double *sums, size_t n, uint8_t *out)
{
    enum { BLOCK = 128 };
    const struct nd_sums_rounding r = *rounding;
    int64_t signs = -1; /* as below */
    for (size_t first = 0; first < n; first += BLOCK) {
        size_t m = n - first < BLOCK ? n - first : BLOCK;
        int32_t qvalues[BLOCK];
        for (size_t i = 0; i < m; i++) {
            double near = sums[first + i] * r.factor + r.bias;
            near = near < r.least ? r.least : near;
            near = near > r.greatest ? r.greatest : near;
            double whole = nearest(near), off = near - whole, qvalue = whole + r.zero;
            signs &= bits_of(size_of(off) - r.most) & bits_of(size_of(near) - r.largest);
            qvalue = qvalue >= 0 ? qvalue : 0; /* NaN, too */
            qvalue = qvalue > UINT8_MAX ? UINT8_MAX : qvalue;
            qvalues[i] = (int32_t)qvalue;
        }
        for (size_t i = 0; i < m; i++)
            out[first + i] = (uint8_t)qvalues[i];
    }
    return signs < 0;
}

static bool round_block(const struct nd_rounding_block *block)
{
    const double *near = block->near, zero = block->zero, low = block->low, high = block->high;
    const double most = block->most, largest = block->largest;
    double *restrict qvalues = block->qvalues;
    int64_t signs = -1; /* of differences that must be negative */
    for (size_t i = 0; i < block->n; i++) {
        double whole = nearest(near[i]), off = near[i] - whole, qvalue = whole + zero;
        signs &= bits_of(size_of(off) - most) & bits_of(size_of(near[i]) - largest);
        qvalue = qvalue < low ? low : qvalue;
        qvalues[i] = qvalue > high ? high : qvalue;
    }
    return signs < 0;
}

#include "arithmetic/operators/kernels/qvalue_kernels_template.h"

/* ---- planes ---- */

#define ELEMENT double
#define TAPS nd_plane_taps
#define NAMED(name) name
#include "arithmetic/operators/kernels/plane_kernel_template.h"
#undef ELEMENT
#undef TAPS
#undef NAMED

#define ELEMENT float
#define TAPS nd_float_taps
#define NAMED(name) name##_of_floats
#include "arithmetic/operators/kernels/plane_kernel_template.h"

#define NAME_OF(isa) NAME_OF_(isa)
#define NAME_OF_(isa) nd_gemm_kernels_##isa
#define TEXT_OF(isa) TEXT_OF_(isa)
#define TEXT_OF_(isa) #isa
extern const struct nd_gemm_kernels NAME_OF(ND_KERNELS_ISA);
const struct nd_gemm_kernels NAME_OF(ND_KERNELS_ISA) = {TEXT_OF(ND_KERNELS_ISA),
                                                        add_products,
                                                        add_short,
                                                        multiply_quads,
                                                        make_quads,
                                                        total_quads,
                                                        dot_short,
                                                        shorten,
                                                        widen,
                                                        to_floats,
                                                        narrow,
                                                        spread,
                                                        narrow_words,
                                                        spread_words,
                                                        compare_bytes,
                                                        compare_words,
                                                        pair_keys,
                                                        compare_methods,
                                                        count_ends,
                                                        find_cases,
                                                        look_up,
                                                        pair_up,
                                                        add_plane,
                                                        add_plane_of_floats,
                                                        take_zero,
                                                        take_scaled,
                                                        scale,
                                                        follow_line,
                                                        add_pairs,
                                                        multiply_doubles,
                                                        divide_pairs,
                                                        bound,
                                                        round_block,
                                                        round_sums,
                                                        find_range};
