#include "record/sessions/pass_plan.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "record/sessions/edge_kinds.h"
#include "record/sessions/pass_grow.h"

void nd_pass_plan_deinit(struct nd_pass_plan *plan)
{
    for (size_t i = 0; plan->reasons != NULL && i < plan->n_edges; i++)
        free(plan->reasons[i]);
    for (size_t p = 0; plan->passes != NULL && p < plan->n_passes; p++)
        free(plan->passes[p].checks);
    free(plan->reasons);
    free(plan->passes);
    free(plan->pass_of_edge);
    *plan = (struct nd_pass_plan){0};
}

static void begin_pass(struct nd_planner *p, bool with_outputs)
{
    size_t n_kinds = nd_model_n_edges(p->of->model);
    memset(p->is_shown, 0, p->of->n_edges * sizeof *p->is_shown);
    memset(p->is_member, 0, p->of->n_edges * sizeof *p->is_member);
    memset(p->n_accepted, 0, n_kinds * sizeof *p->n_accepted);
    memset(p->n_rejected, 0, n_kinds * sizeof *p->n_rejected);
    p->n_members = p->n_seeds = 0;
    p->is_closed = false;
    p->with_outputs = with_outputs;
    p->with_sources = false;
    if (with_outputs)
        nd_planner_show_outputs(p, true);
}

/* What no pass has yet. */
static size_t list_candidates(struct nd_planner *p)
{
    size_t n = 0;
    for (size_t i = 0; i < p->of->n_edges; i++)
        if (p->plan->pass_of_edge[i] == SIZE_MAX && p->plan->reasons[i] == NULL && !p->is_member[i] &&
            !(p->with_outputs && p->fails_beside[i]))
            p->candidates[n++] = (struct nd_candidate){i, p->kinds[p->of->edges[i]]};
    return n;
}

/* Shows what the candidates and the members are computed from, as far as pass 0 has it. */
static void show_sources(struct nd_planner *p, const struct nd_candidate *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p->is_member[x[i].at] = true;
    for (size_t u = 0; u < nd_model_n_units(p->of->model); u++) {
        const struct nd_model_unit *unit = nd_model_unit(p->of->model, u);
        for (size_t i = 0; i < p->of->n_edges; i++)
            for (size_t k = 0; p->is_member[i] && p->of->edges[i] == unit->edge && k < unit->n_inputs; k++)
                for (size_t at = 0; at < p->of->n_edges; at++)
                    if (p->of->edges[at] == unit->inputs[k] && p->plan->pass_of_edge[at] == 0)
                        p->is_shown[at] = true;
    }
    for (size_t i = 0; i < n; i++)
        p->is_member[x[i].at] = false;
}

/* All that is left in one pass without the outputs, where that holds: one trial for what else takes several,
 * and perhaps several passes. */
static enum nd_status take_all_cut(struct nd_planner *p, struct nd_error *err)
{
    struct nd_tried trial = {0};
    begin_pass(p, false);
    size_t n = list_candidates(p);
    show_sources(p, p->candidates, n);
    enum nd_status status = nd_planner_try_beside(p, p->candidates, n, &trial, err);
    if (status == ND_OK && trial.holds) {
        nd_planner_accept(p, p->candidates, n);
        p->with_sources = true;
    }
    nd_tried_deinit(&trial);
    return status;
}

/* All that is left in one pass: beside the outputs, or else cut. Where neither holds, it has no members, and
 * *beside says what the session with the outputs did. */
static enum nd_status take_all(struct nd_planner *p, struct nd_tried *beside, struct nd_error *err)
{
    begin_pass(p, true);
    size_t n = list_candidates(p);
    if (n == 0)
        return ND_OK;
    enum nd_status status = nd_planner_try_beside(p, p->candidates, n, beside, err);
    if (status == ND_OK && beside->holds)
        nd_planner_accept(p, p->candidates, n);
    else if (status == ND_OK)
        status = take_all_cut(p, err);
    return status;
}

