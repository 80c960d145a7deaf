/* One block of two tensors, worked out once for all metrics: what differs, by how much, and what is only
 * rounding. docs/reference/metrics.md#elements, #accounting and #mixed-types. */
#include "compare/metrics/block.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "core/error.h"

static const struct nd_float_format *narrower(const struct nd_layout *a, const struct nd_layout *b)
{
    const struct nd_float_format *x = nd_float_format(a->dtype), *y = nd_float_format(b->dtype);
    if (x == NULL || y == NULL)
        return x != NULL ? x : y;
    return x->fraction_bits <= y->fraction_bits ? x : y;
}

enum nd_status nd_pair_context_make(const struct nd_tensor *ref, const struct nd_tensor *test,
                                    const struct nd_compare_options *options, const struct nd_kernels *kernels,
                                    struct nd_pair_context *out, struct nd_error *err)
{
    struct nd_pair_context made = {.kernels = kernels, .is_mixed = ref->dtype != test->dtype};
    ND_TRY(nd_layout_make(ref, &made.ref, err));
    ND_TRY(nd_layout_make(test, &made.test, err));
    if (made.is_mixed) {
        nd_layout_make_real(&made.ref);
        nd_layout_make_real(&made.test);
    }
    made.ulp_format = narrower(&made.ref, &made.test);
    made.ulp_in = nd_float_format(options->ulp_in);
    made.gate = nd_gates_resolve(options->gates, ref->name, made.ref.is_float || made.is_mixed);
    made.n_worst = options->n_worst;
    *out = made;
    return ND_OK;
}

/* Finite elements only, with +0 in the place of the others for the sums. */
static void sum_finite(const struct nd_layout *layout, const struct nd_kernels *kernels, const double *x,
                       size_t n, struct nd_side_block *out)
{
    double clean[ND_BLOCK];
    double min = INFINITY, max = -INFINITY;
    uint64_t n_tiny = 0;
    for (size_t i = 0; i < n; i++) {
        bool is_finite = isfinite(x[i]);
        clean[i] = is_finite ? x[i] : 0;
        out->n_nan += isnan(x[i]) != 0;
        out->n_inf += isinf(x[i]) != 0;
        if (!is_finite)
            continue;
        min = x[i] < min ? x[i] : min;
        max = x[i] > max ? x[i] : max;
        n_tiny += fabs(x[i]) < layout->tiny;
    }
    kernels->self_sums(clean, n, layout->tiny, &out->sums);
    out->sums.min = min + 0.0; /* -0 counts as +0 */
    out->sums.max = max + 0.0;
    out->sums.n_tiny = n_tiny;
}

/* How many of n elements are at an end of the range of their type. */
static size_t count_saturated(const struct nd_layout *layout, const struct nd_kernels *kernels,
                              const unsigned char *bytes, size_t n)
{
    double x[ND_BLOCK];
    size_t n_saturated = 0;
    kernels->load[layout->kind](bytes, n, 0, x);
    for (size_t i = 0; i < n; i++)
        n_saturated += x[i] == layout->low || x[i] == layout->high;
    return n_saturated;
}

static bool may_saturate(const struct nd_layout *layout, const struct nd_self_sums *sums)
{
    return layout->is_real || sums->min <= layout->low - layout->zero ||
           sums->max >= layout->high - layout->zero;
}

/* Whether the kernels know the sums of a side without its values. */
static bool needs_no_values(const struct nd_layout *layout)
{
    bool is_narrow = !layout->is_float && layout->elem_bytes <= 2;
    return layout->kind == ND_ELEM_F32 || (is_narrow && !layout->is_real && fabs(layout->zero) <= 0x1p16);
}

void nd_side_block_make(const struct nd_layout *layout, const struct nd_kernels *kernels,
                        const unsigned char *bytes, size_t first, size_t n, double *x, bool *is_loaded,
                        struct nd_side_block *out)
{
    *out = (struct nd_side_block){0};
    *is_loaded = !needs_no_values(layout);
    if (*is_loaded) {
        nd_layout_load(layout, kernels, bytes, first, n, x);
        kernels->self_sums(x, n, layout->tiny, &out->sums);
    } else {
        kernels->self_elems[layout->kind](bytes, n, layout->zero, layout->tiny, &out->sums);
    }
    bool is_finite = isfinite(out->sums.sum_squares), has_tiny = layout->is_float && out->sums.n_tiny > 0;
    if (!*is_loaded && (!is_finite || has_tiny)) {
        nd_layout_load(layout, kernels, bytes, first, n, x);
        *is_loaded = true;
    }
    if (!is_finite)
        sum_finite(layout, kernels, x, n, out);
    out->n_zero = out->sums.n_tiny;
    if (layout->is_float && out->sums.n_tiny > 0) {
        out->n_zero = 0;
        for (size_t i = 0; i < n; i++)
            out->n_zero += x[i] == 0;
        out->n_subnormal = out->sums.n_tiny - out->n_zero;
    }
    if (may_saturate(layout, &out->sums))
        out->n_saturated = count_saturated(layout, kernels, bytes, n);
}

