/* `npudiff golden`: accepted captures in a store. docs/reference/store.md. */
#include "cli/commands/golden.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/commands/report_documents.h"
#include "cli/options/commands.h"
#include "cli/options/workload.h"
#include "cli/terminal/output.h"
#include "cli/terminal/rows.h"
#include "npudiff/compare/compare.h"
#include "npudiff/devices/device.h"
#include "npudiff/report/report.h"

/* ---- golden check --runtime: captures with a new runtime ---- */

struct regression {
    const struct golden_values *values;
    const char *store_path;
    const struct nd_golden *store;
    struct nd_model *model;
    struct cli_probes probes;
    struct nd_golden_plan plan;
    char **paths; /* [plan.n], of the captures; NULL until one is made */
};

/* ---- capturing ---- */

static enum nd_status make_probes(struct regression *regression, struct nd_error *err)
{
    const struct cli_list specs = cli_probes_or_default(&regression->values->probes);
    return cli_probes_make(regression->model, &specs, false, &regression->probes, err);
}

/* "KIND:CHIPSET@OLD?options" with another runtime, in new memory. What is before the last '/' says where it is:
 * "ssh:user@host/agent/cpu". */
static char *with_runtime(const char *uri, const char *runtime)
{
    size_t n_rest = strcspn(uri, "?"), size = strlen(uri) + strlen(runtime) + 2;
    const char *slash = memrchr(uri, '/', n_rest), *kind = slash != NULL ? slash + 1 : uri;
    size_t n_before = (size_t)(kind - uri) + strcspn(kind, "@?");
    char *out = malloc(size);
    if (out != NULL)
        snprintf(out, size, "%.*s@%s%s", (int)n_before, uri, runtime, uri + n_rest);
    return out;
}

static char *cell_path(const struct golden_values *values, const char *chipset, size_t i)
{
    size_t size = strlen(values->output) + strlen(chipset) + strlen(values->runtime) + 48;
    char *path = malloc(size);
    if (path == NULL)
        return NULL;
    int n = snprintf(path, size, "%s/", values->output);
    snprintf(path + n, size - (size_t)n, "%zu-%s@%s.h5", i + 1, chipset, values->runtime);
    for (char *at = path + n; *at != '\0'; at++)
        *at = *at == '/' || *at == ' ' ? '-' : *at;
    return path;
}

static bool is_captured_alike(const struct nd_golden_entry *a, const struct nd_golden_entry *b)
{
    return strcmp(a->tensors, b->tensors) == 0 && a->has_prefixes == b->has_prefixes &&
           a->allows_fallback == b->allows_fallback;
}

static enum nd_status fill_cell(struct regression *regression, size_t i, struct cli_cell *cell,
                                struct nd_error *err)
{
    const struct nd_golden_entry *planned = &regression->plan.entries[i];
    CLI_FREED char *uri = with_runtime(planned->uri, regression->values->runtime);
    regression->paths[i] = cell_path(regression->values, planned->chipset, i);
    cell->path = regression->paths[i] != NULL ? strdup(regression->paths[i]) : NULL;
    return uri != NULL && cell->path != NULL ? nd_device_parse(uri, &cell->device, err) : cli_memory_error(err);
}

/* All cells from `first` on that are captured with the same options, which a fleet has in common. */
static int capture_alike(struct regression *regression, size_t first)
{
    const struct golden_values *values = regression->values;
    struct nd_error err = {0};
    const struct nd_golden_plan *plan = &regression->plan;
    const struct nd_golden_entry *like = &plan->entries[first];
    CLI_OWNED(cli_fleet_deinit)
    struct cli_fleet fleet = {.model = regression->model,
                              .probes = (const struct nd_probe *const *)regression->probes.items,
                              .n_probes = regression->probes.n,
                              .cells = calloc(plan->n, sizeof *fleet.cells),
                              .n_threads = values->jobs,
                              .is_quiet = values->answer.quiet || isatty(STDERR_FILENO) != 1,
                              .has_no_table = true, /* stdout is for the matrix */
                              .is_resumable = true};
    nd_capture_options_init(&fleet.options);
    fleet.options.tensors = like->tensors[0] != '\0' ? like->tensors : NULL;
    fleet.options.replace = values->force;
    fleet.options.resume = values->resume;
    fleet.options.prefixes = like->has_prefixes;
    fleet.options.allow_fallback = like->allows_fallback;
    if (fleet.cells == NULL)
        return cli_fail_memory();
    for (size_t i = first; i < plan->n; i++)
        if (regression->paths[i] == NULL && is_captured_alike(&plan->entries[i], like) &&
            fill_cell(regression, i, &fleet.cells[fleet.n_cells++], &err) != ND_OK)
            return cli_report_error(&err);
    if (values->resume && cli_resume(&fleet, &err) != ND_OK)
        return cli_report_error(&err);
    return cli_fleet_capture(&fleet);
}

