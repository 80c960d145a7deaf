/* The table of arithmetics, by families, and each of them run on an element: arithmetics.h lists them. How a
 * device's is found: docs/science/theory.md#arithmetics. */
#include "arithmetic/arithmetics/arithmetics.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "npudiff/core/parse.h"

struct nd_arithmetic_family {
    const char *name;
    bool needs_accumulator, is_stochastic;
    const struct nd_arithmetic *arithmetics; /* those of the table */
    size_t n;
    const char *(*put_name)(const struct nd_arithmetic *arithmetic, char buf[ND_ARITHMETIC_NAME_BYTES]);
    /* False where the name is none of the family's. Fills all but the family of a zeroed arithmetic. */
    bool (*from_name)(const char *name, struct nd_arithmetic *out);
    /* NULL: nothing to be made ready. */
    void (*prepare)(struct nd_arithmetic_ready *ready);
    struct nd_arithmetic_outcome (*run)(const struct nd_arithmetic_ready *ready,
                                        const struct nd_arithmetic_element *element);
};

/* ---- what families share ---- */

/* The number behind a prefix, 1 to 16; false for any other name. */
static bool read_bits(const char *name, const char *prefix, int *out)
{
    int64_t bits;
    size_t n = strlen(prefix);
    if (strncmp(name, prefix, n) != 0 || !nd_parse_i64(name + n, &bits) || bits < 1 || bits > 16)
        return false;
    *out = (int)bits;
    return true;
}

/* A whole number, zero point added, clipped. */
static double clip_to_qvalue(const struct nd_arithmetic_ready *ready, double whole)
{
    const struct nd_arithmetic_scaling *s = &ready->scaling;
    return fmin(fmax(whole + s->zero, s->low), s->high);
}

static struct nd_arithmetic_outcome surely(double qvalue)
{
    return (struct nd_arithmetic_outcome){.qvalue = qvalue, .other = qvalue};
}

/* Of families that are requantisation by parts. */
static void prepare_requantise(struct nd_arithmetic_ready *ready)
{
    ready->requantiser =
        nd_requantise_prepare(&ready->arithmetic->requantise, ready->scaling.multiplier, ready->scaling.zero);
}

static struct nd_arithmetic_outcome run_requantise(const struct nd_arithmetic_ready *ready,
                                                   const struct nd_arithmetic_element *element)
{
    double a = ready->dropped > 0 ? floor(element->a / ready->dropped) * ready->dropped : element->a;
    return surely(nd_requantise_qvalue(&ready->requantiser, a, ready->scaling.low, ready->scaling.high));
}

static const char *put_requantise_name(const struct nd_arithmetic *arithmetic,
                                       char buf[ND_ARITHMETIC_NAME_BYTES])
{
    return nd_requantise_name(&arithmetic->requantise, buf);
}

/* Of families that are arithmetics of arithmetic/exact/linear/rounding.h. */
static struct nd_arithmetic_outcome run_value(const struct nd_arithmetic_ready *ready,
                                              const struct nd_arithmetic_element *element)
{
    double whole = nd_rounding_rule_round(&ready->arithmetic->value, element->v, &element->place);
    return surely(clip_to_qvalue(ready, whole));
}

static const char *put_value_name(const struct nd_arithmetic *arithmetic, char buf[ND_ARITHMETIC_NAME_BYTES])
{
    return nd_rounding_rule_name(&arithmetic->value, buf);
}

/* ---- the families ---- */

/* Rounded once. */

static const struct nd_arithmetic rounding_arithmetics[] = {
    {.value = {ND_ROUNDED_ONCE, ND_ROUND_HALF_EVEN, 0}}, {.value = {ND_ROUNDED_ONCE, ND_ROUND_HALF_AWAY, 0}},
    {.value = {ND_ROUNDED_ONCE, ND_ROUND_HALF_UP, 0}},   {.value = {ND_ROUNDED_ONCE, ND_ROUND_HALF_DOWN, 0}},
    {.value = {ND_ROUNDED_ONCE, ND_ROUND_FLOOR, 0}},     {.value = {ND_ROUNDED_ONCE, ND_ROUND_CEIL, 0}},
    {.value = {ND_ROUNDED_ONCE, ND_ROUND_TO_ZERO, 0}},
};

