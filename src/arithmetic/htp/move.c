/* What moves quantised values, or takes the greatest or least of some: quantised values stay what they are
 * while they mean the same, and are brought to another encoding in the way of the operator
 * (docs/science/htp-arithmetic.md#moves). Of uint16 (docs/science/htp-arithmetic.md#moves16) by the floats of
 * the vector layer, and most operators round to float16 between the two scales. Resize
 * (docs/science/htp-arithmetic.md#resize): to the nearest it is a move; between the elements it is the exact
 * mean, where that has few bits, and of floats a number between two float16 numbers. */
#include <math.h>
#include <string.h>

#include "arithmetic/htp/htp_internal.h"
#include "core/memory.h"
#include "core/tensors/scales.h"

/* Whether only the first input has quantised values. */
static bool has_one_source(const struct nd_htp_job *job)
{
    for (size_t i = 1; i < job->call->n_inputs; i++)
        if (job->call->inputs[i].quant != NULL)
            return false;
    return true;
}

enum {
    GREATEST_FLAT =
        50000,    /* quantised values of the largest tensor that was seen to be worked through in one run */
    MAX_AXES = 4, /* of the HTP's tensors */
};

enum order {
    ANY,
    FLAT,  /* one run over all codes: what does not fill a vector at its end is rounded down */
    STILL, /* the same; but where no quantised value is moved they are rescaled as they are */
    WHOLE, /* known only of whole vectors */
};

static const struct {
    const char *op_type;
    enum nd_htp_method method;
    enum order order;
} methods[] = {
    {"Expand", ND_HTP_HALVES, WHOLE},    {"Flatten", ND_HTP_HALVES, STILL},
    {"Gather", ND_HTP_HALVES, FLAT},     {"GlobalMaxPool", ND_HTP_LAYOUT, ANY},
    {"Identity", ND_HTP_FIXED, ANY},     {"MaxPool", ND_HTP_HALVES, ANY},
    {"ReduceMax", ND_HTP_FIXED, ANY},    {"ReduceMin", ND_HTP_FIXED, ANY},
    {"Reshape", ND_HTP_HALVES, STILL},   {"Resize", ND_HTP_HALVES, ANY},
    {"Slice", ND_HTP_FIXED, ANY},        {"Split", ND_HTP_FIXED, ANY},
    {"Squeeze", ND_HTP_HALVES, STILL},   {"Tile", ND_HTP_HALVES, FLAT},
    {"Unsqueeze", ND_HTP_HALVES, STILL},
};

enum { N_METHODS = sizeof methods / sizeof methods[0] };

/* Whether the axes are the same but for leading ones: then nothing is moved. */
static bool is_same_but_ones(const struct nd_shape *a, const struct nd_shape *b)
{
    int i = 0, k = 0;
    while (i < a->rank && a->dims[i] == 1)
        i++;
    while (k < b->rank && b->dims[k] == 1)
        k++;
    return a->rank - i == b->rank - k &&
           memcmp(a->dims + i, b->dims + k, (size_t)(a->rank - i) * sizeof a->dims[0]) == 0;
}

bool nd_htp_is_still(const struct nd_htp_job *job, const struct nd_shape *out)
{
    size_t row = 0;
    while (row < N_METHODS && strcmp(nd_htp_op_type(job->layer), methods[row].op_type) != 0)
        row++;
    return row < N_METHODS && methods[row].order == STILL && has_one_source(job) &&
           nd_htp_all_are(job, 1, ND_DTYPE_U8) && is_same_but_ones(&job->call->inputs[0].values->shape, out) &&
           !nd_quant_is_same(job->call->inputs[0].quant, job->call->out_quant);
}

/* Of a Reshape or the like that moves nothing: of what lies flat, or in blocks; false: it is not known where it
 * lies, or what made it makes it with this encoding. */
static bool find_still_method(const struct nd_htp_job *job, enum nd_htp_method *method)
{
    const char *op_type = job->call->node->op_type;
    bool is_squeeze = strcmp(op_type, "Squeeze") == 0 || strcmp(op_type, "Unsqueeze") == 0;
    bool is_in_blocks = nd_htp_is_in_blocks(job, 0);
    *method = is_in_blocks ? ND_HTP_WHOLE_HALF : ND_HTP_HALF;
    return is_in_blocks ? is_squeeze || !nd_htp_is_laid_out(job, 0)
                        : nd_htp_layout_of(job->memory, job->layer, 0) == ND_HTP_FLAT;
}

/* Quantised values that were moved, in the encoding of the output; false: it is not known how they get there.
 */
