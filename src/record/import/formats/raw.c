/* Bare bytes: a YAML file says which files hold which tensor (docs/reference/import-raw.md). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "core/documents/yaml_map.h"
#include "record/import/formats/formats.h"
#include "npudiff/core/parse.h"
#include "record/probes/source.h"

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
    free(tensor->name);
    free(tensor->dtype_name);
    free(tensor->file);
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
    struct nd_texts made = {0};
    const char *pattern = tensor->files.items[0], *place = strstr(pattern, "{}");
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < tensor->n_samples; i++) {
        struct nd_strbuf text = {0};
        nd_strbuf_printf(&text, "%.*s%zu%s", (int)(place - pattern), pattern, i, place + 2);
        char *path = nd_strbuf_take(&text);
        if (path == NULL || !nd_texts_add(&made, path))
            status = nd_fail_memory(err);
        free(path);
    }
    nd_texts_deinit(&tensor->files);
    tensor->files = made;
    return status;
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
    enum nd_status status = nd_yaml_map(
        &r->yaml, r->node, &(struct nd_yaml_kind){"a tensor of a raw list", keys, COUNT(keys)}, tensor, err);
    if (status != ND_OK)
        return status;
    tensor->dtype = nd_dtype_from_name(tensor->dtype_name);
    if (tensor->dtype == ND_DTYPE_NONE)
        return nd_yaml_fail(&r->yaml, &r->node->start_mark, err, "there is no type '%s'", tensor->dtype_name);
    if ((tensor->file == NULL) == (tensor->files.n == 0))
        return nd_yaml_fail(&r->yaml, &r->node->start_mark, err,
                            "tensor '%s' needs either 'file' (all samples) or 'files' (one for each)",
                            tensor->name);
    status = read_shape(r, tensor, err);
    if (status == ND_OK)
        status = expand_pattern(r, tensor, err);
    if (status == ND_OK && tensor->files.n > 0 && tensor->n_samples > 0 && tensor->n_samples != tensor->files.n)
        status = nd_yaml_fail(&r->yaml, &r->node->start_mark, err, "tensor '%s' has %zu files, but %zu samples",
                              tensor->name, tensor->files.n, tensor->n_samples);
    return status;
}

/* Appends n_samples samples from the source. */
static enum nd_status add_samples(struct raw_reading *r, const struct raw_tensor *tensor,
                                  struct nd_source *source, size_t first, size_t n, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < n; i++) {
        void *data = NULL;
        const struct nd_imported_new sample = {r->side,       tensor->name,  source->what,
                                               tensor->dtype, tensor->shape, first + i};
        status = nd_imported_add(r->imported, &sample, &data, err);
        if (status == ND_OK)
            status = nd_source_read(source, data, tensor->sample_bytes, err);
    }
    return status == ND_OK ? nd_source_finish(source, err) : status;
}

static enum nd_status add_file(struct raw_reading *r, const struct raw_tensor *tensor, const char *name,
                               size_t first, size_t n, struct nd_error *err)
{
    char shape[128];
    struct nd_source source = {0};
    char *path = nd_path_join(r->folder, name);
    enum nd_status status = path != NULL ? nd_source_open(&source, path, err) : nd_fail_memory(err);
    free(path);
    if (status != ND_OK)
        return status;
    if (n == 0) { /* as many as there are */
        if (tensor->sample_bytes == 0)
            status = nd_yaml_fail(&r->yaml, &r->node->start_mark, err,
                                  "tensor '%s' is empty and needs 'samples'", tensor->name);
        else
            n = source.size_bytes / tensor->sample_bytes;
    }
    if (status == ND_OK &&
        (n == 0 || source.size_bytes / n != tensor->sample_bytes || source.size_bytes % n != 0))
        status = nd_fail(err, ND_E_IMPORT_FORMAT, source.path,
                         "%s has %zu bytes; a sample of '%s', %s %s, takes %zu%s", source.what,
                         source.size_bytes, tensor->name, tensor->dtype_name,
                         nd_shape_format(&tensor->shape, shape, sizeof shape), tensor->sample_bytes,
                         source.size_bytes > 0 && n > 1 ? ", and there must be whole ones" : "");
    if (status == ND_OK)
        status = add_samples(r, tensor, &source, first, n, err);
    nd_source_close(&source);
    return status;
}

static enum nd_status add_tensor(struct raw_reading *r, struct nd_error *err)
{
    struct raw_tensor tensor = {0};
    enum nd_status status = read_tensor(r, &tensor, err);
    if (status == ND_OK && tensor.file != NULL)
        status = add_file(r, &tensor, tensor.file, 0, tensor.n_samples, err);
    for (size_t i = 0; status == ND_OK && i < tensor.files.n; i++)
        status = add_file(r, &tensor, tensor.files.items[i], i, 1, err);
    raw_tensor_deinit(&tensor);
    return status;
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
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < options->n_paths; i++) {
        char *folder = nd_path_dir(options->paths[i]);
        struct raw_reading reading = {.folder = folder, .imported = imported};
        status = folder != NULL ? add_lists(&reading, options->paths[i], err) : nd_fail_memory(err);
        free(folder);
    }
    for (size_t i = 0; status == ND_OK && i < COUNT(kinds); i++)
        status = nd_imported_fact(imported, kinds[i], NULL, "the raw list", err);
    return status;
}

const struct nd_import_reader nd_import_raw = {
    .format = {"raw", "LIST.yaml...",
               "bare little-endian bytes in C order, described by a YAML list: name, dtype, shape "
               "and file or files of every tensor (docs/reference/import-raw.md)"},
    .read = read_raw,
};
