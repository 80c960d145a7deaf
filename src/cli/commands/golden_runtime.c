/* `npudiff golden check --runtime`: what a different runtime changes. docs/guides/sdk-upgrade.md. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/commands/golden.h"
#include "cli/commands/report_file.h"
#include "cli/commands/resume_folders.h"
#include "cli/options/fleet.h"
#include "cli/options/workload.h"
#include "cli/terminal/output.h"
#include "cli/terminal/rows.h"
#include "cli/terminal/terminal.h"
#include "npudiff/compare/compare.h"
#include "npudiff/devices/device.h"
#include "npudiff/report/report.h"

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
    enum nd_status status = nd_model_check_static(regression->model, err);
    return status == ND_OK ? cli_probes_make(regression->model, &specs, false, &regression->probes, err)
                           : status;
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
    char *uri = with_runtime(planned->uri, regression->values->runtime);
    regression->paths[i] = cell_path(regression->values, planned->chipset, i);
    cell->path = regression->paths[i] != NULL ? strdup(regression->paths[i]) : NULL;
    enum nd_status status = uri != NULL && cell->path != NULL ? ND_OK : cli_memory_error(err);
    if (status == ND_OK)
        status = nd_device_parse(uri, &cell->device, err);
    free(uri);
    return status;
}

/* All cells from `first` on that are captured with the same options, which a fleet has in common. */
static int capture_alike(struct regression *regression, size_t first)
{
    const struct golden_values *values = regression->values;
    struct nd_error err = {0};
    const struct nd_golden_plan *plan = &regression->plan;
    const struct nd_golden_entry *like = &plan->entries[first];
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
    enum nd_status status = fleet.cells != NULL ? ND_OK : cli_memory_error(&err);
    for (size_t i = first; status == ND_OK && i < plan->n; i++)
        if (regression->paths[i] == NULL && is_captured_alike(&plan->entries[i], like))
            status = fill_cell(regression, i, &fleet.cells[fleet.n_cells++], &err);
    if (status == ND_OK && values->resume)
        status = cli_resume(&fleet, &err);
    int exit_code = status == ND_OK ? cli_fleet_capture(&fleet) : cli_report_error(&err);
    cli_fleet_deinit(&fleet);
    return exit_code;
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
    struct nd_capture *sides[2] = {NULL, NULL};
    struct nd_comparison *comparison = NULL;
    if (nd_golden_open_capture(store, upgrade->check.entry.id, &sides[0], NULL) == ND_OK &&
        nd_capture_open(upgrade->check.capture, &sides[1], NULL) == ND_OK &&
        nd_compare_captures((const struct nd_capture *const *)sides, 2, NULL, &comparison, NULL) == ND_OK) {
        for (size_t i = 0; !upgrade->has_top1 && i < comparison->n_top1; i++) {
            const struct nd_top1 *top1 = &comparison->top1[i];
            const struct nd_top1_pair *pair = &top1->pairs[0];
            upgrade->has_top1 = top1->has_labels && pair->exists;
            upgrade->n_samples = pair->n_samples;
            upgrade->n_right_before = top1->devices[0].n_correct;
            upgrade->n_right_after = top1->devices[1].n_correct;
            upgrade->n_lost = pair->n_lost;
            upgrade->n_gained = pair->n_gained;
            upgrade->p_value = pair->p_value;
        }
    }
    nd_comparison_destroy(&comparison);
    nd_capture_close(&sides[0]);
    nd_capture_close(&sides[1]);
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
    struct nd_error err = {0};
    struct nd_golden_upgrade *upgrades = calloc(regression->plan.n, sizeof *upgrades);
    size_t n = 0;
    int exit_code = 0;
    char *text = NULL;
    if (upgrades == NULL)
        return cli_fail_memory();
    for (size_t i = 0; i < regression->plan.n; i++) {
        exit_code = cli_worse(exit_code, judge_cell(regression, i, &upgrades[n]));
        n += upgrades[n].check.verdict != NULL;
    }
    bool is_json = regression->values->answer.json;
    const struct golden_values *values = regression->values;
    if (values->report != NULL) {
        enum nd_status made = nd_report_golden_upgrades_json(upgrades, n, &text, &err);
        exit_code =
            cli_worse(exit_code, cli_report_write_one(values->report, "golden check", made, text, &err));
        text = NULL;
    }
    enum nd_status status =
        is_json ? nd_report_golden_upgrades_json(upgrades, n, &text, &err)
                : nd_report_golden_upgrades_text(upgrades, n, cli_text_width(0), values->verbose, &text, &err);
    for (size_t i = 0; i < n; i++)
        nd_golden_check_deinit(&upgrades[i].check);
    free(upgrades);
    return cli_worse(exit_code, cli_print_answer(status, text, &values->answer, &err));
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
        fprintf(
            stderr,
            "npudiff: %zu %s of the model not captured again: the device takes no runtime (an emulated one, or "
            "a reference)\n",
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

int golden_check_runtime(const struct golden_values *values, const char *store_path,
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
    cli_signals_end_if_came();
    return exit_code;
}

int golden_tell_problems(const char *path, const struct nd_golden *store)
{
    for (size_t i = 0; i < nd_golden_n_problems(store); i++) {
        struct nd_golden_problem problem = nd_golden_problem(store, i);
        fprintf(stderr, "npudiff: '%s/%s' is skipped: %s\n", path, problem.object, problem.problem);
    }
    return nd_golden_n_problems(store) > 0 ? ND_EXIT_TROUBLE : 0;
}
