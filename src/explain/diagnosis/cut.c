/* The grid of a narrower float type (science 2.3), and values that are cut to their grid instead of rounded. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "explain/diagnosis/look.h"

/* Floats where quantised values should be: on the grid of the tensor, or of a narrower type (science 2.3). */

enum { MIN_FLOATS = 8 };

static void add(struct nd_diagnosis *out, enum nd_fault_kind kind, double amount, size_t n_wrong,
                const char *text)
{
    struct nd_finding finding = {kind, SIZE_MAX, -1, amount, 1, n_wrong, "", 0};
    snprintf(finding.text, sizeof finding.text, "%s", text);
    nd_diagnosis_add(out, &finding);
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Numbers of the narrower type, or a unit in the last place of float32 beside one.
 * A unit in the last place beside the grid is on it: Qualcomm's simulator converts half precision to floats
 * that are larger by just that. By chance three in 2^13 floats are that close to half precision. */
static bool is_bf16(float value)
{
    uint32_t rest = bits_of(value) & 0xffff;
    return rest <= 1 || rest == 0xffff;
}

/* The same. Below 2^-14 the steps of half precision, and with them that layer, stay what they are. */
static bool is_fp16(float value)
{
    double x = fabs((double)value), unit = nd_unit_at(x, 10, -14), nearest = rint(x / unit) * unit;
    return nearest <= 65504 && fabs(x - nearest) <= ldexp(unit, -13);
}

/* That n random floats lie on the grid (ND_FAULT_FP16_GRID or _BF16_GRID) or that layer beside it: base 10
 * logarithm. */
static double chance_of_grid(enum nd_fault_kind kind, size_t n)
{
    return (double)n * log10(kind == ND_FAULT_BF16_GRID ? 3.0 / 65536 : 3.0 / 8192);
}

struct float_count {
    size_t n, n_fp16, n_bf16, n_distinct; /* n_distinct counts to MIN_FLOATS; signs do not matter */
    float distinct[MIN_FLOATS];
};

static void count_distinct(struct float_count *count, float value)
{
    for (size_t k = 0; k < count->n_distinct; k++) {
        if (count->distinct[k] == value)
            return;
    }
    if (count->n_distinct < MIN_FLOATS)
        count->distinct[count->n_distinct++] = value;
}

static void add_grid(struct nd_diagnosis *out, enum nd_fault_kind kind, size_t n, const char *name,
                     double chance)
{
    char text[160];
    snprintf(text, sizeof text, "all floats are %s numbers (chance below 10^%.0f)", name, ceil(chance));
    add(out, kind, 0, n, text);
    struct nd_finding *added = out->n_rivals > 0 ? &out->rivals[out->n_rivals - 1] : &out->best;
    added->chance = chance;
}

/* Every bfloat16 in its range is also a half precision number. */
static void try_grids(const struct float_count *count, struct nd_diagnosis *out)
{
    if (count->n < MIN_FLOATS || count->n_distinct < MIN_FLOATS)
        return;
    /* Of so many distinct floats, as far as they were counted. */
    size_t n = count->n_distinct;
    if (count->n_bf16 == count->n)
        add_grid(out, ND_FAULT_BF16_GRID, count->n, "bfloat16", chance_of_grid(ND_FAULT_BF16_GRID, n));
    if (count->n_fp16 == count->n)
        add_grid(out, ND_FAULT_FP16_GRID, count->n, "half precision", chance_of_grid(ND_FAULT_FP16_GRID, n));
}

/* How far from a quantised value, in steps, an honest float may lie: what its carrier's rounding and that of
 * the product leave. A half precision carrier tells only near the zero point, a bfloat16 one nearer still. */
static bool is_off_grid(float value, const struct nd_quant *quant, double unit, bool *is_telling)
{
    double q = (double)value / (double)quant->scale[0], most = 2 * fabs(q) * unit;
    *is_telling = most <= 1.0 / 32;
    return *is_telling && fabs(q - rint(q)) > most;
}

void nd_diagnose_floats(const float *values, size_t n, const struct nd_quant *quant, struct nd_diagnosis *out)
{
    struct float_count count = {0};
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(values[i]) || values[i] == 0)
            continue;
        count.n++;
        count.n_fp16 += is_fp16(values[i]);
        count.n_bf16 += is_bf16(values[i]);
        count_distinct(&count, fabsf(values[i]));
    }
    *out = (struct nd_diagnosis){0};
    if (quant == NULL || quant->n != 1) {
        try_grids(&count, out);
        return;
    }
    bool is_narrow = count.n_fp16 == count.n, is_narrowest = count.n_bf16 == count.n;
    double unit = ldexp(1, is_narrowest ? -8 : is_narrow ? -11 : -24);
    size_t n_telling = 0, n_off = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(values[i]) || values[i] == 0)
            continue;
        bool is_telling = false;
        n_off += is_off_grid(values[i], quant, unit, &is_telling);
        n_telling += is_telling;
    }
    if (n_telling < MIN_FLOATS || n_off == 0)
        return;
    char text[160];
    snprintf(text, sizeof text, "%zu of %zu floats are not on the steps of the tensor's scale", n_off,
             n_telling);
    add(out, ND_FAULT_OFF_GRID, (double)n_off / (double)n_telling, n_off, text);
    try_grids(&count, out);
}

