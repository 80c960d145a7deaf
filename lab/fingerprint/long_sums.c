#include "lab/fingerprint/long_sums.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

enum {
    WEIGHT = 127,
    LARGE = 127,
    PRODUCT = WEIGHT * LARGE,
    N_STEPS = 8,      /* partial sums, of either sign */
    N_CANCELLING = 4, /* sums that come back */
    N_ROWS = 2 * N_STEPS + N_CANCELLING,
    TOLERANCE = 3, /* codes: what requantisation may do */
    N_PAIRED = 64,
};

/* One model: x [n_rows, n_terms] by n_terms weights of 127; quantised value zero_y + span stands for the sum
 * `full`. */
struct sums {
    size_t n_rows, n_terms;
    int64_t zero_x, zero_y, span;
    double full;
};

/* x: quantised values. */
static const double *run(struct nd_experiment *e, const struct sums *s, const double *x)
{
    uint8_t *weights = nd_experiment_alloc(e, s->n_terms, 1);
    if (weights == NULL)
        return NULL;
    memset(weights, WEIGHT, s->n_terms);
    const struct nd_product product = {.form = ND_FORM_MATMUL,
                                       .dtype = ND_DTYPE_U8,
                                       .n_rows = s->n_rows,
                                       .n_terms = s->n_terms,
                                       .n_columns = 1,
                                       .weights = weights,
                                       .scale_x = 0x1p-7F,
                                       .scale_w = 0x1p-7F,
                                       .scale_y = (float)(0x1p-14 * s->full / (double)s->span),
                                       .zero_x = s->zero_x,
                                       .zero_y = s->zero_y};
    const double *qvalues = nd_product_ask(e, &product, x, 1);
    e->is_on_npu = e->is_on_npu && e->n_elsewhere == 0;
    return qvalues;
}

static bool is_right(const struct sums *s, double qvalue, int64_t sum)
{
    return fabs(qvalue - (double)s->zero_y - (double)s->span * (double)sum / s->full) <= TOLERANCE;
}

/* ---- one sign, and cancelling ---- */

/* Signs of the terms, in runs: 0 and 1 go to three quarters and come back by one; 2 has neighbours cancel; 3
 * goes there in two steps, with the way back between them. */
static int sign_of(size_t kind, size_t term, size_t n_terms)
{
    size_t eighth = term * 8 / n_terms;
    const int signs[N_CANCELLING] = {eighth < 6 ? 1 : -1, eighth < 6 ? -1 : 1, term % 2 == 0 ? 1 : -1,
                                     eighth == 3 || eighth == 4 ? -1 : 1};
    return signs[kind];
}

static int64_t sum_of(size_t row, size_t n_terms)
{
    static const int halves[N_CANCELLING] = {1, -1, 0, 1};
    if (row >= 2 * N_STEPS)
        return halves[row - 2 * N_STEPS] * (int64_t)(n_terms / 2) * PRODUCT;
    int64_t sum = (int64_t)(n_terms * (row % N_STEPS + 1) / N_STEPS) * PRODUCT;
    return row < N_STEPS ? sum : -sum;
}

static void fill(double *x, size_t n_terms)
{
    for (size_t row = 0; row < N_ROWS; row++) {
        size_t n = (size_t)(llabs(sum_of(row, n_terms)) / PRODUCT);
        for (size_t t = 0; t < n_terms; t++) {
            int sign = row >= 2 * N_STEPS ? sign_of(row - 2 * N_STEPS, t, n_terms)
                       : t >= n           ? 0
                       : row < N_STEPS    ? 1
                                          : -1;
            x[row * n_terms + t] = 128 + sign * LARGE;
        }
    }
}

static int64_t wrapped(int64_t sum, int64_t half)
{
    int64_t rest = (sum + half) % (2 * half);
    return (rest < 0 ? rest + 2 * half : rest) - half;
}

/* Whether those beyond what the width holds came out as what is left of them, or as the most that it holds. */
static void explain(const struct sums *s, const double *qvalues, struct nd_long_sums *out)
{
    int n_bits = nd_long_sums_bits(out);
    if (n_bits == 0)
        return;
    int64_t half = (int64_t)1 << (n_bits - 1);
    for (size_t row = 0; row < 2 * N_STEPS; row++) {
        int64_t sum = sum_of(row, s->n_terms);
        if (llabs(sum) < out->wrong)
            continue;
        out->n_beyond++;
        out->n_wrapped += is_right(s, qvalues[row], wrapped(sum, half));
        out->n_saturated += is_right(s, qvalues[row], sum > 0 ? half - 1 : -half);
    }
}

