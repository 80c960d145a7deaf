/* The grid of a narrower float type (science 2.3), and values that are cut to their grid instead of rounded. */
#include <math.h>

#include "diagnosis/diagnosis_parts.h"
#include "diagnosis/values_internal.h"

/* A grid is named when chance would give it in less than one of a million tensors (chosen). */
static const double most_chance = -6;
/* Smaller powers of ten mean nothing to a reader. */
static const double least_said = -30;

/* Float types by their mantissa and their least normal exponent. */
struct grid {
    const char *name;
    int bits, least;
    double part;    /* share of random floats that lie on it, a unit of float32 beside it included */
    int plain_bits; /* values of so few bits are round numbers, met everywhere: they are no evidence */
    enum nd_fault_kind kind;
};

static const struct grid bf16 = {"bfloat16", 7, -126, 3.0 / 65536, 3, ND_FAULT_BF16_GRID};
static const struct grid fp16 = {"half precision", 10, -14, 3.0 / 8192, 5, ND_FAULT_FP16_GRID};
static const struct grid tf32 = {"10 bits of mantissa", 10, -126, 3.0 / 8192, 5, ND_FAULT_FP16_GRID};
static const struct grid fp32 = {"float32", 23, -126, 1, 23, ND_FAULT_UNEXPLAINED};
static const struct grid e4m3 = {"float8_e4m3fn", 3, -6, 1, 3, ND_FAULT_UNEXPLAINED};
static const struct grid e5m2 = {"float8_e5m2", 2, -14, 1, 2, ND_FAULT_UNEXPLAINED};

enum direction { NEAREST, TO_ZERO, DOWN, UP, N_DIRECTIONS };

static double round_by(double x, enum direction direction)
{
    switch (direction) {
    case TO_ZERO:
        return trunc(x);
    case DOWN:
        return floor(x);
    case UP:
        return ceil(x);
    default:
        return rint(x);
    }
}

/* step > 0: the grid of codes. */
static double to_grid(const struct grid *grid, double step, double x, enum direction direction)
{
    if (step > 0)
        return step * round_by(x / step, direction);
    int exponent = 0;
    frexp(x, &exponent);
    exponent = exponent - 1 > grid->least ? exponent - 1 : grid->least;
    return ldexp(round_by(ldexp(x, grid->bits - exponent), direction), exponent - grid->bits);
}

static bool is_on(const struct grid *grid, double x)
{
    if (grid == &fp16)
        return nd_doctor_is_fp16((float)x);
    if (grid == &bf16)
        return nd_doctor_is_bf16((float)x);
    return fabs(x - to_grid(grid, 0, x, NEAREST)) <= ldexp(fabs(x), -23);
}

static bool is_plain(const struct grid *grid, double x)
{
    const struct grid coarse = {.bits = grid->plain_bits, .least = -1000};
    return x == to_grid(&coarse, 0, x, NEAREST);
}

static bool is_on_everywhere(const struct nd_values_look *look, const struct grid *grid)
{
    size_t n = 0;
    for (size_t i = 0; i < look->n_total; i++) {
        double x = look->v->test[i];
        if (!isfinite(x) || x == 0)
            continue;
        n++;
        if (!is_on(grid, x))
            return false;
    }
    return n > 0;
}

/* Distinct magnitudes on the grid that are no round numbers, where the reference is off the grid. */
static size_t count_evidence(const struct nd_values_look *look, const struct grid *grid)
{
    size_t n = 0, n_distinct = 0;
    for (size_t i = 0; i < look->n_total; i++) {
        double x = look->v->test[i];
        bool is_telling = isfinite(x) && x != 0 && nd_values_is_known(look, i) && !is_on(grid, look->v->ref[i]);
        if (is_telling && !is_plain(grid, to_grid(grid, 0, x, NEAREST)))
            look->scratch[n++] = fabs(x);
    }
    (void)nd_values_quantile(look->scratch, n, 0);
    for (size_t k = 0; k < n; k++)
        n_distinct += k == 0 || look->scratch[k] != look->scratch[k - 1];
    return n_distinct;
}

