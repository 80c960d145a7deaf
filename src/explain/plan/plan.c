/* Layers that cannot be evaluated: the reference goes on with the values that a capture has of them. */
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/items.h"
#include "core/processes/parallel.h"
#include "core/text/strbuf.h"
#include "explain/evaluate/packed.h"
#include "explain/plan/plan.h"
#include "explain/plan/replay.h"
#include "explain/plan/survey.h"

/* What one zeroed sample shows of a model: shapes, and what cannot be evaluated. */

/* A survey under way. */
struct walk {
    struct nd_survey *survey;
    const struct nd_model *model;
};

static enum nd_status found(void *context, size_t tensor, const struct nd_array *values,
                            enum nd_exact_method method, struct nd_error *err)
{
    (void)method;
    (void)err;
    struct walk *walk = context;
    struct nd_survey_sight *sight = &walk->survey->tensors[tensor];
    sight->is_found = true;
    sight->shape = values->shape;
    sight->n = values->n;
    return ND_OK;
}

static enum nd_status missed(void *context, size_t tensor, const struct nd_error *why, struct nd_error *err)
{
    struct walk *walk = context;
    struct nd_survey_sight *sight = &walk->survey->tensors[tensor];
    walk->survey->n_missed++;
    sight->why = nd_strdup(why->message);
    sight->needs = SIZE_MAX;
    for (size_t e = 0; e < walk->survey->n_tensors && why->id == ND_E_EXACT_UNKNOWN; e++)
        if (walk->survey->tensors[e].why != NULL && e != tensor &&
            strcmp(nd_model_tensor(walk->model, e)->name, why->object) == 0)
            sight->needs = e;
    return sight->why != NULL ? ND_OK : nd_fail_memory(err);
}

/* Takes zeroed inputs through the graph. given: as in nd_exact_options, nullable. ND_ERR_MEMORY, and what is
 * wrong with the model's shapes. The caller frees *survey in any case. */
static enum nd_status nd_survey_run(struct nd_survey *survey, const struct nd_model *model,
                                    const struct nd_exact_graph *graph, const struct nd_array *given,
                                    struct nd_error *err)
{
    ND_CLEANUP(nd_inputs_destroy) struct nd_array *inputs = NULL;
    struct walk walk = {.survey = survey, .model = model};
    const struct nd_exact_options options = {.struct_size = sizeof options, .given = given, .missed = missed};
    survey->n_tensors = nd_model_n_tensors(model);
    survey->tensors = nd_calloc(survey->n_tensors, sizeof *survey->tensors);
    ND_TRY_MEMORY(survey->tensors != NULL, err);
    ND_TRY(nd_inputs_create(model, &inputs, err));
    return nd_exact_graph_run(graph, inputs, &options, found, &walk, err);
}

static void nd_survey_deinit(struct nd_survey *survey)
{
    ND_FREE_EACH(survey->tensors, survey->n_tensors, .why);
    *survey = (struct nd_survey){0};
}

/* The tensor at which it begins that tensor e is not known: e itself, or one before it. */
static size_t nd_survey_root(const struct nd_survey *survey, size_t e)
{
    while (survey->tensors[e].needs != SIZE_MAX)
        e = survey->tensors[e].needs; /* one that was met before it */
    return e;
}

/* A CPU's values are the nearest to the reference's own; else those of the first device that has them. */
static size_t find_donor(const struct nd_plan *plan, size_t step)
{
    size_t donor = SIZE_MAX;
    for (size_t d = 0; d < plan->n_devices; d++) {
        const struct nd_plan_source *source = &plan->sources[d];
        if (source->is_failed || source->tensors[step] == SIZE_MAX)
            continue;
        if (source->expectation == ND_EXPECT_FLOAT)
            return d;
        donor = donor == SIZE_MAX ? d : donor;
    }
    return donor;
}

/* What has a reference once those values are given. */
static enum nd_status survey_again(struct nd_plan *plan, const struct nd_array *zeros, struct nd_error *err)
{
    ND_CLEANUP(nd_survey_deinit) struct nd_survey survey = {0};
    ND_TRY(nd_survey_run(&survey, plan->model, plan->graph, zeros, err));
    for (size_t s = 0; s < plan->n_steps; s++) {
        size_t e = plan->steps[s].tensor;
        size_t root =
            survey.tensors[e].why != NULL ? plan->step_of_tensor[nd_survey_root(&survey, e)] : SIZE_MAX;
        plan->steps[s].unreached_from =
            root != SIZE_MAX && plan->steps[root].substituted_from != SIZE_MAX ? SIZE_MAX : root;
    }
    return ND_OK;
}

