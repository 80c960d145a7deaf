/* A part of an evaluation as a file: that of some of the samples. Sums stand for single samples and tallies are
 * counts and extremes, so that the parts together are the evaluation, to the bit. docs/science/theory.md#parts
 */
#pragma once

#include "explain/evaluate/evaluation.h"
