/* Writes the probes of a capture: inputs, outputs, repeats, digests. docs/reference/capture-format.md. */

#include "capture/read/capture_internal.h"
#include "capture/read/schema.h"
#include "capture/write/write_internal.h"
#include "core/memory.h"

static void nd_writer_dataset_destroy(struct nd_capture_dataset **dataset_at)
{
    struct nd_capture_dataset *dataset = *dataset_at;
    if (dataset == NULL)
        return;
    nd_hdf5_close(&dataset->id);
    H5Tclose(dataset->type);
    H5Eclear2(H5E_DEFAULT);
    free(dataset->path);
    free(dataset->is_stored);
    free(dataset);
    *dataset_at = NULL;
}

void nd_capture_dataset_destroy(struct nd_capture_dataset **dataset)
{
    ND_HDF5_LOCKED;
    nd_writer_dataset_destroy(dataset);
}

static enum nd_status nd_writer_dataset_begin(struct nd_capture_writer *writer,
                                              const struct nd_writer_tensor *tensor,
                                              const struct nd_chunk_layout *layout,
                                              struct nd_capture_dataset **out, struct nd_error *err)
{
    ND_FREED char *group = nd_name_probe_path(tensor->probe, tensor->part, NULL);
    ND_TRY_MEMORY(group != NULL, err);
    ND_CLEANUP(nd_writer_dataset_destroy)
    struct nd_capture_dataset *dataset = nd_calloc(1, sizeof *dataset);
    ND_TRY_MEMORY(dataset != NULL, err);
    *dataset = (struct nd_capture_dataset){
        .writer = writer, .id = H5I_INVALID_HID, .layout = *layout, .level = writer->level};
    dataset->path = nd_name_probe_path(tensor->probe, tensor->part, tensor->name);
    dataset->is_stored = nd_calloc(layout->n_chunks, 1);
    dataset->type = nd_hdf5_type_make(tensor->dtype);
    ND_TRY_MEMORY(dataset->path != NULL && dataset->is_stored != NULL, err);
    if (dataset->type < 0)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, dataset->path, "'%s' has no element type", dataset->path);
    ND_TRY(nd_writer_group(writer, group, err));
    bool is_chunked = writer->level > 0 && layout->n_chunks > 0;
    const struct nd_writer_extent extent = {&layout->dataset, is_chunked ? &layout->chunk : NULL};
    ND_TRY(nd_writer_make(writer, dataset->path, dataset->type, &extent, &dataset->id, err));
    if (nd_index_stored_dtype(tensor->dtype) != tensor->dtype)
        ND_TRY(nd_writer_put_text(dataset->id, dataset->path, "dtype", nd_dtype_name(tensor->dtype), err));
    return ND_GIVE(out, dataset);
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
    ND_CLEANUP(nd_hdf5_close) hid_t file_space = H5Dget_space(dataset->id);
    ND_CLEANUP(nd_hdf5_close) hid_t memory_space = H5Screate_simple(shape->rank, count, NULL);
    if (H5Sselect_hyperslab(file_space, H5S_SELECT_SET, start, NULL, count, NULL) < 0)
        return -1;
    return H5Dwrite(dataset->id, dataset->type, memory_space, file_space, H5P_DEFAULT, data);
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
    ND_TRY(nd_writer_reserve(dataset->writer, dataset->level > 0 ? stored_bytes : 0, err));
    herr_t rc;
    if (dataset->level == 0) {
        rc = write_block(dataset, &span, stored);
    } else {
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
    ND_FREED unsigned char *padded = nd_calloc(layout->chunk_bytes, 1);
    ND_FREED unsigned char *stored = nd_calloc(nd_chunk_bound(layout->chunk_bytes), 1);
    ND_TRY_MEMORY(padded != NULL && stored != NULL, err);
    for (size_t i = 0; i < layout->n_chunks; i++) {
        struct nd_chunk_span span;
        nd_chunk_span(layout, i, &span);
        const unsigned char *raw = data + span.first_sample * layout->sample_bytes + span.offset_bytes;
        size_t stored_bytes = span.n_bytes;
        if (dataset->level > 0) {
            memcpy(padded, raw, span.n_bytes);
            memset(padded + span.n_bytes, 0, layout->chunk_bytes - span.n_bytes);
            ND_TRY(nd_chunk_encode(layout, padded, dataset->level, stored, &stored_bytes, err));
        }
        ND_TRY(dataset_chunk(dataset, i, dataset->level > 0 ? stored : raw, stored_bytes, err));
    }
    return ND_OK;
}

