/* Which arithmetics of requantisation (threshold_sweep.h) agree with the staircases of a device, and which
 * multipliers to ask it about. */
#include <math.h>
#include <stdlib.h>

#include "core/memory.h"
#include "lab/experiment/candidates.h"
#include "lab/experiment/threshold_sweep.h"

static bool is_threshold(const struct nd_threshold_sweep *s, size_t i)
{
    return i > 0 && s->qvalues[i] > s->qvalues[i - 1] && s->qvalues[i - 1] > s->low && s->qvalues[i] < s->high;
}

static double common_divisor(double a, double b)
{
    while (b > 0) {
        double rest = fmod(a, b);
        a = b;
        b = rest;
    }
    return a;
}

void nd_threshold_sweep_look(const struct nd_threshold_sweep *s, struct nd_threshold_sweep_shape *out)
{
    double before = 0, divisor = 0, shortest = HUGE_VAL, longest = 0;
    *out = (struct nd_threshold_sweep_shape){.is_rising = true};
    for (size_t i = 1; i < s->n; i++) {
        out->is_rising = out->is_rising && s->qvalues[i] >= s->qvalues[i - 1];
        if (!is_threshold(s, i))
            continue;
        double at = s->first + (double)i;
        if (out->n_thresholds++ > 0) {
            divisor = common_divisor(at - before, divisor);
            shortest = fmin(shortest, at - before);
            longest = fmax(longest, at - before);
        }
        before = at;
    }
    if (out->n_thresholds < 3 || shortest == longest)
        return;
    out->granule = divisor;
    out->offset = before - divisor * floor(before / divisor);
}

uint64_t nd_threshold_sweep_count_wrong(const struct nd_threshold_sweep *s,
                                        const struct nd_requantise *arithmetic)
{
    const struct nd_requantise_ready r = nd_requantise_prepare(arithmetic, s->multiplier, s->zero_point);
    uint64_t n = 0;
    for (size_t i = 0; i < s->n; i++)
        n += nd_requantise_qvalue(&r, s->first + (double)i, s->low, s->high) != s->qvalues[i];
    return n;
}

/* ---- what a threshold sweep allows under one structure ---- */

/* Everything of an arithmetic but the bits of its multiplier. */
struct interval {
    double low, high; /* of c; low > high: nothing is left */
};

/* The values of v with round(v) = k lie between these. Ends are let in: an end that is out costs a wrong
 * quantised value later, when the whole arithmetic is tried. */
static void rounding_range(enum nd_rounding rounding, double k, double *low, double *high)
{
    double below = 0.5, above = 0.5;
    if (rounding == ND_ROUND_FLOOR)
        below = 0, above = 1;
    else if (rounding == ND_ROUND_CEIL)
        below = 1, above = 0;
    else if (rounding == ND_ROUND_TO_ZERO)
        below = k > 0 ? 0 : 1, above = k < 0 ? 0 : 1;
    *low = k - below;
    *high = k + above;
}

/* What the quantised value at one accumulator says of c, where r has everything but c. */
static void narrow(struct interval *c, const struct nd_requantise_ready *r, const struct nd_threshold_sweep *s,
                   size_t i)
{
    double a = s->first + (double)i, least, greatest;
    double A = r->step * (floor((a + r->fold) / r->step) + r->half);
    if (s->qvalues[i] <= s->low || s->qvalues[i] >= s->high)
        return;
    rounding_range(r->rounding, s->qvalues[i] - r->zero, &least, &greatest);
    if (A == 0) {
        if (least > 0 || greatest < 0)
            *c = (struct interval){1, 0};
        return;
    }
    double x = least / A, y = greatest / A;
    c->low = fmax(c->low, fmin(x, y));
    c->high = fmin(c->high, fmax(x, y));
}

static struct interval solve_multiplier(const struct nd_threshold_sweep *s,
                                        const struct nd_requantise *structure)
{
    /* A sliver more than the quotients are off in double. */
    const double sliver = 0x1p-48;
    const struct nd_requantise_ready r = nd_requantise_prepare(structure, s->multiplier, s->zero_point);
    struct interval c = {0, HUGE_VAL};
    for (size_t i = 0; i < s->n && c.low <= c.high; i++)
        if (i == 0 || i + 1 == s->n || s->qvalues[i] != s->qvalues[i - 1] || s->qvalues[i] != s->qvalues[i + 1])
            narrow(&c, &r, s, i);
    c.low *= 1 - sliver;
    c.high *= 1 + sliver;
    return c;
}