void nd_substituted_free(const struct nd_plan *plan, struct nd_array **substituted)
{
    for (size_t e = 0; *substituted != NULL && e < nd_model_n_tensors(plan->model); e++)
        if ((*substituted)[e].shape.rank >= 0)
            nd_array_deinit(&(*substituted)[e]);
    free(*substituted);
    *substituted = NULL;
}

enum nd_status nd_substituted_make(const struct nd_plan *plan, struct nd_array **substituted,
                                   struct nd_error *err)
{
    size_t n_tensors = nd_model_n_tensors(plan->model);
    *substituted = nd_calloc(n_tensors, sizeof **substituted);
    ND_TRY_MEMORY(*substituted != NULL, err);
    for (size_t e = 0; e < n_tensors; e++)
        (*substituted)[e] = nd_no_array();
    for (size_t s = 0; s < plan->n_steps; s++) {
        size_t donor = plan->steps[s].substituted_from;
        if (donor == SIZE_MAX)
            continue;
        const struct nd_plan_source *source = &plan->sources[donor];
        struct nd_array *array = &(*substituted)[plan->steps[s].tensor];
        *array = (struct nd_array){0};
        ND_TRY(nd_array_make(array, nd_capture_tensor(source->capture, source->tensors[s])->dtype,
                             &plan->shapes[s], err));
    }
    return ND_OK;
}

void nd_substituted_load(const struct nd_reader *reader, struct nd_array *substituted)
{
    const struct nd_plan *plan = reader->plan;
    for (size_t s = 0; s < plan->n_steps; s++) {
        size_t donor = plan->steps[s].substituted_from;
        struct nd_array *array = &substituted[plan->steps[s].tensor];
        if (donor != SIZE_MAX)
            nd_array_load(array->dtype, nd_reader_raw(reader, donor, s), array->n, array->x);
    }
}

/* Fills taken_from of the steps, once every device is matched, and what is unreached all the same. */
static enum nd_status nd_plan_take_over(struct nd_plan *plan, struct nd_error *err)
{
    struct nd_array *zeros = NULL;
    bool is_any = false;
    for (size_t s = 0; s < plan->n_steps; s++) {
        plan->steps[s].substituted_from = plan->not_covered[s] != NULL ? find_donor(plan, s) : SIZE_MAX;
        is_any = is_any || plan->steps[s].substituted_from != SIZE_MAX;
    }
    if (!is_any)
        return ND_OK;
    enum nd_status status = nd_substituted_make(plan, &zeros, err);
    if (status == ND_OK)
        status = survey_again(plan, zeros, err);
    nd_substituted_free(plan, &zeros);
    return status;
}

/* How many samples are read at once, and by how many threads, so that the evaluation stays within its memory.
 */

/* What one thread keeps of the sample at hand, and of each sample of a block that it reads. */
struct need {
    double thread_bytes, sample_bytes;
    double single_bytes; /* of a sample, where devices are read one after another */
};

static void add_qvalues(const struct nd_plan *plan, size_t step, struct need *need)
{
    double most = 0, sum = 0;
    for (size_t d = 0; d < plan->n_devices; d++) {
        const struct nd_plan_source *source = &plan->sources[d];
        if (source->same_as != d || source->tensors == NULL || source->tensors[step] == SIZE_MAX)
            continue;
        double bytes = (double)source->sample_bytes[step];
        sum += bytes;
        most = bytes > most ? bytes : most;
    }
    need->sample_bytes += sum;
    need->single_bytes += nd_plan_reads_together(plan, step) ? sum : most;
}

static struct need need_of(const struct nd_plan *plan)
{
    /* The reference, and the reference with a device's error, both packed; of floats arrays of doubles, which
     * the examination of floats has besides. The error of quantisation is doubles. Those of the step at hand
     * (the values of the graph, of arithmetics) are as large as some steps together: the largest 16 times,
     * measured with three convolutions of one size (tests/e2e/test_explain_memory.py: 20 MiB more for each
     * thread). */
    enum { PACKED = 2, OF_FLOATS = 3, OF_LARGEST = 16 };
    struct need need = {.thread_bytes = 0};
    double largest = 0;
    for (size_t s = 0; s < plan->n_steps; s++) {
        size_t n = 0;
        if (nd_shape_n_elems(&plan->shapes[s], &n, NULL) != ND_OK)
            continue;
        double bytes = (double)n * sizeof(double);
        size_t width = nd_packed_width(nd_plan_tensor(plan, s)->dtype);
        need.thread_bytes += plan->steps[s].has_float ? bytes : 0;
        need.thread_bytes += width < sizeof(double) ? (double)(n * width * PACKED) : bytes * OF_FLOATS;
        largest = bytes > largest ? bytes : largest;
        add_qvalues(plan, s, &need);
    }
    need.thread_bytes += OF_LARGEST * largest;
    return need;
}

