/* The accumulators that are tried. */
#include <stdlib.h>

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

enum nd_status nd_accumulator_family(struct nd_accumulator **items, size_t *n, struct nd_error *err)
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
    enum nd_status status = nd_candidates_end(&list, err);
    if (status == ND_OK) {
        *items = all;
        *n = n_all;
    }
    return status;
}
