/* What describes the tensors of a run: npudiff.json, the JSON of a context, <name>_native.raw.json. */
#include <math.h>

#include "core/files/file.h"
#include "core/items.h"
#include "core/tensors/scales.h"
#include "core/text/strbuf.h"
#include "model/encodings/building.h"
#include "record/qnn/net_run.h"

/* What is stated of the tensors of a run: kept, found, and held against what something else states. */

void nd_qnr_stated_deinit(struct nd_qnr_stated *stated)
{
    ND_FREE_ALL(stated->file, stated->name);
    nd_quant_deinit(&stated->quant);
    *stated = (struct nd_qnr_stated){0};
}

static void list_deinit(struct nd_qnr_list *list)
{
    ND_DEINIT_EACH(nd_qnr_stated_deinit, list->items, list->n);
}

void nd_qnr_source_deinit(struct nd_qnr_source *source)
{
    list_deinit(&source->outputs);
    list_deinit(&source->inputs);
    ND_FREE_ALL(source->path, source->build_id);
    json_decref(source->root);
    *source = (struct nd_qnr_source){0};
}

const struct nd_qnr_stated *nd_qnr_find(const struct nd_qnr_list *list, const char *file)
{
    return nd_find_text(list->items, list->n, sizeof *list->items, file);
}

/* A tensor at the end of the list; none is there twice (ND_E_QNN_STATED). Takes over what stated owns. path is
 * what states it. */
static enum nd_status nd_qnr_add(struct nd_qnr_list *list, struct nd_qnr_stated *stated, const char *path,
                                 struct nd_error *err)
{
    if (stated->file[0] != '\0' && nd_qnr_find(list, stated->file) != NULL)
        return nd_fail(err, ND_E_QNN_STATED, stated->file, "'%s' describes tensor '%s' twice", path,
                       stated->file);
    ND_TRY_MEMORY(nd_grow((void **)&list->items, &list->capacity, list->n + 1, sizeof *list->items), err);
    list->items[list->n++] = *stated;
    *stated = (struct nd_qnr_stated){0};
    return ND_OK;
}

/* ---- agreement ---- */

/* Both state a quantisation. */
static enum nd_status agree_on_quant(const struct nd_qnr_stated *a, const char *a_from,
                                     const struct nd_qnr_stated *b, const char *b_from, struct nd_error *err)
{
    const struct nd_quant *x = &a->quant, *y = &b->quant;
    if (x->n != y->n)
        return nd_fail(err, ND_E_QNN_STATED, a->file, "tensor '%s' has %zu scales in '%s', but %zu in '%s'",
                       a->file, x->n, a_from, y->n, b_from);
    if (x->n > 1 && x->axis != y->axis)
        return nd_fail(err, ND_E_QNN_STATED, a->file,
                       "tensor '%s' has its %zu scales along dimension %d in '%s', but along dimension %d in "
                       "'%s'",
                       a->file, x->n, x->axis, a_from, y->axis, b_from);
    for (size_t i = 0; i < x->n; i++)
        if (memcmp(&x->scale[i], &y->scale[i], sizeof *x->scale) != 0 || x->zero_point[i] != y->zero_point[i])
            return nd_fail(err, ND_E_QNN_STATED, a->file,
                           "tensor '%s' has scale %.9g, zero point %lld in '%s', but scale %.9g, zero point "
                           "%lld in '%s' (channel %zu)",
                           a->file, (double)x->scale[i], (long long)x->zero_point[i], a_from,
                           (double)y->scale[i], (long long)y->zero_point[i], b_from, i);
    return ND_OK;
}

enum nd_status nd_qnr_agree(const struct nd_qnr_stated *a, const char *a_from, const struct nd_qnr_stated *b,
                            const char *b_from, struct nd_error *err)
{
    char left[128], right[128];
    if (a->dtype != ND_DTYPE_NONE && b->dtype != ND_DTYPE_NONE && a->dtype != b->dtype)
        return nd_fail(err, ND_E_QNN_STATED, a->file, "tensor '%s' is %s in '%s', but %s in '%s'", a->file,
                       nd_dtype_name(a->dtype), a_from, nd_dtype_name(b->dtype), b_from);
    if (a->shape.rank >= 0 && b->shape.rank >= 0 && !nd_shape_equal(&a->shape, &b->shape))
        return nd_fail(err, ND_E_QNN_STATED, a->file, "tensor '%s' has shape %s in '%s', but %s in '%s'",
                       a->file, nd_shape_format(&a->shape, left, sizeof left), a_from,
                       nd_shape_format(&b->shape, right, sizeof right), b_from);
    return a->quant.n == 0 || b->quant.n == 0 ? ND_OK : agree_on_quant(a, a_from, b, b_from, err);
}

