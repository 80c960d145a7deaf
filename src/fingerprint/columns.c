#include "fingerprint/columns.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* One scale and zero point, or a scale for each column and zero points of 0. */
static struct nd_quant quant_of(const float *scales, size_t n, int64_t *zeros)
{
    return (struct nd_quant){
        .n = n, .axis = n > 1 ? 0 : -1, .scale = (float *)(uintptr_t)scales, .zero_point = zeros};
}

static void add_operands(struct nd_compose *c, const struct nd_columns *p, const uint8_t *weights,
                         int64_t *zeros)
{
    enum nd_dtype dtype = p->n_scales_w > 1 ? ND_DTYPE_I8 : ND_DTYPE_U8;
    const struct nd_shape w = {.rank = 4, .dims = {(int64_t)p->n_columns, (int64_t)p->n_terms, 1, 1}},
                          b = {.rank = 1, .dims = {(int64_t)p->n_columns}};
    const char *inputs[] = {"x_real", "w_real", p->bias != NULL ? "b_real" : NULL, NULL};
    int64_t zero_w = p->zero_w;
    const struct nd_quant quant_w = quant_of(p->scales_w, p->n_scales_w, p->n_scales_w > 1 ? zeros : &zero_w);
    nd_compose_constant(c, "w", dtype, &w, weights);
    nd_compose_dequantize(c, "w", "w_real", &quant_w, dtype);
    if (p->bias != NULL) {
        const struct nd_quant quant_b = quant_of(p->bias_scales, p->n_bias_scales, zeros);
        nd_compose_constant(c, "b", ND_DTYPE_I32, &b, p->bias);
        nd_compose_dequantize(c, "b", "b_real", &quant_b, ND_DTYPE_I32);
    }
    nd_compose_node(c, "Conv", inputs, "product");
}

static enum nd_status compose(const struct nd_columns *p, struct nd_compose **out, struct nd_error *err)
{
    float scale_x = p->scale_x, scale_y = p->scale_y;
    int64_t zero_x = p->zero_x, zero_y = p->zero_y;
    const struct nd_quant quant_x = quant_of(&scale_x, 1, &zero_x), quant_y = quant_of(&scale_y, 1, &zero_y);
    const struct nd_shape x = {.rank = 4, .dims = {1, (int64_t)p->n_terms, 1, (int64_t)p->n_rows}},
                          y = {.rank = 4, .dims = {1, (int64_t)p->n_columns, 1, (int64_t)p->n_rows}};
    size_t n = p->n_columns * p->n_terms;
    uint8_t *weights = nd_calloc(n, 1);
    int64_t *zeros = nd_calloc(p->n_columns, sizeof *zeros);
    struct nd_compose *c = NULL;
    enum nd_status status = weights != NULL && zeros != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK)
        status = nd_compose_create(21, &c, err);
    if (status == ND_OK) {
        for (size_t i = 0; i < n; i++)
            weights[i] = (uint8_t)p->weights[i];
        nd_compose_input(c, "x", ND_DTYPE_U8, &x);
        nd_compose_dequantize(c, "x", "x_real", &quant_x, ND_DTYPE_U8);
        add_operands(c, p, weights, zeros);
        nd_compose_quantize(c, "product", "y", &quant_y, ND_DTYPE_U8);
        nd_compose_output(c, "y", ND_DTYPE_U8, &y);
        *out = c;
    }
    free(weights);
    free(zeros);
    return status;
}

enum nd_status nd_columns_ask(struct nd_bench *bench, const struct nd_columns *p, const uint8_t *x,
                              struct nd_trial_result *out, struct nd_error *err)
{
    struct nd_compose *model = NULL;
    const struct nd_trial_input input = {
        "x", ND_DTYPE_U8, {.rank = 4, .dims = {1, (int64_t)p->n_terms, 1, (int64_t)p->n_rows}}, x};
    enum nd_status status = compose(p, &model, err);
    const struct nd_trial trial = {
        .model = model, .output = "y", .n_samples = 1, .n_inputs = 1, .inputs = &input};
    if (status == ND_OK)
        status = nd_trial_run(bench, &trial, out, err);
    nd_compose_destroy(&model);
    if (status == ND_OK && !out->has_failed && out->n != p->n_columns * p->n_rows) {
        nd_trial_deinit(out);
        status = nd_fail(err, ND_E_EXACT_SHAPE, "Conv", "the device gives 'Conv' another shape than asked for");
    }
    return status;
}

void nd_columns_sum(const struct nd_columns *p, const uint8_t *x, const double *w8, double *sums)
{
    memset(sums, 0, p->n_columns * p->n_rows * sizeof *sums);
    for (size_t c = 0; c < p->n_columns; c++)
        for (size_t t = 0; t < p->n_terms; t++) {
            double w = w8[c * p->n_terms + t], *row = sums + c * p->n_rows;
            for (size_t i = 0; i < p->n_rows; i++)
                row[i] += w * (double)((int64_t)x[t * p->n_rows + i] - p->zero_x);
        }
}
