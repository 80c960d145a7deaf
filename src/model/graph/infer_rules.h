/* The rules by which infer.c finds shapes: what they are given, what they share, and the lists of them. */
#ifndef ND_MODEL_INFER_RULES_H
#define ND_MODEL_INFER_RULES_H

#include "model/graph/infer.h"

/* One output of one node, and what is known so far. */
struct nd_infer_view {
    const struct nd_graph *graph;
    const Onnx__NodeProto *proto;
    const struct nd_tensor_info *infos; /* [graph->n_tensors] */
    size_t node;
    size_t output;
};

/* Shape of the output, rank -1 where it does not follow. Attributes and shapes may be anything at all. */
struct nd_infer_rule {
    const char *op; /* NULL ends a list; "Reduce*": all that begin so */
    struct nd_shape (*shape)(const struct nd_infer_view *view);
};

extern const struct nd_infer_rule nd_infer_compute_rules[]; /* infer.c: sums over windows, products */
extern const struct nd_infer_rule nd_infer_axes_rules[];    /* infer.c: axes joined, dropped, reordered */
extern const struct nd_infer_rule nd_infer_size_rules[];    /* infer.c: sizes that constants give */

/* No dimension that follows from arguments is greater; sums and products of a few such do not overflow. */
#define ND_INFER_MAX_DIM (INT64_C(1) << 40)

extern const struct nd_tensor_info nd_infer_unknown;

/* Whether the node has an input i that is not left out. */
bool nd_infer_has_arg(const struct nd_infer_view *view, size_t i);

/* The axis counted from the front; -1: there is none such, or the rank is not known. */
static inline int nd_infer_axis(int64_t axis, int rank)
{
    return axis < -rank || axis >= rank ? -1 : (int)(axis < 0 ? axis + rank : axis);
}

/* ---- constants (infer_constant.c) ---- */

/* The integers (int64, int32) or floats (float32) of input i, where it is a constant inside of the model file;
 * how many, or -1: no such constant, or more than capacity. */
int nd_infer_integers(const struct nd_infer_view *view, size_t i, int64_t *values, int capacity);
int nd_infer_floats(const struct nd_infer_view *view, size_t i, float *values, int capacity);

/* The same of an argument that older operator sets have as attribute and newer ones as input i. 0 where it is
 * given in neither way. */
int nd_infer_argument(const struct nd_infer_view *view, const char *attribute, size_t i, int64_t *values,
                      int capacity);

#endif
