/* Floats of a tensor without quantised values beside the reference's, as whole tensors: diagnosis/diagnosis.h.
 */
#include "explain/findings/findings.h"

#include <math.h>
#include <stdio.h>

#include "arithmetic/exact/linear/rounding.h"
#include "arithmetic/operators/kernels/gemm_kernels.h"
#include "core/memory.h"
#include "core/tensors/scales.h"
#include "explain/diagnosis/diagnosis.h"
#include "explain/plan/replay.h"
#include "explain/stages.h"

/* The quantisation that a capture states against the model's. */

/* Scales that went through decimal text may be off in their last digits. */
static const double scale_tolerance = 1e-6;

static size_t at(const struct nd_quant *quant, size_t channel)
{
    return quant->n == 1 ? 0 : channel;
}

static double scale_ratio(const struct nd_quant *model, const struct nd_quant *capture, size_t c)
{
    double ratio = (double)capture->scale[at(capture, c)] / (double)model->scale[at(model, c)];
    return fabs(ratio - 1) <= scale_tolerance ? 1 : ratio;
}

static double difference(const struct nd_quant *model, const struct nd_quant *capture, size_t c)
{
    return (double)capture->zero_point[at(capture, c)] - (double)model->zero_point[at(model, c)];
}

struct channels {
    size_t n, n_scales, n_points; /* that differ */
    size_t scale, point;          /* the first of them */
    bool is_one_ratio, is_one_difference;
};

static struct channels look(const struct nd_quant *model, const struct nd_quant *capture)
{
    struct channels x = {.n = model->n > capture->n ? model->n : capture->n};
    x.is_one_ratio = x.is_one_difference = true;
    for (size_t c = 0; c < x.n; c++) {
        double ratio = scale_ratio(model, capture, c), shift = difference(model, capture, c);
        if (ratio != 1 && x.n_scales++ == 0)
            x.scale = c;
        if (shift != 0 && x.n_points++ == 0)
            x.point = c;
    }
    for (size_t c = 0; c < x.n; c++) {
        double off = scale_ratio(model, capture, c) / scale_ratio(model, capture, x.scale);
        x.is_one_ratio = x.is_one_ratio && fabs(off - 1) <= scale_tolerance;
        x.is_one_difference =
            x.is_one_difference && difference(model, capture, c) == difference(model, capture, x.point);
    }
    return x;
}

static void add_scale(const struct nd_quant *model, const struct nd_quant *capture, const struct channels *x,
                      struct nd_diagnosis *out)
{
    bool is_whole = x->n_scales == x->n && x->is_one_ratio;
    struct nd_finding f = {.kind = is_whole ? ND_FAULT_SCALE : ND_FAULT_CHANNEL_SCALE,
                           .channel = is_whole ? SIZE_MAX : x->scale,
                           .axis = is_whole       ? -1
                                   : model->n > 1 ? model->axis
                                                  : capture->axis,
                           .amount = scale_ratio(model, capture, x->scale),
                           .explained = 1,
                           .n_wrong = x->n_scales};
    snprintf(f.text, sizeof f.text, "the scale is %.6g where the model says %.6g",
             (double)capture->scale[at(capture, x->scale)], (double)model->scale[at(model, x->scale)]);
    nd_diagnosis_add(out, &f);
}

static void add_point(const struct nd_quant *model, const struct nd_quant *capture, const struct channels *x,
                      struct nd_diagnosis *out)
{
    bool is_whole = x->n_points == x->n && x->is_one_difference;
    double was = (double)model->zero_point[at(model, x->point)], shift = difference(model, capture, x->point);
    struct nd_finding f = {.kind = is_whole ? ND_FAULT_ZERO_POINT : ND_FAULT_CHANNEL_ZERO_POINT,
                           .channel = is_whole ? SIZE_MAX : x->point,
                           .axis = is_whole       ? -1
                                   : model->n > 1 ? model->axis
                                                  : capture->axis,
                           .amount = shift,
                           .explained = 1,
                           .n_wrong = x->n_points};
    snprintf(f.text, sizeof f.text, "the zero point is %g where the model says %g", was + shift, was);
    /* -128 for 128 is both; the sign is the commoner slip. */
    bool is_sign = was != 0 && shift == -2 * was, is_256 = fabs(shift) == 256;
    if (is_sign || is_256)
        f.kind = is_sign ? ND_FAULT_OFFSET_SIGN : ND_FAULT_OFFSET_256;
    nd_diagnosis_add(out, &f);
    f.kind = ND_FAULT_OFFSET_256;
    if (is_sign && is_256)
        nd_diagnosis_add(out, &f);
}

