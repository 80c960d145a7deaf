#include "fingerprint/long_sums.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

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

/* One model: x [n_rows, n_terms] by n_terms weights of 127; code zero_y + span stands for the sum `full`. */
struct sums {
    size_t n_rows, n_terms;
    const uint8_t *x;
    int64_t zero_x, zero_y, span;
    double full;
};

static enum nd_status compose(const struct sums *s, struct nd_compose **out, struct nd_error *err)
{
    const struct nd_shape x = {.rank = 2, .dims = {(int64_t)s->n_rows, (int64_t)s->n_terms}},
                          w = {.rank = 2, .dims = {(int64_t)s->n_terms, 1}},
                          y = {.rank = 2, .dims = {(int64_t)s->n_rows, 1}};
    float scales[3] = {0x1p-7F, 0x1p-7F, (float)(0x1p-14 * s->full / (double)s->span)};
    int64_t zeros[3] = {s->zero_x, 0, s->zero_y};
    struct nd_quant quants[3];
    for (size_t i = 0; i < 3; i++)
        quants[i] = (struct nd_quant){.n = 1, .axis = -1, .scale = &scales[i], .zero_point = &zeros[i]};
    uint8_t *weights = nd_calloc(s->n_terms, 1);
    if (weights == NULL)
        return nd_fail_memory(err);
    memset(weights, WEIGHT, s->n_terms);
    struct nd_compose *c = NULL;
    enum nd_status status = nd_compose_create(21, &c, err);
    if (status == ND_OK) {
        nd_compose_input(c, "x", ND_DTYPE_U8, &x);
        nd_compose_constant(c, "w", ND_DTYPE_U8, &w, weights);
        nd_compose_dequantize(c, "x", "x_real", &quants[0], ND_DTYPE_U8);
        nd_compose_dequantize(c, "w", "w_real", &quants[1], ND_DTYPE_U8);
        nd_compose_node(c, "MatMul", (const char *[]){"x_real", "w_real", NULL}, "product");
        nd_compose_quantize(c, "product", "y", &quants[2], ND_DTYPE_U8);
        nd_compose_output(c, "y", ND_DTYPE_U8, &y);
        *out = c;
    }
    free(weights);
    return status;
}

/* result needs deinit on ND_OK. */
static enum nd_status run(struct nd_bench *bench, const struct sums *s, struct nd_long_sums *out,
                          struct nd_trial_result *result, struct nd_error *err)
{
    struct nd_compose *model = NULL;
    const struct nd_trial_input input = {
        "x", ND_DTYPE_U8, {.rank = 2, .dims = {(int64_t)s->n_rows, (int64_t)s->n_terms}}, s->x};
    enum nd_status status = compose(s, &model, err);
    const struct nd_trial trial = {
        .model = model, .output = "y", .n_samples = 1, .n_inputs = 1, .inputs = &input};
    if (status == ND_OK)
        status = nd_trial_run(bench, &trial, result, err);
    nd_compose_destroy(&model);
    if (status != ND_OK)
        return status;
    out->n_models++;
    out->is_on_npu = out->is_on_npu && (result->has_failed || result->is_on_npu);
    if (!result->has_failed)
        memcpy(out->provider, result->provider, sizeof out->provider);
    if (result->has_failed || result->n == s->n_rows)
        return ND_OK;
    status = nd_fail(err, ND_E_DEVICE_OUTPUT, "y", "%zu sums came out of a model of %zu", result->n, s->n_rows);
    nd_trial_deinit(result);
    return status;
}

static bool is_right(const struct sums *s, double code, int64_t sum)
{
    return fabs(code - (double)s->zero_y - (double)s->span * (double)sum / s->full) <= TOLERANCE;
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

static void fill(uint8_t *x, size_t n_terms)
{
    for (size_t row = 0; row < N_ROWS; row++) {
        size_t n = (size_t)(llabs(sum_of(row, n_terms)) / PRODUCT);
        for (size_t t = 0; t < n_terms; t++) {
            int sign = row >= 2 * N_STEPS ? sign_of(row - 2 * N_STEPS, t, n_terms)
                       : t >= n           ? 0
                       : row < N_STEPS    ? 1
                                          : -1;
            x[row * n_terms + t] = (uint8_t)(128 + sign * LARGE);
        }
    }
}

static int64_t wrapped(int64_t sum, int64_t half)
{
    int64_t rest = (sum + half) % (2 * half);
    return (rest < 0 ? rest + 2 * half : rest) - half;
}

/* Whether those beyond what the width holds came out as what is left of them, or as the most that it holds. */
static void explain(const struct sums *s, const double *codes, struct nd_long_sums *out)
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
        out->n_wrapped += is_right(s, codes[row], wrapped(sum, half));
        out->n_saturated += is_right(s, codes[row], sum > 0 ? half - 1 : -half);
    }
}

