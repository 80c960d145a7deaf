/* Layers that a release of an SDK is known to compute wrongly, recognised by the operator, its attributes and
 * what it reads. known/defects.def lists them; docs/results/found.md has the evidence. */
#include "arithmetic/known/conditions.h"

#include <math.h>
#include <string.h>

#include "arithmetic/exact/linear/linear_values.h"
#include "core/tensors/scales.h"
#include "core/text/strbuf.h"

typedef bool layer_condition(const struct nd_model *model, const struct nd_exact_layer *layer);

/* ---- what conditions ask of a layer; model is nullable everywhere ---- */

/* Input i; NULL: there is none, or its values are not known. Borrowed. */
static const struct nd_array *input_of(const struct nd_exact_layer *layer, size_t i)
{
    return layer->call->n_inputs > i ? layer->call->inputs[i].values : NULL;
}

/* Whether the layer makes 16 bits. */
static bool is_wide(const struct nd_exact_layer *layer)
{
    return nd_dtype_is_integer(layer->dtype) && nd_dtype_size_bytes(layer->dtype) == 2;
}

/* Whether the attribute, or otherwise this, is the value. */
static bool has_text(const struct nd_exact_layer *layer, const char *name, const char *otherwise,
                     const char *value)
{
    const struct nd_op_call call = {.node = layer->call->node, .opset = layer->call->opset};
    char buf[32];
    const char *text = nd_op_text(&call, name, buf, sizeof buf);
    return strcmp(text[0] != '\0' ? text : otherwise, value) == 0;
}

/* Whether an operator of that type alone makes the first operand. */
static bool reads(const struct nd_model *model, const struct nd_exact_layer *layer, const char *op_type)
{
    size_t tensor = layer->input_tensors[0];
    const struct nd_model_layer *maker =
        model != NULL && tensor != SIZE_MAX ? nd_model_layer_of_tensor(model, tensor) : NULL;
    return maker != NULL && strcmp(maker->op_types, op_type) == 0;
}

/* ---- of operators that read what was cut, padded, moved or joined ---- */

static bool counts_padding(const struct nd_exact_layer *layer)
{
    return nd_onnx_attribute_i(layer->call->node, "count_include_pad", 0) != 0;
}

/* An AveragePool that counts its own padding is another thing: is_mean_of_shifted. */
static bool is_mean_of_padded(const struct nd_model *model, const struct nd_exact_layer *layer)
{
    return !counts_padding(layer) && reads(model, layer, "Pad");
}

static bool has_other_encoding(const struct nd_exact_layer *layer, size_t i)
{
    const struct nd_quant *from = layer->call->inputs[i].quant, *to = layer->call->out_quant;
    return from != NULL && from->n == 1 && to != NULL && to->n == 1 && !nd_quant_is_same(from, to);
}

/* golden/found/concat.u8.onnx and others of its kind (the page of findings has which are right). */
static bool is_input_among_three(const struct nd_model *model, const struct nd_exact_layer *layer, size_t i)
{
    size_t tensor = layer->input_tensors[i];
    return model != NULL && layer->call->n_inputs > 2 && tensor != SIZE_MAX &&
           strcmp(nd_model_tensor(model, tensor)->op_types, "input") == 0 && has_other_encoding(layer, i);
}

static bool is_concat_with_input(const struct nd_model *model, const struct nd_exact_layer *layer)
{
    for (size_t i = 0; i < layer->call->n_inputs; i++)
        if (is_input_among_three(model, layer, i))
            return true;
    return false;
}

/* golden/found/slice-norm.u8.onnx and fourteen others of its kind: wrong where a Conv made what is sliced, and
 * columns are cut off on the left; right with uint16. */
static bool is_norm_of_slice(const struct nd_model *model, const struct nd_exact_layer *layer)
{
    return !is_wide(layer) && reads(model, layer, "Slice");
}

static bool is_padded(const struct nd_exact_layer *layer)
{
    const struct nd_op_call call = {.node = layer->call->node, .opset = layer->call->opset};
    const int64_t *pads;
    size_t n = nd_op_ints(&call, "pads", &pads);
    for (size_t i = 0; i < n; i++)
        if (pads[i] != 0)
            return true;
    return n == 0 && !has_text(layer, "auto_pad", "NOTSET", "NOTSET") &&
           !has_text(layer, "auto_pad", "NOTSET", "VALID");
}

/* golden/found/average-pool.float.u8.onnx and thirteen others of its kind: which sizes are wrong is not known.
 */
