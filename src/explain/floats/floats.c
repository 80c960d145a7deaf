/* Every layer whose values are floats or whole numbers, in all samples on all devices: what its values are off,
 * and what that does to the outputs. docs/science/theory.md#floats.
 *
 * One layer: its values from any reading of its inputs, and how far a value may be off in half precision, or in
 * float32.
 *
 * Of sums of n products, u = 2^-digits being half a unit in the last place: |computed - exact| <= gamma_n
 * |A||x|, gamma_n = n u / (1 - n u), whatever the order (Higham, Accuracy and Stability of Numerical
 * Algorithms, 2nd edition, 2002, section 3.1). gamma_n is of no use where n u is near 1: half precision, 500
 * terms. Errors of rounding are taken as independent: then, but for 2 n exp(-lambda^2 / 2) of the cases,
 * exp(lambda sqrt(n) u + n u^2 / (1 - u)) - 1 takes its place (Higham and Mary 2019, SIAM Journal on Scientific
 * Computing 41, theorem 2.4). n + 2 terms: the operands are rounded, too.
 *
 * Other operators: a computation that is backward stable gives the exact result of inputs that are each off by
 * a rounding. Four patterns of signs show how far that moves a value. */
#include <math.h>

#include "core/memory.h"
#include "core/random.h"
#include "explain/evaluate/evaluation.h"
#include "explain/floats/floats.h"
#include "model/graph/onnx.h"

static const double lambda = 6;        /* 2 exp(-18): 3e-8 of the values; chosen */
static const double own_roundings = 2; /* layers u of the value itself: to float32, then to half precision */
/* Of functions (Exp, Softmax, Gelu): layers u of the value and patterns of their inputs; chosen: a table or a
 * polynomial of a few layers. */
static const double function_roundings = 16, patterns_reach = 4;
/* Layers u of a number inside a function (nd_float_node_inside); chosen, once more than the simulator's Gelu
 * needs. */
static const double inside_roundings = 4;
enum { N_PATTERNS = 4 };

static int min_exponent(int digits)
{
    return digits == ND_HALF_DIGITS ? -14 : -126;
}

/* The distance of two numbers of so many digits at x. */
static double float_ulp(double x, int digits)
{
    int exponent;
    if (!isfinite(x))
        return (double)NAN;
    frexp(x, &exponent); /* |x| < 2^exponent */
    int least = min_exponent(digits) + 1;
    exponent = x == 0 || exponent < least ? least : exponent;
    return ldexp(1, exponent - digits);
}

/* To that many digits, half to even. Half precision overflows to infinity. */
static double float_round(double x, int digits)
{
    if (!isfinite(x) || digits == ND_WHOLE_DIGITS)
        return x;
    if (digits == ND_SINGLE_DIGITS)
        return (double)(float)x;
    double ulp = float_ulp(x, digits), y = rint(x / ulp) * ulp;
    return digits == ND_HALF_DIGITS && fabs(y) > 65504 ? copysign((double)INFINITY, x) : y;
}

static double cut(double x, int digits)
{
    double ulp = float_ulp(x, digits);
    return isfinite(x) ? trunc(x / ulp) * ulp : x;
}

double nd_float_narrow(const struct nd_float_narrow *narrow, double x)
{
    if (narrow->digits > 0)
        return narrow->cuts ? cut(x, narrow->digits) : float_round(x, narrow->digits);
    double from_low = x - narrow->low;
    return narrow->low + (narrow->clamps ? fmin(fmax(from_low, 0), narrow->range - 1)
                                         : from_low - narrow->range * floor(from_low / narrow->range));
}

const char *nd_float_type_name(int digits)
{
    return digits == ND_WHOLE_DIGITS    ? "integer"
           : digits == ND_BFLOAT_DIGITS ? "bfloat16"
           : digits == ND_HALF_DIGITS   ? "float16"
                                        : "float32";
}

/* ---- readings ---- */

static void read_as(int digits, enum nd_float_reading reading, uint64_t *random, struct nd_array *array)
{
    double u = ldexp(1, -digits);
    for (size_t i = 0; i < array->n; i++) {
        double x = float_round(array->x[i], digits);
        if (reading == ND_FLOAT_MAGNITUDES)
            x = fabs(x);
        else if (reading == ND_FLOAT_SHAKEN)
            x *= (nd_splitmix_next(random) & 1) != 0 ? 1 + u : 1 - u;
        array->x[i] = x;
    }
}

static void dequantise(const struct nd_quant *quant, struct nd_array *qvalues)
{
    qvalues->dtype = ND_DTYPE_F32;
    for (size_t i = 0; i < qvalues->n; i++) {
        size_t channel = nd_exact_channel(quant, &qvalues->shape, i);
        qvalues->x[i] = (double)quant->scale[channel] * (qvalues->x[i] - (double)quant->zero_point[channel]);
    }
}

/* Values that a device computed are on its grid: they are rounded by nobody. */
static bool is_changed(const struct nd_float_node *node, size_t i, const struct nd_array *values,
                       enum nd_float_reading reading)
{
    bool is_float = nd_dtype_is_float(values->dtype) || node->inputs[i].source == ND_FLOAT_QVALUES;
    if (!is_float || reading == ND_FLOAT_AS_THEY_ARE)
        return false;
    return reading != ND_FLOAT_ROUNDED || node->inputs[i].source != ND_FLOAT_TENSOR;
}

