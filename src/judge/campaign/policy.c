/* A policy: read, in words, and whether it means something for what it is about: it matches, and does not
 * contradict itself. docs/reference/campaign.md. */
#include "judge/campaign/policy.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

#include "core/items.h"
#include "core/text/strbuf.h"
#include "npudiff/core/parse.h"

/* Which keys a gate has beside the patterns and those of a loosening. */
enum {
    HAS_MAX = 1,
    HAS_MIN = 2,
    HAS_QUESTION = 4,
    HAS_ALLOW = 8,
    HAS_CV = 16,
    HAS_TO = 32,
    HAS_TENSORS = 64,
    HAS_PROBES = 128,
    HAS_METRIC = 256
};

static const struct {
    const char *name;
    unsigned keys;
    double max; /* of its bound */
} gates[ND_POLICY_N_GATES] = {
    [ND_POLICY_BIT_EQUAL] = {"bit-equal-to", HAS_TO | HAS_TENSORS | HAS_PROBES, 0},
    [ND_POLICY_LSB] = {"lsb", HAS_MAX | HAS_TO | HAS_TENSORS | HAS_PROBES, 4294967295.0},
    [ND_POLICY_SHARE] = {"differing-share", HAS_MAX | HAS_TO | HAS_TENSORS | HAS_PROBES, 1},
    [ND_POLICY_ULP] = {"ulp", HAS_MAX | HAS_TO | HAS_TENSORS | HAS_PROBES, 9007199254740992.0},
    [ND_POLICY_SQNR] = {"sqnr", HAS_MIN | HAS_TO | HAS_TENSORS | HAS_PROBES, 1000},
    [ND_POLICY_ACCURACY] = {"accuracy-drop", HAS_QUESTION | HAS_TENSORS | HAS_PROBES, 0},
    [ND_POLICY_AGREEMENT] = {"agreement", HAS_MIN | HAS_TO | HAS_TENSORS | HAS_PROBES, 1},
    [ND_POLICY_TARGET] = {"target-error", HAS_MAX | HAS_METRIC | HAS_TENSORS | HAS_PROBES, 9007199254740992.0},
    [ND_POLICY_FALLBACK] = {"fallback", HAS_ALLOW, 0},
    [ND_POLICY_LATENCY] = {"latency-cv", HAS_CV | HAS_PROBES, 0},
    [ND_POLICY_FINALIZE] = {"finalize", 0, 0},
};

const char *nd_policy_gate_name(enum nd_policy_gate gate)
{
    return gates[gate].name;
}

bool nd_policy_has_tensors(enum nd_policy_gate gate)
{
    return (gates[gate].keys & HAS_TENSORS) != 0;
}

bool nd_policy_has_probes(enum nd_policy_gate gate)
{
    return (gates[gate].keys & HAS_PROBES) != 0;
}

bool nd_policy_is_statistical(enum nd_policy_gate gate)
{
    return (gates[gate].keys & (HAS_QUESTION | HAS_METRIC)) != 0;
}

/* ---- reading ---- */

/* As the file has it; NaN and NULL where it says nothing. */
struct raw_rule {
    char *gate, *reference;
    struct nd_policy_rule rule;
};