static size_t max_of(const struct need *need)
{
    double most = ND_READER_BLOCK_BYTES / (need->sample_bytes > 1 ? need->sample_bytes : 1);
    return most < ND_READER_BLOCK ? ND_READER_BLOCK : most > ND_READER_MAX ? ND_READER_MAX : (size_t)most;
}

/* Fills block and n_threads: as many threads as are asked for, as far as they fit. */
static void nd_plan_take_memory(struct nd_plan *plan, const struct nd_explain_options *options)
{
    const size_t default_bytes = (size_t)1 << 30;
    plan->memory_bytes = (double)(options->memory_bytes > 0 ? options->memory_bytes : default_bytes);
}

static double kept_bytes(const struct nd_exact_graph *graph)
{
    return graph != NULL ? (double)nd_exact_graph_kept_bytes(graph) : 0;
}

/* The part of the memory for what need_of does not count: weights as arithmetics of layers take them,
 * libraries, gaps between arrays. Of 1024 MiB it was 48 (PP-OCR recognition W8A8), 80 (YOLOv8n W8A8) and 174
 * MiB (YOLOv8n W8A16), 2026-11-23. */
static const double not_counted = 3.0 / 16;

/* Tensors of captures that are decoded once: of what is left at most this part of the memory. Chosen. */
enum { OF_DECODED = 16 };

static void nd_plan_fit(struct nd_plan *plan, const struct nd_explain_options *options)
{
    double limit =
        plan->memory_bytes * (1 - not_counted) - kept_bytes(plan->graph) - kept_bytes(plan->float_graph);
    size_t n = options->n_threads > 0 ? options->n_threads : nd_parallel_n_threads();
    const struct need need = need_of(plan);
    n = n > plan->n_samples ? plan->n_samples : n;
    n = n > 0 ? n : 1;
    size_t block = (plan->n_samples + n - 1) / n; /* every thread gets some */
    size_t most = max_of(&need);
    block = block < 1 ? 1 : block > most ? most : block;
    while (n > 1 && (double)n * (need.thread_bytes + need.single_bytes) > limit)
        n--;
    while (block > 1 && (double)n * (need.thread_bytes + (double)block * need.sample_bytes) > limit)
        block--;
    plan->block = block;
    plan->n_threads = n;
    plan->reads_singly = block == 1;
    double qvalues = block == 1 ? need.single_bytes : (double)block * need.sample_bytes;
    double left = limit - (double)n * (need.thread_bytes + qvalues);
    plan->decoded_bytes = left < plan->memory_bytes / OF_DECODED ? left : plan->memory_bytes / OF_DECODED;
}

/* ---- who is asked ---- */

enum nd_status nd_plan_failure(const struct nd_capture *capture, char **out, struct nd_error *err)
{
    const char *stage = nd_capture_string(capture, "failure", "stage");
    const char *message = nd_capture_string(capture, "failure", "message");
    *out = nd_text("%s%s%s", stage != NULL ? stage : "", stage != NULL ? ": " : "",
                   message != NULL ? message : "failed");
    return *out != NULL ? ND_OK : nd_fail_memory(err);
}

static enum nd_status check_model(const struct nd_plan *plan, const struct nd_capture *capture,
                                  struct nd_error *err)
{
    const char *sha = nd_capture_string(capture, "model", "sha256");
    if (sha != NULL && strcmp(sha, nd_model_sha256(plan->model)) == 0)
        return ND_OK;
    const char *path = nd_capture_path(capture);
    return nd_fail(err, ND_E_COMPARE_MODEL, path,
                   "'%s' is a capture of a different model than '%s': sha256 %s and %s", path,
                   nd_model_path(plan->model), sha != NULL ? sha : "unknown", nd_model_sha256(plan->model));
}

/* ---- what they were asked ---- */

static bool all_hold(const struct nd_plan *plan, const char *probe)
{
    for (size_t d = 0; d < plan->n_devices; d++)
        if (!plan->sources[d].is_failed && nd_capture_find_probe(plan->sources[d].capture, probe) == SIZE_MAX)
            return false;
    return true;
}

/* Finds the probe in every capture that is used, and how many samples all have. By itself it takes the one with
 * the most samples: zeros and ones hide more than they show. */
