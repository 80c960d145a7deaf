/* The order in which a dot product is summed: a tree whose leaves are the products, in the order of their
 * positions. A node with more than two children adds them at once (a fused or multi-way adder). */
#ifndef ND_ARITH_ACCUMULATE_ORDER_H
#define ND_ARITH_ACCUMULATE_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ND_SUM_MAX_TERMS = 64, ND_SUM_ORDER_NAME_BYTES = 24 };

enum nd_sum_order_kind {
    ND_SUM_SEQUENTIAL, /* ((0 + 1) + 2) + 3 ... */
    ND_SUM_REVERSED,   /* the last product first */
    ND_SUM_PAIRWISE,   /* neighbours, then neighbouring pairs ... */
    ND_SUM_HALVING,    /* i with i + n/2, then i with i + n/4 ... */
    ND_SUM_LANES,      /* lane l sums l, l + width, l + 2 width ...; then the lanes pairwise */
    ND_SUM_BLOCKS,     /* width neighbours in sequence; the sums of the blocks in sequence */
    ND_SUM_TREES,      /* width neighbours pairwise; the sums of the blocks in sequence */
    ND_SUM_FUSED,      /* the running sum and the next width products at once */
    ND_SUM_GIVEN,      /* a tree that comes from elsewhere: nd_sum_tree_of refuses it */
};

struct nd_sum_order {
    enum nd_sum_order_kind kind;
    int width; /* of LANES, BLOCKS, TREES and FUSED: 1 to ND_SUM_MAX_TERMS; else 0 */
};

/* "sequential", "lanes:8", "fused:16" ... */
const char *nd_sum_order_name(const struct nd_sum_order *order, char buf[ND_SUM_ORDER_NAME_BYTES]);

/* Slots 0 to n_terms - 1 are the products, those behind them the nodes, children before parents; the last slot
 * is the sum. The children of node k are children[first[k]] to children[first[k + 1] - 1]. */
struct nd_sum_tree {
    size_t n_terms;
    size_t n_nodes;
    uint16_t first[ND_SUM_MAX_TERMS + 1];
    uint16_t children[2 * ND_SUM_MAX_TERMS];
};

/* n_terms is 1 to ND_SUM_MAX_TERMS. One term is one node with one child. A width beyond n_terms is n_terms. */
void nd_sum_tree_of(const struct nd_sum_order *order, size_t n_terms, struct nd_sum_tree *out);

/* Whether the two add the same terms in the same places; the order of a node's children does not count. Both
 * are to come from nd_sum_tree_of or nd_sum_tree_canonical order: nodes are matched by the leaves below. */
bool nd_sum_tree_equal(const struct nd_sum_tree *a, const struct nd_sum_tree *b);

/* l[i * n_terms + j]: how many leaves lie under the lowest node above both i and j (1 where i = j). */
void nd_sum_tree_joins(const struct nd_sum_tree *tree, uint8_t *l);

/* The tree of such a table; false when no tree has it. */
bool nd_sum_tree_from_joins(const uint8_t *l, size_t n_terms, struct nd_sum_tree *out);

/* "((0 1) (2 3))" into buf, cut to fit, always terminated. */
void nd_sum_tree_format(const struct nd_sum_tree *tree, char *buf, size_t buf_size);

#endif
