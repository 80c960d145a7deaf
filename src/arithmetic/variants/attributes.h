/* Operators with another attribute than the model gives them: what devices are known to take for it, as data.
 */
#pragma once

#include "model/graph/onnx.h"
#include "npudiff/core/tensor.h"

enum nd_attribute_type {
    ND_ATTRIBUTE_TEXT,
    ND_ATTRIBUTE_APPROXIMATION, /* a text: devices choose it for speed, which is no fault */
    ND_ATTRIBUTE_WHOLE,         /* a whole number */
    ND_ATTRIBUTE_AXES,          /* a list of one axis; since opset 13 or 18 it is the operand 1 */
    ND_ATTRIBUTE_MIRRORED,      /* begins and ends of a padding, exchanged */
    ND_ATTRIBUTE_BY_AXIS,  /* a list of one number for each axis: the words are "1", "first", "last" (that of
                              this axis for all) and "exchanged" */
    ND_ATTRIBUTE_OPERATOR, /* another operator that takes the same inputs */
    ND_ATTRIBUTE_REAL,     /* a number that is to be solved for */
};

/* What an attribute may be. */
struct nd_attribute_row {
    const char *op_types; /* words */
    const char *name;
    enum nd_attribute_type type;
    const char
        *values; /* words, the default first: "" where the opset decides; NULL: of ND_ATTRIBUTE_MIRRORED */
};

/* The rows of an operator: the first one from *at on, which becomes its place; NULL: there is none. Static. */
const struct nd_attribute_row *nd_attribute_row_of(const Onnx__NodeProto *node, size_t *at);

/* A node with another attribute; borrows from the one that it is made of, and must not be moved. */
struct nd_changed_node {
    Onnx__NodeProto node;
    Onnx__AttributeProto changed, pads; /* pads: at the ends, so that other dilations give the same shape */
    Onnx__AttributeProto *list[32];
    char text[32]; /* the value, as a word */
    int64_t ints[2 * ND_MAX_RANK], pad_ints[2 * ND_MAX_RANK];
};

/* Value k of the row in the node. False: there is no such value, or the node cannot have it, or has it. */
bool nd_attribute_change(const Onnx__NodeProto *node, const struct nd_attribute_row *row, size_t k,
                         struct nd_changed_node *out);
/* The node's own value as a word; "" where it has none, and the opset decides. Returns buf. */
const char *nd_attribute_own(const Onnx__NodeProto *node, const struct nd_attribute_row *row, char buf[32]);
