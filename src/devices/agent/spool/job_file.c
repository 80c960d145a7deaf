/* The file of a job: written by npudiff, read by the agent. Each field is written and read side by side: who
 * adds one sees both. */
#include "devices/agent/spool/job_file.h"

#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/items.h"
#include "devices/agent/spool/spool.h"
#include "npudiff/core/parse.h"

/* The scalar fields of a job, once, for writing and reading. */
static const struct text_field {
    const char *key;
    size_t offset;
} text_fields[] = {
    {"model_sha256", offsetof(struct nd_agent_job, model_sha256)},
    {"ort_library", offsetof(struct nd_agent_job, ort_library)},
    {"provider_name", offsetof(struct nd_agent_job, provider_name)},
    {"provider_library", offsetof(struct nd_agent_job, provider_library)},
    {"profile_prefix", offsetof(struct nd_agent_job, profile_prefix)},
    {"context_binary", offsetof(struct nd_agent_job, context_binary)},
    {"context_library", offsetof(struct nd_agent_job, context_library)},
};
static const struct text_field number_fields[] = {
    {"optimisation", offsetof(struct nd_agent_job, optimisation)},
    {"threads", offsetof(struct nd_agent_job, n_threads)},
    {"repeats", offsetof(struct nd_agent_job, n_repeats)},
    {"deflate", offsetof(struct nd_agent_job, deflate_level)},
    {"store", offsetof(struct nd_agent_job, store)},
    {"log_severity", offsetof(struct nd_agent_job, log_severity)},
    {"allow_fallback", offsetof(struct nd_agent_job, is_fallback_allowed)},
    {"untouched", offsetof(struct nd_agent_job, is_untouched)},
};
enum {
    N_TEXT_FIELDS = sizeof text_fields / sizeof text_fields[0],
    N_NUMBER_FIELDS = sizeof number_fields / sizeof number_fields[0]
};
static const char option_prefix[] = "option.";
static const char config_prefix[] = "config.";

static char **text_at(const struct nd_agent_job *job, size_t i)
{
    return (char **)((uintptr_t)job + text_fields[i].offset);
}

static uint64_t *number_at(const struct nd_agent_job *job, size_t i)
{
    return (uint64_t *)((uintptr_t)job + number_fields[i].offset);
}

static void add_pairs(struct nd_strbuf *payload, const char *prefix, const struct nd_agent_option *pairs,
                      size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ND_FREED char *key = nd_text("%s%s", prefix, pairs[i].key);
        if (key == NULL)
            payload->failed = true;
        else
            nd_fields_add(payload, key, pairs[i].value);
    }
}

static enum nd_status write_head(const struct nd_agent_job *job, struct nd_spool_writer *writer,
                                 struct nd_error *err)
{
    struct nd_strbuf payload = {0};
    for (size_t i = 0; i < N_TEXT_FIELDS; i++)
        nd_fields_add(&payload, text_fields[i].key, *text_at(job, i));
    for (size_t i = 0; i < N_NUMBER_FIELDS; i++)
        nd_fields_add_u64(&payload, number_fields[i].key, *number_at(job, i));
    add_pairs(&payload, option_prefix, job->provider_options, job->n_provider_options);
    add_pairs(&payload, config_prefix, job->config, job->n_config);
    for (size_t i = 0; i < job->n_io_nodes; i++)
        nd_fields_add(&payload, "io_node", job->io_nodes[i]);
    for (size_t i = 0; i < job->n_float_nodes; i++)
        nd_fields_add(&payload, "float_node", job->float_nodes[i]);
    for (size_t i = 0; i < job->n_passes; i++)
        nd_fields_add(&payload, "model", job->passes[i].model);
    return nd_fields_append(writer, ND_RECORD_JOB, NULL, 0, &payload, err);
}

static enum nd_status write_tensor(const struct nd_agent_job *job, size_t tensor,
                                   struct nd_spool_writer *writer, struct nd_error *err)
{
    struct nd_strbuf payload = {0};
    uint32_t scale_bits;
    memcpy(&scale_bits, &job->tensors[tensor].scale, sizeof scale_bits);
    nd_fields_add(&payload, "output", job->tensors[tensor].output);
    nd_fields_add_u64(&payload, "dtype", (uint64_t)job->tensors[tensor].dtype);
    nd_fields_add_u64(&payload, "scale", scale_bits);
    nd_fields_add_u64(&payload, "zero_point", (uint64_t)job->tensors[tensor].zero_point);
    return nd_fields_append(writer, ND_RECORD_TENSOR, (uint64_t[]){tensor, job->tensors[tensor].pass}, 2,
                            &payload, err);
}

