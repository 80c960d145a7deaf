/* Dot products as accelerators sum them, in an order and with a rounding of their own: accumulate.h.
 * docs/science/theory.md#accumulator. */
#include "arithmetic/arithmetics/accumulate.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the order ---- */

static const struct {
    const char *name;
    bool has_width;
} kinds[] = {
    [ND_SUM_SEQUENTIAL] = {"sequential", false},
    [ND_SUM_REVERSED] = {"reversed", false},
    [ND_SUM_PAIRWISE] = {"pairwise", false},
    [ND_SUM_HALVING] = {"halving", false},
    [ND_SUM_LANES] = {"lanes", true},
    [ND_SUM_BLOCKS] = {"blocks", true},
    [ND_SUM_TREES] = {"trees", true},
    [ND_SUM_FUSED] = {"fused", true},
    [ND_SUM_GIVEN] = {"tree", false},
};

const char *nd_sum_order_name(const struct nd_sum_order *order, char buf[ND_SUM_ORDER_NAME_BYTES])
{
    if (kinds[order->kind].has_width)
        snprintf(buf, ND_SUM_ORDER_NAME_BYTES, "%s:%d", kinds[order->kind].name, order->width);
    else
        snprintf(buf, ND_SUM_ORDER_NAME_BYTES, "%s", kinds[order->kind].name);
    return buf;
}

/* The slot of a new node. */
static uint16_t add_node(struct nd_sum_tree *tree, const uint16_t *children, size_t n)
{
    assert(tree->n_nodes < ND_SUM_MAX_TERMS);
    size_t first = tree->first[tree->n_nodes];
    memcpy(tree->children + first, children, n * sizeof *children);
    tree->first[++tree->n_nodes] = (uint16_t)(first + n);
    return (uint16_t)(tree->n_terms + tree->n_nodes - 1);
}

static uint16_t add_pair(struct nd_sum_tree *tree, uint16_t a, uint16_t b)
{
    const uint16_t pair[] = {a, b};
    return add_node(tree, pair, 2);
}

static uint16_t add_sequence(struct nd_sum_tree *tree, const uint16_t *slots, size_t n)
{
    uint16_t sum = slots[0];
    for (size_t i = 1; i < n; i++)
        sum = add_pair(tree, sum, slots[i]);
    return sum;
}

/* Each with its neighbour until one is left; a last one without a neighbour goes on as it is. */
static uint16_t add_pairwise(struct nd_sum_tree *tree, const uint16_t *slots, size_t n)
{
    uint16_t level[ND_SUM_MAX_TERMS];
    memcpy(level, slots, n * sizeof *slots);
    for (; n > 1; n = (n + 1) / 2)
        for (size_t i = 0; i < n; i += 2)
            level[i / 2] = i + 1 < n ? add_pair(tree, level[i], level[i + 1]) : level[i];
    return level[0];
}

static uint16_t add_halving(struct nd_sum_tree *tree, const uint16_t *slots, size_t n)
{
    uint16_t level[ND_SUM_MAX_TERMS];
    memcpy(level, slots, n * sizeof *slots);
    for (size_t half; n > 1; n = half) {
        half = (n + 1) / 2;
        for (size_t i = 0; i + half < n; i++)
            level[i] = add_pair(tree, level[i], level[i + half]);
    }
    return level[0];
}

static uint16_t add_lanes(struct nd_sum_tree *tree, size_t width)
{
    uint16_t lanes[ND_SUM_MAX_TERMS];
    for (size_t lane = 0; lane < width; lane++) {
        lanes[lane] = (uint16_t)lane;
        for (size_t i = lane + width; i < tree->n_terms; i += width)
            lanes[lane] = add_pair(tree, lanes[lane], (uint16_t)i);
    }
    return add_pairwise(tree, lanes, width);
}

