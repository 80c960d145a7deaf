/* What the writers of a campaign's result have in common. */
#ifndef ND_REPORT_QUALIFICATION_H
#define ND_REPORT_QUALIFICATION_H

#include "npudiff/judge/judge.h"

/* The gate of a case; one that is not there gives an empty gate. */
const struct nd_qualified_gate *nd_qualified_gate_of(const struct nd_qualified *result,
                                                     const struct nd_qualified_case *one);

/* Whether a case is about that model and device. */
bool nd_qualified_is_about(const struct nd_qualified_case *one, const struct nd_qualified_model *model,
                           const struct nd_qualified_device *device);

#endif
