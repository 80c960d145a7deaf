/* The default text of an explanation: the verdict, a paragraph for each group of devices with equal values, and
 * the next command. */
#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "report/text/explain.h"
#include "report/text/summary.h"
#include "report/text/tree.h"

/* The verdict of a device, first line first: what the layers' values say, and what of the error at the outputs
 * is the chip's. */

/* "proven: the fault predicts every wrong value; ...", of a faulty or unexplained layer: how sure the cause is,
 * what speaks for it, and what else it may be. */
static void say_evidence(const struct nd_explained_layer *layer, struct nd_strbuf *out)
{
    const struct nd_explained_fault *fault = &layer->judgement.fault;
    bool is_fault = layer->judgement.state == ND_LAYER_FAULTY;
    const char *certainty = is_fault ? nd_certainty_name(layer->judgement.certainty) : NULL;
    nd_strbuf_printf(out, "%s%s%s", certainty != NULL ? certainty : "", certainty != NULL ? ": " : "",
                     layer->judgement.evidence);
    if (is_fault && fault->rival != NULL)
        nd_strbuf_printf(out, "; '%s' explains the values as well", fault->rival);
    else if (is_fault && fault->kind == NULL && layer->judgement.known_defect == NULL)
        nd_strbuf_puts(out, "; which fault it is, is not known");
    else if (layer->judgement.certainty == ND_CERTAINTY_UNKNOWN)
        nd_strbuf_puts(out, "; no known fault predicts these values");
    else if (layer->judgement.certainty == ND_CERTAINTY_GUESS && fault->kind != NULL)
        nd_strbuf_printf(out, "; a guess, not proven: %s", fault->text);
}

struct layers {
    size_t n, n_follow, n_within, n_unexplained,
        n_not_examined;       /* operators with their quantisers, and inputs' quantisers */
    size_t n_defects;         /* of those that are unexplained: with a known defect of the SDK */
    uint64_t n_values, n_off; /* of those that are unexplained */
    bool has_tie_rule;        /* a layer rounds ties by a rule of its own */
};

static struct layers count(const struct nd_explanation *e, const struct nd_explained_device *device)
{
    struct layers x = {.n = e->n_steps};
    for (size_t s = 0; s < e->n_steps; s++) {
        const struct nd_explained_layer *layer = &device->layers[s];
        x.n_follow += layer->judgement.state == ND_LAYER_FOLLOWS;
        x.n_within += layer->judgement.state == ND_LAYER_WITHIN_LSB;
        x.has_tie_rule = x.has_tie_rule || layer->tie_rule != NULL;
        x.n_not_examined += layer->judgement.state == ND_LAYER_NOT_EXAMINED;
        if (layer->judgement.state != ND_LAYER_UNEXPLAINED)
            continue;
        x.n_unexplained++;
        x.n_defects += layer->judgement.known_defect != NULL;
        x.n_values += layer->n_qvalues;
        x.n_off += layer->n_unexplained;
    }
    return x;
}

static const struct nd_explained_floats *first_floats(const struct nd_explanation *e,
                                                      const struct nd_explained_device *device)
{
    const struct nd_explained_floats *whole = NULL;
    for (size_t s = 0; s < e->n_steps; s++) {
        const struct nd_explained_floats *floats = &device->layers[s].floats;
        if (floats->n > 0 && floats->digits > 0)
            return floats;
        whole = floats->n > 0 ? floats : whole;
    }
    return whole;
}

static void name_arithmetic(const struct nd_explanation *e, const struct nd_explained_device *device, char *out,
                            size_t size)
{
    const struct nd_explained_floats *floats = device->failure == NULL ? first_floats(e, device) : NULL;
    bool is_half = floats != NULL && floats->digits == 11, has_qvalues = nd_explain_has_qvalues(e);
    if (floats != NULL && !has_qvalues) {
        snprintf(out, size, "%s", is_half ? "half-precision" : nd_float_type_name(floats->digits));
        return;
    }
    bool is_known = device->expected != NULL && !device->is_refuted;
    const char *name = is_known ? device->expected : device->arithmetic;
    snprintf(out, size, "%s%s", name != NULL ? name : "known",
             is_half && has_qvalues ? " or half-precision" : "");
}

/* ---- the first line ---- */

static void say_inconclusive(const struct nd_explained_device *device, const struct layers *layers, char *out,
                             size_t size)
{
    if (device->n_examined == 0)
        snprintf(out, size, "no layer could be examined");
    else
        snprintf(out, size, "%zu of %zu layers could not be examined; the others follow known arithmetic%s",
                 layers->n_not_examined, layers->n, layers->n_within > 0 ? ", or are within 1 LSB" : "");
}