static bool is_pool_of_floats(const struct nd_model *model, const struct nd_exact_layer *layer)
{
    (void)model;
    return layer->call->inputs[0].quant == NULL && is_padded(layer) && !counts_padding(layer);
}

/* golden/found/slice-pool.u8.onnx, pad-pool.u8.onnx and 78 others of their kind: wrong where a Conv or MaxPool
 * made what the Slice or the Pad reads, and the first column (of a Pad: or row) is no multiple of 8. Behind a
 * Slice it is right where a padding counts, behind a Pad where windows overlap. */
static bool is_mean_of_shifted(const struct nd_model *model, const struct nd_exact_layer *layer)
{
    if (layer->call->inputs[0].quant == NULL)
        return false;
    return counts_padding(layer)
               ? reads(model, layer, "Pad") || (!is_padded(layer) && reads(model, layer, "Slice"))
               : reads(model, layer, "Slice");
}

/* Whether one of the first n indices is that of the last of `rows` rows. */
static bool takes_last(const struct nd_array *indices, size_t n, size_t rows)
{
    for (size_t i = 0; i < n; i++)
        if (indices->x[i] == (double)rows - 1 || indices->x[i] == -1)
            return true;
    return false;
}

/* golden/found/gather.u8.onnx and about 230 others of its kind. The device takes rows of 8, 16 and 32 bytes by
 * 32 at a time, and the others, the last n mod 32 of them, in another way that is right. It is right, too,
 * where the last row starts at a multiple of 128 bytes. With several runs of rows, other rows are wrong as
 * well. */
static bool is_gather_of_last(const struct nd_model *model, const struct nd_exact_layer *layer)
{
    enum { AT_ONCE = 32, VECTOR = 128 };
    (void)model;
    const struct nd_array *x = input_of(layer, 0), *indices = input_of(layer, 1);
    if (x == NULL || indices == NULL || x->shape.rank < 1 || !nd_dtype_is_integer(layer->dtype))
        return false;
    int rank = x->shape.rank, axis = (int)nd_onnx_attribute_i(layer->call->node, "axis", 0);
    axis = axis < 0 ? axis + rank : axis;
    if (axis < 0 || axis >= rank || x->shape.dims[axis] < 2)
        return false;
    size_t rows = (size_t)x->shape.dims[axis], n_bytes = nd_dtype_size_bytes(layer->dtype);
    for (int k = axis + 1; k < rank; k++)
        n_bytes *= (size_t)x->shape.dims[k];
    if ((n_bytes != 8 && n_bytes != 16 && n_bytes != 32) || (rows - 1) * n_bytes % VECTOR == 0)
        return false;
    return takes_last(indices, indices->n / AT_ONCE * AT_ONCE, rows);
}

enum { LONGEST_CHAIN = 16 }; /* of moves one after the other */

/* Whether the tensor is an input of the model, or what these move from one with the encoding that it has. */
static bool is_moved_input(const struct nd_model *model, size_t tensor, const char *const *names)
{
    for (size_t i = 0; i < LONGEST_CHAIN; i++) {
        const struct nd_tensor *to = nd_model_tensor(model, tensor);
        const struct nd_model_layer *maker = nd_model_layer_of_tensor(model, tensor);
        if (strcmp(to->op_types, "input") == 0)
            return true;
        if (maker == NULL || maker->n_inputs != 1 || !nd_is_one_of(maker->op_types, names) ||
            !nd_quant_is_same(&nd_model_tensor(model, maker->inputs[0])->quant, &to->quant))
            return false;
        tensor = maker->inputs[0];
    }
    return false;
}

/* golden/found/pad.u8.onnx and about 75 others of its kind. Pad with a number is right, and so are those of
 * what Gather, Tile, Concat, or another operator that calculates made. */
static bool is_pad_of_kept(const struct nd_model *model, const struct nd_exact_layer *layer)
{
    static const char *const moves[] = {"DepthToSpace", "Identity", "Pad",       "Reshape",
                                        "Resize",       "Slice",    "Transpose", NULL};
    size_t tensor = layer->input_tensors[0];
    bool copies = has_text(layer, "mode", "constant", "reflect") || has_text(layer, "mode", "constant", "edge");
    if (model == NULL || tensor == SIZE_MAX || !copies || !has_other_encoding(layer, 0))
        return false;
    return reads(model, layer, "SpaceToDepth") || reads(model, layer, "ReduceMax") ||
           is_moved_input(model, tensor, moves);
}

