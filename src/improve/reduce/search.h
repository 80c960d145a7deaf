/* The parts that delta debugging leaves out or keeps: layers, and operators that lie in none. */
#ifndef ND_REDUCE_PIECES_H
#define ND_REDUCE_PIECES_H

#include "core/error.h"
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

/* Delta debugging: a smallest set of parts that still does what all of them together do. */

enum nd_trial {
    ND_TRIAL_SAME, /* it does the same: go on with this one */
    ND_TRIAL_NOT,  /* it does not, or something else */
    ND_TRIAL_STOP, /* there may be no more trials */
};

/* Tries a set of parts, given in rising order. A status other than ND_OK ends the search with it. */
typedef enum nd_status (*nd_trial_function)(void *context, const size_t *parts, size_t n, enum nd_trial *out,
                                            struct nd_error *err);

/* Shrinks parts[*n] (in rising order, known to do the same) in place. Halves first, in order, then ever smaller
 * pieces and what is left without them. *is_minimal: ended because no part can be left out alone; false after
 * ND_TRIAL_STOP. At most O(n^2) trials; log2(n) pairs where a single part is responsible. */
enum nd_status nd_ddmin(size_t *parts, size_t *n, nd_trial_function test, void *context, bool *is_minimal,
                        struct nd_error *err);

/* Sets that were tried, and what came of it. Zeroed is empty. */
struct nd_trials {
    struct nd_trial_entry *entries;
    size_t n, capacity;
};
/* False when the set was not tried yet. */
bool nd_trials_find(const struct nd_trials *trials, const size_t *parts, size_t n, enum nd_trial *out);
enum nd_status nd_trials_add(struct nd_trials *trials, const size_t *parts, size_t n, enum nd_trial trial,
                             struct nd_error *err);
void nd_trials_deinit(struct nd_trials *trials);

#endif
