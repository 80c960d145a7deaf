/* How a device turns an accumulator into a quantised value, read off a threshold sweep: the quantised values of
 * all accumulators of a range, for several multipliers and zero points.
 *
 * Nothing is looked up that can be solved for. The greatest common divisor of the distances between thresholds
 * is the granule; the thresholds' inequalities k <= c A + o < k + 1 meet in an interval of c; what is left over
 * all threshold sweep are arithmetics (requantise.h) that are not excluded, and the parameters that could not
 * be told apart. */
#ifndef ND_EXPERIMENT_THRESHOLD_SWEEP_H
#define ND_EXPERIMENT_THRESHOLD_SWEEP_H

#include "arithmetic/arithmetics/requantise.h"
#include "core/error.h"

/* One threshold sweep: quantised values of the accumulators first, first + 1, ... Borrowed. */
struct nd_threshold_sweep {
    double multiplier; /* M = s_x s_w / s_y, in double from the float32 scales */
    double zero_point;
    double low, high; /* of the codes' type */
    double first;
    size_t n;
    const double *qvalues; /* [n] */
};

/* What one threshold sweep shows by itself. */
struct nd_threshold_sweep_shape {
    bool is_rising;      /* no quantised value is below the one before */
    size_t n_thresholds; /* accumulators at which the quantised value rises, away from the ends of the type */
    /* Greatest common divisor of their distances; 0 with fewer than 3 of them, and where all distances are the
     * same: that is the multiplier's own period. */
    double granule;
    double offset; /* of the thresholds: T mod granule */
};
void nd_threshold_sweep_look(const struct nd_threshold_sweep *threshold_sweep,
                             struct nd_threshold_sweep_shape *out);

/* What several show together. */
struct nd_threshold_sweep_findings {
    uint64_t n_qvalues;  /* looked at */
    uint64_t n_deciding; /* of these, next to a threshold: those that exclude anything */
    size_t n_rising, n_thresholds;
    struct nd_requantise
        *arithmetics; /* not excluded: they give every quantised value; fewest bits first; owned */
    size_t n_arithmetics;
    /* Where none is left: the one that gives most of the quantised values, among the best structures. */
    struct nd_requantise nearest;
    uint64_t n_nearest_wrong;
};

/* All threshold sweep are of one device and operator. out->arithmetics needs free on success only.
 * ND_ERR_MEMORY. */
enum nd_status nd_threshold_sweep_solve(const struct nd_threshold_sweep *staircases, size_t n,
                                        struct nd_threshold_sweep_findings *out, struct nd_error *err);

/* Multipliers whose threshold sweep tell arithmetics apart: first some for which nothing is known yet (powers
 * of two, where all thresholds are ties; above 1/4, where a granule would be a fraction; generic ones); then,
 * with what those left, some that lie halfway between two multipliers of as many bits. Each has at most 24
 * bits, so that it is the product of a float32 scale and a power of two. How many; at most
 * ND_THRESHOLD_SWEEP_MULTIPLIERS. */
enum { ND_THRESHOLD_SWEEP_MULTIPLIERS = 12 };
size_t nd_threshold_sweep_first_multipliers(double out[ND_THRESHOLD_SWEEP_MULTIPLIERS]);
size_t nd_threshold_sweep_next_multipliers(const struct nd_threshold_sweep_findings *findings,
                                           double out[ND_THRESHOLD_SWEEP_MULTIPLIERS]);

/* How many quantised values the arithmetic does not give. */
uint64_t nd_threshold_sweep_count_wrong(const struct nd_threshold_sweep *threshold_sweep,
                                        const struct nd_requantise *arithmetic);

#endif
