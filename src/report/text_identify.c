/* Which programs captures leave possible, told from the JSON of json_identify.c. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "report/explain.h"
#include "report/explain_words.h"

enum { MOST_NAMES = 4, MOST_CLASSES = 4, TEXT_BYTES = 2048 };

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

static const char *string(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value != NULL ? value : "";
}

static json_int_t number(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

static bool is(const json_t *answer, const char *verdict)
{
    return strcmp(string(answer, "verdict"), verdict) == 0;
}

/* "floor (= to-zero, ceil and 3 more)" */
static void say_class(struct words *w, const json_t *names)
{
    size_t n = json_array_size(names);
    say(w, "%s", json_string_value(json_array_get(names, 0)));
    for (size_t i = 1; i < n && i <= MOST_NAMES; i++)
        say(w, "%s%s", i == 1 ? " (= " : ", ", json_string_value(json_array_get(names, i)));
    if (n > MOST_NAMES + 1)
        say(w, " and %zu more", n - MOST_NAMES - 1);
    if (n > 1)
        say(w, ")");
}

static void say_set(struct words *w, const json_t *classes)
{
    size_t n = json_array_size(classes);
    for (size_t i = 0; i < n && i < MOST_CLASSES; i++) {
        say(w, "%s", i > 0 ? "; or " : "");
        say_class(w, json_array_get(classes, i));
    }
    if (n > MOST_CLASSES)
        say(w, "; or %zu more", n - MOST_CLASSES);
}

static void say_answer(struct words *w, const json_t *answer)
{
    if (is(answer, "too-few")) {
        say(w, "too few codes (%" JSON_INTEGER_FORMAT " that are neither whole nor clipped)",
            number(answer, "open"));
        return;
    }
    bool is_none = is(answer, "none");
    const json_t *classes = json_object_get(answer, "classes");
    if (is_none && json_array_size(classes) == 0)
        say(w, "none: %s, the nearest is %s",
            json_is_true(json_object_get(answer, "split")) ? "no one program is left in all of them"
                                                           : "no program of single values explains it",
            string(answer, "nearest"));
    else if (is_none)
        say(w, "none explains it: what is not excluded is ");
    if (is(answer, "several"))
        say(w, "one of %zu: ", json_array_size(classes));
    if (is(answer, "single"))
        say(w, "single: ");
    say_set(w, classes);
    say(w,
        "; %" JSON_INTEGER_FORMAT " codes, %" JSON_INTEGER_FORMAT " deciding, %" JSON_INTEGER_FORMAT
        " exception%s",
        number(answer, "codes"), number(answer, "deciding"), number(answer, "exceptions"),
        number(answer, "exceptions") == 1 ? "" : "s");
    const json_t *explained = json_object_get(answer, "explained");
    if (json_is_real(explained))
        say(w, ", explained %.4f", json_real_value(explained));
}

static void put_words(struct nd_strbuf *out, struct words *w, size_t width, size_t indent)
{
    nd_explain_clean(w->text);
    nd_explain_put_wrapped(out, width, indent, "%s", w->text);
}

/* The program of whole units that leaves least of at least as many codes as any, where no other explains them.
 */
static void say_whole(struct words *w, const json_t *answer)
{
    size_t i;
    const json_t *row, *best = NULL;
    json_array_foreach(json_object_get(answer, "unit_programs"), i,
                       row) if (best == NULL || number(row, "codes") > number(best, "codes") ||
                                (number(row, "codes") == number(best, "codes") &&
                                 number(row, "exceptions") < number(best, "exceptions"))) best = row;
    if (best == NULL || !is(answer, "none") || number(best, "exceptions") >= number(answer, "exceptions"))
        return;
    json_int_t n = number(best, "exceptions");
    say(w, "; as whole units: ");
    bool is_first = true;
    json_array_foreach(json_object_get(answer, "unit_programs"), i, row)
    {
        if (number(row, "codes") != number(best, "codes") || number(row, "exceptions") != n)
            continue;
        say(w, "%s%s", is_first ? "" : " = ", string(row, "name"));
        is_first = false;
    }
    say(w, ", %" JSON_INTEGER_FORMAT " exception%s in %" JSON_INTEGER_FORMAT " codes", n, n == 1 ? "" : "s",
        number(best, "codes"));
}

/* ---- thresholds ---- */

