/* Functions of one number, where codes make them tables: every entry is read out. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "fingerprint/ask.h"
#include "fingerprint/scalar.h"
#include "fingerprint/section.h"

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
    N_NARROW_COPIES = 8, /* of every code, at places of their own */
    N_WIDE_COPIES = 2,
    MAX_PROGRAMS_TOLD = 3,
};

static double to_power_of_two(double v)
{
    return exp2(rint(log2(v)));
}

struct table {
    const struct function *function;
    enum nd_dtype dtype;
    size_t n_entries, n_settings, n_copies;
    struct nd_scalar_sample samples[MAX_SETTINGS];
    double *values[MAX_SETTINGS], *float_values[MAX_SETTINGS],
        *codes[MAX_SETTINGS]; /* [n_entries] each; owned */
    size_t n_taken;
    size_t n_many_valued; /* entries with several codes */
    bool has_failed, is_on_npu;
    struct nd_trial_result failure; /* no data */
    char provider[64];
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

/* All codes, n_copies times, shuffled but for the first copy. */
static void shuffle(size_t n_entries, size_t n_copies, double *codes)
{
    uint64_t seed = n_entries;
    for (size_t i = 0; i < n_entries * n_copies; i++)
        codes[i] = (double)(i % n_entries);
    for (size_t i = n_entries * n_copies - 1; i > n_entries; i--) {
        size_t j = n_entries + (size_t)(nd_random_next(&seed) % (i - n_entries + 1));
        double held = codes[i];
        codes[i] = codes[j];
        codes[j] = held;
    }
}

/* Keeps the entries; counts those that are several. */
static void read_entries(struct table *t, const double *fed, const double *answers, double *entries)
{
    size_t n = t->n_entries;
    memcpy(entries, answers, n * sizeof *entries); /* the first copy is in order */
    bool *is_many = nd_calloc(n, sizeof *is_many);
    for (size_t i = n; is_many != NULL && i < n * t->n_copies; i++) {
        size_t code = (size_t)fed[i];
        t->n_many_valued += !is_many[code] && answers[i] != entries[code];
        is_many[code] = is_many[code] || answers[i] != entries[code];
    }
    free(is_many);
}

/* Of random scales of the output, the one under which most entries lie so that the programs that are left make
 * different codes of them; 0: there is none. */
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
            double code =
                nd_scalar_code(&left->programs[0], &sample, nd_scalar_value_of(&left->programs[0], &sample, i));
            for (size_t p = 1; p < left->n_programs; p++) {
                const struct nd_scalar_program *other = &left->programs[p];
                if (nd_scalar_code(other, &sample, nd_scalar_value_of(other, &sample, i)) != code) {
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

/* Asks under one setting; scale_y > 0 takes the place of the setting's. fed: all copies of all codes. */
static enum nd_status take_setting(struct nd_bench *bench, const struct setting *setting, float scale_y,
                                   struct table *t, const double *fed, struct nd_error *err)
{
    struct nd_trial_result result;
    struct nd_ask ask = make_ask(t, setting);
    size_t n = t->n_entries * t->n_copies;
    double *values = nd_calloc(n, sizeof *values), *float_values = nd_calloc(n, sizeof *values),
           *entries = nd_calloc(t->n_entries, sizeof *entries);
    enum nd_status status =
        values != NULL && float_values != NULL && entries != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK)
        status = nd_ask_values(&ask, fed, 1, false, values, err);
    if (status == ND_OK)
        status = nd_ask_values(&ask, fed, 1, true, float_values, err);
    if (status == ND_OK) {
        fit_output(t, setting, values, &ask);
        ask.scale_y = scale_y > 0 ? scale_y : ask.scale_y;
        status = nd_ask_device(bench, &ask, fed, 1, &result, err);
    }
    if (status != ND_OK || result.has_failed) {
        free(values);
        free(float_values);
        free(entries);
        if (status == ND_OK) {
            t->has_failed = true;
            t->failure = result;
        }
        return status;
    }
    t->is_on_npu = t->is_on_npu && result.is_on_npu;
    memcpy(t->provider, result.provider, sizeof t->provider);
    read_entries(t, fed, result.x, entries);
    nd_trial_deinit(&result);
    t->values[t->n_taken] = values;
    t->float_values[t->n_taken] = float_values;
    t->codes[t->n_taken] = entries;
    t->samples[t->n_taken++] = (struct nd_scalar_sample){.scale = ask.scale_y,
                                                         .zero = (double)ask.zero_y,
                                                         .high = (double)(t->n_entries - 1),
                                                         .n = t->n_entries,
                                                         .values = values,
                                                         .float_values = float_values,
                                                         .codes = entries};
    return ND_OK;
}

/* ---- what is said of it ---- */

static bool add_line(json_t *entry, const char *line)
{
    json_t *lines = json_object_get(entry, "text");
    if (lines == NULL) {
        lines = json_array();
        if (!nd_section_set(entry, "text", lines))
            return false;
    }
    return json_array_append_new(lines, json_string(line)) == 0;
}

static json_t *count_entries(const struct table *t, const struct nd_scalar_findings *f)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:f, s:f, s:I}", "settings", (json_int_t)t->n_taken, "entries",
                     (json_int_t)(t->n_taken * t->n_entries), "many_valued", (json_int_t)t->n_many_valued,
                     "off", (json_int_t)f->n_off, "largest_off", f->largest_off, "mean_off",
                     f->n_codes > 0 ? f->sum_off / (double)f->n_codes : 0.0, "programs_left",
                     (json_int_t)f->n_programs);
}

