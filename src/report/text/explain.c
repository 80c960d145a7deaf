#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/text/explain.h"
#include "report/text/explain_words.h"
#include "report/text/tree.h"

enum { N_WORST = 3, N_LISTED = 12 };

/* ---- sentences ---- */

bool nd_explain_has_codes(const struct nd_explanation *e)
{
    for (size_t s = 0; s < e->n_steps; s++)
        if (e->steps[s].is_unit)
            return true;
    return e->n_steps == 0;
}

static void put_sentence(struct nd_strbuf *out, const struct nd_explanation *e,
                         const struct nd_explained_device *device, size_t width)
{
    if (device->output.n_codes == 0 || isnan(device->own_share))
        return;
    char interval[64] = "";
    if (!isnan(device->own_share_interval.low))
        snprintf(interval, sizeof interval, " [95%%: %.2f to %.2f%%]", 100 * device->own_share_interval.low,
                 100 * device->own_share_interval.high);
    nd_explain_put_wrapped(out, width, 2, "%.2f%% of its output error is %s common to all; %.2f%%%s is its own",
                           100 * (1 - device->own_share),
                           e->vote.is_known && e->vote.common_divergence > 0 ? "quantisation, and divergence"
                                                                             : "quantisation and",
                           100 * device->own_share, interval);
    const struct nd_decomposition *o = &device->output;
    char q[32], d[32], c[32], rho[32], bias[32], nf[32], sqnr[32];
    nd_explain_put_wrapped(
        out, width, 2,
        "output, in steps^2: quantisation %s, divergence %s, interaction %s (correlation %s); bias %s; SQNR of "
        "the quantisation %s dB, noise figure %s dB",
        nd_explain_real(o->quantisation, q), nd_explain_real(o->divergence, d),
        nd_explain_real(o->interaction, c), nd_explain_real(o->correlation, rho),
        nd_explain_real(o->bias, bias), nd_explain_real(o->sqnr_db, sqnr),
        nd_explain_real(o->noise_figure_db, nf));
    if (o->n_clipped > 0)
        nd_explain_put_wrapped(out, width, 2,
                               "clipped: %" PRIu64 " of %" PRIu64 ""
                               " values cannot be represented: %s of the quantisation, %s of the "
                               "divergence",
                               o->n_clipped, o->n_codes, nd_explain_real(o->clipped_quantisation, q),
                               nd_explain_real(o->clipped_divergence, d));
}

static void put_sources(struct nd_strbuf *out, const struct nd_explanation *e,
                        const struct nd_explained_device *device, size_t width)
{
    for (size_t i = 0; i < device->n_sources && i < N_WORST; i++) {
        const struct nd_explained_step *step = &e->steps[device->sources[i]];
        const struct nd_explained_unit *unit = &device->units[device->sources[i]];
        char share[32], max[32], mean[32];
        nd_explain_put_wrapped(
            out, width, 2,
            "%s '%s' (%s): %s of its values are not what its own inputs give, by at most %s, "
            "%s on average",
            i == 0 ? "begins in" : "begins apart in", step->name, step->op_types,
            nd_explain_share(unit->local.n_differing, unit->n_codes, share),
            nd_explain_real(unit->local.max, max), nd_explain_real(unit->local.mean, mean));
    }
    if (device->n_sources > N_WORST)
        nd_strbuf_printf(out, "  and begins apart in %zu more\n", device->n_sources - N_WORST);
}

/* By what units are ranked: what their local error does to the outputs or, where that is not measured, its
 * size.
 */
static double badness(const struct nd_explained_unit *unit)
{
    return isnan(unit->harm) ? unit->local.energy : unit->harm;
}

