/* What a capture says beside its tensors: where each node ran (placement), how long the runs took
 * (latency), with which settings (configuration), and how encodings fit its values.
 *
 * Every function is thread safe, and what it returns does not change.
 *
 * Example:
 *
 *     static void print_latency(const struct nd_capture *capture)
 *     {
 *         struct nd_latency latency;
 *         struct nd_error err;
 *         if (nd_latency_of_capture(capture, 0, NULL, &latency, &err) == ND_OK)
 *             printf("median %g us: %s\n", latency.median_us, nd_latency_verdict_name(latency.verdict));
 *         else
 *             fprintf(stderr, "%s\n", err.message);
 *     }
 *
 * Stability: unstable. Until version 1.0 every minor version may change what is declared here; programs
 * that use it are compiled again. */
#ifndef NPUDIFF_EVIDENCE_H
#define NPUDIFF_EVIDENCE_H

#include "npudiff/capture.h"
#include "npudiff/encodings.h"
#include "npudiff/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- placement ---- */

enum nd_where {
    ND_WHERE_UNKNOWN, /* nothing that was recorded tells */
    ND_WHERE_NPU,
    ND_WHERE_OFF, /* on another provider */
};

/* "unknown", "npu", "off". Static storage. */
ND_PUBLIC const char *nd_where_name(enum nd_where where);

/* A node of the model, or one that the runtime or provider added. */
struct nd_placed_node {
    const char *name;
    const char *op_type;
    const char *domain;
    const char *provider;   /* "" unknown */
    const char *renamed_to; /* what the assignment calls it, where that is another name; else "" */
    enum nd_where where;
    size_t model_node;       /* index in the model; SIZE_MAX: added, or there is no model */
    bool is_io_quantisation; /* may run on the CPU, as nd_model_node says */
    bool is_constant;        /* computed from constants: folded away when the session is made */
    bool is_inferred;     /* not in the assignment, but the provider follows: it lies between nodes of one fused
                             piece, or all unknown nodes of its operator are on one provider, or a profile names
                             it. It may also be gone */
    bool is_contradicted; /* the profile has a kernel of it on another provider than the assignment says */
    const char *profile_provider; /* what the profile says; "" when it has no kernel of this name */
    double profile_us;            /* per run, without the first; NaN when the profile has no kernel of it */
    double flops;                 /* of one inference; NaN: a shape or the operator is not known */
    size_t piece;                 /* SIZE_MAX: in none */
};

/* A quantised (or float) edge of the model: where the unit ran that makes it. */
struct nd_placed_edge {
    const char *name;
    const char *provider; /* "" unknown */
    enum nd_where where;
};

/* Nodes that run together: a fused subgraph of the NPU's provider, or connected nodes of another provider that
 * no other piece lies between. */
struct nd_placed_piece {
    const char *provider;
    const char *first_node; /* in execution order */
    const char *last_node;
    enum nd_where where;
    bool is_io_quantisation; /* nothing but that, on another provider: as intended */
    size_t n_nodes;
    double flops;     /* of those of its nodes whose FLOPs are known */
    double us;        /* per run, without the first; NaN where the profile does not tell */
    double bytes_in;  /* per inference from other pieces and the host; NaN where a size is not known */
    double bytes_out; /* to other pieces and the host */
};

/* Tensors that one piece hands to another. */
struct nd_placed_cut {
    size_t from, to;    /* pieces */
    size_t n_tensors;   /* each counted once */
    size_t n_unsized;   /* of them: size not known */
    double bytes;       /* per inference, of the others */
    const char *tensor; /* the first */
};

/* How much of the model runs on the NPU: 0 .. 1, NaN where it cannot be told. */
struct nd_npu_share {
    double nodes;        /* of the nodes whose place is known, without constants and I/O quantisation; without a
                            model also without QuantizeLinear and DequantizeLinear */
    double flops;        /* of the FLOPs of those nodes */
    double time;         /* of the time of all kernels in the profile, without the first run */
    size_t n_npu, n_off; /* nodes that count above */
    size_t n_unknown;    /* nodes whose place is not known; not in any share */
    size_t n_unsized;    /* nodes of known place whose FLOPs are not known; not in the share of FLOPs */
    size_t n_runs;       /* of the profile, without the first */
    double npu_us, all_us; /* per run; NaN without a profile */
};

