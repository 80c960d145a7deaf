/* Which other way of computing a layer gives the device's values, tried one after another: the layer is
 * evaluated anew, and a way is named where it predicts what the model's own way does not.
 * docs/science/verdicts.md. */
#include "explain/floats/float_ways.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/variants/attributes.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/statistics/series.h"

enum { MAX_SAMPLES = 32, MAX_VALUES = 1 << 22 };
/* Values that are off and that a way must predict; chosen, as for quantised values (verdict/fault_verdict.c).
 * Whole numbers are right or wrong: no rounding makes one of them. */
enum { MIN_FAR = 4, MIN_FAR_WHOLE = 3 };
/* Chosen, as in diagnosis/look.c: the share that is predicted; of the squares what remains. */
static const double min_explained = 0.99, max_rest = 1.0 / 16;

struct search {
    const struct nd_float_evaluation *e;
    size_t device, step, n_samples, n;
    struct nd_reader reader;
    struct nd_float_case model;                    /* the model's own way */
    double *expected, *captured, *bound, *scratch; /* [n_samples * n], and three times of a sample */
    size_t n_far, worst;                           /* values that are off; the sample with the most of them */
    bool is_tight;
    struct nd_float_fault *out;
};

/* ---- the model's own way ---- */

static enum nd_status go_to(struct search *s, size_t sample, struct nd_error *err)
{
    enum nd_status status = nd_reader_load(&s->reader, sample - sample % s->e->plan->block, s->n_samples, err);
    return status == ND_OK ? nd_reader_sample(&s->reader, s->device, sample, s->n_samples, err) : status;
}

static bool is_far(const struct search *s, size_t i)
{
    return isfinite(s->expected[i]) && !(fabs(s->captured[i] - s->expected[i]) <= s->bound[i]);
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
    struct nd_array expected = {0};
    size_t tensor = s->e->plan->steps[s->step].tensor, n_far = 0;
    enum nd_status status = nd_reader_sample(&s->reader, s->device, i, s->n_samples, err);
    s->model = nd_float_case_of(s->e, &s->reader, s->reader.given, s->step);
    if (status == ND_OK)
        status = nd_float_expect(&s->model, &expected, err);
    if (status == ND_OK && expected.n == s->n)
        status = bound_values(s, &s->model, &expected, s->bound + i * s->n, err);
    if (status == ND_OK && expected.n == s->n) {
        memcpy(s->expected + i * s->n, expected.x, s->n * sizeof *expected.x);
        memcpy(s->captured + i * s->n, s->reader.given[tensor].x, s->n * sizeof *expected.x);
    }
    nd_array_deinit(&expected);
    for (size_t k = 0; k < s->n; k++)
        n_far += is_far(s, i * s->n + k);
    s->n_far += n_far;
    s->scratch[0] = fmax(s->scratch[0], (double)n_far);
    s->worst = n_far > 0 && (double)n_far >= s->scratch[0] ? i : s->worst;
    return status;
}

/* ---- one other way ---- */

struct score {
    size_t n_far, n_right, n_broken;
    double before, after;
};

/* One value may be off beside the fault. */
static bool is_hopeless(const struct search *s, const struct score *score)
{
    return (double)(score->n_far - score->n_right) > 1 + (1 - min_explained) * (double)s->n_far ||
           (double)score->n_broken > (1 - min_explained) * (double)(s->n_samples * s->n);
}

static void count_sample(const struct search *s, size_t sample, const double *made, const double *bound,
                         struct score *score)
{
    for (size_t k = 0; k < s->n; k++) {
        size_t i = sample * s->n + k;
        double y = s->captured[i], off = fabs(y - made[k]), before = fabs(y - s->expected[i]);
        bool is_right = isfinite(y) ? off <= bound[k] : isnan(y) ? isnan(made[k]) : y == made[k];
        if (!isfinite(s->expected[i]))
            continue;
        score->n_far += is_far(s, i);
        score->n_right += is_far(s, i) && is_right;
        score->n_broken += !is_far(s, i) && !is_right && !(off <= s->bound[i]);
        score->before += is_far(s, i) && isfinite(before) ? before * before : 0;
        score->after += is_far(s, i) && is_right && isfinite(off) ? off * off : 0;
    }
}

