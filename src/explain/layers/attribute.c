/* Which part of a device's error each layer makes itself, which part it inherits, and what is quantisation:
 * sums over the samples, in their order. */
#include <math.h>

#include "core/memory.h"
#include "core/random.h"
#include "core/statistics/evidence.h"
#include "core/text/strbuf.h"
#include "explain/diagnosis/diagnosis.h"
#include "explain/stages.h"
#include "explain/verdict/judgement.h"

/* Why two devices differ whose arithmetics are known: what the arithmetics are and in how many quantised values
 * it shows. */

struct pair {
    const struct nd_explain_job *job;
    size_t devices[2], arithmetics[2];
};

/* Quantised values of the layer on which the arithmetics differ, where the first device follows its own. */
static uint64_t count_apart(const struct pair *pair, size_t step)
{
    const struct nd_observed_arithmetic *observed =
        nd_observed_arithmetic_of(pair->job, pair->devices[0], step);
    if (observed->standing != ND_STANDING_FOLLOWS || observed->is_of_values ||
        observed->layers->n[pair->arithmetics[1]] == 0)
        return 0;
    uint64_t own = observed->layers->wrong[pair->arithmetics[0]],
             other = observed->layers->wrong[pair->arithmetics[1]];
    return other > own ? other : 0;
}

static bool is_listed(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list; at != NULL && *at != '\0'; at += strcspn(at, ",")) {
        at += strspn(at, ", ");
        if (strncmp(at, word, n) == 0 && (at[n] == '\0' || at[n] == ','))
            return true;
    }
    return false;
}

static enum nd_status add_word(char **list, const char *word, struct nd_error *err)
{
    if (is_listed(*list, word))
        return ND_OK;
    char *longer = nd_text("%s%s%s", *list != NULL ? *list : "", *list != NULL ? ", " : "", word);
    ND_TRY_MEMORY(longer != NULL, err);
    free(*list);
    *list = longer;
    return ND_OK;
}

/* A reason once, with all kinds of layers for which it is one. */
static enum nd_status add_reason(struct nd_explained_difference *out, const struct nd_layer_difference *reason,
                                 const char *op_types, struct nd_error *err)
{
    size_t i = 0;
    while (i < out->n_because && strcmp(out->because[i].texts[0], reason->a) != 0)
        i++;
    if (i == out->n_because) {
        struct nd_explained_reason *grown = realloc(out->because, (i + 1) * sizeof *grown);
        ND_TRY_MEMORY(grown != NULL, err);
        grown[i] = (struct nd_explained_reason){.name = reason->name, .texts = {reason->a, reason->b}};
        out->because = grown;
        out->n_because++;
    }
    return add_word(&out->because[i].op_types, op_types, err);
}

static enum nd_status add_layer(const struct pair *pair, size_t step, struct nd_explained_difference *out,
                                struct nd_error *err)
{
    size_t n;
    const struct nd_layer_arithmetic *arithmetics = nd_layer_arithmetics(&n);
    struct nd_layer_difference reasons[ND_LAYER_MAX_DIFFERENCES];
    const char *op_types = pair->job->plan->steps[step].op_types;
    const struct nd_tensor *tensor =
        nd_model_tensor(pair->job->plan->model, pair->job->out->steps[step].tensor);
    size_t n_reasons =
        nd_layer_arithmetic_differences(&arithmetics[pair->arithmetics[0]], &arithmetics[pair->arithmetics[1]],
                                        op_types, tensor->dtype, reasons);
    enum nd_status status = add_word(&out->op_types, op_types, err);
    for (size_t i = 0; i < n_reasons && status == ND_OK; i++)
        status = add_reason(out, &reasons[i], op_types, err);
    out->n_layers++;
    out->n_differing += count_apart(pair, step);
    return status;
}

