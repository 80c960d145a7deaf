/* Probes: a built-in generator with its parameters, or NAME=PATH (docs/reference/probes.md); and those for the
 * inputs of a model. */
#include <math.h>
#include <stdio.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/random.h"
#include "core/text/strbuf.h"
#include "npudiff/core/parse.h"
#include "npudiff/devices/device.h"
#include "npudiff/record/probe.h"
#include "record/probes/loader.h"

struct nd_generate_args {
    size_t n_samples;
    uint64_t seed;
};

/* A generator of docs/reference/probes.md: fills n_samples samples of one input, of a type that
 * nd_dtype_size_bytes knows, in memory that the caller allocated. A pure function of its arguments; an input of
 * no elements is left as it is. */
typedef enum nd_status (*nd_generate_fn)(const struct nd_probe_target *target,
                                         const struct nd_generate_args *args, void *data, struct nd_error *err);

static enum nd_status nd_generate_uniform(const struct nd_probe_target *target,
                                          const struct nd_generate_args *args, void *data,
                                          struct nd_error *err);
static enum nd_status nd_generate_zeros(const struct nd_probe_target *target,
                                        const struct nd_generate_args *args, void *data, struct nd_error *err);

/* Buffers hold little-endian elements, and are filled and read as they lie in memory. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "probes are written for little-endian machines");

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

uint16_t nd_f16_from_f32(float value)
{
    uint32_t bits = bits_of(value);
    uint32_t sign = bits >> 16 & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) /* 65520, half-way between the largest float16 and the next power of two */
        return (uint16_t)(sign | 0x7c00u);
    int exponent = (int)(magnitude >> 23) - 127;
    if (exponent < -25)
        return (uint16_t)sign;
    /* The significand with its hidden bit, cut by 13 bits, or by more where the result is subnormal. */
    unsigned cut = exponent >= -14 ? 13u : 13u + (unsigned)(-14 - exponent);
    uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
    uint32_t kept = significand >> cut;
    uint32_t rest = significand & ((1u << cut) - 1u);
    uint32_t half = 1u << (cut - 1u);
    if (rest > half || (rest == half && (kept & 1u) != 0))
        kept++;
    /* kept carries the hidden bit 0x400: adding it to the exponent below it, a carry also lands where it
     * belongs. */
    uint32_t below = exponent >= -14 ? (uint32_t)(exponent + 14) << 10 : 0u;
    return (uint16_t)(sign | (below + kept));
}

