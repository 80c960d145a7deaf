/* Which low bits are dropped, and how. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "lab/experiment/candidates.h"
#include "lab/fingerprint/linear_u16.h"

enum { GREATEST_QVALUE = 65535 };

const char *nd_word_name(const struct nd_word_arithmetic *p, char buf[ND_WORD_NAME_BYTES])
{
    char rest[ND_REQUANTISE_NAME_BYTES], dropped[80] = "";
    if (p->dropped_bits > 0 && p->drops_together)
        snprintf(dropped, sizeof dropped, "drop:%d:%s+", p->dropped_bits, nd_rounding_name(p->sum_rounding));
    else if (p->dropped_bits > 0)
        snprintf(dropped, sizeof dropped, "drop:%d:%s+zero-part:%s+", p->dropped_bits,
                 nd_rounding_name(p->sum_rounding), nd_rounding_name(p->zero_rounding));
    snprintf(buf, ND_WORD_NAME_BYTES, "%s%s%s", dropped, nd_requantise_name(&p->rest, rest),
             p->is_multiplier_f32 ? "+multiplier-from:f32" : "");
    return buf;
}

/* A whole number in units of 2^p. */
static double drop_bits(const struct nd_word_arithmetic *p, double sum, double zero)
{
    double step = ldexp(1, -p->dropped_bits);
    if (p->drops_together)
        return nd_round_value((sum - zero) * step, p->sum_rounding);
    return nd_round_value(sum * step, p->sum_rounding) - nd_round_value(zero * step, p->zero_rounding);
}

static double multiplier_of(const struct nd_word_arithmetic *p, const struct nd_word_qvalues *c)
{
    if (p->is_multiplier_f32)
        return ldexp((double)(c->scale_x * c->scale_w / c->scale_y), p->dropped_bits);
    return ldexp((double)c->scale_x * (double)c->scale_w / (double)c->scale_y, p->dropped_bits);
}

uint64_t nd_word_count_right(const struct nd_word_arithmetic *p, const struct nd_word_qvalues *c, size_t n)
{
    const struct nd_requantiser r = nd_requantise_prepare(&p->rest, multiplier_of(p, c), c->zero_y);
    uint64_t right = 0;
    for (size_t i = 0; i < n; i++)
        right += nd_requantise_qvalue(&r, drop_bits(p, c->sums[i], c->zeros[i]), 0, GREATEST_QVALUE) ==
                 c->qvalues[i];
    return right;
}

struct search {
    const struct nd_word_qvalues *sets;
    size_t n_sets;
    struct nd_word_findings *out;
    struct nd_candidates candidates;
};

static uint64_t count(const struct search *search, const struct nd_word_arithmetic *p, size_t at_most)
{
    uint64_t right = 0;
    for (size_t s = 0; s < search->n_sets; s++)
        right +=
            nd_word_count_right(p, &search->sets[s], search->sets[s].n < at_most ? search->sets[s].n : at_most);
    return right;
}

static void try_arithmetic(struct search *search, const struct nd_word_arithmetic *p)
{
    enum { GLANCE = 512 };
    struct nd_word_findings *out = search->out;
    /* A glance that gives under nine tenths of what the best gave of everything ends it. */
    uint64_t n_glance = 0, glance = count(search, p, GLANCE);
    for (size_t s = 0; s < search->n_sets; s++)
        n_glance += search->sets[s].n < GLANCE ? search->sets[s].n : GLANCE;
    if ((double)glance * (double)out->n_qvalues < 0.9 * (double)out->n_right * (double)n_glance)
        return;
    uint64_t n_wrong = out->n_qvalues - out->n_right;
    nd_candidates_fewest(&search->candidates, p, out->n_qvalues - count(search, p, SIZE_MAX), &n_wrong);
    out->n_right = out->n_qvalues - n_wrong;
}

static const enum nd_rounding roundings[] = {ND_ROUND_FLOOR, ND_ROUND_HALF_UP, ND_ROUND_HALF_EVEN,
                                             ND_ROUND_CEIL};
enum { N_ROUNDINGS = sizeof roundings / sizeof roundings[0] };

static void try_drops(struct search *search, struct nd_word_arithmetic p)
{
    try_arithmetic(search, &p); /* nothing dropped */
    for (p.dropped_bits = 1; p.dropped_bits <= ND_WORD_MAX_DROPPED; p.dropped_bits++)
        for (size_t s = 0; s < N_ROUNDINGS; s++) {
            p.sum_rounding = roundings[s];
            p.drops_together = true;
            p.zero_rounding = ND_ROUND_HALF_EVEN;
            try_arithmetic(search, &p);
            p.drops_together = false;
            for (size_t z = 0; z < N_ROUNDINGS; z++) {
                p.zero_rounding = roundings[z];
                try_arithmetic(search, &p);
            }
        }
}

enum nd_status nd_word_solve(const struct nd_requantise *rests, size_t n_rests,
                             const struct nd_word_qvalues *sets, size_t n_sets, struct nd_word_findings *out,
                             struct nd_error *err)
{
    struct nd_word_findings findings = {0};
    struct search search = {
        .sets = sets, .n_sets = n_sets, .out = &findings, .candidates = ND_CANDIDATES(&findings)};
    for (size_t s = 0; s < n_sets; s++)
        findings.n_qvalues += sets[s].n;
    for (size_t r = 0; r < n_rests; r++)
        for (int f32 = 0; f32 < 2; f32++)
            try_drops(&search, (struct nd_word_arithmetic){.rest = rests[r], .is_multiplier_f32 = f32 != 0});
    enum nd_status status = nd_candidates_end(&search.candidates, err);
    if (status == ND_OK)
        *out = findings;
    return status;
}
