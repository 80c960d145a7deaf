/* A job, run: the session is made, its inputs and outputs are connected, the samples of each probe go through
 * it, and what happens goes into the spool. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/items.h"
#include "core/text/strbuf.h"
#include "devices/agent/agent.h"
#include "devices/agent/confine.h"
#include "devices/agent/runtime/context_binary.h"
#include "devices/agent/spool/spool.h"
#include "devices/agent/stop.h"

static void add_version(struct nd_strbuf *fields, const char *key, const struct nd_context_version *version)
{
    char text[48];
    snprintf(text, sizeof text, "%u.%u.%u", (unsigned int)version->major, (unsigned int)version->minor,
             (unsigned int)version->patch);
    nd_fields_add(fields, key, text);
}

static enum nd_status record_tensor(struct nd_agent *agent, bool is_output, size_t i,
                                    const struct nd_context_tensor *tensor, struct nd_error *err)
{
    char dims[256], scale[64];
    struct nd_strbuf fields = {0};
    nd_fields_add(&fields, "name", tensor->name);
    nd_fields_add_u64(&fields, "data_type", tensor->data_type);
    nd_fields_add(&fields, "dims", nd_shape_format(&tensor->shape, dims, sizeof dims));
    if (tensor->has_scale) {
        snprintf(scale, sizeof scale, "%a %ld", (double)tensor->scale, (long)tensor->offset);
        nd_fields_add(&fields, "scale_offset", scale);
    }
    return nd_fields_append(agent->writer, ND_RECORD_CONTEXT_TENSOR, (uint64_t[]){is_output, i}, 2, &fields,
                            err);
}

static enum nd_status record_info(void *context, const struct nd_context_info *info, struct nd_error *err)
{
    struct nd_agent *agent = context;
    struct nd_strbuf fields = {0};
    nd_fields_add(&fields, "build_id", info->build_id);
    nd_fields_add(&fields, "graph", info->graph);
    nd_fields_add_u64(&fields, "n_graphs", info->n_graphs);
    nd_fields_add_u64(&fields, "backend", info->backend);
    nd_fields_add_u64(&fields, "soc_model", info->soc_model);
    add_version(&fields, "core_api", &info->core_api);
    add_version(&fields, "backend_api", &info->backend_api);
    ND_TRY(nd_fields_append(agent->writer, ND_RECORD_CONTEXT, NULL, 0, &fields, err));
    for (size_t i = 0; i < info->n_inputs; i++)
        ND_TRY(record_tensor(agent, false, i, &info->inputs[i], err));
    for (size_t i = 0; i < info->n_outputs; i++)
        ND_TRY(record_tensor(agent, true, i, &info->outputs[i], err));
    return ND_OK;
}

/* Records what the context binary says that the session made, when the job names one. */
static enum nd_status nd_agent_record_context(struct nd_agent *agent, struct nd_error *err)
{
    const struct nd_agent_job *job = agent->job;
    if (job->context_binary == NULL || job->context_binary[0] == '\0')
        return ND_OK;
    return nd_context_read(job->context_library, job->context_binary, record_info, agent, err);
}

static const size_t max_log_bytes = 8u << 20; /* a provider at its most talkative must not fill the disk */
static const size_t max_profile_bytes = 512u << 20;
static const char provider_profile[] = "qnn-profile.csv"; /* in the agent's own folder */

static void record_log(void *context, int severity, const char *location, const char *message)
{
    struct nd_agent *agent = context;
    size_t n = strlen(message);
    if (atomic_fetch_add(&agent->log_bytes, n) > max_log_bytes)
        return;
    struct nd_strbuf fields = {0};
    nd_fields_add_u64(&fields, "severity", (uint64_t)severity);
    nd_fields_add(&fields, "location", location);
    nd_fields_add(&fields, "message", message);
    /* What cannot be written here fails the next append, which is told. */
    nd_fields_append(agent->writer, ND_RECORD_LOG, NULL, 0, &fields, NULL);
}

static void record_library(void *context, const char *path, const char *build_id)
{
    struct nd_agent *agent = context;
    if (path[0] != '/') /* linux-vdso has no file */
        return;
    struct nd_strbuf fields = {0};
    nd_fields_add(&fields, "path", path);
    nd_fields_add(&fields, "build_id", build_id);
    nd_fields_append(agent->writer, ND_RECORD_LIBRARY, NULL, 0, &fields, NULL);
}

/* Whether the pass in work is the one that another agent began. */
static bool nd_agent_is_resumed_pass(const struct nd_agent *agent)
{
    return agent->resume != NULL && agent->pass == agent->resume->pass;
}

/* Whether the two say the same. */
static bool is_same_record(const struct nd_record *record, const struct nd_strbuf *fields)
{
    return record->payload_bytes == fields->len &&
           (fields->len == 0 || memcmp(record->payload, fields->text, fields->len) == 0);
}

/* Looks for libraries that are not those of before the interruption: a system that was updated meanwhile. */
struct library_check {
    const struct nd_resume_records *before;
    struct nd_strbuf changed;
};

