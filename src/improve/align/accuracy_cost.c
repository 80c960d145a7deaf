/* What the new scales cost: the outputs before and after, in exact arithmetic with one rounding per layer,
 * against the float model or against the model as it was. */
#include <math.h>

#include "arithmetic/exact/eval_graph.h"
#include "core/items.h"
#include "core/processes/parallel.h"
#include "explain/plan/replay.h"
#include "improve/align/align_stages.h"

enum { BEFORE, AFTER, FLOATS, N_MODELS };

/* Of one sample and one output. */
struct energies {
    double signal, noise[2];
};

/* What one thread has at hand. */
struct worker {
    struct nd_array *inputs;  /* [n_inputs] */
    struct nd_array *outputs; /* [N_MODELS * n_outputs], in real numbers */
};

struct pricer {
    struct nd_align_job *job;
    const struct nd_model *models[N_MODELS];
    struct nd_exact_graph *graphs[N_MODELS];
    size_t *output_of_tensor[N_MODELS]; /* [n_edges] of the model, SIZE_MAX */
    size_t n_outputs, n_samples, n_workers, n_models;
    struct worker *workers;
    struct energies *energies; /* [n_samples * n_outputs] */
    signed char *classes;      /* [n_samples]: bits RIGHT_BEFORE... of the first output */
};
enum { IS_LABELLED = 1, IS_RIGHT_BEFORE = 2, IS_RIGHT_AFTER = 4, IS_CHANGED = 8 };

struct finder {
    struct pricer *pricer;
    struct worker *worker;
    int model;
};

/* ---- one sample ---- */

static enum nd_status keep_output(void *context, size_t tensor, const struct nd_array *values,
                                  enum nd_exact_method method, struct nd_error *err)
{
    struct finder *f = context;
    (void)method;
    size_t output = f->pricer->output_of_tensor[f->model][tensor];
    if (output == SIZE_MAX)
        return ND_OK;
    struct nd_array *kept = &f->worker->outputs[(size_t)f->model * f->pricer->n_outputs + output];
    nd_array_deinit(kept);
    const struct nd_quant *quant = &nd_model_tensor(f->pricer->models[f->model], tensor)->quant;
    enum nd_status status = nd_array_copy(values, kept, err);
    for (size_t i = 0; status == ND_OK && quant->n > 0 && i < kept->n; i++) {
        size_t c = nd_exact_channel(quant, &kept->shape, i);
        kept->x[i] = (kept->x[i] - (double)quant->zero_point[c]) * (double)quant->scale[c];
    }
    return status;
}

static enum nd_status evaluate(struct pricer *p, struct worker *worker, int model, struct nd_error *err)
{
    struct finder finder = {p, worker, model};
    const struct nd_exact_options options = {.struct_size = sizeof options};
    return nd_exact_graph_run(p->graphs[model], worker->inputs, &options, keep_output, &finder, err);
}

static size_t class_of(const struct nd_array *values)
{
    size_t best = 0;
    for (size_t i = 1; i < values->n; i++)
        if (values->x[i] > values->x[best])
            best = i;
    return best;
}

static enum nd_status weigh(const struct pricer *p, const struct worker *worker, size_t output,
                            struct energies *out, struct nd_error *err)
{
    const struct nd_array *arrays[N_MODELS] = {NULL};
    for (size_t m = 0; m < p->n_models; m++)
        arrays[m] = &worker->outputs[m * p->n_outputs + output];
    const struct nd_array *reference = p->n_models > FLOATS ? arrays[FLOATS] : arrays[BEFORE];
    if (arrays[BEFORE]->n != reference->n || arrays[AFTER]->n != reference->n)
        return nd_fail(err, ND_E_ALIGN_REFERENCE, p->job->result->outputs[output].name,
                       "output '%s' has other dimensions in the float model",
                       p->job->result->outputs[output].name);
    *out = (struct energies){0};
    for (size_t i = 0; i < reference->n; i++) {
        double r = reference->x[i], before = arrays[BEFORE]->x[i] - r, after = arrays[AFTER]->x[i] - r;
        out->signal += r * r;
        out->noise[BEFORE] += before * before;
        out->noise[AFTER] += after * after;
    }
    return ND_OK;
}

