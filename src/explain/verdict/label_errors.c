/* What a capture says wrongly of its tensors is a fault by itself: whoever reads the codes by these words gets
 * other numbers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "arithmetic/exact/linear/rounding.h"
#include "explain/verdict/health.h"

static bool is_kind(const struct nd_explained_finding *finding, enum nd_fault_kind kind)
{
    return strcmp(finding->fault.kind, nd_fault_name(kind)) == 0;
}

static bool is_of_encoding(const struct nd_explained_finding *finding)
{
    static const enum nd_fault_kind kinds[] = {
        ND_FAULT_SCALE,      ND_FAULT_CHANNEL_SCALE, ND_FAULT_ZERO_POINT,        ND_FAULT_ENCODING,
        ND_FAULT_OFFSET_256, ND_FAULT_OFFSET_SIGN,   ND_FAULT_CHANNEL_ZERO_POINT};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (is_kind(finding, kinds[i]))
            return true;
    return false;
}

/* A scale that was written with few digits: a value at the end of the codes is off by less than that many
 * steps. Chosen. */
static bool is_rounded_scale(const struct nd_plan *plan, const struct nd_explained_finding *finding)
{
    static const double steps = 0.25; /* chosen */
    const struct nd_edge *edge = nd_plan_edge(plan, finding->step);
    double low, high;
    if (!is_kind(finding, ND_FAULT_SCALE) && !is_kind(finding, ND_FAULT_CHANNEL_SCALE))
        return false;
    nd_code_range(edge->dtype, &low, &high);
    return fabs(finding->fault.amount - 1) * (high - low) < steps;
}

/* Why the finding is a fault of its tensor, or NULL: it proves nothing. */
static const char *prove(const struct nd_plan *plan, const struct nd_explained_unit *unit,
                         const struct nd_explained_finding *finding)
{
    size_t edge = plan->steps[finding->step].edge;
    bool is_forced = plan->alternatives.forced[edge] != NULL || plan->alternatives.is_forced_here[edge];
    if (is_kind(finding, ND_FAULT_WRONG_TYPE))
        return "read as the model's type, the values are about what the model asks for";
    if (is_of_encoding(finding)) /* the provider has an encoding of its own for some, whatever the model says */
        return is_forced || is_rounded_scale(plan, finding) ? NULL : "the capture itself says so";
    bool is_one_code = is_kind(finding, ND_FAULT_ALL_ZERO) || is_kind(finding, ND_FAULT_CONSTANT);
    return is_one_code && !unit->is_examined && !unit->is_left ? "no arithmetic makes one value of these inputs"
                                                               : NULL;
}

static enum nd_status accuse(struct nd_explained_unit *unit, const struct nd_explained_fault *fault,
                             const char *proof, struct nd_error *err)
{
    char *text = nd_strdup(fault->text), *evidence = nd_strdup(proof);
    if (text == NULL || evidence == NULL) {
        free(text);
        free(evidence);
        return nd_fail_memory(err);
    }
    free(unit->fault.text);
    free(unit->evidence);
    unit->state = ND_LAYER_FAULTY;
    unit->certainty = strcmp(fault->kind, nd_fault_name(ND_FAULT_WRONG_TYPE)) == 0 ? ND_CERTAINTY_LIKELY
                                                                                   : ND_CERTAINTY_PROVEN;
    unit->fault = *fault;
    unit->fault.text = text;
    unit->evidence = evidence;
    return ND_OK;
}

/* Codes that pile up are held against the whole model's reference. Where the layer follows its arithmetic, they
 * are what its own inputs give: the cause lies before it. */
static bool is_inherited(const struct nd_explained_unit *unit, const struct nd_explained_finding *finding)
{
    return unit->state == ND_LAYER_FOLLOWS &&
           (is_kind(finding, ND_FAULT_SATURATION) || is_kind(finding, ND_FAULT_ALL_ZERO) ||
            is_kind(finding, ND_FAULT_CONSTANT));
}

static void drop_inherited(struct nd_explained_device *device)
{
    size_t n = 0;
    for (size_t i = 0; i < device->n_findings; i++) {
        struct nd_explained_finding *finding = &device->findings[i];
        if (is_inherited(&device->units[finding->step], finding))
            free(finding->fault.text);
        else
            device->findings[n++] = *finding;
    }
    device->n_findings = n;
}

enum nd_status nd_explain_accuse_labels(const struct nd_explain_job *job, size_t device, struct nd_error *err)
{
    struct nd_explained_device *out = &job->out->devices[device];
    enum nd_status status = ND_OK;
    drop_inherited(out);
    for (size_t i = 0; i < out->n_findings && status == ND_OK; i++) {
        struct nd_explained_unit *unit = &out->units[out->findings[i].step];
        const char *proof = prove(job->plan, unit, &out->findings[i]);
        if (proof != NULL && unit->state != ND_LAYER_FAULTY)
            status = accuse(unit, &out->findings[i].fault, proof, err);
    }
    return status;
}