static void check_library(void *context, const char *path, const char *build_id)
{
    struct library_check *check = context;
    for (size_t i = 0; i < check->before->n; i++) {
        char *then_path = nd_fields_get(&check->before->items[i], "path");
        char *then_id = nd_fields_get(&check->before->items[i], "build_id");
        if (then_path == NULL || then_id == NULL)
            check->changed.failed = true;
        else if (strcmp(then_path, path) == 0 && strcmp(then_id, build_id) != 0 && check->changed.len < 200)
            nd_strbuf_printf(&check->changed, "%s'%s'", check->changed.len > 0 ? ", " : "", path);
        ND_FREE_ALL(then_path, then_id);
    }
}

static enum nd_status check_libraries(const struct nd_agent *agent, struct nd_error *err)
{
    struct library_check check = {.before = &agent->resume->libraries};
    nd_runtime_visit_libraries(check_library, &check);
    enum nd_status status = check.changed.failed ? nd_fail_memory(err) : ND_OK;
    if (status == ND_OK && check.changed.len > 0)
        status = nd_fail(err, ND_E_DEVICE_OUTPUT, NULL,
                         "libraries were replaced since the run was interrupted: %s", check.changed.text);
    nd_strbuf_deinit(&check.changed);
    return status;
}

/* Whether the device is one of a plug-in provider, and not the CPU provider alone. */
static bool has_provider(const struct nd_agent_job *job)
{
    return job->provider_name != NULL && job->provider_name[0] != '\0';
}

static enum nd_status create_runtime(struct nd_agent *agent, nd_runtime_log log, int severity,
                                     struct nd_error *err)
{
    const struct nd_agent_job *job = agent->job;
    const struct nd_runtime_options options = {
        .ort_library = job->ort_library,
        .provider_name = has_provider(job) ? job->provider_name : NULL,
        .provider_library = has_provider(job) ? job->provider_library : NULL,
        .log = log,
        .log_context = agent,
        .log_severity = severity,
    };
    return nd_runtime_create(&options, &agent->runtime, err);
}

/* One capture is of one program: another one begins anew. */
static enum nd_status check_program(const struct nd_agent *agent, struct nd_error *err)
{
    const char *library = agent->job->ort_library;
    if (!nd_runtime_starts_program() || agent->resume == NULL)
        return ND_OK;
    ND_FREED char *before = nd_fields_get(&agent->resume->runtime, "program");
    bool is_same = before != NULL && strcmp(before, nd_runtime_program(agent->runtime)) == 0;
    return is_same ? ND_OK
                   : nd_fail(err, ND_E_SPOOL_RESUME, library,
                             "runner '%s' is not the program that began the run", library);
}

static enum nd_status nd_agent_load_runtime(struct nd_agent *agent, struct nd_error *err)
{
    ND_TRY(create_runtime(agent, record_log, (int)agent->job->log_severity, err));
    nd_agent_confine_programs(); /* what had to be started runs, and has not seen the model yet */
    ND_TRY(check_program(agent, err));
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf fields = {0};
    nd_fields_add(&fields, nd_runtime_starts_program() ? "runner" : "version",
                  nd_runtime_version(agent->runtime));
    if (nd_runtime_starts_program())
        nd_fields_add(&fields, "program", nd_runtime_program(agent->runtime));
    else
        nd_fields_add(&fields, "build_info", nd_runtime_build_info(agent->runtime));
    nd_fields_add(&fields, "confined", nd_agent_confined());
    if (agent->resume == NULL)
        return nd_fields_append(agent->writer, ND_RECORD_RUNTIME, NULL, 0, &fields, err);
    if (fields.failed)
        return nd_fail_memory(err);
    if (!is_same_record(&agent->resume->runtime, &fields))
        return nd_fail(err, ND_E_DEVICE_OUTPUT, NULL,
                       "the runtime is %s%s, not the one of before the interruption",
                       nd_runtime_starts_program() ? "" : "ONNX Runtime ", nd_runtime_version(agent->runtime));
    return ND_OK;
}

/* One profile is enough: that of the pass with the most tensors. */
static bool wants_profile(const struct nd_agent *agent)
{
    return agent->pass == 0 && agent->job->profile_prefix[0] != '\0';
}

static bool has_option(const struct nd_agent_job *job, const char *key)
{
    return nd_find_text(job->provider_options, job->n_provider_options, sizeof *job->provider_options, key) !=
           NULL;
}

/* Whether the provider is to write a profile of its own here. Not where the user said himself where to. */
static bool wants_provider_profile(const struct nd_agent *agent)
{
    return wants_profile(agent) && strcmp(agent->job->provider_name, "QNNExecutionProvider") == 0 &&
           !has_option(agent->job, "profiling_file_path");
}

/* The outputs that the pass uses: its tensors, and those that are held against pass 0. */
static size_t list_outputs(const struct nd_agent *agent, const char **names)
{
    const struct nd_agent_job *job = agent->job;
    const struct nd_job_pass *pass = &job->passes[agent->pass];
    size_t n = 0;
    for (size_t e = 0; e < job->n_tensors; e++)
        if (job->tensors[e].pass == agent->pass)
            names[n++] = job->tensors[e].output;
    for (size_t i = 0; agent->pass > 0 && i < pass->n_checks; i++)
        names[n++] = job->tensors[pass->checks[i]].output;
    return n;
}

