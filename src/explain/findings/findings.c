#include "explain/findings/findings.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "explain/findings/findings_internal.h"
#include "replay/reader.h"

/* Samples of floats that stand for codes: no reference is needed for those. */
enum { MOST_FLOAT_SAMPLES = 64 };

/* How an edge of a capture is looked at. */
enum look_kind {
    LOOK_NOT,
    LOOK_CODES,       /* of the model's type */
    LOOK_OTHER_SIGN,  /* codes, but called signed where the model's are unsigned, or the reverse */
    LOOK_CODE_FLOATS, /* floats where the model has codes */
    LOOK_FLOATS,      /* floats where the model has floats */
};

struct look {
    enum look_kind kind;
    size_t edge; /* of the capture, or SIZE_MAX */
    struct nd_code_look codes;
    struct nd_float_look floats;
};

struct examination {
    const struct nd_plan *plan;
    struct nd_explained_device *devices; /* [n_devices] */
    struct look *looks;                  /* [n_devices][n_steps] */
    struct nd_float_look *floats;        /* [n_steps] the reference's, of edges without codes */
    size_t n_samples, sample;            /* of the reference; the one at hand */
    struct nd_values_history *histories; /* [n_devices] */
};

static struct look *look_of(const struct examination *x, size_t device, size_t step)
{
    return &x->looks[device * x->plan->n_steps + step];
}

/* ---- what there is ---- */

/* 4-bit integers take whole bytes, but are no 8-bit ones. */
static bool is_other_sign(enum nd_dtype a, enum nd_dtype b)
{
    bool is_a_half = a == ND_DTYPE_U4 || a == ND_DTYPE_I4, is_b_half = b == ND_DTYPE_U4 || b == ND_DTYPE_I4;
    return nd_dtype_is_integer(a) && nd_dtype_is_integer(b) && is_a_half == is_b_half &&
           nd_dtype_size_bytes(a) == nd_dtype_size_bytes(b) &&
           nd_dtype_is_signed_integer(a) != nd_dtype_is_signed_integer(b);
}

/* Types that are narrow by themselves show their grid in their name. */
static bool is_wide_float(enum nd_dtype dtype)
{
    return dtype == ND_DTYPE_F32 || dtype == ND_DTYPE_F64;
}

static enum look_kind kind_of(const struct nd_edge *model, const struct nd_edge *captured)
{
    bool is_code =
        model->quant.n > 0 && nd_dtype_is_integer(model->dtype) && nd_dtype_size_bytes(model->dtype) <= 4;
    if (is_code && captured->dtype == model->dtype)
        return LOOK_CODES;
    if (is_code && is_other_sign(captured->dtype, model->dtype))
        return LOOK_OTHER_SIGN;
    if (is_code && model->quant.n == 1 && nd_dtype_is_float(captured->dtype))
        return LOOK_CODE_FLOATS;
    bool is_float = model->dtype == ND_DTYPE_NONE || nd_dtype_is_float(model->dtype);
    return is_float && model->quant.n == 0 && nd_dtype_is_float(captured->dtype) ? LOOK_FLOATS : LOOK_NOT;
}

static void find_look(const struct examination *x, size_t device, size_t step)
{
    const struct nd_plan_source *source = &x->plan->sources[device];
    const struct nd_edge *wanted = nd_plan_edge(x->plan, step);
    struct look *look = look_of(x, device, step);
    look->edge = source->is_failed ? SIZE_MAX : nd_capture_find_edge(source->capture, wanted->name);
    if (look->edge == SIZE_MAX)
        return;
    const struct nd_edge *edge = nd_capture_edge(source->capture, look->edge);
    if (nd_capture_has_outputs(source->capture, source->probe, look->edge) &&
        nd_shape_equal(&edge->shape, &x->plan->shapes[step]))
        look->kind = kind_of(wanted, edge);
}

