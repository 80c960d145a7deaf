/* Means and sums that are rounded twice: an innocent way to be a step off, which many kernels have. */
#ifndef ND_EXPLAIN_ROUNDED_TWICE_H
#define ND_EXPLAIN_ROUNDED_TWICE_H

#include "explain/layer_diagnosis/layer_diagnosis.h"

enum { ND_ROUNDED_TWICE_TEXT_BYTES = 160 };

#endif
