/* What a study holds at a time, so that it stays within its memory. */
#include <math.h>

#include "core/memory.h"
#include "explain/plan/replay.h"
#include "quantisation/study.h"

static double kept_bytes(const struct nd_exact_graph *graph)
{
    return graph != NULL ? (double)nd_exact_graph_kept_bytes(graph) : 0;
}

/* Constants, and the values that are kept of all samples. */
static double fixed_bytes(const struct nd_study *study)
{
    double bytes = kept_bytes(study->plan->graph) + kept_bytes(study->plan->float_graph);
    for (size_t s = 0; s < study->plan->n_steps; s++)
        bytes += (double)study->values[s].n * (double)(sizeof(float) + sizeof(float));
    return bytes;
}

enum nd_status nd_study_take_memory(struct nd_study *study, struct nd_error *err)
{
    /* Arrays of the step at hand, as doubles of the largest step. Measured: PP-OCR recognition W8A8 took 7 of
     * them, 2026-11-23. */
    enum { OF_LARGEST = 8 };
    /* The part of the memory for libraries and gaps between arrays: chosen. */
    static const double not_counted = 1.0 / 8;
    const struct nd_plan *plan = study->plan;
    double floats = 0, qvalues = 0, largest = 0,
           left = plan->memory_bytes * (1 - not_counted) - fixed_bytes(study);
    size_t n = plan->n_threads < study->n_samples ? plan->n_threads : study->n_samples;
    for (size_t s = 0; s < plan->n_steps; s++) {
        size_t n_elems = 0;
        if (nd_shape_n_elems(&plan->shapes[s], &n_elems, NULL) != ND_OK)
            continue;
        floats += (double)n_elems * sizeof(double);
        qvalues += (double)(n_elems * nd_packed_width(nd_plan_tensor(plan, s)->dtype));
        largest = fmax(largest, (double)n_elems * sizeof(double));
    }
    double of_thread = floats + OF_LARGEST * largest, of_all = (double)study->n_samples * qvalues;
    while (n > 1 && (double)n * (of_thread + qvalues) > left)
        n--;
    study->n_threads = n;
    /* The references of all samples are worth four runs, what was rounded is worth one. */
    bool keeps = (double)n * of_thread + of_all <= left;
    left -= (double)n * of_thread + (keeps ? of_all : (double)n * qvalues);
    study->holds_before = (double)n * floats <= left || !nd_exact_graph_is_pure(plan->graph);
    if (!keeps)
        return ND_OK;
    study->references = nd_calloc(study->n_samples * plan->n_steps, sizeof *study->references);
    study->has_reference = nd_calloc(study->n_samples, sizeof *study->has_reference);
    ND_TRY_MEMORY(study->references != NULL && study->has_reference != NULL, err);
    for (size_t i = 0; i < study->n_samples * plan->n_steps; i++)
        study->references[i].tensor_view = nd_no_array();
    return ND_OK;
}

struct nd_fit nd_fit_of_step(const struct nd_study *study, size_t step)
{
    const struct nd_tensor *tensor = nd_plan_tensor(study->plan, step);
    struct nd_fit fit = {.scale = (double)tensor->quant.scale[0], .zero = (double)tensor->quant.zero_point[0]};
    nd_qvalue_range(tensor->dtype, &fit.low_qvalue, &fit.high_qvalue);
    return fit;
}
