/* Layers that a release of an SDK is known to compute wrongly, recognised by the operator, its attributes and
 * what it reads. */
#pragma once

#include <stdint.h>

#include "arithmetic/htp/htp.h"
#include "npudiff/model/model.h"

/* ND_LAYER_DEPTHWISE_1X1 and so on; arithmetic/known/defects.def says of each what layer it is. */
enum nd_layer_condition {
#define ND_DEFECT(condition, ...) ND_LAYER_##condition,
#include "arithmetic/known/defects.def"
    ND_N_LAYER_CONDITIONS
};
/* Whether the arithmetics have what is wrong, and predict the values. */
enum nd_foresight { ND_NOT_PREDICTED, ND_PREDICTED };

/* Whether the layer is such a one, by its operator and what it reads of the sample at hand. model may be NULL:
 * then nothing is known of what a Pad makes, or which tensors are inputs. Any thread. */
bool nd_layer_is(const struct nd_model *model, const struct nd_exact_layer *layer,
                 enum nd_layer_condition condition);
/* All of them: a bit for each, 1 << condition. */
uint64_t nd_layer_conditions(const struct nd_model *model, const struct nd_exact_layer *layer);
/* Of such bits those that are predicted. */
uint64_t nd_layer_conditions_predicted(uint64_t conditions);
/* Of a Clip: its bounds are within the quantised values of its output. */
bool nd_layer_cuts_both_ends(const struct nd_exact_layer *layer);

/* The quantised values of input i of a Concat, where the HTP may not bring them to the encoding of the Concat:
 * a defect. NULL: it does, or nothing is known. Borrowed. model may be NULL. Any thread. */
const struct nd_array *nd_layer_kept_qvalues(const struct nd_model *model, const struct nd_exact_layer *layer,
                                             size_t i);
