/* Counting. Everything is a sum of whole numbers, a least or a greatest: the same in any order. */
#include <math.h>

#include "core/memory.h"
#include "core/random.h"
#include "explain/identify/identify.h"

/* What the elements of one channel share, for every arithmetic. */
struct channel {
    bool is_made;
    bool applies[ND_ARITHMETIC_MAX];
    struct nd_arithmetic_scaling scaling;
    struct nd_arithmetic_ready ready[ND_ARITHMETIC_MAX];
};

struct work {
    struct nd_identify_tally *tally;
    const struct nd_identify_sample *sample;
    const struct nd_arithmetic *arithmetics;
    size_t n_arithmetics, n_channels;
    struct channel *channels;
    bool is_chance[ND_ARITHMETIC_MAX];
    struct nd_arithmetic_outcome outcomes[ND_ARITHMETIC_MAX];
};

/* Whole numbers that all floats hold: every arithmetic gives them. */
static const double largest_short = 256;

/* ---- channels ---- */

/* Of the output of a product. */
static size_t product_channel(const struct nd_identify_sample *sample, size_t i)
{
    const struct nd_shape *shape = sample->values->shape;
    if (shape->rank == 0 || (sample->is_conv && shape->rank < 2))
        return 0;
    for (int d = shape->rank - 1; sample->is_conv && d >= 2; d--)
        i /= (size_t)shape->dims[d];
    return i % (size_t)shape->dims[sample->is_conv ? 1 : shape->rank - 1];
}

/* The whole number that the specification multiplies. */
static double specified_sum(const struct nd_arithmetic_scaling *scaling, const struct nd_ratio *v)
{
    double steps = nd_ratio_value(v) / scaling->multiplier;
    return rint(scaling->slope > 0 && steps < 0 ? steps / scaling->slope : steps);
}

static bool is_specified(const struct nd_arithmetic_scaling *scaling)
{
    return scaling->n_averaged > 0 || scaling->slope > 0;
}

/* Steps and scales of the output are by the same channels where both are. */
static size_t channel_of(const struct work *w, size_t i)
{
    const struct nd_quant *quant = w->sample->values->quant;
    if (quant->n > 1)
        return nd_exact_channel(quant, w->sample->values->shape, i);
    return w->sample->n_steps > 1 ? product_channel(w->sample, i) % w->sample->n_steps : 0;
}

static bool has_accumulator(const struct nd_identify_sample *sample)
{
    size_t n = sample->values->quant->n;
    return sample->n_steps > 0 && (n <= 1 || sample->n_steps == 1 || sample->n_steps == n);
}

static struct channel *prepare(const struct work *w, size_t c)
{
    const struct nd_exact_values *values = w->sample->values;
    struct channel *channel = &w->channels[c];
    if (channel->is_made)
        return channel;
    size_t q = values->quant->n > 1 ? c : 0;
    struct nd_arithmetic_scaling *scaling = &channel->scaling;
    scaling->scale = (double)values->quant->scale[q];
    scaling->zero = (double)values->quant->zero_point[q];
    nd_qvalue_range(values->dtype, &scaling->low, &scaling->high);
    if (has_accumulator(w->sample))
        scaling->multiplier =
            nd_arithmetic_multiplier(scaling->scale, &w->sample->steps[w->sample->n_steps > 1 ? c : 0]);
    else if (w->sample->specified.step > 0 && values->quant->n <= 1) {
        scaling->multiplier = w->sample->specified.step / scaling->scale;
        scaling->n_averaged = w->sample->specified.n_averaged;
        scaling->slope = w->sample->specified.slope;
    }
    for (size_t p = 0; p < w->n_arithmetics; p++)
        channel->applies[p] =
            (w->sample->only == 0 || w->sample->only == p + 1) &&
            nd_arithmetic_prepare(&w->arithmetics[p], scaling, w->sample->fused != NULL, &channel->ready[p]);
    channel->is_made = true;
    return channel;
}

/* ---- arithmetics ---- */

static double clipped(const struct nd_arithmetic_scaling *scaling, double whole)
{
    return fmin(fmax(whole + scaling->zero, scaling->low), scaling->high);
}

static bool is_beside(const struct nd_arithmetic_scaling *scaling, const struct nd_place *place, double given)
{
    double whole = given - scaling->zero;
    return whole == place->floor || whole == place->floor + 1;
}

static bool gives(const struct nd_arithmetic_outcome *outcome, double given)
{
    return (outcome->p < 1 && outcome->qvalue == given) || (outcome->p > 0 && outcome->other == given);
}

