/* Two arithmetics on one model: in how many values they differ, and what each layer adds to that. Where an
 * arithmetic does not cover a layer, both round its exact values. */
#include <stdlib.h>

#include "improve/align/align_stages.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/processes/parallel.h"
#include "arithmetic/exact/eval_graph.h"
#include "explain/plan/reader.h"

struct contrast {
    const struct nd_align_job *job;
    const struct nd_model *model;
    struct nd_exact_graph *graph;
    size_t n_edges;
    struct nd_align_contrast *counts; /* [n_samples]; NULL: effects are wanted */
    bool *is_different;               /* [n_samples][n_edges] */
    const bool *is_product;           /* [n_edges], of the effects */
    double *effects;                  /* [n_samples][n_edges] */
};

/* One run. All layers have the arithmetic `usual`, but for one. */
struct run {
    const struct contrast *c;
    const struct nd_unit_program *usual, *other;
    size_t other_edge; /* SIZE_MAX: none */
    struct nd_array *kept;
    struct nd_array *given; /* [n_edges] views of kept: before other_edge nothing changes. NULL: none */
    bool *is_skipped;       /* [n_edges], of these */
    bool is_first;          /* values are kept, else held against those that were */
    bool *is_different;
    struct nd_align_contrast counts;
    double noise, signal; /* at the outputs */
};

static enum nd_status make(void *context, const struct nd_exact_unit *unit, struct nd_array *codes,
                           bool *is_made, struct nd_error *err)
{
    const struct run *r = context;
    return nd_unit_program_run(unit->edge == r->other_edge ? r->other : r->usual, unit, NULL, codes, is_made,
                               err);
}

static void hold_against(struct run *r, size_t edge, const struct nd_array *values)
{
    const struct nd_edge *known = nd_model_edge(r->c->model, edge);
    const struct nd_array *before = &r->kept[edge];
    size_t n_different = 0;
    for (size_t i = 0; i < values->n && i < before->n; i++) {
        double difference = values->x[i] - before->x[i], level = before->x[i];
        n_different += difference != 0;
        if (!known->is_model_output)
            continue;
        if (known->quant.n > 0) {
            size_t c = nd_exact_channel(&known->quant, &values->shape, i);
            level = (level - (double)known->quant.zero_point[c]) * (double)known->quant.scale[c];
            difference *= (double)known->quant.scale[c];
        }
        r->noise += difference * difference;
        r->signal += level * level;
    }
    if (r->is_different != NULL)
        r->is_different[edge] = r->is_different[edge] || n_different > 0;
    if (known->is_model_output) {
        r->counts.n_values += values->n;
        r->counts.n_different += n_different;
    }
}

static enum nd_status take(void *context, size_t edge, const struct nd_array *values, enum nd_exact_way way,
                           struct nd_error *err)
{
    struct run *r = context;
    (void)way;
    if (!r->is_first) {
        hold_against(r, edge, values);
        return ND_OK;
    }
    return nd_array_copy(values, &r->kept[edge], err);
}

static enum nd_status run_once(struct run *r, const struct nd_array *inputs, struct nd_error *err)
{
    const struct nd_exact_options options = {.struct_size = sizeof options,
                                             .make = make,
                                             .given = r->given,
                                             .is_skipped = r->is_skipped,
                                             .missed = nd_exact_let_go};
    return nd_exact_graph_run(r->c->graph, inputs, &options, take, r, err);
}

/* ---- one sample ---- */

static enum nd_status contrast_all(const struct contrast *c, struct run *r, size_t sample,
                                   const struct nd_array *inputs, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    r->is_different = c->is_different + sample * c->n_edges;
    for (size_t p = 1; p < c->job->n_programs && status == ND_OK; p++) {
        r->usual = c->job->programs[p];
        status = run_once(r, inputs, err);
    }
    c->counts[sample] = r->counts;
    return status;
}

/* The noise at the outputs of another arithmetic in one layer, by the signal; of several arithmetics the most.
 */
