/* Conv, ConvTranspose, Gemm and MatMul of 8-bit weights, constant or calculated: which there is evidence of,
 * their biases, and what their sums become. docs/science/htp-arithmetic.md#products-conv-gemm-matmul, of biases
 * docs/science/htp-arithmetic.md#biases, of uint16 depthwise ones docs/science/htp-arithmetic.md#depthwise. F
 * is one operation on float32. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/htp/htp_internal.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/tensors/scales.h"

/* ---- which products there is evidence of ---- */

static bool is_op(const struct nd_htp_job *job, const char *op_type)
{
    return strcmp(job->call->node->op_type, op_type) == 0;
}

static bool is_conv(const struct nd_htp_job *job)
{
    return is_op(job, "Conv") || nd_htp_is_transposed(job);
}

static bool is_plain_gemm(const struct nd_htp_job *job)
{
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    return nd_op_f(&op_call, "alpha", 1) == 1 && nd_op_f(&op_call, "beta", 1) == 1 &&
           nd_op_i(&op_call, "transA", 0) == 0;
}

static bool has_groups(const struct nd_htp_job *job)
{
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    return nd_op_i(&op_call, "group", 1) > 1;
}

/* Scales along the output channels of constant weights, or one scale. */
static bool has_known_scales(const struct nd_htp_job *job)
{
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    const struct nd_linear_input *w = &job->call->inputs[1];
    int rank = w->values->shape.rank, axis = w->quant->axis < 0 ? w->quant->axis + rank : w->quant->axis;
    bool is_first = is_op(job, "Conv") || (is_op(job, "Gemm") && nd_op_i(&op_call, "transB", 0) != 0);
    if (w->quant->n == 1 || !nd_quant_is_sound(w->quant))
        return nd_quant_is_sound(w->quant);
    return job->layer->origins[1] == ND_EXACT_FROM_CONSTANT && axis == (is_first ? 0 : 1) &&
           (is_conv(job) || rank == 2);
}

static bool are_known_operands(const struct nd_htp_job *job)
{
    const struct nd_linear_input *x = &job->call->inputs[0], *w = &job->call->inputs[1];
    bool is_constant = job->layer->origins[1] == ND_EXACT_FROM_CONSTANT;
    if (nd_htp_plain(job, 0) == NULL || nd_htp_plain_output(job) == NULL || !nd_linear_has(job->call, 1) ||
        w->quant == NULL || w->quant->n == 0 || w->values->n == 0 || x->values->dtype != job->layer->dtype)
        return false;
    if (w->values->dtype == ND_DTYPE_I16) /* two of 16 bits, which v69 has not */
        return x->values->dtype == ND_DTYPE_U16 && w->quant->zero_point[0] == 0 && !has_groups(job) &&
               !nd_htp_is_transposed(job) && job->arithmetic != NULL && job->arithmetic->arch == ND_HTP_V73;
    if (w->values->dtype == ND_DTYPE_U16) /* only what is calculated becomes 8-bit numbers */
        return !is_constant && x->values->dtype == ND_DTYPE_U16 && w->quant->n == 1 && is_op(job, "MatMul");
    return w->values->dtype == ND_DTYPE_U8 || (w->values->dtype == ND_DTYPE_I8 && is_constant);
}

/* Whether operands, scales and attributes of the product are such as the arithmetics speak of. */
static bool is_product(const struct nd_htp_job *job)
{
    size_t n_inputs = job->call->n_inputs;
    if (n_inputs < 2 || n_inputs > 3 || !are_known_operands(job) || !has_known_scales(job))
        return false;
    int rank = job->call->inputs[1].values->shape.rank;
    if (is_op(job, "Gemm"))
        return is_plain_gemm(job);
    if (nd_htp_is_transposed(job))
        return nd_htp_is_known_transposed(job);
    return is_op(job, "Conv") ? rank >= 3 : rank >= 2 && job->call->inputs[0].values->shape.rank >= 2;
}

/* ---- biases ---- */

/* The biases of a product as the provider hands them to the device. */
struct biases {
    const struct nd_linear_call *call;
    bool is_there, is_rescaled;
    /* Of weights with a scale per channel: the greatest scale of the accumulator, and with that scale the
     * greatest absolute bias. */
    float largest_scale, largest;
};

/* The provider takes the bias scale of a Conv for that of the accumulator up to this distance, whatever the
 * scales are (its source: `CheckBiasScaleMatch`; measured with QAIRT 2.51). */
static const float LARGEST_SCALE_DIFFERENCE = 1e-5F;

/* Axes of a Conv of planes; one of rows keeps its biases as they are (measured with QAIRT 2.51). */
enum { PLANES_RANK = 4 };

static float accumulator_scale(const struct nd_linear_call *call, size_t channel)
{
    return call->inputs[0].quant->scale[0] * (float)nd_linear_scale(&call->inputs[1], channel);
}

/* A float bias, and that of a Conv of planes whose bias scales are not those of the accumulator, get quantised
 * values of the provider's. */
