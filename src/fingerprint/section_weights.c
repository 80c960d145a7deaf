/* uint8 weights that do not fit 8 bits with a sign. */
#include "base/error.h"
#include "fingerprint/section.h"
#include "fingerprint/weights.h"

static const char operator_name[] = "Conv", types[] = "u8 x u8 asymmetric -> u8";
enum { MOST_NAMES = 4 };

static json_t *name_programs(const struct nd_weight_findings *found)
{
    char buf[ND_WEIGHT_NAME_BYTES];
    json_t *names = json_array();
    for (size_t i = 0; names != NULL && i < found->n_programs && i < MOST_NAMES; i++)
        json_array_append_new(names, json_string(nd_weight_name(&found->programs[i], buf)));
    return names;
}

/* The parameters of the first program, which stands for all that are left. */
static json_t *describe(const struct nd_weight_fingerprint *f)
{
    static const char *const scopes[] = {"stay what they are", "a column", "the tensor"};
    const struct nd_weight_program *p = &f->found.programs[0];
    char buf[ND_REQUANTISE_NAME_BYTES];
    json_t *out = json_object();
    bool is_whole = out != NULL && nd_section_set(out, "fits", json_string(scopes[p->scope])) &&
                    nd_section_set(out, "requantises", json_string(nd_requantise_name(&f->rest, buf)));
    if (is_whole && p->scope != ND_WEIGHTS_STAY) {
        is_whole = nd_section_set(out, "lowest", json_integer((json_int_t)p->lowest)) &&
                   nd_section_set(out, "greatest", json_integer((json_int_t)p->greatest)) &&
                   nd_section_set(out, "only_where_needed", json_boolean(!p->is_always)) &&
                   nd_section_set(out, "rounding", json_string(nd_rounding_name(p->rounding)));
        if (is_whole && p->r_bits != ND_MULTIPLIER_EXACT)
            is_whole = nd_section_set(out, "ratio_bits", json_integer(p->r_bits)) &&
                       nd_section_set(out, "ratio_rounding", json_string(nd_rounding_name(p->r_rounding)));
        if (is_whole && p->factor_bits != ND_MULTIPLIER_EXACT)
            is_whole =
                nd_section_set(out, "factor_bits", json_integer(p->factor_bits)) &&
                nd_section_set(out, "factor_rounding", json_string(nd_rounding_name(p->factor_rounding)));
    }
    if (is_whole)
        return out;
    json_decref(out);
    return NULL;
}

static json_t *count_evidence(const struct nd_weight_fingerprint *f)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "codes", (json_int_t)f->n_codes, "deciding",
                     (json_int_t)f->found.n_deciding, "wrong", (json_int_t)f->found.n_wrong, "weights_read",
                     (json_int_t)f->n_entries, "programs_left", (json_int_t)f->found.n_programs, "fresh",
                     (json_int_t)f->n_fresh, "right", (json_int_t)f->n_right);
}

static bool tell_undecided(const struct nd_weight_findings *found, json_t *entry)
{
    bool ratio = false, factor = false, other = false;
    const struct nd_weight_program *a = &found->programs[0];
    for (size_t i = 1; i < found->n_programs; i++) {
        const struct nd_weight_program *b = &found->programs[i];
        ratio = ratio || a->r_bits != b->r_bits || a->r_rounding != b->r_rounding;
        factor = factor || a->factor_bits != b->factor_bits || a->factor_rounding != b->factor_rounding ||
                 a->rounding != b->rounding;
        other = other || a->scope != b->scope || a->is_always != b->is_always || a->lowest < b->lowest ||
                a->lowest > b->lowest || a->greatest < b->greatest || a->greatest > b->greatest;
    }
    return (!ratio || nd_section_undecided(entry, "the bits of the ratio and its rounding",
                                           "columns of equal weights under more multipliers")) &&
           (!factor || nd_section_undecided(entry, "the factor of the weights and its rounding",
                                            "none of 8-bit codes where all give the same weights; else more "
                                            "great weights")) &&
           (!other ||
            nd_section_undecided(entry, "what the ratio is taken of", "more columns of equal weights"));
}

static bool tell(const struct nd_weight_fingerprint *f, json_t *entries)
{
    bool is_known = nd_weight_fingerprint_is_confirmed(f);
    const char *verdict = !f->is_on_npu ? "not on the NPU" : is_known ? "identified" : "not identified";
    json_t *entry = nd_section_entry(entries, operator_name, types, verdict, f->provider);
    if (entry == NULL)
        return false;
    if (!f->has_rest)
        return nd_section_undecided(entry, "the weights",
                                    "a known program for sums of weights that fit: section linear-u8");
    if (!nd_section_set(entry, "evidence", count_evidence(f)) ||
        !nd_section_set(entry, "programs", name_programs(&f->found)))
        return false;
    if (f->found.n_programs == 0)
        return nd_section_undecided(entry, "the program", "a family that this version does not know");
    return (!is_known || nd_section_set(entry, "parameters", describe(f))) && tell_undecided(&f->found, entry);
}

enum nd_status nd_section_weights(struct nd_bench *bench, json_t *entries, struct nd_error *err)
{
    struct nd_weight_fingerprint f;
    enum nd_status status = nd_weight_fingerprint_take(bench, &f, err);
    if (status != ND_OK)
        return status;
    if (f.has_failed)
        status = nd_section_failed(entries, operator_name, types, &f.failure, err);
    else if (!tell(&f, entries))
        status = nd_fail_memory(err);
    nd_weight_fingerprint_deinit(&f);
    return status;
}
