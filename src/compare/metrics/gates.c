/* Rules for tensors, as the user gives them, and the gate of one tensor. docs/reference/metrics.md#gates. */
#include "compare/metrics/block.h"

#include <fnmatch.h>

#include "core/memory.h"
#include "npudiff/core/parse.h"

struct rule {
    enum nd_gate_kind kind;
    char *name; /* NULL: the default */
    uint64_t whole;
    double real;
};

struct nd_gates {
    struct rule *rules;
    size_t n, capacity;
};

static const char *kind_name(enum nd_gate_kind kind)
{
    static const char *const names[] = {"bitwise", "lsb", "ulp", "atol", "rtol"};
    return names[kind];
}

enum nd_status nd_gates_create(struct nd_gates **out, struct nd_error *err)
{
    struct nd_gates *gates = nd_calloc(1, sizeof *gates);
    ND_TRY_MEMORY(gates != NULL, err);
    *out = gates;
    return ND_OK;
}

static void truncate_rules(struct nd_gates *gates, size_t n)
{
    while (gates->n > n)
        free(gates->rules[--gates->n].name);
}

void nd_gates_destroy(struct nd_gates **gates)
{
    if (*gates == NULL)
        return;
    truncate_rules(*gates, 0);
    ND_FREE_ALL((*gates)->rules, *gates);
    *gates = NULL;
}

static bool parse_value(struct rule *rule, const char *text)
{
    if (rule->kind == ND_GATE_LSB || rule->kind == ND_GATE_ULP)
        return nd_parse_u64(text, &rule->whole);
    return nd_parse_double(text, &rule->real) && rule->real >= 0;
}

/* Takes over `entry`'s memory, whatever happens. */
static enum nd_status add_entry(struct nd_gates *gates, enum nd_gate_kind kind, char *entry,
                                struct nd_error *err)
{
    struct rule rule = {.kind = kind};
    const char *value = NULL;
    char *colon = kind == ND_GATE_BITWISE ? NULL : strrchr(entry, ':');
    if (kind == ND_GATE_BITWISE) {
        rule.name = entry;
    } else if (colon != NULL) {
        *colon = '\0';
        value = colon + 1;
        rule.name = entry;
    } else {
        value = entry;
    }
    ND_FREED char *owned = entry;
    if (rule.name != NULL && rule.name[0] == '\0')
        return nd_fail(err, ND_E_OPTION_VALUE, NULL, "gate '%s' has an empty tensor name", kind_name(kind));
    if (value != NULL && !parse_value(&rule, value))
        return nd_fail(err, ND_E_OPTION_VALUE, value, "gate '%s' needs a %s, not '%s'", kind_name(kind),
                       kind <= ND_GATE_ULP ? "whole number >= 0" : "number >= 0", value);
    ND_TRY_MEMORY(nd_grow((void **)&gates->rules, &gates->capacity, gates->n + 1, sizeof *gates->rules), err);
    if (rule.name != NULL)
        owned = NULL; /* the rule's */
    gates->rules[gates->n++] = rule;
    return ND_OK;
}

enum nd_status nd_gates_parse(struct nd_gates *gates, enum nd_gate_kind kind, const char *text,
                              struct nd_error *err)
{
    if (kind == ND_GATE_BITWISE && (text == NULL || text[0] == '\0')) {
        ND_TRY_MEMORY(nd_grow((void **)&gates->rules, &gates->capacity, gates->n + 1, sizeof *gates->rules),
                      err);
        gates->rules[gates->n++] = (struct rule){.kind = kind};
        return ND_OK;
    }
    size_t n_before = gates->n;
    const char *at = text != NULL ? text : "";
    for (;;) {
        size_t len = strcspn(at, ",");
        char *entry = strndup(at, len);
        enum nd_status status = entry != NULL ? add_entry(gates, kind, entry, err) : nd_fail_memory(err);
        if (status != ND_OK) {
            truncate_rules(gates, n_before);
            return status;
        }
        if (at[len] == '\0')
            return ND_OK;
        at += len + 1;
    }
}

bool nd_gates_any(const struct nd_gates *gates)
{
    return gates != NULL && gates->n > 0;
}

/* 3 for an equal name, 2 for a matching pattern, 1 for the default, 0 for none of them. */
static int match_rank(const struct rule *rule, const char *tensor)
{
    if (rule->name == NULL)
        return 1;
    if (strcmp(rule->name, tensor) == 0)
        return 3;
    return fnmatch(rule->name, tensor, 0) == 0 ? 2 : 0;
}

static const struct rule *find_rule(const struct nd_gates *gates, enum nd_gate_kind kind, const char *tensor)
{
    const struct rule *best = NULL;
    int best_rank = 1;
    for (size_t i = 0; gates != NULL && i < gates->n; i++) {
        int rank = gates->rules[i].kind == kind ? match_rank(&gates->rules[i], tensor) : 0;
        if (rank >= best_rank) {
            best = &gates->rules[i];
            best_rank = rank;
        }
    }
    return best;
}

struct nd_gate_values nd_gates_resolve(const struct nd_gates *gates, const char *tensor, bool is_float)
{
    const struct rule *lsb = is_float ? NULL : find_rule(gates, ND_GATE_LSB, tensor);
    const struct rule *ulp = is_float ? find_rule(gates, ND_GATE_ULP, tensor) : NULL;
    const struct rule *atol = find_rule(gates, ND_GATE_ATOL, tensor),
                      *rtol = find_rule(gates, ND_GATE_RTOL, tensor);
    struct nd_gate_values values = {
        .bitwise = find_rule(gates, ND_GATE_BITWISE, tensor) != NULL,
        .has_lsb = lsb != NULL,
        .has_ulp = ulp != NULL,
        .has_tolerance = atol != NULL || rtol != NULL,
        .lsb = lsb != NULL ? lsb->whole : 0,
        .ulp = ulp != NULL ? ulp->whole : 0,
        .atol = atol != NULL ? atol->real : 0,
        .rtol = rtol != NULL ? rtol->real : 0,
    };
    if (!values.has_lsb && !values.has_ulp && !values.has_tolerance)
        values.bitwise = true;
    return values;
}

static enum nd_status check_rule(const struct rule *rule, const struct nd_compared_tensor *tensors,
                                 size_t n_tensors, struct nd_error *err)
{
    bool is_matched = rule->name == NULL;
    for (size_t i = 0; i < n_tensors && rule->name != NULL; i++) {
        int rank = match_rank(rule, tensors[i].name);
        is_matched = is_matched || rank > 0;
        bool is_float = nd_dtype_is_float(tensors[i].dtype);
        bool is_misplaced = rule->kind == ND_GATE_LSB ? is_float : rule->kind == ND_GATE_ULP && !is_float;
        if (rank == 3 && is_misplaced && tensors[i].dtype != ND_DTYPE_NONE)
            return nd_fail(err, ND_E_COMPARE_GATE, rule->name,
                           "gate '%s' does not apply to tensor '%s' of type %s", kind_name(rule->kind),
                           rule->name, nd_dtype_name(tensors[i].dtype));
    }
    if (!is_matched)
        return nd_fail(err, ND_E_COMPARE_GATE, rule->name, "gate '%s' names '%s', which matches no tensor",
                       kind_name(rule->kind), rule->name);
    return ND_OK;
}

enum nd_status nd_gates_check(const struct nd_gates *gates, const struct nd_compared_tensor *tensors,
                              size_t n_tensors, struct nd_error *err)
{
    for (size_t i = 0; gates != NULL && i < gates->n; i++)
        ND_TRY(check_rule(&gates->rules[i], tensors, n_tensors, err));
    return ND_OK;
}
