/* The long text of `npudiff explain`: a row for each layer, the arithmetic that a device has, what it costs,
 * what is not known, and why two devices differ. docs/science/verdicts.md. */
#include "report/text/explain.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/text/tree.h"

/* Of the first two columns. */
struct widths {
    int name, op;
};

static const char *remark(const struct nd_explained_step *step, const struct nd_explained_layer *layer)
{
    if (!layer->is_examined)
        return "not examined";
    if (layer->judgement.state == ND_LAYER_FAULTY)
        return "faulty";
    if (layer->judgement.state == ND_LAYER_UNEXPLAINED)
        return "unexplained";
    if (layer->judgement.state == ND_LAYER_WITHIN_LSB)
        return "within 1 LSB";
    if (layer->is_source)
        return "source";
    if (layer->is_within_step)
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

static void put_layer(struct nd_strbuf *out, const struct nd_explanation *e, size_t s,
                      const struct nd_explained_layer *layer, struct widths widths)
{
    const struct nd_explained_step *step = &e->steps[s];
    char name[EXPLAIN_CELL_BYTES], op[EXPLAIN_CELL_BYTES], introduced[32] = "-", max[32], mean[32],
                                                           passed_on[32] = "-", total[32] = "-";
    char gain[32], effect[32];
    name_step(e, s, (size_t)widths.name, name);
    nd_explain_shorten(step->op_types, (size_t)widths.op, op);
    if (layer->is_examined)
        nd_format_share(layer->introduced.n_differing, layer->n_qvalues, introduced);
    if (layer->is_examined && layer->has_total)
        nd_format_share(layer->passed_on.n_differing, layer->n_qvalues, passed_on);
    if (layer->has_total)
        nd_format_share(layer->total.n_differing, layer->n_qvalues, total);
    const char *cells[8] = {introduced,
                            nd_explain_real(layer->is_examined ? layer->introduced.max : NAN, max),
                            nd_explain_real(layer->is_examined ? layer->introduced.mean : NAN, mean),
                            passed_on,
                            total,
                            nd_explain_real(layer->amplification, gain),
                            nd_explain_real(layer->effect, effect),
                            remark(step, layer)};
    put_row(out, name, op, widths, cells);
}

/* The table of all layers. */
static void nd_explain_put_layer_rows(struct nd_strbuf *out, const struct nd_explanation *e,
                                      const struct nd_explained_device *device, size_t width)
{
    static const char *const titles[8] = {"own", "max", "bias", "passed", "total", "ampl.", "effect", ""};
    size_t longest = strlen("layer"), op = width < 116 ? 10 : 16, limit = width - 86 - op;
    for (size_t s = 0; s < e->n_steps; s++)
        longest = strlen(e->steps[s].name) > longest ? strlen(e->steps[s].name) : longest;
    const struct widths widths = {(int)(longest < limit ? longest : limit), (int)op};
    put_row(out, "layer", "op", widths, titles);
    for (size_t s = 0; s < e->n_steps; s++)
        put_layer(out, e, s, &device->layers[s], widths);
}

/* ---- text ---- */

static bool is_unknown(const struct nd_explanation *e, const struct nd_explained_device *device, size_t s)
{
    const struct nd_explained_layer *layer = &device->layers[s];
    return e->steps[s].is_layer && layer->is_examined && layer->arithmetic == NULL &&
           layer->judgement.state != ND_LAYER_FAULTY && layer->introduced.n_differing > 0;
}

/* A line for each kind of layer. */
static void put_unknown_kind(struct nd_strbuf *out, const struct nd_explanation *e,
                             const struct nd_explained_device *device, size_t first, size_t width)
{
    const char *op_types = e->steps[first].op_types;
    uint64_t n_differing = 0, n_qvalues = 0;
    size_t n = 0;
    double max = 0;
    for (size_t s = 0; s < e->n_steps; s++) {
        const struct nd_explained_layer *layer = &device->layers[s];
        if (!is_unknown(e, device, s) || strcmp(e->steps[s].op_types, op_types) != 0)
            continue;
        if (s < first)
            return; /* that line was printed */
        n++;
        n_differing += layer->introduced.n_differing;
        n_qvalues += layer->n_qvalues;
        max = layer->introduced.max > max ? layer->introduced.max : max;
    }
    char share[32], most[32];
    nd_explain_put_wrapped(out, width, 2,
                           "not known: %s ('%s'%s): %s of the values are not exact rounding's, by at most %s",
                           op_types, e->steps[first].name, n > 1 ? " and others" : "",
                           nd_format_share(n_differing, n_qvalues, share), nd_explain_real(max, most));
}

static void put_losses(struct nd_strbuf *out, const struct nd_explanation *e,
                       const struct nd_explained_device *device, size_t width)
{
    size_t worst = 0;
    for (size_t i = 1; i < device->n_losses; i++)
        if (device->layers[device->losses[i]].introduced.max >
            device->layers[device->losses[worst]].introduced.max)
            worst = i;
    if (device->n_losses == 0)
        return;
    const struct nd_explained_step *step = &e->steps[device->losses[worst]];
    char max[32], more[64] = "";
    if (device->n_losses > 1)
        snprintf(more, sizeof more, ", and 10 or more in %zu other%s", device->n_losses - 1,
                 device->n_losses > 2 ? "s" : "");
    nd_explain_put_wrapped(out, width, 2, "%s loses up to %s LSB in '%s' (%s)%s", device->arithmetic,
                           nd_explain_real(device->layers[device->losses[worst]].introduced.max, max),
                           step->name, step->op_types, more);
}

/* Of a device that has an arithmetic of whole units: which, what follows it, what that costs, what is not
 * known.
 */
static void nd_explain_put_arithmetic(struct nd_strbuf *out, const struct nd_explanation *e,
                                      const struct nd_explained_device *device, size_t width)
{
    char names[256];
    size_t n_layers = 0, n_following = 0;
    uint64_t n_introduced = 0, n_left = 0, n_qvalues = 0;
    for (size_t s = 0; s < e->n_steps; s++) {
        const struct nd_explained_layer *layer = &device->layers[s];
        if (!e->steps[s].is_layer || !layer->is_examined)
            continue;
        n_layers++;
        if (layer->arithmetic == NULL || layer->judgement.state == ND_LAYER_FAULTY)
            continue;
        n_following++;
        n_introduced += layer->introduced.n_differing;
        n_left += layer->n_unexplained;
        n_qvalues += layer->n_qvalues;
    }
    /* "htp-v73", and what nothing in the capture tells from it. */
    size_t size = sizeof names;
    size_t n = (size_t)snprintf(names, size, "%s", device->arithmetic);
    const char *before = " (these layers do not tell it from ";
    bool is_open = false;
    for (size_t i = 0; i < device->n_arithmetics && n < size; i++) {
        if (strcmp(device->arithmetics[i], device->arithmetic) == 0)
            continue;
        n += (size_t)snprintf(names + n, size - n, "%s%s", is_open ? ", " : before, device->arithmetics[i]);
        is_open = true;
    }
    if (is_open && n < size)
        snprintf(names + n, size - n, ")");
    nd_explain_put_wrapped(out, width, 2,
                           "arithmetic: %s; %zu of %zu layers examined follow it: of their %" PRIu64
                           " values %" PRIu64 " differ from exact rounding, and %" PRIu64
                           " from this arithmetic",
                           names, n_following, n_layers, n_qvalues, n_introduced, n_left);
    put_losses(out, e, device, width);
    for (size_t s = 0; s < e->n_steps; s++)
        if (is_unknown(e, device, s))
            put_unknown_kind(out, e, device, s, width);
}

static void put_difference(struct nd_strbuf *out, const struct nd_explanation *e,
                           const struct nd_explained_difference *difference, size_t width)
{
    const char *a = e->devices[difference->devices[0]].uri, *b = e->devices[difference->devices[1]].uri;
    if (difference->n_layers == 0) {
        nd_explain_put_wrapped(out, width, 0,
                               "%s has %s and %s has %s, which are one in layers that follow them", a,
                               difference->arithmetics[0], b, difference->arithmetics[1]);
        return;
    }
    nd_explain_put_wrapped(out, width, 0,
                           "%s and %s differ in %" PRIu64 " of %" PRIu64
                           " values of layers of %s, given the inputs of the former, because",
                           a, b, difference->n_differing, difference->n_qvalues, difference->op_types);
    for (size_t i = 0; i < difference->n_because; i++) {
        const struct nd_explained_reason *reason = &difference->because[i];
        bool is_of_all = strcmp(reason->op_types, difference->op_types) == 0;
        nd_explain_put_wrapped(out, width, 2, "%s %s, %s %s%s%s%s", difference->arithmetics[0],
                               reason->texts[0], difference->arithmetics[1], reason->texts[1],
                               is_of_all ? "" : " (", is_of_all ? "" : reason->op_types, is_of_all ? "" : ")");
    }
}

/* What an explanation says of layers whose values are floats. */

static void nd_explain_put_float_layers(struct nd_strbuf *out, const struct nd_explanation *e,
                                        const struct nd_explained_device *device)
{
    bool is_begun = false;
    for (size_t s = 0; s < e->n_steps; s++) {
        const struct nd_explained_floats *f = &device->layers[s].floats;
        char name[EXPLAIN_CELL_BYTES], share[32], cells[5][32];
        if (f->n == 0)
            continue;
        if (!is_begun)
            nd_strbuf_printf(out, "  %-28s %-18s %-8s %10s %9s %9s %10s %9s %9s\n", "layer", "operator", "type",
                             "exact", "ULP", "of bound", "introduced", "passed on", "effect");
        is_begun = true;
        nd_explain_shorten(e->steps[s].name, 28, name);
        nd_strbuf_printf(out, "  %-28s %-18.18s %-8s %10s %9s %9s %10s %9s %9s\n", name, e->steps[s].op_types,
                         nd_float_type_name(f->digits), nd_format_share(f->n_rounded, f->n, share),
                         nd_explain_real(f->max_ulp, cells[0]), nd_explain_real(f->worst, cells[1]),
                         nd_explain_real(f->introduced, cells[2]), nd_explain_real(f->passed_on, cells[3]),
                         nd_explain_real(f->effect, cells[4]));
    }
}

enum { N_WORST = 3, N_LISTED = 12 };

/* ---- sentences ---- */

static void put_sentence(struct nd_strbuf *out, const struct nd_explanation *e,
                         const struct nd_explained_device *device, size_t width)
{
    if (device->output.n_qvalues == 0 || isnan(device->own_share))
        return;
    char interval[64] = "";
    if (!isnan(device->own_share_interval.low))
        snprintf(interval, sizeof interval, " [95%%: %.2f to %.2f%%]", 100 * device->own_share_interval.low,
                 100 * device->own_share_interval.high);
    nd_explain_put_wrapped(out, width, 2, "%.2f%% of its output error is %s common to all; %.2f%%%s is its own",
                           100 * (1 - device->own_share),
                           e->majority.is_known && e->majority.common_divergence > 0
                               ? "quantisation, and divergence"
                               : "quantisation and",
                           100 * device->own_share, interval);
    const struct nd_decomposition *o = &device->output;
    char q[32], d[32], c[32], rho[32], bias[32], nf[32], sqnr[32];
    nd_explain_put_wrapped(out, width, 2,
                           "output, in steps^2: quantisation %s, divergence %s, interaction %s (correlation "
                           "%s); bias %s; SQNR of the quantisation %s dB, noise figure %s dB",
                           nd_explain_real(o->quantisation, q), nd_explain_real(o->divergence, d),
                           nd_explain_real(o->interaction, c), nd_explain_real(o->correlation, rho),
                           nd_explain_real(o->bias, bias), nd_explain_real(o->sqnr_db, sqnr),
                           nd_explain_real(o->noise_figure_db, nf));
    if (o->n_clipped > 0)
        nd_explain_put_wrapped(out, width, 2,
                               "clipped: %" PRIu64 " of %" PRIu64 ""
                               " values cannot be represented: %s of the quantisation, %s of the "
                               "divergence",
                               o->n_clipped, o->n_qvalues, nd_explain_real(o->clipped_quantisation, q),
                               nd_explain_real(o->clipped_divergence, d));
}

static void put_sources(struct nd_strbuf *out, const struct nd_explanation *e,
                        const struct nd_explained_device *device, size_t width)
{
    for (size_t i = 0; i < device->n_sources && i < N_WORST; i++) {
        const struct nd_explained_step *step = &e->steps[device->sources[i]];
        const struct nd_explained_layer *layer = &device->layers[device->sources[i]];
        char share[32], max[32], mean[32];
        nd_explain_put_wrapped(
            out, width, 2,
            "%s '%s' (%s): %s of its values are not what its own inputs give, by at most %s, %s on average",
            i == 0 ? "begins in" : "begins apart in", step->name, step->op_types,
            nd_format_share(layer->introduced.n_differing, layer->n_qvalues, share),
            nd_explain_real(layer->introduced.max, max), nd_explain_real(layer->introduced.mean, mean));
    }
    if (device->n_sources > N_WORST)
        nd_strbuf_printf(out, "  and begins apart in %zu more\n", device->n_sources - N_WORST);
}

/* By what layers are ranked: what their introduced error does to the outputs or, where that is not measured,
 * its size.
 */
static double badness(const struct nd_explained_layer *layer)
{
    return isnan(layer->effect) ? layer->introduced.mean_square : layer->effect;
}

/* The next step in order of falling badness after `last` (SIZE_MAX: the first); of equals the earlier. */
static size_t next_worst(const struct nd_explanation *e, const struct nd_explained_device *device, size_t last)
{
    size_t best = SIZE_MAX;
    for (size_t s = 0; s < e->n_steps; s++) {
        const struct nd_explained_layer *layer = &device->layers[s];
        if (!layer->is_examined || layer->introduced.n_differing == 0 || layer->is_within_step)
            continue;
        double x = badness(layer), limit = last != SIZE_MAX ? badness(&device->layers[last]) : HUGE_VAL;
        bool is_next = last == SIZE_MAX || x < limit || (x == limit && s > last);
        if (is_next && (best == SIZE_MAX || x > badness(&device->layers[best])))
            best = s;
    }
    return best;
}

static void put_worst(struct nd_strbuf *out, const struct nd_explanation *e,
                      const struct nd_explained_device *device, size_t width)
{
    size_t s = SIZE_MAX;
    for (size_t i = 0; i < N_WORST && (s = next_worst(e, device, s)) != SIZE_MAX; i++) {
        const struct nd_explained_layer *layer = &device->layers[s];
        char share[32], max[32], mean[32], introduced[32], effect[32], effect_text[128] = "";
        if (!isnan(layer->effect))
            snprintf(effect_text, sizeof effect_text,
                     "alone it changes %s of the outputs' values, mean squared error %s; ",
                     ND_PERCENT(layer->harmed_share), nd_explain_real(layer->effect, effect));
        nd_explain_put_wrapped(
            out, width, i == 0 ? 2 : 9,
            "%s'%s' (%s): %sintroduces a mean squared error of %s, %s of its values, at most %s, bias %s",
            i == 0 ? "worst: " : "", e->steps[s].name, e->steps[s].op_types, effect_text,
            nd_explain_real(layer->introduced.mean_square, introduced),
            nd_format_share(layer->introduced.n_differing, layer->n_qvalues, share),
            nd_explain_real(layer->introduced.max, max), nd_explain_real(layer->introduced.mean, mean));
    }
}

/* What it does in its layers, and which of them do something else. */
static void put_arithmetic(struct nd_strbuf *out, const struct nd_explanation *e,
                           const struct nd_explained_device *device, size_t width)
{
    size_t n_known = 0, n_layers = 0;
    for (size_t s = 0; s < e->n_steps; s++) {
        const struct nd_explained_layer *layer = &device->layers[s];
        n_layers += layer->is_examined;
        n_known += layer->is_examined && layer->arithmetic != NULL && layer->judgement.state != ND_LAYER_FAULTY;
    }
    if (device->n_arithmetics > 0)
        nd_explain_put_arithmetic(out, e, device, width);
    else if (device->arithmetic == NULL && n_known == 0)
        nd_explain_put_wrapped(out, width, 2, "arithmetic: none that is known; only gross faults can be told");
    else
        nd_explain_put_wrapped(
            out, width, 2,
            "arithmetic: %s%s; %zu of %zu layers examined do what the device does in such layers",
            device->arithmetic != NULL ? device->arithmetic : "by operator type",
            device->arithmetic != NULL && strncmp(device->arithmetic, "double:", strlen("double:")) == 0
                ? " (every value is rounded twice)"
                : "",
            n_known, n_layers);
}

/* ---- the report ---- */

static void put_device(struct nd_strbuf *out, const struct nd_explanation *e, size_t d, size_t width,
                       bool with_layers)
{
    const struct nd_explained_device *device = &e->devices[d];
    nd_strbuf_puts(out, "\n");
    nd_explain_put_headline(out, e, device, width);
    nd_explain_put_wrapped(out, width, 2, "capture: %s", device->capture);
    if (device->failure != NULL)
        return;
    nd_explain_put_findings(out, e, device, width, N_LISTED);
    if (device->same_as == d)
        nd_explain_put_layers(out, e, device, width, N_LISTED);
    nd_explain_put_execution(out, e, device, width, with_layers);
    if (device->same_as != d && nd_explain_has_qvalues(e)) {
        nd_explain_put_wrapped(out, width, 2, "all values are the same as those of %s",
                               e->devices[device->same_as].uri);
        nd_explain_put_observer(out, device, width);
        return;
    }
    put_sentence(out, e, device, width);
    nd_explain_put_floats(out, e, device, width);
    if (with_layers)
        nd_explain_put_float_layers(out, e, device);
    nd_explain_put_observer(out, device, width);
    if (!nd_explain_has_qvalues(e)) {
        if (device->n_findings == 0 && device->n_examined == 0)
            nd_explain_put_wrapped(out, width, 2,
                                   "its floats are on no coarser grid than those of the reference");
        return;
    }
    if (device->n_examined == 0) {
        nd_explain_put_not_examined(out, e, device, width, N_LISTED);
        nd_explain_put_wrapped(
            out, width, 2,
            "nothing can be told apart without the values of all tensors: capture with --tensors all");
        return;
    }
    put_arithmetic(out, e, device, width);
    put_sources(out, e, device, width);
    put_worst(out, e, device, width);
    nd_explain_put_within(out, e, device, width);
    nd_explain_put_not_examined(out, e, device, width, N_LISTED);
    if (device->n_sources == 0)
        nd_explain_put_wrapped(out, width, 2, "all %zu layers examined match the reference",
                               device->n_examined);
    if (with_layers && device->verdict != ND_VERDICT_SAME)
        nd_explain_put_layer_rows(out, e, device, width);
}

static void put_majority(struct nd_strbuf *out, const struct nd_explanation *e, size_t width)
{
    if (e->n_devices < 2 || !nd_explain_has_qvalues(e))
        return;
    if (e->majority.is_known)
        nd_explain_put_wrapped(
            out, width, 0,
            "the devices form %zu groups with different results, which differ in %s of the outputs' "
            "values; the most common value has a mean squared error of %.3g against the quantised reference",
            e->majority.n_groups, ND_PERCENT(e->majority.split_share), e->majority.common_divergence);
    else
        nd_explain_put_wrapped(out, width, 0,
                               "no majority: %s; each device is compared with the quantised reference",
                               e->majority.why_not != NULL ? e->majority.why_not : "nothing was captured");
}

enum nd_status nd_report_explanation_text(const struct nd_explanation *explanation,
                                          const struct nd_identification *identification, size_t width,
                                          bool with_layers, char **out, struct nd_error *err)
{
    struct nd_strbuf text = {0};
    nd_explain_put_wrapped(&text, width, 0, "%s, probe '%s', %zu sample%s, %zu device%s%s%s",
                           explanation->model, explanation->probe != NULL ? explanation->probe : "",
                           explanation->n_samples, explanation->n_samples == 1 ? "" : "s",
                           explanation->n_devices, explanation->n_devices == 1 ? "" : "s",
                           explanation->float_model != NULL ? ", float reference " : "",
                           explanation->float_model != NULL ? explanation->float_model : "");
    if (explanation->float_model == NULL && nd_explain_has_qvalues(explanation))
        nd_strbuf_puts(&text, "without --float nothing can be said of the quantisation\n");
    nd_explain_put_unreached(&text, explanation, width);
    put_majority(&text, explanation, width);
    /* Why such devices differ. */
    for (size_t i = 0; i < explanation->n_differences; i++)
        put_difference(&text, explanation, &explanation->differences[i], width);
    for (size_t d = 0; d < explanation->n_devices; d++)
        put_device(&text, explanation, d, width, with_layers);
    nd_explain_put_quantisation(&text, explanation, width);
    nd_strbuf_printf(&text, "\nverdict: %s\n", nd_health_name(explanation->health));
    nd_explain_put_identification(&text, identification, width, with_layers);
    return nd_text_end(&text, out, err);
}
