/* The import of foreign files: the formats, their readers for bare bytes (docs/reference/import-raw.md), AI Hub
 * and NumPy, and the facts of the user (docs/reference/import-facts.md). */

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "capture/hdf5/reading.h"
#include "capture/read/schema.h"
#include "core/documents/yaml_map.h"
#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "npudiff/core/parse.h"
#include "npudiff/record/import.h"
#include "npudiff/record/probe.h"
#include "record/import/imported.h"
#include "record/import/write_capture.h"
#include "record/probes/loader.h"
#include "record/probes/npz.h"
#include "record/qnn/net_run.h"

enum { MAX_SAMPLES = 1000000 };

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

struct raw_tensor {
    char *name, *dtype_name, *file;
    const yaml_node_t *shape_node;
    struct nd_texts files;
    size_t n_samples; /* 0: not said */
    enum nd_dtype dtype;
    struct nd_shape shape;
    size_t sample_bytes;
};

struct raw_reading {
    struct nd_yaml yaml;
    const char *folder; /* of the list: paths are relative to it */
    struct nd_imported *imported;
    enum nd_imported_side side;
    const yaml_node_t *node; /* of the tensor */
};

static void raw_tensor_deinit(struct raw_tensor *tensor)
{
    ND_FREE_ALL(tensor->name, tensor->dtype_name, tensor->file);
    nd_texts_deinit(&tensor->files);
}

static enum nd_status read_shape(struct raw_reading *r, struct raw_tensor *tensor, struct nd_error *err)
{
    const yaml_node_t *node = tensor->shape_node;
    if (node->type != YAML_SEQUENCE_NODE)
        return nd_yaml_fail(&r->yaml, &node->start_mark, err,
                            "'shape' is a list of whole numbers ([] for a scalar)");
    size_t n = (size_t)(node->data.sequence.items.top - node->data.sequence.items.start);
    if (n >= ND_MAX_RANK)
        return nd_yaml_fail(&r->yaml, &node->start_mark, err,
                            "'shape' has %zu dimensions; at most %d are stored", n, ND_MAX_RANK - 1);
    for (size_t i = 0; i < n; i++) {
        const yaml_node_t *item = nd_yaml_item(&r->yaml, node, i);
        int64_t dim = -1;
        if (item->type != YAML_SCALAR_NODE || !nd_parse_i64((const char *)item->data.scalar.value, &dim) ||
            dim < 0)
            return nd_yaml_fail(&r->yaml, &item->start_mark, err, "a dimension is a whole number from 0 on%s%s",
                                item->type == YAML_SCALAR_NODE ? ", not " : "",
                                item->type == YAML_SCALAR_NODE ? (const char *)item->data.scalar.value : "");
        tensor->shape.dims[i] = dim;
    }
    tensor->shape.rank = (int)n;
    enum nd_status status = nd_shape_size_bytes(&tensor->shape, tensor->dtype, &tensor->sample_bytes, err);
    if (status != ND_OK)
        nd_error_context(err, "%s:%zu: 'shape' of tensor '%s'", r->yaml.file.path, node->start_mark.line + 1,
                         tensor->name);
    return status;
}

/* "Result_{}/x.raw" for every sample. */
static enum nd_status expand_pattern(struct raw_reading *r, struct raw_tensor *tensor, struct nd_error *err)
{
    if (tensor->files.n != 1 || strstr(tensor->files.items[0], "{}") == NULL)
        return ND_OK;
    if (tensor->n_samples == 0)
        return nd_yaml_fail(&r->yaml, &r->node->start_mark, err, "'files' with {} needs 'samples'");
    ND_CLEANUP(nd_texts_deinit) struct nd_texts made = {0};
    const char *pattern = tensor->files.items[0], *place = strstr(pattern, "{}");
    for (size_t i = 0; i < tensor->n_samples; i++) {
        ND_FREED char *path = nd_text("%.*s%zu%s", (int)(place - pattern), pattern, i, place + 2);
        ND_TRY_MEMORY(path != NULL && nd_texts_add(&made, path), err);
    }
    nd_texts_deinit(&tensor->files);
    return ND_GIVE(&tensor->files, made);
}

