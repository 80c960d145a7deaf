/* Why captures of a quantised model differ from what the model says: which part of the error is
 * quantisation, which part the device adds, and in which layer.
 *
 * npudiff computes every unit of the model again, exactly, from the inputs that the unit had on the device.
 * This splits the error of every sample and unit, in codes:
 *
 *     total     = device - quantised reference
 *     local     = device - the unit computed exactly from the device's own inputs
 *     inherited = the unit computed exactly from the device's own inputs - quantised reference
 *
 * so that total = local + inherited in every element. A step is an edge that a device computes: a unit, the
 * quantisation of a graph input, or floats between units.
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

#include "npudiff/capture.h"
#include "npudiff/compare.h"
#include "npudiff/model.h"

#ifdef __cplusplus
extern "C" {
#endif

struct nd_explain_options {
    size_t struct_size;
    const char *probe; /* NULL: the largest of the first capture that all hold */
    size_t n_samples;  /* the first ones only; 0: all that every device has */
    size_t
        n_harm_samples; /* evenly spaced ones in which every unit's harm is measured: a run of the model each */
    /* Called now and then, by the calling thread alone, with how many samples are done. NULL: never. */
    void (*progress)(void *context, size_t n_done, size_t n_samples);
    void *progress_context;
    /* Captures of the untouched model (`--edges none`, or outputs only) on the same devices (by URI): whether
     * making intermediates visible changes the outputs. May be none. */
    const struct nd_capture *const *untouched;
    size_t n_untouched;
    size_t n_threads;     /* 0: as many as the process may use; the result does not depend on it */
    bool hides_placement; /* where things ran is judged by values and times alone: what the captures' own
                             placement says is no evidence */
};

/* What a device's values say of its layers, from best to worst: the worst of several devices wins. */
enum nd_health {
    ND_HEALTH_HEALTHY,      /* every layer follows known arithmetic, however much of the error is the chip's */
    ND_HEALTH_INCONCLUSIVE, /* no layer does anything else, but not every layer could be examined */
    ND_HEALTH_UNEXPLAINED,  /* some layer does not follow known arithmetic, and nothing says that it is a fault
                             */
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
    ND_LAYER_UNEXPLAINED,  /* known arithmetic does not give them; no fault predicts them, and they are not
                              further  off than some unknown arithmetic may be */
    ND_LAYER_FAULTY,       /* a fault predicts them, or the error is one that no rounding can make */
};
/* "not-examined", "follows", "unexplained", "faulty". Static storage. */
ND_PUBLIC const char *nd_layer_state_name(enum nd_layer_state state);

/* Where something was computed, as far as evidence tells. */
enum nd_execution {
    ND_EXECUTION_UNKNOWN,
    ND_EXECUTION_NPU,
    ND_EXECUTION_NOT_NPU,
    ND_EXECUTION_PARTLY, /* of a run: both, in its units */
};
/* "unknown", "npu", "not-npu", "partly". Static storage. */
ND_PUBLIC const char *nd_execution_name(enum nd_execution execution);

/* Evidence on where a unit was computed, or a run. kind, of a unit:
 *
 *     bit-equal         its codes are those of float arithmetic, but for ties, where an NPU's would not be
 *     fixed-point       codes that float arithmetic does not give
 *     program           where the run has a program of whole units (htp-v73): its codes, or those of exact
 *                       rounding where it has others; then neither of the two above
 *     off-fp16-grid     floats of full precision
 *     fp16-grid         floats that all are numbers of half precision
 *     fp16-arithmetic   on that grid, but not what its own inputs give when they are rounded to it once
 *     neighbours        where the other units of the run were computed
 *     placement         what the capture's placement says
 *
 * and of a run:
 *
 *     units             the sum of its units
 *     whole-run-cpu     a run that calls itself an NPU's, of which none computed anything that tells
 *     latency-modes     runs of two speeds, or slow ones with other bits
 *     accurate-and-slow smaller error than its siblings, but more time
 *     placement         what the capture's placement says */
struct nd_execution_evidence {
    const char *kind; /* static */
    bool is_for_npu;
    double weight; /* bits: the base 2 logarithm of a likelihood ratio, > 0, at most 20
                      (docs/science/fallback.md) */
    char *text;
};

/* The verdict: what the sum of the evidence says, where that is 6.65 bits (a hundred to one) or more; unknown
 * below, and where the lesser side has more than half the weight of the other and as much as 6.65 bits itself:
 * then is_contradictory. */