static int capture_cells(struct regression *regression)
{
    int exit_code = 0;
    /* A device that failed gave a capture, and its row. */
    for (size_t i = 0; i < regression->plan.n && exit_code != ND_EXIT_TROUBLE; i++)
        if (regression->paths[i] == NULL)
            exit_code = cli_worse(exit_code, capture_alike(regression, i));
    return exit_code == ND_EXIT_TROUBLE ? exit_code : 0;
}

/* ---- judging ---- */

/* Where labels exist and the entry keeps its capture. */
static void find_accuracy(const struct nd_golden *store, struct nd_golden_upgrade *upgrade)
{
    CLI_OWNED(nd_capture_close) struct nd_capture *before = NULL, *after = NULL;
    CLI_OWNED(nd_comparison_destroy) struct nd_comparison *comparison = NULL;
    if (nd_golden_open_capture(store, upgrade->check.entry.id, &before, NULL) != ND_OK ||
        nd_capture_open(upgrade->check.capture, &after, NULL) != ND_OK ||
        nd_compare_captures((const struct nd_capture *const[]){before, after}, 2, NULL, &comparison, NULL) !=
            ND_OK)
        return;
    const struct nd_top1 *top1 = nd_comparison_top1(comparison);
    if (top1 == NULL || !top1->has_labels || !top1->pairs[0].exists)
        return;
    const struct nd_top1_pair *pair = &top1->pairs[0];
    upgrade->has_top1 = true;
    upgrade->n_samples = pair->n_samples;
    upgrade->n_right_before = top1->devices[0].n_correct;
    upgrade->n_right_after = top1->devices[1].n_correct;
    upgrade->n_lost = pair->n_lost;
    upgrade->n_gained = pair->n_gained;
    upgrade->p_value = pair->p_value;
}

static int judge_cell(const struct regression *regression, size_t i, struct nd_golden_upgrade *upgrade)
{
    struct nd_error err = {0};
    *upgrade = (struct nd_golden_upgrade){.chipset = regression->plan.entries[i].chipset,
                                          .runtime = regression->values->runtime};
    if (nd_golden_check(regression->store, regression->paths[i], regression->values->blame, &upgrade->check,
                        &err) != ND_OK)
        return cli_report_error(&err);
    find_accuracy(regression->store, upgrade);
    return (int)upgrade->check.exit_code;
}

static int judge_cells(const struct regression *regression)
{
    const struct golden_values *values = regression->values;
    struct nd_error err = {0};
    CLI_FREED struct nd_golden_upgrade *upgrades = calloc(regression->plan.n, sizeof *upgrades);
    size_t n = 0;
    int exit_code = 0;
    char *json = NULL, *text = NULL;
    enum nd_status status = ND_OK;
    if (upgrades == NULL)
        return cli_fail_memory();
    for (size_t i = 0; i < regression->plan.n; i++) {
        exit_code = cli_worse(exit_code, judge_cell(regression, i, &upgrades[n]));
        n += upgrades[n].check.verdict != NULL;
    }
    if (values->report != NULL || values->answer.json)
        status = nd_report_golden_upgrades_json(upgrades, n, &json, &err);
    if (status == ND_OK && !values->answer.json)
        status = nd_report_golden_upgrades_text(upgrades, n, cli_text_width(0), values->verbose, &text, &err);
    for (size_t i = 0; i < n; i++)
        nd_golden_check_deinit(&upgrades[i].check);
    return cli_worse(
        exit_code, cli_report_tell(values->report, "golden check", &values->answer, status, json, text, &err));
}

