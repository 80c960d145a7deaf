#include "devices/capture_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/text/options.h"
#include "core/tensors/scales.h"
#include "core/text/strbuf.h"
#include "devices/device_options.h"
#include "devices/runner_job.h"
#include "devices/emulator/emulate.h"
#include "model/graph/parts.h"
#include "devices/agent/runtime/runtime.h"

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

static const char *edge_spec(const struct nd_capture_job *capture)
{
    return capture->options->edges != NULL ? capture->options->edges : "all";
}

bool nd_capture_job_is_untouched(const struct nd_capture_job *capture)
{
    return strcmp(edge_spec(capture), "none") == 0;
}

/* With "none" an edge is what an application gets: the graph's own output, not the codes behind it. */
static enum nd_status use_plain_output(const struct nd_model *model, struct nd_edge *edge, struct nd_error *err)
{
    for (size_t i = 0; i < nd_model_n_outputs(model); i++) {
        const struct nd_model_io *output = nd_model_output(model, i);
        if (strcmp(output->name, edge->name) != 0)
            continue;
        if (strcmp(output->name, edge->onnx_name) == 0)
            return ND_OK;
        free(edge->onnx_name);
        nd_quant_deinit(&edge->quant);
        edge->dtype = output->dtype;
        edge->shape = output->shape;
        edge->onnx_name = nd_strdup(output->name);
        return edge->onnx_name != NULL ? ND_OK : nd_fail_memory(err);
    }
    return ND_OK;
}

static enum nd_status choose_edges(struct nd_capture_job *capture, struct nd_error *err)
{
    size_t n = 0;
    enum nd_status status =
        nd_model_select_edges(capture->model, edge_spec(capture), &capture->selected, &n, err);
    if (status != ND_OK)
        return status;
    capture->edges = nd_calloc(n, sizeof *capture->edges);
    capture->pass_of_edge = nd_calloc(n, sizeof *capture->pass_of_edge);
    capture->as_floats = nd_calloc(nd_model_n_edges(capture->model), sizeof *capture->as_floats);
    if (capture->edges == NULL || capture->pass_of_edge == NULL || capture->as_floats == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && i < n; i++) {
        capture->n_edges = i + 1;
        status = nd_edge_copy(nd_model_edge(capture->model, capture->selected[i]), &capture->edges[i], err);
        if (status == ND_OK && nd_capture_job_is_untouched(capture))
            status = use_plain_output(capture->model, &capture->edges[i], err);
    }
    return status;
}

/* What is evaluated here hands out its floats as it computed them. float64 is for float models, the others for
 * quantised ones. */
static enum nd_status suit_evaluated(struct nd_capture_job *capture, struct nd_error *err)
{
    enum nd_device_kind kind = capture->device->kind;
    if (!nd_device_is_evaluated(kind))
        return ND_OK;
    bool is_quantised = nd_model_n_units(capture->model) > 0;
    if (is_quantised != (kind != ND_DEVICE_FLOAT64))
        return nd_fail(err, ND_E_DEVICE_UNKNOWN, nd_model_path(capture->model),
                       "device '%s' is for %s models, and '%s' is %s", capture->device->label,
                       is_quantised ? "float" : "quantised", nd_model_path(capture->model),
                       is_quantised ? "quantised" : "not");
    for (size_t e = 0; e < capture->n_edges; e++)
        if (nd_dtype_is_float(capture->edges[e].dtype))
            capture->edges[e].dtype = ND_DTYPE_F64;
    return ND_OK;
}

/* Whether the model has what the profile names, before anything runs. */
static enum nd_status check_profile(const struct nd_capture_job *capture, struct nd_error *err)
{
    struct nd_emulation emulation;
    if (capture->device->kind != ND_DEVICE_EMULATED)
        return ND_OK;
    enum nd_status status = nd_emulation_parse(capture->device->option_values[0], &emulation, err);
    if (status != ND_OK)
        return status;
    status = nd_emulation_check(&emulation, capture->model, err);
    nd_emulation_deinit(&emulation);
    return status;
}

static bool add_option(struct nd_job *job, const char *key, const char *value)
{
    struct nd_job_pair *pair = &job->provider_options[job->n_provider_options++];
    pair->key = nd_strdup(key);
    pair->value = nd_strdup(value);
    return pair->key != NULL && pair->value != NULL;
}

/* Options of ONNX Runtime's session, such as ep.context_enable, by their own prefixes; all others are the
 * provider's. */
static bool add_device_option(struct nd_job *job, const char *key, const char *value)
{
    if (strncmp(key, "ep.", 3) != 0 && strncmp(key, "session.", 8) != 0)
        return add_option(job, key, value);
    struct nd_job_pair *pair = &job->config[job->n_config++];
    pair->key = nd_strdup(key);
    pair->value = nd_strdup(value);
    return pair->key != NULL && pair->value != NULL;
}