static bool is_bias_rescaled(const struct nd_htp_job *job)
{
    const struct nd_quant *quant = job->call->inputs[2].quant;
    if (quant == NULL) /* floats */
        return true;
    if (!is_conv(job) || job->call->inputs[1].values->shape.rank < PLANES_RANK)
        return false;
    for (size_t c = 0; c < quant->n; c++)
        if (fabsf(quant->scale[c] - accumulator_scale(job->call, c)) > LARGEST_SCALE_DIFFERENCE)
            return true;
    return false;
}

/* The quantised value of a channel and its scale; 0 and 0 without a bias. */
static double bias_of(const struct biases *biases, size_t channel, double *scale)
{
    *scale = 0;
    if (!biases->is_there)
        return 0;
    const struct nd_linear_input *input = &biases->call->inputs[2];
    double qvalue = input->values->x[channel];
    *scale = nd_linear_scale(input, channel);
    if (!biases->is_rescaled)
        return qvalue;
    float real = (float)(qvalue * *scale);
    *scale = (double)accumulator_scale(biases->call, channel);
    return fmin(fmax(round((double)real / *scale), INT32_MIN), INT32_MAX); /* halves away from zero */
}

static struct biases biases_of(const struct nd_htp_job *job)
{
    const struct nd_linear_call *call = job->call;
    struct biases biases = {.call = call};
    if (!nd_linear_has(call, 2))
        return biases;
    bool has_channels = call->inputs[1].quant->n > 1;
    biases.is_there = true;
    biases.is_rescaled = is_bias_rescaled(job);
    for (size_t c = 0; has_channels && c < call->inputs[1].quant->n; c++)
        biases.largest_scale = fmaxf(biases.largest_scale, accumulator_scale(call, c));
    for (size_t c = 0; has_channels && c < call->inputs[2].values->n; c++) {
        double scale;
        biases.largest =
            fmaxf(biases.largest, fabsf((float)bias_of(&biases, c, &scale) * biases.largest_scale));
    }
    return biases;
}

/* Whether the product has no bias, or one such as there is evidence of. */
static bool is_known_bias(const struct nd_htp_job *job, size_t n_columns)
{
    if (!nd_linear_has(job->call, 2))
        return true;
    const struct nd_linear_input *bias = &job->call->inputs[2];
    const struct nd_quant *quant = bias->quant;
    if (quant == NULL)
        return bias->values->dtype == ND_DTYPE_F32 && bias->values->n == n_columns &&
               job->layer->origins[2] == ND_EXACT_FROM_CONSTANT;
    bool is_known = bias->values->dtype == ND_DTYPE_I32 && bias->values->n == n_columns &&
                    job->layer->origins[2] == ND_EXACT_FROM_CONSTANT &&
                    (quant->n == n_columns || (quant->n == 1 && job->call->inputs[1].quant->n == 1));
    for (size_t c = 0; is_known && c < quant->n; c++)
        is_known = quant->zero_point[c] == 0 && quant->scale[c] > 0 && isfinite(quant->scale[c]);
    return is_known;
}

/* The output channel, as if its weights fit 8 bits: else its bias takes fewer bits. */
static struct nd_htp_column column_of_bias(const struct biases *biases, size_t channel)
{
    const struct nd_linear_call *call = biases->call;
    const struct nd_linear_input *w = &call->inputs[1];
    struct nd_htp_column column = {.scale_x = (double)call->inputs[0].quant->scale[0],
                                   .scale_w = nd_linear_scale(w, channel),
                                   .scale_y = (double)call->out_quant->scale[0],
                                   .zero_y = (double)call->out_quant->zero_point[0],
                                   .r = 1,
                                   .largest_bias_scale = biases->largest_scale,
                                   .largest_bias = biases->largest,
                                   .is_per_channel = w->quant->n > 1};
    for (size_t c = 0; c < w->quant->n; c++)
        column.largest_scale_w = fmax(column.largest_scale_w, (double)w->quant->scale[c]);
    column.bias = bias_of(biases, channel, &column.bias_scale);
    return column;
}

/* Whether it is so of one of the n output channels. */
static bool is_of_one(const struct nd_htp_job *job, size_t n, bool (*question)(const struct nd_htp_column *c))
{
    size_t n_scales = job->call->inputs[1].quant->n;
    if (!is_known_bias(job, n) || (n_scales > 1 && n_scales != n))
        return false;
    struct biases biases = biases_of(job);
    bool is = false;
    for (size_t c = 0; c < n && !is; c++) {
        struct nd_htp_column column = column_of_bias(&biases, c);
        is = question(&column);
    }
    return is;
}

static bool wraps_bias(const struct nd_exact_layer *layer)
{
    const struct nd_htp_job job = {.layer = layer, .call = layer->call};
    return layer->dtype == ND_DTYPE_U8 && nd_linear_has(layer->call, 2) && is_product(&job) &&
           is_of_one(&job, layer->call->inputs[2].values->n, nd_htp_bias_wraps);
}

