/* Inputs of a layer as they should be. What was recorded of a tensor need not be what its readers read: where
 * its maker does not follow known arithmetic, the layer is worked out once more from what the maker should have
 * made of its own recorded inputs. */
#include <math.h>
#include <stdio.h>

#include "arithmetic/exact/linear/rounding.h"
#include "core/memory.h"
#include "explain/layer_diagnosis/layer_diagnosis.h"

/* Which sum of pairs in 16 bits gives the values of a layer. docs/reference/diagnoses.md. */

/* Of the quantised values that exact sums get wrong the best must leave at most this share. Chosen: it only
 * saves the second pass, the diagnosis then asks for 0.01 of them. With both 400 networks without such sums
 * have none that is named (docs/reference/diagnoses.md). */
static const double worth_share = 0.05;

static void explain_pairs_init(struct nd_explain_pairs *pairs)
{
    *pairs = (struct nd_explain_pairs){.chosen = SIZE_MAX};
}

struct look {
    struct nd_explain_pairs *pairs;
    const struct nd_array *given;
    double *qvalues;
};

static enum nd_status look_at(void *context, size_t which, const struct nd_array *qvalues, struct nd_error *err)
{
    (void)err;
    const struct look *look = context;
    struct nd_explain_pairs *pairs = look->pairs;
    if (qvalues->n != look->given->n)
        return ND_OK;
    if (look->qvalues != NULL) {
        if (which == pairs->chosen)
            memcpy(look->qvalues, qvalues->x, qvalues->n * sizeof *qvalues->x);
        return ND_OK;
    }
    pairs->is_tried[which] = true;
    for (size_t i = 0; i < qvalues->n; i++)
        pairs->n_wrong[which] += qvalues->x[i] != look->given->x[i];
    return ND_OK;
}

/* After the first pass: chooses the one that leaves the fewest wrong quantised values, of n_wrong that exact
 * sums leave. True: it is worth a second pass, for which quantised values has room for n. ND_ERR_MEMORY. */
static enum nd_status explain_pairs_choose(struct nd_explain_pairs *pairs, size_t n_wrong, size_t n,
                                           bool *is_worth, struct nd_error *err)
{
    size_t best = SIZE_MAX;
    *is_worth = false;
    for (size_t s = 0; s < ND_N_PAIR_SUMS; s++)
        if (pairs->is_tried[s] && (best == SIZE_MAX || pairs->n_wrong[s] < pairs->n_wrong[best]))
            best = s;
    if (best == SIZE_MAX || n_wrong == 0 || (double)pairs->n_wrong[best] > worth_share * (double)n_wrong)
        return ND_OK;
    pairs->qvalues = nd_calloc(n, sizeof *pairs->qvalues);
    ND_TRY_MEMORY(pairs->qvalues != NULL, err);
    pairs->chosen = best;
    *is_worth = true;
    return ND_OK;
}

void nd_explain_pairs_text(const struct nd_explain_pairs *pairs, char buf[ND_PAIR_SUM_TEXT_BYTES])
{
    const struct nd_pair_sum *sums = nd_pair_sums(), *chosen = &sums[pairs->chosen];
    size_t n_other = 0;
    bool has_orders = false;
    for (size_t s = 0; s < ND_N_PAIR_SUMS; s++) {
        has_orders = has_orders || (pairs->is_tried[s] && sums[s].order != ND_PAIR_CHANNELS_FASTEST);
        n_other += pairs->is_tried[s] && pairs->n_wrong[s] == pairs->n_wrong[pairs->chosen] &&
                   (sums[s].is_wrapping != chosen->is_wrapping || sums[s].distance != chosen->distance);
    }
    nd_pair_sum_text(chosen, has_orders, buf);
    size_t length = strlen(buf);
    if (n_other > 0)
        snprintf(buf + length, ND_PAIR_SUM_TEXT_BYTES - length, "; other pairs fit as well");
}

static void nd_layer_diagnosis_choose_remade(struct nd_layer_diagnosis *diagnosis);

/* Chosen: so that a layer costs seconds. */
enum {
    MAX_SAMPLES = 64, /* of a layer */
    MAX_QVALUES = 1 << 20,
};

/* ---- what is asked of it ---- */

/* Where the arithmetic explains more of the quantised values in another way than it, or plain rounding where it
 * does not cover the layer, what is left is held against that. */
