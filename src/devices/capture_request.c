/* What an agent is asked for: the sessions of a capture, which file each reads, and what it exposes. */
#include "devices/launch.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/documents/json_out.h"
#include "core/files/file.h"
#include "core/items.h"
#include "core/tensors/scales.h"
#include "core/text/strbuf.h"
#include "devices/agent/runtime/runtime.h"
#include "devices/emulator/emulate.h"
#include "model/graph/parts.h"
#include "model/rewrite/native.h"
#include "npudiff/devices/device.h"

static json_t *dims_of(const struct nd_shape *shape)
{
    if (shape->rank < 0)
        return json_null();
    json_t *dims = json_array();
    for (int d = 0; d < shape->rank; d++)
        nd_tree_append(dims, json_integer(shape->dims[d]));
    return dims;
}

static json_t *describe(const char *name, enum nd_dtype dtype, const struct nd_shape *shape)
{
    return json_pack("{s:s, s:s, s:o}", "name", name, "type", nd_dtype_name(dtype), "shape", dims_of(shape));
}

static json_t *describe_inputs(const struct nd_model *model)
{
    json_t *list = json_array();
    for (size_t i = 0; i < nd_model_n_inputs(model); i++) {
        const struct nd_model_io *input = nd_model_input(model, i);
        nd_tree_append(list, describe(input->name, input->dtype, &input->shape));
    }
    return list;
}

/* `name` is that of the tensor in the file, `label` what npudiff calls it. */
static json_t *describe_tensor(const struct nd_tensor *tensor)
{
    json_t *item = describe(tensor->onnx_name, tensor->dtype, &tensor->shape);
    json_t *scales = json_array(), *zero_points = json_array();
    for (size_t i = 0; i < tensor->quant.n; i++) {
        nd_tree_append(scales, json_real((double)tensor->quant.scale[i]));
        nd_tree_append(zero_points, json_integer(tensor->quant.zero_point[i]));
    }
    nd_tree_set(item, "label", json_string(tensor->name));
    nd_tree_set(item, "is_output", json_boolean(tensor->is_model_output));
    nd_tree_set(item, "scale", scales);
    nd_tree_set(item, "zero_point", zero_points);
    nd_tree_set(item, "axis", tensor->quant.n > 1 ? json_integer(tensor->quant.axis) : json_null());
    return item;
}

static json_t *describe_tensors(const struct nd_capture_job *capture)
{
    json_t *list = json_array();
    for (size_t e = 0; e < capture->n_tensors; e++)
        nd_tree_append(list, describe_tensor(&capture->tensors[e]));
    return list;
}

static json_t *describe_probes(const struct nd_capture_job *capture)
{
    json_t *list = json_array();
    for (size_t p = 0; p < capture->n_probes; p++)
        nd_tree_append(list, json_pack("{s:s, s:I}", "name", capture->probes[p]->name, "samples",
                                       (json_int_t)capture->probes[p]->n_samples));
    return list;
}

/* {"inputs", "tensors", "probes", "repeats", "threads", "rounds_off_grid", "options"} of the capture, whose
 * tensors and number of repeats are known, in new memory; NULL when memory is out. The agent adds the model,
 * and which of the tensors the session is asked for. */
static char *nd_runner_job_text(const struct nd_capture_job *capture)
{
    const struct nd_device *device = capture->device;
    bool rounds = false;
    json_t *options = json_object();
    for (size_t i = 0; i < device->n_options; i++)
        if (strcmp(device->option_keys[i], ND_OFF_GRID_OPTION) == 0)
            rounds = true;
        else
            nd_tree_set(options, device->option_keys[i], json_string(device->option_values[i]));
    json_auto_t *job =
        json_pack("{s:o, s:o, s:o, s:I, s:i, s:b, s:o}", "inputs", describe_inputs(capture->model), "tensors",
                  describe_tensors(capture), "probes", describe_probes(capture), "repeats",
                  (json_int_t)capture->job.n_repeats, "threads", device->n_threads, "rounds_off_grid", rounds,
                  "options", options);
    return nd_json_dumps(job, JSON_COMPACT | JSON_REAL_PRECISION(17));
}

