/* Means and largest quantised values of windows: the arithmetics of means (docs/reference/datasheet.md), which
 * of them agree with a device, and what is said of it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/documents/json_out.h"
#include "core/memory.h"
#include "core/random.h"
#include "lab/experiment/candidates.h"
#include "lab/experiment/experiment.h"
#include "lab/fingerprint/mean.h"
#include "lab/fingerprint/section.h"

const char *nd_mean_name(const struct nd_mean_arithmetic *arithmetic, char buf[ND_MEAN_NAME_BYTES])
{
    char name[ND_REQUANTISE_NAME_BYTES], stages[64] = "", shift[32] = "";
    nd_requantise_name(&arithmetic->requantise, name);
    if (arithmetic->n_stages > 1) {
        int len = snprintf(stages, sizeof stages, "stages:");
        for (size_t i = 0; i < arithmetic->n_stages; i++)
            len += snprintf(stages + len, sizeof stages - (size_t)len, "%s%d", i > 0 ? "," : "",
                            arithmetic->stages[i]);
        snprintf(stages + len, sizeof stages - (size_t)len, "+requantises-%s+",
                 arithmetic->requantises_last ? "last" : "first");
    }
    if (arithmetic->first_shift != ND_MEAN_NO_SHIFT)
        snprintf(shift, sizeof shift, "+first-shift:%d", arithmetic->first_shift);
    snprintf(buf, ND_MEAN_NAME_BYTES, "%s%s%s", stages, name, shift);
    return buf;
}

/* ---- one arithmetic ---- */

/* One stage made ready: from windows of n quantised values to quantised values. */
struct stage {
    struct nd_requantise_ready requantiser;
    double added, zero_x, zero_y;
};

static struct stage prepare(const struct nd_mean_arithmetic *p, double ratio, double zero_x, double zero_y,
                            size_t n_elems)
{
    double multiplier = ratio / (double)n_elems;
    struct stage stage = {.zero_x = zero_x, .zero_y = zero_y};
    stage.requantiser = nd_requantise_prepare(&p->requantise, multiplier, zero_y);
    if (p->requantise.fixed != ND_FIXED_NONE)
        stage.requantiser.multiplier =
            nd_fixed_multiplier_of_mean(p->requantise.fixed, multiplier, (double)n_elems);
    bool adds = p->first_shift != ND_MEAN_NO_SHIFT && (p->n_stages == 1 || n_elems == 4);
    if (adds)
        stage.added = ldexp(1, p->first_shift - nd_multiplier_log(multiplier) - p->requantise.multiplier_bits);
    /* nd_multiplier_log is that of the power of two above or at M: the last bit is one lower where M is none.
     */
    if (adds && ldexp(1, -nd_multiplier_log(multiplier)) > multiplier)
        stage.added /= 2;
    return stage;
}

static double finish(const struct stage *stage, double sum)
{
    const struct nd_requantise_ready *r = &stage->requantiser;
    if (r->fixed != ND_FIXED_NONE)
        return nd_requantise_qvalue(r, sum, 0, 255);
    double scaled = r->c * (r->step * (floor((sum + r->fold) / r->step) + r->half)) + stage->added;
    return fmin(fmax(nd_round_value(scaled, r->rounding) + r->zero, 0), 255);
}

static double gather(const struct nd_mean_sample *s, const uint8_t *window)
{
    double sum = 0, largest = 0;
    for (size_t i = 0; i < s->n_rows * s->n_columns; i++) {
        sum += (double)window[i] - s->zero_x;
        largest = fmax(largest, (double)window[i]);
    }
    return s->is_max ? largest - s->zero_x : sum;
}

static size_t elems_of(const struct nd_mean_sample *s)
{
    return s->is_max ? 1 : s->n_rows * s->n_columns;
}

