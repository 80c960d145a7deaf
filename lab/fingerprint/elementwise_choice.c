/* Which scales to ask a device about. */
#include <math.h>
#include <stdlib.h>

#include "core/random.h"
#include "lab/fingerprint/elementwise.h"

static int64_t draw_qvalue(uint64_t *seed, int64_t low, int64_t high)
{
    return low + (int64_t)(nd_random_next(seed) % (uint64_t)(high - low + 1));
}

/* A zero point that leaves the middle of the sums within the quantised values. */
static void centre_sum(struct nd_elementwise_scales *s, uint64_t *seed)
{
    double sign = s->op == ND_ELEMENTWISE_SUB ? -1 : 1, r1 = (double)(s->s1 / s->sy),
           r2 = (double)(s->s2 / s->sy);
    double middle = r1 * (127.5 - (double)s->z1) + sign * r2 * (127.5 - (double)s->z2);
    s->zy = (int64_t)fmin(fmax(128 - middle + nd_random_between(seed, -30, 30), 0), 255);
}

/* Ratios of scales 2^-3.5 .. 2^2 of sums, and products of them 2^-10 .. 2^-5. */
struct nd_elementwise_scales nd_elementwise_draw(enum nd_elementwise_op op, uint64_t *seed)
{
    struct nd_elementwise_scales s = {.op = op};
    s.sy = (float)nd_random_between(seed, 0.01, 0.05);
    s.z1 = draw_qvalue(seed, 0, 255);
    s.z2 = draw_qvalue(seed, 0, 255);
    s.zy = draw_qvalue(seed, 0, 255);
    if (op == ND_ELEMENTWISE_MUL) {
        s.s1 = (float)nd_random_between(seed, 0.01, 0.05);
        s.s2 = (float)(exp2(nd_random_between(seed, -10, -5)) * (double)(s.sy / s.s1));
        return s;
    }
    s.s1 = (float)(exp2(nd_random_between(seed, -3.5, 2)) * (double)s.sy);
    s.s2 = (float)(exp2(nd_random_between(seed, -3.5, 2)) * (double)s.sy);
    if (nd_random_next(seed) % 4 != 0) /* else one that leaves a large offset */
        centre_sum(&s, seed);
    return s;
}

/* Zero points in the middle and a low one of the product leave room in its offset; the other way round, there
 * is none. */
static void place_zeros(struct nd_elementwise_scales *s, bool is_roomy, uint64_t *seed)
{
    s->z1 = is_roomy ? draw_qvalue(seed, 64, 190) : draw_qvalue(seed, 0, 60);
    s->z2 = is_roomy ? draw_qvalue(seed, 64, 190) : draw_qvalue(seed, 0, 60);
    s->zy = is_roomy ? draw_qvalue(seed, 0, 31) : draw_qvalue(seed, 200, 255);
}

struct nd_elementwise_scales nd_elementwise_choose(enum nd_elementwise_op op, size_t i)
{
    enum { N_ROOMY = 10, FIRST_TIE = 8, SMALL = 10, LARGE_OFFSET = 11 };
    uint64_t seed = 8 + 1000 * (uint64_t)op + i;
    nd_random_next(&seed);
    struct nd_elementwise_scales s = nd_elementwise_draw(op, &seed);
    if (i == FIRST_TIE || i == FIRST_TIE + 1) { /* ratios that are powers of two */
        s.sy = 0x1p-6F;
        s.s1 = op == ND_ELEMENTWISE_MUL ? 0x1p-6F : 0x1p-7F;
        s.s2 = i == FIRST_TIE ? 0x1p-7F : 0x1p-8F;
        if (op != ND_ELEMENTWISE_MUL)
            centre_sum(&s, &seed);
    }
    if (i == SMALL && op != ND_ELEMENTWISE_MUL) { /* where a cap of the bits shows */
        s.s1 = 0.0529F * s.sy;
        s.s2 = 0.0619F * s.sy;
        centre_sum(&s, &seed);
    }
    if (i == LARGE_OFFSET && op != ND_ELEMENTWISE_MUL) { /* where a limit of D shows */
        s.s1 = 0.1471F * s.sy;
        s.s2 = (op == ND_ELEMENTWISE_SUB ? 0.4703F : 0.0931F) * s.sy;
        s.z1 = 5;
        s.z2 = op == ND_ELEMENTWISE_SUB ? 250 : 6;
        s.zy = 249;
    }
    if (op == ND_ELEMENTWISE_MUL)
        place_zeros(&s, i < N_ROOMY, &seed);
    return s;
}

/* ---- what tells the arithmetics that are left apart ---- */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    return (hash ^ value) * ND_SPLITMIX_GAMMA + (hash >> 29);
}

/* Equal where the quantised values of all pairs are, as far as is looked at: of fixed point its numbers,
 * otherwise the quantised values. */
static uint64_t sign(const struct nd_elementwise_arithmetic *p, const struct nd_elementwise_scales *s)
{
    struct nd_elementwise_ready r;
    uint64_t hash = p->kind == ND_ELEMENTWISE_FIXED;
    if (!nd_elementwise_prepare(p, s, &r))
        return 0;
    if (p->kind == ND_ELEMENTWISE_FIXED)
        return mix(mix(mix(mix(hash, (uint64_t)r.k), (uint64_t)r.m1), (uint64_t)r.m2), (uint64_t)r.offset);
    for (int64_t a = 0; a < 256; a++)
        for (int64_t b = 0; b < 256; b++)
            hash = mix(hash, nd_elementwise_qvalue(&r, a, b));
    return hash;
}

static int compare_hashes(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

bool nd_elementwise_next(enum nd_elementwise_op op, const struct nd_elementwise_findings *findings,
                         uint64_t *seed, struct nd_elementwise_scales *out)
{
    enum { MANY = 4000, FEW = 48 };
    uint64_t hashes[ND_ELEMENTWISE_MAX_ARITHMETICS];
    size_t best = 1, n = findings->n_arithmetics;
    bool all_fixed = true;
    for (size_t i = 0; i < n; i++)
        all_fixed = all_fixed && findings->arithmetics[i].kind == ND_ELEMENTWISE_FIXED;
    for (int candidate = 0; candidate < (all_fixed ? MANY : FEW) && best < n; candidate++) {
        struct nd_elementwise_scales s = nd_elementwise_draw(op, seed);
        size_t n_kinds = 1;
        for (size_t i = 0; i < n; i++)
            hashes[i] = sign(&findings->arithmetics[i], &s);
        qsort(hashes, n, sizeof hashes[0], compare_hashes);
        for (size_t i = 1; i < n; i++)
            n_kinds += hashes[i] != hashes[i - 1];
        if (n_kinds > best) {
            best = n_kinds;
            *out = s;
        }
    }
    return best > 1;
}