/* The next step in order of falling badness after `last` (SIZE_MAX: the first); of equals the earlier. */
static size_t next_worst(const struct nd_explanation *e, const struct nd_explained_device *device, size_t last)
{
    size_t best = SIZE_MAX;
    for (size_t s = 0; s < e->n_steps; s++) {
        const struct nd_explained_unit *unit = &device->units[s];
        if (!unit->is_examined || unit->local.n_differing == 0 || unit->is_within_step)
            continue;
        double x = badness(unit), limit = last != SIZE_MAX ? badness(&device->units[last]) : HUGE_VAL;
        bool is_next = last == SIZE_MAX || x < limit || (x == limit && s > last);
        if (is_next && (best == SIZE_MAX || x > badness(&device->units[best])))
            best = s;
    }
    return best;
}

static void put_worst(struct nd_strbuf *out, const struct nd_explanation *e,
                      const struct nd_explained_device *device, size_t width)
{
    size_t s = SIZE_MAX;
    for (size_t i = 0; i < N_WORST && (s = next_worst(e, device, s)) != SIZE_MAX; i++) {
        const struct nd_explained_unit *unit = &device->units[s];
        char share[32], max[32], mean[32], local[32], harm[32], effect[128] = "";
        if (!isnan(unit->harm))
            snprintf(effect, sizeof effect, "alone it changes %.3g%% of the outputs' values, energy %s; ",
                     100 * unit->harmed_share, nd_explain_real(unit->harm, harm));
        nd_explain_put_wrapped(out, width, i == 0 ? 2 : 9,
                               "%s'%s' (%s): %slocal energy %s, %s of its values, at most %s, bias %s",
                               i == 0 ? "worst: " : "", e->steps[s].name, e->steps[s].op_types, effect,
                               nd_explain_real(unit->local.energy, local),
                               nd_explain_share(unit->local.n_differing, unit->n_codes, share),
                               nd_explain_real(unit->local.max, max), nd_explain_real(unit->local.mean, mean));
    }
}

/* What it does in its units, and which of them do something else. */
static void put_arithmetic(struct nd_strbuf *out, const struct nd_explanation *e,
                           const struct nd_explained_device *device, size_t width)
{
    size_t n_known = 0, n_units = 0;
    for (size_t s = 0; s < e->n_steps; s++) {
        const struct nd_explained_unit *unit = &device->units[s];
        n_units += unit->is_examined;
        n_known += unit->is_examined && unit->program != NULL && !unit->is_faulty;
    }
    if (device->n_programs > 0)
        nd_explain_put_program(out, e, device, width);
    else if (device->program == NULL && n_known == 0)
        nd_explain_put_wrapped(out, width, 2, "arithmetic: none that is known; only gross faults can be told");
    else
        nd_explain_put_wrapped(
            out, width, 2,
            "arithmetic: %s%s; %zu of %zu layers examined do what the device does in such layers",
            device->program != NULL ? device->program : "by operator type",
            device->program != NULL && strncmp(device->program, "double:", strlen("double:")) == 0
                ? " (every value is rounded twice)"
                : "",
            n_known, n_units);
}

void nd_explain_put_not_examined(struct nd_strbuf *out, const struct nd_explanation *e,
                                 const struct nd_explained_device *device, size_t width, size_t most)
{
    size_t n = 0;
    for (size_t s = 0; s < e->n_steps; s++) {
        if (device->units[s].is_examined)
            continue;
        if (++n <= most)
            nd_explain_put_wrapped(out, width, 2, "not examined: '%s' (%s): %s", e->steps[s].name,
                                   e->steps[s].op_types, device->units[s].why_not);
    }
    if (n > most)
        nd_strbuf_printf(out, "  and %zu more not examined\n", n - most);
}

void nd_explain_put_within(struct nd_strbuf *out, const struct nd_explanation *e,
                           const struct nd_explained_device *device, size_t width)
{
    size_t n = 0, worst = 0;
    for (size_t s = 0; s < e->n_steps; s++) {
        const struct nd_explained_unit *unit = &device->units[s], *known = &device->units[worst];
        if (!unit->is_within_step || unit->tie_rule != NULL)
            continue;
        if (n++ == 0 || unit->local.n_differing * known->n_codes > known->local.n_differing * unit->n_codes)
            worst = s;
    }
    char share[32];
    if (n > 0)
        nd_explain_put_wrapped(
            out, width, 2,
            "%zu layer%s by 1 LSB from exact rounding, as float arithmetic does (harmless); %s '%s' (%s), %s "
            "of "
            "its values",
            n, n == 1 ? " differs" : "s differ", n == 1 ? "it is" : "most in", e->steps[worst].name,
            e->steps[worst].op_types,
            nd_explain_share(device->units[worst].local.n_differing, device->units[worst].n_codes, share));
}