static void choose_method(struct nd_layer_diagnosis *diagnosis, const struct nd_observed_arithmetic *observed,
                          size_t arithmetic)
{
    uint64_t fewest =
        arithmetic == SIZE_MAX ? 0
        : observed->layers->n[arithmetic] == observed->n_qvalues
            ? observed->layers->wrong[arithmetic]
            : diagnosis->job->out->devices[diagnosis->device].layers[diagnosis->step].n_unexplained;
    for (size_t k = 0; k < ND_N_ALTERNATIVES && arithmetic != SIZE_MAX; k++) {
        const struct nd_other_tally *other = &observed->layers->others[k];
        if (other->n[arithmetic] != observed->n_qvalues || other->wrong[arithmetic] >= fewest)
            continue;
        fewest = other->wrong[arithmetic];
        diagnosis->is_other = true;
        diagnosis->alternative = (enum nd_alternative)k;
        diagnosis->is_helped = k == ND_ALTERNATIVE_FUSED;
    }
}

/* Another program that gives every quantised value; plain rounding comes first in the list. */
static void choose_arithmetics(struct nd_layer_diagnosis *diagnosis)
{
    const struct nd_explain_job *job = diagnosis->job;
    const struct nd_observed_arithmetic *observed =
        nd_observed_arithmetic_of(job, diagnosis->device, diagnosis->step);
    size_t n;
    const struct nd_rounding_rule *arithmetics = nd_rounding_rules(&n);
    diagnosis->usual = arithmetics[observed->arithmetic != SIZE_MAX ? observed->arithmetic : 0];
    size_t layer_arithmetic = job->observations->layer_arithmetic[diagnosis->device];
    if (layer_arithmetic != SIZE_MAX && !observed->is_of_values)
        diagnosis->layer_arithmetic = nd_layer_arithmetic_at(layer_arithmetic);
    choose_method(diagnosis, observed, layer_arithmetic);
    for (size_t p = 0; p < n && !diagnosis->has_other; p++)
        if (observed->tally->n_open > 0 && observed->tally->wrong[p] == 0) {
            diagnosis->has_other = true;
            diagnosis->other = arithmetics[p];
        }
}

static void choose_fusions(struct nd_layer_diagnosis *diagnosis)
{
    const struct nd_explain_job *job = diagnosis->job;
    const struct nd_model_layer *layer = nd_plan_layer(job->plan, diagnosis->step);
    for (size_t i = 0; i < layer->n_inputs && diagnosis->n_fusions < ND_LAYER_DIAGNOSIS_FUSIONS; i++) {
        size_t input = job->plan->step_of_tensor[layer->inputs[i]];
        bool is_known = input != SIZE_MAX && job->out->steps[input].is_layer &&
                        job->out->devices[diagnosis->device].layers[input].is_examined;
        for (size_t k = 0; k < diagnosis->n_fusions; k++)
            is_known = is_known && diagnosis->fused[k] != layer->inputs[i];
        if (is_known)
            diagnosis->fused[diagnosis->n_fusions++] = layer->inputs[i];
    }
}

static void choose_operands(struct nd_layer_diagnosis *diagnosis)
{
    const struct nd_explain_job *job = diagnosis->job;
    const struct nd_model_layer *layer = nd_plan_layer(job->plan, diagnosis->step);
    for (size_t i = 0;
         i < layer->n_inputs && diagnosis->n_operands < ND_LAYER_DIAGNOSIS_OPERANDS && diagnosis->n_samples > 1;
         i++) {
        size_t input = job->plan->step_of_tensor[layer->inputs[i]];
        bool is_known = input != SIZE_MAX && nd_plan_has(job->plan, diagnosis->device, input);
        for (size_t k = 0; k < diagnosis->n_operands; k++)
            is_known = is_known && diagnosis->operands[k] != layer->inputs[i];
        if (is_known)
            diagnosis->operands[diagnosis->n_operands++] = layer->inputs[i];
    }
    if (diagnosis->n_operands == 1)
        diagnosis->n_operands = 0;
}

/* In steps of the output. */
static enum nd_status find_accumulator(struct nd_layer_diagnosis *diagnosis, struct nd_error *err)
{
    const struct nd_explain_job *job = diagnosis->job;
    const struct nd_quant *quant = &nd_plan_tensor(job->plan, diagnosis->step)->quant;
    struct nd_wide *steps = NULL;
    struct nd_error ignored = {0};
    if (nd_exact_accumulator_steps(job->plan->graph, diagnosis->tensor, &steps, &diagnosis->n_steps,
                                   &ignored) != ND_OK)
        return ND_OK; /* no accumulator of integers */
    diagnosis->steps = nd_calloc(diagnosis->n_steps, sizeof *diagnosis->steps);
    for (size_t c = 0; c < diagnosis->n_steps && diagnosis->steps != NULL; c++)
        diagnosis->steps[c] = steps[c].parts[0] / (double)quant->scale[quant->n > 1 ? c % quant->n : 0];
    free(steps);
    return diagnosis->steps != NULL ? ND_OK : nd_fail_memory(err);
}

