/* From floats to codes and back, where the device does it itself: thresholds of QuantizeLinear, floats of
 * DequantizeLinear. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "base/strbuf.h"
#include "fingerprint/ask.h"
#include "fingerprint/linear.h"
#include "fingerprint/scalar.h"
#include "fingerprint/section.h"

enum {
    N_SETTINGS = 3,
    N_CLOSE = 8192,    /* floats next to thresholds */
    N_RANDOM = 131072, /* fresh ones */
    MAX_PROGRAMS_TOLD = 4,
};
/* A share of the floats next to thresholds. */
#define MOST_EXCEPTIONS 0.01
static const struct nd_shape close_shape = {.rank = 4, .dims = {1, 8, 32, 32}},
                             random_shape = {.rank = 4, .dims = {1, 32, 64, 64}};
/* Steps of 8 bits; those of 16 are 256 times smaller. A power of two makes ties. */
static const float scales[N_SETTINGS + 1] = {0.0173F, 0x1p-5F, 0.4321F, 0.0291F};
static const int64_t zeros[N_SETTINGS + 1] = {128, 101, 20, 77};

/* One direction and type. */
struct conversion {
    const char *op_type, *types;
    enum nd_dtype dtype; /* of the codes */
    bool has_failed, is_on_npu;
    struct nd_trial_result failure;
    char provider[64];
    struct nd_scalar_sample samples[N_SETTINGS];
    size_t n_taken;
    struct nd_scalar_findings found;
    bool has_exceptions; /* the program that is left does not give every float next to a threshold */
    uint64_t n_fresh, n_right;
    char answers[ND_ASK_DIGEST_BYTES * N_SETTINGS];
};

static float scale_of(const struct conversion *c, size_t setting)
{
    return c->dtype == ND_DTYPE_U8 ? scales[setting] : scales[setting] / 256;
}

static int64_t zero_of(const struct conversion *c, size_t setting)
{
    return c->dtype == ND_DTYPE_U8 ? zeros[setting] : 257 * zeros[setting];
}

static double largest_code(const struct conversion *c)
{
    return c->dtype == ND_DTYPE_U8 ? 255 : 65535;
}

/* Floats next to the thresholds of one rounding, all of 8 bits and some of 16: on it, and off it by the powers
 * of two from 2^-23 to 2^-8 of the float, either way. */
static void draw_close(const struct conversion *c, size_t setting, uint64_t *seed, float *x)
{
    double scale = (double)scale_of(c, setting), zero = (double)zero_of(c, setting), most = largest_code(c);
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
        x[i] = (float)(nd_random_between(seed, -zero - 2, largest_code(c) - zero + 2) * scale);
}

/* The largest of windows of one. */
static void add_nothing(struct nd_compose *model, const char *input, const char *output)
{
    nd_compose_node(model, "MaxPool", (const char *[]){input, NULL}, output);
    nd_compose_attribute_ints(model, "kernel_shape", (const int64_t[]){1, 1}, 2);
}

/* Runs a model of one conversion between floats and codes; which is first, the operator says. */
static enum nd_status ask(struct nd_bench *bench, struct conversion *c, size_t setting,
                          const struct nd_shape *shape, const void *data, struct nd_trial_result *out,
                          struct nd_error *err)
{
    bool quantizes = strcmp(c->op_type, "QuantizeLinear") == 0;
    enum nd_dtype from = quantizes ? ND_DTYPE_F32 : c->dtype, to = quantizes ? c->dtype : ND_DTYPE_F32;
    float scale = scale_of(c, setting);
    int64_t zero = zero_of(c, setting);
    const struct nd_quant quant = {.n = 1, .axis = -1, .scale = &scale, .zero_point = &zero};
    struct nd_compose *model = NULL;
    enum nd_status status = nd_compose_create(21, &model, err);
    if (status != ND_OK)
        return status;
    nd_compose_input(model, "x", from, shape);
    /* A unit needs an operator that is no conversion: one that leaves everything as it is. */
    if (quantizes) {
        nd_compose_quantize(model, "x", "codes", &quant, c->dtype);
        nd_compose_dequantize(model, "codes", "floats", &quant, c->dtype);
        add_nothing(model, "floats", "same");
        nd_compose_quantize(model, "same", "y", &quant, c->dtype);
    } else {
        nd_compose_dequantize(model, "x", "floats", &quant, c->dtype);
        nd_compose_node(model, "Identity", (const char *[]){"floats", NULL}, "y");
    }
    nd_compose_output(model, "y", to, shape);
    const struct nd_trial_input input = {"x", from, *shape, data};
    const struct nd_trial trial = {
        .model = model, .output = "y", .n_samples = 1, .n_inputs = 1, .inputs = &input};
    status = nd_trial_run(bench, &trial, out, err);
    nd_compose_destroy(&model);
    if (status != ND_OK)
        return status;
    if (out->has_failed) {
        c->has_failed = true;
        c->failure = *out;
        return ND_OK;
    }
    c->is_on_npu = c->is_on_npu && out->is_on_npu;
    memcpy(c->provider, out->provider, sizeof c->provider);
    return ND_OK;
}