static const struct nd_array *find_values(const struct nd_float_case *c, size_t i,
                                          enum nd_float_reading reading)
{
    const struct nd_float_node *node = &c->evaluation->nodes[c->step];
    const struct nd_array *kept = &c->evaluation->constants[c->step * ND_FLOAT_OPERANDS + i];
    switch (node->inputs[i].source) {
    case ND_FLOAT_CONSTANT:
        return reading != ND_FLOAT_AS_THEY_ARE && c->digits == ND_HALF_DIGITS && kept->shape.rank >= 0
                   ? kept
                   : node->inputs[i].constant;
    case ND_FLOAT_INPUT:
        return &c->reader->inputs[node->inputs[i].index];
    case ND_FLOAT_TENSOR:
    case ND_FLOAT_QVALUES:
        return &c->values[node->inputs[i].index];
    case ND_FLOAT_OMITTED:
        break;
    }
    return NULL;
}

struct method {
    enum nd_float_reading reading;
    uint64_t random;
};

static enum nd_status read_input(const struct nd_float_case *c, size_t i, struct method *method,
                                 struct nd_array *own, const struct nd_array **out, struct nd_error *err);

/* A tensor that was not captured, and whose maker only moves values: what the maker reads tells. What is read
 * by a flat index is what the maker repeats. */
static enum nd_status make_input(const struct nd_float_case *c, size_t i, struct method *method,
                                 struct nd_array *out, struct nd_error *err)
{
    const struct nd_float_evaluation *e = c->evaluation;
    const struct nd_float_node *node = &e->nodes[c->step];
    bool is_tensor = node->inputs[i].source == ND_FLOAT_TENSOR;
    size_t step = is_tensor ? e->plan->step_of_tensor[node->inputs[i].index] : SIZE_MAX;
    if (step == SIZE_MAX || !e->is_known[step] || !nd_onnx_is_mover(e->nodes[step].proto))
        return nd_fail(err, ND_E_EXACT_UNKNOWN, NULL, "what it reads is not known");
    struct nd_float_case maker = *c;
    maker.step = step;
    maker.way = NULL;
    if (c->way == NULL || !c->way->is_flat || c->way->operand != i)
        return nd_float_run(&maker, method->reading, (unsigned)method->random, out, err);
    ND_CLEANUP(nd_array_deinit) struct nd_array own = {0};
    const struct nd_array *read = NULL;
    ND_TRY(read_input(&maker, 0, method, &own, &read, err));
    return nd_array_copy(read, out, err);
}

/* Input i in that reading: values that are there already, or made of them in `own`. NULL: it is omitted. */
static enum nd_status read_input(const struct nd_float_case *c, size_t i, struct method *method,
                                 struct nd_array *own, const struct nd_array **out, struct nd_error *err)
{
    enum nd_float_reading reading = method->reading;
    const struct nd_float_node *node = &c->evaluation->nodes[c->step];
    *out = find_values(c, i, reading);
    if (*out == NULL)
        return ND_OK;
    if ((*out)->shape.rank < 0) {
        *out = own;
        return make_input(c, i, method, own, err);
    }
    bool are_qvalues = node->inputs[i].source == ND_FLOAT_QVALUES;
    const struct nd_array *kept = &c->evaluation->constants[c->step * ND_FLOAT_OPERANDS + i];
    bool is_kept = node->inputs[i].source == ND_FLOAT_CONSTANT && reading == ND_FLOAT_ROUNDED &&
                   (*out == kept || c->digits == ND_SINGLE_DIGITS);
    bool is_read = !is_kept && is_changed(node, i, *out, reading);
    if (!are_qvalues && !is_read)
        return ND_OK;
    enum nd_status status = nd_array_copy(*out, own, err);
    if (status == ND_OK && are_qvalues)
        dequantise(node->inputs[i].quant, own);
    if (status == ND_OK && is_read)
        read_as(c->digits, reading, &method->random, own);
    *out = own;
    return status;
}

/* The operand in the place of the model's. */
static enum nd_status change_operand(const struct nd_float_way *way, const struct nd_array **inputs,
                                     struct nd_array *own, struct nd_error *err)
{
    struct nd_array changed = {0};
    const struct nd_array *from = inputs[way->operand], *other = inputs[way->is_flat ? 1 - way->operand : 0];
    if (from == NULL || other == NULL || from->n == 0)
        return nd_fail(err, ND_E_EXACT_UNKNOWN, NULL, "it has no such operand");
    const struct nd_array *like = way->is_flat ? other : way->value != NULL ? way->value : from;
    enum nd_status status = nd_array_copy(like, &changed, err);
    changed.dtype = from->dtype;
    for (size_t k = 0; status == ND_OK && way->value == NULL && k < changed.n; k++)
        changed.x[k] = way->is_flat ? from->x[k % from->n] : way->factor * from->x[k];
    nd_array_deinit(own);
    *own = changed;
    inputs[way->operand] = own;
    return status;
}

static enum nd_status change_read(const struct nd_float_way *way, size_t i, const struct nd_array **inputs,
                                  struct nd_array *own, struct nd_error *err)
{
    if (inputs[i] == NULL || !nd_dtype_is_float(inputs[i]->dtype))
        return ND_OK;
    enum nd_status status = inputs[i] == own ? ND_OK : nd_array_copy(inputs[i], own, err);
    for (size_t k = 0; status == ND_OK && k < own->n; k++)
        own->x[k] = nd_float_narrow(way->read, own->x[k]);
    inputs[i] = own;
    return status;
}

