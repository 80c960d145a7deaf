/* The verdict of a device, first line first: what the layers' values say, and what of the error at the outputs
 * is the chip's. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/text/explain.h"
#include "report/text/explain_words.h"
#include "report/text/summary.h"

struct layers {
    size_t n, n_follow, n_unexplained,
        n_not_examined;       /* operators with their quantisers, and inputs' quantisers */
    size_t n_defects;         /* of those that are unexplained: with a known defect of the SDK */
    uint64_t n_values, n_off; /* of those that are unexplained */
    bool has_tie_rule;        /* a layer rounds ties by a rule of its own */
};

static struct layers count(const struct nd_explanation *e, const struct nd_explained_device *device)
{
    struct layers x = {.n = e->n_steps};
    for (size_t s = 0; s < e->n_steps; s++) {
        const struct nd_explained_unit *unit = &device->units[s];
        x.n_follow += unit->state == ND_LAYER_FOLLOWS;
        x.has_tie_rule = x.has_tie_rule || unit->tie_rule != NULL;
        x.n_not_examined += unit->state == ND_LAYER_NOT_EXAMINED;
        if (unit->state != ND_LAYER_UNEXPLAINED)
            continue;
        x.n_unexplained++;
        x.n_defects += unit->known_defect != NULL;
        x.n_values += unit->n_codes;
        x.n_off += unit->n_unexplained;
    }
    return x;
}

static const struct nd_explained_floats *first_floats(const struct nd_explanation *e,
                                                      const struct nd_explained_device *device)
{
    for (size_t s = 0; s < e->n_steps; s++)
        if (device->units[s].floats.n > 0)
            return &device->units[s].floats;
    return NULL;
}

static void name_arithmetic(const struct nd_explanation *e, const struct nd_explained_device *device, char *out,
                            size_t size)
{
    const struct nd_explained_floats *floats = device->failure == NULL ? first_floats(e, device) : NULL;
    bool is_half = floats != NULL && floats->digits == 11, has_codes = nd_explain_has_codes(e);
    if (floats != NULL && !has_codes) {
        snprintf(out, size, "%s", is_half ? "half-precision" : "float32");
        return;
    }
    bool is_known = device->expected != NULL && !device->is_refuted;
    const char *name = is_known ? device->expected : device->program;
    snprintf(out, size, "%s%s", name != NULL ? name : "known",
             is_half && has_codes ? " or half-precision" : "");
}

/* ---- the first line ---- */

static void say_healthy(const struct layers *layers, const char *arithmetic, char *out, size_t size)
{
    snprintf(out, size, "all %zu layers follow %s arithmetic%s", layers->n, arithmetic,
             layers->has_tie_rule ? ", but for ties" : "");
}

static void say_inconclusive(const struct nd_explained_device *device, const struct layers *layers, char *out,
                             size_t size)
{
    if (device->n_examined == 0)
        snprintf(out, size, "no layer could be examined");
    else
        snprintf(out, size, "%zu of %zu layers could not be examined; the others follow known arithmetic",
                 layers->n_not_examined, layers->n);
}

static void say_unexplained(const struct layers *layers, const char *arithmetic, char *out, size_t size)
{
    char share[32], defects[64] = "nothing shows a fault";
    if (layers->n_defects > 0)
        snprintf(defects, sizeof defects, "%zu of them ha%s a known defect of the SDK", layers->n_defects,
                 layers->n_defects > 1 ? "ve" : "s");
    snprintf(out, size, "%zu of %zu layers do not follow %s arithmetic in %s of their values; %s",
             layers->n_unexplained, layers->n, arithmetic,
             nd_explain_share(layers->n_off, layers->n_values, share), defects);
}

static void say_faulty(const struct nd_explanation *e, const struct nd_explained_device *device, char *out,
                       size_t size)
{
    const struct nd_explained_step *step = &e->steps[device->faulty[0]];
    const struct nd_explained_fault *fault = &device->units[device->faulty[0]].fault;
    int n = snprintf(out, size, "'%.300s' (%.80s): %s", step->name, step->op_types,
                     fault->kind != NULL ? fault->text : "an error that no rounding makes");
    if (device->n_faulty > 1 && n >= 0 && (size_t)n < size)
        snprintf(out + n, size - (size_t)n, "; %zu more layer%s faulty", device->n_faulty - 1,
                 device->n_faulty > 2 ? "s are" : " is");
}

/* Parts of an error that cancel out add up to less than either. From this on it is said: half of the
 * quantisation's error is gone. In dB; chosen. */
static const double cancels_db = -3;