static enum nd_status read_tensor(struct raw_reading *r, struct raw_tensor *tensor, struct nd_error *err)
{
    static const struct nd_yaml_key keys[] = {
        {"name", ND_YAML_TEXT, offsetof(struct raw_tensor, name), 0, 0, true},
        {"dtype", ND_YAML_TEXT, offsetof(struct raw_tensor, dtype_name), 0, 0, true},
        {"shape", ND_YAML_NODE, offsetof(struct raw_tensor, shape_node), 0, 0, true},
        {"file", ND_YAML_TEXT, offsetof(struct raw_tensor, file), 0, 0, false},
        {"files", ND_YAML_TEXTS, offsetof(struct raw_tensor, files), 0, 0, false},
        {"samples", ND_YAML_COUNT, offsetof(struct raw_tensor, n_samples), 1, MAX_SAMPLES, false},
    };
    ND_TRY(nd_yaml_map(&r->yaml, r->node, &(struct nd_yaml_kind){"a tensor of a raw list", keys, COUNT(keys)},
                       tensor, err));
    tensor->dtype = nd_dtype_from_name(tensor->dtype_name);
    if (tensor->dtype == ND_DTYPE_NONE)
        return nd_yaml_fail(&r->yaml, &r->node->start_mark, err, "there is no type '%s'", tensor->dtype_name);
    if ((tensor->file == NULL) == (tensor->files.n == 0))
        return nd_yaml_fail(&r->yaml, &r->node->start_mark, err,
                            "tensor '%s' needs either 'file' (all samples) or 'files' (one for each)",
                            tensor->name);
    ND_TRY(read_shape(r, tensor, err));
    ND_TRY(expand_pattern(r, tensor, err));
    if (tensor->files.n > 0 && tensor->n_samples > 0 && tensor->n_samples != tensor->files.n)
        return nd_yaml_fail(&r->yaml, &r->node->start_mark, err, "tensor '%s' has %zu files, but %zu samples",
                            tensor->name, tensor->files.n, tensor->n_samples);
    return ND_OK;
}

/* Appends n_samples samples from the source. */
static enum nd_status add_samples(struct raw_reading *r, const struct raw_tensor *tensor,
                                  struct nd_source *source, size_t first, size_t n, struct nd_error *err)
{
    for (size_t i = 0; i < n; i++) {
        void *data = NULL;
        const struct nd_imported_new sample = {r->side,       tensor->name,  source->what,
                                               tensor->dtype, tensor->shape, first + i};
        ND_TRY(nd_imported_add(r->imported, &sample, &data, err));
        ND_TRY(nd_source_read(source, data, tensor->sample_bytes, err));
    }
    return nd_source_finish(source, err);
}

static enum nd_status add_file(struct raw_reading *r, const struct raw_tensor *tensor, const char *name,
                               size_t first, size_t n, struct nd_error *err)
{
    char shape[128];
    ND_CLEANUP(nd_source_close) struct nd_source source = {0};
    ND_FREED char *path = nd_path_join(r->folder, name);
    ND_TRY_MEMORY(path != NULL, err);
    ND_TRY(nd_source_open(&source, path, err));
    if (n == 0 && tensor->sample_bytes == 0)
        return nd_yaml_fail(&r->yaml, &r->node->start_mark, err, "tensor '%s' is empty and needs 'samples'",
                            tensor->name);
    if (n == 0) /* as many as there are */
        n = source.size_bytes / tensor->sample_bytes;
    if (n == 0 || source.size_bytes / n != tensor->sample_bytes || source.size_bytes % n != 0)
        return nd_fail(err, ND_E_IMPORT_FORMAT, source.path,
                       "%s has %zu bytes; a sample of '%s', %s %s, takes %zu%s", source.what, source.size_bytes,
                       tensor->name, tensor->dtype_name, nd_shape_format(&tensor->shape, shape, sizeof shape),
                       tensor->sample_bytes,
                       source.size_bytes > 0 && n > 1 ? ", and there must be whole ones" : "");
    return add_samples(r, tensor, &source, first, n, err);
}