static enum nd_status compare(const struct pair *pair, struct nd_explained_difference *out,
                              struct nd_error *err)
{
    const struct nd_explain_job *job = pair->job;
    enum nd_status status = ND_OK;
    for (size_t s = 0; s < job->plan->n_steps && status == ND_OK; s++)
        if (count_apart(pair, s) > 0)
            status = add_layer(pair, s, out, err);
    for (size_t s = 0; s < job->plan->n_steps && status == ND_OK; s++)
        if (is_listed(out->op_types, job->out->steps[s].op_types))
            out->n_qvalues += job->out->devices[pair->devices[0]].layers[s].n_qvalues;
    for (size_t k = 0; k < 2; k++) {
        out->devices[k] = pair->devices[k];
        out->arithmetics[k] = job->out->devices[pair->devices[k]].arithmetic;
    }
    return status;
}

static bool has_arithmetic(const struct nd_explain_job *job, size_t device)
{
    return !job->plan->sources[device].is_failed && job->plan->sources[device].same_as == device &&
           job->observations->layer_arithmetic[device] != SIZE_MAX;
}

enum nd_status nd_explain_find_differences(const struct nd_explain_job *job, struct nd_error *err)
{
    size_t n = job->plan->n_devices, n_pairs;
    if (!nd_size_mul(n, n, &n_pairs))
        return nd_fail(err, ND_E_SIZE_OVERFLOW, NULL, "too many devices");
    job->out->differences = nd_calloc(n_pairs / 2 + 1, sizeof *job->out->differences);
    ND_TRY_MEMORY(job->out->differences != NULL, err);
    for (size_t a = 0; a < n; a++)
        for (size_t b = a + 1; b < n; b++) {
            const struct pair pair = {
                job, {a, b}, {job->observations->layer_arithmetic[a], job->observations->layer_arithmetic[b]}};
            if (has_arithmetic(job, a) && has_arithmetic(job, b) && pair.arithmetics[0] != pair.arithmetics[1])
                ND_TRY(compare(&pair, &job->out->differences[job->out->n_differences++], err));
        }
    return ND_OK;
}

/* Intervals of error shares, by drawing samples again. docs/science/statistics.md. */

/* Of the two-sided intervals (docs/science/theory.md#own-share). */
static const double confidence = 0.95;

enum { N_STATISTICS = 4 };

static void draw(const struct nd_explain_energies *samples, size_t n, uint64_t *state,
                 double values[static N_STATISTICS])
{
    struct nd_explain_energies sum = {0};
    for (size_t i = 0; i < n; i++) {
        const struct nd_explain_energies *s = &samples[nd_splitmix_below(state, n)];
        sum.n_qvalues += s->n_qvalues;
        sum.quantisation += s->quantisation;
        sum.divergence += s->divergence;
        sum.interaction += s->interaction;
        sum.common += s->common;
        sum.own += s->own;
    }
    double n_qvalues = (double)sum.n_qvalues;
    values[0] = sum.own / (sum.common + sum.own);
    values[1] = sum.quantisation / n_qvalues;
    values[2] = sum.divergence / n_qvalues;
    values[3] = sum.interaction / n_qvalues;
}

/* What is no number (0 / 0) is left out. Sorts values. */
static struct nd_interval interval_of(double *values)
{
    size_t n = 0;
    for (size_t i = 0; i < ND_DRAWS; i++)
        if (!isnan(values[i]))
            values[n++] = values[i];
    return n > 0 ? nd_percentiles(values, n, confidence) : (struct nd_interval){NAN, NAN};
}

static enum nd_status explain_bootstrap(const struct nd_explain_energies *samples, size_t n,
                                        struct nd_explained_device *device, struct nd_error *err)
{
    struct nd_interval *const intervals[N_STATISTICS] = {
        &device->own_share_interval, &device->quantisation_interval, &device->divergence_interval,
        &device->interaction_interval};
    for (size_t k = 0; k < N_STATISTICS; k++)
        *intervals[k] = (struct nd_interval){NAN, NAN};
    if (n < 2)
        return ND_OK;
    ND_FREED double *values = nd_calloc((size_t)ND_DRAWS * N_STATISTICS, sizeof *values);
    ND_TRY_MEMORY(values != NULL, err);
    uint64_t state = n;
    for (size_t i = 0; i < ND_DRAWS; i++) {
        double drawn[N_STATISTICS];
        draw(samples, n, &state, drawn);
        for (size_t k = 0; k < N_STATISTICS; k++)
            values[k * ND_DRAWS + i] = drawn[k];
    }
    for (size_t k = 0; k < N_STATISTICS; k++)
        *intervals[k] = interval_of(values + k * ND_DRAWS);
    return ND_OK;
}

