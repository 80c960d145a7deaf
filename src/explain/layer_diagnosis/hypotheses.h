/* What else a device may have computed in a unit: what the exam has worked out, for the diagnosis. */
#ifndef ND_EXPLAIN_HYPOTHESES_H
#define ND_EXPLAIN_HYPOTHESES_H

#include "explain/diagnosis/diagnosis.h"
#include "explain/layer_diagnosis/layer_diagnosis.h"

enum { ND_LAYER_DIAGNOSIS_MAX_HYPOTHESES = 5 + ND_LAYER_DIAGNOSIS_FUSIONS + ND_LAYER_DIAGNOSIS_OPERANDS };

struct nd_layer_diagnosis_hypotheses {
    size_t n;
    struct nd_hypothesis items[ND_LAYER_DIAGNOSIS_MAX_HYPOTHESES]; /* borrow texts, and codes of the exam */
    char texts[ND_LAYER_DIAGNOSIS_MAX_HYPOTHESES][160];
};

/* Of an exam that has collected its codes. The struct need not be initialised. */
void nd_layer_diagnosis_make_hypotheses(const struct nd_layer_diagnosis *diagnosis, struct nd_layer_diagnosis_hypotheses *out);

#endif
