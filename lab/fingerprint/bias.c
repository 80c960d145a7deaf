/* How biases enter products of uint8 codes: asking a device. */
#include <math.h>

#include "core/random.h"
#include "lab/fingerprint/bias.h"

/* Of one model. Chosen. */
enum { N_COLUMNS = 128 };

/* Real number of one step of a weight: 2 / 255, so that uint8 quantised values about 128 span -1 .. 1. Chosen.
 */
static const double usual_scale_w = 0.0078431;
/* Real number of one step of x: where scales are drawn from. Chosen: as usual activations have them. */
static const double min_scale_x = 0.01, max_scale_x = 0.04;
/* Units of the accumulator. Without a granule nothing cuts the fraction that a bias leaves: a step far below
 * the sliver of bias_solve.c's readings, whose quotients still are whole numbers in double. Chosen. */
static const double finest_step = 0x1p-20;

/* ---- one question ---- */

static struct nd_columns *make_question(struct nd_experiment *e, size_t n_rows, size_t n_terms,
                                        bool is_per_channel)
{
    struct nd_columns *q = nd_columns_make(e, n_rows, n_terms, N_COLUMNS);
    if (q == NULL)
        return NULL;
    q->is_per_channel = is_per_channel;
    q->has_bias = true;
    return q;
}

static size_t scale_of(const struct nd_columns *q, size_t c)
{
    return q->is_per_channel ? c : 0;
}

/* Scales of weights within a factor of 2 where each column has its own, and biases of `share` of the
 * accumulator's unit, times up to 2 where is_uneven. */
static void set_scales(struct nd_columns *q, double share, bool is_uneven, uint64_t *seed)
{
    for (size_t c = 0; c < (q->is_per_channel ? N_COLUMNS : 1); c++) {
        double own = q->is_per_channel ? nd_random_between(seed, 0.5, 1) : 1;
        q->scales_w[c] = (float)(own * usual_scale_w);
        float unit = q->scale_x * q->scales_w[c];
        double factor = is_uneven ? nd_random_between(seed, 1, 2) : 1;
        q->bias_scales[c] = share > 1 || share < 1 || is_uneven ? (float)((double)unit * share * factor) : unit;
    }
}

/* The bias of column c, of quantised value and scale, as what a rescale makes of it. */
static struct nd_bias_column rescale_bias(const struct nd_columns *q, size_t c, enum nd_bias_rescale rescale)
{
    static const enum nd_rounding roundings[ND_BIAS_RESCALES] = {ND_ROUND_HALF_EVEN, ND_ROUND_HALF_EVEN,
                                                                 ND_ROUND_TO_ZERO, ND_ROUND_FLOOR};
    struct nd_bias_column out = {.bias = (double)q->bias[c],
                                 .bias_scale = q->bias_scales[scale_of(q, c)],
                                 .scale_x = q->scale_x,
                                 .scale_w = q->scales_w[scale_of(q, c)]};
    float unit = out.scale_x * out.scale_w;
    if (rescale == ND_BIAS_AS_IT_IS || (out.bias_scale <= unit && out.bias_scale >= unit))
        return out;
    double qvalue = nd_round_value(out.bias * (double)out.bias_scale / (double)unit, roundings[rescale]);
    out.bias = fmin(fmax(qvalue, INT32_MIN), INT32_MAX);
    out.bias_scale = unit;
    return out;
}

/* What the columns of a tensor share. */
static struct nd_bias_column share_columns(const struct nd_columns *q, enum nd_bias_rescale rescale)
{
    struct nd_bias_column shared = {.scale_x = q->scale_x};
    for (size_t c = 0; c < N_COLUMNS; c++) {
        const struct nd_bias_column own = rescale_bias(q, c, rescale);
        shared.largest_scale_w = fmaxf(shared.largest_scale_w, own.scale_w);
        shared.largest_bias_scale = fmaxf(shared.largest_bias_scale, own.bias_scale);
    }
    for (size_t c = 0; c < N_COLUMNS; c++) {
        const struct nd_bias_column own = rescale_bias(q, c, rescale);
        double qvalue = fabs(own.bias);
        shared.largest_own = fmax(shared.largest_own, qvalue * (double)own.bias_scale);
        shared.largest_shared = fmax(shared.largest_shared, qvalue * (double)shared.largest_bias_scale);
        shared.largest_own_f32 = fmaxf(shared.largest_own_f32, (float)qvalue * own.bias_scale);
        shared.largest_shared_f32 = fmaxf(shared.largest_shared_f32, (float)qvalue * shared.largest_bias_scale);
    }
    return shared;
}

