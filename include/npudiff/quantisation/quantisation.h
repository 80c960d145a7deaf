/* What the quantisation of a model costs: in which layer the error against the float model is made, why, and
 * what would help. nd_explain fills it where it is given a float model (nd_explanation.quantisation).
 *
 * The quantised reference is the quantised model, each layer evaluated exactly and rounded once: no device has
 * a part in this. Layers are the steps of the explanation. In the real units of the tensor,
 *
 *     total      = quantised reference - float model
 *     introduced = quantised reference - the float model's layer, fed with the quantised reference's inputs
 *     passed on  = the float model's layer, fed with the quantised reference's inputs - float model
 *
 * so that total = introduced + passed on in every element. docs/science/theory.md#quantisation-by-layer
 *
 * Example:
 *
 *     static void print_worst_layer(const struct nd_quantisation *q)
 *     {
 *         if (q == NULL || q->n_ranked == 0)
 *             return;
 *         const struct nd_quantised_layer *worst = &q->layers[q->ranked[0]];
 *         printf("layer %zu: %s\n", q->ranked[0], worst->cause_text);
 *         for (size_t i = 0; i < worst->n_remedies; i++)
 *             printf("  %s: %+.1f dB\n", worst->remedies[i].text, worst->remedies[i].output_gain_db);
 *     }
 *
 * Stability: unstable. Until version 1.0 every minor version may change what is declared here; programs
 * that use it are compiled again. */
#ifndef NPUDIFF_QUANTISATION_H
#define NPUDIFF_QUANTISATION_H

#include "npudiff/core/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Why a layer introduces an error. Criteria: docs/reference/diagnoses.md#quantisation */
enum nd_loss_cause {
    ND_LOSS_NONE,            /* it introduces none, or nothing is known of it */
    ND_LOSS_ROUNDING,        /* the rounding of its output; the range fits its values */
    ND_LOSS_OUTLIERS,        /* a few far values stretch the range: the others have few steps */
    ND_LOSS_MASK,            /* a constant that stands for "nothing here" does, such as -3.4e38 */
    ND_LOSS_RANGE,           /* the range is far wider than the values: calibrated with other inputs */
    ND_LOSS_ZERO_POINT,      /* half of the range or more lies on the side of zero where no value is */
    ND_LOSS_CLIPPING,        /* values outside of the range */
    ND_LOSS_WEIGHT_ROUNDING, /* the rounding of its weights; their scales fit */
    ND_LOSS_WEIGHT_CHANNELS, /* one scale for all channels of the weights, whose sizes are far apart */
    ND_LOSS_BIAS,            /* its bias: coarse steps, or clipped */
    ND_LOSS_NOT_FINITE,      /* a constant that it reads has an infinite scale: what it gives is no number */
};
/* "none", "rounding", "outliers", "mask", "range", "zero-point", "clipping", "weight-rounding",
 * "weight-channels", "bias", "not-finite". Static storage. */
ND_PUBLIC const char *nd_loss_cause_name(enum nd_loss_cause cause);

enum nd_remedy_kind {
    ND_REMEDY_RANGE,           /* a narrower or wider range of the output, same type */
    ND_REMEDY_16_BITS,         /* 16 bits for the output */
    ND_REMEDY_WEIGHT_CHANNELS, /* 8-bit weights with one scale per output channel */
    ND_REMEDY_WEIGHT_16_BITS,  /* 16-bit weights, scales as they are: per tensor or channel */
    ND_REMEDY_BIAS,            /* 32-bit bias whose scale is that of the products */
    ND_REMEDY_BIAS_SHIFT,      /* biases that take back what the rounding of the weights adds on average */
    ND_REMEDY_EQUALISE, /* channels scaled against the layer before or after it, or both, so that one scale
                           fits the weights of all (cross-layer equalisation) */
};
/* "range", "16-bits", "weight-channels", "weight-16-bits", "bias", "bias-shift", "equalise". Static
 * storage. */
ND_PUBLIC const char *nd_remedy_kind_name(enum nd_remedy_kind kind);

