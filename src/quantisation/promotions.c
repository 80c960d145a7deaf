#include "quantisation/promotions.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "quantisation/candidates.h"

struct nd_promotions {
    struct nd_study study;
    struct nd_search search;
    struct nd_promotion *items; /* [n] */
    size_t n;
};

/* Of all layers whose effect is known. */
static enum nd_status find_candidates(struct nd_promotions *p, struct nd_error *err)
{
    static const enum nd_remedy_kind kinds[] = {ND_REMEDY_WEIGHT_CHANNELS, ND_REMEDY_16_BITS};
    const struct nd_quantisation *out = p->study.out;
    size_t n_kinds = sizeof kinds / sizeof kinds[0];
    p->search =
        (struct nd_search){&p->study, nd_calloc(out->n_ranked * n_kinds + 1, sizeof *p->search.candidates), 0};
    enum nd_status status = p->search.candidates != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t s = 0; s < out->n_layers; s++)
        for (size_t i = 0; i < out->n_ranked; i++)
            for (size_t k = 0; k < n_kinds && out->ranked[i] == s && status == ND_OK; k++)
                status = nd_find_candidate(&p->search, s, kinds[k], err);
    return status;
}

static enum nd_status list_candidates(struct nd_promotions *p, struct nd_error *err)
{
    p->items = nd_calloc(p->search.n + 1, sizeof *p->items);
    if (p->items == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < p->search.n; i++) {
        const struct nd_candidate *c = &p->search.candidates[i];
        if (c->n_changes > 0)
            p->items[p->n++] = (struct nd_promotion){
                c->step, c->remedy.kind, p->study.out->layers[c->step].effect_share, c->changes, c->n_changes};
    }
    return ND_OK;
}

enum nd_status nd_promotions_find(const struct nd_plan *plan, struct nd_promotions **out, struct nd_error *err)
{
    struct nd_promotions *p = nd_calloc(1, sizeof *p);
    if (p == NULL)
        return nd_fail_memory(err);
    enum nd_status status = nd_study_init(&p->study, plan, err);
    if (status == ND_OK)
        status = nd_study_rank(&p->study, err);
    if (status == ND_OK)
        status = find_candidates(p, err);
    if (status == ND_OK)
        status = list_candidates(p, err);
    if (status == ND_OK)
        *out = p;
    else
        nd_promotions_destroy(&p);
    return status;
}

void nd_promotions_destroy(struct nd_promotions **promotions)
{
    struct nd_promotions *p = *promotions;
    if (p == NULL)
        return;
    nd_search_deinit(&p->search);
    nd_study_deinit(&p->study);
    free(p->items);
    free(p);
    *promotions = NULL;
}

size_t nd_promotions_n(const struct nd_promotions *promotions)
{
    return promotions->n;
}

const struct nd_promotion *nd_promotions_at(const struct nd_promotions *promotions, size_t i)
{
    return &promotions->items[i];
}

double nd_promotions_sqnr_db(const struct nd_promotions *promotions)
{
    return promotions->study.out->output_sqnr_db;
}

size_t nd_promotions_n_samples(const struct nd_promotions *promotions)
{
    return promotions->study.n_effect_samples;
}

/* The changes of those that were kept, and behind them those of item i: 0 where both change the same. */
static size_t join(const struct nd_promotions *p, const size_t *kept, size_t n_kept, size_t i,
                   struct nd_change *changes)
{
    const struct nd_promotion *item = &p->items[i];
    size_t n = 0;
    for (size_t k = 0; k < n_kept; k++) {
        memcpy(changes + n, p->items[kept[k]].changes, p->items[kept[k]].n_changes * sizeof *changes);
        n += p->items[kept[k]].n_changes;
    }
    const struct nd_trial trial = {.changes = changes, .n_changes = n};
    if (nd_trial_overlaps(&trial, item->changes, item->n_changes))
        return 0;
    memcpy(changes + n, item->changes, item->n_changes * sizeof *changes);
    return n + item->n_changes;
}

enum nd_status nd_promotions_try(struct nd_promotions *p, const size_t *kept, size_t n_kept, double *sqnr_db,
                                 struct nd_error *err)
{
    size_t n_most = (n_kept + 1) * ND_MOST_TIED;
    struct nd_change *changes = nd_calloc(p->n * n_most + 1, sizeof *changes);
    struct nd_trial *trials = nd_calloc(p->n + 1, sizeof *trials);
    enum nd_status status = changes != NULL && trials != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; i < p->n && status == ND_OK; i++)
        trials[i] = (struct nd_trial){.changes = changes + i * n_most,
                                      .n_changes = join(p, kept, n_kept, i, changes + i * n_most),
                                      .watched = SIZE_MAX};
    if (status == ND_OK)
        status = nd_run_trials(&p->study, trials, p->n, err);
    for (size_t i = 0; i < p->n && status == ND_OK; i++)
        sqnr_db[i] = trials[i].n_changes > 0 ? trials[i].sqnr_db : (double)NAN;
    free(changes);
    free(trials);
    return status;
}
