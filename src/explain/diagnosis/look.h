/* What the recognisers share. There is one for each fault, each in the file of its subject, and one table of
 * them (diagnosis.c). A recogniser works out what the device would hold under its fault, element by element,
 * and hands that to the judge (judge.c). The judge knows two measures:
 *
 *     exact  quantised values whose exact values before rounding are known: a prediction is a span of quantised
 * values, and holds or not whole  other values: a prediction is near or not, and only elements that are far off
 * count
 *
 * Where a recogniser must ask more of the one than of the other, struct nd_criteria has both numbers. */
#pragma once

#include <math.h>

#include "explain/diagnosis/diagnosis.h"

/* Elements that a prediction must decide under the measure "whole", where each fits by chance once in four
 * times: chosen so that a healthy device passes. */
enum { ND_MIN_DECISIVE = 12 };

enum nd_measure { ND_MEASURE_EXACT, ND_MEASURE_WHOLE, ND_N_MEASURES };

/* What recognisers ask beside a prediction that holds. All chosen. Exact quantised values need less: a
 * quantised value that is no rounding of its exact value is wrong for certain, and no other quantised value
 * than the predicted one fits. */
struct nd_criteria {
    double min_explained;  /* share of the far elements. Whole: a fault that explains less than a third is not
                                why the tensor is wrong: rows that are constant because their values are all zero
                                behind a cliff were 6 to 16 % (tools/studies/score_dumps, seed 20261207) */
    size_t min_far;        /* elements far off, for one value everywhere */
    size_t min_window;     /* elements far off, for a window */
    double largest_window; /* share of a sample */
    double min_filled; /* share of the window that is far off: of what a Relu gives half is right by itself */
    bool is_room_for_steps; /* single steps of other arithmetic would hide a permutation from equality */
};

/* Evidence and what is counted of it once. */
struct nd_look {
    const struct nd_evidence *e;
    enum nd_measure measure;
    const struct nd_criteria *criteria;
    size_t n_total;
    double noise; /* LSB that count as nothing; whole: 0 */
    size_t n_known;
    size_t n_wrong;         /* of them, elements that are not as expected, but for the noise */
    size_t n_far;           /* of these, elements that no rounding explains: nd_is_far */
    size_t n_lost;          /* of n_far: not finite where the expected value is */
    double spread;          /* root mean square of the expected values about their mean */
    double far;             /* whole: a larger difference is no rounding */
    double low, high;       /* of the captured finite values */
    double lowest, highest; /* exact: quantised values of the type */
    double below, above; /* exact: the usual program's quantised value is in [value - below, value + above] */
    double *scratch, *scratch2; /* [n_total] each, one behind the other */
    struct nd_findings *out;
};

/* look.c. Counts; the look must be closed after ND_OK. ND_ERR_MEMORY. */
enum nd_status nd_look_open(const struct nd_evidence *e, double noise, struct nd_findings *out,
                            struct nd_look *look, struct nd_error *err);
void nd_look_close(struct nd_look *look);
static inline bool nd_is_exact(const struct nd_look *look)
{
    return look->measure == ND_MEASURE_EXACT;
}
/* Something is known of element i: its expected value is finite, and its exact one. */
static inline bool nd_is_known(const struct nd_look *look, size_t i)
{
    return isfinite(look->e->expected[i]) && (!nd_is_exact(look) || isfinite(look->e->exact[i]));
}
/* Not as expected. */
static inline bool nd_is_wrong(const struct nd_look *look, size_t i)
{
    return !(fabs(look->e->captured[i] - look->e->expected[i]) <= look->noise);
}
/* Clipped neither as expected nor as captured: only such a quantised value measures anything. */
bool nd_is_inside(const struct nd_look *look, size_t i);
/* Quantised values are further off than by the single steps that other arithmetic makes. Only then a fault may
 * be held against the quantised values with room for these: it would fit many a tensor of few quantised values.
 */
bool nd_has_far_qvalues(const struct nd_look *look);
/* Of element j of a sample; 0 without a quantisation. */
double nd_zero_point(const struct nd_look *look, size_t j);
/* 0, or the quantised value of 0. */
bool nd_is_zero(const struct nd_look *look, double x);
/* Exact: to the quantised values of the type. */
double nd_clip(const struct nd_look *look, double qvalue);
/* A unit in the last place at x of a type with that mantissa and least normal exponent. */
double nd_unit_at(double x, int mantissa_bits, int min_exponent);
/* The same of a float type, 0 at 0; of quantised values their step. */
double nd_spacing(enum nd_dtype dtype, double step, double x);
/* n_far of the far elements, as the share that a finding explains. */
double nd_share_of_far(const struct nd_look *look, size_t n_far);

/* Channels along an axis: element j belongs to channel j / inner % n. */
struct nd_axis {
    int axis;
    size_t n, inner;
};
/* The roundest number from least to most: of an end with that many zero bits at its end, the smallest, else the
 * largest. */
size_t nd_roundest(size_t least, size_t most, bool is_end);

struct nd_axis nd_axis_at(const struct nd_shape *shape, int axis);
/* The axes that may be the channels', likeliest first; returns how many. */
enum { ND_CHANNEL_AXES = 3 };
size_t nd_channel_axes(const struct nd_look *look, struct nd_axis out[ND_CHANNEL_AXES]);
size_t nd_channel_of(const struct nd_axis *axis, size_t j);

/* The k-th smallest part of x[0 .. n - 1], 0 <= part <= 1; sorts x. NaN when n is 0. */
double nd_look_quantile(double *x, size_t n, double part);
/* Root mean square about the mean of the finite ones of x - y (y NULL: of x); 0 of none. */
double nd_look_spread(const double *x, const double *y, size_t n);

