/* Comparing captures: which tensors are equal bit for bit on which devices, by how much the others differ,
 * and whether that passes the given gates.
 *
 * captures[0] is the reference, the others are tests. The two sides of a difference are always called `ref`
 * and `test`, in that order, and a signed difference is test - ref. Every formula, and what it does with
 * NaN, infinities, zeros and empty tensors, is in docs/reference/metrics.md.
 *
 * A comparison does not change after nd_compare_captures; several threads may read it. "They differ" is a
 * result, never an error.
 *
 * Example:
 *
 *     static int compare(const struct nd_capture *ref, const struct nd_capture *test)
 *     {
 *         const struct nd_capture *captures[] = {ref, test};
 *         struct nd_comparison *comparison = NULL;
 *         struct nd_error err;
 *         if (nd_compare_captures(captures, 2, NULL, &comparison, &err) != ND_OK) {
 *             fprintf(stderr, "%s\n", err.message);
 *             return ND_EXIT_TROUBLE;
 *         }
 *         for (size_t e = 0; e < comparison->n_tensors; e++)
 *             printf("%s: %s\n", comparison->tensors[e].name, nd_verdict_name(comparison->tensors[e].verdict));
 *         int exit_code = (int)nd_verdict_exit_code(comparison->verdict);
 *         nd_comparison_destroy(&comparison);
 *         return exit_code;
 *     }
 *
 * Stability: unstable. Until version 1.0 every minor version may change what is declared here; programs
 * that use it are compiled again. */
#ifndef NPUDIFF_COMPARE_H
#define NPUDIFF_COMPARE_H

#include "npudiff/capture/capture.h"
#include "npudiff/compare/placement.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a comparison concludes. Of several the most severe counts (nd_verdict_worse,
 * docs/reference/metrics.md#verdicts). */
enum nd_verdict {
    ND_VERDICT_SAME,           /* bit-equal everywhere */
    ND_VERDICT_WITHIN,         /* not bit-equal, but every element passes the gates that were given */
    ND_VERDICT_INCONCLUSIVE,   /* too few samples for the question, or outputs that are NaN on both sides */
    ND_VERDICT_DIFFERS,        /* an element fails its gate, or without gates is not bit-equal */
    ND_VERDICT_NOT_COMPARABLE, /* something is missing, misshapen or mistyped, or its values are not stored */
    ND_VERDICT_FAILED,         /* a capture among the inputs is of a device that failed */
};

/* "same", "within", "inconclusive", "differs", "not comparable", "failed". Static storage. */
ND_PUBLIC const char *nd_verdict_name(enum nd_verdict verdict);

/* same and within 0, differs 1, not comparable 3, inconclusive 4, failed 5. Trouble (2) is a status, not a
 * verdict. */
ND_PUBLIC enum nd_exit nd_verdict_exit_code(enum nd_verdict verdict);

/* The more severe of two, in the order of nd_exit_worse; within is more severe than same. */
ND_PUBLIC enum nd_verdict nd_verdict_worse(enum nd_verdict a, enum nd_verdict b);

/* Gates: what difference is allowed, by default and per tensor. docs/reference/metrics.md#gates. */
struct nd_gates;

enum nd_gate_kind {
    ND_GATE_BITWISE, /* no differing bit */
    ND_GATE_LSB,     /* quantised values and other integers: |test - ref| <= N steps */
    ND_GATE_ULP,     /* floats: at most N floats apart */
    ND_GATE_ATOL, /* real values: |test - ref| <= atol + rtol * |ref|; quantised values are dequantised first */
    ND_GATE_RTOL,
};

/* An empty set of gates, destroyed by the caller. ND_ERR_MEMORY. */
ND_PUBLIC enum nd_status nd_gates_create(struct nd_gates **out, struct nd_error *err);
ND_PUBLIC void nd_gates_destroy(struct nd_gates **gates);

