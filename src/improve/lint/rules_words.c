/* Rules about operators with uint16 outputs. docs/science/htp-arithmetic.md#elements has the formulas. */
#include <math.h>

#include "improve/lint/lint_job.h"
#include "explain/trials/alternatives.h"

enum { WORD_MAX = 65535 };

static bool has_words(const struct nd_lint_job *job, size_t quantiser)
{
    return nd_lint_dtype(job, quantiser) == ND_DTYPE_U16 && nd_lint_one(job, quantiser) != NULL;
}

/* ---- forced-encoding ---- */

/* How far the codes of one encoding are from those that stand for the same numbers in another one, which clips.
 */
static double misread(const struct nd_quant *made, const struct nd_quant *read)
{
    double most = 0, ratio = (double)made->scale[0] / (double)read->scale[0];
    for (int64_t code = 0; code <= WORD_MAX; code++) {
        double right = (double)(code - made->zero_point[0]) * ratio + (double)read->zero_point[0];
        most = fmax(most, fabs(fmin(fmax(right, 0), WORD_MAX) - (double)code));
    }
    return most;
}

/* How far values of the operator lie beyond the range of the output's encoding, in its steps. */
static double beyond(const struct nd_quant *made, const struct nd_quant *read)
{
    double ratio = (double)made->scale[0] / (double)read->scale[0];
    double low = (double)-made->zero_point[0] * ratio + (double)read->zero_point[0];
    double high = (double)(WORD_MAX + 1 - made->zero_point[0]) * ratio + (double)read->zero_point[0];
    return fmax(fmax(-low, high - WORD_MAX), 0);
}

/* Whether the codes, or what a DequantizeLinear makes of them, are an output of the model: then not the NPU but
 * somebody else gives them their meaning. */
static bool is_handed_out(const struct nd_lint_job *job, size_t quantise)
{
    const struct nd_graph *graph = job->graph;
    const struct nd_graph_tensor *codes = &graph->tensors[nd_lint_output(job, quantise)];
    bool is = codes->output != ND_NO_INDEX;
    for (size_t r = 0; r < codes->n_readers && !is; r++) {
        size_t made = nd_lint_output(job, graph->readers[codes->first_reader + r]);
        is = made != ND_NO_INDEX && graph->tensors[made].output != ND_NO_INDEX;
    }
    return is;
}

static enum nd_status mend_forced(struct nd_lint_job *job, size_t quantise, const struct nd_forced *forced,
                                  struct nd_lint_finding *finding, struct nd_error *err)
{
    const char *obstacle;
    enum nd_status status = nd_lint_change_edge(job, quantise, &forced->quant, &obstacle, err);
    if (status != ND_OK)
        return status;
    return obstacle != NULL ? nd_lint_say_obstacle(finding, err, "%s", obstacle)
                            : nd_lint_say_change(finding, err, "the output has scale %s", forced->text);
}

/* is_output: of the model; else inside of it. */
static enum nd_status look_forced(struct nd_lint_job *job, size_t node, bool is_output, struct nd_error *err)
{
    static const double rounding_lsb = 1; /* chosen: 1/65535 in the place of 1/65536 is off by that */
    size_t quantise = nd_lint_quantise(job, node);
    const Onnx__NodeProto *proto = job->graph->nodes[node].proto;
    const struct nd_forced *forced = nd_forced_find(nd_onnx_text(proto->op_type), nd_lint_dtype(job, quantise));
    const struct nd_quant *y = nd_lint_one(job, quantise);
    struct nd_lint_finding *finding;
    if (forced == NULL || y == NULL || nd_lint_dequantise(job, node, 0) == ND_NO_INDEX ||
        is_handed_out(job, quantise) != is_output || !(misread(&forced->quant, y) > rounding_lsb))
        return ND_OK;
    double effect = is_output ? misread(&forced->quant, y) : beyond(&forced->quant, y);
    enum nd_status status =
        nd_lint_find(job, &(struct nd_lint_at){node, effect}, &finding, err,
                     "the output has scale %.7g with zero point %lld, and the NPU writes it with scale %s",
                     (double)y->scale[0], (long long)y->zero_point[0], forced->text);
    return status == ND_OK ? mend_forced(job, quantise, forced, finding, err) : status;
}