enum nd_status nd_float_run(const struct nd_float_case *c, enum nd_float_reading reading, unsigned seed,
                            struct nd_array *out, struct nd_error *err)
{
    struct nd_float_node node = c->evaluation->nodes[c->step];
    const struct nd_array *inputs[ND_FLOAT_OPERANDS] = {NULL};
    struct nd_array own[ND_FLOAT_OPERANDS] = {0};
    const struct nd_float_way *way = c->way;
    enum nd_status status = ND_OK;
    struct method method = {reading, (uint64_t)c->step * 1000 + seed};
    const struct nd_exact_graph *graph = c->evaluation->plan->graph;
    size_t n_held = 0;
    for (; n_held < node.n_inputs && status == ND_OK; n_held += status == ND_OK)
        status = nd_exact_hold(graph, node.inputs[n_held].constant, err);
    for (size_t i = 0; i < node.n_inputs && status == ND_OK; i++) {
        status = read_input(c, i, &method, &own[i], &inputs[i], err);
        if (status == ND_OK && way != NULL && way->read != NULL)
            status = change_read(way, i, inputs, &own[i], err);
    }
    if (status == ND_OK && way != NULL && way->operand < node.n_inputs)
        status = change_operand(way, inputs, &own[way->operand], err);
    node.proto = way != NULL && way->proto != NULL ? way->proto : node.proto;
    if (status == ND_OK)
        status = nd_float_node_run(&node, inputs, out, err);
    for (size_t k = 0; status == ND_OK && way != NULL && way->convert != NULL && k < out->n; k++)
        out->x[k] = nd_float_narrow(way->convert, out->x[k]);
    for (size_t i = 0; i < node.n_inputs; i++)
        nd_array_deinit(&own[i]);
    while (n_held > 0)
        nd_exact_release(graph, node.inputs[--n_held].constant);
    return status;
}

/* ---- bounds ---- */

static enum nd_status bound_sums(const struct nd_float_case *c, size_t n_terms, const struct nd_array *exact,
                                 double *bound, struct nd_error *err)
{
    ND_CLEANUP(nd_array_deinit) struct nd_array magnitudes = {0};
    double u = ldexp(1, -c->digits);
    double n = (double)n_terms + 2;
    double gamma = expm1(lambda * sqrt(n) * u + n * u * u / (1 - u));
    ND_TRY(nd_float_run(c, ND_FLOAT_MAGNITUDES, 0, &magnitudes, err));
    for (size_t i = 0; i < exact->n && i < magnitudes.n; i++)
        bound[i] = gamma * fabs(magnitudes.x[i]);
    return ND_OK;
}

/* How far values move where what is read is off by a rounding. */
static enum nd_status shake(const struct nd_float_case *c, const struct nd_array *exact, double *bound,
                            double *squares, struct nd_error *err)
{
    for (unsigned k = 0; k < N_PATTERNS; k++) {
        ND_CLEANUP(nd_array_deinit) struct nd_array shaken = {0};
        ND_TRY(nd_float_run(c, ND_FLOAT_SHAKEN, k + 1, &shaken, err));
        for (size_t i = 0; i < exact->n && i < shaken.n; i++) {
            double moved = fabs(shaken.x[i] - exact->x[i]);
            if (!isfinite(moved))
                continue;
            *squares += moved * moved;
            bound[i] = fmax(bound[i], moved);
        }
    }
    return ND_OK;
}

static enum nd_status bound_others(const struct nd_float_case *c, double factor, const struct nd_array *exact,
                                   double *bound, struct nd_error *err)
{
    double squares = 0;
    enum nd_status status = shake(c, exact, bound, &squares, err);
    double usual = exact->n > 0 ? sqrt(squares / (double)exact->n / N_PATTERNS) : 0;
    for (size_t i = 0; i < exact->n; i++)
        bound[i] = factor * fmax(bound[i], usual);
    return status;
}

static enum nd_status add_inside(const struct nd_float_case *c, const struct nd_array *exact, double *bound,
                                 struct nd_error *err)
{
    enum nd_float_inside inside = nd_float_node_inside(&c->evaluation->nodes[c->step]);
    struct method method = {.reading = ND_FLOAT_AS_THEY_ARE};
    ND_CLEANUP(nd_array_deinit) struct nd_array own = {0};
    const struct nd_array *x = NULL;
    if (inside == ND_FLOAT_NOTHING_INSIDE)
        return ND_OK;
    const struct nd_exact_graph *graph = c->evaluation->plan->graph;
    const struct nd_array *constant = c->evaluation->nodes[c->step].inputs[0].constant;
    ND_TRY(nd_exact_hold(graph, constant, err));
    enum nd_status status = read_input(c, 0, &method, &own, &x, err);
    bool has_input = status == ND_OK && inside == ND_FLOAT_INPUT_INSIDE && x != NULL && x->n == exact->n;
    for (size_t i = 0; i < exact->n && status == ND_OK; i++)
        bound[i] +=
            inside_roundings * ldexp(1, -c->digits) * (has_input && isfinite(x->x[i]) ? fabs(x->x[i]) : 1);
    nd_exact_release(graph, constant);
    return status;
}

