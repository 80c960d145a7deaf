/* Several operators with no quantiser between them: the HTP makes float16 of the quantised values, takes one
 * operator after the other in float16, and quantises what comes of the last.
 * docs/science/htp-arithmetic.md#chains. */
#include <math.h>
#include <string.h>

#include "arithmetic/arithmetics/requantise.h"
#include "arithmetic/htp/htp_internal.h"
#include "core/text/strbuf.h"

static const char norm[] = "ReduceL2"; /* a chain by itself */

static double round_away(double v)
{
    return nd_htp_as_half(v, ND_ROUND_HALF_AWAY);
}

/* ---- operators ---- */

/* Exact, rounded half away from zero, unless nd_half_table has them. Of Pow the square; a Div is the product
 * with the reciprocal, which is a float16; a ReduceL2 the root of the sum of squares, each a float16. */
static const char operators[] =
    "Abs Add Cast Clip Concat Cos DepthToSpace Div Exp Flatten Gather Gemm Identity Log Max Min Mul "
    "Neg Pow Reciprocal ReduceL2 ReduceMax ReduceMean ReduceMin ReduceSum Relu Reshape Sigmoid Sin "
    "Slice Softplus Split Sqrt Squeeze Sub Tanh Transpose Unsqueeze";
/* What these make, and what is made of that, does not lie flat, or may not. */
static const char in_blocks[] = "Div Gemm Mul Pow Reciprocal ReduceL2";

/* The links at work: what each made. */
struct chain {
    const struct nd_htp_job *job;
    struct nd_array made[ND_EXACT_MAX_LINKS];
    bool is_flat[ND_EXACT_MAX_LINKS], is_laid_out[ND_EXACT_MAX_LINKS] /* as a Conv does it */;
};

static bool is_vector(const struct nd_exact_link *link, size_t i)
{
    return link->from[i] == SIZE_MAX && link->is_constant[i] && link->inputs[i].values != NULL &&
           link->inputs[i].values->n > 1;
}

/* A product with numbers for each channel and the sum with others are one operation to the device, of which it
 * is not known. */
static bool is_affine(const struct chain *chain, const struct nd_exact_link *link)
{
    for (size_t i = 0; i < 2 && strcmp(link->node->op_type, "Add") == 0; i++) {
        const struct nd_exact_link *before =
            link->from[i] != SIZE_MAX ? &chain->job->layer->links[link->from[i]] : NULL;
        if (before != NULL && is_vector(link, 1 - i) && strcmp(before->node->op_type, "Mul") == 0 &&
            (is_vector(before, 0) || is_vector(before, 1)))
            return true;
    }
    return false;
}

/* Input i of a link, which no link makes, as float16; integers (axes, shapes) as they are. False: not known. */
static bool read_halves(const struct nd_exact_link *link, size_t i, struct nd_array *halves)
{
    const struct nd_linear_input *input = &link->inputs[i];
    bool is_constant = link->is_constant[i];
    if (input->quant != NULL && input->quant->n != 1)
        return false;
    for (size_t k = 0; k < halves->n; k++) {
        if (input->quant != NULL)
            halves->x[k] = nd_htp_as_half(nd_htp_half_of_qvalue(input, k), ND_ROUND_HALF_EVEN);
        else if (nd_dtype_is_float(halves->dtype))
            halves->x[k] = nd_htp_as_half(halves->x[k], is_constant ? ND_ROUND_HALF_EVEN : ND_ROUND_HALF_AWAY);
    }
    halves->dtype = input->quant != NULL ? ND_DTYPE_F32 : halves->dtype;
    return true;
}

/* What the device divides by, as what it multiplies by: of one constant the nearest. False: not known. */
static bool invert(const struct nd_exact_link *link, struct nd_array *divisor)
{
    if (link->from[1] != SIZE_MAX || !link->is_constant[1] || divisor->n != 1)
        return nd_half_look_up(nd_half_table("Reciprocal"), divisor);
    divisor->x[0] = round_away(1 / divisor->x[0]);
    return true;
}

