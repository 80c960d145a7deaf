/* ONNX operators in double precision, as the ONNX specification defines them. One file per family, which lists
 * its operators; ops.c has the families. */
#pragma once

#include "arithmetic/operators/array.h"
#include "arithmetic/operators/kernels/short_products.h"
#include "model/graph/onnx.h"

/* One node at work. Inputs that were omitted are NULL; inputs and attributes are borrowed. Outputs are zeroed
 * arrays that the operator makes with nd_array_make (an omitted output is NULL and need not be made). */
struct nd_op_call {
    const Onnx__NodeProto *node;
    int64_t opset;
    size_t n_inputs, n_outputs;
    const struct nd_array *const *inputs;
    struct nd_array *const *outputs;
    /* Where inputs 0 and 1 are whole numbers and somebody has prepared input 1: what is known of it. NULL:
     * nothing. */
    const struct nd_op_shorts *shorts;
    /* Constants alone are read: runtimes work these out beforehand, in the types that the model gives them. */
    bool is_folded;
};

struct nd_op {
    const char *domain; /* "" or "com.microsoft" */
    const char *op_type;
    size_t n_required; /* inputs that must be there */
    enum nd_status (*run)(const struct nd_op_call *call, struct nd_error *err);
};

/* The operator, or NULL when it is none that is known here. */
const struct nd_op *nd_op_find(const char *domain, const char *op_type);

/* Whether each element of the only output is a function of that element of the only input. */
bool nd_op_is_function(const Onnx__NodeProto *node);

/* Runs one node: checks that required inputs are there. ND_ERR_UNSUPPORTED (ND_E_EXACT_OPERATOR): an operator,
 * attribute or opset behaviour that is not covered, an omitted first output, or an integer over 2^53 that would
 * be made; the message names node, operator and what. ND_ERR_FORMAT (ND_E_EXACT_SHAPE, or that of a bad shape):
 * shapes, indices or attributes that do not fit together. ND_ERR_MEMORY. On failure outputs may have been made:
 * the caller frees them in any case. Several threads may run nodes. */
enum nd_status nd_op_run(const struct nd_op_call *call, struct nd_error *err);

/* Attributes, with the specification's default where they are absent. */
double nd_op_f(const struct nd_op_call *call, const char *name, double otherwise);
int64_t nd_op_i(const struct nd_op_call *call, const char *name, int64_t otherwise);
/* ints: how many (0 when absent), and the borrowed values. */
size_t nd_op_ints(const struct nd_op_call *call, const char *name, const int64_t **values);
/* "" when absent. New memory is not needed: text of at most buf_size - 1 bytes, else cut. */
const char *nd_op_text(const struct nd_op_call *call, const char *name, char *buf, size_t buf_size);
