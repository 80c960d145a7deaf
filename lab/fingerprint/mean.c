#include "lab/fingerprint/mean.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "lab/experiment/candidates.h"

const char *nd_mean_name(const struct nd_mean_arithmetic *arithmetic, char buf[ND_MEAN_NAME_BYTES])
{
    char name[ND_REQUANTISE_NAME_BYTES], stages[64] = "", shift[32] = "";
    nd_requantise_name(&arithmetic->requantise, name);
    if (arithmetic->n_stages > 1) {
        int len = snprintf(stages, sizeof stages, "stages:");
        for (size_t i = 0; i < arithmetic->n_stages; i++)
            len += snprintf(stages + len, sizeof stages - (size_t)len, "%s%d", i > 0 ? "," : "",
                            arithmetic->stages[i]);
        snprintf(stages + len, sizeof stages - (size_t)len, "+requantises-%s+",
                 arithmetic->requantises_last ? "last" : "first");
    }
    if (arithmetic->first_shift != ND_MEAN_NO_SHIFT)
        snprintf(shift, sizeof shift, "+first-shift:%d", arithmetic->first_shift);
    snprintf(buf, ND_MEAN_NAME_BYTES, "%s%s%s", stages, name, shift);
    return buf;
}

/* ---- one arithmetic ---- */

/* One stage made ready: from windows of n quantised values to quantised values. */
struct stage {
    struct nd_requantiser requantiser;
    double added, zero_x, zero_y;
};

static struct stage prepare(const struct nd_mean_arithmetic *p, double ratio, double zero_x, double zero_y,
                            size_t n_elems)
{
    double multiplier = ratio / (double)n_elems;
    struct stage stage = {.zero_x = zero_x, .zero_y = zero_y};
    stage.requantiser = nd_requantise_prepare(&p->requantise, multiplier, zero_y);
    if (p->requantise.fixed != ND_FIXED_NONE)
        stage.requantiser.multiplier =
            nd_fixed_multiplier_of_mean(p->requantise.fixed, multiplier, (double)n_elems);
    bool adds = p->first_shift != ND_MEAN_NO_SHIFT && (p->n_stages == 1 || n_elems == 4);
    if (adds)
        stage.added = ldexp(1, p->first_shift - nd_multiplier_log(multiplier) - p->requantise.multiplier_bits);
    /* nd_multiplier_log is that of the power of two above or at M: the last bit is one lower where M is none.
     */
    if (adds && ldexp(1, -nd_multiplier_log(multiplier)) > multiplier)
        stage.added /= 2;
    return stage;
}

static double finish(const struct stage *stage, double sum)
{
    const struct nd_requantiser *r = &stage->requantiser;
    if (r->fixed != ND_FIXED_NONE)
        return nd_requantise_qvalue(r, sum, 0, 255);
    double scaled = r->c * (r->step * (floor((sum + r->fold) / r->step) + r->half)) + stage->added;
    return fmin(fmax(nd_round_value(scaled, r->rounding) + r->zero, 0), 255);
}

static double gather(const struct nd_mean_sample *s, const uint8_t *window)
{
    double sum = 0, largest = 0;
    for (size_t i = 0; i < s->n_rows * s->n_columns; i++) {
        sum += (double)window[i] - s->zero_x;
        largest = fmax(largest, (double)window[i]);
    }
    return s->is_max ? largest - s->zero_x : sum;
}

static size_t elems_of(const struct nd_mean_sample *s)
{
    return s->is_max ? 1 : s->n_rows * s->n_columns;
}

/* Square windows alone; a stage of side k makes a window k times smaller. */
static double run_stages(const struct nd_mean_arithmetic *p, const struct nd_mean_sample *s,
                         const struct stage stages[ND_MEAN_MAX_STAGES], const uint8_t *window)
{
    double qvalues[ND_MEAN_MAX_SIDE * ND_MEAN_MAX_SIDE];
    size_t side = s->n_rows;
    for (size_t i = 0; i < side * side; i++)
        qvalues[i] = window[i];
    for (size_t t = 0; t < p->n_stages; t++) {
        size_t k = p->stages[t], next = side / k;
        for (size_t row = 0; row < next; row++)
            for (size_t column = 0; column < next; column++) {
                double sum = 0;
                for (size_t i = 0; i < k * k; i++)
                    sum += qvalues[(row * k + i / k) * side + column * k + i % k] - stages[t].zero_x;
                /* Earlier places are not read again: next <= side, and k >= 2. */
                qvalues[row * next + column] = finish(&stages[t], sum);
            }
        side = next;
    }
    return qvalues[0];
}