/* The profile itself, without the file it came from, and what else an emulated device has to know: the session
 * sees a part of the model, whose edges go by the names of their tensors. */
static bool fill_emulated(struct nd_capture_job *capture)
{
    char repeats[24];
    snprintf(repeats, sizeof repeats, "%llu", (unsigned long long)capture->job.n_repeats);
    bool is_whole = add_option(&capture->job, "profile", capture->device->option_values[0]) &&
                    add_option(&capture->job, "repeats", repeats);
    for (size_t e = 0; is_whole && e < nd_model_n_edges(capture->model); e++) {
        const struct nd_edge *edge = nd_model_edge(capture->model, e);
        struct nd_strbuf key = {0};
        nd_strbuf_printf(&key, "edge.%s", edge->onnx_name);
        char *text = nd_strbuf_take(&key);
        is_whole = text != NULL && add_option(&capture->job, text, edge->name);
        free(text);
    }
    return is_whole;
}

/* Its options are a part of the job that it is told. */
static bool fill_runner(struct nd_capture_job *capture)
{
    char *text = nd_runner_job_text(capture);
    bool is_whole = text != NULL && add_option(&capture->job, "job", text);
    free(text);
    return is_whole;
}

static enum nd_status fill_options(struct nd_capture_job *capture, struct nd_error *err)
{
    const struct nd_device *device = capture->device;
    const struct nd_capture_options *options = capture->options;
    struct nd_job *job = &capture->job;
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
    bool is_runner = device->kind == ND_DEVICE_EXEC;
    size_t n_options = is_emulated ? nd_model_n_edges(capture->model) + 2 : device->n_options + 1;
    job->provider_options = nd_calloc(n_options, sizeof *job->provider_options);
    job->config = nd_calloc(device->n_options, sizeof *job->config);
    bool is_whole = job->model_sha256 != NULL && job->ort_library != NULL && job->provider_name != NULL &&
                    job->provider_library != NULL && job->profile_prefix != NULL &&
                    job->provider_options != NULL && job->config != NULL;
    for (size_t i = 0; is_whole && i < device->n_options && !is_emulated && !is_runner; i++)
        is_whole = add_device_option(job, device->option_keys[i], device->option_values[i]);
    if (is_whole && is_emulated)
        is_whole = fill_emulated(capture);
    if (is_whole && is_runner)
        is_whole = fill_runner(capture);
    return is_whole ? ND_OK : nd_fail_memory(err);
}

static enum nd_status fill_io_nodes(struct nd_capture_job *capture, struct nd_error *err)
{
    struct nd_job *job = &capture->job;
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
    struct nd_job *job = &capture->job;
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
        enum nd_status status =
            nd_shape_size_bytes(&input->shape, input->dtype, &job->targets[i].sample_bytes, err);
        if (status != ND_OK)
            return status;
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

/* One pass for everything, or one for each edge; how many. Placement, latencies and profile are those of pass
 * 0: so it is that of the last edge, which holds most of the model. The others follow in graph order: the first
 * that is refused is the shortest. What an emulated device tells of itself counts from its last session, which
 * therefore is one more that sees all edges and records none. */
static size_t spread_edges(struct nd_capture_job *capture)
{
    size_t n = capture->n_edges;
    if (!capture->options->prefixes || n < 2)
        return 1;
    for (size_t e = 0; e < n; e++)
        capture->pass_of_edge[e] = (e + 1) % n;
    return capture->device->kind == ND_DEVICE_EMULATED ? n + 1 : n;
}

enum nd_status nd_capture_job_init(struct nd_capture_job *capture, struct nd_error *err)
{
    enum nd_status status = choose_edges(capture, err);
    if (status == ND_OK)
        status = suit_evaluated(capture, err);
    if (status == ND_OK)
        status = check_profile(capture, err);
    if (status == ND_OK)
        status = fill_options(capture, err);
    if (status == ND_OK)
        status = fill_io_nodes(capture, err);
    if (status == ND_OK)
        status = fill_probes(capture, err);
    return status == ND_OK ? nd_capture_job_set_passes(capture, spread_edges(capture), NULL, err) : status;
}

void nd_capture_job_deinit(struct nd_capture_job *capture)
{
    for (size_t i = 0; i < capture->n_edges; i++)
        nd_edge_deinit(&capture->edges[i]);
    free(capture->edges);
    free(capture->selected);
    free(capture->pass_of_edge);
    free(capture->as_floats);
    free(capture->moved);
    free(capture->left_out);
    nd_job_deinit(&capture->job);
}
