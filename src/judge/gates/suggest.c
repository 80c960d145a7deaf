/* The tightest policy that the captures pass: for every model, devices with the same bounds together. Every
 * device gets one gate of a kind, so that none loosens another. */
#include <math.h>
#include <string.h>

#include "core/memory.h"
#include "core/text/strbuf.h"
#include "judge/release/qualify.h"

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

static void add_part(struct bounds *bounds, const struct nd_compared_tensor *tensor,
                     const struct nd_difference *d)
{
    bool is_float = nd_dtype_is_float(tensor->dtype);
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
    const struct nd_paired_question question =
        nd_qualify_question(0.5, q->campaign.confidence, q->campaign.power);
    for (size_t i = 0; i < model->n_studies; i++) {
        const struct nd_accuracy_study *study = &model->studies[i];
        const int64_t *test = nd_accuracy_study_classes(study, device);
        struct nd_paired table;
        struct nd_paired_answer answer;
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
    size_t test;
    const struct nd_comparison *c = nd_qualify_compared(q, model, device, &test);
    if (c == NULL)
        return (struct bounds){.margin = NAN};
    for (size_t e = 0; e < c->n_tensors; e++) {
        const struct nd_compared_pair *pair = &c->tensors[e].pairs[test - 1];
        for (size_t s = 0; s < model->n_tensors; s++)
            if (strcmp(model->tensors[s].name, c->tensors[e].name) == 0)
                for (size_t p = 0; p < c->n_probes; p++) {
                    bounds.is_known = bounds.is_known && pair->probes[p].coverage == ND_COVERAGE_FULL;
                    add_part(&bounds, &c->tensors[e], &pair->probes[p].difference);
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

/* What is proposed: in parts for programs, and as YAML for people. */
struct suggestion {
    const struct nd_qualification *q;
    struct nd_qualified *out;
    struct nd_strbuf yaml;
};

static void put_key(struct suggestion *to, const char *key)
{
    nd_strbuf_printf(&to->yaml, "    %s: ", key);
}

static void put_word(struct suggestion *to, const char *key, const char *text)
{
    put_key(to, key);
    nd_strbuf_printf(&to->yaml, "%s\n", text);
}

static void put_text(struct suggestion *to, const char *key, const char *text)
{
    put_key(to, key);
    put_quoted(&to->yaml, text);
    nd_strbuf_puts(&to->yaml, "\n");
}

static void put_number(struct suggestion *to, const char *key, double value)
{
    char number[32];
    if (!isnan(value))
        put_word(to, key, nd_policy_format_number(value, number));
}

/* The YAML of a list of texts, as in "['a', 'b']". */
static void put_texts(struct suggestion *to, const char *key, const struct nd_qualified_texts *texts)
{
    put_key(to, key);
    for (size_t i = 0; i < texts->n; i++) {
        nd_strbuf_puts(&to->yaml, i > 0 ? ", " : "[");
        put_quoted(&to->yaml, texts->items[i]);
    }
    nd_strbuf_puts(&to->yaml, "]\n");
}

static void add_gate(struct suggestion *to, const struct nd_qualified_suggestion *gate)
{
    to->out->policy.items[to->out->policy.n++] = *gate;
    nd_strbuf_printf(&to->yaml, "  - gate: %s\n", gate->gate);
    put_number(to, "max", gate->max);
    put_number(to, "margin", gate->margin);
    put_number(to, "confidence", gate->confidence);
    if (gate->tensors[0] != '\0')
        put_text(to, "tensors", gate->tensors);
    if (gate->to[0] != '\0')
        put_text(to, "to", gate->to);
    if (gate->reference[0] != '\0')
        put_word(to, "reference", gate->reference);
    if (gate->models[0] != '\0')
        put_text(to, "models", gate->models);
    if (gate->devices.n > 0)
        put_texts(to, "devices", &gate->devices);
}

static void add_gates(struct suggestion *to, const char *model, const struct bounds *bounds,
                      struct nd_qualified_texts devices)
{
    struct nd_qualified_suggestion gate = {.margin = NAN,
                                           .confidence = NAN,
                                           .tensors = "*",
                                           .to = nd_qualify_text(to->q, to->q->campaign.reference),
                                           .reference = "",
                                           .models = nd_qualify_text(to->q, model),
                                           .devices = devices};
    const struct {
        const char *gate;
        bool has;
        double max;
    } bounded[] = {{"lsb", bounds->has_integers, bounds->lsb},
                   {"ulp", bounds->has_floats, bounds->ulp},
                   {"differing-share", bounds->has_integers || bounds->has_floats, bounds->share}};
    for (size_t i = 0; i < sizeof bounded / sizeof bounded[0]; i++) {
        gate.gate = bounded[i].gate;
        gate.max = bounded[i].max;
        if (bounded[i].has)
            add_gate(to, &gate);
    }
    gate.gate = "accuracy-drop";
    gate.max = NAN;
    gate.margin = bounds->margin;
    gate.confidence = to->q->campaign.confidence;
    gate.tensors = gate.to = "";
    gate.reference = ND_REFERENCE_QUANTISED;
    if (!isnan(bounds->margin))
        add_gate(to, &gate);
}

/* The devices with the bounds of device d, which is the first that has them. */
static struct nd_qualified_texts alike_devices(const struct nd_qualification *q, const struct bounds *bounds,
                                               size_t d)
{
    struct nd_qualified_texts devices = {.items =
                                             nd_arena_calloc(q->arena, q->n_devices, sizeof *devices.items)};
    for (size_t i = d; devices.items != NULL && i < q->n_devices; i++)
        if (i == d || is_alike(&bounds[d], &bounds[i]))
            devices.items[devices.n++] = nd_qualify_text(q, q->labels[i]);
    return devices;
}

static void leave_out(struct suggestion *to, const char *model, const char *device, const char *why)
{
    nd_strbuf_printf(&to->yaml, "  # nothing is proposed for '%s' on '%s': it %s\n", model, device, why);
    to->out->left_out.items[to->out->left_out.n++] =
        (struct nd_qualified_omission){nd_qualify_text(to->q, model), nd_qualify_text(to->q, device), why};
}

static void suggest_model(struct suggestion *to, const struct nd_qualify_model *model)
{
    const struct nd_qualification *q = to->q;
    ND_FREED struct bounds *bounds = nd_calloc(q->n_devices, sizeof *bounds);
    if (bounds == NULL) {
        nd_arena_fail(q->arena);
        return;
    }
    for (size_t d = 0; d < q->n_devices; d++)
        bounds[d] = bounds_of(q, model, d);
    for (size_t d = 0; d < q->n_devices; d++) {
        bool is_first = true;
        for (size_t i = 0; i < d; i++)
            is_first = is_first && !is_alike(&bounds[i], &bounds[d]);
        if (!bounds[d].is_known && strcmp(q->labels[d], q->campaign.reference) != 0)
            leave_out(to, model->campaign->name, q->labels[d],
                      model->cells[d].failure != NULL ? "failed" : "cannot be compared in numbers");
        if (is_first && bounds[d].is_known)
            add_gates(to, model->campaign->name, &bounds[d], alike_devices(q, bounds, d));
    }
}

void nd_qualify_suggest(const struct nd_qualification *q, struct nd_qualified *out)
{
    enum { GATES_OF_A_DEVICE = 4 };
    static const struct nd_qualified_suggestion finalize = {
        "finalize", (double)NAN, (double)NAN, (double)NAN, "", "", "", "", {0, NULL}};
    struct suggestion to = {.q = q, .out = out};
    size_t n = q->campaign.n_models * q->n_devices;
    out->policy.items = nd_arena_calloc(q->arena, 1 + GATES_OF_A_DEVICE * n, sizeof *out->policy.items);
    out->left_out.items = nd_arena_calloc(q->arena, n, sizeof *out->left_out.items);
    if (nd_arena_has_failed(q->arena))
        return;
    nd_strbuf_puts(&to.yaml, "policy:\n");
    add_gate(&to, &finalize);
    for (size_t m = 0; m < q->campaign.n_models; m++)
        suggest_model(&to, &q->models[m]);
    ND_FREED char *text = nd_strbuf_take(&to.yaml);
    if (text == NULL)
        nd_arena_fail(q->arena);
    out->suggestion = nd_arena_text(q->arena, text);
}
