/* The context binary: made by the provider in an agent, described by the SDK, held against the model. */
#include <stdio.h>
#include <sys/stat.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "devices/agent/spool/spool.h"
#include "devices/launch.h"
#include "devices/runtimes/sdk.h"
#include "record/qnn/prepare_internal.h"

static const char stripped_model[] = "model.onnx";

/* ---- making it ---- */

/* The device with session entries that make ONNX Runtime keep the context. Arrays are new, texts borrowed. */
static enum nd_status add_entries(const struct nd_device *from, struct nd_device *to, struct nd_error *err)
{
    static char *const entries[][2] = {
        {(char *)"ep.context_enable", (char *)"1"},
        {(char *)"ep.context_file_path", (char *)ND_PREPARED_ONNX},
        {(char *)"ep.context_embed_mode", (char *)"0"},
    };
    const size_t n_entries = sizeof entries / sizeof entries[0];
    *to = *from;
    to->option_keys = nd_calloc(from->n_options + n_entries, sizeof *to->option_keys);
    to->option_values = nd_calloc(from->n_options + n_entries, sizeof *to->option_values);
    ND_TRY_MEMORY(to->option_keys != NULL && to->option_values != NULL, err);
    for (size_t i = 0; i < from->n_options; i++) {
        to->option_keys[i] = from->option_keys[i];
        to->option_values[i] = from->option_values[i];
    }
    for (size_t i = 0; i < n_entries; i++) {
        to->option_keys[to->n_options] = entries[i][0];
        to->option_values[to->n_options++] = entries[i][1];
    }
    return ND_OK;
}

/* The job works in its own folder by relative paths: ONNX Runtime hashes the model's path into the graph's
 * name, and the same call has to give the same bytes. */
static enum nd_status localise(struct nd_capture_job *capture, struct nd_error *err)
{
    struct nd_agent_job *job = &capture->job;
    char *folder = nd_path_dir(capture->device->runtime.provider_library);
    free(job->passes[0].model);
    job->passes[0].model = nd_strdup(stripped_model);
    job->context_binary = nd_strdup(ND_PREPARED_BINARY);
    job->context_library = folder != NULL ? nd_path_join(folder, "libQnnSystem.so") : NULL;
    free(folder);
    /* Nothing may stay outside of the context. */
    for (size_t i = 0; i < job->n_io_nodes; i++)
        free(job->io_nodes[i]);
    job->n_io_nodes = 0;
    bool is_whole = job->passes[0].model != NULL && job->context_binary != NULL && job->context_library != NULL;
    return is_whole ? ND_OK : nd_fail_memory(err);
}

static enum nd_status run_agent(const struct nd_prepare_work *work, const struct nd_capture_job *capture,
                                struct nd_agent_exit *exit, struct nd_error *err)
{
    ND_FREED char *agent = NULL;
    ND_FREED char *job_path = nd_path_join(work->scratch, "job.nds");
    ND_TRY_MEMORY(job_path != NULL, err);
    ND_TRY(nd_agent_find(work->options->agent, "", &agent, err));
    ND_TRY(nd_job_write(&capture->job, job_path, err));
    const struct nd_agent_start start = {
        .agent = agent, .folder = work->scratch, .options = capture->options, .label = work->device->label};
    return nd_agent_launch(&start, exit, err);
}

static enum nd_status make_context(const struct nd_prepare_work *work, struct nd_agent_exit *exit,
                                   struct nd_error *err)
{
    struct nd_capture_options options;
    struct nd_device device = {0};
    ND_CLEANUP(nd_model_destroy) struct nd_model *model = NULL;
    struct nd_capture_job capture = {0};
    nd_capture_options_init(&options);
    options.tensors = "none"; /* the model was changed already: it is run as it is */
    options.agent = work->options->agent;
    options.time_limit_s = work->options->time_limit_s;
    options.is_cancelled = work->options->is_cancelled;
    options.cancel_context = work->options->cancel_context;
    ND_FREED char *path = nd_path_join(work->scratch, stripped_model);
    enum nd_status status = path != NULL ? nd_model_load(path, &model, err) : nd_fail_memory(err);
    if (status == ND_OK)
        status = add_entries(work->device, &device, err);
    capture = (struct nd_capture_job){
        .model = model, .device = &device, .options = &options, .folder = work->scratch};
    if (status == ND_OK)
        status = nd_capture_job_init(&capture, err);
    if (status == ND_OK)
        status = localise(&capture, err);
    if (status == ND_OK)
        status = run_agent(work, &capture, exit, err);
    nd_capture_job_deinit(&capture);
    ND_FREE_ALL(device.option_keys, device.option_values);
    return status;
}

