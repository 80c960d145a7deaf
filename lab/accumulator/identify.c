/* Which accumulators the outputs of the battery do not exclude, and whether that holds on random vectors.
 * accumulator.h has the family and the battery. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/random.h"
#include "lab/accumulator/accumulator.h"
#include "lab/experiment/candidates.h"

/* Whether it matters that the first product is rounded: not where it is already, and not by adders of many. */
static bool can_be_from_zero(const struct nd_accumulator *item)
{
    bool is_short = item->sum != ND_SUM_EXACT && item->sum != ND_SUM_F32;
    return is_short && item->product != item->sum &&
           (item->order.kind != ND_SUM_FUSED || item->order.width == 2);
}

static const struct nd_sum_order orders[] = {
    {ND_SUM_SEQUENTIAL, 0}, {ND_SUM_REVERSED, 0}, {ND_SUM_PAIRWISE, 0}, {ND_SUM_HALVING, 0},
    {ND_SUM_LANES, 4},      {ND_SUM_LANES, 8},    {ND_SUM_LANES, 16},   {ND_SUM_BLOCKS, 4},
    {ND_SUM_BLOCKS, 8},     {ND_SUM_BLOCKS, 16},  {ND_SUM_FUSED, 4},    {ND_SUM_FUSED, 8},
    {ND_SUM_FUSED, 16},     {ND_SUM_FUSED, 32},   {ND_SUM_LANES, 2},    {ND_SUM_TREES, 4},
    {ND_SUM_TREES, 8},      {ND_SUM_TREES, 16},   {ND_SUM_FUSED, 2},
};
enum { N_ORDERS = sizeof orders / sizeof *orders };

/* What follows the sum. */
static void add_outputs(struct nd_candidates *list, struct nd_accumulator item)
{
    static const struct {
        enum nd_sum_type type;
        enum nd_rounding rounding;
    } outputs[] = {{ND_SUM_F16, ND_ROUND_HALF_EVEN},
                   {ND_SUM_F32, ND_ROUND_HALF_EVEN},
                   {ND_SUM_F16, ND_ROUND_TO_ZERO},
                   {ND_SUM_BF16, ND_ROUND_HALF_EVEN}};
    for (size_t o = 0; o < sizeof outputs / sizeof *outputs; o++)
        for (unsigned flags = 0; flags < 16; flags++) {
            item.output = outputs[o].type;
            item.output_rounding = outputs[o].rounding;
            item.is_flushing_inputs = flags & 1;
            item.is_flushing_sums = flags & 2;
            item.is_flushing_output = flags & 4;
            item.overflow = flags & 8 ? ND_SUM_TO_LARGEST : ND_SUM_TO_INFINITY;
            bool is_half = item.output == ND_SUM_F16,
                 is_half_sum = item.sum == ND_SUM_F16 || item.product == ND_SUM_F16;
            /* What would change nothing. */
            if ((item.is_flushing_output && !is_half) || (item.is_flushing_sums && !is_half_sum) ||
                (item.overflow == ND_SUM_TO_LARGEST && !is_half && !is_half_sum))
                continue;
            nd_candidates_keep(list, &item);
        }
}

static void add_orders(struct nd_candidates *list, struct nd_accumulator item)
{
    static const enum nd_sum_type products[] = {ND_SUM_EXACT, ND_SUM_F16, ND_SUM_BF16};
    for (size_t p = 0; p < sizeof products / sizeof *products; p++)
        for (size_t o = 0; o < (item.sum == ND_SUM_EXACT ? 1 : N_ORDERS); o++) {
            item.product = products[p];
            item.order = orders[o];
            item.is_from_zero = false;
            add_outputs(list, item);
            item.is_from_zero = can_be_from_zero(&item);
            if (item.is_from_zero)
                add_outputs(list, item);
        }
}

/* All accumulators that are tried: every type, rounding, alignment, product, flushing, overflow and output type
 * with every named order. Freed by the caller. ND_ERR_MEMORY. */
