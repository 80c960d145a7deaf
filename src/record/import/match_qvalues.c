/* Match codes: see the header. */
#include "record/import/match_qvalues.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/tensors/scales.h"
#include "core/text/strbuf.h"
#include "record/probes/probe.h"

/* Two roundings of float32: that of the product and that of a scale or zero point that was added before. */
static const double float32_slack = 0x1p-22;

/* How unlikely it must be that values of a 16-bit type are on the grid by chance, in bits. Chosen: a campaign
 * of a million tensors is then taken in with a chance of one in four thousand. */
static const double needed_bits = 32;

double nd_grid_value(enum nd_dtype dtype, const void *values, size_t i)
{
    switch (dtype) {
    case ND_DTYPE_F16:
        return (double)nd_f32_from_f16(((const uint16_t *)values)[i]);
    case ND_DTYPE_BF16:
        return (double)nd_f32_from_bf16(((const uint16_t *)values)[i]);
    case ND_DTYPE_F32:
        return (double)((const float *)values)[i];
    case ND_DTYPE_F64:
        return ((const double *)values)[i];
    case ND_DTYPE_I8:
    case ND_DTYPE_I4:
        return ((const int8_t *)values)[i];
    case ND_DTYPE_U16:
        return ((const uint16_t *)values)[i];
    case ND_DTYPE_I16:
        return ((const int16_t *)values)[i];
    case ND_DTYPE_U32:
        return ((const uint32_t *)values)[i];
    case ND_DTYPE_I32:
        return ((const int32_t *)values)[i];
    case ND_DTYPE_U64:
        return (double)((const uint64_t *)values)[i];
    case ND_DTYPE_I64:
        return (double)((const int64_t *)values)[i];
    default:
        return ((const uint8_t *)values)[i];
    }
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
    switch (dtype) {
    case ND_DTYPE_U16:
        ((uint16_t *)qvalues)[i] = (uint16_t)qvalue;
        return;
    case ND_DTYPE_I16:
        ((int16_t *)qvalues)[i] = (int16_t)qvalue;
        return;
    default:
        ((uint8_t *)qvalues)[i] = (uint8_t)qvalue;
    }
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

static bool is_narrow_float(enum nd_dtype dtype)
{
    return dtype == ND_DTYPE_F16 || dtype == ND_DTYPE_BF16;
}

bool nd_grid_qvalues(const struct nd_grid *grid, enum nd_dtype dtype, const void *values, size_t n,
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
    return is_on && (miss == NULL || miss->n == 0) && (!is_narrow_float(dtype) || bits >= needed_bits);
}

/* Numbers of any type that hold quantised values as they are (a float32 array of 0 ... 255). false where one is
 * no quantised value.
 */
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
                       "'codes' in the --map "
                       "says of which type",
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

enum nd_status nd_match_qvalues(struct nd_imported *imported, struct nd_imported_tensor *t,
                                const struct nd_map_item *item, const struct nd_tensor *model, char **text,
                                struct nd_error *err)
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
    if (qvalues == NULL)
        return nd_fail_memory(err);
    const struct nd_grid grid = {target.qvalues, target.quant, t->shape};
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
