#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/text/options.h"
#include "compare/findings/channels.h"
#include "compare/findings/classes.h"
#include "compare/engine/engine.h"
#include "compare/findings/labels.h"
#include "compare/engine/part.h"
#include "compare/findings/predicates.h"
#include "compare/findings/repeats.h"
#include "compare/engine/result.h"
#include "compare/metrics/gates.h"

const char *nd_verdict_name(enum nd_verdict verdict)
{
    static const char *const names[] = {"same",    "within",         "inconclusive",
                                        "differs", "not comparable", "failed"};
    return (size_t)verdict < sizeof names / sizeof names[0] ? names[verdict] : "unknown";
}

enum nd_exit nd_verdict_exit_code(enum nd_verdict verdict)
{
    switch (verdict) {
    case ND_VERDICT_SAME:
    case ND_VERDICT_WITHIN:
        return ND_EXIT_SAME;
    case ND_VERDICT_DIFFERS:
        return ND_EXIT_DIFFERS;
    case ND_VERDICT_INCONCLUSIVE:
        return ND_EXIT_INCONCLUSIVE;
    case ND_VERDICT_NOT_COMPARABLE:
        return ND_EXIT_NOT_COMPARABLE;
    case ND_VERDICT_FAILED:
        return ND_EXIT_DEVICE_FAILED;
    }
    return ND_EXIT_TROUBLE;
}

enum nd_verdict nd_verdict_worse(enum nd_verdict a, enum nd_verdict b)
{
    enum nd_exit of_a = nd_verdict_exit_code(a), of_b = nd_verdict_exit_code(b);
    if (of_a == of_b)
        return a > b ? a : b; /* same and within */
    return nd_exit_worse(of_a, of_b) == of_a ? a : b;
}

void nd_compare_options_init_sized(struct nd_compare_options *options, size_t struct_size)
{
    const struct nd_compare_options own = {.struct_size = sizeof own, .n_worst = 5};
    nd_options_write(options, struct_size, &own, sizeof own);
}

/* Gates and classes: what digests and options alone decide. */
static enum nd_status prepare_edges(const struct nd_matching *alignment,
                                    const struct nd_compare_options *options, struct nd_comparison *comparison,
                                    struct nd_error *err)
{
    enum nd_status status = nd_gates_check(options->gates, comparison->edges, comparison->n_edges, err);
    for (size_t e = 0; e < comparison->n_edges && status == ND_OK; e++) {
        struct nd_compared_edge *edge = &comparison->edges[e];
        struct nd_gate_values gate =
            nd_gates_resolve(options->gates, edge->name, nd_dtype_is_float(edge->dtype));
        edge->gate = nd_gate_describe(&gate);
        if (edge->gate == NULL)
            return nd_fail_memory(err);
        status = nd_classes_of_edge(alignment, e, edge, err);
    }
    return status;
}

/* Nothing was compared at all, and no failed device explains it: the files do not belong together. */
static enum nd_status check_common(const struct nd_comparison *comparison, struct nd_error *err)
{
    for (size_t c = 0; c < comparison->n_devices; c++)
        if (comparison->devices[c].status != ND_CAPTURE_COMPLETE)
            return ND_OK;
    const char *reason = "there are no edges";
    for (size_t e = 0; e < comparison->n_edges; e++)
        for (size_t t = 1; t < comparison->n_devices; t++) {
            const struct nd_compared_pair *pair = &comparison->edges[e].pairs[t - 1];
            if (pair->total.coverage != ND_COVERAGE_NONE || pair->label != NULL)
                return ND_OK;
            if (e == 0 && t == 1)
                reason = comparison->edges[e].pairs[0].total.reason;
        }
    return nd_fail(err, ND_E_COMPARE_NOTHING, comparison->devices[1].capture,
                   "'%s' and '%s' have nothing to compare: %s", comparison->devices[0].capture,
                   comparison->devices[1].capture, reason);
}

