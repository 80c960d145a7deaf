/* Writes the probes of a capture: inputs, outputs, repeats, digests. docs/reference/capture-format.md. */
#include <stdlib.h>
#include <string.h>

#include "capture/read/capture_internal.h"
#include "capture/read/schema.h"
#include "capture/write/write_internal.h"
#include "core/memory.h"

static void nd_writer_dataset_destroy(struct nd_capture_dataset **dataset_at)
{
    struct nd_capture_dataset *dataset = *dataset_at;
    if (dataset == NULL)
        return;
    if (dataset->id >= 0)
        H5Dclose(dataset->id);
    H5Tclose(dataset->type);
    H5Eclear2(H5E_DEFAULT);
    free(dataset->path);
    free(dataset->is_stored);
    free(dataset);
    *dataset_at = NULL;
}

void nd_capture_dataset_destroy(struct nd_capture_dataset **dataset)
{
    nd_hdf5_lock();
    nd_writer_dataset_destroy(dataset);
    nd_hdf5_unlock();
}

static enum nd_status nd_writer_dataset_begin(struct nd_capture_writer *writer,
                                              const struct nd_writer_tensor *tensor,
                                              const struct nd_chunk_layout *layout,
                                              struct nd_capture_dataset **out, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    char *group = nd_name_probe_path(tensor->probe, tensor->part, NULL);
    struct nd_capture_dataset *dataset = nd_calloc(1, sizeof *dataset);
    if (dataset == NULL || group == NULL) {
        free(dataset);
        free(group);
        return nd_fail_memory(err);
    }
    *dataset = (struct nd_capture_dataset){
        .writer = writer, .id = H5I_INVALID_HID, .layout = *layout, .level = writer->level};
    dataset->path = nd_name_probe_path(tensor->probe, tensor->part, tensor->name);
    dataset->is_stored = nd_calloc(layout->n_chunks, 1);
    dataset->type = nd_hdf5_type_make(tensor->dtype);
    if (dataset->path == NULL || dataset->is_stored == NULL)
        status = nd_fail_memory(err);
    else if (dataset->type < 0)
        status = nd_fail(err, ND_E_CAPTURE_SCHEMA, dataset->path, "'%s' has no element type", dataset->path);
    if (status == ND_OK)
        status = nd_writer_group(writer, group, err);
    bool is_chunked = writer->level > 0 && layout->n_chunks > 0;
    const struct nd_writer_extent extent = {&layout->dataset, is_chunked ? &layout->chunk : NULL};
    if (status == ND_OK)
        status = nd_writer_make(writer, dataset->path, dataset->type, &extent, &dataset->id, err);
    if (status == ND_OK && nd_index_stored_dtype(tensor->dtype) != tensor->dtype)
        status = nd_writer_put_text(dataset->id, dataset->path, "dtype", nd_dtype_name(tensor->dtype), err);
    free(group);
    if (status == ND_OK)
        *out = dataset;
    else
        nd_writer_dataset_destroy(&dataset);
    return status;
}

/* Without filters the chunks are only a way to deliver the data: a contiguous dataset takes them as blocks. */
static herr_t write_block(struct nd_capture_dataset *dataset, const struct nd_chunk_span *span,
                          const void *data)
{
    const struct nd_shape *shape = &dataset->layout.dataset, *chunk = &dataset->layout.chunk;
    hsize_t start[ND_MAX_RANK], count[ND_MAX_RANK];
    for (int i = 0; i < shape->rank; i++) {
        int64_t left = shape->dims[i] - span->start[i];
        start[i] = (hsize_t)span->start[i];
        count[i] = (hsize_t)(left < chunk->dims[i] ? left : chunk->dims[i]);
    }
    hid_t file_space = H5Dget_space(dataset->id);
    hid_t memory_space = H5Screate_simple(shape->rank, count, NULL);
    herr_t rc = -1;
    if (H5Sselect_hyperslab(file_space, H5S_SELECT_SET, start, NULL, count, NULL) >= 0)
        rc = H5Dwrite(dataset->id, dataset->type, memory_space, file_space, H5P_DEFAULT, data);
    H5Sclose(memory_space);
    H5Sclose(file_space);
    return rc;
}

