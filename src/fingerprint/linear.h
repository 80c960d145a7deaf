/* What a device does to the sums of products of Conv, Gemm and MatMul: staircases of one-operator models, the
 * programs that they leave, and these programs held against fresh random products. */
#ifndef ND_FINGERPRINT_LINEAR_H
#define ND_FINGERPRINT_LINEAR_H

#include "fingerprint/fresh.h"
#include "fingerprint/staircase.h"
#include "fingerprint/trial.h"

enum nd_linear_form { ND_FORM_MATMUL, ND_FORM_GEMM, ND_FORM_CONV };
/* "MatMul", "Gemm", "Conv". */
const char *nd_linear_form_name(enum nd_linear_form form);

struct nd_linear_fingerprint {
    enum nd_linear_form form;
    bool has_failed; /* a trial did; then nothing else is known */
    struct nd_error failure;
    char provider[64];
    bool is_on_npu; /* in all trials */
    size_t n_staircases;
    struct nd_staircase_findings found;
    /* Fresh random codes, and how many of them the first program that is left gives: the claim. */
    uint64_t n_fresh, n_right;
};

bool nd_linear_fingerprint_is_confirmed(const struct nd_linear_fingerprint *fingerprint);

/* uint8 activations and weights, no bias. Errors as of nd_trial_run; a device that fails is a result. Programs
 * that the fresh codes contradict more than others are removed. *out needs deinit on ND_OK. */
enum nd_status nd_linear_fingerprint_take(struct nd_bench *bench, enum nd_linear_form form,
                                          struct nd_linear_fingerprint *out, struct nd_error *err);
void nd_linear_fingerprint_deinit(struct nd_linear_fingerprint *fingerprint);

#endif
