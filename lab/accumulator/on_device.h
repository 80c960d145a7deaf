/* How a device sums half precision products: the battery of accumulator.h run on it as models of one operator,
 * what that leaves held against fresh random products, and the same accumulator looked for in other operators
 * and in longer sums. */
#ifndef ND_ACCUMULATOR_ON_DEVICE_H
#define ND_ACCUMULATOR_ON_DEVICE_H

#include "lab/accumulator/accumulator.h"
#include "lab/experiment/product.h"

/* Models of floats that hold half precision numbers: a device that has half precision only is told to use it
 * by its options (nd_device_parse). */
enum nd_accumulator_form {
    ND_ACCUMULATOR_MATMUL,           /* x [rows, 32], w [32, 1] is a constant */
    ND_ACCUMULATOR_MATMUL_OF_INPUTS, /* w is an input as well */
    ND_ACCUMULATOR_CONV,             /* 1x1: terms in channels, rows along the width */
    ND_N_ACCUMULATOR_FORMS,
};
/* What one form does. */
struct nd_accumulator_sheet {
    struct nd_experiment asked;
    /* Another form than MatMul of a constant whose random products are all what that one's accumulators give:
     * `found` has those of them that are left, with counts of this form, and there is no battery. */
    bool is_as_matmul;
    struct nd_accumulator_findings found;
    struct nd_digest answers; /* of the battery, chained over its blocks */
};

/* Longer sums: 2^15 in one place, -2^15 in another, 2^-14 elsewhere. */
struct nd_accumulator_long {
    size_t n_terms;
    struct nd_experiment asked;
    size_t n, n_whole; /* rows; those of which nothing was lost */
};
enum { ND_N_ACCUMULATOR_LONG = 3 };

struct nd_accumulator_fingerprint {
    struct nd_accumulator_sheet sheets[ND_N_ACCUMULATOR_FORMS]; /* by form */
    size_t n_sheets; /* 1: MatMul failed, or ran elsewhere, and other forms were not asked */
    size_t n_long;   /* 0: the battery did not show sums of 32 terms of which nothing is lost */
    struct nd_accumulator_long longer[ND_N_ACCUMULATOR_LONG];
};

/* n_vectors: random products of each form; fewer than ND_CONFIRMING_VECTORS confirm nothing. A device that
 * fails is a result; one whose battery ran on another unit is not asked further. Errors as of nd_trial_run;
 * *out needs deinit on ND_OK. */
enum nd_status nd_accumulator_fingerprint_take(struct nd_bench *bench, uint64_t n_vectors,
                                               struct nd_accumulator_fingerprint *out, struct nd_error *err);
void nd_accumulator_fingerprint_deinit(struct nd_accumulator_fingerprint *fingerprint);

#endif
