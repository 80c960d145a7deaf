/* What small differences show, and faults that lie over a device's own differences: found where they are, and
 * not where they nearly are. */
#include "support/main.h"

#include "support/values_field.h"

/* ---- what small differences show ---- */

static double cut_to_zero(double x, int bits)
{
    int exponent;
    frexp(x, &exponent);
    return ldexp(trunc(ldexp(x, bits - exponent + 1)), exponent - 1 - bits);
}

static void cut(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s, (void)j;
    double step = f->v.step, x = f->ref[i];
    if (step > 0) { /* of quantised values the fraction that the reference had is not known */
        double fraction = uniform(f, -0.5, 0.5);
        f->test[i] = step * floor(x / step + fraction);
    } else {
        x *= 1 + 1e-3 * uniform(f, 0, 1); /* float32 that is on no grid */
        f->ref[i] = (double)(float)x;
        f->test[i] = cut_to_zero(f->ref[i], f->form == FORM_BF16 ? 7 : 10);
    }
}

/* Half a unit of gain is one-sided as well, but no cut. */
static void half_a_unit_of_gain(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s, (void)j;
    double step = f->v.step, x = f->ref[i], unit = f->form == FORM_BF16 ? 0x1p-8 : 0x1p-11;
    if (step > 0)
        f->test[i] = x - (uniform(f, 0, 1) < 0.2 ? step : 0); /* one-sided, but too rare for a cut */
    else
        f->test[i] = store(f, to_bits(x * (1 - unit / 2), f->form == FORM_BF16 ? 7 : 10, -126));
}

static void truncation_is_told_from_rounding(void **state)
{
    (void)state;
    check(cut, ND_FAULT_TRUNCATION, half_a_unit_of_gain, FORM_U8);
    /* Beside quantised values nobody knows what was cut: it is noted, and accuses nobody. */
    for (enum form form = FORM_U8; form < N_FORMS; form++) {
        struct field f;
        open_field(&f, form, 3);
        lay(&f, cut);
        assert_found(&f, ND_FAULT_ONE_SIDED);
        assert_innocent(&f);
        lay(&f, half_a_unit_of_gain);
        examine(&f);
        assert_null(find(&f, ND_FAULT_ONE_SIDED));
        /* Beside floats it is known. */
        for (size_t i = 0; i < TOTAL; i++) {
            f.ref[i] += f.v.step * uniform(&f, -0.49, 0.49);
            f.test[i] = f.v.step * trunc(f.ref[i] / f.v.step);
        }
        f.v.ref_step = 0;
        assert_found(&f, ND_FAULT_TRUNCATION);
        for (size_t i = 0; i < TOTAL; i++)
            f.test[i] = f.v.step * rint(f.ref[i] / f.v.step);
        assert_innocent(&f);
        close_field(&f);
    }
}

/* Half precision from n values: three say so, round numbers do not. */
static void grid_is_found_from_few_values(void **state)
{
    (void)state;
    double ref[4] = {0.123456789, 0.98765432, 3.3333333, 0.777777777}, half[4],
           plain[4] = {0.125, 1, 3.5, 0.75};
    struct nd_evidence v = {
        .n_samples = 1, .n = 4, .shape = {1, {4}}, .dtype = ND_DTYPE_F32, .expected = ref, .captured = half};
    struct nd_findings found;
    struct nd_error err = {0};
    for (int k = 0; k < 4; k++)
        half[k] = to_bits(ref[k], 10, -14);
    assert_int_equal(nd_diagnose_tensor(&v, &found, &err), ND_OK);
    assert_int_equal(found.n, 1);
    assert_int_equal(found.items[0].kind, ND_FAULT_FP16_GRID);
    assert_true(found.items[0].chance < -13 && found.items[0].chance > -14);
    v.n = 1; /* one value alone is chance */
    v.shape.dims[0] = 1;
    assert_int_equal(nd_diagnose_tensor(&v, &found, &err), ND_OK);
    assert_int_equal(found.n, 0);
    v.n = 4;
    v.shape.dims[0] = 4;
    v.captured = plain;
    assert_int_equal(nd_diagnose_tensor(&v, &found, &err), ND_OK);
    for (size_t k = 0; k < found.n; k++)
        assert_int_not_equal(found.items[k].kind, ND_FAULT_FP16_GRID);
}

