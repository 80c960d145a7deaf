/* What may be said of a layer that does not follow known arithmetic. A fault is named where one predicts the
 * values, and where the error is larger than arithmetic that nobody knows may make; anything else is
 * unexplained. */
#include <math.h>

#include "capture/read/environment.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "explain/layer_diagnosis/layer_diagnosis.h"
#include "explain/verdict/health.h"

/* How far the values of a layer may be off before anything is said of it: what is known of its arithmetic. */

/* LSB of 8 bits; chosen. What an arithmetic covers it is wrong about by a bias or a multiplier that is rounded
 * otherwise, which moves a value of 8 bits by one. Operators without an arithmetic are off by two: two
 * roundings, each away. */
static const double of_covered = 1, of_uncovered = 2;
/* The same in LSB of 16 bits; chosen. The HTP brings second operands of products to 8 bits and takes some
 * functions from tables of 8 bits (docs/science/htp-arithmetic.md): an operator that nobody knows may do so,
 * and is then off by two steps of 8 bits. */
static const double of_covered_wide = 16, of_uncovered_wide = 512;

double nd_explain_known_allowance(bool is_wide)
{
    return is_wide ? of_covered_wide : of_covered;
}

/* Quantised values by which the forced encoding may place the last quantised value elsewhere than the model's;
 * chosen: quantisers that write 1/65535 for a gate are off by one from 1/65536, and one quantised value is no
 * more than rounding does. */
static const double moved_qvalues = 1.5;

static bool is_elsewhere(const struct nd_quant *forced, const struct nd_quant *own)
{
    if (own->n != 1 || own->zero_point[0] != forced->zero_point[0])
        return true;
    return fabs((double)own->scale[0] / (double)forced->scale[0] - 1) * UINT16_MAX > moved_qvalues;
}

/* Whether the layer reads an operand in an encoding that the provider of an HTP forces, and that moves
 * quantised values by more than one: what it does there is known in part only. */
static bool nd_explain_reads_forced(const struct nd_explain_job *job, size_t device, size_t step)
{
    const struct nd_model_layer *layer = nd_plan_layer(job->plan, step);
    bool is_forced = false;
    for (size_t i = 0; layer != NULL && i < layer->n_inputs; i++) {
        const struct nd_forced *forced = job->plan->alternatives.forced[layer->inputs[i]];
        const struct nd_tensor *tensor = nd_model_tensor(job->plan->model, layer->inputs[i]);
        is_forced = is_forced || (forced != NULL && is_elsewhere(&forced->quant, &tensor->quant));
    }
    return is_forced && job->observations->layer_arithmetic[device] != SIZE_MAX;
}

unsigned nd_explain_forced(const struct nd_explain_job *job, size_t step)
{
    const struct nd_alternatives *a = &job->plan->alternatives;
    const struct nd_model_layer *layer = nd_plan_layer(job->plan, step);
    unsigned forced = layer != NULL && a->is_forced_here[layer->tensor] ? ND_LAYER_DIAGNOSIS_FORCED_OUTPUT : 0;
    for (size_t i = 0; layer != NULL && i < layer->n_inputs; i++)
        forced |= a->forced[layer->inputs[i]] != NULL ? ND_LAYER_DIAGNOSIS_FORCED_INPUTS : 0;
    return forced;
}

/* Layers that read an operand in an encoding that the provider forces, and products of two operands that are
 * calculated (docs/science/htp-arithmetic.md). */
static bool is_known_in_part(const struct nd_explain_job *job, size_t device, size_t step)
{
    const struct nd_model_layer *layer = nd_plan_layer(job->plan, step);
    size_t n_calculated = 0;
    if (job->observations->layer_arithmetic[device] == SIZE_MAX || layer == NULL)
        return false;
    for (size_t i = 0; i < layer->n_inputs; i++)
        n_calculated += nd_model_layer_of_tensor(job->plan->model, layer->inputs[i]) != NULL;
    bool is_product = strncmp(layer->op_types, "MatMul", strlen("MatMul")) == 0;
    return nd_explain_reads_forced(job, device, step) || (is_product && n_calculated > 1);
}

/* A later release need not have the defect that the arithmetic has. */
static bool may_be_mended(const struct nd_observed_arithmetic *observed)
{
    return nd_layer_conditions_predicted(observed->layers->conditions) != 0;
}

bool nd_explain_is_known(const struct nd_explain_job *job, size_t device, size_t step)
{
    const struct nd_observed_arithmetic *observed = nd_observed_arithmetic_of(job, device, step);
    size_t arithmetic = job->observations->layer_arithmetic[device];
    if (nd_explain_is_input_quantiser(job->plan, step))
        return true; /* ONNX says it, and diagnose_layers.c has what devices do besides */
    if (arithmetic == SIZE_MAX)
        return observed->arithmetic != SIZE_MAX;
    return job->out->devices[device].layers[step].is_covered && observed->layers->doubt[arithmetic] < 1 &&
           !is_known_in_part(job, device, step) && !may_be_mended(observed);
}

