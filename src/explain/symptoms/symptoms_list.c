/* The diagnoses of a comparison, as they are kept. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "explain/symptoms/symptoms.h"

/* Appends it with a copy of its text. */
static enum nd_status append(struct nd_comparison *c, struct nd_compared_diagnosis diagnosis,
                             struct nd_error *err)
{
    char *text = nd_strdup(diagnosis.text);
    struct nd_compared_diagnosis *grown =
        text != NULL ? realloc(c->diagnoses, (c->n_diagnoses + 1) * sizeof *grown) : NULL;
    if (grown == NULL) {
        free(text);
        return nd_fail_memory(err);
    }
    diagnosis.text = text;
    c->diagnoses = grown;
    grown[c->n_diagnoses++] = diagnosis;
    return ND_OK;
}

enum nd_status nd_diagnose_add(struct nd_comparison *c, size_t device, size_t edge,
                               const struct nd_finding *finding, bool is_of_runs, struct nd_error *err)
{
    return append(c,
                  (struct nd_compared_diagnosis){.device = device,
                                                 .edge = edge,
                                                 .kind = nd_fault_name(finding->kind),
                                                 .text = (char *)finding->text,
                                                 .is_note = nd_fault_is_note(finding->kind),
                                                 .is_of_runs = is_of_runs,
                                                 .amount = finding->amount,
                                                 .explained = finding->explained,
                                                 .chance = finding->chance < 0 ? finding->chance : NAN},
                  err);
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
    for (size_t i = 0, n = c->n_diagnoses; i < n && status == ND_OK; i++) {
        struct nd_compared_diagnosis copy = c->diagnoses[i];
        copy.device = to;
        if (c->diagnoses[i].device == from && !copy.is_of_runs)
            status = append(c, copy, err);
    }
    return status;
}
