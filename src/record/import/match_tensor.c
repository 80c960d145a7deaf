#include "record/import/match_tensor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/tensors/scales.h"
#include "record/import/edge_names.h"
#include "record/import/match_codes.h"
#include "record/import/match_quant.h"
#include "record/import/sample_layout.h"
#include "capture/hdf5/index.h"

static enum nd_status fact(const struct nd_matching *m, const char *kind, struct nd_error *err, const char *fmt,
                           ...) ND_PRINTF(4, 5);

static enum nd_status fact(const struct nd_matching *m, const char *kind, struct nd_error *err, const char *fmt,
                           ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return nd_imported_fact(m->imported, kind, m->tensor->name, text, err);
}

/* ---- names ---- */

/* The edge or input of the model, and its place in it. */
static enum nd_status find_in_model(struct nd_matching *m, const char *name, struct nd_edge *input,
                                    size_t *order, enum nd_name_way *way, struct nd_error *err)
{
    const struct nd_model *model = m->options->model;
    bool is_sanitised = m->imported->has_sanitised_names && (m->item == NULL || m->item->edge == NULL);
    enum nd_status status;
    if (m->side == ND_IMPORTED_OUTPUT) {
        status = nd_name_find_edge(model, name, is_sanitised, order, way, err);
        if (status == ND_OK)
            m->model = nd_model_edge(model, *order);
        bool is_kept = m->imported->keeps_unknown && !m->options->strict && m->item == NULL;
        if (status != ND_ERR_NOT_FOUND || !is_kept)
            return status;
        *order = nd_model_n_edges(model) + (size_t)(m->tensor - m->imported->sides[m->side].items);
        return fact(m, "names", err, "not an edge of the model: kept as it is");
    }
    status = nd_name_find_input(model, name, is_sanitised, order, way, err);
    if (status != ND_OK)
        return status;
    const struct nd_model_io *io = nd_model_input(model, *order);
    *input = (struct nd_edge){.name = (char *)io->name, .dtype = io->dtype, .shape = io->shape};
    for (int d = 0; d < input->shape.rank; d++)
        if (io->shape.dims[d] < 0)
            input->shape.rank = -1;
    m->model = input;
    return ND_OK;
}

static enum nd_status match_name(struct nd_matching *m, struct nd_edge *input, struct nd_matched_tensor *out,
                                 struct nd_error *err)
{
    const char *mapped = m->item != NULL ? m->item->edge : NULL;
    const char *name = mapped != NULL ? mapped : m->tensor->name;
    enum nd_name_way way = ND_NAME_AS_IT_IS;
    enum nd_status status = ND_OK;
    if (m->options->model != NULL)
        status = find_in_model(m, name, input, &out->order, &way, err);
    if (status != ND_OK) {
        nd_error_context(err, "%s%s%s", m->tensor->where, mapped != NULL ? ", " : "",
                         mapped != NULL ? m->item->where : "");
        return status;
    }
    if (m->model != NULL && m->side == ND_IMPORTED_OUTPUT)
        status = nd_edge_copy(m->model, &out->edge, err);
    else
        out->edge = (struct nd_edge){.name = nd_strdup(m->model != NULL ? m->model->name : name)};
    if (status == ND_OK && out->edge.name == NULL)
        status = nd_fail_memory(err);
    if (status == ND_OK && mapped != NULL)
        status = fact(m, "names", err, "%s", m->item->where);
    else if (status == ND_OK && way != ND_NAME_AS_IT_IS)
        status = fact(m, "names", err, "the model's '%s', by its %s name", out->edge.name,
                      way == ND_NAME_ONNX ? "ONNX" : "sanitised");
    return status;
}

/* ---- layout, samples, shape ---- */

