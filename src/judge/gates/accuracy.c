/* Accuracies of every device, against the float model and against the quantised reference. */
#include <assert.h>
#include <math.h>

#include "compare/metrics/layout.h"
#include "core/memory.h"
#include "core/random.h"
#include "core/statistics/distributions.h"
#include "core/statistics/evidence.h"
#include "core/text/strbuf.h"
#include "judge/accuracy/fleet_accuracy.h"
#include "judge/release/qualify.h"

/* References of a campaign that are broken: by what they hold, and by how far they fell since the last result.
 */

static bool find_right(const struct nd_qualified_study *study, const char *label, size_t *right)
{
    for (size_t i = 0; i < study->baseline.n; i++)
        if (strcmp(study->baseline.items[i].label, label) == 0 && study->baseline.items[i].n != SIZE_MAX) {
            *right = study->baseline.items[i].n;
            return true;
        }
    return false;
}

/* How many labelled samples the cell called `label` had right in the last result, of the same model, probe,
 * output and number of samples; false: not known. */
static bool nd_qualify_find_baseline(const struct nd_qualification *q, const struct nd_qualify_model *model,
                                     const struct nd_accuracy_study *study, const char *label, size_t *right)
{
    for (size_t m = 0; m < q->last.models.n; m++) {
        const struct nd_qualified_model *last = &q->last.models.items[m];
        if (strcmp(last->name, model->campaign->name) != 0 ||
            strcmp(last->sha256, nd_model_sha256(model->model)) != 0)
            continue;
        for (size_t i = 0; i < last->accuracy.n; i++) {
            const struct nd_qualified_study *then = &last->accuracy.items[i];
            if (strcmp(then->probe, study->probe) == 0 && strcmp(then->tensor, study->tensor) == 0 &&
                then->n_samples == study->changes.n_samples)
                return find_right(then, label, right);
        }
    }
    return false;
}

/* The classes of a device or of one of the two references; NULL: none. */
static const int64_t *nd_qualify_classes_of(const struct nd_qualify_model *model,
                                            const struct nd_accuracy_study *study, size_t cell)
{
    if (cell == model->quantised)
        return study->quantised;
    return cell == model->float64 ? study->reference : nd_accuracy_study_classes(study, cell);
}

/* The classes of a device or of one of the two references; NULL: none. */
static size_t nd_qualify_count_right(const struct nd_accuracy_study *study, const int64_t *classes)
{
    size_t n = 0;
    for (size_t i = 0; i < study->n_samples; i++)
        n += study->labels[i] >= 0 && classes[i] == study->labels[i];
    return n;
}

/* Whether an accuracy fell too far: from `before` to `now` right ones of n. */
static bool nd_broken_has_fell_back(size_t before, size_t now, size_t n)
{
    return n >= ND_BROKEN_MIN_SAMPLES && before > now && (double)(before - now) > ND_BROKEN_FALL * (double)n;
}

/* Far below the last result on every output and probe that has labels, as far as both have them. */
static enum nd_status find_fall(const struct nd_qualification *q, const struct nd_qualify_model *model,
                                struct nd_qualify_cell *cell, size_t c, struct nd_error *err)
{
    struct nd_strbuf text = {0};
    for (size_t i = 0; i < model->n_studies; i++) {
        const struct nd_accuracy_study *study = &model->studies[i];
        const int64_t *classes = nd_qualify_classes_of(model, study, c);
        size_t before, n = study->changes.n_samples;
        if (classes == NULL || !nd_qualify_find_baseline(q, model, study, cell->label, &before))
            continue;
        size_t now = nd_qualify_count_right(study, classes);
        if (!nd_broken_has_fell_back(before, now, n)) {
            nd_strbuf_deinit(&text);
            return ND_OK;
        }
        if (text.len == 0)
            nd_strbuf_printf(&text,
                             "%zu of %zu samples of '%s' are right at '%s', and %zu were last time with the "
                             "same model; if that is as it should be, --force accepts it",
                             now, n, study->probe, study->tensor, before);
    }
    if (text.len == 0 && !text.failed)
        return ND_OK;
    cell->broken = nd_strbuf_take(&text);
    return cell->broken != NULL ? ND_OK : nd_fail_memory(err);
}

