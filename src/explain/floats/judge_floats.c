/* Judges layers whose values are floats, by what rounding allows. docs/science/verdicts.md. */

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "core/memory.h"
#include "core/text/strbuf.h"
#include "explain/diagnosis/diagnosis.h"
#include "explain/floats/floats.h"
#include "explain/layer_diagnosis/layer_diagnosis.h"
#include "explain/verdict/health.h"
#include "explain/verdict/judgement.h"
#include "model/graph/onnx.h"

/* Which other way of computing a layer gives the device's values, tried one after another: the layer is
 * evaluated anew, and a way is named where it predicts what the model's own way does not.
 * docs/science/verdicts.md. */

enum { MAX_SAMPLES = 32, MAX_VALUES = 1 << 22 };
/* Values that are off and that a way must predict; chosen, as for quantised values (verdict/fault_verdict.c).
 * Whole numbers are right or wrong: no rounding makes one of them. */
enum { MIN_FAR = 4, MIN_FAR_WHOLE = 3 };

struct search {
    struct nd_ways ways;
    const struct nd_float_evaluation *e;
    size_t device, step;
    struct nd_reader reader;
    struct nd_float_case model; /* the model's own way */
    bool is_tight;
};

/* ---- the model's own way ---- */

static enum nd_status go_to(void *context, size_t sample, struct nd_error *err)
{
    struct search *s = context;
    size_t n = s->ways.n_samples;
    ND_TRY(nd_reader_load(&s->reader, sample - sample % s->e->plan->block, n, err));
    return nd_reader_sample(&s->reader, s->device, sample, n, err);
}

/* How far each value may be off: as far as rounding goes; or, where that tells nothing, by two units in the
 * last place. */
static enum nd_status bound_values(const struct search *s, const struct nd_float_case *c,
                                   const struct nd_array *made, double *bound, struct nd_error *err)
{
    for (size_t k = 0; k < made->n && s->is_tight; k++)
        bound[k] = ldexp(fabs(made->x[k]), 2 - c->digits);
    return s->is_tight || c->is_whole ? ND_OK : nd_float_bound(c, made, bound, err);
}

static enum nd_status collect_sample(struct search *s, size_t i, struct nd_error *err)
{
    struct nd_ways *ways = &s->ways;
    ND_CLEANUP(nd_array_deinit) struct nd_array expected = {0};
    size_t tensor = s->e->plan->steps[s->step].tensor, at = i * ways->n;
    ND_TRY(nd_reader_sample(&s->reader, s->device, i, ways->n_samples, err));
    s->model = nd_float_case_of(s->e, &s->reader, s->reader.given, s->step);
    ND_TRY(nd_float_expect(&s->model, &expected, err));
    if (expected.n != ways->n)
        return ND_OK;
    ND_TRY(bound_values(s, &s->model, &expected, ways->bound + at, err));
    memcpy(ways->expected + at, expected.x, ways->n * sizeof *expected.x);
    memcpy(ways->captured + at, s->reader.given[tensor].x, ways->n * sizeof *expected.x);
    return ND_OK;
}

static bool make(void *context, const struct nd_float_way *way, struct nd_array *out)
{
    struct search *s = context;
    struct nd_float_case c = s->model;
    struct nd_error ignored;
    enum nd_float_reading reading = way->read != NULL ? ND_FLOAT_AS_THEY_ARE : ND_FLOAT_ROUNDED;
    c.way = way;
    return nd_float_run(&c, reading, 0, out, &ignored) == ND_OK && out->n == s->ways.n;
}

static bool bound_made(void *context, const struct nd_float_way *way, const struct nd_array *made,
                       double *bound)
{
    struct search *s = context;
    struct nd_float_case c = s->model;
    struct nd_error ignored;
    c.way = way;
    return bound_values(s, &c, made, bound, &ignored) == ND_OK;
}

/* ---- constants ---- */

/* Whether the operand is added to the result: the bias of a product or of a norm, or a term. */
static bool is_added(const char *op_type, size_t i)
{
    return ND_IS_ONE_OF(op_type, "Add", "Sub", "Sum") ||
           (i == 2 && ND_IS_ONE_OF(op_type, "Conv", "ConvTranspose", "Gemm", "BatchNormalization",
                                   "InstanceNormalization", "GroupNormalization", "LayerNormalization"));
}