/* Adds the rules in text: "VALUE" (every tensor) and "NAME:VALUE" separated by commas, for instance
 * "conv1:2,logits:0". NAME ends at the last ':' of its entry and may be a shell pattern (* ? [...]; '*' also
 * matches '/'). For one tensor an equal name wins over a pattern, a pattern over the default, and of several
 * alike the last one given. VALUE is a whole number for lsb and ulp, a decimal number >= 0 for atol and rtol.
 * For ND_GATE_BITWISE text is NULL or "" (every tensor) or a comma-separated list of names or patterns without
 * values. ND_ERR_USAGE: not understood; gates are then unchanged. ND_ERR_MEMORY. */
ND_PUBLIC enum nd_status nd_gates_parse(struct nd_gates *gates, enum nd_gate_kind kind, const char *text,
                                        struct nd_error *err);

/* Which part of a comparison is made, so that several machines may share it.
 * docs/reference/metrics.md#parts. */
enum nd_cut { ND_CUT_NONE, ND_CUT_TENSORS, ND_CUT_SAMPLES };

/* What parts of a comparison found, read back to be merged. */
struct nd_parts;

struct nd_compare_options {
    size_t struct_size;           /* sizeof(struct nd_compare_options) */
    bool allow_different_models;  /* compare although the model's SHA-256 differs */
    const struct nd_gates *gates; /* borrowed; NULL or empty: only bit-equality passes */
    const char *tensors;          /* borrowed; only these tensors: "outputs", or names and patterns with commas;
                                   NULL or "all": all, and one that a capture lacks is not comparable */
    bool all_pairs;               /* every test against every other too, not only against the reference */
    bool verify_digests;          /* read also what digests say is equal */
    bool trust_digests;           /* do not check what is read, nor the tables of the captures, against the
                                     digests that the captures state */
    enum nd_dtype ulp_in;         /* a float type: ULPs are also counted in it; ND_DTYPE_NONE: not */
    size_t n_worst;               /* worst elements kept of each pair, at most 1000 */
    bool per_channel;
    int channel_axis;     /* of the sample's shape; negative from the end */
    size_t n_threads;     /* 0: as many as the process may use */
    size_t memory_bytes;  /* for buffers; 0: 512 MiB */
    const char *cpu_cap;  /* "scalar", "avx2", "avx512", "neon": no better instructions than these; NULL: any */
    enum nd_cut cut;      /* make only part `part` of `n_parts` (from 0) */
    size_t part, n_parts; /* with a cut only; 0 <= part < n_parts */
    const struct nd_parts *merge; /* borrowed: take the statistics from these parts; tensors are read only
                                      for channels and repeats */
    const char *const
        *probes; /* borrowed: only the probes of these names or patterns; all when n_probes is 0 */
    size_t n_probes;
    /* Told how far a stage is ("compare": blocks of values; "look where": devices), by any thread; several may
     * call at once. NULL: nobody. */
    void (*progress)(void *context, const char *stage, size_t n_done, size_t n_total);
    void *progress_context;
    /* Asked before each block; true stops (ND_E_CANCELLED). NULL: never. */
    bool (*is_cancelled)(void *context);
    void *cancel_context;
};

/* The defaults: everything off, n_worst 5. */
ND_PUBLIC void nd_compare_options_init_sized(struct nd_compare_options *options, size_t struct_size);
static inline struct nd_compare_options nd_compare_options_default(void)
{
    struct nd_compare_options options;
    nd_compare_options_init_sized(&options, sizeof options);
    return options;
}

/* Differences in steps (LSB), test - ref: below -3, -3, -2, -1, 0, 1, 2, 3, above 3. */
enum { ND_LSB_BUCKETS = 9 };

/* The same beyond 3 steps, of each sign: 4 to 7, 8 to 15, ... and 65536 and more. */
enum { ND_LSB_TAIL = 15 };

