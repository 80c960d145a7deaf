/* Means and sums that are rounded twice: an innocent way to be a step off, which many kernels have. */
#pragma once

#include "explain/layer_diagnosis/layer_diagnosis.h"

enum { ND_ROUNDED_TWICE_TEXT_BYTES = 160 };
