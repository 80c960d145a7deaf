/* Which program of whole units (arith/htp.h) a device has, beside those of values, and which of its units do
 * not follow it. */
#ifndef ND_EXPLAIN_LAYER_ARITHMETICS_H
#define ND_EXPLAIN_LAYER_ARITHMETICS_H

#include "explain/layers/device_arithmetics.h"

/* Beside what nd_find_habits has found (judge_layers.c): whether that is a program of units; *program is
 * SIZE_MAX if it is none. Where an arithmetic is expected only programs of that one are thought of, and one of
 * them is found unless the units plainly follow something else: then *is_refuted.
 * is_possible[ND_MAX_UNIT_PROGRAMS]: all those that every unit that follows *program follows, too. Then
 * habits of units that it covers lose their program of values, and of the others only kinds that follow one
 * keep it. */
void nd_find_layer_arithmetics(struct nd_observed_arithmetic *observations, size_t n, enum nd_expectation expectation, size_t *arithmetic,
                         bool *is_possible, bool *is_refuted);

/* Whether all codes of the unit are what the program makes in another way. */
bool nd_follows_other(const struct nd_observed_arithmetic *observed, enum nd_alternative alternative, size_t arithmetic);

#endif