/* ---- QuantizeLinear ---- */

static enum nd_status ask_close(struct nd_bench *bench, struct conversion *c, size_t setting, uint64_t *seed,
                                struct nd_error *err)
{
    struct nd_trial_result result = {0};
    float *x = nd_calloc(N_CLOSE, sizeof *x);
    double *values = nd_calloc(N_CLOSE, sizeof *values);
    enum nd_status status = x != NULL && values != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK) {
        draw_close(c, setting, seed, x);
        status = ask(bench, c, setting, &close_shape, x, &result, err);
    }
    for (size_t i = 0; status == ND_OK && i < N_CLOSE; i++)
        values[i] = (double)x[i];
    free(x);
    if (status != ND_OK || c->has_failed) {
        free(values);
        return status;
    }
    nd_ask_digest(result.x, result.n, c->answers + strlen(c->answers));
    c->samples[c->n_taken++] = (struct nd_scalar_sample){.scale = scale_of(c, setting),
                                                         .zero = (double)zero_of(c, setting),
                                                         .high = largest_code(c),
                                                         .n = N_CLOSE,
                                                         .values = values,
                                                         .codes = result.x}; /* freed with it */
    return ND_OK;
}

static void keep_best(struct conversion *c, const struct nd_scalar_sample *sample)
{
    uint64_t n_right[ND_SCALAR_PROGRAMS] = {0};
    size_t n = 0;
    for (size_t p = 0; p < c->found.n_programs; p++) {
        for (size_t i = 0; i < sample->n; i++)
            n_right[p] += nd_scalar_code(&c->found.programs[p], sample, sample->values[i]) == sample->codes[i];
        c->n_right = n_right[p] > c->n_right ? n_right[p] : c->n_right;
    }
    for (size_t p = 0; p < c->found.n_programs; p++)
        if (n_right[p] == c->n_right)
            c->found.programs[n++] = c->found.programs[p];
    c->found.n_programs = n;
    c->n_fresh = sample->n;
}

/* Where nothing gives every float that was put next to a threshold, what gives most of them is held against
 * random ones all the same. */
static void try_nearest(struct conversion *c)
{
    if (c->found.n_programs > 0 ||
        (double)c->found.n_nearest_wrong > MOST_EXCEPTIONS * (double)c->found.n_codes)
        return;
    c->found.programs[c->found.n_programs++] = c->found.nearest;
    c->has_exceptions = true;
}

static enum nd_status ask_random(struct nd_bench *bench, struct conversion *c, uint64_t *seed,
                                 struct nd_error *err)
{
    struct nd_trial_result result = {0};
    float *x = nd_calloc(N_RANDOM, sizeof *x);
    double *values = nd_calloc(N_RANDOM, sizeof *values);
    enum nd_status status = x != NULL && values != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK) {
        draw_random(c, seed, x);
        status = ask(bench, c, N_SETTINGS, &random_shape, x, &result, err);
    }
    if (status == ND_OK && !c->has_failed) {
        for (size_t i = 0; i < N_RANDOM; i++)
            values[i] = (double)x[i];
        const struct nd_scalar_sample sample = {.scale = scale_of(c, N_SETTINGS),
                                                .zero = (double)zero_of(c, N_SETTINGS),
                                                .high = largest_code(c),
                                                .n = N_RANDOM,
                                                .values = values,
                                                .codes = result.x};
        keep_best(c, &sample);
        nd_trial_deinit(&result);
    }
    free(x);
    free(values);
    return status;
}

