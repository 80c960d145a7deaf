/* A reference that is broken itself: what agrees with it is not right, and what differs from it is not wrong.
 */
#ifndef ND_ACCURACY_BROKEN_H
#define ND_ACCURACY_BROKEN_H

#include "npudiff/capture/capture.h"
#include "npudiff/core/status.h"

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

/* Whether an accuracy fell too far: from `before` to `now` right ones of n. */
bool nd_broken_has_fell_back(size_t before, size_t now, size_t n);

#endif
