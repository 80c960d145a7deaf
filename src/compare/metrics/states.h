/* The state of every metric of one pair of tensors, and the interface of a metric. The list is in
 * registry.c. */
#pragma once

#include "compare/metrics/block.h"
#include "compare/metrics/fields.h"
#include "npudiff/core/tensor.h"

struct nd_bits_state {
    uint64_t n_samples, n_samples_differing, n_samples_unread, n_elems, n_differing;
    struct nd_first first;
};

struct nd_steps_state {
    uint64_t histogram[ND_LSB_BUCKETS]; /* of differing elements only */
    uint64_t tail[2][ND_LSB_TAIL];      /* of those that are off by more than 3 */
    uint64_t max;
    struct nd_exact_sum sum, sum_signed;
};

struct nd_ulp_state {
    uint64_t max, max_in;
    double max_steps; /* of quantised values against floats */
};

/* In units of x; the histograms too. */
struct nd_error_state {
    uint64_t n_absolute, n_relative, n_undefined; /* measured elements that differ */
    uint64_t n_above, n_below;                    /* of them, test > ref and test < ref */
    double max_absolute, max_relative;
    struct nd_exact_sum sum_absolute, sum_relative, sum_signed;
    struct nd_log_histogram absolute, relative;
};

struct nd_signal_state {
    struct nd_exact_sum sum_squares;    /* of d */
    struct nd_exact_sum sum_ref_signed; /* of ref * d */
    uint64_t n_test_only;               /* elements of which only the test is not finite */
};

/* One side over the samples that differ. */
struct nd_side_state {
    uint64_t n_elems, n_nan, n_inf, n_zero, n_subnormal, n_saturated, n_stuck_samples;
    double min, max;
    struct nd_exact_sum sum, sum_squares;
};

struct nd_account_state {
    uint64_t n_nan_mismatch, n_nan_payload, n_inf_mismatch, n_zero_sign, n_saturation_mismatch;
    struct nd_side_state ref, test;
};

/* Over all samples, also those that are equal. */
struct nd_numbers_state {
    uint64_t n_elems, n_ref_nan, n_test_nan, n_ref_inf, n_test_inf;
    uint64_t n_samples, n_samples_ref_nan, n_samples_test_nan, n_samples_both_nan;
};

struct nd_structure_state {
    struct nd_stride stride;
    uint64_t n_runs, longest_run;
    struct nd_bitset axes[ND_MAX_RANK];
    struct nd_first permutation; /* of the first differing sample; note: 0, or 1 + the permutation's number */
};

struct nd_worst_state {
    struct nd_worst_list list;
};

struct nd_tolerance_state {
    uint64_t n_failing;
    double atol, rtol;
};

struct nd_distribution_state {
    uint64_t n_samples, n_unlike; /* samples that are not probability-like on one side */
    uint64_t n_infinite_values, n_invalid;
    struct nd_exact_sum sum_values, sum_softmax;
    uint64_t top_k, n_common;
};

struct nd_pair_state {
    struct nd_bits_state bits;
    struct nd_steps_state steps;
    struct nd_ulp_state ulp;
    struct nd_error_state error;
    struct nd_signal_state signal;
    struct nd_account_state account;
    struct nd_numbers_state numbers;
    struct nd_dequantised_elements dequantised;
    struct nd_structure_state structure;
    struct nd_worst_state worst;
    struct nd_tolerance_state tolerance;
    struct nd_distribution_state distribution;
    struct nd_joint *joint; /* what is not yet in the others; NULL: nothing */
};

/* So many elements that differ, of one pair of values. */
struct nd_cell {
    double ref, test; /* x */
    uint64_t n;
};

struct nd_metric {
    const char *name;
    size_t offset; /* of its state in struct nd_pair_state */
    const struct nd_metric_field *fields;
    size_t n_fields;
    const struct nd_measure *measures; /* what it makes of a difference */
    size_t n_measures;
    /* Any of them may be NULL. init: memory that depends on the pair. update: one block of which at least one
     * element differs. finish: the results, when all values were read. */
    enum nd_status (*init)(struct nd_pair_state *state, const struct nd_pair_context *context,
                           struct nd_error *err);
    void (*update)(struct nd_pair_state *state, const struct nd_pair_context *context,
                   const struct nd_pair_block *block);
    /* What update leaves out of a block that is counted in pairs. */
    void (*add_cell)(struct nd_pair_state *state, const struct nd_pair_context *context,
                     const struct nd_cell *cell);
    enum nd_status (*finish)(const struct nd_pair_state *state, const struct nd_pair_context *context,
                             struct nd_difference *out, struct nd_error *err);
};