static void say_parts(const struct nd_explained_device *device, const char *common, double own, char *out,
                      size_t size)
{
    char together[80] = "";
    if (device->output.noise_figure_db < cancels_db) /* not NaN */
        snprintf(together, sizeof together,
                 ", which cancel out: together they are %.3g dB below the quantisation alone",
                 -device->output.noise_figure_db);
    snprintf(out, size, ". The output's error against the float model is %.3g%% %s, %.3g%% the chip's%s",
             100 - own, common, own, together);
}

/* Which part of the error at the outputs is whose. */
static void say_shares(const struct nd_explanation *e, const struct nd_explained_device *device, char *out,
                       size_t size)
{
    double own = 100 * device->own_share;
    *out = '\0';
    if (device->float_error > 0) /* not NaN */
        snprintf(out, size, ". The output is off double precision by %.2g%% (%.0f dB)",
                 100 * device->float_error, -20 * log10(device->float_error));
    if (device->output.n_codes == 0 || isnan(own))
        return;
    const char *common = e->vote.is_known && e->vote.common_divergence > 0
                             ? "quantisation and what all chips share"
                             : "quantisation";
    if (own < 0.1) /* both numbers would not add up to 100 */
        snprintf(out, size, ". The output's error against the float model is %s; under 0.1%% is the chip's",
                 common);
    else
        say_parts(device, common, own, out, size);
}

