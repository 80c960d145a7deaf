/* A session that prepared a context binary: what the binary says of itself goes into the spool. */
#include "devices/agent/runtime/context_binary.h"

#include <stdio.h>

#include "devices/agent/agent.h"
#include "devices/agent/spool/record_fields.h"

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
    enum nd_status status = nd_fields_append(agent->writer, ND_RECORD_CONTEXT, NULL, 0, &fields, err);
    for (size_t i = 0; status == ND_OK && i < info->n_inputs; i++)
        status = record_tensor(agent, false, i, &info->inputs[i], err);
    for (size_t i = 0; status == ND_OK && i < info->n_outputs; i++)
        status = record_tensor(agent, true, i, &info->outputs[i], err);
    return status;
}

enum nd_status nd_agent_record_context(struct nd_agent *agent, struct nd_error *err)
{
    const struct nd_job *job = agent->job;
    if (job->context_binary == NULL || job->context_binary[0] == '\0')
        return ND_OK;
    return nd_context_read(job->context_library, job->context_binary, record_info, agent, err);
}
