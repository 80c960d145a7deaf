/* Solving for the arithmetic of sums and products from grids of quantised values. The grids come from formulas
 * that are written here a second time, with both shifts, unlike the arithmetics of elementwise_program.c, which
 * join them.
 */
#include "support/main.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/random.h"
#include "lab/fingerprint/elementwise.h"

/* ---- formulas ---- */

struct formula {
    int shift, cap, first;
    int64_t rounding; /* before the first shift */
};

static int floor_log2(double v)
{
    return (int)floor(log2(v));
}

static int64_t floor_divide(int64_t a, int64_t b)
{
    return a >= 0 ? a / b : -((-a + b - 1) / b);
}

static uint8_t clip(int64_t y)
{
    return (uint8_t)(y < 0 ? 0 : y > 255 ? 255 : y);
}

static void fill_sum(const struct formula *f, const struct nd_elementwise_scales *s, uint8_t *qvalues)
{
    double r1 = (double)s->s1 / (double)s->sy, r2 = (double)s->s2 / (double)s->sy;
    int k = (int)fmin(f->cap, f->shift - floor_log2(r1 + r2));
    int64_t m1 = (int64_t)rint(ldexp(r1, k)), m2 = (int64_t)rint(ldexp(r2, k)), layer = (int64_t)1 << f->first,
            one = (int64_t)1 << k;
    int64_t offset = -floor_divide(s->z1 * m1 + s->z2 * m2 - s->zy * one + layer / 2, layer);
    for (int64_t a = 0; a < 256; a++)
        for (int64_t b = 0; b < 256; b++) {
            int64_t y = floor_divide(a * m1 + b * m2 + f->rounding, layer) + offset + one / layer / 2;
            qvalues[a * 256 + b] = clip(floor_divide(y, one / layer));
        }
}

static void fill_product(const struct formula *f, const struct nd_elementwise_scales *s, uint8_t *qvalues)
{
    double r = (double)s->s1 * (double)s->s2 / (double)s->sy;
    int k = (int)fmin(f->cap, f->shift - floor_log2(r));
    int64_t centre = 256 * (int64_t)floor(2 * (127.5 - (double)s->z1) * (127.5 - (double)s->z2) / 256 + 0.5);
    int64_t layer = (int64_t)1 << f->first, one, m, offset;
    for (;; k--) {
        one = (int64_t)1 << k;
        m = (int64_t)rint(ldexp(r, k));
        offset = floor_divide(centre * m + layer / 2, layer);
        if (offset + (s->zy * 2 + 1) * (one / layer / 2) <= 32767)
            break;
    }
    for (int64_t a = 0; a < 256; a++)
        for (int64_t b = 0; b < 256; b++) {
            int64_t t = ((a - s->z1) * (b - s->z2) - centre) * m + f->rounding;
            qvalues[a * 256 + b] =
                clip(floor_divide(floor_divide(t, layer) + offset + one / layer / 2, one / layer) + s->zy);
        }
}

/* ---- grids ---- */

struct grids {
    struct nd_elementwise_grid items[ND_ELEMENTWISE_GRIDS];
    uint8_t *qvalues[ND_ELEMENTWISE_GRIDS];
};

static void make_grids(struct grids *grids, enum nd_elementwise_op op, const struct formula *f)
{
    for (size_t i = 0; i < ND_ELEMENTWISE_GRIDS; i++) {
        struct nd_elementwise_scales s = nd_elementwise_choose(op, i);
        grids->qvalues[i] = malloc(ND_ELEMENTWISE_QVALUES);
        assert_non_null(grids->qvalues[i]);
        if (op == ND_ELEMENTWISE_MUL)
            fill_product(f, &s, grids->qvalues[i]);
        else
            fill_sum(f, &s, grids->qvalues[i]);
        grids->items[i] = (struct nd_elementwise_grid){s, grids->qvalues[i]};
    }
}

static void free_grids(struct grids *grids)
{
    for (size_t i = 0; i < ND_ELEMENTWISE_GRIDS; i++)
        free(grids->qvalues[i]);
}