/* Whether the maker of the tensor makes a part of the layer, too, and is worked out for that. */
static bool nd_layer_diagnosis_is_helper(const struct nd_layer_diagnosis *diagnosis, size_t tensor)
{
    return diagnosis->is_helped &&
           nd_fused_part_of(&diagnosis->job->plan->alternatives, tensor, diagnosis->tensor) != SIZE_MAX;
}

static void want(struct nd_layer_diagnosis *diagnosis, size_t tensor)
{
    const struct nd_plan *plan = diagnosis->job->plan;
    const struct nd_model_layer *layer = nd_model_layer_of_tensor(plan->model, tensor);
    if (tensor != SIZE_MAX && plan->step_of_tensor[tensor] != SIZE_MAX)
        diagnosis->is_wanted[plan->step_of_tensor[tensor]] = true;
    for (size_t i = 0; layer != NULL && i < layer->n_inputs; i++)
        if (plan->step_of_tensor[layer->inputs[i]] != SIZE_MAX)
            diagnosis->is_wanted[plan->step_of_tensor[layer->inputs[i]]] = true;
}

/* Only what is worked out, and what that reads, is read from the capture. */
static enum nd_status choose_steps(struct nd_layer_diagnosis *diagnosis, struct nd_error *err)
{
    const struct nd_plan *plan = diagnosis->job->plan;
    if (!nd_exact_graph_is_pure(plan->graph))
        return ND_OK;
    diagnosis->is_wanted = nd_calloc(plan->n_steps, sizeof *diagnosis->is_wanted);
    ND_TRY_MEMORY(diagnosis->is_wanted != NULL, err);
    want(diagnosis, diagnosis->tensor);
    for (size_t e = 0; e < nd_model_n_tensors(plan->model); e++)
        if (nd_layer_diagnosis_is_helper(diagnosis, e))
            want(diagnosis, e);
    for (size_t k = 0; k < diagnosis->n_fusions; k++)
        want(diagnosis, diagnosis->fused[k]);
    for (size_t k = 0; k < diagnosis->n_remade; k++)
        want(diagnosis, diagnosis->remade[k].tensor);
    for (size_t e = 0; e < nd_model_n_tensors(plan->model); e++)
        diagnosis->reader->is_ignored[e] =
            plan->step_of_tensor[e] == SIZE_MAX || !diagnosis->is_wanted[plan->step_of_tensor[e]];
    diagnosis->reader->is_wanted = diagnosis->is_wanted;
    return ND_OK;
}

enum nd_status nd_layer_diagnosis_size(struct nd_layer_diagnosis *diagnosis, struct nd_error *err)
{
    const struct nd_plan *plan = diagnosis->job->plan;
    diagnosis->tensor = plan->steps[diagnosis->step].tensor;
    enum nd_status status = nd_shape_n_elems(&plan->shapes[diagnosis->step], &diagnosis->n, err);
    size_t most = diagnosis->n > 0 ? MAX_QVALUES / diagnosis->n : 0;
    most = most < 1 ? 1 : most > MAX_SAMPLES ? MAX_SAMPLES : most;
    diagnosis->n_samples = plan->n_samples < most ? plan->n_samples : most;
    return status;
}

enum nd_status nd_layer_diagnosis_make(struct nd_layer_diagnosis *diagnosis, struct nd_error *err)
{
    ND_TRY(nd_layer_diagnosis_size(diagnosis, err));
    explain_pairs_init(&diagnosis->pairs);
    diagnosis->constants.chosen = SIZE_MAX;
    choose_arithmetics(diagnosis);
    choose_fusions(diagnosis);
    choose_operands(diagnosis);
    nd_layer_diagnosis_choose_remade(diagnosis);
    ND_TRY(choose_steps(diagnosis, err));
    double **const arrays[] = {&diagnosis->qvalues, &diagnosis->values, &diagnosis->expected,
                               &diagnosis->others};
    bool is_made = true;
    for (size_t k = 0; k < sizeof arrays / sizeof arrays[0]; k++) {
        *arrays[k] = nd_calloc(diagnosis->n_samples * diagnosis->n, sizeof **arrays[k]);
        is_made = is_made && *arrays[k] != NULL;
    }
    for (size_t k = 0; k < diagnosis->n_fusions; k++) {
        diagnosis->fusions[k] = nd_calloc(diagnosis->n_samples * diagnosis->n, sizeof *diagnosis->fusions[k]);
        is_made = is_made && diagnosis->fusions[k] != NULL;
    }
    for (size_t k = 0; k < diagnosis->n_operands; k++) {
        diagnosis->stale[k] = nd_calloc(diagnosis->n_samples * diagnosis->n, sizeof *diagnosis->stale[k]);
        is_made = is_made && diagnosis->stale[k] != NULL;
    }
    return is_made ? find_accumulator(diagnosis, err) : nd_fail_memory(err);
}