/* Whether input i has its least quantised value for 0, and the output has not. */
static bool begins_elsewhere(const struct nd_exact_layer *layer, size_t i)
{
    double least, greatest;
    nd_qvalue_range(layer->dtype, &least, &greatest);
    return (double)layer->call->inputs[i].quant->zero_point[0] == least &&
           (double)layer->call->out_quant->zero_point[0] != least;
}

/* golden/found/concat-moved.u8.onnx and about 45 others of its kind. A zero point of 0 makes it right, where
 * that of the Concat is another. The last move decides: behind a Resize, Slice, Gather, Tile or Identity it is
 * right, and behind a move of what an operator calculated. */
static bool is_moved_and_kept(const struct nd_model *model, const struct nd_exact_layer *layer, size_t i)
{
    static const char *const moves[] = {"DepthToSpace", "Pad", "Reshape", "Slice", "Transpose", NULL};
    size_t tensor = layer->input_tensors[i];
    const struct nd_model_layer *maker =
        model != NULL && tensor != SIZE_MAX ? nd_model_layer_of_tensor(model, tensor) : NULL;
    if (maker == NULL || !has_other_encoding(layer, i) || begins_elsewhere(layer, i))
        return false;
    return strcmp(maker->op_types, "SpaceToDepth") == 0 ||
           (ND_IS_ONE_OF(maker->op_types, "DepthToSpace", "Pad", "Reshape", "Transpose") &&
            is_moved_input(model, tensor, moves));
}

/* Whether the tensor is calculated from a part of a Split of x. */
static bool is_made_of_part(const struct nd_model *model, size_t tensor, size_t x, int depth)
{
    const struct nd_model_layer *maker =
        tensor != SIZE_MAX && depth > 0 ? nd_model_layer_of_tensor(model, tensor) : NULL;
    bool is = maker != NULL && strcmp(maker->op_types, "Split") == 0 && maker->inputs[0] == x;
    for (size_t i = 0; maker != NULL && i < maker->n_inputs && !is; i++)
        is = is_made_of_part(model, maker->inputs[i], x, depth - 1);
    return is;
}

/* golden/found/concat-split.u8.onnx and 40 others of its kind: of five axes, beside what is made of another
 * part. */
static bool is_part_beside_others(const struct nd_model *model, const struct nd_exact_layer *layer, size_t i)
{
    enum { RANK = 5, DEPTH = 8 /* chosen: the heads of detectors have 3 */ };
    size_t tensor = layer->input_tensors[i];
    const struct nd_model_layer *part =
        model != NULL && tensor != SIZE_MAX ? nd_model_layer_of_tensor(model, tensor) : NULL;
    if (part == NULL || strcmp(part->op_types, "Split") != 0 || !has_other_encoding(layer, i) ||
        begins_elsewhere(layer, i) || input_of(layer, i) == NULL || input_of(layer, i)->shape.rank != RANK)
        return false;
    for (size_t k = 0; k < layer->call->n_inputs; k++)
        if (k != i && is_made_of_part(model, layer->input_tensors[k], part->inputs[0], DEPTH))
            return true;
    return false;
}

const struct nd_array *nd_layer_kept_qvalues(const struct nd_model *model, const struct nd_exact_layer *layer,
                                             size_t i)
{
    bool may_be = is_moved_and_kept(model, layer, i) || is_input_among_three(model, layer, i) ||
                  is_part_beside_others(model, layer, i);
    return may_be ? input_of(layer, i) : NULL;
}

static bool is_concat_of_kept(const struct nd_model *model, const struct nd_exact_layer *layer)
{
    for (size_t i = 0; i < layer->call->n_inputs; i++)
        if (is_moved_and_kept(model, layer, i))
            return true;
    return false;
}

static bool is_concat_of_part(const struct nd_model *model, const struct nd_exact_layer *layer)
{
    for (size_t i = 0; i < layer->call->n_inputs; i++)
        if (is_part_beside_others(model, layer, i))
            return true;
    return false;
}

/* golden/found/max-pool.u8.onnx and 28 others of its kind: wrong where the input of the Pad lies in blocks, and
 * the Pad adds columns on the left. */
static bool is_pool_of_padded(const struct nd_model *model, const struct nd_exact_layer *layer)
{
    return is_padded(layer) && reads(model, layer, "Pad");
}

