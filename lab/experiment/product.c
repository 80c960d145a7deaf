#include "lab/experiment/product.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

const char *nd_linear_form_name(enum nd_linear_form form)
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
    unsigned char *weights = nd_calloc(p->n_terms * p->n_columns, n_weight);
    double *fed = nd_calloc(n_samples * p->n_rows * p->n_terms, sizeof *fed);
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
    free(weights);
    free(fed);
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
    double mantissa = frexp(s->multiplier, &exponent), *x = nd_calloc(s->n, ND_SPREAD_TERMS * sizeof *x);
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
    free(x);
    return s->qvalues != NULL;
}
