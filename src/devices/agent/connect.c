#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/text/names.h"
#include "devices/agent/agent.h"

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

/* The session's outputs by name; of two of one name the first. */
static enum nd_status name_outputs(const struct nd_agent *agent, struct nd_names *names, struct nd_error *err)
{
    for (size_t i = 0; i < nd_session_n_outputs(agent->session); i++) {
        const char *name = nd_session_output(agent->session, i)->name;
        if (nd_names_find(names, name) == SIZE_MAX && !nd_names_add(names, name, i))
            return nd_fail_memory(err);
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
    const struct nd_job *job = agent->job;
    struct nd_names names = {0};
    size_t n = 0;
    agent->outputs = nd_calloc(nd_session_n_outputs(agent->session), sizeof *agent->outputs);
    agent->qvalues = nd_calloc(job->n_tensors, sizeof *agent->qvalues);
    agent->tensors = nd_calloc(job->n_tensors, sizeof *agent->tensors);
    agent->checks = nd_calloc(agent->n_check_ids, sizeof *agent->checks);
    if (agent->outputs == NULL || agent->qvalues == NULL || agent->tensors == NULL || agent->checks == NULL)
        return nd_fail_memory(err);
    enum nd_status status = name_outputs(agent, &names, err);
    for (size_t e = 0; status == ND_OK && e < job->n_tensors; e++)
        if (job->tensors[e].pass == agent->pass)
            status = find_output(agent, &names, e, &agent->tensors[n++], err);
    for (size_t i = 0; status == ND_OK && i < agent->n_check_ids; i++)
        if (is_checked_here(agent, agent->check_ids[i]))
            status = find_output(agent, &names, agent->check_ids[i], &agent->checks[i], err);
    nd_names_deinit(&names);
    return status;
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
    const struct nd_job *job = agent->job;
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

enum nd_status nd_agent_prepare_checks(struct nd_agent *agent, struct nd_error *err)
{
    const struct nd_job *job = agent->job;
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
    if (agent->check_ids == NULL || !nd_size_mul(n_samples, agent->n_check_ids, &n_cells) ||
        (agent->first_pass = nd_calloc(n_cells, sizeof *agent->first_pass)) == NULL)
        return nd_fail_memory(err);
    if (agent->resume != NULL)
        restore_first_pass(agent, n_samples);
    return ND_OK;
}

enum nd_status nd_agent_connect(struct nd_agent *agent, struct nd_error *err)
{
    enum nd_status status = connect_inputs(agent, err);
    return status == ND_OK ? connect_outputs(agent, err) : status;
}

void nd_agent_disconnect(struct nd_agent *agent)
{
    free(agent->target_of_input);
    free(agent->inputs);
    for (size_t e = 0; agent->qvalues != NULL && e < agent->job->n_tensors; e++)
        free(agent->qvalues[e].bytes);
    free(agent->qvalues);
    free(agent->outputs);
    free(agent->tensors);
    free(agent->checks);
    agent->target_of_input = NULL;
    agent->inputs = NULL;
    agent->qvalues = NULL;
    agent->outputs = NULL;
    agent->tensors = NULL;
    agent->checks = NULL;
}

enum nd_status nd_agent_check_outputs(struct nd_agent *agent, size_t probe, size_t sample, bool compare_passes,
                                      struct nd_error *err)
{
    enum nd_status status = check_types(agent, err);
    return status == ND_OK && compare_passes ? check_passes(agent, probe, sample, err) : status;
}