static bool rescale_as(const struct nd_htp_job *job, enum nd_htp_method method, enum order order,
                       struct nd_array *moved)
{
    const struct nd_shape *from = &job->call->inputs[0].values->shape;
    const struct nd_quant *x = nd_htp_plain(job, 0);
    struct nd_htp_rescaling r;
    if (order == STILL && is_same_but_ones(from, &moved->shape)) {
        if (!find_still_method(job, &method))
            return false;
        order = ANY;
    }
    size_t n_rest = order == ANY ? 0 : moved->n % ND_HTP_VECTOR_BYTES;
    bool is_known = order == ANY || (moved->n <= GREATEST_FLAT && from->rank <= MAX_AXES &&
                                     moved->shape.rank <= MAX_AXES && (order != WHOLE || n_rest == 0));
    if (!is_known || moved->n == 0 ||
        !nd_htp_rescaling_init(&r, method, (double)x->scale[0], (double)job->call->out_quant->scale[0]))
        return false;
    struct nd_array rest = {.n = n_rest, .x = moved->x + moved->n - n_rest}, whole = *moved;
    whole.n -= n_rest;
    nd_htp_rescale_all(job, &r, (double)x->zero_point[0], 1, &whole);
    r.method = ND_HTP_HALVES_DOWN;
    nd_htp_rescale_all(job, &r, (double)x->zero_point[0], 1, &rest);
    return true;
}

/* Which axis of the input each axis of the output is; false: of other ranks than were looked at. */
static bool find_order(const struct nd_htp_job *job, int64_t order[MAX_AXES], int rank)
{
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    const int64_t *given = NULL;
    size_t n = nd_op_ints(&op_call, "perm", &given);
    if (rank > MAX_AXES || (n != 0 && n != (size_t)rank))
        return false;
    for (int i = 0; i < rank; i++)
        order[i] = n > 0 ? given[i] : rank - 1 - i;
    return true;
}

/* A Transpose of what lies flat brings the quantised values to another encoding as one run over all; of what
 * lies in the layout of a Conv, by where the axes go. The first axis stays, or is 1.
 * docs/science/htp-arithmetic.md#transposes
 */
static bool rescale_transposed(const struct nd_htp_job *job, struct nd_array *moved)
{
    static const int64_t still[][MAX_AXES] = {{0, 2, 1, 3}, {0, 2, 3, 1}}, last[] = {0, 1, 3, 2};
    const struct nd_shape *shape = &job->call->inputs[0].values->shape;
    int64_t order[MAX_AXES];
    if (!find_order(job, order, shape->rank) || (shape->rank == MAX_AXES && order[0] != 0))
        return false;
    if (!nd_htp_is_laid_out(job, 0))
        return rescale_as(job, ND_HTP_HALVES, FLAT, moved);
    if (shape->rank != MAX_AXES)
        return false;
    if (memcmp(order, last, sizeof last) == 0)
        return rescale_as(job, ND_HTP_HALVES, FLAT, moved);
    bool is_known = memcmp(order, still[0], sizeof last) == 0 || memcmp(order, still[1], sizeof last) == 0;
    return is_known && rescale_as(job, ND_HTP_FIXED, ANY, moved);
}

/* ---- uint16 that was moved, in another encoding ---- */

enum {
    MAX_WORD_AXES = 5,       /* that were looked at */
    MAX_STILL_WORD_AXES = 4, /* with one more a leading axis of 1 is a move like another */
};

enum word_method {
    WORD_HALVES, /* real values as float16 */
    WORD_STILL,  /* the same; where no quantised value is moved they are not rounded to float16 */
    WORD_KEPT,   /* the quantised values are not brought to the other encoding: a defect */
};

static const struct {
    const char *op_type;
    enum word_method method;
} word_methods[] = {
    {"Expand", WORD_HALVES}, {"Flatten", WORD_STILL},    {"Gather", WORD_HALVES},     {"MaxPool", WORD_HALVES},
    {"Reshape", WORD_STILL}, {"Resize", WORD_HALVES},    {"SpaceToDepth", WORD_KEPT}, {"Squeeze", WORD_STILL},
    {"Tile", WORD_HALVES},   {"Transpose", WORD_HALVES}, {"Unsqueeze", WORD_STILL},
};

enum { N_WORD_METHODS = sizeof word_methods / sizeof word_methods[0] };

/* Below 1e-7 up to 280 of 65 536 quantised values differ (QAIRT 2.51); above are infinities. */
static const double min_scale = 0x1p-20;

/* The real value of a quantised value that is moved to another encoding; and that as a float16. */
static struct nd_qfloat real_of_word(const struct nd_quant *x, double qvalue, bool is_v81)
{
    float n = (float)(qvalue - (double)x->zero_point[0]);
    struct nd_qfloat whole =
        is_v81 ? nd_qfloat_from(n) : nd_qfloat_product(nd_qfloat_read(n), nd_qfloat_read(1));
    return nd_qfloat_product(whole, nd_qfloat_from(x->scale[0]));
}

static double half_of_word(const struct nd_quant *x, double qvalue, bool is_v81)
{
    return nd_htp_as_half(nd_qfloat_value(real_of_word(x, qvalue, is_v81)), ND_ROUND_HALF_EVEN);
}

/* Whether scales are such as that is known of. */
static bool are_known_halves(const struct nd_quant *x)
{
    double zero = (double)x->zero_point[0], farthest = fmax(zero, UINT16_MAX - zero);
    return (double)x->scale[0] >= min_scale && farthest * (double)x->scale[0] <= ND_HTP_MAX_OF_HALF;
}

struct word_step {
    const struct nd_quant *x, *y;
    bool is_still, is_v81;
};

