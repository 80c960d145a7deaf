/* What an experiment asks: products in columns, spread over the terms of a sum, and the candidates that are
 * left. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/random.h"
#include "lab/experiment/candidates.h"
#include "lab/experiment/columns.h"
#include "lab/experiment/product.h"

void nd_candidates_keep(struct nd_candidates *s, const void *arithmetic)
{
    s->failed = s->failed || !nd_grow(s->arithmetics, &s->capacity, *s->n_arithmetics + 1, s->arithmetic_bytes);
    if (s->failed)
        return;
    memcpy((unsigned char *)*s->arithmetics + *s->n_arithmetics * s->arithmetic_bytes, arithmetic,
           s->arithmetic_bytes);
    ++*s->n_arithmetics;
}

void nd_candidates_fewest(struct nd_candidates *s, const void *arithmetic, uint64_t wrong, uint64_t *n_wrong)
{
    if (wrong > *n_wrong)
        return;
    if (wrong < *n_wrong)
        *s->n_arithmetics = 0;
    *n_wrong = wrong;
    nd_candidates_keep(s, arithmetic);
}

void nd_candidates_right(struct nd_candidates *s, const void *arithmetic, uint64_t wrong, void *nearest,
                         uint64_t *n_nearest_wrong)
{
    if (wrong < *n_nearest_wrong) {
        *n_nearest_wrong = wrong;
        memcpy(nearest, arithmetic, s->arithmetic_bytes);
    }
    if (wrong == 0)
        nd_candidates_keep(s, arithmetic);
}

enum nd_status nd_candidates_end(struct nd_candidates *s, struct nd_error *err)
{
    if (!s->failed)
        return ND_OK;
    free(*s->arithmetics);
    *s->arithmetics = NULL;
    *s->n_arithmetics = 0;
    return nd_fail_memory(err);
}

/* Quantised values, about the middle. Chosen. */
static const double min_zero_x = 120, max_zero_x = 136, min_zero_y = 90, max_zero_y = 160;
/* Real number of one step of x. Chosen: as usual activations have them. */
static const double min_scale_x = 0.01, max_scale_x = 0.04;
/* Steps of y in units of the accumulator, whose sums of 64 terms have a deviation of sqrt(64) 74^2 = 43 800 (74
 * is that of a uniform uint8 quantised value): they fill the 255 steps. Chosen. */
static const double min_step_y = 700, max_step_y = 1500;

struct nd_columns *nd_columns_make(struct nd_experiment *e, size_t n_rows, size_t n_terms, size_t n_columns)
{
    struct nd_columns *c = nd_experiment_alloc(e, 1, sizeof *c);
    const struct nd_columns made = {.n_rows = n_rows,
                                    .n_terms = n_terms,
                                    .n_columns = n_columns,
                                    .zero_x = 128,
                                    .x = nd_experiment_alloc(e, n_terms, n_rows),
                                    .weights = nd_experiment_alloc(e, n_columns * n_terms, sizeof *c->weights),
                                    .scales_w = nd_experiment_alloc(e, n_columns, sizeof *c->scales_w),
                                    .bias = nd_experiment_alloc(e, n_columns, sizeof *c->bias),
                                    .bias_scales = nd_experiment_alloc(e, n_columns, sizeof *c->bias_scales)};
    if (!nd_experiment_goes_on(e))
        return NULL;
    *c = made;
    return c;
}

void nd_columns_draw(struct nd_columns *c, uint64_t *seed)
{
    for (size_t i = 0; i < c->n_rows * c->n_terms; i++)
        c->x[i] = (uint8_t)nd_random_next(seed);
    for (size_t i = 0; i < c->n_columns * c->n_terms; i++)
        c->weights[i] = (int16_t)(c->is_per_channel ? (int64_t)(nd_random_next(seed) % 255) - 127
                                                    : (int64_t)(nd_random_next(seed) % 256));
    c->zero_x = (int64_t)nd_random_between(seed, min_zero_x, max_zero_x);
    c->zero_w = c->is_per_channel ? 0 : (int64_t)nd_random_between(seed, 0, 256);
    c->zero_y = (int64_t)nd_random_between(seed, min_zero_y, max_zero_y);
    c->scale_x = (float)nd_random_between(seed, min_scale_x, max_scale_x);
}

void nd_columns_draw_step(struct nd_columns *c, uint64_t *seed)
{
    c->scale_y = c->scale_x * c->scales_w[0] * (float)nd_random_between(seed, min_step_y, max_step_y);
}

