/* Values of a device and of its reference, in every type that a device stores, and what is laid over them. A
 * test program includes it once. */
#pragma once

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "explain/diagnosis/values.h"

enum {
    SAMPLES = 6,
    CHANNELS = 8,
    SIDE = 16,
    N = CHANNELS * SIDE * SIDE,
    TOTAL = SAMPLES * N,
    VARIANTS = 8 / ND_SANITIZED_SHARE
};

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

static void nothing(struct field *f, size_t s, size_t j, size_t i)
{
    (void)f, (void)s, (void)j, (void)i;
}

static void assert_cliff(struct field *f, const char *limit)
{
    assert_found(f, ND_FAULT_HARD_CLIFF);
    const char *text = find(f, ND_FAULT_HARD_CLIFF)->text;
    if (strstr(text, limit) == NULL)
        fail_msg("'%s' does not say '%s'", text, limit);
}
