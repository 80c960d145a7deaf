/* What a capture says wrongly of its tensors is a fault by itself: whoever reads the quantised values by these
 * words gets other numbers. */
#include "explain/verdict/health.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "arithmetic/exact/linear/rounding.h"
#include "compare/findings/top1_classes.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "explain/plan/plan.h"

/* How much a layer's values change from run to run, while what it reads does not. */

struct nd_explain_noise {
    bool is_any;      /* its values differ from run to run; else the rest is 0 */
    bool is_own;      /* and what it reads does not */
    size_t n_repeats; /* runs that were held against the first one and differ from it */
    double max;       /* LSB, or floats */
    double largest;   /* magnitude of the first run's values */
    double share;     /* of the values of these runs, those that differ from the first run's */
};

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

/* A scale that was written with few digits: a value at the end of the quantised values is off by less than that
 * many steps. Chosen. */
static bool is_rounded_scale(const struct nd_tensor *tensor, const struct nd_explained_finding *finding)
{
    static const double steps = 0.25; /* chosen */
    double low, high;
    if (!is_kind(finding, ND_FAULT_SCALE) && !is_kind(finding, ND_FAULT_CHANNEL_SCALE))
        return false;
    nd_qvalue_range(tensor->dtype, &low, &high);
    return fabs(finding->fault.amount - 1) * (high - low) < steps;
}

/* Why the finding is a fault of its tensor, or NULL: it proves nothing. */
static const char *prove(const struct nd_plan *plan, const struct nd_explained_layer *layer,
                         const struct nd_explained_finding *finding)
{
    size_t step = finding->step, at = plan->steps[step].tensor;
    const struct nd_tensor *tensor = nd_plan_tensor(plan, step);
    bool is_forced = plan->alternatives.forced[at] != NULL || plan->alternatives.is_forced_here[at];
    if (is_kind(finding, ND_FAULT_WRONG_TYPE))
        return "read as the model's type, the values are about what the model asks for";
    if (is_of_encoding(finding)) /* the provider has an encoding of its own for some, whatever the model says;
                                    of floats their values have been compared, and no encoding */
        return is_forced || tensor->quant.n == 0 || is_rounded_scale(tensor, finding)
                   ? NULL
                   : "the capture itself says so";
    bool is_one_qvalue = is_kind(finding, ND_FAULT_ALL_ZERO) || is_kind(finding, ND_FAULT_CONSTANT);
    return is_one_qvalue && !layer->is_examined && !layer->is_left
               ? "no arithmetic makes one value of these inputs"
               : NULL;
}

static enum nd_status fault_verdict(struct nd_explained_layer *layer, const struct nd_explained_fault *fault,
                                    const char *proof, struct nd_error *err)
{
    bool is_type = strcmp(fault->kind, nd_fault_name(ND_FAULT_WRONG_TYPE)) == 0;
    struct nd_strbuf evidence = {0};
    nd_strbuf_puts(&evidence, proof);
    return nd_judge_faulty(layer, is_type ? ND_CERTAINTY_LIKELY : ND_CERTAINTY_PROVEN, fault, &evidence, err);
}

/* Quantised values that pile up are held against the whole model's reference. Where the layer follows its
 * arithmetic, they are what its own inputs give: the cause lies before it. */
static bool is_passed_on(const struct nd_explained_layer *layer, const struct nd_explained_finding *finding)
{
    return layer->judgement.state == ND_LAYER_FOLLOWS &&
           (is_kind(finding, ND_FAULT_SATURATION) || is_kind(finding, ND_FAULT_ALL_ZERO) ||
            is_kind(finding, ND_FAULT_CONSTANT));
}

/* health.c: accuses the tensors of which the capture says something that is wrong: type, scale, zero
 * point; and those that cannot be examined and are one quantised value throughout. Drops what is said of
 * quantised values that pile up in a layer that follows. ND_ERR_MEMORY. */
static enum nd_status nd_explain_fault_verdict_labels(const struct nd_explain_job *job, size_t device,
                                                      struct nd_error *err)
{
    struct nd_explained_device *out = &job->out->devices[device];
    size_t n = 0;
    for (size_t i = 0; i < out->n_findings; i++) {
        struct nd_explained_finding *finding = &out->findings[i];
        if (is_passed_on(&out->layers[finding->step], finding))
            free(finding->fault.text);
        else
            out->findings[n++] = *finding;
    }
    out->n_findings = n;
    for (size_t i = 0; i < out->n_findings; i++) {
        struct nd_explained_layer *layer = &out->layers[out->findings[i].step];
        const char *proof = prove(job->plan, layer, &out->findings[i]);
        if (proof != NULL && layer->judgement.state != ND_LAYER_FAULTY)
            ND_TRY(fault_verdict(layer, &out->findings[i].fault, proof, err));
    }
    return ND_OK;
}

enum { MAX_RUNS = 64 }; /* that are read */

struct reader {
    const struct nd_plan_source *source;
    size_t tensor, n; /* n: values of a sample */
    enum nd_dtype dtype;
    unsigned char *bytes;
    double *first, *other;
};

