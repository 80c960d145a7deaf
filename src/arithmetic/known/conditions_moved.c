/* Layers that a release of an SDK is known to compute wrongly because of what was moved before them: cut,
 * padded, joined, or gathered. docs/results/found.md has the evidence. */
#include <math.h>
#include <string.h>

#include "arithmetic/known/conditions_internal.h"
#include "core/tensors/scales.h"
#include "arithmetic/exact/linear/linear_families.h"

static bool counts_padding(const struct nd_exact_unit *unit)
{
    return nd_onnx_attribute_i(unit->call->node, "count_include_pad", 0) != 0;
}

/* An AveragePool that counts its own padding is another thing: is_mean_of_shifted. */
bool nd_is_mean_of_padded(const struct nd_model *model, const struct nd_exact_unit *unit)
{
    return !counts_padding(unit) && nd_condition_reads(model, unit, "Pad");
}

static bool has_other_encoding(const struct nd_exact_unit *unit, size_t i)
{
    const struct nd_quant *from = unit->call->inputs[i].quant, *to = unit->call->out_quant;
    return from != NULL && from->n == 1 && to != NULL && to->n == 1 && !nd_quant_is_same(from, to);
}

/* golden/found/concat.u8.onnx and others of its kind (the page of findings has which are right). */
static bool is_input_among_three(const struct nd_model *model, const struct nd_exact_unit *unit, size_t i)
{
    size_t edge = unit->input_edges[i];
    return model != NULL && unit->call->n_inputs > 2 && edge != SIZE_MAX &&
           strcmp(nd_model_edge(model, edge)->op_types, "input") == 0 && has_other_encoding(unit, i);
}

bool nd_is_concat_with_input(const struct nd_model *model, const struct nd_exact_unit *unit)
{
    for (size_t i = 0; i < unit->call->n_inputs; i++)
        if (is_input_among_three(model, unit, i))
            return true;
    return false;
}

/* golden/found/slice-norm.u8.onnx and fourteen others of its kind: wrong where a Conv made what is sliced, and
 * columns are cut off on the left; right with uint16. */
bool nd_is_norm_of_slice(const struct nd_model *model, const struct nd_exact_unit *unit)
{
    return !nd_condition_is_wide(unit) && nd_condition_reads(model, unit, "Slice");
}

static bool is_padded(const struct nd_exact_unit *unit)
{
    const struct nd_op_call call = {.node = unit->call->node, .opset = unit->call->opset};
    const int64_t *pads;
    size_t n = nd_op_ints(&call, "pads", &pads);
    for (size_t i = 0; i < n; i++)
        if (pads[i] != 0)
            return true;
    return n == 0 && !nd_condition_has_text(unit, "auto_pad", "NOTSET", "NOTSET") &&
           !nd_condition_has_text(unit, "auto_pad", "NOTSET", "VALID");
}

/* golden/found/average-pool.float.u8.onnx and thirteen others of its kind: which sizes are wrong is not known.
 */
bool nd_is_pool_of_floats(const struct nd_model *model, const struct nd_exact_unit *unit)
{
    (void)model;
    return unit->call->inputs[0].quant == NULL && is_padded(unit) && !counts_padding(unit);
}

/* golden/found/slice-pool.u8.onnx, pad-pool.u8.onnx and 78 others of their kind: wrong where a Conv or MaxPool
 * made what the Slice or the Pad reads, and the first column (of a Pad: or row) is no multiple of 8. Behind a
 * Slice it is right where a padding counts, behind a Pad where windows overlap. */
