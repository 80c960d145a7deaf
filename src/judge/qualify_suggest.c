/* The tightest policy that the captures pass: for every model, devices with the same bounds together. Every
 * device gets one gate of a kind, so that none loosens another. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/strbuf.h"
#include "judge/qualify.h"

/* What one device needs. */
struct bounds {
    bool is_known;
    bool has_integers, has_floats;
    double lsb, ulp, share;
    double margin; /* NaN: no accuracy */
};

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static void add_part(struct bounds *bounds, const struct nd_compared_edge *edge, const struct nd_difference *d)
{
    bool is_float = nd_dtype_is_float(edge->dtype);
    *(is_float ? &bounds->has_floats : &bounds->has_integers) = true;
    if (d->n_samples_differing == 0)
        return;
    /* Values that are not stored, of mixed types, or not finite on one side: no number would pass. */
    bool is_countable =
        d->has_values && d->is_integer != is_float && d->n_nan_mismatch == 0 && d->n_inf_mismatch == 0;
    bounds->is_known = bounds->is_known && is_countable;
    double *bound = is_float ? &bounds->ulp : &bounds->lsb;
    *bound = larger(*bound, (double)(is_float ? d->max_ulp : d->max_lsb));
    bounds->share = larger(bounds->share, d->share);
}

/* The smallest margin of four decimals that is proven; NaN: none is. */
static double margin_of(const struct nd_qualification *q, const struct nd_qualify_model *model, size_t device)
{
    double margin = NAN;
    const struct nd_question question = {ND_QUESTION_NONINFERIOR, 0.5, 1 - q->campaign.confidence,
                                         q->campaign.power};
    for (size_t i = 0; i < model->n_studies; i++) {
        const struct nd_accuracy_study *study = &model->studies[i];
        const int64_t *test = nd_accuracy_study_classes(study, device);
        struct nd_paired table;
        struct nd_answer answer;
        uint64_t unused;
        if (test == NULL || study->quantised == NULL)
            return NAN;
        nd_paired_count(study->quantised, test, study->labels, study->n_samples, &table, &unused);
        nd_paired_ask(&table, &question, &answer);
        double needed = ceil(-answer.interval.low * 1e4 + 1e-6) / 1e4;
        needed = needed < 1e-4 ? 1e-4 : needed;
        margin = isnan(margin) ? needed : larger(margin, needed);
    }
    return margin < 0.9999 ? margin : NAN;
}

static struct bounds bounds_of(const struct nd_qualification *q, const struct nd_qualify_model *model,
                               size_t device)
{
    struct bounds bounds = {.is_known = true, .margin = margin_of(q, model, device)};
    size_t ref = nd_qualify_find_cell(model, q->n_devices, q->campaign.reference);
    const struct nd_qualify_comparison *found = ref != SIZE_MAX ? nd_qualify_find_comparison(model, ref) : NULL;
    if (found == NULL || found->comparison == NULL || found->devices[device] == SIZE_MAX)
        return (struct bounds){.margin = NAN};
    const struct nd_comparison *c = found->comparison;
    for (size_t e = 0; e < c->n_edges; e++) {
        const struct nd_compared_pair *pair = &c->edges[e].pairs[found->devices[device] - 1];
        for (size_t s = 0; s < model->n_edges; s++)
            if (strcmp(model->edges[s].name, c->edges[e].name) == 0)
                for (size_t p = 0; p < c->n_probes; p++) {
                    bounds.is_known = bounds.is_known && pair->probes[p].coverage == ND_COVERAGE_FULL;
                    add_part(&bounds, &c->edges[e], &pair->probes[p].difference);
                }
    }
    return bounds;
}

