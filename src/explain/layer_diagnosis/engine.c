/* The arithmetic of an integer processor, from the values of its products. docs/science/verdicts.md. */

#include "core/memory.h"
#include "core/processes/parallel.h"
#include "explain/layer_diagnosis/layer_diagnosis.h"
#include "explain/verdict/health.h"

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

static size_t choose(const struct nd_engine_tally *tallies, size_t n, bool *follow_all)
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

/* ---- a device of which nothing is known ---- */

struct search {
    const struct nd_explain_job *job;
    size_t device;
    struct nd_reader *readers;
    size_t *steps; /* [n] the layers that are looked at */
    size_t n;
    struct nd_engine_tally *tallies; /* [n] */
};

/* Whether a layer of the device is to be looked at, and its arithmetic may be that of an integer processor. */
static bool may_be_engine(const struct nd_explain_job *job, size_t d)
{
    bool needs = false;
    for (size_t s = 0; s < job->plan->n_steps; s++)
        needs = needs ||
                (nd_explain_needs_layer_diagnosis(job, d, s) && !nd_explain_is_input_quantiser(job->plan, s));
    return needs && !job->plan->sources[d].is_failed && job->plan->sources[d].expectation == ND_EXPECT_ANY &&
           job->observations->layer_arithmetic[d] == SIZE_MAX;
}

static enum nd_status look(void *context, size_t worker, size_t i, struct nd_error *err)
{
    enum { MAX_VALUES = 1 << 16 }; /* of a layer; chosen: a tenth of a second */
    struct search *s = context;
    struct nd_reader *reader = &s->readers[worker];
    ND_TRY(reader->plan == NULL ? nd_reader_init(reader, s->job->plan, err) : ND_OK);
    ND_CLEANUP(nd_layer_diagnosis_deinit)
    struct nd_layer_diagnosis diagnosis = {
        .job = s->job, .reader = reader, .device = s->device, .step = s->steps[i]};
    ND_TRY(nd_layer_diagnosis_make(&diagnosis, err));
    return nd_engine_look(&diagnosis, MAX_VALUES, &s->tallies[i], err);
}

static enum nd_status find(struct search *s, size_t *engine, struct nd_error *err)
{
    const struct nd_explain_job *job = s->job;
    struct nd_explained_device *device = &job->out->devices[s->device];
    char name[ND_ARITHMETIC_NAME_BYTES];
    size_t n_arithmetics;
    bool follow_all;
    for (size_t k = 0; k < job->plan->n_steps; k++) {
        const struct nd_observed_arithmetic *observed = nd_observed_arithmetic_of(job, s->device, k);
        if (observed->is_counted && observed->tally->n_open > 0)
            s->steps[s->n++] = k;
    }
    ND_TRY(nd_parallel_for(job->plan->n_threads, s->n, look, s, err));
    *engine = choose(s->tallies, s->n, &follow_all);
    if (!follow_all)
        return ND_OK;
    nd_arithmetic_name(&nd_arithmetics(&n_arithmetics)[*engine], name);
    free(device->arithmetic);
    device->arithmetic = nd_strdup(name);
    return device->arithmetic != NULL ? ND_OK : nd_fail_memory(err);
}

enum nd_status nd_engine_find(const struct nd_explain_job *job, size_t device, struct nd_reader *readers,
                              size_t *engine, struct nd_error *err)
{
    size_t n_steps = job->plan->n_steps;
    *engine = SIZE_MAX;
    if (!may_be_engine(job, device))
        return ND_OK;
    struct search s = {.job = job,
                       .device = device,
                       .readers = readers,
                       .steps = nd_calloc(n_steps, sizeof *s.steps),
                       .tallies = nd_calloc(n_steps, sizeof *s.tallies)};
    enum nd_status status = s.steps != NULL && s.tallies != NULL ? find(&s, engine, err) : nd_fail_memory(err);
    for (size_t i = 0; i < s.n; i++)
        nd_engine_tally_deinit(&s.tallies[i]);
    ND_FREE_ALL(s.steps, s.tallies);
    return status;
}