static enum nd_status choose_probe(struct nd_plan *plan, const struct nd_explain_options *options,
                                   struct nd_error *err)
{
    const struct nd_capture *leader = plan->sources[plan->leader].capture;
    const char *name = options->probe;
    size_t most = 0;
    for (size_t p = 0; options->probe == NULL && p < nd_capture_n_probes(leader); p++) {
        const struct nd_capture_probe *probe = nd_capture_probe(leader, p);
        if (!all_hold(plan, probe->name) || probe->n_samples <= most)
            continue;
        name = probe->name;
        most = probe->n_samples;
    }
    if (name == NULL)
        return nd_fail(err, ND_E_CAPTURE_NO_OBJECT, NULL, "the captures have no probe in common");
    if (!all_hold(plan, name))
        return nd_fail(err, ND_E_CAPTURE_NO_OBJECT, name, "no probe '%s' is in all captures", name);
    plan->probe = nd_strdup(name);
    ND_TRY_MEMORY(plan->probe != NULL, err);
    plan->n_samples = options->n_samples > 0 ? options->n_samples : SIZE_MAX;
    for (size_t d = 0; d < plan->n_devices; d++) {
        struct nd_plan_source *source = &plan->sources[d];
        if (source->is_failed)
            continue;
        source->probe = nd_capture_find_probe(source->capture, name);
        size_t n = nd_capture_probe(source->capture, source->probe)->n_samples;
        plan->n_samples = n < plan->n_samples ? n : plan->n_samples;
    }
    if (plan->n_samples == 0)
        return nd_fail(err, ND_E_CAPTURE_NO_OBJECT, name, "probe '%s' has no sample that all devices have run",
                       name);
    size_t n_output_effect = options->n_output_effect_samples;
    plan->n_output_effect_samples = n_output_effect < plan->n_samples ? n_output_effect : plan->n_samples;
    return ND_OK;
}

static enum nd_status match_inputs(struct nd_plan *plan, struct nd_error *err)
{
    const struct nd_plan_source *leader = &plan->sources[plan->leader];
    const struct nd_capture_probe *probe = nd_capture_probe(leader->capture, leader->probe);
    size_t n = nd_model_n_inputs(plan->model);
    plan->inputs = nd_calloc(n, sizeof *plan->inputs);
    ND_TRY_MEMORY(plan->inputs != NULL, err);
    for (size_t i = 0; i < n; i++) {
        const struct nd_model_io *io = nd_model_input(plan->model, i);
        size_t k = 0;
        while (k < probe->n_inputs && strcmp(probe->inputs[k].name, io->name) != 0)
            k++;
        if (k == probe->n_inputs || probe->inputs[k].dtype != io->dtype ||
            !nd_shape_equal(&probe->inputs[k].shape, &io->shape))
            return nd_fail(err, ND_E_COMPARE_NOTHING, io->name,
                           "'%s' does not hold the model's input '%s', or with a different shape or type",
                           nd_capture_path(leader->capture), io->name);
        plan->inputs[i] = k;
    }
    return ND_OK;
}

/* One reference is held against all devices, so all must have been fed the same. */
static enum nd_status check_inputs(const struct nd_plan *plan, size_t device, struct nd_error *err)
{
    const struct nd_plan_source *a = &plan->sources[plan->leader], *b = &plan->sources[device];
    const struct nd_capture_probe *ref = nd_capture_probe(a->capture, a->probe);
    const struct nd_capture_probe *test = nd_capture_probe(b->capture, b->probe);
    bool is_same = ref->n_inputs == test->n_inputs;
    for (size_t k = 0; k < ref->n_inputs && is_same; k++) {
        is_same = strcmp(ref->inputs[k].name, test->inputs[k].name) == 0;
        for (size_t i = 0; i < plan->n_samples && is_same; i++)
            is_same = nd_digest_equal(nd_capture_input_digest(a->capture, a->probe, k, i),
                                      nd_capture_input_digest(b->capture, b->probe, k, i));
    }
    if (is_same)
        return ND_OK;
    return nd_fail(err, ND_E_COMPARE_NOTHING, ref->name, "'%s' and '%s' have other inputs in probe '%s'",
                   nd_capture_path(a->capture), nd_capture_path(b->capture), ref->name);
}

static enum nd_status match_float_inputs(struct nd_plan *plan, struct nd_error *err)
{
    size_t n = nd_model_n_inputs(plan->float_model);
    plan->float_inputs = nd_calloc(n, sizeof *plan->float_inputs);
    ND_TRY_MEMORY(plan->float_inputs != NULL, err);
    for (size_t i = 0; i < n; i++) {
        const struct nd_model_io *io = nd_model_input(plan->float_model, i);
        size_t k = 0;
        while (k < nd_model_n_inputs(plan->model) &&
               strcmp(nd_model_input(plan->model, k)->name, io->name) != 0)
            k++;
        if (k == nd_model_n_inputs(plan->model) || nd_model_input(plan->model, k)->dtype != io->dtype ||
            !nd_shape_equal(&nd_model_input(plan->model, k)->shape, &io->shape))
            return nd_fail(err, ND_E_COMPARE_MODEL, io->name,
                           "the float model's input '%s' is none of the quantised model's, or has a different "
                           "shape or type",
                           io->name);
        plan->float_inputs[i] = k;
    }
    return ND_OK;
}