static double rescale_word(const struct word_step *s, double qvalue)
{
    float inverse = 1 / s->y->scale[0];
    if (s->is_still) {
        struct nd_qfloat real = real_of_word(s->x, qvalue, s->is_v81);
        return nd_htp_half_away(nd_qfloat_value(nd_qfloat_product(real, nd_qfloat_read(inverse))));
    }
    float half = (float)half_of_word(s->x, qvalue, s->is_v81);
    return nd_htp_half_away(nd_htp_steps_of_half((double)half, inverse));
}

static size_t word_method_of(const char *op_type)
{
    size_t row = 0;
    while (row < N_WORD_METHODS && strcmp(op_type, word_methods[row].op_type) != 0)
        row++;
    return row;
}

bool nd_htp_is_other_on_v81(const struct nd_exact_layer *layer)
{
    const struct nd_linear_call *call = layer->call;
    return call->node != NULL && call->n_inputs > 0 &&
           word_method_of(nd_onnx_text(call->node->op_type)) < N_WORD_METHODS &&
           !nd_quant_is_same(call->inputs[0].quant, call->out_quant);
}

static bool find_word_method(const struct nd_htp_job *job, const struct nd_shape *out, enum word_method *method)
{
    const struct nd_shape *in = &job->call->inputs[0].values->shape;
    size_t row = word_method_of(job->call->node->op_type);
    if (row == N_WORD_METHODS || in->rank > MAX_WORD_AXES || out->rank > MAX_WORD_AXES)
        return false;
    *method = word_methods[row].method;
    bool is_still = *method == WORD_STILL && in->rank <= MAX_STILL_WORD_AXES &&
                    out->rank <= MAX_STILL_WORD_AXES && is_same_but_ones(in, out);
    if (*method == WORD_STILL && !is_still)
        *method = WORD_HALVES;
    /* What lies in blocks is brought to the other encoding in other ways, which differ by the operator. */
    return !is_still || nd_htp_layout_of(job->memory, job->layer, 0) == ND_HTP_FLAT;
}

/* Quantised values of the layer's input that its operator moved, in the encoding of the output. False: not
 * known, and nothing was done. */
static bool rescale_moved_words(const struct nd_htp_job *job, struct nd_array *moved)
{
    enum word_method method = WORD_HALVES;
    const struct nd_quant *x = nd_htp_plain(job, 0), *y = nd_htp_plain_output(job);
    if (x == NULL || y == NULL || !nd_htp_is_unbounded(job) || !find_word_method(job, &moved->shape, &method))
        return false;
    if (method == WORD_KEPT)
        return true;
    /* The device gives something else where a Softmax made the quantised values (five layers, 60 to 80 % of
     * their quantised values).
     */
    if (nd_htp_is_share(job, 0))
        return false;
    const struct word_step step = {
        .x = x, .y = y, .is_still = method == WORD_STILL, .is_v81 = job->arithmetic->is_v81};
    for (size_t i = 0; are_known_halves(x) && i < moved->n; i++)
        moved->x[i] = fmin(fmax(rescale_word(&step, moved->x[i]) + (double)y->zero_point[0], 0), UINT16_MAX);
    return are_known_halves(x);
}

/* ---- moving ---- */

static bool rescale_moved(const struct nd_htp_job *job, struct nd_array *moved)
{
    if (nd_htp_plain(job, 0) == NULL)
        return false;
    if (job->layer->dtype == ND_DTYPE_U16)
        return rescale_moved_words(job, moved);
    if (strcmp(job->call->node->op_type, "Transpose") == 0)
        return rescale_transposed(job, moved);
    for (size_t i = 0; i < N_METHODS; i++)
        if (strcmp(job->call->node->op_type, methods[i].op_type) == 0)
            return rescale_as(job, methods[i].method, methods[i].order, moved);
    return false;
}

/* What the memory has of the input, moved likewise: what each architecture made, as this is run for all. */
static enum nd_status move_memory(const struct nd_htp_job *job, const struct nd_array **inputs,
                                  struct nd_error *err)
{
    const struct nd_array *qvalues = inputs[0];
    enum nd_status status = ND_OK;
    for (int arch = 0; arch < ND_HTP_N_ARCHS && status == ND_OK; arch++) {
        struct nd_layer_arithmetic arithmetic = *job->arithmetic;
        struct nd_htp_job part = *job;
        struct nd_array bytes = {0};
        arithmetic.arch = (enum nd_htp_arch)arch;
        part.arithmetic = &arithmetic;
        inputs[0] = nd_htp_recall(&part, 0);
        if (inputs[0] == NULL || !nd_htp_keeps_memory(job->call->node->op_type))
            continue;
        status = nd_linear_run(job->call, job->call->node, inputs, job->call->n_inputs, &bytes, err);
        if (status == ND_OK)
            nd_htp_remember(&part, &bytes);
        nd_array_deinit(&bytes);
    }
    inputs[0] = qvalues;
    return status;
}