static bool is_reference(const struct nd_qualification *q, const struct nd_qualify_model *model, size_t c)
{
    const char *label = model->cells[c].label;
    bool is_one = c >= q->n_devices || strcmp(q->campaign.reference, label) == 0;
    for (size_t r = 0; !is_one && r < q->campaign.policy.n; r++)
        is_one = q->campaign.policy.rules[r].to != NULL && strcmp(q->campaign.policy.rules[r].to, label) == 0;
    return is_one;
}

enum nd_status nd_qualify_find_broken(struct nd_qualification *q, struct nd_qualify_model *model,
                                      struct nd_error *err)
{
    for (size_t c = 0; c < model->n_cells; c++) {
        struct nd_qualify_cell *cell = &model->cells[c];
        if (cell->failure != NULL || !is_reference(q, model, c))
            continue;
        ND_TRY(nd_broken_find(cell->capture, &cell->broken, err));
        if (cell->broken == NULL)
            ND_TRY(find_fall(q, model, cell, c, err));
    }
    return ND_OK;
}

/* The samples that each cell has right, for the next time. */
static void nd_qualify_fill_baseline(const struct nd_qualification *q, const struct nd_qualify_model *model,
                                     const struct nd_accuracy_study *study, struct nd_qualified_study *out)
{
    out->baseline.items = nd_arena_calloc(q->arena, model->n_cells, sizeof *out->baseline.items);
    for (size_t c = 0; out->baseline.items != NULL && c < model->n_cells; c++) {
        const struct nd_qualify_cell *cell = &model->cells[c];
        const int64_t *classes = nd_qualify_classes_of(model, study, c);
        size_t right;
        if (classes == NULL)
            continue;
        /* A broken reference is no measure for the next time. */
        if (cell->broken == NULL || !nd_qualify_find_baseline(q, model, study, cell->label, &right))
            right = nd_qualify_count_right(study, classes);
        out->baseline.items[out->baseline.n++] =
            (struct nd_qualified_right){nd_qualify_text(q, cell->label), right};
    }
}

/* ---- reading ---- */

/* ---- telling ---- */

static struct nd_qualified_share share_of(const struct nd_proportion *p)
{
    return (struct nd_qualified_share){(size_t)p->k, (size_t)p->n, p->share, p->interval};
}

struct nd_paired_question nd_qualify_question(double margin, double confidence, double power)
{
    return (struct nd_paired_question){ND_QUESTION_NONINFERIOR, margin, 1 - confidence, power};
}

/* What is asked of a device against a reference, and the answer. */
struct asked {
    size_t rule; /* the gate that asks it; SIZE_MAX: none does, then it is the campaign's question */
    struct nd_paired_question question;
    struct nd_paired_answer answer;
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
        SIZE_MAX, nd_qualify_question(campaign->margin, campaign->confidence, campaign->power), {0}};
    struct nd_policy_cell cell = {.model = model->campaign->name, .device = device};
    for (size_t e = 0; e < model->n_tensors; e++)
        if (strcmp(model->tensors[e].name, study->tensor) == 0)
            cell.tensor = &model->tensors[e];
    for (size_t p = 0; p < model->n_probes; p++)
        if (strcmp(model->scope_probes[p].name, study->probe) == 0)
            cell.probe = &model->scope_probes[p];
    nd_paired_ask(table, &asked.question, &asked.answer);
    for (size_t r = 0; r < campaign->policy.n; r++) {
        const struct nd_policy_rule *rule = &campaign->policy.rules[r];
        if (rule->gate != ND_POLICY_ACCURACY || strcmp(rule->to, reference) != 0 ||
            !nd_policy_governs(&campaign->policy, r, &cell))
            continue;
        struct asked next = {r, nd_qualify_question(rule->margin, rule->confidence, rule->power), {0}};
        nd_paired_ask(table, &next.question, &next.answer);
        enum nd_case_verdict worse = nd_case_verdict_worse(verdict_of(&asked), verdict_of(&next));
        if (asked.rule == SIZE_MAX || worse != verdict_of(&asked))
            asked = next;
    }
    return asked;
}