void nd_layer_diagnosis_deinit(struct nd_layer_diagnosis *diagnosis)
{
    ND_FREE_ALL(diagnosis->qvalues, diagnosis->values, diagnosis->expected, diagnosis->others,
                diagnosis->attribute.qvalues);
    free(diagnosis->pairs.qvalues);
    explain_pairs_init(&diagnosis->pairs);
    nd_explain_constants_deinit(&diagnosis->constants);
    for (size_t k = 0; k < ND_LAYER_DIAGNOSIS_FUSIONS; k++)
        free(diagnosis->fusions[k]);
    for (size_t k = 0; k < ND_LAYER_DIAGNOSIS_OPERANDS; k++) {
        free(diagnosis->stale[k]);
        nd_array_deinit(&diagnosis->before[k]);
    }
    free(diagnosis->steps);
    if (diagnosis->is_wanted != NULL)
        diagnosis->reader->is_wanted = NULL;
    free(diagnosis->is_wanted);
    nd_array_deinit(&diagnosis->made);
}

/* ---- all samples of it ---- */

enum nd_status nd_layer_diagnosis_load_sample(struct nd_layer_diagnosis *diagnosis, size_t i,
                                              struct nd_error *err)
{
    diagnosis->slot = i;
    return nd_reader_sample(diagnosis->reader, diagnosis->device, i, diagnosis->n_samples, err);
}

/* What the layer gives when one operand is late; then the operand is kept for the next sample. */
static enum nd_status run_late(struct nd_layer_diagnosis *diagnosis, size_t k, struct nd_error *err)
{
    const struct nd_array *given = &diagnosis->reader->given[diagnosis->operands[k]];
    struct nd_array *before = &diagnosis->before[k];
    bool is_known = diagnosis->slot > 0 && before->x != NULL && before->n == given->n;
    enum nd_status status = ND_OK;
    diagnosis->late = k + 1;
    if (is_known)
        status = nd_layer_diagnosis_run(diagnosis, SIZE_MAX, diagnosis->stale[k], err);
    diagnosis->late = 0;
    for (size_t i = 0; i < diagnosis->n && !is_known; i++)
        diagnosis->stale[k][diagnosis->slot * diagnosis->n + i] = NAN;
    if (status == ND_OK && !is_known && given->shape.rank >= 0)
        status = nd_array_make(before, given->dtype, &given->shape, err);
    for (size_t i = 0; status == ND_OK && i < given->n && i < before->n; i++)
        before->x[i] = given->x[i];
    return status;
}

/* Once more, for the quantised values of the sum of pairs that fits best, if there is one. */
static enum nd_status collect_pairs(struct nd_layer_diagnosis *diagnosis, struct nd_error *err)
{
    bool is_worth = false;
    size_t n_wrong = 0, n = diagnosis->n_samples * diagnosis->n;
    for (size_t i = 0; i < n; i++)
        n_wrong += diagnosis->qvalues[i] != diagnosis->expected[i];
    ND_TRY(explain_pairs_choose(&diagnosis->pairs, n_wrong, n, &is_worth, err));
    for (size_t i = 0; i < diagnosis->n_samples && is_worth; i++) {
        ND_TRY(nd_layer_diagnosis_load_sample(diagnosis, i, err));
        ND_TRY(nd_layer_diagnosis_run(diagnosis, SIZE_MAX, NULL, err));
    }
    return ND_OK;
}

enum nd_status nd_layer_diagnosis_collect(struct nd_layer_diagnosis *diagnosis, struct nd_error *err)
{
    for (size_t i = 0; i < diagnosis->n_samples; i++) {
        ND_TRY(nd_layer_diagnosis_load_sample(diagnosis, i, err));
        ND_TRY(nd_layer_diagnosis_run(diagnosis, SIZE_MAX, NULL, err));
        for (size_t k = 0; k < diagnosis->n_fusions; k++)
            ND_TRY(nd_layer_diagnosis_run(diagnosis, diagnosis->fused[k], diagnosis->fusions[k], err));
        for (size_t k = 0; k < diagnosis->n_operands && diagnosis->forced == 0; k++)
            ND_TRY(run_late(diagnosis, k, err));
    }
    return diagnosis->forced == 0 ? collect_pairs(diagnosis, err) : ND_OK;
}

