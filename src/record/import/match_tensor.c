/* A foreign tensor held against map, model and file, which must not contradict one another: its layout, its
 * scales and its quantised values (docs/reference/import-map.md). */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "arithmetic/operators/array.h"
#include "capture/hdf5/index.h"
#include "core/memory.h"
#include "core/tensors/scales.h"
#include "core/text/strbuf.h"
#include "model/graph/parts.h"
#include "record/import/imported.h"
#include "record/import/map.h"
#include "record/import/match_tensor.h"
#include "record/probes/loader.h"

/* Two roundings of float32: that of the product and that of a scale or zero point that was added before. */
static const double float32_slack = 0x1p-22;

/* How unlikely it must be that values of a 16-bit type are on the grid by chance, in bits. Chosen: a campaign
 * of a million tensors is then taken in with a chance of one in four thousand. */
static const double needed_bits = 32;

double nd_grid_value(enum nd_dtype dtype, const void *values, size_t i)
{
    double value;
    nd_array_load(dtype, (const char *)values + i * nd_dtype_size_bytes(dtype), 1, &value);
    return value;
}

static bool range_of(enum nd_dtype dtype, double *low, double *high)
{
    bool is_narrow = dtype == ND_DTYPE_U4 || dtype == ND_DTYPE_I4;
    if (!nd_dtype_is_integer(dtype) && !is_narrow)
        return false;
    int bits = is_narrow ? 4 : 8 * (int)nd_dtype_size_bytes(dtype);
    bool is_signed = dtype == ND_DTYPE_I4 || nd_dtype_is_signed_integer(dtype);
    *low = is_signed ? -ldexp(1, bits - 1) : 0;
    *high = *low + ldexp(1, bits) - 1;
    return bits <= 16;
}

static void put_qvalue(enum nd_dtype dtype, void *qvalues, size_t i, int qvalue)
{
    if (dtype == ND_DTYPE_U16)
        ((uint16_t *)qvalues)[i] = (uint16_t)qvalue;
    else if (dtype == ND_DTYPE_I16)
        ((int16_t *)qvalues)[i] = (int16_t)qvalue;
    else
        ((uint8_t *)qvalues)[i] = (uint8_t)qvalue;
}

static void note_miss(struct nd_grid_miss *miss, size_t i, double value, double nearest)
{
    if (miss == NULL)
        return;
    if (miss->n++ == 0) {
        miss->first = i;
        miss->value = value;
        miss->nearest = nearest;
    }
}

/* Half a step of the value's own type, relative to the value. */
static double slack_of(enum nd_dtype dtype)
{
    return dtype == ND_DTYPE_F16 ? 0x1p-11 : dtype == ND_DTYPE_BF16 ? 0x1p-8 : float32_slack;
}

bool nd_grid_qvalues(const struct nd_qvalue_grid *grid, enum nd_dtype dtype, const void *values, size_t n,
                     void *qvalues, struct nd_grid_miss *miss)
{
    double low, high, bits = 0, slack = slack_of(dtype);
    size_t inner = nd_quant_inner(grid->quant, &grid->shape);
    bool is_on = range_of(grid->qvalues, &low, &high) && grid->quant->n > 0;
    if (miss != NULL)
        *miss = (struct nd_grid_miss){0};
    for (size_t i = 0; is_on && i < n; i++) {
        size_t c = grid->quant->n > 1 ? i / inner % grid->quant->n : 0;
        double scale = (double)grid->quant->scale[c], zero = (double)grid->quant->zero_point[c];
        double value = nd_grid_value(dtype, values, i);
        double qvalue = fmin(fmax(nearbyint(value / scale) + zero, low), high), real = (qvalue - zero) * scale;
        double room = fabs(real) * slack;
        if (!(fabs(value - real) <= room) || (value == 0 && signbit(value))) { /* NaN, too */
            note_miss(miss, i, value, real);
            is_on = miss != NULL && miss->n < n; /* goes on to count them */
            continue;
        }
        if (real != 0)
            bits -= log2(fmin(2 * room / scale, 1));
        if (qvalues != NULL)
            put_qvalue(grid->qvalues, qvalues, i, (int)qvalue);
    }
    return is_on && (miss == NULL || miss->n == 0) &&
           (!(dtype == ND_DTYPE_F16 || dtype == ND_DTYPE_BF16) || bits >= needed_bits);
}

/* Numbers of any type that hold quantised values as they are (a float32 array of 0 ... 255). false where one is
 * no quantised value. */
