/* Pairs of layers of the quantised model whose channels are scaled against those of the float model
 * (cross-layer equalisation), as `npudiff align` and AIMET make them. Their tensors differ by intention, so the
 * float model is given the same factors before anything is compared with it: its outputs stay what they are.
 * docs/reference/diagnoses.md#equalised-models */
#include <math.h>

#include "core/memory.h"
#include "explain/evaluate/channel_pairs.h"
#include "explain/plan/plan.h"
#include "model/graph/graph.h"

/* With the factors, the squared distance of both layers' weights to the float model's falls to this share or
 * less. The factor of a channel is fitted to its K weights in the first layer, which takes 1 / K of their
 * rounding error: 1 / 9 of a depthwise Conv 3 x 3, and less than half of every layer with K > 2. What is fitted
 * to rounding errors makes the second layer worse. Chosen. */
static const double max_left = 0.5;

/* Once they are proven, factors are found anew by both of their layers, in so many rounds over all pairs, since
 * neighbours share a layer. One round is exact for a pair alone: chosen. */
enum { ROUNDS = 8 };

/* ---- a layer with factors ---- */

/* Weights of both models, which are held. */
struct weights {
    const struct nd_pair_layer *layer;
    const struct nd_weight_axes *axes;
    const double *quantised, *floats; /* [n] */
    size_t n;
};

static enum nd_status hold(const struct nd_plan *plan, const struct nd_pair_layer *layer, struct weights *out,
                           struct nd_error *err)
{
    ND_TRY(nd_exact_hold(plan->graph, layer->weights.real, err));
    enum nd_status status = nd_exact_hold(plan->float_graph, layer->before, err);
    if (status != ND_OK)
        nd_exact_release(plan->graph, layer->weights.real);
    *out = (struct weights){layer, &layer->axes, layer->weights.real->x, layer->before->x, layer->before->n};
    return status;
}

static void release(const struct nd_plan *plan, const struct nd_pair_layer *layer)
{
    nd_exact_release(plan->float_graph, layer->before);
    nd_exact_release(plan->graph, layer->weights.real);
}

/* Channels of the inputs are divided by `in`, those of the outputs multiplied by `out`; NULL: 1. */
struct factors {
    const double *in, *out;
};

/* Of element i and those that follow it in one place of both axes. */
static double factor_at(const struct weights *w, const struct factors *factors, size_t i)
{
    double factor = factors->out != NULL ? factors->out[nd_weight_channel(w->axes, true, i)] : 1;
    return factors->in != NULL ? factor / factors->in[nd_weight_channel(w->axes, false, i)] : factor;
}

static double distance(const struct weights *w, const struct factors *factors)
{
    double sum = 0;
    for (size_t first = 0; first < w->n; first += w->axes->inner) {
        double factor = factor_at(w, factors, first);
        for (size_t i = first; i < first + w->axes->inner; i++)
            sum += (w->quantised[i] - factor * w->floats[i]) * (w->quantised[i] - factor * w->floats[i]);
    }
    return sum;
}

/* What a channel of the outputs, or of the inputs, is larger than with these factors, by least squares in steps
 * of the quantised weights: product / square. The square of the quotient times `square` says how sure that is.
 */
struct fitted {
    double product, square;
};

static void fit(const struct weights *w, bool is_output, const struct factors *factors, struct fitted *out)
{
    const struct nd_quant *quant = w->layer->weights.quant;
    for (size_t c = 0; c < nd_weight_channels(w->axes, is_output); c++)
        out[c] = (struct fitted){0};
    for (size_t first = 0; first < w->n; first += w->axes->inner) {
        struct fitted *to = &out[nd_weight_channel(w->axes, is_output, first)];
        double factor = factor_at(w, factors, first);
        double step = (double)quant->scale[nd_exact_channel(quant, &w->layer->weights.real->shape, first)];
        for (size_t i = first; i < first + w->axes->inner && step > 0; i++) {
            double value = factor * w->floats[i] / step;
            to->product += w->quantised[i] / step * value;
            to->square += value * value;
        }
    }
}

/* A channel of zeros has no factor, nor has one that changed its sign. */
static bool is_known(const struct fitted *fitted)
{
    double quotient = fitted->product / fitted->square;
    return isfinite(quotient) && quotient > 0;
}

/* ---- a run of pairs ---- */

struct work {
    struct nd_plan *plan;
    struct nd_pair *pairs; /* [n] in graph order */
    size_t n;
    double **factors;      /* [n][n_channels] by which the first layer's outputs are larger */
    struct fitted *fitted; /* [2 * the most channels of a pair] */
    bool *is_on;           /* [n] the factors are proven */
    bool *is_followed;     /* [n] and the float model can be given them */
};

/* The pair whose second, or first, layer that is; SIZE_MAX: none. */
static size_t pair_at(const struct work *w, size_t step, bool is_second)
{
    for (size_t p = 0; p < w->n; p++)
        if ((is_second ? w->pairs[p].second.step : w->pairs[p].first.step) == step)
            return p;
    return SIZE_MAX;
}