static enum nd_status add_tensor(struct raw_reading *r, struct nd_error *err)
{
    ND_CLEANUP(raw_tensor_deinit) struct raw_tensor tensor = {0};
    ND_TRY(read_tensor(r, &tensor, err));
    if (tensor.file != NULL)
        ND_TRY(add_file(r, &tensor, tensor.file, 0, tensor.n_samples, err));
    for (size_t i = 0; i < tensor.files.n; i++)
        ND_TRY(add_file(r, &tensor, tensor.files.items[i], i, 1, err));
    return ND_OK;
}

static enum nd_status add_list(struct raw_reading *r, const yaml_node_t *list, const char *what,
                               enum nd_imported_side side, struct nd_error *err)
{
    size_t n = 0;
    enum nd_status status = list != NULL ? nd_yaml_list(&r->yaml, list, what, &n, err) : ND_OK;
    r->side = side;
    for (size_t i = 0; status == ND_OK && i < n; i++) {
        r->node = nd_yaml_item(&r->yaml, list, i);
        status = add_tensor(r, err);
    }
    return status;
}

static enum nd_status add_lists(struct raw_reading *r, const char *path, struct nd_error *err)
{
    struct {
        const yaml_node_t *tensors, *inputs;
    } root = {0};
    static const struct nd_yaml_key keys[] = {{"tensors", ND_YAML_NODE, 0, 0, 0, true},
                                              {"inputs", ND_YAML_NODE, sizeof(void *), 0, 0, false}};
    const struct nd_yaml_file file = {path, "a raw list", ND_E_IMPORT_FORMAT};
    enum nd_status status = nd_yaml_read(&r->yaml, &file, err);
    if (status == ND_OK)
        status = nd_yaml_map(&r->yaml, nd_yaml_root(&r->yaml),
                             &(struct nd_yaml_kind){"a raw list", keys, COUNT(keys)}, &root, err);
    if (status == ND_OK)
        status = add_list(r, root.tensors, "tensors", ND_IMPORTED_OUTPUT, err);
    if (status == ND_OK)
        status = add_list(r, root.inputs, "inputs", ND_IMPORTED_INPUT, err);
    nd_yaml_deinit(&r->yaml);
    if (status == ND_OK && root.inputs != NULL)
        status = nd_imported_fact(r->imported, "inputs", NULL, "the raw list", err);
    return status;
}

static enum nd_status read_raw(const struct nd_import_options *options, struct nd_imported *imported,
                               struct nd_error *err)
{
    static const char *const kinds[] = {"names", "types", "shapes", "samples"};
    for (size_t i = 0; i < options->n_paths; i++) {
        ND_FREED char *folder = nd_path_dir(options->paths[i]);
        struct raw_reading reading = {.folder = folder, .imported = imported};
        ND_TRY_MEMORY(folder != NULL, err);
        ND_TRY(add_lists(&reading, options->paths[i], err));
    }
    for (size_t i = 0; i < COUNT(kinds); i++)
        ND_TRY(nd_imported_fact(imported, kinds[i], NULL, "the raw list", err));
    return ND_OK;
}

const struct nd_import_reader nd_import_raw = {
    .format = {"raw", "LIST.yaml...",
               "bare little-endian bytes in C order, described by a YAML list: name, dtype, shape "
               "and file or files of every tensor (docs/reference/import-raw.md)"},
    .read = read_raw,
};