static bool wraps_multiplier(const struct nd_exact_layer *layer)
{
    const struct nd_htp_job job = {.layer = layer, .call = layer->call};
    return layer->dtype == ND_DTYPE_U16 && is_product(&job) &&
           is_of_one(&job, layer->call->inputs[1].quant->n, nd_htp_multiplier_wraps);
}

bool nd_layer_wraps_multiplier(const struct nd_exact_layer *layer)
{
    return nd_htp_ask(layer, wraps_multiplier);
}

bool nd_layer_wraps_bias(const struct nd_exact_layer *layer)
{
    return nd_htp_ask(layer, wraps_bias);
}

/* ---- uint16 Conv of one channel each that moves by two: sum and weights keep all their bits ---- */

static bool is_two_by_two(const int64_t *sides, size_t n)
{
    return n == 2 && sides[0] == 2 && sides[1] == 2;
}

/* A uint16 Conv of one channel each that moves by two, of the chipsets on which that is an exception. The job
 * is a product. */
static bool is_strided_depthwise16(const struct nd_htp_job *job)
{
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    const struct nd_shape *w = &job->call->inputs[1].values->shape;
    const int64_t *strides;
    size_t n = nd_op_ints(&op_call, "strides", &strides);
    int64_t group = nd_op_i(&op_call, "group", 1);
    bool is_strided = false;
    for (size_t i = 0; i < n; i++)
        is_strided = is_strided || strides[i] == 2;
    if (strcmp(job->call->node->op_type, "Conv") != 0 || job->layer->dtype != ND_DTYPE_U16 || !is_strided ||
        group < 2 || w->rank < 3 || w->dims[0] != group || w->dims[1] != 1)
        return false;
    /* From v73 on windows of 2 x 2 are no exception. */
    bool is_small = w->rank == 4 && is_two_by_two(&w->dims[2], 2);
    return !(is_small && job->arithmetic != NULL && job->arithmetic->arch == ND_HTP_V73);
}

enum { SHORT_WINDOW = 3, LONG_WINDOW = 5, LONGEST_WINDOW = 7 };

/* Windows that were seen: 3 x 3, 5 x 5, 7 x 7, and 2 x 2 on v69, by two in either direction. */
static bool are_known_windows(const struct nd_htp_job *job)
{
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    const struct nd_shape *w = &job->call->inputs[1].values->shape;
    const int64_t *strides, *dilations;
    size_t n = nd_op_ints(&op_call, "strides", &strides),
           n_dilations = nd_op_ints(&op_call, "dilations", &dilations);
    for (size_t i = 0; i < n_dilations; i++)
        if (dilations[i] != 1)
            return false;
    char auto_pad[16];
    nd_op_text(&op_call, "auto_pad", auto_pad, sizeof auto_pad);
    bool has_pads = auto_pad[0] == '\0' || strcmp(auto_pad, "NOTSET") == 0;
    return w->rank == 4 && is_two_by_two(strides, n) && w->dims[2] == w->dims[3] &&
           (w->dims[2] <= SHORT_WINDOW ||
            (has_pads && (w->dims[2] == LONG_WINDOW || w->dims[2] == LONGEST_WINDOW)));
}

/* How many columns on the left are padded with the higher byte of the zero point in the place of its lower one:
 * of 5 x 5 windows, their fourth row, in the first place of every second row; a defect. */
static int64_t n_padded_wrongly(const struct nd_htp_job *job)
{
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    const int64_t *pads;
    size_t n = nd_op_ints(&op_call, "pads", &pads);
    return job->call->inputs[1].values->shape.dims[2] == LONG_WINDOW && n == 4 && pads[0] == pads[1] ? pads[1]
                                                                                                     : 0;
}

static int64_t padding_error_of(const struct nd_htp_job *job)
{
    enum { BYTE = 256 };
    int64_t zero = job->call->inputs[0].quant->zero_point[0];
    return zero / BYTE * (BYTE + 1) - zero;
}

/* What that adds to the sum of the channel, whose weights are w. */
static double wrong_padding_of(const struct nd_htp_job *job, const double *w, int64_t n_padded)
{
    enum { ROW = 3 };
    double sum = 0;
    for (int64_t k = 0; k < n_padded; k++)
        sum += w[ROW * LONG_WINDOW + k];
    return sum * (double)padding_error_of(job);
}

/* The whole biases are known where their scales are those of the sums. */
static bool has_own_bias_scale(const struct nd_htp_job *job, size_t channel, double scale)
{
    double sums =
        (double)(job->call->inputs[0].quant->scale[0] * (float)nd_linear_scale(&job->call->inputs[1], channel));
    return scale == 0 || scale == sums;
}

