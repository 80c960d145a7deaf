/* The last float32 steps of a layer's scales, and its bias. The arithmetics do not round a quotient of float32
 * numbers alike: one cuts it to a whole number, one takes the floor of it together with the zero point. So the
 * candidates for scales and bias are shown to the proof, and the first for which no channel differs is taken.
 * docs/science/align.md#biases. */
#include <math.h>

#include "core/memory.h"
#include "improve/align/align_stages.h"

enum { W = 1, B = 2 };

/* Float32 steps by which scales are moved, and what is added to the quantised values of positive biases. */
struct candidate {
    int w, y, b, nudge;
    bool is_y_product; /* y is moved from 2^k F(scale_x scale_w), not from the scale that was chosen */
};

struct search {
    struct nd_align_layer *layer;
    const struct nd_layer_arithmetic *const *arithmetics;
    size_t n_arithmetics;
    size_t n;         /* channels with a bias; 0: there is none */
    bool *is_unequal; /* [n] of the last look */
    double *qvalues;  /* [n] the bias before neighbours were tried */
    float *scale_w;   /* [quants[W].n] as they were chosen, like the next */
    float scale_y;
    double step; /* quantised values of the bias are multiples of it */
};

/* How many channels differ between the first arithmetic and the others. */
static enum nd_status look(const struct search *s, size_t *n_unequal, struct nd_error *err)
{
    *n_unequal = 0;
    if (s->n > 0)
        memset(s->is_unequal, 0, s->n * sizeof *s->is_unequal);
    for (size_t p = 1; p < s->n_arithmetics; p++) {
        struct nd_layer_proof proof;
        ND_TRY(nd_layer_product_prove(s->arithmetics[0], s->arithmetics[p], &s->layer->made, &proof,
                                      s->n > 0 ? s->is_unequal : NULL, err));
        *n_unequal += proof.n_unequal;
    }
    return ND_OK;
}

static float moved(float scale, int n_steps)
{
    for (int i = 0; i < abs(n_steps); i++)
        scale = nextafterf(scale, n_steps > 0 ? HUGE_VALF : 0);
    return scale;
}

static void set_bias(const struct search *s, const struct candidate *candidate)
{
    struct nd_align_layer *layer = s->layer;
    struct nd_quant *quant = &layer->quants[B];
    double most = floor((double)INT32_MAX / s->step - 1) * s->step;
    for (size_t c = 0; c < quant->n; c++) {
        float product = layer->quants[0].scale[0] * layer->quants[W].scale[layer->quants[W].n > 1 ? c : 0];
        quant->scale[c] = moved(product, candidate->b);
        quant->zero_point[c] = 0;
    }
    for (size_t i = 0; i < s->n; i++) {
        double scale = (double)quant->scale[quant->n > 1 ? i : 0];
        double qvalue = nearbyint(layer->bias[i] / scale / s->step) * s->step;
        qvalue = fmin(fmax(qvalue, -most), most);
        layer->qvalues[B].x[i] = qvalue > 0 ? qvalue + candidate->nudge : qvalue;
    }
}

/* In float32, and less the same in exact arithmetic. */
static float product_of(const struct search *s, int w, double *excess)
{
    float scale_x = s->layer->quants[0].scale[0], scale_w = moved(s->scale_w[0], w),
          product = scale_x * scale_w;
    *excess = (double)product - (double)scale_x * (double)scale_w;
    return product;
}

static void set_candidate(const struct search *s, const struct candidate *candidate)
{
    struct nd_align_layer *layer = s->layer;
    double excess;
    float product = product_of(s, layer->has_weights ? candidate->w : 0, &excess);
    for (size_t c = 0; layer->has_weights && c < layer->quants[W].n; c++)
        layer->quants[W].scale[c] = moved(s->scale_w[c], candidate->w);
    if (!layer->is_y_settled)
        layer->output.scale[0] =
            moved(candidate->is_y_product ? ldexpf(product, layer->exponent[0]) : s->scale_y, candidate->y);
    if (s->n > 0)
        set_bias(s, candidate);
}

/* Other quantised values for the channels that differ, all at once. */
static enum nd_status try_neighbours(const struct search *s, size_t *n_left, struct nd_error *err)
{
    enum { MAX_STEPS = 32 }; /* chosen */
    double *qvalues = s->layer->qvalues[B].x;
    enum nd_status status = look(s, n_left, err);
    memcpy(s->qvalues, qvalues, s->n * sizeof *qvalues);
    for (int i = 0; i<2 * MAX_STEPS && * n_left> 0 && status == ND_OK; i++) {
        int shift = i % 2 == 0 ? i / 2 + 1 : -(i / 2 + 1);
        for (size_t c = 0; c < s->n; c++)
            if (s->is_unequal[c])
                qvalues[c] = s->qvalues[c] + shift * s->step;
        status = look(s, n_left, err);
    }
    for (size_t c = 0; c < s->n; c++)
        if (s->is_unequal[c])
            qvalues[c] = s->qvalues[c];
    return status;
}

/* With weights per channel one arithmetic rounds all biases to steps of the largest: where that has another
 * quantised value, all of them are rounded anew. */
