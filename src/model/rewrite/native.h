/* A copy of a model that takes and gives what an NPU does: quantised values at its ends, under names that are
 * safe as names of files and in C. */
#pragma once

#include "model/graph/parts.h"
#include "npudiff/model/model.h"

/* Copies of a model that show some tensors as floats. */

/* Writes a copy as nd_model_write_exposed does, but with the floats that nd_model_find_dequantised names as the
 * output for every tensor of which as_floats is true. as_floats: one for each tensor of the model; NULL: none.
 * An tensor has to have such floats. */
enum nd_status nd_model_write_shown(const struct nd_model *model, const size_t *tensors, size_t n_tensors,
                                    const bool *as_floats, const char *path, struct nd_error *err);

/* One input or output of the copy. */
struct nd_native_end {
    size_t index; /* of the model's input (nd_model_input), or of its tensor */
    char *tensor; /* what the model calls it: the QuantizeLinear's output where an input is quantised first */
    char *name;   /* what the copy calls it */
};

struct nd_native {
    struct nd_native_end *inputs;
    size_t n_inputs;
    struct nd_native_end *outputs;
    size_t n_outputs;
};
void nd_native_deinit(struct nd_native *native);

/* The name with every byte but ASCII letters, digits and '_' made '_', and '_' in front of a leading digit; "_"
 * for "". New memory; NULL when out of memory. */
char *nd_native_name(const char *name);

/* Writes a model whose outputs are these tensors, as nd_model_write_exposed, and from which the QuantizeLinear
 * of each input is gone that only such a node reads: the input then takes quantised values. Inputs that nothing
 * reads any more are gone, too. Its ends are called by nd_native_name of the tensor; tensors inside that have
 * such a name are called otherwise. The same call writes the same bytes. A tensor must not be an input of the
 * model or what quantises one.
 *
 * ND_E_PREPARE_NAMES when two ends would have one name (the message names both); otherwise fails as
 * nd_model_write_exposed. nd_native_deinit frees *out, which is untouched on failure. */
enum nd_status nd_model_write_native(const struct nd_model *model, const size_t *tensors, size_t n_tensors,
                                     const char *path, struct nd_native *out, struct nd_error *err);