static enum nd_status try_constant(struct search *s, size_t i, struct nd_error *err)
{
    const struct nd_float_node *node = &s->e->nodes[s->step];
    const Onnx__NodeProto *proto = node->proto;
    const struct nd_array *constant = node->inputs[i].constant;
    const char *op_type = nd_onnx_text(proto->op_type), *name = nd_onnx_text(proto->input[i]);
    struct nd_float_way way = {.operand = i, .factor = 1};
    const struct nd_way_number number = {.factor = &way.factor};
    char before[96], after[32] = " times as large";
    ND_TRY(nd_exact_hold(s->e->plan->graph, constant, err));
    double value = constant->n == 1 ? constant->x[0] : 0;
    nd_exact_release(s->e->plan->graph, constant);
    if (value != 0) {
        snprintf(before, sizeof before, "the constant '%.32s' is ", name);
        snprintf(after, sizeof after, ", not %.6g", value);
        return nd_try_way_number(&s->ways, &way, &number, 1, value, ND_FAULT_OTHER_CONSTANT, before, after,
                                 err);
    }
    static const char *const said[] = {"is left out", "has the other sign"};
    for (int k = 0; k < 2 && is_added(op_type, i); k++) {
        struct nd_way_names names = {.text = ""};
        way.factor = -k;
        ND_TRY(nd_try_way(&s->ways, &way, said[k], &names, err));
        if (names.text[0] != '\0')
            nd_tell_way(&s->ways, &names.score, ND_FAULT_BIAS, way.factor, "the constant '%.32s' %s", name,
                        names.text);
    }
    bool is_beside_bias = i == 1 && node->n_inputs > 2 && is_added(op_type, 2);
    snprintf(before, sizeof before, "the constant '%.32s' is ", name);
    return is_beside_bias || is_added(op_type, i)
               ? nd_try_way_number(&s->ways, &way, &number, 1, 1, ND_FAULT_OTHER_CONSTANT, before, after, err)
               : ND_OK;
}

static enum nd_status try_constants(struct search *s, struct nd_error *err)
{
    const struct nd_float_node *node = &s->e->nodes[s->step];
    for (size_t i = node->n_inputs; i-- > 0 && !s->ways.out->is_found;)
        if (node->inputs[i].source == ND_FLOAT_CONSTANT && nd_dtype_is_float(node->inputs[i].constant->dtype))
            ND_TRY(try_constant(s, i, err));
    return ND_OK;
}

/* ---- a flat index ---- */