double nd_explain_allowance(const struct nd_explain_job *job, size_t device, size_t step)
{
    const struct nd_plan_source *source = &job->plan->sources[device];
    const struct nd_observed_arithmetic *observed = nd_observed_arithmetic_of(job, device, step);
    bool is_wide = nd_plan_is_wide(job->plan, step);
    bool is_input = nd_explain_is_input_quantiser(job->plan, step),
         is_htp = job->observations->layer_arithmetic[device] != SIZE_MAX;
    if (!is_htp && source->expectation == ND_EXPECT_ANY && (is_input || observed->arithmetic != SIZE_MAX))
        return 0; /* rounding of a known kind, and nothing else: complete */
    if (!is_htp && source->expectation == ND_EXPECT_FLOAT && is_input)
        return 0;
    if (observed->tally->n_open == 0 && nd_explain_is_known(job, device, step) && !is_input)
        return 0; /* it only moves codes: there is nothing to round */
    if (nd_explain_is_known(job, device, step) || source->expectation == ND_EXPECT_FLOAT)
        return nd_explain_known_allowance(is_wide);
    return is_wide ? of_uncovered_wide : of_uncovered;
}

bool nd_explain_multiplies_constants(const struct nd_explain_job *job, size_t step)
{
    static const char *const products[] = {"Conv", "Gemm", "MatMul"}; /* and ConvTranspose, Conv+Relu */
    const struct nd_model_layer *layer = nd_plan_layer(job->plan, step);
    for (size_t i = 0; layer != NULL && layer->n_inputs == 1 && i < sizeof products / sizeof *products; i++)
        if (strncmp(layer->op_types, products[i], strlen(products[i])) == 0)
            return true;
    return false;
}

/* The same of a device of which it is known how it multiplies, such as a Conv: an HTP whose arithmetic covers
 * the layer, or one of which another such layer is exact to the last step. It is computed from the quantised
 * values that are recorded, and nothing before it can make them finer. */
static bool nd_explain_is_product_by_constants(const struct nd_explain_job *job, size_t device, size_t step)
{
    const struct nd_observed_arithmetic *observations = nd_observed_arithmetic_of(job, device, 0);
    if (!nd_explain_multiplies_constants(job, step))
        return false;
    if (job->observations->layer_arithmetic[device] != SIZE_MAX)
        return nd_explain_is_known(job, device, step);
    for (size_t s = 0; s < job->plan->n_steps; s++)
        if (s != step && observations[s].is_counted && observations[s].tally->n_open > 0 &&
            nd_explain_multiplies_constants(job, s) &&
            job->out->devices[device].layers[s].introduced.max <=
                nd_explain_known_allowance(nd_plan_is_wide(job->plan, s)))
            return true;
    return false;
}

/* ---- positive diagnoses ---- */

/* Values further off than the allowance that a fault takes; chosen: fewer are predicted by chance. */
enum { FEWEST_BEYOND = 8, FEWEST_OF_COMPLETE = 3 };

/* Values on which the device's arithmetic and a simple rounding differ, all of which are those of the latter;
 * chosen. */
enum { FEWEST_FALLBACK = 20 };
/* Quantised values of an input that no known arithmetic gives and another rounding does; chosen, as above. */
enum { FEWEST_ROUNDED = 20 };

static bool is_placed_on_npu(const struct nd_explain_job *job, size_t device, size_t step)
{
    const struct nd_capture *capture = job->plan->sources[device].capture;
    size_t tensor = nd_capture_find_tensor(capture, job->out->steps[step].name);
    const char *provider = tensor != SIZE_MAX ? nd_capture_tensor_provider(capture, tensor) : "";
    return job->plan->sources[device].expectation != ND_EXPECT_ANY && provider[0] != '\0' &&
           strcmp(provider, "CPUExecutionProvider") != 0;
}

/* Whether an arithmetic that rounds twice gives every value of the layer. */
static bool rounds_twice(const struct nd_explain_job *job, size_t device, size_t step)
{
    const struct nd_qvalue_tally *tally = nd_observed_arithmetic_of(job, device, step)->tally;
    size_t n;
    const struct nd_rounding_rule *arithmetics = nd_rounding_rules(&n);
    for (size_t p = 0; p < n; p++)
        if (arithmetics[p].kind == ND_ROUNDED_TWICE && tally->wrong[p] == 0)
            return true;
    return false;
}

static bool is_only_one_of_its_kind(const struct nd_explain_job *job, size_t device, size_t step)
{
    const struct nd_observed_arithmetic *observations = nd_observed_arithmetic_of(job, device, 0);
    for (size_t s = 0; s < job->plan->n_steps; s++)
        if (s != step && observations[s].is_counted && observations[s].tally->n_open > 0 &&
            strcmp(observations[s].op_types, observations[step].op_types) == 0)
            return false;
    return true;
}

/* Of a capture that does not say that an NPU made it nothing says that all layers were made in one place, or by
 * one kernel: the only layer of its kind may round once while the others round twice, or the reverse. */