uint16_t nd_bf16_from_f32(float value)
{
    uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

float nd_f32_from_f16(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    uint32_t exponent = bits >> 10 & 0x1fu;
    uint32_t fraction = bits & 0x3ffu;
    if (exponent == 0x1fu)
        return float_of(sign | 0x7f800000u | fraction << 13);
    if (exponent > 0)
        return float_of(sign | (exponent + 112u) << 23 | fraction << 13);
    float magnitude = (float)fraction * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
}

float nd_f32_from_bf16(uint16_t bits)
{
    return float_of((uint32_t)bits << 16);
}

/* Stores value as element i of an array of a float type. */
static void nd_element_put_float(enum nd_dtype dtype, void *data, size_t i, float value)
{
    size_t size = nd_dtype_size_bytes(dtype);
    unsigned char *at = (unsigned char *)data + i * size;
    uint16_t half = dtype == ND_DTYPE_BF16 ? nd_bf16_from_f32(value) : nd_f16_from_f32(value);
    double wide = (double)value;
    memcpy(at,
           dtype == ND_DTYPE_F32   ? (const void *)&value
           : dtype == ND_DTYPE_F64 ? (const void *)&wide
                                   : &half,
           size);
}

/* Stores the low bits of value as element i of an array of an integer type or bool. */
static void nd_element_put_bits(enum nd_dtype dtype, void *data, size_t i, uint64_t value)
{
    size_t size = nd_dtype_size_bytes(dtype);
    memcpy((unsigned char *)data + i * size, &value, size);
}

struct nd_qvalue_range nd_qvalue_range_of(enum nd_dtype dtype)
{
    bool is_nibble = dtype == ND_DTYPE_U4 || dtype == ND_DTYPE_I4;
    unsigned n_bits = is_nibble ? 4 : (unsigned)(8 * nd_dtype_size_bytes(dtype));
    uint64_t largest = UINT64_MAX >> (64u - n_bits);
    if (nd_dtype_is_signed_integer(dtype))
        return (struct nd_qvalue_range){-(int64_t)(largest >> 1) - 1, largest >> 1, n_bits};
    return (struct nd_qvalue_range){0, largest, n_bits};
}

/* The quantised values that an integer input takes: all of its type, or those that its quantiser has, too. */
static struct nd_qvalue_range nd_qvalue_range_of_input(const struct nd_probe_target *target)
{
    struct nd_qvalue_range range = nd_qvalue_range_of(target->dtype);
    if (target->quant == NULL || target->quant->n == 0 || !nd_dtype_is_integer(target->quant_dtype))
        return range;
    struct nd_qvalue_range qvalues = nd_qvalue_range_of(target->quant_dtype);
    if (qvalues.min > range.min)
        range.min = qvalues.min;
    if (qvalues.max < range.max)
        range.max = qvalues.max;
    /* max + 1 is a power of two in every type, and there are as many negative quantised values, if any. */
    range.n_bits = (unsigned)__builtin_popcountll(range.max) + (range.min < 0 ? 1u : 0u);
    return range;
}

/* Whether the target is a float input that the model quantises first. */
static bool nd_target_has_quantiser(const struct nd_probe_target *target)
{
    return nd_dtype_is_float(target->dtype) && target->quant != NULL && target->quant->n > 0;
}

static bool is_finite_in(enum nd_dtype dtype, double value)
{
    float narrow = (float)value;
    if (dtype == ND_DTYPE_F16)
        narrow = nd_f32_from_f16(nd_f16_from_f32(narrow));
    if (dtype == ND_DTYPE_BF16)
        narrow = nd_f32_from_bf16(nd_bf16_from_f32(narrow));
    return isfinite(narrow);
}

static enum nd_status check_channel(const struct nd_probe_quantiser *quantiser,
                                    const struct nd_probe_target *target, size_t channel, struct nd_error *err)
{
    float scale = quantiser->quant->scale[channel];
    int64_t zero_point = quantiser->quant->zero_point[channel];
    if (!isfinite(scale) || scale <= 0)
        return nd_fail(err, ND_E_MODEL_GRAPH, target->name,
                       "the quantiser of input '%s' has the scale %g; scales are finite and above 0",
                       target->name, (double)scale);
    if (zero_point < quantiser->qvalue_min || zero_point > quantiser->qvalue_max)
        return nd_fail(err, ND_E_MODEL_GRAPH, target->name,
                       "the quantiser of input '%s' has the zero point %lld, which is no %s", target->name,
                       (long long)zero_point, nd_dtype_name(target->quant_dtype));
    double low = (double)scale * (double)(quantiser->qvalue_min - zero_point);
    double high = (double)scale * (double)(quantiser->qvalue_max - zero_point);
    if (!is_finite_in(target->dtype, low) || !is_finite_in(target->dtype, high))
        return nd_fail(err, ND_E_MODEL_GRAPH, target->name,
                       "the quantiser of input '%s' reaches from %g to %g, beyond what %s can hold",
                       target->name, low, high, nd_dtype_name(target->dtype));
    return ND_OK;
}

enum nd_status nd_quantiser_init(struct nd_probe_quantiser *quantiser, const struct nd_probe_target *target,
                                 struct nd_error *err)
{
    const struct nd_quant *quant = target->quant;
    if (!nd_dtype_is_integer(target->quant_dtype) || nd_dtype_size_bytes(target->quant_dtype) > 2)
        return nd_fail(err, ND_E_MODEL_UNSUPPORTED, target->name,
                       "the quantiser of input '%s' makes %s; probes know quantised values of 8 and 16 bits",
                       target->name, nd_dtype_name(target->quant_dtype));
    struct nd_qvalue_range range = nd_qvalue_range_of(target->quant_dtype);
    struct nd_probe_quantiser made = {quant, range.min, (int64_t)range.max, 1};
    if (quant->n > 1) {
        if (quant->axis < 0 || quant->axis >= target->shape.rank ||
            (uint64_t)target->shape.dims[quant->axis] != quant->n)
            return nd_fail(
                err, ND_E_MODEL_GRAPH, target->name,
                "the quantiser of input '%s' has %zu scales on axis %d, where the input has no such dimension",
                target->name, quant->n, quant->axis);
        for (int d = quant->axis + 1; d < target->shape.rank; d++)
            made.n_inner *= (size_t)target->shape.dims[d];
    }
    for (size_t channel = 0; channel < quant->n; channel++) {
        ND_TRY(check_channel(&made, target, channel, err));
    }
    *quantiser = made;
    return ND_OK;
}

/* The channel of element i of one sample. */
static size_t nd_quantiser_channel(const struct nd_probe_quantiser *quantiser, size_t i)
{
    return quantiser->quant->n > 1 ? i / quantiser->n_inner % quantiser->quant->n : 0;
}

/* ties: floats whose quotient by the scale lies between two quantised values. docs/reference/probes.md#ties. */

/* A stride that is coprime to the number of ties of every quantiser (255 = 3*5*17, 65535 = 3*5*17*257): every
 * tie has its turn, and the few that fit into a small input are spread over the whole range. */
static const uint64_t tie_stride = 40504;

/* The values of a float type as integers in the order of the reals, so that neighbours differ by one; both
 * zeros are key 0. float64 inputs take float32 values. */
static int32_t key_of(enum nd_dtype dtype, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = 0x80000000u;
    if (dtype == ND_DTYPE_F16 || dtype == ND_DTYPE_BF16) {
        bits = dtype == ND_DTYPE_F16 ? nd_f16_from_f32(value) : nd_bf16_from_f32(value);
        sign = 0x8000u;
    }
    int32_t magnitude = (int32_t)(bits & (sign - 1u));
    return (bits & sign) != 0 ? -magnitude : magnitude;
}

static float value_of(enum nd_dtype dtype, int32_t key)
{
    uint32_t magnitude = (uint32_t)(key < 0 ? -key : key);
    float value;
    if (dtype == ND_DTYPE_F16)
        value = nd_f32_from_f16((uint16_t)magnitude);
    else if (dtype == ND_DTYPE_BF16)
        value = nd_f32_from_bf16((uint16_t)magnitude);
    else
        memcpy(&value, &magnitude, sizeof value);
    return key < 0 ? -value : value;
}

/* A value x of the type with x / scale == tie in float32; where there is none, the neighbour of the tie on the
 * side asked for. */
static float find_tie(enum nd_dtype dtype, float scale, float tie, bool above)
{
    static const int32_t nearest_first[] = {0, 1, -1, 2, -2};
    static const int32_t rising[] = {-2, -1, 0, 1, 2};
    int32_t middle = key_of(dtype, (float)((double)tie * (double)scale));
    for (size_t j = 0; j < 5; j++) {
        float x = value_of(dtype, middle + nearest_first[j]);
        float quotient = x / scale;
        if (quotient == tie)
            return x;
    }
    for (size_t j = 0; j < 5; j++) {
        float x = value_of(dtype, middle + (above ? rising[j] : -rising[j]));
        float quotient = x / scale;
        if (above ? quotient > tie : quotient < tie)
            return x;
    }
    return value_of(dtype, middle);
}

/* Zeros where the input has no quantiser; otherwise fails as nd_quantiser_init does. */
static enum nd_status nd_generate_ties(const struct nd_probe_target *target,
                                       const struct nd_generate_args *args, void *data, struct nd_error *err)
{
    if (!nd_target_has_quantiser(target))
        return nd_generate_zeros(target, args, data, err);
    struct nd_probe_quantiser quantiser;
    ND_TRY(nd_quantiser_init(&quantiser, target, err));
    size_t n = 0;
    nd_shape_n_elems(&target->shape, &n, NULL); /* checked when the probe was created */
    uint64_t n_ties = (uint64_t)(quantiser.qvalue_max - quantiser.qvalue_min);
    for (uint64_t j = 0; j < (uint64_t)args->n_samples * n; j++) {
        size_t channel = nd_quantiser_channel(&quantiser, (size_t)(j % n));
        uint64_t number = j % n_ties * tie_stride % n_ties;
        bool above = (number + j / n_ties) % 2 == 1;
        int64_t step = quantiser.qvalue_min + (int64_t)number - quantiser.quant->zero_point[channel];
        float x = find_tie(target->dtype, quantiser.quant->scale[channel], (float)step + 0.5f, above);
        nd_element_put_float(target->dtype, data, (size_t)j, x);
    }
    return ND_OK;
}

/* ND_ERR_USAGE when no input has a quantiser: the message says why. */
static enum nd_status nd_generate_check_ties(const struct nd_probe_target *targets, size_t n_targets,
                                             struct nd_error *err)
{
    for (size_t i = 0; i < n_targets; i++)
        if (nd_target_has_quantiser(&targets[i]))
            return ND_OK;
    if (n_targets == 0)
        return nd_fail(err, ND_E_PROBE_SPEC, "ties", "probe 'ties': the model has no inputs");
    const char *name = targets[0].name;
    if (nd_dtype_is_float(targets[0].dtype))
        return nd_fail(
            err, ND_E_PROBE_SPEC, name,
            "probe 'ties' needs an input that is quantised inside the model; %s'%s' has no quantiser",
            n_targets == 1 ? "input " : "no input has, input ", name);
    return nd_fail(err, ND_E_PROBE_SPEC, name,
                   "probe 'ties' needs a float input that is quantised inside the model; %s'%s' takes %s "
                   "quantised values, which are never rounded",
                   n_targets == 1 ? "input " : "no input is one, input ", name,
                   nd_dtype_name(targets[0].dtype));
}

/* zeros, ones and ramp: the probes that need neither samples nor a seed. docs/reference/probes.md#constants and
 * #ramp. */

static size_t sample_elems(const struct nd_probe_target *target)
{
    size_t n = 0;
    nd_shape_n_elems(&target->shape, &n, NULL); /* checked when the probe was created */
    return n;
}

static void fill_constant(const struct nd_probe_target *target, size_t n_samples, unsigned value, void *data)
{
    size_t n = n_samples * sample_elems(target);
    for (size_t i = 0; i < n; i++) {
        if (nd_dtype_is_float(target->dtype))
            nd_element_put_float(target->dtype, data, i, (float)value);
        else
            nd_element_put_bits(target->dtype, data, i, value);
    }
}

static enum nd_status nd_generate_zeros(const struct nd_probe_target *target,
                                        const struct nd_generate_args *args, void *data, struct nd_error *err)
{
    (void)err;
    fill_constant(target, args->n_samples, 0, data);
    return ND_OK;
}

static enum nd_status nd_generate_ones(const struct nd_probe_target *target,
                                       const struct nd_generate_args *args, void *data, struct nd_error *err)
{
    (void)err;
    fill_constant(target, args->n_samples, 1, data);
    return ND_OK;
}

/* floor(i * last / (n - 1)), where n < 2^36 and last < 2^16: from 0 to last as i runs over n elements. */
static uint64_t ramp_step(uint64_t i, uint64_t n, uint64_t last)
{
    return n > 1 ? i * last / (n - 1) : 0;
}

static void ramp_qvalues(const struct nd_probe_target *target, size_t n, void *data)
{
    struct nd_qvalue_range range = nd_qvalue_range_of_input(target);
    uint64_t mask = target->dtype == ND_DTYPE_BOOL ? 1 : UINT64_MAX >> (64u - range.n_bits);
    for (size_t i = 0; i < n; i++) {
        uint64_t qvalue = i & mask;
        if (target->dtype != ND_DTYPE_BOOL && qvalue > range.max)
            qvalue -= mask + 1; /* past the largest code: go on with the smallest, which is negative */
        nd_element_put_bits(target->dtype, data, i, qvalue);
    }
}

/* The next two fail as nd_quantiser_init does. */
static enum nd_status nd_generate_ramp(const struct nd_probe_target *target,
                                       const struct nd_generate_args *args, void *data, struct nd_error *err)
{
    (void)args;
    size_t n = sample_elems(target);
    if (!nd_dtype_is_float(target->dtype)) {
        ramp_qvalues(target, n, data);
        return ND_OK;
    }
    struct nd_probe_quantiser quantiser = {0};
    bool has_quantiser = nd_target_has_quantiser(target);
    ND_TRY(has_quantiser ? nd_quantiser_init(&quantiser, target, err) : ND_OK);
    for (size_t i = 0; i < n; i++) {
        float value;
        if (has_quantiser) {
            size_t channel = nd_quantiser_channel(&quantiser, i);
            uint64_t last = (uint64_t)(quantiser.qvalue_max - quantiser.qvalue_min);
            int64_t qvalue = quantiser.qvalue_min + (int64_t)ramp_step(i, n, last);
            value = quantiser.quant->scale[channel] * (float)(qvalue - quantiser.quant->zero_point[channel]);
        } else {
            value = n > 1 ? (float)((double)(2 * (int64_t)i - (int64_t)(n - 1)) / (double)(n - 1)) : -1.0f;
        }
        nd_element_put_float(target->dtype, data, i, value);
    }
    return ND_OK;
}

static const size_t default_samples = 8;
static const uint64_t default_seed = 1;
static const uint64_t max_samples = (uint64_t)1 << 30;

/* The same order as nd_probe_kinds; n_parameters counts SAMPLES and SEED. */
static const struct generator {
    const char *name;
    int n_parameters;
    nd_generate_fn fill;
} generators[] = {
    {"zeros", 0, nd_generate_zeros},     {"ones", 0, nd_generate_ones}, {"ramp", 0, nd_generate_ramp},
    {"uniform", 2, nd_generate_uniform}, {"ties", 1, nd_generate_ties},
};

const struct nd_probe_kind *nd_probe_kinds(void)
{
    static const struct nd_probe_kind kinds[] = {
        {"zeros", "zeros", "one sample of zeros; of a quantised input the value 0"},
        {"ones", "ones", "one sample of ones; of a quantised input the value 1"},
        {"ramp", "ramp",
         "one sample that rises through the range of the input's quantiser, or from -1 to 1 without one"},
        {"uniform", "uniform[:SAMPLES[:SEED]]",
         "random values in the range of the input's quantiser, or in [0, 1) without one (8 samples, seed 1)"},
        {"ties", "ties[:SAMPLES]", "values half-way between two steps of the input's quantiser (8 samples)"},
        {NULL, NULL, NULL},
    };
    return kinds;
}

static const struct generator *find_generator(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof generators / sizeof generators[0]; i++)
        if (strlen(generators[i].name) == n && memcmp(generators[i].name, name, n) == 0)
            return &generators[i];
    return NULL;
}

