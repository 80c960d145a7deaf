/* The command `npudiff fingerprint`: takes a datasheet (docs/reference/datasheet.md), compares two, or joins
 * parts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/options/commands.h"
#include "cli/terminal/output.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/rows.h"
#include "cli/terminal/signals.h"
#include "cli/terminal/terminal.h"
#include "core/memory.h"
#include "lab/cli/brief.h"
#include "lab/cli/campaign.h"
#include "lab/cli/take.h"
#include "npudiff/lab/fingerprint.h"

/* ---- one datasheet ---- */

static void print_arithmetics(const json_t *entry)
{
    const json_t *arithmetics = json_object_get(entry, "possible_arithmetic"), *arithmetic;
    size_t i;
    json_array_foreach(arithmetics, i, arithmetic) {
        printf("      %s %s\n", i == 0 ? "program" : "     or", json_string_value(arithmetic));
    }
    if (json_array_size(arithmetics) == 0 && cli_text_of(entry, "nearest")[0] != '\0')
        printf("      nearest %s, which %" JSON_INTEGER_FORMAT " values do not follow\n",
               cli_text_of(entry, "nearest"), json_integer_value(json_object_get(entry, "nearest_wrong")));
}

static void print_evidence(const json_t *entry)
{
    const char *key;
    json_t *value;
    const char *separator = "      evidence ";
    json_object_foreach((json_t *)(uintptr_t)json_object_get(entry, "evidence"), key, value) {
        if (json_is_integer(value))
            printf("%s%s %" JSON_INTEGER_FORMAT, separator, key, json_integer_value(value));
        else if (json_is_real(value))
            printf("%s%s %.6g", separator, key, json_real_value(value));
        separator = ", ";
    }
    if (separator[0] == ',')
        putchar('\n');
}

static void print_entry(const json_t *entry)
{
    const json_t *undecided = json_object_get(entry, "undecided"), *item,
                 *lines = json_object_get(entry, "text");
    size_t i;
    printf("  %-22s %-22s %s\n", cli_text_of(entry, "operator"), cli_text_of(entry, "types"),
           cli_text_of(entry, "verdict"));
    if (cli_text_of(entry, "failure")[0] != '\0')
        printf("      %s\n", cli_text_of(entry, "failure"));
    print_arithmetics(entry);
    json_array_foreach(lines, i, item) {
        printf("      %s\n", json_string_value(item));
    }
    print_evidence(entry);
    json_array_foreach(undecided, i, item) {
        printf("      undecided: %s; would decide it: %s\n", cli_text_of(item, "what"),
               cli_text_of(item, "probe"));
    }
}

static void print_sheet(const json_t *sheet)
{
    const json_t *device = json_object_get(sheet, "device");
    const char *section;
    json_t *entries, *entry;
    size_t i;
    printf("%s (", cli_text_of(device, "uri"));
    if (cli_text_of(device, "chipset")[0] != '\0')
        printf("%s %s, ", cli_text_of(device, "chipset"), cli_text_of(device, "arch"));
    printf("%s)\n", cli_text_of(device, "runtime"));
    json_object_foreach(json_object_get(sheet, "sections"), section, entries) {
        printf("%s\n", section);
        json_array_foreach(entries, i, entry) {
            print_entry(entry);
        }
    }
}

static int finish(const struct fingerprint_values *values, const char *text)
{
    if (values->output != NULL && cli_write_text(values->output, text, values->force) != 0)
        return ND_EXIT_TROUBLE;
    json_auto_t *sheet = json_loads(text, 0, NULL);
    int printed = 0;
    if (sheet == NULL)
        return cli_fail_memory();
    if (values->answer.json)
        cli_print_document(text);
    else if (values->verbose)
        print_sheet(sheet);
    else if (!values->answer.quiet)
        printed = fingerprint_print_sheet(sheet, values->output);
    int exit_code = fingerprint_judge(sheet, cli_text_of(json_object_get(sheet, "device"), "uri"));
    return printed != 0 ? printed : exit_code;
}

static int take(const struct fingerprint_values *values)
{
    struct nd_device device;
    struct nd_error err = {0};
    ND_FREED char *text = NULL;
    if (values->output != NULL &&
        cli_check_text_output(values->output, values->force, "--force overwrites it") != 0)
        return ND_EXIT_TROUBLE;
    if (nd_device_parse(values->devices.items[0], &device, &err) != ND_OK)
        return cli_report_error(&err);
    struct cli_progress *progress = cli_progress_create(1, 1, values->answer.quiet);
    const struct fingerprint_order order = {.device = &device,
                                            .label = "fingerprint",
                                            .answers = values->answers,
                                            .sections = values->sections,
                                            .progress = progress};
    cli_signals_catch();
    enum nd_status status = fingerprint_take(values, &order, &text, &err);
    nd_device_deinit(&device);
    cli_progress_destroy(progress);
    cli_stopped_tell(values->answers != NULL ? "the device's answers are kept"
                                             : "nothing is kept, because --answers DIR was not given",
                     values->answers != NULL ? "" : NULL);
    cli_signals_end_if_came();
    if (status != ND_OK)
        return cli_report_error(&err);
    return finish(values, text);
}