struct reference {
    const char *name;
    const int64_t *classes; /* NULL: there is none */
};

/* Device d of the study against a reference: what changed, and what that proves. */
static void add_pair(const struct nd_qualification *q, const struct nd_qualify_model *model,
                     const struct nd_accuracy_study *study, size_t d, const struct reference *reference,
                     struct nd_qualified_pairs *out)
{
    const int64_t *ref = reference->classes, *test = study->classes[d];
    struct nd_paired table;
    uint64_t n_changed_wrong;
    nd_paired_count(ref, test, study->labels, study->n_samples, &table, &n_changed_wrong);
    const struct asked asked = ask(q, model, study, q->labels[study->devices[d]], reference->name, &table);
    struct nd_qualified_pair *pair = &out->against.items[out->against.n++];
    *pair = (struct nd_qualified_pair){
        .reference = reference->name,
        .n_samples = (size_t)nd_paired_n(&table),
        .n_right_before = (size_t)(table.both_right + table.ref_only),
        .n_right_after = (size_t)(table.both_right + table.test_only),
        .n_right_to_wrong = (size_t)table.ref_only,
        .n_wrong_to_right = (size_t)table.test_only,
        .n_wrong_to_wrong = (size_t)n_changed_wrong,
        .difference = nd_paired_difference(&table),
        .interval = nd_paired_tango(&table, q->campaign.confidence),
        .p_value = nd_paired_p_value(&table),
        .margin = asked.question.margin,
        .margin_interval = asked.answer.interval,
        .answer = nd_answer_name(asked.question.kind, asked.answer.kind),
        .n_samples_needed = (size_t)asked.answer.n_needed,
        .gate = asked.rule,
    };
    /* What the discordant samples come to as evidence, in their order: what one who looked after every sample
     * would have seen. */
    struct nd_sequential_evidence evidence = {0};
    size_t n = 0; /* samples with a label */
    pair->stop = SIZE_MAX;
    for (size_t i = 0; i < study->n_samples; i++) {
        bool is_ref_right = ref[i] == study->labels[i], is_test_right = test[i] == study->labels[i];
        if (study->labels[i] < 0)
            continue;
        n++;
        if (is_ref_right != is_test_right)
            nd_evidence_add(&evidence, is_test_right);
        if (pair->stop == SIZE_MAX && nd_evidence_suffices(&evidence, ND_EVIDENCE_STOP))
            pair->stop = n;
    }
    pair->e_value = exp(evidence.log_e);
    pair->largest_e = exp(evidence.log_e_max);
}

/* Every device against one reference, with Holm's p-values over all of them. */
static void add_reference(const struct nd_qualification *q, const struct nd_qualify_model *model,
                          const struct nd_accuracy_study *study, const struct reference *reference,
                          struct nd_qualified_study *out)
{
    size_t n = study->n_devices;
    ND_FREED double *p = nd_calloc(2 * n, sizeof *p); /* [n], and adjusted */
    for (size_t d = 0; p != NULL && d < n; d++) {
        struct nd_qualified_pairs *pairs = &out->devices.items[d];
        add_pair(q, model, study, d, reference, pairs);
        p[d] = pairs->against.items[pairs->against.n - 1].p_value;
    }
    if (p != NULL)
        nd_adjust_holm(p, n, p + n);
    else
        nd_arena_fail(q->arena);
    for (size_t d = 0; p != NULL && d < n; d++) {
        struct nd_qualified_pairs *pairs = &out->devices.items[d];
        pairs->against.items[pairs->against.n - 1].p_value_holm = p[n + d];
    }
}

/* "uniform: quantisation", "uneven: NPU", "inconclusive". */
static const char *nd_spread_name(enum nd_spread_kind kind)
{
    static const char *const names[] = {"inconclusive", "uniform: quantisation", "uneven: NPU"};
    return names[kind];
}