/* The scalings of all channels; false: not known. */
static bool find_scalings(const struct nd_htp_job *job, struct nd_htp_scaling *scalings)
{
    const struct nd_linear_call *call = job->call;
    const struct nd_linear_input *w = &call->inputs[1];
    struct biases biases = biases_of(job);
    struct nd_htp_column column = {.scale_x = (double)call->inputs[0].quant->scale[0],
                                   .scale_y = (double)call->out_quant->scale[0],
                                   .zero_y = (double)call->out_quant->zero_point[0],
                                   .r = 1,
                                   .is_per_channel = w->quant->n > 1};
    for (size_t c = 0; c < w->quant->n; c++)
        column.largest_scale_w = fmax(column.largest_scale_w, (double)w->quant->scale[c]);
    for (size_t c = 0; c < (size_t)w->values->shape.dims[0]; c++) {
        column.scale_w = nd_linear_scale(w, c);
        column.bias = bias_of(&biases, c, &column.bias_scale);
        scalings[c] = nd_htp_scaling_whole16(&column);
        if (!has_own_bias_scale(job, c, column.bias_scale))
            return false;
    }
    return true;
}

static bool pads_wrongly(const struct nd_exact_layer *layer)
{
    const struct nd_htp_job job = {.layer = layer, .call = layer->call};
    const struct nd_array *w = nd_linear_has(layer->call, 1) ? layer->call->inputs[1].values : NULL;
    return layer->dtype == ND_DTYPE_U16 && w != NULL && is_product(&job) && is_strided_depthwise16(&job) &&
           are_known_windows(&job) && n_padded_wrongly(&job) > 0 && padding_error_of(&job) != 0;
}

bool nd_layer_pads_wrongly(const struct nd_exact_layer *layer)
{
    return nd_htp_ask(layer, pads_wrongly);
}

static enum nd_status make_depthwise16(const struct nd_htp_job *job, struct nd_error *err)
{
    if (!is_product(job) || !is_strided_depthwise16(job) || !are_known_windows(job) ||
        job->layer->origins[1] != ND_EXACT_FROM_CONSTANT)
        return ND_OK;
    size_t n = (size_t)job->call->inputs[1].values->shape.dims[0];
    struct nd_array own[3] = {0};
    const struct nd_array *inputs[2], *sums = NULL;
    double largest;
    if (!is_known_bias(job, n))
        return ND_OK;
    ND_FREED struct nd_htp_scaling *scalings = nd_calloc(n, sizeof *scalings);
    enum nd_status status = scalings != NULL ? ND_OK : nd_fail_memory(err);
    bool is_covered = status == ND_OK && find_scalings(job, scalings);
    for (size_t i = 0; i < 2 && is_covered && status == ND_OK; i++)
        status = nd_linear_borrow_packed_weights(job->call, i, &own[i], &inputs[i], &largest, err);
    if (is_covered && status == ND_OK)
        status = nd_linear_add_up(job->call, job->call->node, inputs, &own[2], &sums, err);
    if (is_covered && status == ND_OK)
        status = nd_array_make(job->qvalues, job->layer->dtype, &sums->shape, err);
    if (is_covered && status == ND_OK) {
        struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
        size_t width = (size_t)sums->shape.dims[3], n_inner = (size_t)sums->shape.dims[2] * width;
        int64_t n_padded = n_padded_wrongly(job);
        for (size_t i = 0; i < sums->n; i++) {
            size_t channel = i / n_inner % n;
            bool is_wrong = n_padded > 0 && i % width == 0 && i / width % (size_t)sums->shape.dims[2] % 2 == 1;
            const double *w = inputs[1]->x + channel * LONG_WINDOW * LONG_WINDOW;
            double sum = sums->x[i] + (is_wrong ? wrong_padding_of(job, w, n_padded) : 0);
            job->qvalues->x[i] = nd_htp_scale(&scalings[channel], sum, &bounds);
        }
        *job->is_covered = true;
    }
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        nd_array_deinit(&own[i]);
    return status;
}

/* ---- products ---- */

struct product {
    const struct nd_htp_job *job;
    const struct nd_htp_weights *weights; /* those that were kept, or the following */
    struct nd_htp_weights own_weights;
    struct nd_array own[2]; /* of the following, where they are not borrowed */
    const struct nd_array *x,
        *sums; /* quantised values less zero point; the operator on them and the weights */
    size_t n_channels, n_inner, n_matrix; /* of the output, see column_of */
    struct nd_htp_column common;
    struct biases biases;
    struct nd_htp_phases phases;
    size_t width; /* of the output, where it has phases */
};

/* A Conv with steps and dilations of more than one, one plane for each channel apart: the device makes it in
 * floats, near exact rounding (docs/science/htp-arithmetic.md, "Open"). */
static bool jumps_and_spreads(const struct nd_htp_job *job)
{
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    const int64_t *factors;
    int64_t most[2] = {1, 1};
    static const char *const names[] = {"strides", "dilations"};
    for (size_t k = 0; k < 2 && is_conv(job); k++)
        for (size_t n = nd_op_ints(&op_call, names[k], &factors), i = 0; i < n; i++)
            most[k] = factors[i] > most[k] ? factors[i] : most[k];
    const struct nd_array *w = nd_linear_has(job->call, 1) ? job->call->inputs[1].values : NULL;
    bool is_apart = w != NULL && w->shape.rank > 1 && w->shape.dims[1] == 1 &&
                    nd_op_i(&op_call, "group", 1) == w->shape.dims[0];
    return most[0] > 1 && most[1] > 1 && !is_apart;
}

