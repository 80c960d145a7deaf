/* Counting which programs give a code. Most codes are the nearest, of a value that is far from a tie: then
 * nothing is to be counted for the programs that round to the nearest. */
#include <math.h>

#include "explain/trials/code_cells.h"

size_t nd_half_even_program(void)
{
    size_t n, p = 0;
    const struct nd_program *programs = nd_programs(&n);
    while (p + 1 < n && (programs[p].kind != ND_PROGRAM_SINGLE || programs[p].rounding != ND_ROUND_HALF_EVEN))
        p++;
    return p;
}

/* Between these fractions programs that round to the nearest differ among themselves: ties, the step of double
 * rounding with 1 bit and more, and what float32 loses of values below 2^15. */
static const double nearest_low = 0.24, nearest_high = 0.76, largest_safe = 0x1p15;

/* What arithmetic in float32 may move v by, in steps: it cannot be told from exact arithmetic there. Sums pass
 * through values of the order of the type's range. */
double nd_code_float_doubt(const struct nd_code_bounds *bounds)
{
    return 0x1p-16 + (bounds->high - bounds->low) * 0x1p-18;
}

static bool is_nearest(const struct nd_program *program)
{
    return program->kind != ND_PROGRAM_SINGLE || program->rounding <= ND_ROUND_HALF_DOWN;
}

/* The fraction from which on the program rounds up; 0 for those whose thresholds are whole numbers. Rounding
 * twice goes away from zero. */
double nd_code_threshold(const struct nd_program *program, const struct nd_place *place)
{
    double step = ldexp(1, -program->n_bits - 1);
    if (program->kind == ND_PROGRAM_DOUBLE)
        return place->floor < 0 ? 0.5 + step : 0.5 - step;
    return is_nearest(program) ? 0.5 : 0;
}

bool nd_code_is_close(const struct nd_program *program, const struct nd_place *place,
                      const struct nd_code_bounds *bounds, double given)
{
    double doubt = nd_code_float_doubt(bounds), whole = given - bounds->zero;
    double threshold = nd_code_threshold(program, place);
    if (threshold > 0)
        return fabs(place->fraction - threshold) <= doubt &&
               (whole == place->floor || whole == place->floor + 1);
    double nearest = place->floor + (place->fraction > 0.5 ? 1 : 0);
    return fmin(place->fraction, 1 - place->fraction) <= doubt && fabs(whole - nearest) <= 1;
}

static double clip(const struct nd_code_bounds *bounds, double whole)
{
    return fmin(fmax(whole + bounds->zero, bounds->low), bounds->high);
}

void nd_code_tally_many(struct nd_code_tally *tally, const struct nd_ratio *v, const struct nd_place *at,
                        const struct nd_code_bounds *bounds, double given, uint64_t count)
{
    size_t n;
    const struct nd_program *programs = nd_programs(&n);
    if (nd_ratio_is_nan(v)) {
        tally->n_nan += count;
        return;
    }
    const struct nd_place place = *at;
    double low = clip(bounds, place.floor), high = clip(bounds, place.floor + 1);
    if (place.is_whole || low == high) {
        tally->all_wrong += given != low ? count : 0;
        return;
    }
    tally->n_open += count;
    if (given < low - 1 || given > high + 1) {
        tally->all_wrong += count;
        return;
    }
    bool is_far_from_tie =
        (place.fraction < nearest_low || place.fraction > nearest_high) && fabs(place.floor) < largest_safe;
    bool is_nearest_right = is_far_from_tie && given == (place.fraction > 0.5 ? high : low);
    for (size_t p = 0; p < n; p++) {
        bool is_given = is_nearest_right && is_nearest(&programs[p]);
        if (is_given || clip(bounds, nd_program_round(&programs[p], v, &place)) == given)
            continue;
        tally->wrong[p] += count;
        tally->far[p] += nd_code_is_close(&programs[p], &place, bounds, given) ? 0 : count;
    }
}

void nd_code_tally_add(struct nd_code_tally *tally, const struct nd_exact_values *values, const double *given)
{
    struct nd_code_bounds bounds;
    nd_code_range(values->dtype, &bounds.low, &bounds.high);
    if (values->quick != NULL) {
        bounds.zero = (double)values->quant->zero_point[0];
        nd_code_cells_add(tally, values->quick, &bounds, given);
        return;
    }
    for (size_t i = 0; i < values->n; i++) {
        size_t channel = nd_exact_channel(values->quant, values->shape, i);
        bounds.zero = (double)values->quant->zero_point[channel];
        const struct nd_place place = nd_place_of(&values->v[i]);
        nd_code_tally_many(tally, &values->v[i], &place, &bounds, given[i], 1);
    }
}

void nd_code_tally_merge(const struct nd_code_tally *from, struct nd_code_tally *to)
{
    to->n_nan += from->n_nan;
    to->n_open += from->n_open;
    to->all_wrong += from->all_wrong;
    for (size_t p = 0; p < ND_MAX_PROGRAMS; p++) {
        to->wrong[p] += from->wrong[p];
        to->far[p] += from->far[p];
    }
}

void nd_code_tally_finish(struct nd_code_tally *tally)
{
    for (size_t p = 0; p < ND_MAX_PROGRAMS; p++) {
        tally->wrong[p] += tally->all_wrong;
        tally->far[p] += tally->all_wrong;
    }
    tally->all_wrong = 0;
}