static void classify(const struct pricer *p, const struct worker *worker, const struct nd_probe *probe,
                     size_t sample, signed char *out)
{
    size_t before = class_of(&worker->outputs[BEFORE * p->n_outputs]),
           after = class_of(&worker->outputs[AFTER * p->n_outputs]);
    *out = (signed char)(before != after ? IS_CHANGED : 0);
    if (probe->labels != NULL && probe->labels[sample] >= 0)
        *out =
            (signed char)(*out | IS_LABELLED | ((size_t)probe->labels[sample] == before ? IS_RIGHT_BEFORE : 0) |
                          ((size_t)probe->labels[sample] == after ? IS_RIGHT_AFTER : 0));
}

static enum nd_status accuracy_cost_sample(void *context, size_t worker_index, size_t task,
                                           struct nd_error *err)
{
    struct pricer *p = context;
    struct worker *worker = &p->workers[worker_index];
    size_t sample = task;
    const struct nd_probe *probe = nd_align_load_sample(p->job, &sample, worker->inputs);
    ND_TRY(worker_index == 0 ? nd_align_tell(p->job, "accuracy cost", task, p->n_samples, err) : ND_OK);
    for (size_t m = 0; m < p->n_models; m++)
        ND_TRY(evaluate(p, worker, (int)m, err));
    for (size_t o = 0; o < p->n_outputs; o++)
        ND_TRY(weigh(p, worker, o, &p->energies[task * p->n_outputs + o], err));
    if (p->n_outputs > 0)
        classify(p, worker, probe, sample, &p->classes[task]);
    return ND_OK;
}

/* ---- all samples ---- */

static double decibels(double signal, double noise)
{
    return 10 * log10(signal / noise);
}

static void sum_up(const struct pricer *p)
{
    struct nd_alignment *result = p->job->result;
    bool has_floats = p->n_models > FLOATS;
    for (size_t o = 0; o < p->n_outputs; o++) {
        struct energies sum = {0};
        for (size_t s = 0; s < p->n_samples; s++) {
            const struct energies *e = &p->energies[s * p->n_outputs + o];
            sum.signal += e->signal;
            sum.noise[BEFORE] += e->noise[BEFORE];
            sum.noise[AFTER] += e->noise[AFTER];
        }
        struct nd_alignment_output *output = &result->outputs[o];
        output->sqnr_before_db = has_floats ? decibels(sum.signal, sum.noise[BEFORE]) : (double)NAN;
        output->sqnr_after_db = decibels(sum.signal, sum.noise[AFTER]);
        output->loss_db = has_floats ? output->sqnr_before_db - output->sqnr_after_db : (double)NAN;
    }
    for (size_t s = 0; s < p->n_samples; s++) {
        result->n_labelled += (p->classes[s] & IS_LABELLED) != 0;
        result->n_right_before += (p->classes[s] & IS_RIGHT_BEFORE) != 0;
        result->n_right_after += (p->classes[s] & IS_RIGHT_AFTER) != 0;
        result->n_right_to_wrong +=
            (p->classes[s] & IS_RIGHT_BEFORE) != 0 && (p->classes[s] & IS_RIGHT_AFTER) == 0;
        result->n_changed += (p->classes[s] & IS_CHANGED) != 0;
    }
}

/* The tensors of the model that are its outputs, numbered as those of the model that came. */
static enum nd_status find_outputs(struct pricer *p, int m, struct nd_error *err)
{
    const struct nd_model *model = p->models[m];
    p->output_of_tensor[m] = nd_calloc(nd_model_n_tensors(model), sizeof *p->output_of_tensor[m]);
    ND_TRY_MEMORY(p->output_of_tensor[m] != NULL, err);
    size_t n_found = 0;
    for (size_t e = 0; e < nd_model_n_tensors(model); e++) {
        p->output_of_tensor[m][e] = SIZE_MAX;
        for (size_t o = 0; o < p->n_outputs && nd_model_tensor(model, e)->is_model_output; o++)
            if (strcmp(p->job->result->outputs[o].name, nd_model_tensor(model, e)->name) == 0) {
                p->output_of_tensor[m][e] = o;
                n_found++;
            }
    }
    if (n_found != p->n_outputs)
        return nd_fail(err, ND_E_ALIGN_REFERENCE, nd_model_path(model), "'%s' lacks outputs of '%s'",
                       nd_model_path(model), nd_model_path(p->job->original));
    return ND_OK;
}