static enum nd_status try_session(struct nd_agent *agent, struct nd_error *err)
{
    const struct nd_agent_job *job = agent->job;
    size_t n_options = job->n_provider_options;
    ND_FREED struct nd_option_pair *pairs = nd_calloc(n_options + 2 + job->n_config, sizeof *pairs);
    ND_FREED const char **outputs = nd_calloc(job->n_tensors, sizeof *outputs);
    ND_TRY_MEMORY(pairs != NULL && outputs != NULL, err);
    for (size_t i = 0; i < n_options; i++)
        pairs[i] = (struct nd_option_pair){job->provider_options[i].key, job->provider_options[i].value};
    if (wants_provider_profile(agent)) {
        if (!has_option(job, "profiling_level"))
            pairs[n_options++] = (struct nd_option_pair){"profiling_level", "detailed"};
        pairs[n_options++] = (struct nd_option_pair){"profiling_file_path", provider_profile};
    }
    struct nd_option_pair *config = pairs + n_options;
    for (size_t i = 0; i < job->n_config; i++)
        config[i] = (struct nd_option_pair){job->config[i].key, job->config[i].value};
    const struct nd_session_options options = {
        .model_path = job->passes[agent->pass].model,
        .optimisation = (enum nd_optimisation)job->optimisation,
        .n_threads = (int)job->n_threads,
        .provider_options = pairs,
        .n_provider_options = n_options,
        .config = config,
        .n_config = job->n_config,
        .profile_prefix = wants_profile(agent) ? job->profile_prefix : NULL,
        .outputs = outputs,
        .n_outputs = list_outputs(agent, outputs),
    };
    return nd_session_create(agent->runtime, &options, &agent->session, err);
}

/* Of what a runtime says at its most talkative, the lines that tell why it refused a model: its own warnings
 * and errors, and those that a backend reports through it as ordinary text. */
static void record_reason(void *context, int severity, const char *location, const char *message)
{
    static const char *const marks[] = {"<E>", "ERROR", "FAILED", "could not create op", "  Input "};
    bool is_reason = severity >= 2;
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
        is_reason = is_reason || strstr(message, marks[i]) != NULL;
    if (is_reason)
        record_log(context, severity, location, message);
}

/* The reasons are only told at the lowest severity, which would cost every other run dearly: so the refused
 * session is tried once more for them alone. */
static void record_reasons(struct nd_agent *agent)
{
    nd_session_destroy(&agent->session);
    nd_runtime_destroy(&agent->runtime);
    if (create_runtime(agent, record_reason, 0, NULL) == ND_OK)
        try_session(agent, NULL);
    nd_session_destroy(&agent->session);
}

/* The session of the pass in work. When it is refused, what the runtime says of the cause is logged. */
static enum nd_status nd_agent_create_session(struct nd_agent *agent, struct nd_error *err)
{
    if (nd_agent_is_resumed_pass(agent) && wants_provider_profile(agent))
        unlink(provider_profile); /* the provider appends, and what is there may end in half a line */
    enum nd_status status = try_session(agent, err);
    /* Also after a failure: which libraries were in the process is evidence. */
    if (agent->pass == 0 && agent->resume == NULL)
        nd_runtime_visit_libraries(record_library, agent);
    else if (status == ND_OK && nd_agent_is_resumed_pass(agent))
        status = check_libraries(agent, err);
    if (agent->session == NULL && agent->job->log_severity > 0 && !nd_runtime_starts_program())
        record_reasons(agent);
    return status;
}

/* Records node i, or finds it recorded where it was before an interruption. */
static enum nd_status record_node(struct nd_agent *agent, const struct nd_placement *node, size_t i,
                                  bool is_fell_back, struct nd_error *err)
{
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf fields = {0};
    nd_fields_add(&fields, "provider", node->provider);
    nd_fields_add(&fields, "name", node->name);
    nd_fields_add(&fields, "op_type", node->op_type);
    nd_fields_add(&fields, "domain", node->domain);
    if (has_provider(agent->job))
        nd_fields_add_u64(&fields, "subgraph", (uint64_t)node->subgraph + 1);
    if (is_fell_back)
        nd_fields_add_u64(&fields, "fell_back", 1);
    if (!nd_agent_is_resumed_pass(agent) || !agent->resume->has_runs)
        return nd_fields_append(agent->writer, ND_RECORD_NODE, NULL, 0, &fields, err);
    const struct nd_resume_records *before = &agent->resume->nodes;
    if (fields.failed)
        return nd_fail_memory(err);
    if (i >= before->n || !is_same_record(&before->items[i], &fields))
        return nd_fail(err, ND_E_DEVICE_OUTPUT, node->name,
                       "node '%s' (%s) is not placed as it was before the interruption", node->name,
                       node->op_type);
    return ND_OK;
}

static enum nd_status find_fell_back(const struct nd_agent_job *job, const struct nd_placement *placed,
                                     size_t n, bool *is_fell_back, struct nd_error *err)
{
    ND_FREED struct nd_job_node *nodes = nd_calloc(n, sizeof *nodes);
    ND_TRY_MEMORY(nodes != NULL, err);
    for (size_t i = 0; i < n; i++)
        nodes[i] = (struct nd_job_node){placed[i].provider, placed[i].name, placed[i].op_type};
    if (has_provider(job))
        nd_job_find_fell_back(job, nodes, n, is_fell_back);
    return ND_OK;
}