void nd_values_try_grid(const struct nd_values_look *look)
{
    static const struct grid *const grids[] = {&bf16, &fp16};
    if (look->v->step > 0 || (look->v->dtype != ND_DTYPE_F32 && look->v->dtype != ND_DTYPE_F64))
        return;
    for (size_t g = 0; g < sizeof grids / sizeof grids[0]; g++) {
        if (!is_on_everywhere(look, grids[g]))
            continue;
        size_t n = count_evidence(look, grids[g]);
        double chance = (double)n * log10(grids[g]->part);
        struct nd_finding f = nd_values_finding(look, grids[g]->kind, 0, 1, chance);
        if (chance > most_chance)
            continue;
        nd_values_add(look, &f, "all values are %s numbers; %zu distinct values show it (chance %s 10^%.0f)",
                      grids[g]->name, n, chance < least_said ? "below" : "about", fmax(chance, least_said));
        return;
    }
}

/* ---- cut or rounded ---- */

/* The coarsest grid that the test's values lie on; NULL: none that is known. */
static const struct grid *grid_of(const struct nd_values_look *look)
{
    static const struct grid *const grids[] = {&bf16, &fp16, &tf32};
    switch (look->v->dtype) {
    case ND_DTYPE_F16:
        return is_on_everywhere(look, &bf16) ? &bf16 : &fp16;
    case ND_DTYPE_BF16:
        return &bf16;
    case ND_DTYPE_F8E4M3FN:
        return &e4m3;
    case ND_DTYPE_F8E5M2:
        return &e5m2;
    default:
        for (size_t g = 0; g < sizeof grids / sizeof grids[0]; g++)
            if (is_on_everywhere(look, grids[g]))
                return grids[g];
        return look->v->dtype == ND_DTYPE_F32 ? &fp32 : NULL;
    }
}

static const char *const direction_names[N_DIRECTIONS] = {"to nearest", "toward zero", "down", "up"};

struct cuts {
    size_t n, n_right[N_DIRECTIONS]; /* elements that the direction gives */
    size_t n_deciding[N_DIRECTIONS]; /* where it and rounding to nearest are not the same, and the test is one
                                        of them */
    size_t n_deciding_right[N_DIRECTIONS];
};

static struct cuts count_cuts(const struct nd_values_look *look, const struct grid *grid)
{
    const struct nd_values *v = look->v;
    struct cuts cuts = {0};
    for (size_t i = 0; i < look->n_total; i++) {
        bool is_inside = v->step == 0 || (v->test[i] > look->test_low && v->test[i] < look->test_high);
        if (!nd_values_is_known(look, i) || !isfinite(v->test[i]) || v->ref[i] == 0 || !is_inside)
            continue;
        double nearest = to_grid(grid, v->step, v->ref[i], NEAREST);
        double test = to_grid(grid, v->step, v->test[i], NEAREST);
        cuts.n++;
        for (int d = NEAREST; d < N_DIRECTIONS; d++) {
            double cut = to_grid(grid, v->step, v->ref[i], (enum direction)d);
            bool is_right = fabs(cut - test) <= 1e-9 * fabs(test);
            bool is_deciding = fabs(cut - nearest) > 1e-9 * fabs(cut);
            cuts.n_right[d] += is_right;
            cuts.n_deciding[d] += is_deciding;
            cuts.n_deciding_right[d] += is_deciding && is_right;
        }
    }
    return cuts;
}

/* A unit in the last place at x; step > 0: of codes. */
static double unit_of(const struct grid *grid, double step, double x)
{
    int exponent = 0;
    if (step > 0)
        return step;
    frexp(x, &exponent);
    exponent = exponent - 1 > grid->least ? exponent - 1 : grid->least;
    return ldexp(1, exponent - grid->bits);
}

