/* A whole model evaluated on one sample, in double precision and, where layers are linear in quantised values,
 * exactly.
 *
 * A float model is evaluated as it is written: the float reference. Of a quantised model every layer is worked
 * out from the quantised values of its inputs and rounded once by a program: the quantised reference with round
 * half to even. Where quantised values of tensors are *given* (a device's), what reads a tensor reads those
 * instead of what was just computed: then every layer is re-executed on the device's own inputs, and what is
 * computed less what was given is its local error. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "arithmetic/exact/linear/rounding.h"
#include "arithmetic/operators/array.h"
#include "npudiff/model/model.h"

/* The axes of weights on which channels lie, and factors of these channels. */

/* Weights as n0 x n1 x inner, in groups along the first axis. One axis has channels of the outputs, the other
 * one those of the inputs within a group. */
struct nd_weight_axes {
    size_t n0, n1, inner, groups;
    bool is_first_out; /* the first axis is that of the outputs */
};

/* The output or input channel of element i, and how many there are. */
size_t nd_weight_channel(const struct nd_weight_axes *axes, bool is_output, size_t i);
size_t nd_weight_channels(const struct nd_weight_axes *axes, bool is_output);

/* What weights are multiplied by: NULL is 1 everywhere. Borrowed. */
struct nd_weight_factors {
    const double *outputs, *inputs; /* [nd_weight_channels(true)], [nd_weight_channels(false)] */
};

struct nd_exact_graph;
struct nd_linear_call;
struct nd_quick;

/* The channel of element i where scales are per channel, else 0. */
size_t nd_exact_channel(const struct nd_quant *quant, const struct nd_shape *shape, size_t i);
/* How many of n elements, at least 1, follow each other in one channel of the scales. */
size_t nd_exact_inner(const struct nd_quant *quant, const struct nd_shape *shape, size_t n);

/* How a layer was evaluated. */
enum nd_exact_method {
    ND_EXACT_AS_RATIO,  /* its exact value as a quotient of exact numbers, rounded once */
    ND_EXACT_AS_DOUBLE, /* its operators in double precision, then rounded */
    ND_EXACT_AS_MADE,   /* by nd_exact_options.make */
};

/* The exact values of one layer, in steps of its output. Borrowed for the call. */
struct nd_exact_values {
    size_t tensor;
    const struct nd_shape *shape;
    size_t n;
    const struct nd_ratio *v; /* [n]; NULL where quick has them */
    const struct nd_quick
        *quick; /* arithmetic/exact/linear/quick.h; NULL where v has them, and always without takes_quick */
    const struct nd_quant *quant; /* of the output */
    enum nd_dtype dtype;          /* of the quantised values */
    enum nd_exact_method method;
};
/* Where an input of a layer comes from, however it was moved about on the way (Reshape, Transpose...). */
enum nd_exact_origin {
    ND_EXACT_FROM_CONSTANT,
    ND_EXACT_FROM_INPUT, /* of the graph */
    ND_EXACT_FROM_LAYER, /* an operator that calculates */
};
struct nd_exact_link; /* arithmetic/exact/linear/linear_layer.h */
/* Of every operator so many can be asked for (a product's, with its bias), however few a wrong model gives it.
 */
enum { ND_EXACT_LEAST_OPERANDS = 3 };
/* One layer with its inputs, for who makes its quantised values without exact values. Borrowed for the call.
 * With makes_floats also an operator between layers, whose dtype is ND_DTYPE_F32 and whose call->out_quant has
 * n 0: then these are its floats. */
struct nd_exact_layer {
    size_t tensor;
    const struct nd_linear_call *call; /* arithmetic/exact/linear/linear_layer.h: operator, quantised values of
                                          inputs, quantisations, bounds */
    const enum nd_exact_origin *origins; /* [call->n_inputs, or ND_EXACT_LEAST_OPERANDS if that is more]; of an
                                            omitted input ND_EXACT_FROM_CONSTANT */
    const size_t *input_tensors; /* of the same length: the tensors that are read, SIZE_MAX for constants */
    enum nd_dtype dtype;         /* of the quantised values */
    const struct nd_exact_link
        *links;     /* [n_links] the operators from the quantised inputs on, call->node the last */
    size_t n_links; /* 0: there are too many, or a bias is joined */
};
/* Makes the quantised values of a layer (an array that is zeroed before and freed by who asked), or leaves
 * *is_made false: then the layer is worked out and rounded as always. */
typedef enum nd_status nd_exact_make(void *context, const struct nd_exact_layer *layer,
                                     struct nd_array *qvalues, bool *is_made, struct nd_error *err);