/* Square windows alone; a stage of side k makes a window k times smaller. */
static double run_stages(const struct nd_mean_arithmetic *p, const struct nd_mean_sample *s,
                         const struct stage stages[ND_MEAN_MAX_STAGES], const uint8_t *window)
{
    double qvalues[ND_MEAN_MAX_SIDE * ND_MEAN_MAX_SIDE];
    size_t side = s->n_rows;
    for (size_t i = 0; i < side * side; i++)
        qvalues[i] = window[i];
    for (size_t t = 0; t < p->n_stages; t++) {
        size_t k = p->stages[t], next = side / k;
        for (size_t row = 0; row < next; row++)
            for (size_t column = 0; column < next; column++) {
                double sum = 0;
                for (size_t i = 0; i < k * k; i++)
                    sum += qvalues[(row * k + i / k) * side + column * k + i % k] - stages[t].zero_x;
                /* Earlier places are not read again: next <= side, and k >= 2. */
                qvalues[row * next + column] = finish(&stages[t], sum);
            }
        side = next;
    }
    return qvalues[0];
}

static void prepare_all(const struct nd_mean_arithmetic *p, const struct nd_mean_sample *s,
                        struct stage stages[ND_MEAN_MAX_STAGES])
{
    size_t at = p->requantises_last ? p->n_stages - 1 : 0;
    for (size_t t = 0; t < p->n_stages; t++) {
        size_t n_elems = p->n_stages == 1 ? elems_of(s) : (size_t)p->stages[t] * p->stages[t];
        stages[t] = prepare(p, t == at ? s->ratio : 1, t <= at ? s->zero_x : s->zero_y,
                            t >= at ? s->zero_y : s->zero_x, n_elems);
    }
}

static double qvalue_of(const struct nd_mean_arithmetic *p, const struct nd_mean_sample *s,
                        const struct stage stages[ND_MEAN_MAX_STAGES], const uint8_t *window)
{
    return p->n_stages == 1 ? finish(&stages[0], gather(s, window)) : run_stages(p, s, stages, window);
}

double nd_mean_qvalue(const struct nd_mean_arithmetic *arithmetic, const struct nd_mean_sample *sample,
                      const uint8_t *window)
{
    struct stage stages[ND_MEAN_MAX_STAGES];
    prepare_all(arithmetic, sample, stages);
    return qvalue_of(arithmetic, sample, stages, window);
}

static uint64_t nd_mean_count_wrong(const struct nd_mean_arithmetic *arithmetic,
                                    const struct nd_mean_sample *samples, size_t n, uint64_t enough)
{
    uint64_t wrong = 0;
    for (size_t i = 0; i < n; i++) {
        const struct nd_mean_sample *s = &samples[i];
        struct stage stages[ND_MEAN_MAX_STAGES];
        prepare_all(arithmetic, s, stages);
        for (size_t w = 0; w < s->n && wrong < enough; w++)
            wrong +=
                qvalue_of(arithmetic, s, stages, s->windows + w * s->n_rows * s->n_columns) != s->qvalues[w];
    }
    return wrong;
}

/* ---- all of them ---- */

struct search {
    const struct nd_mean_sample *samples;
    size_t n;
    struct nd_mean_findings *out;
    struct nd_candidates candidates;
};

static void try_arithmetic(struct search *search, const struct nd_mean_arithmetic *p)
{
    if (nd_mean_count_wrong(p, search->samples, search->n, 1) == 0)
        nd_candidates_keep(&search->candidates, p);
}

/* The multiplier as it is. */
static void try_exact(struct search *search, struct nd_mean_arithmetic p)
{
    p.requantise.multiplier_bits = ND_MULTIPLIER_EXACT;
    p.first_shift = ND_MEAN_NO_SHIFT;
    for (int rounding = 0; rounding <= ND_ROUND_TO_ZERO; rounding++) {
        p.requantise.rounding = (enum nd_rounding)rounding;
        try_arithmetic(search, &p);
    }
}

/* Multipliers of so many bits with every first shift that can be seen: one that leaves some of them behind the
 * point. */
static void try_shifts(struct search *search, struct nd_mean_arithmetic p, int bits)
{
    p.requantise.multiplier_bits = bits;
    p.first_shift = ND_MEAN_NO_SHIFT;
    try_arithmetic(search, &p);
    for (p.first_shift = bits - 5; p.first_shift <= bits; p.first_shift++)
        try_arithmetic(search, &p);
}

