#include "explain/findings/findings.h"

#include <math.h>
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/tensors/scales.h"
#include "explain/findings/findings_internal.h"
#include "explain/plan/reader.h"

/* Samples of floats that stand for codes: no reference is needed for those. */
enum { MOST_FLOAT_SAMPLES = 64 };

/* ---- what there is ---- */

/* 4-bit integers take whole bytes, but are no 8-bit ones. */
static bool is_other_sign(enum nd_dtype a, enum nd_dtype b)
{
    bool is_a_half = a == ND_DTYPE_U4 || a == ND_DTYPE_I4, is_b_half = b == ND_DTYPE_U4 || b == ND_DTYPE_I4;
    return nd_dtype_is_integer(a) && nd_dtype_is_integer(b) && is_a_half == is_b_half &&
           nd_dtype_size_bytes(a) == nd_dtype_size_bytes(b) &&
           nd_dtype_is_signed_integer(a) != nd_dtype_is_signed_integer(b);
}

static enum nd_look_kind kind_of(const struct nd_edge *model, const struct nd_edge *captured)
{
    bool is_code = model->quant.n > 0 && nd_dtype_is_of_codes(model->dtype);
    if (is_code && captured->dtype == model->dtype)
        return ND_LOOK_AS_CODES;
    if (is_code && is_other_sign(captured->dtype, model->dtype))
        return ND_LOOK_AS_OTHER_SIGN;
    if (is_code && model->quant.n == 1 && nd_dtype_is_float(captured->dtype))
        return ND_LOOK_AS_CODE_FLOATS;
    bool is_float = model->dtype == ND_DTYPE_NONE || nd_dtype_is_float(model->dtype);
    return is_float && model->quant.n == 0 && nd_dtype_is_float(captured->dtype) ? ND_LOOK_AS_FLOATS
                                                                                 : ND_LOOK_AS_NOT;
}

static void find_look(const struct nd_examination *x, size_t device, size_t step)
{
    const struct nd_plan_source *source = &x->plan->sources[device];
    const struct nd_edge *wanted = nd_plan_edge(x->plan, step);
    struct nd_look *look = nd_look_of(x, device, step);
    look->place = (struct nd_capture_tensor){
        source->capture, source->probe,
        source->is_failed ? SIZE_MAX : nd_capture_find_edge(source->capture, wanted->name)};
    if (look->place.edge == SIZE_MAX)
        return;
    const struct nd_edge *edge = nd_capture_edge(source->capture, look->place.edge);
    if (nd_capture_has_outputs(source->capture, source->probe, look->place.edge) &&
        nd_shape_equal(&edge->shape, &x->plan->shapes[step]))
        look->kind = kind_of(wanted, edge);
}

/* ---- beside the reference ---- */

/* The values of the sample at hand, which the plan may hold. */
static enum nd_status read_values(const struct nd_examination *x, size_t device, size_t step,
                                  enum nd_dtype dtype, struct nd_array *out, struct nd_error *err)
{
    const struct nd_capture_tensor *place = &nd_look_of(x, device, step)->place;
    const struct nd_plan_source *source = &x->plan->sources[device];
    const struct nd_plan_tensor tensor = {device, step};
    if (place->edge != source->edges[step])
        return nd_read_tensor(place, x->sample, dtype, out, err);
    unsigned char *raw = nd_tensor_room(source->sample_bytes[step]);
    enum nd_status status =
        raw != NULL ? nd_plan_read(x->plan, &tensor, x->sample, 1, raw, err) : nd_fail_memory(err);
    if (status == ND_OK)
        status = nd_array_make_room(out, dtype, &nd_capture_edge(place->capture, place->edge)->shape, err);
    if (status == ND_OK)
        nd_array_load(dtype, raw, out->n, out->x);
    free(raw);
    return status;
}

static enum nd_status look_at(const struct nd_examination *x, size_t device, size_t step,
                              const struct nd_array *ref, struct nd_error *err)
{
    struct nd_look *look = nd_look_of(x, device, step);
    bool is_code = look->kind == ND_LOOK_AS_CODES || look->kind == ND_LOOK_AS_OTHER_SIGN;
    if (!is_code && look->kind != ND_LOOK_AS_FLOATS)
        return ND_OK;
    struct nd_array values = {0};
    enum nd_dtype dtype = is_code ? nd_plan_edge(x->plan, step)->dtype
                                  : nd_capture_edge(x->plan->sources[device].capture, look->place.edge)->dtype;
    enum nd_status status = read_values(x, device, step, dtype, &values, err);
    if (status == ND_OK && is_code && values.n == ref->n)
        nd_look_at_codes(&look->codes, dtype, ref->x, values.x, ref->n);
    if (status == ND_OK && !is_code)
        status = nd_look_keep_floats(&look->floats, values.x, values.n, x->n_samples, err);
    nd_array_deinit(&values);
    return status;
}

/* What was seen of a device that has the same codes is seen of this one, too. */
static bool take_over_look(const struct nd_examination *x, size_t device, size_t step)
{
    const struct nd_plan_source *source = &x->plan->sources[device], *same = &x->plan->sources[source->same_as];
    struct nd_look *look = nd_look_of(x, device, step);
    const struct nd_look *other = nd_look_of(x, source->same_as, step);
    bool is_same = source->same_as != device && look->kind == other->kind && look->kind != ND_LOOK_AS_FLOATS &&
                   look->place.edge == source->edges[step] && other->place.edge == same->edges[step];
    if (is_same)
        look->codes = other->codes;
    return is_same;
}

