/* Sums of products of matrices of doubles, and what is done with each of them, compiled once per instruction
 * set. In every element the products are added in order of k, each product and each sum rounded by itself: so
 * all sets give the same bits. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* c[i][j] += sum over k of a[i][k] b[k][j]. The matrices are rows that lie so many elements apart. */
struct nd_gemm {
    size_t n, n_k, m; /* rows of a and c, terms, columns of b and c */
    const double *a, *b;
    double *c;
    size_t a_row, b_row, c_row;
};

/* The same of whole numbers of 16 bits, two terms at a time: sums that 32 bits hold are exact in any order. b
 * has for each pair of terms both numbers of each column; its rows have b_row columns, at least m rounded up to
 * a multiple of ND_SHORT_COLUMNS, all of which are read. An odd last term is paired with 0 in b; in a, whatever
 * follows is read. */
enum { ND_SHORT_COLUMNS = 48 };
struct nd_short_gemm {
    size_t n, n_pairs, m;
    const int16_t *a, *b;
    double *c; /* c += */
    size_t a_row, b_row, c_row;
};

/* Products of bytes by signed bytes, four terms at a time, exact where 32 bits hold each sum: for each row i of
 * ND_QUAD_ROWS and column j, c[i][j] = start[i] + step[i] totals[j] + sum over quads k and t < 4 of
 * a[k][i][t] b[4 (offsets[k] + j) + t]. Columns of b, totals and c up to ND_QUAD_COLUMNS are read and written,
 * whatever m is. */
enum { ND_QUAD_ROWS = 8, ND_QUAD_COLUMNS = 96 };
struct nd_quad_gemm {
    size_t n_quads, m; /* m: columns that are wanted, at most ND_QUAD_COLUMNS */
    const int8_t *a;   /* [n_quads][ND_QUAD_ROWS][4] */
    const uint8_t *b;
    const ptrdiff_t *offsets;    /* [n_quads] */
    const int32_t *start, *step; /* [ND_QUAD_ROWS] */
    const int32_t *totals;       /* NULL: none */
    double *c;                   /* [ND_QUAD_ROWS][ND_QUAD_COLUMNS], written */
};

/* One plane of a convolution of one plane by steps of 1. `in` has its padding around it, rows of in_row
 * elements. In every element the products are added in order of taps. */
struct nd_plane_taps {
    const double *in, *weights;
    const ptrdiff_t *offsets; /* [n_taps] of each tap from the first */
    size_t n_taps, n_rows, n_columns, in_row;
    double *out; /* n_rows x n_columns: written; room for in_row - n_columns more is not needed */
};

/* The same of floats: whole numbers whose sums stay below 2^24 are exact. */
struct nd_float_taps {
    const float *in, *weights;
    const ptrdiff_t *offsets;
    size_t n_taps, n_rows, n_columns, in_row;
    double *out;
};

/* quantised values[i] = the whole number nearest to near[i], ties to even, + zero, within low and high. False:
 * a value is as near to a tie as `most` or further from the whole number, or of `largest` magnitude or more, or
 * NaN. */
struct nd_rounding_block {
    const double *near;
    size_t n;
    double zero, low, high, most, largest;
    double *qvalues;
};

/* The same in one go of near = sum * factor + bias within least and greatest; quantised values are bytes. */
struct nd_sums_rounding {
    double factor, bias, least, greatest, zero, most, largest;
};

struct nd_scaled_qvalues {
    const double *qvalues;
    double zero, factor;
};

struct nd_pairs {
    const double *x, *y;
    size_t n;
};

/* Where values lie between whole numbers, in cells of a power of two to the whole, and what was made of them.
 */
struct nd_case_limits {
    double n_cells, n_whole;  /* of one whole; values are told apart from -n_whole to n_whole */
    double cut_low, cut_high; /* beyond them bounds cut off, where the magnitude is below `largest` */
    double largest;
    double low, high; /* between them no bound is near */
    double qvalue_low, qvalue_high, zero, end_qvalues[2];
    double large;               /* of whole numbers of this magnitude and more, what is near a half ... */
    double half_low, half_high; /* ... from this cell to that one, is in doubt */
};
enum { ND_CASE_OUTCOMES = 4 }; /* a quantised value one below the whole number, that, one and two above */

enum { ND_KEY_LARGEST = 255 }; /* of a quantised value of 8 bits less a zero point */

/* How quantised values of the same width differ: exact in 64 bits. */
struct nd_qvalue_differences {
    uint64_t n_differing, energy, max;
    int64_t sum;
};

/* Elements in which `given` is not as made, `exact` is not as made, and of these those in which given is as
 * made or as exact; the largest |given - made|, of numbers. */
struct nd_methods_compared {
    uint64_t n_wrong, n_apart, n_apart_as_made, n_apart_as_exact;
    double max;
};

/* What quantised values of a type from `low` to `high` have beside a reference. Near: by at most `near` from
 * it. */
struct nd_qvalue_ends {
    double low, high, near;
    double min_signed, max_signed; /* quantised values from the one to below the other are of the other sign */
};
struct nd_ends_counted {
    uint64_t n_near, n_signed, n_signed_near;
    uint64_t at_end[2], ref_at_end[2], far[2]; /* far: at the end of the quantised values, and not near */
};