static bool find_inputs(const struct nd_htp_job *job, const struct nd_array **inputs, bool *is_rescaled)
{
    const struct nd_linear_call *call = job->call;
    bool is_known = nd_htp_plain_output(job) != NULL;
    *is_rescaled = false;
    for (size_t i = 0; i < call->n_inputs && is_known; i++) {
        inputs[i] = call->inputs[i].values;
        if (inputs[i] == NULL || call->inputs[i].quant == NULL) {
            is_known = i > 0; /* axes, shapes, indices */
            continue;
        }
        is_known = inputs[i]->dtype == job->layer->dtype;
        *is_rescaled |= !nd_quant_is_same(call->inputs[i].quant, call->out_quant);
    }
    return is_known && call->n_inputs > 0 && (!*is_rescaled || has_one_source(job));
}

/* Moves, and takes moved over. */
static enum nd_status move(const struct nd_htp_job *job, const struct nd_array **inputs, bool is_rescaled,
                           struct nd_error *err)
{
    struct nd_array moved = {0};
    enum nd_status status = is_rescaled ? ND_OK : move_memory(job, inputs, err);
    if (status == ND_OK)
        status = nd_linear_run(job->call, job->call->node, inputs, job->call->n_inputs, &moved, err);
    if (status != ND_OK || (is_rescaled && !rescale_moved(job, &moved))) {
        nd_array_deinit(&moved);
        return status;
    }
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    for (size_t i = 0; i < moved.n; i++)
        moved.x[i] = moved.x[i] < bounds.low ? bounds.low : moved.x[i] > bounds.high ? bounds.high : moved.x[i];
    moved.dtype = job->layer->dtype;
    *job->qvalues = moved;
    *job->is_covered = true;
    return ND_OK;
}

static enum nd_status move_qvalues(const struct nd_htp_job *job, struct nd_error *err)
{
    bool is_rescaled;
    ND_FREED const struct nd_array **inputs = nd_calloc(job->call->n_inputs, sizeof *inputs);
    ND_TRY_MEMORY(inputs != NULL, err);
    return find_inputs(job, inputs, &is_rescaled) ? move(job, inputs, is_rescaled, err) : ND_OK;
}

/* ---- uint16 that is rescaled, then moved ---- */

static bool is_word(const struct nd_linear_input *input)
{
    return input->values != NULL && input->quant != NULL && input->quant->n == 1 &&
           input->quant->scale[0] > 0 && input->values->dtype == ND_DTYPE_U16 &&
           nd_htp_are_within(input->values, UINT16_MAX);
}

/* The quantised values of input i, of uint16, in the encoding of the output: what is no word is not known. */
static enum nd_status follow_line16(const struct nd_htp_job *job, size_t i, struct nd_array *out,
                                    bool *is_known, struct nd_error *err)
{
    const struct nd_linear_input *input = &job->call->inputs[i];
    struct nd_htp_line16 line;
    *is_known = is_word(input) && nd_htp_line16_init(&line, input->quant, job->call->out_quant, false);
    if (!*is_known)
        return ND_OK;
    enum nd_status status = nd_array_make(out, ND_DTYPE_U16, &input->values->shape, err);
    for (size_t k = 0; status == ND_OK && k < out->n; k++)
        out->x[k] =
            fmin(fmax((double)nd_htp_follow_line16(&line, (int64_t)input->values->x[k]), 0), UINT16_MAX);
    return status;
}

static bool reads_other_encoding(const struct nd_linear_call *call)
{
    for (size_t i = 0; i < call->n_inputs; i++)
        if (call->inputs[i].quant != NULL && call->inputs[i].quant->n == 1 &&
            (call->inputs[i].quant->scale[0] != call->out_quant->scale[0] ||
             call->inputs[i].quant->zero_point[0] != call->out_quant->zero_point[0]))
            return true;
    return false;
}

/* How the input of an operator is brought to the encoding of the output: in blocks parts of it, and the
 * greatest or least along the device's axis before its last, as uint8 in the layout of a Conv is.
 * docs/science/htp-arithmetic.md#moves16. */
static enum nd_htp_layout layout_for(const struct nd_htp_job *job)
{
    const char *op_type = job->call->node->op_type;
    enum nd_htp_layout layout = nd_htp_layout_of(job->memory, job->layer, 0);
    int64_t axis, rank = job->call->inputs[0].values->shape.rank;
    if (strcmp(op_type, "Concat") == 0)
        return ND_HTP_FLAT; /* or the Concat is none by itself */
    if (strncmp(op_type, "Reduce", strlen("Reduce")) != 0 || layout == ND_HTP_UNKNOWN)
        return layout;
    if (!nd_htp_reduces_one_axis(job->layer, &axis))
        return ND_HTP_FLAT;
    int64_t last = nd_htp_is_laid_out(job, 0) ? rank : rank - 1; /* of a Conv the channels are */
    return (axis < 0 ? axis + rank : axis) == last - 1 ? ND_HTP_BLOCKED : ND_HTP_FLAT;
}

