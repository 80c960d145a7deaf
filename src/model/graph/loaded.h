/* What a loaded model consists of. */
#pragma once

#include "model/graph/external.h"
#include "model/graph/graph.h"
#include "model/graph/parts.h"

struct nd_model {
    char *path;
    char sha256[ND_SHA256_HEX_BYTES];
    int64_t opset;
    Onnx__ModelProto *proto;
    struct nd_graph graph;
    struct nd_external external;

    struct nd_model_io *inputs; /* graph inputs without an initializer */
    size_t n_inputs;
    struct nd_model_io *outputs;
    size_t n_outputs;
    struct nd_model_node *nodes;

    struct nd_tensor *tensors;
    /* Beside each tensor: where its shape is declared (nullable), and what else is needed to analyse it. */
    const Onnx__TypeProto__Tensor **tensor_types;
    size_t n_tensors;
    size_t *tensor_of_value; /* [graph.n_tensors]: the tensor that a tensor is, or stands for; ND_NO_INDEX */

    struct nd_model_layer *layers;
    size_t n_layers;
    size_t *layer_of_tensor; /* [n_edges]: index of the layer that makes it, or ND_NO_INDEX */
    bool has_set_dims;       /* nd_model_set_dim has changed it */
};

/* The QuantizeLinear node into whose layer each node falls (ND_NO_INDEX: none). A node falls into a unit when
 * every live reader of what it makes does, it makes no graph output, and it depends on a quantised tensor or is
 * the last before the QuantizeLinear. A QuantizeLinear falls into its own layer, unless it quantises a graph
 * input or a constant. *out has n_nodes entries; the caller frees it. */
enum nd_status nd_layers_assign(const struct nd_graph *graph, size_t **out, struct nd_error *err);

/* Fills model->tensors, edge_types and tensor_edge. The caller passes what nd_layers_assign made. */
enum nd_status nd_tensors_find(struct nd_model *model, const size_t *layer_of_node, struct nd_error *err);