static void say_unexplained(const struct layers *layers, const char *arithmetic, char *out, size_t size)
{
    char share[32], defects[64] = "no known fault predicts them";
    if (layers->n_defects > 0)
        snprintf(defects, sizeof defects, "%zu of them ha%s a known defect of the SDK", layers->n_defects,
                 layers->n_defects > 1 ? "ve" : "s");
    snprintf(out, size, "%zu of %zu layers do not follow %s arithmetic in %s of their values; %s",
             layers->n_unexplained, layers->n, arithmetic,
             nd_format_share(layers->n_off, layers->n_values, share), defects);
}

static void say_faulty(const struct nd_explanation *e, const struct nd_explained_device *device, char *out,
                       size_t size)
{
    const struct nd_explained_step *step = &e->steps[device->faulty[0]];
    const struct nd_explained_fault *fault = &device->layers[device->faulty[0]].judgement.fault;
    int n = snprintf(out, size, "'%.300s' (%.80s): %s", step->name, step->op_types,
                     fault->kind != NULL ? fault->text : "an error that no rounding makes");
    if (device->n_faulty > 1 && n >= 0 && (size_t)n < size)
        snprintf(out + n, size - (size_t)n, "; %zu more layer%s faulty", device->n_faulty - 1,
                 device->n_faulty > 2 ? "s are" : " is");
}

/* Parts of an error that cancel out add up to less than either. From this on it is said: half of the
 * quantisation's error is gone. In dB; chosen. */
static const double cancels_db = -3;

/* Which part of the error at the outputs is whose. */
static void say_shares(const struct nd_explanation *e, const struct nd_explained_device *device, char *out,
                       size_t size)
{
    double own = device->own_share;
    *out = '\0';
    if (device->float_error > 0) /* not NaN */
        snprintf(out, size, ". The output is off double precision by %.*g%% (%.0f dB)",
                 device->float_error < 1 ? 2 : 4, 100 * device->float_error, -20 * log10(device->float_error));
    if (device->output.n_qvalues == 0 || isnan(own))
        return;
    const char *common = e->majority.is_known && e->majority.common_divergence > 0
                             ? "quantisation and what all chips share"
                             : "quantisation";
    if (own < 0.001) /* both numbers would not add up to 100 */
        snprintf(out, size, ". The output's error against the float model is %s; under 0.1%% is the chip's",
                 common);
    else {
        char together[80] = "";
        if (device->output.noise_figure_db < cancels_db) /* not NaN */
            snprintf(together, sizeof together,
                     ", which cancel out: together they are %.3g dB below the quantisation alone",
                     -device->output.noise_figure_db);
        snprintf(out, size, ". The output's error against the float model is %s %s, %s the chip's%s",
                 ND_PERCENT(1 - own), common, ND_PERCENT(own), together);
    }
}

void nd_explain_say_health(const struct nd_explanation *e, const struct nd_explained_device *device,
                           char out[static EXPLAIN_SENTENCE_BYTES])
{
    char what[800] = "", shares[256] = "", arithmetic[64];
    const struct layers layers = device->failure == NULL ? count(e, device) : (struct layers){.n = 0};
    const size_t size = sizeof what;
    const char *ties = layers.has_tie_rule ? ", but for ties" : "";
    name_arithmetic(e, device, arithmetic, sizeof arithmetic);
    switch (device->health) {
    case ND_HEALTH_HEALTHY:
        if (layers.n_follow + layers.n_within < layers.n)
            snprintf(what, size, "%zu of %zu layers follow %s arithmetic%s; %zu were not looked at",
                     layers.n_follow + layers.n_within, layers.n, arithmetic, ties,
                     layers.n - layers.n_follow - layers.n_within);
        else if (layers.n_within == 0)
            snprintf(what, size, "all %zu layers follow %s arithmetic%s", layers.n, arithmetic, ties);
        else
            snprintf(what, size,
                     "%zu of %zu layers follow %s arithmetic%s; the arithmetic of %zu is not known, all within "
                     "1 LSB",
                     layers.n_follow, layers.n, arithmetic, ties, layers.n_within);
        break;
    case ND_HEALTH_INCONCLUSIVE:
        say_inconclusive(device, &layers, what, sizeof what);
        break;
    case ND_HEALTH_UNEXPLAINED:
        say_unexplained(&layers, arithmetic, what, sizeof what);
        break;
    case ND_HEALTH_FAULTY:
        say_faulty(e, device, what, sizeof what);
        break;
    case ND_HEALTH_FAILED:
        snprintf(what, sizeof what, "%s", device->failure);
        break;
    }
    if (device->failure == NULL)
        say_shares(e, device, shares, sizeof shares);
    snprintf(out, EXPLAIN_SENTENCE_BYTES, "%s%s", what, shares);
}

