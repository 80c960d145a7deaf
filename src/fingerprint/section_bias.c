/* How biases enter products of uint8 codes. */
#include <string.h>

#include "base/error.h"
#include "fingerprint/bias.h"
#include "fingerprint/section.h"

static const char operator_name[] = "Conv";
static const char *const types[] = {"u8 x u8 + i32 -> u8", "u8 x i8 per channel + i32 -> u8"};
enum { MOST_NAMES = 4 };

static json_t *name_programs(const struct nd_bias_findings *found)
{
    char buf[ND_BIAS_NAME_BYTES];
    json_t *names = json_array();
    for (size_t i = 0; names != NULL && i < found->n_programs && i < MOST_NAMES; i++)
        json_array_append_new(names, json_string(nd_bias_name(&found->programs[i], buf)));
    return names;
}

/* The parameters of the first program, which stands for all that are left. */
static json_t *describe(const struct nd_bias_fingerprint *f)
{
    const struct nd_bias_program *p = &f->found.programs[0];
    json_t *out = json_object();
    static const char *const rescales[] = {"as it is", "rescaled, half-even", "rescaled, to-zero",
                                           "rescaled, floor"};
    bool is_whole =
        out != NULL && nd_section_set(out, "other_scale", json_string(rescales[p->rescale])) &&
        nd_section_set(out, "precision", json_string(p->is_f32 ? "float32" : "double")) &&
        nd_section_set(out, "rounding", json_string(p->is_whole ? nd_rounding_name(p->rounding) : "none")) &&
        nd_section_set(out, "zero_point", json_string(p->joins_zero ? "added before rounding" : "apart"));
    if (is_whole && p->common_bits > 0)
        is_whole = nd_section_set(out, "common_bits", json_integer(p->common_bits)) &&
                   nd_section_set(out, "common_rounding", json_string(nd_rounding_name(p->common_rounding)));
    if (is_whole && f->is_per_channel)
        is_whole = nd_section_set(out, "bias_scale",
                                  json_string(p->has_largest_bias_scale ? "the greatest" : "the channel's")) &&
                   nd_section_set(out, "weight_scale",
                                  json_string(p->has_largest_weight_scale ? "the greatest" : "the channel's"));
    if (is_whole)
        return out;
    json_decref(out);
    return NULL;
}

static json_t *count_evidence(const struct nd_bias_fingerprint *f)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "codes", (json_int_t)f->n_codes,
                     "settings", (json_int_t)f->n_settings, "refused", (json_int_t)f->n_refused, "not_on_npu",
                     (json_int_t)f->n_elsewhere, "columns", (json_int_t)f->found.n_readings, "columns_wrong",
                     (json_int_t)f->found.n_wrong, "programs_left", (json_int_t)f->found.n_programs, "fresh",
                     (json_int_t)f->n_fresh, "right", (json_int_t)f->n_right);
}

static bool tell_undecided(const struct nd_bias_findings *found, json_t *entry)
{
    bool precision = false, common = false, scales = false, rounding = false;
    const struct nd_bias_program *a = &found->programs[0];
    for (size_t i = 1; i < found->n_programs; i++) {
        const struct nd_bias_program *b = &found->programs[i];
        precision = precision || a->is_f32 != b->is_f32;
        common = common || a->common_bits != b->common_bits || a->common_rounding != b->common_rounding ||
                 a->has_reciprocal != b->has_reciprocal;
        scales = scales || a->rescale != b->rescale || a->has_largest_bias_scale != b->has_largest_bias_scale ||
                 a->has_largest_weight_scale != b->has_largest_weight_scale;
        rounding = rounding || a->is_whole != b->is_whole || a->rounding != b->rounding ||
                   a->joins_zero != b->joins_zero;
    }
    return (!precision || nd_section_undecided(entry, "double or float32", "more columns with great biases")) &&
           (!common || nd_section_undecided(entry, "the common step of all biases",
                                            "biases at ties of the steps, next to a great one")) &&
           (!scales || nd_section_undecided(entry, "whose scales are taken", "more uneven scales")) &&
           (!rounding || nd_section_undecided(entry, "how the shift is rounded",
                                              "biases whose shift, or zero points whose quotient, is a tie"));
}

static bool tell(const struct nd_bias_fingerprint *f, json_t *entries)
{
    bool is_known = nd_bias_fingerprint_is_confirmed(f);
    const char *verdict = !f->is_on_npu ? "not on the NPU" : is_known ? "identified" : "not identified";
    json_t *entry = nd_section_entry(entries, operator_name, types[f->is_per_channel], verdict, f->provider);
    if (entry == NULL || !nd_section_set(entry, "evidence", count_evidence(f)) ||
        !nd_section_set(entry, "programs", name_programs(&f->found)))
        return false;
    if (f->found.n_programs == 0)
        return nd_section_undecided(entry, "the program", "a family that this version does not know");
    return (!is_known || nd_section_set(entry, "parameters", describe(f))) && tell_undecided(&f->found, entry);
}

/* Without a program for the sums nothing is said about what is added to them. */
static enum nd_status tell_unknown(const struct nd_weight_fingerprint *weights, json_t *entries,
                                   struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < 2; i++) {
        if (weights->has_failed) {
            status = nd_section_failed(entries, operator_name, types[i], &weights->failure, err);
            continue;
        }
        const char *verdict = weights->is_on_npu ? "not identified" : "not on the NPU";
        json_t *entry = nd_section_entry(entries, operator_name, types[i], verdict, weights->provider);
        if (entry == NULL ||
            !nd_section_undecided(entry, "the biases",
                                  "known programs for sums and weights: sections linear-u8 and weights"))
            status = nd_fail_memory(err);
    }
    return status;
}

enum nd_status nd_section_bias(struct nd_bench *bench, json_t *entries, struct nd_error *err)
{
    struct nd_weight_fingerprint weights;
    enum nd_status status = nd_weight_fingerprint_take(bench, &weights, err);
    if (status != ND_OK)
        return status;
    bool is_known = nd_weight_fingerprint_is_confirmed(&weights);
    if (!is_known)
        status = tell_unknown(&weights, entries, err);
    for (int i = 0; is_known && status == ND_OK && i < 2; i++) {
        struct nd_bias_fingerprint f;
        status = nd_bias_fingerprint_take(bench, &weights, i == 1, &f, err);
        if (status != ND_OK)
            break;
        if (f.has_failed)
            status = nd_section_failed(entries, operator_name, types[i], &f.failure, err);
        else if (!tell(&f, entries))
            status = nd_fail_memory(err);
        nd_bias_fingerprint_deinit(&f);
    }
    nd_weight_fingerprint_deinit(&weights);
    return status;
}