/* An element, in order of probe, sample and flat index. */
struct nd_difference_place {
    size_t probe; /* indexes nd_comparison.probes */
    size_t sample;
    bool has_index; /* false when only digests are stored: the element is not known */
    size_t index;   /* flat, C order, within the sample */
    int64_t coordinates[ND_MAX_RANK];
};

/* Of absolute or relative errors. Section 6. */
struct nd_error_stats {
    double max, mean, median, p99;
};

/* One side of a pair over the samples that differ. Section 8. */
struct nd_side {
    uint64_t n_elems;
    uint64_t n_nan, n_inf, n_zero, n_subnormal, n_saturated;
    uint64_t n_stuck_samples;
    double min, max; /* of the finite ones, real units; NaN when there are none */
};

/* Values that are no numbers, over all samples that were compared and not only those that differ. Known where
 * every sample is read: at model outputs of a float type; at every float tensor when no model output is
 * compared. Section 8. */
struct nd_numbers {
    bool is_known;
    uint64_t n_elems;
    uint64_t n_ref_nan, n_test_nan, n_ref_inf, n_test_inf;
    uint64_t n_samples;
    uint64_t n_samples_ref_nan, n_samples_test_nan; /* of which every value is NaN */
    uint64_t n_samples_both_nan;                    /* on both sides: nothing could be compared there */
};

enum nd_pattern {
    ND_PATTERN_NONE, /* nothing differs */
    ND_PATTERN_ONE_ELEMENT,
    ND_PATTERN_ONE_COORDINATE,
    ND_PATTERN_PERMUTED_AXES,
    ND_PATTERN_RANGE,
    ND_PATTERN_STRIDE,
    ND_PATTERN_FROM_POWER_OF_TWO,
    ND_PATTERN_SCATTERED,
    ND_PATTERN_EVERYWHERE,
};

/* "none", "one element", "one coordinate", "permuted axes", "range", "stride", "from 2^k on", "scattered",
 * "everywhere". Static storage. */
ND_PUBLIC const char *nd_pattern_name(enum nd_pattern pattern);

/* Coordinates of one dimension at which elements differ. */
struct nd_axis_span {
    bool is_known; /* false for dimensions over 65536 */
    uint64_t n, first, last;
};

/* Where the differing elements are. Section 10. */
struct nd_structure {
    enum nd_pattern pattern;
    uint64_t first_index, last_index, stride;
    uint64_t n_runs, longest_run;
    struct nd_axis_span axes[ND_MAX_RANK]; /* [rank of the sample] */
    int axis;                              /* with one coordinate: which dimension, else -1 */
    int permutation[ND_MAX_RANK];          /* with permuted axes: the test's dimension i is the reference's
                                              permutation[i] */
};

/* One of the worst elements. Section 11. */
struct nd_worst {
    struct nd_difference_place place;
    double abs_error;           /* real units; infinity where it has no measure */
    double ref, test;           /* the numbers as stored (quantised values as quantised values) */
    double ref_real, test_real; /* real units */
};

/* The smallest tolerance that would let the pair pass; each alone. Section 11. */
struct nd_tolerance {
    bool is_possible; /* false where NaN or infinity stand on one side only */
    bool has_lsb, has_ulp;
    uint64_t lsb, ulp;
    double atol, rtol;
};

/* Of the outputs as probabilities. Section 9. */
struct nd_distribution {
    bool exists;
    bool is_softmax; /* of the softmax of the values; else of the values themselves */
    uint64_t n_samples, n_infinite, n_invalid;
    double kl; /* mean over n_samples - n_infinite - n_invalid samples; nats */
    uint64_t top_k;
    double topk_overlap;
};

/* The differences of one pair of tensors over some samples. Fields for integers hold for quantised values and
 * plain integers, fields for floats for floats; the others are 0. docs/reference/metrics.md has every formula.
 */