enum nd_status nd_float_bound(const struct nd_float_case *c, const struct nd_array *exact, double *bound,
                              struct nd_error *err)
{
    const struct nd_float_node *node = &c->evaluation->nodes[c->step];
    const struct nd_array *inputs[ND_FLOAT_OPERANDS];
    size_t n_terms;
    for (size_t i = 0; i < node->n_inputs; i++)
        inputs[i] = find_values(c, i, ND_FLOAT_AS_THEY_ARE);
    memset(bound, 0, exact->n * sizeof *bound);
    if (c->is_whole)
        return shake(c, exact, bound, &(double){0}, err);
    enum nd_float_growth growth = nd_float_node_growth(node, inputs, exact, &n_terms);
    double u = ldexp(1, -c->digits), own = growth == ND_FLOAT_OF_SUMS ? own_roundings : function_roundings;
    ND_TRY(growth == ND_FLOAT_OF_SUMS
               ? bound_sums(c, n_terms, exact, bound, err)
               : bound_others(c, patterns_reach * (growth == ND_FLOAT_OF_ROWS ? sqrt((double)n_terms) : 1),
                              exact, bound, err));
    ND_TRY(add_inside(c, exact, bound, err));
    /* Numbers below the least normal one may be flushed to zero. */
    double least = ldexp(1, min_exponent(c->digits));
    for (size_t i = 0; i < exact->n; i++)
        bound[i] += own * u * fabs(exact->x[i]) + least;
    return ND_OK;
}

enum nd_status nd_float_expect(const struct nd_float_case *c, struct nd_array *out, struct nd_error *err)
{
    ND_TRY(nd_float_run(c, ND_FLOAT_ROUNDED, 0, out, err));
    for (size_t i = 0; !c->is_whole && i < out->n; i++)
        out->x[i] = float_round(out->x[i], c->digits);
    return ND_OK;
}

struct worker {
    struct nd_reader reader;
    struct nd_float_evaluation *evaluation;
    struct nd_array *reference; /* [n_edges] rank < 0: none */
    struct nd_array *changed;   /* [n_edges] of effects; views of reference where nothing changed */
    bool *is_changed;           /* [n_edges] */
    struct nd_array *error;     /* [n_steps] what the device's values are off, of the device at hand */
};

struct nd_float_sums *nd_float_sums_of(const struct nd_float_evaluation *e, size_t sample, size_t device,
                                       size_t step)
{
    return &e->sums[(sample * e->plan->n_devices + device) * e->plan->n_steps + step];
}

bool nd_float_is_step(const struct nd_plan *plan, size_t device, size_t step)
{
    const struct nd_plan_source *source = &plan->sources[device];
    const struct nd_tensor *tensor = nd_plan_tensor(plan, step);
    return !source->is_failed && source->tensors[step] != SIZE_MAX && tensor->quant.n == 0 &&
           !tensor->is_model_input;
}

static enum nd_dtype dtype_of(const struct nd_float_evaluation *e, size_t device, size_t step)
{
    const struct nd_plan_source *source = &e->plan->sources[device];
    return nd_capture_tensor(source->capture, source->tensors[step])->dtype;
}

int nd_float_digits_of(const struct nd_float_evaluation *e, size_t device, size_t step)
{
    enum nd_dtype dtype = dtype_of(e, device, step);
    return !nd_dtype_is_float(dtype) ? ND_WHOLE_DIGITS
           : dtype == ND_DTYPE_F16   ? ND_HALF_DIGITS
           : dtype == ND_DTYPE_BF16  ? ND_BFLOAT_DIGITS
                                     : e->digits[device];
}

struct nd_float_case nd_float_case_of(const struct nd_float_evaluation *e, const struct nd_reader *reader,
                                      const struct nd_array *values, size_t step)
{
    int digits = nd_float_digits_of(e, reader->device, step);
    bool is_whole = digits == ND_WHOLE_DIGITS;
    return (struct nd_float_case){.evaluation = e,
                                  .reader = reader,
                                  .values = values,
                                  .step = step,
                                  .digits = is_whole ? e->digits[reader->device] : digits,
                                  .is_whole = is_whole};
}

/* ---- the reference: in double precision, from the inputs of the model ---- */

static void forget(struct nd_array *array)
{
    if (array->shape.rank >= 0)
        nd_array_deinit(array);
    *array = nd_no_array();
}

/* What cannot be worked out has no values; only memory is trouble. */
static enum nd_status run_or_none(const struct nd_float_case *c, enum nd_float_reading reading,
                                  struct nd_array *out, struct nd_error *err)
{
    struct nd_error why;
    forget(out);
    *out = (struct nd_array){0};
    enum nd_status status =
        c->evaluation->is_known[c->step] ? nd_float_run(c, reading, 0, out, &why) : ND_ERR_UNSUPPORTED;
    if (status == ND_OK)
        return ND_OK;
    nd_array_deinit(out);
    *out = nd_no_array();
    return status == ND_ERR_MEMORY ? nd_fail_memory(err) : ND_OK;
}

static enum nd_status run_reference(struct worker *w, struct nd_error *err)
{
    const struct nd_plan *plan = w->reader.plan;
    for (size_t s = 0; s < plan->n_steps; s++) {
        const struct nd_float_case c = {w->evaluation, &w->reader, w->reference, s, .digits = ND_SINGLE_DIGITS};
        ND_TRY(run_or_none(&c, ND_FLOAT_AS_THEY_ARE, &w->reference[plan->steps[s].tensor], err));
    }
    return ND_OK;
}

/* ---- a step on a device ---- */

