/* Evidence is kept with its weight, and summed up. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/error.h"
#include "explain/fallback/fallback.h"

const char *nd_execution_name(enum nd_execution execution)
{
    static const char *const names[] = {[ND_EXECUTION_UNKNOWN] = "unknown",
                                        [ND_EXECUTION_NPU] = "npu",
                                        [ND_EXECUTION_NOT_NPU] = "not-npu",
                                        [ND_EXECUTION_PARTLY] = "partly"};
    return names[execution];
}

enum nd_status nd_fallback_add(struct nd_explained_execution *execution, const char *kind, double weight,
                               struct nd_error *err, const char *fmt, ...)
{
    static const double least = 0.1;
    char *text = NULL;
    if (fabs(weight) < least)
        return ND_OK;
    struct nd_execution_evidence *grown =
        realloc(execution->evidence, (execution->n_evidence + 1) * sizeof *grown);
    ND_TRY_MEMORY(grown != NULL, err);
    execution->evidence = grown;
    ND_MAKE_ARGUMENTS(text, fmt);
    ND_TRY_MEMORY(text != NULL, err);
    grown[execution->n_evidence++] = (struct nd_execution_evidence){
        .kind = kind, .is_for_npu = weight > 0, .weight = fmin(fabs(weight), ND_FALLBACK_MAX), .text = text};
    return ND_OK;
}

void nd_fallback_conclude(struct nd_explained_execution *execution)
{
    double for_npu = 0, against = 0;
    for (size_t i = 0; i < execution->n_evidence; i++) {
        const struct nd_execution_evidence *evidence = &execution->evidence[i];
        *(evidence->is_for_npu ? &for_npu : &against) += evidence->weight;
    }
    double lesser = fmin(for_npu, against), greater = fmax(for_npu, against);
    execution->balance = for_npu - against;
    execution->is_contradictory = lesser >= ND_FALLBACK_DECISION;
    execution->verdict = ND_EXECUTION_UNKNOWN;
    bool is_alike = execution->is_contradictory && 2 * lesser > greater;
    if (fabs(execution->balance) >= ND_FALLBACK_DECISION && !is_alike)
        execution->verdict = execution->balance > 0 ? ND_EXECUTION_NPU : ND_EXECUTION_NOT_NPU;
}