/* ---- what it says ---- */

static void take_text(const struct nd_record *record, const char *key, char *to, size_t size)
{
    ND_FREED char *text = nd_fields_get(record, key);
    snprintf(to, size, "%s", text != NULL ? text : "");
}

static void take_info(const struct nd_record *record, struct nd_prepared_context *context)
{
    char build_id[64];
    take_text(record, "build_id", build_id, sizeof build_id);
    snprintf(context->build_id, sizeof context->build_id, "%s", build_id + (build_id[0] == 'v'));
    take_text(record, "graph", context->graph, sizeof context->graph);
    take_text(record, "core_api", context->core_api, sizeof context->core_api);
    take_text(record, "backend_api", context->backend_api, sizeof context->backend_api);
    nd_fields_get_u64(record, "n_graphs", &context->n_graphs);
    nd_fields_get_u64(record, "backend", &context->backend);
    nd_fields_get_u64(record, "soc_model", &context->soc_model);
}

static void take_failure(const struct nd_record *record, struct nd_error *err)
{
    char message[sizeof err->message], object[sizeof err->object];
    uint64_t id = ND_E_RUNTIME_CALL;
    take_text(record, "message", message, sizeof message);
    take_text(record, "object", object, sizeof object);
    nd_fields_get_u64(record, "code", &id);
    nd_fail(err, (enum nd_error_id)id, object, "%s",
            message[0] != '\0' ? message : "the agent failed, and does not say why");
}

static const struct nd_native_end *find_end(const struct nd_native_end *ends, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(ends[i].name, name) == 0)
            return &ends[i];
    return NULL;
}

static const struct nd_tensor *tensor_of(const struct nd_model *model, const char *tensor)
{
    for (size_t e = 0; e < nd_model_n_tensors(model); e++)
        if (strcmp(nd_model_tensor(model, e)->onnx_name, tensor) == 0)
            return nd_model_tensor(model, e);
    return NULL;
}

/* What the context says of its quantisation, where it says anything, has to be the model's. */
static bool has_same_scale(const char *text, const struct nd_quant *quant)
{
    float scale;
    long offset;
    if (text == NULL || quant == NULL || quant->n != 1)
        return true;
    char *end;
    scale = strtof(text, &end);
    offset = strtol(end, NULL, 10);
    return memcmp(&scale, &quant->scale[0], sizeof scale) == 0 && -offset == (long)quant->zero_point[0];
}

/* The shape in the model, and the type: those of the codes where it has codes. */
static void describe(const struct nd_prepare_work *work, bool is_output, const struct nd_native_end *end,
                     struct nd_prepared_tensor *item)
{
    const struct nd_tensor *tensor = tensor_of(work->model, end->tensor);
    item->index = end->index;
    item->onnx_name = end->tensor;
    item->quant = tensor != NULL && tensor->quant.n > 0 ? &tensor->quant : NULL;
    if (is_output) {
        item->name = tensor->name;
        item->dtype = tensor->dtype;
        item->shape = tensor->shape;
        return;
    }
    const struct nd_model_io *input = nd_model_input(work->model, end->index);
    item->name = input->name;
    item->is_quantised_here = strcmp(input->name, end->tensor) != 0;
    item->dtype = item->is_quantised_here ? tensor->dtype : input->dtype;
    item->shape = input->shape;
}

