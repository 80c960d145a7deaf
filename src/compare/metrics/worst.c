/* The worst elements. docs/reference/metrics.md#worst. */
#include <math.h>
#include <string.h>

#include "compare/metrics/states.h"
#include "core/error.h"
#include "core/memory.h"

static const struct nd_metric_field fields[] = {
    {ND_METRIC_FIELD_WORST, offsetof(struct nd_worst_state, list), 0}};

static enum nd_status init(struct nd_pair_state *state, const struct nd_pair_context *context,
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

static void update(struct nd_pair_state *state, const struct nd_pair_context *context,
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

static enum nd_status finish(const struct nd_pair_state *state, const struct nd_pair_context *context,
                             struct nd_difference *out, struct nd_error *err)
{
    (void)context;
    const struct nd_worst_list *list = &state->worst.list;
    if (list->n == 0)
        return ND_OK;
    out->worst = nd_calloc(list->n, sizeof *out->worst);
    if (out->worst == NULL)
        return nd_fail_memory(err);
    memcpy(out->worst, list->items, list->n * sizeof *out->worst);
    out->n_worst = list->n;
    return ND_OK;
}

const struct nd_metric nd_metric_worst = {
    .name = "worst",
    .offset = offsetof(struct nd_pair_state, worst),
    .fields = fields,
    .n_fields = sizeof fields / sizeof fields[0],
    .init = init,
    .update = update,
    .finish = finish,
};
