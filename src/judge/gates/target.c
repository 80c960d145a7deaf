/* How far devices are from target tensors that a probe gives for outputs of the model, and whether one is
 * farther than another. docs/science/statistics.md. */
#include "judge/gates/target.h"

#include <assert.h>
#include <math.h>

#include "compare/metrics/layout.h"
#include "core/memory.h"
#include "core/random.h"
#include "core/statistics/distributions.h"
#include "core/statistics/evidence.h"
#include "judge/release/qualify.h"

enum { N_STATISTICS = 6 };

struct nd_target_sums nd_target_sums_of(const double *values, const double *target, size_t n)
{
    struct nd_target_sums sums = {0};
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(values[i]) || !isfinite(target[i])) {
            sums.n_left_out++;
            continue;
        }
        double error = values[i] - target[i];
        sums.n_elems++;
        sums.abs_error += fabs(error);
        sums.sq_error += error * error;
        sums.sq_target += target[i] * target[i];
    }
    return sums;
}

static void add(struct nd_target_sums *sum, const struct nd_target_sums *sample)
{
    sum->n_elems += sample->n_elems;
    sum->abs_error += sample->abs_error;
    sum->sq_error += sample->sq_error;
    sum->sq_target += sample->sq_target;
}

/* 10 log10(a / b); 0 / 0 is what the caller says. */
static double decibels(double a, double b, double of_nothing)
{
    static const double db_per_neper = 0x1.15f2ced384f28p+2; /* 10 / ln 10 */
    if (isnan(a) || isnan(b) || (a == 0 && b == 0))
        return isnan(a) || isnan(b) ? NAN : of_nothing;
    if (a == 0 || b == 0 || isinf(a) || isinf(b))
        return isinf(a) && isinf(b) ? NAN : a == 0 || isinf(b) ? -INFINITY : INFINITY;
    return db_per_neper * (nd_log(a) - nd_log(b));
}

static void statistics_of(const struct nd_target_sums *ref, const struct nd_target_sums *test,
                          double values[static N_STATISTICS])
{
    values[0] = ref->abs_error / (double)ref->n_elems;
    values[1] = decibels(ref->sq_target, ref->sq_error, ref->n_elems > 0 ? INFINITY : NAN);
    values[2] = test->abs_error / (double)test->n_elems;
    values[3] = decibels(test->sq_target, test->sq_error, test->n_elems > 0 ? INFINITY : NAN);
    values[4] = values[2] - values[0];
    values[5] = decibels(ref->sq_error, test->sq_error, ref->n_elems > 0 && test->n_elems > 0 ? 0 : NAN);
    /* The targets differ only where elements were left out. */
    if (ref->sq_target != test->sq_target && isfinite(values[5]))
        values[5] += decibels(test->sq_target, ref->sq_target, NAN);
}

static struct nd_interval interval_of(double *draws, double confidence)
{
    size_t n = 0;
    for (size_t i = 0; i < ND_DRAWS; i++)
        if (!isnan(draws[i]))
            draws[n++] = draws[i];
    return n > 0 ? nd_percentiles(draws, n, confidence) : (struct nd_interval){NAN, NAN};
}