static enum nd_status dataset_chunk(struct nd_capture_dataset *dataset, size_t index, const void *stored,
                                    size_t stored_bytes, struct nd_error *err)
{
    const char *path = dataset->path;
    if (index >= dataset->layout.n_chunks || dataset->is_stored[index] != 0)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, path, "chunk %zu of '%s' is not one that is missing", index,
                       path);
    struct nd_chunk_span span;
    nd_chunk_span(&dataset->layout, index, &span);
    if (dataset->level == 0 && stored_bytes != span.n_bytes)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, path, "chunk %zu of '%s' has %zu bytes instead of %zu", index,
                       path, stored_bytes, span.n_bytes);
    enum nd_status status = nd_writer_reserve(dataset->writer, dataset->level > 0 ? stored_bytes : 0, err);
    if (status != ND_OK)
        return status;
    herr_t rc;
    if (dataset->level == 0)
        rc = write_block(dataset, &span, stored);
    else {
        hsize_t start[ND_MAX_RANK];
        for (int i = 0; i < dataset->layout.dataset.rank; i++)
            start[i] = (hsize_t)span.start[i];
        rc = H5Dwrite_chunk(dataset->id, H5P_DEFAULT, 0, start, stored_bytes, stored);
    }
    if (rc < 0)
        return nd_hdf5_fail(err, ND_E_CAPTURE_HDF5, path, "cannot write chunk %zu of '%s'", index, path);
    dataset->is_stored[index] = 1;
    dataset->n_stored++;
    return ND_OK;
}

static enum nd_status nd_writer_dataset_end(struct nd_capture_dataset **dataset_at, struct nd_error *err)
{
    struct nd_capture_dataset *dataset = *dataset_at;
    enum nd_status status = ND_OK;
    if (dataset->n_stored != dataset->layout.n_chunks)
        status = nd_fail(err, ND_E_CAPTURE_SCHEMA, dataset->path, "'%s' has %zu of its %zu chunks",
                         dataset->path, dataset->n_stored, dataset->layout.n_chunks);
    if (H5Dclose(dataset->id) < 0 && status == ND_OK)
        status = nd_hdf5_fail(err, ND_E_CAPTURE_HDF5, dataset->path, "cannot write '%s'", dataset->path);
    dataset->id = H5I_INVALID_HID;
    nd_writer_dataset_destroy(dataset_at);
    return status;
}

/* All chunks of a tensor that lies in memory. */
static enum nd_status nd_writer_dataset_fill(struct nd_capture_dataset *dataset, const unsigned char *data,
                                             struct nd_error *err)
{
    const struct nd_chunk_layout *layout = &dataset->layout;
    enum nd_status status = ND_OK;
    unsigned char *padded = nd_calloc(layout->chunk_bytes, 1);
    unsigned char *stored = nd_calloc(nd_chunk_bound(layout->chunk_bytes), 1);
    if (padded == NULL || stored == NULL)
        status = nd_fail_memory(err);
    for (size_t i = 0; i < layout->n_chunks && status == ND_OK; i++) {
        struct nd_chunk_span span;
        nd_chunk_span(layout, i, &span);
        const unsigned char *raw = data + span.first_sample * layout->sample_bytes + span.offset_bytes;
        size_t stored_bytes = span.n_bytes;
        if (dataset->level > 0) {
            memcpy(padded, raw, span.n_bytes);
            memset(padded + span.n_bytes, 0, layout->chunk_bytes - span.n_bytes);
            status = nd_chunk_encode(layout, padded, dataset->level, stored, &stored_bytes, err);
        }
        if (status == ND_OK)
            status = dataset_chunk(dataset, i, dataset->level > 0 ? stored : raw, stored_bytes, err);
    }
    free(padded);
    free(stored);
    return status;
}