static bool rounding_from_name(const char *name, struct nd_arithmetic *out)
{
    return nd_rounding_rule_from_name(name, &out->value) && out->value.kind == ND_ROUNDED_ONCE;
}

/* Values that pass through floats. */
enum {
    FLOAT_VALUE, /* nd_arithmetic.value says it */
    FLOAT_VALUE_FP16,
    FLOAT_VALUE_BF16,
    FLOAT_EXECUTION,
    FLOAT_UNROUNDED_INPUTS,
};

static const char *const float_names[] = {
    [FLOAT_VALUE] = "float32",
    [FLOAT_VALUE_FP16] = "value-fp16",
    [FLOAT_VALUE_BF16] = "value-bf16",
    [FLOAT_EXECUTION] = "float-execution",
    [FLOAT_UNROUNDED_INPUTS] = "unrounded-inputs",
};
static const struct nd_arithmetic float_arithmetics[] = {
    {.kind = FLOAT_VALUE, .value = {ND_ROUNDED_AS_FLOAT32, 0, 0}},
    {.kind = FLOAT_EXECUTION},
    {.kind = FLOAT_VALUE_FP16},
    {.kind = FLOAT_VALUE_BF16},
    {.kind = FLOAT_UNROUNDED_INPUTS},
};
enum { N_FLOAT_ARITHMETICS = sizeof float_arithmetics / sizeof float_arithmetics[0] };

static const char *float_put_name(const struct nd_arithmetic *arithmetic, char buf[ND_ARITHMETIC_NAME_BYTES])
{
    snprintf(buf, ND_ARITHMETIC_NAME_BYTES, "%s", float_names[arithmetic->kind]);
    return buf;
}

static bool float_from_name(const char *name, struct nd_arithmetic *out)
{
    for (size_t i = 0; i < N_FLOAT_ARITHMETICS; i++)
        if (strcmp(name, float_names[float_arithmetics[i].kind]) == 0) {
            *out = float_arithmetics[i];
            return true;
        }
    return false;
}

/* To a float of n_bits behind the leading one, whose least normal is 2^least; overflow is left to clipping. */
static double to_float(double x, int n_bits, int least)
{
    int exponent;
    double mantissa = frexp(fabs(x), &exponent);
    if (x == 0 || !isfinite(x))
        return x;
    int quantum = (exponent - 1 < least ? least : exponent - 1) - n_bits;
    return copysign(ldexp(rint(ldexp(mantissa, exponent - quantum)), quantum), x);
}

static double through_floats(double v, double scale)
{
    float real = (float)(v * scale);
    float quotient = real / (float)scale;
    return rint((double)quotient);
}

static struct nd_arithmetic_outcome float_run(const struct nd_arithmetic_ready *ready,
                                              const struct nd_arithmetic_element *element)
{
    double v, whole = 0;
    switch (ready->arithmetic->kind) {
    case FLOAT_VALUE:
        return run_value(ready, element);
    case FLOAT_UNROUNDED_INPUTS:
        return surely(clip_to_qvalue(ready, nd_round_ratio(element->fused, ND_ROUND_HALF_EVEN)));
    default:
        v = nd_ratio_value(element->v);
    }
    if (ready->arithmetic->kind == FLOAT_EXECUTION)
        whole = through_floats(v, ready->scaling.scale);
    else if (ready->arithmetic->kind == FLOAT_VALUE_FP16)
        whole = rint(to_float(v, 10, -14));
    else
        whole = rint(to_float(v, 7, -126));
    return surely(clip_to_qvalue(ready, isnan(whole) ? -HUGE_VAL : whole));
}

/* Rounded twice: to some fraction bits, then to a whole number. */

#define DOUBLE(bits)                                                                                           \
    {                                                                                                          \
        .value = { ND_ROUNDED_TWICE, 0, bits }                                                                 \
    }
static const struct nd_arithmetic double_arithmetics[] = {
    DOUBLE(8), DOUBLE(1), DOUBLE(2), DOUBLE(3),  DOUBLE(4),  DOUBLE(5),
    DOUBLE(6), DOUBLE(7), DOUBLE(9), DOUBLE(10), DOUBLE(11), DOUBLE(12),
};

