/* Which tensors the sessions of a capture record: kinds of tensors that are alike, and passes that hold.
 * capture_run.h says how. */
#include <stdint.h>
#include <stdio.h>

#include "core/files/file.h"
#include "core/items.h"
#include "npudiff/model/model.h"
#include "record/sessions/capture_run.h"

/* ---- nodes that did not go to the provider ---- */

void nd_fell_back_deinit(struct nd_fell_back *fell_back)
{
    ND_FREE_ITEMS(fell_back->names, fell_back->n);
    *fell_back = (struct nd_fell_back){0};
}

bool nd_fell_back_has(const struct nd_fell_back *fell_back, const char *node)
{
    return nd_find_text(fell_back->names, fell_back->n, sizeof *fell_back->names, node) != NULL;
}

static bool has_same_stem(const char *a, const char *b)
{
    size_t n = nd_token_stem_bytes(a);
    return n == nd_token_stem_bytes(b) && memcmp(a, b, n) == 0;
}

static size_t count_stem(const struct nd_fell_back *fell_back, size_t n, const char *name)
{
    size_t n_same = 0;
    for (size_t i = 0; i < n; i++)
        n_same += has_same_stem(fell_back->names[i], name);
    return n_same;
}

/* From the end on: what is before a node is as it was when the node is looked at. */
void nd_fell_back_subtract(struct nd_fell_back *fell_back, const struct nd_fell_back *own)
{
    for (size_t i = fell_back->n; i-- > 0;) {
        const char *name = fell_back->names[i];
        if (count_stem(fell_back, i, name) >= count_stem(own, own->n, name))
            continue;
        free(fell_back->names[i]);
        memmove(&fell_back->names[i], &fell_back->names[i + 1],
                (fell_back->n - 1 - i) * sizeof fell_back->names[i]);
        fell_back->n--;
    }
}

void nd_tried_deinit(struct nd_tried *trial)
{
    nd_fell_back_deinit(&trial->fell_back);
    *trial = (struct nd_tried){0};
}

/* ---- passes ---- */

/* Which tensors of a model are alike: made and read by the same operators, at the same places. The blocks of a
 * network repeat each other, and so do the kinds of their tensors. */

/* Where a set of tensors is split that does not hold. */

struct nd_pass_candidate {
    size_t at;   /* position among the recording's tensors */
    size_t kind; /* capture_run.h */
};

/* A pass that grows: of capture_run.h, which says how passes follow one another. */

/* The plan in work, and the pass in work. */
struct nd_planner {
    const struct nd_recording *of;
    struct nd_pass_plan *plan;
    size_t *kinds;                        /* of the model's tensors */
    struct nd_pass_candidate *candidates; /* of the pass in work */
    bool *is_shown;  /* [n_edges]: in the session of the pass in work; its tensors and its checks */
    bool *is_member; /* [n_edges]: recorded by it */
    size_t n_members;
    size_t *n_accepted, *n_rejected; /* of each kind, in the pass in work */
    bool *is_near;                   /* kinds near the nodes that fell */
    bool *fails_beside;              /* [n_edges]: does not hold beside the outputs and nothing else */
    size_t n_seeds;                  /* members that are the outputs, in the first pass */
    size_t *scratch;                 /* [n_edges] */
    bool with_outputs;               /* the pass in work exposes the outputs again */
    bool with_sources; /* it exposes what its tensors are computed from, as far as pass 0 has it */
    bool is_closed;    /* it takes no more tensors */
    bool is_late;      /* there is no time for trials */
};

/* FNV-1a, 64 bits. Two kinds that met in one number would only be tried together. */
static uint64_t mix(uint64_t hash, const void *data, size_t n)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ bytes[i]) * 1099511628211u;
    return hash;
}

static const uint64_t hash_start = 14695981039346656037u;

static uint64_t hash_of_layer(const struct nd_model_layer *layer)
{
    return layer != NULL ? mix(hash_start, layer->op_types, strlen(layer->op_types)) : hash_start;
}