static void ties_are_named(void **state)
{
    (void)state;
    struct field f;
    open_field(&f, FORM_U8, 13);
    for (size_t i = 0; i < TOTAL; i++) {
        double x = f.v.step * 0.25 * rint(8 * normal(&f)); /* a quarter of the values are ties */
        f.x_ref[i] = f.x_test[i] = x;
        f.ref[i] = f.v.step * rint(x / f.v.step);
        f.test[i] = f.v.step * floor(x / f.v.step + 0.5);
    }
    assert_found(&f, ND_FAULT_TIES);
    const char *text = find(&f, ND_FAULT_TIES)->text;
    assert_non_null(strstr(text, "the reference rounds half to even, the test half up"));
    for (size_t i = 0; i < TOTAL; i++)
        f.test[i] = f.v.step * round(f.x_ref[i] / f.v.step);
    assert_found(&f, ND_FAULT_TIES);
    assert_non_null(strstr(find(&f, ND_FAULT_TIES)->text, "the test half away from zero"));
    f.test[3] = f.ref[3] + (fabs(fmod(f.x_ref[3] / f.v.step, 1)) == 0.5 ? 2 : 1) * f.v.step;
    f.test[4] = f.ref[4] + (fabs(fmod(f.x_ref[4] / f.v.step, 1)) == 0.5 ? 2 : 1) * f.v.step;
    f.x_ref[3] = f.x_test[3] = f.ref[3]; /* differences that are no ties */
    f.x_ref[4] = f.x_test[4] = f.ref[4];
    examine(&f);
    assert_null(find(&f, ND_FAULT_TIES));
    close_field(&f);
}

static void step_function_amplifies(void **state)
{
    (void)state;
    struct field f;
    open_field(&f, FORM_F32, 17);
    for (size_t i = 0; i < TOTAL; i++) {
        f.x_ref[i] *= 10;
        if (i % 50 == 0)
            f.x_ref[i] = rint(f.x_ref[i]) + 1e-6;
        f.x_test[i] = i % 50 == 0 ? f.x_ref[i] - 2e-6 : f.x_ref[i];
        f.ref[i] = ceil(f.x_ref[i]);
        f.test[i] = ceil(f.x_test[i]);
    }
    assert_found(&f, ND_FAULT_STEP);
    assert_non_null(
        strstr(find(&f, ND_FAULT_STEP)->text, "Ceil amplifies: its input 'x' differs by at most 2e-06"));
    f.test[1] += 1; /* the device's own error */
    examine(&f);
    assert_null(find(&f, ND_FAULT_STEP));
    close_field(&f);
}

static void argmax_amplifies(void **state)
{
    (void)state;
    double x_ref[2][3][2] = {{{1, 5}, {2, 4}, {1.9999, 3}}, {{0, 1}, {0, 2}, {0, 3}}}, x_test[2][3][2];
    double ref[4] = {1, 0, 0, 2}, test[4] = {2, 0, 0, 2};
    struct nd_values_argmax a = {"x", 2, 3, 2, ref, test, &x_ref[0][0][0], &x_test[0][0][0]};
    struct nd_findings found;
    memcpy(x_test, x_ref, sizeof x_ref);
    x_test[0][2][0] = 2.0001;
    nd_values_try_argmax(&a, &found);
    assert_int_equal(found.n, 1);
    assert_int_equal(found.items[0].kind, ND_FAULT_STEP);
    assert_string_equal(found.items[0].text,
                        "ArgMax amplifies: where its index differs (1 times), the values of 'x' "
                        "are at most 0.0001 apart");
    test[3] = 0; /* an index that its own values do not give */
    nd_values_try_argmax(&a, &found);
    assert_int_equal(found.n, 0);
}