/* The first operators that are no quantisers; of quantisers alone nothing. */
static void name_fell_back(const struct nd_placement *nodes, size_t n, const bool *is_fell_back,
                           char names[256])
{
    enum { MAX_NAMED = 3 };
    size_t n_named = 0, at = 0;
    for (size_t i = 0; i < n; i++) {
        if (!is_fell_back[i] || strstr(nodes[i].op_type, "quantizeLinear") != NULL ||
            strcmp(nodes[i].op_type, "QuantizeLinear") == 0)
            continue;
        if (n_named++ < MAX_NAMED)
            at += (size_t)snprintf(names + at, 256 - at, "%s%.20s '%.50s'", at > 0 ? ", " : "",
                                   nodes[i].op_type, nodes[i].name);
    }
    snprintf(names + at, 256 - at, "%s", n_named > MAX_NAMED ? ", ..." : at == 0 ? "quantisers" : "");
}

/* Records where every node went. ND_E_DEVICE_FALLBACK when one is not on the provider and may not be,
 * ND_E_DEVICE_OUTPUT when it is not where it was before an interruption. Fallback is found by reading placement
 * back; the session's own switch against it changes results. */
static enum nd_status nd_agent_check_placement(struct nd_agent *agent, struct nd_error *err)
{
    const struct nd_agent_job *job = agent->job;
    ND_FREED struct nd_placement *nodes = NULL;
    size_t n = 0, n_fell_back = 0;
    ND_TRY(nd_session_placement(agent->session, &nodes, &n, err));
    ND_FREED bool *is_fell_back = nd_calloc(n, sizeof *is_fell_back);
    ND_TRY(is_fell_back != NULL ? find_fell_back(job, nodes, n, is_fell_back, err) : nd_fail_memory(err));
    for (size_t i = 0; i < n; i++) {
        ND_TRY(record_node(agent, &nodes[i], i, is_fell_back[i], err));
        n_fell_back += is_fell_back[i];
    }
    char names[256] = "";
    name_fell_back(nodes, n, is_fell_back, names);
    if (nd_agent_is_resumed_pass(agent) && agent->resume->has_runs && n != agent->resume->nodes.n)
        return nd_fail(err, ND_E_DEVICE_OUTPUT, NULL,
                       "%zu nodes are placed, and %zu were before the interruption", n, agent->resume->nodes.n);
    if (n_fell_back == 0 || job->is_fallback_allowed)
        return ND_OK;
    if (job->is_untouched && job->log_severity > 0)
        record_reasons(agent);
    /* A host that knows the model says more of them (failure_logs.c). */
    return nd_fail(err, ND_E_DEVICE_FALLBACK, NULL, "%zu nodes do not run on %s: %s", n_fell_back,
                   job->provider_name, names);
}

struct missing_outputs {
    struct nd_agent *agent;
    size_t n;
    char first[300];
    enum nd_status status;
};

static void record_missing(void *context, const char *output, const char *reason)
{
    struct missing_outputs *missing = context;
    struct nd_strbuf fields = {0};
    nd_fields_add(&fields, "output", output);
    nd_fields_add(&fields, "reason", reason);
    enum nd_status status = nd_fields_append(missing->agent->writer, ND_RECORD_MISSING, NULL, 0, &fields, NULL);
    missing->status = missing->status != ND_OK ? missing->status : status;
    if (missing->n++ == 0)
        snprintf(missing->first, sizeof missing->first, "'%.120s' (%.120s)", output, reason);
}

/* Records which outputs the session cannot give; ND_E_RUNNER_TENSORS when there are some. */
static enum nd_status nd_agent_check_missing(struct nd_agent *agent, struct nd_error *err)
{
    struct missing_outputs missing = {.agent = agent};
    nd_session_missing(agent->session, record_missing, &missing);
    if (missing.status != ND_OK)
        return nd_spool_sync(agent->writer, err);
    if (missing.n == 0)
        return ND_OK;
    return nd_fail(err, ND_E_RUNNER_TENSORS, NULL, "the runner cannot give %zu of the tensors: %s%s", missing.n,
                   missing.first, missing.n > 1 ? ", ..." : "");
}

/* What the provider wrote of its own is a help: that it wrote nothing, or too much to keep, is a line of the
 * log and no reason to fail. */
static enum nd_status record_provider_profile(struct nd_agent *agent, struct nd_error *err)
{
    struct nd_error problem = {0};
    ND_FREED void *text = NULL;
    size_t n = 0;
    if (!wants_provider_profile(agent))
        return ND_OK;
    if (nd_file_read(provider_profile, max_profile_bytes, &text, &n, &problem) != ND_OK) {
        record_log(agent, 2, "npudiff", problem.message);
        return ND_OK;
    }
    const struct nd_record record = {.kind = ND_RECORD_PROVIDER_PROFILE, .payload = text, .payload_bytes = n};
    return nd_spool_append(agent->writer, &record, err);
}

