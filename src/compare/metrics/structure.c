/* Where the differing elements are, and which are the worst. docs/reference/metrics.md#structure and #worst. */
#include <math.h>
#include <string.h>

#include "compare/metrics/permutation.h"
#include "compare/metrics/states.h"
#include "core/error.h"
#include "core/memory.h"

static const struct nd_metric_field structure_fields[] = {
    {ND_METRIC_FIELD_STRIDE, offsetof(struct nd_structure_state, stride), 0},
    {ND_METRIC_FIELD_COUNT, offsetof(struct nd_structure_state, n_runs), 0},
    {ND_METRIC_FIELD_MAX, offsetof(struct nd_structure_state, longest_run), 0},
    {ND_METRIC_FIELD_BITSET, offsetof(struct nd_structure_state, axes), ND_MAX_RANK},
    {ND_METRIC_FIELD_FIRST, offsetof(struct nd_structure_state, permutation), 0},
};

enum { MAX_AXIS = 65536 };

const char *nd_pattern_name(enum nd_pattern pattern)
{
    static const char *const names[] = {"none",   "one element", "one coordinate", "permuted axes", "range",
                                        "stride", "from 2^k on", "scattered",      "everywhere"};
    return (size_t)pattern < sizeof names / sizeof names[0] ? names[pattern] : "unknown";
}

static enum nd_status init_structure(struct nd_pair_state *state, const struct nd_pair_context *context,
                                     struct nd_error *err)
{
    const struct nd_shape *shape = &context->ref.shape;
    for (int i = 0; i < shape->rank; i++)
        if (shape->dims[i] > 0 && shape->dims[i] <= MAX_AXIS &&
            !nd_bitset_reserve(&state->structure.axes[i], (size_t)shape->dims[i]))
            return nd_fail_memory(err);
    return ND_OK;
}

/* Leaves the bits that are followed by one `step` further on; false when none is left. */
static bool keep_followed(uint64_t *bits, size_t step)
{
    uint64_t any = 0;
    size_t words = step / 64, shift = step % 64;
    for (size_t w = 0; w < ND_BLOCK_WORDS; w++) {
        uint64_t low = w + words < ND_BLOCK_WORDS ? bits[w + words] : 0;
        uint64_t high = w + words + 1 < ND_BLOCK_WORDS ? bits[w + words + 1] : 0;
        bits[w] &= low >> shift | high << 1 << (63 - shift);
        any |= bits[w];
    }
    return any != 0;
}

/* Bits that begin `length` ones become bits that begin more of them, in steps that double, until the longest
 * run that is known is surpassed, or none is left. */
static uint64_t lengthen(uint64_t *bits, uint64_t longest)
{
    uint64_t length = 1, wanted = longest + 1;
    while (length < wanted) {
        uint64_t step = length < wanted - length ? length : wanted - length;
        if (!keep_followed(bits, step))
            return longest;
        length += step;
    }
    while (keep_followed(bits, 1))
        length++;
    return length;
}

static void add_runs(struct nd_structure_state *structure, const struct nd_pair_block *block)
{
    uint64_t bits[ND_BLOCK_WORDS], before = 0;
    memcpy(bits, block->bits, sizeof bits);
    for (size_t w = 0; w < ND_BLOCK_WORDS; w++) {
        structure->n_runs += (uint64_t)__builtin_popcountll(bits[w] & ~(bits[w] << 1 | before));
        before = bits[w] >> 63;
    }
    if (block->n_differing > structure->longest_run)
        structure->longest_run = lengthen(bits, structure->longest_run);
}

static bool are_axes_full(const struct nd_structure_state *structure, const struct nd_shape *shape)
{
    for (int i = 0; i < shape->rank; i++)
        if (structure->axes[i].n_set < structure->axes[i].n_bits)
            return false;
    return true;
}

static void add_row(struct nd_structure_state *structure, const struct nd_shape *shape, size_t row)
{
    for (int i = shape->rank - 2; i >= 0; i--) {
        size_t dim = (size_t)shape->dims[i];
        if (structure->axes[i].n_bits > 0)
            nd_bitset_add(&structure->axes[i], row % dim);
        row /= dim;
    }
}

/* Whether an element in [from, end) of the block differs. */
static bool has_set(const uint64_t *bits, size_t from, size_t end)
{
    uint64_t head = UINT64_MAX << from % 64, tail = UINT64_MAX >> (63 - (end - 1) % 64);
    size_t first = from / 64, last = (end - 1) / 64;
    if (first == last)
        return (bits[first] & head & tail) != 0;
    uint64_t any = (bits[first] & head) | (bits[last] & tail);
    for (size_t w = first + 1; w < last; w++)
        any |= bits[w];
    return any != 0;
}

