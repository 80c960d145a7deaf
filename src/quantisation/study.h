/* The quantisation side of an explanation: which layer introduces the error against the float model, why, and
 * what would help. Captures matter only for the inputs that they hold: everything is computed.
 *
 *     study.c       the samples, and the stages in order; what helps, and how much
 *     losses.c      a sample through three runs: what each layer introduces and what it passes on
 *     values.c      what the float values of a tensor look like; quantisers of tensors and of constants
 *     cause.c       why a layer introduces its error, from the numbers
 *     trials.c      what each layer's error does to the outputs, and what a changed model would give there
 *     candidates.c  changes that could help; layers scaled against each other */
#pragma once

#include <stddef.h>

#include "explain/evaluate/channel_pairs.h"
#include "explain/evaluate/packed.h"
#include "explain/plan/plan.h"
#include "explain/stages.h"
#include "npudiff/quantisation/quantisation.h"

/* ---- quantisers of one scale for given values: which range to take, and what error they make ---- */

/* A quantiser: quantised value = round(x / scale) + zero, clipped to low_code .. high_code. */
struct nd_fit {
    double scale, zero, low_qvalue, high_qvalue;
};

struct nd_range {
    double low, high;
};

/* The quantiser whose values cover the range, and zero with it, as ONNX Runtime's calibration makes it. */
struct nd_fit nd_fit_range(struct nd_range range, double low_qvalue, double high_qvalue);
/* What its quantised values stand for. */
struct nd_range nd_range_of_fit(const struct nd_fit *fit);
/* x after quantising and dequantising. */
double nd_fit_apply(const struct nd_fit *fit, double x);
/* The same of x[n], in place. */
/* Mean square of the error; 0 for n = 0. */
double nd_fit_error(const struct nd_fit *fit, const float *values, size_t n);

enum nd_calibration {
    ND_CALIBRATE_MIN_MAX,
    ND_CALIBRATE_PERCENTILE_9999,
    ND_CALIBRATE_PERCENTILE_999,
    ND_CALIBRATE_ENTROPY,
    ND_CALIBRATE_MSE,
    ND_N_CALIBRATIONS,
};
const char *nd_calibration_name(enum nd_calibration calibration);

/* Of n > 0 sorted values. codes: how many the type has. */
struct nd_range nd_calibrate(enum nd_calibration calibration, const float *sorted, size_t n, double qvalues);

/* ---- the weights and biases of a layer, before and after their quantisation ---- */

/* From this nd_channels_ratio on one scale for all channels is called a fault: a quarter of the channels lose
 * three bits of eight. */
#define ND_CHANNELS_APART 8.0

/* Largest over lower quartile of the channels' largest magnitudes, 1 for one channel; channels of zeros are
 * left out. *ratio is NaN where no channel has a value. ND_ERR_MEMORY. */
enum nd_status nd_channels_ratio(const struct nd_array *real, int axis, double *ratio, struct nd_error *err);

/* Mean square of a - b, of the same number of elements. */
double nd_mean_square_between(const struct nd_array *a, const struct nd_array *b);
double nd_mean_square(const struct nd_array *a);

/* out: real after symmetric quantisation to so many bits, one scale for each channel of the axis, or one for
 * all where axis is -1. ND_ERR_MEMORY. */
enum nd_status nd_weights_quantised(const struct nd_array *real, int axis, int bits, struct nd_array *out,
                                    struct nd_error *err);

/* A constant of the quantised model, and what it was in the float model: real, quantised values of biases, and
 * before are there from hold to release. ND_ERR_IO, ND_ERR_MEMORY: nothing is held. */
enum nd_status nd_pair_hold(const struct nd_plan *plan, const struct nd_exact_constant *constant,
                            const struct nd_array *before, struct nd_error *err);
void nd_pair_release(const struct nd_plan *plan, const struct nd_exact_constant *constant,
                     const struct nd_array *before);

/* ---- the study, and its stages ---- */

enum {
    ND_LOSS_SAMPLES = 16,  /* measured at most, evenly spaced: chosen */
    ND_EFFECT_SAMPLES = 8, /* of these for effects and gains at most; chosen: each costs a run for each layer */
    ND_LOSS_LAYERS = 32,   /* whose effect is measured: those with the worst own SQNR. Chosen */
    ND_LOSS_CONSTANTS = 8, /* of one layer, looked at */
    ND_LOSS_OUTPUTS = 64,  /* of the model, looked at */
};