enum { MAX_JSON_BYTES = 512 << 20 };

/* ---- JSON ---- */

static enum nd_status load(const char *path, json_t **out, struct nd_error *err)
{
    ND_FREED void *bytes = NULL;
    size_t n_bytes = 0;
    json_error_t problem;
    ND_TRY(nd_file_read(path, MAX_JSON_BYTES, &bytes, &n_bytes, err));
    json_auto_t *root = json_loadb(bytes, n_bytes, JSON_REJECT_DUPLICATES, &problem);
    if (root == NULL)
        return nd_fail(err, ND_E_QNN_STATED, path, "'%s' is no JSON: line %d, column %d: %s", path,
                       problem.line, problem.column, problem.text);
    if (!json_is_object(root))
        return nd_fail(err, ND_E_QNN_STATED, path, "'%s' is no JSON object", path);
    *out = json_incref(root);
    return ND_OK;
}

static enum nd_status fail_key(const char *path, const char *tensor, const char *key, const char *expected,
                               struct nd_error *err)
{
    return nd_fail(err, ND_E_QNN_STATED, tensor != NULL ? tensor : path, "'%s': %s%s%skey '%s' is not %s", path,
                   tensor != NULL ? "tensor '" : "", tensor != NULL ? tensor : "", tensor != NULL ? "': " : "",
                   key, expected);
}

static enum nd_status get_text(const json_t *object, const char *key, const char *path, const char *tensor,
                               const char **out, struct nd_error *err)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value) || strlen(json_string_value(value)) != json_string_length(value))
        return fail_key(path, tensor, key, "a text", err);
    *out = json_string_value(value);
    return ND_OK;
}

static enum nd_status get_shape(const json_t *object, const char *key, const char *path, const char *tensor,
                                struct nd_shape *out, struct nd_error *err)
{
    const json_t *list = json_object_get(object, key), *dim;
    size_t i;
    if (!json_is_array(list) || json_array_size(list) > ND_MAX_RANK)
        return fail_key(path, tensor, key, "a list of at most 8 dimensions", err);
    out->rank = (int)json_array_size(list);
    json_array_foreach(list, i, dim) {
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return fail_key(path, tensor, key, "a list of whole numbers from 0 on", err);
        out->dims[i] = json_integer_value(dim);
    }
    size_t n;
    enum nd_status status = nd_shape_n_elems(out, &n, err);
    if (status != ND_OK)
        nd_error_context(err, "'%s': tensor '%s': key '%s'", path, tensor, key);
    return status;
}

/* ---- the manifest ---- */

static enum nd_status get_quant(const json_t *object, const char *path, struct nd_qnr_stated *out,
                                struct nd_error *err)
{
    const json_t *scales = json_object_get(object, "scale"), *zeros = json_object_get(object, "zero_point");
    const json_t *axis = json_object_get(object, "axis");
    size_t n = json_array_size(scales);
    if (scales == NULL || json_is_null(scales))
        return ND_OK;
    if (n == 0)
        return fail_key(path, out->file, "scale", "a list of numbers", err);
    if (!json_is_array(zeros) || json_array_size(zeros) != n)
        return fail_key(path, out->file, "zero_point", "a list as long as 'scale'", err);
    if (n > 1 &&
        !(json_is_integer(axis) && json_integer_value(axis) >= 0 && json_integer_value(axis) < out->shape.rank))
        return fail_key(path, out->file, "axis", "a dimension of the tensor", err);
    out->quant.scale = nd_calloc(n, sizeof *out->quant.scale);
    out->quant.zero_point = nd_calloc(n, sizeof *out->quant.zero_point);
    ND_TRY_MEMORY(out->quant.scale != NULL && out->quant.zero_point != NULL, err);
    for (size_t i = 0; i < n; i++) {
        const json_t *scale = json_array_get(scales, i), *zero = json_array_get(zeros, i);
        float value = (float)json_number_value(scale);
        if (!json_is_number(scale) || !isfinite(value) || !(value > 0))
            return fail_key(path, out->file, "scale", "a finite number above 0", err);
        if (!json_is_integer(zero) || llabs(json_integer_value(zero)) > INT64_C(4294967296))
            return fail_key(path, out->file, "zero_point", "a whole number of at most 33 bits", err);
        out->quant.scale[i] = value;
        out->quant.zero_point[i] = json_integer_value(zero);
    }
    out->quant.n = n;
    out->quant.axis = n > 1 ? (int)json_integer_value(axis) : -1;
    return ND_OK;
}

