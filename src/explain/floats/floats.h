/* Layers whose values are floats, in a float model or between quantised layers, each worked out again in double
 * precision from the values that its inputs had on the device, and how far the device's values are from that:
 * held against what rounding to half precision, or to float32, may do there. docs/science/theory.md#floats. */
#pragma once

#include "arithmetic/exact/float_node.h"
#include "explain/diagnosis/diagnosis.h"
#include "explain/fallback/fallback.h"
#include "explain/plan/replay.h"
#include "explain/stages.h"

/* Binary digits of the arithmetic. Of whole numbers, which are the operator's or not: none. */
enum { ND_WHOLE_DIGITS = 0, ND_BFLOAT_DIGITS = 8, ND_HALF_DIGITS = 11, ND_SINGLE_DIGITS = 24 };

enum { ND_FLOAT_CUTS = 3 };

/* Of one step on one device in one sample. */
struct nd_float_sums {
    bool is_missed; /* it could not be worked out */
    bool has_reference, has_effect;
    uint64_t n, n_rounded, n_beyond, n_flushed, n_lost, n_overflown;
    /* Of inputs that are rounded to the type, as they are, or cut off: values that rounding and cutting off
     * tell apart, and those of them that are cut off. */
    uint64_t n_telling[ND_FLOAT_CUTS], n_cut[ND_FLOAT_CUTS];
    double max_ulp, sum_ulp, worst;              /* worst: the largest error, as a multiple of its bound */
    double signal, introduced, total, passed_on; /* sums of squares */
    double effect, effect_signal;                /* of the model's outputs */
    struct nd_fallback_floats grid;              /* of the first few samples */
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

/* Whether the step's values are no quantised values, and the device computes them: floats, or whole numbers
 * such as indices; whether any step of any device has such. */
bool nd_float_is_step(const struct nd_plan *plan, size_t device, size_t step);
/* Digits of the step: a tensor of half precision is rounded to it whatever computed it. Of whole numbers
 * ND_WHOLE_DIGITS. */
int nd_float_digits_of(const struct nd_float_evaluation *evaluation, size_t device, size_t step);

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

/* What becomes of a number that is kept in fewer bits. */
struct nd_float_narrow {
    int digits;        /* binary digits of a float; 0: whole numbers, from `low` on */
    bool cuts;         /* toward zero; else it rounds */
    double low, range; /* wraps around after so many numbers, or */
    bool clamps;       /* stops at the ends */
};
double nd_float_narrow(const struct nd_float_narrow *narrow, double x);

/* What a layer may do in place of what the model says. */
struct nd_float_way {
    const void *proto;            /* the operator with another attribute; NULL: its own */
    size_t operand;               /* that is another one; SIZE_MAX: none */
    const struct nd_array *value; /* its values; NULL: its own, `factor` times as large */
    double factor;
    bool is_flat; /* the operand is not repeated along its axes, but read from its beginning again after its end
                   */
    const struct nd_float_narrow *read;    /* each float that it reads, in place of rounding; NULL */
    const struct nd_float_narrow *convert; /* and each value that it gives; NULL */
};

struct nd_float_case {
    const struct nd_float_evaluation *evaluation;
    const struct nd_reader *reader;
    const struct nd_array *values; /* [n_edges] what the step reads */
    size_t step;
    int digits;                     /* of floats that it reads, or gives */
    bool is_whole;                  /* it gives whole numbers */
    const struct nd_float_way *way; /* NULL: the model's */
};
/* That of the device whose sample the reader holds. */
struct nd_float_case nd_float_case_of(const struct nd_float_evaluation *evaluation,
                                      const struct nd_reader *reader, const struct nd_array *values,
                                      size_t step);

/* The step's values in a reading of its inputs, which `seed` shakes; or from inputs rounded to its arithmetic,
 * and rounded once. Into out: zeroed before, freed by the caller. */
enum nd_status nd_float_run(const struct nd_float_case *c, enum nd_float_reading reading, unsigned seed,
                            struct nd_array *out, struct nd_error *err);
enum nd_status nd_float_expect(const struct nd_float_case *c, struct nd_array *out, struct nd_error *err);
/* How far each value may be off: bound[exact->n]; of whole numbers where rounding of what is read changes them.
 */
enum nd_status nd_float_bound(const struct nd_float_case *c, const struct nd_array *exact, double *bound,
                              struct nd_error *err);

/* ---- another way of computing a layer that gives the device's values: tried one after another, on floats
 * and on quantised values alike. A way is named where it predicts what the model's own does not.
 * docs/science/verdicts.md ---- */

struct nd_float_fault {
    bool is_found, may_be_arithmetic; /* of a device that computes in fewer bits, or approximates a function */
    bool is_exact;                    /* the layer was worked out so, or a line predicts its values, to the
                                                   rounding of its arithmetic */
    struct nd_finding finding;
};

/* A search in one layer. Values are in the unit of the captured ones. */
struct nd_ways {
    const void *node; /* its operator: an Onnx__NodeProto */
    size_t n_inputs;
    size_t n_samples, n;
    double *expected, *captured, *bound; /* [n_samples * n]: by the model, by the device, and how far off that
                                            may be */
    double *scratch;                     /* [n] */
    size_t n_far, worst;                 /* values that are off; the sample with the most of them */
    size_t min_far;                      /* values that are off and that a way must predict */
    bool is_whole;                       /* the layer gives whole numbers that nothing rounds */
    bool
        is_coarse; /* values are rounded to whole numbers: their rounding is evened out in what is solved for */
    bool leaves_approximations; /* a function that is approximated is no other way than the model's */
    void *context;
    enum nd_status (*go_to)(void *context, size_t sample, struct nd_error *err);
    /* What the way gives in that sample, before it is rounded; false where it cannot be worked out, or has
     * another size. *out, zeroed before, is freed by the caller in any case. */
    bool (*make)(void *context, const struct nd_float_way *way, struct nd_array *out);
    /* How far from that a value may be: bound[n], zeroed before. */
    bool (*bound_made)(void *context, const struct nd_float_way *way, const struct nd_array *made,
                       double *bound);
    /* Told of a way that holds, the first of those that are named together. NULL: not. */
    enum nd_status (*keep)(void *context, const struct nd_float_way *way, struct nd_error *err);
    struct nd_float_fault *out;
};

/* Ways that predict the same values are all named. */
struct nd_way_score {
    size_t n_far, n_right, n_broken;
    double before, after;
};
struct nd_way_names {
    char text[128];
    bool may_be_arithmetic;
    struct nd_way_score score;
};

/* A number that is another one: it is solved for. */
struct nd_way_number {
    double *factor; /* of an operand; NULL: an attribute */
    float *attribute;
    bool is_positive; /* its logarithm is solved for */
};

/* expected, captured, bound and scratch for n_samples * n: free(s->expected) frees all. ND_ERR_MEMORY. */
enum nd_status nd_ways_make_room(struct nd_ways *s, struct nd_error *err);
/* Fills n_far and worst. */
void nd_ways_count(struct nd_ways *s);

/* Adds the name of the way where it holds. Nothing is tried once a fault is found. ND_ERR_MEMORY, and errors of
 * reading captures; so in the functions below. */
enum nd_status nd_try_way(struct nd_ways *s, const struct nd_float_way *way, const char *name,
                          struct nd_way_names *names, struct nd_error *err);
/* The number with the fewest digits that predicts the values. unit: what the number is multiplied by to be
 * said. */
enum nd_status nd_try_way_number(struct nd_ways *s, const struct nd_float_way *way,
                                 const struct nd_way_number *number, double from, double unit,
                                 enum nd_fault_kind kind, const char *before, const char *after,
                                 struct nd_error *err);
/* The operator with another attribute of arithmetic/variants/attributes.h; then with two. */
enum nd_status nd_try_attributes(struct nd_ways *s, struct nd_error *err);
enum nd_status nd_try_two_attributes(struct nd_ways *s, struct nd_error *err);

/* The fault is a way that holds. */
void nd_tell_way(struct nd_ways *s, const struct nd_way_score *score, enum nd_fault_kind kind, double amount,
                 const char *fmt, ...) ND_PRINTF(5, 6);

/* ---- layers whose values are floats: whether they are those of half precision (or float32). In a
 * quantised model that is what lies between DequantizeLinear and QuantizeLinear where tensors are visible,
 * or before and after all of them ---- */

/* Evaluates every layer whose values are floats, fills `floats` of the layers, their state, evidence and fault,
 * and float_error of the devices, which stays unknown for a quantised model. After nd_explain_diagnose, before
 * the verdicts. Errors are those of reading captures, ND_ERR_MEMORY. */
enum nd_status nd_explain_judge_floats(const struct nd_explain_job *job,
                                       const struct nd_explain_options *options, struct nd_error *err);