/* Records the profile, when this pass has one. */
static enum nd_status nd_agent_record_profile(struct nd_agent *agent, struct nd_error *err)
{
    if (!wants_profile(agent))
        return ND_OK;
    ND_FREED char *path = NULL;
    ND_FREED void *text = NULL;
    size_t text_bytes = 0;
    ND_TRY(nd_session_end_profile(agent->session, &path, err));
    ND_TRY(nd_file_read(path, max_profile_bytes, &text, &text_bytes, err));
    ND_TRY(nd_spool_append(
        agent->writer,
        &(struct nd_record){.kind = ND_RECORD_PROFILE, .payload = text, .payload_bytes = text_bytes}, err));
    return record_provider_profile(agent, err);
}

static void add_truth(void *context, const char *key, const char *value)
{
    nd_fields_add(context, key, value);
}

/* Records what an emulated device did wrong until now; what is recorded last counts. */
static enum nd_status nd_agent_record_truth(struct nd_agent *agent, struct nd_error *err)
{
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf fields = {0};
    enum nd_status status = nd_session_truth(agent->session, add_truth, &fields, err);
    agent->is_remembering = status == ND_OK && fields.len > 0;
    if (agent->is_remembering)
        status = nd_fields_append(agent->writer, ND_RECORD_TRUTH, NULL, 0, &fields, err);
    return status;
}

/* Whether data of shape `data` can feed an input of shape `input`, whose open dimensions are -1. */
static bool is_fitting(const struct nd_shape *input, const struct nd_shape *data)
{
    bool fits = input->rank == data->rank;
    for (int i = 0; fits && i < input->rank; i++)
        fits = input->dims[i] == -1 || input->dims[i] == data->dims[i];
    return fits;
}

static enum nd_status connect_inputs(struct nd_agent *agent, struct nd_error *err)
{
    const struct nd_session_ends ends = nd_session_ends(agent->session);
    agent->target_of_input = nd_calloc(ends.n_inputs, sizeof *agent->target_of_input);
    agent->inputs = nd_calloc(ends.n_inputs, sizeof *agent->inputs);
    ND_TRY_MEMORY(agent->target_of_input != NULL && agent->inputs != NULL, err);
    for (size_t i = 0; i < ends.n_inputs; i++) {
        struct nd_session_io *io = &ends.inputs[i];
        size_t t = 0;
        while (t < agent->job->n_targets && strcmp(agent->job->targets[t].name, io->name) != 0)
            t++;
        if (t == agent->job->n_targets)
            return nd_fail(err, ND_E_DEVICE_OUTPUT, io->name,
                           "the session asks for an input '%s' that has no data", io->name);
        const struct nd_job_target *target = &agent->job->targets[t];
        char have[128], want[128];
        if (io->dtype != target->dtype || !is_fitting(&io->shape, &target->shape))
            return nd_fail(err, ND_E_DEVICE_OUTPUT, io->name,
                           "the session's input '%s' is %s %s; the data is %s %s", io->name,
                           nd_dtype_name(io->dtype), nd_shape_format(&io->shape, want, sizeof want),
                           nd_dtype_name(target->dtype), nd_shape_format(&target->shape, have, sizeof have));
        io->shape = target->shape;
        agent->target_of_input[i] = t;
    }
    return ND_OK;
}

static enum nd_status find_output(struct nd_agent *agent, const struct nd_names *names, size_t tensor,
                                  const struct nd_output_view **out, struct nd_error *err)
{
    const char *name = agent->job->tensors[tensor].output;
    size_t i = nd_names_find(names, name);
    if (i == SIZE_MAX)
        return nd_fail(err, ND_E_DEVICE_OUTPUT, name, "the session has no output '%s'", name);
    bool is_float = agent->job->tensors[tensor].scale > 0;
    if (is_float)
        agent->qvalues[tensor].floats = &agent->outputs[i];
    *out = is_float ? &agent->qvalues[tensor].view : &agent->outputs[i];
    return ND_OK;
}

static bool is_checked_here(const struct nd_agent *agent, size_t tensor)
{
    const struct nd_job_pass *pass = &agent->job->passes[agent->pass];
    if (agent->pass == 0)
        return true;
    for (size_t i = 0; i < pass->n_checks; i++)
        if (pass->checks[i] == tensor)
            return true;
    return false;
}

static enum nd_status connect_outputs(struct nd_agent *agent, struct nd_error *err)
{
    const struct nd_agent_job *job = agent->job;
    ND_CLEANUP(nd_names_deinit) struct nd_names names = {0};
    size_t n = 0;
    const struct nd_session_ends ends = nd_session_ends(agent->session);
    agent->outputs = nd_calloc(ends.n_outputs, sizeof *agent->outputs);
    agent->qvalues = nd_calloc(job->n_tensors, sizeof *agent->qvalues);
    agent->tensors = nd_calloc(job->n_tensors, sizeof *agent->tensors);
    agent->checks = nd_calloc(agent->n_check_ids, sizeof *agent->checks);
    ND_TRY_MEMORY(agent->outputs != NULL && agent->qvalues != NULL && agent->tensors != NULL &&
                      agent->checks != NULL,
                  err);
    /* The session's outputs by name; of two of one name the first. */
    for (size_t i = 0; i < ends.n_outputs; i++) {
        const char *name = ends.outputs[i].name;
        if (nd_names_find(&names, name) == SIZE_MAX && !nd_names_add(&names, name, i))
            return nd_fail_memory(err);
    }
    for (size_t e = 0; e < job->n_tensors; e++)
        if (job->tensors[e].pass == agent->pass)
            ND_TRY(find_output(agent, &names, e, &agent->tensors[n++], err));
    for (size_t i = 0; i < agent->n_check_ids; i++)
        if (is_checked_here(agent, agent->check_ids[i]))
            ND_TRY(find_output(agent, &names, agent->check_ids[i], &agent->checks[i], err));
    return ND_OK;
}

