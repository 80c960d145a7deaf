/* Cutting a capture into passes.
 *
 * Making many tensors visible at once can change where a provider places nodes (its layout pass meets a graph
 * output where it wanted to move a transpose), although the model itself runs on the NPU as a whole. What a
 * capture must never do is change what it observes. So the placement is tried before anything runs; where it
 * does not hold, the edges around the nodes that fell to the CPU go into a further session. */
#ifndef ND_RECORD_PASS_PLAN_H
#define ND_RECORD_PASS_PLAN_H

#include "npudiff/device.h"
#include "spool/job_file.h"

/* Names of nodes that did not go to the provider. */
struct nd_fallen {
    char **names;
    size_t n;
};
void nd_fallen_deinit(struct nd_fallen *fallen);
bool nd_fallen_has(const struct nd_fallen *fallen, const char *node);

/* Tries the placement of one session that exposes `edges` (indices into the model). Fills fallen with the nodes
 * that exposing these edges moved to the CPU (freed by nd_fallen_deinit; empty when it moved none). A session
 * that fails for another reason counts as all placed: the real run will meet and record that failure. */

typedef enum nd_status (*nd_placement_trial)(void *context, const size_t *edges, size_t n_edges,
                                             struct nd_fallen *fallen, struct nd_error *err);

/* What is to be recorded, and how to find out where the nodes then go. */
struct nd_recording {
    const struct nd_model *model;
    const size_t *edges; /* indices into the model */
    size_t n_edges;
    nd_placement_trial trial;
    void *context; /* of trial */
};

/* Assigns each of the edges to a pass: pass_of_edge[i] for edges[i]; *n_passes is at least 1. Where splitting
 * does not help (the model itself falls back), everything stays in pass 0 and the run will report it. */
enum nd_status nd_plan_passes(const struct nd_recording *recording, size_t *pass_of_edge, size_t *n_passes,
                              struct nd_error *err);

#endif