void nd_capture_job_free_passes(struct nd_agent_job *job)
{
    ND_FREE_BOTH(job->passes, job->n_passes, .model, .checks);
    ND_FREE_EACH(job->tensors, job->n_tensors, .output);
    job->passes = NULL;
    job->n_passes = 0;
    job->tensors = NULL;
    job->n_tensors = 0;
}

/* ---- tensors that are recorded through floats ---- */

enum nd_status nd_capture_job_tensor(const struct nd_capture_job *capture, const struct nd_tensor *tensor,
                                     size_t index, struct nd_job_tensor *out, struct nd_error *err)
{
    struct nd_dequantised floats = {.tensor = tensor->onnx_name};
    struct nd_job_tensor made = {.dtype = tensor->dtype};
    if (capture->as_floats[index] && nd_model_find_dequantised(capture->model, index, &floats)) {
        made.scale = tensor->quant.scale[0];
        made.zero_point = tensor->quant.zero_point[0];
    }
    made.output = nd_strdup(floats.tensor);
    ND_TRY_MEMORY(made.output != NULL, err);
    *out = made;
    return ND_OK;
}

/* ---- models and passes ---- */

/* The file that a session reads: the model itself, or a copy that exposes these tensors. Providers take no
 * model whose shapes are open, and tell of nodes by their names: where dimensions were set, or a node has no
 * name, the untouched model is a copy, too. */
static enum nd_status make_model(const struct nd_capture_job *capture, const char *name, const size_t *tensors,
                                 size_t n_tensors, char **path, struct nd_error *err)
{
    const char *original = nd_model_path(capture->model);
    bool is_untouched = nd_capture_job_is_untouched(capture);
    if (is_untouched && !nd_model_needs_copy(capture->model)) {
        *path = realpath(original, NULL); /* the agent works in another folder */
        return *path != NULL
                   ? ND_OK
                   : nd_fail(err, ND_E_FILE_OPEN, original, "cannot find '%s': %s", original, strerror(errno));
    }
    *path = nd_path_join(capture->folder, name);
    ND_TRY_MEMORY(*path != NULL, err);
    return is_untouched
               ? nd_model_write_whole(capture->model, *path, err)
               : nd_model_write_shown(capture->model, tensors, n_tensors, capture->as_floats, *path, err);
}

static bool records_any(const struct nd_capture_job *capture, size_t p)
{
    for (size_t e = 0; e < capture->n_tensors; e++)
        if (capture->pass_of_tensor[e] == p)
            return true;
    return false;
}

static bool is_checked(const struct nd_job_pass *pass, size_t tensor)
{
    for (size_t i = 0; i < pass->n_checks; i++)
        if (pass->checks[i] == tensor)
            return true;
    return false;
}

static enum nd_status make_pass(struct nd_capture_job *capture, size_t p, const struct nd_planned_pass *planned,
                                struct nd_error *err)
{
    struct nd_job_pass *pass = &capture->job.passes[p];
    bool exposes_all = !records_any(capture, p);
    ND_FREED size_t *exposed = nd_calloc(capture->n_tensors, sizeof *exposed);
    pass->checks = nd_calloc(planned != NULL ? planned->n_checks : 0, sizeof *pass->checks);
    ND_TRY_MEMORY(exposed != NULL && pass->checks != NULL, err);
    size_t n_exposed = 0;
    for (size_t i = 0; planned != NULL && i < planned->n_checks; i++)
        pass->checks[pass->n_checks++] = planned->checks[i];
    for (size_t e = 0; e < capture->n_tensors; e++)
        if (is_checked(pass, e) || exposes_all || capture->pass_of_tensor[e] == p)
            exposed[n_exposed++] = capture->selected[e];
    char name[32];
    snprintf(name, sizeof name, "pass%zu.onnx", p);
    return make_model(capture, name, exposed, n_exposed, &pass->model, err);
}

