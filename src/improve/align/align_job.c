/* What the stages of an alignment, and a check of its certificate, begin with and share: arithmetics, layers,
 * samples, constants. docs/science/align.md. */
#include <stdio.h>

#include "arithmetic/exact/eval_graph.h"
#include "core/files/file.h"
#include "core/items.h"
#include "explain/known/expectation.h"
#include "improve/align/align_stages.h"
#include "model/graph/constants.h"
#include "model/graph/parts.h"
#include "npudiff/compare/compare.h"
#include "record/sessions/capture_run.h"

/* The aligned model on devices: one capture each, all compared. */

struct verifier {
    struct nd_align_job *job;
    char **paths; /* [n_devices] */
    struct nd_capture **captures;
    size_t n_done;
};

static const char not_same_inputs[] = "it reads tensors that differ between the devices";
static const char was_refuted[] = "the devices differ although what the layer reads is equal";

/* A nd_device_task. */
static enum nd_status capture_one(void *context, size_t task, struct nd_error *err)
{
    struct verifier *v = context;
    const struct nd_align_options *options = v->job->options;
    struct nd_capture_options how;
    struct nd_error failure = {0};
    nd_capture_options_init(&how);
    how.skips_untouched = true;
    how.agent = options->agent;
    how.is_cancelled = options->is_cancelled;
    how.cancel_context = options->cancel_context;
    const struct nd_workload work = {v->job->aligned, options->devices[task], options->probes,
                                     options->n_probes};
    enum nd_status status =
        nd_capture_run_and_open(&work, v->paths[task], &how, &v->captures[task], &failure, err);
    if (failure.status != ND_OK) {
        *err = failure;
        nd_error_context(err, "the aligned model on '%s'", options->devices[task]->label);
        return err->status;
    }
    if (status == ND_OK)
        status = nd_align_tell(v->job, "capture", ++v->n_done, options->n_devices, err);
    return status;
}

static enum nd_status capture_all(struct verifier *v, struct nd_error *err)
{
    const struct nd_align_options *options = v->job->options;
    for (size_t d = 0; d < options->n_devices; d++) {
        char name[32];
        snprintf(name, sizeof name, "device%zu.h5", d);
        v->paths[d] = nd_path_join(v->job->folder, name);
        ND_TRY_MEMORY(v->paths[d] != NULL, err);
    }
    return nd_devices_run(options->devices, options->n_devices, 1, capture_one, v, err);
}

/* ---- what was seen ---- */

static const struct nd_compared_tensor *tensor_of(const struct nd_comparison *comparison, const char *name)
{
    return nd_find_text(comparison->tensors, comparison->n_tensors, sizeof *comparison->tensors, name);
}

/* Groups of identical devices, 0 where one has no data. */
static size_t n_groups_of(const struct nd_comparison *comparison, const struct nd_compared_tensor *tensor)
{
    int most = -1;
    for (size_t d = 0; tensor != NULL && d < comparison->n_devices; d++) {
        if (tensor->devices[d].class_id < 0)
            return 0;
        most = tensor->devices[d].class_id > most ? tensor->devices[d].class_id : most;
    }
    return tensor != NULL && tensor->comparable ? (size_t)(most + 1) : 0;
}

static bool has_equal_inputs(const struct nd_align_job *job, const struct nd_comparison *comparison,
                             size_t aligned_layer)
{
    const struct nd_model_layer *layer = nd_model_layer(job->aligned, aligned_layer);
    for (size_t i = 0; i < layer->n_inputs; i++) {
        const struct nd_tensor *input = nd_model_tensor(job->aligned, layer->inputs[i]);
        const struct nd_compared_tensor *tensor = tensor_of(comparison, input->name);
        if (!input->is_model_input && n_groups_of(comparison, tensor) != 1)
            return false;
        if (tensor != NULL && n_groups_of(comparison, tensor) > 1)
            return false;
    }
    return true;
}

