/* Gates on accuracy and on distances from target tensors. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "judge/gates/judging.h"

/* ---- accuracy ---- */

static const int64_t *reference_classes(const struct nd_judging *j, const struct nd_accuracy_study *study)
{
    if (strcmp(j->gate->to, ND_REFERENCE_FLOAT) == 0)
        return study->reference;
    if (strcmp(j->gate->to, ND_REFERENCE_QUANTISED) == 0)
        return study->quantised;
    return nd_accuracy_study_classes(study, nd_qualify_find_cell(j->model, j->q->n_devices, j->gate->to));
}

/* "4 282". */
static char *grouped(uint64_t n, char out[static 32])
{
    char digits[24];
    int n_digits = snprintf(digits, sizeof digits, "%llu", (unsigned long long)n), at = 0;
    for (int i = 0; i < n_digits; i++) {
        if (i > 0 && (n_digits - i) % 3 == 0)
            out[at++] = ' ';
        out[at++] = digits[i];
    }
    out[at] = '\0';
    return out;
}

static void tell_answer(const struct nd_judging *j, const struct nd_paired *table,
                        const struct nd_answer *answer)
{
    struct nd_case *out = j->out;
    char needed[32], given[32], end[120];
    double total = (double)answer->n_samples;
    snprintf(end, sizeof end, "%s", nd_answer_name(ND_QUESTION_NONINFERIOR, answer->kind));
    if (answer->kind == ND_ANSWER_INCONCLUSIVE)
        snprintf(end, sizeof end, "inconclusive: %s samples needed, %s given",
                 grouped(answer->n_needed, needed), grouped(answer->n_samples, given));
    snprintf(
        out->message, sizeof out->message,
        "%.2f%% -> %.2f%%, right to wrong %llu, wrong to right %llu, %.6g %% interval %+.2f .. %+.2f points; "
        "%s",
        100 * (double)(table->both_right + table->ref_only) / total,
        100 * (double)(table->both_right + table->test_only) / total, (unsigned long long)table->ref_only,
        (unsigned long long)table->test_only, 100 * answer->confidence, 100 * answer->interval.low,
        100 * answer->interval.high, end);
}

static void judge_study(struct nd_judging *j, const struct nd_accuracy_study *study)
{
    const int64_t *ref = reference_classes(j, study), *test = nd_accuracy_study_classes(study, j->device);
    struct nd_case *out = j->out;
    if (ref == NULL || test == NULL) {
        nd_judging_note_not_comparable(out, study->edge, "the reference or the device has no classes there");
        return;
    }
    const struct nd_question question =
        nd_qualify_question(j->gate->margin, j->gate->confidence, j->gate->power);
    struct nd_paired table;
    struct nd_answer answer;
    uint64_t n_changed_wrong;
    nd_paired_count(ref, test, study->labels, study->n_samples, &table, &n_changed_wrong);
    nd_paired_ask(&table, &question, &answer);
    enum nd_case_verdict verdict = nd_case_verdict_of_answer(answer.kind);
    bool is_worst = out->n_cells == 0 || nd_judging_outranks(verdict, out) ||
                    (verdict == out->verdict && 0 - answer.difference > out->value);
    out->n_cells++;
    out->n_failing += answer.kind == ND_ANSWER_NO;
    if (is_worst && nd_judging_outranks(ND_CASE_NOT_COMPARABLE, out)) {
        out->value = 0 - answer.difference;
        out->edge = study->edge;
        out->probe = study->probe;
        out->n_samples = answer.n_samples;
        out->n_needed = answer.n_needed;
        tell_answer(j, &table, &answer);
    }
    nd_judging_conclude(out, verdict);
}

