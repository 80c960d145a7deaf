/* The tensors of a run: what they are, and their bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "record/import/edge_names.h"
#include "record/import/sample_layout.h"
#include "record/probes/source.h"
#include "record/qnn/net_run.h"

/* The name in the capture, or the one that the model is searched for. */
static const char *name_of(const struct nd_qnr_tensor *t)
{
    return t->stated != NULL && t->stated->name != NULL ? t->stated->name : t->file;
}

/* ---- what they are ---- */

static enum nd_status find_edge(struct nd_qnr *run, struct nd_qnr_tensor *t, struct nd_error *err)
{
    size_t edge = 0;
    enum nd_name_way way;
    struct nd_error problem = {0};
    const struct nd_model *model = run->options->model;
    const char *mapped = t->item != NULL ? t->item->edge : NULL;
    if (model == NULL)
        return ND_OK;
    enum nd_status status =
        nd_name_find_edge(model, mapped != NULL ? mapped : name_of(t),
                          run->imported->has_sanitised_names && mapped == NULL, &edge, &way, &problem);
    if (status == ND_OK)
        t->edge = nd_model_edge(model, edge);
    else if (status == ND_ERR_NOT_FOUND) /* the matching says what comes of it */
        status = ND_OK;
    else if (err != NULL)
        *err = problem;
    return status;
}

static enum nd_status read_sidecar(struct nd_qnr *run, struct nd_qnr_tensor *t, size_t result,
                                   struct nd_qnr_stated *out, struct nd_error *err)
{
    enum nd_dtype known = t->stated != NULL ? t->stated->dtype
                          : t->edge != NULL ? t->edge->dtype
                                            : ND_DTYPE_NONE;
    char *path = nd_qnr_path(run, result, t->file, "_native.raw.json");
    enum nd_status status =
        path != NULL ? nd_qnr_read_sidecar(path, t->file, known, out, err) : nd_fail_memory(err);
    if (status == ND_OK && t->stated != NULL)
        status = nd_qnr_agree(t->stated, run->manifest.path != NULL ? run->manifest.path : run->context.path,
                              out, path, err);
    if (status == ND_OK && t->sidecar.file != NULL && out != &t->sidecar)
        status = nd_qnr_agree(&t->sidecar, "Result_0", out, path, err);
    free(path);
    return status;
}

static const char *stated_by(const struct nd_qnr *run)
{
    return run->manifest.path != NULL ? "npudiff.json" : "the context's JSON";
}

static enum nd_status find_type(struct nd_qnr *run, struct nd_qnr_tensor *t, struct nd_error *err)
{
    const char *from = NULL;
    if (!t->has_native) {
        t->dtype = ND_DTYPE_F32;
        from = "float files of the tool";
    } else if (t->stated != NULL) {
        t->dtype = t->stated->dtype;
        from = stated_by(run);
    } else if (t->sidecar.dtype != ND_DTYPE_NONE) {
        t->dtype = t->sidecar.dtype;
        from = "_native.raw.json";
    } else if (t->item != NULL && t->item->dtype != ND_DTYPE_NONE) {
        t->dtype = t->item->dtype;
        from = t->item->where;
    } else if (t->edge != NULL && t->edge->dtype != ND_DTYPE_NONE) {
        t->dtype = t->edge->dtype;
        from = "the model";
    } else {
        return nd_fail(
            err, ND_E_QNN_UNSTATED, t->file,
            "nothing states the type of the native tensor '%s': --context-json, --model, 'dtype' in a "
            "--map, or import a prepared folder",
            t->file);
    }
    return nd_qnr_fact(run, "types", name_of(t), err, "%s", from);
}

/* Whether moving channels moves data. */
static bool is_movable(const struct nd_shape *shape)
{
    int64_t inner = 1;
    for (int d = 2; d < shape->rank; d++)
        inner *= shape->dims[d] > 1 ? 2 : 1;
    return shape->rank > 2 && shape->dims[1] > 1 && inner > 1;
}

static enum nd_status fail_layout(const struct nd_qnr_tensor *t, struct nd_error *err)
{
    char shape[128];
    return nd_fail(err, ND_E_QNN_UNSTATED, t->file,
                   "nothing states the layout of '%s': with shape %s channels may be second or last; --layout "
                   "NCHW or NHWC says it, or 'layout' in a --map",
                   t->file, nd_shape_format(&t->shape, shape, sizeof shape));
}

