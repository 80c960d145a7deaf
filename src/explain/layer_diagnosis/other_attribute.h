/* Whether a layer of quantised values was computed with another attribute of its operator than the model's. */
#pragma once

#include "explain/diagnosis/diagnosis.h"

struct nd_other_attribute {
    size_t node;       /* of the run at hand: the operator that is another one, */
    const void *proto; /* and what it is; NULL: it is the model's */
    double *qvalues;   /* [n_samples][n] with the attribute; NULL: none predicts the device's */
    char text[sizeof((struct nd_finding *)NULL)->text]; /* of it */
};

struct nd_layer_diagnosis;

/* After the layer diagnosis has collected its quantised values: fills qvalues and text of
 * diagnosis->attribute. allowance: LSB by which the device's arithmetic may be off. ND_ERR_MEMORY, and errors
 * of reading captures; free(qvalues) in any case. */
enum nd_status nd_layer_diagnosis_find_attribute(struct nd_layer_diagnosis *diagnosis, double allowance,
                                                 struct nd_error *err);
