#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/golden.h"
#include "cli/rows.h"

/* ---- add ---- */

static int add_one(const struct golden_values *values, struct nd_golden *store, const char *path, json_t *rows)
{
    struct nd_error err = {0};
    char *text = NULL;
    const struct nd_golden_acceptance how = {.struct_size = sizeof how,
                                             .note = values->note,
                                             .accepted_by = values->by,
                                             .digest_only = values->digest_only};
    if (nd_golden_add(store, path, &how, &text, &err) != ND_OK)
        return cli_report_error(&err);
    json_t *row = golden_read(text);
    if (row == NULL)
        return ND_EXIT_TROUBLE;
    json_object_del(row, "problems");
    const json_t *entry = json_object_get(row, "entry");
    if (!values->json)
        printf("%s: %s %.12s (%s)\n", path,
               json_is_true(json_object_get(row, "is_new")) ? "added as" : "is already there as",
               cli_text_of(entry, "id"), cli_text_of(entry, "store"));
    json_array_append_new(rows, row);
    return 0;
}

static int run_add(const struct golden_values *values, const char *path, const char *const *captures, size_t n)
{
    struct nd_error err = {0};
    struct nd_golden *store = NULL;
    if (nd_golden_open(path, true, &store, &err) != ND_OK)
        return cli_report_error(&err);
    int exit_code = 0;
    json_t *rows = json_array();
    for (size_t i = 0; i < n; i++)
        exit_code = cli_worse(exit_code, add_one(values, store, captures[i], rows));
    nd_golden_close(&store);
    if (values->json)
        cli_print_rows("added", rows, NULL, true);
    else
        json_decref(rows);
    return exit_code;
}

/* ---- list, prune, diff ---- */

static int run_list(const struct golden_values *values, const char *path, const struct nd_golden *store)
{
    static const struct cli_column columns[] = {
        {"short", "ENTRY"},   {"label", "LABEL"}, {"chipset", "CHIPSET"}, {"sdk", "SDK"},
        {"model", "MODEL"},   {"edges", "EDGES"}, {"probes", "PROBES"},   {"store", "STORE"},
        {"status", "STATUS"}, {"date", "DATE"},   {"note", "NOTE"},       {NULL, NULL}};
    struct nd_error err = {0};
    char *text = NULL;
    if (nd_golden_list(store, &text, &err) != ND_OK)
        return cli_report_error(&err);
    json_t *report = golden_read(text);
    if (report == NULL)
        return ND_EXIT_TROUBLE;
    int exit_code = golden_tell_problems(path, report);
    json_t *entries = json_object_get(report, "entries"), *entry;
    size_t i;
    if (values->json) {
        cli_print_json(report);
    } else {
        json_array_foreach(entries, i, entry)
        {
            char name[16];
            snprintf(name, sizeof name, "%.12s", cli_text_of(entry, "id"));
            json_object_set_new(entry, "short", json_string(name));
        }
        cli_print_table(entries, columns);
    }
    json_decref(report);
    return exit_code;
}

static void print_removed(const json_t *report, const char *list, const char *folder)
{
    const json_t *name;
    size_t i;
    json_array_foreach(json_object_get(report, list), i, name)
    {
        printf("%s %s%s\n", json_is_true(json_object_get(report, "dry_run")) ? "would remove" : "removed",
               folder, json_string_value(name));
    }
}

static int run_prune(const struct golden_values *values, const char *path, struct nd_golden *store)
{
    struct nd_error err = {0};
    char *text = NULL;
    if (nd_golden_prune(store, values->keep, values->dry_run, &text, &err) != ND_OK)
        return cli_report_error(&err);
    json_t *report = golden_read(text);
    if (report == NULL)
        return ND_EXIT_TROUBLE;
    int exit_code = golden_tell_problems(path, report);
    if (values->json) {
        cli_print_json(report);
    } else {
        print_removed(report, "entries", "entries/");
        print_removed(report, "objects", "objects/");
        print_removed(report, "leftovers", "");
        json_int_t n_kept = json_integer_value(json_object_get(report, "kept"));
        printf("%" JSON_INTEGER_FORMAT " %s kept\n", n_kept, n_kept == 1 ? "entry" : "entries");
    }
    json_decref(report);
    return exit_code;
}

