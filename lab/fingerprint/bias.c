/* How biases enter products of uint8 codes: the arithmetics (bias.h), asking a device, and what is said of it
 * (docs/reference/datasheet.md). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/memory.h"
#include "core/random.h"
#include "lab/experiment/candidates.h"
#include "lab/fingerprint/bias.h"
#include "lab/fingerprint/section.h"

/* ---- the arithmetic ---- */

static const char *nd_bias_name(const struct nd_bias_arithmetic *p, char buf[ND_BIAS_NAME_BYTES])
{
    static const char *const rescales[] = {"", "rescaled+", "rescaled:to-zero+", "rescaled:floor+"};
    char common[64] = "";
    if (p->common_bits > 0)
        snprintf(common, sizeof common, "+common:%d:%s%s", p->common_bits, nd_rounding_name(p->common_rounding),
                 p->has_reciprocal ? "+reciprocal" : "");
    snprintf(buf, ND_BIAS_NAME_BYTES, "%s%s%s%s%s%s+rounding:%s", rescales[p->rescale],
             p->is_f32 ? "float32" : "double", common, p->has_largest_bias_scale ? "+largest-bias-scale" : "",
             p->has_largest_weight_scale ? "+largest-weight-scale" : "", p->joins_zero ? "+joins-zero" : "",
             p->is_whole ? nd_rounding_name(p->rounding) : "none");
    return buf;
}

static double in_f32(const struct nd_bias_arithmetic *p, const struct nd_bias_column *c)
{
    float scale_w = p->has_largest_weight_scale ? c->largest_scale_w : c->scale_w;
    float unit = c->scale_x * scale_w * (float)c->ratio;
    float real = (float)c->bias * (p->has_largest_bias_scale ? c->largest_bias_scale : c->bias_scale);
    float largest = p->has_largest_bias_scale ? c->largest_shared_f32 : c->largest_own_f32;
    if (p->common_bits > 0 && largest > 0) {
        float step = (float)ldexp((double)largest, -p->common_bits);
        float steps = p->has_reciprocal ? real * (1 / step) : real / step;
        real = (float)nd_round_value((double)steps, p->common_rounding) * step;
    }
    return (double)(real / unit);
}

static double in_f64(const struct nd_bias_arithmetic *p, const struct nd_bias_column *c)
{
    double scale_w = (double)(p->has_largest_weight_scale ? c->largest_scale_w : c->scale_w);
    double real = c->bias * (double)(p->has_largest_bias_scale ? c->largest_bias_scale : c->bias_scale);
    double largest = p->has_largest_bias_scale ? c->largest_shared : c->largest_own;
    if (p->common_bits > 0 && largest > 0) {
        double step = ldexp(largest, -p->common_bits);
        real = nd_round_value(real / step, p->common_rounding) * step;
    }
    return real / ((double)c->scale_x * scale_w * c->ratio);
}

/* What is added to the accumulator, the zero point with it where that is folded. The column is the one for the
 * program's rescale. */
static double nd_bias_shift(const struct nd_bias_arithmetic *p, const struct nd_bias_column *c)
{
    double shift = p->is_f32 ? in_f32(p, c) : in_f64(p, c);
    if (p->joins_zero)
        shift += c->zero;
    if (p->is_whole)
        shift = nd_round_value(shift, p->rounding);
    return p->joins_zero ? shift : shift + c->zero_fold;
}

/* ---- reading ---- */

struct rows {
    struct nd_requantise_ready requantiser; /* but for its fold: the shift */
    const double *a, *qvalues;
    size_t n;
};

/* Whether some quantised value under the shift is less than the device's (sign -1), or more (sign 1). */
static bool is_beyond(const struct rows *rows, double shift, int sign)
{
    struct nd_requantise_ready r = rows->requantiser;
    r.fold = shift;
    for (size_t i = 0; i < rows->n; i++)
        if (sign * (nd_requantise_qvalue(&r, rows->a[i], 0, 255) - rows->qvalues[i]) > 0)
            return true;
    return false;
}

