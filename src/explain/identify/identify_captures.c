/* Captures held against the table of programs: every probe is planned and read as nd_explain does it, and every
 * layer is worked out from the quantised values that the device itself had. */
#include <math.h>

#include "arithmetic/variants/layer_other.h"
#include "core/items.h"
#include "core/statistics/distributions.h"
#include "explain/identify/identify.h"
#include "explain/plan/replay.h"
#include "npudiff/core/tensor.h"

/* From counts to the set. */

/* How often what an arithmetic leaves is taken for more than contamination when it is not. */
static const double unlikely = 1e-6;

static double cost_of(const struct nd_identify_tally *t, const struct nd_arithmetic *arithmetic, size_t p)
{
    if (nd_arithmetic_is_stochastic(arithmetic))
        return (double)t->chance[p] / ND_IDENTIFY_NATS;
    double right = -log(1 - ND_IDENTIFY_CONTAMINATION / 2), wrong = log(2 / ND_IDENTIFY_CONTAMINATION);
    return (double)(t->n_seen[p] - t->n_wrong[p]) * right + (double)t->n_wrong[p] * wrong;
}

/* Whether what the arithmetic leaves can be 1 % of flips or less. */
static bool is_contamination(const struct nd_identify_tally *t, size_t p)
{
    return nd_binomial_lower(t->n_wrong[p], t->n, unlikely) <= ND_IDENTIFY_CONTAMINATION &&
           nd_binomial_lower(t->n_beside[p], t->n_inner[p], unlikely) <= 0.5;
}

/* The least and the largest P(up) of an arithmetic of chance within a bin, in place of a fraction. */
static void range_in_bin(const struct nd_arithmetic *arithmetic, size_t bin, double *low, double *high)
{
    const struct nd_arithmetic_scaling scaling = {.low = 0, .high = 1, .scale = 1};
    struct nd_arithmetic_ready ready;
    nd_arithmetic_prepare(arithmetic, &scaling, false, &ready);
    *low = 1;
    *high = 0;
    for (int end = 0; end < 2; end++) {
        double fraction = ((double)bin + (end == 0 ? 0x1p-20 : 1 - 0x1p-20)) / ND_IDENTIFY_BINS;
        const struct nd_arithmetic_element element = {.place = {.fraction = fraction}};
        double p = nd_arithmetic_run(&ready, &element).p;
        *low = fmin(*low, p);
        *high = fmax(*high, p);
    }
}

static bool has_curve(const struct nd_identify_tally *t, const struct nd_arithmetic *arithmetic)
{
    const double alpha = 1e-9;
    for (size_t b = 0; b < ND_IDENTIFY_BINS; b++) {
        double low, high;
        if (t->bin_n[b] == 0)
            continue;
        range_in_bin(arithmetic, b, &low, &high);
        if (nd_binomial_upper(t->bin_up[b], t->bin_n[b], alpha) < low - ND_IDENTIFY_CONTAMINATION ||
            nd_binomial_lower(t->bin_up[b], t->bin_n[b], alpha) > high + ND_IDENTIFY_CONTAMINATION)
            return false;
    }
    return true;
}

static void conclude(struct nd_identify_result *out)
{
    bool is_there[ND_ARITHMETIC_MAX] = {false};
    size_t n = 0;
    for (size_t p = 0; p < out->n_arithmetics; p++)
        if (out->is_applicable[p] && out->is_possible[p] && !is_there[out->class_of[p]]) {
            is_there[out->class_of[p]] = true;
            n++;
        }
    out->n_classes = n;
    out->verdict = out->best == SIZE_MAX || out->n_open < ND_IDENTIFY_MIN ? ND_IDENTIFY_TOO_FEW
                   : out->n_classes == 0                                  ? ND_IDENTIFY_NONE
                   : out->n_classes == 1                                  ? ND_IDENTIFY_SINGLE
                                                                          : ND_IDENTIFY_SEVERAL;
    uint64_t ref = out->n_wrong[0], left = out->best != SIZE_MAX ? out->n_wrong[out->best] : 0;
    out->explained = ref > 0 ? 1 - (double)left / (double)ref : NAN;
}

