/* What a runner is asked for, one tensor after the other, and what of its answers lies on the grid of the
 * tensor: docs/reference/runner.md. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/operators/array.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/tensors/scales.h"
#include "devices/agent/runner/asked.h"
#include "devices/agent/runner/connection.h"

/* A code's real number is rounded twice to the type of the float, by its scale and by the product: so far it
 * may be from its step, relative to its distance from the zero point. */
static double two_roundings(enum nd_dtype dtype)
{
    return dtype == ND_DTYPE_F16 ? 0x1p-10 : dtype == ND_DTYPE_F32 ? 0x1p-23 : 0x1p-52;
}

/* Never so far that it could as well be taken for something between two codes. Chosen: a quarter of a step. */
static const double max_steps = 0.25;

static void find_range(enum nd_dtype dtype, double *low, double *high)
{
    int bits = dtype == ND_DTYPE_U4 || dtype == ND_DTYPE_I4 ? 4 : (int)(8 * nd_dtype_size_bytes(dtype));
    bool is_signed = nd_dtype_is_signed_integer(dtype);
    *low = is_signed ? -ldexp(1, bits - 1) : 0;
    *high = ldexp(1, is_signed ? bits - 1 : bits) - 1;
}

struct range {
    double low, high, error;
};

static double take(double value, double scale, double zero_point, const struct range *range,
                   struct nd_off_grid *off)
{
    double exact = value / scale, nearest = nearbyint(exact);
    double code = nearest + zero_point;
    if (isnan(exact)) {
        off->n++;
        off->largest = INFINITY;
        return zero_point;
    }
    code = fmin(fmax(code, range->low), range->high);
    double distance = fabs(exact - (code - zero_point));
    if (distance > fmin(fabs(nearest) * range->error, max_steps)) {
        off->n++;
        off->largest = fmax(off->largest, distance);
    }
    return code;
}

/* Writes the codes of all values: the nearest one, ties to even, where a value is no code, and the zero point
 * for NaN. `codes` has room for the shape's elements. off is written. */
static enum nd_status nd_grid_take(const struct nd_runner_grid *grid, const void *values, void *qvalues,
                                   struct nd_off_grid *off, struct nd_error *err)
{
    enum { BLOCK = 512 };
    double x[BLOCK];
    size_t n, inner = nd_quant_inner(grid->quant, grid->shape);
    size_t from_bytes = nd_dtype_size_bytes(grid->from), to_bytes = nd_dtype_size_bytes(grid->to);
    struct range range = {.error = two_roundings(grid->from)};
    find_range(grid->to, &range.low, &range.high);
    enum nd_status status = nd_shape_n_elems(grid->shape, &n, err);
    *off = (struct nd_off_grid){0};
    for (size_t first = 0; status == ND_OK && first < n; first += BLOCK) {
        size_t count = n - first < BLOCK ? n - first : BLOCK;
        nd_array_load(grid->from, (const char *)values + first * from_bytes, count, x);
        for (size_t i = 0; i < count; i++) {
            size_t channel = (first + i) / inner % grid->quant->n;
            x[i] = take(x[i], (double)grid->quant->scale[channel], (double)grid->quant->zero_point[channel],
                        &range, off);
        }
        nd_array_store(grid->to, x, count, (char *)qvalues + first * to_bytes);
    }
    return status;
}

void nd_asked_deinit(struct nd_asked *asked)
{
    ND_FREE_ALL(asked->name, asked->qvalues);
    nd_quant_deinit(&asked->quant);
    *asked = (struct nd_asked){0};
}

/* ---- what is asked for ---- */

static bool read_shape(const json_t *list, struct nd_shape *shape)
{
    size_t i;
    const json_t *dim;
    *shape = (struct nd_shape){.rank = -1};
    if (!json_is_array(list))
        return list == NULL || json_is_null(list);
    if (json_array_size(list) > ND_MAX_RANK)
        return false;
    json_array_foreach(list, i, dim) {
        shape->dims[i] = json_integer_value(dim);
        if (!json_is_integer(dim) || shape->dims[i] < 0)
            return false;
    }
    shape->rank = (int)json_array_size(list);
    return true;
}