bool nd_columns_ask(struct nd_experiment *e, struct nd_columns *p)
{
    int64_t n_rows = (int64_t)p->n_rows, n_terms = (int64_t)p->n_terms, n_columns = (int64_t)p->n_columns;
    size_t n_weights = p->n_columns * p->n_terms, n_x = p->n_terms * p->n_rows;
    uint8_t *weights = nd_experiment_alloc(e, n_weights, 1);
    double *qvalues = nd_experiment_alloc(e, n_x, sizeof *qvalues);
    if (!nd_experiment_goes_on(e))
        return false;
    for (size_t i = 0; i < n_weights; i++)
        weights[i] = (uint8_t)p->weights[i];
    for (size_t i = 0; i < n_x; i++)
        qvalues[i] = p->x[i];
    const struct nd_ask ask = {.op_type = "Conv",
                               .dtype = ND_DTYPE_U8,
                               .x = {.rank = 4, .dims = {1, n_terms, 1, n_rows}},
                               .y = {.rank = 4, .dims = {1, n_columns, 1, n_rows}},
                               .scale_x = p->scale_x,
                               .scale_y = p->scale_y,
                               .zero_x = p->zero_x,
                               .zero_y = p->zero_y,
                               .n_operands = p->has_bias ? 2 : 1,
                               .operands = {{.dtype = p->is_per_channel ? ND_DTYPE_I8 : ND_DTYPE_U8,
                                             .shape = {.rank = 4, .dims = {n_columns, n_terms, 1, 1}},
                                             .data = weights,
                                             .scale = p->scales_w[0],
                                             .zero = p->zero_w,
                                             .scales = p->is_per_channel ? p->scales_w : NULL},
                                            {.dtype = ND_DTYPE_I32,
                                             .shape = {.rank = 1, .dims = {n_columns}},
                                             .data = p->bias,
                                             .scale = p->bias_scales[0],
                                             .scales = p->is_per_channel ? p->bias_scales : NULL}}};
    p->qvalues = nd_experiment_ask(e, &ask, qvalues, 1);
    return p->qvalues != NULL;
}

void nd_columns_sum(const struct nd_columns *p, const double *w8, double *sums)
{
    memset(sums, 0, p->n_columns * p->n_rows * sizeof *sums);
    for (size_t c = 0; c < p->n_columns; c++)
        for (size_t t = 0; t < p->n_terms; t++) {
            double w = w8[c * p->n_terms + t], *row = sums + c * p->n_rows;
            for (size_t i = 0; i < p->n_rows; i++)
                row[i] += w * (double)((int64_t)p->x[t * p->n_rows + i] - p->zero_x);
        }
}

/* "MatMul", "Gemm", "Conv". */
static const char *nd_linear_form_name(enum nd_linear_form form)
{
    static const char *const names[] = {"MatMul", "Gemm", "Conv"};
    return names[form];
}

/* A tensor of rows and columns as the operator has it. */
static struct nd_shape shape_of(const struct nd_product *p, size_t n_columns)
{
    if (p->form == ND_FORM_CONV)
        return (struct nd_shape){.rank = 4, .dims = {1, (int64_t)n_columns, 1, (int64_t)p->n_rows}};
    return (struct nd_shape){.rank = 2, .dims = {(int64_t)p->n_rows, (int64_t)n_columns}};
}

/* Of a convolution all tables [n][n_rows][n_columns] lie in columns. */
static void transpose(const double *from, size_t n, size_t n_rows, size_t n_columns, double *to)
{
    for (size_t i = 0; i < n * n_rows * n_columns; i++) {
        size_t table = i / (n_rows * n_columns), row = i / n_columns % n_rows, column = i % n_columns;
        to[(table * n_columns + column) * n_rows + row] = from[i];
    }
}

static struct nd_ask make_ask(const struct nd_product *p, const void *weights)
{
    int64_t n_terms = (int64_t)p->n_terms, n_columns = (int64_t)p->n_columns;
    struct nd_ask ask = {.op_type = nd_linear_form_name(p->form),
                         .dtype = p->dtype,
                         .x = shape_of(p, p->n_terms),
                         .y = shape_of(p, p->n_columns),
                         .scale_x = p->scale_x,
                         .scale_y = p->scale_y,
                         .zero_x = p->zero_x,
                         .zero_y = p->zero_y,
                         .n_operands = 1};
    ask.operands[0] = (struct nd_ask_operand){.dtype = p->dtype == ND_DTYPE_F32 ? ND_DTYPE_F32 : ND_DTYPE_U8,
                                              .shape = {.rank = 2, .dims = {n_terms, n_columns}},
                                              .data = weights,
                                              .scale = p->scale_w,
                                              .zero = p->zero_w,
                                              .is_input = p->has_fed_weights};
    if (p->form == ND_FORM_CONV)
        ask.operands[0].shape = (struct nd_shape){.rank = 4, .dims = {n_columns, n_terms, 1, 1}};
    return ask;
}

