/* A capture's tensors as a dataset of Qualcomm AI Hub. */
#include <stdio.h>
#include <unistd.h>

#include "capture/hdf5/libhdf5.h"
#include "core/files/file.h"
#include "core/memory.h"
#include "npudiff/capture/capture.h"
#include "npudiff/record/import.h"

enum { GZIP_LEVEL = 4 }; /* h5py's own */

struct hub_file {
    const struct nd_capture *capture;
    size_t probe;
    bool inputs;
    hid_t file;
    const char *path; /* to be written */
    size_t n_written;
};

/* One tensor of either side. */
struct hub_tensor {
    size_t index; /* of the tensor or input */
    const char *name;
    enum nd_dtype dtype;
    struct nd_shape shape;
    size_t n_samples;
    size_t sample_bytes;
};

static enum nd_status fail_write(const struct hub_file *hub, const char *what, struct nd_error *err)
{
    return nd_hdf5_fail(err, ND_E_CAPTURE_HDF5, hub->path, "cannot write '%s' of '%s'", what, hub->path);
}

/* ---- HDF5 ---- */

static enum nd_status put_integer(const struct hub_file *hub, hid_t group, const char *key, int64_t value,
                                  struct nd_error *err)
{
    ND_CLEANUP(nd_hdf5_close) hid_t space = H5Screate(H5S_SCALAR);
    hid_t attr = H5Acreate2(group, key, H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT);
    bool is_written = attr >= 0 && H5Awrite(attr, H5T_NATIVE_INT64, &value) >= 0;
    if (attr >= 0 && H5Aclose(attr) < 0)
        is_written = false;
    return is_written ? ND_OK : fail_write(hub, key, err);
}

/* Text of variable length, which h5py gives back as str, where fixed text would be bytes. */
static enum nd_status put_name(const struct hub_file *hub, hid_t group, const char *name, struct nd_error *err)
{
    ND_CLEANUP(nd_hdf5_close) hid_t space = H5Screate(H5S_SCALAR), type = H5Tcopy(H5T_C_S1);
    hid_t attr = H5I_INVALID_HID;
    if (H5Tset_size(type, H5T_VARIABLE) >= 0 && H5Tset_cset(type, H5T_CSET_UTF8) >= 0)
        attr = H5Acreate2(group, "name", type, space, H5P_DEFAULT, H5P_DEFAULT);
    bool is_written = attr >= 0 && H5Awrite(attr, type, &name) >= 0;
    if (attr >= 0 && H5Aclose(attr) < 0)
        is_written = false;
    return is_written ? ND_OK : fail_write(hub, "name", err);
}

/* bool as h5py has it. The caller closes it. */
static hid_t make_type(enum nd_dtype dtype)
{
    if (dtype != ND_DTYPE_BOOL)
        return nd_hdf5_type_make(dtype);
    static const signed char values[2] = {0, 1};
    hid_t type = H5Tenum_create(H5T_STD_I8LE);
    if (type >= 0 &&
        (H5Tenum_insert(type, "FALSE", &values[0]) < 0 || H5Tenum_insert(type, "TRUE", &values[1]) < 0)) {
        H5Tclose(type);
        return H5I_INVALID_HID;
    }
    return type;
}

/* One chunk for the sample, as far as HDF5's limit of 4 GiB allows; without elements, or for scalars, none. */
static hid_t make_creation(const struct hub_tensor *tensor)
{
    hsize_t chunk[ND_MAX_RANK] = {0};
    hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    if (creation < 0 || H5Pset_obj_track_times(creation, false) < 0 || tensor->sample_bytes == 0 ||
        tensor->shape.rank == 0)
        return creation;
    size_t n_bytes = tensor->sample_bytes;
    for (int d = 0; d < tensor->shape.rank; d++) {
        chunk[d] = (hsize_t)tensor->shape.dims[d];
        if (n_bytes > (size_t)1 << 30) { /* outer dimensions are cut first */
            n_bytes /= (size_t)chunk[d];
            chunk[d] = 1;
        }
    }
    H5Pset_chunk(creation, tensor->shape.rank, chunk);
    H5Pset_deflate(creation, GZIP_LEVEL);
    return creation;
}