enum nd_status nd_capture_writer_chunk(struct nd_capture_dataset *dataset, size_t index, const void *stored,
                                       size_t stored_bytes, struct nd_error *err)
{
    nd_hdf5_lock();
    enum nd_status status = dataset_chunk(dataset, index, stored, stored_bytes, err);
    nd_hdf5_unlock();
    return status;
}

enum nd_status nd_capture_writer_outputs_end(struct nd_capture_dataset **dataset, struct nd_error *err)
{
    nd_hdf5_lock();
    enum nd_status status = nd_writer_dataset_end(dataset, err);
    nd_hdf5_unlock();
    return status;
}

/* Larger tables of quantisation parameters are in /edges only. */
enum { MAX_QUANT_ATTR = 4096 };

static enum nd_status put_probe_attrs(struct nd_capture_writer *writer, const char *path,
                                      const struct nd_capture_probe *probe, struct nd_error *err)
{
    const struct {
        const char *key;
        int64_t value;
    } numbers[] = {{"index", writer->n_probes},
                   {"n_inputs", (int64_t)probe->n_inputs},
                   {"n_repeats", (int64_t)probe->n_repeats},
                   {"n_samples", (int64_t)probe->n_samples},
                   {"n_samples_expected", (int64_t)probe->n_samples_expected}};
    hid_t group = H5Gopen2(writer->file, path, H5P_DEFAULT);
    if (group < 0)
        return nd_hdf5_fail(err, ND_E_CAPTURE_HDF5, path, "cannot open group '%s'", path);
    enum nd_status status =
        nd_writer_put_text(group, path, "source", probe->source != NULL ? probe->source : "", err);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0] && status == ND_OK; i++)
        status = nd_writer_put_i64(group, path, numbers[i].key, numbers[i].value, err);
    H5Gclose(group);
    return status;
}

static enum nd_status put_latency(struct nd_capture_writer *writer, const struct nd_capture_probe *probe,
                                  struct nd_error *err)
{
    struct nd_shape shape = {.rank = 2, .dims = {(int64_t)probe->n_samples, (int64_t)probe->n_repeats}};
    size_t n;
    enum nd_status status = nd_shape_n_elems(&shape, &n, err);
    if (status != ND_OK)
        return status;
    double *unknown = NULL;
    if (probe->latency_us == NULL) {
        const uint64_t nan_bits = UINT64_C(0x7ff8000000000000);
        unknown = nd_calloc(n, sizeof *unknown);
        if (unknown == NULL)
            return nd_fail_memory(err);
        for (size_t i = 0; i < n; i++)
            memcpy(&unknown[i], &nan_bits, sizeof nan_bits);
    }
    status = nd_writer_put(writer, nd_name_probe_path(probe->name, "latency_us", NULL), ND_DTYPE_F64, &shape,
                           unknown != NULL ? unknown : probe->latency_us, err);
    free(unknown);
    return status;
}

/* Zeros, which commit overwrites: then all digests are there. */
static enum nd_status reserve_tensor_digests(struct nd_capture_writer *writer,
                                             const struct nd_capture_probe *probe, struct nd_error *err)
{
    const struct nd_shape shape = {.rank = 2, .dims = {(int64_t)writer->n_tensors, 2}};
    struct nd_digest *zeros = nd_calloc(writer->n_tensors, sizeof *zeros);
    if (zeros == NULL)
        return nd_fail_memory(err);
    enum nd_status status = nd_writer_put(writer, nd_name_probe_path(probe->name, ND_TENSOR_DIGESTS, NULL),
                                          ND_DTYPE_U64, &shape, zeros, err);
    free(zeros);
    return status;
}

