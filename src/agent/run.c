#include "agent/run.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/store.h"
#include "base/file.h"
#include "base/memory.h"
#include "spool/fields.h"

static const size_t max_log_bytes = 8u << 20; /* a provider at its most talkative must not fill the disk */
static const size_t max_profile_bytes = 512u << 20;

struct agent {
    const struct nd_job *job;
    struct nd_spool_writer *writer;
    struct nd_runtime *runtime;
    struct nd_session *session;
    struct nd_store_thread *store;
    const char *stage;
    atomic_size_t log_bytes;
    size_t *target_of_input;        /* session input -> job target */
    const void **inputs;            /* session inputs of the run in progress */
    struct nd_output_view *outputs; /* session outputs */
    size_t pass;
    const struct nd_output_view **edges;  /* edge of the pass -> its session output */
    const struct nd_output_view **checks; /* checked edge -> its session output */
    size_t *check_ids; /* checked edges, as numbers in the job; sorted, those of all passes */
    size_t n_check_ids;
    struct nd_digest *first_pass; /* [sample over all probes][n_check_ids]: what pass 0 gave for them */
};

static enum nd_status enter_stage(struct agent *agent, const char *stage, struct nd_error *err)
{
    struct nd_strbuf fields = {0};
    agent->stage = stage;
    nd_fields_add(&fields, "stage", stage);
    return nd_fields_append(agent->writer, ND_RECORD_STAGE, NULL, 0, &fields, err);
}

static void record_log(void *context, int severity, const char *location, const char *message)
{
    struct agent *agent = context;
    size_t n = strlen(message);
    if (atomic_fetch_add(&agent->log_bytes, n) > max_log_bytes)
        return;
    struct nd_strbuf fields = {0};
    nd_fields_add_u64(&fields, "severity", (uint64_t)severity);
    nd_fields_add(&fields, "location", location);
    nd_fields_add(&fields, "message", message);
    /* A log line that cannot be written is no reason to stop: the next record will meet the same disk. */
    nd_fields_append(agent->writer, ND_RECORD_LOG, NULL, 0, &fields, NULL);
}

static void record_library(void *context, const char *path, const char *build_id)
{
    struct agent *agent = context;
    if (path[0] != '/') /* linux-vdso has no file */
        return;
    struct nd_strbuf fields = {0};
    nd_fields_add(&fields, "path", path);
    nd_fields_add(&fields, "build_id", build_id);
    nd_fields_append(agent->writer, ND_RECORD_LIBRARY, NULL, 0, &fields, NULL);
}

static bool has_provider(const struct nd_job *job)
{
    return job->provider_name != NULL && job->provider_name[0] != '\0';
}

static enum nd_status load_runtime(struct agent *agent, struct nd_error *err)
{
    const struct nd_job *job = agent->job;
    const struct nd_runtime_options options = {
        .ort_library = job->ort_library,
        .provider_name = has_provider(job) ? job->provider_name : NULL,
        .provider_library = has_provider(job) ? job->provider_library : NULL,
        .log = record_log,
        .log_context = agent,
        .log_severity = (int)job->log_severity,
    };
    enum nd_status status = nd_runtime_create(&options, &agent->runtime, err);
    if (status != ND_OK)
        return status;
    struct nd_strbuf fields = {0};
    nd_fields_add(&fields, "version", nd_runtime_version(agent->runtime));
    nd_fields_add(&fields, "build_info", nd_runtime_build_info(agent->runtime));
    return nd_fields_append(agent->writer, ND_RECORD_RUNTIME, NULL, 0, &fields, err);
}

/* One profile is enough: that of the pass with the most tensors. */
static bool wants_profile(const struct agent *agent)
{
    return agent->pass == 0 && agent->job->profile_prefix[0] != '\0';
}