static int64_t cost_of_chance(const struct nd_arithmetic_outcome *outcome, double given)
{
    double p = (outcome->qvalue == given ? 1 - outcome->p : 0) + (outcome->other == given ? outcome->p : 0);
    return llrint(-log((1 - ND_IDENTIFY_CONTAMINATION) * p + ND_IDENTIFY_CONTAMINATION / 2) * ND_IDENTIFY_NATS);
}

/* A weighted sum, modulo 2^64: equal sums are equal outcomes. */
static uint64_t sign(const struct nd_arithmetic_outcome *outcome, uint64_t weight)
{
    uint64_t token = (uint64_t)(int64_t)outcome->qvalue;
    if (outcome->p > 0 && outcome->other != outcome->qvalue)
        token += nd_splitmix_hash((uint64_t)(outcome->p * 0x1p52) + (uint64_t)(int64_t)outcome->other);
    return token * weight;
}

static bool is_same(const struct nd_arithmetic_outcome *a, const struct nd_arithmetic_outcome *b)
{
    return a->qvalue == b->qvalue && (a->p > 0 ? a->other : a->qvalue) == b->qvalue &&
           (b->p > 0 ? b->other : b->qvalue) == b->qvalue;
}

static bool is_equal(const struct nd_arithmetic_outcome *a, const struct nd_arithmetic_outcome *b)
{
    return a->qvalue == b->qvalue && a->p == b->p && (a->p == 0 || a->other == b->other);
}

static void count_wrong(struct work *w, size_t p, const struct nd_arithmetic_scaling *scaling,
                        const struct nd_place *place, double given)
{
    struct nd_identify_tally *t = w->tally;
    const struct nd_arithmetic_outcome *outcome = &w->outcomes[p];
    t->n_wrong[p]++;
    bool is_inner = outcome->qvalue > scaling->low && outcome->other > scaling->low &&
                    outcome->qvalue < scaling->high && outcome->other < scaling->high;
    t->n_inner[p] += is_inner;
    t->n_beside[p] += is_inner && is_beside(scaling, place, given);
}

static void count_arithmetics(struct work *w, const struct channel *channel,
                              const struct nd_arithmetic_element *element, double given, uint64_t weight)
{
    struct nd_identify_tally *t = w->tally;
    const struct nd_arithmetic_outcome *first = NULL;
    const struct nd_place *place = &element->place;
    bool is_deciding = false;
    /* What was only moved, mostly. */
    bool has_no_sum = channel->scaling.multiplier == 0 || is_specified(&channel->scaling);
    if (place->is_whole && has_no_sum && fabs(place->floor) <= largest_short &&
        given == clipped(&channel->scaling, place->floor) && element->fused == NULL) {
        return;
    }
    for (size_t p = 0; p < w->n_arithmetics; p++) {
        if (!channel->applies[p])
            continue;
        w->outcomes[p] = nd_arithmetic_run(&channel->ready[p], element);
        first = first != NULL ? first : &w->outcomes[p];
        is_deciding = is_deciding || !is_same(first, &w->outcomes[p]);
    }
    t->n_deciding += is_deciding;
    for (size_t p = 0; p < w->n_arithmetics; p++) {
        if (!channel->applies[p])
            continue;
        t->n_seen[p]++;
        if (is_deciding && channel->applies[w->sample->against])
            t->n_apart[p] += !is_equal(&w->outcomes[p], &w->outcomes[w->sample->against]);
        if (!gives(&w->outcomes[p], given))
            count_wrong(w, p, &channel->scaling, &element->place, given);
        if (w->is_chance[p])
            t->chance[p] += cost_of_chance(&w->outcomes[p], given);
        if (is_deciding)
            t->signature[p] += sign(&w->outcomes[p], weight);
    }
}

/* ---- thresholds ---- */

static void narrow(struct nd_identify_bracket *bracket, double fraction, bool is_up)
{
    if (is_up) {
        bracket->min_up = bracket->n_up == 0 ? fraction : fmin(bracket->min_up, fraction);
        bracket->n_up++;
    } else {
        bracket->max_down = bracket->n_down == 0 ? fraction : fmax(bracket->max_down, fraction);
        bracket->n_down++;
    }
}

