/* Means and largest quantised values of windows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/documents/json_out.h"
#include "core/memory.h"
#include "core/random.h"
#include "lab/experiment/experiment.h"
#include "lab/fingerprint/mean.h"
#include "lab/fingerprint/section.h"

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