/* Reads one sample as the type given, which is as wide as the one captured. */
static enum nd_status read_sample(const struct examination *x, size_t device, size_t step, enum nd_dtype dtype,
                                  size_t sample, struct nd_array *out, struct nd_error *err)
{
    const struct nd_plan_source *source = &x->plan->sources[device];
    size_t size_bytes;
    enum nd_status status = nd_shape_size_bytes(&x->plan->shapes[step], dtype, &size_bytes, err);
    unsigned char *bytes = status == ND_OK ? nd_tensor_alloc(size_bytes) : NULL;
    if (status == ND_OK && bytes == NULL)
        status = nd_fail_memory(err);
    if (status == ND_OK)
        status = nd_capture_read_verified(source->capture, source->probe, look_of(x, device, step)->edge,
                                          sample, 1, bytes, err);
    if (status == ND_OK)
        status = nd_array_make(out, dtype, &x->plan->shapes[step], err);
    if (status == ND_OK)
        nd_array_load(dtype, bytes, out->n, out->x);
    free(bytes);
    return status;
}

/* ---- beside the reference ---- */

static enum nd_status look_at(const struct examination *x, size_t device, size_t step,
                              const struct nd_array *ref, struct nd_error *err)
{
    struct look *look = look_of(x, device, step);
    bool is_code = look->kind == LOOK_CODES || look->kind == LOOK_OTHER_SIGN;
    if (!is_code && look->kind != LOOK_FLOATS)
        return ND_OK;
    struct nd_array values = {0};
    enum nd_dtype dtype = is_code ? nd_plan_edge(x->plan, step)->dtype
                                  : nd_capture_edge(x->plan->sources[device].capture, look->edge)->dtype;
    enum nd_status status = read_sample(x, device, step, dtype, x->sample, &values, err);
    if (status == ND_OK && is_code && values.n == ref->n)
        nd_look_at_codes(&look->codes, dtype, ref->x, values.x, ref->n);
    if (status == ND_OK && !is_code)
        status = nd_look_keep_floats(&look->floats, values.x, values.n, x->n_samples, err);
    nd_array_deinit(&values);
    return status;
}

static enum nd_status found(void *context, size_t edge, const struct nd_array *values, enum nd_exact_way way,
                            struct nd_error *err)
{
    (void)way;
    struct examination *x = context;
    size_t step = x->plan->step_of_edge[edge];
    bool is_float = false;
    enum nd_status status = ND_OK;
    for (size_t d = 0; d < x->plan->n_devices && step != SIZE_MAX && status == ND_OK; d++) {
        is_float = is_float || look_of(x, d, step)->kind == LOOK_FLOATS;
        status = look_at(x, d, step, values, err);
    }
    if (status == ND_OK && is_float)
        status = nd_look_keep_floats(&x->floats[step], values->x, values->n, x->n_samples, err);
    return status;
}

static enum nd_status read_input(const struct nd_plan *plan, size_t input, size_t sample, struct nd_array *out,
                                 struct nd_error *err)
{
    const struct nd_plan_source *leader = &plan->sources[plan->leader];
    const struct nd_model_io *io = nd_model_input(plan->model, input);
    size_t size_bytes;
    enum nd_status status = nd_shape_size_bytes(&io->shape, io->dtype, &size_bytes, err);
    unsigned char *bytes = status == ND_OK ? nd_tensor_alloc(size_bytes) : NULL;
    if (status == ND_OK && bytes == NULL)
        status = nd_fail_memory(err);
    if (status == ND_OK)
        status =
            nd_capture_read_inputs(leader->capture, leader->probe, plan->inputs[input], sample, 1, bytes, err);
    if (status == ND_OK)
        nd_array_load(io->dtype, bytes, out->n, out->x);
    free(bytes);
    return status;
}

static enum nd_status look_beside_reference(struct examination *x, struct nd_error *err)
{
    const struct nd_plan *plan = x->plan;
    const struct nd_exact_options options = {.struct_size = sizeof options, .missed = nd_exact_let_go};
    size_t n_inputs = nd_model_n_inputs(plan->model);
    struct nd_array *inputs = nd_calloc(n_inputs, sizeof *inputs);
    enum nd_status status = inputs != NULL || n_inputs == 0 ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK)
        status = nd_make_inputs(plan->model, inputs, err);
    for (x->sample = 0; x->sample < x->n_samples && status == ND_OK; x->sample++) {
        for (size_t i = 0; i < n_inputs && status == ND_OK; i++)
            status = read_input(plan, i, x->sample, &inputs[i], err);
        if (status == ND_OK)
            status = nd_exact_graph_run(plan->graph, inputs, &options, found, x, err);
    }
    for (size_t i = 0; i < n_inputs && inputs != NULL; i++)
        nd_array_deinit(&inputs[i]);
    free(inputs);
    return status;
}

