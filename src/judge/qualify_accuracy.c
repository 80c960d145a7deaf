/* Accuracies of every device, against the float model and against the quantised reference. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "judge/qualify.h"
#include "stats/multiplicity.h"
#include "stats/sequential.h"

/* ---- reading ---- */

/* NULL without an error: the capture has no such tensor, or other samples. */
static enum nd_status read_classes(const struct nd_qualify_cell *cell, const char *probe, const char *edge,
                                   size_t n_samples, int64_t **out, struct nd_error *err)
{
    *out = NULL;
    if (cell->failure != NULL)
        return ND_OK;
    size_t p = nd_capture_find_probe(cell->capture, probe), e = nd_capture_find_edge(cell->capture, edge);
    if (p == SIZE_MAX || e == SIZE_MAX || nd_capture_probe(cell->capture, p)->n_samples != n_samples ||
        !nd_capture_has_outputs(cell->capture, p, e))
        return ND_OK;
    return nd_top1_read(cell->capture, p, e, out, err);
}

static enum nd_status read_references(const struct nd_qualify_model *model, struct nd_accuracy_study *study,
                                      struct nd_error *err)
{
    enum nd_status status = ND_OK;
    if (model->quantised != SIZE_MAX)
        status = read_classes(&model->cells[model->quantised], study->probe, study->edge, study->n_samples,
                              &study->quantised, err);
    if (status == ND_OK && model->float64 != SIZE_MAX)
        status = read_classes(&model->cells[model->float64], study->probe, study->edge, study->n_samples,
                              &study->reference, err);
    return status;
}

static enum nd_status read_study(const struct nd_qualification *q, struct nd_qualify_model *model,
                                 const struct nd_probe *probe, const char *edge, struct nd_error *err)
{
    struct nd_accuracy_study *study = &model->studies[model->n_studies++];
    *study = (struct nd_accuracy_study){
        .probe = probe->name, .edge = edge, .n_samples = probe->n_samples, .labels = probe->labels};
    study->devices = nd_calloc(q->n_devices, sizeof *study->devices);
    study->classes = nd_calloc(q->n_devices, sizeof *study->classes);
    if (study->devices == NULL || study->classes == NULL)
        return nd_fail_memory(err);
    enum nd_status status = ND_OK;
    for (size_t d = 0; status == ND_OK && d < q->n_devices; d++) {
        int64_t *classes = NULL;
        status = read_classes(&model->cells[d], probe->name, edge, probe->n_samples, &classes, err);
        if (classes == NULL)
            continue;
        study->devices[study->n_devices] = d;
        study->classes[study->n_devices++] = classes;
    }
    if (status == ND_OK)
        status = read_references(model, study, err);
    return status == ND_OK ? nd_accuracy_study_measure(study, q->campaign.confidence, q->campaign.margin, err)
                           : status;
}

enum nd_status nd_qualify_study(struct nd_qualification *q, struct nd_qualify_model *model,
                                struct nd_error *err)
{
    enum nd_status status = ND_OK;
    model->studies = nd_calloc(model->n_edges * model->n_probes, sizeof *model->studies);
    if (model->studies == NULL)
        return nd_fail_memory(err);
    for (size_t p = 0; status == ND_OK && p < model->n_probes; p++)
        for (size_t e = 0; status == ND_OK && e < model->n_edges; e++)
            if (model->probes[p]->labels != NULL && model->edges[e].is_output)
                status = read_study(q, model, model->probes[p], model->edges[e].name, err);
    return status;
}

/* ---- telling ---- */

