/* Means and sums that are rounded twice: an innocent way to be a step off, which many kernels have. */
#ifndef ND_EXPLAIN_ROUNDED_TWICE_H
#define ND_EXPLAIN_ROUNDED_TWICE_H

#include "explain/layer_diagnosis/layer_diagnosis.h"

enum { ND_ROUNDED_TWICE_TEXT_BYTES = 160 };

/* Whether one of two ways gives every value of the layer that was collected, which is a mean or a sum of one
 * tensor: to the scale of the input (a mean of whole numbers, divided in integers), and then to that of the
 * output; to some binary places of the output's step, and then to a whole quantised value (double:N of
 * arithmetic/exact/linear/rounding.h). Only of devices whose arithmetic the capture does not state. `text` says
 * which. ND_ERR_MEMORY is not possible: nothing is allocated. */
bool nd_explain_rounds_twice(const struct nd_layer_diagnosis *diagnosis,
                             char text[ND_ROUNDED_TWICE_TEXT_BYTES]);

#endif