static enum nd_status read_run(const struct reader *r, size_t sample, size_t repeat, double *to,
                               struct nd_error *err)
{
    const struct nd_probe_values tensor = {r->source->capture, r->source->probe, r->tensor};
    ND_TRY(repeat == 0 ? nd_capture_read_verified(&tensor, sample, 1, r->bytes, err)
                       : nd_capture_read_repeat_verified(&tensor, sample, repeat, r->bytes, err));
    nd_array_load(r->dtype, r->bytes, r->n, to);
    return ND_OK;
}

static bool is_run_other(const struct reader *r, size_t sample, size_t repeat)
{
    return !nd_digest_equal(nd_capture_digest(r->source->capture, r->source->probe, r->tensor, sample, 0),
                            nd_capture_digest(r->source->capture, r->source->probe, r->tensor, sample, repeat));
}

static enum nd_status compare_runs(const struct reader *r, size_t n_samples, struct nd_explain_noise *out,
                                   struct nd_error *err)
{
    size_t n_differing = 0;
    for (size_t i = 0; i < n_samples; i++) {
        size_t n_runs = nd_capture_n_runs(r->source->capture, r->source->probe, r->tensor, i);
        for (size_t k = 1; k < n_runs && out->n_repeats < MAX_RUNS; k++) {
            if (!is_run_other(r, i, k))
                continue;
            ND_TRY(read_run(r, i, 0, r->first, err));
            ND_TRY(read_run(r, i, k, r->other, err));
            out->n_repeats++;
            for (size_t j = 0; j < r->n; j++) {
                double off = fabs(r->other[j] - r->first[j]);
                n_differing += off != 0;
                out->max = fmax(out->max, off);
                out->largest = fmax(out->largest, fabs(r->first[j]));
            }
        }
    }
    double n = (double)out->n_repeats * (double)r->n;
    out->share = n > 0 ? (double)n_differing / n : 0;
    return ND_OK;
}

/* From the runs that the capture stores of the step; where it stores none that differ, from digests alone,
 * is_any is true and n_repeats is 0. ND_ERR_MEMORY, and the errors of reading a capture. */
static enum nd_status nd_explain_measure_noise(const struct nd_plan *plan, size_t device, size_t step,
                                               struct nd_explain_noise *out, struct nd_error *err)
{
    const struct nd_plan_source *source = &plan->sources[device];
    *out = (struct nd_explain_noise){.is_any = nd_plan_differs_by_run(plan, device, step),
                                     .is_own = nd_plan_inputs_repeat(plan, device, step)};
    if (!out->is_any)
        return ND_OK;
    struct reader r = {.source = source, .tensor = source->tensors[step]};
    r.dtype = nd_capture_tensor(source->capture, r.tensor)->dtype;
    ND_TRY(nd_shape_n_elems(&plan->shapes[step], &r.n, err));
    r.bytes = nd_tensor_alloc(source->sample_bytes[step]);
    r.first = nd_calloc(r.n, sizeof *r.first);
    r.other = nd_calloc(r.n, sizeof *r.other);
    enum nd_status status = r.bytes != NULL && r.first != NULL && r.other != NULL
                                ? compare_runs(&r, plan->n_samples, out, err)
                                : nd_fail_memory(err);
    ND_FREE_ALL(r.bytes, r.first, r.other);
    return status;
}

/* Which rule a layer follows where the exact value lies half way between two quantised values. The rules for
 * ties differ on ties alone: where one of them gives every value of the layer and half to even does not, all
 * that differs lies on ties. */

/* Values that differ from half to even. Formula: next to a tie arithmetic in floats falls either way, so that n
 * ties follow one of three rules by chance with probability 3 / 2^n; below 10^-3 from here on. */
enum { FEWEST_TIES = 12 };

/* Where no value of one sign lies on a tie two rules are the same. */
static const char *name_rule(bool is_up, bool is_away, bool is_down)
{
    if (is_up && is_away)
        return "half up or half away from zero";
    if (is_down && is_away)
        return "half down or half away from zero";
    return is_up ? "half up" : is_away ? "half away from zero" : is_down ? "half down" : NULL;
}

static bool gives_all(const struct nd_qvalue_tally *tally, enum nd_rounding rounding)
{
    size_t n;
    const struct nd_rounding_rule *arithmetics = nd_rounding_rules(&n);
    for (size_t p = 0; p < n; p++)
        if (arithmetics[p].kind == ND_ROUNDED_ONCE && arithmetics[p].rounding == rounding)
            return tally->wrong[p] == 0;
    return false;
}

void nd_explain_find_tie_rule(const struct nd_qvalue_tally *tally, struct nd_explained_layer *layer)
{
    bool is_even = gives_all(tally, ND_ROUND_HALF_EVEN);
    layer->n_ties = 0;
    layer->tie_rule = NULL;
    if (is_even || layer->introduced.n_differing < FEWEST_TIES)
        return;
    layer->tie_rule = name_rule(gives_all(tally, ND_ROUND_HALF_UP), gives_all(tally, ND_ROUND_HALF_AWAY),
                                gives_all(tally, ND_ROUND_HALF_DOWN));
    layer->n_ties = layer->tie_rule != NULL ? layer->introduced.n_differing : 0;
}