/* Captured tensors that show what a later layer wrote into their buffer. Runtimes use buffers of intermediate
 * tensors again; where such a tensor is declared an output, its capture holds another tensor, and neither the
 * layer that made it nor those that read it did anything wrong. */

/* Different samples that the tensor must have, as constant tensors are equal by chance; chosen. */
enum { FEWEST_SAMPLES = 2 };
/* Values that must be equal in all samples together; chosen: that many bytes are equal by chance in one of
 * 2^512 cases. */
enum { FEWEST_VALUES = 64 };
/* Of the values of a layer, from which share on they are plainly not what its inputs give; chosen: the values
 * of two tensors that have nothing to do with one another differ nearly everywhere. */
static const double plainly_off = 0.5;
/* LSB of 8 and of 16 bits that arithmetic nobody knows may be off by (accuse.c). */
static const double of_rounding = 2, of_rounding_wide = 512;

/* The device that is looked at. */
struct device {
    const struct nd_plan *plan;
    const struct nd_plan_source *source;
    struct nd_explained_layer *layers; /* [n_steps] */
};

/* Whether the layer's values are none that its inputs give, in the captured form of both. */
static bool is_off(const struct device *device, size_t step)
{
    const struct nd_explained_layer *layer = &device->layers[step];
    bool is_wide = nd_plan_is_wide(device->plan, step);
    return layer->is_examined && layer->introduced.max > (is_wide ? of_rounding_wide : of_rounding) &&
           (double)layer->introduced.n_differing > plainly_off * (double)layer->n_qvalues;
}

static struct nd_digest digest_of(const struct nd_plan_source *source, size_t step, size_t sample)
{
    return nd_capture_digest(source->capture, source->probe, source->tensors[step], sample, 0);
}

/* Whether both hold the same bytes in every sample, and not one sample throughout. */
static bool is_same(const struct device *device, size_t a, size_t b)
{
    const struct nd_plan_source *source = device->source;
    size_t n_different = device->plan->n_samples > 0;
    if (source->tensors[a] == SIZE_MAX || source->tensors[b] == SIZE_MAX ||
        source->sample_bytes[a] != source->sample_bytes[b] ||
        nd_plan_tensor(device->plan, a)->dtype != nd_plan_tensor(device->plan, b)->dtype)
        return false;
    for (size_t i = 0; i < device->plan->n_samples; i++) {
        if (!nd_digest_equal(digest_of(source, a, i), digest_of(source, b, i)))
            return false;
        n_different += i > 0 && !nd_digest_equal(digest_of(source, a, i), digest_of(source, a, i - 1));
    }
    return n_different >= FEWEST_SAMPLES && device->layers[a].n_qvalues >= FEWEST_VALUES;
}

static bool reads(const struct nd_plan *plan, size_t step, size_t tensor)
{
    const struct nd_model_layer *layer = nd_plan_layer(plan, step);
    for (size_t i = 0; layer != NULL && i < layer->n_inputs; i++)
        if (layer->inputs[i] == tensor)
            return true;
    return false;
}

/* A layer that makes of the captured values what it should has read them: then they are the tensor's own, and a
 * later tensor that equals it is a copy. */
static bool was_read_as_shown(const struct device *device, size_t step)
{
    for (size_t s = step + 1; s < device->plan->n_steps; s++)
        if (device->layers[s].is_examined && reads(device->plan, s, device->plan->steps[step].tensor) &&
            !is_off(device, s))
            return true;
    return false;
}