/* The set may only be smaller than everything where there is enough to see. */
static void find_possible(const struct nd_identify_tally *t, const struct nd_arithmetic *arithmetics,
                          struct nd_identify_result *out)
{
    double bound = log((double)out->n_arithmetics / ND_IDENTIFY_ALPHA);
    double least = out->best != SIZE_MAX ? cost_of(t, &arithmetics[out->best], out->best) : 0;
    for (size_t p = 0; p < out->n_arithmetics; p++) {
        out->is_possible[p] = true;
        if (!out->is_applicable[p] || t->n_open < ND_IDENTIFY_MIN)
            continue;
        out->is_possible[p] = cost_of(t, &arithmetics[p], p) <= least + bound && is_contamination(t, p) &&
                              (!nd_arithmetic_is_stochastic(&arithmetics[p]) || has_curve(t, &arithmetics[p]));
    }
}

void nd_identify_decide(const struct nd_identify_tally *t, struct nd_identify_result *out)
{
    *out = (struct nd_identify_result){
        .best = SIZE_MAX, .n = t->n, .n_open = t->n_open, .n_deciding = t->n_deciding};
    const struct nd_arithmetic *arithmetics = nd_arithmetics(&out->n_arithmetics);
    for (size_t p = 0; p < out->n_arithmetics; p++) {
        out->is_applicable[p] = t->n_seen[p] > 0;
        out->n_wrong[p] = t->n_wrong[p];
        out->n_seen[p] = t->n_seen[p];
        out->cost[p] = cost_of(t, &arithmetics[p], p);
        out->class_of[p] = p;
        for (size_t q = p; q-- > 0;)
            if (out->is_applicable[p] && out->is_applicable[q] && t->signature[q] == t->signature[p] &&
                t->n_seen[q] == t->n_seen[p])
                out->class_of[p] = q;
        if (out->is_applicable[p] &&
            (out->best == SIZE_MAX ||
             cost_of(t, &arithmetics[p], p) < cost_of(t, &arithmetics[out->best], out->best)))
            out->best = p;
    }
    find_possible(t, arithmetics, out);
    conclude(out);
}

/* ---- several layers ---- */

/* Two arithmetics are one class of all layers when they are in each that knows both. */
static bool is_one_class(const struct nd_identify_result *results, size_t n, size_t p, size_t q)
{
    for (size_t u = 0; u < n; u++)
        if (results[u].is_applicable[p] && results[u].is_applicable[q] &&
            results[u].class_of[p] != results[u].class_of[q])
            return false;
    return true;
}

/* The first arithmetic of its class, of those that are as possible. Where layers know some arithmetics only,
 * one may be like two that are not alike: it is of the class all of which it is like. What applies nowhere is
 * like nothing. */
static void find_class(const struct nd_identify_result *results, size_t n, size_t p,
                       struct nd_identify_result *out)
{
    out->class_of[p] = p;
    for (size_t head = 0; head < p && out->is_applicable[p]; head++) {
        bool is_like = out->class_of[head] == head && out->is_applicable[head] &&
                       out->is_possible[head] == out->is_possible[p];
        for (size_t q = head; q < p && is_like; q++)
            if (out->class_of[q] == head)
                is_like = is_one_class(results, n, p, q);
        if (is_like) {
            out->class_of[p] = head;
            return;
        }
    }
}

/* Layers differ in what applies to them: costs are by quantised value. */
static bool is_better(const struct nd_identify_result *out, size_t p, size_t q)
{
    if (out->is_possible[p] != out->is_possible[q])
        return out->is_possible[p];
    return out->cost[p] * (double)out->n_seen[q] < out->cost[q] * (double)out->n_seen[p];
}

