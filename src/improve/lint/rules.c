#include "improve/lint/rules.h"

static const struct nd_lint_rule rules[] = {
#define ND_LINT_RULE(id, look, level, is_mended, what, why, where, cost, mend, evidence)                       \
    {id, ND_LINT_##level, what, why, where, cost, mend, evidence, is_mended},
#include "improve/lint/rules.def"
#undef ND_LINT_RULE
};

static nd_lint_look *const looks[] = {
#define ND_LINT_RULE(id, look, level, is_mended, what, why, where, cost, mend, evidence) look,
#include "improve/lint/rules.def"
#undef ND_LINT_RULE
};

const struct nd_lint_rule *nd_lint_rules(size_t *n)
{
    *n = sizeof rules / sizeof rules[0];
    return rules;
}

nd_lint_look *nd_lint_look_of(size_t rule)
{
    return looks[rule];
}

const char *nd_lint_level_name(enum nd_lint_level level)
{
    static const char *const names[] = {"error", "warning", "note"};
    return names[level];
}