/* What the way gives in the sample at hand; false where it cannot be worked out, or has another size. */
static bool make(const struct search *s, const struct nd_float_way *way, struct nd_array *out)
{
    struct nd_float_case c = s->model;
    struct nd_error ignored;
    enum nd_float_reading reading = way->read != NULL ? ND_FLOAT_AS_THEY_ARE : ND_FLOAT_ROUNDED;
    c.way = way;
    *out = (struct nd_array){0};
    return nd_float_run(&c, reading, 0, out, &ignored) == ND_OK && out->n == s->n;
}

static bool try_sample(struct search *s, const struct nd_float_way *way, size_t sample, struct score *score)
{
    struct nd_float_case c = s->model;
    struct nd_error ignored;
    struct nd_array made;
    c.way = way;
    memset(s->scratch, 0, s->n * sizeof *s->scratch);
    bool is_made = make(s, way, &made) && bound_values(s, &c, &made, s->scratch, &ignored) == ND_OK;
    if (is_made)
        count_sample(s, sample, made.x, s->scratch, score);
    nd_array_deinit(&made);
    return is_made && !is_hopeless(s, score);
}

/* The sample that tells most first: most ways fail there. */
static enum nd_status try_way(struct search *s, const struct nd_float_way *way, struct score *score,
                              bool *holds, struct nd_error *err)
{
    *score = (struct score){0};
    enum nd_status status = go_to(s, s->worst, err);
    *holds = status == ND_OK && try_sample(s, way, s->worst, score);
    for (size_t i = 0; i < s->n_samples && *holds && status == ND_OK; i++) {
        status = nd_reader_sample(&s->reader, s->device, i, s->n_samples, err);
        *holds = status == ND_OK && (i == s->worst || try_sample(s, way, i, score));
    }
    *holds = *holds && score->n_right >= (size_t)(s->model.is_whole ? MIN_FAR_WHOLE : MIN_FAR) &&
             score->after <= max_rest * score->before;
    return status;
}

/* The fault is a way that holds. */
static void ND_PRINTF(5, 6) tell(struct search *s, const struct score *score, enum nd_fault_kind kind,
                                 double amount, const char *fmt, ...)
{
    double explained = (double)score->n_right / (double)score->n_far;
    *s->out = (struct nd_float_fault){.is_found = true,
                                      .may_be_arithmetic = kind == ND_FAULT_NARROW_TYPE && !s->model.is_whole,
                                      .is_exact = true,
                                      .finding = {kind, SIZE_MAX, -1, amount, explained, score->n_far, "", 0}};
    va_list arguments;
    va_start(arguments, fmt);
    vsnprintf(s->out->finding.text, sizeof s->out->finding.text, fmt, arguments);
    va_end(arguments);
}

/* Ways that predict the same values are all named. */
struct names {
    char text[128];
    bool may_be_arithmetic;
    struct score score;
};

static enum nd_status try_name(struct search *s, const struct nd_float_way *way, const char *name,
                               struct names *names, struct nd_error *err)
{
    struct score score;
    bool holds = false;
    size_t length = strlen(names->text);
    enum nd_status status = s->out->is_found ? ND_OK : try_way(s, way, &score, &holds, err);
    if (status != ND_OK || !holds)
        return status;
    names->score = length == 0 ? score : names->score;
    snprintf(names->text + length, sizeof names->text - length, "%s%s", length > 0 ? " or " : "", name);
    return ND_OK;
}

/* ---- a number that is another one ---- */

struct number {
    double *factor; /* of an operand; NULL: an attribute */
    float *attribute;
    bool is_positive; /* its logarithm is solved for */
};

static void turn(const struct number *number, double p)
{
    if (number->factor != NULL)
        *number->factor = p;
    else
        *number->attribute = (float)p;
}

