/* What the quantisation costs, and where: in the default text two sentences, with -v all layers that matter. */
#include <math.h>
#include <stdio.h>

#include "core/memory.h"
#include "report/text/explain.h"
#include "report/text/summary.h"
#include "report/text/tree.h"

enum { MAX_LISTED = 8, MAX_REMEDIES = 2, EQUALISED_BYTES = 320 };

/* "+9.7 dB" */
static const char *gain(double db, char buf[static 32])
{
    if (isinf(db))
        snprintf(buf, 32, "no error is left");
    else
        snprintf(buf, 32, "%+.3g dB", db);
    return buf;
}

static const char *decibel(double db, char buf[static 32])
{
    if (isinf(db))
        snprintf(buf, 32, "no error");
    else
        snprintf(buf, 32, "%.3g dB", db);
    return buf;
}

/* The layer to name: the accused one with the greatest effect, or the one with the greatest effect at all. */
static size_t main_layer(const struct nd_quantisation *q)
{
    for (size_t i = 0; i < q->n_ranked; i++)
        if (q->layers[q->ranked[i]].is_accused)
            return q->ranked[i];
    return q->ranked[0];
}

/* A layer with more than this share of all effects stands out, whatever its cause; chosen. */
static const double stands_out = 0.5;

/* An accused layer with a small part of the error is not where most of it is made. */
static const char *place_of(const struct nd_quantisation *q, size_t s)
{
    if (!q->layers[s].is_accused)
        return q->layers[s].effect_share > stands_out ? "Mostly in" : "No layer stands out; most in";
    return s == q->ranked[0] ? "Mainly in" : "A cause to mend is in";
}

static size_t count_followed(const struct nd_quantisation *q, bool is_followed)
{
    size_t n = 0;
    for (size_t i = 0; i < q->n_equalised; i++)
        n += q->equalised[i].is_followed == is_followed;
    return n;
}

/* Layers whose tensors differ from the float model's by intention; "" where there are none. */
static const char *equalised(const struct nd_quantisation *q, char buf[static EQUALISED_BYTES])
{
    size_t n = count_followed(q, true), n_other = count_followed(q, false);
    int used = 0;
    buf[0] = '\0';
    if (n > 0)
        used = snprintf(buf, EQUALISED_BYTES,
                        "%zu pair%s of layers %s equalised: the float model is compared with the same factors.",
                        n, n == 1 ? "" : "s", n == 1 ? "is" : "are");
    if (n_other > 0)
        snprintf(buf + used, EQUALISED_BYTES - (size_t)used,
                 "%s%zu pair%s of layers %s equalised, but the float model cannot have the same factors there: "
                 "what is said of these layers compares different tensors.",
                 n > 0 ? " " : "", n_other, n_other == 1 ? "" : "s", n_other == 1 ? "is" : "are");
    return buf;
}

/* The first tensor with channels that became constant, and how many have some: what reads it inherits them. */
static void put_constant_channels(struct nd_strbuf *out, const struct nd_explanation *e, size_t width)
{
    const struct nd_quantisation *q = e->quantisation;
    size_t first = SIZE_MAX, n = 0;
    for (size_t s = 0; s < q->n_layers; s++) {
        n += q->layers[s].constant_text != NULL;
        first = q->layers[s].constant_text != NULL && first == SIZE_MAX ? s : first;
    }
    char more[64] = "";
    if (first == SIZE_MAX)
        return;
    if (n > 1)
        snprintf(more, sizeof more, " %zu more tensor%s such channels.", n - 1, n == 2 ? " has" : "s have");
    nd_summary_put(out, width, 0, 2,
                   "Lost by the quantisation: '%s' (%s): %s.%s What would help: an encoding of their own (%s).",
                   e->steps[first].name, e->steps[first].op_types, q->layers[first].constant_text, more,
                   strncmp(e->steps[first].op_types, "Concat", strlen("Concat")) == 0
                       ? "leave the Concat out, or bring its inputs to one range before it"
                       : "a tensor of their own, or 16 bits");
}