/* ---- Built-in probes ---- */

/* ":SAMPLES:SEED", of which each generator takes the first n_parameters; missing ones keep what args has. */
static bool parse_parameters(const char *text, int n_parameters, struct nd_generate_args *args)
{
    uint64_t values[2] = {args->n_samples, args->seed};
    for (int i = 0; *text != '\0'; i++) {
        char number[24];
        size_t n = strcspn(text + 1, ":");
        if (i == n_parameters || n >= sizeof number)
            return false;
        memcpy(number, text + 1, n);
        number[n] = '\0';
        if (!nd_parse_u64(number, &values[i]))
            return false;
        text += 1 + n;
    }
    if (values[0] < 1 || values[0] > max_samples)
        return false;
    args->n_samples = (size_t)values[0];
    args->seed = values[1];
    return true;
}

static enum nd_status fail_parameters(const char *spec, const struct generator *generator, struct nd_error *err)
{
    const struct nd_probe_kind *kind = nd_probe_kinds();
    while (strcmp(kind->name, generator->name) != 0)
        kind++;
    if (generator->n_parameters == 0)
        return nd_fail(err, ND_E_PROBE_SPEC, spec, "probe '%s': '%s' takes no parameters", spec,
                       generator->name);
    return nd_fail(err, ND_E_PROBE_SPEC, spec, "probe '%s': expected %s with SAMPLES from 1 to %llu%s", spec,
                   kind->syntax, (unsigned long long)max_samples,
                   generator->n_parameters > 1 ? " and SEED from 0 to 18446744073709551615" : "");
}

