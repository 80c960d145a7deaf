/* How a device sums half precision products: the battery of accumulator.h run on it as models of one operator,
 * what that leaves held against fresh random products, and the same accumulator looked for in other operators
 * and in longer sums. */
#ifndef ND_FINGERPRINT_ACCUMULATOR_DEVICE_H
#define ND_FINGERPRINT_ACCUMULATOR_DEVICE_H

#include "fingerprint/accumulator.h"
#include "fingerprint/trial.h"

/* Models of floats that hold half precision numbers: a device that has half precision only is told to use it
 * by its options (nd_device_parse). */
enum nd_accumulator_form {
    ND_ACCUMULATOR_MATMUL,            /* x [rows, 32], w [32, 1] is a constant */
    ND_ACCUMULATOR_MATMUL_OF_INPUTS,  /* w is an input as well */
    ND_ACCUMULATOR_CONV,              /* 1x1: terms in channels, rows along the width */
    ND_N_ACCUMULATOR_FORMS,
};
/* "MatMul", "MatMul", "Conv". */
const char *nd_accumulator_form_operator(enum nd_accumulator_form form);

/* What became of the trials of one form; `failure` is of the first that failed, and has no data. */
struct nd_accumulator_asked {
    bool has_failed;
    struct nd_trial_result failure;
    bool is_on_npu; /* in all trials */
    char provider[64];
};

/* Random products of another form than the one that was identified. */
struct nd_accumulator_check {
    struct nd_accumulator_asked asked;
    uint64_t n, n_same; /* products; those that an accumulator which is left gives */
};

/* Longer sums: 2^15 in one place, -2^15 in another, 2^-14 elsewhere. */
struct nd_accumulator_long {
    size_t n_terms;
    struct nd_accumulator_asked asked;
    size_t n, n_whole; /* rows; those of which nothing was lost */
};
enum { ND_N_ACCUMULATOR_LONG = 3 };

struct nd_accumulator_fingerprint {
    struct nd_accumulator_asked asked; /* MatMul of a constant */
    struct nd_accumulator_findings found;
    struct nd_digest answers; /* of the battery */
    struct nd_accumulator_check checks[ND_N_ACCUMULATOR_FORMS]; /* [ND_ACCUMULATOR_MATMUL] is unused */
    size_t n_long; /* 0: the battery did not show sums of 32 terms of which nothing is lost */
    struct nd_accumulator_long longer[ND_N_ACCUMULATOR_LONG];
};

/* n_vectors: random products for the confirmation; ND_CONFIRMING_VECTORS. A device that fails is a result; one
 * whose battery ran on another unit is not asked further. Errors as of nd_trial_run; *out needs deinit on
 * ND_OK. */
enum nd_status nd_accumulator_fingerprint_take(struct nd_bench *bench, uint64_t n_vectors,
                                               struct nd_accumulator_fingerprint *out, struct nd_error *err);
void nd_accumulator_fingerprint_deinit(struct nd_accumulator_fingerprint *fingerprint);

#endif