static const struct nd_yaml_key rule_keys[] = {
#define AT(member) offsetof(struct raw_rule, member)
    {"gate", ND_YAML_TEXT, AT(gate), 0, 0, true},
    {"models", ND_YAML_TEXTS, AT(rule.models), 0, 0, false},
    {"devices", ND_YAML_TEXTS, AT(rule.devices), 0, 0, false},
    {"tensors", ND_YAML_TEXTS, AT(rule.tensors), 0, 0, false},
    {"probes", ND_YAML_TEXTS, AT(rule.probes), 0, 0, false},
    {"to", ND_YAML_TEXT, AT(rule.to), 0, 0, false},
    {"reference", ND_YAML_TEXT, AT(reference), 0, 0, false},
    {"max", ND_YAML_REAL, AT(rule.max), 0, 9007199254740992.0, false},
    {"min", ND_YAML_REAL, AT(rule.min), -1000, 1000, false},
    {"metric", ND_YAML_TEXT, AT(rule.metric), 0, 0, false},
    {"margin", ND_YAML_REAL, AT(rule.margin), 1e-6, 0.999999, false},
    {"confidence", ND_YAML_REAL, AT(rule.confidence), 0.500001, 0.999999, false},
    {"power", ND_YAML_REAL, AT(rule.power), 0.5, 0.999999, false},
    {"allow", ND_YAML_TEXTS, AT(rule.allow), 0, 0, false},
    {"warn", ND_YAML_REAL, AT(rule.warn), 0, 1000, false},
    {"fail", ND_YAML_REAL, AT(rule.fail), 0, 1000, false},
    {"reason", ND_YAML_TEXT, AT(rule.reason), 0, 0, false},
    {"owner", ND_YAML_TEXT, AT(rule.owner), 0, 0, false},
    {"until", ND_YAML_TEXT, AT(rule.until), 0, 0, false},
    {"edges", ND_YAML_TEXTS, AT(rule.tensors), 0, 0, false}, /* the name in version 0.1 */
#undef AT
};

static void rule_deinit(struct nd_policy_rule *rule)
{
    struct nd_texts *const lists[] = {&rule->models, &rule->devices, &rule->tensors, &rule->probes,
                                      &rule->allow};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        nd_texts_deinit(lists[i]);
    ND_FREE_ALL(rule->to, rule->metric, rule->reason, rule->owner, rule->until);
    *rule = (struct nd_policy_rule){0};
}

/* A key that the gate has no use for would be believed to do something. */
static enum nd_status check_keys(const struct nd_yaml *yaml, const struct raw_rule *raw, struct nd_error *err)
{
    const struct nd_policy_rule *rule = &raw->rule;
    const struct {
        const char *name;
        bool is_given;
        unsigned allowed_by, needed_by;
    } keys[] = {
        {"tensors", rule->tensors.n > 0, HAS_TENSORS, 0},
        {"probes", rule->probes.n > 0, HAS_PROBES, 0},
        {"to", rule->to != NULL, HAS_TO, 0},
        {"reference", raw->reference != NULL, HAS_QUESTION | HAS_METRIC, 0},
        {"metric", rule->metric != NULL, HAS_METRIC, 0},
        {"max", !isnan(rule->max), HAS_MAX, HAS_MAX},
        {"min", !isnan(rule->min), HAS_MIN, HAS_MIN},
        {"margin", !isnan(rule->margin), HAS_QUESTION, 0},
        {"confidence", !isnan(rule->confidence), HAS_QUESTION | HAS_METRIC, 0},
        {"power", !isnan(rule->power), HAS_QUESTION, 0},
        {"allow", rule->allow.n > 0, HAS_ALLOW, 0},
        {"warn", !isnan(rule->warn), HAS_CV, 0},
        {"fail", !isnan(rule->fail), HAS_CV, 0},
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (keys[i].is_given && (gates[rule->gate].keys & keys[i].allowed_by) == 0)
            return nd_yaml_fail(yaml, &rule->mark, err, "gate '%s' has no key '%s'", raw->gate, keys[i].name);
        if (!keys[i].is_given && (gates[rule->gate].keys & keys[i].needed_by) != 0)
            return nd_yaml_fail(yaml, &rule->mark, err, "gate '%s' needs the key '%s'", raw->gate,
                                keys[i].name);
    }
    return ND_OK;
}

static bool is_date(const char *text)
{
    struct tm when = {0};
    char again[16];
    const char *end = strptime(text, "%Y-%m-%d", &when);
    if (end == NULL || *end != '\0' || strlen(text) != 10)
        return false;
    /* 30 February is a text that strptime takes. */
    time_t seconds = timegm(&when);
    return gmtime_r(&seconds, &when) != NULL && strftime(again, sizeof again, "%Y-%m-%d", &when) == 10 &&
           strcmp(again, text) == 0;
}