/* ---- all of it ---- */

/* ---- what of the model can be evaluated ---- */

/* Two surveys: what the model makes of its inputs alone has a reference; and with the tensors that have none
 * given as captures have them, what lies behind them can still be worked out from a device's own inputs. */
struct finding {
    struct nd_survey alone, given;
    struct nd_array *zeros; /* [n_edges] */
};

static void finding_deinit(struct finding *finding)
{
    for (size_t e = 0; finding->zeros != NULL && e < finding->alone.n_tensors; e++)
        if (finding->zeros[e].shape.rank >= 0)
            nd_array_deinit(&finding->zeros[e]);
    free(finding->zeros);
    nd_survey_deinit(&finding->alone);
    nd_survey_deinit(&finding->given);
}

/* Zeros of the shape that a device captured; nothing when none did. */
static enum nd_status make_zeros(const struct nd_plan *plan, size_t e, struct nd_array *zeros,
                                 struct nd_error *err)
{
    for (size_t d = 0; d < plan->n_devices; d++) {
        const struct nd_plan_source *source = &plan->sources[d];
        size_t k = source->is_failed
                       ? SIZE_MAX
                       : nd_capture_find_tensor(source->capture, nd_model_tensor(plan->model, e)->name);
        if (k == SIZE_MAX || nd_capture_tensor(source->capture, k)->shape.rank < 0)
            continue;
        *zeros = (struct nd_array){0};
        return nd_array_make(zeros, nd_capture_tensor(source->capture, k)->dtype,
                             &nd_capture_tensor(source->capture, k)->shape, err);
    }
    return ND_OK;
}

static enum nd_status survey_given(const struct nd_plan *plan, struct finding *finding, struct nd_error *err)
{
    size_t n = finding->alone.n_tensors;
    finding->zeros = nd_calloc(n, sizeof *finding->zeros);
    ND_TRY_MEMORY(finding->zeros != NULL, err);
    for (size_t e = 0; e < n; e++)
        finding->zeros[e].shape.rank = -1;
    for (size_t e = 0; e < n; e++)
        if (finding->alone.tensors[e].why != NULL)
            ND_TRY(make_zeros(plan, e, &finding->zeros[e], err));
    return nd_survey_run(&finding->given, plan->model, plan->graph, finding->zeros, err);
}

/* Computed, captured, or what the model says. */
static struct nd_shape shape_of(const struct nd_plan *plan, const struct finding *finding, size_t e)
{
    const struct nd_shape *declared = &nd_model_tensor(plan->model, e)->shape;
    if (finding->alone.tensors[e].is_found)
        return finding->alone.tensors[e].shape;
    if (finding->given.tensors[e].is_found)
        return finding->given.tensors[e].shape;
    if (finding->zeros[e].shape.rank >= 0)
        return finding->zeros[e].shape;
    bool is_fixed = declared->rank >= 0;
    for (int d = 0; d < declared->rank; d++)
        is_fixed = is_fixed && declared->dims[d] >= 0;
    return is_fixed ? *declared : (struct nd_shape){.rank = 1}; /* nobody has values of it */
}

/* What a layer reads that is not known is said of each device. */
static enum nd_status say_uncovered(struct nd_plan *plan, const struct finding *finding, size_t s,
                                    struct nd_error *err)
{
    const struct nd_explained_step *step = &plan->steps[s];
    const struct nd_survey_sight *sight = &finding->given.tensors[step->tensor];
    if (sight->why == NULL || (sight->needs != SIZE_MAX && step->is_layer))
        return ND_OK;
    plan->not_covered[s] = nd_text("%s cannot be evaluated: %s", step->op_types, sight->why);
    return plan->not_covered[s] != NULL ? ND_OK : nd_fail_memory(err);
}

/* Once all steps are known: those that each layer reads. */
static enum nd_status find_inputs(struct nd_plan *plan, struct nd_error *err)
{
    for (size_t s = 0; s < plan->n_steps; s++) {
        struct nd_explained_step *step = &plan->steps[s];
        const struct nd_model_layer *layer = nd_model_layer_of_tensor(plan->model, step->tensor);
        if (layer == NULL)
            continue;
        step->inputs = nd_calloc(layer->n_inputs + 1, sizeof *step->inputs);
        ND_TRY_MEMORY(step->inputs != NULL, err);
        for (size_t i = 0; i < layer->n_inputs; i++)
            if (plan->step_of_tensor[layer->inputs[i]] != SIZE_MAX)
                step->inputs[step->n_inputs++] = plan->step_of_tensor[layer->inputs[i]];
    }
    return ND_OK;
}