static bool has_known_defect(const struct nd_explanation *e)
{
    for (size_t d = 0; d < e->n_devices; d++)
        for (size_t i = 0; i < e->devices[d].n_unexplained; i++)
            if (e->devices[d].layers[e->devices[d].unexplained[i]].judgement.known_defect != NULL)
                return true;
    return false;
}

/* What the first line of all says where some layers are unexplained and none is faulty. */
static const char *nd_explain_say_unexplained(const struct nd_explanation *e)
{
    return has_known_defect(e)
               ? "some layers follow no known arithmetic, and the SDK has a known defect there"
               : "some layers follow no known arithmetic, and no known fault predicts their values";
}

/* "HEALTHY", ... */
static const char *nd_explain_health_word(enum nd_health health)
{
    static const char *const words[] = {[ND_HEALTH_HEALTHY] = "HEALTHY",
                                        [ND_HEALTH_INCONCLUSIVE] = "INCONCLUSIVE",
                                        [ND_HEALTH_UNEXPLAINED] = "UNEXPLAINED",
                                        [ND_HEALTH_FAULTY] = "FAULTY",
                                        [ND_HEALTH_FAILED] = "FAILED"};
    return words[health];
}

void nd_explain_put_headline(struct nd_strbuf *out, const struct nd_explanation *e,
                             const struct nd_explained_device *device, size_t width)
{
    char sentence[EXPLAIN_SENTENCE_BYTES];
    nd_explain_say_health(e, device, sentence);
    nd_explain_put_wrapped(out, width, 0, "%s: %s: %s", device->uri, nd_explain_health_word(device->health),
                           sentence);
}

/* ---- layer by layer ---- */

/* Faulty layers, or unexplained ones. */
static void put_open(struct nd_strbuf *out, const struct nd_explanation *e,
                     const struct nd_explained_device *device, bool is_faulty, size_t width, size_t most)
{
    const char *word = is_faulty ? "faulty" : "unexplained";
    const size_t *steps = is_faulty ? device->faulty : device->unexplained;
    size_t n = is_faulty ? device->n_faulty : device->n_unexplained;
    for (size_t i = 0; i < n && i < most; i++) {
        const struct nd_explained_layer *layer = &device->layers[steps[i]];
        const char *kind =
            layer->judgement.fault.kind != NULL ? layer->judgement.fault.kind : "of no known kind";
        struct nd_strbuf evidence = {0};
        say_evidence(layer, &evidence);
        nd_explain_put_wrapped(out, width, 2, "%s: '%s' (%s)%s%s: %s", word, e->steps[steps[i]].name,
                               e->steps[steps[i]].op_types, is_faulty ? ", " : "", is_faulty ? kind : "",
                               evidence.text != NULL ? evidence.text : "");
        out->failed = out->failed || evidence.failed;
        nd_strbuf_deinit(&evidence);
        if (layer->judgement.known_defect != NULL)
            nd_explain_put_wrapped(out, width, 4, "%s. What to do: %s", layer->judgement.known_defect,
                                   layer->judgement.remedy);
        if (is_faulty) {
            if (!isnan(layer->harmed_share))
                nd_explain_put_wrapped(out, width, 4, "by itself it changes %s of the output values",
                                       ND_PERCENT(layer->harmed_share));
        }
    }
    if (n > most)
        nd_strbuf_printf(out, "  and %zu more %s layer%s\n", n - most, word, n - most == 1 ? "" : "s");
}

/* What is no fault, but worth telling. */
static void put_remarks(struct nd_strbuf *out, const struct nd_explanation *e,
                        const struct nd_explained_device *device, size_t width, size_t most)
{
    size_t n = 0;
    for (size_t s = 0; s < e->n_steps; s++) {
        const struct nd_explained_layer *layer = &device->layers[s];
        if (layer->judgement.follows_text != NULL && n++ < most)
            nd_explain_put_wrapped(out, width, 2, "'%s' (%s): %s", e->steps[s].name, e->steps[s].op_types,
                                   layer->judgement.follows_text);
    }
    if (n > most)
        nd_strbuf_printf(out, "  and %zu more layer%s of this kind\n", n - most, n - most == 1 ? "" : "s");
}