static enum nd_status check_loosening(const struct nd_yaml *yaml, const struct nd_policy_rule *rule,
                                      struct nd_error *err)
{
    int n = (rule->reason != NULL) + (rule->owner != NULL) + (rule->until != NULL);
    if (n != 0 && n != 3)
        return nd_yaml_fail(yaml, &rule->mark, err, "a loosening says reason, owner and until, all three");
    if (rule->until != NULL && !is_date(rule->until))
        return nd_yaml_fail(yaml, &rule->mark, err, "'until' is a date YYYY-MM-DD, not '%s'", rule->until);
    return ND_OK;
}

static enum nd_status check_bounds(const struct nd_yaml *yaml, const struct nd_policy_rule *rule,
                                   struct nd_error *err)
{
    enum nd_policy_gate gate = rule->gate;
    bool is_whole = gate == ND_POLICY_LSB || gate == ND_POLICY_ULP;
    if (rule->max > gates[gate].max || rule->min > gates[gate].max ||
        (gate == ND_POLICY_AGREEMENT && rule->min < 0) || (is_whole && rule->max != floor(rule->max)))
        return nd_yaml_fail(yaml, &rule->mark, err, "the bound of gate '%s' is a %snumber from %s to %.15g",
                            gates[gate].name, is_whole ? "whole " : "", gate == ND_POLICY_SQNR ? "-1000" : "0",
                            gates[gate].max);
    if (rule->metric != NULL && strcmp(rule->metric, ND_METRIC_MEAN_ERROR) != 0 &&
        strcmp(rule->metric, ND_METRIC_SQNR) != 0)
        return nd_yaml_fail(yaml, &rule->mark, err, "'metric' is mean-error or sqnr, not '%s'", rule->metric);
    if (gate == ND_POLICY_LATENCY && rule->warn > rule->fail)
        return nd_yaml_fail(yaml, &rule->mark, err,
                            "gate 'latency-cv' warns (%.15g) above where it fails (%.15g)", rule->warn,
                            rule->fail);
    return ND_OK;
}

/* What holds where nothing is said. The field's rule for latency: 2 to 5 % is healthy, above 15 % suspicious.
 */
static bool fill_in(struct raw_rule *raw, const struct nd_policy_defaults *defaults)
{
    struct nd_policy_rule *rule = &raw->rule;
    if (raw->reference != NULL)
        rule->to = nd_strdup(raw->reference);
    else if (rule->to == NULL)
        rule->to = nd_strdup(defaults->reference);
    rule->margin = isnan(rule->margin) ? defaults->margin : rule->margin;
    rule->confidence = isnan(rule->confidence) ? defaults->confidence : rule->confidence;
    rule->power = isnan(rule->power) ? defaults->power : rule->power;
    if (isnan(rule->warn))
        rule->warn = isnan(rule->fail) || rule->fail > 0.05 ? 0.05 : rule->fail;
    if (isnan(rule->fail))
        rule->fail = rule->warn > 0.15 ? rule->warn : 0.15;
    bool needs_metric = (gates[rule->gate].keys & HAS_METRIC) != 0 && rule->metric == NULL;
    if (needs_metric)
        rule->metric = nd_strdup(ND_METRIC_MEAN_ERROR);
    return rule->to != NULL && (!needs_metric || rule->metric != NULL);
}