enum nd_status nd_capture_job_set_passes(struct nd_capture_job *capture, size_t n_passes,
                                         const struct nd_planned_pass *planned, struct nd_error *err)
{
    struct nd_agent_job *job = &capture->job;
    nd_capture_job_free_passes(job);
    job->passes = nd_calloc(n_passes, sizeof *job->passes);
    job->tensors = nd_calloc(capture->n_tensors, sizeof *job->tensors);
    enum nd_status status = job->passes != NULL && job->tensors != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t p = 0; status == ND_OK && p < n_passes; p++) {
        job->n_passes = p + 1;
        status = make_pass(capture, p, planned != NULL ? &planned[p] : NULL, err);
    }
    for (size_t e = 0; status == ND_OK && e < capture->n_tensors; e++) {
        job->n_tensors = e + 1;
        status =
            nd_capture_job_tensor(capture, &capture->tensors[e], capture->selected[e], &job->tensors[e], err);
        job->tensors[e].pass = capture->pass_of_tensor[e];
    }
    return status;
}

enum nd_status nd_capture_job_trial(const struct nd_capture_job *capture, const size_t *tensors, size_t n,
                                    struct nd_agent_job *trial, struct nd_error *err)
{
    ND_CLEANUP(nd_capture_job_free_passes)
    struct nd_agent_job job = capture->job; /* shares everything but its pass */
    job.n_probes = 0;
    job.tensors = NULL;
    job.n_tensors = 0;
    job.n_passes = 1;
    job.passes = nd_calloc(1, sizeof *job.passes);
    ND_TRY_MEMORY(job.passes != NULL, err);
    ND_TRY(make_model(capture, "trial.onnx", tensors, n, &job.passes[0].model, err));
    return ND_GIVE(trial, job);
}

void nd_capture_options_init_sized(struct nd_capture_options *options, size_t struct_size)
{
    const struct nd_capture_options own = {
        .n_repeats = 1,
        .deflate_level = 1,
        .log_severity = 2,
        .time_limit_s = 3600,
        .stall_limit_s = 600,
        .link_limit_s = 60,
        .memory_limit_bytes = (size_t)8 << 30,
    };
    nd_options_write(options, struct_size, &own, sizeof own);
}

static const char *tensor_spec(const struct nd_capture_job *capture)
{
    return capture->options->tensors != NULL ? capture->options->tensors : "all";
}

bool nd_capture_job_is_untouched(const struct nd_capture_job *capture)
{
    return strcmp(tensor_spec(capture), "none") == 0;
}

/* With "none" a tensor is what applications get: the graph's own output, not the quantised values behind it. */
static enum nd_status use_plain_output(const struct nd_model *model, struct nd_tensor *tensor,
                                       struct nd_error *err)
{
    for (size_t i = 0; i < nd_model_n_outputs(model); i++) {
        const struct nd_model_io *output = nd_model_output(model, i);
        if (strcmp(output->name, tensor->name) != 0)
            continue;
        if (strcmp(output->name, tensor->onnx_name) == 0)
            return ND_OK;
        free(tensor->onnx_name);
        nd_quant_deinit(&tensor->quant);
        tensor->dtype = output->dtype;
        tensor->shape = output->shape;
        tensor->onnx_name = nd_strdup(output->name);
        return tensor->onnx_name != NULL ? ND_OK : nd_fail_memory(err);
    }
    return ND_OK;
}