void nd_identify_combine(const struct nd_identify_result *results, size_t n, struct nd_identify_result *out)
{
    bool has_none = false;
    *out = (struct nd_identify_result){.best = SIZE_MAX};
    nd_arithmetics(&out->n_arithmetics);
    for (size_t p = 0; p < out->n_arithmetics; p++)
        out->is_possible[p] = true;
    for (size_t u = 0; u < n; u++) {
        const struct nd_identify_result *layer = &results[u];
        out->n += layer->n;
        out->n_open += layer->n_open;
        out->n_deciding += layer->n_deciding;
        for (size_t p = 0; p < out->n_arithmetics; p++) {
            out->is_applicable[p] = out->is_applicable[p] || layer->is_applicable[p];
            out->is_possible[p] = out->is_possible[p] && layer->is_possible[p];
            out->n_wrong[p] += layer->n_wrong[p];
            out->n_seen[p] += layer->n_seen[p];
            out->cost[p] += layer->cost[p];
        }
        has_none = has_none || results[u].verdict == ND_IDENTIFY_NONE;
    }
    for (size_t p = 0; p < out->n_arithmetics; p++) {
        find_class(results, n, p, out);
        if (!out->is_applicable[p])
            continue;
        if (out->best == SIZE_MAX || is_better(out, p, out->best))
            out->best = p;
    }
    conclude(out);
    out->is_split = out->verdict == ND_IDENTIFY_NONE && !has_none;
}

/* ---- what thresholds say ---- */

struct nd_identify_point nd_identify_curve(const struct nd_identify_tally *t, size_t bin)
{
    uint64_t n = t->bin_n[bin], up = t->bin_up[bin];
    return (struct nd_identify_point){.n = n,
                                      .p = n > 0 ? (double)up / (double)n : NAN,
                                      .low = nd_binomial_lower(up, n, 0.025),
                                      .high = nd_binomial_upper(up, n, 0.025)};
}

struct nd_identify_bracket nd_identify_threshold(const struct nd_identify_tally *t, bool is_negative)
{
    struct nd_identify_bracket all = {0};
    for (size_t b = 0; b < ND_IDENTIFY_BINADES; b++) {
        const struct nd_identify_bracket *from = &t->binades[is_negative][b];
        if (from->n_up > 0)
            all.min_up = all.n_up > 0 ? fmin(all.min_up, from->min_up) : from->min_up;
        if (from->n_down > 0)
            all.max_down = all.n_down > 0 ? fmax(all.max_down, from->max_down) : from->max_down;
        all.n_up += from->n_up;
        all.n_down += from->n_down;
    }
    return all;
}

/* Layers of one kind, in which little may be seen of each. */

enum nd_status nd_identify_group(const struct nd_identify_tally *const *layers, size_t n,
                                 struct nd_identify_result *out, struct nd_error *err)
{
    ND_FREED struct nd_identify_result *parts = nd_calloc(n + 1, sizeof *parts);
    ND_FREED struct nd_identify_tally *all = nd_calloc(1, sizeof *all);
    ND_TRY_MEMORY(parts != NULL && all != NULL, err);
    for (size_t u = 0; u < n; u++) {
        nd_identify_decide(layers[u], &parts[u]);
        nd_identify_merge(layers[u], all);
    }
    struct nd_identify_result both[2];
    nd_identify_combine(parts, n, &both[0]);
    nd_identify_decide(all, &both[1]);
    nd_identify_combine(both, 2, out);
    /* What was excluded is that of both; what was seen, that of one. */
    const struct nd_identify_result *once = &both[0];
    out->n = once->n;
    out->n_open = once->n_open;
    out->n_deciding = once->n_deciding;
    for (size_t p = 0; p < out->n_arithmetics; p++) {
        out->n_wrong[p] = once->n_wrong[p];
        out->n_seen[p] = once->n_seen[p];
        out->cost[p] = once->cost[p];
        out->class_of[p] = once->class_of[p];
    }
    out->is_split = out->verdict == ND_IDENTIFY_NONE && once->is_split; /* together they have none, then */
    if (out->n_open < ND_IDENTIFY_MIN)
        out->verdict = ND_IDENTIFY_TOO_FEW;
    return ND_OK;
}

/* What the tallies of a device leave possible: of each layer, of each operator type, and of the device. */

/* Of the quantised values that half-even does not give: what one class that is left must explain, or it is no
 * claim. Chosen: one quantised value in a thousand may be contamination. */
static const double min_explained = 0.999;

/* Where none is left, an arithmetic of chance is no answer: it gives any quantised value that is beside the
 * value. */