static enum nd_status write_checks(const struct nd_agent_job *job, size_t pass, struct nd_spool_writer *writer,
                                   struct nd_error *err)
{
    for (size_t i = 0; i < job->passes[pass].n_checks; i++)
        ND_TRY(nd_spool_append(
            writer, &(struct nd_record){.kind = ND_RECORD_CHECK, .index = {pass, job->passes[pass].checks[i]}},
            err));
    return ND_OK;
}

static enum nd_status write_target(const struct nd_agent_job *job, size_t target,
                                   struct nd_spool_writer *writer, struct nd_error *err)
{
    char dims[256];
    struct nd_strbuf payload = {0};
    nd_fields_add(&payload, "name", job->targets[target].name);
    nd_fields_add_u64(&payload, "dtype", (uint64_t)job->targets[target].dtype);
    nd_fields_add(&payload, "dims", nd_shape_format(&job->targets[target].shape, dims, sizeof dims));
    return nd_fields_append(writer, ND_RECORD_TARGET, (uint64_t[]){target}, 1, &payload, err);
}

static enum nd_status write_probe(const struct nd_agent_job *job, size_t probe, struct nd_spool_writer *writer,
                                  struct nd_error *err)
{
    const struct nd_job_probe *p = &job->probes[probe];
    struct nd_strbuf payload = {0};
    nd_fields_add(&payload, "name", p->name);
    ND_TRY(nd_fields_append(writer, ND_RECORD_PROBE, (uint64_t[]){probe, p->n_samples, p->n_rerun}, 3, &payload,
                            err));
    for (size_t i = 0; i < job->n_targets; i++) {
        struct nd_record record = {.kind = ND_RECORD_INPUT, .index = {probe, i}, .payload = p->inputs[i]};
        if (!nd_size_mul(p->n_samples, job->targets[i].sample_bytes, &record.payload_bytes))
            return nd_fail(err, ND_E_SIZE_OVERFLOW, p->name, "the inputs of probe '%s' do not fit", p->name);
        ND_TRY(nd_spool_append(writer, &record, err));
    }
    return ND_OK;
}

enum nd_status nd_job_write(const struct nd_agent_job *job, const char *path, struct nd_error *err)
{
    struct nd_spool_writer writer;
    ND_TRY(nd_spool_writer_open(&writer, path, err));
    enum nd_status status = write_head(job, &writer, err);
    for (size_t i = 0; status == ND_OK && i < job->n_tensors; i++)
        status = write_tensor(job, i, &writer, err);
    for (size_t i = 0; status == ND_OK && i < job->n_passes; i++)
        status = write_checks(job, i, &writer, err);
    for (size_t i = 0; status == ND_OK && i < job->n_targets; i++)
        status = write_target(job, i, &writer, err);
    for (size_t i = 0; status == ND_OK && i < job->n_probes; i++)
        status = write_probe(job, i, &writer, err);
    if (status == ND_OK)
        status = nd_spool_append(&writer, &(struct nd_record){.kind = ND_RECORD_END}, err);
    enum nd_status closed = nd_spool_writer_close(&writer, status == ND_OK ? err : NULL);
    return status != ND_OK ? status : closed;
}

void nd_job_plan_reruns(struct nd_agent_job *job)
{
    size_t n_all = 0;
    for (size_t p = 0; p < job->n_probes; p++) {
        n_all += job->probes[p].n_samples;
        job->probes[p].n_rerun = 0;
    }
    size_t n_left = n_all / ND_RERUN_SHARE > 0 ? n_all / ND_RERUN_SHARE : 1;
    for (size_t s = 0; s < ND_RERUN_SAMPLES; s++)
        for (size_t p = job->n_probes; p-- > 0 && n_left > 0;)
            if (s < job->probes[p].n_samples) {
                job->probes[p].n_rerun++;
                n_left--;
            }
}

size_t nd_job_n_runs(const struct nd_agent_job *job, size_t probe, size_t sample, bool differs)
{
    if (sample >= job->probes[probe].n_rerun)
        return (size_t)job->n_repeats;
    return differs ? ND_RERUN_MAX : ND_RERUN_FEWEST;
}

static bool is_among(char *const *nodes, size_t n, const char *name)
{
    return nd_find_text(nodes, n, sizeof *nodes, name) != NULL;
}

