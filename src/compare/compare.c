#include <stdlib.h>

#include "base/memory.h"
#include "compare/accuracy.h"
#include "compare/classes.h"
#include "compare/engine.h"
#include "compare/gates.h"
#include "compare/result.h"

enum { DEFAULT_BLOCK_BYTES = 8 << 20 };

const char *nd_verdict_name(enum nd_verdict verdict)
{
    static const char *const names[] = {"same",         "within",         "differs",
                                        "inconclusive", "not comparable", "failed"};
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

static enum nd_status compare_edges(const struct nd_alignment *alignment,
                                    const struct nd_compare_options *options, size_t block_bytes,
                                    struct nd_comparison *comparison, struct nd_error *err)
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
        if (status == ND_OK)
            status = nd_engine_compare_edge(alignment, e, options, block_bytes, edge, err);
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
            if (comparison->edges[e].pairs[t - 1].total.coverage != ND_COVERAGE_NONE)
                return ND_OK;
            if (e == 0 && t == 1)
                reason = comparison->edges[e].pairs[0].total.reason;
        }
    return nd_fail(err, ND_E_COMPARE_NOTHING, comparison->devices[1].capture,
                   "'%s' and '%s' have nothing to compare: %s", comparison->devices[0].capture,
                   comparison->devices[1].capture, reason);
}

enum nd_status nd_compare_captures(const struct nd_capture *const *captures, size_t n,
                                   const struct nd_compare_options *options, struct nd_comparison **out,
                                   struct nd_error *err)
{
    static const struct nd_compare_options defaults = {.struct_size = sizeof defaults};
    options = options != NULL ? options : &defaults;
    if (n < 2)
        return nd_fail(err, ND_E_OPTION_VALUE, NULL, "a comparison needs at least two captures, not %zu", n);
    size_t block_bytes = options->block_bytes > 0 ? options->block_bytes : DEFAULT_BLOCK_BYTES;
    struct nd_alignment alignment = {0};
    struct nd_comparison *comparison = nd_calloc(1, sizeof *comparison);
    if (comparison == NULL)
        return nd_fail_memory(err);
    comparison->struct_size = sizeof *comparison;
    comparison->has_gates = nd_gates_any(options->gates);
    enum nd_status status = nd_alignment_make(captures, n, options->allow_different_models, block_bytes,
                                              &alignment, &comparison->different_models, err);
    if (status == ND_OK)
        status = nd_result_describe(&alignment, comparison, err);
    if (status == ND_OK)
        status = compare_edges(&alignment, options, block_bytes, comparison, err);
    if (status == ND_OK)
        status = check_common(comparison, err);
    if (status == ND_OK)
        status = nd_accuracy_make(&alignment, block_bytes, comparison, err);
    if (status == ND_OK)
        status = nd_classes_overall(comparison, err);
    if (status == ND_OK) {
        nd_result_conclude(comparison);
        *out = comparison;
        comparison = NULL;
    }
    nd_alignment_deinit(&alignment);
    nd_comparison_destroy(&comparison);
    return status;
}