/* ---- faults over a device's own differences ---- */

/* A device that is off by much more than a step or a layer before it rounds, as quantised values of 16 bits are
 * in deep models. */
static double rough(struct field *f, double x)
{
    double most = f->form == FORM_U8 ? f->v.step : 0.01;
    return store(f, x + most * uniform(f, -1, 1));
}

static void rough_cliff(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s, (void)j;
    double x = rough(f, f->ref[i]);
    f->test[i] = fabs(x) > 1.5 ? 0 : x;
}

/* As many elements are zero, and as large ones, but some large ones are right far beyond the limit. */
static void leaky_cliff(struct field *f, size_t s, size_t j, size_t i)
{
    rough_cliff(f, s, j, i);
    if (uniform(f, 0, 1) < 0.2)
        f->test[i] = rough(f, f->ref[i]);
}

static void cliff_at_the_device_s_own_values_is_found(void **state)
{
    (void)state;
    check(rough_cliff, ND_FAULT_HARD_CLIFF, leaky_cliff, N_FORMS);
    struct field f;
    open_field(&f, FORM_F16, 5);
    lay(&f, rough_cliff);
    assert_cliff(&f, " beside the limit");
    close_field(&f);
}

/* Rows and columns change places in memory: planes are square. */
static void swapped(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s;
    size_t row = j / SIDE % SIDE, column = j % SIDE;
    f->test[i] = rough(f, f->ref[i - row * SIDE - column + column * SIDE + row]);
}

static void nearly_swapped(struct field *f, size_t s, size_t j, size_t i)
{
    swapped(f, s, j, i);
    if (j % 16 == 3) /* too many are nobody's */
        f->test[i] = store(f, uniform(f, -2, 2));
}

static void permuted_axes_are_found_over_noise(void **state)
{
    (void)state;
    check(swapped, ND_FAULT_AXIS_PERMUTATION, nearly_swapped, N_FORMS);
    struct field f;
    open_field(&f, FORM_U8, 6);
    lay(&f, swapped);
    examine(&f);
    assert_string_equal(f.found.items[0].text, "bytes of the axes in the order 1, 3, 2 are read as unpermuted");
    /* Planes of one value each, and channels last: the order of rows and columns cannot be told, so none is
     * picked. */
    for (size_t i = 0; i < TOTAL; i++)
        f.ref[i] = f.ref[i - i % (SIDE * SIDE)];
    for (size_t i = 0; i < TOTAL; i++)
        f.test[i] = rough(&f, f.ref[i - i % N + i % CHANNELS * SIDE * SIDE]);
    examine(&f);
    assert_int_equal(f.found.items[0].kind, ND_FAULT_AXIS_PERMUTATION);
    assert_non_null(strstr(f.found.items[0].text, "which it is cannot be told"));
    close_field(&f);
}

enum { BLOCK = 4 };

/* Channels in blocks of four, the block innermost: where element j of the one lies in the other. */
static size_t blocked_place(size_t j)
{
    size_t channel = j / (SIDE * SIDE), at = j % (SIDE * SIDE);
    return (channel / BLOCK * SIDE * SIDE + at) * BLOCK + channel % BLOCK;
}

static void blocked(struct field *f, size_t s, size_t j, size_t i)
{
    f->test[s * N + blocked_place(j)] = rough(f, f->ref[i]);
}

static void unblocked(struct field *f, size_t s, size_t j, size_t i)
{
    f->test[i] = rough(f, f->ref[s * N + blocked_place(j)]);
}

/* Channels in two halves: a permutation of channels, not of axes. */
static void halves(struct field *f, size_t s, size_t j, size_t i)
{
    f->test[i] = rough(f, f->ref[s * N + (j / (SIDE * SIDE) * 3 % CHANNELS) * SIDE * SIDE + j % (SIDE * SIDE)]);
}

