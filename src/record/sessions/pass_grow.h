/* A pass that grows: of pass_plan.h, which says how passes follow one another. */
#ifndef ND_RECORD_PASS_GROW_H
#define ND_RECORD_PASS_GROW_H

#include "record/sessions/pass_plan.h"
#include "record/sessions/pass_split.h"

/* The plan in work, and the pass in work. */
struct nd_planner {
    const struct nd_recording *of;
    struct nd_pass_plan *plan;
    size_t *kinds;                   /* of the model's edges */
    struct nd_candidate *candidates; /* of the pass in work */
    bool *is_shown;  /* [n_edges]: in the session of the pass in work; its edges and its checks */
    bool *is_member; /* [n_edges]: recorded by it */
    size_t n_members;
    size_t *n_accepted, *n_rejected; /* of each kind, in the pass in work */
    bool *is_near;                   /* kinds near the nodes that fell */
    bool *fails_beside;              /* [n_edges]: does not hold beside the outputs and nothing else */
    size_t n_seeds;                  /* members that are the outputs, in the first pass */
    size_t *scratch;                 /* [n_edges] */
    bool with_outputs;               /* the pass in work exposes the outputs again */
    bool with_sources;               /* it exposes what its edges are computed from, as far as pass 0 has it */
    bool is_closed;                  /* it takes no more edges */
    bool is_late;                    /* there is no time for trials */
};

/* An edge by its position among those of the recording. */
const struct nd_edge *nd_planner_edge(const struct nd_planner *p, size_t at);

/* Whether the first pass has outputs of the model. */
bool nd_planner_has_outputs(const struct nd_planner *p);

/* Puts the outputs that the first pass has into the session of the pass in work, or takes them out. */
void nd_planner_show_outputs(struct nd_planner *p, bool is_shown);

/* Tries the session of the pass in work as it is, or with x beside it. Does not hold, with the reason, where
 * there is no more time. */
enum nd_status nd_planner_try_shown(struct nd_planner *p, struct nd_tried *out, struct nd_error *err);
enum nd_status nd_planner_try_beside(struct nd_planner *p, const struct nd_candidate *x, size_t n,
                                     struct nd_tried *out, struct nd_error *err);

/* Makes x members of the pass in work. */
void nd_planner_accept(struct nd_planner *p, const struct nd_candidate *x, size_t n);

/* Says in the plan why no session shows an edge. */
enum nd_status nd_planner_give_up(struct nd_planner *p, size_t at, const struct nd_tried *trial,
                                  struct nd_error *err);

/* Takes into the pass what holds of x. known: what a session did that exposes all of it beside what the pass
 * has; NULL: not tried. */
enum nd_status nd_planner_grow(struct nd_planner *p, struct nd_candidate *x, size_t n,
                               const struct nd_tried *known, struct nd_error *err);

#endif