/* A quantiser that has the name of its operator, as a layout pass gives it. */
static bool is_new_quantiser(const struct nd_job_node *node)
{
    bool is_quantiser =
        strcmp(node->op_type, "QuantizeLinear") == 0 || strcmp(node->op_type, "DequantizeLinear") == 0;
    size_t n = nd_token_stem_bytes(node->name);
    return is_quantiser && strlen(node->op_type) == n && memcmp(node->op_type, node->name, n) == 0;
}

static bool is_named(const struct nd_job_node *node, const char *op_type, const char *tensor, const char *end)
{
    size_t n = strlen(tensor);
    return strcmp(node->op_type, op_type) == 0 && strncmp(node->name, tensor, n) == 0 &&
           strcmp(node->name + n, end) == 0;
}

/* ONNX Runtime moves a quantiser through a Reshape or Transpose to the input, or to the output, of the graph,
 * and names it after that. */
static bool is_moved_to_the_end(const struct nd_agent_job *job, const struct nd_job_node *node)
{
    for (size_t i = 0; i < job->n_targets; i++)
        if (is_named(node, "QuantizeLinear", job->targets[i].name, "_q"))
            return true;
    for (size_t i = 0; i < job->n_tensors; i++)
        if (is_named(node, "DequantizeLinear", job->tensors[i].output, "_dq"))
            return true;
    return false;
}

void nd_job_find_fell_back(const struct nd_agent_job *job, const struct nd_job_node *nodes, size_t n,
                           bool *is_fell_back)
{
    /* How many of those that may be on the CPU are not there by their own names. A copy of the model that gives
     * out quantised values lacks those at its ends. */
    size_t n_replaced = job->n_float_nodes + (job->is_untouched ? job->n_io_nodes : 0);
    for (size_t i = 0; i < n; i++) {
        bool is_float = is_among(job->float_nodes, job->n_float_nodes, nodes[i].name);
        bool is_io = is_float || is_among(job->io_nodes, job->n_io_nodes, nodes[i].name);
        bool is_elsewhere = strcmp(nodes[i].provider, job->provider_name) != 0;
        n_replaced -= (is_float || (is_io && job->is_untouched)) && is_elsewhere && n_replaced > 0;
        is_fell_back[i] = is_elsewhere && !is_io && !is_moved_to_the_end(job, &nodes[i]);
    }
    for (size_t i = 0; i < n && n_replaced > 0; i++)
        if (is_fell_back[i] && is_new_quantiser(&nodes[i])) {
            is_fell_back[i] = false;
            n_replaced--;
        }
}

bool nd_dims_parse(const char *text, struct nd_shape *out)
{
    struct nd_shape shape = {0};
    if (strcmp(text, "scalar") == 0) {
        *out = shape;
        return true;
    }
    while (shape.rank < ND_MAX_RANK) {
        char digits[24];
        size_t n = strcspn(text, "x");
        if (n >= sizeof digits)
            return false;
        memcpy(digits, text, n);
        digits[n] = '\0';
        if (!nd_parse_i64(digits, &shape.dims[shape.rank++]) || shape.dims[shape.rank - 1] < 0)
            return false;
        if (text[n] == '\0') {
            *out = shape;
            return true;
        }
        text += n + 1;
    }
    return false;
}

bool nd_job_read_output(const struct nd_record *record, enum nd_dtype *dtype, struct nd_shape *shape)
{
    uint64_t number = 0;
    char dims[32 * ND_MAX_RANK];
    bool is_whole = nd_fields_copy(record, "dims", dims, sizeof dims) && nd_dims_parse(dims, shape) &&
                    nd_fields_get_u64(record, "dtype", &number) &&
                    nd_dtype_size_bytes((enum nd_dtype)number) > 0;
    if (is_whole)
        *dtype = (enum nd_dtype)number;
    return is_whole;
}

/* Room for one more in an array of n. */
static bool add_room(void **items, size_t n, size_t item_bytes)
{
    void *grown = realloc(*items, (n + 1) * item_bytes);
    *items = grown != NULL ? grown : *items;
    return grown != NULL;
}

static bool add_pair(struct nd_agent_option **pairs, size_t *n, const struct nd_record_field *field,
                     size_t prefix_len)
{
    if (!add_room((void **)pairs, *n, sizeof **pairs))
        return false;
    struct nd_agent_option *pair = &(*pairs)[(*n)++];
    pair->key = strndup(field->key + prefix_len, field->key_len - prefix_len);
    pair->value = strndup(field->value, field->value_len);
    return pair->key != NULL && pair->value != NULL;
}