struct nd_difference {
    uint64_t n_samples;           /* compared */
    uint64_t n_samples_differing; /* whose digests differ */
    uint64_t n_elems;             /* compared, the equal ones included */
    bool has_values; /* false: samples differ whose values are not stored; only the fields above hold */
    bool is_mixed;   /* other types on the two sides: section 12 */
    /* Quantised values against floats: elements whose values differ by no more than the rounding of quantised
     * value to float, and the largest of these differences in steps. They are equal after dequantisation, and
     * not differing. Section 12. */
    uint64_t n_dequantised;
    double dequantised_steps;
    uint64_t n_differing; /* elements whose bits differ */
    double share;         /* n_differing / n_elems; 0 for empty tensors */
    uint64_t n_failing;   /* elements that fail the tensor's gate */
    bool is_integer;      /* which of the two groups below holds */
    uint64_t lsb_histogram[ND_LSB_BUCKETS];
    uint64_t lsb_tail[2][ND_LSB_TAIL]; /* of test < ref, and of test > ref */
    uint64_t max_lsb;                  /* max |test - ref| in steps */
    double mean_lsb;                   /* mean |test - ref| over all elements */
    double signed_mean_lsb;            /* mean of test - ref over all elements */
    /* Quantised values against floats: the largest difference in steps (LSB) of the quantised value, and no ULP
     * that means anything. Section 12. */
    bool has_steps;
    double max_steps;
    uint64_t max_ulp;        /* over pairs of finite values or equal infinities; +0 and -0 are 0 apart */
    bool has_ulp_in;         /* asked for */
    uint64_t max_ulp_in;     /* in the given compute type; also of quantised values */
    uint64_t n_nan_mismatch; /* NaN on exactly one side */
    uint64_t n_nan_payload;  /* NaN on both, other bits */
    uint64_t n_inf_mismatch; /* an infinity on one side that is not on the other (and no NaN) */
    uint64_t n_zero_sign;    /* +0 against -0 */
    uint64_t n_saturation_mismatch;
    bool has_errors; /* false: no element has a difference that is a number; abs, rel and rmse are NaN */
    struct nd_error_stats abs; /* real units; NaN and infinity mismatches left out */
    struct nd_error_stats rel;
    double rmse;
    uint64_t n_rel_undefined;
    /* Signed, of quantised values and floats alike: elements with test > ref and test < ref, their shares, and
     * the mean of test - ref in real units; over the elements that abs.mean is over. Section 6. */
    uint64_t n_above, n_below;
    double share_above, share_below, signed_mean;
    bool has_signal; /* false: no element is finite on both sides; the next six are NaN */
    double sqnr_db, cosine, norm_ratio, pearson; /* over the samples that differ */
    bool has_gain;
    double gain, offset;
    struct nd_side ref_side, test_side;
    struct nd_numbers numbers;
    struct nd_structure structure;
    struct nd_tolerance tolerance;
    struct nd_distribution distribution;
    size_t n_worst;
    struct nd_worst *worst;
    bool has_first; /* n_samples_differing > 0 */
    struct nd_difference_place first;
};

/* When a number of a difference means something; it is no number otherwise. */
enum nd_measure_need {
    ND_NEEDS_VALUES,     /* the values of all samples that differ are stored */
    ND_NEEDS_STEPS,      /* quantised values and whole numbers */
    ND_NEEDS_ULPS,       /* floats */
    ND_NEEDS_ULP_IN,     /* floats are counted in a type of their own */
    ND_NEEDS_ERRORS,     /* some element has a difference that is a number */
    ND_NEEDS_SIGNAL,     /* some element is finite on both sides */
    ND_NEEDS_GAIN,       /* and the reference is not constant */
    ND_NEEDS_DIVERGENCE, /* some sample has a divergence */
};

enum nd_measure_form {
    ND_MEASURED_COUNT,    /* a uint64_t; all others are a double */
    ND_MEASURED_SHARE,    /* n_differing of n_elems */
    ND_MEASURED_REAL,     /* three or four digits in a text */
    ND_MEASURED_NEAR_ONE, /* in a text, how far from 1 */
};

