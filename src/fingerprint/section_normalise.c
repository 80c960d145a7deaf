/* Softmax and normalisations: how far a device is from the exact function. No program of theirs is known that
 * gives every code; what was tried is what one rounding of the exact value can be, in several precisions. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "fingerprint/ask.h"
#include "fingerprint/linear.h"
#include "fingerprint/scalar.h"
#include "fingerprint/section.h"

enum {
    N_ROWS = 256,
    N_COLUMNS = 64,
    N_SETTINGS = 2,
    N_SAMPLES = 4, /* 65 536 codes a setting */
};

static const uint8_t gains[N_COLUMNS] = {
    200, 180, 255, 90, 140, 220, 10,  128, 199, 64,  32,  250, 177, 143, 99,  61,  203, 187, 251, 93, 144, 225,
    17,  121, 190, 60, 37,  253, 171, 149, 91,  66,  211, 188, 254, 97,  146, 229, 11,  129, 193, 68, 31,  247,
    179, 141, 95,  63, 208, 183, 249, 92,  145, 221, 13,  127, 197, 69,  35,  252, 173, 147, 98,  62};
static const int32_t shifts[N_COLUMNS] = {
    0}; /* of the bias: it has a rounding of its own, and is not asked about */

static const struct form {
    const char *op_type;
    enum nd_dtype dtype;
} forms[] = {
    {"Softmax", ND_DTYPE_U8},  {"LayerNormalization", ND_DTYPE_U8},  {"InstanceNormalization", ND_DTYPE_U8},
    {"Softmax", ND_DTYPE_U16}, {"LayerNormalization", ND_DTYPE_U16}, {"InstanceNormalization", ND_DTYPE_U16}};

struct norm {
    const struct form *form;
    bool has_failed, is_on_npu;
    struct nd_trial_result failure;
    char provider[64];
    struct nd_scalar_sample samples[N_SETTINGS];
    size_t n_taken;
    char answers[ND_ASK_DIGEST_BYTES * N_SETTINGS];
};