static enum nd_status choose_tensors(struct nd_capture_job *capture, struct nd_error *err)
{
    size_t n = 0;
    ND_TRY(nd_model_select_tensors(capture->model, tensor_spec(capture), &capture->selected, &n, err));
    capture->tensors = nd_calloc(n, sizeof *capture->tensors);
    capture->pass_of_tensor = nd_calloc(n, sizeof *capture->pass_of_tensor);
    capture->as_floats = nd_calloc(nd_model_n_tensors(capture->model), sizeof *capture->as_floats);
    ND_TRY_MEMORY(capture->tensors != NULL && capture->pass_of_tensor != NULL && capture->as_floats != NULL,
                  err);
    for (size_t i = 0; i < n; i++) {
        capture->n_tensors = i + 1;
        ND_TRY(
            nd_tensor_copy(nd_model_tensor(capture->model, capture->selected[i]), &capture->tensors[i], err));
        if (nd_capture_job_is_untouched(capture))
            ND_TRY(use_plain_output(capture->model, &capture->tensors[i], err));
    }
    return ND_OK;
}

enum nd_status nd_device_suits_model(const struct nd_device *device, const struct nd_model *model,
                                     struct nd_error *err)
{
    bool is_quantised = nd_model_n_layers(model) > 0;
    if (!nd_device_is_evaluated(device->kind) || is_quantised == (device->kind != ND_DEVICE_FLOAT64))
        return ND_OK;
    return nd_fail(err, ND_E_DEVICE_UNKNOWN, nd_model_path(model),
                   "device '%s' is for %s models, and '%s' is %s", device->label,
                   is_quantised ? "float" : "quantised", nd_model_path(model),
                   is_quantised ? "quantised" : "not");
}

/* References hand out their floats as they computed them. */
static enum nd_status suit_evaluated(struct nd_capture_job *capture, struct nd_error *err)
{
    enum nd_device_kind kind = capture->device->kind;
    ND_TRY(nd_device_suits_model(capture->device, capture->model, err));
    for (size_t e = 0; e < capture->n_tensors && nd_device_is_evaluated(kind) && kind != ND_DEVICE_TWIN; e++)
        if (nd_dtype_is_float(capture->tensors[e].dtype))
            capture->tensors[e].dtype = ND_DTYPE_F64;
    return ND_OK;
}

/* Whether the model has what the profile names, before anything runs. */
static enum nd_status check_profile(const struct nd_capture_job *capture, struct nd_error *err)
{
    ND_CLEANUP(nd_emulation_deinit) struct nd_emulation emulation = {0};
    if (capture->device->kind != ND_DEVICE_EMULATED)
        return ND_OK;
    ND_TRY(nd_emulation_parse(capture->device->option_values[0], &emulation, err));
    return nd_emulation_check(&emulation, capture->model, err);
}

static bool add_option(struct nd_agent_job *job, const char *key, const char *value)
{
    struct nd_agent_option *pair = &job->provider_options[job->n_provider_options++];
    pair->key = nd_strdup(key);
    pair->value = nd_strdup(value);
    return pair->key != NULL && pair->value != NULL;
}

/* Options of ONNX Runtime's session, such as ep.context_enable, by their own prefixes; all others are the
 * provider's. */
static bool add_device_option(struct nd_agent_job *job, const char *key, const char *value)
{
    if (strncmp(key, "ep.", 3) != 0 && strncmp(key, "session.", 8) != 0)
        return add_option(job, key, value);
    struct nd_agent_option *pair = &job->config[job->n_config++];
    pair->key = nd_strdup(key);
    pair->value = nd_strdup(value);
    return pair->key != NULL && pair->value != NULL;
}

/* The profile itself, without the file it came from, and what else an emulated device has to know: the session
 * sees a part of the model, whose tensors go by the names of their tensors. */
static bool fill_names(struct nd_capture_job *capture)
{
    bool is_whole = true;
    for (size_t e = 0; is_whole && e < nd_model_n_tensors(capture->model); e++) {
        const struct nd_tensor *tensor = nd_model_tensor(capture->model, e);
        char *text = nd_text("edge.%s", tensor->onnx_name);
        is_whole = text != NULL && add_option(&capture->job, text, tensor->name);
        free(text);
    }
    return is_whole;
}