static enum nd_status read_rule(struct nd_yaml *yaml, const yaml_node_t *node,
                                const struct nd_policy_defaults *defaults, struct nd_policy_rule *out,
                                struct nd_error *err)
{
    struct raw_rule raw = {.rule = {.max = NAN,
                                    .min = NAN,
                                    .warn = NAN,
                                    .fail = NAN,
                                    .margin = NAN,
                                    .confidence = NAN,
                                    .power = NAN,
                                    .mark = node->start_mark}};
    enum nd_status status = nd_yaml_map(
        yaml, node, &(struct nd_yaml_kind){"a gate", rule_keys, sizeof rule_keys / sizeof rule_keys[0]}, &raw,
        err);
    size_t g = 0;
    while (status == ND_OK && g < ND_POLICY_N_GATES && strcmp(gates[g].name, raw.gate) != 0)
        g++;
    if (status == ND_OK && g == ND_POLICY_N_GATES)
        status = nd_yaml_fail(yaml, &node->start_mark, err,
                              "unknown gate '%s'; gates are bit-equal-to, lsb, differing-share, ulp, sqnr, "
                              "accuracy-drop, agreement, target-error, fallback, latency-cv and finalize",
                              raw.gate);
    raw.rule.gate = (enum nd_policy_gate)(g < ND_POLICY_N_GATES ? g : 0);
    if (status == ND_OK)
        status = check_keys(yaml, &raw, err);
    if (status == ND_OK && !fill_in(&raw, defaults))
        status = nd_fail_memory(err);
    if (status == ND_OK)
        status = check_bounds(yaml, &raw.rule, err);
    if (status == ND_OK)
        status = check_loosening(yaml, &raw.rule, err);
    ND_FREE_ALL(raw.gate, raw.reference);
    *out = raw.rule;
    return status;
}

enum nd_status nd_policy_read(struct nd_yaml *yaml, const yaml_node_t *node,
                              const struct nd_policy_defaults *defaults, struct nd_policy *out,
                              struct nd_error *err)
{
    size_t n;
    ND_TRY(nd_yaml_list(yaml, node, "policy", &n, err));
    out->rules = nd_calloc(n, sizeof *out->rules);
    ND_TRY_MEMORY(out->rules != NULL, err);
    out->n = n;
    for (size_t i = 0; i < n; i++)
        ND_TRY(read_rule(yaml, nd_yaml_item(yaml, node, i), defaults, &out->rules[i], err));
    return ND_OK;
}

void nd_policy_deinit(struct nd_policy *policy)
{
    ND_DEINIT_EACH(rule_deinit, policy->rules, policy->n);
    *policy = (struct nd_policy){0};
}

/* ---- dates ---- */

void nd_policy_today(char out[static 16])
{
    if (!nd_utc_now("%Y-%m-%d", out, 16))
        snprintf(out, 16, "9999-12-31"); /* a date that is not known lets no loosening live on */
}

bool nd_policy_has_expired(const struct nd_policy_rule *rule, const char *today)
{
    return rule->until != NULL && strcmp(today, rule->until) > 0;
}

/* ---- in words ---- */

char *nd_policy_format_number(double value, char buf[static 32])
{
    if (value != floor(value) || fabs(value) >= 1e15)
        return nd_format_double(value, buf);
    snprintf(buf, 32, "%.0f", value);
    return buf;
}

static void put_patterns(struct nd_strbuf *out, const char *before, const struct nd_texts *patterns)
{
    for (size_t i = 0; i < patterns->n; i++)
        nd_strbuf_printf(out, "%s'%s'", i == 0 ? before : ", ", patterns->items[i]);
}

