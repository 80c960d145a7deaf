#include "arithmetic/arithmetics/accumulate.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { UNIT_BITS = 48, FACTOR_BITS = 24 };

/* A multiple of 2^-48. What is infinite or NaN has no `fixed`. */
struct number {
    __int128 fixed;
    int infinity; /* its sign; 0: finite */
    bool is_nan;
};

struct format {
    const char *name;
    int n_bits;       /* with the leading one; 0: all */
    int min_exponent; /* of the least normal number, where it matters here */
    bool is_narrow;   /* it can overflow here */
};

static const struct format formats[] = {
    [ND_SUM_EXACT] = {"exact", 0, -1000, false}, [ND_SUM_F32] = {"f32", 24, -126, false},
    [ND_SUM_F16] = {"f16", 11, -14, true},       [ND_SUM_BF16] = {"bf16", 8, -126, false},
    [ND_SUM_TF32] = {"tf32", 11, -126, false},   [ND_SUM_13BITS] = {"13bits", 14, -126, false},
};

static unsigned __int128 magnitude_of(__int128 value)
{
    return value < 0 ? -(unsigned __int128)value : (unsigned __int128)value;
}

/* The position of the highest bit; value is not 0. */
static int top_bit(unsigned __int128 value)
{
    uint64_t high = (uint64_t)(value >> 64);
    return high != 0 ? 127 - __builtin_clzll(high) : 63 - __builtin_clzll((uint64_t)value);
}

/* Whether a magnitude goes away from zero; rest is what lies below the last bit, half that bit's half. */
static bool is_away(enum nd_rounding rounding, bool is_negative, bool is_odd, unsigned __int128 rest,
                    unsigned __int128 half)
{
    switch (rounding) {
    case ND_ROUND_HALF_EVEN:
        return rest > half || (rest == half && is_odd);
    case ND_ROUND_HALF_AWAY:
        return rest >= half;
    case ND_ROUND_HALF_UP:
        return rest > half || (rest == half && !is_negative);
    case ND_ROUND_HALF_DOWN:
        return rest > half || (rest == half && is_negative);
    case ND_ROUND_FLOOR:
        return rest > 0 && is_negative;
    case ND_ROUND_CEIL:
        return rest > 0 && !is_negative;
    case ND_ROUND_TO_ZERO:
        break;
    }
    return false;
}

static __int128 round_fixed(__int128 value, const struct format *format, enum nd_rounding rounding)
{
    if (value == 0 || format->n_bits == 0)
        return value;
    unsigned __int128 magnitude = magnitude_of(value);
    int n_dropped = top_bit(magnitude) - (format->n_bits - 1);
    int least = format->min_exponent - (format->n_bits - 1) + UNIT_BITS;
    n_dropped = n_dropped > least ? n_dropped : least;
    if (n_dropped <= 0)
        return value;
    unsigned __int128 kept = magnitude >> n_dropped, rest = magnitude - (kept << n_dropped);
    bool is_up = is_away(rounding, value < 0, kept & 1, rest, (unsigned __int128)1 << (n_dropped - 1));
    __int128 rounded = (__int128)((kept + (is_up ? 1 : 0)) << n_dropped);
    return value < 0 ? -rounded : rounded;
}

/* What becomes of a rounded magnitude beyond the largest number. */
static struct number overflown(int sign, enum nd_rounding rounding, enum nd_sum_overflow overflow)
{
    const __int128 largest = (__int128)65504 << UNIT_BITS;
    bool is_back = rounding == ND_ROUND_TO_ZERO || (rounding == ND_ROUND_FLOOR && sign > 0) ||
                   (rounding == ND_ROUND_CEIL && sign < 0);
    if (overflow == ND_SUM_TO_LARGEST || is_back)
        return (struct number){.fixed = sign * largest};
    return (struct number){.infinity = sign};
}

static struct number round_number(struct number number, enum nd_sum_type type, enum nd_rounding rounding,
                                  const struct nd_accumulator *accumulator, bool is_flushing)
{
    const struct format *format = &formats[type];
    if (number.is_nan)
        return number;
    if (number.infinity != 0)
        return format->is_narrow && accumulator->overflow == ND_SUM_TO_LARGEST
                   ? overflown(number.infinity, rounding, ND_SUM_TO_LARGEST)
                   : number;
    number.fixed = round_fixed(number.fixed, format, rounding);
    if (!format->is_narrow)
        return number;
    unsigned __int128 magnitude = magnitude_of(number.fixed);
    if (magnitude > (unsigned __int128)65504 << UNIT_BITS)
        return overflown(number.fixed < 0 ? -1 : 1, rounding, accumulator->overflow);
    if (is_flushing && magnitude < (unsigned __int128)1 << (UNIT_BITS + format->min_exponent))
        number.fixed = 0;
    return number;
}