static enum nd_status read_code_floats(const struct examination *x, size_t device, size_t step,
                                       struct nd_error *err)
{
    struct look *look = look_of(x, device, step);
    enum nd_dtype dtype = nd_capture_edge(x->plan->sources[device].capture, look->edge)->dtype;
    size_t n = x->plan->n_samples < MOST_FLOAT_SAMPLES ? x->plan->n_samples : MOST_FLOAT_SAMPLES;
    struct nd_array values = {0};
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < n && status == ND_OK; i++) {
        status = read_sample(x, device, step, dtype, i, &values, err);
        if (status == ND_OK)
            status = nd_look_keep_floats(&look->floats, values.x, values.n, n, err);
        nd_array_deinit(&values);
    }
    return status;
}

/* ---- what is said ---- */

static enum nd_status add(const struct examination *x, size_t device, size_t step,
                          const struct nd_finding *finding, const char *rival, struct nd_error *err)
{
    struct nd_explained_device *out = &x->devices[device];
    struct nd_explained_finding *grown = realloc(out->findings, (out->n_findings + 1) * sizeof *grown);
    if (grown == NULL)
        return nd_fail_memory(err);
    out->findings = grown;
    grown[out->n_findings] = (struct nd_explained_finding){.step = step,
                                                           .fault = {.kind = nd_fault_name(finding->kind),
                                                                     .text = nd_strdup(finding->text),
                                                                     .channel = finding->channel,
                                                                     .amount = finding->amount,
                                                                     .explained = finding->explained,
                                                                     .rival = rival}};
    if (grown[out->n_findings].fault.text == NULL)
        return nd_fail_memory(err);
    out->n_findings++;
    return ND_OK;
}

static enum nd_status add_diagnosis(const struct examination *x, size_t device, size_t step,
                                    const struct nd_diagnosis *diagnosis, struct nd_error *err)
{
    if (!diagnosis->is_found)
        return ND_OK;
    const char *rival = diagnosis->n_rivals > 0 ? nd_fault_name(diagnosis->rivals[0].kind) : NULL;
    return add(x, device, step, &diagnosis->best, rival, err);
}

static struct nd_finding finding_of(enum nd_fault_kind kind, double amount, double explained)
{
    return (struct nd_finding){
        .kind = kind, .channel = SIZE_MAX, .axis = -1, .amount = amount, .explained = explained};
}

/* Codes of another type may well have a zero point of their own. */
static enum nd_status say_encoding(const struct examination *x, size_t device, size_t step,
                                   struct nd_error *err)
{
    size_t e = look_of(x, device, step)->edge;
    const struct nd_edge *model = nd_plan_edge(x->plan, step);
    if (e == SIZE_MAX)
        return ND_OK;
    const struct nd_edge *captured = nd_capture_edge(x->plan->sources[device].capture, e);
    struct nd_diagnosis diagnosis = {0};
    if (captured->dtype == model->dtype || nd_dtype_is_float(captured->dtype))
        nd_diagnose_encoding(&model->quant, &captured->quant, &diagnosis);
    return add_diagnosis(x, device, step, &diagnosis, err);
}

static enum nd_status say_type(const struct examination *x, size_t device, size_t step, struct nd_error *err)
{
    const struct look *look = look_of(x, device, step);
    const struct nd_code_look *codes = &look->codes;
    struct nd_finding f =
        finding_of(ND_FAULT_WRONG_TYPE, 0,
                   codes->n_signed > 0 ? (double)codes->n_signed_near / (double)codes->n_signed : 1);
    if (!nd_look_finds_wrong_type(codes))
        return ND_OK;
    snprintf(f.text, sizeof f.text,
             "called %s, but the bits are the model's %s; examined once it is relabelled",
             nd_dtype_name(nd_capture_edge(x->plan->sources[device].capture, look->edge)->dtype),
             nd_dtype_name(nd_plan_edge(x->plan, step)->dtype));
    return add(x, device, step, &f, NULL, err);
}