/* Once all steps are known. */
static enum nd_status find_unreached(struct nd_plan *plan, const struct finding *finding, struct nd_error *err)
{
    for (size_t s = 0; s < plan->n_steps; s++) {
        size_t e = plan->steps[s].tensor;
        if (finding->alone.tensors[e].why == NULL)
            continue;
        plan->steps[s].unreached_from = plan->step_of_tensor[nd_survey_root(&finding->alone, e)];
        ND_TRY(say_uncovered(plan, finding, s, err));
    }
    return ND_OK;
}

static enum nd_status add_step(struct nd_plan *plan, const struct finding *finding, size_t e,
                               struct nd_error *err)
{
    const struct nd_tensor *tensor = nd_model_tensor(plan->model, e);
    struct nd_explained_step *step = &plan->steps[plan->n_steps];
    *step = (struct nd_explained_step){.name = nd_strdup(tensor->name),
                                       .op_types = nd_strdup(tensor->op_types),
                                       .tensor = e,
                                       .is_layer = nd_model_layer_of_tensor(plan->model, e) != NULL,
                                       .is_model_output = tensor->is_model_output,
                                       .unreached_from = SIZE_MAX,
                                       .substituted_from = SIZE_MAX};
    plan->shapes[plan->n_steps] = shape_of(plan, finding, e);
    plan->step_of_tensor[e] = plan->n_steps;
    plan->n_steps++;
    return step->name != NULL && step->op_types != NULL &&
                   nd_names_add(&plan->step_of_name, tensor->name, plan->n_steps - 1)
               ? ND_OK
               : nd_fail_memory(err);
}

/* ---- the float model ---- */

/* Models of one family share a name or two: less than half of the names is another model. n_floats: tensors of
 * the same name that are floats in both. */
static enum nd_status check_float_model(const struct nd_plan *plan, size_t n_floats, struct nd_error *err)
{
    size_t n = 0;
    for (size_t s = 0; s < plan->n_steps; s++)
        n += plan->steps[s].has_float || plan->steps[s].lacks_float;
    if (2 * n >= plan->n_steps)
        return ND_OK;
    const char *path = nd_model_path(plan->float_model);
    if (2 * (n + n_floats) >= plan->n_steps)
        return nd_fail(err, ND_E_COMPARE_MODEL, path,
                       "'%s' has %zu of the %zu tensors of '%s', but %zu of them are floats there, too, and "
                       "were not quantised: without --float it is explained as it is",
                       path, n + n_floats, plan->n_steps, nd_model_path(plan->model), n_floats);
    return nd_fail(err, ND_E_COMPARE_MODEL, path,
                   "'%s' is not '%s' before quantisation: it has %zu of its %zu tensors", path,
                   nd_model_path(plan->model), n, plan->n_steps);
}

/* A tensor of the same name, number of elements and known scale. The input's float tensor is no tensor of a
 * float model: its values are the probe's. */
static void match_float_tensor(struct nd_plan *plan, const struct nd_survey_sight *sight, size_t e,
                               size_t *n_floats)
{
    size_t s = nd_names_find(&plan->step_of_name, nd_model_tensor(plan->float_model, e)->name), n;
    if (s == SIZE_MAX)
        return;
    if (nd_plan_tensor(plan, s)->quant.n == 0) {
        ++*n_floats;
        return;
    }
    struct nd_explained_step *step = &plan->steps[s];
    step->lacks_float |= sight->why != NULL;
    if (!sight->is_found || nd_shape_n_elems(&plan->shapes[s], &n, NULL) != ND_OK || n != sight->n)
        return;
    plan->step_of_float[e] = s;
    step->has_float = true;
}

static enum nd_status match_float_steps(struct nd_plan *plan, struct nd_error *err)
{
    ND_CLEANUP(nd_survey_deinit) struct nd_survey survey = {0};
    size_t n_tensors = nd_model_n_tensors(plan->float_model), n_floats = 0;
    ND_TRY(nd_survey_run(&survey, plan->float_model, plan->float_graph, NULL, err));
    plan->step_of_float = nd_calloc(n_tensors, sizeof *plan->step_of_float);
    ND_TRY_MEMORY(plan->step_of_float != NULL, err);
    for (size_t e = 0; e < n_tensors; e++) {
        plan->step_of_float[e] = SIZE_MAX;
        match_float_tensor(plan, &survey.tensors[e], e, &n_floats);
    }
    return check_float_model(plan, n_floats, err);
}