static void judge(struct nd_align_job *job, struct nd_alignment_layer *layer)
{
    if (layer->n_groups == 0)
        return;
    if (layer->n_groups == 1) {
        if (layer->state == ND_ALIGN_UNKNOWN && layer->has_equal_inputs)
            layer->state = ND_ALIGN_TESTED;
    } else if (!layer->has_equal_inputs) {
        if (layer->state == ND_ALIGN_UNKNOWN)
            layer->reason = not_same_inputs;
    } else {
        job->result->n_refuted += layer->state == ND_ALIGN_PROVEN;
        layer->reason = was_refuted;
        layer->state = ND_ALIGN_DIFFERS;
    }
}

static enum nd_status read_comparison(struct nd_align_job *job, const struct nd_comparison *comparison,
                                      struct nd_error *err)
{
    struct nd_alignment *result = job->result;
    for (size_t i = 0; i < result->n_layers; i++) {
        struct nd_alignment_layer *layer = &result->layers[i];
        layer->n_groups = n_groups_of(comparison, tensor_of(comparison, layer->name));
        layer->has_equal_inputs = has_equal_inputs(job, comparison, i);
        judge(job, layer);
    }
    for (size_t e = 0; e < comparison->n_tensors; e++) {
        size_t n_groups = n_groups_of(comparison, &comparison->tensors[e]);
        result->n_tensors += n_groups > 0;
        result->n_tensors_equal += n_groups == 1;
    }
    for (size_t p = 0; p < comparison->n_probes; p++)
        result->n_device_samples += comparison->probes[p].n_samples;
    result->groups = nd_strdup(comparison->classes_text);
    result->devices = nd_calloc(comparison->n_devices, sizeof *result->devices);
    result->environments = nd_calloc(comparison->n_devices, sizeof *result->environments);
    ND_TRY_MEMORY(result->groups != NULL && result->devices != NULL && result->environments != NULL, err);
    for (size_t d = 0; d < comparison->n_devices; d++) {
        result->devices[d] = nd_strdup(comparison->devices[d].label);
        result->environments[d] = nd_strdup(comparison->devices[d].environment);
        result->n_devices = d + 1;
        ND_TRY_MEMORY(result->devices[d] != NULL && result->environments[d] != NULL, err);
    }
    return ND_OK;
}

enum nd_status nd_align_verify(struct nd_align_job *job, struct nd_error *err)
{
    size_t n = job->options->n_devices;
    struct verifier v = {
        .job = job, .paths = nd_calloc(n, sizeof *v.paths), .captures = nd_calloc(n, sizeof *v.captures)};
    struct nd_comparison *comparison = NULL;
    struct nd_compare_options how = nd_compare_options_default();
    how.n_threads = job->options->n_threads;
    how.is_cancelled = job->options->is_cancelled;
    how.cancel_context = job->options->cancel_context;
    enum nd_status status = v.paths != NULL && v.captures != NULL ? capture_all(&v, err) : nd_fail_memory(err);
    if (status == ND_OK)
        status = nd_compare_captures((const struct nd_capture *const *)v.captures, n, &how, &comparison, err);
    if (status == ND_OK)
        status = read_comparison(job, comparison, err);
    nd_comparison_destroy(&comparison);
    for (size_t d = 0; d < n; d++) {
        if (v.captures != NULL)
            nd_capture_close(&v.captures[d]);
        if (v.paths != NULL)
            free(v.paths[d]);
    }
    ND_FREE_ALL(v.captures, v.paths);
    return status;
}

static const char not_examined[] = "it was not examined";

const char *nd_align_state_name(enum nd_align_state state)
{
    static const char *const names[] = {"proven", "tested", "unknown", "differs"};
    return names[state];
}