enum nd_status nd_capture_writer_probe(struct nd_capture_writer *writer, const struct nd_capture_probe *probe,
                                       struct nd_error *err)
{
    char *path = nd_name_path("/probes", probe->name);
    if (path == NULL)
        return nd_fail_memory(err);
    nd_hdf5_lock();
    enum nd_status status = ND_OK;
    if (H5Lexists(writer->file, path, H5P_DEFAULT) > 0)
        status = nd_fail(err, ND_E_CAPTURE_SCHEMA, path, "probe '%s' is given twice", probe->name);
    if (status == ND_OK)
        status = nd_writer_group(writer, path, err);
    if (status == ND_OK)
        status = put_probe_attrs(writer, path, probe, err);
    if (status == ND_OK)
        status = put_latency(writer, probe, err);
    struct nd_shape labels = {.rank = 1, .dims = {(int64_t)probe->n_samples_expected}};
    if (status == ND_OK && probe->labels != NULL)
        status = nd_writer_put(writer, nd_name_probe_path(probe->name, "labels", NULL), ND_DTYPE_I64, &labels,
                               probe->labels, err);
    if (status == ND_OK && writer->n_tensors > 0 &&
        probe->n_samples > 1) /* one sample: nothing would be stated */
        status = reserve_tensor_digests(writer, probe, err);
    if (status == ND_OK)
        writer->n_probes++;
    nd_hdf5_unlock();
    free(path);
    return status;
}

static enum nd_status put_input(struct nd_capture_writer *writer, const struct nd_capture_probe *probe,
                                size_t input, const void *data, struct nd_error *err)
{
    const struct nd_capture_input *of = &probe->inputs[input];
    struct nd_capture_dataset *dataset = NULL;
    struct nd_chunk_layout layout;
    struct nd_digest *digests = NULL;
    char *group = NULL;
    enum nd_status status =
        nd_chunk_layout_make(&of->shape, of->dtype, probe->n_samples_expected, &layout, err);
    if (status != ND_OK)
        goto out;
    const struct nd_writer_tensor tensor = {probe->name, "inputs", of->name, of->dtype};
    status = nd_writer_dataset_begin(writer, &tensor, &layout, &dataset, err);
    if (status == ND_OK)
        status = nd_writer_put_i64(dataset->id, dataset->path, "index", (int64_t)input, err);
    if (status == ND_OK)
        status = nd_writer_dataset_fill(dataset, data, err);
    if (status == ND_OK)
        status = nd_writer_dataset_end(&dataset, err);
    if (status != ND_OK)
        goto out;
    digests = nd_calloc(probe->n_samples_expected, sizeof *digests);
    group = nd_name_probe_path(probe->name, "input_digests", NULL);
    if (digests == NULL || group == NULL) {
        status = nd_fail_memory(err);
        goto out;
    }
    for (size_t i = 0; i < probe->n_samples_expected; i++)
        digests[i] =
            nd_digest_bytes((const unsigned char *)data + i * layout.sample_bytes, layout.sample_bytes);
    struct nd_shape shape = {.rank = 2, .dims = {(int64_t)probe->n_samples_expected, 2}};
    status = nd_writer_group(writer, group, err);
    if (status == ND_OK)
        status = nd_writer_put(writer, nd_name_probe_path(probe->name, "input_digests", of->name), ND_DTYPE_U64,
                               &shape, digests, err);
out:
    nd_writer_dataset_destroy(&dataset);
    free(digests);
    free(group);
    return status;
}

enum nd_status nd_capture_writer_input(struct nd_capture_writer *writer, const struct nd_capture_probe *probe,
                                       size_t input, const void *data, struct nd_error *err)
{
    nd_hdf5_lock();
    enum nd_status status = put_input(writer, probe, input, data, err);
    nd_hdf5_unlock();
    return status;
}

static enum nd_status put_digests(struct nd_capture_writer *writer, const struct nd_capture_probe *probe,
                                  const struct nd_tensor *tensor, const struct nd_digest *digests,
                                  struct nd_error *err)
{
    struct nd_shape shape = {.rank = 3, .dims = {(int64_t)probe->n_samples, (int64_t)probe->n_repeats, 2}};
    char *group = nd_name_probe_path(probe->name, "digests", NULL);
    if (group == NULL)
        return nd_fail_memory(err);
    enum nd_status status = nd_writer_group(writer, group, err);
    if (status == ND_OK)
        status = nd_writer_put(writer, nd_name_probe_path(probe->name, "digests", tensor->name), ND_DTYPE_U64,
                               &shape, digests, err);
    free(group);
    return status;
}