static enum nd_status bring(const struct nd_htp_job *job, size_t i, struct nd_array *out, bool *is_known,
                            struct nd_error *err)
{
    const struct nd_linear_input *input = &job->call->inputs[i];
    enum nd_htp_layout layout = layout_for(job);
    struct nd_htp_rescaling r;
    if (layout == ND_HTP_FLAT)
        return follow_line16(job, i, out, is_known, err);
    *is_known = layout == ND_HTP_BLOCKED && is_word(input) &&
                nd_htp_rescaling_init(&r, ND_HTP_LAYOUT, (double)input->quant->scale[0],
                                      (double)job->call->out_quant->scale[0]);
    enum nd_status status = *is_known ? nd_array_copy(input->values, out, err) : ND_OK;
    if (*is_known && status == ND_OK)
        nd_htp_rescale_all(job, &r, (double)input->quant->zero_point[0], 1, out);
    return status;
}

/* Concat, Slice, Split, ReduceMax, ReduceMin: the quantised values are rescaled, then moved. With the scale
 * of the output: move_qvalues. */
enum nd_status nd_htp_move16(const struct nd_htp_job *job, struct nd_error *err)
{
    const struct nd_linear_call *call = job->call;
    if (nd_htp_plain_output(job) == NULL || call->n_inputs == 0 || !nd_htp_is_unbounded(job) ||
        !reads_other_encoding(call))
        return ND_OK;
    struct nd_array *rescaled = nd_calloc(call->n_inputs, sizeof *rescaled), moved = {0};
    const struct nd_array **inputs = nd_calloc(call->n_inputs, sizeof *inputs);
    bool is_known = rescaled != NULL && inputs != NULL;
    enum nd_status status = is_known ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; is_known && status == ND_OK && i < call->n_inputs; i++) {
        inputs[i] = call->inputs[i].values;
        if (call->inputs[i].quant != NULL || i == 0) {
            status = bring(job, i, &rescaled[i], &is_known, err);
            inputs[i] = &rescaled[i];
        }
    }
    if (is_known && status == ND_OK)
        status = nd_linear_run(call, call->node, inputs, call->n_inputs, &moved, err);
    for (size_t i = 0; rescaled != NULL && i < call->n_inputs; i++)
        nd_array_deinit(&rescaled[i]);
    ND_FREE_ALL(rescaled, inputs);
    if (status != ND_OK || !is_known) {
        nd_array_deinit(&moved);
        return status;
    }
    moved.dtype = ND_DTYPE_U16;
    *job->qvalues = moved;
    *job->is_covered = true;
    return ND_OK;
}

/* ---- Pad ---- */

/* Whether what Pad puts around is the number 0. */
static bool pads_with_nought(const struct nd_htp_job *job)
{
    char mode[16];
    const struct nd_linear_call *call = job->call;
    const struct nd_op_call op_call = {.node = call->node, .opset = call->opset};
    nd_op_text(&op_call, "mode", mode, sizeof mode);
    if (call->opset < 11 || call->n_inputs < 2 || !nd_linear_has(call, 1) || nd_linear_has(call, 3) ||
        (mode[0] != '\0' && strcmp(mode, "constant") != 0))
        return false;
    if (!nd_linear_has(call, 2))
        return true;
    const struct nd_linear_input *value = &call->inputs[2];
    double zero = value->quant != NULL && value->quant->n == 1 ? (double)value->quant->zero_point[0] : 0;
    return value->values->n == 1 && value->values->x[0] == zero;
}

/* The quantised values of input 0 in the encoding of the output, and what is put around them: the zero point.
 */
static enum nd_status pad_with(const struct nd_htp_job *job, const struct nd_array *qvalues,
                               struct nd_array *moved, struct nd_error *err)
{
    ND_CLEANUP(nd_array_deinit) struct nd_array zero = {0};
    const struct nd_shape number = {.rank = 0};
    ND_TRY(nd_array_make(&zero, job->layer->dtype, &number, err));
    zero.x[0] = (double)job->call->out_quant->zero_point[0];
    const struct nd_array *inputs[] = {qvalues, job->call->inputs[1].values, &zero};
    return nd_linear_run(job->call, job->call->node, inputs, 3, moved, err);
}

/* Whether Pad copies quantised values of a graph input: then they are not brought to the encoding of the
 * output, which is a defect (golden/found/pad.u8.onnx). */
static bool copies_input(const struct nd_htp_job *job)
{
    char mode[16];
    const struct nd_linear_call *call = job->call;
    const struct nd_op_call op_call = {.node = call->node, .opset = call->opset};
    nd_op_text(&op_call, "mode", mode, sizeof mode);
    return job->layer->origins[0] == ND_EXACT_FROM_INPUT && call->opset >= 11 && nd_linear_has(call, 1) &&
           !nd_linear_has(call, 3) && (strcmp(mode, "reflect") == 0 || strcmp(mode, "edge") == 0);
}

static enum nd_status copy_input(const struct nd_htp_job *job, struct nd_error *err)
{
    const struct nd_array *inputs[] = {job->call->inputs[0].values, job->call->inputs[1].values};
    enum nd_status status = nd_linear_run(job->call, job->call->node, inputs, 2, job->qvalues, err);
    job->qvalues->dtype = job->layer->dtype;
    *job->is_covered = status == ND_OK;
    return status;
}