/* type_digits: of the tensor's type, which may hold more than the arithmetic does: an infinity of half
 * precision in a float32 tensor is a value that is lost. */
static void count_value(struct nd_float_sums *sums, double given, double exact, double bound, int digits,
                        int type_digits)
{
    double off = given - exact, ulp = float_ulp(exact, digits), rounded = float_round(exact, digits);
    sums->n++;
    if (digits == ND_WHOLE_DIGITS) {
        sums->n_rounded += off == 0;
        sums->n_beyond += fabs(off) > bound;
        sums->max_ulp = fmax(sums->max_ulp, fabs(off));
        return;
    }
    if (!isfinite(given) && isfinite(float_round(exact, type_digits))) {
        sums->n_lost++;
        return;
    }
    if (!isfinite(exact) || !isfinite(rounded)) {
        sums->n_overflown += isfinite(exact) ? 1 : 0;
        return; /* whatever a device makes of it */
    }
    /* Qualcomm's simulator gives the float next to the one of half precision. */
    bool is_rounded = fabs(given - rounded) <= ulp * 0x1p-12 ||
                      fabs(given - float_round((double)(float)exact, digits)) <= ulp * 0x1p-12;
    sums->n_rounded += is_rounded;
    sums->n_flushed += !is_rounded && given == 0;
    double size = is_rounded ? 0 : fabs(off) / ulp;
    sums->max_ulp = fmax(sums->max_ulp, size);
    sums->sum_ulp += size;
    sums->n_beyond += !is_rounded && fabs(off) > bound;
    sums->worst = fmax(sums->worst, is_rounded ? 0 : fabs(off) / bound);
}

/* Values that rounding and cutting off tell apart, and those that are cut off: of inputs that are rounded, as
 * they are, or cut off. */
static enum nd_status count_cut(struct nd_float_case c, const struct nd_array *given,
                                struct nd_float_sums *sums, struct nd_error *err)
{
    const struct nd_float_narrow narrow = {.digits = c.digits, .cuts = true};
    const struct nd_float_way of_cut = {.operand = SIZE_MAX, .read = &narrow};
    for (size_t k = 0; k < ND_FLOAT_CUTS; k++) {
        ND_CLEANUP(forget) struct nd_array exact = nd_no_array();
        c.way = k == 2 ? &of_cut : NULL;
        ND_TRY(run_or_none(&c, k == 0 ? ND_FLOAT_ROUNDED : ND_FLOAT_AS_THEY_ARE, &exact, err));
        for (size_t i = 0; i < exact.n && i < given->n; i++) {
            double x = nd_float_narrow(&narrow, exact.x[i]), ulp = float_ulp(exact.x[i], c.digits);
            if (!isfinite(x) || fabs(x - float_round(exact.x[i], c.digits)) < ulp / 2)
                continue;
            sums->n_telling[k]++;
            sums->n_cut[k] += fabs(given->x[i] - x) <= ulp * 0x1p-12;
        }
    }
    return ND_OK;
}

/* own: from the constants as the model has them; reference: nullable. */
static void add_squares(struct nd_float_sums *sums, const struct nd_array *given, const struct nd_array *own,
                        const struct nd_array *reference)
{
    sums->has_reference = reference->shape.rank >= 0 && reference->n == own->n;
    for (size_t i = 0; i < own->n; i++) {
        double introduced = given->x[i] - own->x[i];
        double ref = sums->has_reference ? reference->x[i] : own->x[i];
        double total = given->x[i] - ref, passed_on = own->x[i] - ref;
        if (!isfinite(total)) /* it is counted as lost, or the reference is no number */
            continue;
        sums->signal += ref * ref;
        sums->total += total * total;
        sums->introduced += isfinite(introduced) ? introduced * introduced : 0;
        sums->passed_on += isfinite(passed_on) ? passed_on * passed_on : 0;
    }
}

static enum nd_status count_values(const struct nd_float_case *c, const struct nd_array *given,
                                   struct nd_float_sums *sums, struct nd_error *err)
{
    struct nd_array exact = nd_no_array();
    int type_digits = given->dtype == ND_DTYPE_F16 ? ND_HALF_DIGITS : ND_SINGLE_DIGITS;
    enum nd_status status = run_or_none(c, ND_FLOAT_ROUNDED, &exact, err);
    ND_FREED double *bound = nd_calloc(given->n + 1, sizeof *bound);
    if (bound == NULL)
        status = nd_fail_memory(err);
    sums->is_missed = exact.shape.rank < 0 || exact.n != given->n;
    if (status == ND_OK && !sums->is_missed)
        status = nd_float_bound(c, &exact, bound, err);
    for (size_t i = 0; status == ND_OK && !sums->is_missed && i < given->n; i++)
        count_value(sums, given->x[i], exact.x[i], bound[i], c->is_whole ? ND_WHOLE_DIGITS : c->digits,
                    type_digits);
    forget(&exact);
    return status;
}

enum nd_status nd_float_count_with(const struct nd_float_evaluation *e, const struct nd_reader *reader,
                                   size_t step, size_t input, const struct nd_array *constant,
                                   struct nd_float_sums *sums, struct nd_error *err)
{
    const struct nd_float_way way = {.operand = input, .value = constant, .factor = 1};
    struct nd_float_case c = nd_float_case_of(e, reader, reader->given, step);
    c.way = &way;
    return count_values(&c, &reader->given[e->plan->steps[step].tensor], sums, err);
}

