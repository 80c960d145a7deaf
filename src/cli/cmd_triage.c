#include <math.h>
#include <stdio.h>

#include "cli/commands.h"
#include "cli/golden.h"
#include "cli/rows.h"

struct values {
    const char *against;
    bool json;
};

static void print_equal(const json_t *report)
{
    const json_t *entry;
    size_t i;
    json_array_foreach(json_object_get(report, "equal"), i, entry)
    {
        printf("  equal to %s (%.12s): chipset %s, SDK %s\n", cli_text_of(entry, "label"),
               cli_text_of(entry, "id"), cli_text_of(entry, "chipset"), cli_text_of(entry, "sdk"));
    }
}

static void print_nearest(const char *what, const json_t *nearest)
{
    const json_t *first = json_object_get(nearest, "first"), *share = json_object_get(nearest, "share");
    printf("  %s: %s (%.12s): chipset %s, SDK %s\n", what, cli_text_of(nearest, "label"),
           cli_text_of(nearest, "id"), cli_text_of(nearest, "chipset"), cli_text_of(nearest, "sdk"));
    printf("    %" JSON_INTEGER_FORMAT " of ", json_integer_value(json_object_get(nearest, "n_equal")));
    golden_print_count((size_t)json_integer_value(json_object_get(nearest, "n_edges")), "edge");
    printf(" equal");
    if (json_is_object(first))
        printf(", the first that differs is %s (%s)", cli_text_of(first, "name"),
               cli_text_of(first, "op_types"));
    if (json_is_real(share))
        printf("; %.3g %% of all codes differ", 100 * json_real_value(share));
    putchar('\n');
}

static void print_next(const json_t *report, const char *field)
{
    if (json_is_true(json_object_get(report, "is_bundle")))
        printf("  next: ask for the capture that the bundle was made of, then\n");
    else
        printf("  next:\n");
    printf("    npudiff explain --quantised MODEL.onnx --float FLOAT.onnx %s\n",
           json_is_true(json_object_get(report, "is_bundle")) ? "CAPTURE.h5" : field);
}

static void print_report(const json_t *report, const char *field)
{
    const json_t *nearest = json_object_get(report, "nearest"), *failure = json_object_get(report, "failure");
    printf("%s: %s\n", field, cli_text_of(report, "verdict"));
    if (json_is_object(failure))
        printf("  the device failed at stage '%s' [ND-%" JSON_INTEGER_FORMAT "]\n",
               cli_text_of(failure, "stage"), json_integer_value(json_object_get(failure, "code")));
    print_equal(report);
    if (json_is_object(nearest)) {
        const json_t *closer = json_object_get(report, "closer");
        if (json_array_size(json_object_get(report, "equal")) > 0)
            printf("  but not to what was accepted of its own chipset, %s:\n", cli_text_of(report, "chipset"));
        print_nearest("nearest", nearest);
        if (json_is_object(closer))
            print_nearest("closer in its values, but of another chipset", closer);
        print_next(report, field);
    } else if (json_array_size(json_object_get(report, "equal")) == 0) {
        printf("  the store has no entry of this model and these probes\n");
        print_next(report, field);
    }
}

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    (void)n_operands;
    const struct values *values = context;
    struct nd_error err = {0};
    struct nd_golden *store = NULL;
    char *text = NULL;
    enum nd_exit exit_code = ND_EXIT_TROUBLE;
    if (values->against == NULL)
        return cli_usage_error("triage", "--against STORE is needed");
    enum nd_status status = nd_golden_open(values->against, false, &store, &err);
    if (status == ND_OK)
        status = nd_triage(store, operands[0], &text, &exit_code, &err);
    nd_golden_close(&store);
    if (status != ND_OK)
        return cli_report_error(&err);
    json_t *report = golden_read(text);
    if (report == NULL)
        return ND_EXIT_TROUBLE;
    int problems = golden_tell_problems(values->against, report);
    if (values->json)
        cli_print_json(report);
    else
        print_report(report, operands[0]);
    json_decref(report);
    return cli_worse((int)exit_code, problems);
}

static const struct cli_option options[] = {
    OPT_TEXT(0, "against", struct values, against, CLI_A_FOLDER("STORE"),
             "the golden store ('npudiff golden')"),
    OPT_JSON(struct values),
    {.name = NULL},
};

const struct cli_command cmd_triage = {
    .name = "triage",
    .summary = "say which accepted class a capture or bundle from the field is",
    .synopsis = "FIELD.h5|BUNDLE.json --against STORE",
    .details = "Looks in a golden store for entries with the same digests: which chipsets and SDKs give these "
               "codes. Where there is none it names the nearest, an entry of the same chipset if there is one, "
               "by the number of equal edges, the share of differing codes where both sides keep them, and the "
               "first edge that differs, and the command to run next. Codes that only another chipset gives "
               "are new for a chipset that has entries of its own.\nExit code 0: known; 1: new; 2: usage or "
               "I/O trouble, or a damaged entry; 3: the store has nothing comparable.",
    .options = options,
    .min_operands = 1,
    .max_operands = 1,
    .values_bytes = sizeof(struct values),
    .run = run,
};