/* A convolution: everything is transposed on the way. */
static const double *ask_columns(struct nd_experiment *e, const struct nd_product *p, const double *x,
                                 size_t n_samples)
{
    size_t n_weight = p->dtype == ND_DTYPE_F32 ? sizeof(float) : 1;
    ND_FREED unsigned char *weights = nd_calloc(p->n_terms * p->n_columns, n_weight);
    ND_FREED double *fed = nd_calloc(n_samples * p->n_rows * p->n_terms, sizeof *fed);
    double *qvalues = nd_experiment_alloc(e, n_samples * p->n_rows * p->n_columns, sizeof *qvalues);
    const double *answer = NULL;
    if (weights != NULL && fed != NULL && qvalues != NULL) {
        for (size_t t = 0; t < p->n_terms; t++)
            for (size_t c = 0; c < p->n_columns; c++)
                memcpy(weights + (c * p->n_terms + t) * n_weight,
                       (const unsigned char *)p->weights + (t * p->n_columns + c) * n_weight, n_weight);
        transpose(x, n_samples, p->n_rows, p->n_terms, fed);
        const struct nd_ask ask = make_ask(p, weights);
        answer = nd_experiment_ask(e, &ask, fed, n_samples);
    } else {
        nd_experiment_check(e, nd_fail_memory(e->err));
    }
    if (answer != NULL)
        transpose(answer, n_samples, p->n_columns, p->n_rows, qvalues);
    return answer != NULL ? qvalues : NULL;
}

const double *nd_product_ask(struct nd_experiment *e, const struct nd_product *p, const double *x,
                             size_t n_samples)
{
    if (!nd_experiment_goes_on(e) || x == NULL || p->weights == NULL)
        return NULL;
    if (p->form == ND_FORM_CONV)
        return ask_columns(e, p, x, n_samples);
    const struct nd_ask ask = make_ask(p, p->weights);
    return nd_experiment_ask(e, &ask, x, n_samples);
}

/* ---- threshold sweep ---- */

const uint8_t nd_spread_weights[ND_SPREAD_TERMS] = {127, 127, 127, 127, 127, 127, 127, 127, 1};

void nd_spread(int64_t sum, int64_t out[ND_SPREAD_TERMS])
{
    int64_t coarse = sum / ND_SPREAD_LARGE;
    for (int64_t i = 0; i < ND_SPREAD_TERMS - 1; i++) {
        out[i] = coarse / (ND_SPREAD_TERMS - 1 - i);
        coarse -= out[i];
    }
    out[ND_SPREAD_TERMS - 1] = sum % ND_SPREAD_LARGE;
}

bool nd_threshold_sweep_ask(struct nd_experiment *e, enum nd_linear_form form, enum nd_dtype dtype,
                            struct nd_threshold_sweep *s)
{
    int exponent, unit_bits = dtype == ND_DTYPE_U16 ? 8 : 0;
    ND_FREED double *x = nd_calloc(s->n, ND_SPREAD_TERMS * sizeof *x);
    double mantissa = frexp(s->multiplier, &exponent);
    const int64_t layer = (int64_t)1 << unit_bits, zero = 128;
    /* M = s_x s_w / s_y, and all its bits are in s_x. */
    const struct nd_product product = {.form = form,
                                       .dtype = dtype,
                                       .n_rows = ND_THRESHOLD_SWEEP_ROWS,
                                       .n_terms = ND_SPREAD_TERMS,
                                       .n_columns = 1,
                                       .weights = nd_spread_weights,
                                       .scale_x = (float)ldexp(mantissa, -5),
                                       .scale_w = 0x1p-7F,
                                       .scale_y = (float)ldexp(1, unit_bits - 12 - exponent),
                                       .zero_x = layer * zero,
                                       .zero_y = (int64_t)s->zero_point};
    if (x == NULL)
        nd_experiment_check(e, nd_fail_memory(e->err));
    for (size_t i = 0; x != NULL && i < s->n; i++) {
        int64_t terms[ND_SPREAD_TERMS];
        nd_spread((int64_t)s->first + (int64_t)i, terms);
        for (size_t t = 0; t < ND_SPREAD_TERMS; t++)
            x[i * ND_SPREAD_TERMS + t] = (double)(layer * (zero + terms[t]));
    }
    s->qvalues = nd_product_ask(e, &product, x, s->n / ND_THRESHOLD_SWEEP_ROWS);
    return s->qvalues != NULL;
}