/* Every multiplier, rounding and first shift; the exact multiplier first. */
static void try_multipliers(struct search *search, struct nd_mean_arithmetic p)
{
    static const enum nd_rounding roundings[] = {ND_ROUND_HALF_UP, ND_ROUND_HALF_EVEN, ND_ROUND_HALF_AWAY,
                                                 ND_ROUND_FLOOR};
    static const enum nd_rounding cuts[] = {ND_ROUND_HALF_UP, ND_ROUND_HALF_EVEN, ND_ROUND_FLOOR};
    try_exact(search, p);
    for (size_t r = 0; r < sizeof roundings / sizeof roundings[0]; r++)
        for (int bits = 7; bits <= ND_MULTIPLIER_MAX_BITS; bits++)
            for (size_t c = 0; c < sizeof cuts / sizeof cuts[0]; c++) {
                p.requantise.rounding = roundings[r];
                p.requantise.multiplier_rounding = cuts[c];
                try_shifts(search, p, bits);
            }
}

/* What is specified. */
static void try_fixed(struct search *search)
{
    struct nd_mean_arithmetic p = {.n_stages = 1, .first_shift = ND_MEAN_NO_SHIFT};
    for (int kind = ND_FIXED_NONE + 1; kind < ND_FIXED_N; kind++) {
        p.requantise.fixed = (enum nd_fixed_point)kind;
        try_arithmetic(search, &p);
    }
}

static void try_whole_windows(struct search *search)
{
    struct nd_mean_arithmetic p = {.n_stages = 1};
    try_multipliers(search, p);
    try_fixed(search);
    p.requantise.has_granule = true;
    for (int bits = 0; search->out->n_arithmetics == 0 && bits <= 6; bits++)
        for (int form = 0; form < 4; form++) {
            p.requantise.granule_bits = bits;
            p.requantise.has_half_granule = (form & 1) != 0;
            p.requantise.is_granule_whole = (form & 2) != 0;
            try_multipliers(search, p);
        }
}

/* All ways to split the side into stages. */
static void try_stages(struct search *search, struct nd_mean_arithmetic p, size_t side)
{
    if (side == 1 && p.n_stages > 1)
        for (int last = 0; last < 2; last++) {
            p.requantises_last = last != 0;
            try_multipliers(search, p);
        }
    for (size_t k = 2; k <= side && p.n_stages < ND_MEAN_MAX_STAGES; k++) {
        if (side % k != 0)
            continue;
        struct nd_mean_arithmetic next = p;
        next.stages[next.n_stages++] = (uint8_t)k;
        try_stages(search, next, side / k);
    }
}

/* Whether equal sums (largest quantised values) always have equal quantised values. */
static bool is_of_sum(const struct nd_mean_sample *s, bool *out)
{
    size_t n_sums = s->n_rows * s->n_columns * 255 + 1;
    ND_FREED double *qvalues = nd_calloc(n_sums, sizeof *qvalues);
    for (size_t i = 0; qvalues != NULL && i < s->n && *out; i++) {
        size_t sum =
            (size_t)(gather(s, s->windows + i * s->n_rows * s->n_columns) + (double)elems_of(s) * s->zero_x);
        *out = qvalues[sum] == 0 || qvalues[sum] == s->qvalues[i] + 1;
        qvalues[sum] = s->qvalues[i] + 1;
    }
    return qvalues != NULL;
}

static void find_nearest(struct search *search)
{
    for (int rounding = 0; rounding <= ND_ROUND_TO_ZERO; rounding++) {
        const struct nd_mean_arithmetic p = {.n_stages = 1,
                                             .first_shift = ND_MEAN_NO_SHIFT,
                                             .requantise = {.rounding = (enum nd_rounding)rounding}};
        uint64_t wrong = nd_mean_count_wrong(&p, search->samples, search->n, search->out->n_nearest_wrong);
        nd_candidates_right(&search->candidates, &p, wrong, &search->out->nearest,
                            &search->out->n_nearest_wrong);
    }
}

enum nd_status nd_mean_solve(const struct nd_mean_sample *samples, size_t n, bool may_be_staged,
                             struct nd_mean_findings *out, struct nd_error *err)
{
    struct nd_mean_findings findings = {.n_nearest_wrong = UINT64_MAX, .is_of_sum = true};
    struct search search = {
        .samples = samples, .n = n, .out = &findings, .candidates = ND_CANDIDATES(&findings)};
    for (size_t i = 0; i < n; i++) {
        findings.n_qvalues += samples[i].n;
        search.candidates.failed = search.candidates.failed || !is_of_sum(&samples[i], &findings.is_of_sum);
    }
    if (!search.candidates.failed)
        try_whole_windows(&search);
    if (!search.candidates.failed && findings.n_arithmetics == 0 && may_be_staged)
        try_stages(&search, (struct nd_mean_arithmetic){0}, samples[0].n_rows);
    if (findings.n_arithmetics == 0)
        find_nearest(&search);
    ND_TRY(nd_candidates_end(&search.candidates, err));
    *out = findings;
    return ND_OK;
}