static void fill_study(const struct nd_qualification *q, const struct nd_qualify_model *model,
                       const struct nd_accuracy_study *study, struct nd_qualified_study *out)
{
    const struct nd_prediction_changes *changes = &study->changes;
    const struct nd_spread *spread = &study->spread;
    bool has_devices = study->n_devices > 0;
    *out = (struct nd_qualified_study){
        .probe = nd_qualify_text(q, study->probe),
        .tensor = nd_qualify_text(q, study->tensor),
        .n_samples = changes->n_samples,
        .confidence = q->campaign.confidence,
        .changes = {changes->n_devices, changes->mean, changes->mean_interval, share_of(&changes->any_differs),
                    share_of(&changes->unstable)},
        .spread = {.verdict = nd_spread_name(spread->kind),
                   .best = has_devices ? nd_qualify_text(q, q->labels[study->devices[spread->best]]) : "",
                   .worst = has_devices ? nd_qualify_text(q, q->labels[study->devices[spread->worst]]) : "",
                   .margin = q->campaign.margin,
                   .spread = spread->spread,
                   .common = spread->common,
                   .quantised = spread->quantised,
                   .beyond = spread->beyond},
    };
    out->devices.items = nd_arena_calloc(q->arena, study->n_devices, sizeof *out->devices.items);
    for (size_t d = 0; out->devices.items != NULL && d < study->n_devices; d++) {
        struct nd_qualified_pairs *pairs = &out->devices.items[out->devices.n++];
        pairs->device = nd_qualify_text(q, q->labels[study->devices[d]]);
        pairs->against.items = nd_arena_calloc(q->arena, 2, sizeof *pairs->against.items);
    }
    const struct reference references[] = {{ND_REFERENCE_FLOAT, study->reference},
                                           {ND_REFERENCE_QUANTISED, study->quantised}};
    for (size_t i = 0; i < 2 && !nd_arena_has_failed(q->arena); i++)
        if (references[i].classes != NULL)
            add_reference(q, model, study, &references[i], out);
    nd_qualify_fill_baseline(q, model, study, out);
}

void nd_qualify_fill_accuracy(const struct nd_qualification *q, const struct nd_qualify_model *model,
                              struct nd_qualified_model *out)
{
    out->accuracy.items = nd_arena_calloc(q->arena, model->n_studies, sizeof *out->accuracy.items);
    for (size_t i = 0; out->accuracy.items != NULL && i < model->n_studies; i++)
        fill_study(q, model, &model->studies[i], &out->accuracy.items[out->accuracy.n++]);
}

/* ---- target tensors ---- */

enum { N_STATISTICS = 6 };

struct nd_target_sums nd_target_sums_of(const double *values, const double *target, size_t n)
{
    struct nd_target_sums sums = {0};
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(values[i]) || !isfinite(target[i])) {
            sums.n_left_out++;
            continue;
        }
        double error = values[i] - target[i];
        sums.n_elems++;
        sums.abs_error += fabs(error);
        sums.sq_error += error * error;
        sums.sq_target += target[i] * target[i];
    }
    return sums;
}

static void add(struct nd_target_sums *sum, const struct nd_target_sums *sample)
{
    sum->n_elems += sample->n_elems;
    sum->abs_error += sample->abs_error;
    sum->sq_error += sample->sq_error;
    sum->sq_target += sample->sq_target;
}

/* 10 log10(a / b); 0 / 0 is what the caller says. */
static double decibels(double a, double b, double of_nothing)
{
    static const double db_per_neper = 0x1.15f2ced384f28p+2; /* 10 / ln 10 */
    if (isnan(a) || isnan(b) || (a == 0 && b == 0))
        return isnan(a) || isnan(b) ? NAN : of_nothing;
    if (a == 0 || b == 0 || isinf(a) || isinf(b))
        return isinf(a) && isinf(b) ? NAN : a == 0 || isinf(b) ? -INFINITY : INFINITY;
    return db_per_neper * (nd_log(a) - nd_log(b));
}

