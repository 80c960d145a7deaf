/* Which arithmetics captures leave possible, as text. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "explain/identify/identify.h"
#include "report/text/explain.h"

enum { MAX_NAMES = 4, MAX_CLASSES = 4, TEXT_BYTES = 2048 };

struct words {
    char text[TEXT_BYTES];
    size_t n;
};

/* What does not fit is cut: lists are short by themselves. */
ND_PRINTF(2, 3) static void say(struct words *w, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(w->text + w->n, sizeof w->text - w->n, fmt, args);
    va_end(args);
    w->n = n < 0 || (size_t)n >= sizeof w->text - w->n ? sizeof w->text - 1 : w->n + (size_t)n;
}

/* "floor (= to-zero, ceil and 3 more)": the class of arithmetic `first`. */
static void say_class(struct words *w, const struct nd_identify_result *r, size_t first)
{
    char name[ND_ARITHMETIC_NAME_BYTES];
    const struct nd_arithmetic *arithmetics = nd_arithmetics(&(size_t){0});
    size_t n = 0;
    for (size_t p = first; p < r->n_arithmetics; p++) {
        if (!nd_identified_is_left(r, p) || r->class_of[p] != r->class_of[first])
            continue;
        if (n <= MAX_NAMES)
            say(w, "%s%s", n == 0 ? "" : n == 1 ? " (= " : ", ", nd_arithmetic_name(&arithmetics[p], name));
        n++;
    }
    if (n > MAX_NAMES + 1)
        say(w, " and %zu more", n - MAX_NAMES - 1);
    if (n > 1)
        say(w, ")");
}

static size_t count_classes(const struct nd_identify_result *r)
{
    size_t n = 0;
    for (size_t p = nd_identified_next_class(r, SIZE_MAX); p != SIZE_MAX; p = nd_identified_next_class(r, p))
        n++;
    return n;
}

static bool is(const struct nd_answer *answer, const char *verdict)
{
    return strcmp(answer->verdict, verdict) == 0;
}

static void say_answer(struct words *w, const struct nd_answer *answer)
{
    char name[ND_ARITHMETIC_NAME_BYTES];
    const struct nd_identify_result *r = &answer->result;
    size_t n_classes = count_classes(r);
    if (is(answer, "too-few")) {
        say(w, "too few values (%" PRIu64 " that are neither whole nor clipped)", r->n_open);
        return;
    }
    if (is(answer, "none") && n_classes == 0)
        say(w, "none: %s, the nearest is %s",
            r->is_split ? "no one arithmetic is left in all of them"
                        : "no arithmetic of single values explains it",
            r->best != SIZE_MAX ? nd_arithmetic_name(&nd_arithmetics(&(size_t){0})[r->best], name) : "");
    else if (is(answer, "none"))
        say(w, "none explains it: what is not excluded is ");
    if (is(answer, "several"))
        say(w, "one of %zu: ", n_classes);
    if (is(answer, "single"))
        say(w, "single: ");
    size_t n = 0;
    for (size_t p = nd_identified_next_class(r, SIZE_MAX); p != SIZE_MAX; p = nd_identified_next_class(r, p)) {
        if (n < MAX_CLASSES) {
            say(w, "%s", n > 0 ? "; or " : "");
            say_class(w, r, p);
        }
        n++;
    }
    if (n > MAX_CLASSES)
        say(w, "; or %zu more", n - MAX_CLASSES);
    say(w, "; %" PRIu64 " values, %" PRIu64 " deciding, %" PRIu64 " exception%s", r->n, r->n_deciding,
        answer->exceptions, answer->exceptions == 1 ? "" : "s");
    if (!isnan(answer->explained))
        say(w, ", explained %.4f", answer->explained);
}

static void put_words(struct nd_strbuf *out, struct words *w, size_t width, size_t indent)
{
    nd_explain_clean(w->text);
    nd_explain_put_wrapped(out, width, indent, "%s", w->text);
}

/* The arithmetic of whole layers that leaves least of at least as many codes as any, where no other explains
 * them.
 */
static void say_whole(struct words *w, const struct nd_answer *answer)
{
    const struct nd_other_tally *whole = &answer->whole;
    size_t n, best = SIZE_MAX;
    const struct nd_layer_arithmetic *arithmetics = nd_layer_arithmetics(&n);
    for (size_t p = 0; p < n; p++)
        if (whole->n[p] > 0 && (best == SIZE_MAX || whole->n[p] > whole->n[best] ||
                                (whole->n[p] == whole->n[best] && whole->wrong[p] < whole->wrong[best])))
            best = p;
    if (best == SIZE_MAX || !is(answer, "none") || whole->wrong[best] >= answer->exceptions)
        return;
    say(w, "; as whole layers: ");
    for (size_t p = best; p < n; p++)
        if (whole->n[p] == whole->n[best] && whole->wrong[p] == whole->wrong[best])
            say(w, "%s%s", p == best ? "" : " = ", arithmetics[p].name);
    say(w, ", %" PRIu64 " exception%s in %" PRIu64 " values", whole->wrong[best],
        whole->wrong[best] == 1 ? "" : "s", whole->n[best]);
}

