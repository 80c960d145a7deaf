#include "fingerprint/linear.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "fingerprint/fresh.h"

enum {
    N_LARGE = 8,           /* weights of 127, for the coarse part of an accumulator */
    N_TERMS = N_LARGE + 1, /* and one of 1, for the fine part */
    LARGE = 127,
    ZERO_X = 128,
    ROWS = 4096, /* accumulators per sample */
};

const char *nd_linear_form_name(enum nd_linear_form form)
{
    static const char *const names[] = {"MatMul", "Gemm", "Conv"};
    return names[form];
}

bool nd_linear_fingerprint_is_confirmed(const struct nd_linear_fingerprint *f)
{
    return !f->has_failed && f->found.n_programs > 0 && nd_fresh_is_enough(f->n_fresh, f->n_right);
}

void nd_linear_fingerprint_deinit(struct nd_linear_fingerprint *f)
{
    nd_staircase_findings_deinit(&f->found);
}

/* ---- models ---- */

/* One product: x [n_rows, n_terms] of uint8 codes, weights [n_terms, n_columns] of uint8 codes. */
struct product {
    enum nd_linear_form form;
    int64_t n_rows, n_terms, n_columns;
    const uint8_t *weights; /* [n_terms][n_columns] */
    float scale_x, scale_w, scale_y;
    int64_t zero_w, zero_y;
};

/* A convolution has its terms in channels, its rows along the width, and its weights by column. */
static struct nd_shape shape_of_x(const struct product *p)
{
    if (p->form == ND_FORM_CONV)
        return (struct nd_shape){.rank = 4, .dims = {1, p->n_terms, 1, p->n_rows}};
    return (struct nd_shape){.rank = 2, .dims = {p->n_rows, p->n_terms}};
}

static struct nd_shape shape_of_y(const struct product *p)
{
    if (p->form == ND_FORM_CONV)
        return (struct nd_shape){.rank = 4, .dims = {1, p->n_columns, 1, p->n_rows}};
    return (struct nd_shape){.rank = 2, .dims = {p->n_rows, p->n_columns}};
}

static struct nd_shape shape_of_w(const struct product *p)
{
    if (p->form == ND_FORM_CONV)
        return (struct nd_shape){.rank = 4, .dims = {p->n_columns, p->n_terms, 1, 1}};
    return (struct nd_shape){.rank = 2, .dims = {p->n_terms, p->n_columns}};
}

/* Where element (row, column) of a table of so many rows and columns is in the operator's tensor. */
static size_t place(const struct product *p, int64_t row, int64_t column, int64_t n_rows, int64_t n_columns)
{
    return (size_t)(p->form == ND_FORM_CONV ? column * n_rows + row : row * n_columns + column);
}

static enum nd_status compose(const struct product *p, struct nd_compose **out, struct nd_error *err)
{
    float scales[3] = {p->scale_x, p->scale_w, p->scale_y};
    int64_t zeros[3] = {ZERO_X, p->zero_w, p->zero_y};
    struct nd_quant quants[3];
    const struct nd_shape x = shape_of_x(p), w = shape_of_w(p), y = shape_of_y(p);
    uint8_t *weights = nd_calloc((size_t)(p->n_terms * p->n_columns), 1);
    if (weights == NULL)
        return nd_fail_memory(err);
    for (int64_t t = 0; t < p->n_terms; t++)
        for (int64_t c = 0; c < p->n_columns; c++)
            weights[place(p, t, c, p->n_terms, p->n_columns)] = p->weights[t * p->n_columns + c];
    for (size_t i = 0; i < 3; i++)
        quants[i] = (struct nd_quant){.n = 1, .axis = -1, .scale = &scales[i], .zero_point = &zeros[i]};
    struct nd_compose *c = NULL;
    enum nd_status status = nd_compose_create(21, &c, err);
    if (status == ND_OK) {
        nd_compose_input(c, "x", ND_DTYPE_U8, &x);
        nd_compose_constant(c, "w", ND_DTYPE_U8, &w, weights);
        nd_compose_dequantize(c, "x", "x_real", &quants[0], ND_DTYPE_U8);
        nd_compose_dequantize(c, "w", "w_real", &quants[1], ND_DTYPE_U8);
        nd_compose_node(c, nd_linear_form_name(p->form), (const char *[]){"x_real", "w_real", NULL}, "product");
        nd_compose_quantize(c, "product", "y", &quants[2], ND_DTYPE_U8);
        nd_compose_output(c, "y", ND_DTYPE_U8, &y);
        *out = c;
    }
    free(weights);
    return status;
}

/* Runs the product on x [n_samples][n_rows][n_terms]; *codes [n_samples][n_rows][n_columns] is freed by the
 * caller, and NULL where the device failed. */