/* Rules for ties: the first layer of each rule, and how many more follow it. */
static void put_ties(struct nd_strbuf *out, const struct nd_explanation *e,
                     const struct nd_explained_device *device, size_t width)
{
    for (size_t s = 0; s < e->n_steps; s++) {
        const struct nd_explained_layer *layer = &device->layers[s];
        char more[64] = "";
        size_t n_before = 0, n_after = 0;
        for (size_t k = 0; k < e->n_steps && layer->tie_rule != NULL && n_before == 0; k++) {
            bool is_same =
                device->layers[k].tie_rule != NULL && strcmp(device->layers[k].tie_rule, layer->tie_rule) == 0;
            n_before += is_same && k < s;
            n_after += is_same && k > s;
        }
        if (layer->tie_rule == NULL || n_before > 0)
            continue;
        if (n_after > 0)
            snprintf(more, sizeof more, "; so do %zu more layer%s", n_after, n_after == 1 ? "" : "s");
        nd_explain_put_wrapped(out, width, 2,
                               "'%s' (%s) rounds ties %s, not half to even: all %" PRIu64
                               " values that differ lie on ties, no fault%s",
                               e->steps[s].name, e->steps[s].op_types, layer->tie_rule, layer->n_ties, more);
    }
}

/* The same without those that are faulty. */
static void nd_explain_put_oddities(struct nd_strbuf *out, const struct nd_explanation *e,
                                    const struct nd_explained_device *device, size_t width, size_t most)
{
    put_open(out, e, device, false, width, most);
    /* Layers of unknown arithmetic that are within 1 LSB: how many, and how far off. */
    size_t n = 0;
    for (size_t s = 0; s < e->n_steps; s++) {
        const struct nd_explained_layer *layer = &device->layers[s];
        if (layer->judgement.state == ND_LAYER_WITHIN_LSB && n++ < most)
            nd_explain_put_wrapped(out, width, 2, "not known: '%s' (%s): %s", e->steps[s].name,
                                   e->steps[s].op_types, layer->judgement.evidence);
    }
    if (n > most)
        nd_strbuf_printf(out, "  and %zu more layer%s within 1 LSB\n", n - most, n - most == 1 ? "" : "s");
    put_remarks(out, e, device, width, most);
    put_ties(out, e, device, width);
    if (device->is_refuted)
        nd_explain_put_wrapped(out, width, 2,
                               "its values do not follow %s arithmetic, which its chipset asks for",
                               device->expected);
}

void nd_explain_put_layers(struct nd_strbuf *out, const struct nd_explanation *e,
                           const struct nd_explained_device *device, size_t width, size_t most)
{
    put_open(out, e, device, true, width, most);
    nd_explain_put_oddities(out, e, device, width, most);
}

/* Which layer matters most at the outputs: the first that differs is often off by a step, and a later one makes
 * the error. */
static void put_greatest(struct nd_strbuf *out, const struct nd_explanation *e,
                         const struct nd_explained_device *device, size_t width)
{
    size_t step = nd_explain_greatest(e, device);
    if (step == SIZE_MAX || step == device->sources[0])
        return;
    const struct nd_explained_layer *layer = &device->layers[step];
    char share[32], max[32];
    nd_summary_put(out, width, 2, 4,
                   "greatest effect: '%s' (%s) makes %s of the effects of all layers on the outputs; in "
                   "this layer alone %s of the values differ, by at most %s LSB",
                   e->steps[step].name, e->steps[step].op_types,
                   ND_PERCENT(nd_explain_effect_share(e, device, step)),
                   nd_format_share(layer->introduced.n_differing, layer->n_qvalues, share),
                   nd_explain_real(layer->introduced.max, max));
}

/* Where a device that is not faulty leaves exact rounding, how far, and which layer matters most. */
static void nd_explain_put_begin(struct nd_strbuf *out, const struct nd_explanation *e,
                                 const struct nd_explained_device *device, size_t width)
{
    if (device->n_sources == 0 || device->n_faulty > 0)
        return;
    put_greatest(out, e, device, width);
    size_t step = device->sources[0];
    const struct nd_explained_layer *layer = &device->layers[step];
    char share[32], max[32];
    bool is_twice =
        device->arithmetic != NULL && strncmp(device->arithmetic, "double:", strlen("double:")) == 0;
    nd_summary_put(out, width, 2, 4,
                   "differs from exact rounding from '%s' (%s) on: in this layer alone %s of the values, by at "
                   "most %s LSB%s",
                   e->steps[step].name, e->steps[step].op_types,
                   nd_format_share(layer->introduced.n_differing, layer->n_qvalues, share),
                   nd_explain_real(layer->introduced.max, max),
                   is_twice ? "; every value is rounded twice" : "");
}

enum { MAX_LAYERS = 2, MAX_NAMED = 4, MAX_CAPTURES = 16, LABEL_BYTES = 96, MAX_NAME = 18 };

