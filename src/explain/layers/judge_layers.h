/* Which arithmetic of whole layers (arithmetic/htp/htp.h) a device has, beside those of values, and which of
 * its layers do not follow it. */
#pragma once

#include "explain/layers/device_arithmetics.h"

/* Beside what nd_find_observed_arithmetics has found (judge_layers.c): whether that is an arithmetic of layers;
 * *arithmetic is SIZE_MAX if it is none. Where an arithmetic is expected only arithmetics of that one are
 * thought of, and one of them is found unless the layers plainly follow something else: then *is_refuted.
 * is_possible[ND_MAX_LAYER_ARITHMETICS]: all those that every layer that follows *arithmetic follows, too. Then
 * observed arithmetics of layers that it covers lose their arithmetic of values, and of the others only kinds
 * that follow one keep it. */
void nd_find_layer_arithmetics(struct nd_observed_arithmetic *observations, size_t n,
                               enum nd_expectation expectation, size_t *arithmetic, bool *is_possible,
                               bool *is_refuted);