/* ---- what is tried ---- */

/* The granule that the threshold sweep show, in bits below the multiplier: the finest. A threshold sweep whose
 * granule is 1 says only that e <= 0. */
struct granule_rule {
    bool is_seen; /* some granule is over 1 */
    int bits;
};

static struct granule_rule find_granule(const struct nd_threshold_sweep *s, size_t n)
{
    struct granule_rule rule = {0};
    for (size_t i = 0; i < n; i++) {
        struct nd_threshold_sweep_shape shape;
        int exponent;
        nd_threshold_sweep_look(&s[i], &shape);
        if (shape.granule <= 1 || frexp(shape.granule, &exponent) != 0.5)
            continue; /* no power of two: the multiplier's own period */
        int bits = nd_multiplier_log(s[i].multiplier) - (exponent - 1);
        if (!rule.is_seen || bits > rule.bits)
            rule = (struct granule_rule){.is_seen = true, .bits = bits};
    }
    return rule;
}

struct search {
    const struct nd_threshold_sweep *staircases;
    size_t n;
    struct interval *intervals; /* [n] of the structure in work */
    struct nd_threshold_sweep_findings *out;
    struct nd_candidates candidates;
};

/* Kept where all quantised values follow. */
static void try_arithmetic(struct search *search, const struct nd_requantise *arithmetic)
{
    struct nd_threshold_sweep_findings *out = search->out;
    uint64_t wrong = 0;
    for (size_t i = 0; i < search->n && wrong <= out->n_nearest_wrong; i++)
        wrong += nd_threshold_sweep_count_wrong(&search->staircases[i], arithmetic);
    nd_candidates_right(&search->candidates, arithmetic, wrong, &out->nearest, &out->n_nearest_wrong);
}

/* One structure with one multiplier, unless the intervals exclude it. */
static void try_multiplier(struct search *search, struct nd_requantise arithmetic, int bits,
                           enum nd_rounding rounding)
{
    arithmetic.multiplier_bits = bits;
    arithmetic.multiplier_rounding = rounding;
    bool is_allowed = true;
    for (size_t i = 0; i < search->n && is_allowed; i++) {
        double c = nd_multiplier_round(search->staircases[i].multiplier, bits, rounding);
        is_allowed = c >= search->intervals[i].low && c <= search->intervals[i].high;
    }
    if (is_allowed)
        try_arithmetic(search, &arithmetic);
}

static void try_structure(struct search *search, const struct nd_requantise *structure)
{
    static const enum nd_rounding roundings[] = {ND_ROUND_HALF_EVEN, ND_ROUND_HALF_UP, ND_ROUND_FLOOR};
    bool is_possible = true;
    for (size_t i = 0; i < search->n && is_possible; i++) {
        search->intervals[i] = solve_multiplier(&search->staircases[i], structure);
        is_possible = search->intervals[i].low <= search->intervals[i].high;
    }
    for (int bits = 1; is_possible && bits <= ND_MULTIPLIER_MAX_BITS; bits++)
        for (size_t r = 0; r < sizeof roundings / sizeof roundings[0]; r++)
            try_multiplier(search, *structure, bits, roundings[r]);
    if (is_possible)
        try_multiplier(search, *structure, ND_MULTIPLIER_EXACT, ND_ROUND_HALF_EVEN);
}

/* All structures that the granules allow. */
static void try_granules(struct search *search, struct nd_requantise structure)
{
    struct granule_rule rule = find_granule(search->staircases, search->n);
    structure.has_granule = rule.is_seen;
    structure.granule_bits = rule.bits;
    for (int form = 0; form < (rule.is_seen ? 4 : 1); form++) {
        structure.has_half_granule = (form & 1) != 0;
        structure.is_granule_whole = (form & 2) != 0;
        try_structure(search, &structure);
    }
}

/* is_f32: only with a zero point that is folded after its quotient was rounded to float32. */
static void try_all(struct search *search, bool is_f32)
{
    static const enum nd_rounding folds[] = {ND_ROUND_HALF_EVEN, ND_ROUND_HALF_EVEN, ND_ROUND_FLOOR};
    for (int fold = is_f32 ? 1 : 0; fold < 3; fold++)
        for (int rounding = ND_ROUND_HALF_EVEN; rounding <= ND_ROUND_TO_ZERO; rounding++)
            try_granules(search, (struct nd_requantise){.folds_zero = fold != 0,
                                                        .fold_rounding = folds[fold],
                                                        .is_fold_f32 = is_f32,
                                                        .rounding = (enum nd_rounding)rounding});
}