/* Sums over the elements of one step in one sample, in real units. */
struct nd_loss_sums {
    bool is_known;
    uint64_t n, n_clipped;
    double signal, total, introduced, passed_on, rounding, clipping, constants;
    double low, high; /* of the float model */
};

/* Some float values of a step, and the error that the layer introduced in each; NaN: nothing is known. */
struct nd_loss_values {
    size_t n_per_sample, n; /* n: of all samples */
    float *values, *errors; /* [n] in the order of the samples */
};

/* By output channel of a layer with weights: what the rounding of its constants adds. */
struct nd_loss_channels {
    size_t n, n_inner; /* elements of a channel that follow each other; n = 0: the layer has no weights */
    double *shift;     /* [n_samples][n] sums of the error of the constants */
};

/* By channel of a tensor in one sample: the one value that the quantised reference has there, NaN where it has
 * several; and the share of the float model's values that are not the least of them. */
struct nd_flat_channel {
    float value, moving;
};
struct nd_flat_channels {
    size_t n, n_inner;            /* n = 0: it has none, or too many */
    struct nd_flat_channel *flat; /* [n_samples][n] */
};

/* What float values look like. */
struct nd_value_facts {
    size_t n;                         /* values without the mask */
    float *sorted;                    /* [n], owned */
    double low, high;                 /* of these */
    double central_low, central_high; /* of 99.9 % of these */
    bool has_mask;
    double mask, mask_share;
    double noise_to_signal; /* error introduced over variance, of these; NaN without a value */
};

struct nd_study {
    const struct nd_plan *plan;
    size_t n_threads;
    size_t n_samples, n_effect_samples;
    size_t samples[ND_LOSS_SAMPLES];
    struct nd_array *inputs; /* [n_samples][n_inputs of model] */
    size_t n_inputs, n_float_inputs;
    size_t *float_tensor;              /* [n_steps] the same tensor of the float model, or SIZE_MAX */
    size_t *float_input;               /* [n_steps] the model's input that the step quantises, or SIZE_MAX */
    size_t *step_of_float;             /* [n_edges of float_model] the step of the same name, or SIZE_MAX */
    struct nd_loss_sums *sums;         /* [n_samples][n_steps] */
    struct nd_array *outputs;          /* [n_samples][n_steps] of the float model; empty but for its outputs */
    struct nd_packed *references;      /* [n_samples][n_steps] of the quantised model; NULL: there is no room */
    bool *has_reference;               /* [n_samples] it is there */
    bool holds_before;                 /* what was rounded of all steps at once, and not of one after another */
    struct nd_loss_values *values;     /* [n_steps] */
    struct nd_loss_channels *channels; /* [n_steps] */
    struct nd_flat_channels *flats;    /* [n_steps] */
    struct nd_byte_layers *layers;     /* of the quantised model, for trials; NULL: there are none */
    struct nd_pair *pairs;             /* [n_pairs] layers that could be equalised */
    size_t n_pairs;
    struct nd_quantisation *out;
};

static inline bool nd_is_matched(const struct nd_study *study, size_t step)
{
    return study->float_tensor[step] != SIZE_MAX || study->float_input[step] != SIZE_MAX;
}
static inline const struct nd_array *nd_study_inputs(const struct nd_study *study, size_t k)
{
    return study->inputs + k * study->n_inputs;
}
/* The quantiser that the model has there. */
struct nd_fit nd_fit_of_step(const struct nd_study *study, size_t step);

/* ---- losses.c: which part of a graph to run ---- */

/* Which tensors of a graph a run has to compute, when the tensors `changed` are. */
struct nd_rerun {
    bool *is_skipped; /* [n_edges] given and taken as it is */
    bool *is_ignored; /* [n_edges] nobody needs it */
    bool *is_below;   /* [n_edges] it depends on a changed one, or is one */
};
enum nd_status nd_rerun_init(struct nd_rerun *cut, const struct nd_model *model, struct nd_error *err);
void nd_rerun_deinit(struct nd_rerun *cut);
/* is_changed, is_given[n_edges]: tensors whose values are others than they were, and tensors whose values are
 * known. is_input_changed[n_inputs]: the same of the model's inputs; NULL: none. */
enum nd_status nd_rerun_make(struct nd_rerun *cut, const struct nd_model *model, const bool *is_changed,
                             const bool *is_given, const bool *is_input_changed, struct nd_error *err);
