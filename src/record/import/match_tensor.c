/* The scales of a tensor: from the map, the model and the file, which must not contradict one another. */
#include "record/import/match_tensor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capture/hdf5/index.h"
#include "core/memory.h"
#include "core/tensors/scales.h"
#include "record/import/map.h"
#include "record/import/match_qvalues.h"
#include "record/import/tensor_names.h"
#include "record/probes/probe.h"

struct quant_source {
    const struct nd_quant *quant;
    const char *from;
};

static bool is_same_quant(const struct nd_quant *a, const struct nd_quant *b)
{
    return a->n == b->n && (a->n < 2 || a->axis == b->axis) &&
           memcmp(a->scale, b->scale, a->n * sizeof *a->scale) == 0 &&
           memcmp(a->zero_point, b->zero_point, a->n * sizeof *a->zero_point) == 0;
}

static enum nd_status check_quant(const struct nd_imported_tensor *t, const struct quant_source *source,
                                  struct nd_error *err)
{
    const struct nd_quant *quant = source->quant;
    if (!nd_dtype_is_integer(t->dtype))
        return nd_fail(err, ND_E_IMPORT_MISMATCH, t->name,
                       "%s is %s; the scale that %s states is for integer quantised values", t->where,
                       nd_dtype_name(t->dtype), source->from);
    if (quant->n > 1 &&
        (quant->axis < 0 || quant->axis >= t->shape.rank || t->shape.dims[quant->axis] != (int64_t)quant->n))
        return nd_fail(
            err, ND_E_IMPORT_MISMATCH, t->name,
            "%s: %s states %zu scales along dimension %d, which the tensor does not have in that length",
            t->where, source->from, quant->n, quant->axis);
    return ND_OK;
}

/* A zero point is a quantised value. One that is none is QNN's offset, whose sign is the other, taken for it.
 */
static enum nd_status check_zero_points(const struct nd_imported_tensor *t, const struct nd_map_item *item,
                                        struct nd_error *err)
{
    const struct nd_qvalue_range range = nd_qvalue_range_of(t->dtype);
    for (size_t i = 0; i < item->quant.n; i++) {
        int64_t zero_point = item->quant.zero_point[i];
        if (zero_point < range.min || (zero_point > 0 && (uint64_t)zero_point > range.max))
            return nd_fail(
                err, ND_E_IMPORT_MISMATCH, t->name,
                "%s: %s states the zero point %lld, which is no %s; an offset as QNN writes it is given "
                "as 'offset' with 'convention: qnn'",
                t->where, item->where, (long long)zero_point, nd_dtype_name(t->dtype));
    }
    return ND_OK;
}

/* item and model are nullable; the model's scales are those of quantised values only. *out (n 0: nobody states
 * any) borrows from whoever states it, which *from names ("map.yaml:3:5", "the model", "the file", "not
 * stated"). ND_E_IMPORT_MISMATCH: two state other ones, scales of floats, scales that the tensor has no
 * dimension for. */
static enum nd_status nd_match_quant(const struct nd_imported_tensor *t, const struct nd_map_item *item,
                                     const struct nd_tensor *model, struct nd_quant *out, const char **from,
                                     struct nd_error *err)
{
    static const struct nd_quant none = {.axis = -1};
    bool is_qvalues = nd_dtype_is_integer(t->dtype);
    const struct quant_source sources[] = {
        {item != NULL ? &item->quant : &none, item != NULL ? item->where : ""},
        {is_qvalues && model != NULL ? &model->quant : &none, "the model"},
        {is_qvalues ? &t->quant : &none, "the file"},
    };
    const struct quant_source *chosen = NULL;
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        if (sources[i].quant->n == 0)
            continue;
        enum nd_status status = check_quant(t, &sources[i], err);
        if (status == ND_OK && sources[i].quant == (item != NULL ? &item->quant : NULL))
            status = check_zero_points(t, item, err);
        if (status != ND_OK)
            return status;
        if (chosen == NULL)
            chosen = &sources[i];
        else if (!is_same_quant(chosen->quant, sources[i].quant))
            return nd_fail(err, ND_E_IMPORT_MISMATCH, t->name,
                           "%s: %s states scale %.9g, zero point %lld%s, but %s scale %.9g, zero point %lld%s",
                           t->where, chosen->from, (double)chosen->quant->scale[0],
                           (long long)chosen->quant->zero_point[0], chosen->quant->n > 1 ? ", ..." : "",
                           sources[i].from, (double)sources[i].quant->scale[0],
                           (long long)sources[i].quant->zero_point[0], sources[i].quant->n > 1 ? ", ..." : "");
    }
    *out = chosen != NULL ? *chosen->quant : none;
    *from = chosen != NULL ? chosen->from : "not stated";
    return ND_OK;
}

