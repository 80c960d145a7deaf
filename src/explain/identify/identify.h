/* Which arithmetics (arithmetic/arithmetics/arithmetics.h) the quantised values of a layer leave possible: a
 * set, never a guess of one.
 *
 *     struct nd_identify_tally tally = {0};                    one per layer, or thread and layer
 *     ... nd_identify_layer(&tally, &layer, err) for every sample, in any order ...
 *     ... nd_identify_merge(&other, &tally) ...                the same whatever the order
 *     nd_identify_decide(&tally, &result);
 *     nd_identify_combine(results, n, &of_all);                layers that share one arithmetic
 *
 * An arithmetic costs ln(2 / eps) for every quantised value that it does not give and -ln(1 - eps / 2) for
 * every other one, and an arithmetic of chance the logarithm of what it gives the code: likelihoods with
 * contamination by +-1 of eps = 1 %, the least favourable of 0 .. 1 %, for what is excluded there is excluded
 * with any less. Not excluded are arithmetics whose cost is within ln(n_programs / alpha) of the best: the true
 * one is excluded with a probability of at most alpha = 1e-4 (Markov, over all arithmetics), which takes three
 * deciding elements more than the best leaves. Beside that an arithmetic is excluded when what it leaves is no
 * contamination: more than 1 % of all quantised values, or on one side (a flip goes up as often as down, so
 * that half of them are beside the value), or, of chance, a curve P(up | fraction) that it does not have. When
 * none is left, no arithmetic of the table is the device's.
 *
 * Arithmetics that gave equal quantised values on everything seen are one class; a verdict is single when the
 * set has one class. What is not applicable to a layer is neither excluded nor counted.
 * docs/science/theory.md#arithmetics. */
#pragma once

#include "arithmetic/arithmetics/arithmetics.h"
#include "arithmetic/exact/eval_graph.h"
#include "arithmetic/trials/layer_trial.h"
#include "npudiff/explain/explain.h"
#include "npudiff/model/model.h"

/* ---- layers that are no sums of products, and have a sum and a multiplier in the specifications of
 * TensorFlow Lite and of TOSA all the same: means, LeakyRelu and Mul (arithmetic/arithmetics/requantise.h)
 * ---- */

/* sum * step is the real value. step 0: the layer is none of these. */
struct nd_specified_sum {
    double step;       /* the product of the inputs' scales, over n_averaged */
    double n_averaged; /* of a mean: how many numbers; 1 of a product of two; 0: neither */
    double slope;      /* of a LeakyRelu: alpha; 0: none */
};

/* Of the layer that makes the tensor: a GlobalAveragePool, a ReduceMean or a LeakyRelu of one quantised tensor,
 * or a Mul of two, with one scale each, whose shapes are known. */
struct nd_specified_sum nd_specified_sum_of(const struct nd_model *model, size_t tensor);

enum {
    ND_IDENTIFY_BINS = 32,     /* of the fraction */
    ND_IDENTIFY_BINADES = 18,  /* of |v|: below 1, 1 to 2, 2 to 4 ... */
    ND_IDENTIFY_CHANNELS = 32, /* layers with more have no brackets by channel */
    ND_IDENTIFY_MIN = 64,      /* quantised values that are not whole and not clipped: fewer decide nothing */
};

/* The threshold above which fractions are rounded up lies in (max_down, min_up]; with n_down or n_up 0 that end
 * is open. Crossed (max_down >= min_up): no threshold, or contamination. */
struct nd_identify_bracket {
    uint64_t n_down, n_up;
    double max_down, min_up;
};