static void statistics_of(const struct nd_target_sums *ref, const struct nd_target_sums *test,
                          double values[static N_STATISTICS])
{
    values[0] = ref->abs_error / (double)ref->n_elems;
    values[1] = decibels(ref->sq_target, ref->sq_error, ref->n_elems > 0 ? INFINITY : NAN);
    values[2] = test->abs_error / (double)test->n_elems;
    values[3] = decibels(test->sq_target, test->sq_error, test->n_elems > 0 ? INFINITY : NAN);
    values[4] = values[2] - values[0];
    values[5] = decibels(ref->sq_error, test->sq_error, ref->n_elems > 0 && test->n_elems > 0 ? 0 : NAN);
    /* The targets differ only where elements were left out. */
    if (ref->sq_target != test->sq_target && isfinite(values[5]))
        values[5] += decibels(test->sq_target, ref->sq_target, NAN);
}

static struct nd_interval interval_of(double *draws, double confidence)
{
    size_t n = 0;
    for (size_t i = 0; i < ND_DRAWS; i++)
        if (!isnan(draws[i]))
            draws[n++] = draws[i];
    return n > 0 ? nd_percentiles(draws, n, confidence) : (struct nd_interval){NAN, NAN};
}

enum nd_status nd_target_compare(const struct nd_target_sums *ref, const struct nd_target_sums *test,
                                 size_t n_samples, const struct nd_spread_options *options,
                                 struct nd_target_comparison *out, struct nd_error *err)
{
    assert(n_samples <= UINT32_MAX && options->confidence > 0 && options->confidence < 1);
    double *draws = nd_calloc((size_t)N_STATISTICS * ND_DRAWS, sizeof *draws), values[N_STATISTICS];
    ND_TRY_MEMORY(draws != NULL, err);
    struct nd_target_sums all_ref = {0}, all_test = {0};
    for (size_t i = 0; i < n_samples; i++) {
        add(&all_ref, &ref[i]);
        add(&all_test, &test[i]);
    }
    statistics_of(&all_ref, &all_test, values);
    struct nd_estimate estimates[N_STATISTICS];
    for (size_t k = 0; k < N_STATISTICS; k++)
        estimates[k] = (struct nd_estimate){values[k], {NAN, NAN}};
    uint64_t state = options->seed;
    for (size_t d = 0; d < ND_DRAWS && n_samples > 1; d++) {
        struct nd_target_sums drawn_ref = {0}, drawn_test = {0};
        for (size_t i = 0; i < n_samples; i++) {
            size_t sample = nd_splitmix_below(&state, n_samples);
            add(&drawn_ref, &ref[sample]);
            add(&drawn_test, &test[sample]);
        }
        statistics_of(&drawn_ref, &drawn_test, values);
        for (size_t k = 0; k < N_STATISTICS; k++)
            draws[k * ND_DRAWS + d] = values[k];
    }
    for (size_t k = 0; k < N_STATISTICS && n_samples > 1; k++)
        estimates[k].interval = interval_of(draws + k * ND_DRAWS, options->confidence);
    *out = (struct nd_target_comparison){.ref = {estimates[0], estimates[1]},
                                         .test = {estimates[2], estimates[3]},
                                         .difference = {estimates[4], estimates[5]}};
    free(draws);
    return ND_OK;
}

/* ---- all cells of a model ---- */

enum { SEED = 20240229 };

/* ---- measuring ---- */