/* Datasets of Qualcomm AI Hub: /data/<i> with the attributes name, batch_count and order, and in it batch_<k>,
 * one array for each sample. libhdf5 reads them in a confined child, which sends the samples through a pipe: a
 * file that breaks libhdf5 breaks that child alone, and one that keeps it busy for ever is given up. */

/* A record; after it the name, the place in the file, and the data. Every member is 8 bytes wide, so that it
 * has no padding. */
struct sent_sample {
    uint64_t dtype;
    struct nd_sent_shape shape;
    uint64_t sample;
    uint64_t name_bytes;
    uint64_t what_bytes;
    uint64_t n_bytes;
};

/* ---- the child ---- */

static enum nd_status send_sample(void *context, const struct nd_aihub_sample *sample, struct nd_error *err)
{
    struct nd_reading_child *child = context;
    const struct sent_sample sent = {.dtype = (uint64_t)sample->dtype,
                                     .shape = nd_sent_shape(&sample->shape),
                                     .sample = sample->sample,
                                     .name_bytes = strlen(sample->name),
                                     .what_bytes = strlen(sample->what),
                                     .n_bytes = sample->n_bytes};
    const struct {
        const void *bytes;
        size_t n;
    } parts[] = {{&sent, sizeof sent},
                 {sample->name, sent.name_bytes},
                 {sample->what, sent.what_bytes},
                 {sample->data, sample->n_bytes}};
    ND_TRY(nd_reading_send_record(child, err));
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        ND_TRY(nd_reading_send(child, parts[i].bytes, parts[i].n, err));
    return ND_OK;
}

enum { HEADS_BYTES = 64 << 20 }; /* chosen: names and places of samples, beside the values */

static enum nd_status send_samples(void *context, struct nd_reading_child *child, struct nd_error *err)
{
    return nd_aihub_walk(context, send_sample, child, err);
}

/* ---- the parent ---- */

struct receiver {
    struct nd_imported *imported;
    enum nd_imported_side side;
    struct nd_reading reading;
};

/* Gives room for a sample, whose place in the file 'what' names; *data. */
static enum nd_status add_sample(struct receiver *r, struct nd_imported_new *sample, const char *what,
                                 void **data, struct nd_error *err)
{
    ND_FREED char *where = nd_text("%s of '%s' (tensor '%.200s')", what, r->reading.path, sample->name);
    ND_TRY_MEMORY(where != NULL, err);
    sample->where = where;
    return nd_imported_add(r->imported, sample, data, err);
}

static enum nd_status receive_sample(struct receiver *r, struct nd_error *err)
{
    struct sent_sample sent;
    size_t n_bytes = 0;
    void *data = NULL;
    ND_FREED char *name = NULL, *what = NULL;
    ND_TRY(nd_reading_take(&r->reading, &sent, sizeof sent, err));
    struct nd_imported_new sample = {.side = r->side};
    sample.dtype = (enum nd_dtype)sent.dtype;
    sample.sample = sent.sample;
    nd_shape_from_sent(&sent.shape, &sample.shape);
    if (sample.shape.rank < 0 || sample.shape.rank >= ND_MAX_RANK || nd_dtype_size_bytes(sample.dtype) == 0 ||
        nd_shape_size_bytes(&sample.shape, sample.dtype, &n_bytes, NULL) != ND_OK || n_bytes != sent.n_bytes)
        return nd_reading_fail(&r->reading, err);
    ND_TRY(nd_reading_take_text(&r->reading, sent.name_bytes, &name, err));
    ND_TRY(nd_reading_take_text(&r->reading, sent.what_bytes, &what, err));
    ND_TRY(nd_reading_expect(&r->reading, n_bytes, err));
    sample.name = name;
    ND_TRY(add_sample(r, &sample, what, &data, err));
    return nd_reading_take(&r->reading, data, n_bytes, err);
}

