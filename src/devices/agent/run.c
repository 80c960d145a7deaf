#include "devices/agent/run.h"

#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "devices/agent/agent.h"
#include "devices/agent/spool/record_fields.h"
#include "devices/agent/stop.h"

static enum nd_status enter_stage(struct nd_agent *agent, const char *stage, struct nd_error *err)
{
    struct nd_strbuf fields = {0};
    agent->stage = stage;
    nd_fields_add(&fields, "stage", stage);
    enum nd_status status = nd_fields_append(agent->writer, ND_RECORD_STAGE, NULL, 0, &fields, err);
    nd_stop_at_stage(stage);
    return status;
}

/* Whether the run was stored before an interruption. */
static bool is_stored(const struct nd_agent *agent, size_t probe, size_t sample, size_t repeat)
{
    return nd_agent_is_resumed_pass(agent) && nd_resume_has_run(agent->resume, probe, sample, repeat);
}

/* A session that remembers runs also what is stored, so that what follows comes out as if nothing had happened.
 */
static enum nd_status run_once(struct nd_agent *agent, size_t probe, size_t sample, size_t repeat,
                               struct nd_error *err)
{
    bool is_known = is_stored(agent, probe, sample, repeat);
    if (is_known && !agent->is_remembering)
        return ND_OK;
    if (repeat >= agent->job->n_repeats)
        nd_session_repeat(agent->session);
    uint64_t start_ns = nd_clock_ns();
    enum nd_status status = nd_session_run(agent->session, agent->inputs, agent->outputs, err);
    struct nd_store_run run = {.probe = probe,
                               .sample = sample,
                               .repeat = repeat,
                               .latency_ns = nd_clock_ns() - start_ns,
                               .views = agent->tensors};
    if (status != ND_OK || is_known)
        return status;
    status = nd_agent_make_codes(agent, err);
    if (status == ND_OK)
        status = nd_agent_check_outputs(agent, probe, sample, repeat == 0, err);
    return status == ND_OK ? nd_store_put(agent->store, &run, err) : status;
}

static enum nd_status run_sample(struct nd_agent *agent, size_t probe, size_t sample, struct nd_error *err)
{
    const struct nd_job *job = agent->job;
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < nd_session_n_inputs(agent->session); i++) {
        size_t target = agent->target_of_input[i];
        agent->inputs[i] =
            (const char *)job->probes[probe].inputs[target] + sample * job->targets[target].sample_bytes;
    }
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
    enum nd_status status =
        nd_agent_is_resumed_pass(agent) ? ND_OK : nd_spool_append(agent->writer, &record, err);
    if (status == ND_OK)
        status = enter_stage(agent, "session", err);
    if (status == ND_OK)
        status = nd_agent_create_session(agent, err);
    if (status == ND_OK)
        status = nd_agent_check_missing(agent, err);
    if (status == ND_OK)
        status = enter_stage(agent, "placement", err);
    if (status == ND_OK)
        status = nd_agent_check_placement(agent, err);
    if (status == ND_OK)
        status = nd_agent_record_context(agent, err);
    if (status == ND_OK)
        status = nd_agent_connect(agent, err);
    if (status == ND_OK)
        status = nd_agent_record_truth(agent, err); /* also for an agent that dies on its samples */
    if (status == ND_OK)
        status = enter_stage(agent, "run", err);
    if (status == ND_OK)
        status = run_samples(agent, err);
    if (status == ND_OK)
        status = nd_agent_record_truth(agent, err);
    if (status == ND_OK)
        status = nd_agent_record_profile(agent, err);
    nd_agent_disconnect(agent);
    nd_session_destroy(&agent->session);
    return status;
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
    enum nd_status status = begin(agent, err);
    if (status == ND_OK)
        status = enter_stage(agent, "load", err);
    if (status == ND_OK)
        status = nd_agent_prepare_checks(agent, err);
    if (status == ND_OK)
        status = nd_agent_load_runtime(agent, err);
    for (agent->pass = agent->resume != NULL ? agent->resume->pass : 0;
         status == ND_OK && agent->pass < agent->job->n_passes; agent->pass++)
        status = run_pass(agent, err);
    return status;
}

static void record_failure(struct nd_agent *agent, const struct nd_error *failure)
{
    struct nd_strbuf fields = {0};
    nd_fields_add(&fields, "stage", agent->stage);
    nd_fields_add_u64(&fields, "code", (uint64_t)failure->id);
    nd_fields_add(&fields, "object", failure->object);
    nd_fields_add(&fields, "message", failure->message);
    nd_fields_append(agent->writer, ND_RECORD_FAILURE, NULL, 0, &fields, NULL);
}

enum nd_status nd_agent_run(const struct nd_job *job, const struct nd_resume *resume,
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
