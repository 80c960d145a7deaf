/* The weights of products: what the HTP multiplies with are signed 8-bit numbers
 * (docs/science/htp-arithmetic.md#weights). And how a Conv strides: a depthwise one of its own kind, and
 * ConvTranspose, of which the device makes a Conv of each phase, that is, of the outputs that are the same
 * distance behind a whole number of strides (docs/science/htp-arithmetic.md#convtranspose). */
#include <math.h>
#include <string.h>

#include "arithmetic/arithmetics/requantise.h"
#include "arithmetic/htp/htp_internal.h"
#include "core/memory.h"

static int64_t number_at(const struct nd_op_call *call, const char *name, size_t i, int64_t otherwise)
{
    const int64_t *values;
    size_t n = nd_op_ints(call, name, &values);
    return i < n ? values[i] : otherwise;
}

enum { PLANES_RANK = 4 };

struct nd_htp_phases nd_htp_phases_of(const struct nd_htp_job *job)
{
    const struct nd_op_call call = {.node = job->call->node, .opset = job->call->opset};
    struct nd_htp_phases phases = {.stride = {1, 1}};
    if (!nd_htp_is_transposed(job))
        return phases;
    size_t first = job->call->inputs[1].values->shape.rank == PLANES_RANK ? 0 : 1; /* rows: one axis */
    for (size_t i = first; i < 2; i++) {
        phases.stride[i] = (size_t)number_at(&call, "strides", i - first, 1);
        phases.padding[i] = (size_t)number_at(&call, "pads", i - first, 0);
    }
    return phases;
}

bool nd_htp_is_strided_depthwise(const struct nd_exact_layer *layer)
{
    enum { STRIDE = 2, MIN_KERNEL = 3 };
    const struct nd_op_call call = {.node = layer->call->node, .opset = layer->call->opset};
    if (layer->dtype != ND_DTYPE_U8 || call.node == NULL || layer->call->n_inputs < 2 ||
        strcmp(nd_onnx_text(call.node->op_type), "Conv") != 0 || layer->call->inputs[1].values == NULL)
        return false;
    const struct nd_shape *w = &layer->call->inputs[1].values->shape;
    if (w->rank != 4 || w->dims[0] < 2 || w->dims[1] != 1 || nd_op_i(&call, "group", 1) != w->dims[0])
        return false;
    for (size_t i = 0; i < 2; i++)
        if (number_at(&call, "strides", i, 1) != STRIDE || w->dims[2 + i] < MIN_KERNEL)
            return false;
    return true;
}

/* Whether it says itself which padding it has. */
static bool is_padded_by_shape(const struct nd_op_call *call)
{
    char text[16];
    const int64_t *values;
    nd_op_text(call, "auto_pad", text, sizeof text);
    return (text[0] != '\0' && strcmp(text, "NOTSET") != 0) || nd_op_ints(call, "output_shape", &values) > 0;
}

/* That was held against the device: a row or column beyond what windows reach, by two places. */
static int64_t greatest_output_padding(int64_t stride)
{
    return stride == 2;
}

bool nd_htp_is_known_transposed(const struct nd_htp_job *job)
{
    const struct nd_op_call call = {.node = job->call->node, .opset = job->call->opset};
    const struct nd_shape *w = &job->call->inputs[1].values->shape;
    if ((w->rank != PLANES_RANK && w->rank != PLANES_RANK - 1) ||
        job->layer->origins[1] != ND_EXACT_FROM_CONSTANT || nd_op_i(&call, "group", 1) != 1 ||
        is_padded_by_shape(&call))
        return false;
    for (size_t i = 0; (int)i < w->rank - 2; i++) {
        int64_t stride = number_at(&call, "strides", i, 1);
        if (stride < 1 || stride > w->dims[2 + i] || number_at(&call, "dilations", i, 1) != 1 ||
            number_at(&call, "pads", i, 0) < 0 ||
            number_at(&call, "output_padding", i, 0) > greatest_output_padding(stride))
            return false;
    }
    return true;
}

