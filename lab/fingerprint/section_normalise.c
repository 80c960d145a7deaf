/* Softmax and normalisations: how far a device is from the exact function. No arithmetic of theirs is known
 * that gives every quantised value; what was tried is what one rounding of the exact value can be, in several
 * precisions. */
#include <math.h>
#include <string.h>

#include "core/random.h"
#include "lab/experiment/experiment.h"
#include "lab/fingerprint/scalar.h"
#include "lab/fingerprint/section.h"

enum {
    N_ROWS = 256,
    N_COLUMNS = 64,
    N_SETTINGS = 2,
    N_SAMPLES = 4, /* 65 536 quantised values a setting */
};

static const uint8_t gains[N_COLUMNS] = {
    200, 180, 255, 90, 140, 220, 10,  128, 199, 64,  32,  250, 177, 143, 99,  61,  203, 187, 251, 93, 144, 225,
    17,  121, 190, 60, 37,  253, 171, 149, 91,  66,  211, 188, 254, 97,  146, 229, 11,  129, 193, 68, 31,  247,
    179, 141, 95,  63, 208, 183, 249, 92,  145, 221, 13,  127, 197, 69,  35,  252, 173, 147, 98,  62};
static const int32_t shifts[N_COLUMNS] = {
    0}; /* of the bias: it has a rounding of its own, and is not asked about */

/* Rows of N_COLUMNS; of InstanceNormalization images of them, channel by channel. */
static struct nd_ask make_ask(const char *op_type, enum nd_dtype dtype, size_t setting)
{
    double most = dtype == ND_DTYPE_U8 ? 255 : 65535;
    bool is_instance = strcmp(op_type, "InstanceNormalization") == 0;
    struct nd_ask ask = {.op_type = op_type, .dtype = dtype};
    ask.x = is_instance ? (struct nd_shape){.rank = 4, .dims = {1, N_COLUMNS, 16, 16}}
                        : (struct nd_shape){.rank = 3, .dims = {1, N_ROWS, N_COLUMNS}};
    ask.y = ask.x;
    ask.scale_x = (float)((setting == 0 ? 9.1 : 15.7) / most);
    ask.zero_x = (int64_t)rint(most * 0.45);
    ask.n_attributes = 1;
    if (strcmp(op_type, "Softmax") == 0) {
        ask.attributes[0] = (struct nd_ask_attribute){.name = "axis", .n = 1, .ints = {-1}};
        ask.scale_y = (float)((setting == 0 ? 1 : 0.613) / (most + 1));
        return ask;
    }
    ask.attributes[0] = (struct nd_ask_attribute){.name = "epsilon", .f = 1e-5F};
    ask.scale_y = (float)((setting == 0 ? 8.3 : 6.1) / most);
    ask.zero_y = (int64_t)rint(most * 0.5);
    ask.n_operands = 2;
    ask.operands[0] = (struct nd_ask_operand){
        .dtype = ND_DTYPE_U8, .shape = {.rank = 1, .dims = {N_COLUMNS}}, .data = gains, .scale = 0.0071F};
    ask.operands[1] = (struct nd_ask_operand){.dtype = ND_DTYPE_I32,
                                              .shape = {.rank = 1, .dims = {N_COLUMNS}},
                                              .data = shifts,
                                              .scale = ask.scale_x * 0.0071F};
    return ask;
}

/* Rows of their own level and width. */
static void draw(const struct nd_ask *ask, uint64_t *seed, double *qvalues)
{
    double most = ask->dtype == ND_DTYPE_U8 ? 255 : 65535;
    size_t row = strcmp(ask->op_type, "InstanceNormalization") == 0 ? N_ROWS : N_COLUMNS;
    for (size_t i = 0; i < N_SAMPLES * nd_ask_elems(&ask->x); i += row) {
        double level = nd_random_between(seed, 0.2, 0.8), width = nd_random_between(seed, 0.02, 0.5);
        for (size_t j = i; j < i + row; j++)
            qvalues[j] = rint(most * fmin(fmax(level + width * nd_random_between(seed, -1, 1), 0), 1));
    }
}

