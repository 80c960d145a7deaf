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

/* ---- quantised values as bytes, and numbers made of them ---- */

static void widen(const uint8_t *x, int zero, size_t n, int16_t *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (int16_t)(x[i] - zero);
}

static void to_floats(const uint8_t *x, int zero, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (float)(x[i] - zero);
}

static bool narrow(const double *x, double low, size_t n, uint8_t *out)
{
    int32_t n_broken = 0;
    for (size_t i = 0; i < n; i++) {
        double qvalue = x[i] - low;
        int32_t whole = (int32_t)(qvalue >= 0 && qvalue <= UINT8_MAX ? qvalue : 0);
        n_broken |= (double)whole != qvalue;
        out[i] = (uint8_t)whole;
    }
    return n_broken == 0;
}

static void spread(const uint8_t *x, double low, size_t n, double *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (double)x[i] + low;
}

static void look_up(const uint8_t *table, const uint8_t *x, size_t n, uint8_t *restrict out)
{
    size_t i = 0;
#if defined __AVX512VBMI__
    const __m512i first = _mm512_loadu_si512(table), second = _mm512_loadu_si512(table + 64),
                  third = _mm512_loadu_si512(table + 128), last = _mm512_loadu_si512(table + 192);
    for (; i + 64 <= n; i += 64) {
        __m512i places = _mm512_loadu_si512(x + i); /* their lowest 7 bits choose, and the highest one of two */
        __m512i low = _mm512_permutex2var_epi8(first, places, second);
        __m512i high = _mm512_permutex2var_epi8(third, places, last);
        _mm512_storeu_si512(out + i, _mm512_mask_blend_epi8(_mm512_movepi8_mask(places), low, high));
    }
#endif
    for (; i < n; i++)
        out[i] = table[x[i]];
}

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

/* ---- products of bytes by signed bytes, four terms at a time ---- */

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

/* ---- quantised values that were made against quantised values that were expected ---- */

static bool narrow_words(const double *x, double low, size_t n, uint16_t *out)
{
    int32_t n_broken = 0;
    for (size_t i = 0; i < n; i++) {
        double qvalue = x[i] - low;
        int32_t whole = (int32_t)(qvalue >= 0 && qvalue <= UINT16_MAX ? qvalue : 0);
        n_broken |= (double)whole != qvalue;
        out[i] = (uint16_t)whole;
    }
    return n_broken == 0;
}

static void spread_words(const uint16_t *x, double low, size_t n, double *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (double)x[i] + low;
}

/* Sums of 32 bits for each block: 255^2 * 2^15 fits. */
static void compare_bytes(const uint8_t *a, const uint8_t *b, size_t n, struct nd_qvalue_differences *out)
{
    enum { BLOCK = 1 << 15 };
    *out = (struct nd_qvalue_differences){0};
    for (size_t first = 0; first < n; first += BLOCK) {
        size_t end = n - first < BLOCK ? n : first + BLOCK;
        int32_t n_differing = 0, sum = 0, max = 0, energy = 0;
        for (size_t i = first; i < end; i++) {
            int32_t d = a[i] - b[i], size = d < 0 ? -d : d;
            n_differing += d != 0;
            sum += d;
            energy += d * d;
            max = size > max ? size : max;
        }
        out->n_differing += (uint64_t)n_differing;
        out->sum += sum;
        out->energy += (uint64_t)energy;
        out->max = (uint64_t)max > out->max ? (uint64_t)max : out->max;
    }
}

/* Squares need 32 bits, and their sums 64. */
static void compare_words(const uint16_t *a, const uint16_t *b, size_t n, struct nd_qvalue_differences *out)
{
    enum { BLOCK = 1 << 14 };
    *out = (struct nd_qvalue_differences){0};
    for (size_t first = 0; first < n; first += BLOCK) {
        size_t end = n - first < BLOCK ? n : first + BLOCK;
        int32_t n_differing = 0, sum = 0;
        uint32_t max = 0;
        uint64_t energy = 0;
        for (size_t i = first; i < end; i++) {
            int32_t d = a[i] - b[i];
            uint32_t size = (uint32_t)(d < 0 ? -d : d);
            n_differing += d != 0;
            sum += d;
            energy += size * size;
            max = size > max ? size : max;
        }
        out->n_differing += (uint64_t)n_differing;
        out->sum += sum;
        out->energy += energy;
        out->max = max > out->max ? max : out->max;
    }
}

static bool pair_keys(const struct nd_pairs *pairs, double low, uint32_t *restrict keys)
{
    const double *values = pairs->x, *qvalues = pairs->y;
    int32_t n_broken = 0;
    for (size_t i = 0; i < pairs->n; i++) {
        double x = values[i] + ND_KEY_LARGEST, y = qvalues[i] - low;
        int32_t row = (int32_t)(x >= 0 && x <= 2 * ND_KEY_LARGEST ? x : -1);
        int32_t column = (int32_t)(y >= 0 && y <= UINT8_MAX ? y : -1);
        n_broken |= ((double)row != x) | ((double)column != y);
        keys[i] = (uint32_t)(row * (UINT8_MAX + 1) + column);
    }
    return n_broken == 0;
}

