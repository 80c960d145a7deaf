#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "devices/agent/agent.h"
#include "devices/agent/confine.h"
#include "devices/agent/spool/record_fields.h"

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

bool nd_agent_is_resumed_pass(const struct nd_agent *agent)
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
        free(then_path);
        free(then_id);
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
static bool has_provider(const struct nd_job *job)
{
    return job->provider_name != NULL && job->provider_name[0] != '\0';
}

static enum nd_status create_runtime(struct nd_agent *agent, nd_runtime_log log, int severity,
                                     struct nd_error *err)
{
    const struct nd_job *job = agent->job;
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
    char *before = nd_fields_get(&agent->resume->runtime, "program");
    bool is_same = before != NULL && strcmp(before, nd_runtime_program(agent->runtime)) == 0;
    free(before);
    return is_same ? ND_OK
                   : nd_fail(err, ND_E_SPOOL_RESUME, library,
                             "runner '%s' is not the program that began the run", library);
}

enum nd_status nd_agent_load_runtime(struct nd_agent *agent, struct nd_error *err)
{
    enum nd_status status = create_runtime(agent, record_log, (int)agent->job->log_severity, err);
    nd_agent_confine_programs(); /* what had to be started runs, and has not seen the model yet */
    if (status == ND_OK)
        status = check_program(agent, err);
    if (status != ND_OK)
        return status;
    struct nd_strbuf fields = {0};
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
        status = nd_fail_memory(err);
    else if (!is_same_record(&agent->resume->runtime, &fields))
        status = nd_fail(
            err, ND_E_DEVICE_OUTPUT, NULL, "the runtime is %s%s, not the one of before the interruption",
            nd_runtime_starts_program() ? "" : "ONNX Runtime ", nd_runtime_version(agent->runtime));
    nd_strbuf_deinit(&fields);
    return status;
}

/* One profile is enough: that of the pass with the most tensors. */
static bool wants_profile(const struct nd_agent *agent)
{
    return agent->pass == 0 && agent->job->profile_prefix[0] != '\0';
}

static bool has_option(const struct nd_job *job, const char *key)
{
    for (size_t i = 0; i < job->n_provider_options; i++)
        if (strcmp(job->provider_options[i].key, key) == 0)
            return true;
    return false;
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
    const struct nd_job *job = agent->job;
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
    const struct nd_job *job = agent->job;
    size_t n_options = job->n_provider_options;
    struct nd_option_pair *pairs = nd_calloc(n_options + 2 + job->n_config, sizeof *pairs);
    const char **outputs = nd_calloc(job->n_tensors, sizeof *outputs);
    if (pairs == NULL || outputs == NULL) {
        free(pairs);
        free(outputs);
        return nd_fail_memory(err);
    }
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
    enum nd_status status = nd_session_create(agent->runtime, &options, &agent->session, err);
    free(pairs);
    free(outputs);
    return status;
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
    nd_runtime_destroy(&agent->runtime);
    if (create_runtime(agent, record_reason, 0, NULL) == ND_OK)
        try_session(agent, NULL);
    nd_session_destroy(&agent->session);
}

enum nd_status nd_agent_create_session(struct nd_agent *agent, struct nd_error *err)
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
                                  struct nd_error *err)
{
    struct nd_strbuf fields = {0};
    nd_fields_add(&fields, "provider", node->provider);
    nd_fields_add(&fields, "name", node->name);
    nd_fields_add(&fields, "op_type", node->op_type);
    nd_fields_add(&fields, "domain", node->domain);
    if (has_provider(agent->job))
        nd_fields_add_u64(&fields, "subgraph", (uint64_t)node->subgraph + 1);
    if (!nd_agent_is_resumed_pass(agent) || !agent->resume->has_runs)
        return nd_fields_append(agent->writer, ND_RECORD_NODE, NULL, 0, &fields, err);
    const struct nd_resume_records *before = &agent->resume->nodes;
    enum nd_status status = ND_OK;
    if (fields.failed)
        status = nd_fail_memory(err);
    else if (i >= before->n || !is_same_record(&before->items[i], &fields))
        status = nd_fail(err, ND_E_DEVICE_OUTPUT, node->name,
                         "node '%s' (%s) is not placed as it was before the interruption", node->name,
                         node->op_type);
    nd_strbuf_deinit(&fields);
    return status;
}