struct nd_gemm_kernels {
    const char *name; /* "scalar", "avx2", "avx512", "avx512vnni", "neon" */
    void (*add)(const struct nd_gemm *gemm);
    void (*add_short)(const struct nd_short_gemm *gemm);
    void (*multiply_quads)(const struct nd_quad_gemm *gemm);
    /* out[n][4]: one byte of each row; and totals[i] += the sum of quad i. */
    void (*make_quads)(const uint8_t *const rows[4], size_t n, uint8_t *out);
    void (*total_quads)(const uint8_t *quads, size_t n, int32_t *totals);
    /* The sum of a[i] b[i], which 32 bits hold. */
    int32_t (*dot_short)(const int16_t *a, const int16_t *b, size_t n);
    /* out[i] = x[i] - offset, a whole number of 16 bits. */
    void (*shorten)(const double *x, double offset, size_t n, int16_t *out);
    /* out[i] = x[i] - zero. */
    void (*widen)(const uint8_t *x, int zero, size_t n, int16_t *out);
    void (*to_floats)(const uint8_t *x, int zero, size_t n, float *out);
    /* out[i] = x[i] - low. False: some are no bytes, and 0 or without their fraction. And back. */
    bool (*narrow)(const double *x, double low, size_t n, uint8_t *out);
    void (*spread)(const uint8_t *x, double low, size_t n, double *out);
    bool (*narrow_words)(const double *x, double low, size_t n, uint16_t *out);
    void (*spread_words)(const uint16_t *x, double low, size_t n, double *out);
    /* a - b, in whole numbers. */
    void (*compare_bytes)(const uint8_t *a, const uint8_t *b, size_t n, struct nd_qvalue_differences *out);
    void (*compare_words)(const uint16_t *a, const uint16_t *b, size_t n, struct nd_qvalue_differences *out);
    /* keys[i] = (x[i] + ND_KEY_LARGEST) * 256 + (y[i] - low). False: some x are not whole numbers from
     * -ND_KEY_LARGEST to that, or some y - low are no bytes, and keys are not to be used. */
    bool (*pair_keys)(const struct nd_pairs *pairs, double low, uint32_t *keys);
    /* How `given` lies to what was made in one way, and to what was made in another. */
    void (*compare_methods)(const double *given, const double *made, const double *exact, size_t n,
                            struct nd_methods_compared *out);
    void (*count_ends)(const struct nd_qvalue_ends *ends, const struct nd_pairs *qvalues_and_reference,
                       struct nd_ends_counted *out);
    /* keys[i]: (cell of near[i], those of negative values behind the others) * ND_CASE_OUTCOMES + the outcome
     * that given[i] is; 2 n_cells * ND_CASE_OUTCOMES where a bound cuts off, and (2 n_cells + 1) *
     * ND_CASE_OUTCOMES where none of this is certain. How many of those that are cut off are not what they have
     * to be. */
    size_t (*find_cases)(const struct nd_case_limits *limits, const struct nd_pairs *near_and_given,
                         int32_t *keys);
    /* out[i] = table[x[i]]; table[256]. */
    void (*look_up)(const uint8_t *table, const uint8_t *x, size_t n, uint8_t *out);
    /* pairs[2 n]: x[i], y[i]. y NULL: 0. */
    void (*pair)(const int16_t *x, const int16_t *y, size_t n, int16_t *pairs);
    void (*add_plane)(const struct nd_plane_taps *plane);
    void (*add_float_plane)(const struct nd_float_taps *plane);
    /* out[i] = quantised values[i] - zero, and the largest magnitude of them. False: some have a fraction. */
    bool (*take_zero)(const double *qvalues, size_t n, double zero, double *out, double *largest);
    /* The same, but out[i] is also multiplied by factor: two roundings. */
    bool (*take_scaled)(const struct nd_scaled_qvalues *qvalues, size_t n, double *out, double *largest);
    void (*scale)(double *x, size_t n, double factor);
    /* out[i] = x[i] * factor + bias: two roundings. */
    void (*follow_line)(const double *x, size_t n, double factor, double bias, double *out);
    /* out[i] = (x[i] + y[i] * sign) * factor, and x[i] * y[i] * factor, and x[i] / (y[i] * scale), NaN where y
     * is 0. */
    void (*add_pairs)(const struct nd_pairs *pairs, double sign, double factor, double *out);
    void (*multiply_pairs)(const struct nd_pairs *pairs, double factor, double *out);
    void (*divide_pairs)(const struct nd_pairs *pairs, double scale, double *out);
    /* x[i] = within low and high; NaN stays. */
    void (*bound)(double *x, size_t n, double low, double high);
    bool (*round)(const struct nd_rounding_block *block);
    bool (*round_sums)(const struct nd_sums_rounding *rounding, const double *sums, size_t n, uint8_t *out);
    void (*range)(const double *x, size_t n, double *low, double *high); /* of n > 0 values, none NaN */
};

/* The best that this processor runs and NPUDIFF_CPU allows, whatever it was at the first call; static. A name
 * that is not known, or better than the processor, allows all. */
const struct nd_gemm_kernels *nd_gemm_kernels(void);
/* The same with a limit; NULL: none. */
const struct nd_gemm_kernels *nd_gemm_kernels_up_to(const char *limit);
/* All that it runs, the most general first. */
size_t nd_gemm_kernels_available(const struct nd_gemm_kernels *const **out);