enum nd_status nd_target_compare(const struct nd_target_sums *ref, const struct nd_target_sums *test,
                                 size_t n_samples, const struct nd_spread_options *options,
                                 struct nd_target_comparison *out, struct nd_error *err)
{
    assert(n_samples <= UINT32_MAX && options->confidence > 0 && options->confidence < 1);
    double *draws = nd_calloc((size_t)N_STATISTICS * ND_DRAWS, sizeof *draws), values[N_STATISTICS];
    ND_TRY_MEMORY(draws != NULL, err);
    struct nd_target_sums all_ref = {0}, all_test = {0};
    for (size_t i = 0; i < n_samples; i++) {
        add(&all_ref, &ref[i]);
        add(&all_test, &test[i]);
    }
    statistics_of(&all_ref, &all_test, values);
    struct nd_estimate estimates[N_STATISTICS];
    for (size_t k = 0; k < N_STATISTICS; k++)
        estimates[k] = (struct nd_estimate){values[k], {NAN, NAN}};
    uint64_t state = options->seed;
    for (size_t d = 0; d < ND_DRAWS && n_samples > 1; d++) {
        struct nd_target_sums drawn_ref = {0}, drawn_test = {0};
        for (size_t i = 0; i < n_samples; i++) {
            size_t sample = nd_splitmix_below(&state, n_samples);
            add(&drawn_ref, &ref[sample]);
            add(&drawn_test, &test[sample]);
        }
        statistics_of(&drawn_ref, &drawn_test, values);
        for (size_t k = 0; k < N_STATISTICS; k++)
            draws[k * ND_DRAWS + d] = values[k];
    }
    for (size_t k = 0; k < N_STATISTICS && n_samples > 1; k++)
        estimates[k].interval = interval_of(draws + k * ND_DRAWS, options->confidence);
    *out = (struct nd_target_comparison){.ref = {estimates[0], estimates[1]},
                                         .test = {estimates[2], estimates[3]},
                                         .difference = {estimates[4], estimates[5]}};
    free(draws);
    return ND_OK;
}

/* ---- all cells of a model ---- */

enum { SEED = 20240229 };

/* ---- measuring ---- */

static enum nd_status measure(const struct nd_capture *capture, size_t probe, size_t tensor,
                              const struct nd_probe_goal *goal, struct nd_target_sums **out,
                              struct nd_error *err)
{
    struct nd_layout layout;
    const struct nd_kernels *kernels;
    ND_TRY(nd_layout_make(nd_capture_tensor(capture, tensor), &layout, err));
    ND_TRY(nd_kernels_choose(NULL, &kernels, err));
    if (layout.n_elems != goal->n_elems)
        return nd_fail(err, ND_E_PROBE_SHAPE, goal->output,
                       "the target of output '%s' has %zu elements for a sample, the output %zu", goal->output,
                       goal->n_elems, layout.n_elems);
    nd_layout_make_real(&layout);
    ND_FREED unsigned char *bytes = nd_tensor_alloc(layout.sample_bytes);
    ND_FREED double *values = nd_tensor_alloc(layout.n_elems * sizeof *values); /* as many as the target has */
    ND_FREED struct nd_target_sums *sums = nd_calloc(goal->n_samples, sizeof *sums);
    ND_TRY_MEMORY(bytes != NULL && values != NULL && sums != NULL, err);
    for (size_t i = 0; i < goal->n_samples; i++) {
        ND_TRY(nd_capture_read_verified(&(struct nd_probe_values){capture, probe, tensor}, i, 1, bytes, err));
        /* Real values of one sample. */
        for (size_t first = 0; first < layout.n_elems; first += ND_BLOCK) {
            size_t n = layout.n_elems - first < ND_BLOCK ? layout.n_elems - first : ND_BLOCK;
            nd_layout_load(&layout, kernels, bytes + first * layout.elem_bytes, first, n, values + first);
        }
        sums[i] = nd_target_sums_of(values, goal->values + i * goal->n_elems, goal->n_elems);
    }
    return ND_GIVE(out, sums);
}

static enum nd_status measure_cell(const struct nd_qualify_cell *cell, const struct nd_qualify_target *target,
                                   const struct nd_probe_goal *goal, struct nd_target_sums **out,
                                   struct nd_error *err)
{
    if (cell->failure != NULL)
        return ND_OK;
    size_t p = nd_capture_find_probe(cell->capture, target->probe);
    size_t e = nd_capture_find_tensor(cell->capture, target->tensor);
    if (p == SIZE_MAX || e == SIZE_MAX || nd_capture_probe(cell->capture, p)->n_samples != target->n_samples ||
        !nd_capture_has_outputs(cell->capture, p, e))
        return ND_OK;
    return measure(cell->capture, p, e, goal, out, err);
}