static enum nd_status try_flat(struct search *s, struct nd_error *err)
{
    const struct nd_float_node *node = &s->e->nodes[s->step];
    const Onnx__NodeProto *proto = node->proto;
    if (node->n_inputs != 2 ||
        !ND_IS_ONE_OF(proto->op_type, "Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "PRelu", "Mod"))
        return ND_OK;
    for (size_t i = 0; i < 2; i++) {
        struct nd_way_names names = {.text = ""};
        const struct nd_float_way way = {.operand = i, .is_flat = true};
        ND_TRY(nd_try_way(&s->ways, &way, i == 0 ? "first" : "second", &names, err));
        if (names.text[0] != '\0')
            nd_tell_way(
                &s->ways, &names.score, ND_FAULT_FLAT_INDEX, 0,
                "the %s operand '%.32s' is read by a flat index that begins again at its end, where it should "
                "be repeated along its axes",
                names.text, nd_onnx_text(proto->input[i]));
    }
    return ND_OK;
}

/* ---- fewer bits ---- */

static const struct nd_float_narrow as_half = {.digits = ND_HALF_DIGITS},
                                    as_bfloat = {.digits = ND_BFLOAT_DIGITS},
                                    cut_half = {.digits = ND_HALF_DIGITS, .cuts = true},
                                    cut_bfloat = {.digits = ND_BFLOAT_DIGITS, .cuts = true},
                                    as_u8 = {.range = 256}, as_i8 = {.low = -128, .range = 256},
                                    as_u16 = {.range = 65536}, as_i16 = {.low = -32768, .range = 65536},
                                    to_u8 = {.range = 256, .clamps = true},
                                    to_i8 = {.low = -128, .range = 256, .clamps = true};

/* Those of one text follow each other. */
static const struct narrow {
    const struct nd_float_narrow *read, *convert;
    bool is_of_whole; /* of whole numbers alone */
    const char *text, *type;
} narrows[] = {
    {NULL, &as_u8, true, "the right values modulo", "256, as 8 bits keep them"},
    {NULL, &as_u16, true, "the right values modulo", "65536, as 16 bits keep them"},
    {NULL, &as_i8, true, "the right values as bits with a sign keep them:", "8"},
    {NULL, &as_i16, true, "the right values as bits with a sign keep them:", "16"},
    {NULL, &to_u8, true, "the right values, but clamped to", "0..255"},
    {NULL, &to_i8, true, "the right values, but clamped to", "-128..127"},
    {NULL, &as_bfloat, false, "the right values rounded to", "bfloat16"},
    {NULL, &as_half, false, "the right values rounded to", "half precision"},
    {NULL, &cut_bfloat, false, "the right values cut off to", "bfloat16"},
    {NULL, &cut_half, false, "the right values cut off to", "half precision"},
    {&as_bfloat, NULL, false, "computed of its inputs rounded to", "bfloat16"},
    {&as_half, NULL, false, "computed of its inputs rounded to", "half precision"},
    {&cut_bfloat, NULL, false, "computed of its inputs cut off to", "bfloat16"},
    {&cut_half, NULL, false, "computed of its inputs cut off to", "half precision"},
    {&as_bfloat, &as_bfloat, false, "computed in", "bfloat16"},
    {&as_half, &as_half, false, "computed in", "half precision"},
};
enum { N_NARROWS = sizeof narrows / sizeof narrows[0] };

/* Of the index of the largest value what that means. */
static const char *meaning(const struct search *s, const struct narrow *narrow)
{
    const char *op_type = nd_onnx_text(((const Onnx__NodeProto *)s->e->nodes[s->step].proto)->op_type);
    bool is_index = strcmp(op_type, "ArgMax") == 0 || strcmp(op_type, "ArgMin") == 0;
    return narrow->read != NULL && is_index
               ? ": the index is that of the first of several values that are equal then"
               : "";
}

static enum nd_status try_narrow(struct search *s, struct nd_error *err)
{
    struct nd_way_names names = {.text = ""};
    if (!s->ways.is_whole && s->model.digits != ND_SINGLE_DIGITS)
        return ND_OK;
    for (size_t k = 0; k < N_NARROWS; k++) {
        const struct nd_float_way way = {
            .operand = SIZE_MAX, .read = narrows[k].read, .convert = narrows[k].convert};
        if (s->ways.is_whole || !narrows[k].is_of_whole)
            ND_TRY(nd_try_way(&s->ways, &way, narrows[k].type, &names, err));
        bool is_last = k + 1 == N_NARROWS || strcmp(narrows[k + 1].text, narrows[k].text) != 0;
        if (is_last && names.text[0] != '\0' && !s->ways.out->is_found)
            nd_tell_way(&s->ways, &names.score, ND_FAULT_NARROW_TYPE, 0, "%s %s%s", narrows[k].text, names.text,
                        meaning(s, &narrows[k]));
    }
    return ND_OK;
}

/* ---- all of it ---- */

static enum nd_status try_ways(struct search *s, struct nd_error *err)
{
    ND_TRY(nd_try_attributes(&s->ways, err));
    ND_TRY(try_constants(s, err));
    ND_TRY(try_flat(s, err));
    ND_TRY(try_narrow(s, err));
    return nd_try_two_attributes(&s->ways, err);
}

static bool is_line(enum nd_fault_kind kind)
{
    return kind == ND_FAULT_SIGN || kind == ND_FAULT_SCALE || kind == ND_FAULT_CHANNEL_SCALE ||
           kind == ND_FAULT_ZERO_POINT || kind == ND_FAULT_CHANNEL_ZERO_POINT || kind == ND_FAULT_ENCODING;
}

/* Without another way of the layer: a line through the values, or a fault of memory, layout or range. */
static enum nd_status try_values(struct search *s, struct nd_error *err)
{
    const struct nd_plan *plan = s->e->plan;
    const struct nd_plan_source *source = &plan->sources[s->device];
    struct nd_evidence evidence = {.n_samples = s->ways.n_samples,
                                   .n = s->ways.n,
                                   .shape = plan->shapes[s->step],
                                   .dtype = nd_capture_tensor(source->capture, source->tensors[s->step])->dtype,
                                   .expected = s->ways.expected,
                                   .captured = s->ways.captured,
                                   .bound = s->ways.bound};
    struct nd_findings found = {0};
    enum nd_status status = nd_diagnose_tensor(&evidence, &found, err);
    s->ways.out->is_exact = found.n_gross > 0 && is_line(found.items[0].kind);
    if (status == ND_OK && !s->ways.out->is_exact && !s->is_tight) {
        evidence.bound = NULL; /* beside arithmetic that is coarser than its bounds */
        status = nd_diagnose_tensor(&evidence, &found, err);
    }
    s->ways.out->is_found = found.n_gross > 0;
    if (s->ways.out->is_found)
        s->ways.out->finding = found.items[0];
    return status;
}

static enum nd_status search(struct search *s, struct nd_error *err)
{
    struct nd_ways *ways = &s->ways;
    ND_TRY(nd_reader_init(&s->reader, s->e->plan, err));
    for (size_t i = 0; i < ways->n_samples; i++)
        ND_TRY(collect_sample(s, i, err));
    ways->is_whole = s->model.is_whole;
    ways->min_far = ways->is_whole ? MIN_FAR_WHOLE : MIN_FAR;
    nd_ways_count(ways);
    if (ways->n_far >= ways->min_far)
        ND_TRY(try_ways(s, err));
    return ways->out->is_found ? ND_OK : try_values(s, err);
}

/* Of a step that can be worked out, over 32 samples at most. is_tight: bounds, which add up in sums, tell
 * nothing: a way must predict the values to two units in the last place. ND_ERR_MEMORY, and errors of reading
 * captures. */
static enum nd_status nd_float_find_fault(const struct nd_float_evaluation *e, size_t device, size_t step,
                                          bool is_tight, struct nd_float_fault *out, struct nd_error *err)
{
    struct search s = {.e = e,
                       .device = device,
                       .step = step,
                       .is_tight = is_tight,
                       .ways = {.node = e->nodes[step].proto,
                                .n_inputs = e->nodes[step].n_inputs,
                                .leaves_approximations = is_tight,
                                .context = &s,
                                .go_to = go_to,
                                .make = make,
                                .bound_made = bound_made,
                                .out = out}};
    struct nd_ways *ways = &s.ways;
    *out = (struct nd_float_fault){0};
    ND_TRY(nd_shape_n_elems(&e->plan->shapes[step], &ways->n, err));
    if (ways->n == 0)
        return ND_OK;
    ways->n_samples = e->plan->n_samples < MAX_SAMPLES ? e->plan->n_samples : MAX_SAMPLES;
    while (ways->n_samples > 1 && ways->n_samples * ways->n > MAX_VALUES)
        ways->n_samples--;
    enum nd_status status = nd_ways_make_room(ways, err);
    if (status == ND_OK)
        status = search(&s, err);
    nd_reader_deinit(&s.reader);
    free(ways->expected);
    return status;
}

/* ---- sums ---- */

static void add_sample(const struct nd_float_sums *from, struct nd_float_sums *to)
{
    to->is_missed = to->is_missed || from->is_missed;
    to->has_reference = to->has_reference && from->has_reference;
    to->has_effect = to->has_effect || from->has_effect;
    to->n += from->n;
    to->n_rounded += from->n_rounded;
    to->n_beyond += from->n_beyond;
    to->n_flushed += from->n_flushed;
    to->n_lost += from->n_lost;
    to->n_overflown += from->n_overflown;
    for (size_t k = 0; k < ND_FLOAT_CUTS; k++) {
        to->n_telling[k] += from->n_telling[k];
        to->n_cut[k] += from->n_cut[k];
    }
    to->max_ulp = fmax(to->max_ulp, from->max_ulp);
    to->worst = fmax(to->worst, from->worst);
    to->sum_ulp += from->sum_ulp;
    to->signal += from->signal;
    to->introduced += from->introduced;
    to->total += from->total;
    to->passed_on += from->passed_on;
    to->grid.n += from->grid.n;
    to->grid.n_on_grid += from->grid.n_on_grid;
    to->grid.n_known += from->grid.n_known;
    to->grid.n_off += from->grid.n_off;
    if (from->has_effect) {
        to->effect += from->effect;
        to->effect_signal += from->effect_signal;
    }
}

static double relative(double squares, double signal, bool is_known)
{
    return !is_known ? (double)NAN : signal > 0 ? sqrt(squares / signal) : squares > 0 ? (double)INFINITY : 0;
}

static struct nd_float_sums sum_up(const struct nd_float_evaluation *e, size_t device, size_t step)
{
    struct nd_float_sums sums = {.has_reference = true};
    for (size_t i = 0; i < e->plan->n_samples; i++)
        add_sample(nd_float_sums_of(e, i, device, step), &sums);
    return sums;
}

static struct nd_explained_floats floats_of(const struct nd_float_sums *sums, int digits)
{
    return (struct nd_explained_floats){
        .n = sums->n,
        .digits = digits,
        .n_rounded = sums->n_rounded,
        .n_beyond = sums->n_beyond,
        .n_flushed = sums->n_flushed,
        .n_lost = sums->n_lost,
        .n_overflown = sums->n_overflown,
        .max_ulp = sums->max_ulp,
        .mean_ulp = sums->n > 0 ? sums->sum_ulp / (double)sums->n : 0,
        .worst = sums->worst,
        .introduced = relative(sums->introduced, sums->signal, sums->has_reference),
        .passed_on = relative(sums->passed_on, sums->signal, sums->has_reference),
        .total = relative(sums->total, sums->signal, sums->has_reference),
        .effect = relative(sums->effect, sums->effect_signal, sums->has_effect),
    };
}

/* ---- the judgement ---- */

/* Whether another product of the device keeps to its bound in every value. */
static bool do_others_keep(const struct nd_float_evaluation *e, size_t device, size_t step)
{
    for (size_t s = 0; s < e->plan->n_steps; s++) {
        if (s == step || !nd_float_is_step(e->plan, device, s) || !e->is_known[s] ||
            !nd_float_is_product(&e->nodes[s]))
            continue;
        const struct nd_float_sums other = sum_up(e, device, s);
        if (other.n > 0 && !other.is_missed && other.n_beyond + other.n_lost == 0)
            return true;
    }
    return false;
}

enum { MIN_BEYOND = 8 }; /* values; as for quantised ones (verdict/fault_verdict.c) */

/* Why no rounding makes what is off by many times the bound, which holds but for a value in 3e7
 * (float_layer.c); NULL: it may. Chosen: 8 times, as bfloat16 is coarser than half precision; twice that where
 * the layer's own values are all that is known of how the device multiplies. */
static const char *why_no_rounding(const struct nd_float_evaluation *e, size_t device, size_t step,
                                   const struct nd_explained_floats *f)
{
    static const double min_worst = 8, min_own_worst = 16, min_share = 0.01;
    const struct nd_float_node *node = &e->nodes[step];
    if (f->worst < min_worst || f->n_beyond < MIN_BEYOND || (double)f->n_beyond < min_share * (double)f->n)
        return NULL;
    if (nd_onnx_is_mover(node->proto) ||
        strcmp(nd_onnx_text(((const Onnx__NodeProto *)node->proto)->op_type), "Concat") == 0)
        return "the operator only moves values";
    if (f->introduced >= 1)
        return "the error is as large as the values are";
    if (!nd_float_is_product(node))
        return NULL;
    if (do_others_keep(e, device, step))
        return "other products of the device keep to the bound";
    return f->worst >= min_own_worst && 2 * (f->n_beyond + f->n_lost) <= f->n
               ? "its other values keep to the bound"
               : NULL;
}

/* Faults that no arithmetic looks like: a large number is 0 beyond a cliff. Scales and grids may be
 * arithmetic's own. */
static bool is_no_arithmetic(enum nd_fault_kind kind)
{
    switch (kind) {
    case ND_FAULT_AXIS_PERMUTATION:
    case ND_FAULT_CHANNEL_PERMUTATION:
    case ND_FAULT_STALE:
    case ND_FAULT_SHIFTED:
    case ND_FAULT_ALL_ZERO:
    case ND_FAULT_CONSTANT:
    case ND_FAULT_UNWRITTEN_WINDOW:
    case ND_FAULT_SATURATION:
    case ND_FAULT_PASSED_THROUGH:
    case ND_FAULT_OTHER_PLACES:
    case ND_FAULT_HARD_CLIFF:
        return true;
    default:
        return false;
    }
}

enum { MAX_CONSTANTS_SAMPLES = 32 }; /* chosen: time */

/* Whether every value of some samples is what the layer makes of other constants: then *fault says so. */
static enum nd_status fits_changed(const struct nd_float_evaluation *e, struct nd_reader *reader, size_t device,
                                   size_t step, const struct nd_changed_constants *change,
                                   const struct nd_coded_weights *weights, bool *fits, struct nd_error *err)
{
    size_t n_samples = e->plan->n_samples < MAX_CONSTANTS_SAMPLES ? e->plan->n_samples : MAX_CONSTANTS_SAMPLES,
           input;
    struct nd_array constant;
    enum nd_status status = nd_change_reals(&e->nodes[step], weights, change, &input, &constant, err);
    *fits = status == ND_OK && constant.n > 0;
    for (size_t i = 0; i < n_samples && status == ND_OK && *fits; i++) {
        struct nd_float_sums sums = {0};
        status = nd_reader_sample(reader, device, i, n_samples, err);
        if (status == ND_OK)
            status = nd_float_count_with(e, reader, step, input, &constant, &sums, err);
        *fits = !sums.is_missed && sums.n_beyond + sums.n_lost == 0;
    }
    nd_array_deinit(&constant);
    return status;
}

static enum nd_status diagnose_constants(const struct nd_float_evaluation *e, size_t device, size_t step,
                                         struct nd_findings *found, struct nd_error *err)
{
    struct nd_changed_constants changes[ND_CONSTANTS_MAX_LISTED];
    struct nd_reader reader = {0};
    struct nd_coded_weights weights;
    size_t n = nd_list_changed_constants(changes);
    enum nd_status status = nd_find_coded_weights(e->plan->graph, &e->nodes[step], &weights, err);
    if (status == ND_OK && weights.qvalues.n > 0)
        status = nd_reader_init(&reader, e->plan, err);
    for (size_t k = 0; k < n && status == ND_OK && weights.qvalues.n > 0 && found->n == 0; k++) {
        bool fits;
        status = fits_changed(e, &reader, device, step, &changes[k], &weights, &fits, err);
        if (status != ND_OK || !fits)
            continue;
        struct nd_finding *finding = &found->items[0];
        *finding = (struct nd_finding){
            .kind = nd_fault_of_constants(changes[k].kind), .channel = SIZE_MAX, .axis = -1, .explained = 1};
        nd_change_reals_text(&e->nodes[step], &weights, &changes[k], finding->text);
        found->n = found->n_gross = 1;
    }
    nd_coded_weights_deinit(&weights);
    nd_reader_deinit(&reader);
    return status;
}

/* The share of the values beyond their bound that a fault must predict; as for quantised values
 * (verdict/fault_verdict.c). */
static const double min_explained = 0.99;

static const char *precision_of(const struct nd_explained_floats *floats)
{
    return floats->digits == ND_HALF_DIGITS ? "half precision" : nd_float_type_name(floats->digits);
}

static enum nd_status set_text(struct nd_strbuf *text, char **out, struct nd_error *err)
{
    free(*out);
    *out = nd_strbuf_take(text);
    return *out != NULL ? ND_OK : nd_fail_memory(err);
}

static enum nd_status follow(struct nd_explained_layer *layer, struct nd_error *err)
{
    const struct nd_explained_floats *f = &layer->floats;
    return nd_judge_follows(layer, f->n_rounded + f->n_overflown == f->n ? "exact" : "float-rounding", NULL,
                            err);
}

static void say_evidence(const struct nd_explained_floats *f, const char *fault, struct nd_strbuf *text)
{
    if (f->n_beyond > 0 && f->digits == ND_WHOLE_DIGITS)
        nd_strbuf_printf(text, "%.3g%% of its values are not those that its inputs give, by up to %.6g",
                         100 * (double)f->n_beyond / (double)f->n, f->max_ulp);
    else if (f->n_beyond > 0)
        nd_strbuf_printf(
            text,
            "%.3g%% of its values are further off than rounding to %s explains, by up to %.3g ULP and %.3g "
            "times the bound",
            100 * (double)f->n_beyond / (double)f->n, precision_of(f), f->max_ulp, f->worst);
    if (f->n_beyond + f->n_lost == 0)
        nd_strbuf_printf(text, "%.3g%% of its values are not the right ones, rounded to %s",
                         100 * (double)(f->n - f->n_rounded) / (double)f->n, precision_of(f));
    if (f->n_lost > 0)
        nd_strbuf_printf(text,
                         "%s%.3g%% of its values are infinite or not a number, where the exact ones fit the "
                         "tensor's type%s",
                         f->n_beyond > 0 ? "; " : "", 100 * (double)f->n_lost / (double)f->n,
                         f->digits == ND_HALF_DIGITS ? " (half precision ends at 65504)" : "");
    if (fault != NULL)
        nd_strbuf_printf(text, "; %s", fault);
}

/* Bounds of few digits, which add up, may hide an offset or a factor. Not of an HTP, whose functions are what
 * they are. */
static bool may_hide(const struct nd_float_evaluation *e, size_t device, const struct nd_explained_floats *f)
{
    enum { MIN_OFF = 12 };           /* as many as a fault must predict (diagnosis/look.h) */
    static const double min_ulp = 2; /* by so much a way must predict them */
    bool is_off = f->n - f->n_rounded >= MIN_OFF && f->max_ulp > min_ulp;
    return e->plan->sources[device].expectation == ND_EXPECT_ANY && f->digits != ND_SINGLE_DIGITS &&
           f->digits != ND_WHOLE_DIGITS && (f->n_beyond > 0 || is_off);
}

/* A layer is faulty where a fault that no arithmetic makes predicts what is far off, and where it gives
 * infinities or no numbers although the exact values are numbers of its type: no rounding does that. */
static enum nd_status fault_verdict(const struct nd_float_evaluation *e, size_t device, size_t step,
                                    struct nd_explained_layer *layer, struct nd_error *err)
{
    bool is_within = layer->n_unexplained == 0;
    struct nd_float_fault found = {0}, tight = {0};
    char said[256] = "";
    struct nd_strbuf evidence = {0};
    struct nd_findings of_constants = {0};
    if (!is_within)
        ND_TRY(diagnose_constants(e, device, step, &of_constants, err));
    bool is_of_constants = of_constants.n > 0;
    if (is_of_constants)
        found = (struct nd_float_fault){.is_found = true, .is_exact = true, .finding = of_constants.items[0]};
    else if (!is_within)
        ND_TRY(nd_float_find_fault(e, device, step, false, &found, err));
    if (!found.is_exact && may_hide(e, device, &layer->floats))
        ND_TRY(nd_float_find_fault(e, device, step, true, &tight, err));
    found = tight.is_exact ? tight : found;
    if (is_within && !found.is_exact)
        return follow(layer, err);
    const struct nd_finding *best = found.is_found ? &found.finding : NULL;
    const char *why = why_no_rounding(e, device, step, &layer->floats);
    bool is_lost = layer->floats.n_lost > 0 || why != NULL;
    bool is_predicted = best != NULL && !found.may_be_arithmetic &&
                        (found.is_exact || (best->explained >= min_explained && is_no_arithmetic(best->kind) &&
                                            layer->floats.n_beyond + layer->floats.n_lost >= MIN_BEYOND));
    if (is_within)
        layer->n_unexplained = layer->floats.n - layer->floats.n_rounded;
    nd_judge_open(layer);
    layer->judgement.certainty = best != NULL ? ND_CERTAINTY_GUESS : ND_CERTAINTY_UNKNOWN;
    if (best != NULL && (is_predicted || !is_lost)) {
        const struct nd_explained_fault fault = {.kind = nd_fault_name(best->kind),
                                                 .text = (char *)best->text,
                                                 .channel = best->channel,
                                                 .amount = best->amount,
                                                 .explained = best->explained};
        ND_TRY(nd_judge_resembles(layer, &fault, err));
        snprintf(said, sizeof said,
                 is_of_constants                          ? "the fault predicts every value"
                 : best->explained == 1 && found.is_exact ? "\"%s\" predicts every value"
                 : is_predicted || found.is_exact         ? "\"%s\" predicts %.3g%% of those far off"
                                                          : "it looks like \"%s\"",
                 best->text, 100 * best->explained);
    }
    say_evidence(&layer->floats, said[0] != '\0' ? said : NULL, &evidence);
    if (why != NULL)
        nd_strbuf_printf(&evidence, "; %s", why);
    return is_predicted || is_lost ? nd_judge_faulty(layer,
                                                     (is_predicted && !is_of_constants) ||
                                                             (why != NULL && layer->floats.n_lost == 0)
                                                         ? ND_CERTAINTY_LIKELY
                                                         : ND_CERTAINTY_PROVEN,
                                                     NULL, &evidence, err)
                                   : nd_judge_evidence(layer, &evidence, err);
}

/* Values that rounding and cutting off tell apart, at least; chosen: by chance 2^-24. */
enum { MIN_TELLING = 24 };

/* The reading of the inputs by which the values are cut off toward zero; ND_FLOAT_CUTS: there is none. */
static size_t find_cut(const struct nd_float_sums *sums)
{
    size_t k = 0;
    while (k < ND_FLOAT_CUTS && (sums->n_telling[k] < MIN_TELLING ||
                                 (double)sums->n_cut[k] < min_explained * (double)sums->n_telling[k]))
        k++;
    return k;
}

static enum nd_status judge_cut(const struct nd_float_sums *sums, size_t k, struct nd_explained_layer *layer,
                                struct nd_error *err)
{
    char text[96];
    struct nd_strbuf evidence = {0};
    snprintf(text, sizeof text, "values are cut off toward zero to %s, and not rounded",
             precision_of(&layer->floats));
    nd_strbuf_printf(&evidence,
                     "of %" PRIu64 " values that rounding and cutting off tell apart %" PRIu64 " are cut off",
                     sums->n_telling[k], sums->n_cut[k]);
    const struct nd_explained_fault fault = {.kind = nd_fault_name(ND_FAULT_TRUNCATION),
                                             .text = text,
                                             .channel = SIZE_MAX,
                                             .amount = (double)sums->n_telling[k] / (double)sums->n,
                                             .explained = (double)sums->n_cut[k] / (double)sums->n_telling[k]};
    layer->n_unexplained = layer->n_unexplained > 0 ? layer->n_unexplained : sums->n_cut[k];
    return nd_judge_faulty(layer, ND_CERTAINTY_LIKELY, &fault, &evidence, err);
}

/* A tensor that it reads, and of which the capture need not show what it read. SIZE_MAX: none. */
static size_t find_unsure_input(const struct nd_explain_job *job, const struct nd_float_evaluation *e, size_t d,
                                size_t s)
{
    const struct nd_float_node *node = &e->nodes[s];
    for (size_t i = 0; e->is_known[s] && i < node->n_inputs; i++) {
        bool is_tensor =
            node->inputs[i].source == ND_FLOAT_TENSOR || node->inputs[i].source == ND_FLOAT_QVALUES;
        size_t step = is_tensor ? job->plan->step_of_tensor[node->inputs[i].index] : SIZE_MAX;
        if (step == SIZE_MAX)
            continue;
        const char *fault = job->out->devices[d].layers[step].judgement.fault.kind;
        if ((fault != NULL && strcmp(fault, nd_fault_name(ND_FAULT_REUSED_BUFFER)) == 0) ||
            nd_plan_differs_by_run(job->plan, d, step))
            return step;
    }
    return SIZE_MAX;
}

static enum nd_status leave_unsure(const struct nd_explain_job *job, struct nd_explained_layer *layer,
                                   size_t input, struct nd_error *err)
{
    struct nd_strbuf text = {0};
    nd_strbuf_printf(&text, "the capture of '%s' need not show what it read", job->plan->steps[input].name);
    return set_text(&text, &layer->why_not, err);
}

static enum nd_status judge_step(const struct nd_explain_job *job, const struct nd_float_evaluation *e,
                                 size_t d, size_t s, struct nd_error *err)
{
    struct nd_explained_device *device = &job->out->devices[d];
    struct nd_explained_layer *layer = &device->layers[s];
    if (!nd_float_is_step(job->plan, d, s))
        return ND_OK;
    size_t unsure = find_unsure_input(job, e, d, s);
    const struct nd_float_sums sums = sum_up(e, d, s);
    job->floats[d * job->plan->n_steps + s] = sums.grid;
    if (unsure != SIZE_MAX)
        return leave_unsure(job, layer, unsure, err);
    if (sums.is_missed || sums.n == 0) {
        struct nd_strbuf text = {0};
        nd_strbuf_printf(&text, "%s",
                         e->is_known[s]
                             ? "it cannot be worked out: what it reads was not captured, or its operator "
                               "is not covered"
                             : "it reads what is no tensor of the model");
        return set_text(&text, &layer->why_not, err);
    }
    layer->floats = floats_of(&sums, nd_float_digits_of(e, d, s));
    if (!layer->is_examined) {
        device->n_examined++;
        device->n_not_examined--;
    }
    layer->is_examined = true;
    free(layer->why_not);
    layer->why_not = NULL;
    layer->n_qvalues = layer->floats.n;
    layer->n_unexplained = layer->floats.n_beyond + layer->floats.n_lost;
    layer->effect = layer->floats.effect * layer->floats.effect;
    ND_TRY(nd_explain_judge_float_runs(job, d, s, err));
    if (layer->judgement.state == ND_LAYER_FAULTY)
        return ND_OK;
    size_t cut = find_cut(&sums);
    if (cut < ND_FLOAT_CUTS)
        return judge_cut(&sums, cut, layer, err);
    if (layer->n_unexplained > 0 || may_hide(e, d, &layer->floats))
        return fault_verdict(e, d, s, layer, err);
    return follow(layer, err);
}

/* Over all outputs. */
static double error_of_outputs(const struct nd_explain_job *job, const struct nd_float_evaluation *e, size_t d)
{
    double total = 0, signal = 0;
    bool is_known = false;
    for (size_t s = 0; s < job->plan->n_steps; s++) {
        if (!job->plan->steps[s].is_model_output || !nd_float_is_step(job->plan, d, s) ||
            nd_float_digits_of(e, d, s) == ND_WHOLE_DIGITS)
            continue;
        const struct nd_float_sums sums = sum_up(e, d, s);
        if (sums.is_missed || !sums.has_reference)
            return (double)NAN;
        is_known = true;
        total += sums.total;
        signal += sums.signal;
    }
    return relative(total, signal, is_known);
}

/* The device against exact rounding: as explain.c has it for quantised values, which was called before. */
static enum nd_verdict verdict_of(const struct nd_explained_device *device, size_t n_steps)
{
    bool differs = device->n_sources > 0, is_within = false;
    for (size_t s = 0; s < n_steps; s++) {
        differs = differs || (device->layers[s].floats.n > 0 && device->layers[s].n_unexplained > 0);
        is_within = is_within || device->layers[s].is_within_step ||
                    device->layers[s].floats.n_rounded < device->layers[s].floats.n;
    }
    if (differs)
        return ND_VERDICT_DIFFERS;
    if (device->n_examined == 0 || device->n_not_examined > 0)
        return ND_VERDICT_INCONCLUSIVE;
    return is_within ? ND_VERDICT_WITHIN : ND_VERDICT_SAME;
}

/* Few digits are what a layer that follows was found to have, and half precision is what an HTP computes in: no
 * finding. */
static void drop_grid_findings(const struct nd_plan *plan, size_t d, struct nd_explained_device *device)
{
    enum nd_expectation expected = plan->sources[d].expectation;
    bool is_htp = expected == ND_EXPECT_V69 || expected == ND_EXPECT_V73;
    size_t n = 0;
    for (size_t i = 0; i < device->n_findings; i++) {
        struct nd_explained_finding *finding = &device->findings[i];
        const struct nd_explained_layer *layer = &device->layers[finding->step];
        bool is_expected = is_htp || (layer->floats.n > 0 && layer->judgement.state == ND_LAYER_FOLLOWS);
        bool is_grid = strcmp(finding->fault.kind, nd_fault_name(ND_FAULT_FP16_GRID)) == 0 ||
                       (layer->floats.digits == ND_BFLOAT_DIGITS &&
                        strcmp(finding->fault.kind, nd_fault_name(ND_FAULT_BF16_GRID)) == 0);
        if (is_expected && is_grid)
            free(finding->fault.text);
        else
            device->findings[n++] = *finding;
    }
    device->n_findings = n;
}

static enum nd_status judge_device(const struct nd_explain_job *job, const struct nd_float_evaluation *e,
                                   size_t d, struct nd_error *err)
{
    struct nd_explained_device *device = &job->out->devices[d];
    enum nd_status status = ND_OK;
    for (size_t s = 0; s < job->plan->n_steps && status == ND_OK; s++)
        status = judge_step(job, e, d, s, err);
    if (!e->is_beside_qvalues)
        device->float_error = error_of_outputs(job, e, d);
    drop_grid_findings(job->plan, d, device);
    device->verdict = verdict_of(device, job->plan->n_steps);
    return status;
}

/* Whether the step's values are no quantised values, and the device computes them: floats, or whole numbers
 * such as indices; whether any step of any device has such. */
static bool float_has_steps(const struct nd_plan *plan)
{
    for (size_t d = 0; d < plan->n_devices; d++)
        for (size_t s = 0; s < plan->n_steps; s++)
            if (nd_float_is_step(plan, d, s))
                return true;
    return false;
}

enum nd_status nd_explain_judge_floats(const struct nd_explain_job *job,
                                       const struct nd_explain_options *options, struct nd_error *err)
{
    struct nd_float_evaluation evaluation = {0};
    struct nd_explanation *out = job->out;
    if (nd_plan_has_qvalues(job->plan) && !float_has_steps(job->plan))
        return ND_OK;
    enum nd_status status = nd_float_evaluate(&evaluation, job->plan, options, err);
    for (size_t d = 0; d < out->n_devices && status == ND_OK; d++)
        if (!job->plan->sources[d].is_failed)
            status = judge_device(job, &evaluation, d, err);
    out->verdict = ND_VERDICT_SAME;
    for (size_t d = 0; d < out->n_devices; d++)
        if (out->devices[d].verdict > out->verdict)
            out->verdict = out->devices[d].verdict;
    if (evaluation.plan != NULL)
        nd_float_evaluation_deinit(&evaluation);
    return status;
}
