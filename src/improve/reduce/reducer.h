/* One reduction while it runs. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "core/error.h"
#include "model/graph/parts.h"
#include "npudiff/capture/capture.h"
#include "npudiff/core/tensor.h"
#include "npudiff/devices/device.h"
#include "npudiff/improve/reduce.h"
#include "npudiff/model/model.h"
#include "npudiff/record/probe.h"

/* ---- writing NumPy's .npz, which src/record/probes reads back ---- */

struct nd_npz_array {
    const char *name;
    enum nd_dtype dtype;
    struct nd_shape shape; /* of one sample */
    size_t n_samples;      /* the array's shape is [n_samples] + shape */
    const void *data;      /* C order, little endian */
    size_t size_bytes;
};

/* Creates path, which must not exist, with the arrays stored as they are. The same arrays give the same bytes.
 * ND_ERR_UNSUPPORTED for a type that NumPy lacks; ND_ERR_IO; ND_ERR_MEMORY. */
enum nd_status nd_npz_write(const char *path, const struct nd_npz_array *arrays, size_t n_arrays,
                            struct nd_error *err);

/* What the whole model's tensors held when a reference ran it, and how far values are from those. */

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
 * two codes, else NaN. fraction: of elements whose bits differ, NaN equals NaN; 0 for none. tensor stays. */
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

/* The parts that delta debugging leaves out or keeps: layers, and operators that lie in none. */

struct nd_piece {
    size_t *nodes; /* in graph order; what comes along by itself (nd_model_write_subgraph) is not listed */
    size_t n_nodes;
};

struct nd_pieces {
    struct nd_piece *items; /* in graph order of their last nodes */
    size_t n;
};

/* Every layer; every other node that computes something from the inputs. nd_pieces_deinit in any case. */
enum nd_status nd_pieces_of_layers(const struct nd_model *model, struct nd_pieces *out, struct nd_error *err);

void nd_pieces_deinit(struct nd_pieces *pieces);

/* The nodes of the given pieces together, in graph order. The caller frees *nodes. */
enum nd_status nd_pieces_nodes(const struct nd_pieces *pieces, const size_t *parts, size_t n_parts,
                               size_t **nodes, size_t *n_nodes, struct nd_error *err);

/* Whether the node is an operator: neither QuantizeLinear nor DequantizeLinear, not computed from constants. */
bool nd_node_is_operator(const struct nd_model *model, size_t node);

/* Delta debugging: a smallest set of parts that still does what all of them together do. */

enum nd_trial {
    ND_TRIAL_SAME, /* it does the same: go on with this one */
    ND_TRIAL_NOT,  /* it does not, or something else */
    ND_TRIAL_STOP, /* there may be no more trials */
};

/* Tries a set of parts, given in rising order. A status other than ND_OK ends the search with it. */
typedef enum nd_status (*nd_trial_function)(void *context, const size_t *parts, size_t n, enum nd_trial *out,
                                            struct nd_error *err);

/* Shrinks parts[*n] (in rising order, known to do the same) in place. Halves first, in order, then ever smaller
 * pieces and what is left without them. *is_minimal: ended because no part can be left out alone; false after
 * ND_TRIAL_STOP. At most O(n^2) trials; log2(n) pairs where a single part is responsible. */
enum nd_status nd_ddmin(size_t *parts, size_t *n, nd_trial_function test, void *context, bool *is_minimal,
                        struct nd_error *err);

/* Sets that were tried, and what came of it. Zeroed is empty. */
struct nd_trials {
    struct nd_trial_entry *entries;
    size_t n, capacity;
};
/* False when the set was not tried yet. */
bool nd_trials_find(const struct nd_trials *trials, const size_t *parts, size_t n, enum nd_trial *out);
enum nd_status nd_trials_add(struct nd_trials *trials, const size_t *parts, size_t n, enum nd_trial trial,
                             struct nd_error *err);
void nd_trials_deinit(struct nd_trials *trials);

/* ---- the reduction ---- */

struct nd_reducer {
    const struct nd_model *model;
    const struct nd_device *device;
    const struct nd_reduce_options *options;
    struct nd_reduction *out;
    char *folder;         /* temporary: all that is tried */
    char *staging;        /* where the reproducer is put together, beside its final place; NULL without one */
    struct nd_device cpu; /* with the runtime of the device under test */
    struct nd_device exact;
    const struct nd_device *reference; /* that recorded; NULL: nobody could */
    struct nd_recorded recorded;
    struct nd_recorded expected; /* differences from another device: what that one gave; of the whole model */
    size_t wanted_node;          /* that makes options->tensor; SIZE_MAX */
    const char *wanted_tensor;   /* the ONNX name of options->tensor; NULL */

