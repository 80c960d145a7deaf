/* `npudiff run`: capture, compare and explain in one go. docs/reference/commands.md#npudiff-run. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands/report_documents.h"
#include "cli/options/commands.h"
#include "cli/options/help.h"
#include "cli/options/workload.h"
#include "cli/terminal/output.h"
#include "cli/terminal/rows.h"
#include "cli/terminal/terminal.h"
#include "npudiff/core/document_kinds.h"
#include "npudiff/model/model.h"

/* The words of a call. Out of memory is remembered. */
struct cli_words {
    char **items;
    size_t n;
    bool has_failed;
};

struct cli_stages {
    bool is_json;
    bool is_quiet;
    bool has_run;           /* a stage, which the next one's text is set apart from */
    int exit_code;          /* the worst so far */
    struct json_t *results; /* of the stages, by their names */
};

/* ---- commands one after the other ---- */

static void cli_words_add(struct cli_words *words, const char *word)
{
    char **items = realloc(words->items, (words->n + 1) * sizeof *items);
    if (items != NULL)
        words->items = items;
    char *copy = items != NULL ? strdup(word) : NULL;
    if (copy == NULL)
        words->has_failed = true;
    else
        words->items[words->n++] = copy;
}

static void cli_words_add_option(struct cli_words *words, const char *option, const char *value)
{
    if (value == NULL)
        return;
    cli_words_add(words, option);
    cli_words_add(words, value);
}

static void cli_words_add_list(struct cli_words *words, const char *option, const struct cli_list *values)
{
    for (size_t i = 0; i < values->n; i++)
        cli_words_add_option(words, option, values->items[i]);
}

static void cli_words_add_number(struct cli_words *words, const char *option, size_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%zu", value);
    cli_words_add_option(words, option, value > 0 ? text : NULL);
}

static void cli_words_add_flag(struct cli_words *words, const char *option, bool is_given)
{
    if (is_given)
        cli_words_add(words, option);
}

static void cli_words_deinit(struct cli_words *words)
{
    for (size_t i = 0; i < words->n; i++)
        free(words->items[i]);
    free(words->items);
    *words = (struct cli_words){0};
}

/* ---- stages ---- */

/* Runs the command with standard output going into the file. */
static int run_into(FILE *file, const struct cli_command *command, const struct cli_words *words)
{
    fflush(stdout);
    int kept = dup(STDOUT_FILENO);
    if (kept < 0 || dup2(fileno(file), STDOUT_FILENO) < 0) {
        if (kept >= 0)
            close(kept);
        return cli_fail(CLI_E_FILE_WRITE, NULL, "standard output cannot be redirected");
    }
    int exit_code = cli_run(command, (int)words->n, words->items);
    fflush(stdout);
    dup2(kept, STDOUT_FILENO);
    close(kept);
    return exit_code;
}

/* The stage's document becomes a member; a stage that printed none has null. */
static int run_for_json(struct cli_stages *stages, const struct cli_command *command, const char *name,
                        const struct cli_words *words)
{
    FILE *file = tmpfile();
    if (file == NULL)
        return cli_fail(CLI_E_FILE_WRITE, NULL, "a temporary file cannot be made");
    int exit_code = run_into(file, command, words);
    rewind(file);
    json_t *document = json_loadf(file, JSON_ALLOW_NUL, NULL);
    fclose(file);
    if (stages->results == NULL)
        stages->results = json_object();
    json_object_set_new(stages->results, name, document != NULL ? document : json_null());
    return exit_code;
}

/* Runs the command with these words, which it frees; its exit code, which counts for the whole, too. */
static int cli_stages_run(struct cli_stages *stages, const struct cli_command *command, const char *name,
                          struct cli_words *words)
{
    cli_words_add_flag(words, "--json", stages->is_json);
    cli_words_add_flag(words, "--quiet", stages->is_quiet);
    int exit_code;
    if (words->has_failed)
        exit_code = cli_fail_memory();
    else if (stages->is_json && !stages->is_quiet)
        exit_code = run_for_json(stages, command, name, words);
    else {
        if (stages->has_run && !stages->is_quiet)
            putchar('\n');
        exit_code = cli_run(command, (int)words->n, words->items);
    }
    stages->has_run = true;
    stages->exit_code = cli_worse(stages->exit_code, exit_code);
    cli_words_deinit(words);
    return exit_code;
}

/* ---- the command ---- */

struct values {
    struct cli_list devices, probes, dims, lsb;
    const char *output, *float_model, *tensors, *report;
    size_t repeats, jobs, n_threads;
    bool allow_fallback, force, resume, verbose;
    struct cli_answer answer;
};