struct nd_identify_tally {
    uint64_t n;          /* quantised values */
    uint64_t n_open;     /* not whole, not clipped */
    uint64_t n_deciding; /* on which applicable arithmetics differ */
    uint64_t n_far;      /* open ones that are neither of the two whole numbers beside the value */
    /* By arithmetic. */
    uint64_t n_seen[ND_ARITHMETIC_MAX]; /* quantised values but whole numbers that every arithmetic gives; 0:
                                           not applicable */
    uint64_t
        n_wrong[ND_ARITHMETIC_MAX]; /* quantised values that it does not give, or not with any probability */
    uint64_t n_apart[ND_ARITHMETIC_MAX];  /* quantised values that are others than those of the arithmetic
                                             `against` */
    uint64_t n_inner[ND_ARITHMETIC_MAX];  /* of n_wrong, where a flip could have gone both ways */
    uint64_t n_beside[ND_ARITHMETIC_MAX]; /* and of these, a whole number beside the value */
    int64_t chance[ND_ARITHMETIC_MAX];    /* of arithmetics of chance: the cost, in 2^-20 nats */
    uint64_t signature[ND_ARITHMETIC_MAX];
    /* Of open quantised values that are a whole number beside the value. */
    uint64_t bin_n[ND_IDENTIFY_BINS], bin_up[ND_IDENTIFY_BINS];
    struct nd_identify_bracket binades[2][ND_IDENTIFY_BINADES]; /* [v < 0] */
    struct nd_identify_bracket channels[ND_IDENTIFY_CHANNELS];
    size_t n_channels; /* 0: too many */
};

/* One sample of one layer. Borrowed for the call. */
struct nd_identify_sample {
    const struct nd_exact_values *values;
    const double *given; /* [values->n] the device's quantised values */
    uint64_t key; /* another one for every sample of the layer, or quantised values count as seen twice */
    /* Of nd_exact_accumulator_steps; n_steps 0: the layer has no accumulator. Its channels lie along axis 1 of
     * a Conv, else along the last axis. */
    const struct nd_wide *steps;
    size_t n_steps;
    bool is_conv;
    struct nd_specified_sum specified; /* without steps: what the layer has a sum for; step 0: nothing */
    size_t against;                    /* of nd_arithmetics: what n_apart is counted against; 0: half-even */
    size_t only;                       /* 1 + the arithmetic that alone is counted; 0: all are */
    const struct nd_ratio *fused;      /* [values->n] v when inputs were not requantised, or NULL */
};

/* ND_ERR_MEMORY. */
enum nd_status nd_identify_layer(struct nd_identify_tally *tally, const struct nd_identify_sample *sample,
                                 struct nd_error *err);
void nd_identify_merge(const struct nd_identify_tally *from, struct nd_identify_tally *to);

enum nd_identify_verdict {
    ND_IDENTIFY_TOO_FEW, /* codes: nothing is said */
    ND_IDENTIFY_NONE,    /* of the table */
    ND_IDENTIFY_SEVERAL, /* classes are left */
    ND_IDENTIFY_SINGLE,  /* one is */
};

struct nd_identify_result {
    enum nd_identify_verdict verdict;
    size_t n_arithmetics; /* of nd_arithmetics */
    bool is_applicable[ND_ARITHMETIC_MAX];
    bool is_possible[ND_ARITHMETIC_MAX]; /* not excluded; also what is not applicable */
    size_t class_of[ND_ARITHMETIC_MAX];  /* the first arithmetic that gave equal quantised values on everything
                                            seen */
    size_t n_classes;                    /* of those that are applicable and possible */
    size_t best;                         /* the least cost; SIZE_MAX: nothing is applicable */
    uint64_t n, n_open, n_deciding;
    uint64_t n_seen[ND_ARITHMETIC_MAX], n_wrong[ND_ARITHMETIC_MAX];
    double cost[ND_ARITHMETIC_MAX]; /* nats */
    double explained; /* 1 - wrong of the best / wrong of half-even; NaN where half-even is never wrong */
    bool is_split;    /* of several layers: each has arithmetics left, but no arithmetic is left to all */
};

void nd_identify_decide(const struct nd_identify_tally *tally, struct nd_identify_result *out);

/* Layers that share one arithmetic: what is not excluded in any of them. Layers with too few quantised values
 * exclude nothing. n 0 is ND_IDENTIFY_TOO_FEW. */
void nd_identify_combine(const struct nd_identify_result *results, size_t n, struct nd_identify_result *out);

