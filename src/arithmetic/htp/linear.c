/* Conv, ConvTranspose, Gemm and MatMul of 8-bit weights, constant or calculated.
 * docs/science/htp-arithmetic.md#products-conv-gemm-matmul. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/htp/htp_internal.h"
#include "core/error.h"
#include "core/memory.h"

struct product {
    const struct nd_htp_job *job;
    const struct nd_htp_weights *weights; /* those that were kept, or the following */
    struct nd_htp_weights own_weights;
    struct nd_array own[2]; /* of the following, where they are not borrowed */
    const struct nd_array *x,
        *sums; /* quantised values less zero point; the operator on them and the weights */
    size_t n_channels, n_inner, n_matrix; /* of the output, see column_of */
    struct nd_htp_column common;
    struct nd_htp_biases biases;
    struct nd_htp_phases phases;
    size_t width; /* of the output, where it has phases */
};

static bool is_op(const struct nd_htp_job *job, const char *op_type)
{
    return strcmp(job->call->node->op_type, op_type) == 0;
}

bool nd_htp_is_known_product(const struct nd_htp_job *job)
{
    return nd_htp_is_product(job) && !nd_htp_is_strided_depthwise16(job);
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
    enum nd_status status = nd_linear_borrow_packed_weights(p->job->call, 0, &p->own[0], &p->x, &largest, err);
    if (status == ND_OK)
        status = multiply(p, err);
    if (status != ND_OK)
        return status;
    const struct nd_shape *shape = &p->sums->shape;
    bool is_conv = nd_htp_is_conv(p->job);
    p->n_channels = (size_t)shape->dims[is_conv ? 1 : shape->rank - 1];
    p->n_inner = is_conv ? nd_dims_product(shape, 2, shape->rank) : 1;
    p->n_matrix = is_conv ? 0 : p->n_channels * (size_t)shape->dims[shape->rank - 2];
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
                                     .is_per_channel = w->quant->n > 1};
    for (size_t c = 0; c < w->quant->n; c++)
        common->largest_scale_w = fmax(common->largest_scale_w, (double)w->quant->scale[c]);
    for (size_t c = 0; c < p->weights->n_columns && common->is_per_channel; c++)
        if (p->weights->r[c] != 1)
            return false;
    p->biases = nd_htp_biases_of(p->job);
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
    column.bias = nd_htp_bias(&p->biases, channel, &column.bias_scale);
    return column;
}