/* The tensor's own operator, those that make its inputs, in order, and those that read it, in any order. */
static void hash_tensors(const struct nd_model *model, const struct nd_model_layer *const *maker,
                         uint64_t *hashes)
{
    for (size_t e = 0; e < nd_model_n_tensors(model); e++) {
        hashes[e] = hash_of_layer(maker[e]);
        for (size_t i = 0; maker[e] != NULL && i < maker[e]->n_inputs; i++) {
            uint64_t input = hash_of_layer(maker[maker[e]->inputs[i]]);
            hashes[e] = mix(hashes[e], &input, sizeof input);
        }
    }
    for (size_t u = 0; u < nd_model_n_layers(model); u++) {
        const struct nd_model_layer *layer = nd_model_layer(model, u);
        for (size_t i = 0; i < layer->n_inputs; i++)
            hashes[layer->inputs[i]] += mix(hash_of_layer(layer), &i, sizeof i);
    }
}

/* *kinds: [n tensors of the model], a number for each tensor, equal for tensors that are alike; freed by the
 * caller.
 */
static enum nd_status nd_tensor_kinds(const struct nd_model *model, size_t **kinds, struct nd_error *err)
{
    size_t n = nd_model_n_tensors(model);
    ND_FREED const struct nd_model_layer **maker = nd_calloc(n, sizeof *maker);
    ND_FREED uint64_t *hashes = nd_calloc(n, sizeof *hashes);
    ND_FREED size_t *out = nd_calloc(n, sizeof *out);
    ND_TRY_MEMORY(maker != NULL && hashes != NULL && out != NULL, err);
    for (size_t u = 0; u < nd_model_n_layers(model); u++)
        maker[nd_model_layer(model, u)->tensor] = nd_model_layer(model, u);
    hash_tensors(model, maker, hashes);
    for (size_t e = 0; e < n; e++) {
        out[e] = 0;
        while (hashes[out[e]] != hashes[e])
            out[e]++;
    }
    return ND_GIVE(kinds, out);
}

static void mark_kinds(const struct nd_model *model, const size_t *kinds, const struct nd_fell_back *fell_back,
                       bool with_made, bool *is_near)
{
    memset(is_near, 0, nd_model_n_tensors(model) * sizeof *is_near);
    for (size_t u = 0; fell_back->n > 0 && u < nd_model_n_layers(model); u++) {
        const struct nd_model_layer *layer = nd_model_layer(model, u);
        if (!nd_fell_back_has(fell_back, nd_model_tensor(model, layer->tensor)->node))
            continue;
        if (with_made)
            is_near[kinds[layer->tensor]] = true;
        for (size_t i = 0; i < layer->n_inputs; i++)
            is_near[kinds[layer->inputs[i]]] = true;
    }
}

static bool is_suspect(const struct nd_pass_candidate *x, const bool *is_near, const size_t *n_rejected)
{
    return is_near != NULL ? is_near[x->kind] : n_rejected[x->kind] > 0;
}

/* Moves the suspects to the end; how many are in front. */
static size_t part_suspects(struct nd_pass_candidate *x, size_t n, const bool *is_near,
                            const size_t *n_rejected)
{
    size_t front = 0;
    for (size_t i = 0; i < n; i++) {
        struct nd_pass_candidate c = x[i];
        if (is_suspect(&c, is_near, n_rejected))
            continue;
        x[i] = x[front];
        x[front++] = c;
    }
    return front;
}

static int by_kind(const void *a, const void *b)
{
    const struct nd_pass_candidate *x = a, *y = b;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    return x->at < y->at ? -1 : 1;
}

/* Between two kinds, as near to the middle as there is such a place; 0: there is one kind. */
static size_t part_kinds(struct nd_pass_candidate *x, size_t n)
{
    size_t best = 0;
    qsort(x, n, sizeof *x, by_kind);
    for (size_t i = 1; i < n; i++) {
        size_t far = 2 * i > n ? 2 * i - n : n - 2 * i, best_far = 2 * best > n ? 2 * best - n : n - 2 * best;
        if (x[i].kind != x[i - 1].kind && (best == 0 || far < best_far))
            best = i;
    }
    return best;
}

/* Moves candidates whose kind is near what fell, by is_near, to the end; how many are in front. */
static size_t nd_part_suspects(struct nd_pass_candidate *x, size_t n, const bool *is_near)
{
    return part_suspects(x, n, is_near, NULL);
}