/* The captures' paths, which follow from the devices. */
static enum nd_status name_captures(const struct values *values, const char *folder, struct cli_words *paths,
                                    struct nd_error *err)
{
    CLI_OWNED(cli_fleet_deinit) struct cli_fleet fleet = {0};
    CLI_TRY(cli_fleet_set_devices(&fleet, &values->devices, err));
    if (!cli_name_files(&fleet, folder, ".h5"))
        return cli_memory_error(err);
    for (size_t i = 0; i < fleet.n_cells; i++)
        cli_words_add(paths, fleet.cells[i].path);
    return paths->has_failed ? cli_memory_error(err) : ND_OK;
}

static int run_capture(const struct values *values, const char *model, const char *folder,
                       struct cli_stages *stages)
{
    struct cli_words words = {0};
    cli_words_add(&words, model);
    cli_words_add_list(&words, "--device", &values->devices);
    cli_words_add_list(&words, "--probe", &values->probes);
    cli_words_add_list(&words, "--dim", &values->dims);
    cli_words_add_option(&words, "--output", folder);
    cli_words_add_option(&words, "--tensors", values->tensors);
    cli_words_add_number(&words, "--repeats", values->repeats);
    cli_words_add_number(&words, "--jobs", values->jobs);
    cli_words_add_flag(&words, "--allow-fallback", values->allow_fallback);
    cli_words_add_flag(&words, "--force", values->force);
    cli_words_add_flag(&words, "--resume", values->resume);
    return cli_stages_run(stages, &cmd_capture, "capture", &words);
}

static int run_compare(const struct values *values, const struct cli_words *paths, struct cli_stages *stages)
{
    struct cli_words words = {0};
    for (size_t i = 0; i < paths->n; i++)
        cli_words_add(&words, paths->items[i]);
    cli_words_add_list(&words, "--lsb", &values->lsb);
    cli_words_add_number(&words, "--threads", values->n_threads);
    cli_words_add_flag(&words, "--verbose", values->verbose);
    return cli_stages_run(stages, &cmd_compare, "compare", &words);
}

static int run_explain(const struct values *values, const char *model, const struct cli_words *paths,
                       struct cli_stages *stages)
{
    struct cli_words words = {0};
    cli_words_add_option(&words, "--quantised", model);
    cli_words_add_option(&words, "--float", values->float_model);
    for (size_t i = 0; i < paths->n; i++)
        cli_words_add(&words, paths->items[i]);
    cli_words_add_number(&words, "--threads", values->n_threads);
    cli_words_add_flag(&words, "--layers", values->verbose);
    return cli_stages_run(stages, &cmd_explain, "explain", &words);
}

static bool is_quantised(const struct nd_model *model)
{
    for (size_t i = 0; i < nd_model_n_tensors(model); i++)
        if (nd_model_tensor(model, i)->quant.n > 0)
            return true;
    return false;
}

/* The page of --report: what `npudiff report` makes of the captures. */
static int report(const struct values *values, const char *model, const struct cli_words *paths)
{
    struct nd_error err = {0};
    const struct report_sources sources = {.quantised = model,
                                           .float_model = model != NULL ? values->float_model : NULL,
                                           .n_threads = values->n_threads,
                                           .quiet = values->answer.quiet};
    if (values->report == NULL)
        return 0;
    CLI_OWNED(report_documents_deinit) struct report_documents documents = {0};
    if (report_documents_of_captures(&documents, (const char *const *)paths->items, paths->n, &sources, &err) !=
        ND_OK)
        return cli_report_error(&err);
    return cli_report_write(values->report, documents.items, documents.n, NULL);
}

/* What there is to compare and explain: inner tensors are needed for the latter. */
static void judge(const struct values *values, const char *path, bool can_explain,
                  const struct cli_words *paths, struct cli_stages *stages)
{
    bool has_outputs_only = values->tensors != NULL &&
                            (strcmp(values->tensors, "outputs") == 0 || strcmp(values->tensors, "none") == 0);
    bool is_explained = can_explain && !has_outputs_only;
    if (paths->n > 1)
        run_compare(values, paths, stages);
    if (is_explained)
        run_explain(values, path, paths, stages);
    else if (!values->answer.quiet)
        fprintf(stderr, "npudiff: nothing to explain: %s\n",
                can_explain ? "only outputs were recorded" : "the model is not quantised");
    stages->exit_code = cli_worse(stages->exit_code, report(values, is_explained ? path : NULL, paths));
}

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    (void)n_operands;
    const struct values *values = context;
    struct nd_error err = {0};
    struct nd_model *model = NULL;
    CLI_OWNED(cli_words_deinit) struct cli_words paths = {0};
    struct cli_stages stages = {.is_json = values->answer.json, .is_quiet = values->answer.quiet};
    const char *folder = values->output != NULL ? values->output : "captures";
    if (values->devices.n == 0)
        return cli_usage_error("run", "-d DEVICE is missing; give two devices to compare them");
    if (cli_ends_with(folder, ".h5"))
        return cli_usage_error("run", "-o takes a folder, not the file '%s'", folder);
    int checked = cli_report_check(values->report);
    if (checked != 0)
        return checked;
    if (values->resume && values->force)
        return cli_usage_error(
            "run", "--resume keeps existing captures and --force overwrites them: give one of them");
    if (nd_model_load(operands[0], &model, &err) != ND_OK)
        return cli_report_error(&err);
    bool can_explain = is_quantised(model);
    nd_model_destroy(&model); /* capture reads it, too, and needs the memory */
    if (name_captures(values, folder, &paths, &err) != ND_OK)
        return cli_report_error(&err);
    /* Captures of devices that failed are judged as far as they go; without captures there is nothing to judge.
     */
    if (run_capture(values, operands[0], folder, &stages) != ND_EXIT_TROUBLE)
        judge(values, operands[0], can_explain, &paths, &stages);
    /* Prints the one document with --json, and frees the results. The worst exit code. */
    if (stages.is_json && !stages.is_quiet) {
        json_t *root = json_pack("{s:i}", "exit_code", stages.exit_code);
        json_object_update(root, stages.results);
        cli_print_json(ND_DOCUMENT_RUN, root);
    }
    json_decref(stages.results);
    stages.results = NULL;
    return stages.exit_code;
}