double nd_explain_badness(const struct nd_explained_layer *layer)
{
    return isnan(layer->effect) ? layer->introduced.mean_square : layer->effect;
}

/* ---- layers that known arithmetic explains ---- */

/* The capture says that the CPU computed it, which rounds exactly. */
static bool is_placed_on_cpu(const struct nd_explain_job *job, size_t device, size_t step)
{
    const struct nd_capture *capture = job->plan->sources[device].capture;
    size_t tensor = nd_capture_find_tensor(capture, job->out->steps[step].name);
    return tensor != SIZE_MAX &&
           strcmp(nd_capture_tensor_provider(capture, tensor), "CPUExecutionProvider") == 0;
}

/* Of a layer that is examined, or NULL. */
static const char *find_why(const struct nd_explain_job *job, size_t device, size_t step)
{
    const struct nd_explained_layer *layer = &job->out->devices[device].layers[step];
    const struct nd_observed_arithmetic *observed = nd_observed_arithmetic_of(job, device, step);
    bool is_exact = layer->introduced.n_differing == 0;
    if (observed->is_suspect && !(is_exact && is_placed_on_cpu(job, device, step)))
        return NULL;
    if (is_exact)
        return "exact";
    if (layer->arithmetic != NULL)
        return "arithmetic";
    if (layer->is_within_step)
        return "float-rounding";
    return NULL;
}

static void say_alternative(const struct nd_plan *plan, size_t step, enum nd_alternative alternative,
                            struct nd_strbuf *text)
{
    size_t tensor = plan->steps[step].tensor, from = plan->alternatives.fused_from[tensor];
    if (alternative == ND_ALTERNATIVE_FUSED && from != SIZE_MAX)
        nd_strbuf_printf(text, "fused with '%s': one operation gives all of its values",
                         nd_model_tensor(plan->model, from)->name);
    else if (alternative == ND_ALTERNATIVE_FUSED && plan->alternatives.is_joined[tensor])
        nd_strbuf_puts(text, "fused with what makes its inputs: each makes its part with this layer's "
                             "encoding, and that gives all of its values");
    else if (alternative == ND_ALTERNATIVE_FUSED && plan->alternatives.gated[tensor] != SIZE_MAX)
        nd_strbuf_puts(text, "fused with its gate: one function gives all of its values");
    else if (alternative == ND_ALTERNATIVE_FUSED)
        nd_strbuf_puts(
            text,
            "made as a change of the encoding alone, for a layer that reads it: that gives all of its values");
    else if (alternative == ND_ALTERNATIVE_V81)
        nd_strbuf_puts(text, "made with the floats of v81: they give all of its values");
    else {
        nd_say_forced(&plan->alternatives, plan->model, nd_plan_layer(plan, step),
                      plan->steps[step].is_model_output, text);
    }
}

/* Whether all quantised values of the layer are what the arithmetic makes in another way. */
static bool follows_other(const struct nd_observed_arithmetic *observed, enum nd_alternative alternative,
                          size_t arithmetic)
{
    const struct nd_other_tally *other = &observed->layers->others[alternative];
    return observed->is_counted && other->n[arithmetic] > 0 && other->n[arithmetic] == observed->n_qvalues &&
           other->wrong[arithmetic] == 0;
}

/* What the device's arithmetic makes of it in another way. */
static enum nd_status try_alternatives(const struct nd_explain_job *job, size_t device, size_t step,
                                       struct nd_error *err)
{
    struct nd_explained_layer *layer = &job->out->devices[device].layers[step];
    const struct nd_observed_arithmetic *observed = nd_observed_arithmetic_of(job, device, step);
    size_t arithmetic = job->observations->layer_arithmetic[device];
    for (size_t k = 0; k < ND_N_ALTERNATIVES && arithmetic != SIZE_MAX; k++) {
        enum nd_alternative alternative = (enum nd_alternative)k;
        if (!follows_other(observed, alternative, arithmetic))
            continue;
        free(layer->arithmetic);
        layer->arithmetic = nd_strdup(nd_layer_arithmetic_at(arithmetic)->name);
        layer->n_unexplained = 0;
        layer->explained_fraction = 1;
        struct nd_strbuf text = {0};
        say_alternative(job->plan, step, alternative, &text);
        return layer->arithmetic != NULL
                   ? nd_judge_follows_as(layer, nd_alternative_name(alternative), &text, err)
                   : nd_fail_memory(err);
    }
    return ND_OK;
}

/* Chosen: so much nearer to what its recorded inputs give is what only passes on the error of its maker. */
static const double of_recorded = 4;

static bool is_wrong(const struct nd_explain_job *job, size_t device, size_t tensor)
{
    size_t step = job->plan->step_of_tensor[tensor];
    return step != SIZE_MAX && job->out->devices[device].layers[step].judgement.state == ND_LAYER_UNEXPLAINED;
}

/* Whether a maker of the layer, with which it may be made in one operation, has other values than it should,
 * and the layer's are near what the recorded ones give. */