enum nd_status nd_capture_writer_digests(struct nd_capture_writer *writer, const struct nd_capture_probe *probe,
                                         const struct nd_tensor *tensor, const struct nd_digest *digests,
                                         struct nd_error *err)
{
    nd_hdf5_lock();
    enum nd_status status = put_digests(writer, probe, tensor, digests, err);
    nd_hdf5_unlock();
    return status;
}

/* What a person with h5py needs to turn quantised values into numbers, on the spot. */
static enum nd_status put_quant(struct nd_capture_dataset *dataset, const struct nd_tensor *tensor,
                                const char *provider, struct nd_error *err)
{
    const struct nd_quant *quant = &tensor->quant;
    enum nd_status status = nd_writer_put_text(dataset->id, dataset->path, "provider", provider, err);
    if (status != ND_OK || quant->n == 0)
        return status;
    status = nd_writer_put_i64(dataset->id, dataset->path, "axis", quant->axis, err);
    if (status != ND_OK || quant->n > MAX_QUANT_ATTR)
        return status;
    struct nd_writer_attr scale = {"scale", ND_DTYPE_F32, false, quant->n, quant->scale};
    struct nd_writer_attr zero_point = {"zero_point", ND_DTYPE_I64, false, quant->n, quant->zero_point};
    status = nd_writer_put_attr(dataset->id, dataset->path, &scale, err);
    if (status == ND_OK)
        status = nd_writer_put_attr(dataset->id, dataset->path, &zero_point, err);
    return status;
}

enum nd_status nd_capture_output_layout(const struct nd_capture_probe *probe, const struct nd_tensor *tensor,
                                        struct nd_chunk_layout *out, struct nd_error *err)
{
    enum nd_status status =
        nd_chunk_layout_make(&tensor->shape, tensor->dtype, probe->n_samples_expected, out, err);
    if (status == ND_OK)
        nd_chunk_layout_shorten(out, probe->n_samples);
    return status;
}

static enum nd_status begin_outputs(struct nd_capture_writer *writer, const struct nd_capture_output *output,
                                    struct nd_capture_dataset **out, struct nd_error *err)
{
    const struct nd_tensor *tensor = output->tensor;
    const struct nd_writer_tensor item = {output->probe->name, "outputs", tensor->name, tensor->dtype};
    struct nd_chunk_layout layout;
    enum nd_status status = ND_OK;
    if (output->layout != NULL)
        layout = *output->layout;
    else
        status = nd_capture_output_layout(output->probe, tensor, &layout, err);
    if (status == ND_OK)
        status = nd_writer_dataset_begin(writer, &item, &layout, out, err);
    if (status == ND_OK)
        status = put_quant(*out, tensor, output->provider != NULL ? output->provider : "", err);
    if (status != ND_OK)
        nd_writer_dataset_destroy(out);
    return status;
}

enum nd_status nd_capture_writer_outputs_begin(struct nd_capture_writer *writer,
                                               const struct nd_capture_output *output,
                                               struct nd_capture_dataset **out, struct nd_error *err)
{
    struct nd_capture_dataset *dataset = NULL;
    nd_hdf5_lock();
    enum nd_status status = begin_outputs(writer, output, &dataset, err);
    nd_hdf5_unlock();
    if (status == ND_OK)
        *out = dataset;
    return status;
}

enum nd_status nd_capture_writer_outputs(struct nd_capture_writer *writer,
                                         const struct nd_capture_output *output, const void *data,
                                         struct nd_error *err)
{
    struct nd_capture_dataset *dataset = NULL;
    nd_hdf5_lock();
    enum nd_status status = begin_outputs(writer, output, &dataset, err);
    if (status == ND_OK)
        status = nd_writer_dataset_fill(dataset, data, err);
    if (status == ND_OK)
        status = nd_writer_dataset_end(&dataset, err);
    nd_writer_dataset_destroy(&dataset);
    nd_hdf5_unlock();
    return status;
}