static uint16_t add_blocks(struct nd_sum_tree *tree, const uint16_t *slots, size_t width, bool is_pairwise)
{
    uint16_t sums[ND_SUM_MAX_TERMS];
    size_t n_blocks = 0;
    for (size_t i = 0; i < tree->n_terms; i += width) {
        size_t n = tree->n_terms - i < width ? tree->n_terms - i : width;
        sums[n_blocks++] = (is_pairwise ? add_pairwise : add_sequence)(tree, slots + i, n);
    }
    return add_sequence(tree, sums, n_blocks);
}

static uint16_t add_fused(struct nd_sum_tree *tree, const uint16_t *slots, size_t width)
{
    uint16_t children[ND_SUM_MAX_TERMS + 1], sum = 0;
    for (size_t i = 0; i < tree->n_terms; i += width) {
        size_t n = tree->n_terms - i < width ? tree->n_terms - i : width, before = i > 0 ? 1 : 0;
        children[0] = sum;
        memcpy(children + before, slots + i, n * sizeof *slots);
        sum = add_node(tree, children, n + before);
    }
    return sum;
}

void nd_sum_tree_of(const struct nd_sum_order *order, size_t n_terms, struct nd_sum_tree *out)
{
    assert(n_terms >= 1 && n_terms <= ND_SUM_MAX_TERMS);
    uint16_t slots[ND_SUM_MAX_TERMS];
    size_t width = (size_t)order->width < n_terms ? (size_t)order->width : n_terms;
    *out = (struct nd_sum_tree){.n_terms = n_terms};
    for (size_t i = 0; i < n_terms; i++)
        slots[i] = (uint16_t)(order->kind == ND_SUM_REVERSED ? n_terms - 1 - i : i);
    if (n_terms == 1) {
        add_node(out, slots, 1);
        return;
    }
    switch (order->kind) {
    case ND_SUM_SEQUENTIAL:
    case ND_SUM_REVERSED:
        add_sequence(out, slots, n_terms);
        break;
    case ND_SUM_PAIRWISE:
        add_pairwise(out, slots, n_terms);
        break;
    case ND_SUM_HALVING:
        add_halving(out, slots, n_terms);
        break;
    case ND_SUM_LANES:
        add_lanes(out, width);
        break;
    case ND_SUM_BLOCKS:
    case ND_SUM_TREES:
        add_blocks(out, slots, width, order->kind == ND_SUM_TREES);
        break;
    case ND_SUM_FUSED:
        add_fused(out, slots, width);
        break;
    case ND_SUM_GIVEN:
        assert(false);
        break;
    }
}

/* leaves[slot]: a bit for every term under it. */
static void leaves_below(const struct nd_sum_tree *tree, uint64_t leaves[2 * ND_SUM_MAX_TERMS])
{
    for (size_t i = 0; i < tree->n_terms; i++)
        leaves[i] = (uint64_t)1 << i;
    for (size_t k = 0; k < tree->n_nodes; k++) {
        leaves[tree->n_terms + k] = 0;
        for (size_t c = tree->first[k]; c < tree->first[k + 1]; c++)
            leaves[tree->n_terms + k] |= leaves[tree->children[c]];
    }
}

/* A tree is the set of what its nodes cover. */
bool nd_sum_tree_equal(const struct nd_sum_tree *a, const struct nd_sum_tree *b)
{
    uint64_t leaves_a[2 * ND_SUM_MAX_TERMS], leaves_b[2 * ND_SUM_MAX_TERMS];
    if (a->n_terms != b->n_terms || a->n_nodes != b->n_nodes)
        return false;
    leaves_below(a, leaves_a);
    leaves_below(b, leaves_b);
    for (size_t i = 0; i < a->n_nodes; i++) {
        bool is_found = false;
        for (size_t j = 0; j < b->n_nodes && !is_found; j++)
            is_found = leaves_a[a->n_terms + i] == leaves_b[b->n_terms + j];
        if (!is_found)
            return false;
    }
    return true;
}

