/* One piece of a job, by one thread: every tensor in it is looked at once, block by block.
 * docs/reference/metrics.md#elements and #sums. */
#ifndef ND_COMPARE_TILE_H
#define ND_COMPARE_TILE_H

#include "compare/engine/job_plan.h"

/* What a thread works with, kept from tile to tile. */
struct nd_worker;

/* For jobs of at most n_streams streams and n_pairs pairs; index is the thread's. NULL when out of memory. */
struct nd_worker *nd_worker_create(size_t index, size_t n_streams, size_t n_pairs, struct nd_error *err);
void nd_worker_destroy(struct nd_worker **worker);

/* Adds tile `unit` of the job to the states of this worker. ND_E_CAPTURE_DIGEST: with verify_digests, equal
 * digests over unequal bytes. What reading a capture returns; ND_ERR_MEMORY. */
enum nd_status nd_tile_run(struct nd_worker *worker, struct nd_compare_job *job, size_t tile,
                           struct nd_error *err);

#endif
