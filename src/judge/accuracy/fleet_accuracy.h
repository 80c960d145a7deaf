/* Accuracies of a fleet on one labelled probe at one output: classes read from captures, who is right; and
 * references that are broken themselves. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "core/statistics/evidence.h"
#include "npudiff/capture/capture.h"
#include "npudiff/core/status.h"
#include "npudiff/judge/judge.h"

/* Is the accuracy that was lost lost on all devices alike (the quantisation), or on some (the NPU)?
 * docs/science/statistics.md#spread. */

/* Who is right (1) or wrong (0), sample by sample; samples without a label are not among them. */
struct nd_rights {
    size_t n_devices, n_samples;    /* n_samples < 2^32 */
    const unsigned char *devices;   /* [n_devices * n_samples], device by device */
    const unsigned char *reference; /* [n_samples]: the float model, or NULL */
    const unsigned char *quantised; /* [n_samples]: the quantised model on the reference, or NULL */
};

struct nd_spread_options {
    double confidence; /* of each statement, 0 < confidence < 1 */
    double margin; /* devices that differ by less than this count as alike; 0: none is given, then no sample is
                      large enough to say "uniform" */
    double least;  /* a spread up to this is not called uneven; 0 unless told otherwise */
    uint64_t seed;
};

enum nd_spread_kind {
    ND_SPREAD_INCONCLUSIVE,
    ND_SPREAD_UNIFORM, /* the spread is below the margin: what is lost is lost by quantisation */
    ND_SPREAD_UNEVEN,  /* the spread is above options.least: the NPUs lose differently */
};

struct nd_spread {
    enum nd_spread_kind kind;
    size_t n_devices, n_samples;
    size_t best, worst;        /* devices: of the highest and the lowest accuracy, the first of equals */
    struct nd_estimate spread; /* accuracy of the best less that of the worst; 0 or more */
    struct nd_estimate common; /* mean accuracy of the devices less that of the float model; NaN without it */
    struct nd_estimate quantised; /* the quantised reference less the float model; NaN without one of them */
    struct nd_estimate beyond;    /* mean of the devices less the quantised reference; NaN without it */
    struct nd_estimate *own; /* [n_devices]: accuracy less the mean of the devices; intervals simultaneous */
};

/* Fewer than two devices, or no sample: inconclusive, NaN with the widest intervals where nothing is known. The
 * same seed gives the same bits. Fails for want of memory only, out untouched. */
enum nd_status nd_spread_measure(const struct nd_rights *in, const struct nd_spread_options *options,
                                 struct nd_spread *out, struct nd_error *err);

/* Accepts a zeroed struct. */
void nd_spread_deinit(struct nd_spread *spread);

/* On how many samples devices say something else, whatever is true.
 * docs/science/statistics.md#changed-predictions. */

struct nd_predictions {
    size_t n_devices, n_samples; /* n_samples < 2^32 */
    const int64_t *classes;      /* [n_devices * n_samples], device by device; -1: none, which equals only -1 */
    const int64_t *truth;        /* [n_samples], or NULL: not known. A prediction of -1 is wrong. */
};

struct nd_prediction_changes_pair {
    size_t ref, test; /* ref < test */
    struct nd_proportion differ;
    struct nd_paired table; /* zeroed without truth */
};

struct nd_prediction_changes {
    size_t n_devices, n_samples, n_pairs;
    struct nd_prediction_changes_pair *pairs; /* every pair, ordered by ref, then test */
    /* These two grow with the number of devices: never tell them without it. */
    struct nd_proportion any_differs; /* not all devices say the same */
    struct nd_proportion unstable;    /* one device is right and one is wrong; of 0 samples without truth */
    /* The mean over pairs of their shares; NaN and [0, 1] without pairs or samples. */
    double mean;
    struct nd_interval mean_interval;
    bool is_mean_bound; /* too few samples differ for the bootstrap: the interval follows from any_differs */
};

/* Each interval by itself is of this confidence, 0 < confidence < 1; the same seed gives the same bits. Fills
 * out; on failure (memory) out is untouched. Free with nd_prediction_changes_deinit. */
enum nd_status nd_prediction_changes_measure(const struct nd_predictions *in, double confidence, uint64_t seed,
                                             struct nd_prediction_changes *out, struct nd_error *err);