/* Samples in which it is looked for; chosen: what a device does it does in all of them. */
enum { MAX_CUT_SAMPLES = 4, MAX_GRID_SAMPLES = 4 };

/* An HTP's arithmetic is known, and does not cut off. */
static bool may_cut(const struct nd_float_evaluation *e, size_t device, size_t step)
{
    enum nd_expectation expected = e->plan->sources[device].expectation;
    int digits = nd_float_digits_of(e, device, step);
    return (digits == ND_BFLOAT_DIGITS || digits == ND_HALF_DIGITS) && expected != ND_EXPECT_V69 &&
           expected != ND_EXPECT_V73;
}

static enum nd_status run_step(struct worker *w, size_t s, struct nd_error *err)
{
    struct nd_reader *r = &w->reader;
    const struct nd_plan *plan = r->plan;
    struct nd_float_sums *sums = nd_float_sums_of(w->evaluation, r->sample, r->device, s);
    const struct nd_array *given = &r->given[plan->steps[s].tensor];
    forget(&w->error[s]);
    if (!nd_float_is_step(plan, r->device, s))
        return ND_OK;
    struct nd_float_case c = nd_float_case_of(w->evaluation, r, r->given, s);
    enum nd_status status = count_values(&c, given, sums, err);
    if (status == ND_OK && !sums->is_missed && may_cut(w->evaluation, r->device, s) &&
        r->sample < MAX_CUT_SAMPLES)
        status = count_cut(c, given, sums, err);
    if (status == ND_OK && !sums->is_missed)
        status = run_or_none(&c, ND_FLOAT_AS_THEY_ARE, &w->error[s], err);
    bool is_known = status == ND_OK && w->error[s].shape.rank >= 0;
    if (r->sample < MAX_GRID_SAMPLES && !c.is_whole)
        nd_fallback_count_floats(&sums->grid, given->x, is_known ? w->error[s].x : NULL, given->n);
    if (!is_known)
        return status;
    add_squares(sums, given, &w->error[s], &w->reference[plan->steps[s].tensor]);
    for (size_t i = 0; i < given->n; i++)
        w->error[s].x[i] = given->x[i] - w->error[s].x[i];
    return ND_OK;
}

/* ---- effects: the reference again, with nothing but one step's own error put in ---- */

static bool reads_changed(const struct worker *w, size_t step)
{
    const struct nd_float_node *node = &w->evaluation->nodes[step];
    for (size_t i = 0; w->evaluation->is_known[step] && i < node->n_inputs; i++)
        if (node->inputs[i].source == ND_FLOAT_TENSOR && w->is_changed[node->inputs[i].index])
            return true;
    return false;
}

static enum nd_status change_behind(struct worker *w, size_t step, struct nd_float_sums *sums,
                                    struct nd_error *err)
{
    const struct nd_plan *plan = w->reader.plan;
    enum nd_status status = ND_OK;
    for (size_t s = step; s < plan->n_steps && status == ND_OK; s++) {
        size_t tensor = plan->steps[s].tensor;
        const struct nd_array *ref = &w->reference[tensor];
        if (s > step && reads_changed(w, s)) {
            const struct nd_float_case c = {w->evaluation, &w->reader, w->changed, s,
                                            .digits = ND_SINGLE_DIGITS};
            w->changed[tensor] = nd_no_array();
            w->is_changed[tensor] = true;
            status = run_or_none(&c, ND_FLOAT_AS_THEY_ARE, &w->changed[tensor], err);
        }
        if (status != ND_OK || !plan->steps[s].is_model_output || ref->shape.rank < 0 ||
            !nd_dtype_is_float(ref->dtype))
            continue;
        sums->has_effect = sums->has_effect && w->changed[tensor].n == ref->n;
        for (size_t i = 0; sums->has_effect && i < ref->n; i++) {
            double d = w->changed[tensor].x[i] - ref->x[i];
            if (!isfinite(d))
                continue;
            sums->effect += d * d;
        }
    }
    return status;
}

static enum nd_status measure_effect(struct worker *w, size_t step, struct nd_error *err)
{
    const struct nd_plan *plan = w->reader.plan;
    struct nd_float_sums *sums = nd_float_sums_of(w->evaluation, w->reader.sample, w->reader.device, step);
    size_t tensor = plan->steps[step].tensor;
    if (w->error[step].shape.rank < 0 || !sums->has_reference)
        return ND_OK;
    for (size_t s = 0; s < plan->n_steps; s++) {
        size_t e = plan->steps[s].tensor;
        w->is_changed[e] = false;
        w->changed[e] = w->reference[e];
        if (plan->steps[s].is_model_output && w->reference[e].shape.rank >= 0 &&
            nd_dtype_is_float(w->reference[e].dtype))
            for (size_t i = 0; i < w->reference[e].n; i++)
                sums->effect_signal +=
                    isfinite(w->reference[e].x[i]) ? w->reference[e].x[i] * w->reference[e].x[i] : 0;
    }
    sums->has_effect = true;
    struct nd_array moved = {0};
    enum nd_status status = nd_array_copy(&w->reference[tensor], &moved, err);
    for (size_t i = 0; status == ND_OK && i < moved.n; i++)
        moved.x[i] += w->error[step].x[i];
    w->changed[tensor] = moved;
    w->is_changed[tensor] = true;
    if (status == ND_OK)
        status = change_behind(w, step, sums, err);
    for (size_t s = 0; s < plan->n_steps; s++)
        if (w->is_changed[plan->steps[s].tensor])
            forget(&w->changed[plan->steps[s].tensor]);
    return status;
}

