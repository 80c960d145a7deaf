/* A folded copy while it is made: for fold.c and fold.c. */
#ifndef ND_REWRITE_FOLDER_H
#define ND_REWRITE_FOLDER_H

#include "model/rewrite/requantise_model.h"

/* A constant as real numbers. */
struct nd_fold_constant {
    double *x; /* owned */
    size_t n;
    const int64_t *dims;
    size_t rank;
};

/* What becomes one layer. */
struct nd_fold_chain {
    size_t norm, add, product; /* nodes; add may be ND_NO_INDEX */
    size_t between[4];         /* their quantisers */
    size_t n_between;
    struct nd_fold_constant weights;
    double *bias; /* [n_channels] of the new layer */
    size_t n_channels;
};

struct nd_folder {
    struct nd_requantiser r;
    size_t n_folded;
};

#endif