/* A change of one layer's quantisation. Its gains were computed with the change made, not estimated. */
struct nd_remedy {
    enum nd_remedy_kind kind;
    const char *method; /* of a range: "min-max", "percentile 99.9", "percentile 99.99", "entropy", "mse",
                           "without the mask"; else NULL. Static */
    char *text;         /* "clip its range to [-4.1, 5.2]" */
    size_t n_partners, partners[2]; /* of ND_REMEDY_EQUALISE: the layers that are changed with it */
    double low, high;               /* of the output's range; NaN where it is not changed */
    double own_gain_db;    /* by how much the error that the change is about shrinks: of the tensor, of the
                              weights; of ND_REMEDY_EQUALISE: of what the last one of the layers makes */
    double output_gain_db; /* by how much the error at the model's outputs shrinks */
};

/* One kind of remedy in all layers that it concerns, together: ND_REMEDY_RANGE (mask constants taken out of
 * ranges), ND_REMEDY_16_BITS, ND_REMEDY_WEIGHT_CHANNELS or ND_REMEDY_EQUALISE. */
struct nd_whole_remedy {
    enum nd_remedy_kind kind;
    const char *text; /* static */
    size_t n_layers;
    double output_gain_db;
};

/* One step of the explanation. Mean squares are in real units, over the samples that were measured. */
struct nd_quantised_layer {
    bool is_known; /* the float model has the tensor, and both could be evaluated; else all is NaN or 0 */
    double signal; /* mean square of the float model */
    double total;  /* mean squares of the three */
    double introduced;
    double passed_on;
    /* Parts of what is introduced: rounding of the output, values outside of its range, and the constants
     * (weights, biases) that the layer reads. They do not add up exactly: they are correlated. */
    double rounding, clipping, constants;
    double sqnr_db;            /* signal over total; infinite without an error */
    double introduced_sqnr_db; /* signal over introduced */
    /* Effect: the float model with nothing but this layer's introduced error. effect_db: signal over error at
     * the outputs, in dB; effect_share: its part of the sum of that error over all layers. NaN: not measured.
     */
    double effect_db, effect_share;
    enum nd_loss_cause cause;
    bool is_accused;  /* the cause can be mended, it matters at the outputs, and a remedy gains 1 dB or more */
    char *cause_text; /* the cause with the numbers that show it; NULL where the cause is none */
    /* The evidence. NaN or 0 where there is none. */
    double range_low, range_high;     /* real values that the first and the last quantised value stand for */
    double value_low, value_high;     /* of the float model */
    double central_low, central_high; /* of 99.9 % of the values, without a mask constant */
    double used_share;                /* of the range by these */
    double clipped_share;             /* of the values: more than half a step outside of the range */
    double mask, mask_share;          /* the constant, and the share of the values that it is */
    double weight_ratio;              /* largest over lower quartile of the channels' largest weights */
    double weight_sqnr_db;            /* of the constants' rounding error, biases left out */
    double bias_error;                /* root mean square of the bias's rounding error */
    /* Channels that hold one value in all samples where the float model's do not: their values are below a step
     * of a scale that other channels need. constant_text says which; NULL: there are none, or they are few. */
    size_t n_constant_channels;
    char *constant_text;
    size_t n_remedies;
    struct nd_remedy *remedies; /* [n_remedies] that help, the one with the greatest gain first */
};

/* Two layers whose channels the quantised model has scaled against those of the float model (cross-layer
 * equalisation), without a change of what the whole computes. docs/reference/diagnoses.md#equalised-models */
struct nd_equalised_pair {
    size_t first, second; /* steps */
    double least, most;   /* factors of the channels between them, quantised by float */
    bool is_followed; /* the float model was compared with the same factors. Else what is said of both layers
                         compares tensors that differ by intention */
};

struct nd_quantisation {
    size_t n_samples;        /* that were measured */
    size_t n_effect_samples; /* in which effects and gains were measured */
    double output_sqnr_db;   /* of the quantised reference, in those */
    double mended_sqnr_db;   /* with the best remedy of each layer, all together; NaN without remedies */
    size_t n_layers;         /* = n_steps of the explanation */
    struct nd_quantised_layer *layers; /* [n_layers] */
    size_t n_whole;
    struct nd_whole_remedy *whole; /* [n_whole] of the model as a whole, that help, the greatest gain first */
    size_t n_ranked;
    size_t n_equalised;
    struct nd_equalised_pair *equalised; /* [n_equalised] in graph order */
    size_t *ranked; /* [n_ranked] layers whose effect was measured, the greatest first; before them those that
                       give no numbers, as nothing after them means anything */
};

#ifdef __cplusplus
}
#endif
#endif