struct nd_explained_execution {
    enum nd_execution verdict;
    bool is_contradictory; /* both sides have 6.65 bits or more */
    double balance;        /* bits for the NPU, less those against it */
    size_t n_evidence;
    struct nd_execution_evidence *evidence; /* [n_evidence] */
    const char *why_unknown;                /* static; NULL unless nothing could tell */
    /* Of a unit with codes: those that the arithmetic decides (not whole, not clipped), those that are not what
     * round half to even gives, and those of them that are not next to a tie. */
    uint64_t n_deciding, n_off, n_far;
    /* Of a run: its units by verdict; whether it calls itself an NPU's. */
    size_t n_npu, n_not_npu, n_unknown;
    bool is_called_npu;
};

/* Differences of codes. */
struct nd_explained_part {
    uint64_t n_differing; /* codes */
    double max;           /* largest magnitude, in steps */
    double mean;          /* signed, over all codes; NaN without codes */
    double energy;        /* mean square in steps^2; NaN without codes */
};

/* The error against the float reference, e = q + d: q the quantisation error, d the divergence, in steps of the
 * edge (of the channel). Means over all elements. */
struct nd_decomposition {
    uint64_t n_codes;
    double signal;          /* mean square of the float reference */
    double quantisation;    /* of q */
    double divergence;      /* of d */
    double interaction;     /* 2 times the mean of q d; the three sum up to the energy of e */
    double correlation;     /* of q and d about zero: -1 .. 1; NaN when one of them is zero everywhere */
    double bias;            /* mean of d */
    double sqnr_db;         /* signal over quantisation energy */
    double noise_figure_db; /* energy of e over that of q */
    /* Clipping apart: elements of which the float reference lies more than half a step beyond the codes, and
     * what they have of the quantisation and of the divergence above. What is left is rounding. */
    uint64_t n_clipped;
    double clipped_quantisation, clipped_divergence;
};

/* 95 % by percentiles of 2000 bootstrap draws over samples; NaN with fewer than two samples. */
struct nd_interval {
    double low, high;
};

/* One edge that the model computes, in graph order. */
struct nd_explained_step {
    char *name;
    char *op_types;
    size_t edge;    /* of the model */
    bool is_unit;   /* else the quantisation of an input, or floats */
    bool is_double; /* evaluated in double precision: exact but for values next to a tie */
    bool is_model_output;
    bool has_float; /* the float model has it, too, and can be evaluated so far */
    /* The step from which on the quantised reference is not known, as its operator cannot be evaluated: this
     * one or one that it depends on; SIZE_MAX: the reference is known. */
    size_t unreached_from;
    bool lacks_float; /* the float model has it, but cannot be evaluated so far */
};

/* What is wrong with a unit, as far as its codes tell. */
struct nd_explained_fault {
    const char *kind;  /* "channel-scale", "stale", ... (doctor/doctor.h); NULL: none was found. Static */
    char *text;        /* says it in words */
    size_t channel;    /* SIZE_MAX: all */
    double amount;     /* what it is depends on the kind */
    double explained;  /* share of the codes that were wrong and are right under it */
    const char *rival; /* another kind that explains as much, or NULL. Static */
};

/* What is wrong with what a capture says of an edge, whatever its codes are: it puts the rest in doubt. Codes
 * are judged with the model's quantisation, whichever the capture states, and `verdict` does not depend on
 * this. fault.kind, and in brackets fault.amount:
 *
 *     scale, channel-scale             another scale than the model's [the capture's over the model's]
 *     zero-point, channel-zero-point,
 *     offset-256, offset-sign          another zero point [the capture's less the model's]
 *     scale-and-zero-point             both, all channels alike [the capture's scale over the model's]
 *     wrong-type                       signed where the model is unsigned or the reverse, but the bits are the
 *                                      model's codes; the step is not examined [0]
 *     off-grid                         floats that are no codes: computed in floats [their share]
 *     fp16-grid, bf16-grid             floats that all are numbers of that type, as the reference's are not [0]
 *     same-code-other-float            floats near codes that an earlier device has otherwise for the same
 *                                      codes [by at most how many steps]
 *     saturation                       1 % of the codes or more are at an end of the type where the reference
 *                                      is well inside, 5 times as many as its own [the end]
 *     constant, all-zero               every code is the same, as the reference's are not [that code]
 *     truncation, stale, wrap, ...     what else the values of floats show: docs/reference/diagnoses.md
 *
 * References are those of the first 4 samples. fault.explained is NaN where no other reading makes codes right.
 */
