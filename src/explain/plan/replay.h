/* What one thread needs to read samples of captures and to take them through layers: the values of the sample
 * at hand. */
#pragma once

#include "arithmetic/trials/layer_trial.h"
#include "explain/plan/plan.h"

/* Samples that are read together: a chunk of a capture (256 KiB) holds many small ones, and is decoded as a
 * whole. At most ND_READER_BLOCK, or as many as ND_READER_BLOCK_BYTES hold (chosen: what costs little beside
 * the arrays of one sample); nd_plan.block says how many. */
enum { ND_READER_BLOCK = 8, ND_READER_BLOCK_BYTES = 2 << 20, ND_READER_MAX = 1024 };

struct nd_reader {
    const struct nd_plan *plan; /* NULL: the reader is not made */
    struct nd_array *inputs;    /* [n_inputs of model] */
    struct nd_array *given; /* [n_edges]: the device's quantised values; rank < 0 where nothing was captured */
    bool is_lazy;           /* of whoever asks nd_reader_given: `given` has shapes only */
    struct nd_array *chain; /* [n_edges]: views, for runs that are given something else than `given` */
    bool *is_skipped;       /* [n_edges], for the same */
    bool *is_ignored;       /* [n_edges], for the same, where the graph is pure */
    const bool
        *is_wanted; /* [n_steps], of whoever reads few steps of one device; NULL: all steps, all devices */
    struct nd_layer_trial trial;
    size_t sample, device;   /* at hand */
    struct nd_array decoded; /* quantised values of one tensor, where is_lazy */
    size_t decoded_tensor;
    /* ---- of the reader alone ---- */
    size_t first, in_block;     /* first sample of the block; place in it of the one at hand */
    unsigned char **raw_inputs; /* [n_inputs]: a block of samples */
    unsigned char **raw;        /* [n_devices * n_steps]: the same, NULL where nothing is read, and of a device
                                   whose quantised values are those of a device before it: both read the same bytes.
                                   Where        devices are read one after another, all have the first one's room. */
    size_t loaded;              /* the device that it is in then, of the sample at hand; or SIZE_MAX */
    size_t *input_bytes;        /* [n_inputs] of a sample */
};

/* The plan is borrowed. deinit accepts a zeroed reader and one that was half made. */
enum nd_status nd_reader_init(struct nd_reader *r, const struct nd_plan *plan, struct nd_error *err);
void nd_reader_deinit(struct nd_reader *r);

/* Fills given with the device's quantised values of that sample. */
enum nd_status nd_reader_device(struct nd_reader *r, size_t device, struct nd_error *err);
/* The device's quantised values of one tensor: all of `given`, or, where is_lazy, until the next is asked for.
 */
const struct nd_array *nd_reader_given(struct nd_reader *r, size_t tensor);
/* The same into an array of the tensor's size. */
void nd_reader_give(const struct nd_reader *r, size_t tensor, double *out);
/* Where the block holds the quantised values of a step of any device, of the sample at hand. */
const void *nd_reader_raw(const struct nd_reader *r, size_t device, size_t step);

/* The first two, of samples 0 to n - 1 in order. */
enum nd_status nd_reader_load(struct nd_reader *r, size_t sample, size_t n, struct nd_error *err);
/* All three, in that order, too. */
enum nd_status nd_reader_sample(struct nd_reader *r, size_t device, size_t sample, size_t n,
                                struct nd_error *err);

/* A nd_exact_make that takes the layer through all arithmetics and makes nothing of it: context is a struct
 * nd_reader or begins with one. */
enum nd_status nd_reader_try_layer(void *context, const struct nd_exact_layer *layer, struct nd_array *qvalues,
                                   bool *is_made, struct nd_error *err);
/* A nd_exact_missed that lets the tensor go. */
enum nd_status nd_exact_let_go(void *context, size_t tensor, const struct nd_error *why, struct nd_error *err);
/* The quantised values that rounding half to even gives. */
void nd_round_half_even(const struct nd_exact_values *values, struct nd_array *qvalues);

/* plan.c: the values of layers that cannot be evaluated, [n_edges], as they are given to the reference. Zeros
 * at first; load fills them with those of the sample at hand. free accepts NULL and what was half made. */
enum nd_status nd_substituted_make(const struct nd_plan *plan, struct nd_array **substituted,
                                   struct nd_error *err);
void nd_substituted_load(const struct nd_reader *reader, struct nd_array *substituted);
void nd_substituted_free(const struct nd_plan *plan, struct nd_array **substituted);

/* Stands for an array that is not there. */
struct nd_array nd_no_array(void);

/* Arrays for the model's inputs, without values, and nd_no_array behind them. On failure *inputs is NULL. */
enum nd_status nd_inputs_create(const struct nd_model *model, struct nd_array **inputs, struct nd_error *err);
/* Sets *inputs to NULL; NULL is left alone. */
void nd_inputs_destroy(struct nd_array **inputs);

/* ---- all samples, by several threads ---- */

/* Each thread has a state of its own, which begins with a struct nd_reader. */
struct nd_replay {
    const struct nd_plan *plan;
    struct nd_sample_span span; /* the samples */
    size_t state_bytes;
    void *context; /* handed to the functions */
    /* Makes a zeroed state but for its reader. */
    enum nd_status (*begin)(void *state, void *context, struct nd_error *err);
    /* Of one sample, whose inputs are loaded. */
    enum nd_status (*run)(void *state, struct nd_error *err);
    /* Of each state, one after the other, when all samples are done or after an error: adds what it found to
     * the whole, and frees it but for its reader. The state may be half made. */
    void (*end)(void *state, void *context);
    void (*progress)(void *context, size_t n_done, size_t n_samples); /* as in nd_explain_options; nullable */
    void *progress_context;
    bool (*is_cancelled)(void *context); /* the same */
    void *cancel_context;
};
enum nd_status nd_replay_run(const struct nd_replay *replay, struct nd_error *err);