static bool double_from_name(const char *name, struct nd_arithmetic *out)
{
    return nd_rounding_rule_from_name(name, &out->value) && out->value.kind == ND_ROUNDED_TWICE;
}

/* A multiplier with few bits. */

enum { AS_PARTS, AS_FP16, AS_BF16 };

#define MULTIPLIER(bits)                                                                                       \
    {.requantise = {.multiplier_bits = bits, .rounding = ND_ROUND_HALF_EVEN}},                                 \
    {                                                                                                          \
        .requantise = {.multiplier_bits = bits, .rounding = ND_ROUND_HALF_UP }                                 \
    }
static const struct nd_arithmetic multiplier_arithmetics[] = {
    MULTIPLIER(23), MULTIPLIER(21), MULTIPLIER(16), MULTIPLIER(15),    MULTIPLIER(12),
    MULTIPLIER(11), MULTIPLIER(10), MULTIPLIER(9),  {.kind = AS_FP16}, {.kind = AS_BF16},
};

static const char *multiplier_put_name(const struct nd_arithmetic *arithmetic,
                                       char buf[ND_ARITHMETIC_NAME_BYTES])
{
    if (arithmetic->kind == AS_PARTS)
        return put_requantise_name(arithmetic, buf);
    snprintf(buf, ND_ARITHMETIC_NAME_BYTES, "%s",
             arithmetic->kind == AS_FP16 ? "multiplier-fp16" : "multiplier-bf16");
    return buf;
}

/* Any requantisation with a multiplier of few bits alone: what has a granule or an accumulator is theirs. */
static bool multiplier_from_name(const char *name, struct nd_arithmetic *out)
{
    if (strcmp(name, "multiplier-fp16") == 0 || strcmp(name, "multiplier-bf16") == 0) {
        out->kind = strcmp(name, "multiplier-fp16") == 0 ? AS_FP16 : AS_BF16;
        return true;
    }
    const struct nd_requantise *r = &out->requantise;
    return nd_requantise_from_name(name, &out->requantise) && r->multiplier_bits != ND_MULTIPLIER_EXACT &&
           !r->has_granule && !r->folds_zero && r->accumulator_bits == 0;
}

static double to_fp16(double x)
{
    static const double smallest_normal = 0x1p-14, least = 0x1p-24;
    return x < smallest_normal ? nd_round_value(x / least, ND_ROUND_HALF_EVEN) * least
                               : nd_multiplier_round(x, 10, ND_ROUND_HALF_EVEN);
}

static void multiplier_prepare(struct nd_arithmetic_ready *ready)
{
    prepare_requantise(ready);
    double m = ready->scaling.multiplier;
    if (ready->arithmetic->kind == AS_FP16)
        ready->requantiser.c = to_fp16(m);
    else if (ready->arithmetic->kind == AS_BF16)
        ready->requantiser.c = nd_multiplier_round(m, 7, ND_ROUND_HALF_EVEN);
}

/* Integer arithmetic as TensorFlow Lite's kernels and TOSA specify it (requantise.h). Of a mean and of a
 * LeakyRelu, too, whose sums have no multiplier for other families (struct nd_arithmetic_scaling). */

static const struct nd_arithmetic fixed_arithmetics[] = {{.requantise = {.fixed = ND_FIXED_GEMMLOWP}},
                                                         {.requantise = {.fixed = ND_FIXED_TOSA_SINGLE}},
                                                         {.requantise = {.fixed = ND_FIXED_TOSA_DOUBLE}}};

static bool fixed_from_name(const char *name, struct nd_arithmetic *out)
{
    return nd_requantise_from_name(name, &out->requantise) && out->requantise.fixed != ND_FIXED_NONE;
}

static void fixed_prepare(struct nd_arithmetic_ready *ready)
{
    const struct nd_arithmetic_scaling *s = &ready->scaling;
    prepare_requantise(ready);
    if (s->n_averaged > 0)
        ready->requantiser.multiplier =
            nd_fixed_multiplier_of_mean(ready->arithmetic->requantise.fixed, s->multiplier, s->n_averaged);
    if (s->slope > 0)
        ready->below = nd_fixed_multiplier(s->multiplier * s->slope);
}