static bool is_own_rounding(const struct nd_explain_job *job, size_t device, size_t step,
                            enum nd_fault_kind kind)
{
    bool is_rounding =
        kind == ND_FAULT_FALLBACK || (kind == ND_FAULT_ROUNDING && rounds_twice(job, device, step));
    return is_rounding && job->out->steps[step].is_layer &&
           job->observations->layer_arithmetic[device] == SIZE_MAX &&
           !nd_can_fall_back(job->plan->sources[device].capture) && is_only_one_of_its_kind(job, device, step);
}

/* Share of the wrong values that a fault must predict where the arithmetic is not known: the diagnosis's own
 * limit (docs/science/verdicts.md#a-layer-is-faulty). What it sees in some of the values may be what such
 * arithmetic looks like. */
static const double nearly_all = 0.99;

size_t nd_explain_fewest_beyond(const struct nd_explain_job *job, size_t device, size_t step)
{
    return nd_explain_allowance(job, device, step) == 0 ? FEWEST_OF_COMPLETE : FEWEST_BEYOND;
}

/* Measured: a Softmax whose scale is far below those that its arithmetic covers has fewer bits than the
 * quantised values show: of shares of 0.005 in steps of 3.6e-5 a healthy one is off by up to 37 LSB (network
 * 47096 of tools/studies/strangers), and all of its quantised values may be one (network 63328 of
 * tools/studies/fuzz_htp). */
static const double of_lacking_bits = 37;

static bool may_lack_bits(const struct nd_explain_job *job, size_t step)
{
    const struct nd_model_layer *layer = nd_plan_layer(job->plan, step);
    return layer != NULL && strncmp(layer->op_types, "Softmax", strlen("Softmax")) == 0;
}

static bool is_common(const struct nd_explain_error_size *size, size_t n)
{
    return n >= ND_EXPLAIN_FEWEST_GROSS && (double)n >= ND_EXPLAIN_MIN_GROSS_SHARE * (double)size->n;
}

/* Whether the diagnosis predicts values that are wrong beyond doubt. */
static bool is_positive(const struct nd_explain_job *job, size_t device, size_t step,
                        const struct nd_explain_error_size *size, const struct nd_diagnosis *diagnosis)
{
    enum nd_fault_kind kind = diagnosis->is_found ? diagnosis->best.kind : ND_FAULT_UNEXPLAINED;
    bool is_complete = nd_explain_allowance(job, device, step) == 0;
    if (nd_fault_is_note(kind) ||
        (may_lack_bits(job, step) && !nd_explain_is_known(job, device, step) && size->max <= of_lacking_bits))
        return false;
    size_t fewest = nd_explain_fewest_beyond(job, device, step);
    switch (kind) {
    case ND_FAULT_UNEXPLAINED:
    case ND_FAULT_FUSION:
    case ND_FAULT_FLIPS:
        return false;
    case ND_FAULT_ROUNDING:
        if (nd_explain_is_input_quantiser(job->plan, step)) /* no quantiser is known to cut off */
            return size->n_wrong >= FEWEST_ROUNDED;
        return is_complete && size->n_wrong >= fewest &&
               (nd_can_fall_back(job->plan->sources[device].capture) || !rounds_twice(job, device, step));
    case ND_FAULT_STOCHASTIC_ROUNDING: /* beside arithmetic that is not known to be complete it proves nothing
                                        */
        return is_complete && size->n_wrong >= fewest;
    case ND_FAULT_FALLBACK:
        return nd_explain_is_known(job, device, step) && !is_placed_on_npu(job, device, step) &&
               nd_can_fall_back(job->plan->sources[device].capture) &&
               size->n_wrong >= (is_complete && nd_is_emulated(job->plan->sources[device].capture)
                                     ? FEWEST_OF_COMPLETE
                                     : FEWEST_FALLBACK);
    case ND_FAULT_FLIPPED_BIT:
        return size->n_beyond >= (diagnosis->best.explained >= 1 ? FEWEST_OF_COMPLETE : fewest);
    case ND_FAULT_BIAS: /* no number of these is fitted to the values where they are other constants of the file
                         */
    case ND_FAULT_WEIGHTS_ZERO_POINT:
        if (diagnosis->best.explained >= 1 && is_common(size, size->n_far))
            return true;
        return nd_explain_is_known(job, device, step) && size->n_beyond >= fewest;
    case ND_FAULT_ENCODING:
    case ND_FAULT_SCALE: /* arithmetic that nobody knows may be off by a factor or by a term */
    case ND_FAULT_CHANNEL_SCALE:
    case ND_FAULT_ZERO_POINT:
    case ND_FAULT_CHANNEL_ZERO_POINT:
    case ND_FAULT_WEIGHTS_SCALE:
        return nd_explain_is_known(job, device, step) && size->n_beyond >= fewest;
    default:
        return size->n_beyond >= fewest &&
               (nd_explain_is_known(job, device, step) || diagnosis->best.explained >= nearly_all);
    }
}

