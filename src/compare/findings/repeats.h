/* What a device does when it is asked twice. docs/reference/metrics.md#repeats. */
#ifndef ND_COMPARE_REPEATS_H
#define ND_COMPARE_REPEATS_H

#include "compare/matching/matching.h"
#include "compare/metrics/kernels/kernels.h"

/* Counts the repeats of a tensor on one device by their digests: n_unstable, n_repeats, n_repeats_unequal,
 * unstable_bound and is_stuck. tensor indexes the alignment; the capture has it. */
void nd_repeats_count(const struct nd_aligned_captures *alignment, size_t tensor, size_t capture,
                      struct nd_tensor_on_device *on);

/* Upper 95 % bound of a probability of which k of n trials came true (Clopper-Pearson, one-sided); 1 when n is
 * 0. Relative error below 1e-9. */
double nd_repeats_bound(uint64_t k, uint64_t n);

/* Fills `noise` of every tensor and device that stored repeats, and within_noise of the pairs. */
enum nd_status nd_repeats_measure(const struct nd_aligned_captures *alignment,
                                  const struct nd_compare_options *options, const struct nd_kernels *kernels,
                                  struct nd_comparison *comparison, struct nd_error *err);

/* The runs of one capture, each of one sample, of which some give what another capture has. */
struct nd_runs_of {
    const struct nd_capture *own, *other;
    size_t own_probe, other_probe;
    const size_t *own_tensors, *other_tensors; /* [n_tensors] of the captures; SIZE_MAX: it has none */
    size_t n_tensors;
    /* Added to: */
    size_t n,
        n_other; /* n_other: of n, that equal the other in every tensor in which runs of the sample differ */
    double us, us_other; /* the latencies of the other runs, and of these; NaN: not all are known */
    size_t n_differing;  /* tensors in which they do, at most */
};

/* Counts the runs of the samples in which they fall into two groups: several are the other's, whose own runs
 * are alike, or one is and all others are one another's. (Noise of a generator that begins alike gives the
 * other's bits in the first run alone.) ND_ERR_MEMORY. */
enum nd_status nd_repeats_count_of(struct nd_runs_of *runs, struct nd_error *err);

#endif
