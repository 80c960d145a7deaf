/* One layer of one device looked at once more: its quantised values and exact values are kept, for some
 * samples, and what other arithmetic would have given. */
#pragma once

#include "arithmetic/variants/changed_constants.h"
#include "arithmetic/variants/pairs.h"
#include "explain/diagnosis/diagnosis.h"
#include "explain/identify/identify.h"
#include "explain/plan/replay.h"
#include "explain/stages.h"

/* ---- whether a product by constants was computed with others than the model's
 * (arithmetic/variants/changed_constants.h): what its values fit is found by least squares, and then worked
 * out exactly ---- */

enum { ND_CONSTANTS_MAX = ND_CONSTANTS_MAX_LISTED + 8 };

/* Of the wrong values the best change must leave at most this share. Chosen: it only saves passes, the
 * diagnosis then asks for 0.01 of them. */
#define ND_CONSTANTS_WORTH 0.05

enum nd_constants_stage {
    ND_CONSTANTS_IDLE,
    ND_CONSTANTS_MEASURE, /* parts of the products are kept */
    ND_CONSTANTS_COUNT,   /* what each change leaves wrong is counted */
    ND_CONSTANTS_KEEP,    /* the quantised values of the best are kept */
};

struct nd_explain_constants {
    enum nd_constants_stage stage; /* of the run at hand */
    bool is_known;                 /* the layer is such a product, and its parts are known */
    size_t n_channels, n_inner;
    double shift;     /* of the weights, of which `moved` says what it does; 0: a step, without a clip */
    double low, high; /* quantised values at which the type, or a bound of the layer, cuts off */
    struct nd_coded_weights coded; /* qvalues.n 0: the layer has its own */
    double *products, *moved;      /* [n_samples][n] as of nd_layer_product_parts */
    double allowance;              /* LSB */
    size_t n;                      /* of `tried` */
    struct {
        struct nd_changed_constants change;
        size_t n_known;  /* quantised values that it says, */
        size_t n_wrong;  /* of them those that are not the device's, */
        size_t n_beyond; /* and of these, further off than the allowance */
    } tried[ND_CONSTANTS_MAX];
    size_t chosen;                      /* SIZE_MAX: none */
    char text[ND_CONSTANTS_TEXT_BYTES]; /* of it */
    double *qvalues;                    /* [n_samples][n] of the chosen one; NULL: none fits */
};

struct nd_layer_diagnosis;

/* After the layer diagnosis has collected its codes: fills chosen and quantised values. allowance: LSB by which
 * the device's arithmetic may be off. ND_ERR_MEMORY; deinit in any case. */
enum nd_status nd_layer_diagnosis_find_constants(struct nd_layer_diagnosis *diagnosis, double allowance,
                                                 struct nd_error *err);
void nd_explain_constants_deinit(struct nd_explain_constants *constants);

/* One sample of the layer under examination, in the stage at hand. ND_ERR_MEMORY. */
enum nd_status nd_layer_diagnosis_look_at_constants(struct nd_layer_diagnosis *diagnosis,
                                                    const struct nd_exact_layer *layer, struct nd_error *err);

/* The fault that the change is. */
enum nd_fault_kind nd_fault_of_constants(enum nd_constants_kind kind);

/* ---- whether a device that nothing is known of multiplies as integer processors do, by one arithmetic of
 * arithmetic/arithmetics.h: then its layers are held to that before any of them is called anything ---- */

/* What the values of one layer leave possible. */
struct nd_engine_tally {
    struct nd_identify_tally counts;
    struct nd_wide *steps; /* of its accumulator; NULL: it has none */
    size_t n_steps;
    struct nd_specified_sum specified;
    bool is_conv;
    size_t only; /* as nd_identify_sample has it */
};

/* Counts the layer over samples of max_values in all, at least one, and leaves it as it was. A zeroed tally,
 * freed by nd_engine_tally_deinit in any case. ND_ERR_MEMORY, and errors of reading captures. */