/* ---- errors that no rounding makes ---- */

/* The error is as large as the layer's signal, which the values do not follow, and larger than any table or
 * operand of few bits makes it. Root mean square, LSB of 8 and of 16 bits; chosen: 4 bits are lost.
 * Correlation; chosen: a quarter of the variance. Unknown arithmetic that is off by a factor follows the signal
 * closely. */
static const double gross = 8, gross_wide = 2048, follows_signal = 0.5;

static bool is_gross(const struct nd_explain_job *job, size_t device, size_t step,
                     const struct nd_explain_error_size *size)
{
    if (nd_explain_reads_forced(job, device, step))
        return false;
    bool is_wide = nd_plan_is_wide(job->plan, step);
    return size->n >= ND_EXPLAIN_FEWEST_GROSS && size->mean_square >= size->signal &&
           size->correlation < follows_signal && sqrt(size->mean_square) >= (is_wide ? gross_wide : gross);
}

/* Each of two operands may be read with its own encoding or not: not all ways are tried. */
static bool reads_two_forced(const struct nd_explain_job *job, size_t step)
{
    const struct nd_model_layer *layer = nd_plan_layer(job->plan, step);
    size_t n = 0;
    for (size_t i = 0; layer != NULL && i < layer->n_inputs; i++)
        n += job->plan->alternatives.forced[layer->inputs[i]] != NULL;
    return n > 1;
}

bool nd_explain_needs_reach(const struct nd_explain_job *job, size_t device, size_t step,
                            const struct nd_explain_error_size *size)
{
    if (nd_explain_is_known(job, device, step))
        return is_common(size, size->n_beyond);
    if (job->observations->layer_arithmetic[device] == SIZE_MAX || reads_two_forced(job, step))
        return false;
    if (nd_explain_forced(job, step) != 0)
        return is_common(size, size->n_beyond);
    return nd_observed_arithmetic_of(job, device, step)->layers->conditions == 0 && !may_lack_bits(job, step) &&
           is_common(size, size->n_far);
}

/* All values are exact, but for a few that are far off and have nothing in common: a special value that an
 * operator makes otherwise would be one, or few. Chosen: a twentieth of the values, nine of ten of them large.
 */
static bool is_sparse(const struct nd_explain_job *job, size_t device, size_t step,
                      const struct nd_explain_error_size *size)
{
    enum { FEWEST_KINDS = 4 };
    return size->n_large >= FEWEST_BEYOND && size->n_wrong * 20 <= size->n &&
           size->n_large * 10 >= size->n_wrong * 9 && size->n_kinds >= FEWEST_KINDS &&
           !may_lack_bits(job, step) && nd_explain_forced(job, step) == 0 &&
           nd_observed_arithmetic_of(job, device, step)->layers->conditions == 0;
}

/* Another device with the same arithmetic does not make the error of this layer: its mean squared error is a
 * hundredth, its largest a quarter (chosen: siblings differ by their inputs only). NULL: no sibling says so. */
static const struct nd_explained_device *find_better_sibling(const struct nd_explain_job *job, size_t device,
                                                             size_t step,
                                                             const struct nd_explain_error_size *size)
{
    /* Chosen (docs/science/verdicts.md#a-layer-is-faulty). */
    static const double energies = 100, largest = 4;
    const struct nd_explained_part *own = &job->out->devices[device].layers[step].introduced;
    double least = nd_explain_known_allowance(nd_plan_is_wide(job->plan, step));
    for (size_t d = 0; d < job->plan->n_devices && is_common(size, size->n_beyond); d++) {
        const struct nd_explained_layer *other = &job->out->devices[d].layers[step];
        bool is_sibling = d != device && !job->plan->sources[d].is_failed &&
                          job->plan->sources[d].expectation == job->plan->sources[device].expectation &&
                          job->plan->sources[d].expectation != ND_EXPECT_ANY &&
                          job->plan->sources[d].same_as != job->plan->sources[device].same_as &&
                          other->is_examined;
        if (is_sibling &&
            own->mean_square >= energies * fmax(other->introduced.mean_square, least * least / energies) &&
            own->max >= largest * fmax(other->introduced.max, least))
            return &job->out->devices[d];
    }
    return NULL;
}

/* ---- what is said ---- */

static void put_size(const struct nd_explain_error_size *size, struct nd_strbuf *text)
{
    double share = size->n > 0 ? 100 * (double)size->n_wrong / (double)size->n : 0;
    nd_strbuf_printf(text, "in this layer alone %.3g%% of the values are wrong, by up to %g LSB", share,
                     size->max);
}

static enum nd_status keep_fault(struct nd_explained_layer *layer, const struct nd_diagnosis *diagnosis,
                                 struct nd_error *err)
{
    struct nd_finding best = diagnosis->best;
    const struct nd_explained_fault fault = {
        .kind = nd_fault_name(best.kind),
        .text = best.text,
        .channel = best.channel,
        .amount = best.amount,
        .explained = best.explained,
        .rival = diagnosis->n_rivals > 0 ? nd_fault_name(diagnosis->rivals[0].kind) : NULL};
    return nd_judge_resembles(layer, &fault, err);
}