static enum nd_status receive_all(struct receiver *r, struct nd_error *err)
{
    bool has_record = true;
    while (has_record) {
        ND_TRY(nd_reading_next(&r->reading, &has_record, err));
        if (has_record)
            ND_TRY(receive_sample(r, err));
    }
    return ND_OK;
}

/* Adds a dataset of AI Hub to one side. */
static enum nd_status nd_aihub_add(struct nd_imported *imported, enum nd_imported_side side, const char *path,
                                   struct nd_error *err)
{
    struct nd_aihub_source source = {.path = path};
    ND_TRY(nd_file_open(path, &source.fd, &source.file_bytes, err));
    const uint64_t most = ND_AIHUB_BASE_BYTES + ND_AIHUB_BYTES_PER_STORED * source.file_bytes;
    struct receiver receiver = {.imported = imported,
                                .side = side,
                                .reading = {.path = path,
                                            .file_bytes = source.file_bytes,
                                            .damaged = ND_E_IMPORT_FORMAT,
                                            .fd = &source.fd,
                                            .max_sent_bytes = HEADS_BYTES + most}};
    enum nd_status status = nd_reading_begin(&receiver.reading, send_samples, &source, err);
    if (status == ND_OK) {
        status = receive_all(&receiver, err);
        nd_reading_end(&receiver.reading);
    }
    close(source.fd);
    return status;
}

static enum nd_status read_aihub(const struct nd_import_options *options, struct nd_imported *imported,
                                 struct nd_error *err)
{
    static const char *const facts[][2] = {{"names", "attribute 'name'"},
                                           {"types", "HDF5 type"},
                                           {"shapes", "HDF5 dataset"},
                                           {"samples", "one of each batch_N"}};
    for (size_t i = 0; i < options->n_paths; i++)
        ND_TRY(nd_aihub_add(imported, ND_IMPORTED_OUTPUT, options->paths[i], err));
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++)
        ND_TRY(nd_imported_fact(imported, facts[i][0], NULL, facts[i][1], err));
    return ND_OK;
}

const struct nd_import_reader nd_import_aihub = {
    .format = {"aihub", "DATASET.h5...",
               "datasets of Qualcomm AI Hub (output data of an inference job, as downloaded): "
               "each batch_N is a sample"},
    .read = read_aihub,
};

/* NumPy's files: a .npz (named arrays), a .npy (named after the file), or a folder of both. */

/* "conv1%2Fout.npy" is conv1/out, as in folders of probes. */
static char *name_of_file(const char *path)
{
    const char *base = nd_path_base(path);
    char *stem = strndup(base, strlen(base) - strlen(".npy")), *name = NULL;
    if (stem == NULL || nd_name_unescape(stem, path, &name, NULL) == ND_ERR_FORMAT)
        return stem;
    free(stem);
    return name;
}

/* Where the arrays go. */
struct adding {
    struct nd_imported *imported;
    enum nd_imported_side side;
    size_t sample; /* every array is this sample; ND_IMPORTED_ARRAY: it may hold all of them */
};

static enum nd_status add_npy(const struct adding *to, const char *path, struct nd_error *err)
{
    ND_CLEANUP(nd_source_close) struct nd_source source = {0};
    ND_FREED char *name = name_of_file(path);
    ND_TRY_MEMORY(name != NULL, err);
    ND_TRY(nd_source_open(&source, path, err));
    return nd_npy_add(to->imported, to->side, name, to->sample, &source, err);
}

static enum nd_status add_npz(const struct adding *to, const char *path, struct nd_error *err)
{
    ND_CLEANUP(nd_npz_close) struct nd_npz *npz = NULL;
    ND_TRY(nd_npz_open(path, &npz, err));
    if (nd_npz_n_arrays(npz) == 0)
        return nd_fail(err, ND_E_IMPORT_NOTHING, path, "'%s' holds no array", path);
    for (size_t i = 0; i < nd_npz_n_arrays(npz); i++) {
        ND_CLEANUP(nd_source_close) struct nd_source source = {0};
        ND_TRY(nd_npz_source(npz, i, &source, err));
        ND_TRY(nd_npy_add(to->imported, to->side, nd_npz_name(npz, i), to->sample, &source, err));
    }
    return ND_OK;
}

