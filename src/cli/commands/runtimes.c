/* `npudiff runtimes`: installed runtimes, added, checked, removed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/options/commands.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/rows.h"
#include "cli/terminal/signals.h"
#include "cli/terminal/terminal.h"
#include "npudiff/devices/device.h"

struct values {
    const char *id, *with, *abi;
    bool force, files_only, verbose, json;
};

/* The report that a function of the library gave, taken over; NULL when memory is out, which is told. */
static json_t *read_report(char *text)
{
    json_t *report = json_loads(text, 0, NULL);
    free(text);
    if (report == NULL)
        cli_fail_memory();
    return report;
}

/* "v73 v75", or "-" for none. */
static json_t *joined(const json_t *words, const char *separator)
{
    char text[256] = "";
    const json_t *word;
    size_t i, n = 0;
    json_array_foreach(words, i, word) {
        int added =
            snprintf(text + n, sizeof text - n, "%s%s", i > 0 ? separator : "", json_string_value(word));
        if (added < 0 || (size_t)added >= sizeof text - n)
            break;
        n += (size_t)added;
    }
    return cli_text(n > 0 ? text : "-");
}

/* ---- list ---- */

static const struct nd_report_column list_columns[] = {{"runtime", "RUNTIME"},
                                                       {"abi", "ABI"},
                                                       {"onnxruntime", "ORT"},
                                                       {"onnxruntime_qnn", "QNN PROVIDER"},
                                                       {"use", "FOR"},
                                                       {"state", "STATE"},
                                                       {NULL, NULL}};

/* A row for each runtime that is there, and the ids of those that tools/setup can install. */
static int print_list(json_t *rows, const char *folder)
{
    const char *next[] = {"npudiff", "runtimes", "check"};
    json_t *there = json_array(), *row;
    char missing[256] = "";
    size_t used = 0, n_installed = 0, i;
    json_array_foreach(rows, i, row) {
        n_installed += json_is_true(json_object_get(row, "installed"));
        if (strncmp(cli_text_of(row, "state"), "not installed", 13) != 0)
            json_array_append(there, row);
        else if (used + strlen(cli_text_of(row, "runtime")) + 3 < sizeof missing)
            used += (size_t)snprintf(missing + used, sizeof missing - used, "%s%s", used > 0 ? ", " : "",
                                     cli_text_of(row, "runtime"));
    }
    json_decref(rows);
    struct nd_report_screen *screen = nd_report_screen_create(cli_text_width(0));
    if (n_installed == 0)
        nd_report_screen_put(screen, "0 runtimes are installed in '%s'\n", folder);
    else
        nd_report_screen_put(screen, "%zu runtime%s installed\n", n_installed,
                             n_installed == 1 ? " is" : "s are");
    if (used > 0)
        nd_report_screen_put(screen, "Not installed: %s. 'tools/setup --runtime ID' installs one.\n", missing);
    if (json_array_size(there) > 0) {
        nd_report_screen_put(screen, "\n");
        cli_screen_rows(screen, there, list_columns, "-v lists all");
    } else {
        json_decref(there);
    }
    if (n_installed > 0)
        nd_report_screen_next(screen, "to try whether they work", next, sizeof next / sizeof next[0]);
    return cli_print_screen(screen);
}

static int run_list(const struct values *values)
{
    struct nd_error err = {0};
    CLI_OWNED(nd_runtimes_deinit) struct nd_runtime_list list = {0};
    if (nd_runtimes_list(&list, &err) != ND_OK)
        return cli_report_error(&err);
    json_t *rows = json_array();
    for (size_t i = 0; i < list.n; i++) {
        const struct nd_runtime_info *info = &list.items[i];
        json_t *uses = json_array();
        bool has_backend = info->backend_library != NULL;
        bool is_sim = has_backend && strcmp(info->abi, "x86_64-linux") == 0;
        if (info->ort_library != NULL)
            json_array_append_new(uses, json_string("cpu"));
        if (info->ort_library != NULL && info->provider_library != NULL && has_backend)
            json_array_append_new(uses, json_string(is_sim ? "htp-sim" : "htp"));
        if (info->net_run != NULL && has_backend)
            json_array_append_new(uses, json_string("qnn-net-run"));
        json_t *use = joined(uses, ", ");
        json_array_append_new(
            rows,
            json_pack("{s:o, s:o, s:o, s:o, s:o, s:b, s:b, s:o, s:o, s:o, s:o, s:o, s:I}", "runtime",
                      cli_text(info->id), "abi", cli_text(info->abi), "onnxruntime",
                      cli_text(info->ort_version), "onnxruntime_qnn", cli_text(info->provider_version),
                      "build_id", info->build_id != NULL ? cli_text(info->build_id) : json_null(), "installed",
                      info->missing == NULL, "added", info->is_added, "uses", uses, "use", use, "archs",
                      cli_text(info->archs != NULL ? info->archs : (is_sim ? "all (simulator)" : "-")),
                      "folder", cli_text(info->folder), "state",
                      cli_text(info->missing != NULL ? info->missing : "installed"), "files",
                      (json_int_t)info->n_files));
    }
    return values->json || values->verbose
               ? cli_print_rows(ND_DOCUMENT_RUNTIMES, "runtimes", rows, list_columns, values->json)
               : print_list(rows, list.folder);
}

