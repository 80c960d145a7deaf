/* Sums of products of uint8 codes, requantised to uint8. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "fingerprint/linear.h"
#include "fingerprint/section.h"

static const char types[] = "u8 x u8 -> u8";

static json_t *name_programs(const struct nd_linear_fingerprint *f)
{
    char buf[ND_REQUANTISE_NAME_BYTES];
    json_t *names = json_array();
    for (size_t i = 0; names != NULL && i < f->found.n_programs; i++)
        json_array_append_new(names, json_string(nd_requantise_name(&f->found.programs[i], buf)));
    return names;
}

/* The parameters of the first program, which stands for all that are left. */
static json_t *describe(const struct nd_requantise *p)
{
    json_t *out = json_object();
    bool is_whole = out != NULL;
    if (is_whole && p->multiplier_bits != ND_MULTIPLIER_EXACT)
        is_whole =
            nd_section_set(out, "multiplier_bits", json_integer(p->multiplier_bits)) &&
            nd_section_set(out, "multiplier_rounding", json_string(nd_rounding_name(p->multiplier_rounding)));
    if (is_whole && p->has_granule)
        is_whole = nd_section_set(out, "granule_bits", json_integer(p->granule_bits)) &&
                   nd_section_set(out, "half_granule", json_boolean(p->has_half_granule));
    if (is_whole)
        is_whole =
            nd_section_set(out, "zero_point", json_string(p->folds_zero ? "before the shift" : "after it")) &&
            nd_section_set(out, "rounding", json_string(nd_rounding_name(p->rounding)));
    if (is_whole && p->folds_zero)
        is_whole =
            nd_section_set(out, "zero_point_rounding", json_string(nd_rounding_name(p->fold_rounding))) &&
            nd_section_set(out, "zero_point_quotient", json_string(p->is_fold_f32 ? "float32" : "double"));
    if (is_whole)
        return out;
    json_decref(out);
    return NULL;
}

static json_t *count_evidence(const struct nd_linear_fingerprint *f)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "staircases", (json_int_t)f->n_staircases, "codes",
                     (json_int_t)f->found.n_codes, "deciding", (json_int_t)f->found.n_deciding, "monotone",
                     (json_int_t)f->found.n_rising, "fresh", (json_int_t)f->n_fresh, "right",
                     (json_int_t)f->n_right);
}

/* What the programs that are left disagree about. */
static bool tell_undecided(const struct nd_linear_fingerprint *f, json_t *entry)
{
    const struct nd_requantise *first = f->found.programs;
    bool rounding = false, whole = false, multiplier = false, fold = false;
    for (size_t i = 1; i < f->found.n_programs; i++) {
        const struct nd_requantise *p = &f->found.programs[i];
        rounding = rounding || p->rounding != first->rounding;
        whole = whole || p->is_granule_whole != first->is_granule_whole;
        fold = fold || p->folds_zero != first->folds_zero || p->fold_rounding != first->fold_rounding ||
               p->is_fold_f32 != first->is_fold_f32;
        multiplier = multiplier || p->multiplier_bits != first->multiplier_bits ||
                     p->multiplier_rounding != first->multiplier_rounding;
    }
    const char *ties = first->has_half_granule ? "none that the granule leaves: no product is a tie"
                       : first->folds_zero     ? "none: ties on which they differ are clipped"
                                               : "multipliers that are powers of two, which make ties";
    return (!rounding || nd_section_undecided(entry, "where a product that is a tie goes", ties)) &&
           (!fold || nd_section_undecided(entry, "how the zero point is folded",
                                          "zero points whose quotient by the multiplier is near a tie")) &&
           (!whole ||
            nd_section_undecided(entry, "whether the granule may be a fraction",
                                 "a multiplier above 1/4 with accumulators that are fractions: none")) &&
           (!multiplier || nd_section_undecided(entry, "the bits of the multiplier",
                                                "longer sums of products under smaller multipliers"));
}

static bool tell(const struct nd_linear_fingerprint *f, json_t *entries)
{
    bool is_known = nd_linear_fingerprint_is_confirmed(f);
    const char *verdict = f->has_failed   ? "failed"
                          : !f->is_on_npu ? "not on the NPU"
                          : is_known      ? "identified"
                                          : "not identified";
    json_t *entry = nd_section_entry(entries, nd_linear_form_name(f->form), types, verdict, f->provider);
    if (entry == NULL)
        return false;
    if (f->has_failed)
        return nd_section_set(entry, "failure", json_string(f->failure.message));
    if (!nd_section_set(entry, "evidence", count_evidence(f)) ||
        !nd_section_set(entry, "programs", name_programs(f)))
        return false;
    if (f->found.n_programs > 0)
        return (!is_known || nd_section_set(entry, "parameters", describe(&f->found.programs[0]))) &&
               tell_undecided(f, entry);
    char buf[ND_REQUANTISE_NAME_BYTES];
    return nd_section_set(entry, "nearest", json_string(nd_requantise_name(&f->found.nearest, buf))) &&
           nd_section_set(entry, "nearest_wrong", json_integer((json_int_t)f->found.n_nearest_wrong)) &&
           nd_section_undecided(entry, "the program", "a family that this version does not know");
}

enum nd_status nd_section_linear_u8(struct nd_bench *bench, json_t *entries, struct nd_error *err)
{
    static const enum nd_linear_form forms[] = {ND_FORM_CONV, ND_FORM_GEMM, ND_FORM_MATMUL};
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < sizeof forms / sizeof forms[0]; i++) {
        struct nd_linear_fingerprint f;
        status = nd_linear_fingerprint_take(bench, forms[i], &f, err);
        if (status == ND_OK && !tell(&f, entries))
            status = nd_fail_memory(err);
        if (status == ND_OK)
            nd_linear_fingerprint_deinit(&f);
    }
    return status;
}