struct nd_shape nd_layout_channels_last(const struct nd_shape *shape)
{
    struct nd_shape moved = *shape;
    for (int d = 1; d + 1 < shape->rank; d++)
        moved.dims[d] = shape->dims[d + 1];
    if (shape->rank > 1)
        moved.dims[shape->rank - 1] = shape->dims[1];
    return moved;
}

/* [outer, inner, channels] to [outer, channels, inner], element by element. */
static void move_channels(const unsigned char *from, unsigned char *to, const size_t sizes[3],
                          size_t elem_bytes)
{
    size_t n_inner = sizes[1], n_channels = sizes[2];
    for (size_t o = 0; o < sizes[0]; o++)
        for (size_t i = 0; i < n_inner; i++)
            for (size_t c = 0; c < n_channels; c++) {
                size_t source = (o * n_inner + i) * n_channels + c;
                size_t target = (o * n_channels + c) * n_inner + i;
                memcpy(to + target * elem_bytes, from + source * elem_bytes, elem_bytes);
            }
}

enum nd_status nd_layout_channels_first(struct nd_imported_tensor *tensor, int n_before, struct nd_error *err)
{
    struct nd_shape *shape = &tensor->shape;
    size_t sizes[3] = {tensor->n_samples, 1, (size_t)shape->dims[shape->rank - 1]};
    size_t n_bytes = tensor->n_samples * tensor->sample_bytes; /* exists, so it fits */
    for (int d = 0; d < shape->rank - 1 && n_bytes > 0; d++)
        sizes[d < n_before ? 0 : 1] *= (size_t)shape->dims[d];
    void *moved = nd_tensor_alloc(n_bytes);
    if (moved == NULL)
        return nd_fail_memory(err);
    if (n_bytes > 0)
        move_channels(tensor->data, moved, sizes, nd_dtype_size_bytes(tensor->dtype));
    free(tensor->data);
    tensor->data = moved;
    tensor->capacity_bytes = n_bytes;
    int64_t channels = shape->dims[shape->rank - 1];
    for (int d = shape->rank - 1; d > n_before; d--)
        shape->dims[d] = shape->dims[d - 1];
    shape->dims[n_before] = channels;
    if (tensor->quant.n > 1 && tensor->quant.axis >= n_before)
        tensor->quant.axis = tensor->quant.axis == shape->rank - 1 ? n_before : tensor->quant.axis + 1;
    return ND_OK;
}

/* The shape behind the first dimension. */
static struct nd_shape behind_first(const struct nd_shape *shape)
{
    struct nd_shape rest = {.rank = shape->rank - 1};
    memcpy(rest.dims, shape->dims + 1, (size_t)rest.rank * sizeof *rest.dims);
    return rest;
}

/* What the array is if its samples lie so; false when they cannot. */
static bool split(const struct nd_shape *array, enum nd_import_samples samples, struct nd_shape *sample,
                  size_t *n)
{
    *n = 1;
    *sample = *array;
    if (samples == ND_IMPORT_SAMPLES_NONE)
        return true;
    if (array->rank == 0)
        return false;
    *n = (size_t)array->dims[0];
    if (samples == ND_IMPORT_SAMPLES_BATCH)
        sample->dims[0] = 1;
    else
        *sample = behind_first(array);
    return true;
}

