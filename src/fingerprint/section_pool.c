/* Means and largest codes of windows. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "fingerprint/ask.h"
#include "fingerprint/linear.h"
#include "fingerprint/mean.h"
#include "fingerprint/section.h"

static const char types[] = "u8 -> u8";

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
    N_FRESH = 4,
    MAX_PROGRAMS_TOLD = 4,
};
/* A share of the codes. */
#define MOST_EXCEPTIONS 0.003
static const double ratios[N_SETTINGS] = {0.7731415, 1, 0.61234, 1.2345678, 0.5512345};
static const int64_t zeros_x[N_SETTINGS] = {128, 128, 0, 100, 37}, zeros_y[N_SETTINGS] = {100, 128, 0, 17, 64};
static const int64_t axes[2] = {2, 3};

struct pool {
    const struct form *form;
    size_t side, step, n_channels, n_samples; /* step: pixels from window to window */
    struct nd_ask ask;
    struct nd_mean_sample samples[N_SETTINGS];
    size_t n_taken;
    bool has_failed, is_on_npu;
    struct nd_trial_result failure;
    char provider[64];
    struct nd_mean_findings found;
    bool has_exceptions; /* the program that is left does not give every code */
    uint64_t n_fresh, n_right;
    char answers[ND_ASK_DIGEST_BYTES * N_SETTINGS];
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

/* The code of a window; the first half of the windows has all sums (in steps, where there are too many), each
 * as even as it can be; the others are random, near one code or far from it. */
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

static void lay_out(const struct pool *p, const uint8_t *windows, double *codes)
{
    size_t per_sample = p->n_channels * windows_per_channel(p), size = (size_t)p->ask.x.dims[2];
    size_t n_x = nd_ask_elems(&p->ask.x), n_elems = p->side * p->side;
    for (size_t i = 0; i < p->n_samples * per_sample; i++)
        for (size_t e = 0; e < n_elems; e++)
            codes[i / per_sample * n_x + place(p, i % per_sample, size, p->step) + e / p->side * size +
                  e % p->side] = windows[i * n_elems + e];
}

static void read_out(const struct pool *p, const double *answers, double *codes)
{
    size_t per_sample = p->n_channels * windows_per_channel(p), size = (size_t)p->ask.y.dims[2];
    size_t n_y = nd_ask_elems(&p->ask.y), apart = p->form->side == 0 ? 1 : p->step / (size_t)p->form->stride;
    for (size_t i = 0; i < p->n_samples * per_sample; i++)
        codes[i] = answers[i / per_sample * n_y + place(p, i % per_sample, size, apart)];
}

/* Asks about windows under p->ask's scales. *out's windows and codes are the caller's to free; NULL where the
 * device failed. */
static enum nd_status ask_windows(struct nd_bench *bench, struct pool *p, bool is_fresh, uint64_t *seed,
                                  struct nd_mean_sample *out, struct nd_error *err)
{
    size_t n = p->n_samples * p->n_channels * windows_per_channel(p), n_elems = p->side * p->side;
    uint8_t *windows = nd_calloc(n, n_elems);
    double *codes = nd_calloc(n, sizeof *codes),
           *fed = nd_calloc(p->n_samples * nd_ask_elems(&p->ask.x), sizeof *fed);
    struct nd_trial_result result = {0};
    enum nd_status status = windows != NULL && codes != NULL && fed != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && i < n; i++)
        draw_window(p, i, n, is_fresh, seed, windows + i * n_elems);
    if (status == ND_OK) {
        lay_out(p, windows, fed);
        status = nd_ask_device(bench, &p->ask, fed, p->n_samples, &result, err);
    }
    free(fed);
    if (status == ND_OK && !result.has_failed) {
        read_out(p, result.x, codes);
        p->is_on_npu = p->is_on_npu && result.is_on_npu;
        memcpy(p->provider, result.provider, sizeof p->provider);
        *out = (struct nd_mean_sample){.is_max = p->form->is_max,
                                       .ratio = (double)p->ask.scale_x / (double)p->ask.scale_y,
                                       .zero_x = (double)p->ask.zero_x,
                                       .zero_y = (double)p->ask.zero_y,
                                       .n_rows = p->side,
                                       .n_columns = p->side,
                                       .n = n,
                                       .windows = windows,
                                       .codes = codes};
        nd_trial_deinit(&result);
        return ND_OK;
    }
    free(windows);
    free(codes);
    if (status == ND_OK) {
        p->has_failed = true;
        p->failure = result;
    }
    return status;
}