/* An empty probe with the names, types and shapes of the targets, no samples and no data. The caller destroys
 * *out. ND_ERR_FORMAT: a target without type or with a negative dimension. */
static enum nd_status probe_create_empty(const char *name, const char *source,
                                         const struct nd_probe_target *targets, size_t n_targets,
                                         struct nd_probe **out, struct nd_error *err)
{
    ND_CLEANUP(nd_probe_destroy) struct nd_probe *probe = nd_calloc(1, sizeof *probe);
    ND_TRY_MEMORY(probe != NULL, err);
    probe->name = nd_strdup(name);
    probe->source = nd_strdup(source);
    probe->inputs = nd_calloc(n_targets, sizeof *probe->inputs);
    ND_TRY_MEMORY(probe->name != NULL && probe->source != NULL && probe->inputs != NULL, err);
    probe->n_inputs = n_targets;
    for (size_t i = 0; i < n_targets; i++) {
        struct nd_probe_input *input = &probe->inputs[i];
        if (targets[i].dtype > ND_DTYPE_BF16) /* the model's reader gives none of these */
            return nd_fail(err, ND_E_MODEL_UNSUPPORTED, targets[i].name,
                           "input '%s' is %s, which no probe makes", targets[i].name,
                           nd_dtype_name(targets[i].dtype));
        enum nd_status status =
            nd_shape_size_bytes(&targets[i].shape, targets[i].dtype, &input->sample_bytes, err);
        if (status != ND_OK) {
            nd_error_context(err, "input '%s'", targets[i].name);
            return status;
        }
        input->dtype = targets[i].dtype;
        input->shape = targets[i].shape;
        input->name = nd_strdup(targets[i].name);
        ND_TRY_MEMORY(input->name != NULL, err);
    }
    return ND_GIVE(out, probe);
}