/* The first later layer whose values the tensor holds, and which is in order itself, as far as the capture
 * shows what it read: one that works in place writes over its own input. SIZE_MAX: none. */
static size_t find_writer(const struct device *device, size_t step)
{
    const struct nd_explained_layer *layers = device->layers;
    if (!device->plan->steps[step].is_layer || !is_off(device, step))
        return SIZE_MAX;
    for (size_t s = step + 1; s < device->plan->n_steps; s++)
        if (layers[s].is_examined &&
            (!is_off(device, s) || reads(device->plan, s, device->plan->steps[step].tensor)) &&
            is_same(device, step, s))
            return was_read_as_shown(device, step) ? SIZE_MAX : s;
    return SIZE_MAX;
}

static enum nd_status name_writer(const struct device *device, size_t step, size_t writer, struct nd_error *err)
{
    struct nd_explained_layer *layer = &device->layers[step];
    struct nd_strbuf text = {0}, evidence = {0};
    nd_strbuf_printf(
        &text, "holds the values of '%s': a later layer wrote into its buffer, and the capture shows that",
        device->plan->steps[writer].name);
    nd_strbuf_printf(&evidence,
                     "in all %zu samples its values are those of '%s', bit for bit, and %.3g%% of them are not "
                     "what its own inputs give; the network itself may be right",
                     device->plan->n_samples, device->plan->steps[writer].name,
                     100 * (double)layer->introduced.n_differing / (double)layer->n_qvalues);
    layer->effect = layer->harmed_share = NAN; /* nothing read it */
    ND_FREED char *said = nd_strbuf_take(&text);
    const struct nd_explained_fault fault = {
        .kind = nd_fault_name(ND_FAULT_REUSED_BUFFER), .text = said, .channel = SIZE_MAX, .explained = 1};
    enum nd_status status = said != NULL ? nd_judge_faulty(layer, ND_CERTAINTY_PROVEN, &fault, &evidence, err)
                                         : nd_fail_memory(err);
    nd_strbuf_deinit(&evidence);
    return status;
}

/* What it made cannot be worked out from another tensor's values. */
static enum nd_status leave_reader(const struct device *device, size_t step, const char *input,
                                   struct nd_error *err)
{
    struct nd_explained_layer *layer = &device->layers[step];
    struct nd_strbuf why = {0};
    if (!layer->is_examined || layer->judgement.fault.kind != NULL)
        return ND_OK;
    nd_strbuf_printf(&why, "the capture of '%s', which it reads, shows what a later layer wrote", input);
    layer->is_examined = false;
    layer->effect = layer->harmed_share = NAN;
    layer->why_not = nd_strbuf_take(&why);
    return layer->why_not != NULL ? ND_OK : nd_fail_memory(err);
}

/* attribute.c: tensors that show what a later layer wrote into their buffer get that fault, and layers that
 * read them are not examined. From the sums. */
static enum nd_status nd_explain_find_reused(const struct nd_plan *plan, size_t device,
                                             struct nd_explanation *out, struct nd_error *err)
{
    const struct device looked_at = {plan, &plan->sources[device], out->devices[device].layers};
    for (size_t s = 0; s < plan->n_steps; s++) {
        size_t writer = find_writer(&looked_at, s);
        if (writer != SIZE_MAX)
            ND_TRY(name_writer(&looked_at, s, writer, err));
    }
    for (size_t s = 0; s < plan->n_steps; s++)
        for (size_t r = s + 1; r < plan->n_steps && looked_at.layers[s].judgement.fault.kind != NULL; r++)
            if (reads(plan, r, plan->steps[s].tensor))
                ND_TRY(leave_reader(&looked_at, r, plan->steps[s].name, err));
    return ND_OK;
}

/* What chipsets have in common: the plurality of their quantised values. Lineages vote, not devices, and where
 * they do not agree the majority abstains. docs/science/theory.md#majority. */