/* How far, in units and in the direction of the cut, x is from the reference's element i. */
static double depth_of(const struct nd_values *v, const struct grid *grid, enum direction direction, size_t i,
                       double x)
{
    double depth = (v->ref[i] - x) / unit_of(grid, v->step, v->ref[i]);
    bool is_up = direction == UP || (direction == TO_ZERO && v->ref[i] < 0);
    return is_up ? -depth : depth;
}

/* The reference is no grid of its own: most of its values are no numbers of the test's grid. */
static bool is_finer(const struct nd_values_look *look, const struct grid *grid)
{
    const struct nd_values *v = look->v;
    size_t n = 0, n_off = 0;
    for (size_t i = 0; i < look->n_total; i++) {
        if (!nd_values_is_known(look, i) || v->ref[i] == 0)
            continue;
        double on = to_grid(grid, v->step, v->ref[i], NEAREST);
        n++;
        n_off += fabs(on - v->ref[i]) > 1e-6 * fabs(v->ref[i]);
    }
    return n_off * 2 > n;
}

struct depths {
    size_t n, n_within;
    double mean;         /* of those within */
    double cut, nearest; /* what a cut of the reference takes on average, and what rounding takes */
};

/* Of floats those that are as large as the spread: the device's own differences are a small part of their unit.
 */
static struct depths measure_depths(const struct nd_values_look *look, const struct grid *grid,
                                    enum direction direction, double room)
{
    const struct nd_values *v = look->v;
    struct depths depths = {0};
    for (size_t i = 0; i < look->n_total; i++) {
        bool is_inside = v->step == 0 ? fabs(v->ref[i]) >= look->spread
                                      : v->test[i] > look->test_low && v->test[i] < look->test_high;
        if (!nd_values_is_known(look, i) || !isfinite(v->test[i]) || v->ref[i] == 0 || !is_inside)
            continue;
        double depth = depth_of(v, grid, direction, i, v->test[i]);
        depths.n++;
        if (!(depth >= -room && depth <= 1 + room))
            continue;
        depths.n_within++;
        depths.mean += depth;
        depths.cut += depth_of(v, grid, direction, i, to_grid(grid, v->step, v->ref[i], direction));
        depths.nearest += depth_of(v, grid, direction, i, to_grid(grid, v->step, v->ref[i], NEAREST));
    }
    double n = depths.n_within > 0 ? (double)depths.n_within : 1;
    return (struct depths){depths.n, depths.n_within, depths.mean / n, depths.cut / n, depths.nearest / n};
}

/* A device that cuts its own values, which are not quite the reference's: a cut takes between nothing and one
 * unit, half of one on average; rounding takes nothing on average. Chosen: 200 values, 99 % of which lie
 * between those ends by a quarter of a unit, and a mean that a cut has (by 0.08 units, which is what a device's
 * own coarser values make, and three standard deviations) and that rounding is far from. */
static void try_noisy_model(const struct nd_values_look *look, const struct grid *grid)
{
    enum { MIN_NOISY = 200 };
    static const double room = 0.25, most_off = 0.08,
                        deviation = 0.2887; /* of what a cut takes: 1 / sqrt(12) */
    for (int d = TO_ZERO; d < N_DIRECTIONS; d++) {
        struct depths depths = measure_depths(look, grid, (enum direction)d, room);
        double slack = most_off + 3 * deviation / sqrt((double)depths.n + 1);
        if (depths.n < MIN_NOISY || depths.n_within * 100 < depths.n * 99 ||
            fabs(depths.mean - depths.cut) > slack || depths.mean - depths.nearest < 2 * slack)
            continue;
        struct nd_finding f = nd_values_finding(look, ND_FAULT_TRUNCATION, depths.mean,
                                                (double)depths.n_within / (double)depths.n, 0);
        nd_values_add(
            look, &f,
            "cut %s to %s, not rounded: %.2f units are missing on average of %zu values; a cut takes %.2f, "
            "rounding %.2f",
            direction_names[d], look->v->step > 0 ? "a code" : grid->name, depths.mean, depths.n, depths.cut,
            depths.nearest);
        return;
    }
}