/* What is specified. */
static void try_fixed(struct search *search)
{
    for (int kind = ND_FIXED_NONE + 1; kind < ND_FIXED_N; kind++) {
        const struct nd_requantise arithmetic = {.fixed = (enum nd_fixed_point)kind};
        try_arithmetic(search, &arithmetic);
    }
}

/* What comes nearest where nothing fits: among the plainest, those with an exact multiplier and no granule. */
static void find_nearest(struct search *search)
{
    for (int fold = 0; fold < 2; fold++)
        for (int rounding = ND_ROUND_HALF_EVEN; rounding <= ND_ROUND_TO_ZERO; rounding++) {
            const struct nd_requantise arithmetic = {.folds_zero = fold != 0,
                                                     .rounding = (enum nd_rounding)rounding};
            try_arithmetic(search, &arithmetic);
        }
}

static void count(const struct nd_threshold_sweep *staircases, size_t n,
                  struct nd_threshold_sweep_findings *out)
{
    for (size_t i = 0; i < n; i++) {
        struct nd_threshold_sweep_shape shape;
        nd_threshold_sweep_look(&staircases[i], &shape);
        out->n_qvalues += staircases[i].n;
        out->n_thresholds += shape.n_thresholds;
        out->n_rising += shape.is_rising;
    }
    out->n_deciding =
        2 * (uint64_t)out->n_thresholds; /* the last quantised value before, and the first behind */
}

enum nd_status nd_threshold_sweep_solve(const struct nd_threshold_sweep *staircases, size_t n,
                                        struct nd_threshold_sweep_findings *out, struct nd_error *err)
{
    struct nd_threshold_sweep_findings findings = {.n_nearest_wrong = UINT64_MAX};
    struct search search = {
        .staircases = staircases, .n = n, .out = &findings, .candidates = ND_CANDIDATES(&findings)};
    search.intervals = nd_calloc(n, sizeof *search.intervals);
    ND_TRY_MEMORY(search.intervals != NULL, err);
    count(staircases, n, &findings);
    try_all(&search, false);
    try_fixed(&search);
    if (findings.n_arithmetics == 0)
        try_all(&search, true);
    if (findings.n_arithmetics == 0)
        find_nearest(&search);
    free(search.intervals);
    ND_TRY(nd_candidates_end(&search.candidates, err));
    *out = findings;
    return ND_OK;
}

/* ---- which multipliers to ask a device about ---- */

size_t nd_threshold_sweep_first_multipliers(double out[ND_THRESHOLD_SWEEP_MULTIPLIERS])
{
    /* Mantissas without a pattern; the exponents cover what 8-bit products of a few terms are scaled with. */
    static const struct {
        float mantissa;
        int exponent;
    } chosen[] = {{1, -5},          {1, -7},          {1.4142135F, -2}, {1.7320508F, -1}, {1.2345679F, -4},
                  {1.8392868F, -6}, {1.1180340F, -7}, {1.5811388F, -5}, {1.3247180F, -8}, {1.6180340F, -7}};
    size_t n = sizeof chosen / sizeof chosen[0];
    for (size_t i = 0; i < n; i++)
        out[i] = ldexp((double)chosen[i].mantissa, chosen[i].exponent);
    return n;
}

/* Halfway between two mantissas of n_bits, the lower of which is even or odd. */
static double halfway(int n_bits, bool is_odd)
{
    double unit = ldexp(1, -n_bits), lower = ldexp(floor(ldexp(1.37, n_bits - 1)), 1 - n_bits);
    return ldexp(lower + (is_odd ? unit : 0) + unit / 2, -6);
}

size_t nd_threshold_sweep_next_multipliers(const struct nd_threshold_sweep_findings *findings,
                                           double out[ND_THRESHOLD_SWEEP_MULTIPLIERS])
{
    bool is_asked[ND_MULTIPLIER_MAX_BITS + 1] = {false};
    size_t n = 0;
    for (size_t i = 0; i < findings->n_arithmetics && n + 2 <= ND_THRESHOLD_SWEEP_MULTIPLIERS; i++) {
        int bits = findings->arithmetics[i].multiplier_bits;
        /* Beyond that the 24 bits of a float have no half. */
        if (bits == ND_MULTIPLIER_EXACT || bits >= ND_MULTIPLIER_MAX_BITS || is_asked[bits])
            continue;
        is_asked[bits] = true;
        out[n++] = halfway(bits, false);
        out[n++] = halfway(bits, true);
    }
    return n;
}
