/* Which fault makes the values of one device differ from what they should be.
 *
 * One table of recognisers (diagnosis.c) serves quantised values and floats. It knows nothing of captures and
 * models: what the values should be is what the layer's exact arithmetic gives, or what another device, the
 * quantised reference or the float model has in the same elements. Two measures judge a fault (look.h has the
 * numbers):
 *
 *   exact  The exact values before rounding are known. Only quantised values that differ from `expected`
 * ("wrong") are evidence. A fault is named when under it at least 99 % of the wrong quantised values become
 * right and (almost) no right one becomes wrong. The simplest of those that do so comes first: faults without
 * free numbers, then one number for the whole tensor, then one channel's, then memory and layout. Others that
 * explain as much are rivals: the evidence does not tell them apart, and a report must say so. whole  They are
 * not. An element counts as far off only beyond an eighth of the spread of the reference and four steps. A
 * fault must predict 99 % of the elements in which it says something else than the reference, at least 12 of
 * them, each to a quarter of the distance between the two: by chance that happens in less than 4^-12 of all
 * cases. What the reference has too is no finding.
 *
 * Quantised values that no fault explains exactly are judged as a whole tensor after that.
 *
 * All functions are pure and safe to call from any thread on data that nobody changes. */
#pragma once

#include "npudiff/core/tensor.h"

enum nd_fault_kind {
    ND_FAULT_UNEXPLAINED, /* many quantised values are wrong and no fault fits; amount: share that is wrong */
    ND_FAULT_ROUNDING,    /* a hypothesis of the caller; amount 0 */
    ND_FAULT_FALLBACK,    /* the same */
    ND_FAULT_FUSION,      /* the same */
    ND_FAULT_TRANSPOSED_WEIGHTS, /* the same */
    ND_FAULT_SCALES_AXIS,        /* the same */
    ND_FAULT_BIAS,               /* the same: of all channels or of one it is lost, or has the other sign */
    ND_FAULT_WEIGHTS_SCALE,      /* the same: of all weights or of one channel's */
    ND_FAULT_WEIGHTS_ZERO_POINT, /* the same */
    ND_FAULT_WEIGHTS_TYPE,       /* the same: their bits are read with a sign, or without one */
    ND_FAULT_WEIGHTS_LAYOUT,  /* the same: their rows, or the halves of their bytes, are read at other places */
    ND_FAULT_TERMS_LOST,      /* the same: a part of each sum is left out */
    ND_FAULT_BOUNDS_LOST,     /* the same: a Relu or Clip is left out */
    ND_FAULT_NOT_REQUANTISED, /* the same: its inputs are read with the encoding of its output */
    ND_FAULT_PAIR_SATURATION, /* the same: two products are added in 16 bits (arithmetic/variants/pairs.h) */
    ND_FAULT_PAIR_WRAP,       /* the same */
    ND_FAULT_STOCHASTIC_ROUNDING, /* up with the probability of the fraction; amount: chi-square per bin */
    ND_FAULT_FLIPS,              /* runs differ by a step, whatever the fraction; amount: share that is wrong */
    ND_FAULT_SCALE,              /* amount: factor by which quantised value - zero point is too large */
    ND_FAULT_CHANNEL_SCALE,      /* the same of one channel */
    ND_FAULT_ZERO_POINT,         /* amount: quantised values too high */
    ND_FAULT_CHANNEL_ZERO_POINT, /* the same of one channel */
    ND_FAULT_ENCODING,    /* scale and zero point together, of all or of one channel; amount: the factor */
    ND_FAULT_OFFSET_256,  /* amount: 256 or -256; 8 bit quantised values that wrap where they should clip: 0 */
    ND_FAULT_OFFSET_SIGN, /* real = s (q + z) for s (q - z); amount: quantised values too high, 2 z or -2 z */
    ND_FAULT_AXIS_PERMUTATION,    /* stored in another layout; amount 0 */
    ND_FAULT_CHANNEL_PERMUTATION, /* amount: channels that are elsewhere */
    ND_FAULT_STALE,    /* amount: samples that the quantised values are late; 0: all are the first sample's */
    ND_FAULT_SHIFTED,  /* amount: elements (or samples, as the text says) further back in memory */
    ND_FAULT_ALL_ZERO, /* every quantised value is 0 or the zero point; amount: the quantised value */
    ND_FAULT_CONSTANT, /* every quantised value is the same; amount: the quantised value */
    ND_FAULT_UNWRITTEN_WINDOW,       /* amount: elements from the first to the last wrong one */
    ND_FAULT_WRONG_TYPE,             /* bits of the unsigned type read as signed or the reverse; amount 0 */
    ND_FAULT_ACCUMULATOR_SATURATION, /* amount: bits */
    ND_FAULT_ACCUMULATOR_WRAP,       /* amount: bits */
    ND_FAULT_FLIPPED_BIT,            /* amount: the bit, counted from 0; -1: not the same one everywhere */
    ND_FAULT_SATURATION, /* clamped to less than the type holds; amount: the quantised value at the clamp */
    ND_FAULT_HARD_CLIFF, /* one quantised value from some value on; amount: that value, zero point included */
    ND_FAULT_FP16_GRID,  /* floats that all are half precision numbers; amount 0 */
    ND_FAULT_BF16_GRID,  /* floats that all are bfloat16 numbers; amount 0 */
    ND_FAULT_OFF_GRID,   /* floats that are no quantised value of the quantised tensor; amount: their share */
    ND_FAULT_SAME_QVALUE_OTHER_FLOAT, /* amount: largest difference, in steps */
    /* These need no exact values. */
    ND_FAULT_TRUNCATION, /* cut to the grid, not rounded; amount: share of the values that differ */
    ND_FAULT_ONE_SIDED,  /* quantised values that differ by a step to one side in half of the elements; amount:
                          * their share
                          */
    ND_FAULT_WRAP, /* values wrap around; amount: the period, in steps of quantised values or in units of floats
                    */
    ND_FAULT_PERIODIC,       /* lines along an axis repeat themselves; amount: the period, in elements */
    ND_FAULT_CONSTANT_LINES, /* lines along an axis are one value each; amount: how many lines */
    ND_FAULT_PASSED_THROUGH, /* the output is another tensor, unchanged; amount 0 */
    ND_FAULT_STALE_OPERAND,  /* one operand is the previous sample's; amount 0 */
    ND_FAULT_OTHER_PLACES,   /* the right values at other places of the sample; amount: elements */
    ND_FAULT_FIRST_LAUNCH,   /* the first run differs from all later ones; amount: elements */
    ND_FAULT_TIES,           /* all differences lie on ties of the quantiser; amount: how many */
    ND_FAULT_MAGNITUDE,      /* a hypothesis of the caller: the sign of the value is dropped; amount 0 */
    ND_FAULT_REUSED_BUFFER, /* of the caller: the capture shows what a later layer wrote into the buffer; amount
                               0 */
    ND_FAULT_WRONG_RECORD,  /* of the caller: the captured values are not what readers read; amount: their share
                             */
    ND_FAULT_UNCLAMPED,     /* values go on where the reference stops; amount: the reference's value there */
    ND_FAULT_STEP,          /* a step function amplifies a small difference; amount: the largest of these */
    ND_FAULT_SIGN,          /* all values have the other sign; amount 0 */
    ND_FAULT_OWN_STEP, /* floats of the test are multiples of one step, the reference's are not; amount: the
                        * step
                        */
    ND_FAULT_CONSTANT_CHANNELS, /* they are one value each where the reference's are not; amount: how many */
    ND_FAULT_COMMON_STEP, /* floats of both sides are multiples of one step; amount: the largest difference, in
                             steps */
    /* Of floats and whole numbers. */
    ND_FAULT_OTHER_ATTRIBUTE, /* an attribute is not the model's; amount: it, where it is solved for */
    ND_FAULT_OTHER_CONSTANT,  /* a constant is not the model's; amount: it, or how much it is too large */
    ND_FAULT_FLAT_INDEX,  /* an operand is read by a flat index, and not repeated along its axes; amount 0 */
    ND_FAULT_NARROW_TYPE, /* computed, or kept, in fewer bits; amount 0 */
};
enum { ND_N_FAULT_KINDS = ND_FAULT_NARROW_TYPE + 1 };

