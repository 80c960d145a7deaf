#include "arithmetic/exact/program.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "npudiff/core/parse.h"

const struct nd_program *nd_programs(size_t *n)
{
    static const struct nd_program programs[] = {
        {ND_PROGRAM_SINGLE, ND_ROUND_HALF_EVEN, 0},
        {ND_PROGRAM_SINGLE, ND_ROUND_HALF_AWAY, 0},
        {ND_PROGRAM_SINGLE, ND_ROUND_HALF_UP, 0},
        {ND_PROGRAM_SINGLE, ND_ROUND_HALF_DOWN, 0},
        {ND_PROGRAM_FLOAT32, 0, 0},
        {ND_PROGRAM_SINGLE, ND_ROUND_FLOOR, 0},
        {ND_PROGRAM_SINGLE, ND_ROUND_CEIL, 0},
        {ND_PROGRAM_SINGLE, ND_ROUND_TO_ZERO, 0},
        {ND_PROGRAM_DOUBLE, 0, 8},
        {ND_PROGRAM_DOUBLE, 0, 1},
        {ND_PROGRAM_DOUBLE, 0, 2},
        {ND_PROGRAM_DOUBLE, 0, 3},
        {ND_PROGRAM_DOUBLE, 0, 4},
        {ND_PROGRAM_DOUBLE, 0, 5},
        {ND_PROGRAM_DOUBLE, 0, 6},
        {ND_PROGRAM_DOUBLE, 0, 7},
        {ND_PROGRAM_DOUBLE, 0, 9},
        {ND_PROGRAM_DOUBLE, 0, 10},
        {ND_PROGRAM_DOUBLE, 0, 11},
        {ND_PROGRAM_DOUBLE, 0, 12},
    };
    *n = sizeof programs / sizeof programs[0];
    return programs;
}

const char *nd_program_name(const struct nd_program *program, char buf[ND_PROGRAM_NAME_BYTES])
{
    switch (program->kind) {
    case ND_PROGRAM_SINGLE:
        snprintf(buf, ND_PROGRAM_NAME_BYTES, "%s", nd_rounding_name(program->rounding));
        break;
    case ND_PROGRAM_DOUBLE:
        snprintf(buf, ND_PROGRAM_NAME_BYTES, "double:%d", program->n_bits);
        break;
    case ND_PROGRAM_FLOAT32:
        snprintf(buf, ND_PROGRAM_NAME_BYTES, "float32");
        break;
    }
    return buf;
}

bool nd_program_from_name(const char *name, struct nd_program *out)
{
    size_t n;
    const struct nd_program *programs = nd_programs(&n);
    char buf[ND_PROGRAM_NAME_BYTES];
    for (size_t i = 0; i < n; i++)
        if (strcmp(name, nd_program_name(&programs[i], buf)) == 0) {
            *out = programs[i];
            return true;
        }
    return false;
}

/* v 2^n_bits rounded half up, less floor 2^n_bits. */
static double first_rounding(const struct nd_ratio *ratio, const struct nd_place *place, double n_steps)
{
    double x = place->fraction * n_steps + 0.5, doubt = (fabs(place->floor) + 1) * 0x1p-49 * n_steps;
    if (place->is_whole)
        return 0;
    if (fabs(x - rint(x)) > doubt)
        return floor(x);
    const struct nd_ratio scaled = {nd_wide_scale(ratio->numerator, n_steps), ratio->denominator};
    return nd_round_ratio(&scaled, ND_ROUND_HALF_UP) - place->floor * n_steps;
}

static double round_twice(const struct nd_ratio *ratio, const struct nd_place *place, int n_bits)
{
    double n_steps = ldexp(1, n_bits), first = first_rounding(ratio, place, n_steps);
    bool is_up = 2 * first > n_steps || (2 * first == n_steps && place->floor >= 0);
    return place->floor + (is_up ? 1 : 0) + 0.0;
}

double nd_program_round(const struct nd_program *program, const struct nd_ratio *ratio,
                        const struct nd_place *place)
{
    switch (program->kind) {
    case ND_PROGRAM_SINGLE:
        break;
    case ND_PROGRAM_DOUBLE:
        return round_twice(ratio, place, program->n_bits);
    case ND_PROGRAM_FLOAT32: {
        double v = ratio->numerator.parts[0] / ratio->denominator.parts[0];
        return place->is_whole ? place->floor : rint((double)(float)v) + 0.0;
    }
    }
    return nd_round_place(place, program->rounding);
}

double nd_program_code(const struct nd_program *program, const struct nd_ratio *ratio, double zero_point,
                       enum nd_dtype dtype)
{
    double low, high;
    nd_code_range(dtype, &low, &high);
    if (nd_ratio_is_nan(ratio))
        return low;
    const struct nd_place place = nd_place_of(ratio);
    return fmin(fmax(nd_program_round(program, ratio, &place) + zero_point, low), high);
}