/* How many low bits all that is added loses, so that the largest keeps n_bits. */
static int cut_of(const __int128 *slots, const uint16_t *children, size_t n, int n_bits)
{
    unsigned __int128 all = 0;
    for (size_t c = 0; c < n; c++)
        all |= magnitude_of(slots[children[c]]);
    int cut = all == 0 ? 0 : top_bit(all) + 1 - n_bits;
    return cut > 0 ? cut : 0;
}

static __int128 cut_off(__int128 value, int cut)
{
    __int128 kept = (__int128)(magnitude_of(value) >> cut << cut);
    return value < 0 ? -kept : kept;
}

static struct number add(const struct nd_accumulator *accumulator, const struct number *numbers,
                         const uint16_t *children, size_t n)
{
    struct number sum = {0};
    __int128 terms[ND_SUM_MAX_TERMS + 1];
    uint16_t slots[ND_SUM_MAX_TERMS + 1];
    int n_bits = formats[accumulator->sum].n_bits;
    for (size_t c = 0; c < n; c++) {
        const struct number *term = &numbers[children[c]];
        slots[c] = (uint16_t)c;
        terms[c] = term->fixed;
        sum.is_nan |= term->is_nan || sum.infinity * term->infinity < 0;
        sum.infinity = sum.infinity != 0 ? sum.infinity : term->infinity;
    }
    int cut = accumulator->extra_bits < 0 || n_bits == 0
                  ? 0
                  : cut_of(terms, slots, n, n_bits + accumulator->extra_bits);
    for (size_t c = 0; c < n; c++)
        sum.fixed += cut_off(terms[c], cut);
    return round_number(sum, accumulator->sum, accumulator->rounding, accumulator,
                        accumulator->is_flushing_sums);
}

static int64_t flushed(const struct nd_accumulator *accumulator, int64_t factor)
{
    const int64_t least = (int64_t)1 << (FACTOR_BITS - 14);
    return accumulator->is_flushing_inputs && factor > -least && factor < least ? 0 : factor;
}

static bool is_first_rounded(const struct nd_accumulator *accumulator, const struct nd_sum_tree *tree,
                             const uint16_t *children, size_t n)
{
    return accumulator->is_from_zero && n == 2 && children[0] < tree->n_terms;
}

/* What most vectors need: false where something overflows. */
static bool sum_finite(const struct nd_accumulator *accumulator, const struct nd_sum_tree *tree,
                       const int64_t *x, const int64_t *w, __int128 *out)
{
    __int128 slots[2 * ND_SUM_MAX_TERMS];
    const struct format *sum = &formats[accumulator->sum], *product = &formats[accumulator->product];
    const unsigned __int128 largest = (unsigned __int128)65504 << UNIT_BITS;
    bool is_cutting = accumulator->extra_bits >= 0 && sum->n_bits > 0;
    if (accumulator->is_flushing_sums || product->is_narrow)
        return false;
    for (size_t i = 0; i < tree->n_terms; i++)
        slots[i] = round_fixed((__int128)flushed(accumulator, x[i]) * flushed(accumulator, w[i]), product,
                               accumulator->rounding);
    for (size_t k = 0; k < tree->n_nodes; k++) {
        const uint16_t *children = tree->children + tree->first[k];
        size_t n = (size_t)(tree->first[k + 1] - tree->first[k]);
        if (is_first_rounded(accumulator, tree, children, n))
            slots[children[0]] = round_fixed(slots[children[0]], sum, accumulator->rounding);
        int cut = is_cutting ? cut_of(slots, children, n, sum->n_bits + accumulator->extra_bits) : 0;
        __int128 value = 0;
        for (size_t c = 0; c < n; c++)
            value += cut_off(slots[children[c]], cut);
        value = round_fixed(value, sum, accumulator->rounding);
        slots[tree->n_terms + k] = value;
        if (sum->is_narrow && (magnitude_of(value) > largest || magnitude_of(slots[children[0]]) > largest))
            return false;
    }
    *out = slots[tree->n_terms + tree->n_nodes - 1];
    return true;
}

