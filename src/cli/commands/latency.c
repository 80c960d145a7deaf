/* `npudiff latency`: options, lists of numbers, exit code. docs/science/latency.md. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands/report_documents.h"
#include "cli/options/commands.h"
#include "cli/terminal/output.h"
#include "cli/terminal/terminal.h"
#include "npudiff/report/report.h"

struct values {
    const char *probe, *column, *unit;
    struct cli_integer warm_up;
    size_t min_runs;
    double healthy_cv, suspect_cv;
    bool verbose;
    struct cli_answer answer;
    const char *report;
};

struct entries {
    struct nd_latency_series *items;
    size_t n;
};

/* By what it starts with; what only calls itself a capture is opened as one too, for the better message. */
static bool is_capture(const char *path)
{
    size_t n = strlen(path);
    return cli_is_hdf5(path) || (n > 3 && strcmp(path + n - 3, ".h5") == 0);
}

/* A new entry at the end, or NULL. */
static struct nd_latency_series *grow(struct entries *entries, const char *file)
{
    struct nd_latency_series *items = realloc(entries->items, (entries->n + 1) * sizeof *items);
    if (items == NULL)
        return NULL;
    entries->items = items;
    items[entries->n] = (struct nd_latency_series){.file = file};
    return &items[entries->n++];
}

/* A copy of the runs, which the JSON and the report show. */
static int keep_runs(struct nd_latency_series *entry, const double *us, size_t n)
{
    double *copy = malloc((n + 1) * sizeof *copy);
    if (copy == NULL)
        return cli_fail_memory();
    if (n > 0)
        memcpy(copy, us, n * sizeof *copy);
    entry->us = copy;
    entry->n_us = n;
    return 0;
}

static int examine_probe(const struct nd_capture *capture, size_t probe, const char *path,
                         const struct nd_latency_options *options, struct entries *entries)
{
    struct nd_error err = {0};
    struct nd_latency_series *entry = grow(entries, path);
    if (entry == NULL)
        return cli_fail_memory();
    entry->format = "capture";
    entry->probe = strdup(nd_capture_probe(capture, probe)->name);
    if (entry->probe == NULL)
        return cli_fail_memory();
    if (nd_latency_of_capture(capture, probe, options, &entry->latency, &err) != ND_OK)
        return cli_report_error(&err);
    const struct nd_capture_probe *about = nd_capture_probe(capture, probe);
    if (keep_runs(entry, about->latency_us, about->n_samples * about->n_repeats) != 0)
        return ND_EXIT_TROUBLE;
    size_t first = entry->latency.join.first_tied;
    if (first != SIZE_MAX && (entry->first_tied = strdup(nd_capture_tensor(capture, first)->name)) == NULL)
        return cli_fail_memory();
    return 0;
}

static int examine_capture(const struct values *values, const char *path,
                           const struct nd_latency_options *options, struct entries *entries)
{
    struct nd_error err = {0};
    CLI_OWNED(nd_capture_close) struct nd_capture *capture = NULL;
    if (values->column != NULL || values->unit != NULL)
        return cli_usage_error("latency", "'%s' is a capture: --column and --unit are for lists", path);
    if (nd_capture_open(path, &capture, &err) != ND_OK)
        return cli_report_error(&err);
    int exit_code = 0;
    size_t n_examined = 0;
    for (size_t p = 0; exit_code == 0 && p < nd_capture_n_probes(capture); p++)
        if (values->probe == NULL || strcmp(values->probe, nd_capture_probe(capture, p)->name) == 0) {
            exit_code = examine_probe(capture, p, path, options, entries);
            n_examined++;
        }
    if (exit_code == 0 && n_examined == 0 && values->probe != NULL) {
        char names[512] = "";
        size_t n = 0;
        for (size_t p = 0; p < nd_capture_n_probes(capture) && n < sizeof names; p++)
            n += (size_t)snprintf(names + n, sizeof names - n, "%s '%s'", p > 0 ? "," : "",
                                  nd_capture_probe(capture, p)->name);
        exit_code =
            cli_fail(CLI_E_NO_OBJECT, path, "'%s' has no probe '%s', but%s", path, values->probe, names);
    } else if (exit_code == 0 && n_examined == 0) {
        fprintf(stderr, "npudiff: '%s' has no probes\n", path);
        exit_code = ND_EXIT_INCONCLUSIVE;
    }
    return exit_code;
}

