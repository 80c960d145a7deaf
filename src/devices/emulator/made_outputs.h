/* The outputs of a model, each of which is one of its tensors, and how they are handed out: quantised values
 * behind which a last DequantizeLinear stands as the floats that it makes of them. */
#pragma once

#include "arithmetic/operators/array.h"
#include "npudiff/model/model.h"

struct nd_made_output {
    enum nd_dtype dtype;          /* as it is handed out */
    const struct nd_quant *quant; /* of quantised values that are handed out as floats; else NULL. Borrowed */
    size_t next;                  /* another output of the same tensor; SIZE_MAX: none */
};

/* Zeroed is empty. */
struct nd_made_outputs {
    size_t n; /* as many as the model has, in its order */
    struct nd_made_output *items;
    size_t *last_of; /* [n_tensors of the model] an output that is the tensor; SIZE_MAX: none */
};

/* float_dtype: in which floats are handed out. The model is borrowed. ND_E_EXACT_OPERATOR: an output is no
 * tensor; ND_ERR_MEMORY. Call deinit in any case. */
enum nd_status nd_made_outputs_init(struct nd_made_outputs *outputs, const struct nd_model *model,
                                    enum nd_dtype float_dtype, struct nd_error *err);
void nd_made_outputs_deinit(struct nd_made_outputs *outputs);

/* The values of its tensor as they are handed out: values->n elements of output->dtype. */
void nd_made_output_store(const struct nd_made_output *output, const struct nd_array *values, void *bytes);