static bool nd_grid_whole_qvalues(enum nd_dtype qvalues_dtype, enum nd_dtype dtype, const void *values,
                                  size_t n, void *qvalues, struct nd_grid_miss *miss)
{
    double low, high;
    *miss = (struct nd_grid_miss){0};
    if (!range_of(qvalues_dtype, &low, &high))
        return false;
    for (size_t i = 0; i < n; i++) {
        double value = nd_grid_value(dtype, values, i);
        double qvalue = fmin(fmax(nearbyint(value), low), high);
        if (!(qvalue == value))
            note_miss(miss, i, value, qvalue);
        else
            put_qvalue(qvalues_dtype, qvalues, i, (int)qvalue);
    }
    return miss->n == 0;
}

/* What the values would have to be quantised values of. */
struct target {
    enum nd_dtype qvalues;
    const struct nd_quant *quant; /* NULL: nothing states one */
    bool is_stated;               /* by the map: then values that are no quantised values are an error */
};

static struct target find_target(const struct nd_imported_tensor *t, const struct nd_map_item *item,
                                 const struct nd_tensor *model)
{
    struct target target = {0};
    bool is_quantised = model != NULL && model->quant.n > 0 && nd_dtype_is_integer(model->dtype);
    if (item != NULL && item->qvalues != ND_DTYPE_NONE)
        target.qvalues = item->qvalues;
    else if (t->qvalues != ND_DTYPE_NONE)
        target.qvalues = t->qvalues;
    else if (model != NULL && nd_dtype_is_integer(model->dtype))
        target.qvalues = model->dtype;
    if (item != NULL && item->quant.n > 0)
        target.quant = &item->quant;
    else if (t->quant.n > 0)
        target.quant = &t->quant;
    else if (is_quantised)
        target.quant = &model->quant;
    target.is_stated =
        item != NULL && (item->quant.n > 0 || item->qvalues != ND_DTYPE_NONE || item->holds_qvalues);
    return target;
}

/* The quantised values take the place of the values. */
static void replace(struct nd_imported_tensor *t, enum nd_dtype qvalues, void *data)
{
    size_t n_per_sample = t->sample_bytes / nd_dtype_size_bytes(t->dtype);
    free(t->data);
    t->data = data;
    t->dtype = qvalues;
    t->sample_bytes = n_per_sample * nd_dtype_size_bytes(qvalues);
    t->capacity_bytes = t->n_samples * t->sample_bytes;
}

static enum nd_status fail_miss(const struct nd_imported_tensor *t, const struct nd_map_item *item,
                                const struct target *target, const struct nd_grid_miss *miss,
                                struct nd_error *err)
{
    size_t n = t->n_samples * (t->sample_bytes / nd_dtype_size_bytes(t->dtype));
    if (item->holds_qvalues)
        return nd_fail(err, ND_E_IMPORT_MISMATCH, t->name,
                       "%s: %s says that it holds %s quantised values, but %zu of %zu values are none: element "
                       "%zu is %.9g",
                       t->where, item->where, nd_dtype_name(target->qvalues), miss->n, n, miss->first,
                       miss->value);
    if (miss->n == 0)
        return nd_fail(err, ND_E_IMPORT_MISMATCH, t->name,
                       "%s: %s states %s quantised values, but the %s values are too few or too coarse to tell "
                       "quantised values from",
                       t->where, item->where, nd_dtype_name(target->qvalues), nd_dtype_name(t->dtype));
    return nd_fail(
        err, ND_E_IMPORT_MISMATCH, t->name,
        "%s: %s states scale %.9g, zero point %" PRId64
        ", but %zu of %zu values are the real of no %s code: element %zu is %.9g, the nearest real %.9g; "
        "without the scale they stay floats",
        t->where, item->where, (double)target->quant->scale[0], target->quant->zero_point[0], miss->n, n,
        nd_dtype_name(target->qvalues), miss->first, miss->value, miss->nearest);
}