static enum nd_status run_product(struct nd_bench *bench, const struct product *p, const uint8_t *x,
                                  size_t n_samples, struct nd_linear_fingerprint *out, double **codes,
                                  struct nd_error *err)
{
    struct nd_compose *model = NULL;
    struct nd_trial_result result;
    size_t n_x = (size_t)(p->n_rows * p->n_terms), n_y = (size_t)(p->n_rows * p->n_columns);
    uint8_t *fed = nd_calloc(n_samples, n_x);
    *codes = nd_calloc(n_samples * n_y, sizeof **codes);
    enum nd_status status = fed != NULL && *codes != NULL ? compose(p, &model, err) : nd_fail_memory(err);
    for (size_t s = 0; status == ND_OK && s < n_samples; s++)
        for (int64_t r = 0; r < p->n_rows; r++)
            for (int64_t t = 0; t < p->n_terms; t++)
                fed[s * n_x + place(p, r, t, p->n_rows, p->n_terms)] =
                    x[s * n_x + (size_t)(r * p->n_terms + t)];
    const struct nd_trial_input input = {"x", ND_DTYPE_U8, shape_of_x(p), fed};
    const struct nd_trial trial = {
        .model = model, .output = "y", .n_samples = n_samples, .n_inputs = 1, .inputs = &input};
    if (status == ND_OK)
        status = nd_trial_run(bench, &trial, &result, err);
    if (status == ND_OK) {
        out->has_failed = result.has_failed;
        out->failure = result.failure;
        out->is_on_npu = out->is_on_npu && result.is_on_npu;
        memcpy(out->provider, result.provider, sizeof out->provider);
        for (size_t s = 0; !result.has_failed && s < n_samples; s++)
            for (int64_t r = 0; r < p->n_rows; r++)
                for (int64_t c = 0; c < p->n_columns; c++)
                    (*codes)[s * n_y + (size_t)(r * p->n_columns + c)] =
                        result.x[s * n_y + place(p, r, c, p->n_rows, p->n_columns)];
        nd_trial_deinit(&result);
    }
    if (status != ND_OK || out->has_failed) {
        free(*codes);
        *codes = NULL;
    }
    free(fed);
    nd_compose_destroy(&model);
    return status;
}

/* ---- staircases ---- */

/* Codes whose product with the weights (127 x 8, 1) is the accumulator a, |a| <= 8 * 127 * 127. */
static void spread(int64_t a, uint8_t x[N_TERMS])
{
    int64_t coarse = a / LARGE, fine = a % LARGE;
    for (int64_t i = 0; i < N_LARGE; i++) {
        int64_t share = coarse / (N_LARGE - i);
        x[i] = (uint8_t)(ZERO_X + share);
        coarse -= share;
    }
    x[N_LARGE] = (uint8_t)(ZERO_X + fine);
}

static struct product staircase_product(enum nd_linear_form form, double multiplier, double zero_y,
                                        const uint8_t weights[N_TERMS])
{
    int exponent;
    double mantissa = frexp(multiplier, &exponent);
    /* M = s_x s_w / s_y, and all its bits are in s_x. */
    return (struct product){.form = form,
                            .n_rows = ROWS,
                            .n_terms = N_TERMS,
                            .n_columns = 1,
                            .weights = weights,
                            .scale_x = (float)ldexp(mantissa, -5),
                            .scale_w = 0x1p-7F,
                            .scale_y = (float)ldexp(1, -12 - exponent),
                            .zero_w = 0,
                            .zero_y = (int64_t)zero_y};
}

struct stairs {
    struct nd_staircase items[2 * ND_STAIRCASE_MULTIPLIERS];
    size_t n;
};

static enum nd_status climb(struct nd_bench *bench, double multiplier, double zero_y, struct stairs *stairs,
                            struct nd_linear_fingerprint *out, struct nd_error *err)
{
    uint8_t weights[N_TERMS];
    memset(weights, LARGE, N_LARGE);
    weights[N_LARGE] = 1;
    const struct product product = staircase_product(out->form, multiplier, zero_y, weights);
    struct nd_staircase s = {.multiplier = multiplier, .zero_point = zero_y, .high = 255};
    s.first = floor((-zero_y - 2) / multiplier);
    size_t n_samples = (size_t)ceil(259 / multiplier / ROWS);
    s.n = n_samples * ROWS;
    uint8_t *x = nd_calloc(s.n, N_TERMS);
    double *codes = NULL;
    if (x == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < s.n; i++)
        spread((int64_t)s.first + (int64_t)i, x + i * N_TERMS);
    enum nd_status status = run_product(bench, &product, x, n_samples, out, &codes, err);
    free(x);
    s.codes = codes;
    if (status == ND_OK && codes != NULL)
        stairs->items[stairs->n++] = s;
    return status;
}

static enum nd_status climb_all(struct nd_bench *bench, const double *multipliers, size_t n,
                                struct stairs *stairs, struct nd_linear_fingerprint *out, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && !out->has_failed && i < n; i++)
        status = climb(bench, multipliers[i], i % 2 == 0 ? 128 : 77, stairs, out, err);
    if (status == ND_OK && !out->has_failed) {
        nd_staircase_findings_deinit(&out->found);
        status = nd_staircase_solve(stairs->items, stairs->n, &out->found, err);
    }
    out->n_staircases = stairs->n;
    return status;
}

/* ---- fresh codes ---- */