static void assert_not_permuted(struct field *f)
{
    examine(f);
    assert_null(find(f, ND_FAULT_AXIS_PERMUTATION));
}

static void blocked_layouts_are_found(void **state)
{
    (void)state;
    check(blocked, ND_FAULT_AXIS_PERMUTATION, nothing, N_FORMS);
    check(unblocked, ND_FAULT_AXIS_PERMUTATION, nothing, N_FORMS);
    struct field f;
    open_field(&f, FORM_F16, 6);
    lay(&f, blocked);
    assert_text(
        &f, "bytes in blocks of 4 along axis 1 (NC1HWC2), in the order 1, 2, 3, block, are read as unblocked");
    lay(&f, unblocked);
    assert_text(&f,
                "unblocked bytes are read in blocks of 4 along axis 1 (NC1HWC2), in the order 1, 2, 3, block");
    for (size_t i = 0; i < TOTAL; i++) /* channels last, put back as if they were first */
        f.test[i] = f.ref[i / N * N + (i % (SIDE * SIDE) * CHANNELS + i % N / (SIDE * SIDE))];
    assert_text(&f, "unpermuted bytes are read as axes in the order 2, 3, 1");
    lay(&f, halves);
    assert_not_permuted(&f);
    close_field(&f);
}

/* Zero where the magnitude is large, and rows of which most are large: lines that are constant as well. */
static void flat_rows_behind_a_cliff(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s;
    if (j / SIDE % 12 == 1)
        f->ref[i] = store(f, 2 + 0.01 * (double)(j % SIDE) + uniform(f, 0, 1));
    f->test[i] = f->ref[i] > 1 ? 0 : f->test[i];
}

static void fault_that_explains_most_is_named(void **state)
{
    (void)state;
    for (enum form form = 0; form < N_FORMS; form++) {
        struct field f;
        open_field(&f, form, 20261122);
        lay(&f, flat_rows_behind_a_cliff);
        examine(&f);
        assert_int_equal(f.found.n_gross, 1);
        assert_int_equal(f.found.items[0].kind, ND_FAULT_HARD_CLIFF);
        assert_true(f.found.items[0].explained > 0.95);
        close_field(&f);
        /* The rest of the tensor is at chance: rows that are a small part of what is wrong are not the fault.
         */
        open_field(&f, form, 20261122);
        for (size_t i = 0; i < TOTAL; i++) {
            f.test[i] = store(&f, uniform(&f, -2, 2));
            if (i / SIDE % 16 == 1)
                f.test[i] = f.test[i - i % SIDE];
        }
        examine(&f);
        assert_null(find(&f, ND_FAULT_CONSTANT_LINES));
        close_field(&f);
    }
}

static void low_byte_of_noisy_qvalues_is_a_wrap(void **state)
{
    (void)state;
    struct field f;
    open_field(&f, FORM_U16, 7);
    f.v.zero_point = 0;
    for (size_t i = 0; i < TOTAL; i++) { /* off by some 40 steps of a period of 256 */
        double qvalue = floor(uniform(&f, 2000, 60000));
        f.ref[i] = f.v.step * qvalue;
        f.test[i] = f.v.step * fmod(rint(qvalue + 40 * normal(&f)), 256);
    }
    assert_found(&f, ND_FAULT_WRAP);
    assert_non_null(strstr(find(&f, ND_FAULT_WRAP)->text, "modulo 2^8, besides differences of about"));
    for (size_t i = 0; i < TOTAL; i++) /* the high byte instead: squeezed, and no wrap */
        f.test[i] = f.v.step * floor(f.ref[i] / f.v.step / 256);
    examine(&f);
    assert_null(find(&f, ND_FAULT_WRAP));
    close_field(&f);
}