static void choose_nearest(struct nd_identify_result *r)
{
    const struct nd_arithmetic *arithmetics = nd_arithmetics(&(size_t){0});
    size_t best = SIZE_MAX;
    if (r->verdict != ND_IDENTIFY_NONE || r->best == SIZE_MAX ||
        !nd_arithmetic_is_stochastic(&arithmetics[r->best]))
        return;
    for (size_t p = 0; p < r->n_arithmetics; p++) {
        if (!r->is_applicable[p] || r->n_seen[p] == 0 || nd_arithmetic_is_stochastic(&arithmetics[p]))
            continue;
        if (best == SIZE_MAX ||
            (double)r->n_wrong[p] * (double)r->n_seen[best] < (double)r->n_wrong[best] * (double)r->n_seen[p])
            best = p;
    }
    r->best = best != SIZE_MAX ? best : r->best;
}

static bool is_seen(const struct nd_identified_layer *layer)
{
    return layer->is_layer && layer->tally.n > 0;
}

/* NULL: all of them. */
static bool is_of(const struct nd_identified_layer *layer, const char *op_types)
{
    return is_seen(layer) && (op_types == NULL || strcmp(layer->op_types, op_types) == 0);
}

static void add_whole(const struct nd_identified_layer *layer, struct nd_answer *a)
{
    for (size_t p = 0; p < ND_MAX_LAYER_ARITHMETICS; p++) {
        a->whole.n[p] += layer->as_whole.n[p];
        a->whole.wrong[p] += layer->as_whole.wrong[p];
    }
}

/* exceptions and reference are counted. */
static void say(struct nd_answer *a)
{
    static const char *const names[] = {"too-few", "none", "several", "single"};
    a->explained = a->reference > 0 ? 1 - (double)a->exceptions / (double)a->reference : NAN;
    bool is_claim = a->exceptions == 0 || a->explained >= min_explained;
    a->verdict =
        names[a->result.verdict == ND_IDENTIFY_SINGLE && !is_claim ? ND_IDENTIFY_NONE : a->result.verdict];
}

/* What the best arithmetic leaves in the layers. Where it is not applicable it explains nothing. */
static void answer_layers(const struct nd_identified_device *device, const char *op_types, struct nd_answer *a)
{
    choose_nearest(&a->result);
    for (size_t s = 0; s < device->n_layers; s++) {
        const struct nd_identify_tally *tally = &device->layers[s].tally;
        if (!is_of(&device->layers[s], op_types))
            continue;
        size_t best = a->result.best != SIZE_MAX && tally->n_seen[a->result.best] > 0 ? a->result.best : 0;
        a->exceptions += tally->n_wrong[best];
        a->reference += tally->n_wrong[0];
        add_whole(&device->layers[s], a);
    }
    say(a);
}

static enum nd_status answer_layer(struct nd_identified_layer *layer, struct nd_error *err)
{
    struct nd_answer *a = layer->answer = nd_calloc(1, sizeof *a);
    ND_TRY_MEMORY(a != NULL, err);
    nd_identify_decide(&layer->tally, &a->result);
    choose_nearest(&a->result);
    a->exceptions = a->result.best != SIZE_MAX ? a->result.n_wrong[a->result.best] : 0;
    a->reference = a->result.n_wrong[0];
    add_whole(layer, a);
    say(a);
    return ND_OK;
}

static enum nd_status answer_type(const struct nd_identified_device *device, struct nd_identified_type *type,
                                  struct nd_error *err)
{
    const struct nd_identify_tally **tallies = nd_calloc(device->n_layers, sizeof *tallies);
    ND_TRY_MEMORY(tallies != NULL, err);
    for (size_t s = 0; s < device->n_layers; s++)
        if (is_of(&device->layers[s], type->op_types))
            tallies[type->n_layers++] = &device->layers[s].tally;
    enum nd_status status = nd_identify_group(tallies, type->n_layers, &type->answer.result, err);
    free(tallies);
    if (status == ND_OK)
        answer_layers(device, type->op_types, &type->answer);
    return status;
}

static bool is_first(const struct nd_identified_device *device, size_t s)
{
    for (size_t before = 0; before < s; before++)
        if (is_of(&device->layers[before], device->layers[s].op_types))
            return false;
    return true;
}