/* Orders the candidates, of which there are two at least, and returns how many of them are to be tried first: 1
 * to n - 1. The suspects come last: kinds near what fell, then kinds of which some were rejected. Else kinds
 * are split from one another, and those of one kind last. n_accepted, n_rejected: of each kind, until now. */
static size_t nd_split(struct nd_pass_candidate *x, size_t n, const bool *is_near, const size_t *n_accepted,
                       const size_t *n_rejected)
{
    size_t k = nd_part_suspects(x, n, is_near);
    if (k == 0 || k == n)
        k = part_suspects(x, n, NULL, n_rejected);
    if (k == 0 || k == n)
        k = part_kinds(x, n);
    if (k == 0) /* of one kind: one or two of them say much of the others */
        k = n_accepted[x[0].kind] + n_rejected[x[0].kind] < 2 ? 1 : n / 2;
    return k;
}

/* A tensor by its position among those of the recording. */
static const struct nd_tensor *nd_planner_tensor(const struct nd_planner *p, size_t at)
{
    return nd_model_tensor(p->of->model, p->of->tensors[at]);
}

static bool is_output_of_first(const struct nd_planner *p, size_t at)
{
    return p->plan->pass_of_tensor[at] == 0 && nd_planner_tensor(p, at)->is_model_output;
}

/* Whether the first pass has outputs of the model. */
static bool nd_planner_has_outputs(const struct nd_planner *p)
{
    bool has_any = false;
    for (size_t i = 0; i < p->of->n_tensors; i++)
        has_any = has_any || is_output_of_first(p, i);
    return has_any;
}

/* Puts the outputs that the first pass has into the session of the pass in work, or takes them out. */
static void nd_planner_show_outputs(struct nd_planner *p, bool is_shown)
{
    for (size_t i = 0; i < p->of->n_tensors; i++)
        if (is_output_of_first(p, i))
            p->is_shown[i] = is_shown;
}

/* Tries the session of the pass in work as it is, or with x beside it. Does not hold, with the reason, where
 * there is no more time. */
static enum nd_status nd_planner_try_shown(struct nd_planner *p, struct nd_tried *out, struct nd_error *err)
{
    size_t n = 0;
    p->is_late = p->is_late || (p->of->has_time != NULL && !p->of->has_time(p->of->context));
    if (p->is_late) {
        snprintf(out->reason, sizeof out->reason, "there was no time to try the sessions that could show it");
        return ND_OK;
    }
    for (size_t i = 0; i < p->of->n_tensors; i++)
        if (p->is_shown[i])
            p->scratch[n++] = p->of->tensors[i];
    p->plan->n_trials++;
    return p->of->trial(p->of->context, p->scratch, n, out, err);
}

static enum nd_status nd_planner_try_beside(struct nd_planner *p, const struct nd_pass_candidate *x, size_t n,
                                            struct nd_tried *out, struct nd_error *err)
{
    for (size_t i = 0; i < n; i++)
        p->is_shown[x[i].at] = true;
    enum nd_status status = nd_planner_try_shown(p, out, err);
    for (size_t i = 0; i < n; i++)
        p->is_shown[x[i].at] = false;
    return status;
}

/* Makes x members of the pass in work. */
static void nd_planner_accept(struct nd_planner *p, const struct nd_pass_candidate *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        p->is_shown[x[i].at] = p->is_member[x[i].at] = true;
        p->n_accepted[x[i].kind]++;
    }
    p->n_members += n;
}

/* Says in the plan why no session shows a tensor. */
static enum nd_status nd_planner_give_up(struct nd_planner *p, size_t at, const struct nd_tried *trial,
                                         struct nd_error *err)
{
    char text[512];
    const char *reason = trial->reason;
    if (reason[0] == '\0') {
        snprintf(text, sizeof text, "recording it moves %zu node%s to the CPU, first '%s'", trial->fell_back.n,
                 trial->fell_back.n == 1 ? "" : "s", trial->fell_back.n > 0 ? trial->fell_back.names[0] : "");
        reason = text;
    }
    p->plan->reasons[at] = nd_strdup(reason);
    return p->plan->reasons[at] != NULL ? ND_OK : nd_fail_memory(err);
}