/* Takes a zeroed sample through the graph to learn the steps and what of them can be evaluated, and matches the
 * float model's tensors with them. */
static enum nd_status plan_find_steps(struct nd_plan *plan, struct nd_error *err)
{
    ND_CLEANUP(finding_deinit) struct finding finding = {0};
    size_t n_tensors = nd_model_n_tensors(plan->model);
    ND_TRY(nd_survey_run(&finding.alone, plan->model, plan->graph, NULL, err));
    if (finding.alone.n_missed > 0)
        ND_TRY(survey_given(plan, &finding, err));
    plan->steps = nd_calloc(n_tensors, sizeof *plan->steps);
    plan->shapes = nd_calloc(n_tensors, sizeof *plan->shapes);
    plan->step_of_tensor = nd_calloc(n_tensors, sizeof *plan->step_of_tensor);
    plan->not_covered = nd_calloc(n_tensors, sizeof *plan->not_covered);
    ND_TRY_MEMORY(plan->steps != NULL && plan->shapes != NULL && plan->step_of_tensor != NULL &&
                      plan->not_covered != NULL,
                  err);
    for (size_t e = 0; e < n_tensors; e++) {
        plan->step_of_tensor[e] = SIZE_MAX;
        if (finding.alone.tensors[e].is_found || finding.alone.tensors[e].why != NULL)
            ND_TRY(add_step(plan, &finding, e, err));
    }
    ND_TRY(find_unreached(plan, &finding, err));
    ND_TRY(find_inputs(plan, err));
    return plan->float_model != NULL ? match_float_steps(plan, err) : ND_OK;
}

static enum nd_status plan_graphs(struct nd_plan *plan, struct nd_error *err)
{
    enum { OF_CONSTANTS = 2, OF_FLOAT_CONSTANTS = 4 }; /* chosen: a half and a quarter of all memory */
    ND_TRY(nd_model_check_static(plan->model, err));
    if (plan->float_model != NULL)
        ND_TRY(nd_model_check_static(plan->float_model, err));
    ND_TRY(nd_exact_graph_create_within(plan->model, nd_plan_share(plan, OF_CONSTANTS), &plan->graph, err));
    if (plan->float_model != NULL)
        ND_TRY(nd_exact_graph_create_within(plan->float_model, nd_plan_share(plan, OF_FLOAT_CONSTANTS),
                                            &plan->float_graph, err));
    ND_TRY(match_inputs(plan, err));
    if (plan->float_model != NULL)
        ND_TRY(match_float_inputs(plan, err));
    ND_TRY(plan_find_steps(plan, err));
    if (plan->float_model != NULL)
        ND_TRY(nd_plan_follow_equalised(plan, err));
    return nd_alternatives_init(&plan->alternatives, plan->model, err);
}

static bool has_same_qvalues(const struct nd_plan *plan, size_t a, size_t b)
{
    const struct nd_plan_source *x = &plan->sources[a], *y = &plan->sources[b];
    bool is_same = !x->is_failed && !y->is_failed, is_any = false;
    for (size_t s = 0; s < plan->n_steps && is_same; s++) {
        is_same = (x->tensors[s] == SIZE_MAX) == (y->tensors[s] == SIZE_MAX);
        is_any = is_any || x->tensors[s] != SIZE_MAX;
        for (size_t i = 0; i < plan->n_samples && is_same && x->tensors[s] != SIZE_MAX; i++)
            is_same = nd_digest_equal(nd_capture_digest(x->capture, x->probe, x->tensors[s], i, 0),
                                      nd_capture_digest(y->capture, y->probe, y->tensors[s], i, 0));
    }
    return is_same && is_any;
}

static void find_groups(struct nd_plan *plan)
{
    for (size_t d = 0; d < plan->n_devices; d++) {
        size_t first = 0;
        while (first < d && (plan->sources[first].same_as != first || !has_same_qvalues(plan, first, d)))
            first++;
        plan->sources[d].same_as = first;
    }
}