static enum nd_status check_size(const json_t *object, const char *path, const struct nd_qnr_stated *stated,
                                 struct nd_error *err)
{
    char shape[128];
    size_t n_bytes = 0;
    const json_t *size = json_object_get(object, "size_bytes");
    enum nd_status status = nd_shape_size_bytes(&stated->shape, stated->dtype, &n_bytes, err);
    if (status != ND_OK || size == NULL)
        return status;
    if (!json_is_integer(size) || json_integer_value(size) < 0 || (size_t)json_integer_value(size) != n_bytes)
        return nd_fail(err, ND_E_QNN_STATED, stated->file,
                       "'%s': tensor '%s': 'size_bytes' contradicts its type and shape: %s %s takes %zu bytes",
                       path, stated->file, nd_dtype_name(stated->dtype),
                       nd_shape_format(&stated->shape, shape, sizeof shape), n_bytes);
    return ND_OK;
}

static enum nd_status read_prepared(const json_t *object, const char *path, struct nd_qnr_list *list,
                                    struct nd_error *err)
{
    const char *file = NULL, *name = NULL, *dtype = NULL, *layout = "onnx";
    ND_CLEANUP(nd_qnr_stated_deinit) struct nd_qnr_stated stated = {.is_model_layout = true};
    ND_TRY(get_text(object, "context_name", path, NULL, &file, err));
    ND_TRY(get_text(object, "name", path, file, &name, err));
    ND_TRY(get_text(object, "dtype", path, file, &dtype, err));
    if (json_object_get(object, "layout") != NULL)
        ND_TRY(get_text(object, "layout", path, file, &layout, err));
    if (strcmp(layout, "onnx") != 0)
        ND_TRY(fail_key(path, file, "layout", "'onnx'", err));
    if (nd_dtype_from_name(dtype) == ND_DTYPE_NONE)
        ND_TRY(fail_key(path, file, "dtype", "a type", err));
    ND_TRY(get_shape(object, "shape", path, file, &stated.shape, err));
    stated.file = nd_strdup(file);
    stated.name = nd_strdup(name);
    stated.dtype = nd_dtype_from_name(dtype);
    ND_TRY(stated.file != NULL && stated.name != NULL ? get_quant(object, path, &stated, err)
                                                      : nd_fail_memory(err));
    ND_TRY(check_size(object, path, &stated, err));
    return nd_qnr_add(list, &stated, path, err);
}

static enum nd_status read_prepared_list(const json_t *root, const char *key, const char *path,
                                         struct nd_qnr_list *list, struct nd_error *err)
{
    const json_t *array = json_object_get(root, key), *object;
    size_t i;
    if (!json_is_array(array))
        return fail_key(path, NULL, key, "a list of tensors", err);
    json_array_foreach(array, i, object) {
        ND_TRY(read_prepared(object, path, list, err));
    }
    return ND_OK;
}

enum nd_status nd_qnr_read_manifest(const char *path, struct nd_qnr_source *out, struct nd_error *err)
{
    ND_TRY(load(path, &out->root, err));
    const json_t *version = json_object_get(out->root, "npudiff_prepare");
    const json_t *sdk = json_object_get(json_object_get(out->root, "runtime"), "sdk");
    out->path = nd_strdup(path);
    out->build_id = nd_strdup(json_string_value(sdk));
    ND_TRY_MEMORY(out->path != NULL, err);
    if (!json_is_integer(version) || json_integer_value(version) != 1)
        return fail_key(path, NULL, "npudiff_prepare", "1, the version that is read", err);
    ND_TRY(read_prepared_list(out->root, "outputs", path, &out->outputs, err));
    return read_prepared_list(out->root, "inputs", path, &out->inputs, err);
}