/* Makes the quantised values of a layer, whole numbers within the type: codes->x[n], made by the caller.
 * Fractions are allowed, too: a value that was not requantised. Where is_real is set for the tensor, they are
 * real values and codes->dtype is ND_DTYPE_F32. */
typedef enum nd_status nd_exact_rounding(void *context, const struct nd_exact_values *values,
                                         struct nd_array *qvalues, struct nd_error *err);

/* Told of a tensor that cannot be evaluated, and of the reason: its operator is not covered, or refuses what it
 * reads (ND_ERR_UNSUPPORTED, ND_ERR_FORMAT), or what is given for the tensor has another shape; or, under
 * ND_E_EXACT_UNKNOWN, it reads `object`, a tensor that is not known. What it returns other than ND_OK ends the
 * run. */
typedef enum nd_status nd_exact_missed(void *context, size_t tensor, const struct nd_error *why,
                                       struct nd_error *err);

/* Fills out[n] with the values that are given for the tensor. */
typedef void nd_exact_give(void *context, size_t tensor, double *out);

struct nd_exact_options {
    size_t struct_size;
    enum nd_rounding rounding; /* of every layer */
    nd_exact_rounding *round;  /* takes the place of rounding; called with the context of the run. NULL: none */
    bool takes_quick;          /* `round` takes values that were left quick */
    nd_exact_make *make; /* asked first, for every layer that reads quantised values; called with the context of
                            the run. NULL: none */
    bool makes_floats;   /* and for every operator between layers that makes one tensor of floats */
    const struct nd_array
        *given;          /* [n_edges] or NULL: quantised values (or floats) that are read in place of computed
                            ones; n = 0 with shape.rank < 0: none for that tensor. Borrowed. */
    nd_exact_give *give; /* asked for the values of arrays in `given` that have none (x = NULL, n > 0);
                            called with the context of the run. NULL: all have theirs */
    const bool *is_skipped; /* [n_edges] or NULL: layers that are given and need not be computed: neither
                               round nor found nor missed is called for them */
    const bool *is_ignored; /* [n_edges] or NULL: layers that nobody reads in this run: neither computed nor
                               told of. Only where nd_exact_graph_is_pure, and in models without quantisers */
    const struct nd_array *const *replaced; /* [n_tensors of the graph] or NULL: what operators read in the
                                               place of constants (nd_exact_constant.tensor); NULL: the model's.
                                               Borrowed */
    size_t changed_node;                    /* a node of nd_exact_layer_node, */
    const void *changed_proto; /* and the Onnx__NodeProto, of the same inputs, that is run in its place; NULL:
                                  none is changed. Borrowed */
    const bool *is_real;     /* [n_edges] or NULL: tensors of which `round` and `given` have real values in the
                                place     of codes: what reads them takes these as they are */
    nd_exact_missed *missed; /* called in the place of found; then the tensor has the values that are given,
                                or else is not known, nor is what reads it. NULL: such a tensor ends the run */
};

/* Prepares a model: constants are decoded, and what is computed from constants only is computed. All dimensions
 * must be fixed. The model is borrowed and must outlive the graph. An operator that is not covered is met in
 * the run, constant or not. ND_ERR_FORMAT, ND_ERR_IO, ND_ERR_MEMORY; ND_ERR_UNSUPPORTED where
 * dimensions are open. */
enum nd_status nd_exact_graph_create(const struct nd_model *model, struct nd_exact_graph **out,
                                     struct nd_error *err);
/* The same, but large constants are kept only up to limit_bytes; the others are read from the model again when
 * they are needed, and held as long: the largest of them, for each thread, comes on top. The results are the
 * same. */
enum nd_status nd_exact_graph_create_within(const struct nd_model *model, size_t limit_bytes,
                                            struct nd_exact_graph **out, struct nd_error *err);
size_t nd_exact_graph_kept_bytes(const struct nd_exact_graph *graph);
void nd_exact_graph_destroy(struct nd_exact_graph **graph);

/* The values of a constant that this graph has told of (nd_exact_constant, nd_float_node) are there from hold
 * to release only; its shape and type always are. NULL: nothing is done. Several threads may call. ND_ERR_IO,
 * ND_ERR_MEMORY: it is not held. */
enum nd_status nd_exact_hold(const struct nd_exact_graph *graph, const struct nd_array *constant,
                             struct nd_error *err);
void nd_exact_release(const struct nd_exact_graph *graph, const struct nd_array *constant);

/* Whether all that is computed from the inputs is layers and their quantisers: no floats lie between layers. */
bool nd_exact_graph_is_pure(const struct nd_exact_graph *graph);

/* What a step of the integer accumulator of a layer is worth, sum (x - zero) (w - zero) + bias of a Conv, Gemm
 * or MatMul: the product of the two scales. *out[*n], by output channel (Conv: axis 1, else the last) or one
 * for all, is freed by the caller. ND_ERR_UNSUPPORTED (ND_E_EXACT_OPERATOR): the tensor is not made by such a
 * layer. */