/* ---- a sample ---- */

static enum nd_status run_sample(void *state, struct nd_error *err)
{
    struct worker *w = state;
    const struct nd_plan *plan = w->reader.plan;
    ND_TRY(w->evaluation->is_beside_qvalues ? ND_OK : run_reference(w, err));
    for (size_t d = 0; d < plan->n_devices; d++) {
        if (!nd_plan_is_worked_out(plan, d))
            continue;
        ND_TRY(nd_reader_device(&w->reader, d, err));
        for (size_t s = 0; s < plan->n_steps; s++)
            ND_TRY(run_step(w, s, err));
        for (size_t s = 0; s < plan->n_steps && nd_is_output_effect_sample(plan, w->reader.sample); s++)
            ND_TRY(measure_effect(w, s, err));
    }
    return ND_OK;
}

static enum nd_status begin(void *state, void *context, struct nd_error *err)
{
    struct worker *w = state;
    const struct nd_plan *plan = w->reader.plan;
    size_t n_tensors = nd_model_n_tensors(plan->model);
    w->evaluation = context;
    w->reference = nd_calloc(n_tensors, sizeof *w->reference);
    w->changed = nd_calloc(n_tensors, sizeof *w->changed);
    w->is_changed = nd_calloc(n_tensors, sizeof *w->is_changed);
    w->error = nd_calloc(plan->n_steps, sizeof *w->error);
    ND_TRY_MEMORY(w->reference != NULL && w->changed != NULL && w->is_changed != NULL && w->error != NULL, err);
    for (size_t e = 0; e < n_tensors; e++)
        w->reference[e] = nd_no_array();
    for (size_t s = 0; s < plan->n_steps; s++)
        w->error[s] = nd_no_array();
    return ND_OK;
}

static void end(void *state, void *context)
{
    (void)context;
    struct worker *w = state;
    const struct nd_plan *plan = w->reader.plan;
    for (size_t e = 0; w->reference != NULL && e < nd_model_n_tensors(plan->model); e++)
        forget(&w->reference[e]);
    for (size_t s = 0; w->error != NULL && s < plan->n_steps; s++)
        forget(&w->error[s]);
    ND_FREE_ALL(w->reference, w->changed, w->is_changed, w->error);
}

/* ---- all of it ---- */

/* Share of the floats of a device that are numbers of half precision when it computes in that; chosen, as
 * science/fallback.md has it. */
static const double max_on_grid = 0.98;

/* Whether the floats of the sample at hand are numbers of so many digits, as far as there are any. */
static bool is_on_grid(const struct nd_reader *r, int digits)
{
    const struct nd_plan *plan = r->plan;
    size_t n = 0, n_on = 0;
    for (size_t s = 0; s < plan->n_steps; s++) {
        const struct nd_array *given = &r->given[plan->steps[s].tensor];
        bool is_float = nd_float_is_step(plan, r->device, s) && nd_dtype_is_float(given->dtype);
        for (size_t i = 0; is_float && i < given->n; i++) {
            double x = given->x[i], rounded = float_round(x, digits);
            if (!isfinite(rounded) || x == 0)
                continue;
            n++;
            n_on += fabs(x - rounded) <= float_ulp(x, digits) * 0x1p-12;
        }
    }
    return n > 0 && (double)n_on >= max_on_grid * (double)n;
}

/* Numbers of bfloat16 are numbers of half precision, too: whether half precision would have given others. */
static enum nd_status is_beyond_half(struct nd_float_evaluation *e, const struct nd_reader *r, bool *is_beyond,
                                     struct nd_error *err)
{
    enum { MIN_OTHERS = 12 }; /* chosen: three more bits are 0 by chance in 8^-12 of all cases */
    enum nd_status status = ND_OK;
    size_t n_others = 0;
    e->digits[r->device] = ND_HALF_DIGITS;
    for (size_t s = 0; s < e->plan->n_steps && status == ND_OK && n_others < MIN_OTHERS; s++) {
        struct nd_array exact = nd_no_array();
        if (!nd_float_is_step(e->plan, r->device, s))
            continue;
        const struct nd_float_case c = nd_float_case_of(e, r, r->given, s);
        status = run_or_none(&c, ND_FLOAT_ROUNDED, &exact, err);
        for (size_t i = 0; !c.is_whole && i < exact.n; i++) {
            double half = float_round(exact.x[i], ND_HALF_DIGITS);
            n_others += isfinite(half) && half != float_round(half, ND_BFLOAT_DIGITS);
        }
        forget(&exact);
    }
    *is_beyond = n_others >= MIN_OTHERS;
    return status;
}