static bool add_node(char ***nodes, size_t *n, char *node)
{
    if (node == NULL || !add_room((void **)nodes, *n, sizeof **nodes)) {
        free(node);
        return false;
    }
    (*nodes)[(*n)++] = node;
    return true;
}

bool nd_job_add_float_node(struct nd_agent_job *job, const char *node)
{
    return add_node(&job->float_nodes, &job->n_float_nodes, nd_strdup(node));
}

void nd_job_remove_float_node(struct nd_agent_job *job, const char *node)
{
    for (size_t i = 0; i < job->n_float_nodes; i++)
        if (strcmp(job->float_nodes[i], node) == 0) {
            free(job->float_nodes[i]);
            job->float_nodes[i] = job->float_nodes[--job->n_float_nodes];
            return;
        }
}

static bool add_pass(struct nd_agent_job *job, const struct nd_record_field *field)
{
    if (!add_room((void **)&job->passes, job->n_passes, sizeof *job->passes))
        return false;
    job->passes[job->n_passes] = (struct nd_job_pass){.model = strndup(field->value, field->value_len)};
    return job->passes[job->n_passes++].model != NULL;
}

static bool has_prefix(const struct nd_record_field *field, const char *prefix)
{
    return field->key_len >= strlen(prefix) && memcmp(field->key, prefix, strlen(prefix)) == 0;
}

static bool read_head(struct nd_agent_job *job, const struct nd_record *record)
{
    for (size_t i = 0; i < N_TEXT_FIELDS; i++)
        if ((*text_at(job, i) = nd_fields_get(record, text_fields[i].key)) == NULL)
            return false;
    for (size_t i = 0; i < N_NUMBER_FIELDS; i++)
        if (!nd_fields_get_u64(record, number_fields[i].key, number_at(job, i)))
            return false;
    size_t offset = 0;
    struct nd_record_field field;
    bool is_whole = true;
    while (is_whole && nd_fields_next(record, &offset, &field)) {
        if (has_prefix(&field, option_prefix))
            is_whole =
                add_pair(&job->provider_options, &job->n_provider_options, &field, strlen(option_prefix));
        else if (has_prefix(&field, config_prefix))
            is_whole = add_pair(&job->config, &job->n_config, &field, strlen(config_prefix));
        else if (nd_field_is(&field, "io_node"))
            is_whole = add_node(&job->io_nodes, &job->n_io_nodes, strndup(field.value, field.value_len));
        else if (nd_field_is(&field, "float_node"))
            is_whole = add_node(&job->float_nodes, &job->n_float_nodes, strndup(field.value, field.value_len));
        else if (nd_field_is(&field, "model"))
            is_whole = add_pass(job, &field);
    }
    return is_whole && offset == record->payload_bytes;
}

static bool read_tensor(struct nd_agent_job *job, const struct nd_record *record)
{
    uint64_t dtype = 0, scale_bits = 0, zero_point = 0;
    if (record->index[0] != job->n_tensors ||
        !add_room((void **)&job->tensors, job->n_tensors, sizeof *job->tensors))
        return false;
    struct nd_job_tensor *tensor = &job->tensors[job->n_tensors++];
    *tensor =
        (struct nd_job_tensor){.output = nd_fields_get(record, "output"), .pass = (size_t)record->index[1]};
    bool is_whole = tensor->output != NULL && nd_fields_get_u64(record, "dtype", &dtype) &&
                    nd_fields_get_u64(record, "scale", &scale_bits) && scale_bits <= UINT32_MAX &&
                    nd_fields_get_u64(record, "zero_point", &zero_point) && record->index[1] < job->n_passes;
    tensor->dtype = (enum nd_dtype)dtype;
    memcpy(&tensor->scale, &(uint32_t){(uint32_t)scale_bits}, sizeof tensor->scale);
    tensor->zero_point = (int64_t)zero_point;
    return is_whole;
}

static bool read_check(struct nd_agent_job *job, const struct nd_record *record)
{
    if (record->index[0] == 0 || record->index[0] >= job->n_passes || record->index[1] >= job->n_tensors ||
        job->tensors[record->index[1]].pass != 0)
        return false;
    struct nd_job_pass *pass = &job->passes[record->index[0]];
    if (!add_room((void **)&pass->checks, pass->n_checks, sizeof *pass->checks))
        return false;
    pass->checks[pass->n_checks++] = (size_t)record->index[1];
    return true;
}

