/* What arithmetics of whole layers (arithmetic/htp/htp.h) make of the device's own input quantised values, and
 * how the device's quantised values are held against that. */
#pragma once

#include "arithmetic/htp/htp.h"
#include "arithmetic/trials/alternatives.h"

enum { ND_MAX_LAYER_ARITHMETICS = 4 };

/* Over the quantised values of one layer, by arithmetic, of what it makes in another way. */
struct nd_other_tally {
    uint64_t n[ND_MAX_LAYER_ARITHMETICS], wrong[ND_MAX_LAYER_ARITHMETICS];
    double max[ND_MAX_LAYER_ARITHMETICS];
};

/* Over the quantised values of one layer, by arithmetic, in the order of nd_layer_arithmetics. */
struct nd_layer_tally {
    uint64_t n[ND_MAX_LAYER_ARITHMETICS];     /* quantised values of which the arithmetic says what they are */
    uint64_t wrong[ND_MAX_LAYER_ARITHMETICS]; /* of those, the device's are others */
    uint64_t
        apart[ND_MAX_LAYER_ARITHMETICS]; /* of those, rounding half to even gives another quantised value */
    uint64_t apart_as_made[ND_MAX_LAYER_ARITHMETICS];  /* and the device has the program's */
    uint64_t apart_as_exact[ND_MAX_LAYER_ARITHMETICS]; /* or that of rounding */
    double max[ND_MAX_LAYER_ARITHMETICS];              /* largest magnitude of what is wrong */
    double doubt[ND_MAX_LAYER_ARITHMETICS];            /* the greatest of nd_layer_arithmetic_doubt */
    struct nd_other_tally others[ND_N_ALTERNATIVES];
    uint64_t conditions; /* nd_layer_conditions, of all samples together */
};
void nd_layer_tally_merge(const struct nd_layer_tally *from, struct nd_layer_tally *to);

/* What arithmetics make of a layer in another way. */
struct nd_layer_made {
    struct nd_array qvalues[ND_MAX_LAYER_ARITHMETICS];
    bool is_covered[ND_MAX_LAYER_ARITHMETICS];
    size_t alike[ND_MAX_LAYER_ARITHMETICS]; /* of a part: the arithmetic whose quantised values are those of
                                               this one, too */
    bool is_open[ND_MAX_LAYER_ARITHMETICS]; /* of a part: made with the layer after it in a way that is not
                                               known; of a Concat: of two ways to rescale, which differ */
    uint64_t conditions;                    /* of the layer that made them */
    bool wraps;                             /* see nd_layer_encodings */
};

/* What arithmetics make of the layer at hand. One for each thread. */
struct nd_layer_trial {
    const struct nd_model *model;
    const struct nd_alternatives *alternatives; /* of the model; NULL: none is tried */
    struct nd_layer_made *kept; /* [n_kept] parts of tensors, made by the makers of the tensors before them */
    size_t n_kept;              /* alternatives->n_parts */
    struct nd_layer_made others[ND_N_ALTERNATIVES]; /* of the layer at hand */
    struct nd_layer_memory *memory;                 /* of the sample at hand */
    uint64_t conditions;                            /* of the layer at hand */
    size_t tensor;                                  /* SIZE_MAX: of none */
    size_t only; /* SIZE_MAX: all arithmetics are tried. Or one of them, whose device is made: no quantised
                    values are given, and what it makes is what the device has */
    bool is_v81; /* of that device */
    struct nd_array made[ND_MAX_LAYER_ARITHMETICS]; /* not there where is_covered is false or alike less */
    size_t alike[ND_MAX_LAYER_ARITHMETICS]; /* the first arithmetic that makes the same of such layers */
    bool is_covered[ND_MAX_LAYER_ARITHMETICS];
    double doubt[ND_MAX_LAYER_ARITHMETICS];
};
enum nd_status nd_layer_trial_init(struct nd_layer_trial *trial, const struct nd_model *model,
                                   const struct nd_alternatives *alternatives, struct nd_error *err);
void nd_layer_trial_deinit(struct nd_layer_trial *trial);
/* Before each sample of a device. */
void nd_layer_trial_begin(struct nd_layer_trial *trial);
/* The tensor has other quantised values than its maker made: nothing else is known of it, either. Of a trial
 * with alternatives. */
void nd_layer_trial_forget_tensor(struct nd_layer_trial *trial, size_t tensor);
/* Takes the layer through all arithmetics. given: the device's quantised values of it, n = 0 where they are not
 * known. ND_ERR_MEMORY; what an arithmetic refuses it does not cover. */
enum nd_status nd_layer_trial_run(struct nd_layer_trial *trial, const struct nd_exact_layer *layer,
                                  const struct nd_array *given, struct nd_error *err);
/* What the arithmetic makes of the layer that was taken last, in another way; NULL: nothing is known. */
const struct nd_array *nd_layer_trial_other(const struct nd_layer_trial *trial, enum nd_alternative alternative,
                                            size_t arithmetic);
/* What a device of the arithmetic makes of the layer that was taken last, as far as that is known without its
 * values; NULL: it is not known. is_hidden: nobody records what the layer before it makes, so that the two may
 * be one operation. */
const struct nd_array *nd_layer_trial_choose(const struct nd_layer_trial *trial,
                                             const struct nd_exact_layer *layer, size_t arithmetic,
                                             bool is_hidden);
/* Whether that is one of several ways that give different values, each of which was seen to be a chip's: what
 * bends or narrows a product, by itself or with it; a Mul by one number, flat or in blocks; a product of an
 * operand whose encoding the provider forces. Half of a uint16 Gelu in parts: nothing gives it. A sum of
 * products by a vector: of which axes is not looked at. */
bool nd_layer_trial_is_uncertain(const struct nd_layer_trial *trial, const struct nd_exact_layer *layer,
                                 size_t arithmetic, const struct nd_array *chosen);
/* Counts the layer that was taken last. exact[n]: rounded half to even. */
void nd_layer_trial_count(const struct nd_layer_trial *trial, const double *given, const double *exact,
                          size_t n, struct nd_layer_tally *tally);