static enum nd_status create_session(struct agent *agent, struct nd_error *err)
{
    const struct nd_job *job = agent->job;
    struct nd_option_pair *pairs = nd_calloc(job->n_provider_options + job->n_config, sizeof *pairs);
    if (pairs == NULL)
        return nd_fail_memory(err);
    struct nd_option_pair *config = pairs + job->n_provider_options;
    for (size_t i = 0; i < job->n_provider_options; i++)
        pairs[i] = (struct nd_option_pair){job->provider_options[i].key, job->provider_options[i].value};
    for (size_t i = 0; i < job->n_config; i++)
        config[i] = (struct nd_option_pair){job->config[i].key, job->config[i].value};
    const struct nd_session_options options = {
        .model_path = job->passes[agent->pass].model,
        .optimisation = (enum nd_optimisation)job->optimisation,
        .n_threads = (int)job->n_threads,
        .provider_options = pairs,
        .n_provider_options = job->n_provider_options,
        .config = config,
        .n_config = job->n_config,
        .profile_prefix = wants_profile(agent) ? job->profile_prefix : NULL,
    };
    enum nd_status status = nd_session_create(agent->runtime, &options, &agent->session, err);
    free(pairs);
    /* Also after a failure: which libraries were in the process is evidence. */
    if (agent->pass == 0)
        nd_runtime_visit_libraries(record_library, agent);
    return status;
}

