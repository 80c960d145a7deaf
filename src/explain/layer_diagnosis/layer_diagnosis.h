/* One layer of one device looked at once more: its quantised values and exact values are kept, for some
 * samples, and what other arithmetic would have given. */
#pragma once

#include "explain/layer_diagnosis/constants.h"
#include "explain/layer_diagnosis/engine.h"
#include "explain/layer_diagnosis/other_attribute.h"
#include "explain/layer_diagnosis/pair_sums.h"
#include "explain/plan/replay.h"
#include "explain/stages.h"

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
