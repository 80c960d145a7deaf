/* Which program of whole units (arith/htp.h) a device has, beside those of values, and which of its units do
 * not follow it. */
#ifndef ND_EXPLAIN_UNIT_PROGRAMS_H
#define ND_EXPLAIN_UNIT_PROGRAMS_H

#include "explain/layers/device_programs.h"

/* Beside what nd_find_habits has found (judge_layers.c): whether that is a program of units; *program is
 * SIZE_MAX if it is none. Where an arithmetic is expected only programs of that one are thought of, and one of
 * them is found unless the units plainly follow something else: then *is_refuted.
 * is_possible[ND_MAX_UNIT_PROGRAMS]: all those that every unit that follows *program follows, too. Then
 * habits of units that it covers lose their program of values, and of the others only kinds that follow one
 * keep it. */
void nd_find_unit_habits(struct nd_habit *habits, size_t n, enum nd_expectation expectation, size_t *program,
                         bool *is_possible, bool *is_refuted);

/* Whether all codes of the unit are what the program makes in another way. */
bool nd_follows_other(const struct nd_habit *habit, enum nd_alternative alternative, size_t program);

#endif