/* Events of the provider's own profile (its CSV), summed by identifier. */
struct nd_provider_event {
    const char *message;    /* "EXECUTE", "NODE", ... */
    const char *identifier; /* "" where it was NULL */
    const char *unit;       /* "US", "CYCLES", ... */
    size_t n;
    double total;
};

struct nd_placement_report {
    bool is_npu;                 /* the device is meant to be an NPU */
    const char *wanted_provider; /* "" for a device without one */
    struct nd_npu_share share;
    size_t n_nodes;
    const struct nd_placed_node *nodes; /* the model's, in graph order, then those that were added */
    size_t n_edges;
    const struct nd_placed_edge *edges; /* as the capture has them */
    size_t n_pieces;
    const struct nd_placed_piece *pieces; /* in execution order */
    size_t n_cuts;
    const struct nd_placed_cut *cuts; /* by from, then to */
    size_t n_events;
    const struct nd_provider_event *events;
    /* What could not be used and why: a profile that is cut off, a CSV of another version. */
    size_t n_problems;
    const char *const *problems;
};

/* What the capture says of where the model's nodes ran: from its nodes, its log "profile" (ONNX Runtime's JSON)
 * and its log "qnn-profile" (the provider's CSV). Kernels are told apart by their provider, never by name.
 *
 * model may be NULL: then the nodes are those of the capture as they are, FLOPs are NaN and there are no
 * pieces. A node of the model that the assignment does not name is unknown, never "on the CPU". A node that was
 * renamed
 * ("NAME_token_N") is matched when exactly one node of the same operator claims the name.
 *
 * FLOPs, of one inference: Conv 2 N Co Ho Wo (Ci/g) k; ConvTranspose 2 N Ci Hi Wi (Co/g) k; Gemm, MatMul 2 M N
 * K for every batch; Einsum of two operands 2 times the product of all its dimensions; element-wise 1 per
 * element; pooling k per output; reductions 1 per input; Softmax 5, normalisations 8 per element; movement of
 * data 0. QuantizeLinear and DequantizeLinear are element-wise. A model whose shapes are not declared gets them
 * by propagation where that is plain.
 *
 * A profile that cannot be read is a problem in *out, not an error: its share is NaN. ND_ERR_NOT_COMPARABLE
 * (ND_E_COMPARE_MODEL) when the capture is of another model; ND_ERR_MEMORY. The caller calls
 * nd_placement_destroy; both model and capture must outlive *out. */
ND_PUBLIC enum nd_status nd_placement_examine(const struct nd_model *model, const struct nd_capture *capture,
                                              struct nd_placement_report **out, struct nd_error *err);

/* Frees the report and sets *report to NULL; NULL in *report is accepted. */
ND_PUBLIC void nd_placement_destroy(struct nd_placement_report **report);

/* ---- latency ---- */

enum {
    ND_LATENCY_MIN_RUNS = 200, /* for a verdict; at most a tenth of them warm-up */
    ND_LATENCY_MAX_RUNS = 10000000,
    ND_LATENCY_MAX_CHANGES = 16,
};

/* A value of n_warm_up: find out how many runs that are. */
#define ND_LATENCY_DETECT SIZE_MAX

enum nd_latency_verdict {
    ND_LATENCY_TOO_FEW,    /* too few runs, or none recorded, and no overwhelming evidence: no verdict */
    ND_LATENCY_UNIMODAL,   /* nothing suspicious */
    ND_LATENCY_TWO_MODES,  /* runs are of two kinds, mixed in time */
    ND_LATENCY_REGIMES,    /* the level changes at points in time: clock, throttling, another load */
    ND_LATENCY_NOT_STEADY, /* the upper end of the CV's interval is above suspect_cv */
};

/* "too few", "unimodal", "two modes", "regimes in time", "not steady". Static storage. */
ND_PUBLIC const char *nd_latency_verdict_name(enum nd_latency_verdict verdict);