/* ---- means and largest quantised values of windows ---- */

/* An operator; side 0: it takes whole images of 7 x 7. */
static const struct form {
    const char *name, *op_type;
    int64_t side, stride;
    bool is_max;
} forms[] = {
    {"GlobalAveragePool", "GlobalAveragePool", 0, 0, false},
    {"ReduceMean 7x7", "ReduceMean", 0, 0, false},
    {"AveragePool 2x2/2", "AveragePool", 2, 2, false},
    {"AveragePool 2x2/1", "AveragePool", 2, 1, false},
    {"AveragePool 3x3/1", "AveragePool", 3, 1, false},
    {"AveragePool 3x3/2", "AveragePool", 3, 2, false},
    {"AveragePool 3x3/3", "AveragePool", 3, 3, false},
    {"AveragePool 4x4/4", "AveragePool", 4, 4, false},
    {"MaxPool 2x2/2", "MaxPool", 2, 2, true},
};

enum {
    IMAGE_SIDE = 7,  /* of whole images */
    GRID = 16,       /* windows that are read, along either side of an image */
    N_CHANNELS = 16, /* while solving */
    N_FRESH_CHANNELS = 64,
    N_IMAGES = 1024, /* channels of whole images */
    N_SETTINGS = 5,
    MAX_ARITHMETICS_TOLD = 4,
};
/* A share of the quantised values. */
#define MAX_EXCEPTIONS 0.003
static const double ratios[N_SETTINGS] = {0.7731415, 1, 0.61234, 1.2345678, 0.5512345};
static const int64_t zeros_x[N_SETTINGS] = {128, 128, 0, 100, 37}, zeros_y[N_SETTINGS] = {100, 128, 0, 17, 64};
static const int64_t axes[2] = {2, 3};

struct pool {
    const struct form *form;
    size_t side, step, n_channels, n_samples; /* step: pixels from window to window */
    struct nd_ask ask;
    struct nd_mean_sample samples[N_SETTINGS];
    size_t n_taken;
    struct nd_mean_findings found; /* the arithmetics belong to the experiment */
    bool has_exceptions;           /* the arithmetic that is left does not give every quantised value */
    struct nd_mean_sample fresh;
};

static void plan_whole_images(struct pool *p)
{
    p->side = IMAGE_SIDE;
    p->step = IMAGE_SIDE;
    p->n_channels = N_IMAGES;
    p->ask.x = (struct nd_shape){.rank = 4, .dims = {1, N_IMAGES, IMAGE_SIDE, IMAGE_SIDE}};
    p->ask.y = (struct nd_shape){.rank = 4, .dims = {1, N_IMAGES, 1, 1}};
    if (strcmp(p->form->op_type, "ReduceMean") != 0)
        return;
    p->ask.n_operands = 1;
    p->ask.operands[0] =
        (struct nd_ask_operand){.dtype = ND_DTYPE_I64, .shape = {.rank = 1, .dims = {2}}, .data = axes};
    p->ask.n_attributes = 1;
    p->ask.attributes[0] = (struct nd_ask_attribute){.name = "keepdims", .n = 1, .ints = {1}};
}

/* Windows that do not overlap, whatever the stride: others between them are not read. */
static void plan_windows(struct pool *p, int64_t n_channels)
{
    int64_t k = p->form->side, stride = p->form->stride, apart = (k + stride - 1) / stride;
    int64_t step = apart * stride, size = step * (GRID - 1) + k, n_out = (size - k) / stride + 1;
    p->side = (size_t)k;
    p->step = (size_t)step;
    p->n_channels = (size_t)n_channels;
    p->ask.x = (struct nd_shape){.rank = 4, .dims = {1, n_channels, size, size}};
    p->ask.y = (struct nd_shape){.rank = 4, .dims = {1, n_channels, n_out, n_out}};
    p->ask.n_attributes = 2;
    p->ask.attributes[0] =
        (struct nd_ask_attribute){.name = "kernel_shape", .n = 2, .is_list = true, .ints = {k, k}};
    p->ask.attributes[1] =
        (struct nd_ask_attribute){.name = "strides", .n = 2, .is_list = true, .ints = {stride, stride}};
}