enum nd_status nd_engine_look(struct nd_layer_diagnosis *diagnosis, size_t max_values,
                              struct nd_engine_tally *tally, struct nd_error *err);
enum nd_status nd_engine_count(struct nd_engine_tally *tally, const struct nd_exact_values *values,
                               const double *given, size_t sample, struct nd_error *err);
void nd_engine_tally_deinit(struct nd_engine_tally *tally);

/* Whether the arithmetic of nd_arithmetics says what the layer is, and every value is that. */
bool nd_engine_gives(const struct nd_engine_tally *tally, size_t arithmetic);

/* The arithmetic of nd_arithmetics that most products of a device of which nothing is known follow, and fewer
 * follow plain rounding; SIZE_MAX: there is none. Where no product follows another one the device is said to
 * have it. readers[n_threads] of the plan. ND_ERR_MEMORY, and errors of reading captures. */
enum nd_status nd_engine_find(const struct nd_explain_job *job, size_t device, struct nd_reader *readers,
                              size_t *engine, struct nd_error *err);

/* ---- whether a layer of quantised values was computed with another attribute of its operator than the
 * model's ---- */

struct nd_other_attribute {
    size_t node;       /* of the run at hand: the operator that is another one, */
    const void *proto; /* and what it is; NULL: it is the model's */
    double *qvalues;   /* [n_samples][n] with the attribute; NULL: none predicts the device's */
    char text[sizeof((struct nd_finding *)NULL)->text]; /* of it */
};

/* After the layer diagnosis has collected its quantised values: fills qvalues and text of
 * diagnosis->attribute. allowance: LSB by which the device's arithmetic may be off. ND_ERR_MEMORY, and errors
 * of reading captures; free(qvalues) in any case. */
enum nd_status nd_layer_diagnosis_find_attribute(struct nd_layer_diagnosis *diagnosis, double allowance,
                                                 struct nd_error *err);

/* ---- which sum of pairs in 16 bits (arithmetic/variants/pairs.h) gives the quantised values of a layer on
 * a device. Two passes over the samples: the first counts what each leaves wrong, the second keeps the
 * quantised values of the best ---- */

struct nd_explain_pairs {
    size_t n_known;                 /* quantised values that were looked at */
    size_t n_wrong[ND_N_PAIR_SUMS]; /* of them, quantised values that are not the device's */
    bool is_tried[ND_N_PAIR_SUMS];
    size_t chosen;   /* SIZE_MAX: none yet, or none fits */
    double *qvalues; /* [n_samples][n] of the chosen one; NULL before the second pass, or where none fits */
};

/* What the chosen one is, as a sentence, and whether another leaves as little. */
void nd_explain_pairs_text(const struct nd_explain_pairs *pairs, char buf[ND_PAIR_SUM_TEXT_BYTES]);

enum {
    ND_LAYER_DIAGNOSIS_FUSIONS = 6,  /* inputs of a layer that it may be fused with */
    ND_LAYER_DIAGNOSIS_OPERANDS = 4, /* inputs of a layer that may be the previous sample's */
    ND_LAYER_DIAGNOSIS_REMADE = 6,   /* inputs of a layer whose makers do not follow known arithmetic */
};

/* Of nd_layer_diagnosis.forced. */
enum { ND_LAYER_DIAGNOSIS_FORCED_INPUTS = 1, ND_LAYER_DIAGNOSIS_FORCED_OUTPUT = 2 };

/* An input whose record is not what known arithmetic makes of its maker's own inputs. */
struct nd_layer_diagnosis_remade {
    size_t tensor;
    bool is_made; /* in the run at hand the layer reads what should have been made, not the record */
    size_t n_wrong,
        n; /* of the record's values over the samples of the last such run, those that are not that */
};