enum nd_status nd_capture_writer_chunk(struct nd_capture_dataset *dataset, size_t index, const void *stored,
                                       size_t stored_bytes, struct nd_error *err)
{
    ND_HDF5_LOCKED;
    return dataset_chunk(dataset, index, stored, stored_bytes, err);
}

enum nd_status nd_capture_writer_outputs_end(struct nd_capture_dataset **dataset, struct nd_error *err)
{
    ND_HDF5_LOCKED;
    return nd_writer_dataset_end(dataset, err);
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
    ND_CLEANUP(nd_hdf5_close) hid_t group = H5Gopen2(writer->file, path, H5P_DEFAULT);
    if (group < 0)
        return nd_hdf5_fail(err, ND_E_CAPTURE_HDF5, path, "cannot open group '%s'", path);
    ND_TRY(nd_writer_put_text(group, path, "source", probe->source != NULL ? probe->source : "", err));
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        ND_TRY(nd_writer_put_i64(group, path, numbers[i].key, numbers[i].value, err));
    return ND_OK;
}

static enum nd_status put_latency(struct nd_capture_writer *writer, const struct nd_capture_probe *probe,
                                  struct nd_error *err)
{
    struct nd_shape shape = {.rank = 2, .dims = {(int64_t)probe->n_samples, (int64_t)probe->n_repeats}};
    size_t n;
    ND_TRY(nd_shape_n_elems(&shape, &n, err));
    ND_FREED double *unknown = NULL;
    if (probe->latency_us == NULL) {
        const uint64_t nan_bits = UINT64_C(0x7ff8000000000000);
        unknown = nd_calloc(n, sizeof *unknown);
        ND_TRY_MEMORY(unknown != NULL, err);
        for (size_t i = 0; i < n; i++)
            memcpy(&unknown[i], &nan_bits, sizeof nan_bits);
    }
    return nd_writer_put(writer, nd_name_probe_path(probe->name, "latency_us", NULL), ND_DTYPE_F64, &shape,
                         unknown != NULL ? unknown : probe->latency_us, err);
}

/* Zeros, which commit overwrites: then all digests are there. */
static enum nd_status reserve_tensor_digests(struct nd_capture_writer *writer,
                                             const struct nd_capture_probe *probe, struct nd_error *err)
{
    const struct nd_shape shape = {.rank = 2, .dims = {(int64_t)writer->n_tensors, 2}};
    ND_FREED struct nd_digest *zeros = nd_calloc(writer->n_tensors, sizeof *zeros);
    ND_TRY_MEMORY(zeros != NULL, err);
    return nd_writer_put(writer, nd_name_probe_path(probe->name, ND_TENSOR_DIGESTS, NULL), ND_DTYPE_U64, &shape,
                         zeros, err);
}

enum nd_status nd_capture_writer_probe(struct nd_capture_writer *writer, const struct nd_capture_probe *probe,
                                       struct nd_error *err)
{
    ND_FREED char *path = nd_name_path("/probes", probe->name);
    struct nd_shape labels = {.rank = 1, .dims = {(int64_t)probe->n_samples_expected}};
    ND_TRY_MEMORY(path != NULL, err);
    ND_HDF5_LOCKED;
    if (H5Lexists(writer->file, path, H5P_DEFAULT) > 0)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, path, "probe '%s' is given twice", probe->name);
    ND_TRY(nd_writer_group(writer, path, err));
    ND_TRY(put_probe_attrs(writer, path, probe, err));
    ND_TRY(put_latency(writer, probe, err));
    if (probe->labels != NULL)
        ND_TRY(nd_writer_put(writer, nd_name_probe_path(probe->name, "labels", NULL), ND_DTYPE_I64, &labels,
                             probe->labels, err));
    if (writer->n_tensors > 0 && probe->n_samples > 1) /* one sample: nothing would be stated */
        ND_TRY(reserve_tensor_digests(writer, probe, err));
    writer->n_probes++;
    return ND_OK;
}