/* ---- the JSON of a context ---- */

static enum nd_dtype type_of(const json_t *value)
{
    const struct nd_qnn_type *type = nd_qnn_type_read(value);
    return type != NULL ? type->dtype : ND_DTYPE_NONE;
}

static enum nd_status copy_quant(const struct nd_encodings *encodings, const char *name, struct nd_quant *out,
                                 struct nd_error *err)
{
    size_t at = nd_encodings_find(encodings, name);
    if (at == SIZE_MAX || nd_encodings_at(encodings, at)->quant.n == 0)
        return ND_OK;
    enum nd_status status = nd_quant_copy(&nd_encodings_at(encodings, at)->quant, out, err);
    out->axis = out->n > 1 ? out->axis : -1;
    return status;
}

static enum nd_status read_context_tensor(const json_t *info, const struct nd_encodings *encodings,
                                          const char *path, struct nd_qnr_list *list, struct nd_error *err)
{
    const char *name = NULL;
    ND_CLEANUP(nd_qnr_stated_deinit)
    struct nd_qnr_stated stated = {.dtype = type_of(json_object_get(info, "dataType"))};
    ND_TRY(get_text(info, "name", path, NULL, &name, err));
    if (stated.dtype == ND_DTYPE_NONE)
        return fail_key(path, name, "dataType", "a type of QNN that is known", err);
    ND_TRY(get_shape(info, "dimensions", path, name, &stated.shape, err));
    ND_TRY(copy_quant(encodings, name, &stated.quant, err));
    if (stated.quant.n > 1 && (stated.quant.axis >= stated.shape.rank ||
                               stated.shape.dims[stated.quant.axis] != (int64_t)stated.quant.n))
        return nd_fail(err, ND_E_QNN_STATED, name,
                       "'%s': tensor '%s' has %zu scales along dimension %d, which is not of that length", path,
                       name, stated.quant.n, stated.quant.axis);
    stated.file = nd_strdup(name);
    ND_TRY_MEMORY(stated.file != NULL, err);
    return nd_qnr_add(list, &stated, path, err);
}

static enum nd_status read_context_list(const json_t *graph, const char *key,
                                        const struct nd_encodings *encodings, const char *path,
                                        struct nd_qnr_list *list, struct nd_error *err)
{
    const json_t *array = json_object_get(graph, key), *tensor;
    size_t i;
    if (!json_is_array(array))
        return fail_key(path, NULL, key, "a list of tensors", err);
    json_array_foreach(array, i, tensor) {
        ND_TRY(read_context_tensor(json_object_get(tensor, "info"), encodings, path, list, err));
    }
    return ND_OK;
}

/* The only graph, or the one of that name. */
static enum nd_status choose_graph(const json_t *root, const char *graph, const char *path, const json_t **out,
                                   struct nd_error *err)
{
    const json_t *graphs = json_object_get(json_object_get(root, "info"), "graphs"), *item;
    size_t i, n = json_array_size(graphs);
    char names[300] = "";
    if (n == 0)
        return fail_key(path, NULL, "graphs", "a list of graphs", err);
    json_array_foreach(graphs, i, item) {
        const json_t *info = json_object_get(item, "info");
        const char *name = json_string_value(json_object_get(info, "graphName"));
        if (n == 1 || (graph != NULL && name != NULL && strcmp(name, graph) == 0)) {
            *out = info;
            return ND_OK;
        }
        size_t at = strlen(names);
        snprintf(names + at, sizeof names - at, "%s'%s'", at > 0 ? ", " : "", name != NULL ? name : "");
    }
    return nd_fail(err, graph != NULL ? ND_E_QNN_STATED : ND_E_IMPORT_OPTION, path,
                   "'%s' describes several graphs, %s%s%s%s: %s", path,
                   graph != NULL ? "but not '" : "--graph says which", graph != NULL ? graph : "",
                   graph != NULL ? "'" : "", graph != NULL ? "" : "", names);
}