static bool has_wrong_maker(const struct nd_explain_job *job, size_t device, size_t step)
{
    const struct nd_alternatives *a = &job->plan->alternatives;
    const struct nd_observed_arithmetic *observed = nd_observed_arithmetic_of(job, device, step);
    size_t arithmetic = job->observations->layer_arithmetic[device], tensor = job->plan->steps[step].tensor;
    const struct nd_other_tally *fused = &observed->layers->others[ND_ALTERNATIVE_FUSED];
    double max = fmax(job->out->devices[device].layers[step].introduced.max, 1);
    if (arithmetic == SIZE_MAX || fused->n[arithmetic] == 0 || fused->max[arithmetic] < of_recorded * max)
        return false;
    bool has = a->fused_from[tensor] != SIZE_MAX && is_wrong(job, device, a->fused_from[tensor]);
    for (size_t k = a->part_to[tensor]; !has && k < a->n_parts && a->parts[k].to == tensor; k++)
        has = is_wrong(job, device, a->parts[k].from);
    return has;
}

/* ---- what changes from run to run ---- */

/* LSB; chosen: a result that lies next to a tie may fall either way, in each of two runs. More is no rounding.
 */
static const double single_step = 1, between_runs = 2;
/* Of floats, as a share of the largest value; chosen: a sum of 1000 terms in another order differs by less even
 * in half precision. */
static const double of_other_order = 1.0 / 16;
/* A layer that changes is held against one of its runs: what that is off may be a few times what runs differ
 * by (docs/science/verdicts.md#a-layer-follows-known-arithmetic). */
static const double more_than_noise = 3;

static bool is_noise(const struct nd_explain_job *job, size_t device, size_t step,
                     const struct nd_explain_noise *noise)
{
    const struct nd_explained_layer *layer = &job->out->devices[device].layers[step];
    const struct nd_observed_arithmetic *observed = nd_observed_arithmetic_of(job, device, step);
    size_t arithmetic = job->observations->layer_arithmetic[device];
    double max =
        arithmetic != SIZE_MAX && layer->is_covered ? observed->layers->max[arithmetic] : layer->introduced.max;
    return max <= single_step &&
           (double)layer->n_unexplained <= more_than_noise * noise->share * (double)layer->n_qvalues;
}

static enum nd_status judge_not_repeatable(struct nd_explained_layer *layer,
                                           const struct nd_explain_noise *noise, struct nd_strbuf *text,
                                           struct nd_error *err)
{
    char said[] = "not repeatable, its values change from run to run";
    const struct nd_explained_fault fault = {.kind = nd_fault_name(ND_FAULT_FLIPS),
                                             .text = said,
                                             .channel = SIZE_MAX,
                                             .amount = noise->share,
                                             .explained = 1};
    return nd_judge_faulty(layer, ND_CERTAINTY_PROVEN, &fault, text, err);
}

enum nd_status nd_explain_judge_float_runs(const struct nd_explain_job *job, size_t device, size_t step,
                                           struct nd_error *err)
{
    struct nd_explain_noise noise;
    struct nd_strbuf text = {0};
    ND_TRY(nd_explain_measure_noise(job->plan, device, step, &noise, err));
    if (!noise.is_own || noise.n_repeats == 0 || noise.max <= of_other_order * noise.largest)
        return ND_OK;
    nd_strbuf_printf(&text,
                     "run to run it differs by up to %.3g, in %.3g%% of its values, while its inputs do not",
                     noise.max, 100 * noise.share);
    return judge_not_repeatable(&job->out->devices[device].layers[step], &noise, &text, err);
}

static enum nd_status fault_verdict_noise(const struct nd_explain_job *job, size_t device, size_t step,
                                          const struct nd_explain_noise *noise, struct nd_strbuf *text,
                                          struct nd_error *err)
{
    struct nd_explained_layer *layer = &job->out->devices[device].layers[step];
    const struct nd_known_defect *defect =
        nd_known_defect_of(nd_observed_arithmetic_of(job, device, step)->layers->conditions);
    bool is_htp = job->observations->layer_arithmetic[device] != SIZE_MAX;
    enum nd_status status = judge_not_repeatable(layer, noise, text, err);
    bool is_known = defect != NULL && is_htp && nd_known_defect_shows_as(defect, ND_FAULT_FLIPS);
    return status == ND_OK && is_known ? nd_explain_name_defect(job, device, defect, layer, err) : status;
}

/* ---- runs that are another capture's ---- */

/* Some runs are those of a CPU that was captured, and others are not: says so, else nothing. Of few layers it
 * may be chance. ND_ERR_MEMORY. */