static void free_sample(struct nd_mean_sample *sample)
{
    free((void *)(uintptr_t)sample->windows);
    free((void *)(uintptr_t)sample->codes);
}

static enum nd_status solve(struct nd_bench *bench, struct pool *p, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    uint64_t seed = 5;
    for (size_t s = 0; status == ND_OK && !p->has_failed && s < N_SETTINGS; s++) {
        plan(p, false);
        p->ask.scale_x = 0.05F;
        p->ask.scale_y = 0.05F / (float)ratios[s];
        p->ask.zero_x = zeros_x[s];
        p->ask.zero_y = zeros_y[s];
        status = ask_windows(bench, p, false, &seed, &p->samples[s], err);
        if (status != ND_OK || p->has_failed)
            break;
        nd_ask_digest(p->samples[s].codes, p->samples[s].n, p->answers + strlen(p->answers));
        p->n_taken++;
    }
    if (status == ND_OK && !p->has_failed)
        status = nd_mean_solve(p->samples, p->n_taken, p->form->side > 0 && p->form->side == p->form->stride,
                               &p->found, err);
    return status;
}

/* Where nothing gives every code, the plain rounding that fails on few of them is held against fresh ones all
 * the same: what is worked out in floats goes either way at a tie. */
static enum nd_status try_nearest(struct pool *p, struct nd_error *err)
{
    if (p->found.n_programs > 0 ||
        (double)p->found.n_nearest_wrong > MOST_EXCEPTIONS * (double)p->found.n_codes)
        return ND_OK;
    p->found.programs = nd_calloc(1, sizeof *p->found.programs);
    if (p->found.programs == NULL)
        return nd_fail_memory(err);
    p->found.programs[0] = p->found.nearest;
    p->found.n_programs = 1;
    p->has_exceptions = true;
    return ND_OK;
}

/* Fresh windows under new random scales; the programs that give less than the best of them are dropped. */
static enum nd_status confirm(struct nd_bench *bench, struct pool *p, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    uint64_t seed = 20261121, *n_right = nd_calloc(p->found.n_programs, sizeof *n_right);
    if (n_right == NULL)
        return nd_fail_memory(err);
    for (size_t f = 0; status == ND_OK && !p->has_failed && f < N_FRESH; f++) {
        struct nd_mean_sample sample = {0};
        plan(p, true);
        p->ask.scale_x = (float)nd_random_between(&seed, 0.01, 0.06);
        p->ask.scale_y = p->ask.scale_x / (float)nd_random_between(&seed, 0.5, 1.3);
        p->ask.zero_x = (int64_t)(nd_random_next(&seed) % 200);
        p->ask.zero_y = (int64_t)(nd_random_next(&seed) % 200);
        status = ask_windows(bench, p, true, &seed, &sample, err);
        for (size_t i = 0; status == ND_OK && i < p->found.n_programs; i++)
            n_right[i] += sample.n - nd_mean_count_wrong(&p->found.programs[i], &sample, 1, UINT64_MAX);
        p->n_fresh += sample.n;
        free_sample(&sample);
    }
    size_t n = 0;
    for (size_t i = 0; i < p->found.n_programs; i++)
        p->n_right = n_right[i] > p->n_right ? n_right[i] : p->n_right;
    for (size_t i = 0; i < p->found.n_programs; i++)
        if (n_right[i] == p->n_right)
            p->found.programs[n++] = p->found.programs[i];
    p->found.n_programs = n;
    free(n_right);
    return status;
}

/* ---- what is said of it ---- */

static json_t *describe(const struct nd_mean_program *p)
{
    json_t *out = json_object(), *stages = json_array();
    bool is_whole = out != NULL && stages != NULL;
    for (size_t i = 0; is_whole && p->n_stages > 1 && i < p->n_stages; i++)
        is_whole = json_array_append_new(stages, json_integer(p->stages[i])) == 0;
    if (is_whole && p->n_stages > 1)
        is_whole = json_object_set(out, "stages", stages) == 0 &&
                   nd_section_set(out, "requantises", json_string(p->requantises_last ? "last" : "first"));
    if (is_whole && p->requantise.multiplier_bits != ND_MULTIPLIER_EXACT)
        is_whole = nd_section_set(out, "multiplier_bits", json_integer(p->requantise.multiplier_bits));
    if (is_whole && p->requantise.has_granule)
        is_whole = nd_section_set(out, "granule_bits", json_integer(p->requantise.granule_bits)) &&
                   nd_section_set(out, "half_granule", json_boolean(p->requantise.has_half_granule));
    if (is_whole && p->first_shift != ND_MEAN_NO_SHIFT)
        is_whole = nd_section_set(out, "first_shift", json_integer(p->first_shift));
    if (is_whole)
        is_whole = nd_section_set(out, "rounding", json_string(nd_rounding_name(p->requantise.rounding)));
    json_decref(stages);
    if (is_whole)
        return out;
    json_decref(out);
    return NULL;
}

