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

/* ---- qualify_judge_accuracy.c ---- */

#endif