static void compare_methods(const double *given, const double *made, const double *exact, size_t n,
                            struct nd_methods_compared *out)
{
    int64_t n_wrong = 0, n_apart = 0, n_as_made = 0, n_as_exact = 0, most = 0;
    for (size_t i = 0; i < n; i++) {
        double off = size_of(given[i] - made[i]);
        int64_t is_apart = made[i] != exact[i], bits = bits_of(off);
        n_wrong += off != 0;
        n_apart += is_apart;
        n_as_made += is_apart & (off == 0);
        n_as_exact += is_apart & (given[i] == exact[i]);
        bits = off >= 0 ? bits : 0;       /* not of NaN */
        most = bits > most ? bits : most; /* sizes are ordered as their bits are */
    }
    *out = (struct nd_methods_compared){(uint64_t)n_wrong, (uint64_t)n_apart, (uint64_t)n_as_made,
                                        (uint64_t)n_as_exact, 0};
    memcpy(&out->max, &most, sizeof most);
}

static void count_ends(const struct nd_qvalue_ends *ends, const struct nd_pairs *pairs,
                       struct nd_ends_counted *out)
{
    const struct nd_qvalue_ends e = *ends;
    const double *qvalues = pairs->x, *ref = pairs->y;
    int64_t n_near = 0, n_signed = 0, n_signed_near = 0, at_low = 0, at_high = 0, ref_low = 0, ref_high = 0;
    int64_t far_low = 0, far_high = 0;
    for (size_t i = 0; i < pairs->n; i++) {
        int64_t is_near = size_of(qvalues[i] - ref[i]) <= e.near;
        int64_t is_signed = (qvalues[i] >= e.min_signed) & (qvalues[i] < e.max_signed);
        int64_t is_low = qvalues[i] == e.low, is_high = qvalues[i] == e.high;
        n_near += is_near;
        n_signed += is_signed;
        n_signed_near += is_signed & is_near;
        at_low += is_low;
        at_high += is_high;
        ref_low += ref[i] == e.low;
        ref_high += ref[i] == e.high;
        far_low += is_low & (is_near ^ 1);
        far_high += is_high & (is_near ^ 1);
    }
    *out = (struct nd_ends_counted){(uint64_t)n_near,
                                    (uint64_t)n_signed,
                                    (uint64_t)n_signed_near,
                                    {(uint64_t)at_low, (uint64_t)at_high},
                                    {(uint64_t)ref_low, (uint64_t)ref_high},
                                    {(uint64_t)far_low, (uint64_t)far_high}};
}

/* The whole number at or below x, 0 <= x < 2^51. */
static inline double whole_below(double x)
{
    double whole = nearest(x);
    return whole > x ? whole - 1 : whole;
}

/* Without a branch: a Relu cuts off as many as it lets through, in no order that a processor could guess. */
static size_t find_cases(const struct nd_case_limits *limits, const struct nd_pairs *pairs,
                         int32_t *restrict keys)
{
    const struct nd_case_limits l = *limits;
    const double *near = pairs->x, *given = pairs->y, inverse = 1 / l.n_cells;
    const double cut_off = 2 * l.n_cells * ND_CASE_OUTCOMES, in_doubt = cut_off + ND_CASE_OUTCOMES;
    int64_t n_wrong = 0;
    for (size_t i = 0; i < pairs->n; i++) {
        double v = near[i], inside = v > -l.n_whole ? v : -l.n_whole;
        inside = inside < l.n_whole - 1 ? inside : l.n_whole - 1;
        double place = whole_below((inside + l.n_whole) * l.n_cells), above = whole_below(place * inverse);
        double whole = above - l.n_whole, cell = place - above * l.n_cells, qvalue = whole + l.zero;
        double outcome = given[i] - qvalue + 1;
        int64_t is_below = (v < l.cut_low) & (v > -l.largest), is_above = (v > l.cut_high) & (v < l.largest);
        int64_t is_one = (v > l.low) & (v < l.high) & (qvalue >= l.qvalue_low) & (qvalue < l.qvalue_high) &
                         (outcome >= 0) & (outcome < ND_CASE_OUTCOMES);
        int64_t is_half = (cell >= l.half_low) & (cell <= l.half_high);
        int64_t is_large = (whole >= l.large) | (whole <= -l.large);
        double key = ((whole < 0 ? l.n_cells : 0) + cell) * ND_CASE_OUTCOMES + whole_below(outcome);
        key = is_one & ~(is_half & is_large) ? key : in_doubt;
        keys[i] = (int32_t)(is_below | is_above ? cut_off : key);
        n_wrong += (is_below & (given[i] != l.end_qvalues[0])) | (is_above & (given[i] != l.end_qvalues[1]));
    }
    return (size_t)n_wrong;
}

static void find_range(const double *x, size_t n, double *low, double *high)
{
    enum { N = 16 };
    double least[N], most[N];
    size_t i = 0;
    for (size_t k = 0; k < N; k++)
        least[k] = most[k] = x[0];
    for (; i + N <= n; i += N)
        for (size_t k = 0; k < N; k++) {
            least[k] = x[i + k] < least[k] ? x[i + k] : least[k];
            most[k] = x[i + k] > most[k] ? x[i + k] : most[k];
        }
    for (; i < n; i++) {
        least[0] = x[i] < least[0] ? x[i] : least[0];
        most[0] = x[i] > most[0] ? x[i] : most[0];
    }
    *low = *high = x[0];
    for (size_t k = 0; k < N; k++) {
        *low = least[k] < *low ? least[k] : *low;
        *high = most[k] > *high ? most[k] : *high;
    }
}

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