static enum nd_status say_runs_of_cpu(const struct nd_explain_job *job, size_t device, char text[160],
                                      struct nd_error *err)
{
    enum { MIN_STEPS = 3 }; /* chosen */
    const struct nd_plan *plan = job->plan;
    const struct nd_plan_source *own = &plan->sources[device];
    text[0] = '\0';
    for (size_t d = 0; d < plan->n_devices && text[0] == '\0'; d++) {
        const struct nd_plan_source *other = &plan->sources[d];
        const char *kind = nd_capture_string(other->capture, "device", "kind");
        struct nd_runs_of runs = {.own = own->capture,
                                  .other = other->capture,
                                  .own_probe = own->probe,
                                  .other_probe = other->probe,
                                  .own_tensors = own->tensors,
                                  .other_tensors = other->tensors,
                                  .n_tensors = plan->n_steps};
        if (d == device || other->is_failed || kind == NULL || strcmp(kind, "cpu") != 0)
            continue;
        ND_TRY(nd_repeats_count_of(&runs, err));
        if (runs.n_other > 0 && runs.n_differing >= MIN_STEPS)
            snprintf(text, 160,
                     "%zu of %zu runs give, bit for bit, the values of '%.40s': a fallback to the CPU",
                     runs.n_other, runs.n, job->out->devices[d].label);
    }
    return ND_OK;
}

static enum nd_status fault_verdict_runs(struct nd_explained_layer *layer, char *said, struct nd_strbuf *text,
                                         struct nd_error *err)
{
    const struct nd_explained_fault fault = {
        .kind = nd_fault_name(ND_FAULT_FALLBACK), .text = said, .channel = SIZE_MAX, .explained = 1};
    return nd_judge_faulty(layer, ND_CERTAINTY_PROVEN, &fault, text, err);
}

/* Single steps are the device's own noise, and no difference. More than that is a fault by itself. */
static enum nd_status settle_noise(const struct nd_explain_job *job, size_t device, size_t step,
                                   struct nd_error *err)
{
    struct nd_explained_layer *layer = &job->out->devices[device].layers[step];
    struct nd_explain_noise noise;
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf text = {0};
    ND_TRY(nd_explain_measure_noise(job->plan, device, step, &noise, err));
    /* What it reads is not repeatable: the recorded inputs need not be those that it read, and nothing is said
     * of it. In YOLOv8n the simulator's layers read other values than it showed of such tensors. */
    bool is_passed =
        !noise.is_own && job->out->devices[device].layers[step].judgement.state == ND_LAYER_UNEXPLAINED;
    if ((!noise.is_own || noise.n_repeats == 0) && !is_passed)
        return ND_OK;
    if (noise.n_repeats > 0)
        nd_strbuf_printf(
            &text, "run to run it differs by up to %g LSB, in %.3g%% of its values, while its inputs do%s",
            noise.max, 100 * noise.share, noise.is_own ? " not" : ", too");
    else
        nd_strbuf_puts(&text, "its inputs differ from run to run, so that what it read is not known");
    if (is_passed) {
        layer->judgement.is_noise = true;
        return nd_judge_evidence(layer, &text, err);
    }
    char said[160];
    ND_TRY(say_runs_of_cpu(job, device, said, err));
    if (said[0] != '\0')
        return fault_verdict_runs(layer, said, &text, err);
    if (noise.max > between_runs)
        return fault_verdict_noise(job, device, step, &noise, &text, err);
    return is_noise(job, device, step, &noise) ? nd_judge_follows_as(layer, "noise", &text, err) : ND_OK;
}

/* A table of plain rounding on a device that rounds otherwise elsewhere. */
static enum nd_status say_table(const struct nd_explain_job *job, size_t device, size_t step,
                                struct nd_error *err)
{
    struct nd_explained_layer *layer = &job->out->devices[device].layers[step];
    const struct nd_observed_arithmetic *observed = nd_observed_arithmetic_of(job, device, step);
    const char *usual = job->out->devices[device].arithmetic;
    if (!observed->is_apart || job->observations->layer_arithmetic[device] != SIZE_MAX ||
        layer->arithmetic == NULL || usual == NULL || strcmp(layer->arithmetic, usual) == 0)
        return ND_OK;
    struct nd_strbuf text = {0};
    nd_strbuf_printf(&text, "rounded %s, as the entries of a table are", layer->arithmetic);
    return nd_judge_follows_as(layer, layer->judgement.why_follows, &text, err);
}

/* A release that computes such layers wrongly, in a way that its arithmetic has: the layer follows, and is
 * wrong all the same. */
static enum nd_status fault_verdict_of_defect(const struct nd_explain_job *job, size_t device, size_t step,
                                              struct nd_error *err)
{
    struct nd_explained_layer *layer = &job->out->devices[device].layers[step];
    const struct nd_known_defect *defect =
        nd_known_defect_of(nd_observed_arithmetic_of(job, device, step)->layers->conditions);
    bool is_by_arithmetic =
        layer->arithmetic != NULL && job->observations->layer_arithmetic[device] != SIZE_MAX;
    if (defect == NULL || !defect->is_in_arithmetics || !is_by_arithmetic ||
        layer->judgement.state != ND_LAYER_FOLLOWS ||
        layer->introduced.max <= nd_explain_known_allowance(nd_plan_is_wide(job->plan, step)))
        return ND_OK;
    struct nd_strbuf text = {0};
    double n = layer->n_qvalues > 0 ? (double)layer->n_qvalues : 1;
    nd_strbuf_printf(
        &text,
        "the defect predicts every value; %.3g%% of the values differ from exact rounding, by up to %g LSB",
        100 * (double)layer->introduced.n_differing / n, layer->introduced.max);
    enum nd_status status = nd_judge_faulty(layer, ND_CERTAINTY_PROVEN, NULL, &text, err);
    return status == ND_OK ? nd_explain_name_defect(job, device, defect, layer, err) : status;
}