static bool is_open(const struct nd_layer_diagnosis *diagnosis, size_t tensor)
{
    size_t step = diagnosis->job->plan->step_of_tensor[tensor];
    return step != SIZE_MAX && diagnosis->job->out->steps[step].is_layer && diagnosis->is_open[step];
}

/* layer diagnosis.c: fills remade from is_open. */
static void nd_layer_diagnosis_choose_remade(struct nd_layer_diagnosis *diagnosis)
{
    const struct nd_model_layer *layer = nd_plan_layer(diagnosis->job->plan, diagnosis->step);
    for (size_t i = 0;
         diagnosis->is_open != NULL && i < layer->n_inputs && diagnosis->n_remade < ND_LAYER_DIAGNOSIS_REMADE;
         i++) {
        bool is_new = is_open(diagnosis, layer->inputs[i]);
        for (size_t k = 0; k < diagnosis->n_remade; k++)
            is_new = is_new && diagnosis->remade[k].tensor != layer->inputs[i];
        if (is_new)
            diagnosis->remade[diagnosis->n_remade++] =
                (struct nd_layer_diagnosis_remade){.tensor = layer->inputs[i]};
    }
}

/* The input with that tensor which the run at hand makes anew, or NULL. */
static struct nd_layer_diagnosis_remade *nd_layer_diagnosis_remade_of(struct nd_layer_diagnosis *diagnosis,
                                                                      size_t tensor)
{
    for (size_t k = 0; k < diagnosis->n_remade; k++)
        if (diagnosis->remade[k].tensor == tensor && diagnosis->remade[k].is_made)
            return &diagnosis->remade[k];
    return NULL;
}

/* The arithmetic of values that rounds what the maker of the tensor makes. */
static const struct nd_rounding_rule *
nd_layer_diagnosis_arithmetic_of(const struct nd_layer_diagnosis *diagnosis, size_t tensor)
{
    size_t n, step = diagnosis->job->plan->step_of_tensor[tensor];
    const struct nd_rounding_rule *arithmetics = nd_rounding_rules(&n);
    size_t arithmetic = nd_observed_arithmetic_of(diagnosis->job, diagnosis->device, step)->arithmetic;
    return &arithmetics[arithmetic != SIZE_MAX ? arithmetic : 0];
}

/* What the maker of such an input should have made: *is_made false where no arithmetic of layers says it. */
static enum nd_status nd_layer_diagnosis_make_input(struct nd_layer_diagnosis *diagnosis,
                                                    const struct nd_exact_layer *layer,
                                                    struct nd_array *qvalues, bool *is_made,
                                                    struct nd_error *err)
{
    size_t arithmetic = diagnosis->job->observations->layer_arithmetic[diagnosis->device];
    size_t step = diagnosis->job->plan->step_of_tensor[layer->tensor];
    *is_made = false;
    if (arithmetic == SIZE_MAX ||
        nd_observed_arithmetic_of(diagnosis->job, diagnosis->device, step)->is_of_values)
        return ND_OK;
    return nd_layer_arithmetic_run(nd_layer_arithmetic_at(arithmetic), layer, NULL, qvalues, is_made, err);
}

static enum nd_status run(struct nd_layer_diagnosis *diagnosis, struct nd_layer_diagnosis_remade *input,
                          double *to, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    input->is_made = true;
    input->n = input->n_wrong = 0;
    for (size_t i = 0; i < diagnosis->n_samples && status == ND_OK; i++) {
        status = nd_layer_diagnosis_load_sample(diagnosis, i, err);
        if (status == ND_OK)
            status = nd_layer_diagnosis_run(diagnosis, SIZE_MAX, to, err);
    }
    input->is_made = false;
    return status;
}

static bool is_any_beyond(const struct nd_layer_diagnosis *diagnosis, double allowance)
{
    for (size_t i = 0; i < diagnosis->n_samples * diagnosis->n; i++)
        if (isfinite(diagnosis->expected[i]) && isfinite(diagnosis->values[i]) &&
            fabs(diagnosis->qvalues[i] - diagnosis->expected[i]) > allowance)
            return true;
    return false;
}

/* Whether the values are those of `made`, and how many of them the record does not give. */
static bool fits(const struct nd_layer_diagnosis *diagnosis, const double *made, double allowance,
                 struct nd_layer_diagnosis_innocence *out)
{
    *out = (struct nd_layer_diagnosis_innocence){.is_exact = true};
    for (size_t i = 0; i < diagnosis->n_samples * diagnosis->n; i++) {
        double off = fabs(diagnosis->qvalues[i] - made[i]);
        if (!isfinite(diagnosis->expected[i]) || !isfinite(diagnosis->values[i]))
            continue;
        if (!(off <= allowance))
            return false;
        out->is_exact = out->is_exact && off == 0;
        out->n_mended += fabs(diagnosis->qvalues[i] - diagnosis->expected[i]) > allowance;
    }
    return out->n_mended > 0;
}

