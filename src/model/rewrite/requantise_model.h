/* The parts that a quantised copy of a model is made of. */
#pragma once

#include "model/graph/loaded.h"
#include "npudiff/model/model.h"

struct nd_new_node {
    const char *op_type;
    const char *input;
    const char *output;
    int axis; /* -1: per tensor */
};

struct nd_model_requantiser {
    const struct nd_model *model;
    void **kept; /* blocks of memory that the copy refers to */
    size_t n_kept, kept_capacity;

    /* [n_tensors]: the names under which a tensor is read, and made, in the copy; NULL: its own */
    const char **read_as;
    const char **made_as;
    const char *
        *use_as;      /* [graph.n_uses] or NULL: the name of what one node reads at one place, before read_as */
    bool *is_dropped; /* [n_nodes] or NULL: nodes that the copy lacks; new ones make what they made */
    bool *forgets;    /* [n_tensors] or NULL: tensors of another type than the model declares */
    size_t behind;    /* the node behind which new ones go; ND_NO_INDEX: in front of all */

    Onnx__NodeProto **new_nodes;
    size_t *new_behind; /* beside new_nodes */
    size_t n_new_nodes;
    Onnx__TensorProto **new_initializers;
    size_t n_new_initializers;
    bool needs_contrib; /* a node of domain com.microsoft */
};

/* Zeroed but for model before. Call nd_requantiser_deinit in any case. */
enum nd_status nd_requantiser_init(struct nd_model_requantiser *r, size_t n_items, struct nd_error *err);
void nd_requantiser_deinit(struct nd_model_requantiser *r);

/* Zeroed memory that lives as long as the copy; NULL: out of memory. */
void *nd_requantiser_keep(struct nd_model_requantiser *r, size_t size_bytes);

/* tensor and suffix as one name; ND_E_MODEL_UNSUPPORTED when the model has such a tensor already. */
enum nd_status nd_requantiser_new_name(struct nd_model_requantiser *r, const char *tensor, const char *suffix,
                                       char **out, struct nd_error *err);

/* Borrowed: name, dims and data live as long as the copy. */
struct nd_new_initializer {
    const char *name;
    int32_t elem_type; /* ONNX's number */
    const int64_t *dims;
    size_t rank;
    const void *data;
    size_t size_bytes;
};
enum nd_status nd_requantiser_add_initializer(struct nd_model_requantiser *r,
                                              const struct nd_new_initializer *added, struct nd_error *err);

/* "<tensor>_scale" and "<tensor>_zero_point". */
enum nd_status nd_requantiser_add_parameters(struct nd_model_requantiser *r,
                                             const struct nd_quantised_tensor *item, struct nd_error *err);

/* A QuantizeLinear or DequantizeLinear with these parameters, called "<tensor>_<operator>", behind r->behind.
 * It is of domain com.microsoft where the default one of the model's opset cannot do it: so nothing else
 * changes its meaning. */
enum nd_status nd_requantiser_add_node(struct nd_model_requantiser *r, const struct nd_quantised_tensor *item,
                                       const struct nd_new_node *node, struct nd_error *err);

enum nd_status nd_requantiser_write(struct nd_model_requantiser *r, const char *path, struct nd_error *err);

/* ---- copies of a quantised model in which a BatchNormalization of its own is part of the ConvTranspose
 * before it ---- */

/* Writes the copy. A BatchNormalization is folded if its constants are known, and if it reads a ConvTranspose
 * of one group with constant weights through one QuantizeLinear and DequantizeLinear, with or without an Add of
 * a constant for each channel (and its quantisers) between, and nobody else reads what lies between. The
 * weights get int8 quantised values and one scale (the arithmetic of a ConvTranspose with several is not
 * known), the bias int32 quantised values in steps of input times weights. The layers between are gone; the
 * output keeps its name and its quantiser. *n_folded: how many; 0: nothing is written. External data is placed
 * as by nd_model_write_exposed. Errors: nd_model_write_whole's. */
enum nd_status nd_model_write_folded(const struct nd_model *model, const char *path, size_t *n_folded,
                                     struct nd_error *err);