static const struct cli_option options[] = {
    OPT_LIST('d', "device", struct values, devices, CLI_A_DEVICE,
             "run on this device, such as cpu, htp-sim:gen3 or adb:SERIAL; 'npudiff devices' lists them; the "
             "first one is the reference; may be repeated"),
    OPT_LIST('p', "probe", struct values, probes, CLI_A_PROBE,
             "feed these inputs: zeros, ones, ramp, uniform[:N[:SEED]], ties[:N], or your own as NAME=PATH; "
             "may be repeated (zeros, ones, ramp and uniform)"),
    OPT_TEXT('o', "output", struct values, output, CLI_A_FOLDER("DIR"),
             "the folder for the captures (captures)"),
    OPT_TEXT(0, "float", struct values, float_model, CLI_A_MODEL("MODEL"),
             "the model before quantisation: splits the output error into quantisation and the chip's part"),
    OPT_TENSORS(struct values,
                "record these tensors: all, outputs, none, or name patterns separated by commas (all)"),
    OPT_LIST(0, "lsb", struct values, lsb, CLI_A_TEXT("N[,NAME:N...]"),
             "accept differences of at most N LSB; NAME:N sets a different limit for the tensors with this "
             "name or pattern (every difference counts)"),
    OPT_NUMBER(
        0, "repeats", struct values, repeats, "N", 1, 10000,
        "run every sample N times (once, and a few samples again, to see whether the device repeats itself)"),
    OPT_DIM(struct values),
    OPT_FLAG(0, "allow-fallback", struct values, allow_fallback,
             "accept nodes of an NPU device that run on the CPU, and mark their tensors"),
    OPT_FORCE(struct values, "overwrite existing captures"),
    OPT_FLAG(0, "resume", struct values, resume, "keep complete captures and make the missing ones"),
    OPT_JOBS(struct values, "run N devices of this computer at the same time (1)"),
    OPT_THREADS(struct values),
    OPT_VERBOSE(struct values, "print the details of the comparison, and a table of all layers"),
    OPT_REPORT(struct values),
    OPT_ANSWER(struct values),
    {.name = NULL},
};

static const struct cli_example examples[] = {
    {"npudiff run model.onnx -d cpu -d htp-sim:gen3 -o run-captures",
     "Says where the two devices differ, and whether the chip is healthy."},
    {"npudiff run model.onnx -d exact -d emu:htp-v69 -p digits=test.npz --float float.onnx -o run-digits",
     "With your own samples, and with the part of the error that is quantisation."},
    {"npudiff run model.onnx -d cpu -d htp-sim:gen3 -o run-captures --resume --report run.html",
     "Uses the captures that are there, and also writes a page for a browser."},
};

const struct cli_command cmd_run = {
    .name = "run",
    .role = CLI_FIND,
    .summary = "capture, compare and explain in one go",
    .synopsis = "MODEL.onnx -d DEVICE -d DEVICE [-d ...] [-p PROBE ...] [-o DIR]",
    .details =
        "Runs the model on each device, compares the devices with the first one, and explains the differences: "
        "the commands capture, compare and explain, one after the other. A single device is only explained. A "
        "model that is not quantised is only compared.\n"
        "The captures stay in the folder; 'npudiff compare' and 'npudiff explain' have more options for them.\n"
        "Exit code 0: the devices are the same, or within --lsb, and healthy; 1: they differ, or one is faulty "
        "or unexplained; 2: wrong usage or a file problem; 3: not comparable; 4: inconclusive; 5: a device "
        "failed. Of several results the worst decides, in the order 2, 5, 3, 1, 4.",
    CLI_TABLES(struct values),
    CLI_OPERANDS(CLI_VALUE_MODEL, 1, 1),
};
