/* One reduction while it runs. */
#ifndef ND_REDUCE_REDUCER_H
#define ND_REDUCE_REDUCER_H

#include "improve/reduce/candidate.h"
#include "improve/reduce/difference.h"
#include "improve/reduce/search.h"
#include "model/graph/parts.h"
#include "npudiff/improve/reduce.h"

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

#endif