/* Chosen: a cut gives 99 % of all elements and of at least 10 that decide. A gain of half a unit gives those
 * that decide too, but not the others. */
static bool try_model(const struct nd_values_look *look, const struct grid *grid)
{
    enum { MIN_DECIDING = 10 };
    struct cuts cuts = count_cuts(look, grid);
    for (int d = TO_ZERO; d < N_DIRECTIONS; d++) {
        size_t n = cuts.n_deciding[d], n_right = cuts.n_deciding_right[d];
        if (n < MIN_DECIDING || n_right * 100 < n * 99 || cuts.n_right[d] * 100 < cuts.n * 99)
            continue;
        double share = (double)look->n_differing / (double)look->n_known, chance = (double)n * log10(0.5);
        struct nd_finding f = nd_values_finding(look, ND_FAULT_TRUNCATION, share,
                                                (double)cuts.n_right[d] / (double)cuts.n, chance);
        nd_values_add(
            look, &f,
            "cut %s to %s, not rounded: %zu of %zu values that tell the two apart, %zu of all against it "
            "(chance %s 10^%.0f)",
            direction_names[d], look->v->step > 0 ? "a code" : grid->name, n_right, n, cuts.n - cuts.n_right[d],
            chance < least_said ? "below" : "about", fmax(chance, least_said));
        return true;
    }
    return false;
}

/* Codes beside codes: nobody knows the fractions, but a cut is one step off in half of the elements, always to
 * one side. Chosen: half of 200 elements or more inside the range, within three standard deviations and 5 %,
 * and 97 % of the differences to that side (a device's own differences put a few on the other). Healthy integer
 * units that cut their sums were seen at 40 to 46 % (v73 MatMul): this accuses nobody. */
static void try_codes(const struct nd_values_look *look)
{
    enum { MIN_CODES = 200 };
    const struct nd_values *v = look->v;
    size_t n = 0, n_step = 0, n_side[N_DIRECTIONS] = {0};
    for (size_t i = 0; i < look->n_total; i++) {
        double rise = rint((v->test[i] - v->ref[i]) / v->step);
        if (!nd_values_is_known(look, i) || v->test[i] <= look->test_low || v->test[i] >= look->test_high)
            continue;
        n++;
        n_step += fabs(rise) == 1;
        if (rise == 0)
            continue;
        n_side[NEAREST]++;
        n_side[DOWN] += rise == -1;
        n_side[UP] += rise == 1;
        n_side[TO_ZERO] += rise == (v->test[i] < 0 || (v->test[i] == 0 && v->ref[i] < 0) ? 1 : -1);
    }
    for (int d = TO_ZERO; d < N_DIRECTIONS && n >= MIN_CODES; d++) {
        double share = (double)n_side[NEAREST] / (double)n;
        if (fabs(share - 0.5) > fmin(1.5 / sqrt((double)n), 0.05) ||
            (double)n_side[d] < 0.97 * (double)n_side[NEAREST])
            continue;
        struct nd_finding f = nd_values_finding(look, ND_FAULT_ONE_SIDED, share, (double)n_step / (double)n,
                                                (double)n_side[d] * log10(0.5));
        nd_values_add(
            look, &f,
            "as if cut %s to a code, not rounded: %.0f %% of the values inside the range differ, %zu of %zu "
            "by one step to that side",
            direction_names[d], 100 * share, n_side[d], n_side[NEAREST]);
        return;
    }
}

void nd_values_try_truncation(const struct nd_values_look *look)
{
    const struct nd_values *v = look->v;
    if (v->step > 0 && v->ref_step > 0) {
        if (v->step == v->ref_step)
            try_codes(look);
        return;
    }
    const struct grid *grid = v->step > 0 ? &fp32 : grid_of(look);
    if (grid != NULL && v->ref_step == 0 && !try_model(look, grid) && is_finer(look, grid))
        try_noisy_model(look, grid);
}
