/* What is said of the tensors of a capture, after all of them have been looked at. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "explain/findings/findings_internal.h"

static enum nd_status add(const struct nd_examination *x, size_t device, size_t step,
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

static enum nd_status add_diagnosis(const struct nd_examination *x, size_t device, size_t step,
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
static enum nd_status say_encoding(const struct nd_examination *x, size_t device, size_t step,
                                   struct nd_error *err)
{
    size_t e = nd_look_of(x, device, step)->place.edge;
    const struct nd_edge *model = nd_plan_edge(x->plan, step);
    if (e == SIZE_MAX)
        return ND_OK;
    const struct nd_edge *captured = nd_capture_edge(x->plan->sources[device].capture, e);
    struct nd_diagnosis diagnosis = {0};
    if (captured->dtype == model->dtype || nd_dtype_is_float(captured->dtype))
        nd_diagnose_encoding(&model->quant, &captured->quant, &diagnosis);
    return add_diagnosis(x, device, step, &diagnosis, err);
}

static enum nd_status say_type(const struct nd_examination *x, size_t device, size_t step, struct nd_error *err)
{
    const struct nd_look *look = nd_look_of(x, device, step);
    const struct nd_code_look *codes = &look->codes;
    struct nd_finding f =
        finding_of(ND_FAULT_WRONG_TYPE, 0,
                   codes->n_signed > 0 ? (double)codes->n_signed_near / (double)codes->n_signed : 1);
    if (!nd_look_finds_wrong_type(codes))
        return ND_OK;
    snprintf(f.text, sizeof f.text,
             "the capture calls it %s, but the bits are the model's %s; explain examines it after the type is "
             "corrected",
             nd_dtype_name(nd_capture_edge(x->plan->sources[device].capture, look->place.edge)->dtype),
             nd_dtype_name(nd_plan_edge(x->plan, step)->dtype));
    return add(x, device, step, &f, NULL, err);
}

static enum nd_status say_saturation(const struct nd_examination *x, size_t device, size_t step, int end,
                                     struct nd_error *err)
{
    const struct nd_code_look *codes = &nd_look_of(x, device, step)->codes;
    struct nd_finding f = finding_of(ND_FAULT_SATURATION, end == ND_LOW_END ? codes->low : codes->high, NAN);
    if (!nd_look_finds_saturation(codes, end))
        return ND_OK;
    snprintf(f.text, sizeof f.text, "%.3g%% of the values are %g, the end of the type; in the reference %.3g%%",
             100 * (double)codes->at_end[end] / (double)codes->n, f.amount,
             100 * (double)codes->ref_at_end[end] / (double)codes->n);
    return add(x, device, step, &f, NULL, err);
}

/* The samples behind those that were looked at. */
static enum nd_status check_constant(const struct nd_examination *x, size_t device, size_t step,
                                     bool *is_constant, struct nd_error *err)
{
    const struct nd_look *look = nd_look_of(x, device, step);
    struct nd_array values = {0};
    enum nd_status status = ND_OK;
    *is_constant = nd_look_finds_constant(&look->codes, nd_plan_edge(x->plan, step)->dtype);
    for (size_t i = x->n_samples; i < x->plan->n_samples && *is_constant && status == ND_OK; i++) {
        status = nd_read_tensor(&look->place, i, nd_plan_edge(x->plan, step)->dtype, &values, err);
        for (size_t k = 0; status == ND_OK && k < values.n; k++)
            *is_constant = *is_constant && values.x[k] == look->codes.low;
        nd_array_deinit(&values);
    }
    return status;
}

static enum nd_status say_codes(const struct nd_examination *x, size_t device, size_t step,
                                struct nd_error *err)
{
    const struct nd_quant *quant = &nd_plan_edge(x->plan, step)->quant;
    const struct nd_code_look *codes = &nd_look_of(x, device, step)->codes;
    bool is_constant;
    enum nd_status status = check_constant(x, device, step, &is_constant, err);
    if (status == ND_OK && is_constant) {
        bool is_zero = codes->low == 0 || (quant->n == 1 && codes->low == (double)quant->zero_point[0]);
        struct nd_finding f = finding_of(is_zero ? ND_FAULT_ALL_ZERO : ND_FAULT_CONSTANT, codes->low, NAN);
        snprintf(f.text, sizeof f.text, "every value of every sample is %g; those of the reference differ",
                 codes->low);
        return add(x, device, step, &f, NULL, err);
    }
    for (int end = 0; end < ND_N_ENDS && status == ND_OK; end++)
        status = say_saturation(x, device, step, end, err);
    return status;
}