/* One layer of one device under examination. */
struct nd_layer_diagnosis {
    const struct nd_explain_job *job;
    struct nd_reader *reader;
    size_t device, step, tensor;
    size_t n_samples, n; /* elements of a sample */
    struct nd_rounding_rule usual, other;
    bool has_other;
    const struct nd_layer_arithmetic *layer_arithmetic; /* in the place of usual; NULL: none */
    struct nd_array made;                               /* by it, of the layer that is worked out next */
    bool is_other;                                      /* it is made in another way, */
    enum nd_alternative alternative;                    /* in this one, for which */
    bool is_helped;                                     /* and what makes parts of it is worked out, too */
    unsigned
        forced; /* worked out exactly, with the encodings that the provider forces: on what it reads
                   (ND_LAYER_DIAGNOSIS_FORCED_INPUTS), on what it makes (ND_LAYER_DIAGNOSIS_FORCED_OUTPUT) */
    size_t n_fusions;
    size_t fused[ND_LAYER_DIAGNOSIS_FUSIONS]; /* tensors */
    double *qvalues, *values, *expected, *others, *fusions[ND_LAYER_DIAGNOSIS_FUSIONS];
    size_t n_operands; /* 0 of layers with one input: what they make late is late as a whole */
    size_t operands[ND_LAYER_DIAGNOSIS_OPERANDS];        /* tensors */
    struct nd_array before[ND_LAYER_DIAGNOSIS_OPERANDS]; /* their quantised values in the previous sample */
    double *stale[ND_LAYER_DIAGNOSIS_OPERANDS]; /* quantised values made with that operand late; NaN in the
                                                   first sample */
    const bool
        *is_open; /* [n_steps] layers of the device that do not follow known arithmetic; NULL: not known */
    size_t n_remade;
    struct nd_layer_diagnosis_remade remade[ND_LAYER_DIAGNOSIS_REMADE];
    struct nd_explain_constants constants;
    struct nd_other_attribute attribute;
    struct nd_explain_pairs pairs;  /* made with sums of pairs in 16 bits */
    struct nd_engine_tally *engine; /* counts the values of the run at hand; NULL: they are not */
    bool *is_wanted;                /* [n_steps] of the plan: what runs read; NULL: everything */
    double *steps;                  /* of the accumulator, in steps of the output; NULL for other operators */
    size_t n_steps;
    /* of the run at hand */
    size_t slot;
    size_t fusing; /* the tensor that keeps its fractions, or SIZE_MAX */
    size_t late;   /* 1 + the operand that is the previous sample's; 0: none */
    double *to;    /* NULL: values, expected quantised values and the device's are kept */
};

/* Fills tensor, n and n_samples: how many are looked at. ND_ERR_LIMIT where the tensor is too large. */
enum nd_status nd_layer_diagnosis_size(struct nd_layer_diagnosis *diagnosis, struct nd_error *err);
/* Reads the i-th one, in order: the model's inputs and the device's quantised values, into the reader. */
enum nd_status nd_layer_diagnosis_load_sample(struct nd_layer_diagnosis *diagnosis, size_t i,
                                              struct nd_error *err);

/* layer diagnosis: job, reader, device and step are given, the rest is zero. Chooses what the device's
 * usual arithmetic is and what it is held against. ND_ERR_MEMORY; deinit in any case. */
enum nd_status nd_layer_diagnosis_make(struct nd_layer_diagnosis *diagnosis, struct nd_error *err);
void nd_layer_diagnosis_deinit(struct nd_layer_diagnosis *diagnosis);

/* The encoding in which the layer's quantised values are. */
const struct nd_quant *nd_layer_diagnosis_quant(const struct nd_layer_diagnosis *diagnosis);

/* Works out the layer, and what is fused with it, from the quantised values of the sample that is loaded.
 * fusing: the tensor that keeps its fractions, or SIZE_MAX; to: where the quantised values go, [n_samples * n];
 * NULL: values, expected quantised values and the device's are kept. */
