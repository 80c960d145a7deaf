/* From floats to quantised values and back, where the device does it itself: thresholds of QuantizeLinear,
 * floats of DequantizeLinear. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/random.h"
#include "lab/experiment/experiment.h"
#include "lab/fingerprint/scalar.h"
#include "lab/fingerprint/section.h"

enum {
    N_SETTINGS = 3,
    N_CLOSE = 8192,    /* floats next to thresholds */
    N_RANDOM = 131072, /* fresh ones */
    MAX_ARITHMETICS_TOLD = 4,
};
/* A share of the floats next to thresholds. */
#define MAX_EXCEPTIONS 0.01
static const struct nd_shape close_shape = {.rank = 4, .dims = {1, 8, 32, 32}},
                             random_shape = {.rank = 4, .dims = {1, 32, 64, 64}};
/* Steps of 8 bits; those of 16 are 256 times smaller. A power of two makes ties. */
static const float scales[N_SETTINGS + 1] = {0.0173F, 0x1p-5F, 0.4321F, 0.0291F};
static const int64_t zeros[N_SETTINGS + 1] = {128, 101, 20, 77};

/* One direction and type. */
struct conversion {
    bool quantizes;
    enum nd_dtype dtype; /* of the quantised values */
    struct nd_scalar_sample samples[N_SETTINGS], fresh;
    struct nd_scalar_findings found;
    bool has_exceptions; /* the arithmetic that is left does not give every float next to a threshold */
    uint64_t seed;       /* one sequence for all floats */
};

static float scale_of(const struct conversion *c, size_t setting)
{
    return c->dtype == ND_DTYPE_U8 ? scales[setting] : scales[setting] / 256;
}

static int64_t zero_of(const struct conversion *c, size_t setting)
{
    return c->dtype == ND_DTYPE_U8 ? zeros[setting] : 257 * zeros[setting];
}

static double largest_qvalue(const struct conversion *c)
{
    return c->dtype == ND_DTYPE_U8 ? 255 : 65535;
}

/* Floats next to the thresholds of one rounding, all of 8 bits and some of 16: on it, and off it by the powers
 * of two from 2^-23 to 2^-8 of the float, either way. */
static void draw_close(const struct conversion *c, size_t setting, uint64_t *seed, float *x)
{
    double scale = (double)scale_of(c, setting), zero = (double)zero_of(c, setting), most = largest_qvalue(c);
    for (size_t i = 0; i < N_CLOSE; i++) {
        double k = most == 255 ? (double)(i / 32) : rint(nd_random_between(seed, 0, most));
        double off = i % 32 < 16 ? ldexp(1, (int)(i % 16) - 23) : -ldexp(1, (int)(i % 16) - 23);
        double threshold = (k - zero + 0.5) * scale;
        x[i] = (float)(i % 16 == 0 ? threshold : threshold * (1 + off));
    }
}

static void draw_random(const struct conversion *c, uint64_t *seed, float *x)
{
    double scale = (double)scale_of(c, N_SETTINGS), zero = (double)zero_of(c, N_SETTINGS);
    for (size_t i = 0; i < N_RANDOM; i++)
        x[i] = (float)(nd_random_between(seed, -zero - 2, largest_qvalue(c) - zero + 2) * scale);
}

/* The largest of windows of one. */
static void add_nothing(struct nd_compose *model, const char *input, const char *output)
{
    nd_compose_node(model, "MaxPool", (const char *[]){input, NULL}, output);
    nd_compose_attribute_ints(model, "kernel_shape", (const int64_t[]){1, 1}, 2);
}