static void add_columns(struct nd_bitset *columns, const struct nd_pair_block *block, size_t from, size_t end,
                        size_t column)
{
    for (size_t i = from; i < end; i++)
        if (block->bits[i / 64] >> i % 64 & 1)
            nd_bitset_add(columns, column + i - from);
}

/* Row by row of the innermost dimension. */
static void add_coordinates(struct nd_structure_state *structure, const struct nd_shape *shape,
                            const struct nd_pair_block *block)
{
    if (shape->rank == 0 || are_axes_full(structure, shape))
        return;
    size_t width = (size_t)shape->dims[shape->rank - 1], row = block->first / width;
    size_t column = block->first % width;
    struct nd_bitset *columns = &structure->axes[shape->rank - 1];
    for (size_t from = 0; from < block->n; row++, column = 0) {
        size_t end = width - column < block->n - from ? from + width - column : block->n;
        if (has_set(block->bits, from, end)) {
            add_row(structure, shape, row);
            if (columns->n_set < columns->n_bits)
                add_columns(columns, block, from, end, column);
        }
        from = end;
    }
}

static void update_structure(struct nd_pair_state *state, const struct nd_pair_context *context,
                             const struct nd_pair_block *block)
{
    struct nd_structure_state *structure = &state->structure;
    add_runs(structure, block);
    add_coordinates(structure, &context->ref.shape, block);
    nd_stride_add(&structure->stride, block->first + block->last_differing);
    nd_stride_add(&structure->stride, block->first + block->first_differing);
    if (structure->stride.divisor == 1)
        return;
    const uint16_t *differing = nd_pair_block_differing(block);
    for (size_t k = 0; k < block->n_differing && structure->stride.divisor != 1; k++)
        nd_stride_add(&structure->stride, block->first + differing[k]);
}

static void describe_axis(const struct nd_bitset *set, struct nd_axis_span *span)
{
    *span = (struct nd_axis_span){.is_known = set->n_bits > 0, .n = set->n_set};
    bool is_found = false;
    for (size_t i = 0; i < set->n_bits; i++) {
        if ((set->words[i / 64] >> (i % 64) & 1) == 0)
            continue;
        span->first = is_found ? span->first : i;
        span->last = i;
        is_found = true;
    }
}

static int find_single_coordinate(const struct nd_shape *shape, const struct nd_structure *structure)
{
    for (int i = 0; i < shape->rank; i++)
        if (shape->dims[i] > 1 && structure->axes[i].is_known && structure->axes[i].n == 1)
            return i;
    return -1;
}

static enum nd_pattern classify(const struct nd_pair_state *state, const struct nd_shape *shape, size_t n_elems,
                                struct nd_structure *out)
{
    const struct nd_first *permutation = &state->structure.permutation;
    uint64_t first = out->first_index, last = out->last_index;
    out->axis = find_single_coordinate(shape, out);
    if (first == last)
        return ND_PATTERN_ONE_ELEMENT;
    if (out->axis >= 0)
        return ND_PATTERN_ONE_COORDINATE;
    if (permutation->is_set && permutation->note > 0) {
        nd_permutation_describe(shape, permutation->note, out->permutation);
        return ND_PATTERN_PERMUTED_AXES;
    }
    bool is_whole = first == 0 && last == n_elems - 1;
    if (!is_whole && state->bits.n_differing == state->bits.n_samples_differing * (last - first + 1))
        return ND_PATTERN_RANGE;
    if (out->stride > 1)
        return ND_PATTERN_STRIDE;
    if (first >= 16 && (first & (first - 1)) == 0 && last >= n_elems - n_elems / 16)
        return ND_PATTERN_FROM_POWER_OF_TWO;
    return out->n_runs > 0 && state->bits.n_differing > state->bits.n_elems / 2 ? ND_PATTERN_EVERYWHERE
                                                                                : ND_PATTERN_SCATTERED;
}

static enum nd_status finish_structure(const struct nd_pair_state *state, const struct nd_pair_context *context,
                                       struct nd_difference *out, struct nd_error *err)
{
    (void)err;
    const struct nd_structure_state *structure = &state->structure;
    const struct nd_shape *shape = &context->ref.shape;
    struct nd_structure made = {.first_index = structure->stride.first,
                                .last_index = structure->stride.last,
                                .stride = structure->stride.divisor,
                                .n_runs = structure->n_runs,
                                .longest_run = structure->longest_run,
                                .axis = -1};
    for (int i = 0; i < shape->rank; i++)
        describe_axis(&structure->axes[i], &made.axes[i]);
    if (structure->stride.is_set)
        made.pattern = classify(state, shape, context->ref.n_elems, &made);
    out->structure = made;
    return ND_OK;
}

const struct nd_metric nd_metric_structure = {
    .name = "structure",
    .offset = offsetof(struct nd_pair_state, structure),
    .fields = structure_fields,
    .n_fields = sizeof structure_fields / sizeof structure_fields[0],
    .init = init_structure,
    .update = update_structure,
    .finish = finish_structure,
};

