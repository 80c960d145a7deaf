/* Every diagnosis of values, on floats of three types and on quantised values: gross errors are found where
 * they are, and not where they nearly are. */
#include "support/main.h"

#include "support/values_field.h"

/* ---- gross errors ---- */

static void one_value(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s, (void)j;
    f->test[i] = 0.5;
}

/* The reference is dead, too. */
static void all_alike(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s, (void)j;
    f->ref[i] = f->test[i] = 0.5;
}

/* A reference that is one value, too, shows an offset, not a loss. */
static void both_dead(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s, (void)j;
    f->test[i] = 0.5;
    f->ref[i] = 2;
}

static void constant_output_is_found(void **state)
{
    (void)state;
    check(one_value, ND_FAULT_CONSTANT, all_alike, N_FORMS);
    check(one_value, ND_FAULT_CONSTANT, both_dead, N_FORMS);
}

static void previous(struct field *f, size_t s, size_t j, size_t i)
{
    f->test[i] = s > 0 ? healthy(f, f->ref[(s - 1) * N + j]) : f->test[i];
}

/* Inputs that do not change: of the reference, too, every sample is the one before. */
static void same_samples(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s;
    f->ref[i] = f->ref[j];
    f->test[i] = f->test[j];
}

/* The sample four before, all the first, the next one. */
static void long_before(struct field *f, size_t s, size_t j, size_t i)
{
    f->test[i] = s >= 4 ? healthy(f, f->ref[(s - 4) * N + j]) : store(f, uniform(f, -2, 2));
}

static void the_first(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s;
    f->test[i] = healthy(f, f->ref[j]);
}

static void next_one(struct field *f, size_t s, size_t j, size_t i)
{
    f->test[i] = s + 1 < SAMPLES ? healthy(f, f->ref[(s + 1) * N + j]) : f->test[i];
}

static void output_of_the_previous_sample_is_found(void **state)
{
    (void)state;
    check(previous, ND_FAULT_STALE, same_samples, N_FORMS);
    check(long_before, ND_FAULT_STALE, same_samples, N_FORMS);
    check(the_first, ND_FAULT_STALE, same_samples, N_FORMS);
    check(next_one, ND_FAULT_SHIFTED, same_samples, N_FORMS);
}

/* Only samples 3 and 4 repeat what the device itself gave for sample 2. */
static void repeated(struct field *f, size_t s, size_t j, size_t i)
{
    f->test[i] = s == 3 || s == 4 ? f->test[2 * N + j] : f->test[i];
}

static void repeated_output_is_found(void **state)
{
    (void)state;
    check(repeated, ND_FAULT_STALE, nothing, N_FORMS);
}

/* Only sample 0 is computed: the others equal the one before, but that is not what is wrong. */
static void only_the_first(struct field *f, size_t s, size_t j, size_t i)
{
    (void)j;
    f->test[i] = s > 0 ? 0 : f->test[i];
}

static void samples_of_zeros_are_found(void **state)
{
    (void)state;
    check(only_the_first, ND_FAULT_ALL_ZERO, nothing, N_FORMS);
    struct field f;
    open_field(&f, FORM_F32, 3);
    f.v.first_sample = 20; /* a part of a probe: samples have the numbers they have there */
    lay(&f, only_the_first);
    examine(&f);
    assert_string_equal(f.found.items[0].text, "every value of samples 21 to 25 is 0; the reference's are not");
    for (size_t i = 0; i < TOTAL; i++) /* one value each: neither stale nor all zero */
        f.test[i] = i / N == 1 ? 0.5 : i / N > 1 ? -0.5 : f.test[i];
    examine(&f);
    assert_null(find(&f, ND_FAULT_STALE));
    close_field(&f);
}

/* Bytes in a buffer of floats: what is not nonsense is not written. */
static void bytes_in_floats(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s;
    f->test[i] = j < N / 4 ? store(f, uniform(f, -3, 3)) : 0;
}

/* The reference ends in zeros, too. */
static void both_end_in_zeros(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s;
    f->test[i] = j < N / 4 ? f->test[i] : 0;
    f->ref[i] = j < N / 4 ? f->ref[i] : 0;
}

