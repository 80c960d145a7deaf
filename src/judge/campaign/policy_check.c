/* Whether a policy means something for what it is about: it matches, and it does not contradict itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text/strbuf.h"
#include "judge/campaign/policy.h"

bool nd_policy_covers(const struct nd_policy_rule *rule, const struct nd_policy_cell *cell)
{
    if (!nd_texts_match(&rule->models, cell->model) || !nd_texts_match(&rule->devices, cell->device))
        return false;
    /* A device against itself says nothing. */
    bool has_tensors = nd_policy_has_tensors(rule->gate);
    if (has_tensors && strcmp(rule->to, cell->device) == 0)
        return false;
    if (nd_policy_has_probes(rule->gate) && !nd_texts_match(&rule->probes, cell->probe->name))
        return false;
    if (!has_tensors)
        return true;
    if (!nd_texts_match(&rule->tensors, cell->tensor->name))
        return false;
    switch (rule->gate) {
    case ND_POLICY_LSB:
        return cell->tensor->may_be_integer;
    case ND_POLICY_ULP:
        return cell->tensor->may_be_float;
    case ND_POLICY_AGREEMENT:
        return cell->tensor->is_output;
    case ND_POLICY_ACCURACY:
        return cell->tensor->is_output && cell->probe->has_labels;
    case ND_POLICY_TARGET:
        return cell->tensor->is_output && cell->probe->goals != NULL &&
               nd_probe_find_goal(cell->probe->goals, cell->tensor->name) != NULL;
    default:
        return true;
    }
}

/* ---- which of two is weaker ---- */

enum strength { UNRELATED, WEAKER, EQUAL, STRICTER };

static enum strength by_bound(double earlier, double later, bool larger_is_weaker)
{
    if (earlier == later)
        return EQUAL;
    return (later > earlier) == larger_is_weaker ? WEAKER : STRICTER;
}

static bool is_listed(const struct nd_texts *list, const char *text)
{
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->items[i], text) == 0)
            return true;
    return false;
}

static enum strength by_list(const struct nd_texts *earlier, const struct nd_texts *later)
{
    for (size_t i = 0; i < later->n; i++)
        if (!is_listed(earlier, later->items[i]))
            return WEAKER;
    return later->n == earlier->n ? EQUAL : STRICTER;
}

/* The weaker of two judgements on one pair of rules decides: nothing may be loosened in silence. */
static enum strength worse(enum strength a, enum strength b)
{
    if (a == WEAKER || b == WEAKER)
        return WEAKER;
    return a == STRICTER ? a : b;
}

static bool is_of_bits(enum nd_policy_gate gate)
{
    return gate == ND_POLICY_LSB || gate == ND_POLICY_ULP || gate == ND_POLICY_SHARE;
}

/* What the later one is to the earlier one, wherever both hold. */
static enum strength compare_rules(const struct nd_policy_rule *earlier, const struct nd_policy_rule *later)
{
    bool has_to = nd_policy_has_tensors(earlier->gate);
    if (has_to && (!nd_policy_has_tensors(later->gate) || strcmp(earlier->to, later->to) != 0))
        return UNRELATED;
    if (earlier->gate == ND_POLICY_BIT_EQUAL && is_of_bits(later->gate))
        return later->max > 0 ? WEAKER : EQUAL;
    if (earlier->gate != later->gate)
        return UNRELATED;
    switch (earlier->gate) {
    case ND_POLICY_LSB:
    case ND_POLICY_ULP:
    case ND_POLICY_SHARE:
        return by_bound(earlier->max, later->max, true);
    case ND_POLICY_SQNR:
    case ND_POLICY_AGREEMENT:
        return by_bound(earlier->min, later->min, false);
    case ND_POLICY_ACCURACY:
        return worse(by_bound(earlier->margin, later->margin, true),
                     by_bound(earlier->confidence, later->confidence, false));
    case ND_POLICY_TARGET:
        return strcmp(earlier->metric, later->metric) != 0
                   ? UNRELATED
                   : worse(by_bound(earlier->max, later->max, true),
                           by_bound(earlier->confidence, later->confidence, false));
    case ND_POLICY_LATENCY:
        return worse(by_bound(earlier->warn, later->warn, true), by_bound(earlier->fail, later->fail, true));
    case ND_POLICY_FALLBACK:
        return by_list(&earlier->allow, &later->allow);
    default:
        return EQUAL;
    }
}