static struct nd_arithmetic_outcome fixed_run(const struct nd_arithmetic_ready *ready,
                                              const struct nd_arithmetic_element *element)
{
    if (ready->scaling.slope > 0 && element->a < 0)
        return surely(clip_to_qvalue(
            ready, nd_fixed_run(ready->arithmetic->requantise.fixed, &ready->below, element->a)));
    return run_requantise(ready, element);
}

/* The accumulator cut to a granule before it is multiplied, with and without half of one; the zero point folded
 * into it. The last two are what the HTP does in Conv, Gemm and MatMul of uint8 quantised values (runtime's
 * simulator). */

#define GRANULE(bits)                                                                                          \
    {.requantise = {.has_granule = true, .granule_bits = bits, .rounding = ND_ROUND_HALF_EVEN}},               \
    {                                                                                                          \
        .requantise = {                                                                                        \
            .has_granule = true,                                                                               \
            .granule_bits = bits,                                                                              \
            .has_half_granule = true,                                                                          \
            .rounding = ND_ROUND_HALF_UP                                                                       \
        }                                                                                                      \
    }
static const struct nd_arithmetic granule_arithmetics[] = {
    GRANULE(1),
    GRANULE(2),
    GRANULE(3),
    GRANULE(4),
    GRANULE(5),
    {.requantise = {.folds_zero = true, .rounding = ND_ROUND_HALF_EVEN}},
    {.requantise = {.folds_zero = true, .rounding = ND_ROUND_HALF_UP}},
    {.requantise = {.multiplier_bits = 11,
                    .multiplier_rounding = ND_ROUND_HALF_UP,
                    .has_granule = true,
                    .granule_bits = 3,
                    .has_half_granule = true,
                    .rounding = ND_ROUND_HALF_UP}},
    {.requantise = {.multiplier_bits = 10,
                    .multiplier_rounding = ND_ROUND_HALF_UP,
                    .has_granule = true,
                    .granule_bits = 3,
                    .is_granule_whole = true,
                    .folds_zero = true,
                    .rounding = ND_ROUND_HALF_UP}},
};

static bool granule_from_name(const char *name, struct nd_arithmetic *out)
{
    const struct nd_requantise *r = &out->requantise;
    return nd_requantise_from_name(name, &out->requantise) && (r->has_granule || r->folds_zero) &&
           r->accumulator_bits == 0;
}

/* Accumulators that are too narrow, or whose last bits are dropped. */

enum { BY_PARTS, DROPPED };

#define WIDTH(bits)                                                                                            \
    {.requantise = {.accumulator_bits = bits, .rounding = ND_ROUND_HALF_EVEN}},                                \
    {                                                                                                          \
        .requantise = {.accumulator_bits = bits, .wraps = true, .rounding = ND_ROUND_HALF_EVEN }               \
    }
#define DROP(bits)                                                                                             \
    {                                                                                                          \
        .kind = DROPPED, .n_bits = bits                                                                        \
    }
static const struct nd_arithmetic accumulator_arithmetics[] = {
    WIDTH(16), WIDTH(18), WIDTH(20), WIDTH(24), WIDTH(32), DROP(1), DROP(2), DROP(3), DROP(4), DROP(6), DROP(8),
};

static const char *accumulator_put_name(const struct nd_arithmetic *arithmetic,
                                        char buf[ND_ARITHMETIC_NAME_BYTES])
{
    if (arithmetic->kind == BY_PARTS)
        return put_requantise_name(arithmetic, buf);
    snprintf(buf, ND_ARITHMETIC_NAME_BYTES, "drop-bits:%d", arithmetic->n_bits);
    return buf;
}

/* What no other family spells: "rounding:HOW" alone, too. */
static bool accumulator_from_name(const char *name, struct nd_arithmetic *out)
{
    if (read_bits(name, "drop-bits:", &out->n_bits)) {
        out->kind = DROPPED;
        return true;
    }
    return nd_requantise_from_name(name, &out->requantise);
}

static void accumulator_prepare(struct nd_arithmetic_ready *ready)
{
    prepare_requantise(ready);
    ready->dropped = ready->arithmetic->kind == DROPPED ? ldexp(1, ready->arithmetic->n_bits) : 0;
}

/* Rounded by chance. */

enum { PROPORTIONAL, EQUAL, OF_BITS };

