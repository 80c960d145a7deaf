/* What a changed tensor does to what is computed from it: layers behind it are evaluated again, on bytes where
 * they can be (arithmetic/exact/bytes/byte_layer.h), until what they give is the reference's again. */
#pragma once

#include "arithmetic/exact/bytes/byte_layer.h"
#include "explain/evaluate/packed.h"
#include "explain/plan/plan.h"

/* Changes of the model. */
struct nd_incremental_change {
    const bool *is_changed; /* [n_edges]: what makes these is evaluated anew */
    size_t given_step;      /* SIZE_MAX, or an input that has other values, and these: */
    const struct nd_packed *given;
    const struct nd_exact_options *options; /* of layers that are not evaluated on bytes: rounding, constants,
                                               tensors of real values; nothing is given */
    void *context;                          /* of options and found */
    void (*found)(void *context, size_t step, const struct nd_packed *values); /* an output was evaluated */
};

/* What one thread keeps. */
struct nd_incremental {
    const struct nd_plan *plan;
    const struct nd_byte_layers *layers;
    struct nd_byte_runner *runner;
    struct nd_packed *made;                     /* [n_steps] */
    const struct nd_packed *reference;          /* [n_steps]; of the run at hand */
    const struct nd_incremental_change *change; /* the same; NULL: the model is as it was */
    const struct nd_packed **changed;           /* [n_steps]; NULL: the step has its reference */
    size_t *first_reader, *last_reader;         /* [n_steps]: layers; SIZE_MAX: nothing reads the step */
    size_t *touched, n_touched, reach; /* [n_steps] of the run: steps that changed, the last layer to look at */
};

/* The differences at the model's outputs, in quantised values. */
struct nd_incremental_sums {
    uint64_t n_changed;
    double squares;
};

/* The layers of the plan's quantised model, of its shapes; *out NULL: it is not of layers alone. ND_ERR_MEMORY,
 * and what evaluating a layer gives. */
enum nd_status nd_incremental_find_layers(const struct nd_plan *plan, struct nd_byte_layers **out,
                                          struct nd_error *err);
/* layers are borrowed. deinit accepts a zeroed one, and what is half made. ND_ERR_MEMORY. */
enum nd_status nd_incremental_init(struct nd_incremental *incremental, const struct nd_plan *plan,
                                   const struct nd_byte_layers *layers, struct nd_error *err);
void nd_incremental_deinit(struct nd_incremental *incremental);

/* reference[n_steps]: of all steps; changed: of `step`, of the same size. *is_known false: a layer cannot be
 * evaluated, and the sums are not all. Errors are those of nd_exact_graph_run. */
enum nd_status nd_incremental_run(struct nd_incremental *incremental, const struct nd_packed *reference,
                                  size_t step, const struct nd_packed *changed,
                                  struct nd_incremental_sums *sums, bool *is_known, struct nd_error *err);
/* The same for changes of the model: outputs that are not told of are as they were. */
enum nd_status nd_incremental_changes(struct nd_incremental *incremental, const struct nd_packed *reference,
                                      const struct nd_incremental_change *change, bool *is_known,
                                      struct nd_error *err);