/* One slip, as when the encodings of another tensor were taken. */
static void add_both(const struct nd_quant *model, const struct nd_quant *capture, const struct channels *x,
                     struct nd_diagnosis *out)
{
    double was = (double)model->zero_point[at(model, x->point)];
    struct nd_finding f = {.kind = ND_FAULT_ENCODING,
                           .channel = SIZE_MAX,
                           .axis = -1,
                           .amount = scale_ratio(model, capture, x->scale),
                           .explained = 1,
                           .n_wrong = x->n};
    snprintf(f.text, sizeof f.text, "the scale is %.6g and the zero point %g where the model says %.6g and %g",
             (double)capture->scale[at(capture, x->scale)], was + difference(model, capture, x->point),
             (double)model->scale[at(model, x->scale)], was);
    nd_diagnosis_add(out, &f);
}

void nd_diagnose_encoding(const struct nd_quant *model, const struct nd_quant *capture,
                          struct nd_diagnosis *out)
{
    *out = (struct nd_diagnosis){0};
    bool is_same_length = model->n == capture->n || model->n == 1 || capture->n == 1;
    if (model->n == 0 || capture->n == 0 || !is_same_length)
        return;
    struct channels x = look(model, capture);
    if (x.n_scales == x.n && x.is_one_ratio && x.n_points == x.n && x.is_one_difference) {
        add_both(model, capture, &x, out);
        return;
    }
    if (x.n_scales > 0)
        add_scale(model, capture, &x, out);
    if (x.n_points > 0)
        add_point(model, capture, &x, out);
}

/* Doubles of floats that were kept, appended to x. */
static double *widen(const struct nd_float_look *look, double *x)
{
    for (size_t i = 0; i < look->n; i++)
        x[i] = (double)look->x[i];
    return x;
}

static size_t elements_of(const struct nd_shape *shape)
{
    size_t n = 1;
    for (int k = 0; k < shape->rank; k++)
        n *= (size_t)shape->dims[k];
    return n;
}

/* Everything of the diagnosis of a whole tensor (diagnosis/diagnosis.h). Nothing is found where the two sides
 * were not kept alike. ND_ERR_MEMORY. */
static enum nd_status nd_look_at_values(const struct nd_value_look *look, struct nd_findings *out,
                                        struct nd_error *err)
{
    size_t n = look->ref->n, n_used = 2;
    struct nd_other others[ND_LOOK_OTHERS];
    *out = (struct nd_findings){0};
    if (n == 0 || n != look->test->n || look->n_samples == 0 || n % look->n_samples != 0)
        return ND_OK;
    ND_FREED double *x = nd_calloc((2 + 2 * look->n_others) * n, sizeof *x);
    ND_TRY_MEMORY(x != NULL, err);
    struct nd_evidence values = {.n_samples = look->n_samples,
                                 .n = n / look->n_samples,
                                 .shape = look->shape,
                                 .dtype = look->dtype,
                                 .expected = widen(look->ref, x),
                                 .captured = widen(look->test, x + n),
                                 .others = others};
    /* Some elements were left out: what is left has no lines. */
    if (elements_of(&look->shape) != values.n)
        values.shape.rank = -1;
    for (size_t k = 0; k < look->n_others; k++) {
        if (look->others[k][0]->n != n || look->others[k][1]->n != n)
            continue;
        others[values.n_others++] = (struct nd_other){look->names[k], widen(look->others[k][0], x + n_used * n),
                                                      widen(look->others[k][1], x + (n_used + 1) * n)};
        n_used += 2;
    }
    return nd_diagnose_tensor(&values, out, err);
}

/* Floats as a capture holds them: science 2.3. */

enum nd_status nd_look_keep_floats(struct nd_float_look *look, const double *x, size_t n, size_t n_samples,
                                   struct nd_error *err)
{
    size_t room = ND_LOOK_FLOATS / n_samples > 0 ? ND_LOOK_FLOATS / n_samples : 1;
    size_t stride = n > room ? (n + room - 1) / room : 1;
    if (look->x == NULL)
        look->x = nd_calloc(ND_LOOK_FLOATS, sizeof *look->x);
    ND_TRY_MEMORY(look->x != NULL, err);
    for (size_t i = 0; i < n && look->n < ND_LOOK_FLOATS; i += stride)
        look->x[look->n++] = (float)x[i];
    return ND_OK;
}