bool nd_htp_is_known_product(const struct nd_htp_job *job)
{
    return is_product(job) && !is_strided_depthwise16(job) && !jumps_and_spreads(job);
}

/* The operator's attributes mean the same for weights and for what they were made of. Sums of other weights are
 * nobody else's. */
static enum nd_status multiply(struct product *p, struct nd_error *err)
{
    const struct nd_htp_weights *w = p->weights;
    struct nd_linear_input inputs[3] = {{.values = NULL}};
    struct nd_linear_call call = *p->job->call;
    const struct nd_array *operands[] = {p->x, &w->view};
    if (w->shorts == NULL)
        return nd_linear_add_up(p->job->call, call.node, operands, &p->own[1], &p->sums, err);
    memcpy(inputs, call.inputs, call.n_inputs * sizeof *inputs);
    inputs[1].packed_weights = &w->view;
    inputs[1].largest = w->largest;
    inputs[1].shorts = w->shorts;
    call.inputs = inputs;
    call.shared = NULL;
    return nd_linear_add_up(&call, call.node, operands, &p->own[1], &p->sums, err);
}

static enum nd_status add_up(struct product *p, struct nd_error *err)
{
    double largest;
    ND_TRY(nd_linear_borrow_packed_weights(p->job->call, 0, &p->own[0], &p->x, &largest, err));
    ND_TRY(multiply(p, err));
    const struct nd_shape *shape = &p->sums->shape;
    bool has_planes = is_conv(p->job);
    p->n_channels = (size_t)shape->dims[has_planes ? 1 : shape->rank - 1];
    p->n_inner = has_planes ? nd_dims_product(shape, 2, shape->rank) : 1;
    p->n_matrix = has_planes ? 0 : p->n_channels * (size_t)shape->dims[shape->rank - 2];
    p->phases = nd_htp_phases_of(p->job);
    p->width = (size_t)shape->dims[shape->rank - 1];
    return ND_OK;
}

/* The column of the weights that goes into element i of the output. */
static size_t column_of(const struct product *p, size_t i)
{
    size_t channel = i / p->n_inner % p->n_channels, place = i % p->n_inner;
    if (p->weights->n_phases > 1)
        return channel * p->weights->n_phases + nd_htp_phase(&p->phases, place / p->width, place % p->width);
    if (p->weights->n_columns == p->n_channels)
        return channel;
    return i / p->n_matrix * p->n_channels + channel; /* a matrix each */
}

static bool has_a_column_each(const struct product *p)
{
    return p->weights->n_columns == p->n_channels * p->weights->n_phases ||
           (p->n_matrix > 0 && p->sums->n / p->n_matrix * p->n_channels == p->weights->n_columns);
}

/* What all columns share. False: weights per channel that do not fit 8 bits, on which there is no evidence. */
static bool find_common(struct product *p)
{
    const struct nd_linear_call *call = p->job->call;
    const struct nd_linear_input *w = &call->inputs[1];
    struct nd_htp_column *common = &p->common;
    *common = (struct nd_htp_column){.scale_x = (double)call->inputs[0].quant->scale[0],
                                     .scale_y = (double)call->out_quant->scale[0],
                                     .zero_x = (double)call->inputs[0].quant->zero_point[0],
                                     .zero_y = (double)call->out_quant->zero_point[0],
                                     .is_per_channel = w->quant->n > 1,
                                     .is_wide = p->weights->is_wide};
    for (size_t c = 0; c < w->quant->n; c++)
        common->largest_scale_w = fmax(common->largest_scale_w, (double)w->quant->scale[c]);
    for (size_t c = 0; c < p->weights->n_columns && common->is_per_channel; c++)
        if (p->weights->r[c] != 1)
            return false;
    p->biases = biases_of(p->job);
    common->largest_bias_scale = p->biases.largest_scale;
    common->largest_bias = p->biases.largest;
    return true;
}

static struct nd_htp_column find_column(const struct product *p, size_t c)
{
    size_t channel = c / p->weights->n_phases;
    const struct nd_linear_call *call = p->job->call;
    struct nd_htp_column column = p->common;
    column.scale_w = p->weights->scale > 0 ? p->weights->scale : nd_linear_scale(&call->inputs[1], channel);
    if (p->weights->scale > 0)
        column.largest_scale_w = p->weights->scale;
    column.r = p->weights->r[c];
    column.sum = p->weights->sums[c];
    column.bias = bias_of(&p->biases, channel, &column.bias_scale);
    return column;
}

static bool are_known_multipliers(const struct product *p)
{
    bool are_known = true;
    for (size_t c = 0; c < p->weights->n_columns && are_known; c++) {
        struct nd_htp_column column = find_column(p, c);
        are_known =
            nd_htp_is_known_multiplier(p->job->arithmetic->arch, p->job->layer->dtype != ND_DTYPE_U8, &column);
    }
    return are_known;
}