static enum nd_status fault_verdict_of_kind(struct nd_explained_layer *layer,
                                            const struct nd_explain_error_size *size,
                                            const struct nd_diagnosis *diagnosis, struct nd_error *err)
{
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf text = {0};
    bool predicts_all = diagnosis->best.explained >= 1;
    if (predicts_all)
        nd_strbuf_puts(&text, "the fault predicts every wrong value; ");
    else
        nd_strbuf_printf(&text, "the fault predicts %.3g%% of the wrong values; ",
                         fmin(100 * diagnosis->best.explained, 99.9));
    put_size(size, &text);
    bool is_proven = predicts_all && diagnosis->n_rivals == 0;
    ND_TRY(keep_fault(layer, diagnosis, err));
    return nd_judge_faulty(layer, is_proven ? ND_CERTAINTY_PROVEN : ND_CERTAINTY_LIKELY, NULL, &text, err);
}

/* What it read of an input need not be what was recorded of that. */
static enum nd_status leave_in_doubt(struct nd_explained_layer *layer, const struct nd_explain_error_size *size,
                                     struct nd_error *err)
{
    struct nd_strbuf text = {0};
    put_size(size, &text);
    nd_strbuf_printf(&text,
                     "; it reads '%s', which is itself unexplained, by up to %g LSB: the layer need not have "
                     "read the values that were recorded",
                     size->doubtful, size->doubtful_max);
    layer->judgement.certainty = ND_CERTAINTY_UNKNOWN;
    return nd_judge_evidence(layer, &text, err);
}

/* 16 bits, and no product by constants, whose error is no larger than that of arithmetic that nobody knows:
 * devices join such layers with those around them (a norm or a Gelu in parts), and no size of that kind speaks
 * against one. Seen: a Div of a LayerNormalization in parts, by 431 LSB, and a Mul of a Gelu by Tanh, by 23,
 * both covered (gen3, QAIRT 2.51.0). */
static bool may_be_joined(const struct nd_explain_job *job, size_t step,
                          const struct nd_explain_error_size *size)
{
    return nd_plan_is_wide(job->plan, step) && !nd_explain_multiplies_constants(job, step) &&
           size->max <= of_uncovered_wide;
}

/* Of the size of the error alone; *is_accused. Where an input is in doubt, that is the evidence of a layer that
 * is not. */
static enum nd_status fault_verdict_by_size(const struct nd_explain_job *job, size_t device, size_t step,
                                            const struct nd_explain_error_size *size, bool *is_accused,
                                            struct nd_error *err)
{
    struct nd_explained_layer *layer = &job->out->devices[device].layers[step];
    const struct nd_explained_device *sibling = find_better_sibling(job, device, step, size);
    bool is_size = is_gross(job, device, step, size),
         is_reach = is_common(size, size->n_past) && !may_be_joined(job, step, size);
    bool is_distance = nd_explain_is_product_by_constants(job, device, step) &&
                       is_common(size, size->n_far < size->n_large ? size->n_far : size->n_large);
    bool is_few = is_sparse(job, device, step, size);
    /* Seen: by 2683 LSB, where a Transpose lies between its Sub and the Div (gen3, QAIRT 2.51.0). */
    bool is_joined = job->observations->layer_arithmetic[device] != SIZE_MAX &&
                     nd_may_be_norm_in_parts(job->plan->model, nd_plan_layer(job->plan, step));
    *is_accused = !is_joined && (is_size || is_reach || is_distance || is_few || sibling != NULL);
    if (*is_accused && size->doubtful != NULL) {
        *is_accused = false;
        return leave_in_doubt(layer, size, err);
    }
    if (!*is_accused)
        return ND_OK;
    bool is_past = !is_size && is_reach, is_proven = is_past && nd_explain_is_known(job, device, step);
    struct nd_strbuf text = {0};
    if (is_size || is_reach || is_distance || !is_few)
        put_size(size, &text);
    if (is_size)
        nd_strbuf_printf(&text,
                         "; the error is %.3g times as large as the layer's own signal, and the values do not "
                         "follow the signal (correlation %.2f): no known rounding makes such an error",
                         size->signal > 0 ? sqrt(size->mean_square / size->signal) : HUGE_VAL,
                         size->correlation);
    else if (is_past)
        nd_strbuf_printf(&text,
                         "; %.3g%% are further off than any rounding of this layer or of its inputs makes",
                         100 * (double)size->n_past / (double)size->n);
    else if (is_distance)
        nd_strbuf_printf(
            &text, "; %.3g%% are off by more than %g LSB: no rounding of a product by constants makes that",
            100 * (double)(size->n_far < size->n_large ? size->n_far : size->n_large) / (double)size->n,
            ND_EXPLAIN_FAR * fmax(nd_explain_allowance(job, device, step),
                                  nd_explain_known_allowance(nd_plan_is_wide(job->plan, step))));
    else if (is_few)
        nd_strbuf_printf(&text,
                         "%zu of %zu values are off by up to %g LSB, and all others are exact: no arithmetic "
                         "makes such exceptions",
                         size->n_wrong, size->n, size->max);
    else
        nd_strbuf_printf(&text, "; on %s, which has the same arithmetic, this layer is off by at most %g LSB",
                         sibling->label, sibling->layers[step].introduced.max);
    return nd_judge_faulty(layer, is_proven ? ND_CERTAINTY_PROVEN : ND_CERTAINTY_LIKELY, NULL, &text, err);
}

