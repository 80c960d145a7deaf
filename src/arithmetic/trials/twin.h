/* The twin of a chip: a quantised model computed layer by layer by the code with which `explain` predicts what
 * the chip makes of each, on what the twin itself made before. Known defects of the SDK are in it where they
 * are predicted. What is not known is rounded exactly, and marked.
 *
 *     struct nd_twin_chip chip;
 *     if (nd_twin_chip_of("v75", ND_TWIN_NEWEST_SDK, &chip) &&
 *         (status = nd_twin_create(model, graph, &chip, NULL, &twin, err)) == ND_OK)
 *         status = nd_twin_run(twin, inputs, found, context, err);   (for each sample) */
#pragma once

#include "arithmetic/exact/eval_graph.h"
#include "arithmetic/htp/htp.h"
#include "npudiff/arithmetic/twin_mark.h"

struct nd_twin_chip {
    const struct nd_layer_arithmetic *arithmetic; /* one of nd_layer_arithmetics */
    bool is_v81;
};

#define ND_TWIN_NEWEST_SDK "2.51"
/* arch: "v75"; sdk: "2.48" or "2.48.40", from 2.47 on. False: their arithmetic is not known. */
bool nd_twin_chip_of(const char *arch, const char *sdk, struct nd_twin_chip *out);

/* Adds what other samples found of the same tensor. Of several reasons the first in the alphabet stays, so that
 * the order of samples does not matter. */
void nd_twin_mark_merge(const struct nd_twin_mark *from, struct nd_twin_mark *to);

/* One at work on one model. Not thread safe; several may share a graph. */
struct nd_twin;

/* The model, the graph, which was made of it, and is_hidden are borrowed. is_hidden: [n_tensors] those that
 * nobody records, which the chip may make in one operation with what reads them; NULL: all are recorded.
 * ND_ERR_MEMORY. */
enum nd_status nd_twin_create(const struct nd_model *model, const struct nd_exact_graph *graph,
                              const struct nd_twin_chip *chip, const bool *is_hidden, struct nd_twin **out,
                              struct nd_error *err);
void nd_twin_destroy(struct nd_twin **twin);

/* One sample, as nd_exact_graph_run. */
enum nd_status nd_twin_run(struct nd_twin *twin, const struct nd_array *inputs, nd_exact_found *found,
                           void *context, struct nd_error *err);

/* For who takes a sample through the graph himself: before it; what the twin makes of a layer (as
 * nd_exact_make); and that the quantised values of a tensor became others than what was made. */
void nd_twin_begin(struct nd_twin *twin);
enum nd_status nd_twin_make(struct nd_twin *twin, const struct nd_exact_layer *layer, struct nd_array *qvalues,
                            bool *is_made, struct nd_error *err);
void nd_twin_forget(struct nd_twin *twin, size_t tensor);

/* [n_tensors of the model] of all runs so far; valid until the twin is destroyed. */
const struct nd_twin_mark *nd_twin_marks(const struct nd_twin *twin);

/* ND_E_EXACT_OPERATOR names the first tensor that is not known, and the reason. names: [n_tensors] what tensors
 * are called; NULL: as in the model. */
enum nd_status nd_twin_refuse_unknown(const struct nd_twin *twin, const char *const *names,
                                      struct nd_error *err);