enum nd_status nd_layer_diagnosis_try_remade(struct nd_layer_diagnosis *diagnosis, double allowance,
                                             struct nd_layer_diagnosis_innocence *out, struct nd_error *err)
{
    *out = (struct nd_layer_diagnosis_innocence){0};
    if (diagnosis->n_remade == 0 || !is_any_beyond(diagnosis, allowance)) /* nothing to mend */
        return ND_OK;
    ND_FREED double *made = nd_calloc(diagnosis->n_samples * diagnosis->n, sizeof *made);
    ND_TRY_MEMORY(made != NULL, err);
    for (size_t k = 0; k < diagnosis->n_remade && out->input == NULL; k++) {
        struct nd_layer_diagnosis_remade *input = &diagnosis->remade[k];
        ND_TRY(run(diagnosis, input, made, err));
        if (input->n_wrong > 0 && fits(diagnosis, made, allowance, out))
            out->input = input;
    }
    return ND_OK;
}

/* One sample of an examination: the layer is worked out from the device's quantised values, by each arithmetic
 * that it is held against. */

/* ---- what the layer would give ---- */

static double qvalue_by(const struct nd_rounding_rule *arithmetic, const struct nd_exact_values *values,
                        size_t i)
{
    double zero = (double)values->quant->zero_point[nd_exact_channel(values->quant, values->shape, i)];
    return nd_rounding_rule_qvalue(arithmetic, &values->v[i], zero, values->dtype);
}

static double unrounded(const struct nd_exact_values *values, size_t i)
{
    double zero = (double)values->quant->zero_point[nd_exact_channel(values->quant, values->shape, i)];
    return nd_ratio_value(&values->v[i]) + zero;
}

static bool forces_output(const struct nd_layer_diagnosis *diagnosis)
{
    return (diagnosis->forced & ND_LAYER_DIAGNOSIS_FORCED_OUTPUT) != 0 &&
           diagnosis->job->plan->alternatives.is_forced_here[diagnosis->tensor];
}

const struct nd_quant *nd_layer_diagnosis_quant(const struct nd_layer_diagnosis *diagnosis)
{
    const struct nd_alternatives *a = &diagnosis->job->plan->alternatives;
    return forces_output(diagnosis) ? &a->forced[diagnosis->tensor]->quant
                                    : &nd_plan_tensor(diagnosis->job->plan, diagnosis->step)->quant;
}

/* From quantised values of one encoding to those of another, unrounded. */
static double recode(double qvalue, const struct nd_quant *from, const struct nd_quant *to)
{
    return (qvalue - (double)from->zero_point[0]) * (double)from->scale[0] / (double)to->scale[0] +
           (double)to->zero_point[0];
}

/* What the layer should give in the encoding that is forced on it. */
static void force_values(struct nd_layer_diagnosis *diagnosis, enum nd_dtype dtype)
{
    const struct nd_quant *own = &nd_plan_tensor(diagnosis->job->plan, diagnosis->step)->quant,
                          *quant = nd_layer_diagnosis_quant(diagnosis);
    size_t at = diagnosis->slot * diagnosis->n;
    double low, high;
    nd_qvalue_range(dtype, &low, &high);
    for (size_t i = at; i < at + diagnosis->n && quant != own && own->n == 1; i++) {
        diagnosis->values[i] = recode(diagnosis->values[i], own, quant);
        diagnosis->expected[i] = fmin(fmax(rint(diagnosis->values[i]), low), high);
    }
}

/* An arithmetic of layers has no value before it is rounded: the exact one stands for it, moved by as much as
 * the program's quantised value is off. codes: those of round_exam. */
static void keep_values(struct nd_layer_diagnosis *diagnosis, const struct nd_exact_values *values,
                        const struct nd_array *qvalues)
{
    size_t at = diagnosis->slot * diagnosis->n;
    bool is_made = diagnosis->made.n == values->n;
    for (size_t i = 0; i < values->n; i++) {
        diagnosis->values[at + i] = unrounded(values, i);
        diagnosis->expected[at + i] =
            values->tensor == diagnosis->fusing ? qvalue_by(&diagnosis->usual, values, i) : qvalues->x[i];
        if (is_made) {
            diagnosis->values[at + i] += diagnosis->made.x[i] - diagnosis->expected[at + i];
            diagnosis->expected[at + i] = diagnosis->made.x[i];
        }
        diagnosis->qvalues[at + i] = diagnosis->reader->given[diagnosis->tensor].x[i];
        if (diagnosis->has_other)
            diagnosis->others[at + i] = qvalue_by(&diagnosis->other, values, i);
    }
    if (diagnosis->forced != 0)
        force_values(diagnosis, values->dtype);
}