/* Single steps, where the layer reads quantised values in an encoding that the provider forces: it brings them
 * to the model's own in its own way (65535 steps become 65536: network 64969 of tools/studies/fuzz_htp). */
static bool is_step_of_forced(const struct nd_explain_job *job, size_t device, size_t step,
                              const struct nd_explain_error_size *size)
{
    return job->observations->layer_arithmetic[device] != SIZE_MAX && size->max <= 1 &&
           (nd_explain_forced(job, step) & ND_LAYER_DIAGNOSIS_FORCED_INPUTS) != 0;
}

/* A factor that moves no value by more than a step is what a multiplier of fewer bits is off by; on devices of
 * which nothing is known. */
static bool is_coarse_multiplier(const struct nd_explain_job *job, size_t device,
                                 const struct nd_explain_error_size *size, const struct nd_diagnosis *diagnosis)
{
    return diagnosis->is_found && diagnosis->best.explained >= 1 && size->max <= 1 &&
           (diagnosis->best.kind == ND_FAULT_SCALE || diagnosis->best.kind == ND_FAULT_CHANNEL_SCALE) &&
           job->plan->sources[device].expectation == ND_EXPECT_ANY &&
           !nd_is_emulated(job->plan->sources[device].capture); /* of which it is known how it multiplies */
}

static enum nd_status decide(const struct nd_explain_job *job, size_t device, size_t step,
                             const struct nd_explain_error_size *size, const struct nd_diagnosis *diagnosis,
                             struct nd_error *err)
{
    struct nd_explained_layer *layer = &job->out->devices[device].layers[step];
    enum nd_fault_kind kind = diagnosis->is_found ? diagnosis->best.kind : ND_FAULT_UNEXPLAINED;
    if (is_step_of_forced(job, device, step, size) && layer->judgement.follows_text == NULL)
        return nd_judge_follows(
            layer, "forced-encoding",
            "it reads quantised values in an encoding that the provider forces, and differs by single steps",
            err);
    if (is_coarse_multiplier(job, device, size, diagnosis))
        return nd_judge_follows(layer, "arithmetic", "its multiplier has fewer bits: no value is off by 2 LSB",
                                err);
    if (is_positive(job, device, step, size, diagnosis))
        return fault_verdict_of_kind(layer, size, diagnosis, err);
    if (kind == ND_FAULT_FUSION)
        return nd_judge_follows(layer, "fused", diagnosis->best.text, err);
    if (kind == ND_FAULT_FALLBACK && layer->introduced.n_differing == 0)
        return nd_judge_follows(layer, "exact", NULL, err);
    if (is_own_rounding(job, device, step, kind))
        return nd_judge_follows(layer, "arithmetic", diagnosis->best.text, err);
    /* Where the arithmetic is known a layer that rounds otherwise does not follow it. */
    bool is_simple =
        (kind == ND_FAULT_FALLBACK || kind == ND_FAULT_ROUNDING) && !nd_explain_is_known(job, device, step);
    if (is_simple && size->n_wrong >= FEWEST_FALLBACK &&
        job->observations->layer_arithmetic[device] != SIZE_MAX)
        return nd_judge_follows(layer, "arithmetic", diagnosis->best.text, err);
    bool is_accused = false;
    enum nd_status status = fault_verdict_by_size(job, device, step, size, &is_accused, err);
    if (status != ND_OK || is_accused || layer->judgement.evidence != NULL)
        return status;
    if (layer->judgement.follows_text != NULL &&
        size->max <= 1) { /* single steps, in the encoding that is forced */
        struct nd_strbuf text = {0};
        nd_strbuf_puts(&text, layer->judgement.follows_text);
        return nd_judge_follows_as(layer, "forced-encoding", &text, err);
    }
    if (layer->judgement.follows_text != NULL) {
        struct nd_strbuf text = {0};
        put_size(size, &text);
        nd_strbuf_printf(&text, ", when the provider's own encoding is used");
        layer->judgement.certainty = ND_CERTAINTY_UNKNOWN;
        return nd_judge_evidence(layer, &text, err);
    }
    layer->judgement.certainty = kind != ND_FAULT_UNEXPLAINED ? ND_CERTAINTY_GUESS : ND_CERTAINTY_UNKNOWN;
    return kind != ND_FAULT_UNEXPLAINED ? keep_fault(layer, diagnosis, err) : ND_OK;
}

