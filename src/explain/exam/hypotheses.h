/* What else a device may have computed in a unit: what the exam has worked out, for the diagnosis. */
#ifndef ND_EXPLAIN_HYPOTHESES_H
#define ND_EXPLAIN_HYPOTHESES_H

#include "explain/diagnosis/diagnosis.h"
#include "explain/exam/exam.h"

enum { ND_EXAM_MOST_HYPOTHESES = 5 + ND_EXAM_FUSIONS + ND_EXAM_OPERANDS };

struct nd_exam_hypotheses {
    size_t n;
    struct nd_hypothesis items[ND_EXAM_MOST_HYPOTHESES]; /* borrow texts, and codes of the exam */
    char texts[ND_EXAM_MOST_HYPOTHESES][160];
};

/* Of an exam that has collected its codes. The struct need not be initialised. */
void nd_exam_make_hypotheses(const struct nd_exam *exam, struct nd_exam_hypotheses *out);

#endif