static void judge(const struct sums *s, const double *codes, struct nd_long_sums *out)
{
    int64_t before = out->right;
    for (size_t row = 0; row < N_ROWS; row++) {
        int64_t sum = sum_of(row, s->n_terms), magnitude = llabs(sum);
        bool is_fine = is_right(s, codes[row], sum);
        out->n_codes++;
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
        explain(s, codes, out);
}

static enum nd_status ask(struct nd_bench *bench, size_t n_terms, struct nd_long_sums *out,
                          struct nd_error *err)
{
    struct nd_trial_result result = {0};
    uint8_t *x = nd_calloc(N_ROWS, n_terms);
    if (x == NULL)
        return nd_fail_memory(err);
    fill(x, n_terms);
    const struct sums s = {.n_rows = N_ROWS,
                           .n_terms = n_terms,
                           .x = x,
                           .zero_x = 128,
                           .zero_y = 128,
                           .span = 120,
                           .full = (double)n_terms * PRODUCT};
    enum nd_status status = run(bench, &s, out, &result, err);
    free(x);
    if (status != ND_OK)
        return status;
    if (result.has_failed) {
        out->failure = result;
        out->n_terms_failed = n_terms;
        return ND_OK;
    }
    judge(&s, result.x, out);
    nd_trial_deinit(&result);
    return ND_OK;
}

/* ---- pairs ---- */

/* The first 1, 2, 3 ... of 64 terms: neighbours are pairs, and so are terms half or a quarter of all apart. */
static enum nd_status ask_pairs(struct nd_bench *bench, struct nd_long_sums *out, struct nd_error *err)
{
    uint8_t x[N_PAIRED * N_PAIRED] = {0};
    struct nd_trial_result result = {0};
    const struct sums s = {
        .n_rows = N_PAIRED, .n_terms = N_PAIRED, .x = x, .span = 240, .full = N_PAIRED * 255.0 * WEIGHT};
    for (size_t row = 0; row < N_PAIRED; row++)
        memset(x + row * N_PAIRED, 255, row + 1);
    enum nd_status status = run(bench, &s, out, &result, err);
    if (status != ND_OK)
        return status;
    for (size_t row = 0; !result.has_failed && row < N_PAIRED; row++) {
        int64_t sum = (int64_t)(row + 1) * 255 * WEIGHT;
        /* What the accumulator does not hold says nothing of pairs. */
        if (out->wrong > 0 && sum > out->right)
            break;
        out->n_pairs++;
        out->n_pairs_wrong += !is_right(&s, result.x[row], sum);
    }
    out->has_pairs = out->n_pairs > 1;
    nd_trial_deinit(&result);
    return ND_OK;
}

/* ---- all of it ---- */

enum nd_status nd_long_sums_take(struct nd_bench *bench, struct nd_long_sums *out, struct nd_error *err)
{
    /* Nearly twice what 16, 20, 24, 28 and 32 bits hold. */
    static const size_t sizes[] = {4, 64, 1024, 16384, 262144};
    struct nd_long_sums sums = {.is_on_npu = true};
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && sums.is_on_npu && sums.wrong == 0 && sums.n_terms_failed == 0 &&
                       i < sizeof sizes / sizeof sizes[0];
         i++) {
        status = ask(bench, sizes[i], &sums, err);
        sums.has_failed = i == 0 && sums.n_terms_failed > 0;
    }
    if (status == ND_OK && !sums.has_failed && sums.is_on_npu)
        status = ask_pairs(bench, &sums, err);
    if (status == ND_OK)
        *out = sums;
    else
        nd_long_sums_deinit(&sums);
    return status;
}

void nd_long_sums_deinit(struct nd_long_sums *sums)
{
    nd_trial_deinit(&sums->failure);
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