static void take_setting(struct nd_experiment *e, enum nd_dtype dtype, size_t setting, uint64_t *seed,
                         struct nd_scalar_sample *out)
{
    const struct nd_ask ask = make_ask(e->operator_name, dtype, setting);
    size_t n = N_SAMPLES * nd_ask_elems(&ask.x);
    double *qvalues = nd_experiment_alloc(e, n, sizeof *qvalues),
           *values = nd_experiment_alloc(e, n, sizeof *values);
    if (!nd_experiment_goes_on(e))
        return;
    draw(&ask, seed, qvalues);
    nd_experiment_check(e, nd_ask_values(&ask, qvalues, N_SAMPLES, false, values, e->err));
    *out = (struct nd_scalar_sample){.scale = ask.scale_y,
                                     .zero = (double)ask.zero_y,
                                     .high = ask.dtype == ND_DTYPE_U8 ? 255 : 65535,
                                     .n = n,
                                     .values = values,
                                     .qvalues = nd_experiment_ask(e, &ask, qvalues, N_SAMPLES)};
    if (out->qvalues != NULL)
        nd_experiment_digest(e, out->qvalues, n);
}

static void tell(struct nd_experiment *e, const struct nd_scalar_sample samples[N_SETTINGS], json_t *entries)
{
    enum { MAX_NAMES = 4 };
    struct nd_scalar_findings f = {.n_qvalues = 0};
    char buf[ND_SCALAR_NAME_BYTES];
    if (nd_experiment_goes_on(e))
        nd_scalar_solve(samples, N_SETTINGS, &f);
    bool is_known = f.n_arithmetics > 0 && f.n_qvalues >= ND_CONFIRMING_QVALUES;
    json_t *entry = nd_experiment_tell(e, entries, is_known);
    if (entry == NULL)
        return;
    nd_scalar_tell(e, entry, &f, MAX_NAMES);
    nd_tell_line(
        e, entry,
        "%.3f %% of the quantised values are not the exact value rounded, by at most %.0f, %+.4f in the mean",
        f.n_qvalues > 0 ? 100.0 * (double)f.n_off / (double)f.n_qvalues : 0.0, f.largest_off,
        f.n_qvalues > 0 ? f.sum_off / (double)f.n_qvalues : 0.0);
    nd_tell_text(e, entry, "answers", e->answers.text);
    nd_tell_counts(e, entry, ND_COUNTS({"settings", N_SETTINGS}, {"values", f.n_qvalues}, {"off", f.n_off}));
    nd_tell(e, nd_tell_object(e, entry, "evidence"), "largest_off", json_real(f.largest_off));
    if (is_known)
        return;
    nd_tell_nearest(e, entry, nd_scalar_name(&f.nearest, buf), f.n_nearest_wrong);
    nd_tell_undecided(
        e, entry, "the arithmetic",
        "a family that this version does not know: excluded is one rounding of the exact value, in "
        "double, float32, half precision and bfloat16");
}

static void take_subject(struct nd_experiment *e, int kind, json_t *entries)
{
    struct nd_scalar_sample samples[N_SETTINGS];
    uint64_t seed = 17;
    for (size_t s = 0; s < N_SETTINGS; s++)
        take_setting(e, (enum nd_dtype)kind, s, &seed, &samples[s]);
    tell(e, samples, entries);
}

enum nd_status nd_section_normalise(struct nd_bench *bench, json_t *entries, struct nd_error *err)
{
    static const struct nd_subject subjects[] = {{"Softmax", "u8 -> u8", ND_DTYPE_U8},
                                                 {"LayerNormalization", "u8 -> u8", ND_DTYPE_U8},
                                                 {"InstanceNormalization", "u8 -> u8", ND_DTYPE_U8},
                                                 {"Softmax", "u16 -> u16", ND_DTYPE_U16},
                                                 {"LayerNormalization", "u16 -> u16", ND_DTYPE_U16},
                                                 {"InstanceNormalization", "u16 -> u16", ND_DTYPE_U16}};
    return nd_experiment_take_all(bench, subjects, sizeof subjects / sizeof subjects[0], take_subject, entries,
                                  err);
}