void nd_sum_tree_joins(const struct nd_sum_tree *tree, uint8_t *l)
{
    uint64_t leaves[2 * ND_SUM_MAX_TERMS];
    size_t n = tree->n_terms;
    leaves_below(tree, leaves);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++) {
            uint64_t both = (uint64_t)1 << i | (uint64_t)1 << j;
            size_t k = 0;
            while ((leaves[n + k] & both) != both)
                k++;
            l[i * n + j] = (uint8_t)(i == j ? 1 : __builtin_popcountll(leaves[n + k]));
        }
}

/* The slot that sums the terms of a set. Below its node, the terms that join under fewer leaves than the set
 * has are one child. */
static uint16_t grow(const uint8_t *l, uint64_t set, struct nd_sum_tree *tree)
{
    size_t n = tree->n_terms, n_children = 0;
    int n_leaves = __builtin_popcountll(set);
    uint16_t children[ND_SUM_MAX_TERMS];
    if (n_leaves == 1)
        return (uint16_t)__builtin_ctzll(set);
    while (set != 0) {
        size_t i = (size_t)__builtin_ctzll(set);
        uint64_t child = 0;
        for (size_t j = i; j < n; j++)
            if (set >> j & 1 && l[i * n + j] < n_leaves)
                child |= (uint64_t)1 << j;
        child |= (uint64_t)1 << i;
        set &= ~child;
        /* Endless where all terms join below the set itself: no tree. */
        children[n_children++] = __builtin_popcountll(child) < n_leaves ? grow(l, child, tree) : (uint16_t)i;
    }
    if (tree->n_nodes == ND_SUM_MAX_TERMS || tree->first[tree->n_nodes] + n_children > 2 * ND_SUM_MAX_TERMS)
        return 0;
    return add_node(tree, children, n_children);
}

bool nd_sum_tree_from_joins(const uint8_t *l, size_t n_terms, struct nd_sum_tree *out)
{
    assert(n_terms >= 2 && n_terms <= ND_SUM_MAX_TERMS);
    uint8_t back[ND_SUM_MAX_TERMS * ND_SUM_MAX_TERMS];
    struct nd_sum_tree tree = {.n_terms = n_terms};
    grow(l, n_terms == 64 ? UINT64_MAX : ((uint64_t)1 << n_terms) - 1, &tree);
    uint64_t leaves[2 * ND_SUM_MAX_TERMS];
    leaves_below(&tree, leaves);
    if (tree.n_nodes == 0 || __builtin_popcountll(leaves[n_terms + tree.n_nodes - 1]) != (int)n_terms)
        return false;
    nd_sum_tree_joins(&tree, back);
    if (memcmp(back, l, n_terms * n_terms) != 0)
        return false;
    *out = tree;
    return true;
}

static void put(char **buf, size_t *size, const char *text)
{
    size_t n = strlen(text);
    if (n >= *size)
        n = *size - 1;
    memcpy(*buf, text, n);
    *buf += n;
    *size -= n;
    **buf = '\0';
}

static void format_slot(const struct nd_sum_tree *tree, size_t slot, char **buf, size_t *size)
{
    if (slot < tree->n_terms) {
        char number[8];
        snprintf(number, sizeof number, "%u", (unsigned)(uint8_t)slot);
        put(buf, size, number);
        return;
    }
    size_t k = slot - tree->n_terms;
    put(buf, size, "(");
    for (size_t c = tree->first[k]; c < tree->first[k + 1]; c++) {
        put(buf, size, c > tree->first[k] ? " " : "");
        format_slot(tree, tree->children[c], buf, size);
    }
    put(buf, size, ")");
}

void nd_sum_tree_format(const struct nd_sum_tree *tree, char *buf, size_t buf_size)
{
    assert(buf_size > 0);
    *buf = '\0';
    format_slot(tree, tree->n_terms + tree->n_nodes - 1, &buf, &buf_size);
}

/* ---- the sums ---- */

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