static enum nd_status say_saturation(const struct examination *x, size_t device, size_t step, int end,
                                     struct nd_error *err)
{
    const struct nd_code_look *codes = &look_of(x, device, step)->codes;
    struct nd_finding f = finding_of(ND_FAULT_SATURATION, end == ND_LOW_END ? codes->low : codes->high, NAN);
    if (!nd_look_finds_saturation(codes, end))
        return ND_OK;
    snprintf(f.text, sizeof f.text,
             "%.3g%% of its codes are %g, the end of the type; of the reference's %.3g%%",
             100 * (double)codes->at_end[end] / (double)codes->n, f.amount,
             100 * (double)codes->ref_at_end[end] / (double)codes->n);
    return add(x, device, step, &f, NULL, err);
}

/* The samples behind those that were looked at. */
static enum nd_status check_constant(const struct examination *x, size_t device, size_t step, bool *is_constant,
                                     struct nd_error *err)
{
    const struct look *look = look_of(x, device, step);
    struct nd_array values = {0};
    enum nd_status status = ND_OK;
    *is_constant = nd_look_finds_constant(&look->codes, nd_plan_edge(x->plan, step)->dtype);
    for (size_t i = x->n_samples; i < x->plan->n_samples && *is_constant && status == ND_OK; i++) {
        status = read_sample(x, device, step, nd_plan_edge(x->plan, step)->dtype, i, &values, err);
        for (size_t k = 0; status == ND_OK && k < values.n; k++)
            *is_constant = *is_constant && values.x[k] == look->codes.low;
        nd_array_deinit(&values);
    }
    return status;
}

static enum nd_status say_codes(const struct examination *x, size_t device, size_t step, struct nd_error *err)
{
    const struct nd_quant *quant = &nd_plan_edge(x->plan, step)->quant;
    const struct nd_code_look *codes = &look_of(x, device, step)->codes;
    bool is_constant;
    enum nd_status status = check_constant(x, device, step, &is_constant, err);
    if (status == ND_OK && is_constant) {
        bool is_zero = codes->low == 0 || (quant->n == 1 && codes->low == (double)quant->zero_point[0]);
        struct nd_finding f = finding_of(is_zero ? ND_FAULT_ALL_ZERO : ND_FAULT_CONSTANT, codes->low, NAN);
        snprintf(f.text, sizeof f.text, "every code of every sample is %g; the reference's are not one code",
                 codes->low);
        return add(x, device, step, &f, NULL, err);
    }
    for (int end = 0; end < ND_N_ENDS && status == ND_OK; end++)
        status = say_saturation(x, device, step, end, err);
    return status;
}

/* The first device before it whose floats stand for the same codes is the one to ask. */
static struct nd_diagnosis ask_others(const struct examination *x, size_t device, size_t step)
{
    struct nd_diagnosis diagnosis = {0};
    bool is_pair = false;
    for (size_t d = 0; d < device && !is_pair; d++) {
        if (look_of(x, d, step)->kind != LOOK_CODE_FLOATS)
            continue;
        nd_look_at_pair(&look_of(x, d, step)->floats, &look_of(x, device, step)->floats,
                        &nd_plan_edge(x->plan, step)->quant, &is_pair, &diagnosis);
        struct nd_finding *best = &diagnosis.best;
        if (diagnosis.is_found)
            snprintf(best->text, sizeof best->text,
                     "%zu floats are not those that %.60s has for the same code, by up to %.3g steps",
                     best->n_wrong, x->devices[d].uri, best->amount);
    }
    return diagnosis;
}