void nd_explain_put_quantisation_line(struct nd_strbuf *out, const struct nd_explanation *e, size_t width)
{
    const struct nd_quantisation *q = e->quantisation;
    if (q == NULL || q->n_ranked == 0 || isnan(q->output_sqnr_db))
        return;
    size_t s = main_layer(q);
    const struct nd_quantised_layer *layer = &q->layers[s];
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf remedies = {0};
    char sqnr[32], whole[32], pairs[EQUALISED_BYTES];
    for (size_t i = 0; i < layer->n_remedies && i < MAX_REMEDIES; i++) {
        char db[32];
        nd_strbuf_printf(&remedies, "%s%s (%s)", i == 0 ? "" : ", or ", layer->remedies[i].text,
                         gain(layer->remedies[i].output_gain_db, db));
    }
    if (q->n_whole > 0)
        nd_strbuf_printf(&remedies, "%s%s: %s in %zu layers (%s)", remedies.len > 0 ? ". " : "",
                         remedies.len > 0 ? "In the whole model" : "in the whole model", q->whole[0].text,
                         q->whole[0].n_layers, gain(q->whole[0].output_gain_db, whole));
    bool has_remedies = remedies.len > 0;
    char part[64] = "";
    if (layer->cause != ND_LOSS_NOT_FINITE) /* which no number says */
        snprintf(part, sizeof part, ", %s of the effects of all layers", ND_PERCENT(layer->effect_share));
    nd_summary_put(out, width, 0, 2,
                   "Quantisation alone: %s at the outputs (SQNR of %zu samples). %s '%s' (%s)%s: %s.%s%s%s",
                   decibel(q->output_sqnr_db, sqnr), q->n_effect_samples, place_of(q, s), e->steps[s].name,
                   e->steps[s].op_types, part, layer->cause_text != NULL ? layer->cause_text : "",
                   has_remedies ? " What would help: " : "", has_remedies ? remedies.text : "",
                   has_remedies ? "." : "");
    if (q->n_equalised > 0)
        nd_summary_put(out, width, 0, 2, "%s", equalised(q, pairs));
    put_constant_channels(out, e, width);
    out->failed = out->failed || remedies.failed;
}

static void put_layer(struct nd_strbuf *out, const struct nd_explanation *e, size_t s, size_t width)
{
    const struct nd_quantised_layer *layer = &e->quantisation->layers[s];
    char alone[32], total[32], own[32], db[32], own_db[32];
    nd_explain_put_wrapped(
        out, width, 2,
        "'%s' (%s): %s of the effects, alone %s at the outputs; SQNR %s, of what it introduces %s; %s%s",
        e->steps[s].name, e->steps[s].op_types, ND_PERCENT(layer->effect_share),
        decibel(layer->effect_db, alone), decibel(layer->sqnr_db, total),
        decibel(layer->introduced_sqnr_db, own), layer->cause_text != NULL ? layer->cause_text : "no error",
        layer->is_accused ? " (can be mended)" : "");
    for (size_t i = 0; i < layer->n_remedies; i++)
        nd_explain_put_wrapped(out, width, 4, "would help: %s: %s at the outputs, %s at the tensor itself",
                               layer->remedies[i].text, gain(layer->remedies[i].output_gain_db, db),
                               gain(layer->remedies[i].own_gain_db, own_db));
}

void nd_explain_put_quantisation(struct nd_strbuf *out, const struct nd_explanation *e, size_t width)
{
    const struct nd_quantisation *q = e->quantisation;
    char sqnr[32], mended[32], pairs[EQUALISED_BYTES];
    if (q == NULL)
        return;
    nd_strbuf_puts(out, "\n");
    put_constant_channels(out, e, width);
    if (q->n_equalised > 0)
        nd_explain_put_wrapped(out, width, 0, "%s", equalised(q, pairs));
    if (isnan(q->output_sqnr_db)) {
        nd_explain_put_wrapped(out, width, 0, "quantisation: its effect on the outputs was not measured%s",
                               q->n_effect_samples == 0 ? " (--effect-samples 0)"
                                                        : ": no output of the model is known in both models");
        return;
    }
    nd_explain_put_wrapped(
        out, width, 0,
        "quantisation alone: %s at the outputs (SQNR, %zu samples); the layers with the greatest effect:",
        decibel(q->output_sqnr_db, sqnr), q->n_effect_samples);
    for (size_t i = 0; i < q->n_ranked && i < MAX_LISTED; i++)
        put_layer(out, e, q->ranked[i], width);
    for (size_t i = 0; i < q->n_whole; i++)
        nd_explain_put_wrapped(out, width, 2, "in %zu layers together: %s: %s at the outputs",
                               q->whole[i].n_layers, q->whole[i].text,
                               gain(q->whole[i].output_gain_db, mended));
    if (!isnan(q->mended_sqnr_db))
        nd_explain_put_wrapped(out, width, 2, "with the best remedy of each of these layers, all together: %s",
                               decibel(q->mended_sqnr_db, mended));
}