/* Runs a model of one conversion between floats and quantised values on data, n elements. */
static const double *ask(struct nd_experiment *e, const struct conversion *c, size_t setting,
                         const struct nd_shape *shape, const void *data)
{
    enum nd_dtype from = c->quantizes ? ND_DTYPE_F32 : c->dtype, to = c->quantizes ? c->dtype : ND_DTYPE_F32;
    float scale = scale_of(c, setting);
    int64_t zero = zero_of(c, setting);
    const struct nd_quant quant = {.n = 1, .axis = -1, .scale = &scale, .zero_point = &zero};
    const struct nd_trial_input input = {"x", from, *shape, data};
    struct nd_compose *model = NULL;
    if (data == NULL || !nd_experiment_goes_on(e) ||
        !nd_experiment_check(e, nd_compose_create(21, &model, e->err)))
        return NULL;
    nd_compose_input(model, "x", from, shape);
    /* A unit needs an operator that is no conversion: one that leaves everything as it is. */
    if (c->quantizes) {
        nd_compose_quantize(model, "x", "codes", &quant, c->dtype);
        nd_compose_dequantize(model, "codes", "floats", &quant, c->dtype);
        add_nothing(model, "floats", "same");
        nd_compose_quantize(model, "same", "y", &quant, c->dtype);
    } else {
        nd_compose_dequantize(model, "x", "floats", &quant, c->dtype);
        nd_compose_node(model, "Identity", (const char *[]){"floats", NULL}, "y");
    }
    nd_compose_output(model, "y", to, shape);
    return nd_experiment_run(e, model, &input, nd_ask_elems(shape));
}

/* ---- QuantizeLinear ---- */

/* Asks about n floats x. */
static struct nd_scalar_sample sample_of(struct nd_experiment *e, const struct conversion *c, size_t setting,
                                         const struct nd_shape *shape, const float *x)
{
    size_t n = nd_ask_elems(shape);
    double *values = nd_experiment_alloc(e, n, sizeof *values);
    for (size_t i = 0; values != NULL && i < n; i++)
        values[i] = (double)x[i];
    return (struct nd_scalar_sample){.scale = scale_of(c, setting),
                                     .zero = (double)zero_of(c, setting),
                                     .high = largest_qvalue(c),
                                     .n = n,
                                     .values = values,
                                     .qvalues = ask(e, c, setting, shape, x)};
}

static void ask_close(struct nd_experiment *e, struct conversion *c, size_t setting)
{
    float *x = nd_experiment_alloc(e, N_CLOSE, sizeof *x);
    if (x == NULL)
        return;
    draw_close(c, setting, &c->seed, x);
    c->samples[setting] = sample_of(e, c, setting, &close_shape, x);
    if (nd_experiment_goes_on(e))
        nd_experiment_digest(e, c->samples[setting].qvalues, N_CLOSE);
}

/* Where nothing gives every float that was put next to a threshold, what gives most of them is held against
 * random ones all the same. */
static void try_nearest(struct conversion *c)
{
    if (c->found.n_arithmetics > 0 ||
        (double)c->found.n_nearest_wrong > MAX_EXCEPTIONS * (double)c->found.n_qvalues)
        return;
    c->found.arithmetics[c->found.n_arithmetics++] = c->found.nearest;
    c->has_exceptions = true;
}

static size_t ask_random(struct nd_experiment *e, void *context, size_t i, uint64_t *seed)
{
    struct conversion *c = context;
    (void)i;
    (void)seed;
    float *x = nd_experiment_alloc(e, N_RANDOM, sizeof *x);
    if (x == NULL)
        return 0;
    draw_random(c, &c->seed, x);
    c->fresh = sample_of(e, c, N_SETTINGS, &random_shape, x);
    return c->fresh.qvalues != NULL ? N_RANDOM : 0;
}

static uint64_t count_right(const void *context, const void *arithmetic)
{
    const struct nd_scalar_sample *sample = &((const struct conversion *)context)->fresh;
    uint64_t n_right = 0;
    for (size_t i = 0; i < sample->n; i++)
        n_right += nd_scalar_qvalue(arithmetic, sample, sample->values[i]) == sample->qvalues[i];
    return n_right;
}

static const struct nd_confirmation confirmation = {
    .n_models = 1, .ask = ask_random, .count_right = count_right};

