/* A whole run: one that calls itself an NPU's and is not, whatever its runtime did by itself, and one that was
 * slower than others and truer to the floats. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/statistics/series.h"
#include "explain/fallback/fallback.h"
#include "npudiff/compare/latency.h"

const char *nd_fallback_stated_other(const struct nd_capture *capture)
{
    static const char *const kinds[][2] = {{"cpu", "CPU"}, {"gpu", "GPU"}, {"reference", "reference"}};
    const char *kind = nd_capture_string(capture, "device", "kind");
    bool is_import = nd_capture_string(capture, "import", "format") != NULL;
    for (size_t i = 0; is_import && kind != NULL && i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kind, kinds[i][0]) == 0)
            return kinds[i][1];
    return NULL;
}

/* ---- its layers ---- */

/* Layers of one run are no independent witnesses: together they weigh as the strongest two of a side. */
static double two_strongest(const double *values, size_t n, double sign)
{
    double first = 0, second = 0;
    for (size_t s = 0; s < n; s++) {
        double x = sign * values[s];
        if (x > first) {
            second = first;
            first = x;
        } else if (x > second) {
            second = x;
        }
    }
    return fmin(first + second, ND_FALLBACK_MAX);
}

static void count_layers(const struct nd_plan *plan, struct nd_explained_device *device)
{
    struct nd_explained_execution *run = &device->execution;
    for (size_t s = 0; s < plan->n_steps; s++) {
        if (nd_plan_tensor(plan, s)->is_model_input)
            continue;
        enum nd_execution verdict = device->layers[s].execution.verdict;
        run->n_npu += verdict == ND_EXECUTION_NPU;
        run->n_not_npu += verdict == ND_EXECUTION_NOT_NPU;
        run->n_unknown += verdict == ND_EXECUTION_UNKNOWN;
    }
}

static enum nd_status judge_layers(const double *values, size_t n_steps, struct nd_explained_execution *run,
                                   struct nd_error *err)
{
    double for_npu = two_strongest(values, n_steps, 1), against = two_strongest(values, n_steps, -1);
    size_t n_npu = 0, n_not = 0;
    for (size_t s = 0; s < n_steps; s++) {
        n_npu += values[s] >= ND_FALLBACK_DECISION;
        n_not += values[s] <= -ND_FALLBACK_DECISION;
    }
    if (n_npu > 0 ||
        n_not == 0) /* what others were computed by is no evidence against the NPU's having a part */
        return nd_fallback_add(run, "layers", for_npu > against || n_npu > 0 ? for_npu : -against, err,
                               "of the layers whose values tell, %zu were computed by an NPU and %zu were not",
                               n_npu, n_not);
    return nd_fallback_add(
        run, run->is_called_npu ? "whole-run-cpu" : "layers", -against, err,
        "of %zu layers whose values tell, none was computed by an NPU%s", n_not,
        run->is_called_npu ? ", which the device is called: as by a runtime that retried on the CPU by itself"
                           : "");
}

static enum nd_status judge_placement(const struct nd_capture *capture, struct nd_explained_execution *run,
                                      struct nd_error *err)
{
    const char *stated = nd_fallback_stated_other(capture);
    if (stated != NULL)
        return nd_fallback_add(run, "stated", -ND_FALLBACK_MAX, err,
                               "the import states that the device is a %s", stated);
    size_t n_npu = 0, n_not = 0;
    for (size_t e = 0; e < nd_capture_n_tensors(capture); e++) {
        const char *provider = nd_capture_tensor_provider(capture, e);
        if (nd_capture_tensor(capture, e)->is_model_input || provider[0] == '\0')
            continue;
        bool is_cpu = strcmp(provider, "CPUExecutionProvider") == 0;
        if (!is_cpu && !run->is_called_npu)
            continue; /* an emulated device's own */
        n_npu += !is_cpu;
        n_not += is_cpu;
    }
    if (n_npu + n_not == 0)
        return ND_OK;
    return nd_fallback_add(run, "placement", n_npu > 0 ? ND_FALLBACK_MAX : -ND_FALLBACK_MAX, err,
                           "the capture says that %zu layers ran on an NPU's provider and %zu on the CPU's",
                           n_npu, n_not);
}

/* ---- times ---- */