static enum nd_status nd_accumulator_family(struct nd_accumulator **items, size_t *n, struct nd_error *err)
{
    static const enum nd_sum_type sums[] = {ND_SUM_F32, ND_SUM_F16, ND_SUM_BF16, ND_SUM_TF32, ND_SUM_13BITS};
    static const enum nd_rounding roundings[] = {ND_ROUND_HALF_EVEN, ND_ROUND_TO_ZERO, ND_ROUND_HALF_AWAY};
    struct nd_accumulator *all = NULL;
    size_t n_all = 0;
    struct nd_candidates list = {
        .arithmetics = (void **)&all, .n_arithmetics = &n_all, .arithmetic_bytes = sizeof *all};
    add_orders(&list, (struct nd_accumulator){.sum = ND_SUM_EXACT, .extra_bits = -1});
    for (size_t s = 0; s < sizeof sums / sizeof *sums; s++)
        for (size_t r = 0; r < sizeof roundings / sizeof *roundings; r++)
            for (int extra_bits = -1; extra_bits <= 3; extra_bits++)
                add_orders(&list, (struct nd_accumulator){
                                      .sum = sums[s], .rounding = roundings[r], .extra_bits = extra_bits});
    ND_TRY(nd_candidates_end(&list, err));
    *items = all;
    *n = n_all;
    return ND_OK;
}

/* ---- random vectors that tell accumulators apart ---- */

enum { N_TERMS = ND_BATTERY_TERMS };

/* low to high, both included. */
static int between(uint64_t *state, int low, int high)
{
    return low + (int)(nd_splitmix_next(state) % (uint64_t)(high - low + 1));
}

/* +-1.xxx 2^exponent, of n_bits fraction bits; below 2^-14 cut to what half precision has there. */
static float half_number(uint64_t *state, int exponent, int n_bits)
{
    uint64_t random = nd_splitmix_next(state);
    int fraction = (int)(random >> 32 & 1023) & ~((1 << (10 - n_bits)) - 1), significand = 1024 + fraction;
    if (exponent < -14) {
        significand >>= exponent < -25 ? 11 : -14 - exponent;
        exponent = -14;
    }
    return ldexpf((float)(random & 1 ? -significand : significand), exponent - 10);
}

/* A number, its negative somewhere else, and small ones between. */
static void fill_cancelling(uint64_t *state, float *x)
{
    int top = between(state, 0, 15);
    for (int i = 0; i < N_TERMS; i++)
        x[i] = half_number(state, top - between(state, 4, 24), 10);
    for (int k = 0; k < 3; k++) {
        int i = between(state, 0, N_TERMS - 1), j = between(state, 0, N_TERMS - 1);
        x[i] = half_number(state, top, 10);
        x[j] = -x[i];
    }
}

static void fill_row(uint64_t *state, uint64_t kind, float *x)
{
    static const struct {
        int low, high, n_bits;
    } kinds[] = {{-6, -1, 10}, {-8, 8, 10},    {-26, 2, 10}, {-4, 4, 1},
                 {10, 15, 10}, {-18, -10, 10}, {-14, 14, 3}};
    if (kind >= sizeof kinds / sizeof *kinds) {
        fill_cancelling(state, x);
        return;
    }
    for (int i = 0; i < N_TERMS; i++)
        x[i] = half_number(state, between(state, kinds[kind].low, kinds[kind].high), kinds[kind].n_bits);
    /* With gaps, so that few terms meet. */
    if (nd_splitmix_next(state) % 4 == 0)
        for (int i = 0; i < N_TERMS; i++)
            x[i] = nd_splitmix_next(state) % 4 == 0 ? x[i] : 0;
}

static uint64_t start(uint64_t seed, uint64_t index, uint64_t stream)
{
    uint64_t state = seed;
    state = nd_splitmix_next(&state) ^ index;
    return nd_splitmix_next(&state) ^ stream;
}