/* ---- thresholds ---- */

static void say_bracket(struct words *w, const struct nd_identify_bracket *b)
{
    if (nd_identified_is_crossed(b))
        say(w, "none: down at %.6g, up at %.6g", b->max_down, b->min_up);
    else if (b->n_up == 0)
        say(w, "above %.6g", b->max_down);
    else if (b->n_down == 0)
        say(w, "at most %.6g", b->min_up);
    else
        say(w, "%.6g to %.6g", b->max_down, b->min_up);
}

static void put_thresholds(struct nd_strbuf *out, const struct nd_identify_tally *tally, size_t width)
{
    static const char *const signs[] = {"positive", "negative"};
    struct words w = {.n = 0};
    for (size_t s = 0; s < 2; s++) {
        const struct nd_identify_bracket bracket = nd_identify_threshold(tally, s == 1);
        if (bracket.n_down + bracket.n_up == 0)
            continue;
        say(&w, "%s%s values ", w.n > 0 ? "; " : "rounded up above: ", signs[s]);
        say_bracket(&w, &bracket);
    }
    if (w.n > 0)
        put_words(out, &w, width, 6);
    w = (struct words){.n = 0};
    for (size_t k = 0; k < 2 * (size_t)ND_IDENTIFY_BINADES; k++) {
        size_t sign = k / ND_IDENTIFY_BINADES, b = k % ND_IDENTIFY_BINADES;
        const struct nd_identify_bracket *bracket = &tally->binades[sign][b];
        if (bracket->n_down + bracket->n_up == 0)
            continue;
        double from = b > 0 ? ldexp(1, (int)b - 1) : 0;
        say(&w, "%s%g..: ", w.n > 0 ? "; " : "by size: ", sign == 0 ? from : -from);
        say_bracket(&w, bracket);
    }
    if (w.n > 0)
        put_words(out, &w, width, 6);
}

/* ---- lists ---- */

static void put_answer(struct nd_strbuf *out, struct words *w, const struct nd_answer *answer, size_t width,
                       size_t indent)
{
    say_answer(w, answer);
    say_whole(w, answer);
    put_words(out, w, width, indent);
}

static void put_type(struct nd_strbuf *out, const struct nd_identified_type *type, size_t width)
{
    struct words w = {.n = 0};
    say(&w, "%s (%zu layer%s): ", type->op_types, type->n_layers, type->n_layers == 1 ? "" : "s");
    put_answer(out, &w, &type->answer, width, 2);
}

static void put_layer(struct nd_strbuf *out, const struct nd_identified_layer *layer, size_t width)
{
    struct words w = {.n = 0};
    say(&w, "'%s' (%s): ", layer->name, layer->op_types);
    put_answer(out, &w, layer->answer, width, 4);
    put_thresholds(out, &layer->tally, width);
}

static void put_device(struct nd_strbuf *out, const struct nd_identified_device *device, size_t width,
                       bool with_layers)
{
    struct words w = {.n = 0};
    say(&w, "arithmetics of %s (%s)", device->uri, device->capture);
    if (device->failure != NULL)
        say(&w, ": the device failed: %s", device->failure);
    else
        say(&w, ", %" PRIu64 " sample%s of %zu probe%s", device->n_samples, device->n_samples == 1 ? "" : "s",
            device->n_probes, device->n_probes == 1 ? "" : "s");
    nd_strbuf_puts(out, "\n");
    put_words(out, &w, width, 0);
    if (device->failure != NULL)
        return;
    for (size_t t = 0; t < device->n_types; t++)
        put_type(out, &device->types[t], width);
    w = (struct words){.n = 0};
    say(&w, "the device: ");
    put_answer(out, &w, device->answer, width, 2);
    for (size_t s = 0; s < device->n_layers; s++) {
        const struct nd_identified_layer *layer = &device->layers[s];
        if (!layer->is_layer || layer->answer != NULL)
            continue;
        w = (struct words){.n = 0};
        say(&w, "not looked at: '%s' (%s): %s", layer->name, layer->op_types, nd_identified_why_not(layer));
        put_words(out, &w, width, 2);
    }
    for (size_t s = 0; s < device->n_layers && with_layers; s++)
        if (device->layers[s].answer != NULL)
            put_layer(out, &device->layers[s], width);
}

void nd_explain_put_identification(struct nd_strbuf *out, const struct nd_identification *identification,
                                   size_t width, bool with_layers)
{
    for (size_t d = 0; identification != NULL && d < identification->n_devices; d++)
        put_device(out, &identification->devices[d], width, with_layers);
}
