#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/explain_report.h"
#include "cli/explain_words.h"

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

static void print_row(const char *name, const char *op, struct widths widths, const char *const cells[static 8])
{
    printf("  %-*s  %-*s  %7s  %5s  %9s  %7s  %7s  %8s  %8s", widths.name, name, widths.op, op, cells[0],
           cells[1], cells[2], cells[3], cells[4], cells[5], cells[6]);
    printf(cells[7][0] != '\0' ? "  %s\n" : "%s\n", cells[7]);
}

static void print_unit(const struct nd_explained_step *step, const struct nd_explained_unit *unit,
                       struct widths widths)
{
    char name[EXPLAIN_CELL_BYTES], op[EXPLAIN_CELL_BYTES], local[32] = "-", max[32], mean[32],
                                                           inherited[32] = "-", total[32] = "-";
    char gain[32], harm[32];
    explain_shorten(step->name, (size_t)widths.name, name);
    explain_shorten(step->op_types, (size_t)widths.op, op);
    if (unit->is_examined)
        explain_share(unit->local.n_differing, unit->n_codes, local);
    if (unit->is_examined && unit->has_total)
        explain_share(unit->inherited.n_differing, unit->n_codes, inherited);
    if (unit->has_total)
        explain_share(unit->total.n_differing, unit->n_codes, total);
    const char *cells[8] = {local,
                            explain_real(unit->is_examined ? unit->local.max : NAN, max),
                            explain_real(unit->is_examined ? unit->local.mean : NAN, mean),
                            inherited,
                            total,
                            explain_real(unit->gain, gain),
                            explain_real(unit->harm, harm),
                            remark(step, unit)};
    print_row(name, op, widths, cells);
}

void explain_print_units(const struct nd_explanation *e, const struct nd_explained_device *device, size_t width)
{
    static const char *const titles[8] = {"local", "max", "bias", "inherit", "total", "gain", "harm", ""};
    size_t longest = strlen("unit"), op = width < 116 ? 10 : 16, limit = width - 86 - op;
    for (size_t s = 0; s < e->n_steps; s++)
        longest = strlen(e->steps[s].name) > longest ? strlen(e->steps[s].name) : longest;
    const struct widths widths = {(int)(longest < limit ? longest : limit), (int)op};
    print_row("unit", "op", widths, titles);
    for (size_t s = 0; s < e->n_steps; s++)
        print_unit(&e->steps[s], &device->units[s], widths);
}
