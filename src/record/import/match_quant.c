#include "record/import/match_quant.h"

#include <string.h>

#include "record/probes/element.h"

struct quant_source {
    const struct nd_quant *quant;
    const char *from;
};

static bool is_same_quant(const struct nd_quant *a, const struct nd_quant *b)
{
    return a->n == b->n && (a->n < 2 || a->axis == b->axis) &&
           memcmp(a->scale, b->scale, a->n * sizeof *a->scale) == 0 &&
           memcmp(a->zero_point, b->zero_point, a->n * sizeof *a->zero_point) == 0;
}

static enum nd_status check_quant(const struct nd_imported_tensor *t, const struct quant_source *source,
                                  struct nd_error *err)
{
    const struct nd_quant *quant = source->quant;
    if (!nd_dtype_is_integer(t->dtype))
        return nd_fail(err, ND_E_IMPORT_MISMATCH, t->name,
                       "%s is %s; the scale that %s states is for integer codes", t->where,
                       nd_dtype_name(t->dtype), source->from);
    if (quant->n > 1 &&
        (quant->axis < 0 || quant->axis >= t->shape.rank || t->shape.dims[quant->axis] != (int64_t)quant->n))
        return nd_fail(
            err, ND_E_IMPORT_MISMATCH, t->name,
            "%s: %s states %zu scales along dimension %d, which the tensor does not have in that length",
            t->where, source->from, quant->n, quant->axis);
    return ND_OK;
}

/* A zero point is a code. One that is none is QNN's offset, whose sign is the other, taken for it. */
static enum nd_status check_zero_points(const struct nd_imported_tensor *t, const struct nd_map_item *item,
                                        struct nd_error *err)
{
    const struct nd_code_range range = nd_code_range_of(t->dtype);
    for (size_t i = 0; i < item->quant.n; i++) {
        int64_t zero_point = item->quant.zero_point[i];
        if (zero_point < range.min || (zero_point > 0 && (uint64_t)zero_point > range.max))
            return nd_fail(
                err, ND_E_IMPORT_MISMATCH, t->name,
                "%s: %s states the zero point %lld, which is no %s; an offset as QNN writes it is given "
                "as 'offset' with 'convention: qnn'",
                t->where, item->where, (long long)zero_point, nd_dtype_name(t->dtype));
    }
    return ND_OK;
}

enum nd_status nd_match_quant(const struct nd_imported_tensor *t, const struct nd_map_item *item,
                              const struct nd_edge *model, struct nd_quant *out, const char **from,
                              struct nd_error *err)
{
    static const struct nd_quant none = {.axis = -1};
    bool is_codes = nd_dtype_is_integer(t->dtype);
    const struct quant_source sources[] = {
        {item != NULL ? &item->quant : &none, item != NULL ? item->where : ""},
        {is_codes && model != NULL ? &model->quant : &none, "the model"},
        {is_codes ? &t->quant : &none, "the file"},
    };
    const struct quant_source *chosen = NULL;
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        if (sources[i].quant->n == 0)
            continue;
        enum nd_status status = check_quant(t, &sources[i], err);
        if (status == ND_OK && sources[i].quant == (item != NULL ? &item->quant : NULL))
            status = check_zero_points(t, item, err);
        if (status != ND_OK)
            return status;
        if (chosen == NULL)
            chosen = &sources[i];
        else if (!is_same_quant(chosen->quant, sources[i].quant))
            return nd_fail(err, ND_E_IMPORT_MISMATCH, t->name,
                           "%s: %s states scale %.9g, zero point %lld%s, but %s scale %.9g, zero point %lld%s",
                           t->where, chosen->from, (double)chosen->quant->scale[0],
                           (long long)chosen->quant->zero_point[0], chosen->quant->n > 1 ? ", ..." : "",
                           sources[i].from, (double)sources[i].quant->scale[0],
                           (long long)sources[i].quant->zero_point[0], sources[i].quant->n > 1 ? ", ..." : "");
    }
    *out = chosen != NULL ? *chosen->quant : none;
    *from = chosen != NULL ? chosen->from : "not stated";
    return ND_OK;
}