/* What a quantiser with an infinite scale makes of a layer: ONNX says no value, and so every device may have
 * its own. */
static bool has_no_number(const struct nd_explained_layer *layer)
{
    return layer->is_examined && layer->n_qvalues > 0 && layer->n_nan == layer->n_qvalues;
}

/* A mask constant of -3.4e38 is finite in double precision, and minus infinity in float32 after it was
 * quantised: 0 times that is no number on a CPU. */
static bool overflows(const struct nd_quant *quant, enum nd_dtype dtype)
{
    double low, high;
    if (quant == NULL || quant->n == 0 || !nd_dtype_is_integer(dtype) || nd_dtype_size_bytes(dtype) > 2)
        return false;
    nd_qvalue_range(dtype, &low, &high);
    for (size_t i = 0; i < quant->n; i++) {
        double scale = (double)quant->scale[i], zero = (double)quant->zero_point[i];
        if (fmax(fabs(low - zero), fabs(high - zero)) * scale > (double)FLT_MAX)
            return true;
    }
    return false;
}

static bool reads_overflow(const struct nd_plan *plan, size_t step)
{
    enum { MAX_CONSTANTS = 8 };
    struct nd_exact_constant constants[MAX_CONSTANTS];
    const struct nd_model_layer *layer = nd_plan_layer(plan, step);
    bool is_found = false;
    for (size_t i = 0; layer != NULL && i < layer->n_inputs; i++) {
        const struct nd_tensor *tensor = nd_model_tensor(plan->model, layer->inputs[i]);
        is_found = is_found || overflows(&tensor->quant, tensor->dtype);
    }
    size_t n = layer != NULL
                   ? nd_exact_layer_constants(plan->graph, plan->steps[step].tensor, constants, MAX_CONSTANTS)
                   : 0;
    for (size_t i = 0; i < n; i++)
        is_found = is_found || overflows(constants[i].quant, constants[i].dtype);
    return is_found;
}

static enum nd_status leave_unjudged(struct nd_explained_device *device, struct nd_explained_layer *layer,
                                     const char *why, struct nd_error *err)
{
    layer->is_examined = false;
    layer->is_left = true;
    layer->effect = layer->harmed_share = (double)NAN;
    nd_judge_open(layer);
    layer->why_not = nd_strdup(why);
    device->n_examined--;
    device->n_not_examined++;
    return layer->why_not != NULL ? ND_OK : nd_fail_memory(err);
}

static enum nd_status settle_layer(const struct nd_explain_job *job, size_t device, size_t step,
                                   struct nd_error *err)
{
    struct nd_explained_layer *layer = &job->out->devices[device].layers[step];
    if (layer->judgement.state == ND_LAYER_FAULTY) /* it shows what another layer wrote (attribute.c) */
        return ND_OK;
    if (has_no_number(layer))
        ND_TRY(leave_unjudged(&job->out->devices[device], layer,
                              "none of its exact values is a number, so that none can be wrong", err));
    nd_judge_open(layer);
    if (!layer->is_examined)
        return ND_OK;
    const char *why = find_why(job, device, step);
    if (why != NULL)
        ND_TRY(nd_judge_follows(layer, why, NULL, err));
    ND_TRY(why != NULL ? say_table(job, device, step, err) : try_alternatives(job, device, step, err));
    bool follows = layer->judgement.state == ND_LAYER_FOLLOWS;
    if (!follows && reads_overflow(job->plan, step))
        return leave_unjudged(
            &job->out->devices[device], layer,
            "it reads values that float32 does not hold: in float32 the result may be no number", err);
    if (!follows && nd_plan_reads_carried(job->plan, device, step))
        return leave_unjudged(
            &job->out->devices[device], layer,
            "it does not follow from an input that was not captured, but worked out from those before it", err);
    if (!follows && has_wrong_maker(job, device, step))
        return leave_unjudged(
            &job->out->devices[device], layer,
            "it is made in one operation with a layer before it, whose values are wrong: what it "
            "adds itself is not known",
            err);
    if (layer->is_within_step && follows)
        nd_explain_find_tie_rule(nd_tally_of(job->evaluation, device, step), layer);
    ND_TRY(fault_verdict_of_defect(job, device, step, err));
    return layer->judgement.state != ND_LAYER_FAULTY ? settle_noise(job, device, step, err) : ND_OK;
}

bool nd_explain_needs_layer_diagnosis(const struct nd_explain_job *job, size_t device, size_t step)
{
    return (job->out->steps[step].is_layer || nd_explain_is_input_quantiser(job->plan, step)) &&
           job->out->devices[device].layers[step].judgement.state == ND_LAYER_UNEXPLAINED &&
           !job->out->devices[device].layers[step].judgement.is_noise;
}

enum nd_status nd_explain_decide_layers(const struct nd_explain_job *job, struct nd_error *err)
{
    for (size_t d = 0; d < job->plan->n_devices; d++)
        for (size_t s = 0; s < job->plan->n_steps && !job->plan->sources[d].is_failed; s++)
            ND_TRY(settle_layer(job, d, s, err));
    return ND_OK;
}