static json_t *name_programs(const struct nd_scalar_findings *f)
{
    char buf[ND_SCALAR_NAME_BYTES];
    json_t *names = json_array();
    for (size_t i = 0; names != NULL && i < f->n_programs && i < MAX_PROGRAMS_TOLD; i++)
        json_array_append_new(names, json_string(nd_scalar_name(&f->programs[i], buf)));
    return names;
}

static bool tell_function(const struct nd_scalar_findings *f, json_t *entry)
{
    char line[200], buf[ND_SCALAR_NAME_BYTES];
    if (nd_scalar_is_correct(f))
        return add_line(entry, "every entry is the correctly rounded one");
    snprintf(
        line, sizeof line,
        "%llu of %llu entries are not the correctly rounded one, by at most %.0f; the worst: %.0f in the place "
        "of %.0f, for the value %.9g",
        (unsigned long long)f->n_off, (unsigned long long)f->n_codes, f->largest_off, f->worst_code,
        f->worst_correct, f->worst_value);
    if (!add_line(entry, line))
        return false;
    return f->n_programs > 0 ||
           (nd_section_set(entry, "nearest", json_string(nd_scalar_name(&f->nearest, buf))) &&
            nd_section_set(entry, "nearest_wrong", json_integer((json_int_t)f->n_nearest_wrong)) &&
            nd_section_undecided(entry, "how an entry is made",
                                 "a family that this version does not know; the table itself is known"));
}

static bool tell_undecided(const struct nd_scalar_findings *f, json_t *entry)
{
    bool value = false, rounding = false;
    for (size_t i = 1; i < f->n_programs; i++) {
        value = value || f->programs[i].value != f->programs[0].value;
        rounding = rounding || f->programs[i].rounding != f->programs[0].rounding ||
                   f->programs[i].has_zero_inside != f->programs[0].has_zero_inside;
    }
    return (!value || nd_section_undecided(entry, "in which precision an entry is calculated",
                                           "scales under which values lie within 2^-24 of a tie")) &&
           (!rounding || nd_section_undecided(entry, "where a tie goes",
                                              "an entry that is a tie: most functions have none"));
}

