#include "record/pass_plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum {
    MAX_PASSES = 8,
    MAX_ROUNDS = 8,   /* of taking edges out of one pass */
    MAX_RETURNS = 32, /* edges tried one by one for a way back into their pass */
};

void nd_fallen_deinit(struct nd_fallen *fallen)
{
    for (size_t i = 0; i < fallen->n; i++)
        free(fallen->names[i]);
    free(fallen->names);
    *fallen = (struct nd_fallen){0};
}

bool nd_fallen_has(const struct nd_fallen *fallen, const char *node)
{
    for (size_t i = 0; node != NULL && i < fallen->n; i++)
        if (strcmp(fallen->names[i], node) == 0)
            return true;
    return false;
}

/* The edges under work: member[i] tells whether edges[i] is in the pass being made. */
struct plan {
    const struct nd_recording *of;
    bool *member;
    bool *taken_out; /* of the pass being made, in this pass */
    size_t *scratch;
};

static size_t count(const bool *flags, size_t n)
{
    size_t n_set = 0;
    for (size_t i = 0; i < n; i++)
        n_set += flags[i];
    return n_set;
}

static enum nd_status try_members(struct plan *plan, struct nd_fallen *fallen, struct nd_error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < plan->of->n_edges; i++)
        if (plan->member[i])
            plan->scratch[n++] = plan->of->edges[i];
    return plan->of->trial(plan->of->context, plan->scratch, n, fallen, err);
}

static bool take_out(struct plan *plan, size_t edge)
{
    for (size_t i = 0; i < plan->of->n_edges; i++)
        if (plan->of->edges[i] == edge && plan->member[i]) {
            plan->member[i] = false;
            plan->taken_out[i] = true;
            return true;
        }
    return false;
}

/* Takes out the edges that fallen units make or read; how many. */
static size_t take_out_around(struct plan *plan, const struct nd_fallen *fallen)
{
    size_t n = 0;
    for (size_t u = 0; u < nd_model_n_units(plan->of->model); u++) {
        const struct nd_model_unit *unit = nd_model_unit(plan->of->model, u);
        if (!nd_fallen_has(fallen, nd_model_edge(plan->of->model, unit->edge)->node))
            continue;
        n += take_out(plan, unit->edge);
        for (size_t i = 0; i < unit->n_inputs; i++)
            n += take_out(plan, unit->inputs[i]);
    }
    return n;
}

/* A session needs an output: of edges that all had to go, the first stays. */
static void keep_one(struct plan *plan)
{
    size_t i = 0;
    if (count(plan->member, plan->of->n_edges) > 0)
        return;
    while (!plan->taken_out[i])
        i++;
    plan->taken_out[i] = false;
    plan->member[i] = true;
}

/* Makes the members a set whose placement holds; false in *holds when taking edges out does not lead there. */
static enum nd_status thin_out(struct plan *plan, bool *holds, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    *holds = false;
    for (int round = 0; status == ND_OK && round < MAX_ROUNDS; round++) {
        struct nd_fallen fallen = {0};
        status = try_members(plan, &fallen, err);
        *holds = status == ND_OK && fallen.n == 0;
        bool goes_on = status == ND_OK && fallen.n > 0 && count(plan->member, plan->of->n_edges) > 1 &&
                       take_out_around(plan, &fallen) > 0;
        nd_fallen_deinit(&fallen);
        if (goes_on)
            keep_one(plan);
        if (!goes_on)
            break;
    }
    return status;
}

/* Most of what was taken out was only near the trouble: what may come back comes back. */
static enum nd_status bring_back(struct plan *plan, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    int n_tried = 0;
    for (size_t i = 0; status == ND_OK && i < plan->of->n_edges && n_tried < MAX_RETURNS; i++) {
        if (!plan->taken_out[i])
            continue;
        struct nd_fallen fallen = {0};
        plan->member[i] = true;
        n_tried++;
        status = try_members(plan, &fallen, err);
        plan->member[i] = fallen.n == 0;
        nd_fallen_deinit(&fallen);
    }
    return status;
}

static enum nd_status make_passes(struct plan *plan, size_t *pass_of_edge, size_t *n_passes,
                                  struct nd_error *err)
{
    enum nd_status status = ND_OK;
    size_t n_left = plan->of->n_edges, pass = 0;
    while (status == ND_OK && n_left > 0) {
        bool holds;
        for (size_t i = 0; i < plan->of->n_edges; i++) {
            plan->member[i] = pass_of_edge[i] == SIZE_MAX;
            plan->taken_out[i] = false;
        }
        status = thin_out(plan, &holds, err);
        if (status == ND_OK && holds && count(plan->member, plan->of->n_edges) < n_left)
            status = bring_back(plan, err);
        size_t n_members = count(plan->member, plan->of->n_edges);
        if (status == ND_OK && (!holds || n_members == 0 || pass == MAX_PASSES)) {
            /* Splitting does not help: one pass, whose run tells what falls back. */
            for (size_t i = 0; i < plan->of->n_edges; i++)
                pass_of_edge[i] = 0;
            *n_passes = 1;
            return ND_OK;
        }
        for (size_t i = 0; i < plan->of->n_edges; i++)
            if (plan->member[i])
                pass_of_edge[i] = pass;
        n_left -= n_members;
        pass++;
    }
    if (status == ND_OK)
        *n_passes = pass > 0 ? pass : 1;
    return status;
}

enum nd_status nd_plan_passes(const struct nd_recording *recording, size_t *pass_of_edge, size_t *n_passes,
                              struct nd_error *err)
{
    size_t n_edges = recording->n_edges;
    struct plan plan = {.of = recording,
                        .member = nd_calloc(n_edges, sizeof *plan.member),
                        .taken_out = nd_calloc(n_edges, sizeof *plan.taken_out),
                        .scratch = nd_calloc(n_edges, sizeof *plan.scratch)};
    enum nd_status status =
        plan.member != NULL && plan.taken_out != NULL && plan.scratch != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; i < n_edges; i++)
        pass_of_edge[i] = SIZE_MAX;
    if (status == ND_OK)
        status = make_passes(&plan, pass_of_edge, n_passes, err);
    free(plan.member);
    free(plan.taken_out);
    free(plan.scratch);
    return status;
}
