/* Running models that were made to order on the device whose arithmetic is in question.
 *
 * A bench is one device and a folder in which what it answered is kept: a trial that was run before, with the
 * same model, inputs, device and runtime, is read from there. That makes a fingerprint resumable. */
#ifndef ND_EXPERIMENT_TRIAL_H
#define ND_EXPERIMENT_TRIAL_H

#include "arithmetic/operators/array.h"
#include "model/rewrite/compose.h"
#include "npudiff/devices/device.h"

struct nd_bench {
    const struct nd_device *device;    /* borrowed */
    struct nd_capture_options options; /* limits of one trial; what they borrow outlives the bench */
    const char *folder;                /* exists; borrowed */
    size_t n_unstable;                 /* trials whose samples, each run twice, did not come out alike */
    size_t n_run, n_kept;              /* trials that were run, and that were read from the folder */
};

/* One input of a trial: n_samples times the shape, in C order. Borrowed. */
struct nd_trial_input {
    const char *name;
    enum nd_dtype dtype;
    struct nd_shape shape; /* of one sample */
    const void *data;
};

struct nd_bench_trial {
    const struct nd_compose *model;
    const char *output; /* the tensor that is asked for: the model's output */
    size_t n_samples;
    size_t n_inputs;
    const struct nd_trial_input *inputs; /* all of the model's, by name */
};

/* What came out of it. */
struct nd_trial_result {
    bool has_failed; /* the device failed: `failure` says how, and there is no data */
    struct nd_error failure;
    char stage[32];
    bool is_unstable;  /* a sample that was run again came out otherwise */
    bool is_on_npu;    /* the unit ran where the device is; a CPU device is always where it is */
    char provider[64]; /* "" when unknown */
    enum nd_dtype dtype;
    struct nd_shape shape; /* of one sample */
    size_t n;              /* elements of all samples */
    double *x;             /* [n]: quantised values or floats, in C order, sample by sample; owned */
};

/* ND_OK also where the device failed. Errors are what keeps a trial from being run: ND_ERR_IO, ND_ERR_MEMORY, a
 * model that cannot be read. On ND_OK *out needs nd_trial_deinit. One thread per bench. */
enum nd_status nd_trial_run(struct nd_bench *bench, const struct nd_bench_trial *trial,
                            struct nd_trial_result *out, struct nd_error *err);
void nd_trial_deinit(struct nd_trial_result *result);

#endif