/* ---- the report ---- */

void nd_explain_put_observer(struct nd_strbuf *out, const struct nd_explained_device *device, size_t width)
{
    const struct nd_explained_observer *observer = &device->observer;
    if (observer->n_changed > 0)
        nd_explain_put_wrapped(
            out, width, 2,
            "observing changes the outputs of %zu of %zu samples: what is said of layers is of another graph; "
            "capture with --prefixes to see those of this one",
            observer->n_changed, observer->n_samples);
    else if (observer->n_samples > 0)
        nd_explain_put_wrapped(out, width, 2,
                               "observing changes nothing: the outputs of %zu samples are bit-equal without it",
                               observer->n_samples);
}

static bool is_same_finding(const struct nd_explained_finding *a, const struct nd_explained_finding *b)
{
    return a->fault.kind == b->fault.kind && strcmp(a->fault.text, b->fault.text) == 0;
}

/* How many say the same from this one on; 0: one before it says so. */
static size_t count_alike(const struct nd_explained_device *device, size_t i)
{
    size_t n = 0;
    for (size_t k = 0; k < device->n_findings; k++) {
        if (!is_same_finding(&device->findings[k], &device->findings[i]))
            continue;
        if (k < i)
            return 0;
        n++;
    }
    return n;
}

/* What the capture itself says; it puts the rest in doubt and comes first. */
void nd_explain_put_findings(struct nd_strbuf *out, const struct nd_explanation *e,
                             const struct nd_explained_device *device, size_t width, size_t most)
{
    size_t n_printed = 0;
    for (size_t i = 0; i < device->n_findings && n_printed < most; i++) {
        const struct nd_explained_fault *fault = &device->findings[i].fault;
        const struct nd_explained_step *step = &e->steps[device->findings[i].step];
        size_t n = count_alike(device, i);
        char channel[64] = "", more[64] = "";
        if (n == 0)
            continue;
        if (fault->channel != SIZE_MAX)
            snprintf(channel, sizeof channel, " (channel %zu)", fault->channel);
        if (n > 1)
            snprintf(more, sizeof more, " and %zu more", n - 1);
        nd_explain_put_wrapped(out, width, 2, "the capture of '%s' (%s)%s: %s%s: %s%s%s", step->name,
                               step->op_types, more, fault->kind, channel, fault->text,
                               fault->rival != NULL ? "; or " : "", fault->rival != NULL ? fault->rival : "");
        n_printed++;
    }
    if (n_printed == most)
        nd_strbuf_printf(out, "  %zu findings in all: --json lists them\n", device->n_findings);
}

static void put_device(struct nd_strbuf *out, const struct nd_explanation *e, size_t d, size_t width,
                       bool with_units)
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
    nd_explain_put_execution(out, e, device, width, with_units);
    if (device->same_as != d && nd_explain_has_codes(e)) {
        nd_explain_put_wrapped(out, width, 2, "in every code the same as %s", e->devices[device->same_as].uri);
        return;
    }
    put_sentence(out, e, device, width);
    nd_explain_put_floats(out, e, device, width);
    if (with_units)
        nd_explain_put_float_layers(out, e, device);
    nd_explain_put_observer(out, device, width);
    if (!nd_explain_has_codes(e)) {
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
        nd_explain_put_wrapped(out, width, 2,
                               "no code of the %zu steps that were examined is the device's own doing",
                               device->n_examined);
    if (with_units && device->verdict != ND_VERDICT_SAME)
        nd_explain_put_units(out, e, device, width);
}