/* ---- all of it ---- */

static int make_plan(struct regression *regression)
{
    struct nd_error err = {0};
    if (nd_golden_plan(regression->store, nd_model_sha256(regression->model), regression->values->runtime,
                       &regression->plan, &err) != ND_OK)
        return cli_report_error(&err);
    size_t n_left_out = regression->plan.n_without_runtime;
    if (n_left_out > 0)
        fprintf(stderr,
                "npudiff: %zu %s of the model not captured again: the device takes no runtime (an emulated "
                "one, or a reference)\n",
                n_left_out, n_left_out == 1 ? "entry is" : "entries are");
    regression->paths = calloc(regression->plan.n > 0 ? regression->plan.n : 1, sizeof *regression->paths);
    if (regression->paths == NULL)
        return cli_fail_memory();
    return golden_tell_problems(regression->store_path, regression->store);
}

static int run_regression(struct regression *regression)
{
    struct nd_error err = {0};
    const struct golden_values *values = regression->values;
    int exit_code = make_plan(regression);
    if (regression->paths == NULL)
        return exit_code;
    if (regression->plan.n == 0) {
        cli_fail(CLI_E_STORE_ENTRY, regression->store_path,
                 "'%s' has no entry of model '%s' with a different runtime from '%s'", regression->store_path,
                 values->model, values->runtime);
        return cli_worse(exit_code, ND_EXIT_NOT_COMPARABLE);
    }
    if (make_probes(regression, &err) != ND_OK)
        return cli_report_error(&err);
    if (mkdir(values->output, 0777) != 0 && errno != EEXIST)
        return cli_fail(CLI_E_FILE_WRITE, values->output, "cannot create folder '%s': %s", values->output,
                        strerror(errno));
    int captured = capture_cells(regression);
    if (captured != 0)
        return captured;
    return cli_worse(exit_code, judge_cells(regression));
}

/* `golden check STORE --runtime NEW`. The exit code. */
static int golden_check_runtime(const struct golden_values *values, const char *store_path,
                                const struct nd_golden *store)
{
    struct nd_error err = {0};
    struct regression regression = {.values = values, .store_path = store_path, .store = store};
    if (nd_model_load(values->model, &regression.model, &err) != ND_OK)
        return cli_report_error(&err);
    int exit_code = run_regression(&regression);
    cli_probes_deinit(&regression.probes);
    for (size_t i = 0; regression.paths != NULL && i < regression.plan.n; i++)
        free(regression.paths[i]);
    free(regression.paths);
    nd_golden_plan_deinit(&regression.plan);
    nd_model_destroy(&regression.model);
    return exit_code;
}

/* That a check of one capture, or a diff, lists. */
enum { MAX_TENSORS = 5 };

int golden_tell_problems(const char *path, const struct nd_golden *store)
{
    for (size_t i = 0; i < nd_golden_n_problems(store); i++) {
        struct nd_golden_problem problem = nd_golden_problem(store, i);
        fprintf(stderr, "npudiff: '%s/%s' is skipped: %s\n", path, problem.object, problem.problem);
    }
    return nd_golden_n_problems(store) > 0 ? ND_EXIT_TROUBLE : 0;
}

/* ---- add ---- */

