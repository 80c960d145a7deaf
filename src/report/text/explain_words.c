/* Numbers, names and sections that the long and the brief text of `npudiff explain` share.
 * docs/science/verdicts.md. */
#include "report/text/explain.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/text/summary.h"
#include "report/text/tree.h"

void nd_explain_clean(char *text)
{
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = '?';
}

char *nd_explain_real(double value, char buf[static 32])
{
    if (isnan(value))
        snprintf(buf, 32, "-");
    else
        snprintf(buf, 32, "%.3g", value);
    return buf;
}

void nd_explain_shorten(const char *text, size_t max, char out[static EXPLAIN_CELL_BYTES])
{
    size_t n = strlen(text);
    max = max < EXPLAIN_CELL_BYTES - 1 ? max : EXPLAIN_CELL_BYTES - 1;
    if (n <= max) {
        memcpy(out, text, n + 1);
    } else {
        size_t head = (max - 2) / 2, tail = n - (max - 2 - head);
        while (head > 0 && ((unsigned char)text[head] & 0xc0) == 0x80)
            head--;
        while (((unsigned char)text[tail] & 0xc0) == 0x80)
            tail++;
        memcpy(out, text, head);
        memcpy(out + head, "..", 2);
        memcpy(out + head + 2, text + tail, n - tail + 1);
    }
    nd_explain_clean(out);
}

