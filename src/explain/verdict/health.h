/* The verdict of each device, from what is known of its layers. docs/science/verdicts.md has the rules and
 * where each constant is from.
 *
 *     nd_explain_decide_layers            decides the state of the layers that known arithmetic explains
 *     layer_diagnosis/diagnose_layers.c   looks at the others: which fault predicts their values, how
 *                                         large the error is
 *     nd_explain_fault_verdict            decides what may be said of one of these
 *     nd_explain_find_health              sums up */
#pragma once

#include "explain/diagnosis/diagnosis.h"
#include "explain/known/defects.h"
#include "explain/layers/device_arithmetics.h"
#include "explain/stages.h"
#include "explain/verdict/judgement.h"

/* Fills state and why_follows of all layers of the devices, after they have been judged. ND_ERR_MEMORY, and the
 * errors of nd_capture_read_repeat. */
enum nd_status nd_explain_decide_layers(const struct nd_explain_job *job, struct nd_error *err);

/* A tensor of quantised values of at most 16 bits that a QuantizeLinear makes of an input of float32, in
 * whatever shape. */
bool nd_explain_is_input_quantiser(const struct nd_plan *plan, size_t step);

/* The input of the model that the tensor quantises, in whatever shape, or SIZE_MAX. */
size_t nd_explain_quantised_input(const struct nd_plan *plan, size_t step);

/* Whether the layer has no explanation so far, or its arithmetic is known and is not followed. */
bool nd_explain_needs_layer_diagnosis(const struct nd_explain_job *job, size_t device, size_t step);

/* By what layers are ranked: what their introduced error does to the outputs or, where that is not measured,
 * its size. */
double nd_explain_badness(const struct nd_explained_layer *layer);

/* How far a layer's values lie from what is expected of them, over the samples that were looked at. */
struct nd_explain_error_size {
    size_t n;        /* values */
    size_t n_wrong;  /* of them, not as expected */
    size_t n_beyond; /* of these, further off than unknown arithmetic may be (nd_explain_allowance) */
    size_t n_past;  /* of these, further off than inputs that were not rounded, nor clipped, could bring them; 0
                       where that was not measured */
    size_t n_far;   /* further off than ND_EXPLAIN_FAR times nd_explain_allowance */
    size_t n_large; /* off by more than ND_EXPLAIN_FAR times what known arithmetic may be */
    size_t n_kinds; /* of these, different expected values, counted up to 4 */
    double max;     /* LSB */
    double mean_square;   /* variance of the error, LSB^2 */
    double signal;        /* variance of what is expected, LSB^2 */
    const char *doubtful; /* an input that the layer need not have read as it was recorded, as its maker is
                             unexplained: then size says nothing. NULL: none */
    double doubtful_max;  /* LSB by which its maker is off */
    double correlation;   /* of the values and what is expected, about their means; 0 where one of them is
                             constant */
};

/* By how many LSB arithmetic that nobody knows may move a value of the layer: 0 where the arithmetic of the
 * device is known to be complete. */
double nd_explain_allowance(const struct nd_explain_job *job, size_t device, size_t step);

/* By how many LSB known arithmetic that is not complete may be wrong, of quantised values of 16 bits or of 8.
 */
double nd_explain_known_allowance(bool is_wide);

/* Whether the device's arithmetic says what every value of the layer is. */
bool nd_explain_is_known(const struct nd_explain_job *job, size_t device, size_t step);

/* Whether the provider of an HTP forces the encoding of what the layer makes, of something that it reads, or
 * both: as nd_layer_diagnosis.forced. */
unsigned nd_explain_forced(const struct nd_explain_job *job, size_t step);

/* Whether the layer is a product of one tensor by constants. */
bool nd_explain_multiplies_constants(const struct nd_explain_job *job, size_t step);

/* In allowances. Chosen: of healthy products by constants none was off by more than 1 allowance of 8 bits and
 * 1/8 of 16 bits, in 1 160 Conv and Gemm of 300 random networks (tools/studies/strangers, seeds 20001 to
 * 20300). */
enum { ND_EXPLAIN_FAR = 4 };

/* Values that must be off for anything to be said of the size of an error; chosen. */
enum { ND_EXPLAIN_FEWEST_GROSS = 16 };
#define ND_EXPLAIN_MIN_GROSS_SHARE 0.01

/* Values beyond the allowance of the layer that a fault takes. */
size_t nd_explain_fewest_beyond(const struct nd_explain_job *job, size_t device, size_t step);

/* Whether it is worth measuring how far inputs could bring the values of the layer. */
bool nd_explain_needs_reach(const struct nd_explain_job *job, size_t device, size_t step,
                            const struct nd_explain_error_size *size);

/* accuse.c: "a known defect of QAIRT ..." and what to do. ND_ERR_MEMORY. */
enum nd_status nd_explain_name_defect(const struct nd_explain_job *job, size_t device,
                                      const struct nd_known_defect *defect, struct nd_explained_layer *layer,
                                      struct nd_error *err);

/* health.c: which rule gives every value of a layer that follows known arithmetic but for ties: tie_rule
 * and n_ties. */
void nd_explain_find_tie_rule(const struct nd_qvalue_tally *tally, struct nd_explained_layer *layer);

/* Decides what may be said of a layer that was looked at: state, why_follows, fault and evidence of its layer.
 * ND_ERR_MEMORY. */
enum nd_status nd_explain_fault_verdict(const struct nd_explain_job *job, size_t device, size_t step,
                                        const struct nd_explain_error_size *size,
                                        const struct nd_diagnosis *diagnosis, struct nd_error *err);

/* What a layer shows of the record of an input: it computed from other values than those. */
struct nd_explain_record {
    size_t device, step; /* step: the tensor; SIZE_MAX: nothing is shown */
    size_t reader;       /* the layer, as a step */
    size_t n_wrong, n;   /* of the tensor's values in the samples that were looked at, those that its own
                            inputs do not give */
    size_t n_mended;     /* values of the reader that are beyond its allowance by the record, and right by
                            what the record should be */
    bool is_exact;       /* so is every other value of the reader, to the bit */
};

/* The reader follows, or is left unexplained where is_exact is false. Writes to the reader's layer
 * only. ND_ERR_MEMORY. */
enum nd_status nd_explain_acquit_reader(const struct nd_explain_job *job,
                                        const struct nd_explain_record *record, struct nd_error *err);
/* Says of the tensor that its record is wrong, once all layers have been looked at, and blames it.
 * ND_ERR_MEMORY. */
enum nd_status nd_explain_blame_record(const struct nd_explain_job *job, const struct nd_explain_record *record,
                                       struct nd_error *err);

/* A layer of floats whose runs differ by more than the order of a sum makes, while its inputs do not, is
 * faulty. ND_ERR_MEMORY, and the errors of reading a capture. */
enum nd_status nd_explain_judge_float_runs(const struct nd_explain_job *job, size_t device, size_t step,
                                           struct nd_error *err);

/* Fills health, faulty, unexplained and n_follow of the devices, and what is still missing of their layers'
 * evidence. ND_ERR_MEMORY. */
enum nd_status nd_explain_find_health(const struct nd_explain_job *job, struct nd_error *err);