static enum nd_status make_padded(const struct nd_htp_job *job, struct nd_error *err)
{
    struct nd_array qvalues = {0}, moved = {0};
    bool is_known = false, is_made = job->layer->origins[0] == ND_EXACT_FROM_LAYER;
    if (!nd_htp_all_are(job, 1, job->layer->dtype) || !nd_htp_is_unbounded(job) ||
        nd_quant_is_same(job->call->inputs[0].quant, job->call->out_quant))
        return ND_OK;
    if (copies_input(job))
        return copy_input(job, err);
    if (!pads_with_nought(job))
        return ND_OK;
    struct nd_htp_job part = *job;
    part.qvalues = &qvalues;
    part.is_covered = &is_known;
    enum nd_status status = ND_OK;
    if (!is_made && job->layer->dtype == ND_DTYPE_U16)
        status = follow_line16(&part, 0, &qvalues, &is_known, err);
    else
        status = nd_htp_rescale_input(&part, is_made ? ND_HTP_LAYOUT : ND_HTP_FIXED, err);
    if (status == ND_OK && is_known)
        status = pad_with(job, &qvalues, &moved, err);
    nd_array_deinit(&qvalues);
    if (status != ND_OK || !is_known) {
        nd_array_deinit(&moved);
        return status;
    }
    moved.dtype = job->layer->dtype;
    *job->qvalues = moved;
    *job->is_covered = true;
    return ND_OK;
}

/* ---- Resize ---- */

enum { RANK = 4, FIRST_RESIZED = 2 };

static bool is_attribute(const struct nd_op_call *call, const char *name, const char *value)
{
    char text[32];
    nd_op_text(call, name, text, sizeof text);
    return strcmp(text, value) == 0;
}

static bool is_half_pixel(const struct nd_op_call *call)
{
    return is_attribute(call, "coordinate_transformation_mode", "") ||
           is_attribute(call, "coordinate_transformation_mode", "half_pixel") ||
           is_attribute(call, "coordinate_transformation_mode", "pytorch_half_pixel");
}

/* Of an opset that has coordinates, and without what was not looked at. */
static bool is_linear(const struct nd_htp_job *job, const struct nd_op_call *call)
{
    enum { MAX_INPUTS = 4, MIN_OPSET = 11 };
    return is_attribute(call, "mode", "linear") && job->call->opset >= MIN_OPSET && job->call->n_inputs > 0 &&
           job->call->n_inputs <= MAX_INPUTS && nd_op_i(call, "antialias", 0) == 0 &&
           nd_op_i(call, "exclude_outside", 0) == 0;
}

/* Of uint8 powers of two, so that the mean has few bits: the greatest that was seen to follow; 8 is not always
 * right (measured, see the docs). */
static const double min_quotient = 0.25, greatest_quotient = 4;

static bool is_known_quotient(enum nd_dtype dtype, double quotient)
{
    int exponent;
    return dtype == ND_DTYPE_U16 ||
           (frexp(quotient, &exponent) == 0.5 && quotient >= min_quotient && quotient <= greatest_quotient);
}

/* Whether the sizes are such as there is evidence of, and scales, where the model has these, are their
 * quotients. */
static bool are_known_sizes(const struct nd_htp_job *job, const struct nd_shape *out)
{
    enum { SCALES = 2 };
    const struct nd_shape *in = &job->call->inputs[0].values->shape;
    const struct nd_array *scales = nd_linear_has(job->call, SCALES) ? job->call->inputs[SCALES].values : NULL;
    if (in->rank != RANK || out->rank != RANK || (scales != NULL && scales->n != 0 && scales->n != RANK))
        return false;
    for (size_t axis = 0; axis < RANK; axis++) {
        double quotient = (double)out->dims[axis] / (double)in->dims[axis];
        bool is_known = axis < FIRST_RESIZED ? quotient == 1 : is_known_quotient(job->layer->dtype, quotient);
        if (!is_known || (axis >= FIRST_RESIZED && out->dims[axis] == 1) ||
            (scales != NULL && scales->n == RANK && scales->x[axis] != quotient))
            return false;
    }
    return true;
}

/* Where the elements of the output lie. */
enum coordinates { MIDDLES, ASYMMETRIC, ALIGNED };

static double step_of(enum coordinates coordinates, int64_t n, int64_t n_out)
{
    return coordinates == ALIGNED ? (double)(n - 1) / (double)(n_out - 1) : (double)n / (double)n_out;
}

/* The two elements of n between which element i of n_out lies, and how near it is to the second. */
struct between {
    size_t first, second;
    double weight;
};

static struct between find_between(enum coordinates coordinates, size_t i, int64_t n, int64_t n_out)
{
    enum { WEIGHT_BITS = 15 }; /* read out of a row whose elements are all 0 but one, which is 65535 */
    double start = coordinates == MIDDLES ? 0.5 : 0;
    double at = ((double)i + start) * step_of(coordinates, n, n_out) - start;
    at = fmin(fmax(at, 0), (double)n - 1);
    struct between b = {.first = (size_t)at};
    b.weight = ldexp(rint(ldexp(at - floor(at), WEIGHT_BITS)), -WEIGHT_BITS);
    b.second = b.first + (b.weight > 0 ? 1 : 0);
    return b;
}