static int run_diff(const struct golden_values *values, const char *path, const struct nd_golden *store,
                    const char *const *names)
{
    struct nd_error err = {0};
    char *text = NULL;
    enum nd_exit verdict = ND_EXIT_TROUBLE;
    if (nd_golden_diff(store, names[0], names[1], &text, &verdict, &err) != ND_OK)
        return cli_report_error(&err);
    json_t *report = golden_read(text);
    if (report == NULL)
        return ND_EXIT_TROUBLE;
    int exit_code = cli_worse((int)verdict, golden_tell_problems(path, report));
    if (values->json)
        cli_print_json(report);
    else
        golden_print_check(cli_text_of(json_object_get(report, "test"), "label"), report);
    json_decref(report);
    return exit_code;
}

/* ---- check ---- */

static int check_one(const struct golden_values *values, const struct nd_golden *store, const char *path,
                     json_t *rows)
{
    struct nd_error err = {0};
    char *text = NULL;
    enum nd_exit exit_code = ND_EXIT_TROUBLE;
    if (nd_golden_check(store, path, values->blame, &text, &exit_code, &err) != ND_OK)
        return cli_report_error(&err);
    json_t *report = golden_read(text);
    if (report == NULL)
        return ND_EXIT_TROUBLE;
    json_object_del(report, "problems");
    if (!values->json)
        golden_print_check(path, report);
    json_array_append_new(rows, report);
    return (int)exit_code;
}

static int run_check(const struct golden_values *values, const char *path, const struct nd_golden *store,
                     const char *const *captures, size_t n)
{
    struct nd_error err = {0};
    char *text = NULL;
    json_t *checks = json_array();
    int exit_code = 0;
    for (size_t i = 0; i < n; i++)
        exit_code = cli_worse(exit_code, check_one(values, store, captures[i], checks));
    json_t *list = nd_golden_list(store, &text, &err) == ND_OK ? golden_read(text) : NULL;
    exit_code = cli_worse(exit_code, list != NULL ? golden_tell_problems(path, list) : ND_EXIT_TROUBLE);
    if (values->json) {
        json_t *root =
            json_pack("{s:O, s:O?}", "checks", checks, "problems", json_object_get(list, "problems"));
        cli_print_json(root);
        json_decref(root);
    }
    json_decref(list);
    json_decref(checks);
    return exit_code;
}

/* ---- the command ---- */

enum { ADD, LIST, CHECK, DIFF, PRUNE, N_ACTIONS };

static const struct {
    const char *name, *operands;
    size_t min_operands, max_operands; /* after the store */
} actions[N_ACTIONS] = {
    {"add", "STORE CAPTURE.h5 ...", 1, CLI_ANY_NUMBER},
    {"list", "STORE", 0, 0},
    {"check", "STORE CAPTURE.h5 ...", 0, CLI_ANY_NUMBER},
    {"diff", "STORE ENTRY ENTRY", 2, 2},
    {"prune", "STORE", 0, 0},
};

/* 0, or the exit code after a message: an option of another action would be ignored. */
static int check_usage(const struct golden_values *values, int action, size_t n_operands)
{
    const struct {
        bool is_given;
        const char *option;
        int action;
    } owned[] = {
        {values->digest_only, "--digest-only", ADD},
        {values->note != NULL, "--note", ADD},
        {values->by != NULL, "--by", ADD},
        {values->blame, "--blame", CHECK},
        {values->runtime != NULL, "--runtime", CHECK},
        {values->model != NULL, "--model", CHECK},
        {values->probes.n > 0, "--probe", CHECK},
        {values->output != NULL, "--output", CHECK},
        {values->jobs > 0, "--jobs", CHECK},
        {values->force, "--force", CHECK},
        {values->resume, "--resume", CHECK},
        {values->keep > 0, "--keep", PRUNE},
        {values->dry_run, "--dry-run", PRUNE},
    };
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
        if (owned[i].is_given && owned[i].action != action)
            return cli_usage_error("golden", "%s belongs to 'golden %s', not to 'golden %s'", owned[i].option,
                                   actions[owned[i].action].name, actions[action].name);
    if (n_operands < actions[action].min_operands || n_operands > actions[action].max_operands)
        return cli_usage_error("golden", "'golden %s' takes %s", actions[action].name,
                               actions[action].operands);
    if (action != CHECK)
        return 0;
    if (values->runtime == NULL && (values->model != NULL || values->probes.n > 0 || values->output != NULL ||
                                    values->force || values->resume))
        return cli_usage_error("golden", "--model, --probe, --output, --force and --resume go with --runtime");
    if (values->force && values->resume)
        return cli_usage_error("golden", "--force replaces what --resume would keep");
    if ((values->runtime == NULL) == (n_operands == 0))
        return cli_usage_error("golden", "'golden check' takes either captures or --runtime");
    if (values->runtime != NULL && (values->model == NULL || values->output == NULL))
        return cli_usage_error("golden", "--runtime needs %s", values->model == NULL ? "--model" : "--output");
    return 0;
}

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    const struct golden_values *values = context;
    int action = 0;
    while (action < N_ACTIONS && strcmp(actions[action].name, operands[0]) != 0)
        action++;
    if (action == N_ACTIONS)
        return cli_usage_error("golden", "unknown action '%s': add, list, check, diff or prune", operands[0]);
    int exit_code = check_usage(values, action, n_operands - 2);
    if (exit_code != 0)
        return exit_code;
    struct nd_error err = {0};
    struct nd_golden *store = NULL;
    const char *path = operands[1];
    if (action == ADD)
        return run_add(values, path, operands + 2, n_operands - 2);
    if (nd_golden_open(path, false, &store, &err) != ND_OK)
        return cli_report_error(&err);
    if (action == LIST)
        exit_code = run_list(values, path, store);
    else if (action == DIFF)
        exit_code = run_diff(values, path, store, operands + 2);
    else if (action == PRUNE)
        exit_code = run_prune(values, path, store);
    else if (values->runtime != NULL)
        exit_code = golden_check_runtime(values, path, store);
    else
        exit_code = run_check(values, path, store, operands + 2, n_operands - 2);
    nd_golden_close(&store);
    return exit_code;
}