/* What is left in all types. A type that is not explained is none of the device's arithmetic. */
static enum nd_status answer_device(struct nd_identified_device *device, struct nd_error *err)
{
    ND_FREED struct nd_identify_result *results = nd_calloc(device->n_types + 1, sizeof *results);
    struct nd_answer *a = device->answer = nd_calloc(1, sizeof *a);
    bool has_none = false, has_split = false;
    ND_TRY_MEMORY(results != NULL && a != NULL, err);
    for (size_t t = 0; t < device->n_types; t++) {
        const struct nd_answer *of_type = &device->types[t].answer;
        results[t] = of_type->result;
        has_none = has_none || strcmp(of_type->verdict, "none") == 0;
        has_split = has_split || of_type->result.is_split;
    }
    nd_identify_combine(results, device->n_types, &a->result);
    a->result.is_split = a->result.is_split || has_split;
    answer_layers(device, NULL, a);
    a->verdict = has_none ? "none" : a->verdict;
    return ND_OK;
}

/* Fills answer of all layers that were counted, types and answer. ND_ERR_MEMORY. */
static enum nd_status nd_identify_answer(struct nd_identified_device *device, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    device->types = nd_calloc(device->n_layers, sizeof *device->types);
    ND_TRY_MEMORY(device->types != NULL, err);
    for (size_t s = 0; s < device->n_layers && status == ND_OK; s++) {
        if (!is_seen(&device->layers[s]))
            continue;
        status = answer_layer(&device->layers[s], err);
        if (status != ND_OK || !is_first(device, s))
            continue;
        struct nd_identified_type *type = &device->types[device->n_types++];
        type->op_types = device->layers[s].op_types;
        status = answer_type(device, type, err);
    }
    return status == ND_OK ? answer_device(device, err) : status;
}

/* ---- what is asked of an answer ---- */

bool nd_identified_is_left(const struct nd_identify_result *r, size_t arithmetic)
{
    return r->is_applicable[arithmetic] && r->is_possible[arithmetic];
}

size_t nd_identified_next_class(const struct nd_identify_result *r, size_t after)
{
    for (size_t p = after == SIZE_MAX ? 0 : after + 1;
         p < r->n_arithmetics && r->verdict != ND_IDENTIFY_TOO_FEW; p++) {
        size_t before = 0;
        while (before < p && (!nd_identified_is_left(r, before) || r->class_of[before] != r->class_of[p]))
            before++;
        if (nd_identified_is_left(r, p) && before == p)
            return p;
    }
    return SIZE_MAX;
}

bool nd_identified_is_crossed(const struct nd_identify_bracket *b)
{
    return b->n_down > 0 && b->n_up > 0 && b->max_down >= b->min_up;
}

const char *nd_identified_why_not(const struct nd_identified_layer *layer)
{
    if (layer->is_changing)
        return layer->has_fed ? "changes from run to run, as its inputs do" : "changes from run to run";
    return layer->why_not != NULL ? layer->why_not : "it has no exact values on what the device had";
}

struct nd_specified_sum nd_specified_sum_of(const struct nd_model *model, size_t tensor)
{
    const struct nd_specified_sum none = {0};
    const struct nd_model_layer *layer = nd_model_layer_of_tensor(model, tensor);
    if (layer == NULL || layer->n_inputs != (strcmp(layer->op_types, "Mul") == 0 ? 2 : 1))
        return none;
    const struct nd_tensor *from = nd_model_tensor(model, layer->inputs[0]),
                           *to = nd_model_tensor(model, tensor);
    size_t n_from, n_to;
    if (from->quant.n != 1)
        return none;
    struct nd_specified_sum sum = {.step = (double)from->quant.scale[0]};
    if (layer->n_inputs == 2) {
        const struct nd_quant *other = &nd_model_tensor(model, layer->inputs[1])->quant;
        sum.step *= other->n == 1 ? (double)other->scale[0] : 0;
        sum.n_averaged = 1;
        return sum;
    }
    if (strcmp(layer->op_types, "LeakyRelu") == 0) {
        sum.slope = nd_tensor_slope(model, tensor);
        return sum.slope > 0 ? sum : none;
    }
    if (strcmp(layer->op_types, "GlobalAveragePool") != 0 && strcmp(layer->op_types, "ReduceMean") != 0)
        return none;
    if (nd_shape_n_elems(&from->shape, &n_from, NULL) != ND_OK ||
        nd_shape_n_elems(&to->shape, &n_to, NULL) != ND_OK || n_to == 0 || n_from % n_to != 0)
        return none;
    sum.n_averaged = (double)(n_from / n_to);
    sum.step /= sum.n_averaged;
    return sum;
}