/* ---- add, remove ---- */

static void print_added(const json_t *report)
{
    const json_t *added = json_object_get(report, "added"), *row, *notes = json_object_get(report, "notes");
    size_t i;
    json_array_foreach(added, i, row) {
        json_t *uses = joined(json_object_get(row, "uses"), ", "),
               *archs = joined(json_object_get(row, "archs"), " ");
        const char *build = cli_text_of(row, "build_id");
        printf("added %s for %s: %s\n", cli_text_of(row, "runtime"), cli_text_of(row, "abi"),
               json_string_value(uses));
        printf("  ONNX Runtime %s, onnxruntime-qnn %s%s%s\n", cli_text_of(row, "onnxruntime"),
               cli_text_of(row, "onnxruntime_qnn"), build[0] != '\0' ? ", QNN " : "", build);
        if (json_array_size(json_object_get(row, "archs")) > 0)
            printf("  code for Hexagon %s\n", json_string_value(archs));
        json_int_t n_files = json_integer_value(json_object_get(row, "files"));
        printf("  %" JSON_INTEGER_FORMAT " file%s, %.1f MB, in %s\n", n_files, n_files == 1 ? "" : "s",
               (double)json_integer_value(json_object_get(row, "bytes")) / 1e6, cli_text_of(row, "folder"));
        json_decref(uses);
        json_decref(archs);
    }
    json_array_foreach(notes, i, row) {
        fprintf(stderr, "npudiff: %s\n", json_string_value(row));
    }
}

static int run_add(const struct values *values, const char *const *sources, size_t n)
{
    struct nd_error err = {0};
    char *text = NULL;
    const struct nd_runtime_adding how = {.struct_size = sizeof how,
                                          .id = values->id,
                                          .with = values->with,
                                          .replace = values->force,
                                          .is_cancelled = cli_signals_came};
    cli_signals_catch();
    if (nd_runtimes_add(sources, n, &how, &text, &err) != ND_OK)
        return cli_report_error(&err);
    json_auto_t *report = read_report(text);
    if (report == NULL)
        return ND_EXIT_TROUBLE;
    if (values->json)
        cli_print_json(ND_DOCUMENT_RUNTIMES_ADDED, json_incref(report));
    else
        print_added(report);
    return ND_EXIT_SAME;
}

static int run_remove(const struct values *values, const char *id)
{
    struct nd_error err = {0};
    char *text = NULL;
    if (nd_runtimes_remove(id, values->abi, &text, &err) != ND_OK)
        return cli_report_error(&err);
    json_t *removed = read_report(text), *folder;
    size_t i;
    if (removed == NULL)
        return ND_EXIT_TROUBLE;
    if (values->json)
        return cli_print_rows(ND_DOCUMENT_RUNTIMES_REMOVED, "removed", removed, NULL, true);
    json_array_foreach(removed, i, folder) {
        printf("removed %s\n", json_string_value(folder));
    }
    json_decref(removed);
    return ND_EXIT_SAME;
}

/* ---- check ---- */

/* Those of one architecture and state on a line: "v73 runs: SM8550, SM8635". */
static void print_chipsets(const json_t *chipsets)
{
    static const char *const states[] = {"runs", "has code", "fails", "no code"};
    const json_t *row;
    size_t i;
    for (int arch = 1; arch < 1000; arch++)
        for (size_t s = 0; s < sizeof states / sizeof states[0]; s++) {
            char name[8];
            const char *reason = "";
            size_t n = 0;
            snprintf(name, sizeof name, "v%d", arch);
            json_array_foreach(chipsets, i, row) {
                if (strcmp(cli_text_of(row, "arch"), name) != 0 ||
                    strcmp(cli_text_of(row, "state"), states[s]) != 0)
                    continue;
                if (n++ == 0)
                    printf("  %s %s: %s", name, states[s], cli_text_of(row, "chipset"));
                else
                    printf(", %s", cli_text_of(row, "chipset"));
                reason = cli_text_of(row, "reason");
            }
            if (n > 0)
                printf("%s%s\n", reason[0] != '\0' ? ": " : "", reason);
        }
}