/* A group of identical devices: devices whose quantised values are all the same have one vote. */
static bool counts_in(const struct nd_plan *plan, const struct nd_explanation *out, size_t device, size_t step)
{
    return !plan->sources[device].is_failed && plan->sources[device].same_as == device &&
           out->devices[device].layers[step].has_total;
}

/* Groups of identical devices, and votes by which the commonest quantised value must be ahead on average;
 * chosen: with two groups there is no majority, and a margin of one is a single device
 * (docs/science/theory.md#majority). */
enum { MIN_GROUPS = 3, MIN_MARGIN = 2 };

/* An output that no reference reaches, or NULL. */
static const struct nd_explained_step *find_unreached(const struct nd_explanation *out)
{
    for (size_t s = 0; s < out->n_steps; s++)
        if (out->steps[s].is_model_output && out->steps[s].unreached_from != SIZE_MAX)
            return &out->steps[s];
    return NULL;
}

static enum nd_status say_why(const struct nd_explanation *out, struct nd_explained_majority *majority,
                              struct nd_error *err)
{
    struct nd_strbuf why = {0};
    const struct nd_explained_step *unreached = find_unreached(out);
    if (majority->n_groups == 0 && unreached != NULL)
        nd_strbuf_printf(&why, "output '%s' has no reference", unreached->name);
    else if (majority->n_groups < MIN_GROUPS)
        nd_strbuf_printf(
            &why,
            "the devices form %zu group%s; with fewer than %d nobody can say which one is the odd one out",
            majority->n_groups, majority->n_groups == 1 ? "" : "s", MIN_GROUPS);
    else
        nd_strbuf_printf(&why,
                         "the devices form %zu groups, and no value is common enough to say which one is the "
                         "odd one out: the most common value leads by %.2f votes, %d are needed",
                         majority->n_groups, majority->margin, MIN_MARGIN);
    majority->why_not = nd_strbuf_take(&why);
    return majority->why_not != NULL ? ND_OK : nd_fail_memory(err);
}

/* The parts of nd_explain_attribute. attribute.c: the conclusion for all devices. */
static enum nd_status nd_explain_conclude_majority(const struct nd_evaluation *evaluation,
                                                   struct nd_explanation *out, struct nd_error *err)
{
    const struct nd_plan *plan = evaluation->plan;
    struct nd_explained_majority *majority = &out->majority;
    double n_voted = 0, n_split = 0, margin = 0, divergence = 0;
    for (size_t i = 0; i < plan->n_samples * plan->n_steps; i++) {
        const struct nd_reference_sums *r = &evaluation->reference[i];
        if (out->steps[i % plan->n_steps].unreached_from != SIZE_MAX)
            continue;
        n_voted += (double)r->n_voted;
        n_split += (double)r->n_split;
        margin += r->margin;
        divergence += r->common_divergence;
    }
    size_t n = 0;
    for (size_t d = 0; d < plan->n_devices; d++) {
        bool has_output = false;
        for (size_t s = 0; s < plan->n_steps; s++)
            has_output = has_output || (out->steps[s].is_model_output && counts_in(plan, out, d, s));
        n += has_output;
    }
    majority->n_groups = n;
    majority->split_share = n_voted > 0 ? n_split / n_voted : NAN;
    majority->margin = n_split > 0 ? margin / n_split : NAN;
    /* Without a difference there is nothing to be decided. */
    majority->is_known = majority->n_groups >= MIN_GROUPS && (n_split == 0 || majority->margin >= MIN_MARGIN);
    majority->common_divergence = majority->is_known ? divergence / n_voted : NAN;
    return majority->is_known ? ND_OK : say_why(out, majority, err);
}

/* The error against the float reference, of a step and of the model's outputs: three energies, and never a
 * difference of two SQNRs. */