static enum nd_status measure_target(struct nd_qualify_model *model, const struct nd_probe *probe,
                                     const struct nd_probe_goal *goal, const char *tensor, struct nd_error *err)
{
    struct nd_qualify_target *target = &model->targets[model->n_targets++];
    *target = (struct nd_qualify_target){.probe = probe->name, .tensor = tensor, .n_samples = goal->n_samples};
    target->sums = nd_calloc(model->n_cells, sizeof *target->sums);
    enum nd_status status = target->sums != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t c = 0; status == ND_OK && c < model->n_cells; c++)
        status = measure_cell(&model->cells[c], target, goal, &target->sums[c], err);
    return status;
}

enum nd_status nd_qualify_measure_targets(struct nd_qualification *q, struct nd_qualify_model *model,
                                          struct nd_error *err)
{
    (void)q;
    model->targets = nd_calloc(model->n_tensors * model->n_probes, sizeof *model->targets);
    ND_TRY_MEMORY(model->targets != NULL, err);
    for (size_t p = 0; p < model->n_probes; p++)
        for (size_t e = 0; e < model->n_tensors; e++) {
            const struct nd_probe_goal *goal = nd_probe_find_goal(model->probes[p], model->tensors[e].name);
            if (goal != NULL && model->tensors[e].is_output)
                ND_TRY(measure_target(model, model->probes[p], goal, model->tensors[e].name, err));
        }
    return ND_OK;
}

bool nd_qualify_compare_target(const struct nd_qualify_target *target, size_t ref, size_t device,
                               double confidence, struct nd_target_comparison *out)
{
    const struct nd_spread_options options = {.confidence = confidence, .seed = SEED};
    return ref != SIZE_MAX && target->sums[ref] != NULL && target->sums[device] != NULL &&
           nd_target_compare(target->sums[ref], target->sums[device], target->n_samples, &options, out, NULL) ==
               ND_OK;
}

/* ---- telling ---- */

static void add_pair(const struct nd_qualification *q, const struct nd_qualify_model *model,
                     const struct nd_qualify_target *target, const size_t cells[2],
                     struct nd_qualified_target *out)
{
    struct nd_target_comparison c;
    if (!nd_qualify_compare_target(target, cells[0], cells[1], q->campaign.confidence, &c))
        return;
    out->against.items[out->against.n++] = (struct nd_qualified_distance){
        .device = nd_qualify_text(q, model->cells[cells[1]].label),
        .reference = nd_qualify_text(q, model->cells[cells[0]].label),
        .mean_error_before = c.ref.mean_error,
        .mean_error = c.test.mean_error,
        .mean_error_change = c.difference.mean_error,
        .sqnr_db_before = c.ref.sqnr_db,
        .sqnr_db = c.test.sqnr_db,
        .sqnr_db_change = c.difference.sqnr_db,
    };
}

void nd_qualify_fill_targets(const struct nd_qualification *q, const struct nd_qualify_model *model,
                             struct nd_qualified_model *out)
{
    out->targets.items = nd_arena_calloc(q->arena, model->n_targets, sizeof *out->targets.items);
    for (size_t i = 0; out->targets.items != NULL && i < model->n_targets; i++) {
        const struct nd_qualify_target *target = &model->targets[i];
        struct nd_qualified_target *told = &out->targets.items[out->targets.n++];
        *told = (struct nd_qualified_target){.probe = nd_qualify_text(q, target->probe),
                                             .tensor = nd_qualify_text(q, target->tensor),
                                             .n_samples = target->n_samples,
                                             .confidence = q->campaign.confidence};
        told->against.items = nd_arena_calloc(q->arena, 2 * q->n_devices, sizeof *told->against.items);
        for (size_t d = 0; told->against.items != NULL && d < q->n_devices; d++) {
            add_pair(q, model, target, (const size_t[]){model->float64, d}, told);
            add_pair(q, model, target, (const size_t[]){model->quantised, d}, told);
        }
    }
}
