/* What a device does to the sums of products of Conv, Gemm and MatMul: threshold sweep of one-operator models,
 * the arithmetics that they leave, and these arithmetics held against fresh random products. */
#ifndef ND_FINGERPRINT_LINEAR_H
#define ND_FINGERPRINT_LINEAR_H

#include "lab/experiment/product.h"

/* What an experiment found; the arithmetics belong to it. */
struct nd_linear {
    enum nd_linear_form form;
    size_t n_staircases;
    struct nd_threshold_sweep_findings found;
};

/* uint8 activations and weights, no bias. */
void nd_linear_take(struct nd_experiment *experiment, enum nd_linear_form form, struct nd_linear *out);

/* Parameters of an arithmetic, as the sections that requantise sums say them: what becomes of the multiplier;
 * how a zero point is folded. */
void nd_tell_multiplier(struct nd_experiment *experiment, json_t *parameters,
                        const struct nd_requantise *arithmetic);
void nd_tell_fold(struct nd_experiment *experiment, json_t *parameters, const struct nd_requantise *arithmetic);

#endif
