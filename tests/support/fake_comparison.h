/* A comparison made by hand, with every member that a report can show: three devices, a quantised tensor "conv"
 * and a float model output "scores", all pairs, one probe of 4 samples. Nothing differs until a test says so.
 * It lives in the struct: there is nothing to destroy. */
#ifndef ND_TESTS_FAKE_COMPARISON_H
#define ND_TESTS_FAKE_COMPARISON_H

#include <math.h>

#include "npudiff/compare/compare.h"

enum { FAKE_DEVICES = 3, FAKE_PAIRS = 3, FAKE_CONV = 0, FAKE_SCORES = 1, FAKE_COMPARED_TENSORS = 2 };

struct fake_comparison {
    struct nd_comparison comparison;
    struct nd_compared_device devices[FAKE_DEVICES];
    struct nd_compared_probe probes[1];
    struct nd_compared_tensor tensors[FAKE_COMPARED_TENSORS];
    struct nd_tensor_on_device on[FAKE_COMPARED_TENSORS][FAKE_DEVICES];
    struct nd_compared_pair pairs[FAKE_COMPARED_TENSORS][FAKE_PAIRS];
    struct nd_compared_part parts[FAKE_COMPARED_TENSORS][FAKE_PAIRS];
    struct nd_parting partings[2];
};

static inline char *fake_text(const char *text)
{
    return (char *)(uintptr_t)text;
}

static inline struct nd_difference fake_equal(bool is_integer, uint64_t n_elems)
{
    return (struct nd_difference){
        .n_samples = 4,
        .n_elems = n_elems,
        .has_values = true,
        .is_integer = is_integer,
        .has_errors = true,
        .has_signal = true,
        .sqnr_db = INFINITY,
        .cosine = 1,
        .norm_ratio = 1,
        .pearson = 1,
        .has_gain = true,
        .gain = 1,
        .ref_side = {.min = NAN, .max = NAN},
        .test_side = {.min = NAN, .max = NAN},
        .structure = {.axis = -1},
        .tolerance = {.is_possible = true, .has_lsb = is_integer, .has_ulp = !is_integer}};
}

static inline void fake_tensor(struct fake_comparison *fake, size_t e, const char *name, const char *op,
                               enum nd_dtype dtype, struct nd_shape shape)
{
    static const size_t sides[FAKE_PAIRS][2] = {{0, 1}, {0, 2}, {1, 2}};
    bool is_integer = !nd_dtype_is_float(dtype);
    size_t n_elems = 4;
    for (int i = 0; i < shape.rank; i++)
        n_elems *= (size_t)shape.dims[i];
    fake->tensors[e] = (struct nd_compared_tensor){.name = fake_text(name),
                                                   .op_types = fake_text(op),
                                                   .dtype = dtype,
                                                   .shape = shape,
                                                   .is_quantised = is_integer,
                                                   .is_model_output = !is_integer,
                                                   .comparable = true,
                                                   .gate = fake_text("bit-equal"),
                                                   .devices = fake->on[e],
                                                   .odd_one_out = SIZE_MAX,
                                                   .pairs = fake->pairs[e]};
    for (size_t i = 0; i < FAKE_DEVICES; i++)
        fake->on[e][i] =
            (struct nd_tensor_on_device){.exists = true, .provider = fake_text("QNN"), .unstable_bound = 1};
    for (size_t i = 0; i < FAKE_PAIRS; i++) {
        struct nd_compared_part part = {.difference = fake_equal(is_integer, n_elems)};
        fake->parts[e][i] = part;
        fake->pairs[e][i] = (struct nd_compared_pair){
            .ref = sides[i][0], .test = sides[i][1], .total = part, .probes = &fake->parts[e][i]};
    }
}

