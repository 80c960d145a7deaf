/* What a capture says of itself: quantised values and floats beside a reference, and whole captures. */
#include "support/main.h"
#include "support/scratch.h"

#include "support/explain_fixture.h"

#include <math.h>

#include "explain/findings/findings.h"

enum { N = 2048, N_TRIALS = 20 };

/* ND_SEED replays a run. */
static uint64_t first_seed(void)
{
    const char *text = getenv("ND_SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 10) : 20251121;
    print_message("# ND_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

static double draw(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(*seed >> 40) / 0x1p24;
}

static const enum nd_dtype types[] = {ND_DTYPE_U8, ND_DTYPE_I8, ND_DTYPE_U16, ND_DTYPE_I16};

struct pair {
    enum nd_dtype dtype;
    double low, high;
    double ref[N], test[N];
};

/* A reference over most of the type's range, and a device that is some steps off. */
static struct pair healthy_pair(uint64_t seed)
{
    struct pair p = {.dtype = types[seed % 4]};
    nd_qvalue_range(p.dtype, &p.low, &p.high);
    for (size_t i = 0; i < N; i++) {
        p.ref[i] = floor(p.low + (draw(&seed) + draw(&seed)) / 2 * (p.high - p.low));
        p.test[i] = fmin(fmax(p.ref[i] + floor(draw(&seed) * 5) - 2, p.low), p.high);
    }
    return p;
}

static struct nd_qvalue_look look_at(const struct pair *p)
{
    struct nd_qvalue_look look = {0};
    nd_look_at_qvalues(&look, p->dtype, p->ref, p->test, N / 2);
    nd_look_at_qvalues(&look, p->dtype, p->ref + N / 2, p->test + N / 2, N / 2);
    return look;
}

static void assert_saturates(const struct nd_qvalue_look *look, bool is_low, bool is_high)
{
    assert_int_equal(nd_look_finds_saturation(look, ND_LOW_END), is_low);
    assert_int_equal(nd_look_finds_saturation(look, ND_HIGH_END), is_high);
}

static void qvalues_that_are_a_few_steps_off_are_healthy(void **state)
{
    (void)state;
    uint64_t seed = first_seed();
    for (uint64_t v = 0; v < N_TRIALS; v++) {
        struct pair p = healthy_pair(seed + v);
        for (size_t i = 0; i < N / 4; i++) /* beside the end, where a step more is the end */
            p.ref[i] = p.high - 1, p.test[i] = p.high;
        struct nd_qvalue_look look = look_at(&p);
        assert_saturates(&look, false, false);
        assert_false(nd_look_finds_constant(&look, p.dtype));
    }
}

static void qvalues_that_pile_up_saturate_at_that_end(void **state)
{
    (void)state;
    uint64_t seed = first_seed();
    for (uint64_t v = 0; v < N_TRIALS; v++) {
        struct pair p = healthy_pair(seed + v);
        double middle = floor((p.low + p.high) / 2);
        for (size_t i = 0; i < N; i++)
            p.test[i] = fmin(fmax(middle + 3 * (p.ref[i] - middle), p.low), p.high);
        struct nd_qvalue_look look = look_at(&p);
        assert_saturates(&look, true, true);
        for (size_t i = 0; i < N; i++)
            p.test[i] = fmin(p.ref[i] + floor((p.high - p.low) / 3), p.high);
        look = look_at(&p);
        assert_saturates(&look, false, true);
        memcpy(p.ref, p.test, sizeof p.ref);
        look = look_at(&p);
        assert_saturates(&look, false, false); /* as the reference does */
    }
}

static void qvalues_that_never_change_are_constant(void **state)
{
    (void)state;
    uint64_t seed = first_seed();
    for (uint64_t v = 0; v < N_TRIALS; v++) {
        struct pair p = healthy_pair(seed + v);
        for (size_t i = 0; i < N; i++)
            p.test[i] = 7;
        struct nd_qvalue_look look = look_at(&p);
        assert_true(nd_look_finds_constant(&look, p.dtype));
        p.test[N - 1] = 8;
        look = look_at(&p);
        assert_false(nd_look_finds_constant(&look, p.dtype));
        p.test[N - 1] = 7;
        for (size_t i = 0; i < N; i++)
            p.ref[i] = 6 + (double)(i % 3);
        look = look_at(&p);
        assert_false(nd_look_finds_constant(&look, p.dtype));
    }
}

static void bits_of_the_model_are_told_from_qvalues_of_another_type(void **state)
{
    (void)state;
    uint64_t seed = first_seed();
    for (uint64_t v = 0; v < N_TRIALS; v++) {
        struct pair p = healthy_pair(seed + v);
        struct nd_qvalue_look look = look_at(&p);
        assert_true(nd_look_finds_wrong_type(&look));
        /* What it is when it really is of the other type, with a zero point of its own: the top bit flips. */
        double half = (p.high - p.low + 1) / 2;
        for (size_t i = 0; i < N; i++)
            p.test[i] += p.test[i] - half < p.low ? half : -half;
        look = look_at(&p);
        assert_false(nd_look_finds_wrong_type(&look));
    }
}

static void nothing_follows_from_a_few_qvalues_or_a_constant_reference(void **state)
{
    (void)state;
    struct nd_qvalue_look look = {0};
    assert_saturates(&look, false, false);
    assert_false(nd_look_finds_constant(&look, ND_DTYPE_U8));
    assert_false(nd_look_finds_wrong_type(&look));
    double ref[] = {1, 50, 100, 150, 200, 20, 30}, test[] = {255, 255, 255, 255, 255, 255, 255};
    nd_look_at_qvalues(&look, ND_DTYPE_U8, ref, test, 7);
    assert_saturates(&look, false, false);
    assert_false(nd_look_finds_constant(&look, ND_DTYPE_U8));
    double flat[16] = {0};
    look = (struct nd_qvalue_look){0};
    nd_look_at_qvalues(&look, ND_DTYPE_U8, flat, flat, 16);
    assert_false(nd_look_finds_wrong_type(&look));
}

static float half_of(double value)
{
    float x = (float)value;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= 0xffffe000;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void grid_is_named_unless_the_reference_lies_on_it(void **state)
{
    (void)state;
    uint64_t seed = first_seed();
    float plain[N], half[N], above[N];
    struct nd_diagnosis found;
    for (size_t i = 0; i < N; i++) {
        plain[i] = (float)(8 * draw(&seed) - 4);
        half[i] = half_of((double)plain[i]);
        above[i] = nextafterf(half[i], half[i] < 0 ? -8 : 8);
    }
    const struct nd_float_look ref = {plain, N}, test = {half, N}, near = {above, N};
    nd_look_at_grid(&ref, &ref, &found);
    assert_false(found.is_found);
    nd_look_at_grid(&ref, &test, &found);
    assert_true(found.is_found && found.best.kind == ND_FAULT_FP16_GRID);
    nd_look_at_grid(&ref, &near, &found);
    assert_true(found.is_found && found.best.kind == ND_FAULT_FP16_GRID);
    nd_look_at_grid(&test, &test, &found);
    assert_false(found.is_found);
    above[17] = nextafterf(above[17], 8) + 0x1p-20f;
    nd_look_at_grid(&ref, &near, &found);
    assert_false(found.is_found);
}

static void pairs_are_floats_of_the_same_qvalues(void **state)
{
    (void)state;
    float scale = 0.037f, a[256], b[256];
    int64_t zero_point = 3;
    const struct nd_quant quant = {1, -1, &scale, &zero_point};
    const struct nd_float_look ref = {a, 256}, test = {b, 256};
    struct nd_diagnosis found;
    bool is_pair;
    for (int i = 0; i < 256; i++) {
        a[i] = (float)(i - 128) * scale;
        b[i] = i % 2 != 0 ? nextafterf(a[i], 100) : a[i];
    }
    nd_look_at_pair(&ref, &test, &quant, &is_pair, &found);
    assert_true(is_pair && found.is_found && found.best.kind == ND_FAULT_SAME_QVALUE_OTHER_FLOAT);
    nd_look_at_pair(&ref, &ref, &quant, &is_pair, &found);
    assert_true(is_pair && !found.is_found);
    b[9] = a[10];
    nd_look_at_pair(&ref, &test, &quant, &is_pair, &found);
    assert_true(!is_pair && !found.is_found);
    b[9] = a[9] + 0.3f * scale; /* no quantised value */
    nd_look_at_pair(&ref, &test, &quant, &is_pair, &found);
    assert_true(!is_pair && !found.is_found);
}

static void floats_are_kept_evenly_and_in_bounds(void **state)
{
    (void)state;
    struct nd_float_look look = {0};
    size_t n = 3 * (size_t)ND_LOOK_FLOATS;
    double *x = nd_calloc(n, sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = (double)i;
    for (int k = 0; k < 5; k++)
        assert_int_equal(nd_look_keep_floats(&look, x, n, 4, NULL), ND_OK);
    assert_int_equal(look.n, ND_LOOK_FLOATS);
    assert_f64_bits((double)look.x[1], 12);
    assert_f64_bits((double)look.x[ND_LOOK_FLOATS / 4], 0);
    assert_int_equal(nd_look_keep_floats(&look, x, 0, 4, NULL), ND_OK);
    free(look.x);
    free(x);
}

static void healthy_captures_have_no_findings(void **state)
{
    (void)state;
    static const char *const models[] = {"cnn.w8a8", "vit.w8a8", "cnn.w8a16"};
    for (size_t k = 0; k < sizeof models / sizeof models[0]; k++) {
        struct fixture f = {.model = load(models[k])};
        add_device(&f, &(struct mc_device){0});
        add_device(&f, &(struct mc_device){.rounding = ND_ROUND_FLOOR});
        add_device(&f, &(struct mc_device){.state = ND_CAPTURE_FAILED});
        explain_ok(&f);
        for (size_t d = 0; d < f.e->n_devices; d++)
            assert_int_equal(f.e->devices[d].n_findings, 0);
        assert_true(layer_of(&f, "logits")->is_examined);
        close_fixture(&f);
    }
}

/* Behind a layer that is clamped three tensors are zero throughout. They are what their inputs give. */
static void qvalues_that_pile_up_behind_a_fault_are_no_finding(void **state)
{
    (void)state;
    struct fixture f = {.model = load("cnn.w8a8")};
    add_device(&f, &(struct mc_device){.emulated = "round=htp-v73,clamp@residual/conv=0:10"});
    explain_ok(&f);
    assert_int_equal(layer_of(&f, "residual/conv")->judgement.state, ND_LAYER_FAULTY);
    assert_int_equal(f.e->devices[0].n_faulty, 1);
    for (size_t i = 0; i < f.e->devices[0].n_findings; i++)
        assert_string_equal(f.e->steps[f.e->devices[0].findings[i].step].name, "residual/conv");
    close_fixture(&f);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(qvalues_that_are_a_few_steps_off_are_healthy),
        cmocka_unit_test(qvalues_that_pile_up_saturate_at_that_end),
        cmocka_unit_test(qvalues_that_never_change_are_constant),
        cmocka_unit_test(bits_of_the_model_are_told_from_qvalues_of_another_type),
        cmocka_unit_test(nothing_follows_from_a_few_qvalues_or_a_constant_reference),
        cmocka_unit_test(grid_is_named_unless_the_reference_lies_on_it),
        cmocka_unit_test(pairs_are_floats_of_the_same_qvalues),
        cmocka_unit_test(floats_are_kept_evenly_and_in_bounds),
        TEST(healthy_captures_have_no_findings),
        TEST(qvalues_that_pile_up_behind_a_fault_are_no_finding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