/* golden/found/pads.u16.onnx and those that docs/results/found.md lists. */
static bool is_pad_of_pad(const struct nd_model *model, const struct nd_exact_layer *layer)
{
    return reads(model, layer, "Pad");
}

/* golden/found/depth-to-space.u8.onnx, space-to-depth.u8.onnx and those that docs/results/found.md lists. */
static bool is_depth_of_kept(const struct nd_model *model, const struct nd_exact_layer *layer)
{
    size_t tensor = layer->input_tensors[0];
    bool is_to_depth =
        strcmp(nd_onnx_text(layer->call->node->op_type), "SpaceToDepth") == 0; /* whoever made it */
    return model != NULL && tensor != SIZE_MAX && has_other_encoding(layer, 0) &&
           (is_to_depth || is_moved_input(model, tensor, (const char *const[]){NULL}));
}

static bool has_scales_along_sum(const struct nd_model *model, const struct nd_exact_layer *layer)
{
    (void)model;
    const struct nd_array *w = input_of(layer, 1);
    const struct nd_quant *first = layer->call->inputs[0].quant, *second = layer->call->inputs[1].quant;
    if (first != NULL && first->n > 1)
        return true;
    if (w == NULL || second == NULL || second->n < 2)
        return false;
    bool is_turned = nd_onnx_attribute_i(layer->call->node, "transB", 0) != 0;
    int axis = second->axis + (second->axis < 0 ? w->shape.rank : 0);
    return axis != (is_turned ? 0 : w->shape.rank - 1);
}

/* An odd power: beyond that one value (docs/science/htp-arithmetic.md#power). */
static bool is_pow_of_clipped(const struct nd_model *model, const struct nd_exact_layer *layer)
{
    (void)model;
    const struct nd_array *x = input_of(layer, 0), *p = input_of(layer, 1);
    const struct nd_quant *quant = layer->call->inputs[0].quant, *by = layer->call->inputs[1].quant,
                          *to = layer->call->out_quant;
    double low, high;
    if (x == NULL || p == NULL || p->n != 1 || !is_wide(layer) || quant == NULL || quant->n != 1 ||
        by == NULL || by->n != 1 || to == NULL || to->n != 1)
        return false;
    nd_qvalue_range(layer->dtype, &low, &high);
    double exponent = rint((p->x[0] - (double)by->zero_point[0]) * (double)by->scale[0]);
    double greatest = (high + 1 - (double)to->zero_point[0]) * (double)to->scale[0], furthest = 0;
    for (size_t i = 0; i < x->n; i++)
        furthest = fmax(furthest, ((double)quant->zero_point[0] - x->x[i]) * (double)quant->scale[0]);
    return fmod(exponent, 2) == 1 && pow(furthest, exponent) > greatest;
}

/* Log of all uint16 values under five encodings: ln(floor(2^15 x) 2^-15), and ln(2^-16) where that is 0, within
 * two steps. */
static bool is_log_of_fine(const struct nd_model *model, const struct nd_exact_layer *layer)
{
    static const double step = 0x1p-15, least = 0x1p-16, slack = 2;
    (void)model;
    const struct nd_array *x = input_of(layer, 0);
    const struct nd_quant *from = layer->call->inputs[0].quant, *to = layer->call->out_quant;
    if (x == NULL || !is_wide(layer) || from == NULL || from->n != 1 || to == NULL || to->n != 1)
        return false;
    bool is_cut = false;
    for (size_t i = 0; i < x->n && !is_cut; i++) {
        double real = (x->x[i] - (double)from->zero_point[0]) * (double)from->scale[0];
        double cut = fmax(floor(real / step) * step, least);
        is_cut = real > 0 && fabs(log(cut / real)) > slack * (double)to->scale[0];
    }
    return is_cut;
}

static bool is_cumsum_of_bytes(const struct nd_model *model, const struct nd_exact_layer *layer)
{
    (void)model;
    return !is_wide(layer);
}

/* 90 models: three makers, nine moves, five Reshapes and the like (docs/science/htp-arithmetic.md#still). */
static bool is_reshape_of_moved(const struct nd_model *model, const struct nd_exact_layer *layer)
{
    size_t tensor = layer->input_tensors[0];
    const struct nd_model_layer *maker =
        model != NULL && tensor != SIZE_MAX ? nd_model_layer_of_tensor(model, tensor) : NULL;
    return maker != NULL && !is_wide(layer) && has_other_encoding(layer, 0) &&
           ND_IS_ONE_OF(maker->op_types, "DepthToSpace", "Pad", "Resize", "SpaceToDepth", "Transpose");
}

