/* Which sum of pairs in 16 bits gives the values of a layer. docs/reference/diagnoses.md. */
#include "explain/layer_diagnosis/pair_sums.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"

/* Of the quantised values that exact sums get wrong the best must leave at most this share. Chosen: it only
 * saves the second pass, the diagnosis then asks for 0.01 of them. With both 400 networks without such sums
 * have none that is named (docs/reference/diagnoses.md). */
static const double worth_share = 0.05;

void nd_explain_pairs_init(struct nd_explain_pairs *pairs)
{
    *pairs = (struct nd_explain_pairs){.chosen = SIZE_MAX};
}

void nd_explain_pairs_deinit(struct nd_explain_pairs *pairs)
{
    free(pairs->qvalues);
    nd_explain_pairs_init(pairs);
}

struct look {
    struct nd_explain_pairs *pairs;
    const struct nd_array *given;
    double *qvalues;
};

static enum nd_status look_at(void *context, size_t which, const struct nd_array *qvalues, struct nd_error *err)
{
    (void)err;
    const struct look *look = context;
    struct nd_explain_pairs *pairs = look->pairs;
    if (qvalues->n != look->given->n)
        return ND_OK;
    if (look->qvalues != NULL) {
        if (which == pairs->chosen)
            memcpy(look->qvalues, qvalues->x, qvalues->n * sizeof *qvalues->x);
        return ND_OK;
    }
    pairs->is_tried[which] = true;
    for (size_t i = 0; i < qvalues->n; i++)
        pairs->n_wrong[which] += qvalues->x[i] != look->given->x[i];
    return ND_OK;
}

enum nd_status nd_explain_pairs_look(struct nd_explain_pairs *pairs, const struct nd_exact_layer *layer,
                                     const struct nd_rounding_rule *usual, const struct nd_array *given,
                                     double *qvalues, struct nd_error *err)
{
    struct look look = {pairs, given, qvalues};
    pairs->n_known += qvalues == NULL ? given->n : 0;
    return nd_layer_in_pairs(layer, usual, look_at, &look, err);
}

enum nd_status nd_explain_pairs_choose(struct nd_explain_pairs *pairs, size_t n_wrong, size_t n, bool *is_worth,
                                       struct nd_error *err)
{
    size_t best = SIZE_MAX;
    *is_worth = false;
    for (size_t s = 0; s < ND_N_PAIR_SUMS; s++)
        if (pairs->is_tried[s] && (best == SIZE_MAX || pairs->n_wrong[s] < pairs->n_wrong[best]))
            best = s;
    if (best == SIZE_MAX || n_wrong == 0 || (double)pairs->n_wrong[best] > worth_share * (double)n_wrong)
        return ND_OK;
    pairs->qvalues = nd_calloc(n, sizeof *pairs->qvalues);
    ND_TRY_MEMORY(pairs->qvalues != NULL, err);
    pairs->chosen = best;
    *is_worth = true;
    return ND_OK;
}

void nd_explain_pairs_text(const struct nd_explain_pairs *pairs, char buf[ND_PAIR_SUM_TEXT_BYTES])
{
    const struct nd_pair_sum *sums = nd_pair_sums(), *chosen = &sums[pairs->chosen];
    size_t n_other = 0;
    bool has_orders = false;
    for (size_t s = 0; s < ND_N_PAIR_SUMS; s++) {
        has_orders = has_orders || (pairs->is_tried[s] && sums[s].order != ND_PAIR_CHANNELS_FASTEST);
        n_other += pairs->is_tried[s] && pairs->n_wrong[s] == pairs->n_wrong[pairs->chosen] &&
                   (sums[s].is_wrapping != chosen->is_wrapping || sums[s].distance != chosen->distance);
    }
    nd_pair_sum_text(chosen, has_orders, buf);
    size_t length = strlen(buf);
    if (n_other > 0)
        snprintf(buf + length, ND_PAIR_SUM_TEXT_BYTES - length, "; other pairs fit as well");
}