/* Fallback is found by reading placement back; the session's own switch against it changes results. */
static enum nd_status check_placement(struct agent *agent, struct nd_error *err)
{
    const struct nd_job *job = agent->job;
    struct nd_placement *nodes = NULL;
    size_t n = 0, n_fallen = 0;
    enum nd_status status = nd_session_placement(agent->session, &nodes, &n, err);
    struct nd_strbuf fallen = {0};
    for (size_t i = 0; status == ND_OK && i < n; i++) {
        struct nd_strbuf fields = {0};
        nd_fields_add(&fields, "provider", nodes[i].provider);
        nd_fields_add(&fields, "name", nodes[i].name);
        nd_fields_add(&fields, "op_type", nodes[i].op_type);
        nd_fields_add(&fields, "domain", nodes[i].domain);
        status = nd_fields_append(agent->writer, ND_RECORD_NODE, NULL, 0, &fields, err);
        if (status == ND_OK && has_provider(job) && strcmp(nodes[i].provider, job->provider_name) != 0 &&
            !nd_job_is_io_node(job, nodes[i].name) && n_fallen++ < 8)
            nd_strbuf_printf(&fallen, "%s%s '%s'", n_fallen > 1 ? ", " : "", nodes[i].op_type, nodes[i].name);
    }
    if (status == ND_OK && n_fallen > 0 && !job->is_fallback_allowed)
        status =
            nd_fail(err, ND_E_DEVICE_FALLBACK, NULL, "%zu of %zu nodes do not run on %s: %s%s", n_fallen, n,
                    job->provider_name, fallen.text != NULL ? fallen.text : "", n_fallen > 8 ? ", ..." : "");
    nd_strbuf_deinit(&fallen);
    free(nodes);
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

static enum nd_status connect_inputs(struct agent *agent, struct nd_error *err)
{
    size_t n = nd_session_n_inputs(agent->session);
    agent->target_of_input = nd_calloc(n, sizeof *agent->target_of_input);
    agent->inputs = nd_calloc(n, sizeof *agent->inputs);
    if (agent->target_of_input == NULL || agent->inputs == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < n; i++) {
        const struct nd_session_io *io = nd_session_input(agent->session, i);
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
        nd_session_set_input_shape(agent->session, i, &target->shape);
        agent->target_of_input[i] = t;
    }
    return ND_OK;
}

/* The session output of that name. */
static enum nd_status find_output(struct agent *agent, const char *name, const struct nd_output_view **out,
                                  struct nd_error *err)
{
    for (size_t i = 0; i < nd_session_n_outputs(agent->session); i++)
        if (strcmp(nd_session_output(agent->session, i)->name, name) == 0) {
            *out = &agent->outputs[i];
            return ND_OK;
        }
    return nd_fail(err, ND_E_DEVICE_OUTPUT, name, "the session has no output '%s'", name);
}

static bool is_checked_here(const struct agent *agent, size_t edge)
{
    const struct nd_job_pass *pass = &agent->job->passes[agent->pass];
    if (agent->pass == 0)
        return true;
    for (size_t i = 0; i < pass->n_checks; i++)
        if (pass->checks[i] == edge)
            return true;
    return false;
}

static enum nd_status connect_outputs(struct agent *agent, struct nd_error *err)
{
    const struct nd_job *job = agent->job;
    enum nd_status status = ND_OK;
    size_t n = 0;
    agent->outputs = nd_calloc(nd_session_n_outputs(agent->session), sizeof *agent->outputs);
    agent->edges = nd_calloc(job->n_edges, sizeof *agent->edges);
    agent->checks = nd_calloc(agent->n_check_ids, sizeof *agent->checks);
    if (agent->outputs == NULL || agent->edges == NULL || agent->checks == NULL)
        return nd_fail_memory(err);
    for (size_t e = 0; status == ND_OK && e < job->n_edges; e++)
        if (job->edges[e].pass == agent->pass)
            status = find_output(agent, job->edges[e].output, &agent->edges[n++], err);
    for (size_t i = 0; status == ND_OK && i < agent->n_check_ids; i++)
        if (is_checked_here(agent, agent->check_ids[i]))
            status = find_output(agent, job->edges[agent->check_ids[i]].output, &agent->checks[i], err);
    return status;
}

static enum nd_status check_types(const struct agent *agent, struct nd_error *err)
{
    size_t n = 0;
    for (size_t e = 0; e < agent->job->n_edges; e++) {
        const struct nd_job_edge *edge = &agent->job->edges[e];
        if (edge->pass != agent->pass)
            continue;
        enum nd_dtype dtype = agent->edges[n++]->dtype;
        if (edge->dtype != ND_DTYPE_NONE && dtype != edge->dtype)
            return nd_fail(err, ND_E_DEVICE_OUTPUT, edge->output, "output '%s' is %s; the model says %s",
                           edge->output, nd_dtype_name(dtype), nd_dtype_name(edge->dtype));
    }
    return ND_OK;
}

/* Passes must not disagree: if what one exposes changed what the model computes, their tensors would not belong
 * together. */
static enum nd_status check_passes(struct agent *agent, size_t probe, size_t sample, struct nd_error *err)
{
    size_t row = sample;
    for (size_t p = 0; p < probe; p++)
        row += agent->job->probes[p].n_samples;
    for (size_t i = 0; i < agent->n_check_ids; i++) {
        if (agent->checks[i] == NULL)
            continue;
        struct nd_digest *first = &agent->first_pass[row * agent->n_check_ids + i];
        struct nd_digest digest = nd_digest_bytes(agent->checks[i]->data, agent->checks[i]->size_bytes);
        const char *name = agent->job->edges[agent->check_ids[i]].output;
        if (agent->pass == 0)
            *first = digest;
        else if (!nd_digest_equal(*first, digest))
            return nd_fail(err, ND_E_DEVICE_OUTPUT, name,
                           "output '%s' differs between pass 0 and pass %zu: exposing tensors changes results",
                           name, agent->pass);
    }
    return ND_OK;
}

static enum nd_status run_sample(struct agent *agent, size_t probe, size_t sample, struct nd_error *err)
{
    const struct nd_job *job = agent->job;
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < nd_session_n_inputs(agent->session); i++) {
        size_t target = agent->target_of_input[i];
        agent->inputs[i] =
            (const char *)job->probes[probe].inputs[target] + sample * job->targets[target].sample_bytes;
    }
    for (size_t repeat = 0; status == ND_OK && repeat < job->n_repeats; repeat++) {
        uint64_t start_ns = nd_clock_ns();
        status = nd_session_run(agent->session, agent->inputs, agent->outputs, err);
        struct nd_store_run run = {.probe = probe,
                                   .sample = sample,
                                   .repeat = repeat,
                                   .latency_ns = nd_clock_ns() - start_ns,
                                   .views = agent->edges};
        if (status == ND_OK)
            status = check_types(agent, err);
        if (status == ND_OK && repeat == 0)
            status = check_passes(agent, probe, sample, err);
        if (status == ND_OK)
            status = nd_store_put(agent->store, &run, err);
    }
    if (status != ND_OK)
        nd_error_context(err, "probe '%s', sample %zu", job->probes[probe].name, sample);
    return status;
}

static enum nd_status run_samples(struct agent *agent, struct nd_error *err)
{
    enum nd_status status = nd_store_start(agent->job, agent->pass, agent->writer, &agent->store, err);
    for (size_t p = 0; status == ND_OK && p < agent->job->n_probes; p++)
        for (size_t s = 0; status == ND_OK && s < agent->job->probes[p].n_samples; s++)
            status = run_sample(agent, p, s, err);
    /* What was computed before a failure is kept. */
    enum nd_status finished = nd_store_finish(&agent->store, status == ND_OK ? err : NULL);
    return status != ND_OK ? status : finished;
}

