/* The parts that delta debugging leaves out or keeps: layers, and operators that lie in none. */
#ifndef ND_REDUCE_PIECES_H
#define ND_REDUCE_PIECES_H

#include "npudiff/model/model.h"

struct nd_piece {
    size_t *nodes; /* in graph order; what comes along by itself (nd_model_write_subgraph) is not listed */
    size_t n_nodes;
};

struct nd_pieces {
    struct nd_piece *items; /* in graph order of their last nodes */
    size_t n;
};

/* Every layer; every other node that computes something from the inputs. nd_pieces_deinit in any case. */
enum nd_status nd_pieces_of_layers(const struct nd_model *model, struct nd_pieces *out, struct nd_error *err);

void nd_pieces_deinit(struct nd_pieces *pieces);

/* The nodes of the given pieces together, in graph order. The caller frees *nodes. */
enum nd_status nd_pieces_nodes(const struct nd_pieces *pieces, const size_t *parts, size_t n_parts,
                               size_t **nodes, size_t *n_nodes, struct nd_error *err);

/* Whether the node is an operator: neither QuantizeLinear nor DequantizeLinear, not computed from constants. */
bool nd_node_is_operator(const struct nd_model *model, size_t node);

#endif
