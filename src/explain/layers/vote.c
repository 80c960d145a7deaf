/* What chipsets have in common: the plurality of their codes. Lineages vote, not devices, and where they do not
 * agree the vote abstains. docs/science/theory.md#vote. */
#include <math.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "explain/stages.h"

/* A lineage: devices whose codes are all the same have one vote. */
static bool votes_in(const struct nd_plan *plan, const struct nd_explanation *out, size_t device, size_t step)
{
    return !plan->sources[device].is_failed && plan->sources[device].same_as == device &&
           out->devices[device].units[step].has_total;
}

/* Groups of identical devices, and votes by which the commonest code must be ahead on average; chosen: with two
 * groups there is no majority, and a margin of one is a single device (docs/science/theory.md#vote). */
enum { LEAST_LINEAGES = 3, LEAST_MARGIN = 2 };

static size_t count_lineages(const struct nd_plan *plan, const struct nd_explanation *out)
{
    size_t n = 0;
    for (size_t d = 0; d < plan->n_devices; d++) {
        bool has_output = false;
        for (size_t s = 0; s < plan->n_steps; s++)
            has_output = has_output || (out->steps[s].is_model_output && votes_in(plan, out, d, s));
        n += has_output;
    }
    return n;
}

/* An output that no reference reaches, or NULL. */
static const struct nd_explained_step *find_unreached(const struct nd_explanation *out)
{
    for (size_t s = 0; s < out->n_steps; s++)
        if (out->steps[s].is_model_output && out->steps[s].unreached_from != SIZE_MAX)
            return &out->steps[s];
    return NULL;
}

static enum nd_status say_why(const struct nd_explanation *out, struct nd_explained_vote *vote,
                              struct nd_error *err)
{
    struct nd_strbuf why = {0};
    const struct nd_explained_step *unreached = find_unreached(out);
    if (vote->n_lineages == 0 && unreached != NULL)
        nd_strbuf_printf(&why, "output '%s' has no reference", unreached->name);
    else if (vote->n_lineages < LEAST_LINEAGES)
        nd_strbuf_printf(
            &why,
            "the devices form %zu group%s; with fewer than %d nobody can say which one is the odd one out",
            vote->n_lineages, vote->n_lineages == 1 ? "" : "s", LEAST_LINEAGES);
    else
        nd_strbuf_printf(&why,
                         "the devices form %zu groups, and no value is common enough to say which one is the "
                         "odd one out: the most "
                         "common value leads by %.2f votes, %d are needed",
                         vote->n_lineages, vote->margin, LEAST_MARGIN);
    vote->why_not = nd_strbuf_take(&why);
    return vote->why_not != NULL ? ND_OK : nd_fail_memory(err);
}

enum nd_status nd_explain_conclude_vote(const struct nd_evaluation *evaluation, struct nd_explanation *out,
                                        struct nd_error *err)
{
    const struct nd_plan *plan = evaluation->plan;
    struct nd_explained_vote *vote = &out->vote;
    double n_voted = 0, n_split = 0, margin = 0, divergence = 0;
    for (size_t i = 0; i < plan->n_samples * plan->n_steps; i++) {
        const struct nd_reference_sums *r = &evaluation->reference[i];
        if (out->steps[i % plan->n_steps].unreached_from != SIZE_MAX)
            continue;
        n_voted += (double)r->n_voted;
        n_split += (double)r->n_split;
        margin += r->margin;
        divergence += r->common_divergence;
    }
    vote->n_lineages = count_lineages(plan, out);
    vote->split_share = n_voted > 0 ? n_split / n_voted : NAN;
    vote->margin = n_split > 0 ? margin / n_split : NAN;
    /* Without a difference there is nothing to be decided. */
    vote->is_known = vote->n_lineages >= LEAST_LINEAGES && (n_split == 0 || vote->margin >= LEAST_MARGIN);
    vote->common_divergence = vote->is_known ? divergence / n_voted : NAN;
    return vote->is_known ? ND_OK : say_why(out, vote, err);
}