/* What each column adds, as far as the tensor decides it, and how it requantises. */
static void describe_columns(const struct nd_columns *q, const struct nd_requantise *rest, const double *ratios,
                             enum nd_bias_rescale rescale, struct nd_bias_column columns[N_COLUMNS],
                             struct nd_requantiser requantisers[N_COLUMNS])
{
    const struct nd_bias_column shared = share_columns(q, rescale);
    for (size_t c = 0; c < N_COLUMNS; c++) {
        const struct nd_bias_column own = rescale_bias(q, c, rescale);
        double m = (double)own.scale_x * (double)own.scale_w / (double)q->scale_y * ratios[c];
        double zero_y = (double)q->zero_y;
        requantisers[c] = nd_requantise_prepare(rest, m, zero_y);
        if (!rest->has_granule)
            requantisers[c].step = finest_step;
        columns[c] = shared;
        columns[c].bias = own.bias;
        columns[c].bias_scale = own.bias_scale;
        columns[c].scale_w = own.scale_w;
        columns[c].ratio = ratios[c];
        columns[c].zero = zero_y / m;
        columns[c].zero_fold = requantisers[c].fold;
    }
}

/* ---- sweeps ---- */

/* Accumulators: blocks of neighbours about centres. The centres are primes, so that no step of a bias divides
 * them, and reach near the largest sum, 8 * 127 * 127 = 129 032. Chosen. */
enum { N_CENTRES = 7, BLOCK = 512, SWEEP_ROWS = N_CENTRES * BLOCK };

static double accumulator_of(size_t row)
{
    static const double centres[N_CENTRES] = {0, -20011, 20011, -60013, 60013, -110017, 110017};
    return centres[row / BLOCK] + (double)(row % BLOCK) - BLOCK / 2;
}

/* Each row is an accumulator. */
static void fill_sweep(struct nd_columns *q)
{
    for (size_t i = 0; i < SWEEP_ROWS; i++) {
        int64_t terms[ND_SPREAD_TERMS];
        nd_spread((int64_t)accumulator_of(i), terms);
        for (size_t t = 0; t < ND_SPREAD_TERMS; t++)
            q->x[t * SWEEP_ROWS + i] = (uint8_t)(q->zero_x + terms[t]);
    }
    for (size_t i = 0; i < (size_t)N_COLUMNS * ND_SPREAD_TERMS; i++)
        q->weights[i] = nd_spread_weights[i % ND_SPREAD_TERMS];
}

/* Every second bias is about 0, the others about that which brings a block of accumulators back. */
static void fill_biases(struct nd_columns *q, bool has_huge, uint64_t *seed)
{
    /* Units of the accumulator: four blocks either way, so that many a block still shows thresholds. Chosen. */
    const double reach = 2000;
    for (size_t c = 0; c < N_COLUMNS; c++) {
        float unit = q->scale_x * q->scales_w[scale_of(q, c)], scale = q->bias_scales[scale_of(q, c)];
        double centre = c % 2 == 0 ? 0 : accumulator_of(c % N_CENTRES * BLOCK + BLOCK / 2);
        q->bias[c] = (int32_t)rint((nd_random_between(seed, -reach, reach) - centre) * (double)(unit / scale));
    }
    if (has_huge)
        q->bias[N_COLUMNS / 3] = INT32_MAX;
}

static size_t pick_rows(const double *qvalues, double *a, double *picked)
{
    size_t n = 0;
    for (size_t i = 0; i < SWEEP_ROWS; i++) {
        bool changes = (i % BLOCK > 0 && qvalues[i - 1] != qvalues[i]) ||
                       (i % BLOCK + 1 < BLOCK && qvalues[i + 1] != qvalues[i]);
        if (!changes || qvalues[i] <= 0 || qvalues[i] >= 255)
            continue;
        a[n] = accumulator_of(i);
        picked[n++] = qvalues[i];
    }
    return n;
}