/* By how much the number should be more: the median over the values that it moves most. NaN: it moves none. */
static double find_step(const struct search *s, const double *made, const double *moved, double h)
{
    double most = 0;
    size_t n = 0;
    for (size_t k = 0; k < s->n; k++)
        most = fmax(most, isfinite(moved[k] - made[k]) ? fabs(moved[k] - made[k]) : 0);
    for (size_t k = 0; k < s->n && most > 0; k++) {
        double slope = (moved[k] - made[k]) / h, off = s->captured[s->worst * s->n + k] - made[k];
        if (fabs(slope * h) >= most / 8 && isfinite(off / slope))
            s->scratch[n++] = off / slope;
    }
    nd_series_sort(s->scratch, n);
    return n > 0 ? s->scratch[n / 2] : (double)NAN;
}

/* Newton's method, over the sample that tells most. Of positive numbers in logarithms, by at most two at once:
 * what is far from the root is no line. */
static double solve(struct search *s, const struct nd_float_way *way, const struct number *number, double from)
{
    enum { MAX_TURNS = 40, MAX_HALVES = 3 };
    double p = number->is_positive ? log(from) : from, step = HUGE_VAL;
    for (int i = 0; i < MAX_TURNS && !(fabs(step) <= 1e-9 * fmax(fabs(p), 1e-9)); i++) {
        struct nd_array made, moved;
        double h = number->is_positive ? 1e-3 : 1e-3 * fmax(fabs(p), 1);
        turn(number, number->is_positive ? exp(p) : p);
        bool is_made = make(s, way, &made);
        turn(number, number->is_positive ? exp(p + h) : p + h);
        is_made = make(s, way, &moved) && is_made;
        step = is_made ? find_step(s, made.x, moved.x, h) : (double)NAN;
        nd_array_deinit(&made);
        nd_array_deinit(&moved);
        if (isfinite(step))
            p += number->is_positive ? fmin(fmax(step, -2), 2) : step;
        else if (i < MAX_HALVES) /* a bound that no value reaches moves none */
            p = number->is_positive ? p - log(2) : p / 2;
        else
            return (double)NAN;
    }
    return number->is_positive ? exp(p) : p;
}

/* The number with the fewest digits that predicts the values. unit: what the number is multiplied by to be
 * said. */
static enum nd_status try_number(struct search *s, const struct nd_float_way *way, const struct number *number,
                                 double from, double unit, enum nd_fault_kind kind, const char *before,
                                 const char *after, struct nd_error *err)
{
    enum { MAX_DIGITS = 4 };
    enum nd_status status = s->out->is_found ? ND_OK : go_to(s, s->worst, err);
    double found = status == ND_OK && !s->out->is_found ? solve(s, way, number, from) : (double)NAN;
    for (int digits = 1; digits <= MAX_DIGITS + 1 && isfinite(found) && status == ND_OK; digits++) {
        char text[32];
        snprintf(text, sizeof text, "%.*g", digits, found * unit);
        struct names names = {.text = ""};
        double said = digits <= MAX_DIGITS ? strtod(text, NULL) : found * unit;
        turn(number, said / unit);
        status = try_name(s, way, text, &names, err);
        if (names.text[0] != '\0')
            tell(s, &names.score, kind, said, "%s%.6g%s", before, said, after);
    }
    return status;
}

/* ---- attributes ---- */

static enum nd_status try_value(struct search *s, const struct nd_attribute_row *row,
                                const struct nd_changed_node *changed, struct names *names,
                                struct nd_error *err)
{
    double value = (double)changed->ints[0];
    const struct nd_array axis = {
        .shape = {.rank = 1, .dims = {1}}, .n = 1, .dtype = ND_DTYPE_I64, .x = &value};
    bool is_operand = row->type == ND_ATTRIBUTE_AXES && s->e->nodes[s->step].n_inputs > 1;
    const struct nd_float_way way = {
        .proto = is_operand ? NULL : &changed->node, .operand = is_operand ? 1 : SIZE_MAX, .value = &axis};
    return try_name(s, &way, row->values != NULL ? changed->text : "with begin and end exchanged", names, err);
}