/* Of an input that is made anew: what was recorded of it, beside what should be. */
static void count_record(struct nd_layer_diagnosis *diagnosis, struct nd_layer_diagnosis_remade *input,
                         const struct nd_array *qvalues)
{
    const struct nd_array *given = &diagnosis->reader->given[input->tensor];
    for (size_t i = 0; given->n == qvalues->n && i < qvalues->n; i++)
        input->n_wrong += given->x[i] != qvalues->x[i];
    input->n += qvalues->n;
}

static enum nd_status round_layer_diagnosis(void *context, const struct nd_exact_values *values,
                                            struct nd_array *qvalues, struct nd_error *err)
{
    struct nd_layer_diagnosis *diagnosis = context;
    double low, high;
    nd_qvalue_range(values->dtype, &low, &high);
    struct nd_layer_diagnosis_remade *remade = nd_layer_diagnosis_remade_of(diagnosis, values->tensor);
    const struct nd_rounding_rule *usual =
        remade != NULL ? nd_layer_diagnosis_arithmetic_of(diagnosis, values->tensor) : &diagnosis->usual;
    for (size_t i = 0; i < values->n; i++)
        qvalues->x[i] = values->tensor == diagnosis->fusing ? fmin(fmax(unrounded(values, i), low), high)
                                                            : qvalue_by(usual, values, i);
    if (remade != NULL)
        count_record(diagnosis, remade, qvalues);
    if (values->tensor != diagnosis->tensor || values->n != diagnosis->n)
        return ND_OK;
    if (diagnosis->engine != NULL)
        return nd_engine_count(diagnosis->engine, values, diagnosis->reader->given[diagnosis->tensor].x,
                               diagnosis->slot, err);
    bool is_made = diagnosis->fusing == SIZE_MAX && diagnosis->made.n == values->n;
    if (diagnosis->to == NULL)
        keep_values(diagnosis, values, qvalues);
    for (size_t i = 0; i < values->n && diagnosis->to != NULL; i++)
        diagnosis->to[diagnosis->slot * diagnosis->n + i] = is_made ? diagnosis->made.x[i] : qvalues->x[i];
    return ND_OK;
}

static enum nd_status make_other(struct nd_layer_diagnosis *diagnosis, const struct nd_exact_layer *layer,
                                 struct nd_error *err)
{
    struct nd_layer_trial *trial = &diagnosis->reader->trial;
    size_t arithmetic = diagnosis->job->observations->layer_arithmetic[diagnosis->device];
    enum nd_status status = nd_layer_trial_run(trial, layer, &diagnosis->reader->given[layer->tensor], err);
    const struct nd_array *made = status == ND_OK && layer->tensor == diagnosis->tensor
                                      ? nd_layer_trial_other(trial, diagnosis->alternative, arithmetic)
                                      : NULL;
    if (made == NULL)
        return status;
    nd_array_deinit(&diagnosis->made);
    status = nd_array_make(&diagnosis->made, layer->dtype, &made->shape, err);
    if (status == ND_OK && made->n > 0)
        memcpy(diagnosis->made.x, made->x, made->n * sizeof *made->x);
    return status;
}

/* What the layer would give with sums of pairs in 16 bits. The HTP has none, and its arithmetics are not
 * linear. */
static enum nd_status keep_pairs(struct nd_layer_diagnosis *diagnosis, const struct nd_exact_layer *layer,
                                 struct nd_error *err)
{
    const struct nd_array *given = &diagnosis->reader->given[diagnosis->tensor];
    double *qvalues =
        diagnosis->pairs.qvalues != NULL ? diagnosis->pairs.qvalues + diagnosis->slot * diagnosis->n : NULL;
    if (diagnosis->layer_arithmetic != NULL || diagnosis->is_other || given->n != diagnosis->n)
        return ND_OK;
    /* One sample of the layer: `given` is what the device has. Counts, or fills quantised values[given->n]
     * where those are not NULL. */
    struct look look = {&diagnosis->pairs, given, qvalues};
    diagnosis->pairs.n_known += qvalues == NULL ? given->n : 0;
    return nd_layer_in_pairs(layer, &diagnosis->usual, look_at, &look, err);
}

