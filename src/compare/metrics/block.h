/* One block of two tensors, worked out once for all metrics. docs/reference/metrics.md#elements, #ulp,
 * #accounting and #mixed-types. */
#pragma once

#include "compare/metrics/layout.h"
#include "npudiff/compare/compare.h"

/* ---- the gates of one tensor, worked out from the rules the user gave. docs/reference/metrics.md#gates
 * ---- */

/* What an element of one tensor must keep to; all that is set must hold. */
struct nd_gate_values {
    bool bitwise;
    bool has_lsb, has_ulp, has_tolerance;
    uint64_t lsb, ulp;
    double atol, rtol;
};

/* True when at least one rule was given. gates may be NULL. */
bool nd_gates_any(const struct nd_gates *gates);

/* The values for one tensor. Where no rule applies (lsb does not apply to floats, nor ulp to integers) only
 * bit-equality passes: bitwise is set. gates may be NULL. */
struct nd_gate_values nd_gates_resolve(const struct nd_gates *gates, const char *tensor, bool is_float);

/* Refuses rules that name no tensor, and rules whose exact name is a tensor of a type they do not apply to. */
enum nd_status nd_gates_check(const struct nd_gates *gates, const struct nd_compared_tensor *tensors,
                              size_t n_tensors, struct nd_error *err);

enum { ND_JOINT_QVALUES = 256 };

/* Pairs of bytes, counted. Where much of a large tensor differs this is quicker than adding up what each
 * element says: all that has no order is worked out once for each pair of quantised values, and multiplied.
 * Sums of whole numbers are exact, so that the results are the same to the bit. docs/reference/metrics.md#sums.
 */
struct nd_joint {
    struct nd_joint_cell
        cells[ND_JOINT_QVALUES * ND_JOINT_QVALUES]; /* first, so that none lies in two cache lines */
    double x[ND_JOINT_QVALUES];                     /* by the byte */
    uint64_t n_elems;
};

/* What the two tensors of a pair have in common. */
struct nd_pair_context {
    const struct nd_kernels *kernels;
    struct nd_layout ref, test;
    bool is_mixed;
    const struct nd_float_format *ulp_format; /* floats and mixed pairs: the type of `distance` */
    const struct nd_float_format *ulp_in;     /* NULL: not asked for */
    struct nd_gate_values gate;
    size_t n_worst;
    bool may_join; /* enough of it, and it fits: nd_joint_fits */
};

/* One side's block alone. Sums are over its finite elements, as if the others were +0. */
struct nd_side_block {
    struct nd_self_sums sums; /* min > max where nothing is finite */
    uint64_t n_nan, n_inf, n_zero, n_subnormal, n_saturated;
};

/* x of the block, and its bytes. */
struct nd_side_view {
    const unsigned char *bytes;
    const double *x; /* may be NULL where the block has a joint */
    const struct nd_side_block *block;
};

/* Elements whose quantised value and float differ by no more than the rounding of quantised value to float.
 * Section 12. */
struct nd_dequantised_elements {
    uint64_t n;
    double max_steps; /* the largest difference of them, in steps of the quantised value; -infinity: none */
};

struct nd_pair_block {
    size_t probe, sample, first, n; /* elements [first, first + n) of the sample */
    struct nd_side_view ref, test;
    const uint64_t *bits; /* [ND_BLOCK_WORDS]: bit i % 64 of word i / 64 is 1 where element i differs */
    size_t n_differing;
    uint16_t first_differing, last_differing; /* offsets in the block */
    size_t n_measured;                        /* elements that differ by a number */
    const uint16_t *unmeasured;               /* NaN or infinity mismatches, and NaNs of other bits */
    size_t n_unmeasured;
    const uint64_t *distance; /* [n]: steps or ULPs; only those of `measured` mean anything. NULL where nobody
                                 asks: integers without a gate of steps, whose steps are d */
    uint64_t max_distance;    /* of `measured` */
    const struct nd_error_values *errors; /* as the sums: 0 where a side is not finite */
    const double *ref_clean, *test_clean; /* x, with +0 on both sides where one is not finite */
    struct nd_diff_sums sums;             /* of d, over the elements that are finite on both sides */
    bool is_clean; /* every element of both sides is finite; else the sums that follow leave out */
    struct nd_self_sums ref_both, test_both; /* the elements of which one side is not finite */
    size_t n_test_only;                      /* elements that are finite in the reference only */
    struct nd_joint *joint; /* given: that of the state, or NULL. Then there are no distances, and of the sums
                               only max_abs */
    struct nd_dequantised_elements dequantised; /* they do not differ: test.x is ref.x there */
    struct nd_block_scratch *scratch;           /* of the lists below */
};

enum { ND_BLOCK_WORDS = ND_BLOCK / 64 };

/* Memory for one block; one per thread. About 75 KB. */
struct nd_block_scratch {
    uint8_t mask[ND_BLOCK];
    uint64_t bits[ND_BLOCK_WORDS];
    bool is_listed; /* `differing` is made */
    uint16_t differing[ND_BLOCK], measured[ND_BLOCK], unmeasured[ND_BLOCK];
    uint64_t distance[ND_BLOCK];
    struct nd_error_values errors;
    double ref_clean[ND_BLOCK], test_clean[ND_BLOCK], test_equal[ND_BLOCK];
};

/* What two tensors that can be compared have in common; is_mixed and the gate are as nd_align_tensors and the
 * options say. Fails as nd_layout_make. */
enum nd_status nd_pair_context_make(const struct nd_tensor *ref, const struct nd_tensor *test,
                                    const struct nd_compare_options *options, const struct nd_kernels *kernels,
                                    struct nd_pair_context *out, struct nd_error *err);

/* One side: n elements at flat index `first`, stored at bytes. x has room for a block; it is loaded where that
 * is needed, and *is_loaded says whether it was. */
void nd_side_block_make(const struct nd_layout *layout, const struct nd_kernels *kernels,
                        const unsigned char *bytes, size_t first, size_t n, double *x, bool *is_loaded,
                        struct nd_side_block *out);

/* block->probe, sample, first, n, ref and test are given; the rest is made. Returns the number of differing
 * elements; when it is 0 nothing else but `dequantised` is filled. The arrays lie in scratch. */
size_t nd_pair_block_make(const struct nd_pair_context *context, struct nd_block_scratch *scratch,
                          struct nd_pair_block *block);

/* Offsets of the elements that differ, ascending: [block->n_differing]. Made when they are first asked for,
 * since of a block that differs everywhere few metrics need them. */
const uint16_t *nd_pair_block_differing(const struct nd_pair_block *block);

/* Those of them whose difference is a number: [block->n_measured]. */
const uint16_t *nd_pair_block_measured(const struct nd_pair_block *block);