enum nd_status nd_lint_forced(struct nd_lint_job *job, size_t node, struct nd_error *err)
{
    return look_forced(job, node, true, err);
}

enum nd_status nd_lint_forced_inside(struct nd_lint_job *job, size_t node, struct nd_error *err)
{
    return look_forced(job, node, false, err);
}

/* ---- leaky-relu-wrap ---- */

/* Codes of x that get 0 although the model clips them to 65535: (x - z_x) m + z_y 2^15 is 2^31 or more. */
static int64_t count_wrapped(const struct nd_quant *x, const struct nd_quant *y, double alpha)
{
    enum { SHIFT = 15 };
    float above = x->scale[0] / y->scale[0], below = above * (float)alpha;
    if (!(fmaxf(above, fabsf(below)) < 1)) /* the shift is less then, and nothing was seen to wrap */
        return 0;
    int64_t multipliers[] = {(int64_t)ldexp((double)above, SHIFT), (int64_t)ldexp((double)below, SHIFT)};
    int64_t n = 0;
    for (int64_t code = 0; code <= WORD_MAX; code++) {
        int64_t d = code - x->zero_point[0];
        n += d * multipliers[d < 0] + (y->zero_point[0] << SHIFT) > INT32_MAX;
    }
    return n;
}

enum nd_status nd_lint_leaky(struct nd_lint_job *job, size_t node, struct nd_error *err)
{
    size_t dequantise = nd_lint_dequantise(job, node, 0), quantise = nd_lint_quantise(job, node);
    if (!nd_lint_is(job, node, "LeakyRelu") || !has_words(job, dequantise) || !has_words(job, quantise))
        return ND_OK;
    int64_t n = count_wrapped(nd_lint_one(job, dequantise), nd_lint_one(job, quantise),
                              nd_onnx_attribute_f(job->graph->nodes[node].proto, "alpha", 0.01));
    return n > 0 ? nd_lint_find(
                       job, &(struct nd_lint_at){node, WORD_MAX}, NULL, err,
                       "%lld of 65536 input codes lie beyond the output's range; the NPU gives 0 for them, not "
                       "65535",
                       (long long)n)
                 : ND_OK;
}

/* ---- abs-rows ---- */

enum nd_status nd_lint_abs(struct nd_lint_job *job, size_t node, struct nd_error *err)
{
    enum { KEPT_BITS = 18, CUT = 1 << 15 };
    static const float most = 16; /* beyond it nothing is known */
    size_t dequantise = nd_lint_dequantise(job, node, 0), quantise = nd_lint_quantise(job, node);
    if (!nd_lint_is(job, node, "Abs") || !has_words(job, dequantise) || !has_words(job, quantise))
        return ND_OK;
    float m = nd_lint_one(job, dequantise)->scale[0] / nd_lint_one(job, quantise)->scale[0];
    if (!(m < most) || fmod(rint(ldexp((double)m, KEPT_BITS)), CUT) == 0)
        return ND_OK;
    return nd_lint_find(
        job, &(struct nd_lint_at){node, 1}, NULL, err,
        "input and output have different scales (%.7g and %.7g): every second row is rounded down",
        (double)nd_lint_one(job, dequantise)->scale[0], (double)nd_lint_one(job, quantise)->scale[0]);
}

/* ---- operand-8-bits ---- */

enum nd_status nd_lint_operand(struct nd_lint_job *job, size_t node, struct nd_error *err)
{
    size_t first = nd_lint_dequantise(job, node, 0), second = nd_lint_dequantise(job, node, 1);
    if (!nd_lint_is(job, node, "MatMul") || !has_words(job, first) || !has_words(job, second) ||
        job->graph->nodes[first].is_constant || job->graph->nodes[second].is_constant)
        return ND_OK;
    double scale = (double)nd_lint_one(job, second)->scale[0];
    return nd_lint_find(job, &(struct nd_lint_at){node, (double)NAN}, NULL, err,
                        "the second operand is calculated and has 16 bits; on the NPU it has 8, in steps of "
                        "%.4g instead of %.4g",
                        257 * scale, scale);
}
