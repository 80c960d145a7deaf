/* A verdict in words. */
#include <math.h>

#include "identify/identify_parts.h"

enum { MOST_NAMES = 6 };

/* The members of the class of p but p itself that are possible, "" without. */
static void put_equals(const struct nd_identify_result *r, const struct nd_arithmetic *programs, size_t p,
                       struct nd_strbuf *text)
{
    char name[ND_ARITHMETIC_NAME_BYTES];
    size_t n = 0;
    for (size_t q = p + 1; q < r->n_programs; q++) {
        if (!r->is_applicable[q] || !r->is_possible[q] || r->class_of[q] != r->class_of[p])
            continue;
        if (n++ < MOST_NAMES)
            nd_strbuf_printf(text, "%s%s", n == 1 ? " (= " : ", ", nd_arithmetic_name(&programs[q], name));
    }
    if (n > MOST_NAMES)
        nd_strbuf_printf(text, " and %zu more", n - MOST_NAMES);
    if (n > 0)
        nd_strbuf_puts(text, ")");
}

static void put_set(const struct nd_identify_result *r, const struct nd_arithmetic *programs,
                    struct nd_strbuf *text)
{
    char name[ND_ARITHMETIC_NAME_BYTES];
    bool is_there[ND_ARITHMETIC_MAX] = {false};
    size_t n = 0;
    for (size_t p = 0; p < r->n_programs; p++) {
        if (!r->is_applicable[p] || !r->is_possible[p] || is_there[r->class_of[p]])
            continue;
        is_there[r->class_of[p]] = true;
        if (n++ >= MOST_NAMES)
            continue;
        nd_strbuf_printf(text, "%s%s", n == 1 ? "" : "; or ", nd_arithmetic_name(&programs[p], name));
        put_equals(r, programs, p, text);
    }
    if (n > MOST_NAMES)
        nd_strbuf_printf(text, "; or %zu classes more", n - MOST_NAMES);
}

static void put_bracket(const struct nd_identify_bracket *b, const char *sign, struct nd_strbuf *text)
{
    if (b->n_down > 0 && b->n_up > 0)
        nd_strbuf_printf(text, ", threshold of %s values %s %.6g and %.6g", sign,
                         b->max_down < b->min_up ? "between" : "crossed:", b->max_down, b->min_up);
}

void nd_identify_say(const struct nd_identify_result *r, const struct nd_identify_tally *tally,
                     struct nd_strbuf *text)
{
    char name[ND_ARITHMETIC_NAME_BYTES];
    const struct nd_arithmetic *programs = nd_arithmetics(&(size_t){0});
    switch (r->verdict) {
    case ND_IDENTIFY_TOO_FEW:
        nd_strbuf_printf(text, "too few codes (%llu that are neither whole nor clipped, %d are needed)",
                         (unsigned long long)r->n_open, (int)ND_IDENTIFY_LEAST);
        return;
    case ND_IDENTIFY_NONE:
        nd_strbuf_printf(text, "%s; the nearest is %s",
                         r->is_split ? "units differ: no program is left to all of them"
                                     : "no program of the table",
                         nd_arithmetic_name(&programs[r->best], name));
        break;
    case ND_IDENTIFY_SEVERAL:
        nd_strbuf_printf(text, "one of %zu: ", r->n_classes);
        put_set(r, programs, text);
        break;
    case ND_IDENTIFY_SINGLE:
        put_set(r, programs, text);
        break;
    }
    nd_strbuf_printf(text, "; %llu codes, %llu deciding, %llu exceptions", (unsigned long long)r->n,
                     (unsigned long long)r->n_deciding, (unsigned long long)r->n_wrong[r->best]);
    if (!isnan(r->explained))
        nd_strbuf_printf(text, ", explains %.4f of what half-even leaves", r->explained);
    if (tally == NULL)
        return;
    const struct nd_identify_bracket above = nd_identify_threshold(tally, false),
                                     below = nd_identify_threshold(tally, true);
    put_bracket(&above, "positive", text);
    put_bracket(&below, "negative", text);
}