void nd_diagnose_same_qvalues(const float *ref, const float *test, size_t n, const struct nd_quant *quant,
                              struct nd_diagnosis *out)
{
    double most = 0;
    size_t n_differing = 0;
    *out = (struct nd_diagnosis){0};
    if (quant == NULL || quant->n != 1)
        return;
    for (size_t i = 0; i < n; i++) {
        if (ref[i] == test[i] || (isnan(ref[i]) && isnan(test[i])))
            continue;
        double a = (double)ref[i] / (double)quant->scale[0], b = (double)test[i] / (double)quant->scale[0];
        if (!isfinite(a) || !isfinite(b) || rint(a) != rint(b))
            return;
        most = fmax(most, fabs(a - b));
        n_differing++;
    }
    char text[160];
    snprintf(text, sizeof text, "%zu floats of the same quantised value differ, by up to %.3g steps",
             n_differing, most);
    if (n_differing > 0)
        add(out, ND_FAULT_SAME_QVALUE_OTHER_FLOAT, most, n_differing, text);
}

/* A grid is named when chance would give it in less than one of a million tensors (chosen). */
static const double max_chance = -6;

/* Float types by their mantissa and their least normal exponent; or the multiples of one step. */
struct grid {
    const char *name;
    int bits, least;
    double step;    /* 0: of a float type */
    int plain_bits; /* values of so few bits are round numbers, met everywhere: they are no evidence */
    enum nd_fault_kind kind;
};

enum { GRID_BYTES = 40 };

static const struct grid bf16 = {"bfloat16", 7, -126, 0, 3, ND_FAULT_BF16_GRID};
static const struct grid fp16 = {"half precision", 10, -14, 0, 5, ND_FAULT_FP16_GRID};
static const struct grid tf32 = {"10 bits of mantissa", 10, -126, 0, 5, ND_FAULT_FP16_GRID};
static const struct grid fp32 = {"float32", 23, -126, 0, 23, ND_FAULT_UNEXPLAINED};
static const struct grid e4m3 = {"float8_e4m3fn", 3, -6, 0, 3, ND_FAULT_UNEXPLAINED};
static const struct grid e5m2 = {"float8_e5m2", 2, -14, 0, 2, ND_FAULT_UNEXPLAINED};

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

/* The distance of two numbers of the grid at x; step > 0: of quantised values. */
static double unit_at(const struct grid *grid, double step, double x)
{
    step = step > 0 ? step : grid->step;
    return step > 0 ? step : nd_unit_at(x, grid->bits, grid->least);
}

static double to_grid(const struct grid *grid, double step, double x, enum direction direction)
{
    double unit = unit_at(grid, step, x);
    return round_by(x / unit, direction) * unit;
}

static bool is_on(const struct grid *grid, double x)
{
    if (grid == &fp16)
        return is_fp16((float)x);
    if (grid == &bf16)
        return is_bf16((float)x);
    return fabs(x - to_grid(grid, 0, x, NEAREST)) <= ldexp(fabs(x), -23);
}

static bool is_plain(const struct grid *grid, double x)
{
    const struct grid coarse = {.bits = grid->plain_bits, .least = -1000};
    return x == to_grid(&coarse, 0, x, NEAREST);
}

static bool is_on_everywhere(const struct nd_look *look, const struct grid *grid)
{
    size_t n = 0;
    for (size_t i = 0; i < look->n_total; i++) {
        double x = look->e->captured[i];
        if (!isfinite(x) || x == 0)
            continue;
        n++;
        if (!is_on(grid, x))
            return false;
    }
    return n > 0;
}