static void take_quantize(struct nd_experiment *e, struct conversion *c)
{
    c->seed = 3;
    for (size_t s = 0; s < N_SETTINGS; s++)
        ask_close(e, c, s);
    if (!nd_experiment_goes_on(e))
        return;
    nd_scalar_solve(c->samples, N_SETTINGS, &c->found);
    try_nearest(c);
    nd_experiment_confirm(e, &confirmation, c, ND_LEFT(&c->found));
    if (c->has_exceptions && e->n_right < e->n_fresh) { /* it is not the arithmetic */
        c->has_exceptions = false;
        c->found.n_arithmetics = 0;
    }
}

static void tell_undecided(struct nd_experiment *e, const struct conversion *c, json_t *entry)
{
    char buf[ND_SCALAR_NAME_BYTES];
    if (c->found.n_arithmetics == 0) {
        nd_tell_nearest(e, entry, nd_scalar_name(&c->found.nearest, buf), c->found.n_nearest_wrong);
        nd_tell_unknown(e, entry);
    } else if (c->has_exceptions) {
        nd_tell_line(e, entry, "of %llu floats next to thresholds %llu have another quantised value",
                     (unsigned long long)c->found.n_qvalues, (unsigned long long)c->found.n_nearest_wrong);
        nd_tell_undecided(e, entry, "what is done within 2^-20 of a threshold",
                          "a family that this version does not know");
    } else if (c->found.n_arithmetics > 1) {
        nd_tell_undecided(e, entry,
                          "in which precision the quotient is calculated, or where the zero point goes",
                          "floats whose quotient is within 2^-24 of a tie");
    }
}

static void tell_quantize(struct nd_experiment *e, const struct conversion *c, json_t *entries)
{
    const struct nd_scalar_findings *found = &c->found;
    json_t *entry = nd_experiment_tell(e, entries, nd_experiment_is_confirmed(e, found->n_arithmetics));
    if (entry == NULL)
        return;
    nd_tell_counts(e, entry,
                   ND_COUNTS({"settings", N_SETTINGS}, {"values", found->n_qvalues}, {"off", found->n_off}));
    nd_tell(e, nd_tell_object(e, entry, "evidence"), "largest_off", json_real(found->largest_off));
    nd_tell_counts(
        e, entry,
        ND_COUNTS({"fresh", e->n_fresh}, {"right", e->n_right}, {"possible_left", found->n_arithmetics}));
    nd_scalar_tell(e, entry, found, MAX_ARITHMETICS_TOLD);
    nd_tell_text(e, entry, "answers", e->answers.text);
    tell_undecided(e, c, entry);
}

/* ---- DequantizeLinear ---- */

static const char *const product_names[] = {"float32:(code - zero) * scale",
                                            "float32:code * scale - zero * scale",
                                            "half:(quantised value - zero) * scale"};
enum { N_PRODUCTS = sizeof product_names / sizeof product_names[0] };

static double product(size_t which, double qvalue, double zero, float scale)
{
    float whole = (float)(qvalue - zero) * scale;
    if (which == 1) {
        float of_qvalue = (float)qvalue * scale, of_zero = (float)zero * scale;
        return (double)(of_qvalue - of_zero);
    }
    return which == 0 ? (double)whole : nd_scalar_to_half((double)whole);
}

/* All quantised values that there are under one setting; n_wrong[N_PRODUCTS] grows. How many. */
static size_t ask_floats(struct nd_experiment *e, const struct conversion *c, size_t setting,
                         uint64_t n_wrong[N_PRODUCTS])
{
    size_t n = c->dtype == ND_DTYPE_U8 ? 256 : 65536;
    const struct nd_shape shape = {.rank = 4, .dims = {1, (int64_t)n / 256, 16, 16}};
    uint8_t *bytes = nd_experiment_alloc(e, n, 2);
    double *qvalues = nd_experiment_alloc(e, n, sizeof *qvalues);
    float *floats = nd_experiment_alloc(e, n, sizeof *floats);
    if (!nd_experiment_goes_on(e))
        return 0;
    for (size_t i = 0; i < n; i++)
        qvalues[i] = (double)i;
    nd_array_store(c->dtype, qvalues, n, bytes);
    const double *answers = ask(e, c, setting, &shape, bytes);
    if (answers == NULL)
        return 0;
    for (size_t i = 0; i < n; i++) {
        floats[i] = (float)answers[i];
        for (size_t p = 0; p < N_PRODUCTS; p++)
            n_wrong[p] +=
                product(p, qvalues[i], (double)zero_of(c, setting), scale_of(c, setting)) != answers[i];
    }
    nd_experiment_add_digest(e, nd_digest_bytes(floats, n * sizeof *floats));
    return n;
}