struct nd_latency_options {
    size_t struct_size;
    size_t n_warm_up;  /* first runs that are set apart; ND_LATENCY_DETECT */
    size_t min_runs;   /* for a verdict without overwhelming evidence; at least 2 */
    double healthy_cv; /* the field's rule: a CV up to here is healthy */
    double suspect_cv; /* and one that is surely above this one makes a fallback likely */
    double min_step;   /* a change of level by less than this part is none that matters */
    uint64_t seed;     /* of the bootstrap and of the jitter */
};

/* The defaults: ND_LATENCY_DETECT, ND_LATENCY_MIN_RUNS, 0.05, 0.15, 0.02, 1. */
ND_PUBLIC void nd_latency_options_init_sized(struct nd_latency_options *options, size_t struct_size);
static inline void nd_latency_options_init(struct nd_latency_options *options)
{
    nd_latency_options_init_sized(options, sizeof *options);
}

struct nd_latency_mode {
    double median_us;
    double weight; /* of the fitted mixture */
    size_t n;      /* timed runs on its side of the boundary */
};

struct nd_latency_change {
    size_t run;                 /* the first of the new level: index into what was given */
    double before_us, after_us; /* medians of the stretches next to it */
    double p; /* for no change, corrected for all places where it could be and for autocorrelation; at most 1 */
};

/* How the slow runs were recognised. */
enum nd_latency_slow { ND_SLOW_NONE, ND_SLOW_MODE, ND_SLOW_REGIME, ND_SLOW_TAIL };

enum nd_latency_join_state {
    ND_JOIN_NOT_ASKED,  /* latencies without a capture */
    ND_JOIN_NO_REPEATS, /* one repeat: no two runs of the same sample */
    ND_JOIN_NO_SLOW,    /* no run stands apart */
    ND_JOIN_KNOWN,
};

/* Do slow runs give other bits than the fast runs of the same sample? The reference of a sample is the digest
 * that most of its fast runs gave (of equals the earliest); samples without a fast run are left out. */
struct nd_latency_join {
    enum nd_latency_join_state state;
    size_t n_slow, n_slow_other; /* other: any of the edges has another digest */
    size_t n_fast, n_fast_other;
    double p;          /* Fisher's exact test, one-sided: slow runs differ more often; NaN unless known */
    size_t n_edges;    /* of the capture */
    size_t n_tied;     /* edges with p < 0.01 each after Bonferroni over the edges */
    size_t first_tied; /* the first of them in graph order; SIZE_MAX: none */
};

/* Times are microseconds. What is not known is NaN. */
struct nd_latency {
    size_t n;              /* values given */
    size_t n_not_recorded; /* of them NaN: left out */
    double first_us;       /* the first run that was recorded */
    size_t n_warm_up;      /* recorded runs set apart at the start, the first among them */
    double warm_up_median_us;
    size_t n_timed; /* the others, which all below are about */
    double mean_us, median_us, min_us, max_us;
    double mad_us; /* median absolute deviation from the median, not scaled */
    double p50_us, p90_us, p99_us;
    double cv, cv_low, cv_high; /* standard deviation / mean and its 95 % interval */
    double autocorrelation;     /* at lag 1 */
    double tick_us;             /* of the timer, where equal values show one; else 0 */

    size_t n_changes; /* at most ND_LATENCY_MAX_CHANGES: of more the coarsest */
    struct nd_latency_change changes[ND_LATENCY_MAX_CHANGES];
    double level_autocorrelation; /* what is left of it within the levels */
    size_t n_thin; /* the modes are looked for in every n_thin-th run: 1 unless that is above 0.3 */

    bool is_bimodal;  /* TWO_MODES on the evidence below, also where the verdict is TOO_FEW */
    bool is_mixture;  /* the mixture of two Gaussians on log latency is accepted */
    bool is_dip;      /* the dip test refuses unimodality at 1 % */
    double delta_bic; /* against the better of one Gaussian and one shifted log-normal, for the mixture */
    double ashman_d;
    double minor_weight;
    double dip, dip_limit;
    struct nd_latency_mode modes[2]; /* fast, slow; zero unless is_bimodal */
    size_t n_tail; /* runs far from the rest, at most 5 % of all: a tail, not a mode; not in the modes */