/* 0: as in the model; else the rank of the layout in which the file has channels last. */
static enum nd_status find_layout(const struct nd_matching *m, int *rank, struct nd_error *err)
{
    const struct nd_imported_tensor *t = m->tensor;
    bool is_said = m->item != NULL && m->item->layout_rank > 0;
    *rank = t->is_channel_last ? t->shape.rank - t->is_array : 0;
    if (!is_said)
        return ND_OK;
    if (t->is_channel_last && !m->item->is_channel_last)
        return nd_fail(err, ND_E_IMPORT_MISMATCH, t->name,
                       "%s says that tensor '%s' has channels second, but the file says they are last",
                       m->item->where, t->name);
    *rank = m->item->is_channel_last ? m->item->layout_rank : 0;
    return fact(m, "layout", err, "%s", m->item->where);
}

static enum nd_status check_shape(const struct nd_matching *m, struct nd_error *err)
{
    char found[128], expected[128];
    const struct nd_imported_tensor *t = m->tensor;
    if (t->shape.rank >= ND_MAX_RANK)
        return nd_fail(err, ND_E_IMPORT_TYPE, t->name, "%s: a sample has %d dimensions; at most %d are stored",
                       t->where, t->shape.rank, ND_MAX_RANK - 1);
    if (m->model == NULL || m->model->shape.rank < 0 || nd_shape_equal(&t->shape, &m->model->shape))
        return ND_OK;
    return nd_fail(err, ND_E_IMPORT_MISMATCH, t->name,
                   "%s: found samples of shape %s, but '%s' of the model has %s", t->where,
                   nd_shape_format(&t->shape, found, sizeof found), m->model->name,
                   nd_shape_format(&m->model->shape, expected, sizeof expected));
}

/* What the map says of the samples of this tensor alone. */
static enum nd_status find_samples(const struct nd_matching *m, const struct nd_shape *expected,
                                   struct nd_error *err)
{
    struct nd_imported_tensor *t = m->tensor;
    enum nd_import_samples samples =
        m->options->samples == ND_IMPORT_SAMPLES_FILE ? ND_IMPORT_SAMPLES_AUTO : m->options->samples;
    bool is_said = m->item != NULL && (m->item->batch_axis >= 0 || m->item->n_samples > 0);
    enum nd_status status = ND_OK;
    if (is_said && m->item->batch_axis >= 0)
        status = nd_layout_batch_axis(t, m->item->batch_axis, expected, m->item->where, err);
    else if (is_said)
        status = nd_layout_share_first(t, m->item->n_samples, m->item->where, err);
    else
        status = nd_layout_find_samples(t, samples, expected, err);
    if (status != ND_OK)
        return status;
    return fact(m, "samples", err, "%s",
                is_said                             ? m->item->where
                : samples != ND_IMPORT_SAMPLES_AUTO ? "--samples-axis"
                : expected != NULL                  ? "the model's shape"
                                                    : "taken to be the first dimension");
}

static enum nd_status match_shape(const struct nd_matching *m, struct nd_error *err)
{
    struct nd_imported_tensor *t = m->tensor;
    int layout_rank = 0;
    if (t->is_laid_out)
        return check_shape(m, err);
    enum nd_status status = find_layout(m, &layout_rank, err);
    struct nd_shape expected = {.rank = -1};
    if (m->model != NULL && m->model->shape.rank >= 0)
        expected = layout_rank > 0 ? nd_layout_channels_last(&m->model->shape) : m->model->shape;
    if (status == ND_OK && t->is_array)
        status = find_samples(m, expected.rank >= 0 ? &expected : NULL, err);
    if (status != ND_OK || layout_rank == 0)
        return status == ND_OK ? check_shape(m, err) : status;
    if (t->shape.rank != layout_rank && t->shape.rank != layout_rank - 1)
        return nd_fail(err, ND_E_IMPORT_MISMATCH, t->name,
                       "%s: a layout of %d dimensions is stated for samples of %d dimensions", t->where,
                       layout_rank, t->shape.rank);
    status = nd_layout_channels_first(t, t->shape.rank == layout_rank ? 1 : 0, err);
    return status == ND_OK ? check_shape(m, err) : status;
}

