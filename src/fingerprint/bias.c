/* Asking a device about biases. */
#include "fingerprint/bias.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "fingerprint/fresh.h"

enum { ZERO_X = 128, LARGE = 127, N_COLUMNS = 128 };

bool nd_bias_fingerprint_is_confirmed(const struct nd_bias_fingerprint *f)
{
    return !f->has_failed && f->found.n_programs > 0 && nd_fresh_is_enough(f->n_fresh, f->n_right);
}

void nd_bias_fingerprint_deinit(struct nd_bias_fingerprint *f)
{
    nd_trial_deinit(&f->failure);
    free(f->found.programs);
    f->found = (struct nd_bias_findings){0};
}

/* ---- one question ---- */

struct question {
    struct nd_columns about;
    int16_t *weights;
    uint8_t *x;
    double *codes; /* NULL: no answer of the NPU */
    float scales_w[N_COLUMNS], bias_scales[N_COLUMNS];
    int32_t bias[N_COLUMNS];
};

static void deinit_question(struct question *q)
{
    free(q->weights);
    free(q->x);
    free(q->codes);
    free(q);
}

static enum nd_status make_question(size_t n_rows, size_t n_terms, bool is_per_channel, struct question **out,
                                    struct nd_error *err)
{
    struct question *q = nd_calloc(1, sizeof *q);
    if (q == NULL)
        return nd_fail_memory(err);
    size_t n_scales = is_per_channel ? N_COLUMNS : 1;
    q->weights = nd_calloc(N_COLUMNS * n_terms, sizeof *q->weights);
    q->x = nd_calloc(n_rows, n_terms);
    q->about = (struct nd_columns){.n_rows = n_rows,
                                   .n_terms = n_terms,
                                   .n_columns = N_COLUMNS,
                                   .weights = q->weights,
                                   .zero_x = ZERO_X,
                                   .scales_w = q->scales_w,
                                   .n_scales_w = n_scales,
                                   .bias = q->bias,
                                   .bias_scales = q->bias_scales,
                                   .n_bias_scales = n_scales};
    if (q->weights == NULL || q->x == NULL) {
        deinit_question(q);
        return nd_fail_memory(err);
    }
    *out = q;
    return ND_OK;
}

/* Settings that a device refuses, or runs elsewhere, are counted; the first one of all is a failure. */
static enum nd_status ask(struct nd_bench *bench, struct question *q, struct nd_bias_fingerprint *out,
                          struct nd_error *err)
{
    struct nd_trial_result result;
    enum nd_status status = nd_columns_ask(bench, &q->about, q->x, &result, err);
    if (status != ND_OK)
        return status;
    bool is_first = out->n_settings++ == 0;
    if (is_first) {
        memcpy(out->provider, result.provider, sizeof out->provider);
        out->is_on_npu = result.is_on_npu || result.has_failed;
        out->has_failed = result.has_failed;
    }
    if (is_first && result.has_failed) {
        out->failure = result;
        return ND_OK;
    }
    out->n_refused += result.has_failed;
    out->n_elsewhere += !result.has_failed && result.is_on_npu != out->is_on_npu;
    if (!result.has_failed && result.is_on_npu == out->is_on_npu) {
        q->codes = result.x;
        result.x = NULL;
        out->n_codes += q->about.n_columns * q->about.n_rows;
    }
    nd_trial_deinit(&result);
    return ND_OK;
}

static size_t of_column(size_t n_scales, size_t c)
{
    return n_scales > 1 ? c : 0;
}

/* Scales of weights within a factor of 2 where each column has its own, and biases of `share` of the
 * accumulator's unit, times up to 2 where is_uneven. */
static void set_scales(struct question *q, double share, bool is_uneven, uint64_t *seed)
{
    for (size_t c = 0; c < q->about.n_scales_w; c++) {
        double own = q->about.n_scales_w > 1 ? nd_random_between(seed, 0.5, 1) : 1;
        q->scales_w[c] = (float)(own * 0.0078431);
        float unit = q->about.scale_x * q->scales_w[c];
        double factor = is_uneven ? nd_random_between(seed, 1, 2) : 1;
        q->bias_scales[c] = share > 1 || share < 1 || is_uneven ? (float)((double)unit * share * factor) : unit;
    }
}