/* Distinct magnitudes on the grid that are no round numbers, where the reference is off the grid. */
static size_t count_evidence(const struct nd_look *look, const struct grid *grid)
{
    size_t n = 0, n_distinct = 0;
    for (size_t i = 0; i < look->n_total; i++) {
        double x = look->e->captured[i];
        bool is_telling = isfinite(x) && x != 0 && nd_is_known(look, i) && !is_on(grid, look->e->expected[i]);
        if (is_telling && !is_plain(grid, to_grid(grid, 0, x, NEAREST)))
            look->scratch[n++] = fabs(x);
    }
    (void)nd_look_quantile(look->scratch, n, 0);
    for (size_t k = 0; k < n; k++)
        n_distinct += k == 0 || look->scratch[k] != look->scratch[k - 1];
    return n_distinct;
}

/* The reference is no grid of its own: most of its values are no numbers of the test's grid. */
static bool is_finer(const struct nd_look *look, const struct grid *grid)
{
    const struct nd_evidence *e = look->e;
    size_t n = 0, n_off = 0;
    for (size_t i = 0; i < look->n_total; i++) {
        if (!nd_is_known(look, i) || e->expected[i] == 0)
            continue;
        double on = to_grid(grid, e->step, e->expected[i], NEAREST);
        n++;
        n_off += fabs(on - e->expected[i]) > 1e-6 * fabs(e->expected[i]);
    }
    return n_off * 2 > n;
}

/* The step of the test's floats, of which the reference's are no multiples. Its name goes into `name`. */
static bool find_own_grid(const struct nd_look *look, struct grid *grid, double *chance, char name[GRID_BYTES])
{
    bool is_wide = look->e->dtype == ND_DTYPE_F32 || look->e->dtype == ND_DTYPE_F64;
    struct nd_own_step own = {0};
    if (look->e->step == 0 && look->e->ref_step == 0 && is_wide)
        own = nd_find_own_step(look, look->e->captured);
    *chance = own.chance;
    *grid = (struct grid){.name = name, .step = own.step};
    snprintf(name, GRID_BYTES, "multiples of %.5g", own.step);
    return own.chance < 0 && is_finer(look, grid);
}

void nd_try_grid(const struct nd_look *look)
{
    static const struct grid *const grids[] = {&bf16, &fp16};
    struct grid own;
    double own_chance;
    char name[GRID_BYTES], said[ND_CHANCE_BYTES];
    if (look->e->step > 0 || (look->e->dtype != ND_DTYPE_F32 && look->e->dtype != ND_DTYPE_F64))
        return;
    if (find_own_grid(look, &own, &own_chance, name)) {
        struct nd_finding f = nd_finding_of(look, ND_FAULT_OWN_STEP, own.step, 1, own_chance);
        double n_bits = -log2(own.step);
        char fixed[GRID_BYTES] = "as of dequantised values";
        if (n_bits == rint(n_bits) && n_bits > 0)
            snprintf(fixed, sizeof fixed, "fixed point with %.0f fractional bits", n_bits);
        else if (own.step == rint(own.step))
            snprintf(fixed, sizeof fixed, "whole numbers");
        nd_add(look, &f, "all values are %s, %s; most of the reference's are not (%s)", name, fixed,
               nd_say_chance(own_chance, said));
        return;
    }
    for (size_t g = 0; g < sizeof grids / sizeof grids[0]; g++) {
        if (!is_on_everywhere(look, grids[g]))
            continue;
        size_t n = count_evidence(look, grids[g]);
        double chance = chance_of_grid(grids[g]->kind, n);
        struct nd_finding f = nd_finding_of(look, grids[g]->kind, 0, 1, chance);
        if (chance > max_chance)
            continue;
        nd_add(look, &f, "all values are %s numbers; %zu distinct values show it (%s)", grids[g]->name, n,
               nd_say_chance(chance, said));
        return;
    }
}

/* ---- cut or rounded ---- */

/* The coarsest grid that the test's values lie on; NULL: none that is known. */
static const struct grid *grid_of(const struct nd_look *look)
{
    static const struct grid *const grids[] = {&bf16, &fp16, &tf32};
    switch (look->e->dtype) {
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
        return look->e->dtype == ND_DTYPE_F32 ? &fp32 : NULL;
    }
}

static const char *const direction_names[N_DIRECTIONS] = {"to nearest", "toward zero", "down", "up"};

