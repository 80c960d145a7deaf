/* Sums of products of uint16 activations and uint8 weights, requantised to uint16. */
#include <string.h>

#include "base/error.h"
#include "fingerprint/linear_u16.h"
#include "fingerprint/section.h"

static const char types[] = "u16 x u8 -> u16";

static bool is_confirmed(const struct nd_word_fingerprint *f)
{
    return f->found.n_programs > 0 && nd_fresh_is_enough(f->n_fresh, f->n_right);
}

static json_t *name_programs(const struct nd_word_fingerprint *f)
{
    char buf[ND_WORD_NAME_BYTES];
    json_t *names = json_array();
    for (size_t i = 0; names != NULL && i < f->found.n_programs; i++)
        json_array_append_new(names, json_string(nd_word_name(&f->found.programs[i], buf)));
    return names;
}

static bool describe_drop(json_t *out, const struct nd_word_program *p)
{
    if (!nd_section_set(out, "dropped_bits", json_integer(p->dropped_bits)))
        return false;
    if (p->dropped_bits == 0)
        return true;
    return nd_section_set(out, "dropped_rounding", json_string(nd_rounding_name(p->sum_rounding))) &&
           (p->drops_together ||
            nd_section_set(out, "zero_part_rounding", json_string(nd_rounding_name(p->zero_rounding))));
}

static bool describe_rest(json_t *out, const struct nd_requantise *p)
{
    bool is_whole =
        nd_section_set(out, "rounding", json_string(nd_rounding_name(p->rounding))) &&
        nd_section_set(out, "zero_point", json_string(p->folds_zero ? "before the shift" : "after it"));
    if (is_whole && p->folds_zero)
        is_whole =
            nd_section_set(out, "zero_point_rounding", json_string(nd_rounding_name(p->fold_rounding))) &&
            nd_section_set(out, "zero_point_quotient", json_string(p->is_fold_f32 ? "float32" : "double"));
    if (is_whole && p->multiplier_bits != ND_MULTIPLIER_EXACT)
        is_whole =
            nd_section_set(out, "multiplier_bits", json_integer(p->multiplier_bits)) &&
            nd_section_set(out, "multiplier_rounding", json_string(nd_rounding_name(p->multiplier_rounding)));
    if (is_whole && p->has_granule)
        is_whole = nd_section_set(out, "granule_bits", json_integer(p->granule_bits)) &&
                   nd_section_set(out, "half_granule", json_boolean(p->has_half_granule));
    return is_whole;
}

/* The parameters of the first program, which stands for all that are left. */
static json_t *describe(const struct nd_word_program *p)
{
    json_t *out = json_object();
    if (out != NULL && describe_drop(out, p) && describe_rest(out, &p->rest) &&
        nd_section_set(out, "multiplier_from", json_string(p->is_multiplier_f32 ? "float32" : "double")))
        return out;
    json_decref(out);
    return NULL;
}

static json_t *count_evidence(const struct nd_word_fingerprint *f)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "staircases", (json_int_t)f->n_staircases, "codes",
                     (json_int_t)f->stairs.n_codes, "deciding", (json_int_t)f->stairs.n_deciding, "random",
                     (json_int_t)f->found.n_codes, "random_right", (json_int_t)f->found.n_right, "fresh",
                     (json_int_t)f->n_fresh, "right", (json_int_t)f->n_right);
}

static bool tell_undecided(const struct nd_word_fingerprint *f, json_t *entry)
{
    const struct nd_word_program *first = f->found.programs;
    bool dropped = false, source = false, rounding = false, rest = false;
    for (size_t i = 1; i < f->found.n_programs; i++) {
        const struct nd_word_program *p = &f->found.programs[i];
        struct nd_requantise like = p->rest;
        char a[ND_REQUANTISE_NAME_BYTES], b[ND_REQUANTISE_NAME_BYTES];
        like.rounding = first->rest.rounding;
        dropped = dropped || p->dropped_bits != first->dropped_bits ||
                  p->drops_together != first->drops_together || p->sum_rounding != first->sum_rounding ||
                  p->zero_rounding != first->zero_rounding;
        source = source || p->is_multiplier_f32 != first->is_multiplier_f32;
        rounding = rounding || p->rest.rounding != first->rest.rounding;
        rest = rest || strcmp(nd_requantise_name(&first->rest, a), nd_requantise_name(&like, b)) != 0;
    }
    return (!dropped || nd_section_undecided(entry, "how the low bits are dropped", "more random codes")) &&
           (!source ||
            nd_section_undecided(entry, "whether the multiplier is made from doubles or from float32",
                                 "scales whose product is near a tie of the multiplier's bits")) &&
           (!rounding ||
            nd_section_undecided(entry, "where a product that is a tie goes",
                                 first->rest.has_granule ? "none that the granule leaves: no product is a tie"
                                                         : "none: ties on which they differ are clipped")) &&
           (!rest ||
            nd_section_undecided(entry, "multiplier and granule", "staircases under more multipliers"));
}

/* Where no program is known: what comes nearest on the staircases. */
static bool tell_nearest(const struct nd_word_fingerprint *f, json_t *entry)
{
    char buf[ND_REQUANTISE_NAME_BYTES];
    if (f->stairs.n_programs == 0 &&
        (!nd_section_set(entry, "nearest", json_string(nd_requantise_name(&f->stairs.nearest, buf))) ||
         !nd_section_set(entry, "nearest_wrong", json_integer((json_int_t)f->stairs.n_nearest_wrong))))
        return false;
    return nd_section_undecided(entry, "the program", "a family that this version does not know");
}

static bool tell(const struct nd_word_fingerprint *f, json_t *entries)
{
    bool is_known = is_confirmed(f);
    const char *verdict = !f->is_on_npu ? "not on the NPU" : is_known ? "identified" : "not identified";
    json_t *entry = nd_section_entry(entries, nd_linear_form_name(f->form), types, verdict, f->provider);
    if (entry == NULL || !nd_section_set(entry, "evidence", count_evidence(f)) ||
        !nd_section_set(entry, "programs", name_programs(f)))
        return false;
    if (!is_known)
        return tell_nearest(f, entry);
    return nd_section_set(entry, "parameters", describe(&f->found.programs[0])) && tell_undecided(f, entry);
}

enum nd_status nd_section_linear_u16(struct nd_bench *bench, json_t *entries, struct nd_error *err)
{
    static const enum nd_linear_form forms[] = {ND_FORM_MATMUL, ND_FORM_CONV};
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < sizeof forms / sizeof forms[0]; i++) {
        struct nd_word_fingerprint f;
        status = nd_word_fingerprint_take(bench, forms[i], &f, err);
        if (status != ND_OK)
            break;
        if (f.has_failed)
            status = nd_section_failed(entries, nd_linear_form_name(f.form), types, &f.failure, err);
        else if (!tell(&f, entries))
            status = nd_fail_memory(err);
        nd_word_fingerprint_deinit(&f);
    }
    return status;
}