static const struct nd_arithmetic stochastic_arithmetics[] = {
    {.kind = PROPORTIONAL},         {.kind = EQUAL},
    {.kind = OF_BITS, .n_bits = 1}, {.kind = OF_BITS, .n_bits = 2},
    {.kind = OF_BITS, .n_bits = 3}, {.kind = OF_BITS, .n_bits = 4},
    {.kind = OF_BITS, .n_bits = 8},
};

static const char *stochastic_put_name(const struct nd_arithmetic *arithmetic,
                                       char buf[ND_ARITHMETIC_NAME_BYTES])
{
    if (arithmetic->kind == OF_BITS)
        snprintf(buf, ND_ARITHMETIC_NAME_BYTES, "stochastic-bits:%d", arithmetic->n_bits);
    else
        snprintf(buf, ND_ARITHMETIC_NAME_BYTES, "%s",
                 arithmetic->kind == EQUAL ? "stochastic-equal" : "stochastic");
    return buf;
}

static bool stochastic_from_name(const char *name, struct nd_arithmetic *out)
{
    static const char seeded[] = "stochastic:";
    uint64_t seed;
    if (read_bits(name, "stochastic-bits:", &out->n_bits))
        out->kind = OF_BITS;
    else if (strcmp(name, "stochastic-equal") == 0)
        out->kind = EQUAL;
    else
        return strcmp(name, "stochastic") == 0 ||
               (strncmp(name, seeded, strlen(seeded)) == 0 && nd_parse_u64(name + strlen(seeded), &seed));
    return true;
}

static double probability_up(const struct nd_arithmetic *arithmetic, const struct nd_place *place)
{
    double n_steps;
    if (place->is_whole)
        return 0;
    switch (arithmetic->kind) {
    case PROPORTIONAL:
        return place->fraction;
    case EQUAL:
        return 0.5;
    default:
        n_steps = ldexp(1, arithmetic->n_bits);
        return floor(place->fraction * n_steps) / n_steps;
    }
}

static struct nd_arithmetic_outcome stochastic_run(const struct nd_arithmetic_ready *ready,
                                                   const struct nd_arithmetic_element *element)
{
    const struct nd_place *place = &element->place;
    return (struct nd_arithmetic_outcome){.qvalue = clip_to_qvalue(ready, place->floor),
                                          .other = clip_to_qvalue(ready, place->floor + 1),
                                          .p = probability_up(ready->arithmetic, place)};
}

enum {
    ROUNDING_FAMILY,
    FLOAT_FAMILY,
    DOUBLE_FAMILY,
    MULTIPLIER_FAMILY,
    FIXED_FAMILY,
    GRANULE_FAMILY,
    ACCUMULATOR_FAMILY,
    STOCHASTIC_FAMILY,
    N_FAMILIES
};
#define FAMILY(name_, table, put, from, before, run_, ...)                                                     \
    {                                                                                                          \
        .name = name_, .arithmetics = table, .n = sizeof table / sizeof table[0], .put_name = put,             \
        .from_name = from, .prepare = before, .run = run_, __VA_ARGS__                                         \
    }
static const struct nd_arithmetic_family families[] = {
    [ROUNDING_FAMILY] =
        FAMILY("rounding", rounding_arithmetics, put_value_name, rounding_from_name, NULL, run_value),
    [FLOAT_FAMILY] = FAMILY("float", float_arithmetics, float_put_name, float_from_name, NULL, float_run),
    [DOUBLE_FAMILY] = FAMILY("double", double_arithmetics, put_value_name, double_from_name, NULL, run_value),
    [MULTIPLIER_FAMILY] =
        FAMILY("multiplier", multiplier_arithmetics, multiplier_put_name, multiplier_from_name,
               multiplier_prepare, run_requantise, .needs_accumulator = true),
    [FIXED_FAMILY] = FAMILY("fixed-point", fixed_arithmetics, put_requantise_name, fixed_from_name,
                            fixed_prepare, fixed_run, .needs_accumulator = true),
    [GRANULE_FAMILY] = FAMILY("granule", granule_arithmetics, put_requantise_name, granule_from_name,
                              prepare_requantise, run_requantise, .needs_accumulator = true),
    [ACCUMULATOR_FAMILY] =
        FAMILY("accumulator", accumulator_arithmetics, accumulator_put_name, accumulator_from_name,
               accumulator_prepare, run_requantise, .needs_accumulator = true),
    [STOCHASTIC_FAMILY] = FAMILY("stochastic", stochastic_arithmetics, stochastic_put_name,
                                 stochastic_from_name, NULL, stochastic_run, .is_stochastic = true),
};

