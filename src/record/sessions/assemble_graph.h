/* The edges and nodes of a capture: what the model said of them, joined with what the agent saw. */
#ifndef ND_RECORD_ASSEMBLE_GRAPH_H
#define ND_RECORD_ASSEMBLE_GRAPH_H

#include "record/sessions/assemble.h"
#include "record/sessions/spool_index.h"

struct nd_assembled_graph {
    struct nd_edge *edges; /* with the type and shape that the first run produced */
    size_t n_edges;
    const char **providers;        /* of each edge, in the pass that recorded it; "" when unknown */
    struct nd_capture_node *nodes; /* placement of pass 0 */
    size_t n_nodes;
    struct nd_capture_node *later_nodes; /* of the other passes */
    size_t n_later_nodes;
};

enum nd_status nd_assembled_graph_init(struct nd_assembled_graph *graph, const struct nd_assembly *assembly,
                                       const struct nd_spool_index *index, struct nd_error *err);
void nd_assembled_graph_deinit(struct nd_assembled_graph *graph);

#endif