void nd_accumulator_random_weights(uint64_t seed, uint64_t index, float w[ND_BATTERY_TERMS])
{
    uint64_t state = start(seed, index, 1);
    for (int i = 0; i < N_TERMS; i++)
        switch (index % 4) {
        case 0:
            w[i] = 1;
            break;
        case 1:
            w[i] = half_number(&state, between(&state, -3, 0), 10);
            break;
        case 2:
            w[i] = half_number(&state, between(&state, -12, 2), 10);
            break;
        default:
            w[i] = half_number(&state, between(&state, -6, 6), 0);
        }
}

void nd_accumulator_random_rows(uint64_t seed, uint64_t index, size_t n_rows, float *x)
{
    uint64_t state = start(seed, index, 2);
    for (size_t i = 0; i < n_rows; i++)
        fill_row(&state, nd_splitmix_next(&state) % 10, x + i * N_TERMS);
}

/* ---- what the battery shows by itself ---- */

enum { N_COUNTED = N_TERMS - 2, N_PAIRS = N_TERMS * (N_TERMS - 1) / 2, MIN_EXPONENT = 5 };

/* How many units of 2^-14 came out, or -1 when that is not a count. Adders of 24 bits that cut may leave a rest
 * of the two large terms, some times 2^-9 = 32 units (the last bit of 24 below 2^15): it is taken away. A
 * larger rest is of a shorter sum, and may have swallowed units. */
static int count_of(float output)
{
    double units = (double)output * 0x1p14;
    if (!(fabs(units) < 2048) || units != floor(units))
        return -1;
    long rest = (long)units % N_TERMS;
    rest += rest < 0 ? N_TERMS : 0;
    return rest <= N_COUNTED ? (int)rest : -1;
}

/* A count without a rest is worth more than one with it. */
static bool is_clean(float output)
{
    return output >= 0 && output <= N_COUNTED * 0x1p-14F;
}

/* l of every pair, from that of the two orders that is a count. How many were read. */
static size_t read_joins(const struct nd_accumulator_block *block, const float *outputs,
                         uint8_t l[N_TERMS * N_TERMS])
{
    float by_pair[N_TERMS * N_TERMS];
    size_t n_read = 0;
    for (size_t i = 0; i < N_TERMS * N_TERMS; i++)
        by_pair[i] = NAN;
    for (size_t r = 0; r < block->n_rows; r++)
        if (block->rows[r].probe == ND_PROBE_ORDER)
            by_pair[block->rows[r].positions[0] * N_TERMS + block->rows[r].positions[1]] = outputs[r];
    for (size_t i = 0; i < N_TERMS; i++)
        for (size_t j = 0; j <= i; j++) {
            float a = by_pair[i * N_TERMS + j], b = by_pair[j * N_TERMS + i];
            int of_a = count_of(a), of_b = count_of(b);
            int count = is_clean(a) && is_clean(b) ? (of_a > of_b ? of_a : of_b)
                        : is_clean(a)              ? of_a
                        : is_clean(b)              ? of_b
                        : of_a >= 0                ? of_a
                                                   : of_b;
            n_read += i != j && count >= 0;
            l[i * N_TERMS + j] = l[j * N_TERMS + i] = (uint8_t)(i == j ? 1 : N_TERMS - (count < 0 ? 0 : count));
        }
    return n_read;
}

/* The size of blocks of neighbours within which nothing is lost, while something is between them. */
static int exact_block(const uint8_t l[N_TERMS * N_TERMS])
{
    for (int size = N_TERMS; size >= 4; size /= 2) {
        bool is_block = true;
        for (int i = 0; i < N_TERMS && is_block; i++)
            for (int j = 0; j < N_TERMS && is_block; j++)
                is_block = i == j || (l[i * N_TERMS + j] == 2) == (i / size == j / size);
        if (is_block)
            return size;
    }
    return 0;
}

