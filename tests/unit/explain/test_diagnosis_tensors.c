/* The diagnosis where there is little to go by, or two answers; floats and encodings. */
#include "support/main.h"

#include "core/random.h"
#include "support/diagnosis_trial.h"

enum { N_TRIALS = 20 };

/* ND_SEED replays a run. */
static uint64_t first_seed(void)
{
    const char *text = getenv("ND_SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 10) : 20251122;
    print_message("# ND_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

static struct nd_diagnosis examine(const struct trial *t)
{
    struct nd_diagnosis found = {0};
    assert_int_equal(nd_diagnose(&t->e, &found, NULL), ND_OK);
    return found;
}

static void assert_named(const struct nd_diagnosis *found, enum nd_fault_kind kind, size_t channel,
                         double amount)
{
    assert_true(found->is_found);
    assert_string_equal(nd_fault_name(found->best.kind), nd_fault_name(kind));
    assert_true(found->best.channel == channel);
    assert_f64_bits(found->best.amount, amount);
}

/* The shape is replaced; values are drawn again. */
static void reshape(struct trial *t, int rank, const int64_t *dims)
{
    t->e.shape.rank = rank;
    t->e.n = 1;
    for (int k = 0; k < rank; k++) {
        t->e.shape.dims[k] = dims[k];
        t->e.n *= (size_t)dims[k];
    }
    trial_close(t);
    trial_alloc(t);
    for (size_t i = 0; i < t->n_total; i++)
        t->values[i] = (double)t->zero_point + t->amplitude * trial_normal(t);
    trial_expect(t);
}

static void shift_by(struct trial *t, double by)
{
    for (size_t i = 0; i < t->n_total; i++)
        t->qvalues[i] = trial_qvalue(t, t->values[i] + by);
}

static void kinds_have_names_of_their_own(void **state)
{
    (void)state;
    for (int a = 0; a < ND_N_FAULT_KINDS; a++) {
        assert_non_null(nd_fault_name((enum nd_fault_kind)a));
        for (int b = 0; b < a; b++)
            assert_string_not_equal(nd_fault_name((enum nd_fault_kind)a), nd_fault_name((enum nd_fault_kind)b));
    }
}

static void ten_elements_of_one_sample_are_enough_for_a_shift(void **state)
{
    (void)state;
    uint64_t seed = first_seed();
    for (uint64_t v = 0; v < N_TRIALS; v++) {
        struct trial t;
        trial_open(&t, seed + v, 2, 1);
        reshape(&t, 2, (const int64_t[]){1, 10});
        struct nd_diagnosis found = examine(&t);
        assert_false(found.is_found);
        shift_by(&t, 7);
        found = examine(&t);
        assert_named(&found, ND_FAULT_ZERO_POINT, SIZE_MAX, 7);
        for (size_t i = 0; i < t.n_total; i++)
            t.qvalues[i] = (double)t.zero_point;
        found = examine(&t);
        assert_named(&found, ND_FAULT_ALL_ZERO, SIZE_MAX, (double)t.zero_point);
        trial_close(&t);
    }
}

/* One or two wrong quantised values are no evidence. */
static void single_wrong_qvalues_are_not_judged(void **state)
{
    (void)state;
    uint64_t seed = first_seed();
    for (uint64_t v = 0; v < N_TRIALS; v++) {
        struct trial t;
        trial_open(&t, seed + v, 0, TRIAL_SAMPLES);
        t.qvalues[trial_range(&t, 0, t.n_total - 1)] += 3;
        t.qvalues[trial_range(&t, 0, t.n_total - 1)] -= 3;
        assert_false(examine(&t).is_found);
        trial_close(&t);
    }
}

static void nothing_is_found_without_elements_or_where_nothing_is_known(void **state)
{
    (void)state;
    struct trial t;
    trial_open(&t, first_seed(), 3, TRIAL_SAMPLES);
    t.e.n_samples = 0;
    assert_false(examine(&t).is_found);
    t.e.n_samples = TRIAL_SAMPLES;
    for (size_t i = 0; i < t.n_total; i++) {
        t.values[i] = NAN;
        t.qvalues[i] = 1;
    }
    assert_false(examine(&t).is_found);
    trial_close(&t);
}

/* What is not known stands in the way of nothing. */
static void elements_without_a_value_are_left_out(void **state)
{
    (void)state;
    uint64_t seed = first_seed();
    for (uint64_t v = 0; v < N_TRIALS; v++) {
        struct trial t;
        trial_open(&t, seed + v, 0, TRIAL_SAMPLES);
        shift_by(&t, -2);
        for (size_t i = 0; i < t.n_total; i += 7) {
            t.values[i] = i % 2 == 0 ? NAN : INFINITY;
            t.qvalues[i] = t.low;
        }
        struct nd_diagnosis found = examine(&t);
        assert_named(&found,
                     t.zero_point == 1 || t.zero_point == -1 ? ND_FAULT_OFFSET_SIGN : ND_FAULT_ZERO_POINT,
                     SIZE_MAX, -2);
        trial_close(&t);
    }
}

/* A tensor that should be constant, and is another constant, was shifted (or scaled: a rival). */
static void equal_values_show_a_shift_and_a_rival(void **state)
{
    (void)state;
    struct trial t;
    trial_open(&t, first_seed(), 3, TRIAL_SAMPLES);
    for (size_t i = 0; i < t.n_total; i++)
        t.values[i] = (double)t.zero_point + 20.2;
    trial_expect(&t);
    assert_false(examine(&t).is_found);
    shift_by(&t, 4);
    struct nd_diagnosis found = examine(&t);
    assert_named(&found, ND_FAULT_ZERO_POINT, SIZE_MAX, 4);
    assert_true(found.n_rivals >= 1);
    assert_int_equal(found.rivals[0].kind, ND_FAULT_SCALE);
    trial_close(&t);
}

/* Half of the channels hold the zero point whatever the input. */
static void dead_channels_hide_nothing(void **state)
{
    (void)state;
    uint64_t seed = first_seed();
    for (uint64_t v = 0; v < N_TRIALS; v++) {
        struct trial t;
        trial_open(&t, seed + v, 4, TRIAL_SAMPLES);
        for (size_t i = 0; i < t.n_total; i++) {
            if (trial_channel(&t, i) % 2 == 1)
                t.values[i] = (double)t.zero_point;
        }
        trial_expect(&t);
        for (size_t i = 0; i < t.n_total; i++) { /* live channels 0 and 2 change places */
            size_t c = trial_channel(&t, i);
            if (c == 0 || c == 2)
                t.qvalues[i] = t.expected[c == 0 ? i + 2 * t.inner : i - 2 * t.inner];
        }
        struct nd_diagnosis found = examine(&t);
        assert_named(&found, ND_FAULT_CHANNEL_PERMUTATION, SIZE_MAX, 2);
        trial_expect(&t);
        for (size_t i = 0; i < t.n_total; i++) { /* and a dead one is shifted */
            if (trial_channel(&t, i) == 1)
                t.qvalues[i] += 2;
        }
        found = examine(&t);
        assert_named(&found, ND_FAULT_CHANNEL_ZERO_POINT, 1, 2);
        trial_close(&t);
    }
}

/* One row is repeated over the height: two layouts of a square give the same bytes. */
static void layouts_that_fit_alike_are_rivals(void **state)
{
    (void)state;
    struct trial t;
    trial_open(&t, first_seed(), 4, TRIAL_SAMPLES);
    reshape(&t, 4, (const int64_t[]){1, 6, 5, 5});
    for (size_t i = 0; i < t.n_total; i++) {
        size_t c = i / 25 % 6, h = i / 5 % 5, w = i % 5; /* symmetric in h and w */
        t.values[i] = (double)t.zero_point + (double)((c * 7 + h * h + w * w + i / 150 * 13) % 41);
    }
    trial_expect(&t);
    for (size_t i = 0; i < t.n_total; i++) {
        size_t s = i / 150, j = i % 150, c = j % 6, hw = j / 6;
        t.qvalues[i] = t.expected[s * 150 + c * 25 + hw];
    }
    struct nd_diagnosis found = examine(&t);
    assert_named(&found, ND_FAULT_AXIS_PERMUTATION, SIZE_MAX, 0);
    assert_true(found.n_rivals >= 1);
    assert_int_equal(found.rivals[0].kind, ND_FAULT_AXIS_PERMUTATION);
    assert_non_null(strstr(found.best.text, "2 orders explain the values equally"));
    assert_non_null(strstr(found.best.text, "cannot be told"));
    trial_close(&t);
}

/* Channels 0 and 1 change places, and channel 1 is to hold what channel 4 is: which of the two channel 0 has
 * cannot be told. */
static void equal_channels_are_said_not_to_be_told_apart(void **state)
{
    (void)state;
    uint64_t seed = first_seed();
    size_t n_tried = 0;
    for (uint64_t v = 0; v < N_TRIALS; v++) {
        struct trial t;
        trial_open(&t, seed + v, 4, TRIAL_SAMPLES);
        if (t.n_channels < 5) {
            trial_close(&t);
            continue;
        }
        n_tried++;
        for (size_t i = 0; i < t.n_total; i++)
            if (trial_channel(&t, i) == 4)
                t.values[i] = t.values[i - 3 * t.inner];
        trial_expect(&t);
        for (size_t i = 0; i < t.n_total; i++) {
            size_t c = trial_channel(&t, i);
            if (c < 2)
                t.qvalues[i] = t.expected[c == 0 ? i + t.inner : i - t.inner];
        }
        struct nd_diagnosis found = examine(&t);
        assert_named(&found, ND_FAULT_CHANNEL_PERMUTATION, SIZE_MAX, 2);
        assert_non_null(strstr(found.best.text, "1 of them fit several equal channels"));
        trial_close(&t);
    }
    assert_true(n_tried > 0);
}

/* Single steps alone are no permutation, however few values there are. */
static void single_steps_are_no_permutation(void **state)
{
    (void)state;
    uint64_t seed = first_seed();
    for (uint64_t v = 0; v < N_TRIALS; v++) {
        struct trial t;
        trial_open(&t, seed + v, 4, TRIAL_SAMPLES);
        for (size_t i = 0; i < t.n_total; i++) /* three quantised values */
            t.values[i] = (double)t.zero_point + (double)trial_range(&t, 0, 2);
        trial_expect(&t);
        for (size_t i = 0; i < t.n_total; i++)
            t.qvalues[i] = (double)t.zero_point + (double)trial_range(&t, 0, 2);
        struct nd_diagnosis found = examine(&t);
        assert_true(!found.is_found || (found.best.kind != ND_FAULT_AXIS_PERMUTATION &&
                                        found.best.kind != ND_FAULT_CHANNEL_PERMUTATION));
        trial_close(&t);
    }
}

/* Every channel has its own zero point, and the axis of the quantisation is the one to look along. */
static void channels_with_their_own_zero_points_are_told_apart(void **state)
{
    (void)state;
    uint64_t seed = first_seed();
    for (uint64_t v = 0; v < N_TRIALS; v++) {
        struct trial t;
        float scales[32];
        int64_t zero_points[32];
        trial_open(&t, seed + v, 4, TRIAL_SAMPLES);
        size_t n = (size_t)t.e.shape.dims[2], width = (size_t)t.e.shape.dims[3],
               wrong = trial_range(&t, 0, n - 1);
        for (size_t c = 0; c < n; c++) {
            scales[c] = t.scale;
            zero_points[c] = t.zero_point + (int64_t)trial_range(&t, 0, 20);
        }
        t.quant = (struct nd_quant){n, 2, scales, zero_points};
        for (size_t i = 0; i < t.n_total; i++) {
            size_t c = i / width % n;
            double z = (double)zero_points[c];
            t.values[i] += z - (double)t.zero_point;
            t.expected[i] = t.qvalues[i] = trial_qvalue(&t, t.values[i]);
            if (c == wrong)
                t.qvalues[i] = trial_qvalue(&t, z + (t.values[i] - z) * 1.01);
        }
        struct nd_diagnosis found = examine(&t);
        assert_true(found.is_found);
        assert_int_equal(found.best.kind, ND_FAULT_CHANNEL_SCALE);
        assert_int_equal(found.best.channel, wrong);
        assert_int_equal(found.best.axis, 2);
        assert_true(fabs(found.best.amount - 1.01) < 5e-4);
        trial_close(&t);
    }
}

/* The usual arithmetic is floor: its quantised values are no sign of a fault, and faults are seen through it.
 */
static void devices_that_floor_are_judged_by_their_own_arithmetic(void **state)
{
    (void)state;
    uint64_t seed = first_seed();
    for (uint64_t v = 0; v < N_TRIALS; v++) {
        struct trial t;
        trial_open(&t, seed + v, 4, TRIAL_SAMPLES);
        double z = (double)t.zero_point;
        for (size_t i = 0; i < t.n_total; i++)
            t.expected[i] = t.qvalues[i] = fmin(fmax(floor(t.values[i]), t.low), t.high);
        assert_false(examine(&t).is_found);
        for (size_t i = 0; i < t.n_total; i++)
            t.qvalues[i] = fmin(fmax(floor(z + (t.values[i] - z) * 0.99), t.low), t.high);
        struct nd_diagnosis found = examine(&t);
        assert_true(found.is_found);
        assert_int_equal(found.best.kind, ND_FAULT_SCALE);
        assert_true(fabs(found.best.amount - 0.99) < 5e-4);
        trial_close(&t);
    }
}

static void runs_that_differ_need_inputs_that_do_not(void **state)
{
    (void)state;
    struct trial t;
    trial_open(&t, first_seed(), 3, TRIAL_SAMPLES);
    t.e.repeats_differ = true;
    struct nd_diagnosis found = examine(&t);
    assert_named(&found, ND_FAULT_FLIPS, SIZE_MAX, 0);
    t.e.inputs_repeat_same = false;
    assert_false(examine(&t).is_found);
    trial_close(&t);
}

/* The better of two is named; one that leaves as little is a rival. */
static void hypotheses_that_leave_the_least_win(void **state)
{
    (void)state;
    struct trial t;
    trial_open(&t, first_seed(), 3, TRIAL_SAMPLES);
    double *worse = calloc(t.n_total, sizeof *worse);
    for (size_t i = 0; i < t.n_total; i++) {
        t.qvalues[i] = t.other[i] = fmin(fmax(ceil(t.values[i]), t.low), t.high);
        worse[i] = t.qvalues[i] + (i % 500 == 3);
    }
    const struct nd_hypothesis all[] = {{ND_FAULT_FALLBACK, "in float32", worse},
                                        {ND_FAULT_ROUNDING, "rounded by ceil", t.other},
                                        {ND_FAULT_FUSION, "fused with 'x'", t.other}};
    t.e.hypotheses = all;
    t.e.n_hypotheses = 3;
    struct nd_diagnosis found = examine(&t);
    assert_named(&found, ND_FAULT_ROUNDING, SIZE_MAX, 0);
    assert_string_equal(found.best.text, "rounded by ceil");
    assert_int_equal(found.n_rivals, 1);
    assert_string_equal(found.rivals[0].text, "fused with 'x'");
    assert_f64_bits(found.best.explained, 1);
    free(worse);
    trial_close(&t);
}

/* Nothing repeats, all is there: two samples, the second late by one. */
static void two_samples_show_a_stale_output(void **state)
{
    (void)state;
    struct trial t;
    trial_open(&t, first_seed(), 4, 2);
    memcpy(t.qvalues + t.e.n, t.expected, t.e.n * sizeof *t.qvalues);
    struct nd_diagnosis found = examine(&t);
    assert_named(&found, ND_FAULT_STALE, SIZE_MAX, 1);
    /* What the caller worked out has nothing left to fit: the table adds no rival. */
    memcpy(t.other, t.qvalues, t.n_total * sizeof *t.qvalues);
    t.hypothesis =
        (struct nd_hypothesis){ND_FAULT_STALE_OPERAND, "computed with 'x' of the sample before", t.other};
    t.e.hypotheses = &t.hypothesis;
    t.e.n_hypotheses = 1;
    found = examine(&t);
    assert_named(&found, ND_FAULT_STALE_OPERAND, SIZE_MAX, 0);
    assert_int_equal(found.n_rivals, 0);
    trial_close(&t);
}

/* 99 % of the wrong quantised values must become right, and hardly any right one wrong. */
/* Columns of 16 quantised values that repeat their first four, and the low 8 bits of codes: what whole tensors
 * show. */
static void whole_tensors_of_qvalues_are_judged(void **state)
{
    (void)state;
    enum { ROW = 64, ROWS = 16, SAMPLES = 4, ALL = ROW * ROWS * SAMPLES };
    static double qvalues[ALL], values[ALL];
    uint64_t seed = first_seed();
    struct trial t;
    float scale = 1;
    int64_t zero_point = 0;
    const struct nd_quant quant = {1, -1, &scale, &zero_point};
    struct nd_evidence e = {.n_samples = SAMPLES,
                            .n = ROW * ROWS,
                            .shape = {2, {ROWS, ROW}},
                            .dtype = ND_DTYPE_U16,
                            .quant = &quant,
                            .captured = qvalues,
                            .exact = values,
                            .expected = values};
    struct nd_diagnosis found;
    trial_open(&t, seed, 2, 1);
    for (size_t i = 0; i < ALL; i++) {
        values[i] = floor(trial_uniform(&t, 20000, 40000));
        qvalues[i] = i / ROW % ROWS < 4 ? values[i] : qvalues[i - 4 * ROW];
    }
    assert_int_equal(nd_diagnose(&e, &found, NULL), ND_OK);
    assert_named(&found, ND_FAULT_PERIODIC, SIZE_MAX, 4);
    for (size_t i = 0; i < ALL; i++)
        qvalues[i] = fmod(values[i], 256);
    assert_int_equal(nd_diagnose(&e, &found, NULL), ND_OK);
    assert_named(&found, ND_FAULT_WRAP, SIZE_MAX, 256);
    trial_close(&t);
}

static void faults_that_explain_less_are_not_named(void **state)
{
    (void)state;
    uint64_t seed = first_seed();
    for (uint64_t v = 0; v < N_TRIALS; v++) {
        struct trial t;
        trial_open(&t, seed + v, 4, TRIAL_SAMPLES);
        shift_by(&t, 6);
        for (size_t i = 0; i < t.n_total; i += 200)
            t.qvalues[i] += t.qvalues[i] < t.high - 3 ? 3 : -3;
        struct nd_diagnosis found = examine(&t);
        assert_named(&found, ND_FAULT_ZERO_POINT, SIZE_MAX, 6);
        for (size_t i = 1; i < t.n_total; i += 60)
            t.qvalues[i] += t.qvalues[i] < t.high - 3 ? 3 : -3;
        found = examine(&t);
        assert_true(found.is_found);
        assert_int_equal(found.best.kind, ND_FAULT_UNEXPLAINED);
        trial_close(&t);
    }
}

static void hypotheses_that_break_right_qvalues_are_not_named(void **state)
{
    (void)state;
    struct trial t;
    trial_open(&t, first_seed(), 4, TRIAL_SAMPLES);
    for (size_t i = 0; i < t.n_total; i++) {
        t.qvalues[i] = t.other[i] = t.expected[i] + (double)(i % 2) * 2;
        t.other[i] += i % 400 == 0;
    }
    t.hypothesis = (struct nd_hypothesis){ND_FAULT_FUSION, "fused with 'x'", t.other};
    t.e.hypotheses = &t.hypothesis;
    t.e.n_hypotheses = 1;
    assert_int_equal(examine(&t).best.kind, ND_FAULT_FUSION);
    for (size_t i = 0; i < t.n_total; i += 160) /* 1.2 % more */
        t.other[i] = t.qvalues[i] + 1;
    assert_int_equal(examine(&t).best.kind, ND_FAULT_UNEXPLAINED);
    trial_close(&t);
}

/* Special cases of a shift are not told twice. */
static void offset_of_the_other_sign_has_no_rival(void **state)
{
    (void)state;
    struct trial t;
    trial_open(&t, first_seed(), 4, TRIAL_SAMPLES);
    for (size_t i = 0; i < t.n_total; i++)
        t.values[i] += 11 - (double)t.zero_point + (t.low < 0 ? 0 : 2 * t.amplitude);
    t.zero_point = 11;
    trial_expect(&t);
    shift_by(&t, -22);
    struct nd_diagnosis found = examine(&t);
    assert_named(&found, ND_FAULT_OFFSET_SIGN, SIZE_MAX, -22);
    assert_int_equal(found.n_rivals, 0);
    trial_close(&t);
}

/* As many quantised values beside the nearest as chance would give, but by a rule. */
static void threshold_that_is_off_is_not_chance(void **state)
{
    (void)state;
    struct trial t;
    trial_open(&t, first_seed(), 4, TRIAL_SAMPLES);
    for (size_t i = 0; i < t.n_total; i++) {
        double floored = floor(t.values[i]);
        t.qvalues[i] = fmin(fmax(floored + (t.values[i] - floored > 0.25), t.low), t.high);
    }
    struct nd_diagnosis found = examine(&t);
    assert_true(found.is_found);
    assert_int_equal(found.best.kind, ND_FAULT_UNEXPLAINED);
    trial_close(&t);
}

/* A few quantised values off in a small tensor: too few for rounding by chance. */
static void few_flips_are_not_stochastic_rounding(void **state)
{
    (void)state;
    struct trial t;
    trial_open(&t, first_seed(), 2, TRIAL_SAMPLES);
    reshape(&t, 2, (const int64_t[]){1, 16});
    t.e.repeats_differ = true;
    for (size_t i = 0; i < t.n_total; i++)
        t.values[i] = (double)t.zero_point + 10 + ((double)i + 0.5) / (double)t.n_total;
    trial_expect(&t);
    for (size_t i = 61; i < 67; i++)
        t.qvalues[i] = t.expected[i] + (i < 64 ? 1 : -1);
    struct nd_diagnosis found = examine(&t);
    assert_true(found.is_found);
    assert_int_equal(found.best.kind, ND_FAULT_FLIPS);
    trial_close(&t);
}

static float narrow(float value, uint32_t mask)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits &= mask;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void floats_are_known_by_their_grid(void **state)
{
    (void)state;
    struct trial t;
    struct nd_diagnosis found;
    float plain[64], half[64], brain[64], few[64];
    trial_open(&t, first_seed(), 2, 1);
    for (int i = 0; i < 64; i++) {
        plain[i] = (float)trial_normal(&t);
        half[i] = i == 9 ? 0x1p-24f : i == 10 ? 65504 : narrow(plain[i], 0xffffe000);
        brain[i] = narrow(plain[i], 0xffff0000) * 0x1p60f;
        few[i] = (float)(i % 4);
    }
    half[11] = NAN;
    half[12] = 0;
    nd_diagnose_floats(plain, 64, NULL, &found);
    assert_false(found.is_found);
    nd_diagnose_floats(half, 64, NULL, &found);
    assert_named(&found, ND_FAULT_FP16_GRID, SIZE_MAX, 0);
    nd_diagnose_floats(brain, 64, NULL, &found);
    assert_named(&found, ND_FAULT_BF16_GRID, SIZE_MAX, 0);
    assert_int_equal(found.n_rivals, 0);
    nd_diagnose_floats(few, 64, NULL, &found);
    assert_false(found.is_found);
    nd_diagnose_floats(half, 7, NULL, &found);
    assert_false(found.is_found);
    trial_close(&t);
}

static void floats_beside_the_qvalues_are_off_grid(void **state)
{
    (void)state;
    uint64_t seed = first_seed();
    for (uint64_t v = 0; v < N_TRIALS; v++) {
        struct trial t;
        struct nd_diagnosis found;
        float honest[256], other[256];
        trial_open(&t, seed + v, 2, 1);
        for (int i = 0; i < 256; i++) {
            honest[i] = t.scale * (float)((int)trial_range(&t, 0, 255) - 100);
            other[i] = i % 4 == 0 ? t.scale * (float)trial_uniform(&t, -100, 155) : honest[i];
        }
        nd_diagnose_floats(honest, 256, &t.quant, &found);
        assert_false(found.is_found);
        nd_diagnose_floats(other, 256, &t.quant, &found);
        assert_true(found.is_found);
        assert_int_equal(found.best.kind, ND_FAULT_OFF_GRID);
        assert_true(found.best.amount > 0.2 && found.best.amount < 0.3);
        trial_close(&t);
    }
}

/* Values of which is known how far rounding moves them: small offsets and factors are far off then, noise is
 * none of them. */
static void bounds_show_small_lines(void **state)
{
    (void)state;
    enum { N = 256 };
    double expected[N], captured[3][N], bound[N];
    uint64_t random = first_seed();
    static const enum nd_fault_kind kinds[] = {ND_FAULT_ZERO_POINT, ND_FAULT_SCALE};
    for (size_t i = 0; i < N; i++) {
        double draw = (double)(nd_splitmix_next(&random) % 4096) / 1024 - 2;
        expected[i] = draw;
        captured[0][i] = (double)(float)(draw + 1.0 / 1024);
        captured[1][i] = (double)(float)(draw * 1.001);
        captured[2][i] = draw + (double)(nd_splitmix_next(&random) % 4096) / (1 << 22);
        bound[i] = 1e-6;
    }
    for (size_t k = 0; k < 3; k++)
        for (int is_known = 0; is_known < 2; is_known++) {
            struct nd_findings found;
            const struct nd_evidence e = {.n_samples = 4,
                                          .n = N / 4,
                                          .shape = {.rank = 2, .dims = {1, N / 4}},
                                          .dtype = ND_DTYPE_F32,
                                          .captured = captured[k],
                                          .expected = expected,
                                          .bound = is_known ? bound : NULL};
            assert_int_equal(nd_diagnose_tensor(&e, &found, NULL), ND_OK);
            assert_int_equal(found.n_gross, is_known && k < 2);
            if (found.n_gross > 0)
                assert_string_equal(nd_fault_name(found.items[0].kind), nd_fault_name(kinds[k]));
        }
}

static void floats_of_the_same_qvalue_are_compared(void **state)
{
    (void)state;
    float scale = 0.5f, a[] = {1, 2, NAN, 0}, b[] = {1, 2.125f, NAN, -0.0f}, c[] = {1, 2.5f, NAN, 0};
    int64_t zero_point = 3;
    const struct nd_quant quant = {1, -1, &scale, &zero_point};
    struct nd_diagnosis found;
    nd_diagnose_same_qvalues(a, a, 4, &quant, &found);
    assert_false(found.is_found);
    nd_diagnose_same_qvalues(a, b, 4, &quant, &found);
    assert_named(&found, ND_FAULT_SAME_QVALUE_OTHER_FLOAT, SIZE_MAX, 0.25);
    assert_int_equal(found.best.n_wrong, 1);
    nd_diagnose_same_qvalues(a, c, 4, &quant, &found);
    assert_false(found.is_found);
}

static void encodings_that_differ_are_named(void **state)
{
    (void)state;
    float scales[] = {0.5f, 0.25f, 1}, doubled[] = {1, 0.5f, 2}, last[] = {0.5f, 0.25f, 1.5f};
    int64_t points[] = {10, 20, 30}, up[] = {13, 23, 33}, far[] = {266, 276, 286}, one[] = {10, 21, 30};
    int64_t p = 128, minus = -128, ten = 10, minus_ten = -10;
    const struct nd_quant model = {3, 1, scales, points};
    struct nd_diagnosis found;
    nd_diagnose_encoding(&model, &model, &found);
    assert_false(found.is_found);
    nd_diagnose_encoding(&model, &(struct nd_quant){3, 1, doubled, points}, &found);
    assert_named(&found, ND_FAULT_SCALE, SIZE_MAX, 2);
    nd_diagnose_encoding(&model, &(struct nd_quant){3, 1, doubled, up}, &found);
    assert_named(&found, ND_FAULT_ENCODING, SIZE_MAX, 2);
    assert_string_equal(found.best.text,
                        "the scale is 1 and the zero point 13 where the model says 0.5 and 10");
    assert_int_equal(found.n_rivals, 0);
    nd_diagnose_encoding(&model, &(struct nd_quant){3, 1, last, up}, &found);
    assert_named(&found, ND_FAULT_CHANNEL_SCALE, 2, 1.5);
    assert_int_equal(found.rivals[0].kind, ND_FAULT_ZERO_POINT);
    nd_diagnose_encoding(&model, &(struct nd_quant){3, 1, scales, up}, &found);
    assert_named(&found, ND_FAULT_ZERO_POINT, SIZE_MAX, 3);
    nd_diagnose_encoding(&model, &(struct nd_quant){3, 1, scales, far}, &found);
    assert_named(&found, ND_FAULT_OFFSET_256, SIZE_MAX, 256);
    nd_diagnose_encoding(&model, &(struct nd_quant){3, 1, scales, one}, &found);
    assert_named(&found, ND_FAULT_CHANNEL_ZERO_POINT, 1, 1);
    const struct nd_quant a = {1, -1, scales, &ten}, b = {1, -1, scales, &minus_ten};
    nd_diagnose_encoding(&a, &b, &found);
    assert_named(&found, ND_FAULT_OFFSET_SIGN, SIZE_MAX, -20);
    nd_diagnose_encoding(&(struct nd_quant){1, -1, scales, &p}, &(struct nd_quant){1, -1, scales, &minus},
                         &found);
    assert_named(&found, ND_FAULT_OFFSET_SIGN, SIZE_MAX, -256);
    assert_int_equal(found.rivals[0].kind, ND_FAULT_OFFSET_256);
    nd_diagnose_encoding(&a, &(struct nd_quant){0}, &found);
    assert_false(found.is_found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_have_names_of_their_own),
        cmocka_unit_test(ten_elements_of_one_sample_are_enough_for_a_shift),
        cmocka_unit_test(single_wrong_qvalues_are_not_judged),
        cmocka_unit_test(nothing_is_found_without_elements_or_where_nothing_is_known),
        cmocka_unit_test(elements_without_a_value_are_left_out),
        cmocka_unit_test(equal_values_show_a_shift_and_a_rival),
        cmocka_unit_test(dead_channels_hide_nothing),
        cmocka_unit_test(layouts_that_fit_alike_are_rivals),
        cmocka_unit_test(equal_channels_are_said_not_to_be_told_apart),
        cmocka_unit_test(single_steps_are_no_permutation),
        cmocka_unit_test(channels_with_their_own_zero_points_are_told_apart),
        cmocka_unit_test(devices_that_floor_are_judged_by_their_own_arithmetic),
        cmocka_unit_test(runs_that_differ_need_inputs_that_do_not),
        cmocka_unit_test(hypotheses_that_leave_the_least_win),
        cmocka_unit_test(two_samples_show_a_stale_output),
        cmocka_unit_test(whole_tensors_of_qvalues_are_judged),
        cmocka_unit_test(faults_that_explain_less_are_not_named),
        cmocka_unit_test(hypotheses_that_break_right_qvalues_are_not_named),
        cmocka_unit_test(offset_of_the_other_sign_has_no_rival),
        cmocka_unit_test(threshold_that_is_off_is_not_chance),
        cmocka_unit_test(few_flips_are_not_stochastic_rounding),
        cmocka_unit_test(floats_are_known_by_their_grid),
        cmocka_unit_test(floats_beside_the_qvalues_are_off_grid),
        cmocka_unit_test(bounds_show_small_lines),
        cmocka_unit_test(floats_of_the_same_qvalue_are_compared),
        cmocka_unit_test(encodings_that_differ_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
