/* Comparing captures: which tensors are bit-equal on which devices, by how much the others differ, and whether
 * that passes the given gates. Every formula, with its NaN, infinity, zero and empty-tensor rule, is in
 * src/compare/METRICS.md.
 *
 * captures[0] is the reference, the others are tests; the two sides of a difference are always `ref` and
 * `test`, in that order, and signs are test - ref. A comparison is immutable after nd_compare_captures; several
 * threads may read it. "They differ" is a result, never an error. */
#ifndef NPUDIFF_COMPARE_H
#define NPUDIFF_COMPARE_H

#include "npudiff/capture.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a comparison concludes, from best to worst as in METRICS.md section 11: the worst of several wins. */
enum nd_verdict {
    ND_VERDICT_SAME,           /* bit-equal everywhere */
    ND_VERDICT_WITHIN,         /* not bit-equal, but every element passes the gates that were given */
    ND_VERDICT_DIFFERS,        /* an element fails its gate, or without gates is not bit-equal */
    ND_VERDICT_INCONCLUSIVE,   /* too few samples for the question that was asked */
    ND_VERDICT_NOT_COMPARABLE, /* something is missing, misshapen or mistyped, or its values are not stored */
    ND_VERDICT_FAILED,         /* a capture among the inputs is of a device that failed */
};

/* "same", "within", "differs", "inconclusive", "not comparable", "failed". Static storage. */
ND_PUBLIC const char *nd_verdict_name(enum nd_verdict verdict);

/* same and within 0, differs 1, not comparable 3, inconclusive 4, failed 5. Trouble (2) is a status, not a
 * verdict. */
ND_PUBLIC enum nd_exit nd_verdict_exit_code(enum nd_verdict verdict);

/* Gates: what difference is allowed, by default and per tensor. METRICS.md section 8. */
struct nd_gates;

enum nd_gate_kind {
    ND_GATE_BITWISE, /* no differing bit */
    ND_GATE_LSB,     /* codes and other integers: |test - ref| <= N steps */
    ND_GATE_ULP,     /* floats: at most N floats apart */
    ND_GATE_ATOL,    /* real values: |test - ref| <= atol + rtol * |ref|; codes are dequantised first */
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

struct nd_compare_options {
    size_t struct_size;           /* sizeof(struct nd_compare_options) */
    bool allow_different_models;  /* compare although the model's SHA-256 differs */
    const struct nd_gates *gates; /* borrowed; NULL or empty: only bit-equality passes */
    size_t block_bytes; /* read at most this much at once per capture (at least one sample); 0: 8 MiB */
};

/* Differences in steps (LSB), test - ref: below -3, -3, -2, -1, 0, 1, 2, 3, above 3. */
enum { ND_LSB_BUCKETS = 9 };

/* The first differing element in order of probe, sample and flat index. */
struct nd_difference_place {
    size_t probe; /* indexes nd_comparison.probes */
    size_t sample;
    bool has_index; /* false when only digests are stored: the element is not known */
    size_t index;   /* flat, C order, within the sample */
    int64_t coordinates[ND_MAX_RANK];
};

/* The differences of one pair of tensors over some samples. Fields for integers hold for codes and plain
 * integers, fields for floats for floats; the others are 0. */
struct nd_difference {
    uint64_t n_samples;           /* compared */
    uint64_t n_samples_differing; /* whose digests differ */
    uint64_t n_elems;             /* compared, the equal ones included */
    bool has_values;      /* false: samples differ whose values are not stored; only the fields above hold */
    uint64_t n_differing; /* elements whose bits differ */
    double share;         /* n_differing / n_elems; 0 for empty tensors */
    uint64_t n_failing;   /* elements that fail the edge's gate */
    bool is_integer;      /* which of the two groups below holds */
    uint64_t lsb_histogram[ND_LSB_BUCKETS];
    uint64_t max_lsb;        /* max |test - ref| in steps */
    double mean_lsb;         /* mean |test - ref| over all elements */
    double signed_mean_lsb;  /* mean of test - ref over all elements */
    uint64_t max_ulp;        /* over pairs of finite values or equal infinities; +0 and -0 are 0 apart */
    uint64_t n_nan_mismatch; /* NaN on exactly one side */
    uint64_t n_nan_payload;  /* NaN on both, other bits */
    uint64_t n_inf_mismatch; /* an infinity on one side that is not on the other (and no NaN) */
    uint64_t n_zero_sign;    /* +0 against -0 */
    double max_abs; /* real units: floats as they are, codes times their scale; NaN and infinity mismatches left
                       out */
    double mean_abs; /* over all elements but those left out */
    bool has_first;  /* n_samples_differing > 0 */
    struct nd_difference_place first;
};

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
};