enum nd_status nd_plan_make(struct nd_plan *plan, const struct nd_question *question,
                            const struct nd_explain_options *options, struct nd_error *err)
{
    *plan = (struct nd_plan){.model = question->model,
                             .float_model = question->float_model,
                             .n_devices = question->n_captures,
                             .leader = SIZE_MAX,
                             .block = 1,
                             .n_threads = 1,
                             .sources = nd_calloc(question->n_captures, sizeof *plan->sources)};
    ND_TRY_MEMORY(plan->sources != NULL, err);
    for (size_t d = 0; d < plan->n_devices; d++) {
        struct nd_plan_source *source = &plan->sources[d];
        source->capture = question->captures[d];
        source->is_failed = nd_capture_state(source->capture) == ND_CAPTURE_FAILED;
        source->expectation = nd_expect(source->capture);
        ND_TRY(check_model(plan, source->capture, err));
        if (!source->is_failed && plan->leader == SIZE_MAX)
            plan->leader = d;
    }
    if (plan->leader == SIZE_MAX)
        return ND_OK; /* all failed: nothing to explain */
    nd_plan_take_memory(plan, options);
    ND_TRY(choose_probe(plan, options, err));
    for (size_t d = plan->leader + 1; d < plan->n_devices; d++)
        if (!plan->sources[d].is_failed)
            ND_TRY(check_inputs(plan, d, err));
    ND_TRY(plan_graphs(plan, err));
    for (size_t d = 0; d < plan->n_devices; d++)
        ND_TRY(nd_plan_match_device(plan, d, err));
    ND_TRY(nd_plan_take_over(plan, err));
    nd_plan_find_totals(plan);
    for (size_t k = 0; k < options->n_untouched; k++)
        ND_TRY(check_model(plan, options->untouched[k], err));
    ND_TRY(nd_plan_observe(plan, options->untouched, options->n_untouched, err));
    find_groups(plan);
    nd_plan_fit(plan, options);
    return ND_OK;
}

static void deinit_source(struct nd_plan_source *source, size_t n_steps)
{
    for (size_t s = 0; source->layers != NULL && s < n_steps; s++)
        free(source->layers[s].why_not);
    for (size_t s = 0; source->carried != NULL && s < n_steps; s++)
        free(source->carried[s]);
    ND_FREE_ALL(source->layers, source->tensors, source->sample_bytes, source->carried);
}

void nd_plan_deinit(struct nd_plan *plan)
{
    nd_plan_release(plan);
    for (size_t d = 0; plan->sources != NULL && d < plan->n_devices; d++)
        deinit_source(&plan->sources[d], plan->n_steps);
    for (size_t s = 0; plan->steps != NULL && s < plan->n_steps; s++)
        ND_FREE_ALL(plan->steps[s].name, plan->steps[s].op_types, plan->steps[s].inputs);
    for (size_t s = 0; plan->not_covered != NULL && s < plan->n_steps; s++)
        free(plan->not_covered[s]);
    ND_FREE_ALL(plan->sources, plan->steps, plan->not_covered, plan->probe);
    nd_alternatives_deinit(&plan->alternatives);
    ND_FREE_ALL(plan->inputs, plan->float_inputs, plan->step_of_tensor);
    nd_names_deinit(&plan->step_of_name);
    ND_FREE_ALL(plan->step_of_float, plan->equalised, plan->shapes);
    nd_exact_graph_destroy(&plan->graph);
    nd_exact_graph_destroy(&plan->float_graph);
}

bool nd_plan_has_qvalues(const struct nd_plan *plan)
{
    for (size_t d = 0; d < plan->n_devices; d++)
        for (size_t s = 0; s < plan->n_steps && !plan->sources[d].is_failed; s++)
            if (plan->sources[d].layers[s].has_total || plan->sources[d].layers[s].is_examined)
                return true;
    return false;
}

bool nd_plan_is_worked_out(const struct nd_plan *plan, size_t device)
{
    return !plan->sources[device].is_failed && plan->sources[device].same_as == device;
}

bool nd_plan_is_wide(const struct nd_plan *plan, size_t step)
{
    return nd_dtype_size_bytes(nd_plan_tensor(plan, step)->dtype) > 1;
}

bool nd_plan_differs_by_run(const struct nd_plan *plan, size_t device, size_t step)
{
    const struct nd_plan_source *source = &plan->sources[device];
    size_t tensor = source->tensors[step];
    for (size_t i = 0; i < plan->n_samples && tensor != SIZE_MAX; i++)
        for (size_t r = 1, n = nd_capture_n_runs(source->capture, source->probe, tensor, i); r < n; r++)
            if (!nd_digest_equal(nd_capture_digest(source->capture, source->probe, tensor, i, 0),
                                 nd_capture_digest(source->capture, source->probe, tensor, i, r)))
                return true;
    return false;
}

bool nd_plan_inputs_repeat(const struct nd_plan *plan, size_t device, size_t step)
{
    const struct nd_model_layer *layer = nd_plan_layer(plan, step);
    for (size_t i = 0; layer != NULL && i < layer->n_inputs; i++) {
        size_t input = plan->step_of_tensor[layer->inputs[i]];
        if (input != SIZE_MAX && nd_plan_differs_by_run(plan, device, input))
            return false;
    }
    return true;
}
