/* Writes the probes of a capture: inputs, outputs, repeats, digests. docs/reference/capture-format.md. */
#include <stdlib.h>
#include <string.h>

#include "capture/read/capture_internal.h"
#include "capture/read/link_names.h"
#include "capture/write/write_internal.h"
#include "core/memory.h"

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
