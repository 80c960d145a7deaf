/* Integer arithmetic as TensorFlow Lite's kernels and TOSA specify it: the multiplier M = m 2^e, m of 31 bits
 * behind the point within 1/2 .. 1, times an accumulator of 32 bits.
 *
 *     gemmlowp        a m 2^max(e,0) rounded to a whole number, half up; that times 2^min(e,0) rounded half
 *                     away from zero: MultiplyByQuantizedMultiplier of TensorFlow Lite (without
 *                     TFLITE_SINGLE_ROUNDING), which is gemmlowp's SaturatingRoundingDoublingHighMul and
 *                     RoundingDivideByPOT
 *     tosa-single     a m 2^e rounded once, half up: RESCALE of TOSA with SINGLE_ROUND
 *     tosa-double     the same, but of e < 0 with 2^(e-1) added before where a is not negative, else taken off:
 *                     RESCALE of TOSA with DOUBLE_ROUND */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "arith/families.h"

enum { GEMMLOWP, TOSA_SINGLE, TOSA_DOUBLE, N_KINDS };
enum { MULTIPLIER_BITS = 31 }; /* of both specifications: int32 without its sign */

static const struct nd_arithmetic programs[] = {
    {.kind = GEMMLOWP}, {.kind = TOSA_SINGLE}, {.kind = TOSA_DOUBLE}};
static const char *const names[] = {
    [GEMMLOWP] = "gemmlowp", [TOSA_SINGLE] = "tosa-single", [TOSA_DOUBLE] = "tosa-double"};

static const char *put_name(const struct nd_arithmetic *program, char buf[ND_ARITHMETIC_NAME_BYTES])
{
    snprintf(buf, ND_ARITHMETIC_NAME_BYTES, "%s", names[program->kind]);
    return buf;
}

static bool from_name(const char *name, struct nd_arithmetic *out)
{
    for (int kind = 0; kind < N_KINDS; kind++)
        if (strcmp(name, names[kind]) == 0) {
            out->kind = kind;
            return true;
        }
    return false;
}

/* floor(x / 2^n), which C leaves to the compiler for negative numbers. */
static int64_t shift_down(int64_t x, int n)
{
    return x >= 0 ? x >> n : -((-x + ((int64_t)1 << n) - 1) >> n);
}

static int64_t divide_half_away(int64_t x, int n)
{
    int64_t half = n > 0 ? (int64_t)1 << (n - 1) : 0;
    return x >= 0 ? (x + half) >> n : -((-x + half) >> n);
}

/* a m 2^-right of a whole product a m 2^31. */
static int64_t scale_as_tosa(int64_t product, int right, bool is_double)
{
    int64_t round = (int64_t)1 << (MULTIPLIER_BITS - 1 + right), more = (int64_t)1 << (MULTIPLIER_BITS - 1);
    if (is_double && right > 0)
        round += product >= 0 ? more : -more;
    return shift_down(product + round, MULTIPLIER_BITS + right);
}

static struct nd_arithmetic_outcome run(const struct nd_arithmetic_ready *ready,
                                        const struct nd_arithmetic_element *element)
{
    enum { MOST_LEFT = 30, MOST_RIGHT = 31 }; /* of a shift, in both specifications */
    int e;
    double m = frexp(ready->scaling.multiplier, &e), q = round(ldexp(m, MULTIPLIER_BITS));
    if (q == ldexp(1, MULTIPLIER_BITS)) {
        q /= 2;
        e++;
    }
    int right = e < 0 ? -e : 0;
    double a = element->a * ldexp(1, e > 0 ? e : 0);
    if (e > MOST_LEFT || right > MOST_RIGHT || !(fabs(a) <= (double)INT32_MAX))
        return nd_arithmetic_surely(nd_arithmetic_code(ready, 0)); /* undefined there */
    int64_t product = (int64_t)a * (int64_t)q, half = (int64_t)1 << (MULTIPLIER_BITS - 1);
    int64_t whole = ready->program->kind == GEMMLOWP
                        ? divide_half_away(shift_down(product + half, MULTIPLIER_BITS), right)
                        : scale_as_tosa(product, right, ready->program->kind == TOSA_DOUBLE);
    return nd_arithmetic_surely(nd_arithmetic_code(ready, (double)whole));
}

const struct nd_arithmetic_family nd_family_fixed = {.name = "fixed-point",
                                                     .needs_accumulator = true,
                                                     .programs = programs,
                                                     .n = sizeof programs / sizeof programs[0],
                                                     .put_name = put_name,
                                                     .from_name = from_name,
                                                     .run = run};