static inline void fake_init(struct fake_comparison *fake)
{
    static const char *const labels[FAKE_DEVICES] = {"cpu", "gen1", "gen3"};
    *fake = (struct fake_comparison){0};
    for (size_t i = 0; i < FAKE_DEVICES; i++)
        fake->devices[i] = (struct nd_compared_device){.uri = fake_text(labels[i]),
                                                       .label = fake_text(labels[i]),
                                                       .capture = fake_text(labels[i]),
                                                       .chipset = fake_text(""),
                                                       .runtime = fake_text("qairt-2.48.40"),
                                                       .kind = fake_text("htp-sim"),
                                                       .environment = fake_text("QAIRT 2.48.40, simulator"),
                                                       .failure = fake_text(""),
                                                       .n_samples = 4,
                                                       .n_samples_expected = 4,
                                                       .first_tensor = SIZE_MAX};
    fake->probes[0] = (struct nd_compared_probe){.name = fake_text("val"), .n_samples = 4};
    fake_tensor(fake, FAKE_CONV, "conv", "Conv+Relu", ND_DTYPE_U8, (struct nd_shape){3, {2, 3, 4}});
    fake_tensor(fake, FAKE_SCORES, "scores", "Softmax", ND_DTYPE_F32, (struct nd_shape){2, {1, 5}});
    fake->comparison = (struct nd_comparison){.n_devices = FAKE_DEVICES,
                                              .n_tensors = FAKE_COMPARED_TENSORS,
                                              .n_probes = 1,
                                              .n_pairs = FAKE_PAIRS,
                                              .odd_one_out = SIZE_MAX,
                                              .partings = fake->partings,
                                              .devices = fake->devices,
                                              .tensors = fake->tensors,
                                              .probes = fake->probes,
                                              .classes_text = fake_text("cpu = gen1 = gen3"),
                                              .output_classes_text = fake_text("cpu = gen1 = gen3"),
                                              .first_tensor = SIZE_MAX,
                                              .broken_top1 = SIZE_MAX,
                                              .first_test = SIZE_MAX};
}

/* Lets a pair differ; the caller fills in what else it wants. */
static inline struct nd_difference *fake_differ(struct fake_comparison *fake, size_t tensor, size_t pair)
{
    struct nd_compared_pair *compared = &fake->pairs[tensor][pair];
    struct nd_difference *d = &compared->total.difference;
    compared->verdict = fake->tensors[tensor].verdict = fake->comparison.verdict = ND_VERDICT_DIFFERS;
    d->n_samples_differing = d->n_differing = d->n_failing = 1;
    d->share = 1 / (double)d->n_elems;
    d->has_first = true;
    d->first = (struct nd_difference_place){.has_index = true};
    if (compared->ref == 0 && fake->devices[compared->test].first_tensor > tensor)
        fake->devices[compared->test].first_tensor = tensor;
    return d;
}

/* A pair in which everything is wrong, with numbers that show which member went where. */
static inline struct nd_difference *fake_fill(struct fake_comparison *fake, size_t tensor, size_t pair)
{
    static struct nd_worst worst[2];
    struct nd_difference *d = fake_differ(fake, tensor, pair);
    bool is_integer = d->is_integer;
    worst[0] = (struct nd_worst){.place = {.sample = 3, .has_index = true, .index = 2, .coordinates = {0, 2}},
                                 .abs_error = INFINITY};
    worst[0].ref = worst[0].ref_real = 0.25;
    worst[0].test = worst[0].test_real = NAN;
    worst[1] = (struct nd_worst){.place = {.sample = 1}, .abs_error = 0.5, .ref = 7, .test = 8};
    worst[1].ref_real = 2;
    worst[1].test_real = 2.5;
    d->n_samples_differing = 2;
    d->abs = (struct nd_error_stats){.max = 0.1, .mean = 1.0 / 3, .median = 1e-300, .p99 = 5e-324};
    d->rel = (struct nd_error_stats){.max = INFINITY, .mean = NAN, .median = 2, .p99 = 1e22};
    d->n_rel_undefined = 6;
    d->rmse = 0.25;
    d->sqnr_db = -INFINITY;
    d->cosine = 1 - 1e-9;
    d->norm_ratio = 1.5;
    d->pearson = -0.75;
    d->gain = 0.5;
    d->offset = -3;
    d->max_lsb = is_integer ? 9 : 0;
    d->max_ulp = is_integer ? 0 : UINT64_MAX;
    d->n_saturation_mismatch = 4;
    d->ref_side = (struct nd_side){.n_elems = 48, .n_zero = 5, .n_saturated = 1, .min = -1, .max = 1};
    d->test_side = (struct nd_side){48, 1, 2, 5, 4, 12, 3, NAN, NAN};
    d->tolerance.lsb = 9;
    d->tolerance.ulp = 4;
    d->tolerance.atol = 0.1;
    d->tolerance.rtol = INFINITY;
    d->n_worst = 2;
    d->worst = worst;
    return d;
}

/* Channel i has i % 8 differing elements and an error of i. */
static inline void fake_channels(struct fake_comparison *fake, struct nd_difference *channels, size_t n)
{
    fake->comparison.per_channel = true;
    fake->comparison.channel_axis = -1;
    for (size_t i = 0; i < n; i++) {
        channels[i] = fake_equal(true, 32);
        channels[i].n_samples_differing = channels[i].n_differing = i % 8;
        channels[i].share = (double)(i % 8) / 32;
        channels[i].abs.max = (double)i;
        channels[i].max_lsb = i;
    }
    fake_differ(fake, FAKE_CONV, 0);
    fake->pairs[FAKE_CONV][0].n_channels = n;
    fake->pairs[FAKE_CONV][0].channels = channels;
}

#endif
