/* One part of the model: cutting it out, feeding it, running it, judging it. */
#include "improve/reduce/candidate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zip.h>

#include "core/error.h"
#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "devices/device.h"
#include "improve/reduce/candidate_failure.h"
#include "improve/reduce/difference.h"
#include "improve/reduce/reducer.h"
#include "model/graph/parts.h"

static const char *descr(enum nd_dtype dtype)
{
    switch (dtype) {
    case ND_DTYPE_F32:
        return "<f4";
    case ND_DTYPE_F64:
        return "<f8";
    case ND_DTYPE_F16:
        return "<f2";
    case ND_DTYPE_U8:
        return "|u1";
    case ND_DTYPE_I8:
        return "|i1";
    case ND_DTYPE_U16:
        return "<u2";
    case ND_DTYPE_I16:
        return "<i2";
    case ND_DTYPE_U32:
        return "<u4";
    case ND_DTYPE_I32:
        return "<i4";
    case ND_DTYPE_U64:
        return "<u8";
    case ND_DTYPE_I64:
        return "<i8";
    case ND_DTYPE_BOOL:
        return "|b1";
    default:
        return NULL;
    }
}

enum { PREFIX_BYTES = 10, ALIGNMENT = 64 };

/* Everything before the data, padded so that the data is aligned. */
static void put_header(struct nd_strbuf *out, const struct nd_npz_array *array)
{
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf text = {0};
    nd_strbuf_printf(&text, "{'descr': '%s', 'fortran_order': False, 'shape': (%zu,", descr(array->dtype),
                     array->n_samples);
    for (int d = 0; d < array->shape.rank; d++)
        nd_strbuf_printf(&text, "%s%lld", d > 0 ? ", " : " ", (long long)array->shape.dims[d]);
    nd_strbuf_puts(&text, "), }");
    while (!text.failed && (PREFIX_BYTES + text.len + 1) % ALIGNMENT != 0)
        nd_strbuf_puts(&text, " ");
    nd_strbuf_puts(&text, "\n");
    const char prefix[PREFIX_BYTES] = {
        '\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, (char)(text.len & 0xff), (char)(text.len >> 8 & 0xff)};
    nd_strbuf_append(out, prefix, sizeof prefix);
    nd_strbuf_append(out, text.text, text.len);
    out->failed = out->failed || text.failed;
}

static enum nd_status add_array(zip_t *zip, const char *path, const struct nd_npz_array *array,
                                struct nd_error *err)
{
    const zip_int64_t day_one = 315532800; /* 1980-01-01, the first that zip knows */
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf file = {0}, name = {0};
    if (descr(array->dtype) == NULL)
        return nd_fail(err, ND_E_MODEL_UNSUPPORTED, array->name, "'%s' is %s, which NumPy's files lack",
                       array->name, nd_dtype_name(array->dtype));
    put_header(&file, array);
    nd_strbuf_append(&file, array->data, array->size_bytes);
    nd_strbuf_printf(&name, "%s.npy", array->name);
    bool is_whole = !file.failed && !name.failed;
    zip_source_t *source = is_whole ? zip_source_buffer(zip, file.text, file.len, 1) : NULL;
    enum nd_status status = is_whole && source != NULL ? ND_OK : nd_fail_memory(err);
    if (source != NULL) {
        file = (struct nd_strbuf){0}; /* the source frees it */
        zip_int64_t index = zip_file_add(zip, name.text, source, ZIP_FL_ENC_UTF_8);
        bool is_added = index >= 0 &&
                        zip_set_file_compression(zip, (zip_uint64_t)index, ZIP_CM_STORE, 0) == 0 &&
                        zip_file_set_mtime(zip, (zip_uint64_t)index, day_one, 0) == 0;
        if (index < 0)
            zip_source_free(source);
        if (!is_added)
            status = nd_fail(err, ND_E_FILE_WRITE, path, "cannot write '%s': %s", path, zip_strerror(zip));
    }
    return status;
}

enum nd_status nd_npz_write(const char *path, const struct nd_npz_array *arrays, size_t n_arrays,
                            struct nd_error *err)
{
    int code = 0;
    enum nd_status status = ND_OK;
    zip_t *zip = zip_open(path, ZIP_CREATE | ZIP_EXCL, &code);
    if (zip == NULL)
        return nd_fail(err, ND_E_FILE_WRITE, path, "cannot create '%s'", path);
    for (size_t i = 0; status == ND_OK && i < n_arrays; i++)
        status = add_array(zip, path, &arrays[i], err);
    if (status != ND_OK) {
        zip_discard(zip);
        return status;
    }
    if (zip_close(zip) != 0) {
        status = nd_fail(err, ND_E_FILE_WRITE, path, "cannot write '%s': %s", path, zip_strerror(zip));
        zip_discard(zip);
    }
    return status;
}

/* ---- sessions ---- */

void nd_run_deinit(struct nd_run *run)
{
    nd_capture_close(&run->capture);
    *run = (struct nd_run){0};
}

static void tell(const struct nd_reducer *reducer)
{
    const struct nd_reduce_options *options = reducer->options;
    if (options->progress == NULL)
        return;
    const struct nd_reduce_progress progress = {.step = reducer->step,
                                                .n_sessions = reducer->out->n_sessions,
                                                .session_limit = options->session_limit,
                                                .n_left = reducer->n_left,
                                                .n_tried = reducer->n_tried};
    options->progress(options->progress_context, &progress);
}

enum nd_status nd_reducer_run(struct nd_reducer *reducer, const struct nd_session *session, struct nd_run *run,
                              struct nd_error *err)
{
    const struct nd_reduce_options *given = reducer->options;
    struct nd_capture_options options;
    nd_capture_options_init(&options);
    options.tensors = session->tensors;
    options.replace = options.skips_untouched = true;
    /* References compute on the CPU anyway. */
    options.allow_fallback = given->allow_fallback || session->device != reducer->device;
    options.agent = given->agent;
    options.is_cancelled = given->is_cancelled;
    options.cancel_context = given->cancel_context;
    if (given->time_limit_s > 0)
        options.time_limit_s = given->time_limit_s;
    *run = (struct nd_run){0};
    ND_FREED char *path = nd_path_join(session->folder, session->name);
    ND_TRY_MEMORY(path != NULL, err);
    tell(reducer);
    reducer->out->n_sessions++;
    const struct nd_workload workload = {session->model, session->device, session->probes, session->n_probes};
    ND_TRY(nd_capture_run(&workload, path, &options, &run->outcome, err));
    return nd_capture_open(path, &run->capture, err);
}

/* ---- cutting out ---- */

struct feed {
    struct nd_npz_array *arrays;
    void **data;
    size_t n;
};

static void feed_deinit(struct feed *feed)
{
    for (size_t i = 0; feed->data != NULL && i < feed->n; i++)
        free(feed->data[i]);
    ND_FREE_ALL(feed->data, feed->arrays);
}

static enum nd_status fill_input(struct nd_smaller_model *candidate, const struct nd_reducer *reducer, size_t i,
                                 struct feed *feed, struct nd_error *err)
{
    const struct nd_model_io *input = nd_model_input(candidate->model, i);
    const struct nd_recorded *recorded = &reducer->recorded;
    size_t size = 0, total = 0;
    enum nd_status status = nd_shape_size_bytes(&input->shape, input->dtype, &size, err);
    if (status == ND_OK && !nd_size_mul(size, recorded->n_samples, &total))
        status = nd_fail_memory(err);
    if (status != ND_OK)
        return status;
    ND_TRY_MEMORY((feed->data[i] = nd_tensor_alloc(total)) != NULL, err);
    feed->arrays[i] = (struct nd_npz_array){.name = input->name,
                                            .dtype = input->dtype,
                                            .shape = input->shape,
                                            .n_samples = recorded->n_samples,
                                            .data = feed->data[i],
                                            .size_bytes = total};
    for (size_t s = 0; status == ND_OK && s < recorded->n_samples; s++) {
        bool is_found = false;
        const struct nd_wanted_record wanted = {input->name, s, input->dtype,
                                                (unsigned char *)feed->data[i] + s * size, size};
        status = nd_recorded_read(recorded, &wanted, &is_found, err);
        candidate->is_all_recorded = candidate->is_all_recorded && is_found;
    }
    return status;
}

static enum nd_status write_inputs(struct nd_smaller_model *candidate, const struct nd_reducer *reducer,
                                   const char *path, struct nd_error *err)
{
    ND_CLEANUP(feed_deinit) struct feed feed = {.n = nd_model_n_inputs(candidate->model)};
    feed.arrays = nd_calloc(feed.n, sizeof *feed.arrays);
    feed.data = nd_calloc(feed.n, sizeof *feed.data);
    enum nd_status status = feed.arrays != NULL && feed.data != NULL ? ND_OK : nd_fail_memory(err);
    candidate->is_all_recorded = true;
    for (size_t i = 0; status == ND_OK && i < feed.n; i++)
        status = fill_input(candidate, reducer, i, &feed, err);
    if (status == ND_OK)
        status = nd_npz_write(path, feed.arrays, feed.n, err);
    return status;
}

static enum nd_status make_probe(struct nd_smaller_model *candidate, const struct nd_reducer *reducer,
                                 struct nd_error *err)
{
    if (nd_model_n_inputs(candidate->model) == 0) {
        const char *nothing = "zeros";
        return nd_probes_for_model_any(candidate->model, &nothing, 1, &candidate->probe, err);
    }
    ND_FREED char *path = nd_path_join(candidate->folder, "inputs.npz");
    size_t size = path != NULL ? strlen(path) + 16 : 0;
    ND_FREED char *spec = path != NULL ? malloc(size) : NULL;
    enum nd_status status = spec != NULL ? write_inputs(candidate, reducer, path, err) : nd_fail_memory(err);
    if (status == ND_OK) {
        snprintf(spec, size, "inputs=%s", path);
        const char *const specs[] = {spec};
        status = nd_probes_for_model_any(candidate->model, specs, 1, &candidate->probe, err);
    }
    return status;
}

static bool has_wanted(const struct nd_reducer *reducer, const struct nd_model_cut *cut)
{
    for (size_t i = 0; i < cut->n_nodes; i++)
        if (cut->nodes[i] == reducer->wanted_node)
            return true;
    return reducer->wanted_node == SIZE_MAX;
}

enum nd_status nd_candidate_init(struct nd_smaller_model *candidate, const struct nd_reducer *reducer,
                                 const struct nd_model_cut *part, const char *folder, struct nd_error *err)
{
    struct nd_model_cut cut = *part;
    cut.known = reducer->recorded.known;
    cut.n_known = reducer->recorded.n_known;
    cut.output = reducer->wanted_tensor;
    *candidate = (struct nd_smaller_model){.folder = nd_strdup(folder)};
    ND_TRY_MEMORY(candidate->folder != NULL, err);
    if (!has_wanted(reducer, &cut))
        return nd_fail(err, ND_E_MODEL_NO_TENSOR, reducer->options->tensor, "tensor '%s' is not in it",
                       reducer->options->tensor);
    ND_TRY(nd_dir_make(folder, err));
    ND_FREED char *path = nd_path_join(folder, "reproducer.onnx");
    ND_TRY_MEMORY(path != NULL, err);
    ND_TRY(nd_model_write_subgraph(reducer->model, &cut, path, err));
    ND_TRY(nd_model_load(path, &candidate->model, err));
    ND_TRY(nd_model_check_static(candidate->model, err));
    return make_probe(candidate, reducer, err);
}

void nd_candidate_deinit(struct nd_smaller_model *candidate)
{
    nd_probe_destroy(&candidate->probe);
    nd_model_destroy(&candidate->model);
    free(candidate->folder);
    *candidate = (struct nd_smaller_model){0};
}

struct nd_session nd_candidate_session(const struct nd_smaller_model *candidate, const struct nd_device *device,
                                       const char *tensors, const char *name)
{
    return (struct nd_session){.model = candidate->model,
                               .device = device,
                               .probes = (const struct nd_probe *const *)&candidate->probe,
                               .n_probes = 1,
                               .tensors = tensors,
                               .folder = candidate->folder,
                               .name = name};
}

const char *nd_reducer_plain_tensors(const struct nd_reducer *reducer)
{
    return nd_device_is_evaluated(reducer->device->kind) ? "outputs" : "none";
}

/* ---- judging ---- */

/* What it gave, held against what was recorded, or against what the other device made of the same part. */
static enum nd_status worst_output(const struct nd_reducer *reducer, const struct nd_recorded *expected,
                                   const struct nd_capture *capture, struct nd_reduction_difference *out,
                                   struct nd_error *err)
{
    bool is_first = true;
    *out = (struct nd_reduction_difference){.max_lsb = NAN};
    for (size_t e = 0; e < nd_capture_n_tensors(capture); e++) {
        struct nd_reduction_difference one;
        const char *tensor = nd_capture_tensor(capture, e)->onnx_name;
        if (reducer->wanted_tensor != NULL && strcmp(tensor, reducer->wanted_tensor) != 0)
            continue;
        ND_TRY(nd_difference_of_tensor(expected, capture, e, true, &one, err));
        if (!isnan(one.fraction) && (is_first || nd_difference_is_worse(&one, out))) {
            *out = one;
            is_first = false;
        }
    }
    return ND_OK;
}

static enum nd_status judge_difference(struct nd_reducer *reducer, const struct nd_smaller_model *candidate,
                                       const struct nd_capture *capture, struct nd_reduction_difference *out,
                                       struct nd_error *err)
{
    const struct nd_device *against = reducer->options->against;
    if (against == NULL)
        return worst_output(reducer, &reducer->recorded, capture, out, err);
    ND_CLEANUP(nd_run_deinit) struct nd_run run = {0};
    ND_CLEANUP(nd_recorded_deinit) struct nd_recorded expected = {.n_samples = reducer->recorded.n_samples};
    const struct nd_session session = nd_candidate_session(candidate, against, "outputs", "reference.h5");
    ND_TRY(nd_reducer_run(reducer, &session, &run, err));
    if (!run.outcome.has_failed)
        ND_TRY(nd_recorded_add(&expected, &run.capture, true, err));
    return worst_output(reducer, &expected, capture, out, err);
}

static enum nd_status judge(struct nd_reducer *reducer, const struct nd_smaller_model *candidate,
                            const struct nd_run *run, enum nd_trial *trial,
                            struct nd_reduction_difference *difference, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    *trial = ND_TRIAL_NOT;
    if (run->outcome.has_failed) {
        struct nd_reduction_failure failure;
        nd_failure_read(&run->outcome, run->capture, &failure);
        if (!reducer->options->has_difference && nd_failure_is_same(&failure, &reducer->out->failure))
            *trial = ND_TRIAL_SAME;
        else
            reducer->out->n_other++;
    } else if (reducer->options->has_difference) {
        status = judge_difference(reducer, candidate, run->capture, difference, err);
        if (status == ND_OK && nd_difference_exceeds(difference, reducer->options))
            *trial = ND_TRIAL_SAME;
    }
    reducer->out->n_same += *trial == ND_TRIAL_SAME;
    reducer->out->n_fine += status == ND_OK && *trial == ND_TRIAL_NOT && !run->outcome.has_failed;
    return status;
}

enum nd_status nd_candidate_try(struct nd_reducer *reducer, const struct nd_smaller_model *candidate,
                                size_t reserve, enum nd_trial *trial,
                                struct nd_reduction_difference *difference, struct nd_error *err)
{
    size_t n_needed = reserve + (reducer->options->has_difference && reducer->options->against != NULL ? 2 : 1);
    *difference = (struct nd_reduction_difference){.max_lsb = NAN};
    *trial = ND_TRIAL_STOP;
    if (reducer->out->n_sessions + n_needed > reducer->options->session_limit)
        return ND_OK;
    ND_CLEANUP(nd_run_deinit) struct nd_run run = {0};
    const struct nd_session session = nd_candidate_session(
        candidate, reducer->device,
        reducer->options->has_difference ? "outputs" : nd_reducer_plain_tensors(reducer), "device.h5");
    enum nd_status status = nd_reducer_run(reducer, &session, &run, err);
    if (status == ND_OK) {
        status = judge(reducer, candidate, &run, trial, difference, err);
    } else if (status == ND_ERR_NOT_FOUND || status == ND_ERR_UNSUPPORTED || status == ND_ERR_USAGE) {
        /* Not for this device, or without a tensor that could differ: no agent was started. */
        reducer->out->n_sessions--;
        reducer->out->n_uncut++;
        *trial = ND_TRIAL_NOT;
        status = ND_OK;
    }
    return status;
}
