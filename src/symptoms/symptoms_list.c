/* The diagnoses of a comparison, as they are kept. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "symptoms/symptoms.h"

enum nd_status nd_diagnose_add(struct nd_comparison *c, size_t device, size_t edge,
                               const struct nd_finding *finding, bool is_of_runs, struct nd_error *err)
{
    struct nd_compared_diagnosis *grown = realloc(c->diagnoses, (c->n_diagnoses + 1) * sizeof *grown);
    if (grown == NULL)
        return nd_fail_memory(err);
    c->diagnoses = grown;
    grown[c->n_diagnoses] =
        (struct nd_compared_diagnosis){.device = device,
                                       .edge = edge,
                                       .kind = nd_fault_name(finding->kind),
                                       .text = nd_strdup(finding->text),
                                       .is_note = nd_fault_is_note(finding->kind),
                                       .is_of_runs = is_of_runs,
                                       .amount = finding->amount,
                                       .explained = finding->explained,
                                       .chance = finding->chance < 0 ? finding->chance : NAN};
    if (grown[c->n_diagnoses].text == NULL)
        return nd_fail_memory(err);
    c->n_diagnoses++;
    return ND_OK;
}

void nd_diagnose_count_later(struct nd_comparison *c)
{
    for (size_t i = 0; i < c->n_diagnoses; i++)
        for (size_t k = i + 1; k < c->n_diagnoses; k++)
            c->diagnoses[i].n_later += c->diagnoses[k].device == c->diagnoses[i].device &&
                                       strcmp(c->diagnoses[k].kind, c->diagnoses[i].kind) == 0;
}

enum nd_status nd_diagnose_copy(struct nd_comparison *c, size_t from, size_t to, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    size_t n = c->n_diagnoses;
    for (size_t i = 0; i < n && status == ND_OK; i++) {
        if (c->diagnoses[i].device != from || c->diagnoses[i].is_of_runs)
            continue;
        struct nd_finding none = {0};
        status = nd_diagnose_add(c, to, c->diagnoses[i].edge, &none, false, err);
        if (status != ND_OK)
            break;
        struct nd_compared_diagnosis *copy = &c->diagnoses[c->n_diagnoses - 1], made = *copy;
        *copy = c->diagnoses[i];
        copy->device = to;
        copy->text = nd_strdup(c->diagnoses[i].text);
        free(made.text);
        status = copy->text != NULL ? ND_OK : nd_fail_memory(err);
    }
    return status;
}