/* What a Relu leaves, and the device leaves the Relu out. */
static void relu_left_out(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s, (void)j;
    f->test[i] = rough(f, f->ref[i]);
    f->ref[i] = fmax(f->ref[i], 0);
}

/* A reference of quantised values that ends where its type does: the device is right. */
static void reference_saturates(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s, (void)j;
    f->v.ref_step = 0.03125;
    f->test[i] = rough(f, f->ref[i]);
    f->ref[i] = fmax(f->ref[i], -1);
}

static void relu_that_is_left_out_is_found(void **state)
{
    (void)state;
    check(relu_left_out, ND_FAULT_UNCLAMPED, reference_saturates, N_FORMS);
    struct field f;
    open_field(&f, FORM_F16,
               8); /* its input is in the capture: the operator passed it through, zeros and all */
    for (size_t i = 0; i < TOTAL; i++) {
        f.ref[i] = fmax(f.x_ref[i], 0);
        f.test[i] = f.x_test[i];
    }
    examine(&f);
    assert_int_equal(f.found.items[0].kind, ND_FAULT_PASSED_THROUGH);
    close_field(&f);
}

/* Half precision that is cut to bfloat16 keeps its type; the device's own values may differ a little before. */
static void cut_below_its_type_is_told(void **state)
{
    (void)state;
    static const double noises[] = {0, 2e-4};
    for (size_t k = 0; k < sizeof noises / sizeof noises[0]; k++) {
        struct field f;
        open_field(&f, FORM_F16, 20261122 + k);
        for (size_t i = 0; i < TOTAL; i++) {
            f.ref[i] = to_bits(f.ref[i], 10, -14);
            f.test[i] = cut_to_zero(f.ref[i] * (1 + noises[k] * normal(&f)), 7);
        }
        assert_found(&f, ND_FAULT_TRUNCATION);
        assert_non_null(strstr(find(&f, ND_FAULT_TRUNCATION)->text, "cut toward zero to bfloat16"));
        for (size_t i = 0; i < TOTAL; i++) /* rounded to nearest: nothing is wrong */
            f.test[i] = to_bits(f.ref[i] * (1 + noises[k] * normal(&f)), 7, -126);
        assert_innocent(&f);
        for (size_t i = 0; i < TOTAL; i++) /* a third of a layer is missing, by a gain: no cut */
            f.test[i] = to_bits(f.ref[i] * (1 - 0x1p-9 + noises[k] * normal(&f)), 7, -126);
        assert_innocent(&f);
        close_field(&f);
    }
}

/* Samples of zeros where half of the reference's values are zero themselves. */
static void zero_samples_of_sparse_values_are_found(void **state)
{
    (void)state;
    for (enum form form = 0; form < N_FORMS; form++) {
        struct field f;
        open_field(&f, form, 9);
        for (size_t i = 0; i < TOTAL; i++) {
            f.ref[i] = fmax(f.ref[i] - 0.5, 0);
            f.test[i] = i / N == 1 || i / N == 4 ? 0 : store(&f, f.ref[i]);
        }
        assert_found(&f, ND_FAULT_ALL_ZERO);
        close_field(&f);
    }
}

/* ---- runs ---- */