static void plan(struct pool *p, bool is_fresh)
{
    p->ask = (struct nd_ask){.op_type = p->form->op_type, .dtype = ND_DTYPE_U8};
    p->n_samples = 2;
    if (p->form->side == 0) {
        plan_whole_images(p);
        p->n_samples = is_fresh ? 32 : 8;
    } else {
        plan_windows(p, is_fresh ? N_FRESH_CHANNELS : N_CHANNELS);
    }
}

static size_t windows_per_channel(const struct pool *p)
{
    return p->form->side == 0 ? 1 : GRID * GRID;
}

/* The quantised value of a window; the first half of the windows has all sums (in steps, where there are too
 * many), each as even as it can be; the others are random, near one quantised value or far from it. */
static void draw_window(const struct pool *p, size_t i, size_t n, bool is_fresh, uint64_t *seed,
                        uint8_t *window)
{
    size_t n_elems = p->side * p->side, n_sums = n_elems * 255 + 1, half = n / 2;
    if (!is_fresh && i < half) {
        size_t sum = half >= n_sums ? i % n_sums : i * n_sums / half;
        for (size_t e = 0; e < n_elems; e++)
            window[e] = (uint8_t)(sum / n_elems + (e < sum % n_elems));
        return;
    }
    double base = nd_random_between(seed, -8, 263), noise = nd_random_next(seed) % 2 == 0 ? 12 : 60;
    for (size_t e = 0; e < n_elems; e++)
        window[e] = (uint8_t)fmin(fmax(rint(base + nd_random_between(seed, -noise, noise)), 0), 255);
}

/* Where window i of a sample is in an image of that size, its corner. */
static size_t place(const struct pool *p, size_t i, size_t size, size_t step)
{
    size_t per_channel = windows_per_channel(p), channel = i / per_channel, at = i % per_channel;
    return channel * size * size + at / GRID * step * size + at % GRID * step;
}

static void lay_out(const struct pool *p, const uint8_t *windows, double *qvalues)
{
    size_t per_sample = p->n_channels * windows_per_channel(p), size = (size_t)p->ask.x.dims[2];
    size_t n_x = nd_ask_elems(&p->ask.x), n_elems = p->side * p->side;
    for (size_t i = 0; i < p->n_samples * per_sample; i++)
        for (size_t e = 0; e < n_elems; e++)
            qvalues[i / per_sample * n_x + place(p, i % per_sample, size, p->step) + e / p->side * size +
                    e % p->side] = windows[i * n_elems + e];
}

static void read_out(const struct pool *p, const double *answers, double *qvalues)
{
    size_t per_sample = p->n_channels * windows_per_channel(p), size = (size_t)p->ask.y.dims[2];
    size_t n_y = nd_ask_elems(&p->ask.y), apart = p->form->side == 0 ? 1 : p->step / (size_t)p->form->stride;
    for (size_t i = 0; i < p->n_samples * per_sample; i++)
        qvalues[i] = answers[i / per_sample * n_y + place(p, i % per_sample, size, apart)];
}

/* Asks about windows under p->ask's scales; out->quantised values is NULL where it does not go on. */
static void ask_windows(struct nd_experiment *e, struct pool *p, bool is_fresh, uint64_t *seed,
                        struct nd_mean_sample *out)
{
    size_t n = p->n_samples * p->n_channels * windows_per_channel(p), n_elems = p->side * p->side;
    uint8_t *windows = nd_experiment_alloc(e, n, n_elems);
    double *qvalues = nd_experiment_alloc(e, n, sizeof *qvalues),
           *fed = nd_calloc(p->n_samples * nd_ask_elems(&p->ask.x), sizeof *fed);
    for (size_t i = 0; qvalues != NULL && i < n; i++)
        draw_window(p, i, n, is_fresh, seed, windows + i * n_elems);
    if (qvalues != NULL && fed != NULL)
        lay_out(p, windows, fed);
    else if (nd_experiment_goes_on(e))
        nd_experiment_check(e, nd_fail_memory(e->err));
    const double *answers = nd_experiment_ask(e, &p->ask, fed, p->n_samples);
    free(fed);
    if (answers != NULL)
        read_out(p, answers, qvalues);
    *out = (struct nd_mean_sample){.is_max = p->form->is_max,
                                   .ratio = (double)p->ask.scale_x / (double)p->ask.scale_y,
                                   .zero_x = (double)p->ask.zero_x,
                                   .zero_y = (double)p->ask.zero_y,
                                   .n_rows = p->side,
                                   .n_columns = p->side,
                                   .n = n,
                                   .windows = windows,
                                   .qvalues = answers != NULL ? qvalues : NULL};
}