/* ---- of other operators ---- */

static bool is_depthwise_1x1(const struct nd_model *model, const struct nd_exact_layer *layer)
{
    (void)model;
    const struct nd_array *x = input_of(layer, 0), *w = input_of(layer, 1);
    return x != NULL && w != NULL && x->shape.rank == 4 && w->shape.rank == 4 && x->shape.dims[1] > 1 &&
           w->shape.dims[1] == 1 && w->shape.dims[2] == 1 && w->shape.dims[3] == 1;
}

static bool is_resize_to_floor(const struct nd_model *model, const struct nd_exact_layer *layer)
{
    (void)model;
    return has_text(layer, "mode", "nearest", "nearest") &&
           has_text(layer, "coordinate_transformation_mode", "half_pixel", "half_pixel") &&
           has_text(layer, "nearest_mode", "round_prefer_floor", "floor");
}

/* golden/found/transposed-sum.u8.onnx and twelve others of its kind: nothing is wrong where the constant is the
 * first operand, one number for several channels, or where a Relu is part of the layer. */
static bool is_sum_of_transposed(const struct nd_model *model, const struct nd_exact_layer *layer)
{
    const struct nd_array *x = input_of(layer, 0), *constant = input_of(layer, 1);
    return x != NULL && constant != NULL && layer->origins[1] == ND_EXACT_FROM_CONSTANT && x->shape.rank == 4 &&
           constant->n == (size_t)x->shape.dims[1] && isinf(layer->call->low) && isinf(layer->call->high) &&
           reads(model, layer, "ConvTranspose");
}

/* Of one row the largest share and the least differ by no more than this factor; chosen: the nine values that
 * were seen were exact within a few percent, and a Softmax of plainly different values is right. */
static const double nearly_equal = 2;

/* The last axis is looked at, which is the one that quantisers emit. */
static bool is_softmax_of_equals(const struct nd_model *model, const struct nd_exact_layer *layer)
{
    (void)model;
    const struct nd_array *x = input_of(layer, 0);
    const struct nd_quant *quant = layer->call->inputs[0].quant;
    if (!is_wide(layer) || x == NULL || quant == NULL || quant->n != 1 || x->shape.rank < 1 || x->n == 0)
        return false;
    size_t n = (size_t)x->shape.dims[x->shape.rank - 1];
    for (size_t row = 0; n > 1 && row + n <= x->n; row += n) {
        double low = x->x[row], high = x->x[row];
        for (size_t i = row; i < row + n; i++) {
            low = fmin(low, x->x[i]);
            high = fmax(high, x->x[i]);
        }
        if ((high - low) * (double)quant->scale[0] <= log(nearly_equal))
            return true;
    }
    return false;
}

static bool is_concat_of_saturated(const struct nd_model *model, const struct nd_exact_layer *layer)
{
    (void)model;
    for (size_t k = 0; is_wide(layer) && k < layer->call->n_inputs; k++) {
        const struct nd_array *x = input_of(layer, k);
        double low, high;
        if (x == NULL || layer->call->inputs[k].quant == NULL || !nd_dtype_is_of_qvalues(x->dtype))
            continue;
        nd_qvalue_range(x->dtype, &low, &high);
        for (size_t i = 0; i < x->n; i++)
            if (x->x[i] == low || x->x[i] == high)
                return true;
    }
    return false;
}

static bool is_reciprocal_of_fine(const struct nd_model *model, const struct nd_exact_layer *layer)
{
    (void)model;
    const struct nd_quant *quant = layer->call->inputs[0].quant;
    bool is_clipped = false;
    if (quant != NULL && quant->n == 1)
        nd_reciprocal_dividend(quant, layer->dtype, &is_clipped);
    return is_clipped;
}

/* Whether the Clip's bounds lie within the quantised values of its output. */
static void find_cuts(const struct nd_exact_layer *layer, bool *cuts_below, bool *cuts_above)
{
    const struct nd_linear_call *call = layer->call;
    const struct nd_quant *y = call->out_quant;
    double low = call->low, high = call->high, least, greatest;
    *cuts_below = *cuts_above = false;
    if (y == NULL || y->n != 1 || !nd_linear_fold(call->node, call->n_inputs, call->inputs, &low, &high))
        return;
    nd_qvalue_range(layer->dtype, &least, &greatest);
    *cuts_below = rint(low / (double)y->scale[0]) + (double)y->zero_point[0] > least;
    *cuts_above = rint(high / (double)y->scale[0]) + (double)y->zero_point[0] < greatest;
}

