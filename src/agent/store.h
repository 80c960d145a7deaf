/* The agent's storing side: a thread of its own that digests, encodes and appends what runs produced, so that
 * storing a sample costs the inference loop one copy. */
#ifndef ND_AGENT_STORE_H
#define ND_AGENT_STORE_H

#include "runtime/runtime.h"
#include "spool/job.h"

struct nd_store_thread;

/* Starts the thread for one pass. job and writer outlive it. */
enum nd_status nd_store_start(const struct nd_job *job, size_t pass, struct nd_spool_writer *writer,
                              struct nd_store_thread **out, struct nd_error *err);

/* One run of one sample. views has one entry per edge of the pass, in order; their bytes are copied before
 * nd_store_put returns. */
struct nd_store_run {
    size_t probe;
    size_t sample;
    size_t repeat;
    uint64_t latency_ns;
    const struct nd_output_view *const *views;
};

/* Hands over one run, in order (probe, sample, repeat); waits while all slots are full. The first run of the
 * pass fixes each edge's type and shape; a later run that differs is ND_E_DEVICE_OUTPUT. When the thread itself
 * has failed, its error is returned. */
enum nd_status nd_store_put(struct nd_store_thread *store, const struct nd_store_run *run,
                            struct nd_error *err);

/* Waits until everything handed over is stored, acknowledged and synced, ends the thread, and frees it. Accepts
 * NULL. */
enum nd_status nd_store_finish(struct nd_store_thread **store, struct nd_error *err);

#endif