struct cuts {
    size_t n, n_right[N_DIRECTIONS]; /* elements that the direction gives */
    size_t n_deciding[N_DIRECTIONS]; /* where it and rounding to nearest are not the same, and the test is one
                                        of them */
    size_t n_deciding_right[N_DIRECTIONS];
};

static struct cuts count_cuts(const struct nd_look *look, const struct grid *grid)
{
    const struct nd_evidence *e = look->e;
    struct cuts cuts = {0};
    for (size_t i = 0; i < look->n_total; i++) {
        bool is_inside = e->step == 0 || (e->captured[i] > look->low && e->captured[i] < look->high);
        if (!nd_is_known(look, i) || !isfinite(e->captured[i]) || e->expected[i] == 0 || !is_inside)
            continue;
        double nearest = to_grid(grid, e->step, e->expected[i], NEAREST);
        double test = to_grid(grid, e->step, e->captured[i], NEAREST);
        cuts.n++;
        for (int d = NEAREST; d < N_DIRECTIONS; d++) {
            double cut = to_grid(grid, e->step, e->expected[i], (enum direction)d);
            bool is_right = fabs(cut - test) <= 1e-9 * fabs(test);
            bool is_deciding = fabs(cut - nearest) > 1e-9 * fabs(cut);
            cuts.n_right[d] += is_right;
            cuts.n_deciding[d] += is_deciding;
            cuts.n_deciding_right[d] += is_deciding && is_right;
        }
    }
    return cuts;
}

/* How far, in layers and in the direction of the cut, x is from the reference's element i. */
static double depth_of(const struct nd_evidence *e, const struct grid *grid, enum direction direction, size_t i,
                       double x)
{
    double depth = (e->expected[i] - x) / unit_at(grid, e->step, e->expected[i]);
    bool is_up = direction == UP || (direction == TO_ZERO && e->expected[i] < 0);
    return is_up ? -depth : depth;
}

struct depths {
    size_t n, n_within;
    double mean;         /* of those within */
    double cut, nearest; /* what a cut of the reference takes on average, and what rounding takes */
};

/* Of floats those that are as large as the spread: the device's own differences are a small part of their
 * layer. */
static struct depths measure_depths(const struct nd_look *look, const struct grid *grid,
                                    enum direction direction, double room)
{
    const struct nd_evidence *e = look->e;
    struct depths depths = {0};
    for (size_t i = 0; i < look->n_total; i++) {
        bool is_inside = e->step == 0 ? fabs(e->expected[i]) >= look->spread
                                      : e->captured[i] > look->low && e->captured[i] < look->high;
        if (!nd_is_known(look, i) || !isfinite(e->captured[i]) || e->expected[i] == 0 || !is_inside)
            continue;
        double depth = depth_of(e, grid, direction, i, e->captured[i]);
        depths.n++;
        if (!(depth >= -room && depth <= 1 + room))
            continue;
        depths.n_within++;
        depths.mean += depth;
        depths.cut += depth_of(e, grid, direction, i, to_grid(grid, e->step, e->expected[i], direction));
        depths.nearest += depth_of(e, grid, direction, i, to_grid(grid, e->step, e->expected[i], NEAREST));
    }
    double n = depths.n_within > 0 ? (double)depths.n_within : 1;
    return (struct depths){depths.n, depths.n_within, depths.mean / n, depths.cut / n, depths.nearest / n};
}

/* A device that cuts its own values, which are not quite the reference's: a cut takes between nothing and one
 * layer, half of one on average; rounding takes nothing on average. Chosen: 200 values, 99 % of which lie
 * between those ends by a quarter of a layer, and a mean that a cut has (by 0.08 layers, which is what a
 * device's own coarser values make, and three standard deviations) and that rounding is far from. */
static void try_noisy_model(const struct nd_look *look, const struct grid *grid)
{
    enum { MIN_NOISY = 200 };
    static const double room = 0.25, max_off = 0.08, deviation = 0.2887; /* of what a cut takes: 1 / sqrt(12) */
    for (int d = TO_ZERO; d < N_DIRECTIONS; d++) {
        struct depths depths = measure_depths(look, grid, (enum direction)d, room);
        double slack = max_off + 3 * deviation / sqrt((double)depths.n + 1);
        if (depths.n < MIN_NOISY || depths.n_within * 100 < depths.n * 99 ||
            fabs(depths.mean - depths.cut) > slack || depths.mean - depths.nearest < 2 * slack)
            continue;
        struct nd_finding f = nd_finding_of(look, ND_FAULT_TRUNCATION, depths.mean,
                                            (double)depths.n_within / (double)depths.n, 0);
        nd_add(look, &f,
               "cut %s to %s, not rounded: %.2f units are missing on average of %zu values; a cut takes %.2f, "
               "rounding %.2f",
               direction_names[d], look->e->step > 0 ? "a quantised value" : grid->name, depths.mean, depths.n,
               depths.cut, depths.nearest);
        return;
    }
}