enum nd_status nd_layer_diagnosis_run(struct nd_layer_diagnosis *diagnosis, size_t fusing, double *to,
                                      struct nd_error *err);

/* Fills quantised values, values, expected, others, fusions, and stale. */
enum nd_status nd_layer_diagnosis_collect(struct nd_layer_diagnosis *diagnosis, struct nd_error *err);

/* What the layer gives where it did not read what was recorded of an input. */
struct nd_layer_diagnosis_innocence {
    const struct nd_layer_diagnosis_remade
        *input;      /* the one whose record is wrong; NULL: no input explains the values */
    bool is_exact;   /* every value is what the layer makes of it; else within the allowance */
    size_t n_mended; /* values beyond the allowance by the record, that are right so */
};
/* Tries the inputs one by one. allowance: LSB. */
enum nd_status nd_layer_diagnosis_try_remade(struct nd_layer_diagnosis *diagnosis, double allowance,
                                             struct nd_layer_diagnosis_innocence *out, struct nd_error *err);

/* ---- what else a device may have computed in a layer: what the layer diagnosis has worked out, for the
 * diagnosis ---- */

enum { ND_LAYER_DIAGNOSIS_MAX_HYPOTHESES = 4 + ND_LAYER_DIAGNOSIS_FUSIONS + ND_LAYER_DIAGNOSIS_OPERANDS };

struct nd_layer_diagnosis_hypotheses {
    size_t n;
    struct nd_hypothesis items[ND_LAYER_DIAGNOSIS_MAX_HYPOTHESES]; /* borrow texts, and quantised values of the
                                                                      layer diagnosis */
    char texts[ND_LAYER_DIAGNOSIS_MAX_HYPOTHESES][160];
};

/* ---- layers that are out of line are looked at once more: their quantised values and exact values are
 * kept, for some samples, and diagnosed, together with what other arithmetic would have given ---- */

/* The quantiser of a model's input, alone or behind operators that only change the shape: its exact values are
 * the probe's own floats. */

/* Rounds x, in steps of the input, as QuantizeLinear is known to do on devices that have nothing wrong: ONNX's
 * own arithmetic first. Returns the whole number without zero point, before it is clipped. */
enum { ND_N_INPUT_ARITHMETICS = 8 };
double nd_input_arithmetic(size_t arithmetic, float x, float scale);
/* "ties are rounded half away from zero, not half to even": NULL for the first. Static. */
const char *nd_input_arithmetic_text(size_t arithmetic);

/* The whole numbers of what is a fault of a quantiser of inputs. */
enum nd_input_fault {
    ND_INPUT_TO_ZERO,    /* cut off */
    ND_INPUT_QVALUE_CUT, /* cut off with the zero point in it */
    ND_INPUT_FLOOR,
    ND_INPUT_CEIL,
    ND_INPUT_MAGNITUDE, /* the sign is dropped */
};
enum { ND_N_INPUT_FAULTS = ND_INPUT_MAGNITUDE + 1 };
double nd_input_fault_qvalue(enum nd_input_fault fault, double steps, double zero_point);

/* layer diagnosis: job, reader, device and step are given, the rest is zero. Fills quantised values, values,
 * expected and the hypotheses; where known arithmetic gives every quantised value *follows says so, in words,
 * or is "" where it is ONNX's beside ties. ND_ERR_MEMORY, and the errors of reading. */
struct nd_input_layer_diagnosis {
    struct nd_layer_diagnosis diagnosis;
    double *faults[ND_N_INPUT_FAULTS];
    size_t n_hypotheses;
    struct nd_hypothesis hypotheses[ND_N_INPUT_FAULTS];
    const char *follows; /* NULL: it does not */
    const char *why;     /* of the layer, then */
};

/* Names the faults of the devices, after they have been judged. */
enum nd_status nd_explain_diagnose(const struct nd_explain_job *job, struct nd_error *err);