static double round_even(double v)
{
    return nd_htp_as_half(v, ND_ROUND_HALF_EVEN);
}

/* Whether the channels of what link k makes are last on the device. */
static bool is_laid_out(const struct chain *chain, size_t k)
{
    const struct nd_exact_link *link = &chain->job->layer->links[k];
    bool is = false;
    for (size_t i = 0; i < link->n_inputs; i++)
        is = is || (link->from[i] != SIZE_MAX ? chain->is_laid_out[link->from[i]]
                                              : nd_layer_is_laid_out(chain->job->memory, link->tensors[i]));
    return is && !nd_htp_keeps_memory(link->node->op_type);
}

/* Which axis of a tensor of link k is the last one on the device. */
static int last_axis(const struct chain *chain, size_t k, int rank)
{
    return chain->is_laid_out[k] && rank > 2 ? 1 : rank - 1;
}

/* How link k rounds: v73 the sums (not the differences) of two tensors of one shape half to even where the
 * device's last axis is not short, all else half away from zero (docs/science/htp-arithmetic.md#chains). */
static double (*rounding_of(const struct chain *chain, size_t k, const struct nd_array *own))(double v)
{
    enum { SHORTEST = 16 };
    const struct nd_shape *shape = &own[0].shape;
    const char *op_type = chain->job->layer->links[k].node->op_type;
    bool is_sum = strcmp(op_type, "Add") == 0;
    if (!is_sum || chain->job->arithmetic->arch != ND_HTP_V73 || own[0].n != own[1].n || shape->rank < 1)
        return round_away;
    return shape->dims[last_axis(chain, k, shape->rank)] >= SHORTEST ? round_even : round_away;
}

/* What the operator made as the float16 that the device makes: it has no infinity. */
static void finish(double (*rounding)(double v), struct nd_array *made)
{
    static const double greatest = 0x1.ffcp16;
    for (size_t k = 0; k < made->n; k++)
        made->x[k] = nd_within(rounding(made->x[k]), -greatest, greatest);
}

/* Of tensors that are read one that lies flat is enough. */
static bool lies_flat(const struct chain *chain, const struct nd_exact_link *link)
{
    bool is_flat = false;
    for (size_t i = 0; i < link->n_inputs; i++)
        is_flat = is_flat || (link->from[i] != SIZE_MAX ? chain->is_flat[link->from[i]]
                              : link->is_input[i]       ? true
                                                        : !link->is_constant[i] &&
                                                        nd_htp_lies_flat(chain->job->memory, link->tensors[i]));
    return is_flat;
}

/* ---- sums of rows ---- */

enum { LANES = 32 };

/* As it is after it was moved to other lanes: a float32. */
static struct nd_qfloat moved(struct nd_qfloat a)
{
    return nd_qfloat_read((float)nd_qfloat_value(a));
}

/* The sum of n numbers that lie `step` apart, or their mean. Lanes are summed first, then each with its
 * neighbour. What lies flat has twice as many lanes, and is divided before they are joined. */
static double sum_of_row(const double *x, size_t n, size_t step, bool is_mean, bool is_flat)
{
    struct nd_qfloat lanes[2 * LANES];
    size_t width = is_flat ? 2 * LANES : LANES;
    float share = 1 / (float)n;
    for (size_t i = 0; i < width; i++)
        lanes[i] = i < n ? nd_qfloat_from((float)x[i * step]) : nd_qfloat_read(0);
    for (size_t i = width; i < (n + width - 1) / width * width; i++)
        lanes[i % width] =
            nd_qfloat_sum(lanes[i % width], i < n ? nd_qfloat_from((float)x[i * step]) : nd_qfloat_read(0));
    for (size_t i = 0; is_mean && is_flat && i < width; i++)
        lanes[i] = nd_qfloat_product(moved(lanes[i]), nd_qfloat_read(share));
    for (; width > 1; width /= 2)
        for (size_t i = 0; i < width / 2; i++)
            lanes[i] = moved(nd_qfloat_sum(lanes[2 * i], lanes[2 * i + 1]));
    if (is_mean && !is_flat)
        lanes[0] = nd_qfloat_product(lanes[0], nd_qfloat_from(share));
    return round_even(nd_qfloat_value(lanes[0]));
}