static enum nd_status check_types(const struct nd_agent *agent, struct nd_error *err)
{
    size_t n = 0;
    for (size_t e = 0; e < agent->job->n_tensors; e++) {
        const struct nd_job_tensor *tensor = &agent->job->tensors[e];
        if (tensor->pass != agent->pass)
            continue;
        enum nd_dtype dtype = agent->tensors[n++]->dtype;
        if (tensor->dtype != ND_DTYPE_NONE && dtype != tensor->dtype)
            return nd_fail(err, ND_E_DEVICE_OUTPUT, tensor->output, "output '%s' is %s; the model says %s",
                           tensor->output, nd_dtype_name(dtype), nd_dtype_name(tensor->dtype));
    }
    return ND_OK;
}

/* Passes must not disagree: if what one exposes changed what the model computes, their tensors would not belong
 * together. */
static enum nd_status check_passes(struct nd_agent *agent, size_t probe, size_t sample, struct nd_error *err)
{
    size_t row = sample;
    for (size_t p = 0; p < probe; p++)
        row += agent->job->probes[p].n_samples;
    for (size_t i = 0; i < agent->n_check_ids; i++) {
        if (agent->checks[i] == NULL)
            continue;
        struct nd_digest *first = &agent->first_pass[row * agent->n_check_ids + i];
        struct nd_digest digest = nd_digest_bytes(agent->checks[i]->data, agent->checks[i]->size_bytes);
        const char *name = agent->job->tensors[agent->check_ids[i]].output;
        if (agent->pass == 0)
            *first = digest;
        else if (!nd_digest_equal(*first, digest))
            return nd_fail(err, ND_E_DEVICE_OUTPUT, name,
                           "output '%s' differs between pass 0 and pass %zu: exposing tensors changes results",
                           name, agent->pass);
    }
    return ND_OK;
}

/* What pass 0 gave before an interruption. */
static void restore_first_pass(struct nd_agent *agent, size_t n_samples)
{
    const struct nd_agent_job *job = agent->job;
    for (size_t i = 0; i < agent->n_check_ids; i++) {
        size_t place = 0;
        for (size_t e = 0; e < agent->check_ids[i]; e++)
            place += job->tensors[e].pass == 0;
        for (size_t row = 0; row < n_samples; row++) {
            const char *digests = agent->resume->first_pass[row];
            struct nd_digest *first = &agent->first_pass[row * agent->n_check_ids + i];
            if (digests != NULL)
                memcpy(first, digests + place * sizeof *first, sizeof *first);
        }
    }
}

/* Which tensors later passes check, and room for what pass 0 gives for them, or gave before an interruption.
 * Once for all passes. */
static enum nd_status nd_agent_prepare_checks(struct nd_agent *agent, struct nd_error *err)
{
    const struct nd_agent_job *job = agent->job;
    size_t n_samples = 0, n_cells;
    for (size_t p = 0; p < job->n_probes; p++)
        n_samples += job->probes[p].n_samples;
    agent->check_ids = nd_calloc(job->n_tensors, sizeof *agent->check_ids);
    for (size_t e = 0; agent->check_ids != NULL && e < job->n_tensors; e++) {
        bool is_checked = false;
        for (size_t p = 1; p < job->n_passes; p++)
            for (size_t i = 0; i < job->passes[p].n_checks; i++)
                is_checked = is_checked || job->passes[p].checks[i] == e;
        if (is_checked)
            agent->check_ids[agent->n_check_ids++] = e;
    }
    ND_TRY_MEMORY(agent->check_ids != NULL && nd_size_mul(n_samples, agent->n_check_ids, &n_cells) &&
                      (agent->first_pass = nd_calloc(n_cells, sizeof *agent->first_pass)) != NULL,
                  err);
    if (agent->resume != NULL)
        restore_first_pass(agent, n_samples);
    return ND_OK;
}

static enum nd_status nd_agent_connect(struct nd_agent *agent, struct nd_error *err)
{
    enum nd_status status = connect_inputs(agent, err);
    return status == ND_OK ? connect_outputs(agent, err) : status;
}

/* Frees what nd_agent_connect made, for the next pass. */
static void nd_agent_disconnect(struct nd_agent *agent)
{
    ND_FREE_ALL(agent->target_of_input, agent->inputs);
    ND_FREE_EACH(agent->qvalues, agent->job->n_tensors, .bytes);
    ND_FREE_ALL(agent->outputs, agent->tensors, agent->checks);
    agent->target_of_input = NULL;
    agent->inputs = NULL;
    agent->qvalues = NULL;
    agent->outputs = NULL;
    agent->tensors = NULL;
    agent->checks = NULL;
}