static void solve(struct nd_experiment *e, struct pool *p)
{
    uint64_t seed = 5;
    for (size_t s = 0; s < N_SETTINGS && nd_experiment_goes_on(e); s++) {
        plan(p, false);
        p->ask.scale_x = 0.05F;
        p->ask.scale_y = 0.05F / (float)ratios[s];
        p->ask.zero_x = zeros_x[s];
        p->ask.zero_y = zeros_y[s];
        ask_windows(e, p, false, &seed, &p->samples[s]);
        if (nd_experiment_goes_on(e))
            nd_experiment_digest(e, p->samples[s].qvalues, p->samples[s].n);
        p->n_taken++;
    }
    bool may_be_staged = p->form->side > 0 && p->form->side == p->form->stride;
    if (nd_experiment_goes_on(e) &&
        nd_experiment_check(e, nd_mean_solve(p->samples, p->n_taken, may_be_staged, &p->found, e->err)))
        nd_experiment_own(e, p->found.arithmetics);
}

/* Where nothing gives every quantised value, the plain rounding that fails on few of them is held against fresh
 * ones all the same: what is worked out in floats goes either way at a tie. */
static void try_nearest(struct nd_experiment *e, struct pool *p)
{
    if (!nd_experiment_goes_on(e) || p->found.n_arithmetics > 0 ||
        (double)p->found.n_nearest_wrong > MAX_EXCEPTIONS * (double)p->found.n_qvalues)
        return;
    p->found.arithmetics = nd_experiment_alloc(e, 1, sizeof *p->found.arithmetics);
    if (p->found.arithmetics == NULL)
        return;
    p->found.arithmetics[0] = p->found.nearest;
    p->found.n_arithmetics = 1;
    p->has_exceptions = true;
}

/* Fresh windows under new random scales. */
static size_t ask_fresh(struct nd_experiment *e, void *context, size_t i, uint64_t *seed)
{
    struct pool *p = context;
    (void)i;
    plan(p, true);
    p->ask.scale_x = (float)nd_random_between(seed, 0.01, 0.06);
    p->ask.scale_y = p->ask.scale_x / (float)nd_random_between(seed, 0.5, 1.3);
    p->ask.zero_x = (int64_t)(nd_random_next(seed) % 200);
    p->ask.zero_y = (int64_t)(nd_random_next(seed) % 200);
    ask_windows(e, p, true, seed, &p->fresh);
    return p->fresh.qvalues != NULL ? p->fresh.n : 0;
}

static uint64_t count_right(const void *context, const void *arithmetic)
{
    const struct pool *p = context;
    return p->fresh.n - nd_mean_count_wrong(arithmetic, &p->fresh, 1, UINT64_MAX);
}

static const struct nd_confirmation confirmation = {
    .n_models = 4, .seed = 20261121, .ask = ask_fresh, .count_right = count_right};

static void take(struct nd_experiment *e, struct pool *p)
{
    solve(e, p);
    try_nearest(e, p);
    nd_experiment_confirm(e, &confirmation, p, ND_LEFT(&p->found));
    if (p->has_exceptions && e->n_right < e->n_fresh) { /* more than ties: it is not the arithmetic */
        p->has_exceptions = false;
        p->found.n_arithmetics = 0;
    }
}

/* ---- what is said of it ---- */

