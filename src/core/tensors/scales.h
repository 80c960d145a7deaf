/* Quantisation parameters (struct nd_quant): copied, freed, laid over a tensor. */
#pragma once

#include "core/error.h"
#include "npudiff/core/tensor.h"

/* Frees the arrays; then it is that of a tensor that is not quantised. A zeroed one is accepted. */
void nd_quant_deinit(struct nd_quant *quant);

/* *to, which holds nothing yet, gets arrays of its own. ND_ERR_MEMORY: *to is as it was. */
enum nd_status nd_quant_copy(const struct nd_quant *from, struct nd_quant *to, struct nd_error *err);

/* Whether both have one scale, and scale and zero point are equal. NULL has none. */
bool nd_quant_is_same(const struct nd_quant *a, const struct nd_quant *b);

/* Whether quantised values can have the type: integers of at most 32 bits. */
bool nd_dtype_is_of_qvalues(enum nd_dtype dtype);

/* Whether there are scales, and each is above 0 and finite. */
bool nd_quant_is_sound(const struct nd_quant *quant);

/* How many neighbouring elements share a scale: element i has scale i / inner % quant->n. At least 1. */
size_t nd_quant_inner(const struct nd_quant *quant, const struct nd_shape *shape);