static enum nd_status put_repeats(struct nd_capture_writer *writer, const struct nd_capture_probe *probe,
                                  const struct nd_tensor *tensor, const struct nd_capture_repeats *repeats,
                                  struct nd_error *err)
{
    bool is_rerun = probe->n_repeats < 2;
    const char *index_name = is_rerun ? "rerun_index" : "repeat_index";
    const struct nd_writer_tensor item = {probe->name, is_rerun ? "reruns" : "repeats", tensor->name,
                                          tensor->dtype};
    size_t n = repeats->n;
    struct nd_capture_dataset *dataset = NULL;
    struct nd_chunk_layout layout;
    int64_t(*index)[2] = NULL;
    char *group = NULL;
    enum nd_status status = nd_chunk_layout_make(&tensor->shape, tensor->dtype, n, &layout, err);
    if (status != ND_OK)
        goto out;
    status = nd_writer_dataset_begin(writer, &item, &layout, &dataset, err);
    if (status == ND_OK)
        status = nd_writer_dataset_fill(dataset, repeats->data, err);
    if (status == ND_OK)
        status = nd_writer_dataset_end(&dataset, err);
    if (status != ND_OK)
        goto out;
    index = nd_calloc(n, sizeof *index);
    group = nd_name_probe_path(probe->name, index_name, NULL);
    if (index == NULL || group == NULL) {
        status = nd_fail_memory(err);
        goto out;
    }
    for (size_t i = 0; i < n; i++) {
        index[i][0] = (int64_t)repeats->sample_repeat[i][0];
        index[i][1] = (int64_t)repeats->sample_repeat[i][1];
    }
    struct nd_shape shape = {.rank = 2, .dims = {(int64_t)n, 2}};
    status = nd_writer_group(writer, group, err);
    if (status == ND_OK)
        status = nd_writer_put(writer, nd_name_probe_path(probe->name, index_name, tensor->name), ND_DTYPE_I64,
                               &shape, index, err);
out:
    nd_writer_dataset_destroy(&dataset);
    free(index);
    free(group);
    return status;
}

enum nd_status nd_capture_writer_repeats(struct nd_capture_writer *writer, const struct nd_capture_probe *probe,
                                         const struct nd_tensor *tensor,
                                         const struct nd_capture_repeats *repeats, struct nd_error *err)
{
    if (repeats->n == 0)
        return ND_OK;
    nd_hdf5_lock();
    enum nd_status status = put_repeats(writer, probe, tensor, repeats, err);
    nd_hdf5_unlock();
    return status;
}

static enum nd_status put_reruns(struct nd_capture_writer *writer, const struct nd_capture_probe *probe,
                                 const struct nd_capture_reruns *reruns, struct nd_error *err)
{
    struct nd_shape shape = {.rank = 2, .dims = {(int64_t)reruns->n, 2}};
    struct nd_shape digests = {.rank = 3, .dims = {(int64_t)reruns->n, (int64_t)reruns->n_tensors, 2}};
    int64_t(*runs)[2] = nd_calloc(reruns->n, sizeof *runs);
    if (runs == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < reruns->n; i++) {
        runs[i][0] = (int64_t)reruns->sample_repeat[i][0];
        runs[i][1] = (int64_t)reruns->sample_repeat[i][1];
    }
    enum nd_status status = nd_writer_put(writer, nd_name_probe_path(probe->name, "rerun_samples", NULL),
                                          ND_DTYPE_I64, &shape, runs, err);
    if (status == ND_OK)
        status = nd_writer_put(writer, nd_name_probe_path(probe->name, "rerun_digests", NULL), ND_DTYPE_U64,
                               &digests, reruns->digests, err);
    free(runs);
    return status;
}

enum nd_status nd_capture_writer_reruns(struct nd_capture_writer *writer, const struct nd_capture_probe *probe,
                                        const struct nd_capture_reruns *reruns, struct nd_error *err)
{
    if (reruns->n == 0)
        return ND_OK;
    nd_hdf5_lock();
    enum nd_status status = put_reruns(writer, probe, reruns, err);
    nd_hdf5_unlock();
    return status;
}