struct brief {
    const struct nd_explanation *e;
    struct nd_strbuf *out;
    size_t width;
    bool is_crowded; /* so many groups that healthy ones get one sentence */
    bool is_bare;    /* and nothing but that sentence */
};

/* ---- devices and their groups ---- */

/* Its label, without the middle where that is too long. */
static void name_device(const struct nd_explanation *e, size_t d, char out[static LABEL_BYTES])
{
    char text[EXPLAIN_CELL_BYTES] = "";
    nd_explain_shorten(e->devices[d].label, LABEL_BYTES - 1, text);
    memcpy(out, text, LABEL_BYTES);
}

/* The same values, and nothing else to say of them. */
static bool is_alike(const struct nd_explained_device *a, const struct nd_explained_device *b)
{
    const char *x = a->expected != NULL ? a->expected : "", *y = b->expected != NULL ? b->expected : "";
    return a->same_as == b->same_as && a->health == b->health && a->failure == NULL && b->failure == NULL &&
           a->n_findings + b->n_findings + a->observer.n_changed + b->observer.n_changed == 0 &&
           a->execution.verdict == b->execution.verdict && strcmp(x, y) == 0;
}

/* Whether layers were judged at all. */
static bool has_layers(const struct nd_explanation *e)
{
    for (size_t d = 0; d < e->n_devices; d++)
        for (size_t s = 0; s < e->n_steps && e->devices[d].failure == NULL; s++)
            if (e->devices[d].layers[s].floats.n > 0)
                return true;
    return nd_explain_has_qvalues(e);
}

static bool is_first(const struct brief *b, size_t d)
{
    for (size_t i = 0; i < d; i++)
        if (has_layers(b->e) && is_alike(&b->e->devices[i], &b->e->devices[d]))
            return false;
    return true;
}

/* "gen3=gen4=gen5", or "gen3 and 9 more". */
static void name_group(const struct brief *b, size_t d, char out[static LABEL_BYTES])
{
    enum { MAX_COLUMNS = 24 };
    size_t n = 0, used = strlen(strcpy(out, "")), n_first;
    name_device(b->e, d, out);
    n_first = used = strlen(out);
    for (size_t i = d + 1; i < b->e->n_devices && has_layers(b->e); i++) {
        char name[LABEL_BYTES];
        if (!is_alike(&b->e->devices[d], &b->e->devices[i]))
            continue;
        name_device(b->e, i, name);
        n++;
        if (used + 1 + strlen(name) < LABEL_BYTES)
            used += (size_t)snprintf(out + used, LABEL_BYTES - used, "=%s", name);
        else
            used = LABEL_BYTES;
    }
    if (n > 0 && used > MAX_COLUMNS && n_first + 16 < LABEL_BYTES)
        snprintf(out + n_first, LABEL_BYTES - n_first, " and %zu more", n);
}

/* ---- the first lines ---- */

static void put_environments(const struct brief *b)
{
    const struct nd_explanation *e = b->e;
    ND_FREED const char **labels = calloc(2 * e->n_devices + 1, sizeof *labels);
    b->out->failed = b->out->failed || labels == NULL;
    for (size_t d = 0; d < e->n_devices && labels != NULL; d++) {
        labels[d] = e->devices[d].label;
        labels[e->n_devices + d] = e->devices[d].environment != NULL ? e->devices[d].environment : "";
    }
    if (labels != NULL)
        nd_summary_put_environments(b->out, b->width, labels, labels + e->n_devices, e->n_devices);
}

static void put_headline(const struct brief *b)
{
    static const char *const what[] = {
        [ND_HEALTH_HEALTHY] = "no device has a fault",
        [ND_HEALTH_INCONCLUSIVE] =
            "not every layer could be examined, and no layer that was examined is faulty",
        [ND_HEALTH_UNEXPLAINED] = NULL, /* nd_explain_say_unexplained */
        [ND_HEALTH_FAULTY] = "a layer has a fault",
        [ND_HEALTH_FAILED] = "no values, since the device did not finish",
    };
    const struct nd_explanation *e = b->e;
    size_t n = 0;
    for (size_t d = 0; d < e->n_devices; d++)
        n += e->devices[d].health == e->health;
    char count[64] = "";
    if (e->n_devices > 1 && e->health != ND_HEALTH_HEALTHY)
        snprintf(count, sizeof count, "%zu of %zu devices: ", n, e->n_devices);
    nd_summary_put(b->out, b->width, 0, 2, "%s: %s%s", nd_explain_health_word(e->health), count,
                   e->health == ND_HEALTH_UNEXPLAINED                    ? nd_explain_say_unexplained(e)
                   : e->health == ND_HEALTH_HEALTHY && e->n_devices == 1 ? "the device has no fault"
                                                                         : what[e->health]);
    nd_summary_put(b->out, b->width, 0, 2, "%s: %zu layers, %zu sample%s of '%s', %zu capture%s%s%s",
                   nd_path_base(e->model), e->n_steps, e->n_samples, e->n_samples == 1 ? "" : "s",
                   e->probe != NULL ? e->probe : "", e->n_devices, e->n_devices == 1 ? "" : "s",
                   e->float_model != NULL ? "; float model " : "",
                   e->float_model != NULL ? nd_path_base(e->float_model) : "");
    put_environments(b);
}

