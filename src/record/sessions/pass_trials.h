/* Sessions that are only tried: where their nodes go, and whether they come to be at all. */
#ifndef ND_RECORD_PASS_TRIALS_H
#define ND_RECORD_PASS_TRIALS_H

#include "devices/capture_request.h"
#include "devices/launch.h"
#include "record/sessions/pass_plan.h"

struct nd_tries {
    struct nd_capture_job *capture;
    unsigned int n;          /* sessions tried */
    struct nd_fell_back own; /* nodes that fall when nothing but the outputs is recorded: looking is not why */
    double session_limit_s;  /* for a session to come to be; 0: the capture's own limits */
    struct nd_digest *outputs; /* [n_outputs] what the first sample gives when nothing else is recorded */
    size_t n_outputs;          /* of the model */
    bool do_outputs_hold;      /* their session gives all of them as they are recorded */
    bool with_sample;          /* a session that gives other outputs does not hold */
};
void nd_tries_deinit(struct nd_tries *trials);

/* The least that a capture can show: tries the session that exposes the model's outputs alone, and keeps the
 * nodes that fall there as the device's own, and how long it took as the measure of all others. *holds is false
 * where there is no such session. Where the codes of the outputs are not to be had without a node that falls,
 * but their floats are, as the model itself gives them, the outputs are recorded through their floats from then
 * on. */
enum nd_status nd_tries_begin(struct nd_tries *trials, bool *holds, struct nd_error *err);

/* Whether the outputs that the first pass of a run recorded for the first sample are those of the session of
 * the outputs alone; true as well where that is not known. */
enum nd_status nd_tries_agree(const struct nd_tries *trials, const char *folder, bool *do_agree,
                              struct nd_error *err);

/* From now on every session that exposes all outputs of the model also runs the first sample. *is_steady is
 * false where the session of the outputs alone gives others now than before: then nothing can be told. */
enum nd_status nd_tries_use_sample(struct nd_tries *trials, bool *is_steady, struct nd_error *err);

/* nd_session_trial and nd_recording.has_time; context: struct nd_tries. */
enum nd_status nd_tries_try(void *context, const size_t *tensors, size_t n_tensors, struct nd_tried *out,
                            struct nd_error *err);
bool nd_tries_have_time(void *context);

/* nd_recording.use_floats; context: struct nd_tries. */
bool nd_tries_use_floats(void *context, size_t tensor, bool as_floats);

#endif