static json_t *name_programs(const struct nd_mean_findings *found)
{
    char buf[ND_MEAN_NAME_BYTES];
    json_t *names = json_array();
    for (size_t i = 0; names != NULL && i < found->n_programs && i < MAX_PROGRAMS_TOLD; i++)
        json_array_append_new(names, json_string(nd_mean_name(&found->programs[i], buf)));
    return names;
}

static bool tell_nearest(const struct pool *p, json_t *entry)
{
    char buf[ND_MEAN_NAME_BYTES];
    return nd_section_set(entry, "nearest", json_string(nd_mean_name(&p->found.nearest, buf))) &&
           nd_section_set(entry, "nearest_wrong", json_integer((json_int_t)p->found.n_nearest_wrong)) &&
           nd_section_undecided(
               entry, "the program",
               p->found.is_of_sum
                   ? "a family that this version does not know; the code depends on the sum alone"
                   : "a family that this version does not know; the code depends on more than the sum");
}

static bool tell_exceptions(const struct pool *p, json_t *entry)
{
    char line[120];
    snprintf(line, sizeof line, "not every code: %llu of %llu are others%s",
             (unsigned long long)p->found.n_nearest_wrong, (unsigned long long)p->found.n_codes,
             p->found.is_of_sum ? "" : ", and windows of one sum have several codes");
    json_t *lines = json_pack("[s]", line);
    return nd_section_set(entry, "text", lines) &&
           nd_section_undecided(entry, "what decides a tie",
                                "windows of one sum in many arrangements, at ties");
}

static bool tell(const struct pool *p, json_t *entries)
{
    bool is_known = p->found.n_programs > 0 && nd_fresh_is_enough(p->n_fresh, p->n_right);
    const char *verdict = !p->is_on_npu ? "not on the NPU" : is_known ? "identified" : "not identified";
    json_t *entry = nd_section_entry(entries, p->form->name, types, verdict, p->provider);
    json_t *evidence = json_pack("{s:I, s:I, s:b, s:I, s:I, s:I}", "settings", (json_int_t)p->n_taken, "codes",
                                 (json_int_t)p->found.n_codes, "one_code_per_sum", p->found.is_of_sum, "fresh",
                                 (json_int_t)p->n_fresh, "right", (json_int_t)p->n_right, "programs_left",
                                 (json_int_t)p->found.n_programs);
    if (entry == NULL || !nd_section_set(entry, "evidence", evidence) ||
        !nd_section_set(entry, "programs", name_programs(&p->found)) ||
        !nd_section_set(entry, "answers", json_string(p->answers)))
        return false;
    if (p->found.n_programs == 0)
        return tell_nearest(p, entry);
    if (is_known && !nd_section_set(entry, "parameters", describe(&p->found.programs[0])))
        return false;
    if (p->has_exceptions)
        return tell_exceptions(p, entry);
    return p->found.n_programs == 1 ||
           nd_section_undecided(entry, "the bits of the multiplier and where a product that is a tie goes",
                                "larger windows under smaller multipliers; scales of few bits");
}

static enum nd_status take_pool(struct nd_bench *bench, const struct form *form, json_t *entries,
                                struct nd_error *err)
{
    struct pool p = {.form = form, .is_on_npu = true};
    enum nd_status status = solve(bench, &p, err);
    if (status == ND_OK && !p.has_failed)
        status = try_nearest(&p, err);
    if (status == ND_OK && !p.has_failed && p.found.n_programs > 0)
        status = confirm(bench, &p, err);
    if (p.has_exceptions && p.n_right < p.n_fresh) { /* more than ties: it is not the program */
        p.has_exceptions = false;
        p.found.n_programs = 0;
    }
    if (status == ND_OK && p.has_failed)
        status = nd_section_failed(entries, form->name, types, &p.failure, err);
    else if (status == ND_OK && !tell(&p, entries))
        status = nd_fail_memory(err);
    for (size_t s = 0; s < p.n_taken; s++)
        free_sample(&p.samples[s]);
    nd_mean_findings_deinit(&p.found);
    return status;
}

enum nd_status nd_section_pool_u8(struct nd_bench *bench, json_t *entries, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < sizeof forms / sizeof forms[0]; i++)
        status = take_pool(bench, &forms[i], entries, err);
    return status;
}
