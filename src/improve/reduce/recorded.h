/* What tensors of the whole model held when a reference ran it: the inputs of parts that are cut out of it. */
#ifndef ND_REDUCE_RECORDED_H
#define ND_REDUCE_RECORDED_H

#include "npudiff/capture/capture.h"
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

/* *is_found false: nobody recorded it, and wanted->out is all zeros. */
enum nd_status nd_recorded_read(const struct nd_recorded *recorded, const struct nd_wanted_record *wanted,
                                bool *is_found, struct nd_error *err);

/* The index of the tensor that records the tensor, or SIZE_MAX. */
size_t nd_recorded_find(const struct nd_capture *capture, const char *tensor);

#endif