/* Accepts a zeroed struct. */
void nd_prediction_changes_deinit(struct nd_prediction_changes *changes);

/* The top-1 class of every sample (the lowest index of equals; -1: no number among the values) in new memory,
 * [n_samples] of the capture's probe. ND_ERR_NOT_FOUND: only digests are stored. */
enum nd_status nd_top1_read(const struct nd_capture *capture, size_t probe, size_t tensor, int64_t **classes,
                            struct nd_error *err);

/* The samples of two sides by who is right; a class of -1 is wrong. *n_changed_wrong: both wrong, differently.
 */
void nd_paired_count(const int64_t *ref, const int64_t *test, const int64_t *labels, size_t n,
                     struct nd_paired *out, uint64_t *n_changed_wrong);

struct nd_accuracy_study {
    const char *probe, *tensor; /* borrowed */
    size_t n_samples;
    const int64_t *labels; /* [n_samples], borrowed; samples with a label below 0 have none and never count */
    size_t n_devices;      /* with classes, in the order of the campaign */
    size_t *devices;       /* [n_devices]: of the campaign */
    int64_t **classes;     /* [n_devices] */
    int64_t *quantised, *reference; /* of the two references, or NULL */
    struct nd_prediction_changes changes;
    struct nd_spread spread;
};

/* Churn and spread, from the rest. Accepts a study without devices. */
enum nd_status nd_accuracy_study_measure(struct nd_accuracy_study *study, double confidence, double margin,
                                         struct nd_error *err);
void nd_accuracy_study_deinit(struct nd_accuracy_study *study);

/* The classes of one device of the campaign, or NULL. */
const int64_t *nd_accuracy_study_classes(const struct nd_accuracy_study *study, size_t device);

/* Labelled samples of which not one is right before a reference is called broken. Chosen: a model that is right
 * on 14 % of all samples misses 20 in a row in 5 % of all cases (0.86^20 = 0.049). */
enum { ND_BROKEN_MIN_SAMPLES = 20 };

/* Share of the samples by which a reference's accuracy on the same model and probe may fall from one result to
 * the next before it is called broken. Chosen: ten times the usual margin of an accuracy gate; what evaluates
 * the same model on the same inputs changes by rounding only. */
#define ND_BROKEN_FALL 0.1

/* Why the capture cannot be right, in new memory: every value of a float output is NaN over all samples of a
 * probe, or of at least ND_BROKEN_MIN_SAMPLES labelled samples not one has its class at any output of two
 * elements or more. *why is NULL where nothing says so, also where values or labels are not stored, or where
 * the capture does not say which tensors are outputs. */
enum nd_status nd_broken_find(const struct nd_capture *capture, char **why, struct nd_error *err);

/* ---- how far outputs are from a target tensor, and whether one device is farther than another: for models
 * that do not classify. docs/science/statistics.md#targets ---- */

/* Of one sample on one device. */
struct nd_target_sums {
    uint64_t n_elems;    /* that were taken */
    uint64_t n_left_out; /* where value or target are not finite */
    double abs_error, sq_error, sq_target;
};

/* Sums over the n elements of a sample, one after the other: relative error of a sum below n 2^-52. Elements
 * with a NaN or an infinity on either side are counted and left out. */
struct nd_target_sums nd_target_sums_of(const double *values, const double *target, size_t n);

struct nd_target_metrics {
    struct nd_estimate mean_error; /* mean absolute error, over the elements of all samples */
    struct nd_estimate sqnr_db; /* 10 log10 of the energy of the target by that of the error; inf: no error */
};

struct nd_target_comparison {
    struct nd_target_metrics ref, test;
    /* The test less the reference, drawn in pairs. Of two devices without any error 0 dB. */
    struct nd_target_metrics difference;
};

/* ref and test: [n_samples] each, n_samples < 2^32, of the same samples and targets. A statistic without
 * elements is NaN; intervals (percentiles, 0 < confidence < 1) are NaN below two samples. The same seed gives
 * the same bits. Fails for want of memory only, out untouched. */
enum nd_status nd_target_compare(const struct nd_target_sums *ref, const struct nd_target_sums *test,
                                 size_t n_samples, const struct nd_spread_options *options,
                                 struct nd_target_comparison *out, struct nd_error *err);