static enum nd_status read_quant(const json_t *description, struct nd_quant *quant, struct nd_error *err)
{
    const json_t *scales = json_object_get(description, "scale"), *axis = json_object_get(description, "axis");
    const json_t *zero_points = json_object_get(description, "zero_point");
    size_t n = json_array_size(scales);
    if (n == 0)
        return ND_OK;
    quant->scale = nd_calloc(n, sizeof *quant->scale);
    quant->zero_point = nd_calloc(n, sizeof *quant->zero_point);
    ND_TRY_MEMORY(quant->scale != NULL && quant->zero_point != NULL, err);
    quant->n = n;
    quant->axis = json_is_integer(axis) ? (int)json_integer_value(axis) : -1;
    for (size_t i = 0; i < n; i++) {
        quant->scale[i] = (float)json_number_value(json_array_get(scales, i));
        quant->zero_point[i] = json_integer_value(json_array_get(zero_points, i));
    }
    return ND_OK;
}

enum nd_status nd_asked_read(const json_t *description, struct nd_asked *out, struct nd_error *err)
{
    const char *type = nd_runner_text(description, "type");
    *out = (struct nd_asked){.name = nd_strdup(nd_runner_text(description, "name")),
                             .dtype = nd_dtype_from_name(type)};
    ND_TRY_MEMORY(out->name != NULL, err);
    if (!read_shape(json_object_get(description, "shape"), &out->shape))
        return nd_fail(err, ND_E_RUNNER_PROTOCOL, out->name, "the job's tensor '%s' has no shape that can be",
                       out->name);
    return read_quant(description, &out->quant, err);
}

/* Of a tensor whose shape is not known beforehand. Chosen. */
static const uint64_t max_open_bytes = 1u << 30;

uint64_t nd_asked_max_bytes(const struct nd_asked *asked, size_t n)
{
    uint64_t most = 0;
    for (size_t i = 0; i < n; i++) {
        size_t bytes;
        bool is_open = asked[i].shape.rank < 0 ||
                       nd_shape_size_bytes(&asked[i].shape, ND_DTYPE_F64, &bytes, NULL) != ND_OK;
        most += is_open ? max_open_bytes : bytes;
    }
    return most;
}

/* ---- what comes ---- */

/* One tensor of an answer. */
struct came {
    const char *name;
    enum nd_dtype dtype;
    struct nd_shape shape;
    const unsigned char *data;
    size_t n_bytes;
};

static enum nd_status find_asked(struct nd_asked *asked, size_t n, const char *runner, const struct came *came,
                                 struct nd_asked **out, struct nd_error *err)
{
    size_t i = 0;
    while (i < n && strcmp(asked[i].name, came->name) != 0)
        i++;
    if (i == n)
        return nd_fail(err, ND_E_RUNNER_PROTOCOL, came->name,
                       "runner '%s' sent a tensor '%s', which nobody asked for", runner, came->name);
    if (asked[i].has_come)
        return nd_fail(err, ND_E_RUNNER_PROTOCOL, came->name, "runner '%s' sent the tensor '%s' twice", runner,
                       came->name);
    asked[i].has_come = true;
    *out = &asked[i];
    return ND_OK;
}

static bool is_wide_float(enum nd_dtype dtype)
{
    return dtype == ND_DTYPE_F16 || dtype == ND_DTYPE_F32 || dtype == ND_DTYPE_F64;
}

static bool can_become_qvalues(const struct nd_asked *asked, enum nd_dtype dtype)
{
    return asked->quant.n > 0 && nd_dtype_is_integer(asked->dtype) && is_wide_float(dtype);
}

static enum nd_status check_kind(const struct nd_asked *asked, const char *runner, const struct came *came,
                                 struct nd_error *err)
{
    char got[128], want[128];
    bool is_type = asked->dtype == ND_DTYPE_NONE || asked->dtype == came->dtype;
    if (!is_type && !can_become_qvalues(asked, came->dtype))
        return nd_fail(err, ND_E_RUNNER_PROTOCOL, asked->name,
                       "runner '%s' sent '%s' as %s; it was asked for %s", runner, asked->name,
                       nd_dtype_name(came->dtype), nd_dtype_name(asked->dtype));
    if (asked->shape.rank >= 0 && !nd_shape_equal(&asked->shape, &came->shape))
        return nd_fail(err, ND_E_RUNNER_PROTOCOL, asked->name,
                       "runner '%s' sent '%s' of shape %s; the model says %s", runner, asked->name,
                       nd_shape_format(&came->shape, got, sizeof got),
                       nd_shape_format(&asked->shape, want, sizeof want));
    return ND_OK;
}