static enum nd_status check_options(const struct nd_compare_options *options, size_t n, struct nd_error *err)
{
    if (n < 2)
        return nd_fail(err, ND_E_OPTION_VALUE, NULL, "a comparison needs at least two captures, not %zu", n);
    if (options->ulp_in != ND_DTYPE_NONE && !nd_dtype_is_float(options->ulp_in))
        return nd_fail(err, ND_E_OPTION_VALUE, NULL, "ULPs are counted in a float type, not in %s",
                       nd_dtype_name(options->ulp_in));
    if (options->n_worst > 1000)
        return nd_fail(err, ND_E_OPTION_VALUE, NULL, "at most 1000 worst elements are kept, not %zu",
                       options->n_worst);
    if (options->cut != ND_CUT_NONE && (options->part >= options->n_parts || options->merge != NULL))
        return nd_fail(err, ND_E_OPTION_VALUE, NULL, "part %zu of %zu cannot be made", options->part + 1,
                       options->n_parts);
    if (options->cut != ND_CUT_NONE && options->per_channel)
        return nd_fail(err, ND_E_OPTION_VALUE, NULL, "channels are not compared in parts");
    return ND_OK;
}

static void note_options(const struct nd_compare_options *options, struct nd_comparison *comparison)
{
    comparison->struct_size = sizeof *comparison;
    comparison->has_gates = nd_gates_any(options->gates);
    comparison->ulp_in = options->ulp_in;
    comparison->n_worst = options->n_worst;
    comparison->per_channel = options->per_channel;
    comparison->channel_axis = options->channel_axis;
    comparison->cut = options->cut;
    comparison->part = options->part;
    comparison->n_parts = options->n_parts;
}

/* Everything that needs the values of tensors. */
static enum nd_status compare_values(const struct nd_matching *alignment,
                                     const struct nd_compare_options *options, struct nd_comparison *comparison,
                                     struct nd_error *err)
{
    const struct nd_kernels *kernels;
    enum nd_status status = nd_kernels_choose(options->cpu_cap, &kernels, err);
    if (status == ND_OK && options->merge != NULL)
        status = nd_parts_check(options->merge, comparison, err);
    if (status == ND_OK)
        status = nd_engine_run(alignment, options, kernels, comparison, err);
    if (status == ND_OK && options->cut == ND_CUT_NONE)
        status = nd_repeats_measure(alignment, options, kernels, comparison, err);
    if (status == ND_OK && options->cut == ND_CUT_NONE)
        status = nd_labels_find(alignment, comparison, err);
    if (status == ND_OK && options->per_channel)
        status = nd_channels_compare(alignment, options, kernels, comparison, err);
    return status;
}

enum nd_status nd_compare_captures(const struct nd_capture *const *captures, size_t n,
                                   const struct nd_compare_options *options, struct nd_comparison **out,
                                   struct nd_error *err)
{
    struct nd_compare_options own = nd_compare_options_default();
    enum nd_status status = nd_options_read(&own, sizeof own, options, err);
    if (status != ND_OK)
        return status;
    options = &own;
    struct nd_matching alignment = {0};
    status = check_options(options, n, err);
    if (status != ND_OK)
        return status;
    struct nd_comparison *comparison = nd_calloc(1, sizeof *comparison);
    if (comparison == NULL)
        return nd_fail_memory(err);
    note_options(options, comparison);
    status = nd_matching_make(captures, n, options->allow_different_models, &alignment,
                              &comparison->different_models, err);
    for (size_t c = 0; status == ND_OK && c < n && !options->trust_digests; c++)
        status = nd_capture_check_content(captures[c], err);
    if (status == ND_OK)
        status = nd_matching_select(&alignment, options->edges, err);
    if (status == ND_OK)
        status = nd_matching_select_probes(&alignment, options->probes, options->n_probes, err);
    comparison->n_edges_left_out = alignment.n_left_out;
    comparison->unknown_models = alignment.unknown_models;
    comparison->unknown_inputs = alignment.unknown_inputs;
    if (status == ND_OK)
        status = nd_result_describe(&alignment, options->all_pairs, comparison, err);
    if (status == ND_OK)
        status = prepare_edges(&alignment, options, comparison, err);
    if (status == ND_OK)
        status = compare_values(&alignment, options, comparison, err);
    if (status == ND_OK)
        status = nd_classes_overall(comparison, err);
    if (status == ND_OK)
        status = nd_result_conclude(comparison, options->gates, err);
    if (status == ND_OK)
        status = check_common(comparison, err);
    if (status == ND_OK && options->cut == ND_CUT_NONE)
        status = nd_predicates_find(&alignment, options, comparison, err);
    if (status == ND_OK) {
        *out = comparison;
        comparison = NULL;
    }
    nd_matching_deinit(&alignment);
    nd_comparison_destroy(&comparison);
    return status;
}