    enum nd_latency_slow slow; /* what tells the slow runs of join */
    struct nd_latency_join join;
    enum nd_latency_verdict verdict;
    bool is_suspect; /* two modes, regimes in time, not steady, or slow runs that give other bits */
};

/* Examines n latencies in the order of the runs. docs/science/latency.md gives every formula and how often each
 * verdict is wrong. NaN: not recorded, left out. n may be 0 (TOO_FEW). options NULL: the defaults. The result
 * depends on the values and options only. ND_ERR_FORMAT: a latency that is zero, negative or infinite (the
 * message has its index); ND_ERR_USAGE: options that contradict themselves, more than ND_LATENCY_MAX_RUNS
 * values; ND_ERR_MEMORY. *out is untouched on failure. */
ND_PUBLIC enum nd_status nd_latency_examine(const double *us, size_t n,
                                            const struct nd_latency_options *options, struct nd_latency *out,
                                            struct nd_error *err);

/* The same for a probe of a capture, sample by sample, each with its repeats, and joined with the digests. A
 * capture that recorded no time at all is TOO_FEW with n_not_recorded = n. */
ND_PUBLIC enum nd_status nd_latency_of_capture(const struct nd_capture *capture, size_t probe,
                                               const struct nd_latency_options *options, struct nd_latency *out,
                                               struct nd_error *err);

/* Latencies that another tool measured. */
struct nd_latency_list {
    double *us;
    size_t n;
    const char *format; /* "text", "csv", "json", "ai-hub", "npy", "npz"; static storage */
};

/* Reads a list in any of these forms, told by the content (.npy and .npz by the name):
 *   text     one number a line, '#' comments, blank lines
 *   CSV      a header, then rows; `column` chooses, NULL takes the only one
 *   JSON     an array of numbers, or an object with `column` (a dotted path) as such an array
 *   AI Hub   a profile job: execution_summary.all_inference_times
 *   .npy     one array of floats or integers, any shape; .npz: its only array, or the one named `column`
 * unit: "ns", "us", "ms" or "s", or NULL for microseconds. Text is UTF-8, with or without a byte order mark.
 * ND_ERR_IO: cannot be read; ND_ERR_FORMAT: no number (the message has the line), zero, negative or infinite,
 * empty, another encoding; ND_ERR_NOT_FOUND: no such column (the message lists those that there are);
 * ND_ERR_USAGE: an unknown unit; ND_ERR_MEMORY: more than ND_LATENCY_MAX_RUNS numbers. The caller frees out->us
 * by nd_latency_list_deinit. */
ND_PUBLIC enum nd_status nd_latency_read(const char *path, const char *column, const char *unit,
                                         struct nd_latency_list *out, struct nd_error *err);
ND_PUBLIC void nd_latency_list_deinit(struct nd_latency_list *list);

/* How often the field's rule calls a healthy series not steady: measured by tools/score_latency. */
struct nd_latency_rate {
    const char *series; /* "normal, CV 0.05" */
    size_t n_runs;
    double false_alarms; /* share of the series whose upper CV is above 0.15 */
};
/* A table that ends with a NULL series. Static storage. */
ND_PUBLIC const struct nd_latency_rate *nd_latency_rule_rates(void);

/* ---- configuration ---- */

/* What is known of a setting. */
enum nd_config_effect {
    ND_CONFIG_UNKNOWN,
    ND_CONFIG_BITS,        /* it can change results: stated by the vendor, or measured */
    ND_CONFIG_PERFORMANCE, /* it changes how fast, not what */
};

/* "not known", "can change bits", "performance only". Static. */
ND_PUBLIC const char *nd_config_effect_name(enum nd_config_effect effect);

/* What the one table of settings says of a key ("runtime.option_vtcm_mb", "htp.graphs[0].O"): its last part
 * decides. */
ND_PUBLIC enum nd_config_effect nd_config_effect_of(const char *key);

struct nd_config_item {
    char *key; /* "device.soc_model", "runtime.optimisation", "library.libQnnHtp.so", "htp.graphs[0].O" */
    char *value;
    enum nd_config_effect effect;
};

