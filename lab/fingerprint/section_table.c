/* Functions of one number, where quantised values make them tables: every entry is read out. */
#include <math.h>
#include <string.h>

#include "core/random.h"
#include "lab/experiment/experiment.h"
#include "lab/fingerprint/scalar.h"
#include "lab/fingerprint/section.h"

/* An operator and the numbers that it is asked about: those between low and high, and other ranges in
 * proportion. */
struct function {
    const char *op_type;
    double low, high;
    bool is_asked_wide; /* uint16, too */
};
static const struct function functions[] = {
    {"Sigmoid", -8, 8, true},   {"Tanh", -4, 4, true},       {"Gelu", -5, 5, true}, {"HardSwish", -6, 6, false},
    {"Exp", -4, 2, false},      {"Sqrt", 0, 9, false},       {"Elu", -4, 4, false}, {"Abs", -3, 3, false},
    {"Relu", -3, 3, false},     {"Sin", -6, 6, false},       {"Log", 0, 8, false},  {"Reciprocal", 0, 8, false},
    {"Softplus", -6, 6, false}, {"LeakyRelu", -3, 3, false}, {"Neg", -3, 3, false},
};

/* Scales that a function is asked under: the range in proportion, and the output's in proportion to what the
 * function covers. With powers of two, what is linear has ties. */
struct setting {
    double input, output;
    bool is_power_of_two;
};
static const struct setting settings[] = {{1, 1, false}, {1, 4, true}, {1.7331, 0.6117, false}};
enum {
    N_SETTINGS = sizeof settings / sizeof settings[0],
    N_CLOSE_SETTINGS = 2, /* chosen to tell what is left apart */
    MAX_SETTINGS = N_SETTINGS + N_CLOSE_SETTINGS,
    N_SCALES_TRIED = 3000,
    N_WIDE_SETTINGS = 1,
    N_NARROW_COPIES = 8, /* of every quantised value, at places of their own */
    N_WIDE_COPIES = 2,
    MAX_ARITHMETICS_TOLD = 3,
};

static double to_power_of_two(double v)
{
    return exp2(rint(log2(v)));
}

struct table {
    const struct function *function;
    enum nd_dtype dtype;
    size_t n_entries, n_settings, n_copies;
    const double *fed; /* all copies of all quantised values */
    struct nd_scalar_sample samples[MAX_SETTINGS];
    size_t n_taken;
    size_t n_many_valued; /* entries with several quantised values */
};

static struct nd_ask make_ask(const struct table *t, const struct setting *setting)
{
    const struct nd_shape shape = t->dtype == ND_DTYPE_U8
                                      ? (struct nd_shape){.rank = 4, .dims = {1, 16, 16, N_NARROW_COPIES}}
                                      : (struct nd_shape){.rank = 4, .dims = {1, 64, 32, 32 * N_WIDE_COPIES}};
    double low = t->function->low * setting->input, high = t->function->high * setting->input;
    double scale = (high - low) / (double)(t->n_entries - 1);
    if (setting->is_power_of_two)
        scale = to_power_of_two(scale);
    struct nd_ask ask = {
        .op_type = t->function->op_type, .dtype = t->dtype, .x = shape, .y = shape, .scale_x = (float)scale};
    ask.zero_x = (int64_t)fmin(rint(-low / scale), (double)(t->n_entries - 1));
    return ask;
}

/* The output's scale and zero point: what the function covers, with 0. */
static void fit_output(const struct table *t, const struct setting *setting, const double *values,
                       struct nd_ask *ask)
{
    double low = 0, high = 0, most = (double)(t->n_entries - 1);
    for (size_t i = 0; i < t->n_entries; i++)
        if (isfinite(values[i])) {
            low = fmin(low, values[i]);
            high = fmax(high, values[i]);
        }
    /* A pole would leave nothing for the rest. */
    high = fmin(high, 64);
    low = fmax(low, -64);
    double scale = (high - low) / most * setting->output;
    if (setting->is_power_of_two)
        scale = to_power_of_two(scale);
    ask->scale_y = (float)scale;
    ask->zero_y = (int64_t)fmin(fmax(rint(-low / scale), 0), most);
}

/* All quantised values, n_copies times, shuffled but for the first copy. */
static void shuffle(size_t n_entries, size_t n_copies, double *qvalues)
{
    uint64_t seed = n_entries;
    for (size_t i = 0; i < n_entries * n_copies; i++)
        qvalues[i] = (double)(i % n_entries);
    for (size_t i = n_entries * n_copies - 1; i > n_entries; i--) {
        size_t j = n_entries + (size_t)(nd_random_next(&seed) % (i - n_entries + 1));
        double held = qvalues[i];
        qvalues[i] = qvalues[j];
        qvalues[j] = held;
    }
}