struct readings {
    struct nd_bias_reading *items;
    size_t n;
};

/* Columns that show no threshold say nothing. */
static void read_columns(const struct nd_columns *q, const struct nd_requantise *rest, struct readings *out)
{
    struct nd_bias_column columns[ND_BIAS_RESCALES][N_COLUMNS];
    struct nd_requantiser requantisers[N_COLUMNS];
    double ratios[N_COLUMNS], a[SWEEP_ROWS], qvalues[SWEEP_ROWS];
    for (size_t c = 0; c < N_COLUMNS; c++)
        ratios[c] = 1;
    for (int k = 0; k < ND_BIAS_RESCALES; k++)
        describe_columns(q, rest, ratios, (enum nd_bias_rescale)k, columns[k], requantisers);
    for (size_t c = 0; c < N_COLUMNS; c++) {
        size_t n = pick_rows(q->qvalues + c * SWEEP_ROWS, a, qvalues);
        if (n == 0)
            continue;
        struct nd_bias_reading *reading = &out->items[out->n++];
        reading->range = nd_bias_read(&requantisers[c], a, qvalues, n);
        for (int k = 0; k < ND_BIAS_RESCALES; k++)
            reading->columns[k] = columns[k][c];
    }
}

/* What a sweep is asked under. share: a bias's step in units of the accumulator, s_x s_w; shares but 1 are no
 * simple fractions, so that a bias that is rescaled is rounded. multiplier: quantised values per unit of the
 * accumulator; about 2^-5, under which a block of 512 passes 18 to 27 thresholds. zero_y: an output quantised
 * value. All chosen. */
static const struct setting {
    double share;
    bool is_uneven; /* of scales per column alone: shares of 1 to 2 times this, column by column */
    bool has_huge;  /* one bias is 2^31 - 1 */
    double multiplier;
    int64_t zero_y;
} settings[] = {
    {1, false, false, 0x1.4dp-5, 128},      {1, false, true, 0x1.b1p-5, 77},
    {0.3713, false, false, 0x1.27p-5, 150}, {13.713, false, false, 0x1.63p-5, 101},
    {0.8317, true, false, 0x1.4dp-5, 128},
};
enum { N_SETTINGS = sizeof settings / sizeof settings[0] };

static void sweep(struct nd_experiment *e, const struct setting *setting, struct nd_bias *b, uint64_t *seed,
                  struct readings *readings)
{
    struct nd_columns *q = make_question(e, SWEEP_ROWS, ND_SPREAD_TERMS, b->is_per_channel);
    if (q == NULL)
        return;
    fill_sweep(q);
    q->zero_y = setting->zero_y;
    q->scale_x = (float)nd_random_between(seed, min_scale_x, max_scale_x);
    set_scales(q, setting->share, setting->is_uneven, seed);
    q->scale_y = (float)((double)q->scale_x * (double)q->scales_w[0] / setting->multiplier);
    fill_biases(q, setting->has_huge, seed);
    if (!nd_columns_ask(e, q))
        return;
    b->n_qvalues += (size_t)N_COLUMNS * SWEEP_ROWS;
    read_columns(q, &b->weights->rest, readings);
}

static void find_program(struct nd_experiment *e, struct nd_bias *b)
{
    struct readings readings = {
        .items = nd_experiment_alloc(e, (size_t)N_SETTINGS * N_COLUMNS, sizeof *readings.items)};
    uint64_t seed = 20261125;
    for (size_t i = 0; i < N_SETTINGS; i++)
        if (b->is_per_channel || !settings[i].is_uneven)
            sweep(e, &settings[i], b, &seed, &readings);
    if (nd_experiment_goes_on(e) && readings.n > 0 &&
        nd_experiment_check(
            e, nd_bias_solve(readings.items, readings.n, b->weights->rest.folds_zero, &b->found, e->err)))
        nd_experiment_own(e, b->found.arithmetics);
}

/* ---- fresh quantised values ---- */