/* ---- a faulty layer ---- */

/* Layers after it that follow known arithmetic, but have wrong inputs. */
static size_t count_passing_on(const struct nd_explanation *e, const struct nd_explained_device *device,
                               size_t step)
{
    size_t n = 0;
    for (size_t s = step + 1; s < e->n_steps; s++) {
        const struct nd_explained_layer *layer = &device->layers[s];
        n += layer->judgement.state == ND_LAYER_FOLLOWS && layer->has_total && layer->passed_on.n_differing > 0;
    }
    return n;
}

static void put_effect_of_explain_brief(const struct brief *b, const struct nd_explained_device *device,
                                        size_t step)
{
    const struct nd_explained_layer *layer = &device->layers[step];
    size_t n = count_passing_on(b->e, device, step);
    char effect[96] = "", passed[96] = "";
    if (!isnan(layer->harmed_share))
        snprintf(effect, sizeof effect, "by itself it changes %s of the output values",
                 ND_PERCENT(layer->harmed_share));
    if (n > 0)
        snprintf(passed, sizeof passed, "%s%zu later layer%s only pass%s its error on",
                 effect[0] != '\0' ? "; " : "", n, n == 1 ? "" : "s", n == 1 ? "es" : "");
    if (effect[0] != '\0' || passed[0] != '\0')
        nd_summary_put(b->out, b->width, 2, 4, "effect: %s%s", effect, passed);
}

static void put_faulty_of_explain_brief(const struct brief *b, const struct nd_explained_device *device)
{
    const struct nd_explained_layer *layer = &device->layers[device->faulty[0]];
    struct nd_strbuf evidence = {0};
    say_evidence(layer, &evidence);
    b->out->failed = b->out->failed || evidence.failed;
    nd_summary_put(b->out, b->width, 2, 4, "evidence: %s", evidence.text != NULL ? evidence.text : "");
    nd_strbuf_deinit(&evidence);
    put_effect_of_explain_brief(b, device, device->faulty[0]);
    if (layer->judgement.known_defect != NULL)
        nd_summary_put(b->out, b->width, 2, 4, "%s. What to do: %s", layer->judgement.known_defect,
                       layer->judgement.remedy);
    if (device->n_faulty < 2)
        return;
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf names = {0};
    for (size_t i = 1; i < device->n_faulty && i <= MAX_NAMED; i++) {
        const struct nd_explained_step *step = &b->e->steps[device->faulty[i]];
        nd_strbuf_printf(&names, "%s'%s' (%s)", i > 1 ? ", " : "", step->name, step->op_types);
    }
    if (device->n_faulty > MAX_NAMED + 1)
        nd_strbuf_printf(&names, " and %zu more", device->n_faulty - MAX_NAMED - 1);
    b->out->failed = b->out->failed || names.failed;
    nd_summary_put(b->out, b->width, 2, 4, "faulty, too: %s", names.text != NULL ? names.text : "");
}

/* ---- devices ---- */

static void put_details(const struct brief *b, const struct nd_explained_device *device)
{
    if (device->n_faulty > 0)
        put_faulty_of_explain_brief(b, device);
    if (!b->is_crowded)
        nd_explain_put_begin(b->out, b->e, device, b->width);
    nd_explain_put_floats(b->out, b->e, device, b->width);
    nd_explain_put_findings(b->out, b->e, device, b->width, MAX_LAYERS);
    nd_explain_put_oddities(b->out, b->e, device, b->width, device->n_faulty > 0 ? 1 : MAX_LAYERS);
    if (!b->is_crowded)
        nd_explain_put_within(b->out, b->e, device, b->width);
    nd_explain_put_execution_line(b->out, b->e, device, b->width);
    if (device->observer.n_changed > 0)
        nd_explain_put_observer(b->out, device, b->width);
    if (device->health != ND_HEALTH_HEALTHY)
        nd_explain_put_not_examined(b->out, b->e, device, b->width, MAX_LAYERS);
}

/* Columns of the names and of the verdicts; a name that is longer moves its own line. */
struct columns {
    size_t name, verdict;
};

