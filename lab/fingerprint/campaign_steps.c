/* Where an operator's arithmetic changes: from one runtime to the next on a device, from one device to the next
 * with a runtime. A cell that does not tell is passed over: the change then stands at the step that spans it.
 */
#include <stdint.h>
#include <stdlib.h>

#include "core/memory.h"
#include "lab/fingerprint/campaign.h"
#include "lab/fingerprint/sheet.h"

/* From one place of an axis to a later one. The axis runs along runtimes, with devices beside it, or the other
 * way round. */
struct step {
    bool is_runtime;
    size_t from, to;
};

static size_t length(const struct nd_campaign *c, bool is_runtime)
{
    return is_runtime ? c->n_runtimes : c->n_devices;
}

static int cell_at(const struct nd_campaign *c, const struct nd_campaign_operator *operator, bool is_runtime,
                   size_t along, size_t beside)
{
    size_t device = is_runtime ? beside : along, runtime = is_runtime ? along : beside;
    return operator->cells[device * c->n_runtimes + runtime];
}

/* The step is one of this operator in this line: both ends tell, and nothing between them does. */
static bool has_step(const struct nd_campaign *c, const struct nd_campaign_operator *operator,
                     const struct step * step, size_t beside)
{
    for (size_t k = step->from; k <= step->to; k++) {
        bool is_end = k == step->from || k == step->to;
        if ((cell_at(c, operator, step->is_runtime, k, beside) >= 0) != is_end)
            return false;
    }
    return true;
}

static json_t *name_operator(const struct nd_campaign_operator *operator)
{
    return json_pack("{s:s, s:s, s:s, s:[]}", "section", operator->section, "operator",
                     nd_sheet_text(operator->entry, "operator"), "types",
                     nd_sheet_text(operator->entry, "types"), "where");
}

/* What the step does to one operator: counts it as the same, or adds it to those that changed with the names of
 * the lines in which it does. */
static bool add_operator(const struct nd_campaign *c, const struct nd_campaign_operator *operator,
                         const struct step * step, size_t *n_same, json_t *changed)
{
    json_t *row = NULL;
    bool is_seen = false, is_whole = true;
    for (size_t b = 0; is_whole && b < length(c, !step->is_runtime); b++) {
        if (!has_step(c, operator, step, b))
            continue;
        is_seen = true;
        if (cell_at(c, operator, step->is_runtime, step->from, b) ==
            cell_at(c, operator, step->is_runtime, step->to, b))
            continue;
        if (row == NULL && (row = name_operator(operator)) != NULL)
            is_whole = json_array_append_new(changed, row) == 0;
        is_whole = is_whole && row != NULL &&
                   json_array_append_new(json_object_get(row, "where"),
                                         json_string(step->is_runtime ? c->titles[b] : c->runtimes[b])) == 0;
    }
    *n_same += is_seen && row == NULL;
    return is_whole;
}

/* Appends the step, where any operator has it; a step between neighbours always stands. False: memory is out.
 */
static bool add_step(const struct nd_campaign *c, const struct step *step, json_t *steps)
{
    json_t *changed = json_array();
    size_t n_same = 0;
    bool is_whole = changed != NULL;
    for (size_t o = 0; is_whole && o < c->n_operators; o++)
        is_whole = add_operator(c, &c->operators[o], step, &n_same, changed);
    size_t n_changed = json_array_size(changed);
    if (is_whole && (step->to == step->from + 1 || n_changed > 0)) {
        char *const *names = step->is_runtime ? c->runtimes : c->devices;
        is_whole =
            json_array_append_new(
                steps,
                json_pack("{s:s, s:s, s:s, s:I, s:I, s:O}", "along", step->is_runtime ? "runtime" : "device",
                          "from", step->is_runtime ? names[step->from] : c->titles[step->from], "to",
                          step->is_runtime ? names[step->to] : c->titles[step->to], "n_same",
                          (json_int_t)n_same, "n_not_known", (json_int_t)(c->n_operators - n_same - n_changed),
                          "changed", changed)) == 0;
    }
    json_decref(changed);
    return is_whole;
}

json_t *nd_campaign_steps(const struct nd_campaign *campaign)
{
    json_t *steps = json_array();
    bool is_whole = steps != NULL;
    for (int axis = 0; axis < 2; axis++) {
        struct step step = {.is_runtime = axis == 0};
        size_t n = length(campaign, step.is_runtime);
        for (step.from = 0; step.from < n; step.from++)
            for (step.to = step.from + 1; is_whole && step.to < n; step.to++)
                is_whole = add_step(campaign, &step, steps);
    }
    if (is_whole)
        return steps;
    json_decref(steps);
    return NULL;
}

bool nd_campaign_is_same(const struct nd_campaign *campaign, const struct nd_campaign_operator *operator,
                         bool * is_known)
{
    size_t n = campaign->n_devices * campaign->n_runtimes, n_known = 0;
    bool is_same = true;
    int first = ND_CELL_EMPTY;
    for (size_t i = 0; i < n; i++) {
        if (operator->cells[i]<0)
            continue;
        is_same = is_same && (n_known == 0 || operator->cells[i] == first);
        first = n_known == 0 ? operator->cells[i] : first;
        n_known++;
    }
    *is_known = n_known > 1;
    return is_same;
}