static void read_widths(const struct nd_accumulator_block *block, const float *outputs,
                        struct nd_accumulator_readings *out)
{
    out->min_width = 1000;
    out->max_width = MIN_EXPONENT;
    for (size_t r = 0; r < block->n_rows;) {
        int width = MIN_EXPONENT;
        bool is_whole = true;
        const struct nd_accumulator_row *first = &block->rows[r];
        if (first->probe != ND_PROBE_WIDTH) {
            r++;
            continue;
        }
        for (; r < block->n_rows && block->rows[r].probe == ND_PROBE_WIDTH &&
               memcmp(block->rows[r].positions, first->positions, sizeof first->positions) == 0;
             r++) {
            is_whole = is_whole && outputs[r] == ldexpf(0x1p15F, -block->rows[r].exponent);
            width = is_whole ? block->rows[r].exponent : width;
        }
        out->min_width = width < out->min_width ? width : out->min_width;
        out->max_width = width > out->max_width ? width : out->max_width;
    }
}

static void read_range(const struct nd_accumulator_block *block, const float *outputs,
                       struct nd_accumulator_readings *out)
{
    for (size_t r = 0; r < block->n_rows; r++) {
        if (block->rows[r].probe != ND_PROBE_RANGE)
            continue;
        out->n_range++;
        out->n_infinite += isinf(outputs[r]) != 0;
        out->n_nan += isnan(outputs[r]) != 0;
        out->n_wide += outputs[r] == 0x1p15F;
        /* 65504 - 32768, and 65504 that nothing was taken from. */
        out->n_largest += outputs[r] == 32736 || outputs[r] == 65504;
    }
}

bool nd_accumulator_undo_one_up(const float *values, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) {
        int64_t factor;
        out[i] = values[i];
        if (values[i] == 0 || isnan(values[i]) || isinf(values[i]))
            continue;
        int exponent = ilogbf(values[i]) < -14 ? -14 : ilogbf(values[i]);
        out[i] = copysignf(fabsf(values[i]) - ldexpf(1, exponent - 23), values[i]);
        if (fabsf(out[i]) == 65536)
            out[i] = copysignf(INFINITY, values[i]);
        else if (!nd_accumulator_factors(&out[i], 1, &factor))
            return false;
    }
    return true;
}

/* Of outputs that are converted already: is_one_up is left to the caller. */
static void nd_accumulator_read(const struct nd_accumulator_battery *battery, const float *const *outputs,
                                struct nd_accumulator_readings *out)
{
    uint8_t l[N_TERMS * N_TERMS];
    const struct nd_accumulator_block *ones = &battery->blocks[0];
    *out = (struct nd_accumulator_readings){0};
    out->n_pairs_read = read_joins(ones, outputs[0], l);
    out->has_tree = out->n_pairs_read == N_PAIRS && nd_sum_tree_from_joins(l, N_TERMS, &out->tree);
    out->exact_block = out->has_tree || out->n_pairs_read < N_PAIRS ? 0 : exact_block(l);
    read_widths(ones, outputs[0], out);
    read_range(ones, outputs[0], out);
}

/* Which accumulators the outputs of the battery do not exclude, and whether that holds on random vectors. */

enum { NEAREST_ROWS = 96 };