/* Of all shifts up to this one. */
static const double farthest = 0x1p33;

/* The least shift (sign -1) or the greatest under which no quantised value is beyond; infinite without a limit.
 */
static double find_limit(const struct rows *rows, int sign)
{
    enum { STEPS = 96 }; /* down to neighbouring doubles */
    double out = sign * farthest, in = -out;
    for (int i = 0; i < STEPS; i++) {
        double middle = out + (in - out) / 2;
        *(is_beyond(rows, middle, sign) ? &out : &in) = middle;
    }
    return sign * in < farthest ? in : sign * HUGE_VAL;
}

struct nd_bias_range nd_bias_read(const struct nd_requantise_ready *r, const double *a, const double *qvalues,
                                  size_t n)
{
    const struct rows rows = {*r, a, qvalues, n};
    if (is_beyond(&rows, farthest, -1) || is_beyond(&rows, -farthest, 1))
        return (struct nd_bias_range){1, 0};
    return (struct nd_bias_range){find_limit(&rows, -1), find_limit(&rows, 1)};
}

/* ---- solving ---- */

struct search {
    const struct nd_bias_reading *readings;
    size_t n;
    bool folds;
    struct nd_bias_findings *out;
    struct nd_candidates candidates;
};

/* Those with the fewest wrong columns stay. */
static void try_arithmetic(struct search *s, const struct nd_bias_arithmetic *p)
{
    /* More than a column's shift is off in double, where it is not rounded. */
    enum { STRIDE = 1000003 }; /* a prime above all n */
    const double sliver = p->is_whole ? 0 : 0x1p-30;
    uint64_t wrong = 0;
    for (size_t i = 0; i < s->n && wrong <= s->out->n_wrong; i++) {
        /* Columns of all settings in turn: what is wrong is so soon. */
        const struct nd_bias_reading *reading = &s->readings[i * STRIDE % s->n];
        double shift = nd_bias_shift(p, &reading->columns[p->rescale]);
        wrong += shift < reading->range.low - sliver || shift > reading->range.high + sliver;
    }
    nd_candidates_fewest(&s->candidates, p, wrong, &s->out->n_wrong);
}

static void try_roundings(struct search *s, struct nd_bias_arithmetic p)
{
    for (int joins = 0; joins <= s->folds; joins++) {
        p.joins_zero = joins != 0;
        p.is_whole = true;
        for (int r = ND_ROUND_HALF_EVEN; r <= ND_ROUND_TO_ZERO; r++) {
            p.rounding = (enum nd_rounding)r;
            try_arithmetic(s, &p);
        }
        p.is_whole = false;
        p.rounding = ND_ROUND_HALF_EVEN;
        try_arithmetic(s, &p);
    }
}

static void try_steps(struct search *s, struct nd_bias_arithmetic p)
{
    enum { MIN_BITS = 8, MAX_BITS = 31 };
    static const enum nd_rounding roundings[] = {ND_ROUND_HALF_EVEN, ND_ROUND_FLOOR, ND_ROUND_TO_ZERO};
    try_roundings(s, p);
    for (p.common_bits = MIN_BITS; p.common_bits <= MAX_BITS; p.common_bits++)
        for (size_t r = 0; r < sizeof roundings / sizeof roundings[0]; r++)
            for (int reciprocal = 0; reciprocal <= p.is_f32; reciprocal++) {
                p.common_rounding = roundings[r];
                p.has_reciprocal = reciprocal != 0;
                try_roundings(s, p);
            }
}

static bool are_scales_shared(const struct nd_bias_reading *readings, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (readings[i].columns[0].scale_w < readings[i].columns[0].largest_scale_w ||
            readings[i].columns[0].bias_scale < readings[i].columns[0].largest_bias_scale)
            return false;
    return true;
}

