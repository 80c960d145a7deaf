/* Sums, differences and products of two uint8 tensors. */
#include <inttypes.h>
#include <stdio.h>

#include "base/error.h"
#include "fingerprint/elementwise.h"
#include "fingerprint/linear.h"
#include "fingerprint/section.h"

static const char types[] = "u8, u8 -> u8";

static bool is_confirmed(const struct nd_elementwise_fingerprint *f)
{
    return f->found.n_programs > 0 && nd_fresh_is_enough(f->n_fresh, f->n_right);
}

static json_t *name_programs(const struct nd_elementwise_fingerprint *f)
{
    char buf[ND_ELEMENTWISE_NAME_BYTES];
    json_t *names = json_array();
    for (size_t i = 0; names != NULL && i < f->found.n_programs; i++)
        json_array_append_new(names, json_string(nd_elementwise_name(&f->found.programs[i], f->op, buf)));
    return names;
}

static bool describe_fixed(json_t *out, const struct nd_elementwise_program *p)
{
    static const char *const keys[] = {"none", "r1 + r2", "max(r1, r2)", "r"};
    bool is_whole =
        nd_section_set(out, "fraction_key", json_string(keys[p->key])) &&
        (p->key == ND_KEY_NONE || nd_section_set(out, "fraction_shift", json_integer(p->shift))) &&
        (p->cap == 0 || nd_section_set(out, "fraction_cap", json_integer(p->cap))) &&
        nd_section_set(out, "multiplier_rounding", json_string(nd_rounding_name(p->multiplier_rounding))) &&
        nd_section_set(out, "first_shift", json_integer(p->first)) &&
        nd_section_set(out, "first_rounding_constant",
                       json_integer(p->rounds_first ? (json_int_t)1 << (p->first - 1) : 0)) &&
        nd_section_set(out, "offset_rounding", json_string(nd_rounding_name(p->rounding)));
    if (is_whole && p->has_centre)
        is_whole = nd_section_set(out, "centre", json_real(p->centre)) &&
                   nd_section_set(out, "centre_gain_log2", json_integer(p->centre_gain)) &&
                   nd_section_set(out, "centre_granule_log2", json_integer(p->centre_bits));
    if (is_whole && p->offset_bits > 0)
        is_whole = nd_section_set(out, "offset_bits", json_integer(p->offset_bits)) &&
                   nd_section_set(out, "offset_limit", json_string(nd_offset_limit_name(p->limit)));
    return is_whole;
}

/* The parameters of the first program, which stands for all that are left. */
static json_t *describe(const struct nd_elementwise_program *p)
{
    json_t *out = json_object();
    bool is_whole = out != NULL;
    if (is_whole && p->kind == ND_ELEMENTWISE_FIXED)
        is_whole = describe_fixed(out, p);
    else if (is_whole)
        is_whole = nd_section_set(out, "rounding", json_string(nd_rounding_name(p->rounding)));
    if (is_whole)
        return out;
    json_decref(out);
    return NULL;
}

static json_t *count_evidence(const struct nd_elementwise_fingerprint *f)
{
    return json_pack("{s:I, s:I, s:I, s:I}", "grids", (json_int_t)f->n_grids, "codes",
                     (json_int_t)(f->n_grids * ND_ELEMENTWISE_CODES), "fresh", (json_int_t)f->n_fresh, "right",
                     (json_int_t)f->n_right);
}

static bool tell_undecided(const struct nd_elementwise_fingerprint *f, json_t *entry)
{
    const struct nd_elementwise_program *first = f->found.programs;
    bool kind = false, scaling = false, shift = false, offset = false;
    for (size_t i = 1; i < f->found.n_programs; i++) {
        const struct nd_elementwise_program *p = &f->found.programs[i];
        kind = kind || p->kind != first->kind;
        scaling = scaling || p->key != first->key || p->shift != first->shift || p->cap != first->cap ||
                  p->multiplier_rounding != first->multiplier_rounding ||
                  p->offset_bits != first->offset_bits || p->limit != first->limit;
        shift = shift || p->first != first->first || p->rounds_first != first->rounds_first;
        offset = offset || p->rounding != first->rounding || p->has_centre != first->has_centre ||
                 p->centre_bits != first->centre_bits || p->centre_gain != first->centre_gain ||
                 p->centre < first->centre || p->centre > first->centre;
    }
    const char *probe = "grids of 65 536 pairs under more scales";
    return (!kind ||
            nd_section_undecided(entry, "whether it is fixed point, float32 or the rounded real number",
                                 "scales whose results lie within 2^-24 of a tie")) &&
           (!scaling || nd_section_undecided(entry, "the bits of the multipliers", probe)) &&
           (!shift || nd_section_undecided(entry, "the first shift and its rounding", probe)) &&
           (!offset || nd_section_undecided(entry, "the rounding of the offset", probe)) &&
           (!f->found.is_cut || nd_section_undecided(entry, "programs beyond those that are listed", probe));
}

static bool tell_nearest(const struct nd_elementwise_fingerprint *f, json_t *entry)
{
    char buf[ND_ELEMENTWISE_NAME_BYTES];
    return nd_section_set(entry, "nearest", json_string(nd_elementwise_name(&f->found.nearest, f->op, buf))) &&
           nd_section_set(entry, "nearest_wrong", json_integer((json_int_t)f->found.n_nearest_wrong)) &&
           nd_section_undecided(entry, "the program", "a family that this version does not know");
}

static bool tell(const struct nd_elementwise_fingerprint *f, json_t *entries)
{
    char digest[40];
    bool is_known = is_confirmed(f);
    const char *verdict = !f->is_on_npu ? "not on the NPU" : is_known ? "identified" : "not identified";
    json_t *entry = nd_section_entry(entries, nd_elementwise_op_name(f->op), types, verdict, f->provider);
    snprintf(digest, sizeof digest, "%016" PRIx64 "%016" PRIx64, f->answers.high, f->answers.low);
    if (entry == NULL || !nd_section_set(entry, "evidence", count_evidence(f)) ||
        !nd_section_set(entry, "programs", name_programs(f)) ||
        !nd_section_set(entry, "answers", json_string(digest)))
        return false;
    if (f->found.n_programs == 0)
        return tell_nearest(f, entry);
    return (!is_known || nd_section_set(entry, "parameters", describe(&f->found.programs[0]))) &&
           tell_undecided(f, entry);
}

enum nd_status nd_section_elementwise_u8(struct nd_bench *bench, json_t *entries, struct nd_error *err)
{
    static const enum nd_elementwise_op ops[] = {ND_ELEMENTWISE_ADD, ND_ELEMENTWISE_MUL, ND_ELEMENTWISE_SUB};
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < sizeof ops / sizeof ops[0]; i++) {
        struct nd_elementwise_fingerprint f;
        status = nd_elementwise_take(bench, ops[i], &f, err);
        if (status != ND_OK)
            break;
        if (f.has_failed)
            status = nd_section_failed(entries, nd_elementwise_op_name(f.op), types, &f.failure, err);
        else if (!tell(&f, entries))
            status = nd_fail_memory(err);
        nd_elementwise_deinit(&f);
    }
    return status;
}