struct nd_explained_finding {
    size_t step;
    struct nd_explained_fault fault;
};

/* One step on one device. What does not apply is 0 (counts) or NaN. */
struct nd_explained_unit {
    bool is_examined;
    char *why_not;  /* "not captured", ...; NULL when it was examined */
    bool has_total; /* its codes were captured and there is a reference: total is known, and of an examined one
                       inherited */
    bool is_source; /* has local mismatches, and no step that it depends on has */
    /* Its only local mismatches are single steps that arithmetic in floats makes: those of a device that rounds
     * plainly and does so everywhere, or less than 1 % of the codes of a unit that is evaluated in double
     * precision. No evidence against the device; never a source. */
    bool is_within_step;
    /* The judgement (docs/reference/verdicts.md). */
    enum nd_layer_state state;
    const char *why_follows; /* of a layer that follows: "exact" (no value differs), "arithmetic" (that of
                                `program`), "float-rounding", "noise", "fused", "forced-encoding"; else NULL.
                                Static */
    char *follows_text; /* says it in words where that is worth telling (fused, forced-encoding); or NULL */
    bool is_faulty;     /* state is ND_LAYER_FAULTY */
    char *evidence; /* of a faulty or unexplained layer, one clause: "58 % of its values are wrong, by up to 212
                       LSB; the previous sample's output predicts all of them". Else NULL */
    struct nd_explained_fault fault; /* of a faulty layer; kind NULL: an error that no rounding can make, of no
                                        known kind. Of an unexplained one what it looks like, or NULL */
    char *known_defect; /* of a faulty or unexplained layer that an SDK is known to compute wrongly: "a
                           known defect of QAIRT 2.51.0 ...: ..."; else NULL */
    const char *remedy; /* and what to do about it, a sentence. Static */
    uint64_t n_codes;
    struct nd_explained_part local, inherited, total;
    uint64_t n_violations; /* elements where total is not local + inherited: none */
    /* Programs (docs/science/theory.md#programs: half-even, floor, double:8 ...) that give all of its codes; of
     * a unit whose values leave nothing to round, all do. */
    size_t n_programs;
    char **programs; /* with those of units (htp-v73...) where the device has one */
    char *program;   /* what the device does in such units, or NULL: not known */
    bool is_covered; /* the device has a program of units (htp-v73...), and it says what the codes of this one
                        are. Where it does not, and program is NULL, n_unexplained is a remainder of which
                        nothing is known: no fault by itself */
    uint64_t
        n_unexplained; /* codes that it does not give, or where it is not known the best program does not */
    double explained_fraction; /* of the local mismatches, those that the best program gives; 1 without any */
    /* Of the local error alone, put into the quantised reference: mean square of the change at the model's
     * outputs in steps^2, and the share of their codes that change. NaN where it is not measured. */
    double harm, harmed_share; /* and where no reference reaches the outputs that it may change */
    double gain; /* inherited energy over the total energy of the unit's inputs; NaN without any */
    struct nd_decomposition quality;         /* n_codes = 0 without a float reference */
    struct nd_explained_execution execution; /* of what is not an input, nor its quantisation */
    /* Of a layer that follows known arithmetic: all n_ties values that differ from exact rounding lie on ties,
     * and this rule gives them: "half up", "half away from zero", ... NULL: the values show none. Static. */
    const char *tie_rule;
    uint64_t n_ties;
};

/* What the devices have in common at the outputs: the code that most lineages have, element by element. Devices
 * with the same codes everywhere are one lineage. It abstains below 3 lineages, and where, of the elements on
 * which they differ, the commonest code is not 2 votes ahead of the next on average. The majority may be wrong:
 * that is seen in common_divergence. */
struct nd_explained_vote {
    bool is_known;
    char *why_not; /* NULL when it is known */
    size_t n_lineages;
    double split_share;       /* of the elements, on which lineages differ */
    double margin;            /* mean number of votes that the commonest code is ahead there */
    double common_divergence; /* mean square of the vote less the quantised reference, in steps^2 */
};

/* The outputs with intermediates visible against those without. */
struct nd_explained_observer {
    size_t n_samples; /* compared; 0: not known */
    size_t n_changed; /* of those: then the intermediates are of another graph */
};