/* All that are left have these parameters; there is one. */
static void expect_formula(const struct nd_elementwise_findings *found, const struct formula *f)
{
    assert_true(found->n_arithmetics > 0);
    for (size_t i = 0; i < found->n_arithmetics; i++) {
        const struct nd_elementwise_arithmetic *p = &found->arithmetics[i];
        assert_int_equal(p->kind, ND_ELEMENTWISE_FIXED);
        assert_int_equal(p->shift, f->shift);
        assert_int_equal(p->cap, f->cap);
        assert_int_equal(p->first, f->first);
        assert_int_equal(p->rounds_first, f->rounding != 0);
        assert_int_equal(p->multiplier_rounding, ND_ROUND_HALF_EVEN);
    }
}

static void sums_give_their_shifts(void **state)
{
    (void)state;
    static const struct formula formulas[] = {
        {13, 15, 8, 0}, {13, 15, 8, 128}, {12, 14, 6, 0}, {14, 15, 7, 64}};
    for (size_t i = 0; i < sizeof formulas / sizeof formulas[0]; i++) {
        struct grids grids;
        struct nd_elementwise_findings found;
        make_grids(&grids, ND_ELEMENTWISE_ADD, &formulas[i]);
        assert_int_equal(nd_elementwise_solve(grids.items, ND_ELEMENTWISE_GRIDS, &found, NULL), ND_OK);
        expect_formula(&found, &formulas[i]);
        assert_true(found.arithmetics[0].key == ND_KEY_SUM);
        free(found.arithmetics);
        free_grids(&grids);
    }
}

static void products_give_their_rounding_constant(void **state)
{
    (void)state;
    static const struct formula formulas[] = {{14, 22, 15, 0}, {14, 22, 15, 1 << 14}};
    for (size_t i = 0; i < sizeof formulas / sizeof formulas[0]; i++) {
        struct grids grids;
        struct nd_elementwise_findings found;
        make_grids(&grids, ND_ELEMENTWISE_MUL, &formulas[i]);
        assert_int_equal(nd_elementwise_solve(grids.items, ND_ELEMENTWISE_GRIDS, &found, NULL), ND_OK);
        expect_formula(&found, &formulas[i]);
        for (size_t p = 0; p < found.n_arithmetics; p++) {
            assert_true(found.arithmetics[p].has_centre);
            assert_int_equal(found.arithmetics[p].centre_bits, 8);
            assert_int_equal(found.arithmetics[p].centre_gain, 1);
            assert_int_equal(found.arithmetics[p].offset_bits, 16);
        }
        free(found.arithmetics);
        free_grids(&grids);
    }
}

static void one_wrong_qvalue_leaves_nothing_but_the_nearest(void **state)
{
    (void)state;
    static const struct formula formula = {13, 15, 8, 0};
    struct grids grids;
    struct nd_elementwise_findings found;
    make_grids(&grids, ND_ELEMENTWISE_ADD, &formula);
    size_t middle = 0; /* a quantised value far from its thresholds: two up excludes everything */
    while (grids.qvalues[3][middle] < 20 || grids.qvalues[3][middle] > 230)
        middle++;
    grids.qvalues[3][middle] = (uint8_t)(grids.qvalues[3][middle] + 2);
    assert_int_equal(nd_elementwise_solve(grids.items, ND_ELEMENTWISE_GRIDS, &found, NULL), ND_OK);
    assert_int_equal(found.n_arithmetics, 0);
    assert_true(found.n_nearest_wrong > 0);
    assert_true(found.nearest.kind != ND_ELEMENTWISE_FIXED);
    free(found.arithmetics);
    free_grids(&grids);
}