void nd_alignment_destroy(struct nd_alignment **alignment)
{
    struct nd_alignment *old = *alignment;
    if (old == NULL)
        return;
    for (size_t i = 0; i < old->n_layers; i++)
        ND_FREE_ALL(old->layers[i].name, old->layers[i].op_types);
    for (size_t i = 0; i < old->n_outputs; i++)
        free(old->outputs[i].name);
    for (size_t i = 0; i < old->n_arithmetics; i++)
        free(old->arithmetics[i]);
    for (size_t i = 0; i < old->n_devices; i++)
        ND_FREE_ALL(old->devices[i], old->environments[i]);
    ND_FREE_EACH(old->points, old->n_points, .layer);
    ND_FREE_ALL(old->layers, old->outputs, old->arithmetics, old->devices, old->environments, old->groups,
                old->model, old->output, old->certificate, old->float_model, old);
    *alignment = NULL;
}

enum nd_status nd_align_tell(const struct nd_align_job *job, const char *stage, size_t n_done, size_t n_total,
                             struct nd_error *err)
{
    const struct nd_align_options *options = job->options;
    if (options->is_cancelled != NULL && options->is_cancelled(options->cancel_context))
        return nd_fail(err, ND_E_CANCELLED, NULL, "cancelled");
    if (options->progress != NULL)
        options->progress(options->progress_context, stage, n_done, n_total);
    return ND_OK;
}

static enum nd_status add_arithmetic(struct nd_align_job *job, const char *name, struct nd_error *err)
{
    const struct nd_layer_arithmetic *arithmetic = nd_layer_arithmetic_from_name(name);
    for (size_t i = 0; i < job->n_arithmetics; i++)
        if (job->arithmetics[i] == arithmetic && arithmetic != NULL)
            return ND_OK;
    if (arithmetic == NULL)
        return nd_fail(err, ND_E_OPTION_VALUE, name,
                       "'%s' is no arithmetic of whole layers; known are htp-v69, htp-v73, htp-v69:2.48 and "
                       "htp-v73:2.48",
                       name);
    if (job->n_arithmetics == ND_ALIGN_MAX_ARITHMETICS)
        return nd_fail(err, ND_E_OPTION_VALUE, name, "at most %d arithmetics can be aligned",
                       ND_ALIGN_MAX_ARITHMETICS);
    job->arithmetics[job->n_arithmetics] = arithmetic;
    job->result->arithmetics[job->n_arithmetics] = nd_strdup(name);
    ND_TRY_MEMORY(job->result->arithmetics[job->n_arithmetics] != NULL, err);
    job->result->n_arithmetics = ++job->n_arithmetics;
    return ND_OK;
}

/* That of the newest SDK. */
static enum nd_status add_chipset(struct nd_align_job *job, const char *name, struct nd_error *err)
{
    const struct nd_chipset *chipset = nd_chipset_find(name);
    if (chipset == NULL)
        return nd_fail(err, ND_E_OPTION_VALUE, name,
                       "'%s' is no chipset that npudiff knows; 'npudiff devices' lists them", name);
    if (nd_expect_of_arch(chipset->arch) == ND_EXPECT_V69)
        return add_arithmetic(job, "htp-v69", err);
    if (nd_expect_of_arch(chipset->arch) == ND_EXPECT_V73)
        return add_arithmetic(job, "htp-v73", err);
    return nd_fail(err, ND_E_OPTION_VALUE, name, "the arithmetic of '%s' (%s) is not known", name,
                   chipset->arch);
}

enum nd_status nd_align_find_arithmetics(struct nd_align_job *job, const char *const *names, size_t n,
                                         struct nd_error *err)
{
    static const char *const usual[] = {"htp-v69", "htp-v73"};
    const struct nd_align_options *options = job->options;
    if (n == 0 && options->n_chipsets == 0) {
        names = usual;
        n = sizeof usual / sizeof usual[0];
    }
    job->result->arithmetics = nd_calloc(ND_ALIGN_MAX_ARITHMETICS, sizeof *job->result->arithmetics);
    ND_TRY_MEMORY(job->result->arithmetics != NULL, err);
    for (size_t i = 0; i < n; i++)
        ND_TRY(add_arithmetic(job, names[i], err));
    for (size_t i = 0; i < options->n_chipsets; i++)
        ND_TRY(add_chipset(job, options->chipsets[i], err));
    if (job->n_arithmetics < 2)
        return nd_fail(err, ND_E_OPTION_VALUE, job->result->arithmetics[0],
                       "all of them have one arithmetic, %s: they give the same bits already",
                       job->result->arithmetics[0]);
    return ND_OK;
}