static void unwritten_end_is_found(void **state)
{
    (void)state;
    check(bytes_in_floats, ND_FAULT_UNWRITTEN_WINDOW, both_end_in_zeros, N_FORMS);
}

static void passed(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s, (void)j;
    f->test[i] = f->x_test[i];
}

/* An identity: the reference's output equals its input, too. */
static void identity(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s, (void)j;
    f->ref[i] = f->x_ref[i];
    f->test[i] = f->x_test[i];
}

static void output_equal_to_an_input_is_found(void **state)
{
    (void)state;
    check(passed, ND_FAULT_PASSED_THROUGH, identity, N_FORMS);
}

/* y = x + something, with x of the sample before. */
static void stale_operand(struct field *f, size_t s, size_t j, size_t i)
{
    f->ref[i] = store(f, 0.5 * f->ref[i] + f->x_ref[i]);
    double late = s > 0 ? f->x_ref[(s - 1) * N + j] - f->x_ref[i] : 0;
    f->test[i] = healthy(f, f->ref[i] + late);
}

static void fresh_operand(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s, (void)j;
    f->ref[i] = store(f, 0.5 * f->ref[i] + f->x_ref[i]);
    f->test[i] = healthy(f, f->ref[i]);
}

static void operand_of_the_previous_sample_is_found(void **state)
{
    (void)state;
    check(stale_operand, ND_FAULT_STALE_OPERAND, fresh_operand, N_FORMS);
}

static void clamped(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s, (void)j;
    f->test[i] = store(f, fmin(fmax(1.25 * f->ref[i], -1.5), 1.5));
}

/* The reference is clamped as well. */
static void both_clamped(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s, (void)j;
    f->ref[i] = fmin(fmax(f->ref[i], -1.5), 1.5);
    f->test[i] = fmin(fmax(f->test[i], -1.5), 1.5);
}

static void saturation_with_a_gain_is_found(void **state)
{
    (void)state;
    check(clamped, ND_FAULT_SATURATION, both_clamped, N_FORMS);
    struct field f;
    open_field(&f, FORM_F16, 5);
    lay(&f, clamped);
    examine(&f);
    assert_string_equal(f.found.items[0].text,
                        "clamped at both ends, to -1.5..1.5, values between are 1.25 times as large");
    close_field(&f);
}

static void gain(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s, (void)j;
    f->test[i] = store(f, 0.5 * f->ref[i]);
}

/* One part in a thousand is what a scale loses in half precision. */
static void small_gain(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s, (void)j;
    f->test[i] = healthy(f, 0.9995 * f->ref[i]);
}

static void gain_is_found(void **state)
{
    (void)state;
    check(gain, ND_FAULT_SCALE, small_gain, N_FORMS);
}

static void turned(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s, (void)j;
    f->test[i] = healthy(f, -f->ref[i]);
}

static void lower(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s, (void)j;
    f->test[i] = healthy(f, f->ref[i] - 0.75);
}

static void affine(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s, (void)j;
    f->test[i] = healthy(f, 0.75 * f->ref[i] - 0.5);
}

/* No line: a square root of what it was. */
static void bent(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s, (void)j;
    f->test[i] = healthy(f, copysign(sqrt(fabs(f->ref[i])), f->ref[i]) - 0.75);
}

/* Half of the values are lower: which half nobody knows. */
static void half_lower(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s, (void)j;
    f->test[i] = healthy(f, f->ref[i] - (uniform(f, 0, 1) < 0.5 ? 0.75 : 0));
}

static double of_channel(size_t j)
{
    return (double)(j / (SIDE * SIDE) * 5 % CHANNELS) / 4 - 0.8;
}

static void channels_lower(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s;
    f->test[i] = healthy(f, f->ref[i] + of_channel(j));
}

static void channels_larger(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s;
    f->test[i] = healthy(f, f->ref[i] * (0.4 + fabs(of_channel(j))));
}

