/* Top-1 classes, accuracy, flips and their significance. docs/reference/metrics.md#top-1. */
#pragma once

#include "compare/matching/matching.h"
#include "compare/metrics/kernels/kernels.h"
#include "compare/metrics/states.h"

/* Outputs of at most this many elements are always looked at a whole sample at a time. */
enum { ND_OUTPUT_WHOLE = 1 << 20 };

/* The largest value of a sample so far: flat index (the lowest of equals; -1: none, only NaN), and the
 * quantised value or value. And how many of the values are no numbers. */
struct nd_best {
    int64_t index;
    int64_t qvalue;
    double value;
    struct nd_specials specials;
};

/* Offers elements [first, first + n) of a sample, stored at bytes. In any order of the parts. */
void nd_best_offer(struct nd_best *best, const struct nd_layout *layout, const struct nd_kernels *kernels,
                   const unsigned char *bytes, size_t first, size_t n);
void nd_best_merge(struct nd_best *best, const struct nd_best *other);

/* Counts one pair from the top-1 classes of n samples (-1: none); labels may be NULL. Sets the counts only. */
void nd_top1_pair_count(const int64_t *ref, const int64_t *test, const int64_t *labels, size_t n,
                        struct nd_top1_pair *out);

/* The top-1 classes of one probe at one model output, of the samples [first_sample, end_sample) of this part.
 */
struct nd_output_row {
    size_t tensor, probe;
    size_t first_sample, end_sample;
    int64_t **classes; /* [n_captures], each [end_sample - first_sample] (-1: none) or NULL without values */
};

struct nd_output_rows {
    size_t n, capacity, n_captures;
    struct nd_output_row *rows;
};

/* Fills comparison->top1, one entry per row, with counts over the rows' samples. */
enum nd_status nd_accuracy_count(const struct nd_aligned_captures *alignment, const struct nd_output_rows *rows,
                                 struct nd_comparison *comparison, struct nd_error *err);

/* Shares, p-values and significance from the counts; and whether every capture, the reference too, is right no
 * more often than by chance: comparison->broken_top1. */
void nd_accuracy_conclude(struct nd_comparison *comparison);

/* Labels that are wrong: the same bytes, which two captures call by other types, scales or zero points.
 * docs/reference/metrics.md#labels. */

/* The types that bytes are read as. */
enum { ND_N_READINGS = 11 };
extern const enum nd_dtype nd_readings[ND_N_READINGS];

/* Whether the values of one side, own, are too far from those of the other one, x, for rounding, [n] each:
 * their bytes may be called by a wrong type. */
bool nd_values_may_be_mislabelled(const double *x, const double *own, size_t n);
/* Whether these bytes, read as another type, are what the other side has. */
bool nd_values_is_reading(const double *x, const double *reading, size_t n);

/* Looks at every pair that cannot be compared because types, shapes or quantisation differ, and reads its
 * values. Where they are the same bytes, and the labels give them other real values, pair->label says so (and
 * is the reason, too). Where the labels give them the same real values, the pair is compared: nothing differs.
 * After the engine, before the verdicts. ND_ERR_MEMORY, and the errors of reading. */
enum nd_status nd_labels_find(const struct nd_aligned_captures *alignment, struct nd_comparison *comparison,
                              struct nd_error *err);

/* ---- what a device does when it is asked twice. docs/reference/metrics.md#repeats ---- */

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