char *nd_policy_describe(const struct nd_policy_rule *rule)
{
    struct nd_strbuf out = {0};
    char a[32], b[32];
    const char *name = gates[rule->gate].name;
    unsigned keys = gates[rule->gate].keys;
    if (rule->gate == ND_POLICY_BIT_EQUAL)
        nd_strbuf_printf(&out, "bit-equal to %s", rule->to);
    else if ((keys & HAS_QUESTION) != 0)
        nd_strbuf_printf(&out, "%s < %s against %s at %s %%", name, nd_policy_format_number(rule->margin, a),
                         rule->to, nd_policy_format_number(rule->confidence * 100, b));
    else if ((keys & HAS_METRIC) != 0)
        nd_strbuf_printf(&out, "%s: %s at most %s%s worse than %s at %s %%", name, rule->metric,
                         nd_policy_format_number(rule->max, a),
                         strcmp(rule->metric, ND_METRIC_SQNR) == 0 ? " dB" : "", rule->to,
                         nd_policy_format_number(rule->confidence * 100, b));
    else if ((keys & HAS_MAX) != 0)
        nd_strbuf_printf(&out, "%s <= %s", name, nd_policy_format_number(rule->max, a));
    else if ((keys & HAS_MIN) != 0)
        nd_strbuf_printf(&out, "%s >= %s%s", name, nd_policy_format_number(rule->min, a),
                         rule->gate == ND_POLICY_SQNR ? " dB" : "");
    else if ((keys & HAS_CV) != 0)
        nd_strbuf_printf(&out, "%s <= %s (warns above %s)", name, nd_policy_format_number(rule->fail, a),
                         nd_policy_format_number(rule->warn, b));
    else
        nd_strbuf_puts(&out, rule->gate == ND_POLICY_FALLBACK && rule->allow.n == 0 ? "no fallback" : name);
    put_patterns(&out, " only of ", &rule->allow);
    put_patterns(&out, " on ", &rule->tensors);
    put_patterns(&out, " with ", &rule->probes);
    if ((gates[rule->gate].keys & HAS_TO) != 0 && rule->gate != ND_POLICY_BIT_EQUAL &&
        strcmp(rule->to, ND_REFERENCE_QUANTISED) != 0)
        nd_strbuf_printf(&out, " against %s", rule->to);
    return nd_strbuf_take(&out);
}

/* ---- what it governs, and whether it means something ---- */

/* Whether the patterns of the rule, and what its gate applies to, hold the cell. */
static bool nd_policy_covers(const struct nd_policy_rule *rule, const struct nd_policy_cell *cell)
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
    ND_FREED char *was = nd_policy_describe(earlier), *is = nd_policy_describe(later);
    bool has_tensor = nd_policy_has_tensors(later->gate);
    return nd_fail(walk->err, ND_E_CAMPAIGN_POLICY, walk->path,
                   "%s:%zu:%zu: '%s' contradicts '%s' of line %zu for device '%s'%s%s%s of model '%s'; a "
                   "later, looser gate must carry reason, owner and until",
                   walk->path, later->mark.line + 1, later->mark.column + 1, is != NULL ? is : "?",
                   was != NULL ? was : "?", earlier->mark.line + 1, cell->device,
                   has_tensor ? ", tensor '" : "", has_tensor ? cell->tensor->name : "", has_tensor ? "'" : "",
                   cell->model);
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
    for (size_t d = 0; d < walk->scope->n_devices; d++)
        for (size_t p = 0; p < model->n_probes; p++)
            for (size_t e = 0; e < n_tensors; e++) {
                const struct nd_policy_cell cell = {.model = model->name,
                                                    .device = walk->scope->devices[d],
                                                    .tensor = &model->tensors[e],
                                                    .probe = &model->probes[p]};
                ND_TRY(check_cell(walk, r, &cell, is_covered));
            }
    return ND_OK;
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
    for (size_t r = 0; r < policy->n; r++) {
        const struct nd_policy_rule *rule = &policy->rules[r];
        bool is_covered = false;
        ND_TRY(check_patterns(&walk, rule));
        ND_TRY(check_reference(&walk, rule));
        for (size_t m = 0; m < scope->n_models; m++) {
            bool is_here = false;
            ND_TRY(check_model(&walk, r, &scope->models[m], &is_here));
            is_covered = is_covered || is_here;
            if (is_here && strcmp(rule->to, ND_REFERENCE_FLOAT) == 0 && !scope->models[m].has_float)
                ND_TRY(fail_at(&walk, rule, "needs the float model, which is not given for model",
                               scope->models[m].name));
        }
        if (!is_covered)
            ND_TRY(fail_at(
                &walk, rule,
                rule->gate == ND_POLICY_ACCURACY
                    ? "matches nothing: no probe with labels at an output that it names"
                : rule->gate == ND_POLICY_TARGET
                    ? "matches nothing: no probe with a target ('target:OUTPUT') of an output that it names"
                    : "matches nothing",
                NULL));
    }
    return ND_OK;
}