/* What the capture says of its chipset decides, else the values of its first sample. */
static enum nd_status find_digits(struct nd_float_evaluation *e, struct nd_error *err)
{
    ND_CLEANUP(nd_reader_deinit) struct nd_reader reader = {0};
    ND_TRY(nd_reader_init(&reader, e->plan, err));
    ND_TRY(nd_reader_load(&reader, 0, e->plan->n_samples, err));
    for (size_t d = 0; d < e->plan->n_devices; d++) {
        enum nd_expectation expected = e->plan->sources[d].expectation;
        bool is_htp = expected == ND_EXPECT_V69 || expected == ND_EXPECT_V73, is_beyond = false;
        if (e->plan->sources[d].is_failed)
            continue;
        ND_TRY(nd_reader_device(&reader, d, err));
        bool is_open = !is_htp && expected != ND_EXPECT_FLOAT;
        bool is_half = is_htp || (is_open && is_on_grid(&reader, ND_HALF_DIGITS));
        bool may_be_bfloat = is_open && is_on_grid(&reader, ND_BFLOAT_DIGITS);
        if (may_be_bfloat && is_half)
            ND_TRY(is_beyond_half(e, &reader, &is_beyond, err));
        e->digits[d] = may_be_bfloat && (is_beyond || !is_half) ? ND_BFLOAT_DIGITS
                       : is_half                                ? ND_HALF_DIGITS
                                                                : ND_SINGLE_DIGITS;
    }
    return ND_OK;
}

/* Whether any device computes the step in half precision: nobody else reads rounded constants, which are as
 * large as the model. */
static bool has_half_precision(const struct nd_float_evaluation *e, size_t s)
{
    for (size_t d = 0; d < e->plan->n_devices; d++)
        if (nd_float_is_step(e->plan, d, s) && nd_float_digits_of(e, d, s) == ND_HALF_DIGITS)
            return true;
    return false;
}

/* Those past *room_bytes are rounded whenever they are read. */
static enum nd_status round_constants(struct nd_float_evaluation *e, size_t s, double *room_bytes,
                                      struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < e->nodes[s].n_inputs && status == ND_OK; i++) {
        const struct nd_array *from = e->nodes[s].inputs[i].constant;
        struct nd_array *to = &e->constants[s * ND_FLOAT_OPERANDS + i];
        if (e->nodes[s].inputs[i].source != ND_FLOAT_CONSTANT || !nd_dtype_is_float(from->dtype))
            continue;
        double bytes = (double)(from->n * sizeof *from->x);
        if (bytes > *room_bytes)
            continue;
        *room_bytes -= bytes;
        *to = (struct nd_array){0};
        status = nd_exact_hold(e->plan->graph, from, err);
        if (status != ND_OK)
            break;
        status = nd_array_copy(from, to, err);
        nd_exact_release(e->plan->graph, from);
        for (size_t k = 0; status == ND_OK && k < to->n; k++)
            to->x[k] = float_round(to->x[k], ND_HALF_DIGITS);
    }
    return status;
}

static enum nd_status prepare(struct nd_float_evaluation *e, struct nd_error *err)
{
    const struct nd_plan *plan = e->plan;
    size_t n_layers, n_sums;
    if (!nd_size_mul(plan->n_devices, plan->n_steps, &n_layers) ||
        !nd_size_mul(n_layers, plan->n_samples, &n_sums))
        return nd_fail(err, ND_E_SIZE_OVERFLOW, NULL, "too many samples");
    e->digits = nd_calloc(plan->n_devices, sizeof *e->digits);
    e->is_known = nd_calloc(plan->n_steps, sizeof *e->is_known);
    e->nodes = nd_calloc(plan->n_steps, sizeof *e->nodes);
    e->constants = nd_calloc(plan->n_steps * ND_FLOAT_OPERANDS, sizeof *e->constants);
    e->sums = nd_calloc(n_sums, sizeof *e->sums);
    if (e->digits == NULL || e->is_known == NULL || e->nodes == NULL || e->constants == NULL || e->sums == NULL)
        return nd_fail_memory(err);
    for (size_t k = 0; k < plan->n_steps * ND_FLOAT_OPERANDS; k++)
        e->constants[k] = nd_no_array();
    for (size_t s = 0; s < plan->n_steps; s++)
        e->is_known[s] = nd_float_node_find(plan->graph, plan->steps[s].tensor, &e->nodes[s]);
    double room_bytes = plan->memory_bytes / 8; /* chosen */
    ND_TRY(find_digits(e, err));
    for (size_t s = 0; s < plan->n_steps; s++)
        if (e->is_known[s] && has_half_precision(e, s))
            ND_TRY(round_constants(e, s, &room_bytes, err));
    return ND_OK;
}

enum nd_status nd_float_evaluate(struct nd_float_evaluation *e, const struct nd_plan *plan,
                                 const struct nd_explain_options *options, struct nd_error *err)
{
    e->plan = plan;
    e->is_beside_qvalues = nd_plan_has_qvalues(plan);
    const struct nd_replay replay = {.plan = plan,
                                     .span = {0, plan->n_samples},
                                     .state_bytes = sizeof(struct worker),
                                     .context = e,
                                     .begin = begin,
                                     .run = run_sample,
                                     .end = end,
                                     .progress = options->progress,
                                     .progress_context = options->progress_context};
    ND_TRY(prepare(e, err));
    ND_TRY(nd_replay_run(&replay, err));
    for (size_t d = 0; d < plan->n_devices; d++)
        for (size_t i = 0; i < plan->n_samples && plan->sources[d].same_as != d; i++)
            memcpy(nd_float_sums_of(e, i, d, 0), nd_float_sums_of(e, i, plan->sources[d].same_as, 0),
                   plan->n_steps * sizeof *e->sums);
    return ND_OK;
}

void nd_float_evaluation_deinit(struct nd_float_evaluation *e)
{
    for (size_t k = 0; e->constants != NULL && k < e->plan->n_steps * ND_FLOAT_OPERANDS; k++)
        forget(&e->constants[k]);
    ND_FREE_ALL(e->digits, e->is_known, e->nodes, e->constants, e->sums);
}