static enum nd_status found(void *context, size_t edge, const struct nd_array *values, enum nd_exact_way way,
                            struct nd_error *err)
{
    (void)way;
    struct nd_examination *x = context;
    size_t step = x->plan->step_of_edge[edge];
    bool is_float = false;
    enum nd_status status = ND_OK;
    for (size_t d = 0; d < x->plan->n_devices && step != SIZE_MAX && status == ND_OK; d++) {
        is_float = is_float || nd_look_of(x, d, step)->kind == ND_LOOK_AS_FLOATS;
        if (!take_over_look(x, d, step))
            status = look_at(x, d, step, values, err);
    }
    if (status == ND_OK && is_float)
        status = nd_look_keep_floats(&x->floats[step], values->x, values->n, x->n_samples, err);
    return status;
}

static enum nd_status look_beside_reference(struct nd_examination *x, struct nd_error *err)
{
    const struct nd_plan *plan = x->plan;
    const struct nd_exact_options options = {.struct_size = sizeof options, .missed = nd_exact_let_go};
    const struct nd_plan_source *leader = &plan->sources[plan->leader];
    size_t n_inputs = nd_model_n_inputs(plan->model);
    struct nd_array *inputs;
    enum nd_status status = nd_inputs_create(plan->model, &inputs, err);
    for (x->sample = 0; x->sample < x->n_samples && status == ND_OK; x->sample++) {
        for (size_t i = 0; i < n_inputs && status == ND_OK; i++)
            status = nd_read_input(&(struct nd_capture_tensor){leader->capture, leader->probe, plan->inputs[i]},
                                   x->sample, nd_model_input(plan->model, i)->dtype, &inputs[i], err);
        if (status == ND_OK)
            status = nd_exact_graph_run(plan->graph, inputs, &options, found, x, err);
    }
    nd_inputs_destroy(plan->model, &inputs);
    return status;
}

static enum nd_status read_code_floats(const struct nd_examination *x, size_t device, size_t step,
                                       struct nd_error *err)
{
    struct nd_look *look = nd_look_of(x, device, step);
    enum nd_dtype dtype = nd_capture_edge(x->plan->sources[device].capture, look->place.edge)->dtype;
    size_t n = x->plan->n_samples < MOST_FLOAT_SAMPLES ? x->plan->n_samples : MOST_FLOAT_SAMPLES;
    struct nd_array values = {0};
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < n && status == ND_OK; i++) {
        status = nd_read_tensor(&look->place, i, dtype, &values, err);
        if (status == ND_OK)
            status = nd_look_keep_floats(&look->floats, values.x, values.n, n, err);
        nd_array_deinit(&values);
    }
    return status;
}

/* ---- all of it ---- */

static enum nd_status look_at_all(struct nd_examination *x, struct nd_error *err)
{
    const struct nd_plan *plan = x->plan;
    enum nd_status status = ND_OK;
    bool is_needed = false;
    for (size_t d = 0; d < plan->n_devices && status == ND_OK; d++)
        for (size_t s = 0; s < plan->n_steps && status == ND_OK; s++) {
            find_look(x, d, s);
            enum nd_look_kind kind = nd_look_of(x, d, s)->kind;
            is_needed = is_needed || (kind != ND_LOOK_AS_NOT && kind != ND_LOOK_AS_CODE_FLOATS);
            if (kind == ND_LOOK_AS_CODE_FLOATS)
                status = read_code_floats(x, d, s, err);
        }
    return status == ND_OK && is_needed ? look_beside_reference(x, err) : status;
}

enum nd_status nd_explain_examine_captures(const struct nd_plan *plan, struct nd_explained_device *devices,
                                           struct nd_error *err)
{
    size_t n_looks;
    struct nd_examination x = {.plan = plan, .devices = devices};
    x.n_samples = plan->n_samples < ND_LOOK_SAMPLES ? plan->n_samples : ND_LOOK_SAMPLES;
    if (!nd_size_mul(plan->n_devices, plan->n_steps, &n_looks))
        return nd_fail(err, ND_E_SIZE_OVERFLOW, NULL, "too many devices");
    x.looks = nd_calloc(n_looks, sizeof *x.looks);
    x.floats = nd_calloc(plan->n_steps, sizeof *x.floats);
    x.histories = nd_calloc(plan->n_devices, sizeof *x.histories);
    bool is_made = x.looks != NULL && x.floats != NULL && x.histories != NULL;
    enum nd_status status = is_made ? look_at_all(&x, err) : nd_fail_memory(err);
    for (size_t d = 0; d < plan->n_devices && status == ND_OK; d++)
        for (size_t s = 0; s < plan->n_steps && status == ND_OK; s++) {
            status = nd_look_say(&x, d, s, err);
        }
    for (size_t i = 0; i < n_looks && x.looks != NULL; i++)
        free(x.looks[i].floats.x);
    for (size_t s = 0; s < plan->n_steps && x.floats != NULL; s++)
        free(x.floats[s].x);
    free(x.looks);
    free(x.floats);
    free(x.histories);
    return status;
}
