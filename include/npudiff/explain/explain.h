/* Explains why a device's values differ from those that the model defines: which part of the error is
 * quantisation, which part the device adds, and in which layer.
 *
 * An arithmetic is a rule that turns the exact result of a layer into quantised values. A step is a tensor that
 * a device computes: the output of a layer, a quantised graph input, or floats between layers.
 *
 * npudiff computes every layer of the model again, exactly, from the inputs that the layer had on the device.
 * This splits the error of every sample and layer, counted in steps of the quantised value:
 *
 *     total      = device - quantised reference
 *     introduced = device - the layer computed exactly from the device's own inputs
 *     passed on  = the layer computed exactly from the device's own inputs - quantised reference
 *
 * so that total = introduced + passed on in every element.
 *
 * Example:
 *
 *     static int print_health(const struct nd_model *model, const struct nd_capture *capture)
 *     {
 *         struct nd_explanation *explanation = NULL;
 *         struct nd_error err;
 *         if (nd_explain(model, NULL, &capture, 1, NULL, &explanation, &err) != ND_OK) {
 *             fprintf(stderr, "%s\n", err.message);
 *             return ND_EXIT_TROUBLE;
 *         }
 *         const struct nd_explained_device *device = &explanation->devices[0];
 *         printf("%s: %s\n", device->uri, nd_health_name(device->health));
 *         for (size_t i = 0; i < device->n_faulty; i++)
 *             printf("  %s\n", explanation->steps[device->faulty[i]].name);
 *         int exit_code = (int)nd_health_exit_code(explanation->health);
 *         nd_explanation_destroy(&explanation);
 *         return exit_code;
 *     }
 *
 * Stability: unstable. Until version 1.0 every minor version may change what is declared here; programs
 * that use it are compiled again. */
#ifndef NPUDIFF_EXPLAIN_H
#define NPUDIFF_EXPLAIN_H

#include "npudiff/capture/capture.h"
#include "npudiff/compare/compare.h"
#include "npudiff/core/interval.h"
#include "npudiff/model/model.h"
#include "npudiff/quantisation/quantisation.h"