/* ---- type ---- */

/* Bytes that are no value of the type would be damage in the capture. */
static enum nd_status check_values(const struct nd_imported_tensor *t, struct nd_error *err)
{
    const unsigned char *bytes = t->data;
    enum nd_dtype dtype = t->dtype;
    bool is_signed = dtype == ND_DTYPE_I4;
    unsigned max = dtype == ND_DTYPE_BOOL ? 1 : dtype == ND_DTYPE_U4 ? 15 : 255;
    size_t n = t->n_samples * t->sample_bytes;
    for (size_t i = 0; i < n && (is_signed || max < 255); i++) {
        int value = is_signed ? (int)(signed char)bytes[i] : (int)bytes[i];
        if (is_signed ? value < -8 || value > 7 : (unsigned)value > max)
            return nd_fail(err, ND_E_IMPORT_MISMATCH, t->name, "%s: element %zu is %d, which is no %s",
                           t->where, i, value, nd_dtype_name(dtype));
    }
    return ND_OK;
}

/* The same bits, called signed by one and unsigned by the other. */
static bool is_other_sign(enum nd_dtype a, enum nd_dtype b)
{
    return nd_dtype_is_integer(a) && nd_dtype_is_integer(b) &&
           nd_dtype_size_bytes(a) == nd_dtype_size_bytes(b) &&
           nd_dtype_is_signed_integer(a) != nd_dtype_is_signed_integer(b) && nd_index_stored_dtype(a) == a &&
           nd_index_stored_dtype(b) == b;
}

/* The map's type: the file's own, or what the file's integers stand for. */
static enum nd_status apply_type(const struct nd_matching *m, struct nd_error *err)
{
    struct nd_imported_tensor *t = m->tensor;
    enum nd_dtype wanted = m->item != NULL ? m->item->dtype : ND_DTYPE_NONE;
    if (wanted == ND_DTYPE_NONE || wanted == t->dtype)
        return ND_OK;
    if (nd_index_stored_dtype(wanted) != t->dtype && !is_other_sign(wanted, t->dtype))
        return nd_fail(err, ND_E_IMPORT_MISMATCH, t->name, "%s is %s, but %s says %s", t->where,
                       nd_dtype_name(t->dtype), m->item->where, nd_dtype_name(wanted));
    t->dtype = wanted;
    return fact(m, "types", err, "%s", m->item->where);
}

/* Real values of a quantised edge are what tools write that dequantise on their own. */
static enum nd_status match_type(const struct nd_matching *m, struct nd_error *err)
{
    struct nd_imported_tensor *t = m->tensor;
    char *codes = NULL;
    enum nd_status status = apply_type(m, err);
    if (status == ND_OK && m->side == ND_IMPORTED_OUTPUT)
        status = nd_match_codes(m->imported, t, m->item, m->model, &codes, err);
    if (status == ND_OK && codes != NULL)
        status = fact(m, "types", err, "%s", codes);
    free(codes);
    if (status == ND_OK)
        status = check_values(t, err);
    if (status != ND_OK || m->model == NULL || m->model->dtype == ND_DTYPE_NONE || m->model->dtype == t->dtype)
        return status;
    bool is_float = nd_dtype_is_float(t->dtype);
    if (is_other_sign(t->dtype, m->model->dtype) && m->side == ND_IMPORTED_OUTPUT)
        return fact(m, "types", err, "the file: %s, where the model has %s: explain says which label is wrong",
                    nd_dtype_name(t->dtype), nd_dtype_name(m->model->dtype));
    if (is_float && m->model->quant.n > 0)
        return fact(m, "types", err, "the file: %s, real values of what the model has as %s codes",
                    nd_dtype_name(t->dtype), nd_dtype_name(m->model->dtype));
    if (is_float && nd_dtype_is_float(m->model->dtype) && m->item != NULL && m->item->dtype == t->dtype)
        return fact(m, "types", err, "%s: %s, not the model's %s", m->item->where, nd_dtype_name(t->dtype),
                    nd_dtype_name(m->model->dtype));
    return nd_fail(err, ND_E_IMPORT_MISMATCH, t->name, "%s: found %s, but '%s' of the model is %s%s", t->where,
                   nd_dtype_name(t->dtype), m->model->name, nd_dtype_name(m->model->dtype),
                   is_float && nd_dtype_is_float(m->model->dtype) ? " ('dtype' in a --map allows it)" : "");
}

