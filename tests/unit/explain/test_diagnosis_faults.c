/* Every fault in seeded variants: named rightly, with its amount and channel; nothing named on healthy layers.
 */
#include "support/main.h"

#include "support/diagnosis_trial.h"

enum { N_VARIANTS = 20, N_HEALTHY = 200 / ND_SANITIZED_SHARE };

static uint64_t first_seed(void)
{
    const char *text = getenv("ND_SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 10) : 20251121;
    print_message("# ND_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

static void fault_scale(struct trial *t, struct nd_finding *truth)
{
    truth->amount = 1 + (trial_next(t) >> 40 & 1 ? 1 : -1) * trial_uniform(t, 0.002, 0.05);
    double z = (double)t->zero_point;
    for (size_t i = 0; i < t->n_total; i++)
        t->qvalues[i] = trial_qvalue(t, z + (t->values[i] - z) * truth->amount);
}

static void fault_channel_scale(struct trial *t, struct nd_finding *truth)
{
    truth->amount = 1 + (trial_next(t) >> 40 & 1 ? 1 : -1) * trial_uniform(t, 0.001, 0.02);
    truth->channel = trial_range(t, 0, t->n_channels - 1);
    double z = (double)t->zero_point;
    for (size_t i = 0; i < t->n_total; i++) {
        if (trial_channel(t, i) == truth->channel)
            t->qvalues[i] = trial_qvalue(t, z + (t->values[i] - z) * truth->amount);
    }
}

static void shift_qvalues(struct trial *t, double amount, size_t channel)
{
    for (size_t i = 0; i < t->n_total; i++) {
        if (channel == SIZE_MAX || trial_channel(t, i) == channel)
            t->qvalues[i] = trial_qvalue(t, t->values[i] + amount);
    }
}

static void fault_zero_point(struct trial *t, struct nd_finding *truth)
{
    truth->amount = (trial_next(t) >> 40 & 1 ? 1 : -1) * (double)trial_range(t, 1, 5);
    if (fabs(truth->amount) == fabs(2 * (double)t->zero_point)) /* that is a wrong sign */
        truth->amount *= 3;
    shift_qvalues(t, truth->amount, SIZE_MAX);
}

/* The encoding of another tensor. */
static void fault_encoding(struct trial *t, struct nd_finding *truth)
{
    double factor = trial_uniform(t, 1.02, 1.3), z = (double)t->zero_point;
    double shift = (trial_next(t) >> 40 & 1 ? 1 : -1) * (double)trial_range(t, 5, 20);
    truth->amount = trial_next(t) >> 40 & 1 ? factor : 1 / factor;
    for (size_t i = 0; i < t->n_total; i++)
        t->qvalues[i] = trial_qvalue(t, z + shift + (t->values[i] - z) * truth->amount);
}

static void fault_channel_encoding(struct trial *t, struct nd_finding *truth)
{
    double z = (double)t->zero_point;
    truth->amount = trial_uniform(t, 1.05, 1.3);
    truth->channel = trial_range(t, 0, t->n_channels - 1);
    for (size_t i = 0; i < t->n_total; i++)
        if (trial_channel(t, i) == truth->channel)
            t->qvalues[i] = trial_qvalue(t, z + 9 + (t->values[i] - z) * truth->amount);
}

/* One step up or down in a tenth of the quantised values, as of another arithmetic. */
static void add_steps(struct trial *t)
{
    for (size_t i = 0; i < t->n_total; i++)
        if (trial_range(t, 0, 9) == 0)
            t->qvalues[i] = fmin(fmax(t->qvalues[i] + (trial_next(t) >> 40 & 1 ? 1 : -1), t->low), t->high);
}

static void fault_channel_zero_point(struct trial *t, struct nd_finding *truth)
{
    truth->amount = (trial_next(t) >> 40 & 1 ? 1 : -1) * (double)trial_range(t, 1, 5);
    truth->channel = trial_range(t, 0, t->n_channels - 1);
    shift_qvalues(t, truth->amount, truth->channel);
}

static void fault_offset_256(struct trial *t, struct nd_finding *truth)
{
    if (t->high - t->low > 255) {
        truth->amount = trial_next(t) >> 40 & 1 ? 256 : -256;
        shift_qvalues(t, truth->amount, SIZE_MAX);
        return;
    }
    for (size_t i = 0; i < t->n_total; i++) { /* the clip is lost */
        t->values[i] = 2 * t->values[i] - (double)t->zero_point;
        t->expected[i] = trial_qvalue(t, t->values[i]);
        double qvalue = t->is_double ? round(floor(t->values[i] * 256 + 0.5) / 256) : rint(t->values[i]);
        t->qvalues[i] = qvalue - 256 * floor((qvalue - t->low) / 256);
    }
}

static void move_zero_point(struct trial *t, double to)
{
    double by = to - (double)t->zero_point;
    t->zero_point = (int64_t)to;
    for (size_t i = 0; i < t->n_total; i++)
        t->values[i] += by;
    trial_expect(t);
}

static void fault_offset_sign(struct trial *t, struct nd_finding *truth)
{
    if (t->low < 0)
        move_zero_point(t, (double)trial_range(t, 5, 30));
    else
        move_zero_point(t, rint(t->high * trial_uniform(t, 0.1, 0.25)));
    truth->amount = -2 * (double)t->zero_point;
    if (t->low == 0)
        truth->amount = -truth->amount; /* else everything would be clipped */
    shift_qvalues(t, truth->amount, SIZE_MAX);
}

/* As a device that wrote order-permuted bytes. */
static void fault_axis_permutation(struct trial *t, struct nd_finding *truth)
{
    (void)truth;
    static const int nhwc[] = {0, 2, 3, 1}, nchw[] = {0, 3, 1, 2}, swap[] = {0, 2, 1}, hw[] = {0, 1, 3, 2};
    const int *const of_4[] = {nhwc, nchw, hw};
    const struct nd_shape *shape = &t->e.shape;
    const int *p = shape->rank == 3 ? swap : of_4[trial_range(t, 0, 2)];
    for (size_t j = 0; j < t->e.n; j++) {
        size_t rest = j, place[4] = {0}, from = 0;
        for (int k = shape->rank - 1; k >= 0; k--) {
            place[p[k]] = rest % (size_t)shape->dims[p[k]];
            rest /= (size_t)shape->dims[p[k]];
        }
        for (int k = 0; k < shape->rank; k++)
            from = from * (size_t)shape->dims[k] + place[k];
        for (size_t s = 0; s < t->e.n_samples; s++)
            t->qvalues[s * t->e.n + j] = t->expected[s * t->e.n + from];
    }
}

static void fault_channel_permutation(struct trial *t, struct nd_finding *truth)
{
    size_t map[256], n_moved = 0;
    for (size_t c = 0; c < t->n_channels; c++)
        map[c] = c;
    /* Two or three swaps: never a rotation, which is a shift in memory, too. */
    for (size_t k = 0; k < 2 + (trial_next(t) >> 40) % 2; k++) {
        size_t a = trial_range(t, 0, t->n_channels - 2), b = a + 1, swapped = map[a];
        map[a] = map[b];
        map[b] = swapped;
    }
    if (map[0] == 0)
        map[0] = map[1], map[1] = 0;
    for (size_t c = 0; c < t->n_channels; c++)
        n_moved += map[c] != c;
    truth->amount = (double)n_moved;
    for (size_t i = 0; i < t->n_total; i++) {
        size_t c = trial_channel(t, i);
        t->qvalues[i] = t->expected[i + map[c] * t->inner - c * t->inner];
    }
}

static void fault_axes_with_steps(struct trial *t, struct nd_finding *truth)
{
    fault_axis_permutation(t, truth);
    add_steps(t);
}

static void fault_channels_with_steps(struct trial *t, struct nd_finding *truth)
{
    fault_channel_permutation(t, truth);
    add_steps(t);
}

/* The nearest line has another scale, too: the arithmetic cuts some of the greater values. */
static void fault_zero_point_with_steps(struct trial *t, struct nd_finding *truth)
{
    double z = (double)t->zero_point, side = z - t->low > t->high - z ? -1 : 1;
    truth->amount = side < 0 ? t->low - z : t->high - z;
    shift_qvalues(t, truth->amount, SIZE_MAX);
    for (size_t i = 0; i < t->n_total; i++)
        if (fabs(t->values[i] - z) > (t->high - t->low) / 16 && trial_range(t, 0, 3) > 0)
            t->qvalues[i] = fmin(fmax(t->qvalues[i] + side, t->low), t->high);
}

static void fault_stale(struct trial *t, struct nd_finding *truth)
{
    size_t late = trial_range(t, 1, 2) * t->e.n;
    truth->amount = (double)(late / t->e.n);
    bool is_old = trial_next(t) >> 40 & 1;
    for (size_t i = t->n_total; i-- > 0;)
        t->qvalues[i] = i >= late ? t->expected[i - late] : is_old ? t->low : t->expected[i];
}

static void fault_shifted(struct trial *t, struct nd_finding *truth)
{
    ptrdiff_t shift = (ptrdiff_t)trial_range(t, 1, t->e.n / 4);
    if (trial_next(t) >> 40 & 1)
        shift = -shift;
    truth->amount = (double)shift;
    for (size_t i = 0; i < t->n_total; i++) {
        ptrdiff_t from = (ptrdiff_t)(i % t->e.n) - shift;
        bool is_in = from >= 0 && from < (ptrdiff_t)t->e.n;
        t->qvalues[i] = is_in ? t->expected[i - i % t->e.n + (size_t)from] : (double)t->zero_point;
    }
}

static void fault_shifted_samples(struct trial *t, struct nd_finding *truth)
{
    truth->amount = -1;
    for (size_t i = 0; i < t->n_total; i++)
        t->qvalues[i] = t->expected[(i + t->e.n) % t->n_total];
}

static void fill(struct trial *t, double qvalue)
{
    for (size_t i = 0; i < t->n_total; i++)
        t->qvalues[i] = qvalue;
}

static void fault_all_zero(struct trial *t, struct nd_finding *truth)
{
    truth->amount = trial_next(t) >> 40 & 1 ? (double)t->zero_point : 0;
    fill(t, truth->amount);
}

static void fault_constant(struct trial *t, struct nd_finding *truth)
{
    double z = (double)t->zero_point;
    truth->amount = z + (double)trial_range(t, 1, 20);
    if (truth->amount == 0)
        truth->amount = z - 1;
    fill(t, truth->amount);
}

static void fault_unwritten_window(struct trial *t, struct nd_finding *truth)
{
    size_t n = trial_range(t, t->e.n / 8 + 3, t->e.n / 2), first = trial_range(t, 0, t->e.n - n);
    size_t mode = trial_range(t, 0, 2);
    truth->amount = NAN; /* its ends may be right by chance */
    for (size_t i = 0; i < t->n_total; i++) {
        size_t j = i % t->e.n;
        if (j < first || j >= first + n)
            continue;
        if (mode == 0)
            t->qvalues[i] = (double)t->zero_point;
        else if (mode == 1)
            t->qvalues[i] = rint((double)t->zero_point + 7.3 * (double)(j * j % 11) - 30);
        else if (i >= t->e.n)
            t->qvalues[i] = t->expected[i - t->e.n];
    }
}

static void fault_wrong_type(struct trial *t, struct nd_finding *truth)
{
    (void)truth;
    double range = t->high - t->low + 1, middle = t->low + range / 2;
    bool is_label = trial_next(t) >> 40 & 1;
    for (size_t i = 0; i < t->n_total; i++) {
        double c = t->expected[i];
        if (!is_label)
            t->qvalues[i] = c < middle ? c + range / 2 : c - range / 2;
        else if (t->low == 0)
            t->qvalues[i] = c >= middle ? c - range : c;
        else
            t->qvalues[i] = c < 0 ? c + range : c;
    }
}

/* Integer accumulators with a limit among them. */
static void accumulate(struct trial *t, int bits)
{
    bool is_one = trial_next(t) >> 40 & 1;
    t->e.accumulator_step = t->step;
    t->e.n_steps = is_one || t->n_channels > 64 ? 1 : t->n_channels;
    double step = t->amplitude * trial_uniform(t, 0.6, 1.2) / ldexp(1, bits - 1);
    for (size_t c = 0; c < t->e.n_steps; c++)
        t->step[c] = step * trial_uniform(t, 0.9, 1.1);
    for (size_t i = 0; i < t->n_total; i++) {
        double s = t->step[t->e.n_steps == 1 ? 0 : trial_channel(t, i)], z = (double)t->zero_point;
        t->values[i] = z + s * rint((t->values[i] - z) / s);
    }
    trial_expect(t);
}

static void narrow_accumulator(struct trial *t, struct nd_finding *truth, bool is_wrapped)
{
    int bits = (int)trial_range(t, 12, 32);
    truth->amount = bits;
    accumulate(t, bits);
    for (size_t i = 0; i < t->n_total; i++) {
        double s = t->step[t->e.n_steps == 1 ? 0 : trial_channel(t, i)], z = (double)t->zero_point;
        double acc = rint((t->values[i] - z) / s), limit = ldexp(1, bits - 1);
        if (is_wrapped)
            acc -= 2 * limit * floor((acc + limit) / (2 * limit));
        else
            acc = fmin(fmax(acc, -limit), limit - 1);
        t->qvalues[i] = trial_qvalue(t, z + s * acc);
    }
}

static void fault_accumulator_saturation(struct trial *t, struct nd_finding *truth)
{
    narrow_accumulator(t, truth, false);
}

static void fault_accumulator_wrap(struct trial *t, struct nd_finding *truth)
{
    narrow_accumulator(t, truth, true);
}

static void fault_saturation(struct trial *t, struct nd_finding *truth)
{
    double z = (double)t->zero_point;
    double high = rint(z + t->amplitude * trial_uniform(t, 0.5, 1.2));
    double low = rint(z - t->amplitude * trial_uniform(t, 0.5, 1.2));
    size_t sides = trial_range(t, 1, 3);
    if (trial_next(t) >> 40 & 1)
        accumulate(t, 20);
    truth->amount = sides & 1 ? high : low;
    for (size_t i = 0; i < t->n_total; i++)
        t->qvalues[i] = fmin(fmax(t->expected[i], sides & 2 ? low : t->low), sides & 1 ? high : t->high);
}

static void fault_hard_cliff(struct trial *t, struct nd_finding *truth)
{
    double sign = trial_next(t) >> 40 & 1 ? 1 : -1, z = (double)t->zero_point;
    double at = z + sign * t->amplitude * trial_uniform(t, 0.3, 1);
    truth->amount = NAN;
    for (size_t i = 0; i < t->n_total; i++) {
        if (sign * t->values[i] >= sign * at)
            t->qvalues[i] = z;
    }
}

static void suppose(struct trial *t, enum nd_fault_kind kind)
{
    memcpy(t->other, t->qvalues, t->n_total * sizeof *t->other);
    t->hypothesis = (struct nd_hypothesis){kind, "supposed", t->other};
    t->e.hypotheses = &t->hypothesis;
    t->e.n_hypotheses = 1;
}

static void fault_rounding(struct trial *t, struct nd_finding *truth)
{
    (void)truth;
    for (size_t i = 0; i < t->n_total; i++)
        t->qvalues[i] = fmin(fmax(floor(t->values[i]), t->low), t->high);
    suppose(t, ND_FAULT_ROUNDING);
}

static void fault_fallback(struct trial *t, struct nd_finding *truth)
{
    (void)truth;
    for (size_t i = 0; i < t->n_total; i++)
        t->qvalues[i] = trial_qvalue(t, t->values[i] + 0.1 * trial_normal(t));
    suppose(t, ND_FAULT_FALLBACK);
}

static void fault_fusion(struct trial *t, struct nd_finding *truth)
{
    (void)truth;
    for (size_t i = 0; i < t->n_total; i++)
        t->qvalues[i] = trial_qvalue(t, t->values[i] + trial_uniform(t, -0.5, 0.5));
    suppose(t, ND_FAULT_FUSION);
}

static void fault_stochastic_rounding(struct trial *t, struct nd_finding *truth)
{
    truth->amount = NAN;
    t->e.repeats_differ = trial_next(t) >> 40 & 1;
    for (size_t i = 0; i < t->n_total; i++)
        t->qvalues[i] = fmin(fmax(floor(t->values[i] + trial_uniform(t, 0, 1)), t->low), t->high);
}

static void fault_flips(struct trial *t, struct nd_finding *truth)
{
    double rate = trial_uniform(t, 0, 0.1);
    truth->amount = NAN;
    t->e.repeats_differ = true;
    for (size_t i = 0; i < t->n_total; i++) {
        double by = trial_next(t) >> 40 & 1 ? 1 : -1;
        if (trial_uniform(t, 0, 1) < rate)
            t->qvalues[i] = fmin(fmax(t->qvalues[i] + by, t->low), t->high);
    }
}

static void fault_unexplained(struct trial *t, struct nd_finding *truth)
{
    truth->amount = NAN;
    for (size_t i = 0; i < t->n_total; i++) {
        if (trial_next(t) >> 40 & 1)
            t->qvalues[i] = trial_qvalue(t, t->values[i] + 3 * trial_normal(t));
    }
}

struct fault {
    enum nd_fault_kind kind;
    int min_rank;
    void (*apply)(struct trial *t, struct nd_finding *truth);
    double tolerance; /* of the amount */
};

static const struct fault faults[] = {
    {ND_FAULT_ROUNDING, 2, fault_rounding, 0},
    {ND_FAULT_FALLBACK, 2, fault_fallback, 0},
    {ND_FAULT_FUSION, 2, fault_fusion, 0},
    {ND_FAULT_STOCHASTIC_ROUNDING, 2, fault_stochastic_rounding, 0},
    {ND_FAULT_FLIPS, 2, fault_flips, 0},
    {ND_FAULT_SCALE, 2, fault_scale, 5e-4},
    {ND_FAULT_CHANNEL_SCALE, 3, fault_channel_scale, 1e-3},
    {ND_FAULT_ZERO_POINT, 2, fault_zero_point, 0},
    {ND_FAULT_ENCODING, 2, fault_encoding, 2e-3},
    {ND_FAULT_ENCODING, 3, fault_channel_encoding, 5e-3},
    {ND_FAULT_CHANNEL_ZERO_POINT, 2, fault_channel_zero_point, 0},
    {ND_FAULT_OFFSET_256, 2, fault_offset_256, 0},
    {ND_FAULT_OFFSET_SIGN, 2, fault_offset_sign, 0},
    {ND_FAULT_AXIS_PERMUTATION, 3, fault_axis_permutation, 0},
    {ND_FAULT_CHANNEL_PERMUTATION, 2, fault_channel_permutation, 0},
    {ND_FAULT_AXIS_PERMUTATION, 3, fault_axes_with_steps, 0},
    {ND_FAULT_CHANNEL_PERMUTATION, 3, fault_channels_with_steps, 0},
    {ND_FAULT_STALE, 2, fault_stale, 0},
    {ND_FAULT_SHIFTED, 2, fault_shifted, 0},
    {ND_FAULT_SHIFTED, 2, fault_shifted_samples, 0},
    {ND_FAULT_ALL_ZERO, 2, fault_all_zero, 0},
    {ND_FAULT_CONSTANT, 2, fault_constant, 0},
    {ND_FAULT_UNWRITTEN_WINDOW, 2, fault_unwritten_window, 0},
    {ND_FAULT_WRONG_TYPE, 2, fault_wrong_type, 0},
    {ND_FAULT_ACCUMULATOR_SATURATION, 2, fault_accumulator_saturation, 0},
    {ND_FAULT_ACCUMULATOR_WRAP, 2, fault_accumulator_wrap, 0},
    {ND_FAULT_SATURATION, 2, fault_saturation, 0},
    {ND_FAULT_HARD_CLIFF, 2, fault_hard_cliff, 0},
    {ND_FAULT_UNEXPLAINED, 2, fault_unexplained, 0},
    {ND_FAULT_ZERO_POINT, 2, fault_zero_point_with_steps, 0},
};
enum { N_FAULTS = sizeof faults / sizeof faults[0] };

static bool is_named(const struct nd_diagnosis *d, const struct nd_finding *truth, double tolerance)
{
    bool is_right = d->is_found && d->best.kind == truth->kind && d->best.channel == truth->channel;
    return is_right && (isnan(truth->amount) || fabs(d->best.amount - truth->amount) <= tolerance);
}

/* Is the fault named? Says so when not. */
static bool try_variant(const struct fault *fault, uint64_t seed, bool is_known)
{
    struct trial t;
    struct nd_finding truth = {.kind = fault->kind, .channel = SIZE_MAX};
    struct nd_diagnosis found = {0};
    int rank = fault->min_rank + (int)(seed % (uint64_t)(5 - fault->min_rank));
    trial_open(&t, seed, rank, TRIAL_SAMPLES);
    fault->apply(&t, &truth);
    for (size_t i = 0; i < t.n_total && !is_known; i++)
        t.expected[i] = fmin(fmax(rint(t.values[i]), t.low), t.high);
    assert_int_equal(nd_diagnose(&t.e, &found, NULL), ND_OK);
    bool is_right = is_named(&found, &truth, fault->tolerance);
    if (!is_right)
        print_message("# %s %g (channel %zu, rank %d, %s, seed %llu): %s %g (channel %zu, %zu wrong): %s\n",
                      nd_fault_name(truth.kind), truth.amount, truth.channel, rank, nd_dtype_name(t.e.dtype),
                      (unsigned long long)seed, found.is_found ? nd_fault_name(found.best.kind) : "nothing",
                      found.best.amount, found.best.channel, found.best.n_wrong, found.best.text);
    trial_close(&t);
    return is_right;
}

/* is_known: the background arithmetic is. ND_VARIANTS asks for another number of variants. */
static void try_faults(bool is_known)
{
    const char *text = getenv("ND_VARIANTS");
    uint64_t seed = first_seed(), n = text != NULL ? strtoull(text, NULL, 10) : N_VARIANTS;
    size_t n_missed = 0;
    for (size_t k = 0; k < N_FAULTS; k++) {
        for (uint64_t v = 0; v < n; v++)
            n_missed += !try_variant(&faults[k], seed + k * 100003 + v, is_known);
    }
    print_message("# %zu of %zu missed\n", n_missed, N_FAULTS * (size_t)n);
    assert_true(n_missed * 100 <= N_FAULTS * (size_t)n);
    assert_true(text != NULL || !is_known || n_missed == 0);
}

static void faults_are_named_with_their_amount_and_channel(void **state)
{
    (void)state;
    try_faults(true);
}

/* Half of the devices round twice and are taken for such that do it once. */
static void faults_are_named_where_the_arithmetic_is_mistaken(void **state)
{
    (void)state;
    try_faults(false);
}

/* The same quantised values with and without their exact values: one table names the same fault, or nothing
 * where too few quantised values are far off. */
static void both_measures_name_the_same_fault(void **state)
{
    (void)state;
    static const enum nd_fault_kind kinds[] = {ND_FAULT_AXIS_PERMUTATION, ND_FAULT_STALE,
                                               ND_FAULT_SHIFTED,          ND_FAULT_ALL_ZERO,
                                               ND_FAULT_CONSTANT,         ND_FAULT_UNWRITTEN_WINDOW,
                                               ND_FAULT_SATURATION,       ND_FAULT_HARD_CLIFF};
    uint64_t seed = first_seed();
    for (size_t k = 0; k < N_FAULTS; k++) {
        size_t n_named = 0;
        bool is_asked = false;
        for (size_t a = 0; a < sizeof kinds / sizeof kinds[0]; a++)
            is_asked = is_asked || kinds[a] == faults[k].kind;
        for (uint64_t v = 0; v < N_VARIANTS && is_asked; v++) {
            struct trial t;
            struct nd_finding truth = {.kind = faults[k].kind, .channel = SIZE_MAX};
            struct nd_findings found;
            trial_open(&t, seed + v, faults[k].min_rank, TRIAL_SAMPLES);
            faults[k].apply(&t, &truth);
            t.e.exact = NULL;
            t.e.step = t.e.ref_step = 1;
            assert_int_equal(nd_diagnose_tensor(&t.e, &found, NULL), ND_OK);
            if (found.n_gross > 0 && found.items[0].kind != truth.kind)
                fail_msg("%s, seed %llu: %s", nd_fault_name(truth.kind), (unsigned long long)(seed + v),
                         found.items[0].text);
            n_named += found.n_gross > 0;
            trial_close(&t);
        }
        if (is_asked)
            print_message("# %s: %zu of %d\n", nd_fault_name(faults[k].kind), n_named, N_VARIANTS);
        assert_true(!is_asked || n_named * 2 > N_VARIANTS);
    }
}

/* The background is known (even variants), or taken for nearest though it rounds twice. */
static void healthy_layers_are_left_alone(void **state)
{
    (void)state;
    uint64_t seed = first_seed();
    size_t n_named = 0;
    for (uint64_t v = 0; v < N_HEALTHY; v++) {
        struct trial t;
        struct nd_diagnosis found = {0};
        trial_open(&t, seed + v, 0, TRIAL_SAMPLES);
        if (v % 4 < 2)
            accumulate(&t, 16);
        t.is_double = false;
        for (size_t i = 0; i < t.n_total && v % 2 == 1; i++)
            t.expected[i] = trial_qvalue(&t, t.values[i]);
        assert_int_equal(nd_diagnose(&t.e, &found, NULL), ND_OK);
        if (found.is_found)
            print_message("# healthy, seed %llu: %s\n", (unsigned long long)(seed + v), found.best.text);
        n_named += found.is_found;
        trial_close(&t);
    }
    assert_int_equal(n_named, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults_are_named_with_their_amount_and_channel),
        cmocka_unit_test(faults_are_named_where_the_arithmetic_is_mistaken),
        cmocka_unit_test(both_measures_name_the_same_fault),
        cmocka_unit_test(healthy_layers_are_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