static bool says(const struct nd_diagnosis *diagnosis, enum nd_fault_kind kind)
{
    bool is_said = diagnosis->is_found && diagnosis->best.kind == kind;
    for (size_t k = 0; k < diagnosis->n_rivals; k++)
        is_said = is_said || diagnosis->rivals[k].kind == kind;
    return is_said;
}

/* What only moves the probe's inputs, or counts, is on every grid by itself. */
void nd_look_at_grid(const struct nd_float_look *ref, const struct nd_float_look *test,
                     struct nd_diagnosis *out)
{
    struct nd_diagnosis expected;
    nd_diagnose_floats(ref->x, ref->n, NULL, &expected);
    nd_diagnose_floats(test->x, test->n, NULL, out);
    if (out->is_found && says(&expected, out->best.kind))
        out->is_found = false;
}

/* What was computed in floats is anywhere between quantised values; what was scaled a little otherwise stays
 * near them. */
static bool is_near_qvalues(const struct nd_float_look *look, const struct nd_quant *quant)
{
    for (size_t i = 0; i < look->n; i++) {
        double q = (double)look->x[i] / (double)quant->scale[0];
        if (isfinite(q) && fabs(q - rint(q)) > 1.0 / 8)
            return false;
    }
    return true;
}

void nd_look_at_pair(const struct nd_float_look *ref, const struct nd_float_look *test,
                     const struct nd_quant *quant, bool *is_pair, struct nd_diagnosis *out)
{
    size_t n = ref->n < test->n ? ref->n : test->n;
    *out = (struct nd_diagnosis){0};
    *is_pair = is_near_qvalues(ref, quant) && is_near_qvalues(test, quant);
    if (!*is_pair)
        return;
    nd_diagnose_same_qvalues(ref->x, test->x, n, quant, out);
    for (size_t i = 0; i < n && !out->is_found; i++)
        *is_pair = *is_pair && (ref->x[i] == test->x[i] || (isnan(ref->x[i]) && isnan(test->x[i])));
}

/* Quantised values as a capture labels them. Healthy devices differ from the reference by some steps, so
 * whatever could be that says nothing: only what is far from the reference counts. */

/* Values. Chosen: fewer are no evidence. */
enum { MIN_QVALUES = 8 };

/* Saturation: the share of a tensor's values that lie at an end of the type while the reference is well inside,
 * and how many times as many as the reference has there. Chosen. With these and the next two, none of 18
 * captures without a fault has a finding: nine models of golden/models and golden/fallback on gen1 and gen3 of
 * the simulator (QAIRT 2.51.0, probe uniform:32:7, of ViT uniform:12:7). */
static const double min_share = 0.01, min_ratio = 5;
/* Wrong type: the share of a tensor's values that must be about the reference's when they are read as the
 * model's type. Chosen. */
static const double max_agree = 0.9;
/* LSB by which a healthy device may be off: at least the first, and a share of the type's range. Chosen. */
static const double min_slack = 3, slack_of_range = 1.0 / 64;

static double slack(double low, double high)
{
    return fmax(min_slack, floor((high - low) * slack_of_range));
}

static double min_of(double a, double b)
{
    return b < a ? b : a;
}

static double greatest_of(double a, double b)
{
    return b > a ? b : a;
}

static void widen_of_findings_qvalues(struct nd_qvalue_look *look, const double *ref, const double *qvalues,
                                      size_t n)
{
    double low, high, ref_low, ref_high;
    nd_gemm_kernels()->range(qvalues, n, &low, &high);
    nd_gemm_kernels()->range(ref, n, &ref_low, &ref_high);
    bool is_first = look->n == 0;
    look->low = is_first ? low : min_of(look->low, low);
    look->high = is_first ? high : greatest_of(look->high, high);
    look->ref_low = is_first ? ref_low : min_of(look->ref_low, ref_low);
    look->ref_high = is_first ? ref_high : greatest_of(look->ref_high, ref_high);
}

