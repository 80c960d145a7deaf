/* From the states of jobs to the results of edges. docs/reference/metrics.md#elements, #accounting,
 * #mixed-types and #parts. */
#ifndef ND_COMPARE_DELIVER_H
#define ND_COMPARE_DELIVER_H

#include "compare/engine/job.h"

/* What an edge is waiting for. */
struct nd_edge_work {
    size_t n_jobs_left;
    struct nd_pair_state **totals;           /* [n_pairs] over the probes so far; NULL where there is nothing */
    const struct nd_pair_context **contexts; /* [n_pairs], borrowed from the jobs */
};

struct nd_delivery {
    const struct nd_matching *alignment;
    const struct nd_compare_options *options;
    struct nd_comparison *comparison;
    struct nd_edge_work *edges; /* [n_edges] */
    struct nd_output_rows rows;
};

/* jobs: all of them, planned. The caller runs nd_delivery_deinit whatever happens. */
enum nd_status nd_delivery_init(struct nd_delivery *delivery, struct nd_job *const *jobs, size_t n_jobs,
                                struct nd_error *err);
void nd_delivery_deinit(struct nd_delivery *delivery);

/* A job whose units are all done: fills the parts of its probe and, with the last job of an edge, the totals;
 * frees its states. One call at a time. */
enum nd_status nd_deliver(struct nd_delivery *delivery, struct nd_job *job, struct nd_error *err);

/* ND_E_CAPTURE_DIGEST when a sample of the job differs by its digests and not in one element: one of the two is
 * wrong, and calling the samples equal would trust the wrong half of a damaged file. */
enum nd_status nd_deliver_check(const struct nd_job *job, struct nd_error *err);

#endif