static bool are_known_multipliers(const struct product *p)
{
    bool are_known = true;
    for (size_t c = 0; c < p->weights->n_columns && are_known && p->job->layer->dtype == ND_DTYPE_U8; c++) {
        struct nd_htp_column column = find_column(p, c);
        are_known = nd_htp_is_known_multiplier(p->job->arithmetic->arch, &column);
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
    double *room = nd_calloc(n, 6 * sizeof *room);
    if (room == NULL)
        return nd_fail_memory(err);
    *columns = (struct columns){
        room, room + n, room + 2 * n, room + 3 * n, room + 4 * n, room + 5 * n, nd_htp_bounds_of(p->job)};
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

/* uint16: the sums of products with quantised values, not with what is left of them, lose 8 bits. */
static void shorten(const struct columns *columns, size_t column, size_t step, const double *sums, size_t n,
                    double *out)
{
    for (size_t i = 0; i < n; i++) {
        double correction = columns->correction[column + i * step];
        out[i] = floor_of((sums[i] + correction) * 0x1p-8) - floor_of((correction + 128) * 0x1p-8);
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
    enum nd_status status = make_columns(p, &columns, err);
    size_t run = p->weights->n_phases > 1 ? 1 : p->n_inner > 1 ? p->n_inner : p->n_channels;
    if (status != ND_OK)
        return status;
    for (size_t first = 0; first < p->sums->n; first += run)
        requantise_run(p, &columns, first, run);
    free(columns.beta);
    return ND_OK;
}

/* A column with what comes after it. */
struct bent {
    struct nd_htp_slopes slopes;
    struct nd_htp_gate gate;
};

/* False: a multiplier of which it is not known. */
static bool find_bent(const struct product *p, const struct nd_htp_column *column, struct bent *bent)
{
    enum nd_dtype dtype = p->job->layer->dtype;
    return p->job->after == ND_LAYER_AFTER_HARD_SWISH
               ? nd_htp_gate_of(dtype, column, &bent->gate)
               : nd_htp_slopes_of(dtype, column, p->job->slope, &bent->slopes);
}

static bool requantise_bent(const struct product *p)
{
    struct nd_htp_bounds bounds = nd_htp_bounds_of(p->job);
    bool is_word = p->job->layer->dtype == ND_DTYPE_U16, wraps = false;
    size_t run = p->weights->n_phases > 1 ? 1 : p->n_inner;
    for (size_t first = 0; first < p->sums->n; first += run) {
        size_t k = column_of(p, first);
        struct nd_htp_column column = find_column(p, k);
        struct bent bent;
        if (!find_bent(p, &column, &bent))
            return false;
        double correction = p->common.zero_x * p->weights->sums[k];
        for (size_t i = first; i < first + run; i++) {
            double sum = is_word ? nd_htp_shorten(p->sums->x[i], correction) : p->sums->x[i];
            p->job->qvalues->x[i] = p->job->after == ND_LAYER_AFTER_HARD_SWISH
                                        ? nd_htp_scale_gated(&bent.gate, sum, &bounds, &wraps)
                                        : nd_htp_scale_sloped(&bent.slopes, sum, &bounds);
        }
    }
    if (p->job->wraps != NULL)
        *p->job->wraps |= wraps;
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
    enum nd_status status = nd_htp_weights_init(&p->own_weights, p->job, err);
    if (status == ND_OK)
        p->weights = nd_htp_keep_weights(p->job, &p->own_weights);
    return status;
}

enum nd_status nd_htp_linear(const struct nd_htp_job *job, struct nd_error *err)
{
    struct product p = {.job = job};
    if (!nd_htp_is_known_product(job))
        return ND_OK;
    enum nd_status status = find_weights(&p, err);
    if (status == ND_OK)
        status = add_up(&p, err);
    bool is_covered = status == ND_OK && has_a_column_each(&p) &&
                      nd_htp_is_known_bias(job, p.weights->n_columns / p.weights->n_phases) &&
                      find_common(&p) && are_known_multipliers(&p);
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
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    bool is_word = job->layer->dtype == ND_DTYPE_U16;
    bool is_matrix = !nd_htp_is_conv(job), is_plain = !is_matrix || job->call->inputs[1].quant->n > 1;
    bool is_depthwise = nd_op_i(&op_call, "group", 1) > 1 && job->call->inputs[1].values->shape.dims[1] == 1;
    if (is_plain == is_word || (is_op(job, "Gemm") && is_plain))
        *after = ND_LAYER_AFTER_NONE;
    return (is_plain || is_word) && !nd_htp_is_transposed(job) && !is_depthwise;
}

/* Of weights that are constant; slopes from 0 to 1 were seen. */
enum nd_status nd_htp_bent(const struct nd_htp_job *job, struct nd_error *err)
{
    struct nd_htp_job part = *job;
    bool is_relu = job->after == ND_LAYER_AFTER_LINES && job->slope == 0;
    bool is_known = job->arithmetic->arch == ND_HTP_V73 && job->call->n_inputs > 1 &&
                    job->layer->origins[1] == ND_EXACT_FROM_CONSTANT && nd_htp_is_known_product(job) &&
                    (job->layer->dtype == ND_DTYPE_U8 || job->layer->dtype == ND_DTYPE_U16) &&
                    (nd_htp_is_conv(job) || job->call->inputs[1].values->shape.rank == 2) && job->slope < 1;
    if (is_known && is_relu)
        is_known = takes_relu(job, &part.after);
    else
        is_known = is_known && !nd_htp_is_conv(job) && job->slope >= 0;
    enum nd_status status = is_known ? nd_htp_linear(&part, err) : ND_OK;
    /* The Relu is no operation of its own then, either. */
    bool is_open = is_known && is_relu && status == ND_OK && !*job->is_covered;
    return is_open ? ND_ERR_UNSUPPORTED : status;
}

enum nd_status nd_htp_linear_scalings(const struct nd_htp_job *job, const struct nd_htp_weights *weights,
                                      struct nd_htp_scaling **out, struct nd_error *err)
{
    struct product p = {.job = job, .weights = weights};
    *job->is_covered = false;
    if (!nd_htp_is_known_product(job) || !nd_htp_is_known_bias(job, weights->n_columns / weights->n_phases) ||
        !find_common(&p) || !are_known_multipliers(&p))
        return ND_OK;
    struct nd_htp_scaling *scalings = nd_calloc(weights->n_columns, sizeof *scalings);
    if (scalings == NULL)
        return nd_fail_memory(err);
    for (size_t c = 0; c < weights->n_columns; c++)
        scalings[c] = scaling_of(&p, c);
    *job->is_covered = true;
    *out = scalings;
    return ND_OK;
}
