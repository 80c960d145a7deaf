/* Which other way of computing a layer gives the device's values, tried one after another: the layer is
 * evaluated anew, and a way is named where it predicts what the model's own way does not.
 * docs/science/verdicts.md. */
#include "explain/floats/float_ways.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/text/words.h"
#include "model/graph/onnx.h"

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

enum nd_status nd_float_find_fault(const struct nd_float_evaluation *e, size_t device, size_t step,
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