enum nd_status nd_align_make_layers(struct nd_align_job *job, const struct nd_model *model,
                                    struct nd_error *err)
{
    struct nd_alignment *result = job->result;
    size_t n_tensors = nd_model_n_tensors(model);
    result->layers = nd_calloc(nd_model_n_layers(model), sizeof *result->layers);
    job->layer_of_tensor = nd_calloc(n_tensors, sizeof *job->layer_of_tensor);
    ND_TRY_MEMORY(result->layers != NULL && job->layer_of_tensor != NULL, err);
    for (size_t e = 0; e < n_tensors; e++) {
        job->layer_of_tensor[e] = SIZE_MAX;
        result->n_floats += nd_model_tensor(model, e)->quant.n == 0;
    }
    for (size_t u = 0; u < nd_model_n_layers(model); u++) {
        struct nd_alignment_layer *layer = &result->layers[u];
        result->n_layers = u + 1;
        job->layer_of_tensor[nd_model_layer(model, u)->tensor] = u;
        layer->state = ND_ALIGN_UNKNOWN;
        layer->reason = not_examined;
        layer->name = nd_strdup(nd_model_layer(model, u)->name);
        layer->op_types = nd_strdup(nd_model_layer(model, u)->op_types);
        ND_TRY_MEMORY(layer->name != NULL && layer->op_types != NULL, err);
    }
    result->model = nd_strdup(nd_model_path(job->original != NULL ? job->original : model));
    if (job->options->float_model != NULL)
        result->float_model = nd_strdup(nd_model_path(job->options->float_model));
    return result->model != NULL && (job->options->float_model == NULL || result->float_model != NULL)
               ? ND_OK
               : nd_fail_memory(err);
}

bool nd_align_is_product(const char *op_types)
{
    static const char *const products[] = {"Conv", "ConvTranspose", "Gemm", "MatMul"};
    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++) {
        size_t n = strlen(products[i]);
        if (strncmp(op_types, products[i], n) == 0 && (op_types[n] == '\0' || op_types[n] == '+'))
            return true;
    }
    return false;
}

enum nd_status nd_align_name_file(struct nd_align_job *job, const char *name, char **path, struct nd_error *err)
{
    enum nd_status status = job->folder == NULL ? nd_dir_make_temporary(&job->folder, err) : ND_OK;
    *path = status == ND_OK ? nd_path_join(job->folder, name) : NULL;
    return status == ND_OK && *path == NULL ? nd_fail_memory(err) : status;
}

enum nd_status nd_align_write(struct nd_align_job *job, const struct nd_align_plan *plan, struct nd_error *err)
{
    ND_FREED char *path = NULL;
    ND_TRY(nd_align_name_file(job, "aligned.onnx", &path, err));
    ND_TRY(nd_model_write_recoded(job->model, plan->nodes, plan->n_nodes, path, err));
    ND_TRY(nd_model_load(path, &job->read_again, err));
    job->aligned = job->read_again;
    return ND_OK;
}

size_t nd_align_n_samples(const struct nd_align_options *options)
{
    size_t n = 0;
    for (size_t i = 0; i < options->n_probes; i++)
        n += options->probes[i]->n_samples;
    return options->n_samples > 0 && options->n_samples < n ? options->n_samples : n;
}

const struct nd_probe *nd_align_load_sample(const struct nd_align_job *job, size_t *sample,
                                            struct nd_array *inputs)
{
    const struct nd_align_options *options = job->options;
    size_t p = 0;
    while (*sample >= options->probes[p]->n_samples)
        *sample -= options->probes[p++]->n_samples;
    const struct nd_probe *probe = options->probes[p];
    for (size_t i = 0; i < probe->n_inputs; i++)
        nd_array_load(probe->inputs[i].dtype,
                      (const unsigned char *)probe->inputs[i].data + *sample * probe->inputs[i].sample_bytes,
                      inputs[i].n, inputs[i].x);
    return probe;
}