static void say_bracket(struct words *w, const json_t *bracket)
{
    const json_t *down = json_object_get(bracket, "max_down"), *up = json_object_get(bracket, "min_up");
    if (json_is_true(json_object_get(bracket, "crossed"))) {
        say(w, "none: down at %.6g, up at %.6g", json_number_value(down), json_number_value(up));
        return;
    }
    if (json_is_null(up))
        say(w, "above %.6g", json_number_value(down));
    else if (json_is_null(down))
        say(w, "at most %.6g", json_number_value(up));
    else
        say(w, "%.6g to %.6g", json_number_value(down), json_number_value(up));
}

static void put_thresholds(struct nd_strbuf *out, const json_t *unit, size_t width)
{
    static const char *const signs[] = {"positive", "negative"};
    const json_t *thresholds = json_object_get(unit, "thresholds");
    size_t i;
    const json_t *row;
    struct words w = {.n = 0};
    for (size_t s = 0; s < 2; s++) {
        const json_t *bracket = json_object_get(thresholds, signs[s]);
        if (json_is_null(bracket))
            continue;
        say(&w, "%s%s values ", w.n > 0 ? "; " : "rounded up above: ", signs[s]);
        say_bracket(&w, bracket);
    }
    if (w.n > 0)
        put_words(out, &w, width, 6);
    w = (struct words){.n = 0};
    json_array_foreach(json_object_get(thresholds, "binades"), i, row)
    {
        double sign = json_number_value(json_object_get(row, "sign"));
        say(&w, "%s%g..: ", i > 0 ? "; " : "by size: ", sign * json_number_value(json_object_get(row, "from")));
        say_bracket(&w, row);
    }
    if (w.n > 0)
        put_words(out, &w, width, 6);
}

/* ---- lists ---- */

static void put_unit(struct nd_strbuf *out, const json_t *unit, size_t width)
{
    struct words w = {.n = 0};
    say(&w, "'%s' (%s): ", string(unit, "name"), string(unit, "op_type"));
    say_answer(&w, unit);
    say_whole(&w, unit);
    put_words(out, &w, width, 4);
    put_thresholds(out, unit, width);
}

static void put_type(struct nd_strbuf *out, const json_t *type, size_t width)
{
    struct words w = {.n = 0};
    json_int_t n = number(type, "units");
    say(&w, "%s (%" JSON_INTEGER_FORMAT " unit%s): ", string(type, "op_type"), n, n == 1 ? "" : "s");
    say_answer(&w, type);
    say_whole(&w, type);
    put_words(out, &w, width, 2);
}

static void put_device(struct nd_strbuf *out, const json_t *device, size_t width, bool with_units)
{
    struct words w = {.n = 0};
    size_t i;
    const json_t *row;
    json_int_t n_samples = 0;
    const char *failure = json_string_value(json_object_get(device, "failure"));
    json_array_foreach(json_object_get(device, "probes"), i, row) n_samples += number(row, "samples");
    say(&w, "programs of %s (%s)", string(device, "uri"), string(device, "capture"));
    if (failure != NULL)
        say(&w, ": the device failed: %s", failure);
    else
        say(&w, ", %" JSON_INTEGER_FORMAT " sample%s of %zu probe%s", n_samples, n_samples == 1 ? "" : "s", i,
            i == 1 ? "" : "s");
    nd_strbuf_puts(out, "\n");
    put_words(out, &w, width, 0);
    if (failure != NULL)
        return;
    json_array_foreach(json_object_get(device, "types"), i, row) put_type(out, row, width);
    w = (struct words){.n = 0};
    say(&w, "the device: ");
    say_answer(&w, device);
    say_whole(&w, device);
    put_words(out, &w, width, 2);
    json_array_foreach(json_object_get(device, "not_identified"), i, row)
    {
        w = (struct words){.n = 0};
        say(&w, "not looked at: '%s' (%s): %s", string(row, "name"), string(row, "op_type"),
            string(row, "why"));
        put_words(out, &w, width, 2);
    }
    if (!with_units)
        return;
    json_array_foreach(json_object_get(device, "units"), i, row) put_unit(out, row, width);
}

void nd_explain_put_identification(struct nd_strbuf *out, const json_t *identification, size_t width,
                                   bool with_units)
{
    size_t i;
    const json_t *device;
    json_array_foreach(json_object_get(identification, "devices"), i, device)
        put_device(out, device, width, with_units);
}