#ifdef __cplusplus
extern "C" {
#endif

struct nd_explain_options {
    size_t struct_size;
    const char *probe; /* NULL: of the probes that all captures hold, the largest of the first capture */
    size_t n_samples;  /* only the first n_samples; 0: all samples that every device has */
    /* The effect of every layer on the outputs is measured in so many samples, evenly spaced. Each of these
     * samples costs one more run of the model for each layer. */
    size_t n_output_effect_samples;
    /* Reports how many samples are done. Only the calling thread calls it. NULL: no reports. */
    void (*progress)(void *context, size_t n_done, size_t n_samples);
    void *progress_context;
    /* Captures of the unchanged model (`capture --tensors none`, or outputs only) on the same devices, matched
     * by URI. They show whether the outputs change when intermediate tensors are made visible. May be none. */
    const struct nd_capture *const *untouched;
    size_t n_untouched;
    size_t n_threads;    /* 0: as many as the process may use; the result does not depend on it */
    size_t memory_bytes; /* threads, samples at a time and constants of the models are as many as fit; one
                            sample, and the constants of one layer for each thread, are always held. 0: 1 GiB.
                            The result does not depend on it */
    /* Asked after every sample, by any thread: true ends the work with ND_E_CANCELLED. NULL: never. */
    bool (*is_cancelled)(void *context);
    void *cancel_context;
    bool hides_placement; /* do not use the placement that the captures state: judge by values and times where
                             each layer ran */
    bool is_strict; /* a layer whose arithmetic is not known is unexplained, also where it is within one LSB */
    bool omits_quantisation; /* nd_explanation.quantisation stays NULL: it costs some runs of both models for
                                each of a few samples */
    /* Several machines may share the work: nd_explain_part evaluates part `part` of `n_parts` (from 0) of the
     * samples. `merge` are the files of all parts, which nd_explain takes in place of evaluating. Both
     * borrowed; n_merge 0: there are none. docs/science/theory.md#parts */
    size_t part, n_parts;
    const char *const *merge;
    size_t n_merge;
};

/* The verdict on a device, from best to worst. Several devices together have the worst of their verdicts. */
enum nd_health {
    ND_HEALTH_HEALTHY,      /* every layer follows known arithmetic, however much of the error is the chip's, or
                               is within one LSB of exact rounding where its arithmetic is not known */
    ND_HEALTH_INCONCLUSIVE, /* every examined layer follows known arithmetic, but not all could be examined */
    ND_HEALTH_UNEXPLAINED,  /* a layer does not follow known arithmetic, but there is no evidence of a fault */
    ND_HEALTH_FAULTY,       /* some layer has a fault */
    ND_HEALTH_FAILED,       /* the device failed: it has no values */
};
/* "healthy", "inconclusive", "unexplained", "faulty", "failed". Static storage. */
ND_PUBLIC const char *nd_health_name(enum nd_health health);
/* healthy 0, faulty and unexplained 1, inconclusive 4, failed 5. */
ND_PUBLIC enum nd_exit nd_health_exit_code(enum nd_health health);

/* How a layer's values, given the inputs that the layer had on the device, are explained. */
enum nd_layer_state {
    ND_LAYER_NOT_EXAMINED, /* why_not says why */
    ND_LAYER_FOLLOWS,      /* known arithmetic gives them: why_follows says which */
    ND_LAYER_WITHIN_LSB,   /* its arithmetic is not known; its values are off exact rounding by at most one LSB,
                              and by no bias: a sign test */
    ND_LAYER_UNEXPLAINED,  /* known arithmetic does not give them, no fault predicts them, and the error is
                              small enough to come from arithmetic that npudiff does not know */
    ND_LAYER_FAULTY,       /* a fault predicts them, or the error is too large for any rounding */
};
/* "not-examined", "follows", "within-1-lsb", "unexplained", "faulty". Static storage. */
ND_PUBLIC const char *nd_layer_state_name(enum nd_layer_state state);

/* How sure it is what makes the values of a faulty or unexplained layer (docs/reference/verdicts.md). */
enum nd_certainty {
    ND_CERTAINTY_NONE,    /* the layer is neither, or nobody looked for a cause */
    ND_CERTAINTY_PROVEN,  /* the fault predicts every wrong value, or no rounding makes the error */
    ND_CERTAINTY_LIKELY,  /* it predicts nearly all, or a different fault explains the values as well, or only
                             the size of the error speaks for a fault */
    ND_CERTAINTY_GUESS,   /* of an unexplained layer: it resembles the fault, which is not proven */
    ND_CERTAINTY_UNKNOWN, /* of an unexplained layer: no known fault predicts the values */
};
/* "proven", "likely", "guess", "unknown"; NULL for ND_CERTAINTY_NONE. Static storage. */
ND_PUBLIC const char *nd_certainty_name(enum nd_certainty certainty);

/* Where a layer, or a whole run, was computed, according to the evidence. */
enum nd_execution {
    ND_EXECUTION_UNKNOWN,
    ND_EXECUTION_NPU,
    ND_EXECUTION_NOT_NPU,
    ND_EXECUTION_PARTLY, /* only of a run: some layers on the NPU, some not */
};
/* "unknown", "npu", "not-npu", "partly". Static storage. */
ND_PUBLIC const char *nd_execution_name(enum nd_execution execution);

/* Evidence on where a layer, or a run, was computed. The kinds of evidence on a layer:
 *
 *     bit-equal         its values are those of float arithmetic, except at ties, and an NPU's would differ
 *     fixed-point       float arithmetic does not give its values
 *     arithmetic        the run follows an arithmetic such as htp-v73: this layer's values are those of the
 *                       arithmetic, or those of exact rounding. Takes the place of the two kinds above
 *     off-fp16-grid     its floats use full precision
 *     fp16-grid         all its floats are half-precision numbers
 *     fp16-arithmetic   all its floats are half-precision numbers, but they are not its exact results rounded
 *                       to half precision once
 *     neighbours        where the other layers of the run were computed
 *     placement         what the capture's placement says
 *
 * The kinds of evidence on a run:
 *
 *     layers             the sum over its layers
 *     whole-run-cpu     the run is said to be an NPU's, but no layer shows NPU arithmetic
 *     latency-modes     runs have two speeds, or slow runs have different values
 *     accurate-and-slow the error is smaller than in comparable runs, but the time is longer
 *     placement         what the capture's placement says */
struct nd_execution_evidence {
    const char *kind; /* static */
    bool is_for_npu;
    double weight; /* bits: the base 2 logarithm of a likelihood ratio, > 0, at most 20
                      (docs/science/fallback.md) */
    char *text;
};

/* The verdict follows the sum of the evidence when that is 6.65 bits (a hundred to one) or more. It is unknown
 * when the sum is smaller. It is also unknown, with is_contradictory set, when the weaker side has at least
 * 6.65 bits and more than half the weight of the stronger side. */
struct nd_explained_execution {
    enum nd_execution verdict;
    bool is_contradictory; /* both sides have 6.65 bits or more */
    double balance;        /* bits for the NPU minus bits against it */
    size_t n_evidence;
    struct nd_execution_evidence *evidence; /* [n_evidence] */
    const char *why_unknown;                /* static; set only when there is no evidence at all */
    /* Only of a layer with quantised values. n_deciding: quantised values whose exact value is neither whole
     * nor clipped, so that the arithmetic decides them. n_off: quantised values that differ from
     * round-half-to-even. n_far: quantised values among n_off whose exact value is not next to a tie. */
    uint64_t n_deciding, n_off, n_far;
    /* Only of a run: its layers by verdict; whether the capture says that an NPU made it. */
    size_t n_npu, n_not_npu, n_unknown;
    bool is_called_npu;
};

/* Differences of quantised values. */
struct nd_explained_part {
    uint64_t n_differing; /* quantised values */
    double max;           /* largest magnitude, in steps */
    double mean;          /* signed, over all quantised values; NaN without quantised values */
    double mean_square;   /* mean square in steps^2; NaN without quantised values */
};

/* The error against the float reference, e = q + d: q the quantisation error, d the divergence, in steps of the
 * tensor (of the channel). Means over all elements. */
struct nd_decomposition {
    uint64_t n_qvalues;
    double signal;       /* mean square of the float reference */
    double quantisation; /* mean square of q */
    double divergence;   /* mean square of d */
    double interaction;  /* 2 times the mean of q d. The three add up to the mean square of e */
    double correlation;  /* of q and d, without removing means: -1 .. 1; NaN when q or d is zero everywhere */
    double bias;         /* mean of d */
    double sqnr_db;      /* signal over quantisation mean squared error */
    double noise_figure_db; /* mean squared error of e over mean squared error of q */
    /* Clipped elements: their float reference lies more than half a step outside the range of the quantised
     * values. The two shares are parts of quantisation and divergence above. The rest of those two is rounding.
     */
    uint64_t n_clipped;
    double clipped_quantisation, clipped_divergence;
};

/* One tensor that the model computes, in graph order. */
struct nd_explained_step {
    char *name;
    char *op_types;
    size_t tensor;  /* of the model */
    bool is_layer;  /* else the quantisation of an input, or floats */
    bool is_double; /* evaluated in double precision: exact except for values next to a tie */
    bool is_model_output;
    bool has_float; /* the float model has this tensor, too, and it can be evaluated */
    /* The step whose operator cannot be evaluated and whose values nobody captured, so that the quantised
     * reference is not known here: this step or a step that it depends on. SIZE_MAX: the reference is known. */
    size_t unreached_from;
    /* The device whose values stand for the reference of a step that cannot be evaluated: the steps behind it
     * are judged as if these values were right. A CPU's where there is one, else those of the first device that
     * has them. SIZE_MAX: the step is evaluated, or nobody has values of it. */
    size_t substituted_from;
    bool lacks_float; /* the float model has this tensor, but it cannot be evaluated */
    size_t n_inputs;
    size_t *inputs; /* [n_inputs]: the steps that the layer reads */
};

/* What is wrong with a layer, according to its quantised values. */
struct nd_explained_fault {
    const char
        *kind;  /* "channel-scale", "stale", ... (docs/reference/diagnoses.md); NULL: none was found. Static */
    char *text; /* says it in words */
    size_t channel;    /* SIZE_MAX: all */
    double amount;     /* its meaning depends on the kind */
    double explained;  /* share of the wrong quantised values that this fault predicts */
    const char *rival; /* a different kind that predicts as many, or NULL. Static */
};

/* A capture describes a tensor wrongly, or its values look wrong whatever the layer does. Quantised values are
 * judged with the model's scale and zero point, not with those that the capture states, and `verdict` does not
 * depend on findings. fault.kind, with the meaning of fault.amount in brackets:
 *
 *     scale, channel-scale             the scale is not the model's [capture's scale / model's scale]
 *     zero-point, channel-zero-point,
 *     offset-256, offset-sign          the zero point is not the model's [capture's minus model's]
 *     scale-and-zero-point             both differ, alike in all channels [capture's scale / model's scale]
 *     wrong-type                       the capture says signed and the model unsigned, or the reverse, but the
 *                                      bits are the model's quantised values; the step is not examined [0]
 *     off-grid                         floats that stand for no code: computed in floats [their share]
 *     fp16-grid, bf16-grid             all floats are numbers of that type, but the reference's are not [0]
 *     same-code-other-float            two devices have the same quantised value but slightly different floats
 * [largest difference, in steps] saturation                       at least 1 % of the quantised values are at
 * one end of the type although the reference is well inside, and 5 times as many as in the reference [the end]
 *     constant, all-zero               all quantised values are equal, but the reference's are not [that
 * quantised value] not-a-number                     exact values that are not numbers: they are not judged
 * [their share] truncation, stale, wrap, ...     further faults of floats: docs/reference/diagnoses.md
 *
 * The reference is that of the first 4 samples. fault.explained is NaN where no other reading of the values
 * makes the quantised values right. */
struct nd_explained_finding {
    size_t step;
    struct nd_explained_fault fault;
};

/* A layer of a float model on one device: its values beside those that double precision gives from the inputs
 * that the layer had on the device. Errors are in units in the last place (ULP) of the device's arithmetic, at
 * the exact value; the four relative numbers are root mean squares over that of the reference's values. */
struct nd_explained_floats {
    uint64_t n;         /* values that were compared; 0: none, the rest means nothing */
    int digits;         /* of the arithmetic: 8 bfloat16, 11 half precision, 24 float32; 0: whole numbers, which
                           are the operator's or not (max_ulp: the largest difference) */
    uint64_t n_rounded; /* the exact result, rounded once */
    uint64_t n_beyond;  /* further off than rounding explains (docs/science/theory.md#floats) */
    uint64_t n_flushed; /* 0 in place of a number that the type can hold */
    uint64_t n_lost;    /* infinite or not a number, where the exact value fits in the type */
    uint64_t n_overflown; /* exact values that do not fit in the type: they are not judged */
    double max_ulp, mean_ulp;
    double worst;                        /* the largest error, as a multiple of its bound */
    double introduced, passed_on, total; /* relative; NaN without a reference */
    double effect; /* relative change of the outputs by this layer's own error alone; NaN when not measured */
};

/* "bfloat16", "float16", "float32", "integer". Static. */
ND_PUBLIC const char *nd_float_type_name(int digits);

/* What is said of a layer (docs/reference/verdicts.md). */
struct nd_judgement {
    enum nd_layer_state state;
    /* ND_LAYER_FOLLOWS: "exact" (no value differs), "arithmetic" (that of `arithmetic`), "float-rounding",
     * "noise", "fused", "forced-encoding", "rounded-twice", "made-inputs" (an input was recorded wrongly),
     * "unread" (its record has a known defect, and nothing reads it).
     * Static. */
    const char *why_follows;
    char *follows_text; /* a sentence for the last six, and for some others, also of layers that an encoding
                           which the provider forces does not explain; else NULL */
    bool is_noise;      /* ND_LAYER_UNEXPLAINED: its inputs differ from run to run: not examined further */
    /* ND_LAYER_FAULTY, ND_LAYER_UNEXPLAINED and ND_LAYER_WITHIN_LSB: "the fault predicts every wrong value; in
     * this layer alone 58% of the values are wrong, by up to 212 LSB". */
    char *evidence;
    enum nd_certainty certainty; /* of the fault, or of what an unexplained layer resembles */
    /* ND_LAYER_FAULTY: the fault; kind NULL means an error too large for rounding, of no known kind.
     * ND_LAYER_UNEXPLAINED: the fault that it resembles; kind NULL means none. */
    struct nd_explained_fault fault;
    char *known_defect; /* of a faulty or unexplained layer that an SDK is known to compute wrongly: "a
                           known defect of QAIRT 2.51.0 ...: ..."; else NULL */
    const char *remedy; /* what to do about the known defect, a sentence. Static */
};

/* One step on one device. What does not apply is 0 (counts) or NaN. */
struct nd_explained_layer {
    bool is_examined;
    bool is_left;   /* it was evaluated, and not examined all the same: what it should be may be no number */
    char *why_not;  /* "not captured", ...; NULL when it was examined */
    bool has_total; /* its quantised values were captured and there is a reference: total is known. If it was
                       examined, passed on is known, too */
    bool is_source; /* it has local mismatches, and no step that it depends on has any */
    /* Its local mismatches are 1 quantised value each, and float arithmetic makes such mismatches: on a device
     * that rounds plainly everywhere, or in less than 1 % of the quantised values of a layer that is evaluated
     * in double precision. They are no evidence against the device, and the step is never a source. */
    bool is_within_step;
    struct nd_judgement judgement;
    uint64_t n_qvalues;
    uint64_t n_nan; /* exact values that are not numbers (0 / 0, the root of a negative number): what a device
                       makes of them is not defined, and is not judged */
    struct nd_explained_part introduced, passed_on, total;
    uint64_t n_violations; /* elements where total is not local + passed on; always 0 */
    /* The arithmetics that give all of its quantised values (docs/science/theory.md#arithmetics: half-even,
     * floor, double:8 ...; on a device with one also htp-v73 ...). All arithmetics do, if no value of the layer
     * has to be rounded. */
    size_t n_arithmetics;
    char **arithmetics;
    char *arithmetic; /* the device's arithmetic for layers of this kind, or NULL: not known */
    bool is_covered;  /* the device has an arithmetic such as htp-v73, and the arithmetic predicts this layer's
                         quantised values.  If false, and arithmetic is NULL, n_unexplained is no evidence of a
                         fault */
    /* Quantised values that differ from the device's arithmetic or, where that is not known, from the best
     * arithmetic. Of an unexplained layer never 0: where the best arithmetic is one that the device has nowhere
     * else, quantised values that are not exact. */
    uint64_t n_unexplained;
    double explained_fraction; /* share of the local mismatches that the best arithmetic gives; 1 without any */
    /* The effect of this layer's introduced error alone: it is added to the quantised reference, and the rest
     * of the model is computed from there. harm: mean square of the change at the model's outputs, in steps^2;
     * harmed_share: share of the output quantised values that change. NaN where that was not measured, or where
     * the outputs it can reach have no reference. */
    double effect, harmed_share;
    double amplification; /* passed on mean squared error divided by the total mean squared error of the layer's
                    inputs; NaN if that is 0 */
    struct nd_decomposition quality;         /* n_codes = 0 without a float reference */
    struct nd_explained_execution execution; /* of layers only, not of inputs and their quantisers */
    struct nd_explained_floats floats;       /* only of a model without quantisation */
    /* Only of a layer that follows known arithmetic, when all its n_ties values that differ from exact rounding
     * lie on ties: the rule that gives them, "half up", "half away from zero", ... Else NULL. Static. */
    const char *tie_rule;
    uint64_t n_ties;
};

/* a majority at the outputs, element by element: the quantised value that most groups of devices have. Devices
 * with the same quantised values everywhere are one group ("group of identical devices") with one vote. There
 * is no result with fewer than 3 groups, or when the commonest quantised value is less than 2 votes ahead of
 * the next, on average over the elements on which the groups differ. The majority may be wrong:
 * common_divergence shows that. */
struct nd_explained_majority {
    bool is_known;
    char *why_not; /* NULL when it is known */
    size_t n_groups;
    double split_share;       /* share of the elements on which groups of identical devices differ */
    double margin;            /* votes that the commonest quantised value is ahead there, on average */
    double common_divergence; /* mean square of vote minus quantised reference, in steps^2 */
};

/* Whether the outputs change when intermediate tensors are made visible: as the capture says, or as a run of
 * the untouched model shows that was given. */
struct nd_explained_observer {
    size_t n_samples; /* number of samples that were compared; 0: not known */
    size_t n_changed; /* samples whose outputs changed: then the captured intermediate tensors are those of a
                         different graph than the one that ships */
    char *differs;    /* a line for each output that the capture itself found changed: name, tab, in how many
                         values and    samples, and by how much; NULL: none, or only a run that was given to
                         compare    with says it */
};

struct nd_explained_device {
    size_t same_as;    /* the first device with the same quantised value everywhere; may be the device itself */
    char *uri;         /* "cpu", "htp-sim:sm8650"; "?" when the capture does not say */
    char *label;       /* what people call it: unique in the explanation */
    char *environment; /* "QAIRT 2.51.0, simulator"; "" when the capture does not say */
    char *chipset;
    char *capture;
    char *failure;           /* the device's error message if it failed, or NULL */
    enum nd_health health;   /* the verdict */
    enum nd_verdict verdict; /* the device against exact rounding. same: no local mismatch; within: only
                                mismatches with is_within_step; differs; inconclusive: no mismatch, but some
                                steps were not examined; failed */
    struct nd_explained_observer observer;
    size_t n_findings;
    struct nd_explained_finding *findings; /* [n_findings] in order of steps */
    size_t n_examined, n_not_examined;     /* steps */
    size_t n_sources;
    size_t *sources; /* [n_sources] steps in graph order */
    /* Steps by state, the one with the greatest effect on the outputs first. */
    size_t n_faulty, n_unexplained;
    size_t *faulty;                /* [n_faulty] */
    size_t *unexplained;           /* [n_unexplained] */
    size_t n_follow, n_within_lsb; /* steps of state ND_LAYER_FOLLOWS, and ND_LAYER_WITHIN_LSB */
    const char *expected; /* the arithmetic that the capture's chipset should have: "v69", "v73", "float"; NULL
                             where the capture names no chipset. Static */
    bool is_refuted;      /* its values plainly follow a different arithmetic */
    char *arithmetic;     /* the arithmetic that most of its layers follow, or NULL: not known */
    size_t n_arithmetics; /* if arithmetic is one of whole layers such as htp-v73: it, and all arithmetics that
                          these layers cannot tell from it. Else 0 */
    char **arithmetics;   /* [n_programs], arithmetic first */
    size_t n_losses;
    size_t
        *losses; /* [n_losses] steps that follow such an arithmetic and are wrong by 10 steps or more for it */
    struct nd_explained_layer *layers; /* [n_steps] */
    /* Over the model outputs; n_codes = 0 without a float reference or without their quantised values. */
    struct nd_decomposition output;
    /* The device's own share of the error at the outputs: own / (own + common), both mean squares. own is the
     * device's difference from the majority and common the error of the majority; without a majority they are
     * divergence and quantisation. NaN when unknown or 0 / 0. */
    double own_share;
    struct nd_interval own_share_interval, quantisation_interval, divergence_interval, interaction_interval;
    struct nd_explained_execution execution; /* of the whole run */
    double float_error; /* of a float model: relative error of the outputs; NaN when not known */
};

/* A way in which the arithmetic of two devices differs. Texts are static. */
struct nd_explained_reason {
    const char *name;     /* "zero-point", "multiplier-bits", "half-granule", "bias", "product-rounding" */
    const char *texts[2]; /* what each device does: "keeps 10 bits of the multiplier" */
    char *op_types;       /* operators of the layers that are concerned: "Conv, Gemm" */
};

/* Why two devices differ that follow two different arithmetics such as htp-v69 and htp-v73. Counts are of
 * quantised values on which the two arithmetics differ, given the inputs that the layers had on the first
 * device. */
struct nd_explained_difference {
    size_t devices[2];
    const char *arithmetics[2]; /* borrowed from the devices */
    size_t n_because;
    struct nd_explained_reason *because; /* [n_because] */
    size_t n_layers;                     /* layers in which quantised values differ */
    char *op_types;                      /* their operators: "Conv, Gemm, MatMul" */
    uint64_t n_differing, n_qvalues;     /* in all layers with these operators */
};

struct nd_explanation {
    enum nd_health health;   /* the worst of the devices' */
    enum nd_verdict verdict; /* the worst of the devices' */
    char *model;
    char *model_sha256;
    char *float_model; /* NULL without one */
    char *probe;
    char *probe_source; /* as a command takes it: "uniform:8:1", "digits=test.npz"; NULL: not known */
    size_t n_samples;
    size_t n_output_effect_samples; /* samples in which harm was measured */
    struct nd_explained_majority majority;
    size_t n_steps, n_devices;
    struct nd_explained_step *steps;
    struct nd_explained_device *devices;
    size_t n_differences;
    struct nd_explained_difference
        *differences; /* [n_differences] one per pair of devices whose arithmetics differ */
    struct nd_quantisation
        *quantisation; /* what the quantisation costs, by layer; NULL without a float model */
};

/* Explains captures of the model. float_model may be NULL. All dimensions must be fixed, and quantised values
 * have at most 32 bits. Errors: ND_ERR_NOT_COMPARABLE when a capture is of a different model (by SHA-256), the
 * captures have different inputs, or the float model takes different inputs; ND_ERR_NOT_FOUND when no device
 * succeeded whose capture holds the probe; ND_ERR_UNSUPPORTED when dimensions are not fixed; ND_ERR_FORMAT,
 * ND_ERR_IO, ND_ERR_MEMORY. An operator that cannot be evaluated is no error: its layer is not examined, and
 * the tensors after it have no reference (unreached_from). Nor is a device that failed. Memory: about 150 bytes
 * per sample, device and step. With options->merge also ND_E_EXPLAIN_PART. Thread-safe. The caller destroys
 * *out, which borrows nothing. */
ND_PUBLIC enum nd_status nd_explain(const struct nd_model *model, const struct nd_model *float_model,
                                    const struct nd_capture *const *captures, size_t n_captures,
                                    const struct nd_explain_options *options, struct nd_explanation **out,
                                    struct nd_error *err);

/* Evaluates the samples of part options->part of options->n_parts (0 <= part < n_parts <= 65536), and gives the
 * text (JSON) of the part in new memory. The text of a part is for nd_explain of the same version, models,
 * captures, probe and numbers of samples; threads and memory may differ. The merged explanation is then, in
 * every bit, that of one run. Errors are those of nd_explain. ND_ERR_USAGE: there is no such part.
 * Memory: options->memory_bytes, and about 500 bytes per sample of the part, device and step. Thread-safe. */
ND_PUBLIC enum nd_status nd_explain_part(const struct nd_model *model, const struct nd_model *float_model,
                                         const struct nd_capture *const *captures, size_t n_captures,
                                         const struct nd_explain_options *options, char **out,
                                         struct nd_error *err);

/* Frees it and sets *explanation to NULL; NULL in *explanation is accepted. */
ND_PUBLIC void nd_explanation_destroy(struct nd_explanation **explanation);

/* Names the faults behind the differences of a comparison, without the model: why devices differ from the
 * reference, why runs of one device differ from each other, and how errors grow from tensor to tensor. Fills
 * `diagnoses` and `depths` of the comparison, which must be of these captures. Reads at most 16 samples of each
 * of the first 128 tensors of a device that differ, and of up to eight related tensors for each. The verdict
 * does not change. docs/reference/diagnoses.md has every kind and its criterion. Errors: those of
 * nd_capture_read_outputs, ND_ERR_MEMORY. Call it once per comparison. */
ND_PUBLIC enum nd_status nd_diagnose_comparison(struct nd_comparison *comparison,
                                                const struct nd_capture *const *captures, struct nd_error *err);

/* What nd_identify_captures found: nd_report_explanation_json and nd_report_explanation_text write it. */
struct nd_identification;

struct nd_identify_options {
    size_t struct_size;
    const char *probe; /* NULL: all that a capture holds */
    size_t n_samples;  /* the first ones of every probe; 0: 32 */
    size_t n_threads;  /* 0: as many as the process may use; the result does not depend on it */
};

/* Finds which known programs (rounding, multiplier bits, granules, accumulators, floats, chance) could have
 * made the captured quantised values. It excludes arithmetics and never guesses: the answer is the set that
 * remains. Every layer is computed from the quantised values that the device itself had as inputs.
 * nd_report_explanation_json says what is written of it. The caller destroys *out.
 *
 * Errors are those of nd_explain, but captures need not have the same inputs. A device that failed is an entry.
 * Memory: some 10 kB per thread and step. */
ND_PUBLIC enum nd_status nd_identify_captures(const struct nd_model *model,
                                              const struct nd_capture *const *captures, size_t n_captures,
                                              const struct nd_identify_options *options,
                                              struct nd_identification **out, struct nd_error *err);
/* Frees it and sets *identification to NULL; NULL in *identification is accepted. */
ND_PUBLIC void nd_identification_destroy(struct nd_identification **identification);

#ifdef __cplusplus
}
#endif
#endif