static enum nd_status name_outputs(struct pricer *p, struct nd_error *err)
{
    struct nd_alignment *result = p->job->result;
    const struct nd_model *model = p->job->model;
    result->outputs = nd_calloc(nd_model_n_tensors(model), sizeof *result->outputs);
    ND_TRY_MEMORY(result->outputs != NULL, err);
    for (size_t e = 0; e < nd_model_n_tensors(model); e++) {
        if (!nd_model_tensor(model, e)->is_model_output)
            continue;
        result->outputs[result->n_outputs].name = nd_strdup(nd_model_tensor(model, e)->name);
        ND_TRY_MEMORY(result->outputs[result->n_outputs++].name != NULL, err);
    }
    p->n_outputs = result->n_outputs;
    return ND_OK;
}

static enum nd_status prepare(struct pricer *p, struct nd_error *err)
{
    const struct nd_align_options *options = p->job->options;
    p->models[BEFORE] = p->job->original;
    p->models[AFTER] = p->job->aligned;
    p->models[FLOATS] = options->float_model;
    p->n_models = options->float_model != NULL ? N_MODELS : FLOATS;
    p->n_samples = nd_align_n_samples(options);
    p->job->result->n_samples = p->n_samples;
    ND_TRY(name_outputs(p, err));
    for (size_t m = 0; m < p->n_models; m++) {
        ND_TRY(nd_exact_graph_create(p->models[m], &p->graphs[m], err));
        ND_TRY(find_outputs(p, (int)m, err));
    }
    p->n_workers = p->job->options->n_threads > 0 ? p->job->options->n_threads : nd_parallel_n_threads();
    p->workers = nd_calloc(p->n_workers, sizeof *p->workers);
    p->energies = nd_calloc(p->n_samples * p->n_outputs, sizeof *p->energies);
    p->classes = nd_calloc(p->n_samples, sizeof *p->classes);
    ND_TRY_MEMORY(p->workers != NULL && p->energies != NULL && p->classes != NULL, err);
    for (size_t w = 0; w < p->n_workers; w++) {
        p->workers[w].outputs = nd_calloc(N_MODELS * p->n_outputs, sizeof *p->workers[w].outputs);
        ND_TRY_MEMORY(p->workers[w].outputs != NULL, err);
        ND_TRY(nd_inputs_create(p->job->model, &p->workers[w].inputs, err));
    }
    return ND_OK;
}

static void release(struct pricer *p)
{
    for (size_t w = 0; p->workers != NULL && w < p->n_workers; w++) {
        nd_inputs_destroy(&p->workers[w].inputs);
        ND_DEINIT_EACH(nd_array_deinit, p->workers[w].outputs, N_MODELS * p->n_outputs);
    }
    for (size_t m = 0; m < N_MODELS; m++) {
        nd_exact_graph_destroy(&p->graphs[m]);
        free(p->output_of_tensor[m]);
    }
    ND_FREE_ALL(p->workers, p->energies, p->classes);
}

/* Of a sample the greatest of its outputs. */
static void tell_each(const struct pricer *p, double *noises)
{
    for (size_t s = 0; s < p->n_samples; s++) {
        noises[s] = 0;
        for (size_t o = 0; o < p->n_outputs; o++) {
            const struct energies *e = &p->energies[s * p->n_outputs + o];
            noises[s] = fmax(noises[s], e->noise[AFTER] / (e->signal > 0 ? e->signal : 1));
        }
    }
}

enum nd_status nd_align_accuracy_cost(struct nd_align_job *job, double *noises, struct nd_error *err)
{
    ND_CLEANUP(release) struct pricer p = {.job = job};
    struct nd_error ignored;
    ND_TRY(prepare(&p, err));
    ND_TRY(nd_parallel_for(p.n_workers, p.n_samples, accuracy_cost_sample, &p, err != NULL ? err : &ignored));
    sum_up(&p);
    if (noises != NULL)
        tell_each(&p, noises);
    return ND_OK;
}