static void prepare_all(const struct nd_mean_arithmetic *p, const struct nd_mean_sample *s,
                        struct stage stages[ND_MEAN_MAX_STAGES])
{
    size_t at = p->requantises_last ? p->n_stages - 1 : 0;
    for (size_t t = 0; t < p->n_stages; t++) {
        size_t n_elems = p->n_stages == 1 ? elems_of(s) : (size_t)p->stages[t] * p->stages[t];
        stages[t] = prepare(p, t == at ? s->ratio : 1, t <= at ? s->zero_x : s->zero_y,
                            t >= at ? s->zero_y : s->zero_x, n_elems);
    }
}

static double qvalue_of(const struct nd_mean_arithmetic *p, const struct nd_mean_sample *s,
                        const struct stage stages[ND_MEAN_MAX_STAGES], const uint8_t *window)
{
    return p->n_stages == 1 ? finish(&stages[0], gather(s, window)) : run_stages(p, s, stages, window);
}

double nd_mean_qvalue(const struct nd_mean_arithmetic *arithmetic, const struct nd_mean_sample *sample,
                      const uint8_t *window)
{
    struct stage stages[ND_MEAN_MAX_STAGES];
    prepare_all(arithmetic, sample, stages);
    return qvalue_of(arithmetic, sample, stages, window);
}

uint64_t nd_mean_count_wrong(const struct nd_mean_arithmetic *arithmetic, const struct nd_mean_sample *samples,
                             size_t n, uint64_t enough)
{
    uint64_t wrong = 0;
    for (size_t i = 0; i < n; i++) {
        const struct nd_mean_sample *s = &samples[i];
        struct stage stages[ND_MEAN_MAX_STAGES];
        prepare_all(arithmetic, s, stages);
        for (size_t w = 0; w < s->n && wrong < enough; w++)
            wrong +=
                qvalue_of(arithmetic, s, stages, s->windows + w * s->n_rows * s->n_columns) != s->qvalues[w];
    }
    return wrong;
}

/* ---- all of them ---- */

struct search {
    const struct nd_mean_sample *samples;
    size_t n;
    struct nd_mean_findings *out;
    struct nd_candidates candidates;
};

static void try_arithmetic(struct search *search, const struct nd_mean_arithmetic *p)
{
    if (nd_mean_count_wrong(p, search->samples, search->n, 1) == 0)
        nd_candidates_keep(&search->candidates, p);
}

/* The multiplier as it is. */
static void try_exact(struct search *search, struct nd_mean_arithmetic p)
{
    p.requantise.multiplier_bits = ND_MULTIPLIER_EXACT;
    p.first_shift = ND_MEAN_NO_SHIFT;
    for (int rounding = 0; rounding <= ND_ROUND_TO_ZERO; rounding++) {
        p.requantise.rounding = (enum nd_rounding)rounding;
        try_arithmetic(search, &p);
    }
}

/* Multipliers of so many bits with every first shift that can be seen: one that leaves some of them behind the
 * point. */
static void try_shifts(struct search *search, struct nd_mean_arithmetic p, int bits)
{
    p.requantise.multiplier_bits = bits;
    p.first_shift = ND_MEAN_NO_SHIFT;
    try_arithmetic(search, &p);
    for (p.first_shift = bits - 5; p.first_shift <= bits; p.first_shift++)
        try_arithmetic(search, &p);
}

/* Every multiplier, rounding and first shift; the exact multiplier first. */
static void try_multipliers(struct search *search, struct nd_mean_arithmetic p)
{
    static const enum nd_rounding roundings[] = {ND_ROUND_HALF_UP, ND_ROUND_HALF_EVEN, ND_ROUND_HALF_AWAY,
                                                 ND_ROUND_FLOOR};
    static const enum nd_rounding cuts[] = {ND_ROUND_HALF_UP, ND_ROUND_HALF_EVEN, ND_ROUND_FLOOR};
    try_exact(search, p);
    for (size_t r = 0; r < sizeof roundings / sizeof roundings[0]; r++)
        for (int bits = 7; bits <= ND_MULTIPLIER_MAX_BITS; bits++)
            for (size_t c = 0; c < sizeof cuts / sizeof cuts[0]; c++) {
                p.requantise.rounding = roundings[r];
                p.requantise.multiplier_rounding = cuts[c];
                try_shifts(search, p, bits);
            }
}