static bool tell_programs(const struct conversion *c, json_t *entry)
{
    char buf[ND_SCALAR_NAME_BYTES];
    json_t *names = json_array();
    for (size_t i = 0; names != NULL && i < c->found.n_programs && i < MAX_PROGRAMS_TOLD; i++)
        json_array_append_new(names, json_string(nd_scalar_name(&c->found.programs[i], buf)));
    if (!nd_section_set(entry, "programs", names) || !nd_section_set(entry, "answers", json_string(c->answers)))
        return false;
    if (c->found.n_programs == 0)
        return nd_section_set(entry, "nearest", json_string(nd_scalar_name(&c->found.nearest, buf))) &&
               nd_section_set(entry, "nearest_wrong", json_integer((json_int_t)c->found.n_nearest_wrong)) &&
               nd_section_undecided(entry, "the program", "a family that this version does not know");
    if (c->has_exceptions) {
        char line[120];
        snprintf(line, sizeof line, "of %llu floats next to thresholds %llu have another code",
                 (unsigned long long)c->found.n_codes, (unsigned long long)c->found.n_nearest_wrong);
        return nd_section_set(entry, "text", json_pack("[s]", line)) &&
               nd_section_undecided(entry, "what is done within 2^-20 of a threshold",
                                    "a family that this version does not know");
    }
    return c->found.n_programs == 1 ||
           nd_section_undecided(entry,
                                "in which precision the quotient is calculated, or where the zero point goes",
                                "floats whose quotient is within 2^-24 of a tie");
}

static bool tell_quantize(const struct conversion *c, json_t *entries)
{
    bool is_known = c->found.n_programs > 0 && nd_fresh_is_enough(c->n_fresh, c->n_right);
    const char *verdict = !c->is_on_npu ? "not on the NPU" : is_known ? "identified" : "not identified";
    json_t *entry = nd_section_entry(entries, c->op_type, c->types, verdict, c->provider);
    return entry != NULL &&
           nd_section_set(entry, "evidence",
                          json_pack("{s:I, s:I, s:I, s:f, s:I, s:I, s:I}", "settings", (json_int_t)c->n_taken,
                                    "codes", (json_int_t)c->found.n_codes, "off", (json_int_t)c->found.n_off,
                                    "largest_off", c->found.largest_off, "fresh", (json_int_t)c->n_fresh,
                                    "right", (json_int_t)c->n_right, "programs_left",
                                    (json_int_t)c->found.n_programs)) &&
           tell_programs(c, entry);
}

static enum nd_status take_quantize(struct nd_bench *bench, struct conversion *c, json_t *entries,
                                    struct nd_error *err)
{
    enum nd_status status = ND_OK;
    uint64_t seed = 3;
    for (size_t s = 0; status == ND_OK && !c->has_failed && s < N_SETTINGS; s++)
        status = ask_close(bench, c, s, &seed, err);
    if (status == ND_OK && !c->has_failed)
        nd_scalar_solve(c->samples, c->n_taken, &c->found);
    if (status == ND_OK && !c->has_failed)
        try_nearest(c);
    if (status == ND_OK && !c->has_failed && c->found.n_programs > 0)
        status = ask_random(bench, c, &seed, err);
    if (c->has_exceptions && c->n_right < c->n_fresh) { /* it is not the program */
        c->has_exceptions = false;
        c->found.n_programs = 0;
    }
    if (status == ND_OK && c->has_failed)
        status = nd_section_failed(entries, c->op_type, c->types, &c->failure, err);
    else if (status == ND_OK && !tell_quantize(c, entries))
        status = nd_fail_memory(err);
    for (size_t s = 0; s < c->n_taken; s++) {
        free((void *)(uintptr_t)c->samples[s].values);
        free((void *)(uintptr_t)c->samples[s].codes);
    }
    return status;
}

/* ---- DequantizeLinear ---- */

static const char *const product_names[] = {
    "float32:(code - zero) * scale", "float32:code * scale - zero * scale", "half:(code - zero) * scale"};
enum { N_PRODUCTS = sizeof product_names / sizeof product_names[0] };

static double product(size_t which, double code, double zero, float scale)
{
    float whole = (float)(code - zero) * scale;
    if (which == 1) {
        float of_code = (float)code * scale, of_zero = (float)zero * scale;
        return (double)(of_code - of_zero);
    }
    return which == 0 ? (double)whole : nd_scalar_to_half((double)whole);
}