enum nd_status nd_bias_solve(const struct nd_bias_reading *readings, size_t n, bool folds,
                             struct nd_bias_findings *out, struct nd_error *err)
{
    struct nd_bias_findings found = {.n_readings = n, .n_wrong = UINT64_MAX};
    struct search search = {
        .readings = readings, .n = n, .folds = folds, .out = &found, .candidates = ND_CANDIDATES(&found)};
    int n_scales = are_scales_shared(readings, n) ? 1 : 4;
    for (int rescale = 0; rescale < ND_BIAS_RESCALES; rescale++)
        for (int form = 0; form < 2 * n_scales; form++)
            try_steps(&search, (struct nd_bias_arithmetic){.rescale = (enum nd_bias_rescale)rescale,
                                                           .is_f32 = (form & 1) != 0,
                                                           .has_largest_bias_scale = (form & 2) != 0,
                                                           .has_largest_weight_scale = (form & 4) != 0});
    ND_TRY(nd_candidates_end(&search.candidates, err));
    *out = found;
    return ND_OK;
}

/* ---- how biases enter products of uint8 codes: asking a device ---- */

/* Of one model. Chosen. */
enum { N_COLUMNS = 128 };

/* Real number of one step of a weight: 2 / 255, so that uint8 quantised values about 128 span -1 .. 1. Chosen.
 */
static const double usual_scale_w = 0.0078431;
/* Real number of one step of x: where scales are drawn from. Chosen: as usual activations have them. */
static const double min_scale_x = 0.01, max_scale_x = 0.04;
/* Units of the accumulator. Without a granule nothing cuts the fraction that a bias leaves: a step far below
 * the sliver of the readings above, whose quotients still are whole numbers in double. Chosen. */
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
                             struct nd_requantise_ready requantisers[N_COLUMNS])
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
    struct nd_requantise_ready requantisers[N_COLUMNS];
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
    struct nd_requantise_ready requantisers[N_COLUMNS];
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
        struct nd_requantise_ready r = f->requantisers[c];
        r.fold = nd_bias_shift(p, &f->columns[p->rescale][c]);
        for (size_t i = c * FRESH_ROWS; i < (c + 1) * FRESH_ROWS; i++)
            n_right += nd_requantise_qvalue(&r, f->sums[i], 0, 255) == f->q->qvalues[i];
    }
    return n_right;
}

static const struct nd_confirmation confirmation = {
    .n_models = N_FRESH_MODELS, .seed = 20261126, .ask = ask_fresh, .count_right = count_right};

/* Biases of Conv with uint8 codes: uint8 weights of any zero point, or int8 ones with a scale per channel. All
 * but weights and is_per_channel is 0 before. */
static void nd_bias_take(struct nd_experiment *e, struct nd_bias *b)
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

/* ---- how biases enter products of uint8 codes: what is said of it ---- */

/* Of the first arithmetic, which stands for all that are left. */
static void describe(struct nd_experiment *e, json_t *out, const struct nd_bias *b)
{
    static const char *const rescales[] = {"as it is", "rescaled, half-even", "rescaled, to-zero",
                                           "rescaled, floor"};
    const struct nd_bias_arithmetic *p = &b->found.arithmetics[0];
    nd_tell_text(e, out, "other_scale", rescales[p->rescale]);
    nd_tell_text(e, out, "precision", p->is_f32 ? "float32" : "double");
    nd_tell_text(e, out, "rounding", p->is_whole ? nd_rounding_name(p->rounding) : "none");
    nd_tell_text(e, out, "zero_point", p->joins_zero ? "added before rounding" : "apart");
    if (p->common_bits > 0) {
        nd_tell_int(e, out, "common_bits", p->common_bits);
        nd_tell_rounding(e, out, "common_rounding", p->common_rounding);
    }
    if (b->is_per_channel) {
        nd_tell_text(e, out, "bias_scale", p->has_largest_bias_scale ? "the greatest" : "the channel's");
        nd_tell_text(e, out, "weight_scale", p->has_largest_weight_scale ? "the greatest" : "the channel's");
    }
}