enum { DEFAULT_SAMPLES = 32 };

/* Samples of one probe, which all are counted for one device. */
struct count {
    const struct nd_plan *plan;
    struct nd_identified_device *device;
};

/* What one thread counts. */
struct counter {
    struct nd_reader reader;
    const struct count *count;
    struct nd_identify_tally *tallies; /* [n_steps] */
    struct nd_layer_tally *as_whole;   /* [n_steps] */
    bool *is_double;                   /* [n_steps] */
};

/* ---- a sample ---- */

static bool is_counted(const struct count *count, size_t step)
{
    const struct nd_identified_layer *layer = &count->device->layers[step];
    return layer->is_layer && !layer->is_changing && count->plan->sources[0].layers[step].is_examined;
}

static enum nd_status round_layer(void *context, const struct nd_exact_values *values, struct nd_array *qvalues,
                                  struct nd_error *err)
{
    struct counter *c = context;
    struct nd_reader *r = &c->reader;
    size_t step = r->plan->step_of_tensor[values->tensor];
    const struct nd_identified_layer *layer = &c->count->device->layers[step];
    const struct nd_array *given = &r->given[values->tensor];
    nd_round_half_even(values, qvalues);
    if (!is_counted(c->count, step) || given->n != values->n)
        return ND_OK;
    const struct nd_identify_sample sample = {.values = values,
                                              .given = given->x,
                                              .key = c->count->device->n_samples + r->sample,
                                              .steps = layer->steps,
                                              .n_steps = layer->n_steps,
                                              .specified = layer->specified,
                                              .is_conv = layer->is_conv};
    if (r->trial.tensor == values->tensor)
        nd_layer_trial_count(&r->trial, given->x, qvalues->x, values->n, &c->as_whole[step]);
    c->is_double[step] = values->method == ND_EXACT_AS_DOUBLE;
    return nd_identify_layer(&c->tallies[step], &sample, err);
}

static enum nd_status run_sample(void *state, struct nd_error *err)
{
    struct counter *c = state;
    struct nd_reader *r = &c->reader;
    const struct nd_exact_options options = {.struct_size = sizeof options,
                                             .round = round_layer,
                                             .make = nd_reader_try_layer,
                                             .given = r->given,
                                             .missed = nd_exact_let_go};
    enum nd_status status = nd_reader_device(r, 0, err);
    nd_layer_trial_begin(&r->trial);
    return status == ND_OK ? nd_exact_graph_run(r->plan->graph, r->inputs, &options, NULL, c, err) : status;
}

static enum nd_status begin(void *state, void *context, struct nd_error *err)
{
    struct counter *c = state;
    size_t n = c->reader.plan->n_steps;
    c->count = context;
    c->tallies = nd_calloc(n, sizeof *c->tallies);
    c->as_whole = nd_calloc(n, sizeof *c->as_whole);
    c->is_double = nd_calloc(n, sizeof *c->is_double);
    return c->tallies != NULL && c->as_whole != NULL && c->is_double != NULL ? ND_OK : nd_fail_memory(err);
}

static void end(void *state, void *context)
{
    struct counter *c = state;
    const struct count *count = context;
    bool is_made = c->tallies != NULL && c->as_whole != NULL && c->is_double != NULL;
    for (size_t s = 0; s < count->device->n_layers && is_made; s++) {
        struct nd_identified_layer *layer = &count->device->layers[s];
        nd_identify_merge(&c->tallies[s], &layer->tally);
        nd_layer_tally_merge(&c->as_whole[s], &layer->as_whole);
        layer->is_double = layer->is_double || c->is_double[s];
    }
    ND_FREE_ALL(c->tallies, c->as_whole, c->is_double);
}

