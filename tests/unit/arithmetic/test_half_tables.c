/* Functions of one float16, read out of the device: what is known of some of them without it. */
#include "support/main.h"

#include <math.h>
#include <stdlib.h>

#include "arithmetic/htp/htp_internal.h"

/* Of a float16; NAN: it was not read out. */
static double made_of(const char *op_type, double x)
{
    struct nd_array one = {.dtype = ND_DTYPE_F32, .n = 1, .x = &x};
    return nd_half_look_up(nd_half_table(op_type), &one) ? x : NAN;
}

/* In units of the nearest float16. */
static double error_of(const char *op_type, double x, double exact)
{
    int exponent;
    frexp(exact, &exponent);
    return fabs(made_of(op_type, x) - exact) / ldexp(1, exponent - 11);
}

static void functions_are_near_the_exact_ones(void **state)
{
    (void)state;
    static const struct {
        const char *op_type;
        double (*function)(double x);
        double low, high, most; /* and units of error */
    } rows[] = {{"Exp", exp, -8, 10, 1},
                {"Log", log, 0.01, 0.9, 1.5},
                {"Sqrt", sqrt, 1e-3, 60000, 1},
                {"Tanh", tanh, 1e-3, 12, 1.5},
                {"Cos", cos, -0.9, 0.9, 2}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (int i = 0; i < 2000; i++) {
            double x =
                nd_htp_as_half(rows[r].low + (rows[r].high - rows[r].low) * i / 2000, ND_ROUND_HALF_EVEN);
            double error = error_of(rows[r].op_type, x, rows[r].function(x));
            if (!(error <= rows[r].most))
                fail_msg("%s of %.9g is %.2f units off", rows[r].op_type, x, error);
        }
}

static void what_the_device_makes_of_ends(void **state)
{
    (void)state;
    assert_true(made_of("Reciprocal", 0) == 65504);
    assert_true(made_of("Reciprocal", -0.0) == -65504);
    assert_true(made_of("Reciprocal", 65504) == 0);          /* below 2^-14 */
    assert_true(made_of("Reciprocal", 3) == 0.333251953125); /* one unit less than the nearest */
    assert_true(made_of("Sqrt", 0) == 0 && made_of("Sqrt", 65504) == 255.875);
    assert_true(made_of("Tanh", 10) == 1 && made_of("Tanh", -10) == -1);
    assert_true(made_of("Exp", 11.5) == 98688); /* there is no infinity: the greatest is 131008 */
    assert_true(made_of("Pow", -3) == 9 && made_of("Pow", 300) == 89984);
}

static void what_was_not_read_out_is_not_known(void **state)
{
    (void)state;
    assert_true(isnan(made_of("Tanh", 65536)) && isnan(made_of("Tanh", NAN)) &&
                isnan(made_of("Tanh", INFINITY)));
    assert_true(!isnan(made_of("Tanh", 65504)));
    assert_null(nd_half_table("Erf"));
    assert_null(nd_half_table(""));
    assert_ptr_equal(nd_half_table("Sin"), nd_half_table("Sin"));
    assert_true(isnan(made_of("Erf", 1)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_are_near_the_exact_ones),
        cmocka_unit_test(what_the_device_makes_of_ends),
        cmocka_unit_test(what_was_not_read_out_is_not_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