static const struct cli_option options[] = {
    OPT_FLAG(0, "digest-only", struct golden_values, digest_only,
             "add: keep some kilobytes of digests, not the capture"),
    OPT_TEXT(0, "note", struct golden_values, note, CLI_A_TEXT("TEXT"), "add: why it is accepted"),
    OPT_TEXT(0, "by", struct golden_values, by, CLI_A_TEXT("WHO"), "add: who accepts it"),
    OPT_FLAG(0, "blame", struct golden_values, blame,
             "check: call it a difference also where two axes changed"),
    OPT_TEXT(
        0, "runtime", struct golden_values, runtime, CLI_A_RUNTIME("ID"),
        "check: capture again with this runtime what the newest entry of each chipset holds, and check it"),
    OPT_TEXT(0, "model", struct golden_values, model, CLI_A_MODEL("FILE.onnx"),
             "the model to capture with --runtime"),
    OPT_LIST('p', "probe", struct golden_values, probes, CLI_A_PROBE,
             "inputs for --runtime, as 'npudiff capture' takes them; may be repeated"),
    OPT_TEXT('o', "output", struct golden_values, output, CLI_A_FOLDER("DIR"),
             "the folder for the captures of --runtime"),
    OPT_JOBS(struct golden_values, "capture on N devices at once (1)"),
    OPT_FORCE(struct golden_values, "check: with --runtime, replace captures of the folder"),
    OPT_FLAG(0, "resume", struct golden_values, resume,
             "check: with --runtime, keep captures of the folder that are complete and of what is asked for"),
    OPT_NUMBER(0, "keep", struct golden_values, keep, "N", 1, 1e6,
               "prune: of equal axes keep the newest N entries (all)"),
    OPT_FLAG(0, "dry-run", struct golden_values, dry_run, "prune: only say what would go"),
    OPT_JSON(struct golden_values),
    {.name = NULL},
};

const struct cli_command cmd_golden = {
    .name = "golden",
    .summary = "keep accepted captures, and say what changed since: SDK, chipset, ...",
    .synopsis = "add|list|check|diff|prune STORE [CAPTURE.h5 ... | ENTRY ENTRY]",
    .details =
        "add STORE CAPTURE.h5 ...: verifies captures and accepts them into the folder STORE.\ncheck STORE "
        "CAPTURE.h5 ...: holds captures against the entry that differs in the fewest axes (sdk, chipset, "
        "model, probes, options, host) and says which axis changed and which edges differ, in graph order, and "
        "by how much. An entry of the same chipset stands before others; options that follow from the chipset "
        "or the SDK are no change of their own. Where two axes changed it does not blame one.\ncheck STORE "
        "--runtime ID --model FILE -p PROBE -o DIR: captures again with another runtime on every chipset of "
        "the store, and shows what it changed.\ndiff STORE ENTRY ENTRY: two entries, by a start of their name "
        "or label.\nprune STORE: removes leftovers of killed writers and captures without an entry.\nExit code "
        "0: same; 1: differs; 2: usage or I/O trouble, or a damaged entry; 3: no entry of that model and "
        "probe, or an equal one that cannot be right; 4: two axes changed; 5: a device failed.",
    .options = options,
    .min_operands = 2,
    .max_operands = CLI_ANY_NUMBER,
    .values_bytes = sizeof(struct golden_values),
    .run = run,
};