bool nd_layer_cuts_both_ends(const struct nd_exact_layer *layer)
{
    bool cuts_below, cuts_above;
    find_cuts(layer, &cuts_below, &cuts_above);
    return cuts_below && cuts_above;
}

/* golden/found/clip.u8.onnx and about 1000 others of its kind, of 28 makers: a Clip of what these make, or of
 * that transposed. uint16: always; uint8: where it cuts at one end alone. */
static bool is_clip_left_out(const struct nd_model *model, const struct nd_exact_layer *layer)
{
    bool cuts_below, cuts_above;
    find_cuts(layer, &cuts_below, &cuts_above);
    size_t tensor = layer->input_tensors[0];
    const struct nd_model_layer *maker = NULL;
    if (model == NULL || tensor == SIZE_MAX ||
        (is_wide(layer) ? !cuts_below && !cuts_above : cuts_below == cuts_above))
        return false;
    maker = nd_model_layer_of_tensor(model, tensor);
    if (maker != NULL && strcmp(maker->op_types, "Transpose") == 0 && maker->n_inputs > 0)
        maker = nd_model_layer_of_tensor(model, maker->inputs[0]);
    if (maker != NULL && strcmp(maker->op_types, "MatMul") == 0) /* of two calculated operands it is right */
        return maker->n_inputs == 1;
    return maker != NULL && ND_IS_ONE_OF(maker->op_types, "Conv", "ConvTranspose", "Gemm", "Add", "Sub", "Mul");
}

/* What the arithmetics know of the layer alone. */
#define OF_LAYER(name, function)                                                                               \
    static bool name(const struct nd_model *model, const struct nd_exact_layer *layer)                         \
    {                                                                                                          \
        (void)model;                                                                                           \
        return function(layer);                                                                                \
    }
OF_LAYER(is_norm_that_loses_a_sign, nd_layer_loses_sign_of_bias)
OF_LAYER(is_product_whose_bias_wraps, nd_layer_wraps_bias)
OF_LAYER(is_product_whose_multiplier_wraps, nd_layer_wraps_multiplier)
OF_LAYER(is_depthwise_that_pads_wrongly, nd_layer_pads_wrongly)

/* The only tensor that the layer reads beside constants is made by this one; NULL: there are several. */
static const struct nd_model_layer *maker_before(const struct nd_model *model,
                                                 const struct nd_model_layer *layer)
{
    return layer != NULL && layer->n_inputs == 1 ? nd_model_layer_of_tensor(model, layer->inputs[0]) : NULL;
}

static bool begins_with(const struct nd_model_layer *layer, const char *op_type)
{
    return layer != NULL && strncmp(layer->op_types, op_type, strlen(op_type)) == 0;
}

/* Whether the gate is clip(x + c), or e + c with an e from without: an input of the model, or an Erf, which
 * runs on the CPU. Behind Tanh it is right. */
static bool is_gate_of(const struct nd_model *model, size_t gate, size_t x)
{
    const struct nd_model_layer *maker = nd_model_layer_of_tensor(model, gate);
    if (begins_with(maker, "Clip"))
        maker = maker_before(model, maker);
    if (!begins_with(maker, "Add") || maker->n_inputs != 1)
        return false;
    const struct nd_model_layer *before = maker_before(model, maker);
    return maker->inputs[0] == x || before == NULL || strcmp(before->op_types, "Erf") == 0;
}

/* Whether the layer is the last of x clip(x + c, 0, d) k or x (e + c) k, of an input of the model or a MatMul
 * by constants. */
static bool ends_hard_swish(const struct nd_model *model, const struct nd_model_layer *layer)
{
    const struct nd_model_layer *product = maker_before(model, layer);
    if (product == NULL || product->n_inputs != 2 || strcmp(product->op_types, "Mul") != 0)
        return false;
    size_t a = product->inputs[0], b = product->inputs[1], x = is_gate_of(model, b, a) ? a : b;
    if (!is_gate_of(model, x == a ? b : a, x))
        return false;
    const struct nd_model_layer *maker = nd_model_layer_of_tensor(model, x);
    if (maker != NULL && strcmp(maker->op_types, "Add") == 0)
        maker = maker_before(model, maker);
    return maker == NULL || (strcmp(maker->op_types, "MatMul") == 0 && maker->n_inputs == 1);
}