static enum nd_status find_fell_back(const struct nd_job *job, const struct nd_placement *placed, size_t n,
                                     bool *is_fell_back, struct nd_error *err)
{
    struct nd_job_node *nodes = nd_calloc(n, sizeof *nodes);
    if (nodes == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < n; i++)
        nodes[i] = (struct nd_job_node){placed[i].provider, placed[i].name, placed[i].op_type};
    if (has_provider(job))
        nd_job_find_fell_back(job, nodes, n, is_fell_back);
    free(nodes);
    return ND_OK;
}

/* Fallback is found by reading placement back; the session's own switch against it changes results. */
enum nd_status nd_agent_check_placement(struct nd_agent *agent, struct nd_error *err)
{
    const struct nd_job *job = agent->job;
    struct nd_placement *nodes = NULL;
    size_t n = 0, n_fell_back = 0;
    enum nd_status status = nd_session_placement(agent->session, &nodes, &n, err);
    struct nd_strbuf fell_back = {0};
    bool *is_fell_back = nd_calloc(n, sizeof *is_fell_back);
    if (status == ND_OK)
        status = is_fell_back != NULL ? find_fell_back(job, nodes, n, is_fell_back, err) : nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && i < n; i++) {
        status = record_node(agent, &nodes[i], i, err);
        if (status == ND_OK && is_fell_back[i] && n_fell_back++ < 8)
            nd_strbuf_printf(&fell_back, "%s%s '%s'", n_fell_back > 1 ? ", " : "", nodes[i].op_type,
                             nodes[i].name);
    }
    free(is_fell_back);
    if (status == ND_OK && nd_agent_is_resumed_pass(agent) && agent->resume->has_runs &&
        n != agent->resume->nodes.n)
        status =
            nd_fail(err, ND_E_DEVICE_OUTPUT, NULL, "%zu nodes are placed, and %zu were before the interruption",
                    n, agent->resume->nodes.n);
    if (status == ND_OK && n_fell_back > 0 && !job->is_fallback_allowed)
        status = nd_fail(err, ND_E_DEVICE_FALLBACK, NULL, "%zu of %zu nodes do not run on %s: %s%s",
                         n_fell_back, n, job->provider_name, fell_back.text != NULL ? fell_back.text : "",
                         n_fell_back > 8 ? ", ..." : "");
    nd_strbuf_deinit(&fell_back);
    free(nodes);
    return status;
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

enum nd_status nd_agent_check_missing(struct nd_agent *agent, struct nd_error *err)
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
    void *text = NULL;
    size_t n = 0;
    if (!wants_provider_profile(agent))
        return ND_OK;
    if (nd_file_read(provider_profile, max_profile_bytes, &text, &n, &problem) != ND_OK) {
        record_log(agent, 2, "npudiff", problem.message);
        return ND_OK;
    }
    const struct nd_record record = {.kind = ND_RECORD_PROVIDER_PROFILE, .payload = text, .payload_bytes = n};
    enum nd_status status = nd_spool_append(agent->writer, &record, err);
    free(text);
    return status;
}

enum nd_status nd_agent_record_profile(struct nd_agent *agent, struct nd_error *err)
{
    if (!wants_profile(agent))
        return ND_OK;
    char *path = NULL;
    void *text = NULL;
    size_t text_bytes = 0;
    enum nd_status status = nd_session_end_profile(agent->session, &path, err);
    if (status == ND_OK)
        status = nd_file_read(path, max_profile_bytes, &text, &text_bytes, err);
    if (status == ND_OK)
        status = nd_spool_append(
            agent->writer,
            &(struct nd_record){.kind = ND_RECORD_PROFILE, .payload = text, .payload_bytes = text_bytes}, err);
    free(text);
    free(path);
    return status == ND_OK ? record_provider_profile(agent, err) : status;
}

static void add_truth(void *context, const char *key, const char *value)
{
    nd_fields_add(context, key, value);
}

enum nd_status nd_agent_record_truth(struct nd_agent *agent, struct nd_error *err)
{
    struct nd_strbuf fields = {0};
    enum nd_status status = nd_session_truth(agent->session, add_truth, &fields, err);
    agent->is_remembering = status == ND_OK && fields.len > 0;
    if (agent->is_remembering)
        status = nd_fields_append(agent->writer, ND_RECORD_TRUTH, NULL, 0, &fields, err);
    nd_strbuf_deinit(&fields);
    return status;
}