/* Two ways that both fit mean the same: they differ in the rank of the sample, or in a first dimension of 1. */
static bool split_as_expected(const struct nd_shape *array, const struct nd_shape *expected,
                              struct nd_shape *sample, size_t *n)
{
    static const enum nd_import_samples methods[] = {ND_IMPORT_SAMPLES_FIRST, ND_IMPORT_SAMPLES_BATCH,
                                                     ND_IMPORT_SAMPLES_NONE};
    for (size_t w = 0; w < sizeof methods / sizeof methods[0]; w++)
        if (split(array, methods[w], sample, n) && nd_shape_equal(sample, expected))
            return true;
    return false;
}

/* A hint for who reads the message, no more: what fits may still be something else. */
static bool fits_channels_last(const struct nd_shape *array, const struct nd_shape *expected)
{
    struct nd_shape sample;
    size_t n;
    const struct nd_shape last = nd_layout_channels_last(expected);
    return expected->rank > 2 && split_as_expected(array, &last, &sample, &n);
}

/* The array is n samples of that shape. */
static void part(struct nd_imported_tensor *tensor, struct nd_shape sample, size_t n)
{
    if (n > 0)
        tensor->sample_bytes /= n;
    tensor->shape = sample;
    tensor->n_samples = n;
    tensor->is_array = false;
}

enum nd_status nd_layout_find_samples(struct nd_imported_tensor *tensor, enum nd_import_samples samples,
                                      const struct nd_shape *expected, struct nd_error *err)
{
    char found[128], wanted[128];
    struct nd_shape sample;
    size_t n = 0;
    bool is_auto = samples == ND_IMPORT_SAMPLES_AUTO;
    if (is_auto && expected != NULL) {
        if (!split_as_expected(&tensor->shape, expected, &sample, &n))
            return nd_fail(err, ND_E_IMPORT_MISMATCH, tensor->name,
                           "%s has shape %s; the model has samples of shape %s in this layout%s", tensor->where,
                           nd_shape_format(&tensor->shape, found, sizeof found),
                           nd_shape_format(expected, wanted, sizeof wanted),
                           fits_channels_last(&tensor->shape, expected)
                               ? " (with channels last it would fit: 'layout: NHWC' or the like in a --map)"
                               : "");
    } else if (!split(&tensor->shape, is_auto ? ND_IMPORT_SAMPLES_FIRST : samples, &sample, &n)) {
        return nd_fail(
            err, ND_E_IMPORT_OPTION, tensor->name,
            "%s is a scalar: it has no dimension of samples; with --samples-axis none it is one sample",
            tensor->where);
    }
    part(tensor, sample, n);
    return ND_OK;
}

/* [outer][n][inner] to [n][outer][inner]. */
static enum nd_status move_to_front(struct nd_imported_tensor *tensor, int axis, struct nd_error *err)
{
    size_t outer = 1, inner = nd_dtype_size_bytes(tensor->dtype), n = (size_t)tensor->shape.dims[axis];
    for (int d = 0; d < tensor->shape.rank; d++)
        if (d != axis)
            *(d < axis ? &outer : &inner) *= (size_t)tensor->shape.dims[d]; /* the array exists, so it fits */
    unsigned char *moved = nd_tensor_alloc(tensor->sample_bytes);
    if (moved == NULL)
        return nd_fail_memory(err);
    const unsigned char *from = tensor->data;
    for (size_t o = 0; tensor->sample_bytes > 0 && o < outer; o++)
        for (size_t i = 0; i < n; i++)
            memcpy(moved + (i * outer + o) * inner, from + (o * n + i) * inner, inner);
    free(tensor->data);
    tensor->data = moved;
    tensor->capacity_bytes = tensor->sample_bytes;
    return ND_OK;
}