static void count_threshold(struct work *w, const struct nd_arithmetic_scaling *scaling,
                            const struct nd_place *place, double given, size_t c)
{
    struct nd_identify_tally *t = w->tally;
    double floor_qvalue = place->floor + scaling->zero;
    if (place->is_whole || floor_qvalue < scaling->low || floor_qvalue + 1 > scaling->high)
        return;
    t->n_open++;
    if (!is_beside(scaling, place, given)) {
        t->n_far++;
        return;
    }
    bool is_up = given == floor_qvalue + 1, is_negative = place->floor < 0;
    size_t bin = (size_t)fmin(place->fraction * ND_IDENTIFY_BINS, ND_IDENTIFY_BINS - 1);
    double size = fabs(place->floor + place->fraction);
    int exponent = size < 1 ? 0 : ilogb(size) + 1;
    t->bin_n[bin]++;
    t->bin_up[bin] += is_up;
    narrow(&t->binades[is_negative][exponent < ND_IDENTIFY_BINADES ? exponent : ND_IDENTIFY_BINADES - 1],
           place->fraction, is_up);
    if (t->n_channels > 0)
        narrow(&t->channels[c], place->fraction, is_up);
}

/* ---- a sample ---- */

enum nd_status nd_identify_layer(struct nd_identify_tally *tally, const struct nd_identify_sample *sample,
                                 struct nd_error *err)
{
    const struct nd_exact_values *values = sample->values;
    struct work w = {.tally = tally, .sample = sample};
    w.arithmetics = nd_arithmetics(&w.n_arithmetics);
    for (size_t p = 0; p < w.n_arithmetics; p++)
        w.is_chance[p] = nd_arithmetic_is_stochastic(&w.arithmetics[p]);
    w.n_channels = values->quant->n > sample->n_steps ? values->quant->n : sample->n_steps;
    w.n_channels = w.n_channels > 0 ? w.n_channels : 1;
    w.channels = nd_calloc(w.n_channels, sizeof *w.channels);
    ND_TRY_MEMORY(w.channels != NULL, err);
    if (w.n_channels <= ND_IDENTIFY_CHANNELS && w.n_channels > tally->n_channels)
        tally->n_channels = w.n_channels;
    for (size_t i = 0; i < values->n; i++) {
        size_t c = channel_of(&w, i);
        const struct channel *channel = prepare(&w, c);
        struct nd_arithmetic_element element = {.v = &values->v[i], .place = nd_place_of(&values->v[i])};
        element.fused = sample->fused != NULL ? &sample->fused[i] : NULL;
        if (is_specified(&channel->scaling))
            element.a = specified_sum(&channel->scaling, element.v);
        else if (channel->scaling.multiplier > 0)
            element.a = nd_arithmetic_accumulator(element.v, channel->scaling.scale,
                                                  &sample->steps[sample->n_steps > 1 ? c : 0]);
        tally->n++;
        count_arithmetics(&w, channel, &element, sample->given[i],
                          nd_splitmix_hash(sample->key ^ nd_splitmix_hash(i)) | 1);
        count_threshold(&w, &channel->scaling, &element.place, sample->given[i], c);
    }
    free(w.channels);
    return ND_OK;
}

static void merge_bracket(const struct nd_identify_bracket *from, struct nd_identify_bracket *to)
{
    if (from->n_up > 0)
        to->min_up = to->n_up > 0 ? fmin(to->min_up, from->min_up) : from->min_up;
    if (from->n_down > 0)
        to->max_down = to->n_down > 0 ? fmax(to->max_down, from->max_down) : from->max_down;
    to->n_up += from->n_up;
    to->n_down += from->n_down;
}

void nd_identify_merge(const struct nd_identify_tally *from, struct nd_identify_tally *to)
{
    to->n += from->n;
    to->n_open += from->n_open;
    to->n_deciding += from->n_deciding;
    to->n_far += from->n_far;
    for (size_t p = 0; p < ND_ARITHMETIC_MAX; p++) {
        to->n_seen[p] += from->n_seen[p];
        to->n_wrong[p] += from->n_wrong[p];
        to->n_apart[p] += from->n_apart[p];
        to->n_inner[p] += from->n_inner[p];
        to->n_beside[p] += from->n_beside[p];
        to->chance[p] += from->chance[p];
        to->signature[p] += from->signature[p];
    }
    for (size_t b = 0; b < ND_IDENTIFY_BINS; b++) {
        to->bin_n[b] += from->bin_n[b];
        to->bin_up[b] += from->bin_up[b];
    }
    for (size_t b = 0; b < ND_IDENTIFY_BINADES; b++) {
        merge_bracket(&from->binades[0][b], &to->binades[0][b]);
        merge_bracket(&from->binades[1][b], &to->binades[1][b]);
    }
    for (size_t c = 0; c < ND_IDENTIFY_CHANNELS; c++)
        merge_bracket(&from->channels[c], &to->channels[c]);
    if (from->n_channels > to->n_channels)
        to->n_channels = from->n_channels;
}