static enum nd_status create_generated(const char *spec, const struct generator *generator,
                                       const struct nd_probe_target *targets, size_t n_targets,
                                       struct nd_probe **out, struct nd_error *err)
{
    const char *parameters = spec + strlen(generator->name);
    struct nd_generate_args args = {generator->n_parameters > 0 ? default_samples : 1, default_seed};
    if (!parse_parameters(parameters, generator->n_parameters, &args))
        return fail_parameters(spec, generator, err);
    if (generator->fill == nd_generate_ties)
        ND_TRY(nd_generate_check_ties(targets, n_targets, err));
    ND_CLEANUP(nd_probe_destroy) struct nd_probe *probe = NULL;
    /* The description with every parameter written out: "uniform:8:1". */
    struct nd_strbuf text = {0};
    nd_strbuf_puts(&text, generator->name);
    if (generator->n_parameters > 0)
        nd_strbuf_printf(&text, ":%zu", args.n_samples);
    if (generator->n_parameters > 1)
        nd_strbuf_printf(&text, ":%llu", (unsigned long long)args.seed);
    ND_FREED char *source = nd_strbuf_take(&text);
    ND_TRY_MEMORY(source != NULL, err);
    ND_TRY(probe_create_empty(generator->name, source, targets, n_targets, &probe, err));
    ND_TRY(nd_probe_set_samples(probe, args.n_samples, err));
    for (size_t i = 0; i < n_targets; i++) {
        ND_TRY(nd_probe_alloc_input(probe, i, err));
        ND_TRY(generator->fill(&targets[i], &args, probe->inputs[i].data, err));
    }
    return ND_GIVE(out, probe);
}