enum { FRESH_ROWS = 256, FRESH_TERMS = 64, FRESH_COLUMNS = 128, N_FRESH_MODELS = 4 };

static double accumulate(const uint8_t *x, const uint8_t *weights, size_t column)
{
    int64_t sum = 0;
    for (size_t t = 0; t < FRESH_TERMS; t++)
        sum += ((int64_t)x[t] - ZERO_X) * ((int64_t)weights[t * FRESH_COLUMNS + column] - ZERO_X);
    return (double)sum;
}

/* How many of the codes each program that is left gives: n_right[found.n_programs] grows. */
static void hold_against(const struct product *p, const uint8_t *x, const double *codes,
                         const struct nd_staircase_findings *found, uint64_t *n_right)
{
    double multiplier = (double)p->scale_x * (double)p->scale_w / (double)p->scale_y;
    for (size_t i = 0; i < found->n_programs; i++) {
        const struct nd_requantiser r =
            nd_requantise_prepare(&found->programs[i], multiplier, (double)p->zero_y);
        for (size_t row = 0; row < FRESH_ROWS; row++)
            for (size_t c = 0; c < FRESH_COLUMNS; c++)
                n_right[i] += nd_requantise_code(&r, accumulate(x + row * FRESH_TERMS, p->weights, c), 0,
                                                 255) == codes[row * FRESH_COLUMNS + c];
    }
}

/* Random codes, weights within -127 .. 127, generic scales under which the products fill the codes. */
static enum nd_status ask_fresh(struct nd_bench *bench, uint64_t *seed, struct nd_linear_fingerprint *out,
                                uint64_t *n_right, struct nd_error *err)
{
    uint8_t *x = nd_calloc(FRESH_ROWS, FRESH_TERMS), *weights = nd_calloc(FRESH_TERMS, FRESH_COLUMNS);
    double *codes = NULL;
    enum nd_status status = x != NULL && weights != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && i < FRESH_ROWS * FRESH_TERMS; i++)
        x[i] = (uint8_t)(nd_random_next(seed) % 256);
    for (size_t i = 0; status == ND_OK && i < FRESH_TERMS * FRESH_COLUMNS; i++)
        weights[i] = (uint8_t)(1 + nd_random_next(seed) % 255);
    struct product product = {.form = out->form,
                              .n_rows = FRESH_ROWS,
                              .n_terms = FRESH_TERMS,
                              .n_columns = FRESH_COLUMNS,
                              .weights = weights,
                              .zero_w = ZERO_X};
    product.scale_x = 0.01F + 0.03F * (float)nd_random_next(seed) * 0x1p-31F;
    product.scale_w = 0.004F + 0.008F * (float)nd_random_next(seed) * 0x1p-31F;
    product.scale_y = product.scale_x * product.scale_w * (400 + 800 * (float)nd_random_next(seed) * 0x1p-31F);
    product.zero_y = 90 + (int64_t)(nd_random_next(seed) % 70);
    if (status == ND_OK)
        status = run_product(bench, &product, x, 1, out, &codes, err);
    if (status == ND_OK && codes != NULL) {
        hold_against(&product, x, codes, &out->found, n_right);
        out->n_fresh += FRESH_ROWS * FRESH_COLUMNS;
    }
    free(x);
    free(weights);
    free(codes);
    return status;
}

static enum nd_status confirm(struct nd_bench *bench, struct nd_linear_fingerprint *out, struct nd_error *err)
{
    uint64_t seed = 20261121;
    uint64_t *n_right = nd_calloc(out->found.n_programs, sizeof *n_right);
    enum nd_status status = n_right != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && !out->has_failed && i < N_FRESH_MODELS; i++)
        status = ask_fresh(bench, &seed, out, n_right, err);
    if (status == ND_OK && !out->has_failed)
        out->found.n_programs = nd_fresh_keep_best(out->found.programs, sizeof *out->found.programs,
                                                   out->found.n_programs, n_right, &out->n_right);
    free(n_right);
    return status;
}

enum nd_status nd_linear_fingerprint_take(struct nd_bench *bench, enum nd_linear_form form,
                                          struct nd_linear_fingerprint *out, struct nd_error *err)
{
    struct nd_linear_fingerprint f = {.form = form, .is_on_npu = true};
    struct stairs stairs = {.n = 0};
    double multipliers[ND_STAIRCASE_MULTIPLIERS];
    enum nd_status status =
        climb_all(bench, multipliers, nd_staircase_first_multipliers(multipliers), &stairs, &f, err);
    size_t n = status == ND_OK && !f.has_failed ? nd_staircase_next_multipliers(&f.found, multipliers) : 0;
    if (n > 0)
        status = climb_all(bench, multipliers, n, &stairs, &f, err);
    if (status == ND_OK && !f.has_failed && f.found.n_programs > 0)
        status = confirm(bench, &f, err);
    for (size_t i = 0; i < stairs.n; i++)
        free((void *)(uintptr_t)stairs.items[i].codes);
    if (status == ND_OK)
        *out = f;
    else
        nd_linear_fingerprint_deinit(&f);
    return status;
}
