#include "lab/experiment/columns.h"

#include <string.h>

#include "core/random.h"

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