/* Some of the runs went another way: which way, and in which layer, times alone do not tell. */
static enum nd_status judge_latency(const struct nd_plan_source *source, struct nd_explained_execution *run,
                                    struct nd_error *err)
{
    static const double of_modes = 1, of_tied = 3; /* bits; chosen (docs/science/fallback.md#the-run) */
    struct nd_latency latency;
    struct nd_error ignored = {0};
    if (!run->is_called_npu ||
        nd_latency_of_capture(source->capture, source->probe, NULL, &latency, &ignored) != ND_OK)
        return ND_OK; /* times that make no sense are no evidence */
    bool is_tied = latency.join.state == ND_JOIN_KNOWN && latency.join.n_tied > 0;
    if (is_tied)
        return nd_fallback_add(
            run, "latency-modes", -of_tied, err,
            "%zu of %zu slow runs gave other bits than the fast runs of the same samples, from '%s' on",
            latency.join.n_slow_other, latency.join.n_slow,
            latency.join.first_tied < nd_capture_n_tensors(source->capture)
                ? nd_capture_tensor(source->capture, latency.join.first_tied)->name
                : "?");
    if (latency.verdict != ND_LATENCY_TWO_MODES)
        return ND_OK;
    return nd_fallback_add(
        run, "latency-modes", -of_modes, err,
        "its runs are of two speeds, %.4g and %.4g us, with the same bits as far as runs were repeated",
        latency.modes[0].median_us, latency.modes[1].median_us);
}

static enum nd_status find_median(const struct nd_plan_source *source, double *out, struct nd_error *err)
{
    const struct nd_capture_probe *probe = nd_capture_probe(source->capture, source->probe);
    size_t n_all = probe->n_samples * probe->n_repeats, n = 0;
    double *us = nd_calloc(n_all, sizeof *us);
    if (us == NULL && n_all > 0)
        return nd_fail_memory(err);
    for (size_t i = 0; i < n_all && probe->latency_us != NULL; i++)
        if (probe->latency_us[i] > 0)
            us[n++] = probe->latency_us[i];
    nd_series_sort(us, n);
    *out = n > 0 ? us[n / 2] : NAN;
    free(us);
    return ND_OK;
}

static double error_of(const struct nd_explained_device *device)
{
    const struct nd_decomposition *o = &device->output;
    return o->n_qvalues > 0 ? o->quantisation + o->divergence + o->interaction : NAN;
}

static double divergence_of(const struct nd_explained_device *device)
{
    return device->output.n_qvalues > 0 ? device->output.divergence : NAN;
}

/* What computes in floats is truer to the model than its siblings, and on a phone it takes longer. */
static enum nd_status judge_accuracy(const struct nd_plan *plan, size_t device,
                                     struct nd_explained_device *devices, struct nd_error *err)
{
    /* Bits, and ratios; chosen (docs/science/fallback.md#the-run). */
    static const double weight = 3, much_truer = 0.25, much_slower = 1.5;
    double own_us, error = error_of(&devices[device]), divergence = divergence_of(&devices[device]);
    size_t n = 0;
    enum nd_status status = find_median(&plan->sources[device], &own_us, err);
    if (!nd_capture_is_called_npu(plan->sources[device].capture) || isnan(own_us) || isnan(error))
        return status;
    for (size_t d = 0; d < plan->n_devices && status == ND_OK; d++) {
        double us;
        if (d == device || plan->sources[d].is_failed || !nd_capture_is_called_npu(plan->sources[d].capture))
            continue;
        status = find_median(&plan->sources[d], &us, err);
        bool is_outdone = error < error_of(&devices[d]) &&
                          divergence < much_truer * divergence_of(&devices[d]) && own_us > much_slower * us;
        if (!is_outdone) /* of all siblings, or it says nothing */
            return status;
        n++;
    }
    if (status != ND_OK || n == 0)
        return status;
    return nd_fallback_add(
        &devices[device].execution, "accurate-and-slow", -weight, err,
        "its outputs are nearer to the floats than those of %zu sibling%s, and it took longer: median %.4g us",
        n, n == 1 ? "" : "s", own_us);
}

/* ---- the verdict ---- */

/* One layer that was not computed by the NPU is enough for "partly"; what is said of the whole is said of what
 * tells. */
static void conclude_run(struct nd_explained_execution *run)
{
    nd_fallback_conclude(run);
    if (run->is_contradictory && run->verdict == ND_EXECUTION_UNKNOWN) {
        run->why_unknown = "the evidence contradicts itself";
        return;
    }
    if (run->n_npu > 0 && run->n_not_npu > 0)
        run->verdict = ND_EXECUTION_PARTLY;
    if (run->verdict == ND_EXECUTION_UNKNOWN)
        run->why_unknown = "nothing that was captured tells";
}

enum nd_status nd_fallback_judge_run(const struct nd_plan *plan, size_t device, const double *values,
                                     bool hides_placement, struct nd_explanation *out, struct nd_error *err)
{
    const struct nd_plan_source *source = &plan->sources[device];
    struct nd_explained_execution *run = &out->devices[device].execution;
    run->is_called_npu = nd_capture_is_called_npu(source->capture);
    count_layers(plan, &out->devices[device]);
    enum nd_status status = judge_layers(values, plan->n_steps, run, err);
    if (status == ND_OK)
        status = judge_latency(source, run, err);
    if (status == ND_OK)
        status = judge_accuracy(plan, device, out->devices, err);
    if (status == ND_OK && !hides_placement)
        status = judge_placement(source->capture, run, err);
    conclude_run(run);
    return status;
}