/* NaN and infinities as texts: JSON has no numbers for them. */
static json_t *number(double value)
{
    if (isfinite(value))
        return json_real(value);
    return json_string(isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity");
}

static json_t *interval(const struct nd_interval *interval)
{
    return json_pack("[o, o]", number(interval->low), number(interval->high));
}

/* Null where nothing is known, as of what devices lost against a float model that is not there. */
static json_t *estimate(const struct nd_estimate *estimate)
{
    if (isnan(estimate->value))
        return json_null();
    return json_pack("{s:o, s:o}", "value", number(estimate->value), "interval", interval(&estimate->interval));
}

static json_t *proportion(const struct nd_proportion *p)
{
    return json_pack("{s:I, s:I, s:o, s:o}", "samples", (json_int_t)p->k, "of", (json_int_t)p->n, "share",
                     number(p->share), "interval", interval(&p->interval));
}

/* What the discordant samples come to as evidence, in their order: what one who looked after every sample would
 * have seen. stop: the samples with a label until it sufficed; null: it never did. */
static json_t *evidence_json(const struct nd_accuracy_study *study, const int64_t *ref, const int64_t *test)
{
    struct nd_evidence evidence = {0};
    size_t n = 0, stop = 0;
    for (size_t i = 0; i < study->n_samples; i++) {
        bool is_ref_right = ref[i] == study->labels[i], is_test_right = test[i] == study->labels[i];
        if (study->labels[i] < 0)
            continue;
        n++;
        if (is_ref_right != is_test_right)
            nd_evidence_add(&evidence, is_test_right);
        if (stop == 0 && nd_evidence_suffices(&evidence, ND_EVIDENCE_STOP))
            stop = n;
    }
    return json_pack("{s:o, s:o, s:o}", "e_value", number(exp(evidence.log_e)), "largest",
                     number(exp(evidence.log_e_max)), "stop",
                     stop > 0 ? json_integer((json_int_t)stop) : json_null());
}

/* What is asked of a device against a reference, and the answer. */
struct asked {
    size_t rule; /* the gate that asks it; SIZE_MAX: none does, then it is the campaign's question */
    struct nd_question question;
    struct nd_answer answer;
};

static enum nd_case_verdict verdict_of(const struct asked *asked)
{
    return nd_case_verdict_of_answer(asked->answer.kind);
}

/* The question of the gate that governs the device here; of several the one with the most severe answer. */
static struct asked ask(const struct nd_qualification *q, const struct nd_qualify_model *model,
                        const struct nd_accuracy_study *study, const char *device, const char *reference,
                        const struct nd_paired *table)
{
    const struct nd_campaign *campaign = &q->campaign;
    struct asked asked = {
        SIZE_MAX, {ND_QUESTION_NONINFERIOR, campaign->margin, 1 - campaign->confidence, campaign->power}, {0}};
    struct nd_policy_cell cell = {.model = model->campaign->name, .device = device};
    for (size_t e = 0; e < model->n_edges; e++)
        if (strcmp(model->edges[e].name, study->edge) == 0)
            cell.edge = &model->edges[e];
    for (size_t p = 0; p < model->n_probes; p++)
        if (strcmp(model->scope_probes[p].name, study->probe) == 0)
            cell.probe = &model->scope_probes[p];
    nd_paired_ask(table, &asked.question, &asked.answer);
    for (size_t r = 0; r < campaign->policy.n; r++) {
        const struct nd_policy_rule *rule = &campaign->policy.rules[r];
        if (rule->gate != ND_POLICY_ACCURACY || strcmp(rule->to, reference) != 0 ||
            !nd_policy_governs(&campaign->policy, r, &cell))
            continue;
        struct asked next = {
            r, {ND_QUESTION_NONINFERIOR, rule->margin, 1 - rule->confidence, rule->power}, {0}};
        nd_paired_ask(table, &next.question, &next.answer);
        enum nd_case_verdict worse = nd_case_verdict_worse(verdict_of(&asked), verdict_of(&next));
        if (asked.rule == SIZE_MAX || worse != verdict_of(&asked))
            asked = next;
    }
    return asked;
}

/* A device of the study against a reference: what changed, and what that proves. */
static json_t *pair_json(const struct nd_qualification *q, const struct nd_qualify_model *model,
                         const struct nd_accuracy_study *study, size_t d, const int64_t *ref, const char *name)
{
    const int64_t *test = study->classes[d];
    struct nd_paired table;
    uint64_t n_changed_wrong;
    nd_paired_count(ref, test, study->labels, study->n_samples, &table, &n_changed_wrong);
    const struct asked asked = ask(q, model, study, q->labels[study->devices[d]], name, &table);
    const struct nd_question question = asked.question;
    const struct nd_answer answer = asked.answer;
    struct nd_interval tango = nd_paired_tango(&table, q->campaign.confidence);
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:s, s:I, s:o, s:o}",
                     "reference", name, "samples", (json_int_t)nd_paired_n(&table), "right_before",
                     (json_int_t)(table.both_right + table.ref_only), "right_after",
                     (json_int_t)(table.both_right + table.test_only), "right_to_wrong",
                     (json_int_t)table.ref_only, "wrong_to_right", (json_int_t)table.test_only,
                     "wrong_to_wrong", (json_int_t)n_changed_wrong, "difference",
                     number(nd_paired_difference(&table)), "interval", interval(&tango), "p_value",
                     number(nd_paired_p_value(&table)), "margin", number(question.margin), "margin_interval",
                     interval(&answer.interval), "answer", nd_answer_name(question.kind, answer.kind),
                     "samples_needed", (json_int_t)answer.n_needed, "evidence", evidence_json(study, ref, test),
                     "gate", asked.rule != SIZE_MAX ? json_integer((json_int_t)asked.rule) : json_null());
}