/* Holds the outputs of the last run against what the job says of their types, and, when compare_passes, against
 * pass 0. */
static enum nd_status nd_agent_check_outputs(struct nd_agent *agent, size_t probe, size_t sample,
                                             bool compare_passes, struct nd_error *err)
{
    enum nd_status status = check_types(agent, err);
    return status == ND_OK && compare_passes ? check_passes(agent, probe, sample, err) : status;
}

static enum nd_status enter_stage(struct nd_agent *agent, const char *stage, struct nd_error *err)
{
    struct nd_strbuf fields = {0};
    agent->stage = stage;
    nd_fields_add(&fields, "stage", stage);
    enum nd_status status = nd_fields_append(agent->writer, ND_RECORD_STAGE, NULL, 0, &fields, err);
    nd_stop_at_stage(stage);
    return status;
}

/* Whether that run of the pass to go on with is stored. */
static bool nd_resume_has_run(const struct nd_resume *resume, size_t probe, size_t sample, size_t repeat)
{
    if (!resume->has_runs)
        return false;
    if (probe != resume->probe)
        return probe < resume->probe;
    return sample != resume->sample ? sample < resume->sample : repeat < resume->repeat;
}

/* Whether the run was stored before an interruption. */
static bool is_stored(const struct nd_agent *agent, size_t probe, size_t sample, size_t repeat)
{
    return nd_agent_is_resumed_pass(agent) && nd_resume_has_run(agent->resume, probe, sample, repeat);
}

/* A session that remembers runs what is stored, too, so that what follows comes out as if nothing happened. */
static enum nd_status run_once(struct nd_agent *agent, size_t probe, size_t sample, size_t repeat,
                               struct nd_error *err)
{
    bool is_known = is_stored(agent, probe, sample, repeat);
    if (is_known && !agent->is_remembering)
        return ND_OK;
    if (repeat >= agent->job->n_repeats)
        nd_session_repeat(agent->session);
    uint64_t start_ns = nd_clock_ns();
    ND_TRY(nd_session_run(agent->session, agent->inputs, agent->outputs, err));
    struct nd_store_run run = {.probe = probe,
                               .sample = sample,
                               .repeat = repeat,
                               .latency_ns = nd_clock_ns() - start_ns + (repeat == 0 ? agent->ahead_ns : 0),
                               .views = agent->tensors};
    if (is_known)
        return ND_OK;
    ND_TRY(nd_agent_make_codes(agent, err));
    ND_TRY(nd_agent_check_outputs(agent, probe, sample, repeat == 0, err));
    return nd_store_put(agent->store, &run, err);
}

/* How often the sample was run in the pass to go on with, or will be, as far as its runs say; 0: not at all. */
static size_t nd_resume_n_runs(const struct nd_resume *resume, const struct nd_agent_job *job, size_t probe,
                               size_t sample)
{
    for (size_t p = 0; p < probe; p++)
        sample += job->probes[p].n_samples;
    return resume->n_runs[sample];
}

static void point_at(const struct nd_agent *agent, size_t probe, size_t sample, const void **inputs)
{
    const struct nd_agent_job *job = agent->job;
    for (size_t i = 0; i < nd_session_ends(agent->session).n_inputs; i++) {
        size_t target = agent->target_of_input[i];
        inputs[i] =
            (const char *)job->probes[probe].inputs[target] + sample * job->targets[target].sample_bytes;
    }
}

/* Lets a session that computes on this machine's processors run the next samples of the probe side by side. */
static void look_ahead(struct nd_agent *agent, size_t probe, size_t sample)
{
    enum { MOST_AHEAD = 64 };
    size_t n_inputs = nd_session_ends(agent->session).n_inputs,
           left = agent->job->probes[probe].n_samples - sample;
    size_t n = left < MOST_AHEAD ? left : MOST_AHEAD;
    if (agent->n_ahead > 0 && --agent->n_ahead > 0)
        return;
    agent->ahead_ns = 0;
    if (n < 2 || agent->is_one_by_one || nd_agent_is_resumed_pass(agent))
        return;
    ND_FREED const void **inputs = nd_calloc(n, (n_inputs + 1) * sizeof *inputs);
    if (inputs == NULL)
        return; /* then one after the other */
    for (size_t k = 0; k < n; k++)
        point_at(agent, probe, sample + k, inputs + k * n_inputs);
    uint64_t start_ns = nd_clock_ns();
    agent->n_ahead = nd_session_ahead(agent->session, inputs, n);
    agent->is_one_by_one = agent->n_ahead == 0;
    agent->ahead_ns = agent->n_ahead > 0 ? (nd_clock_ns() - start_ns) / agent->n_ahead : 0;
}