struct interpolation {
    enum coordinates coordinates;
    bool is_twice; /* rounded within the rows, and between them */
};

/* uint16 by steps of a half is rounded twice. */
static struct interpolation interpolation_of(const struct nd_htp_job *job, enum coordinates coordinates,
                                             const struct nd_shape *out)
{
    const struct nd_shape *in = &job->call->inputs[0].values->shape;
    bool is_halved = job->layer->dtype == ND_DTYPE_U16 && coordinates != MIDDLES;
    for (size_t axis = FIRST_RESIZED; axis < RANK; axis++)
        is_halved = is_halved && step_of(coordinates, in->dims[axis], out->dims[axis]) == 0.5;
    return (struct interpolation){coordinates, is_halved};
}

/* Element i of the output, not rounded for the last time. */
static double interpolated(const struct interpolation *of, const struct nd_array *x, const struct nd_shape *out,
                           size_t i)
{
    const int64_t *in = &x->shape.dims[FIRST_RESIZED], *to = &out->dims[FIRST_RESIZED];
    size_t n_columns = (size_t)to[1], n_rows = (size_t)to[0];
    struct between column = find_between(of->coordinates, i % n_columns, in[1], to[1]),
                   row = find_between(of->coordinates, i / n_columns % n_rows, in[0], to[0]);
    const double *plane = x->x + i / (n_columns * n_rows) * (size_t)(in[0] * in[1]);
    double rows[2];
    for (int k = 0; k < 2; k++) {
        const double *own = plane + (k == 0 ? row.first : row.second) * (size_t)in[1];
        rows[k] = own[column.first] + column.weight * (own[column.second] - own[column.first]);
        rows[k] = of->is_twice ? floor(rows[k] + 0.5) : rows[k];
    }
    return rows[0] + row.weight * (rows[1] - rows[0]);
}

static enum nd_status interpolate(const struct nd_htp_job *job, struct nd_error *err)
{
    enum { MAX_INPUTS = 4 };
    /* What is added before the last cut: of 504 800 codes 41 go up, all from 4.5450e-5
     * below it on and none from 4.5869e-5 on (gen3, QAIRT 2.51.0). */
    static const double half = 0.5 + 3 * 0x1p-16;
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    const struct nd_array *inputs[MAX_INPUTS] = {job->call->inputs[0].values}, *x = inputs[0];
    bool is_aligned = is_attribute(&op_call, "coordinate_transformation_mode", "align_corners"),
         is_asymmetric = is_attribute(&op_call, "coordinate_transformation_mode", "asymmetric");
    if (!is_asymmetric && !is_half_pixel(&op_call) && !(is_aligned && job->layer->dtype == ND_DTYPE_U16))
        return ND_OK;
    for (size_t i = 1; i < job->call->n_inputs; i++)
        inputs[i] = nd_linear_has(job->call, i) ? job->call->inputs[i].values : NULL;
    ND_CLEANUP(nd_array_deinit) struct nd_array made = {0};
    ND_TRY(nd_linear_run(job->call, job->call->node, inputs, job->call->n_inputs, &made, err));
    if (!are_known_sizes(job, &made.shape))
        return ND_OK;
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    struct interpolation of = interpolation_of(job,
                                               is_aligned      ? ALIGNED
                                               : is_asymmetric ? ASYMMETRIC
                                                               : MIDDLES,
                                               &made.shape);
    for (size_t i = 0; i < made.n; i++)
        made.x[i] = nd_within(floor(interpolated(&of, x, &made.shape, i) + half), bounds.low, bounds.high);
    made.dtype = job->layer->dtype;
    *job->qvalues = made;
    made = (struct nd_array){0};
    *job->is_covered = true;
    return ND_OK;
}

bool nd_htp_is_half_resize(const struct nd_htp_job *job)
{
    enum { SCALES = 2 };
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    const struct nd_array *scales = nd_linear_has(job->call, SCALES) ? job->call->inputs[SCALES].values : NULL;
    const struct nd_shape *in = &job->call->inputs[0].values->shape;
    return is_linear(job, &op_call) && is_half_pixel(&op_call) && in->rank == RANK &&
           job->call->inputs[0].values->n > 0 && scales != NULL && scales->n == RANK && scales->x[0] == 1 &&
           scales->x[1] == 1 && scales->x[2] == 2 && scales->x[3] == 2;
}

/* In one row. The ends are the elements themselves. */
static float between_columns(const double *row, const struct between *b)
{
    float first = (float)row[b->first];
    if (b->first == b->second)
        return first;
    return (float)nd_htp_as_half((double)nd_qhalf_between(first, (float)row[b->second], (float)b->weight),
                                 ND_ROUND_HALF_EVEN);
}