/* Holds the context's own words against the model. */
static enum nd_status check_tensor(struct nd_prepared_tensor *tensor, const char *word, const char *scale,
                                   const struct nd_shape *shape, struct nd_error *err)
{
    char theirs[256], ours[256];
    const struct nd_qnn_type *type = nd_qnn_type_of(tensor->qnn_type);
    if (type != NULL && (type->dtype == ND_DTYPE_U4 || type->dtype == ND_DTYPE_I4))
        type = NULL; /* nothing says how qnn-net-run packs them */
    if (tensor->shape.rank < 0)
        tensor->shape = *shape;
    if (tensor->dtype == ND_DTYPE_NONE && type != NULL)
        tensor->dtype = type->dtype;
    if (type == NULL || type->dtype != tensor->dtype || !nd_shape_equal(shape, &tensor->shape))
        return nd_fail(err, ND_E_PREPARE_CONTEXT, tensor->name,
                       "%s '%s' is %s %s in the model, and %s (0x%04x) %s in the context", word, tensor->name,
                       nd_dtype_name(tensor->dtype), nd_shape_format(&tensor->shape, ours, sizeof ours),
                       nd_qnn_type_name(tensor->qnn_type), (unsigned int)tensor->qnn_type,
                       nd_shape_format(shape, theirs, sizeof theirs));
    if (!has_same_scale(scale, tensor->quant))
        return nd_fail(err, ND_E_PREPARE_CONTEXT, tensor->name,
                       "%s '%s' has another scale or zero point in the context (scale and offset %s) than in "
                       "the model",
                       word, tensor->name, scale);
    return nd_shape_size_bytes(&tensor->shape, tensor->dtype, &tensor->size_bytes, err);
}

static enum nd_status take_tensor(struct nd_prepare_work *work, const struct nd_record *record,
                                  struct nd_error *err)
{
    const struct nd_native *native = &work->native;
    bool is_output = record->index[0] != 0;
    const char *word = is_output ? "output" : "input";
    size_t *n = is_output ? &work->n_outputs : &work->n_inputs;
    size_t n_ends = is_output ? native->n_outputs : native->n_inputs;
    struct nd_shape shape = {0};
    uint64_t qvalue = 0;
    enum nd_status status;
    ND_FREED char *name = nd_fields_get(record, "name");
    ND_FREED char *dims = nd_fields_get(record, "dims");
    ND_FREED char *scale = nd_fields_get(record, "scale_offset"); /* NULL where there is none */
    const struct nd_native_end *end = NULL;
    if (name != NULL && *n < n_ends)
        end = find_end(is_output ? native->outputs : native->inputs, n_ends, name);
    nd_fields_get_u64(record, "data_type", &qvalue);
    if (end == NULL || dims == NULL || !nd_dims_parse(dims, &shape)) {
        status = nd_fail(err, ND_E_PREPARE_CONTEXT, name,
                         "the context has an %s '%s' of shape %s, which the model has not", word,
                         name != NULL ? name : "", dims != NULL ? dims : "");
    } else {
        struct nd_prepared_tensor *tensor = &(is_output ? work->outputs : work->inputs)[(*n)++];
        describe(work, is_output, end, tensor);
        tensor->qnn_type = (uint32_t)qvalue;
        tensor->context_name = end->name;
        status = check_tensor(tensor, word, scale, &shape, err);
    }
    return status;
}

