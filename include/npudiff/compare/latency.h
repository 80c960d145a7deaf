/* How long the runs of a capture took.
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
#ifndef NPUDIFF_LATENCY_H
#define NPUDIFF_LATENCY_H

#include "npudiff/capture/capture.h"

#ifdef __cplusplus
extern "C" {
#endif

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
    size_t n_slow, n_slow_other; /* other: any of the tensors has another digest */
    size_t n_fast, n_fast_other;
    double p;          /* Fisher's exact test, one-sided: slow runs differ more often; NaN unless known */
    size_t n_tensors;  /* of the capture */
    size_t n_tied;     /* tensors with p < 0.01 each after Bonferroni over the tensors */
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
    const char *format; /* "text", "csv", "json", "ai-hub", "ort-profile", "npy", "npz"; static storage */
    char *where;        /* a sentence on that; NULL: no profile */
};

/* Reads a list in any of these forms, told by the content (.npy and .npz by the name):
 *   text     one number a line, '#' comments, blank lines
 *   CSV      a header, then rows; `column` chooses, NULL takes the only one
 *   JSON     an array of numbers, or an object with `column` (a dotted path) as such an array
 *   AI Hub   a profile job: execution_summary.all_inference_times
 *   profile  of ONNX Runtime (SessionOptions.enable_profiling): the times of its runs, always in microseconds
 *   .npy     one array of floats or integers, any shape; .npz: its only array, or the one named `column`
 * unit: "ns", "us", "ms" or "s", or NULL for microseconds. Text is UTF-8, with or without a byte order mark.
 * ND_ERR_IO: cannot be read; ND_ERR_FORMAT: no number (the message has the line), zero, negative or infinite,
 * empty, another encoding; ND_ERR_NOT_FOUND: no such column (the message lists those that there are);
 * ND_ERR_USAGE: an unknown unit; ND_ERR_MEMORY: more than ND_LATENCY_MAX_RUNS numbers. The caller frees
 * *out by nd_latency_list_deinit. */
ND_PUBLIC enum nd_status nd_latency_read(const char *path, const char *column, const char *unit,
                                         struct nd_latency_list *out, struct nd_error *err);
ND_PUBLIC void nd_latency_list_deinit(struct nd_latency_list *list);

/* How often the field's rule calls a healthy series not steady: measured by tools/studies/score_latency. */
struct nd_latency_rate {
    const char *series; /* "normal, CV 0.05" */
    size_t n_runs;
    double false_alarms; /* share of the series whose upper CV is above 0.15 */
};
/* A table that ends with a NULL series. Static storage. */
ND_PUBLIC const struct nd_latency_rate *nd_latency_rule_rates(void);

#ifdef __cplusplus
}
#endif
#endif