/* Section 12: values, and a NaN is like a NaN. */
static size_t mask_values(const double *ref, const double *test, size_t n, uint8_t *mask)
{
    size_t n_differing = 0;
    for (size_t i = 0; i < n; i++) {
        mask[i] = !(ref[i] == test[i] || (isnan(ref[i]) && isnan(test[i])));
        n_differing += mask[i];
    }
    return n_differing;
}

/* A formula: c * s - z * s with a rounded scale has at most five roundings, of s, of the products (with that of
 * s) and of the result, each of at most u times what is rounded: u |s| (2 |c| + 2 |z| + |c - z|) and terms of
 * u^2. Twice the sum of the three covers them; (c - z) * s, whose difference is exact, has one rounding. */
static const double ROUNDINGS = 2;

/* Below the normal numbers a rounding is half of the least number instead: two products and their difference.
 */
static const double TINY_ROUNDINGS = 1.5;

/* Whether value is one of the format: a whole number of its steps at that size. */
static bool is_of_format(const struct nd_float_format *format, double value)
{
    int exponent, bits = format->fraction_bits + 1, least;
    frexp(nd_float_min_normal(format), &least);
    frexp(value, &exponent);
    double scaled = ldexp(fabs(value), bits - (exponent > least ? exponent : least));
    return fabs(value) <= nd_float_max(format) && scaled == floor(scaled);
}

/* One quantised value and the float beside it. */
struct dequantised {
    double qvalue, zero, scale, value;
};

static bool is_within_roundings(const struct nd_float_format *format, const struct dequantised *d)
{
    double unit = ldexp(1, -format->fraction_bits - 1), scale = fabs(d->scale);
    double tiny = ldexp(nd_float_min_normal(format), -format->fraction_bits);
    double error = fabs(d->value - d->scale * (d->qvalue - d->zero));
    double bound = ROUNDINGS * unit * scale * (fabs(d->qvalue) + fabs(d->zero) + fabs(d->qvalue - d->zero));
    /* Beyond half a step it may as well be another quantised value. */
    return error <= bound + TINY_ROUNDINGS * tiny && error < 0.5 * scale;
}

/* stored: the type of the float. It may have been computed in a narrower one, of which all its values then are.
 */
static bool is_dequantised(const struct nd_float_format *stored, const struct dequantised *d)
{
    static const enum nd_dtype narrower[] = {ND_DTYPE_F32, ND_DTYPE_F16};
    if (nd_float_distance_in(stored, d->scale * (d->qvalue - d->zero), d->value) == 0 ||
        is_within_roundings(stored, d))
        return true;
    for (size_t i = 0; i < sizeof narrower / sizeof narrower[0]; i++) {
        const struct nd_float_format *format = nd_float_format(narrower[i]);
        if (format->fraction_bits < stored->fraction_bits && is_of_format(format, d->value) &&
            is_within_roundings(format, d))
            return true;
    }
    return false;
}

/* Elements n of a block of a mixed pair, of which mask holds 1 where the real values differ. Clears it where a
 * float is the dequantised quantised value but for rounding, and says how many and by how much. bytes, x and
 * first of the block are given. */
static void mask_dequantised(const struct nd_pair_context *context, const struct nd_pair_block *block,
                             uint8_t *mask, struct nd_dequantised_elements *out)
{
    bool is_ref_qvalue = !context->ref.is_float;
    const struct nd_layout *layout = is_ref_qvalue ? &context->ref : &context->test;
    const struct nd_layout *other = is_ref_qvalue ? &context->test : &context->ref;
    const struct nd_side_view *qvalues = is_ref_qvalue ? &block->ref : &block->test;
    const struct nd_side_view *floats = is_ref_qvalue ? &block->test : &block->ref;
    double x[ND_BLOCK];
    *out = (struct nd_dequantised_elements){.max_steps = -INFINITY};
    if (layout->is_float || layout->n_channels == 0 || !other->is_float)
        return;
    context->kernels->load[layout->kind](qvalues->bytes, block->n, 0, x);
    for (size_t i = 0; i < block->n; i++) {
        size_t channel = (block->first + i) / layout->inner % layout->n_channels;
        struct dequantised d = {.qvalue = x[i],
                                .zero = (double)layout->zero_point[channel],
                                .scale = (double)layout->scale[channel],
                                .value = floats->x[i]};
        if (!mask[i] || !isfinite(d.value) || !is_dequantised(context->ulp_format, &d))
            continue;
        double steps = fabs((d.value - d.scale * (d.qvalue - d.zero)) / d.scale);
        mask[i] = 0;
        out->n++;
        out->max_steps = steps > out->max_steps ? steps : out->max_steps;
    }
}