static enum nd_status check_target(const struct nd_imported_tensor *t, const struct nd_map_item *item,
                                   const struct target *target, struct nd_error *err)
{
    bool is_integer = nd_dtype_is_integer(target->qvalues) && nd_dtype_size_bytes(target->qvalues) <= 2;
    const struct nd_quant *quant = target->quant;
    if (!is_integer)
        return nd_fail(err, ND_E_IMPORT_MISMATCH, t->name,
                       "%s is %s; the scale that %s states is for integer quantised values of 4 to 16 bits: "
                       "'codes' in the --map says of which type",
                       t->where, nd_dtype_name(t->dtype), item->where);
    if (quant == NULL && !item->holds_qvalues)
        return nd_fail(
            err, ND_E_IMPORT_MISMATCH, t->name,
            "%s: %s states %s quantised values, but nothing states their scale ('scale', 'zero_point')",
            t->where, item->where, nd_dtype_name(target->qvalues));
    if (quant != NULL && quant->n > 1 &&
        (quant->axis < 0 || quant->axis >= t->shape.rank || t->shape.dims[quant->axis] != (int64_t)quant->n))
        return nd_fail(err, ND_E_IMPORT_MISMATCH, t->name,
                       "%s: %zu scales along dimension %d, which the tensor does not have in that length",
                       t->where, quant->n, quant->axis);
    return ND_OK;
}

/* Turns the tensor into quantised values where every value is the real of one (match_tensor.h), or, where the
 * map says that it holds quantised values as numbers, where each is one. Type and scale are those of the map,
 * else of the file, else of the model (nullable). *text is then what the types are from; NULL: the tensor stays
 * as it is. ND_E_IMPORT_MISMATCH: the map states quantised values or a scale, and the values contradict it. */
static enum nd_status nd_match_qvalues(struct nd_imported *imported, struct nd_imported_tensor *t,
                                       const struct nd_map_item *item, const struct nd_tensor *model,
                                       char **text, struct nd_error *err)
{
    const struct target target = find_target(t, item, model);
    const char *floats = nd_stated(&imported->stated, ND_STATED_FLOATS);
    bool holds_qvalues = item != NULL && item->holds_qvalues;
    bool is_kept = !target.is_stated && ((floats != NULL && strcmp(floats, "keep") == 0) ||
                                         (item != NULL && nd_dtype_is_float(item->dtype)));
    struct nd_grid_miss miss = {0};
    *text = NULL;
    if (!holds_qvalues && (!nd_dtype_is_float(t->dtype) || nd_dtype_size_bytes(t->dtype) < 2 || is_kept))
        return ND_OK;
    if (!target.is_stated && (target.quant == NULL || target.qvalues == ND_DTYPE_NONE))
        return ND_OK;
    enum nd_status status = target.is_stated ? check_target(t, item, &target, err) : ND_OK;
    if (status != ND_OK || (holds_qvalues && target.qvalues == t->dtype))
        return status;
    size_t n = t->sample_bytes > 0 ? t->n_samples * (t->sample_bytes / nd_dtype_size_bytes(t->dtype)) : 0;
    void *qvalues = nd_tensor_alloc(n * nd_dtype_size_bytes(target.qvalues));
    ND_TRY_MEMORY(qvalues != NULL, err);
    const struct nd_qvalue_grid grid = {target.qvalues, target.quant, t->shape};
    bool are_qvalues =
        holds_qvalues ? nd_grid_whole_qvalues(target.qvalues, t->dtype, t->data, n, qvalues, &miss)
                      : nd_grid_qvalues(&grid, t->dtype, t->data, n, qvalues, target.is_stated ? &miss : NULL);
    if (!are_qvalues) {
        free(qvalues);
        return target.is_stated ? fail_miss(t, item, &target, &miss, err) : ND_OK;
    }
    struct nd_strbuf said = {0};
    if (holds_qvalues)
        nd_strbuf_printf(&said, "%s quantised values, which the file has as %s (%s)",
                         nd_dtype_name(target.qvalues), nd_dtype_name(t->dtype), item->where);
    else
        nd_strbuf_printf(&said, "%s codes: every float is exactly the real of one",
                         nd_dtype_name(target.qvalues));
    replace(t, target.qvalues, qvalues);
    *text = nd_strbuf_take(&said);
    return *text != NULL ? ND_OK : nd_fail_memory(err);
}

/* The scales of a tensor: from the map, the model and the file, which must not contradict one another. */

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

