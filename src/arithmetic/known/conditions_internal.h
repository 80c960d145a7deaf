/* What the files of conditions share. model is nullable everywhere. */
#ifndef ND_ARITH_CONDITIONS_INTERNAL_H
#define ND_ARITH_CONDITIONS_INTERNAL_H

#include "arithmetic/known/conditions.h"

/* ---- conditions.c: of operators that read what was cut, padded, moved or joined ---- */

typedef bool nd_condition(const struct nd_model *model, const struct nd_exact_layer *layer);
nd_condition nd_is_mean_of_padded, nd_is_concat_with_input, nd_is_norm_of_slice, nd_is_pool_of_floats,
    nd_is_mean_of_shifted, nd_is_gather_of_last, nd_is_pad_of_kept, nd_is_concat_of_kept, nd_is_pool_of_padded,
    nd_is_pad_of_pad, nd_is_depth_of_kept;

#endif