void nd_explain_put_wrapped(struct nd_strbuf *out, size_t width, size_t indent, const char *fmt, ...)
{
    char *text = NULL;
    ND_MAKE_ARGUMENTS(text, fmt);
    if (text == NULL) {
        out->failed = true;
        return;
    }
    nd_explain_clean(text);
    size_t column = 0;
    char *rest = NULL;
    for (char *word = strtok_r(text, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        if (column > 0 && column + 1 + strlen(word) > width) {
            nd_strbuf_puts(out, "\n");
            column = 0;
            indent += indent < 4 ? 2 : 0;
        }
        nd_strbuf_printf(out, "%*s%s", column == 0 ? (int)indent : 1, "", word);
        column += (column == 0 ? indent : 1) + strlen(word);
    }
    nd_strbuf_puts(out, "\n");
    free(text);
}

double nd_explain_effect_share(const struct nd_explanation *e, const struct nd_explained_device *device,
                               size_t step)
{
    /* The sum over the layers whose effect was measured. */
    double sum = 0;
    for (size_t s = 0; s < e->n_steps; s++)
        sum += isnan(device->layers[s].effect) ? 0 : device->layers[s].effect;
    return sum > 0 ? device->layers[step].effect / sum : (double)NAN;
}

size_t nd_explain_greatest(const struct nd_explanation *e, const struct nd_explained_device *device)
{
    size_t greatest = SIZE_MAX;
    for (size_t s = 0; s < e->n_steps; s++)
        if (device->layers[s].effect >
            (greatest == SIZE_MAX ? 0 : device->layers[greatest].effect)) /* not NaN */
            greatest = s;
    return greatest;
}

bool nd_explain_has_qvalues(const struct nd_explanation *e)
{
    for (size_t s = 0; s < e->n_steps; s++)
        if (e->steps[s].is_layer)
            return true;
    return e->n_steps == 0;
}

/* The first layer in which not every value is the exact one, rounded once. */
static size_t find_first(const struct nd_explanation *e, const struct nd_explained_device *device,
                         size_t *n_layers, size_t *n_exact)
{
    size_t first = SIZE_MAX;
    *n_layers = *n_exact = 0;
    for (size_t s = 0; s < e->n_steps; s++) {
        const struct nd_explained_floats *f = &device->layers[s].floats;
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
    if (n_layers == 0 || nd_explain_has_qvalues(e))
        return;
    if (greatest != SIZE_MAX && device->layers[greatest].floats.n > 0) {
        const struct nd_explained_floats *f = &device->layers[greatest].floats;
        nd_summary_put(out, width, 2, 4,
                       "greatest effect: the error of '%s' (%s) alone changes the outputs by %.*g%% (%.0f dB)",
                       e->steps[greatest].name, e->steps[greatest].op_types, f->effect < 1 ? 2 : 4,
                       100 * f->effect, -20 * log10(f->effect));
    }
    if (first == SIZE_MAX) {
        nd_summary_put(out, width, 2, 4,
                       "every value of %zu layers is the exact result of the layer's own inputs, rounded once",
                       n_layers);
        return;
    }
    const struct nd_explained_floats *f = &device->layers[first].floats;
    bool is_near = device->layers[first].judgement.state == ND_LAYER_FOLLOWS; /* of others more is said */
    if (is_near)
        nd_summary_put(out, width, 2, 4,
                       "in %zu of %zu layers every value is the exact result, rounded once; the first of the "
                       "others is '%s' (%s): all but %s of its values",
                       n_exact, n_layers, e->steps[first].name, e->steps[first].op_types,
                       nd_format_share(f->n - f->n_rounded, f->n, share));
    else if (n_exact > 0)
        nd_summary_put(out, width, 2, 4, "in %zu of %zu layers every value is the exact result, rounded once",
                       n_exact, n_layers);
}

void nd_explain_put_not_examined(struct nd_strbuf *out, const struct nd_explanation *e,
                                 const struct nd_explained_device *device, size_t width, size_t most)
{
    size_t n = 0;
    for (size_t s = 0; s < e->n_steps; s++) {
        if (device->layers[s].is_examined)
            continue;
        if (++n <= most)
            nd_explain_put_wrapped(out, width, 2, "not examined: '%s' (%s): %s", e->steps[s].name,
                                   e->steps[s].op_types, device->layers[s].why_not);
    }
    if (n > most)
        nd_strbuf_printf(out, "  and %zu more not examined\n", n - most);
}

void nd_explain_put_within(struct nd_strbuf *out, const struct nd_explanation *e,
                           const struct nd_explained_device *device, size_t width)
{
    size_t n = 0, worst = 0;
    for (size_t s = 0; s < e->n_steps; s++) {
        const struct nd_explained_layer *layer = &device->layers[s], *known = &device->layers[worst];
        if (!layer->is_within_step || layer->tie_rule != NULL)
            continue;
        if (n++ == 0 ||
            layer->introduced.n_differing * known->n_qvalues > known->introduced.n_differing * layer->n_qvalues)
            worst = s;
    }
    char share[32];
    if (n > 0)
        nd_explain_put_wrapped(out, width, 2,
                               "%zu layer%s by 1 LSB from exact rounding, as float arithmetic does (harmless); "
                               "%s '%s' (%s), %s of its values",
                               n, n == 1 ? " differs" : "s differ", n == 1 ? "it is" : "most in",
                               e->steps[worst].name, e->steps[worst].op_types,
                               nd_format_share(device->layers[worst].introduced.n_differing,
                                               device->layers[worst].n_qvalues, share));
}

void nd_explain_put_observer(struct nd_strbuf *out, const struct nd_explained_device *device, size_t width)
{
    const struct nd_explained_observer *observer = &device->observer;
    const char *line = observer->differs != NULL ? observer->differs : "";
    size_t n = strcspn(line, "\n"), n_name = strcspn(line, "\t\n");
    char first[256] = "";
    if (n_name < n)
        snprintf(first, sizeof first, ", first of '%.*s': without it %.*s", (int)n_name, line,
                 (int)(n - n_name - 1), line + n_name + 1);
    if (observer->n_changed > 0)
        nd_explain_put_wrapped(
            out, width, 2,
            "recording changes the outputs of %zu of %zu samples%s. What is said of layers and "
            "outputs is of the recorded graph, not of the one that ships; capture with "
            "--prefixes to see each layer in a graph of its own",
            observer->n_changed, observer->n_samples, first);
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

/* What cannot be said of any device. */
void nd_explain_put_unreached(struct nd_strbuf *out, const struct nd_explanation *e, size_t width)
{
    size_t n = 0, first = SIZE_MAX;
    /* Layers that are not evaluated, and whose values stand for theirs. */
    for (size_t s = 0; s < e->n_steps; s++) {
        const struct nd_explained_step *step = &e->steps[s];
        if (step->substituted_from == SIZE_MAX)
            continue;
        const struct nd_explained_device *donor = &e->devices[step->substituted_from];
        nd_explain_put_wrapped(
            out, width, 0,
            "'%s' (%s) is not evaluated: its values come from the capture of '%s'. The layers after it are "
            "judged as if these values were right; what it adds itself is not known",
            step->name, step->op_types, donor->uri);
    }
    for (size_t s = 0; s < e->n_steps; s++) {
        if (e->steps[s].unreached_from == SIZE_MAX)
            continue;
        first = n++ == 0 ? e->steps[s].unreached_from : first;
    }
    if (n > 0)
        nd_explain_put_wrapped(out, width, 0,
                               "no reference after '%s' (%s): of %zu of %zu layers only what they introduce is "
                               "known, not what earlier layers pass on",
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