/* ---- User data ---- */

static enum nd_status check_name(const char *spec, const char *name, struct nd_error *err)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
    if (name[0] == '\0' || name[strspn(name, allowed)] != '\0')
        return nd_fail(err, ND_E_PROBE_SPEC, spec,
                       "probe '%s': the name '%s' needs one or more of A-Z a-z 0-9 _ . -", spec, name);
    enum { MAX_NAME_BYTES = 255 }; /* chosen: as of a file */
    if (strlen(name) > MAX_NAME_BYTES)
        return nd_fail(err, ND_E_PROBE_SPEC, NULL, "the name of a probe has %zu bytes; at most %d are accepted",
                       strlen(name), (int)MAX_NAME_BYTES);
    if (find_generator(name, strlen(name)) != NULL)
        return nd_fail(err, ND_E_PROBE_SPEC, spec,
                       "probe '%s': '%s' is a built-in probe; give your data a different name", spec, name);
    return ND_OK;
}

static enum nd_status create_user(const char *spec, size_t name_bytes, const struct nd_probe_target *targets,
                                  size_t n_targets, struct nd_probe **out, struct nd_error *err)
{
    ND_CLEANUP(nd_probe_destroy) struct nd_probe *probe = NULL;
    ND_FREED char *text = nd_strdup(spec);
    ND_TRY_MEMORY(text != NULL, err);
    text[name_bytes] = '\0';
    char *path = text + name_bytes + 1, *labels_path = NULL;
    ND_TRY(check_name(spec, text, err));
    ND_TRY(probe_create_empty(text, path, targets, n_targets, &probe, err));
    /* The last ",labels=" in text, so that a path before it may contain the word too. */
    char *labels = NULL;
    for (char *at = path; (at = strstr(at, ",labels=")) != NULL; at++)
        labels = at;
    if (labels != NULL) {
        *labels = '\0';
        labels_path = labels + strlen(",labels=");
    }
    if (path[0] == '\0' || (labels_path != NULL && labels_path[0] == '\0'))
        return nd_fail(err, ND_E_PROBE_SPEC, spec, "probe '%s': expected NAME=PATH[,labels=PATH]", spec);
    if (n_targets == 0)
        return nd_fail(err, ND_E_PROBE_SPEC, spec, "probe '%s': the model has no inputs to feed", spec);
    ND_TRY(nd_user_load(probe, path, labels_path, err));
    return ND_GIVE(out, probe);
}

enum nd_status nd_probe_create(const char *spec, const struct nd_probe_target *targets, size_t n_targets,
                               struct nd_probe **out, struct nd_error *err)
{
    const char *equals = strchr(spec, '=');
    if (equals != NULL)
        return create_user(spec, (size_t)(equals - spec), targets, n_targets, out, err);
    size_t n = strcspn(spec, ":");
    const struct generator *generator = find_generator(spec, n);
    if (generator == NULL) {
        char word[64], meant[ND_DID_YOU_MEAN_BYTES];
        snprintf(word, sizeof word, "%.*s", (int)n, spec);
        return nd_fail(err, ND_E_PROBE_SPEC, spec,
                       "unknown probe '%s'; probes are zeros, ones, ramp, uniform, ties and NAME=PATH%s", spec,
                       nd_did_you_mean(word, &generators[0].name, sizeof generators / sizeof generators[0],
                                       sizeof generators[0], meant));
    }
    return create_generated(spec, generator, targets, n_targets, out, err);
}

/* uniform: a counter-based generator, so that an element depends on nothing but its own place.
 * docs/reference/probes.md#uniform. */

/* FNV-1a, 64 bits. */
static uint64_t hash_name(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (const unsigned char *at = (const unsigned char *)name; *at != '\0'; at++)
        hash = (hash ^ *at) * 0x100000001b3u;
    return hash;
}