/* Every value has an offset of its own. */
static void values_lower(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s, (void)j;
    f->test[i] = healthy(f, f->ref[i] + uniform(f, -0.8, 0.8));
}

static void lines_of_the_reference_are_found(void **state)
{
    (void)state;
    check(turned, ND_FAULT_SIGN, bent, N_FORMS);
    check(lower, ND_FAULT_ZERO_POINT, half_lower, N_FORMS);
    check(affine, ND_FAULT_ENCODING, bent, N_FORMS);
    check(channels_lower, ND_FAULT_CHANNEL_ZERO_POINT, values_lower, N_FORMS);
    check(channels_larger, ND_FAULT_CHANNEL_SCALE, values_lower, N_FORMS);
    struct field f;
    open_field(&f, FORM_F32, 5);
    for (size_t i = 0; i < TOTAL; i++)
        f.test[i] = f.ref[i] - (i % N / (SIDE * SIDE) == 3 ? 0.75 : 0);
    assert_text(&f, "channel 3 (axis 1) is 0.75 lower, all others are right: 12288 of 12288");
    for (size_t i = 0; i < TOTAL; i++) /* one value of 200 is nobody's */
        f.test[i] = i % 200 == 7 ? 3 : -f.ref[i];
    assert_text(&f, "all signs are turned: 12226 of 12288");
    for (size_t i = 0; i < TOTAL; i++) { /* dequantised: of 8 bits, in steps of 1/64 and of 0.02 */
        double qvalue = fmin(fmax(rint(f.ref[i] * 64) + 128, 0), 255);
        f.ref[i] = 0.05 * rint(f.ref[i] / 0.05);
        f.test[i] = (double)(float)(0.02 * (qvalue - 100));
    }
    examine(&f);
    assert_int_equal(f.found.items[0].kind, ND_FAULT_ENCODING);
    close_field(&f);
    open_field(&f, FORM_F32,
               6); /* samples that are all alike: each element is off by a constant, whatever it is */
    for (size_t i = 0; i < TOTAL; i++) {
        f.ref[i] = f.ref[i % N];
        f.test[i] = i < N ? f.ref[i] + uniform(&f, -1, 1) : f.test[i % N];
    }
    f.v.shape = (struct nd_shape){2, {1, N}};
    assert_innocent(&f);
    for (size_t i = 0; i < TOTAL; i++) /* and nearly alike */
        f.ref[i] += 1e-3 * normal(&f);
    assert_innocent(&f);
    close_field(&f);
    open_field(&f, FORM_U8, 5); /* where the type ends nothing goes on */
    for (size_t i = 0; i < TOTAL; i++)
        f.test[i] = store(&f, f.ref[i] + 3);
    assert_text(
        &f, "all values are 3 higher (96 steps of 0.03125, as a different zero point gives): 12288 of 12288");
    close_field(&f);
}

/* Modulo 2^4 steps of 8-bit quantised values, 2^8 of 16-bit quantised values, of floats 2. */
static double period_of(const struct field *f)
{
    return f->form == FORM_U8 ? 16 * f->v.step : f->form == FORM_U16 ? 256 * f->v.step : 2;
}

static void wrapped(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s, (void)j;
    double period = period_of(f), low = f->v.step > 0 ? -f->v.step * f->v.zero_point : -period / 2;
    f->test[i] = store(f, f->ref[i] - period * floor((f->ref[i] - low) / period));
}

static void wrap_around_is_found(void **state)
{
    (void)state;
    check(wrapped, ND_FAULT_WRAP, nothing, N_FORMS);
    static const struct {
        double scale;
        double period;
        const char *text;
    } cases[] = {{200, 256, "values wrap around modulo 2^8"},
                 {60000, 65536, "values wrap around modulo 2^16"},
                 {4e9, 4294967296, "values wrap around modulo 2^32"}};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        struct field f;
        open_field(&f, FORM_F32, 7);
        for (size_t i = 0; i < TOTAL; i++) {
            f.ref[i] = cases[k].scale * f.ref[i];
            f.test[i] = store(&f, f.ref[i] - cases[k].period * rint(f.ref[i] / cases[k].period));
        }
        assert_found(&f, ND_FAULT_WRAP);
        assert_string_equal(f.found.items[0].text, cases[k].text);
        close_field(&f);
    }
}

