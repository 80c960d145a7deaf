/* Cross-layer equalisation: factors of the channels between two layers with which both use the one scale of
 * their weights well, and the quantised model that has them. */
#ifndef ND_QUANTISATION_EQUALISE_H
#define ND_QUANTISATION_EQUALISE_H

#include "quantisation/study.h"

/* The weights, biases and ranges of a model in which some pairs of layers were equalised, quantised as before.
 */
struct nd_equalised {
    size_t n_changes, n_values, n_layers;
    struct nd_change *changes;
    struct nd_array *values; /* that the changes borrow */
    double least, most;      /* factors by which channels became smaller */
};

/* pairs[n]: of study->pairs, in their order. deinit in any case, also of a zeroed one. ND_ERR_MEMORY. */
enum nd_status nd_equalise(const struct nd_study *study, const size_t *pairs, size_t n,
                           struct nd_equalised *out, struct nd_error *err);
void nd_equalised_deinit(struct nd_equalised *equalised);

#endif