static float uniform_float(uint64_t bits, const struct nd_probe_quantiser *quantiser, size_t i)
{
    if (quantiser->quant == NULL)
        return (float)(bits >> 40) * 0x1p-24f;
    size_t channel = nd_quantiser_channel(quantiser, i);
    double scale = (double)quantiser->quant->scale[channel];
    double low = scale * (double)(quantiser->qvalue_min - quantiser->quant->zero_point[channel]);
    double width = scale * (double)(quantiser->qvalue_max - quantiser->qvalue_min);
    double share = nd_random_share(bits);
    double offset = share * width;
    return (float)(low + offset);
}

/* The next two fail as nd_quantiser_init does. */
static enum nd_status nd_generate_uniform(const struct nd_probe_target *target,
                                          const struct nd_generate_args *args, void *data, struct nd_error *err)
{
    size_t n = 0;
    nd_shape_n_elems(&target->shape, &n, NULL); /* checked when the probe was created */
    struct nd_probe_quantiser quantiser = {0};
    if (nd_target_has_quantiser(target))
        ND_TRY(nd_quantiser_init(&quantiser, target, err));
    bool is_float = nd_dtype_is_float(target->dtype);
    struct nd_qvalue_range range = {0, 1, 1}; /* of bool */
    if (nd_dtype_is_integer(target->dtype))
        range = nd_qvalue_range_of_input(target);
    uint64_t stream = nd_splitmix_output(nd_splitmix_output(args->seed) ^ hash_name(target->name));
    for (size_t sample = 0; sample < args->n_samples; sample++) {
        uint64_t state = nd_splitmix_output(stream + sample * ND_SPLITMIX_GAMMA);
        for (size_t i = 0; i < n; i++) {
            uint64_t bits = nd_splitmix_output(state + (i + 1) * ND_SPLITMIX_GAMMA);
            if (is_float)
                nd_element_put_float(target->dtype, data, sample * n + i, uniform_float(bits, &quantiser, i));
            else
                nd_element_put_bits(target->dtype, data, sample * n + i,
                                    (uint64_t)range.min + (bits >> (64u - range.n_bits)));
        }
    }
    return ND_OK;
}

/* ---- values ---- */

/* The bits of a value that are all set in NaN and infinities (float8_e4m3fn has no infinities, and one NaN per
 * sign); 0 for types that have neither. */
static uint64_t special_bits(enum nd_dtype dtype)
{
    return dtype == ND_DTYPE_F64        ? UINT64_C(0x7ff0000000000000)
           : dtype == ND_DTYPE_F32      ? 0x7f800000
           : dtype == ND_DTYPE_F16      ? 0x7c00
           : dtype == ND_DTYPE_BF16     ? 0x7f80
           : dtype == ND_DTYPE_F8E5M2   ? 0x7c
           : dtype == ND_DTYPE_F8E4M3FN ? 0x7f
                                        : 0;
}

/* The first element that is NaN or infinite, or n. Little endian, as probes are. */
static size_t find_special(enum nd_dtype dtype, const unsigned char *data, size_t n)
{
    uint64_t special = special_bits(dtype);
    size_t elem_bytes = nd_dtype_size_bytes(dtype);
    for (size_t i = 0; special != 0 && i < n; i++) {
        uint64_t bits = 0;
        memcpy(&bits, data + i * elem_bytes, elem_bytes);
        if ((bits & special) == special)
            return i;
    }
    return n;
}

static enum nd_status check_values(const struct nd_probe *probe, struct nd_error *err)
{
    for (size_t k = 0; k < probe->n_inputs; k++) {
        const struct nd_probe_input *input = &probe->inputs[k];
        size_t elem_bytes = nd_dtype_size_bytes(input->dtype);
        size_t n = elem_bytes > 0 ? input->sample_bytes / elem_bytes : 0;
        size_t at = find_special(input->dtype, input->data, n * probe->n_samples);
        if (at < n * probe->n_samples)
            return nd_fail(err, ND_E_PROBE_VALUES, input->name,
                           "probe '%s': input '%s' holds NaN or an infinity in sample %zu, element %zu "
                           "('npudiff capture' feeds it with --allow-nonfinite)",
                           probe->name, input->name, at / n, at % n);
    }
    return ND_OK;
}

/* ---- labels ---- */

/* Elements of the largest output; 0 while one is not known. */
static size_t count_classes(const struct nd_model *model)
{
    size_t most = 0;
    for (size_t i = 0; i < nd_model_n_outputs(model); i++) {
        const struct nd_shape *shape = &nd_model_output(model, i)->shape;
        size_t n = 0;
        for (int d = 0; d < shape->rank; d++)
            if (shape->dims[d] < 0)
                return 0;
        if (shape->rank < 0 || nd_shape_n_elems(shape, &n, NULL) != ND_OK)
            return 0;
        most = n > most ? n : most;
    }
    return most;
}

