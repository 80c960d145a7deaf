/* The agent's storing side: a thread of its own that digests, encodes and appends what runs produced, so that
 * storing a sample costs the inference loop one copy. */
#ifndef ND_AGENT_RESULT_STORE_H
#define ND_AGENT_RESULT_STORE_H

#include "devices/agent/runtime/runtime.h"
#include "devices/agent/spool/job_file.h"

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

#endif