/* The first copy of the answers, which is in order, has the entries; counts those that are several. */
static void read_entries(struct nd_experiment *e, struct table *t, const double *answers)
{
    size_t n = t->n_entries;
    bool *is_many = nd_experiment_alloc(e, n, sizeof *is_many);
    for (size_t i = n; is_many != NULL && i < n * t->n_copies; i++) {
        size_t qvalue = (size_t)t->fed[i];
        t->n_many_valued += !is_many[qvalue] && answers[i] != answers[qvalue];
        is_many[qvalue] = is_many[qvalue] || answers[i] != answers[qvalue];
    }
}

/* Of random scales of the output, the one under which most entries lie so that the arithmetics that are left
 * make different quantised values of them; 0: there is none. */
static float find_close_scale(const struct nd_scalar_findings *left, struct nd_scalar_sample sample,
                              uint64_t *seed)
{
    float best = 0, usual = sample.scale;
    size_t most = 0;
    for (size_t tried = 0; tried < N_SCALES_TRIED; tried++) {
        size_t n = 0;
        sample.scale = usual * (float)nd_random_between(seed, 0.7, 1.4);
        for (size_t i = 0; i < sample.n; i++) {
            double v = sample.values[i], quotient = v / (double)sample.scale;
            if (!isfinite(v) || fabs(quotient - floor(quotient) - 0.5) > 1e-4)
                continue; /* far from a tie all agree */
            double qvalue = nd_scalar_qvalue(&left->arithmetics[0], &sample,
                                             nd_scalar_value_of(&left->arithmetics[0], &sample, i));
            for (size_t p = 1; p < left->n_arithmetics; p++) {
                const struct nd_scalar_arithmetic *other = &left->arithmetics[p];
                if (nd_scalar_qvalue(other, &sample, nd_scalar_value_of(other, &sample, i)) != qvalue) {
                    n++;
                    break;
                }
            }
        }
        if (n > most) {
            most = n;
            best = sample.scale;
        }
    }
    return best;
}

/* Asks under one setting; scale_y > 0 takes the place of the setting's. */
static void take_setting(struct nd_experiment *e, const struct setting *setting, float scale_y, struct table *t)
{
    struct nd_ask ask = make_ask(t, setting);
    size_t n = t->n_entries * t->n_copies;
    double *values = nd_experiment_alloc(e, n, sizeof *values),
           *float_values = nd_experiment_alloc(e, n, sizeof *float_values);
    if (!nd_experiment_goes_on(e) ||
        !nd_experiment_check(e, nd_ask_values(&ask, t->fed, 1, false, values, e->err)) ||
        !nd_experiment_check(e, nd_ask_values(&ask, t->fed, 1, true, float_values, e->err)))
        return;
    fit_output(t, setting, values, &ask);
    ask.scale_y = scale_y > 0 ? scale_y : ask.scale_y;
    const double *answers = nd_experiment_ask(e, &ask, t->fed, 1);
    if (answers == NULL)
        return;
    read_entries(e, t, answers);
    nd_experiment_digest(e, answers, t->n_entries);
    t->samples[t->n_taken++] = (struct nd_scalar_sample){.scale = ask.scale_y,
                                                         .zero = (double)ask.zero_y,
                                                         .high = (double)(t->n_entries - 1),
                                                         .n = t->n_entries,
                                                         .values = values,
                                                         .float_values = float_values,
                                                         .qvalues = answers};
}

/* Looks for entries that tell the arithmetics apart that are left. */
static void take_close_settings(struct nd_experiment *e, struct table *t)
{
    struct nd_scalar_findings left;
    uint64_t seed = 11;
    for (size_t s = 0; nd_experiment_goes_on(e) && s < N_CLOSE_SETTINGS; s++) {
        nd_scalar_solve(t->samples, t->n_taken, &left);
        float scale = left.n_arithmetics > 1 ? find_close_scale(&left, t->samples[0], &seed) : 0;
        if (scale > 0)
            take_setting(e, &settings[0], scale, t);
    }
}

/* ---- what is said of it ---- */

static void tell_function(struct nd_experiment *e, json_t *entry, const struct nd_scalar_findings *f)
{
    char buf[ND_SCALAR_NAME_BYTES];
    if (nd_scalar_is_correct(f)) {
        nd_tell_line(e, entry, "every entry is the correctly rounded one");
        return;
    }
    nd_tell_line(e, entry,
                 "%llu of %llu entries are not the correctly rounded one, by at most %.0f; the worst: %.0f in "
                 "the place of %.0f, for the value %.9g",
                 (unsigned long long)f->n_off, (unsigned long long)f->n_qvalues, f->largest_off,
                 f->worst_qvalue, f->worst_correct, f->worst_value);
    if (f->n_arithmetics > 0)
        return;
    nd_tell_nearest(e, entry, nd_scalar_name(&f->nearest, buf), f->n_nearest_wrong);
    nd_tell_undecided(e, entry, "how an entry is made",
                      "a family that this version does not know; the table itself is known");
}

