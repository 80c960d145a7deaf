/* What an explanation says of layers whose values are floats. */
#include <math.h>
#include <stdio.h>

#include "report/text/explain.h"
#include "report/text/explain_words.h"
#include "report/text/summary.h"

static const char *type_of(const struct nd_explained_floats *floats)
{
    return floats->digits == 11 ? "float16" : "float32";
}

/* The first layer in which not every value is the exact one, rounded once. */
static size_t find_first(const struct nd_explanation *e, const struct nd_explained_device *device,
                         size_t *n_layers, size_t *n_exact)
{
    size_t first = SIZE_MAX;
    *n_layers = *n_exact = 0;
    for (size_t s = 0; s < e->n_steps; s++) {
        const struct nd_explained_floats *f = &device->units[s].floats;
        if (f->n == 0)
            continue;
        bool is_exact = f->n_rounded + f->n_overflown == f->n;
        ++*n_layers;
        *n_exact += is_exact;
        first = first == SIZE_MAX && !is_exact ? s : first;
    }
    return first;
}

void nd_explain_put_floats(struct nd_strbuf *out, const struct nd_explanation *e,
                           const struct nd_explained_device *device, size_t width)
{
    size_t n_layers, n_exact, first = find_first(e, device, &n_layers, &n_exact);
    size_t greatest = nd_explain_greatest(e, device);
    char share[32];
    if (n_layers == 0 || nd_explain_has_codes(e))
        return;
    if (greatest != SIZE_MAX && device->units[greatest].floats.n > 0) {
        const struct nd_explained_floats *f = &device->units[greatest].floats;
        nd_summary_put(out, width, 2, 4,
                       "greatest effect: the error of '%s' (%s) alone changes the outputs by %.2g%% (%.0f dB)",
                       e->steps[greatest].name, e->steps[greatest].op_types, 100 * f->effect,
                       -20 * log10(f->effect));
    }
    if (first == SIZE_MAX) {
        nd_summary_put(out, width, 2, 4,
                       "every value of %zu layers is the exact result of the layer's own inputs, rounded once",
                       n_layers);
        return;
    }
    const struct nd_explained_floats *f = &device->units[first].floats;
    nd_summary_put(
        out, width, 2, 4,
        "in %zu of %zu layers every value is the exact result, rounded once; the first of the others is "
        "'%s' (%s): all but %s of its values",
        n_exact, n_layers, e->steps[first].name, e->steps[first].op_types,
        nd_explain_share(f->n - f->n_rounded, f->n, share));
}

void nd_explain_put_float_layers(struct nd_strbuf *out, const struct nd_explanation *e,
                                 const struct nd_explained_device *device)
{
    bool is_begun = false;
    for (size_t s = 0; s < e->n_steps; s++) {
        const struct nd_explained_floats *f = &device->units[s].floats;
        char name[EXPLAIN_CELL_BYTES], share[32], cells[5][32];
        if (f->n == 0)
            continue;
        if (!is_begun)
            nd_strbuf_printf(out, "  %-28s %-18s %-8s %10s %9s %9s %10s %9s %9s\n", "layer", "operator", "type",
                             "exact", "ULP", "of bound", "introduced", "passed on", "effect");
        is_begun = true;
        nd_explain_shorten(e->steps[s].name, 28, name);
        nd_strbuf_printf(out, "  %-28s %-18.18s %-8s %10s %9s %9s %10s %9s %9s\n", name, e->steps[s].op_types,
                         type_of(f), nd_explain_share(f->n_rounded, f->n, share),
                         nd_explain_real(f->max_ulp, cells[0]), nd_explain_real(f->worst, cells[1]),
                         nd_explain_real(f->introduced, cells[2]), nd_explain_real(f->passed_on, cells[3]),
                         nd_explain_real(f->effect, cells[4]));
    }
}