static void put_vote(struct nd_strbuf *out, const struct nd_explanation *e, size_t width)
{
    if (e->n_devices < 2 || !nd_explain_has_codes(e))
        return;
    if (e->vote.is_known)
        nd_explain_put_wrapped(out, width, 0,
                               "vote of %zu different results: they differ in %.3g%% of the outputs' "
                               "values; what the commonest code "
                               "is off the quantised reference has energy %.3g",
                               e->vote.n_lineages, 100 * e->vote.split_share, e->vote.common_divergence);
    else
        nd_explain_put_wrapped(
            out, width, 0, "no vote: %s; a device's own part is its difference from the quantised reference",
            e->vote.why_not != NULL ? e->vote.why_not : "nothing was captured");
}

/* Layers that are not evaluated, and whose values stand for theirs. */
static void put_taken(struct nd_strbuf *out, const struct nd_explanation *e, size_t width)
{
    for (size_t s = 0; s < e->n_steps; s++) {
        const struct nd_explained_step *step = &e->steps[s];
        if (step->taken_from == SIZE_MAX)
            continue;
        const struct nd_explained_device *donor = &e->devices[step->taken_from];
        nd_explain_put_wrapped(
            out, width, 0,
            "'%s' (%s) is not evaluated: its values are taken from the capture of '%s'. The layers "
            "after it are judged as if these values were right; what it adds itself is not told",
            step->name, step->op_types, donor->uri);
    }
}

/* What cannot be said of any device. */
void nd_explain_put_unreached(struct nd_strbuf *out, const struct nd_explanation *e, size_t width)
{
    size_t n = 0, first = SIZE_MAX;
    put_taken(out, e, width);
    for (size_t s = 0; s < e->n_steps; s++) {
        if (e->steps[s].unreached_from == SIZE_MAX)
            continue;
        first = n++ == 0 ? e->steps[s].unreached_from : first;
    }
    if (n > 0)
        nd_explain_put_wrapped(
            out, width, 0,
            "no reference behind '%s' (%s): of %zu of %zu steps only what is made in them is known, not "
            "what they inherit",
            e->steps[first].name, e->steps[first].op_types, n, e->n_steps);
    for (size_t s = 0; s < e->n_steps; s++) {
        const struct nd_explained_step *step = &e->steps[s];
        bool is_unreached = step->unreached_from != SIZE_MAX;
        if (step->is_model_output && (is_unreached || step->lacks_float))
            nd_explain_put_wrapped(out, width, 0, "nothing is said of the error of output '%s': %s", step->name,
                                   is_unreached ? "it has no reference"
                                                : "the float model cannot be evaluated so far");
    }
}

static void put_text(struct nd_strbuf *out, const struct nd_explanation *e, size_t width, bool with_units)
{
    nd_explain_put_wrapped(out, width, 0, "%s, probe '%s', %zu sample%s, %zu device%s%s%s", e->model,
                           e->probe != NULL ? e->probe : "", e->n_samples, e->n_samples == 1 ? "" : "s",
                           e->n_devices, e->n_devices == 1 ? "" : "s",
                           e->float_model != NULL ? ", float reference " : "",
                           e->float_model != NULL ? e->float_model : "");
    if (e->float_model == NULL && nd_explain_has_codes(e))
        nd_strbuf_puts(out, "without --float nothing can be said of the quantisation\n");
    nd_explain_put_unreached(out, e, width);
    put_vote(out, e, width);
    nd_explain_put_differences(out, e, width);
    for (size_t d = 0; d < e->n_devices; d++)
        put_device(out, e, d, width, with_units);
    nd_explain_put_quantisation(out, e, width);
    nd_strbuf_printf(out, "\nverdict: %s\n", nd_health_name(e->health));
}

enum nd_status nd_report_explanation_text(const struct nd_explanation *explanation,
                                          const struct nd_identification *identification, size_t width,
                                          bool with_units, char **out, struct nd_error *err)
{
    struct nd_strbuf text = {0};
    put_text(&text, explanation, width, with_units);
    nd_explain_put_identification(&text, identification, width, with_units);
    return nd_text_end(&text, out, err);
}