static int run_add(const struct golden_values *values, const char *path, const char *const *captures, size_t n)
{
    struct nd_error err = {0};
    struct nd_golden *store = NULL;
    const struct nd_golden_acceptance how = {.struct_size = sizeof how,
                                             .note = values->note,
                                             .accepted_by = values->by,
                                             .digest_only = values->digest_only};
    if (nd_golden_open(path, true, &store, &err) != ND_OK)
        return cli_report_error(&err);
    int exit_code = 0;
    size_t n_added = 0;
    char *text = NULL;
    struct nd_golden_added *added = calloc(n, sizeof *added);
    if (added == NULL)
        exit_code = cli_fail_memory();
    for (size_t i = 0; added != NULL && i < n; i++) {
        struct nd_golden_added *one = &added[n_added];
        if (nd_golden_add(store, captures[i], &how, one, &err) != ND_OK) {
            exit_code = cli_worse(exit_code, cli_report_error(&err));
            continue;
        }
        n_added++;
        if (!values->answer.json && !values->answer.quiet)
            printf("%s: %s %.12s (%s)\n", captures[i], one->is_new ? "added as" : "is already there as",
                   one->entry.id, one->entry.kept);
    }
    nd_golden_close(&store);
    if (values->answer.json && added != NULL) {
        enum nd_status status = nd_report_golden_added_json(added, n_added, &text, &err);
        exit_code = cli_worse(exit_code, cli_print_made(status, text, true, &err));
    }
    for (size_t i = 0; i < n_added; i++)
        nd_golden_entry_deinit(&added[i].entry);
    free(added);
    return exit_code;
}

/* ---- list, prune, diff ---- */

static int run_list(const struct golden_values *values, const char *path, const struct nd_golden *store)
{
    struct nd_error err = {0};
    char *text = NULL;
    int problems = golden_tell_problems(path, store);
    enum nd_status status = ND_OK;
    if (values->answer.json)
        status = nd_report_golden_list_json(store, &text, &err);
    else if (values->verbose)
        status = nd_report_golden_list_text(store, &text, &err);
    else if (!values->answer.quiet)
        status = nd_report_golden_list_brief(store, path, cli_text_width(0), &text, &err);
    else
        return problems;
    return cli_worse(problems, cli_print_made(status, text, values->answer.json, &err));
}

static int run_prune(const struct golden_values *values, const char *path, struct nd_golden *store)
{
    struct nd_error err = {0};
    struct nd_golden_pruning pruning;
    char *text = NULL;
    if (nd_golden_prune(store, values->keep, values->dry_run, &pruning, &err) != ND_OK)
        return cli_report_error(&err);
    int problems = golden_tell_problems(path, store);
    enum nd_status status = values->answer.json ? nd_report_golden_pruning_json(&pruning, store, &text, &err)
                                                : nd_report_golden_pruning_text(&pruning, &text, &err);
    nd_golden_pruning_deinit(&pruning);
    return cli_worse(problems, cli_print_answer(status, text, &values->answer, &err));
}

static int run_diff(const struct golden_values *values, const char *path, const struct nd_golden *store,
                    const char *const *names)
{
    struct nd_error err = {0};
    CLI_OWNED(nd_golden_check_deinit) struct nd_golden_check check = {0};
    char *json = NULL, *text = NULL;
    enum nd_status status = ND_OK;
    if (nd_golden_diff(store, names[0], names[1], &check, &err) != ND_OK)
        return cli_report_error(&err);
    int exit_code = cli_worse((int)check.exit_code, golden_tell_problems(path, store));
    if (values->report != NULL || values->answer.json)
        status = nd_report_golden_diff_json(&check, store, &json, &err);
    if (status == ND_OK && !values->answer.json)
        status = nd_report_golden_check_text(&check, check.test.label, cli_text_width(0),
                                             values->verbose ? SIZE_MAX : MAX_TENSORS, &text, &err);
    return cli_worse(exit_code,
                     cli_report_tell(values->report, "golden diff", &values->answer, status, json, text, &err));
}

static int run_history(const struct golden_values *values, const char *path, const struct nd_golden *store)
{
    struct nd_error err = {0};
    CLI_OWNED(nd_golden_history_deinit) struct nd_golden_history history = {0};
    char *json = NULL, *text = NULL;
    enum nd_status status = ND_OK;
    int exit_code = golden_tell_problems(path, store);
    if (nd_golden_history(store, &history, &err) != ND_OK)
        return cli_report_error(&err);
    if (values->report != NULL || values->answer.json)
        status = nd_report_golden_history_json(&history, store, &json, &err);
    if (status == ND_OK && !values->answer.json)
        status = nd_report_golden_history_text(&history, cli_text_width(0), values->verbose, &text, &err);
    return cli_worse(exit_code, cli_report_tell(values->report, "golden history", &values->answer, status, json,
                                                text, &err));
}

/* ---- check ---- */