/* The bias of column c, of code and scale, as what a rescale makes of it. */
static struct nd_bias_column rescale_bias(const struct question *q, size_t c, enum nd_bias_rescale rescale)
{
    static const enum nd_rounding roundings[ND_BIAS_RESCALES] = {ND_ROUND_HALF_EVEN, ND_ROUND_HALF_EVEN,
                                                                 ND_ROUND_TO_ZERO, ND_ROUND_FLOOR};
    struct nd_bias_column out = {.bias = (double)q->bias[c],
                                 .bias_scale = q->bias_scales[of_column(q->about.n_bias_scales, c)],
                                 .scale_x = q->about.scale_x,
                                 .scale_w = q->scales_w[of_column(q->about.n_scales_w, c)]};
    float unit = out.scale_x * out.scale_w;
    if (rescale == ND_BIAS_AS_IT_IS || (out.bias_scale <= unit && out.bias_scale >= unit))
        return out;
    double code = nd_round_value(out.bias * (double)out.bias_scale / (double)unit, roundings[rescale]);
    out.bias = fmin(fmax(code, INT32_MIN), INT32_MAX);
    out.bias_scale = unit;
    return out;
}

/* What the columns of a tensor share. */
static struct nd_bias_column share_columns(const struct question *q, enum nd_bias_rescale rescale)
{
    struct nd_bias_column shared = {.scale_x = q->about.scale_x};
    for (size_t c = 0; c < N_COLUMNS; c++) {
        const struct nd_bias_column own = rescale_bias(q, c, rescale);
        shared.largest_scale_w = fmaxf(shared.largest_scale_w, own.scale_w);
        shared.largest_bias_scale = fmaxf(shared.largest_bias_scale, own.bias_scale);
    }
    for (size_t c = 0; c < N_COLUMNS; c++) {
        const struct nd_bias_column own = rescale_bias(q, c, rescale);
        double code = fabs(own.bias);
        shared.largest_own = fmax(shared.largest_own, code * (double)own.bias_scale);
        shared.largest_shared = fmax(shared.largest_shared, code * (double)shared.largest_bias_scale);
        shared.largest_own_f32 = fmaxf(shared.largest_own_f32, (float)code * own.bias_scale);
        shared.largest_shared_f32 = fmaxf(shared.largest_shared_f32, (float)code * shared.largest_bias_scale);
    }
    return shared;
}