static enum nd_status record_profile(struct agent *agent, struct nd_error *err)
{
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
    return status;
}

/* Which edges later passes check, and room for what pass 0 gives for them. */
static enum nd_status prepare_checks(struct agent *agent, struct nd_error *err)
{
    const struct nd_job *job = agent->job;
    size_t n_samples = 0, n_cells;
    for (size_t p = 0; p < job->n_probes; p++)
        n_samples += job->probes[p].n_samples;
    agent->check_ids = nd_calloc(job->n_edges, sizeof *agent->check_ids);
    for (size_t e = 0; agent->check_ids != NULL && e < job->n_edges; e++) {
        bool is_checked = false;
        for (size_t p = 1; p < job->n_passes; p++)
            for (size_t i = 0; i < job->passes[p].n_checks; i++)
                is_checked = is_checked || job->passes[p].checks[i] == e;
        if (is_checked)
            agent->check_ids[agent->n_check_ids++] = e;
    }
    if (agent->check_ids == NULL || !nd_size_mul(n_samples, agent->n_check_ids, &n_cells) ||
        (agent->first_pass = nd_calloc(n_cells, sizeof *agent->first_pass)) == NULL)
        return nd_fail_memory(err);
    return ND_OK;
}

static void end_pass(struct agent *agent)
{
    nd_session_destroy(&agent->session);
    free(agent->target_of_input);
    free(agent->inputs);
    free(agent->outputs);
    free(agent->edges);
    free(agent->checks);
    agent->target_of_input = NULL;
    agent->inputs = NULL;
    agent->outputs = NULL;
    agent->edges = NULL;
    agent->checks = NULL;
}

static enum nd_status run_pass(struct agent *agent, struct nd_error *err)
{
    const struct nd_record record = {.kind = ND_RECORD_PASS, .index = {agent->pass}};
    enum nd_status status = nd_spool_append(agent->writer, &record, err);
    if (status == ND_OK)
        status = enter_stage(agent, "session", err);
    if (status == ND_OK)
        status = create_session(agent, err);
    if (status == ND_OK)
        status = enter_stage(agent, "placement", err);
    if (status == ND_OK)
        status = check_placement(agent, err);
    if (status == ND_OK)
        status = connect_inputs(agent, err);
    if (status == ND_OK)
        status = connect_outputs(agent, err);
    if (status == ND_OK)
        status = enter_stage(agent, "run", err);
    if (status == ND_OK)
        status = run_samples(agent, err);
    if (status == ND_OK && wants_profile(agent))
        status = record_profile(agent, err);
    return status;
}

static enum nd_status run_stages(struct agent *agent, struct nd_error *err)
{
    enum nd_status status = enter_stage(agent, "load", err);
    if (status == ND_OK)
        status = prepare_checks(agent, err);
    if (status == ND_OK)
        status = load_runtime(agent, err);
    for (agent->pass = 0; status == ND_OK && agent->pass < agent->job->n_passes; agent->pass++) {
        status = run_pass(agent, err);
        end_pass(agent);
    }
    return status;
}

static void record_failure(struct agent *agent, const struct nd_error *failure)
{
    struct nd_strbuf fields = {0};
    nd_fields_add(&fields, "stage", agent->stage);
    nd_fields_add_u64(&fields, "code", (uint64_t)failure->id);
    nd_fields_add(&fields, "object", failure->object);
    nd_fields_add(&fields, "message", failure->message);
    nd_fields_append(agent->writer, ND_RECORD_FAILURE, NULL, 0, &fields, NULL);
}

enum nd_status nd_agent_run(const struct nd_job *job, struct nd_spool_writer *writer, struct nd_error *err)
{
    struct agent agent = {.job = job, .writer = writer, .stage = "start"};
    struct nd_error failure = {0};
    enum nd_status status = run_stages(&agent, &failure);
    if (status == ND_OK) {
        status = nd_spool_append(writer, &(struct nd_record){.kind = ND_RECORD_END}, &failure);
    } else {
        record_failure(&agent, &failure);
    }
    enum nd_status synced = nd_spool_sync(writer, status == ND_OK ? &failure : NULL);
    if (status == ND_OK)
        status = synced;
    if (status != ND_OK && err != NULL)
        *err = failure;
    nd_runtime_destroy(&agent.runtime);
    free(agent.check_ids);
    free(agent.first_pass);
    return status;
}