/* What is specified. */
static void try_fixed(struct search *search)
{
    struct nd_mean_arithmetic p = {.n_stages = 1, .first_shift = ND_MEAN_NO_SHIFT};
    for (int kind = ND_FIXED_NONE + 1; kind < ND_FIXED_N; kind++) {
        p.requantise.fixed = (enum nd_fixed_point)kind;
        try_arithmetic(search, &p);
    }
}

static void try_whole_windows(struct search *search)
{
    struct nd_mean_arithmetic p = {.n_stages = 1};
    try_multipliers(search, p);
    try_fixed(search);
    p.requantise.has_granule = true;
    for (int bits = 0; search->out->n_arithmetics == 0 && bits <= 6; bits++)
        for (int form = 0; form < 4; form++) {
            p.requantise.granule_bits = bits;
            p.requantise.has_half_granule = (form & 1) != 0;
            p.requantise.is_granule_whole = (form & 2) != 0;
            try_multipliers(search, p);
        }
}

/* All ways to split the side into stages. */
static void try_stages(struct search *search, struct nd_mean_arithmetic p, size_t side)
{
    if (side == 1 && p.n_stages > 1)
        for (int last = 0; last < 2; last++) {
            p.requantises_last = last != 0;
            try_multipliers(search, p);
        }
    for (size_t k = 2; k <= side && p.n_stages < ND_MEAN_MAX_STAGES; k++) {
        if (side % k != 0)
            continue;
        struct nd_mean_arithmetic next = p;
        next.stages[next.n_stages++] = (uint8_t)k;
        try_stages(search, next, side / k);
    }
}

/* Whether equal sums (largest quantised values) always have equal quantised values. */
static bool is_of_sum(const struct nd_mean_sample *s, bool *out)
{
    size_t n_sums = s->n_rows * s->n_columns * 255 + 1;
    double *qvalues = nd_calloc(n_sums, sizeof *qvalues);
    for (size_t i = 0; qvalues != NULL && i < s->n && *out; i++) {
        size_t sum =
            (size_t)(gather(s, s->windows + i * s->n_rows * s->n_columns) + (double)elems_of(s) * s->zero_x);
        *out = qvalues[sum] == 0 || qvalues[sum] == s->qvalues[i] + 1;
        qvalues[sum] = s->qvalues[i] + 1;
    }
    free(qvalues);
    return qvalues != NULL;
}

static void find_nearest(struct search *search)
{
    for (int rounding = 0; rounding <= ND_ROUND_TO_ZERO; rounding++) {
        const struct nd_mean_arithmetic p = {.n_stages = 1,
                                             .first_shift = ND_MEAN_NO_SHIFT,
                                             .requantise = {.rounding = (enum nd_rounding)rounding}};
        uint64_t wrong = nd_mean_count_wrong(&p, search->samples, search->n, search->out->n_nearest_wrong);
        nd_candidates_right(&search->candidates, &p, wrong, &search->out->nearest,
                            &search->out->n_nearest_wrong);
    }
}

enum nd_status nd_mean_solve(const struct nd_mean_sample *samples, size_t n, bool may_be_staged,
                             struct nd_mean_findings *out, struct nd_error *err)
{
    struct nd_mean_findings findings = {.n_nearest_wrong = UINT64_MAX, .is_of_sum = true};
    struct search search = {
        .samples = samples, .n = n, .out = &findings, .candidates = ND_CANDIDATES(&findings)};
    for (size_t i = 0; i < n; i++) {
        findings.n_qvalues += samples[i].n;
        search.candidates.failed = search.candidates.failed || !is_of_sum(&samples[i], &findings.is_of_sum);
    }
    if (!search.candidates.failed)
        try_whole_windows(&search);
    if (!search.candidates.failed && findings.n_arithmetics == 0 && may_be_staged)
        try_stages(&search, (struct nd_mean_arithmetic){0}, samples[0].n_rows);
    if (findings.n_arithmetics == 0)
        find_nearest(&search);
    enum nd_status status = nd_candidates_end(&search.candidates, err);
    if (status == ND_OK)
        *out = findings;
    return status;
}