/* Equal as nd_accumulator_identify has it. */
static bool nd_accumulator_is_same_output(float a, float b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* Rows of one or more blocks, as factors, with what the device gave for them. */
struct observations {
    int64_t *x;        /* [n, 32] */
    const int64_t **w; /* [n] */
    float *outputs;    /* [n] */
    size_t n;
    int64_t weights[ND_BATTERY_BLOCKS][N_TERMS];
};

static void observations_deinit(struct observations *seen)
{
    free(seen->x);
    free(seen->w);
    free(seen->outputs);
}

static enum nd_status observations_alloc(struct observations *seen, size_t n, struct nd_error *err)
{
    size_t n_factors;
    ND_TRY_MEMORY(nd_size_mul(n, N_TERMS, &n_factors), err);
    seen->x = nd_calloc(n_factors, sizeof *seen->x);
    seen->w = nd_calloc(n, sizeof *seen->w);
    seen->outputs = nd_calloc(n, sizeof *seen->outputs);
    return seen->x == NULL || seen->w == NULL || seen->outputs == NULL ? nd_fail_memory(err) : ND_OK;
}

static void take_factors(const float *values, int64_t *out)
{
    bool is_half = nd_accumulator_factors(values, N_TERMS, out);
    assert(is_half);
    (void)is_half;
}

static size_t common_divisor(size_t a, size_t b)
{
    return b == 0 ? a : common_divisor(b, a % b);
}

/* All rows of the battery, mixed: the first few already show most of what there is. */
static enum nd_status observe(const struct nd_accumulator_battery *battery, const float *const *outputs,
                              struct observations *seen, struct nd_error *err)
{
    size_t n = 0, stride = 2741, at = 0;
    for (size_t b = 0; b < ND_BATTERY_BLOCKS; b++)
        n += battery->blocks[b].n_rows;
    ND_TRY(observations_alloc(seen, n, err));
    while (common_divisor(stride, n) != 1)
        stride++;
    for (size_t b = 0; b < ND_BATTERY_BLOCKS; b++) {
        take_factors(battery->blocks[b].w, seen->weights[b]);
        for (size_t r = 0; r < battery->blocks[b].n_rows; r++) {
            take_factors(battery->blocks[b].x + r * N_TERMS, seen->x + at * N_TERMS);
            seen->w[at] = seen->weights[b];
            seen->outputs[at] = outputs[b][r];
            at = (at + stride) % n;
        }
    }
    seen->n = n;
    return ND_OK;
}

/* The tree of an accumulator; false: it needs one that was not read. */
static bool tree_of(const struct nd_accumulator *item, const struct nd_accumulator_readings *readings,
                    struct nd_sum_tree *out)
{
    if (item->order.kind != ND_SUM_GIVEN) {
        nd_sum_tree_of(&item->order, N_TERMS, out);
        return true;
    }
    if (readings->has_tree)
        *out = readings->tree;
    return readings->has_tree;
}

/* How many outputs the accumulator gives; counting ends once it misses more than n_allowed. */
static size_t count_matches(const struct nd_accumulator *item, const struct nd_accumulator_readings *readings,
                            const struct observations *seen, size_t n_allowed)
{
    struct nd_sum_tree tree;
    size_t n_missed = 0;
    if (!tree_of(item, readings, &tree))
        return 0;
    for (size_t i = 0; i < seen->n; i++) {
        float output = nd_accumulate_factors(item, &tree, seen->x + i * N_TERMS, seen->w[i]);
        if (nd_accumulator_is_same_output(output, seen->outputs[i]))
            continue;
        if (n_missed++ == n_allowed)
            return 0;
    }
    return seen->n - n_missed;
}

/* Keeps in order those that give all outputs. */
static enum nd_status sift(struct nd_accumulator_findings *findings, const struct nd_accumulator *hypotheses,
                           size_t n_hypotheses, const struct observations *seen, struct nd_error *err)
{
    struct nd_candidates candidates = {.arithmetics = (void **)&findings->items,
                                       .n_arithmetics = &findings->n,
                                       .arithmetic_bytes = sizeof *findings->items};
    findings->n_hypotheses = n_hypotheses;
    for (size_t i = 0; i < n_hypotheses; i++)
        if (count_matches(&hypotheses[i], &findings->readings, seen, 0) == seen->n)
            nd_candidates_keep(&candidates, &hypotheses[i]);
    return nd_candidates_end(&candidates, err);
}

/* Which one gives most of the first outputs, which are of all kinds; how many of all it gives. */
static void find_nearest(struct nd_accumulator_findings *findings, const struct nd_accumulator *hypotheses,
                         size_t n_hypotheses, const struct observations *seen)
{
    struct observations few = *seen;
    size_t n_max = 0;
    few.n = seen->n < NEAREST_ROWS ? seen->n : NEAREST_ROWS;
    for (size_t i = 0; i < n_hypotheses; i++) {
        size_t n_matching = count_matches(&hypotheses[i], &findings->readings, &few, few.n - n_max);
        if (n_matching > n_max) {
            findings->nearest = hypotheses[i];
            n_max = n_matching;
        }
    }
    if (n_max > 0)
        findings->n_nearest = count_matches(&findings->nearest, &findings->readings, seen, seen->n);
}

/* Outputs that all are one unit up are taken back to what they were; else a copy. */
static enum nd_status convert(const struct nd_accumulator_battery *battery, const float *const *outputs,
                              float *converted[ND_BATTERY_BLOCKS], bool *is_one_up, struct nd_error *err)
{
    *is_one_up = true;
    for (size_t b = 0; b < ND_BATTERY_BLOCKS; b++) {
        size_t n = battery->blocks[b].n_rows;
        converted[b] = nd_calloc(n, sizeof *converted[b]);
        ND_TRY_MEMORY(converted[b] != NULL, err);
        *is_one_up = *is_one_up && nd_accumulator_undo_one_up(outputs[b], n, converted[b]);
    }
    for (size_t b = 0; b < ND_BATTERY_BLOCKS && !*is_one_up; b++)
        memcpy(converted[b], outputs[b], battery->blocks[b].n_rows * sizeof *converted[b]);
    return ND_OK;
}

static bool is_named_tree(const struct nd_accumulator *items, size_t n, const struct nd_sum_tree *tree)
{
    for (size_t i = 0; i < n; i++) {
        struct nd_sum_tree other;
        if (i > 0 && items[i].order.kind == items[i - 1].order.kind &&
            items[i].order.width == items[i - 1].order.width)
            continue;
        nd_sum_tree_of(&items[i].order, N_TERMS, &other);
        if (nd_sum_tree_equal(tree, &other))
            return true;
    }
    return false;
}

/* The family; behind it, once more with the tree that was read, unless a named order has that. */
static enum nd_status make_family(const struct nd_accumulator_readings *readings, struct nd_accumulator **items,
                                  size_t *n, struct nd_error *err)
{
    ND_TRY(nd_accumulator_family(items, n, err));
    if (!readings->has_tree || is_named_tree(*items, *n, &readings->tree))
        return ND_OK;
    size_t n_named = *n, capacity = n_named;
    for (size_t i = 0; i < n_named; i++) {
        if ((*items)[i].order.kind != ND_SUM_SEQUENTIAL || (*items)[i].sum == ND_SUM_EXACT)
            continue;
        if (!nd_grow((void **)items, &capacity, *n + 1, sizeof **items)) {
            free(*items);
            return nd_fail_memory(err);
        }
        (*items)[*n] = (*items)[i];
        (*items)[(*n)++].order = (struct nd_sum_order){.kind = ND_SUM_GIVEN};
    }
    return ND_OK;
}

enum nd_status nd_accumulator_identify(const struct nd_accumulator_battery *battery,
                                       const float *const *outputs, const struct nd_accumulator *hypotheses,
                                       size_t n_hypotheses, struct nd_accumulator_findings *out,
                                       struct nd_error *err)
{
    struct nd_accumulator_findings findings = {0};
    ND_CLEANUP(observations_deinit) struct observations seen = {0};
    ND_FREED struct nd_accumulator *family = NULL;
    float *converted[ND_BATTERY_BLOCKS] = {NULL};
    bool is_one_up = false;
    enum nd_status status = convert(battery, outputs, converted, &is_one_up, err);
    const float *const borrowed[ND_BATTERY_BLOCKS] = {converted[0], converted[1]};
    if (status == ND_OK)
        status = observe(battery, borrowed, &seen, err);
    if (status == ND_OK) {
        nd_accumulator_read(battery, borrowed, &findings.readings);
        findings.readings.is_one_up = is_one_up;
    }
    if (status == ND_OK && hypotheses == NULL) {
        status = make_family(&findings.readings, &family, &n_hypotheses, err);
        hypotheses = family;
    }
    if (status == ND_OK)
        status = sift(&findings, hypotheses, n_hypotheses, &seen, err);
    if (status == ND_OK && findings.n == 0)
        find_nearest(&findings, hypotheses, n_hypotheses, &seen);
    findings.n_outputs = seen.n;
    if (status == ND_OK)
        *out = findings;
    else
        nd_accumulator_findings_deinit(&findings);
    for (size_t b = 0; b < ND_BATTERY_BLOCKS; b++)
        free(converted[b]);
    return status;
}

void nd_accumulator_findings_deinit(struct nd_accumulator_findings *findings)
{
    free(findings->items);
    *findings = (struct nd_accumulator_findings){0};
}

/* One block of random vectors. */
static enum nd_status confirm_block(struct nd_accumulator_findings *findings, const struct observations *seen,
                                    bool *is_missed, struct nd_error *err)
{
    ND_FREED bool *is_kept = nd_calloc(findings->n, sizeof *is_kept);
    size_t n_kept = 0;
    ND_TRY_MEMORY(is_kept != NULL, err);
    memset(is_missed, 1, seen->n * sizeof *is_missed);
    for (size_t k = 0; k < findings->n; k++) {
        struct nd_sum_tree tree;
        is_kept[k] = tree_of(&findings->items[k], &findings->readings, &tree);
        for (size_t i = 0; i < seen->n; i++) {
            float output = nd_accumulate_factors(&findings->items[k], &tree, seen->x + i * N_TERMS, seen->w[i]);
            bool is_same = nd_accumulator_is_same_output(output, seen->outputs[i]);
            is_kept[k] &= is_same;
            is_missed[i] &= !is_same;
        }
        n_kept += is_kept[k];
    }
    if (n_kept > 0) {
        size_t n = 0;
        for (size_t k = 0; k < findings->n; k++)
            if (is_kept[k])
                findings->items[n++] = findings->items[k];
        findings->n = n;
    }
    for (size_t i = 0; i < seen->n; i++) {
        findings->n_confirmed += !is_missed[i];
        findings->n_failed += is_missed[i];
    }
    /* Each was given by one of them, but all by none. */
    if (n_kept == 0)
        findings->n_failed += findings->n_failed == 0;
    return ND_OK;
}

/* What is not one unit up stays as it is, and is found to differ: it is no half precision number. */
static void undo_each(float *outputs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float undone;
        if (nd_accumulator_undo_one_up(&outputs[i], 1, &undone))
            outputs[i] = undone;
    }
}