/* One number of a difference, described once: documents, tables and matrices iterate over all of them. */
struct nd_measure {
    const char *name;   /* its member of a document; NULL: it is part of an object of its own */
    const char *option; /* METRIC of `compare --matrix`; NULL: it makes no matrix */
    const char *title;  /* of such a matrix, with the unit */
    const char *column; /* in the table of signals at the outputs; NULL: it is not there */
    size_t offset;      /* in struct nd_difference */
    enum nd_measure_need need;
    enum nd_measure_form form;
    bool is_symmetric;    /* between two devices it is the same in both directions */
    bool is_of_differing; /* over the samples that differ: equal ones have no part in it */
};

/* All measures of all metrics, in the order of the tables. Static. i < nd_n_measures() (asserted). */
ND_PUBLIC size_t nd_n_measures(void);
ND_PUBLIC const struct nd_measure *nd_measure(size_t i);

/* Whether the number means something in this difference, of which samples were compared. */
ND_PUBLIC bool nd_measure_is_known(const struct nd_measure *measure, const struct nd_difference *difference);

/* The number: a count exactly up to 2^53 as a double; and of one with ND_MEASURED_COUNT all of it. */
ND_PUBLIC double nd_measure_value(const struct nd_measure *measure, const struct nd_difference *difference);
ND_PUBLIC uint64_t nd_measure_count(const struct nd_measure *measure, const struct nd_difference *difference);

enum nd_coverage {
    ND_COVERAGE_FULL, /* every probe and every expected sample of both sides was compared */
    ND_COVERAGE_PART, /* only some of them: reason says what is missing */
    ND_COVERAGE_NONE, /* nothing could be compared: reason says why; the difference is all zero and means
                         nothing */
};

struct nd_compared_part {
    enum nd_coverage coverage;
    char *reason; /* NULL with ND_COVERAGE_FULL */
    struct nd_difference difference;
    char *state; /* what merging needs, as text; NULL unless a part was asked for */
};

/* One tensor of one test against the reference, or with all_pairs against an earlier test. */
struct nd_compared_pair {
    size_t ref, test; /* index nd_comparison.devices; ref < test */
    enum nd_verdict verdict;
    char *label; /* both sides store the same bytes, and the labels (type, scale, zero point) give them other
                    values: one label is wrong. The verdict is `differs`. NULL: not so */
    bool is_unrecorded_input; /* a model input that one of the two did not record: not comparable, and no part
                                 of the verdict of the whole */
    bool within_noise;        /* it differs by no more than repeats of one of the two devices do. Section 17 */
    /* Over all probes, but that has_signal and what it holds for are of the probe with the lowest SQNR: inputs
     * of unlike scales have no signal in common. Section 7. */
    struct nd_compared_part total;
    struct nd_compared_part *probes; /* [nd_comparison.n_probes] */
    size_t signal_probe; /* that the signal of `total` is of; SIZE_MAX: no probe has one that differs */
    size_t n_channels;   /* with per_channel, where the tensor has that axis */
    struct nd_difference *channels; /* [n_channels], over all probes */
};

/* What one device says about one tensor. */
struct nd_tensor_on_device {
    bool exists;
    char *provider;    /* that computed it, "" when unknown */
    bool is_on_cpu;    /* computed by the CPU provider although the device is none (model inputs never count) */
    size_t n_unstable; /* samples whose repeats differ on this device */
    uint64_t n_repeats;         /* comparisons of a later repeat with the first */
    uint64_t n_repeats_unequal; /* that differed */
    double unstable_bound; /* upper 95 % bound of the probability that a repeat differs; 1 without repeats */
    struct nd_difference *noise; /* of the stored repeats against repeat 0; NULL when none is stored */
    bool is_stuck; /* two or more samples of a probe, all with one digest, although their inputs differ */
    int class_id;  /* equal numbers: bit-equal; -1 where the device has no data for the tensor */
};