/* Quantised values against floats: what is only rounding is equal from here on. */
static size_t mask_mixed(const struct nd_pair_context *context, struct nd_block_scratch *scratch,
                         struct nd_pair_block *block)
{
    size_t n_differing = mask_values(block->ref.x, block->test.x, block->n, scratch->mask);
    if (n_differing == 0 || (context->ref.is_float && context->test.is_float))
        return n_differing;
    mask_dequantised(context, block, scratch->mask, &block->dequantised);
    return n_differing - block->dequantised.n;
}

static size_t mask_block(const struct nd_pair_context *context, struct nd_block_scratch *scratch,
                         struct nd_pair_block *block)
{
    uint8_t *mask = scratch->mask;
    if (context->is_mixed)
        return mask_mixed(context, scratch, block);
    size_t log2_bytes = 0;
    while ((size_t)1 << log2_bytes < context->ref.elem_bytes)
        log2_bytes++;
    return context->kernels->mask[log2_bytes](block->ref.bytes, block->test.bytes, block->n, mask);
}

/* The places of the ones among four bits, 16 bits each, the first the lowest; and how many there are. */
static const uint64_t places_of[16] = {0x0,     0x0,         0x1,         0x10000,        0x2,     0x20000,
                                       0x20001, 0x200010000, 0x3,         0x30000,        0x30001, 0x300010000,
                                       0x30002, 0x300020000, 0x300020001, 0x3000200010000};
static const uint8_t n_of[16] = {0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4};

/* The offsets of the ones among n bytes of 0 and 1, ascending; eight zeros are passed over at once. Four
 * offsets are written where there may be fewer, which the next ones write over: no branch depends on a single
 * byte. */
static size_t list_set(const uint8_t *mask, size_t n, uint16_t *out)
{
    size_t n_set = 0, i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t word;
        memcpy(&word, mask + i, sizeof word);
        if (word == 0)
            continue;
        uint64_t bits = word * 0x0102040810204080u >> 56; /* the lowest bits of eight bytes */
        for (size_t half = 0; half < 2; half++) {
            uint64_t set = bits >> 4 * half & 15,
                     listed = places_of[set] + (i + 4 * half) * 0x0001000100010001u;
            memcpy(out + n_set, &listed, sizeof listed);
            n_set += n_of[set];
        }
    }
    for (; i < n; i++)
        if (mask[i])
            out[n_set++] = (uint16_t)i;
    return n_set;
}

const uint16_t *nd_pair_block_differing(const struct nd_pair_block *block)
{
    struct nd_block_scratch *scratch = block->scratch;
    if (!scratch->is_listed)
        list_set(scratch->mask, block->n, scratch->differing);
    scratch->is_listed = true;
    return scratch->differing;
}

const uint16_t *nd_pair_block_measured(const struct nd_pair_block *block)
{
    return block->is_clean ? nd_pair_block_differing(block) : block->scratch->measured;
}

static void list_elements(const struct nd_kernels *kernels, struct nd_block_scratch *scratch,
                          struct nd_pair_block *block, size_t n_differing)
{
    size_t n_measured = 0, n_unmeasured = 0;
    scratch->is_listed = false;
    block->scratch = scratch;
    block->n_differing = block->n_measured = n_differing;
    block->unmeasured = scratch->unmeasured;
    /* Where the elements are that differ; there is at least one. */
    size_t first = 0, last = ND_BLOCK_WORDS - 1;
    kernels->bits(scratch->mask, block->n, scratch->bits);
    block->bits = scratch->bits;
    while (scratch->bits[first] == 0)
        first++;
    while (scratch->bits[last] == 0)
        last--;
    block->first_differing = (uint16_t)(64 * first + (size_t)__builtin_ctzll(scratch->bits[first]));
    block->last_differing = (uint16_t)(64 * last + 63 - (size_t)__builtin_clzll(scratch->bits[last]));
    if (block->is_clean)
        return;
    const uint16_t *differing = nd_pair_block_differing(block);
    for (size_t k = 0; k < n_differing; k++) {
        uint16_t i = differing[k];
        if (isfinite(block->ref.x[i]) && isfinite(block->test.x[i]))
            scratch->measured[n_measured++] = i;
        else
            scratch->unmeasured[n_unmeasured++] = i;
    }
    block->n_measured = n_measured;
    block->n_unmeasured = n_unmeasured;
}

