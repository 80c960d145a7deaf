/* Shared by the files of agent/ only: one agent at its job. */
#ifndef ND_AGENT_AGENT_H
#define ND_AGENT_AGENT_H

#include <stdatomic.h>

#include "devices/agent/result_store.h"
#include "devices/agent/resume.h"
#include "devices/agent/runtime/runtime.h"
#include "devices/agent/spool/job_file.h"

/* A tensor that the session gives as floats. */
struct nd_agent_codes {
    const struct nd_output_view *floats; /* NULL: it is given as codes */
    struct nd_output_view view;          /* its codes, after a run */
    void *bytes;
    size_t capacity;
};

struct nd_agent {
    const struct nd_job *job;
    struct nd_spool_writer *writer;
    const struct nd_resume *resume; /* NULL: nothing was done before */
    bool is_remembering;            /* what the session gives depends on what it ran before */
    struct nd_runtime *runtime;
    struct nd_session *session;
    struct nd_store_thread *store;
    const char *stage;
    atomic_size_t log_bytes;
    size_t *target_of_input;        /* session input -> job target */
    const void **inputs;            /* session inputs of the run in progress */
    struct nd_output_view *outputs; /* session outputs */
    struct nd_agent_codes *qvalues; /* [tensors of the job]: of those that the session gives as floats */
    size_t pass;
    const struct nd_output_view **tensors; /* tensor of the pass -> its session output */
    const struct nd_output_view **checks;  /* checked tensor -> its session output */
    size_t *check_ids; /* checked tensors, as numbers in the job; sorted, those of all passes */
    size_t n_check_ids;
    struct nd_digest *first_pass; /* [sample over all probes][n_check_ids]: what pass 0 gave for them */
};

/* Whether the pass in work is the one that another agent began. */
bool nd_agent_is_resumed_pass(const struct nd_agent *agent);

/* ---- agent_session.c: the runtime and one session, and what they say of themselves ---- */

enum nd_status nd_agent_load_runtime(struct nd_agent *agent, struct nd_error *err);

/* The session of the pass in work. When it is refused, what the runtime says of the cause is logged. */
enum nd_status nd_agent_create_session(struct nd_agent *agent, struct nd_error *err);

/* Records which outputs the session cannot give; ND_E_RUNNER_TENSORS when there are some. */
enum nd_status nd_agent_check_missing(struct nd_agent *agent, struct nd_error *err);

/* Records where every node went. ND_E_DEVICE_FALLBACK when one is not on the provider and may not be,
 * ND_E_DEVICE_OUTPUT when it is not where it was before an interruption. */
enum nd_status nd_agent_check_placement(struct nd_agent *agent, struct nd_error *err);

/* Records what the context binary says that the session made, when the job names one. context_facts.c. */
enum nd_status nd_agent_record_context(struct nd_agent *agent, struct nd_error *err);

/* Records the profile, when this pass has one. */
enum nd_status nd_agent_record_profile(struct nd_agent *agent, struct nd_error *err);

/* Records what an emulated device did wrong until now; what is recorded last counts. */
enum nd_status nd_agent_record_truth(struct nd_agent *agent, struct nd_error *err);

/* ---- connect.c: which of the session's inputs and outputs is what in the job ---- */

/* Which tensors later passes check, and room for what pass 0 gives for them, or gave before an interruption.
 * Once for all passes. */
enum nd_status nd_agent_prepare_checks(struct nd_agent *agent, struct nd_error *err);
enum nd_status nd_agent_connect(struct nd_agent *agent, struct nd_error *err);
/* Makes codes of the floats that the last run gave for some tensors. ND_E_DEVICE_OUTPUT where a float is not
 * the value of a code. codes.c. */
enum nd_status nd_agent_make_codes(struct nd_agent *agent, struct nd_error *err);

/* Frees what nd_agent_connect made, for the next pass. */
void nd_agent_disconnect(struct nd_agent *agent);

/* Holds the outputs of the last run against what the job says of their types, and, when compare_passes, against
 * pass 0. */
enum nd_status nd_agent_check_outputs(struct nd_agent *agent, size_t probe, size_t sample, bool compare_passes,
                                      struct nd_error *err);

#endif
