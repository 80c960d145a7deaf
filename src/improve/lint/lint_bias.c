/* Rules about biases of products and of BatchNormalization. docs/science/htp-arithmetic.md#biases. F is one
 * operation on float32. */
#include <math.h>

#include "core/memory.h"
#include "core/tensors/scales.h"
#include "improve/lint/lint_job.h"

enum { X, WEIGHTS, BIAS, MEAN, VARIANCE };

/* The provider takes the bias scale of a Conv for that of the accumulator up to this distance
 * (docs/science/htp-arithmetic.md#biases). */
static const float TAKEN_FOR_EQUAL = 1e-5F;

/* Steps of the output below which nothing is said: half a step is rounding. */
static const double MIN_EFFECT_LSB = 0.5;

/* A product with constant weights and a constant bias of int32, as far as the rules need it. */
struct product {
    bool is_conv; /* or ConvTranspose; else Gemm */
    size_t bias_node;
    const struct nd_quant *x, *w, *b, *y;
    double *bias; /* quantised values less zero point. Owned */
    size_t n;     /* output channels */
};

/* *is_one false: the node is none, or something of it is not known. */
static enum nd_status read_product(const struct nd_lint_job *job, size_t node, struct product *out,
                                   bool *is_one, struct nd_error *err)
{
    struct product p = {.is_conv = ND_LINT_IS(job, node, "Conv", "ConvTranspose")};
    const Onnx__NodeProto *proto = job->graph->nodes[node].proto;
    bool is_gemm = ND_LINT_IS(job, node, "Gemm") && nd_onnx_attribute_f(proto, "alpha", 1) == 1 &&
                   nd_onnx_attribute_f(proto, "beta", 1) == 1;
    *is_one = false;
    if (!p.is_conv && !is_gemm)
        return ND_OK;
    p.bias_node = nd_lint_dequantise(job, node, BIAS);
    p.x = nd_lint_one(job, nd_lint_dequantise(job, node, X));
    p.w = nd_lint_quant(job, nd_lint_dequantise(job, node, WEIGHTS));
    p.b = nd_lint_quant(job, p.bias_node);
    p.y = nd_lint_one(job, nd_lint_quantise(job, node));
    if (p.x == NULL || p.w == NULL || p.b == NULL || p.y == NULL ||
        nd_lint_dtype(job, p.bias_node) != ND_DTYPE_I32)
        return ND_OK;
    ND_TRY(nd_lint_numbers(job, p.bias_node, 0, &p.bias, &p.n, err));
    *is_one = p.n > 0 && (p.b->n == 1 || p.b->n == p.n) && (p.w->n == 1 || p.w->n == p.n);
    for (size_t c = 0; *is_one && c < p.n; c++)
        p.bias[c] -= (double)p.b->zero_point[p.b->n > 1 ? c : 0];
    *out = p;
    if (!*is_one)
        free(p.bias);
    return ND_OK;
}

static float accumulator_scale(const struct product *p, size_t channel)
{
    return p->x->scale[0] * p->w->scale[p->w->n > 1 ? channel : 0];
}

/* ---- bias-scale ---- */

static bool is_recoded_by_provider(const struct product *p)
{
    for (size_t c = 0; p->is_conv && c < p->n; c++)
        if (fabsf(p->b->scale[c] - accumulator_scale(p, c)) > TAKEN_FOR_EQUAL)
            return true;
    return false;
}

static enum nd_status mend_scale(struct nd_lint_job *job, const struct product *p,
                                 struct nd_lint_finding *finding, struct nd_error *err)
{
    ND_CLEANUP(nd_quant_deinit) struct nd_quant quant = {0};
    ND_FREED double *qvalues = malloc(p->n * sizeof *qvalues);
    ND_TRY_MEMORY(qvalues != NULL, err);
    ND_TRY(nd_quant_copy(p->b, &quant, err));
    bool fit = true;
    for (size_t c = 0; c < p->n; c++) {
        quant.scale[c] = accumulator_scale(p, c);
        quant.zero_point[c] = 0;
        qvalues[c] = nearbyint(p->bias[c] * (double)p->b->scale[c] / (double)quant.scale[c]);
        fit = fit && fabs(qvalues[c]) <= INT32_MAX && quant.scale[c] > 0;
    }
    bool is_shared = job->graph->tensors[nd_lint_output(job, p->bias_node)].n_readers > 1;
    if (is_shared || !fit)
        return nd_lint_say_obstacle(
            finding, err, "%s", is_shared ? "several layers read this bias" : "the bias does not fit 32 bits");
    double *given = qvalues;
    qvalues = NULL;
    ND_TRY(nd_lint_change_constant(job, p->bias_node, &quant, given, p->n, err));
    return nd_lint_say_change(finding, err,
                              "the bias has the scale of input times weights in each of %zu channels, and its "
                              "quantised values are rounded anew",
                              p->n);
}