/* Whether rule r judges the cell as far as rules before `end` go. */
static bool governs_until(const struct nd_policy *policy, size_t r, size_t end,
                          const struct nd_policy_cell *cell)
{
    const struct nd_policy_rule *rule = &policy->rules[r];
    if (!nd_policy_covers(rule, cell))
        return false;
    for (size_t i = r + 1; i < end; i++)
        if (compare_rules(rule, &policy->rules[i]) == WEAKER && nd_policy_covers(&policy->rules[i], cell))
            return false;
    return true;
}

bool nd_policy_governs(const struct nd_policy *policy, size_t r, const struct nd_policy_cell *cell)
{
    return governs_until(policy, r, policy->n, cell);
}

/* ---- every cell of a scope ---- */

struct walk {
    const struct nd_policy *policy;
    const struct nd_scope *scope;
    const char *path;
    struct nd_error *err;
};

static enum nd_status fail_at(const struct walk *walk, const struct nd_policy_rule *rule, const char *what,
                              const char *name)
{
    return nd_fail(walk->err, ND_E_CAMPAIGN_POLICY, walk->path, "%s:%zu:%zu: gate '%s' %s%s%s%s", walk->path,
                   rule->mark.line + 1, rule->mark.column + 1, nd_policy_gate_name(rule->gate), what,
                   name != NULL ? " '" : "", name != NULL ? name : "", name != NULL ? "'" : "");
}

static enum nd_status fail_loosening(const struct walk *walk, const struct nd_policy_rule *earlier,
                                     const struct nd_policy_rule *later, const struct nd_policy_cell *cell)
{
    char *was = nd_policy_describe(earlier), *is = nd_policy_describe(later);
    bool has_tensor = nd_policy_has_tensors(later->gate);
    enum nd_status status =
        nd_fail(walk->err, ND_E_CAMPAIGN_POLICY, walk->path,
                "%s:%zu:%zu: '%s' contradicts '%s' of line %zu for device '%s'%s%s%s of model '%s'; a later, "
                "looser gate "
                "must carry reason, owner and until",
                walk->path, later->mark.line + 1, later->mark.column + 1, is != NULL ? is : "?",
                was != NULL ? was : "?", earlier->mark.line + 1, cell->device, has_tensor ? ", tensor '" : "",
                has_tensor ? cell->tensor->name : "", has_tensor ? "'" : "", cell->model);
    free(was);
    free(is);
    return status;
}

static enum nd_status check_cell(const struct walk *walk, size_t r, const struct nd_policy_cell *cell,
                                 bool *is_covered)
{
    const struct nd_policy_rule *rule = &walk->policy->rules[r];
    if (!nd_policy_covers(rule, cell))
        return ND_OK;
    *is_covered = true;
    for (size_t i = 0; rule->reason == NULL && i < r; i++)
        if (compare_rules(&walk->policy->rules[i], rule) == WEAKER && governs_until(walk->policy, i, r, cell))
            return fail_loosening(walk, &walk->policy->rules[i], rule, cell);
    return ND_OK;
}

static enum nd_status check_model(const struct walk *walk, size_t r, const struct nd_scope_model *model,
                                  bool *is_covered)
{
    const struct nd_policy_rule *rule = &walk->policy->rules[r];
    size_t n_tensors = nd_policy_has_tensors(rule->gate) ? model->n_tensors : 1;
    enum nd_status status = ND_OK;
    for (size_t d = 0; status == ND_OK && d < walk->scope->n_devices; d++)
        for (size_t p = 0; status == ND_OK && p < model->n_probes; p++)
            for (size_t e = 0; status == ND_OK && e < n_tensors; e++) {
                const struct nd_policy_cell cell = {.model = model->name,
                                                    .device = walk->scope->devices[d],
                                                    .tensor = &model->tensors[e],
                                                    .probe = &model->probes[p]};
                status = check_cell(walk, r, &cell, is_covered);
            }
    return status;
}

/* ---- patterns ---- */

static bool matches_device(const struct nd_scope *scope, const struct nd_texts *one)
{
    for (size_t d = 0; d < scope->n_devices; d++)
        if (nd_texts_match(one, scope->devices[d]))
            return true;
    return false;
}