/* Holm's p-values over all devices against one reference; NaN where there is none. */
static double *adjusted(const struct nd_accuracy_study *study, const int64_t *ref)
{
    double *p = nd_calloc(study->n_devices, sizeof *p);
    for (size_t d = 0; p != NULL && d < study->n_devices; d++) {
        struct nd_paired table;
        uint64_t unused;
        p[d] = NAN;
        if (ref == NULL)
            continue;
        nd_paired_count(ref, study->classes[d], study->labels, study->n_samples, &table, &unused);
        p[d] = nd_paired_p_value(&table);
    }
    if (p != NULL && nd_adjust_holm(p, study->n_devices, p, NULL) != ND_OK) {
        free(p);
        return NULL;
    }
    return p;
}

static json_t *devices_json(const struct nd_qualification *q, const struct nd_qualify_model *model,
                            const struct nd_accuracy_study *study)
{
    const struct {
        const char *name;
        const int64_t *classes;
    } refs[] = {{ND_REFERENCE_FLOAT, study->reference}, {ND_REFERENCE_QUANTISED, study->quantised}};
    json_t *rows = json_array();
    for (size_t d = 0; d < study->n_devices; d++)
        json_array_append_new(rows,
                              json_pack("{s:s, s:[]}", "device", q->labels[study->devices[d]], "against"));
    for (size_t r = 0; r < 2; r++) {
        double *p = adjusted(study, refs[r].classes);
        for (size_t d = 0; p != NULL && refs[r].classes != NULL && d < study->n_devices; d++) {
            json_t *pair = pair_json(q, model, study, d, refs[r].classes, refs[r].name);
            json_object_set_new(pair, "p_value_holm", number(p[d]));
            json_array_append_new(json_object_get(json_array_get(rows, d), "against"), pair);
        }
        free(p);
    }
    return rows;
}

static json_t *spread_json(const struct nd_qualification *q, const struct nd_accuracy_study *study)
{
    const struct nd_spread *spread = &study->spread;
    json_t *best = json_null(), *worst = json_null();
    if (study->n_devices > 0) {
        best = json_string(q->labels[study->devices[spread->best]]);
        worst = json_string(q->labels[study->devices[spread->worst]]);
    }
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "verdict", nd_spread_name(spread->kind),
                     "best", best, "worst", worst, "margin", number(q->campaign.margin), "spread",
                     estimate(&spread->spread), "common", estimate(&spread->common), "quantised",
                     estimate(&spread->quantised), "beyond", estimate(&spread->beyond));
}

static json_t *study_json(const struct nd_qualification *q, const struct nd_qualify_model *model,
                          const struct nd_accuracy_study *study)
{
    const struct nd_churn *churn = &study->churn;
    json_t *churned =
        json_pack("{s:I, s:o, s:o, s:o, s:o}", "devices", (json_int_t)churn->n_devices, "mean",
                  number(churn->mean), "mean_interval", interval(&churn->mean_interval), "any_differs",
                  proportion(&churn->any_differs), "unstable", proportion(&churn->unstable));
    return json_pack("{s:s, s:s, s:I, s:o, s:o, s:o, s:o, s:o}", "probe", study->probe, "edge", study->edge,
                     "samples", (json_int_t)churn->n_samples, "confidence", number(q->campaign.confidence),
                     "devices", devices_json(q, model, study), "churn", churned, "spread",
                     spread_json(q, study), "baseline", nd_qualify_baseline_json(q, model, study));
}

json_t *nd_qualify_accuracy_json(const struct nd_qualification *q, const struct nd_qualify_model *model)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < model->n_studies; i++)
        json_array_append_new(rows, study_json(q, model, &model->studies[i]));
    return rows;
}