/* Makes an array to samples that lie along dimension `axis`. A sample keeps a 1 there, unless `expected`
 * (nullable, as above) lacks the dimension. ND_E_IMPORT_MISMATCH: there is no such dimension, or it does not
 * fit. */
static enum nd_status nd_layout_batch_axis(struct nd_imported_tensor *tensor, int axis,
                                           const struct nd_shape *expected, const char *where,
                                           struct nd_error *err)
{
    char found[128], wanted[128];
    struct nd_shape sample = tensor->shape;
    if (axis >= tensor->shape.rank)
        return nd_fail(err, ND_E_IMPORT_MISMATCH, tensor->name,
                       "%s states batch axis %d, but %s has shape %s: its axes are 0 to %d", where, axis,
                       tensor->where, nd_shape_format(&tensor->shape, found, sizeof found),
                       tensor->shape.rank - 1);
    sample.dims[axis] = 1;
    if (expected != NULL && !nd_shape_equal(&sample, expected)) { /* perhaps the model lacks the dimension */
        sample.rank--;
        for (int d = axis; d < sample.rank; d++)
            sample.dims[d] = tensor->shape.dims[d + 1];
        sample.dims[sample.rank] = 0;
        if (!nd_shape_equal(&sample, expected))
            return nd_fail(
                err, ND_E_IMPORT_MISMATCH, tensor->name,
                "%s has shape %s, with its samples along axis %d by %s; the model has samples of shape %s",
                tensor->where, nd_shape_format(&tensor->shape, found, sizeof found), axis, where,
                nd_shape_format(expected, wanted, sizeof wanted));
    }
    enum nd_status status = move_to_front(tensor, axis, err);
    size_t n = (size_t)tensor->shape.dims[axis];
    if (status != ND_OK)
        return status;
    part(tensor, sample, n);
    return ND_OK;
}

/* Makes an array to n samples whose first dimensions lie one behind the other: [n * T, D] is n times [T, D]. */
static enum nd_status nd_layout_share_first(struct nd_imported_tensor *tensor, size_t n, const char *where,
                                            struct nd_error *err)
{
    char found[128];
    if (tensor->shape.rank == 0 || tensor->shape.dims[0] % (int64_t)n != 0)
        return nd_fail(err, ND_E_IMPORT_MISMATCH, tensor->name,
                       "%s says that the first dimension holds %zu samples, but %s has shape %s", where, n,
                       tensor->where, nd_shape_format(&tensor->shape, found, sizeof found));
    tensor->shape.dims[0] /= (int64_t)n;
    tensor->sample_bytes /= n;
    tensor->n_samples = n;
    tensor->is_array = false;
    return ND_OK;
}

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

/* The tensor or input of the model, and its place in it. */
static enum nd_status find_in_model(struct nd_matching *m, const char *name, struct nd_tensor *input,
                                    size_t *order, enum nd_name_method *method, struct nd_error *err)
{
    const struct nd_model *model = m->options->model;
    bool is_sanitised = m->imported->has_sanitised_names && (m->item == NULL || m->item->tensor == NULL);
    enum nd_status status;
    if (m->side == ND_IMPORTED_OUTPUT) {
        status = nd_name_find_tensor(model, name, is_sanitised, order, method, err);
        if (status == ND_OK)
            m->model = nd_model_tensor(model, *order);
        bool is_kept = m->imported->keeps_unknown && !m->options->strict && m->item == NULL;
        if (status != ND_ERR_NOT_FOUND || !is_kept)
            return status;
        *order = nd_model_n_tensors(model) + (size_t)(m->tensor - m->imported->sides[m->side].items);
        return fact(m, "names", err, "not a tensor of the model: kept as it is");
    }
    status = nd_name_find_input(model, name, is_sanitised, order, method, err);
    if (status != ND_OK)
        return status;
    const struct nd_model_io *io = nd_model_input(model, *order);
    *input = (struct nd_tensor){.name = (char *)io->name, .dtype = io->dtype, .shape = io->shape};
    for (int d = 0; d < input->shape.rank; d++)
        if (io->shape.dims[d] < 0)
            input->shape.rank = -1;
    m->model = input;
    return ND_OK;
}