static enum nd_status add_file_of_numpy(const struct adding *to, const char *path, struct nd_error *err)
{
    if (nd_ends_with(path, ".npz"))
        return add_npz(to, path, err);
    if (nd_ends_with(path, ".npy"))
        return add_npy(to, path, err);
    return nd_fail(err, ND_E_IMPORT_FORMAT, path, "'%s' is neither .npz nor .npy by its name", path);
}

static enum nd_status add_folder(const struct adding *to, const char *path, struct nd_error *err)
{
    struct dirent **entries = NULL;
    size_t n_files = 0;
    int n = scandir(path, &entries, NULL, alphasort);
    if (n < 0)
        return nd_fail(err, ND_E_FILE_OPEN, path, "cannot open folder '%s': %s", path, strerror(errno));
    enum nd_status status = ND_OK;
    for (int i = 0; i < n; i++) {
        const char *name = entries[i]->d_name;
        bool is_array = name[0] != '.' && (nd_ends_with(name, ".npy") || nd_ends_with(name, ".npz"));
        if (is_array && status == ND_OK) {
            char *file = nd_path_join(path, name);
            status = file != NULL ? add_file_of_numpy(to, file, err) : nd_fail_memory(err);
            free(file);
            n_files++;
        }
        free(entries[i]);
    }
    free(entries);
    if (status == ND_OK && n_files == 0)
        return nd_fail(err, ND_E_IMPORT_NOTHING, path, "folder '%s' holds no .npy or .npz file", path);
    return status;
}

static enum nd_status add_path(const struct adding *to, const char *path, struct nd_error *err)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode) ? add_folder(to, path, err)
                                                           : add_file_of_numpy(to, path, err);
}

static enum nd_status read_numpy(const struct nd_import_options *options, struct nd_imported *imported,
                                 struct nd_error *err)
{
    bool is_file = options->samples == ND_IMPORT_SAMPLES_FILE;
    for (size_t i = 0; i < options->n_paths; i++) {
        const struct adding to = {imported, ND_IMPORTED_OUTPUT, is_file ? i : ND_IMPORTED_ARRAY};
        ND_TRY(add_path(&to, options->paths[i], err));
    }
    if (is_file)
        ND_TRY(nd_imported_fact(imported, "samples", NULL, "one of each PATH, in the order given", err));
    ND_TRY(nd_imported_fact(imported, "names", NULL, "names of arrays and files", err));
    ND_TRY(nd_imported_fact(imported, "types", NULL, ".npy header", err));
    return nd_imported_fact(imported, "shapes", NULL, ".npy header", err);
}

const struct nd_import_reader nd_import_numpy = {
    .format = {"numpy", "OUT.npz|OUT.npy|FOLDER...",
               "NumPy arrays: a .npz holds one array per tensor, a .npy is named after its file, a folder "
               "holds both"},
    .read = read_numpy,
};

/* In the order of the help. A new format is one line here and its extern in imported.h. */
static const struct nd_import_reader *const readers[] = {
    &nd_import_numpy, &nd_import_raw,        &nd_import_onnx_pb,
    &nd_import_aihub, &nd_import_polygraphy, &nd_import_qnn_net_run,
};

enum { N_READERS = sizeof readers / sizeof readers[0] };

const struct nd_import_reader *nd_import_reader_find(const char *name)
{
    for (size_t i = 0; i < N_READERS; i++)
        if (strcmp(readers[i]->format.name, name) == 0)
            return readers[i];
    return NULL;
}

const struct nd_import_format *nd_import_format(size_t i)
{
    return i < N_READERS ? &readers[i]->format : NULL;
}

