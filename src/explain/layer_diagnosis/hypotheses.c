/* What a device may have computed in a layer instead: the rival values that diagnosis is shown. */
#include "explain/layer_diagnosis/hypotheses.h"

#include <stdarg.h>
#include <stdio.h>

static void ND_PRINTF(4, 5) add_hypothesis(struct nd_layer_diagnosis_hypotheses *h, enum nd_fault_kind kind,
                                           const double *qvalues, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(h->texts[h->n], sizeof h->texts[h->n], fmt, args);
    va_end(args);
    h->items[h->n] = (struct nd_hypothesis){kind, h->texts[h->n], qvalues};
    h->n++;
}

static void add_pairs(const struct nd_layer_diagnosis *diagnosis, struct nd_layer_diagnosis_hypotheses *h)
{
    char text[ND_PAIR_SUM_TEXT_BYTES];
    bool is_wrapping = nd_pair_sums()[diagnosis->pairs.chosen].is_wrapping;
    nd_explain_pairs_text(&diagnosis->pairs, text);
    add_hypothesis(h, is_wrapping ? ND_FAULT_PAIR_WRAP : ND_FAULT_PAIR_SATURATION, diagnosis->pairs.qvalues,
                   "%s", text);
}

static void add_constants(const struct nd_layer_diagnosis *diagnosis, struct nd_layer_diagnosis_hypotheses *h)
{
    const struct nd_explain_constants *constants = &diagnosis->constants;
    add_hypothesis(h, nd_fault_of_constants(constants->tried[constants->chosen].change.kind),
                   constants->qvalues, "%s", constants->text);
}

void nd_layer_diagnosis_make_hypotheses(const struct nd_layer_diagnosis *diagnosis,
                                        struct nd_layer_diagnosis_hypotheses *h)
{
    const struct nd_model *model = diagnosis->job->plan->model;
    char name[ND_ROUNDING_RULE_NAME_BYTES], usual[ND_ROUNDING_RULE_NAME_BYTES];
    bool is_float =
        diagnosis->other.kind == ND_ROUNDED_AS_FLOAT32 ||
        (diagnosis->other.kind == ND_ROUNDED_ONCE && diagnosis->other.rounding <= ND_ROUND_HALF_DOWN);
    /* Two rules for ties alone: what differs lies on ties. */
    bool is_tie = diagnosis->layer_arithmetic == NULL && diagnosis->usual.kind == ND_ROUNDED_ONCE &&
                  diagnosis->other.kind == ND_ROUNDED_ONCE && diagnosis->usual.rounding <= ND_ROUND_HALF_DOWN &&
                  diagnosis->other.rounding <= ND_ROUND_HALF_DOWN;
    h->n = 0;
    if (diagnosis->has_other && is_tie)
        add_hypothesis(h, ND_FAULT_FALLBACK, diagnosis->others, "ties are rounded %s, not %s, as floats may be",
                       nd_rounding_rule_name(&diagnosis->other, name),
                       nd_rounding_rule_name(&diagnosis->usual, usual));
    else if (diagnosis->has_other)
        add_hypothesis(h, is_float ? ND_FAULT_FALLBACK : ND_FAULT_ROUNDING, diagnosis->others,
                       is_float ? "rounded %s, as floats are" : "rounded by %s",
                       nd_rounding_rule_name(&diagnosis->other, name));
    for (size_t k = 0; k < diagnosis->n_fusions; k++)
        add_hypothesis(h, ND_FAULT_FUSION, diagnosis->fusions[k], "fused with '%.120s'",
                       nd_model_tensor(model, diagnosis->fused[k])->name);
    for (size_t k = 0; k < diagnosis->n_operands && diagnosis->forced == 0; k++)
        add_hypothesis(h, ND_FAULT_STALE_OPERAND, diagnosis->stale[k],
                       "computed with '%.100s' of the previous sample",
                       nd_model_tensor(model, diagnosis->operands[k])->name);
    if (diagnosis->pairs.qvalues != NULL && diagnosis->forced == 0)
        add_pairs(diagnosis, h);
    if (diagnosis->constants.qvalues != NULL && diagnosis->forced == 0)
        add_constants(diagnosis, h);
    if (diagnosis->attribute.qvalues != NULL)
        add_hypothesis(h, ND_FAULT_OTHER_ATTRIBUTE, diagnosis->attribute.qvalues, "%s",
                       diagnosis->attribute.text);
}