static int check_one(const struct golden_values *values, const struct nd_golden *store, const char *path,
                     size_t most, struct nd_golden_check *check)
{
    struct nd_error err = {0};
    char *text = NULL;
    if (nd_golden_check(store, path, values->blame, check, &err) != ND_OK)
        return cli_report_error(&err);
    int exit_code = (int)check->exit_code;
    if (values->answer.json || values->answer.quiet)
        return exit_code;
    enum nd_status status = nd_report_golden_check_text(check, path, cli_text_width(0), most, &text, &err);
    return cli_worse(exit_code, cli_print_answer(status, text, &values->answer, &err));
}

static int run_check(const struct golden_values *values, const char *path, const struct nd_golden *store,
                     const char *const *captures, size_t n)
{
    struct nd_error err = {0};
    CLI_FREED struct nd_golden_check *checks = calloc(n, sizeof *checks);
    size_t n_checked = 0;
    char *json = NULL;
    enum nd_status status = ND_OK;
    int exit_code = 0;
    /* Of several captures only the first tensor each: the answer shall fit a screen. */
    size_t most = values->verbose ? SIZE_MAX : n > 1 ? 1 : MAX_TENSORS;
    if (checks == NULL)
        return cli_fail_memory();
    for (size_t i = 0; i < n; i++) {
        exit_code = cli_worse(exit_code, check_one(values, store, captures[i], most, &checks[n_checked]));
        n_checked += checks[n_checked].verdict != NULL;
    }
    exit_code = cli_worse(exit_code, golden_tell_problems(path, store));
    if (values->report != NULL || values->answer.json)
        status = nd_report_golden_checks_json(checks, n_checked, store, &json, &err);
    exit_code = cli_worse(
        exit_code, cli_report_tell(values->report, "golden check", &values->answer, status, json, NULL, &err));
    for (size_t i = 0; i < n_checked; i++)
        nd_golden_check_deinit(&checks[i]);
    return exit_code;
}

/* ---- bundle ---- */

static int run_bundle(const struct golden_values *values, const char *path)
{
    struct nd_error err = {0};
    CLI_OWNED(nd_capture_close) struct nd_capture *capture = NULL;
    CLI_FREED char *text = NULL;
    if (values->output == NULL)
        return cli_usage_error("golden", "'golden bundle' needs -o FILE.json");
    if (cli_check_text_output(values->output, values->force, "--force overwrites it") != 0)
        return ND_EXIT_TROUBLE;
    if (nd_capture_open(path, &capture, &err) != ND_OK || nd_bundle_make(capture, &text, &err) != ND_OK)
        return cli_report_error(&err);
    int exit_code = cli_write_text(values->output, text, values->force);
    if (exit_code == 0 && values->answer.json) {
        cli_print_json(ND_DOCUMENT_BUNDLE,
                       json_pack("{s:o, s:o, s:I}", "capture", cli_text(path), "bundle",
                                 cli_text(values->output), "bytes", (json_int_t)strlen(text)));
    } else if (exit_code == 0 && !values->answer.quiet) {
        const char *next[] = {"npudiff", "triage", values->output, "--against", "STORE"};
        struct nd_report_screen *screen = nd_report_screen_create(cli_text_width(0));
        nd_report_screen_put(screen, "%s: %zu bytes, digests only\n", values->output, strlen(text));
        nd_report_screen_next(screen, "for whoever has the accepted captures", next,
                              sizeof next / sizeof next[0]);
        exit_code = cli_print_screen(screen);
    }
    return exit_code;
}

/* ---- the command ---- */

enum { ADD, LIST, CHECK, DIFF, HISTORY, PRUNE, BUNDLE, N_ACTIONS };