static enum nd_status run_sample(struct nd_agent *agent, size_t probe, size_t sample, struct nd_error *err)
{
    const struct nd_agent_job *job = agent->job;
    enum nd_status status = ND_OK;
    point_at(agent, probe, sample, agent->inputs);
    look_ahead(agent, probe, sample);
    size_t n_runs = nd_job_n_runs(job, probe, sample, false);
    if (nd_agent_is_resumed_pass(agent) && nd_resume_n_runs(agent->resume, job, probe, sample) > n_runs)
        n_runs = nd_resume_n_runs(agent->resume, job, probe, sample);
    for (size_t repeat = 0; status == ND_OK && repeat < n_runs; repeat++) {
        status = run_once(agent, probe, sample, repeat, err);
        bool may_need_more = repeat >= job->n_repeats && repeat + 1 == n_runs && n_runs < ND_RERUN_MAX;
        if (status == ND_OK && may_need_more && !is_stored(agent, probe, sample, repeat))
            status = nd_store_n_runs(agent->store, &n_runs, err);
    }
    if (status != ND_OK)
        nd_error_context(err, "probe '%s', sample %zu", job->probes[probe].name, sample);
    return status;
}

static enum nd_status run_samples(struct nd_agent *agent, struct nd_error *err)
{
    enum nd_status status = nd_store_start(agent->job, agent->pass, agent->writer, &agent->store, err);
    if (status == ND_OK && nd_agent_is_resumed_pass(agent) && agent->resume->has_runs)
        status = nd_store_restore(agent->store, &agent->resume->past, err);
    for (size_t p = 0; status == ND_OK && p < agent->job->n_probes; p++)
        for (size_t s = 0; status == ND_OK && s < agent->job->probes[p].n_samples; s++)
            status = run_sample(agent, p, s, err);
    /* What was computed before a failure is kept. */
    enum nd_status finished = nd_store_finish(&agent->store, status == ND_OK ? err : NULL);
    return status != ND_OK ? status : finished;
}

static enum nd_status run_pass(struct nd_agent *agent, struct nd_error *err)
{
    const struct nd_record record = {.kind = ND_RECORD_PASS, .index = {agent->pass}};
    if (!nd_agent_is_resumed_pass(agent))
        ND_TRY(nd_spool_append(agent->writer, &record, err));
    ND_TRY(enter_stage(agent, "session", err));
    ND_TRY(nd_agent_create_session(agent, err));
    ND_TRY(nd_agent_check_missing(agent, err));
    ND_TRY(enter_stage(agent, "placement", err));
    ND_TRY(nd_agent_check_placement(agent, err));
    ND_TRY(nd_agent_record_context(agent, err));
    ND_TRY(nd_agent_connect(agent, err));
    ND_TRY(nd_agent_record_truth(agent, err)); /* also for an agent that dies on its samples */
    ND_TRY(enter_stage(agent, "run", err));
    ND_TRY(run_samples(agent, err));
    ND_TRY(nd_agent_record_truth(agent, err));
    return nd_agent_record_profile(agent, err);
}

/* Whose spool this is, or that another agent goes on with it. */
static enum nd_status begin(struct nd_agent *agent, struct nd_error *err)
{
    const struct nd_resume *resume = agent->resume;
    if (resume == NULL) {
        const struct nd_record record = {
            .kind = ND_RECORD_JOB, .payload = &agent->job->digest, .payload_bytes = sizeof agent->job->digest};
        return nd_spool_append(agent->writer, &record, err);
    }
    const struct nd_record record = {
        .kind = ND_RECORD_RESUME, .index = {resume->pass, resume->probe, resume->sample, resume->n_before + 1}};
    return nd_spool_append(agent->writer, &record, err);
}

static enum nd_status run_stages(struct nd_agent *agent, struct nd_error *err)
{
    ND_TRY(begin(agent, err));
    ND_TRY(enter_stage(agent, "load", err));
    ND_TRY(nd_agent_prepare_checks(agent, err));
    ND_TRY(nd_agent_load_runtime(agent, err));
    for (agent->pass = agent->resume != NULL ? agent->resume->pass : 0; agent->pass < agent->job->n_passes;
         agent->pass++) {
        enum nd_status status = run_pass(agent, err);
        nd_agent_disconnect(agent);
        nd_session_destroy(&agent->session);
        ND_TRY(status);
    }
    return ND_OK;
}

enum nd_status nd_agent_run(const struct nd_agent_job *job, const struct nd_resume *resume,
                            struct nd_spool_writer *writer, struct nd_error *err)
{
    struct nd_agent agent = {.job = job,
                             .writer = writer,
                             .resume = resume != NULL && !resume->is_fresh ? resume : NULL,
                             .stage = "start"};
    struct nd_error failure = {0};
    enum nd_status status = run_stages(&agent, &failure);
    if (status == ND_OK) {
        status = nd_spool_append(writer, &(struct nd_record){.kind = ND_RECORD_END}, &failure);
    } else {
        struct nd_strbuf fields = {0};
        nd_fields_add(&fields, "stage", agent.stage);
        nd_fields_add_u64(&fields, "code", (uint64_t)failure.id);
        nd_fields_add(&fields, "object", failure.object);
        nd_fields_add(&fields, "message", failure.message);
        nd_fields_append(agent.writer, ND_RECORD_FAILURE, NULL, 0, &fields, NULL);
    }
    enum nd_status synced = nd_spool_sync(writer, status == ND_OK ? &failure : NULL);
    if (status == ND_OK)
        status = synced;
    if (status != ND_OK && err != NULL)
        *err = failure;
    nd_runtime_destroy(&agent.runtime);
    ND_FREE_ALL(agent.check_ids, agent.first_pass);
    return status;
}