static enum nd_status try_largest(const struct search *s, const struct candidate *best, size_t *n_left,
                                  struct nd_error *err)
{
    enum { MAX_STEPS = 16 }; /* chosen */
    double *qvalues = s->layer->qvalues[B].x;
    enum nd_status status = ND_OK;
    size_t largest = 0;
    for (size_t c = 0; c < s->n; c++)
        largest = fabs(qvalues[c]) > fabs(qvalues[largest]) ? c : largest;
    for (int i = 0; i<2 * MAX_STEPS && * n_left> 0 && status == ND_OK; i++) {
        set_candidate(s, best);
        qvalues[largest] += (i % 2 == 0 ? i / 2 + 1 : -(i / 2 + 1)) * s->step;
        status = try_neighbours(s, n_left, err);
    }
    if (*n_left == 0 || status != ND_OK)
        return status;
    set_candidate(s, best);
    return try_neighbours(s, n_left, err);
}

struct found {
    struct candidate best;
    size_t n_left;
};

static enum nd_status try(const struct search *s, const struct candidate *candidate, struct found *found,
                          struct nd_error *err)
{
    size_t n_unequal;
    if (found->n_left == 0)
        return ND_OK;
    set_candidate(s, candidate);
    enum nd_status status = look(s, &n_unequal, err);
    if (status == ND_OK && n_unequal < found->n_left)
        *found = (struct found){*candidate, n_unequal};
    return status;
}

/* Of 8 bits: the scale of the bias is a little higher than the product, so that no quotient falls short. */
static enum nd_status try_bytes(const struct search *s, struct found *found, struct nd_error *err)
{
    static const struct candidate candidates[] = {{.b = 1},          {.b = 2},         {.b = 4},
                                                  {.b = 8},          {.b = 0},         {.y = 1, .b = 1},
                                                  {.w = -1, .b = 1}, {.w = -1, .b = 4}};
    for (size_t i = 0; i < sizeof candidates / sizeof candidates[0]; i++)
        ND_TRY(try(s, &candidates[i], found, err));
    return ND_OK;
}

/* Of 16 bits: one arithmetic cuts a bias to a whole number, the other takes its floor. They agree on positive
 * biases that are a little above a whole number, and on negative ones that are hardly above it: where the
 * product in float32 is not more than the exact one. Some float32 step further it is. */
static enum nd_status try_words(const struct search *s, struct found *found, struct nd_error *err)
{
    enum {
        MAX_STEPS = 24,
        NUDGE = 16
    }; /* chosen; quantised values of the bias lose 8 bits, so that 16 are 1/16 */
    static const struct candidate others[] = {
        {.b = 1}, {.b = 2}, {.b = 4}, {.w = -1, .b = 1}, {.y = 1, .b = 1}};
    for (int i = 0; i < 2 * MAX_STEPS; i++) {
        int w = i % 2 == 0 ? i / 2 : -(i + 1) / 2;
        double excess;
        product_of(s, w, &excess);
        for (int y = 0; y < 2 && excess <= 0; y++)
            ND_TRY(
                try(s, &(struct candidate){.w = w, .y = y, .nudge = NUDGE, .is_y_product = true}, found, err));
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        ND_TRY(try(s, &others[i], found, err));
    return ND_OK;
}

static enum nd_status find(const struct search *s, size_t *n_left, struct nd_error *err)
{
    struct found found = {.n_left = SIZE_MAX};
    bool is_wide = s->layer->layer->dtype == ND_DTYPE_U16;
    ND_TRY(is_wide ? try_words(s, &found, err) : try_bytes(s, &found, err));
    set_candidate(s, &found.best);
    *n_left = found.n_left;
    if (found.n_left > 0 && s->n > 0)
        ND_TRY(try_neighbours(s, n_left, err));
    bool is_per_channel = s->layer->quants[W].n > 1;
    return *n_left > 0 && s->n > 0 && is_per_channel ? try_largest(s, &found.best, n_left, err) : ND_OK;
}

enum nd_status nd_align_find_bias(struct nd_align_layer *layer,
                                  const struct nd_layer_arithmetic *const *arithmetics, size_t n_arithmetics,
                                  size_t *n_left, struct nd_error *err)
{
    struct search s = {.layer = layer,
                       .arithmetics = arithmetics,
                       .n_arithmetics = n_arithmetics,
                       .n = layer->bias != NULL ? layer->qvalues[B].n : 0,
                       .scale_y = layer->output.scale[0],
                       .step = layer->layer->dtype == ND_DTYPE_U16 ? 256 : 1};
    ND_FREED void *is_unequal = s.is_unequal = nd_calloc(s.n + 1, sizeof *s.is_unequal);
    ND_FREED void *qvalues = s.qvalues = nd_calloc(s.n + 1, sizeof *s.qvalues);
    ND_FREED void *scale_w = s.scale_w = nd_calloc(layer->quants[W].n, sizeof *s.scale_w);
    ND_TRY_MEMORY(is_unequal != NULL && qvalues != NULL && scale_w != NULL, err);
    for (size_t c = 0; c < layer->quants[W].n; c++)
        s.scale_w[c] = layer->quants[W].scale[c];
    return find(&s, n_left, err);
}
