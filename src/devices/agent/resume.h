/* Going on with a run whose agent was interrupted: what its spool holds, and where the next run belongs. */
#ifndef ND_AGENT_RESUME_H
#define ND_AGENT_RESUME_H

#include "devices/agent/result_store.h"
#include "devices/agent/spool/job_file.h"

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

/* How often the sample was run in the pass to go on with, or will be as far as its runs say; 0: it was not run.
 */
size_t nd_resume_n_runs(const struct nd_resume *resume, const struct nd_agent_job *job, size_t probe,
                        size_t sample);

/* Whether that run of the pass to go on with is stored. */
bool nd_resume_has_run(const struct nd_resume *resume, size_t probe, size_t sample, size_t repeat);

#endif