static void take_dequantize(struct nd_experiment *e, const struct conversion *c, json_t *entries)
{
    uint64_t n_wrong[N_PRODUCTS] = {0}, n_qvalues = 0;
    size_t nearest = 0;
    for (size_t s = 0; s < N_SETTINGS; s++)
        n_qvalues += ask_floats(e, c, s, n_wrong);
    for (size_t p = 0; p < N_PRODUCTS; p++)
        nearest = n_wrong[p] < n_wrong[nearest] ? p : nearest;
    json_t *entry = nd_experiment_tell(e, entries, n_wrong[nearest] == 0);
    if (entry == NULL)
        return;
    nd_tell_listed(e, entry, "possible_arithmetic", NULL);
    for (size_t p = 0; p < N_PRODUCTS; p++)
        if (n_wrong[p] == 0)
            nd_tell_listed(e, entry, "possible_arithmetic", product_names[p]);
    nd_tell_text(e, entry, "answers", e->answers.text);
    nd_tell_counts(e, entry, ND_COUNTS({"settings", N_SETTINGS}, {"values", n_qvalues}));
    if (n_wrong[nearest] > 0) {
        nd_tell_nearest(e, entry, product_names[nearest], n_wrong[nearest]);
        nd_tell_unknown(e, entry);
    }
}

/* ---- the section ---- */

/* The same device, told to quantise a graph's inputs and outputs itself: an NPU's provider leaves that
 * to the CPU otherwise. */
static enum nd_status find_device(const struct nd_device *device, struct nd_device *out, struct nd_error *err)
{
    struct nd_strbuf uri = {0};
    nd_strbuf_puts(&uri, device->uri);
    if (nd_device_is_npu(device->kind))
        nd_strbuf_printf(&uri, "%coffload_graph_io_quantization=0",
                         strchr(device->uri, '?') == NULL ? '?' : '&');
    ND_FREED char *text = nd_strbuf_take(&uri);
    return text != NULL ? nd_device_parse(text, out, err) : nd_fail_memory(err);
}

enum { QUANTIZE_U8, QUANTIZE_U16, DEQUANTIZE_U8, DEQUANTIZE_U16 };

static void take_subject(struct nd_experiment *e, int kind, json_t *entries)
{
    bool is_wide = kind == QUANTIZE_U16 || kind == DEQUANTIZE_U16;
    struct conversion c = {.quantizes = kind == QUANTIZE_U8 || kind == QUANTIZE_U16,
                           .dtype = is_wide ? ND_DTYPE_U16 : ND_DTYPE_U8};
    if (c.quantizes) {
        take_quantize(e, &c);
        tell_quantize(e, &c, entries);
    } else {
        take_dequantize(e, &c, entries);
    }
}

enum nd_status nd_section_quantise(struct nd_bench *bench, json_t *entries, struct nd_error *err)
{
    static const struct nd_subject subjects[] = {{"QuantizeLinear", "f32 -> u8", QUANTIZE_U8},
                                                 {"QuantizeLinear", "f32 -> u16", QUANTIZE_U16},
                                                 {"DequantizeLinear", "u8 -> f32", DEQUANTIZE_U8},
                                                 {"DequantizeLinear", "u16 -> f32", DEQUANTIZE_U16}};
    const struct nd_device *usual = bench->device;
    struct nd_device device;
    ND_TRY(find_device(usual, &device, err));
    bench->device = &device;
    enum nd_status status = nd_experiment_take_all(bench, subjects, sizeof subjects / sizeof subjects[0],
                                                   take_subject, entries, err);
    bench->device = usual;
    nd_device_deinit(&device);
    return status;
}