/* The same where the tensors `wanted` alone are, and nothing that depends on them is asked for. */
enum nd_status nd_rerun_alone(struct nd_rerun *cut, const struct nd_model *model, const bool *is_wanted,
                              const bool *is_given, struct nd_error *err);

/* ---- losses.c ---- */

/* One sample at work: what both models have in it. */
struct nd_loss_run {
    const struct nd_study *study;
    size_t sample; /* of study->samples */
    struct nd_packed
        *reference; /* [n_steps] quantised values or floats of the quantised reference; rank < 0: unknown */
    struct nd_packed *own_reference; /* [n_steps], where the study keeps none */
    struct nd_array real;            /* of one step: of nd_loss_real */
    struct nd_array *before;         /* [n_steps] what was rounded to it, in real units */
    double *before_room;             /* of one step, where the study holds no more; else NULL */
    struct nd_rerun alone;           /* of the quantised model, to run a step alone */
    struct nd_array *alone_given;    /* [n_edges of model] views, for the same */
    bool *is_alone,
        *is_alone_given;         /* [n_edges of model], for the same: the step's tensor; those that are known */
    struct nd_array *values;     /* [n_steps] of the float model */
    struct nd_array *introduced; /* [n_steps] error, where is_wanted; rank < 0 elsewhere */
    const bool *is_wanted;       /* [n_steps] or NULL: none */
    struct nd_loss_sums *sums;   /* [n_steps] of the sample; NULL: neither sums nor values are wanted */
    bool takes_outputs;          /* of the float model only its inputs and outputs: those of the study */
    struct nd_rerun cut;         /* of the float model, to run only what is wanted */
    bool *is_given, *is_asked;   /* [n_edges of float_model], for the same */
    struct nd_array *given;      /* [n_edges of float_model] views */
    struct nd_array *float_inputs; /* [n_float_inputs] views */
    struct nd_array *real_inputs;  /* [n_float_inputs] dequantised, owned; n = 0: none */
};
enum nd_status nd_loss_run_init(struct nd_loss_run *run, const struct nd_study *study, struct nd_error *err);
void nd_loss_run_deinit(struct nd_loss_run *run);
static inline const struct nd_quant *nd_loss_quant(const struct nd_loss_run *run, size_t step)
{
    return &nd_plan_tensor(run->study->plan, step)->quant;
}

/* The reference of a step, which is known, dequantised: until the next is asked for. */
const struct nd_array *nd_loss_real(struct nd_loss_run *run, size_t step);
/* The quantised reference and the float model; with_errors also the layers of the float model fed with the
 * reference's inputs: introduced and sums. */
enum nd_status nd_loss_run_sample(struct nd_loss_run *run, size_t sample, bool with_errors,
                                  struct nd_error *err);

/* out[n]: all elements before they are rounded, in real units. */
void nd_reals_before(const struct nd_exact_values *values, double *out);

/* ---- values.c ---- */

/* deinit accepts a zeroed one. ND_ERR_MEMORY. */
enum nd_status nd_loss_value_facts(const struct nd_loss_values *values, struct nd_value_facts *facts,
                                   struct nd_error *err);
void nd_value_facts_deinit(struct nd_value_facts *facts);

/* ---- cause.c ---- */

/* Fills what the layer says of itself, effect and remedies apart: of a layer that is known. */
enum nd_status nd_find_cause(const struct nd_study *study, size_t step, const struct nd_value_facts *facts,
                             struct nd_error *err);

/* Channels of a step that the quantised reference has as one value. */

enum nd_status nd_flat_channels_init(struct nd_study *study, size_t step, struct nd_error *err);
/* Fills n_constant_channels and constant_text of the layer, after all samples. */
enum nd_status nd_flat_channels_say(const struct nd_study *study, size_t step, struct nd_error *err);

/* ---- trials.c ---- */

/* Of the samples that were measured those in which effects and gains are. */
size_t nd_effect_sample(const struct nd_study *study, size_t k);

/* The effects of these layers on the outputs: effect_db, effect_share; and output_sqnr_db. */
enum nd_status nd_measure_effects(struct nd_study *study, const size_t *steps, size_t n_steps,
                                  struct nd_error *err);