/* The columns of a ConvTranspose's weights. ND_ERR_MEMORY. */
static enum nd_status find_places(struct nd_htp_weights *weights, const struct nd_htp_job *job,
                                  struct nd_error *err)
{
    struct nd_htp_phases phases = nd_htp_phases_of(job);
    phases.padding[0] = phases.padding[1] = 0;      /* the place in the kernel decides */
    const int64_t *dims = weights->view.shape.dims; /* inputs, outputs, height, width */
    int rank = weights->view.shape.rank;
    size_t n = weights->view.n, n_kernel = nd_dims_product(&weights->view.shape, 2, rank);
    size_t width = (size_t)dims[rank - 1];
    weights->n_phases = phases.stride[0] * phases.stride[1];
    weights->n_columns = (size_t)dims[1] * weights->n_phases;
    weights->places = nd_calloc(n + 1, sizeof *weights->places);
    weights->starts = nd_calloc(weights->n_columns + 2, sizeof *weights->starts);
    ND_TRY_MEMORY(weights->places != NULL && weights->starts != NULL, err);
    size_t *next = weights->starts + 1; /* of each column; becomes its end */
    for (int is_filling = 0; is_filling < 2; is_filling++) {
        for (size_t i = 0; i < n; i++) {
            size_t at = i % n_kernel, phase = nd_htp_phase(&phases, at / width, at % width);
            size_t column = i / n_kernel % (size_t)dims[1] * weights->n_phases + phase;
            if (is_filling)
                weights->places[next[column]++] = i;
            else
                next[column + 1]++;
        }
        for (size_t c = 0; c < weights->n_columns && !is_filling; c++)
            next[c + 1] += next[c];
    }
    return ND_OK;
}

/* ---- weights ---- */

/* What weights can be; up to which they are as they are; how many bits there are of what they are divided by
 * beyond that. Of 16 bits those above 127 x 257 are cut, a defect: docs/science/htp-arithmetic.md#wide. */
static const struct kind {
    double least, greatest, fits;
    int r_bits;
} kinds[] = {{-128, 127, 127, 11}, {-32768, 32639, 32767, 22}};

/* uint16 quantised values as 8-bit ones of 257 times the scale, by a 15-bit multiplier, less their zero point.
 */
static double qvalue_of_word(int64_t qvalue, int64_t zero)
{
    enum { MULTIPLIER = 32640 /* 2^23 / 257 */, STEP = 257 };
    int64_t offset = -((zero * MULTIPLIER - 1) >> 16); /* arithmetic shifts: floor */
    int64_t y = (((qvalue * MULTIPLIER - 1) >> 16) + offset + 64) >> 7;
    int64_t zero8 = (2 * zero + STEP) / (2 * STEP);
    return (double)(y < -zero8 ? -zero8 : y > 255 - zero8 ? 255 - zero8 : y);
}

static double clip_weight(const struct kind *kind, double w)
{
    return fmin(fmax(w, kind->least), kind->greatest);
}

/* Quantised values less zero point, as they are before they have to fit 8 bits. */
static enum nd_status read_weights(struct nd_htp_weights *weights, const struct nd_htp_job *job,
                                   struct nd_error *err)
{
    const struct nd_linear_input *input = &job->call->inputs[1];
    bool is_word = input->values->dtype == ND_DTYPE_U16;
    double largest;
    if (input->packed_weights != NULL && !is_word && job->layer->origins[1] == ND_EXACT_FROM_CONSTANT) {
        weights->from = input->packed_weights;
        return input->largest > kinds[0].fits ? nd_array_copy(input->packed_weights, &weights->w8, err) : ND_OK;
    }
    if (!is_word) {
        enum nd_status status = nd_linear_packed_weights(job->call, 1, &weights->w8, &largest, err);
        bool is_calculated = job->layer->origins[1] == ND_EXACT_FROM_LAYER && !weights->is_wide;
        const struct nd_array *bytes = nd_htp_recall(job, 1);
        bool is_known = bytes != NULL && bytes->n == weights->w8.n;
        if (!is_known && is_calculated && nd_htp_is_plain_tensor(job->memory, job->layer->input_tensors[1]))
            return status;
        for (size_t i = 0; is_calculated && status == ND_OK && i < weights->w8.n; i++)
            weights->w8.x[i] = is_known ? bytes->x[i] : clip_weight(&kinds[0], weights->w8.x[i]);
        return status;
    }
    enum nd_status status = nd_array_copy(input->values, &weights->w8, err);
    weights->w8.dtype = ND_DTYPE_F32; /* operators make integers of integers wrap around */
    weights->scale = (double)(257.0F * input->quant->scale[0]);
    for (size_t i = 0; status == ND_OK && i < weights->w8.n; i++)
        weights->w8.x[i] = qvalue_of_word((int64_t)weights->w8.x[i], input->quant->zero_point[0]);
    return status;
}

/* Element i is in row i / n_inner % n_rows of column i / (n_inner n_rows) n_inner + i % n_inner, but for a
 * ConvTranspose. */