static enum nd_status put_batch(const struct hub_file *hub, hid_t group, const struct hub_tensor *tensor,
                                size_t sample, const void *data, struct nd_error *err)
{
    char name[48];
    hsize_t dims[ND_MAX_RANK] = {0};
    snprintf(name, sizeof name, "batch_%zu", sample);
    for (int d = 0; d < tensor->shape.rank; d++)
        dims[d] = (hsize_t)tensor->shape.dims[d];
    ND_CLEANUP(nd_hdf5_close) hid_t type = make_type(tensor->dtype), creation = make_creation(tensor);
    ND_CLEANUP(nd_hdf5_close)
    hid_t space =
        tensor->shape.rank > 0 ? H5Screate_simple(tensor->shape.rank, dims, NULL) : H5Screate(H5S_SCALAR);
    hid_t dataset = H5Dcreate2(group, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    bool is_written = dataset >= 0 && (tensor->sample_bytes == 0 ||
                                       H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
    if (dataset >= 0 && H5Dclose(dataset) < 0)
        is_written = false;
    return is_written ? ND_OK : fail_write(hub, name, err);
}

/* ---- tensors ---- */

static enum nd_status read_sample(const struct hub_file *hub, const struct hub_tensor *tensor, size_t sample,
                                  void *data, struct nd_error *err)
{
    const struct nd_probe_values place = {hub->capture, hub->probe, tensor->index};
    return hub->inputs ? nd_capture_read_inputs(&place, sample, 1, data, err)
                       : nd_capture_read_verified(&place, sample, 1, data, err);
}

static enum nd_status put_samples(struct hub_file *hub, hid_t group, const struct hub_tensor *tensor,
                                  struct nd_error *err)
{
    ND_FREED void *data = nd_tensor_alloc(tensor->sample_bytes);
    ND_TRY_MEMORY(data != NULL, err);
    for (size_t s = 0; s < tensor->n_samples; s++) {
        ND_TRY(read_sample(hub, tensor, s, data, err));
        ND_HDF5_LOCKED;
        ND_TRY(put_batch(hub, group, tensor, s, data, err));
    }
    return ND_OK;
}

static enum nd_status put_tensor(struct hub_file *hub, struct hub_tensor *tensor, struct nd_error *err)
{
    char path[48];
    enum nd_dtype dtype = tensor->dtype;
    if (dtype == ND_DTYPE_NONE || dtype == ND_DTYPE_BF16 || dtype > ND_DTYPE_U64)
        return nd_fail(err, ND_E_IMPORT_TYPE, tensor->name, "'%s' is %s, a type that datasets of AI Hub lack",
                       tensor->name, nd_dtype_name(dtype));
    ND_TRY(nd_shape_size_bytes(&tensor->shape, dtype, &tensor->sample_bytes, err));
    snprintf(path, sizeof path, "/data/%zu", hub->n_written);
    nd_hdf5_lock();
    hid_t group = H5Gcreate2(hub->file, path, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    enum nd_status status = group >= 0 ? put_integer(hub, group, "order", (int64_t)hub->n_written, err)
                                       : fail_write(hub, path, err);
    if (status == ND_OK)
        status = put_name(hub, group, tensor->name, err);
    if (status == ND_OK)
        status = put_integer(hub, group, "batch_count", (int64_t)tensor->n_samples, err);
    nd_hdf5_unlock();
    if (status == ND_OK)
        status = put_samples(hub, group, tensor, err);
    nd_hdf5_lock();
    nd_hdf5_close(&group);
    nd_hdf5_unlock();
    hub->n_written++;
    return status;
}

static enum nd_status put_inputs(struct hub_file *hub, struct nd_error *err)
{
    const struct nd_capture_probe *probe = nd_capture_probe(hub->capture, hub->probe);
    for (size_t i = 0; i < probe->n_inputs; i++) {
        const struct nd_capture_input *input = &probe->inputs[i];
        struct hub_tensor tensor = {i, input->name, input->dtype, input->shape, probe->n_samples_expected, 0};
        ND_TRY(put_tensor(hub, &tensor, err));
    }
    return ND_OK;
}

static enum nd_status put_outputs(struct hub_file *hub, struct nd_error *err)
{
    const struct nd_capture_probe *probe = nd_capture_probe(hub->capture, hub->probe);
    size_t n_tensors = nd_capture_n_tensors(hub->capture), n_outputs = 0;
    for (size_t e = 0; e < n_tensors; e++)
        n_outputs += nd_capture_tensor(hub->capture, e)->is_model_output;
    for (size_t e = 0; e < n_tensors; e++) {
        const struct nd_tensor *tensor = nd_capture_tensor(hub->capture, e);
        if ((n_outputs > 0 && !tensor->is_model_output) || !nd_capture_has_outputs(hub->capture, hub->probe, e))
            continue;
        struct hub_tensor item = {e, tensor->name, tensor->dtype, tensor->shape, probe->n_samples, 0};
        ND_TRY(put_tensor(hub, &item, err));
    }
    return ND_OK;
}

/* ---- the file ---- */

static enum nd_status find_probe(const struct nd_capture *capture, const char *name, size_t *out,
                                 struct nd_error *err)
{
    size_t n = nd_capture_n_probes(capture);
    *out = name != NULL ? nd_capture_find_probe(capture, name) : 0;
    if (name != NULL && *out == SIZE_MAX)
        return nd_fail(err, ND_E_IMPORT_NOTHING, nd_capture_path(capture), "'%s' has no probe '%s'",
                       nd_capture_path(capture), name);
    if (name == NULL && n != 1)
        return nd_fail(err, ND_E_IMPORT_NOTHING, nd_capture_path(capture),
                       "'%s' has %zu probes; --probe says which", nd_capture_path(capture), n);
    return ND_OK;
}

/* In memory: when libhdf5 cannot write to a disk what it kept for later it tries again at the end of the
 * process, and crashes. */
static enum nd_status open_file(struct hub_file *hub, struct nd_error *err)
{
    enum { GROWTH_BYTES = 8 << 20 }; /* chosen */
    ND_HDF5_LOCKED;
    ND_CLEANUP(nd_hdf5_close) hid_t creation = H5Pcreate(H5P_FILE_CREATE), access = H5Pcreate(H5P_FILE_ACCESS);
    ND_CLEANUP(nd_hdf5_close) hid_t group = H5I_INVALID_HID;
    if (creation >= 0 && access >= 0 && H5Pset_obj_track_times(creation, false) >= 0 &&
        H5Pset_fapl_core(access, GROWTH_BYTES, false) >= 0)
        hub->file = H5Fcreate(hub->path, H5F_ACC_TRUNC, creation, access);
    if (hub->file >= 0)
        group = H5Gcreate2(hub->file, "/data", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    return group >= 0 ? ND_OK : fail_write(hub, "/data", err);
}

/* The bytes of the finished file, which the caller frees. */
static enum nd_status take_image(const struct hub_file *hub, void **image, size_t *n_bytes,
                                 struct nd_error *err)
{
    ND_HDF5_LOCKED;
    ssize_t n = H5Fflush(hub->file, H5F_SCOPE_GLOBAL) >= 0 ? H5Fget_file_image(hub->file, NULL, 0) : -1;
    if (n <= 0)
        return fail_write(hub, "/", err);
    ND_FREED void *bytes = nd_calloc((size_t)n, 1);
    ND_TRY_MEMORY(bytes != NULL, err);
    if (H5Fget_file_image(hub->file, bytes, (size_t)n) != n)
        return fail_write(hub, "/", err);
    *n_bytes = (size_t)n;
    return ND_GIVE(image, bytes);
}

static void close_file(struct hub_file *hub)
{
    if (hub->file < 0)
        return;
    nd_hdf5_lock();
    H5Fclose(hub->file);
    hub->file = H5I_INVALID_HID;
    nd_hdf5_unlock();
}

static enum nd_status write_file(struct hub_file *hub, bool replace, struct nd_error *err)
{
    ND_FREED void *image = NULL;
    size_t n_bytes = 0;
    enum nd_status status = open_file(hub, err);
    if (status == ND_OK)
        status = hub->inputs ? put_inputs(hub, err) : put_outputs(hub, err);
    if (status == ND_OK && hub->n_written == 0)
        status = nd_fail(err, ND_E_IMPORT_NOTHING, nd_capture_path(hub->capture), "'%s' stores no %s to export",
                         nd_capture_path(hub->capture), hub->inputs ? "inputs" : "outputs");
    if (status == ND_OK)
        status = take_image(hub, &image, &n_bytes, err);
    close_file(hub);
    if (status == ND_OK)
        status = nd_file_put_new(hub->path, image, n_bytes, replace, err);
    return status;
}

enum nd_status nd_export_aihub(const char *capture_path, const char *output,
                               const struct nd_export_options *options, size_t *n_tensors, struct nd_error *err)
{
    struct nd_export_options own = {.struct_size = sizeof own};
    ND_TRY(nd_options_read(&own, sizeof own, options, err));
    options = &own;
    ND_CLEANUP(nd_capture_close) struct nd_capture *capture = NULL;
    struct hub_file hub = {.inputs = options->inputs, .file = H5I_INVALID_HID, .path = output};
    if (!options->replace && nd_path_exists(output))
        return nd_fail(err, ND_E_FILE_EXISTS, output, "'%s' exists already", output);
    ND_TRY(nd_capture_open(capture_path, &capture, err));
    ND_TRY(find_probe(capture, options->probe, &hub.probe, err));
    hub.capture = capture;
    ND_TRY(write_file(&hub, options->replace, err));
    *n_tensors = hub.n_written;
    return ND_OK;
}