/* ---- inputs by the probe reader, where a model says what they must be ---- */

static enum nd_status make_probe(const struct nd_import_options *options, struct nd_probe **out,
                                 struct nd_error *err)
{
    ND_TRY(nd_model_check_static(options->model, err));
    ND_FREED char *text = nd_text("inputs=%s", options->inputs);
    return text != NULL ? nd_probe_for_model(options->model, text, out, err) : nd_fail_memory(err);
}

static enum nd_status add_probe(const struct nd_import_options *options, struct nd_imported *imported,
                                struct nd_error *err)
{
    ND_CLEANUP(nd_probe_destroy) struct nd_probe *probe = NULL;
    ND_TRY(make_probe(options, &probe, err));
    for (size_t i = 0; i < probe->n_inputs; i++) {
        const struct nd_probe_input *input = &probe->inputs[i];
        for (size_t s = 0; s < probe->n_samples; s++) {
            void *data = NULL;
            const struct nd_imported_new sample = {ND_IMPORTED_INPUT, input->name,  options->inputs,
                                                   input->dtype,      input->shape, s};
            ND_TRY(nd_imported_add(imported, &sample, &data, err));
            if (input->sample_bytes > 0)
                memcpy(data, (const char *)input->data + s * input->sample_bytes, input->sample_bytes);
        }
    }
    if (probe->labels != NULL) {
        imported->labels = probe->labels;
        imported->n_labels = probe->n_samples;
        probe->labels = NULL;
    }
    return ND_OK;
}

static enum nd_status add_inputs(const struct nd_import_options *options, struct nd_imported *imported,
                                 struct nd_error *err)
{
    if (options->inputs == NULL)
        return ND_OK;
    if (imported->sides[ND_IMPORTED_INPUT].n > 0)
        return nd_fail(err, ND_E_IMPORT_OPTION, options->inputs, "--inputs is given, but %s",
                       "the files hold inputs themselves");
    if (nd_ends_with(options->inputs, ".h5"))
        ND_TRY(nd_aihub_add(imported, ND_IMPORTED_INPUT, options->inputs, err));
    else if (options->model != NULL)
        ND_TRY(add_probe(options, imported, err));
    else
        ND_TRY(
            add_path(&(struct adding){imported, ND_IMPORTED_INPUT, ND_IMPORTED_ARRAY}, options->inputs, err));
    return nd_imported_fact(imported, "inputs", NULL, "--inputs", err);
}

/* ---- facts ---- */

/* Options first, so that messages name them; then the file of facts, then the map. */
static enum nd_status collect_facts(const struct nd_import_options *options, struct nd_statements *out,
                                    struct nd_error *err)
{
    if (options->label != NULL)
        ND_TRY(nd_statements_add(out, "label", options->label, "--label", err));
    if (options->chipset != NULL)
        ND_TRY(nd_statements_add(out, "chipset", options->chipset, "--chipset", err));
    for (size_t i = 0; i < options->n_stated; i++)
        ND_TRY(nd_statements_add(out, options->stated[i].key, options->stated[i].value,
                                 options->stated[i].option, err));
    if (options->facts != NULL)
        ND_TRY(nd_statements_read(out, options->facts, options->map == NULL, err));
    if (options->map != NULL)
        ND_TRY(nd_statements_read(out, options->map, true, err));
    return nd_statements_check(out, err);
}

static enum nd_status add_logs(struct nd_imported *imported, struct nd_error *err)
{
    enum { MAX_LOG_BYTES = 64 << 20 };
    const struct nd_statement *logs = &imported->stated.of[ND_STATED_LOGS];
    for (size_t i = 0; i < logs->values.n; i++) {
        ND_FREED void *text = NULL;
        size_t n = 0;
        ND_FREED char *path = nd_stated_path(&imported->stated, ND_STATED_LOGS, i);
        ND_TRY_MEMORY(path != NULL, err);
        ND_TRY(nd_file_read(path, MAX_LOG_BYTES, &text, &n, err));
        for (size_t k = 0; k < imported->n_logs; k++)
            if (strcmp(imported->logs[k].name, nd_path_base(path)) == 0)
                return nd_fail(err, ND_E_IMPORT_FACT, path, "%s: there is a log '%s' already", logs->where,
                               nd_path_base(path));
        ND_TRY(nd_imported_log(imported, nd_path_base(path), text, n, err));
    }
    return ND_OK;
}