/* Of a device that nothing states and that rounds plainly it is known what it does but for the doubt of floats,
 * whose sums it need not take in the same order. */
static bool is_known_to_the_bit(const struct nd_explain_job *job, size_t d, size_t s)
{
    const struct nd_plan_source *source = &job->plan->sources[d];
    bool is_in_floats = source->expectation == ND_EXPECT_ANY && !nd_is_emulated(source->capture) &&
                        job->observations->layer_arithmetic[d] == SIZE_MAX &&
                        !nd_observed_arithmetic_of(job, d, s)->is_exact;
    return nd_explain_is_known(job, d, s) && !is_in_floats;
}

/* ---- the sum ---- */

/* The worst first; of equals the earlier. */
static void sort_by_effect(const struct nd_explained_device *device, size_t *steps, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        size_t step = steps[i], at = i;
        double badness = nd_explain_badness(&device->layers[step]);
        for (; at > 0 && nd_explain_badness(&device->layers[steps[at - 1]]) < badness; at--)
            steps[at] = steps[at - 1];
        steps[at] = step;
    }
}

static enum nd_status say_evidence(struct nd_explained_layer *layer, struct nd_error *err)
{
    struct nd_strbuf text = {0};
    if (layer->judgement.state != ND_LAYER_UNEXPLAINED && layer->judgement.state != ND_LAYER_WITHIN_LSB)
        return ND_OK;
    /* A rounding predicts them that the device has nowhere else: that explains none of them. */
    bool is_rounding = layer->n_unexplained == 0;
    if (is_rounding)
        layer->n_unexplained = layer->introduced.n_differing;
    if (layer->judgement.evidence != NULL)
        return ND_OK;
    static const double few = 0.01; /* chosen: then the number says more than the share */
    bool is_of_exact = !is_rounding && layer->n_unexplained == layer->introduced.n_differing &&
                       (double)layer->n_unexplained < few * (double)layer->n_qvalues;
    double share = layer->n_qvalues > 0 ? 100 * (double)layer->n_unexplained / (double)layer->n_qvalues : 0;
    if (is_of_exact)
        nd_strbuf_printf(&text,
                         "%" PRIu64 " of %" PRIu64 " values are off by up to %g LSB, and all others are exact",
                         layer->n_unexplained, layer->n_qvalues, layer->introduced.max);
    else
        nd_strbuf_printf(&text,
                         is_rounding ? "in this layer alone %.3g%% of the values differ from exact rounding, "
                                       "by up to %g LSB, in a way that no other layer of the device does"
                                     : "in this layer alone %.3g%% of the values differ from known arithmetic; "
                                       "they differ from exact rounding by up to %g LSB",
                         share, layer->introduced.max);
    return nd_judge_evidence(layer, &text, err);
}

static enum nd_health health_of(const struct nd_explained_device *device)
{
    if (device->failure != NULL)
        return ND_HEALTH_FAILED;
    if (device->n_faulty > 0)
        return ND_HEALTH_FAULTY;
    if (device->n_unexplained > 0)
        return ND_HEALTH_UNEXPLAINED;
    return device->n_examined == 0 || device->n_not_examined > 0 ? ND_HEALTH_INCONCLUSIVE : ND_HEALTH_HEALTHY;
}

/* Which steps the device reads on the way to the model's outputs: of what is made in one operation with
 * something before it, all that lies between is recorded, and read by nobody. */
static void find_read(const struct nd_explain_job *job, size_t d, bool *is_read)
{
    const struct nd_plan *plan = job->plan;
    for (size_t s = plan->n_steps; s-- > 0;) {
        const struct nd_model_layer *layer = nd_plan_layer(plan, s);
        const struct nd_judgement *judgement = &job->out->devices[d].layers[s].judgement;
        const char *fused = nd_alternative_name(ND_ALTERNATIVE_FUSED), *why = judgement->why_follows;
        size_t tensor = plan->steps[s].tensor, from = SIZE_MAX;
        is_read[s] = is_read[s] || plan->steps[s].is_model_output;
        if (!is_read[s] || layer == NULL)
            continue;
        if (judgement->state == ND_LAYER_FOLLOWS && why != NULL && strcmp(why, fused) == 0)
            from = plan->alternatives.fused_from[tensor] != SIZE_MAX ? plan->alternatives.fused_from[tensor]
                                                                     : plan->alternatives.gated[tensor];
        for (size_t i = 0; i < layer->n_inputs; i++) {
            size_t input = plan->step_of_tensor[from != SIZE_MAX ? from : layer->inputs[i]];
            if (input != SIZE_MAX)
                is_read[input] = true;
        }
    }
}