/* golden/found/hard-swish.u8.onnx and those that docs/results/found.md lists. With a Div at the end the record
 * of that is right, and what an Add reads of it is not. */
static bool is_hard_swish_in_parts(const struct nd_model *model, const struct nd_exact_layer *layer)
{
    const struct nd_model_layer *self = model != NULL ? nd_model_layer_of_tensor(model, layer->tensor) : NULL;
    if (layer->dtype != ND_DTYPE_U8 || self == NULL)
        return false;
    if (begins_with(self, "Mul"))
        return ends_hard_swish(model, self);
    for (size_t i = 0; i < self->n_inputs; i++) {
        const struct nd_model_layer *maker = nd_model_layer_of_tensor(model, self->inputs[i]);
        if (begins_with(maker, "Div") && ends_hard_swish(model, maker))
            return true;
    }
    return false;
}

/* golden/found/tanh-rows.u16.onnx and those that docs/results/found.md lists. */
static bool is_tanh_of_rows(const struct nd_model *model, const struct nd_exact_layer *layer)
{
    enum { ROWS = 16 };
    const struct nd_array *x = input_of(layer, 0);
    (void)model;
    return is_wide(layer) && x != NULL && x->shape.rank >= 2 && x->shape.dims[x->shape.rank - 2] == ROWS;
}

/* Whether the layer is x Sigmoid(x), x from a convolution or a norm of one. */
static bool is_silu(const struct nd_model *model, const struct nd_model_layer *layer)
{
    for (size_t i = 0; begins_with(layer, "Mul") && layer->n_inputs == 2 && i < 2; i++) {
        const struct nd_model_layer *gate = nd_model_layer_of_tensor(model, layer->inputs[i]);
        if (!begins_with(gate, "Sigmoid") || gate->n_inputs != 1 || gate->inputs[0] != layer->inputs[1 - i])
            continue;
        const struct nd_model_layer *maker = nd_model_layer_of_tensor(model, gate->inputs[0]);
        return begins_with(maker, "Conv") || begins_with(maker, "BatchNormalization");
    }
    return false;
}

static bool is_gate_of_silu(const struct nd_model *model, size_t tensor)
{
    for (size_t u = 0; u < nd_model_n_layers(model); u++) {
        const struct nd_model_layer *layer = nd_model_layer(model, u);
        if (layer->n_inputs == 2 && (layer->inputs[0] == tensor || layer->inputs[1] == tensor) &&
            is_silu(model, layer))
            return true;
    }
    return false;
}

/* golden/found/silu-512.w8a16.onnx and those that docs/results/found.md lists: the Sigmoid, the product, or a
 * Conv that reads the product. */
static bool is_silu_that_races(const struct nd_model *model, const struct nd_exact_layer *layer)
{
    enum { RANK = 4, HEIGHT = 2, AT_ONCE = 8 };
    const struct nd_array *x = input_of(layer, 0);
    if (model == NULL || !is_wide(layer) || x == NULL || x->shape.rank != RANK ||
        x->shape.dims[HEIGHT] % AT_ONCE == 0)
        return false;
    const struct nd_model_layer *self = nd_model_layer_of_tensor(model, layer->tensor);
    size_t read = layer->input_tensors[0];
    return begins_with(self, "Sigmoid")
               ? is_gate_of_silu(model, layer->tensor)
               : is_silu(model, self) ||
                     (read != SIZE_MAX && is_silu(model, nd_model_layer_of_tensor(model, read)));
}

/* ---- a Softplus in floats, of what lies in blocks ---- */

static bool is_float_softplus(const struct nd_model *model, const struct nd_model_layer *layer)
{
    bool is_joined = strchr(layer->op_types, '+') != NULL; /* of 8 bits by itself it is a table */
    return strstr(layer->op_types, "Softplus") != NULL &&
           (is_joined || nd_dtype_size_bytes(nd_model_tensor(model, layer->tensor)->dtype) != 1);
}

/* Whether it is a picture whose last row of blocks is not full, and there is another row of them. */
static bool ends_within_block(const struct nd_shape *shape)
{
    enum { RANK = 4, HEIGHT = 2, OF_BLOCK = 8 };
    return shape->rank == RANK && shape->dims[HEIGHT] > OF_BLOCK && shape->dims[HEIGHT] % OF_BLOCK != 0;
}

