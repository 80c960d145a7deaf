/* Whether recording changed what a model gives: its outputs, as a capture holds them, against those of a run of
 * the model as it ships. docs/science/theory.md#observer. */
#pragma once

#include "capture/write/write.h"
#include "devices/launch.h"

/* Runs the untouched model with the first samples of each probe, until time_share of the capture's time limit
 * is over. capture->untouched names its capture from then on, or capture->untouched_why says why there is none.
 * *folder, freed by the caller: where the agent ran. */
enum nd_status nd_untouched_run(struct nd_capture_job *capture, double time_share, char **folder,
                                struct nd_agent_exit *exit, struct nd_error *err);

/* The comparison, while the values of a capture are written. Zeroed, it compares nothing. */
struct nd_untouched {
    struct nd_capture *capture; /* of the untouched model */
    struct nd_untouched_output *outputs;
    const struct nd_tensor *tensors; /* [n_tensors] of the capture that is written; borrowed */
    size_t n_tensors;
    unsigned char *samples; /* [n_samples] of all probes: 0 not compared, 1 equal, 2 changed */
    size_t n_samples;
    bool is_unsteady;   /* the device gives other values in each run: nothing can be told */
    unsigned char *raw; /* a sample of the untouched run */
    size_t raw_bytes;
};
enum nd_status nd_untouched_open(const char *path, const struct nd_tensor *tensors, size_t n_tensors,
                                 size_t n_samples, struct nd_untouched *out, struct nd_error *err);
void nd_untouched_deinit(struct nd_untouched *untouched);

/* A piece of one sample of a tensor, as the capture stores it. */
struct nd_untouched_piece {
    size_t tensor;
    const char *probe;
    size_t sample;       /* of the probe */
    size_t first_sample; /* of the probe, among those of all probes */
    size_t offset_bytes; /* in the sample */
    const void *bytes;
    size_t n_bytes;
};
enum nd_status nd_untouched_compare(struct nd_untouched *untouched, const struct nd_untouched_piece *piece,
                                    struct nd_error *err);

/* What came out, as attributes of /runtime (docs/reference/capture-format.md). why: as capture->untouched_why.
 * *is_changed: outputs changed, or it is not known. */
enum nd_status nd_untouched_write(const struct nd_untouched *untouched, const char *why,
                                  struct nd_capture_writer *writer, bool *is_changed, struct nd_error *err);