static const struct {
    const char *name, *operands;
    size_t min_operands, max_operands; /* after the store, or the capture of a bundle */
} actions[N_ACTIONS] = {
    {"add", "STORE CAPTURE.h5 ...", 1, CLI_ANY_NUMBER},
    {"list", "STORE", 0, 0},
    {"check", "STORE CAPTURE.h5 ...", 0, CLI_ANY_NUMBER},
    {"diff", "STORE ENTRY ENTRY", 2, 2},
    {"history", "STORE", 0, 0},
    {"prune", "STORE", 0, 0},
    {"bundle", "CAPTURE.h5", 0, 0},
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
        {values->jobs > 0, "--jobs", CHECK},
        {values->resume, "--resume", CHECK},
        {values->keep > 0, "--keep", PRUNE},
        {values->dry_run, "--dry-run", PRUNE},
        {values->output != NULL && action != BUNDLE, "--output", CHECK},
        {values->force && action != BUNDLE, "--force", CHECK},
    };
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
        if (owned[i].is_given && owned[i].action != action)
            return cli_usage_error("golden", "%s belongs to 'golden %s', not to 'golden %s'", owned[i].option,
                                   actions[owned[i].action].name, actions[action].name);
    if (n_operands < actions[action].min_operands || n_operands > actions[action].max_operands)
        return cli_usage_error("golden", "'golden %s' takes %s", actions[action].name,
                               actions[action].operands);
    if (values->report != NULL && action != CHECK && action != DIFF && action != HISTORY)
        return cli_usage_error(
            "golden",
            "--report belongs to 'golden check', 'golden diff' and 'golden history', not to 'golden %s'",
            actions[action].name);
    int checked = cli_report_check(values->report);
    if (checked != 0 || action != CHECK)
        return checked;
    if (values->runtime == NULL && (values->model != NULL || values->probes.n > 0 || values->output != NULL ||
                                    values->force || values->resume))
        return cli_usage_error("golden", "--model, --probe, --output, --force and --resume need --runtime");
    if (values->force && values->resume)
        return cli_usage_error(
            "golden", "--resume keeps existing captures and --force overwrites them: give one of them");
    if ((values->runtime == NULL) == (n_operands == 0))
        return cli_usage_error("golden", "'golden check' needs captures, or --runtime, but not both");
    if (values->runtime != NULL && (values->model == NULL || values->output == NULL))
        return cli_usage_error("golden", "--runtime needs %s", values->model == NULL ? "--model" : "--output");
    return 0;
}

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    const struct golden_values *values = context;
    int action = 0;
    while (strcmp(actions[action].name, operands[0]) != 0) /* cli_run has checked that it is one of them */
        action++;
    int exit_code = check_usage(values, action, n_operands - 2);
    if (exit_code != 0)
        return exit_code;
    struct nd_error err = {0};
    CLI_OWNED(nd_golden_close) struct nd_golden *store = NULL;
    const char *path = operands[1];
    if (action == BUNDLE)
        return run_bundle(values, path);
    if (action == ADD)
        return run_add(values, path, operands + 2, n_operands - 2);
    if (nd_golden_open(path, false, &store, &err) != ND_OK)
        return cli_report_error(&err);
    return action == LIST            ? run_list(values, path, store)
           : action == DIFF          ? run_diff(values, path, store, operands + 2)
           : action == HISTORY       ? run_history(values, path, store)
           : action == PRUNE         ? run_prune(values, path, store)
           : values->runtime != NULL ? golden_check_runtime(values, path, store)
                                     : run_check(values, path, store, operands + 2, n_operands - 2);
}

static const char *const action_names[] = {"add", "list", "check", "diff", "history", "prune", "bundle", NULL};