/* With the outputs beside it, as long as any edge can be shown so. *seeded is false from then on. */
static enum nd_status grow_later(struct nd_planner *p, bool *seeded, struct nd_error *err)
{
    struct nd_tried beside = {0};
    enum nd_status status = ND_OK;
    begin_pass(p, *seeded);
    if (*seeded)
        status = take_all(p, &beside, err);
    if (status == ND_OK && *seeded && p->n_members == 0) {
        begin_pass(p, true);
        status = nd_planner_grow(p, p->candidates, list_candidates(p), &beside, err);
    }
    nd_tried_deinit(&beside);
    if (status != ND_OK || p->n_members > 0)
        return status;
    *seeded = false;
    begin_pass(p, false);
    return nd_planner_grow(p, p->candidates, list_candidates(p), NULL, err);
}

/* What a pass has that pass 0 has as well: the outputs, or what its edges are computed from. */
static enum nd_status choose_checks(struct nd_planner *p, struct nd_planned_pass *pass, struct nd_error *err)
{
    struct nd_tried trial = {0};
    enum nd_status status = ND_OK;
    size_t n = 0;
    bool is_tried = p->with_outputs || p->with_sources;
    if (!is_tried)
        show_sources(p, NULL, 0);
    for (size_t i = 0; i < p->of->n_edges; i++)
        n += p->is_shown[i] && !p->is_member[i];
    if (n > 0 && !is_tried)
        status = nd_planner_try_shown(p, &trial, err);
    bool do_hold = is_tried || trial.holds;
    nd_tried_deinit(&trial);
    pass->checks = nd_calloc(n, sizeof *pass->checks);
    if (status == ND_OK && pass->checks == NULL)
        status = nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && do_hold && i < p->of->n_edges; i++)
        if (p->is_shown[i] && !p->is_member[i])
            pass->checks[pass->n_checks++] = i;
    return status;
}

static enum nd_status end_pass(struct nd_planner *p, struct nd_error *err)
{
    struct nd_pass_plan *plan = p->plan;
    struct nd_planned_pass *grown = realloc(plan->passes, (plan->n_passes + 1) * sizeof *grown);
    if (grown == NULL)
        return nd_fail_memory(err);
    plan->passes = grown;
    struct nd_planned_pass *pass = &plan->passes[plan->n_passes];
    *pass = (struct nd_planned_pass){0};
    enum nd_status status = plan->n_passes > 0 ? choose_checks(p, pass, err) : ND_OK;
    for (size_t i = 0; i < p->of->n_edges; i++)
        if (p->is_member[i])
            plan->pass_of_edge[i] = plan->n_passes;
    plan->n_passes++;
    return status;
}

/* Takes the first pass in work again, with what it has. */
static void reopen_first(struct nd_planner *p)
{
    begin_pass(p, false);
    p->plan->n_passes = 0;
    for (size_t i = 0; i < p->of->n_edges; i++) {
        if (p->plan->pass_of_edge[i] != 0)
            continue;
        p->plan->pass_of_edge[i] = SIZE_MAX;
        p->n_seeds += nd_planner_edge(p, i)->is_model_output;
        nd_planner_accept(p, &(struct nd_candidate){i, p->kinds[p->of->edges[i]]}, 1);
    }
}

/* Two passes are the fewest where one session does not show all. The first one has all but what the nodes that
 * fell read: where a second one holds the rest, nothing else is tried, and it is in work. */
static enum nd_status take_rest(struct nd_planner *p, bool *is_taken, struct nd_error *err)
{
    struct nd_tried beside = {0};
    enum nd_status status = end_pass(p, err);
    if (status == ND_OK)
        status = take_all(p, &beside, err);
    nd_tried_deinit(&beside);
    *is_taken = status == ND_OK && p->n_members > 0;
    if (status == ND_OK && !*is_taken)
        reopen_first(p);
    return status;
}

/* all: what the session did that shows every edge. */
static enum nd_status grow_in_parts(struct nd_planner *p, const struct nd_tried *all, struct nd_error *err)
{
    size_t n = list_candidates(p);
    bool is_taken = false;
    nd_read_kinds(p->of->model, p->kinds, &all->fallen, p->is_near);
    size_t k = nd_part_suspects(p->candidates, n, p->is_near);
    if (all->holds || p->n_seeds == 0 || k == 0 || k == n)
        return nd_planner_grow(p, p->candidates, n, all, err);
    enum nd_status status = nd_planner_grow(p, p->candidates, k, NULL, err);
    if (status != ND_OK || p->n_members - p->n_seeds < k)
        return status == ND_OK ? nd_planner_grow(p, p->candidates + k, n - k, NULL, err) : status;
    status = take_rest(p, &is_taken, err);
    if (status == ND_OK && !is_taken)
        status = nd_planner_grow(p, p->candidates, list_candidates(p), all, err);
    return status;
}