/* Dimensions that are stated, against those of the model. */
static enum nd_status compare_layouts(struct nd_qnr *run, struct nd_qnr_tensor *t, struct nd_error *err)
{
    if (t->edge == NULL || t->edge->shape.rank < 0)
        return nd_qnr_fact(run, "layout", NULL, err, "not stated: as the dimensions are");
    struct nd_shape moved = nd_layout_channels_last(&t->edge->shape);
    bool is_equal = nd_shape_equal(&t->shape, &t->edge->shape), is_moved = nd_shape_equal(&t->shape, &moved);
    if (is_equal && is_moved && is_movable(&t->edge->shape))
        return fail_layout(t, err);
    t->is_channel_last = is_moved && !is_equal;
    return nd_qnr_fact(run, "layout", t->is_channel_last ? name_of(t) : NULL, err,
                       "dimensions against the model's%s", t->is_channel_last ? ": channels last, moved" : "");
}

static enum nd_status find_layout(struct nd_qnr *run, struct nd_qnr_tensor *t, bool is_of_model,
                                  struct nd_error *err)
{
    bool is_mapped = t->item != NULL && t->item->layout_rank > 0;
    bool is_last = is_mapped ? t->item->is_channel_last
                             : run->options->layout != NULL && strcmp(run->options->layout, "NHWC") == 0;
    if (t->stated != NULL && t->stated->is_model_layout)
        return nd_qnr_fact(run, "layout", NULL, err, "%s", stated_by(run));
    if (is_mapped || run->options->layout != NULL) {
        if (is_last && is_of_model && t->shape.rank > 2)
            t->shape = nd_layout_channels_last(&t->shape);
        t->is_channel_last = is_last && !is_mapped && t->shape.rank > 2;
        return is_mapped ? ND_OK : nd_qnr_fact(run, "layout", NULL, err, "--layout");
    }
    if (!is_of_model)
        return compare_layouts(run, t, err);
    return is_movable(&t->shape) ? fail_layout(t, err)
                                 : nd_qnr_fact(run, "layout", NULL, err, "the shape allows but one");
}

static enum nd_status assume_shape(struct nd_qnr *run, struct nd_qnr_tensor *t, struct nd_error *err)
{
    struct nd_source source = {0};
    char *path = nd_qnr_path(run, 0, t->file, ".raw");
    enum nd_status status = path != NULL ? nd_source_open(&source, path, err) : nd_fail_memory(err);
    if (status == ND_OK && source.size_bytes % (sizeof(float) * run->n_batch) != 0)
        status = nd_fail(err, ND_E_QNN_SIZE, path, "'%s' has %zu bytes, which are no whole float32", path,
                         source.size_bytes);
    if (status == ND_OK)
        t->shape = (struct nd_shape){1, {(int64_t)(source.size_bytes / sizeof(float) / run->n_batch)}};
    nd_source_close(&source);
    free(path);
    return status == ND_OK
               ? nd_qnr_fact(run, "shapes", name_of(t), err, "not stated: --assume float32, one dimension")
               : status;
}

static enum nd_status find_shape(struct nd_qnr *run, struct nd_qnr_tensor *t, struct nd_error *err)
{
    const char *from = stated_by(run);
    bool is_of_model = false;
    if (t->stated != NULL && t->stated->shape.rank >= 0) {
        t->shape = t->stated->shape;
    } else if (t->sidecar.file != NULL && t->sidecar.shape.rank >= 0) {
        t->shape = t->sidecar.shape;
        from = "_native.raw.json";
    } else if (t->edge != NULL && t->edge->shape.rank >= 0) {
        t->shape = t->edge->shape;
        from = "the model";
        is_of_model = true;
    } else if (run->options->assumes_float32 && t->dtype == ND_DTYPE_F32 && !t->has_native) {
        return assume_shape(run, t, err);
    } else {
        return nd_fail(err, ND_E_QNN_UNSTATED, t->file,
                       "nothing states the shape of '%s': --context-json or --model does, or import a prepared "
                       "folder%s",
                       t->file, t->has_native ? "" : "; --assume float32 takes it as it is");
    }
    enum nd_status status = find_layout(run, t, is_of_model, err);
    return status == ND_OK ? nd_qnr_fact(run, "shapes", name_of(t), err, "%s", from) : status;
}