static bool tell(const struct table *t, json_t *entries)
{
    struct nd_scalar_findings f;
    char digest[ND_ASK_DIGEST_BYTES], digests[ND_ASK_DIGEST_BYTES * MAX_SETTINGS] = "";
    nd_scalar_solve(t->samples, t->n_taken, &f);
    bool is_table = t->n_many_valued == 0;
    const char *verdict = !t->is_on_npu                  ? "not on the NPU"
                          : is_table && f.n_programs > 0 ? "identified"
                                                         : "not identified";
    json_t *entry = nd_section_entry(entries, t->function->op_type,
                                     t->dtype == ND_DTYPE_U8 ? "u8 -> u8" : "u16 -> u16", verdict, t->provider);
    for (size_t s = 0; s < t->n_taken; s++) {
        nd_ask_digest(t->codes[s], t->n_entries, digest);
        strcat(digests, digest); /* there is room for all */
    }
    return entry != NULL && nd_section_set(entry, "evidence", count_entries(t, &f)) &&
           nd_section_set(entry, "programs", name_programs(&f)) &&
           nd_section_set(entry, "answers", json_string(digests)) &&
           add_line(entry, is_table ? "a table: the answer depends on the code alone"
                                    : "not a table: equal codes have several answers") &&
           tell_function(&f, entry) && tell_undecided(&f, entry);
}

/* Looks for entries that tell the programs apart that are left. */
static enum nd_status take_close_settings(struct nd_bench *bench, struct table *t, const double *fed,
                                          struct nd_error *err)
{
    struct nd_scalar_findings left;
    uint64_t seed = 11;
    enum nd_status status = ND_OK;
    for (size_t s = 0; status == ND_OK && !t->has_failed && s < N_CLOSE_SETTINGS; s++) {
        nd_scalar_solve(t->samples, t->n_taken, &left);
        float scale = left.n_programs > 1 ? find_close_scale(&left, t->samples[0], &seed) : 0;
        if (scale > 0)
            status = take_setting(bench, &settings[0], scale, t, fed, err);
    }
    return status;
}

static enum nd_status take_table(struct nd_bench *bench, struct table *t, json_t *entries, struct nd_error *err)
{
    double *fed = nd_calloc(t->n_entries * t->n_copies, sizeof *fed);
    enum nd_status status = fed != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK)
        shuffle(t->n_entries, t->n_copies, fed);
    for (size_t s = 0; status == ND_OK && !t->has_failed && s < t->n_settings; s++)
        status = take_setting(bench, &settings[s], 0, t, fed, err);
    if (status == ND_OK && !t->has_failed && t->dtype == ND_DTYPE_U8)
        status = take_close_settings(bench, t, fed, err);
    if (status == ND_OK && t->has_failed)
        status = nd_section_failed(entries, t->function->op_type,
                                   t->dtype == ND_DTYPE_U8 ? "u8 -> u8" : "u16 -> u16", &t->failure, err);
    else if (status == ND_OK && !tell(t, entries))
        status = nd_fail_memory(err);
    for (size_t s = 0; s < t->n_taken; s++) {
        free(t->values[s]);
        free(t->float_values[s]);
        free(t->codes[s]);
    }
    free(fed);
    return status;
}

enum nd_status nd_section_table_u8(struct nd_bench *bench, json_t *entries, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < sizeof functions / sizeof functions[0]; i++) {
        struct table table = {.function = &functions[i],
                              .dtype = ND_DTYPE_U8,
                              .n_entries = 256,
                              .n_settings = N_SETTINGS,
                              .n_copies = N_NARROW_COPIES,
                              .is_on_npu = true};
        status = take_table(bench, &table, entries, err);
    }
    return status;
}

enum nd_status nd_section_table_u16(struct nd_bench *bench, json_t *entries, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < sizeof functions / sizeof functions[0]; i++) {
        struct table table = {.function = &functions[i],
                              .dtype = ND_DTYPE_U16,
                              .n_entries = 65536,
                              .n_settings = N_WIDE_SETTINGS,
                              .n_copies = N_WIDE_COPIES,
                              .is_on_npu = true};
        if (functions[i].is_asked_wide)
            status = take_table(bench, &table, entries, err);
    }
    return status;
}
