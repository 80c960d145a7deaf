/* The function of each rule. */
#ifndef ND_LINT_RULES_H
#define ND_LINT_RULES_H

#include "improve/lint/lint_job.h"

/* Of the rule with this index in nd_lint_rules. */
nd_lint_look *nd_lint_look_of(size_t rule);

#endif