/* The same from what was counted in them, and from their quantised values taken together, as a few deciding
 * quantised values of many layers are enough. ND_ERR_MEMORY. */
enum nd_status nd_identify_group(const struct nd_identify_tally *const *layers, size_t n,
                                 struct nd_identify_result *out, struct nd_error *err);

/* P(up | fraction) in a bin with its 95 % interval of Clopper and Pearson; NaN, 0 and 1 where the bin is empty.
 */
struct nd_identify_point {
    uint64_t n;
    double p, low, high;
};
struct nd_identify_point nd_identify_curve(const struct nd_identify_tally *tally, size_t bin);
/* Of all quantised values of one sign, over all binades. */
struct nd_identify_bracket nd_identify_threshold(const struct nd_identify_tally *tally, bool is_negative);

#define ND_IDENTIFY_CONTAMINATION 0.01 /* the most, by +-1 */
#define ND_IDENTIFY_NATS 0x1p20        /* how costs are counted */
#define ND_IDENTIFY_ALPHA 1e-4         /* how often the true arithmetic is excluded, at most */

/* ---- what nd_identify_captures makes: which arithmetics the captures leave possible. identify_captures.c
 * counts, identify_captures.c decides, report/ writes it ---- */

/* What is said of a layer, of the layers of one operator type, or of a device. */
struct nd_answer {
    struct nd_identify_result result;
    const char *verdict; /* "too-few", "none", "several", "single". Static */
    uint64_t exceptions; /* quantised values that the best arithmetic does not give; where it is not applicable,
                            half-even does not */
    uint64_t reference;  /* quantised values that half-even does not give */
    double explained;    /* 1 - exceptions / reference; NaN without a reference */
    struct nd_other_tally whole; /* n and wrong, by arithmetic of whole layers */
};

/* One layer, in any step of the model; what is no layer is left zeroed. */
struct nd_identified_layer {
    char *name, *op_types;
    bool is_layer, is_conv;
    bool is_double;        /* evaluated in double precision */
    bool is_changing;      /* from run to run: then nothing is counted */
    bool has_fed;          /* of those, its inputs change as well */
    char *why_not;         /* it cannot be looked at in some probe; NULL: it could in all */
    struct nd_wide *steps; /* of its accumulator; NULL without one */
    size_t n_steps;
    struct nd_specified_sum specified;
    struct nd_identify_tally tally;
    struct nd_layer_tally as_whole; /* by arithmetic of whole layers */
    struct nd_answer *answer;       /* NULL: nothing was counted */
};

struct nd_identified_type {
    const char *op_types; /* borrowed from a layer */
    size_t n_layers;
    struct nd_answer answer;
};

struct nd_identified_probe {
    char *name;
    size_t n_samples;
};

struct nd_identified_device {
    char *uri, *chipset, *capture;
    char *failure; /* NULL: it did not fail */
    size_t n_probes;
    struct nd_identified_probe *probes;
    size_t n_layers;
    struct nd_identified_layer *layers; /* [n_units] one for every step, or none */
    uint64_t n_samples;                 /* of all probes */
    size_t n_types;
    struct nd_identified_type *types; /* [n_types] in the order of their first layers */
    struct nd_answer *answer;         /* of all types; NULL when it failed */
};

struct nd_identification {
    size_t n_devices;
    struct nd_identified_device *devices;
};

/* Whether the arithmetic is one that is not excluded. */
bool nd_identified_is_left(const struct nd_identify_result *result, size_t arithmetic);
/* The classes of arithmetics that are not excluded, by the first arithmetic of each: the one after that one,
 * SIZE_MAX for the first. SIZE_MAX: there is none, as always with too few quantised values. */
size_t nd_identified_next_class(const struct nd_identify_result *result, size_t after);
/* There is no threshold, or contamination. */
bool nd_identified_is_crossed(const struct nd_identify_bracket *bracket);
/* Of a layer without an answer. */
const char *nd_identified_why_not(const struct nd_identified_layer *layer);