/* Of the first arithmetic, which stands for all that are left. */
static void describe(struct nd_experiment *e, json_t *out, const struct nd_mean_arithmetic *p)
{
    if (p->requantise.fixed != ND_FIXED_NONE) {
        nd_tell_text(e, out, "specification", nd_fixed_name(p->requantise.fixed));
        return;
    }
    if (p->n_stages > 1) {
        json_t *stages = json_array();
        for (size_t i = 0; i < p->n_stages; i++)
            nd_tree_append(stages, json_integer(p->stages[i]));
        nd_tell(e, out, "stages", stages);
        nd_tell_text(e, out, "requantises", p->requantises_last ? "last" : "first");
    }
    if (p->requantise.multiplier_bits != ND_MULTIPLIER_EXACT)
        nd_tell_int(e, out, "multiplier_bits", p->requantise.multiplier_bits);
    if (p->requantise.has_granule) {
        nd_tell_int(e, out, "granule_bits", p->requantise.granule_bits);
        nd_tell_bool(e, out, "half_granule", p->requantise.has_half_granule);
    }
    if (p->first_shift != ND_MEAN_NO_SHIFT)
        nd_tell_int(e, out, "first_shift", p->first_shift);
    nd_tell_rounding(e, out, "rounding", p->requantise.rounding);
}

static void tell_undecided(struct nd_experiment *e, const struct pool *p, json_t *entry)
{
    char buf[ND_MEAN_NAME_BYTES];
    const struct nd_mean_findings *found = &p->found;
    if (found->n_arithmetics == 0) {
        nd_tell_nearest(e, entry, nd_mean_name(&found->nearest, buf), found->n_nearest_wrong);
        nd_tell_undecided(
            e, entry, "the arithmetic",
            found->is_of_sum
                ? "a family that this version does not know; the quantised value depends on the sum alone"
                : "a family that this version does not know; the quantised value depends on more than the sum");
    } else if (p->has_exceptions) {
        nd_tell_line(e, entry, "not every code: %llu of %llu are others%s",
                     (unsigned long long)found->n_nearest_wrong, (unsigned long long)found->n_qvalues,
                     found->is_of_sum ? "" : ", and windows of one sum have several quantised values");
        nd_tell_undecided(e, entry, "what decides a tie", "windows of one sum in many arrangements, at ties");
    } else if (found->n_arithmetics > 1) {
        nd_tell_undecided(e, entry, "the bits of the multiplier and where a product that is a tie goes",
                          "larger windows under smaller multipliers; scales of few bits");
    }
}

static void tell(struct nd_experiment *e, const struct pool *p, json_t *entries)
{
    char buf[ND_MEAN_NAME_BYTES];
    const struct nd_mean_findings *found = &p->found;
    bool is_known = nd_experiment_is_confirmed(e, found->n_arithmetics);
    json_t *entry = nd_experiment_tell(e, entries, is_known);
    if (entry == NULL)
        return;
    nd_tell_counts(e, entry, ND_COUNTS({"settings", p->n_taken}, {"values", found->n_qvalues}));
    nd_tell_bool(e, nd_tell_object(e, entry, "evidence"), "one_value_per_sum", found->is_of_sum);
    nd_tell_counts(
        e, entry,
        ND_COUNTS({"fresh", e->n_fresh}, {"right", e->n_right}, {"possible_left", found->n_arithmetics}));
    nd_tell_listed(e, entry, "possible_arithmetic", NULL);
    for (size_t i = 0; i < found->n_arithmetics && i < MAX_ARITHMETICS_TOLD; i++)
        nd_tell_listed(e, entry, "possible_arithmetic", nd_mean_name(&found->arithmetics[i], buf));
    nd_tell_text(e, entry, "answers", e->answers.text);
    if (is_known)
        describe(e, nd_tell_object(e, entry, "parameters"), &found->arithmetics[0]);
    tell_undecided(e, p, entry);
}

static void take_subject(struct nd_experiment *e, int kind, json_t *entries)
{
    struct pool pool = {.form = &forms[kind]};
    take(e, &pool);
    tell(e, &pool, entries);
}

enum nd_status nd_section_pool_u8(struct nd_bench *bench, json_t *entries, struct nd_error *err)
{
    enum { N_FORMS = sizeof forms / sizeof forms[0] };
    struct nd_subject subjects[N_FORMS];
    for (int i = 0; i < N_FORMS; i++)
        subjects[i] = (struct nd_subject){forms[i].name, "u8 -> u8", i};
    return nd_experiment_take_all(bench, subjects, N_FORMS, take_subject, entries, err);
}