/* Reads the spool: the agent's failure, or the description of the context. */
static enum nd_status read_spool(struct nd_prepare_work *work, struct nd_error *err)
{
    struct nd_spool_reader reader = {0};
    struct nd_record record;
    struct nd_error failure = {0};
    enum nd_status status = ND_OK;
    char *spool = nd_path_join(work->scratch, "spool.nds");
    ND_TRY_MEMORY(spool != NULL, err);
    if (nd_path_exists(spool))
        status = nd_spool_reader_open(&reader, spool, err);
    while (status == ND_OK && failure.id == 0 && nd_spool_next(&reader, &record)) {
        if (record.kind == ND_RECORD_FAILURE)
            take_failure(&record, &failure);
        else if (record.kind == ND_RECORD_CONTEXT)
            take_info(&record, &work->context);
        else if (record.kind == ND_RECORD_CONTEXT_TENSOR)
            status = take_tensor(work, &record, err);
        else if (work->records != NULL && record.kind == ND_RECORD_NODE && record.payload != NULL)
            status = nd_spool_append(work->records, &record, err);
    }
    nd_spool_reader_close(&reader);
    free(spool);
    if (status != ND_OK || failure.id == 0)
        return status;
    if (failure.id == ND_E_DEVICE_FALLBACK && work->n_tensors > 1)
        nd_error_context(&failure, "with %zu tensors visible (fewer may run: --tensors outputs)",
                         work->n_tensors);
    if (err != NULL)
        *err = failure;
    return failure.status;
}

static enum nd_status check_context(const struct nd_prepare_work *work, struct nd_error *err)
{
    const struct nd_prepared_context *context = &work->context;
    const char *path = nd_model_path(work->model);
    if (context->n_graphs != 1)
        return nd_fail(err, ND_E_PREPARE_CONTEXT, path,
                       "the provider cuts '%s' into %llu graphs, and a folder for qnn-net-run holds one: see "
                       "'npudiff placement'",
                       path, (unsigned long long)context->n_graphs);
    if (work->n_inputs != work->native.n_inputs || work->n_outputs != work->native.n_outputs)
        return nd_fail(err, ND_E_PREPARE_CONTEXT, path,
                       "the context has %zu inputs and %zu outputs, and '%s' %zu and %zu", work->n_inputs,
                       work->n_outputs, path, work->native.n_inputs, work->native.n_outputs);
    if (context->soc_model != (uint64_t)work->device->chipset->soc_model)
        return nd_fail(err, ND_E_PREPARE_CONTEXT, path, "the context is for soc_model %llu, not for %s (%d)",
                       (unsigned long long)context->soc_model, work->device->chipset->sm,
                       work->device->chipset->soc_model);
    return ND_OK;
}

/* Out of the agent's folder, where nothing else is of use. */
static enum nd_status keep(struct nd_prepare_work *work, const char *name, struct nd_error *err)
{
    ND_FREED char *from = nd_path_join(work->scratch, name), *to = nd_path_join(work->folder, name);
    ND_TRY_MEMORY(from != NULL && to != NULL, err);
    if (rename(from, to) != 0)
        return nd_fail(err, ND_E_PREPARE_CONTEXT, name, "the provider made no '%s'", name);
    struct stat info;
    if (strcmp(name, ND_PREPARED_BINARY) == 0) {
        work->context.size_bytes = stat(to, &info) == 0 ? (uint64_t)info.st_size : 0;
        ND_TRY(nd_sha256_file(to, work->context.sha256, err));
    }
    return ND_OK;
}

enum nd_status nd_prepare_context(struct nd_prepare_work *work, struct nd_error *err)
{
    struct nd_agent_exit exit = {0};
    ND_FREED char *path = nd_path_join(work->scratch, stripped_model);
    ND_TRY(path != NULL
               ? nd_model_write_native(work->model, work->tensors, work->n_tensors, path, &work->native, err)
               : nd_fail_memory(err));
    work->inputs = nd_calloc(work->native.n_inputs, sizeof *work->inputs);
    work->outputs = nd_calloc(work->native.n_outputs, sizeof *work->outputs);
    ND_TRY_MEMORY(work->inputs != NULL && work->outputs != NULL, err);
    ND_TRY(make_context(work, &exit, err));
    ND_TRY(read_spool(work, err));
    if (exit.error.id != 0) { /* it died without a word */
        if (err != NULL)
            *err = exit.error;
        return exit.error.status;
    }
    ND_TRY(check_context(work, err));
    ND_TRY(keep(work, ND_PREPARED_BINARY, err));
    return keep(work, ND_PREPARED_ONNX, err);
}
