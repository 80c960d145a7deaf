/* Counting which programs give a code. Most values are far from every threshold but one, so that they are
 * counted for all programs at once. */
#include <math.h>

#include "explain/programs.h"

/* Between these fractions programs that round to the nearest differ among themselves: ties, the step of double
 * rounding with 1 bit and more, and what float32 loses of values below 2^15. */
static const double nearest_low = 0.24, nearest_high = 0.51, largest_safe = 0x1p15;

/* What arithmetic in float32 may move v by, in steps: it cannot be told from exact arithmetic there. */
static double float_doubt(double v)
{
    return 0x1p-16 + fabs(v) * 0x1p-20;
}

static bool is_nearest(const struct nd_program *program)
{
    return program->kind != ND_PROGRAM_SINGLE || program->rounding <= ND_ROUND_HALF_DOWN;
}

/* The fraction from which on the program rounds up; 0 for those whose thresholds are whole numbers. */
static double threshold_of(const struct nd_program *program)
{
    if (program->kind == ND_PROGRAM_DOUBLE)
        return 0.5 - ldexp(1, -program->n_bits - 1);
    return is_nearest(program) ? 0.5 : 0;
}

/* Whether v moved a little gives the whole number. */
static bool is_close(const struct nd_program *program, const struct nd_place *place, double whole)
{
    double doubt = float_doubt(place->floor), threshold = threshold_of(program);
    if (threshold > 0)
        return fabs(place->fraction - threshold) <= doubt &&
               (whole == place->floor || whole == place->floor + 1);
    double nearest = place->floor + (place->fraction > 0.5 ? 1 : 0);
    return fmin(place->fraction, 1 - place->fraction) <= doubt && fabs(whole - nearest) <= 1;
}

struct bounds {
    double zero, low, high;
};

static double clip(const struct bounds *bounds, double whole)
{
    return fmin(fmax(whole + bounds->zero, bounds->low), bounds->high);
}

static void count_one(struct nd_explain_votes *votes, const struct nd_program *program, size_t p,
                      const struct nd_ratio *v, const struct nd_place *place, const struct bounds *bounds,
                      double given)
{
    if (clip(bounds, nd_program_round(program, v, place)) == given)
        return;
    votes->wrong[p]++;
    votes->far[p] += !is_close(program, place, given - bounds->zero);
}

static void count_code(struct nd_explain_votes *votes, const struct nd_ratio *v, const struct bounds *bounds,
                       double given)
{
    size_t n;
    const struct nd_program *programs = nd_programs(&n);
    const struct nd_place place = nd_place_of(v);
    double low = clip(bounds, place.floor), high = clip(bounds, place.floor + 1);
    double doubt = float_doubt(place.floor);
    bool is_plain = place.fraction > doubt && place.fraction < 1 - doubt;
    if (place.is_whole || low == high) {
        votes->all_wrong += given != low;
        return;
    }
    votes->n_open++;
    if (is_plain && given != low && given != high) {
        votes->all_wrong++;
        return;
    }
    bool is_easy = is_plain && (place.fraction < nearest_low || place.fraction > nearest_high) &&
                   fabs(place.floor) < largest_safe;
    if (is_easy)
        votes->nearest_wrong += (given == high) != (place.fraction > 0.5);
    for (size_t p = 0; p < n; p++)
        if (!is_easy || !is_nearest(&programs[p]))
            count_one(votes, &programs[p], p, v, &place, bounds, given);
}

void nd_explain_count_votes(struct nd_explain_votes *votes, const struct nd_exact_values *values,
                            const double *given)
{
    struct bounds bounds;
    nd_code_range(values->dtype, &bounds.low, &bounds.high);
    for (size_t i = 0; i < values->n; i++) {
        size_t channel = nd_exact_channel(values->quant, values->shape, i);
        bounds.zero = (double)values->quant->zero_point[channel];
        count_code(votes, &values->v[i], &bounds, given[i]);
    }
}

void nd_explain_merge_votes(const struct nd_explain_votes *from, struct nd_explain_votes *to)
{
    to->n_open += from->n_open;
    to->nearest_wrong += from->nearest_wrong;
    to->all_wrong += from->all_wrong;
    for (size_t p = 0; p < ND_EXPLAIN_MAX_PROGRAMS; p++) {
        to->wrong[p] += from->wrong[p];
        to->far[p] += from->far[p];
    }
}

void nd_explain_finish_votes(struct nd_explain_votes *votes)
{
    size_t n;
    const struct nd_program *programs = nd_programs(&n);
    for (size_t p = 0; p < n; p++) {
        uint64_t more = votes->all_wrong + (is_nearest(&programs[p]) ? votes->nearest_wrong : 0);
        votes->wrong[p] += more;
        votes->far[p] += more;
    }
    votes->all_wrong = votes->nearest_wrong = 0;
}