/* The worst elements. docs/reference/metrics.md#worst. */

static const struct nd_metric_field worst_fields[] = {
    {ND_METRIC_FIELD_WORST, offsetof(struct nd_worst_state, list), 0}};

static enum nd_status init_worst(struct nd_pair_state *state, const struct nd_pair_context *context,
                                 struct nd_error *err)
{
    struct nd_worst_list *list = &state->worst.list;
    list->capacity = context->n_worst;
    if (list->capacity == 0)
        return ND_OK;
    list->items = nd_calloc(list->capacity, sizeof *list->items);
    return list->items != NULL ? ND_OK : nd_fail_memory(err);
}

static void offer(struct nd_worst_list *list, const struct nd_pair_context *context,
                  const struct nd_pair_block *block, size_t i, double error)
{
    size_t ref_bytes = context->ref.elem_bytes, test_bytes = context->test.elem_bytes;
    struct nd_worst item = {
        .place = {.probe = block->probe, .sample = block->sample, .has_index = true, .index = block->first + i},
        .abs_error = error,
        .ref = nd_layout_stored(&context->ref, block->ref.bytes + i * ref_bytes),
        .test = nd_layout_stored(&context->test, block->test.bytes + i * test_bytes),
        .ref_real = context->ref.unit * block->ref.x[i],
        .test_real = context->test.unit * block->test.x[i],
    };
    nd_layout_coordinates(&context->ref.shape, item.place.index, item.place.coordinates);
    nd_worst_offer(list, &item);
}

/* Whether an element of the block may come before the last of the list although their errors are equal. */
static bool is_before_last(const struct nd_worst_list *list, const struct nd_pair_block *block)
{
    const struct nd_difference_place start = {
        .probe = block->probe, .sample = block->sample, .index = block->first};
    return list->n < list->capacity || nd_place_is_before(&start, &list->items[list->n - 1].place);
}

static void offer_measured(struct nd_worst_list *list, const struct nd_pair_context *context,
                           const struct nd_pair_block *block, bool ties_count)
{
    const uint16_t *measured = nd_pair_block_measured(block);
    double unit = fabs(context->ref.unit);
    for (size_t k = 0; k < block->n_measured; k++) {
        size_t i = measured[k];
        double error = unit * fabs(block->test.x[i] - block->ref.x[i]);
        if (list->n < list->capacity || error > list->items[list->n - 1].abs_error ||
            (ties_count && error == list->items[list->n - 1].abs_error)) {
            offer(list, context, block, i, error);
            ties_count = is_before_last(list, block); /* another one is the last now */
        }
    }
}

static void update_worst(struct nd_pair_state *state, const struct nd_pair_context *context,
                         const struct nd_pair_block *block)
{
    struct nd_worst_list *list = &state->worst.list;
    double ref[ND_BLOCK], test[ND_BLOCK];
    if (list->capacity == 0)
        return;
    for (size_t k = 0; k < block->n_unmeasured; k++) {
        size_t i = block->unmeasured[k];
        if (!isnan(block->ref.x[i]) || !isnan(block->test.x[i]))
            offer(list, context, block, i, INFINITY);
    }
    /* Of equal errors the first places count, so a block that comes after all of a full list must be worse. */
    double unit = fabs(context->ref.unit);
    bool ties_count = is_before_last(list, block);
    if (!ties_count && unit * block->sums.max_abs <= list->items[list->n - 1].abs_error)
        return;
    struct nd_pair_block loaded = *block;
    if (block->ref.x == NULL || block->test.x == NULL) {
        nd_layout_load(&context->ref, context->kernels, block->ref.bytes, block->first, block->n, ref);
        nd_layout_load(&context->test, context->kernels, block->test.bytes, block->first, block->n, test);
        loaded.ref.x = ref;
        loaded.test.x = test;
    }
    offer_measured(list, context, &loaded, ties_count);
}

static enum nd_status finish_worst(const struct nd_pair_state *state, const struct nd_pair_context *context,
                                   struct nd_difference *out, struct nd_error *err)
{
    (void)context;
    const struct nd_worst_list *list = &state->worst.list;
    if (list->n == 0)
        return ND_OK;
    out->worst = nd_calloc(list->n, sizeof *out->worst);
    ND_TRY_MEMORY(out->worst != NULL, err);
    memcpy(out->worst, list->items, list->n * sizeof *out->worst);
    out->n_worst = list->n;
    return ND_OK;
}

const struct nd_metric nd_metric_worst = {
    .name = "worst",
    .offset = offsetof(struct nd_pair_state, worst),
    .fields = worst_fields,
    .n_fields = sizeof worst_fields / sizeof worst_fields[0],
    .init = init_worst,
    .update = update_worst,
    .finish = finish_worst,
};