static enum nd_status try_real(struct search *s, const struct nd_attribute_row *row,
                               struct nd_changed_node *changed, const char *after, struct nd_error *err)
{
    char before[96];
    const struct nd_float_way way = {.proto = &changed->node, .operand = SIZE_MAX};
    const struct number number = {.attribute = &changed->changed.f,
                                  .is_positive = strcmp(row->name, "epsilon") == 0};
    snprintf(before, sizeof before, "computed with %s ", row->name);
    return try_number(s, &way, &number, (double)changed->changed.f, 1, ND_FAULT_OTHER_ATTRIBUTE, before, after,
                      err);
}

/* One row, in words that go to *all; `beside`: a change was made before. A number is told at once. */
static enum nd_status try_row(struct search *s, const Onnx__NodeProto *node, const struct nd_attribute_row *row,
                              bool is_beside, struct names *all, struct nd_error *err)
{
    char own[32], after[64] = "";
    struct names names = {.text = ""};
    struct nd_changed_node changed;
    enum nd_status status = ND_OK;
    size_t length = strlen(all->text);
    if (nd_attribute_own(node, row, own)[0] != '\0')
        snprintf(after, sizeof after, ", not %s", own);
    for (size_t k = 0; k < ND_MAX_RANK && status == ND_OK; k++) {
        if (!nd_attribute_change(node, row, k, &changed))
            continue;
        if (row->type != ND_ATTRIBUTE_REAL)
            status = try_value(s, row, &changed, &names, err);
        else if (!is_beside && length == 0)
            status = try_real(s, row, &changed, after, err);
    }
    if (names.text[0] == '\0')
        return status;
    snprintf(all->text + length, sizeof all->text - length, "%s%s %.72s%.40s", length > 0 ? ", or with " : "",
             row->name, names.text, after);
    all->score = length == 0 ? names.score : all->score;
    all->may_be_arithmetic = row->type == ND_ATTRIBUTE_APPROXIMATION;
    return status;
}

static enum nd_status try_attributes(struct search *s, const Onnx__NodeProto *node, size_t first,
                                     const char *beside, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    struct names all = {.text = ""};
    const struct nd_attribute_row *row;
    for (size_t at = first; status == ND_OK && (row = nd_attribute_row_of(node, &at)) != NULL; at++)
        if (!s->is_tight || row->type != ND_ATTRIBUTE_APPROXIMATION)
            status = try_row(s, node, row, beside[0] != '\0', &all, err);
    if (all.text[0] == '\0' || s->out->is_found)
        return status;
    /* Of two changes at once others may give the same values. */
    tell(s, &all.score, ND_FAULT_OTHER_ATTRIBUTE, 0, "computed %swith %s%s", beside[0] != '\0' ? "as " : "",
         all.text, beside);
    s->out->may_be_arithmetic = all.may_be_arithmetic;
    return status;
}

/* Two of them, neither of which is solved for. */
static enum nd_status try_two_attributes(struct search *s, struct nd_error *err)
{
    const Onnx__NodeProto *node = s->e->nodes[s->step].proto;
    const struct nd_attribute_row *row;
    for (size_t at = 0; (row = nd_attribute_row_of(node, &at)) != NULL; at++)
        for (size_t k = 0; !s->out->is_found && k < ND_MAX_RANK; k++) {
            struct nd_changed_node changed;
            char beside[80];
            if (row->type == ND_ATTRIBUTE_REAL || row->type == ND_ATTRIBUTE_AXES ||
                !nd_attribute_change(node, row, k, &changed))
                continue;
            snprintf(beside, sizeof beside, " and %s %s", row->name,
                     row->values != NULL ? changed.text : "with begin and end exchanged");
            ND_TRY(try_attributes(s, &changed.node, at + 1, beside, err));
        }
    return ND_OK;
}