/* A zero point is a quantised value. One that is none is QNN's offset, of the other sign, taken for it. */
static enum nd_status check_zero_points(const struct nd_imported_tensor *t, const struct nd_map_item *item,
                                        struct nd_error *err)
{
    const struct nd_qvalue_range range = nd_qvalue_range_of(t->dtype);
    for (size_t i = 0; i < item->quant.n; i++) {
        int64_t zero_point = item->quant.zero_point[i];
        if (zero_point < range.min || (zero_point > 0 && (uint64_t)zero_point > range.max))
            return nd_fail(err, ND_E_IMPORT_MISMATCH, t->name,
                           "%s: %s states the zero point %lld, which is no %s; an offset as QNN writes it is "
                           "given as 'offset' with 'convention: qnn'",
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
        ND_TRY(check_quant(t, &sources[i], err));
        if (sources[i].quant == (item != NULL ? &item->quant : NULL))
            ND_TRY(check_zero_points(t, item, err));
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
    ND_TRY_MEMORY(moved != NULL, err);
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

/* Whether each sample lies flat in a row, as ONNX Runtime's qdq_loss_debug saves it. */
static bool split_flat(const struct nd_shape *array, const struct nd_shape *expected, struct nd_shape *sample,
                       size_t *n)
{
    int64_t n_elems = 1;
    for (int d = 0; d < expected->rank; d++)
        n_elems *= expected->dims[d]; /* of a tensor that exists */
    if (array->rank != 2 || array->dims[1] != n_elems)
        return false;
    *sample = *expected;
    *n = (size_t)array->dims[0];
    return true;
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
        if (!split_as_expected(&tensor->shape, expected, &sample, &n) &&
            !split_flat(&tensor->shape, expected, &sample, &n))
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
    ND_TRY_MEMORY(moved != NULL, err);
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
 * (nullable, as above) lacks the dimension. ND_E_IMPORT_MISMATCH: no such dimension, or it does not fit. */
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
    ND_TRY(move_to_front(tensor, axis, err));
    size_t n = (size_t)tensor->shape.dims[axis];
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

static enum nd_status fact(const struct nd_import_matching *m, const char *kind, struct nd_error *err,
                           const char *fmt, ...) ND_PRINTF(4, 5);

static enum nd_status fact(const struct nd_import_matching *m, const char *kind, struct nd_error *err,
                           const char *fmt, ...)
{
    char text[512];
    ND_PRINT_ARGUMENTS(text, fmt);
    return nd_imported_fact(m->imported, kind, m->tensor->name, text, err);
}

/* ---- names ---- */

/* The tensor or input of the model, and its place in it. */
static enum nd_status find_in_model(struct nd_import_matching *m, const char *name, struct nd_tensor *input,
                                    size_t *order, enum nd_name_method *method, struct nd_error *err)
{
    const struct nd_model *model = m->options->model;
    bool is_sanitised = m->imported->has_sanitised_names && (m->item == NULL || m->item->tensor == NULL);
    enum nd_status status;
    if (m->side == ND_IMPORTED_OUTPUT) {
        status = nd_name_find_tensor(model, name, is_sanitised, order, method, err);
        if (status == ND_OK)
            m->model = nd_model_tensor(model, *order);
        if (status == ND_OK && m->model->shape.rank < 0 && m->imported->shapes == NULL)
            status = nd_tensors_infer_shapes(model, &m->imported->shapes, err);
        if (status == ND_OK && m->model->shape.rank < 0 && m->imported->shapes[*order].rank >= 0)
            m->inferred = &m->imported->shapes[*order];
        bool is_kept = m->imported->keeps_unknown && !m->options->strict && m->item == NULL;
        if (status != ND_ERR_NOT_FOUND || !is_kept)
            return status;
        *order = nd_model_n_tensors(model) + (size_t)(m->tensor - m->imported->sides[m->side].items);
        return fact(m, "names", err, "not a tensor of the model: kept as it is");
    }
    ND_TRY(nd_name_find_input(model, name, is_sanitised, order, method, err));
    const struct nd_model_io *io = nd_model_input(model, *order);
    *input = (struct nd_tensor){.name = (char *)io->name, .dtype = io->dtype, .shape = io->shape};
    for (int d = 0; d < input->shape.rank; d++)
        if (io->shape.dims[d] < 0)
            input->shape.rank = -1;
    m->model = input;
    return ND_OK;
}

static enum nd_status match_name(struct nd_import_matching *m, struct nd_tensor *input,
                                 struct nd_matched_tensor *out, struct nd_error *err)
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
                      method == ND_NAME_ONNX    ? "ONNX"
                      : method == ND_NAME_VALUE ? "float value's"
                                                : "sanitised");
    return status;
}

/* ---- layout, samples, shape ---- */

/* 0: as in the model; else the rank of the layout in which the file has channels last. */
static enum nd_status find_layout(const struct nd_import_matching *m, int *rank, struct nd_error *err)
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

static enum nd_status check_shape(const struct nd_import_matching *m, struct nd_error *err)
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
static enum nd_status find_samples(const struct nd_import_matching *m, const struct nd_shape *expected,
                                   struct nd_error *err)
{
    struct nd_imported_tensor *t = m->tensor;
    enum nd_import_samples samples =
        m->options->samples == ND_IMPORT_SAMPLES_FILE ? ND_IMPORT_SAMPLES_AUTO : m->options->samples;
    bool is_said = m->item != NULL && (m->item->batch_axis >= 0 || m->item->n_samples > 0);
    bool is_flat = expected != NULL && expected->rank > 2 && t->shape.rank == 2;
    if (is_said && m->item->batch_axis >= 0)
        ND_TRY(nd_layout_batch_axis(t, m->item->batch_axis, expected, m->item->where, err));
    else if (is_said)
        ND_TRY(nd_layout_share_first(t, m->item->n_samples, m->item->where, err));
    else
        ND_TRY(nd_layout_find_samples(t, samples, expected, err));
    return fact(m, "samples", err, "%s",
                is_said                             ? m->item->where
                : samples != ND_IMPORT_SAMPLES_AUTO ? "--samples-axis"
                : is_flat                           ? "flat in a row; the model's shape"
                : expected != NULL                  ? "the model's shape"
                                                    : "taken to be the first dimension");
}

static enum nd_status match_shape(const struct nd_import_matching *m, struct nd_error *err)
{
    struct nd_imported_tensor *t = m->tensor;
    int layout_rank = 0;
    if (t->is_laid_out)
        return check_shape(m, err);
    enum nd_status status = find_layout(m, &layout_rank, err);
    struct nd_shape expected = {.rank = -1}, sample;
    size_t n;
    const struct nd_shape *known = m->inferred != NULL ? m->inferred
                                   : m->model != NULL  ? &m->model->shape
                                                       : NULL;
    if (known != NULL && known->rank >= 0)
        expected = layout_rank > 0 ? nd_layout_channels_last(known) : *known;
    if (m->inferred != NULL && !split_as_expected(&t->shape, &expected, &sample, &n))
        expected.rank = -1; /* a runtime may keep it in a shape of its own */
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
static enum nd_status apply_type(const struct nd_import_matching *m, struct nd_error *err)
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
static enum nd_status match_type(const struct nd_import_matching *m, struct nd_error *err)
{
    struct nd_imported_tensor *t = m->tensor;
    ND_FREED char *qvalues = NULL;
    ND_TRY(apply_type(m, err));
    if (m->side == ND_IMPORTED_OUTPUT)
        ND_TRY(nd_match_qvalues(m->imported, t, m->item, m->model, &qvalues, err));
    if (qvalues != NULL)
        ND_TRY(fact(m, "types", err, "%s", qvalues));
    ND_TRY(check_values(t, err));
    if (m->model == NULL || m->model->dtype == ND_DTYPE_NONE || m->model->dtype == t->dtype)
        return ND_OK;
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
static enum nd_status match_node(const struct nd_import_matching *m, struct nd_matched_tensor *out,
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
        ND_TRY_MEMORY(*texts[i].at != NULL, err);
    }
    return ND_OK;
}

enum nd_status nd_match_tensor(struct nd_import_matching *m, struct nd_matched_tensor *out,
                               struct nd_error *err)
{
    struct nd_tensor input = {0};
    struct nd_quant quant = {.axis = -1};
    const char *from = NULL;
    ND_TRY(match_name(m, &input, out, err));
    if (m->side == ND_IMPORTED_INPUT && m->item != NULL && m->item->quant.n > 0)
        return nd_fail(err, ND_E_IMPORT_MAP, m->tensor->name,
                       "%s states a scale of input '%s', but inputs are kept as they were fed, without one",
                       m->item->where, m->tensor->name);
    ND_TRY(match_shape(m, err));
    ND_TRY(match_type(m, err));
    ND_TRY(match_node(m, out, err));
    if (m->side == ND_IMPORTED_OUTPUT)
        ND_TRY(nd_match_quant(m->tensor, m->item, m->model, &quant, &from, err));
    if (from != NULL && nd_dtype_is_integer(m->tensor->dtype))
        ND_TRY(fact(m, "quantisation", err, "%s", from));
    quant.axis = quant.n > 1 ? quant.axis : -1;
    nd_quant_deinit(&out->tensor.quant);
    if (quant.n > 0)
        ND_TRY(nd_quant_copy(&quant, &out->tensor.quant, err));
    out->tensor.dtype = m->tensor->dtype;
    out->tensor.shape = m->tensor->shape;
    out->data = m->tensor->data;
    return ND_OK;
}

/* Names are matched again by nd_match_tensor; here they only lead to the model's shape. */
enum nd_status nd_match_layout(struct nd_import_matching *m, struct nd_error *err)
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