/* Four models make 131 072 quantised values, more than ND_CONFIRMING_QVALUES. */
enum { FRESH_ROWS = 256, FRESH_TERMS = 64, N_FRESH_MODELS = 4, FRESH_QVALUES = FRESH_ROWS * N_COLUMNS };
/* In units of the accumulator: biases are as large as the sums (columns.c). Chosen. */
static const double max_fresh_bias = 60000;

struct fresh {
    struct nd_bias *bias;
    const struct nd_weights *weights;
    const struct nd_columns *q;
    double *w, *w8, *sums; /* of the question; what its weights become; sums of those */
    struct nd_bias_column columns[ND_BIAS_RESCALES][N_COLUMNS];
    struct nd_requantiser requantisers[N_COLUMNS];
};

static void fill_fresh(struct nd_columns *q, double share, uint64_t *seed)
{
    nd_columns_draw(q, seed);
    set_scales(q, share, false, seed);
    nd_columns_draw_step(q, seed);
    for (size_t c = 0; c < N_COLUMNS; c++)
        q->bias[c] = (int32_t)rint(nd_random_between(seed, -max_fresh_bias, max_fresh_bias) / share);
}

/* The sums of the question's quantised values, and how each column goes on from them. */
static void prepare_columns(struct fresh *f)
{
    double ratios[N_COLUMNS];
    for (size_t i = 0; i < (size_t)N_COLUMNS * FRESH_TERMS; i++)
        f->w[i] = (double)(f->q->weights[i] - f->q->zero_w);
    nd_weight_fit(&f->weights->found.arithmetics[0], f->w, N_COLUMNS, FRESH_TERMS, f->w8, ratios);
    nd_columns_sum(f->q, f->w8, f->sums);
    for (int k = 0; k < ND_BIAS_RESCALES; k++)
        describe_columns(f->q, &f->weights->rest, ratios, (enum nd_bias_rescale)k, f->columns[k],
                         f->requantisers);
}

static size_t ask_fresh(struct nd_experiment *e, void *context, size_t i, uint64_t *seed)
{
    static const double shares[N_FRESH_MODELS] = {1, 1, 0.4321, 2.17}; /* as those of the settings */
    struct fresh *f = context;
    struct nd_bias *b = f->bias;
    struct nd_columns *q = make_question(e, FRESH_ROWS, FRESH_TERMS, b->is_per_channel);
    if (q == NULL)
        return 0;
    fill_fresh(q, shares[i], seed);
    if (!nd_columns_ask(e, q))
        return 0;
    f->q = q;
    prepare_columns(f);
    b->n_qvalues += FRESH_QVALUES;
    return FRESH_QVALUES;
}

static uint64_t count_right(const void *context, const void *arithmetic)
{
    const struct fresh *f = context;
    const struct nd_bias_arithmetic *p = arithmetic;
    uint64_t n_right = 0;
    for (size_t c = 0; c < N_COLUMNS; c++) {
        struct nd_requantiser r = f->requantisers[c];
        r.fold = nd_bias_shift(p, &f->columns[p->rescale][c]);
        for (size_t i = c * FRESH_ROWS; i < (c + 1) * FRESH_ROWS; i++)
            n_right += nd_requantise_qvalue(&r, f->sums[i], 0, 255) == f->q->qvalues[i];
    }
    return n_right;
}

static const struct nd_confirmation confirmation = {
    .n_models = N_FRESH_MODELS, .seed = 20261126, .ask = ask_fresh, .count_right = count_right};

void nd_bias_take(struct nd_experiment *e, struct nd_bias *b)
{
    e->is_patient = true;
    find_program(e, b);
    struct fresh *fresh = nd_experiment_alloc(e, 1, sizeof *fresh);
    double *room = nd_experiment_alloc(e, 2 * (size_t)N_COLUMNS * FRESH_TERMS + FRESH_QVALUES, sizeof *room);
    if (!nd_experiment_goes_on(e))
        return;
    *fresh = (struct fresh){.bias = b,
                            .weights = b->weights,
                            .w = room,
                            .w8 = room + (size_t)N_COLUMNS * FRESH_TERMS,
                            .sums = room + 2 * (size_t)N_COLUMNS * FRESH_TERMS};
    nd_experiment_confirm(e, &confirmation, fresh, ND_LEFT(&b->found));
}