/* Elements of which one side is not finite become +0 on both. */
static void clean_sides(const struct nd_pair_context *context, struct nd_block_scratch *scratch,
                        struct nd_pair_block *block)
{
    block->n_test_only = 0;
    for (size_t i = 0; i < block->n; i++) {
        bool ref_finite = isfinite(block->ref.x[i]), test_finite = isfinite(block->test.x[i]);
        bool is_kept = ref_finite && test_finite;
        scratch->ref_clean[i] = is_kept ? block->ref.x[i] : 0;
        scratch->test_clean[i] = is_kept ? block->test.x[i] : 0;
        block->n_test_only += ref_finite && !test_finite;
    }
    context->kernels->self_sums(scratch->ref_clean, block->n, 0, &block->ref_both);
    context->kernels->self_sums(scratch->test_clean, block->n, 0, &block->test_both);
}

/* Floats apart, and what a gate or 64-bit integers need. */
static bool needs_distances(const struct nd_pair_context *context)
{
    const struct nd_gate_values *gate = &context->gate;
    return context->is_mixed || context->ulp_format != NULL || !nd_layout_is_narrow(&context->ref) ||
           (!gate->bitwise && (gate->has_lsb || gate->has_ulp));
}

static void measure_distances(const struct nd_pair_context *context, struct nd_block_scratch *scratch,
                              struct nd_pair_block *block)
{
    if (!needs_distances(context))
        return;
    uint64_t *distance = scratch->distance;
    block->distance = distance;
    if (!context->is_mixed)
        block->max_distance = context->kernels->distance[context->ref.kind](block->ref.bytes, block->test.bytes,
                                                                            block->n, distance);
    if (!context->is_mixed && block->is_clean)
        return;
    block->max_distance = 0;
    const uint16_t *measured = nd_pair_block_measured(block);
    for (size_t k = 0; k < block->n_measured; k++) {
        size_t i = measured[k];
        if (context->is_mixed)
            distance[i] = nd_float_distance_in(context->ulp_format, block->ref.x[i], block->test.x[i]);
        block->max_distance = distance[i] > block->max_distance ? distance[i] : block->max_distance;
    }
}

size_t nd_pair_block_make(const struct nd_pair_context *context, struct nd_block_scratch *scratch,
                          struct nd_pair_block *block)
{
    assert(block->n <= ND_BLOCK);
    block->dequantised = (struct nd_dequantised_elements){0};
    size_t n_differing = mask_block(context, scratch, block);
    if (n_differing == 0)
        return 0;
    const struct nd_side_block *ref = block->ref.block, *test = block->test.block;
    block->is_clean = ref->n_nan + ref->n_inf + test->n_nan + test->n_inf == 0;
    block->n_unmeasured = block->n_test_only = 0;
    list_elements(context->kernels, scratch, block, n_differing);
    if (!block->is_clean)
        clean_sides(context, scratch, block);
    if (block->dequantised.n > 0) {
        /* From here on what is only rounding has the value of the reference: a difference of 0. */
        for (size_t i = 0; i < block->n; i++) {
            scratch->test_equal[i] = scratch->mask[i] ? block->test.x[i] : block->ref.x[i];
            if (!scratch->mask[i] && !block->is_clean)
                scratch->test_clean[i] = scratch->ref_clean[i];
        }
        block->test.x = scratch->test_equal;
    }
    if (block->joint == NULL)
        measure_distances(context, scratch, block);
    block->ref_clean = block->is_clean ? block->ref.x : scratch->ref_clean;
    block->test_clean = block->is_clean ? block->test.x : scratch->test_clean;
    block->errors = &scratch->errors;
    if (block->joint != NULL) {
        /* The pairs of bytes of a block. */
        block->joint->n_elems += block->n;
        context->kernels->join(block->ref.bytes, block->test.bytes, block->n, context->ref.kind == ND_ELEM_I8,
                               block->joint->cells, &scratch->errors);
        block->sums = (struct nd_diff_sums){.max_abs = scratch->errors.max_absolute};
        return n_differing;
    }
    context->kernels->errors(block->ref_clean, block->test_clean, block->n, &scratch->errors, &block->sums);
    return n_differing;
}