/* Whether link k sums along the last axis of the device. Flat means of several whole vectors are made in
 * another way. */
static bool sums_rows(const struct chain *chain, size_t k, const struct nd_array *own, int *axis)
{
    const struct nd_exact_link *link = &chain->job->layer->links[k];
    const char *op_type = link->node->op_type;
    bool is_mean = strcmp(op_type, "ReduceMean") == 0;
    int rank = own[0].shape.rank;
    int64_t given;
    if ((!is_mean && strcmp(op_type, "ReduceSum") != 0) ||
        !nd_htp_has_one_axis(link->node, chain->job->call->opset, own[1].n > 0 ? &own[1] : NULL, &given))
        return false;
    *axis = (int)given + (given < 0 ? rank : 0);
    int64_t n = *axis == last_axis(chain, k, rank) ? own[0].shape.dims[*axis] : 0;
    return n > 0 && !(is_mean && link->is_input[0] && n > 2 * LANES && n % (2 * LANES) == 0);
}

/* Of a mean only inputs of the graph are taken as they lie flat. */
static void sum_rows(const struct nd_exact_link *link, const struct nd_array *from, int axis,
                     struct nd_array *made)
{
    bool is_mean = strcmp(link->node->op_type, "ReduceMean") == 0, is_flat = !is_mean || link->is_input[0];
    size_t n = (size_t)from->shape.dims[axis], step = nd_dims_product(&from->shape, axis + 1, from->shape.rank);
    for (size_t i = 0; i < made->n; i++)
        made->x[i] = sum_of_row(from->x + i / step * step * n + i % step, n, step, is_mean, is_flat);
}

/* ---- links ---- */

/* Whether a ReduceL2 makes one run of what it makes: rows are short, or an axis behind others is dropped, so
 * that all is moved. */
static bool makes_a_run(const struct nd_exact_layer *layer, const struct nd_shape *shape)
{
    enum { SHORT = 8 };
    int64_t axis;
    bool is_short = shape->rank > 0 && shape->dims[shape->rank - 1] <= SHORT;
    if (is_short || !nd_htp_reduces_one_axis(layer, &axis) ||
        nd_onnx_attribute_i(layer->call->node, "keepdims", 1) != 0)
        return is_short;
    return nd_dims_product(shape, 0, (int)axis + (axis < 0 ? shape->rank : 0)) > 1;
}

/* What the device makes in the place of the operator, of what it reads instead. False: not known, as of a
 * power by another number than 2. */
static bool replace(const struct nd_exact_link *link, struct nd_array *own, Onnx__NodeProto *node)
{
    static char product[] = "Mul", sum[] = "ReduceSum";
    bool is_norm = strcmp(node->op_type, norm) == 0;
    for (size_t i = 0; is_norm && i < own[0].n; i++)
        own[0].x[i] = round_away(own[0].x[i] * own[0].x[i]);
    bool is_division = strcmp(node->op_type, "Div") == 0;
    if (is_division && !invert(link, &own[1]))
        return false;
    node->op_type = is_norm ? sum : is_division ? product : node->op_type;
    return strcmp(node->op_type, "Pow") != 0 || (own[1].n == 1 && own[1].x[0] == 2);
}