/* Edges of the same shape, the nearest first. */
static void add_others(const struct examination *x, size_t device, size_t step, struct nd_value_look *look)
{
    for (size_t s = step; s-- > 0 && look->n_others < ND_LOOK_OTHERS;) {
        const struct look *other = look_of(x, device, s);
        if (other->kind != LOOK_FLOATS || !nd_shape_equal(&x->plan->shapes[s], &x->plan->shapes[step]))
            continue;
        look->names[look->n_others] = x->plan->steps[s].name;
        look->others[look->n_others][0] = &x->floats[s];
        look->others[look->n_others++][1] = &other->floats;
    }
}

static bool is_grid(enum nd_fault_kind kind)
{
    return kind == ND_FAULT_FP16_GRID || kind == ND_FAULT_BF16_GRID;
}

static enum nd_status say_values(const struct examination *x, size_t device, size_t step, bool has_grid,
                                 struct nd_error *err)
{
    const struct look *look = look_of(x, device, step);
    struct nd_value_look values = {
        .n_samples = x->n_samples,
        .shape = x->plan->shapes[step],
        .dtype = nd_capture_edge(x->plan->sources[device].capture, look->edge)->dtype,
        .ref = &x->floats[step],
        .test = &look->floats,
    };
    struct nd_findings found;
    add_others(x, device, step, &values);
    enum nd_status status = nd_look_at_values(&values, &found, err);
    if (status != ND_OK)
        return status;
    for (size_t k = nd_values_skip_inherited(&x->histories[device], &found); k < found.n && status == ND_OK;
         k++)
        if (!has_grid || !is_grid(found.items[k].kind))
            status = add(x, device, step, &found.items[k], NULL, err);
    return status;
}

static enum nd_status say_floats(const struct examination *x, size_t device, size_t step, struct nd_error *err)
{
    const struct look *look = look_of(x, device, step);
    struct nd_diagnosis diagnosis = {0};
    if (look->kind == LOOK_FLOATS) {
        bool is_wide = is_wide_float(nd_capture_edge(x->plan->sources[device].capture, look->edge)->dtype);
        if (is_wide)
            nd_look_at_grid(&x->floats[step], &look->floats, &diagnosis);
        enum nd_status status = add_diagnosis(x, device, step, &diagnosis, err);
        return status == ND_OK ? say_values(x, device, step, diagnosis.is_found, err) : status;
    }
    diagnosis = ask_others(x, device, step);
    if (!diagnosis.is_found)
        nd_diagnose_floats(look->floats.x, look->floats.n, &nd_plan_edge(x->plan, step)->quant,
                                 &diagnosis);
    return add_diagnosis(x, device, step, &diagnosis, err);
}

static enum nd_status say(const struct examination *x, size_t device, size_t step, struct nd_error *err)
{
    const struct look *look = look_of(x, device, step);
    switch (look->kind) {
    case LOOK_CODES:
        return say_codes(x, device, step, err);
    case LOOK_OTHER_SIGN:
        return say_type(x, device, step, err);
    case LOOK_CODE_FLOATS:
    case LOOK_FLOATS:
        return say_floats(x, device, step, err);
    case LOOK_NOT:
        break;
    }
    return ND_OK;
}

/* ---- all of it ---- */

static enum nd_status look_at_all(struct examination *x, struct nd_error *err)
{
    const struct nd_plan *plan = x->plan;
    enum nd_status status = ND_OK;
    bool is_needed = false;
    for (size_t d = 0; d < plan->n_devices && status == ND_OK; d++)
        for (size_t s = 0; s < plan->n_steps && status == ND_OK; s++) {
            find_look(x, d, s);
            enum look_kind kind = look_of(x, d, s)->kind;
            is_needed = is_needed || (kind != LOOK_NOT && kind != LOOK_CODE_FLOATS);
            if (kind == LOOK_CODE_FLOATS)
                status = read_code_floats(x, d, s, err);
        }
    return status == ND_OK && is_needed ? look_beside_reference(x, err) : status;
}

enum nd_status nd_explain_examine_captures(const struct nd_plan *plan, struct nd_explained_device *devices,
                                           struct nd_error *err)
{
    size_t n_looks;
    struct examination x = {.plan = plan, .devices = devices};
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
            status = say_encoding(&x, d, s, err);
            if (status == ND_OK)
                status = say(&x, d, s, err);
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