/* ---- what is said ---- */

/* "2.51.0" and "2.51.0.251014" are of one release. */
static bool is_release(const char *sdk, const char *release)
{
    size_t n = strlen(release);
    return strncmp(sdk, release, n) == 0 && (sdk[n] < '0' || sdk[n] > '9');
}

/* "a known defect of QAIRT 2.51.0: it computes ..."; where the capture states another SDK or none, that is
 * said, too. The caller frees it; NULL: no memory. */
static char *known_defect_text(const struct nd_known_defect *defect, const struct nd_capture *capture)
{
    struct nd_strbuf text = {0};
    const char *sdk = nd_capture_sdk(capture);
    nd_strbuf_printf(&text, "a known defect of QAIRT %s%s%s (measured on %s): %s",
                     defect->older_sdk != NULL ? defect->older_sdk : "",
                     defect->older_sdk != NULL ? " and " : "", defect->sdk, defect->archs, defect->what);
    if (sdk == NULL)
        nd_strbuf_printf(&text, "; the capture does not say which SDK made it");
    else if (!is_release(sdk, defect->sdk) &&
             !(defect->older_sdk != NULL && is_release(sdk, defect->older_sdk)))
        nd_strbuf_printf(&text, "; this capture was made with %s, which was not measured", sdk);
    return nd_strbuf_take(&text);
}

enum nd_status nd_explain_name_defect(const struct nd_explain_job *job, size_t device,
                                      const struct nd_known_defect *defect, struct nd_explained_layer *layer,
                                      struct nd_error *err)
{
    layer->judgement.known_defect = known_defect_text(defect, job->plan->sources[device].capture);
    layer->judgement.remedy = defect->remedy;
    return layer->judgement.known_defect != NULL ? ND_OK : nd_fail_memory(err);
}

/* Of an SDK that computes such layers wrongly, so that the device is as any other. */
static enum nd_status note_defect(const struct nd_explain_job *job, size_t device, size_t step,
                                  const struct nd_explain_error_size *size, enum nd_fault_kind kind,
                                  struct nd_error *err)
{
    struct nd_explained_layer *layer = &job->out->devices[device].layers[step];
    const struct nd_plan_source *source = &job->plan->sources[device];
    const struct nd_known_defect *defect =
        nd_known_defect_of(nd_observed_arithmetic_of(job, device, step)->layers->conditions);
    bool is_htp = source->expectation == ND_EXPECT_V69 || source->expectation == ND_EXPECT_V73;
    bool is_off = layer->judgement.state == ND_LAYER_FAULTY ||
                  (layer->judgement.state == ND_LAYER_UNEXPLAINED && size->n_beyond > 0);
    if (defect == NULL || !is_htp || !is_off || !nd_known_defect_shows_as(defect, kind))
        return ND_OK;
    return nd_explain_name_defect(job, device, defect, layer, err);
}

enum nd_status nd_explain_fault_verdict(const struct nd_explain_job *job, size_t device, size_t step,
                                        const struct nd_explain_error_size *size,
                                        const struct nd_diagnosis *diagnosis, struct nd_error *err)
{
    const struct nd_explained_layer *layer = &job->out->devices[device].layers[step];
    ND_TRY(decide(job, device, step, size, diagnosis, err));
    return note_defect(job, device, step, size,
                       layer->judgement.fault.kind != NULL ? diagnosis->best.kind : ND_FAULT_UNEXPLAINED, err);
}

size_t nd_explain_quantised_input(const struct nd_plan *plan, size_t step)
{
    size_t input = nd_exact_input_behind(plan->graph, plan->steps[step].tensor), n_input, n_tensor;
    if (input == SIZE_MAX)
        return SIZE_MAX;
    const struct nd_model_io *io = nd_model_input(plan->model, input);
    bool is_whole = io->dtype == ND_DTYPE_F32 && nd_shape_n_elems(&io->shape, &n_input, NULL) == ND_OK &&
                    nd_shape_n_elems(&plan->shapes[step], &n_tensor, NULL) == ND_OK && n_input == n_tensor;
    return is_whole ? input : SIZE_MAX;
}

bool nd_explain_is_input_quantiser(const struct nd_plan *plan, size_t step)
{
    const struct nd_tensor *tensor = nd_plan_tensor(plan, step);
    return nd_dtype_is_integer(tensor->dtype) && nd_dtype_size_bytes(tensor->dtype) <= 2 &&
           tensor->quant.n > 0 && nd_explain_quantised_input(plan, step) != SIZE_MAX;
}

/* Records that are not what their readers read. A runtime that makes a tensor visible writes a copy of it, and
 * the copy may be wrong where the layers behind read the right values. A reader whose values are what known
 * arithmetic makes of what the tensor should be proves that. */

static const char made_inputs[] = "made-inputs";

