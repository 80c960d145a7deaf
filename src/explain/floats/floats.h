/* Layers whose values are floats, in a float model or between quantised layers, each worked out again in double
 * precision from the values that its inputs had on the device, and how far the device's values are from that:
 * held against what rounding to half precision, or to float32, may do there. docs/science/theory.md#floats. */
#ifndef ND_REPLAY_FLOATS_H
#define ND_REPLAY_FLOATS_H

#include "arithmetic/exact/float_node.h"
#include "explain/plan/replay.h"

/* Binary digits of the arithmetic. */
enum { ND_HALF_DIGITS = 11, ND_SINGLE_DIGITS = 24 };

/* Of one step on one device in one sample. */
struct nd_float_sums {
    bool is_missed; /* it could not be worked out */
    bool has_reference, has_effect;
    uint64_t n, n_rounded, n_beyond, n_flushed, n_lost, n_overflown;
    double max_ulp, sum_ulp, worst;              /* worst: the largest error, as a multiple of its bound */
    double signal, introduced, total, passed_on; /* sums of squares */
    double effect, effect_signal;                /* of the model's outputs */
};

struct nd_float_evaluation {
    const struct nd_plan *plan;
    bool
        is_beside_qvalues; /* the model is quantised, too: then there is no reference, and no effect is measured
                            */
    int *digits;           /* [n_devices] of the arithmetic; 0: the device has no floats */
    bool *is_known;        /* [n_steps] node is found */
    struct nd_float_node *nodes; /* [n_steps] */
    struct nd_array *constants;  /* [n_steps * ND_FLOAT_OPERANDS] rounded to half precision; rank < 0: none */
    struct nd_float_sums *sums;  /* [n_samples][n_devices][n_steps] */
};

/* Fills a zeroed one; deinit in any case. */
enum nd_status nd_float_evaluate(struct nd_float_evaluation *evaluation, const struct nd_plan *plan,
                                 const struct nd_explain_options *options, struct nd_error *err);
void nd_float_evaluation_deinit(struct nd_float_evaluation *evaluation);

struct nd_float_sums *nd_float_sums_of(const struct nd_float_evaluation *evaluation, size_t sample,
                                       size_t device, size_t step);

/* Whether the step's values are floats that the device computes; whether any step of any device has such. */
bool nd_float_has_steps(const struct nd_plan *plan);
bool nd_float_is_step(const struct nd_plan *plan, size_t device, size_t step);
/* Digits of the step: a tensor of half precision is rounded to it whatever computed it. */
int nd_float_digits_of(const struct nd_float_evaluation *evaluation, size_t device, size_t step);

/* Exact values of a step from the device's own inputs, rounded once, for the sample that the reader holds: into
 * out (zeroed before, freed by the caller). */
enum nd_status nd_float_expect(const struct nd_float_evaluation *evaluation, const struct nd_reader *reader,
                               size_t step, struct nd_array *out, struct nd_error *err);

/* Counts the step's values in the sample that the reader holds, as if the input were that constant. What cannot
 * be worked out is_missed. ND_ERR_MEMORY, and errors of reading. */
enum nd_status nd_float_count_with(const struct nd_float_evaluation *evaluation, const struct nd_reader *reader,
                                   size_t step, size_t input, const struct nd_array *constant,
                                   struct nd_float_sums *sums, struct nd_error *err);

/* What is asked of one step: its inputs, in four readings. */
enum nd_float_reading {
    ND_FLOAT_AS_THEY_ARE,
    ND_FLOAT_ROUNDED,    /* constants and inputs of the model to the digits of the arithmetic */
    ND_FLOAT_MAGNITUDES, /* the same without signs */
    ND_FLOAT_SHAKEN,     /* the same, each off by a rounding, up or down at random */
};
struct nd_float_case {
    const struct nd_float_evaluation *evaluation;
    const struct nd_reader *reader;
    const struct nd_array *values; /* [n_edges] what the step reads */
    size_t step;
    int digits;
    size_t changed_input;
    const struct nd_array *changed; /* in the place of the constant of that input; NULL: its own */
};

#endif
