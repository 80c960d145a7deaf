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

/* A value of an axis, cut: digests and build strings say little to people, --json has them whole. */
static void print_value(const json_t *change, const char *side)
{
    enum { MAX_VALUE_BYTES = 40 };
    const char *value = json_string_value(json_object_get(change, side));
    if (value == NULL)
        value = "(none)";
    printf("%.*s%s", MAX_VALUE_BYTES, value, strlen(value) > MAX_VALUE_BYTES ? "..." : "");
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
            if (strcmp(cli_text_of(change, "axis"), axis) != 0 || rank_of(key) != rank)
                continue;
            n++;
            if (n_told >= MAX_KEYS_TOLD)
                continue;
            printf("%s%s ", n_told > 0 ? ", " : "", key);
            print_value(change, "ref");
            printf(" -> ");
            print_value(change, "test");
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
        putchar('\n');
    }
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