static bool fill_emulated(struct nd_capture_job *capture)
{
    char repeats[24];
    snprintf(repeats, sizeof repeats, "%llu", (unsigned long long)capture->job.n_repeats);
    return add_option(&capture->job, "profile", capture->device->option_values[0]) &&
           add_option(&capture->job, "repeats", repeats) && fill_names(capture);
}

/* Its options are a part of the job that it is told. */
static bool fill_runner(struct nd_capture_job *capture)
{
    ND_FREED char *text = nd_runner_job_text(capture);
    return text != NULL && add_option(&capture->job, "job", text);
}

static enum nd_status fill_options(struct nd_capture_job *capture, struct nd_error *err)
{
    const struct nd_device *device = capture->device;
    const struct nd_capture_options *options = capture->options;
    struct nd_agent_job *job = &capture->job;
    bool is_npu = nd_device_is_npu(device->kind);
    enum nd_optimisation optimisation = ND_OPTIMISATION_DISABLE;
    nd_optimisation_from_name(device->optimisation,
                              &optimisation); /* the device was parsed with a word that exists */
    /* A machine elsewhere that cannot be used leaves the device without libraries; nothing runs then. */
    const struct nd_runtime_info *runtime = &device->runtime;
    job->model_sha256 = nd_strdup(nd_model_sha256(capture->model));
    job->ort_library = nd_strdup(runtime->ort_library != NULL ? runtime->ort_library : "");
    job->provider_name = nd_strdup(is_npu ? "QNNExecutionProvider" : "");
    job->provider_library =
        nd_strdup(is_npu && runtime->provider_library != NULL ? runtime->provider_library : "");
    job->profile_prefix = nd_strdup(options->profile ? "profile" : ""); /* in the agent's own folder */
    job->optimisation = (uint64_t)optimisation;
    job->n_threads = (uint64_t)device->n_threads;
    job->n_repeats = options->n_repeats > 0 ? options->n_repeats : 1;
    job->deflate_level = (uint64_t)options->deflate_level;
    job->store = options->store_digests_only ? ND_STORE_DIGEST : ND_STORE_FULL;
    job->log_severity = (uint64_t)options->log_severity;
    job->is_fallback_allowed = options->allow_fallback;
    job->is_untouched = nd_capture_job_is_untouched(capture);
    bool is_emulated = device->kind == ND_DEVICE_EMULATED;
    bool is_runner = device->kind == ND_DEVICE_EXEC, is_twin = device->kind == ND_DEVICE_TWIN;
    size_t n_options =
        (is_emulated || is_twin ? nd_model_n_tensors(capture->model) + 2 : 0) + device->n_options + 1;
    job->provider_options = nd_calloc(n_options, sizeof *job->provider_options);
    job->config = nd_calloc(device->n_options, sizeof *job->config);
    bool is_whole = job->model_sha256 != NULL && job->ort_library != NULL && job->provider_name != NULL &&
                    job->provider_library != NULL && job->profile_prefix != NULL &&
                    job->provider_options != NULL && job->config != NULL;
    for (size_t i = 0; is_whole && i < device->n_options && !is_emulated && !is_runner; i++)
        is_whole = add_device_option(job, device->option_keys[i], device->option_values[i]);
    if (is_whole && is_emulated)
        is_whole = fill_emulated(capture);
    if (is_whole && is_twin)
        is_whole = fill_names(capture);
    if (is_whole && is_runner)
        is_whole = fill_runner(capture);
    return is_whole ? ND_OK : nd_fail_memory(err);
}

static enum nd_status fill_io_nodes(struct nd_capture_job *capture, struct nd_error *err)
{
    struct nd_agent_job *job = &capture->job;
    size_t n_nodes = nd_model_n_nodes(capture->model);
    job->io_nodes = nd_calloc(n_nodes, sizeof *job->io_nodes);
    bool is_whole = job->io_nodes != NULL;
    for (size_t i = 0; is_whole && i < n_nodes; i++) {
        const struct nd_model_node *node = nd_model_node(capture->model, i);
        if (!node->is_io_quantisation)
            continue;
        is_whole = (job->io_nodes[job->n_io_nodes++] = nd_strdup(node->name)) != NULL;
        if (is_whole && !job->is_untouched && nd_model_dequantises_before_end(capture->model, i))
            is_whole = nd_job_add_float_node(job, node->name);
    }
    return is_whole ? ND_OK : nd_fail_memory(err);
}