/* Chosen: a cut gives 99 % of all elements and of at least 10 that decide. A gain of half a unit gives those
 * that decide too, but not the others. */
static bool try_model(const struct nd_look *look, const struct grid *grid)
{
    enum { MIN_DECIDING = 10 };
    struct cuts cuts = count_cuts(look, grid);
    for (int d = TO_ZERO; d < N_DIRECTIONS; d++) {
        size_t n = cuts.n_deciding[d], n_right = cuts.n_deciding_right[d];
        if (n < MIN_DECIDING || n_right * 100 < n * 99 || cuts.n_right[d] * 100 < cuts.n * 99)
            continue;
        double share = (double)look->n_wrong / (double)look->n_known, chance = (double)n * log10(0.5);
        char said[ND_CHANCE_BYTES];
        struct nd_finding f =
            nd_finding_of(look, ND_FAULT_TRUNCATION, share, (double)cuts.n_right[d] / (double)cuts.n, chance);
        nd_add(look, &f,
               "cut %s to %s, not rounded: %zu of %zu values that tell the two apart, %zu of all against it "
               "(%s)",
               direction_names[d], look->e->step > 0 ? "a quantised value" : grid->name, n_right, n,
               cuts.n - cuts.n_right[d], nd_say_chance(chance, said));
        return true;
    }
    return false;
}

/* Quantised values beside codes: nobody knows the fractions, but a cut is one step off in half of the elements,
 * always to one side. Chosen: half of 200 elements or more inside the range, within three standard deviations
 * and 5 %, and 97 % of the differences to that side (a device's own differences put a few on the other).
 * Healthy integer layers that cut their sums were seen at 40 to 46 % (v73 MatMul): this accuses nobody. */
static void try_qvalues(const struct nd_look *look)
{
    enum { MIN_QVALUES = 200 };
    const struct nd_evidence *e = look->e;
    size_t n = 0, n_step = 0, n_side[N_DIRECTIONS] = {0};
    for (size_t i = 0; i < look->n_total; i++) {
        double rise = rint((e->captured[i] - e->expected[i]) / e->step);
        if (!nd_is_known(look, i) || e->captured[i] <= look->low || e->captured[i] >= look->high)
            continue;
        n++;
        n_step += fabs(rise) == 1;
        if (rise == 0)
            continue;
        n_side[NEAREST]++;
        n_side[DOWN] += rise == -1;
        n_side[UP] += rise == 1;
        n_side[TO_ZERO] += rise == (e->captured[i] < 0 || (e->captured[i] == 0 && e->expected[i] < 0) ? 1 : -1);
    }
    for (int d = TO_ZERO; d < N_DIRECTIONS && n >= MIN_QVALUES; d++) {
        double share = (double)n_side[NEAREST] / (double)n;
        if (fabs(share - 0.5) > fmin(1.5 / sqrt((double)n), 0.05) ||
            (double)n_side[d] < 0.97 * (double)n_side[NEAREST])
            continue;
        struct nd_finding f = nd_finding_of(look, ND_FAULT_ONE_SIDED, share, (double)n_step / (double)n,
                                            (double)n_side[d] * log10(0.5));
        nd_add(look, &f,
               "as if cut %s, not rounded: %.0f %% of the values inside the range differ, %zu of %zu "
               "by one step to that side",
               direction_names[d], 100 * share, n_side[d], n_side[NEAREST]);
        return;
    }
}

void nd_try_truncation(const struct nd_look *look)
{
    const struct nd_evidence *e = look->e;
    if (e->step > 0 && e->ref_step > 0) {
        if (e->step == e->ref_step)
            try_qvalues(look);
        return;
    }
    struct grid own;
    double chance;
    char name[GRID_BYTES];
    const struct grid *grid = e->step > 0                                ? &fp32
                              : find_own_grid(look, &own, &chance, name) ? &own
                                                                         : grid_of(look);
    if (grid != NULL && e->ref_step == 0 && !try_model(look, grid) && is_finer(look, grid))
        try_noisy_model(look, grid);
}