static bool read_target(struct nd_agent_job *job, const struct nd_record *record)
{
    if (record->index[0] != job->n_targets ||
        !add_room((void **)&job->targets, job->n_targets, sizeof *job->targets))
        return false;
    struct nd_job_target *target = &job->targets[job->n_targets++];
    *target = (struct nd_job_target){.name = nd_fields_get(record, "name")};
    ND_FREED char *dims = nd_fields_get(record, "dims");
    uint64_t dtype;
    bool is_whole = target->name != NULL && dims != NULL && nd_dims_parse(dims, &target->shape) &&
                    nd_fields_get_u64(record, "dtype", &dtype);
    if (!is_whole)
        return false;
    target->dtype = (enum nd_dtype)dtype;
    return nd_shape_size_bytes(&target->shape, target->dtype, &target->sample_bytes, NULL) == ND_OK;
}

static bool read_probe(struct nd_agent_job *job, const struct nd_record *record)
{
    if (record->index[0] != job->n_probes ||
        !add_room((void **)&job->probes, job->n_probes, sizeof *job->probes))
        return false;
    struct nd_job_probe *probe = &job->probes[job->n_probes++];
    *probe = (struct nd_job_probe){.name = nd_fields_get(record, "name"),
                                   .n_samples = (size_t)record->index[1],
                                   .n_rerun = (size_t)record->index[2],
                                   .inputs = nd_calloc(job->n_targets, sizeof(void *))};
    return probe->name != NULL && probe->inputs != NULL;
}

static bool read_input(struct nd_agent_job *job, const struct nd_record *record)
{
    size_t expected;
    if (record->index[0] >= job->n_probes || record->index[1] >= job->n_targets ||
        !nd_size_mul(job->probes[record->index[0]].n_samples, job->targets[record->index[1]].sample_bytes,
                     &expected) ||
        expected != record->payload_bytes)
        return false;
    job->probes[record->index[0]].inputs[record->index[1]] = record->payload;
    return true;
}

static bool read_record(struct nd_agent_job *job, const struct nd_record *record)
{
    return record->kind == ND_RECORD_JOB      ? job->n_passes == 0 && read_head(job, record)
           : record->kind == ND_RECORD_TENSOR ? read_tensor(job, record)
           : record->kind == ND_RECORD_CHECK  ? read_check(job, record)
           : record->kind == ND_RECORD_TARGET ? job->n_probes == 0 && read_target(job, record)
           : record->kind == ND_RECORD_PROBE  ? read_probe(job, record)
           : record->kind == ND_RECORD_INPUT  ? read_input(job, record)
                                              : record->kind == ND_RECORD_END;
}

static bool has_every_input(const struct nd_agent_job *job)
{
    for (size_t p = 0; p < job->n_probes; p++)
        for (size_t i = 0; i < job->n_targets; i++)
            if (job->probes[p].inputs[i] == NULL)
                return false;
    return true;
}

enum nd_status nd_job_read(const char *path, struct nd_agent_job *out, struct nd_error *err)
{
    struct nd_agent_job job = {0};
    ND_TRY(nd_spool_reader_map(&job.reader, path, err));
    struct nd_record record = {0};
    bool is_whole = true;
    while (is_whole && nd_spool_next(&job.reader, &record))
        is_whole = read_record(&job, &record);
    if (!is_whole || record.kind != ND_RECORD_END || job.n_passes == 0 || !has_every_input(&job)) {
        nd_job_deinit(&job);
        return nd_fail(err, ND_E_SPOOL_FORMAT, path, "'%s' is not a whole job", path);
    }
    job.digest = nd_digest_bytes(job.reader.map, job.reader.size_bytes);
    *out = job;
    return ND_OK;
}

static void free_pairs(struct nd_agent_option *pairs, size_t n)
{
    ND_FREE_BOTH(pairs, n, .key, .value);
}

void nd_job_deinit(struct nd_agent_job *job)
{
    for (size_t i = 0; i < N_TEXT_FIELDS; i++)
        free(*text_at(job, i));
    free_pairs(job->provider_options, job->n_provider_options);
    free_pairs(job->config, job->n_config);
    ND_FREE_ITEMS(job->io_nodes, job->n_io_nodes);
    ND_FREE_ITEMS(job->float_nodes, job->n_float_nodes);
    ND_FREE_BOTH(job->passes, job->n_passes, .model, .checks);
    ND_FREE_EACH(job->tensors, job->n_tensors, .output);
    ND_FREE_EACH(job->targets, job->n_targets, .name);
    ND_FREE_BOTH(job->probes, job->n_probes, .name, .inputs);
    nd_spool_reader_close(&job->reader);
    *job = (struct nd_agent_job){0};
}