void nd_look_at_qvalues(struct nd_qvalue_look *look, enum nd_dtype dtype, const double *ref,
                        const double *qvalues, size_t n)
{
    const struct nd_pairs pairs = {qvalues, ref, n};
    struct nd_qvalue_ends ends;
    struct nd_ends_counted found;
    nd_qvalue_range(dtype, &ends.low, &ends.high);
    ends.near = slack(ends.low, ends.high);
    /* Of an unsigned type the upper half is negative when read as signed, and the reverse. */
    bool is_type_signed = ends.low < 0;
    ends.min_signed = is_type_signed ? -HUGE_VAL : (ends.high - ends.low + 1) / 2;
    ends.max_signed = is_type_signed ? 0 : HUGE_VAL;
    nd_gemm_kernels()->count_ends(&ends, &pairs, &found);
    look->n_near += found.n_near;
    look->n_signed += found.n_signed;
    look->n_signed_near += found.n_signed_near;
    for (int end = 0; end < ND_N_ENDS; end++) {
        look->at_end[end] += found.at_end[end];
        look->ref_at_end[end] += found.ref_at_end[end];
        look->far[end] += found.far[end];
    }
    if (n > 0)
        widen_of_findings_qvalues(look, ref, qvalues, n);
    look->n += n;
}

/* Where the reference is one quantised value all over, agreement means little. */
bool nd_look_finds_wrong_type(const struct nd_qvalue_look *look)
{
    return look->n >= MIN_QVALUES && look->ref_high > look->ref_low &&
           (double)look->n_near >= max_agree * (double)look->n &&
           (double)look->n_signed_near >= max_agree * (double)look->n_signed;
}

bool nd_look_finds_saturation(const struct nd_qvalue_look *look, int end)
{
    return look->far[end] >= MIN_QVALUES && (double)look->far[end] >= min_share * (double)look->n &&
           (double)look->at_end[end] >= min_ratio * (double)look->ref_at_end[end];
}

/* A reference that itself stays within a few steps of one quantised value may be that quantised value on a
 * healthy device. */
bool nd_look_finds_constant(const struct nd_qvalue_look *look, enum nd_dtype dtype)
{
    double low, high;
    nd_qvalue_range(dtype, &low, &high);
    return look->n >= MIN_QVALUES && look->low == look->high &&
           look->ref_high - look->ref_low > slack(low, high);
}

/* What is said of the tensors of a capture, after all of them have been looked at. */

