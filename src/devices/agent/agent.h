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
    const struct nd_agent_job *job;
    struct nd_spool_writer *writer;
    const struct nd_resume *resume; /* NULL: nothing was done before */
    bool is_remembering;            /* what the session gives depends on what it ran before */
    struct nd_runtime *runtime;
    struct nd_runtime_session *session;
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

/* Makes codes of the floats that the last run gave for some tensors. ND_E_DEVICE_OUTPUT where a float is not
 * the value of a code. codes.c. */
enum nd_status nd_agent_make_codes(struct nd_agent *agent, struct nd_error *err);

#endif
