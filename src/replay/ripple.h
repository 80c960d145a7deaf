/* What a changed tensor does to what is computed from it: units behind it are evaluated again, on bytes where
 * they can be (eval/byte_unit.h), until what they give is the reference's again. */
#ifndef ND_REPLAY_RIPPLE_H
#define ND_REPLAY_RIPPLE_H

#include "eval/byte_unit.h"
#include "replay/packed.h"
#include "replay/plan.h"

/* What one thread keeps. */
struct nd_ripple {
    const struct nd_plan *plan;
    const struct nd_byte_units *units;
    struct nd_byte_runner *runner;
    struct nd_packed *made;             /* [n_steps] */
    const struct nd_packed *reference;  /* [n_steps]; of the run at hand */
    const struct nd_packed **changed;   /* [n_steps]; NULL: the step has its reference */
    size_t *first_reader, *last_reader; /* [n_steps]: units; SIZE_MAX: nothing reads the step */
    size_t *touched, n_touched, reach;  /* [n_steps] of the run: steps that changed, the last unit to look at */
};

/* The differences at the model's outputs, in codes. */
struct nd_ripple_sums {
    uint64_t n_changed;
    double energy;
};

/* units are borrowed. deinit accepts a zeroed one, and what is half made. ND_ERR_MEMORY. */
enum nd_status nd_ripple_init(struct nd_ripple *ripple, const struct nd_plan *plan,
                              const struct nd_byte_units *units, struct nd_error *err);
void nd_ripple_deinit(struct nd_ripple *ripple);

/* reference[n_steps]: of all steps; changed: of `step`, of the same size. *is_known false: a unit cannot be
 * evaluated, and the sums are not all. Errors are those of nd_exact_graph_run. */
enum nd_status nd_ripple_run(struct nd_ripple *ripple, const struct nd_packed *reference, size_t step,
                             const struct nd_packed *changed, struct nd_ripple_sums *sums, bool *is_known,
                             struct nd_error *err);

#endif