/* "axis-permutation", "channel-scale", ...: stable, for JSON and for the truth of a capture. Static. */
const char *nd_fault_name(enum nd_fault_kind kind);

/* Kinds that describe the arithmetic of a healthy device, and accuse nobody: a grid, ties, a step. */
bool nd_fault_is_note(enum nd_fault_kind kind);

/* Something else that the device may have computed, worked out by the caller. Put the simplest first. */
struct nd_hypothesis {
    enum nd_fault_kind kind; /* ND_FAULT_ROUNDING, _FALLBACK, _FUSION, _STALE_OPERAND, _MAGNITUDE,
                                _SCALES_AXIS, _TRANSPOSED_WEIGHTS, _PAIR_SATURATION or _PAIR_WRAP; asked only
                                where no fault of the table fits exactly: _BIAS, _WEIGHTS_SCALE,
                                _WEIGHTS_ZERO_POINT */
    const char *text;        /* "fused with 'x'", "in float32", "rounded by floor" */
    const double *qvalues;   /* [n_samples][n]; NaN where it says nothing */
};

/* Another tensor of the same samples and elements: an input of the probe, or what a different operator gives.
 */
struct nd_other {
    const char *name;
    const double *ref, *test; /* [n_samples][n] */
};

/* What one device gave in one tensor beside what it should have given: quantised values, or real numbers, or
 * quantised values as multiples of their step. Where an expected or exact value is not finite nothing is known
 * and the element is left out. A captured one that is not finite is lost. */