/* Tries the tensor in a pass that has nothing yet: alone, in the model cut behind it, where alone_too is set,
 * and else in the whole model with its outputs beside it. *is_taken: the pass has it now. */
static enum nd_status try_apart(struct nd_planner *p, const struct nd_pass_candidate *x, bool alone_too,
                                bool *is_taken, struct nd_error *err)
{
    ND_CLEANUP(nd_tried_deinit) struct nd_tried alone = {0}, beside = {0};
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
    return status;
}

/* The last resort for a tensor whose codes no session shows: the floats that the model makes of them. */
static enum nd_status try_floats(struct nd_planner *p, const struct nd_pass_candidate *x, bool *is_taken,
                                 struct nd_error *err)
{
    const struct nd_recording *of = p->of;
    if (of->use_floats == NULL || !of->use_floats(of->context, of->tensors[x->at], true))
        return ND_OK;
    p->fails_beside[x->at] = false;
    enum nd_status status = try_apart(p, x, true, is_taken, err);
    if (!*is_taken)
        of->use_floats(of->context, of->tensors[x->at], false);
    return status;
}

/* A tensor that does not hold beside what the pass has. Where the pass has nothing yet, the tensor does not
 * even hold alone, in the model cut behind it. */
static enum nd_status reject(struct nd_planner *p, const struct nd_pass_candidate *x,
                             const struct nd_tried *trial, struct nd_error *err)
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

/* Tensors of one kind that do not hold together, of which single ones do not hold either: they are left to a
 * later pass without a look at each. */
static bool is_presumed(const struct nd_planner *p, const struct nd_pass_candidate *x, size_t n)
{
    size_t accepted = p->n_accepted[x[0].kind], rejected = p->n_rejected[x[0].kind];
    for (size_t i = 1; i < n; i++)
        if (x[i].kind != x[0].kind)
            return false;
    return n > 1 && ((rejected > 0 && accepted < 2) || (rejected > 1 && accepted < 2 * rejected));
}

/* Takes into the pass what holds of x. known: what a session did that exposes all of it beside what the pass
 * has; NULL: not tried. */
static enum nd_status nd_planner_grow(struct nd_planner *p, struct nd_pass_candidate *x, size_t n,
                                      const struct nd_tried *known, struct nd_error *err)
{
    ND_CLEANUP(nd_tried_deinit) struct nd_tried own = {0};
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
        /* Marks the kinds of tensors that fallen nodes make or read. A provider's layout pass renames some
         * nodes: those tell nothing. kinds: of the model's tensors; is_near: [n tensors of the model], by kind.
         */
        mark_kinds(p->of->model, p->kinds, &known->fell_back, true, p->is_near);
        size_t k = nd_split(x, n, p->is_near, p->n_accepted, p->n_rejected);
        status = nd_planner_grow(p, x, k, NULL, err);
        if (status == ND_OK)
            status = nd_planner_grow(p, x + k, n - k, p->n_members - before == k ? known : NULL, err);
    }
    return status;
}

void nd_pass_plan_deinit(struct nd_pass_plan *plan)
{
    for (size_t i = 0; plan->reasons != NULL && i < plan->n_tensors; i++)
        free(plan->reasons[i]);
    ND_FREE_EACH(plan->passes, plan->n_passes, .checks);
    ND_FREE_ALL(plan->reasons, plan->pass_of_tensor);
    *plan = (struct nd_pass_plan){0};
}

static void begin_pass(struct nd_planner *p, bool with_outputs)
{
    size_t n_kinds = nd_model_n_tensors(p->of->model);
    memset(p->is_shown, 0, p->of->n_tensors * sizeof *p->is_shown);
    memset(p->is_member, 0, p->of->n_tensors * sizeof *p->is_member);
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
    for (size_t i = 0; i < p->of->n_tensors; i++)
        if (p->plan->pass_of_tensor[i] == SIZE_MAX && p->plan->reasons[i] == NULL && !p->is_member[i] &&
            !(p->with_outputs && p->fails_beside[i]))
            p->candidates[n++] = (struct nd_pass_candidate){i, p->kinds[p->of->tensors[i]]};
    return n;
}

