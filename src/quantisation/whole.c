/* Remedies of the model as a whole: one kind of change in all layers that it concerns. Layers that share a
 * cause hide each other: no single one of them gives the accuracy back. */
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "quantisation/candidates.h"

/* What is tried, and the least gain at the outputs that is worth telling, in dB: chosen. */
static const struct {
    enum nd_remedy_kind kind;
    const char *text;
} kinds[] = {{ND_REMEDY_RANGE, "ranges without mask constants"},
             {ND_REMEDY_WEIGHT_CHANNELS, "8-bit weights with one scale for each channel"},
             {ND_REMEDY_16_BITS, "16-bit outputs"},
             {ND_REMEDY_EQUALISE, "cross-layer equalisation"}};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };
static const double min_gain = 0.5;

/* The changes of all candidates: a new array. NULL: out of memory. */
static struct nd_change *join(const struct nd_search *search, size_t *n_changes, size_t *n_layers)
{
    struct nd_change *changes = nd_calloc(search->n * ND_MAX_TIED, sizeof *changes);
    *n_changes = *n_layers = 0;
    for (size_t i = 0; i < search->n && changes != NULL; i++) {
        const struct nd_candidate *c = &search->candidates[i];
        *n_layers += c->n_changes > 0;
        for (size_t k = 0; k < c->n_changes; k++)
            changes[(*n_changes)++] = c->changes[k];
    }
    return changes;
}

static void tell(struct nd_quantisation *out, const struct nd_whole_remedy *remedy)
{
    size_t at = out->n_whole++;
    for (; at > 0 && out->whole[at - 1].output_gain_db < remedy->output_gain_db; at--)
        out->whole[at] = out->whole[at - 1];
    out->whole[at] = *remedy;
}

/* One kind of change while it is tried. */
struct attempt {
    struct nd_search search;
    struct nd_equalised equalised;
    struct nd_change *changes; /* of the search */
    size_t n_changes;
    struct nd_whole_remedy remedy;
};

static enum nd_status find_changes(struct nd_study *study, size_t kind, struct attempt *attempt,
                                   struct nd_error *err)
{
    size_t n_steps = study->plan->n_steps;
    attempt->search = (struct nd_search){study, nd_calloc(n_steps, sizeof *attempt->search.candidates), 0};
    attempt->remedy = (struct nd_whole_remedy){.kind = kinds[kind].kind, .text = kinds[kind].text};
    ND_TRY(attempt->search.candidates != NULL ? ND_OK : nd_fail_memory(err));
    for (size_t s = 0; s < n_steps; s++)
        if (study->out->layers[s].is_known)
            ND_TRY(nd_find_candidate(&attempt->search, s, kinds[kind].kind, err));
    attempt->changes = join(&attempt->search, &attempt->n_changes, &attempt->remedy.n_layers);
    return attempt->changes != NULL ? ND_OK : nd_fail_memory(err);
}

/* Of all pairs of layers, which move each other: not layer by layer. */
static enum nd_status equalise(struct nd_study *study, size_t kind, struct attempt *attempt,
                               struct nd_error *err)
{
    enum nd_status status = nd_equalise_all(study, &attempt->equalised, err);
    attempt->remedy = (struct nd_whole_remedy){
        .kind = kinds[kind].kind, .text = kinds[kind].text, .n_layers = attempt->equalised.n_layers};
    attempt->n_changes = attempt->equalised.n_changes;
    return status;
}

static const struct nd_change *changes_of(const struct attempt *attempt)
{
    return attempt->changes != NULL ? attempt->changes : attempt->equalised.changes;
}

/* Whether it is more than what layers say of themselves: more than one layer, or than one pair. */
static bool is_of_many(const struct attempt *attempt)
{
    return attempt->remedy.n_layers > (attempt->remedy.kind == ND_REMEDY_EQUALISE ? 2 : 1);
}

/* All kinds in one run of the samples. */
static enum nd_status try_all(struct nd_study *study, struct attempt *attempts, struct nd_error *err)
{
    struct nd_trial trials[N_KINDS];
    size_t n = 0;
    for (size_t kind = 0; kind < N_KINDS; kind++)
        if (is_of_many(&attempts[kind]))
            trials[n++] = (struct nd_trial){.changes = changes_of(&attempts[kind]),
                                            .n_changes = attempts[kind].n_changes,
                                            .watched = SIZE_MAX};
    enum nd_status status = nd_run_trials(study, trials, n, err);
    n = 0;
    for (size_t kind = 0; kind < N_KINDS && status == ND_OK; kind++) {
        struct nd_whole_remedy *remedy = &attempts[kind].remedy;
        if (!is_of_many(&attempts[kind]))
            continue;
        remedy->output_gain_db = trials[n++].sqnr_db - study->out->output_sqnr_db;
        if (remedy->output_gain_db >= min_gain)
            tell(study->out, remedy);
    }
    return status;
}

enum nd_status nd_find_whole_remedies(struct nd_study *study, struct nd_error *err)
{
    struct attempt attempts[N_KINDS] = {0};
    study->out->whole = nd_calloc(N_KINDS, sizeof *study->out->whole);
    enum nd_status status = study->out->whole != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t kind = 0; kind < N_KINDS && status == ND_OK; kind++)
        status = kinds[kind].kind == ND_REMEDY_EQUALISE ? equalise(study, kind, &attempts[kind], err)
                                                        : find_changes(study, kind, &attempts[kind], err);
    if (status == ND_OK)
        status = try_all(study, attempts, err);
    for (size_t kind = 0; kind < N_KINDS; kind++) {
        free(attempts[kind].changes);
        nd_equalised_deinit(&attempts[kind].equalised);
        nd_search_deinit(&attempts[kind].search);
    }
    return status;
}