/* Sums over samples; the means are taken by finish. */
static void add(const struct nd_evaluation *evaluation, size_t sample, size_t device, size_t step,
                struct nd_decomposition *sum)
{
    const struct nd_sums *s = nd_sums_of(evaluation, sample, device, step);
    const struct nd_reference_sums *r = nd_reference_sums_of(evaluation, sample, step);
    sum->n_qvalues += s->n_qvalues;
    sum->signal += r->signal;
    sum->quantisation += r->quantisation;
    sum->divergence += s->total.squares;
    sum->interaction += 2 * s->q_times_d;
    sum->bias += s->total.sum;
    sum->n_clipped += r->n_clipped;
    sum->clipped_quantisation += r->clipped_quantisation;
    sum->clipped_divergence += s->clipped_divergence;
}

static void finish(struct nd_decomposition *sum)
{
    if (sum->n_qvalues == 0)
        return;
    double n = (double)sum->n_qvalues;
    /* Cauchy and Schwarz hold but for rounding. */
    double product = sqrt(sum->quantisation) * sqrt(sum->divergence);
    sum->correlation = product > 0 ? fmax(-1, fmin(1, sum->interaction / 2 / product)) : NAN;
    sum->sqnr_db = 10 * log10(sum->signal / sum->quantisation);
    double error = sum->quantisation + sum->divergence + sum->interaction;
    sum->noise_figure_db = 10 * log10(fmax(error, 0) / sum->quantisation);
    sum->signal /= n;
    sum->quantisation /= n;
    sum->divergence /= n;
    sum->interaction /= n;
    sum->bias /= n;
    sum->clipped_quantisation /= n;
    sum->clipped_divergence /= n;
}

static bool is_known(const struct nd_explanation *out, size_t device, size_t step)
{
    return out->steps[step].has_float && out->devices[device].layers[step].has_total;
}

static enum nd_status nd_explain_quality_of_output(const struct nd_evaluation *evaluation, size_t device,
                                                   struct nd_explanation *out, struct nd_error *err)
{
    const struct nd_plan *plan = evaluation->plan;
    struct nd_explained_device *to = &out->devices[device];
    ND_FREED struct nd_explain_energies *samples = nd_calloc(plan->n_samples, sizeof *samples);
    double common = 0, own = 0;
    ND_TRY_MEMORY(samples != NULL, err);
    for (size_t i = 0; i < plan->n_samples; i++) {
        struct nd_decomposition one = {0};
        struct nd_explain_energies *sums = &samples[i];
        for (size_t s = 0; s < plan->n_steps; s++) {
            if (!plan->steps[s].is_model_output || !is_known(out, device, s))
                continue;
            add(evaluation, i, device, s, &one);
            add(evaluation, i, device, s, &to->output);
            sums->common += nd_reference_sums_of(evaluation, i, s)->common_error;
            sums->own += nd_sums_of(evaluation, i, device, s)->own_squares;
        }
        sums->n_qvalues = one.n_qvalues;
        sums->quantisation = one.quantisation;
        sums->divergence = one.divergence;
        sums->interaction = one.interaction;
        if (!out->majority.is_known) {
            sums->common = one.quantisation;
            sums->own = one.divergence;
        }
        common += sums->common;
        own += sums->own;
    }
    finish(&to->output);
    to->own_share = NAN;
    size_t n = to->output.n_qvalues > 0 ? plan->n_samples : 0;
    if (n > 0)
        to->own_share = own / (common + own);
    return explain_bootstrap(samples, n, to, err);
}

static void add_part(const struct nd_part_sums *from, struct nd_explained_part *to)
{
    to->n_differing += from->n_differing;
    to->max = fmax(to->max, from->max);
    to->mean += from->sum;
    to->mean_square += from->squares;
}

static void finish_part(struct nd_explained_part *part, uint64_t n, bool is_known)
{
    part->mean = is_known && n > 0 ? part->mean / (double)n : NAN;
    part->mean_square = is_known && n > 0 ? part->mean_square / (double)n : NAN;
    part->max = is_known ? part->max : NAN;
}