static const struct cli_option options[] = {
    OPT_FLAG(0, "digest-only", struct golden_values, digest_only,
             "add: store digests of a few kilobytes instead of the capture"),
    OPT_TEXT(0, "note", struct golden_values, note, CLI_A_TEXT("TEXT"), "add: why the capture is accepted"),
    OPT_TEXT(0, "by", struct golden_values, by, CLI_A_TEXT("WHO"), "add: who accepts it"),
    OPT_FLAG(0, "blame", struct golden_values, blame,
             "check: end with exit code 1 also when two things changed, and not with 4"),
    OPT_TEXT(0, "runtime", struct golden_values, runtime, CLI_A_RUNTIME("ID"),
             "check: repeat the newest capture of each chipset with this runtime, and check the new captures"),
    OPT_TEXT(0, "model", struct golden_values, model, CLI_A_MODEL("FILE.onnx"),
             "with --runtime: the model to capture"),
    OPT_LIST('p', "probe", struct golden_values, probes, CLI_A_PROBE,
             "with --runtime: inputs, as for 'npudiff capture'; may be repeated"),
    OPT_TEXT('o', "output", struct golden_values, output, CLI_A_FILE("PATH"),
             "with --runtime: the folder for the new captures; bundle: the file to write"),
    OPT_JOBS(struct golden_values, "with --runtime: run N devices at the same time (1)"),
    OPT_FORCE(struct golden_values, "with --runtime, bundle: overwrite what exists"),
    OPT_FLAG(0, "resume", struct golden_values, resume,
             "with --runtime: keep complete captures and make the missing ones"),
    OPT_NUMBER(0, "keep", struct golden_values, keep, "N", 1, 1e6,
               "prune: of entries with the same SDK, chipset, model, probes, options and host keep the newest "
               "N (all)"),
    OPT_FLAG(0, "dry-run", struct golden_values, dry_run,
             "prune: print what would be removed, and remove nothing"),
    OPT_VERBOSE(struct golden_values, "check, diff: list every tensor that differs; list: all entries with "
                                      "their notes; history: every step, and the tensors that changed"),
    OPT_TEXT(0, "report", struct golden_values, report, CLI_A_FILE("FILE.html"),
             "check, diff, history: also write the result as a page for a browser; overwrites an older report"),
    OPT_ANSWER_COLOR(struct golden_values),
    {.name = NULL},
};

static const struct cli_example examples[] = {
    {"npudiff golden add store captures/gen3.h5 --note 'accepted for 1.4' --by anna",
     "Accepts a capture: later ones are compared with it."},
    {"npudiff golden check store captures/gen3.h5",
     "Says whether a capture is what was accepted, and what changed."},
    {"npudiff golden bundle captures/gen3.h5 -o bundle.json",
     "Writes a report from the field that is small enough for a mail."},
};

const struct cli_command cmd_golden = {
    .name = "golden",
    .role = CLI_JUDGE,
    .summary = "keep accepted captures, say what changed since, and make bundles",
    .synopsis = "add|list|check|diff|history|prune STORE [CAPTURE.h5 ... | ENTRY ENTRY] | bundle CAPTURE.h5 -o "
                "FILE.json",
    .details =
        "A golden store is a folder of captures that somebody accepted.\n"
        "add STORE CAPTURE.h5 ...: verifies captures and stores them.\n"
        "list STORE: lists the entries.\n"
        "check STORE CAPTURE.h5 ...: compares a capture with the entry that has the most in common with it "
        "(SDK, chipset, model, probes, options, host; the same chipset first). It says which of them changed, "
        "which tensors differ, in the order of the graph, and by how much. If two of them changed, it does not "
        "say which one is the cause.\n"
        "check STORE --runtime ID --model FILE -p PROBE -o DIR: makes new captures with a different runtime on "
        "every chipset of the store, and checks them.\n"
        "diff STORE ENTRY ENTRY: compares two entries; the start of their name or label is enough. If the "
        "first entry cannot be right (all values NaN, no label right), the exit code is 3.\n"
        "history STORE: shows which tensors changed at which SDK, for each model and chipset of the store. It "
        "compares digests, and reads no capture. Its exit code is 0, or 2 for a damaged entry.\n"
        "prune STORE: removes files that interrupted commands left behind, and captures without an entry.\n"
        "bundle CAPTURE.h5 -o FILE.json: writes a few kilobytes for 'npudiff triage': the device, its runtime, "
        "options and host, and one digest per tensor and probe. Names of tensors and probes are replaced by "
        "the start of their SHA-256; only a golden store that has the names can find them again. The bundle "
        "holds no inputs, outputs, labels, shapes, operators, paths or logs.\n"
        "Exit code 0: same; 1: differs; 2: wrong usage, a file problem, or a damaged entry; 3: no entry of "
        "that model and probe, or only an entry that cannot be right; 4: two things changed; 5: a device "
        "failed.",
    CLI_TABLES(struct golden_values),
    .actions = action_names,
    CLI_OPERANDS(CLI_VALUE_CAPTURE, 2, CLI_ANY_NUMBER),
};