/* Shows what the candidates and the members are computed from, as far as pass 0 has it. */
static void show_sources(struct nd_planner *p, const struct nd_pass_candidate *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p->is_member[x[i].at] = true;
    for (size_t u = 0; u < nd_model_n_layers(p->of->model); u++) {
        const struct nd_model_layer *layer = nd_model_layer(p->of->model, u);
        for (size_t i = 0; i < p->of->n_tensors; i++)
            for (size_t k = 0; p->is_member[i] && p->of->tensors[i] == layer->tensor && k < layer->n_inputs;
                 k++)
                for (size_t at = 0; at < p->of->n_tensors; at++)
                    if (p->of->tensors[at] == layer->inputs[k] && p->plan->pass_of_tensor[at] == 0)
                        p->is_shown[at] = true;
    }
    for (size_t i = 0; i < n; i++)
        p->is_member[x[i].at] = false;
}

/* All that is left in one pass without the outputs, where that holds: one trial for what else takes several,
 * and perhaps several passes. */
static enum nd_status take_all_cut(struct nd_planner *p, struct nd_error *err)
{
    ND_CLEANUP(nd_tried_deinit) struct nd_tried trial = {0};
    begin_pass(p, false);
    size_t n = list_candidates(p);
    show_sources(p, p->candidates, n);
    ND_TRY(nd_planner_try_beside(p, p->candidates, n, &trial, err));
    if (trial.holds) {
        nd_planner_accept(p, p->candidates, n);
        p->with_sources = true;
    }
    return ND_OK;
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

/* With the outputs beside it, as long as any tensor can be shown so. *seeded is false from then on. */
static enum nd_status grow_later(struct nd_planner *p, bool *seeded, struct nd_error *err)
{
    ND_CLEANUP(nd_tried_deinit) struct nd_tried beside = {0};
    begin_pass(p, *seeded);
    if (*seeded)
        ND_TRY(take_all(p, &beside, err));
    if (*seeded && p->n_members == 0) {
        begin_pass(p, true);
        ND_TRY(nd_planner_grow(p, p->candidates, list_candidates(p), &beside, err));
    }
    if (p->n_members > 0)
        return ND_OK;
    *seeded = false;
    begin_pass(p, false);
    return nd_planner_grow(p, p->candidates, list_candidates(p), NULL, err);
}

/* What a pass has that pass 0 has as well: the outputs, or what its tensors are computed from. */
static enum nd_status choose_checks(struct nd_planner *p, struct nd_planned_pass *pass, struct nd_error *err)
{
    ND_CLEANUP(nd_tried_deinit) struct nd_tried trial = {0};
    size_t n = 0;
    bool is_tried = p->with_outputs || p->with_sources;
    if (!is_tried)
        show_sources(p, NULL, 0);
    for (size_t i = 0; i < p->of->n_tensors; i++)
        n += p->is_shown[i] && !p->is_member[i];
    if (n > 0 && !is_tried)
        ND_TRY(nd_planner_try_shown(p, &trial, err));
    bool do_hold = is_tried || trial.holds;
    pass->checks = nd_calloc(n, sizeof *pass->checks);
    ND_TRY_MEMORY(pass->checks != NULL, err);
    for (size_t i = 0; do_hold && i < p->of->n_tensors; i++)
        if (p->is_shown[i] && !p->is_member[i])
            pass->checks[pass->n_checks++] = i;
    return ND_OK;
}

static enum nd_status end_pass(struct nd_planner *p, struct nd_error *err)
{
    struct nd_pass_plan *plan = p->plan;
    struct nd_planned_pass *grown = realloc(plan->passes, (plan->n_passes + 1) * sizeof *grown);
    ND_TRY_MEMORY(grown != NULL, err);
    plan->passes = grown;
    struct nd_planned_pass *pass = &plan->passes[plan->n_passes];
    *pass = (struct nd_planned_pass){0};
    enum nd_status status = plan->n_passes > 0 ? choose_checks(p, pass, err) : ND_OK;
    for (size_t i = 0; i < p->of->n_tensors; i++)
        if (p->is_member[i])
            plan->pass_of_tensor[i] = plan->n_passes;
    plan->n_passes++;
    return status;
}

/* Takes the first pass in work again, with what it has. */
static void reopen_first(struct nd_planner *p)
{
    begin_pass(p, false);
    p->plan->n_passes = 0;
    for (size_t i = 0; i < p->of->n_tensors; i++) {
        if (p->plan->pass_of_tensor[i] != 0)
            continue;
        p->plan->pass_of_tensor[i] = SIZE_MAX;
        p->n_seeds += nd_planner_tensor(p, i)->is_model_output;
        nd_planner_accept(p, &(struct nd_pass_candidate){i, p->kinds[p->of->tensors[i]]}, 1);
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

/* all: what the session did that shows every tensor. */
static enum nd_status grow_in_parts(struct nd_planner *p, const struct nd_tried *all, struct nd_error *err)
{
    size_t n = list_candidates(p);
    bool is_taken = false;
    /* The same, but of what they read alone. */
    mark_kinds(p->of->model, p->kinds, &all->fell_back, false, p->is_near);
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
    ND_CLEANUP(nd_tried_deinit) struct nd_tried own = {0};
    begin_pass(p, false);
    for (size_t i = 0; p->of->do_outputs_hold && i < p->of->n_tensors; i++)
        if (nd_planner_tensor(p, i)->is_model_output)
            nd_planner_accept(p, &(struct nd_pass_candidate){i, p->kinds[p->of->tensors[i]]}, 1);
    p->n_seeds = p->n_members;
    size_t n = list_candidates(p);
    if (p->of->first == NULL && n > 0)
        ND_TRY(nd_planner_try_beside(p, p->candidates, n, &own, err));
    if (n > 0)
        ND_TRY(grow_in_parts(p, p->of->first != NULL ? p->of->first : &own, err));
    return ND_OK;
}

static enum nd_status make_passes(struct nd_planner *p, struct nd_error *err)
{
    static const struct nd_tried late = {.reason = "there was no time to try the sessions that could show it"};
    bool seeded = true;
    enum nd_status status = grow_first(p, err);
    for (;;) {
        if (status == ND_OK && p->n_members > 0)
            status = end_pass(p, err);
        memset(p->is_member, 0, p->of->n_tensors * sizeof *p->is_member);
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
    size_t n_tensors = recording->n_tensors, n_kinds = nd_model_n_tensors(recording->model);
    ND_CLEANUP(nd_pass_plan_deinit)
    struct nd_pass_plan plan = {.pass_of_tensor = nd_calloc(n_tensors, sizeof *plan.pass_of_tensor),
                                .reasons = nd_calloc(n_tensors, sizeof *plan.reasons),
                                .n_tensors = n_tensors};
    struct nd_planner p = {.of = recording,
                           .plan = &plan,
                           .candidates = nd_calloc(n_tensors, sizeof *p.candidates),
                           .is_shown = nd_calloc(n_tensors, sizeof *p.is_shown),
                           .is_member = nd_calloc(n_tensors, sizeof *p.is_member),
                           .n_accepted = nd_calloc(n_kinds, sizeof *p.n_accepted),
                           .n_rejected = nd_calloc(n_kinds, sizeof *p.n_rejected),
                           .is_near = nd_calloc(n_kinds, sizeof *p.is_near),
                           .fails_beside = nd_calloc(n_tensors, sizeof *p.fails_beside),
                           .scratch = nd_calloc(n_tensors, sizeof *p.scratch)};
    bool is_whole = plan.pass_of_tensor != NULL && plan.reasons != NULL && p.candidates != NULL &&
                    p.is_shown != NULL && p.is_member != NULL && p.n_accepted != NULL && p.n_rejected != NULL &&
                    p.is_near != NULL && p.fails_beside != NULL && p.scratch != NULL;
    enum nd_status status = is_whole ? nd_tensor_kinds(recording->model, &p.kinds, err) : nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && i < n_tensors; i++)
        plan.pass_of_tensor[i] = SIZE_MAX;
    if (status == ND_OK)
        status = make_passes(&p, err);
    ND_FREE_ALL(p.kinds, p.candidates, p.is_shown, p.is_member, p.n_accepted, p.n_rejected, p.is_near,
                p.fails_beside, p.scratch);
    return status == ND_OK ? ND_GIVE(out, plan) : status;
}