enum nd_status nd_exact_accumulator_steps(const struct nd_exact_graph *graph, size_t tensor,
                                          struct nd_wide **out, size_t *n, struct nd_error *err);

/* A constant that an operator of a layer reads: floats, or quantised values after their DequantizeLinear.
 * Borrowed from the graph: nd_exact_hold before values are read. */
struct nd_exact_constant {
    size_t tensor;                  /* that the operator reads: its place in nd_exact_options.replaced */
    const char *name;               /* of that tensor */
    const char *node, *op_type;     /* the operator */
    size_t input;                   /* of the operator */
    bool is_bias;                   /* it is added to the products of a Conv, ConvTranspose or Gemm */
    int channel_axis;               /* of the output channels of weights; -1: none is known */
    const struct nd_array *real;    /* what the operator reads */
    const struct nd_array *qvalues; /* NULL: the model keeps floats */
    const struct nd_quant *quant;   /* of the quantised values; NULL without quantised values */
    enum nd_dtype dtype;            /* of the quantised values */
};

/* The input of the model that the tensor quantises, as it is or in another shape (Reshape, Squeeze ...) with
 * its elements in the same order. SIZE_MAX: it quantises something else, or is not quantised. */
size_t nd_exact_input_behind(const struct nd_exact_graph *graph, size_t tensor);

/* The constants of the layer that makes the tensor, in graph order: at most capacity. How many. */
size_t nd_exact_layer_constants(const struct nd_exact_graph *graph, size_t tensor,
                                struct nd_exact_constant *out, size_t capacity);
/* Operator k of the layer that makes the tensor, in graph order, and what the model has for it (an
 * Onnx__NodeProto, borrowed); ND_NO_INDEX: there are no more. */
size_t nd_exact_layer_node(const struct nd_exact_graph *graph, size_t tensor, size_t k, const void **proto);

/* The constant that `constant` was before it was quantised, in the graph of the float model: the one of the
 * same name, or the same input of the node of the same name. NULL: there is none of that shape. Borrowed, as
 * above. */
const struct nd_array *nd_exact_constant_before(const struct nd_exact_graph *float_graph,
                                                const struct nd_exact_constant *constant);
/* The same as a tensor of that graph; ND_NO_INDEX: none. */
size_t nd_exact_tensor_before(const struct nd_exact_graph *float_graph,
                              const struct nd_exact_constant *constant);
/* The values of a tensor that is constant, quantised values after their DequantizeLinear; NULL: it is not.
 * Borrowed. */
const struct nd_array *nd_exact_constant_values(const struct nd_exact_graph *graph, size_t tensor);

/* From now on the constant has these values times the factors, also where it is read from the model again. The
 * tensor is constant, no DequantizeLinear makes it, and one node reads it, which runs with the samples; axes
 * are those of its shape. Factors are copied. Before any run, and once for each constant. ND_ERR_MEMORY. */
enum nd_status nd_exact_graph_scale(struct nd_exact_graph *graph, size_t tensor,
                                    const struct nd_weight_axes *axes, const struct nd_weight_factors *factors,
                                    struct nd_error *err);

/* The node computes as if channel c (of n, axis 1) of its first input were smaller by factors[c], and its only
 * output is larger by as much: a Clip whose bounds follow the channels. Copied; before any run. ND_ERR_MEMORY.
 */
enum nd_status nd_exact_graph_scale_node(struct nd_exact_graph *graph, size_t node, const double *factors,
                                         size_t n, struct nd_error *err);

/* Evaluates one sample. inputs[nd_model_n_inputs]: arrays of the inputs' shapes (quantised values where an
 * input is of quantised values). For every tensor that is computed, in graph order of the nodes that make them,
 * found(context, tensor, values, way) is called with the quantised values (or floats) of that tensor; values
 * are borrowed for the call. An error that it returns ends the run and is returned. found may be NULL. Several
 * threads may run one graph. options NULL: round half to even, nothing given. ND_ERR_UNSUPPORTED
 * (ND_E_EXACT_OPERATOR): an operator that is not covered, the message names the node; with options.missed that
 * costs the tensors that depend on it, not the run. ND_ERR_FORMAT, ND_ERR_MEMORY. */
typedef enum nd_status nd_exact_found(void *context, size_t tensor, const struct nd_array *values,
                                      enum nd_exact_method method, struct nd_error *err);
enum nd_status nd_exact_graph_run(const struct nd_exact_graph *graph, const struct nd_array *inputs,
                                  const struct nd_exact_options *options, nd_exact_found *found, void *context,
                                  struct nd_error *err);