/* Zero from 1.75 on. */
static void cliff(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s, (void)j;
    f->test[i] = f->ref[i] > 1.75 ? 0 : f->test[i];
}

/* The reference falls to zero in the same place. */
static void both_fall(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s, (void)j;
    f->test[i] = f->ref[i] > 1.75 ? 0 : f->test[i];
    f->ref[i] = f->ref[i] > 1.75 ? 0 : f->ref[i];
}

static void cliff_is_found(void **state)
{
    (void)state;
    check(cliff, ND_FAULT_HARD_CLIFF, both_fall, N_FORMS);
}

static void overflow_explains_a_cliff(void **state)
{
    (void)state;
    struct field f;
    open_field(&f, FORM_F32, 11); /* a half precision device: infinite beyond 65504 */
    for (size_t i = 0; i < TOTAL; i++) {
        f.ref[i] *= 30000;
        f.test[i] = fabs(f.ref[i]) > 65520 ? copysign(INFINITY, f.ref[i]) : to_bits(f.ref[i], 10, -14);
    }
    assert_cliff(&f, "infinite where the magnitude is 655");
    assert_cliff(&f, "half precision ends at 65504");
    for (size_t i = 0; i < TOTAL; i++) { /* softplus by way of exp: zero behind 11.09 of its input */
        f.x_ref[i] = f.x_test[i] = 5 * f.x_ref[i];
        f.ref[i] = log1p(exp(f.x_ref[i]));
        f.test[i] = f.x_ref[i] > 11.0899 ? 0 : to_bits(f.ref[i], 10, -14);
    }
    assert_cliff(&f, "exp of more than 11.09 overflows half precision");
    for (size_t i = 0; i < TOTAL; i++) { /* what the probe does not reach is no cliff */
        f.x_ref[i] = f.x_test[i] = 0.4 * f.x_ref[i];
        f.ref[i] = log1p(exp(f.x_ref[i]));
        f.test[i] = to_bits(f.ref[i], 10, -14);
    }
    assert_innocent(&f);
    close_field(&f);
}

static void window(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s;
    f->test[i] = j >= 100 && j < 164 ? f->test[j] : f->test[i];
}

/* A window in which the inputs of all samples are alike, so that the reference's values are, too. */
static void quiet_window(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s;
    f->test[i] = j >= 100 && j < 164 ? f->test[j] : f->test[i];
    f->ref[i] = j >= 100 && j < 164 ? f->ref[j] : f->ref[i];
}

static void late_window(struct field *f, size_t s, size_t j, size_t i)
{
    f->test[i] = s > 0 && j >= 100 && j < 164 ? healthy(f, f->ref[(s - 1) * N + j]) : f->test[i];
}

/* Channel 5, of which the first value and the last are right by chance; rows of a channel; a range of none. */
static void unwritten_window_is_found(void **state)
{
    (void)state;
    check(late_window, ND_FAULT_UNWRITTEN_WINDOW, nothing, N_FORMS);
    check(window, ND_FAULT_UNWRITTEN_WINDOW, quiet_window, N_FORMS);
    static const struct {
        size_t first, end;
        const char *text;
    } windows[] = {
        {5 * SIDE * SIDE, 6 * SIDE * SIDE, "channel 5 (axis 1) holds 0, all others are right"},
        {2 * SIDE * SIDE, 4 * SIDE * SIDE, "channels 2 to 3 (axis 1) hold 0, all others are right"},
        {SIDE * SIDE + 48, SIDE * SIDE + 128, "channel 1, rows 3 to 7 (axis 2) hold 0, all others are right"},
        {100, 357, "elements 100 to 356 hold 0, all others are right"}};
    for (size_t k = 0; k < sizeof windows / sizeof windows[0]; k++) {
        struct field f;
        open_field(&f, FORM_F32, 30 + k);
        for (size_t i = 0; i < TOTAL; i++) {
            size_t j = i % N;
            f.ref[i] =
                windows[k].text[0] == 'c' && (j == windows[k].first || j == windows[k].end - 1) ? 0 : f.ref[i];
            f.test[i] = j >= windows[k].first && j < windows[k].end ? 0 : f.ref[i];
        }
        assert_text(&f, windows[k].text);
        close_field(&f);
    }
}