struct nd_explained_device {
    size_t same_as; /* the first device that has the same code everywhere; the device itself, else */
    char *uri;      /* "cpu", "htp-sim:sm8650"; "?" when the capture does not say */
    char *chipset;
    char *capture;
    char *failure;           /* what it said when it failed, or NULL */
    enum nd_health health;   /* the verdict */
    enum nd_verdict verdict; /* how it differs from exact rounding. same: no local mismatch; within: only
                                is_within_step; differs; inconclusive: no mismatch, but steps that were not
                                examined; failed */
    struct nd_explained_observer observer;
    size_t n_findings;
    struct nd_explained_finding *findings; /* [n_findings] in order of steps */
    size_t n_examined, n_not_examined;     /* steps */
    size_t n_sources;
    size_t *sources; /* [n_sources] steps in graph order */
    /* Steps by state, the one with the greatest effect on the outputs first. */
    size_t n_faulty, n_unexplained;
    size_t *faulty;       /* [n_faulty] */
    size_t *unexplained;  /* [n_unexplained] */
    size_t n_follow;      /* steps of state ND_LAYER_FOLLOWS */
    const char *expected; /* the arithmetic that the capture's chipset or kind asks for: "v69", "v73", "float";
                             NULL where the capture does not say. Static */
    bool is_refuted;      /* its values are plainly those of another arithmetic than that */
    char *program;        /* what most of its units do, or NULL: not known */
    size_t n_programs;    /* of a program of whole units: it and those that these units do not tell */
    char **programs;      /* [n_programs] from it; else 0 */
    size_t n_losses;
    size_t *losses; /* [n_losses] steps that follow such a program and are off by 10 steps or more by it */
    struct nd_explained_unit *units; /* [n_steps] */
    /* Over the model outputs; n_codes = 0 without a float reference or without their codes. */
    struct nd_decomposition output;
    /* Of what is the device's own, in the sum of its energy and that of what is common to all: its difference
     * from the vote of the lineages beside the error of that vote, or, where the vote is not known, divergence
     * beside quantisation. NaN when it is unknown or 0 / 0. */
    double own_share;
    struct nd_interval own_share_interval, quantisation_interval, divergence_interval, interaction_interval;
    struct nd_explained_execution execution; /* of the whole run */
};

/* A way in which the arithmetic of two devices differs. Texts are static. */
struct nd_explained_reason {
    const char *name;     /* "zero-point", "multiplier-bits", "half-granule", "bias", "product-rounding" */
    const char *texts[2]; /* what each does: "keeps 10 bits of the multiplier" */
    char *op_types;       /* in which units: "Conv, Gemm" */
};

/* Why two devices differ that have programs of whole units, each its own: the codes on which the programs
 * differ, given the inputs that the units had on the first. */
struct nd_explained_difference {
    size_t devices[2];
    const char *programs[2]; /* borrowed from the devices */
    size_t n_because;
    struct nd_explained_reason *because; /* [n_because] */
    size_t n_units;                      /* in which codes differ */
    char *op_types;                      /* of those: "Conv, Gemm, MatMul" */
    uint64_t n_differing, n_codes;       /* of all units of those kinds */
};

struct nd_explanation {
    enum nd_health health;   /* the worst of the devices' */
    enum nd_verdict verdict; /* the worst of the devices' */
    char *model;
    char *model_sha256;
    char *float_model; /* NULL without one */
    char *probe;
    size_t n_samples;
    size_t n_harm_samples; /* those in which harm was measured */
    struct nd_explained_vote vote;
    size_t n_steps, n_devices;
    struct nd_explained_step *steps;
    struct nd_explained_device *devices;
    size_t n_differences;
    struct nd_explained_difference
        *differences; /* [n_differences] of devices that are not the same_as others */
};

/* Explains captures of the model. float_model is nullable. All dimensions must be fixed, and codes of at most
 * 32 bits. ND_ERR_NOT_COMPARABLE: a capture is of another model (by SHA-256), the captures have other inputs
 * than the first, or the float model takes other inputs. ND_ERR_NOT_FOUND: no capture of a device that did not
 * fail holds the probe. ND_ERR_UNSUPPORTED: dimensions are not fixed. An operator that cannot be evaluated
 * costs its unit and the reference behind it: that is said in the steps. ND_ERR_FORMAT, ND_ERR_IO,
 * ND_ERR_MEMORY. A device that failed is a result. Memory: some 150 bytes per sample, device and step. The
 * caller destroys *out; nothing is borrowed by it. */