/* ---- one, from parts ---- */

static int merge(const struct fingerprint_values *values)
{
    struct nd_error err = {0};
    size_t n = values->merge.n, n_read = 0;
    ND_FREED char *json = NULL;
    if (values->output != NULL &&
        cli_check_text_output(values->output, values->force, "--force overwrites it") != 0)
        return ND_EXIT_TROUBLE;
    ND_FREED struct nd_datasheet *parts = calloc(n, sizeof *parts);
    int exit_code = parts != NULL ? ND_EXIT_SAME : cli_fail_memory();
    for (; exit_code == ND_EXIT_SAME && n_read < n; n_read++) {
        parts[n_read] =
            (struct nd_datasheet){fingerprint_read(values->merge.items[n_read]), values->merge.items[n_read]};
        if (parts[n_read].text == NULL)
            exit_code = ND_EXIT_TROUBLE;
    }
    if (exit_code == ND_EXIT_SAME && nd_fingerprint_merge(parts, n, &json, &err) != ND_OK)
        exit_code = cli_report_error(&err);
    if (exit_code == ND_EXIT_SAME)
        exit_code = finish(values, json);
    for (size_t i = 0; i < n_read; i++)
        free((void *)(uintptr_t)parts[i].text);
    return exit_code;
}

/* ---- two ---- */

static void print_side(const char *name, const json_t *claim)
{
    const json_t *arithmetics = json_object_get(claim, "possible_arithmetic");
    const char *first = json_string_value(json_array_get(arithmetics, 0));
    printf("    %s: %s", name, cli_text_of(claim, "verdict"));
    if (first != NULL)
        printf(", %s%s", first,
               json_array_size(arithmetics) > 1 ? " (or others that cannot be told from it)" : "");
    else if (cli_text_of(claim, "nearest")[0] != '\0')
        printf(", nearest %s", cli_text_of(claim, "nearest"));
    putchar('\n');
}

static void print_diff(const json_t *diff, const char *a, const char *b)
{
    const json_t *row;
    size_t i;
    printf("%s: %" JSON_INTEGER_FORMAT " operators alike, %zu differ, %zu not known on one side or both\n",
           cli_text_of(diff, "verdict"), json_integer_value(json_object_get(diff, "n_same")),
           json_array_size(json_object_get(diff, "differences")),
           json_array_size(json_object_get(diff, "not_known")));
    json_array_foreach(json_object_get(diff, "differences"), i, row) {
        printf("  %s %s (%s)\n", cli_text_of(row, "operator"), cli_text_of(row, "types"),
               cli_text_of(row, "section"));
        print_side(a, json_object_get(row, "a"));
        print_side(b, json_object_get(row, "b"));
    }
}

static int compare(const struct fingerprint_values *values, const char *a, const char *b)
{
    struct nd_error err = {0};
    ND_FREED char *json = NULL, *text_a = fingerprint_read(a),
                  *text_b = text_a != NULL ? fingerprint_read(b) : NULL;
    bool is_same = false;
    int exit_code = ND_EXIT_TROUBLE;
    if (text_a != NULL && text_b != NULL) {
        const struct nd_datasheet sheet_a = {text_a, a}, sheet_b = {text_b, b};
        if (nd_fingerprint_diff(&sheet_a, &sheet_b, &json, &is_same, &err) != ND_OK)
            exit_code = cli_report_error(&err);
        else
            exit_code = is_same ? ND_EXIT_SAME : ND_EXIT_DIFFERS;
    }
    json_auto_t *diff = json != NULL ? json_loads(json, 0, NULL) : NULL;
    int printed = json != NULL && diff == NULL ? cli_fail_memory() : 0;
    if (diff != NULL && values->answer.json)
        cli_print_document(json);
    else if (diff != NULL && values->verbose)
        print_diff(diff, a, b);
    else if (diff != NULL && !values->answer.quiet)
        printed = fingerprint_print_difference(diff, a, b);
    return printed != 0 ? printed : exit_code;
}

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    const struct fingerprint_values *values = context;
    if (values->diff)
        return n_operands == 2
                   ? compare(values, operands[0], operands[1])
                   : cli_usage_error("fingerprint", "--diff takes two datasheets, not %zu", n_operands);
    if (n_operands > 0)
        return cli_usage_error("fingerprint", "unexpected word '%s'; to compare datasheets, give --diff",
                               operands[0]);
    if (values->merge.n > 0 && (values->part.n_parts > 0 || values->devices.n > 0 || values->campaign != NULL))
        return cli_usage_error("fingerprint", "--merge excludes --part, --device and --campaign: the parts say "
                                              "which device it was");
    if (values->merge.n > 0)
        return merge(values);
    if (values->campaign != NULL && values->part.n_parts > 0)
        return cli_usage_error("fingerprint", "--part and --campaign cannot be given together");
    if (values->campaign != NULL)
        return fingerprint_campaign(values);
    if (values->runtimes.n > 0)
        return cli_usage_error("fingerprint", "--runtime is for --campaign; write -d DEVICE@RUNTIME");
    if (values->devices.n == 0)
        return cli_usage_error("fingerprint", "-d DEVICE is missing");
    if (values->devices.n > 1)
        return cli_usage_error("fingerprint", "several devices need --campaign DIR");
    return take(values);
}