/* Tables of a metric; and a row of its measures, which is a member of nd_difference. */
#define ND_STATE_FIELDS(table) .fields = table, .n_fields = sizeof table / sizeof table[0]
#define ND_MEASURES(table) .measures = table, .n_measures = sizeof table / sizeof table[0]
#define ND_MEASURE(member, needed, as, ...)                                                                    \
    {                                                                                                          \
        .offset = offsetof(struct nd_difference, member), .need = ND_NEEDS_##needed, .form = ND_MEASURED_##as, \
        __VA_ARGS__                                                                                            \
    }

extern const struct nd_metric nd_metric_bits, nd_metric_steps, nd_metric_ulp, nd_metric_error, nd_metric_signal,
    nd_metric_account, nd_metric_numbers, nd_metric_dequantised, nd_metric_structure, nd_metric_worst,
    nd_metric_tolerance, nd_metric_distribution;

/* A new, empty state; NULL when out of memory. */
struct nd_pair_state *nd_pair_state_create(const struct nd_pair_context *context, struct nd_error *err);
void nd_pair_state_destroy(struct nd_pair_state **state);
enum nd_status nd_pair_state_merge(struct nd_pair_state *state, const struct nd_pair_state *other,
                                   struct nd_error *err);
void nd_pair_state_update(struct nd_pair_state *state, const struct nd_pair_context *context,
                          const struct nd_pair_block *block);
/* New text, NULL when out of memory; and back (ND_ERR_FORMAT when malformed) into an empty state. */
char *nd_pair_state_format(const struct nd_pair_state *state);
enum nd_status nd_pair_state_parse(struct nd_pair_state *state, const char *text, struct nd_error *err);
enum nd_status nd_pair_state_finish(const struct nd_pair_state *state, const struct nd_pair_context *context,
                                    struct nd_difference *out, struct nd_error *err);

/* The values of one side of a sample that are no numbers. */
struct nd_specials {
    uint64_t n_nan, n_inf;
};

/* Adds what nd_pair_block_make took for the rounding of quantised value to float; it is no difference. */
void nd_dequantised_note(struct nd_pair_state *state, const struct nd_pair_block *block);

/* Adds one sample of which nothing is read: equal, or of unknown values. */
void nd_bits_add_sample(struct nd_bits_state *state, size_t n_elems, bool differs, bool is_read, size_t probe,
                        size_t sample);

/* The counts of the state, made when there is none; NULL where the pair has none (context->may_join), or when
 * out of memory: the block is then added up element by element. */
struct nd_joint *nd_joint_of(struct nd_pair_state *state, const struct nd_pair_context *context);

/* Adds what they hold to the metrics and frees it. Before a state is merged, formatted or finished. */
void nd_joint_settle(struct nd_pair_state *state, const struct nd_pair_context *context);

/* Whether a pair of these layouts fit: quantised values of one byte whose sums are whole numbers. */
bool nd_joint_fits(const struct nd_pair_context *context);

/* Adds a sample that is known to differ, or (differs false) to be equal and is not looked at. ref and test hold
 * whole samples of the context's layouts. ND_ERR_MEMORY. */
enum nd_status nd_sample_compare(struct nd_pair_state *state, const struct nd_pair_context *context,
                                 bool differs, const unsigned char *ref, const unsigned char *test,
                                 size_t probe, size_t sample, struct nd_error *err);

/* One side of a pair, gathered block by block before the pairs that need it add it to their state.
 * docs/reference/metrics.md#accounting. */

void nd_side_init(struct nd_side_state *side);
void nd_side_add_block(struct nd_side_state *side, const struct nd_side_block *block, size_t n);
void nd_side_merge(struct nd_side_state *side, const struct nd_side_state *other);

/* The two sides as parts of a pair's state: fields without anything to do. */
extern const struct nd_metric nd_metric_side_ref, nd_metric_side_test;

/* ---- one sample of a model output as probabilities. docs/reference/metrics.md#distributions ---- */

enum { ND_TOP_K = 5, ND_DISTRIBUTION_MAX = 1 << 20 };

struct nd_probabilities {
    size_t n;             /* >= 2 */
    const double *values; /* real values, borrowed */
    bool is_finite, is_probability;
    double sum, max, exp_sum; /* exp_sum: of e^(value - max) */
    size_t n_top;
    size_t top[ND_TOP_K];
};

/* n and values are given; the rest is worked out. */
void nd_probabilities_describe(struct nd_probabilities *probabilities);

/* One sample of both sides, of equal length. The same `values` on both sides: the sample is known to be equal.
 */
void nd_distribution_add(struct nd_distribution_state *state, const struct nd_probabilities *ref,
                         const struct nd_probabilities *test);
