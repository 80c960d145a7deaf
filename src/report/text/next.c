/* The command that the default text of a comparison ends with. */
#include "report/text/summary.h"
#include "report/text/compare.h"

enum { MOST_WORDS = 24 };

struct words {
    const char *items[MOST_WORDS];
    size_t n;
};

static void add_word(struct words *words, const char *word)
{
    if (words->n < MOST_WORDS)
        words->items[words->n++] = word;
}

/* The reference, and one of every group that differs from it (the others give the same answer): a few. */
static void add_captures(struct words *words, const struct nd_comparison *c)
{
    enum { MOST_CAPTURES = 6 };
    size_t n = 0;
    add_word(words, c->devices[0].capture);
    for (size_t t = 1; t < c->n_devices; t++)
        if (nd_text_is_first_of_group(c, t) &&
            (c->devices[t].class_id != c->devices[0].class_id || c->n_devices == 2) && n++ < MOST_CAPTURES)
            add_word(words, c->devices[t].capture);
}

static bool has_codes(const struct nd_comparison *c)
{
    size_t e = 0;
    while (e < c->n_edges && !c->edges[e].is_quantised)
        e++;
    return e < c->n_edges;
}

static bool is_shared(const struct nd_comparison *c, size_t probe)
{
    for (size_t e = 0; e < c->n_edges; e++)
        for (size_t t = 0; t < c->n_pairs; t++)
            if (c->edges[e].pairs[t].probes[probe].coverage != ND_COVERAGE_FULL)
                return false;
    return true;
}

/* The first probe of which all captures have everything; n_probes: none. */
static size_t shared_probe(const struct nd_comparison *c)
{
    size_t p = 0;
    while (p < c->n_probes && !is_shared(c, p))
        p++;
    return p;
}

/* What all captures have: a probe, or else the outputs. Says what the command is for. */
static const char *add_what_is_shared(struct words *words, const struct nd_comparison *c)
{
    size_t p = shared_probe(c);
    add_word(words, p < c->n_probes ? "-p" : "--tensors");
    add_word(words, p < c->n_probes ? c->probes[p].name : "outputs");
    return p < c->n_probes ? "to compare only a probe that all captures have" : "to compare only the outputs";
}

void nd_text_say_what_is_shared(const struct nd_comparison *c, struct nd_strbuf *out)
{
    size_t p = shared_probe(c);
    nd_strbuf_puts(out, "NOT COMPARABLE as a whole: compare only what all captures have, with ");
    if (p < c->n_probes)
        nd_strbuf_printf(out, "'-p %s'", c->probes[p].name);
    else
        nd_strbuf_puts(out, "'--tensors outputs'");
}

void nd_text_next(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    struct words words = {.items = {"npudiff"}, .n = 1};
    const char *why = NULL, *model = NULL;
    if (c->verdict == ND_VERDICT_SAME || c->verdict == ND_VERDICT_WITHIN)
        return;
    if (c->verdict == ND_VERDICT_FAILED) {
        size_t i = 0;
        while (i + 1 < c->n_devices && c->devices[i].status != ND_CAPTURE_FAILED)
            i++;
        why = "to see what the device's logs say";
        add_word(&words, "info");
        add_word(&words, c->devices[i].capture);
    } else if (c->verdict == ND_VERDICT_DIFFERS && has_codes(c) && report->model != NULL) {
        why = "to learn whether the quantisation, the chip or a fault is the cause";
        add_word(&words, "explain");
        add_word(&words, "--quantised");
        model = report->model;
        add_word(&words, report->model_path != NULL ? report->model_path : report->model);
        add_captures(&words, c);
    } else {
        add_word(&words, "compare");
        if (c->verdict == ND_VERDICT_NOT_COMPARABLE) {
            why = add_what_is_shared(&words, c);
        } else {
            why = "to see all tables";
            add_word(&words, "-v");
        }
        add_captures(&words, c);
    }
    nd_summary_put_next_of(report->out, report->width, why, report->model_path == NULL ? model : NULL,
                           words.items, words.n);
}
