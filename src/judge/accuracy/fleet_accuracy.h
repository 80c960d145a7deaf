/* Accuracies of a fleet on one labelled probe at one output: classes read from captures, who is right, and what
 * that proves. */
#ifndef ND_ACCURACY_FLEET_ACCURACY_H
#define ND_ACCURACY_FLEET_ACCURACY_H

#include "judge/accuracy/churn.h"
#include "judge/accuracy/spread.h"
#include "npudiff/capture/capture.h"
#include "core/statistics/paired.h"

/* The top-1 class of every sample (the lowest index of equals; -1: no number among the values) in new memory,
 * [n_samples] of the capture's probe. ND_ERR_NOT_FOUND: only digests are stored. */
enum nd_status nd_top1_read(const struct nd_capture *capture, size_t probe, size_t edge, int64_t **classes,
                            struct nd_error *err);

/* The samples of two sides by who is right; a class of -1 is wrong. *n_changed_wrong: both wrong, differently.
 */
void nd_paired_count(const int64_t *ref, const int64_t *test, const int64_t *labels, size_t n,
                     struct nd_paired *out, uint64_t *n_changed_wrong);

struct nd_accuracy_study {
    const char *probe, *edge; /* borrowed */
    size_t n_samples;
    const int64_t *labels; /* [n_samples], borrowed; samples with a label below 0 have none and never count */
    size_t n_devices;      /* with classes, in the order of the campaign */
    size_t *devices;       /* [n_devices]: of the campaign */
    int64_t **classes;     /* [n_devices] */
    int64_t *quantised, *reference; /* of the two references, or NULL */
    struct nd_churn churn;
    struct nd_spread spread;
};

/* Churn and spread, from the rest. Accepts a study without devices. */
enum nd_status nd_accuracy_study_measure(struct nd_accuracy_study *study, double confidence, double margin,
                                         struct nd_error *err);
void nd_accuracy_study_deinit(struct nd_accuracy_study *study);

/* The classes of one device of the campaign, or NULL. */
const int64_t *nd_accuracy_study_classes(const struct nd_accuracy_study *study, size_t device);

#endif