/* A change of the quantised model: the quantiser of a step, or other values of a constant. */
struct nd_change {
    size_t step;
    bool is_range;
    struct nd_fit fit;             /* of a range */
    size_t tensor;                 /* of a constant: nd_exact_constant.tensor */
    const struct nd_array *values; /* borrowed */
};
/* Changes that are made together, and the SQNR of the outputs then; NaN: it could not be evaluated. */
struct nd_trial {
    const struct nd_change *changes;
    size_t n_changes;
    size_t watched; /* a step whose error is measured, too, as the changed layers alone make it of the float
                       model's values; SIZE_MAX: none */
    double sqnr_db;
    double watched_gain_db; /* by how much its error shrinks; NaN: not measured */
    size_t n_better;        /* samples in which the outputs are nearer to the float model's than without them */
};
enum nd_status nd_run_trials(struct nd_study *study, struct nd_trial *trials, size_t n_trials,
                             struct nd_error *err);

/* ---- whole.c ---- */

/* Remedies of all layers that they concern together. */
enum nd_status nd_find_whole_remedies(struct nd_study *study, struct nd_error *err);

/* Which layers more bits help: 16 bits for what a layer makes, or a scale for each channel of its weights. Of
 * all layers whose effect is measured; each change is made and measured at the outputs, as remedies are. */

/* One layer's change. */
struct nd_promotion {
    size_t step;
    enum nd_remedy_kind kind;        /* ND_REMEDY_16_BITS or ND_REMEDY_WEIGHT_CHANNELS */
    double effect_share;             /* of the layer's error, of the effects of all layers */
    const struct nd_change *changes; /* [n_changes], of the study */
    size_t n_changes;
};

struct nd_promotions;

/* The plan has a float model and samples, and is borrowed. *out is destroyed by the caller. ND_ERR_MEMORY, or
 * what reading inputs gives. */
enum nd_status nd_promotions_find(const struct nd_plan *plan, struct nd_promotions **out, struct nd_error *err);
void nd_promotions_destroy(struct nd_promotions **promotions);

/* sqnr_db[n]: of the outputs with these n_kept changes and with each one. NaN: it cannot be evaluated, or it
 * changes what one of the kept ones changes. */
enum nd_status nd_promotions_try(struct nd_promotions *promotions, const size_t *kept, size_t n_kept,
                                 double *sqnr_db, struct nd_error *err);

/* Weights, biases and ranges of a model in which some pairs of layers were equalised, quantised as before. */
struct nd_equalised {
    size_t n_changes, n_values, n_layers;
    struct nd_change *changes;
    struct nd_array *values; /* that the changes borrow */
    double least, most;      /* factors by which channels became smaller */
};

/* ---- remedies of layers while they are looked for ---- */

enum {
    ND_MAX_CANDIDATES = 16, /* of one layer: chosen, each is a run of the model */
    ND_MAX_TIED = 16,       /* tensors that only move the values of another one on */
};

/* A remedy with the changes that it is made of. */
struct nd_candidate {
    size_t step;
    struct nd_remedy remedy;
    struct nd_change changes[ND_MAX_TIED];
    struct nd_array values[ND_LOSS_CONSTANTS]; /* of changed constants */
    struct nd_equalised equalised;             /* of ND_REMEDY_EQUALISE: what the changes borrow */
    size_t n_changes;                          /* 0: it does not help */
    size_t watched; /* the step whose error own_gain_db is about, measured with the outputs; SIZE_MAX: it is
                       known already */
};

struct nd_search {
    struct nd_study *study;
    struct nd_candidate *candidates; /* room for ND_MAX_CANDIDATES of each layer */
    size_t n;
};

void nd_search_deinit(struct nd_search *search);

/* A study with its changes: study.out->output_sqnr_db is that of the outputs without them, NaN where it cannot
 * be measured. */
struct nd_promotions {
    struct nd_study study;
    struct nd_search search;
    struct nd_promotion *items; /* [n], in graph order */
    size_t n;
};

/* Adds what could help the layer: remedies with own_gain_db, not measured at the outputs. ND_ERR_MEMORY. */
enum nd_status nd_find_candidates(struct nd_search *search, size_t step, struct nd_error *err);

/* Adds that remedy of the layer, if it helps the tensor or the weights: ND_REMEDY_WEIGHT_CHANNELS,
 * ND_REMEDY_16_BITS, or ND_REMEDY_RANGE, which takes a mask constant out of the range. */
enum nd_status nd_find_candidate(struct nd_search *search, size_t step, enum nd_remedy_kind kind,
                                 struct nd_error *err);