/* A known defect in values that nobody reads harms no output. */
static enum nd_status acquit_unread(const struct nd_explain_job *job, size_t d, struct nd_error *err)
{
    struct nd_explained_device *device = &job->out->devices[d];
    ND_FREED bool *is_read = nd_calloc(job->plan->n_steps, sizeof *is_read);
    ND_TRY_MEMORY(is_read != NULL, err);
    find_read(job, d, is_read);
    for (size_t s = 0; s < job->plan->n_steps; s++) {
        struct nd_explained_layer *layer = &device->layers[s];
        if (is_read[s] || layer->judgement.known_defect == NULL)
            continue;
        free(layer->judgement.known_defect);
        layer->judgement.known_defect = NULL;
        layer->effect = layer->harmed_share = (double)NAN;
        ND_TRY(nd_judge_follows(layer, "unread",
                                "a known defect of the SDK is in its recorded values, and nothing reads them: "
                                "what follows is made in one operation from what comes before it",
                                err));
    }
    return ND_OK;
}

/* Whether a layer reads the step that was not captured, and all that do follow from what it was worked out to
 * be: readers come behind it. */
static bool is_confirmed(const struct nd_plan *plan, const struct nd_explained_device *device, size_t step)
{
    bool is_any = false;
    for (size_t s = step + 1; s < plan->n_steps; s++) {
        const struct nd_model_layer *layer = nd_plan_layer(plan, s);
        for (size_t i = 0; layer != NULL && i < layer->n_inputs; i++) {
            if (layer->inputs[i] != plan->steps[step].tensor ||
                ND_IS_ONE_OF(layer->op_types, "GlobalMaxPool", "ReduceMax", "ReduceMin")) /* show one of many */
                continue;
            if (device->layers[s].judgement.state != ND_LAYER_FOLLOWS)
                return false;
            is_any = true;
        }
    }
    return is_any;
}

/* Of a tensor that was not captured, what reads it says whether its layer follows. */
static enum nd_status confirm_carried(const struct nd_explain_job *job, size_t d, struct nd_error *err)
{
    struct nd_explained_device *device = &job->out->devices[d];
    for (size_t s = job->plan->n_steps; s-- > 0;) {
        struct nd_explained_layer *layer = &device->layers[s];
        if (job->plan->sources[d].carried[s] == NULL || !is_confirmed(job->plan, device, s))
            continue;
        free(layer->why_not);
        layer->why_not = NULL;
        layer->is_examined = true;
        device->n_examined++;
        device->n_not_examined--;
        ND_TRY(nd_judge_follows(layer, "worked-out",
                                "it was not captured; what reads it follows from the values that the device's "
                                "arithmetic gives it",
                                err));
    }
    return ND_OK;
}

static enum nd_status sum_up(const struct nd_explain_job *job, size_t d, struct nd_error *err)
{
    struct nd_explained_device *device = &job->out->devices[d];
    device->faulty = nd_calloc(job->plan->n_steps, sizeof *device->faulty);
    device->unexplained = nd_calloc(job->plan->n_steps, sizeof *device->unexplained);
    ND_TRY_MEMORY(device->faulty != NULL && device->unexplained != NULL, err);
    device->health = health_of(device);
    if (device->failure != NULL)
        return ND_OK;
    ND_TRY(nd_explain_fault_verdict_labels(job, d, err));
    /* Where the device is shown to record other values than its layers make, the size of an error in another
     * record accuses nobody. Seen: a Conv whose output has two quantisers, by 23 LSB (gen3, QAIRT 2.51.0). */
    for (size_t s = 0; s < job->plan->n_steps; s++) {
        const struct nd_judgement *judgement = &device->layers[s].judgement;
        bool is_by_size = judgement->fault.kind == NULL && judgement->known_defect == NULL;
        for (size_t i = 0; i < device->n_findings && is_by_size; i++)
            if (judgement->state == ND_LAYER_FAULTY && device->findings[i].step != s &&
                is_kind(&device->findings[i], ND_FAULT_WRONG_RECORD))
                nd_judge_open(&device->layers[s]);
    }
    ND_TRY(acquit_unread(job, d, err));
    ND_TRY(confirm_carried(job, d, err));
    for (size_t s = 0; s < job->plan->n_steps; s++) {
        struct nd_explained_layer *layer = &device->layers[s];
        if (!job->is_strict)
            nd_judge_within_lsb(layer, is_known_to_the_bit(job, d, s));
        device->n_within_lsb += layer->judgement.state == ND_LAYER_WITHIN_LSB;
        device->n_follow += layer->judgement.state == ND_LAYER_FOLLOWS;
        if (layer->judgement.state == ND_LAYER_FAULTY)
            device->faulty[device->n_faulty++] = s;
        if (layer->judgement.state == ND_LAYER_UNEXPLAINED)
            device->unexplained[device->n_unexplained++] = s;
        ND_TRY(say_evidence(layer, err));
    }
    sort_by_effect(device, device->faulty, device->n_faulty);
    sort_by_effect(device, device->unexplained, device->n_unexplained);
    device->health = health_of(device);
    return ND_OK;
}

enum nd_status nd_explain_find_health(const struct nd_explain_job *job, struct nd_error *err)
{
    for (size_t d = 0; d < job->plan->n_devices; d++) {
        ND_TRY(sum_up(job, d, err));
        if (job->out->devices[d].health > job->out->health)
            job->out->health = job->out->devices[d].health;
    }
    return ND_OK;
}
