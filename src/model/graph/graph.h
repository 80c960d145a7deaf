/* The graph of a model as an index: which node makes a tensor, which nodes read it, what is constant, what is
 * alive.
 *
 * Tensors and nodes are numbered; nodes as in the file, which ONNX requires to be in topological order. */
#pragma once

#include "core/text/strbuf.h"
#include "model/graph/onnx.h"

/* "No such thing" wherever an index is expected. */
#define ND_NO_INDEX SIZE_MAX

enum nd_node_kind { ND_NODE_OTHER, ND_NODE_QUANTIZE, ND_NODE_DEQUANTIZE };

struct nd_graph_node {
    const Onnx__NodeProto *proto;
    enum nd_node_kind kind;
    bool is_constant; /* it computes from constants only, and always the same */
    bool is_alive;    /* an output of the graph depends on it */
    size_t
        first_use;   /* in nd_graph.uses: its inputs, then what its subgraphs read from the graph around them */
    size_t n_inputs; /* explicit inputs, ND_NO_INDEX for an omitted one */
    size_t n_uses;   /* inputs and captured tensors together */
    size_t first_made; /* in nd_graph.made: its n_made outputs, ND_NO_INDEX for an omitted one */
    size_t n_made;
};

struct nd_graph_tensor {
    const char *name;
    size_t producer; /* node, or ND_NO_INDEX for inputs and initializers */
    size_t input;    /* index among the graph inputs of the protobuf; ND_NO_INDEX for all else */
    size_t output;   /* index among its graph outputs */
    const Onnx__TensorProto *initializer;   /* NULL without one, and for sparse ones */
    const Onnx__ValueInfoProto *value_info; /* as an input, output or value_info entry; nullable */
    bool is_constant;
    size_t first_reader; /* in nd_graph.readers: the live nodes that read it, in graph order */
    size_t n_readers;
};

struct nd_graph {
    const Onnx__GraphProto *proto;
    struct nd_names names; /* tensor name to tensor */
    struct nd_graph_tensor *tensors;
    size_t n_tensors, tensors_capacity;
    struct nd_graph_node *nodes;
    size_t n_nodes;
    size_t *uses;
    size_t n_uses, uses_capacity;
    size_t *made;
    size_t n_made, made_capacity;
    size_t *readers;
};

/* Puts the nodes of the graph, and of the graphs inside of its nodes, in an order in which each reads only what
 * earlier ones make; nodes that are in such an order stay. ND_E_MODEL_GRAPH: they form a circle. */
enum nd_status nd_graph_order(Onnx__GraphProto *graph, struct nd_error *err);

/* Of quantisers that read one tensor, scale and zero point, of which some tools write one for each reader, all
 * read the first, as ONNX Runtime has it: side by side they are two, and their maker runs in floats. */
enum nd_status nd_graph_join_quantisers(Onnx__GraphProto *graph, struct nd_error *err);

/* Indexes the graph, which must outlive *graph. ND_E_MODEL_GRAPH where it contradicts itself. Call
 * nd_graph_deinit in any case. */
enum nd_status nd_graph_init(struct nd_graph *graph, const Onnx__GraphProto *proto, struct nd_error *err);

/* Input or output i of a node: a tensor, or ND_NO_INDEX. */
size_t nd_graph_used(const struct nd_graph *graph, size_t node, size_t i);
size_t nd_graph_made(const struct nd_graph *graph, size_t node, size_t i);

/* Marks needed_nodes[] and needed_tensors[] (both zeroed by the caller) that the given tensors depend on. */
void nd_graph_walk_back(const struct nd_graph *graph, const size_t *tensors, size_t n_tensors,
                        bool *needed_nodes, bool *needed_tensors);

/* The value of an initializer, or of a Constant node's tensor; NULL for every other tensor. */
const Onnx__TensorProto *nd_graph_constant(const struct nd_graph *graph, size_t tensor);

/* The name that a node is known by: its own, else that of its first output, else its operator. */
const char *nd_graph_node_name(const Onnx__NodeProto *node);