bool nd_htp_half_resize(const struct nd_array *halves, struct nd_array *made)
{
    if (made->n / 4 != halves->n || made->n % 4 != 0)
        return false;
    int64_t rows = halves->shape.dims[RANK - 2], columns = halves->shape.dims[RANK - 1];
    size_t n_rows = (size_t)rows, n_columns = (size_t)columns;
    for (size_t i = 0; i < made->n; i++) {
        struct between column = find_between(MIDDLES, i % (2 * n_columns), columns, 2 * columns),
                       row = find_between(MIDDLES, i / (2 * n_columns) % (2 * n_rows), rows, 2 * rows);
        const double *plane = halves->x + i / (4 * n_rows * n_columns) * n_rows * n_columns;
        float above = between_columns(plane + row.first * n_columns, &column),
              below = between_columns(plane + row.second * n_columns, &column);
        made->x[i] =
            (double)(row.first == row.second ? above : nd_qhalf_between(above, below, (float)row.weight));
    }
    return true;
}

/* The quantised values of the input as float16 numbers. False: scales of which it is not known. */
static bool read_halves(const struct nd_htp_job *job, struct nd_array *qvalues)
{
    const struct nd_quant *x = job->call->inputs[0].quant;
    struct nd_htp_rescaling method;
    bool is_byte = job->layer->dtype == ND_DTYPE_U8;
    bool is_known = is_byte ? nd_htp_rescaling_init(&method, ND_HTP_HALVES, (double)x->scale[0],
                                                    (double)job->call->out_quant->scale[0])
                            : are_known_halves(x);
    for (size_t i = 0; is_known && i < qvalues->n; i++)
        qvalues->x[i] = is_byte ? nd_htp_half_of_byte(&method, qvalues->x[i] - (double)x->zero_point[0])
                                : half_of_word(x, qvalues->x[i], job->arithmetic->is_v81);
    return is_known;
}

/* From one encoding to another, by way of float16. */
static enum nd_status interpolate_halves(const struct nd_htp_job *job, struct nd_error *err)
{
    struct nd_array halves = {0}, made = {0};
    struct nd_shape shape = job->call->inputs[0].values->shape;
    for (int axis = FIRST_RESIZED; axis < RANK; axis++)
        shape.dims[axis] *= 2;
    enum nd_status status = nd_array_copy(job->call->inputs[0].values, &halves, err);
    bool is_known = status == ND_OK && read_halves(job, &halves);
    if (is_known)
        status = nd_array_make(&made, job->layer->dtype, &shape, err);
    if (is_known && status == ND_OK) {
        struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
        (void)nd_htp_half_resize(&halves, &made); /* four times as many */
        for (size_t i = 0; i < made.n; i++)
            made.x[i] = nd_within(nd_htp_qvalue_of_half(job, made.x[i], false), bounds.low, bounds.high);
        *job->qvalues = made;
        *job->is_covered = true;
    }
    nd_array_deinit(&halves);
    return status;
}

static enum nd_status make_resize(const struct nd_htp_job *job, struct nd_error *err)
{
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    if (is_attribute(&op_call, "mode", "") || is_attribute(&op_call, "mode", "nearest"))
        return move_qvalues(job, err);
    if (!is_linear(job, &op_call) || !nd_htp_all_are(job, 1, job->layer->dtype))
        return ND_OK;
    if (nd_quant_is_same(job->call->inputs[0].quant, job->call->out_quant))
        return interpolate(job, err);
    bool is_known = nd_htp_is_half_resize(job) && nd_htp_is_unbounded(job) && !nd_htp_is_share(job, 0);
    return is_known ? interpolate_halves(job, err) : ND_OK;
}

bool nd_htp_is_small_plane(const struct nd_exact_layer *layer)
{
    enum { N_AXES = 4, LEAST = 2, MOST = 7 };
    const struct nd_array *x = layer->call->inputs[0].values;
    bool is = x != NULL && x->shape.rank == N_AXES;
    for (int axis = 2; axis < N_AXES && is; axis++)
        is = x->shape.dims[axis] >= LEAST && x->shape.dims[axis] <= MOST;
    return is;
}

/* uint16: of small planes as of uint8 (docs/science/htp-arithmetic.md#rescaling, R2). */
static enum nd_status make_greatest16(const struct nd_htp_job *job, struct nd_error *err)
{
    ND_CLEANUP(nd_array_deinit) struct nd_array greatest = {0};
    if (!nd_htp_has_words(job) || !nd_htp_is_small_plane(job->layer))
        return ND_OK;
    const struct nd_array *inputs[] = {job->call->inputs[0].values};
    ND_TRY(nd_linear_run(job->call, job->call->node, inputs, 1, &greatest, err));
    struct nd_htp_replaced moved;
    nd_htp_replace(job, &moved);
    moved.inputs[0].values = &greatest;
    return nd_htp_rescale_input(&moved.job, ND_HTP_LAYOUT, err);
}

const struct nd_htp_operator nd_htp_moves[] = {
    {"GlobalMaxPool", make_greatest16, true},
    {"Concat Slice Split ReduceMax ReduceMin", nd_htp_move16, true},
    {"Concat DepthToSpace Expand Flatten Gather GlobalMaxPool Identity MaxPool ReduceMax ReduceMin "
     "Reshape Slice SpaceToDepth Split Squeeze Tile Transpose Unsqueeze",
     move_qvalues, false},
    {"Pad", make_padded, false},
    {"Resize", make_resize, false},
    {.op_types = NULL},
};
