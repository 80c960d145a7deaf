/* What the files of conditions share. model is nullable everywhere. */
#ifndef ND_ARITH_CONDITIONS_INTERNAL_H
#define ND_ARITH_CONDITIONS_INTERNAL_H

#include "arithmetic/known/conditions.h"

/* Input i; NULL: there is none, or its values are not known. Borrowed. */
const struct nd_array *nd_condition_input(const struct nd_exact_unit *unit, size_t i);

/* Whether the unit makes 16 bits. */
bool nd_condition_is_wide(const struct nd_exact_unit *unit);

/* Whether the attribute, or otherwise this, is the value. */
bool nd_condition_has_text(const struct nd_exact_unit *unit, const char *name, const char *otherwise,
                           const char *value);

/* Whether an operator of that type alone makes the first operand. */
bool nd_condition_reads(const struct nd_model *model, const struct nd_exact_unit *unit, const char *op_type);

bool nd_condition_is_named(const char *op_types, const char *const *names, size_t n);

/* ---- conditions_moved.c: of operators that read what was cut, padded, moved or joined ---- */

typedef bool nd_condition(const struct nd_model *model, const struct nd_exact_unit *unit);
nd_condition nd_is_mean_of_padded, nd_is_concat_with_input, nd_is_norm_of_slice, nd_is_pool_of_floats,
    nd_is_mean_of_shifted, nd_is_gather_of_last, nd_is_pad_of_kept, nd_is_concat_of_kept, nd_is_pool_of_padded,
    nd_is_pad_of_pad, nd_is_depth_of_kept;

#endif
