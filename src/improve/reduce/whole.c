/* The whole model: what is wrong with it, and what a reference makes of it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "model/graph/loaded.h"
#include "improve/reduce/candidate_failure.h"
#include "improve/reduce/difference.h"
#include "improve/reduce/reducer.h"

static enum nd_status run_whole(struct nd_reducer *reducer, const struct nd_device *device, const char *edges,
                                struct nd_run *run, struct nd_error *err)
{
    const struct nd_session session = {.model = reducer->model,
                                       .device = device,
                                       .probes = reducer->recorded.probes,
                                       .n_probes = reducer->recorded.n_probes,
                                       .edges = edges,
                                       .folder = reducer->folder,
                                       .name = "whole.h5"};
    return nd_reducer_run(reducer, &session, run, err);
}

/* ---- recording ---- */

static enum nd_status record_with(struct nd_reducer *reducer, const struct nd_device *device,
                                  struct nd_error *err)
{
    struct nd_run run = {0};
    struct nd_error problem = {0};
    enum nd_status status = run_whole(reducer, device, "all", &run, &problem);
    if (status == ND_OK && !run.outcome.has_failed && run.capture != NULL) {
        reducer->reference = device;
        snprintf(reducer->out->inputs, sizeof reducer->out->inputs, "%s", nd_device_kind_name(device->kind));
        status = nd_recorded_add(&reducer->recorded, &run.capture, false, err);
    } else if (status == ND_ERR_USAGE || status == ND_ERR_UNSUPPORTED || status == ND_ERR_FORMAT ||
               status == ND_ERR_NOT_FOUND) {
        /* A device that is not for such models is no trouble: there is another one. */
        status = ND_OK;
        reducer->out->n_sessions--; /* no agent was started */
    } else if (status != ND_OK && err != NULL) {
        *err = problem;
    }
    nd_run_deinit(&run);
    return status;
}

enum nd_status nd_reducer_record(struct nd_reducer *reducer, struct nd_error *err)
{
    const struct nd_reduce_options *options = reducer->options;
    /* A difference from the quantised reference is held against its codes, so its codes are what is fed. */
    const struct nd_device *first = &reducer->cpu, *second = &reducer->exact;
    if (options->has_difference && options->against == NULL) {
        first = &reducer->exact;
        second = NULL;
    } else if (options->has_difference) {
        first = options->against;
        second = NULL;
    }
    reducer->step = "reference";
    enum nd_status status = record_with(reducer, first, err);
    if (status == ND_OK && reducer->reference == NULL && second != NULL)
        status = record_with(reducer, second, err);
    if (status == ND_OK && reducer->reference == NULL && options->has_difference)
        status = nd_fail(err, ND_E_REDUCE_REFERENCE, nd_model_path(reducer->model),
                         "'%s' cannot run '%s', so nothing can differ from it", first->label,
                         nd_model_path(reducer->model));
    if (status == ND_OK && reducer->reference == NULL)
        snprintf(reducer->out->inputs, sizeof reducer->out->inputs, "zeros");
    return status;
}

/* ---- what is wrong ---- */

static bool is_looked_at(const struct nd_reducer *reducer, const struct nd_edge *edge)
{
    return reducer->wanted_tensor != NULL ? strcmp(edge->onnx_name, reducer->wanted_tensor) == 0
                                          : edge->is_model_output;
}

/* The first edge that is off by more than asked for is where to look first; the worst that is looked at is what
 * has to be seen again. */
static enum nd_status examine_edges(struct nd_reducer *reducer, const struct nd_capture *capture,
                                    unsigned *score, struct nd_reduction_difference *inner,
                                    struct nd_error *err)
{
    const struct nd_graph *graph = &reducer->model->graph;
    struct nd_reduction_difference *worst = &reducer->out->difference;
    enum nd_status status = ND_OK;
    bool has_first = false, has_worst = false;
    *worst = *inner = (struct nd_reduction_difference){.max_lsb = NAN};
    for (size_t e = 0; status == ND_OK && e < nd_capture_n_edges(capture); e++) {
        struct nd_reduction_difference one;
        const struct nd_edge *edge = nd_capture_edge(capture, e);
        status = nd_difference_of_edge(&reducer->recorded, capture, e, false, &one, err);
        if (status != ND_OK || isnan(one.fraction))
            continue;
        if (is_looked_at(reducer, edge) && (!has_worst || nd_difference_is_worse(&one, worst))) {
            *worst = one;
            has_worst = true;
        }
        if (nd_difference_is_worse(&one, inner))
            *inner = one;
        size_t tensor = nd_names_find(&graph->names, edge->onnx_name);
        if (!has_first && nd_difference_exceeds(&one, reducer->options) && tensor != ND_NO_INDEX &&
            graph->tensors[tensor].producer != ND_NO_INDEX) {
            score[graph->tensors[tensor].producer] = ND_FAILURE_BEST_SCORE;
            has_first = true;
        }
    }
    return status;
}

static enum nd_status find_difference(struct nd_reducer *reducer, const struct nd_run *run, unsigned *score,
                                      struct nd_error *err)
{
    struct nd_reduction_difference inner = {.max_lsb = NAN};
    enum nd_status status = examine_edges(reducer, run->capture, score, &inner, err);
    if (status != ND_OK || nd_difference_exceeds(&reducer->out->difference, reducer->options))
        return status;
    reducer->out->end = ND_REDUCTION_NOTHING;
    reducer->out->left_difference = inner;
    return ND_OK;
}

enum nd_status nd_reducer_try_whole(struct nd_reducer *reducer, unsigned *score, struct nd_error *err)
{
    bool has_difference = reducer->options->has_difference;
    struct nd_run run = {0};
    reducer->step = "whole model";
    enum nd_status status = run_whole(reducer, reducer->device,
                                      has_difference ? "all" : nd_reducer_plain_tensors(reducer), &run, err);
    if (status != ND_OK)
        goto out;
    if (run.outcome.has_failed) {
        nd_failure_read(&run.outcome, run.capture, &reducer->out->failure);
        if (strcmp(run.outcome.stage, "load") == 0)
            reducer->out->end = ND_REDUCTION_NO_MODEL;
        else if (has_difference)
            status = nd_fail(err, ND_E_REDUCE_REFERENCE, reducer->device->label,
                             "device '%s' fails on the whole model, which is no difference: %s",
                             reducer->device->label, reducer->out->failure.message);
        else
            status = nd_failure_score_nodes(reducer->model, &reducer->out->failure, run.capture, score, err);
    } else if (has_difference) {
        status = find_difference(reducer, &run, score, err);
    } else {
        reducer->out->end = ND_REDUCTION_NOTHING;
    }
out:
    nd_run_deinit(&run);
    return status;
}