static struct columns measure(const struct brief *b)
{
    struct columns widest = {0, 0};
    for (size_t d = 0; d < b->e->n_devices; d++) {
        char name[LABEL_BYTES];
        if (!is_first(b, d))
            continue;
        name_group(b, d, name);
        size_t n = strlen(name), n_verdict = strlen(nd_explain_health_word(b->e->devices[d].health));
        widest.name = n > widest.name ? n : widest.name;
        widest.verdict = n_verdict > widest.verdict ? n_verdict : widest.verdict;
    }
    widest.name = widest.name < MAX_NAME ? widest.name : MAX_NAME;
    return widest;
}

/* ---- the next command ---- */

static size_t first_with(const struct nd_explanation *e, enum nd_health health)
{
    size_t d = 0;
    while (d + 1 < e->n_devices && e->devices[d].health != health)
        d++;
    return d;
}

/* Whether two chips are healthy, have different arithmetic, and give different values: then the model can be
 * changed so that they agree. */
static bool can_align(const struct nd_explanation *e)
{
    const struct nd_explained_device *first = NULL;
    bool are_different = false;
    for (size_t d = 0; d < e->n_devices; d++) {
        const struct nd_explained_device *device = &e->devices[d];
        if (device->arithmetic == NULL || strncmp(device->arithmetic, "htp-", strlen("htp-")) != 0)
            continue;
        are_different = are_different || (first != NULL && first->same_as != device->same_as &&
                                          strcmp(first->arithmetic, device->arithmetic) != 0);
        first = device;
    }
    return are_different;
}

/* Chosen: an error of a third of the signal. Then no chip matters before the quantisation is mended. */
static const double broken_sqnr_db = 10;

static bool is_broken(const struct nd_explanation *e)
{
    return e->quantisation != NULL && e->quantisation->output_sqnr_db < broken_sqnr_db;
}

/* Behind the first n words; how many there are then. more ends with NULL. */
static size_t add_words(const char **words, size_t n, const char *const *more)
{
    for (; *more != NULL; more++)
        words[n++] = *more;
    return n;
}

/* A device that npudiff can run a model on, and not a file of another tool. */
static bool can_run(const struct nd_explained_device *device)
{
    return device->uri[0] != '?' && strncmp(device->uri, "import", strlen("import")) != 0;
}

/* What a model without faults is good for: a campaign on its devices; of files a report. */
static const char *add_words_of_healthy(const struct nd_explanation *e, const char **words, size_t *n)
{
    bool can_run_all = true;
    for (size_t d = 0; d < e->n_devices; d++)
        can_run_all = can_run_all && can_run(&e->devices[d]);
    *n = can_run_all ? add_words(words, *n, (const char *[]){"init", e->model, NULL})
                     : add_words(words, *n, (const char *[]){"report", "--quantised", e->model, NULL});
    for (size_t d = 0; d < e->n_devices && d < MAX_CAPTURES / 2; d++) {
        bool is_new = true;
        for (size_t i = 0; i < d; i++)
            is_new = is_new && strcmp(e->devices[i].uri, e->devices[d].uri) != 0;
        if (!can_run_all)
            words[(*n)++] = e->devices[d].capture;
        else if (is_new)
            *n = add_words(words, *n, (const char *[]){"-d", e->devices[d].uri, NULL});
    }
    *n = add_words(words, *n, (const char *[]){"-o", can_run_all ? "campaign.yaml" : "report.html", NULL});
    return can_run_all ? "to judge accuracy and differences by your own limits"
                       : "to send the result to others";
}

static void put_next(const struct brief *b)
{
    const struct nd_explanation *e = b->e;
    const char *words[14 + MAX_CAPTURES] = {"npudiff"}, *why;
    size_t n = 1, d = first_with(e, e->health);
    const struct nd_explained_device *device = &e->devices[d];
    if (e->health == ND_HEALTH_HEALTHY && is_broken(e)) {
        why = "as the quantisation alone breaks the model: to look for faults of the file";
        n = add_words(words, n, (const char *[]){"lint", e->model, NULL});
    } else if (e->health == ND_HEALTH_HEALTHY && can_align(e)) {
        why = "to make the chips give the same bits";
        n = add_words(words, n, (const char *[]){"align", e->model, "-o", "aligned.onnx", NULL});
    } else if (e->health == ND_HEALTH_HEALTHY) {
        why = add_words_of_healthy(e, words, &n);
    } else if (e->health == ND_HEALTH_FAULTY && can_run(device)) {
        why = "to make a small reproducer for the vendor";
        n = add_words(words, n,
                      (const char *[]){"reduce", e->model, "-d", device->uri, "-o", "reproducer", "--differs",
                                       "1lsb", "--tensor", e->steps[device->faulty[0]].name, NULL});
        if (e->probe_source != NULL)
            n = add_words(words, n, (const char *[]){"-p", e->probe_source, NULL});
    } else if (e->health == ND_HEALTH_FAILED) {
        why = "to see what the device's logs say";
        n = add_words(words, n, (const char *[]){"info", device->capture, NULL});
    } else {
        bool is_unexplained = e->health == ND_HEALTH_UNEXPLAINED;
        why = is_unexplained ? "to see which arithmetic the values leave possible" : "to see every layer";
        n = add_words(
            words, n,
            (const char *[]){"explain", is_unexplained ? "--identify" : "-v", "--quantised", e->model, NULL});
        for (size_t i = 0; i < e->n_devices && n < 8 + MAX_CAPTURES; i++)
            if (e->devices[i].health == e->health && is_first(b, i))
                words[n++] = e->devices[i].capture;
    }
    nd_summary_put_next(b->out, b->width, why, words, n);
}