/* Every fourth row is its first value. */
static void constant_rows(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s;
    f->test[i] = j / SIDE % 4 == 1 ? f->test[i - j % SIDE] : f->test[i];
}

static void both_constant_rows(struct field *f, size_t s, size_t j, size_t i)
{
    constant_rows(f, s, j, i);
    f->ref[i] = j / SIDE % 4 == 1 ? f->ref[i - j % SIDE] : f->ref[i];
}

static void constant_rows_are_found(void **state)
{
    (void)state;
    check(constant_rows, ND_FAULT_CONSTANT_LINES, both_constant_rows, N_FORMS);
}

/* Planes of 256 are padded by 3 and read as dense; what is in the pads is nobody's. */
static void padded(struct field *f, size_t s, size_t j, size_t i)
{
    size_t plane = j / (SIDE * SIDE + 3), at = j % (SIDE * SIDE + 3);
    f->test[i] = at < SIDE * SIDE ? healthy(f, f->ref[s * N + plane * SIDE * SIDE + at]) : 0;
}

/* Rows backwards: no law that is known, but no other values. */
static void backwards(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s;
    f->test[i] = f->ref[i - j % SIDE + (SIDE - 1 - j % SIDE)];
}

/* As good as the same, but for a value that is in no place: it was computed otherwise. */
static void nearly_backwards(struct field *f, size_t s, size_t j, size_t i)
{
    backwards(f, s, j, i);
    if (j == 7)
        f->test[i] += f->v.step > 0 ? f->v.step : 1e-3;
}

/* Five elements further on; what comes first is nobody's. */
static void further_on(struct field *f, size_t s, size_t j, size_t i)
{
    f->test[i] = j >= 5 ? healthy(f, f->ref[s * N + j - 5]) : 0;
}

/* The same, but every tenth value is nobody's. */
static void nearly_further_on(struct field *f, size_t s, size_t j, size_t i)
{
    f->test[i] = j >= 5 && j % 10 != 3 ? healthy(f, f->ref[s * N + j - 5]) : store(f, uniform(f, -2, 2));
}

static void values_at_other_places_are_found(void **state)
{
    (void)state;
    check(further_on, ND_FAULT_SHIFTED, nearly_further_on, N_FORMS);
    check(padded, ND_FAULT_SHIFTED, nothing, N_FORMS);
    check(backwards, ND_FAULT_OTHER_PLACES, nearly_backwards, N_FORMS);
}

/* Too short for one row to be evidence; all six together are. */
static void few_equal_rows_are_found(void **state)
{
    (void)state;
    struct field f;
    open_field(&f, FORM_F32, 9);
    f.v.n_samples = 1;
    f.v.n = 18;
    f.v.n_others = 0;
    f.v.shape = (struct nd_shape){2, {6, 3}};
    for (size_t i = 0; i < 18; i++)
        f.test[i] = f.ref[i % 3];
    examine(&f);
    assert_int_equal(f.found.n_gross, 1);
    assert_string_equal(f.found.items[0].text, "all 6 rows (along axis 0) are equal; the reference's are not");
    f.test[4] = nextafter(f.test[4], 9); /* one value of them is another */
    assert_innocent(&f);
    for (size_t i = 0; i < 18; i++) /* the reference's rows are equal, too */
        f.test[i] = 2 * (f.ref[i] = f.ref[i % 3]);
    examine(&f);
    assert_null(find(&f, ND_FAULT_CONSTANT_LINES));
    close_field(&f);
}

/* Every row holds the one before it; the first is repeated. */
static void rows_on(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s;
    f->test[i] = healthy(f, f->ref[j / SIDE % SIDE >= 1 ? i - SIDE : i]);
}