static void launches_are_compared(void **state)
{
    (void)state;
    struct field f;
    struct nd_findings found;
    open_field(&f, FORM_F16, 19);
    double *first = f.test, *second = f.test + N, *third = f.test + 2 * (ptrdiff_t)N;
    const double *runs[] = {first, second, third};
    memcpy(second, first, N * sizeof *first);
    memcpy(third, first, N * sizeof *first);
    nd_values_compare_launches(runs, 3, N, 0, &found);
    assert_int_equal(found.n, 0);
    memset(first + 200, 0, 50 * sizeof *first);
    nd_values_compare_launches(runs, 3, N, 0, &found);
    assert_int_equal(found.n, 1);
    assert_int_equal(found.items[0].kind, ND_FAULT_UNWRITTEN_WINDOW);
    assert_string_equal(found.items[0].text,
                        "elements 200 to 249 differ between the first and all later runs of the "
                        "same input, all others do not; the first run holds 0 there");
    /* What is 0 in all runs beside it may belong to it: the edge is the roundest number there. */
    memset(first + 190, 0, 10 * sizeof *first);
    memset(second + 190, 0, 10 * sizeof *first);
    memset(third + 190, 0, 10 * sizeof *first);
    nd_values_compare_launches(runs, 3, N, 0, &found);
    assert_string_equal(found.items[0].text,
                        "elements 192 to 249 differ between the first and all later runs of the "
                        "same input, all others do not; the first run holds 0 there");
    for (size_t j = 0; j < N; j += 3)
        first[j] = -first[j] - 1;
    nd_values_compare_launches(runs, 3, N, 0, &found);
    assert_int_equal(found.items[0].kind, ND_FAULT_FIRST_LAUNCH);
    nd_values_compare_launches(runs, 2, N, 0, &found); /* two runs show no launch that is apart */
    assert_int_equal(found.n, 0);
    memcpy(first, third, N * sizeof *first);
    for (size_t j = 0; j < N; j += 7) /* rounding that depends on the run */
        second[j] += ldexp(second[j], -10);
    nd_values_compare_launches(runs, 3, N, 0, &found);
    assert_int_equal(found.n, 0);
    close_field(&f);
}

/* ---- depth ---- */

static void assert_growth(const double *errors, size_t n, enum nd_growth growth)
{
    struct nd_growth_law law;
    nd_values_find_growth(errors, n, &law);
    assert_string_equal(nd_growth_name(law.growth), nd_growth_name(growth));
}

static void growth_over_depth_is_named(void **state)
{
    (void)state;
    struct field f;
    double linear[24], rate[24], none[24], root[24], wild[24];
    open_field(&f, FORM_F32, 23);
    for (int k = 0; k < 24; k++) {
        double noise = 1 + 0.1 * normal(&f);
        linear[k] = 1e-4 * (k + 1) * noise;
        root[k] = 1e-4 * sqrt(k + 1) * (1 + 0.02 * normal(&f));
        rate[k] = 1e-4 * pow(1.3, k) * noise;
        none[k] = 1e-4 * noise;
        wild[k] = 1e-4 * exp(2 * normal(&f));
    }
    assert_growth(linear, 24, ND_GROWTH_LINEAR);
    assert_growth(root, 24, ND_GROWTH_ROOT);
    assert_growth(rate, 24, ND_GROWTH_RATE);
    assert_growth(none, 24, ND_GROWTH_NONE);
    assert_growth(rate, 5, ND_GROWTH_UNKNOWN);
    struct nd_growth_law law;
    nd_values_find_growth(rate, 24, &law);
    assert_true(fabs(law.factor - 1.3) < 0.02);
    nd_values_find_growth(wild, 24, &law);
    assert_true(law.growth == ND_GROWTH_UNKNOWN || law.growth == ND_GROWTH_NONE);
    close_field(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(truncation_is_told_from_rounding),
        cmocka_unit_test(grid_is_found_from_few_values),
        cmocka_unit_test(ties_are_named),
        cmocka_unit_test(step_function_amplifies),
        cmocka_unit_test(argmax_amplifies),
        cmocka_unit_test(cliff_at_the_device_s_own_values_is_found),
        cmocka_unit_test(permuted_axes_are_found_over_noise),
        cmocka_unit_test(blocked_layouts_are_found),
        cmocka_unit_test(fault_that_explains_most_is_named),
        cmocka_unit_test(low_byte_of_noisy_qvalues_is_a_wrap),
        cmocka_unit_test(relu_that_is_left_out_is_found),
        cmocka_unit_test(cut_below_its_type_is_told),
        cmocka_unit_test(zero_samples_of_sparse_values_are_found),
        cmocka_unit_test(launches_are_compared),
        cmocka_unit_test(growth_over_depth_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