/* One scale for a bias whose weights have several: the NPU seems to drop it. */
static enum nd_status tell_one_scale(struct nd_lint_job *job, size_t node, const struct product *p,
                                     struct nd_error *err)
{
    struct nd_lint_finding *finding;
    double largest = 0;
    for (size_t c = 0; c < p->n; c++)
        largest = fmax(largest, fabs(p->bias[c]));
    double effect = largest * (double)p->b->scale[0] / (double)p->y->scale[0];
    if (effect <= MIN_EFFECT_LSB)
        return ND_OK;
    ND_TRY(nd_lint_find(job, &(struct nd_lint_at){node, effect}, &finding, err,
                        "the weights have %zu scales, the bias has one (%.7g); the largest "
                        "bias is worth %.4g steps of the output",
                        p->w->n, (double)p->b->scale[0], effect));
    return nd_lint_say_obstacle(finding, err, "the bias needs %zu scales; --fix keeps numbers of scales",
                                p->w->n);
}

static enum nd_status tell_scale(struct nd_lint_job *job, size_t node, const struct product *p,
                                 struct nd_error *err)
{
    struct nd_lint_finding *finding;
    double effect = 0;
    size_t worst = 0;
    for (size_t c = 0; c < p->n; c++) {
        double off = fabs(p->bias[c] * ((double)p->b->scale[c] - (double)accumulator_scale(p, c))) /
                     (double)p->y->scale[0];
        worst = off > effect ? c : worst;
        effect = fmax(effect, off);
    }
    if (effect <= MIN_EFFECT_LSB)
        return ND_OK;
    ND_TRY(nd_lint_find(job, &(struct nd_lint_at){node, effect}, &finding, err,
                        "the bias of channel %zu has scale %.7g, and input times weight have %.7g", worst,
                        (double)p->b->scale[worst], (double)accumulator_scale(p, worst)));
    return mend_scale(job, p, finding, err);
}

enum nd_status nd_lint_bias_scale(struct nd_lint_job *job, size_t node, struct nd_error *err)
{
    struct product p = {0};
    bool is_one;
    enum nd_status status = read_product(job, node, &p, &is_one, err);
    if (status != ND_OK || !is_one)
        return status;
    if (p.w->n > 1 && p.b->n == 1)
        status = tell_one_scale(job, node, &p, err);
    else if (p.w->n > 1 && !is_recoded_by_provider(&p))
        status = tell_scale(job, node, &p, err);
    free(p.bias);
    return status;
}

/* ---- bias-overflow ---- */

/* What htp-v69 adds in front of its 32-bit accumulator: the bias, and the output's zero point in its steps. */
static double before_v69(const struct product *p, size_t channel)
{
    double m = (double)p->x->scale[0] * (double)p->w->scale[0] / (double)p->y->scale[0];
    return p->bias[channel] + (double)p->y->zero_point[0] / m;
}

enum nd_status nd_lint_bias_overflow(struct nd_lint_job *job, size_t node, struct nd_error *err)
{
    struct product p = {0};
    bool is_one;
    enum nd_status status = read_product(job, node, &p, &is_one, err);
    if (status != ND_OK || !is_one)
        return status;
    size_t worst = 0;
    double most = 0;
    /* As it was seen: uint8, and one scale for all weights. */
    bool is_known = p.w->n == 1 && nd_lint_dtype(job, nd_lint_dequantise(job, node, X)) == ND_DTYPE_U8;
    for (size_t c = 0; is_known && c < p.n; c++) {
        double sum = fmax(fabs(p.bias[c]), fabs(before_v69(&p, c)));
        worst = sum > most ? c : worst;
        most = fmax(most, sum);
    }
    if (most >= INT32_MAX)
        status = nd_lint_find(job, &(struct nd_lint_at){node, (double)NAN}, NULL, err,
                              "bias and zero point of channel %zu are %.4g in steps of the accumulator (%.4g, "
                              "input times weight); 32 bits hold 2.147e+09",
                              worst, most, (double)accumulator_scale(&p, worst));
    free(p.bias);
    return status;
}