/* The first device before it whose floats stand for the same codes is the one to ask. */
static struct nd_diagnosis ask_others(const struct nd_examination *x, size_t device, size_t step)
{
    struct nd_diagnosis diagnosis = {0};
    bool is_pair = false;
    for (size_t d = 0; d < device && !is_pair; d++) {
        if (nd_look_of(x, d, step)->kind != ND_LOOK_AS_CODE_FLOATS)
            continue;
        nd_look_at_pair(&nd_look_of(x, d, step)->floats, &nd_look_of(x, device, step)->floats,
                        &nd_plan_edge(x->plan, step)->quant, &is_pair, &diagnosis);
        struct nd_finding *best = &diagnosis.best;
        if (diagnosis.is_found)
            snprintf(best->text, sizeof best->text,
                     "%zu floats differ from those of %.60s for the same quantised value, by up to %.3g LSB",
                     best->n_wrong, x->devices[d].label, best->amount);
    }
    return diagnosis;
}

/* Edges of the same shape, the nearest first. */
static void add_others(const struct nd_examination *x, size_t device, size_t step, struct nd_value_look *look)
{
    for (size_t s = step; s-- > 0 && look->n_others < ND_LOOK_OTHERS;) {
        const struct nd_look *other = nd_look_of(x, device, s);
        if (other->kind != ND_LOOK_AS_FLOATS || !nd_shape_equal(&x->plan->shapes[s], &x->plan->shapes[step]))
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

static enum nd_status say_values(const struct nd_examination *x, size_t device, size_t step, bool has_grid,
                                 struct nd_error *err)
{
    const struct nd_look *look = nd_look_of(x, device, step);
    struct nd_value_look values = {
        .n_samples = x->n_samples,
        .shape = x->plan->shapes[step],
        .dtype = nd_capture_edge(x->plan->sources[device].capture, look->place.edge)->dtype,
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

/* Types that are narrow by themselves show their grid in their name. */
static bool is_wide_float(enum nd_dtype dtype)
{
    return dtype == ND_DTYPE_F32 || dtype == ND_DTYPE_F64;
}

static enum nd_status say_floats(const struct nd_examination *x, size_t device, size_t step,
                                 struct nd_error *err)
{
    const struct nd_look *look = nd_look_of(x, device, step);
    struct nd_diagnosis diagnosis = {0};
    if (look->kind == ND_LOOK_AS_FLOATS) {
        bool is_wide =
            is_wide_float(nd_capture_edge(x->plan->sources[device].capture, look->place.edge)->dtype);
        if (is_wide)
            nd_look_at_grid(&x->floats[step], &look->floats, &diagnosis);
        enum nd_status status = add_diagnosis(x, device, step, &diagnosis, err);
        return status == ND_OK ? say_values(x, device, step, diagnosis.is_found, err) : status;
    }
    diagnosis = ask_others(x, device, step);
    if (!diagnosis.is_found)
        nd_diagnose_floats(look->floats.x, look->floats.n, &nd_plan_edge(x->plan, step)->quant, &diagnosis);
    return add_diagnosis(x, device, step, &diagnosis, err);
}

enum nd_status nd_look_say(const struct nd_examination *x, size_t device, size_t step, struct nd_error *err)
{
    enum nd_status status = say_encoding(x, device, step, err);
    if (status != ND_OK)
        return status;
    switch (nd_look_of(x, device, step)->kind) {
    case ND_LOOK_AS_CODES:
        return say_codes(x, device, step, err);
    case ND_LOOK_AS_OTHER_SIGN:
        return say_type(x, device, step, err);
    case ND_LOOK_AS_CODE_FLOATS:
    case ND_LOOK_AS_FLOATS:
        return say_floats(x, device, step, err);
    case ND_LOOK_AS_NOT:
        break;
    }
    return ND_OK;
}