static enum nd_status grow_first(struct nd_planner *p, struct nd_error *err)
{
    struct nd_tried own = {0};
    enum nd_status status = ND_OK;
    begin_pass(p, false);
    for (size_t i = 0; p->of->do_outputs_hold && i < p->of->n_edges; i++)
        if (nd_planner_edge(p, i)->is_model_output)
            nd_planner_accept(p, &(struct nd_candidate){i, p->kinds[p->of->edges[i]]}, 1);
    p->n_seeds = p->n_members;
    size_t n = list_candidates(p);
    if (p->of->first == NULL && n > 0)
        status = nd_planner_try_beside(p, p->candidates, n, &own, err);
    if (status == ND_OK && n > 0)
        status = grow_in_parts(p, p->of->first != NULL ? p->of->first : &own, err);
    nd_tried_deinit(&own);
    return status;
}

static enum nd_status make_passes(struct nd_planner *p, struct nd_error *err)
{
    static const struct nd_tried late = {.reason = "there was no time to try the sessions that could show it"};
    bool seeded = true;
    enum nd_status status = grow_first(p, err);
    for (;;) {
        if (status == ND_OK && p->n_members > 0)
            status = end_pass(p, err);
        memset(p->is_member, 0, p->of->n_edges * sizeof *p->is_member);
        p->with_outputs = false;
        size_t n_left = list_candidates(p);
        if (status != ND_OK || n_left == 0)
            return status;
        for (size_t i = 0; status == ND_OK && p->is_late && i < n_left; i++)
            status = nd_planner_give_up(p, p->candidates[i].at, &late, err);
        if (p->is_late)
            return status;
        seeded = seeded && nd_planner_has_outputs(p);
        status = grow_later(p, &seeded, err);
    }
}

enum nd_status nd_plan_passes(const struct nd_recording *recording, struct nd_pass_plan *out,
                              struct nd_error *err)
{
    size_t n_edges = recording->n_edges, n_kinds = nd_model_n_edges(recording->model);
    struct nd_pass_plan plan = {.pass_of_edge = nd_calloc(n_edges, sizeof *plan.pass_of_edge),
                                .reasons = nd_calloc(n_edges, sizeof *plan.reasons),
                                .n_edges = n_edges};
    struct nd_planner p = {.of = recording,
                           .plan = &plan,
                           .candidates = nd_calloc(n_edges, sizeof *p.candidates),
                           .is_shown = nd_calloc(n_edges, sizeof *p.is_shown),
                           .is_member = nd_calloc(n_edges, sizeof *p.is_member),
                           .n_accepted = nd_calloc(n_kinds, sizeof *p.n_accepted),
                           .n_rejected = nd_calloc(n_kinds, sizeof *p.n_rejected),
                           .is_near = nd_calloc(n_kinds, sizeof *p.is_near),
                           .fails_beside = nd_calloc(n_edges, sizeof *p.fails_beside),
                           .scratch = nd_calloc(n_edges, sizeof *p.scratch)};
    bool is_whole = plan.pass_of_edge != NULL && plan.reasons != NULL && p.candidates != NULL &&
                    p.is_shown != NULL && p.is_member != NULL && p.n_accepted != NULL && p.n_rejected != NULL &&
                    p.is_near != NULL && p.fails_beside != NULL && p.scratch != NULL;
    enum nd_status status = is_whole ? nd_edge_kinds(recording->model, &p.kinds, err) : nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && i < n_edges; i++)
        plan.pass_of_edge[i] = SIZE_MAX;
    if (status == ND_OK)
        status = make_passes(&p, err);
    free(p.kinds);
    free(p.candidates);
    free(p.is_shown);
    free(p.is_member);
    free(p.n_accepted);
    free(p.n_rejected);
    free(p.is_near);
    free(p.fails_beside);
    free(p.scratch);
    if (status == ND_OK)
        *out = plan;
    else
        nd_pass_plan_deinit(&plan);
    return status;
}