enum nd_status nd_capture_writer_input(struct nd_capture_writer *writer, const struct nd_capture_probe *probe,
                                       size_t input, const void *data, struct nd_error *err)
{
    const struct nd_capture_input *of = &probe->inputs[input];
    const struct nd_writer_tensor tensor = {probe->name, "inputs", of->name, of->dtype};
    struct nd_chunk_layout layout;
    ND_HDF5_LOCKED;
    ND_CLEANUP(nd_writer_dataset_destroy) struct nd_capture_dataset *dataset = NULL;
    ND_TRY(nd_chunk_layout_make(&of->shape, of->dtype, probe->n_samples_expected, &layout, err));
    ND_TRY(nd_writer_dataset_begin(writer, &tensor, &layout, &dataset, err));
    ND_TRY(nd_writer_put_i64(dataset->id, dataset->path, "index", (int64_t)input, err));
    ND_TRY(nd_writer_dataset_fill(dataset, data, err));
    ND_TRY(nd_writer_dataset_end(&dataset, err));
    ND_FREED struct nd_digest *digests = nd_calloc(probe->n_samples_expected, sizeof *digests);
    ND_FREED char *group = nd_name_probe_path(probe->name, "input_digests", NULL);
    ND_TRY_MEMORY(digests != NULL && group != NULL, err);
    for (size_t i = 0; i < probe->n_samples_expected; i++)
        digests[i] =
            nd_digest_bytes((const unsigned char *)data + i * layout.sample_bytes, layout.sample_bytes);
    struct nd_shape shape = {.rank = 2, .dims = {(int64_t)probe->n_samples_expected, 2}};
    ND_TRY(nd_writer_group(writer, group, err));
    return nd_writer_put(writer, nd_name_probe_path(probe->name, "input_digests", of->name), ND_DTYPE_U64,
                         &shape, digests, err);
}

enum nd_status nd_capture_writer_digests(struct nd_capture_writer *writer, const struct nd_capture_probe *probe,
                                         const struct nd_tensor *tensor, const struct nd_digest *digests,
                                         struct nd_error *err)
{
    ND_HDF5_LOCKED;
    struct nd_shape shape = {.rank = 3, .dims = {(int64_t)probe->n_samples, (int64_t)probe->n_repeats, 2}};
    ND_FREED char *group = nd_name_probe_path(probe->name, "digests", NULL);
    ND_TRY_MEMORY(group != NULL, err);
    ND_TRY(nd_writer_group(writer, group, err));
    return nd_writer_put(writer, nd_name_probe_path(probe->name, "digests", tensor->name), ND_DTYPE_U64, &shape,
                         digests, err);
}

/* What a person with h5py needs to turn quantised values into numbers, on the spot. */
static enum nd_status put_quant(struct nd_capture_dataset *dataset, const struct nd_tensor *tensor,
                                const char *provider, struct nd_error *err)
{
    const struct nd_quant *quant = &tensor->quant;
    ND_TRY(nd_writer_put_text(dataset->id, dataset->path, "provider", provider, err));
    if (quant->n == 0)
        return ND_OK;
    ND_TRY(nd_writer_put_i64(dataset->id, dataset->path, "axis", quant->axis, err));
    if (quant->n > MAX_QUANT_ATTR)
        return ND_OK;
    struct nd_writer_attr scale = {"scale", ND_DTYPE_F32, false, quant->n, quant->scale};
    struct nd_writer_attr zero_point = {"zero_point", ND_DTYPE_I64, false, quant->n, quant->zero_point};
    ND_TRY(nd_writer_put_attr(dataset->id, dataset->path, &scale, err));
    return nd_writer_put_attr(dataset->id, dataset->path, &zero_point, err);
}