/* What an element may hold under a fault; nothing is predicted where is_known is false (a sample before the
 * first). Under the measure "whole" low and high are one value. */
struct nd_span {
    bool is_known;
    double low, high;
};

struct nd_fault;
typedef struct nd_span (*nd_predict)(const struct nd_look *look, const struct nd_fault *f, size_t sample,
                                     size_t j);

/* A fault to try. kind, channel, axis and amount go into the finding; the rest is for predict. */
struct nd_fault {
    enum nd_fault_kind kind;
    size_t channel;
    int axis;
    double amount;
    nd_predict predict;
    double low, high;  /* captured values */
    size_t first, end; /* elements */
    ptrdiff_t shift;   /* elements or samples */
    int mode;          /* variants of a fault, private to its file */
    double room;       /* quantised values that are that far from the predicted one fit, too */
    const void *data;  /* private to its file */
};

/* A fault of the whole tensor. */
struct nd_fault nd_fault_of(enum nd_fault_kind kind, double amount, nd_predict predict);

/* judge.c. One value; NaN: nothing is predicted. */
struct nd_span nd_exactly(double x);
/* Exact: the quantised values that an arithmetic of the usual kind may give for a value, clipped. */
struct nd_span nd_qvalues_of(const struct nd_look *look, double value);
/* Finds look->below and above: how far the quantised values of the usual arithmetic lie from their exact
 * values. */
void nd_measure_arithmetic(struct nd_look *look);
/* Exact: span holds the quantised value, up to the noise. */
static inline bool nd_span_holds(const struct nd_look *look, struct nd_span span, double qvalue)
{
    return qvalue >= span.low - look->noise && qvalue <= span.high + look->noise;
}
/* Whole: how far element i may be off. */
static inline double nd_far_at(const struct nd_look *look, size_t i)
{
    return look->e->bound != NULL ? look->e->bound[i] : look->far;
}
/* Known, and further from the expected value than rounding goes: exact: a wrong quantised value that is no
 * rounding of the exact value; whole: beyond `far`, or lost. */
static inline bool nd_is_far(const struct nd_look *look, size_t i)
{
    const struct nd_evidence *e = look->e;
    if (!nd_is_known(look, i))
        return false;
    if (nd_is_exact(look))
        return nd_is_wrong(look, i) && !nd_span_holds(look, nd_qvalues_of(look, e->exact[i]), e->captured[i]);
    return !(fabs(e->captured[i] - e->expected[i]) <= nd_far_at(look, i));
}
/* Judges the fault and, when it holds, adds it to the findings while there is room. */
bool nd_try(const struct nd_look *look, const struct nd_fault *f, const char *fmt, ...) ND_PRINTF(3, 4);
/* Some of the far elements, spread over them. */
enum { ND_FEW = 64 };
struct nd_few {
    size_t n, at[ND_FEW];
};
struct nd_few nd_few_far(const struct nd_look *look);
/* "chance about 10^-8"; of less than 10^-30 "chance below 10^-30". Returns text. */
enum { ND_CHANCE_BYTES = 40 };
const char *nd_say_chance(double chance, char text[ND_CHANCE_BYTES]);
/* Before a fault with many variants is judged: whether three quarters of these few elements, of which something
 * is predicted, are nearer to the prediction than to what was expected. A variant that holds is. */
bool nd_is_worth_trying(const struct nd_look *look, const struct nd_fault *f, const struct nd_few *few);
/* Adds without judging. explained, chance: as in struct nd_finding. */
void nd_add(const struct nd_look *look, const struct nd_finding *finding, const char *fmt, ...) ND_PRINTF(3, 4);
struct nd_finding nd_finding_of(const struct nd_look *look, enum nd_fault_kind kind, double amount,
                                double explained, double chance);
bool nd_is_found(const struct nd_look *look);

/* multiples.c. The step whose multiples all x [n_total] are; 0: none that they show. chance: base 10 logarithm
 * that it is no step of its own; 0 where it is a power of ten, which text has, too. Overwrites scratch. */
struct nd_own_step {
    double step, chance;
};
struct nd_own_step nd_find_own_step(const struct nd_look *look, const double *x);
/* cliff.c. Where the captured values' type ends, as real numbers; of floats infinite. */
void nd_ends_of_type(const struct nd_evidence *e, double *low, double *high);

/* The recognisers of the table, each adds what it finds. */
typedef void (*nd_recogniser)(const struct nd_look *look);
void nd_try_scales(const struct nd_look *look);
void nd_try_channels(const struct nd_look *look);
/* The test is a line of the reference: its sign, a factor, an offset or both, of all values or of each channel.
 */
void nd_try_relations(const struct nd_look *look);
void nd_try_clamp(const struct nd_look *look);
void nd_try_cliff(const struct nd_look *look);
void nd_try_wrap(const struct nd_look *look);
void nd_try_lost_clip(const struct nd_look *look);
void nd_try_window(const struct nd_look *look);
void nd_try_unwritten(const struct nd_look *look);
void nd_try_constant_channels(const struct nd_look *look);
void nd_try_lines(const struct nd_look *look);
/* Every line (row, column, slice) along an axis holds the values of the line one or a few before or after it.
 */
void nd_try_lines_on(const struct nd_look *look);
void nd_try_shifts(const struct nd_look *look);
void nd_try_padded(const struct nd_look *look);
void nd_try_axes(const struct nd_look *look);
void nd_try_elsewhere(const struct nd_look *look);
void nd_try_grid(const struct nd_look *look);
void nd_try_multiples(const struct nd_look *look);
void nd_try_truncation(const struct nd_look *look);
void nd_try_ties(const struct nd_look *look);
void nd_try_step(const struct nd_look *look);
void nd_try_comparison(const struct nd_look *look);