struct nd_evidence {
    size_t n_samples, n; /* n: elements of a sample */
    size_t first_sample; /* what the first of them is called; 0 unless it is a part of more */
    bool is_part;        /* there are more samples than these */
    struct nd_shape
        shape; /* of one sample, batch dimension included; rank -1 when the n elements are a selection */
    enum nd_dtype dtype;    /* of the captured values as they are stored */
    const double *captured; /* [n_samples][n] */
    const double
        *expected; /* [n_samples][n] the reference's; of exact values what the usual arithmetic makes of them */
    const double *bound; /* [n_samples][n] how far rounding may move each captured value: what is further off is
                            far off; nullable. Of whole tensors */
    double step;         /* of the captured values; 0: floats */
    double ref_step;     /* of the expected ones; 0: floats */
    double zero_point;   /* captured / step + zero_point is a quantised value */
    const struct nd_other *others;
    size_t n_others;
    /* The rest is of quantised values whose layer is known; step, ref_step and zero_point are 1, 1 and 0. */
    const double *exact; /* [n_samples][n] before rounding and clipping, in quantised values, zero point
                            included; nullable */
    const struct nd_quant *quant; /* nullable */
    double noise; /* LSB by which the device may be off `expected` everywhere, as its arithmetic is not known;
                     >= 0. Faults are first looked for as if there were none */
    const double *accumulator_step; /* [n_steps] steps of the output per layer of the accumulator; nullable */
    size_t n_steps;                 /* 1, or the channels */
    bool repeats_differ;            /* quantised values differ from run to run */
    bool inputs_repeat_same;        /* while the layer's inputs do not */
    const struct nd_hypothesis *hypotheses;
    size_t n_hypotheses;
};

struct nd_finding {
    enum nd_fault_kind kind;
    size_t channel; /* SIZE_MAX: all */
    int axis;       /* that channel counts along; -1 for all */
    double amount;
    double explained; /* share of the quantised values that were wrong and are right under the fault */
    size_t n_wrong;
    char text[160];
    double chance; /* that values of an innocent device look so: base 10 logarithm, at most 0; 0 where it is not
                      stated */
};

enum { ND_MAX_FINDINGS = 5, ND_MAX_RIVALS = ND_MAX_FINDINGS - 1 };

struct nd_findings {
    size_t n;
    size_t n_gross;   /* of them, the first ones explain elements that are far off */
    double far_share; /* of the known elements: those that are far off */
    struct nd_finding items[ND_MAX_FINDINGS];
};

struct nd_diagnosis {
    bool is_found;
    struct nd_finding best; /* zeroed unless is_found */
    size_t n_rivals;        /* the first ND_MAX_RIVALS of them: what also explains 99 % */
    struct nd_finding rivals[ND_MAX_RIVALS];
};

/* Of quantised values with exact values. ND_ERR_MEMORY is the only failure. Time is linear in the elements, but
 * for layouts, which are tried only when nothing cheaper fits. Fewer than three wrong quantised values that no
 * rounding of the exact value explains give no verdict. */
enum nd_status nd_diagnose(const struct nd_evidence *evidence, struct nd_diagnosis *out, struct nd_error *err);

/* Of a whole tensor; `exact` is NULL. Gross errors first, of which only the one that explains most is kept;
 * then what small differences show. Nothing is found in empty tensors. ND_ERR_MEMORY is the only failure.
 * Memory: four doubles for each element. */
enum nd_status nd_diagnose_tensor(const struct nd_evidence *evidence, struct nd_findings *out,
                                  struct nd_error *err);

/* Adds a finding, the first as the best one; those that have no room are dropped. */
void nd_diagnosis_add(struct nd_diagnosis *out, const struct nd_finding *finding);

/* Floats that a device gave for a tensor. With `quant` (per tensor): are they quantised values of the tensor?
 * Without: do they lie on the grid of a narrower float type, or a unit in the last place beside it? Non-finite
 * values and zeros say nothing; fewer than 8 others, or fewer than 8 distinct ones for a float grid, give no
 * verdict. bfloat16 numbers that half precision holds too are said to be bf16-grid, with fp16-grid as a rival.
 */
void nd_diagnose_floats(const float *values, size_t n, const struct nd_quant *quant, struct nd_diagnosis *out);

/* Two arrays of floats that stand for the same quantised values of quant (per tensor) and yet differ. NaN has
 * no code: two NaNs are the same, one is not. Finds nothing when the floats are equal (0 equals -0) or a
 * quantised value differs. */
void nd_diagnose_same_qvalues(const float *ref, const float *test, size_t n, const struct nd_quant *quant,
                              struct nd_diagnosis *out);

/* What a capture says of a tensor's quantisation against what the model says: ND_FAULT_SCALE or _CHANNEL_SCALE
 * (amount: capture / model), _ZERO_POINT or _CHANNEL_ZERO_POINT (capture - model), _OFFSET_256, _OFFSET_SIGN.
 * The fault of the first channel that differs; `channel` is SIZE_MAX when all differ alike. Where all scales
 * and all zero points differ alike it is ND_FAULT_ENCODING (amount: capture / model of the scale); else a wrong
 * scale comes before a wrong zero point, which is then a rival. Arrays of length 1 stand for all channels; when
 * one side is not quantised nothing is found. */
void nd_diagnose_encoding(const struct nd_quant *model, const struct nd_quant *capture,
                          struct nd_diagnosis *out);