/* One link. *is_known false: its operator, or its values, are none of which it is known. */
static enum nd_status run_link(struct chain *chain, size_t k, bool *is_known, struct nd_error *err)
{
    const struct nd_exact_link *link = &chain->job->layer->links[k];
    struct nd_array own[ND_EXACT_LINK_INPUTS] = {0};
    const struct nd_array *inputs[ND_EXACT_LINK_INPUTS] = {0};
    enum nd_status status = ND_OK;
    const char *op_type = nd_onnx_text(link->node->op_type);
    *is_known = nd_has_word(operators, op_type) && nd_onnx_domain(link->node->domain)[0] == '\0' &&
                !is_affine(chain, link);
    for (size_t i = 0; i < link->n_inputs && *is_known && status == ND_OK; i++) {
        const struct nd_array *read =
            link->from[i] != SIZE_MAX ? &chain->made[link->from[i]] : link->inputs[i].values;
        if (read == NULL)
            continue;
        const struct nd_array *halves = link->from[i] == SIZE_MAX && link->inputs[i].quant != NULL
                                            ? nd_htp_recall_halves(chain->job, link->tensors[i])
                                            : NULL;
        status = nd_array_copy(halves != NULL ? halves : read, &own[i], err);
        *is_known =
            status == ND_OK && (halves != NULL || link->from[i] != SIZE_MAX || read_halves(link, i, &own[i]));
        inputs[i] = &own[i];
    }
    Onnx__NodeProto node = *link->node;
    bool is_norm = strcmp(node.op_type, norm) == 0;
    *is_known = *is_known && replace(link, own, &node);
    chain->is_laid_out[k] = is_laid_out(chain, k);
    const uint16_t *table = *is_known ? nd_half_table(is_norm ? "Sqrt" : node.op_type) : NULL;
    bool is_function = table != NULL && !is_norm, is_flat = lies_flat(chain, link);
    if (is_function)
        status = nd_array_copy(&own[0], &chain->made[k], err);
    else if (*is_known)
        status = nd_linear_run(chain->job->call, &node, inputs, link->n_inputs, &chain->made[k], err);
    bool is_moved = is_norm && *is_known && makes_a_run(chain->job->layer, &own[0].shape);
    chain->is_flat[k] = *is_known && (is_moved || !nd_has_word(in_blocks, op_type)) && is_flat;
    *is_known = *is_known && status == ND_OK;
    int axis;
    if (*is_known && !is_norm && sums_rows(chain, k, own, &axis))
        sum_rows(link, &own[0], axis, &chain->made[k]);
    if (*is_known && !is_function)
        finish(rounding_of(chain, k, own), &chain->made[k]);
    *is_known = *is_known && (table == NULL || nd_half_look_up(table, &chain->made[k]));
    for (size_t i = 0; i < ND_EXACT_LINK_INPUTS; i++)
        nd_array_deinit(&own[i]);
    return status;
}

/* What only names axes, of what the link before it made: ONNX Runtime moves the quantiser before it. */
static bool names_axes(const struct nd_exact_link *links, size_t k)
{
    const char *op_type = nd_onnx_text(links[k].node->op_type);
    return links[k].from[0] == k - 1 && nd_has_word("Reshape Squeeze Unsqueeze", op_type);
}