static void print_checked(const json_t *row)
{
    const json_t *problems = json_object_get(row, "problems"), *loads = json_object_get(row, "loads"), *item;
    const char *build = cli_text_of(row, "build_id");
    json_t *needs = joined(json_object_get(row, "needs"), ", "),
           *uses = joined(json_object_get(row, "uses"), ", ");
    size_t i;
    printf("%s for %s: %s\n", cli_text_of(row, "runtime"), cli_text_of(row, "abi"), cli_text_of(row, "state"));
    json_array_foreach(problems, i, item) {
        printf("  problem: %s\n", json_string_value(item));
    }
    printf("  ONNX Runtime %s, onnxruntime-qnn %s%s%s\n", cli_text_of(row, "onnxruntime"),
           cli_text_of(row, "onnxruntime_qnn"), build[0] != '\0' ? ", QNN " : "", build);
    printf("  for: %s; loads: %s\n", json_string_value(uses),
           json_is_null(loads) ? "not tried here" : (json_is_true(loads) ? "yes" : "no"));
    size_t n_files = json_array_size(json_object_get(row, "files"));
    printf("  %zu file%s; needs of the device: %s\n", n_files, n_files == 1 ? "" : "s",
           json_string_value(needs));
    print_chipsets(json_object_get(row, "chipsets"));
    json_decref(needs);
    json_decref(uses);
}

static void show_progress(void *context, const char *runtime, const char *what)
{
    cli_progress_show(context, 0, &(struct cli_progress_state){.label = runtime, .stage = what});
}

static int run_check(const struct values *values, const char *id)
{
    struct nd_error err = {0};
    char *text = NULL;
    enum nd_exit exit_code = ND_EXIT_TROUBLE;
    struct cli_progress *progress = cli_progress_create(1, 1, false);
    const struct nd_runtime_checking how = {.struct_size = sizeof how,
                                            .files_only = values->files_only,
                                            .progress = show_progress,
                                            .progress_context = progress,
                                            .is_cancelled = cli_signals_came};
    cli_signals_catch();
    enum nd_status status = nd_runtimes_check(id, &how, &text, &exit_code, &err);
    cli_progress_destroy(progress);
    if (status != ND_OK)
        return cli_report_error(&err);
    json_auto_t *report = read_report(text);
    json_t *row;
    size_t i;
    if (report == NULL)
        return ND_EXIT_TROUBLE;
    if (values->json)
        cli_print_json(ND_DOCUMENT_RUNTIMES_CHECK, json_incref(report));
    json_array_foreach(json_object_get(report, "runtimes"), i, row) {
        if (!values->json)
            print_checked(row);
    }
    return (int)exit_code;
}

/* ---- the command ---- */

enum { LIST, ADD, REMOVE, CHECK, N_ACTIONS };
static const struct {
    const char *name;
    size_t min_operands, max_operands;
    const char *operands;
} actions[N_ACTIONS] = {
    [LIST] = {"list", 0, 0, "nothing else"},
    [ADD] = {"add", 1, CLI_ANY_NUMBER, "wheels, AARs or folders"},
    [REMOVE] = {"remove", 1, 1, "one id"},
    [CHECK] = {"check", 0, 1, "at most one id"},
};