static enum nd_status contrast_each(const struct contrast *c, struct run *r, size_t sample,
                                    const struct nd_array *inputs, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    struct nd_array *given = nd_calloc(c->n_edges, sizeof *given);
    bool *is_skipped = nd_calloc(c->n_edges, sizeof *is_skipped);
    if (given == NULL || is_skipped == NULL)
        status = nd_fail_memory(err);
    for (size_t e = 0; e < c->n_edges && status == ND_OK; e++)
        given[e] = nd_no_array();
    r->given = given;
    r->is_skipped = is_skipped;
    for (size_t e = 0; e < c->n_edges && status == ND_OK; e++) {
        for (size_t p = 1; p < c->job->n_programs && c->is_product[e] && status == ND_OK; p++) {
            double *effect = &c->effects[sample * c->n_edges + e];
            r->other = c->job->programs[p];
            r->other_edge = e;
            r->noise = r->signal = 0;
            status = run_once(r, inputs, err);
            double found = r->signal > 0 ? r->noise / r->signal : r->noise;
            *effect = found > *effect ? found : *effect;
        }
        if (r->kept[e].n > 0 && nd_model_edge(c->model, e)->quant.n > 0) {
            given[e] = r->kept[e];
            is_skipped[e] = true;
        }
    }
    free(given);
    free(is_skipped);
    return status;
}

static enum nd_status take_sample(void *context, size_t worker, size_t sample, struct nd_error *err)
{
    const struct contrast *c = context;
    struct nd_array *inputs = NULL;
    struct run r = {.c = c,
                    .usual = c->job->programs[0],
                    .other_edge = SIZE_MAX,
                    .kept = nd_calloc(c->n_edges, sizeof *r.kept),
                    .is_first = true};
    enum nd_status status = r.kept != NULL ? nd_inputs_create(c->model, &inputs, err) : nd_fail_memory(err);
    if (status == ND_OK && worker == 0)
        status = nd_align_tell(c->job, "curve", 0, 1, err);
    if (status == ND_OK) {
        size_t in_probe = sample;
        nd_align_load_sample(c->job, &in_probe, inputs);
        status = run_once(&r, inputs, err);
    }
    r.is_first = false;
    if (status == ND_OK)
        status = (c->counts != NULL ? contrast_all : contrast_each)(c, &r, sample, inputs, err);
    for (size_t e = 0; r.kept != NULL && e < c->n_edges; e++)
        nd_array_deinit(&r.kept[e]);
    nd_inputs_destroy(c->model, &inputs);
    free(r.kept);
    return status;
}

/* ---- all samples ---- */

static enum nd_status take_samples(struct contrast *c, size_t n_samples, struct nd_error *err)
{
    struct nd_error ignored;
    c->n_edges = nd_model_n_edges(c->model);
    enum nd_status status = nd_exact_graph_create(c->model, &c->graph, err);
    if (status == ND_OK)
        status = nd_parallel_for(c->job->options->n_threads, n_samples, take_sample, c,
                                 err != NULL ? err : &ignored);
    nd_exact_graph_destroy(&c->graph);
    return status;
}

enum nd_status nd_align_contrast(const struct nd_align_job *job, const struct nd_model *model, size_t n_samples,
                                 struct nd_align_contrast *out, struct nd_error *err)
{
    size_t n_edges = nd_model_n_edges(model);
    struct contrast c = {.job = job,
                         .model = model,
                         .counts = nd_calloc(n_samples, sizeof *c.counts),
                         .is_different = nd_calloc(n_samples * n_edges, sizeof *c.is_different)};
    enum nd_status status =
        c.counts != NULL && c.is_different != NULL ? take_samples(&c, n_samples, err) : nd_fail_memory(err);
    *out = (struct nd_align_contrast){0};
    for (size_t s = 0; s < n_samples && status == ND_OK; s++) {
        out->n_values += c.counts[s].n_values;
        out->n_different += c.counts[s].n_different;
    }
    for (size_t e = 0; e < n_edges && status == ND_OK; e++) {
        bool is_different = false;
        for (size_t s = 0; s < n_samples; s++)
            is_different = is_different || c.is_different[s * n_edges + e];
        out->n_tensors++;
        out->n_tensors_different += is_different;
    }
    free(c.counts);
    free(c.is_different);
    return status;
}

enum nd_status nd_align_effects(const struct nd_align_job *job, const bool *is_product, size_t n_samples,
                                double *effects, struct nd_error *err)
{
    size_t n_edges = nd_model_n_edges(job->model);
    struct contrast c = {.job = job,
                         .model = job->model,
                         .is_product = is_product,
                         .effects = nd_calloc(n_samples * n_edges, sizeof *c.effects)};
    enum nd_status status = c.effects != NULL ? take_samples(&c, n_samples, err) : nd_fail_memory(err);
    for (size_t e = 0; e < n_edges && status == ND_OK; e++) {
        effects[e] = 0;
        for (size_t s = 0; s < n_samples; s++)
            effects[e] += c.effects[s * n_edges + e] / (double)n_samples;
    }
    free(c.effects);
    return status;
}