enum nd_status nd_accumulator_confirm(struct nd_accumulator_findings *findings, nd_accumulator_device *device,
                                      void *context, uint64_t n_vectors, uint64_t seed, struct nd_error *err)
{
    ND_CLEANUP(observations_deinit) struct observations seen = {.n = ND_CONFIRMING_BLOCK};
    float w[N_TERMS];
    ND_TRY(observations_alloc(&seen, ND_CONFIRMING_BLOCK, err));
    ND_FREED float *x = nd_calloc((size_t)ND_CONFIRMING_BLOCK * N_TERMS, sizeof *x);
    ND_FREED bool *is_missed = nd_calloc(ND_CONFIRMING_BLOCK, sizeof *is_missed);
    ND_TRY_MEMORY(x != NULL && is_missed != NULL, err);
    for (uint64_t done = 0, block = 0; findings->n > 0 && done < n_vectors;
         done += ND_CONFIRMING_BLOCK, block++) {
        nd_accumulator_random_weights(seed, block, w);
        nd_accumulator_random_rows(seed, block, ND_CONFIRMING_BLOCK, x);
        ND_TRY(device(context, w, x, ND_CONFIRMING_BLOCK, seen.outputs, err));
        if (findings->readings.is_one_up)
            undo_each(seen.outputs, ND_CONFIRMING_BLOCK);
        take_factors(w, seen.weights[0]);
        for (size_t i = 0; i < ND_CONFIRMING_BLOCK; i++) {
            take_factors(x + i * N_TERMS, seen.x + i * N_TERMS);
            seen.w[i] = seen.weights[0];
        }
        ND_TRY(confirm_block(findings, &seen, is_missed, err));
    }
    return ND_OK;
}

bool nd_accumulator_is_confirmed(const struct nd_accumulator_findings *findings)
{
    return findings->n > 0 && findings->n_failed == 0 && findings->n_confirmed >= ND_CONFIRMING_VECTORS;
}