#define FIELD(member) ND_FIELD(struct nd_bias_arithmetic, member)
static const struct nd_issue issues[] = {
    {"double or float32", "more columns with great biases", {FIELD(is_f32)}},
    {"the common step of all biases",
     "biases at ties of the steps, next to a great one",
     {FIELD(common_bits), FIELD(common_rounding), FIELD(has_reciprocal)}},
    {"whose scales are taken",
     "more uneven scales",
     {FIELD(rescale), FIELD(has_largest_bias_scale), FIELD(has_largest_weight_scale)}},
    {"how the shift is rounded",
     "biases whose shift, or zero points whose quotient, is a tie",
     {FIELD(is_whole), FIELD(rounding), FIELD(joins_zero)}},
    {NULL, NULL, {{0}}}};

static void tell(struct nd_experiment *e, const struct nd_bias *b, json_t *entries)
{
    enum { MAX_NAMES = 4 };
    char buf[ND_BIAS_NAME_BYTES];
    const struct nd_bias_findings *found = &b->found;
    bool is_known = nd_experiment_is_confirmed(e, found->n_arithmetics);
    json_t *entry = nd_experiment_tell(e, entries, is_known);
    if (entry == NULL)
        return;
    nd_tell_counts(e, entry,
                   ND_COUNTS({"values", b->n_qvalues}, {"settings", e->n_asked}, {"refused", e->n_refused},
                             {"not_on_npu", e->n_elsewhere}, {"columns", found->n_readings},
                             {"columns_wrong", found->n_wrong}, {"possible_left", found->n_arithmetics},
                             {"fresh", e->n_fresh}, {"right", e->n_right}));
    nd_tell_listed(e, entry, "possible_arithmetic", NULL);
    for (size_t i = 0; i < found->n_arithmetics && i < MAX_NAMES; i++)
        nd_tell_listed(e, entry, "possible_arithmetic", nd_bias_name(&found->arithmetics[i], buf));
    if (found->n_arithmetics == 0)
        nd_tell_unknown(e, entry);
    else if (is_known)
        describe(e, nd_tell_object(e, entry, "parameters"), b);
    nd_tell_issues(e, entry, issues, found->arithmetics, found->n_arithmetics, sizeof *found->arithmetics);
}

/* Without an arithmetic for the sums nothing is said about what is added to them. */
static void tell_unknown(struct nd_experiment *e, json_t *entries)
{
    json_t *entry = nd_experiment_tell(e, entries, false);
    if (entry != NULL)
        nd_tell_undecided(e, entry, "the biases",
                          "known programs for sums and weights: sections linear-u8 and weights");
}

enum nd_status nd_section_bias(struct nd_bench *bench, json_t *entries, struct nd_error *err)
{
    static const char *const types[] = {"u8 x u8 + i32 -> u8", "u8 x i8 per channel + i32 -> u8"};
    ND_CLEANUP(nd_experiment_end)
    struct nd_experiment of_weights = nd_experiment_begin(bench, "Conv", types[0], err);
    struct nd_weights weights;
    nd_weights_take(&of_weights, &weights);
    bool is_known = nd_weights_are_known(&of_weights, &weights);
    ND_TRY(of_weights.status);
    for (int i = 0; i < 2; i++) {
        struct nd_experiment e = nd_experiment_begin(bench, "Conv", types[i], err);
        struct nd_bias bias = {.weights = &weights, .is_per_channel = i == 1};
        of_weights.types = types[i];
        if (is_known) {
            nd_bias_take(&e, &bias);
            tell(&e, &bias, entries);
        } else {
            tell_unknown(&of_weights, entries);
            e.status = of_weights.status;
        }
        ND_TRY(nd_experiment_end(&e));
    }
    return ND_OK;
}