static void rounded_reals_are_told_by_their_ties(void **state)
{
    (void)state;
    static const enum nd_rounding roundings[] = {ND_ROUND_HALF_EVEN, ND_ROUND_HALF_AWAY, ND_ROUND_FLOOR};
    for (size_t i = 0; i < sizeof roundings / sizeof roundings[0]; i++)
        for (int op = ND_ELEMENTWISE_ADD; op <= ND_ELEMENTWISE_MUL; op++) {
            struct grids grids;
            struct nd_elementwise_findings found;
            make_grids(&grids, (enum nd_elementwise_op)op, &(struct formula){14, 15, 2, 0});
            for (size_t g = 0; g < ND_ELEMENTWISE_GRIDS; g++) {
                const struct nd_elementwise_scales *s = &grids.items[g].scales;
                for (int64_t c = 0; c < ND_ELEMENTWISE_QVALUES; c++) {
                    double a = (double)(c / 256 - s->z1) * (double)s->s1,
                           b = (double)(c % 256 - s->z2) * (double)s->s2;
                    double real = (op == ND_ELEMENTWISE_ADD   ? a + b
                                   : op == ND_ELEMENTWISE_SUB ? a - b
                                                              : a * b) /
                                  (double)s->sy;
                    grids.qvalues[g][c] = clip((int64_t)nd_round_value(real, roundings[i]) + s->zy);
                }
            }
            assert_int_equal(nd_elementwise_solve(grids.items, ND_ELEMENTWISE_GRIDS, &found, NULL), ND_OK);
            assert_true(found.n_arithmetics > 0);
            assert_int_equal(found.arithmetics[0].kind, ND_ELEMENTWISE_REAL);
            assert_int_equal(found.arithmetics[0].rounding, roundings[i]);
            for (size_t p = 1; p < found.n_arithmetics; p++)
                assert_int_not_equal(found.arithmetics[p].kind, ND_ELEMENTWISE_REAL);
            free(found.arithmetics);
            free_grids(&grids);
        }
}

/* ---- what to ask next ---- */

static void scales_that_tell_two_arithmetics_apart_are_found(void **state)
{
    (void)state;
    struct nd_elementwise_arithmetic arithmetics[] = {{.kind = ND_ELEMENTWISE_FIXED,
                                                       .key = ND_KEY_SUM,
                                                       .shift = 13,
                                                       .cap = 15,
                                                       .first = 8,
                                                       .rounding = ND_ROUND_HALF_DOWN},
                                                      {.kind = ND_ELEMENTWISE_FIXED,
                                                       .key = ND_KEY_SUM,
                                                       .shift = 13,
                                                       .cap = 15,
                                                       .first = 8,
                                                       .rounding = ND_ROUND_HALF_UP}};
    struct nd_elementwise_findings found = {.arithmetics = arithmetics, .n_arithmetics = 2};
    struct nd_elementwise_scales s;
    struct nd_elementwise_ready ready[2];
    uint64_t seed = 5;
    assert_true(nd_elementwise_next(ND_ELEMENTWISE_ADD, &found, &seed, &s));
    assert_true(nd_elementwise_prepare(&arithmetics[0], &s, &ready[0]));
    assert_true(nd_elementwise_prepare(&arithmetics[1], &s, &ready[1]));
    assert_int_not_equal(ready[0].offset, ready[1].offset);
    arithmetics[1] = arithmetics[0];
    assert_false(nd_elementwise_next(ND_ELEMENTWISE_ADD, &found, &seed, &s));
}

static void names_tell_the_constant(void **state)
{
    (void)state;
    char plain[ND_ELEMENTWISE_NAME_BYTES], rounded[ND_ELEMENTWISE_NAME_BYTES];
    struct nd_elementwise_arithmetic p = {
        .kind = ND_ELEMENTWISE_FIXED, .key = ND_KEY_PRODUCT, .shift = 14, .cap = 22, .first = 15};
    nd_elementwise_name(&p, ND_ELEMENTWISE_MUL, plain);
    p.rounds_first = true;
    nd_elementwise_name(&p, ND_ELEMENTWISE_MUL, rounded);
    assert_null(strstr(plain, "2^14"));
    assert_non_null(strstr(rounded, "+ 2^14"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_give_their_shifts),
        cmocka_unit_test(products_give_their_rounding_constant),
        cmocka_unit_test(one_wrong_qvalue_leaves_nothing_but_the_nearest),
        cmocka_unit_test(rounded_reals_are_told_by_their_ties),
        cmocka_unit_test(scales_that_tell_two_arithmetics_apart_are_found),
        cmocka_unit_test(names_tell_the_constant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