/* ---- constants ---- */

static bool is_any(const char *op_type, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(op_type, names[i]) == 0)
            return true;
    return false;
}

/* Whether the operand is added to the result: the bias of a product or of a norm, or a term. */
static bool is_added(const char *op_type, size_t i)
{
    static const char *const sums[] = {"Add", "Sub", "Sum"};
    static const char *const with_bias[] = {"Conv",
                                            "ConvTranspose",
                                            "Gemm",
                                            "BatchNormalization",
                                            "InstanceNormalization",
                                            "GroupNormalization",
                                            "LayerNormalization"};
    return is_any(op_type, sums, sizeof sums / sizeof sums[0]) ||
           (i == 2 && is_any(op_type, with_bias, sizeof with_bias / sizeof with_bias[0]));
}

static enum nd_status try_constant(struct search *s, size_t i, struct nd_error *err)
{
    const struct nd_float_node *node = &s->e->nodes[s->step];
    const Onnx__NodeProto *proto = node->proto;
    const struct nd_array *constant = node->inputs[i].constant;
    const char *op_type = nd_onnx_text(proto->op_type), *name = nd_onnx_text(proto->input[i]);
    struct nd_float_way way = {.operand = i, .factor = 1};
    const struct number number = {.factor = &way.factor};
    char before[96], after[32] = " times as large";
    ND_TRY(nd_exact_hold(s->e->plan->graph, constant, err));
    double value = constant->n == 1 ? constant->x[0] : 0;
    nd_exact_release(s->e->plan->graph, constant);
    if (value != 0) {
        snprintf(before, sizeof before, "the constant '%.32s' is ", name);
        snprintf(after, sizeof after, ", not %.6g", value);
        return try_number(s, &way, &number, 1, value, ND_FAULT_OTHER_CONSTANT, before, after, err);
    }
    static const char *const said[] = {"is left out", "has the other sign"};
    for (int k = 0; k < 2 && is_added(op_type, i); k++) {
        struct names names = {.text = ""};
        way.factor = -k;
        ND_TRY(try_name(s, &way, said[k], &names, err));
        if (names.text[0] != '\0')
            tell(s, &names.score, ND_FAULT_BIAS, way.factor, "the constant '%.32s' %s", name, names.text);
    }
    bool is_beside_bias = i == 1 && node->n_inputs > 2 && is_added(op_type, 2);
    snprintf(before, sizeof before, "the constant '%.32s' is ", name);
    return is_beside_bias || is_added(op_type, i)
               ? try_number(s, &way, &number, 1, 1, ND_FAULT_OTHER_CONSTANT, before, after, err)
               : ND_OK;
}

static enum nd_status try_constants(struct search *s, struct nd_error *err)
{
    const struct nd_float_node *node = &s->e->nodes[s->step];
    for (size_t i = node->n_inputs; i-- > 0 && !s->out->is_found;)
        if (node->inputs[i].source == ND_FLOAT_CONSTANT && nd_dtype_is_float(node->inputs[i].constant->dtype))
            ND_TRY(try_constant(s, i, err));
    return ND_OK;
}

/* ---- a flat index ---- */