const struct nd_exact_layer *nd_htp_before_moves(const struct nd_exact_layer *layer, struct nd_htp_moved *room)
{
    /* Whose encoding the provider does not replace, and which are made by themselves. */
    static const char alone[] = "AveragePool Conv Gemm GlobalAveragePool MatMul ReduceMean ReduceSum";
    bool is_moved = layer->n_links > 1 && layer->call->low <= -HUGE_VAL && layer->call->high >= HUGE_VAL &&
                    nd_has_word(alone, nd_onnx_text(layer->links[0].node->op_type));
    for (size_t k = 1; k < layer->n_links && is_moved; k++)
        is_moved = names_axes(layer->links, k);
    if (!is_moved)
        return layer;
    const struct nd_exact_link *first = layer->links;
    *room = (struct nd_htp_moved){.layer = *layer, .call = *layer->call};
    room->call.node = first->node;
    room->call.n_inputs = first->n_inputs;
    room->call.inputs = first->inputs;
    room->call.shared = NULL;
    for (size_t i = 0; i < ND_EXACT_LINK_INPUTS; i++) {
        bool is_constant = i >= first->n_inputs || first->is_constant[i];
        room->origins[i] = is_constant          ? ND_EXACT_FROM_CONSTANT
                           : first->is_input[i] ? ND_EXACT_FROM_INPUT
                                                : ND_EXACT_FROM_LAYER;
        room->tensors[i] = i < first->n_inputs ? first->tensors[i] : SIZE_MAX;
    }
    room->layer.call = &room->call;
    room->layer.origins = room->origins;
    room->layer.input_tensors = room->tensors;
    room->layer.n_links = 1;
    return &room->layer;
}

enum nd_status nd_htp_name_axes(const struct nd_exact_layer *layer, struct nd_array *qvalues,
                                struct nd_error *err)
{
    enum nd_dtype dtype = qvalues->dtype;
    for (size_t k = 1; k < layer->n_links; k++) {
        struct nd_array made = {0};
        const struct nd_exact_link *link = &layer->links[k];
        const struct nd_array *inputs[] = {qvalues, link->n_inputs > 1 ? link->inputs[1].values : NULL};
        ND_TRY(nd_linear_run(layer->call, link->node, inputs, link->n_inputs, &made, err));
        nd_array_deinit(qvalues);
        *qvalues = made;
        qvalues->dtype = dtype;
    }
    return ND_OK;
}

/* Of more axes the device makes another float16 of quantised values; a Transpose of these may run on the
 * processor (docs/science/htp-arithmetic.md#chains). */
static bool is_other_float(const struct nd_exact_link *link, const struct nd_array *made)
{
    enum { MOST_AXES = 4 };
    return made->shape.rank > MOST_AXES ||
           (strcmp(link->node->op_type, "Transpose") == 0 && link->inputs[0].quant != NULL);
}

enum nd_status nd_htp_floats(const struct nd_htp_job *job, struct nd_error *err)
{
    struct chain chain = {.job = job};
    enum nd_status status = ND_OK;
    if (job->layer->n_links == 1)
        status = run_link(&chain, 0, job->is_covered, err);
    if (status == ND_OK && *job->is_covered)
        *job->is_covered = !is_other_float(&job->layer->links[0], &chain.made[0]);
    if (status == ND_OK && *job->is_covered) {
        *job->qvalues = chain.made[0];
        job->qvalues->dtype = ND_DTYPE_F32;
    } else {
        nd_array_deinit(&chain.made[0]);
    }
    return status;
}

/* Floats that another operator made, as float16. */
static bool reads_made_floats(const struct nd_exact_layer *layer)
{
    bool reads = false;
    for (size_t i = 0; layer->n_links == 1 && i < layer->links[0].n_inputs; i++) {
        const struct nd_exact_link *link = &layer->links[0];
        reads = reads || (link->tensors[i] != SIZE_MAX && !link->is_constant[i] && !link->is_input[i] &&
                          link->inputs[i].quant == NULL && link->inputs[i].values != NULL &&
                          nd_dtype_is_float(link->inputs[i].values->dtype));
    }
    return reads;
}

/* Whether the last link, which reads what has the shape of input 0 of the first, sums rows. */
static bool ends_in_rows(const struct nd_exact_layer *layer, const struct nd_layer_memory *memory)
{
    const struct nd_htp_job job = {
        .layer = layer, .call = layer->call, .memory = (struct nd_layer_memory *)memory /* only read */};
    struct chain chain = {.job = &job};
    struct nd_array own[ND_EXACT_LINK_INPUTS] = {0};
    size_t last = layer->n_links - 1;
    int axis;
    for (size_t k = 0; k <= last; k++)
        chain.is_laid_out[k] = is_laid_out(&chain, k);
    for (size_t i = 0; i < layer->links[last].n_inputs; i++) {
        const struct nd_array *values = layer->links[i == 0 ? 0 : last].inputs[i].values;
        own[i] = values != NULL ? *values : own[i];
    }
    return sums_rows(&chain, last, own, &axis);
}