/* ---- a probe ---- */

static enum nd_status make_layer(const struct nd_plan *plan, size_t step, struct nd_identified_layer *layer,
                                 struct nd_error *err)
{
    const struct nd_explained_step *from = &plan->steps[step];
    struct nd_error none = {0};
    layer->is_layer = from->is_layer;
    if (!layer->is_layer)
        return ND_OK;
    layer->name = nd_strdup(from->name);
    layer->op_types = nd_strdup(from->op_types);
    ND_TRY_MEMORY(layer->name != NULL && layer->op_types != NULL, err);
    layer->is_conv = strstr(layer->op_types, "Conv") != NULL;
    enum nd_status status =
        nd_exact_accumulator_steps(plan->graph, from->tensor, &layer->steps, &layer->n_steps, &none);
    if (layer->n_steps == 0)
        layer->specified = nd_specified_sum_of(plan->model, from->tensor);
    return status == ND_ERR_MEMORY ? nd_fail_memory(err) : ND_OK; /* else it has no accumulator */
}

static enum nd_status make_layers(const struct nd_plan *plan, struct nd_identified_device *device,
                                  struct nd_error *err)
{
    if (device->layers != NULL)
        return ND_OK;
    device->layers = nd_calloc(plan->n_steps, sizeof *device->layers);
    ND_TRY_MEMORY(device->layers != NULL, err);
    device->n_layers = plan->n_steps;
    for (size_t s = 0; s < plan->n_steps; s++)
        ND_TRY(make_layer(plan, s, &device->layers[s], err));
    return ND_OK;
}

/* Layers that cannot be looked at in this probe. What changes from run to run has no one program: what was
 * counted in earlier probes is dropped. */
static enum nd_status note_layers(const struct nd_plan *plan, struct nd_identified_device *device,
                                  struct nd_error *err)
{
    for (size_t s = 0; s < device->n_layers; s++) {
        struct nd_identified_layer *layer = &device->layers[s];
        const struct nd_planned_layer *found = &plan->sources[0].layers[s];
        if (!layer->is_layer)
            continue;
        if (nd_plan_differs_by_run(plan, 0, s)) {
            layer->has_fed = layer->has_fed || !nd_plan_inputs_repeat(plan, 0, s);
            layer->is_changing = true;
            layer->tally = (struct nd_identify_tally){0};
            layer->as_whole = (struct nd_layer_tally){.n = {0}};
        }
        if (found->is_examined || layer->why_not != NULL)
            continue;
        layer->why_not = nd_strdup(found->why_not);
        ND_TRY_MEMORY(layer->why_not != NULL, err);
    }
    return ND_OK;
}

static enum nd_status count_probe(const struct nd_plan *plan, struct nd_identified_device *device,
                                  struct nd_error *err)
{
    struct count count = {plan, device};
    const struct nd_replay replay = {.plan = plan,
                                     .span = {0, plan->n_samples},
                                     .state_bytes = sizeof(struct counter),
                                     .context = &count,
                                     .begin = begin,
                                     .run = run_sample,
                                     .end = end};
    return nd_replay_run(&replay, err);
}

static enum nd_status describe(const struct nd_capture *capture, struct nd_identified_device *device,
                               struct nd_error *err)
{
    const char *uri = nd_capture_string(capture, "device", "uri");
    const char *chipset = nd_capture_string(capture, "device", "chipset");
    if (device->uri != NULL)
        return ND_OK;
    device->uri = nd_strdup(uri != NULL ? uri : "?");
    device->chipset = nd_strdup(chipset != NULL ? chipset : "");
    device->capture = nd_strdup(nd_capture_path(capture));
    ND_TRY_MEMORY(device->uri != NULL && device->chipset != NULL && device->capture != NULL, err);
    return nd_capture_state(capture) == ND_CAPTURE_FAILED ? nd_plan_failure(capture, &device->failure, err)
                                                          : ND_OK;
}