static enum nd_status add(const struct nd_examination *x, size_t device, size_t step,
                          const struct nd_finding *finding, const char *rival, struct nd_error *err)
{
    struct nd_explained_device *out = &x->devices[device];
    struct nd_explained_finding *grown = realloc(out->findings, (out->n_findings + 1) * sizeof *grown);
    ND_TRY_MEMORY(grown != NULL, err);
    out->findings = grown;
    grown[out->n_findings] = (struct nd_explained_finding){.step = step,
                                                           .fault = {.kind = nd_fault_name(finding->kind),
                                                                     .text = nd_strdup(finding->text),
                                                                     .channel = finding->channel,
                                                                     .amount = finding->amount,
                                                                     .explained = finding->explained,
                                                                     .rival = rival}};
    ND_TRY_MEMORY(grown[out->n_findings].fault.text != NULL, err);
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

/* Quantised values of another type may well have a zero point of their own. */
static enum nd_status say_encoding(const struct nd_examination *x, size_t device, size_t step,
                                   struct nd_error *err)
{
    size_t e = nd_look_of(x, device, step)->place.tensor;
    const struct nd_tensor *model = nd_plan_tensor(x->plan, step);
    if (e == SIZE_MAX)
        return ND_OK;
    const struct nd_tensor *captured = nd_capture_tensor(x->plan->sources[device].capture, e);
    struct nd_diagnosis diagnosis = {0};
    if (captured->dtype == model->dtype || nd_dtype_is_float(captured->dtype))
        nd_diagnose_encoding(&model->quant, &captured->quant, &diagnosis);
    return add_diagnosis(x, device, step, &diagnosis, err);
}

static enum nd_status say_type(const struct nd_examination *x, size_t device, size_t step, struct nd_error *err)
{
    const struct nd_finding_look *look = nd_look_of(x, device, step);
    const struct nd_qvalue_look *qvalues = &look->qvalues;
    struct nd_finding f =
        finding_of(ND_FAULT_WRONG_TYPE, 0,
                   qvalues->n_signed > 0 ? (double)qvalues->n_signed_near / (double)qvalues->n_signed : 1);
    if (!nd_look_finds_wrong_type(qvalues))
        return ND_OK;
    snprintf(f.text, sizeof f.text,
             "the capture calls it %s, but the bits are the model's %s; explain examines it after the type is "
             "corrected",
             nd_dtype_name(nd_capture_tensor(x->plan->sources[device].capture, look->place.tensor)->dtype),
             nd_dtype_name(nd_plan_tensor(x->plan, step)->dtype));
    return add(x, device, step, &f, NULL, err);
}

static enum nd_status say_saturation(const struct nd_examination *x, size_t device, size_t step, int end,
                                     struct nd_error *err)
{
    const struct nd_qvalue_look *qvalues = &nd_look_of(x, device, step)->qvalues;
    struct nd_finding f =
        finding_of(ND_FAULT_SATURATION, end == ND_LOW_END ? qvalues->low : qvalues->high, NAN);
    if (!nd_look_finds_saturation(qvalues, end))
        return ND_OK;
    snprintf(f.text, sizeof f.text, "%.3g%% of the values are %g, the end of the type; in the reference %.3g%%",
             100 * (double)qvalues->at_end[end] / (double)qvalues->n, f.amount,
             100 * (double)qvalues->ref_at_end[end] / (double)qvalues->n);
    return add(x, device, step, &f, NULL, err);
}

/* The samples behind those that were looked at. */
static enum nd_status check_constant(const struct nd_examination *x, size_t device, size_t step,
                                     bool *is_constant, struct nd_error *err)
{
    const struct nd_finding_look *look = nd_look_of(x, device, step);
    *is_constant = nd_look_finds_constant(&look->qvalues, nd_plan_tensor(x->plan, step)->dtype);
    for (size_t i = x->n_samples; i < x->plan->n_samples && *is_constant; i++) {
        ND_CLEANUP(nd_array_deinit) struct nd_array values = {0};
        ND_TRY(nd_read_tensor(&look->place, i, nd_plan_tensor(x->plan, step)->dtype, &values, err));
        for (size_t k = 0; k < values.n; k++)
            *is_constant = *is_constant && values.x[k] == look->qvalues.low;
    }
    return ND_OK;
}

static enum nd_status say_qvalues(const struct nd_examination *x, size_t device, size_t step,
                                  struct nd_error *err)
{
    const struct nd_quant *quant = &nd_plan_tensor(x->plan, step)->quant;
    const struct nd_qvalue_look *qvalues = &nd_look_of(x, device, step)->qvalues;
    bool is_constant;
    ND_TRY(check_constant(x, device, step, &is_constant, err));
    if (is_constant) {
        bool is_zero = qvalues->low == 0 || (quant->n == 1 && qvalues->low == (double)quant->zero_point[0]);
        struct nd_finding f = finding_of(is_zero ? ND_FAULT_ALL_ZERO : ND_FAULT_CONSTANT, qvalues->low, NAN);
        snprintf(f.text, sizeof f.text, "every value of every sample is %g; those of the reference differ",
                 qvalues->low);
        return add(x, device, step, &f, NULL, err);
    }
    for (int end = 0; end < ND_N_ENDS; end++)
        ND_TRY(say_saturation(x, device, step, end, err));
    return ND_OK;
}

/* The first device before it whose floats stand for the same quantised values is the one to ask. */
static struct nd_diagnosis ask_others(const struct nd_examination *x, size_t device, size_t step)
{
    struct nd_diagnosis diagnosis = {0};
    bool is_pair = false;
    for (size_t d = 0; d < device && !is_pair; d++) {
        if (nd_look_of(x, d, step)->kind != ND_LOOK_AS_QVALUE_FLOATS)
            continue;
        nd_look_at_pair(&nd_look_of(x, d, step)->floats, &nd_look_of(x, device, step)->floats,
                        &nd_plan_tensor(x->plan, step)->quant, &is_pair, &diagnosis);
        struct nd_finding *best = &diagnosis.best;
        if (diagnosis.is_found)
            snprintf(best->text, sizeof best->text,
                     "%zu floats differ from those of %.60s for the same quantised value, by up to %.3g LSB",
                     best->n_wrong, x->devices[d].label, best->amount);
    }
    return diagnosis;
}

static bool is_grid(enum nd_fault_kind kind)
{
    return kind == ND_FAULT_FP16_GRID || kind == ND_FAULT_BF16_GRID;
}

static enum nd_status say_values(const struct nd_examination *x, size_t device, size_t step, bool has_grid,
                                 struct nd_error *err)
{
    const struct nd_finding_look *look = nd_look_of(x, device, step);
    struct nd_value_look values = {
        .n_samples = x->n_samples,
        .shape = x->plan->shapes[step],
        .dtype = nd_capture_tensor(x->plan->sources[device].capture, look->place.tensor)->dtype,
        .ref = &x->floats[step],
        .test = &look->floats,
    };
    struct nd_findings found;
    /* Tensors of the same shape, the nearest first. */
    for (size_t s = step; s-- > 0 && values.n_others < ND_LOOK_OTHERS;) {
        const struct nd_finding_look *other = nd_look_of(x, device, s);
        if (other->kind != ND_LOOK_AS_FLOATS || !nd_shape_equal(&x->plan->shapes[s], &x->plan->shapes[step]))
            continue;
        values.names[values.n_others] = x->plan->steps[s].name;
        values.others[values.n_others][0] = &x->floats[s];
        values.others[values.n_others++][1] = &other->floats;
    }
    ND_TRY(nd_look_at_values(&values, &found, err));
    for (size_t k = nd_values_skip_passed_on(&x->histories[device], &found); k < found.n; k++)
        if (!has_grid || !is_grid(found.items[k].kind))
            ND_TRY(add(x, device, step, &found.items[k], NULL, err));
    return ND_OK;
}

/* Types that are narrow by themselves show their grid in their name. */
static bool is_wide_float(enum nd_dtype dtype)
{
    return dtype == ND_DTYPE_F32 || dtype == ND_DTYPE_F64;
}

static enum nd_status say_floats(const struct nd_examination *x, size_t device, size_t step,
                                 struct nd_error *err)
{
    const struct nd_finding_look *look = nd_look_of(x, device, step);
    struct nd_diagnosis diagnosis = {0};
    if (look->kind == ND_LOOK_AS_FLOATS) {
        bool is_wide =
            is_wide_float(nd_capture_tensor(x->plan->sources[device].capture, look->place.tensor)->dtype);
        if (is_wide)
            nd_look_at_grid(&x->floats[step], &look->floats, &diagnosis);
        ND_TRY(add_diagnosis(x, device, step, &diagnosis, err));
        return say_values(x, device, step, diagnosis.is_found, err);
    }
    diagnosis = ask_others(x, device, step);
    if (!diagnosis.is_found)
        nd_diagnose_floats(look->floats.x, look->floats.n, &nd_plan_tensor(x->plan, step)->quant, &diagnosis);
    return add_diagnosis(x, device, step, &diagnosis, err);
}

/* findings.c: adds to `findings` of the device what is said of the step, which all have looked at.
 * ND_ERR_MEMORY, and the errors of reading. */
static enum nd_status nd_look_say(const struct nd_examination *x, size_t device, size_t step,
                                  struct nd_error *err)
{
    ND_TRY(say_encoding(x, device, step, err));
    switch (nd_look_of(x, device, step)->kind) {
    case ND_LOOK_AS_QVALUES:
        return say_qvalues(x, device, step, err);
    case ND_LOOK_AS_OTHER_SIGN:
        return say_type(x, device, step, err);
    case ND_LOOK_AS_QVALUE_FLOATS:
    case ND_LOOK_AS_FLOATS:
        return say_floats(x, device, step, err);
    case ND_LOOK_AS_NOT:
        break;
    }
    return ND_OK;
}

/* Samples of floats that stand for codes: no reference is needed for those. */
enum { MAX_FLOAT_SAMPLES = 64 };

/* ---- what there is ---- */

/* 4-bit integers take whole bytes, but are no 8-bit ones. */
static bool is_other_sign(enum nd_dtype a, enum nd_dtype b)
{
    bool is_a_half = a == ND_DTYPE_U4 || a == ND_DTYPE_I4, is_b_half = b == ND_DTYPE_U4 || b == ND_DTYPE_I4;
    return nd_dtype_is_integer(a) && nd_dtype_is_integer(b) && is_a_half == is_b_half &&
           nd_dtype_size_bytes(a) == nd_dtype_size_bytes(b) &&
           nd_dtype_is_signed_integer(a) != nd_dtype_is_signed_integer(b);
}

static enum nd_look_kind kind_of(const struct nd_tensor *model, const struct nd_tensor *captured)
{
    bool is_qvalue = model->quant.n > 0 && nd_dtype_is_of_qvalues(model->dtype);
    if (is_qvalue && captured->dtype == model->dtype)
        return ND_LOOK_AS_QVALUES;
    if (is_qvalue && is_other_sign(captured->dtype, model->dtype))
        return ND_LOOK_AS_OTHER_SIGN;
    if (is_qvalue && model->quant.n == 1 && nd_dtype_is_float(captured->dtype))
        return ND_LOOK_AS_QVALUE_FLOATS;
    bool is_float = model->dtype == ND_DTYPE_NONE || nd_dtype_is_float(model->dtype);
    return is_float && model->quant.n == 0 && nd_dtype_is_float(captured->dtype) ? ND_LOOK_AS_FLOATS
                                                                                 : ND_LOOK_AS_NOT;
}

static void find_look(const struct nd_examination *x, size_t device, size_t step)
{
    const struct nd_plan_source *source = &x->plan->sources[device];
    const struct nd_tensor *wanted = nd_plan_tensor(x->plan, step);
    struct nd_finding_look *look = nd_look_of(x, device, step);
    look->place = (struct nd_probe_values){
        source->capture, source->probe,
        source->is_failed ? SIZE_MAX : nd_capture_find_tensor(source->capture, wanted->name)};
    if (look->place.tensor == SIZE_MAX)
        return;
    const struct nd_tensor *tensor = nd_capture_tensor(source->capture, look->place.tensor);
    if (nd_capture_has_outputs(source->capture, source->probe, look->place.tensor) &&
        nd_shape_equal(&tensor->shape, &x->plan->shapes[step]))
        look->kind = kind_of(wanted, tensor);
}

/* ---- beside the reference ---- */

/* The values of the sample at hand, which the plan may hold. */
static enum nd_status read_values(const struct nd_examination *x, size_t device, size_t step,
                                  enum nd_dtype dtype, struct nd_array *out, struct nd_error *err)
{
    const struct nd_probe_values *place = &nd_look_of(x, device, step)->place;
    const struct nd_plan_source *source = &x->plan->sources[device];
    const struct nd_plan_values tensor = {device, step};
    if (place->tensor != source->tensors[step])
        return nd_read_tensor(place, x->sample, dtype, out, err);
    ND_FREED unsigned char *raw = nd_tensor_room(source->sample_bytes[step]);
    ND_TRY(raw != NULL ? nd_plan_read(x->plan, &tensor, x->sample, 1, raw, err) : nd_fail_memory(err));
    ND_TRY(nd_array_make_room(out, dtype, &nd_capture_tensor(place->capture, place->tensor)->shape, err));
    nd_array_load(dtype, raw, out->n, out->x);
    return ND_OK;
}

static enum nd_status look_at(const struct nd_examination *x, size_t device, size_t step,
                              const struct nd_array *ref, struct nd_error *err)
{
    struct nd_finding_look *look = nd_look_of(x, device, step);
    bool is_qvalue = look->kind == ND_LOOK_AS_QVALUES || look->kind == ND_LOOK_AS_OTHER_SIGN;
    if (!is_qvalue && look->kind != ND_LOOK_AS_FLOATS)
        return ND_OK;
    ND_CLEANUP(nd_array_deinit) struct nd_array values = {0};
    enum nd_dtype dtype = is_qvalue
                              ? nd_plan_tensor(x->plan, step)->dtype
                              : nd_capture_tensor(x->plan->sources[device].capture, look->place.tensor)->dtype;
    ND_TRY(read_values(x, device, step, dtype, &values, err));
    if (is_qvalue && values.n == ref->n)
        nd_look_at_qvalues(&look->qvalues, dtype, ref->x, values.x, ref->n);
    if (!is_qvalue)
        ND_TRY(nd_look_keep_floats(&look->floats, values.x, values.n, x->n_samples, err));
    return ND_OK;
}

/* What was seen of a device that has the same quantised values is seen of this one, too. */
static bool take_over_look(const struct nd_examination *x, size_t device, size_t step)
{
    const struct nd_plan_source *source = &x->plan->sources[device], *same = &x->plan->sources[source->same_as];
    struct nd_finding_look *look = nd_look_of(x, device, step);
    const struct nd_finding_look *other = nd_look_of(x, source->same_as, step);
    bool is_same = source->same_as != device && look->kind == other->kind && look->kind != ND_LOOK_AS_FLOATS &&
                   look->place.tensor == source->tensors[step] && other->place.tensor == same->tensors[step];
    if (is_same)
        look->qvalues = other->qvalues;
    return is_same;
}

static enum nd_status found(void *context, size_t tensor, const struct nd_array *values,
                            enum nd_exact_method method, struct nd_error *err)
{
    (void)method;
    struct nd_examination *x = context;
    size_t step = x->plan->step_of_tensor[tensor];
    bool is_float = false;
    for (size_t d = 0; d < x->plan->n_devices && step != SIZE_MAX; d++) {
        is_float = is_float || nd_look_of(x, d, step)->kind == ND_LOOK_AS_FLOATS;
        if (!take_over_look(x, d, step))
            ND_TRY(look_at(x, d, step, values, err));
    }
    if (is_float)
        ND_TRY(nd_look_keep_floats(&x->floats[step], values->x, values->n, x->n_samples, err));
    return ND_OK;
}

static enum nd_status look_beside_reference(struct nd_examination *x, struct nd_error *err)
{
    const struct nd_plan *plan = x->plan;
    const struct nd_exact_options options = {.struct_size = sizeof options, .missed = nd_exact_let_go};
    const struct nd_plan_source *leader = &plan->sources[plan->leader];
    size_t n_inputs = nd_model_n_inputs(plan->model);
    ND_CLEANUP(nd_inputs_destroy) struct nd_array *inputs = NULL;
    ND_TRY(nd_inputs_create(plan->model, &inputs, err));
    for (x->sample = 0; x->sample < x->n_samples; x->sample++) {
        for (size_t i = 0; i < n_inputs; i++)
            ND_TRY(nd_read_input(&(struct nd_probe_values){leader->capture, leader->probe, plan->inputs[i]},
                                 x->sample, nd_model_input(plan->model, i)->dtype, &inputs[i], err));
        ND_TRY(nd_exact_graph_run(plan->graph, inputs, &options, found, x, err));
    }
    return ND_OK;
}

static enum nd_status read_qvalue_floats(const struct nd_examination *x, size_t device, size_t step,
                                         struct nd_error *err)
{
    struct nd_finding_look *look = nd_look_of(x, device, step);
    enum nd_dtype dtype = nd_capture_tensor(x->plan->sources[device].capture, look->place.tensor)->dtype;
    size_t n = x->plan->n_samples < MAX_FLOAT_SAMPLES ? x->plan->n_samples : MAX_FLOAT_SAMPLES;
    for (size_t i = 0; i < n; i++) {
        ND_CLEANUP(nd_array_deinit) struct nd_array values = {0};
        ND_TRY(nd_read_tensor(&look->place, i, dtype, &values, err));
        ND_TRY(nd_look_keep_floats(&look->floats, values.x, values.n, n, err));
    }
    return ND_OK;
}

/* ---- all of it ---- */

static enum nd_status look_at_all(struct nd_examination *x, struct nd_error *err)
{
    const struct nd_plan *plan = x->plan;
    bool is_needed = false;
    for (size_t d = 0; d < plan->n_devices; d++)
        for (size_t s = 0; s < plan->n_steps; s++) {
            find_look(x, d, s);
            enum nd_look_kind kind = nd_look_of(x, d, s)->kind;
            is_needed = is_needed || (kind != ND_LOOK_AS_NOT && kind != ND_LOOK_AS_QVALUE_FLOATS);
            if (kind == ND_LOOK_AS_QVALUE_FLOATS)
                ND_TRY(read_qvalue_floats(x, d, s, err));
        }
    return is_needed ? look_beside_reference(x, err) : ND_OK;
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
        for (size_t s = 0; s < plan->n_steps && status == ND_OK; s++)
            status = nd_look_say(&x, d, s, err);
    for (size_t i = 0; i < n_looks && x.looks != NULL; i++)
        free(x.looks[i].floats.x);
    for (size_t s = 0; s < plan->n_steps && x.floats != NULL; s++)
        free(x.floats[s].x);
    ND_FREE_ALL(x.looks, x.floats, x.histories);
    return status;
}

/* The explanation as an object: what it says before anything is evaluated, and how it is freed. */

enum nd_status nd_explain_add_finding(struct nd_explained_device *device, size_t step, const char *kind,
                                      double amount, char *text, struct nd_error *err)
{
    struct nd_explained_finding *grown =
        text != NULL ? realloc(device->findings, (device->n_findings + 1) * sizeof *grown) : NULL;
    if (grown == NULL) {
        free(text);
        return nd_fail_memory(err);
    }
    device->findings = grown;
    grown[device->n_findings++] = (struct nd_explained_finding){
        .step = step,
        .fault = {.kind = kind, .text = text, .channel = SIZE_MAX, .amount = amount, .explained = (double)NAN}};
    return ND_OK;
}
