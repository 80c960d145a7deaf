/* What else a device may have computed in a layer: what the layer diagnosis has worked out, for the diagnosis.
 */
#pragma once

#include "explain/diagnosis/diagnosis.h"
#include "explain/layer_diagnosis/layer_diagnosis.h"

enum { ND_LAYER_DIAGNOSIS_MAX_HYPOTHESES = 4 + ND_LAYER_DIAGNOSIS_FUSIONS + ND_LAYER_DIAGNOSIS_OPERANDS };

struct nd_layer_diagnosis_hypotheses {
    size_t n;
    struct nd_hypothesis items[ND_LAYER_DIAGNOSIS_MAX_HYPOTHESES]; /* borrow texts, and quantised values of the
                                                                      layer diagnosis */
    char texts[ND_LAYER_DIAGNOSIS_MAX_HYPOTHESES][160];
};
