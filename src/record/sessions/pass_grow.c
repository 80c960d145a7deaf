#include "record/sessions/pass_grow.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/memory.h"
#include "record/sessions/pass_split.h"

const struct nd_edge *nd_planner_edge(const struct nd_planner *p, size_t at)
{
    return nd_model_edge(p->of->model, p->of->edges[at]);
}

static bool is_output_of_first(const struct nd_planner *p, size_t at)
{
    return p->plan->pass_of_edge[at] == 0 && nd_planner_edge(p, at)->is_model_output;
}

bool nd_planner_has_outputs(const struct nd_planner *p)
{
    bool has_any = false;
    for (size_t i = 0; i < p->of->n_edges; i++)
        has_any = has_any || is_output_of_first(p, i);
    return has_any;
}

void nd_planner_show_outputs(struct nd_planner *p, bool is_shown)
{
    for (size_t i = 0; i < p->of->n_edges; i++)
        if (is_output_of_first(p, i))
            p->is_shown[i] = is_shown;
}

enum nd_status nd_planner_try_shown(struct nd_planner *p, struct nd_tried *out, struct nd_error *err)
{
    size_t n = 0;
    p->is_late = p->is_late || (p->of->has_time != NULL && !p->of->has_time(p->of->context));
    if (p->is_late) {
        snprintf(out->reason, sizeof out->reason, "there was no time to try the sessions that could show it");
        return ND_OK;
    }
    for (size_t i = 0; i < p->of->n_edges; i++)
        if (p->is_shown[i])
            p->scratch[n++] = p->of->edges[i];
    p->plan->n_trials++;
    return p->of->trial(p->of->context, p->scratch, n, out, err);
}

enum nd_status nd_planner_try_beside(struct nd_planner *p, const struct nd_candidate *x, size_t n,
                                     struct nd_tried *out, struct nd_error *err)
{
    for (size_t i = 0; i < n; i++)
        p->is_shown[x[i].at] = true;
    enum nd_status status = nd_planner_try_shown(p, out, err);
    for (size_t i = 0; i < n; i++)
        p->is_shown[x[i].at] = false;
    return status;
}

void nd_planner_accept(struct nd_planner *p, const struct nd_candidate *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        p->is_shown[x[i].at] = p->is_member[x[i].at] = true;
        p->n_accepted[x[i].kind]++;
    }
    p->n_members += n;
}

enum nd_status nd_planner_give_up(struct nd_planner *p, size_t at, const struct nd_tried *trial,
                                  struct nd_error *err)
{
    char text[512];
    const char *reason = trial->reason;
    if (reason[0] == '\0') {
        snprintf(text, sizeof text, "recording it moves %zu node%s to the CPU, first '%s'", trial->fallen.n,
                 trial->fallen.n == 1 ? "" : "s", trial->fallen.n > 0 ? trial->fallen.names[0] : "");
        reason = text;
    }
    p->plan->reasons[at] = nd_strdup(reason);
    return p->plan->reasons[at] != NULL ? ND_OK : nd_fail_memory(err);
}

/* Tries the edge in a pass that has nothing yet: alone, in the model cut behind it, where alone_too is set, and
 * else in the whole model with its outputs beside it. *is_taken: the pass has it now. */
static enum nd_status try_apart(struct nd_planner *p, const struct nd_candidate *x, bool alone_too,
                                bool *is_taken, struct nd_error *err)
{
    struct nd_tried alone = {0}, beside = {0};
    enum nd_status status = alone_too ? nd_planner_try_beside(p, x, 1, &alone, err) : ND_OK;
    if (status == ND_OK && !alone.holds && nd_planner_has_outputs(p) && !p->fails_beside[x->at]) {
        nd_planner_show_outputs(p, true);
        status = nd_planner_try_beside(p, x, 1, &beside, err);
        p->with_outputs = p->is_closed = status == ND_OK && beside.holds;
        if (!p->with_outputs)
            nd_planner_show_outputs(p, false);
    }
    *is_taken = status == ND_OK && (alone.holds || beside.holds);
    if (*is_taken)
        nd_planner_accept(p, x, 1);
    nd_tried_deinit(&alone);
    nd_tried_deinit(&beside);
    return status;
}

/* The last resort for an edge whose codes no session shows: the floats that the model makes of them. */
static enum nd_status try_floats(struct nd_planner *p, const struct nd_candidate *x, bool *is_taken,
                                 struct nd_error *err)
{
    const struct nd_recording *of = p->of;
    if (of->use_floats == NULL || !of->use_floats(of->context, of->edges[x->at], true))
        return ND_OK;
    p->fails_beside[x->at] = false;
    enum nd_status status = try_apart(p, x, true, is_taken, err);
    if (!*is_taken)
        of->use_floats(of->context, of->edges[x->at], false);
    return status;
}

/* An edge that does not hold beside what the pass has. Where the pass has nothing yet, the edge does not even
 * hold alone, in the model cut behind it. */
static enum nd_status reject(struct nd_planner *p, const struct nd_candidate *x, const struct nd_tried *trial,
                             struct nd_error *err)
{
    bool is_taken = false;
    p->n_rejected[x->kind]++;
    if (p->n_members == p->n_seeds && (p->n_seeds > 0 || p->with_outputs))
        p->fails_beside[x->at] = true;
    if (p->n_members > 0 || p->with_outputs)
        return ND_OK;
    enum nd_status status = try_apart(p, x, false, &is_taken, err);
    if (status == ND_OK && !is_taken)
        status = try_floats(p, x, &is_taken, err);
    return status == ND_OK && !is_taken ? nd_planner_give_up(p, x->at, trial, err) : status;
}

/* Edges of one kind that do not hold together, of which single ones do not hold either: they are left to a
 * later pass without a look at each. */
static bool is_presumed(const struct nd_planner *p, const struct nd_candidate *x, size_t n)
{
    size_t accepted = p->n_accepted[x[0].kind], rejected = p->n_rejected[x[0].kind];
    for (size_t i = 1; i < n; i++)
        if (x[i].kind != x[0].kind)
            return false;
    return n > 1 && ((rejected > 0 && accepted < 2) || (rejected > 1 && accepted < 2 * rejected));
}

enum nd_status nd_planner_grow(struct nd_planner *p, struct nd_candidate *x, size_t n,
                               const struct nd_tried *known, struct nd_error *err)
{
    struct nd_tried own = {0};
    enum nd_status status = ND_OK;
    if (n == 0 || p->is_closed)
        return ND_OK;
    if (known == NULL)
        status = nd_planner_try_beside(p, x, n, &own, err);
    if (known == NULL)
        known = &own;
    if (status == ND_OK && known->holds) {
        nd_planner_accept(p, x, n);
    } else if (status == ND_OK && n == 1) {
        status = reject(p, x, known, err);
    } else if (status == ND_OK && !p->is_late && !is_presumed(p, x, n)) {
        size_t before = p->n_members;
        nd_near_kinds(p->of->model, p->kinds, &known->fallen, p->is_near);
        size_t k = nd_split(x, n, p->is_near, p->n_accepted, p->n_rejected);
        status = nd_planner_grow(p, x, k, NULL, err);
        if (status == ND_OK)
            status = nd_planner_grow(p, x + k, n - k, p->n_members - before == k ? known : NULL, err);
    }
    nd_tried_deinit(&own);
    return status;
}