/* Codes of all products, setting by setting; n_wrong[N_PRODUCTS] grows. */
static enum nd_status ask_floats(struct nd_bench *bench, struct conversion *c, size_t setting,
                                 uint64_t n_wrong[N_PRODUCTS], struct nd_error *err)
{
    size_t n = c->dtype == ND_DTYPE_U8 ? 256 : 65536;
    const struct nd_shape shape = {.rank = 4, .dims = {1, (int64_t)n / 256, 16, 16}};
    struct nd_trial_result result = {0};
    uint8_t *bytes = nd_calloc(n, 2);
    double *codes = nd_calloc(n, sizeof *codes);
    float *floats = nd_calloc(n, sizeof *floats);
    enum nd_status status = bytes != NULL && codes != NULL && floats != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && i < n; i++)
        codes[i] = (double)i;
    if (status == ND_OK) {
        nd_array_store(c->dtype, codes, n, bytes);
        status = ask(bench, c, setting, &shape, bytes, &result, err);
    }
    for (size_t i = 0; status == ND_OK && !c->has_failed && i < n; i++) {
        floats[i] = (float)result.x[i];
        for (size_t p = 0; p < N_PRODUCTS; p++)
            n_wrong[p] +=
                product(p, codes[i], (double)zero_of(c, setting), scale_of(c, setting)) != result.x[i];
    }
    if (status == ND_OK && !c->has_failed) {
        struct nd_digest digest = nd_digest_bytes(floats, n * sizeof *floats);
        size_t len = strlen(c->answers);
        snprintf(c->answers + len, sizeof c->answers - len, "%016llx%016llx", (unsigned long long)digest.high,
                 (unsigned long long)digest.low);
        c->n_fresh += n;
        nd_trial_deinit(&result);
    }
    free(bytes);
    free(codes);
    free(floats);
    return status;
}

static bool tell_dequantize(const struct conversion *c, const uint64_t n_wrong[N_PRODUCTS], json_t *entries)
{
    json_t *names = json_array();
    size_t nearest = 0;
    for (size_t p = 0; names != NULL && p < N_PRODUCTS; p++) {
        if (n_wrong[p] == 0)
            json_array_append_new(names, json_string(product_names[p]));
        nearest = n_wrong[p] < n_wrong[nearest] ? p : nearest;
    }
    bool is_known = json_array_size(names) > 0;
    const char *verdict = !c->is_on_npu ? "not on the NPU" : is_known ? "identified" : "not identified";
    json_t *entry = nd_section_entry(entries, c->op_type, c->types, verdict, c->provider);
    if (entry == NULL || !nd_section_set(entry, "programs", names) ||
        !nd_section_set(entry, "answers", json_string(c->answers)) ||
        !nd_section_set(entry, "evidence",
                        json_pack("{s:i, s:I}", "settings", N_SETTINGS, "codes", (json_int_t)c->n_fresh)))
        return false;
    return is_known || (nd_section_set(entry, "nearest", json_string(product_names[nearest])) &&
                        nd_section_set(entry, "nearest_wrong", json_integer((json_int_t)n_wrong[nearest])) &&
                        nd_section_undecided(entry, "the program", "a family that this version does not know"));
}

/* All codes that there are. */
static enum nd_status take_dequantize(struct nd_bench *bench, struct conversion *c, json_t *entries,
                                      struct nd_error *err)
{
    uint64_t n_wrong[N_PRODUCTS] = {0};
    enum nd_status status = ND_OK;
    for (size_t s = 0; status == ND_OK && !c->has_failed && s < N_SETTINGS; s++)
        status = ask_floats(bench, c, s, n_wrong, err);
    if (status == ND_OK && c->has_failed)
        return nd_section_failed(entries, c->op_type, c->types, &c->failure, err);
    if (status == ND_OK && !tell_dequantize(c, n_wrong, entries))
        status = nd_fail_memory(err);
    return status;
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
    char *text = nd_strbuf_take(&uri);
    enum nd_status status = text != NULL ? nd_device_parse(text, out, err) : nd_fail_memory(err);
    free(text);
    return status;
}

enum nd_status nd_section_quantise(struct nd_bench *bench, json_t *entries, struct nd_error *err)
{
    struct nd_device device;
    struct nd_bench own = *bench;
    enum nd_status status = find_device(bench->device, &device, err);
    if (status != ND_OK)
        return status;
    own.device = &device;
    static const struct {
        const char *op_type, *types;
        enum nd_dtype dtype;
        enum nd_status (*take)(struct nd_bench *, struct conversion *, json_t *, struct nd_error *);
    } conversions[] = {{"QuantizeLinear", "f32 -> u8", ND_DTYPE_U8, take_quantize},
                       {"QuantizeLinear", "f32 -> u16", ND_DTYPE_U16, take_quantize},
                       {"DequantizeLinear", "u8 -> f32", ND_DTYPE_U8, take_dequantize},
                       {"DequantizeLinear", "u16 -> f32", ND_DTYPE_U16, take_dequantize}};
    for (size_t i = 0; status == ND_OK && i < sizeof conversions / sizeof conversions[0]; i++) {
        struct conversion c = {.op_type = conversions[i].op_type,
                               .types = conversions[i].types,
                               .dtype = conversions[i].dtype,
                               .is_on_npu = true};
        status = conversions[i].take(&own, &c, entries, err);
    }
    bench->n_run = own.n_run;
    bench->n_kept = own.n_kept;
    nd_device_deinit(&device);
    return status;
}