/* ---- repeats ---- */

static enum nd_status read_repeats(const struct nd_import_reader *reader,
                                   const struct nd_import_options *options, const struct nd_statements *stated,
                                   struct nd_imported *repeats, struct nd_error *err)
{
    const struct nd_statement *files = &stated->of[ND_STATED_REPEAT_FILES];
    enum nd_status status = ND_OK;
    if (files->values.n > 0 && options->n_paths != 1)
        return nd_fail(
            err, ND_E_IMPORT_FACT, "repeat_files",
            "%s: each repeat is one PATH, but the first run has %zu; put them into one folder or file",
            files->where, options->n_paths);
    for (size_t i = 0; status == ND_OK && i < files->values.n; i++) {
        char *path = nd_stated_path(stated, ND_STATED_REPEAT_FILES, i);
        const char *paths[] = {path};
        struct nd_import_options again = *options;
        again.paths = paths;
        status = path != NULL ? reader->read(&again, &repeats[i], err) : nd_fail_memory(err);
        if (status != ND_OK)
            nd_error_context(err, "repeat %zu", i + 1);
        free(path);
    }
    return status;
}

/* ---- all of it ---- */

static enum nd_status read_all(const struct nd_import_reader *reader, const struct nd_import_options *options,
                               struct nd_imported *imported, struct nd_error *err)
{
    bool has_failed = nd_stated(&imported->stated, ND_STATED_FAILED) != NULL;
    if (options->n_paths == 0 && !has_failed)
        return nd_fail(err, ND_E_IMPORT_OPTION, options->format,
                       "no file to import; of a run that gave none 'failed' states why");
    if (options->n_paths > 0)
        ND_TRY(reader->read(options, imported, err));
    ND_TRY(add_inputs(options, imported, err));
    ND_TRY(add_logs(imported, err));
    return nd_import_check_stated(imported, options, err);
}

enum nd_status nd_import(const struct nd_import_options *given, struct nd_import_result *out,
                         struct nd_error *err)
{
    ND_CLEANUP(nd_imported_deinit) struct nd_imported imported = {0};
    struct nd_import_options options = {.struct_size = sizeof options};
    ND_TRY(nd_options_read(&options, sizeof options, given, err));
    const char *format = options.format != NULL ? options.format : "";
    const struct nd_import_reader *reader = nd_import_reader_find(format);
    if (reader == NULL)
        return nd_fail(err, ND_E_IMPORT_OPTION, format, "there is no format '%s'", format);
    enum nd_status status = collect_facts(&options, &imported.stated, err);
    size_t n_repeats = imported.stated.of[ND_STATED_REPEAT_FILES].values.n;
    ND_FREED struct nd_imported *repeats = nd_calloc(n_repeats, sizeof *repeats);
    if (status == ND_OK && repeats == NULL)
        status = nd_fail_memory(err);
    if (options.map == NULL)
        options.map = options.facts; /* tensors may be described in either file */
    if (status == ND_OK)
        status = read_all(reader, &options, &imported, err);
    if (status == ND_OK)
        status = read_repeats(reader, &options, &imported.stated, repeats, err);
    if (status == ND_OK)
        status = nd_imported_write(&imported, repeats, n_repeats, &options, out, err);
    for (size_t i = 0; repeats != NULL && i < n_repeats; i++)
        nd_imported_deinit(&repeats[i]);
    return status;
}