/* Of the groups the worst first. */
static void put_devices(const struct brief *b)
{
    struct columns columns = measure(b);
    for (int health = ND_HEALTH_FAILED; health >= (int)ND_HEALTH_HEALTHY; health--)
        for (size_t d = 0; d < b->e->n_devices; d++)
            if ((int)b->e->devices[d].health == health && is_first(b, d)) {
                const struct nd_explained_device *device = &b->e->devices[d];
                char name[LABEL_BYTES], sentence[EXPLAIN_SENTENCE_BYTES];
                name_group(b, d, name);
                nd_explain_clean(name);
                nd_explain_say_health(b->e, device, sentence);
                nd_strbuf_printf(b->out, "%-*s  %-*s  ", (int)columns.name, name, (int)columns.verdict,
                                 nd_explain_health_word(device->health));
                nd_summary_put(b->out, b->width, 0, columns.name + columns.verdict + 4, "%s%s", sentence,
                               device->failure == NULL ? "." : "");
                if (device->failure == NULL && !(b->is_bare && device->health == ND_HEALTH_HEALTHY))
                    put_details(b, device);
            }
    nd_explain_put_unreached(b->out, b->e, b->width);
    if (b->e->float_model == NULL && nd_explain_has_qvalues(b->e)) {
        nd_strbuf_puts(b->out, "\n");
        nd_summary_put(b->out, b->width, 0, 2,
                       "With --float MODEL it also says how much of the error is quantisation.");
    }
}

enum nd_status nd_report_explanation_brief(const struct nd_explanation *explanation,
                                           const struct nd_identification *identification, size_t width,
                                           char **out, struct nd_error *err)
{
    enum { CROWD = 3, CROWD_BESIDE_QUANTISATION = 2 };
    struct nd_strbuf text = {0}, quantisation = {0}, next = {0};
    struct brief b = {.e = explanation, .out = &text, .width = nd_summary_width(width)};
    size_t n_groups = 0;
    for (size_t d = 0; d < explanation->n_devices; d++)
        n_groups += is_first(&b, d);
    nd_explain_put_quantisation_line(&quantisation, explanation, b.width);
    b.is_crowded = n_groups > (quantisation.len > 0 ? CROWD_BESIDE_QUANTISATION : CROWD);
    put_headline(&b);
    nd_strbuf_puts(&text, "\n");
    b.out = &next;
    if (identification == NULL)
        put_next(&b);
    size_t used =
        nd_summary_count_lines(&text) + nd_summary_count_lines(&quantisation) + nd_summary_count_lines(&next);
    /* Into so many lines: what is said of healthy devices is left out before a device is. */
    size_t max_lines = used < ND_SUMMARY_LINES ? ND_SUMMARY_LINES - used : 1;
    static const char more[] = "... (-v shows more)\n";
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf all = {0}, bare = {0};
    b.out = &all;
    put_devices(&b);
    b.is_bare = true;
    b.out = &bare;
    put_devices(&b);
    if (nd_summary_count_lines(&all) > max_lines && nd_summary_count_lines(&bare) <= max_lines) {
        nd_summary_append_cut(&text, &bare, SIZE_MAX);
        nd_strbuf_puts(&text, more);
    } else {
        nd_summary_append_cut(&text, &all, max_lines);
    }
    text.failed = text.failed || bare.failed;
    nd_summary_append_cut(&text, &quantisation, SIZE_MAX);
    nd_explain_put_identification(&text, identification, b.width, false);
    nd_summary_append_cut(&text, &next, SIZE_MAX);
    nd_strbuf_deinit(&quantisation);
    nd_strbuf_deinit(&next);
    return nd_text_end(&text, out, err);
}
