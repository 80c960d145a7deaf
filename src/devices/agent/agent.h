/* Shared by the files of agent/ only: one agent at its job. */
#pragma once

#include <stdatomic.h>

#include "devices/agent/runtime/runtime.h"
#include "devices/agent/spool/job_file.h"

/* The agent's storing side: a thread of its own that digests, encodes and appends what runs produced, so that
 * storing a sample costs the inference loop one copy. */

struct nd_store_thread;

/* Starts the thread for one pass. job and writer outlive it. */
enum nd_status nd_store_start(const struct nd_agent_job *job, size_t pass, struct nd_spool_writer *writer,
                              struct nd_store_thread **out, struct nd_error *err);

/* One run of one sample. views has one entry per tensor of the pass, in order; their bytes are copied before
 * nd_store_put returns. */
struct nd_store_run {
    size_t probe;
    size_t sample;
    size_t repeat;
    uint64_t latency_ns;
    const struct nd_output_view *const *views;
};

/* Hands over one run, in order (probe, sample, repeat); waits while all slots are full. The first run of the
 * pass fixes each tensor's type and shape; a later run that differs is ND_E_DEVICE_OUTPUT. When the thread
 * itself has failed, its error is returned. */
enum nd_status nd_store_put(struct nd_store_thread *store, const struct nd_store_run *run,
                            struct nd_error *err);

/* Waits until all runs that were handed over are stored, and says how often the last one's sample is to be run:
 * whether its first two runs differ decides that. The thread's own error when it has failed. */
enum nd_status nd_store_n_runs(struct nd_store_thread *store, size_t *n, struct nd_error *err);

/* What an agent before this one stored of the pass, up to an acknowledgement. */
struct nd_store_fragment {
    size_t first; /* sample */
    size_t n;
    const void *bytes;
    size_t n_bytes;
};
struct nd_store_past_tensor {
    bool is_known;
    enum nd_dtype dtype;
    struct nd_shape shape;
    struct nd_store_fragment *fragments; /* in order, behind its last whole chunk */
    size_t n_fragments, capacity;
};
struct nd_store_past {
    size_t probe, sample, repeat; /* of its last run */
    size_t n_runs;                /* of that sample */
    const void *first_digests;    /* one of every tensor of the pass, from repeat 0 of that sample */
    const struct nd_store_past_tensor *tensors; /* of the whole job */
};

/* Takes up where that agent stopped, before the first nd_store_put, which hands over the run after its last.
 * ND_E_SPOOL_RESUME when a sample that was acknowledged is not there. Borrows past for the call. */
enum nd_status nd_store_restore(struct nd_store_thread *store, const struct nd_store_past *past,
                                struct nd_error *err);

/* Waits until everything handed over is stored, acknowledged and synced, ends the thread, and frees it. Accepts
 * NULL. */
enum nd_status nd_store_finish(struct nd_store_thread **store, struct nd_error *err);

/* Going on with a run whose agent was interrupted: what its spool holds, and where the next run belongs. */

struct nd_resume_records {
    struct nd_record *items;
    size_t n, capacity;
};

struct nd_resume {
    bool is_fresh;     /* nothing was acknowledged: the run starts over, and nothing below is set */
    bool has_ended;    /* the run was over: nothing is left to do */
    uint64_t n_before; /* how often it was resumed before */
    size_t pass;       /* to go on with; those before it are complete */
    bool has_runs;     /* the pass has some: its nodes and outputs are in the spool, and `past` is set */
    size_t probe;      /* of the next run; the number of probes when the pass has them all */
    size_t sample;
    size_t repeat;
    struct nd_store_past past; /* of the pass */
    struct nd_record runtime;
    struct nd_resume_records libraries;
    struct nd_resume_records nodes;       /* of the pass */
    struct nd_store_past_tensor *tensors; /* of the job */
    size_t n_tensors;
    size_t *n_runs;                /* per sample over all probes: how often it was run in the pass */
    const void **first_pass;       /* per sample over all probes: the digests of pass 0's tensors, or NULL */
    struct nd_spool_reader reader; /* records and digests point into it */
};

/* Opens the spool of an interrupted run of this job to go on with it: cuts it to what nd_spool_keep says, and
 * reads that. A missing spool, or one without acknowledgements, is empty then (is_fresh). The writer is open
 * unless has_ended or on failure. ND_E_SPOOL_RESUME for the spool of another job, for a file that is no spool,
 * while another agent writes it, and when records contradict the job; the file is then as it was. */
enum nd_status nd_resume_open(const struct nd_agent_job *job, const char *path, struct nd_spool_writer *writer,
                              struct nd_resume *out, struct nd_error *err);
void nd_resume_close(struct nd_resume *resume);

/* ---- the agent ---- */

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
    size_t n_ahead;                 /* samples from the one in progress on that the session has run already */
    uint64_t ahead_ns;              /* what each of them took */
    bool is_one_by_one;             /* the session runs none ahead */
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

/* Doing a job: load the runtime, create the session, check placement, run every sample, store what comes. */

/* Does the whole job and writes the spool, or what resume (nullable) leaves of it. A failure of the device is
 * itself recorded (ND_RECORD_FAILURE) and returned. */
enum nd_status nd_agent_run(const struct nd_agent_job *job, const struct nd_resume *resume,
                            struct nd_spool_writer *writer, struct nd_error *err);