static void judge(const struct sums *s, const double *qvalues, struct nd_long_sums *out)
{
    int64_t before = out->right;
    for (size_t row = 0; row < N_ROWS; row++) {
        int64_t sum = sum_of(row, s->n_terms), magnitude = llabs(sum);
        bool is_fine = is_right(s, qvalues[row], sum);
        out->n_qvalues++;
        out->n_wrong += !is_fine;
        if (row >= 2 * N_STEPS) {
            out->n_cancelled_wrong += !is_fine;
        } else if (is_fine) {
            out->right = magnitude > out->right ? magnitude : out->right;
        } else {
            out->wrong = out->wrong == 0 || magnitude < out->wrong ? magnitude : out->wrong;
        }
    }
    /* What is right again beyond the first that is wrong says nothing. */
    if (out->wrong > 0 && out->right >= out->wrong) {
        out->right = before < out->wrong ? before : 0;
        for (size_t row = 0; row < 2 * N_STEPS; row++) {
            int64_t magnitude = llabs(sum_of(row, s->n_terms));
            if (magnitude < out->wrong && magnitude > out->right)
                out->right = magnitude;
        }
    }
    if (out->wrong > 0)
        explain(s, qvalues, out);
}

static void ask(struct nd_experiment *e, size_t n_terms, struct nd_long_sums *out)
{
    double *x = nd_calloc(N_ROWS * n_terms, sizeof *x);
    const struct sums s = {.n_rows = N_ROWS,
                           .n_terms = n_terms,
                           .zero_x = 128,
                           .zero_y = 128,
                           .span = 120,
                           .full = (double)n_terms * PRODUCT};
    if (x != NULL)
        fill(x, n_terms);
    else
        nd_experiment_check(e, nd_fail_memory(e->err));
    const double *qvalues = run(e, &s, x);
    free(x);
    if (qvalues != NULL)
        judge(&s, qvalues, out);
    else
        out->n_terms_failed = n_terms;
}

/* ---- pairs ---- */

/* The first 1, 2, 3 ... of 64 terms: neighbours are pairs, and so are terms half or a quarter of all apart. */
static void ask_pairs(struct nd_experiment *e, struct nd_long_sums *out)
{
    double x[N_PAIRED * N_PAIRED];
    const struct sums s = {
        .n_rows = N_PAIRED, .n_terms = N_PAIRED, .span = 240, .full = N_PAIRED * 255.0 * WEIGHT};
    for (size_t i = 0; i < N_PAIRED * N_PAIRED; i++)
        x[i] = i % N_PAIRED <= i / N_PAIRED ? 255 : 0;
    const double *qvalues = run(e, &s, x);
    for (size_t row = 0; qvalues != NULL && row < N_PAIRED; row++) {
        int64_t sum = (int64_t)(row + 1) * 255 * WEIGHT;
        /* What the accumulator does not hold says nothing of pairs. */
        if (out->wrong > 0 && sum > out->right)
            break;
        out->n_pairs++;
        out->n_pairs_wrong += !is_right(&s, qvalues[row], sum);
    }
    out->has_pairs = out->n_pairs > 1;
}

/* ---- all of it ---- */

void nd_long_sums_take(struct nd_experiment *e, struct nd_long_sums *out)
{
    /* Nearly twice what 16, 20, 24, 28 and 32 bits hold. */
    static const size_t sizes[] = {4, 64, 1024, 16384, 262144};
    *out = (struct nd_long_sums){.n_terms_failed = 0};
    e->is_patient = true;
    for (size_t i = 0; nd_experiment_goes_on(e) && e->is_on_npu && out->wrong == 0 &&
                       out->n_terms_failed == 0 && i < sizeof sizes / sizeof sizes[0];
         i++)
        ask(e, sizes[i], out);
    if (nd_experiment_goes_on(e) && e->is_on_npu)
        ask_pairs(e, out);
}

int nd_long_sums_excluded_bits(const struct nd_long_sums *sums)
{
    int n_bits = 0;
    while (n_bits < 63 && (int64_t)1 << n_bits <= sums->right)
        n_bits++;
    return n_bits;
}

int nd_long_sums_bits(const struct nd_long_sums *sums)
{
    int n_bits = nd_long_sums_excluded_bits(sums) + 1;
    bool is_below = sums->wrong > 0 && (int64_t)1 << (n_bits - 1) <= sums->wrong,
         is_only = (int64_t)1 << n_bits > sums->wrong;
    return is_below && is_only ? n_bits : 0;
}
