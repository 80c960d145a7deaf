/* What tensors of the whole model held when a reference ran it, and how far values are from what they should
 * be. */
#ifndef ND_REDUCE_DIFFERENCE_H
#define ND_REDUCE_DIFFERENCE_H

#include "npudiff/capture/capture.h"
#include "npudiff/improve/reduce.h"
#include "npudiff/model/model.h"
#include "npudiff/record/probe.h"

enum { ND_RECORDED_MAX = 2 };

/* Zeroed, with probes, is empty: then everything but the probes' own inputs is zero. */
struct nd_recorded {
    const struct nd_probe *const *probes; /* of the whole model; borrowed */
    size_t n_probes;
    size_t n_samples; /* the first so many of all probes together */
    /* Captures of the whole model, and of a part that was fed with all samples as one probe; owned. */
    struct nd_capture *captures[ND_RECORDED_MAX];
    bool is_of_part[ND_RECORDED_MAX];
    size_t n_captures;
    struct nd_tensor *known; /* types and shapes of every tensor that was seen; shallow, of the captures */
    size_t n_known, capacity;
};

/* Takes *capture over, and sets it to NULL; its tensors become known. What an earlier capture holds stays. */
enum nd_status nd_recorded_add(struct nd_recorded *recorded, struct nd_capture **capture, bool is_of_part,
                               struct nd_error *err);
void nd_recorded_deinit(struct nd_recorded *recorded);

/* One sample of a tensor. */
struct nd_wanted_record {
    const char *tensor; /* its name in the ONNX graph */
    size_t sample;
    enum nd_dtype dtype; /* float64 becomes float32 where that is asked for, nothing else is converted */
    void *out;
    size_t size_bytes;
};

/* Holds two tensors of n elements against each other. Codes (is_codes): max_lsb is the largest difference of
 * two codes, else NaN. fraction: of elements whose bits differ, NaN and NaN being equal; 0 for none. tensor
 * stays. */
void nd_difference_of(enum nd_dtype dtype, bool is_qvalues, const void *ref, const void *test, size_t n,
                      struct nd_reduction_difference *out);

/* Whether it is more than the options allow. */
bool nd_difference_exceeds(const struct nd_reduction_difference *difference,
                           const struct nd_reduce_options *options);

/* The worst over the samples of one tensor of a capture, held against what was recorded. Its fraction is NaN
 * where nothing was recorded. is_of_part: the capture holds all samples as one probe. */
enum nd_status nd_difference_of_tensor(const struct nd_recorded *recorded, const struct nd_capture *test,
                                       size_t tensor, bool is_of_part, struct nd_reduction_difference *out,
                                       struct nd_error *err);

/* Whether a is worse than b: more steps, then more elements. */
bool nd_difference_is_worse(const struct nd_reduction_difference *a, const struct nd_reduction_difference *b);

#endif