static struct nd_htp_scaling scaling_of(const struct product *p, size_t c)
{
    struct nd_htp_column column = find_column(p, c);
    enum nd_htp_arch arch = p->job->arithmetic->arch;
    bool is_word = p->job->layer->dtype != ND_DTYPE_U8;
    if (nd_htp_is_strided_depthwise(p->job->layer))
        return nd_htp_scaling_strided(&column);
    return is_word ? nd_htp_scaling16(arch, &column) : nd_htp_scaling8(arch, &column);
}

/* floor(x) of |x| < 2^51, without a call. */
static inline double floor_of(double x)
{
    const double shift = 0x1.8p52;
    double whole = (x + shift) - shift;
    return whole - (0.5 - copysign(0.5, x - whole)); /* no branch, so that loops take several at once */
}

static inline int64_t bits_of(double x)
{
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Scalings of all columns, one array for each part of nd_htp_scaling, and what `shorten` corrects by. */
struct columns {
    double *beta, *inverse, *c, *half, *zero, *correction; /* [n] */
    struct nd_htp_bounds bounds;                           /* of all */
    double part;                                           /* 1 over what is left of a sum, of uint16 */
};

/* nd_htp_scale of n sums; column[i] is i / n_inner, from the first of the columns on. The same in the same
 * order, without a call for each. step is a constant where this is called. False: a number without room for a
 * fraction.
 */
static inline __attribute__((always_inline)) bool scale_each(const struct columns *s, size_t column,
                                                             size_t step, const double *restrict sums, size_t n,
                                                             double *restrict qvalues)
{
    const double most = 0x1p50, low = s->bounds.low, high = s->bounds.high;
    const double *beta = s->beta + column, *inverse = s->inverse + column, *c = s->c + column,
                 *half = s->half + column, *zero = s->zero + column;
    int64_t signs = -1; /* of differences that must be negative */
    for (size_t i = 0; i < n; i++) {
        size_t k = i * step;
        double x = (sums[i] + beta[k]) * inverse[k];
        double z = c[k] * (floor_of(x) + half[k]) + 0.5, y = floor_of(z) + zero[k];
        signs &= bits_of(fabs(x) - most) & bits_of(fabs(z) - most);
        y = y < low ? low : y;
        qvalues[i] = y > high ? high : y;
    }
    return signs < 0;
}

static bool scale_run(const struct columns *s, size_t column, size_t step, const double *sums, size_t n,
                      double *qvalues)
{
    return step == 0 ? scale_each(s, column, 0, sums, n, qvalues) : scale_each(s, column, 1, sums, n, qvalues);
}

static enum nd_status make_columns(const struct product *p, struct columns *columns, struct nd_error *err)
{
    size_t n = p->weights->n_columns;
    double part = p->weights->is_wide ? 0x1p-16 : 0x1p-8, *beta = nd_calloc(n, 6 * sizeof *beta);
    ND_TRY_MEMORY(beta != NULL, err);
    *columns = (struct columns){
        beta, beta + n, beta + 2 * n, beta + 3 * n, beta + 4 * n, beta + 5 * n, nd_htp_bounds_of(p->job), part};
    for (size_t c = 0; c < n; c++) {
        struct nd_htp_scaling s = scaling_of(p, c);
        columns->beta[c] = s.beta;
        columns->inverse[c] = 1 / s.step; /* a power of two */
        columns->c[c] = s.c * s.step;
        columns->half[c] = s.half;
        columns->zero[c] = s.zero;
        columns->correction[c] = p->common.zero_x * p->weights->sums[c];
    }
    return ND_OK;
}

/* uint16: the sums of products with quantised values, not with what is left of them, lose 8 bits, or 16. */
static void shorten(const struct columns *columns, size_t column, size_t step, const double *sums, size_t n,
                    double *out)
{
    double part = columns->part;
    for (size_t i = 0; i < n; i++) {
        double correction = columns->correction[column + i * step];
        out[i] = floor_of((sums[i] + correction) * part) - floor_of(correction * part + 0.5);
    }
}

/* n elements of the output from `first` on, in one column, or (step 1) in a column each. */
static void requantise_run(const struct product *p, const struct columns *columns, size_t first, size_t n)
{
    enum { RUN = 512 };
    double short_sums[RUN], *qvalues = p->job->qvalues->x;
    size_t step = p->n_inner > 1 || p->weights->n_phases > 1 ? 0 : 1, column = column_of(p, first);
    for (size_t i = 0; i < n; i += RUN) {
        size_t m = n - i < RUN ? n - i : RUN, k = column + i * step;
        const double *sums = p->sums->x + first + i;
        if (p->job->layer->dtype == ND_DTYPE_U16) {
            shorten(columns, k, step, sums, m, short_sums);
            sums = short_sums;
        }
        if (scale_run(columns, k, step, sums, m, qvalues + first + i))
            continue;
        for (size_t j = 0; j < m; j++) {
            struct nd_htp_scaling scaling = scaling_of(p, k + j * step);
            qvalues[first + i + j] = nd_htp_scale(&scaling, sums[j], &columns->bounds);
        }
    }
}

static enum nd_status requantise(const struct product *p, struct nd_error *err)
{
    struct columns columns = {0};
    ND_TRY(make_columns(p, &columns, err));
    size_t run = p->weights->n_phases > 1 ? 1 : p->n_inner > 1 ? p->n_inner : p->n_channels;
    for (size_t first = 0; first < p->sums->n; first += run)
        requantise_run(p, &columns, first, run);
    free(columns.beta);
    return ND_OK;
}

static bool requantise_bent(const struct product *p)
{
    if (p->weights->is_wide)
        return false;
    bool is_word = p->job->layer->dtype == ND_DTYPE_U16;
    size_t run = p->weights->n_phases > 1 ? 1 : p->n_inner;
    for (size_t first = 0; first < p->sums->n; first += run) {
        size_t k = column_of(p, first);
        struct nd_htp_column column = find_column(p, k);
        double correction = p->common.zero_x * p->weights->sums[k], *sums = p->job->qvalues->x + first;
        for (size_t i = 0; i < run; i++)
            sums[i] = is_word ? nd_htp_shorten(p->sums->x[first + i], correction) : p->sums->x[first + i];
        if (!nd_htp_bend(p->job, k, &column, run, sums))
            return false;
    }
    return true;
}

/* The sums once more, as the signed numbers that another product reads of them. */
static enum nd_status remember_signed(const struct product *p, struct nd_error *err)
{
    struct nd_htp_signed made;
    struct product other = *p;
    if (!nd_htp_signed_init(&made, p->job))
        return ND_OK;
    other.job = &made.job;
    enum nd_status status = nd_array_make(&made.bytes, p->job->layer->dtype, &p->sums->shape, err);
    if (status == ND_OK && find_common(&other))
        status = requantise(&other, err);
    nd_htp_signed_remember(&made, p->job);
    return status;
}

static enum nd_status find_weights(struct product *p, struct nd_error *err)
{
    p->weights = nd_htp_recall_weights(p->job);
    if (p->weights != NULL)
        return ND_OK;
    ND_TRY(nd_htp_weights_init(&p->own_weights, p->job, err));
    p->weights = nd_htp_keep_weights(p->job, &p->own_weights);
    return ND_OK;
}

static enum nd_status make_linear(const struct nd_htp_job *job, struct nd_error *err)
{
    struct product p = {.job = job};
    if (!nd_htp_is_known_product(job))
        return ND_OK;
    enum nd_status status = find_weights(&p, err);
    if (status == ND_OK)
        status = add_up(&p, err);
    bool is_covered = status == ND_OK && has_a_column_each(&p) &&
                      is_known_bias(job, p.weights->n_columns / p.weights->n_phases) && find_common(&p) &&
                      are_known_multipliers(&p);
    if (is_covered)
        status = nd_array_make(job->qvalues, job->layer->dtype, &p.sums->shape, err);
    if (is_covered && status == ND_OK && job->after != ND_LAYER_AFTER_NONE)
        is_covered = requantise_bent(&p);
    else if (is_covered && status == ND_OK)
        status = requantise(&p, err);
    if (is_covered && status == ND_OK && job->after == ND_LAYER_AFTER_NONE)
        status = remember_signed(&p, err);
    *job->is_covered = is_covered && status == ND_OK;
    nd_htp_weights_deinit(&p.own_weights);
    nd_array_deinit(&p.own[0]);
    nd_array_deinit(&p.own[1]);
    return status;
}

/* Whether the device makes a Relu whose zero point is not 0 with the product; *after: as a LeakyRelu with slope
 * 0, or as a product. docs/science/htp-arithmetic.md#sloped. */
static bool takes_relu(const struct nd_htp_job *job, enum nd_layer_after *after)
{
    bool is_word = job->layer->dtype == ND_DTYPE_U16;
    bool is_matrix = !is_conv(job), is_plain = !is_matrix || job->call->inputs[1].quant->n > 1;
    bool is_depthwise = has_groups(job) && job->call->inputs[1].values->shape.dims[1] == 1;
    if (is_plain == is_word || (is_op(job, "Gemm") && is_plain))
        *after = ND_LAYER_AFTER_NONE;
    return (is_plain || is_word) && !nd_htp_is_transposed(job) && !is_depthwise;
}

/* One for each of n columns, as far as they were seen. */
static bool are_slopes(const struct nd_htp_job *job, int64_t n)
{
    bool are = job->slope >= 0 && job->slope < 1 && (job->slopes == NULL || job->n_slopes == (size_t)n);
    for (size_t i = 0; are && i < job->n_slopes; i++)
        are = job->slopes[i] >= 0 && job->slopes[i] < 1;
    return are;
}

/* Of weights that are constant; slopes from 0 to 1 were seen. */
static enum nd_status bend_product(const struct nd_htp_job *job, struct nd_error *err)
{
    struct nd_htp_job part = *job;
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    bool is_relu = job->after == ND_LAYER_AFTER_LINES && job->slope == 0 && job->slopes == NULL;
    bool is_known = job->call->n_inputs > 1 && job->layer->origins[1] == ND_EXACT_FROM_CONSTANT &&
                    nd_htp_is_known_product(job) &&
                    (is_conv(job) || job->call->inputs[1].values->shape.rank == 2);
    const int64_t *dims = is_known ? job->call->inputs[1].values->shape.dims : NULL;
    if (is_known && is_relu)
        is_known = takes_relu(job, &part.after);
    else
        is_known = is_known && !nd_htp_is_transposed(job) &&
                   are_slopes(job, is_conv(job) ? 0 : dims[nd_op_i(&op_call, "transB", 0) == 0]);
    enum nd_status status = is_known ? make_linear(&part, err) : ND_OK;
    /* The Relu is no operation of its own then, either. */
    bool is_open = is_known && is_relu && status == ND_OK && !*job->is_covered;
    return is_open ? ND_ERR_UNSUPPORTED : status;
}

/* The sum of a Mul by a vector: a MatMul by the vector, as a matrix of one column. */
static enum nd_status make_dot(const struct nd_htp_job *job, struct nd_error *err)
{
    enum { MAX_RANK = 4 };
    static char product[] = "MatMul";
    struct nd_linear_input inputs[] = {job->call->inputs[0], job->call->inputs[1]};
    const struct nd_shape *x = &inputs[0].values->shape;
    if (job->call->n_inputs != 2 || !nd_htp_all_are(job, 2, job->layer->dtype) || !nd_htp_is_unbounded(job) ||
        job->layer->origins[1] != ND_EXACT_FROM_CONSTANT || x->rank < 2 || x->rank > MAX_RANK ||
        nd_htp_run_of(job, 1) != 1)
        return ND_OK;
    ND_CLEANUP(nd_array_deinit) struct nd_array column = {0};
    struct nd_quant quant = *inputs[1].quant;
    int64_t zero = 0;
    quant.zero_point = &zero;
    ND_TRY(nd_linear_packed_weights(job->call, 1, &column, &inputs[1].largest, err));
    column.dtype = job->layer->dtype == ND_DTYPE_U16 ? ND_DTYPE_I16 : ND_DTYPE_U8;
    column.shape = (struct nd_shape){.rank = 2, .dims = {(int64_t)column.n, 1}};
    inputs[1] = (struct nd_linear_input){.values = &column, .quant = &quant};
    Onnx__NodeProto node = *job->call->node;
    node.op_type = product;
    struct nd_linear_call call = *job->call;
    call.node = &node;
    call.inputs = inputs;
    call.shared = NULL;
    struct nd_exact_layer layer = *job->layer;
    layer.call = &call;
    struct nd_htp_job part = *job;
    part.layer = &layer;
    part.call = &call;
    part.after = ND_LAYER_AFTER_NONE;
    ND_TRY(make_linear(&part, err));
    job->qvalues->shape.rank -= *job->is_covered;
    return ND_OK;
}

enum nd_status nd_htp_bent(const struct nd_htp_job *job, struct nd_error *err)
{
    const struct nd_shape *x = &job->call->inputs[0].values->shape;
    bool is_byte = job->layer->dtype == ND_DTYPE_U8;
    if (job->after == ND_LAYER_AFTER_SUM)
        return make_dot(job, err);
    if (job->after == ND_LAYER_AFTER_CHANNELS)
        return is_op(job, "Mul")                     ? nd_htp_batch_norm(job, err)
               : is_op(job, "InstanceNormalization") ? nd_htp_instance_norm(job, err)
                                                     : ND_OK;
    if (job->arithmetic->arch != ND_HTP_V73 || (!is_byte && job->layer->dtype != ND_DTYPE_U16))
        return ND_OK;
    if (!is_op(job, "BatchNormalization"))
        return bend_product(job, err);
    return is_byte && x->rank == 2 && are_slopes(job, x->dims[1]) ? nd_htp_batch_norm(job, err) : ND_OK;
}

enum nd_status nd_htp_linear_scalings(const struct nd_htp_job *job, const struct nd_htp_weights *weights,
                                      struct nd_htp_scaling **out, struct nd_error *err)
{
    struct product p = {.job = job, .weights = weights};
    *job->is_covered = false;
    if (!nd_htp_is_known_product(job) || weights->is_wide ||
        !is_known_bias(job, weights->n_columns / weights->n_phases) || !find_common(&p) ||
        !are_known_multipliers(&p))
        return ND_OK;
    struct nd_htp_scaling *scalings = nd_calloc(weights->n_columns, sizeof *scalings);
    ND_TRY_MEMORY(scalings != NULL, err);
    for (size_t c = 0; c < weights->n_columns; c++)
        scalings[c] = scaling_of(&p, c);
    *job->is_covered = true;
    *out = scalings;
    return ND_OK;
}

const struct nd_htp_operator nd_htp_products[] = {
    {"Conv", make_depthwise16, true}, {"Conv", make_linear, false},   {"ConvTranspose", make_linear, false},
    {"Gemm", make_linear, false},     {"MatMul", make_linear, false}, {.op_types = NULL},
};