ND_PUBLIC enum nd_status nd_explain(const struct nd_model *model, const struct nd_model *float_model,
                                    const struct nd_capture *const *captures, size_t n_captures,
                                    const struct nd_explain_options *options, struct nd_explanation **out,
                                    struct nd_error *err);

/* Frees it and sets *explanation to NULL; NULL in *explanation is accepted. */
ND_PUBLIC void nd_explanation_destroy(struct nd_explanation **explanation);

/* Looks for what makes the values of the tests differ from the reference's, and the runs of a device from each
 * other, and for how errors grow over the tensors: fills diagnoses and depths of a comparison of these
 * captures, without the model. Reads at most 16 samples of each of the first 128 tensors of a device that
 * differ, and of up to eight tensors beside each. Codes and floats of all types are judged alike. The verdict
 * does not depend on it. What each kind means, and the criterion of each, is in docs/reference/diagnoses.md.
 * Errors are those of nd_capture_read_outputs, ND_ERR_MEMORY. Not to be called twice for one comparison. */
ND_PUBLIC enum nd_status nd_diagnose_comparison(struct nd_comparison *comparison,
                                                const struct nd_capture *const *captures, struct nd_error *err);

struct nd_identify_options {
    size_t struct_size;
    const char *probe; /* NULL: all that a capture holds */
    size_t n_samples;  /* the first ones of every probe; 0: 32 */
    size_t n_threads;  /* 0: as many as the process may use; the result does not depend on it */
};

/* Which programs, of everything known that may stand between the exact value of a unit and its codes (rounding,
 * multiplier bits, granules, accumulators, floats, chance), the captures leave possible: the set that is not
 * excluded, never a guess of one. Every unit is worked out from the codes that the device itself had. *json is
 * the text of an object, freed by the caller:
 *
 *     devices       one for every capture, in their order:
 *       uri, chipset, capture
 *       failure     what it said when it failed, or null; then there is nothing else
 *       probes      [{name, samples}] that were looked at
 *       ANSWER      of the whole device: what is left in all types; none when a type has none
 *       types       [{op_type, units (their number), ANSWER}] by operator type: left in all its units and in
 *                   their codes taken together
 *       units       [{name, op_type, way, ANSWER, thresholds, curve}]; way: "exact ratio" or "double"
 *       not_identified  [{name, op_type, why}]: not captured, not covered, or changes from run to run
 *
 * ANSWER is
 *
 *     verdict       "too-few": fewer than 64 codes that are neither whole nor clipped; "several"; "single":
 *                   one class is left and explains: no exception, or 0.999 and more; "none": no class is
 *                   left, or one that does not explain
 *     split         of a verdict none: parts have programs, but not the same
 *     classes       [[names]] of programs that are not excluded; those of one list gave equal codes on
 *                   everything seen. Empty for too-few
 *     nearest       the best program, or null
 *     codes, open, deciding   all; those that are neither whole nor clipped; those on which programs differ
 *     exceptions    codes that the best does not give; where it is not applicable, half-even does not give
 *     explained     1 - exceptions / codes that half-even does not give; null when there are none of these
 *     unit_programs [{name, codes, exceptions}] beside it, programs of whole units (htp-v73): the codes of
 *                   which each says what they are, and those of them that the device has otherwise
 *
 * thresholds is {positive, negative, binades, channels}: BRACKET by sign of the value v in steps of the output,
 * [{sign, from, to, BRACKET}] by |v|, and [{channel, BRACKET}] of units with 2 to 32 channels. BRACKET is
 * {down, up, max_down, min_up, crossed} or null: of so many codes rounded down and up, fractions up to max_down
 * went down and from min_up on up, each null where there are none; crossed: max_down >= min_up, so there is no
 * threshold, or contamination.
 *
 * curve is [{from, to, codes, p, low, high}]: P(up | fraction) in those of 32 bins that are not empty, with the
 * 95 % interval of Clopper and Pearson. src/identify/identify.h says how programs are excluded.
 *
 * Errors are those of nd_explain, but captures need not have the same inputs. A device that failed is an entry.
 * Memory: some 10 kB per thread and step. */
ND_PUBLIC enum nd_status nd_identify_captures(const struct nd_model *model,
                                              const struct nd_capture *const *captures, size_t n_captures,
                                              const struct nd_identify_options *options, char **json,
                                              struct nd_error *err);

#ifdef __cplusplus
}
#endif
#endif