static enum nd_status check_labels(const struct nd_model *model, const struct nd_probe *probe,
                                   struct nd_error *err)
{
    size_t n_classes = count_classes(model);
    for (size_t s = 0; probe->labels != NULL && n_classes > 1 && s < probe->n_samples; s++)
        if (probe->labels[s] < 0 || (uint64_t)probe->labels[s] >= n_classes)
            return nd_fail(err, ND_E_PROBE_LABELS, probe->name,
                           "probe '%s': the label of sample %zu is %lld; '%s' has %zu classes, 0 to %zu",
                           probe->name, s, (long long)probe->labels[s], nd_model_path(model), n_classes,
                           n_classes - 1);
    return ND_OK;
}

/* ---- all of it ---- */

enum nd_status nd_probe_for_model(const struct nd_model *model, const char *spec, struct nd_probe **out,
                                  struct nd_error *err)
{
    size_t n = nd_model_n_inputs(model);
    ND_FREED struct nd_probe_target *targets = nd_calloc(n, sizeof *targets);
    ND_TRY_MEMORY(targets != NULL, err);
    for (size_t i = 0; i < n; i++) {
        const struct nd_model_io *input = nd_model_input(model, i);
        targets[i] = (struct nd_probe_target){.name = input->name,
                                              .dtype = input->dtype,
                                              .shape = input->shape,
                                              .quant = input->quant,
                                              .quant_dtype = input->quant_dtype};
    }
    return nd_probe_create(spec, targets, n, out, err);
}

/* The header of the array for an input in the user's .npz, or in a .npy for the only input. */
static bool find_array(const struct nd_model *model, size_t input, const char *path, struct nd_npy *npy)
{
    ND_CLEANUP(nd_npz_close) struct nd_npz *npz = NULL;
    ND_CLEANUP(nd_source_close) struct nd_source source = {0};
    size_t i = 0;
    if (nd_ends_with(path, ".npy"))
        return nd_model_n_inputs(model) == 1 && nd_source_open(&source, path, NULL) == ND_OK &&
               nd_npy_open(&source, npy, NULL) == ND_OK;
    if (!nd_ends_with(path, ".npz") || nd_npz_open(path, &npz, NULL) != ND_OK)
        return false;
    while (i < nd_npz_n_arrays(npz) && strcmp(nd_npz_name(npz, i), nd_model_input(model, input)->name) != 0)
        i++;
    return i < nd_npz_n_arrays(npz) && nd_npz_source(npz, i, &source, NULL) == ND_OK &&
           nd_npy_open(&source, npy, NULL) == ND_OK;
}

enum nd_status nd_probes_check_static(const struct nd_model *model, const char *const *specs, size_t n_specs,
                                      struct nd_error *err)
{
    size_t n = nd_model_n_inputs(model);
    ND_FREED struct nd_shape *sizes = nd_calloc(n, sizeof *sizes);
    ND_TRY_MEMORY(sizes != NULL, err);
    if (nd_model_check_static(model, NULL) == ND_OK)
        return ND_OK;
    for (size_t k = 0; k < n * n_specs; k++) {
        size_t i = k % n;
        const char *equals = strchr(specs[k / n], '=');
        const struct nd_shape *shape = &nd_model_input(model, i)->shape;
        struct nd_npy npy;
        ND_FREED char *path = equals != NULL ? strndup(equals + 1, strcspn(equals + 1, ",")) : NULL;
        if (path == NULL || !find_array(model, i, path, &npy) || npy.rank < shape->rank ||
            npy.rank > shape->rank + 1)
            continue;
        for (int d = 0; d < shape->rank; d++) /* of the same rank, the first dimension is that of the samples */
            sizes[i].dims[d] = npy.rank > shape->rank ? npy.dims[d + 1] : d > 0 ? npy.dims[d] : 1;
    }
    return nd_model_check_static_for(model, sizes, err);
}

enum nd_status nd_probes_for_model_any(const struct nd_model *model, const char *const *specs, size_t n_specs,
                                       struct nd_probe **probes, struct nd_error *err)
{
    ND_TRY(nd_probes_check_static(model, specs, n_specs, err));
    for (size_t i = 0; i < n_specs; i++) {
        ND_TRY(nd_probe_for_model(model, specs[i], &probes[i], err));
        ND_TRY(check_labels(model, probes[i], err));
    }
    return ND_OK;
}

enum nd_status nd_probes_for_model(const struct nd_model *model, const char *const *specs, size_t n_specs,
                                   struct nd_probe **probes, struct nd_error *err)
{
    ND_TRY(nd_probes_for_model_any(model, specs, n_specs, probes, err));
    for (size_t i = 0; i < n_specs; i++)
        ND_TRY(check_values(probes[i], err));
    return ND_OK;
}