/* ---- batch-norm-bias ---- */

struct reals {
    double *values; /* owned */
    size_t n;
    enum nd_dtype dtype; /* of the quantised values, or float32 */
};

/* The real numbers of a constant: floats, or quantised values behind a DequantizeLinear. */
static enum nd_status read_reals(const struct nd_lint_job *job, size_t node, size_t slot, struct reals *out,
                                 struct nd_error *err)
{
    size_t dequantise = nd_lint_dequantise(job, node, slot);
    const struct nd_quant *quant = nd_lint_one(job, dequantise);
    out->dtype = dequantise == ND_NO_INDEX ? ND_DTYPE_F32 : nd_lint_dtype(job, dequantise);
    if (dequantise == ND_NO_INDEX)
        return nd_lint_numbers(job, node, slot, &out->values, &out->n, err);
    if (quant == NULL)
        return ND_OK;
    ND_TRY(nd_lint_numbers(job, dequantise, 0, &out->values, &out->n, err));
    for (size_t i = 0; i < out->n; i++)
        out->values[i] = (double)((float)(out->values[i] - (double)quant->zero_point[0]) * quant->scale[0]);
    return ND_OK;
}

/* Whether the largest bias that the provider makes of the four constants gets the wrong sign. */
static bool is_turned(const struct reals *parts, double epsilon, size_t *worst, double *largest)
{
    double low = 0, high = 0;
    for (size_t c = 0; c < parts[WEIGHTS].n; c++) {
        double factor = parts[WEIGHTS].values[c] / sqrt(parts[VARIANCE].values[c] + epsilon);
        double bias = parts[BIAS].values[c] - parts[MEAN].values[c] * factor;
        low = fmin(low, bias);
        *worst = bias > high ? c : *worst;
        high = fmax(high, bias);
    }
    double scale = (double)(float)((double)fmaxf(-(float)low, (float)high) / INT32_MAX);
    *largest = high;
    return isfinite(high) && scale > 0 && round(high / scale) > INT32_MAX;
}

enum nd_status nd_lint_batch_norm(struct nd_lint_job *job, size_t node, struct nd_error *err)
{
    enum { N = VARIANCE + 1, RANK = 4 };
    struct reals parts[N] = {{0}};
    size_t worst = 0;
    double largest = 0;
    enum nd_status status = ND_OK;
    const struct nd_quant *y = nd_lint_one(job, nd_lint_quantise(job, node));
    if (!ND_LINT_IS(job, node, "BatchNormalization") || y == NULL ||
        nd_lint_dequantise(job, node, X) == ND_NO_INDEX)
        return ND_OK;
    int rank = job->infos[nd_lint_input(job, node, X)].shape.rank;
    if (rank >= 0 && rank != RANK) /* of others nothing is known */
        return ND_OK;
    bool are_known = true;
    for (size_t i = WEIGHTS; i < N && status == ND_OK; i++) {
        status = read_reals(job, node, i, &parts[i], err);
        are_known = are_known && parts[i].n > 0 && parts[i].n == parts[WEIGHTS].n;
    }
    bool is_wide = parts[BIAS].dtype == ND_DTYPE_F32 || parts[BIAS].dtype == ND_DTYPE_I32;
    double epsilon = (double)(float)nd_onnx_attribute_f(job->graph->nodes[node].proto, "epsilon", 1e-5);
    if (status == ND_OK && are_known && is_wide && is_turned(parts, epsilon, &worst, &largest))
        status = nd_lint_find(job, &(struct nd_lint_at){node, 2 * largest / (double)y->scale[0]}, NULL, err,
                              "the bias of channel %zu, %.7g, is the largest in magnitude and positive", worst,
                              largest);
    for (size_t i = WEIGHTS; i < N; i++)
        free(parts[i].values);
    return status;
}
