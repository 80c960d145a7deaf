/* Every diagnosis of values, on floats of three types and on codes: found where it is, and not where it nearly
 * is. */
#include "support/main.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "explain/diagnosis/values.h"

enum { SAMPLES = 6, CHANNELS = 8, SIDE = 16, N = CHANNELS * SIDE * SIDE, TOTAL = SAMPLES * N, VARIANTS = 8 };

/* How the device stores values; the reference is float32 unless the device's are quantised values. */
enum form { FORM_F32, FORM_F16, FORM_BF16, FORM_U8, FORM_U16, N_FORMS };

static const char *const form_names[N_FORMS] = {"float32", "float16", "bfloat16", "uint8", "uint16"};

struct field {
    uint64_t seed;
    enum form form;
    double *ref, *test, *x_ref, *x_test; /* a tensor, and another that it may be made from */
    struct nd_other other;
    struct nd_evidence v;
    struct nd_findings found;
};

static uint64_t next(struct field *f)
{
    uint64_t z = f->seed += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static double uniform(struct field *f, double low, double high)
{
    return low + (high - low) * (double)(next(f) >> 11) * 0x1p-53;
}

static double normal(struct field *f)
{
    double sum = -6;
    for (int k = 0; k < 12; k++)
        sum += uniform(f, 0, 1);
    return sum;
}

static double to_bits(double x, int bits, int least)
{
    int exponent;
    frexp(x, &exponent);
    exponent = exponent - 1 > least ? exponent - 1 : least;
    return ldexp(rint(ldexp(x, bits - exponent)), exponent - bits);
}

/* Rounds to nearest in the form of the device. */
static double store(const struct field *f, double x)
{
    double qvalue = f->v.step > 0 ? rint(x / f->v.step) + f->v.zero_point : 0;
    switch (f->form) {
    case FORM_F16:
        return fabs(x) > 65519 ? copysign(INFINITY, x) : to_bits(x, 10, -14);
    case FORM_BF16:
        return to_bits(x, 7, -126);
    case FORM_U8:
        return f->v.step * (fmin(fmax(qvalue, 0), 255) - f->v.zero_point);
    case FORM_U16:
        return f->v.step * (fmin(fmax(qvalue, 0), 65535) - f->v.zero_point);
    default:
        return (double)(float)x;
    }
}

/* A healthy device: it rounds, and is off a little before that; quantised values are off by one now and then.
 */
static double healthy(struct field *f, double x)
{
    if (f->v.step > 0)
        return store(f, x + f->v.step * uniform(f, -0.55, 0.55));
    return store(f, x * (1 + 1e-7 * normal(f)));
}

static void open_field(struct field *f, enum form form, uint64_t seed)
{
    static const enum nd_dtype dtypes[N_FORMS] = {ND_DTYPE_F32, ND_DTYPE_F16, ND_DTYPE_BF16, ND_DTYPE_U8,
                                                  ND_DTYPE_U16};
    *f = (struct field){.seed = seed, .form = form};
    double **const arrays[] = {&f->ref, &f->test, &f->x_ref, &f->x_test};
    for (size_t k = 0; k < 4; k++)
        assert_non_null(*arrays[k] = calloc(TOTAL, sizeof(double)));
    f->v = (struct nd_evidence){.n_samples = SAMPLES,
                                .n = N,
                                .shape = {4, {1, CHANNELS, SIDE, SIDE}},
                                .dtype = dtypes[form],
                                .step = form == FORM_U8    ? 0.03125
                                        : form == FORM_U16 ? 0.000244140625
                                                           : 0,
                                .zero_point = form == FORM_U8    ? 121
                                              : form == FORM_U16 ? 31000
                                                                 : 0,
                                .expected = f->ref,
                                .captured = f->test,
                                .others = &f->other,
                                .n_others = 1};
    f->v.ref_step = f->v.step;
    f->other = (struct nd_other){"x", f->x_ref, f->x_test};
    for (size_t i = 0; i < TOTAL; i++) {
        double x = normal(f), y = normal(f);
        f->x_ref[i] = f->v.step > 0 ? store(f, x) : (double)(float)x;
        f->x_test[i] = healthy(f, x);
        f->ref[i] = f->v.step > 0 ? store(f, y) : (double)(float)y;
        f->test[i] = healthy(f, f->ref[i]);
    }
}

static void close_field(struct field *f)
{
    free(f->ref);
    free(f->test);
    free(f->x_ref);
    free(f->x_test);
}

static const struct nd_finding *find(const struct field *f, enum nd_fault_kind kind)
{
    for (size_t k = 0; k < f->found.n; k++)
        if (f->found.items[k].kind == kind)
            return &f->found.items[k];
    return NULL;
}

static void examine(struct field *f)
{
    struct nd_error err = {0};
    assert_int_equal(nd_diagnose_tensor(&f->v, &f->found, &err), ND_OK);
}

static void assert_found(struct field *f, enum nd_fault_kind kind)
{
    examine(f);
    if (find(f, kind) == NULL)
        fail_msg("%s: '%s' is not found, but %zu others: %s", form_names[f->form], nd_fault_name(kind),
                 f->found.n, f->found.n > 0 ? f->found.items[0].text : "");
}

/* Nothing that accuses the device. */
static void assert_innocent(struct field *f)
{
    examine(f);
    for (size_t k = 0; k < f->found.n; k++)
        if (!nd_fault_is_note(f->found.items[k].kind))
            fail_msg("%s: accused: %s", form_names[f->form], f->found.items[k].text);
}

static void assert_text(struct field *f, const char *text)
{
    examine(f);
    assert_int_equal(f->found.n_gross, 1);
    assert_string_equal(f->found.items[0].text, text);
}

typedef void (*change)(struct field *f, size_t sample, size_t j, size_t i);

static void lay(struct field *f, change fault)
{
    for (size_t i = 0; i < TOTAL; i++)
        fault(f, i / N, i % N, i);
}

/* In every form before `end` and every variant: the fault is found, and the near miss is not. */
static void check(change fault, enum nd_fault_kind kind, change near_miss, enum form end)
{
    uint64_t seed = getenv("ND_SEED") != NULL ? strtoull(getenv("ND_SEED"), NULL, 10) : 20261122;
    print_message("# ND_SEED=%llu\n", (unsigned long long)seed);
    for (enum form form = 0; form < end; form++)
        for (uint64_t k = 0; k < VARIANTS; k++) {
            struct field f;
            open_field(&f, form, seed + k);
            lay(&f, fault);
            assert_found(&f, kind);
            close_field(&f);
            open_field(&f, form, seed + k);
            lay(&f, near_miss);
            assert_innocent(&f);
            close_field(&f);
        }
}

/* ---- gross errors ---- */

static void nothing(struct field *f, size_t s, size_t j, size_t i)
{
    (void)f, (void)s, (void)j, (void)i;
}

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

static void assert_cliff(struct field *f, const char *limit)
{
    assert_found(f, ND_FAULT_HARD_CLIFF);
    const char *text = find(f, ND_FAULT_HARD_CLIFF)->text;
    if (strstr(text, limit) == NULL)
        fail_msg("'%s' does not say '%s'", text, limit);
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