static int examine_list(const struct values *values, const char *path, const struct nd_latency_options *options,
                        struct entries *entries)
{
    struct nd_error err = {0};
    CLI_OWNED(nd_latency_list_deinit) struct nd_latency_list list = {0};
    if (values->probe != NULL)
        return cli_usage_error("latency", "'%s' is a list: --probe is for captures", path);
    if (nd_latency_read(path, values->column, values->unit, &list, &err) != ND_OK)
        return cli_report_error(&err);
    struct nd_latency_series *entry = grow(entries, path);
    if (entry == NULL)
        return cli_fail_memory();
    entry->format = list.format;
    entry->where = list.where;
    list.where = NULL;
    if (nd_latency_examine(list.us, list.n, options, &entry->latency, &err) != ND_OK)
        return cli_report_error(&err);
    return keep_runs(entry, list.us, list.n);
}

/* Suspect outranks too few, as everywhere; but of the probes of one capture those with a verdict speak for it.
 */
static int conclude(const struct entries *entries)
{
    bool is_suspect = false, is_open = false;
    for (size_t i = 0; i < entries->n;) {
        const char *file = entries->items[i].file;
        bool has_verdict = false;
        for (; i < entries->n && entries->items[i].file == file; i++) {
            has_verdict |= entries->items[i].latency.verdict != ND_LATENCY_TOO_FEW;
            is_suspect |= entries->items[i].latency.is_suspect;
        }
        is_open |= !has_verdict;
    }
    int exit_code = is_open ? ND_EXIT_INCONCLUSIVE : ND_EXIT_SAME;
    return is_suspect ? cli_worse(exit_code, ND_EXIT_DIFFERS) : exit_code;
}

static int print(const struct values *values, const struct entries *entries,
                 const struct nd_latency_options *options)
{
    struct nd_error err = {0};
    char *text = NULL;
    enum nd_status status =
        values->answer.json ? nd_report_latency_json(entries->items, entries->n, options, &text, &err)
        : values->verbose
            ? nd_report_latency_text(entries->items, entries->n, options, &text, &err)
            : nd_report_latency_brief(entries->items, entries->n, options, cli_text_width(0), &text, &err);
    return cli_print_answer(status, text, &values->answer, &err);
}

static int report(const struct values *values, const struct entries *entries,
                  const struct nd_latency_options *options)
{
    struct nd_error err = {0};
    char *json = NULL;
    if (values->report == NULL)
        return 0;
    enum nd_status status = nd_report_latency_json(entries->items, entries->n, options, &json, &err);
    return cli_report_tell(values->report, "latency", &(const struct cli_answer){0}, status, json, NULL, &err);
}

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    const struct values *values = context;
    struct nd_latency_options options;
    nd_latency_options_init(&options);
    if (values->warm_up.is_given)
        options.n_warm_up = (size_t)values->warm_up.value;
    if (values->min_runs > 0)
        options.min_runs = values->min_runs;
    if (values->healthy_cv > 0)
        options.healthy_cv = values->healthy_cv;
    if (values->suspect_cv > 0)
        options.suspect_cv = values->suspect_cv;
    struct entries entries = {0};
    int exit_code = 0;
    if (options.suspect_cv < options.healthy_cv)
        return cli_usage_error("latency", "--suspect-cv is below --healthy-cv");
    exit_code = cli_report_check(values->report);
    for (size_t i = 0; exit_code == 0 && i < n_operands; i++)
        exit_code = is_capture(operands[i]) ? examine_capture(values, operands[i], &options, &entries)
                                            : examine_list(values, operands[i], &options, &entries);
    if (exit_code == 0) {
        exit_code = cli_worse(conclude(&entries), print(values, &entries, &options));
        exit_code = cli_worse(exit_code, report(values, &entries, &options));
    }
    for (size_t i = 0; i < entries.n; i++) {
        free((char *)(uintptr_t)entries.items[i].probe);
        free((char *)(uintptr_t)entries.items[i].first_tied);
        free((char *)(uintptr_t)entries.items[i].where);
        free((double *)(uintptr_t)entries.items[i].us);
    }
    free(entries.items);
    return exit_code;
}

