/* One gate on one device while it is judged. Its files only: qualify_judge.c and qualify_judge_accuracy.c. */
#ifndef ND_JUDGE_JUDGING_H
#define ND_JUDGE_JUDGING_H

#include "judge/release/qualify.h"

/* What is judged, and where it stands. */
struct nd_judging {
    const struct nd_qualification *q;
    const struct nd_qualify_model *model;
    const struct nd_qualify_cell *cell; /* of the device */
    size_t device, rule;
    const struct nd_policy_rule *gate;
    struct nd_case *out;
};

/* The verdict becomes the worse of what it was and this one. */
void nd_judging_conclude(struct nd_case *out, enum nd_case_verdict verdict);

/* Whether that would make it worse. */
bool nd_judging_outranks(enum nd_case_verdict verdict, const struct nd_case *out);

/* edge: where, or NULL. */
void nd_judging_note_not_comparable(struct nd_case *out, const char *edge, const char *why);

/* Whether the rule is about that edge and probe. */
bool nd_judging_governs(const struct nd_judging *j, const struct nd_scope_edge *edge,
                        const struct nd_scope_probe *probe);

/* ---- qualify_judge_accuracy.c ---- */

void nd_judge_accuracy(struct nd_judging *j);
void nd_judge_target(struct nd_judging *j);

#endif