/* ---- where the layer's constants are ---- */

size_t nd_align_node_of(const struct nd_graph *graph, const Onnx__NodeProto *proto)
{
    size_t n = 0;
    while (n < graph->n_nodes && graph->nodes[n].proto != proto)
        n++;
    return n < graph->n_nodes ? n : ND_NO_INDEX;
}

size_t nd_align_dequantizer_of(const struct nd_graph *graph, size_t node, size_t i, bool *is_shared)
{
    if (i >= graph->nodes[node].n_inputs)
        return ND_NO_INDEX;
    size_t tensor = graph->uses[graph->nodes[node].first_use + i];
    if (tensor == ND_NO_INDEX || graph->tensors[tensor].producer == ND_NO_INDEX ||
        graph->nodes[graph->tensors[tensor].producer].kind != ND_NODE_DEQUANTIZE)
        return ND_NO_INDEX;
    *is_shared =
        *is_shared || graph->tensors[tensor].n_readers > 1 || graph->tensors[tensor].output != ND_NO_INDEX;
    return graph->tensors[tensor].producer;
}

/* ---- the float model ---- */

/* Whether the numbers are what was quantised: within a step, in the root of the mean square. */
static bool is_origin(const struct nd_float_constant *constant, const struct nd_linear_input *input)
{
    const struct nd_array *qvalues = input->values;
    double squares = 0;
    if (constant->n != qvalues->n || constant->rank != (size_t)qvalues->shape.rank)
        return false;
    for (size_t d = 0; d < constant->rank; d++)
        if (constant->dims[d] != qvalues->shape.dims[d])
            return false;
    for (size_t i = 0; i < qvalues->n; i++) {
        size_t c = nd_exact_channel(input->quant, &qvalues->shape, i);
        double steps = (double)constant->values[i] / (double)input->quant->scale[c] +
                       (double)input->quant->zero_point[c] - qvalues->x[i];
        squares += steps * steps;
    }
    return squares <= (double)qvalues->n;
}

static enum nd_status copy_values(const struct nd_align_scaled *scaled, double **out, struct nd_error *err)
{
    *out = nd_calloc(scaled->n, sizeof **out);
    ND_TRY_MEMORY(*out != NULL, err);
    memcpy(*out, scaled->values, scaled->n * sizeof **out);
    return ND_OK;
}

enum nd_status nd_align_find_floats(const struct nd_align_plan *plan, size_t dequantizer,
                                    const struct nd_linear_input *input, double **out, struct nd_error *err)
{
    if (plan->float_model == NULL || dequantizer == ND_NO_INDEX)
        return ND_OK;
    const struct nd_graph *graph = &plan->model->graph, *floats = &plan->float_model->graph;
    struct nd_float_constant constant = {0};
    bool is_constant = false;
    ND_FREED char *name = nd_model_constant_name(graph, dequantizer);
    ND_TRY_MEMORY(name != NULL, err);
    for (size_t i = 0; i < plan->n_scaled; i++)
        if (strcmp(plan->scaled[i].name, name) == 0)
            return copy_values(&plan->scaled[i], out, err);
    size_t tensor = nd_names_find(&floats->names, name);
    if (tensor == ND_NO_INDEX)
        return ND_OK;
    enum nd_status status =
        nd_float_constant_read(floats, tensor, nd_model_path(plan->float_model), &constant, &is_constant, err);
    if (status == ND_ERR_UNSUPPORTED) /* it is there, but holds no float32 */
        return ND_OK;
    if (status == ND_OK && is_constant && is_origin(&constant, input)) {
        *out = nd_calloc(constant.n, sizeof **out);
        for (size_t i = 0; *out != NULL && i < constant.n; i++)
            (*out)[i] = (double)constant.values[i];
        status = *out != NULL ? ND_OK : nd_fail_memory(err);
    }
    free(constant.values);
    return status;
}
