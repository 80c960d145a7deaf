#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/golden.h"
#include "cli/rows.h"

enum { MAX_EDGES_TOLD = 20, MAX_KEYS_TOLD = 3 };

json_t *golden_read(char *text)
{
    json_t *report = json_loads(text, 0, NULL);
    free(text);
    if (report == NULL)
        cli_fail_memory();
    return report;
}

int golden_tell_problems(const char *store, const json_t *report)
{
    const json_t *problems = json_object_get(report, "problems"), *problem;
    size_t i;
    json_array_foreach(problems, i, problem)
    {
        fprintf(stderr, "npudiff: '%s/%s' is skipped: %s\n", store, cli_text_of(problem, "object"),
                cli_text_of(problem, "problem"));
    }
    return json_array_size(problems) > 0 ? ND_EXIT_TROUBLE : 0;
}

void golden_print_count(size_t n, const char *noun)
{
    printf("%zu %s%s", n, noun, n == 1 ? "" : "s");
}

static void print_joined(const json_t *names, const char *separator)
{
    const json_t *name;
    size_t i;
    json_array_foreach(names, i, name)
    {
        printf("%s%s", i > 0 ? separator : "", json_string_value(name));
    }
}

/* Where two values begin to differ, at the start of a character. */
static size_t first_difference(const char *ref, const char *test)
{
    size_t at = 0;
    while (ref[at] != '\0' && ref[at] == test[at])
        at++;
    while (at > 0 && ((unsigned char)ref[at] & 0xc0) == 0x80)
        at--;
    return at;
}

/* At most n bytes from `at`, whole characters, with dots where something is left out. */
static void print_window(const char *text, size_t at, size_t n)
{
    size_t rest = strlen(text + at), end = at + (rest < n ? rest : n);
    while (end > at && ((unsigned char)text[end] & 0xc0) == 0x80)
        end--;
    printf("%s%.*s%s", at > 0 ? "..." : "", (int)(end - at), text + at, text[end] != '\0' ? "..." : "");
}

/* Digests and build strings say little to people, so long values are cut, --json has them whole; never so that
 * two different values look alike: the window is moved to where they part. */
static void print_values(const json_t *change)
{
    enum { MAX_VALUE_BYTES = 40, BYTES_BEFORE = 12 };
    const char *ref = json_string_value(json_object_get(change, "ref"));
    const char *test = json_string_value(json_object_get(change, "test"));
    ref = ref != NULL ? ref : "(none)";
    test = test != NULL ? test : "(none)";
    size_t parts = first_difference(ref, test), at = 0;
    if (parts + BYTES_BEFORE > MAX_VALUE_BYTES)
        at = parts - BYTES_BEFORE;
    while (at > 0 && ((unsigned char)ref[at] & 0xc0) == 0x80)
        at--;
    print_window(ref, at, MAX_VALUE_BYTES);
    printf(" -> ");
    print_window(test, at, MAX_VALUE_BYTES);
}

/* What stands first: 0 the id and the name of the chipset, 1 the rest, 2 libraries, which follow from the id.
 */
static int rank_of(const char *key)
{
    if (strcmp(key, "id") == 0 || strcmp(key, "chipset") == 0)
        return 0;
    return strncmp(key, "library ", 8) == 0 ? 2 : 1;
}

/* "  sdk changed: id qairt-2.50.40 -> qairt-2.51.0, ort_version 1.29.0 -> 1.31.1, and 7 more". */
static void print_axis(const char *axis, const json_t *changed)
{
    size_t i, n_told = 0, n = 0;
    const json_t *change;
    printf("  %s changed: ", axis);
    for (int rank = 0; rank < 3; rank++) {
        json_array_foreach(changed, i, change)
        {
            const char *key = cli_text_of(change, "key");
            if (strcmp(cli_text_of(change, "axis"), axis) != 0 || rank_of(key) != rank ||
                json_is_string(json_object_get(change, "follows_from")))
                continue;
            n++;
            if (n_told >= MAX_KEYS_TOLD)
                continue;
            printf("%s%s ", n_told > 0 ? ", " : "", key);
            print_values(change);
            n_told++;
        }
    }
    if (n > n_told)
        printf(", and %zu more", n - n_told);
    putchar('\n');
}

static void print_names(const char *title, const json_t *names)
{
    if (json_array_size(names) == 0)
        return;
    printf("  %s: ", title);
    print_joined(names, ", ");
    putchar('\n');
}