static bool lies_in_blocks(const struct nd_model *model, size_t tensor)
{
    for (size_t i = 0; i < LONGEST_CHAIN; i++) { /* what is made of one tensor lies as that does */
        const struct nd_model_layer *maker = nd_model_layer_of_tensor(model, tensor);
        if (maker == NULL || begins_with(maker, "Reshape") || begins_with(maker, "Transpose"))
            return false;
        if (begins_with(maker, "Conv") || strstr(maker->op_types, "Pool") != NULL || maker->n_inputs == 0)
            return true;
        tensor = maker->inputs[0];
    }
    return true;
}

static bool is_as_high_and_wide(const struct nd_shape *a, const struct nd_shape *b)
{
    return a->rank == b->rank && a->dims[a->rank - 1] == b->dims[b->rank - 1] &&
           a->dims[a->rank - 2] == b->dims[b->rank - 2];
}

/* golden/found/softplus.u8.onnx and about 60 others of its kind: what the Softplus makes, and what is as high
 * and wide as what it reads, whose record it may write into. */
static bool is_softplus_of_blocks(const struct nd_model *model, const struct nd_exact_layer *layer)
{
    const struct nd_shape *own = model != NULL ? &nd_model_tensor(model, layer->tensor)->shape : NULL;
    for (size_t u = 0; own != NULL && ends_within_block(own) && u < nd_model_n_layers(model); u++) {
        const struct nd_model_layer *softplus = nd_model_layer(model, u);
        for (size_t i = 0; is_float_softplus(model, softplus) && i < softplus->n_inputs; i++)
            if (is_as_high_and_wide(&nd_model_tensor(model, softplus->inputs[i])->shape, own) &&
                lies_in_blocks(model, softplus->inputs[i]))
                return true;
    }
    return false;
}

/* golden/found/softmax.u8.onnx: the output has the zero point 0, of int8 -128. Rows of two have the model's. */
static bool is_softmax_with_zero(const struct nd_model *model, const struct nd_exact_layer *layer)
{
    enum { KEPT = 128, SHORTEST = 3 };
    (void)model;
    const struct nd_quant *quant = layer->call->out_quant;
    const struct nd_array *x = input_of(layer, 0);
    bool is_signed = layer->dtype == ND_DTYPE_I8;
    if ((layer->dtype != ND_DTYPE_U8 && !is_signed) || quant == NULL || quant->n != 1 || x == NULL ||
        x->shape.rank < 1)
        return false;
    int axis = (int)nd_onnx_attribute_i(layer->call->node, "axis", -1);
    axis = axis < 0 ? axis + x->shape.rank : axis;
    int64_t zero = quant->zero_point[0];
    return axis >= 0 && axis < x->shape.rank && x->shape.dims[axis] >= SHORTEST &&
           (is_signed ? zero != INT8_MIN : zero != 0 && zero != KEPT);
}

bool nd_layer_is(const struct nd_model *model, const struct nd_exact_layer *layer,
                 enum nd_layer_condition condition)
{
#define ND_OPERATORS(...) __VA_ARGS__
    static const struct {
        const char *op_types[4]; /* up to NULL */
        layer_condition *has;
    } rows[] = {
#define ND_DEFECT(condition, function, operators, ...) {{ND_OPERATORS operators}, function},
#include "arithmetic/known/defects.def"
    };
    const char *op_type = layer->call->node != NULL ? nd_onnx_text(layer->call->node->op_type) : "";
    for (size_t k = 0; k < 4 && rows[condition].op_types[k] != NULL; k++)
        if (rows[condition].op_types[k][0] == '*' ||
            (rows[condition].op_types[k][0] == op_type[0] && strcmp(rows[condition].op_types[k], op_type) == 0))
            return rows[condition].has(model, layer);
    return false;
}

uint64_t nd_layer_conditions(const struct nd_model *model, const struct nd_exact_layer *layer)
{
    uint64_t conditions = 0;
    for (int c = 0; c < ND_N_LAYER_CONDITIONS; c++)
        conditions |= (uint64_t)nd_layer_is(model, layer, (enum nd_layer_condition)c) << c;
    return conditions;
}

uint64_t nd_layer_conditions_predicted(uint64_t conditions)
{
    return conditions & (0
#define ND_DEFECT(condition, function, operators, layer, foresight, ...)                                       \
    | (uint64_t)ND_##foresight << ND_LAYER_##condition
#include "arithmetic/known/defects.def"
                        );
}