/* The same with everything that can happen. */
static struct number sum_numbers(const struct nd_accumulator *accumulator, const struct nd_sum_tree *tree,
                                 const int64_t *x, const int64_t *w)
{
    struct number slots[2 * ND_SUM_MAX_TERMS];
    for (size_t i = 0; i < tree->n_terms; i++) {
        const struct number product = {(__int128)flushed(accumulator, x[i]) * flushed(accumulator, w[i]), 0,
                                       false};
        slots[i] = round_number(product, accumulator->product, accumulator->rounding, accumulator,
                                accumulator->is_flushing_sums);
    }
    for (size_t k = 0; k < tree->n_nodes; k++) {
        const uint16_t *children = tree->children + tree->first[k];
        size_t n = (size_t)(tree->first[k + 1] - tree->first[k]);
        if (is_first_rounded(accumulator, tree, children, n))
            slots[children[0]] = round_number(slots[children[0]], accumulator->sum, accumulator->rounding,
                                              accumulator, accumulator->is_flushing_sums);
        slots[tree->n_terms + k] = add(accumulator, slots, children, n);
    }
    return slots[tree->n_terms + tree->n_nodes - 1];
}

float nd_accumulate_factors(const struct nd_accumulator *accumulator, const struct nd_sum_tree *tree,
                            const int64_t *x, const int64_t *w)
{
    struct number sum = {0};
    if (!sum_finite(accumulator, tree, x, w, &sum.fixed))
        sum = sum_numbers(accumulator, tree, x, w);
    sum = round_number(sum, accumulator->output, accumulator->output_rounding, accumulator,
                       accumulator->is_flushing_output);
    if (sum.is_nan)
        return NAN;
    if (sum.infinity != 0)
        return sum.infinity > 0 ? INFINITY : -INFINITY;
    /* At most 24 bits are left: all of these conversions are exact. */
    return (float)((double)sum.fixed * 0x1p-48);
}

bool nd_accumulator_factors(const float *values, size_t n, int64_t *out)
{
    for (size_t i = 0; i < n; i++) {
        if (!(fabsf(values[i]) <= 65504))
            return false;
        double scaled = (double)values[i] * 0x1p24;
        out[i] = (int64_t)scaled;
        const __int128 fixed = (__int128)out[i] * (1 << FACTOR_BITS);
        if ((double)out[i] != scaled || round_fixed(fixed, &formats[ND_SUM_F16], ND_ROUND_TO_ZERO) != fixed)
            return false;
    }
    return true;
}

static void append(char *buf, size_t *n, const char *format, const char *a, const char *b)
{
    int n_written = snprintf(buf + *n, ND_ACCUMULATOR_NAME_BYTES - *n, format, a, b);
    *n += (size_t)n_written;
    if (*n >= ND_ACCUMULATOR_NAME_BYTES)
        *n = ND_ACCUMULATOR_NAME_BYTES - 1;
}

const char *nd_accumulator_name(const struct nd_accumulator *accumulator, char buf[ND_ACCUMULATOR_NAME_BYTES])
{
    char order[ND_SUM_ORDER_NAME_BYTES], extra[16];
    size_t n = 0;
    append(buf, &n, "sum=%s:%s", formats[accumulator->sum].name, nd_rounding_name(accumulator->rounding));
    if (accumulator->extra_bits >= 0) {
        snprintf(extra, sizeof extra, "%d", accumulator->extra_bits);
        append(buf, &n, " aligned+%s%s", extra, "");
    }
    append(buf, &n, " order=%s%s", nd_sum_order_name(&accumulator->order, order), "");
    if (accumulator->is_from_zero)
        append(buf, &n, " from-zero%s%s", "", "");
    if (accumulator->product != ND_SUM_EXACT)
        append(buf, &n, " product=%s%s", formats[accumulator->product].name, "");
    if (accumulator->is_flushing_inputs || accumulator->is_flushing_sums || accumulator->is_flushing_output)
        append(buf, &n, " flush=%s%s",
               accumulator->is_flushing_inputs ? accumulator->is_flushing_sums ? "inputs+sums" : "inputs"
               : accumulator->is_flushing_sums ? "sums"
                                               : "",
               !accumulator->is_flushing_output                                   ? ""
               : accumulator->is_flushing_inputs || accumulator->is_flushing_sums ? "+output"
                                                                                  : "output");
    if (accumulator->overflow == ND_SUM_TO_LARGEST)
        append(buf, &n, " overflow=%s%s", "largest", "");
    if (accumulator->output != ND_SUM_F16 || accumulator->output_rounding != ND_ROUND_HALF_EVEN)
        append(buf, &n, " output=%s:%s", formats[accumulator->output].name,
               nd_rounding_name(accumulator->output_rounding));
    return buf;
}