static enum nd_status make_layer_diagnosis_qvalues(void *context, const struct nd_exact_layer *layer,
                                                   struct nd_array *qvalues, bool *is_made,
                                                   struct nd_error *err)
{
    struct nd_layer_diagnosis *diagnosis = context;
    struct nd_layer_diagnosis_remade *remade = nd_layer_diagnosis_remade_of(diagnosis, layer->tensor);
    bool is_covered;
    *is_made = false;
    if (remade != NULL) {
        enum nd_status status = ND_OK;
        if (diagnosis->is_other && nd_layer_diagnosis_is_helper(diagnosis, layer->tensor))
            status = make_other(diagnosis, layer, err);
        if (status == ND_OK)
            status = nd_layer_diagnosis_make_input(diagnosis, layer, qvalues, is_made, err);
        if (status == ND_OK && *is_made)
            count_record(diagnosis, remade, qvalues);
        return status;
    }
    bool is_of_constants = diagnosis->constants.stage != ND_CONSTANTS_IDLE;
    if (layer->tensor == diagnosis->tensor && is_of_constants)
        ND_TRY(nd_layer_diagnosis_look_at_constants(diagnosis, layer, err));
    if (layer->tensor == diagnosis->tensor && diagnosis->to == NULL && diagnosis->forced == 0 &&
        !is_of_constants)
        ND_TRY(keep_pairs(diagnosis, layer, err));
    if (diagnosis->is_other &&
        (layer->tensor == diagnosis->tensor || nd_layer_diagnosis_is_helper(diagnosis, layer->tensor)))
        return make_other(diagnosis, layer, err);
    nd_array_deinit(&diagnosis->made);
    if (diagnosis->layer_arithmetic == NULL || layer->tensor != diagnosis->tensor)
        return ND_OK;
    return nd_layer_arithmetic_run(diagnosis->layer_arithmetic, layer, NULL, &diagnosis->made, &is_covered,
                                   err);
}

/* What the layer reads, as it is read with the encodings that are forced. The sample is loaded anew for each
 * run. */
static void force_inputs(struct nd_layer_diagnosis *diagnosis)
{
    struct nd_reader *r = diagnosis->reader;
    const struct nd_alternatives *a = &diagnosis->job->plan->alternatives;
    const struct nd_model_layer *layer = nd_plan_layer(diagnosis->job->plan, diagnosis->step);
    for (size_t k = 0; k < layer->n_inputs; k++) {
        size_t tensor = layer->inputs[k];
        const struct nd_quant *own = &nd_model_tensor(diagnosis->job->plan->model, tensor)->quant;
        bool is_first = true;
        for (size_t before = 0; before < k; before++)
            is_first = is_first && layer->inputs[before] != tensor;
        if (!is_first || a->forced[tensor] == NULL || own->n != 1 || r->given[tensor].shape.rank < 0)
            continue;
        for (size_t i = 0; i < r->given[tensor].n; i++)
            r->given[tensor].x[i] = recode(r->given[tensor].x[i], &a->forced[tensor]->quant, own);
    }
}

enum nd_status nd_layer_diagnosis_run(struct nd_layer_diagnosis *diagnosis, size_t fusing, double *to,
                                      struct nd_error *err)
{
    struct nd_reader *r = diagnosis->reader;
    const struct nd_explain_job *job = diagnosis->job;
    const struct nd_exact_options options = {.struct_size = sizeof options,
                                             .round = round_layer_diagnosis,
                                             .make = make_layer_diagnosis_qvalues,
                                             .given = r->chain,
                                             .is_skipped = r->is_skipped,
                                             .is_ignored = diagnosis->is_wanted != NULL ? r->is_ignored : NULL,
                                             .changed_node = diagnosis->attribute.node,
                                             .changed_proto = diagnosis->attribute.proto,
                                             .missed = nd_exact_let_go};
    for (size_t e = 0; e < nd_model_n_tensors(job->plan->model); e++) {
        bool is_computed =
            e == diagnosis->tensor || e == fusing || nd_layer_diagnosis_remade_of(diagnosis, e) != NULL;
        r->chain[e] = is_computed ? nd_no_array() : r->given[e];
        r->is_skipped[e] = !is_computed && !nd_layer_diagnosis_is_helper(diagnosis, e);
    }
    if ((diagnosis->forced & ND_LAYER_DIAGNOSIS_FORCED_INPUTS) != 0)
        force_inputs(diagnosis);
    if (diagnosis->late > 0)
        r->chain[diagnosis->operands[diagnosis->late - 1]] = diagnosis->before[diagnosis->late - 1];
    nd_layer_trial_begin(&r->trial);
    diagnosis->fusing = fusing;
    diagnosis->to = to;
    return nd_exact_graph_run(job->plan->graph, r->inputs, &options, NULL, diagnosis, err);
}