#define FIELD(member) ND_FIELD(struct nd_scalar_arithmetic, member)
static const struct nd_issue issues[] = {{"in which precision an entry is calculated",
                                          "scales under which values lie within 2^-24 of a tie",
                                          {FIELD(value)}},
                                         {"where a tie goes",
                                          "an entry that is a tie: most functions have none",
                                          {FIELD(rounding), FIELD(has_zero_inside)}},
                                         {NULL, NULL, {{0}}}};

static void tell(struct nd_experiment *e, const struct table *t, json_t *entries)
{
    struct nd_scalar_findings f;
    nd_scalar_solve(t->samples, t->n_taken, &f);
    bool is_table = t->n_many_valued == 0;
    json_t *entry = nd_experiment_tell(e, entries, is_table && f.n_arithmetics > 0);
    if (entry == NULL)
        return;
    nd_tell_counts(e, entry,
                   ND_COUNTS({"settings", t->n_taken}, {"entries", t->n_taken * t->n_entries},
                             {"many_valued", t->n_many_valued}, {"off", f.n_off}));
    json_t *evidence = nd_tell_object(e, entry, "evidence");
    nd_tell(e, evidence, "largest_off", json_real(f.largest_off));
    nd_tell(e, evidence, "mean_off", json_real(f.n_qvalues > 0 ? f.sum_off / (double)f.n_qvalues : 0.0));
    nd_tell_counts(e, entry, ND_COUNTS({"possible_left", f.n_arithmetics}));
    nd_scalar_tell(e, entry, &f, MAX_ARITHMETICS_TOLD);
    nd_tell_text(e, entry, "answers", e->answers.text);
    nd_tell_line(e, entry, "%s",
                 is_table ? "a table: the answer depends on the quantised value alone"
                          : "not a table: equal quantised values have several answers");
    tell_function(e, entry, &f);
    nd_tell_issues(e, entry, issues, f.arithmetics, f.n_arithmetics, sizeof *f.arithmetics);
}

static void take_table(struct nd_experiment *e, struct table *t, json_t *entries)
{
    double *fed = nd_experiment_alloc(e, t->n_entries * t->n_copies, sizeof *fed);
    if (fed != NULL)
        shuffle(t->n_entries, t->n_copies, fed);
    t->fed = fed;
    for (size_t s = 0; s < t->n_settings; s++)
        take_setting(e, &settings[s], 0, t);
    if (t->dtype == ND_DTYPE_U8)
        take_close_settings(e, t);
    tell(e, t, entries);
}

static void take_narrow(struct nd_experiment *e, int kind, json_t *entries)
{
    struct table table = {.function = &functions[kind],
                          .dtype = ND_DTYPE_U8,
                          .n_entries = 256,
                          .n_settings = N_SETTINGS,
                          .n_copies = N_NARROW_COPIES};
    take_table(e, &table, entries);
}

static void take_wide(struct nd_experiment *e, int kind, json_t *entries)
{
    struct table table = {.function = &functions[kind],
                          .dtype = ND_DTYPE_U16,
                          .n_entries = 65536,
                          .n_settings = N_WIDE_SETTINGS,
                          .n_copies = N_WIDE_COPIES};
    take_table(e, &table, entries);
}

/* Those of uint16 are asked about a few functions only. */
static enum nd_status take_tables(struct nd_bench *bench, bool is_wide, json_t *entries, struct nd_error *err)
{
    enum { N_FUNCTIONS = sizeof functions / sizeof functions[0] };
    struct nd_subject subjects[N_FUNCTIONS];
    size_t n = 0;
    for (int i = 0; i < N_FUNCTIONS; i++)
        if (!is_wide || functions[i].is_asked_wide)
            subjects[n++] = (struct nd_subject){functions[i].op_type, is_wide ? "u16 -> u16" : "u8 -> u8", i};
    return nd_experiment_take_all(bench, subjects, n, is_wide ? take_wide : take_narrow, entries, err);
}

enum nd_status nd_section_table_u8(struct nd_bench *bench, json_t *entries, struct nd_error *err)
{
    return take_tables(bench, false, entries, err);
}

enum nd_status nd_section_table_u16(struct nd_bench *bench, json_t *entries, struct nd_error *err)
{
    return take_tables(bench, true, entries, err);
}