/* One edge of one test against the reference. */
struct nd_compared_pair {
    size_t ref;  /* 0 */
    size_t test; /* indexes nd_comparison.devices */
    enum nd_verdict verdict;
    struct nd_compared_part total;
    struct nd_compared_part *probes; /* [nd_comparison.n_probes] */
};

/* What one device says about one edge. */
struct nd_edge_on_device {
    bool exists;
    char *provider;    /* that computed it, "" when unknown */
    bool is_on_cpu;    /* computed by the CPU provider although the device is none (model inputs never count) */
    size_t n_unstable; /* samples whose repeats differ on this device */
    int class_id;      /* equal numbers: bit-equal; -1 where the device has no data for the edge */
};

struct nd_compared_edge {
    char *name;
    char *op_types;
    enum nd_dtype dtype;   /* as the first device that has the edge records it */
    struct nd_shape shape; /* of one sample; rank -1 when unknown */
    bool is_quantised;
    bool is_model_input;
    bool is_model_output;
    bool comparable; /* every pair has ND_COVERAGE_FULL */
    enum nd_verdict verdict;
    char *gate;                        /* what passes here: "bit-equal", "lsb <= 1", ... */
    struct nd_edge_on_device *devices; /* [n_devices] */
    struct nd_compared_pair *pairs;    /* [n_devices - 1] */
};

struct nd_compared_device {
    char *uri;
    char *label;   /* unique in the comparison */
    char *capture; /* path */
    char *chipset; /* "" when unknown, as the next ones */
    char *runtime;
    char *kind;
    enum nd_capture_status status;
    char *failure;    /* stage, operator and message of a failed device, or "" */
    size_t n_samples; /* over all probes */
    size_t n_samples_expected;
    size_t n_unstable_edges; /* edges with n_unstable > 0 */
    size_t n_cpu_edges;      /* edges with is_on_cpu */
    size_t first_edge;       /* first edge in graph order that differs from the reference, or SIZE_MAX */
    int class_id;            /* equal numbers: bit-equal on all edges; -1 without any data */
    int output_class_id;     /* the same over the model's outputs only */
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

/* Top-1 of one probe at one output of the model with at least two elements. */
struct nd_top1 {
    size_t edge;
    size_t probe;
    bool has_labels;
    char *labels_missing_reason;    /* why labels that exist are not used, or NULL */
    struct nd_top1_device *devices; /* [n_devices] */
    struct nd_top1_pair *pairs;     /* [n_devices - 1] */
};

struct nd_comparison {
    size_t struct_size;
    enum nd_verdict verdict;
    bool has_gates;
    bool different_models; /* allowed by the options */
    size_t n_devices, n_edges, n_probes, n_top1;
    struct nd_compared_device *devices;
    struct nd_compared_edge *edges; /* graph order of captures[0], then edges that only others have */
    struct nd_compared_probe *probes;
    struct nd_top1 *top1;
    char *classes_text;        /* "cpu | gen1 | gen3 = gen4" over all edges */
    char *output_classes_text; /* the same over the model's outputs */
    size_t first_edge;         /* first edge on which devices differ, or SIZE_MAX */
    size_t first_test;         /* the first device that differs from the reference there, or SIZE_MAX */
};

/* Compares captures[1..n-1] with captures[0]. Everything in *out is owned by it: the captures may be closed.
 * ND_ERR_USAGE: n < 2, or a gate that names no tensor or one it cannot apply to (ND_E_COMPARE_GATE).
 * ND_ERR_NOT_COMPARABLE: different models (ND_E_COMPARE_MODEL), or nothing in common although no device failed
 * (ND_E_COMPARE_NOTHING). ND_ERR_FORMAT: digests differ but the stored bytes do not (ND_E_CAPTURE_DIGEST), or
 * what reading a capture returns. ND_ERR_IO, ND_ERR_MEMORY. options NULL: the defaults. */
ND_PUBLIC enum nd_status nd_compare_captures(const struct nd_capture *const *captures, size_t n,
                                             const struct nd_compare_options *options,
                                             struct nd_comparison **out, struct nd_error *err);
ND_PUBLIC void nd_comparison_destroy(struct nd_comparison **comparison);

#ifdef __cplusplus
}
#endif
#endif
