#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/text/explain.h"
#include "report/text/explain_words.h"

/* Of the first two columns. */
struct widths {
    int name, op;
};

static const char *remark(const struct nd_explained_step *step, const struct nd_explained_unit *unit)
{
    if (!unit->is_examined)
        return "not examined";
    if (unit->state == ND_LAYER_FAULTY)
        return "faulty";
    if (unit->state == ND_LAYER_UNEXPLAINED)
        return "unexplained";
    if (unit->is_source)
        return "source";
    if (unit->is_within_step)
        return "within one step";
    return step->is_double ? "double" : "";
}

static void put_row(struct nd_strbuf *out, const char *name, const char *op, struct widths widths,
                    const char *const cells[static 8])
{
    nd_strbuf_printf(out, "  %-*s  %-*s  %7s  %5s  %9s  %7s  %7s  %8s  %8s", widths.name, name, widths.op, op,
                     cells[0], cells[1], cells[2], cells[3], cells[4], cells[5], cells[6]);
    nd_strbuf_printf(out, cells[7][0] != '\0' ? "  %s\n" : "%s\n", cells[7]);
}

/* The name within its column; whole where a different layer would look the same. */
static void name_step(const struct nd_explanation *e, size_t s, size_t most,
                      char out[static EXPLAIN_CELL_BYTES])
{
    nd_explain_shorten(e->steps[s].name, most, out);
    for (size_t i = 0; i < e->n_steps && strlen(e->steps[s].name) > most; i++) {
        char other[EXPLAIN_CELL_BYTES];
        nd_explain_shorten(e->steps[i].name, most, other);
        if (i != s && strcmp(other, out) == 0) {
            nd_explain_shorten(e->steps[s].name, EXPLAIN_CELL_BYTES, out);
            return;
        }
    }
}

static void put_unit(struct nd_strbuf *out, const struct nd_explanation *e, size_t s,
                     const struct nd_explained_unit *unit, struct widths widths)
{
    const struct nd_explained_step *step = &e->steps[s];
    char name[EXPLAIN_CELL_BYTES], op[EXPLAIN_CELL_BYTES], local[32] = "-", max[32], mean[32],
                                                           inherited[32] = "-", total[32] = "-";
    char gain[32], harm[32];
    name_step(e, s, (size_t)widths.name, name);
    nd_explain_shorten(step->op_types, (size_t)widths.op, op);
    if (unit->is_examined)
        nd_explain_share(unit->local.n_differing, unit->n_codes, local);
    if (unit->is_examined && unit->has_total)
        nd_explain_share(unit->inherited.n_differing, unit->n_codes, inherited);
    if (unit->has_total)
        nd_explain_share(unit->total.n_differing, unit->n_codes, total);
    const char *cells[8] = {local,
                            nd_explain_real(unit->is_examined ? unit->local.max : NAN, max),
                            nd_explain_real(unit->is_examined ? unit->local.mean : NAN, mean),
                            inherited,
                            total,
                            nd_explain_real(unit->gain, gain),
                            nd_explain_real(unit->harm, harm),
                            remark(step, unit)};
    put_row(out, name, op, widths, cells);
}

void nd_explain_put_units(struct nd_strbuf *out, const struct nd_explanation *e,
                          const struct nd_explained_device *device, size_t width)
{
    static const char *const titles[8] = {"local", "max", "bias", "inherit", "total", "gain", "harm", ""};
    size_t longest = strlen("layer"), op = width < 116 ? 10 : 16, limit = width - 86 - op;
    for (size_t s = 0; s < e->n_steps; s++)
        longest = strlen(e->steps[s].name) > longest ? strlen(e->steps[s].name) : longest;
    const struct widths widths = {(int)(longest < limit ? longest : limit), (int)op};
    put_row(out, "layer", "op", widths, titles);
    for (size_t s = 0; s < e->n_steps; s++)
        put_unit(out, e, s, &device->units[s], widths);
}