static const char *const units[] = {"ns", "us", "ms", "s", NULL};

static const struct cli_option options[] = {
    OPT_TEXT('p', "probe", struct values, probe, CLI_A_PROBE_NAME,
             "examine only this probe of the captures (each probe by itself)"),
    OPT_TEXT(0, "column", struct values, column, CLI_A_TEXT("NAME"),
             "for lists: the column of a CSV, the array of a .npz, or a dotted path in JSON (the only one)"),
    OPT_CHOICE(0, "unit", struct values, unit, "ns|us|ms|s", units, "for lists: the unit of the numbers (us)"),
    OPT_INTEGER(0, "warm-up", struct values, warm_up, "N", 0, 1e7,
                "leave out the first N runs (the first run, and the next ones as long as they are slow: 3 "
                "deviations and 2 % above the later half; at most 50 and a tenth of all)"),
    OPT_NUMBER(0, "min-runs", struct values, min_runs, "N", 2, 1e7,
               "runs that a verdict needs, with the warm-up; very strong evidence needs fewer (200)"),
    OPT_REAL(0, "healthy-cv", struct values, healthy_cv, "X", 1e-6, 10,
             "a coefficient of variation up to X is healthy (0.05)"),
    OPT_REAL(0, "suspect-cv", struct values, suspect_cv, "X", 1e-6, 10,
             "the series is 'not steady' when the upper end of the interval of its coefficient of variation is "
             "above X (0.15)"),
    OPT_VERBOSE(struct values, "print everything: percentiles, intervals, the tests for two kinds of run, and "
                               "how often the rule is wrong"),
    OPT_REPORT(struct values),
    OPT_ANSWER_COLOR(struct values),
    {.name = NULL},
};

static const struct cli_example examples[] = {
    {"npudiff latency captures/cpu.h5", "Examines the latencies that were recorded in a capture."},
    {"npudiff latency latencies.csv --column latency --unit ms",
     "Examines a list that a different tool measured."},
};

const struct cli_command cmd_latency = {
    .name = "latency",
    .role = CLI_FIND,
    .summary = "say whether latencies are steady, and whether slow runs differ",
    .synopsis = "CAPTURE.h5|LIST ... [--column NAME] [--unit us]",
    .details =
        "Examines the latencies of captures, or lists that other tools measured: text with one number per line "
        "('#' begins a comment), CSV with a header, a JSON array, an AI Hub profile job "
        "(execution_summary.all_inference_times), a profile of ONNX Runtime (enable_profiling; it also says "
        "which "
        "kernels ran on the CPU), .npy or .npz. The warm-up is left out.\n"
        "Verdicts: unimodal (one kind of run); two modes (fallback in some runs); regimes in time (the level "
        "changes: clock, throttling); not steady (the coefficient of variation may be above 15 %); too few "
        "runs. docs/science/latency.md says how often each verdict is wrong.\n"
        "For captures with repeats it says whether slow runs give different values from the fast runs of the "
        "same sample ('npudiff capture --repeats 300').\n"
        "A verdict needs 200 runs; very strong evidence (p below 1e-6) needs fewer.\n"
        "Exit code 0: unimodal; 1: suspect, which is any other verdict, or slow runs with different values; 2: "
        "wrong usage or a file problem; 4: no verdict, because there are too few runs or none.",
    CLI_TABLES(struct values),
    CLI_OPERANDS(CLI_VALUE_CAPTURE, 1, CLI_ANY_NUMBER),
};