/* The proven factors of a pair; NULL: none. */
static const double *proven(const struct work *w, size_t p)
{
    return p != SIZE_MAX && w->is_on[p] ? w->factors[p] : NULL;
}

static bool falls(double before, double after)
{
    return before > 0 && after <= max_left * before;
}

/* Which layers of a pair the factors bring nearer to the float model. */
struct proof {
    bool first, second;
};

/* Finds the factors of a pair by its first layer, whose inputs are divided by `in`, and tries them on the
 * second one as if nothing else scaled that. known: what is proven of `in` already. */
static enum nd_status try_pair(struct work *w, size_t p, const double *known, const double *in,
                               struct proof *proof, struct nd_error *err)
{
    const struct nd_pair *pair = &w->pairs[p];
    struct weights weights;
    *proof = (struct proof){0};
    ND_TRY(hold(w->plan, &pair->first, &weights, err));
    fit(&weights, true, &(struct factors){.in = in}, w->fitted);
    for (size_t c = 0; c < pair->n_channels; c++)
        w->factors[p][c] = is_known(&w->fitted[c]) ? w->fitted[c].product / w->fitted[c].square : 1;
    proof->first = falls(distance(&weights, &(struct factors){.in = known}),
                         distance(&weights, &(struct factors){in, w->factors[p]}));
    release(w->plan, &pair->first);
    if (!proof->first)
        return ND_OK;
    ND_TRY(hold(w->plan, &pair->second, &weights, err));
    proof->second = falls(distance(&weights, &(struct factors){0}),
                          distance(&weights, &(struct factors){.in = w->factors[p]}));
    release(w->plan, &pair->second);
    return ND_OK;
}

/* From pair p on. The second layer may be the first one of the next pair: where it does not fit with the
 * factors of its inputs alone, it has others of its outputs, and the layer after it decides. A depthwise Conv
 * in the middle has both on the same channels, so that it proves nothing by itself. */
static enum nd_status try_run(struct work *w, size_t p, struct nd_error *err)
{
    size_t before = pair_at(w, w->pairs[p].first.step, true), last = p;
    const double *known = proven(w, before), *in = known;
    for (;;) {
        struct proof proof;
        enum nd_status status = try_pair(w, last, last == p ? known : NULL, in, &proof, err);
        if (status != ND_OK || !proof.first)
            return status;
        if (proof.second)
            break;
        in = w->factors[last];
        last = pair_at(w, w->pairs[last].second.step, false);
        if (last == SIZE_MAX)
            return ND_OK;
    }
    for (size_t q = p; q != last; q = pair_at(w, w->pairs[q].second.step, false))
        w->is_on[q] = true;
    w->is_on[last] = true;
    return ND_OK;
}

/* ---- by both layers ---- */

/* A channel may have few steps in one of the layers, and many in the other one: logarithms of both quotients,
 * each with its inverse variance. */
static void combine(const struct fitted *first, const struct fitted *second, double *factor)
{
    double sum = 0, certainty = 0;
    if (is_known(first)) {
        double sure = first->product * first->product / first->square;
        sum += sure * log(first->product / first->square);
        certainty += sure;
    }
    if (is_known(second)) {
        double sure = second->product * second->product / second->square;
        sum -= sure * log(second->product / second->square);
        certainty += sure;
    }
    if (certainty > 0)
        *factor = exp(sum / certainty);
}

static enum nd_status refine(struct work *w, size_t p, struct nd_error *err)
{
    const struct nd_pair *pair = &w->pairs[p];
    struct fitted *second = w->fitted + pair->n_channels;
    struct weights weights;
    ND_TRY(hold(w->plan, &pair->first, &weights, err));
    fit(&weights, true, &(struct factors){.in = proven(w, pair_at(w, pair->first.step, true))}, w->fitted);
    release(w->plan, &pair->first);
    ND_TRY(hold(w->plan, &pair->second, &weights, err));
    fit(&weights, false, &(struct factors){.out = proven(w, pair_at(w, pair->second.step, false))}, second);
    release(w->plan, &pair->second);
    for (size_t c = 0; c < pair->n_channels; c++)
        combine(&w->fitted[c], &second[c], &w->factors[p][c]);
    return ND_OK;
}

/* ---- the float model ---- */

/* What the pairs before and after a layer make of its constants. */
static enum nd_status scale_layer(const struct work *w, const struct nd_pair_layer *layer, struct nd_error *err)
{
    size_t before = pair_at(w, layer->step, true), after = pair_at(w, layer->step, false);
    size_t n = nd_weight_channels(&layer->axes, false);
    double *inputs = before != SIZE_MAX && w->is_followed[before] ? nd_calloc(n, sizeof *inputs) : NULL;
    if (before != SIZE_MAX && w->is_followed[before] && inputs == NULL)
        return nd_fail_memory(err);
    for (size_t c = 0; inputs != NULL && c < n; c++)
        inputs[c] = 1 / w->factors[before][c];
    const struct nd_weight_factors factors = {
        .outputs = after != SIZE_MAX && w->is_followed[after] ? w->factors[after] : NULL, .inputs = inputs};
    struct nd_exact_graph *graph = w->plan->float_graph;
    enum nd_status status = nd_exact_graph_scale(graph, layer->float_weights, &layer->axes, &factors, err);
    free(inputs);
    if (status != ND_OK || factors.outputs == NULL || layer->float_bias == ND_NO_INDEX)
        return status;
    const struct nd_weight_axes row = {nd_weight_channels(&layer->axes, true), 1, 1, 1, true};
    return nd_exact_graph_scale(graph, layer->float_bias, &row,
                                &(struct nd_weight_factors){factors.outputs, NULL}, err);
}