enum nd_status nd_qnr_read_context(const char *path, const char *graph, struct nd_qnr_source *out,
                                   struct nd_error *err)
{
    ND_CLEANUP(nd_encodings_destroy) struct nd_encodings *encodings = NULL;
    const json_t *info = NULL;
    ND_TRY(load(path, &out->root, err));
    ND_TRY(choose_graph(out->root, graph, path, &info, err));
    ND_TRY(nd_encodings_read(path, &encodings, err));
    ND_TRY(read_context_list(info, "graphOutputs", encodings, path, &out->outputs, err));
    ND_TRY(read_context_list(info, "graphInputs", encodings, path, &out->inputs, err));
    const json_t *build = json_object_get(json_object_get(out->root, "info"), "buildId");
    out->path = nd_strdup(path);
    out->build_id = nd_strdup(json_string_value(build));
    return out->path != NULL ? ND_OK : nd_fail_memory(err);
}

/* ---- <name>_native.raw.json ---- */

/* The quantisation by the reader of contexts, which knows all spellings. */
static enum nd_status read_sidecar_quant(const json_t *root, const char *path, const char *name,
                                         enum nd_dtype dtype, struct nd_quant *out, struct nd_error *err)
{
    const struct nd_qnn_type *type = nd_qnn_type_quantised(dtype);
    ND_CLEANUP(nd_encodings_destroy) struct nd_encodings *encodings = NULL;
    const json_t *params = json_object_get(root, "quantizeParams");
    if (type == NULL)
        return ND_OK;
    bool is_flat = json_object_get(root, "scale") != NULL || json_object_get(root, "offset") != NULL;
    json_auto_t *quant = params != NULL ? json_incref((json_t *)params)
                         : is_flat      ? json_pack("{s:O}", "scaleOffset", root)
                                        : json_incref((json_t *)root);
    json_auto_t *wrapped =
        json_pack("{s:{s:[{s:{s:[{s:{s:s, s:s, s:O}}]}}]}}", "info", "graphs", "info", "graphOutputs", "info",
                  "name", name, "dataType", type->name, "quantizeParams", quant);
    ND_TRY(quant != NULL && wrapped != NULL ? nd_encodings_create(path, "QNN", &encodings, err)
                                            : nd_fail_memory(err));
    ND_TRY(nd_encodings_read_qnn(encodings, wrapped, err));
    return copy_quant(encodings, name, out, err);
}

enum nd_status nd_qnr_read_sidecar(const char *path, const char *name, enum nd_dtype known,
                                   struct nd_qnr_stated *out, struct nd_error *err)
{
    json_auto_t *root = NULL;
    ND_CLEANUP(nd_qnr_stated_deinit) struct nd_qnr_stated made = {.shape = {.rank = -1}};
    ND_TRY(load(path, &root, err));
    const json_t *type = json_object_get(root, "dataType");
    made.dtype = type_of(type);
    made.file = nd_strdup(name);
    ND_TRY_MEMORY(made.file != NULL, err);
    if (type != NULL && made.dtype == ND_DTYPE_NONE)
        return fail_key(path, name, "dataType", "a type of QNN that is known", err);
    if (json_object_get(root, "dimensions") != NULL)
        ND_TRY(get_shape(root, "dimensions", path, name, &made.shape, err));
    ND_TRY(read_sidecar_quant(root, path, name, made.dtype != ND_DTYPE_NONE ? made.dtype : known, &made.quant,
                              err));
    return ND_GIVE(out, made);
}

enum nd_status nd_qnr_fact(struct nd_qnr *run, const char *kind, const char *tensor, struct nd_error *err,
                           const char *fmt, ...)
{
    char text[1000];
    ND_PRINT_ARGUMENTS(text, fmt);
    return nd_imported_fact(run->imported, kind, tensor, text, err);
}

enum nd_status nd_qnr_cut(struct nd_qnr *run, size_t n, struct nd_error *err, const char *fmt, ...)
{
    char text[1000];
    ND_PRINT_ARGUMENTS(text, fmt);
    if (n < run->n_complete)
        run->n_complete = n;
    struct nd_strbuf all = {0};
    nd_strbuf_printf(&all, "%s%s%s", run->imported->cut_short != NULL ? run->imported->cut_short : "",
                     run->imported->cut_short != NULL ? "; " : "", text);
    free(run->imported->cut_short);
    run->imported->cut_short = nd_strbuf_take(&all);
    ND_TRY_MEMORY(run->imported->cut_short != NULL, err);
    if (run->n_complete == 0)
        return nd_fail(err, ND_E_IMPORT_NOTHING, run->output, "no inference is complete: %s", text);
    return ND_OK;
}
