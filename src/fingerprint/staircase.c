#include "fingerprint/staircase.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"

static bool is_threshold(const struct nd_staircase *s, size_t i)
{
    return i > 0 && s->codes[i] > s->codes[i - 1] && s->codes[i - 1] > s->low && s->codes[i] < s->high;
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

void nd_staircase_look(const struct nd_staircase *s, struct nd_staircase_shape *out)
{
    double before = 0, divisor = 0, shortest = HUGE_VAL, longest = 0;
    *out = (struct nd_staircase_shape){.is_rising = true};
    for (size_t i = 1; i < s->n; i++) {
        out->is_rising = out->is_rising && s->codes[i] >= s->codes[i - 1];
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

uint64_t nd_staircase_count_wrong(const struct nd_staircase *s, const struct nd_requantise *program)
{
    const struct nd_requantiser r = nd_requantise_prepare(program, s->multiplier, s->zero_point);
    uint64_t n = 0;
    for (size_t i = 0; i < s->n; i++)
        n += nd_requantise_code(&r, s->first + (double)i, s->low, s->high) != s->codes[i];
    return n;
}

/* ---- what a staircase allows under one structure ---- */

/* Everything of a program but the bits of its multiplier. */
struct interval {
    double low, high; /* of c; low > high: nothing is left */
};

/* The values of v with round(v) = k lie between these. Ends are let in: an end that is out costs a wrong code
 * later, when the whole program is tried. */
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

/* What the code at one accumulator says of c, where r has everything but c. */
static void narrow(struct interval *c, const struct nd_requantiser *r, const struct nd_staircase *s, size_t i)
{
    double a = s->first + (double)i, least, greatest;
    double A = r->step * (floor((a + r->fold) / r->step) + r->half);
    if (s->codes[i] <= s->low || s->codes[i] >= s->high)
        return;
    rounding_range(r->rounding, s->codes[i] - r->zero, &least, &greatest);
    if (A == 0) {
        if (least > 0 || greatest < 0)
            *c = (struct interval){1, 0};
        return;
    }
    double x = least / A, y = greatest / A;
    c->low = fmax(c->low, fmin(x, y));
    c->high = fmin(c->high, fmax(x, y));
}

static struct interval solve_multiplier(const struct nd_staircase *s, const struct nd_requantise *structure)
{
    /* A sliver more than the quotients are off in double. */
    const double sliver = 0x1p-48;
    const struct nd_requantiser r = nd_requantise_prepare(structure, s->multiplier, s->zero_point);
    struct interval c = {0, HUGE_VAL};
    for (size_t i = 0; i < s->n && c.low <= c.high; i++)
        if (i == 0 || i + 1 == s->n || s->codes[i] != s->codes[i - 1] || s->codes[i] != s->codes[i + 1])
            narrow(&c, &r, s, i);
    c.low *= 1 - sliver;
    c.high *= 1 + sliver;
    return c;
}

/* ---- what is tried ---- */

/* The granule that the staircases show, in bits below the multiplier: the finest. A staircase whose granule is
 * 1 says only that e <= 0. */
struct granule_rule {
    bool is_seen; /* some granule is over 1 */
    int bits;
};

static struct granule_rule find_granule(const struct nd_staircase *s, size_t n)
{
    struct granule_rule rule = {0};
    for (size_t i = 0; i < n; i++) {
        struct nd_staircase_shape shape;
        int exponent;
        nd_staircase_look(&s[i], &shape);
        if (shape.granule <= 1 || frexp(shape.granule, &exponent) != 0.5)
            continue; /* no power of two: the multiplier's own period */
        int bits = nd_multiplier_log(s[i].multiplier) - (exponent - 1);
        if (!rule.is_seen || bits > rule.bits)
            rule = (struct granule_rule){.is_seen = true, .bits = bits};
    }
    return rule;
}

struct search {
    const struct nd_staircase *staircases;
    size_t n;
    struct interval *intervals; /* [n] of the structure in work */
    struct nd_staircase_findings *out;
    size_t capacity;
};

static uint64_t count_all_wrong(const struct search *search, const struct nd_requantise *program,
                                uint64_t enough)
{
    uint64_t wrong = 0;
    for (size_t i = 0; i < search->n && wrong <= enough; i++)
        wrong += nd_staircase_count_wrong(&search->staircases[i], program);
    return wrong;
}

static bool keep(struct search *search, const struct nd_requantise *program)
{
    struct nd_staircase_findings *out = search->out;
    if (!nd_grow((void **)&out->programs, &search->capacity, out->n_programs + 1, sizeof *out->programs))
        return false;
    out->programs[out->n_programs++] = *program;
    return true;
}

/* One structure with one multiplier: kept where all codes follow. is_allowed: the intervals let it be. */
static bool try_multiplier(struct search *search, struct nd_requantise program, int bits,
                           enum nd_rounding rounding)
{
    program.multiplier_bits = bits;
    program.multiplier_rounding = rounding;
    bool is_allowed = true;
    for (size_t i = 0; i < search->n && is_allowed; i++) {
        double c = nd_multiplier_round(search->staircases[i].multiplier, bits, rounding);
        is_allowed = c >= search->intervals[i].low && c <= search->intervals[i].high;
    }
    if (!is_allowed)
        return true;
    uint64_t wrong = count_all_wrong(search, &program, search->out->n_nearest_wrong);
    if (wrong < search->out->n_nearest_wrong) {
        search->out->n_nearest_wrong = wrong;
        search->out->nearest = program;
    }
    return wrong > 0 || keep(search, &program);
}

static bool try_structure(struct search *search, const struct nd_requantise *structure)
{
    static const enum nd_rounding roundings[] = {ND_ROUND_HALF_EVEN, ND_ROUND_HALF_UP, ND_ROUND_FLOOR};
    bool is_possible = true;
    for (size_t i = 0; i < search->n && is_possible; i++) {
        search->intervals[i] = solve_multiplier(&search->staircases[i], structure);
        is_possible = search->intervals[i].low <= search->intervals[i].high;
    }
    bool is_whole = true;
    for (int bits = 1; is_possible && is_whole && bits <= ND_MULTIPLIER_MAX_BITS; bits++)
        for (size_t r = 0; is_whole && r < sizeof roundings / sizeof roundings[0]; r++)
            is_whole = try_multiplier(search, *structure, bits, roundings[r]);
    if (is_possible && is_whole)
        is_whole = try_multiplier(search, *structure, ND_MULTIPLIER_EXACT, ND_ROUND_HALF_EVEN);
    return is_whole;
}

/* All structures that the granules allow. */
static bool try_granules(struct search *search, struct nd_requantise structure)
{
    struct granule_rule rule = find_granule(search->staircases, search->n);
    if (!rule.is_seen)
        return try_structure(search, &structure);
    bool is_whole = true;
    structure.has_granule = true;
    structure.granule_bits = rule.bits;
    for (int form = 0; is_whole && form < 4; form++) {
        structure.has_half_granule = (form & 1) != 0;
        structure.is_granule_whole = (form & 2) != 0;
        is_whole = try_structure(search, &structure);
    }
    return is_whole;
}

/* is_f32: only with a zero point that is folded after its quotient was rounded to float32. */
static bool try_all(struct search *search, bool is_f32)
{
    static const enum nd_rounding folds[] = {ND_ROUND_HALF_EVEN, ND_ROUND_HALF_EVEN, ND_ROUND_FLOOR};
    bool is_whole = true;
    for (int fold = is_f32 ? 1 : 0; is_whole && fold < 3; fold++)
        for (int rounding = ND_ROUND_HALF_EVEN; is_whole && rounding <= ND_ROUND_TO_ZERO; rounding++)
            is_whole = try_granules(search, (struct nd_requantise){.folds_zero = fold != 0,
                                                                   .fold_rounding = folds[fold],
                                                                   .is_fold_f32 = is_f32,
                                                                   .rounding = (enum nd_rounding)rounding});
    return is_whole;
}

/* What comes nearest where nothing fits: among the plainest, those with an exact multiplier and no granule. */
static void find_nearest(struct search *search)
{
    for (int fold = 0; fold < 2; fold++)
        for (int rounding = ND_ROUND_HALF_EVEN; rounding <= ND_ROUND_TO_ZERO; rounding++) {
            const struct nd_requantise program = {.folds_zero = fold != 0,
                                                  .rounding = (enum nd_rounding)rounding};
            uint64_t wrong = count_all_wrong(search, &program, search->out->n_nearest_wrong);
            if (wrong < search->out->n_nearest_wrong) {
                search->out->n_nearest_wrong = wrong;
                search->out->nearest = program;
            }
        }
}

static void count(const struct nd_staircase *staircases, size_t n, struct nd_staircase_findings *out)
{
    for (size_t i = 0; i < n; i++) {
        struct nd_staircase_shape shape;
        nd_staircase_look(&staircases[i], &shape);
        out->n_codes += staircases[i].n;
        out->n_thresholds += shape.n_thresholds;
        out->n_rising += shape.is_rising;
    }
    out->n_deciding = 2 * (uint64_t)out->n_thresholds; /* the last code before, and the first behind */
}

enum nd_status nd_staircase_solve(const struct nd_staircase *staircases, size_t n,
                                  struct nd_staircase_findings *out, struct nd_error *err)
{
    struct nd_staircase_findings findings = {.n_nearest_wrong = UINT64_MAX};
    struct search search = {.staircases = staircases, .n = n, .out = &findings};
    search.intervals = nd_calloc(n, sizeof *search.intervals);
    count(staircases, n, &findings);
    bool is_whole = search.intervals != NULL && try_all(&search, false);
    if (is_whole && findings.n_programs == 0)
        is_whole = try_all(&search, true);
    if (is_whole && findings.n_programs == 0)
        find_nearest(&search);
    free(search.intervals);
    if (!is_whole) {
        nd_staircase_findings_deinit(&findings);
        return nd_fail_memory(err);
    }
    *out = findings;
    return ND_OK;
}

void nd_staircase_findings_deinit(struct nd_staircase_findings *findings)
{
    free(findings->programs);
    *findings = (struct nd_staircase_findings){0};
}