static enum nd_status describe(struct nd_qnr *run, struct nd_qnr_tensor *t, struct nd_error *err)
{
    static float one = 1;
    static int64_t zero = 0;
    static const struct nd_quant as_they_are = {1, -1, &one, &zero};
    t->item = nd_map_find(&run->map, ND_IMPORTED_OUTPUT, name_of(t));
    if (t->item != NULL && t->item->is_skipped)
        return ND_OK;
    enum nd_status status = find_edge(run, t, err);
    if (status == ND_OK && t->has_sidecar)
        status = read_sidecar(run, t, 0, &t->sidecar, err);
    if (status == ND_OK)
        status = find_type(run, t, err);
    if (status == ND_OK)
        status = find_shape(run, t, err);
    if (t->dtype == ND_DTYPE_BOOL)
        t->quant = &as_they_are;
    else if (t->stated != NULL && t->stated->quant.n > 0)
        t->quant = &t->stated->quant;
    else if (t->sidecar.quant.n > 0)
        t->quant = &t->sidecar.quant;
    else if (t->item != NULL && t->item->quant.n == 1)
        t->quant = &t->item->quant;
    else if (t->edge != NULL && t->edge->quant.n == 1)
        t->quant = &t->edge->quant;
    return status;
}

enum nd_status nd_qnr_describe(struct nd_qnr *run, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < run->n_tensors; i++)
        status = describe(run, &run->tensors[i], err);
    return status;
}

/* ---- their bytes ---- */

static enum nd_status fail_size(const struct nd_qnr_tensor *t, const struct nd_source *source,
                                enum nd_dtype dtype, size_t n_bytes, struct nd_error *err)
{
    char shape[128], hint[96] = "";
    size_t n_elems = n_bytes / nd_dtype_size_bytes(dtype);
    if (source->size_bytes == 0)
        snprintf(hint, sizeof hint, ": it is empty");
    else if (source->size_bytes == n_elems * sizeof(float) && dtype != ND_DTYPE_F32)
        snprintf(hint, sizeof hint, ": it has the size of float32");
    else if (n_bytes > 0 && source->size_bytes % n_bytes == 0)
        snprintf(hint, sizeof hint, ": it may hold %zu samples (--batch)", source->size_bytes / n_bytes);
    return nd_fail(err, ND_E_QNN_SIZE, source->path, "%s has %zu bytes, but '%s', %s %s, takes %zu%s",
                   source->what, source->size_bytes, t->file, nd_dtype_name(dtype),
                   nd_shape_format(&t->shape, shape, sizeof shape), n_bytes, hint);
}

/* A file of n_batch samples. The caller closes the source on success. */
static enum nd_status open_file(const struct nd_qnr *run, const struct nd_qnr_tensor *t, size_t result,
                                bool is_native, struct nd_source *out, struct nd_error *err)
{
    size_t n_bytes = 0, n_all = 0;
    enum nd_dtype dtype = is_native ? t->dtype : ND_DTYPE_F32;
    char *path = nd_qnr_path(run, result, t->file, is_native ? "_native.raw" : ".raw");
    if (path == NULL)
        return nd_fail_memory(err);
    enum nd_status status = nd_shape_size_bytes(&t->shape, dtype, &n_bytes, err);
    if (status == ND_OK && !nd_size_mul(n_bytes, run->n_batch, &n_all))
        status = nd_fail(err, ND_E_SIZE_OVERFLOW, path, "'%s': %zu samples are too many", path, run->n_batch);
    if (status == ND_OK)
        status = nd_source_open(out, path, err);
    free(path);
    if (status == ND_OK && out->size_bytes != n_all) {
        status = fail_size(t, out, dtype, n_all, err);
        nd_source_close(out);
    }
    return status;
}