static enum nd_status take_floats(struct nd_asked *asked, const struct nd_answer_rules *rules,
                                  const struct came *came, struct nd_output_view *view, struct nd_error *err)
{
    struct nd_off_grid off;
    size_t n, n_bytes;
    const struct nd_runner_grid grid = {&asked->quant, &came->shape, came->dtype, asked->dtype};
    ND_TRY(nd_shape_size_bytes(&came->shape, asked->dtype, &n_bytes, err));
    ND_TRY(nd_shape_n_elems(&came->shape, &n, err));
    ND_TRY_MEMORY(nd_grow((void **)&asked->qvalues, &asked->capacity, n_bytes, 1), err);
    ND_TRY(nd_grid_take(&grid, came->data, asked->qvalues, &off, err));
    if (off.n > 0 && !rules->rounds_off_grid)
        return nd_fail(err, ND_E_RUNNER_GRID, asked->name,
                       "runner '%s' sent '%s' as floats, of which %zu of %zu are no quantised values: they are "
                       "up to %.3g steps away from one; 'off-grid=round' takes the nearest",
                       rules->runner, asked->name, off.n, n, off.largest);
    asked->n_values += n;
    asked->off.n += off.n;
    asked->off.largest = fmax(asked->off.largest, off.largest);
    *view = (struct nd_output_view){
        .dtype = asked->dtype, .shape = came->shape, .data = asked->qvalues, .size_bytes = n_bytes};
    return ND_OK;
}

static enum nd_status read_came(const json_t *item, const struct nd_frame *frame, const char *runner,
                                size_t offset, struct came *out, struct nd_error *err)
{
    *out = (struct came){.name = nd_runner_text(item, "name"),
                         .dtype = nd_dtype_from_name(nd_runner_text(item, "type")),
                         .data = frame->data + offset};
    if (out->dtype == ND_DTYPE_NONE || !read_shape(json_object_get(item, "shape"), &out->shape) ||
        out->shape.rank < 0)
        return nd_fail(err, ND_E_RUNNER_PROTOCOL, out->name,
                       "runner '%s' sent '%s' with a type or shape that is none", runner, out->name);
    ND_TRY(nd_shape_size_bytes(&out->shape, out->dtype, &out->n_bytes, err));
    if (out->n_bytes > frame->data_bytes - offset)
        ND_TRY(nd_fail(err, ND_E_RUNNER_PROTOCOL, out->name, "runner '%s' sent too few bytes for '%s'", runner,
                       out->name));
    return ND_OK;
}

static enum nd_status check_all(const struct nd_asked *asked, size_t n, const char *runner, size_t n_left,
                                struct nd_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (!asked[i].has_come && asked[i].missing == NULL)
            return nd_fail(err, ND_E_RUNNER_PROTOCOL, asked[i].name, "runner '%s' did not send the tensor '%s'",
                           runner, asked[i].name);
    if (n_left > 0)
        return nd_fail(err, ND_E_RUNNER_PROTOCOL, runner,
                       "runner '%s' sent %zu bytes more than its tensors have", runner, n_left);
    return ND_OK;
}

enum nd_status nd_answer_take(const struct nd_frame *frame, const struct nd_answer_rules *rules,
                              struct nd_asked *asked, size_t n_asked, struct nd_output_view *views,
                              struct nd_error *err)
{
    size_t i, offset = 0;
    const json_t *item;
    for (i = 0; i < n_asked; i++)
        asked[i].has_come = false;
    json_array_foreach(json_object_get(frame->message, "outputs"), i, item) {
        struct came came;
        struct nd_asked *which = NULL;
        ND_TRY(read_came(item, frame, rules->runner, offset, &came, err));
        ND_TRY(find_asked(asked, n_asked, rules->runner, &came, &which, err));
        ND_TRY(check_kind(which, rules->runner, &came, err));
        struct nd_output_view *view = &views[which - asked];
        if (which->dtype == ND_DTYPE_NONE || which->dtype == came.dtype)
            *view = (struct nd_output_view){
                .dtype = came.dtype, .shape = came.shape, .data = came.data, .size_bytes = came.n_bytes};
        else
            ND_TRY(take_floats(which, rules, &came, view, err));
        offset += came.n_bytes;
    }
    return check_all(asked, n_asked, rules->runner, frame->data_bytes - offset, err);
}
