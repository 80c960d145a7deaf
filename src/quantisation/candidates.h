/* Remedies of layers while they are looked for. */
#ifndef ND_QUANTISATION_CANDIDATES_H
#define ND_QUANTISATION_CANDIDATES_H

#include "quantisation/equalise.h"
#include "quantisation/study.h"

enum {
    ND_MAX_CANDIDATES = 16, /* of one layer: chosen, each is a run of the model */
    ND_MAX_TIED = 16,       /* tensors that only move the values of another one on */
};

/* A remedy with the changes that it is made of. */
struct nd_candidate {
    size_t step;
    struct nd_remedy remedy;
    struct nd_change changes[ND_MAX_TIED];
    struct nd_array values[ND_LOSS_CONSTANTS]; /* of changed constants */
    struct nd_equalised equalised;             /* of ND_REMEDY_EQUALISE: what the changes borrow */
    size_t n_changes;                          /* 0: it does not help */
    size_t watched; /* the step whose error own_gain_db is about, measured with the outputs; SIZE_MAX: it is
                       known already */
};

struct nd_search {
    struct nd_study *study;
    struct nd_candidate *candidates; /* room for ND_MAX_CANDIDATES of each layer */
    size_t n;
};

void nd_search_deinit(struct nd_search *search);

/* Whether one of the changes is about a tensor that one of the trial changes. */
bool nd_trial_overlaps(const struct nd_trial *trial, const struct nd_change *changes, size_t n_changes);

/* Adds what could help the layer: remedies with own_gain_db, not measured at the outputs. ND_ERR_MEMORY. */
enum nd_status nd_find_candidates(struct nd_search *search, size_t step, struct nd_error *err);

/* Adds that remedy of the layer, if it helps the tensor or the weights: ND_REMEDY_WEIGHT_CHANNELS,
 * ND_REMEDY_16_BITS, or ND_REMEDY_RANGE, which takes a mask constant out of the range. */
enum nd_status nd_find_candidate(struct nd_search *search, size_t step, enum nd_remedy_kind kind,
                                 struct nd_error *err);

#endif