/* What a capture says of how its results were made: device, runtime with provider options, loaded libraries (by
 * build id, else SHA-256), processor, and the HTP configuration stored with it, flattened. Sorted bytewise by
 * key. */
struct nd_config {
    size_t n;
    struct nd_config_item *items;
};

/* ND_ERR_FORMAT when the capture's HTP configuration is no JSON. The caller frees *out with nd_config_deinit.
 */
ND_PUBLIC enum nd_status nd_config_of_capture(const struct nd_capture *capture, struct nd_config *out,
                                              struct nd_error *err);
ND_PUBLIC void nd_config_deinit(struct nd_config *config);

/* A setting that two captures have not in common. The texts are owned; NULL: not set on that side. */
struct nd_config_change {
    char *key;
    char *ref;
    char *test;
    enum nd_config_effect effect;
};

struct nd_config_diff {
    size_t n;
    size_t n_bits; /* how many of them can change bits */
    struct nd_config_change
        *changes; /* those that can change bits first, then unknown ones, each sorted by key */
};

/* What differs between the configurations of two captures. Errors as nd_config_of_capture. Thread safe. */
ND_PUBLIC enum nd_status nd_config_diff(const struct nd_capture *ref, const struct nd_capture *test,
                                        struct nd_config_diff *out, struct nd_error *err);
ND_PUBLIC void nd_config_diff_deinit(struct nd_config_diff *diff);

/* An HTP configuration as qnn-net-run and the QNN samples take it: FILE given to --config_file, which names
 * another one in backend_extensions.config_file_path; or that other one alone. Texts are whole files, owned. */
struct nd_htp_config {
    char *outer; /* NULL when the file is the inner one */
    char *inner; /* with "graphs", "devices", ... ; NULL when the outer one names none */
};

/* Reads both, each of at most 32 KiB; a relative path is looked for in the folder of the outer file, then in
 * the current one. ND_ERR_IO: cannot be read; ND_ERR_FORMAT: no JSON object (with line and column). */
ND_PUBLIC enum nd_status nd_htp_config_read(const char *path, struct nd_htp_config *out, struct nd_error *err);
ND_PUBLIC void nd_htp_config_deinit(struct nd_htp_config *config);

/* ---- encodings and captured values ---- */

/* How one encoding fits what a capture holds of its tensor, over all probes and samples. */
struct nd_encoding_use {
    const struct nd_encoding *encoding; /* borrowed */
    size_t edge;                        /* of the capture; SIZE_MAX: it has none of that name */
    bool is_stated_same;                /* the edge's own scale and zero point say the same reals */
    bool has_values;                    /* they are stored, and of a type that can be looked at */
    uint64_t n_elements;                /* NaN left out */
    uint64_t n_nan;
    double lowest, highest; /* real values that occur */
    double low_share;       /* of elements at or below the lowest real that the encoding can express */
    double high_share;      /* at or above the highest */
    double used_range; /* (highest - lowest + step) / whole range, in codes; per channel: of the best used */
};

struct nd_encodings_check {
    size_t n_used;
    struct nd_encoding_use
        *uses; /* of every handled encoding that is no parameter, in the order of the encodings */
    size_t n_without;
    size_t *without; /* edges of the capture that are quantised and have no encoding */
};

/* Looks at captured codes (as the capture's own scale and zero point mean them) or floats. A channel of an
 * encoding per channel counts with its own range. ND_ERR_FORMAT: chunks that cannot be decoded, or another
 * number of channels than the edge has; ND_ERR_IO. The caller frees *out with nd_encodings_check_deinit. */
ND_PUBLIC enum nd_status nd_encodings_check(const struct nd_encodings *encodings,
                                            const struct nd_capture *capture, struct nd_encodings_check *out,
                                            struct nd_error *err);
ND_PUBLIC void nd_encodings_check_deinit(struct nd_encodings_check *check);

/* Where the model of the capture is: the path that it was captured from or, in the current folder, a file of
 * that name; NULL where neither can be read. Lives as long as the capture. */
ND_PUBLIC const char *nd_capture_model_path(const struct nd_capture *capture);

#ifdef __cplusplus
}
#endif
#endif