/* ": 12.3 % of its values differ, by at most 3 LSB"; nothing where it is not known. */
static void print_magnitude(const json_t *edge)
{
    const json_t *share = json_object_get(edge, "share"), *lsb = json_object_get(edge, "max_lsb");
    const json_t *largest = json_object_get(edge, "max_abs");
    if (!json_is_number(share))
        return;
    printf(": %.3g %% of its values differ", 100 * json_number_value(share));
    if (json_is_integer(lsb))
        printf(", by at most %" JSON_INTEGER_FORMAT " LSB", json_integer_value(lsb));
    else if (json_is_number(largest))
        printf(", by at most %.3g", json_number_value(largest));
}

static void print_edges(const json_t *report)
{
    const json_t *different = json_object_get(report, "different"), *edge;
    size_t i, n = json_array_size(different);
    if (n > 0) {
        printf("  %zu of ", n);
        golden_print_count((size_t)json_integer_value(json_object_get(report, "n_edges")), "edge");
        printf(" differ%s, in graph order:\n", n == 1 ? "s" : "");
    }
    json_array_foreach(different, i, edge)
    {
        if (i == MAX_EDGES_TOLD) {
            printf("    and %zu more\n", n - MAX_EDGES_TOLD);
            break;
        }
        printf("    %s (%s) on ", cli_text_of(edge, "name"), cli_text_of(edge, "op_types"));
        print_joined(json_object_get(edge, "probes"), ", ");
        print_magnitude(edge);
        putchar('\n');
    }
    if (n > 0 && !json_is_number(json_object_get(json_array_get(different, 0), "share")))
        printf("    by how much is not known: the entry or the capture keeps no values of them\n");
    print_names("missing", json_object_get(report, "missing"));
    print_names("not in the entry", json_object_get(report, "extra"));
}

static void print_blame(const json_t *report)
{
    const json_t *axes = json_object_get(report, "axes"), *blamed = json_object_get(report, "blamed");
    const char *verdict = cli_text_of(report, "verdict");
    if (strcmp(verdict, "inconclusive") == 0) {
        printf(
            "  verdict: inconclusive, %zu axes changed: which one it was cannot be told (--blame names all)\n",
            json_array_size(axes));
        return;
    }
    if (strcmp(verdict, "reference broken") == 0) {
        bool is_equal = json_array_size(json_object_get(report, "different")) == 0;
        bool are_both = json_is_string(json_object_get(report, "test_broken"));
        printf("  verdict: %s, but %s broken: %s\n", is_equal ? "equal" : "the two differ",
               are_both ? "both are" : "the reference is", cli_text_of(report, "broken"));
        return;
    }
    if (json_is_string(json_object_get(report, "test_broken"))) {
        printf("  verdict: %s, and the second entry is broken: %s\n", verdict,
               cli_text_of(report, "test_broken"));
        return;
    }
    printf("  verdict: %s", verdict);
    if (json_array_size(blamed) > 0) {
        printf(", because of ");
        print_joined(blamed, " or ");
    } else if (strcmp(verdict, "differs") == 0) {
        printf(", although no axis changed");
    } else if (strcmp(verdict, "same") == 0 && json_array_size(axes) > 0) {
        printf(", although ");
        print_joined(axes, " and ");
        printf(" changed");
    }
    putchar('\n');
}

void golden_print_check(const char *name, const json_t *report)
{
    const json_t *entry = json_object_get(report, "entry"), *axes = json_object_get(report, "axes"), *axis;
    const json_t *failure = json_object_get(report, "failure");
    size_t i;
    if (!json_is_object(entry)) {
        printf("%s\n  verdict: not comparable, the store has no entry of this model and these probes\n", name);
        return;
    }
    printf("%s against %s (%.12s, %s)\n", name, cli_text_of(entry, "label"), cli_text_of(entry, "id"),
           cli_text_of(entry, "date"));
    json_array_foreach(axes, i, axis)
    {
        print_axis(json_string_value(axis), json_object_get(report, "changed"));
    }
    print_edges(report);
    if (json_is_false(json_object_get(report, "same_end")) && json_is_object(failure))
        printf("  the device failed at stage '%s': %s\n", cli_text_of(failure, "stage"),
               cli_text_of(failure, "message"));
    else if (json_is_false(json_object_get(report, "same_end")))
        printf("  one is complete, the other (%s) is not, or failed otherwise\n", cli_text_of(entry, "status"));
    print_blame(report);
}
