/* Whether a product by constants was computed with others than the model's
 * (arithmetic/variants/changed_constants.h): what its values fit is found by least squares, and then worked out
 * exactly. */
#pragma once

#include "arithmetic/variants/changed_constants.h"
#include "explain/diagnosis/diagnosis.h"

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
