/* Counting which programs give the codes of one unit, many at once. code_tally.c counts one by one, and its way
 * decides: both give the same numbers. */
#ifndef ND_REPLAY_CODE_CELLS_H
#define ND_REPLAY_CODE_CELLS_H

#include "arithmetic/exact/linear/quick.h"
#include "explain/trials/code_tally.h"

struct nd_code_bounds {
    double zero, low, high;
};

/* ---- code_tally.c ---- */

/* What arithmetic in float32 may move v by, in steps: it cannot be told from exact arithmetic there. Sums pass
 * through values of the order of the type's range. */
double nd_code_float_doubt(const struct nd_code_bounds *bounds);
/* The fraction from which on the program rounds up; 0 for those whose thresholds are whole numbers. Rounding
 * twice goes away from zero. */
double nd_code_threshold(const struct nd_program *program, const struct nd_place *place);
/* Whether v moved a little gives the whole number. */
bool nd_code_is_close(const struct nd_program *program, const struct nd_place *place,
                      const struct nd_code_bounds *bounds, double given);
/* Codes of one exact value: so many of them are `given`. */
void nd_code_tally_many(struct nd_code_tally *tally, const struct nd_ratio *v, const struct nd_place *place,
                        const struct nd_code_bounds *bounds, double given, uint64_t count);

/* ---- code_cells.c ---- */

/* Adds all codes: given[quick->n] are the device's. */
void nd_code_cells_add(struct nd_code_tally *tally, const struct nd_quick *quick,
                       const struct nd_code_bounds *bounds, const double *given);

#endif