/* ---- the list ---- */

static struct {
    pthread_once_t once;
    size_t n;
    struct nd_arithmetic arithmetics[ND_ARITHMETIC_MAX];
} table = {.once = PTHREAD_ONCE_INIT};

static void fill_table(void)
{
    for (size_t f = 0; f < N_FAMILIES; f++)
        for (size_t i = 0; i < families[f].n; i++) {
            assert(table.n < ND_ARITHMETIC_MAX);
            table.arithmetics[table.n] = families[f].arithmetics[i];
            table.arithmetics[table.n++].family = &families[f];
        }
}

const struct nd_arithmetic *nd_arithmetics(size_t *n)
{
    pthread_once(&table.once, fill_table);
    *n = table.n;
    return table.arithmetics;
}

/* ---- names ---- */

const char *nd_arithmetic_name(const struct nd_arithmetic *arithmetic, char buf[ND_ARITHMETIC_NAME_BYTES])
{
    return arithmetic->family->put_name(arithmetic, buf);
}

bool nd_arithmetic_from_name(const char *name, struct nd_arithmetic *out)
{
    for (size_t f = 0; f < N_FAMILIES; f++) {
        struct nd_arithmetic arithmetic = {0};
        if (families[f].from_name(name, &arithmetic)) {
            *out = arithmetic;
            out->family = &families[f];
            return true;
        }
    }
    return false;
}

/* What is not spelled is not different. */
bool nd_arithmetic_is_same(const struct nd_arithmetic *a, const struct nd_arithmetic *b)
{
    char x[ND_ARITHMETIC_NAME_BYTES], y[ND_ARITHMETIC_NAME_BYTES];
    return strcmp(nd_arithmetic_name(a, x), nd_arithmetic_name(b, y)) == 0;
}

bool nd_arithmetic_needs_accumulator(const struct nd_arithmetic *arithmetic)
{
    return arithmetic->family->needs_accumulator;
}

bool nd_arithmetic_is_of_integers(const struct nd_arithmetic *arithmetic)
{
    return arithmetic->family == &families[MULTIPLIER_FAMILY] || arithmetic->family == &families[FIXED_FAMILY];
}

bool nd_arithmetic_is_stochastic(const struct nd_arithmetic *arithmetic)
{
    return arithmetic->family->is_stochastic;
}

bool nd_arithmetic_needs_fused(const struct nd_arithmetic *arithmetic)
{
    return arithmetic->family == &families[FLOAT_FAMILY] && arithmetic->kind == FLOAT_UNROUNDED_INPUTS;
}

/* ---- running one ---- */

double nd_arithmetic_accumulator(const struct nd_ratio *v, double scale, const struct nd_wide *step)
{
    return rint(nd_ratio_value(v) * scale / step->parts[0]);
}

double nd_arithmetic_multiplier(double scale, const struct nd_wide *step)
{
    return step->parts[0] / scale;
}

bool nd_arithmetic_prepare(const struct nd_arithmetic *arithmetic, const struct nd_arithmetic_scaling *scaling,
                           bool has_fused, struct nd_arithmetic_ready *out)
{
    bool is_for_fixed = scaling->n_averaged > 0 || scaling->slope > 0;
    bool has_accumulator = scaling->multiplier > 0 && isfinite(scaling->multiplier) &&
                           (!is_for_fixed || arithmetic->family == &families[FIXED_FAMILY]);
    if ((arithmetic->family->needs_accumulator && !has_accumulator) ||
        (nd_arithmetic_needs_fused(arithmetic) && !has_fused))
        return false;
    *out = (struct nd_arithmetic_ready){.arithmetic = arithmetic, .scaling = *scaling};
    if (arithmetic->family->prepare != NULL)
        arithmetic->family->prepare(out);
    return true;
}

struct nd_arithmetic_outcome nd_arithmetic_run(const struct nd_arithmetic_ready *ready,
                                               const struct nd_arithmetic_element *element)
{
    return ready->arithmetic->family->run(ready, element);
}