static enum nd_status measure(const struct nd_capture *capture, size_t probe, size_t tensor,
                              const struct nd_probe_goal *goal, struct nd_target_sums **out,
                              struct nd_error *err)
{
    struct nd_layout layout;
    const struct nd_kernels *kernels;
    ND_TRY(nd_layout_make(nd_capture_tensor(capture, tensor), &layout, err));
    ND_TRY(nd_kernels_choose(NULL, &kernels, err));
    if (layout.n_elems != goal->n_elems)
        return nd_fail(err, ND_E_PROBE_SHAPE, goal->output,
                       "the target of output '%s' has %zu elements for a sample, the output %zu", goal->output,
                       goal->n_elems, layout.n_elems);
    nd_layout_make_real(&layout);
    ND_FREED unsigned char *bytes = nd_tensor_alloc(layout.sample_bytes);
    ND_FREED double *values = nd_tensor_alloc(layout.n_elems * sizeof *values); /* as many as the target has */
    ND_FREED struct nd_target_sums *sums = nd_calloc(goal->n_samples, sizeof *sums);
    ND_TRY_MEMORY(bytes != NULL && values != NULL && sums != NULL, err);
    for (size_t i = 0; i < goal->n_samples; i++) {
        ND_TRY(nd_capture_read_verified(&(struct nd_probe_values){capture, probe, tensor}, i, 1, bytes, err));
        /* Real values of one sample. */
        for (size_t first = 0; first < layout.n_elems; first += ND_BLOCK) {
            size_t n = layout.n_elems - first < ND_BLOCK ? layout.n_elems - first : ND_BLOCK;
            nd_layout_load(&layout, kernels, bytes + first * layout.elem_bytes, first, n, values + first);
        }
        sums[i] = nd_target_sums_of(values, goal->values + i * goal->n_elems, goal->n_elems);
    }
    return ND_GIVE(out, sums);
}

static enum nd_status measure_cell(const struct nd_qualify_cell *cell, const struct nd_qualify_target *target,
                                   const struct nd_probe_goal *goal, struct nd_target_sums **out,
                                   struct nd_error *err)
{
    if (cell->failure != NULL)
        return ND_OK;
    size_t p = nd_capture_find_probe(cell->capture, target->probe);
    size_t e = nd_capture_find_tensor(cell->capture, target->tensor);
    if (p == SIZE_MAX || e == SIZE_MAX || nd_capture_probe(cell->capture, p)->n_samples != target->n_samples ||
        !nd_capture_has_outputs(cell->capture, p, e))
        return ND_OK;
    return measure(cell->capture, p, e, goal, out, err);
}

static enum nd_status measure_target(struct nd_qualify_model *model, const struct nd_probe *probe,
                                     const struct nd_probe_goal *goal, const char *tensor, struct nd_error *err)
{
    struct nd_qualify_target *target = &model->targets[model->n_targets++];
    *target = (struct nd_qualify_target){.probe = probe->name, .tensor = tensor, .n_samples = goal->n_samples};
    target->sums = nd_calloc(model->n_cells, sizeof *target->sums);
    enum nd_status status = target->sums != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t c = 0; status == ND_OK && c < model->n_cells; c++)
        status = measure_cell(&model->cells[c], target, goal, &target->sums[c], err);
    return status;
}

enum nd_status nd_qualify_measure_targets(struct nd_qualification *q, struct nd_qualify_model *model,
                                          struct nd_error *err)
{
    (void)q;
    model->targets = nd_calloc(model->n_tensors * model->n_probes, sizeof *model->targets);
    ND_TRY_MEMORY(model->targets != NULL, err);
    for (size_t p = 0; p < model->n_probes; p++)
        for (size_t e = 0; e < model->n_tensors; e++) {
            const struct nd_probe_goal *goal = nd_probe_find_goal(model->probes[p], model->tensors[e].name);
            if (goal != NULL && model->tensors[e].is_output)
                ND_TRY(measure_target(model, model->probes[p], goal, model->tensors[e].name, err));
        }
    return ND_OK;
}

bool nd_qualify_compare_target(const struct nd_qualify_target *target, size_t ref, size_t device,
                               double confidence, struct nd_target_comparison *out)
{
    const struct nd_spread_options options = {.confidence = confidence, .seed = SEED};
    return ref != SIZE_MAX && target->sums[ref] != NULL && target->sums[device] != NULL &&
           nd_target_compare(target->sums[ref], target->sums[device], target->n_samples, &options, out, NULL) ==
               ND_OK;
}

/* ---- telling ---- */