static bool is_same_number(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static bool is_alike(const struct bounds *a, const struct bounds *b)
{
    return a->is_known && b->is_known && a->has_integers == b->has_integers && a->has_floats == b->has_floats &&
           a->lsb == b->lsb && a->ulp == b->ulp && a->share == b->share && is_same_number(a->margin, b->margin);
}

/* In single quotes, where only a quote is special. */
static void put_quoted(struct nd_strbuf *out, const char *text)
{
    nd_strbuf_puts(out, "'");
    for (; *text != '\0'; text++)
        nd_strbuf_append(out, *text == '\'' ? "''" : text, *text == '\'' ? 2 : 1);
    nd_strbuf_puts(out, "'");
}

/* What is proposed, as YAML for people and as JSON for programs. jansson refuses NULL, so that a failed
 * allocation ends as a failed append. */
struct suggestion {
    struct nd_strbuf yaml;
    json_t *policy;   /* gates with the keys of a campaign's policy */
    json_t *left_out; /* {"model", "device", "reason"} */
    bool is_whole;
};

static void append(struct suggestion *to, json_t *list, json_t *item)
{
    if (json_array_append_new(list, item) != 0)
        to->is_whole = false;
}

/* The YAML of a list of texts, as in "['a', 'b']", or of one text. */
static void put_texts(struct nd_strbuf *out, const json_t *value)
{
    size_t i;
    const json_t *item;
    nd_strbuf_puts(out, "[");
    json_array_foreach(value, i, item)
    {
        nd_strbuf_puts(out, i > 0 ? ", " : "");
        put_quoted(out, json_string_value(item));
    }
    nd_strbuf_puts(out, "]");
}

/* Takes over the gate, an object of numbers, texts and lists of texts in the order in which they are shown. */
static void put_gate(struct suggestion *to, json_t *gate)
{
    const char *key, *lead = "  - ";
    json_t *value;
    char number[32];
    json_object_foreach(gate, key, value)
    {
        bool is_word = strcmp(key, "gate") == 0 || (strcmp(key, "reference") == 0);
        nd_strbuf_printf(&to->yaml, "%s%s: ", lead, key);
        if (json_is_array(value))
            put_texts(&to->yaml, value);
        else if (json_is_number(value))
            nd_strbuf_puts(&to->yaml, nd_policy_format_number(json_number_value(value), number));
        else if (is_word)
            nd_strbuf_puts(&to->yaml, json_string_value(value));
        else
            put_quoted(&to->yaml, json_string_value(value));
        nd_strbuf_puts(&to->yaml, "\n");
        lead = "    ";
    }
    append(to, to->policy, gate);
}

static void put_bound(struct suggestion *to, const char *gate, double max, const char *ref, const char *model,
                      json_t *devices)
{
    put_gate(to, json_pack("{s:s, s:f, s:s, s:s, s:s, s:O}", "gate", gate, "max", max, "edges", "*", "to", ref,
                           "models", model, "devices", devices));
}

static void put_gates(struct suggestion *to, const struct nd_qualification *q, const char *model,
                      const struct bounds *bounds, json_t *devices)
{
    const char *ref = q->campaign.reference;
    if (bounds->has_integers)
        put_bound(to, "lsb", bounds->lsb, ref, model, devices);
    if (bounds->has_floats)
        put_bound(to, "ulp", bounds->ulp, ref, model, devices);
    if (bounds->has_integers || bounds->has_floats)
        put_bound(to, "differing-share", bounds->share, ref, model, devices);
    if (!isnan(bounds->margin))
        put_gate(to, json_pack("{s:s, s:f, s:f, s:s, s:s, s:O}", "gate", "accuracy-drop", "margin",
                               bounds->margin, "confidence", q->campaign.confidence, "reference",
                               ND_REFERENCE_QUANTISED, "models", model, "devices", devices));
}

/* The devices with the bounds of device d, which is the first that has them. */
static json_t *alike_devices(const struct nd_qualification *q, const struct bounds *bounds, size_t d)
{
    json_t *devices = json_array();
    for (size_t i = d; i < q->n_devices; i++)
        if (i == d || is_alike(&bounds[d], &bounds[i]))
            json_array_append_new(devices, json_string(q->labels[i]));
    return devices;
}

static void leave_out(struct suggestion *to, const char *model, const char *device, const char *why)
{
    nd_strbuf_printf(&to->yaml, "  # nothing is proposed for '%s' on '%s': it %s\n", model, device, why);
    append(to, to->left_out, json_pack("{s:s, s:s, s:s}", "model", model, "device", device, "reason", why));
}

static void suggest_model(struct suggestion *to, const struct nd_qualification *q,
                          const struct nd_qualify_model *model)
{
    struct bounds *bounds = nd_calloc(q->n_devices, sizeof *bounds);
    to->is_whole = to->is_whole && bounds != NULL;
    for (size_t d = 0; to->is_whole && d < q->n_devices; d++)
        bounds[d] = bounds_of(q, model, d);
    for (size_t d = 0; to->is_whole && d < q->n_devices; d++) {
        bool is_first = true;
        for (size_t i = 0; i < d; i++)
            is_first = is_first && !is_alike(&bounds[i], &bounds[d]);
        if (!bounds[d].is_known && strcmp(q->labels[d], q->campaign.reference) != 0)
            leave_out(to, model->campaign->name, q->labels[d],
                      model->cells[d].failure != NULL ? "failed" : "cannot be compared in numbers");
        if (!is_first || !bounds[d].is_known)
            continue;
        json_t *devices = alike_devices(q, bounds, d);
        put_gates(to, q, model->campaign->name, &bounds[d], devices);
        json_decref(devices);
    }
    free(bounds);
}

char *nd_qualify_suggest(const struct nd_qualification *q, json_t **json)
{
    struct suggestion to = {.policy = json_array(), .left_out = json_array(), .is_whole = true};
    nd_strbuf_puts(&to.yaml, "policy:\n");
    put_gate(&to, json_pack("{s:s}", "gate", "finalize"));
    for (size_t m = 0; to.is_whole && m < q->campaign.n_models; m++)
        suggest_model(&to, q, &q->models[m]);
    char *text = nd_strbuf_take(&to.yaml);
    json_t *both = json_pack("{s:o, s:o}", "policy", to.policy, "left_out", to.left_out);
    if (to.is_whole && text != NULL && both != NULL) {
        *json = both;
        return text;
    }
    json_decref(both);
    free(text);
    return NULL;
}