/* ---- all of it ---- */

/* What the map says of the node that made the tensor, against the model. */
static enum nd_status match_node(const struct nd_matching *m, struct nd_matched_tensor *out,
                                 struct nd_error *err)
{
    const struct nd_map_item *item = m->item;
    struct {
        const char *key, *said;
        char **at;
    } texts[] = {{"op_types", item != NULL ? item->op_types : NULL, &out->edge.op_types},
                 {"node", item != NULL ? item->node : NULL, &out->edge.node}};
    out->provider = item != NULL && item->provider != NULL ? item->provider : "";
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (texts[i].said == NULL)
            continue;
        if (m->model != NULL && *texts[i].at != NULL && strcmp(*texts[i].at, texts[i].said) != 0)
            return nd_fail(err, ND_E_IMPORT_MISMATCH, m->tensor->name,
                           "%s: '%s' of '%s' is '%s', but '%s' in the model", item->where, texts[i].key,
                           m->tensor->name, texts[i].said, *texts[i].at);
        free(*texts[i].at);
        *texts[i].at = nd_strdup(texts[i].said);
        if (*texts[i].at == NULL)
            return nd_fail_memory(err);
    }
    return ND_OK;
}

enum nd_status nd_match_tensor(struct nd_matching *m, struct nd_matched_tensor *out, struct nd_error *err)
{
    struct nd_edge input = {0};
    struct nd_quant quant = {.axis = -1};
    const char *from = NULL;
    enum nd_status status = match_name(m, &input, out, err);
    if (status == ND_OK && m->side == ND_IMPORTED_INPUT && m->item != NULL && m->item->quant.n > 0)
        status = nd_fail(err, ND_E_IMPORT_MAP, m->tensor->name,
                         "%s states a scale of input '%s', but inputs are kept as they were fed, without one",
                         m->item->where, m->tensor->name);
    if (status == ND_OK)
        status = match_shape(m, err);
    if (status == ND_OK)
        status = match_type(m, err);
    if (status == ND_OK)
        status = match_node(m, out, err);
    if (status == ND_OK && m->side == ND_IMPORTED_OUTPUT)
        status = nd_match_quant(m->tensor, m->item, m->model, &quant, &from, err);
    if (status == ND_OK && from != NULL && nd_dtype_is_integer(m->tensor->dtype))
        status = fact(m, "quantisation", err, "%s", from);
    if (status != ND_OK)
        return status;
    quant.axis = quant.n > 1 ? quant.axis : -1;
    nd_quant_deinit(&out->edge.quant);
    if (quant.n > 0)
        status = nd_quant_copy(&quant, &out->edge.quant, err);
    out->edge.dtype = m->tensor->dtype;
    out->edge.shape = m->tensor->shape;
    out->data = m->tensor->data;
    return status;
}

/* Names are matched again by nd_match_tensor; here they only lead to the model's shape. */
enum nd_status nd_match_layout(struct nd_matching *m, struct nd_error *err)
{
    struct nd_edge input = {0};
    struct nd_matched_tensor ignored = {0};
    enum nd_status status = match_name(m, &input, &ignored, err);
    if (status == ND_OK)
        status = match_shape(m, err);
    nd_edge_deinit(&ignored.edge);
    m->tensor->is_laid_out = true;
    m->tensor->is_channel_last = false;
    return status;
}
