#include "explain/exam/hypotheses.h"

#include <stdarg.h>
#include <stdio.h>

static void ND_PRINTF(4, 5) add_hypothesis(struct nd_exam_hypotheses *h, enum nd_fault_kind kind,
                                           const double *codes, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(h->texts[h->n], sizeof h->texts[h->n], fmt, args);
    va_end(args);
    h->items[h->n] = (struct nd_hypothesis){kind, h->texts[h->n], codes};
    h->n++;
}

static void add_pairs(const struct nd_exam *exam, struct nd_exam_hypotheses *h)
{
    char text[ND_PAIR_SUM_TEXT_BYTES];
    bool is_wrapping = nd_pair_sums()[exam->pairs.chosen].is_wrapping;
    nd_explain_pairs_text(&exam->pairs, text);
    add_hypothesis(h, is_wrapping ? ND_FAULT_PAIR_WRAP : ND_FAULT_PAIR_SATURATION, exam->pairs.codes, "%s",
                   text);
}

static void add_constants(const struct nd_exam *exam, struct nd_exam_hypotheses *h)
{
    char text[ND_CONSTANTS_TEXT_BYTES];
    enum nd_fault_kind kind = nd_explain_constants_text(&exam->constants, text);
    add_hypothesis(h, kind, exam->constants.codes, "%s", text);
}

void nd_exam_make_hypotheses(const struct nd_exam *exam, struct nd_exam_hypotheses *h)
{
    const struct nd_model *model = exam->job->plan->model;
    char name[ND_PROGRAM_NAME_BYTES], usual[ND_PROGRAM_NAME_BYTES];
    bool is_float = exam->other.kind == ND_PROGRAM_FLOAT32 ||
                    (exam->other.kind == ND_PROGRAM_SINGLE && exam->other.rounding <= ND_ROUND_HALF_DOWN);
    /* Two rules for ties alone: what differs lies on ties. */
    bool is_tie = exam->unit_program == NULL && exam->usual.kind == ND_PROGRAM_SINGLE &&
                  exam->other.kind == ND_PROGRAM_SINGLE && exam->usual.rounding <= ND_ROUND_HALF_DOWN &&
                  exam->other.rounding <= ND_ROUND_HALF_DOWN;
    h->n = 0;
    if (exam->has_other && is_tie)
        add_hypothesis(h, ND_FAULT_FALLBACK, exam->others, "ties are rounded %s, not %s, as floats may be",
                       nd_program_name(&exam->other, name), nd_program_name(&exam->usual, usual));
    else if (exam->has_other)
        add_hypothesis(h, is_float ? ND_FAULT_FALLBACK : ND_FAULT_ROUNDING, exam->others,
                       is_float ? "rounded %s, as floats are" : "rounded by %s",
                       nd_program_name(&exam->other, name));
    for (size_t k = 0; k < exam->n_fusions; k++)
        add_hypothesis(h, ND_FAULT_FUSION, exam->fusions[k], "fused with '%.120s'",
                       nd_model_edge(model, exam->fused[k])->name);
    for (size_t k = 0; k < exam->n_operands && exam->forced == 0; k++)
        add_hypothesis(h, ND_FAULT_STALE_OPERAND, exam->stale[k],
                       "computed with '%.100s' of the previous sample",
                       nd_model_edge(model, exam->operands[k])->name);
    if (exam->transposed != NULL && exam->forced == 0)
        add_hypothesis(h, ND_FAULT_TRANSPOSED_WEIGHTS, exam->transposed, "%s",
                       "its weights are transposed: their bytes are read in the other order");
    if (exam->other_scales != NULL && exam->forced == 0)
        add_hypothesis(h, ND_FAULT_SCALES_AXIS, exam->other_scales,
                       "the scales of its weights are taken along axis %d; they belong to axis %d",
                       exam->other_axis, exam->own_axis);
    if (exam->pairs.codes != NULL && exam->forced == 0)
        add_pairs(exam, h);
    if (exam->constants.codes != NULL && exam->forced == 0)
        add_constants(exam, h);
}