static const struct cli_option options[] = {
    OPT_LIST('d', "device", struct fingerprint_values, devices, CLI_A_DEVICE,
             "the device to examine, such as htp-sim:gen3; 'npudiff devices' lists them; may be repeated with "
             "--campaign"),
    OPT_TEXT('o', "output", struct fingerprint_values, output, CLI_A_FILE("FILE.json"),
             "write the datasheet to this file"),
    OPT_FORCE(struct fingerprint_values, "overwrite an existing datasheet"),
    OPT_TEXT(
        0, "answers", struct fingerprint_values, answers, CLI_A_FOLDER("DIR"),
        "store the device's answers in this folder; after an interruption the same command continues there"),
    OPT_LIST(0, "section", struct fingerprint_values, sections, CLI_A_TEXT("NAME"),
             "examine only this section, such as linear-u8; may be repeated (all)"),
    OPT_PART(struct fingerprint_values,
             "examine only part K of N of the sections; the datasheet has no others, and is for --merge"),
    OPT_LIST(0, "merge", struct fingerprint_values, merge, CLI_A_FILE("FILE.json"),
             "make the datasheet from this part; give all N parts"),
    OPT_TEXT(
        0, "campaign", struct fingerprint_values, campaign, CLI_A_FOLDER("DIR"),
        "keep a datasheet of each device in this folder, take those that are missing, and print all as one "
        "table"),
    OPT_LIST(0, "runtime", struct fingerprint_values, runtimes, CLI_A_RUNTIME("ID"),
             "take each device with this runtime, such as qairt-2.51.0; may be repeated"),
    OPT_FLAG(0, "diff", struct fingerprint_values, diff,
             "compare two datasheets, for example of two chipsets or SDKs"),
    OPT_TIME_LIMIT(struct fingerprint_values, "stop a model after S seconds (600)"),
    OPT_AGENT(struct fingerprint_values),
    OPT_VERBOSE(struct fingerprint_values,
                "print every operator with its evidence, and what could not be decided"),
    OPT_ANSWER(struct fingerprint_values),
    {.name = NULL},
};

static const struct cli_example examples[] = {
    {"npudiff fingerprint -d htp-sim:gen3 --section linear-u8 -o gen3.json",
     "Finds how the device computes 8-bit convolutions and matrix products."},
    {"npudiff fingerprint -d htp-sim:gen3 -o gen3-all.json --answers answers",
     "Examines all operators; this takes minutes, and can be interrupted."},
    {"npudiff fingerprint --campaign sheets -d htp-sim:gen1 -d htp-sim:gen3 --runtime qairt-2.50.40 --runtime "
     "qairt-2.51.0",
     "Takes the datasheets of two chipsets with two SDKs, and prints at which step an operator changes."},
};

const struct cli_command cmd_fingerprint = {
    .name = "fingerprint",
    .role = CLI_FIND,
    .summary = "find out the arithmetic of a device, operator by operator",
    .synopsis = "-d DEVICE [-o FILE.json] | --merge PART.json... | --campaign DIR [-d DEVICE...] | --diff "
                "A.json B.json",
    .details =
        "Runs small models of one operator on the device and finds out how it turns exact sums into "
        "quantised values: the bits of its multiplier, the width of its accumulator, where it adds the "
        "zero point, how it rounds. Each result was checked with 100 000 new random values. What could "
        "not be decided is printed by -v with the probe that would decide it.\n"
        "--campaign takes the datasheets of several devices, one after the other, and of each with "
        "several runtimes. Datasheets that are in the folder are kept, so that a campaign that was "
        "stopped continues; without -d the command prints the table of those that are there. A step is "
        "from one runtime to the next on a device, or from one architecture to the next with a runtime.\n"
        "Exit code 0: done, or no difference; 1: the datasheets differ; 2: wrong usage or a file "
        "problem; 5: a device failed in every operator.",
    CLI_EXAMPLES,
    .options = options,
    .operand = CLI_VALUE_FILE,
    .min_operands = 0,
    .max_operands = 2,
    .values_bytes = sizeof(struct fingerprint_values),
    .run = run,
};