enum nd_status nd_capture_output_layout(const struct nd_capture_probe *probe, const struct nd_tensor *tensor,
                                        struct nd_chunk_layout *out, struct nd_error *err)
{
    ND_TRY(nd_chunk_layout_make(&tensor->shape, tensor->dtype, probe->n_samples_expected, out, err));
    nd_chunk_layout_shorten(out, probe->n_samples);
    return ND_OK;
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
    ND_HDF5_LOCKED;
    ND_TRY(begin_outputs(writer, output, &dataset, err));
    *out = dataset;
    return ND_OK;
}

enum nd_status nd_capture_writer_outputs(struct nd_capture_writer *writer,
                                         const struct nd_capture_output *output, const void *data,
                                         struct nd_error *err)
{
    ND_HDF5_LOCKED;
    ND_CLEANUP(nd_writer_dataset_destroy) struct nd_capture_dataset *dataset = NULL;
    ND_TRY(begin_outputs(writer, output, &dataset, err));
    ND_TRY(nd_writer_dataset_fill(dataset, data, err));
    return nd_writer_dataset_end(&dataset, err);
}

enum nd_status nd_capture_writer_repeats(struct nd_capture_writer *writer, const struct nd_capture_probe *probe,
                                         const struct nd_tensor *tensor,
                                         const struct nd_capture_repeats *repeats, struct nd_error *err)
{
    bool is_rerun = probe->n_repeats < 2;
    const char *index_name = is_rerun ? "rerun_index" : "repeat_index";
    const struct nd_writer_tensor item = {probe->name, is_rerun ? "reruns" : "repeats", tensor->name,
                                          tensor->dtype};
    size_t n = repeats->n;
    struct nd_chunk_layout layout;
    if (n == 0)
        return ND_OK;
    ND_HDF5_LOCKED;
    ND_CLEANUP(nd_writer_dataset_destroy) struct nd_capture_dataset *dataset = NULL;
    ND_TRY(nd_chunk_layout_make(&tensor->shape, tensor->dtype, n, &layout, err));
    ND_TRY(nd_writer_dataset_begin(writer, &item, &layout, &dataset, err));
    ND_TRY(nd_writer_dataset_fill(dataset, repeats->data, err));
    ND_TRY(nd_writer_dataset_end(&dataset, err));
    ND_FREED int64_t(*index)[2] = nd_calloc(n, sizeof *index);
    ND_FREED char *group = nd_name_probe_path(probe->name, index_name, NULL);
    ND_TRY_MEMORY(index != NULL && group != NULL, err);
    for (size_t i = 0; i < n; i++) {
        index[i][0] = (int64_t)repeats->sample_repeat[i][0];
        index[i][1] = (int64_t)repeats->sample_repeat[i][1];
    }
    struct nd_shape shape = {.rank = 2, .dims = {(int64_t)n, 2}};
    ND_TRY(nd_writer_group(writer, group, err));
    return nd_writer_put(writer, nd_name_probe_path(probe->name, index_name, tensor->name), ND_DTYPE_I64,
                         &shape, index, err);
}

enum nd_status nd_capture_writer_reruns(struct nd_capture_writer *writer, const struct nd_capture_probe *probe,
                                        const struct nd_capture_reruns *reruns, struct nd_error *err)
{
    if (reruns->n == 0)
        return ND_OK;
    struct nd_shape shape = {.rank = 2, .dims = {(int64_t)reruns->n, 2}};
    struct nd_shape digests = {.rank = 3, .dims = {(int64_t)reruns->n, (int64_t)reruns->n_tensors, 2}};
    ND_HDF5_LOCKED;
    ND_FREED int64_t(*runs)[2] = nd_calloc(reruns->n, sizeof *runs);
    ND_TRY_MEMORY(runs != NULL, err);
    for (size_t i = 0; i < reruns->n; i++) {
        runs[i][0] = (int64_t)reruns->sample_repeat[i][0];
        runs[i][1] = (int64_t)reruns->sample_repeat[i][1];
    }
    ND_TRY(nd_writer_put(writer, nd_name_probe_path(probe->name, "rerun_samples", NULL), ND_DTYPE_I64, &shape,
                         runs, err));
    return nd_writer_put(writer, nd_name_probe_path(probe->name, "rerun_digests", NULL), ND_DTYPE_U64, &digests,
                         reruns->digests, err);
}