static void sum_layer(const struct nd_evaluation *evaluation, struct nd_explanation *out, size_t device,
                      size_t step)
{
    struct nd_explained_layer *layer = &out->devices[device].layers[step];
    double n_output_effect = 0, n_harmed = 0, effect = 0;
    bool is_output_effect_known = layer->is_examined;
    for (size_t i = 0; i < evaluation->plan->n_samples; i++) {
        const struct nd_sums *s = nd_sums_of(evaluation, i, device, step);
        layer->n_qvalues += s->n_qvalues;
        layer->n_violations += s->n_violations;
        add_part(&s->introduced, &layer->introduced);
        add_part(&s->passed_on, &layer->passed_on);
        add_part(&s->total, &layer->total);
        n_output_effect += (double)s->n_output_effect_qvalues;
        n_harmed += (double)s->n_harmed;
        effect += s->output_effect_squares;
        is_output_effect_known = is_output_effect_known && !s->is_output_effect_missed;
    }
    layer->effect = is_output_effect_known && n_output_effect > 0 ? effect / n_output_effect : NAN;
    layer->harmed_share = is_output_effect_known && n_output_effect > 0 ? n_harmed / n_output_effect : NAN;
    finish_part(&layer->introduced, layer->n_qvalues, layer->is_examined);
    finish_part(&layer->passed_on, layer->n_qvalues, layer->is_examined && layer->has_total);
    finish_part(&layer->total, layer->n_qvalues, layer->has_total);
    layer->explained_fraction = NAN;
    struct nd_decomposition *quality = &out->devices[device].layers[step].quality;
    *quality = (struct nd_decomposition){0};
    for (size_t i = 0; i < evaluation->plan->n_samples && is_known(out, device, step); i++)
        add(evaluation, i, device, step, quality);
    finish(quality);
}

/* The tensors of the layer's inputs have been summed: they come before it. */
static double amplification_of(const struct nd_plan *plan, const struct nd_explained_device *device,
                               size_t step)
{
    const struct nd_model_layer *layer = nd_plan_layer(plan, step);
    double squares = 0;
    for (size_t i = 0; layer != NULL && i < layer->n_inputs; i++) {
        size_t input = plan->step_of_tensor[layer->inputs[i]];
        if (input != SIZE_MAX && device->layers[input].has_total)
            squares += device->layers[input].total.mean_square * (double)device->layers[input].n_qvalues;
    }
    const struct nd_explained_layer *out = &device->layers[step];
    return squares > 0 && out->is_examined ? out->passed_on.mean_square * (double)out->n_qvalues / squares
                                           : NAN;
}

static enum nd_status attribute_device(const struct nd_evaluation *evaluation, size_t d,
                                       struct nd_explanation *out, struct nd_error *err)
{
    const struct nd_plan *plan = evaluation->plan;
    struct nd_explained_device *device = &out->devices[d];
    if (plan->sources[d].is_failed) {
        device->own_share = NAN;
        return explain_bootstrap(NULL, 0, device, err);
    }
    for (size_t s = 0; s < plan->n_steps; s++) {
        sum_layer(evaluation, out, d, s);
        device->layers[s].amplification = amplification_of(plan, device, s);
    }
    enum nd_status status = nd_explain_find_reused(plan, d, out, err);
    for (size_t s = 0; s < plan->n_steps; s++)
        device->n_examined += device->layers[s].is_examined;
    device->n_not_examined = plan->n_steps - device->n_examined;
    return status == ND_OK ? nd_explain_quality_of_output(evaluation, d, out, err) : status;
}

enum nd_status nd_explain_attribute(const struct nd_evaluation *evaluation, struct nd_explanation *out,
                                    struct nd_error *err)
{
    const struct nd_plan *plan = evaluation->plan;
    for (size_t s = 0; s < plan->n_steps; s++)
        for (size_t i = 0; i < plan->n_samples; i++)
            out->steps[s].is_double |= nd_reference_sums_of(evaluation, i, s)->is_double;
    if (plan->n_samples > 0)
        ND_TRY(nd_explain_conclude_majority(evaluation, out, err));
    for (size_t d = 0; d < plan->n_devices; d++)
        ND_TRY(attribute_device(evaluation, d, out, err));
    return ND_OK;
}