static enum nd_status check_floats(struct nd_qnr *run, const struct nd_qnr_tensor *t, size_t result,
                                   const void *codes, struct nd_error *err)
{
    struct nd_source source = {0};
    enum nd_status status = open_file(run, t, result, false, &source, err);
    if (status != ND_OK)
        return status;
    size_t n = source.size_bytes / sizeof(float);
    float *floats = nd_tensor_alloc(source.size_bytes);
    status = floats != NULL ? nd_source_read(&source, floats, source.size_bytes, err) : nd_fail_memory(err);
    if (status == ND_OK && t->quant != NULL && (nd_dtype_is_integer(t->dtype) || t->dtype == ND_DTYPE_BOOL))
        status = nd_qnr_compare_floats(t, &source, floats, codes, n, err);
    else if (status == ND_OK)
        status = nd_qnr_fact(run, "float files", t->file, err,
                             "not compared with the native ones: the scale is not known");
    free(floats);
    nd_source_close(&source);
    return status;
}

/* The samples of a file, as they are to be stored. */
static enum nd_status take_samples(struct nd_qnr *run, const struct nd_qnr_tensor *t, size_t result,
                                   const char *what, const unsigned char *bytes, struct nd_error *err)
{
    size_t n_bytes = 0;
    enum nd_status status = nd_shape_size_bytes(&t->shape, t->dtype, &n_bytes, err);
    for (size_t b = 0; status == ND_OK && b < run->n_batch; b++) {
        void *data = NULL;
        const void *from = bytes + b * n_bytes;
        const struct nd_imported_new sample = {ND_IMPORTED_OUTPUT, name_of(t), what,
                                               t->dtype,           t->shape,   result * run->n_batch + b};
        status = nd_imported_add(run->imported, &sample, &data, err);
        if (status == ND_OK && n_bytes > 0)
            memcpy(data, from, n_bytes);
    }
    return status;
}

/* The native file counts; a float one beside it is held against it. */
static enum nd_status add_samples(struct nd_qnr *run, const struct nd_qnr_tensor *t, size_t result,
                                  struct nd_source *source, struct nd_error *err)
{
    unsigned char *bytes = nd_tensor_alloc(source->size_bytes);
    enum nd_status status =
        bytes != NULL ? nd_source_read(source, bytes, source->size_bytes, err) : nd_fail_memory(err);
    if (status == ND_OK && !t->has_native && t->quant != NULL)
        status = nd_qnr_check_finite(t, source, (const float *)(const void *)bytes,
                                     source->size_bytes / sizeof(float), err);
    if (status == ND_OK && t->has_native && t->has_float)
        status = check_floats(run, t, result, bytes, err);
    if (status == ND_OK)
        status = take_samples(run, t, result, source->what, bytes, err);
    free(bytes);
    return status;
}

static enum nd_status read_file(struct nd_qnr *run, struct nd_qnr_tensor *t, size_t result,
                                struct nd_error *err)
{
    struct nd_source source = {0};
    struct nd_qnr_stated sidecar = {0};
    enum nd_status status = ND_OK;
    if (t->has_sidecar && result > 0)
        status = read_sidecar(run, t, result, &sidecar, err);
    nd_qnr_stated_deinit(&sidecar);
    if (status == ND_OK)
        status = open_file(run, t, result, t->has_native, &source, err);
    if (status == ND_OK)
        status = add_samples(run, t, result, &source, err);
    nd_source_close(&source);
    return status;
}

enum nd_status nd_qnr_read_tensors(struct nd_qnr *run, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < run->n_tensors; i++) {
        struct nd_qnr_tensor *t = &run->tensors[i];
        if (t->item != NULL && t->item->is_skipped)
            continue;
        for (size_t r = 0; status == ND_OK && r < run->n_complete; r++)
            status = read_file(run, t, r, err);
        struct nd_imported_tensor *made = nd_imported_find(run->imported, ND_IMPORTED_OUTPUT, name_of(t));
        if (status != ND_OK || made == NULL)
            continue;
        made->is_channel_last = t->is_channel_last;
        bool is_stated = t->quant != NULL && (t->stated != NULL ? t->quant == &t->stated->quant : false);
        is_stated = is_stated || (t->quant != NULL && t->quant == &t->sidecar.quant);
        if (is_stated)
            status = nd_imported_set_quant(made, t->quant, err);
        if (status != ND_OK || t->has_native || t->quant == NULL)
            continue;
        made->codes = t->stated != NULL ? t->stated->dtype : t->edge != NULL ? t->edge->dtype : ND_DTYPE_NONE;
        status =
            nd_qnr_fact(run, "quantisation", name_of(t), err, "reals of codes, as the tool dequantised them");
    }
    return status;
}
