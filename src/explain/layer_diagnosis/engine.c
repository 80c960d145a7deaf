/* The arithmetic of an integer processor, from the values of its products. docs/science/verdicts.md. */
#include "explain/layer_diagnosis/engine.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "explain/layer_diagnosis/layer_diagnosis.h"

void nd_engine_tally_deinit(struct nd_engine_tally *tally)
{
    free(tally->steps);
    tally->steps = NULL;
}

enum nd_status nd_engine_count(struct nd_engine_tally *tally, const struct nd_exact_values *values,
                               const double *given, size_t sample, struct nd_error *err)
{
    const struct nd_identify_sample seen = {.values = values,
                                            .given = given,
                                            .key = sample,
                                            .steps = tally->steps,
                                            .n_steps = tally->n_steps,
                                            .specified = tally->specified,
                                            .is_conv = tally->is_conv,
                                            .only = tally->only};
    return nd_identify_layer(&tally->counts, &seen, err);
}

enum nd_status nd_engine_look(struct nd_layer_diagnosis *diagnosis, size_t max_values,
                              struct nd_engine_tally *tally, struct nd_error *err)
{
    const struct nd_plan *plan = diagnosis->job->plan;
    struct nd_error ignored = {0};
    size_t most = diagnosis->n > 0 ? max_values / diagnosis->n : 0, n = diagnosis->n_samples;
    n = most < 1 ? 1 : most < n ? most : n;
    tally->is_conv = strstr(plan->steps[diagnosis->step].op_types, "Conv") != NULL;
    if (nd_exact_accumulator_steps(plan->graph, diagnosis->tensor, &tally->steps, &tally->n_steps, &ignored) !=
        ND_OK)
        tally->specified = nd_specified_sum_of(plan->model, diagnosis->tensor);
    enum nd_status status = ND_OK;
    diagnosis->engine = tally;
    for (size_t i = 0; i < n && status == ND_OK; i++) {
        status = nd_layer_diagnosis_load_sample(diagnosis, i, err);
        if (status == ND_OK)
            status = nd_layer_diagnosis_run(diagnosis, SIZE_MAX, NULL, err);
    }
    diagnosis->engine = NULL;
    return status;
}

bool nd_engine_gives(const struct nd_engine_tally *tally, size_t arithmetic)
{
    return tally->counts.n_seen[arithmetic] > 0 && tally->counts.n_wrong[arithmetic] == 0;
}

/* Whether it has an accumulator, and values enough to tell arithmetics apart. */
static bool tells(const struct nd_engine_tally *tally)
{
    return tally->n_steps > 0 && tally->counts.n_open >= ND_IDENTIFY_MIN;
}

static size_t count(const struct nd_engine_tally *tallies, size_t n, size_t arithmetic)
{
    size_t n_following = 0;
    for (size_t k = 0; k < n; k++)
        n_following += tells(&tallies[k]) && nd_engine_gives(&tallies[k], arithmetic);
    return n_following;
}

size_t nd_engine_choose(const struct nd_engine_tally *tallies, size_t n, bool *follow_all)
{
    enum { HALF_EVEN = 0 }; /* the first of nd_arithmetics */
    size_t n_arithmetics, found = SIZE_MAX, n_layers = 0, most = count(tallies, n, HALF_EVEN);
    const struct nd_arithmetic *arithmetics = nd_arithmetics(&n_arithmetics);
    for (size_t k = 0; k < n; k++)
        n_layers += tells(&tallies[k]);
    for (size_t p = 0; p < n_arithmetics; p++) {
        size_t n_following = nd_arithmetic_is_of_integers(&arithmetics[p]) ? count(tallies, n, p) : 0;
        if (n_following > most && 2 * n_following > n_layers) {
            most = n_following;
            found = p;
        }
    }
    *follow_all = found != SIZE_MAX && most >= n_layers;
    return found;
}