/* What each column adds, as far as the tensor decides it, and how it requantises. */
static void describe_columns(const struct question *q, const struct nd_requantise *rest, const double *ratios,
                             enum nd_bias_rescale rescale, struct nd_bias_column columns[N_COLUMNS],
                             struct nd_requantiser requantisers[N_COLUMNS])
{
    const double fine = 0x1p-20; /* without a granule nothing cuts the accumulator's fraction */
    const struct nd_bias_column shared = share_columns(q, rescale);
    for (size_t c = 0; c < N_COLUMNS; c++) {
        const struct nd_bias_column own = rescale_bias(q, c, rescale);
        double m = (double)own.scale_x * (double)own.scale_w / (double)q->about.scale_y * ratios[c];
        double zero_y = (double)q->about.zero_y;
        requantisers[c] = nd_requantise_prepare(rest, m, zero_y);
        if (!rest->has_granule)
            requantisers[c].step = fine;
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

enum { N_LARGE = 8, SWEEP_TERMS = N_LARGE + 1, N_CENTRES = 7, BLOCK = 512, SWEEP_ROWS = N_CENTRES * BLOCK };

static double accumulator_of(size_t row)
{
    static const double centres[N_CENTRES] = {0, -20011, 20011, -60013, 60013, -110017, 110017};
    return centres[row / BLOCK] + (double)(row % BLOCK) - BLOCK / 2;
}

/* Each row is an accumulator, of weights 127 x 8 and 1. */
static void fill_sweep(struct question *q)
{
    for (size_t i = 0; i < SWEEP_ROWS; i++) {
        int64_t a = (int64_t)accumulator_of(i), coarse = a / LARGE;
        for (int64_t t = 0; t < N_LARGE; t++) {
            int64_t share = coarse / (N_LARGE - t);
            q->x[(size_t)t * SWEEP_ROWS + i] = (uint8_t)(ZERO_X + share);
            coarse -= share;
        }
        q->x[(size_t)N_LARGE * SWEEP_ROWS + i] = (uint8_t)(ZERO_X + a % LARGE);
    }
    for (size_t i = 0; i < (size_t)N_COLUMNS * SWEEP_TERMS; i++)
        q->weights[i] = i % SWEEP_TERMS < N_LARGE ? LARGE : 1;
}

/* Every second bias is about 0, the others about that which brings a block of accumulators back. */
static void fill_biases(struct question *q, bool has_huge, uint64_t *seed)
{
    for (size_t c = 0; c < N_COLUMNS; c++) {
        float unit = q->about.scale_x * q->scales_w[of_column(q->about.n_scales_w, c)];
        float scale = q->bias_scales[of_column(q->about.n_bias_scales, c)];
        double centre = c % 2 == 0 ? 0 : accumulator_of(c % N_CENTRES * BLOCK + BLOCK / 2);
        q->bias[c] = (int32_t)rint((nd_random_between(seed, -2000, 2000) - centre) * (double)(unit / scale));
    }
    if (has_huge)
        q->bias[N_COLUMNS / 3] = INT32_MAX;
}

static size_t pick_rows(const double *codes, double *a, double *picked)
{
    size_t n = 0;
    for (size_t i = 0; i < SWEEP_ROWS; i++) {
        bool changes =
            (i % BLOCK > 0 && codes[i - 1] != codes[i]) || (i % BLOCK + 1 < BLOCK && codes[i + 1] != codes[i]);
        if (!changes || codes[i] <= 0 || codes[i] >= 255)
            continue;
        a[n] = accumulator_of(i);
        picked[n++] = codes[i];
    }
    return n;
}

struct readings {
    struct nd_bias_reading *items;
    size_t n, capacity;
};

/* Columns that show no threshold say nothing. */
static enum nd_status read_columns(const struct question *q, const struct nd_requantise *rest,
                                   struct readings *out, struct nd_error *err)
{
    struct nd_bias_column columns[ND_BIAS_RESCALES][N_COLUMNS];
    struct nd_requantiser requantisers[N_COLUMNS];
    double ratios[N_COLUMNS], *a = nd_calloc(SWEEP_ROWS, sizeof *a),
                              *codes = nd_calloc(SWEEP_ROWS, sizeof *codes);
    bool is_whole = a != NULL && codes != NULL &&
                    nd_grow((void **)&out->items, &out->capacity, out->n + N_COLUMNS, sizeof *out->items);
    for (size_t c = 0; c < N_COLUMNS; c++)
        ratios[c] = 1;
    for (int k = 0; k < ND_BIAS_RESCALES; k++)
        describe_columns(q, rest, ratios, (enum nd_bias_rescale)k, columns[k], requantisers);
    for (size_t c = 0; is_whole && c < N_COLUMNS; c++) {
        size_t n = pick_rows(q->codes + c * SWEEP_ROWS, a, codes);
        if (n == 0)
            continue;
        struct nd_bias_reading *reading = &out->items[out->n++];
        reading->range = nd_bias_read(&requantisers[c], a, codes, n);
        for (int k = 0; k < ND_BIAS_RESCALES; k++)
            reading->columns[k] = columns[k][c];
    }
    free(a);
    free(codes);
    return is_whole ? ND_OK : nd_fail_memory(err);
}

static const struct setting {
    double share; /* of s_x s_w */
    bool is_uneven, has_huge;
    double multiplier;
    int64_t zero_y;
} settings[] = {
    {1, false, false, 0x1.4dp-5, 128},      {1, false, true, 0x1.b1p-5, 77},
    {0.3713, false, false, 0x1.27p-5, 150}, {13.713, false, false, 0x1.63p-5, 101},
    {0.8317, true, false, 0x1.4dp-5, 128},
};
enum { N_SETTINGS = sizeof settings / sizeof settings[0] };

static enum nd_status sweep(struct nd_bench *bench, const struct setting *setting,
                            const struct nd_requantise *rest, uint64_t *seed, struct readings *readings,
                            struct nd_bias_fingerprint *out, struct nd_error *err)
{
    struct question *q;
    enum nd_status status = make_question(SWEEP_ROWS, SWEEP_TERMS, out->is_per_channel, &q, err);
    if (status != ND_OK)
        return status;
    fill_sweep(q);
    q->about.zero_y = setting->zero_y;
    q->about.scale_x = (float)nd_random_between(seed, 0.01, 0.04);
    set_scales(q, setting->share, setting->is_uneven, seed);
    q->about.scale_y = (float)((double)q->about.scale_x * (double)q->scales_w[0] / setting->multiplier);
    fill_biases(q, setting->has_huge, seed);
    status = ask(bench, q, out, err);
    if (status == ND_OK && q->codes != NULL)
        status = read_columns(q, rest, readings, err);
    deinit_question(q);
    return status;
}

static enum nd_status find_program(struct nd_bench *bench, const struct nd_requantise *rest,
                                   struct nd_bias_fingerprint *out, struct nd_error *err)
{
    struct readings readings = {.items = NULL};
    uint64_t seed = 20261125;
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && !out->has_failed && i < N_SETTINGS; i++)
        if (out->is_per_channel || !settings[i].is_uneven)
            status = sweep(bench, &settings[i], rest, &seed, &readings, out, err);
    if (status == ND_OK && !out->has_failed && readings.n > 0)
        status = nd_bias_solve(readings.items, readings.n, rest->folds_zero, &out->found, err);
    free(readings.items);
    return status;
}

/* ---- fresh codes ---- */

enum { FRESH_ROWS = 256, FRESH_TERMS = 64, N_FRESH_MODELS = 4, FRESH_CODES = FRESH_ROWS * N_COLUMNS };

static void fill_fresh(struct question *q, double share, uint64_t *seed)
{
    bool is_per_channel = q->about.n_scales_w > 1;
    for (size_t i = 0; i < (size_t)FRESH_ROWS * FRESH_TERMS; i++)
        q->x[i] = (uint8_t)nd_random_next(seed);
    for (size_t i = 0; i < (size_t)N_COLUMNS * FRESH_TERMS; i++)
        q->weights[i] = (int16_t)(is_per_channel ? (int64_t)(nd_random_next(seed) % 255) - 127
                                                 : (int64_t)(nd_random_next(seed) % 256));
    q->about.zero_x = (int64_t)nd_random_between(seed, 120, 136);
    q->about.zero_w = is_per_channel ? 0 : (int64_t)nd_random_between(seed, 0, 256);
    q->about.zero_y = (int64_t)nd_random_between(seed, 90, 160);
    q->about.scale_x = (float)nd_random_between(seed, 0.01, 0.04);
    set_scales(q, share, false, seed);
    q->about.scale_y = q->about.scale_x * q->scales_w[0] * (float)nd_random_between(seed, 700, 1500);
    for (size_t c = 0; c < N_COLUMNS; c++)
        q->bias[c] = (int32_t)rint(nd_random_between(seed, -60000, 60000) / share);
}

/* What the sums of the fresh codes are, and what the weights became. */
struct sums {
    double *w, *w8, *sums;
    double ratios[N_COLUMNS];
};

static void add_up(const struct question *q, const struct nd_weight_program *weights, struct sums *s)
{
    for (size_t i = 0; i < (size_t)N_COLUMNS * FRESH_TERMS; i++)
        s->w[i] = (double)(q->weights[i] - q->about.zero_w);
    nd_weight_fit(weights, s->w, N_COLUMNS, FRESH_TERMS, s->w8, s->ratios);
    nd_columns_sum(&q->about, q->x, s->w8, s->sums);
}

static void count_right(const struct question *q, const struct nd_requantise *rest, const struct sums *s,
                        const struct nd_bias_findings *found, uint64_t *n_right)
{
    struct nd_bias_column columns[ND_BIAS_RESCALES][N_COLUMNS];
    struct nd_requantiser requantisers[N_COLUMNS];
    for (int k = 0; k < ND_BIAS_RESCALES; k++)
        describe_columns(q, rest, s->ratios, (enum nd_bias_rescale)k, columns[k], requantisers);
    for (size_t p = 0; p < found->n_programs; p++)
        for (size_t c = 0; c < N_COLUMNS; c++) {
            struct nd_requantiser r = requantisers[c];
            r.fold = nd_bias_shift(&found->programs[p], &columns[found->programs[p].rescale][c]);
            for (size_t i = c * FRESH_ROWS; i < (c + 1) * FRESH_ROWS; i++)
                n_right[p] += nd_requantise_code(&r, s->sums[i], 0, 255) == q->codes[i];
        }
}

static enum nd_status ask_fresh(struct nd_bench *bench, const struct nd_weight_fingerprint *weights,
                                double share, uint64_t *seed, struct sums *s, struct nd_bias_fingerprint *out,
                                uint64_t *n_right, struct nd_error *err)
{
    struct question *q;
    enum nd_status status = make_question(FRESH_ROWS, FRESH_TERMS, out->is_per_channel, &q, err);
    if (status != ND_OK)
        return status;
    fill_fresh(q, share, seed);
    status = ask(bench, q, out, err);
    if (status == ND_OK && q->codes != NULL) {
        add_up(q, &weights->found.programs[0], s);
        count_right(q, &weights->rest, s, &out->found, n_right);
        out->n_fresh += FRESH_CODES;
    }
    deinit_question(q);
    return status;
}

static enum nd_status confirm(struct nd_bench *bench, const struct nd_weight_fingerprint *weights,
                              struct nd_bias_fingerprint *out, struct nd_error *err)
{
    static const double shares[N_FRESH_MODELS] = {1, 1, 0.4321, 2.17};
    uint64_t seed = 20261126, *n_right = nd_calloc(out->found.n_programs, sizeof *n_right);
    struct sums s = {.w = nd_calloc((size_t)N_COLUMNS * FRESH_TERMS, sizeof(double)),
                     .w8 = nd_calloc((size_t)N_COLUMNS * FRESH_TERMS, sizeof(double)),
                     .sums = nd_calloc(FRESH_CODES, sizeof(double))};
    bool has_room = n_right != NULL && s.w != NULL && s.w8 != NULL && s.sums != NULL;
    enum nd_status status = has_room ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && i < N_FRESH_MODELS; i++)
        status = ask_fresh(bench, weights, shares[i], &seed, &s, out, n_right, err);
    if (status == ND_OK)
        out->found.n_programs = nd_fresh_keep_best(out->found.programs, sizeof *out->found.programs,
                                                   out->found.n_programs, n_right, &out->n_right);
    free(n_right);
    free(s.w);
    free(s.w8);
    free(s.sums);
    return status;
}

enum nd_status nd_bias_fingerprint_take(struct nd_bench *bench, const struct nd_weight_fingerprint *weights,
                                        bool is_per_channel, struct nd_bias_fingerprint *out,
                                        struct nd_error *err)
{
    struct nd_bias_fingerprint f = {.is_per_channel = is_per_channel, .is_on_npu = true};
    enum nd_status status = find_program(bench, &weights->rest, &f, err);
    if (status == ND_OK && !f.has_failed && f.found.n_programs > 0)
        status = confirm(bench, weights, &f, err);
    if (status == ND_OK)
        *out = f;
    else
        nd_bias_fingerprint_deinit(&f);
    return status;
}