static enum nd_status try_flat(struct search *s, struct nd_error *err)
{
    static const char *const pairwise[] = {"Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "PRelu", "Mod"};
    const struct nd_float_node *node = &s->e->nodes[s->step];
    const Onnx__NodeProto *proto = node->proto;
    if (node->n_inputs != 2 ||
        !is_any(nd_onnx_text(proto->op_type), pairwise, sizeof pairwise / sizeof *pairwise))
        return ND_OK;
    for (size_t i = 0; i < 2; i++) {
        struct names names = {.text = ""};
        const struct nd_float_way way = {.operand = i, .is_flat = true};
        ND_TRY(try_name(s, &way, i == 0 ? "first" : "second", &names, err));
        if (names.text[0] != '\0')
            tell(s, &names.score, ND_FAULT_FLAT_INDEX, 0,
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
    struct names names = {.text = ""};
    if (!s->model.is_whole && s->model.digits != ND_SINGLE_DIGITS)
        return ND_OK;
    for (size_t k = 0; k < N_NARROWS; k++) {
        const struct nd_float_way way = {
            .operand = SIZE_MAX, .read = narrows[k].read, .convert = narrows[k].convert};
        if (s->model.is_whole || !narrows[k].is_of_whole)
            ND_TRY(try_name(s, &way, narrows[k].type, &names, err));
        bool is_last = k + 1 == N_NARROWS || strcmp(narrows[k + 1].text, narrows[k].text) != 0;
        if (is_last && names.text[0] != '\0' && !s->out->is_found)
            tell(s, &names.score, ND_FAULT_NARROW_TYPE, 0, "%s %s%s", narrows[k].text, names.text,
                 meaning(s, &narrows[k]));
    }
    return ND_OK;
}

/* ---- all of it ---- */

static enum nd_status try_ways(struct search *s, struct nd_error *err)
{
    ND_TRY(try_attributes(s, s->e->nodes[s->step].proto, 0, "", err));
    ND_TRY(try_constants(s, err));
    ND_TRY(try_flat(s, err));
    ND_TRY(try_narrow(s, err));
    return try_two_attributes(s, err);
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
    struct nd_evidence evidence = {.n_samples = s->n_samples,
                                   .n = s->n,
                                   .shape = plan->shapes[s->step],
                                   .dtype = nd_capture_tensor(source->capture, source->tensors[s->step])->dtype,
                                   .expected = s->expected,
                                   .captured = s->captured,
                                   .bound = s->bound};
    struct nd_findings found = {0};
    enum nd_status status = nd_diagnose_tensor(&evidence, &found, err);
    s->out->is_exact = found.n_gross > 0 && is_line(found.items[0].kind);
    if (status == ND_OK && !s->out->is_exact && !s->is_tight) {
        evidence.bound = NULL; /* beside arithmetic that is coarser than its bounds */
        status = nd_diagnose_tensor(&evidence, &found, err);
    }
    s->out->is_found = found.n_gross > 0;
    if (s->out->is_found)
        s->out->finding = found.items[0];
    return status;
}

static enum nd_status search(struct search *s, struct nd_error *err)
{
    size_t n_all = s->n_samples * s->n;
    s->expected = nd_calloc(3 * n_all + s->n + 1, sizeof *s->expected);
    ND_TRY_MEMORY(s->expected != NULL, err);
    s->captured = s->expected + n_all;
    s->bound = s->captured + n_all;
    s->scratch = s->bound + n_all;
    enum nd_status status = nd_reader_init(&s->reader, s->e->plan, err);
    for (size_t i = 0; i < s->n_samples && status == ND_OK; i++)
        status = collect_sample(s, i, err);
    if (status == ND_OK && s->n_far >= (size_t)(s->model.is_whole ? MIN_FAR_WHOLE : MIN_FAR))
        status = try_ways(s, err);
    if (status == ND_OK && !s->out->is_found)
        status = try_values(s, err);
    nd_reader_deinit(&s->reader);
    free(s->expected);
    return status;
}

enum nd_status nd_float_find_fault(const struct nd_float_evaluation *e, size_t device, size_t step,
                                   bool is_tight, struct nd_float_fault *out, struct nd_error *err)
{
    struct search s = {.e = e, .device = device, .step = step, .is_tight = is_tight, .out = out};
    enum nd_status status = nd_shape_n_elems(&e->plan->shapes[step], &s.n, err);
    *out = (struct nd_float_fault){0};
    if (status != ND_OK || s.n == 0)
        return status;
    s.n_samples = e->plan->n_samples < MAX_SAMPLES ? e->plan->n_samples : MAX_SAMPLES;
    while (s.n_samples > 1 && s.n_samples * s.n > MAX_VALUES)
        s.n_samples--;
    return search(&s, err);
}