bool nd_is_mean_of_shifted(const struct nd_model *model, const struct nd_exact_unit *unit)
{
    if (unit->call->inputs[0].quant == NULL)
        return false;
    return counts_padding(unit) ? nd_condition_reads(model, unit, "Pad") ||
                                      (!is_padded(unit) && nd_condition_reads(model, unit, "Slice"))
                                : nd_condition_reads(model, unit, "Slice");
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
bool nd_is_gather_of_last(const struct nd_model *model, const struct nd_exact_unit *unit)
{
    enum { AT_ONCE = 32, VECTOR = 128 };
    (void)model;
    const struct nd_array *x = nd_condition_input(unit, 0), *indices = nd_condition_input(unit, 1);
    if (x == NULL || indices == NULL || x->shape.rank < 1 || !nd_dtype_is_integer(unit->dtype))
        return false;
    int rank = x->shape.rank, axis = (int)nd_onnx_attribute_i(unit->call->node, "axis", 0);
    axis = axis < 0 ? axis + rank : axis;
    if (axis < 0 || axis >= rank || x->shape.dims[axis] < 2)
        return false;
    size_t rows = (size_t)x->shape.dims[axis], n_bytes = nd_dtype_size_bytes(unit->dtype);
    for (int k = axis + 1; k < rank; k++)
        n_bytes *= (size_t)x->shape.dims[k];
    if ((n_bytes != 8 && n_bytes != 16 && n_bytes != 32) || (rows - 1) * n_bytes % VECTOR == 0)
        return false;
    return takes_last(indices, indices->n / AT_ONCE * AT_ONCE, rows);
}

enum { LONGEST_CHAIN = 16 }; /* of moves one after the other */

/* Whether the edge is an input of the model, or what these move from one with the encoding that it has. */
static bool is_moved_input(const struct nd_model *model, size_t edge, const char *const *names, size_t n)
{
    for (size_t i = 0; i < LONGEST_CHAIN; i++) {
        const struct nd_edge *to = nd_model_edge(model, edge);
        const struct nd_model_unit *maker = nd_model_unit_of_edge(model, edge);
        if (strcmp(to->op_types, "input") == 0)
            return true;
        if (maker == NULL || maker->n_inputs != 1 || !nd_condition_is_named(maker->op_types, names, n) ||
            !nd_quant_is_same(&nd_model_edge(model, maker->inputs[0])->quant, &to->quant))
            return false;
        edge = maker->inputs[0];
    }
    return false;
}

/* golden/found/pad.u8.onnx and about 75 others of its kind. Pad with a number is right, and so are those of
 * what Gather, Tile, Concat, or another operator that calculates made. */
bool nd_is_pad_of_kept(const struct nd_model *model, const struct nd_exact_unit *unit)
{
    static const char *const moves[] = {"DepthToSpace", "Identity", "Pad",      "Reshape",
                                        "Resize",       "Slice",    "Transpose"};
    size_t edge = unit->input_edges[0];
    bool copies = nd_condition_has_text(unit, "mode", "constant", "reflect") ||
                  nd_condition_has_text(unit, "mode", "constant", "edge");
    if (model == NULL || edge == SIZE_MAX || !copies || !has_other_encoding(unit, 0))
        return false;
    return nd_condition_reads(model, unit, "SpaceToDepth") || nd_condition_reads(model, unit, "ReduceMax") ||
           is_moved_input(model, edge, moves, sizeof moves / sizeof moves[0]);
}

/* golden/found/concat-moved.u8.onnx and about 45 others of its kind. A zero point of 0 makes it right, where
 * that of the Concat is another. The last move decides: behind a Resize, Slice, Gather, Tile or Identity it is
 * right, and behind a move of what an operator calculated. */
static bool is_moved_and_kept(const struct nd_model *model, const struct nd_exact_unit *unit, size_t i)
{
    static const char *const last[] = {"DepthToSpace", "Pad", "Reshape", "Transpose"};
    static const char *const moves[] = {"DepthToSpace", "Pad", "Reshape", "Slice", "Transpose"};
    size_t edge = unit->input_edges[i];
    const struct nd_model_unit *maker =
        model != NULL && edge != SIZE_MAX ? nd_model_unit_of_edge(model, edge) : NULL;
    if (maker == NULL || !has_other_encoding(unit, i) ||
        (unit->call->inputs[i].quant->zero_point[0] == 0 && unit->call->out_quant->zero_point[0] != 0))
        return false;
    return strcmp(maker->op_types, "SpaceToDepth") == 0 ||
           (nd_condition_is_named(maker->op_types, last, sizeof last / sizeof last[0]) &&
            is_moved_input(model, edge, moves, sizeof moves / sizeof moves[0]));
}

const struct nd_array *nd_unit_kept_codes(const struct nd_model *model, const struct nd_exact_unit *unit,
                                          size_t i)
{
    bool may_be = is_moved_and_kept(model, unit, i) || is_input_among_three(model, unit, i);
    return may_be ? nd_condition_input(unit, i) : NULL;
}

bool nd_is_concat_of_kept(const struct nd_model *model, const struct nd_exact_unit *unit)
{
    for (size_t i = 0; i < unit->call->n_inputs; i++)
        if (is_moved_and_kept(model, unit, i))
            return true;
    return false;
}

/* golden/found/max-pool.u8.onnx and 28 others of its kind: wrong where the input of the Pad lies in blocks, and
 * the Pad adds columns on the left. */
bool nd_is_pool_of_padded(const struct nd_model *model, const struct nd_exact_unit *unit)
{
    return is_padded(unit) && nd_condition_reads(model, unit, "Pad");
}

/* golden/found/pads.u16.onnx and those that docs/results/found.md lists. */
bool nd_is_pad_of_pad(const struct nd_model *model, const struct nd_exact_unit *unit)
{
    return nd_condition_reads(model, unit, "Pad");
}

/* golden/found/depth-to-space.u8.onnx, space-to-depth.u8.onnx and those that docs/results/found.md lists. */
bool nd_is_depth_of_kept(const struct nd_model *model, const struct nd_exact_unit *unit)
{
    size_t edge = unit->input_edges[0];
    bool is_to_depth =
        strcmp(nd_onnx_text(unit->call->node->op_type), "SpaceToDepth") == 0; /* whoever made it */
    return model != NULL && edge != SIZE_MAX && has_other_encoding(unit, 0) &&
           (is_to_depth || is_moved_input(model, edge, NULL, 0));
}