    struct nd_pieces pieces; /* of the step that is going on */
    struct nd_trials trials;
    size_t *left; /* pieces of the smallest part so far */
    size_t n_left;
    const char *step;
    size_t n_tried;
    uint64_t start_ns;
};

/* What came of one session. */
struct nd_run {
    struct nd_capture_outcome outcome;
    struct nd_capture *capture; /* owned; NULL when it could not be read */
};
void nd_run_deinit(struct nd_run *run);

/* What is run, and where its capture goes: folder/name, which is replaced. */
struct nd_session {
    const struct nd_model *model;
    const struct nd_device *device;
    const struct nd_probe *const *probes;
    size_t n_probes;
    const char *tensors, *folder, *name;
};

/* Runs a model in an agent and opens the capture. Counts as a session. */
enum nd_status nd_reducer_run(struct nd_reducer *reducer, const struct nd_session *session, struct nd_run *run,
                              struct nd_error *err);

/* A part written as a model of its own, with its inputs as a probe. */
struct nd_smaller_model {
    char *folder; /* its own; holds reproducer.onnx and inputs.npz */
    struct nd_model *model;
    struct nd_probe *probe;
    bool is_all_recorded; /* no input had to be zeros for want of a record */
};

/* Cuts the nodes of `part` out (nodes, n_nodes and is_open count) into `folder`, which is made.
 * ND_ERR_UNSUPPORTED or ND_ERR_NOT_FOUND where they cannot be a model of their own. Call nd_candidate_deinit in
 * any case; it leaves the folder. */
enum nd_status nd_candidate_init(struct nd_smaller_model *candidate, const struct nd_reducer *reducer,
                                 const struct nd_model_cut *part, const char *folder, struct nd_error *err);
void nd_candidate_deinit(struct nd_smaller_model *candidate);

/* A run of the candidate, into its folder. It is borrowed. */
struct nd_session nd_candidate_session(const struct nd_smaller_model *candidate, const struct nd_device *device,
                                       const char *tensors, const char *name);

/* What --tensors is where only failures count: "none", so that the device gets the part as it is; a device that
 * npudiff evaluates itself gives quantised values only, not the floats that they stand for. */
const char *nd_reducer_plain_tensors(const struct nd_reducer *reducer);

/* Runs the candidate on the device under test, and judges it: does it do the same? Keeps the captures in its
 * folder where keep is set. *trial is ND_TRIAL_STOP when there is no session left, but for `reserve` ones. */
enum nd_status nd_candidate_try(struct nd_reducer *reducer, const struct nd_smaller_model *candidate,
                                size_t reserve, enum nd_trial *trial,
                                struct nd_reduction_difference *difference, struct nd_error *err);

/* Cuts down to the smallest part: reducer->left of reducer->pieces. */
enum nd_status nd_reducer_search(struct nd_reducer *reducer, const unsigned *score, struct nd_error *err);

/* ---- whether two failures are the same one, and which nodes a failure speaks of ---- */

/* From how a capture ended, and what is in it (nullable): its /failure, and what its logs were found to say. */
void nd_failure_read(const struct nd_capture_outcome *outcome, const struct nd_capture *capture,
                     struct nd_reduction_failure *out);

/* The same stage, error, code, operator, kind of reason, and message but for names and long numbers. */
bool nd_failure_is_same(const struct nd_reduction_failure *a, const struct nd_reduction_failure *b);

/* Replaces what is in quotes by '*', addresses by 0x* and numbers of five and more digits by #; at most size -
 * 1 bytes. */
void nd_failure_normalise(const char *text, char *out, size_t size);

enum { ND_FAILURE_BEST_SCORE = 4 };

/* score[node] for every node of the model: 0: nothing speaks of it; else larger is better, at most
 * ND_FAILURE_BEST_SCORE. By the names in the findings, and by the kind of the operator. */
enum nd_status nd_failure_score_nodes(const struct nd_model *model, const struct nd_reduction_failure *failure,
                                      const struct nd_capture *capture, unsigned *score, struct nd_error *err);