void nd_judge_accuracy(struct nd_judging *j)
{
    const struct nd_qualify_model *model = j->model;
    j->out->bound = j->gate->margin;
    for (size_t e = 0; e < model->n_edges; e++)
        for (size_t p = 0; p < model->n_probes; p++) {
            if (!nd_judging_governs(j, &model->edges[e], &model->scope_probes[p]))
                continue;
            size_t s = 0;
            j->out->applies = true;
            while (s < model->n_studies && (strcmp(model->studies[s].edge, model->edges[e].name) != 0 ||
                                            strcmp(model->studies[s].probe, model->scope_probes[p].name) != 0))
                s++;
            if (s < model->n_studies)
                judge_study(j, &model->studies[s]);
            else
                nd_judging_note_not_comparable(j->out, model->edges[e].name, "it has no classes");
        }
}

/* ---- target tensors ---- */

static void tell_target(const struct nd_judging *j, const struct nd_estimate *before,
                        const struct nd_estimate *after, const struct nd_interval *worse, uint64_t n_samples)
{
    const char *unit = strcmp(j->gate->metric, ND_METRIC_SQNR) == 0 ? " dB" : "";
    snprintf(j->out->message, sizeof j->out->message,
             "%s %.6g%s -> %.6g%s at '%s' with '%s', worse by %.6g%s, %.6g %% interval %+.6g .. %+.6g%s%s",
             j->gate->metric, before->value, unit, after->value, unit, j->out->edge, j->out->probe,
             j->out->value, unit, 100 * (2 * j->gate->confidence - 1), worse->low, worse->high, unit,
             n_samples < 2 ? "; one sample says nothing" : "");
}

/* One-sided, as accuracy-drop: proven not to be worse by more than max, proven to be, or neither. */
static void judge_one_target(struct nd_judging *j, const struct nd_qualify_target *target)
{
    struct nd_case *out = j->out;
    struct nd_target_comparison c;
    size_t ref = nd_qualify_find_cell(j->model, j->q->n_devices, j->gate->to);
    if (!nd_qualify_compare_target(target, ref, j->device, 2 * j->gate->confidence - 1, &c)) {
        nd_judging_note_not_comparable(out, target->edge, "the reference or the device has no values there");
        return;
    }
    bool is_sqnr = strcmp(j->gate->metric, ND_METRIC_SQNR) == 0;
    const struct nd_estimate *change = is_sqnr ? &c.difference.sqnr_db : &c.difference.mean_error;
    double worse = is_sqnr ? 0 - change->value : change->value;
    const struct nd_interval interval =
        is_sqnr ? (struct nd_interval){0 - change->interval.high, 0 - change->interval.low} : change->interval;
    enum nd_case_verdict verdict = interval.high <= j->gate->max ? ND_CASE_PASSED
                                   : interval.low > j->gate->max ? ND_CASE_FAILED
                                                                 : ND_CASE_INCONCLUSIVE;
    bool is_worst = out->n_cells == 0 || nd_judging_outranks(verdict, out) ||
                    (verdict == out->verdict && (isnan(worse) || worse > out->value));
    out->n_cells++;
    out->n_failing += verdict == ND_CASE_FAILED;
    if (is_worst && nd_judging_outranks(ND_CASE_NOT_COMPARABLE, out)) {
        out->value = worse;
        out->edge = target->edge;
        out->probe = target->probe;
        out->n_samples = target->n_samples;
        tell_target(j, is_sqnr ? &c.ref.sqnr_db : &c.ref.mean_error,
                    is_sqnr ? &c.test.sqnr_db : &c.test.mean_error, &interval, target->n_samples);
    }
    nd_judging_conclude(out, verdict);
}

void nd_judge_target(struct nd_judging *j)
{
    const struct nd_qualify_model *model = j->model;
    j->out->bound = j->gate->max;
    for (size_t e = 0; e < model->n_edges; e++)
        for (size_t p = 0; p < model->n_probes; p++) {
            if (!nd_judging_governs(j, &model->edges[e], &model->scope_probes[p]))
                continue;
            j->out->applies = true;
            for (size_t i = 0; i < model->n_targets; i++)
                if (strcmp(model->targets[i].edge, model->edges[e].name) == 0 &&
                    strcmp(model->targets[i].probe, model->scope_probes[p].name) == 0)
                    judge_one_target(j, &model->targets[i]);
        }
}