static int check_usage(const struct values *values, int action, size_t n_operands)
{
    const struct {
        bool is_given;
        const char *option;
        int action;
    } owned[] = {
        {values->id != NULL, "--id", ADD},
        {values->with != NULL, "--with", ADD},
        {values->force, "--force", ADD},
        {values->abi != NULL, "--abi", REMOVE},
        {values->files_only, "--files-only", CHECK},
    };
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
        if (owned[i].is_given && owned[i].action != action)
            return cli_usage_error("runtimes", "%s belongs to 'runtimes %s', not to 'runtimes %s'",
                                   owned[i].option, actions[owned[i].action].name, actions[action].name);
    if (n_operands < actions[action].min_operands || n_operands > actions[action].max_operands)
        return cli_usage_error("runtimes", "'runtimes %s' takes %s", actions[action].name,
                               actions[action].operands);
    return 0;
}

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    const struct values *values = context;
    int action = n_operands == 0 ? LIST : 0;
    while (n_operands > 0 && strcmp(actions[action].name, operands[0]) != 0) /* cli_run has checked it */
        action++;
    const char *const *rest = n_operands > 0 ? operands + 1 : operands;
    size_t n_rest = n_operands > 0 ? n_operands - 1 : 0;
    int exit_code = check_usage(values, action, n_rest);
    if (exit_code != 0)
        return exit_code;
    switch (action) {
    case ADD:
        return run_add(values, rest, n_rest);
    case REMOVE:
        return run_remove(values, rest[0]);
    case CHECK:
        return run_check(values, n_rest > 0 ? rest[0] : NULL);
    default:
        return run_list(values);
    }
}

static const char *const abis[] = {"x86_64-linux", "aarch64-linux", "aarch64-android", NULL};

static const char *const action_names[] = {"list", "add", "remove", "check", NULL};

static const struct cli_option options[] = {
    OPT_TEXT(0, "id", struct values, id, CLI_A_TEXT("ID"),
             "add: the runtime's id (made from its versions: qairt-2.51.0, ort-1.31.1, qnn-2.51.0)"),
    OPT_TEXT(0, "with", struct values, with, CLI_A_RUNTIME("RUNTIME"),
             "add: for an SDK, which has no ONNX Runtime and no provider: take them from this runtime"),
    OPT_FORCE(struct values, "add: overwrite a runtime that was added before"),
    OPT_CHOICE(0, "abi", struct values, abi, "ABI", abis,
               "remove: only the files for x86_64-linux, aarch64-linux or aarch64-android"),
    OPT_FLAG(0, "files-only", struct values, files_only, "check: look at the files and run nothing"),
    OPT_VERBOSE(struct values, "list: print also the runtimes that are not installed"),
    OPT_JSON(struct values),
    {.name = NULL},
};

static const struct cli_example examples[] = {
    {"npudiff runtimes", "Lists the installed runtimes."},
    {"npudiff runtimes check --files-only", "Checks that the files of all runtimes are unchanged."},
    {"npudiff runtimes add onnxruntime-1.23.0.whl onnxruntime_qnn-1.23.0.whl",
     "Adds a runtime from two Python wheels."},
};

const struct cli_command cmd_runtimes = {
    .name = "runtimes",
    .role = CLI_HERE,
    .summary = "list, add, check and remove runtimes",
    .synopsis = "[list | add WHEEL|FOLDER ... | remove ID | check [ID]]",
    .details = "A runtime is an ONNX Runtime with Qualcomm's provider and the QNN libraries of one QAIRT "
               "version; on x86-64 it holds the HTP simulator, too. Runtimes are in $NPUDIFF_RUNTIMES, by "
               "default ${XDG_CACHE_HOME:-~/.cache}/npudiff/runtimes. tools/setup installs some for this "
               "computer. A device uses the newest runtime, or the one after '@'.\n"
               "list: the installed runtimes, the machines that they are for, what they can run (cpu; htp-sim, "
               "the simulator; htp, an NPU; qnn-net-run), and the Hexagon architectures that they support.\n"
               "add WHEEL|FOLDER ...: copies the libraries from wheels of onnxruntime and onnxruntime-qnn "
               "(give both together), AARs, unpacked packages or a QAIRT SDK (lib/x86_64-linux-clang, "
               "lib/aarch64-android, lib/aarch64-oe-linux-*, lib/hexagon-v*/unsigned, bin/*/qnn-net-run). One "
               "id may hold files for several kinds of machine. An SDK without ONNX Runtime can run only "
               "qnn-net-run; --with adds what it lacks.\n"
               "check [ID]: whether files are unchanged, for which machine they are, their build ids, and what "
               "they need of the device. It also runs a small model on the CPU and on the simulator of every "
               "chipset. Runtimes for other machines are not run.\n"
               "remove ID: removes a runtime that 'add' made.\n"
               "Exit code 0: done; 2: wrong usage, a file problem, or files that are no runtime; 5: check "
               "found a runtime that does not work.",
    CLI_TABLES(struct values),
    .actions = action_names,
    CLI_OPERANDS(CLI_VALUE_RUNTIME, 0, CLI_ANY_NUMBER),
};
