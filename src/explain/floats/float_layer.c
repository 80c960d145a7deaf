/* One layer: its values from any reading of its inputs, and how far a value may be off in half precision, or in
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
#include "explain/floats/floats.h"

#include <math.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/random.h"
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

double nd_float_ulp(double x, int digits)
{
    int exponent;
    if (!isfinite(x))
        return (double)NAN;
    frexp(x, &exponent); /* |x| < 2^exponent */
    int least = min_exponent(digits) + 1;
    exponent = x == 0 || exponent < least ? least : exponent;
    return ldexp(1, exponent - digits);
}

double nd_float_round(double x, int digits)
{
    if (!isfinite(x) || digits == ND_WHOLE_DIGITS)
        return x;
    if (digits == ND_SINGLE_DIGITS)
        return (double)(float)x;
    double ulp = nd_float_ulp(x, digits), y = rint(x / ulp) * ulp;
    return digits == ND_HALF_DIGITS && fabs(y) > 65504 ? copysign((double)INFINITY, x) : y;
}

static double cut(double x, int digits)
{
    double ulp = nd_float_ulp(x, digits);
    return isfinite(x) ? trunc(x / ulp) * ulp : x;
}

double nd_float_narrow(const struct nd_float_narrow *narrow, double x)
{
    if (narrow->digits > 0)
        return narrow->cuts ? cut(x, narrow->digits) : nd_float_round(x, narrow->digits);
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
        double x = nd_float_round(array->x[i], digits);
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

static bool is_read_flat(const struct nd_float_case *c, size_t i)
{
    return c->way != NULL && c->way->is_flat && c->way->operand == i;
}

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
    if (!is_read_flat(c, i))
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

static double probable_gamma(size_t n_terms, double u)
{
    double n = (double)n_terms + 2;
    return expm1(lambda * sqrt(n) * u + n * u * u / (1 - u));
}

static enum nd_status bound_sums(const struct nd_float_case *c, size_t n_terms, const struct nd_array *exact,
                                 double *bound, struct nd_error *err)
{
    ND_CLEANUP(nd_array_deinit) struct nd_array magnitudes = {0};
    double gamma = probable_gamma(n_terms, ldexp(1, -c->digits));
    ND_TRY(nd_float_run(c, ND_FLOAT_MAGNITUDES, 0, &magnitudes, err));
    for (size_t i = 0; i < exact->n && i < magnitudes.n; i++)
        bound[i] = gamma * fabs(magnitudes.x[i]);
    return ND_OK;
}

/* How far values move where what is read is off by a rounding. */
static enum nd_status shake(const struct nd_float_case *c, const struct nd_array *exact, double *bound,
                            double *squares, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (unsigned k = 0; k < N_PATTERNS && status == ND_OK; k++) {
        struct nd_array shaken = {0};
        status = nd_float_run(c, ND_FLOAT_SHAKEN, k + 1, &shaken, err);
        for (size_t i = 0; status == ND_OK && i < exact->n && i < shaken.n; i++) {
            double moved = fabs(shaken.x[i] - exact->x[i]);
            if (!isfinite(moved))
                continue;
            *squares += moved * moved;
            bound[i] = fmax(bound[i], moved);
        }
        nd_array_deinit(&shaken);
    }
    return status;
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
    enum nd_status status =
        growth == ND_FLOAT_OF_SUMS
            ? bound_sums(c, n_terms, exact, bound, err)
            : bound_others(c, patterns_reach * (growth == ND_FLOAT_OF_ROWS ? sqrt((double)n_terms) : 1), exact,
                           bound, err);
    if (status == ND_OK)
        status = add_inside(c, exact, bound, err);
    /* Numbers below the least normal one may be flushed to zero. */
    double least = ldexp(1, min_exponent(c->digits));
    for (size_t i = 0; i < exact->n; i++)
        bound[i] += own * u * fabs(exact->x[i]) + least;
    return status;
}

enum nd_status nd_float_expect(const struct nd_float_case *c, struct nd_array *out, struct nd_error *err)
{
    enum nd_status status = nd_float_run(c, ND_FLOAT_ROUNDED, 0, out, err);
    for (size_t i = 0; status == ND_OK && !c->is_whole && i < out->n; i++)
        out->x[i] = nd_float_round(out->x[i], c->digits);
    return status;
}