void nd_explain_say_health(const struct nd_explanation *e, const struct nd_explained_device *device,
                           char out[static EXPLAIN_SENTENCE_BYTES])
{
    char what[800] = "", shares[256] = "", arithmetic[64];
    const struct layers layers = device->failure == NULL ? count(e, device) : (struct layers){.n = 0};
    name_arithmetic(e, device, arithmetic, sizeof arithmetic);
    switch (device->health) {
    case ND_HEALTH_HEALTHY:
        say_healthy(&layers, arithmetic, what, sizeof what);
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
            if (e->devices[d].units[e->devices[d].unexplained[i]].known_defect != NULL)
                return true;
    return false;
}

const char *nd_explain_say_unexplained(const struct nd_explanation *e)
{
    return has_known_defect(e) ? "some layers follow no known arithmetic, and the SDK has a known defect there"
                               : "some layers follow no known arithmetic, and nothing shows a fault";
}

const char *nd_explain_health_word(enum nd_health health)
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

static void put_effect(struct nd_strbuf *out, const struct nd_explained_unit *unit, size_t width)
{
    char share[32];
    if (isnan(unit->harmed_share))
        return;
    snprintf(share, sizeof share, "%.3g%%", 100 * unit->harmed_share);
    nd_explain_put_wrapped(out, width, 4, "by itself it changes %s of the output values", share);
}

static void put_defect(struct nd_strbuf *out, const struct nd_explained_unit *unit, size_t width)
{
    if (unit->known_defect != NULL)
        nd_explain_put_wrapped(out, width, 4, "%s. What to do: %s", unit->known_defect, unit->remedy);
}

static void put_faulty(struct nd_strbuf *out, const struct nd_explanation *e,
                       const struct nd_explained_device *device, size_t width, size_t most)
{
    for (size_t i = 0; i < device->n_faulty && i < most; i++) {
        const struct nd_explained_step *step = &e->steps[device->faulty[i]];
        const struct nd_explained_unit *unit = &device->units[device->faulty[i]];
        struct nd_strbuf evidence = {0};
        nd_explain_say_evidence(unit, &evidence);
        nd_explain_put_wrapped(out, width, 2, "faulty: '%s' (%s), %s: %s", step->name, step->op_types,
                               unit->fault.kind != NULL ? unit->fault.kind : "of no known kind",
                               evidence.text != NULL ? evidence.text : "");
        out->failed = out->failed || evidence.failed;
        nd_strbuf_deinit(&evidence);
        put_defect(out, unit, width);
        put_effect(out, unit, width);
    }
    if (device->n_faulty > most)
        nd_strbuf_printf(out, "  and %zu more faulty layer%s\n", device->n_faulty - most,
                         device->n_faulty - most == 1 ? "" : "s");
}

static void put_unexplained(struct nd_strbuf *out, const struct nd_explanation *e,
                            const struct nd_explained_device *device, size_t width, size_t most)
{
    for (size_t i = 0; i < device->n_unexplained && i < most; i++) {
        const struct nd_explained_step *step = &e->steps[device->unexplained[i]];
        const struct nd_explained_unit *unit = &device->units[device->unexplained[i]];
        struct nd_strbuf evidence = {0};
        nd_explain_say_evidence(unit, &evidence);
        nd_explain_put_wrapped(out, width, 2, "unexplained: '%s' (%s): %s", step->name, step->op_types,
                               evidence.text != NULL ? evidence.text : "");
        out->failed = out->failed || evidence.failed;
        nd_strbuf_deinit(&evidence);
        put_defect(out, unit, width);
    }
    if (device->n_unexplained > most)
        nd_strbuf_printf(out, "  and %zu more unexplained layer%s\n", device->n_unexplained - most,
                         device->n_unexplained - most == 1 ? "" : "s");
}

/* What is no fault, but worth telling. */
static void put_remarks(struct nd_strbuf *out, const struct nd_explanation *e,
                        const struct nd_explained_device *device, size_t width, size_t most)
{
    size_t n = 0;
    for (size_t s = 0; s < e->n_steps; s++) {
        const struct nd_explained_unit *unit = &device->units[s];
        if (unit->follows_text != NULL && n++ < most)
            nd_explain_put_wrapped(out, width, 2, "'%s' (%s): %s", e->steps[s].name, e->steps[s].op_types,
                                   unit->follows_text);
    }
    if (n > most)
        nd_strbuf_printf(out, "  and %zu more layer%s of this kind\n", n - most, n - most == 1 ? "" : "s");
}

/* Rules for ties: the first layer of each rule, and how many more follow it. */
static void put_ties(struct nd_strbuf *out, const struct nd_explanation *e,
                     const struct nd_explained_device *device, size_t width)
{
    for (size_t s = 0; s < e->n_steps; s++) {
        const struct nd_explained_unit *unit = &device->units[s];
        char more[64] = "";
        size_t n_before = 0, n_after = 0;
        for (size_t k = 0; k < e->n_steps && unit->tie_rule != NULL && n_before == 0; k++) {
            bool is_same =
                device->units[k].tie_rule != NULL && strcmp(device->units[k].tie_rule, unit->tie_rule) == 0;
            n_before += is_same && k < s;
            n_after += is_same && k > s;
        }
        if (unit->tie_rule == NULL || n_before > 0)
            continue;
        if (n_after > 0)
            snprintf(more, sizeof more, "; so do %zu more layer%s", n_after, n_after == 1 ? "" : "s");
        nd_explain_put_wrapped(out, width, 2,
                               "'%s' (%s) rounds ties %s, not half to even: all %" PRIu64
                               " values that differ lie on ties, no fault%s",
                               e->steps[s].name, e->steps[s].op_types, unit->tie_rule, unit->n_ties, more);
    }
}

void nd_explain_put_layers(struct nd_strbuf *out, const struct nd_explanation *e,
                           const struct nd_explained_device *device, size_t width, size_t most)
{
    put_faulty(out, e, device, width, most);
    nd_explain_put_oddities(out, e, device, width, most);
}

void nd_explain_put_oddities(struct nd_strbuf *out, const struct nd_explanation *e,
                             const struct nd_explained_device *device, size_t width, size_t most)
{
    put_unexplained(out, e, device, width, most);
    put_remarks(out, e, device, width, most);
    put_ties(out, e, device, width);
    if (device->is_refuted)
        nd_explain_put_wrapped(out, width, 2,
                               "its values do not follow %s arithmetic, which its chipset asks for",
                               device->expected);
}

/* Which layer matters most at the outputs: the first that differs is often off by a step, and a later one makes
 * the error. */
static void put_greatest(struct nd_strbuf *out, const struct nd_explanation *e,
                         const struct nd_explained_device *device, size_t width)
{
    size_t step = nd_explain_greatest(e, device);
    if (step == SIZE_MAX || step == device->sources[0])
        return;
    const struct nd_explained_unit *unit = &device->units[step];
    char share[32], max[32];
    nd_summary_put(
        out, width, 2, 4,
        "greatest effect: '%s' (%s) makes %.3g%% of the effects of all layers on the outputs; in this layer "
        "alone %s of the values differ, by at most %s LSB",
        e->steps[step].name, e->steps[step].op_types, 100 * nd_explain_effect_share(e, device, step),
        nd_explain_share(unit->local.n_differing, unit->n_codes, share), nd_explain_real(unit->local.max, max));
}

void nd_explain_put_begin(struct nd_strbuf *out, const struct nd_explanation *e,
                          const struct nd_explained_device *device, size_t width)
{
    if (device->n_sources == 0 || device->n_faulty > 0)
        return;
    put_greatest(out, e, device, width);
    size_t step = device->sources[0];
    const struct nd_explained_unit *unit = &device->units[step];
    char share[32], max[32];
    bool is_twice = device->program != NULL && strncmp(device->program, "double:", strlen("double:")) == 0;
    nd_summary_put(out, width, 2, 4,
                   "differs from exact rounding from '%s' (%s) on: in this layer alone %s of the values, by at "
                   "most %s LSB%s",
                   e->steps[step].name, e->steps[step].op_types,
                   nd_explain_share(unit->local.n_differing, unit->n_codes, share),
                   nd_explain_real(unit->local.max, max), is_twice ? "; every value is rounded twice" : "");
}