static enum nd_status fill_probes(struct nd_capture_job *capture, struct nd_error *err)
{
    struct nd_agent_job *job = &capture->job;
    size_t n_targets = nd_model_n_inputs(capture->model);
    job->targets = nd_calloc(n_targets, sizeof *job->targets);
    job->probes = nd_calloc(capture->n_probes, sizeof *job->probes);
    bool is_whole = job->targets != NULL && job->probes != NULL;
    for (size_t i = 0; is_whole && i < n_targets; i++) {
        const struct nd_model_io *input = nd_model_input(capture->model, i);
        job->n_targets = i + 1;
        job->targets[i] = (struct nd_job_target){
            .name = nd_strdup(input->name), .dtype = input->dtype, .shape = input->shape};
        is_whole = job->targets[i].name != NULL;
        ND_TRY(nd_shape_size_bytes(&input->shape, input->dtype, &job->targets[i].sample_bytes, err));
    }
    for (size_t p = 0; is_whole && p < capture->n_probes; p++) {
        const struct nd_probe *probe = capture->probes[p];
        struct nd_job_probe *copy = &job->probes[p];
        job->n_probes = p + 1;
        *copy = (struct nd_job_probe){.name = nd_strdup(probe->name),
                                      .n_samples = probe->n_samples,
                                      .inputs = nd_calloc(n_targets, sizeof *copy->inputs)};
        is_whole = copy->name != NULL && copy->inputs != NULL;
        for (size_t i = 0; is_whole && i < n_targets; i++)
            copy->inputs[i] = probe->inputs[i].data;
    }
    if (capture->options->n_repeats == 0)
        nd_job_plan_reruns(job);
    return is_whole ? ND_OK : nd_fail_memory(err);
}

size_t nd_capture_job_n_samples(const struct nd_capture_job *capture)
{
    size_t n = 0;
    for (size_t p = 0; p < capture->n_probes; p++)
        n += capture->probes[p]->n_samples;
    return n;
}

/* One pass for everything, or one for each tensor; how many. Placement, latencies and profile are those of pass
 * 0: so it is that of the last tensor, which holds most of the model. The others follow in graph order: the
 * first that is refused is the shortest. What an emulated device tells of itself counts from its last session,
 * which therefore is one more that sees all tensors and records none. */
static size_t spread_tensors(struct nd_capture_job *capture)
{
    size_t n = capture->n_tensors;
    if (!capture->options->prefixes || n < 2)
        return 1;
    for (size_t e = 0; e < n; e++)
        capture->pass_of_tensor[e] = (e + 1) % n;
    return capture->device->kind == ND_DEVICE_EMULATED ? n + 1 : n;
}

enum nd_status nd_capture_job_init(struct nd_capture_job *capture, struct nd_error *err)
{
    ND_TRY(choose_tensors(capture, err));
    ND_TRY(suit_evaluated(capture, err));
    ND_TRY(check_profile(capture, err));
    ND_TRY(fill_options(capture, err));
    ND_TRY(fill_io_nodes(capture, err));
    ND_TRY(fill_probes(capture, err));
    return nd_capture_job_set_passes(capture, spread_tensors(capture), NULL, err);
}

void nd_capture_job_deinit(struct nd_capture_job *capture)
{
    ND_DEINIT_EACH(nd_tensor_deinit, capture->tensors, capture->n_tensors);
    ND_FREE_ALL(capture->selected, capture->pass_of_tensor, capture->as_floats, capture->moved,
                capture->left_out, capture->untouched, capture->untouched_why);
    nd_job_deinit(&capture->job);
}