enum nd_status nd_explain_acquit_reader(const struct nd_explain_job *job,
                                        const struct nd_explain_record *record, struct nd_error *err)
{
    struct nd_explained_layer *layer = &job->out->devices[record->device].layers[record->reader];
    struct nd_strbuf text = {0};
    nd_strbuf_printf(&text,
                     "it did not read what was recorded of '%s': from the values that '%s' should have, %s",
                     job->out->steps[record->step].name, job->out->steps[record->step].name,
                     record->is_exact ? "known arithmetic gives all of its values"
                                      : "its values are within what known arithmetic may be off by");
    if (!record->is_exact) {
        layer->judgement.certainty = ND_CERTAINTY_UNKNOWN;
        return nd_judge_evidence(layer, &text, err);
    }
    enum nd_status status = nd_judge_follows_as(layer, made_inputs, &text, err);
    layer->n_unexplained = 0;
    layer->explained_fraction = 1;
    layer->effect = layer->harmed_share = (double)NAN; /* its difference from the record did nothing */
    return status;
}

/* The first layer that follows by what was recorded of the tensor, and so has read that; SIZE_MAX: none. */
static size_t find_reader_of_record(const struct nd_explain_job *job, const struct nd_explain_record *record)
{
    size_t tensor = job->plan->steps[record->step].tensor;
    for (size_t s = record->step + 1; s < job->plan->n_steps; s++) {
        const struct nd_explained_layer *layer = &job->out->devices[record->device].layers[s];
        const struct nd_model_layer *model_layer = nd_plan_layer(job->plan, s);
        bool follows =
            layer->judgement.state == ND_LAYER_FOLLOWS && layer->judgement.why_follows != made_inputs;
        for (size_t i = 0; follows && model_layer != NULL && i < model_layer->n_inputs; i++)
            if (model_layer->inputs[i] == tensor)
                return s;
    }
    return SIZE_MAX;
}

static enum nd_status blame(const struct nd_explain_job *job, const struct nd_explain_record *record,
                            struct nd_error *err)
{
    struct nd_explained_layer *layer = &job->out->devices[record->device].layers[record->step];
    struct nd_strbuf text = {0}, evidence = {0};
    size_t other = find_reader_of_record(job, record);
    nd_strbuf_printf(&text, "its record is wrong: '%s' computed from the right values",
                     job->out->steps[record->reader].name);
    nd_strbuf_printf(&evidence,
                     "%zu of %zu recorded values are not what the inputs of this layer give; '%s' computed "
                     "from the values that they do give",
                     record->n_wrong, record->n, job->out->steps[record->reader].name);
    if (other != SIZE_MAX)
        nd_strbuf_printf(&evidence, "; '%s' read the recorded ones", job->out->steps[other].name);
    else
        nd_strbuf_puts(&evidence, "; the network itself may be right");
    if (other == SIZE_MAX) /* nothing read it */
        layer->effect = layer->harmed_share = (double)NAN;
    ND_FREED char *said = nd_strbuf_take(&text);
    const struct nd_explained_fault fault = {.kind = nd_fault_name(ND_FAULT_WRONG_RECORD),
                                             .text = said,
                                             .channel = SIZE_MAX,
                                             .amount = (double)record->n_wrong / (double)record->n,
                                             .explained = 1};
    enum nd_status status = said != NULL ? nd_judge_faulty(layer, ND_CERTAINTY_PROVEN, &fault, &evidence, err)
                                         : nd_fail_memory(err);
    nd_strbuf_deinit(&evidence);
    return status;
}

enum nd_status nd_explain_blame_record(const struct nd_explain_job *job, const struct nd_explain_record *record,
                                       struct nd_error *err)
{
    struct nd_explained_device *device = &job->out->devices[record->device];
    const struct nd_explained_layer *layer = &device->layers[record->step];
    const char *wrong_record = nd_fault_name(ND_FAULT_WRONG_RECORD);
    struct nd_strbuf text = {0};
    if (layer->judgement.state ==
        ND_LAYER_FOLLOWS) /* its layer diagnosis has found an arithmetic that gives the record */
        return ND_OK;
    for (size_t i = 0; i < device->n_findings; i++) /* one reader is enough */
        if (device->findings[i].step == record->step && device->findings[i].fault.kind == wrong_record)
            return ND_OK;
    nd_strbuf_printf(&text,
                     "the record of this tensor is not what '%s' read: %zu of %zu values are wrong, and that "
                     "layer computed from the right ones",
                     job->out->steps[record->reader].name, record->n_wrong, record->n);
    enum nd_status status =
        nd_explain_add_finding(device, record->step, wrong_record, (double)record->n_wrong / (double)record->n,
                               nd_strbuf_take(&text), err);
    /* A reader whose arithmetic is known, and many values: then nothing but the record can be wrong. */
    bool is_proof = record->is_exact && record->n_mended >= ND_EXPLAIN_FEWEST_GROSS &&
                    nd_explain_is_known(job, record->device, record->reader);
    bool has_name = layer->judgement.state == ND_LAYER_FAULTY && layer->judgement.fault.kind != NULL;
    return status == ND_OK && is_proof && !has_name ? blame(job, record, err) : status;
}