static enum nd_status add_probe(const struct nd_plan *plan, struct nd_identified_device *device,
                                struct nd_error *err)
{
    char *name = nd_strdup(plan->probe);
    ND_TRY_MEMORY(name != NULL, err);
    device->probes[device->n_probes++] = (struct nd_identified_probe){name, plan->n_samples};
    device->n_samples += plan->n_samples;
    return ND_OK;
}

/* name NULL: one that plan.c finds, or says why there is none. */
static enum nd_status identify_probe(const struct nd_model *model, const struct nd_capture *capture,
                                     const char *name, const struct nd_identify_options *options,
                                     struct nd_identified_device *device, struct nd_error *err)
{
    const struct nd_question question = {model, NULL, &capture, 1};
    const struct nd_explain_options asked = {.struct_size = sizeof asked,
                                             .probe = name,
                                             .n_threads = options->n_threads,
                                             .n_samples =
                                                 options->n_samples > 0 ? options->n_samples : DEFAULT_SAMPLES};
    ND_CLEANUP(nd_plan_deinit) struct nd_plan plan = {0};
    ND_TRY(nd_plan_make(&plan, &question, &asked, err));
    ND_TRY(describe(capture, device, err));
    if (device->failure == NULL) {
        ND_TRY(make_layers(&plan, device, err));
        ND_TRY(note_layers(&plan, device, err));
        ND_TRY(count_probe(&plan, device, err));
        ND_TRY(add_probe(&plan, device, err));
    }
    return ND_OK;
}

/* ---- a capture ---- */

static enum nd_status identify_capture(const struct nd_model *model, const struct nd_capture *capture,
                                       const struct nd_identify_options *options,
                                       struct nd_identified_device *device, struct nd_error *err)
{
    size_t n = nd_capture_n_probes(capture);
    bool is_failed = nd_capture_state(capture) == ND_CAPTURE_FAILED;
    enum nd_status status = ND_OK;
    device->probes = nd_calloc(n + 1, sizeof *device->probes);
    ND_TRY_MEMORY(device->probes != NULL, err);
    for (size_t p = 0; p < n && options->probe == NULL && !is_failed && status == ND_OK; p++)
        if (nd_capture_probe(capture, p)->n_samples > 0)
            status = identify_probe(model, capture, nd_capture_probe(capture, p)->name, options, device, err);
    if (status == ND_OK && device->uri == NULL)
        status = identify_probe(model, capture, options->probe, options, device, err);
    return status == ND_OK && device->failure == NULL ? nd_identify_answer(device, err) : status;
}

static void deinit_device(struct nd_identified_device *device)
{
    ND_FREE_EACH(device->probes, device->n_probes, .name);
    for (size_t s = 0; s < device->n_layers; s++)
        ND_FREE_ALL(device->layers[s].name, device->layers[s].op_types, device->layers[s].why_not,
                    device->layers[s].steps, device->layers[s].answer);
    ND_FREE_ALL(device->layers, device->types, device->answer, device->uri, device->chipset, device->capture,
                device->failure);
}

void nd_identification_destroy(struct nd_identification **identification)
{
    struct nd_identification *all = *identification;
    if (all == NULL)
        return;
    for (size_t d = 0; d < all->n_devices; d++)
        deinit_device(&all->devices[d]);
    ND_FREE_ALL(all->devices, all);
    *identification = NULL;
}

enum nd_status nd_identify_captures(const struct nd_model *model, const struct nd_capture *const *captures,
                                    size_t n_captures, const struct nd_identify_options *options,
                                    struct nd_identification **out, struct nd_error *err)
{
    struct nd_identify_options own = {.struct_size = sizeof own};
    ND_TRY(nd_options_read(&own, sizeof own, options, err));
    ND_CLEANUP(nd_identification_destroy) struct nd_identification *all = nd_calloc(1, sizeof *all);
    ND_TRY_MEMORY(all != NULL, err);
    all->devices = nd_calloc(n_captures, sizeof *all->devices);
    ND_TRY_MEMORY(all->devices != NULL, err);
    for (size_t d = 0; d < n_captures; d++)
        ND_TRY(identify_capture(model, captures[d], &own, &all->devices[all->n_devices++], err));
    return ND_GIVE(out, all);
}