/* A Clip does not commute with factors, so that its bounds follow the channels. */
static enum nd_status scale_clips(const struct work *w, size_t p, struct nd_error *err)
{
    const struct nd_pair *pair = &w->pairs[p];
    for (size_t i = 0; i < pair->n_float_clips; i++)
        ND_TRY(nd_exact_graph_scale_node(w->plan->float_graph, pair->float_clips[i], w->factors[p],
                                         pair->n_channels, err));
    return ND_OK;
}

static enum nd_status scale_all(const struct work *w, struct nd_error *err)
{
    for (size_t p = 0; p < w->n; p++) {
        size_t next = pair_at(w, w->pairs[p].second.step, false);
        if (!w->is_followed[p])
            continue;
        ND_TRY(scale_layer(w, &w->pairs[p].first, err));
        ND_TRY(scale_clips(w, p, err));
        if (next == SIZE_MAX || !w->is_followed[next])
            ND_TRY(scale_layer(w, &w->pairs[p].second, err));
    }
    return ND_OK;
}

/* ---- all of it ---- */

static enum nd_status begin(struct work *w, struct nd_error *err)
{
    size_t most = 0;
    w->factors = nd_calloc(w->n, sizeof *w->factors);
    w->is_on = nd_calloc(w->n, sizeof *w->is_on);
    w->is_followed = nd_calloc(w->n, sizeof *w->is_followed);
    ND_TRY_MEMORY(w->factors != NULL && w->is_on != NULL && w->is_followed != NULL, err);
    for (size_t p = 0; p < w->n; p++) {
        w->factors[p] = nd_calloc(w->pairs[p].n_channels, sizeof **w->factors);
        ND_TRY_MEMORY(w->factors[p] != NULL, err);
        most = w->pairs[p].n_channels > most ? w->pairs[p].n_channels : most;
    }
    w->fitted = nd_calloc(2 * most, sizeof *w->fitted);
    return w->fitted != NULL ? ND_OK : nd_fail_memory(err);
}

static enum nd_status find_factors(struct work *w, struct nd_error *err)
{
    enum nd_status status = begin(w, err);
    for (size_t p = 0; p < w->n && status == ND_OK; p++)
        if (!w->is_on[p])
            status = try_run(w, p, err);
    for (size_t round = 0; round < ROUNDS; round++)
        for (size_t p = 0; p < w->n && status == ND_OK; p++)
            if (w->is_on[p])
                status = refine(w, p, err);
    for (size_t p = 0; p < w->n && status == ND_OK; p++)
        w->is_followed[p] =
            w->is_on[p] && w->pairs[p].first.is_free && w->pairs[p].second.is_free && w->pairs[p].is_plain;
    return status;
}

static enum nd_status tell(const struct work *w, struct nd_error *err)
{
    struct nd_plan *plan = w->plan;
    plan->equalised = nd_calloc(w->n, sizeof *plan->equalised);
    ND_TRY_MEMORY(plan->equalised != NULL, err);
    for (size_t p = 0; p < w->n; p++) {
        struct nd_equalised_pair pair = {.first = w->pairs[p].first.step,
                                         .second = w->pairs[p].second.step,
                                         .is_followed = w->is_followed[p],
                                         .least = HUGE_VAL};
        for (size_t c = 0; c < w->pairs[p].n_channels; c++) {
            pair.least = fmin(pair.least, w->factors[p][c]);
            pair.most = fmax(pair.most, w->factors[p][c]);
        }
        if (w->is_on[p])
            plan->equalised[plan->n_equalised++] = pair;
    }
    return ND_OK;
}

enum nd_status nd_plan_follow_equalised(struct nd_plan *plan, struct nd_error *err)
{
    struct work w = {.plan = plan};
    enum nd_status status = nd_find_pairs(plan, plan->step_of_float, ND_PAIR_ANY_SCALES, &w.pairs, &w.n, err);
    if (status == ND_OK)
        status = find_factors(&w, err);
    if (status == ND_OK)
        status = scale_all(&w, err);
    if (status == ND_OK)
        status = tell(&w, err);
    for (size_t p = 0; w.factors != NULL && p < w.n; p++)
        free(w.factors[p]);
    ND_FREE_ALL(w.factors, w.fitted, w.is_on, w.is_followed, w.pairs);
    return status;
}