struct nd_compared_tensor {
    char *name;
    char *op_types;
    enum nd_dtype dtype;   /* as the first device that has the tensor records it */
    struct nd_shape shape; /* of one sample; rank -1 when unknown */
    bool is_quantised;
    bool is_model_input;
    bool is_model_output;
    bool comparable; /* every pair has ND_COVERAGE_FULL */
    enum nd_verdict verdict;
    char *gate;                          /* what passes here: "bit-equal", "lsb <= 1", ... */
    struct nd_tensor_on_device *devices; /* [n_devices] */
    size_t odd_one_out;                  /* the device that alone differs from all others, or SIZE_MAX */
    struct nd_compared_pair *pairs;      /* [nd_comparison.n_pairs] */
};

/* Two overall classes and the tensor on which they part for the first time. */
struct nd_parting {
    int class_a, class_b;
    size_t device_a, device_b; /* the first members */
    size_t tensor;             /* SIZE_MAX when one has no data where the other has */
};

struct nd_compared_device {
    char *uri;
    char *label;          /* unique in the comparison */
    char *capture;        /* path */
    char *content_digest; /* of the capture, "" when it has none */
    char *chipset;        /* "" when unknown, as the next ones */
    char *runtime;
    char *kind;
    char *environment; /* "QAIRT 2.51.0, simulator"; "" when the capture does not say */
    enum nd_capture_status status;
    char *failure; /* stage, operator and message of a failed device, or "" */
    /* The first device of the same kind, or SIZE_MAX; and the options known to change bits that differ from its
     * ("runtime.option_x is 0, not 1; ..."), or "". */
    size_t configured_as;
    char *configuration;
    size_t n_samples; /* over all probes */
    size_t n_samples_expected;
    size_t n_unstable_tensors;     /* tensors with n_unstable > 0 */
    size_t n_cpu_tensors;          /* tensors with is_on_cpu */
    bool is_npu;                   /* the device is meant to be an NPU */
    struct nd_npu_share npu_share; /* as the capture alone tells it (nd_placement_examine without a model): of
                                      nodes other than QuantizeLinear and DequantizeLinear; flops is NaN */
    size_t first_tensor; /* first tensor in graph order that differs from the reference, or SIZE_MAX */
    int class_id;        /* equal numbers: bit-equal on all tensors; -1 without any data */
    int output_class_id; /* the same over the model's outputs only */
};

struct nd_compared_probe {
    char *name;
    size_t n_samples; /* the most that any device holds */
};

/* Top-1 of one device at one output. */
struct nd_top1_device {
    bool exists; /* outputs are stored for every sample it has */
    size_t n_samples;
    size_t n_invalid; /* samples whose output is all NaN: they have no class and are wrong */
    size_t n_correct; /* with labels only, as accuracy */
    double accuracy;  /* n_correct / n_samples */
};

/* Top-1 of one test against the reference over their common samples. */
struct nd_top1_pair {
    size_t ref, test;
    bool exists;
    size_t n_samples;
    size_t n_agree;
    double agreement;       /* n_agree / n_samples */
    size_t n_lost;          /* ref right, test wrong: this and what follows with labels only */
    size_t n_gained;        /* ref wrong, test right */
    size_t n_changed_wrong; /* both wrong, another class */
    double p_value;         /* two-sided mid-p McNemar */
    bool is_significant;    /* p_value < 0.05 */
};

/* A sample that has another top-1 class on a test than on the reference. */
enum { ND_CHANGED_SHOWN = 6 };
struct nd_changed_sample {
    size_t sample;
    int64_t label;    /* -1 without labels */
    int64_t *classes; /* [n_devices]; -1: the device has none for it */
    size_t n_shown;   /* classes whose values are kept: the label's and those of the devices */
    int64_t shown[ND_CHANGED_SHOWN];
    double *values; /* [n_devices * n_shown] of the output in real units; NaN where a device has none */
};

