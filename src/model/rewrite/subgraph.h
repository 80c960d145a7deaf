/* A part of a model: the nodes it consists of and the tensors at which it is cut. */
#ifndef ND_REWRITE_SUBGRAPH_H
#define ND_REWRITE_SUBGRAPH_H

#include "model/graph/loaded.h"

enum nd_subgraph_end { ND_SUBGRAPH_INSIDE, ND_SUBGRAPH_INPUT, ND_SUBGRAPH_OUTPUT };

/* Nodes and tensors are those of source->graph. */
struct nd_subgraph {
    const struct nd_model *source; /* borrowed */
    bool is_open;
    bool *is_asked;               /* [n_nodes] */
    bool *has_node;               /* [n_nodes]: asked for, or needed by one that is */
    bool *has_tensor;             /* [n_tensors] */
    enum nd_subgraph_end *end_of; /* [n_tensors] */
    size_t *inputs;               /* tensors that have to be fed, in the order of their first reader */
    size_t n_inputs;
    size_t *outputs; /* in the order of the nodes that make them */
    size_t n_outputs;
};

/* Finds what nd_model_write_subgraph documents. Call nd_subgraph_deinit in any case. */
enum nd_status nd_subgraph_init(struct nd_subgraph *part, const struct nd_model *model,
                                const struct nd_model_cut *cut, struct nd_error *err);
void nd_subgraph_deinit(struct nd_subgraph *part);

#endif