static enum nd_status find_columns(struct nd_htp_weights *weights, const struct nd_htp_job *job,
                                   struct nd_error *err)
{
    weights->n_phases = 1;
    if (nd_htp_is_transposed(job))
        return find_places(weights, job, err);
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    const struct nd_shape *shape = &weights->view.shape;
    const char *op_type = job->call->node->op_type;
    bool is_first =
        strcmp(op_type, "Conv") == 0 || (strcmp(op_type, "Gemm") == 0 && nd_op_i(&op_call, "transB", 0) != 0);
    if (is_first) {
        weights->n_inner = 1;
        weights->n_columns = (size_t)shape->dims[0];
        weights->n_rows = nd_dims_product(shape, 1, shape->rank);
    } else {
        weights->n_inner = (size_t)shape->dims[shape->rank - 1];
        weights->n_rows = (size_t)shape->dims[shape->rank - 2];
        weights->n_columns = nd_dims_product(shape, 0, shape->rank - 2) * weights->n_inner;
    }
    return ND_OK;
}

/* What the weights of a column are divided by, so that they fit: 1 where they do. */
static double divisor_of(const struct kind *kind, double most, double least)
{
    if (most <= kind->fits && least >= kind->least)
        return 1;
    return nd_multiplier_round(fmax(most / kind->greatest, least / kind->least), kind->r_bits,
                               ND_ROUND_HALF_EVEN);
}

static double divide_weight(const struct kind *kind, double w, double r)
{
    return clip_weight(kind, r == 1 ? w : floor(w * (rint(0x1p16 / r) * 0x1p-16) + 0.5));
}

double nd_htp_fit_weight(double w, double *r)
{
    *r = divisor_of(&kinds[0], fmax(w, 0), fmin(w, 0));
    return divide_weight(&kinds[0], w, *r);
}

/* Makes the weights of one column fit, which its own data decide, not its encoding. is_whole: they need not. */
static void fit_column(struct nd_htp_weights *weights, size_t column, bool is_whole)
{
    const struct kind *kind = &kinds[weights->is_wide];
    double most = 0, least = 0, sum = 0;
    size_t n_rows = nd_htp_n_rows(weights, column);
    double *x = weights->view.x;
    for (size_t row = 0; row < n_rows; row++) {
        double w = x[nd_htp_place(weights, column, row)];
        most = w > most ? w : most;
        least = w < least ? w : least;
    }
    double r = is_whole ? 1 : divisor_of(kind, most, least);
    bool is_cut = !is_whole && most > kind->greatest;
    for (size_t row = 0; (r != 1 || is_cut) && row < n_rows; row++) {
        double *w = &x[nd_htp_place(weights, column, row)];
        *w = divide_weight(kind, *w, r);
    }
    for (size_t row = 0; row < n_rows; row++)
        sum += x[nd_htp_place(weights, column, row)];
    weights->r[column] = r;
    weights->sums[column] = sum;
}

/* Products of 16-bit numbers are several times as quick. */
static enum nd_status make_shorts(struct nd_htp_weights *weights, const struct nd_linear_input *input,
                                  struct nd_error *err)
{
    if (weights->from == NULL || weights->w8.n == 0 || input->largest > INT16_MAX)
        return ND_OK;
    weights->largest = input->largest; /* what fits is not larger */
    weights->shorts = nd_tensor_room((weights->w8.n + 1) * sizeof *weights->shorts);
    ND_TRY_MEMORY(weights->shorts != NULL, err);
    for (size_t i = 0; i < weights->w8.n; i++)
        weights->shorts[i] = (int16_t)weights->w8.x[i];
    weights->shorts[weights->w8.n] = 0;
    return ND_OK;
}

enum nd_status nd_htp_weights_init(struct nd_htp_weights *weights, const struct nd_htp_job *job,
                                   struct nd_error *err)
{
    *weights = (struct nd_htp_weights){.is_wide = job->call->inputs[1].values->dtype == ND_DTYPE_I16};
    ND_TRY(read_weights(weights, job, err));
    weights->view = weights->w8.n > 0 || weights->from == NULL ? weights->w8 : *weights->from;
    ND_TRY(find_columns(weights, job, err));
    weights->r = nd_calloc(weights->n_columns, sizeof *weights->r);
    weights->sums = nd_calloc(weights->n_columns, sizeof *weights->sums);
    ND_TRY_MEMORY(weights->r != NULL && weights->sums != NULL, err);
    bool is_whole = nd_htp_is_strided_depthwise(job->layer);
    for (size_t c = 0; c < weights->n_columns; c++)
        fit_column(weights, c, is_whole);
    return make_shorts(weights, &job->call->inputs[1], err);
}