/* The same by two columns the other way; zeros come in. */
static void columns_back(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s;
    f->test[i] = j % SIDE + 2 < SIDE ? healthy(f, f->ref[i + 2]) : 0;
}

/* A reference that does not change along the axis is no evidence. */
static void rows_alike(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s;
    f->ref[i] = f->ref[i - j / SIDE % SIDE * SIDE];
    f->test[i] = healthy(f, f->ref[i]);
}

/* Every tenth value is nobody's. */
static void nearly_rows_on(struct field *f, size_t s, size_t j, size_t i)
{
    rows_on(f, s, j, i);
    f->test[i] = j % 10 == 3 ? store(f, uniform(f, -2, 2)) : f->test[i];
}

static void lines_further_on_are_found(void **state)
{
    (void)state;
    check(rows_on, ND_FAULT_SHIFTED, nearly_rows_on, N_FORMS);
    check(columns_back, ND_FAULT_SHIFTED, rows_alike, N_FORMS);
    struct field f;
    open_field(&f, FORM_U8, 4);
    lay(&f, rows_on);
    assert_text(&f, "along axis 2 every row holds the values of the one before; the first is repeated");
    lay(&f, columns_back);
    assert_text(
        &f,
        "along axis 3 every column holds the values of the column 2 further on; the last is the zero point");
    for (size_t i = 0; i < TOTAL; i++) /* channels turn: the last one comes first */
        f.test[i] = f.ref[i / N * N + (i + N - SIDE * SIDE) % N];
    assert_text(
        &f, "along axis 1 every channel holds the values of the one before; the first holds the last one's");
    for (size_t i = 0; i < TOTAL; i++) /* in memory, from row to row: elements, not columns */
        f.test[i] = i % N > 0 ? f.ref[i - 1] : 0;
    assert_text(&f, "elements are +1 places away in memory");
    close_field(&f);
}

static void periodic_rows(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s;
    f->test[i] = j % SIDE >= 4 ? f->test[i - 4] : f->test[i];
}

/* A probe that repeats itself. */
static void both_periodic(struct field *f, size_t s, size_t j, size_t i)
{
    periodic_rows(f, s, j, i);
    f->ref[i] = j % SIDE >= 4 ? f->ref[i - 4] : f->ref[i];
}

static void periodic_columns(struct field *f, size_t s, size_t j, size_t i)
{
    (void)s;
    f->test[i] = j / SIDE % SIDE >= 2 ? f->test[i - 2 * SIDE] : f->test[i];
}

static void periodic_lines_are_found(void **state)
{
    (void)state;
    check(periodic_rows, ND_FAULT_PERIODIC, both_periodic, N_FORMS);
    check(periodic_columns, ND_FAULT_PERIODIC, nothing, N_FORMS);
}

static void healthy_values_are_innocent(void **state)
{
    (void)state;
    check(one_value, ND_FAULT_CONSTANT, nothing, N_FORMS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(healthy_values_are_innocent),
        cmocka_unit_test(constant_output_is_found),
        cmocka_unit_test(output_of_the_previous_sample_is_found),
        cmocka_unit_test(repeated_output_is_found),
        cmocka_unit_test(samples_of_zeros_are_found),
        cmocka_unit_test(unwritten_end_is_found),
        cmocka_unit_test(output_equal_to_an_input_is_found),
        cmocka_unit_test(operand_of_the_previous_sample_is_found),
        cmocka_unit_test(saturation_with_a_gain_is_found),
        cmocka_unit_test(gain_is_found),
        cmocka_unit_test(lines_of_the_reference_are_found),
        cmocka_unit_test(wrap_around_is_found),
        cmocka_unit_test(cliff_is_found),
        cmocka_unit_test(overflow_explains_a_cliff),
        cmocka_unit_test(unwritten_window_is_found),
        cmocka_unit_test(constant_rows_are_found),
        cmocka_unit_test(few_equal_rows_are_found),
        cmocka_unit_test(values_at_other_places_are_found),
        cmocka_unit_test(lines_further_on_are_found),
        cmocka_unit_test(periodic_lines_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