static enum nd_status match_name(struct nd_matching *m, struct nd_tensor *input, struct nd_matched_tensor *out,
                                 struct nd_error *err)
{
    const char *mapped = m->item != NULL ? m->item->tensor : NULL;
    const char *name = mapped != NULL ? mapped : m->tensor->name;
    enum nd_name_method method = ND_NAME_AS_IT_IS;
    enum nd_status status = ND_OK;
    if (m->options->model != NULL)
        status = find_in_model(m, name, input, &out->order, &method, err);
    if (status != ND_OK) {
        nd_error_context(err, "%s%s%s", m->tensor->where, mapped != NULL ? ", " : "",
                         mapped != NULL ? m->item->where : "");
        return status;
    }
    if (m->model != NULL && m->side == ND_IMPORTED_OUTPUT)
        status = nd_tensor_copy(m->model, &out->tensor, err);
    else
        out->tensor = (struct nd_tensor){.name = nd_strdup(m->model != NULL ? m->model->name : name)};
    if (status == ND_OK && out->tensor.name == NULL)
        status = nd_fail_memory(err);
    if (status == ND_OK && mapped != NULL)
        status = fact(m, "names", err, "%s", m->item->where);
    else if (status == ND_OK && method != ND_NAME_AS_IT_IS)
        status = fact(m, "names", err, "the model's '%s', by its %s name", out->tensor.name,
                      method == ND_NAME_ONNX ? "ONNX" : "sanitised");
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

/* Real values of a quantised tensor are what tools write that dequantise on their own. */
static enum nd_status match_type(const struct nd_matching *m, struct nd_error *err)
{
    struct nd_imported_tensor *t = m->tensor;
    char *qvalues = NULL;
    enum nd_status status = apply_type(m, err);
    if (status == ND_OK && m->side == ND_IMPORTED_OUTPUT)
        status = nd_match_qvalues(m->imported, t, m->item, m->model, &qvalues, err);
    if (status == ND_OK && qvalues != NULL)
        status = fact(m, "types", err, "%s", qvalues);
    free(qvalues);
    if (status == ND_OK)
        status = check_values(t, err);
    if (status != ND_OK || m->model == NULL || m->model->dtype == ND_DTYPE_NONE || m->model->dtype == t->dtype)
        return status;
    bool is_float = nd_dtype_is_float(t->dtype);
    if (is_other_sign(t->dtype, m->model->dtype) && m->side == ND_IMPORTED_OUTPUT)
        return fact(m, "types", err, "the file: %s, where the model has %s: explain says which label is wrong",
                    nd_dtype_name(t->dtype), nd_dtype_name(m->model->dtype));
    if (is_float && m->model->quant.n > 0)
        return fact(m, "types", err, "the file: %s, real values of what the model has as %s quantised values",
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
    } texts[] = {{"op_types", item != NULL ? item->op_types : NULL, &out->tensor.op_types},
                 {"node", item != NULL ? item->node : NULL, &out->tensor.node}};
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
    struct nd_tensor input = {0};
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
    nd_quant_deinit(&out->tensor.quant);
    if (quant.n > 0)
        status = nd_quant_copy(&quant, &out->tensor.quant, err);
    out->tensor.dtype = m->tensor->dtype;
    out->tensor.shape = m->tensor->shape;
    out->data = m->tensor->data;
    return status;
}

/* Names are matched again by nd_match_tensor; here they only lead to the model's shape. */
enum nd_status nd_match_layout(struct nd_matching *m, struct nd_error *err)
{
    struct nd_tensor input = {0};
    struct nd_matched_tensor ignored = {0};
    enum nd_status status = match_name(m, &input, &ignored, err);
    if (status == ND_OK)
        status = match_shape(m, err);
    nd_tensor_deinit(&ignored.tensor);
    m->tensor->is_laid_out = true;
    m->tensor->is_channel_last = false;
    return status;
}