/* Top-1 of one probe at one output of the model with at least two elements. */
struct nd_top1 {
    size_t tensor;
    size_t probe;
    bool has_labels;
    const char
        *classes_by;  /* what says that its largest value is a predicted class: "labels"; without labels
                         "operator", "name" or "size" of an output that has one axis. NULL: nothing does */
    size_t n_classes; /* elements of the output */
    size_t max_label; /* the largest label; with labels only */
    char *labels_missing_reason;    /* why labels that exist are not used, or NULL */
    struct nd_top1_device *devices; /* [n_devices] */
    struct nd_top1_pair *pairs;     /* [n_devices - 1] */
    bool has_changed;               /* nd_find_changed_samples has looked: what follows is known */
    size_t n_changed;               /* samples with another class on any test than on the reference */
    size_t n_changed_kept;
    struct nd_changed_sample *changed; /* [n_changed_kept]; those that the reference has right come first */
};

/* What the values of a test show beside the reference's, or the runs of one device beside each other. Filled by
 * nd_diagnose_comparison (explain.h). */
struct nd_compared_diagnosis {
    size_t device, tensor;
    const char *kind; /* "truncation", "stale", ... Static */
    char *text;
    bool is_note;     /* it describes the arithmetic of a healthy device and accuses nobody */
    bool is_of_runs;  /* it is about repeats of the device alone */
    double amount;    /* what it is depends on the kind */
    double explained; /* share of what is wrong that it explains */
    double chance;  /* base 10 logarithm of the probability that an innocent device looks so; NaN: not stated */
    size_t n_later; /* later tensors of the device of which the same kind holds */
};

/* How the error of a test grows over the tensors, in their order. Filled by nd_diagnose_comparison. */
struct nd_compared_depth {
    size_t device;
    const char *growth; /* "none", "square-root", "linear", "constant-rate", "unknown". Static */
    bool is_share; /* the error is the share of quantised values that differ, else the relative error of floats
                    */
    size_t n_tensors;   /* with an error */
    double factor;      /* of a constant rate: per tensor; else 1 */
    double first, last; /* the error that the law gives the first and the last of them; NaN when unknown */
    double largest;     /* magnitude among the values compared, NaN when none were */
    size_t largest_tensor;
    bool is_half; /* the device computes in half precision: values of 65504 and more would overflow */
};

/* Few words that tell the wrong tensors of a test from the right ones, or of a wrong tensor the samples that
 * differ from those that do not, exactly and not by chance. Section 22. */
struct nd_compared_predicate {
    size_t device;
    size_t tensor; /* whose samples; SIZE_MAX: it is about whole tensors */
    size_t n_wrong, n;
    size_t n_conditions;
    char *conditions[2]; /* "of type uint8", "with n >= 5"; all hold */
    char *text;
    double log2_chance; /* base 2 logarithm of a bound on the probability that chance alone is told so; NaN:
                           samples that are listed one by one, which is no guess */
};

struct nd_comparison {
    size_t struct_size;
    enum nd_verdict verdict;
    bool has_gates;
    bool different_models; /* allowed by the options */
    bool unknown_models;   /* a capture does not say of which model it is: nothing tells that it is the same */
    bool unknown_inputs;   /* a capture does not say what a probe fed, others do: likewise */
    size_t n_devices, n_tensors, n_probes, n_top1;
    size_t n_tensors_left_out; /* by the options */
    size_t n_pairs; /* n_devices - 1, or with all_pairs n_devices (n_devices - 1) / 2; those with ref 0 come
                       first */
    enum nd_dtype ulp_in;
    size_t n_worst;
    bool per_channel;
    int channel_axis;
    enum nd_cut cut; /* not ND_CUT_NONE: this is part `part` of `n_parts` only */
    size_t part, n_parts;
    size_t odd_one_out; /* over all tensors, or SIZE_MAX */
    size_t n_partings;
    struct nd_parting *partings; /* every two overall classes that have data */
    struct nd_compared_device *devices;
    struct nd_compared_tensor *tensors; /* graph order of captures[0], then tensors that only others have */
    struct nd_compared_probe *probes;
    struct nd_top1 *top1;
    char *classes_text;        /* "cpu | gen1 | gen3 = gen4" over all tensors */
    char *output_classes_text; /* the same over the model's outputs */
    size_t first_tensor;       /* first tensor on which devices differ, or SIZE_MAX */
    /* An entry of top1 in which every capture, the reference included, is right no more often than by chance,
     * and no labelled output says otherwise: the reference, the labels or the inputs are broken. SIZE_MAX:
     * none. Section 18. */
    size_t broken_top1;
    size_t first_test; /* the first device that differs from the reference there, or SIZE_MAX */
    size_t n_diagnoses, n_depths;
    struct nd_compared_diagnosis
        *diagnoses; /* [n_diagnoses] by device, then by tensor; none until they are asked for */
    struct nd_compared_depth *depths; /* [n_depths] */
    size_t n_predicates;
    struct nd_compared_predicate *predicates; /* by device; at most one of each */
};