bool nd_htp_doubts_floats(const struct nd_exact_layer *layer, const struct nd_layer_memory *memory)
{
    return nd_has_word("Gemm ReduceMean ReduceSum", nd_htp_op_type(layer)) && layer->n_links == 1 &&
           !ends_in_rows(layer, memory);
}

bool nd_layer_is_sure_chain(const struct nd_exact_layer *layer, const struct nd_layer_memory *memory)
{
    if (layer->n_links != 2)
        return false;
    const char *first = nd_onnx_text(layer->links[0].node->op_type),
               *last = nd_onnx_text(layer->links[1].node->op_type);
    return (strcmp(first, "Sqrt") == 0 && strcmp(last, "Div") == 0) ||
           (strcmp(first, "Pow") == 0 && strcmp(last, "ReduceMean") == 0 && ends_in_rows(layer, memory));
}

bool nd_htp_is_chain(const struct nd_exact_layer *layer)
{
    static const char *const mixing[] = {"Add", "Div", "Mul", "Sub"};
    bool is_one = false, is_mixed = false;
    for (size_t i = 0; layer->n_links == 1 && i < sizeof mixing / sizeof *mixing; i++)
        is_one = is_one || strcmp(nd_htp_op_type(layer), mixing[i]) == 0;
    for (size_t i = 0; is_one && i < layer->call->n_inputs; i++) {
        const struct nd_linear_input *input = &layer->call->inputs[i];
        is_one = input->quant != NULL && input->values != NULL;
        is_mixed = is_mixed ||
                   (is_one && nd_dtype_size_bytes(input->values->dtype) != nd_dtype_size_bytes(layer->dtype));
    }
    return layer->n_links > 1 || (is_one && is_mixed) || reads_made_floats(layer) ||
           strcmp(nd_htp_op_type(layer), norm) == 0;
}

enum nd_status nd_htp_chain(const struct nd_htp_job *job, struct nd_error *err)
{
    struct chain chain = {.job = job};
    size_t last = job->layer->n_links - 1;
    bool is_known = nd_htp_plain_output(job) != NULL;
    enum nd_status status = ND_OK;
    for (size_t k = 0; k <= last && is_known && status == ND_OK; k++)
        status = run_link(&chain, k, &is_known, err);
    size_t n_rest = job->layer->dtype == ND_DTYPE_U8 ? chain.made[last].n % ND_HTP_VECTOR_BYTES : 0;
    if (!chain.is_flat[last])
        n_rest = 0;
    struct nd_array *made = &chain.made[last];
    for (size_t i = 0; i < made->n && is_known; i++)
        made->x[i] = fmin(fmax(made->x[i], job->call->low), job->call->high);
    if (is_known && status == ND_OK && (last > 0 || reads_made_floats(job->layer)))
        status = nd_htp_remember_halves(job, made, err);
    if (is_known && status == ND_OK) {
        struct nd_htp_bounds bounds = nd_htp_bounds_between(job, -HUGE_VAL, HUGE_VAL);
        for (size_t i = 0; i < made->n; i++)
            made->x[i] = nd_within(nd_htp_qvalue_of_half(job, made->x[i], i >= made->n - n_rest), bounds.low,
                                   bounds.high);
        made->dtype = job->layer->dtype;
        *job->qvalues = *made;
        *made = (struct nd_array){0};
        *job->is_covered = true;
    }
    for (size_t k = 0; k <= last; k++)
        nd_array_deinit(&chain.made[k]);
    return status;
}