/* Rows of N_COLUMNS; of InstanceNormalization images of them, channel by channel. */
static struct nd_ask make_ask(const struct norm *norm, size_t setting)
{
    double most = norm->form->dtype == ND_DTYPE_U8 ? 255 : 65535;
    bool is_instance = strcmp(norm->form->op_type, "InstanceNormalization") == 0;
    struct nd_ask ask = {.op_type = norm->form->op_type, .dtype = norm->form->dtype};
    ask.x = is_instance ? (struct nd_shape){.rank = 4, .dims = {1, N_COLUMNS, 16, 16}}
                        : (struct nd_shape){.rank = 3, .dims = {1, N_ROWS, N_COLUMNS}};
    ask.y = ask.x;
    ask.scale_x = (float)((setting == 0 ? 9.1 : 15.7) / most);
    ask.zero_x = (int64_t)rint(most * 0.45);
    ask.n_attributes = 1;
    if (strcmp(norm->form->op_type, "Softmax") == 0) {
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
static void draw(const struct nd_ask *ask, uint64_t *seed, double *codes)
{
    double most = ask->dtype == ND_DTYPE_U8 ? 255 : 65535;
    size_t row = strcmp(ask->op_type, "InstanceNormalization") == 0 ? N_ROWS : N_COLUMNS;
    for (size_t i = 0; i < N_SAMPLES * nd_ask_elems(&ask->x); i += row) {
        double level = nd_random_between(seed, 0.2, 0.8), width = nd_random_between(seed, 0.02, 0.5);
        for (size_t j = i; j < i + row; j++)
            codes[j] = rint(most * fmin(fmax(level + width * nd_random_between(seed, -1, 1), 0), 1));
    }
}

static enum nd_status take_setting(struct nd_bench *bench, struct norm *norm, size_t setting, uint64_t *seed,
                                   struct nd_error *err)
{
    const struct nd_ask ask = make_ask(norm, setting);
    size_t n = N_SAMPLES * nd_ask_elems(&ask.x);
    struct nd_trial_result result = {0};
    double *codes = nd_calloc(n, sizeof *codes), *values = nd_calloc(n, sizeof *values);
    enum nd_status status = codes != NULL && values != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK) {
        draw(&ask, seed, codes);
        status = nd_ask_values(&ask, codes, N_SAMPLES, false, values, err);
    }
    if (status == ND_OK)
        status = nd_ask_device(bench, &ask, codes, N_SAMPLES, &result, err);
    free(codes);
    if (status != ND_OK || result.has_failed) {
        free(values);
        if (status == ND_OK) {
            norm->has_failed = true;
            norm->failure = result;
        }
        return status;
    }
    norm->is_on_npu = norm->is_on_npu && result.is_on_npu;
    memcpy(norm->provider, result.provider, sizeof norm->provider);
    nd_ask_digest(result.x, n, norm->answers + strlen(norm->answers));
    norm->samples[norm->n_taken++] = (struct nd_scalar_sample){.scale = ask.scale_y,
                                                               .zero = (double)ask.zero_y,
                                                               .high = ask.dtype == ND_DTYPE_U8 ? 255 : 65535,
                                                               .n = n,
                                                               .values = values,
                                                               .codes = result.x}; /* freed with it */
    return ND_OK;
}

static bool tell(const struct norm *norm, json_t *entries)
{
    struct nd_scalar_findings f;
    char buf[ND_SCALAR_NAME_BYTES], line[160];
    nd_scalar_solve(norm->samples, norm->n_taken, &f);
    bool is_known = f.n_programs > 0 && f.n_codes >= ND_CONFIRMING_CODES;
    json_t *entry = nd_section_entry(entries, norm->form->op_type,
                                     norm->form->dtype == ND_DTYPE_U8 ? "u8 -> u8" : "u16 -> u16",
                                     !norm->is_on_npu ? "not on the NPU"
                                     : is_known       ? "identified"
                                                      : "not identified",
                                     norm->provider);
    json_t *names = json_array(), *lines = json_array();
    for (size_t i = 0; names != NULL && i < f.n_programs && i < 4; i++)
        json_array_append_new(names, json_string(nd_scalar_name(&f.programs[i], buf)));
    snprintf(line, sizeof line,
             "%.3f %% of the codes are not the exact value rounded, by at most %.0f, %+.4f in the mean",
             f.n_codes > 0 ? 100.0 * (double)f.n_off / (double)f.n_codes : 0.0, f.largest_off,
             f.n_codes > 0 ? f.sum_off / (double)f.n_codes : 0.0);
    json_array_append_new(lines, json_string(line));
    if (entry == NULL || !nd_section_set(entry, "programs", names) || !nd_section_set(entry, "text", lines) ||
        !nd_section_set(entry, "answers", json_string(norm->answers)) ||
        !nd_section_set(entry, "evidence",
                        json_pack("{s:I, s:I, s:I, s:f}", "settings", (json_int_t)norm->n_taken, "codes",
                                  (json_int_t)f.n_codes, "off", (json_int_t)f.n_off, "largest_off",
                                  f.largest_off)))
        return false;
    return is_known ||
           (nd_section_set(entry, "nearest", json_string(nd_scalar_name(&f.nearest, buf))) &&
            nd_section_set(entry, "nearest_wrong", json_integer((json_int_t)f.n_nearest_wrong)) &&
            nd_section_undecided(entry, "the program",
                                 "a family that this version does not know: excluded is one rounding of the "
                                 "exact value, in double, float32, half precision and bfloat16"));
}

enum nd_status nd_section_normalise(struct nd_bench *bench, json_t *entries, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < sizeof forms / sizeof forms[0]; i++) {
        struct norm norm = {.form = &forms[i], .is_on_npu = true};
        uint64_t seed = 17;
        for (size_t s = 0; status == ND_OK && !norm.has_failed && s < N_SETTINGS; s++)
            status = take_setting(bench, &norm, s, &seed, err);
        if (status == ND_OK && norm.has_failed)
            status = nd_section_failed(entries, forms[i].op_type,
                                       forms[i].dtype == ND_DTYPE_U8 ? "u8 -> u8" : "u16 -> u16", &norm.failure,
                                       err);
        else if (status == ND_OK && !tell(&norm, entries))
            status = nd_fail_memory(err);
        for (size_t s = 0; s < norm.n_taken; s++) {
            free((void *)(uintptr_t)norm.samples[s].values);
            free((void *)(uintptr_t)norm.samples[s].codes);
        }
    }
    return status;
}