/* Compares captures[1..n-1] with captures[0]. Everything in *out is owned by it: the captures may be closed.
 * ND_ERR_USAGE: n < 2, tensors that no capture has (ND_E_OPTION_VALUE), or a gate that names no tensor or one
 * it cannot apply to (ND_E_COMPARE_GATE). ND_ERR_NOT_COMPARABLE: different models (ND_E_COMPARE_MODEL), or
 * nothing in common although no device failed (ND_E_COMPARE_NOTHING). ND_ERR_FORMAT: digests differ but the
 * stored bytes do not (ND_E_CAPTURE_DIGEST), or what reading a capture returns; with merge also
 * ND_E_COMPARE_PART (parts of other captures or options). ND_ERR_USAGE also for an unknown cpu_cap. ND_ERR_IO,
 * ND_ERR_MEMORY (ND_E_COMPARE_MEMORY: memory_bytes is too little for the chunks of the captures). options NULL:
 * the defaults.
 */
ND_PUBLIC enum nd_status nd_compare_captures(const struct nd_capture *const *captures, size_t n,
                                             const struct nd_compare_options *options,
                                             struct nd_comparison **out, struct nd_error *err);
ND_PUBLIC void nd_comparison_destroy(struct nd_comparison **comparison);

/* Finds the samples whose top-1 class changed, and keeps up to n_max of them for each output and probe: fills
 * nd_top1.changed. captures: those of the comparison, in its order. Reads the outputs again. ND_ERR_IO,
 * ND_ERR_FORMAT, ND_ERR_MEMORY. */
ND_PUBLIC enum nd_status nd_find_changed_samples(struct nd_comparison *comparison,
                                                 const struct nd_capture *const *captures, size_t n_max,
                                                 struct nd_error *err);

/* The predictions that a text has room for, of the outputs with classes_by: with labels where there are any; of
 * several those that the reference has right most often, then those that change most often. NULL: none. */
ND_PUBLIC const struct nd_top1 *nd_comparison_top1(const struct nd_comparison *comparison);

/* The text (JSON) of a part, made with options.cut, in new memory. ND_ERR_USAGE when the comparison is no part.
 */
ND_PUBLIC enum nd_status nd_compare_part_format(const struct nd_comparison *comparison, char **out,
                                                struct nd_error *err);

/* Reads the files of all parts of one comparison, in any order. To be given as options.merge with the same
 * captures and options that they were made with; nd_compare_captures then returns exactly what one run would
 * have. The caller destroys *out. ND_ERR_IO; ND_ERR_FORMAT (ND_E_COMPARE_PART): malformed, a part is missing or
 * there twice. */
ND_PUBLIC enum nd_status nd_parts_read(const char *const *paths, size_t n, struct nd_parts **out,
                                       struct nd_error *err);
ND_PUBLIC void nd_parts_destroy(struct nd_parts **parts);

#ifdef __cplusplus
}
#endif
#endif