static bool matches_model(const struct nd_scope *scope, const struct nd_texts *one)
{
    for (size_t m = 0; m < scope->n_models; m++)
        if (nd_texts_match(one, scope->models[m].name))
            return true;
    return false;
}

static bool matches_tensor(const struct nd_scope *scope, const struct nd_texts *one)
{
    for (size_t m = 0; m < scope->n_models; m++)
        for (size_t e = 0; e < scope->models[m].n_tensors; e++)
            if (nd_texts_match(one, scope->models[m].tensors[e].name))
                return true;
    return false;
}

static bool matches_probe(const struct nd_scope *scope, const struct nd_texts *one)
{
    for (size_t m = 0; m < scope->n_models; m++)
        for (size_t p = 0; p < scope->models[m].n_probes; p++)
            if (nd_texts_match(one, scope->models[m].probes[p].name))
                return true;
    return false;
}

static enum nd_status check_patterns(const struct walk *walk, const struct nd_policy_rule *rule)
{
    const struct {
        const struct nd_texts *patterns;
        bool (*matches)(const struct nd_scope *scope, const struct nd_texts *one);
        const char *what;
    } lists[] = {
        {&rule->models, matches_model, "matches nothing: there is no model"},
        {&rule->devices, matches_device, "matches nothing: there is no device"},
        {&rule->probes, matches_probe, "matches nothing: there is no probe"},
        {&rule->tensors, matches_tensor, "matches nothing: there is no tensor"},
    };
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        for (size_t k = 0; k < lists[i].patterns->n; k++) {
            const struct nd_texts one = {.n = 1, .items = &lists[i].patterns->items[k]};
            if (!lists[i].matches(walk->scope, &one))
                return fail_at(walk, rule, lists[i].what, one.items[0]);
        }
    return ND_OK;
}

static enum nd_status check_reference(const struct walk *walk, const struct nd_policy_rule *rule)
{
    if (!nd_policy_has_tensors(rule->gate) || strcmp(rule->to, ND_REFERENCE_QUANTISED) == 0)
        return ND_OK;
    for (size_t d = 0; d < walk->scope->n_devices; d++)
        if (strcmp(rule->to, walk->scope->devices[d]) == 0)
            return ND_OK;
    bool is_float = strcmp(rule->to, ND_REFERENCE_FLOAT) == 0;
    if (!is_float || !nd_policy_is_statistical(rule->gate))
        return fail_at(walk, rule,
                       is_float
                           ? "cannot be compared with the float model; its reference is 'quantised' or a "
                             "device of the campaign, not"
                           : "has an unknown reference: neither 'quantised' nor a device of the campaign is",
                       rule->to);
    return ND_OK;
}

enum nd_status nd_policy_check(const struct nd_policy *policy, const struct nd_scope *scope, const char *path,
                               struct nd_error *err)
{
    const struct walk walk = {.policy = policy, .scope = scope, .path = path, .err = err};
    enum nd_status status = ND_OK;
    for (size_t r = 0; status == ND_OK && r < policy->n; r++) {
        const struct nd_policy_rule *rule = &policy->rules[r];
        bool is_covered = false;
        status = check_patterns(&walk, rule);
        if (status == ND_OK)
            status = check_reference(&walk, rule);
        for (size_t m = 0; status == ND_OK && m < scope->n_models; m++) {
            bool is_here = false;
            status = check_model(&walk, r, &scope->models[m], &is_here);
            is_covered = is_covered || is_here;
            if (status == ND_OK && is_here && strcmp(rule->to, ND_REFERENCE_FLOAT) == 0 &&
                !scope->models[m].has_float)
                status = fail_at(&walk, rule, "needs the float model, which is not given for model",
                                 scope->models[m].name);
        }
        if (status == ND_OK && !is_covered)
            status =
                fail_at(&walk, rule,
                        rule->gate == ND_POLICY_ACCURACY
                            ? "matches nothing: no probe with labels at an output that it names"
                        : rule->gate == ND_POLICY_TARGET
                            ? "matches nothing: no probe with a target ('target:OUTPUT') of an output that "
                              "it names"
                            : "matches nothing",
                        NULL);
    }
    return status;
}
