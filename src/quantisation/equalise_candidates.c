/* Cross-layer equalisation of the pairs of one layer, and of the whole model. */
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "quantisation/candidates.h"

/* Factors that differ by less gain nothing that is worth a trial: half a bit. Chosen. */
static const double min_spread = 1.5;

/* Whether values of all tensors that the pair scales are known. */
static bool is_known(const struct nd_study *study, const struct nd_pair *pair)
{
    for (size_t i = 0; i < pair->n_between; i++)
        if (!study->out->layers[pair->between[i].step].is_known)
            return false;
    return study->out->layers[pair->second.step].is_known;
}

static enum nd_status say(struct nd_candidate *c, const struct nd_study *study, const size_t *pairs, size_t n,
                          struct nd_error *err)
{
    struct nd_strbuf text = {0};
    nd_strbuf_puts(&text, "cross-layer equalisation with ");
    for (size_t i = 0; i < n; i++) {
        const struct nd_pair *pair = &study->pairs[pairs[i]];
        size_t other = pair->first.step == c->step ? pair->second.step : pair->first.step;
        c->remedy.partners[c->remedy.n_partners++] = other;
        nd_strbuf_printf(&text, "%s'%s'", i > 0 ? " and " : "", study->plan->steps[other].name);
    }
    nd_strbuf_printf(&text, " (channels divided by %.2g to %.2g)", c->equalised.least, c->equalised.most);
    c->remedy.text = nd_strbuf_take(&text);
    return c->remedy.text != NULL ? ND_OK : nd_fail_memory(err);
}

static enum nd_status try_pairs(struct nd_search *search, size_t step, const size_t *pairs, size_t n,
                                struct nd_error *err)
{
    const struct nd_study *study = search->study;
    struct nd_equalised equalised;
    enum nd_status status = nd_equalise(study, pairs, n, &equalised, err);
    bool is_worth_it = equalised.most > min_spread * equalised.least;
    if (status != ND_OK || !is_worth_it || equalised.n_changes > ND_MAX_TIED) {
        nd_equalised_deinit(&equalised);
        return status;
    }
    struct nd_candidate *c = nd_add_candidate(search, step, ND_REMEDY_EQUALISE);
    c->equalised = equalised;
    c->n_changes = equalised.n_changes;
    c->watched = study->pairs[pairs[n - 1]].second.step;
    memcpy(c->changes, equalised.changes, equalised.n_changes * sizeof *equalised.changes);
    return say(c, study, pairs, n, err);
}

enum nd_status nd_try_equalising(struct nd_search *search, size_t step, struct nd_error *err)
{
    const struct nd_study *study = search->study;
    size_t found[2], n = 0;
    enum nd_status status = ND_OK;
    for (size_t p = 0; p < study->n_pairs && n < 2; p++) {
        const struct nd_pair *pair = &study->pairs[p];
        if ((pair->first.step == step || pair->second.step == step) && is_known(study, pair))
            found[n++] = p;
    }
    for (size_t i = 0; i < n && status == ND_OK; i++)
        status = try_pairs(search, step, &found[i], 1, err);
    return n == 2 && status == ND_OK ? try_pairs(search, step, found, n, err) : status;
}

enum nd_status nd_equalise_all(const struct nd_study *study, struct nd_equalised *out, struct nd_error *err)
{
    size_t n = 0, *pairs = nd_calloc(study->n_pairs, sizeof *pairs);
    *out = (struct nd_equalised){0};
    if (pairs == NULL)
        return nd_fail_memory(err);
    for (size_t p = 0; p < study->n_pairs; p++)
        if (is_known(study, &study->pairs[p]))
            pairs[n++] = p;
    enum nd_status status = n > 0 ? nd_equalise(study, pairs, n, out, err) : ND_OK;
    free(pairs);
    return status;
}
