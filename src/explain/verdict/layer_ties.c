/* Which rule a layer follows where the exact value lies half way between two codes. The rules for ties differ
 * on ties alone: where one of them gives every value of the layer and half to even does not, all that differs
 * lies on ties. */
#include "explain/verdict/health.h"

/* Values that differ from half to even. Formula: next to a tie arithmetic in floats falls either way, so that n
 * ties follow one of three rules by chance with probability 3 / 2^n; below 10^-3 from here on. */
enum { FEWEST_TIES = 12 };

/* Where no value of one sign lies on a tie two rules are the same. */
static const char *name_rule(bool is_up, bool is_away, bool is_down)
{
    if (is_up && is_away)
        return "half up or half away from zero";
    if (is_down && is_away)
        return "half down or half away from zero";
    return is_up ? "half up" : is_away ? "half away from zero" : is_down ? "half down" : NULL;
}

static bool gives_all(const struct nd_code_tally *tally, enum nd_rounding rounding)
{
    size_t n;
    const struct nd_program *programs = nd_programs(&n);
    for (size_t p = 0; p < n; p++)
        if (programs[p].kind == ND_PROGRAM_SINGLE && programs[p].rounding == rounding)
            return tally->wrong[p] == 0;
    return false;
}

void nd_explain_find_tie_rule(const struct nd_code_tally *tally, struct nd_explained_unit *unit)
{
    bool is_even = gives_all(tally, ND_ROUND_HALF_EVEN);
    unit->n_ties = 0;
    unit->tie_rule = NULL;
    if (is_even || unit->local.n_differing < FEWEST_TIES)
        return;
    unit->tie_rule = name_rule(gives_all(tally, ND_ROUND_HALF_UP), gives_all(tally, ND_ROUND_HALF_AWAY),
                               gives_all(tally, ND_ROUND_HALF_DOWN));
    unit->n_ties = unit->tie_rule != NULL ? unit->local.n_differing : 0;
}
